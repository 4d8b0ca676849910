//! What the sockets of a service refused or dropped: a metric with the reason as its label, and one
//! log line a minute while there is a flood.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::Label;
use tokio::time::Instant;
use tracing::warn;

use crate::metrics::Table;

/// How often a flood is logged.
const INTERVAL: Duration = Duration::from_secs(60);
/// A reason is logged if it occurred at least this often in an interval. Single datagrams are lost
/// or repeated on every network.
const FLOOD: u64 = 100;

/// The counts of a service's sockets, by reason.
#[derive(Debug)]
pub struct Refusals {
    metric: &'static str,
    logged: Mutex<Logged>,
}

#[derive(Debug)]
struct Logged {
    at: Instant,
    counts: Vec<(&'static str, u64)>,
}

impl Refusals {
    /// Creates a metric with this name in a table.
    #[must_use]
    pub fn new(table: &Table, metric: &'static str) -> Self {
        let about =
            "Datagrams, requests and sessions that the CoAP sockets refused or dropped, by reason.";
        table.describe_counter(metric, about);
        let logged = Logged { at: Instant::now(), counts: Vec::new() };
        Self { metric, logged: Mutex::new(logged) }
    }

    /// Sets the metric to these counts since the start of the service, and writes the log line if
    /// it is due. A service calls this regularly. The reasons must come from a fixed set.
    pub fn set(&self, table: &Table, counts: &[(&'static str, u64)]) {
        for (name, count) in counts {
            table.counter_with(self.metric, vec![Label::new("name", *name)]).absolute(*count);
        }
        if let Some(flood) = self.flood(counts) {
            warn!(refused = flood, "many datagrams on the CoAP sockets were refused or dropped");
        }
    }

    /// Returns the reasons with many more counts than at the last line, if a line is due.
    fn flood(&self, counts: &[(&'static str, u64)]) -> Option<String> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.at.elapsed() < INTERVAL {
            return None;
        }
        let mut line = String::new();
        for (name, count) in counts {
            let before = logged.counts.iter().find(|(of, _)| of == name).map_or(0, |(_, at)| *at);
            let more = count.saturating_sub(before);
            if more >= FLOOD {
                let _ = write!(line, "{}{name} {more}", if line.is_empty() { "" } else { ", " });
            }
        }
        *logged = Logged { at: Instant::now(), counts: counts.to_vec() };
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_logged_once_a_minute_with_its_reasons() {
        let table = Table::new();
        let refusals = Refusals::new(&table, "refused_total");
        refusals.set(&table, &[("Stray", 5000), ("Malformed", 3)]);
        let page = table.render();
        assert!(page.contains("refused_total{name=\"Stray\"} 5000"), "{page}");
        assert_eq!(refusals.flood(&[("Stray", 5000)]), None, "too early");
        advance(INTERVAL).await;
        let counts = [("Stray", 6000), ("Malformed", 3), ("Withheld", 100)];
        assert_eq!(refusals.flood(&counts).as_deref(), Some("Stray 6000, Withheld 100"));
        assert_eq!(refusals.flood(&[("Stray", 9000)]), None, "one line a minute");
        advance(INTERVAL).await;
        assert_eq!(refusals.flood(&[("Stray", 6099)]), None, "no flood");
    }
}
