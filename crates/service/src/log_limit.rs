//! Limits the log lines that one source can cause.
//!
//! A source is whatever a service can tell apart: an address, a device, or a kind of message. Each
//! source may cause a number of lines per interval. The number of all lines per interval is limited,
//! too. A service asks [`LogLimit::allows`] before it writes a line, and regularly passes
//! [`LogLimit::suppressed`] to [`log_suppressed`]. [`cut`] limits the length of a text that a client
//! has chosen.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// The maximum number of sources that are counted separately.
const SOURCES: usize = 256;
/// The number of counts that all further sources share, so that the total number of lines and the
/// memory are limited for any number of sources. A secret hash determines the count of a source: a
/// source can use up the lines of only a few others, and cannot choose which.
const SHARED: u64 = 64;
/// The maximum length of a text that a client has chosen, in bytes of UTF-8.
const TEXT: usize = 256;

/// Counts the log lines of each source.
#[derive(Debug)]
pub struct LogLimit<K> {
    lines: u32,
    interval: Duration,
    hasher: RandomState,
    counts: Mutex<Counts<K>>,
}

#[derive(Debug)]
struct Counts<K> {
    /// At most [`SOURCES`] sources.
    own: HashMap<K, Count>,
    /// The other sources, by the hash of the source modulo [`SHARED`].
    shared: HashMap<u64, Count>,
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
    /// Creates a limit of `lines` lines per `interval` for each source, and of 320 times as many for
    /// all sources.
    #[must_use]
    pub fn new(lines: u32, interval: Duration) -> Self {
        let counts = Counts { own: HashMap::new(), shared: HashMap::new() };
        Self { lines, interval, hasher: RandomState::new(), counts: Mutex::new(counts) }
    }

    /// Returns whether a line of this source may be written, and counts the line.
    #[must_use]
    pub fn allows(&self, source: K) -> bool {
        let now = Instant::now();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { own, shared } = &mut *counts;
        if own.len() >= SOURCES && !own.contains_key(&source) {
            own.retain(|_, count| !count.is_over(now, self.interval) || count.total() > 0);
        }
        let new = Count { start: now, allowed: 0, suppressed: 0, unreported: 0 };
        let count = if own.len() < SOURCES || own.contains_key(&source) {
            own.entry(source).or_insert(new)
        } else {
            shared.entry(self.hasher.hash_one(&source) % SHARED).or_insert(new)
        };
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
        let Counts { own, shared } = &mut *counts;
        let mut reports = Vec::new();
        own.retain(|source, count| {
            let (lines, is_over) = count.report(now, self.interval, ends_all);
            if lines > 0 {
                reports.push((Some(source.clone()), lines));
            }
            !is_over
        });
        let mut of_others = 0;
        shared.retain(|_, count| {
            let (lines, is_over) = count.report(now, self.interval, ends_all);
            of_others += lines;
            !is_over
        });
        if of_others > 0 {
            reports.push((None, of_others));
        }
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

    /// Returns the number of lines to report, which are then reported, and whether the interval is
    /// over.
    fn report(&mut self, now: Instant, interval: Duration, ends: bool) -> (u64, bool) {
        let is_over = ends || self.is_over(now, interval);
        let lines = if is_over { self.total() } else { self.unreported };
        self.unreported = 0;
        (lines, is_over)
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
        assert!(limit.counts.lock().is_ok_and(|counts| counts.own.is_empty()));
    }

    /// Finding B4 of the review. An attacker may have any number of addresses.
    #[tokio::test(start_paused = true)]
    async fn any_number_of_sources_cause_a_limited_number_of_lines() {
        let limit = LogLimit::new(2, INTERVAL);
        let asked: u32 = 3 * 50_000;
        let most = 2 * (SOURCES as u64 + SHARED);
        let mut allowed = 0;
        for _ in 0..3 {
            for source in 0..50_000_u32 {
                allowed += u64::from(limit.allows(source));
            }
        }
        assert_eq!(allowed, most, "all counts are used up");
        let counts = limit.counts.lock().map(|counts| (counts.own.len(), counts.shared.len()));
        assert!(counts.is_ok_and(|counts| counts == (SOURCES, SHARED as usize)));
        advance(INTERVAL).await;
        let mut reports = limit.suppressed();
        let reported: u64 = reports.iter().map(|(_, lines)| lines).sum();
        assert_eq!(reported, u64::from(asked) - most);
        reports.retain(|(source, _)| source.is_none());
        assert_eq!(reports.len(), 1, "one line for all sources that share counts");
        assert!(limit.allows(60_000), "the sources have made room");
        let is_own = limit.counts.lock().map(|counts| counts.own.contains_key(&60_000));
        assert!(is_own.is_ok_and(|is_own| is_own));
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_beyond_the_maximum_does_not_silence_the_others() {
        let limit = LogLimit::new(3, INTERVAL);
        assert!((0..SOURCES).all(|source| limit.allows(source)));
        let noisy = SOURCES;
        assert_eq!((0..100_000).filter(|_| limit.allows(noisy)).count(), 3);
        // Each of the others shares the count of the noisy source with a probability of 1/64.
        let others = (0..40).filter(|other| limit.allows(noisy + 1 + other)).count();
        assert!(others >= 28, "{others} of 40");
        // The sources with a count of their own are not concerned.
        assert!((0..SOURCES).all(|source| limit.allows(source)));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("/v1/devices"), "/v1/devices");
        let long = format!("a{}", "\u{e4}".repeat(500));
        let short = cut(&long);
        assert!(short.len() < 300 && short.ends_with("... (1001 bytes)"), "{short}");
    }
}
