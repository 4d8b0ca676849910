//! The table of nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use moteseal_core::health::{Difference, Health, Item, Kind, Totals};
use moteseal_net::health::{is_silent, json as health_json};
use serde_json::{Map, Value, json};

use super::alert::{Alert, Quantity, Rule};

/// The number of rates in a row's sparkline.
const SPARKS: usize = 12;
/// The time between the reports of a node that does not state it: the default of Max-Age in CoAP.
const UNSTATED: Duration = Duration::from_secs(60);
/// The maximum number of rows. The names come from a gateway that is not trusted.
const MAX_ROWS: usize = 100_000;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A node.
#[derive(Clone, Debug, Default)]
pub struct Row {
    totals: Totals,
    newest: Option<Difference>,
    heard: Option<Instant>,
    /// The time until the next report that the node stated.
    interval: Option<Duration>,
    /// The first record of the watch.
    first: Option<Health>,
    /// The rates of what was sent, a second, oldest first.
    sent: VecDeque<f64>,
    /// The rules that match, by their places.
    alerts: BTreeSet<usize>,
}

/// The nodes that are watched.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: BTreeMap<String, Row>,
    rules: Vec<Rule>,
}

impl Row {
    /// Returns the newest record.
    #[must_use]
    pub const fn health(&self) -> Option<&Health> {
        self.totals.last()
    }

    /// Returns whether the node has been silent for longer than it should be.
    #[must_use]
    pub fn is_stale(&self, now: Instant) -> bool {
        self.heard.is_some_and(|at| {
            let interval = self.interval.unwrap_or(UNSTATED).as_secs();
            let interval = u32::try_from(interval).unwrap_or(u32::MAX);
            is_silent(now.saturating_duration_since(at), interval)
        })
    }

    /// Returns what was sent a second: frames, or datagrams if frames are not counted.
    fn sent_per_s(&self) -> Option<f64> {
        let newest = self.newest.as_ref()?;
        let count = newest.count(Item::LinkSent).or_else(|| newest.count(Item::IpSent))?;
        Some(f64::from(count) / f64::from(newest.seconds))
    }

    /// Returns the losses and faults that the newest report counted.
    fn faults(&self) -> impl Iterator<Item = (Item, u32)> + use<'_> {
        self.newest.iter().flat_map(Difference::faults)
    }

    /// Returns how bad the state of the node is. Nodes with larger values are worse.
    fn severity(&self, now: Instant) -> (bool, bool, bool, u64, bool) {
        let lost = self.faults().map(|(_, count)| u64::from(count)).sum();
        let has_restarted = self.newest.is_some_and(|newest| newest.has_restarted);
        let is_alerting = !self.alerts.is_empty();
        (is_alerting, self.is_stale(now), has_restarted, lost, self.heard.is_none())
    }

    /// Returns what is remarkable, in words.
    fn reasons(&self, now: Instant) -> String {
        let mut reasons = Vec::new();
        let Some(at) = self.heard else { return "never heard".to_owned() };
        if self.is_stale(now) {
            reasons.push(format!("silent for {}", span(now.saturating_duration_since(at))));
        }
        if self.newest.is_some_and(|newest| newest.has_restarted) {
            reasons.push("restarted".to_owned());
        }
        let mut faults: Vec<_> = self.faults().collect();
        faults.sort_by_key(|(_, count)| Reverse(*count));
        for (item, count) in faults.iter().take(2) {
            reasons.push(format!("{} +{count}", name(*item)));
        }
        if faults.len() > 2 {
            reasons.push(format!("{} more", faults.len() - 2));
        }
        reasons.join(", ")
    }

    /// Returns the value that a rule compares. A stale node has only an age and restarts.
    fn quantity(&self, quantity: Quantity, now: Instant) -> Option<f64> {
        Some(match quantity {
            Quantity::Restarts => f64::from(self.totals.restarts),
            Quantity::Age => now.saturating_duration_since(self.heard?).as_secs_f64(),
            Quantity::Rate(_) | Quantity::Value(_) if self.is_stale(now) => return None,
            Quantity::Rate(item) => {
                let newest = self.newest.as_ref()?;
                f64::from(newest.count(item)?) / f64::from(newest.seconds)
            }
            #[allow(clippy::cast_precision_loss)]
            Quantity::Value(item) if item.kind() == Kind::Total => {
                let before = self.first?.get(item).unwrap_or_default().unsigned_abs();
                self.totals.sum(item).saturating_sub(before) as f64
            }
            #[allow(clippy::cast_precision_loss)]
            Quantity::Value(item) => self.health()?.get(item)? as f64 / f64::from(item.divisor()),
        })
    }
}

