//! Seals readings on a host. [`Sealer`] receives readings in the order of their epochs and returns
//! signed bundles. It does no I/O and uses no clock.
//!
//! A mote adds each event to its running star or tree at once, because it cannot store the events.
//! A host stores the events of the open seal anyway, because the bundle contains them. [`Sealer`]
//! therefore computes levels and hashes when the seal closes, with vector instructions if the
//! processor has them. The resulting bytes are the same as those of `Star` and `Tree` in
//! `moteseal-seal` (tests/it/sealing.rs).
//!
//! Encrypted columns are encrypted when a reading is added ([`Profile::with_columns`]).
//!
//! [`Chain`] must survive a restart. Persist the result of [`Sealer::would_open`] before
//! [`Sealer::push`] adds the first event of a seal. Persist [`Bundle::chain`] together with the
//! bundle's bytes before the bundle is sent (docs/design.md, sealing).

use moteseal_core::Digest;
use moteseal_core::confidential::KeyAccessError;
use moteseal_core::named_errors;
use moteseal_core::record::Scheme;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, Level, MAX_LEVELS, MAX_PAYLOAD, SealIndex, Sequence,
};
use moteseal_core::signature::{SignError, Signer};
use moteseal_lanes::{Host, copy_cells};
use moteseal_seal::encryption::EncryptError;
use moteseal_seal::engine::Engine;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::stream::{Open, PART_OVERHEAD, Selection};
use moteseal_seal::tree::{self, Tree};
use moteseal_seal::wire::MAX_RECORD;
use moteseal_seal::{Position, Seal, Statement, Unverified, star};
use moteseal_verify::write;

use crate::column_keys::Cipher;
use crate::key_ring::KeyRing;

mod profile;

pub use profile::{DEFAULT_MAX_BYTES, DEFAULT_MAX_EVENTS, Profile, ProfileError, RosterName};

/// The state of a chain that the device keeps across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// The position in the chain: the newest signed seal, which the next seal names as its
    /// predecessor.
    pub position: Position,
    /// The lowest index that has never been opened.
    pub next_index: SealIndex,
    /// The epoch of the seal that was opened last, signed or not. Epochs never decrease.
    pub epoch: Option<EpochNumber>,
    /// The number of readings in all signed seals of the newest signed epoch.
    pub readings: u64,
    /// The digest of these readings, if the epoch is open and the digest is known.
    pub covered: Option<Covered>,
}

/// The readings that the signed seals of an open epoch cover. A table that is sealed again after it
/// has grown must begin this epoch with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Covered {
    /// The number of readings.
    pub readings: u64,
    /// The digest of the readings: `d(0)` is zero, and `d(i + 1) = SHA-256(d(i) || record i)`.
    pub digest: Digest,
}

impl Covered {
    /// The digest of no readings.
    pub const NONE: Self = Self { readings: 0, digest: Digest::NULL };

    /// Adds the next reading.
    pub fn add(&mut self, record: &[u8]) {
        self.digest = Digest::of(&[&self.digest.0, record]);
        self.readings += 1;
    }
}

impl Chain {
    /// Creates the chain of a device that has not sealed anything. `certificate` is the digest of
    /// the device's first certificate.
    #[must_use]
    pub const fn start(certificate: Digest) -> Self {
        Self {
            position: Position::start(certificate),
            next_index: SealIndex(0),
            epoch: None,
            readings: 0,
            covered: None,
        }
    }

    /// Returns whether the device has opened indices that it has not signed. The next seal must
    /// then state that the device restarted.
    #[must_use]
    pub fn restarted(&self) -> bool {
        self.next_index.0 != self.position.last.map_or(0, |(index, _)| index.0.saturating_add(1))
    }
}

impl SealRefused {
    /// Returns whether the reading's record is wrong, so that no other time or key would help.
    #[must_use]
    pub const fn is_of_record(&self) -> bool {
        matches!(self, Self::WrongLength { .. } | Self::RecordValue | Self::TooLong { .. })
    }
}

