//! `moteseal store check`: reads everything that a client could read from a store, verifies every
//! seal again, and reports all damage.
//!
//! It never writes to the file: repairs by redb stay in memory. It checks:
//!
//! - every page, by its checksum
//! - every seal, by its signature, its place in the chain and the digests of its events
//! - every urgent event, by its signature
//! - the tables against each other, in both directions
//! - the whole file, by redb's own checksums
//! - the batches that a crash left in the store's journal
//!
//! If rows cannot be read, the check continues with the next readable row. The finding then states
//! the device and the indices between the last readable row and the next readable row.

mod rows;
mod urgent;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::PoisonError;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Level, SealIndex};
use moteseal_core::roster::Directory;
use moteseal_lanes::Host;
use moteseal_seal::engine::Engine;
use moteseal_seal::sample::Manifest;
use moteseal_seal::{SealError, star};
use moteseal_verify::{SchemaEntry, manifest};
use redb::{Database, ReadableDatabase, ReadableTable};

use crate::bundle::SealKey;
use crate::embedded::{
    self, EQUIVOCATIONS, MANIFESTS, PIECES, SCHEMAS, SEALS, UNORDERED, frozen_journal, guarded,
    open_frozen, read_body, resolve,
};
use crate::embedded::{OpenError, Options};
use crate::epochs::ReadError;
use crate::manifest::ManifestKey;
use crate::pages::Damaged;
use crate::stored::StoredSeal;
use crate::tiles;

/// The progress of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of seals read so far.
    pub seals: u64,
    /// The bytes of heads and bodies read so far.
    pub bytes: u64,
    /// The length of the file in bytes, which is an upper bound that `bytes` does not reach.
    pub file_bytes: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of seals read.
    pub seals: u64,
    /// The number of seals that are void: the roster has ended the key that signed them. Their
    /// signatures are not checked, and they are not served.
    pub void: u64,
    /// The number of seals and manifests that are outdated: they name an earlier version of the
    /// roster than the version that introduced the period of their epoch. Their signatures are not
    /// checked, and they are not served.
    pub outdated: u64,
    /// The number of manifests read.
    pub manifests: u64,
    /// The number of urgent events read.
    pub urgent: u64,
    /// The number of events that the store holds.
    pub events: u64,
    /// The bytes of heads and bodies read.
    pub bytes: u64,
    /// All damage, in the order in which it was found.
    pub damage: Vec<Finding>,
    /// The missing seals to which a stored seal refers as its predecessor. Such gaps result from
    /// damage, but also from a device that has not pushed everything yet; the store cannot
    /// distinguish the two.
    pub gaps: Vec<Finding>,
}

impl Report {
    /// Returns whether the check found no damage.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.damage.is_empty()
    }
}

/// One problem that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the problem. spec/errors.md lists the names that verifiers also use.
    pub name: &'static str,
    /// The device, or `None` if the finding concerns the whole store.
    pub device: Option<DeviceId>,
    /// The first and the last index concerned, or `None` if the finding concerns the whole device.
    pub indices: Option<(SealIndex, SealIndex)>,
    /// What is wrong, in a few words.
    pub what: String,
}

impl Finding {
    fn file(what: impl Into<String>) -> Self {
        Self { name: "StoreDamaged", device: None, indices: None, what: what.into() }
    }

    fn seal(name: &'static str, key: &SealKey, what: impl Into<String>) -> Self {
        Self {
            name,
            device: Some(key.device),
            indices: Some((key.index, key.index)),
            what: what.into(),
        }
    }

    fn manifest(name: &'static str, key: &ManifestKey, what: &str) -> Self {
        Self { name, device: None, indices: None, what: format!("{key} {what}") }
    }

