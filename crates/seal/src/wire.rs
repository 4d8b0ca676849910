//! Frames between a device and its coordinator: authenticated datagrams that may be lost, repeated
//! and reordered (spec/coordinator.md, section 4).
//!
//! A frame is one CBOR item and a 16-byte HMAC-SHA256 tag under a key that only the two ends share.
//! Frames have no counter. Each frame states the range of events that it covers under a seal index,
//! and an index is never reused, so a repeated or late frame has no effect. Before the tag has been
//! checked, only the device's id is read from a frame.

use core::ops::Range;

use crate::Position;
use crate::tree::geometry;
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer, head};
use moteseal_core::digest::Digest;
use moteseal_core::link::{Direction, FrameError, LinkKey, MAX_FRAME, TAG, closed, opened};
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, Level, MAX_LEVELS, Round, SealIndex, Sequence,
};

mod health;
mod refusal;
mod urgent;
pub use health::{HealthFrame, HealthSession, MAX_HEALTH_FRAME, MAX_HEALTH_SESSION};
pub use refusal::{MAX_REFUSAL, Refusal};
pub use urgent::{EventAnswer, EventFrame, MAX_EVENT_ANSWER};

/// Maximum number of bytes of a forward frame in addition to its events and digests: the head of
/// the array, the kind, device, index, epoch, round, `from`, `until` and `size`, and the heads of
/// the events and of a tree's digests.
const FORWARD_FIELDS: usize = 1 + 1 + 9 + 5 + 9 + 2 + 5 + 5 + 3 + 3 + 3;
/// Maximum number of bytes of events and digests in a forward frame.
pub const MAX_EVENTS: usize = MAX_FRAME - FORWARD_FIELDS - TAG;
/// Maximum length of a record that can be forwarded. Such a record, with the longest encoding of
/// its position and its length prefix, fills a frame.
pub const MAX_RECORD: usize = MAX_EVENTS - 9 - 2;

/// A frame from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplink<'a> {
    /// Events of an open seal.
    Forward(Forward<'a>),
    /// A closed seal: an open item and a part item (spec/answers.md, section 1), without the events
    /// and without data that can be computed from them.
    Close {
        /// The schema's digest.
        schema: Digest,
        /// The open item.
        open: &'a [u8],
        /// The part item.
        part: &'a [u8],
    },
    /// A stream schema, sent before its first use and on request.
    Schema(&'a [u8]),
    /// A number that the coordinator must repeat in its acknowledgements, which shows that they are
    /// newer than this frame.
    Challenge(u64),
}

/// All events within a range of sequence numbers whose levels are at or above the device's round.
/// For a tree, also digests in place of the other events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward<'a> {
    /// The index of the seal that will cover the events.
    pub index: SealIndex,
    /// The epoch of that seal.
    pub epoch: EpochNumber,
    /// The device's own round. Events of lower levels may be missing. All other events of the range
    /// are present.
    pub own_round: Round,
    /// The first sequence number of the range.
    pub from: Sequence,
    /// The first sequence number after the range.
    pub until: Sequence,
    /// How the records are delimited.
    pub framing: Framing,
    /// The events, encoded: see [`events`](Self::events).
    pub events: &'a [u8],
    /// For a tree only: the digests in place of the events that are not in the frame; see
    /// [`subtrees`](Self::subtrees).
    pub digests: Option<&'a [u8]>,
}

/// A frame from a coordinator to one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The index of the open seal.
    pub index: SealIndex,
    /// Every forwarded event before this one is stored durably.
    pub next: Sequence,
    /// The device's newest seal that is stored durably. The seals before it in its chain are also
    /// stored or cannot be stored any more.
    pub sealed: Option<StoredSeal>,
    /// Whether the device should send the schema.
    pub wants_schema: bool,
    /// The newest challenge that the coordinator has received from the device since it started.
    pub challenge: Option<u64>,
}

/// Maximum length of the frame of an acknowledgement in bytes.
pub const MAX_ACKNOWLEDGEMENT: usize = 1 + 1 + 9 + 5 + 5 + (1 + 5 + 9 + 1 + 34) + 1 + 9 + TAG;

/// A seal that a coordinator has stored durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredSeal {
    /// The seal's index.
    pub index: SealIndex,
    /// The seal's epoch.
    pub epoch: EpochNumber,
    /// Whether the seal is the device's last seal of that epoch.
    pub last_in_epoch: bool,
    /// The seal's digest.
    pub digest: Digest,
}

