//! A device that makes seals, for tests and benchmarks of stores. It signs with real keys, and its
//! bundles are verified in the same way as a cloud verifies uploads.

use std::sync::Arc;

use moteseal_core::cbor::Writer;
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, GroupId, Level, Round, SealIndex, Sequence,
};
use moteseal_core::roster::{Directory, NoKey};
use moteseal_core::schema::{Field, FieldType, GroupLayout, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
use moteseal_lanes::{Host, merkle};
use moteseal_seal::level::SaltKey;
use moteseal_seal::level::lowest;
use moteseal_seal::{
    Authentic, MAX_MESSAGE, Position, Seal, Star, Statement, UrgentEvent, star, tree,
};
use moteseal_verify::{SchemaEntry, Urgent, write};

use super::coordinator_key;
use crate::bundle::Bundle;
use crate::urgent::StoredUrgent;

/// The number of levels of every device of this module.
pub const LEVELS: u8 = 16;

/// A device with its keys and the current end of its chain.
#[derive(Debug)]
pub struct Mote {
    secret: SecretKey,
    salt_key: SaltKey,
    device: DeviceId,
    schema: Arc<SchemaEntry>,
    /// The position of the next seal. Set it to seal an index again or to skip indices.
    pub position: Position,
    /// The round of the next seal. Events of lower levels are not kept.
    pub round: u8,
}

/// A seal and the data from which it was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The bundle to store.
    pub bundle: Bundle,
    /// The statement.
    pub statement: Statement,
    /// All records in the order of `seq`, without length prefixes.
    pub records: Vec<Vec<u8>>,
    /// The framing of the records.
    pub framing: Framing,
    layout: Option<GroupLayout>,
    seal: Seal<Authentic>,
    signature: [u8; 64],
    blocks: Vec<Digest>,
}

