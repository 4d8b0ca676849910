//! Figures 8 to 11 and 14: throughput.

use serde::Serialize;

use super::super::page::{Entry, Shown, missing};
use super::super::{Out, ReportError};
use super::{COMMAND, decades, digests, digits, fed, line, most, rate, rates, time};
use crate::figure::{Axis, Colour, Figure, Panel, Stroke};
use crate::seals::{ByRate, BySpace, Measured, Spread, WithBudget, paper};
use crate::table::{Table, percent, thousands};

/// The desktop of the paper, in place of which this machine stands.
const MACHINE: &str = "In place of the paper's desktop of 3.40 GHz, this machine.";

pub(super) fn write(measured: &Measured, out: &Out<'_>) -> Result<Vec<Entry>, ReportError> {
    let absent = "no recording is there";
    let mut entries = Vec::new();
    if measured.by_space.is_empty() {
        entries.push(missing("sealing-figure-8", TITLE_8, "", absent));
        entries.push(missing("sealing-figure-9", TITLE_9, "", absent));
        entries.push(missing("sealing-figure-10", TITLE_10, "", absent));
    } else {
        entries.push(figure8(measured, out)?);
        entries.push(figure9(measured, out)?);
        entries.push(figure10(measured, out)?);
    }
    entries.extend(figure11(measured, out)?);
    entries.push(if measured.with_budget.is_empty() {
        missing("sealing-figure-14", TITLE_14, "", absent)
    } else {
        figure14(measured, out)?
    });
    Ok(entries)
}

const TITLE_8: &str = "Figure 8: throughput by the room at the signer";
const TITLE_9: &str = "Figure 9: DTC at the receiver, by its cache";
const TITLE_10: &str = "Figure 10: verifying a part, by the room at the signer";
const TITLE_14: &str = "Figure 14: throughput with the sampling protocol";

/// A line of fig8.csv and fig12.csv.
#[derive(Serialize)]
struct Row8 {
    scheme: &'static str,
    suite: &'static str,
    levels: Option<u8>,
    units: f64,
    signed: f64,
    signed_least: f64,
    signed_most: f64,
    verified: f64,
    verified_least: f64,
    verified_most: f64,
}

/// The series of one scheme and suite.
pub(super) fn series_of<'a>(rows: &'a [BySpace], scheme: &str, suite: &str) -> Vec<&'a BySpace> {
    rows.iter().filter(|row| row.scheme == scheme && row.suite.starts_with(suite)).collect()
}

fn units_axis(most: f64) -> Axis {
    Axis::linear("room at the signer, in digests", 0.0, most.max(2.0))
}

