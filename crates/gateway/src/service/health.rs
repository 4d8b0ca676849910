//! What the station's thread does with the frames of health. They are not written to the journal: the
//! next one replaces them.

use moteseal_core::record::DeviceId;
use moteseal_net::{ParentLink, Up};
use tracing::debug;

use super::{Keeper, confirm};

impl Keeper {
    /// Receives a frame with a device's health.
    pub(super) fn receive_health<L: ParentLink>(&self, link: &L, up: &Up) {
        let Some(health) = &self.shared.health else {
            // Nobody serves it.
            return;
        };
        let opened = self.station.coordinator().open_health(&up.frame);
        let taken = opened.map_err(|refused| refused.name()).and_then(|(device, record)| {
            confirm(link, up);
            health.take(device, &record).map_err(|not_taken| not_taken.name())
        });
        if let Err(name) = taken {
            self.shared.metrics.refused(name);
            debug!(device = %DeviceId(up.device), name, "a record of health is rejected");
        }
    }
}
