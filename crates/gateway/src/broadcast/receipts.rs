//! The receipts for one chain, as its sender checks and counts them (spec/broadcast.md, section
//! 7.2).

use std::collections::BTreeSet;

use moteseal_broadcast::MAX_RECEIVERS;
use moteseal_broadcast::receipt::{ReceiverTag, combine, is_tag, receivers};
use moteseal_core::participation::{Participation, max_size};

use super::receivers::Receivers;

/// After a combined receipt was wrong, the sender asks for receipts in frames with this fraction of
/// its receivers.
const SPLIT: u32 = 8;

/// What became of a frame of receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// This many receivers were not counted before.
    New(u32),
    /// The tag is not that of these receivers. Nothing is counted.
    Wrong,
    /// The set of receivers is malformed or empty.
    Malformed,
}

/// The receipts for one chain.
#[derive(Clone)]
pub struct Receipts {
    /// The receipt of each receiver in the list, also of removed ones.
    tags: Vec<ReceiverTag>,
    expected: BTreeSet<u32>,
    has: BTreeSet<u32>,
    failing: BTreeSet<u32>,
    most: u32,
    bytes: u64,
}

impl std::fmt::Debug for Receipts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receipts")
            .field("expected", &self.expected.len())
            .field("has", &self.has)
            .finish_non_exhaustive()
    }
}

impl Receipts {
    /// Prepares to receive the receipts for the chain with this head. Receipts are expected from
    /// the receivers at the positions `expected`. Costs an HMAC for each receiver in the list.
    #[must_use]
    pub fn new(list: &Receivers, head: &[u8], expected: impl IntoIterator<Item = u32>) -> Self {
        Self {
            tags: list.receipts(head),
            expected: expected.into_iter().collect(),
            has: BTreeSet::new(),
            failing: BTreeSet::new(),
            most: MAX_RECEIVERS,
            bytes: 0,
        }
    }

    /// Checks the combined receipts of a frame of `length` bytes, and counts the receivers.
    pub fn take(&mut self, set: &[u8], tag: &ReceiverTag, length: usize) -> Checked {
        self.bytes = self.bytes.saturating_add(length as u64);
        let Ok(set) = receivers(set) else { return Checked::Malformed };
        let end = u32::try_from(self.tags.len()).unwrap_or(MAX_RECEIVERS);
        if set.count() == 0 {
            return Checked::Malformed;
        }
        let is_known = set.runs().all(|run| run.end <= end);
        let tags = set.runs().flatten().filter_map(|at| self.tags.get(at as usize));
        let expected = tags.fold(ReceiverTag::default(), |all, tag| combine(all, *tag));
        if !is_known || !is_tag(&expected, tag) {
            match set.count() {
                1 => self.failing.extend(set.runs().flatten().filter(|at| !self.has.contains(at))),
                several => self.most = self.most.min(several / SPLIT).max(1),
            }
            return Checked::Wrong;
        }
        let before = self.has.len();
        self.has.extend(set.runs().flatten());
        self.failing.retain(|position| !self.has.contains(position));
        Checked::New(u32::try_from(self.has.len() - before).unwrap_or(u32::MAX))
    }

    /// Returns the number of receivers that are expected to acknowledge the chain.
    #[must_use]
    pub fn expected(&self) -> usize {
        self.expected.len()
    }

    /// Returns how many of the expected receivers have acknowledged the chain.
    #[must_use]
    pub fn count(&self) -> usize {
        self.expected.intersection(&self.has).count()
    }

    /// Returns the positions of the expected receivers that have not acknowledged the chain.
    pub fn missing(&self) -> impl Iterator<Item = u32> {
        self.expected.difference(&self.has).copied()
    }

    /// Returns the positions of receivers without a receipt from which a wrong one has arrived, not
    /// combined with others: the receiver has a wrong key, or an attacker has sent it.
    pub fn failing(&self) -> impl Iterator<Item = u32> {
        self.failing.intersection(&self.expected).copied()
    }

