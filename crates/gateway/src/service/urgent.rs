//! What the station's thread does with the frames of urgent events.

use std::time::Instant;

use moteseal_core::record::DeviceId;
use moteseal_net::Up;
use tracing::{debug, info, warn};

use super::Keeper;
use crate::station::EventEffect;

impl Keeper {
    /// Receives a frame with an urgent event.
    pub(super) fn receive_event(&mut self, up: &Up) {
        let now = self.time.checked_against();
        match self.station.receive_event(&up.frame, now, Instant::now()) {
            Ok(EventEffect { device, digest, is_new }) => {
                self.shared.metrics.urgent_received.increment(1);
                if is_new {
                    info!(%device, %digest, "received an urgent event");
                }
            }
            Err(refused) => {
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
