//! The epoch guard makes sure that a source answers each epoch of a query at most once
//! (docs/design.md, section *Sums*).
//!
//! If a source encrypts two readings under the keys of one query and epoch, the records reveal the
//! multiplier key `K_t`, and with it the readings of other sources. Encryption therefore requires a
//! [`Permit`]. The [`EpochGuard`] issues at most one permit per query and epoch, even after it has
//! forgotten the query. The guard has a fixed size and needs neither heap nor clock.
//!
//! The guard's owner MUST store each advance durably *before* it sends the records that the advance
//! permits, and MUST NOT restore an older copy of the guard. The guard cannot detect either
//! mistake.

use core::fmt;
use moteseal_core::named_errors;

use crate::query::QueryId;

/// The number of queries that the guard remembers individually.
pub const MAX_GUARDED: usize = 8;

/// The length of an encoded guard in bytes.
pub const GUARD_LENGTH: usize = 9 + MAX_GUARDED * ENTRY;

/// The length of an encoded entry in bytes: query, last epoch and duration.
const ENTRY: usize = 32;

/// The version of the encoding, which is its first byte.
const VERSION: u8 = 1;

named_errors! {
    /// Why the guard permits no answer for an epoch.
    GuardError {
        /// This epoch of the query, or a later one, was permitted before.
        EpochAnswered => "this epoch of the query, or a later one, was answered before",
        /// The guard does not know the query, or has forgotten it, and the epoch starts before the
        /// time from which the guard remembers all answers.
        TooOld => "the epoch starts before the time from which the guard remembers all answered epochs",
        /// The query previously had epochs of another length. This cannot happen with an honest
        /// querier, because a query's id identifies its plan, and the plan determines the length.
        DurationMismatch => "the query's epochs had a different length before",
        /// The epochs have length 0, or the epoch ends after 2^64 - 1 ms.
        EpochOutOfRange => "an epoch must be longer than 0 ms and end before 2^64 ms",
    }
}

named_errors! {
    /// Why bytes are not an encoded guard.
    GuardDecodeError {
        /// The version is not 1.
        UnsupportedVersion => "the epoch guard has an unsupported version; only version 1 is supported",
        /// The encoding has a duplicate query, an entry after a free one, a free entry that is not
        /// all zeros, or an entry that no call of [`EpochGuard::advance`] creates.
        NotCanonical => "the bytes are not the encoding of an epoch guard",
    }
}

/// The permission to encrypt the values of one query and epoch, each slot once and in order. Only
/// [`EpochGuard::advance`] creates a permit, and a permit cannot be copied:
///
/// ```compile_fail
/// let query = moteseal_sum::query::QueryId([7; 16]);
/// let permit = moteseal_sum::guard::Permit { query, epoch: 5, next_slot: 0 };
/// ```
///
/// ```compile_fail
/// # let mut guard = moteseal_sum::guard::EpochGuard::default();
/// let permit = guard.advance(moteseal_sum::query::QueryId([7; 16]), 5_000, 5).unwrap();
/// let again = permit.clone();
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    query: QueryId,
    epoch: u64,
    /// The lowest slot that is not used yet.
    next_slot: u16,
}

impl Permit {
    /// Returns the query.
    #[must_use]
    pub const fn query(&self) -> QueryId {
        self.query
    }

