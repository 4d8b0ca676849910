//! The frame that informs a device that the coordinator rejects one of its seals, so that the
//! device does not repeat the seal in vain.

use moteseal_core::link::claimed_device;
use moteseal_core::record::DeviceId;
use moteseal_seal::wire::{MAX_REFUSAL, Refusal, Uplink};

use super::error::Refused;
use super::{GroupCoordinator, close, link_key};

impl GroupCoordinator {
    /// Returns the frame that informs a device that one of its seals is rejected. `frame` is the
    /// frame that [`receive`](Self::receive) rejected, and `refused` the reason. Returns `None` if
    /// the device did not send `frame`, if `frame` concerns no seal, or if `frame` may be accepted
    /// later. Send the returned frame only after the frames received earlier are durable.
    #[must_use]
    pub fn refusal(&self, frame: &[u8], refused: &Refused) -> Option<(DeviceId, Vec<u8>)> {
        let is_final = refused.is_final()?;
        let device = claimed_device(frame).filter(|device| self.slot(*device).is_some())?;
        let key = link_key(&self.secret, &self.roster, device);
        let index = match Uplink::open(frame, &key).ok()? {
            Uplink::Forward(forward) => forward.index,
            Uplink::Close { open, part, .. } => close::index_of(device, open, part)?,
            Uplink::Schema(_) | Uplink::Challenge(_) => return None,
        };
        let mut out = [0; MAX_REFUSAL];
        let refusal =
            Refusal { index, is_final, name: refused.name() }.close(device, &key, &mut out).ok()?;
        Some((device, refusal.to_vec()))
    }
}
