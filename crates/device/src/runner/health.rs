//! Reports the device's health to the gateway.

use std::sync::Arc;

use bytes::Bytes;
use moteseal_core::signature::Signer;
use moteseal_net::health::Report;
use moteseal_net::{ChildLink, LinkError};
use moteseal_service::Figures;
use moteseal_service::health::store;
use tokio::sync::watch;
use tokio::time::timeout;

use super::sending::SEND_TIME;
use super::{Run, RunError};

/// The health of a running device.
#[derive(Clone, Debug)]
pub struct HealthLink {
    /// Receives what the device counts itself.
    pub figures: Arc<Figures>,
    /// The reports to send. While the link is down, only the newest waits.
    pub reports: watch::Receiver<Option<Report>>,
}

/// Waits for the next report. Waits forever if there will be none.
pub(super) async fn next_report(reports: &mut Option<watch::Receiver<Option<Report>>>) -> Report {
    if let Some(reports) = reports {
        while reports.changed().await.is_ok() {
            if let Some(report) = *reports.borrow_and_update() {
                return report;
            }
        }
    }
    std::future::pending().await
}

impl<K: Signer + Send> Run<'_, K> {
    /// Notes what waits and what was lost.
    pub(super) fn note_health(&self) {
        let Some(HealthLink { figures, .. }) = &self.settings.health else { return };
        store(&figures.waiting, self.mote.mote().waiting() as u64);
        store(&figures.urgent_waiting, self.mote.waiting_urgent() as u64);
        store(&figures.readings, self.ran.readings);
        store(&figures.given_up, self.ran.given_up);
        store(&figures.refused, self.ran.refused.saturating_add(self.mote.refused()));
    }

    /// Notes that the gateway acknowledged something.
    pub(super) fn note_acknowledged(&self) {
        if let Some(health) = &self.settings.health {
            health.figures.acknowledged();
        }
    }

    /// Sends a report. A report that is lost is replaced by the next one.
    pub(super) async fn send_health<L: ChildLink>(
        &self,
        link: &L,
        report: &Report,
    ) -> Result<(), RunError> {
        let Ok(frame) = self.mote.mote().health_frame(&report.health) else { return Ok(()) };
        match timeout(SEND_TIME, link.send(Bytes::from(frame))).await {
            Ok(Err(LinkError::Closed)) => Err(RunError::Link(LinkError::Closed)),
            _ => Ok(()),
        }
    }
}
