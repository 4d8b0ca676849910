//! `moteseal inspect`: what a bundle or proof says, item by item, without believing it.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use moteseal_core::schema::Schema;
use moteseal_core::seal::Scheme;
use moteseal_core::wire::stream::{Item, Open, Part, Select};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::files;

/// Shows the items of a bundle (.mseal) or proof (.mproof). Nothing is verified: `moteseal verify` does that.
#[derive(Args, Debug)]
#[command(after_help = "Example: moteseal inspect bundles/dev1-0.mseal")]
pub(crate) struct Arguments {
    /// A .mseal or .mproof file
    file: PathBuf,
    /// One JSON object a line, one line an item
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bytes = files::read(&arguments.file)?;
    let mut out = std::io::stdout().lock();
    let (mut at, mut number) = (0, 0);
    while at < bytes.len() {
        let (item, length) = Item::decode(&bytes[at..]).map_err(|error| {
            Failure::refused(format_args!("{}: item {number} at byte {at}: {error}", arguments.file.display()))
        })?;
        let fields = describe(&item, length);
        if arguments.json {
            writeln!(out, "{fields}")?;
        } else {
            let object = fields.as_object().into_iter().flatten();
            for (i, (name, value)) in object.enumerate() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                if i == 0 { writeln!(out, "{text}")? } else { writeln!(out, "  {name:<14} {text}")? }
            }
        }
        at += length;
        number += 1;
    }
    Ok(())
}

fn describe(item: &Item<'_>, length: usize) -> Value {
    match item {
        Item::Schema(bytes) => schema(bytes),
        Item::Open(open) => describe_open(open),
        Item::Part(part) => describe_part(part, length),
        Item::End => json!({ "item": "end" }),
        Item::Problem { name, detail } => json!({ "item": "problem", "name": name, "detail": detail }),
        Item::Proof { query } => json!({ "item": "proof", "query": query }),
        Item::Explain { seal, digests } => json!({ "item": "explain", "seal_bytes": seal.len(), "digests": digests.len() / 32 }),
    }
}

fn schema(bytes: &[u8]) -> Value {
    match Schema::decode(bytes) {
        Err(error) => json!({ "item": "schema", "error": error.to_string() }),
        Ok(schema) => {
            let fields: Vec<String> = schema.fields().map(|field| field.to_string()).collect();
            json!({
                "item": "schema",
                "digest": schema.digest().to_string(),
                "record_bytes": schema.record_size(),
                "fields": fields.join(", "),
            })
        }
    }
}

fn describe_open(open: &Open) -> Value {
    json!({
        "item": "open",
        "device": open.device.to_string(),
        "roster_version": open.roster_version,
        "prev": open.prev.map(|digest| digest.to_string()),
        "prev_index": open.last.map(|(index, _)| index.0),
        "prev_epoch": open.last.map(|(_, epoch)| epoch.0),
    })
}

fn describe_part(part: &Part<'_>, length: usize) -> Value {
    let select = match &part.select {
        Select::Levels(mask) => {
            (0..32).filter(|level| mask >> level & 1 == 1).map(|level| level.to_string()).collect::<Vec<_>>().join(" ")
        }
        Select::Events(gaps) => format!("{} single events", gaps.len()),
    };
    json!({
        "item": "part",
        "scheme": if part.scheme == Scheme::Star { "star" } else { "tree" },
        "skipped": part.skipped,
        "advance": part.advance,
        "last_in_epoch": part.last_in_epoch,
        "restart": part.restart,
        "events": part.n,
        "levels_here": select,
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
