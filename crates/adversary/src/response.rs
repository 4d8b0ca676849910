//! The items of an answer (spec/answers.md, section 1) as owned values with public fields, so that
//! a lie can change every field.

use moteseal_core::cbor::{DecodeError, head};
use moteseal_core::confidential::MAX_KEY_COMMITMENTS;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex};
use moteseal_seal::Answered;
use moteseal_seal::stream::{self, Open};

/// An answer: a list of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The items.
    pub items: Vec<Item>,
}

/// One item of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The encoded schema of the following parts.
    Schema(Vec<u8>),
    /// The device of the following parts, and the position in the device's chain of seals.
    Open(Open),
    /// One seal with some of its events.
    Part(Box<Part>),
    /// The end of a complete answer.
    End,
    /// An error of the server.
    Problem {
        /// The error's name.
        name: String,
        /// The description of the error.
        detail: String,
    },
    /// The first item of a proof file: its query.
    Proof(String),
    /// The explaining form of one seal.
    Explain {
        /// The seal's tagged `COSE_Sign1`.
        seal: Vec<u8>,
        /// The concatenated digests.
        digests: Vec<u8>,
    },
    /// The coordinator's manifest of an epoch.
    Manifest(Vec<u8>),
    /// The cells by which a sanitiser replaced those of a column group.
    Sanitised {
        /// The sanitiser's statement.
        statement: Vec<u8>,
        /// The new cells.
        cells: Vec<u8>,
    },
    /// Raw bytes, which need not be a valid item.
    Raw(Vec<u8>),
}

/// A part: one seal with some of its events. The fields are the fields of the stream item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Star or tree.
    pub scheme: Scheme,
    /// Whether no further seal covers this epoch.
    pub last_in_epoch: bool,
    /// Whether the device restarted since the previous seal.
    pub restart: bool,
    /// The number of indices that were abandoned since the previous seal.
    pub skipped: u32,
    /// The number of epochs since the previous seal.
    pub advance: u64,
    /// The salt of the levels.
    pub salt: [u8; 16],
    /// The number of events under the seal.
    pub n: u32,
    /// The highest round that the coordinator announced.
    pub round: Round,
    /// The device's own round.
    pub own_round: Round,
    /// The number of abandoned events of each level; empty if no events were abandoned.
    pub lost: Vec<u32>,
    /// The query epochs that the device answered, as runs.
    pub answered: Vec<Answered>,
    /// The encoded nonce and commitments to the keys of encrypted columns.
    pub keys: Option<Vec<u8>>,
    /// The shown column groups, as the bits of a set, and the blinding secrets; `None` if the schema has
    /// no groups.
    pub groups: Option<(u8, Vec<u8>)>,
    /// The selected events.
    pub select: Select,
    /// The concatenated digests of the other events.
    pub digests: Vec<u8>,
    /// The records of the selected events.
    pub events: Vec<u8>,
    /// The seal's signature.
    pub signature: Option<Vec<u8>>,
}

/// The selection of the events that a part contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// All events of some levels. Bit `i` stands for level `i`.
    Levels(u32),
    /// Some events of a tree, in ascending order.
    Events(Vec<u64>),
}

/// The position of a part in an answer, derived from the items before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The part's index among the items.
    pub item: usize,
    /// The part's device.
    pub device: DeviceId,
    /// The index of the part's seal.
    pub index: SealIndex,
    /// The epoch of the part's seal.
    pub epoch: EpochNumber,
}

impl Answer {
    /// Reads an answer's bytes.
    ///
    /// # Errors
    /// The errors of [`stream::Item::decode`].
    pub fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut items = Vec::new();
        while !bytes.is_empty() {
            let (item, length) = stream::Item::decode(bytes)?;
            items.push(Item::from(&item));
            bytes = &bytes[length..];
        }
        Ok(Self { items })
    }

    /// Returns the bytes of the answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.items.iter().for_each(|item| item.encode(&mut out));
        out
    }

    /// Returns the positions of the parts. If a changed answer makes an index or epoch overflow,
    /// the maximum is returned instead.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let mut at: Option<(DeviceId, Option<(SealIndex, EpochNumber)>)> = None;
        for (item, entry) in self.items.iter().enumerate() {
            match entry {
                Item::Open(open) => at = Some((open.device, open.last)),
                Item::Part(part) => {
                    let Some((device, last)) = at else { continue };
                    let index = last.map_or(part.skipped, |(index, _)| {
                        index.0.saturating_add(1).saturating_add(part.skipped)
                    });
                    let epoch = last
                        .map_or(part.advance, |(_, epoch)| epoch.0.saturating_add(part.advance));
                    let (index, epoch) = (SealIndex(index), EpochNumber(epoch));
                    at = Some((device, Some((index, epoch))));
                    places.push(Place { item, device, index, epoch });
                }
                _ => {}
            }
        }
        places
    }

    /// Returns the item at this index if it is a part.
    #[must_use]
    pub fn part(&self, item: usize) -> Option<&Part> {
        match self.items.get(item) {
            Some(Item::Part(part)) => Some(part),
            _ => None,
        }
    }

    /// Returns the item at this index, for changes, if it is a part.
    pub fn part_mut(&mut self, item: usize) -> Option<&mut Part> {
        match self.items.get_mut(item) {
            Some(Item::Part(part)) => Some(part),
            _ => None,
        }
    }
}

