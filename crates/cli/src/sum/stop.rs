//! `moteseal sum stop`: ends queries, whether or not their processes still run.

use std::path::PathBuf;

use clap::Args;
use moteseal_client::sum::{QuerierConfig, StopQueries};
use serde_json::json;

use super::list::UNREADABLE;
use super::run::digits;
use crate::client_error;
use crate::cloud::{log_warnings, runtime};
use crate::failure::Failure;
use crate::roster_watch::RosterWatch;
use crate::terminal::{Plain, Stdout, is_json};

/// Stop queries: the devices no longer answer them, and the processes that run them end.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 stopped; 2 there is no such query; 6 the broker cannot be reached, so that nothing\n\
                        was stopped. Without the process that runs it, a query ends by itself after an hour at most."
)]
pub(crate) struct Arguments {
    /// The first hexadecimal digits of the ids of the queries
    #[arg(required = true, value_name = "ID", value_parser = digits)]
    ids: Vec<String>,
    /// The querier's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let file = &arguments.config;
    let config = QuerierConfig::read(file).map_err(|error| client_error::input(&error))?;
    let (_, roster) = RosterWatch::open(config.roster.clone(), config.operator.clone())
        .map_err(|failure| failure.about_key(file, "roster"))?;
    let stop = StopQueries::new(&arguments.ids, &roster, &config)
        .map_err(|error| client_error::input(&error).about(file))?;
    log_warnings();
    let queries = stop.queries().to_vec();
    runtime()?.block_on(stop.run())?;
    let mut out = Stdout::lock();
    for (id, query) in queries {
        let text = query.text();
        if is_json() {
            out.line(json!({ "id": id.to_string(), "state": "stopped", "query": text }))?;
        } else {
            out.line(format_args!(
                "stopped {id}: {}",
                Plain(text.as_deref().unwrap_or(UNREADABLE))
            ))?;
        }
    }
    Ok(())
}
