//! Urgent readings (spec/coordinator.md, section 8). An urgent reading is sealed like every other
//! one. In addition, the device signs it as an urgent event at once, keeps the event in its
//! journal, and sends it until the gateway has stored it.
//!
//! Like the frames of seals, events are sent only after the gateway has answered a challenge of the
//! session. If the gateway then turns out to have more than the device's state, the device may have
//! signed another reading for the same place before. The events that were never sent, neither by this
//! process nor by one before, are therefore recorded again, under the index at which the device
//! continues. The record of such an event is encrypted anew, for its new place, from the reading in
//! memory. Events of an earlier process have only ciphertext, so they are lost.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::Bytes;
use moteseal_core::cbor::Writer;
use moteseal_core::confidential::KeyAccessError;
use moteseal_core::digest::Digest;
use moteseal_core::link::{FrameError, MAX_FRAME};
use moteseal_core::named_errors;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::signature::Signer;
use moteseal_seal::UrgentEvent;
use moteseal_seal::wire::{EventAnswer, EventFrame};
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::entry::Input;
use super::{DurableError, DurableMote};
use crate::seal::SealRefused;

/// The maximum number of urgent events that wait for the gateway.
pub const MOST_PENDING: usize = 64;
/// The maximum number of newest events that are kept for clients.
const MOST_NEWEST: usize = 16;
/// The maximum number of bytes of the newest events with their schemas. The newest event is kept
/// whatever its length is.
const NEWEST_BYTES: usize = 1 << 16;
/// The maximum number of bytes of an event frame in addition to its record, its schema and its
/// signature.
const OVERHEAD: usize = 512;

named_errors! {
    /// Why an urgent reading was not recorded.
    UrgentRefused {
        /// Too many urgent events wait for the gateway.
        TooManyUrgent => (
            "{MOST_PENDING} urgent events wait for the gateway already; connect the device to its \
             gateway, which must receive them first"
        ),
        /// The record is too long for the frame of an urgent event.
        TooLong {
            /// The record's length in bytes.
            length: usize,
        } => "a record of {length} bytes is too long for an urgent event; record it without urgency",
    }
}

/// The place of an urgent reading among the readings of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrgentPlace {
    /// The index of the seal that covers the reading.
    pub index: SealIndex,
    /// The epoch.
    pub epoch: EpochNumber,
    /// The place in the seal.
    pub seq: Sequence,
    /// The digest of the signed event.
    pub digest: Digest,
}

/// What became of an urgent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrgentOutcome {
    /// The gateway has stored the event.
    Stored(UrgentPlace),
    /// The gateway refuses the event for now. The device sends it again later.
    Delayed(UrgentPlace, String),
    /// The gateway will never accept the event, which is given up. The reading stays in its seal.
    GivenUp(UrgentPlace, String),
    /// The gateway had more than the device's state, so that the reading's seal was given up, and
    /// the reading could not be recorded again. The name of the error follows.
    Lost(UrgentPlace, String),
}

/// An event that the gateway has not stored yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Identifies the reading within this process, also if it is recorded again.
    ticket: u64,
    pub(super) schema: Vec<u8>,
    pub(super) event: Vec<u8>,
    pub(super) place: UrgentPlace,
    record: Vec<u8>,
    /// The record in plaintext, if `record` is encrypted and this process has recorded it. It is never
    /// written to the journal.
    plain: Option<Zeroizing<Vec<u8>>>,
    /// Whether the event must be sent now.
    is_due: bool,
    /// Whether the event may have been sent, by this process or an earlier one.
    pub(super) is_sent: bool,
}

/// An urgent event, with the schema of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedEvent {
    /// The stream schema.
    pub schema: Bytes,
    /// The signed event, a tagged `COSE_Sign1`.
    pub event: Bytes,
}

impl SignedEvent {
    fn length(&self) -> usize {
        self.schema.len() + self.event.len()
    }
}