impl From<&stream::Item<'_>> for Item {
    fn from(item: &stream::Item<'_>) -> Self {
        match item {
            stream::Item::Schema(bytes) => Self::Schema(bytes.to_vec()),
            stream::Item::Open(open) => Self::Open(*open),
            stream::Item::Part(part) => Self::Part(Box::new(Part::from(part))),
            stream::Item::End => Self::End,
            stream::Item::Problem { name, detail } => {
                Self::Problem { name: (*name).to_owned(), detail: (*detail).to_owned() }
            }
            stream::Item::Proof { query } => Self::Proof((*query).to_owned()),
            stream::Item::Explain { seal, digests } => {
                Self::Explain { seal: seal.to_vec(), digests: digests.to_vec() }
            }
            stream::Item::Manifest(manifest) => Self::Manifest(manifest.to_vec()),
            stream::Item::Sanitised { statement, cells } => {
                Self::Sanitised { statement: statement.to_vec(), cells: cells.to_vec() }
            }
        }
    }
}

impl From<&stream::Part<'_>> for Part {
    fn from(part: &stream::Part<'_>) -> Self {
        Self {
            scheme: part.scheme,
            last_in_epoch: part.last_in_epoch,
            restart: part.restart,
            skipped: part.skipped,
            advance: part.advance,
            salt: part.salt.0,
            n: part.n,
            round: part.round,
            own_round: part.own_round,
            lost: part.lost.as_ref().map_or_else(Vec::new, |lost| lost.as_slice().to_vec()),
            answered: part.answered.runs().collect(),
            keys: part.keys.map(|keys| keys.encode(&mut [0; MAX_KEY_COMMITMENTS]).to_vec()),
            groups: (!part.groups.is_empty()).then(|| (part.groups.bits(), part.blinds.to_vec())),
            select: match &part.select {
                stream::Select::Levels(mask) => Select::Levels(*mask),
                stream::Select::Events(gaps) => {
                    Select::Events(gaps.iter().map(|seq| seq.0).collect())
                }
            },
            digests: part.digests.to_vec(),
            events: part.events.to_vec(),
            signature: part.signature.map(<[u8]>::to_vec),
        }
    }
}

fn put(out: &mut Vec<u8>, major: u8, argument: u64) {
    let (bytes, length) = head(major, argument);
    out.extend_from_slice(&bytes[..length]);
}

fn uint(out: &mut Vec<u8>, value: impl Into<u64>) {
    put(out, 0, value.into());
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    put(out, 2, value.len() as u64);
    out.extend_from_slice(value);
}

fn text(out: &mut Vec<u8>, value: &str) {
    put(out, 3, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

fn array(out: &mut Vec<u8>, length: usize) {
    put(out, 4, length as u64);
}

fn optional<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        None => out.push(0xf6),
        Some(value) => write(out, value),
    }
}

impl Item {
    /// Appends the item's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Schema(schema) => {
                array(out, 2);
                uint(out, 0u8);
                bytes(out, schema);
            }
            Self::Open(open) => {
                array(out, 7);
                uint(out, 1u8);
                uint(out, 1u8);
                bytes(out, &open.device.0);
                uint(out, open.roster_version);
                optional(out, open.prev, |out, prev| bytes(out, &prev.0));
                optional(out, open.last, |out, (index, _)| uint(out, index.0));
                optional(out, open.last, |out, (_, epoch)| uint(out, epoch.0));
            }
            Self::Part(part) => part.encode(out),
            Self::End => {
                array(out, 1);
                uint(out, 3u8);
            }
            Self::Problem { name, detail } => {
                array(out, 3);
                uint(out, 4u8);
                text(out, name);
                text(out, detail);
            }
            Self::Proof(query) => {
                array(out, 3);
                uint(out, 5u8);
                uint(out, 1u8);
                text(out, query);
            }
            Self::Explain { seal, digests } => {
                array(out, 3);
                uint(out, 6u8);
                bytes(out, seal);
                bytes(out, digests);
            }
            Self::Manifest(manifest) => {
                array(out, 2);
                uint(out, 7u8);
                bytes(out, manifest);
            }
            Self::Sanitised { statement, cells } => {
                array(out, 3);
                uint(out, 9u8);
                bytes(out, statement);
                bytes(out, cells);
            }
            Self::Raw(raw) => out.extend_from_slice(raw),
        }
    }
}

impl Part {
    /// Appends the item's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let more = if self.groups.is_some() { 3 } else { usize::from(self.keys.is_some()) };
        array(out, 14 + more);
        uint(out, 2u8);
        let tree = self.scheme == Scheme::Tree;
        uint(out, u8::from(tree) | u8::from(self.last_in_epoch) << 1 | u8::from(self.restart) << 2);
        uint(out, self.skipped);
        uint(out, self.advance);
        bytes(out, &self.salt);
        uint(out, self.n);
        uint(out, self.round.0);
        uint(out, self.own_round.0);
        array(out, self.lost.len());
        self.lost.iter().for_each(|&lost| uint(out, lost));
        array(out, self.answered.len());
        for run in &self.answered {
            array(out, 3);
            bytes(out, &run.query);
            uint(out, run.first);
            uint(out, run.count);
        }
        match &self.groups {
            None => self.keys.iter().for_each(|keys| bytes(out, keys)),
            Some((shown, blinds)) => {
                optional(out, self.keys.as_deref(), bytes);
                uint(out, *shown);
                bytes(out, blinds);
            }
        }
        match &self.select {
            Select::Levels(mask) => uint(out, *mask),
            Select::Events(sequence) => {
                array(out, sequence.len());
                let mut next = 0;
                for &seq in sequence {
                    uint(out, seq - next);
                    next = seq + 1;
                }
            }
        }
        bytes(out, &self.digests);
        bytes(out, &self.events);
        optional(out, self.signature.as_deref(), bytes);
    }
}
