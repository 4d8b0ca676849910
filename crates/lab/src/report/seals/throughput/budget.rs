//! Writes figure 14: the throughput of both schemes with the sampling protocol.

use serde::Serialize;

use super::{MACHINE, TITLE_14};
use crate::figure::{Axis, Colour, Figure, Panel, Stroke};
use crate::report::page::{Entry, Shown};
use crate::report::seals::{COMMAND, digests, fed, line, most, rate, rates};
use crate::report::{Out, ReportError};
use crate::seals::{Measured, WithBudget, paper};
use crate::table::{Table, thousands};

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

pub(super) fn figure14(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
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
            .map(|&(scheme, budget, colour, offset)| {
                let points = rows.iter().filter(|row| row.scheme == scheme && row.budget == budget);
                let points = points.map(|row| (place(row.suite) + offset, of(row) / 1e6)).collect();
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
                panel("signed, million events per second", |row| row.signed.median),
                panel("verified, million events per second", |row| row.verified.median),
            ],
        },
    )?;
    let mut table =
        Table::new(["budget", "suite", "scheme", "signed per second", "verified per second"]);
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
    // Find the pairs of results with the paper's suites in which GSC is faster than DTC.
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
            "sign-each by DSA-512 signs {} and verifies {} per second, {:.0} and {:.0} times fewer \
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
             {} M events per second with SHA-256 and {} M with MD5; a smaller budget gives less \
             throughput; sign-each is more than 50 times slower",
            paper::GAPS.0 / 1e6,
            paper::GAPS.1 / 1e6
        ))
        .ours(format!("budget 500, DSA: the faster scheme is {} with SHA-256, {} with MD5; {ahead}; {each}", gap("DSA-512 + SHA-256"), gap("DSA-512 + MD5")))
        .why(format!(
            "The signature of a device and day is shared by fewer events if the budget is small. \
             Both schemes compute the sampling protocol's hash for every event, signed and \
             verified. Here DTC has memory for the tree of a complete day. Its signer then \
             computes as many digests per event as a GSC signer, as with the most memory in figure 8. \
             Its verifier also hashes siblings. {}",
            digests(measured)
        ))
        .replacement(format!(
            "{MACHINE} The events come from our simulation (table VII): {}. Only the events sent \
             are signed, as in the paper: the hash of an event that was not sent is not counted. A \
             mote of the product adds only the events that it sends to its star, but every event to \
             its tree. In this measurement, the tree also has only the events that were sent, for \
             signing and for verifying. The product's star is \
             verified as a share of a seal that counts all of the day's events.",
            fed(measured)
        ))
        .show(Shown::Figure("fig14.png".to_owned()))
        .show(Shown::Table(table))
        .data("fig14.csv"))
}

/// Shortens the name of a suite.
fn short(suite: &str) -> String {
    suite.replace("RSA-1024 + ", "RSA ").replace("DSA-512 + ", "DSA ").replace(" + SHA-256", "")
}
