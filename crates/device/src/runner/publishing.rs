//! Publishes the newest reading, the newest urgent events and the newest epoch that has ended, for
//! those who serve them.

use std::sync::Arc;

use bytes::Bytes;
use moteseal_core::signature::Signer;

use super::{Now, Run, RunError};
use crate::mote::EndedEpoch;
use crate::sensors::Sensed;

/// What is not published yet, and what was published last.
#[derive(Debug, Default)]
pub(super) struct Unpublished {
    /// The newest reading, if it is not published yet.
    newest: Option<Sensed>,
    /// The number of changes of the urgent events that were published last.
    events: u64,
    /// The epoch that was published last.
    ended: Option<Arc<EndedEpoch>>,
}

impl Now<'_> {
    /// Returns the time of the machine's clock, or 0 if the clock was wrong for the last epoch.
    pub(super) fn unix_ms(&self) -> u64 {
        if self.is_far || self.is_behind { 0 } else { (self.machine)() }
    }
}

impl<K: Signer + Send> Run<'_, K> {
    /// Remembers the reading that was just sealed. `record` is the record as it is sealed, so encrypted
    /// columns are ciphertext. [`Sensors`](crate::sensors::Sensors) leaves them out.
    pub(super) fn note_newest(&mut self, unix_ms: u64, record: &[u8]) {
        if self.settings.publisher.is_none() {
            return;
        }
        let Some((index, epoch, seq)) = self.mote.mote().newest_place() else { return };
        let roster = self.mote.mote().profile().roster.digest;
        let record = Bytes::copy_from_slice(record);
        self.unpublished.newest = Some(Sensed { roster, index, epoch, seq, unix_ms, record });
    }

    /// Makes what is new durable and publishes it. Before a reading, an event or a seal is durable, a
    /// crash could give its place to another one, and two signatures would contradict each other.
    pub(super) fn publish(&mut self) -> Result<(), RunError> {
        let Some(publisher) = &self.settings.publisher else { return Ok(()) };
        let newest = self.unpublished.newest.take();
        let changes = self.mote.event_changes();
        let has_events = changes != self.unpublished.events;
        let ended = self.mote.mote().ended().cloned();
        let has_ended = match (&ended, &self.unpublished.ended) {
            (Some(ended), Some(published)) => !Arc::ptr_eq(ended, published),
            (ended, published) => ended.is_some() != published.is_some(),
        };
        if newest.is_none() && !has_events && !has_ended {
            return Ok(());
        }
        self.mote.sync()?;
        if has_events {
            self.unpublished.events = changes;
            publisher.events(self.mote.newest_events());
        }
        if let Some(newest) = newest {
            publisher.reading(newest);
        }
        if has_ended {
            self.unpublished.ended.clone_from(&ended);
            publisher.ended(ended);
        }
        Ok(())
    }
}
