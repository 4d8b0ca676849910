//! Merges proofs: what each of them shows, in one proof.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_verify::sanitised::WaitingStatements;
use moteseal_verify::{Event, Roster};

use super::RedactError;
use super::output::Output;
use super::part::{NotMergeable, OwnedPart};
use crate::bundles::{device_name, each_part};
use crate::completeness::Report;
use crate::error::Error;
use crate::proof::{self, Extent, Scope};
use crate::rejection::Rejection;
use crate::rows::NoRows;
use crate::sanitised::Accepted;
use crate::session::{Session, all_threads};

/// The maximum size of all parts, in MiB.
const MOST_MIB: usize = 512;

/// Writes a proof that shows what any of the proofs `sources` shows. Each is a reader and its path.
/// Where several proofs have the same seal, the new proof has the readings of all. The order of the
/// devices is that of the first proof, then that of the others.
///
/// The new proof is a redacted one, whatever the others are: nothing shows that they are parts of the
/// answer to one query. Returns the report of the new proof, which is written to `out`.
///
/// # Errors
/// [`MergeError`] if a proof is rejected; if the proofs are not parts of the same originals
/// ([`RedactError::NotOneOriginal`]), or are too large; or if a file cannot be read or written.
pub fn merge<R: Read>(
    sources: Vec<(R, &Path)>,
    roster: &Roster,
    out: &Path,
) -> Result<Report, MergeError> {
    let mut merger = Merger::new(roster);
    for (source, path) in sources {
        let read = merger.read(source, path);
        read.map_err(|error| MergeError { path: Some(path.to_owned()), error })?;
    }
    merger.write(out).map_err(|error| MergeError { path: None, error })
}

/// Why proofs were not merged.
#[derive(Debug)]
pub struct MergeError {
    /// The proof that was rejected or that does not fit to those before it; `None` if the new proof could
    /// not be made.
    pub path: Option<PathBuf>,
    /// What happened.
    pub error: Error,
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        self.error.fmt(f)
    }
}

impl std::error::Error for MergeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Collects the parts of proofs and bundles.
#[derive(Debug)]
pub(super) struct Merger<'r> {
    pub(super) roster: &'r Roster,
    extent: Option<Extent>,
    /// The parts of each seal. They are merged when all are known, except those that always merge.
    parts: BTreeMap<DeviceId, BTreeMap<SealIndex, Vec<OwnedPart>>>,
    statements: WaitingStatements,
    /// The size of all parts, in bytes.
    size: usize,
}

/// Consecutive seals, of which the last one is signed, and whether the new proof must show each.
pub(super) type Run = Vec<(OwnedPart, bool)>;

impl<'r> Merger<'r> {
    pub(super) fn new(roster: &'r Roster) -> Self {
        let (parts, statements) = (BTreeMap::new(), WaitingStatements::default());
        Self { roster, extent: None, parts, statements, size: 0 }
    }

    /// Verifies a file of bundles and adds its parts, with their devices and epochs.
    pub(super) fn read_bundles(&mut self, source: impl Read) -> Result<(), Error> {
        each_part::<Error>(source, self.roster, &mut |proven| {
            let statement = proven.seal.statement();
            let (device, epoch) = (statement.device, statement.epoch);
            let until = epoch.0.checked_add(1).map(EpochNumber);
            self.extend(&[device], (epoch, until));
            Ok(self.add(device, OwnedPart::of(proven, Vec::new()))?)
        })
    }

    /// Verifies a proof and adds its parts.
    fn read(&mut self, source: impl Read, path: &Path) -> Result<(), Error> {
        let mut session = Session::of_proof(self.roster, None)
            .with_threads(all_threads())
            .accepting(Accepted::All);
        proof::pieces(source, path, &mut |piece| {
            session.observe(piece, &mut |event| self.event(event))
        })?;
        session.finish(&mut NoRows)?;
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), Error> {
        match event {
            Event::Proof(text) => {
                let (scope, _) =
                    Scope::decode(text).map_err(|cause| Rejection::NotAProof { cause })?;
                self.extend(scope.devices(), scope.range());
                Ok(())
            }
            Event::Proven(proven) => {
                let device = proven.seal.statement().device;
                let sanitised =
                    self.statements.take(proven, self.roster).map_err(Rejection::from)?;
                Ok(self.add(device, OwnedPart::of(proven, sanitised))?)
            }
            Event::Sanitised(signed, cells) => {
                let pushed = self.statements.push((signed, cells), self.roster);
                Ok(pushed.map_err(Rejection::from)?)
            }
            _ => Ok(()),
        }
    }

