//! The data of a cloud: every uploaded bundle. From the bundles the cloud can serve any selection,
//! honestly or not.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, Framing, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_lanes::Host;
use moteseal_seal::follow::{Follower, Limits};
use moteseal_seal::stream::{self, Open};
use moteseal_seal::tree::{self, Tree, geometry};
use moteseal_seal::{Seal, Unverified};
use moteseal_verify::{SchemaEntry, write};

use crate::response::{Item, Part, Select};

/// A seal with its signature, schema and records.
#[derive(Clone, Debug)]
pub struct Held {
    /// The seal.
    pub seal: Seal<Unverified>,
    /// Its signature.
    pub signature: Vec<u8>,
    /// The encoded schema of the seal's records.
    pub schema: Vec<u8>,
    /// The framing of its records.
    pub framing: Framing,
    /// A star's `D_0 .. D_{L-1}`; empty for a tree.
    pub blocks: Vec<Digest>,
    /// All records, ordered by `seq`, without their length prefixes.
    pub records: Vec<Vec<u8>>,
    /// The open item that precedes the seal's part.
    pub open: Open,
    /// The seal's signed part with every event.
    pub(crate) whole: Part,
}

/// All bundles of a cloud.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    devices: BTreeMap<DeviceId, BTreeMap<SealIndex, Held>>,
}

impl Holdings {
    /// Adds a bundle (`.mseal`): a schema, an open item, and a signed part with every event.
    ///
    /// # Errors
    /// A description of the defect, if the bundle is invalid.
    pub fn take(&mut self, roster: &dyn Directory, bundle: &[u8]) -> Result<(), String> {
        let mut follower = Follower::new(roster, Host::detect(), Limits::default());
        let (mut schema, mut opened) = (None, None);
        let mut rest = bundle;
        while !rest.is_empty() {
            let (item, length) = stream::Item::decode(rest).map_err(|error| error.to_string())?;
            rest = &rest[length..];
            match item {
                stream::Item::Schema(bytes) => {
                    schema = Some(SchemaEntry::decode(bytes).map_err(|error| error.to_string())?);
                }
                stream::Item::Open(open) => {
                    follower.open(&open, |_| None).map_err(|error| error.to_string())?;
                    opened = Some(open);
                }
                stream::Item::Part(part) => {
                    let (Some(schema), Some(open)) = (&schema, opened) else {
                        return Err("no schema or no open item".into());
                    };
                    let shape = moteseal_seal::follow::Shape::new(schema.digest, schema.framing);
                    let rebuilt =
                        follower.part(&part, Some(&shape)).map_err(|error| error.to_string())?;
                    let statement = rebuilt.seal.statement();
                    let (device, index) = (statement.device, statement.index);
                    let star = statement.scheme == Scheme::Star;
                    let levels = usize::from(statement.counters.levels());
                    let whole = Part::from(&part);
                    let held = Held {
                        signature: part.signature.ok_or("a part without a signature")?.to_vec(),
                        schema: schema.bytes.clone(),
                        framing: schema.framing,
                        blocks: if star { rebuilt.blocks[..levels].to_vec() } else { Vec::new() },
                        records: records(&rebuilt.seal, schema.framing, part.events),
                        open: Open { prev: Some(statement.prev), ..open },
                        whole,
                        seal: rebuilt.seal,
                    };
                    self.devices.entry(device).or_default().insert(index, held);
                }
                _ => return Err("an item that no bundle has".into()),
            }
        }
        Ok(())
    }

    /// Returns the devices, ordered by id.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.devices.keys().copied()
    }

    /// Returns the seals of a device, ordered by index.
    pub fn seals(&self, device: DeviceId) -> impl DoubleEndedIterator<Item = &Held> {
        self.devices.get(&device).into_iter().flat_map(BTreeMap::values)
    }

    /// Returns the seal of a device with this index.
    #[must_use]
    pub fn get(&self, device: DeviceId, index: SealIndex) -> Option<&Held> {
        self.devices.get(&device)?.get(&index)
    }
}

/// Splits the events of a part that contains every event into records, ordered by `seq`.
fn records(seal: &Seal<Unverified>, framing: Framing, events: &[u8]) -> Vec<Vec<u8>> {
    let statement = seal.statement();
    let n = statement.counters.total();
    let mut split = Vec::new();
    let mut rest = events;
    while let Some((record, tail)) = framing.split_first(rest).filter(|_| !rest.is_empty()) {
        split.push(record.to_vec());
        rest = tail;
    }
    if statement.scheme == Scheme::Tree {
        return split;
    }
    // In a star, the blocks are ordered from the highest to the lowest level.
    let levels = statement.counters.levels();
    let mut order: Vec<u64> = (0..n).collect();
    order.sort_by_key(|&seq| std::cmp::Reverse(statement.salt.level(Sequence(seq), levels)));
    let mut by_seq: Vec<(u64, Vec<u8>)> = order.into_iter().zip(split).collect();
    by_seq.sort_by_key(|(seq, _)| *seq);
    by_seq.into_iter().map(|(_, record)| record).collect()
}

