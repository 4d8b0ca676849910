//! The one form in which seals and events travel and rest: a CBOR sequence of items (spec/formats.md, section 4).
//!
//! Items are read without copying and without trust. What they claim is checked by [`Follower`](crate::Follower).

use crate::level::Salt;
use crate::{Answers, Lost, Seal};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer, head, item_length};
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex, Sequence};

/// At most this many parts make a run (section 4).
pub const MAX_RUN_PARTS: usize = 256;
/// At most this many bytes of events make a run.
pub const MAX_RUN_BYTES: usize = 64 << 20;
/// An item has at most this many bytes: a run's events, and 4 MiB beside them.
pub const MAX_ITEM: usize = MAX_RUN_BYTES + (4 << 20);
/// The items from one proven run to the end of the next have at most this many bytes.
pub const MAX_RUN_ITEMS: usize = 2 * MAX_ITEM;
/// No part stands in a run behind parts that claim more events than this, together.
pub const MAX_RUN_EVENTS: u64 = 1 << 24;

const FLAG_TREE: u8 = 1;
const FLAG_LAST: u8 = 2;
const FLAG_RESTART: u8 = 4;

/// One item of a stream.
// Parts are what streams are made of, and there is no heap to put them on.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// The schema of the parts that follow, encoded.
    Schema(&'a [u8]),
    /// The device of the parts that follow, and where its chain stands.
    Open(Open),
    /// One seal, with any part of its events.
    Part(Part<'a>),
    /// The answer is whole.
    End,
    /// The server could not go on.
    Problem {
        /// The error's name.
        name: &'a str,
        /// What happened, and what to do.
        detail: &'a str,
    },
    /// The first item of a proof file: the query that the answer is for.
    Proof {
        /// The query, as sent.
        query: &'a str,
    },
    /// The explaining form of one seal.
    Explain {
        /// Its tagged `COSE_Sign1`.
        seal: &'a [u8],
        /// A star's `D_0 .. D_{L-1}`, joined.
        digests: &'a [u8],
    },
    /// The coordinator's manifest of an epoch: a tagged `COSE_Sign1`.
    Manifest(&'a [u8]),
}

/// Where a device's chain stands before the parts that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The device.
    pub device: DeviceId,
    /// The version of the roster that its seals name.
    pub roster_version: u32,
    /// The digest of the seal before; `None` where the receiver knows it.
    pub prev: Option<Digest>,
    /// Index and epoch of the seal before; `None` before the first.
    pub last: Option<(SealIndex, EpochNumber)>,
}

/// One seal, with any part of its events.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// Star or tree.
    pub scheme: Scheme,
    /// No further seal covers this epoch.
    pub last_in_epoch: bool,
    /// The device restarted since the seal before.
    pub restart: bool,
    /// Indices abandoned since the seal before.
    pub skipped: u32,
    /// Epochs since the seal before.
    pub advance: u64,
    /// The salt of the levels.
    pub salt: Salt,
    /// All events under the seal.
    pub n: u32,
    /// The highest round announced.
    pub round: Round,
    /// The device's own round.
    pub own_round: Round,
    /// Events that were abandoned.
    pub lost: Lost,
    /// Query epochs that the device answered.
    pub answered: Answers,
    /// Which events these are.
    pub select: Select<'a>,
    /// What the root needs of the events that are not here: 32-byte digests, joined.
    pub digests: &'a [u8],
    /// The records of the selected events.
    pub events: &'a [u8],
    /// The seal's signature; `None` if a later one proves it.
    pub signature: Option<&'a [u8]>,
}

/// Which events a part carries.
#[derive(Clone, Debug)]
pub enum Select<'a> {
    /// All of these levels: bit `i` for level `i`.
    Levels(u32),
    /// Single events of a tree.
    Events(Gaps<'a>),
}

/// Ascending sequence numbers as gaps: an encoded array, of which every element has been checked to be an unsigned integer.
#[derive(Clone, Copy, Debug)]
pub struct Gaps<'a> {
    encoded: &'a [u8],
    length: u32,
}

impl<'a> Gaps<'a> {
    /// Gaps that have been read before: `encoded` is what [`encoded`](Self::encoded) gave, for `length` events.
    pub(crate) const fn checked(encoded: &'a [u8], length: u32) -> Self {
        Self { encoded, length }
    }

    /// The elements as they are encoded.
    pub(crate) const fn encoded(&self) -> &'a [u8] {
        self.encoded
    }

    /// How many events are selected.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.length
    }

    /// Never: an empty selection is written as levels.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The sequence numbers, ascending, saturating at `u64::MAX` where a hostile sum overflows.
    pub fn iter(&self) -> impl Iterator<Item = Sequence> + Clone + use<'a> {
        let mut rest = self.encoded;
        let mut next = 0u64;
        (0..self.length).map(move |_| {
            let (&first, tail) = rest.split_first().unwrap_or((&0, &[]));
            let width = match first & 31 {
                24 => 1,
                25 => 2,
                26 => 4,
                27 => 8,
                _ => 0,
            };
            let (argument, tail) = tail.split_at(width.min(tail.len()));
            rest = tail;
            let gap = if width == 0 {
                u64::from(first)
            } else {
                argument.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
            };
            let seq = next.saturating_add(gap);
            next = seq.saturating_add(1);
            Sequence(seq)
        })
    }
}

