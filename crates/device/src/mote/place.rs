//! The place of a mote's newest reading.

use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::signature::Signer;

use super::Mote;

impl<K: Signer, const N: usize> Mote<K, N> {
    /// Returns where the newest reading of the open seal is: the seal's index and epoch, and the
    /// reading's sequence number. Returns `None` if no seal is open, or if it has no reading.
    #[must_use]
    pub fn newest_reading(&self) -> Option<(SealIndex, EpochNumber, Sequence)> {
        let open = self.open.as_ref()?;
        let newest = open.counters.total().checked_sub(1)?;
        Some((open.index, open.epoch, Sequence(newest)))
    }
}
