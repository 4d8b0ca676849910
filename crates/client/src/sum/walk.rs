//! Walking down the tree after a sum did not open: which edge did it (DESIGN section 7). No I/O.
//!
//! Of an aggregator whose share is wrong the children's shares are asked for, as it has them. Of each the querier learns whether it is
//! true or not, never what it is, and goes on below those that are not. An aggregator whose children's shares are true, and do not add
//! up to its own, is the one; what an edge's lower end says of itself and its upper end says of it cannot be told apart, so that it is
//! always an edge that is named. What the answers take is bounded by the tree.

use std::collections::VecDeque;
use std::fmt;

use moteseal_core::engine::Engine;
use moteseal_core::record::DeviceId;
use moteseal_core::wire::sum::{Children, Explain, Share};
use moteseal_verify::aggregation::{AggregationTree, Child, Hub, QUERIER};

use super::open::{Querier, Refusal};
use super::share::{ShareError, Sum};

/// No walk asks more often.
pub const MAX_QUESTIONS: usize = 4096;
/// A walk ends once so many aggregators have not answered.
pub const MAX_UNANSWERED: usize = 4;

/// What a walk has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// What went over this edge was wrong.
    Edge {
        /// The name of its lower end.
        child: String,
        /// The name of its upper end.
        parent: String,
    },
    /// An aggregator whose share was wrong did not say what its children had said, or has forgotten it.
    Unanswered {
        /// Its name.
        node: String,
        /// The name of the one above it.
        parent: String,
    },
}

impl fmt::Display for Finding {
    /// `gw-a -> root`, of an aggregator that does not answer with a word on that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edge { child, parent } => write!(f, "{child} -> {parent}"),
            Self::Unanswered { node, parent } => write!(f, "{node} -> {parent} (unanswered)"),
        }
    }
}

/// A walk down the tree for one epoch.
#[derive(Debug)]
pub struct Walk<'t> {
    tree: &'t AggregationTree,
    querier: Hub,
    query: u32,
    epoch: u64,
    /// Aggregators whose shares are wrong.
    pending: VecDeque<Failed>,
    asked: Option<Asked>,
    questions: usize,
    unanswered: usize,
    findings: Vec<Finding>,
}

/// An aggregator whose share is wrong.
#[derive(Debug)]
struct Failed {
    node: DeviceId,
    name: String,
    parent: String,
    /// What it said.
    said: Sum,
}

/// An aggregator that was asked, and its children's shares so far.
#[derive(Debug)]
struct Asked {
    failed: Failed,
    hub: Hub,
    /// How many children were heard of.
    next: u32,
    /// Which, by their places in the hub.
    heard: Vec<bool>,
    /// What the children have said adds up to this, as far as it could be read.
    merged: Sum,
    /// Of those that are wrong: the aggregators, and the edges of all others.
    wrong: Vec<Failed>,
    edges: Vec<Finding>,
}

impl<'t> Walk<'t> {
    /// A walk for an epoch, from what the querier's children have said: of each the place among the children of the querier's hub, and its
    /// share, or why it could not be read. Children that were silent are left out.
    pub fn new<E: Engine + Sync>(
        tree: &'t AggregationTree,
        querier: &Querier<E>,
        epoch: u64,
        children: impl IntoIterator<Item = (usize, Option<Sum>)>,
    ) -> Self {
        let hub = tree.querier();
        let query = querier.id().reference();
        let (pending, asked, findings) = (VecDeque::new(), None, Vec::new());
        let mut walk = Self { tree, querier: hub, query, epoch, pending, asked, questions: 0, unanswered: 0, findings };
        for (place, said) in children {
            let Some(child) = walk.querier.children().get(place) else { continue };
            if said.as_ref().is_some_and(|sum| querier.is_true(epoch, sum)) {
                continue;
            }
            match wrong(child, QUERIER, said) {
                Ok(failed) => walk.pending.push_back(failed),
                Err(edge) => walk.findings.push(edge),
            }
        }
        walk
    }

    /// The next question, and the child of the querier that it goes to. The same again until it was [answered](Self::answer) or
    /// [given up](Self::give_up). At the end, none.
    pub fn question(&mut self) -> Option<(DeviceId, Explain)> {
        while self.asked.is_none() {
            let failed = self.pending.pop_front()?;
            if self.questions >= MAX_QUESTIONS || self.unanswered >= MAX_UNANSWERED {
                self.findings.push(failed.unanswered());
                continue;
            }
            let Some(hub) = self.tree.hub(&failed.name) else {
                self.findings.push(failed.edge());
                continue;
            };
            let (merged, heard) = (Sum::none(failed.said.shape()), vec![false; hub.children().len()]);
            self.asked = Some(Asked { failed, hub, next: 0, heard, merged, wrong: Vec::new(), edges: Vec::new() });
            self.questions += 1;
        }
        let asked = self.asked.as_ref()?;
        let way = self.querier.next_hop(asked.failed.node).and_then(|place| self.querier.children().get(place))?;
        Some((way.id, Explain { query: self.query, epoch: self.epoch, node: asked.failed.node, first: asked.next }))
    }

