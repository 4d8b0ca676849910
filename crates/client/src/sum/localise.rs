//! Fault localisation: finds the edge of the tree at which a sum that did not open was falsified
//! (`docs/design.md`, *Sums*). This module does no I/O.
//!
//! The querier asks each aggregator whose share is wrong for the shares of its children. For each
//! share, the querier learns only whether the share is correct. A share with a participant that does
//! not take part in the epoch also counts as wrong. The querier then continues below
//! the children whose shares are wrong. If the shares of an aggregator's children are correct but
//! do not add up to the aggregator's own share, the fault is the edge above the aggregator. The
//! querier cannot tell which end of an edge is dishonest, so it always names an edge. The size of
//! the tree bounds the memory.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use moteseal_core::record::DeviceId;
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::wire::{Children, Explain, Share};
use moteseal_verify::aggregation::{AggregationTree, Aggregator, Child};

use super::participants::Participants;
use super::querier::{Querier, Rejection};
use super::share::{ShareError, Sum};

/// The maximum number of questions for one epoch.
pub const MAX_QUESTIONS: usize = 4096;
/// The maximum number of questions that are open at a time.
pub const MAX_ASKED: usize = 64;
/// The number of attempts to ask an aggregator. If all of them fail, the aggregator counts as
/// silent.
pub const ATTEMPTS: u32 = 3;

/// A located fault, or the reason why a fault could not be located.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A wrong share was sent over this edge.
    Edge {
        /// The name of the edge's lower end.
        child: String,
        /// The name of the edge's upper end.
        parent: String,
    },
    /// An aggregator whose share was wrong did not report its children's shares in time.
    Unanswered {
        /// The name of the aggregator.
        node: String,
        /// The name of the aggregator's parent.
        parent: String,
    },
    /// An aggregator whose share was wrong reports that it no longer has the epoch, because it was
    /// asked too late or was restarted. This does not locate the fault.
    Forgotten {
        /// The name of the aggregator.
        node: String,
        /// The name of the aggregator's parent.
        parent: String,
    },
}

impl Finding {
    /// Returns the name of the aggregator that no longer has the epoch, or `None` for any other
    /// finding.
    #[must_use]
    pub fn forgotten(&self) -> Option<&str> {
        if let Self::Forgotten { node, .. } = self { Some(node) } else { None }
    }
}

impl fmt::Display for Finding {
    /// Writes the edge, such as `gw-a -> root`, and adds `(unanswered)` if the aggregator does not
    /// answer. If the aggregator no longer has the epoch, writes that instead of the edge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edge { child, parent } => write!(f, "{child} -> {parent}"),
            Self::Unanswered { node, parent } => write!(f, "{node} -> {parent} (unanswered)"),
            Self::Forgotten { node, .. } => write!(f, "{node} no longer has the epoch"),
        }
    }
}

/// The fault localisation for one epoch.
#[derive(Debug)]
pub struct Localisation {
    tree: Arc<AggregationTree>,
    querier: Aggregator,
    query: u32,
    epoch: u64,
    /// The sources that take part in the epoch.
    members: Participants,
    /// The aggregators whose shares are wrong and that have not been asked yet, in the order in
    /// which they are asked.
    pending: VecDeque<Asked>,
    /// The aggregators that have been asked and have not answered yet.
    asked: Vec<Asked>,
    questions: usize,
    findings: Vec<Finding>,
}

/// An aggregator whose share is wrong, with its edge and its share.
#[derive(Debug)]
struct Failed {
    node: DeviceId,
    name: String,
    parent: String,
    /// The share that the aggregator sent.
    share: Sum,
}

/// A question to an aggregator, with the parts of its answer that have arrived.
#[derive(Debug)]
struct Asked {
    failed: Failed,
    /// The number of failed attempts of the current question.
    tries: u32,
    answer: Option<Answer>,
}

/// The children's shares that an aggregator has reported so far.
#[derive(Debug)]
struct Answer {
    /// The number of children that the aggregator has reported.
    next: u32,
    /// Whether each child has been reported, by the child's place in the aggregator.
    reported: Vec<bool>,
    /// The sum of the reported shares.
    merged: Sum,
    /// Whether a reported share could not be read. `merged` is then not complete.
    has_unreadable: bool,
    /// The children with wrong shares. Aggregators are asked next; the edges of all other children
    /// are findings.
    wrong: Vec<Failed>,
    edges: Vec<Finding>,
}

