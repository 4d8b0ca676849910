//! Opening a grant, and the keys that it gives (spec/grants.md, section 4).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use moteseal_core::cbor::{BufferTooSmall, DecodeError};
use moteseal_core::confidential::{
    ColumnId, Commitment, DEPTH, EpochKey, KeyAccessError, KeyRequest, Node, Nodes, SealKey,
    SealKeys,
};
use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::SignatureError;
use moteseal_verify::{Calendar, Roster};
use zeroize::Zeroizing;

use crate::envelope::{EnvelopeError, Passphrase, Unlock, Unlocked, decrypt};
use crate::grant::{Audience, GrantedTime, Payload, StreamKeys};

/// The height of the inner nodes that [`Keys`] remembers: each opens 64 epochs.
const BLOCK: u8 = 6;

moteseal_core::named_errors! {
    /// Why a grant was rejected.
    OpenError {
        /// The file was not decrypted.
        Envelope(error: EnvelopeError) => from,
        /// The content is not a grant.
        Decode(error: DecodeError) => from,
        /// The grant has more than [`MAX_GENERATIONS`](crate::MAX_GENERATIONS) generations of a device.
        TooManyGenerations {
            /// The device.
            device: DeviceId
        } => "the grant has more than 64 stream secrets of device {device}",
        /// The grant is for devices of another group.
        WrongGroup => "the grant is for devices of another group",
        /// The roster is not the one that the grant names, and not a later version of it.
        UnknownRoster => "the grant names a roster that is not in the history of this one",
        /// The roster does not list the owner that the grant names.
        UnknownOwner => "the roster does not list the owner of the grant",
        /// The grant is signed with another suite than that of the owner's key.
        AlgorithmMismatch => "the grant is not signed with the signature suite of the owner's key",
        /// The owner's signature was rejected.
        Signature(error: SignatureError) => from,
        /// The grant is not signed with the key that the roster lists for the owner, and names an earlier
        /// version of the roster.
        OwnerKeyChanged =>
            "the grant is not signed with the owner's present key; if the owner has changed its key since, ask for a new grant",
        /// The grant was made for somebody else, and encrypted anew.
        NotForYou => "the owner made this grant for somebody else",
        /// The grant has ended.
        GrantExpired {
            /// The end, in Unix milliseconds.
            end_ms: u64
        } => "the grant ended at Unix time {end_ms} ms; ask the owner for a new one",
    }
}

impl From<BufferTooSmall> for OpenError {
    fn from(_: BufferTooSmall) -> Self {
        Self::Envelope(EnvelopeError::FileTooLong)
    }
}

/// Who decrypted a grant.
#[derive(Clone, Copy, Debug)]
pub enum Reader<'r> {
    /// The holder of the identity of this recipient, `age1...`.
    Recipient(&'r str),
    /// One who knows this passphrase.
    Passphrase(&'r Passphrase),
}

/// A grant whose signature, audience and end have been checked. `Debug` prints no key.
pub struct OpenGrant {
    payload: Payload,
    owner_name: String,
    calendar: Calendar,
}

impl fmt::Debug for OpenGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.contents().fmt(f)
    }
}

impl OpenGrant {
    /// Decrypts a grant and checks it. `now_ms` is the present, in Unix milliseconds.
    ///
    /// # Errors
    /// [`OpenError`]: the first check of spec/grants.md, section 4.1, that fails.
    pub fn open(
        file: &[u8],
        unlock: &Unlock,
        roster: &Roster,
        now_ms: u64,
    ) -> Result<Self, OpenError> {
        let (signed, key) = decrypt(file, unlock)?;
        let grant = Self::verify(&signed, roster)?;
        let reader = match key {
            Unlocked::Identity(identity) => Reader::Recipient(identity.recipient().as_str()),
            Unlocked::Passphrase(passphrase) => Reader::Passphrase(passphrase),
        };
        grant.check_reader(reader, now_ms)?;
        Ok(grant)
    }

    /// Checks that the owner made the grant for this reader, and that the grant has not ended.
    ///
    /// # Errors
    /// `NotForYou`, `GrantExpired`.
    pub fn check_reader(&self, reader: Reader<'_>, now_ms: u64) -> Result<(), OpenError> {
        let is_listed = match (&self.payload.audience, reader) {
            (Audience::Recipients(texts), Reader::Recipient(text)) => {
                texts.iter().any(|listed| listed == text)
            }
            (Audience::Passphrase(tag), Reader::Passphrase(passphrase)) => tag.is_of(passphrase),
            _ => false,
        };
        if !is_listed {
            return Err(OpenError::NotForYou);
        }
        match self.payload.not_after_ms {
            Some(end_ms) if now_ms > end_ms => Err(OpenError::GrantExpired { end_ms }),
            _ => Ok(()),
        }
    }

