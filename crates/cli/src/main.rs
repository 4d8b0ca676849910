//! The `moteseal` command: every role and tool of Moteseal as a subcommand. A subcommand parses its
//! arguments, calls the library of its role, prints the result, and exits.
//!
//! Data goes to stdout, diagnostics to stderr. Exit codes: 0 done and verified, 1 internal error, 2
//! usage, 3 proof refused, 4 incomplete, 5 audit finding, 6 unreachable.

#![forbid(unsafe_code)]

mod aggregation;
mod audit;
mod broadcast;
mod chain;
mod client_error;
mod cloud;
mod cloud_query;
mod column_names;
mod config;
mod destination;
mod device;
mod device_name;
mod devices_file;
mod estimate;
mod files;
mod gateway;
mod get;
mod grant;
mod health;
mod health_stream;
mod hub;
mod input_table;
mod inspect;
mod key;
mod key_files;
mod links;
mod opening;
mod owner;
mod policy_watch;
mod process_health;
mod push;
mod reading;
mod redact;
mod replay;
mod roster;
mod roster_watch;
mod sanitise;
mod seal;
mod signed_time;
mod store;
mod stream;
mod stream_secret;
mod succession;
mod sum;
mod table;
mod time;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use moteseal_client::output::AtomicFile;
use moteseal_terminal::{failure, interrupt, output as terminal, progress};

