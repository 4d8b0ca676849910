//! `moteseal-demo`: demonstrations on real readings, with the real services and the real client.
//!
//! Without a subcommand: eight motes seal, store, sample and verify their readings; then the cloud
//! lies and a coordinator cheats. `sums`: private sums with a malicious gateway. `broadcast`: a
//! simulated radio testbed under attack.
//!
//! This is a program apart from `moteseal` because it contains the adversary.

#![forbid(unsafe_code)]

mod broadcast;
mod edge;
mod fleet;
mod liar;
mod random;
mod readings;
mod results;
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
}

fn main() -> ExitCode {
    let Cli { command, seals } = Cli::parse();
    let result = interrupt::watch(true).and_then(|()| match command {
        None => seals::run(&seals),
        Some(Command::Sums(arguments)) => sums::run(&arguments),
        Some(Command::Broadcast(arguments)) => broadcast::run(&arguments),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("moteseal-demo"),
    }
}

/// An internal error: one that no input of the user causes.
fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::internal(error)
}

/// A runtime for the services and clients of a demonstration.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Runtime::new()
        .map_err(|error| internal(format_args!("cannot start threads: {error}")))
}