impl StoredSeal {
    /// Returns the position in the device's chain after this seal.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position {
            prev: self.digest,
            last: Some((self.index, self.epoch)),
            epoch_closed: self.last_in_epoch,
        }
    }
}

impl<'a> Uplink<'a> {
    /// Checks the tag of a device's frame and decodes it.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &'a [u8], key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Up)?)?;
        let fields = reader.array_any()?;
        let kind = reader.u64()?;
        let _: [u8; 8] = reader.fixed()?;
        Ok(match (kind, fields) {
            (1, 9 | 10) => {
                let (index, epoch) = (SealIndex(reader.uint()?), EpochNumber(reader.u64()?));
                let own_round = Round(reader.uint()?);
                let (from, until) = (Sequence(reader.u64()?), Sequence(reader.u64()?));
                let size: u16 = reader.uint()?;
                let framing = if size == 0 {
                    Framing::Prefixed
                } else {
                    Framing::fixed(usize::from(size)).ok_or(FrameError::Malformed)?
                };
                let events = reader.bytes()?;
                let digests = if fields == 10 { Some(reader.bytes()?) } else { None };
                let forward =
                    Forward { index, epoch, own_round, from, until, framing, events, digests };
                if from > until || until.0 > u64::from(u32::MAX) || !forward.is_whole() {
                    return Err(FrameError::Malformed);
                }
                Self::Forward(forward)
            }
            (2, 5) => Self::Close {
                schema: Digest(reader.fixed()?),
                open: reader.bytes()?,
                part: reader.bytes()?,
            },
            (3, 3) => Self::Schema(reader.bytes()?),
            (6, 3) => Self::Challenge(reader.u64()?),
            _ => return Err(FrameError::Malformed),
        })
    }

    /// Writes a frame from `device`.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn close<'o>(
        &self,
        device: DeviceId,
        key: &LinkKey,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        match self {
            Self::Forward(forward) => {
                let size = match forward.framing {
                    Framing::Fixed(size) => size.get(),
                    Framing::Prefixed => 0,
                };
                let fields = 9 + u64::from(forward.digests.is_some());
                out.array(fields)?
                    .uint(1u8)?
                    .bytes(&device.0)?
                    .uint(forward.index.0)?
                    .uint(forward.epoch.0)?;
                out.uint(forward.own_round.0)?
                    .uint(forward.from.0)?
                    .uint(forward.until.0)?
                    .uint(size)?
                    .bytes(forward.events)?;
                if let Some(digests) = forward.digests {
                    out.bytes(digests)?;
                }
            }
            Self::Close { schema, open, part } => {
                out.array(5)?
                    .uint(2u8)?
                    .bytes(&device.0)?
                    .bytes(&schema.0)?
                    .bytes(open)?
                    .bytes(part)?;
            }
            Self::Schema(schema) => {
                out.array(3)?.uint(3u8)?.bytes(&device.0)?.bytes(schema)?;
            }
            Self::Challenge(challenge) => {
                out.array(3)?.uint(6u8)?.bytes(&device.0)?.uint(*challenge)?;
            }
        }
        closed(out, key, Direction::Up)
    }
}

/// Appends one event: its distance from `next`, its level, and the record. `next` is the sequence
/// number after the previous event, or the frame's `from` for the first event.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_event(
    out: &mut Writer<'_>,
    next: Sequence,
    seq: Sequence,
    level: Level,
    prefix: Option<[u8; 2]>,
    record: &[u8],
) -> Result<(), BufferTooSmall> {
    let (place, length) = head(0, seq.0.wrapping_sub(next.0) << 5 | u64::from(level.0));
    out.raw(&place[..length])?;
    if let Some(prefix) = prefix {
        out.raw(&prefix)?;
    }
    out.raw(record)?;
    Ok(())
}

