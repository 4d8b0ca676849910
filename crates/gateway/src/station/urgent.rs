//! What a station does with urgent events: it verifies them, makes them durable with the next
//! commit, and queues them for the upload, which does not wait for the end of their epoch.

use std::sync::Arc;
use std::time::Instant;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::UrgentEvent;
use moteseal_seal::wire::EventAnswer;

use super::{Station, size_of_record};
use crate::coordinator::EventRefused;
use crate::ledger::Entry;
use crate::urgent::{UrgentQueue, Waiting};

/// What the frame of an urgent event changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventEffect {
    /// The device that sent the frame.
    pub device: DeviceId,
    /// The digest of the event.
    pub digest: Digest,
    /// Whether the station did not have the event yet.
    pub is_new: bool,
}

impl Station {
    /// Returns the events that wait to be uploaded.
    pub(crate) fn urgent(&self) -> Arc<UrgentQueue> {
        Arc::clone(&self.urgent)
    }

    /// Receives a frame with an urgent event. The event is not durable until the next
    /// [`commit`](Self::commit) succeeds, which returns the frame that acknowledges it.
    ///
    /// # Errors
    /// [`EventRefused`]. Nothing has changed. The next commit returns the frame that tells the
    /// device, if the device sent the frame.
    pub fn receive_event(
        &mut self,
        frame: &[u8],
        now: EpochNumber,
        at: Instant,
    ) -> Result<EventEffect, EventRefused> {
        let claimed = self.coordinator.open_event(frame)?;
        let (device, digest) = (claimed.device, claimed.digest);
        // The device, or somebody who has copied the frame, repeats an event that is stored or being
        // stored. This must not use up what the device may send.
        if self.known_events.contains(device, &digest)
            || self.urgent.contains(&digest)
            || self.new_events.iter().any(|new| new.digest == digest)
        {
            self.stored_events.push((device, digest));
            return Ok(EventEffect { device, digest, is_new: false });
        }
        let (schema, event) = (claimed.frame.schema, claimed.frame.event);
        let entry = Entry::Urgent { schema, event }.encode();
        let checked = (|| {
            // Without these checks, a device could keep the gateway busy with signatures.
            if !self.urgent.has_room(device, schema.len() + event.len())
                || !self.urgent_rate.admits(device, at)
            {
                return Err(EventRefused::TooManyUrgent);
            }
            self.coordinator.verify_event(&claimed, now)?;
            if !self.quota.admits(device, size_of_record(&entry)) {
                return Err(EventRefused::OverQuota);
            }
            Ok(())
        })();
        if let Err(refused) = checked {
            let (is_final, name) = (refused.is_final(), refused.name());
            let answer = EventAnswer::Refused { digest, is_final, name };
            let frame = self.coordinator.event_answer(device, &answer);
            self.refused_events.extend(frame.map(|frame| (device, frame)));
            return Err(refused);
        }
        // An append fails only after 256 MiB without a sync. The device then sends the event again.
        if self.journal.append(&entry).is_ok() {
            self.uncommitted += entry.len();
            self.quota.add(device, size_of_record(&entry));
            let (schema, event) = (schema.to_vec(), event.to_vec());
            self.new_events.push(Waiting { device, digest, schema, event });
            self.stored_events.push((device, digest));
        }
        Ok(EventEffect { device, digest, is_new: true })
    }

    /// Queues the event of a journal record, which was verified before it was written.
    pub(super) fn recover_event(&mut self, schema: &[u8], event: &[u8], size: u64) {
        let (Some(device), Ok(digest)) =
            (UrgentEvent::claimed_device(event), UrgentEvent::digest(event))
        else {
            return;
        };
        self.quota.add(device, size);
        self.known_events.add(device, digest);
        let (schema, event) = (schema.to_vec(), event.to_vec());
        self.urgent.add(Waiting { device, digest, schema, event });
    }

    /// Queues the events that have become durable for the upload. Returns the frames that answer
    /// devices.
    pub(super) fn event_answers(&mut self) -> Vec<(DeviceId, Vec<u8>)> {
        for new in self.new_events.drain(..) {
            self.known_events.add(new.device, new.digest);
            self.urgent.add(new);
        }
        let mut answers = Vec::new();
        for (device, digest) in std::mem::take(&mut self.stored_events) {
            let answer = self.coordinator.event_answer(device, &EventAnswer::Stored { digest });
            answers.extend(answer.map(|frame| (device, frame)));
        }
        answers.extend(std::mem::take(&mut self.refused_events));
        answers
    }
}

/// Returns the device of an event if the journal must keep it, because it is not uploaded yet.
pub(super) fn needed(urgent: &UrgentQueue, new: &[Waiting], event: &[u8]) -> Option<DeviceId> {
    let digest = UrgentEvent::digest(event).ok()?;
    let is_needed = urgent.contains(&digest) || new.iter().any(|new| new.digest == digest);
    UrgentEvent::claimed_device(event).filter(|_| is_needed)
}