    /// Adds devices and a range.
    fn extend(&mut self, devices: &[DeviceId], (since, until): (EpochNumber, Option<EpochNumber>)) {
        let Some(extent) = &mut self.extent else {
            self.extent = Some(Extent { devices: devices.to_vec(), since, until });
            return;
        };
        for device in devices {
            if !extent.devices.contains(device) {
                extent.devices.push(*device);
            }
        }
        extent.since = extent.since.min(since);
        extent.until = extent.until.zip(until).map(|(one, two)| one.max(two));
    }

    fn add(&mut self, device: DeviceId, mut part: OwnedPart) -> Result<(), RedactError> {
        let index = part.index();
        let known = self.parts.entry(device).or_default().entry(index).or_default();
        if known.first().is_some_and(|first| first.seal.digest() != part.seal.digest()) {
            let name = device_name(self.roster, device);
            return Err(RedactError::NotOneOriginal { name, index });
        }
        let before: usize = known.iter().map(OwnedPart::size).sum();
        known.retain(|other| !(part.always_merges(other) && part.merge(other).is_ok()));
        known.push(part);
        self.size = self.size + known.iter().map(OwnedPart::size).sum::<usize>() - before;
        if self.size > MOST_MIB << 20 {
            return Err(RedactError::ProofTooLarge { limit: MOST_MIB });
        }
        Ok(())
    }

    fn write(self, out: &Path) -> Result<Report, Error> {
        let roster = self.roster;
        let (extent, runs) = self.finish()?;
        let mut output = Output::create(out, &Scope::Redacted(extent), roster)?;
        for run in runs {
            output.run(run)?;
        }
        output.finish()
    }

    /// Merges the parts of each seal. Returns the devices and the range, and the seals in the order of
    /// the devices and of their indices.
    pub(super) fn finish(self) -> Result<(Extent, Vec<Run>), Error> {
        let Self { roster, extent, mut parts, .. } = self;
        let extent = extent.ok_or(RedactError::NothingLeft)?;
        let mut runs = Vec::new();
        for device in &extent.devices {
            let (mut run, mut newest) = (Vec::new(), None);
            for (index, parts) in parts.remove(device).unwrap_or_default() {
                let part = merge_all(parts).map_err(|error| {
                    let name = device_name(roster, *device);
                    match error {
                        NotMergeable::Parts => RedactError::NotMergeable { name, index },
                        NotMergeable::Statements => {
                            RedactError::SanitiserEquivocation { name, index }
                        }
                    }
                })?;
                let statement = part.seal.statement();
                // A seal without a signature is proven by the seal after it, which is in its proof.
                if !run.is_empty() && newest != Some(statement.prev) {
                    let device = *device;
                    return Err(Rejection::Equivocation { device, index }.into());
                }
                newest = Some(part.seal.digest());
                let (is_signed, in_range) =
                    (part.is_signed(), extent.has(*device, statement.epoch));
                run.push((part, in_range));
                if is_signed {
                    runs.push(std::mem::take(&mut run));
                }
            }
        }
        Ok((extent, runs))
    }
}

/// Merges the parts of one seal, in an order that depends only on what they show.
fn merge_all(mut parts: Vec<OwnedPart>) -> Result<OwnedPart, NotMergeable> {
    parts.sort_by(OwnedPart::order);
    while parts.len() > 1 {
        let merged = merge_two(&mut parts)?;
        parts.remove(merged);
    }
    parts.pop().ok_or(NotMergeable::Parts)
}

/// Merges a part into one before it. Returns the place of the part.
fn merge_two(parts: &mut [OwnedPart]) -> Result<usize, NotMergeable> {
    for two in 1..parts.len() {
        for one in 0..two {
            let (first, second) = parts.split_at_mut(two);
            match first[one].merge(&second[0]) {
                Ok(()) => return Ok(two),
                Err(NotMergeable::Parts) => {}
                Err(NotMergeable::Statements) => return Err(NotMergeable::Statements),
            }
        }
    }
    Err(NotMergeable::Parts)
}
