//! Writes results that the papers do not have: the epoch length from which ML-DSA-44 is affordable,
//! the RAM that finer sampling needs, and the bytes on the uplink compared with other formats.

use serde::Serialize;

use super::super::page::{Entry, Shown};
use super::super::{Out, ReportError};
use super::{COMMAND, decades, digits, line, most, spread};
use crate::figure::{Axis, Colour, Figure, Panel, Stroke};
use crate::seals::Measured;
use crate::table::{Table, rounded, thousands};

pub(super) fn write(measured: &Measured, out: &Out<'_>) -> Result<Vec<Entry>, ReportError> {
    Ok(vec![by_epoch(measured, out)?, resolution(measured, out)?, uplink(measured, out)?])
}

#[derive(Serialize)]
struct Length {
    suite: &'static str,
    events: u64,
    overhead_bytes: f64,
    median_ns: f64,
    least_ns: f64,
    most_ns: f64,
}

const SUITES: [(&str, Colour); 3] =
    [("Ed25519", Colour::Blue), ("P-256", Colour::Green), ("ML-DSA-44", Colour::Vermillion)];

fn by_epoch(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows = &measured.by_epoch;
    let csv: Vec<_> = rows
        .iter()
        .map(|row| Length {
            suite: row.suite,
            events: row.events,
            overhead_bytes: row.bytes,
            median_ns: row.time.median,
            least_ns: row.time.least,
            most_ns: row.time.most,
        })
        .collect();
    out.rows("epoch.csv", &csv)?;
    #[allow(clippy::cast_precision_loss)]
    let series = |of: fn(&crate::seals::ByEpoch) -> f64| {
        SUITES.map(|(suite, colour)| {
            let points = rows
                .iter()
                .filter(|row| row.suite == suite)
                .map(|row| (row.events as f64, of(row)))
                .collect();
            line(suite, colour, Stroke::Marked, points)
        })
    };
    #[allow(clippy::cast_precision_loss)]
    let x = decades("events of an epoch", rows.iter().map(|row| row.events as f64));
    let (from, to) = x.range();
    let mut bytes: Vec<_> = series(|row| row.bytes).into();
    bytes.push(line(
        "a bare Ed25519 signature per event",
        Colour::Grey,
        Stroke::Dotted,
        vec![(from, 64.0), (to, 64.0)],
    ));
    bytes.push(line(
        "one byte per event",
        Colour::Black,
        Stroke::Dotted,
        vec![(from, 1.0), (to, 1.0)],
    ));
    let times: Vec<_> = series(|row| row.time.median).into();
    let panel = |label: &str, series: Vec<crate::figure::Series>| Panel {
        y: decades(
            label,
            series.iter().flat_map(|series| series.points.iter().map(|point| point.1)),
        ),
        height: 1,
        series,
    };
    out.figure(
        "epoch.png",
        &Figure {
            title: "Overhead and time of each suite, by the length of an epoch".to_owned(),
            subtitle:
                "the product's star of 16 levels, records of 4 bytes; bytes on the uplink without \
                 the records, and sealing time"
                    .to_owned(),
            panels: vec![
                panel("overhead, bytes per event", bytes),
                panel("sealing, nanoseconds per event", times),
            ],
            x,
        },
    )?;
    let mut table = Table::new([
        "events of an epoch",
        "suite",
        "overhead, bytes per event",
        "sealing one event",
    ]);
    for row in rows {
        table.row([
            thousands(row.events),
            row.suite.to_owned(),
            format!("{:.3}", row.bytes),
            spread(row.time),
        ]);
    }
    // The bytes of a seal hardly depend on the number of events. The break-even therefore follows
    // from the largest measured epoch.
    #[allow(clippy::cast_precision_loss)]
    let per_epoch = |suite: &str| {
        rows.iter()
            .filter(|row| row.suite == suite)
            .max_by_key(|row| row.events)
            .map_or(f64::NAN, |row| row.bytes * row.events as f64)
    };
    let lattice = per_epoch("ML-DSA-44");
    Ok(Entry::new("beyond-epoch", "Overhead against epoch length, for each suite", COMMAND)
        .paper("not in the paper")
        .ours(format!(
            "bytes per epoch: Ed25519 {}, P-256 {}, ML-DSA-44 {}; per event, ML-DSA-44 costs less \
             than an Ed25519 signature from {} events on, and less than a byte from {} on",
            digits(per_epoch("Ed25519")),
            digits(per_epoch("P-256")),
            digits(lattice),
            thousands(rounded((lattice / 64.0).ceil())),
            thousands(rounded(lattice.ceil()))
        ))
        .why("All events of an epoch share one signature of 2,420 bytes: at one reading per minute, an \
             epoch of a day costs less than two bytes per reading.")
        .show(Shown::Figure("epoch.png".to_owned()))
        .show(Shown::Table(table))
        .data("epoch.csv"))
}

#[derive(Serialize)]
struct Resolution {
    levels: u32,
    finest_rate: f64,
    state_bytes: usize,
    ram_counted: Option<u64>,
}

