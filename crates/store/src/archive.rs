//! The durable storage of a broadcast node: the highest chain number of each sender, the minimum
//! certificate serial of each base station, what decides which commands may still be delivered, and
//! the chains themselves. When the quota is reached, the oldest complete chains are removed.
//!
//! An archive is a folder. It contains a journal of facts ([`facts`]) and one file of leaves per
//! chain ([`leaves`]). The journal is synced before a raised chain number or serial takes effect.
//! Leaf files are not synced: if a power loss removes leaves, the node requests them again. Data
//! that is read back need not be trusted, because the receiver verifies the chain again. Only one
//! process at a time can open an archive.

mod facts;
mod leaves;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_broadcast::recovery::{Item, MissedChain, Store};
use moteseal_broadcast::{ChainNumber, ChainRef, KeyId, Revoked};
use moteseal_core::record::NetworkId;

use crate::journal::{Journal, JournalError, is_full};
use facts::{Fact, Facts};
use leaves::Leaves;

/// The default quota for chains, in bytes: 256 MiB.
pub const QUOTA: u64 = 256 << 20;
/// The maximum number of complete chains. It applies in addition to the quota, because the archive
/// keeps one file open per chain.
pub const MOST_COMPLETE: usize = 256;
/// The journal is rewritten when its obsolete records outnumber its current records by more than
/// this.
const STALE_RECORDS: u64 = 256;

/// Why an archive cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The journal failed, or another process has the archive open.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The folder contains files, but no archive journal.
    #[error(
        "{} contains files that are not an archive; name a new folder or an existing archive",
        .0.display()
    )]
    NotAnArchive(PathBuf),
    /// The archive belongs to another network.
    #[error("{} is the archive of network {found}; name another folder", .path.display())]
    OtherNetwork {
        /// The path of the archive.
        path: PathBuf,
        /// The network to which the archive belongs.
        found: NetworkId,
    },
    /// The incomplete chains need more than the quota, and no complete chain is left to remove.
    #[error(
        "the incomplete chains in {} need more than its quota of {quota} bytes; raise the quota",
        .path.display()
    )]
    QuotaReached {
        /// The path of the archive.
        path: PathBuf,
        /// The quota in bytes.
        quota: u64,
    },
    /// The archive already has another chain with the same reference.
    #[error("another chain with the reference {0} is stored; the sender must use a new number")]
    ReferenceTaken(ChainRef),
    /// The disk is full.
    #[error("no space left for {}; free some space, then start the program again", .0.display())]
    DiskFull(PathBuf),
    /// Another error of the operating system.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

impl ArchiveError {
    /// Returns the error's stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.name(),
            Self::NotAnArchive(_) => "NotAnArchive",
            Self::OtherNetwork { .. } => "OtherNetwork",
            Self::QuotaReached { .. } => "QuotaReached",
            Self::ReferenceTaken(_) => "ReferenceTaken",
            Self::DiskFull(_) => "DiskFull",
            Self::Io(..) => "ArchiveFailed",
        }
    }

    /// Returns [`Usage`](ErrorKind::Usage) if the folder is the wrong one, otherwise
    /// [`Internal`](ErrorKind::Internal).
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAnArchive(_) | Self::OtherNetwork { .. } => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        }
    }

    fn io(path: &Path, error: io::Error) -> Self {
        if is_full(error.kind()) {
            Self::DiskFull(path.to_owned())
        } else {
            Self::Io(path.to_owned(), error)
        }
    }
}

moteseal_api::named_error!(ArchiveError);

/// An open archive of a broadcast node. Its folder is locked against other processes.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    quota: u64,
    /// The node's base stations, in the node's order. The broadcast protocol refers to a base
    /// station by its position in this list.
    bases: Vec<KeyId>,
    journal: Journal,
    facts: Facts,
    leaves: HashMap<ChainRef, Leaves>,
    /// The total length of all leaf files, in bytes.
    in_files: u64,
    /// The chains that were missed since [`take_missed`](Archive::take_missed) was last called.
    newly_missed: Vec<MissedChain>,
}