    /// Returns the epoch of that query.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Marks a slot and all slots before it as used. Returns `false` if it was used already.
    pub(super) fn take(&mut self, slot: u8) -> bool {
        let is_free = u16::from(slot) >= self.next_slot;
        if is_free {
            self.next_slot = u16::from(slot) + 1;
        }
        is_free
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    query: QueryId,
    /// The latest epoch that was permitted.
    last: u64,
    duration_ms: u64,
}

impl Entry {
    /// Returns the end of the latest permitted epoch in Unix milliseconds; `None` if the length is
    /// 0 or the end does not fit in 64 bits.
    fn end_ms(&self) -> Option<u64> {
        if self.duration_ms == 0 {
            None
        } else {
            self.last.checked_add(1)?.checked_mul(self.duration_ms)
        }
    }
}

/// The guard of one source. It contains the latest permitted epoch for each of [`MAX_GUARDED`]
/// queries, and a floor: for all other queries, it permits no epoch that starts before this time.
///
/// If a new query needs an entry and all are used, the guard forgets the query whose latest epoch
/// ended first, and raises the floor to that end. Every answered epoch of a forgotten query starts
/// before the floor, so none is permitted again.
#[derive(Clone, PartialEq, Eq)]
pub struct EpochGuard {
    entries: [Option<Entry>; MAX_GUARDED],
    floor_ms: u64,
}

impl Default for EpochGuard {
    /// Returns the guard of a source with new keys, which has never answered anything.
    fn default() -> Self {
        Self::starting_at(0)
    }
}

impl fmt::Debug for EpochGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.entries.iter().flatten().count();
        f.debug_struct("EpochGuard")
            .field("known", &known)
            .field("floor_ms", &self.floor_ms)
            .finish()
    }
}

impl EpochGuard {
    /// Returns the guard of a source that may have answered epochs that it no longer knows. It
    /// permits no epoch that starts before `floor_ms`, in Unix milliseconds.
    #[must_use]
    pub const fn starting_at(floor_ms: u64) -> Self {
        Self { entries: [None; MAX_GUARDED], floor_ms }
    }

    /// Permits one epoch of a query. Neither this epoch nor an earlier one of the query is ever
    /// permitted again.
    ///
    /// `duration_ms` is the length of the query's epochs in milliseconds: epoch `e` starts at `e *
    /// duration_ms`, in Unix milliseconds. It must always be the same for the same query.
    ///
    /// # Errors
    /// [`GuardError`]. The guard is then unchanged.
    pub fn advance(
        &mut self,
        query: QueryId,
        duration_ms: u64,
        epoch: u64,
    ) -> Result<Permit, GuardError> {
        let entry = Entry { query, last: epoch, duration_ms };
        entry.end_ms().ok_or(GuardError::EpochOutOfRange)?;
        if let Some(known) = self.entries.iter_mut().flatten().find(|known| known.query == query) {
            if known.duration_ms != duration_ms {
                return Err(GuardError::DurationMismatch);
            }
            if epoch <= known.last {
                return Err(GuardError::EpochAnswered);
            }
            known.last = epoch;
            return Ok(Permit { query, epoch, next_slot: 0 });
        }
        // The epoch's end fits in 64 bits, so the product does not saturate.
        if epoch.saturating_mul(duration_ms) < self.floor_ms {
            return Err(GuardError::TooOld);
        }
        let free = self.entries.iter_mut().find(|entry| entry.is_none());
        // All free entries are at the end. If no entry is free, find the entry whose epoch ended
        // first.
        let slot = match free {
            Some(slot) => Some(slot),
            None => {
                self.entries.iter_mut().min_by_key(|entry| entry.and_then(|entry| entry.end_ms()))
            }
        };
        if let Some(slot) = slot {
            let forgotten = slot.replace(entry).and_then(|forgotten| forgotten.end_ms());
            self.floor_ms = self.floor_ms.max(forgotten.unwrap_or(0));
        }
        Ok(Permit { query, epoch, next_slot: 0 })
    }

    /// Returns a query that should be forgotten before an epoch of `query` is permitted, because the guard
    /// has no free entry for it: of those for which `is_running` is false, the one whose latest epoch
    /// ended first. Without this, the guard would forget a running query with long epochs first, and
    /// refuse its next epoch.
    #[must_use]
    pub fn to_forget(
        &self,
        query: QueryId,
        is_running: impl Fn(QueryId) -> bool,
    ) -> Option<QueryId> {
        let is_full = self.entries.iter().all(Option::is_some) && self.last(query).is_none();
        let ended = self.entries.iter().flatten().filter(|entry| !is_running(entry.query));
        ended.min_by_key(|entry| entry.end_ms()).filter(|_| is_full).map(|entry| entry.query)
    }

