//! Verifies bundles (`.mseal`) offline: verifies every signature and every reading, and checks that
//! no seal is missing between the first and the last seal of each device.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex};
use moteseal_seal::follow::Limits;
use moteseal_seal::{Authentic, History, Incomplete, Seal};
use moteseal_verify::{Event, Proven, ReadError, Roster, StreamReader};

/// A bundle or a proof that is read once, from start to end. It may have any size and may come from
/// a pipe.
#[derive(Debug)]
pub struct StreamFile {
    head: [u8; 2],
    length: usize,
    /// The number of bytes of the head that the reader has already returned.
    given: usize,
    file: File,
}

impl StreamFile {
    /// Opens a file and reads its first two bytes. Fails with `UnexpectedEof` if the file is empty.
    ///
    /// # Errors
    /// The error of the operating system if the file cannot be opened or read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut head = Vec::with_capacity(2);
        Read::by_ref(&mut file).take(2).read_to_end(&mut head)?;
        match head[..] {
            [] => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is empty")),
            [first] => Ok(Self { head: [first, 0], length: 1, given: 0, file }),
            [first, second, ..] => Ok(Self { head: [first, second], length: 2, given: 0, file }),
        }
    }

    /// Returns whether the file is a proof. The first item of a proof is an array of three elements
    /// whose first element is 5 (`spec/answers.md`, section 1).
    #[must_use]
    pub const fn is_proof(&self) -> bool {
        matches!((self.length, self.head), (2, [0x83, 0x05]))
    }
}

impl Read for StreamFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.length {
            return self.file.read(buffer);
        }
        let read = (&self.head[self.given..self.length]).read(buffer)?;
        self.given += read;
        Ok(read)
    }
}

/// The contents of a device's bundles: consecutive seals with all their readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleReport {
    /// The device.
    pub device: DeviceId,
    /// The device's name in the roster.
    pub name: String,
    /// The number of seals.
    pub seals: usize,
    /// The index of the first seal.
    pub first_index: SealIndex,
    /// The index of the last seal.
    pub last_index: SealIndex,
    /// The epoch of the first seal.
    pub first_epoch: EpochNumber,
    /// The epoch of the last seal.
    pub last_epoch: EpochNumber,
    /// The number of readings in the files.
    pub events: u64,
    /// The number of restarts that the device's seals state.
    pub restarts: usize,
}

/// A fault in a file, with the path of the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct BundleError {
    /// The file.
    pub path: PathBuf,
    /// The fault.
    pub fault: BundleFault,
}

/// A fault in the content of a bundle, or in the chain of a device's seals.
#[derive(Debug, thiserror::Error)]
pub enum BundleFault {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    File(#[from] io::Error),
    /// The bytes are not a stream, or are not authentic.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file has no seal.
    #[error("the file has no seal")]
    Empty,
    /// A seal is authentic, but some of its readings are not in the file.
    #[error(
        "seal {index} of {name} is authentic, but the file has {present} of its {all} readings; \
         get the whole bundle"
    )]
    NotWhole {
        /// The device.
        device: DeviceId,
        /// The device's name.
        name: String,
        /// The seal's index.
        index: SealIndex,
        /// The seal's epoch.
        epoch: EpochNumber,
        /// The number of readings in the file.
        present: u32,
        /// The number of readings that the seal counts.
        all: u64,
    },
    /// The device signed two different seals under one index.
    #[error(
        "device {name} signed two different seals under index {index}; the other one is in {}",
        other.display()
    )]
    TwoSeals {
        /// The device.
        device: DeviceId,
        /// The device's name.
        name: String,
        /// The index.
        index: SealIndex,
        /// The file of the other seal.
        other: PathBuf,
    },
    /// A seal names a predecessor that is not in any file.
    #[error(
        "seal {index} of {name}{} is not in any of the files, but seal {named_by} names it as its \
         predecessor",
        epoch.map_or_else(String::new, |epoch| format!(", of epoch {epoch},"))
    )]
    Missing {
        /// The device.
        device: DeviceId,
        /// The device's name.
        name: String,
        /// The missing seal's index.
        index: SealIndex,
        /// The missing seal's epoch, if it is known.
        epoch: Option<EpochNumber>,
        /// The index of the seal that names the missing seal.
        named_by: SealIndex,
    },
    /// A seal names a predecessor that differs from the seal in the files.
    #[error(
        "device {name} signed two histories that differ from index {index} on; seal {named_by} \
         names a different predecessor"
    )]
    TwoHistories {
        /// The device.
        device: DeviceId,
        /// The device's name.
        name: String,
        /// The first index at which the histories differ.
        index: SealIndex,
        /// The index of the seal that names a different predecessor.
        named_by: SealIndex,
    },
    /// The seals do not form a chain for another reason.
    #[error("{error}")]
    Chain {
        /// The device.
        device: DeviceId,
        /// The reason.
        error: Incomplete,
    },
}

