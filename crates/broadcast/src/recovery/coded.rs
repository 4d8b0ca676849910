//! Coded repair (spec/broadcast.md, section 5.3): one frame has the exclusive or of several leaves,
//! and serves several receivers that lack different leaves.
//!
//! A node collects requests for a block for [`Timing::gather_ms`]. It then chooses the leaves of a
//! repair so that no request names more than one of them: everyone who made a request can compute
//! the leaf that it lacks. A node that made no request because another one had requested all that it
//! lacks can do so, too. Requests are not verified. A forged request only makes repairs have fewer
//! leaves.
//!
//! A request states whether its sender can use repairs ([`flag`]). Leaves in requests without this
//! statement are sent alone.

use crate::recovery::progress::every;
use crate::recovery::receive::refused;
use crate::recovery::*;
use crate::{MAX_LEAF, MAX_PER_BLOCK};

/// The maximum number of requests that a node collects, and of leaves in a repair: each leaf is in a
/// request of its own.
const WISHES: usize = 8;

/// Returns the bit of a request for leaves of a block which states that the node that sends the
/// request can use repairs; 0 if all bits are needed for the block's leaves.
pub(super) const fn flag(in_block: u8) -> u64 {
    if in_block < MAX_PER_BLOCK { 1 << (MAX_PER_BLOCK - 1) } else { 0 }
}

/// The leaves of a block that one request names.
#[derive(Clone, Copy, Debug)]
struct Wish {
    chain: ChainRef,
    block: u32,
    bits: u64,
    /// Whether the leaves must be sent alone.
    is_plain: bool,
}

/// The requests that a node has collected.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    wishes: [Option<Wish>; WISHES],
    /// Whether there was no place for a request. Until no requests are left, all leaves are sent
    /// alone.
    is_overfull: bool,
}

impl Wishes {
    pub(super) const fn new() -> Self {
        Self { wishes: [None; WISHES], is_overfull: false }
    }

    fn of(&self, chain: ChainRef, block: u32) -> impl Iterator<Item = &Wish> {
        self.wishes.iter().flatten().filter(move |wish| (wish.chain, wish.block) == (chain, block))
    }

    fn drop_if(&mut self, mut ends: impl FnMut(&Wish) -> bool) {
        self.wishes.iter_mut().for_each(|wish| _ = wish.take_if(|wish| ends(wish)));
        self.is_overfull &= self.wishes.iter().any(Option::is_some);
    }

    /// Adds a request. Two requests become one if the first names all that the second names, or if
    /// there is no place left: the repairs for both then have fewer leaves.
    fn add(&mut self, chain: ChainRef, block: u32, bits: u64, is_plain: bool) {
        let alike = |wish: &Wish| (wish.bits & bits).count_ones();
        let covers = |wish: &Wish| {
            let both = wish.bits & bits;
            both == wish.bits || both == bits
        };
        let is_full = self.wishes.iter().all(Option::is_some);
        let same = self
            .wishes
            .iter_mut()
            .flatten()
            .filter(|wish| (wish.chain, wish.block) == (chain, block))
            .filter(|wish| wish.is_plain == is_plain && (is_full || covers(wish)))
            .max_by_key(|wish| alike(wish));
        if let Some(wish) = same {
            wish.bits |= bits;
            return;
        }
        match self.wishes.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(Wish { chain, block, bits, is_plain }),
            None => self.is_overfull = true,
        }
    }

    /// Chooses leaves among `bits` so that no request names more than one of them. The first one is
    /// the leaf that most requests name. A leaf that must be sent alone, or that no known request
    /// names, is not combined with others.
    pub(super) fn choose(&self, chain: ChainRef, block: u32, bits: u64) -> u64 {
        let named = |bit: u64| self.of(chain, block).filter(|wish| wish.bits & bit != 0).count();
        let most_wanted = |bits: u64| {
            let each = (0..64).map(|index| 1 << index).filter(|bit| bits & bit != 0);
            each.rev().max_by_key(|bit| named(*bit))
        };
        let Some(first) = most_wanted(bits) else { return 0 };
        let (mut joins, mut alone) = (0, 0);
        for wish in self.of(chain, block) {
            *(if wish.is_plain { &mut alone } else { &mut joins }) |= wish.bits;
        }
        let mut left = bits & joins & !alone;
        if left & first == 0 || self.is_overfull {
            return first;
        }
        let mut mask = first;
        left &= !first;
        while let Some(bit) = most_wanted(left) {
            left &= !bit;
            let fits = |wish: &Wish| (wish.bits & (mask | bit)).count_ones() <= 1;
            if self.of(chain, block).all(fits) {
                mask |= bit;
            }
        }
        mask
    }

    /// Returns whether a leaf must be sent alone.
    fn is_plain(&self, chain: ChainRef, block: u32, index: u8) -> bool {
        self.of(chain, block).any(|wish| wish.is_plain && wish.bits >> index & 1 == 1)
    }

    /// Records that leaves were sent.
    pub(super) fn sent(&mut self, chain: ChainRef, block: u32, mask: u64) {
        for wish in self.wishes.iter_mut().flatten() {
            if (wish.chain, wish.block) == (chain, block) {
                wish.bits &= !mask;
            }
        }
        self.drop_if(|wish| wish.bits == 0);
    }
}