impl<'a> Forward<'a> {
    /// Returns the events: the sequence number, level and record of each. The iterator ends early
    /// at malformed bytes. A frame from [`Uplink::open`] has no malformed bytes.
    pub fn events(&self) -> impl Iterator<Item = (Sequence, Level, &'a [u8])> + use<'a> {
        let (framing, until) = (self.framing, self.until.0);
        let (mut rest, mut next) = (self.events, self.from.0);
        core::iter::from_fn(move || {
            let (place, tail) = split_uint(rest)?;
            let seq = next.checked_add(place >> 5).filter(|&seq| seq < until)?;
            let (record, tail) = framing.split_first(tail)?;
            (rest, next) = (tail, seq + 1);
            #[allow(clippy::cast_possible_truncation)]
            Some((Sequence(seq), Level((place & 31) as u8), record))
        })
    }

    /// For a tree, returns the maximal perfect subtrees of the range that contain no event of the
    /// frame, from left to right, each with its root (spec/coordinator.md, section 4). For a star,
    /// there are none.
    pub fn subtrees(&self) -> impl Iterator<Item = (Range<u64>, Digest)> + use<'a> {
        let (digests, _) = self.digests.unwrap_or_default().as_chunks::<32>();
        self.places().zip(digests).map(|(range, digest)| (range, Digest(*digest)))
    }

    fn places(&self) -> impl Iterator<Item = Range<u64>> + use<'a> {
        geometry::perfect(self.from.0..self.until.0, self.events().map(|(seq, ..)| seq))
    }

    /// Returns whether the events are well-formed and within the range, and whether a tree has the
    /// right number of digests.
    fn is_whole(&self) -> bool {
        let (mut rest, mut next) = (self.events, self.from.0);
        while !rest.is_empty() {
            let Some((place, tail)) = split_uint(rest) else { return false };
            let Some((_, tail)) = self.framing.split_first(tail) else { return false };
            let Some(seq) = next.checked_add(place >> 5).filter(|&seq| seq < self.until.0) else {
                return false;
            };
            (rest, next) = (tail, seq + 1);
        }
        // Stop counting as soon as there are too few digests, because even a short frame may claim
        // a range of four billion events.
        let are_digests = |digests: &[u8]| {
            digests.len().is_multiple_of(32)
                && self.places().take(digests.len() / 32 + 1).count() == digests.len() / 32
        };
        usize::from(self.own_round.0) < MAX_LEVELS && self.digests.is_none_or(are_digests)
    }
}

/// Splits off an unsigned integer in its shortest encoding.
#[inline]
fn split_uint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (width, least) = match first {
        0..=23 => return Some((u64::from(first), rest)),
        24 => (1, 24),
        25 => (2, 1 << 8),
        26 => (4, 1 << 16),
        27 => (8, 1 << 32),
        _ => return None,
    };
    let (argument, rest) = rest.split_at_checked(width)?;
    let value = argument.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    (value >= least).then_some((value, rest))
}

impl Acknowledgement {
    /// Checks the tag of a coordinator's frame to a device and decodes it.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &[u8], device: DeviceId, key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Down)?)?;
        reader.array(7)?;
        let (kind, to) = (reader.u64()?, DeviceId(reader.fixed()?));
        let (index, next) = (SealIndex(reader.uint()?), Sequence(reader.u64()?));
        let sealed = reader.optional(|reader| {
            reader.array(4)?;
            let (index, epoch) = (SealIndex(reader.uint()?), EpochNumber(reader.u64()?));
            let last_in_epoch = flag(reader)?;
            Ok(StoredSeal { index, epoch, last_in_epoch, digest: Digest(reader.fixed()?) })
        })?;
        let wants_schema = flag(&mut reader)?;
        let challenge = reader.optional(Reader::u64)?;
        if kind != 16 || to != device || next.0 > u64::from(u32::MAX) {
            return Err(FrameError::Malformed);
        }
        Ok(Self { index, next, sealed, wants_schema, challenge })
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_ACKNOWLEDGEMENT`] bytes suffice.
    pub fn close<'o>(
        &self,
        device: DeviceId,
        key: &LinkKey,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(7)?.uint(16u8)?.bytes(&device.0)?.uint(self.index.0)?.uint(self.next.0)?;
        out.optional(self.sealed, |out, sealed| {
            out.array(4)?
                .uint(sealed.index.0)?
                .uint(sealed.epoch.0)?
                .uint(u8::from(sealed.last_in_epoch))?
                .bytes(&sealed.digest.0)
        })?;
        out.uint(u8::from(self.wants_schema))?;
        out.optional(self.challenge, |out, challenge| out.uint(challenge))?;
        closed(out, key, Direction::Down)
    }
}

/// Reads a flag that is encoded as 0 or 1.
fn flag(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u64()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::FieldOutOfRange),
    }
}
