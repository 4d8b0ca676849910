//! `moteseal verify`: verifies bundles and proofs without a network.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_api::NamedError as _;
use moteseal_client::bundles::{
    BundleError, BundleFault, BundleReport, BundleVerifier, StreamFile, device_name,
};
use moteseal_client::decrypt::SealKeys;
use moteseal_client::proof::{Scope, verify_sanitised, verify_with_keys};
use moteseal_client::{Incomplete, Lack, NoRows, PinnedSeals, Report, Sink, start_text};
use moteseal_core::record::EpochNumber;
use moteseal_device::outbox::EXTENSION;
use moteseal_seal::sample::{Choice, Rate};
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::client_error;
use crate::cloud_query::Pins;
use crate::destination::{
    Destination, check_keys, distinct, incomplete, report_lines, withheld_lines,
};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::key_files::KeyFiles;
use crate::progress::{bar, count, range, spinner, thousands};
use crate::redact::{source, subject};
use crate::terminal::{Stdout, diagnostic, is_json};
use crate::time::span;

/// Verify bundles (.mseal) or a proof (.mproof) with the group's roster. Needs no network, and
/// trusts only the operator's key.
///
/// For bundles, this checks every signature and every reading, and that no seal is missing between
/// the first and the last seal of each device. With --grant, it also decrypts them, and reports which
/// columns the grant does not open.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                        moteseal verify bundles/*.mseal --roster roster.cbor --operator keys/op.pub.pem\n  \
                        moteseal verify p.mproof --roster roster.cbor --operator keys/op.pub.pem\n\n\
                        Exit codes: 0 all verified, 3 something was rejected, 4 a seal is missing, or a proof is redacted,\n\
                        5 a device signed two histories.")]
pub(crate) struct Arguments {
    /// The files, or directories of bundles
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// For a proof: also write the rows
    #[command(flatten)]
    destination: Destination,
    #[command(flatten)]
    pins: Pins,
    #[command(flatten)]
    keys: KeyFiles,
    /// For a proof: accept one that is redacted, or whose query names readings. It shows what its
    /// maker chose to show. Without this option, no row of a redacted proof is written
    #[arg(long)]
    allow_redacted: bool,
    /// For a proof: accept the values by which this sanitiser replaced those of devices. Repeat it for
    /// several sanitisers. Without it, a proof with sanitised columns is refused
    #[arg(long = "accept-sanitised", value_name = "NAME")]
    accepted: Vec<String>,
}