fn resolution(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    use moteseal_seal::Star;
    let sizes = [
        (2, size_of::<Star<2>>()),
        (4, size_of::<Star<4>>()),
        (8, size_of::<Star<8>>()),
        (12, size_of::<Star<12>>()),
        (16, size_of::<Star<16>>()),
        (20, size_of::<Star<20>>()),
        (24, size_of::<Star<24>>()),
        (32, size_of::<Star<32>>()),
    ];
    let footprint = measured.footprint.as_ref();
    let rows: Vec<_> = sizes
        .iter()
        .map(|&(levels, size)| Resolution {
            levels,
            finest_rate: 0.5_f64.powi(i32::try_from(levels).unwrap_or(32) - 1),
            state_bytes: size,
            ram_counted: footprint.and_then(|footprint| footprint.ram_of_levels(levels)),
        })
        .collect();
    out.rows("resolution.csv", &rows)?;
    #[allow(clippy::cast_precision_loss)]
    let state = rows.iter().map(|row| (f64::from(row.levels), row.state_bytes as f64)).collect();
    #[allow(clippy::cast_precision_loss)]
    let counted: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((f64::from(row.levels), row.ram_counted? as f64)))
        .collect();
    let papers =
        rows.iter().map(|row| (f64::from(row.levels), 32.0 * f64::from(row.levels))).collect();
    let mut series = vec![
        line("the product's star", Colour::Blue, Stroke::Marked, state),
        line(
            "the paper's star, a digest of 32 bytes per level",
            Colour::Grey,
            Stroke::Dashed,
            papers,
        ),
    ];
    if !counted.is_empty() {
        series.push(line(
            "RAM of the component on a Cortex-M3",
            Colour::Green,
            Stroke::Marked,
            counted.clone(),
        ));
    }
    #[allow(clippy::cast_precision_loss)]
    let top = most(
        rows.iter().map(|row| row.state_bytes as f64).chain(counted.iter().map(|point| point.1)),
    );
    out.figure(
        "resolution.png",
        &Figure {
            title: "Memory by sampling resolution".to_owned(),
            subtitle: "a star of L levels can be sampled down to a rate of 2^-(L-1)".to_owned(),
            x: Axis::linear("levels", 0.0, 32.0).with_ticks(
                [2, 4, 8, 12, 16, 20, 24, 32]
                    .map(|level: u32| (f64::from(level), level.to_string())),
            ),
            panels: vec![Panel {
                y: Axis::linear("bytes of state", 0.0, top * 1.08),
                height: 1,
                series,
            }],
        },
    )?;
    let mut table =
        Table::new(["levels", "finest rate", "bytes of state", "RAM on a Cortex-M3, counted"]);
    for row in &rows {
        table.row([
            row.levels.to_string(),
            format!("1/{}", thousands(1_u64 << (row.levels - 1))),
            thousands(row.state_bytes as u64),
            row.ram_counted.map_or_else(String::new, thousands),
        ]);
    }
    let entry = Entry::new("beyond-resolution", "RAM against sampling resolution", COMMAND)
        .paper("not measured; 7 digests are enough at a rate of 1 %")
        .ours(format!(
            "{} bytes at 8 levels (1/128), {} at 16, {} at 32",
            thousands(sizes[2].1 as u64),
            thousands(sizes[4].1 as u64),
            thousands(sizes[7].1 as u64)
        ))
        .why(
            "A level of our star keeps its incomplete block of 64 bytes in addition to its hash \
             state, so an event takes a fraction of one compression; the paper's star keeps a digest and \
             computes three compressions per event.",
        )
        .show(Shown::Figure("resolution.png".to_owned()))
        .show(Shown::Table(table))
        .data("resolution.csv");
    Ok(if footprint.is_some() {
        entry
    } else {
        entry.replacement(
            "`docs/footprint.csv` is absent. The numbers are the sizes of the types on this \
             64-bit machine. For a star they differ from the sizes on a Cortex-M3 only in padding.",
        )
    })
}

fn uplink(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let rows = &measured.uplink;
    out.rows("uplink.csv", rows)?;
    let mut table =
        Table::new(["format", "payload, bytes", "on the uplink, bytes per event", "from"]);
    for row in rows {
        table.row([
            row.format.clone(),
            row.payload.to_string(),
            format!("{:.2}", row.bytes),
            row.from.as_str().to_owned(),
        ]);
    }
    let of = |format: &str, payload| {
        let found =
            rows.iter().find(|row| row.payload == payload && row.format.starts_with(format));
        found.map_or_else(|| "none".to_owned(), |row| format!("{:.2}", row.bytes))
    };
    Ok(Entry::new("beyond-uplink", "Bytes per event on the uplink", COMMAND)
        .paper("table V: sign-each 132, the others 4.43 to 4.45, for records of 4 bytes")
        .ours(format!(
            "for 3 bytes of payload: star of 298 events {}, of 60 {}; sign-each {}, the \
             arithmetical minimum; a comparable product 90, by its own statement",
            of("star of 298", 3),
            of("star of 60", 3),
            of("sign-each", 3)
        ))
        .why(
            "An envelope and a signature are sent once per epoch, not once per event. In return, no \
             event can be proven before its epoch is sealed.",
        )
        .replacement(
            "The comparable product was not measured; its 90 bytes for 3 bytes of payload are its \
             own statement.",
        )
        .show(Shown::Table(table))
        .data("uplink.csv"))
}
