//! The query epochs that a device answered under one seal, stored as runs of consecutive epochs
//! (spec/objects.md, section 6).
//!
//! A query epoch may be as short as a few seconds, and a seal's epoch as long as an hour.
//! Consecutive epochs of one query are therefore stored as one run. This module only records
//! answers; the epoch guard of `moteseal-sum` decides whether an epoch may be answered.

use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};

/// Maximum number of runs in one seal.
pub const MAX_ANSWERED: usize = 8;

/// Consecutive epochs of one query that the device answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answered {
    /// The query's id.
    pub query: [u8; 16],
    /// The first epoch.
    pub first: u64,
    /// The number of epochs, at least 1.
    pub count: u32,
}

impl Answered {
    /// Returns the epoch after the last one, or `None` if the run is invalid: if it is empty, or
    /// its end does not fit 64 bits.
    const fn end(&self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        // A widening cast, because `From` is not const.
        self.first.checked_add(self.count as u64)
    }

    /// Returns whether the run contains this epoch of this query.
    #[must_use]
    pub fn contains(&self, query: &[u8; 16], epoch: u64) -> bool {
        self.query == *query
            && epoch
                .checked_sub(self.first)
                .is_some_and(|distance| distance < u64::from(self.count))
    }
}

/// Runs of answered query epochs, in the order in which they were added. The runs of one query are
/// in ascending order, with a gap between any two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answers([Option<Answered>; MAX_ANSWERED]);

impl Answers {
    /// No answers.
    pub const NONE: Self = Self([None; MAX_ANSWERED]);

    /// Returns the runs.
    pub fn runs(&self) -> impl Iterator<Item = Answered> + '_ {
        self.0.iter().map_while(|run| *run)
    }

    /// Returns whether no query epoch was answered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// Returns whether this epoch of this query was answered.
    #[must_use]
    pub fn contains(&self, query: &[u8; 16], epoch: u64) -> bool {
        self.runs().any(|run| run.contains(query, epoch))
    }

    /// Adds an epoch. If it directly follows the last run of its query, it extends this run;
    /// otherwise it starts a new run. Adding an epoch that is already contained changes nothing.
    ///
    /// Returns `false` and changes nothing if there is no room for another run, if the epoch is
    /// before the last answered epoch of its query, or if it is `u64::MAX`.
    #[must_use]
    pub fn add(&mut self, query: [u8; 16], epoch: u64) -> bool {
        if self.contains(&query, epoch) {
            return true;
        }
        if let Some(last) = self.0.iter_mut().rev().flatten().find(|run| run.query == query)
            && last.end() == Some(epoch)
        {
            let longer = Answered { count: last.count.saturating_add(1), ..*last };
            let fits = longer.count > last.count && longer.end().is_some();
            if fits {
                *last = longer;
            }
            return fits;
        }
        self.push(Answered { query, first: epoch, count: 1 })
    }

    /// Adds a run. Returns `false` and changes nothing if there is no room for another run, if the
    /// run is invalid, or if there is no gap between the last run of its query and this run. A run
    /// is invalid if it is empty or has an epoch above `u64::MAX - 1`.
    #[must_use]
    pub fn push(&mut self, run: Answered) -> bool {
        let is_after = |last: Answered| last.end().is_some_and(|end| end < run.first);
        if run.end().is_none()
            || !self.runs().filter(|before| before.query == run.query).all(is_after)
        {
            return false;
        }
        match self.0.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some(run);
                true
            }
            None => false,
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(self.runs().count() as u64)?;
        for run in self.runs() {
            out.array(3)?.bytes(&run.query)?.uint(run.first)?.uint(run.count)?;
        }
        Ok(())
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut answers = Self::NONE;
        let length =
            usize::try_from(reader.array_any()?).map_err(|_| DecodeError::FieldOutOfRange)?;
        if length > MAX_ANSWERED {
            return Err(DecodeError::FieldOutOfRange);
        }
        for _ in 0..length {
            reader.array(3)?;
            let run =
                Answered { query: reader.fixed()?, first: reader.u64()?, count: reader.uint()? };
            if !answers.push(run) {
                return Err(DecodeError::FieldOutOfRange);
            }
        }
        Ok(answers)
    }
}