/// Returns the failure for a problem with a file.
fn problem(error: &BundleError) -> Failure {
    let exit = match error.fault.kind() {
        _ if error.fault.name() == "Equivocation" => Exit::Finding,
        kind => kind.into(),
    };
    Failure::named(exit, error.fault.named()).about(&error.path)
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let given = expand(&arguments.files)?;
    let read_here = given.iter().chain([&arguments.roster, &arguments.operator]);
    let read_here: Vec<&PathBuf> = read_here.chain(arguments.keys.read()).collect();
    distinct(&[("--out", arguments.destination.out())], &read_here)?;
    let pinned = arguments.pins.open_and_save(&roster, &arguments.roster)?;
    let mut bundles = BundleVerifier::new(&roster);
    let mut problems = Vec::new();
    // The positions in `problems` of the signatures that do not verify.
    let mut unauthentic = Vec::new();
    let progress = bar(given.len() as u64, "verifying");
    for path in &given {
        let stream = open(path)?;
        if stream.is_proof() {
            if given.len() > 1 {
                return Err(Failure::usage(format_args!(
                    "{} is a proof; verify each proof by itself",
                    path.display()
                )));
            }
            return proof(arguments, path, stream, &roster, pinned.as_ref());
        }
        if !arguments.accepted.is_empty() {
            return Err(Failure::usage(
                "--accept-sanitised is only for a proof; a bundle has no sanitised columns",
            ));
        }
        if arguments.destination.is_given() {
            return Err(Failure::usage(
                "--out and --format are only for the rows of a proof; get a bundle's rows with `moteseal get`",
            ));
        }
        if let Err(error) = bundles.add(path, stream) {
            if let BundleFault::File(error) = &error.fault {
                return Err(Failure::file("read", path, error));
            }
            let mut problem = problem(&error);
            match error.fault.name() {
                "NotAuthentic" => unauthentic.push(problems.len()),
                _ if matches!(error.fault, BundleFault::Read(_)) => {
                    problem.add(files::likeness(path));
                }
                _ => {}
            }
            problems.push(problem);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    if bundles.is_empty() {
        // If no signature verifies, it is more likely that the roster belongs to another operator
        // than that every signature is forged.
        for at in unauthentic {
            let Some(problem) = problems.get_mut(at) else { continue };
            problem.add(format_args!(
                " (no seal verifies under {}: did another operator certify these devices?)",
                arguments.roster.display()
            ));
        }
    }
    let (reports, faults) = bundles.finish();
    problems.extend(faults.iter().map(problem));
    let decrypted = if problems.is_empty() { decrypted(arguments, &given, &roster)? } else { None };
    let mut out = Stdout::lock();
    if is_json() {
        let objects: Vec<Value> = problems.iter().map(Failure::to_json).collect();
        let with_keys = |report| report_json(report, decrypted.as_ref());
        let devices: Vec<Value> = reports.iter().map(with_keys).collect();
        out.line(
            json!({ "verified": problems.is_empty(), "devices": devices, "problems": objects }),
        )?;
    } else {
        for report in &reports {
            out.line(report_line(report, &roster))?;
        }
        decrypted.iter().flat_map(|report| &report.devices).for_each(withheld_lines);
    }
    // Print each problem once, in the order of the files. The most severe problem determines the
    // exit code.
    let gravest = [Exit::Refused, Exit::Finding, Exit::Incomplete];
    let gravest =
        gravest.into_iter().find(|exit| problems.iter().any(|problem| problem.exit() == *exit));
    let last = problems.pop();
    for problem in &problems {
        diagnostic(format_args!("moteseal: {problem}"));
    }
    let Some(last) = last else {
        return decrypted.as_ref().map_or(Ok(()), check_keys);
    };
    let exit = gravest.unwrap_or(last.exit());
    Err(last.with_exit(exit))
}

/// Decrypts bundles that have been verified, if there are keys. Reads the files again. Returns the report,
/// which has the columns that the keys do not open.
fn decrypted(
    arguments: &Arguments,
    given: &[PathBuf],
    roster: &Roster,
) -> Result<Option<Report>, Failure> {
    let keys = arguments.keys.open(roster)?;
    let Some(mut keys) = keys.set() else { return Ok(None) };
    let (source, subject) = (source(given, roster)?, subject(given));
    let verified = verify_with_keys(source, subject, roster, None, &mut keys, &mut NoRows);
    let (_, report) = verified.map_err(|error| proof_failure(roster, subject, &error))?;
    Ok(Some(report))
}

/// Opens a bundle or a proof. Rejects an empty file.
pub(crate) fn open(path: &Path) -> Result<StreamFile, Failure> {
    StreamFile::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Failure::usage(format_args!("{} is empty", path.display()))
        }
        _ => Failure::file("read", path, &error),
    })
}

/// Returns whether the maker of a proof chose which readings it shows.
fn is_chosen(report: &Report) -> bool {
    report.is_redacted || report.is_named()
}

/// Verifies a proof and writes its rows if requested.
fn proof(
    arguments: &Arguments,
    path: &Path,
    mut stream: StreamFile,
    roster: &Roster,
    pinned: Option<&PinnedSeals>,
) -> Result<(), Failure> {
    for name in &arguments.accepted {
        if !roster.sanitisers().iter().any(|sanitiser| sanitiser.name == *name) {
            return Err(Failure::usage(format_args!(
                "the roster names no sanitiser {name}; its sanitisers are {}",
                sanitisers(roster)
            )));
        }
    }
    let keys = arguments.keys.open(roster)?;
    let mut keys = keys.set();
    let mut verified = |sink: &mut dyn Sink| {
        let keys = keys.as_mut().map(|keys| keys as &mut dyn SealKeys);
        let (given, accepted) = ((roster, pinned), &arguments.accepted);
        let verified = verify_sanitised(&mut stream, path, given, accepted, keys, sink);
        verified.map_err(|error| proof_failure(roster, path, &error))
    };
    let (scope, report) = if arguments.destination.is_given() {
        let mut output = arguments.destination.open(None, spinner("verified rows"))?;
        let verified = verified(&mut output)?;
        let (rows, _) = output.finish()?;
        if !is_chosen(&verified.1) || arguments.allow_redacted {
            rows.release()?;
        }
        verified
    } else {
        verified(&mut NoRows)?
    };
    report_lines(&report, roster, "read");
    if is_json() {
        let mut value = report.to_json();
        if let Some(object) = value.as_object_mut() {
            object.insert("verified".to_owned(), true.into());
            object.insert("query".to_owned(), scope.to_json());
        }
        Stdout::lock().line(value)?;
    } else if !arguments.destination.is_given() {
        Stdout::lock().line(format_args!(
            "{}: verified, {}",
            path.display(),
            in_words(&scope, roster)
        ))?;
    }
    check_keys(&report)?;
    let chosen = |error: &Incomplete| matches!(error.lack, Lack::Redacted | Lack::Named);
    if arguments.allow_redacted
        && report.require_complete(roster).is_err_and(|error| chosen(&error))
    {
        return Ok(());
    }
    incomplete(&report, roster).map_or(Ok(()), |failure| {
        let is_withheld = is_chosen(&report) && arguments.destination.is_given();
        let hint = if is_withheld { " (no row was written: --allow-redacted)" } else { "" };
        Err(failure.with(hint))
    })
}

