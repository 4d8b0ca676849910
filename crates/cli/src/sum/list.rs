//! `moteseal sum list`: the queries of a querier that have neither ended nor been stopped.

use std::path::PathBuf;

use clap::Args;
use moteseal_client::sum::{QuerierConfig, QuerierState};
use serde_json::json;

use crate::client_error;
use crate::failure::Failure;
use crate::key::sender::{display_seconds, unix_seconds};
use crate::terminal::{Plain, Stdout, diagnostic, is_json};

/// The number of digits of an id that are shown.
const ID: usize = 8;
/// The text of a query whose plan cannot be read.
pub(super) const UNREADABLE: &str = "(a query of another version of Moteseal)";

/// List the queries of a querier that have neither ended nor been stopped.
#[derive(Args, Debug)]
#[command(
    after_help = "The states: running, a process runs the query; left, its process was killed, and devices answer\n\
                        until the time shown; ended, its process was killed, and devices no longer answer. `moteseal sum\n\
                        run --attach ID` continues a query that does not run, and `moteseal sum stop ID` removes it."
)]
pub(crate) struct Arguments {
    /// The querier's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config =
        QuerierConfig::read(&arguments.config).map_err(|error| client_error::input(&error))?;
    let queries = QuerierState::open(&config.state)
        .and_then(|state| state.queries())
        .map_err(|error| Failure::from(error).about_key(&arguments.config, "state"))?;
    if queries.is_empty() && !is_json() {
        diagnostic("no query runs");
    }
    let now = unix_seconds().saturating_mul(1000);
    let mut out = Stdout::lock();
    for (id, query, is_running) in queries {
        let state = match (is_running, query.is_asked(now)) {
            (true, _) => "running",
            (false, true) => "left",
            (false, false) => "ended",
        };
        let text = query.text();
        let until_ms = query.until.saturating_mul(query.epoch_ms.into());
        if is_json() {
            out.line(json!({
                "id": id.to_string(),
                "state": state,
                "answered_until_ms": until_ms,
                "first_epoch": query.first,
                "end_epoch": query.end,
                "query": text,
            }))?;
        } else {
            let id: String = id.to_string().chars().take(ID).collect();
            let until = display_seconds(until_ms / 1000);
            out.line(format_args!(
                "{id}  {state:<7}  until {until}  {}",
                Plain(text.as_deref().unwrap_or(UNREADABLE))
            ))?;
        }
    }
    Ok(())
}