/// The events that the gateway has not stored yet, oldest first, and the newest events.
#[derive(Clone, Debug, Default)]
pub(super) struct Urgent {
    pub(super) pending: VecDeque<Pending>,
    /// The newest events, oldest first, also if the gateway has stored them.
    newest: VecDeque<SignedEvent>,
    /// The number of changes of `newest`.
    changes: u64,
    next_ticket: u64,
    outcomes: Vec<(u64, UrgentOutcome)>,
}

impl Urgent {
    /// Adds an event of the journal, unless it is known. Ignores bytes that are not an event.
    pub(super) fn add(&mut self, schema: &[u8], event: &[u8]) {
        let Some((place, record)) = place_of(event) else { return };
        if self.pending.iter().any(|pending| pending.place.digest == place.digest) {
            return;
        }
        self.newest.push_back(SignedEvent {
            schema: Bytes::copy_from_slice(schema),
            event: Bytes::copy_from_slice(event),
        });
        self.changes += 1;
        while self.newest.len() > 1
            && (self.newest.len() > MOST_NEWEST
                || self.newest.iter().map(SignedEvent::length).sum::<usize>() > NEWEST_BYTES)
        {
            self.newest.pop_front();
        }
        let (schema, event) = (schema.to_vec(), event.to_vec());
        let (ticket, record) = (self.next_ticket, record.to_vec());
        self.next_ticket += 1;
        let pending = Pending {
            ticket,
            schema,
            event,
            place,
            record,
            plain: None,
            is_due: true,
            is_sent: false,
        };
        self.pending.push_back(pending);
    }

    /// Notes that an event may have been sent.
    pub(super) fn sent(&mut self, digest: &Digest) {
        let mut pending = self.pending.iter_mut();
        if let Some(sent) = pending.find(|pending| pending.place.digest == *digest) {
            sent.is_sent = true;
        }
    }

    /// Removes an event.
    pub(super) fn remove(&mut self, digest: &Digest) {
        self.pending.retain(|pending| pending.place.digest != *digest);
    }
}

fn place_of(event: &[u8]) -> Option<(UrgentPlace, &[u8])> {
    let (index, epoch, seq, record) = UrgentEvent::claimed(event)?;
    let digest = UrgentEvent::digest(event).ok()?;
    Some((UrgentPlace { index, epoch, seq, digest }, record))
}

impl<K: Signer> DurableMote<K> {
    /// Adds a reading to the open seal and signs it as an urgent event. Both are durable after the
    /// next [`sync`](Self::sync). Returns a number that identifies the event in
    /// [`urgent_outcomes`](Self::urgent_outcomes), and the event's place.
    ///
    /// # Errors
    /// The inner [`UrgentRefused`] if the reading cannot be an urgent event, or [`DurableError`].
    /// The reading was not added.
    pub fn sense_urgent(
        &mut self,
        epoch: EpochNumber,
        record: &[u8],
    ) -> Result<Result<(u64, UrgentPlace), UrgentRefused>, DurableError> {
        if self.urgent.pending.len() >= MOST_PENDING {
            return Ok(Err(UrgentRefused::TooManyUrgent));
        }
        let signature = moteseal_core::signature::MAX_SIGNATURE;
        let schema = self.mote.profile().schema.len();
        if record.len() + schema + signature + OVERHEAD > MAX_FRAME {
            return Ok(Err(UrgentRefused::TooLong { length: record.len() }));
        }
        // Without a key for its place, the reading could be sealed, but not be signed as an event.
        if let Some((index, epoch)) = self.mote.place_of_next(epoch, record) {
            self.mote.signer(index, epoch)?;
        }
        let encrypted = self.sense_encrypted(epoch, record)?;
        let (schema, event) = self.sign_newest(&encrypted)?;
        self.input(&Input::Urgent { schema: &schema, event: &event })?;
        let newest = self.urgent.pending.back_mut().ok_or(DurableError::Unsendable(BUG))?;
        newest.plain = matches!(encrypted, Cow::Owned(_)).then(|| Zeroizing::new(record.to_vec()));
        Ok(Ok((newest.ticket, newest.place)))
    }

