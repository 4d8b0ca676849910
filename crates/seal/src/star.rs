//! Geometric Star Chaining (section IV.C of the paper): one running digest per level, constant
//! memory, one signature.
//!
//! `D_i`, the digest of level `i`, is SHA-256 of a 64-byte header and the events of the level as
//! they are stored. Sixteen 4-byte events therefore share one compression, whereas the paper's
//! `H(H(e) || D_i)` needs three compressions per event. Sequence numbers are not transmitted: the
//! salt determines which events belong to each level (spec/objects.md, section 6).

mod groups;
mod replacing_digests;

pub(crate) use groups::hash_groups;
pub use groups::{
    GroupedStar, GroupedStarState, RunningBlock, group_digests, group_header, join_groups,
    level_digest, whole_block_digest,
};
pub use replacing_digests::{GroupDigests, Served, pruned_evidence, star_digests, star_evidence};

use core::fmt;
use moteseal_core::named_errors;

use crate::level::LevelKey;
use crate::level::{Counters, Salt};
use moteseal_core::digest::{Digest, INITIAL, compress256, state_bytes, tag};
use moteseal_core::record::{DeviceId, Framing, Level, MAX_LEVELS, SealIndex};

const BLOCK_TAG: [u8; 32] = tag(b"moteseal/1/star");
const ROOT_TAG: Digest = Digest(tag(b"moteseal/1/star/root"));

/// Returns the header of a block: the first 64 bytes that its digest covers, which are one whole
/// compression.
#[must_use]
pub fn header(device: DeviceId, index: SealIndex, level: Level) -> [u8; 64] {
    let mut header = [0; 64];
    header[..32].copy_from_slice(&BLOCK_TAG);
    header[32..40].copy_from_slice(&device.0);
    header[40..44].copy_from_slice(&index.0.to_be_bytes());
    header[44..48].copy_from_slice(&u32::from(level.0).to_be_bytes());
    header
}

/// Returns the digest of a whole block as encoded in a bundle.
#[must_use]
pub fn block_digest(device: DeviceId, index: SealIndex, level: Level, block: &[u8]) -> Digest {
    Digest::of(&[&header(device, index, level), block])
}

/// Returns `A_i`, the next element of the chain over the levels. `above` is `A_{i-1}`.
#[must_use]
pub fn link(above: &Digest, count: u32, block: &Digest) -> Digest {
    Digest::of(&[&above.0, &count.to_be_bytes(), &block.0])
}

/// Returns `A_{-1}`, the start of the chain over the levels.
#[must_use]
pub const fn chain_start() -> Digest {
    ROOT_TAG
}

/// Returns the root: the chain over all levels, from level 0 up.
#[must_use]
pub fn root(counters: &Counters, digests: &[Digest]) -> Digest {
    counters
        .as_slice()
        .iter()
        .zip(digests)
        .fold(ROOT_TAG, |above, (&count, digest)| link(&above, count, digest))
}

/// Returns the root, computed from the digests of the levels from `from` on and from `above`, which
/// is `A_{from-1}`, the chain over the lower levels.
#[must_use]
pub fn root_from(counters: &Counters, from: u8, above: Digest, digests: &[Digest]) -> Digest {
    let levels = counters.as_slice().iter().zip(digests).skip(usize::from(from));
    levels.fold(above, |above, (&count, digest)| link(&above, count, digest))
}

/// The running digest of one level. It takes 112 bytes.
#[derive(Clone, Copy)]
pub struct LevelDigest {
    state: [u32; 8],
    /// The number of bytes of events so far, without the header. The header is hashed when the
    /// first event is added.
    length: u64,
    buffer: [u8; 64],
    count: u32,
}

impl LevelDigest {
    /// The digest of a level without events.
    pub const EMPTY: Self = Self { state: INITIAL, length: 0, buffer: [0; 64], count: 0 };

    #[inline]
    fn update(&mut self, mut bytes: &[u8]) {
        #[allow(clippy::cast_possible_truncation)]
        let at = (self.length % 64) as usize;
        self.length += bytes.len() as u64;
        if at + bytes.len() < 64 {
            self.buffer[at..at + bytes.len()].copy_from_slice(bytes);
            return;
        }
        let (head, rest) = bytes.split_at(64 - at);
        self.buffer[at..].copy_from_slice(head);
        compress256(&mut self.state, &[self.buffer]);
        bytes = rest;
        let (blocks, rest) = bytes.as_chunks::<64>();
        compress256(&mut self.state, blocks);
        self.buffer[..rest.len()].copy_from_slice(rest);
    }