    /// Returns the number of bytes of the frames that were checked.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the request for the receipts that are missing: the maximum number in a frame, and the
    /// set of receivers. `None` if none is missing.
    #[must_use]
    pub fn request(&self) -> Option<(u32, Vec<u8>)> {
        let mut words = vec![0_u64; self.tags.len().div_ceil(64)];
        for position in self.missing() {
            *words.get_mut(position as usize / 64)? |= 1 << (position % 64);
        }
        let mut set = vec![0; max_size(u32::try_from(self.tags.len()).ok()?)];
        let length = Participation::encode(&words, &mut set).ok()?;
        set.truncate(length);
        (length > 0).then_some((self.most, set))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use moteseal_core::record::{DeviceId, NetworkId};
    use zeroize::Zeroizing;

    const HEAD: &[u8] = b"the head of a chain";

    fn list(count: u32) -> Receivers {
        let (network, sender) = (NetworkId(*b"network1"), DeviceId(*b"sender 1"));
        let mut list = Receivers::new(network, sender, Zeroizing::new([7; 32]));
        (0..count).for_each(|at| _ = list.add(&format!("r{at}")).unwrap());
        list
    }

    fn combined(list: &Receivers, of: &[u32]) -> (Vec<u8>, ReceiverTag) {
        let mut words = [0_u64; 4];
        of.iter().for_each(|at| words[*at as usize / 64] |= 1 << (at % 64));
        let mut set = vec![0; max_size(256)];
        let length = Participation::encode(&words, &mut set).unwrap();
        set.truncate(length);
        let tags = of.iter().map(|at| list.key(*at).unwrap().receipt(HEAD));
        (set, tags.fold([0; 16], combine))
    }

    #[test]
    fn combined_and_overlapping_receipts_are_counted_once_for_each_receiver() {
        let list = list(10);
        let mut receipts = Receipts::new(&list, HEAD, list.current());
        for (of, new) in [(&[0, 1, 2][..], 3), (&[2, 3], 1), (&[0, 1, 2, 3], 0), (&[9], 1)] {
            let (set, tag) = combined(&list, of);
            assert_eq!(receipts.take(&set, &tag, 33), Checked::New(new), "{of:?}");
        }
        assert_eq!((receipts.count(), receipts.expected(), receipts.bytes()), (5, 10, 132));
        assert_eq!(receipts.missing().collect::<Vec<_>>(), [4, 5, 6, 7, 8]);
        let (most, set) = receipts.request().unwrap();
        assert_eq!((most, set), (MAX_RECEIVERS, combined(&list, &[4, 5, 6, 7, 8]).0));
    }

    #[test]
    fn no_change_of_a_receipt_is_counted() {
        let list = list(10);
        let mut receipts = Receipts::new(&list, HEAD, list.current());
        let (set, tag) = combined(&list, &[0, 1, 2]);
        for bit in 0..128 {
            let mut tag = tag;
            tag[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(receipts.take(&set, &tag, 0), Checked::Wrong);
        }
        for of in [&[0, 1][..], &[0, 1, 2, 3], &[3, 4, 5]] {
            assert_eq!(receipts.take(&combined(&list, of).0, &tag, 0), Checked::Wrong, "{of:?}");
        }
        let other = Receipts::new(&list, b"another head", list.current()).take(&set, &tag, 0);
        assert_eq!(other, Checked::Wrong, "a receipt is that of one chain");
        assert_eq!(receipts.take(&combined(&list, &[]).0, &[0; 16], 0), Checked::Malformed);
        assert_eq!(receipts.take(&[20, 0], &tag, 0), Checked::Wrong, "position 10");
        assert_eq!(receipts.count(), 0);
    }

    #[test]
    fn after_a_wrong_combination_the_sender_asks_for_smaller_ones_and_names_who_fails() {
        let list = list(200);
        let mut receipts = Receipts::new(&list, HEAD, [0, 1, 2, 77]);
        let all: Vec<u32> = (0..200).collect();
        let (set, mut tag) = combined(&list, &all);
        tag[0] ^= 1;
        assert_eq!(receipts.take(&set, &tag, 0), Checked::Wrong);
        assert_eq!(receipts.request().unwrap().0, 25);
        let (set, _) = combined(&list, &[3, 4]);
        receipts.take(&set, &tag, 0);
        assert_eq!(receipts.request().unwrap().0, 1);
        receipts.take(&combined(&list, &[77]).0, &tag, 0);
        assert_eq!(receipts.failing().collect::<Vec<_>>(), [77]);
        let (set, tag) = combined(&list, &[77]);
        assert_eq!(receipts.take(&set, &tag, 0), Checked::New(1));
        assert_eq!(receipts.failing().count(), 0);
    }

    #[test]
    fn receipts_of_removed_receivers_do_not_count_and_harm_no_other_receipt() {
        let mut list = list(3);
        let (set, tag) = combined(&list, &[0, 1]);
        list.remove("r1").unwrap();
        let mut receipts = Receipts::new(&list, HEAD, list.current());
        receipts.take(&set, &tag, 0);
        assert_eq!((receipts.expected(), receipts.count()), (2, 1));
        assert_eq!(receipts.missing().collect::<Vec<_>>(), [2]);
    }
}
