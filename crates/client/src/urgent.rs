//! Fetches urgent events from a cloud and verifies each of them (spec/objects.md, section 7).
//!
//! Each event that is returned was signed by its device. Nothing proves that the cloud has returned
//! all events, or that it has returned them without delay: a cloud or a coordinator can withhold
//! events, or return them late.

mod check;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use moteseal_api::{CBOR_SEQ, CURSOR, ErrorKind, paths};
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_verify::urgent::{self, Urgent, UrgentStream, UrgentStreamError};

use crate::cloud_roster::CloudRoster;
use crate::error::Error;
use crate::get::Client;
pub use check::UrgentCheck;

/// The maximum length of an answer, in bytes.
const MOST_BYTES: usize = 16 << 20;
/// The maximum number of events in an answer.
const MOST_EVENTS: usize = 1 << 14;
/// The maximum length of a cursor, in bytes.
const MAX_CURSOR: usize = 128;
/// The number of events that are remembered, so that none is returned twice.
const REMEMBERED: usize = 1 << 16;

/// Why an answer with urgent events is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrgentRejected {
    /// An event does not verify, or the answer is not well-formed.
    #[error(transparent)]
    Stream(#[from] UrgentStreamError),
    /// The answer has an event of another device or epoch than the requested ones.
    #[error("the answer has an urgent event of another device or epoch than the requested ones")]
    NotAsAsked,
    /// The cursor of the answer is not valid.
    #[error("the answer has no valid cursor")]
    BadCursor,
}

impl UrgentRejected {
    /// Returns the stable name of the error.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Stream(error) => error.name(),
            Self::NotAsAsked => "NotAsAsked",
            Self::BadCursor => "BadCursor",
        }
    }

    /// Always returns [`ErrorKind::Refused`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }
}

moteseal_api::named_error!(UrgentRejected);

/// A request for urgent events, and how far they were read. If a call fails because of the network,
/// the next call continues at the same place.
#[derive(Debug)]
pub struct UrgentRequest<'a> {
    client: Client<'a>,
    devices: Vec<DeviceId>,
    since: EpochNumber,
    until: Option<EpochNumber>,
    after: Option<String>,
    seen: Seen,
}

/// The place of a reading: the device, the index of its seal, and the sequence number in the seal.
pub type ReadingPlace = (DeviceId, SealIndex, Sequence);

/// Two signed statements of a device that contradict each other. They are evidence against the device:
/// it signed both, or somebody else has its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrgentConflict {
    /// Two events for one place.
    Place(ReadingPlace),
    /// Two events that state different keys of one seal (spec/confidential.md, section 3).
    Keys(DeviceId, SealIndex),
}

/// The events that were returned last.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    digests: HashSet<Digest>,
    /// The event that was returned first for each place.
    places: HashMap<ReadingPlace, Digest>,
    /// The keys that the first event of each seal states, and the number of its events in `order`.
    keys: HashMap<(DeviceId, SealIndex), (Option<KeyCommitments>, usize)>,
    order: VecDeque<(ReadingPlace, Digest)>,
}

/// How an event relates to those that were returned before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Known,
    New,
    /// The device signed another event for the same place.
    Conflicting,
    /// The device signed another event of the same seal with other keys.
    OtherKeys,
}

impl Seen {
    /// Returns how an event relates to those before, and remembers it.
    fn add(
        &mut self,
        place: ReadingPlace,
        digest: Digest,
        keys: Option<&KeyCommitments>,
    ) -> Relation {
        if !self.digests.insert(digest) {
            return Relation::Known;
        }
        let is_first = *self.places.entry(place).or_insert(digest) == digest;
        let (device, index, _) = place;
        let (known, events) = self.keys.entry((device, index)).or_insert((keys.copied(), 0));
        *events += 1;
        let has_other_keys = known.as_ref() != keys;
        self.order.push_back((place, digest));
        if self.order.len() > REMEMBERED
            && let Some((place, oldest)) = self.order.pop_front()
        {
            self.forget(place, oldest);
        }
        if !is_first {
            Relation::Conflicting
        } else if has_other_keys {
            Relation::OtherKeys
        } else {
            Relation::New
        }
    }

