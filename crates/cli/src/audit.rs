//! `moteseal audit`: did a group's coordinator keep what the budget asks for, of all devices?

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_client::Client;
use moteseal_client::audit::{Claims, EpochReport, Finding, Report};
use moteseal_core::record::EpochNumber;
use moteseal_device::import::display_ms;
use moteseal_verify::Roster;

use crate::asked::Asked;
use crate::client_error;
use crate::cloud::runtime;
use crate::failure::{Exit, Failure};
use crate::progress::{bytes, count, thousands};
use crate::terminal::{Stdout, talk};

/// Audit what a group's coordinator kept: whether its final rounds follow from the counters that the devices signed, and whether
/// it left anybody out.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                  moteseal audit --from http://127.0.0.1:8080 --roster roster.cbor --operator keys/op.pub.pem\n  \
                  moteseal audit --from https://cloud.example --roster roster.cbor \\\n      \
                  --operator keys/op.pub.pem --since -7d --json\n\n\
                  No reading is fetched: the seals and the coordinator's manifests say it all. What could be innocent, such\n\
                  as a device that has fallen silent, is said to be undetermined, with the device's name; it is settled once\n\
                  the device's chain goes on.\n\n\
                  --sums takes what `moteseal sum run --json` wrote. ClaimedSilent says that a device answered an epoch which\n\
                  the querier was told it was silent in: its answer was dropped on its way. Ask for the epochs up to the one\n\
                  behind: a device may state an answer in the seal after.\n\n\
                  Exit codes: 0 every epoch is justified, 3 a seal or a manifest is refused, 4 an epoch is undetermined,\n\
                  5 something was found, 6 the cloud does not answer.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    asked: Asked,
    /// This epoch only
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["since", "until"], value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    epoch: Option<u64>,
    /// What a querier wrote of its private sums, a line of JSON an epoch: whom it names silent is compared with what the devices' seals
    /// state
    #[arg(long, value_name = "FILE")]
    sums: Option<PathBuf>,
    /// The result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let roster = arguments.asked.roster()?;
    let (since, until) = match arguments.epoch {
        Some(epoch) => (EpochNumber(epoch), Some(EpochNumber(epoch + 1))),
        None => arguments.asked.epochs(&roster),
    };
    if until.is_some_and(|until| until <= since) {
        return Err(Failure::usage("the range of epochs is empty: --until must be behind --since"));
    }
    let claims = arguments.sums.as_deref().map(|path| claims(&roster, path)).transpose()?;
    let cloud = arguments.asked.client()?;
    let mut request = Client::new(&cloud, &roster).audit().since(since);
    if let Some(until) = until {
        request = request.until(until);
    }
    if let Some(claims) = claims {
        request = request.claims(claims);
    }
    let report = runtime()?.block_on(request.run());
    let report = report.map_err(|error| client_error::failure(&roster, &error))?;
    if arguments.json {
        Stdout::lock().line(report.to_json(&roster))?;
    } else {
        print(&report, &roster)?;
    }
    talk(format_args!(
        "{report}; {} of {} verified, {} received",
        count(report.signatures, "signature"),
        count(report.seals, "seal"),
        bytes(report.bytes)
    ));
    verdict(&report, &roster)
}

/// Whom a querier was told to be silent.
fn claims(roster: &Roster, path: &Path) -> Result<Claims, Failure> {
    let wrong =
        |error: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| wrong(&error))?;
    Claims::read(roster, BufReader::new(file)).map_err(|error| wrong(&error))
}

fn verdict(report: &Report, roster: &Roster) -> Result<(), Failure> {
    if let Some((epoch, finding)) = report.findings().next() {
        return Err(Failure::new(
            Exit::Finding,
            format_args!("{} (epoch {epoch})", finding.describe(roster)),
        ));
    }
    if report.epochs.is_empty() {
        let message = "NoManifest: there is neither a manifest nor a seal of these epochs; ask for others, or later";
        return Err(Failure::new(Exit::Incomplete, message));
    }
    let Some(open) = report.epochs.iter().find(|epoch| !epoch.is_justified) else { return Ok(()) };
    let doubt = open.doubts.first().map(|doubt| doubt.describe(roster)).unwrap_or_default();
    Err(Failure::new(Exit::Incomplete, format_args!("Undetermined: epoch {}: {doubt}", open.epoch)))
}

/// A line an epoch, and under it one for each finding and doubt.
fn print(report: &Report, roster: &Roster) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    for epoch in &report.epochs {
        let at = roster
            .epoch_start_ms(epoch.epoch)
            .map_or_else(String::new, |at| format!(" ({})", display_ms(at)));
        let numbers = numbers(epoch, report.budget);
        out.line(format_args!("epoch {}{at}  {}  {numbers}", epoch.epoch, epoch.verdict()))?;
        for finding in &epoch.findings {
            out.line(format_args!("  {}", finding.describe(roster)))?;
        }
        for doubt in &epoch.doubts {
            out.line(format_args!("  {}", doubt.describe(roster)))?;
        }
    }
    if let Some(silences) = &report.silences {
        let claims = count(silences.claims as u64, "claim");
        out.line(format_args!(
            "sums  {claims} of silence, {} contradicted by seals",
            thousands(silences.findings.len() as u64)
        ))?;
        for (_, finding) in &silences.findings {
            let at = match finding {
                Finding::ClaimedSilent { start_ms: Some(start_ms), .. } => {
                    format!("; the epoch began at {}", display_ms(*start_ms))
                }
                _ => String::new(),
            };
            out.line(format_args!("  {}{at}", finding.describe(roster)))?;
        }
    }
    Ok(())
}

/// What the verdict follows from: "round 3, due 3: 412 of 3,101 readings kept, budget 500; by level 1,560 790 339 ...".
fn numbers(epoch: &EpochReport, budget: u64) -> String {
    let (Some((_, round)), Some(due)) = (epoch.manifest, epoch.due) else {
        return format!("{} there, no manifest", count(epoch.seals, "seal"));
    };
    let total: u64 = epoch.counts.iter().map(|(_, count)| count).sum();
    let mut levels: Vec<String> = epoch.counts.iter().map(|(_, count)| thousands(*count)).collect();
    while levels.len() > 1 && levels.last().is_some_and(|count| count == "0") {
        levels.pop();
    }
    format!(
        "round {round}, due {due}: {} of {} kept, budget {}; {} of {}; by level {}",
        thousands(epoch.kept),
        count(total, "reading"),
        thousands(budget),
        count(epoch.listed, "seal"),
        count(epoch.devices as u64, "device"),
        levels.join(" ")
    )
}
