//! `moteseal verify`: bundles and proofs, offline.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_api::Query;
use moteseal_client::output::OutputError;
use moteseal_client::proof::verify;
use moteseal_client::{Rows, Sink};
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex};
use moteseal_device::import::display_ms;
use moteseal_device::outbox::EXTENSION;
use moteseal_seal::follow::Limits;
use moteseal_seal::sample::{Choice, Rate};
use moteseal_seal::{Authentic, History, Incomplete, Seal};
use moteseal_verify::{Event, ReadError, Roster, StreamReader};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};
use crate::files::{self, Stream};
use crate::get::{get_failure, open_memory};
use crate::progress::{bar, count, range, spinner, thousands};
use crate::rows::{Destination, distinct, incomplete, say};
use crate::terminal::{Stdout, talk};
use crate::time::span;

/// Verify bundles (.mseal) or a proof (.mproof) against the group's roster. This needs no network, and believes nobody but the operator.
///
/// Of bundles, it checks every signature and every reading, and that no seal is missing between the first and the last of each
/// device.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  moteseal verify bundles/*.mseal --roster roster.cbor --operator keys/op.pub.pem\n  \
                        moteseal verify p.mproof --roster roster.cbor --operator keys/op.pub.pem\n\n\
                        Exit codes: 0 all verified, 3 something was refused, 4 a seal is missing."
)]
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
    /// Of a proof: the rows too
    #[command(flatten)]
    destination: Destination,
    /// Where the newest seals are remembered that a proof must not contradict; in the user's state directory unless given
    #[arg(long, value_name = "FILE", conflicts_with = "no_memory")]
    memory: Option<PathBuf>,
    /// Judge a proof without what earlier answers proved
    #[arg(long)]
    no_memory: bool,
    /// The result as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// A verified seal, how many of its readings are there, and where it was found.
struct Found {
    seal: Seal<Authentic>,
    readings: u32,
    file: PathBuf,
}