/// Sensor data that its users can verify, wherever it was stored.
#[derive(Debug, Parser)]
#[command(
    name = "moteseal",
    version,
    about,
    after_help = "Exit codes: 0 done and verified, 1 internal error, 2 usage, 3 proof refused, 4 incomplete, 5 audit\n\
                  finding, 6 unreachable.\n\
                  To see a demonstration, run `make demo` in a checkout."
)]
struct Cli {
    /// Print JSON: each line of stdout is an object; if the command fails, the last line has the
    /// member "error"
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make keys, and certify the senders of broadcasts.
    #[command(subcommand)]
    Key(key::Command),
    /// Make or show a group's roster: its devices and their certified keys.
    #[command(subcommand)]
    Roster(roster::Command),
    /// Begin, show or recover the chain of a device's seals.
    #[command(subcommand)]
    Chain(Box<chain::Command>),
    Seal(Box<seal::Arguments>),
    Replay(Box<replay::Arguments>),
    Inspect(inspect::Arguments),
    Verify(verify::Arguments),
    Redact(redact::Redact),
    Merge(redact::Merge),
    Sanitise(Box<sanitise::Arguments>),
    /// Run the untrusted store as a service.
    #[command(subcommand)]
    Cloud(cloud::Command),
    /// Run a gateway: the coordinator of a group with a budget, an aggregator of private sums, or a
    /// link to motes on serial lines.
    #[command(subcommand)]
    Gateway(gateway::Command),
    /// Run a device of a group with a budget, or provision a mote.
    #[command(subcommand)]
    Device(device::Command),
    /// Run a hub: make devices of sensors that speak MQTT, HTTP or UDP, or whose readings a program
    /// prints.
    #[command(subcommand)]
    Hub(hub::Command),
    Push(push::Arguments),
    Get(Box<get::Arguments>),
    Reading(reading::Arguments),
    Estimate(Box<estimate::Arguments>),
    Audit(audit::Arguments),
    /// Query exact sums over encrypted readings, which gateways add up without being able to read
    /// them.
    #[command(subcommand)]
    Sum(sum::Command),
    /// Let others read encrypted columns, and show what a grant opens.
    #[command(subcommand)]
    Grant(Box<grant::Command>),
    /// Make and keep the secrets of encrypted columns.
    #[command(subcommand)]
    Owner(Box<owner::Command>),
    /// Broadcast to many receivers with one signature, and verify broadcasts.
    #[command(subcommand)]
    Broadcast(broadcast::Command),
    /// Show the health of nodes.
    #[command(subcommand)]
    Health(health::Command),
    /// Serve signed time to motes, which have no other clock of the time of day.
    #[command(subcommand)]
    Time(signed_time::Command),
    /// Make, check, back up and restore the store of a cloud.
    #[command(subcommand)]
    Store(store::Command),
    /// Create and check the stream between the intakes and workers of a cloud, and replay its dead
    /// letters.
    #[command(subcommand)]
    Stream(stream::Command),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example: moteseal completions bash > ~/.local/share/bash-completion/completions/moteseal"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Prints the error of a wrong command line, or the requested help, and exits.
fn wrong_arguments(error: &clap::Error) -> ! {
    let is_json = std::env::args_os().skip(1).any(|argument| argument == "--json");
    if error.use_stderr() && is_json {
        let text = error.render().to_string();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let message = lines.next().unwrap_or_default().trim_start_matches("error: ");
        terminal::print_json();
        let _ = failure::Failure::usage(message).print_json();
    }
    error.exit()
}

fn main() -> ExitCode {
    if let Some(ended) = hub::launched() {
        return ended;
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| wrong_arguments(&error));
    if cli.json {
        terminal::print_json();
    }
    // These commands handle signals themselves: services shut down cleanly, and a running query is
    // withdrawn from the gateways.
    let stops_itself = matches!(
        cli.command,
        Command::Cloud(_)
            | Command::Gateway(_)
            | Command::Device(_)
            | Command::Hub(hub::Command::Run(_))
            | Command::Sum(sum::Command::Run(_))
            | Command::Time(_)
            | Command::Broadcast(broadcast::Command::Watch(_))
    );
    interrupt::on_stop(AtomicFile::abandon_all);
    if let Err(failure) = interrupt::watch(!stops_itself) {
        return failure.report("moteseal");
    }
    let result = match cli.command {
        Command::Key(command) => key::run(command),
        Command::Roster(command) => roster::run(command),
        Command::Chain(command) => chain::run(&command),
        Command::Seal(arguments) => seal::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Redact(arguments) => redact::run_redact(&arguments),
        Command::Merge(arguments) => redact::run_merge(&arguments),
        Command::Sanitise(arguments) => sanitise::run(&arguments),
        Command::Cloud(command) => cloud::run(command),
        Command::Stream(command) => stream::run(command),
        Command::Gateway(command) => gateway::run(&command),
        Command::Device(command) => device::run(&command),
        Command::Hub(command) => hub::run(&command),
        Command::Push(arguments) => push::run(&arguments),
        Command::Get(arguments) => get::run(&arguments),
        Command::Reading(arguments) => reading::run(&arguments),
        Command::Estimate(arguments) => estimate::run(&arguments),
        Command::Audit(arguments) => audit::run(&arguments),
        Command::Sum(command) => sum::run(&command),
        Command::Grant(command) => grant::run(&command),
        Command::Owner(command) => owner::run(&command),
        Command::Broadcast(command) => broadcast::run(&command),
        Command::Health(command) => health::run(&command),
        Command::Time(command) => signed_time::run(&command),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The width at which the program breaks the lines of its help. A command that it breaks has no `\` at
    /// the end of the line, so that it cannot be copied into a shell.
    const WIDTH: usize = 100;

    fn check(command: &clap::Command, path: &str, checked: &mut usize) {
        let path = format!("{path} {}", command.get_name());
        let helps = [command.get_after_help(), command.get_after_long_help()];
        for help in helps.into_iter().flatten() {
            let text = help.to_string();
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{path}: {line}");
                *checked += 1;
            }
        }
        command.get_subcommands().for_each(|command| check(command, &path, checked));
    }

    #[test]
    fn no_line_of_an_example_is_so_long_that_it_is_broken() {
        let mut checked = 0;
        check(&Cli::command(), "", &mut checked);
        assert!(checked > 300, "{checked}");
    }
}