impl<'a> Item<'a> {
    /// Reads the item that `bytes` starts with, and says how long it is.
    ///
    /// # Errors
    /// `Truncated` if more bytes are needed; the others of [`DecodeError`] if the bytes are no item.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        let length = item_length(bytes)?;
        Ok((Self::decode_whole(&bytes[..length])?, length))
    }

    /// Reads the item that `bytes` is.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode_whole(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes)?;
        let fields = reader.array_any()?;
        // An item is whole once it is here: an array without a kind is no item, and more bytes would not make it one.
        if fields == 0 {
            return Err(DecodeError::UnexpectedType);
        }
        let kind = reader.u64()?;
        let expected = match kind {
            0 | 7 => 2,
            1 => 7,
            2 => 14,
            3 => 1,
            4..=6 => 3,
            _ => return Err(DecodeError::UnknownItem),
        };
        if fields != expected {
            return Err(DecodeError::UnexpectedType);
        }
        let item = match kind {
            0 => Self::Schema(reader.bytes()?),
            1 => Self::Open(Open::decode(&mut reader)?),
            2 => Self::Part(Part::decode(&mut reader)?),
            3 => Self::End,
            4 => Self::Problem { name: reader.text()?, detail: reader.text()? },
            5 => {
                reader.version()?;
                Self::Proof { query: reader.text()? }
            }
            6 => Self::Explain { seal: reader.bytes()?, digests: reader.bytes()? },
            _ => Self::Manifest(reader.bytes()?),
        };
        Ok(item)
    }
}

impl Open {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.version()?;
        let device = DeviceId(reader.fixed()?);
        let roster_version = reader.uint()?;
        let prev = reader.optional(Reader::fixed)?.map(Digest);
        let last = match (reader.optional(Reader::uint)?, reader.optional(Reader::u64)?) {
            (Some(index), Some(epoch)) => Some((SealIndex(index), EpochNumber(epoch))),
            (None, None) => None,
            _ => return Err(DecodeError::FieldOutOfRange),
        };
        Ok(Self { device, roster_version, prev, last })
    }

    /// Writes the item.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(7)?.uint(1u8)?.uint(1u8)?.bytes(&self.device.0)?.uint(self.roster_version)?;
        out.optional(self.prev, |out, prev| out.bytes(&prev.0))?;
        out.optional(self.last, |out, (index, _)| out.uint(index.0))?;
        out.optional(self.last, |out, (_, epoch)| out.uint(epoch.0))?;
        Ok(())
    }
}

impl<'a> Part<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let flags: u8 = reader.uint()?;
        if flags & !(FLAG_TREE | FLAG_LAST | FLAG_RESTART) != 0 {
            return Err(DecodeError::FieldOutOfRange);
        }
        let skipped = reader.uint()?;
        let advance = reader.u64()?;
        let salt = Salt(reader.fixed()?);
        let n = reader.uint()?;
        let round = Round(reader.uint()?);
        let own_round = Round(reader.uint()?);
        let lost = crate::statement::decode_counts(reader)?;
        let answered = Answers::decode(reader)?;
        let select = Select::decode(reader)?;
        let digests = reader.bytes()?;
        let events = reader.bytes()?;
        let signature = reader.optional(Reader::bytes)?;
        Ok(Self {
            scheme: if flags & FLAG_TREE == 0 { Scheme::Star } else { Scheme::Tree },
            last_in_epoch: flags & FLAG_LAST != 0,
            restart: flags & FLAG_RESTART != 0,
            skipped,
            advance,
            salt,
            n,
            round,
            own_round,
            lost,
            answered,
            select,
            digests,
            events,
            signature,
        })
    }
}

impl Part<'_> {
    /// Writes the part up to the head of its events, as [`encode_part_head`] does, but with the levels `mask` selected: who has
    /// other events of the seal than came with it puts them in.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode_head(
        &self,
        out: &mut Writer<'_>,
        mask: u32,
        digests: &[u8],
        events_length: usize,
    ) -> Result<(), BufferTooSmall> {
        let fields = Fields {
            flags: flags(self.scheme, self.last_in_epoch, self.restart),
            skipped: self.skipped,
            advance: self.advance,
            salt: self.salt,
            n: u64::from(self.n),
            rounds: (self.round, self.own_round),
            lost: self.lost.as_ref(),
            answered: &self.answered,
        };
        fields.encode(out, Selection::Levels(mask), digests, events_length)
    }
}