impl Archive {
    /// Returns the newest certificate of each sender's key.
    pub fn certificates(&self) -> impl Iterator<Item = (KeyId, &[u8])> {
        self.facts.certificates.iter().map(|(key, bytes)| (*key, bytes.as_slice()))
    }

    /// Opens the archive in `folder`, or creates an empty one. `bases` are the base stations in the
    /// node's order. Facts about base stations that are not in `bases` are kept. The archive stores
    /// at most `quota` bytes of chains.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn open(
        folder: &Path,
        network: NetworkId,
        bases: &[KeyId],
        quota: u64,
    ) -> Result<Self, ArchiveError> {
        let io = |error| ArchiveError::io(folder, error);
        let path = folder.join("journal");
        let is_folder = folder.is_dir();
        if (folder.exists() && !is_folder)
            || (is_folder && !path.exists() && fs::read_dir(folder).map_err(io)?.next().is_some())
        {
            return Err(ArchiveError::NotAnArchive(folder.to_owned()));
        }
        moteseal_files::create_folder(folder)
            .and_then(|()| moteseal_files::sync_folder_of(folder))
            .map_err(io)?;
        let mut journal = match Journal::open_strict(&path) {
            Err(JournalError::NotAJournal(_)) => {
                return Err(ArchiveError::NotAnArchive(folder.to_owned()));
            }
            opened => opened?,
        };
        let facts =
            Facts::read(&journal)?.ok_or_else(|| ArchiveError::NotAnArchive(folder.to_owned()))?;
        match facts.network {
            Some(found) if found != network => {
                return Err(ArchiveError::OtherNetwork { path: folder.to_owned(), found });
            }
            Some(_) => {}
            None => {
                journal.append(&Fact::Network(network).encode())?;
                journal.sync()?;
            }
        }
        let (folder, bases) = (folder.to_owned(), bases.to_vec());
        let facts = Facts { network: Some(network), ..facts };
        let mut archive = Self {
            folder,
            quota,
            bases,
            journal,
            facts,
            leaves: HashMap::new(),
            in_files: 0,
            newly_missed: Vec::new(),
        };
        // Remove surplus chains before their files are opened: an archive that was written with a
        // higher limit must open without exceeding the number of open files.
        archive.limit_complete()?;
        archive.read_leaves()?;
        Ok(archive)
    }

    /// Reads which leaves are stored, and deletes the leaf files of chains that were removed.
    fn read_leaves(&mut self) -> Result<(), ArchiveError> {
        let io = |error| ArchiveError::io(&self.folder, error);
        for entry in fs::read_dir(&self.folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let Some(chain) = leaves::chain_of(&path) else { continue };
            if !self.facts.heads.contains_key(&chain) {
                fs::remove_file(&path).map_err(|error| ArchiveError::io(&path, error))?;
                continue;
            }
            let leaves = Leaves::open(&path).map_err(|error| ArchiveError::io(&path, error))?;
            self.in_files += leaves.bytes();
            self.leaves.insert(chain, leaves);
        }
        Ok(())
    }

    /// Returns the chains whose head is stored, in the order of arrival: all incomplete chains and
    /// the newest complete ones.
    #[must_use]
    pub fn chains(&self) -> Vec<ChainRef> {
        self.facts.order.iter().copied().collect()
    }

    /// Returns whether a chain is complete.
    #[must_use]
    pub fn is_complete(&self, chain: ChainRef) -> bool {
        self.facts.complete.contains(&chain)
    }

    /// Returns the bytes that all chains use: leaves, heads and certificates.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.in_files + self.facts.of_chains
    }

    /// Marks a chain as complete: from now on it may be removed when room is needed.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn complete(&mut self, chain: ChainRef) -> Result<(), ArchiveError> {
        if !self.facts.heads.contains_key(&chain) || self.facts.complete.contains(&chain) {
            return Ok(());
        }
        self.record(Fact::Complete(chain))?;
        self.limit_complete()
    }

    /// Removes the oldest complete chains until at most [`MOST_COMPLETE`] remain.
    fn limit_complete(&mut self) -> Result<(), ArchiveError> {
        while self.facts.complete.len() > MOST_COMPLETE && self.remove_oldest()? {}
        Ok(())
    }

    /// Removes the oldest complete chain. Returns `false` if no chain is complete.
    fn remove_oldest(&mut self) -> Result<bool, ArchiveError> {
        let oldest =
            self.facts.order.iter().copied().find(|chain| self.facts.complete.contains(chain));
        oldest.map_or(Ok(false), |oldest| self.remove(oldest).map(|()| true))
    }

    /// Returns whether a chain of `messages` messages of the minimum length would fit into an empty
    /// archive of this quota.
    #[must_use]
    pub const fn has_room_for(&self, messages: u32) -> bool {
        leaves::room_for(&[]).saturating_mul(messages as u64) <= self.quota
    }

    /// Returns the number of stored leaves of a chain.
    #[must_use]
    pub fn kept_leaves(&self, chain: ChainRef) -> usize {
        self.leaves.get(&chain).map_or(0, Leaves::count)
    }

    /// Records how far the archive's owner has processed a chain. The record is durable when this
    /// returns.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn note(&mut self, chain: ChainRef, progress: u64) -> Result<(), ArchiveError> {
        self.record(Fact::Progress(chain, progress))?;
        self.sync()
    }

    /// Returns the progress that [`note`](Self::note) recorded, or 0 if it recorded none.
    #[must_use]
    pub fn noted(&self, chain: ChainRef) -> u64 {
        self.facts.progress.get(&chain).copied().unwrap_or(0)
    }

    /// Returns whether the head of a chain is stored.
    #[must_use]
    pub fn has(&self, chain: ChainRef) -> bool {
        self.facts.heads.contains_key(&chain)
    }

    /// Returns the first chain number that was accepted of a sender's key. A receiver of the key has
    /// joined with this chain; it need not deliver earlier ones.
    #[must_use]
    pub fn joined(&self, key: KeyId) -> Option<ChainNumber> {
        self.facts.joined.get(&key).copied()
    }

    /// Returns all missed chains that were not accepted later.
    #[must_use]
    pub fn missed_chains(&self) -> Vec<MissedChain> {
        self.facts.missed.values().copied().collect()
    }

    /// Returns the chains that were missed since the last call.
    pub fn take_missed(&mut self) -> Vec<MissedChain> {
        std::mem::take(&mut self.newly_missed)
    }

    /// Returns the highest number of a command of this topic and key that
    /// [`raise_topic`](Self::raise_topic) recorded.
    #[must_use]
    pub fn newest_of_topic(&self, key: KeyId, topic: &str) -> Option<ChainNumber> {
        let newest = self.facts.topics.get(&key).and_then(|topics| topics.get(topic)).copied();
        newest.max(self.facts.outdated.get(&key).copied())
    }

    /// Durably records that commands of this topic and key with a number below `number` must not be
    /// delivered any more. An archive keeps 256 topics of a key. When another topic is added, the
    /// topic with the lowest number is removed, and no command of any topic of the key below this
    /// number may be delivered.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn raise_topic(
        &mut self,
        key: KeyId,
        topic: &str,
        number: ChainNumber,
    ) -> Result<(), ArchiveError> {
        if self.newest_of_topic(key, topic).is_some_and(|newest| newest >= number) {
            return Ok(());
        }
        if let Some(room) = self.facts.room_for_topic(key, topic) {
            self.record(room)?;
        }
        self.record(Fact::Topic(key, number, topic.to_owned()))?;
        self.sync()
    }

    /// Returns the latest time that was recorded by [`set_time`](Self::set_time), in seconds of Unix
    /// time; 0 if there is none.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.facts.time
    }

    /// Durably records the latest time that the archive's owner has used, in seconds of Unix time.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn set_time(&mut self, unix: u64) -> Result<(), ArchiveError> {
        self.record(Fact::Time(unix))?;
        self.sync()
    }

    /// Makes everything durable except the leaves.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn sync(&mut self) -> Result<(), ArchiveError> {
        self.journal.sync()?;
        let live = self.facts.live();
        if self.journal.synced_records() > 2 * live + STALE_RECORDS {
            let records: Vec<Vec<u8>> = self.facts.all().iter().map(Fact::encode).collect();
            self.journal.compact(records.iter().map(Vec::as_slice))?;
        }
        Ok(())
    }

    fn record(&mut self, fact: Fact) -> Result<(), ArchiveError> {
        self.journal.append(&fact.encode())?;
        self.facts.apply(fact);
        Ok(())
    }

    /// Returns the stored bytes of an item, or `None` if it is a leaf: leaves are in separate
    /// files.
    fn fact(&self, item: Item) -> Option<&[u8]> {
        let kept = match item {
            Item::Certificate(key) => self.facts.certificates.get(&key),
            Item::ChainCertificate(chain) => self.facts.chain_certificates.get(&chain),
            Item::Head(chain) => self.facts.heads.get(&chain),
            Item::Revocation(place) => self.facts.revocations.get(&self.base(place)?),
            Item::Leaf { .. } => None,
        };
        kept.map(Vec::as_slice)
    }

    fn base(&self, place: u8) -> Option<KeyId> {
        self.bases.get(usize::from(place)).copied()
    }

    /// Removes complete chains, oldest first, until `length` more bytes fit into the quota.
    fn make_room(&mut self, length: u64) -> Result<(), ArchiveError> {
        while self.used().saturating_add(length) > self.quota {
            if !self.remove_oldest()? {
                return Err(ArchiveError::QuotaReached {
                    path: self.folder.clone(),
                    quota: self.quota,
                });
            }
        }
        Ok(())
    }

    fn keep_leaf(
        &mut self,
        chain: ChainRef,
        at: (u32, u8),
        bytes: &[u8],
    ) -> Result<(), ArchiveError> {
        let length = leaves::room_for(bytes);
        self.make_room(length)?;
        let path = leaves::path_of(&self.folder, chain);
        let leaves = match self.leaves.entry(chain) {
            Entry::Occupied(leaves) => leaves.into_mut(),
            Entry::Vacant(none) => {
                none.insert(Leaves::open(&path).map_err(|error| ArchiveError::io(&path, error))?)
            }
        };
        leaves.append(at, bytes).map_err(|error| ArchiveError::io(&path, error))?;
        self.in_files += length;
        Ok(())
    }

    fn remove(&mut self, chain: ChainRef) -> Result<(), ArchiveError> {
        self.record(Fact::Forgotten(chain))?;
        // Record the removal before deleting the file. If the process is killed in between, the
        // next start deletes the file, because its chain has no head any more.
        self.sync()?;
        if let Some(leaves) = self.leaves.remove(&chain) {
            self.in_files -= leaves.bytes();
        }
        let path = leaves::path_of(&self.folder, chain);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ArchiveError::io(&path, error))
            }
            _ => Ok(()),
        }
    }
}

