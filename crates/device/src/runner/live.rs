//! Live readings, and the replies to those who delivered them.

use std::fmt;

use moteseal_core::signature::Signer;

use super::{Now, Readings, Run, RunError};
use crate::durable::DurableError;

/// What became of a live reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The reading is in the journal, and the journal is synced.
    Durable,
    /// The reading was skipped, because its record does not fit the schema or a frame. The text is
    /// the name of the error.
    Refused(&'static str),
}

/// Receives what became of a live reading. It is dropped without a call if the device stops before
/// the reading is durable.
pub struct Reply(Box<dyn FnOnce(Recorded) + Send>);

impl Reply {
    /// Creates a reply. `call` must not block.
    #[must_use]
    pub fn new(call: impl FnOnce(Recorded) + Send + 'static) -> Self {
        Self(Box::new(call))
    }

    /// Tells what became of the reading.
    pub fn send(self, recorded: Recorded) {
        (self.0)(recorded);
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// A reading as it is sensed.
#[derive(Debug)]
pub struct LiveReading {
    /// The record.
    pub record: Vec<u8>,
    /// Is called once the reading is durable.
    pub reply: Option<Reply>,
}

impl From<Vec<u8>> for LiveReading {
    fn from(record: Vec<u8>) -> Self {
        Self { record, reply: None }
    }
}

impl<K: Signer + Send> Run<'_, K> {
    /// Seals the live readings that are in the channel when the device stops, because their senders
    /// cannot repeat them. Does not wait for readings that arrive during the call.
    pub(super) fn take_queued(&mut self, readings: &mut Readings<'_>) -> Result<(), RunError> {
        let Readings::Live { records, now, .. } = readings else { return Ok(()) };
        for _ in 0..records.len() {
            let Ok(reading) = records.try_recv() else { return Ok(()) };
            self.sense_now(now, reading)?;
        }
        Ok(())
    }

    /// Seals a live reading. Skips a reading that does not fit the schema, with a warning.
    pub(super) fn sense_now(
        &mut self,
        now: &mut Now<'_>,
        reading: LiveReading,
    ) -> Result<(), RunError> {
        let LiveReading { record, reply } = reading;
        let epoch = now.epoch_from(self.least_epoch());
        match self.mote.sense_encrypted(epoch, &record) {
            Ok(sealed) => {
                self.note_taken(now.unix_ms(), &record, &sealed);
                self.replies.extend(reply);
            }
            Err(DurableError::Refused(error)) if error.is_of_record() => {
                self.ran.refused += 1;
                self.log.warn("skipped a reading", error.named());
                reply.into_iter().for_each(|reply| reply.send(Recorded::Refused(error.name())));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Makes the readings that have a reply durable, and replies.
    pub(super) fn reply(&mut self) -> Result<(), RunError> {
        if !self.replies.is_empty() {
            self.mote.sync()?;
            self.replies.drain(..).for_each(|reply| reply.send(Recorded::Durable));
        }
        Ok(())
    }
}