    /// Returns the digest and leaves the state unusable. It works in place to save stack space.
    fn finish(&mut self) -> Digest {
        let bits = (self.length + 64) * 8;
        #[allow(clippy::cast_possible_truncation)]
        let at = (self.length % 64) as usize;
        self.buffer[at] = 0x80;
        self.buffer[at + 1..].fill(0);
        if at >= 56 {
            compress256(&mut self.state, &[self.buffer]);
            self.buffer.fill(0);
        }
        self.buffer[56..].copy_from_slice(&bits.to_be_bytes());
        compress256(&mut self.state, &[self.buffer]);
        Digest(state_bytes(&self.state))
    }
}

named_errors! {
    /// Why a star or tree rejected an event.
    PushError {
        /// The event does not have the schema's record size, or is longer than 65,535 bytes.
        WrongLength => "the event does not have the schema's record size",
        /// The seal has no room for another event. Close the seal and continue under the next
        /// index.
        Full => "the seal is full; close it and open the next one",
    }
}

/// The state of a running star without the digests of its levels. The caller stores the digests,
/// one [`LevelDigest`] for each level, and passes them to each call. [`Star`] contains both. This
/// type is for callers that know the number of levels only at run time.
#[derive(Clone)]
pub struct StarState {
    key: LevelKey,
    device: DeviceId,
    index: SealIndex,
    framing: Framing,
    total: u32,
    /// The number of levels that the group uses.
    used: u8,
    /// The level of the next event. It does not depend on the content of the event. Computing it
    /// early lets the processor fetch the right digest before the event arrives.
    next: Level,
}

impl StarState {
    /// Creates the state of an empty star for the seal `index` of `device`, in a group of `levels`
    /// levels. Returns `None` if `levels` is not 1 to 32. The digests that the caller passes must
    /// initially be [`LevelDigest::EMPTY`].
    #[must_use]
    pub fn new(
        device: DeviceId,
        index: SealIndex,
        salt: &Salt,
        framing: Framing,
        levels: u8,
    ) -> Option<Self> {
        (1..=MAX_LEVELS)
            .contains(&usize::from(levels))
            .then(|| Self::of_levels(device, index, salt, framing, levels))
    }

    fn of_levels(
        device: DeviceId,
        index: SealIndex,
        salt: &Salt,
        framing: Framing,
        used: u8,
    ) -> Self {
        let key = LevelKey::new(salt);
        Self { key, device, index, framing, total: 0, used, next: key.level(0, used) }
    }

    /// Returns the number of events so far.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u32 {
        self.total
    }

    /// Adds the next event and returns its level. For an event of 4 bytes, this takes about a
    /// sixteenth of a SHA-256 compression and one SipHash.
    ///
    /// # Errors
    /// [`PushError`].
    ///
    /// # Panics
    /// If there are fewer digests than levels.
    #[inline]
    pub fn push(&mut self, digests: &mut [LevelDigest], event: &[u8]) -> Result<Level, PushError> {
        let (level, prefix) = self.advance(event)?;
        let running = &mut digests[usize::from(level.0)];
        if running.count == 0 {
            compress256(&mut running.state, &[header(self.device, self.index, level)]);
        }
        running.count += 1;
        if let Some(prefix) = prefix {
            running.update(&prefix);
        }
        running.update(event);
        Ok(level)
    }

    /// Counts the next event. Returns its level, and its prefix in a block.
    #[inline]
    fn advance(&mut self, event: &[u8]) -> Result<(Level, Option<[u8; 2]>), PushError> {
        if self.total == u32::MAX {
            return Err(PushError::Full);
        }
        let prefix = self.framing.prefix(event).ok_or(PushError::WrongLength)?;
        let level = self.next;
        self.total += 1;
        self.next = self.key.level(u64::from(self.total), self.used);
        Ok((level, prefix))
    }

    /// Ends the epoch. Returns the number of events per level, and calls `each(level, count,
    /// digest)` for every level of the group, from level 0 up. The digest of an empty level is
    /// null. Afterwards the state accepts no more events.
    #[inline]
    fn close(
        &mut self,
        digests: &mut [LevelDigest],
        mut each: impl FnMut(usize, u32, Digest),
    ) -> Counters {
        let mut counters = Counters::new(self.used);
        for (level, (running, count)) in digests.iter_mut().zip(counters.as_mut_slice()).enumerate()
        {
            *count = running.count;
            let digest = if running.count > 0 { running.finish() } else { Digest::NULL };
            *running = LevelDigest::EMPTY;
            each(level, *count, digest);
        }
        self.total = u32::MAX;
        counters
    }

    /// Ends the epoch. Returns the number of events per level, and the root over all levels.
    /// Afterwards the state accepts no more events.
    #[must_use]
    pub fn close_to_root(&mut self, digests: &mut [LevelDigest]) -> (Counters, Digest) {
        let mut root = ROOT_TAG;
        let counters = self.close(digests, |_, count, digest| root = link(&root, count, &digest));
        (counters, root)
    }
}

