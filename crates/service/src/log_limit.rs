//! Limits the log lines that one source can cause.
//!
//! A source is whatever a service can tell apart: an address, a device, or a kind of message. Each
//! source may cause a number of lines per interval. A service asks [`LogLimit::allows`] before it
//! writes a line, and regularly passes [`LogLimit::suppressed`] to [`log_suppressed`]. [`cut`] limits the length of a text that a client has chosen.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// The maximum number of sources that are counted separately. Further sources share one count, so
/// that the total number of lines and the memory are limited for any number of sources.
const SOURCES: usize = 256;
/// The maximum length of a text that a client has chosen, in bytes of UTF-8.
const TEXT: usize = 256;

/// Counts the log lines of each source.
#[derive(Debug)]
pub struct LogLimit<K> {
    lines: u32,
    interval: Duration,
    /// The sources. `None` stands for all sources above [`SOURCES`].
    counts: Mutex<HashMap<Option<K>, Count>>,
}

#[derive(Debug)]
struct Count {
    /// When the current interval started.
    start: Instant,
    /// The lines that were allowed in the current interval.
    allowed: u32,
    /// The lines that were suppressed in the current interval.
    suppressed: u64,
    /// The lines that were suppressed in earlier intervals and are not reported yet.
    unreported: u64,
}

impl<K: Clone + Eq + Hash> LogLimit<K> {
    /// Creates a limit of `lines` lines per `interval` for each source.
    #[must_use]
    pub fn new(lines: u32, interval: Duration) -> Self {
        Self { lines, interval, counts: Mutex::default() }
    }

    /// Returns whether a line of this source may be written, and counts the line.
    #[must_use]
    pub fn allows(&self, source: K) -> bool {
        let now = Instant::now();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut source = Some(source);
        if counts.len() >= SOURCES && !counts.contains_key(&source) {
            counts.retain(|_, count| !count.is_over(now, self.interval) || count.total() > 0);
            if counts.len() >= SOURCES {
                source = None;
            }
        }
        let count = counts.entry(source).or_insert(Count {
            start: now,
            allowed: 0,
            suppressed: 0,
            unreported: 0,
        });
        if count.is_over(now, self.interval) {
            *count = Count { start: now, allowed: 0, suppressed: 0, unreported: count.total() };
        }
        let is_allowed = count.allowed < self.lines;
        if is_allowed {
            count.allowed += 1;
        } else {
            count.suppressed += 1;
        }
        is_allowed
    }

    /// Returns, for each source, how many of its lines were suppressed in intervals that are over
    /// and not reported yet. `None` stands for all sources that are not counted separately. A
    /// service calls this function regularly.
    #[must_use]
    pub fn suppressed(&self) -> Vec<(Option<K>, u64)> {
        self.report(false)
    }

    /// Like [`suppressed`](Self::suppressed), but ends all intervals. A service calls this function
    /// when it stops.
    #[must_use]
    pub fn finish(&self) -> Vec<(Option<K>, u64)> {
        self.report(true)
    }

    fn report(&self, ends_all: bool) -> Vec<(Option<K>, u64)> {
        let now = Instant::now();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reports = Vec::new();
        counts.retain(|source, count| {
            let is_over = ends_all || count.is_over(now, self.interval);
            let lines = if is_over { count.total() } else { count.unreported };
            if lines > 0 {
                reports.push((source.clone(), lines));
            }
            count.unreported = 0;
            !is_over
        });
        reports
    }
}

impl Count {
    fn is_over(&self, now: Instant, interval: Duration) -> bool {
        now.saturating_duration_since(self.start) >= interval
    }

    const fn total(&self) -> u64 {
        self.suppressed + self.unreported
    }
}

/// Logs one line for each entry that [`LogLimit::suppressed`] or [`LogLimit::finish`] has returned.
pub fn log_suppressed<K: Display>(suppressed: &[(Option<K>, u64)]) {
    for (source, lines) in suppressed {
        match source {
            Some(source) => warn!(%source, lines, "further lines of this source were suppressed"),
            None => warn!(lines, "further lines of other sources were suppressed"),
        }
    }
}

/// Returns a text for the log. A text longer than 256 bytes is cut, and its length is stated.
#[must_use]
pub fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(TEXT);
    Cow::Owned(format!("{}... ({} bytes)", &text[..end], text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// Finding B4 of the review.
    #[tokio::test(start_paused = true)]
    async fn a_source_gets_its_lines_and_one_report_per_interval() {
        let limit = LogLimit::new(3, INTERVAL);
        let lines = |source: u32, count: u32| (0..count).filter(|_| limit.allows(source)).count();
        assert_eq!(lines(1, 1000), 3);
        assert_eq!(lines(2, 2), 2, "another source has its own lines");
        assert_eq!(limit.suppressed(), [], "the interval is not over");
        advance(INTERVAL).await;
        assert_eq!(limit.suppressed(), [(Some(1), 997)]);
        assert_eq!(limit.suppressed(), []);
        assert_eq!(lines(1, 5), 3);
        advance(INTERVAL).await;
        assert_eq!(lines(1, 4), 3, "a new interval starts although nothing was reported");
        assert_eq!(limit.suppressed(), [(Some(1), 2)], "of the interval that is over");
        assert_eq!(limit.finish(), [(Some(1), 1)]);
        assert!(limit.counts.lock().is_ok_and(|counts| counts.is_empty()));
    }

    /// Finding B4 of the review. An attacker may have any number of addresses.
    #[tokio::test(start_paused = true)]
    async fn many_sources_share_one_count() {
        let limit = LogLimit::new(1, INTERVAL);
        let most = u32::try_from(SOURCES).unwrap_or(u32::MAX);
        let allowed = (0..5000).filter(|&source: &u32| limit.allows(source)).count();
        assert_eq!(allowed, SOURCES + 1);
        assert!(limit.counts.lock().is_ok_and(|counts| counts.len() == SOURCES + 1));
        advance(INTERVAL).await;
        assert!(limit.allows(most), "sources without suppressed lines make room");
        let reports = limit.suppressed();
        assert_eq!(reports, [(None, u64::from(5000 - most - 1))]);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("/v1/devices"), "/v1/devices");
        let long = format!("a{}", "\u{e4}".repeat(500));
        let short = cut(&long);
        assert!(short.len() < 300 && short.ends_with("... (1001 bytes)"), "{short}");
    }
}