named_errors! {
    /// Why [`Sealer`] did not add a reading, or did not open or close a seal.
    SealRefused {
        /// The reading's epoch is before the epoch that was opened last.
        EpochGoesBack {
            /// The reading's epoch.
            epoch: EpochNumber,
            /// The epoch that was opened last.
            after: EpochNumber,
        } => "epoch {epoch} is before epoch {after}, which the device has already opened",
        /// The schema has encrypted columns, and the device has no keys to encrypt them with.
        NoStreamSecret => "the schema has encrypted columns; give the device its stream secret",
        /// The keys of the encrypted columns do not cover the reading's epoch.
        Key(error: KeyAccessError) => from,
        /// The record could not be encrypted.
        Encrypt(error: EncryptError) => forward,
        /// The system's generator of random numbers failed.
        NoNonce => "the system gives no random numbers, so that nothing can be encrypted",
        /// The reading's epoch is closed, so no further seal may cover it.
        EpochClosed {
            /// The reading's epoch.
            epoch: EpochNumber,
        } => "epoch {epoch} is already sealed and closed",
        /// The roster does not allow the reading's epoch.
        EpochOutOfRange {
            /// The reading's epoch.
            epoch: EpochNumber,
        } => "epoch {epoch} is outside the epochs that the roster allows",
        /// The roster certifies a key for this epoch that the device does not have.
        KeyMissing {
            /// The reading's epoch.
            epoch: EpochNumber,
        } => "the roster certifies another key of the device for epoch {epoch}; give the device that key",
        /// The device was removed from the group, or its key was revoked.
        KeyEnded {
            /// The reading's epoch.
            epoch: EpochNumber,
        } => "the roster ends the device's key before epoch {epoch}: the device was removed or the key was revoked",
        /// A table does not begin its first new epoch with the readings that are already sealed.
        OtherReadings {
            /// The epoch, which is still open.
            epoch: EpochNumber,
            /// The number of its readings that are already sealed.
            readings: u64,
        } => "the table does not contain the {readings} readings that are already sealed in this epoch \
              ({epoch}), as if it had been rotated, truncated or changed; give the whole table, or \
              seal a table of only new readings without --new-only",
        /// The record does not have the schema's size, or is longer than 65,535 bytes.
        WrongLength {
            /// The record's length in bytes.
            length: usize,
        } => "a record of {length} bytes does not have the schema's size, or is longer than 65,535 bytes",
        /// A cell of the record is not a value of its column.
        RecordValue => "a cell of the record is not a value of its column",
        /// The record is too long to be forwarded by a device of a group with a budget.
        TooLong {
            /// The record's length in bytes.
            length: usize,
        } => "a record of {length} bytes is too long; in a group with a budget, the maximum is {MAX_RECORD}",
        /// The device has used up its indices.
        IndexExhausted => "the device has used all its 2^32 indices; give it a new name",
        /// The signer failed.
        Sign(error: SignError) => forward,
    }
}

/// A signed seal with all of its events.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The seal, as signed.
    pub seal: Seal<Unverified>,
    /// A star's block digests `D_0 .. D_{L-1}`; empty for a tree.
    pub blocks: Vec<Digest>,
    /// The `.mseal` stream with one schema item, one open item and one part item (spec/answers.md,
    /// section 1).
    pub bytes: Vec<u8>,
    /// The offset of the part in `bytes`. If a receiver already has the schema and the chain, a
    /// device sends it only `bytes[part_start..]`.
    pub part_start: usize,
    /// The size of the framed events in `bytes`, in bytes.
    pub events_length: usize,
    /// The device's chain after this seal. Persist it together with the bundle.
    pub chain: Chain,
}

impl Bundle {
    /// Returns the device that signed the seal.
    #[must_use]
    pub const fn device(&self) -> DeviceId {
        self.seal.statement().device
    }

    /// Returns the seal's index.
    #[must_use]
    pub const fn index(&self) -> SealIndex {
        self.seal.statement().index
    }

    /// Returns the seal's epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.seal.statement().epoch
    }

    /// Returns the number of events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.seal.statement().counters.total()
    }

    /// Returns the size of the framed events, in bytes.
    #[must_use]
    pub const fn events_length(&self) -> usize {
        self.events_length
    }

    /// Returns the number of bytes that the device sends in addition to the events, if the receiver
    /// already has the schema and the chain.
    #[must_use]
    pub const fn uplink_overhead(&self) -> usize {
        self.bytes.len() - self.part_start - self.events_length
    }
}

