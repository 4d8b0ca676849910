//! Reports in the log when Cassandra stops answering and when it answers again: one line each, however many requests
//! fail meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, warn};

/// Requests must fail for this long, without one that succeeds, before an outage is reported.
const LEAST: Duration = Duration::from_secs(1);

/// Whether requests fail because Cassandra is unavailable.
#[derive(Debug)]
pub(crate) struct Outage {
    /// The URL, for messages.
    store: String,
    /// Whether the last request failed. A request that succeeds takes the lock only then.
    is_failing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the first request failed after the last one that succeeded.
    since: Option<Instant>,
    is_reported: bool,
}

impl Outage {
    pub(crate) fn new(store: String) -> Self {
        Self { store, is_failing: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Notes that a request failed because Cassandra is unavailable.
    pub(crate) fn failed(&self, what: &str) {
        if self.begins(Instant::now()) {
            warn!(
                url = self.store,
                error = what,
                "Cassandra does not answer, or too few replicas do; requests are repeated until it does"
            );
        }
    }

    /// Notes that Cassandra has answered a request.
    pub(crate) fn answered(&self) {
        if let Some(time) = self.ends(Instant::now()) {
            info!(url = self.store, seconds = time.as_secs(), "Cassandra answers again");
        }
    }

    /// Returns whether the start of an outage is to be reported.
    fn begins(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_failing.store(true, Ordering::Release);
        let since = *state.since.get_or_insert(now);
        let begins = !state.is_reported && now.saturating_duration_since(since) >= LEAST;
        state.is_reported |= begins;
        begins
    }

    /// Returns how long an outage took whose end is to be reported.
    fn ends(&self, now: Instant) -> Option<Duration> {
        if !self.is_failing.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_failing.store(false, Ordering::Release);
        let State { since, is_reported } = std::mem::take(&mut *state);
        since.filter(|_| is_reported).map(|since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_reported_once_at_its_start_and_once_at_its_end() {
        let (outage, start) = (Outage::new("table".to_owned()), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(outage.ends(at(0)), None);
        let reported: Vec<u64> =
            (0..50).map(|n| n * 100).filter(|ms| outage.begins(at(*ms))).collect();
        assert_eq!(reported, [1000], "one line, after a second of failures");
        assert_eq!(outage.ends(at(5000)), Some(Duration::from_secs(5)));
        assert_eq!(outage.ends(at(5001)), None);
    }

    #[test]
    fn a_request_that_fails_among_others_that_succeed_is_no_outage() {
        let (outage, start) = (Outage::new("table".to_owned()), Instant::now());
        for ms in (0..10_000).step_by(500) {
            assert!(!outage.begins(start + Duration::from_millis(ms)));
            assert_eq!(outage.ends(start + Duration::from_millis(ms + 100)), None);
        }
    }
}
