//! The statement that a device signs with a seal, and its encoding.

use crate::answers::Answers;
use crate::level::{Counters, Salt};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::record::{
    DeviceId, EpochNumber, GroupId, Level, MAX_LEVELS, Round, Scheme, SealIndex,
};

/// Maximum length of the encoding in bytes. It has room for 2 arrays of 32 counts of 5 bytes each,
/// 8 runs of answers of 32 bytes each, and the other fields.
pub(super) const MAX_LENGTH: usize = 800;

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

    /// Writes the statement.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(19)?.uint(1u8)?.uint(self.scheme.number())?;
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
        self.answered.encode(out)
    }

    /// Reads a statement.
    ///
    /// # Errors
    /// The errors of [`Reader::new`]; `FieldOutOfRange` for values that spec/objects.md, section 6,
    /// does not allow.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes)?;
        reader.array(19)?;
        reader.version()?;
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
        })
    }
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
