//! Writes the costs of broadcast in the network: transmissions (figure 6), the delay of a block
//! (figure 7), and repair on one hop.

use std::fmt::Display;

use moteseal_broadcast::recovery::Timing;
use serde::Serialize;

use super::super::page::{Entry, Shown};
use super::super::text::BROADCAST;
use super::super::{Out, ReportError};
use super::{COMMAND, Effort, colour};
use crate::broadcast::chains::{self, Repeating, Sent};
use crate::broadcast::flood::{self, Scheme};
use crate::broadcast::hop;
use crate::broadcast::{ASSUMED, BLOCKS, LOSSES, RATE, paper};
use crate::chance::{Average, Seed};
use crate::figure::{Axis, Colour, Figure, Panel, Series, Stroke};
use crate::repair::{self, Repair};
use crate::table::{Table, percent};

/// Number of blocks over which the cost of repair is averaged.
const REPAIRED_BLOCKS: u32 = 2000;
/// The losses and block sizes in the table of repairs.
const REPAIR_LOSSES: [f64; 6] = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3];
const REPAIR_BLOCKS: [u32; 4] = [8, 16, 32, 64];
const RECEIVERS: usize = 6;
/// The suffix of a scheme's name if its nodes always repeat a new frame, like the paper's nodes.
const ALWAYS: &str = ", always repeated";
/// The schemes with this suffix that the figures show.
const ALWAYS_DRAWN: [&str; 2] = ["SA1, always repeated", "SA10, always repeated"];

/// One scheme at one loss: a row of fig6.csv.
#[derive(Serialize)]
struct Point {
    scheme: String,
    loss: f64,
    runs: u64,
    transmissions: f64,
    deviation: f64,
    least: f64,
    most: f64,
    /// Number of messages that a receiver misses at the end, on average.
    lacking_each: f64,
    /// Number of transmissions plus a request and an answer for each missing message. The paper
    /// counts in this way.
    repaired: f64,
    /// Number of frames that the paper counts: broadcasts, acknowledgements and replies.
    as_the_paper_counts: f64,
    /// Numbers of frames by kind. A flood has fragments only.
    certificates_and_heads: f64,
    fragments: f64,
    answers: f64,
    requests: f64,
    advertisements: f64,
    bytes: f64,
}

/// A row of fig7.csv.
#[derive(Serialize)]
struct Delay {
    scheme: String,
    loss: f64,
    runs: u64,
    mean_s: f64,
    deviation_of_runs_s: f64,
    median_s: f64,
    largest_s: f64,
}

#[allow(clippy::cast_precision_loss)]
fn as_f64(number: u64) -> f64 {
    number as f64
}

pub(super) fn write(
    out: &Out<'_>,
    seed: Seed,
    effort: Effort,
    progress: &mut dyn FnMut(&str),
    entries: &mut Vec<Entry>,
) -> Result<String, ReportError> {
    let (mut points, mut delays) = (Vec::new(), Vec::new());
    for (name, scheme) in
        [("HMAC", Scheme::Hmac), ("SIGS", Scheme::Sigs), ("uTESLA", Scheme::Tesla)]
    {
        progress(&format!("{name} in the testbed"));
        for loss in LOSSES {
            // All schemes use the same seeds, so their messages are sent at the same times.
            let runs: Vec<_> = (0..effort.runs)
                .map(|run| flood::run(scheme, loss, seed.derive("broadcast", run)))
                .collect();
            let sent: Vec<_> = runs
                .iter()
                .map(|run| Sent { fragments: run.transmissions, ..Sent::default() })
                .collect();
            let lacking: Average = runs.iter().map(flood::Outcome::lacking_each).collect();
            points.push(point(name.to_owned(), loss, &sent, lacking.mean()));
            if scheme == Scheme::Tesla {
                delays.push(delay(
                    name.to_owned(),
                    loss,
                    runs.iter().map(|run| &run.delays_ms[..]),
                ));
            }
        }
    }
    for (repeating, suffix) in [(Repeating::Suppressed, ""), (Repeating::Always, ALWAYS)] {
        for per_block in BLOCKS {
            let name = format!("SA{per_block}{suffix}");
            progress(&format!("{name} in the testbed"));
            for loss in LOSSES {
                let run =
                    |run| chains::run(per_block, repeating, loss, seed.derive("broadcast", run));
                let runs = (0..effort.runs)
                    .map(run)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(ReportError::Chain)?;
                let sent: Vec<_> = runs.iter().map(|run| run.sent).collect();
                let lacking: Average = runs.iter().map(chains::Outcome::lacking_each).collect();
                points.push(point(name.clone(), loss, &sent, lacking.mean()));
                delays.push(delay(name.clone(), loss, runs.iter().map(|run| &run.delays_ms[..])));
            }
        }
    }
    out.rows("fig6.csv", &points)?;
    out.rows("fig7.csv", &delays)?;
    let text =
        transmissions(&points, out, entries)? + &authentication_delay(&delays, out, entries)?;
    progress("repair on one hop");
    Ok(text + &repairs(out, seed)? + &real(seed, effort)?)
}