    /// Forgets a query, if it is remembered. Its epochs that start before the end of its latest one are
    /// not permitted again.
    pub fn forget(&mut self, query: QueryId) {
        let found = self.entries.iter().flatten().position(|entry| entry.query == query);
        let Some(rest) = found.and_then(|at| self.entries.get_mut(at..)) else { return };
        let forgotten = rest.first_mut().and_then(Option::take).and_then(|entry| entry.end_ms());
        // Free entries are at the end.
        rest.rotate_left(1);
        self.floor_ms = self.floor_ms.max(forgotten.unwrap_or(0));
    }

    /// Returns the last permitted epoch of a query, if the query is remembered.
    #[must_use]
    pub fn last(&self, query: QueryId) -> Option<u64> {
        self.entries.iter().flatten().find(|entry| entry.query == query).map(|entry| entry.last)
    }

    /// Returns the encoded guard. It consists of the version (1 byte), the floor in milliseconds (8
    /// bytes), and the entries. Each entry contains the query's id (16 bytes), its latest permitted
    /// epoch (8 bytes) and the length of its epochs in milliseconds (8 bytes). A free entry is all
    /// zeros. Numbers are big-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; GUARD_LENGTH] {
        let mut out = [0; GUARD_LENGTH];
        out[0] = VERSION;
        out[1..9].copy_from_slice(&self.floor_ms.to_be_bytes());
        for (bytes, entry) in
            out[9..].as_chunks_mut::<ENTRY>().0.iter_mut().zip(self.entries.iter().flatten())
        {
            bytes[..16].copy_from_slice(&entry.query.0);
            bytes[16..24].copy_from_slice(&entry.last.to_be_bytes());
            bytes[24..].copy_from_slice(&entry.duration_ms.to_be_bytes());
        }
        out
    }

    /// Reads a guard that [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`GuardDecodeError`].
    pub fn decode(bytes: &[u8; GUARD_LENGTH]) -> Result<Self, GuardDecodeError> {
        if bytes[0] != VERSION {
            return Err(GuardDecodeError::UnsupportedVersion);
        }
        let mut guard = Self { floor_ms: number(&bytes[1..9]), ..Self::default() };
        let (encoded, _) = bytes[9..].as_chunks::<ENTRY>();
        let used = encoded.iter().take_while(|bytes| bytes[24..] != [0; 8]).count();
        let (entries, free) = encoded.split_at(used);
        if free.iter().any(|bytes| *bytes != [0; ENTRY]) {
            return Err(GuardDecodeError::NotCanonical);
        }
        for (at, bytes) in entries.iter().enumerate() {
            let mut entry = Entry {
                query: QueryId([0; 16]),
                last: number(&bytes[16..24]),
                duration_ms: number(&bytes[24..]),
            };
            entry.query.0.copy_from_slice(&bytes[..16]);
            if entry.end_ms().is_none() || guard.last(entry.query).is_some() {
                return Err(GuardDecodeError::NotCanonical);
            }
            guard.entries[at] = Some(entry);
        }
        Ok(guard)
    }
}

