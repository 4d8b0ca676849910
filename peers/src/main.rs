//! Compares Moteseal with other systems for the same work (`make bench-peers`). After a warm-up,
//! the systems alternate, and the results are the median and the quartiles of the repetitions. This
//! is a separate workspace, so that no other package depends on the peers' dependencies.
//!
//!     moteseal-peers [--json] [trees|signing|sums|dtls|tessera]...    all of them unless some are named
//!
//! Exits with 1 if a bar (a limit on a result) is missed. A peer that is not installed is reported
//! and skipped; Tessera, for example, is written in Go.

#[path = "../../crates/bench/src/application.rs"]
#[allow(dead_code)]
mod application;
mod dtls;
mod handshakes;
mod in_process;
#[path = "../../crates/bench/src/load.rs"]
#[allow(dead_code, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
mod load;
mod logs;
#[path = "../../crates/bench/src/measure.rs"]
#[allow(dead_code)]
mod measure;
mod signing;
mod sums;
mod tessera;
mod trees;

use std::process::ExitCode;

use load::Failed;
use measure::Report;

const USAGE: &str = "usage: moteseal-peers [--json] [trees|signing|sums|dtls|tessera]...";
/// A suite: its name and its measurement.
type Suite = fn() -> Result<Outcome, Failed>;
const SUITES: [(&str, Suite); 5] = [
    ("trees", || trees::run().map(Outcome::Measured)),
    ("signing", || signing::run().map(Outcome::Measured)),
    ("sums", || sums::run().map(|report| Outcome::Measured(vec![report]))),
    ("dtls", || dtls::run().map(|report| Outcome::Measured(vec![report]))),
    ("tessera", logs::run),
];

/// The outcome of a suite.
enum Outcome {
    Measured(Vec<Report>),
    /// The message that states why the peer is missing, and what to do.
    Skipped(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // The program starts itself with these arguments to run the cloud in a separate process.
    if let [mode, folder, name, sync] = arguments.as_slice()
        && mode == "serve"
    {
        return match load::serve(folder.as_ref(), name, sync == "sync") {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&*error),
        };
    }
    let json = arguments.iter().any(|argument| argument == "--json");
    let named: Vec<&String> = arguments.iter().filter(|argument| *argument != "--json").collect();
    if let Some(unknown) = named.iter().find(|name| SUITES.iter().all(|(suite, _)| suite != **name))
    {
        eprintln!("moteseal-peers: unknown suite {unknown:?}; {USAGE}");
        return ExitCode::from(2);
    }
    let mut passed = true;
    for (_, run) in SUITES
        .iter()
        .filter(|(suite, _)| named.is_empty() || named.iter().any(|name| name == suite))
    {
        match run() {
            Ok(Outcome::Measured(reports)) => {
                for report in reports {
                    if json {
                        println!("{}", report.to_json());
                    } else {
                        println!("{report}");
                    }
                    passed &= report.passes();
                }
            }
            Ok(Outcome::Skipped(why)) => eprintln!("SKIPPED {why}"),
            Err(error) => return failed(&*error),
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("moteseal-peers: {error}");
    ExitCode::FAILURE
}