/// What is wrong, and how bad that is.
struct Problem {
    exit: Exit,
    text: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let given = expand(&arguments.files)?;
    let read_here: Vec<&PathBuf> =
        given.iter().chain([&arguments.roster, &arguments.operator]).collect();
    distinct(&[("--out", arguments.destination.out())], &read_here)?;
    let mut seals: BTreeMap<DeviceId, BTreeMap<SealIndex, Found>> = BTreeMap::new();
    let mut problems = Vec::new();
    // Which of the problems are signatures that do not hold.
    let mut unauthentic = Vec::new();
    let progress = bar(given.len() as u64, "verifying");
    for path in &given {
        let stream = Stream::open(path)?;
        if stream.is_proof() {
            if given.len() > 1 {
                return Err(Failure::usage(format_args!(
                    "{} is a proof; verify each proof by itself",
                    path.display()
                )));
            }
            return proof(arguments, path, stream, &roster);
        }
        if arguments.destination.is_given() {
            return Err(Failure::usage(
                "--out and --format are for the rows of a proof; a bundle's come from `moteseal get`",
            ));
        }
        match read(stream, &roster) {
            Err(Unread::File(error)) => return Err(Failure::file("read", path, &error)),
            Err(Unread::NotAuthentic(cause)) => {
                unauthentic.push(problems.len());
                problems.push(Problem {
                    exit: Exit::Refused,
                    text: format!("{}: {cause}", path.display()),
                });
            }
            Err(Unread::Refused(cause)) => {
                let text = format!("{}: {cause}{}", path.display(), files::likeness(path));
                problems.push(Problem { exit: Exit::Refused, text });
            }
            Ok(found) if found.is_empty() => {
                problems.push(Problem {
                    exit: Exit::Refused,
                    text: format!("{}: no seal is in it", path.display()),
                });
            }
            Ok(found) => {
                for (seal, readings) in found.into_values() {
                    let (device, index) = (seal.statement().device, seal.statement().index);
                    let chain = seals.entry(device).or_default();
                    match chain.get(&index) {
                        Some(other) if other.seal.digest() != seal.digest() => problems.push(Problem {
                            exit: Exit::Finding,
                            text: format!(
                                "{} and {}: Equivocation: device {} signed two different seals under index {index}",
                                other.file.display(),
                                path.display(),
                                name(&roster, device)
                            ),
                        }),
                        Some(_) => {}
                        None => drop(chain.insert(index, Found { seal, readings, file: path.clone() })),
                    }
                }
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();

    let mut reports = Vec::new();
    for (device, chain) in &seals {
        problems.extend(gaps(&roster, *device, chain));
        reports.push(report(&roster, *device, chain));
    }
    // By name: ids are in no order that means anything.
    reports.sort_by(|(_, one), (_, other)| one.cmp(other));
    if seals.is_empty() {
        // Nothing holds: rather the roster is another than that all of it is forged.
        for at in unauthentic {
            let Some(problem) = problems.get_mut(at) else { continue };
            problem.text += &format!(
                " (no seal of what was given holds under {}: was it made by the operator who certified these devices?)",
                arguments.roster.display()
            );
        }
    }
    let mut out = Stdout::lock();
    if arguments.json {
        let texts: Vec<&str> = problems.iter().map(|problem| problem.text.as_str()).collect();
        let devices: Vec<&Value> = reports.iter().map(|(value, _)| value).collect();
        out.line(
            json!({ "verified": problems.is_empty(), "devices": devices, "problems": texts }),
        )?;
    } else {
        for (_, line) in &reports {
            out.line(line)?;
        }
    }
    // Each once, in the order of the files; the exit code tells of the gravest.
    let gravest = [Exit::Refused, Exit::Finding, Exit::Incomplete];
    let gravest =
        gravest.into_iter().find(|exit| problems.iter().any(|problem| problem.exit == *exit));
    let last = problems.pop();
    for problem in &problems {
        talk(format_args!("moteseal: {}", problem.text));
    }
    last.map_or(Ok(()), |last| Err(Failure::new(gravest.unwrap_or(last.exit), last.text)))
}

/// Verifies a proof, and writes its rows where that was asked for.
fn proof(
    arguments: &Arguments,
    path: &Path,
    stream: Stream,
    roster: &Roster,
) -> Result<(), Failure> {
    let memory = open_memory(arguments.memory.as_deref(), arguments.no_memory, roster)?;
    let (query, report) = if arguments.destination.is_given() {
        let mut output = arguments.destination.open(None, spinner("verified rows"))?;
        let verified = verify(stream, path, roster, memory.as_ref(), &mut output)
            .map_err(|error| proof_failure(roster, path, &error))?;
        output.keep()?;
        verified
    } else {
        verify(stream, path, roster, memory.as_ref(), &mut Nothing)
            .map_err(|error| proof_failure(roster, path, &error))?
    };
    say(&report, roster, "read");
    if arguments.json {
        let mut value = report.to_json();
        if let Some(object) = value.as_object_mut() {
            object.insert("verified".to_owned(), true.into());
            object.insert(
                "query".to_owned(),
                serde_json::from_str(&query.to_json()).unwrap_or_default(),
            );
        }
        Stdout::lock().line(value)?;
    } else if !arguments.destination.is_given() {
        Stdout::lock().line(format_args!(
            "{}: verified, {}",
            path.display(),
            in_words(&query, roster)
        ))?;
    }
    incomplete(&report, roster).map_or(Ok(()), Err)
}

fn proof_failure(roster: &Roster, path: &Path, error: &moteseal_client::Failure) -> Failure {
    let failure = get_failure(roster, error);
    failure.about(path)
}

/// A query for people: `1/8 of dev1, dev2, from 2026-01-01T00:00:00Z on`.
fn in_words(query: &Query, roster: &Roster) -> String {
    let choice = match query.choice {
        Choice::Rate(rate) if rate == Rate::ALL => "all".to_owned(),
        Choice::Rate(rate) => rate.to_string(),
        Choice::AtMost(most) => format!("at most {} an epoch", count(most, "reading")),
        Choice::Sample { count: drawn, .. } => {
            format!("{} an epoch, drawn by a seed,", count(drawn.into(), "reading"))
        }
    };
    let devices: Vec<String> = query.devices.iter().map(|device| name(roster, *device)).collect();
    let start = |epoch: EpochNumber| {
        roster.epoch_start_ms(epoch).map_or_else(|| format!("epoch {epoch}"), display_ms)
    };
    let range = match (query.since, query.until) {
        (EpochNumber(0), None) => "everything sealed so far".to_owned(),
        (EpochNumber(0), Some(until)) => format!("up to {}", start(until)),
        (since, None) => format!("from {} on", start(since)),
        (since, Some(until)) => format!("from {} to {}", start(since), start(until)),
    };
    format!("{choice} of {}, {range}", devices.join(", "))
}

/// The files given; of a directory, the bundles in it, in order of their names.
fn expand(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
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

/// Wants no rows.
struct Nothing;

impl Sink for Nothing {
    fn rows(&mut self, _: &Rows<'_>) -> Result<(), OutputError> {
        Ok(())
    }
}

fn name(roster: &Roster, device: DeviceId) -> String {
    roster.name(device).map_or_else(|| device.to_string(), str::to_owned)
}

/// Why a file's seals are not known.
enum Unread {
    File(io::Error),
    /// A signature is not that of the device which the roster has.
    NotAuthentic(String),
    Refused(String),
}

impl From<ReadError> for Unread {
    fn from(error: ReadError) -> Self {
        match error.name() {
            "NotAuthentic" => Self::NotAuthentic(error.named().to_string()),
            _ => Self::Refused(error.named().to_string()),
        }
    }
}

/// The authentic seals of a stream, each once, and how many readings of each are there: all that survived, or, behind the manifest of
/// their epoch, all from its round on. A seal whose readings were cut out is authentic still, but it is no bundle.
fn read(mut stream: Stream, roster: &Roster) -> Result<Seals, Unread> {
    let mut seals = Seals::new();
    let mut reader = StreamReader::new(roster, Limits::default());
    // The rounds of a group with a budget, by epoch; of several manifests the highest, which leaves the least.
    let mut rounds: BTreeMap<EpochNumber, Round> = BTreeMap::new();
    let mut visit = |event: Event<'_>| {
        if let Event::Manifest(manifest, _) = &event {
            let round = rounds.entry(manifest.epoch()).or_insert(Round(0));
            *round = manifest.round().max(*round);
        }
        let Event::Proven(proven) = event else { return Ok(()) };
        let statement = proven.seal.statement();
        let round = rounds.get(&statement.epoch).filter(|_| roster.budget().is_some());
        let from_round = proven.whole_from().zip(round).is_some_and(|(from, round)| from <= *round);
        if !proven.is_whole() && !from_round {
            return Err(Unread::Refused(format!(
                "NotWhole: seal {} of {} holds, but the file has {} of the {} readings under it; get the whole bundle",
                statement.index,
                name(roster, statement.device),
                thousands(proven.sample.len().into()),
                thousands(statement.counters.total())
            )));
        }
        let key = (statement.device, statement.index, proven.seal.digest().0);
        seals.insert(key, (proven.seal.clone(), proven.sample.len()));
        Ok(())
    };
    let mut chunk = vec![0; 64 << 10];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => reader.feed(&chunk[..length], &mut visit)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Unread::File(error)),
        }
    }
    reader.finish(&mut visit)?;
    Ok(seals)
}