/// Returns the names of the roster's sanitisers.
fn sanitisers(roster: &Roster) -> String {
    let names: Vec<&str> = roster.sanitisers().iter().map(|of| of.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn proof_failure(roster: &Roster, path: &Path, error: &moteseal_client::Error) -> Failure {
    client_error::failure(roster, error).about(path)
}

/// Describes a scope in words: `1/8 of dev1, dev2, from 2026-01-01T00:00:00Z on`.
fn in_words(scope: &Scope, roster: &Roster) -> String {
    let choice = match scope.choice() {
        None => "what a redactor left".to_owned(),
        Some(choice) => choice_in_words(choice),
    };
    let devices: Vec<String> =
        scope.devices().iter().map(|device| device_name(roster, *device)).collect();
    let start = |epoch: EpochNumber| start_text(roster, epoch);
    let range = match scope.range() {
        (EpochNumber(0), None) => "everything sealed so far".to_owned(),
        (EpochNumber(0), Some(until)) => format!("up to {}", start(until)),
        (since, None) => format!("from {} on", start(since)),
        (since, Some(until)) => format!("from {} to {}", start(since), start(until)),
    };
    let columns = match scope {
        Scope::Answer(query) if !query.columns.is_empty() => {
            format!(", only {}", query.columns.join(", "))
        }
        _ => String::new(),
    };
    format!("{choice} of {}, {range}{columns}", devices.join(", "))
}

fn choice_in_words(choice: Choice) -> String {
    match choice {
        Choice::Rate(rate) if rate == Rate::ALL => "all".to_owned(),
        Choice::Rate(rate) => rate.to_string(),
        Choice::AtMost(most) => format!("at most {} per epoch", count(most, "reading")),
        Choice::Sample { count: drawn, .. } => {
            format!("{} per epoch, drawn by a seed,", count(drawn.into(), "reading"))
        }
        Choice::Readings(readings) => count(readings.count(), "named reading"),
    }
}

/// Returns the given files, and the bundles of the given directories sorted by name.
pub(crate) fn expand(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::with_capacity(given.len());
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let fail = |error| Failure::file("read", path, &error);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let file = entry.map_err(fail)?.path();
            if file.extension().is_some_and(|extension| extension == EXTENSION) {
                found.push(file);
            }
        }
        if found.is_empty() {
            return Err(Failure::usage(format_args!(
                "{}: there are no bundles (.{EXTENSION}) in it",
                path.display()
            )));
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

fn report_line(report: &BundleReport, roster: &Roster) -> String {
    let outages = match report.restarts {
        0 => String::new(),
        restarts => format!("  {}", count(restarts as u64, "restart")),
    };
    format!(
        "{:<12} verified  {} of {}  {}  epochs from {}{outages}",
        report.name,
        thousands(report.seals as u64),
        range("seal", report.first_index.0, report.last_index.0),
        count(report.events, "reading"),
        span(roster, report.first_epoch, report.last_epoch),
    )
}

/// Returns the report of a device's bundles, with the columns that the reader's keys do not open if there
/// are keys.
fn report_json(report: &BundleReport, decrypted: Option<&Report>) -> Value {
    let mut value = json!({
        "device": report.device.to_string(),
        "name": report.name,
        "seals": report.seals,
        "first_index": report.first_index.0,
        "last_index": report.last_index.0,
        "first_epoch": report.first_epoch.0,
        "last_epoch": report.last_epoch.0,
        "events": report.events,
        "restarts": report.restarts,
    });
    let devices = decrypted.iter().flat_map(|decrypted| &decrypted.devices);
    for device in devices.filter(|device| device.device == report.device) {
        let withheld = device.to_json().get("withheld").cloned();
        if let (Some(value), Some(withheld)) = (value.as_object_mut(), withheld) {
            value.insert("withheld".to_owned(), withheld);
        }
    }
    value
}