fn name(item: Item) -> String {
    format!("{}.{}", item.group().name(), item.name())
}

/// Writes a time with its largest unit.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

impl Table {
    /// Creates an empty table that checks these rules.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rows: BTreeMap::new(), rules }
    }

    /// Returns the nodes, by name.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.rows.iter().map(|(name, row)| (&**name, row))
    }

    /// Adds a node that may not have reported yet.
    pub fn list(&mut self, node: &str) {
        self.row(node);
    }

    fn row(&mut self, node: &str) -> Option<&mut Row> {
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(node) {
            return None;
        }
        Some(self.rows.entry(node.to_owned()).or_default())
    }

    /// Takes a report that a node made at a time, and the time until its next report, if it stated it.
    /// Returns whether it is newer than the one before.
    pub fn take(
        &mut self,
        at: Instant,
        node: &str,
        (health, interval): (&Health, Option<Duration>),
    ) -> bool {
        let Some(row) = self.row(node) else { return false };
        let is_first = row.totals.last().is_none();
        match row.totals.take(health) {
            None if !is_first => return false,
            difference => row.newest = difference,
        }
        (row.heard, row.interval) = (Some(at), interval);
        row.first.get_or_insert(*health);
        if let Some(sent) = row.sent_per_s() {
            if row.sent.len() == SPARKS {
                row.sent.pop_front();
            }
            row.sent.push_back(sent);
        }
        true
    }

    /// Checks the rules for all nodes. Returns those that began or ceased to match since the last call.
    pub fn alerts(&mut self, now: Instant) -> Vec<Alert> {
        let mut alerts = Vec::new();
        for (node, row) in &mut self.rows {
            for (place, rule) in self.rules.iter().enumerate() {
                let Some(value) = row.quantity(rule.quantity, now) else {
                    // It is not known whether the rule still matches.
                    row.alerts.remove(&place);
                    continue;
                };
                let is_on = rule.matches(value);
                let has_changed = match is_on {
                    true => row.alerts.insert(place),
                    false => row.alerts.remove(&place),
                };
                if has_changed {
                    let (node, rule) = (node.clone(), rule.to_string());
                    alerts.push(Alert { node, rule, value, is_on });
                }
            }
        }
        alerts
    }

    /// Returns a node as a JSON object.
    #[must_use]
    pub fn json(&self, now: Instant, node: &str) -> Value {
        let Some(row) = self.rows.get(node) else { return json!({ "node": node }) };
        let Some((at, health)) = row.heard.zip(row.health()) else {
            return json!({ "node": node, "reasons": row.reasons(now) });
        };
        let mut rates = Map::new();
        for item in Item::all() {
            if let Some(rate) = row.quantity(Quantity::Rate(item), now) {
                rates.insert(name(item), rate.into());
            }
        }
        json!({
            "node": node,
            "age_ms": u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX),
            "stale": row.is_stale(now),
            "restarts": row.totals.restarts,
            "health": health_json(health),
            "per_s": rates,
            "reasons": row.reasons(now),
        })
    }

    /// Returns the table as lines of text, without control characters, in the order of the names.
    #[must_use]
    pub fn lines(&self, now: Instant) -> Vec<String> {
        Self::table(now, self.rows.iter())
    }

    /// Like [`lines`](Self::lines), with at most so many lines, but at least four. If there are more nodes, the
    /// worst ones are shown, the worst first, and the last line states how many are hidden. Nodes for
    /// which a rule matches are the worst; silent ones, those that have restarted, those with the
    /// most losses, and those that never reported follow.
    #[must_use]
    pub fn lines_within(&self, now: Instant, most: usize) -> Vec<String> {
        // The head, and the line about hidden nodes.
        let shown = most.max(4) - 2;
        if self.rows.len() <= shown + 1 {
            return self.lines(now);
        }
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(_, row)| Reverse(row.severity(now)));
        let mut lines = Self::table(now, rows.into_iter().take(shown));
        let hidden = self.rows.len() - shown;
        lines.push(format!("{hidden} more nodes, of which none is worse; --all shows them"));
        lines
    }

    fn table<'t>(now: Instant, rows: impl Iterator<Item = (&'t String, &'t Row)>) -> Vec<String> {
        let head = ["NODE", "UPTIME", "RESTARTS", "BATTERY", "TEMP", "SENT/S", "LOST", "WAITING"];
        let head = head.iter().chain(&["TREND", "HEARD", "REASONS"]).map(|of| (*of).to_owned());
        let mut cells: Vec<Vec<String>> = vec![head.collect()];
        for (node, row) in rows {
            let node: String = node.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            cells.push(std::iter::once(node).chain(row.cells(now)).collect());
        }
        let columns = cells[0].len();
        let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                // Numbers are aligned to the right.
                let pad = " ".repeat(widths[at] - cell.chars().count());
                let is_number = (1..8).contains(&at);
                let _ = match is_number {
                    true => write!(line, "{pad}{cell}  "),
                    false => write!(line, "{cell}{pad}  "),
                };
            }
            line.trim_end().to_owned()
        };
        cells.iter().map(line).collect()
    }
}