impl Mote {
    /// Returns the device called `name`, with Ed25519 keys derived from the name. Its records have
    /// 4 bytes, or any length if `opaque` is true.
    ///
    /// # Panics
    /// Never: the schema and the key are fixed.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn new(name: &str, opaque: bool) -> Self {
        let fields = [Field::new("value", "", FieldType::U32)];
        Self::with_fields(name, if opaque { &[] } else { &fields })
    }

    /// Returns the device called `name`, whose records have three column groups. With `texts`, they have
    /// a text and no fixed size.
    ///
    /// # Panics
    /// Never: the schema is fixed.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn grouped(name: &str, texts: bool) -> Self {
        let columns = ["value::u32", "hidden::u16!@1", "secret::u8!aes@4", "note::text40!@1"];
        let columns = &columns[..if texts { 4 } else { 3 }];
        let fields: Vec<Field<'_>> =
            columns.iter().map(|column| Field::parse(column).expect("a column")).collect();
        Self::with_fields(name, &fields)
    }

    #[allow(clippy::expect_used)]
    fn with_fields(name: &str, fields: &[Field<'_>]) -> Self {
        let seed = Digest::of(&[name.as_bytes()]).0;
        let mut buffer = [0; MAX_SCHEMA];
        let schema = Schema::encode(fields, &mut buffer).expect("a schema of few fields");
        Self {
            secret: SecretKey::from_seed(Algorithm::Ed25519, &seed)
                .expect("any 32 bytes are a seed of Ed25519"),
            salt_key: SaltKey::new(seed),
            device: DeviceId::of("conformance", name),
            schema: Arc::new(
                SchemaEntry::decode(schema.as_bytes()).expect("a schema that was just encoded"),
            ),
            position: Position::start(Digest::of(&[b"certificate of ", name.as_bytes()])),
            round: 0,
        }
    }

    /// Returns the device's id.
    #[must_use]
    pub const fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns the schema of the device's records.
    #[must_use]
    pub const fn schema(&self) -> &Arc<SchemaEntry> {
        &self.schema
    }

    /// Signs an urgent event of 4 bytes for a place of a seal.
    ///
    /// # Panics
    /// If the device's records do not have 4 bytes.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn urgent(&self, index: u32, epoch: u64, seq: u64, value: u32) -> StoredUrgent {
        let record = value.to_be_bytes();
        let event = UrgentEvent {
            group: GroupId::of("conformance"),
            roster: Digest([9; 32]),
            device: self.device,
            index: SealIndex(index),
            epoch: EpochNumber(epoch),
            seq: Sequence(seq),
            schema: self.schema.digest,
            keys: None,
            record: &record,
        };
        let (mut message, mut signature, mut bytes) = ([0; 512], [0; 64], [0; 512]);
        let message = event.message(Algorithm::Ed25519, &mut message).expect("room");
        self.secret.sign(message, &mut signature).expect("Ed25519 always signs");
        let mut out = Writer::new(&mut bytes);
        event.encode(&mut out, Algorithm::Ed25519, &signature).expect("room");
        let myself = Motes(vec![(self.device, self.secret.public(), self.position.prev)]);
        let event = Urgent::open(out.written(), &self.schema, &myself);
        StoredUrgent::from(&event.expect("an event that was just signed"))
    }

    /// Seals records under the next index and advances the position.
    ///
    /// # Panics
    /// If a record does not fit the schema.
    #[allow(clippy::expect_used)]
    pub fn seal(&mut self, scheme: Scheme, epoch: u64, records: Vec<Vec<u8>>) -> Made {
        let framing = self.schema.framing;
        let index = SealIndex(self.position.last.map_or(0, |(index, _)| index.0 + 1));
        let mut statement = Statement::new(
            scheme,
            GroupId::of("conformance"),
            Digest([9; 32]),
            self.device,
            LEVELS,
        );
        statement.index = index;
        statement.prev = self.position.prev;
        statement.last = self.position.last;
        statement.epoch = EpochNumber(epoch);
        statement.last_in_epoch = true;
        statement.schema = self.schema.digest;
        statement.groups = self.schema.groups();
        statement.keys = (self.schema.encrypted > 0)
            .then(|| KeyCommitments::decode(&vec![9; 12 + 16 * self.schema.encrypted]))
            .flatten();
        statement.salt = self.salt_key.salt(self.device, index);
        statement.round = Round(self.round);
        statement.own_round = Round(self.round);
        let mut star =
            Star::<{ LEVELS as usize }>::new(self.device, index, &statement.salt, framing);
        for record in &records {
            star.push(record).expect("records fit the schema");
        }
        let (counters, mut blocks) = star.close();
        statement.counters = counters;
        if let Some(layout) = self.schema.groups.as_deref() {
            for (level, digest) in (0..LEVELS).map(Level).zip(&mut blocks) {
                if counters.at(level) == 0 {
                    continue;
                }
                let mut block = Vec::new();
                for (seq, record) in (0..).map(Sequence).zip(&records) {
                    if statement.salt.level(seq, LEVELS) == level {
                        framing.frame(record, |bytes| block.extend_from_slice(bytes));
                    }
                }
                let place = (self.device, index, level);
                *digest = star::whole_block_digest(place, (Some(layout), framing), &block);
            }
        }
        blocks[..usize::from(statement.own_round.0)].fill(Digest::NULL);
        let root = match scheme {
            Scheme::Star => star::root(&counters, &blocks),
            Scheme::Tree => root(&leaves(self.schema.groups.as_deref(), &records)),
        };
        let seal = Seal::new(statement.clone(), root, Algorithm::Ed25519);
        let mut signature = [0; 64];
        self.secret
            .sign(seal.message(&mut [0; MAX_MESSAGE]), &mut signature)
            .expect("Ed25519 always signs");
        let myself = Motes(vec![(self.device, self.secret.public(), self.position.prev)]);
        let seal = seal.verify(&myself, &signature).expect("the signature was just made");
        self.position = seal.position();
        let blocks = blocks[..usize::from(LEVELS)].to_vec();
        let mut made = Made {
            bundle: Bundle::empty(),
            statement,
            records,
            framing,
            layout: self.schema.groups.as_deref().copied(),
            seal: seal.clone(),
            signature,
            blocks: blocks.clone(),
        };
        let everything = made.kept(u32::MAX).len() == made.records.len();
        made.bundle = if scheme == Scheme::Star || everything {
            let events =
                if scheme == Scheme::Star { made.joined(u32::MAX) } else { made.framed(|_| true) };
            Bundle::new(&seal, &signature, &self.schema, &blocks, &events).expect("a whole seal")
        } else {
            made.tree_from(0, &self.schema)
        };
        made
    }

    /// Seals `n` records of 4 bytes, or of 0 to 40 bytes if they are opaque. Records of a schema with
    /// column groups have 7 bytes and, if it has texts, a text of 0 to 40 bytes.
    pub fn seal_some(&mut self, scheme: Scheme, epoch: u64, n: u32) -> Made {
        let record = |i: u32| {
            let hash = Digest::of(&[&epoch.to_be_bytes(), &i.to_be_bytes()]).0;
            match self.schema.framing {
                Framing::Fixed(size) => hash[..usize::from(size.get())].to_vec(),
                Framing::Prefixed if self.schema.groups.is_some() => {
                    let length = hash[0] % 41;
                    let text = &[hash, hash].concat()[..usize::from(length)];
                    [&hash[1..8], &[length], text].concat()
                }
                Framing::Prefixed => [hash, hash].concat()[..usize::from(hash[0]) % 41].to_vec(),
            }
        };
        let records = (0..n).map(record).collect();
        self.seal(scheme, epoch, records)
    }
}