    /// Returns whether the finding concerns a seal: its index, its whole device or the whole store.
    #[must_use]
    pub fn concerns(&self, device: DeviceId, index: SealIndex) -> bool {
        self.device.is_none_or(|found| found == device)
            && self.indices.is_none_or(|(first, last)| first <= index && index <= last)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        if let Some(device) = self.device {
            write!(f, "device {device}")?;
            match self.indices {
                Some((first, last)) if first == last => write!(f, ", index {first}")?,
                Some((first, SealIndex(u32::MAX))) => write!(f, ", indices from {first} on")?,
                Some((first, last)) => write!(f, ", indices {first} to {last}")?,
                None => {}
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.what)
    }
}

/// Returns whether the version of the roster with the digest `named` is earlier than the version
/// that introduced the period of `epoch`.
fn is_outdated(directory: &dyn Directory, named: &Digest, epoch: EpochNumber) -> bool {
    (0..directory.least_version(epoch))
        .any(|version| directory.roster_digest(version).as_ref() == Some(named))
}

/// Checks the store at `path` with the public keys in `directory`. Calls `progress` after every
/// seal.
///
/// No other process may have the store open.
///
/// # Errors
/// [`OpenError`] if the store cannot be checked because the file does not exist, is not a store, or
/// is in use. If the file is too damaged to be opened, that is a finding and not an error.
pub fn check(
    path: &Path,
    directory: &dyn Directory,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, OpenError> {
    let path = &resolve(path)?;
    let damaged = Damaged::default();
    let mut report = Report::default();
    let mut database =
        match open_frozen(path, &Options { create: false, ..Options::default() }, &damaged) {
            Ok(database) => database,
            Err(OpenError::Damaged(_, what)) => {
                report.damage.push(Finding::file(format!("the file cannot be opened: {what}")));
                return Ok(report);
            }
            Err(error) => return Err(error),
        };
    match frozen_journal(path, &database) {
        Ok(0) => {}
        Ok(torn) => report.damage.push(Finding {
            name: "JournalTorn",
            device: None,
            indices: None,
            what: format!(
                "the tail of the store's journal may have lost {torn} bytes: a crash interrupted \
                 its last write, or acknowledged uploads are damaged; push the devices' data again"
            ),
        }),
        Err(error @ (OpenError::Locked(_) | OpenError::Io(..))) => return Err(error),
        Err(error) => report.damage.push(Finding {
            name: error.name(),
            device: None,
            indices: None,
            what: error.to_string(),
        }),
    }
    let file_bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut check = Check {
        database: &database,
        directory,
        engine: Host::detect(),
        schemas: HashMap::new(),
        long: HashMap::new(),
        chain: Chain::default(),
        doubled: BTreeSet::new(),
        unordered: BTreeSet::new(),
        report,
        progress,
        file_bytes,
    };
    rows::check_seals(&mut check);
    check.end_device();
    check.pieces();
    check.manifests();
    check.urgent();
    check.tables();
    report = check.report;
    // redb's own checksums also cover the pages that reading all seals does not visit, for example
    // the lists of free pages.
    let whole = guarded(|| match database.check_integrity() {
        Ok(true) => Ok(()),
        Ok(false) => Err(embedded::damaged("redb's lists of pages do not match the pages")),
        Err(error) => Err(embedded::damaged(&error.to_string())),
    });
    let _ = guarded(|| {
        drop(database);
        Ok(())
    });
    if let Err(error) = whole {
        let pages = damaged.lock().unwrap_or_else(PoisonError::into_inner);
        let pages: Vec<String> = pages.iter().map(u64::to_string).collect();
        let what = match error {
            ReadError::Damaged { what, .. } => what,
            other => other.to_string(),
        };
        let which = if pages.is_empty() {
            String::new()
        } else {
            format!("; pages that fail their checksum: {}", pages.join(", "))
        };
        report
            .damage
            .push(Finding::file(format!("the file as a whole does not verify: {what}{which}")));
    }
    Ok(report)
}

struct Check<'c> {
    database: &'c Database,
    directory: &'c dyn Directory,
    engine: Host,
    /// The schemas that were looked up; `None` for a schema that is damaged or missing.
    schemas: HashMap<Digest, Option<SchemaEntry>>,
    /// For each seal whose body is stored in pieces, the number of the first piece and the length
    /// of the body.
    long: HashMap<SealKey, (u32, u64)>,

    chain: Chain,
    /// The indices with more than one seal: device and index, encoded by [`embedded::index_key`].
    doubled: BTreeSet<[u8; 12]>,
    /// The devices whose epochs decrease along their indices, or that have two seals under one
    /// index.
    unordered: BTreeSet<[u8; 8]>,
    report: Report,
    progress: &'c mut dyn FnMut(Progress),
    file_bytes: u64,
}

/// The seals read so far of the current device.
#[derive(Default)]
struct Chain {
    device: Option<DeviceId>,
    seals: BTreeMap<SealIndex, Vec<Digest>>,
    newest: Option<(SealIndex, EpochNumber)>,
}

impl Check<'_> {
    fn found(&mut self, finding: Finding) {
        self.report.damage.push(finding);
    }

