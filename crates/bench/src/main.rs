//! Measurements against peers and physical limits, as ratios in one run: `moteseal-bench hashing [--json]`.
//!
//! Exits with 1 if a bar is missed.

mod hashing;
mod measure;

use std::process::ExitCode;

const USAGE: &str = "usage: moteseal-bench hashing [--json]";

fn main() -> ExitCode {
    let (mut json, mut suite) = (false, None);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => json = true,
            "hashing" if suite.is_none() => suite = Some(hashing::run as fn() -> measure::Report),
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
    let report = suite();
    if json {
        println!("{}", report.to_json());
    } else {
        print!("{report}");
    }
    if report.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