impl Store for Archive {
    type Error = ArchiveError;
    const REPAIRS: bool = true;

    fn keep(&mut self, item: Item, bytes: &[u8]) -> Result<(), ArchiveError> {
        if self.is_kept(item, bytes)? {
            return Ok(());
        }
        let kept = bytes.to_vec();
        match item {
            Item::Leaf { chain, block, index } => self.keep_leaf(chain, (block, index), bytes),
            // The certificate under which a chain was accepted is evidence and is never replaced,
            // and no other chain with the same reference replaces a stored one.
            Item::ChainCertificate(chain) if self.facts.heads.contains_key(&chain) => Ok(()),
            Item::Head(chain) if self.facts.heads.contains_key(&chain) => {
                Err(ArchiveError::ReferenceTaken(chain))
            }
            Item::ChainCertificate(chain) => {
                self.make_room(bytes.len() as u64)?;
                self.record(Fact::ChainCertificate(chain, kept))
            }
            Item::Head(chain) => {
                self.make_room(bytes.len() as u64)?;
                self.record(Fact::Head(chain, kept))
            }
            Item::Certificate(key) => self.record(Fact::Certificate(key, kept)),
            Item::Revocation(place) => match self.base(place) {
                Some(base) => self.record(Fact::Revocation(base, kept)),
                None => Ok(()),
            },
        }
    }