    fn forget(&mut self, place: ReadingPlace, digest: Digest) {
        self.digests.remove(&digest);
        if self.places.get(&place) == Some(&digest) {
            self.places.remove(&place);
        }
        if let Entry::Occupied(mut seal) = self.keys.entry((place.0, place.1)) {
            let (_, events) = seal.get_mut();
            *events -= 1;
            if *events == 0 {
                seal.remove();
            }
        }
    }

    /// Removes the events that were returned before. Returns how the others conflict with earlier ones.
    pub(crate) fn retain_new(&mut self, events: &mut Vec<Urgent>) -> Vec<UrgentConflict> {
        let mut conflicts = Vec::new();
        events.retain(|event| {
            let place = (event.device(), event.index(), event.seq());
            let relation = self.add(place, event.digest(), event.keys());
            match relation {
                Relation::Conflicting => conflicts.push(UrgentConflict::Place(place)),
                Relation::OtherKeys => conflicts.push(UrgentConflict::Keys(place.0, place.1)),
                Relation::Known | Relation::New => {}
            }
            relation != Relation::Known
        });
        conflicts
    }
}

/// A verified answer.
#[derive(Clone, Debug, Default)]
pub struct UrgentAnswer {
    /// The new events, in the order in which the cloud stored them.
    pub events: Vec<Urgent>,
    /// The events that contradict earlier ones. All of these events are returned.
    pub conflicts: Vec<UrgentConflict>,
    /// The number of events that are void, because the roster has ended their key.
    pub void: usize,
    /// Whether the cloud had no further event when it sent the answer.
    pub is_last: bool,
    /// The version of the roster that the cloud states, if it is another one than the client's.
    pub cloud_roster: Option<CloudRoster>,
}

impl<'a> UrgentRequest<'a> {
    pub(crate) fn new(client: Client<'a>) -> Self {
        Self {
            client,
            devices: Vec::new(),
            since: EpochNumber(0),
            until: None,
            after: None,
            seen: Seen::default(),
        }
    }

    /// Selects devices. By default, all devices are selected.
    #[must_use]
    pub fn devices(mut self, devices: impl IntoIterator<Item = DeviceId>) -> Self {
        self.devices.extend(devices);
        self
    }

    /// Sets the first epoch. The default is epoch 0.
    #[must_use]
    pub const fn since(mut self, since: EpochNumber) -> Self {
        self.since = since;
        self
    }

    /// Sets the epoch before which the range ends. By default, the range has no end.
    #[must_use]
    pub const fn until(mut self, until: Option<EpochNumber>) -> Self {
        self.until = until;
        self
    }

    /// Continues after the [`cursor`](Self::cursor) of an earlier request.
    ///
    /// # Errors
    /// `BadCursor` if the text is not a cursor.
    pub fn after(mut self, cursor: &str) -> Result<Self, UrgentRejected> {
        self.after = Some(checked(cursor)?.to_owned());
        Ok(self)
    }

