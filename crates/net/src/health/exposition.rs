//! The health of nodes as metrics in Prometheus' text format. The label `node` has only names of the
//! roster and the gateway's own name, so the number of series is bounded.

use std::fmt::Write as _;
use std::time::Instant;

use moteseal_core::health::{Health, Item, Kind};

use super::node::NodeHealth;
use super::nodes::Nodes;

/// A node's name, whether it is the gateway itself, when it was heard, and what it reported.
type Row<'a> = (&'a str, &'static str, Instant, &'a Health);

/// A node's rows, with its labels.
type Labelled<'a, 'r> = (&'r Row<'a>, &'r String);

impl Nodes {
    /// Appends the metrics of all nodes that were heard, and of the gateway itself. A node that is silent
    /// has an age and nothing else, because its values are not those of now.
    pub fn render(&self, now: Instant, own: (&str, &Health), out: &mut String) {
        let (name, health) = own;
        let mut rows: Vec<Row<'_>> = vec![(name, "gateway", now, health)];
        let mut silent = vec![false];
        for node in self.iter() {
            let Some((at, report)) = &node.heard else { continue };
            rows.push((&*node.name, "device", *at, &report.health));
            silent.push(node.is_silent(now));
        }
        write(now, &rows, silent, out);
    }
}

impl NodeHealth {
    /// Appends the metrics of this node alone. `role` is what kind of program it is.
    pub fn render(&self, role: &'static str, out: &mut String) {
        let now = Instant::now();
        let health = self.sample(now);
        write(now, &[(self.name(), role, now, &health)], vec![false], out);
    }
}

fn write(now: Instant, rows: &[Row<'_>], silent: Vec<bool>, out: &mut String) {
    let labels: Vec<String> = rows.iter().map(|(name, role, ..)| labels(name, role)).collect();
    let mut rows: Vec<Labelled<'_, '_>> = rows.iter().zip(&labels).collect();
    let head = |out: &mut String, name: &str, kind: &str, about: &str| {
        let _ = writeln!(out, "# HELP {name} {about}\n# TYPE {name} {kind}");
    };
    let age = "moteseal_health_age_seconds";
    head(out, age, "gauge", "Time since the node's newest report, in seconds.");
    for ((_, _, at, _), labels) in &rows {
        let seconds = now.saturating_duration_since(*at).as_secs_f64();
        let _ = writeln!(out, "{age}{labels} {seconds:.3}");
    }
    let is_silent = "moteseal_health_silent";
    head(out, is_silent, "gauge", "1 if the node should have reported again.");
    for ((_, labels), silent) in rows.iter().zip(&silent) {
        let _ = writeln!(out, "{is_silent}{labels} {}", u8::from(*silent));
    }
    let mut silent = silent.into_iter();
    rows.retain(|_| !silent.next().unwrap_or_default());
    let boot = "moteseal_health_boot";
    head(out, boot, "gauge", "How often the node has started.");
    for ((.., health), labels) in &rows {
        let _ = writeln!(out, "{boot}{labels} {}", health.boot);
    }
    let uptime = "moteseal_health_uptime_seconds";
    head(out, uptime, "gauge", "Time since the node's start, in seconds.");
    for ((.., health), labels) in &rows {
        let _ = writeln!(out, "{uptime}{labels} {}", health.uptime_s);
    }
    let faults = "moteseal_health_faults_total";
    head(out, faults, "counter", "Sum of the node's losses and faults.");
    for ((.., health), labels) in &rows {
        let _ = writeln!(out, "{faults}{labels} {}", health.faults());
    }
    for item in Item::all() {
        let mut is_first = true;
        let name = metric(item);
        for ((.., health), labels) in &rows {
            let Some(value) = health.get(item) else { continue };
            if std::mem::take(&mut is_first) {
                let kind = if item.kind() == Kind::Total { "counter" } else { "gauge" };
                let (group, unit) = (item.group().name(), item.unit());
                let about = format!("{group}.{} of each node. {unit}", item.name());
                head(out, &name, kind, about.trim_end());
            }
            let _ = match item.divisor() {
                1 => writeln!(out, "{name}{labels} {value}"),
                divisor => {
                    #[allow(clippy::cast_precision_loss)]
                    let value = value as f64 / f64::from(divisor);
                    writeln!(out, "{name}{labels} {value}")
                }
            };
        }
    }
}

/// Returns the name of an item's metric.
fn metric(item: Item) -> String {
    let end = if item.kind() == Kind::Total { "_total" } else { "" };
    format!("moteseal_health_{}_{}{end}", item.group().name(), item.name())
}

fn labels(name: &str, role: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{node=\"{name}\",role=\"{role}\"}}")
}
