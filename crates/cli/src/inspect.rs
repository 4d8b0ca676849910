//! `moteseal inspect`: shows the items of a bundle or proof without verifying it.

use std::io::{self, Read as _};
use std::path::PathBuf;

use clap::Args;
use moteseal_client::bundles::StreamFile;
use moteseal_core::cbor::{DecodeError, Scanner};
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::schema::Schema;
use moteseal_seal::stream::{Item, MAX_ITEM, Open, Part, Select};
use moteseal_verify::ReadErrorKind;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::files::likeness;
use crate::progress::{bytes, count, thousands};
use crate::terminal::{Stdout, diagnostic, is_json};
use crate::verify::open;

/// Show the items of a bundle (.mseal) or proof (.mproof). Verifies nothing; use `moteseal verify`
/// for that.
#[derive(Args, Debug)]
#[command(after_help = "Example: moteseal inspect bundles/dev1-0000000000.mseal")]
pub(crate) struct Arguments {
    /// The bundle or proof
    file: PathBuf,
}

/// The position in a device's chain, for the device that the last open item names.
#[derive(Clone, Copy, Default)]
struct At {
    /// The index and epoch of the last part. Before the first part, the index and epoch that the
    /// open item states.
    last: Option<(SealIndex, EpochNumber)>,
}

impl At {
    /// Returns the index and epoch of the next part. The additions saturate, because unverified
    /// values may overflow.
    fn step(&mut self, part: &Part<'_>) -> (u32, u64) {
        let (index, epoch) = match self.last {
            Some((index, epoch)) => (
                index.0.saturating_add(1).saturating_add(part.skipped),
                epoch.0.saturating_add(part.advance),
            ),
            None => (part.skipped, part.advance),
        };
        self.last = Some((SealIndex(index), EpochNumber(epoch)));
        (index, epoch)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut items = Items::new(open(&arguments.file)?);
    let mut out = Stdout::lock();
    let (mut position, mut number, mut at) = (0, 0, At::default());
    while out.is_open() {
        let undecoded = |cause: &dyn std::fmt::Display| {
            let like = if position == 0 { likeness(&arguments.file) } else { String::new() };
            Failure::refused(format_args!(
                "{}: item {number} at byte {position}: {cause}{like}",
                arguments.file.display()
            ))
        };
        let bytes = match items.next() {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break,
            Err(Unread::File(error)) => return Err(Failure::file("read", &arguments.file, &error)),
            Err(Unread::Item(error)) => return Err(undecoded(&error.named())),
            Err(Unread::TooLong) => return Err(undecoded(&ReadErrorKind::RunTooLong.named())),
        };
        let length = bytes.len();
        let item = Item::decode_whole(bytes).map_err(|error| undecoded(&error.named()))?;
        if let Item::Open(open) = &item {
            at.last = open.last;
        }
        let step = if let Item::Part(part) = &item { at.step(part) } else { (0, 0) };
        if is_json() {
            out.line(object(&item, step, length))?;
        } else {
            for (i, line) in lines(&item, step, length).iter().enumerate() {
                out.line(format_args!("{}{line}", if i == 0 { "" } else { "          " }))?;
            }
        }
        position += length as u64;
        number += 1;
    }
    if !is_json() {
        diagnostic(format_args!(
            "{}, {}; none of it is verified",
            count(number, "item"),
            bytes(position)
        ));
    }
    Ok(())
}

/// The items of a stream, in order. The buffer holds at most the longest item that a stream may
/// have.
struct Items {
    stream: StreamFile,
    buffer: Vec<u8>,
    /// The offset of the next item in the buffer.
    at: usize,
}

/// Why there is no next item.
enum Unread {
    File(io::Error),
    Item(DecodeError),
    TooLong,
}

impl Items {
    const fn new(stream: StreamFile) -> Self {
        Self { stream, buffer: Vec::new(), at: 0 }
    }

    /// Returns the bytes of the next item, or `None` at the end of the stream.
    fn next(&mut self) -> Result<Option<&[u8]>, Unread> {
        let mut scanner = Scanner::default();
        let mut chunk = [0; 16 << 10];
        loop {
            let rest = &self.buffer[self.at..];
            match scanner.scan(rest) {
                Ok(length) if length <= MAX_ITEM => {
                    self.at += length;
                    return Ok(Some(&self.buffer[self.at - length..self.at]));
                }
                Err(DecodeError::Truncated) if rest.len() <= MAX_ITEM => {}
                Ok(_) | Err(DecodeError::Truncated) => return Err(Unread::TooLong),
                Err(error) => return Err(Unread::Item(error)),
            }
            let length = match self.stream.read(&mut chunk) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Unread::File(error)),
            };
            // Remove the items that were already returned, to make room.
            self.buffer.drain(..self.at);
            self.at = 0;
            match length {
                0 if self.buffer.is_empty() => return Ok(None),
                0 => return Err(Unread::Item(DecodeError::Truncated)),
                _ => self.buffer.extend_from_slice(&chunk[..length]),
            }
        }
    }
}

