//! Measures Moteseal against peers (implementations of other projects) and against physical limits.
//! The results are ratios within one execution.
//!
//! The exit code is 1 if a bar (a limit on a result) is missed or a measurement fails, and 2 if the
//! arguments are wrong.

mod application;
mod broadcast;
mod broker;
mod coap;
mod confidential;
mod configurations;
mod coordinator;
mod grades;
mod group_of_one;
mod growth;
mod hashing;
mod lab;
mod load;
mod measure;
mod mqtt;
mod redactable;
mod rerum;
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

/// The directory of recorded data if neither `--data` nor `$MOTESEAL_DATA` names one.
const DATA: &str = "../shared/data";

/// Measure Moteseal against peers and physical limits
#[derive(Debug, Parser)]
#[command(name = "moteseal-bench")]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

/// A suite of measurements.
#[derive(Debug, Subcommand)]
enum Suite {
    /// Measure hashing of events on a device against single SHA-256 and BLAKE3 streams
    Hashing(Output),
    /// Measure uploads to the cloud service against a loop that appends the same bytes to a file
    Service(Output),
    /// Measure verified retrieval over HTTP, into files
    Retrieval(Output),
    /// Measure frames and events at a coordinator
    Coordinator(Output),
    /// Measure the cost of sealing and of retrieval as seals and stores grow
    Growth {
        #[command(flatten)]
        output: Output,
        /// Also draw the figure to this PNG file
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// Measure publishing over MQTT against `mosquitto_pub` (needs Mosquitto)
    Mqtt(Output),
    /// Measure sealing, verifying and decrypting encrypted columns against plaintext
    Confidential(Output),
    /// Measure links over CoAP and DTLS against links over MQTT and TLS (needs Mosquitto)
    Coap(Output),
    /// Measure encryption and aggregation of private sums
    Sies(Output),
    /// Measure verification of a cloud's responses, from memory to verified rows
    Verification(Output),
    /// Measure authenticated broadcast at the sender and the receiver, against HMAC and uTESLA
    Broadcast(broadcast::Arguments),
    /// Write the tables and figures of Papadopoulos et al. on exact private sums
    Sums(sums::Arguments),
    /// Compare malleable signatures: bytes, times, and who can redact what
    Redactable(redactable::Arguments),
    /// Write every table and figure of the four papers and of RERUM D5.3 to one page
    Lab(lab::Arguments),
    /// Run a cloud service for other suites, which start it as a process
    #[command(hide = true)]
    Serve {
        /// The service's directory
        folder: PathBuf,
        /// The file name of the store
        name: String,
        /// `sync` makes every commit durable; with any other word, commits are not synced
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

/// Returns the directory of recorded data: `given`, or `$MOTESEAL_DATA` if that is set, or the
/// default directory next to a checkout.
fn data_directory(given: Option<&Path>) -> PathBuf {
    given
        .map(Path::to_owned)
        .or_else(|| std::env::var_os("MOTESEAL_DATA").map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DATA))
}

/// Prints the path of the page that was written, or the error.
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
        Suite::Coap(output) => (output, coap::run()),
        Suite::Confidential(output) => (output, confidential::run()),
        Suite::Sies(output) => (output, Ok(sies::run())),
        Suite::Verification(output) => (output, verification::run()),
        Suite::Broadcast(arguments) => return broadcast::main(&arguments),
        Suite::Sums(arguments) => return sums::main(&arguments),
        Suite::Redactable(arguments) => return redactable::main(&arguments),
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
