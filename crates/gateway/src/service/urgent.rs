//! What the station's thread does with the frames of urgent events.

use std::time::Instant;

use moteseal_core::record::DeviceId;
use moteseal_net::{ParentLink, Up};
use tracing::{debug, info, warn};

use super::{Keeper, confirm};
use crate::coordinator::EventRefused;
use crate::station::EventEffect;

impl Keeper {
    /// Receives a frame with an urgent event.
    pub(super) fn receive_event<L: ParentLink>(&mut self, link: &L, up: &Up) {
        let now = self.time.checked_against();
        match self.station.receive_event(&up.frame, now, Instant::now()) {
            Ok(EventEffect { device, digest, is_new }) => {
                confirm(link, up);
                self.shared.metrics.urgent_received.increment(1);
                if is_new {
                    info!(%device, %digest, "received an urgent event");
                }
            }
            Err(refused) => {
                if !matches!(refused, EventRefused::Frame(_) | EventRefused::UnknownDevice) {
                    confirm(link, up);
                }
                self.shared.metrics.refused(refused.name());
                let device = DeviceId(up.device);
                if self.rejection_log.allows(device) {
                    warn!(name = refused.name(), %device, %refused, "an urgent event is rejected");
                }
                debug!(%device, name = refused.name(), %refused, "rejected an urgent event");
            }
        }
    }
}
