//! What a mote makes of its gateway's word that a seal is refused: whether to give the seal up.

use moteseal_core::link::FrameError;
use moteseal_core::record::SealIndex;
use moteseal_core::signature::Signer;
use moteseal_seal::frame::Refusal;

use super::Mote;

impl<K: Signer> Mote<K> {
    /// Hears that the gateway refuses a seal: the seal to give up ([`Mote::give_up`]), if it is to be, and the refusal's name. It is if it
    /// is the oldest, which holds up all others, and either nothing can make the gateway take it, or as many seals as may wait do: from
    /// then on it would cost newer ones.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn refused<'f>(&self, frame: &'f [u8]) -> Result<Option<(SealIndex, &'f str)>, FrameError> {
        let refusal = Refusal::open(frame, self.profile.device, &self.link)?;
        let costs_others = self.waiting.len() >= self.most_waiting;
        let goes = self.oldest() == Some(refusal.index) && (refusal.is_final || costs_others);
        Ok(goes.then_some((refusal.index, refusal.name)))
    }
}
