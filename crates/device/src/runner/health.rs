//! Reports the device's health to the gateway.

use std::sync::Arc;

use bytes::Bytes;
use moteseal_core::health::Item;
use moteseal_core::signature::Signer;
use moteseal_net::health::Report;
use moteseal_net::{ChildLink, LinkError};
use moteseal_seal::wire::HealthSession;
use moteseal_service::Figures;
use moteseal_service::health::{increase, store};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::sending::SEND_TIME;
use super::{Run, RunError, system_clock};

/// An answer that takes longer says nothing useful about the clock, in milliseconds.
const LONGEST_ANSWER_MS: u64 = 10_000;
/// If the clock differs from the time that has passed by more, it was set meanwhile, in milliseconds.
const CLOCK_STEP_MS: u64 = 20;

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
    /// When it was sent last: by this machine's clock, in milliseconds since 1970, and by a clock that is
    /// never set.
    sent: Option<(u64, Instant)>,
    /// The counts of this run that the figures already contain: readings, given up, refused. The
    /// figures count since the start of the process, in which a device may run several times.
    noted: [u64; 3],
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
    pub(super) fn note_health(&mut self) {
        let Some(HealthLink { figures, .. }) = &self.settings.health else { return };
        store(&figures.waiting, self.mote.mote().waiting() as u64);
        store(&figures.urgent_waiting, self.mote.waiting_urgent() as u64);
        let refused = self.ran.refused.saturating_add(self.mote.refused());
        let counts = [self.ran.readings, self.ran.given_up, refused];
        let totals = [&figures.readings, &figures.given_up, &figures.refused];
        for ((total, count), noted) in totals.into_iter().zip(counts).zip(&mut self.report.noted) {
            increase(total, count - *noted);
            *noted = count;
        }
    }

    /// Notes that the gateway acknowledged something.
    pub(super) fn note_acknowledged(&self) {
        if let Some(health) = &self.settings.health {
            health.figures.acknowledged();
        }
    }

    /// Notes a new report.
    pub(super) const fn note_report(&mut self, report: Report) {
        self.report = Newest { report: Some(report), is_due: true, sent: None, ..self.report };
    }

    /// Sends the newest report again, because the gateway may not have it.
    pub(super) const fn report_again(&mut self) {
        self.report.is_due = self.report.report.is_some();
    }

    /// Returns whether a frame of the gateway is to be processed: any but one that begins a session of
    /// reports and does not answer the newest report. Notes the offset of the clock.
    pub(super) fn takes(&mut self, frame: &[u8]) -> bool {
        if !HealthSession::is_claimed(frame) {
            return true;
        }
        let Ok(offer) = self.mote.mote().read_health_session(frame) else { return true };
        let Newest { report: Some(report), sent: Some((sent_ms, sent)), .. } = &mut self.report
        else {
            return false;
        };
        if offer.answers != (report.health.boot, report.health.uptime_s) {
            return false;
        }
        // The clock may have been set since the report was sent.
        let passed = u64::try_from(sent.elapsed().as_millis()).unwrap_or(u64::MAX);
        let is_set = system_clock().abs_diff(sent_ms.saturating_add(passed)) > CLOCK_STEP_MS;
        if !is_set && passed <= LONGEST_ANSWER_MS {
            let offset = offer.clock_offset(*sent_ms, sent_ms.saturating_add(passed));
            report.health.set(Item::ClockOffset, offset);
            if let Some(HealthLink { figures, .. }) = &self.settings.health {
                figures.clock_offset(offset);
            }
        }
        true
    }

    /// Sends the newest report if it is due. Call this only while the link is up. A report that is lost is
    /// replaced by the next one.
    pub(super) async fn send_report<L: ChildLink>(&mut self, link: &L) -> Result<(), RunError> {
        if self.mote.take_reports_again() {
            self.report_again();
        }
        let Newest { report: Some(report), is_due: true, .. } = self.report else { return Ok(()) };
        self.report.is_due = false;
        self.report.sent = Some((system_clock(), Instant::now()));
        let frame = self.mote.mote().health_frame(&report.health, report.interval_s);
        let Ok(frame) = frame else { return Ok(()) };
        match timeout(SEND_TIME, link.send(Bytes::from(frame))).await {
            Ok(Err(LinkError::Closed)) => Err(RunError::Link(LinkError::Closed)),
            _ => Ok(()),
        }
    }
}
