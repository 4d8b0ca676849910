//! Writes the entries for self-monitoring (RERUM deliverable D5.3, section 3.2, figures 43 to 46 and 48),
//! compared with its numbers.

use std::path::Path;

use moteseal_core::health::Policy;
use serde::Serialize;

use super::page::{Entry, Shown};
use super::{Out, ReportError};
use crate::chance::Seed;
use crate::figure::{Axis, Colour, Figure, Panel, Series, Stroke};
use crate::health::{LOADS, Observed, PINGS_S, Period, observe, overhead, overhead_of_paper};
use crate::table::Table;

/// The command that writes the entries.
const COMMAND: &str = "moteseal-bench lab --out DIRECTORY";
/// The number of periods of each simulation: four hours.
const PERIODS: usize = 480;

/// Writes data files and figures into a folder, which is created if it does not exist, and returns the
/// entries.
///
/// # Errors
/// [`ReportError`].
pub fn write(out: &Path, seed: Seed) -> Result<Vec<Entry>, ReportError> {
    let out = Out { folder: out };
    std::fs::create_dir_all(out.folder)
        .map_err(|cause| ReportError::Write { path: out.folder.to_owned(), cause })?;
    Ok(vec![counters(&out, seed)?, communication(&out)?])
}

/// A row of health.csv.
#[derive(Serialize)]
struct PeriodRow {
    load: &'static str,
    seconds: usize,
    bad_crc: u64,
    collisions: u64,
    link_sent: u64,
    link_received: u64,
    ip_sent: u64,
    ip_received: u64,
}

/// Returns the mean of a count over the periods.
#[allow(clippy::cast_precision_loss)]
fn mean(of: &Observed, what: fn(&Period) -> u64) -> f64 {
    of.periods.iter().map(what).sum::<u64>() as f64 / of.periods.len() as f64
}

