//! Measurements against peers and physical limits, as ratios in one run: `moteseal-bench SUITE [--json]`.
//!
//! Exits with 1 if a bar is missed.

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

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str =
    "usage: moteseal-bench hashing|service|retrieval|coordinator|growth|mqtt|sies|verification [--plot FILE.png] [--json]
       moteseal-bench broadcast [--json] [--out DIRECTORY]
       moteseal-bench sums --out DIRECTORY [--data DIRECTORY]
       moteseal-bench lab --out DIRECTORY [--data DIRECTORY] [--footprint FILE] [--seed HEX] [--quick]";

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
    if let [mode, rest @ ..] = std::env::args().skip(1).collect::<Vec<_>>().as_slice()
        && mode == "sums"
    {
        return sums::main(rest);
    }
    if let [mode, rest @ ..] = std::env::args().skip(1).collect::<Vec<_>>().as_slice()
        && mode == "broadcast"
    {
        return broadcast::main(rest);
    }
    if let [mode, rest @ ..] = std::env::args().skip(1).collect::<Vec<_>>().as_slice()
        && mode == "lab"
    {
        return lab::main(rest);
    }
    let (mut json, mut suite, mut plot) = (false, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--plot" if plot.is_none() => match arguments.next() {
                Some(file) => plot = Some(PathBuf::from(file)),
                None => return misuse("--plot needs a file"),
            },
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            name if suite.is_none() => suite = Some(name.to_owned()),
            other => return misuse(&format!("unknown argument {other:?}")),
        }
    }
    let report = match (suite.as_deref(), &plot) {
        (Some("growth"), plot) => growth::run(plot.as_deref()),
        (_, Some(_)) => return misuse("only growth is drawn"),
        (Some("hashing"), _) => Ok(hashing::run()),
        (Some("service"), _) => service::run(),
        (Some("retrieval"), _) => retrieval::run(),
        (Some("coordinator"), _) => coordinator::run(),
        (Some("mqtt"), _) => mqtt::run(),
        (Some("sies"), _) => Ok(sies::run()),
        (Some("verification"), _) => verification::run(),
        (Some(other), _) => return misuse(&format!("unknown measurements {other:?}")),
        (None, _) => return misuse("which measurements?"),
    };
    let report = match report {
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

fn misuse(what: &str) -> ExitCode {
    eprintln!("moteseal-bench: {what}; {USAGE}");
    ExitCode::from(2)
}
