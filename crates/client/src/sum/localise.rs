//! Fault localisation: finds the edge of the tree at which a sum that did not open was falsified
//! (`docs/design.md`, *Sums*). No I/O.
//!
//! The querier asks each aggregator whose share is wrong for the shares of its children. For each
//! share it learns only whether it is correct, and continues below those that are not. If the
//! shares of an aggregator's children are correct but do not add up to its own, the aggregator's
//! edge is the fault. The querier cannot distinguish which end of an edge lied, so it always names
//! an edge. Memory is bounded by the tree.

use std::collections::VecDeque;
use std::fmt;

use moteseal_core::record::DeviceId;
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::wire::{Children, Explain, Share};
use moteseal_verify::aggregation::{AggregationTree, Aggregator, Child, QUERIER};

use super::querier::{Querier, Rejection};
use super::share::{ShareError, Sum};

/// The largest number of questions for one epoch.
pub const MAX_QUESTIONS: usize = 4096;
/// The largest number of questions that are open at a time.
pub const MAX_ASKED: usize = 64;
/// Attempts before an aggregator counts as silent.
pub const ATTEMPTS: u32 = 3;

/// The result of a localisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A wrong share was sent over this edge.
    Edge {
        /// The name of its lower end.
        child: String,
        /// The name of its upper end.
        parent: String,
    },
    /// An aggregator whose share was wrong did not report its children's shares in time.
    Unanswered {
        /// Its name.
        node: String,
        /// The name of the one above it.
        parent: String,
    },
    /// An aggregator whose share was wrong reports that it no longer has the epoch, because it was
    /// asked late or was restarted. This does not locate the fault.
    Forgotten {
        /// Its name.
        node: String,
        /// The name of the one above it.
        parent: String,
    },
}

impl Finding {
    /// The name of the aggregator that no longer has the epoch; `None` for a finding about an edge.
    #[must_use]
    pub fn forgotten(&self) -> Option<&str> {
        if let Self::Forgotten { node, .. } = self { Some(node) } else { None }
    }
}

impl fmt::Display for Finding {
    /// `gw-a -> root`, with a remark if an aggregator does not answer or no longer has the epoch.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edge { child, parent } => write!(f, "{child} -> {parent}"),
            Self::Unanswered { node, parent } => write!(f, "{node} -> {parent} (unanswered)"),
            Self::Forgotten { node, .. } => write!(f, "{node} no longer has the epoch"),
        }
    }
}

/// A localisation for one epoch.
#[derive(Debug)]
pub struct Localisation<'t> {
    tree: &'t AggregationTree,
    querier: Aggregator,
    query: u32,
    epoch: u64,
    /// Aggregators whose shares are wrong, to be asked in this order.
    pending: VecDeque<Asked>,
    /// Aggregators whose answers are pending.
    asked: Vec<Asked>,
    questions: usize,
    findings: Vec<Finding>,
}

/// An aggregator whose share is wrong.
#[derive(Debug)]
struct Failed {
    node: DeviceId,
    name: String,
    parent: String,
    /// The share that it sent.
    share: Sum,
}

/// An aggregator that is asked.
#[derive(Debug)]
struct Asked {
    failed: Failed,
    /// Failed attempts of the current question.
    tries: u32,
    answer: Option<Answer>,
}

/// The children's shares that an aggregator has reported so far.
#[derive(Debug)]
struct Answer {
    /// Number of children reported.
    next: u32,
    /// Whether each child was reported, by its place in the aggregator.
    reported: Vec<bool>,
    /// The sum of the shares that could be read.
    merged: Sum,
    /// Children with wrong shares: the aggregators, and the edges of all others.
    wrong: Vec<Failed>,
    edges: Vec<Finding>,
}

