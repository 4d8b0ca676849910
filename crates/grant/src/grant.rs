//! A grant: the nodes that open columns of devices in a range of epochs, signed by the owner and
//! encrypted for recipients (spec/grants.md, section 3).

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::confidential::{ColumnId, Node};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::digest::Digest;
use moteseal_core::identity::protected;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId};
use moteseal_core::signature::{SignError, Signer};
use moteseal_verify::{Calendar, Roster};
use zeroize::Zeroizing;

use crate::encoding::{NODE, encode, is_plain, read_nodes, write_nodes};
use crate::envelope::{self, EnvelopeError, MAX_CONTENT, MAX_RECIPIENTS, Recipients};
use crate::owner::Owner;
use crate::passphrase::PassphraseTag;
use crate::stream::{MAX_COLUMNS, Stream};

/// The longest purpose, in bytes.
pub const MAX_PURPOSE: usize = 256;
/// The largest number of generations of a device in a grant. A reader derives a key from each
/// generation that covers an epoch until one has the commitment of the seal.
pub const MAX_GENERATIONS: usize = 64;
/// The longest text of a recipient, in bytes.
const MAX_RECIPIENT: usize = 128;
/// The longest protected header, in bytes.
const HEADER: usize = 64;
/// The longest signature with the heads of a `COSE_Sign1`, in bytes.
const OVERHEAD: usize = 2_500;

moteseal_core::named_errors! {
    /// Why a grant was not made.
    MakeError {
        /// The roster is of another group than the owner.
        WrongGroup => "the roster is of another group than the owner's devices",
        /// The roster does not list the owner.
        UnknownOwner => "the roster does not list the owner; add it with `moteseal roster set`",
        /// The roster lists another key for the owner.
        WrongOwnerKey => "the roster lists another key for the owner",
        /// The owner has no secret of a device.
        NotOwned {
            /// The device.
            device: DeviceId
        } => "the owner has no stream secret of device {device}",
        /// No device has a column of this name, or a device has none of the columns.
        UnknownColumn => "a column is not encrypted on any device, or a device has none of the columns",
        /// There are no devices, or no epochs.
        NothingGranted => "the grant would open nothing; name devices and a time range",
        /// The keys of the device do not cover the epochs.
        EpochOutOfKeyRange {
            /// The device.
            device: DeviceId
        } => "the epochs are outside the range of the stream secret of device {device}; \
              choose other epochs, or leave the device out",
        /// The owner forgot the keys of the first epochs.
        Forgotten {
            /// The device.
            device: DeviceId,
            /// The first epoch whose keys the owner still has.
            first: EpochNumber
        } => "the owner has forgotten the keys of device {device} before epoch {first}; \
              begin there or later, or leave the device out",
        /// The purpose is too long or has control characters.
        InvalidPurpose => "the purpose must be at most 256 bytes of UTF-8 without control characters",
        /// The grant is longer than the limit.
        GrantTooLong => "the grant is too long; make several grants with fewer devices each",
        /// The operating system has no random numbers.
        NoRandomness => "the system has no random numbers",
        /// The signing key failed.
        Sign(error: SignError) => from,
        /// The grant was not encrypted.
        Envelope(error: EnvelopeError) => from,
    }
}

impl From<BufferTooSmall> for MakeError {
    fn from(_: BufferTooSmall) -> Self {
        Self::GrantTooLong
    }
}

/// What a grant shall open, and for whom.
#[derive(Clone, Debug)]
pub struct GrantRequest<'a> {
    /// The devices.
    pub devices: &'a [DeviceId],
    /// The names of the columns; `None` means all encrypted columns.
    pub columns: Option<&'a [&'a str]>,
    /// The epochs. Epochs before the base epoch of a secret are ignored.
    pub epochs: RangeInclusive<EpochNumber>,
    /// The recipients.
    pub recipients: &'a Recipients,
    /// The time after which honest clients refuse the grant, in Unix milliseconds.
    pub not_after_ms: Option<u64>,
    /// What the recipients may use the readings for.
    pub purpose: &'a str,
}

/// For whom a grant was made, as the owner signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The texts of age recipients, ascending.
    Recipients(Vec<String>),
    /// Those who know the passphrase with this tag.
    Passphrase(PassphraseTag),
}

/// The columns of one stream secret of a device that a grant opens.
#[derive(Debug)]
pub(crate) struct StreamKeys {
    pub(crate) device: DeviceId,
    pub(crate) generation: u32,
    pub(crate) base: EpochNumber,
    /// Sorted by id.
    pub(crate) columns: Vec<(ColumnId, Vec<Node>)>,
}