fn figure8(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows = &measured.by_space;
    let csv: Vec<_> = rows
        .iter()
        .map(|row| Row8 {
            scheme: row.scheme,
            suite: row.suite,
            levels: row.levels,
            units: row.units,
            signed: row.signed.median,
            signed_least: row.signed.least,
            signed_most: row.signed.most,
            verified: row.verified.median,
            verified_least: row.verified.least,
            verified_most: row.verified.most,
        })
        .collect();
    out.rows("fig8.csv", &csv)?;
    let lines = [
        ("GSC", "DSA", "GSC, DSA-512 + MD5", Colour::Blue, Stroke::Marked),
        ("DTC", "DSA", "DTC, DSA-512 + MD5", Colour::Vermillion, Stroke::Marked),
        ("GSC", "Ed25519", "GSC, Ed25519 + SHA-256", Colour::Blue, Stroke::Dashed),
        ("DTC", "Ed25519", "DTC, Ed25519 + SHA-256", Colour::Vermillion, Stroke::Dashed),
    ];
    let product = |scheme: &str, levels: Option<u8>| {
        let found = rows.iter().find(|row| row.scheme == scheme && row.levels == levels);
        found.map_or((f64::NAN, f64::NAN), |row| (row.signed.median, row.verified.median))
    };
    let (star, tree) =
        (product("GSC, the product's", Some(16)), product("DTC, the product's", None));
    let x = units_axis(most(
        rows.iter().filter(|row| !row.scheme.contains("product")).map(|row| row.units),
    ));
    let panel = |label: &str, of: fn(&BySpace) -> f64, ours: &[(&str, Colour, f64)]| {
        let mut series: Vec<_> = lines
            .iter()
            .map(|&(scheme, suite, name, colour, stroke)| {
                let points = series_of(rows, scheme, suite)
                    .into_iter()
                    .map(|row| (row.units, of(row)))
                    .collect();
                line(name, colour, stroke, points)
            })
            .collect();
        let (from, to) = x.range();
        series.extend(ours.iter().map(|&(name, colour, level)| {
            line(name, colour, Stroke::Dotted, vec![(from, level), (to, level)])
        }));
        Panel {
            y: decades(
                label,
                series.iter().flat_map(|series| series.points.iter().map(|point| point.1)),
            ),
            height: 1,
            series,
        }
    };
    out.figure(
        "fig8.png",
        &Figure {
            title: TITLE_8.to_owned(),
            subtitle: format!(
                "{} events of {} epochs; one thread",
                thousands(measured.fed.events as u64),
                measured.fed.epochs
            ),
            panels: vec![
                panel(
                    "signed, events a second",
                    |row| row.signed.median,
                    &[
                        ("the product's star, 16 levels", Colour::Green, star.0),
                        ("the product's tree", Colour::Orange, tree.0),
                    ],
                ),
                panel(
                    "verified, events a second",
                    |row| row.verified.median,
                    &[("the product's star, 16 levels", Colour::Green, star.1)],
                ),
            ],
            x,
        },
    )?;
    let mut table =
        Table::new(["scheme", "suite", "room, digests", "signed a second", "verified a second"]);
    for row in rows {
        table.row([
            row.levels.map_or_else(
                || row.scheme.to_owned(),
                |levels| format!("{}, {levels} levels", row.scheme),
            ),
            row.suite.to_owned(),
            format!("{:.0}", row.units),
            rates(row.signed),
            rates(row.verified),
        ]);
    }
    let ends = |scheme: &str| {
        let at = series_of(rows, scheme, "DSA");
        let text = |row: Option<&&BySpace>| {
            row.map_or_else(String::new, |row| {
                format!("{} at {:.0} digests", rate(row.signed.median), row.units)
            })
        };
        format!("{scheme} {} to {}", text(at.first()), text(at.last()))
    };
    // What DTC signs of GSC's, in the least room and in the most.
    let (stars, trees) = (series_of(rows, "GSC", "DSA"), series_of(rows, "DTC", "DSA"));
    let share = |at: Option<(&&BySpace, &&BySpace)>| {
        at.map_or_else(
            || "nothing".to_owned(),
            |(star, tree)| {
                format!(
                    "{} at {:.0} digests",
                    percent(tree.signed.median / star.signed.median),
                    star.units
                )
            },
        )
    };
    let (first, last) =
        (share(stars.first().zip(trees.first())), share(stars.last().zip(trees.last())));
    Ok(Entry::new("sealing-figure-8", TITLE_8, COMMAND)
        .paper(
            "a picture: the memory of the signer limits DTC, in signing and in verifying; GSC has \
             full speed with any memory",
        )
        .ours(format!(
            "signed a second, DSA-512 + MD5: {}; {}; the product's star of 16 levels {}",
            ends("GSC"),
            ends("DTC"),
            rate(star.0)
        ))
        .why(format!(
            "A tree in u digests of memory has 2^u - 1 events a signature; a star signs once an \
             epoch, which has {} events here on average. DTC signs {first} and {last} of the rate \
             of GSC.",
            digits(super::events_an_epoch(measured))
        ))
        .stands_in(format!("{MACHINE} {}", fed(measured)))
        .show(Shown::Figure("fig8.png".to_owned()))
        .show(Shown::Table(table))
        .show(Shown::Text(
            "The product's state is counted in digests of 32 bytes. Its verifier hashes in vector \
             loops; the paper's schemes, implemented literally, process one event after the other."
                .to_owned(),
        ))
        .data("fig8.csv"))
}

#[derive(Serialize)]
struct Row9 {
    signer_units: usize,
    cache: usize,
    verified: f64,
    least: f64,
    most: f64,
}

const COLOURS: [Colour; 4] = [Colour::Blue, Colour::Vermillion, Colour::Green, Colour::Purple];

