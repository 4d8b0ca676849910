//! Writes the costs of authentication at a node: time (figures 3 and 4), bytes (figure 5) and
//! memory (tables I and II).

use std::fmt::Display;

use serde::Serialize;

use super::super::page::{Entry, Shown, numbered};
use super::super::text::BROADCAST;
use super::super::{Out, ReportError};
use super::{COMMAND, colour};
use crate::broadcast::bytes::{self, Bytes};
use crate::broadcast::times::{Times, Timing};
use crate::broadcast::{BLOCKS, MESSAGES, paper, ram};
use crate::figure::{Axis, Colour, Figure, Panel, Series, Stroke};
use crate::table::{Table, thousands};
use moteseal_core::signature::Algorithm;

/// The lengths of sequences over which the paper averages.
const LENGTHS: [u32; 5] = [20, 40, 60, 80, 100];
const SUITES: [(&str, Algorithm); 2] =
    [("Ed25519", Algorithm::Ed25519), ("ML-DSA-44", Algorithm::MlDsa44)];

/// A figure of times, at the sender or at a receiver: its name, its title, the time that it shows,
/// and the paper's statement about it.
struct Side {
    name: &'static str,
    title: &'static str,
    of: fn(&Timing) -> f64,
    claim: &'static str,
}

fn microseconds(value: f64) -> String {
    match value {
        1000.0.. => format!("{:.2} ms", value / 1000.0),
        10.0.. => format!("{value:.1} µs"),
        _ => format!("{value:.2} µs"),
    }
}

pub(super) fn times(
    times: &Times,
    out: &Out<'_>,
    entries: &mut Vec<Entry>,
) -> Result<String, ReportError> {
    out.rows("times.csv", &times.rows)?;
    let sides = [
        Side {
            name: "fig3",
            title: "Time per message at the sender (figure 3)",
            of: |timing| timing.sender_us,
            claim: "SIGS more than 3,000 ms; SA1 to SA10 60 ms at 100 messages",
        },
        Side {
            name: "fig4",
            title: "Time per message at a receiver (figure 4)",
            of: |timing| timing.receiver_us,
            claim: "SIGS more than 3,900 ms; HMAC 20 ms; SA1 to SA10 approach the time of HMAC",
        },
    ];
    let mut schemes: Vec<&str> = Vec::new();
    for row in &times.rows {
        if !schemes.contains(&row.scheme.as_str()) {
            schemes.push(&row.scheme);
        }
    }
    let mut text = format!("\n{}\n\n", BROADCAST.fill("times", &[("host", &times.host)]));
    for side in &sides {
        figure(times, &schemes, side, out)?;
        let mut table = Table::new(["scheme", "20 messages", "40", "60", "80", "100"]);
        for scheme in &schemes {
            let at = |messages| {
                times.rows.iter().find(|row| row.scheme == *scheme && row.messages == messages)
            };
            let cells = LENGTHS.map(|messages| {
                at(messages).map_or_else(String::new, |row| microseconds((side.of)(row)))
            });
            let [a, b, c, d, e] = cells;
            table.row([(*scheme).to_owned(), a, b, c, d, e]);
        }
        let at_100 = |scheme: &str| {
            let row =
                times.rows.iter().find(|row| row.scheme == scheme && row.messages == MESSAGES);
            format!(
                "{scheme} {}",
                row.map_or_else(|| "not measured".to_owned(), |row| microseconds((side.of)(row)))
            )
        };
        let number = side.name.trim_start_matches("fig");
        entries.push(
            Entry::new(
                &format!("broadcast-figure-{number}"),
                &numbered(number, side.title),
                COMMAND,
            )
            .paper(side.claim)
            .ours(format!(
                "at {MESSAGES} messages: {}; {}; {}; {}; the paper's own secp160r1: {}, {}",
                at_100("SIGS"),
                at_100("HMAC"),
                at_100("SA1"),
                at_100("SA10"),
                at_100("SIGS, the paper's"),
                at_100("SA10, the paper's")
            ))
            .why(BROADCAST.get("times entry why"))
            .replacement(BROADCAST.get("times entry replacement"))
            .show(Shown::Figure(format!("{}.png", side.name)))
            .show(Shown::Table(table.clone()))
            .data("times.csv"),
        );
        text += &BROADCAST.fill(
            "times side",
            &[
                ("title", &side.title),
                ("name", &side.name),
                ("claim", &side.claim),
                ("table", &table.markdown()),
            ],
        );
        text += "\n";
    }
    text += &format!("{}\n", BROADCAST.get("times why"));
    Ok(text)
}