impl<'t> Localisation<'t> {
    /// A localisation for an epoch. `children` contains, for each child of the querier that sent a
    /// share, its place among the children of the querier's aggregator, and the share, or `None` if
    /// the share could not be read. Children that sent nothing are left out.
    pub fn new<E: KeyEngine + Sync>(
        tree: &'t AggregationTree,
        querier: &Querier<E>,
        epoch: u64,
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
            pending,
            asked,
            questions: 0,
            findings,
        };
        for (place, share) in children {
            let Some(child) = localisation.querier.children().get(place) else { continue };
            if share.as_ref().is_some_and(|sum| querier.is_correct(epoch, sum)) {
                continue;
            }
            match wrong(child, QUERIER, share) {
                Ok(failed) => localisation.pending.push_back(Asked::new(failed)),
                Err(edge) => localisation.findings.push(edge),
            }
        }
        localisation
    }

    /// The next question, and the child of the querier to send it to; `None` while enough questions
    /// are open. Each question must be [answered](Self::answer) or [given up](Self::give_up). Every
    /// aggregator is asked once before any is asked again.
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

    /// Whether no question is open or left to be sent.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.pending.is_empty() && self.asked.is_empty()
    }

    /// Handles an answer that a child of the querier sent. Returns whether it answers an open
    /// question. An answer must come from the child that the question was sent to: otherwise a
    /// child could answer for others and have them accused.
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
            is_plausible &= answer.add(querier, &aggregator, id, &share);
        }
        answer.next = answer.next.saturating_add(received);
        let is_last = answer.next >= children.total;
        if is_plausible && !is_last && received > 0 {
            // Ask for the remaining children at once.
            self.pending.push_front(Asked { failed: asked.failed, tries: 0, answer: Some(answer) });
        } else {
            self.conclude(asked.failed, answer, is_plausible && is_last);
        }
        true
    }

    /// Handles a question that was not answered in time: it is asked again after all others, or
    /// counts as unanswered after [`ATTEMPTS`] attempts. Ignores a question that is not open.
    pub fn give_up(&mut self, question: &Explain) {
        let Some(mut asked) = self.take_asked(question.node, question.first) else { return };
        asked.tries += 1;
        if asked.tries < ATTEMPTS {
            self.pending.push_back(asked);
        } else {
            self.findings.push(asked.failed.unanswered());
        }
    }

    /// Returns the findings. An aggregator that has not answered by now is [`Finding::Unanswered`].
    #[must_use]
    pub fn finish(mut self) -> Vec<Finding> {
        let silent = self.asked.iter().chain(&self.pending).map(|asked| asked.failed.unanswered());
        self.findings.extend(silent);
        self.findings
    }

    /// Removes and returns the open question for this node's children from `first` on.
    fn take_asked(&mut self, node: DeviceId, first: u32) -> Option<Asked> {
        let place = self
            .asked
            .iter()
            .position(|asked| asked.failed.node == node && asked.first() == first)?;
        Some(self.asked.swap_remove(place))
    }

    fn conclude(&mut self, failed: Failed, answer: Answer, is_plausible: bool) {
        let Answer { merged, wrong, edges, .. } = answer;
        // The children's shares must add up to the aggregator's share; otherwise its own edge is at
        // fault (too).
        if !is_plausible || merged != failed.share {
            self.findings.push(failed.edge());
        }
        self.findings.extend(edges);
        self.pending.extend(wrong.into_iter().map(Asked::new));
    }
}

/// The follow-up for a child with a wrong share: an aggregator to be asked, or the finding about
/// its edge. An aggregator's share that cannot be read is a finding at once: an honest aggregator
/// neither sends such a share nor accepts one.
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

    /// The place of the first child to ask for.
    fn first(&self) -> u32 {
        self.answer.as_ref().map_or(0, |answer| answer.next)
    }
}

impl Answer {
    fn new(aggregator: &Aggregator, failed: &Failed) -> Self {
        let (reported, merged) =
            (vec![false; aggregator.children().len()], Sum::none(failed.share.shape()));
        Self { next: 0, reported, merged, wrong: Vec::new(), edges: Vec::new() }
    }

    /// Adds the share of a child that the aggregator reports. Returns whether it is plausible: the
    /// child exists, is reported once, and its sources do not overlap with others.
    fn add<E: KeyEngine + Sync>(
        &mut self,
        querier: &Querier<E>,
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
        if !sum.as_ref().is_some_and(|sum| querier.is_correct(share.epoch, sum)) {
            match wrong(child, aggregator.name(), sum) {
                Ok(failed) => self.wrong.push(failed),
                Err(edge) => self.edges.push(edge),
            }
        }
        true
    }
}

/// Parses the share of an aggregator's child, which must only name participants below the child.
///
/// # Errors
/// As [`Querier::read`], and `NotBeneath`.
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
