//! Writes the report on latency: tables I to IV and figures 4 to 6 of Mishra et al., compared with
//! the paper's numbers, with percentiles and histograms.

mod data;
mod entries;
mod figures;

use std::fmt::{Display, Write as _};
use std::path::Path;

use super::page::Entry;
use super::text::LATENCY;
use super::{INDEX, Out, ReportError};
use crate::latency::spread::Spread;
use crate::latency::wired::{Configuration, Message, Rate, Run, TableKind};
use crate::latency::wireless::{Medium, Outcome, Protection};
use crate::latency::{Study, paper};
use crate::table::{Table, thousands};

pub use entries::absent;

/// The file with all results, from which the report can be written again ([`Study::read`]).
pub const KEPT: &str = "study.json";

/// Writes the tables, figures and data into a folder, which is created if it does not exist. Calls
/// `progress` before each step. Returns the entries for the page; they need results of both parts and of
/// all configurations.
///
/// # Errors
/// [`ReportError::Write`], [`ReportError::Draw`].
pub fn write(
    study: &Study,
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Entry>, ReportError> {
    progress("writing the tables and figures");
    let out = Out { folder: out };
    std::fs::create_dir_all(out.folder)
        .map_err(|cause| ReportError::Write { path: out.folder.to_owned(), cause })?;
    data::write(study, &out)?;
    let executions = executions(study);
    let values: [(&str, &dyn Display); 3] =
        [("seconds", &study.seconds), ("executions", &executions), ("machine", &study.machine)];
    let mut index = LATENCY.fill("head", &values) + "\n";
    let bars = bars(study);
    if !bars.rows().is_empty() {
        index += &format!("\n{}", LATENCY.fill("bars", &[("table", &bars.markdown())]));
    }
    if !study.wireless.is_empty() {
        figures::wireless(study, &out)?;
        let (table, latencies) = (table1(study), wireless_latencies(study));
        let (table1why, figure4why) = (LATENCY.get("table 1 why"), LATENCY.get("figure 4 why"));
        let media = LATENCY.get("media");
        let values: [(&str, &dyn Display); 5] = [
            ("table", &table.markdown()),
            ("latencies", &latencies.markdown()),
            ("media", &media),
            ("table1why", &table1why),
            ("figure4why", &figure4why),
        ];
        index += &format!("\n{}", LATENCY.fill("wireless", &values));
    }
    if !study.wired.is_empty() {
        figures::over_time(study, &out)?;
        figures::histograms(study, &out)?;
        let values: [(&str, &dyn Display); 4] = [
            ("total", &averages(study, &paper::TOTAL, |run| run.total).markdown()),
            ("processing", &averages(study, &paper::PROCESSING, |run| run.processing).markdown()),
            ("latencies", &wired_latencies(study).markdown()),
            ("why", &LATENCY.get("figure 5 why")),
        ];
        index += &format!("\n{}", LATENCY.fill("wired", &values));
    }
    if study.wired.iter().any(|run| run.configuration == Configuration::Four) {
        figures::sawtooth(study, &out)?;
        let store = match study.table {
            TableKind::Cassandra => "The table is a Cassandra.",
            TableKind::Embedded => "**The table is the embedded store, not a Cassandra.**",
        };
        let (stages, batches) = (stages(study), batches(study));
        let values: [(&str, &dyn Display); 5] = [
            ("store", &store),
            ("stages", &stages.markdown()),
            ("batches", &batches.markdown()),
            ("teeth", &LATENCY.get("teeth")),
            ("why", &LATENCY.get("figure 6 why")),
        ];
        index += &format!("\n{}", LATENCY.fill("four", &values));
    }
    out.text(INDEX, &index)?;
    Ok(entries::entries(study))
}

/// Returns the results as tables for a terminal.
#[must_use]
pub fn text(study: &Study) -> String {
    let mut text = String::new();
    let mut add = |title: &str, table: &Table| {
        if !table.rows().is_empty() {
            let _ = writeln!(text, "{title}\n{table}");
        }
    };
    add("Time per message over MQTT, in ms", &table1(study));
    add("End-to-end latency of uploads, in ms", &wired_latencies(study));
    add("Configuration 4: where the time goes, in ms", &stages(study));
    add("Configuration 4: messages that the worker writes together", &batches(study));
    add("Limits", &bars(study));
    text
}

/// Formats milliseconds with three significant digits.
pub(super) fn ms(value: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    match value.abs() {
        1000.0.. => thousands(value.round() as u64),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Returns a list of the executions that measured the results.
fn executions(study: &Study) -> String {
    if study.executions.is_empty() {
        return "- (the command was not recorded)\n".to_owned();
    }
    let lines = study.executions.iter();
    lines.map(|one| format!("- `{}`; date: {}\n", one.command, one.date)).collect()
}

fn percentiles(spread: &Spread) -> [String; 4] {
    [spread.p50, spread.p90, spread.p99, spread.max].map(ms)
}

fn bars(study: &Study) -> Table {
    let mut table = Table::new(["limit", "at most", "measured", ""]);
    for bar in study.bars() {
        let verdict = if bar.passes() { "PASS" } else { "MISS" };
        let most = format!("{}", bar.most);
        table.row([bar.what.clone(), most, ms(bar.value), verdict.to_owned()]);
    }
    table
}

/// Returns table I: the medians of the trials.
fn table1(study: &Study) -> Table {
    let mut table = Table::new([
        "protection",
        "router: paper",
        "loopback, QoS 0",
        "loopback, QoS 1",
        "hotspot: paper",
        "hotspot, QoS 0",
        "hotspot, QoS 1",
    ]);
    let median = |medium, qos, protection| {
        let is = |of: &&Outcome| (of.medium, of.qos, of.protection) == (medium, qos, protection);
        study.wireless.iter().find(is).map_or_else(|| "-".to_owned(), |of| ms(of.median()))
    };
    if study.wireless.is_empty() {
        return table;
    }
    for protection in Protection::ALL {
        let [[a, b, c], [d, e, f]] = Medium::ALL.map(|medium| {
            let theirs = paper::per_message(medium, protection);
            let theirs = theirs.map_or_else(|| "-".to_owned(), |value| format!("{value}"));
            [theirs, median(medium, 0, protection), median(medium, 1, protection)]
        });
        table.row([protection.name().to_owned(), a, b, c, d, e, f]);
    }
    table
}

fn wireless_latencies(study: &Study) -> Table {
    let mut table = Table::new([
        "medium and protection",
        "QoS",
        "payload bytes",
        "trials: fastest",
        "slowest",
        "latency: median",
        "90 %",
        "99 %",
        "longest",
    ]);
    for of in &study.wireless {
        let fastest = of.per_message.iter().copied().fold(f64::INFINITY, f64::min);
        let slowest = of.per_message.iter().copied().fold(0.0, f64::max);
        let [a, b, c, d] = percentiles(&of.latency);
        let (qos, payload) = (of.qos.to_string(), of.payload.to_string());
        let name = format!("{}, {}", of.medium.name(), of.protection);
        table.row([name, qos, payload, ms(fastest), ms(slowest), a, b, c, d]);
    }
    table
}

/// Returns table III or IV: averages, in the order of the paper's columns.
fn averages(study: &Study, paper: &[[f64; 4]; 4], of: fn(&Run) -> Spread) -> Table {
    let mut table = Table::new([
        "configuration",
        "low rate, 24 bytes: paper",
        "ours",
        "1,024 bytes: paper",
        "ours",
        "maximum rate, 24 bytes: paper",
        "ours",
        "1,024 bytes: paper",
        "ours",
    ]);
    for (configuration, paper) in Configuration::ALL.into_iter().zip(paper) {
        let ours = |message, rate| {
            let run = study.wired_run(configuration, message, rate);
            run.map_or_else(|| "-".to_owned(), |run| ms(of(run).mean))
        };
        let [a, b, c, d] = paper.map(|value| format!("{value}"));
        table.row([
            configuration.describe().to_owned(),
            a,
            ours(Message::Short, Rate::Low),
            b,
            ours(Message::Long, Rate::Low),
            c,
            ours(Message::Short, Rate::Maximum),
            d,
            ours(Message::Long, Rate::Maximum),
        ]);
    }
    table
}

fn wired_latencies(study: &Study) -> Table {
    let mut table = Table::new([
        "configuration, message",
        "messages",
        "per second",
        "mean",
        "median",
        "90 %",
        "99 %",
        "longest",
        "first",
        "transmission: median",
        "99 %",
        "processing: median",
        "99 %",
    ]);
    for run in &study.wired {
        let [a, b, c, d] = percentiles(&run.total);
        table.row([
            format!("{}, {}, {}", run.configuration.number(), run.message, run.rate),
            thousands(run.total.count),
            ms(run.per_second),
            ms(run.total.mean),
            a,
            b,
            c,
            d,
            ms(run.first),
            ms(run.transmission.p50),
            ms(run.transmission.p99),
            ms(run.processing.p50),
            ms(run.processing.p99),
        ]);
    }
    table
}

fn stages(study: &Study) -> Table {
    let mut table = Table::new([
        "message, rate",
        "request: median",
        "99 %",
        "intake and stream: median",
        "99 %",
        "worker and table: median",
        "99 %",
        "acknowledged: median",
        "99 %",
    ]);
    for (run, of) in study.wired.iter().filter_map(|run| Some((run, run.stages?))) {
        let [a, b, c, d] = [of.request, of.stream, of.table, of.acknowledged]
            .map(|spread| [ms(spread.p50), ms(spread.p99)]);
        let [[a, b], [c, d], [e, f], [g, h]] = [a, b, c, d];
        table.row([format!("{}, {}", run.message, run.rate), a, b, c, d, e, f, g, h]);
    }
    table
}

fn batches(study: &Study) -> Table {
    let mut table = Table::new([
        "message, rate",
        "writes",
        "messages a write: median",
        "99 %",
        "most",
        "processing: median",
        "99 %",
        "longest",
    ]);
    for (run, of) in study.wired.iter().filter_map(|run| Some((run, run.batches?))) {
        table.row([
            format!("{}, {}", run.message, run.rate),
            thousands(of.writes),
            thousands(of.p50),
            thousands(of.p99),
            thousands(of.max),
            ms(run.processing.p50),
            ms(run.processing.p99),
            ms(run.processing.max),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::ms;

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [0.0123, 1.234, 56.78, 123.4, 12_345.6].map(ms),
            ["0.012", "1.23", "56.8", "123", "12,346"]
        );
    }
}