    /// Checks the owner's signature of a decrypted grant, but neither for whom it was made nor whether
    /// it has ended.
    ///
    /// # Errors
    /// [`OpenError`]: the first of steps 2 to 6 of spec/grants.md, section 4.1, that fails.
    pub fn verify(signed: &[u8], roster: &Roster) -> Result<Self, OpenError> {
        let sign1 = Sign1::decode(signed, Typ::Grant)?;
        let payload = Payload::decode(sign1.payload)?;
        if let Some(device) = payload.with_too_many_generations() {
            return Err(OpenError::TooManyGenerations { device });
        }
        if payload.group != roster.group() {
            return Err(OpenError::WrongGroup);
        }
        if roster.version_of(&payload.roster).is_none() {
            return Err(OpenError::UnknownRoster);
        }
        let owner = roster.owner(payload.owner).ok_or(OpenError::UnknownOwner)?;
        let mut scratch = Zeroizing::new(vec![0; signed.len() + 64]);
        let message = sign1.message(&mut scratch)?;
        let checked = if sign1.header.algorithm == owner.key.algorithm() {
            owner.key.verify(message, sign1.signature).map_err(OpenError::from)
        } else {
            Err(OpenError::AlgorithmMismatch)
        };
        // The roster does not have the keys of its earlier versions.
        if checked.is_err() && payload.roster != roster.digest() {
            return Err(OpenError::OwnerKeyChanged);
        }
        checked?;
        let (owner_name, calendar) = (owner.name.clone(), roster.calendar().clone());
        Ok(Self { payload, owner_name, calendar })
    }

    /// Returns what the grant opens, for printing.
    #[must_use]
    pub fn contents(&self) -> Contents {
        let payload = &self.payload;
        let within = payload.time.epochs(&self.calendar);
        let columns = payload.streams.iter().flat_map(|stream| {
            stream.columns.iter().map(|(column, nodes)| GrantedColumn {
                device: stream.device,
                generation: stream.generation,
                column: *column,
                epochs: ranges(stream.base, nodes, &within),
                is_outdated: is_outside(stream.base, nodes, &within),
                nodes: nodes.len(),
            })
        });
        Contents {
            roster: payload.roster,
            owner: self.owner_name.clone(),
            purpose: payload.purpose.clone(),
            audience: payload.audience.clone(),
            time: payload.time,
            not_after_ms: payload.not_after_ms,
            columns: columns.collect(),
        }
    }

    /// Returns whether the grant opens a column of a device in an epoch. Derives no key.
    #[must_use]
    pub fn covers(&self, device: DeviceId, column: ColumnId, epoch: EpochNumber) -> bool {
        let is_open = |stream: &StreamKeys| {
            nodes_of(stream, column).is_some_and(|(_, nodes)| nodes.covers(epoch))
        };
        self.payload.time.has(epoch, &self.calendar) && self.streams_of(device).iter().any(is_open)
    }

    /// Returns an empty cache through which keys are derived.
    #[must_use]
    pub const fn keys(&self) -> Keys<'_> {
        Keys { grant: self, cache: BTreeMap::new() }
    }

    fn first_stream_of(&self, device: DeviceId) -> usize {
        self.payload.streams.partition_point(|stream| stream.device < device)
    }

    fn streams_of(&self, device: DeviceId) -> &[StreamKeys] {
        let end = self.payload.streams.partition_point(|stream| stream.device <= device);
        &self.payload.streams[self.first_stream_of(device)..end]
    }
}

/// Returns the position of a column in a stream, and its nodes.
fn nodes_of(stream: &StreamKeys, column: ColumnId) -> Option<(usize, Nodes<'_>)> {
    let place = stream.columns.binary_search_by_key(&column, |(id, _)| *id).ok()?;
    Some((place, Nodes::new(column, stream.base, &stream.columns[place].1)))
}

/// Returns the epochs of the range `within` that nodes open, as ranges (first, last), ascending.
fn ranges(
    base: EpochNumber,
    nodes: &[Node],
    within: &Range<EpochNumber>,
) -> Vec<(EpochNumber, EpochNumber)> {
    let mut ranges = Vec::<(EpochNumber, EpochNumber)>::new();
    for node in nodes {
        let (first, last) = node.offsets().into_inner();
        let first = EpochNumber(base.0 + u64::from(first)).max(within.start);
        let last = EpochNumber(base.0 + u64::from(last));
        let last = last.min(EpochNumber(within.end.0.saturating_sub(1)));
        if first > last || within.is_empty() {
            continue;
        }
        match ranges.last_mut() {
            Some((_, end)) if end.0 + 1 == first.0 => *end = last,
            _ => ranges.push((first, last)),
        }
    }
    ranges
}

/// Returns whether nodes open an epoch that is not in the range `within`.
fn is_outside(base: EpochNumber, nodes: &[Node], within: &Range<EpochNumber>) -> bool {
    nodes.iter().any(|node| {
        let (first, last) = node.offsets().into_inner();
        let epochs = [first, last].map(|offset| EpochNumber(base.0 + u64::from(offset)));
        !epochs.iter().all(|epoch| within.contains(epoch))
    })
}