/// The seal that is open.
#[derive(Debug)]
struct Opened {
    index: SealIndex,
    epoch: EpochNumber,
    /// The framed records, in the order of their sequence numbers. Encrypted columns are ciphertext.
    records: Vec<u8>,
    count: u32,
    /// The encryption; `None` if the schema has no encrypted columns.
    cipher: Option<Encryption>,
}

/// The encryption of the open seal.
#[derive(Debug)]
struct Encryption {
    cipher: Cipher,
    /// The digest of the epoch's readings in plaintext; `None` if it is not known.
    covered: Option<Covered>,
}

/// Seals one device's readings.
#[derive(Debug)]
pub struct Sealer<K> {
    profile: Profile,
    keys: KeyRing<K>,
    salt_key: SaltKey,
    engine: Host,
    chain: Chain,
    open: Option<Opened>,
    /// The record that is being encrypted.
    scratch: Vec<u8>,
}

impl<K: Signer> Sealer<K> {
    /// Creates a sealer that continues `chain`.
    #[must_use]
    pub fn new(
        profile: Profile,
        keys: impl Into<KeyRing<K>>,
        salt_key: SaltKey,
        chain: Chain,
    ) -> Self {
        let keys = keys.into();
        let engine = Host::detect();
        Self { profile, keys, salt_key, engine, chain, open: None, scratch: Vec::new() }
    }

    /// Returns the data that all seals of this sealer share.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the current chain, which includes the open seal's index and epoch.
    #[must_use]
    pub const fn chain(&self) -> Chain {
        self.chain
    }

    /// Returns the epoch of the newest seal, signed or open, and how many readings of that epoch
    /// were added so far. Returns `None` before the first seal.
    #[must_use]
    pub fn taken(&self) -> Option<(EpochNumber, u64)> {
        let signed = self.chain.position.last.map(|(_, epoch)| (epoch, self.chain.readings));
        let Some(open) = &self.open else { return signed };
        let before =
            signed.filter(|(epoch, _)| *epoch == open.epoch).map_or(0, |(_, readings)| readings);
        Some((open.epoch, before + u64::from(open.count)))
    }

    /// Returns the chain that must be persisted before [`push`](Self::push) adds a reading of
    /// `epoch` with `length` bytes. Returns `None` if adding the reading opens no seal.
    #[must_use]
    pub fn would_open(&self, epoch: EpochNumber, length: usize) -> Option<Chain> {
        let goes_on = self
            .open
            .as_ref()
            .is_some_and(|open| open.epoch == epoch && !self.is_full(open, length));
        let next_index = SealIndex(self.chain.next_index.0.saturating_add(1));
        (!goes_on).then_some(Chain { next_index, epoch: Some(epoch), ..self.chain })
    }

    /// Adds a reading. If this opens a new seal, because the epoch has changed or the open seal is
    /// full, returns the bundle of the previous seal.
    ///
    /// # Errors
    /// [`SealRefused`]. The reading was not added and nothing has changed.
    pub fn push(
        &mut self,
        epoch: EpochNumber,
        record: &[u8],
    ) -> Result<Option<Bundle>, SealRefused> {
        self.check_record(record)?;
        let mut bundle = None;
        self.scratch.clear();
        if self.profile.columns.is_some() {
            self.scratch.extend_from_slice(record);
        }
        if self.would_open(epoch, record.len()).is_some() {
            self.check(epoch)?;
            let mut cipher = self.profile.cipher(self.chain.next_index, epoch)?;
            if let Some(cipher) = &mut cipher {
                let encrypted = cipher.encrypt(Sequence(0), &mut self.scratch);
                encrypted.map_err(SealRefused::Encrypt)?;
            }
            let later = self.open.as_ref().is_some_and(|open| epoch > open.epoch);
            bundle = self.close(later)?;
            self.open(epoch, cipher);
        } else if let Some(Opened { cipher: Some(encryption), count, .. }) = &mut self.open {
            let seq = Sequence(u64::from(*count));
            let encrypted = encryption.cipher.encrypt(seq, &mut self.scratch);
            encrypted.map_err(SealRefused::Encrypt)?;
        }
        if let Some(open) = &mut self.open {
            if self.profile.framing == Framing::Prefixed {
                #[allow(clippy::cast_possible_truncation)]
                open.records.extend_from_slice(&(record.len() as u16).to_be_bytes());
            }
            open.records.extend_from_slice(match open.cipher {
                Some(_) => &self.scratch,
                None => record,
            });
            open.count += 1;
            if let Some(Encryption { covered: Some(covered), .. }) = &mut open.cipher {
                covered.add(record);
            }
        }
        Ok(bundle)
    }

