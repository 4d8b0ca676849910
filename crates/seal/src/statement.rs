//! The statement that a device signs with a seal, and its encoding.

use crate::answers::Answers;
use crate::level::{Counters, Salt};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::confidential::{KeyCommitments, MAX_KEY_COMMITMENTS};
use moteseal_core::digest::Digest;
use moteseal_core::record::{
    DeviceId, EpochNumber, GroupId, Level, MAX_LEVELS, Round, Scheme, SealIndex,
};
use moteseal_core::schema::Groups;

/// Maximum length of the encoding in bytes. It has room for 2 arrays of 32 counts of 5 bytes each,
/// 8 runs of answers of 32 bytes each, the commitments to 16 keys, and the other fields.
pub(super) const MAX_LENGTH: usize = 1032;

/// The number of lost events of each level. The device counted these events but discarded them,
/// because they or other events of their level did not fit. `None` if no events were lost.
pub type Lost = Option<Counters>;

/// A device's statement under one index (spec/objects.md, section 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Star or tree.
    pub scheme: Scheme,
    /// The group.
    pub group: GroupId,
    /// The digest of the roster that the device uses.
    pub roster: Digest,
    /// The device.
    pub device: DeviceId,
    /// The index of the seal.
    pub index: SealIndex,
    /// The digest of the last signed seal, or of the first certificate.
    pub prev: Digest,
    /// The index and the epoch of the last signed seal.
    pub last: Option<(SealIndex, EpochNumber)>,
    /// The epoch of the events.
    pub epoch: EpochNumber,
    /// Whether no further seal covers this epoch.
    pub last_in_epoch: bool,
    /// Whether the device restarted since the last signed seal. If so, epochs without a seal before
    /// this one are an outage.
    pub restart: bool,
    /// The digest of the stream schema.
    pub schema: Digest,
    /// The salt that determines the levels of the events.
    pub salt: Salt,
    /// The highest round that was announced to the device.
    pub round: Round,
    /// The device's own round, at least `round`. The device does not keep levels below it.
    pub own_round: Round,
    /// The number of events of each level.
    pub counters: Counters,
    /// The number of lost events of each level.
    pub lost: Lost,
    /// The query epochs that the device answered.
    pub answered: Answers,
    /// The nonce and the commitments to the keys of the encrypted columns; `None` if the schema has no
    /// encrypted columns.
    pub keys: Option<KeyCommitments>,
    /// The groups of the schema's columns, to which the root commits separately. Empty if the
    /// schema has no groups.
    pub groups: Groups,
}

impl Statement {
    /// Returns a device's first statement, without events, rounds or losses. The caller sets the
    /// fields whose values differ.
    #[must_use]
    pub fn new(
        scheme: Scheme,
        group: GroupId,
        roster: Digest,
        device: DeviceId,
        levels: u8,
    ) -> Self {
        Self {
            scheme,
            group,
            roster,
            device,
            index: SealIndex(0),
            prev: Digest::NULL,
            last: None,
            epoch: EpochNumber(0),
            last_in_epoch: false,
            restart: false,
            schema: Digest::NULL,
            salt: Salt([0; 16]),
            round: Round(0),
            own_round: Round(0),
            counters: Counters::new(levels),
            lost: None,
            answered: Answers::NONE,
            keys: None,
            groups: Groups::NONE,
        }
    }

    /// Adds a query epoch that the device answered. Returns `false` if this seal cannot state it
    /// (see [`Answers::add`]).
    #[must_use]
    pub fn add_answered(&mut self, query: [u8; 16], epoch: u64) -> bool {
        self.answered.add(query, epoch)
    }

    /// Returns whether the statement reports this epoch of this query as answered.
    #[must_use]
    pub fn answered_in(&self, query: &[u8; 16], epoch: u64) -> bool {
        self.answered.contains(query, epoch)
    }

    /// Returns whether the block of a level does not exist: the level has no events, is below the
    /// device's round, or has lost events.
    #[must_use]
    pub fn is_null(&self, level: Level) -> bool {
        self.counters.at(level) == 0
            || level.0 < self.own_round.0
            || self.lost.is_some_and(|lost| lost.at(level) > 0)
    }