impl Localisation {
    /// Creates the localisation for an epoch in which the sources `members` take part. `children`
    /// contains each child of the querier that sent a share: its place among the children of the
    /// querier's aggregator, and its share, or `None` if the share could not be read. Children that
    /// sent no share are left out.
    pub fn new<E: KeyEngine + Sync>(
        tree: Arc<AggregationTree>,
        querier: &Querier<E>,
        epoch: u64,
        members: Participants,
        children: impl IntoIterator<Item = (usize, Option<Sum>)>,
    ) -> Self {
        let aggregator = tree.querier();
        let query = querier.id().reference();
        let (pending, asked, findings) = (VecDeque::new(), Vec::new(), Vec::new());
        let mut localisation = Self {
            tree,
            querier: aggregator,
            query,
            epoch,
            members,
            pending,
            asked,
            questions: 0,
            findings,
        };
        for (place, share) in children {
            let Some(child) = localisation.querier.children().get(place) else { continue };
            let is_right = |sum| is_right(querier, epoch, &localisation.members, sum);
            if share.as_ref().is_some_and(is_right) {
                continue;
            }
            match wrong(child, localisation.tree.querier_name(), share) {
                Ok(failed) => localisation.pending.push_back(Asked::new(failed)),
                Err(edge) => localisation.findings.push(edge),
            }
        }
        localisation
    }

    /// Returns the next question, and the child of the querier to which the question must be sent.
    /// Returns `None` if no question is left, or if [`MAX_ASKED`] questions are open. The caller
    /// must pass the outcome of each question to [`answer`](Self::answer) or
    /// [`give_up`](Self::give_up). Every aggregator is asked once before any aggregator is asked
    /// again.
    pub fn question(&mut self) -> Option<(DeviceId, Explain)> {
        while self.asked.len() < MAX_ASKED {
            let next = self.pending.pop_front()?;
            let way = self
                .querier
                .next_hop(next.failed.node)
                .and_then(|place| self.querier.children().get(place));
            let Some(way) = way.filter(|_| self.questions < MAX_QUESTIONS) else {
                self.findings.push(next.failed.unanswered());
                continue;
            };
            self.questions += 1;
            let explain = Explain {
                query: self.query,
                epoch: self.epoch,
                node: next.failed.node,
                first: next.first(),
            };
            self.asked.push(next);
            return Some((way.id, explain));
        }
        None
    }

    /// Returns whether no question is open and none is left to ask.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.pending.is_empty() && self.asked.is_empty()
    }

    /// Handles an answer that a child of the querier sent. Returns whether it answers an open
    /// question. The answer must come from the child to which the question was sent. Otherwise a
    /// child could answer on behalf of aggregators below other children, and cause false findings
    /// about them.
    pub fn answer<E: KeyEngine + Sync>(
        &mut self,
        querier: &Querier<E>,
        from: DeviceId,
        children: &Children<'_>,
    ) -> bool {
        let way = self.querier.next_hop(children.node);
        if way.is_none()
            || way != self.querier.child(from)
            || (children.query, children.epoch) != (self.query, self.epoch)
        {
            return false;
        }
        let Some(mut asked) = self.take_asked(children.node, children.first) else { return false };
        if children.total == 0 {
            self.findings.push(asked.failed.forgotten());
            return true;
        }
        let Some(aggregator) = self.tree.aggregator(&asked.failed.name) else {
            self.findings.push(asked.failed.edge());
            return true;
        };
        let mut answer =
            asked.answer.take().unwrap_or_else(|| Answer::new(&aggregator, &asked.failed));
        let (mut received, mut is_plausible) =
            (0_u32, children.total as usize <= aggregator.children().len());
        for (id, participation, psrs) in children.shares() {
            received += 1;
            let share = Share { query: self.query, epoch: self.epoch, participation, psrs };
            is_plausible &= answer.add(querier, &self.members, &aggregator, id, &share);
        }
        answer.next = answer.next.saturating_add(received);
        let is_last = answer.next >= children.total;
        if is_plausible && !is_last && received > 0 {
            // The answer continues in further frames. Ask for the remaining children before
            // anything else.
            self.pending.push_front(Asked { failed: asked.failed, tries: 0, answer: Some(answer) });
        } else {
            self.conclude(asked.failed, answer, is_plausible && is_last);
        }
        true
    }

    /// Handles a question that was not answered in time. The question is asked again after all
    /// other questions; after [`ATTEMPTS`] attempts, it becomes a finding. Ignores a question that
    /// is not open.
    pub fn give_up(&mut self, question: &Explain) {
        let Some(mut asked) = self.take_asked(question.node, question.first) else { return };
        asked.tries += 1;
        if asked.tries < ATTEMPTS {
            self.pending.push_back(asked);
        } else {
            self.findings.push(asked.failed.unanswered());
        }
    }

    /// Returns the findings. Each aggregator that has not answered by now becomes
    /// [`Finding::Unanswered`].
    #[must_use]
    pub fn finish(mut self) -> Vec<Finding> {
        let silent = self.asked.iter().chain(&self.pending).map(|asked| asked.failed.unanswered());
        self.findings.extend(silent);
        self.findings
    }

    /// Removes and returns the open question that asks `node` for its children from place `first`
    /// on.
    fn take_asked(&mut self, node: DeviceId, first: u32) -> Option<Asked> {
        let place = self
            .asked
            .iter()
            .position(|asked| asked.failed.node == node && asked.first() == first)?;
        Some(self.asked.swap_remove(place))
    }

    fn conclude(&mut self, failed: Failed, answer: Answer, is_plausible: bool) {
        let Answer { merged, has_unreadable, wrong, edges, .. } = answer;
        // The children's shares must add up to the aggregator's share. Otherwise the aggregator's
        // own edge is a fault, possibly in addition to edges below it. If a share cannot be read,
        // the edge above its child is found, and the sum is not known.
        if !is_plausible || (!has_unreadable && merged != failed.share) {
            self.findings.push(failed.edge());
        }
        self.findings.extend(edges);
        self.pending.extend(wrong.into_iter().map(Asked::new));
    }
}

