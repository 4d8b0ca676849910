//! The `moteseal` command: every role and tool as a subcommand. Composition only; what a subcommand does lives in its role's room.
//!
//! Data goes to stdout, talk to stderr. Exit codes: 0 done and verified, 1 internal, 2 usage, 3 proof refused, 4 incomplete,
//! 5 audit finding, 6 unreachable.

#![forbid(unsafe_code)]

mod aggregation;
mod asked;
mod audit;
mod broadcast;
mod client_error;
mod cloud;
mod config;
mod destination;
mod device;
mod estimate;
mod files;
mod gateway;
mod get;
mod inspect;
mod key;
mod push;
mod replay;
mod roster;
mod seal;
mod source;
mod store;
mod succession;
mod sum;
mod time;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use moteseal_client::output::AtomicFile;
use moteseal_terminal::{failure, interrupt, output as terminal, progress};

/// Sensor data that can be checked by whoever uses it, wherever it was stored.
#[derive(Debug, Parser)]
#[command(
    name = "moteseal",
    version,
    about,
    after_help = "Exit codes: 0 done and verified, 1 internal, 2 usage, 3 proof refused, 4 incomplete, 5 audit finding, 6 unreachable.\n\
                  To see it work first: make demo (in a checkout)"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make keys, and certify senders of broadcasts.
    #[command(subcommand)]
    Key(key::Command),
    /// Make and show a group's roster: its devices and their certified keys.
    #[command(subcommand)]
    Roster(roster::Command),
    Seal(Box<seal::Arguments>),
    Replay(Box<replay::Arguments>),
    Inspect(inspect::Arguments),
    Verify(verify::Arguments),
    /// Run the untrusted store as a service.
    #[command(subcommand)]
    Cloud(cloud::Command),
    /// Run the edge of a group with a budget.
    #[command(subcommand)]
    Gateway(gateway::Command),
    /// Run a device of a group with a budget.
    #[command(subcommand)]
    Device(device::Command),
    Push(push::Arguments),
    Get(Box<get::Arguments>),
    Estimate(Box<estimate::Arguments>),
    Audit(audit::Arguments),
    /// Exact sums over encrypted readings, added up on their way by parties who can neither read nor bend them.
    #[command(subcommand)]
    Sum(sum::Command),
    /// Broadcast to many with one signature, and check what was said.
    #[command(subcommand)]
    Broadcast(broadcast::Command),
    /// Take care of a cloud's store.
    #[command(subcommand)]
    Store(store::Command),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example: moteseal completions bash > ~/.local/share/bash-completion/completions/moteseal"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Services stop in order by themselves, and a query that runs is taken back.
    let stops_itself = matches!(
        cli.command,
        Command::Cloud(_)
            | Command::Gateway(_)
            | Command::Device(_)
            | Command::Sum(sum::Command::Run(_))
            | Command::Broadcast(broadcast::Command::Watch(_))
    );
    interrupt::on_stop(AtomicFile::abandon_all);
    if let Err(failure) = interrupt::watch(!stops_itself) {
        return failure.report("moteseal");
    }
    let result = match cli.command {
        Command::Key(command) => key::run(command),
        Command::Roster(command) => roster::run(command),
        Command::Seal(arguments) => seal::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Cloud(command) => cloud::run(command),
        Command::Gateway(command) => gateway::run(&command),
        Command::Device(command) => device::run(&command),
        Command::Push(arguments) => push::run(&arguments),
        Command::Get(arguments) => get::run(&arguments),
        Command::Estimate(arguments) => estimate::run(&arguments),
        Command::Audit(arguments) => audit::run(&arguments),
        Command::Sum(command) => sum::run(&command),
        Command::Broadcast(command) => broadcast::run(&command),
        Command::Store(command) => store::run(command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "moteseal", &mut script);
            terminal::Stdout::lock().copy(&script[..])
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("moteseal"),
    }
}