fn figure9(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows = &measured.by_cache;
    let csv: Vec<_> = rows
        .iter()
        .map(|row| Row9 {
            signer_units: row.signer,
            cache: row.cache,
            verified: row.verified.median,
            least: row.verified.least,
            most: row.verified.most,
        })
        .collect();
    out.rows("fig9.csv", &csv)?;
    let mut signers: Vec<usize> = rows.iter().map(|row| row.signer).collect();
    signers.dedup();
    // An empty cache stands at one half, since a logarithmic axis has no zero.
    #[allow(clippy::cast_precision_loss)]
    let place = |cache: usize| if cache == 0 { 0.5 } else { cache as f64 };
    let series: Vec<_> = signers
        .iter()
        .zip(COLOURS)
        .map(|(&signer, colour)| {
            let points = rows
                .iter()
                .filter(|row| row.signer == signer)
                .map(|row| (place(row.cache), row.verified.median))
                .collect();
            line(
                format!(
                    "signer with {signer} digests: {} events a signature",
                    (1_u64 << signer) - 1
                ),
                colour,
                Stroke::Marked,
                points,
            )
        })
        .collect();
    let largest = most(rows.iter().map(|row| place(row.cache))).max(4.0);
    let ticks =
        [0.5, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0].into_iter().filter(|&tick| tick <= largest);
    let x = Axis::logarithmic("cache at the receiver, in digests", 0.5, largest).with_ticks(
        ticks
            .map(|tick| (tick, if tick < 1.0 { "none".to_owned() } else { digits(tick) }))
            .collect::<Vec<_>>(),
    );
    out.figure(
        "fig9.png",
        &Figure {
            title: TITLE_9.to_owned(),
            subtitle: "DSA-512 + MD5; every event with its siblings, verified in order; caching stops when the cache is full"
                .to_owned(),
            x,
            panels: vec![Panel {
                y: Axis::linear(
                    "verified, thousands of events a second",
                    0.0,
                    most(rows.iter().map(|row| row.verified.median)) / 1e3 * 1.08,
                ),
                height: 1,
                series: series
                    .into_iter()
                    .map(|mut series| {
                        series.points.iter_mut().for_each(|point| point.1 /= 1e3);
                        series
                    })
                    .collect(),
            }],
        },
    )?;
    let mut table = Table::new(["digests at the signer", "cache", "verified a second"]);
    for row in rows {
        table.row([row.signer.to_string(), thousands(row.cache as u64), rates(row.verified)]);
    }
    let said = signers.iter().map(|&signer| {
        let at: Vec<_> = rows.iter().filter(|row| row.signer == signer).collect();
        let text = |row: Option<&&crate::seals::ByCache>| {
            row.map_or_else(String::new, |row| rate(row.verified.median))
        };
        format!("{} to {} at {signer} digests", text(at.first()), text(at.last()))
    });
    let quicker = signers.iter().filter(|&&signer| {
        let at = || rows.iter().filter(|row| row.signer == signer).map(|row| row.verified.median);
        at().next().zip(at().next_back()).is_some_and(|(first, last)| last > first)
    });
    let quicker = quicker.count();
    let median = |name: &str| {
        let found = measured.primitives.iter().find(|primitive| primitive.name == name);
        found.map_or(f64::NAN, |found| found.time.median)
    };
    Ok(Entry::new("sealing-figure-9", TITLE_9, COMMAND)
        .paper("a picture with three lines: more cached nodes give a higher rate, up to full speed; \
             below it, the events of a signer with less memory are verified faster, because its \
             cache is refreshed sooner")
        .ours(format!("events a second, without a cache to the largest: {}", said.collect::<Vec<_>>().join("; ")))
        .why(format!(
            "With the largest cache, the events of {quicker} of {} signers are verified faster than \
             without one. Whether the trees of a small signer are faster to verify depends on the \
             cost of a signature in digests: here one verification of DSA-512 takes as long as {} \
             digests of MD5, which small trees need often.",
            signers.len(),
            digits(median("DSA-512, verify") / median("MD5"))
        ))
        .stands_in(format!("{MACHINE} The paper's text does not state the memory of its three lines; here it is 4, \
             7 and 10 digests. {}", fed(measured)))
        .show(Shown::Figure("fig9.png".to_owned()))
        .show(Shown::Table(table))
        .data("fig9.csv"))
}

