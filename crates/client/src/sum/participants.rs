//! A set of positions in the roster, as a bitmap with sixteen positions in each word. The size of a
//! word matches the key table, which stores sources in blocks of sixteen.

use std::ops::Range;

use moteseal_core::participation::Participation;

/// The number of positions in a word.
const WORD: u32 = u16::BITS;

/// The participants of a sum, with one bit for each source of the roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participants {
    words: Box<[u16]>,
    count: u32,
}

impl Participants {
    /// Returns the empty set, for a roster of `sources` sources.
    #[must_use]
    pub fn none(sources: u32) -> Self {
        Self { words: vec![0; sources.div_ceil(WORD) as usize].into(), count: 0 }
    }

    /// Returns the participants that a checked encoding names. Positions outside the roster are
    /// ignored.
    #[must_use]
    pub fn of(participation: &Participation<'_>, sources: u32) -> Self {
        let mut all = Self::none(sources);
        participation.runs().for_each(|run| all.insert(run));
        all
    }

    /// Adds a range of positions.
    pub fn insert(&mut self, run: Range<u32>) {
        for (word, mask) in masks(&run) {
            if let Some(word) = self.words.get_mut(word) {
                self.count += (mask & !*word).count_ones();
                *word |= mask;
            }
        }
    }

    /// Returns the number of participants.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether the set contains a position.
    #[must_use]
    pub fn contains(&self, position: u32) -> bool {
        self.words
            .get((position / WORD) as usize)
            .is_some_and(|word| word >> (position % WORD) & 1 != 0)
    }

    /// Returns the positions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'_> {
        (0..).step_by(WORD as usize).zip(&self.words).flat_map(|(base, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(base + bit)
            })
        })
    }

    /// Returns the ranges of consecutive positions in ascending order.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> + use<'_> {
        let mut positions = self.iter().peekable();
        std::iter::from_fn(move || {
            let start = positions.next()?;
            let mut end = start + 1;
            while positions.next_if_eq(&end).is_some() {
                end += 1;
            }
            Some(start..end)
        })
    }

    /// Returns the first position that is not in another set.
    #[must_use]
    pub fn first_outside(&self, other: &Self) -> Option<u32> {
        self.iter().find(|position| !other.contains(*position))
    }

    /// Returns whether the two sets have a position in common.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(one, other)| one & other != 0)
    }

    /// Adds all positions of another set of the same roster.
    pub fn merge(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            self.count += (other & !*word).count_ones();
            *word |= other;
        }
    }

    /// Returns how many positions of the range are in the set.
    #[must_use]
    pub fn count_in(&self, run: &Range<u32>) -> u32 {
        masks(run)
            .map(|(word, mask)| self.words.get(word).map_or(0, |word| (word & mask).count_ones()))
            .sum()
    }

    /// Returns the words that contain a range, with all bits outside the range cleared, and the
    /// index of the first of these words.
    pub(super) fn words_in(&self, run: &Range<u32>) -> (usize, Vec<u16>) {
        let words = masks(run)
            .map(|(word, mask)| self.words.get(word).map_or(0, |word| word & mask))
            .collect();
        ((run.start / WORD) as usize, words)
    }
}

/// Returns the index and the bit mask of each word that a range covers.
fn masks(run: &Range<u32>) -> impl Iterator<Item = (usize, u16)> + use<> {
    let Range { start, end } = run.clone();
    let words = if start < end { start / WORD..end.div_ceil(WORD) } else { 0..0 };
    words.map(move |word| {
        let first = start.saturating_sub(word * WORD).min(WORD);
        let above = (end - word * WORD).min(WORD);
        #[allow(clippy::cast_possible_truncation)]
        let mask = ((1_u32 << above) - (1 << first)) as u16;
        (word as usize, mask)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_like_a_set_of_positions(
            runs in prop::collection::vec((0_u32..200, 0_u32..40), 0..12),
            asked in (0_u32..200, 0_u32..60),
        ) {
            let (mut found, mut expected) = (Participants::none(203), BTreeSet::new());
            for (start, length) in runs {
                let run = start..(start + length).min(203);
                found.insert(run.clone());
                expected.extend(run);
            }
            let positions = expected.iter().copied().collect::<Vec<_>>();
            prop_assert_eq!(found.iter().collect::<Vec<_>>(), &positions[..]);
            prop_assert_eq!(found.count() as usize, expected.len());
            prop_assert_eq!(found.runs().flatten().collect::<Vec<_>>(), &positions[..]);
            prop_assert!(
                found.runs().zip(found.runs().skip(1)).all(|(one, next)| one.end < next.start)
            );
            let run = asked.0..asked.0 + asked.1;
            let mut asked_set = Participants::none(250);
            asked_set.insert(run.clone());
            prop_assert_eq!(
                found.first_outside(&asked_set),
                expected.iter().copied().find(|position| !run.contains(position))
            );
            prop_assert_eq!(found.count_in(&run) as usize, expected.range(run.clone()).count());
            prop_assert!(
                (0..210).all(|position| found.contains(position) == expected.contains(&position))
            );
            let mut outside = Participants::none(203);
            outside.insert(run.start..run.end.min(203));
            prop_assert_eq!(found.overlap(&outside), expected.range(run).next().is_some());
            outside.merge(&found);
            prop_assert_eq!(outside.count() as usize, outside.iter().count());
        }
    }
}
