//! Bundles (.mseal), verified offline: every signature, every reading, and no seal missing between a device's first and last.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex};
use moteseal_seal::follow::Limits;
use moteseal_seal::{Authentic, History, Incomplete, Seal};
use moteseal_verify::{Event, ReadError, Roster, StreamReader};
use pyo3::prelude::*;

use crate::answer::Stopping;
use crate::failure::{Kind, Problem, name};
use crate::source::roster;
use crate::work::{self, Stop};

/// What bundles hold of one device: an unbroken run of its seals, with every reading under them.
#[pyclass(frozen, get_all, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct BundleReport {
    /// The device's name.
    name: String,
    /// Its id, 16 hexadecimal digits.
    id: String,
    /// How many seals there are.
    seals: usize,
    /// The index of the first of them.
    first_index: u32,
    /// The index of the last.
    last_index: u32,
    /// The first epoch.
    first_epoch: u64,
    /// The last epoch.
    last_epoch: u64,
    /// The readings that are there.
    events: u64,
    /// How often the device admits to have restarted.
    restarts: usize,
}

#[pymethods]
impl BundleReport {
    fn __repr__(&self) -> String {
        let Self { name, seals, events, first_index, last_index, .. } = self;
        format!(
            "<moteseal.BundleReport {name:?}: {events} readings under {seals} seals, {first_index} to {last_index}>"
        )
    }
}

/// Whether a file is a proof (.mproof) by its first bytes; else it is taken for a bundle.
#[pyfunction]
pub(crate) fn is_proof(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    let mut head = Vec::with_capacity(2);
    let read = File::open(&path).and_then(|file| file.take(2).read_to_end(&mut head));
    read.map_err(|error| Problem::file(&path, &error).raise(py))?;
    // An array of three whose first element is 5 (spec/formats.md, section 4).
    Ok(head == [0x83, 0x05])
}

/// Verifies bundles (.mseal): every signature and every reading, and that no seal is missing between the first and the last of each
/// device. Needs no network. The devices come by their names.
#[pyfunction]
#[pyo3(signature = (paths, roster, operator = None))]
pub(crate) fn verify_bundles(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    roster: &Bound<'_, PyAny>,
    operator: Option<PathBuf>,
) -> PyResult<Vec<BundleReport>> {
    let roster = self::roster(roster, operator)?.get().roster.clone();
    work::run(py, move |stop| verified(&paths, &roster, stop))
}

/// A verified seal, how many of its readings are there, and where it was found.
struct Found {
    seal: Seal<Authentic>,
    readings: u32,
    file: PathBuf,
}

/// A seal, and how many of its readings are there.
type Authenticated = (Seal<Authentic>, u32);
/// A device's seals.
type Chain = BTreeMap<SealIndex, Found>;

fn verified(
    paths: &[PathBuf],
    roster: &Arc<Roster>,
    stop: &Stop,
) -> Result<Vec<BundleReport>, Problem> {
    let mut devices: BTreeMap<DeviceId, Chain> = BTreeMap::new();
    for path in paths {
        for (seal, readings) in read(path, roster, stop).map_err(|problem| problem.in_file(path))? {
            let (device, index) = (seal.statement().device, seal.statement().index);
            let chain = devices.entry(device).or_default();
            if let Some(other) = chain.get(&index) {
                if other.seal.digest() != seal.digest() {
                    let text = format_args!(
                        "device {device} signed two different seals under index {index}, in {} too",
                        other.file.display()
                    );
                    return Err(equivocation(text, device, index, roster).in_file(path));
                }
                continue;
            }
            chain.insert(index, Found { seal, readings, file: path.clone() });
        }
    }
    for (device, chain) in &devices {
        unbroken(*device, chain, roster)?;
    }
    let mut reports: Vec<BundleReport> =
        devices.iter().filter_map(|(device, chain)| report(*device, chain, roster)).collect();
    // By name: ids are in no order that means anything.
    reports.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(reports)
}

fn equivocation(
    text: std::fmt::Arguments<'_>,
    device: DeviceId,
    index: SealIndex,
    roster: &Roster,
) -> Problem {
    Problem::new(Kind::Refused, "Equivocation", text)
        .about(Some(device), roster)
        .at(Some(index.0.into()), None)
}