    fn fetch<'b>(
        &mut self,
        item: Item,
        out: &'b mut [u8],
    ) -> Result<Option<&'b [u8]>, ArchiveError> {
        if let Item::Leaf { chain, block, index } = item {
            let Some(leaves) = self.leaves.get_mut(&chain) else { return Ok(None) };
            let read = leaves.read((block, index), out);
            return read
                .map_err(|error| ArchiveError::io(&leaves::path_of(&self.folder, chain), error));
        }
        Ok(self.fact(item).and_then(|bytes| {
            let out = out.get_mut(..bytes.len())?;
            out.copy_from_slice(bytes);
            Some(&*out)
        }))
    }

    fn is_kept(&mut self, item: Item, bytes: &[u8]) -> Result<bool, ArchiveError> {
        let Item::Leaf { chain, block, index } = item else {
            return Ok(self.fact(item) == Some(bytes));
        };
        let Some(leaves) = self.leaves.get_mut(&chain) else { return Ok(false) };
        let held = leaves.holds((block, index), bytes);
        held.map_err(|error| ArchiveError::io(&leaves::path_of(&self.folder, chain), error))
    }

    fn forget_block(&mut self, chain: ChainRef, block: u32) -> Result<(), ArchiveError> {
        if let Some(leaves) = self.leaves.get_mut(&chain) {
            leaves.forget_block(block);
        }
        Ok(())
    }

    fn forget(&mut self, chain: ChainRef) -> Result<(), ArchiveError> {
        self.remove(chain)
    }

    /// Marks the chain as complete. It stays in the archive until its room is needed.
    fn retire(&mut self, chain: ChainRef) -> Result<(), ArchiveError> {
        self.complete(chain)
    }

    fn raise(&mut self, key: KeyId, number: ChainNumber) -> Result<(), ArchiveError> {
        if !self.facts.floors.contains_key(&key) {
            self.record(Fact::Joined(key, number))?;
        }
        self.record(Fact::Floor(key, number))?;
        self.sync()
    }

    fn miss(&mut self, missed: &MissedChain) -> Result<bool, ArchiveError> {
        if self.facts.missed.contains_key(&missed.chain)
            || self.facts.heads.contains_key(&missed.chain)
        {
            return Ok(false);
        }
        if let Some(room) = self.facts.room_for_missed() {
            self.record(room)?;
        }
        self.record(Fact::Missed(*missed))?;
        self.newly_missed.push(*missed);
        Ok(true)
    }

    fn missed(&mut self, chain: ChainRef) -> Result<Option<MissedChain>, ArchiveError> {
        Ok(self.facts.missed.get(&chain).copied())
    }

    fn found(&mut self, chain: ChainRef) -> Result<(), ArchiveError> {
        self.record(Fact::Found(chain))?;
        self.sync()
    }

    fn floor(&mut self, key: KeyId) -> Result<Option<ChainNumber>, ArchiveError> {
        Ok(self.facts.floors.get(&key).copied())
    }

    /// Does not record the value if the base station is not in `bases`.
    fn revoke(&mut self, base: u8, revoked: &Revoked) -> Result<(), ArchiveError> {
        if let Some(base) = self.base(base) {
            self.record(Fact::Revoked(base, *revoked))?;
        }
        self.sync()
    }

    fn revoked(&mut self, base: u8) -> Result<Revoked, ArchiveError> {
        let of = self.base(base).and_then(|base| self.facts.revoked.get(&base));
        Ok(of.copied().unwrap_or_default())
    }
}