fn figure(times: &Times, schemes: &[&str], side: &Side, out: &Out<'_>) -> Result<(), ReportError> {
    let values = || times.rows.iter().map(side.of).filter(|value| *value > 0.0);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let decade = |value: f64, up: bool| {
        10_f64.powf(if up { value.log10().ceil() } else { value.log10().floor() })
    };
    let series = schemes.iter().map(|scheme| {
        let points = times.rows.iter().filter(|row| row.scheme == *scheme);
        let points = points.map(|row| (f64::from(row.messages), (side.of)(row))).collect();
        let (base, stroke) = scheme
            .strip_suffix(", the paper's")
            .map_or((*scheme, Stroke::Marked), |base| (base, Stroke::Dashed));
        Series::new(*scheme, colour(base), stroke, points)
    });
    out.figure(
        &format!("{}.png", side.name),
        &Figure {
            title: side.title.to_owned(),
            subtitle: "messages of 20 bytes; the signature shared by all messages of the sequence"
                .to_owned(),
            x: Axis::linear("messages of the sequence", 0.0, 100.0)
                .with_ticks(LENGTHS.map(|n| (f64::from(n), n.to_string()))),
            panels: vec![Panel {
                y: Axis::logarithmic(
                    "microseconds",
                    decade(least.max(1e-3), false),
                    decade(most.max(1.0), true),
                ),
                height: 1,
                series: series.collect(),
            }],
        },
    )
}

/// A row of fig5.csv.
#[derive(Serialize)]
struct Line {
    suite: &'static str,
    scheme: String,
    messages: u32,
    paper_equation_7: f64,
    signature_digests_tags: f64,
    with_digests_of_8_bytes: f64,
    all_but_messages: f64,
    signature: u64,
    digests: u64,
    tags: u64,
}

