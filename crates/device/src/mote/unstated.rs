//! The answers to queries that no seal of the mote states yet. Each answer must be stated in
//! exactly one seal that is signed and not given up (docs/design.md, sums).
//!
//! The epoch guard, not this module, decides whether an epoch may be answered. This state is only
//! in memory; the journal restores it.

use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::Signer;
use moteseal_seal::{Answered, Answers};
use moteseal_sum::query::QueryId;

use super::{Mote, SealKeys};
use crate::seal::SealRefused;

/// Answers that no seal states yet. They are stored as runs: a run is a sequence of consecutive
/// epochs of one query. The runs are ordered by query and first epoch, and adjacent runs are
/// joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unstated(Vec<Answered>);

impl Unstated {
    /// Returns the runs.
    #[must_use]
    pub fn runs(&self) -> &[Answered] {
        &self.0
    }

    /// Adds a run.
    pub fn add(&mut self, run: Answered) {
        let at =
            self.0.partition_point(|before| (before.query, before.first) <= (run.query, run.first));
        self.0.insert(at, run);
        self.0.dedup_by(|run, before| {
            let joined = join(*before, *run);
            *before = joined.unwrap_or(*before);
            joined.is_some()
        });
    }

    /// Adds the answers that a seal stated.
    pub fn add_all(&mut self, answers: &Answers) {
        answers.runs().for_each(|run| self.add(run));
    }

    /// Removes as many runs as one seal can state, and returns them.
    pub(super) fn take(&mut self) -> Answers {
        let mut taken = Answers::NONE;
        self.0.retain(|run| !taken.push(*run));
        taken
    }
}

/// Joins two runs if they are adjacent and if the length of the joined run can be encoded.
fn join(before: Answered, run: Answered) -> Option<Answered> {
    let end = |run: Answered| u128::from(run.first) + u128::from(run.count);
    let touch = before.query == run.query && u128::from(run.first) <= end(before);
    let count = u32::try_from(end(before).max(end(run)) - u128::from(before.first)).ok()?;
    touch.then_some(Answered { count, ..before })
}

impl<K: Signer, const N: usize> Mote<K, N> {
    /// Records that an epoch of a query was answered. The open seal states the answer. If no seal
    /// is open or it has no room, the next seal does.
    pub fn answered(&mut self, query: QueryId, epoch: u64) {
        let stated = self.open.as_mut().is_some_and(|open| open.answers.add(query.0, epoch));
        if !stated {
            self.unstated.add(Answered { query: query.0, first: epoch, count: 1 });
        }
    }

    /// Returns whether the open seal would state this answer.
    #[must_use]
    pub fn would_state(&self, query: QueryId, epoch: u64) -> bool {
        self.open.as_ref().is_some_and(|open| Answers::add(&mut { open.answers }, query.0, epoch))
    }

    /// Closes the open seal if it belongs to this epoch, and continues the epoch under the next
    /// index, in order to make room for answers.
    ///
    /// # Errors
    /// [`SealRefused`]. Nothing has changed.
    pub fn part(&mut self, epoch: EpochNumber) -> Result<(), SealRefused> {
        let keys = self.new_keys(epoch)?;
        self.part_with(epoch, keys)
    }

    /// Does the same as [`part`](Self::part) with these keys of the new seal.
    pub(crate) fn part_with(
        &mut self,
        epoch: EpochNumber,
        keys: Option<SealKeys>,
    ) -> Result<(), SealRefused> {
        if self.chain.next_index.0 == u32::MAX {
            return Err(SealRefused::IndexExhausted);
        }
        if self.epoch() == Some(epoch) {
            self.close_or_give_up(false)?;
        }
        self.go_to(epoch, keys)
    }

    /// Returns the answers that no seal states yet.
    #[must_use]
    pub const fn unstated(&self) -> &Unstated {
        &self.unstated
    }

    /// Replaces the answers that no seal states yet.
    pub fn set_unstated(&mut self, unstated: Unstated) {
        self.unstated = unstated;
    }

    /// Adds the answers of a seal that was given up. The next seal that is opened states them.
    pub fn state_again(&mut self, answers: &Unstated) {
        answers.runs().iter().for_each(|run| self.unstated.add(*run));
    }

    /// Returns the answers that an open or waiting seal states.
    #[must_use]
    pub fn answers_of(&self, index: SealIndex) -> Answers {
        let open = self.open.as_ref().filter(|open| open.index == index).map(|open| open.answers);
        let waiting = || {
            self.waiting
                .iter()
                .find(|waiting| waiting.index == index)
                .map(|waiting| waiting.answers)
        };
        open.or_else(waiting).unwrap_or(Answers::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(query: u8, first: u64, count: u32) -> Answered {
        Answered { query: [query; 16], first, count }
    }

    #[test]
    fn joins_adjacent_runs_in_any_order() {
        let runs = [
            run(1, 5, 2),
            run(2, 7, 1),
            run(1, 10, 5),
            run(1, 7, 3),
            run(1, 16, 1),
            run(1, 15, 1),
            run(0, 1, 1),
        ];
        for turn in 0..runs.len() {
            let mut unstated = Unstated::default();
            runs.iter().cycle().skip(turn).take(runs.len()).for_each(|run| unstated.add(*run));
            assert_eq!(unstated.runs(), [run(0, 1, 1), run(1, 5, 12), run(2, 7, 1)]);
        }
    }

    #[test]
    fn runs_too_long_to_join_stay_apart_and_go_into_two_seals() {
        let mut unstated = Unstated::default();
        unstated.add(run(1, u64::from(u32::MAX), 9));
        unstated.add(run(1, 0, u32::MAX));
        assert_eq!(unstated.runs().len(), 2);
        assert_eq!(unstated.take().runs().collect::<Vec<_>>(), [run(1, 0, u32::MAX)]);
        assert_eq!(unstated.take().runs().collect::<Vec<_>>(), [run(1, u64::from(u32::MAX), 9)]);
        assert_eq!(unstated, Unstated::default());
    }

    #[test]
    fn a_seal_takes_at_most_as_many_runs_as_it_can_state() {
        let mut unstated = Unstated::default();
        (0..20).for_each(|query| unstated.add(run(query, 5, 2)));
        let before = unstated.clone();
        let taken = unstated.take();
        assert_eq!((taken.runs().count(), unstated.runs().len()), (8, 12));
        unstated.add_all(&taken);
        assert_eq!(unstated, before);
    }
}
