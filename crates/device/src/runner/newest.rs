//! Publishes the newest reading, for those who serve it.

use std::sync::Arc;

use bytes::Bytes;
use moteseal_core::signature::Signer;

use super::{Now, Run, RunError};
use crate::sensors::Sensed;

impl Now<'_> {
    /// Returns the time of the machine's clock, or 0 if the clock was wrong for the last epoch.
    pub(super) fn unix_ms(&self) -> u64 {
        if self.is_far || self.is_behind { 0 } else { (self.machine)() }
    }
}

impl<K: Signer + Send> Run<'_, K> {
    /// Remembers the reading that was just sealed.
    pub(super) fn note_newest(&mut self, unix_ms: u64, record: &[u8]) {
        if self.settings.newest.is_none() {
            return;
        }
        let Some((index, epoch, seq)) = self.mote.mote().newest_place() else { return };
        let roster = self.mote.mote().profile().roster.digest;
        let record = Bytes::copy_from_slice(record);
        self.newest = Some(Sensed { roster, index, epoch, seq, unix_ms, record });
    }

    /// Makes the newest reading durable and publishes it. Before it is durable, a crash could give its
    /// place to another reading, and two signatures would contradict each other.
    pub(super) fn publish_newest(&mut self) -> Result<(), RunError> {
        let (Some(channel), Some(newest)) = (&self.settings.newest, self.newest.take()) else {
            return Ok(());
        };
        self.mote.sync()?;
        channel.send_replace(Some(Arc::new(newest)));
        Ok(())
    }
}