/// Returns what follows from a child's wrong share: an aggregator to be asked, or the finding about
/// the child's edge. An aggregator's share that cannot be read immediately becomes a finding,
/// because an honest aggregator neither sends nor accepts such a share.
fn wrong(child: &Child, parent: &str, share: Option<Sum>) -> Result<Failed, Finding> {
    let (name, parent) = (child.name.clone(), parent.to_owned());
    match share {
        Some(share) if child.is_gateway => Ok(Failed { node: child.id, name, parent, share }),
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

    fn forgotten(&self) -> Finding {
        Finding::Forgotten { node: self.name.clone(), parent: self.parent.clone() }
    }
}

impl Asked {
    const fn new(failed: Failed) -> Self {
        Self { failed, tries: 0, answer: None }
    }

    /// Returns the place of the first child to ask for.
    fn first(&self) -> u32 {
        self.answer.as_ref().map_or(0, |answer| answer.next)
    }
}

impl Answer {
    fn new(aggregator: &Aggregator, failed: &Failed) -> Self {
        let (reported, merged) =
            (vec![false; aggregator.children().len()], Sum::none(failed.share.shape()));
        let (wrong, edges) = (Vec::new(), Vec::new());
        Self { next: 0, reported, merged, has_unreadable: false, wrong, edges }
    }

    /// Adds the share of a child that the aggregator reports. Returns whether the report is
    /// plausible: the child exists, has not been reported before, and has no sources in common with
    /// the other children.
    fn add<E: KeyEngine + Sync>(
        &mut self,
        querier: &Querier<E>,
        members: &Participants,
        aggregator: &Aggregator,
        id: DeviceId,
        share: &Share<'_>,
    ) -> bool {
        let Some(place) = aggregator.child(id).filter(|place| !self.reported[*place]) else {
            return false;
        };
        self.reported[place] = true;
        let child = &aggregator.children()[place];
        let sum = read_child(querier, aggregator, place, share.epoch, share).ok();
        if sum.as_ref().is_some_and(|sum| self.merged.merge(sum).is_err()) {
            return false;
        }
        self.has_unreadable |= sum.is_none();
        if !sum.as_ref().is_some_and(|sum| is_right(querier, share.epoch, members, sum)) {
            match wrong(child, aggregator.name(), sum) {
                Ok(failed) => self.wrong.push(failed),
                Err(edge) => self.edges.push(edge),
            }
        }
        true
    }
}

/// Returns whether a share is the correct sum of its participants, and all of them take part in the
/// epoch.
fn is_right<E: KeyEngine + Sync>(
    querier: &Querier<E>,
    epoch: u64,
    members: &Participants,
    share: &Sum,
) -> bool {
    share.participants().first_outside(members).is_none() && querier.is_correct(epoch, share)
}

/// Parses the share of an aggregator's child. The share must name only participants below the
/// child.
///
/// # Errors
/// The errors of [`Querier::read`], and `NotBeneath`.
pub(super) fn read_child<E: KeyEngine + Sync>(
    querier: &Querier<E>,
    aggregator: &Aggregator,
    place: usize,
    epoch: u64,
    share: &Share<'_>,
) -> Result<Sum, Rejection> {
    let sum = querier.read(epoch, share)?;
    let are_beneath = sum.participants().runs().all(|run| aggregator.are_beneath(run, place));
    if are_beneath { Ok(sum) } else { Err(ShareError::NotBeneath.into()) }
}
