//! Merges proofs: what each of them shows, in one proof.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_verify::{Event, Roster};

use super::RedactError;
use super::output::Output;
use super::part::{NotMergeable, OwnedPart};
use crate::bundles::device_name;
use crate::completeness::Report;
use crate::error::Error;
use crate::proof::{self, Extent, Scope};
use crate::rejection::Rejection;
use crate::rows::NoRows;
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
    let mut merger = Merger { roster, extent: None, parts: BTreeMap::new(), size: 0 };
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

struct Merger<'r> {
    roster: &'r Roster,
    extent: Option<Extent>,
    parts: BTreeMap<DeviceId, BTreeMap<SealIndex, OwnedPart>>,
    /// The size of all parts, in bytes.
    size: usize,
}

impl Merger<'_> {
    /// Verifies a proof and adds its parts.
    fn read(&mut self, source: impl Read, path: &Path) -> Result<(), Error> {
        let mut session = Session::of_proof(self.roster, None).with_threads(all_threads());
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
                self.extend(&scope);
                Ok(())
            }
            Event::Proven(proven) => {
                let device = proven.seal.statement().device;
                Ok(self.add(device, OwnedPart::of(proven))?)
            }
            _ => Ok(()),
        }
    }

    /// Adds the devices and the range of a proof.
    fn extend(&mut self, scope: &Scope) {
        let (since, until) = scope.range();
        let Some(extent) = &mut self.extent else {
            self.extent = Some(Extent { devices: scope.devices().to_vec(), since, until });
            return;
        };
        for device in scope.devices() {
            if !extent.devices.contains(device) {
                extent.devices.push(*device);
            }
        }
        extent.since = extent.since.min(since);
        extent.until = extent.until.zip(until).map(|(one, two)| one.max(two));
    }

    fn add(&mut self, device: DeviceId, part: OwnedPart) -> Result<(), RedactError> {
        let index = part.index();
        let parts = self.parts.entry(device).or_default();
        self.size += part.size();
        match parts.get_mut(&index) {
            Some(known) if known.seal.digest() == part.seal.digest() => {
                let before = known.size() + part.size();
                let name = || device_name(self.roster, device);
                let merged = known.merge(part);
                merged.map_err(|NotMergeable| RedactError::NotMergeable { name: name(), index })?;
                self.size = self.size + known.size() - before;
            }
            Some(_) => {
                let name = device_name(self.roster, device);
                return Err(RedactError::NotOneOriginal { name, index });
            }
            None => _ = parts.insert(index, part),
        }
        if self.size > MOST_MIB << 20 {
            return Err(RedactError::ProofTooLarge { limit: MOST_MIB });
        }
        Ok(())
    }

    fn write(self, out: &Path) -> Result<Report, Error> {
        let Self { roster, extent, mut parts, .. } = self;
        let extent = extent.ok_or(RedactError::NothingLeft)?;
        let mut output = Output::create(out, &extent, roster)?;
        for device in &extent.devices {
            let (mut run, mut newest) = (Vec::new(), None);
            for (index, part) in parts.remove(device).unwrap_or_default() {
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
                    output.run(std::mem::take(&mut run))?;
                }
            }
        }
        output.finish()
    }
}
