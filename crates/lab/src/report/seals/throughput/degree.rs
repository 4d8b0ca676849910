//! Writes figure 11: the time to build trees of degree 2, 3 and 4, and to generate packets from
//! them.

use serde::Serialize;

use super::{COLOURS, MACHINE};
use crate::figure::{Axis, Figure, Panel, Stroke};
use crate::report::page::{Entry, Shown};
use crate::report::seals::{COMMAND, line, most, spread, time};
use crate::report::{Out, ReportError};
use crate::seals::{Measured, Spread};
use crate::table::{Table, thousands};

#[derive(Serialize)]
struct Row11 {
    degree: usize,
    events: usize,
    build_us: f64,
    build_least: f64,
    build_most: f64,
    packet_us: f64,
    packet_least: f64,
    packet_most: f64,
}

pub(super) fn figure11(measured: &Measured, out: &Out<'_>) -> Result<Vec<Entry>, ReportError> {
    let rows = &measured.by_degree;
    let csv: Vec<_> = rows
        .iter()
        .map(|row| Row11 {
            degree: row.degree,
            events: row.events,
            build_us: row.build.median,
            build_least: row.build.least,
            build_most: row.build.most,
            packet_us: row.packet.median,
            packet_least: row.packet.least,
            packet_most: row.packet.most,
        })
        .collect();
    out.rows("fig11.csv", &csv)?;
    /// Number of the figure, name of the operation, title, and the time that the figure shows.
    type Part = (&'static str, &'static str, &'static str, fn(&crate::seals::ByDegree) -> Spread);
    let what: [Part; 2] = [
        ("11a", "building", "Figure 11a: building a tree of degree k, time per packet", |row| {
            row.build
        }),
        ("11b", "generating", "Figure 11b: generating a packet of a tree of degree k", |row| {
            row.packet
        }),
    ];
    let mut entries = Vec::new();
    for (number, verb, title, of) in what {
        #[allow(clippy::cast_precision_loss)]
        let curve = |degree: usize| {
            rows.iter()
                .filter(|row| row.degree == degree)
                .map(|row| (row.events as f64, of(row).median * 1e3))
                .collect::<Vec<_>>()
        };
        let series = [2, 3, 4].into_iter().zip(COLOURS).map(|(degree, colour)| {
            line(format!("k = {degree}"), colour, Stroke::Marked, curve(degree))
        });
        #[allow(clippy::cast_precision_loss)]
        let sizes: Vec<f64> = rows.iter().map(|row| row.events as f64).collect();
        let (least, largest) =
            (sizes.iter().copied().fold(f64::INFINITY, f64::min), most(sizes.iter().copied()));
        let ticks: Vec<_> = [64, 256, 1024, 4096, 16_384, 65_536]
            .map(|tick: u32| (f64::from(tick), thousands(tick.into())))
            .to_vec();
        out.figure(
            &format!("fig{number}.png"),
            &Figure {
                title: title.to_owned(),
                subtitle: format!(
                    "MD5, events of 4 bytes; the median of {} repetitions (the paper: ten)",
                    measured.tree_runs
                ),
                x: Axis::logarithmic("events of the tree", least, largest.max(least * 2.0))
                    .with_ticks(
                        ticks
                            .into_iter()
                            .filter(|tick| tick.0 >= least && tick.0 <= largest)
                            .collect::<Vec<_>>(),
                    ),
                panels: vec![Panel {
                    y: Axis::linear(
                        &format!("nanoseconds {verb}, per packet"),
                        0.0,
                        most(rows.iter().map(|row| of(row).median * 1e3)) * 1.1,
                    ),
                    height: 1,
                    series: series.collect(),
                }],
            },
        )?;
        let mut table = Table::new(["events", "k = 2", "k = 3", "k = 4"]);
        let mut events: Vec<usize> = rows.iter().map(|row| row.events).collect();
        events.dedup();
        for &size in &events {
            let at = |degree| {
                let row = rows.iter().find(|row| row.degree == degree && row.events == size);
                row.map_or_else(String::new, |row| spread(of(row).times(1e3)))
            };
            table.row([thousands(size as u64), at(2), at(3), at(4)]);
        }
        let last = events.last().copied().unwrap_or(0);
        let texts = [2, 3, 4].map(|degree| {
            let row = rows.iter().find(|row| row.degree == degree && row.events == last);
            format!(
                "k = {degree} {}",
                row.map_or_else(String::new, |row| time(of(row).median * 1e3))
            )
        });
        let entry = Entry::new(&format!("sealing-figure-{number}"), title, COMMAND)
            .ours(format!("of {} events: {}", thousands(last as u64), texts.join(", ")))
            .replacement(format!("{MACHINE} Synthetic events, as in the paper."))
            .show(Shown::Figure(format!("fig{number}.png")))
            .show(Shown::Table(table))
            .data("fig11.csv");
        entries.push(if number == "11a" {
            entry
                .paper("a picture: stable in the number of events; k = 4 is faster than 2 and 3, \
                     because four digests of MD5 fill one of its blocks")
                .why(
                    "A tree of degree k has n / (k - 1) nodes. The paper counts one block for four \
                     digests, but MD5 adds padding, so 64 bytes need a second block. Including the \
                     compression for a leaf, k = 2, 3, 4 need 2, 1.5 and 1.67 compressions per event, so k = 3 is \
                     the minimum. The remaining differences are calls and copies.",
                )
        } else {
            entry
                .paper("a picture: grows with the logarithm of the events; k = 4 is fastest, because \
                     digests of one level are appended together")
                .why("A packet has (k - 1) log_k n digests. Here, each level takes a look-up and a copy, \
                     so fewer and longer copies are faster, as in the paper.")
        });
    }
    Ok(entries)
}