/// The time that a grant opens, in Unix milliseconds. It binds the epochs of the grant to the lengths that
/// they had when the owner made it: a later change of these lengths gives the keys no other time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedTime {
    /// The start of the first epoch.
    pub since_ms: u64,
    /// The end of the last epoch, which is not part of the time; `None` if it is 2^64 or later.
    pub until_ms: Option<u64>,
}

impl GrantedTime {
    fn of(epochs: &RangeInclusive<EpochNumber>, calendar: &Calendar) -> Self {
        Self {
            since_ms: calendar.start_ms(*epochs.start()).unwrap_or(u64::MAX),
            until_ms: end_ms(*epochs.end(), calendar),
        }
    }

    /// Returns whether an epoch is completely within the time.
    pub(crate) fn has(&self, epoch: EpochNumber, calendar: &Calendar) -> bool {
        let starts = calendar.start_ms(epoch).is_some_and(|start| self.since_ms <= start);
        let ends = |until| end_ms(epoch, calendar).is_some_and(|end| end <= until);
        starts && self.until_ms.is_none_or(ends)
    }

    /// Returns the epochs that are completely within the time.
    pub(crate) fn epochs(&self, calendar: &Calendar) -> Range<EpochNumber> {
        let end = self.until_ms.map_or(EpochNumber(u64::MAX), |until| calendar.epoch_of(until));
        calendar.epoch_from(self.since_ms)..end
    }
}

/// Returns the end of an epoch, in Unix milliseconds; `None` if that is 2^64 or more.
fn end_ms(epoch: EpochNumber, calendar: &Calendar) -> Option<u64> {
    calendar.start_ms(epoch)?.checked_add(calendar.epoch_ms(epoch))
}

/// The payload of a grant.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) group: GroupId,
    pub(crate) roster: Digest,
    pub(crate) owner: DeviceId,
    pub(crate) time: GrantedTime,
    pub(crate) not_after_ms: Option<u64>,
    pub(crate) purpose: String,
    pub(crate) audience: Audience,
    /// Sorted by device and generation.
    pub(crate) streams: Vec<StreamKeys>,
}

impl Payload {
    fn bound(&self) -> usize {
        let audience = match &self.audience {
            Audience::Recipients(texts) => texts.iter().map(|text| text.len() + 3).sum(),
            Audience::Passphrase(_) => 40,
        };
        let column = |(_, nodes): &(ColumnId, Vec<Node>)| 32 + nodes.len() * NODE;
        let stream = |stream: &StreamKeys| 48 + stream.columns.iter().map(column).sum::<usize>();
        180 + self.purpose.len() + audience + self.streams.iter().map(stream).sum::<usize>()
    }

    /// Encodes the payload.
    pub(crate) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, BufferTooSmall> {
        encode(self.bound(), |out| {
            out.array(10)?.uint(1u8)?.bytes(&self.group.0)?.bytes(&self.roster.0)?;
            out.bytes(&self.owner.0)?.uint(self.time.since_ms)?;
            out.optional(self.time.until_ms, Writer::uint)?;
            out.optional(self.not_after_ms, Writer::uint)?.text(&self.purpose)?;
            match &self.audience {
                Audience::Recipients(texts) => {
                    out.array(texts.len() as u64)?;
                    for text in texts {
                        out.text(text)?;
                    }
                }
                Audience::Passphrase(tag) => drop(out.bytes(tag.as_bytes())?),
            }
            out.array(self.streams.len() as u64)?;
            for stream in &self.streams {
                out.array(4)?.bytes(&stream.device.0)?.uint(stream.generation)?;
                out.uint(stream.base.0)?.array(stream.columns.len() as u64)?;
                for (column, nodes) in &stream.columns {
                    out.array(2)?.bytes(&column.0)?;
                    write_nodes(out, nodes)?;
                }
            }
            Ok(())
        })
    }