#[derive(Serialize)]
struct Row10 {
    scheme: &'static str,
    rate: f64,
    units: usize,
    unused: f64,
    verified: f64,
    least: f64,
    most: f64,
}

fn figure10(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows = &measured.by_rate;
    let csv: Vec<_> = rows
        .iter()
        .map(|row| Row10 {
            scheme: row.scheme,
            rate: row.rate,
            units: row.units,
            unused: row.unused,
            verified: row.verified.median,
            least: row.verified.least,
            most: row.verified.most,
        })
        .collect();
    out.rows("fig10.csv", &csv)?;
    let mut shares: Vec<f64> = rows.iter().map(|row| row.rate).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let of = |scheme: &'static str, share: f64| {
        rows.iter().filter(move |row| row.scheme == scheme && (row.rate - share).abs() < 1e-9)
    };
    #[allow(clippy::cast_precision_loss)]
    let series = |scheme: &'static str, stroke| {
        let of = &of;
        shares.iter().zip(COLOURS).map(move |(&share, colour)| {
            let points =
                of(scheme, share).map(|row| (row.units as f64, row.verified.median)).collect();
            line(format!("{scheme}, {:.0} %", 100.0 * share), colour, stroke, points)
        })
    };
    #[allow(clippy::cast_precision_loss)]
    let x = units_axis(most(rows.iter().map(|row| row.units as f64)));
    let y = || decades("wanted events a second", rows.iter().map(|row| row.verified.median));
    out.figure(
        "fig10.png",
        &Figure {
            title: TITLE_10.to_owned(),
            subtitle:
                "DSA-512 + MD5; events that the application wants, a second; above GSC, below DTC"
                    .to_owned(),
            x,
            panels: vec![
                Panel { y: y(), height: 1, series: series("GSC", Stroke::Marked).collect() },
                Panel { y: y(), height: 1, series: series("DTC", Stroke::Dashed).collect() },
            ],
        },
    )?;
    let mut table = Table::new([
        "scheme",
        "rate",
        "digests at the signer",
        "verified without use",
        "wanted events a second",
    ]);
    for row in rows {
        table.row([
            row.scheme.to_owned(),
            percent(row.rate),
            row.units.to_string(),
            percent(row.unused),
            rates(row.verified),
        ]);
    }
    // The least room from which on a star is as quick as it gets, within a tenth.
    let enough = |share: f64| {
        let best = most(of("GSC", share).map(|row| row.verified.median));
        let mut at: Vec<&ByRate> = of("GSC", share).collect();
        at.sort_by_key(|row| row.units);
        at.into_iter().find(|row| row.verified.median > 0.9 * best).map_or(0, |row| row.units)
    };
    let said = shares.iter().map(|&share| format!("{} at {}", enough(share), percent(share)));
    Ok(Entry::new("sealing-figure-10", TITLE_10, COMMAND)
        .paper("a picture: a higher sampling rate gives more throughput; a lower one needs more memory \
             at a GSC signer, and 7 digests are enough at 1 %; with 2 digests an application of 10 \
             % verifies a block of 50 %, with 3 one of 25 %")
        .ours(format!("digests from which on GSC is within a tenth of its best: {}", said.collect::<Vec<_>>().join(", ")))
        .why(
            "As in the paper, within the noise of a small share of events. At 1 % the one signature \
             of an epoch is most of the work, so memory saves less than the number of unused events \
             suggests.",
        )
        .stands_in(format!("{MACHINE} {}", fed(measured)))
        .show(Shown::Figure("fig10.png".to_owned()))
        .show(Shown::Table(table))
        .data("fig10.csv"))
}

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