impl Made {
    /// Returns the same seal with only the levels from `round` on, in the form in which a
    /// coordinator uploads it.
    ///
    /// # Panics
    /// If every surviving event is at a level from `round` on.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn pruned(&self, round: u8, schema: &Arc<SchemaEntry>) -> Self {
        if self.statement.scheme == Scheme::Tree {
            return Self { bundle: self.tree_from(round, schema), ..self.clone() };
        }
        let kept = self.statement.surviving() & u32::MAX.checked_shl(round.into()).unwrap_or(0);
        let counters = &self.statement.counters;
        let above = (0..lowest(kept, LEVELS)).fold(star::chain_start(), |above, level| {
            star::link(&above, counters.at(Level(level)), &self.blocks[usize::from(level)])
        });
        let events = self.joined(kept);
        let bundle = Bundle::pruned(
            &self.seal,
            &self.signature,
            schema,
            (kept, above),
            &self.blocks,
            &events,
        );
        Self {
            bundle: bundle.expect("a seal with every surviving level from a round on"),
            ..self.clone()
        }
    }

    #[allow(clippy::expect_used)]
    fn tree_from(&self, round: u8, schema: &Arc<SchemaEntry>) -> Bundle {
        let mask = self.statement.surviving() & u32::MAX.checked_shl(round.into()).unwrap_or(0);
        let kept = self.kept(mask);
        let events = self.framed(|seq| mask >> self.level(seq).0 & 1 == 1);
        let bundle = Bundle::pruned_tree(
            &self.seal,
            &self.signature,
            schema,
            (mask, &self.multiproof(&kept)),
            &events,
        );
        bundle.expect("a tree with every surviving level from a round on")
    }

    /// Returns the surviving events of a tree at the levels in `mask`, ascending.
    #[must_use]
    pub fn kept(&self, mask: u32) -> Vec<Sequence> {
        let mask = mask & self.statement.surviving();
        let all = (0..self.records.len() as u64).filter(|&seq| mask >> self.level(seq).0 & 1 == 1);
        all.map(Sequence).collect()
    }

    /// Returns the compact multiproof of these events of a tree, computed from all its records.
    #[must_use]
    pub fn multiproof(&self, selected: &[Sequence]) -> Vec<u8> {
        multiproof(&self.leaves(), selected)
    }

    /// Returns the leaf hashes of all records in each tree.
    pub(super) fn leaves(&self) -> Vec<Vec<Digest>> {
        leaves(self.layout.as_ref(), &self.records)
    }

    /// Returns the digests that a part with the levels in `mask` carries in addition to its events.
    #[must_use]
    pub fn evidence(&self, mask: u32) -> Vec<u8> {
        write::star_evidence(&self.seal, &self.blocks, mask)
    }

    /// Returns the blocks that a store must return for `mask`: the blocks of the kept levels in
    /// `mask`, highest level first.
    #[must_use]
    pub fn blocks(&self, mask: u32) -> Vec<u8> {
        self.joined(mask & self.bundle.kept())
    }

    fn joined(&self, mask: u32) -> Vec<u8> {
        let mask = mask & self.statement.surviving();
        let levels = (0..LEVELS).rev().filter(|level| mask >> level & 1 == 1);
        levels.flat_map(|level| self.framed(|seq| self.level(seq) == Level(level))).collect()
    }

    /// Returns the encoded records for whose sequence numbers `wanted` returns true, each with a
    /// length prefix if the framing has one.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub fn framed(&self, wanted: impl Fn(u64) -> bool) -> Vec<u8> {
        let mut out = Vec::new();
        for (seq, record) in (0..).zip(&self.records).filter(|(seq, _)| wanted(*seq)) {
            let _: u64 = seq;
            if self.framing == Framing::Prefixed {
                out.extend_from_slice(&(record.len() as u16).to_be_bytes());
            }
            out.extend_from_slice(record);
        }
        out
    }

    /// Returns the level of a record.
    #[must_use]
    pub fn level(&self, seq: u64) -> Level {
        self.statement.salt.level(Sequence(seq), LEVELS)
    }
}

