//! The stream format in which seals and events are sent and stored: a CBOR sequence of items
//! (spec/answers.md, section 1).
//!
//! Items are decoded without copying. Their content is not trusted; [`Follower`](crate::Follower)
//! checks it.

use crate::answers::Answers;
use crate::level::Salt;
use crate::seal::Seal;
use crate::statement::{Lost, Optional};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer, head, item_length};
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex, Sequence};
use moteseal_core::schema::Groups;

/// Maximum number of parts in a run (spec/answers.md, section 1).
pub const MAX_RUN_PARTS: usize = 256;
/// Maximum number of bytes of events in a run.
pub const MAX_RUN_BYTES: usize = 64 << 20;
/// Maximum length of an item in bytes: a run's events, and 4 MiB for everything else.
pub const MAX_ITEM: usize = MAX_RUN_BYTES + (4 << 20);
/// Maximum number of bytes of items from the end of one verified run to the end of the next.
pub const MAX_RUN_ITEMS: usize = 2 * MAX_ITEM;
/// Limit on the events of a run: once the parts of a run together claim more events than this, no
/// further part may follow.
pub const MAX_RUN_EVENTS: u64 = 1 << 24;

/// The number of fields of a part without encrypted columns and groups. A part with encrypted
/// columns has one more, and a part with groups has three more.
const PART_FIELDS: u64 = 14;

const FLAG_TREE: u8 = 1;
const FLAG_LAST: u8 = 2;
const FLAG_RESTART: u8 = 4;

/// One item of a stream.
// Most items are parts, and without a heap they cannot be boxed.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// The encoded schema of the parts that follow.
    Schema(&'a [u8]),
    /// The device of the parts that follow, and the position in its chain.
    Open(Open),
    /// A part: one seal, with all, some or none of its events.
    Part(Part<'a>),
    /// The response is complete.
    End,
    /// The server could not complete the response.
    Problem {
        /// The error's name.
        name: &'a str,
        /// What happened, and what to do.
        detail: &'a str,
    },
    /// The first item of a proof file: the query that the proof answers.
    Proof {
        /// The query, as it was sent.
        query: &'a str,
    },
    /// The explaining form of one seal: the seal with all its digests.
    Explain {
        /// The seal, a tagged `COSE_Sign1`.
        seal: &'a [u8],
        /// The digests `D_0 .. D_{L-1}` of a star, concatenated.
        digests: &'a [u8],
    },
    /// The coordinator's manifest of an epoch: a tagged `COSE_Sign1`.
    Manifest(&'a [u8]),
    /// The cells by which a sanitiser replaced those of a hidden column group of the next part
    /// (spec/sanitised.md).
    Sanitised {
        /// The sanitiser's statement, a tagged `COSE_Sign1`.
        statement: &'a [u8],
        /// The records of the new cells, in ascending order of their sequence numbers.
        cells: &'a [u8],
    },
}

/// An open item: the device of the parts that follow, and the position in its chain before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The device.
    pub device: DeviceId,
    /// The version of the roster that the device's seals name.
    pub roster_version: u32,
    /// The digest of the previous seal; `None` if the receiver knows it.
    pub prev: Option<Digest>,
    /// The index and the epoch of the previous seal; `None` before the first.
    pub last: Option<(SealIndex, EpochNumber)>,
}

/// A part: one seal, with all, some or none of its events.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// Star or tree.
    pub scheme: Scheme,
    /// Whether no further seal covers this epoch.
    pub last_in_epoch: bool,
    /// Whether the device restarted since the previous seal.
    pub restart: bool,
    /// The number of indices abandoned since the previous seal.
    pub skipped: u32,
    /// The number of epochs from the previous seal's epoch to this one.
    pub advance: u64,
    /// The salt that determines the levels of the events.
    pub salt: Salt,
    /// The number of all events under the seal.
    pub n: u32,
    /// The highest round that was announced to the device.
    pub round: Round,
    /// The device's own round.
    pub own_round: Round,
    /// The number of lost events of each level.
    pub lost: Lost,
    /// The query epochs that the device answered.
    pub answered: Answers,
    /// The nonce and the commitments to the keys of the encrypted columns; `None` if the schema has no
    /// encrypted columns.
    pub keys: Option<KeyCommitments>,
    /// The column groups whose cells are in the events. The records are then those of the schema
    /// that has only the columns of these groups. Empty if the schema has no groups.
    pub groups: Groups,
    /// The secrets that blind the digests of the shown groups, 32 bytes each. Empty in this
    /// version: a group other than 0 has encrypted columns only, and ciphertext needs no blinding.
    pub blinds: &'a [u8],
    /// The selection of the events that are in the part.
    pub select: Select<'a>,
    /// The digests that replace the events that are not in the part: 32 bytes each, concatenated.
    pub digests: &'a [u8],
    /// The records of the selected events.
    pub events: &'a [u8],
    /// The seal's signature; `None` if a later signature proves the seal.
    pub signature: Option<&'a [u8]>,
}