const _: () = assert!(MAX_ANSWERED <= 23, "the number of answers takes one byte");

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn encoded(answers: &Answers) -> Vec<u8> {
        let mut buffer = [0; 300];
        let mut writer = Writer::new(&mut buffer);
        answers.encode(&mut writer).unwrap();
        writer.written().to_vec()
    }

    fn decoded(bytes: &[u8]) -> Result<Answers, DecodeError> {
        Answers::decode(&mut Reader::new(bytes)?)
    }

    fn of(runs: &[(u8, u64, u32)]) -> Vec<u8> {
        let mut buffer = [0; 400];
        let mut out = Writer::new(&mut buffer);
        out.array(runs.len() as u64).unwrap();
        for &(query, first, count) in runs {
            out.array(3)
                .unwrap()
                .bytes(&[query; 16])
                .unwrap()
                .uint(first)
                .unwrap()
                .uint(count)
                .unwrap();
        }
        out.written().to_vec()
    }

    #[test]
    fn merges_consecutive_epochs_into_one_run() {
        let mut answers = Answers::NONE;
        for epoch in 1000..1720 {
            assert!(answers.add([7; 16], epoch));
        }
        assert_eq!(
            answers.runs().collect::<Vec<_>>(),
            [Answered { query: [7; 16], first: 1000, count: 720 }]
        );
        assert!(answers.contains(&[7; 16], 1000) && answers.contains(&[7; 16], 1719));
        assert!(
            !answers.contains(&[7; 16], 999)
                && !answers.contains(&[7; 16], 1720)
                && !answers.contains(&[8; 16], 1000)
        );
    }

    #[test]
    fn rejects_invalid_and_non_canonical_runs() {
        for wrong in [
            &[(1, 5, 0)][..],
            &[(1, u64::MAX, 1)],
            &[(1, u64::MAX - 1, 2)],
            &[(1, 5, 2), (1, 7, 1)],
            &[(1, 5, 2), (2, 7, 1), (1, 7, 1)],
            &[(1, 5, 2), (1, 6, 3)],
            &[(1, 5, 2), (1, 5, 2)],
            &[(1, 5, 2), (1, 1, 1)],
            &[
                (1, 5, 1),
                (2, 5, 1),
                (3, 5, 1),
                (4, 5, 1),
                (5, 5, 1),
                (6, 5, 1),
                (7, 5, 1),
                (8, 5, 1),
                (9, 5, 1),
            ],
        ] {
            assert_eq!(decoded(&of(wrong)), Err(DecodeError::FieldOutOfRange), "{wrong:?}");
        }
        for right in [
            &[][..],
            &[(1, u64::MAX - 1, 1)],
            &[(1, 0, u32::MAX)],
            &[(1, 5, 2), (1, 8, 1)],
            &[(2, 7, 1), (1, 5, 9), (2, 9, 3)],
        ] {
            assert_eq!(encoded(&decoded(&of(right)).unwrap()), of(right));
        }
    }

    #[test]
    fn does_not_add_epochs_that_no_run_can_hold() {
        let mut answers = Answers::NONE;
        assert!(!answers.add([1; 16], u64::MAX) && answers.is_empty());
        assert!(answers.push(Answered { query: [1; 16], first: 0, count: u32::MAX }));
        assert!(
            !answers.add([1; 16], u64::from(u32::MAX)),
            "an adjacent run would not be canonical"
        );
        assert!(answers.push(Answered { query: [2; 16], first: u64::MAX - 1, count: 1 }));
        assert!(!answers.add([2; 16], u64::MAX));
        assert!(!answers.add([2; 16], 5), "the epoch is before the last one");
        assert_eq!(answers.runs().count(), 2);
    }

    proptest! {
        /// Compares with a plain set: exactly the added epochs are contained, and a later epoch is
        /// rejected only if it needs another run and there is no room for one.
        #[test]
        fn contains_exactly_the_added_epochs(steps in prop::collection::vec((0u8..4, 0u64..5), 0..60)) {
            let (mut answers, mut plain, mut last) = (Answers::NONE, BTreeSet::new(), [0u64; 4]);
            for (query, skip) in steps {
                let epoch = last[usize::from(query)] + skip;
                let begins = !plain.contains(&(query, epoch)) && (epoch == 0 || !plain.contains(&(query, epoch - 1)));
                let full = answers.runs().count() == MAX_ANSWERED;
                let before = answers;
                let added = answers.add([query; 16], epoch);
                prop_assert_eq!(added, !(begins && full));
                if added {
                    plain.insert((query, epoch));
                    last[usize::from(query)] = epoch;
                } else {
                    prop_assert_eq!(answers, before);
                }
                for query in 0..4 {
                    for epoch in 0..300 {
                        prop_assert_eq!(answers.contains(&[query; 16], epoch), plain.contains(&(query, epoch)));
                    }
                }
                prop_assert_eq!(decoded(&encoded(&answers)).unwrap(), answers);
            }
        }
    }
}