    /// Closes the open seal, if there is one, and returns its bundle. `last_in_epoch` states that
    /// no later seal will cover the same epoch.
    ///
    /// # Errors
    /// `Sign` if signing failed. The seal stays open.
    pub fn close(&mut self, last_in_epoch: bool) -> Result<Option<Bundle>, SealRefused> {
        let Some(open) = &self.open else { return Ok(None) };
        let bundle = self.seal(open, last_in_epoch)?;
        self.open = None;
        self.chain = bundle.chain;
        Ok(Some(bundle))
    }

    /// Opens a seal for an epoch that has no readings yet. If the seal is closed without readings,
    /// it states that the device sensed nothing. Returns the bundle of the previous seal, if one
    /// was open.
    ///
    /// # Errors
    /// [`SealRefused`]. Nothing has changed.
    pub fn begin(&mut self, epoch: EpochNumber) -> Result<Option<Bundle>, SealRefused> {
        self.check(epoch)?;
        let cipher = self.profile.cipher(self.chain.next_index, epoch)?;
        let later = self.open.as_ref().is_some_and(|open| epoch > open.epoch);
        let bundle = self.close(later)?;
        self.open(epoch, cipher);
        Ok(bundle)
    }

    fn is_full(&self, open: &Opened, length: usize) -> bool {
        self.profile.is_full(open.count, open.records.len(), length)
    }

    /// Checks that the schema allows a record.
    ///
    /// # Errors
    /// `WrongLength` or `RecordValue` if the schema does not allow it.
    pub fn check_record(&self, record: &[u8]) -> Result<(), SealRefused> {
        let length = record.len();
        let fits = match self.profile.framing {
            Framing::Fixed(size) => length == usize::from(size.get()),
            Framing::Prefixed => length <= MAX_PAYLOAD,
        };
        if fits {
            self.profile.check_values(record)
        } else {
            Err(SealRefused::WrongLength { length })
        }
    }

    /// Returns the epoch of the open seal, if a seal is open.
    #[must_use]
    pub fn epoch(&self) -> Option<EpochNumber> {
        self.open.as_ref().map(|open| open.epoch)
    }