/// The running star of one seal on a device. It has `L` levels, which take 112 bytes each.
#[derive(Clone)]
pub struct Star<const L: usize> {
    state: StarState,
    levels: [LevelDigest; L],
}

impl<const L: usize> fmt::Debug for Star<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Star")
            .field("device", &self.state.device)
            .field("index", &self.state.index)
            .field("events", &self.state.total)
            .finish()
    }
}

impl<const L: usize> Star<L> {
    const LEVELS: u8 = {
        assert!(L >= 1 && L <= MAX_LEVELS, "a group has 1 to 32 levels");
        #[allow(clippy::cast_possible_truncation)]
        let levels = L as u8;
        levels
    };

    /// Creates an empty star for the seal `index` of `device`, in a group of `L` levels.
    #[must_use]
    pub fn new(device: DeviceId, index: SealIndex, salt: &Salt, framing: Framing) -> Self {
        Self::of_levels(device, index, salt, framing, Self::LEVELS)
    }

    /// Creates an empty star like [`new`](Self::new), but in a group of `levels` levels, a number
    /// that is known only at run time. Returns `None` if `levels` is not 1 to `L`.
    #[must_use]
    pub fn with_levels(
        device: DeviceId,
        index: SealIndex,
        salt: &Salt,
        framing: Framing,
        levels: u8,
    ) -> Option<Self> {
        (1..=Self::LEVELS)
            .contains(&levels)
            .then(|| Self::of_levels(device, index, salt, framing, levels))
    }

    fn of_levels(
        device: DeviceId,
        index: SealIndex,
        salt: &Salt,
        framing: Framing,
        used: u8,
    ) -> Self {
        Self {
            state: StarState::of_levels(device, index, salt, framing, used),
            levels: [LevelDigest::EMPTY; L],
        }
    }