    /// Returns the place up to which events were returned. A later request can continue
    /// [`after`](Self::after) it. Returns `None` before the first event.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Requests the next events, and verifies them. If the cloud has none, it waits for the next
    /// one, up to `wait` (in whole seconds, at most 60).
    ///
    /// # Errors
    /// [`Error`] if the cloud cannot be reached or its answer is rejected. Nothing of a rejected
    /// answer is returned.
    pub async fn next(&mut self, wait: Duration) -> Result<UrgentAnswer, Error> {
        let (cloud, roster) = (self.client.cloud(), self.client.roster());
        let wait = Some(wait.as_secs()).filter(|wait| *wait > 0);
        let path = paths::events(self.since, &self.devices, self.after.as_deref(), wait);
        let response = cloud.get(&path).await?.expect(CBOR_SEQ)?;
        let cloud_roster = CloudRoster::of(&response, roster);
        let cursor = response.header(CURSOR).map(checked).transpose()?.map(str::to_owned);
        let bytes = response.bytes(MOST_BYTES).await?;
        let read = urgent::read(&bytes, roster, (MOST_EVENTS, true), &mut || ());
        let UrgentStream { mut events, void } = read.map_err(UrgentRejected::Stream)?;
        let is_asked = |event: &Urgent| {
            event.epoch() >= self.since
                && (self.devices.is_empty() || self.devices.contains(&event.device()))
        };
        if !events.iter().all(is_asked) {
            return Err(UrgentRejected::NotAsAsked.into());
        }
        let is_last = cursor.is_none() || cursor == self.after;
        self.after = cursor.or_else(|| self.after.take());
        let until = self.until;
        events.retain(|event| until.is_none_or(|until| event.epoch() < until));
        let conflicts = self.seen.retain_new(&mut events);
        Ok(UrgentAnswer { events, conflicts, void, is_last, cloud_roster })
    }
}

/// Returns a cursor if it can be a part of a URL.
fn checked(cursor: &str) -> Result<&str, UrgentRejected> {
    let is_cursor = (1..=MAX_CURSOR).contains(&cursor.len())
        && cursor.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_cursor { Ok(cursor) } else { Err(UrgentRejected::BadCursor) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn remembers_a_bounded_number_of_events() {
        let mut seen = Seen::default();
        let digest = |number: usize| {
            let mut digest = Digest::NULL;
            digest.0[..8].copy_from_slice(&(number as u64).to_be_bytes());
            digest
        };
        let mut add = |number: usize, place: usize| {
            let place = (DeviceId([1; 8]), SealIndex(0), Sequence(place as u64));
            seen.add(place, digest(number), None)
        };
        assert!((0..=REMEMBERED).all(|number| add(number, number) == Relation::New));
        assert_eq!((add(REMEMBERED, REMEMBERED), add(1, 1)), (Relation::Known, Relation::Known));
        assert_eq!(add(0, 0), Relation::New, "the oldest one is forgotten");
        assert_eq!(add(REMEMBERED + 7, 5), Relation::Conflicting);
        assert_eq!((seen.order.len(), seen.digests.len()), (REMEMBERED, REMEMBERED));
        assert!(seen.places.len() <= REMEMBERED);
        assert_eq!(seen.keys.values().map(|(_, events)| events).sum::<usize>(), REMEMBERED);
    }

    #[test]
    fn two_events_of_one_seal_with_other_keys_are_a_conflict() {
        let mut seen = Seen::default();
        let mut add = |event: u8, index: u32, keys: Option<u8>| {
            let place = (DeviceId([1; 8]), SealIndex(index), Sequence(event.into()));
            let keys = keys.map(|byte| KeyCommitments::decode(&[byte; 28]).unwrap());
            seen.add(place, Digest([event; 32]), keys.as_ref())
        };
        assert_eq!(add(1, 7, Some(5)), Relation::New);
        assert_eq!(add(2, 7, Some(5)), Relation::New);
        assert_eq!(add(3, 7, Some(6)), Relation::OtherKeys);
        assert_eq!(add(4, 7, None), Relation::OtherKeys);
        assert_eq!(add(3, 7, Some(6)), Relation::Known);
        assert_eq!(add(5, 8, Some(6)), Relation::New);
    }

    #[test]
    fn a_cursor_cannot_change_the_rest_of_a_request() {
        assert_eq!(checked("7-0123abcd"), Ok("7-0123abcd"));
        for cursor in ["", "7&device=1", "7#", "7 8", "\u{e4}", &"7".repeat(200)] {
            assert_eq!(checked(cursor), Err(UrgentRejected::BadCursor), "{cursor}");
        }
    }
}
