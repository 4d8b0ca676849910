//! What a mote knows about urgent events: the place of its newest reading, the key for it, and the
//! frames. The events themselves are in the journal of a
//! [`DurableMote`](crate::durable::DurableMote).

use moteseal_core::cbor::BufferTooSmall;
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::link::FrameError;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::signature::Signer;
use moteseal_seal::wire::{EventAnswer, EventFrame};

use super::{Mote, SealKeys};
use crate::seal::SealRefused;

impl<K: Signer, const N: usize> Mote<K, N> {
    /// Returns the place of the newest reading of the open seal: the seal's index and epoch, and
    /// the reading's sequence number. Returns `None` if no seal is open, or if it has no reading.
    #[must_use]
    pub fn newest_place(&self) -> Option<(SealIndex, EpochNumber, Sequence)> {
        let open = self.open.as_ref()?;
        let newest = open.counters.total().checked_sub(1)?;
        Some((open.index, open.epoch, Sequence(newest)))
    }

    /// Returns what the open seal states about the keys of its encrypted columns. Returns `None` if no
    /// seal is open or the schema has no encrypted columns.
    #[must_use]
    pub fn open_keys(&self) -> Option<KeyCommitments> {
        self.open.as_ref()?.keys.as_ref().map(SealKeys::commitments)
    }

    /// Returns the index and the epoch of the seal that a reading would be in if it were added now.
    #[must_use]
    pub fn place_of_next(
        &mut self,
        epoch: EpochNumber,
        record: &[u8],
    ) -> Option<(SealIndex, EpochNumber)> {
        match self.would_open(epoch, record) {
            Some(chain) => Some((SealIndex(chain.next_index.0.checked_sub(1)?), epoch)),
            None => self.open.as_ref().map(|open| (open.index, open.epoch)),
        }
    }

    /// Returns the key for the seal with this index in this epoch.
    ///
    /// # Errors
    /// `KeyEnded` or `KeyMissing`.
    pub fn signer(&self, index: SealIndex, epoch: EpochNumber) -> Result<&K, SealRefused> {
        self.keys.signer(index, epoch)
    }

    /// Writes the frame of an urgent event.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn close_event<'o>(
        &self,
        frame: &EventFrame<'_>,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        self.session.close_event(frame, out)
    }

    /// Checks and decodes the coordinator's answer to an urgent event.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open_event_answer<'f>(&self, frame: &'f [u8]) -> Result<EventAnswer<'f>, FrameError> {
        self.session.open_event_answer(frame)
    }
}