fn figure11(measured: &Measured, out: &Out<'_>) -> Result<Vec<Entry>, ReportError> {
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
    /// Number, what is done, title, and which of the times.
    type Part = (&'static str, &'static str, &'static str, fn(&crate::seals::ByDegree) -> Spread);
    let what: [Part; 2] = [
        ("11a", "building", "Figure 11a: building a tree of degree k, a packet's share", |row| {
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
                    "MD5, events of 4 bytes; the median of {} runs (the paper's: of ten)",
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
                        &format!("nanoseconds {verb}, a packet"),
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
                row.map_or_else(String::new, |row| super::spread(of(row).times(1e3)))
            };
            table.row([thousands(size as u64), at(2), at(3), at(4)]);
        }
        let last = events.last().copied().unwrap_or(0);
        let said = [2, 3, 4].map(|degree| {
            let row = rows.iter().find(|row| row.degree == degree && row.events == last);
            format!(
                "k = {degree} {}",
                row.map_or_else(String::new, |row| time(of(row).median * 1e3))
            )
        });
        let entry = Entry::new(&format!("sealing-figure-{number}"), title, COMMAND)
            .ours(format!("of {} events: {}", thousands(last as u64), said.join(", ")))
            .stands_in(format!("{MACHINE} Made-up events, as in the paper."))
            .show(Shown::Figure(format!("fig{number}.png")))
            .show(Shown::Table(table))
            .data("fig11.csv");
        entries.push(if number == "11a" {
            entry
                .paper("a picture: stable in the number of events; k = 4 is faster than 2 and 3, \
                     because four digests of MD5 fill one of its blocks")
                .why(
                    "A tree of degree k has n / (k - 1) nodes. The paper counts one block for four \
                     digests, but MD5 pads: 64 bytes need a second block. By compressions, \
                     including the leaf's, k = 2, 3, 4 need 2, 1.5 and 1.67 an event, and k = 3 is \
                     the minimum; the remaining differences are calls and copies.",
                )
        } else {
            entry
                .paper("a picture: grows with the logarithm of the events; k = 4 is fastest, because \
                     digests of one level are appended together")
                .why("A packet has (k - 1) log_k n digests. A level costs a look-up and a copy here, \
                     so fewer and longer copies are faster, as in the paper.")
        });
    }
    Ok(entries)
}

#[derive(Serialize)]
struct Row14 {
    budget: u64,
    suite: &'static str,
    is_ours: bool,
    scheme: &'static str,
    signed: f64,
    signed_least: f64,
    signed_most: f64,
    verified: f64,
    verified_least: f64,
    verified_most: f64,
}

fn figure14(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows = &measured.with_budget;
    let csv: Vec<_> = rows
        .iter()
        .map(|row| Row14 {
            budget: row.budget,
            suite: row.suite,
            is_ours: row.is_ours,
            scheme: row.scheme,
            signed: row.signed.median,
            signed_least: row.signed.least,
            signed_most: row.signed.most,
            verified: row.verified.median,
            verified_least: row.verified.least,
            verified_most: row.verified.most,
        })
        .collect();
    out.rows("fig14.csv", &csv)?;
    let mut suites: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| {
        if !suites.contains(&row.suite) {
            suites.push(row.suite);
        }
    });
    #[allow(clippy::cast_precision_loss)]
    let place = |suite: &str| suites.iter().position(|name| *name == suite).unwrap_or(0) as f64;
    let bars = [
        ("GSC", 500, Colour::Blue, -0.27),
        ("DTC", 500, Colour::Vermillion, -0.09),
        ("GSC", 1000, Colour::Green, 0.09),
        ("DTC", 1000, Colour::Orange, 0.27),
    ];
    let panel = |label: &str, of: fn(&WithBudget) -> f64| Panel {
        y: Axis::linear(label, 0.0, most(rows.iter().map(of)) / 1e6 * 1.08),
        height: 1,
        series: bars
            .iter()
            .map(|&(scheme, budget, colour, beside)| {
                let points = rows.iter().filter(|row| row.scheme == scheme && row.budget == budget);
                let points = points.map(|row| (place(row.suite) + beside, of(row) / 1e6)).collect();
                line(
                    format!("{scheme}, budget {}", thousands(budget)),
                    colour,
                    Stroke::Bars,
                    points,
                )
            })
            .collect(),
    };
    #[allow(clippy::cast_precision_loss)]
    let x = Axis::linear(
        "signature and digest; the last three are the product's",
        -0.6,
        suites.len() as f64 - 0.4,
    )
    .with_ticks(suites.iter().map(|suite| (place(suite), short(suite))).collect::<Vec<_>>());
    out.figure(
        "fig14.png",
        &Figure {
            title: TITLE_14.to_owned(),
            subtitle:
                "above: events sent to the coordinator, signed; below: events saved, verified; one \
                 signature for each device and day"
                    .to_owned(),
            x,
            panels: vec![
                panel("signed, million events a second", |row| row.signed.median),
                panel("verified, million events a second", |row| row.verified.median),
            ],
        },
    )?;
    let mut table =
        Table::new(["budget", "suite", "scheme", "signed a second", "verified a second"]);
    for row in rows {
        table.row([
            thousands(row.budget),
            row.suite.to_owned(),
            row.scheme.to_owned(),
            rates(row.signed),
            rates(row.verified),
        ]);
    }
    let find = |suite: &str, scheme: &str| {
        rows.iter().find(|row| row.budget == 500 && row.suite == suite && row.scheme == scheme)
    };
    let lead = |star: f64, tree: f64| {
        let ahead = if star < tree { "DTC" } else { "GSC" };
        format!("{ahead} by {}", rate((star - tree).abs()))
    };
    let gap = |suite: &str| match (find(suite, "GSC"), find(suite, "DTC")) {
        (Some(star), Some(tree)) => format!(
            "{} signed, {} verified",
            lead(star.signed.median, tree.signed.median),
            lead(star.verified.median, tree.verified.median)
        ),
        _ => "not measured".to_owned(),
    };
    // In how many pairs of the paper's suites GSC is ahead.
    let pairs: Vec<_> = rows
        .iter()
        .filter(|row| !row.is_ours && row.scheme == "GSC")
        .filter_map(|star| {
            let is_same = |tree: &&WithBudget| {
                tree.scheme == "DTC" && tree.suite == star.suite && tree.budget == star.budget
            };
            Some((star, rows.iter().find(is_same)?))
        })
        .collect();
    let ahead = |of: fn(&WithBudget) -> f64| {
        pairs.iter().filter(|(star, tree)| of(star) > of(tree)).count()
    };
    let ahead = format!(
        "for {} pairs of budget and suite, GSC is faster in {} signed and {} verified",
        pairs.len(),
        ahead(|row| row.signed.median),
        ahead(|row| row.verified.median)
    );
    let each = match (measured.each, find("DSA-512 + MD5", "DTC")) {
        (Some((signed, verified)), Some(tree)) => format!(
            "sign-each by DSA-512 signs {} and verifies {} a second, {:.0} and {:.0} times fewer \
             than DTC",
            rate(signed),
            rate(verified),
            tree.signed.median / signed,
            tree.verified.median / verified
        ),
        _ => String::new(),
    };
    Ok(Entry::new("sealing-figure-14", TITLE_14, COMMAND)
        .paper(format!(
            "a picture: GSC is faster than DTC everywhere; at budget 500 with DSA the difference is \
             {} M events a second with SHA-256 and {} M with MD5; a smaller budget gives less \
             throughput; sign-each is more than 50 times slower",
            paper::GAPS.0 / 1e6,
            paper::GAPS.1 / 1e6
        ))
        .ours(format!("budget 500, DSA: the faster scheme is {} with SHA-256, {} with MD5; {ahead}; {each}", gap("DSA-512 + SHA-256"), gap("DSA-512 + MD5")))
        .why(format!(
            "The signature of a device and day is shared by fewer events if the budget is small. \
             Both schemes compute the sampling protocol's hash for every event, signed and \
             verified. DTC has memory for a whole day's tree here and then needs as many digests an \
             event as GSC to sign, as at the end of figure 8; a verifier also hashes siblings. {}",
            digests(measured)
        ))
        .stands_in(format!(
            "{MACHINE} The events are those of our simulation (table VII): {}. Only the events sent \
             are signed, as in the paper: the hash of an event that was not sent is not counted. A \
             mote of the product adds to its star what it sends, but adds every event to its tree; \
             here, and in verifying, the tree has the events that were sent. The product's star is \
             verified as a part of a seal that counts all of the day's events.",
            fed(measured)
        ))
        .show(Shown::Figure("fig14.png".to_owned()))
        .show(Shown::Table(table))
        .data("fig14.csv"))
}

/// A suite's name where room is scarce.
fn short(suite: &str) -> String {
    suite.replace("RSA-1024 + ", "RSA ").replace("DSA-512 + ", "DSA ").replace(" + SHA-256", "")
}