    /// Returns the number of events so far.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.state.total
    }

    /// Returns whether there are no events yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.state.total == 0
    }

    /// Adds the next event and returns its level. For an event of 4 bytes, this takes about a
    /// sixteenth of a SHA-256 compression and one SipHash.
    ///
    /// # Errors
    /// [`PushError`].
    #[inline]
    pub fn push(&mut self, event: &[u8]) -> Result<Level, PushError> {
        self.state.push(&mut self.levels, event)
    }

    /// Ends the epoch. Returns the number of events and the digest of each level. Levels below the
    /// round and levels with lost events are included. The digests of empty levels, and of levels
    /// that the group does not use, are null.
    #[must_use]
    pub fn close(mut self) -> (Counters, [Digest; L]) {
        self.close_in_place()
    }

    /// Does the same as [`close`](Self::close) without moving the star, for small stacks.
    /// Afterwards the star accepts no more events, and closing it again returns no events.
    #[must_use]
    pub fn close_in_place(&mut self) -> (Counters, [Digest; L]) {
        let mut digests = [Digest::NULL; L];
        let counters =
            self.state.close(&mut self.levels, |level, _, digest| digests[level] = digest);
        (counters, digests)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use moteseal_core::record::Sequence;

    /// Computes the counters and digests by their definition: sorts the events into blocks and
    /// hashes each block.
    fn reference(
        device: DeviceId,
        index: SealIndex,
        salt: &Salt,
        framing: Framing,
        levels: u8,
        events: &[Vec<u8>],
    ) -> (Counters, Vec<Digest>) {
        let mut blocks = std::vec![Vec::new(); usize::from(levels)];
        let mut counters = Counters::new(levels);
        for (seq, event) in (0..).zip(events) {
            let level = usize::from(salt.level(Sequence(seq), levels).0);
            counters.as_mut_slice()[level] += 1;
            if framing == Framing::Prefixed {
                blocks[level].extend(u16::try_from(event.len()).unwrap().to_be_bytes());
            }
            blocks[level].extend_from_slice(event);
        }
        let digests = (0..levels)
            .zip(&blocks)
            .map(|(level, block)| match counters.at(Level(level)) {
                0 => Digest::NULL,
                _ => block_digest(device, index, Level(level), block),
            })
            .collect();
        (counters, digests)
    }

    proptest! {
        #[test]
        fn equals_the_reference(
            device: [u8; 8],
            index: u32,
            salt: [u8; 16],
            events in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..300),
        ) {
            let (device, index, salt) = (DeviceId(device), SealIndex(index), Salt(salt));
            let mut star = Star::<8>::new(device, index, &salt, Framing::Prefixed);
            for (seq, event) in (0..).zip(&events) {
                prop_assert_eq!(star.push(event), Ok(salt.level(Sequence(seq), 8)));
            }
            let (counters, digests) = star.close();
            let expected = reference(device, index, &salt, Framing::Prefixed, 8, &events);
            prop_assert_eq!((counters, digests.to_vec()), expected);
        }

        #[test]
        fn equals_the_reference_for_records_of_one_size(
            salt: [u8; 16],
            size in 1..130usize,
            count in 0..700usize,
        ) {
            let salt = Salt(salt);
            let events: Vec<Vec<u8>> = (0..count).map(|i| (0..size).map(|j| (i * 31 + j) as u8).collect()).collect();
            let framing = Framing::fixed(size).unwrap();
            let mut star = Star::<16>::new(DeviceId([7; 8]), SealIndex(3), &salt, framing);
            for event in &events {
                star.push(event).unwrap();
            }
            let (counters, digests) = star.close();
            let expected = reference(DeviceId([7; 8]), SealIndex(3), &salt, framing, 16, &events);
            prop_assert_eq!((counters, digests.to_vec()), expected);
        }
    }

    proptest! {
        #[test]
        fn equals_the_reference_with_fewer_levels_than_capacity(
            salt: [u8; 16],
            levels in 1..=16u8,
            events in prop::collection::vec(any::<[u8; 3]>(), 0..200),
        ) {
            let (device, index, salt) = (DeviceId([7; 8]), SealIndex(3), Salt(salt));
            let framing = Framing::fixed(3).unwrap();
            let mut star = Star::<16>::with_levels(device, index, &salt, framing, levels).unwrap();
            let events: Vec<Vec<u8>> = events.iter().map(|event| event.to_vec()).collect();
            for event in &events {
                star.push(event).unwrap();
            }
            let (counters, digests) = star.close();
            let expected = reference(device, index, &salt, framing, levels, &events);
            prop_assert_eq!((counters, digests[..usize::from(levels)].to_vec()), expected);
            prop_assert!(digests[usize::from(levels)..].iter().all(|digest| *digest == Digest::NULL));
        }
    }

    #[test]
    fn rejects_a_number_of_levels_outside_its_capacity() {
        let star = |levels| {
            Star::<8>::with_levels(
                DeviceId([0; 8]),
                SealIndex(0),
                &Salt([0; 16]),
                Framing::Prefixed,
                levels,
            )
        };
        assert!(star(0).is_none() && star(9).is_none());
        assert!(star(1).is_some() && star(8).is_some());
    }

    #[test]
    fn a_star_closed_in_place_accepts_no_events() {
        let mut star =
            Star::<8>::new(DeviceId([7; 8]), SealIndex(3), &Salt([1; 16]), Framing::Prefixed);
        star.push(b"event").unwrap();
        assert_eq!(star.clone().close(), star.close_in_place());
        assert_eq!(star.push(b"event"), Err(PushError::Full));
        assert_eq!(star.close_in_place(), (Counters::new(8), [Digest::NULL; 8]));
    }

    #[test]
    fn state_takes_112_bytes_per_level_and_256() {
        assert!(size_of::<Star<8>>() <= 8 * 112 + 256);
        assert!(size_of::<Star<16>>() <= 16 * 112 + 256);
        assert!(size_of::<Star<32>>() <= 32 * 112 + 256);
    }

    #[test]
    fn rejects_a_record_of_the_wrong_size() {
        let mut star = Star::<8>::new(
            DeviceId([0; 8]),
            SealIndex(0),
            &Salt([0; 16]),
            Framing::fixed(4).unwrap(),
        );
        assert_eq!(star.push(&[0; 5]), Err(PushError::WrongLength));
        assert_eq!(star.len(), 0);
    }
}
