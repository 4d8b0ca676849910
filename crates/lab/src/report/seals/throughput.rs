//! Writes figures 8 to 11 and 14, which show throughput.

mod budget;
mod degree;

use serde::Serialize;

use super::super::page::{Entry, Shown, missing};
use super::super::{Out, ReportError};
use super::{COMMAND, decades, digits, fed, line, most, rate, rates};
use crate::figure::{Axis, Colour, Figure, Panel, Stroke};
use crate::seals::{ByRate, BySpace, Measured};
use crate::table::{Table, percent, thousands};

/// The note that states what replaces the paper's desktop.
const MACHINE: &str = "This machine replaces the paper's desktop of 3.40 GHz.";

pub(super) fn write(measured: &Measured, out: &Out<'_>) -> Result<Vec<Entry>, ReportError> {
    let absent = "no recording is present";
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
    entries.extend(degree::figure11(measured, out)?);
    entries.push(if measured.with_budget.is_empty() {
        missing("sealing-figure-14", TITLE_14, "", absent)
    } else {
        budget::figure14(measured, out)?
    });
    Ok(entries)
}

const TITLE_8: &str = "Figure 8: throughput by the memory of the signer";
const TITLE_9: &str = "Figure 9: DTC at the receiver, by its cache";
const TITLE_10: &str = "Figure 10: verifying a share, by the memory of the signer";
const TITLE_14: &str = "Figure 14: throughput with the sampling protocol";

/// A row of fig8.csv and of fig12.csv.
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

/// Returns the rows of one scheme and suite.
pub(super) fn series_of<'a>(rows: &'a [BySpace], scheme: &str, suite: &str) -> Vec<&'a BySpace> {
    rows.iter().filter(|row| row.scheme == scheme && row.suite.starts_with(suite)).collect()
}

fn units_axis(most: f64) -> Axis {
    Axis::linear("memory of the signer, in digests", 0.0, most.max(2.0))
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
                    "signed, events per second",
                    |row| row.signed.median,
                    &[
                        ("the product's star, 16 levels", Colour::Green, star.0),
                        ("the product's tree", Colour::Orange, tree.0),
                    ],
                ),
                panel(
                    "verified, events per second",
                    |row| row.verified.median,
                    &[("the product's star, 16 levels", Colour::Green, star.1)],
                ),
            ],
            x,
        },
    )?;
    let mut table = Table::new([
        "scheme",
        "suite",
        "memory, digests",
        "signed per second",
        "verified per second",
    ]);
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
    // The throughput of DTC divided by the throughput of GSC when signing, with the least and with
    // the most memory.
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
            "signed per second, DSA-512 + MD5: {}; {}; the product's star of 16 levels {}",
            ends("GSC"),
            ends("DTC"),
            rate(star.0)
        ))
        .why(format!(
            "A tree with memory for u digests has 2^u - 1 events per signature; a star signs once per \
             epoch, which has {} events here on average. The signing rate of DTC, relative \
             to GSC, is {first} and {last}, with the least and the most memory.",
            digits(super::events_an_epoch(measured))
        ))
        .replacement(format!("{MACHINE} {}", fed(measured)))
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
    // An empty cache is drawn at one half because a logarithmic axis has no zero.
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
                    "signer with {signer} digests: {} events per signature",
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
                    "verified, thousands of events per second",
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
    let mut table = Table::new(["digests at the signer", "cache", "verified per second"]);
    for row in rows {
        table.row([row.signer.to_string(), thousands(row.cache as u64), rates(row.verified)]);
    }
    let texts = signers.iter().map(|&signer| {
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
        .ours(format!("events per second, from no cache to the largest cache: {}", texts.collect::<Vec<_>>().join("; ")))
        .why(format!(
            "With the largest cache, the events of {quicker} of {} signers are verified faster than \
             without a cache. Whether the trees of a signer with little memory are faster to verify \
             depends on the cost of a signature in digests: here one verification of DSA-512, which \
             small trees need often, takes as long as {} digests of MD5.",
            signers.len(),
            digits(median("DSA-512, verify") / median("MD5"))
        ))
        .replacement(format!("{MACHINE} The paper's text does not state the memory of its three lines; here it is 4, \
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
    let y = || decades("requested events per second", rows.iter().map(|row| row.verified.median));
    out.figure(
        "fig10.png",
        &Figure {
            title: TITLE_10.to_owned(),
            subtitle:
                "DSA-512 + MD5; requested events per second; GSC at the top, DTC at the bottom"
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
        "requested events per second",
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
    // The smallest memory with which a star reaches 90 % of its best throughput.
    let enough = |share: f64| {
        let best = most(of("GSC", share).map(|row| row.verified.median));
        let mut at: Vec<&ByRate> = of("GSC", share).collect();
        at.sort_by_key(|row| row.units);
        at.into_iter().find(|row| row.verified.median > 0.9 * best).map_or(0, |row| row.units)
    };
    let texts = shares.iter().map(|&share| format!("{} at {}", enough(share), percent(share)));
    Ok(Entry::new("sealing-figure-10", TITLE_10, COMMAND)
        .paper("a picture: a higher sampling rate gives more throughput; a lower one needs more memory \
             at a GSC signer, and 7 digests are enough at 1 %; an application that needs \
             10 % of the events verifies a block of 50 % if there are 2 digests, and a block of 25 % if there are 3")
        .ours(format!("digests from which on GSC is within a tenth of its best: {}", texts.collect::<Vec<_>>().join(", ")))
        .why(
            "Our result agrees with the paper's, within the noise of a small share of events. At 1 % \
             the single signature of an epoch is most of the work, so more memory saves less time \
             than the number of unused events suggests.",
        )
        .replacement(format!("{MACHINE} {}", fed(measured)))
        .show(Shown::Figure("fig10.png".to_owned()))
        .show(Shown::Table(table))
        .data("fig10.csv"))
}