    /// Checks that a seal of `epoch` may be opened.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub fn check(&self, epoch: EpochNumber) -> Result<(), SealRefused> {
        if let Some(after) = self.chain.epoch.filter(|&after| epoch < after) {
            return Err(SealRefused::EpochGoesBack { epoch, after });
        }
        let (first, last) = self.profile.epochs;
        if epoch < first || last.is_some_and(|last| epoch > last) {
            return Err(SealRefused::EpochOutOfRange { epoch });
        }
        let Position { last, epoch_closed, .. } = self.chain.position;
        if epoch_closed && last.is_some_and(|(_, closed)| closed == epoch) {
            return Err(SealRefused::EpochClosed { epoch });
        }
        // The last index is never opened, so `next_index` never overflows.
        if self.chain.next_index.0 == u32::MAX {
            return Err(SealRefused::IndexExhausted);
        }
        self.profile.check_keys(epoch)?;
        self.keys.signer(self.chain.next_index, epoch).map(|_| ())
    }

    fn open(&mut self, epoch: EpochNumber, cipher: Option<Cipher>) {
        let index = self.chain.next_index;
        let before = self.readings_before(epoch);
        let encryption = cipher.map(|cipher| {
            let covered = self.covered_before(before);
            Encryption { cipher, covered }
        });
        self.open =
            Some(Opened { index, epoch, records: Vec::new(), count: 0, cipher: encryption });
        self.chain = Chain { next_index: SealIndex(index.0 + 1), epoch: Some(epoch), ..self.chain };
        self.profile.pass_epochs_before(epoch);
    }

    /// Returns the number of readings in the signed seals of an epoch, which is the newest one.
    fn readings_before(&self, epoch: EpochNumber) -> u64 {
        let last = self.chain.position.last.filter(|(_, last)| *last == epoch);
        last.map_or(0, |_| self.chain.readings)
    }

    /// Returns the digest of no readings. If readings are confidential, it is secret, so that nobody
    /// who reads the chain's state can test guesses of readings: it depends on the salt of the index
    /// that is never opened.
    pub(crate) fn covers_nothing(&self) -> Covered {
        if self.profile.columns.is_none() {
            return Covered::NONE;
        }
        let salt = self.salt_key.salt(self.profile.device, SealIndex(u32::MAX));
        Covered { readings: 0, digest: Digest::of(&[b"moteseal/1/covered\0", &salt.0]) }
    }

    /// Returns the digest of the `before` readings in an epoch's earlier seals, if it is known.
    fn covered_before(&self, before: u64) -> Option<Covered> {
        match before {
            0 => Some(self.covers_nothing()),
            _ => self.chain.covered.filter(|covered| covered.readings == before),
        }
    }

    /// Returns the digest of an epoch's readings including those of the open seal. `before` is the
    /// number of readings in the epoch's earlier seals.
    fn covered(&self, open: &Opened, before: u64) -> Option<Covered> {
        if let Some(encryption) = &open.cipher {
            return encryption.covered;
        }
        let mut covered = self.covered_before(before)?;
        let mut rest = &open.records[..];
        while let Some((record, tail)) = self.profile.framing.split_first(rest) {
            covered.add(record);
            rest = tail;
        }
        Some(covered)
    }

    fn seal(&self, open: &Opened, last_in_epoch: bool) -> Result<Bundle, SealRefused> {
        let profile = &self.profile;
        let salt = self.salt_key.salt(profile.device, open.index);
        let mut statement = Statement::new(
            profile.scheme,
            profile.group,
            profile.roster.digest,
            profile.device,
            profile.levels_in(open.epoch),
        );
        statement.index = open.index;
        statement.prev = self.chain.position.prev;
        statement.last = self.chain.position.last;
        statement.epoch = open.epoch;
        statement.last_in_epoch = last_in_epoch;
        statement.restart = open.index.0 != statement.last.map_or(0, |(index, _)| index.0 + 1);
        statement.schema = profile.schema_digest;
        statement.salt = salt;
        statement.keys = open.cipher.as_ref().map(|encryption| encryption.cipher.commitments());
        statement.groups = profile.column_groups();

        let blocks;
        let (root, events): (Digest, &[u8]);
        let arranged;
        match profile.scheme {
            Scheme::Star => {
                let by_level = Arranged::new(
                    &self.engine,
                    &statement,
                    profile.framing,
                    &open.records,
                    open.count,
                );
                statement.counters = by_level.counters;
                blocks = by_level.digests(&self.engine, profile, open.index);
                root = star::root(&statement.counters, &blocks);
                arranged = by_level.bytes;
                events = &arranged;
            }
            Scheme::Tree => {
                statement.counters =
                    self.engine.counters(&salt, profile.levels_in(open.epoch), open.count);
                blocks = Vec::new();
                root = root_of_tree(&self.engine, profile, &open.records);
                events = &open.records;
            }
        }

        let signer = self.keys.signer(open.index, open.epoch)?;
        let seal = Seal::new(statement, root, signer.algorithm());
        let mut buffer = [0; moteseal_seal::MAX_MESSAGE];
        let signature = signer.signature(seal.message(&mut buffer)).map_err(SealRefused::Sign)?;
        let mut bytes =
            Vec::with_capacity(profile.schema.len() + events.len() + PART_OVERHEAD + 128);
        write::schema(&mut bytes, &profile.schema);
        let (prev, last) = (Some(seal.statement().prev), seal.statement().last);
        write::open(
            &mut bytes,
            &Open { device: profile.device, roster_version: profile.roster.version, prev, last },
        );
        let part_start = bytes.len();
        // A host keeps every event, so the part contains every level that has events.
        let all = Selection::Levels(seal.statement().surviving());
        write::part(&mut bytes, &seal, all, &[], events, Some(&signature));
        let before = self.readings_before(open.epoch);
        let chain = Chain {
            position: seal.position(),
            next_index: SealIndex(open.index.0 + 1),
            epoch: Some(open.epoch),
            readings: before + u64::from(open.count),
            covered: self.covered(open, before).filter(|_| !last_in_epoch),
        };
        Ok(Bundle { seal, blocks, bytes, part_start, events_length: events.len(), chain })
    }
}

