//! `moteseal hub try`: shows the row that a message becomes.

use std::io::{self, Read as _};
use std::path::PathBuf;

use clap::Args;
use moteseal_core::schema::Schema;
use moteseal_device::runner::system_clock;
use moteseal_hub::line::MAX_LINE;
use moteseal_hub::mapping::Input;
use serde_json::{Value, json};

use super::{DOCS, config, mapping};
use crate::config::load_as;
use crate::failure::{Exit, Failure};
use crate::terminal::{Stdout, is_json};

/// The maximum number of bytes that are read.
const MAX_INPUT: u64 = 64 << 20;

#[derive(Args, Debug)]
pub(crate) struct Try {
    /// The hub's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The device of the source
    #[arg(long, value_name = "NAME")]
    source: String,
    /// The topic of the messages
    #[arg(long)]
    topic: Option<String>,
}

pub(crate) fn run(arguments: &Try) -> Result<(), Failure> {
    let file = &arguments.config;
    let (hub, _): (config::Hub, _) = load_as(file, DOCS)?;
    let source = hub.source.iter().find(|source| source.device == arguments.source);
    let source = source.ok_or_else(|| {
        let names: Vec<&str> = hub.source.iter().map(|source| &*source.device).collect();
        Failure::usage(format_args!(
            "there is no source with the device {:?}; there are {}",
            arguments.source,
            names.join(", ")
        ))
        .about_key(file, "source")
    })?;
    let mapping = mapping(source, file)?;
    let schema = Schema::decode(mapping.schema())
        .map_err(|error| Failure::named(Exit::Usage, error.named()))?;
    let names: Vec<&str> = schema.fields().map(|field| field.name).collect();
    let mut text = Vec::new();
    io::stdin().lock().take(MAX_INPUT).read_to_end(&mut text).map_err(|error| {
        Failure::new(Exit::Internal, format_args!("cannot read stdin: {error}"))
    })?;
    // A document on several lines is one message. Otherwise each line is one.
    let is_one = serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_ok();
    let messages: Vec<&[u8]> = if is_one {
        vec![&text]
    } else {
        text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect()
    };
    if messages.is_empty() {
        return Err(Failure::usage("there is no message on stdin"));
    }
    let mut out = Stdout::lock();
    let mut refused = None;
    if !is_json() {
        out.line(names.join(","))?;
    }
    for message in messages {
        if message.len() > MAX_LINE {
            return Err(Failure::usage(format_args!("a message has more than {MAX_LINE} bytes")));
        }
        let topic = arguments.topic.as_deref();
        match mapping.row(&Input { topic, payload: message, received_ms: system_clock() }) {
            Ok(Some(row)) if is_json() => {
                let cells = names.iter().zip(&row.cells);
                let object: serde_json::Map<String, Value> =
                    cells.map(|(name, cell)| ((*name).to_owned(), json!(cell))).collect();
                out.line(json!({ "row": object }))?;
            }
            Ok(Some(row)) => out.line(&row)?,
            Ok(None) if is_json() => out.line(json!({ "row": null }))?,
            Ok(None) => out.line("(ignored: `when` does not match, or no column has a value)")?,
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) => Err(Failure::from(error).of(&source.device)),
        None => Ok(()),
    }
}