    /// Checks the next row of the table of seals.
    fn row(&mut self, key: [u8; SealKey::LENGTH], row: &[u8]) {
        let address = SealKey::from_bytes(&key);
        self.report.seals += 1;
        self.report.bytes += row.len() as u64;
        match StoredSeal::decode(&address, row) {
            Some(seal) => {
                self.chain(&seal);
                self.verify(&seal);
            }
            None => self.found(Finding::seal(
                "HeadMismatch",
                &address,
                "the head does not belong to this key",
            )),
        }
        let Report { seals, bytes, .. } = self.report;
        (self.progress)(Progress { seals, bytes, file_bytes: self.file_bytes });
    }

    fn chain(&mut self, seal: &StoredSeal) {
        let (statement, key) = (seal.seal().statement(), seal.key());
        if self.chain.device != Some(key.device) {
            self.end_device();
            self.chain = Chain { device: Some(key.device), ..Chain::default() };
        }
        match self.chain.newest {
            Some((index, _)) if index == key.index => {
                self.doubled.insert(embedded::index_key(key.device, key.index));
                self.unordered.insert(key.device.0);
            }
            Some((_, epoch)) if epoch > statement.epoch => {
                self.unordered.insert(key.device.0);
            }
            _ => {}
        }
        self.chain.newest = Some((key.index, statement.epoch));
        self.chain.seals.entry(key.index).or_default().push(key.digest);
        match statement.last {
            None => match self.directory.first_prev(key.device) {
                Some(prev) if prev != statement.prev => {
                    self.found(Finding::seal(
                        "PrevMismatch",
                        &key,
                        "the first seal does not name the device's first certificate",
                    ));
                }
                _ => {}
            },
            Some((previous, _)) => {
                let present = self
                    .chain
                    .seals
                    .get(&previous)
                    .is_some_and(|digests| digests.contains(&statement.prev));
                if !present {
                    let what = format!(
                        "seal {} names it as its predecessor, but it is missing",
                        key.index
                    );
                    self.report.gaps.push(Finding::seal(
                        "Missing",
                        &SealKey { index: previous, ..key },
                        what,
                    ));
                }
            }
        }
    }

    fn end_device(&mut self) {
        self.chain = Chain::default();
    }

    fn verify(&mut self, seal: &StoredSeal) {
        let (statement, key) = (seal.seal().statement(), seal.key());
        let is_outdated = is_outdated(self.directory, &statement.roster, statement.epoch);
        self.report.outdated += u64::from(is_outdated);
        match seal.seal().clone().verify(self.directory, seal.signature()) {
            // The key of the epoch may be another one in the later version.
            _ if is_outdated => {}
            Err(SealError::IndexOutOfRange) => {
                self.found(Finding::seal(
                    "UnknownDevice",
                    &key,
                    "the roster has no key of the device for this seal",
                ));
            }
            Ok(_) => {}
            Err(SealError::KeyEnded) => self.report.void += 1,
            Err(SealError::Signature(error)) => {
                self.found(Finding::seal(error.name(), &key, "the signature is invalid"));
            }
            Err(error) => self.found(Finding::seal("NotAuthentic", &key, error.to_string())),
        }
        let counters = &statement.counters;
        let n = u32::try_from(counters.total()).unwrap_or(u32::MAX);
        if self.engine.counters(&statement.salt, counters.levels(), n) != *counters {
            self.found(Finding::seal(
                "StatementMismatch",
                &key,
                "the counters do not follow from the salt",
            ));
        }
        self.schema(seal);
        if seal.inline_body().is_none() && seal.body_length() > 0 {
            self.long.insert(key, (embedded::first_piece(seal.tree_from()), seal.body_length()));
        }
        match self.body(seal) {
            Ok(body) => {
                self.report.bytes +=
                    if seal.inline_body().is_some() { 0 } else { body.len() as u64 };
                self.report.events += u64::from(seal.stored_events());
                self.events(seal, &body);
            }
            Err(error) => {
                let what = match error {
                    ReadError::Damaged { what, .. } | ReadError::Failed { what } => what,
                    other => other.to_string(),
                };
                self.found(Finding::seal("EventsUnreadable", &key, what));
            }
        }
    }

    fn body(&self, seal: &StoredSeal) -> Result<Vec<u8>, ReadError> {
        if let Some(body) = seal.inline_body() {
            return Ok(body.to_vec());
        }
        guarded(|| {
            read_body(&self.database.begin_read()?.open_table(PIECES)?, seal, 0..seal.body_length())
        })
    }