/// Returns the leaf hashes of the records in the tree of each column group, or in the only tree.
fn leaves(layout: Option<&GroupLayout>, records: &[Vec<u8>]) -> Vec<Vec<Digest>> {
    let Some(layout) = layout else {
        return vec![records.iter().map(|record| tree::leaf(record)).collect()];
    };
    let of_group = |group| {
        let cells = layout.cells(group);
        records.iter().map(|record| tree::group_leaf(cells, record)).collect()
    };
    layout.all().iter().map(of_group).collect()
}

/// Returns the root of a seal, computed from the leaves of its trees.
fn root(leaves: &[Vec<Digest>]) -> Digest {
    let roots: Vec<Digest> =
        leaves.iter().map(|leaves| merkle::root(&Host::detect(), leaves)).collect();
    match &roots[..] {
        [root] => *root,
        roots => tree::join_roots(roots),
    }
}

/// Returns the compact multiproof of the selected leaves of each tree, computed from all leaves. If
/// none is selected, returns the root of the seal, or nothing if the tree is empty.
pub(super) fn multiproof(leaves: &[Vec<Digest>], selected: &[Sequence]) -> Vec<u8> {
    if selected.is_empty() {
        let is_empty = leaves.iter().all(Vec::is_empty);
        return if is_empty { Vec::new() } else { root(leaves).0.to_vec() };
    }
    let proof = |leaves: &Vec<Digest>| {
        merkle::multiproof(&Host::detect(), leaves, selected.iter().copied())
    };
    leaves.iter().flat_map(proof).flat_map(|digest| digest.0).collect()
}

/// The directory of the devices that this module makes: what a verifier must know about them.
#[derive(Clone, Debug, Default)]
pub struct Motes(Vec<(DeviceId, PublicKey, Digest)>);

impl Motes {
    /// Returns the directory of the devices with these names.
    #[must_use]
    pub fn new(names: &[&str]) -> Self {
        let entry = |name: &&str| {
            let mote = Mote::new(name, false);
            (mote.device, mote.secret.public(), mote.position.prev)
        };
        Self(names.iter().map(entry).collect())
    }
}

impl Directory for Motes {
    fn group(&self) -> GroupId {
        GroupId::of("conformance")
    }

    fn levels(&self, _: EpochNumber) -> u8 {
        LEVELS
    }

    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (EpochNumber(0), None)
    }

    fn roster_digest(&self, version: u32) -> Option<Digest> {
        (version == 0).then_some(Digest([9; 32]))
    }

    fn with_key(
        &self,
        device: DeviceId,
        _: SealIndex,
        _: EpochNumber,
        use_key: &mut dyn FnMut(&PublicKey),
    ) -> Result<(), NoKey> {
        let Some((_, key, _)) = self.0.iter().find(|(known, ..)| *known == device) else {
            return Err(NoKey::Unknown);
        };
        use_key(key);
        Ok(())
    }

    fn first_prev(&self, device: DeviceId) -> Option<Digest> {
        self.0.iter().find(|(known, ..)| *known == device).map(|(.., prev)| *prev)
    }

    fn with_coordinator(&self, _: EpochNumber, use_key: &mut dyn FnMut(&PublicKey)) {
        use_key(&coordinator_key::secret().public());
    }
}
