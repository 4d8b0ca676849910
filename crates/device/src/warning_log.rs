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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Counts log lines.
    struct Lines(Arc<AtomicUsize>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// Finding B4 of the review. Anyone who can write to the broker can send forged frames.
    #[test]
    fn a_flood_of_forged_frames_causes_a_few_lines_and_a_summary() {
        let lines = Arc::new(AtomicUsize::new(0));
        tracing::subscriber::with_default(Lines(Arc::clone(&lines)), || {
            let log = WarningLog::new();
            for _ in 0..1000 {
                log.warn("ignored another sender's frame", "WrongTag");
            }
            log.warn("a query schedule was rejected", "WrongTag");
            assert_eq!(lines.load(Ordering::SeqCst), 3 + 1);
            drop(log);
        });
        assert_eq!(lines.load(Ordering::SeqCst), 3 + 1 + 1);
    }
}