pub(super) fn bytes(out: &Out<'_>, entries: &mut Vec<Entry>) -> Result<String, ReportError> {
    let mut lines = Vec::new();
    for (suite, algorithm) in SUITES {
        for per_block in BLOCKS {
            for messages in LENGTHS {
                lines.extend(
                    bytes::of(messages, per_block, algorithm).map(|bytes| line(suite, &bytes)),
                );
            }
        }
    }
    out.rows("fig5.csv", &lines)?;
    let curve = |scheme: &str, of: fn(&Line) -> f64| {
        let points = lines.iter().filter(|line| line.suite == "Ed25519" && line.scheme == scheme);
        points.map(|line| (f64::from(line.messages), of(line))).collect::<Vec<_>>()
    };
    let across = Axis::linear("messages of the chain", 0.0, 100.0)
        .with_ticks(LENGTHS.map(|n| (f64::from(n), n.to_string())));
    let names = BLOCKS.map(|per_block| format!("SA{per_block}"));
    let mut ours = vec![Series::level("SIGS, Ed25519", Colour::Purple, &across, 64.0)];
    ours.extend(names.iter().map(|name| {
        Series::new(
            name.clone(),
            colour(name),
            Stroke::Marked,
            curve(name, |line| line.signature_digests_tags),
        )
    }));
    let mut theirs = vec![
        Series::level("SIGS, the paper's", Colour::Purple, &across, f64::from(paper::SIGNATURE)),
        Series::level("HMAC, the paper's", Colour::Grey, &across, f64::from(paper::DIGEST)),
    ];
    theirs.extend(names.iter().map(|name| {
        Series::new(
            format!("{name}, equation 7"),
            colour(name),
            Stroke::Dashed,
            curve(name, |line| line.paper_equation_7),
        )
    }));
    out.figure(
        "fig5.png",
        &Figure {
            title: "Authenticator bytes per message (figure 5)".to_owned(),
            subtitle: "signature, digests and tags over the messages they authenticate; above with Ed25519 and 32-byte digests, below by the paper's equation".to_owned(),
            x: across.clone(),
            panels: vec![
                Panel { y: Axis::linear("bytes, ours", 0.0, 70.0), height: 1, series: ours },
                Panel { y: Axis::linear("bytes, the paper's", 0.0, 50.0), height: 1, series: theirs },
            ],
        },
    )?;
    let mut table = Table::new([
        "scheme",
        "the paper, equation 7",
        "ours, counted as in the paper",
        "ours with 8-byte digests",
        "ours, all frames",
        "ML-DSA-44, counted as in the paper",
        "ML-DSA-44, all frames",
    ]);
    for name in &names {
        let of = |suite: &str| {
            lines.iter().find(|line| {
                line.suite == suite && line.scheme == *name && line.messages == MESSAGES
            })
        };
        let (Some(ours), Some(lattice)) = (of("Ed25519"), of("ML-DSA-44")) else { continue };
        let cells = [
            ours.paper_equation_7,
            ours.signature_digests_tags,
            ours.with_digests_of_8_bytes,
            ours.all_but_messages,
            lattice.signature_digests_tags,
            lattice.all_but_messages,
        ];
        let [a, b, c, d, e, f] = cells.map(|value| format!("{value:.2}"));
        table.row([name.clone(), a, b, c, d, e, f]);
    }
    table.row([
        "SIGS".to_owned(),
        "44".to_owned(),
        "64".to_owned(),
        String::new(),
        String::new(),
        "2420".to_owned(),
        String::new(),
    ]);
    table.row([
        "HMAC".to_owned(),
        "8".to_owned(),
        "16 to 32".to_owned(),
        String::new(),
        String::new(),
        "needs no signature".to_owned(),
        String::new(),
    ]);
    let ours = |name: &str| {
        let line = lines.iter().find(|line| {
            line.suite == "Ed25519" && line.scheme == name && line.messages == MESSAGES
        });
        format!("{name} {:.2}", line.map_or(f64::NAN, |line| line.signature_digests_tags))
    };
    entries.push(
        Entry::new("broadcast-figure-5", "Figure 5: authenticator bytes per message", COMMAND)
            .paper(BROADCAST.get("figure 5 paper"))
            .ours(format!(
                "SIGS 64; of 100 messages {}, {}, {}, {}",
                ours("SA1"),
                ours("SA2"),
                ours("SA5"),
                ours("SA10")
            ))
            .why(BROADCAST.get("figure 5 why"))
            .show(Shown::Figure("fig5.png".to_owned()))
            .show(Shown::Table(table.clone()))
            .data("fig5.csv"),
    );
    let mut even = Table::new(["suite", "SA1", "SA2", "SA5", "SA10"]);
    for (suite, algorithm) in SUITES {
        let [a, b, c, d] = BLOCKS.map(|per_block| {
            bytes::break_even(per_block, algorithm)
                .map_or_else(|| "more than 1,000".to_owned(), |n| n.to_string())
        });
        even.row([suite.to_owned(), a, b, c, d]);
    }
    let tables: [(&str, &dyn Display); 2] =
        [("table", &table.markdown()), ("even", &even.markdown())];
    Ok(format!("\n{}", BROADCAST.fill("figure 5", &tables)))
}

fn line(suite: &'static str, bytes: &Bytes) -> Line {
    Line {
        suite,
        scheme: format!("SA{}", bytes.per_block),
        messages: bytes.messages,
        paper_equation_7: paper::bytes_a_message(bytes.messages, bytes.per_block.into()),
        signature_digests_tags: bytes.authenticators(),
        with_digests_of_8_bytes: bytes.short_authenticators(),
        all_but_messages: bytes.overhead(),
        signature: bytes.signature,
        digests: bytes.digests,
        tags: bytes.tags,
    }
}

/// A row of memory.csv.
#[derive(Serialize)]
struct Room {
    scheme: &'static str,
    side: &'static str,
    paper_rom: u32,
    paper_ram: u32,
    /// The bytes of flash on a Cortex-M3 (docs/footprint.md), with Ed25519.
    our_rom: Option<u64>,
    /// The bytes that authentication alone needs for hash states, digests and tags. At the sender
    /// they include the buffered messages, as in the paper.
    ours: Option<u64>,
    /// The bytes of a complete node, which also relays and repairs. They are the same at the sender
    /// and at a receiver.
    node: Option<u64>,
}