fn point(scheme: String, loss: f64, sent: &[Sent], lacking_each: f64) -> Point {
    let mean =
        |of: fn(&Sent) -> u64| sent.iter().map(|sent| as_f64(of(sent))).collect::<Average>().mean();
    let totals: Average = sent.iter().map(|sent| as_f64(sent.all())).collect();
    let all = || sent.iter().map(|sent| as_f64(sent.all()));
    Point {
        scheme,
        loss,
        runs: totals.count(),
        transmissions: totals.mean(),
        deviation: totals.deviation(),
        least: all().fold(f64::INFINITY, f64::min),
        most: all().fold(0.0, f64::max),
        lacking_each,
        repaired: totals.mean() + 2.0 * lacking_each * RECEIVERS as f64,
        as_the_paper_counts: mean(Sent::as_the_paper_counts),
        certificates_and_heads: mean(|sent| sent.statements),
        fragments: mean(|sent| sent.fragments),
        answers: mean(|sent| sent.answers),
        requests: mean(|sent| sent.requests),
        advertisements: mean(|sent| sent.advertisements),
        bytes: mean(|sent| sent.bytes),
    }
}

fn delay<'a>(scheme: String, loss: f64, runs: impl Iterator<Item = &'a [u64]>) -> Delay {
    let (mut means, mut all) = (Average::default(), Vec::new());
    for run in runs {
        means.add(run.iter().map(|&ms| as_f64(ms) / 1000.0).collect::<Average>().mean());
        all.extend_from_slice(run);
    }
    all.sort_unstable();
    let at = |place: Option<&u64>| place.map_or(f64::NAN, |&ms| as_f64(ms) / 1000.0);
    Delay {
        scheme,
        loss,
        runs: means.count(),
        mean_s: means.mean(),
        deviation_of_runs_s: means.deviation(),
        median_s: at(all.get(all.len() / 2)),
        largest_s: at(all.last()),
    }
}

/// Returns the different schemes of these rows, in order of their first row.
fn schemes<T>(lines: &[T], name: fn(&T) -> &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for line in lines {
        if !names.contains(&name(line)) {
            names.push(name(line));
        }
    }
    names
}

/// Returns the rows of one scheme.
fn named<'a, T>(lines: &'a [T], name: &'a str, of: fn(&T) -> &str) -> impl Iterator<Item = &'a T> {
    lines.iter().filter(move |line| of(line) == name)
}