/// The events of a star's seal in the order of a bundle: by level, with the highest level first.
struct Arranged {
    counters: Counters,
    bytes: Vec<u8>,
    /// The range of each level's block in `bytes`.
    ranges: Vec<std::ops::Range<usize>>,
}

impl Arranged {
    fn new(
        engine: &Host,
        statement: &Statement,
        framing: Framing,
        records: &[u8],
        count: u32,
    ) -> Self {
        let levels = statement.counters.levels();
        let mut level_of = vec![0; count as usize];
        engine.levels(&statement.salt, levels, 0, &mut level_of);
        let mut counters = Counters::new(levels);
        let mut lengths = [0; MAX_LEVELS];
        let split =
            |rest| framing.split_first(rest).map_or(0, |(_, tail)| <[u8]>::len(rest) - tail.len());
        let mut rest = records;
        for &level in &level_of {
            let length = split(rest);
            counters.as_mut_slice()[usize::from(level)] += 1;
            lengths[usize::from(level)] += length;
            rest = &rest[length..];
        }
        let mut ranges = vec![0..0; usize::from(levels)];
        let mut at = 0;
        for level in (0..usize::from(levels)).rev() {
            ranges[level] = at..at + lengths[level];
            at += lengths[level];
        }
        let mut bytes = vec![0; records.len()];
        let mut cursors: Vec<usize> = ranges.iter().map(|range| range.start).collect();
        let mut rest = records;
        for &level in &level_of {
            let length = split(rest);
            let cursor = &mut cursors[usize::from(level)];
            bytes[*cursor..*cursor + length].copy_from_slice(&rest[..length]);
            *cursor += length;
            rest = &rest[length..];
        }
        Self { counters, bytes, ranges }
    }

    fn digests(&self, engine: &Host, profile: &Profile, index: SealIndex) -> Vec<Digest> {
        let blocks: Vec<&[u8]> =
            self.ranges.iter().map(|range| &self.bytes[range.clone()]).collect();
        let mut digests = vec![Digest::NULL; blocks.len()];
        let device = profile.device;
        if let Some(layout) = profile.groups.as_deref() {
            let of_block = (Some(layout), profile.framing);
            for ((level, block), digest) in (0..).map(Level).zip(blocks).zip(&mut digests) {
                if !block.is_empty() {
                    let place = (device, index, level);
                    *digest = star::whole_block_digest(place, of_block, block);
                }
            }
            return digests;
        }
        engine.block_digests(device, index, &blocks, &mut digests);
        digests
    }
}

/// Returns the root of a seal's tree: with column groups, that over the roots of one tree for each
/// group.
fn root_of_tree(engine: &Host, profile: &Profile, records: &[u8]) -> Digest {
    let Some(layout) = profile.groups.as_deref() else {
        return tree_root(engine, profile.framing, records);
    };
    let of_group = |group| {
        let (cells, mut of_group) = (layout.cells(group), Vec::new());
        copy_cells(&mut of_group, cells, profile.framing, records);
        tree_root(engine, cells.framing(), &of_group)
    };
    tree::join_roots(&layout.all().iter().map(of_group).collect::<Vec<_>>())
}

fn tree_root(engine: &Host, framing: Framing, records: &[u8]) -> Digest {
    let mut tree = Tree::<32>::new();
    match framing {
        // The count is a u32, so a tree of height 32 has room for every record.
        Framing::Fixed(size) => {
            let _ = tree.extend(engine, size.get().into(), records);
        }
        Framing::Prefixed => {
            let mut rest = records;
            while let Some((record, tail)) = framing.split_first(rest) {
                let _ = tree.push_leaf(tree::leaf(record));
                rest = tail;
            }
        }
    }
    tree.root()
}
