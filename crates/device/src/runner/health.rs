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

/// The report that was made last, and whether it must be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Newest {
    report: Option<Report>,
    is_due: bool,
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

    /// Notes a new report.
    pub(super) const fn note_report(&mut self, report: Report) {
        self.report = Newest { report: Some(report), is_due: true };
    }

    /// Sends the newest report again, because the gateway may not have it.
    pub(super) const fn report_again(&mut self) {
        self.report.is_due = self.report.report.is_some();
    }

    /// Sends the newest report if it is due. Call this only while the link is up. A report that is lost is
    /// replaced by the next one.
    pub(super) async fn send_report<L: ChildLink>(&mut self, link: &L) -> Result<(), RunError> {
        if self.mote.take_reports_again() {
            self.report_again();
        }
        let Newest { report: Some(report), is_due: true } = self.report else { return Ok(()) };
        self.report.is_due = false;
        let frame = self.mote.mote().health_frame(&report.health, report.interval_s);
        let Ok(frame) = frame else { return Ok(()) };
        match timeout(SEND_TIME, link.send(Bytes::from(frame))).await {
            Ok(Err(LinkError::Closed)) => Err(RunError::Link(LinkError::Closed)),
            _ => Ok(()),
        }
    }
}