    fn events(&mut self, seal: &StoredSeal, body: &[u8]) {
        let (statement, key) = (seal.seal().statement(), seal.key());
        match statement.scheme {
            Scheme::Star => {
                let (from, above) = seal.above();
                if star::root_from(&statement.counters, from, above, seal.blocks())
                    != *seal.seal().root()
                {
                    self.found(Finding::seal(
                        "RootMismatch",
                        &key,
                        "the digests of its blocks do not lead to the root",
                    ));
                }
                for level in
                    (0..statement.counters.levels()).filter(|level| seal.kept() >> level & 1 == 1)
                {
                    // A kept level always has events. Its block has no bytes only if all its
                    // records are empty.
                    #[allow(clippy::cast_possible_truncation)]
                    let range = seal
                        .block_ranges(1 << level)
                        .pop()
                        .map_or(0..0, |range| range.start as usize..range.end as usize);
                    let digest = star::block_digest(
                        key.device,
                        key.index,
                        Level(level),
                        body.get(range).unwrap_or_default(),
                    );
                    if seal.blocks().get(usize::from(level)) != Some(&digest) {
                        self.found(Finding::seal(
                            "BlockDigestMismatch",
                            &key,
                            format!("the events of level {level} are not those that were sealed"),
                        ));
                    }
                }
            }
            Scheme::Tree => {
                #[allow(clippy::cast_possible_truncation)]
                let records = body.get(..seal.events_length() as usize).unwrap_or_default();
                let n = statement.counters.total();
                let complete =
                    seal.framing().length_of(records, seal.stored_events()) == Some(records.len());
                if !complete {
                    self.found(Finding::seal(
                        "EventsLength",
                        &key,
                        "the number of records differs from the sealed number",
                    ));
                    return;
                }
                let geometry = seal.geometry();
                let laid_out = if geometry.pruned.is_some() {
                    #[allow(clippy::cast_possible_truncation)]
                    let siblings = seal.siblings().start as usize..seal.siblings().end as usize;
                    tiles::lay_out_pruned(
                        &self.engine,
                        geometry,
                        records,
                        body.get(siblings).unwrap_or_default(),
                    )
                } else {
                    Some(tiles::lay_out(&self.engine, seal.framing(), n, records))
                };
                let Some((expected, root)) = laid_out else {
                    self.found(Finding::seal(
                        "EvidenceMismatch",
                        &key,
                        "the number of digests stored with the records is wrong",
                    ));
                    return;
                };
                if root != *seal.seal().root() {
                    self.found(Finding::seal(
                        "PathMismatch",
                        &key,
                        "the records do not lead to the root",
                    ));
                } else if expected != body {
                    self.found(Finding::seal(
                        "PathMismatch",
                        &key,
                        "the stored hashes are not those of the records",
                    ));
                }
            }
        }
    }

    fn schema(&mut self, seal: &StoredSeal) {
        let (digest, key) = (seal.seal().statement().schema, seal.key());
        if !self.schemas.contains_key(&digest) {
            let read = guarded(|| {
                let schemas = self.database.begin_read()?.open_table(SCHEMAS)?;
                Ok(schemas.get(digest.0)?.map(|value| value.value().to_vec()))
            });
            let entry = read
                .ok()
                .flatten()
                .and_then(|bytes| SchemaEntry::decode(&bytes).ok())
                .filter(|entry| entry.digest == digest);
            self.schemas.insert(digest, entry);
        }
        match self.schemas.get(&digest) {
            Some(Some(entry)) if entry.framing == seal.framing() => {}
            Some(Some(_)) => self.found(Finding::seal(
                "SchemaMismatch",
                &key,
                "the records are laid out for another schema",
            )),
            _ => self.found(Finding::seal(
                "SchemaUnknown",
                &key,
                format!("the schema {digest} is damaged or missing"),
            )),
        }
    }

    /// Reports pieces to which no head refers. Pieces with a head were already read with that head.
    fn pieces(&mut self) {
        let read = guarded(|| {
            let transaction = self.database.begin_read()?;
            let (mut last, mut found) = (None, Vec::new());
            let seals = transaction.open_table(SEALS)?;
            for entry in transaction.open_table(PIECES)?.iter()? {
                let (bytes, value) = entry?;
                let (bytes, length) = (bytes.value(), value.value().len() as u64);
                let Some((key, number)) = bytes.split_first_chunk() else { continue };
                let (key, number) = (
                    SealKey::from_bytes(key),
                    u32::from_be_bytes(number.try_into().unwrap_or_default()),
                );
                // The pieces of a body must not extend past its end.
                let fits = |(first, body): &(u32, u64)| {
                    let start = number
                        .checked_sub(*first)
                        .map(|number| u64::from(number) * embedded::PIECE as u64);
                    start.is_some_and(|start| start < *body && length <= body - start)
                };
                let expected =
                    self.long.get(&key).is_some_and(fits) || superseded(&seals, &key, number)?;
                if !expected && last != Some(key) {
                    last = Some(key);
                    found.push(Finding::seal(
                        "PieceWithoutHead",
                        &key,
                        "the store holds events that belong to no seal",
                    ));
                }
            }
            Ok(found)
        });
        // If pieces cannot be read, their seals are already among the findings.
        self.report.damage.extend(read.unwrap_or_default());
    }