    /// Signs the newest reading of the open seal as an urgent event. Returns the stream schema and
    /// the event.
    fn sign_newest(&self, record: &[u8]) -> Result<(Vec<u8>, Vec<u8>), DurableError> {
        let (profile, place) = (self.mote.profile(), self.mote.newest_place());
        let (index, epoch, seq) = place.ok_or(DurableError::Unsendable(BUG))?;
        let event = UrgentEvent {
            group: profile.group,
            roster: profile.roster.digest,
            device: profile.device,
            index,
            epoch,
            seq,
            schema: profile.schema_digest,
            keys: self.mote.open_keys(),
            record,
        };
        let signer = self.mote.signer(index, epoch)?;
        let algorithm = signer.algorithm();
        let mut buffer = vec![0; record.len() + OVERHEAD];
        let message = event.message(algorithm, &mut buffer)?;
        let signature = signer.signature(message).map_err(SealRefused::Sign)?;
        let mut buffer = vec![0; record.len() + signature.len() + OVERHEAD];
        let mut out = Writer::new(&mut buffer);
        event.encode(&mut out, algorithm, &signature)?;
        Ok((profile.schema.to_vec(), out.finish().to_vec()))
    }

    /// Returns the frames of the urgent events that must be sent now, at most `most`. Call this
    /// after [`frames`](Self::frames), which makes the events durable.
    ///
    /// # Errors
    /// [`DurableError`]. No frame may be sent.
    pub fn urgent_frames(&mut self, most: usize) -> Result<Vec<Vec<u8>>, DurableError> {
        if !self.mote.has_begun() {
            return Ok(Vec::new());
        }
        let (mut frames, mut newly_sent) = (Vec::new(), Vec::new());
        let due = self.urgent.pending.iter_mut().filter(|pending| pending.is_due);
        let mut out = vec![0; MAX_FRAME];
        for pending in due.take(most) {
            let frame = EventFrame { schema: &pending.schema, event: &pending.event };
            frames.push(self.mote.close_event(&frame, &mut out)?.to_vec());
            pending.is_due = false;
            newly_sent.extend((!pending.is_sent).then_some(pending.place.digest));
        }
        // These records become durable with the next sync. If the process is killed before, the next
        // one takes the events for unsent: at worst, it records a reading again that was stored.
        for digest in newly_sent {
            self.input(&Input::UrgentSent(digest))?;
        }
        Ok(frames)
    }

    /// Returns whether an urgent event waits for the gateway.
    #[must_use]
    pub fn has_urgent(&self) -> bool {
        !self.urgent.pending.is_empty()
    }

    /// Returns the number of urgent events that wait for the gateway.
    #[must_use]
    pub fn waiting_urgent(&self) -> usize {
        self.urgent.pending.len()
    }

    /// Returns the newest urgent events, oldest first: at most 16. They include events that the gateway
    /// has stored, as far as this process or the journal knows them.
    #[must_use]
    pub fn newest_events(&self) -> Vec<SignedEvent> {
        self.urgent.newest.iter().cloned().collect()
    }

    /// Returns a number that is greater after each change of [`newest_events`](Self::newest_events).
    #[must_use]
    pub const fn event_changes(&self) -> u64 {
        self.urgent.changes
    }

    /// Returns the record of an urgent event that waits for the gateway, as it is sealed.
    pub(crate) fn urgent_record(&self, ticket: u64) -> Option<&[u8]> {
        let mut pending = self.urgent.pending.iter();
        Some(&pending.find(|pending| pending.ticket == ticket)?.record)
    }

    /// Returns the places of the urgent events that wait for the gateway, oldest first.
    pub fn urgent_places(&self) -> impl Iterator<Item = UrgentPlace> {
        self.urgent.pending.iter().map(|pending| pending.place)
    }

    /// Returns what became of urgent events since the last call, each with the number that
    /// [`sense_urgent`](Self::sense_urgent) returned.
    pub fn urgent_outcomes(&mut self) -> Vec<(u64, UrgentOutcome)> {
        std::mem::take(&mut self.urgent.outcomes)
    }