/// The exclusive or of several leaves, in a buffer.
struct Combined {
    /// The exclusive or of the leaves' lengths.
    lengths: usize,
    /// The length of the longest leaf.
    longest: usize,
}

/// Adds the leaves of `mask` to `sum` by exclusive or. Returns `None` if the store lacks one of
/// them.
#[inline(never)]
fn combine<S: Store>(
    store: &mut S,
    (chain, block): (ChainRef, u32),
    mask: u64,
    sum: &mut [u8; MAX_LEAF],
) -> Result<Option<Combined>, S::Error> {
    let mut combined = Combined { lengths: 0, longest: 0 };
    let mut buffer = [0; MAX_LEAF];
    for index in (0..MAX_PER_BLOCK).filter(|index| mask >> index & 1 == 1) {
        let Some(leaf) = store.fetch(Item::Leaf { chain, block, index }, &mut buffer)? else {
            return Ok(None);
        };
        sum.iter_mut().zip(leaf).for_each(|(sum, byte)| *sum ^= byte);
        combined.lengths ^= leaf.len();
        combined.longest = combined.longest.max(leaf.len());
    }
    Ok(Some(combined))
}

impl<const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'_, SENDERS, CHAINS, B> {
    /// Collects a request for leaves of a block of `in_block` leaves.
    pub(super) fn note_wish(&mut self, chain: ChainRef, block: u32, wanted: u64, in_block: u8) {
        let answers = &self.answers;
        // Requests that were answered, by this node or by another one, no longer count.
        self.wishes.drop_if(|wish| !answers.has_leaves(wish.chain, wish.block));
        let is_plain = wanted & flag(in_block) == 0;
        self.wishes.add(chain, block, wanted & every(in_block), is_plain);
    }

    /// Writes a repair and returns its length; `None` if the store lacks one of the leaves, or the
    /// frame does not fit.
    #[inline(never)]
    pub(super) fn write_repair<S: Store>(
        (chain, block): (ChainRef, u32),
        mask: u64,
        store: &mut S,
        out: &mut [u8],
    ) -> Result<Option<usize>, S::Error> {
        let mut sum = [0; MAX_LEAF];
        let Some(combined) = combine(store, (chain, block), mask, &mut sum)? else {
            return Ok(None);
        };
        let (Ok(lengths), Some(bytes)) =
            (u16::try_from(combined.lengths), sum.get(..combined.longest))
        else {
            return Ok(None);
        };
        let frame = BroadcastFrame::Repair { chain, block, mask, lengths, bytes };
        let sent = send::transmit(&frame, LinkSet::NONE, Purpose::Answer, out);
        Ok(sent.map(|sent| sent.length))
    }

    /// Processes a repair: computes the leaf that the node lacks, and processes it like one that
    /// was received. A repair of leaves that the node has ends its planned answers with these leaves.
    #[inline(never)]
    pub(super) fn receive_repair<S: Store>(
        &mut self,
        link: u8,
        (chain, block): (ChainRef, u32),
        mask: u64,
        lengths: u16,
        bytes: &[u8],
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let Some(slot) = self.slot(chain) else {
            self.note_unknown(chain, WANTS_HEAD, link);
            return Ok(refused(RefusedBroadcast::UnknownChain));
        };
        let (pace, clock) = (self.pace(), self.clock);
        let Some(tracked) = self.chains.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(Event::Nothing);
        };
        let leaves = mask.count_ones();
        if mask & !every(tracked.outline.in_block(block)) != 0 || leaves as usize > WISHES {
            return Ok(refused(RefusedBroadcast::ForgedLeaf));
        }
        let lacks = mask & !tracked.held(block);
        let is_planned = |index: u8| {
            mask >> index & 1 == 1 && self.answers.has(Item::Leaf { chain, block, index })
        };
        match lacks.count_ones() {
            0 if !(0..MAX_PER_BLOCK).any(is_planned) => return Ok(Event::Nothing),
            0 => {}
            1 if matches!(tracked.progress, Progress::Under(_)) => {}
            _ => {
                // The sender of the repair has the block, and therefore the blocks before it.
                tracked.hint(block.saturating_sub(1), clock, &pace, &mut self.draws);
                return Ok(Event::Nothing);
            }
        }
        let mut sum = [0; MAX_LEAF];
        let Some(start) = sum.get_mut(..bytes.len()) else {
            return Ok(refused(RefusedBroadcast::ForgedLeaf));
        };
        start.copy_from_slice(bytes);
        // A frame of unknown origin must not cause much work at any rate, so each leaf that is read
        // counts.
        if (0..leaves).any(|_| !self.repair_meter.take(clock)) {
            // Until the flood is over, request leaves that are sent alone.
            self.no_repairs_until = clock.saturating_add(u64::from(pace.timing.quiet_ms));
            return Ok(Event::Nothing);
        }
        let Some(others) = combine(store, (chain, block), mask & !lacks, &mut sum)? else {
            return Ok(Event::Nothing);
        };
        let length = usize::from(lengths) ^ others.lengths;
        let (Some(leaf), Some(rest)) = (sum.get(..length), sum.get(length..)) else {
            return Ok(refused(RefusedBroadcast::ForgedLeaf));
        };
        if rest.iter().any(|byte| *byte != 0) {
            return Ok(refused(RefusedBroadcast::ForgedLeaf));
        }
        if lacks != 0 {
            let index = u8::try_from(lacks.trailing_zeros()).unwrap_or(u8::MAX);
            return self.receive_leaf(link, chain, block, index, leaf, store);
        }
        if length == 0 {
            for index in (0..MAX_PER_BLOCK).filter(|index| mask >> index & 1 == 1) {
                // Receivers that cannot use the repair still need the leaf.
                if self.wishes.is_plain(chain, block, index) {
                    continue;
                }
                self.note_answered(Item::Leaf { chain, block, index }, LinkSet::one(link));
            }
        }
        Ok(Event::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: ChainRef = ChainRef([1; 8]);
    const OTHER: ChainRef = ChainRef([2; 8]);

    /// Sends answers until nothing is left. Returns how many frames were sent.
    fn answer(wishes: &mut Wishes, requests: &[u64], plain: usize) -> u32 {
        let alone = requests.iter().take(plain).fold(0, |all, bits| all | bits);
        let mut left = requests.iter().fold(0, |all, bits| all | bits);
        let mut lacks = requests.to_vec();
        let mut frames = 0;
        while left != 0 {
            let mask = wishes.choose(CHAIN, 1, left);
            assert!(mask != 0 && mask & !left == 0, "{mask:b} of {left:b}");
            assert!(mask & alone == 0 || mask.is_power_of_two(), "{mask:b} with {alone:b}");
            for lacks in &mut lacks {
                assert!((*lacks & mask).count_ones() <= 1, "{mask:b} for {lacks:b}");
                *lacks &= !mask;
            }
            wishes.sent(CHAIN, 1, mask);
            left &= !mask;
            frames += 1;
        }
        frames
    }

    #[test]
    fn every_receiver_can_compute_every_leaf_that_it_lacks() {
        let mut draws = Draws::new(3);
        for round in 0..2_000 {
            let requests: std::vec::Vec<u64> = (0..1 + draws.below(12))
                .map(|_| {
                    let mut draw = || {
                        u64::from(draws.below(u32::MAX)) << 32 | u64::from(draws.below(u32::MAX))
                    };
                    let bits = draw() & draw() & draw();
                    if round % 2 == 0 { bits & 0xff } else { bits }
                })
                .filter(|bits| *bits != 0)
                .collect();
            let plain = round % 3;
            let mut wishes = Wishes::new();
            wishes.add(OTHER, 1, u64::MAX, true);
            for (place, bits) in requests.iter().enumerate() {
                wishes.add(CHAIN, 1, *bits, place < plain);
            }
            answer(&mut wishes, &requests, plain);
            assert_eq!(wishes.of(CHAIN, 1).count(), 0);
        }
    }

    #[test]
    fn chooses_few_repairs() {
        let count = |requests: &[u64]| {
            let mut wishes = Wishes::new();
            requests.iter().for_each(|bits| wishes.add(CHAIN, 1, *bits, false));
            answer(&mut wishes, requests, 0)
        };
        assert_eq!(count(&[0b1, 0b10, 0b100, 0b1000]), 1);
        assert_eq!(count(&[0b11, 0b110]), 2);
        assert_eq!(count(&[0b111, 0b10, 0b111_000]), 3);
        assert_eq!(count(&[u64::MAX]), 64);
        // More requests than places: the repairs have fewer leaves.
        let many: std::vec::Vec<u64> = (0..16).map(|index| 1 << index).collect();
        assert!((1..=16).contains(&count(&many)));
    }

    #[test]
    fn a_request_without_a_place_ends_coding() {
        let mut wishes = Wishes::new();
        (2..9).for_each(|block| wishes.add(OTHER, block, 1, false));
        wishes.add(CHAIN, 1, 0b1, false);
        // This request has no place, and the others must not be combined: it names both leaves.
        wishes.add(CHAIN, 1, 0b11, true);
        assert_eq!(wishes.choose(CHAIN, 1, 0b11), 0b1);
        wishes.drop_if(|wish| wish.chain == OTHER);
        wishes.add(CHAIN, 1, 0b10, false);
        assert_eq!(wishes.choose(CHAIN, 1, 0b11).count_ones(), 1);
        wishes.drop_if(|_| true);
        wishes.add(CHAIN, 1, 0b1, false);
        wishes.add(CHAIN, 1, 0b10, false);
        assert_eq!(wishes.choose(CHAIN, 1, 0b11), 0b11);
    }

    #[test]
    fn leaves_that_nobody_is_known_to_lack_are_sent_alone() {
        let mut wishes = Wishes::new();
        assert_eq!(wishes.choose(CHAIN, 1, 0b110), 0b10);
        wishes.add(CHAIN, 1, 0b100, false);
        wishes.add(CHAIN, 2, 0b10, false);
        assert_eq!(wishes.choose(CHAIN, 1, 0b111), 0b100);
        assert_eq!(wishes.choose(CHAIN, 1, 0), 0);
    }
}