impl BundleError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.fault.name()
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.fault.kind()
    }
}

moteseal_api::named_error!(BundleError, BundleFault);

impl BundleFault {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "BadFile",
            Self::Read(error) => error.name(),
            Self::Empty | Self::NotWhole { .. } => "NotWhole",
            Self::TwoSeals { .. } | Self::TwoHistories { .. } => "Equivocation",
            Self::Missing { .. } => "Missing",
            Self::Chain { error, .. } => error.name(),
        }
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File(error) if error.kind() == io::ErrorKind::NotFound => ErrorKind::Usage,
            Self::File(_) => ErrorKind::Internal,
            Self::Missing { .. } => ErrorKind::Incomplete,
            _ => ErrorKind::Refused,
        }
    }

    /// Returns the device that the fault concerns.
    #[must_use]
    pub const fn device(&self) -> Option<DeviceId> {
        match self {
            Self::Read(error) => error.device,
            Self::NotWhole { device, .. }
            | Self::TwoSeals { device, .. }
            | Self::Missing { device, .. }
            | Self::TwoHistories { device, .. }
            | Self::Chain { device, .. } => Some(*device),
            Self::File(_) | Self::Empty => None,
        }
    }

    /// Returns the index of the seal that the fault concerns.
    #[must_use]
    pub const fn index(&self) -> Option<SealIndex> {
        match self {
            Self::NotWhole { index, .. }
            | Self::TwoSeals { index, .. }
            | Self::Missing { index, .. }
            | Self::TwoHistories { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// Returns the epoch that the fault concerns.
    #[must_use]
    pub const fn epoch(&self) -> Option<EpochNumber> {
        match self {
            Self::NotWhole { epoch, .. } => Some(*epoch),
            Self::Missing { epoch, .. } => *epoch,
            _ => None,
        }
    }
}

/// An authentic seal, the number of its readings in the file, and the path of the file.
#[derive(Debug)]
struct Found {
    seal: Seal<Authentic>,
    readings: u32,
    path: PathBuf,
}

/// Verifies bundles one after the other, and then the chains that their seals form.
///
/// ```no_run
/// # fn example(roster: &moteseal_verify::Roster) -> Result<(), Box<dyn std::error::Error>> {
/// use moteseal_client::bundles::{BundleVerifier, StreamFile};
///
/// let mut bundles = BundleVerifier::new(roster);
/// let path = std::path::Path::new("dev1-0000000000.mseal");
/// bundles.add(path, StreamFile::open(path)?)?;
/// let (reports, faults) = bundles.finish();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BundleVerifier<'r> {
    roster: &'r Roster,
    devices: BTreeMap<DeviceId, BTreeMap<SealIndex, Found>>,
}

impl<'r> BundleVerifier<'r> {
    /// Creates a verifier of bundles of the devices of `roster`.
    #[must_use]
    pub const fn new(roster: &'r Roster) -> Self {
        Self { roster, devices: BTreeMap::new() }
    }

    /// Returns whether no seal has been verified.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Verifies one bundle. `path` is its name in error messages.
    ///
    /// # Errors
    /// [`BundleError`]. After the error [`TwoSeals`](BundleFault::TwoSeals), the other seals of the
    /// bundle that are consistent with the previous bundles are still added. After any other error,
    /// no seal of the bundle is added.
    pub fn add(&mut self, path: &Path, source: impl Read) -> Result<(), BundleError> {
        let fail = |fault| BundleError { path: path.to_owned(), fault };
        let seals = read(source, self.roster).map_err(fail)?;
        let mut result = Ok(());
        for (seal, readings) in seals {
            let (device, index) = (seal.statement().device, seal.statement().index);
            let chain = self.devices.entry(device).or_default();
            match chain.get(&index) {
                Some(other) if other.seal.digest() != seal.digest() => {
                    let (name, other) = (device_name(self.roster, device), other.path.clone());
                    result =
                        result.and(Err(fail(BundleFault::TwoSeals { device, name, index, other })));
                }
                Some(_) => {}
                None => {
                    chain.insert(index, Found { seal, readings, path: path.to_owned() });
                }
            }
        }
        result
    }

    /// Checks that the seals of each device form one chain. Returns a report for each device,
    /// ordered by name, and every fault of a chain. Seals before a device's first seal in the files
    /// are not required.
    #[must_use]
    pub fn finish(self) -> (Vec<BundleReport>, Vec<BundleError>) {
        let Self { roster, devices } = self;
        let mut faults = Vec::new();
        let mut reports = Vec::new();
        for (device, chain) in &devices {
            faults.extend(gaps(roster, *device, chain));
            reports.extend(report(roster, *device, chain));
        }
        reports.sort_by(|one, other| one.name.cmp(&other.name));
        (reports, faults)
    }
}

/// Returns a device's name, or its id if the roster has no name for it.
#[must_use]
pub fn device_name(roster: &Roster, device: DeviceId) -> String {
    roster.name(device).map_or_else(|| device.to_string(), str::to_owned)
}

/// Returns the authentic seals of a stream, each once, with the number of their readings.
fn read(source: impl Read, roster: &Roster) -> Result<Vec<(Seal<Authentic>, u32)>, BundleFault> {
    // Each seal is kept once, so that a file that repeats a seal needs no more memory.
    let mut seals = BTreeMap::new();
    each_part::<BundleFault>(source, roster, &mut |proven| {
        let statement = proven.seal.statement();
        let key = (statement.device, statement.index, proven.seal.digest().0);
        seals.insert(key, (proven.seal.clone(), proven.sample.len()));
        Ok(())
    })?;
    Ok(seals.into_values().collect())
}

/// Verifies a stream of bundles, and passes each of its parts to `visit`: at least one.
///
/// A bundle must have all readings that the device kept. If it contains the manifest of the epoch,
/// it must have the readings of all levels from the manifest's round on. A seal without all of
/// these readings is authentic, but it is not a bundle.
///
/// # Errors
/// The error of the stream, a [`BundleFault`], or the error of `visit`. What `visit` made of the parts
/// must then be discarded.
pub(crate) fn each_part<E: From<ReadError> + From<BundleFault>>(
    mut source: impl Read,
    roster: &Roster,
    visit: &mut dyn FnMut(&Proven<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = StreamReader::new(roster, Limits::default());
    // In a group with a budget, the highest round of the manifests of each epoch. The highest round
    // requires the fewest readings.
    let mut rounds: BTreeMap<EpochNumber, Round> = BTreeMap::new();
    let mut is_empty = true;
    let mut check = |event: Event<'_>| {
        if let Event::Manifest(manifest, _) = &event {
            let round = rounds.entry(manifest.epoch()).or_insert(Round(0));
            *round = manifest.round().max(*round);
        }
        let Event::Proven(proven) = event else { return Ok(()) };
        let statement = proven.seal.statement();
        let (device, index, epoch) = (statement.device, statement.index, statement.epoch);
        let round = rounds.get(&epoch).filter(|_| roster.budget(epoch).is_some());
        let from_round = proven.whole_from().zip(round).is_some_and(|(from, round)| from <= *round);
        if !proven.is_whole() && !from_round {
            let (present, all) = (proven.sample.len(), statement.counters.total());
            let name = device_name(roster, device);
            return Err(BundleFault::NotWhole { device, name, index, epoch, present, all }.into());
        }
        is_empty = false;
        visit(&proven)
    };
    let mut chunk = vec![0; 64 << 10];
    loop {
        match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => reader.feed::<E>(&chunk[..length], &mut check)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(BundleFault::from(error).into()),
        }
    }
    reader.finish::<E>(&mut check)?;
    if is_empty { Err(BundleFault::Empty.into()) } else { Ok(()) }
}