    /// Verifies all manifests again with the coordinator's key.
    fn manifests(&mut self) {
        let mut last = None;
        let mut found = Vec::new();
        let (mut count, mut outdated) = (0, 0);
        let read = guarded(|| {
            let transaction = self.database.begin_read()?;
            for entry in transaction.open_table(MANIFESTS)?.iter()? {
                let (key, value) = entry?;
                let key = ManifestKey::from_bytes(&key.value());
                count += 1;
                last = Some(key.epoch);
                let named = Manifest::claimed_roster(value.value());
                if named.is_some_and(|named| is_outdated(self.directory, &named, key.epoch)) {
                    outdated += 1;
                    continue;
                }
                match manifest::open(value.value(), self.directory) {
                    Ok(manifest)
                        if manifest.epoch() == key.epoch && manifest.digest() == key.digest => {}
                    Ok(_) => found.push(Finding::manifest(
                        "ManifestMismatch",
                        &key,
                        "does not belong to this key",
                    )),
                    Err(error) => {
                        found.push(Finding::manifest(error.name(), &key, "does not verify"));
                    }
                }
            }
            Ok(())
        });
        self.report.manifests = count;
        self.report.outdated += outdated;
        self.report.damage.append(&mut found);
        if read.is_err() {
            let from =
                last.map_or_else(String::new, |epoch| format!(" after one of epoch {epoch}"));
            let what = format!("the manifests{from} cannot be read");
            self.found(Finding { name: "ManifestsUnreadable", device: None, indices: None, what });
        }
    }

    /// Compares the tables of equivocations and unordered devices with the seals that were read.
    fn tables(&mut self) {
        let read = guarded(|| {
            let transaction = self.database.begin_read()?;
            let (doubled, unordered) =
                (transaction.open_table(EQUIVOCATIONS)?, transaction.open_table(UNORDERED)?);
            let doubled = doubled
                .iter()?
                .map(|entry| Ok(entry?.0.value()))
                .collect::<Result<BTreeSet<_>, ReadError>>()?;
            let unordered = unordered
                .iter()?
                .map(|entry| Ok(entry?.0.value()))
                .collect::<Result<BTreeSet<_>, ReadError>>()?;
            Ok((doubled, unordered))
        });
        let Ok((doubled, unordered)) = read else {
            return self.found(Finding::file(
                "the lists of equivocations and of devices with seals out of order cannot be read",
            ));
        };
        for key in doubled.symmetric_difference(&self.doubled).copied().collect::<Vec<_>>() {
            let (device, index) = embedded::index_of(&key);
            let what = if doubled.contains(&key) {
                "is listed as signed twice, but is not"
            } else {
                "was signed twice, but is not listed"
            };
            self.found(Finding::seal(
                "IndexMismatch",
                &SealKey { device, index, digest: Digest::NULL },
                what,
            ));
        }
        for device in unordered.symmetric_difference(&self.unordered).copied().collect::<Vec<_>>() {
            let what = if unordered.contains(&device) {
                "is listed as a device with seals out of order, but its seals are in order"
            } else {
                "has seals out of order, but is not in the list of such devices"
            };
            self.found(Finding {
                name: "IndexMismatch",
                device: Some(DeviceId(device)),
                indices: None,
                what: what.to_owned(),
            });
        }
    }
}

/// Returns whether a piece belongs to an earlier version of a pruned tree that has since received
/// more levels. Such a piece is kept because a client may still be reading it.
fn superseded(
    seals: &impl ReadableTable<[u8; SealKey::LENGTH], &'static [u8]>,
    key: &SealKey,
    number: u32,
) -> Result<bool, ReadError> {
    let Some(from) = (number / embedded::PIECES_OF_A_BODY).checked_sub(1) else { return Ok(false) };
    let head = seals.get(key.to_bytes())?.and_then(|row| StoredSeal::decode(key, row.value()));
    Ok(head.and_then(|seal| seal.tree_from()).is_some_and(|kept| u32::from(kept.0) <= from))
}
