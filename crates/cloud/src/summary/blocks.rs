//! The fingerprints of the blocks of one set: of a device's seals, or of the manifests.

use moteseal_api::summary::{BLOCK, Fingerprint, block_of};
use moteseal_store::ReadError;

/// The fingerprints of the blocks that are not empty, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    blocks: Vec<(u64, Fingerprint)>,
    total: Fingerprint,
    /// All entries that were read have a lower number. If nothing was added below it, only the
    /// entries from it on have to be read.
    end: u64,
}

impl Blocks {
    pub(crate) const fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) const fn total(&self) -> &Fingerprint {
        &self.total
    }

    /// Returns the fingerprint of the block that starts with `first`.
    pub(crate) fn at(&self, first: u64) -> Fingerprint {
        let at = self.blocks.binary_search_by_key(&first, |(first, _)| *first);
        at.map_or(Fingerprint::EMPTY, |at| self.blocks[at].1)
    }

    /// Returns the blocks from the one that contains `number` on.
    pub(crate) fn from(&self, number: u64) -> impl Iterator<Item = (u64, Fingerprint)> {
        let start = self.blocks.partition_point(|(first, _)| *first < block_of(number));
        self.blocks[start..].iter().copied()
    }

    /// Reads the entries after the last one. `read` calls its argument for each entry from a number
    /// on, up to another number, ascending.
    pub(crate) fn extend<E>(
        &mut self,
        mut read: impl FnMut(u64, Option<u64>, &mut dyn FnMut(u64, Fingerprint)) -> Result<(), E>,
    ) -> Result<(), E> {
        // Nothing is added if reading fails, so that no entry is added twice.
        let mut extended: Vec<(u64, Fingerprint)> = Vec::new();
        let (mut end, mut added) = (self.end, Fingerprint::EMPTY);
        read(self.end, None, &mut |number, entry| {
            match extended.last_mut() {
                Some((first, sum)) if *first == block_of(number) => sum.add(&entry),
                _ => extended.push((block_of(number), entry)),
            }
            added.add(&entry);
            end = number.saturating_add(1);
        })?;
        for (first, sum) in extended {
            match self.blocks.last_mut() {
                Some((last, kept)) if *last == first => kept.add(&sum),
                _ => self.blocks.push((first, sum)),
            }
        }
        self.total.add(&added);
        self.end = end;
        Ok(())
    }

    /// Reads what was added. `stale` has, for each block to which entries were added, the first
    /// number of the block and the lowest number of an added entry.
    pub(crate) fn update(
        &mut self,
        stale: impl Iterator<Item = (u64, u64)>,
        mut read: impl FnMut(
            u64,
            Option<u64>,
            &mut dyn FnMut(u64, Fingerprint),
        ) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let mut is_extended = false;
        for (first, lowest) in stale {
            if lowest >= self.end {
                is_extended = true;
                continue;
            }
            let mut sum = Fingerprint::EMPTY;
            let mut end = self.end;
            read(first, first.checked_add(BLOCK), &mut |number, entry| {
                sum.add(&entry);
                end = end.max(number.saturating_add(1));
            })?;
            // Blocks between this one and `end` were read before; `end` grows only if this is the
            // last block.
            let at = self.blocks.binary_search_by_key(&first, |(first, _)| *first);
            match at {
                Ok(at) if sum.count == 0 => drop(self.blocks.remove(at)),
                Ok(at) => self.blocks[at].1 = sum,
                Err(_) if sum.count == 0 => {}
                Err(at) => self.blocks.insert(at, (first, sum)),
            }
            self.end = end;
            self.total = self.blocks.iter().map(|(_, sum)| sum).sum();
        }
        if is_extended { self.extend(read) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn entry(number: u64, twin: u8) -> Fingerprint {
        Fingerprint::of_entry(&[&number.to_be_bytes(), &[twin]])
    }

    fn read(
        set: &BTreeSet<(u64, u8)>,
        from: u64,
        to: Option<u64>,
        add: &mut dyn FnMut(u64, Fingerprint),
    ) -> Result<(), ReadError> {
        for (number, twin) in set.range((from, 0)..) {
            if to.is_some_and(|to| *number >= to) {
                break;
            }
            add(*number, entry(*number, *twin));
        }
        Ok(())
    }

    proptest! {
        /// The oracle reads everything again after each step.
        #[test]
        fn updates_lead_to_the_fingerprints_of_a_whole_reading(
            steps in prop::collection::vec(
                prop::collection::vec((0..5000_u64, 0..3_u8), 0..6), 0..12),
        ) {
            let mut set = BTreeSet::new();
            let mut blocks = Blocks::default();
            for step in steps {
                let mut stale = std::collections::BTreeMap::new();
                for (number, twin) in step {
                    set.insert((number, twin));
                    let lowest = stale.entry(block_of(number)).or_insert(number);
                    *lowest = number.min(*lowest);
                }
                blocks.update(stale.into_iter(), |from, to, add| read(&set, from, to, add)).unwrap();
                let mut whole = Blocks::default();
                whole.extend(|from, to, add| read(&set, from, to, add)).unwrap();
                prop_assert_eq!(&blocks, &whole);
                prop_assert_eq!(blocks.total().count, set.len() as u64);
            }
        }
    }

    #[test]
    fn a_failed_reading_adds_nothing() {
        let set: BTreeSet<(u64, u8)> = [(1, 0), (2, 0)].into();
        let mut blocks = Blocks::default();
        let failed = blocks.extend(|from, to, add| {
            read(&set, from, to, add).unwrap();
            Err(ReadError::Closed)
        });
        assert_eq!((failed, &blocks), (Err(ReadError::Closed), &Blocks::default()));
        blocks.extend(|from, to, add| read(&set, from, to, add)).unwrap();
        assert_eq!(blocks.total().count, 2);
    }

    #[test]
    fn pages_start_with_the_block_of_a_number() {
        let set: BTreeSet<(u64, u8)> = [(1, 0), (1023, 0), (5000, 0)].into();
        let mut blocks = Blocks::default();
        blocks.extend(|from, to, add| read(&set, from, to, add)).unwrap();
        let firsts = |from| blocks.from(from).map(|(first, _)| first).collect::<Vec<_>>();
        assert_eq!((firsts(0), firsts(1023)), (vec![0, 4096], vec![0, 4096]));
        assert_eq!((firsts(1024), firsts(5120)), (vec![4096], vec![]));
    }
}
