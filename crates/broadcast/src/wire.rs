//! What is said on a medium that everybody hears: frames of authenticated broadcast (spec/broadcast.md, section 5).
//!
//! Anybody can write any frame. Certificates, revocations, heads and leaves prove themselves; the others are hints, which cost whoever
//! follows them no more than it has set aside for that.

use crate::{ChainRef, MAX_HEAD, MAX_LEAF, MAX_PER_BLOCK};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};

/// Room for any frame.
pub const MAX_BROADCAST_FRAME: usize = MAX_HEAD + MAX_LEAF + 32;

const CERTIFICATE: u64 = 32;
const REVOCATION: u64 = 33;
const HEAD: u64 = 34;
const FRAGMENT: u64 = 35;
const WANTED: u64 = 36;
const HOLDS: u64 = 37;
const SINGLE: u64 = 38;
const REPAIR: u64 = 39;

/// A frame. Nothing in it has been checked but its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BroadcastFrame<'a> {
    /// A sender's certificate.
    Certificate(&'a [u8]),
    /// A base station's revocation.
    Revocation(&'a [u8]),
    /// The head of a chain.
    Head(&'a [u8]),
    /// A leaf.
    Fragment {
        /// Of this chain.
        chain: ChainRef,
        /// Its block, from 1.
        block: u32,
        /// Its place in the block, from 0.
        index: u8,
        /// Trailer, if any, and message.
        leaf: &'a [u8],
    },
    /// A negative acknowledgement: what somebody has not got.
    Wanted {
        /// Of this chain.
        chain: ChainRef,
        /// Of this block; 0 asks for what comes before the blocks.
        block: u32,
        /// Bit `j` is leaf `j`; of block 0, bit 0 is the head and bit 1 the certificate.
        wanted: u64,
    },
    /// An advertisement: somebody holds everything of a chain up to and with a leaf.
    Holds {
        /// The chain.
        chain: ChainRef,
        /// The block; 0 is the head alone.
        block: u32,
        /// The leaf.
        index: u8,
    },
    /// A chain of one message, whole.
    Single {
        /// The head.
        head: &'a [u8],
        /// The only leaf.
        leaf: &'a [u8],
    },
    /// Several leaves of a block, added up: who lacks one of them and has the others gets it from this.
    Repair {
        /// Of this chain.
        chain: ChainRef,
        /// Of this block.
        block: u32,
        /// Which leaves: bit `j` is leaf `j`.
        mask: u64,
        /// The exclusive or of the leaves' lengths.
        lengths: u16,
        /// The exclusive or of the leaves, each padded with zeros to the longest.
        bytes: &'a [u8],
    },
}

impl<'a> BroadcastFrame<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// `UnknownItem` of another kind of frame, `FieldOutOfRange` of an index that no block has or a repair of nothing, else as
    /// [`Reader::new`].
    pub fn decode(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame)?;
        let fields = reader.array_any()?;
        let kind = reader.u64()?;
        let expected = match kind {
            CERTIFICATE | REVOCATION | HEAD => 2,
            SINGLE => 3,
            WANTED | HOLDS => 4,
            FRAGMENT => 5,
            REPAIR => 6,
            _ => return Err(DecodeError::UnknownItem),
        };
        if fields != expected {
            return Err(DecodeError::UnexpectedType);
        }
        Ok(match kind {
            CERTIFICATE => Self::Certificate(reader.bytes()?),
            REVOCATION => Self::Revocation(reader.bytes()?),
            HEAD => Self::Head(reader.bytes()?),
            SINGLE => Self::Single { head: reader.bytes()?, leaf: reader.bytes()? },
            WANTED => {
                let (chain, block) = place(&mut reader)?;
                Self::Wanted { chain, block, wanted: reader.u64()? }
            }
            HOLDS => {
                let (chain, block) = place(&mut reader)?;
                Self::Holds { chain, block, index: index(&mut reader)? }
            }
            REPAIR => {
                let (chain, block) = place(&mut reader)?;
                let (mask, lengths, bytes) = (reader.u64()?, reader.uint()?, reader.bytes()?);
                if mask == 0 {
                    return Err(DecodeError::FieldOutOfRange);
                }
                Self::Repair { chain, block, mask, lengths, bytes }
            }
            _ => {
                let (chain, block) = place(&mut reader)?;
                Self::Fragment { chain, block, index: index(&mut reader)?, leaf: reader.bytes()? }
            }
        })
    }

    /// Writes what precedes the byte string of a certificate frame, so that the certificate need
    /// not be copied into a frame first.
    pub(crate) fn begin_certificate(out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(2)?.uint(CERTIFICATE)?;
        Ok(())
    }

    /// Writes what precedes the byte string of a revocation frame.
    pub(crate) fn begin_revocation(out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(2)?.uint(REVOCATION)?;
        Ok(())
    }

    /// Writes what precedes the byte string of a head frame.
    pub(crate) fn begin_head(out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(2)?.uint(HEAD)?;
        Ok(())
    }

    /// Writes what precedes the leaf of a fragment frame.
    pub(crate) fn begin_fragment(
        chain: ChainRef,
        block: u32,
        index: u8,
        out: &mut Writer<'_>,
    ) -> Result<(), BufferTooSmall> {
        out.array(5)?.uint(FRAGMENT)?.bytes(&chain.0)?.uint(block)?.uint(index)?;
        Ok(())
    }

    /// Writes what precedes the head and the leaf of a single frame.
    pub(crate) fn begin_single(out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(3)?.uint(SINGLE)?;
        Ok(())
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_BROADCAST_FRAME`] bytes suffice.
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        match *self {
            Self::Certificate(bytes) => out.array(2)?.uint(CERTIFICATE)?.bytes(bytes)?,
            Self::Revocation(bytes) => out.array(2)?.uint(REVOCATION)?.bytes(bytes)?,
            Self::Head(bytes) => out.array(2)?.uint(HEAD)?.bytes(bytes)?,
            Self::Fragment { chain, block, index, leaf } => out
                .array(5)?
                .uint(FRAGMENT)?
                .bytes(&chain.0)?
                .uint(block)?
                .uint(index)?
                .bytes(leaf)?,
            Self::Wanted { chain, block, wanted } => {
                out.array(4)?.uint(WANTED)?.bytes(&chain.0)?.uint(block)?.uint(wanted)?
            }
            Self::Holds { chain, block, index } => {
                out.array(4)?.uint(HOLDS)?.bytes(&chain.0)?.uint(block)?.uint(index)?
            }
            Self::Single { head, leaf } => out.array(3)?.uint(SINGLE)?.bytes(head)?.bytes(leaf)?,
            Self::Repair { chain, block, mask, lengths, bytes } => out
                .array(6)?
                .uint(REPAIR)?
                .bytes(&chain.0)?
                .uint(block)?
                .uint(mask)?
                .uint(lengths)?
                .bytes(bytes)?,
        };
        Ok(())
    }
}

fn place(reader: &mut Reader<'_>) -> Result<(ChainRef, u32), DecodeError> {
    Ok((ChainRef(reader.fixed()?), reader.uint()?))
}

fn index(reader: &mut Reader<'_>) -> Result<u8, DecodeError> {
    let index = reader.uint()?;
    if index < MAX_PER_BLOCK { Ok(index) } else { Err(DecodeError::FieldOutOfRange) }
}
