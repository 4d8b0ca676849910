//! `moteseal store check`: reads everything that a client could read from a store, verifies every
//! seal again, and reports all damage. [`check`] is for the file of the embedded store,
//! [`check_store`] for any store.
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

mod file;
mod rows;
mod store;
mod urgent;

pub use file::check;
pub use store::check_store;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Level, SealIndex};
use moteseal_core::roster::Directory;
use moteseal_lanes::Host;
use moteseal_seal::engine::Engine;
use moteseal_seal::sample::Manifest;
use moteseal_seal::{SealError, star};
use moteseal_verify::{SchemaEntry, manifest};

use crate::bundle::SealKey;
use crate::embedded;
use crate::epochs::ReadError;
use crate::manifest::ManifestKey;
use crate::stored::StoredSeal;
use crate::tiles::{self, Leaves};

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

/// Where a check reads bodies and schemas.
trait Source {
    fn body(&self, seal: &StoredSeal) -> Result<Vec<u8>, ReadError>;
    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError>;
}

struct Check<'c> {
    source: &'c dyn Source,
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

impl<'c> Check<'c> {
    fn new(
        source: &'c dyn Source,
        directory: &'c dyn Directory,
        progress: &'c mut dyn FnMut(Progress),
        report: Report,
        file_bytes: u64,
    ) -> Self {
        Self {
            source,
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
        }
    }

    fn found(&mut self, finding: Finding) {
        self.report.damage.push(finding);
    }

    /// Checks the next row of the table of seals.
    fn row(&mut self, key: [u8; SealKey::LENGTH], row: &[u8]) {
        let address = SealKey::from_bytes(&key);
        self.report.seals += 1;
        self.report.bytes += row.len() as u64;
        match StoredSeal::decode(&address, row) {
            Some(seal) => self.seal(&seal),
            None => self.found(Finding::seal(
                "HeadMismatch",
                &address,
                "the head does not belong to this key",
            )),
        }
        self.show();
    }

    /// Checks a seal: its place in the chain, its signature and its events.
    fn seal(&mut self, seal: &StoredSeal) {
        self.chain(seal);
        self.verify(seal);
    }

    fn show(&mut self) {
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
        match self.source.body(seal) {
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

    fn events(&mut self, seal: &StoredSeal, body: &[u8]) {
        let (statement, key) = (seal.seal().statement(), seal.key());
        let schema = self.schemas.get(&statement.schema).and_then(Option::as_ref);
        let layout = schema.and_then(|schema| schema.groups.clone());
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
                    let digest = star::whole_block_digest(
                        (key.device, key.index, Level(level)),
                        (layout.as_deref(), seal.framing()),
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
                let leaves = Leaves::new(layout.as_deref().filter(|_| geometry.trees > 1));
                let laid_out = if geometry.pruned.is_some() {
                    #[allow(clippy::cast_possible_truncation)]
                    let siblings = seal.siblings().start as usize..seal.siblings().end as usize;
                    tiles::lay_out_pruned(
                        &self.engine,
                        &leaves,
                        geometry,
                        records,
                        body.get(siblings).unwrap_or_default(),
                    )
                } else {
                    Some(tiles::lay_out(&self.engine, &leaves, (seal.framing(), n), records))
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
            let entry = self
                .source
                .schema(&digest)
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

    /// Verifies a manifest again with the coordinator's key.
    fn manifest(&mut self, key: &ManifestKey, bytes: &[u8]) {
        self.report.manifests += 1;
        let named = Manifest::claimed_roster(bytes);
        if named.is_some_and(|named| is_outdated(self.directory, &named, key.epoch)) {
            self.report.outdated += 1;
            return;
        }
        match manifest::open(bytes, self.directory) {
            Ok(manifest) if manifest.epoch() == key.epoch && manifest.digest() == key.digest => {}
            Ok(_) => self.found(Finding::manifest(
                "ManifestMismatch",
                key,
                "does not belong to this key",
            )),
            Err(error) => self.found(Finding::manifest(error.name(), key, "does not verify")),
        }
    }
}