    /// Marks all urgent events so that they are sent again.
    pub(super) fn urgent_timeout(&mut self) {
        self.urgent.pending.iter_mut().for_each(|pending| pending.is_due = true);
    }

    /// Receives the gateway's answer to an urgent event. Returns whether it changed anything.
    pub(super) fn receive_event_answer(
        &mut self,
        frame: &[u8],
    ) -> Result<Result<bool, FrameError>, DurableError> {
        let answer = match self.mote.open_event_answer(frame) {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        let digest = answer.digest();
        let found = self.urgent.pending.iter().find(|pending| pending.place.digest == digest);
        let Some(Pending { ticket, place, .. }) = found else { return Ok(Ok(false)) };
        let (ticket, place) = (*ticket, *place);
        let outcome = match answer {
            EventAnswer::Stored { .. } => {
                info!(
                    seal = place.index.0,
                    seq = place.seq.0,
                    "the gateway has stored an urgent event"
                );
                UrgentOutcome::Stored(place)
            }
            EventAnswer::Refused { is_final: true, name, .. } => {
                warn!(
                    name,
                    seal = place.index.0,
                    seq = place.seq.0,
                    "the gateway refuses an urgent event, which is given up; the reading stays in its seal"
                );
                UrgentOutcome::GivenUp(place, name.to_owned())
            }
            EventAnswer::Refused { name, .. } => {
                warn!(
                    name,
                    seal = place.index.0,
                    seq = place.seq.0,
                    "the gateway does not accept an urgent event yet; it is sent again later"
                );
                UrgentOutcome::Delayed(place, name.to_owned())
            }
        };
        let is_delayed = matches!(outcome, UrgentOutcome::Delayed(..));
        self.urgent.outcomes.push((ticket, outcome));
        if !is_delayed {
            self.input(&Input::UrgentDone(digest))?;
        }
        Ok(Ok(!is_delayed))
    }

    /// Records the urgent readings again that were never sent, because the gateway had more than
    /// this state: their places may have been used before.
    pub(super) fn record_urgent_again(&mut self) -> Result<(), DurableError> {
        let unsent: Vec<Pending> =
            self.urgent.pending.iter().filter(|pending| !pending.is_sent).cloned().collect();
        for pending in unsent {
            self.input(&Input::UrgentDone(pending.place.digest))?;
            self.urgent.newest.retain(|newest| newest.event != pending.event);
            self.urgent.changes += 1;
            let chain = self.mote.chain();
            let closed = chain.position.last.filter(|_| chain.position.epoch_closed);
            let after = closed.map_or(EpochNumber(0), |(_, epoch)| EpochNumber(epoch.0 + 1));
            let epoch = pending.place.epoch.max(chain.epoch.unwrap_or(after)).max(after);
            let is_encrypted = self.mote.profile().columns.is_some();
            let plain = pending.plain.as_deref().or((!is_encrypted).then_some(&pending.record));
            let again = plain.map(|record| self.sense_urgent(epoch, record));
            let erased = KeyAccessError::KeyErased;
            let (name, detail) = match again.unwrap_or(Err(SealRefused::Key(erased).into())) {
                Ok(Ok(_)) => {
                    if let Some(again) = self.urgent.pending.back_mut() {
                        again.ticket = pending.ticket;
                    }
                    continue;
                }
                Ok(Err(error)) => (error.name(), error.to_string()),
                Err(DurableError::Refused(error)) => (error.name(), error.to_string()),
                Err(error) => return Err(error),
            };
            warn!(
                name,
                detail,
                "an urgent reading is lost: its seal was given up, and it cannot be recorded again"
            );
            let lost = UrgentOutcome::Lost(pending.place, name.to_owned());
            self.urgent.outcomes.push((pending.ticket, lost));
        }
        Ok(())
    }
}

/// The error for a reading that was added and is not in the open seal, which is a bug.
const BUG: moteseal_core::cbor::BufferTooSmall = moteseal_core::cbor::BufferTooSmall;