fn transmissions(
    points: &[Point],
    out: &Out<'_>,
    entries: &mut Vec<Entry>,
) -> Result<String, ReportError> {
    let names = schemes(points, |point| &point.scheme);
    let of = |name| named(points, name, |point| &point.scheme);
    let across = Axis::linear("probability that a receiver misses a transmission", 0.0, 0.3);
    let mut series: Vec<_> = names
        .iter()
        // SIGS floods its messages in the same way as HMAC, so one line shows both.
        .filter(|name| **name != "SIGS" && (!name.ends_with(ALWAYS) || ALWAYS_DRAWN.contains(name)))
        .map(|name| {
            let label = if *name == "HMAC" { "HMAC and SIGS, no repair" } else { *name };
            let stroke = if name.ends_with(ALWAYS) { Stroke::Dashed } else { Stroke::Marked };
            Series::new(
                label,
                colour(name),
                stroke,
                of(name).map(|point| (point.loss, point.transmissions)).collect(),
            )
        })
        .collect();
    series.push(Series::new(
        "HMAC, 2 for each missing",
        Colour::Grey,
        Stroke::Dashed,
        of("HMAC").map(|point| (point.loss, point.repaired)).collect(),
    ));
    series.push(Series::new(
        "the paper's SA10: 741",
        Colour::Purple,
        Stroke::Dots,
        vec![(paper::SA10_LOSS, f64::from(paper::SA10_TRANSMISSIONS))],
    ));
    series.push(Series::level(
        "700: each node once",
        Colour::Grey,
        &across,
        f64::from(paper::BROADCASTS),
    ));
    let most =
        points.iter().map(|point| point.transmissions.max(point.repaired)).fold(0.0, f64::max);
    out.figure(
        "fig6.png",
        &Figure {
            title: "Transmissions of 100 messages, by loss (figure 6)".to_owned(),
            subtitle: format!(
                "seven nodes, links assumed: {ASSUMED}; all transmissions of all nodes until every node has every message"
            ),
            x: across,
            panels: vec![Panel { y: Axis::linear("transmissions", 500.0, most * 1.05), height: 1, series }],
        },
    )?;
    let mut table = Table::new([
        "scheme",
        "0",
        "0.05",
        "0.1",
        "0.15",
        "0.2",
        "0.25",
        "0.3",
        "messages missing per node at 0.2",
        "the paper at 0.2",
    ]);
    for name in names.iter().copied() {
        let cells: Vec<_> = LOSSES
            .iter()
            .map(|loss| {
                at_loss(of(name), *loss).map_or_else(String::new, |point| {
                    format!("{:.0} ± {:.0}", point.transmissions, point.deviation)
                })
            })
            .collect();
        let [a, b, c, d, e, f, g] = <[String; 7]>::try_from(cells).unwrap_or_default();
        let lacking = at_loss(of(name), 0.2)
            .map_or_else(String::new, |point| format!("{:.1}", point.lacking_each));
        let theirs = match name {
            _ if name.strip_suffix(ALWAYS).unwrap_or(name) == "SA10" => "741".to_owned(),
            _ if name.starts_with("SA") => "more than 741".to_owned(),
            "HMAC" => "each node misses about 10; their repair takes 120".to_owned(),
            _ => String::new(),
        };
        table.row([name.to_owned(), a, b, c, d, e, f, g, lacking, theirs]);
    }
    let mut kinds = Table::new([
        "at loss 0.2",
        "counted as in the paper",
        "fragments",
        "answers",
        "requests",
        "certificates and heads",
        "advertisements",
        "bytes",
    ]);
    for name in names.iter().copied().filter(|name| name.starts_with("SA")) {
        if let Some(point) = at_loss(of(name), 0.2) {
            let values = [
                point.as_the_paper_counts,
                point.fragments,
                point.answers,
                point.requests,
                point.certificates_and_heads,
                point.advertisements,
                point.bytes,
            ];
            let [a, b, c, d, e, f, g] = values.map(|value| format!("{value:.0}"));
            kinds.row([name.to_owned(), a, b, c, d, e, f, g]);
        }
    }
    let at = |name: &str| {
        let point =
            points.iter().find(|point| point.scheme == name && (point.loss - 0.2).abs() < 1e-9);
        point.map_or_else(
            || format!("{name} not run"),
            |point| format!("{name} {:.0} ± {:.0}", point.transmissions, point.deviation),
        )
    };
    entries.push(
        Entry::new("broadcast-figure-6", "Figure 6: transmissions against loss", COMMAND)
            .paper(BROADCAST.get("figure 6 paper"))
            .ours(format!(
                "loss 0.2: {}, {}, {}, {}",
                at("SA1"),
                at("SA10"),
                at("SA10, always repeated"),
                at("HMAC")
            ))
            .why(BROADCAST.get("figure 6 why"))
            .replacement(BROADCAST.get("testbed"))
            .show(Shown::Figure("fig6.png".to_owned()))
            .show(Shown::Table(table.clone()))
            .data("fig6.csv"),
    );
    let runs = points.first().map_or(0, |point| point.runs);
    let values: [(&str, &dyn Display); 3] =
        [("runs", &runs), ("table", &table.markdown()), ("kinds", &kinds.markdown())];
    Ok(format!("\n{}\n", BROADCAST.fill("figure 6", &values)))
}

fn at_loss<'a>(mut points: impl Iterator<Item = &'a Point>, loss: f64) -> Option<&'a Point> {
    points.find(|point| (point.loss - loss).abs() < 1e-9)
}