impl Held {
    /// Returns the sequence numbers, in ascending order, of the events whose levels are in `mask`.
    #[must_use]
    pub fn members(&self, mask: u32) -> Vec<u64> {
        let statement = self.seal.statement();
        let levels = statement.counters.levels();
        let selected = |seq: &u64| mask >> statement.salt.level(Sequence(*seq), levels).0 & 1 == 1;
        (0..self.records.len() as u64).filter(selected).collect()
    }

    /// Returns the digests that an honest part with this selection contains.
    #[must_use]
    pub fn digests(&self, select: &Select) -> Vec<u8> {
        match (select, self.seal.statement().scheme) {
            (Select::Levels(mask), Scheme::Star) => {
                write::star_evidence(&self.seal, &self.blocks, *mask)
            }
            (Select::Levels(mask), Scheme::Tree) => self.multiproof(&self.members(*mask)),
            (Select::Events(sequence), _) => self.multiproof(sequence),
        }
    }

    fn multiproof(&self, sequence: &[u64]) -> Vec<u8> {
        let selected = sequence.iter().map(|&seq| Sequence(seq));
        geometry::siblings(self.records.len() as u64, selected)
            .flat_map(|range| self.subtree(range).0)
            .collect()
    }

    fn subtree(&self, range: std::ops::Range<u64>) -> Digest {
        let mut subtree = Tree::<32>::new();
        let range =
            usize::try_from(range.start).unwrap_or(0)..usize::try_from(range.end).unwrap_or(0);
        for record in &self.records[range] {
            // A part has fewer than 2^32 events.
            let _ = subtree.push_leaf(tree::leaf(record));
        }
        subtree.root()
    }

    /// Returns the events of a selection, encoded as in a part.
    #[must_use]
    pub fn events(&self, select: &Select) -> Vec<u8> {
        let statement = self.seal.statement();
        let levels = statement.counters.levels();
        let mut sequence = match select {
            Select::Levels(mask) => self.members(*mask),
            Select::Events(sequence) => sequence.clone(),
        };
        if statement.scheme == Scheme::Star {
            sequence
                .sort_by_key(|&seq| std::cmp::Reverse(statement.salt.level(Sequence(seq), levels)));
        }
        let mut events = Vec::new();
        for seq in sequence {
            let record = usize::try_from(seq)
                .ok()
                .and_then(|seq| self.records.get(seq))
                .map_or(&[][..], Vec::as_slice);
            frame(&mut events, self.framing, record);
        }
        events
    }

    /// Returns the honest part with this selection, with a signature if `signed`.
    #[must_use]
    pub fn part(&self, select: Select, signed: bool) -> Part {
        Part {
            digests: self.digests(&select),
            events: self.events(&select),
            signature: signed.then(|| self.signature.clone()),
            select,
            ..self.whole.clone()
        }
    }

    /// Returns the items of a run that consists of this seal only: schema, open item and signed
    /// part.
    #[must_use]
    pub fn run(&self, select: Select) -> [Item; 3] {
        let part = Item::Part(Box::new(self.part(select, true)));
        [Item::Schema(self.schema.clone()), Item::Open(self.open), part]
    }

    /// Returns the signed object, a tagged `COSE_Sign1`.
    #[must_use]
    pub fn sign1(&self) -> Vec<u8> {
        write::sign1(&self.seal, &self.signature)
    }

    /// Returns the concatenated digests of the explaining form: `D_0 .. D_{L-1}` of a star, or the
    /// leaf hashes of a tree.
    #[must_use]
    pub fn explaining(&self) -> Vec<u8> {
        if self.seal.statement().scheme == Scheme::Star {
            return self.blocks.iter().flat_map(|digest| digest.0).collect();
        }
        self.records.iter().flat_map(|record| tree::leaf(record).0).collect()
    }
}

/// Appends a record, with its length prefix if the framing requires one.
pub(crate) fn frame(out: &mut Vec<u8>, framing: Framing, record: &[u8]) {
    if framing == Framing::Prefixed {
        #[allow(clippy::cast_possible_truncation)]
        out.extend_from_slice(&(record.len() as u16).to_be_bytes());
    }
    out.extend_from_slice(record);
}