fn counters(out: &Out<'_>, seed: Seed) -> Result<Entry, ReportError> {
    let observed = LOADS.map(|load| observe(load, PERIODS, seed));
    let rows = observed.iter().flat_map(|of| {
        of.periods.iter().enumerate().map(|(place, period)| PeriodRow {
            load: of.load.name,
            seconds: (place + 1) * 30,
            bad_crc: period.bad_crc,
            collisions: period.collisions,
            link_sent: period.link.0,
            link_received: period.link.1,
            ip_sent: period.ip.0,
            ip_received: period.ip.1,
        })
    });
    out.rows("health.csv", &rows.collect::<Vec<_>>())?;
    let mut table = Table::new([
        "load",
        "jammer's share of the time",
        "bad CRC",
        "collisions",
        "frames sent",
        "frames received",
        "datagrams sent",
        "datagrams received",
        "longest report",
    ]);
    let mut ours = Vec::new();
    for of in &observed {
        let bad_crc = mean(of, |period| period.bad_crc);
        let collisions = mean(of, |period| period.collisions);
        table.row([
            of.load.name.to_owned(),
            format!("{:.1} %", of.load.busy * 100.0),
            format!("{bad_crc:.2}"),
            format!("{collisions:.2}"),
            format!("{:.2}", mean(of, |period| period.link.0)),
            format!("{:.2}", mean(of, |period| period.link.1)),
            format!("{:.2}", mean(of, |period| period.ip.0)),
            format!("{:.2}", mean(of, |period| period.ip.1)),
            format!("{} bytes", of.longest),
        ]);
        ours.push(format!("{} {bad_crc:.2} / {collisions:.2}", of.load.name));
    }
    let colours = [Colour::Blue, Colour::Grey, Colour::Vermillion];
    let panel = |label: &str, what: fn(&Period) -> u64| {
        #[allow(clippy::cast_precision_loss)]
        let line = |of: &Observed| -> Vec<(f64, f64)> {
            let mut sum = 0;
            let points = of.periods.iter().enumerate().step_by(8).map(|(place, _)| {
                sum = of.periods[..=place].iter().map(what).sum::<u64>();
                ((place + 1) as f64 / 2.0, sum as f64)
            });
            points.collect()
        };
        let series: Vec<Series> = observed
            .iter()
            .zip(colours)
            .map(|(of, colour)| Series::new(of.load.name, colour, Stroke::Solid, line(of)))
            .collect();
        let most = series.iter().flat_map(|of| &of.points).map(|(_, y)| *y).fold(1.0, f64::max);
        Panel { y: Axis::linear(label, 0.0, most), height: 1, series }
    };
    #[allow(clippy::cast_precision_loss)]
    let minutes = PERIODS as f64 / 2.0;
    out.figure(
        "health.png",
        &Figure {
            title: "Counters of a mote under interference".to_owned(),
            subtitle: "A ping every 2 s, a report every 30 s; totals since the start".to_owned(),
            x: Axis::linear("minutes", 0.0, minutes),
            panels: vec![
                panel("bad CRC", |period| period.bad_crc),
                panel("collisions", |period| period.collisions),
                panel("frames sent", |period| period.link.0),
                panel("frames received", |period| period.link.1),
            ],
        },
    )?;
    Ok(Entry::new(
        "rerum-figure-43",
        "Figures 43 to 46: bad checksums, collisions, frames and datagrams under interference",
        COMMAND,
    )
    .paper(
        "figures without numbers in the text: many frames with a bad CRC and many collisions if the \
         external traffic is high",
    )
    .ours(format!("bad CRC / collisions per period of 30 s: {}", ours.join("; ")))
    .why(
        "D5.3 measured a RE-Mote next to a Wi-Fi access point, and its text has no numbers, so only the \
         order of the loads is compared. Here the jammer's share of the time is chosen. A frame has a bad \
         CRC if the jammer begins during it; a collision is a busy channel before a frame is sent.",
    )
    .replacement("no RE-Mote and no access point: a simulated radio and jammer")
    .show(Shown::Table(table))
    .show(Shown::Figure("health.png".to_owned()))
    .show(Shown::Text(
        "The text of D5.3 describes figure 43 as collisions and figure 44 as bad CRC; the captions are \
         the other way round. It describes figure 45 as frames and figure 46 as datagrams; by the captions \
         45 is what is sent and 46 what is received. A tenth of our reports is lost: the reader's sums \
         equal the mote's at each report that arrives."
            .to_owned(),
    ))
    .data("health.csv"))
}

/// A row of health_overhead.csv.
#[derive(Serialize)]
struct OverheadRow {
    ping_s: f64,
    paper: f64,
    fixed: f64,
    variable: f64,
}

fn communication(out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows = PINGS_S.map(|ping_s| OverheadRow {
        ping_s,
        paper: overhead_of_paper(ping_s),
        fixed: overhead(ping_s, Policy::FIXED),
        variable: overhead(ping_s, Policy::VARIABLE),
    });
    out.rows("health_overhead.csv", &rows)?;
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut table =
        Table::new(["interval of the pings", "D5.3", "ours, every 30 s", "ours, variable period"]);
    for row in &rows {
        table.row([
            format!("{} s", row.ping_s),
            percent(row.paper),
            percent(row.fixed),
            percent(row.variable),
        ]);
    }
    let all =
        |of: fn(&OverheadRow) -> f64| rows.iter().map(|row| percent(of(row))).collect::<Vec<_>>();
    Ok(Entry::new("rerum-figure-48", "Figure 48: communication overhead of self-monitoring", COMMAND)
        .paper(format!(
            "almost 25 % with a ping every 4 s; by the bytes of figure 47, every 0.5, 1, 2 and 4 s: {}",
            all(|row| row.paper).join(", ")
        ))
        .ours(format!(
            "every 30 s: {}; with the variable period: {}",
            all(|row| row.fixed).join(", "),
            all(|row| row.variable).join(", ")
        ))
        .why(
            "D5.3 sends one packet for each of three groups of counters (110, 112 and 150 bytes), ours one \
             for all. With the variable period a node reports every 480 s while nothing changes. The bytes \
             are those of IPv6 datagrams, over a day, with the acknowledgement of every 20th report.",
        )
        .show(Shown::Table(table))
        .data("health_overhead.csv"))
}
