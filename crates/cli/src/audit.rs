//! `moteseal audit`: checks whether a group's coordinator kept all readings of all devices that the
//! budget allows.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_client::Client;
use moteseal_client::audit::{Claims, EpochReport, Finding, Report};
use moteseal_core::record::EpochNumber;
use moteseal_device::import::display_ms;
use moteseal_verify::Roster;

use crate::client_error;
use crate::cloud::runtime;
use crate::cloud_query::{CloudQuery, Pins, report_newer_roster};
use crate::failure::{Exit, Failure};
use crate::progress::{bytes, count, thousands};
use crate::terminal::{Stdout, diagnostic, is_json};

/// Audit what a group's coordinator kept: whether its final rounds follow from the counters that
/// the devices signed, and whether it omitted seals.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                  moteseal audit --from http://127.0.0.1:8080 --roster roster.cbor --operator keys/op.pub.pem\n  \
                  moteseal audit --from https://cloud.example --roster roster.cbor \\\n      \
                  --operator keys/op.pub.pem --since -7d --json\n\n\
                  No readings are fetched: the seals and the coordinator's manifests are enough. If a problem may\n\
                  have an innocent explanation, for example a silent device, the epoch is reported as undetermined,\n\
                  with the device's name. Repeat the audit when the device has sealed again.\n\n\
                  --sums reads the output of `moteseal sum run --json`. ClaimedSilent means that a device answered\n\
                  in an epoch in which the gateways reported it as silent: its answer was dropped in transit. Let\n\
                  the range end one epoch after the last sum, because a device may state an answer in its next seal.\n\n\
                  Exit codes: 0 every epoch is justified, 3 a seal or a manifest is refused, 4 an epoch is\n\
                  undetermined, 5 there is a finding, 6 the cloud does not respond.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    cloud_query: CloudQuery,
    /// Audit this epoch only
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["since", "until"], value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    epoch: Option<u64>,
    /// The output of `moteseal sum run --json`: the sources that it reports as silent are compared
    /// with the answers that the devices' seals state
    #[arg(long, value_name = "FILE")]
    sums: Option<PathBuf>,
    #[command(flatten)]
    pins: Pins,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let roster = arguments.cloud_query.roster()?;
    let (since, until) = match arguments.epoch {
        Some(epoch) => (EpochNumber(epoch), Some(EpochNumber(epoch + 1))),
        None => arguments.cloud_query.epochs(&roster),
    };
    if until.is_some_and(|until| until <= since) {
        return Err(Failure::usage(
            "the range of epochs is empty: --until must be later than --since",
        ));
    }
    let claims = arguments.sums.as_deref().map(|path| claims(&roster, path)).transpose()?;
    let mut pinned = arguments.pins.open_and_save(&roster, arguments.cloud_query.roster_path())?;
    let cloud = arguments.cloud_query.client()?;
    let mut request = Client::new(&cloud, &roster).audit().since(since);
    if let Some(pinned) = &mut pinned {
        request = request.pinned_seals(pinned);
    }
    if let Some(until) = until {
        request = request.until(until);
    }
    if let Some(claims) = claims {
        request = request.claims(claims);
    }
    let report = runtime()?.block_on(request.run());
    let report = report.map_err(|error| client_error::failure(&roster, &error))?;
    report_newer_roster(report.cloud_roster, arguments.cloud_query.roster_path());
    if is_json() {
        Stdout::lock().line(report.to_json(&roster))?;
    } else {
        print(&report, &roster)?;
    }
    diagnostic(format_args!(
        "{report}; {} of {} verified, {} received",
        count(report.signatures, "signature"),
        count(report.seals, "seal"),
        bytes(report.bytes)
    ));
    verdict(&report, &roster)
}

/// Reads which sources a querier reported as silent.
fn claims(roster: &Roster, path: &Path) -> Result<Claims, Failure> {
    let wrong =
        |error: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| wrong(&error))?;
    Claims::read(roster, BufReader::new(file)).map_err(|error| wrong(&error))
}

fn verdict(report: &Report, roster: &Roster) -> Result<(), Failure> {
    if let Some((epoch, finding)) = report.findings().next() {
        let text = finding.describe(roster);
        let text = text.strip_prefix(finding.name()).unwrap_or(&text);
        let text = text.strip_prefix(": ").unwrap_or(text);
        let failure = Failure::new(Exit::Finding, format_args!("{text} (epoch {epoch})"));
        return Err(failure.with_name(finding.name()));
    }
    if report.epochs.is_empty() {
        let message = "these epochs have neither a manifest nor a seal; select other epochs, or try again later";
        return Err(Failure::new(Exit::Incomplete, message).with_name("NoManifest"));
    }
    let Some(open) = report.epochs.iter().find(|epoch| !epoch.is_justified) else { return Ok(()) };
    let doubt = open.doubts.first().map(|doubt| doubt.describe(roster)).unwrap_or_default();
    let message = format_args!("epoch {}: {doubt}", open.epoch);
    Err(Failure::new(Exit::Incomplete, message).with_name("Undetermined"))
}

/// Prints one line per epoch, followed by one line for each of its findings and doubts.
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

/// Returns the numbers on which the verdict on an epoch is based, for example "round 3, due 3: 412
/// of 3,101 readings kept, budget 500; 8 seals of 8 devices; by level 1,560 790 339".
fn numbers(epoch: &EpochReport, budget: u64) -> String {
    let (Some((_, round)), Some(due)) = (epoch.manifest, epoch.due) else {
        return format!("{}, no manifest", count(epoch.seals, "seal"));
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