    /// Returns the levels whose blocks exist, as a bit mask.
    #[must_use]
    pub fn surviving(&self) -> u32 {
        (0..self.counters.levels())
            .filter(|&level| !self.is_null(Level(level)))
            .fold(0, |mask, level| mask | 1 << level)
    }

    /// Returns whether the root is that of one tree as in RFC 9162. The root of a tree with column
    /// groups covers one such tree for each group.
    #[must_use]
    pub const fn is_rfc_tree(&self) -> bool {
        matches!(self.scheme, Scheme::Tree) && self.groups.is_empty()
    }

    /// Writes the statement: version 3 if it states groups, version 2 if it states keys only, and
    /// otherwise version 1.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        let (fields, version) = match (self.groups.is_empty(), self.keys.is_some()) {
            (false, _) => (21, 3u8),
            (true, true) => (20, 2),
            (true, false) => (19, 1),
        };
        out.array(fields)?.uint(version)?.uint(self.scheme.number())?;
        out.bytes(&self.group.0)?.bytes(&self.roster.0)?.bytes(&self.device.0)?;
        out.uint(self.index.0)?.bytes(&self.prev.0)?;
        out.optional(self.last, |out, (index, _)| out.uint(index.0))?;
        out.uint(self.epoch.0)?;
        out.optional(self.last, |out, (_, epoch)| out.uint(epoch.0))?;
        out.bool(self.last_in_epoch)?.bool(self.restart)?;
        out.bytes(&self.schema.0)?.bytes(&self.salt.0)?;
        out.uint(self.round.0)?.uint(self.own_round.0)?;
        encode_counts(out, Some(&self.counters))?;
        encode_counts(out, self.lost.as_ref())?;
        self.answered.encode(out)?;
        encode_keys(out, self.keys.as_ref(), self.groups)?;
        if !self.groups.is_empty() {
            out.uint(self.groups.bits())?;
        }
        Ok(())
    }

    /// Reads a statement.
    ///
    /// # Errors
    /// The errors of [`Reader::new`]; `FieldOutOfRange` for values that spec/objects.md, section 6,
    /// does not allow.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes)?;
        let optional = read_version(&mut reader, 19, true)?;
        let scheme = match reader.u64()? {
            0 => Scheme::Star,
            1 => Scheme::Tree,
            _ => return Err(DecodeError::FieldOutOfRange),
        };
        let group = GroupId(reader.fixed()?);
        let roster = Digest(reader.fixed()?);
        let device = DeviceId(reader.fixed()?);
        let index = SealIndex(reader.uint()?);
        let prev = Digest(reader.fixed()?);
        let prev_index = reader.optional(Reader::uint)?;
        let epoch = EpochNumber(reader.u64()?);
        let prev_epoch = reader.optional(Reader::u64)?;
        let last = match (prev_index, prev_epoch) {
            (Some(index), Some(epoch)) => Some((SealIndex(index), EpochNumber(epoch))),
            (None, None) => None,
            _ => return Err(DecodeError::FieldOutOfRange),
        };
        let last_in_epoch = reader.bool()?;
        let restart = reader.bool()?;
        let schema = Digest(reader.fixed()?);
        let salt = Salt(reader.fixed()?);
        let round = Round(reader.uint()?);
        let own_round = Round(reader.uint()?);
        let counters = decode_counts(&mut reader)?.ok_or(DecodeError::FieldOutOfRange)?;
        let lost = decode_counts(&mut reader)?;
        let answered = Answers::decode(&mut reader)?;
        let (keys, groups) = optional.decode(&mut reader)?;
        let levels = counters.levels();
        let lost_fits = lost.is_none_or(|lost| {
            lost.levels() == levels
                && lost.total() > 0
                && lost.as_slice().iter().zip(counters.as_slice()).all(|(l, c)| l <= c)
        });
        let in_order =
            last.is_none_or(|(last_index, last_epoch)| last_index < index && last_epoch <= epoch);
        let rounds = round <= own_round && own_round.0 < levels;
        let tree_loses_none = scheme == Scheme::Star || lost.is_none();
        if !(lost_fits
            && in_order
            && rounds
            && tree_loses_none
            && groups.len() != 1
            && counters.total() <= u64::from(u32::MAX))
        {
            return Err(DecodeError::FieldOutOfRange);
        }
        Ok(Self {
            scheme,
            group,
            roster,
            device,
            index,
            prev,
            last,
            epoch,
            last_in_epoch,
            restart,
            schema,
            salt,
            round,
            own_round,
            counters,
            lost,
            answered,
            keys,
            groups,
        })
    }
}

