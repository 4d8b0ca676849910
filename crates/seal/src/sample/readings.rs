//! Readings that a query names one by one (spec/answers.md, section 4.4). They show what the device
//! recorded at some places; they say nothing about other readings, so they are not a
//! [`UniformSample`](super::UniformSample).

use core::iter;

use moteseal_core::record::{Scheme, SealIndex, Sequence};

use super::Sample;
use super::choice::ChoiceError;
use crate::seal::{Authentic, Seal};
use crate::stream::Select;

/// The maximum number of runs in a query.
pub const MAX_RUNS: usize = 8;

/// Consecutive readings of one seal: `count` readings from the sequence number `first` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadingRun {
    /// The seal.
    pub index: SealIndex,
    /// The first reading.
    pub first: u32,
    /// The number of readings, at least 1.
    pub count: u32,
}

impl ReadingRun {
    /// Returns the sequence number after the last reading.
    const fn end(&self) -> u64 {
        self.first as u64 + self.count as u64
    }
}

/// One to [`MAX_RUNS`] runs of readings of one device, in ascending order and without overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readings {
    runs: [ReadingRun; MAX_RUNS],
    length: u8,
}

impl Readings {
    /// Checks the runs. Returns `None` if there are none or too many, if they are not in ascending
    /// order, or if a run is empty, overlaps another one or goes beyond 2^32-1 readings.
    #[must_use]
    pub fn new(runs: &[ReadingRun]) -> Option<Self> {
        let is_valid = |run: &ReadingRun| run.count > 0 && run.end() <= u64::from(u32::MAX);
        let ascends = |pair: &[ReadingRun]| match pair {
            [before, after] if before.index == after.index => before.end() <= after.first.into(),
            [before, after] => before.index < after.index,
            _ => false,
        };
        let mut whole = [ReadingRun::default(); MAX_RUNS];
        whole.get_mut(..runs.len())?.copy_from_slice(runs);
        let is_whole = !runs.is_empty() && runs.iter().all(is_valid);
        let length = u8::try_from(runs.len()).ok()?;
        (is_whole && runs.windows(2).all(ascends)).then_some(Self { runs: whole, length })
    }

    /// Returns the runs.
    #[must_use]
    pub fn runs(&self) -> &[ReadingRun] {
        self.runs.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// Returns the number of readings.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.runs().iter().map(|run| u64::from(run.count)).sum()
    }

    /// Returns the named readings of a seal, in ascending order.
    pub fn of(&self, index: SealIndex) -> impl Iterator<Item = Sequence> + use<> {
        let runs = self.runs;
        let mut place = 0..usize::from(self.length);
        let mut rest = 0..0;
        iter::from_fn(move || {
            loop {
                if let Some(seq) = rest.next() {
                    return Some(Sequence(seq));
                }
                let run = runs.get(place.next()?).filter(|run| run.index == index);
                rest = run.map_or(0..0, |run| run.first.into()..run.end());
            }
        })
    }
}

impl Sample<'_, Authentic> {
    /// Checks that the sample contains exactly the readings of its part that a query names. `seal` is
    /// the part's seal.
    ///
    /// # Errors
    /// `SchemeMismatch` if the query names a reading of a seal that is not a tree; `NotAsAsked` if
    /// the sample belongs to another seal or contains other readings.
    pub fn check_named(
        &self,
        seal: &Seal<Authentic>,
        readings: &Readings,
    ) -> Result<(), ChoiceError> {
        let index = seal.statement().index;
        let is_named = readings.of(index).next().is_some();
        if is_named && seal.statement().scheme != Scheme::Tree {
            return Err(ChoiceError::SchemeMismatch);
        }
        let is_forced = match &self.select {
            Select::Levels(mask) => *mask == 0 && !is_named,
            Select::Events(gaps) => is_named && readings.of(index).eq(gaps.iter()),
        };
        if is_forced && self.seal == seal.digest() { Ok(()) } else { Err(ChoiceError::NotAsAsked) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(index: u32, first: u32, count: u32) -> ReadingRun {
        ReadingRun { index: SealIndex(index), first, count }
    }

    #[test]
    fn runs_ascend_and_do_not_overlap() {
        assert!(Readings::new(&[run(0, 0, 1), run(0, 1, 3), run(7, 0, 1)]).is_some());
        assert!(Readings::new(&[run(0, u32::MAX - 1, 1)]).is_some());
        for wrong in [
            &[][..],
            &[run(0, 0, 0)],
            &[run(0, u32::MAX, 1)],
            &[run(0, 0, 2), run(0, 1, 1)],
            &[run(1, 0, 1), run(0, 0, 1)],
            &[run(0, 0, 1); 9],
        ] {
            assert_eq!(Readings::new(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_readings_of_a_seal_are_those_of_its_runs() {
        let readings = Readings::new(&[run(3, 5, 2), run(4, 0, 1), run(4, 9, 1)]).unwrap();
        let of =
            |index| readings.of(SealIndex(index)).map(|seq| seq.0).collect::<std::vec::Vec<_>>();
        assert_eq!((of(3), of(4), of(5)), ([5, 6].to_vec(), [0, 9].to_vec(), [].to_vec()));
        assert_eq!(readings.count(), 4);
    }
}