/// The measurements of docs/footprint.md.
const FOOTPRINT: &str = include_str!("../../../../../docs/footprint.csv");

/// Returns a measured number of bytes of a part on a Cortex-M3.
fn footprint(part: &str, what: &str) -> Option<u64> {
    let mut rows = csv::Reader::from_reader(FOOTPRINT.as_bytes());
    rows.records()
        .flatten()
        .find(|row| row.get(0) == Some(part) && row.get(1) == Some(what))
        .and_then(|row| row.get(3)?.parse().ok())
}

/// Returns the part of docs/footprint.md that does what a scheme does at a side.
fn part_of(scheme: &str, side: &str) -> &'static str {
    match (scheme, side) {
        ("SIGS", "sender") => "Ed25519, signing",
        ("SIGS", _) => "Ed25519, verifying",
        ("HMAC", _) => "HMAC-SHA-256 with a shared key",
        (_, "sender") => "sender of a chain, Ed25519",
        _ => "receiver of a chain, head verified with Ed25519",
    }
}

pub(super) fn memory(out: &Out<'_>, entries: &mut Vec<Entry>) -> Result<String, ReportError> {
    let mut rooms = Vec::new();
    let mut text = format!("\n{}\n", BROADCAST.get("memory"));
    for (table, side) in [("I", "sender"), ("II", "receiver")] {
        let mut shown = Table::new([
            "scheme",
            "the paper, ROM",
            "the paper, RAM",
            "ours, flash",
            "ours, RAM, authentication alone",
            "ours, RAM, node that relays and repairs",
        ]);
        for paper in paper::MEMORY {
            let (paper_rom, paper_ram) =
                if side == "sender" { paper.sender } else { paper.receiver };
            let per_block = paper.scheme.strip_prefix("SA").and_then(|number| number.parse().ok());
            let ours = match (per_block, side) {
                (Some(per_block), "sender") => ram::sender(MESSAGES, per_block),
                (Some(per_block), _) => ram::receiver(per_block),
                (None, _) => footprint(part_of(paper.scheme, side), "RAM"),
            };
            let our_rom = footprint(part_of(paper.scheme, side), "flash");
            let node = per_block.and_then(ram::node);
            let number = |bytes: Option<u64>| bytes.map_or_else(String::new, thousands);
            shown.row([
                paper.scheme.to_owned(),
                thousands(paper_rom.into()),
                thousands(paper_ram.into()),
                number(our_rom),
                number(ours),
                number(node),
            ]);
            rooms.push(Room {
                scheme: paper.scheme,
                side,
                paper_rom,
                paper_ram,
                our_rom,
                ours,
                node,
            });
        }
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for room in rooms.iter().filter(|room: &&Room| room.side == side) {
            theirs.push(format!("{} {}", room.scheme, thousands(room.paper_ram.into())));
            ours.extend(room.ours.map(|bytes| format!("{} {}", room.scheme, thousands(bytes))));
        }
        let number = if side == "sender" { 1 } else { 2 };
        entries.push(
            Entry::new(
                &format!("broadcast-table-{number}"),
                &format!("Table {table}: memory at the {side}"),
                COMMAND,
            )
            .paper(format!("bytes of RAM: {}", theirs.join(", ")))
            .ours(format!("bytes of state, authentication alone: {}", ours.join(", ")))
            .why(BROADCAST.get("memory entry why"))
            .replacement(
                BROADCAST
                    .fill("memory entry replacement", &[("testbed", &BROADCAST.get("testbed"))]),
            )
            .show(Shown::Table(shown.clone()))
            .data("memory.csv"),
        );
        let values: [(&str, &dyn Display); 3] =
            [("number", &table), ("side", &side), ("table", &shown.markdown())];
        text += &format!("\n{}", BROADCAST.fill("memory side", &values));
    }
    out.rows("memory.csv", &rooms)?;
    text += &format!("\n{}\n", BROADCAST.get("memory why"));
    Ok(text)
}
