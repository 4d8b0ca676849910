//! Warnings about what arrives from outside the device. A sender without any key can cause them, so
//! their number is limited.

use std::fmt::Display;
use std::time::Duration;

use moteseal_service::LogLimit;
use moteseal_service::log_limit::log_suppressed;
use tracing::warn;

/// The maximum number of lines with the same text per [`INTERVAL`].
const LINES: u32 = 3;
/// The interval after which the number of suppressed lines is logged.
const INTERVAL: Duration = Duration::from_secs(60);

/// Logs warnings, at most [`LINES`] with the same text per [`INTERVAL`].
#[derive(Debug)]
pub(crate) struct WarningLog(LogLimit<&'static str>);

impl WarningLog {
    pub(crate) fn new() -> Self {
        Self(LogLimit::new(LINES, INTERVAL))
    }

    /// Logs a warning unless its text was logged often in this interval.
    pub(crate) fn warn(&self, text: &'static str, error: impl Display) {
        log_suppressed(&self.0.suppressed());
        if self.0.allows(text) {
            warn!(%error, "{text}");
        }
    }
}

impl Drop for WarningLog {
    fn drop(&mut self) {
        log_suppressed(&self.0.finish());
    }
}