/// Returns the faults in the chain of a device's seals, from the device's first seal on.
fn gaps(roster: &Roster, device: DeviceId, chain: &BTreeMap<SealIndex, Found>) -> Vec<BundleError> {
    let mut faults = Vec::new();
    let mut found = chain.values();
    let Some(mut history) = found.next().map(|first| History::after(&first.seal)) else {
        return faults;
    };
    for Found { seal, path, .. } in found {
        let Err(error) = history.next_under(seal, roster) else { continue };
        // The following seals are compared with this seal.
        history = History::after(seal);
        let (name, named_by) = (device_name(roster, device), seal.statement().index);
        let fault = match error {
            Incomplete::Missing { index, epoch, .. } => {
                BundleFault::Missing { device, name, index, epoch, named_by }
            }
            Incomplete::Equivocation { index, .. } => {
                BundleFault::TwoHistories { device, name, index, named_by }
            }
            error => BundleFault::Chain { device, error },
        };
        faults.push(BundleError { path: path.clone(), fault });
    }
    faults
}

fn report(
    roster: &Roster,
    device: DeviceId,
    chain: &BTreeMap<SealIndex, Found>,
) -> Option<BundleReport> {
    let statements = || chain.values().map(|found| found.seal.statement());
    let (first, last) = (statements().next()?, statements().next_back()?);
    Some(BundleReport {
        device,
        name: device_name(roster, device),
        seals: chain.len(),
        first_index: first.index,
        last_index: last.index,
        first_epoch: first.epoch,
        last_epoch: last.epoch,
        events: chain.values().map(|found| u64::from(found.readings)).sum(),
        restarts: statements().filter(|statement| statement.restart).count(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The device, index and epoch that a fault concerns.
    type Concerns = (Option<DeviceId>, Option<SealIndex>, Option<EpochNumber>);

    #[test]
    fn every_fault_has_a_specified_name_and_states_what_it_concerns() {
        use ErrorKind::{Incomplete, Internal, Refused, Usage};
        let specified = include_str!("../../../spec/errors.md");
        let (device, index, epoch) = (DeviceId([7; 8]), SealIndex(3), EpochNumber(5));
        let (d, i, e) = (Some(device), Some(index), Some(epoch));
        let (name, named_by) = ("dev1".to_owned(), SealIndex(4));
        let faults: [(BundleFault, &str, ErrorKind, Concerns); 8] = [
            (
                BundleFault::File(io::ErrorKind::NotFound.into()),
                "BadFile",
                Usage,
                (None, None, None),
            ),
            (
                BundleFault::File(io::ErrorKind::InvalidData.into()),
                "BadFile",
                Internal,
                (None, None, None),
            ),
            (BundleFault::Empty, "NotWhole", Refused, (None, None, None)),
            (
                BundleFault::NotWhole {
                    device,
                    name: name.clone(),
                    index,
                    epoch,
                    present: 2,
                    all: 9,
                },
                "NotWhole",
                Refused,
                (d, i, e),
            ),
            (
                BundleFault::TwoSeals {
                    device,
                    name: name.clone(),
                    index,
                    other: PathBuf::from("other.mseal"),
                },
                "Equivocation",
                Refused,
                (d, i, None),
            ),
            (
                BundleFault::Missing { device, name: name.clone(), index, epoch: e, named_by },
                "Missing",
                Incomplete,
                (d, i, e),
            ),
            (
                BundleFault::TwoHistories { device, name, index, named_by },
                "Equivocation",
                Refused,
                (d, i, None),
            ),
            (
                BundleFault::Chain {
                    device,
                    error: moteseal_seal::Incomplete::TailUnknown { device, from: epoch },
                },
                "TailUnknown",
                Refused,
                (d, None, None),
            ),
        ];
        for (fault, name, kind, concerns) in faults {
            let found = (fault.device(), fault.index(), fault.epoch());
            assert_eq!((fault.name(), fault.kind(), found), (name, kind, concerns));
            assert!(specified.contains(&format!("`{name}`")), "{name}");
            let text = fault.to_string();
            assert!(concerns.1.is_none() || text.contains("dev1"), "{text}");
            let error = BundleError { path: PathBuf::from("a.mseal"), fault };
            assert_eq!((error.name(), error.kind()), (name, kind));
            assert_eq!(error.to_string(), format!("a.mseal: {text}"));
        }
    }
}