    /// Decodes a payload and checks its form and the rules of spec/grants.md, section 3.1.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes)?;
        let fields = reader.array_any()?;
        reader.version()?;
        if fields != 10 {
            return Err(DecodeError::UnexpectedType);
        }
        let (group, roster) = (GroupId(reader.fixed()?), Digest(reader.fixed()?));
        let owner = DeviceId(reader.fixed()?);
        let (since_ms, until_ms) = (reader.u64()?, reader.optional(Reader::u64)?);
        let time = GrantedTime { since_ms, until_ms };
        let not_after_ms = reader.optional(Reader::u64)?;
        let purpose = reader.text()?.to_owned();
        let audience = if reader.at_array() {
            let mut texts = Vec::new();
            for _ in 0..reader.array_any()? {
                let text = reader.text()?;
                // One too many is enough to refuse the payload.
                if texts.len() <= MAX_RECIPIENTS {
                    texts.push(text.to_owned());
                }
            }
            Audience::Recipients(texts)
        } else {
            Audience::Passphrase(PassphraseTag::from_bytes(reader.fixed()?))
        };
        let mut streams = Vec::new();
        for _ in 0..reader.array_any()? {
            reader.array(4)?;
            let (device, generation) = (DeviceId(reader.fixed()?), reader.uint()?);
            let base = EpochNumber(reader.u64()?);
            let mut columns = Vec::new();
            for _ in 0..reader.array_any()? {
                reader.array(2)?;
                columns.push((ColumnId(reader.fixed()?), read_nodes(&mut reader)?));
            }
            streams.push(StreamKeys { device, generation, base, columns });
        }
        let payload = Self { group, roster, owner, time, not_after_ms, purpose, audience, streams };
        if payload.is_valid() { Ok(payload) } else { Err(DecodeError::FieldOutOfRange) }
    }

    /// Returns the first device with more than [`MAX_GENERATIONS`] streams.
    pub(crate) fn with_too_many_generations(&self) -> Option<DeviceId> {
        let of_one = |streams: &[StreamKeys]| streams[0].device == streams[MAX_GENERATIONS].device;
        let found = self.streams.windows(MAX_GENERATIONS + 1).find(|streams| of_one(streams));
        found.map(|streams| streams[0].device)
    }

    fn is_valid(&self) -> bool {
        let has_audience = match &self.audience {
            Audience::Recipients(texts) => {
                (1..=MAX_RECIPIENTS).contains(&texts.len())
                    && texts.is_sorted_by(|one, other| one < other)
                    && texts.iter().all(|text| !text.is_empty() && text.len() <= MAX_RECIPIENT)
            }
            Audience::Passphrase(_) => true,
        };
        let is_valid = |stream: &StreamKeys| {
            (1..=MAX_COLUMNS).contains(&stream.columns.len())
                && stream.columns.is_sorted_by(|one, other| one.0 < other.0)
                && stream.columns.iter().all(|(_, nodes)| !nodes.is_empty())
                && stream.base.0.checked_add(u32::MAX.into()).is_some()
        };
        let key = |stream: &StreamKeys| (stream.device, stream.generation);
        has_audience
            && self.time.until_ms.is_none_or(|until| self.time.since_ms < until)
            && is_plain(&self.purpose, MAX_PURPOSE)
            && !self.streams.is_empty()
            && self.streams.is_sorted_by(|one, other| key(one) < key(other))
            && self.streams.iter().all(is_valid)
    }
}

/// Signs a payload: a `COSE_Sign1` with the typ `moteseal-grant+cose`.
pub(crate) fn sign(payload: &[u8], key: &dyn Signer) -> Result<Zeroizing<Vec<u8>>, MakeError> {
    let mut header = [0; _];
    let header = protected(key.algorithm(), Typ::Grant, &mut header)?;
    let mut scratch = Zeroizing::new(vec![0; payload.len() + HEADER + 32]);
    let signature = key.signature(sig_structure(&mut scratch, header, payload)?)?;
    Ok(encode(payload.len() + OVERHEAD, |out| Sign1::encode(out, header, payload, &signature))?)
}