impl<'a> Select<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if !reader.at_array() {
            return Ok(Self::Levels(reader.uint()?));
        }
        let length =
            u32::try_from(reader.array_any()?).map_err(|_| DecodeError::FieldOutOfRange)?;
        if length == 0 {
            return Err(DecodeError::FieldOutOfRange);
        }
        let encoded = reader.rest();
        for _ in 0..length {
            reader.u64()?;
        }
        Ok(Self::Events(Gaps { encoded: &encoded[..encoded.len() - reader.rest().len()], length }))
    }
}

/// Which events a part carries, for writing it.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    /// All of these levels.
    Levels(u32),
    /// These events of a tree, ascending, not empty.
    Events(&'a [Sequence]),
}

/// Bytes that a part takes at most beside its selection, digests and events.
pub const PART_OVERHEAD: usize = 512 + moteseal_core::signature::MAX_SIGNATURE;

/// Writes a part of `seal`, up to the head of its events: the caller writes `events_length` bytes of records next, then
/// [`encode_part_tail`]. So a mote never holds the events.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_part_head<S>(
    out: &mut Writer<'_>,
    seal: &Seal<S>,
    selection: Selection<'_>,
    digests: &[u8],
    events_length: usize,
) -> Result<(), BufferTooSmall> {
    let statement = seal.statement();
    let (skipped, advance) = match statement.last {
        Some((index, epoch)) => (statement.index.0 - index.0 - 1, statement.epoch.0 - epoch.0),
        None => (statement.index.0, statement.epoch.0),
    };
    let fields = Fields {
        flags: flags(statement.scheme, statement.last_in_epoch, statement.restart),
        skipped,
        advance,
        salt: statement.salt,
        n: statement.counters.total(),
        rounds: (statement.round, statement.own_round),
        lost: statement.lost.as_ref(),
        answered: &statement.answered,
    };
    fields.encode(out, selection, digests, events_length)
}

const fn flags(scheme: Scheme, last_in_epoch: bool, restart: bool) -> u8 {
    (if matches!(scheme, Scheme::Tree) { FLAG_TREE } else { 0 })
        | (if last_in_epoch { FLAG_LAST } else { 0 })
        | (if restart { FLAG_RESTART } else { 0 })
}

/// What a part says beside its events.
struct Fields<'a> {
    flags: u8,
    skipped: u32,
    advance: u64,
    salt: Salt,
    n: u64,
    rounds: (Round, Round),
    lost: Option<&'a crate::level::Counters>,
    answered: &'a Answers,
}

impl Fields<'_> {
    fn encode(
        &self,
        out: &mut Writer<'_>,
        selection: Selection<'_>,
        digests: &[u8],
        events_length: usize,
    ) -> Result<(), BufferTooSmall> {
        out.array(14)?
            .uint(2u8)?
            .uint(self.flags)?
            .uint(self.skipped)?
            .uint(self.advance)?
            .bytes(&self.salt.0)?;
        out.uint(self.n)?.uint(self.rounds.0.0)?.uint(self.rounds.1.0)?;
        crate::statement::encode_counts(out, self.lost)?;
        self.answered.encode(out)?;
        match selection {
            Selection::Levels(mask) => {
                out.uint(mask)?;
            }
            Selection::Events(sequence) => {
                out.array(sequence.len() as u64)?;
                let mut next = 0;
                for &Sequence(seq) in sequence {
                    out.uint(seq - next)?;
                    next = seq + 1;
                }
            }
        }
        let (head, length) = head(2, events_length as u64);
        out.bytes(digests)?.raw(&head[..length])?;
        Ok(())
    }
}

/// Ends a part: its signature, or none.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_part_tail(
    out: &mut Writer<'_>,
    signature: Option<&[u8]>,
) -> Result<(), BufferTooSmall> {
    out.optional(signature, |out, signature| out.bytes(signature))?;
    Ok(())
}

/// Writes a schema item.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_schema(out: &mut Writer<'_>, schema: &[u8]) -> Result<(), BufferTooSmall> {
    out.array(2)?.uint(0u8)?.bytes(schema)?;
    Ok(())
}

/// Writes the end item.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_end(out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
    out.array(1)?.uint(3u8)?;
    Ok(())
}

/// Writes a problem item.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_problem(
    out: &mut Writer<'_>,
    name: &str,
    detail: &str,
) -> Result<(), BufferTooSmall> {
    out.array(3)?.uint(4u8)?.text(name)?.text(detail)?;
    Ok(())
}

/// Writes the first item of a proof file.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_proof(out: &mut Writer<'_>, query: &str) -> Result<(), BufferTooSmall> {
    out.array(3)?.uint(5u8)?.uint(1u8)?.text(query)?;
    Ok(())
}

/// Writes an explain item.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_explain(
    out: &mut Writer<'_>,
    seal: &[u8],
    digests: &[u8],
) -> Result<(), BufferTooSmall> {
    out.array(3)?.uint(6u8)?.bytes(seal)?.bytes(digests)?;
    Ok(())
}

/// Writes a manifest item.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_manifest(out: &mut Writer<'_>, manifest: &[u8]) -> Result<(), BufferTooSmall> {
    out.array(2)?.uint(7u8)?.bytes(manifest)?;
    Ok(())
}