/// A selection of the events of a seal.
#[derive(Clone, Debug)]
pub enum Select<'a> {
    /// All events of these levels: bit `i` selects level `i`.
    Levels(u32),
    /// Single events of a tree.
    Events(Gaps<'a>),
}

/// Ascending sequence numbers, encoded as gaps: a CBOR array whose elements have been checked to be
/// unsigned integers.
#[derive(Clone, Copy, Debug)]
pub struct Gaps<'a> {
    encoded: &'a [u8],
    length: u32,
}

impl<'a> Gaps<'a> {
    /// Creates gaps from an encoding that has been read before: `encoded` is the result of
    /// [`encoded`](Self::encoded) for `length` events.
    pub(crate) const fn checked(encoded: &'a [u8], length: u32) -> Self {
        Self { encoded, length }
    }

    /// Returns the encoded elements.
    pub(crate) const fn encoded(&self) -> &'a [u8] {
        self.encoded
    }

    /// Returns the number of selected events.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.length
    }

    /// Returns whether no event is selected. This is always false: an empty selection is encoded as
    /// levels.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the sequence numbers, ascending. They saturate at `u64::MAX` if the sum of the gaps
    /// overflows.
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
    /// Decodes the item at the start of `bytes` and returns it with its length in bytes.
    ///
    /// # Errors
    /// `Truncated` if more bytes are needed; otherwise the [`DecodeError`] of a malformed item.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        let length = item_length(bytes)?;
        Ok((Self::decode_whole(&bytes[..length])?, length))
    }

    /// Decodes an item from exactly these bytes.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode_whole(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes)?;
        let fields = reader.array_any()?;
        // The item is complete. An array without a kind is therefore malformed rather than
        // truncated.
        if fields == 0 {
            return Err(DecodeError::UnexpectedType);
        }
        let kind = reader.u64()?;
        let expected = match kind {
            0 | 7 => 2,
            1 => 7,
            2 if fields == PART_FIELDS + 1 || fields == PART_FIELDS + 3 => fields,
            2 => PART_FIELDS,
            3 => 1,
            4..=6 | 9 => 3,
            _ => return Err(DecodeError::UnknownItem),
        };
        if fields != expected {
            return Err(DecodeError::UnexpectedType);
        }
        let item = match kind {
            0 => Self::Schema(reader.bytes()?),
            1 => Self::Open(Open::decode(&mut reader)?),
            2 => Self::Part(Part::decode(&mut reader, fields - PART_FIELDS)?),
            3 => Self::End,
            4 => Self::Problem { name: reader.text()?, detail: reader.text()? },
            5 => {
                reader.version()?;
                Self::Proof { query: reader.text()? }
            }
            6 => Self::Explain { seal: reader.bytes()?, digests: reader.bytes()? },
            7 => Self::Manifest(reader.bytes()?),
            _ => Self::Sanitised { statement: reader.bytes()?, cells: reader.bytes()? },
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
    fn decode(reader: &mut Reader<'a>, more_fields: u64) -> Result<Self, DecodeError> {
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
        let optional = match more_fields {
            0 => Optional::Nothing,
            1 => Optional::Keys,
            _ => Optional::Groups,
        };
        let (keys, groups) = optional.decode(reader)?;
        let blinds = if groups.is_empty() { &[] } else { reader.bytes()? };
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
            keys,
            groups,
            blinds,
            select,
            digests,
            events,
            signature,
        })
    }
}

impl Part<'_> {
    /// Writes the part up to and including the head of its events, like [`encode_part_head`], but
    /// with the levels `mask` as its selection. The caller supplies the events and digests of this
    /// selection.
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
            keys: self.keys.as_ref(),
            groups: self.groups,
            blinds: self.blinds,
        };
        fields.encode(out, Selected::Written(Selection::Levels(mask)), digests, events_length)
    }

    /// Writes the part up to and including the head of its events, with the same selection, but with
    /// the groups `shown`. The caller supplies the events and digests that show these groups.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode_head_showing(
        &self,
        out: &mut Writer<'_>,
        shown: Groups,
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
            keys: self.keys.as_ref(),
            groups: shown,
            blinds: self.blinds,
        };
        fields.encode(out, Selected::Read(&self.select), digests, events_length)
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

/// Which events to write to a part.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    /// All events of these levels.
    Levels(u32),
    /// These events of a tree, ascending and not empty.
    Events(&'a [Sequence]),
}

/// Maximum number of bytes of a part in addition to its selection, digests and events.
pub const PART_OVERHEAD: usize = 784 + moteseal_core::signature::MAX_SIGNATURE;

/// Writes a part of `seal` up to and including the head of its events. The caller then writes the
/// records, `events_length` bytes, and calls [`encode_part_tail`]. A mote therefore never needs all
/// events in memory at the same time.
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
    let groups = seal.statement().groups;
    encode_part_head_showing(out, seal, groups, selection, digests, events_length)
}

/// Does the same as [`encode_part_head`] for a part that shows the groups `shown` only. `shown` is a
/// subset of the statement's groups and has group 0, or is empty if the statement has no groups. The
/// caller supplies the events and digests that show these groups.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_part_head_showing<S>(
    out: &mut Writer<'_>,
    seal: &Seal<S>,
    shown: Groups,
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
        keys: statement.keys.as_ref(),
        groups: shown,
        blinds: &[],
    };
    fields.encode(out, Selected::Written(selection), digests, events_length)
}