/// Reads up to 8 bytes as a big-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashMap;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const DURATIONS: [u64; 5] = [1, 7, 1000, 5000, 60_000];

    /// Returns a query for tests, with the length of its epochs.
    fn query(number: u8) -> (QueryId, u64) {
        (QueryId([number; 16]), DURATIONS[usize::from(number) % DURATIONS.len()])
    }

    #[test]
    fn forgets_a_query_that_has_ended_instead_of_a_running_one_with_long_epochs() {
        let (hourly, hour) = (QueryId([99; 16]), 3_600_000);
        let mut guard = EpochGuard::default();
        guard.advance(hourly, hour, 10).unwrap();
        // 20 short queries, one after the other, within the next hour.
        for number in 0..20 {
            let (query, epoch) = (QueryId([number; 16]), 11 * 3600 + u64::from(number));
            if let Some(ended) = guard.to_forget(query, |known| known == hourly) {
                assert_ne!(ended, hourly);
                let last = guard.last(ended).unwrap();
                guard.forget(ended);
                // What was answered is not permitted again.
                assert_eq!(guard.advance(ended, 1000, last), Err(GuardError::TooOld));
            }
            guard.advance(query, 1000, epoch).unwrap();
            assert_eq!(EpochGuard::decode(&guard.encode()).as_ref(), Ok(&guard));
        }
        guard.advance(hourly, hour, 11).unwrap();
        assert_eq!(guard.to_forget(hourly, |_| false), None);
        // A query that is not remembered changes nothing.
        let before = guard.clone();
        guard.forget(QueryId([98; 16]));
        assert_eq!(guard, before);
    }

    #[test]
    fn permits_an_epoch_once_and_no_earlier_one() {
        let mut guard = EpochGuard::default();
        assert_eq!(
            guard.advance(QueryId([1; 16]), 5000, 7),
            Ok(Permit { query: QueryId([1; 16]), epoch: 7, next_slot: 0 })
        );
        assert_eq!(guard.advance(QueryId([1; 16]), 5000, 7), Err(GuardError::EpochAnswered));
        assert_eq!(guard.advance(QueryId([1; 16]), 5000, 6), Err(GuardError::EpochAnswered));
        assert_eq!(
            guard.advance(QueryId([2; 16]), 5000, 7),
            Ok(Permit { query: QueryId([2; 16]), epoch: 7, next_slot: 0 })
        );
        assert_eq!(
            guard.advance(QueryId([1; 16]), 5000, 8),
            Ok(Permit { query: QueryId([1; 16]), epoch: 8, next_slot: 0 })
        );
        assert_eq!((guard.last(QueryId([1; 16])), guard.last(QueryId([3; 16]))), (Some(8), None));
    }

    #[test]
    fn a_source_that_lost_its_guard_answers_no_earlier_epoch() {
        let mut guard = EpochGuard::starting_at(10_001);
        assert_eq!(guard.advance(QueryId([1; 16]), 5000, 2), Err(GuardError::TooOld));
        guard.advance(QueryId([1; 16]), 5000, 3).unwrap();
    }

    #[test]
    fn rejects_another_epoch_length_of_a_query() {
        let mut guard = EpochGuard::default();
        guard.advance(QueryId([1; 16]), 5000, 7).unwrap();
        assert_eq!(guard.advance(QueryId([1; 16]), 1000, 8), Err(GuardError::DurationMismatch));
        assert_eq!(guard.last(QueryId([1; 16])), Some(7));
    }

    #[test]
    fn rejects_an_epoch_without_length_or_beyond_64_bits() {
        let mut guard = EpochGuard::default();
        for (duration, epoch) in [(0, 0), (1, u64::MAX), (2, u64::MAX / 2), (u64::MAX, 1)] {
            assert_eq!(
                guard.advance(QueryId([1; 16]), duration, epoch),
                Err(GuardError::EpochOutOfRange),
                "{duration} ms, epoch {epoch}"
            );
        }
        assert_eq!(guard, EpochGuard::default());
        guard.advance(QueryId([1; 16]), 1, u64::MAX - 1).unwrap();
        guard.advance(QueryId([2; 16]), u64::MAX, 0).unwrap();
    }

    #[test]
    fn never_permits_a_time_of_a_forgotten_query_again() {
        let mut guard = EpochGuard::default();
        // The latest epoch of query 0 ended first, so the ninth query replaces query 0.
        for number in 0..=8 {
            guard.advance(QueryId([number; 16]), 1000, 100 + u64::from(number)).unwrap();
        }
        assert_eq!(guard.last(QueryId([0; 16])), None);
        for epoch in 0..=100 {
            assert_eq!(guard.advance(QueryId([0; 16]), 1000, epoch), Err(GuardError::TooOld));
        }
        assert_eq!(
            guard.advance(QueryId([9; 16]), 500, 201),
            Err(GuardError::TooOld),
            "nor for any other unknown query"
        );
        // The next epoch of query 0 starts exactly at the floor, so it is permitted.
        guard.advance(QueryId([0; 16]), 1000, 101).unwrap();
    }

    #[test]
    fn rejects_bytes_that_are_not_a_guard() {
        let mut guard = EpochGuard::default();
        for number in 1..=3 {
            guard.advance(QueryId([number; 16]), 1000, u64::from(number)).unwrap();
        }
        let good = guard.encode();
        assert_eq!(EpochGuard::decode(&good), Ok(guard));
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = good;
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            EpochGuard::decode(&changed)
        };
        assert_eq!(with(0, &[0]), Err(GuardDecodeError::UnsupportedVersion));
        assert_eq!(with(0, &[2]), Err(GuardDecodeError::UnsupportedVersion));
        for (what, at, bytes) in [
            ("a query twice", 9, &[2u8; 16][..]),
            ("an entry after a free one", 9 + 24, &[0; 8]),
            ("a free one that is not zeros", 9 + 3 * ENTRY, &[1]),
            ("the last byte before the duration", 9 + 7 * ENTRY + 23, &[1]),
            ("an epoch that ends above 64 bits", 9 + 16, &[0xff; 8]),
        ] {
            assert_eq!(with(at, bytes), Err(GuardDecodeError::NotCanonical), "{what}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// For any sequence of calls, compares the guard with a map that records every permitted
        /// epoch and never forgets one.
        #[test]
        fn no_query_and_epoch_is_permitted_twice(calls in prop::collection::vec((0u8..20, 0u64..200_000), 1..200)) {
            let (mut guard, mut permitted) = (EpochGuard::default(), HashMap::<u8, Vec<u64>>::new());
            for (number, time_ms) in calls {
                let (id, duration) = query(number);
                let epoch = time_ms / duration;
                let known = guard.last(id);
                let before = guard.clone();
                match guard.advance(id, duration, epoch) {
                    Ok(permit) => {
                        prop_assert_eq!((permit.query(), permit.epoch()), (id, epoch));
                        let epochs = permitted.entry(number).or_default();
                        prop_assert!(epochs.iter().all(|&earlier| earlier < epoch), "{} again or before {:?}", epoch, epochs);
                        epochs.push(epoch);
                        prop_assert_eq!(guard.last(id), Some(epoch));
                    }
                    Err(error) => {
                        // The guard may reject an epoch only if it was permitted before, or if it
                        // is before the floor.
                        match known {
                            Some(last) => prop_assert!(error == GuardError::EpochAnswered && epoch <= last),
                            None => prop_assert!(error == GuardError::TooOld && epoch * duration < before.floor_ms),
                        }
                        prop_assert_eq!(&guard, &before);
                    }
                }
                guard = EpochGuard::decode(&guard.encode()).unwrap();
            }
        }

        /// A source with at most eight queries and a clock that only advances gets a permit for
        /// every new epoch.
        #[test]
        fn never_refuses_a_new_epoch_to_a_source_in_time(steps in prop::collection::vec((0u8..8, 0u64..5000), 1..200)) {
            let (mut guard, mut now, mut last) = (EpochGuard::default(), 100_000, HashMap::new());
            for (number, later) in steps {
                now += later;
                let (id, duration) = query(number);
                let epoch = now / duration - 1;
                let is_new = last.insert(number, epoch) != Some(epoch);
                prop_assert_eq!(guard.advance(id, duration, epoch).is_ok(), is_new);
            }
        }

        /// A decoded guard encodes to the same bytes.
        #[test]
        fn decodes_only_what_encodes_to_the_same_bytes(seed in prop::collection::vec((any::<[u8; 2]>(), any::<u8>(), 0u8..3), 8), floor: u64) {
            let mut bytes = [0; GUARD_LENGTH];
            bytes[0] = VERSION;
            bytes[1..9].copy_from_slice(&floor.to_be_bytes());
            for (entry, (query, last, duration)) in bytes[9..].as_chunks_mut::<ENTRY>().0.iter_mut().zip(seed) {
                entry[..2].copy_from_slice(&query);
                (entry[23], entry[31]) = (last, duration);
            }
            if let Ok(guard) = EpochGuard::decode(&bytes) {
                prop_assert_eq!(guard.encode(), bytes);
            }
        }
    }
}