    /// Takes an answer that a child of the querier brings; says whether it was one to the question that was asked last. From another child
    /// than the one that was asked it is none: who could answer for others could have them named.
    pub fn answer<E: Engine + Sync>(&mut self, querier: &Querier<E>, from: DeviceId, children: &Children<'_>) -> bool {
        let Some(asked) = &mut self.asked else { return false };
        let way = self.querier.next_hop(asked.failed.node);
        if way.is_none() || way != self.querier.child(from) {
            return false;
        }
        let is_asked = (children.query, children.epoch) == (self.query, self.epoch)
            && (children.node, children.first) == (asked.failed.node, asked.next);
        if !is_asked {
            return false;
        }
        if children.total == 0 {
            // It has nothing of the epoch any more, or says so.
            self.findings.extend(self.asked.take().map(|asked| asked.failed.unanswered()));
            return true;
        }
        let (mut heard, mut is_sound) = (0_u32, children.total as usize <= asked.hub.children().len());
        for (id, participation, psrs) in children.shares() {
            heard += 1;
            let share = Share { query: self.query, epoch: self.epoch, participation, psrs };
            is_sound &= asked.hear(querier, id, &share);
        }
        asked.next = asked.next.saturating_add(heard);
        let is_last = asked.next >= children.total;
        if is_sound && !is_last && heard > 0 && self.questions < MAX_QUESTIONS {
            self.questions += 1;
            return true;
        }
        if let Some(asked) = self.asked.take() {
            self.conclude(asked, is_sound && is_last);
        }
        true
    }

    /// Gives the present question up: nobody has answered it.
    pub fn give_up(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.unanswered += 1;
            self.findings.push(asked.failed.unanswered());
        }
    }

    /// What was found.
    #[must_use]
    pub fn finish(self) -> Vec<Finding> {
        self.findings
    }

    fn conclude(&mut self, asked: Asked, is_sound: bool) {
        let Asked { failed, merged, wrong, edges, .. } = asked;
        // What it says of its children must add up to what it said of itself; otherwise it is (also) this one.
        if !is_sound || merged != failed.said {
            self.findings.push(failed.edge());
        }
        self.findings.extend(edges);
        self.pending.extend(wrong);
    }
}

/// A child whose share is wrong: an aggregator to be asked, or the edge. An aggregator's share that cannot even be read says enough: an
/// honest one neither sends it nor takes it from another.
fn wrong(child: &Child, parent: &str, said: Option<Sum>) -> Result<Failed, Finding> {
    let (name, parent) = (child.name.clone(), parent.to_owned());
    match said {
        Some(said) if child.is_gateway => Ok(Failed { node: child.id, name, parent, said }),
        _ => Err(Finding::Edge { child: name, parent }),
    }
}

impl Failed {
    fn edge(&self) -> Finding {
        Finding::Edge { child: self.name.clone(), parent: self.parent.clone() }
    }

    fn unanswered(&self) -> Finding {
        Finding::Unanswered { node: self.name.clone(), parent: self.parent.clone() }
    }
}

impl Asked {
    /// Takes what the aggregator has of a child; says whether it can have that.
    fn hear<E: Engine + Sync>(&mut self, querier: &Querier<E>, id: DeviceId, share: &Share<'_>) -> bool {
        let Some(place) = self.hub.child(id).filter(|place| !self.heard[*place]) else { return false };
        self.heard[place] = true;
        let child = &self.hub.children()[place];
        let said = read_child(querier, &self.hub, place, share.epoch, share).ok();
        if said.as_ref().is_some_and(|said| self.merged.merge(said).is_err()) {
            return false;
        }
        if !said.as_ref().is_some_and(|said| querier.is_true(share.epoch, said)) {
            match wrong(child, self.hub.name(), said) {
                Ok(failed) => self.wrong.push(failed),
                Err(edge) => self.edges.push(edge),
            }
        }
        true
    }
}

/// Reads what a child of a hub says: of nobody but those beneath it.
///
/// # Errors
/// As [`Querier::read`], and `NotBeneath`.
pub(super) fn read_child<E: Engine + Sync>(
    querier: &Querier<E>,
    hub: &Hub,
    place: usize,
    epoch: u64,
    share: &Share<'_>,
) -> Result<Sum, Refusal> {
    let sum = querier.read(epoch, share)?;
    let are_beneath = sum.participants().runs().all(|run| hub.are_beneath(run, place));
    if are_beneath { Ok(sum) } else { Err(ShareError::NotBeneath.into()) }
}
