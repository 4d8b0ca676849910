//! Moteseal beside what others use today, all in one run (`make bench-peers`): the same work, warm, in turns, with the median and the
//! quartiles of the repetitions. A workspace of its own: what peers depend on is nobody else's.
//!
//!     moteseal-peers [--json] [trees|signing|sums|tessera]...    all of them unless some are named
//!
//! Exits with 1 if a bar is missed. A peer that is not here (Tessera is written in Go) is skipped, and said to be.

#[path = "../../crates/bench/src/application.rs"]
#[allow(dead_code)]
mod application;
mod direct;
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

const USAGE: &str = "usage: moteseal-peers [--json] [trees|signing|sums|tessera]...";
/// Measures one kind of peers.
type Suite = fn() -> Result<Outcome, Failed>;
const SUITES: [(&str, Suite); 4] = [
    ("trees", || trees::run().map(Outcome::Measured)),
    ("signing", || signing::run().map(Outcome::Measured)),
    ("sums", || sums::run().map(|report| Outcome::Measured(vec![report]))),
    ("tessera", logs::run),
];

/// What became of a suite.
enum Outcome {
    Measured(Vec<Report>),
    /// A sentence that says why the peer is not here, and what to do.
    Skipped(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // What the cloud in a process of its own is started with.
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
        eprintln!("moteseal-peers: no measurements are called {unknown:?}; {USAGE}");
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