impl Row {
    /// Returns the cells after the node's name.
    fn cells(&self, now: Instant) -> [String; 10] {
        let none = || "-".to_owned();
        let health = self.health();
        let get = |item| health.and_then(|health| health.get(item));
        let uptime = health.map(|of| span(Duration::from_secs(of.uptime_s.into())));
        let battery = get(Item::Battery).map(|percent| format!("{percent} %"));
        let volts =
            || get(Item::BatteryMv).map(|mv| format!("{}.{:02} V", mv / 1000, mv % 1000 / 10));
        let temperature = get(Item::Temperature).map(|tenths| {
            let sign = if tenths < 0 { "-" } else { "" };
            format!("{sign}{}.{} °C", tenths.abs() / 10, tenths.abs() % 10)
        });
        let lost =
            self.newest.map(|_| self.faults().map(|(_, count)| u64::from(count)).sum::<u64>());
        let heard = self.heard.map(|at| format!("{} ago", span(now.saturating_duration_since(at))));
        [
            uptime.unwrap_or_else(none),
            health.map_or_else(none, |of| of.boot.saturating_sub(1).to_string()),
            battery.or_else(volts).unwrap_or_else(none),
            temperature.unwrap_or_else(none),
            self.sent_per_s()
                .filter(|_| !self.is_stale(now))
                .map_or_else(none, |rate| format!("{rate:.1}")),
            lost.map_or_else(none, |lost| lost.to_string()),
            get(Item::Waiting).map_or_else(none, |waiting| waiting.to_string()),
            self.sparkline(),
            heard.unwrap_or_else(none),
            self.reasons(now),
        ]
    }

    fn sparkline(&self) -> String {
        let most = self.sent.iter().copied().fold(0.0, f64::max);
        let bar = |rate: &f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let height = if most > 0.0 { (rate / most * 7.0).round() as usize } else { 0 };
            BARS[height.min(7)]
        };
        self.sent.iter().map(bar).collect()
    }
}