/// Seals and how many of their readings are there, by device, index and digest: a file that repeats one is no larger for it.
type Seals = BTreeMap<(DeviceId, SealIndex, [u8; 32]), (Seal<Authentic>, u32)>;

/// Where the seals given of a device are no one history: from the first of them on, whatever lies before it.
fn gaps(roster: &Roster, device: DeviceId, chain: &BTreeMap<SealIndex, Found>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut found = chain.values();
    let Some(mut history) = found.next().map(|first| History::after(&first.seal)) else {
        return problems;
    };
    for Found { seal, file, .. } in found {
        let Err(error) = history.next(seal) else { continue };
        // What follows is measured by this seal.
        history = History::after(seal);
        let (exit, what) = match error {
            Incomplete::Missing { index, epoch, .. } => {
                let epoch = epoch.map_or_else(String::new, |epoch| format!(", of epoch {epoch}"));
                (
                    Exit::Incomplete,
                    format!(
                        "Missing: seal {index} of {}{epoch}, which seal {} names",
                        name(roster, device),
                        seal.statement().index
                    ),
                )
            }
            Incomplete::Equivocation { index, .. } => (
                Exit::Finding,
                format!(
                    "Equivocation: device {} signed two histories that part at index {index}; seal {} names another predecessor",
                    name(roster, device),
                    seal.statement().index
                ),
            ),
            error => (Exit::Refused, error.named().to_string()),
        };
        problems.push(Problem { exit, text: format!("{}: {what}", file.display()) });
    }
    problems
}

fn report(
    roster: &Roster,
    device: DeviceId,
    chain: &BTreeMap<SealIndex, Found>,
) -> (Value, String) {
    let statements = || chain.values().map(|found| found.seal.statement());
    let events: u64 = chain.values().map(|found| u64::from(found.readings)).sum();
    let restarts = statements().filter(|statement| statement.restart).count();
    let (first, last) = (statements().next(), statements().next_back());
    let ends = first
        .zip(last)
        .map(|(first, last)| ((first.index.0, last.index.0), (first.epoch, last.epoch)));
    let ((from, to), (since, until)) = ends.unwrap_or_default();
    let name = name(roster, device);
    let outages = if restarts > 0 {
        format!("  {}", count(restarts as u64, "restart"))
    } else {
        String::new()
    };
    let line = format!(
        "{name:<12} verified  {} of {}  {}  epochs from {}{outages}",
        thousands(chain.len() as u64),
        range("seal", from, to),
        count(events, "reading"),
        span(roster, since, until),
    );
    let value = json!({
        "device": device.to_string(),
        "name": name,
        "seals": chain.len(),
        "first_index": from,
        "last_index": to,
        "first_epoch": since.0,
        "last_epoch": until.0,
        "events": events,
        "restarts": restarts,
    });
    (value, line)
}
