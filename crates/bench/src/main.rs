//! Measurements against peers and physical limits, as ratios within one execution.
//!
//! Exits with 1 if a bar is missed or a measurement fails, and with 2 if the arguments are wrong.

mod application;
mod broadcast;
mod broker;
mod coordinator;
mod growth;
mod hashing;
mod lab;
mod load;
mod measure;
mod mqtt;
mod retrieval;
mod seals;
mod service;
mod sies;
mod sums;
mod verification;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use measure::Report;

/// Where recorded data is if neither `--data` nor the environment names a directory.
const DATA: &str = "../shared/data";

/// Measures Moteseal against peers and physical limits
#[derive(Debug, Parser)]
#[command(name = "moteseal-bench")]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

/// One suite of measurements.
#[derive(Debug, Subcommand)]
enum Suite {
    /// Hashing of events on a device, against single SHA-256 and BLAKE3 streams
    Hashing(Output),
    /// Uploads to the cloud service, against a loop that appends the same bytes to a file
    Service(Output),
    /// Verified retrieval over HTTP, into files
    Retrieval(Output),
    /// Frames and events at a coordinator
    Coordinator(Output),
    /// Cost of sealing and of retrieval as seals grow longer
    Growth {
        #[command(flatten)]
        output: Output,
        /// Draw the figure to this PNG file
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// Publishing over MQTT, against `mosquitto_pub` (needs Mosquitto)
    Mqtt(Output),
    /// Encryption and aggregation of private sums
    Sies(Output),
    /// Verification of responses of a cloud, from memory to verified rows
    Verification(Output),
    /// Authenticated broadcast at the sender and the receiver, against HMAC and uTESLA
    Broadcast(broadcast::Arguments),
    /// The tables and figures of Papadopoulos et al. on exact private sums
    Sums(sums::Arguments),
    /// Every table and figure of the three papers, on one page
    Lab(lab::Arguments),
    /// A cloud service for other suites, which start it as a process
    #[command(hide = true)]
    Serve {
        /// The service's directory
        folder: PathBuf,
        /// The name of the group
        name: String,
        /// `sync` to make every commit durable
        sync: String,
    },
}

/// How a suite prints its results.
#[derive(Args, Clone, Copy, Debug)]
struct Output {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Output {
    /// Prints a report. Fails if a bar is missed.
    fn print(self, report: &Report) -> ExitCode {
        if self.json {
            println!("{}", report.to_json());
        } else {
            print!("{report}");
        }
        if report.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Returns the directory of recorded data: the given one, else `$MOTESEAL_DATA`, else the one next
/// to a checkout.
fn data_directory(given: Option<&Path>) -> PathBuf {
    given
        .map(Path::to_owned)
        .or_else(|| std::env::var_os("MOTESEAL_DATA").map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DATA))
}

/// Prints the name of a page that was written, or the error.
fn written<E: std::fmt::Display>(page: Result<PathBuf, E>) -> ExitCode {
    match page {
        Ok(page) => {
            println!("{}", page.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("moteseal-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let (output, report) = match Arguments::parse().suite {
        Suite::Hashing(output) => (output, Ok(hashing::run())),
        Suite::Service(output) => (output, service::run()),
        Suite::Retrieval(output) => (output, retrieval::run()),
        Suite::Coordinator(output) => (output, coordinator::run()),
        Suite::Growth { output, plot } => (output, growth::run(plot.as_deref())),
        Suite::Mqtt(output) => (output, mqtt::run()),
        Suite::Sies(output) => (output, Ok(sies::run())),
        Suite::Verification(output) => (output, verification::run()),
        Suite::Broadcast(arguments) => return broadcast::main(&arguments),
        Suite::Sums(arguments) => return sums::main(&arguments),
        Suite::Lab(arguments) => return lab::main(&arguments),
        Suite::Serve { folder, name, sync } => {
            return match load::serve(&folder, &name, sync == "sync") {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("moteseal-bench: {error}");
                    ExitCode::FAILURE
                }
            };
        }
    };
    match report {
        Ok(report) => output.print(&report),
        Err(error) => {
            eprintln!("moteseal-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        <super::Arguments as clap::CommandFactory>::command().debug_assert();
    }
}