fn authentication_delay(
    delays: &[Delay],
    out: &Out<'_>,
    entries: &mut Vec<Entry>,
) -> Result<String, ReportError> {
    let names = schemes(delays, |delay| &delay.scheme);
    let of = |name| named(delays, name, |delay| &delay.scheme);
    let across = Axis::linear("probability that a receiver misses a transmission", 0.0, 0.3);
    let shown = names.iter().filter(|name| !name.ends_with(ALWAYS));
    let series = shown.map(|name| {
        Series::new(
            *name,
            colour(name),
            Stroke::Marked,
            of(name).map(|delay| (delay.loss, delay.mean_s)).collect(),
        )
    });
    let most = delays.iter().map(|delay| delay.mean_s).fold(1.0, f64::max);
    out.figure(
        "fig7.png",
        &Figure {
            title: "Delay to authenticate a block, by loss (figure 7)".to_owned(),
            subtitle: format!("from a block's first message at a receiver to its verification; links assumed: {ASSUMED}"),
            x: across,
            panels: vec![Panel { y: Axis::linear("seconds, mean", 0.0, most * 1.1), height: 1, series: series.collect() }],
        },
    )?;
    let mut table = Table::new([
        "scheme",
        "expected without loss",
        "0",
        "0.05",
        "0.1",
        "0.15",
        "0.2",
        "0.25",
        "0.3",
    ]);
    for name in names {
        let cells: Vec<_> = of(name).map(|delay| format!("{:.1} s", delay.mean_s)).collect();
        let [a, b, c, d, e, f, g] = <[String; 7]>::try_from(cells).unwrap_or_default();
        let expected = name.strip_prefix("SA").and_then(|number| number.parse::<u32>().ok());
        let expected = expected.map_or_else(String::new, |per_block| {
            format!("{:.0} s", f64::from(per_block - 1) / RATE)
        });
        table.row([name.to_owned(), expected, a, b, c, d, e, f, g]);
    }
    let at = |name: &str, loss: f64| {
        let delay =
            delays.iter().find(|delay| delay.scheme == name && (delay.loss - loss).abs() < 1e-9);
        delay.map_or(f64::NAN, |delay| delay.mean_s)
    };
    let range = |name: &str| format!("{name} {:.1} to {:.1} s", at(name, 0.0), at(name, 0.3));
    entries.push(
        Entry::new(
            "broadcast-figure-7",
            "Figure 7: delay to authenticate a block, by loss",
            COMMAND,
        )
        .paper(BROADCAST.get("figure 7 paper"))
        .ours(format!(
            "without loss to loss 0.3: {}, {}, {}",
            range("SA2"),
            range("SA5"),
            range("SA10")
        ))
        .why(BROADCAST.get("figure 7 why"))
        .replacement(BROADCAST.get("testbed"))
        .show(Shown::Figure("fig7.png".to_owned()))
        .show(Shown::Table(table.clone()))
        .data("fig7.csv"),
    );
    Ok(format!("\n{}\n", BROADCAST.fill("figure 7", &[("table", &table.markdown())])))
}

/// A row of repair.csv.
#[derive(Serialize)]
struct Repaired {
    loss: f64,
    block: u32,
    receivers: usize,
    plain: f64,
    coded: f64,
    ideal: f64,
    plain_rounds: f64,
    coded_rounds: f64,
    ideal_rounds: f64,
}

fn repairs(out: &Out<'_>, seed: Seed) -> Result<String, ReportError> {
    let mut lines = Vec::new();
    let mut table = Table::new(["loss", "block of 8", "16", "32", "64"]);
    for loss in REPAIR_LOSSES {
        let cells = REPAIR_BLOCKS.map(|block| {
            let [plain, coded, ideal] = Repair::ALL
                .map(|repair| repair::cost(repair, block, RECEIVERS, loss, REPAIRED_BLOCKS, seed));
            lines.push(Repaired {
                loss,
                block,
                receivers: RECEIVERS,
                plain: plain.sent,
                coded: coded.sent,
                ideal: ideal.sent,
                plain_rounds: plain.rounds,
                coded_rounds: coded.rounds,
                ideal_rounds: ideal.rounds,
            });
            format!("{:.2} / {:.2} / {:.2}", plain.sent, coded.sent, ideal.sent)
        });
        let [a, b, c, d] = cells;
        table.row([percent(loss), a, b, c, d]);
    }
    out.rows("repair.csv", &lines)?;
    Ok(format!("\n{}", BROADCAST.fill("repair", &[("table", &table.markdown())])))
}

/// Returns a table of the simulated hop that is compared with real UDP.
fn real(seed: Seed, effort: Effort) -> Result<String, ReportError> {
    let mut table = Table::new(["loss", "messages per block", "single leaves", "repairs"]);
    for (loss, per_block) in
        [(0.0, 1), (0.1, 1), (0.2, 1), (0.0, 10), (0.1, 10), (0.2, 10), (0.1, 32), (0.2, 32)]
    {
        let cell = |gather_ms| -> Result<String, ReportError> {
            let mut simulated = Average::default();
            for run in 0..effort.runs {
                let sent = hop::simulated(loss, per_block, gather_ms, seed.derive("hop", run))
                    .map_err(ReportError::Chain)?;
                sent.into_iter().for_each(|sent| simulated.add(sent));
            }
            Ok(format!("{:.2} ± {:.2}", simulated.mean(), simulated.deviation()))
        };
        let (single, repairs) = (cell(0)?, cell(Timing::LAN.gather_ms)?);
        table.row([percent(loss), per_block.to_string(), single, repairs]);
    }
    Ok(format!("\n{}", BROADCAST.fill("real udp", &[("table", &table.markdown())])))
}