/// Describes an item for people: a headline and further lines.
fn lines(item: &Item<'_>, (index, epoch): (u32, u64), length: usize) -> Vec<String> {
    match item {
        Item::Schema(bytes) => match Schema::decode(bytes) {
            Err(error) => vec![format!("schema    {}", error.named())],
            Ok(schema) => {
                let size = match schema.record_size() {
                    _ if schema.is_opaque() => "opaque records".to_owned(),
                    Some(size) => format!("records of {size} bytes"),
                    None => format!("records of up to {} bytes", schema.longest_record()),
                };
                let head = format!("schema    {size}, digest {}", schema.digest());
                std::iter::once(head)
                    .chain(schema.fields().map(|field| field.to_string()))
                    .collect()
            }
        },
        Item::Open(open) => vec![
            format!("device    {}, roster version {}", open.device, open.roster_version),
            match (open.last, open.prev) {
                (None, _) => "its first seal follows".to_owned(),
                (Some((index, epoch)), prev) => {
                    let prev = prev.map_or_else(String::new, |prev| format!(", {prev}"));
                    format!("after seal {index} of epoch {epoch}{prev}")
                }
            },
        ],
        Item::Part(part) => part_lines(part, index, epoch, length),
        Item::End => vec!["end       of the answer".to_owned()],
        Item::Problem { name, detail } => vec![format!("problem   {name:?}: {detail:?}")],
        Item::Proof { query } => vec![format!("proof of  {query}")],
        Item::Explain { seal, digests } => {
            vec![format!(
                "explain   a seal of {} bytes, {} block digests",
                seal.len(),
                digests.len() / 32
            )]
        }
        Item::Manifest(manifest) => vec![format!("manifest  of {} bytes", manifest.len())],
        Item::Sanitised { statement, cells } => vec![format!(
            "sanitised a statement of {} bytes, {} bytes of cells",
            statement.len(),
            cells.len()
        )],
    }
}

fn part_lines(part: &Part<'_>, index: u32, epoch: u64, length: usize) -> Vec<String> {
    let mut marks = String::new();
    for (set, mark) in
        [(part.last_in_epoch, ", closes its epoch"), (part.restart, ", after a restart")]
    {
        marks += if set { mark } else { "" };
    }
    let here = match &part.select {
        Select::Levels(0) => "contains none of them".to_owned(),
        Select::Levels(_) => format!("contains levels {}", levels(part)),
        Select::Events(gaps) => format!("contains {} of them", thousands(gaps.len().into())),
    };
    let mut lines = vec![
        format!("seal {index:<4} epoch {epoch}, {}{marks}", part.scheme.as_str()),
        format!("{}; {here}", count(part.n.into(), "reading")),
        format!(
            "{} of readings, {} of digests, {} in all",
            bytes(part.events.len() as u64),
            bytes(part.digests.len() as u64),
            bytes(length as u64)
        ),
        format!("salt {}", hex::encode(part.salt.0)),
        part.signature.map_or("proven by a later signature".to_owned(), |signature| {
            format!("signature of {} bytes", signature.len())
        }),
    ];
    if part.own_round.0 > 0 {
        lines.push(format!("round {} announced, {} kept", part.round, part.own_round));
    }
    if let Some(lost) = &part.lost {
        lines.push(format!("{} lost", count(lost.total(), "reading")));
    }
    lines
}

fn levels(part: &Part<'_>) -> String {
    let Select::Levels(mask) = &part.select else { return String::new() };
    (0..32)
        .filter(|level| mask >> level & 1 == 1)
        .map(|level| level.to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Describes an item as JSON.
fn object(item: &Item<'_>, step: (u32, u64), length: usize) -> Value {
    match item {
        Item::Schema(bytes) => match Schema::decode(bytes) {
            Err(error) => json!({ "item": "schema", "error": error.named().to_string() }),
            Ok(schema) => json!({
                "item": "schema",
                "digest": schema.digest().to_string(),
                "record_bytes": schema.record_size(),
                "fields": schema.fields().map(|field| field.to_string()).collect::<Vec<_>>(),
            }),
        },
        Item::Open(open) => open_object(open),
        Item::Part(part) => part_object(part, step, length),
        Item::End => json!({ "item": "end" }),
        Item::Problem { name, detail } => {
            json!({ "item": "problem", "name": name, "detail": detail })
        }
        Item::Proof { query } => json!({ "item": "proof", "query": query }),
        Item::Explain { seal, digests } => {
            json!({ "item": "explain", "seal_bytes": seal.len(), "digests": digests.len() / 32 })
        }
        Item::Manifest(manifest) => json!({ "item": "manifest", "bytes": manifest.len() }),
        Item::Sanitised { statement, cells } => {
            json!({ "item": "sanitised", "statement_bytes": statement.len(), "cells_bytes": cells.len() })
        }
    }
}

fn open_object(open: &Open) -> Value {
    json!({
        "item": "open",
        "device": open.device.to_string(),
        "roster_version": open.roster_version,
        "prev": open.prev.map(|digest| digest.to_string()),
        "prev_index": open.last.map(|(index, _)| index.0),
        "prev_epoch": open.last.map(|(_, epoch)| epoch.0),
    })
}

fn part_object(part: &Part<'_>, (index, epoch): (u32, u64), length: usize) -> Value {
    let (mask, selected) = match &part.select {
        Select::Levels(mask) => (Some(*mask), None),
        Select::Events(gaps) => (None, Some(gaps.len())),
    };
    json!({
        "item": "part",
        "scheme": part.scheme.as_str(),
        "index": index,
        "epoch": epoch,
        "last_in_epoch": part.last_in_epoch,
        "restart": part.restart,
        "events": part.n,
        "levels_mask": mask,
        "selected_events": selected,
        "event_bytes": part.events.len(),
        "digests": part.digests.len() / 32,
        "round": part.round.0,
        "own_round": part.own_round.0,
        "lost": part.lost.map_or(0, |lost| lost.total()),
        "salt": hex::encode(part.salt.0),
        "signature_bytes": part.signature.map(<[u8]>::len),
        "overhead_bytes": length - part.events.len(),
    })
}