impl Owner {
    /// Makes a grant: signs it and encrypts it for its recipients. With `armour`, the file is text in
    /// the form of PEM, for mail.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn grant(
        &self,
        request: &GrantRequest<'_>,
        roster: &Roster,
        armour: bool,
    ) -> Result<Vec<u8>, MakeError> {
        let signed = self.sign_grant(request, roster)?;
        Ok(envelope::encrypt(&signed, request.recipients, armour)?)
    }

    /// Makes and signs a grant, but does not encrypt it. The result is secret.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn sign_grant(
        &self,
        request: &GrantRequest<'_>,
        roster: &Roster,
    ) -> Result<Zeroizing<Vec<u8>>, MakeError> {
        if roster.group_name() != self.group_name() {
            return Err(MakeError::WrongGroup);
        }
        let listed = roster.owner(self.id()).ok_or(MakeError::UnknownOwner)?;
        if listed.key != self.public_key() {
            return Err(MakeError::WrongOwnerKey);
        }
        request.recipients.check()?;
        if !is_plain(request.purpose, MAX_PURPOSE) {
            return Err(MakeError::InvalidPurpose);
        }
        let streams = self.granted(request)?;
        let audience = match request.recipients {
            Recipients::Keys(keys) => {
                let mut texts: Vec<_> = keys.iter().map(|key| key.as_str().to_owned()).collect();
                texts.sort_unstable();
                Audience::Recipients(texts)
            }
            Recipients::Passphrase(passphrase) => {
                let mut salt = [0; 16];
                getrandom::fill(&mut salt).map_err(|_| MakeError::NoRandomness)?;
                Audience::Passphrase(PassphraseTag::of(passphrase, salt))
            }
        };
        let payload = Payload {
            group: roster_group(roster),
            roster: roster.digest(),
            owner: self.id(),
            time: GrantedTime::of(&request.epochs, roster.calendar()),
            not_after_ms: request.not_after_ms,
            purpose: request.purpose.to_owned(),
            audience,
            streams,
        };
        let signed = sign(&payload.encode()?, self.key())?;
        if signed.len() > MAX_CONTENT { Err(MakeError::GrantTooLong) } else { Ok(signed) }
    }

    /// Checks that a grant can have columns of a device for a range of epochs. `columns` are their names;
    /// `None` means all encrypted columns. Derives no key.
    ///
    /// # Errors
    /// `NotOwned`; `Forgotten` if the owner has forgotten keys of the range; `UnknownColumn` if the device
    /// has none of the columns; `EpochOutOfKeyRange` if no secret of the columns covers an epoch.
    pub fn check_grantable(
        &self,
        device: DeviceId,
        columns: Option<&[&str]>,
        epochs: &RangeInclusive<EpochNumber>,
    ) -> Result<(), MakeError> {
        let streams = self.granted_streams(device);
        if streams.is_empty() {
            return Err(MakeError::NotOwned { device });
        }
        streams.iter().try_for_each(|stream| check_not_forgotten(stream, epochs))?;
        let has_column = |stream: &&Stream| {
            stream.columns().iter().any(|column| is_chosen(columns, &column.name))
        };
        let mut chosen = streams.iter().filter(has_column).peekable();
        if chosen.peek().is_none() {
            return Err(MakeError::UnknownColumn);
        }
        let is_covered =
            |stream: &Stream| *epochs.start() <= stream.last() && *epochs.end() >= stream.base();
        if chosen.any(is_covered) { Ok(()) } else { Err(MakeError::EpochOutOfKeyRange { device }) }
    }

    /// Returns the streams of a device of which a grant can have keys: the newest ones. The device is
    /// least likely to use the oldest secrets.
    fn granted_streams(&self, device: DeviceId) -> &[Stream] {
        let streams = self.streams_of(device);
        &streams[streams.len().saturating_sub(MAX_GENERATIONS)..]
    }

    /// Returns the keys of a request, sorted by device and generation.
    fn granted(&self, request: &GrantRequest<'_>) -> Result<Vec<StreamKeys>, MakeError> {
        let devices: BTreeSet<DeviceId> = request.devices.iter().copied().collect();
        if devices.is_empty() || request.epochs.is_empty() {
            return Err(MakeError::NothingGranted);
        }
        let mut missing: BTreeSet<&str> =
            request.columns.unwrap_or_default().iter().copied().collect();
        let mut granted = Vec::new();
        for device in devices {
            self.check_grantable(device, request.columns, &request.epochs)?;
            for stream in self.granted_streams(device) {
                let mut columns = Vec::new();
                for column in stream.columns() {
                    let name = column.name.as_str();
                    if !is_chosen(request.columns, name) {
                        continue;
                    }
                    missing.remove(name);
                    let nodes = stream.cover(column, request.epochs.clone());
                    if !nodes.is_empty() {
                        columns.push((column.id, nodes));
                    }
                }
                if !columns.is_empty() {
                    let (generation, base) = (stream.generation(), stream.base());
                    granted.push(StreamKeys { device, generation, base, columns });
                }
            }
        }
        if missing.is_empty() { Ok(granted) } else { Err(MakeError::UnknownColumn) }
    }
}

/// Returns whether a request names a column. `None` means all columns.
fn is_chosen(columns: Option<&[&str]>, name: &str) -> bool {
    columns.is_none_or(|names| names.contains(&name))
}

/// Checks that the owner still has the keys of all epochs of the range that the secret covers.
fn check_not_forgotten(
    stream: &Stream,
    epochs: &RangeInclusive<EpochNumber>,
) -> Result<(), MakeError> {
    let start = (*epochs.start()).max(stream.base());
    match stream.forgotten() {
        Some(first) if start < first && *epochs.end() >= stream.base() => {
            Err(MakeError::Forgotten { device: stream.device(), first })
        }
        _ => Ok(()),
    }
}

fn roster_group(roster: &Roster) -> GroupId {
    moteseal_core::roster::Directory::group(roster)
}