/// What a grant opens. It contains no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The digest of the roster with which the grant was made.
    pub roster: Digest,
    /// The name of the owner.
    pub owner: String,
    /// What the recipients may use the readings for, as the owner wrote it.
    pub purpose: String,
    /// For whom the grant was made.
    pub audience: Audience,
    /// The time that the owner has granted.
    pub time: GrantedTime,
    /// The time after which honest clients refuse the grant, in Unix milliseconds.
    pub not_after_ms: Option<u64>,
    /// The columns, sorted by device, generation and id.
    pub columns: Vec<GrantedColumn>,
}

/// A column that a grant opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedColumn {
    /// The device.
    pub device: DeviceId,
    /// The generation of the device's stream secret.
    pub generation: u32,
    /// The id of the column.
    pub column: ColumnId,
    /// The epochs within the granted time, as ranges from a first to a last epoch, ascending.
    pub epochs: Vec<(EpochNumber, EpochNumber)>,
    /// Whether the nodes also open epochs outside the granted time, because the group's epochs have got other
    /// lengths since. Such an epoch is `GrantOutdated`.
    pub is_outdated: bool,
    /// The number of nodes.
    pub nodes: usize,
}

/// The keys of a grant. It remembers the inner nodes that it used last, so that the keys of
/// neighbouring epochs take few derivations.
pub struct Keys<'g> {
    grant: &'g OpenGrant,
    /// By the positions of stream and column.
    cache: BTreeMap<(usize, usize), Cached>,
}

impl fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("grant", self.grant).finish_non_exhaustive()
    }
}

struct Cached {
    /// A node of height [`BLOCK`], if the grant covers one around the last epoch.
    block: Option<Node>,
    key: EpochKey,
}

impl Keys<'_> {
    /// Returns the key of a column of a seal, which has the commitment that the seal states.
    ///
    /// # Errors
    /// `NotCovered` if the grant does not open the column of the device in this epoch; `GrantOutdated` if
    /// it has a key, but the epoch is not in the granted time; `WrongKey` if the commitment is that of
    /// another key.
    pub fn seal_key(
        &mut self,
        request: &KeyRequest,
        commitment: &Commitment,
    ) -> Result<SealKey, KeyAccessError> {
        let KeyRequest { device, column, epoch, index, suite, nonce } = *request;
        let grant = self.grant;
        let first = grant.first_stream_of(device);
        let mut result = Err(KeyAccessError::NotCovered);
        // The newest secret whose keys cover the epoch is most likely the right one.
        for (offset, stream) in grant.streams_of(device).iter().enumerate().rev() {
            let Some((place, nodes)) = nodes_of(stream, column) else { continue };
            if !nodes.covers(epoch) {
                continue;
            }
            if !grant.payload.time.has(epoch, &grant.calendar) {
                return Err(KeyAccessError::GrantOutdated);
            }
            let key = self.epoch_key((first + offset, place), &nodes, epoch)?;
            let key = key.seal_key(device, index, suite, &nonce);
            result = key.check(commitment).map(|()| key);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn epoch_key(
        &mut self,
        place: (usize, usize),
        nodes: &Nodes<'_>,
        epoch: EpochNumber,
    ) -> Result<&EpochKey, KeyAccessError> {
        let cached = self.cache.remove(&place);
        let cached = match cached {
            Some(cached) if cached.key.epoch() == epoch => cached,
            Some(Cached { block: Some(block), .. }) if opens(&block, nodes, epoch) => {
                let key = inner(nodes, &block).epoch_key(epoch)?;
                Cached { block: Some(block), key }
            }
            _ => {
                let block = block_around(nodes, epoch);
                let key = match &block {
                    Some(block) => inner(nodes, block).epoch_key(epoch)?,
                    None => nodes.epoch_key(epoch)?,
                };
                Cached { block, key }
            }
        };
        Ok(&self.cache.entry(place).or_insert(cached).key)
    }
}

impl SealKeys for Keys<'_> {
    fn seal_key(
        &mut self,
        request: &KeyRequest,
        commitment: &Commitment,
    ) -> Result<SealKey, KeyAccessError> {
        Keys::seal_key(self, request, commitment)
    }
}

fn inner<'n>(nodes: &Nodes<'_>, block: &'n Node) -> Nodes<'n> {
    Nodes::new(nodes.column(), nodes.base(), std::slice::from_ref(block))
}

fn opens(block: &Node, nodes: &Nodes<'_>, epoch: EpochNumber) -> bool {
    inner(nodes, block).covers(epoch)
}

/// Returns the node of height [`BLOCK`] above an epoch, if the grant covers all of its epochs.
fn block_around(nodes: &Nodes<'_>, epoch: EpochNumber) -> Option<Node> {
    let offset = epoch.0.checked_sub(nodes.base().0)?;
    let first = offset >> BLOCK << BLOCK;
    let range = [first, first + (1 << BLOCK) - 1].map(|offset| nodes.base().0 + offset);
    let block = nodes.cover(EpochNumber(range[0])..=EpochNumber(range[1])).next()?;
    (block.depth() == DEPTH - BLOCK).then_some(block)
}