/// The authentic seals of a bundle, and how many readings of each are there: all that survived, or, behind the manifest of their epoch,
/// all from its round on. A seal whose readings were cut out is authentic still, but it is no bundle.
fn read(path: &Path, roster: &Roster, stop: &Stop) -> Result<Vec<Authenticated>, Problem> {
    let file = File::open(path).map_err(|error| Problem::file(path, &error))?;
    let mut file = Stopping { file, stop };
    // Each once: a file that repeats a seal is no larger for it.
    let mut seals: BTreeMap<(DeviceId, SealIndex, [u8; 32]), Authenticated> = BTreeMap::new();
    // The rounds of a group with a budget, by epoch; of several manifests the highest, which leaves the least.
    let mut rounds: BTreeMap<EpochNumber, Round> = BTreeMap::new();
    let mut reader = StreamReader::new(roster, Limits::default());
    let mut visit = |event: Event<'_>| {
        if let Event::Manifest(manifest, _) = &event {
            let round = rounds.entry(manifest.epoch()).or_insert(Round(0));
            *round = manifest.round().max(*round);
        }
        let Event::Proven(proven) = event else { return Ok(()) };
        let statement = proven.seal.statement();
        let (device, index) = (statement.device, statement.index);
        let round = rounds.get(&statement.epoch).filter(|_| roster.budget().is_some());
        let from_round = proven.whole_from().zip(round).is_some_and(|(from, round)| from <= *round);
        if !proven.is_whole() && !from_round {
            let (there, all) = (proven.sample.len(), statement.counters.total());
            let text = format_args!(
                "seal {index} of device {device} holds, but the file has {there} of the {all} readings under it; get the whole bundle"
            );
            let problem = Problem::new(Kind::Refused, "NotWhole", text).about(Some(device), roster);
            return Err(Unread(problem.at(Some(index.0.into()), Some(statement.epoch.0))));
        }
        seals.insert(
            (device, index, proven.seal.digest().0),
            (proven.seal.clone(), proven.sample.len()),
        );
        Ok(())
    };
    let mut chunk = vec![0; 64 << 10];
    let unread = |Unread(problem): Unread| problem;
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => reader.feed(&chunk[..length], &mut visit).map_err(unread)?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Problem::file(path, &error)),
        }
    }
    reader.finish(&mut visit).map_err(unread)?;
    if seals.is_empty() {
        return Err(Problem::new(Kind::Refused, "NotWhole", "no seal is in it"));
    }
    Ok(seals.into_values().collect())
}

/// Why a bundle's seals are not known.
struct Unread(Problem);

impl From<ReadError> for Unread {
    fn from(error: ReadError) -> Self {
        Self(Problem::named(Kind::Refused, error.name(), error.named()))
    }
}

/// Whether the seals given of a device are one history, from the first of them on.
fn unbroken(device: DeviceId, chain: &Chain, roster: &Roster) -> Result<(), Problem> {
    let mut found = chain.values();
    let Some(mut history) = found.next().map(|first| History::after(&first.seal)) else {
        return Ok(());
    };
    for Found { seal, file, .. } in found {
        let at = seal.statement().index;
        history.next(seal).map_err(|error| {
            let problem = match error {
                Incomplete::Missing { index, epoch, .. } => {
                    let text = format_args!("seal {index} of device {device} is in none of the files, and seal {at} names it");
                    let problem = Problem::new(Kind::Incomplete, "Missing", text).about(Some(device), roster);
                    problem.at(Some(index.0.into()), epoch.map(|epoch| epoch.0))
                }
                Incomplete::Equivocation { index, .. } => {
                    let text = format_args!(
                        "device {device} signed two histories that part at index {index}; seal {at} names another predecessor"
                    );
                    equivocation(text, device, index, roster)
                }
                error => Problem::named(Kind::Refused, "Refused", error.named()).about(Some(device), roster),
            };
            problem.in_file(file)
        })?;
    }
    Ok(())
}

fn report(device: DeviceId, chain: &Chain, roster: &Roster) -> Option<BundleReport> {
    let statements = || chain.values().map(|found| found.seal.statement());
    let (first, last) = (statements().next()?, statements().next_back()?);
    Some(BundleReport {
        name: name(roster, device),
        id: device.to_string(),
        seals: chain.len(),
        first_index: first.index.0,
        last_index: last.index.0,
        first_epoch: first.epoch.0,
        last_epoch: last.epoch.0,
        events: chain.values().map(|found| u64::from(found.readings)).sum(),
        restarts: statements().filter(|statement| statement.restart).count(),
    })
}