const fn flags(scheme: Scheme, last_in_epoch: bool, restart: bool) -> u8 {
    (if matches!(scheme, Scheme::Tree) { FLAG_TREE } else { 0 })
        | (if last_in_epoch { FLAG_LAST } else { 0 })
        | (if restart { FLAG_RESTART } else { 0 })
}

/// The fields of a part before its events.
struct Fields<'a> {
    flags: u8,
    skipped: u32,
    advance: u64,
    salt: Salt,
    n: u64,
    rounds: (Round, Round),
    lost: Option<&'a crate::level::Counters>,
    answered: &'a Answers,
    keys: Option<&'a KeyCommitments>,
    groups: Groups,
    blinds: &'a [u8],
}

/// A selection to write: a new one, or that of a part that has been read.
#[derive(Clone, Copy)]
enum Selected<'a> {
    Written(Selection<'a>),
    Read(&'a Select<'a>),
}

impl Fields<'_> {
    fn encode(
        &self,
        out: &mut Writer<'_>,
        selection: Selected<'_>,
        digests: &[u8],
        events_length: usize,
    ) -> Result<(), BufferTooSmall> {
        let more_fields = if self.groups.is_empty() { u64::from(self.keys.is_some()) } else { 3 };
        out.array(PART_FIELDS + more_fields)?
            .uint(2u8)?
            .uint(self.flags)?
            .uint(self.skipped)?
            .uint(self.advance)?
            .bytes(&self.salt.0)?;
        out.uint(self.n)?.uint(self.rounds.0.0)?.uint(self.rounds.1.0)?;
        crate::statement::encode_counts(out, self.lost)?;
        self.answered.encode(out)?;
        crate::statement::encode_keys(out, self.keys, self.groups)?;
        if !self.groups.is_empty() {
            out.uint(self.groups.bits())?.bytes(self.blinds)?;
        }
        match selection {
            Selected::Written(Selection::Levels(mask)) | Selected::Read(&Select::Levels(mask)) => {
                out.uint(mask)?;
            }
            Selected::Read(Select::Events(gaps)) => {
                out.array(u64::from(gaps.length))?.raw(gaps.encoded)?;
            }
            Selected::Written(Selection::Events(sequence)) => {
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

/// Ends a part with its signature, or null.
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

/// Writes the head of a sanitised item, which the cells follow.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_sanitised_head(
    out: &mut Writer<'_>,
    statement: &[u8],
    cells_length: usize,
) -> Result<(), BufferTooSmall> {
    let (head, length) = head(2, cells_length as u64);
    out.array(3)?.uint(9u8)?.bytes(statement)?.raw(&head[..length])?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::answers::{Answered, MAX_ANSWERED};
    use crate::seal::MAX_MESSAGE;
    use crate::statement::{self, Statement};
    use moteseal_core::confidential::MAX_KEY_COMMITMENTS;
    use moteseal_core::record::{GroupId, MAX_LEVELS};
    use moteseal_core::signature::{Algorithm, MAX_SIGNATURE};

    #[test]
    fn the_longest_statement_fits_the_message_and_part_buffers() {
        let levels = u8::try_from(MAX_LEVELS).unwrap();
        let mut statement = Statement::new(
            Scheme::Star,
            GroupId([7; 8]),
            Digest([7; 32]),
            DeviceId([7; 8]),
            levels,
        );
        statement.index = SealIndex(u32::MAX);
        statement.last = Some((SealIndex(u32::MAX - 1), EpochNumber(u64::MAX)));
        statement.epoch = EpochNumber(u64::MAX);
        (statement.round, statement.own_round) = (Round(31), Round(31));
        statement.counters.as_mut_slice().fill(u32::MAX);
        statement.lost = Some(statement.counters);
        for query in 0..u8::try_from(MAX_ANSWERED).unwrap() {
            let first = u64::MAX - u64::from(u32::MAX);
            assert!(statement.answered.push(Answered {
                query: [query; 16],
                first,
                count: u32::MAX
            }));
        }
        let longest = [1; MAX_KEY_COMMITMENTS];
        statement.keys = KeyCommitments::decode(&longest);
        assert!(statement.keys.is_some());
        statement.groups = Groups::from_bits(u8::MAX);
        let mut buffer = [0; statement::MAX_LENGTH];
        assert!(statement.encode(&mut Writer::new(&mut buffer)).is_ok());
        let seal = Seal::new(statement, Digest([7; 32]), Algorithm::Esp256);
        assert!(seal.message(&mut [0; MAX_MESSAGE]).len() > 700);

        let mut part = [0; PART_OVERHEAD + 32];
        let mut out = Writer::new(&mut part);
        assert!(encode_part_head(&mut out, &seal, Selection::Levels(0), &[7; 32], 0).is_ok());
        assert!(encode_part_tail(&mut out, Some(&[0; MAX_SIGNATURE])).is_ok());
    }
}
