//! `moteseal-demo`: demonstrations with recorded readings, the real services and the real client.
//!
//! Without a subcommand, eight motes seal, store, sample and verify their readings; then the cloud
//! lies, a coordinator cheats, the group changes, and readers with grants see some columns of encrypted
//! readings. `sums` demonstrates private sums with a malicious gateway.
//! `broadcast` simulates a radio testbed under attack. `scale` runs a cloud of many processes on real engines.
//!
//! These demonstrations are a separate program, because the `moteseal` program must not contain the
//! adversary.

#![forbid(unsafe_code)]

mod broadcast;
mod confidential;
mod edge;
mod fleet;
mod liar;
mod life;
mod random;
mod readings;
mod results;
mod scale;
mod seals;
mod show;
mod sums;
mod verdict;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use moteseal_terminal::failure::Failure;
use moteseal_terminal::interrupt;

#[derive(Debug, Parser)]
#[command(name = "moteseal-demo", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    seals: seals::Arguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    Sums(sums::Arguments),
    Broadcast(broadcast::Arguments),
    Scale(scale::Arguments),
}

fn main() -> ExitCode {
    let Cli { command, seals } = Cli::parse();
    let result = interrupt::watch(true).and_then(|()| match command {
        None => seals::run(&seals),
        Some(Command::Sums(arguments)) => sums::run(&arguments),
        Some(Command::Broadcast(arguments)) => broadcast::run(&arguments),
        Some(Command::Scale(arguments)) => scale::run(&arguments),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("moteseal-demo"),
    }
}

/// Returns an internal error, which is an error that no user input causes.
fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::internal(error)
}

/// Creates the asynchronous runtime for the services and clients of a demonstration.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Runtime::new()
        .map_err(|error| internal(format_args!("cannot start threads: {error}")))
}