/// The optional fields of a statement or a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Optional {
    /// Neither keys nor groups.
    Nothing,
    /// Keys.
    Keys,
    /// Keys or null, and groups.
    Groups,
}

impl Optional {
    /// Reads the fields.
    pub(crate) fn decode(
        self,
        reader: &mut Reader<'_>,
    ) -> Result<(Option<KeyCommitments>, Groups), DecodeError> {
        match self {
            Self::Nothing => Ok((None, Groups::NONE)),
            Self::Keys => Ok((Some(decode_keys(reader)?), Groups::NONE)),
            Self::Groups => {
                let keys = reader.optional(decode_keys)?;
                let groups = Groups::from_bits(reader.uint()?);
                if !groups.contains(0) {
                    return Err(DecodeError::FieldOutOfRange);
                }
                Ok((keys, groups))
            }
        }
    }
}

/// Reads the head of a statement, an array, and its version. Version 1 has `fields` elements. Version
/// 2 has one more, the keys. If `has_groups`, version 3 has two more, keys or null and the groups.
pub(crate) fn read_version(
    reader: &mut Reader<'_>,
    fields: u64,
    has_groups: bool,
) -> Result<Optional, DecodeError> {
    let length = reader.array_any()?;
    if length == fields {
        return reader.version().map(|()| Optional::Nothing);
    }
    let version = if length == fields + 1 || (has_groups && length == fields + 2) {
        reader.u64()?
    } else {
        return Err(DecodeError::UnexpectedType);
    };
    match (length - fields, version) {
        (1, 2) => Ok(Optional::Keys),
        (2, 3) => Ok(Optional::Groups),
        _ => Err(DecodeError::UnexpectedType),
    }
}

/// Writes the nonce and the commitments as one byte string. Writes nothing for `None`, or null if
/// there are groups.
pub(crate) fn encode_keys(
    out: &mut Writer<'_>,
    keys: Option<&KeyCommitments>,
    groups: Groups,
) -> Result<(), BufferTooSmall> {
    match keys {
        Some(keys) => _ = out.bytes(keys.encode(&mut [0; MAX_KEY_COMMITMENTS]))?,
        None if groups.is_empty() => {}
        None => _ = out.null()?,
    }
    Ok(())
}

/// Reads the nonce and the commitments.
pub(crate) fn decode_keys(reader: &mut Reader<'_>) -> Result<KeyCommitments, DecodeError> {
    KeyCommitments::decode(reader.bytes()?).ok_or(DecodeError::FieldOutOfRange)
}

/// Writes counts, one per level, or the empty array for `None`.
pub(crate) fn encode_counts(
    out: &mut Writer<'_>,
    counters: Option<&Counters>,
) -> Result<(), BufferTooSmall> {
    let counts = counters.map_or(&[][..], Counters::as_slice);
    out.array(counts.len() as u64)?;
    counts.iter().try_for_each(|&count| out.uint(count).map(|_| ()))
}

/// Reads counts of at most [`MAX_LEVELS`] levels. Returns `None` for the empty array.
pub(crate) fn decode_counts(reader: &mut Reader<'_>) -> Result<Option<Counters>, DecodeError> {
    let length = u8::try_from(reader.array_any()?).map_err(|_| DecodeError::FieldOutOfRange)?;
    if usize::from(length) > MAX_LEVELS {
        return Err(DecodeError::FieldOutOfRange);
    }
    let mut counters = Counters::new(length);
    for count in counters.as_mut_slice() {
        *count = reader.uint()?;
    }
    Ok((length > 0).then_some(counters))
}
