//! What the station's thread does with the reports of health. They are not written to the journal: the
//! next one replaces them.

use moteseal_core::record::DeviceId;
use moteseal_net::health::{NodeReport, NotTaken};
use moteseal_net::{ParentLink, Up};
use moteseal_seal::wire::{HealthFrame, HealthSession};
use tracing::debug;

use super::{Keeper, confirm, unix_ms};
use crate::station::Outgoing;

impl Keeper {
    /// Receives a frame with a device's health.
    pub(super) fn receive_health<L: ParentLink>(&self, link: &L, up: &Up) {
        let Some(health) = &self.shared.health else {
            // Nobody serves it.
            return;
        };
        let (device, frame) = match self.station.coordinator().open_health(&up.frame) {
            Ok(opened) => opened,
            Err(refused) => return self.refuse_health(DeviceId(up.device), refused.name()),
        };
        let HealthFrame { session, interval_s, health: values } = frame;
        let report = NodeReport { session, interval_s, health: values };
        let answers = (values.boot, values.uptime_s);
        match health.take(device, &report) {
            Ok(offer) => {
                confirm(link, up);
                self.offer(device, offer, answers);
            }
            // The device reports again when it has received the session.
            Err(NotTaken::OtherSession(offer)) => self.offer(device, offer, answers),
            Err(not_taken) => self.refuse_health(device, not_taken.name()),
        }
    }

    /// Offers a session to a device. If the offer is lost, it is repeated with the next report.
    fn offer(&self, device: DeviceId, session: Option<u64>, answers: (u32, u32)) {
        let offer = session.map(|session| HealthSession { session, unix_ms: unix_ms(), answers });
        let frame =
            offer.and_then(|offer| self.station.coordinator().health_session(device, offer));
        if let Some(frame) = frame {
            let events = vec![(device, frame)];
            let _ = self.messages.try_send(Outgoing { events, ..Outgoing::default() });
        }
    }

    fn refuse_health(&self, device: DeviceId, name: &'static str) {
        self.shared.metrics.refused(name);
        debug!(%device, name, "a report of health is rejected");
    }
}
