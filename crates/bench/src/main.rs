//! Measurements against peers and physical limits, as ratios in one run: `moteseal-bench hashing|service|retrieval [--json]`.
//!
//! Exits with 1 if a bar is missed.

mod hashing;
mod load;
mod measure;
mod retrieval;
mod service;

use std::process::ExitCode;

const USAGE: &str = "usage: moteseal-bench hashing|service|retrieval [--json]";

fn main() -> ExitCode {
    if let [mode, folder, name, sync] = std::env::args().skip(1).collect::<Vec<_>>().as_slice()
        && mode == "serve"
    {
        return match load::serve(folder.as_ref(), name, sync == "sync") {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("moteseal-bench: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let (mut json, mut suite) = (false, None);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => json = true,
            "hashing" if suite.is_none() => {
                suite = Some((|| Ok(hashing::run())) as fn() -> Result<measure::Report, load::Failed>);
            }
            "service" if suite.is_none() => suite = Some(service::run),
            "retrieval" if suite.is_none() => suite = Some(retrieval::run),
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => {
                eprintln!("moteseal-bench: unknown argument {other:?}; {USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let Some(suite) = suite else {
        eprintln!("moteseal-bench: which measurements? {USAGE}");
        return ExitCode::from(2);
    };
    let report = match suite() {
        Ok(report) => report,
        Err(error) => {
            eprintln!("moteseal-bench: {error}");
            return ExitCode::FAILURE;
        }
    };
    if json {
        println!("{}", report.to_json());
    } else {
        print!("{report}");
    }
    if report.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
