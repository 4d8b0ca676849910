//! The frames of authenticated broadcast on a shared medium (spec/broadcast.md, section 5).
//!
//! Anyone can send any frame. A receiver verifies certificates, revocations, heads and leaves by
//! signature, tag or digest. Requests and advertisements cannot be verified, and a node treats them
//! as hints. The limits of the node bound the work that forged hints can cause.

use crate::receipt::ReceiverTag;
use crate::{ChainRef, KeyId, MAX_HEAD, MAX_LEAF, MAX_PER_BLOCK, MAX_RECEIVERS};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};

/// The maximum length of a frame in bytes.
pub const MAX_BROADCAST_FRAME: usize = MAX_HEAD + MAX_LEAF + 32;

const CERTIFICATE: u64 = 32;
const REVOCATION: u64 = 33;
const HEAD: u64 = 34;
const FRAGMENT: u64 = 35;
const WANTED: u64 = 36;
const HOLDS: u64 = 37;
const SINGLE: u64 = 38;
const REPAIR: u64 = 39;
const RECEIPTS: u64 = 42;
const RECEIPTS_WANTED: u64 = 43;
const HEAD_WANTED: u64 = 44;
const HEAD_FOR: u64 = 45;
const RECEIVER_WANTED: u64 = 46;

/// A frame. Decoding checks only the format, not whether the content is authentic.
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
        /// The chain.
        chain: ChainRef,
        /// The block, counted from 1.
        block: u32,
        /// The leaf's index in the block, counted from 0.
        index: u8,
        /// The bytes of the leaf: the trailer, if the leaf has one, and the message.
        leaf: &'a [u8],
    },
    /// A negative acknowledgement: the leaves that a node is missing.
    Wanted {
        /// The chain.
        chain: ChainRef,
        /// The block; 0 asks for the chain's certificate and head.
        block: u32,
        /// Bit `j` asks for leaf `j`. For block 0, bit 0 asks for the head and bit 1 for the
        /// certificate.
        wanted: u64,
    },
    /// An advertisement: the node has every leaf of the chain up to and including this one.
    Holds {
        /// The chain.
        chain: ChainRef,
        /// The block of that leaf, counted from 1; 0 if the node has only the head.
        block: u32,
        /// The leaf's index in the block, counted from 0.
        index: u8,
    },
    /// A complete chain of one message.
    Single {
        /// The head.
        head: &'a [u8],
        /// The only leaf.
        leaf: &'a [u8],
    },
    /// The exclusive or of several leaves of a block. A node that lacks one of these leaves and has
    /// the others can compute the missing leaf.
    Repair {
        /// The chain.
        chain: ChainRef,
        /// The block.
        block: u32,
        /// The leaves: bit `j` is leaf `j`.
        mask: u64,
        /// The exclusive or of the leaves' lengths.
        lengths: u16,
        /// The exclusive or of the leaves, each padded with zeros to the longest.
        bytes: &'a [u8],
    },
    /// The combined receipts of some receivers.
    Receipts {
        /// The chain.
        chain: ChainRef,
        /// The receivers, as an encoded set of positions in the sender's list.
        receivers: &'a [u8],
        /// The exclusive or of their tags.
        tag: ReceiverTag,
    },
    /// A request for the receipts of some receivers.
    ReceiptsWanted {
        /// The chain.
        chain: ChainRef,
        /// The maximum number of receipts in one frame.
        most: u32,
        /// The receivers, as an encoded set of positions in the sender's list.
        receivers: &'a [u8],
    },
    /// A receiver's authenticated request for the newest head of a sender's key.
    HeadWanted {
        /// The sender's key.
        key: KeyId,
        /// The highest number that the receiver has accepted under the key; 0 if there is none.
        above: u64,
        /// The receiver's position in the sender's list.
        receiver: u32,
        /// The receiver's tag.
        tag: ReceiverTag,
    },
    /// A head that the sender sends to one receiver.
    HeadFor {
        /// The receiver's position in the sender's list.
        receiver: u32,
        /// The tag under the receiver's key.
        tag: ReceiverTag,
        /// The head.
        head: &'a [u8],
    },
    /// A `Wanted` frame that a receiver has authenticated.
    ReceiverWanted {
        /// The chain.
        chain: ChainRef,
        /// The block; 0 asks for the chain's certificate and head.
        block: u32,
        /// The leaves, as in `Wanted`.
        wanted: u64,
        /// The number of the request.
        attempt: u32,
        /// The receiver's position in the sender's list.
        receiver: u32,
        /// The receiver's tag.
        tag: ReceiverTag,
    },
}

impl<'a> BroadcastFrame<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// `UnknownItem` for an unknown kind of frame. `FieldOutOfRange` for a leaf index that no block
    /// can have, for a repair frame without leaves, for the position of a receiver that no list can
    /// have, or if no receipt is wanted. Otherwise the errors of [`Reader::new`].
    pub fn decode(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame)?;
        let fields = reader.array_any()?;
        let kind = reader.u64()?;
        let expected = match kind {
            CERTIFICATE | REVOCATION | HEAD => 2,
            SINGLE => 3,
            WANTED | HOLDS | RECEIPTS | RECEIPTS_WANTED | HEAD_FOR => 4,
            FRAGMENT | HEAD_WANTED => 5,
            REPAIR => 6,
            RECEIVER_WANTED => 7,
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
            RECEIPTS => Self::Receipts {
                chain: ChainRef(reader.fixed()?),
                receivers: reader.bytes()?,
                tag: reader.fixed()?,
            },
            RECEIPTS_WANTED => {
                let (chain, most) = (ChainRef(reader.fixed()?), reader.uint()?);
                if most == 0 {
                    return Err(DecodeError::FieldOutOfRange);
                }
                Self::ReceiptsWanted { chain, most, receivers: reader.bytes()? }
            }
            HEAD_WANTED => Self::HeadWanted {
                key: KeyId(reader.fixed()?),
                above: reader.u64()?,
                receiver: receiver(&mut reader)?,
                tag: reader.fixed()?,
            },
            HEAD_FOR => Self::HeadFor {
                receiver: receiver(&mut reader)?,
                tag: reader.fixed()?,
                head: reader.bytes()?,
            },
            RECEIVER_WANTED => {
                let (chain, block) = place(&mut reader)?;
                Self::ReceiverWanted {
                    chain,
                    block,
                    wanted: reader.u64()?,
                    attempt: reader.uint()?,
                    receiver: receiver(&mut reader)?,
                    tag: reader.fixed()?,
                }
            }
            _ => {
                let (chain, block) = place(&mut reader)?;
                Self::Fragment { chain, block, index: index(&mut reader)?, leaf: reader.bytes()? }
            }
        })
    }

    /// Writes the part of a certificate frame before the byte string. The caller then reads the
    /// certificate from the store directly into the frame, without a copy.
    pub(crate) fn begin_certificate(out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(2)?.uint(CERTIFICATE)?;
        Ok(())
    }

    /// Writes the part of a revocation frame before the byte string.
    pub(crate) fn begin_revocation(out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(2)?.uint(REVOCATION)?;
        Ok(())
    }

    /// Writes the part of a head frame before the byte string.
    pub(crate) fn begin_head(out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(2)?.uint(HEAD)?;
        Ok(())
    }

    /// Writes the part of a fragment frame before the leaf.
    pub(crate) fn begin_fragment(
        chain: ChainRef,
        block: u32,
        index: u8,
        out: &mut Writer<'_>,
    ) -> Result<(), BufferTooSmall> {
        out.array(5)?.uint(FRAGMENT)?.bytes(&chain.0)?.uint(block)?.uint(index)?;
        Ok(())
    }

    /// Writes the part of a `Single` frame before the head and the leaf.
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
            Self::Receipts { chain, receivers, tag } => {
                out.array(4)?.uint(RECEIPTS)?.bytes(&chain.0)?.bytes(receivers)?.bytes(&tag)?
            }
            Self::ReceiptsWanted { chain, most, receivers } => out
                .array(4)?
                .uint(RECEIPTS_WANTED)?
                .bytes(&chain.0)?
                .uint(most)?
                .bytes(receivers)?,
            Self::HeadWanted { key, above, receiver, tag } => out
                .array(5)?
                .uint(HEAD_WANTED)?
                .bytes(&key.0)?
                .uint(above)?
                .uint(receiver)?
                .bytes(&tag)?,
            Self::HeadFor { receiver, tag, head } => {
                out.array(4)?.uint(HEAD_FOR)?.uint(receiver)?.bytes(&tag)?.bytes(head)?
            }
            Self::ReceiverWanted { chain, block, wanted, attempt, receiver, tag } => out
                .array(7)?
                .uint(RECEIVER_WANTED)?
                .bytes(&chain.0)?
                .uint(block)?
                .uint(wanted)?
                .uint(attempt)?
                .uint(receiver)?
                .bytes(&tag)?,
        };
        Ok(())
    }
}

fn place(reader: &mut Reader<'_>) -> Result<(ChainRef, u32), DecodeError> {
    Ok((ChainRef(reader.fixed()?), reader.uint()?))
}

fn receiver(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let receiver = reader.uint()?;
    if receiver < MAX_RECEIVERS { Ok(receiver) } else { Err(DecodeError::FieldOutOfRange) }
}

fn index(reader: &mut Reader<'_>) -> Result<u8, DecodeError> {
    let index = reader.uint()?;
    if index < MAX_PER_BLOCK { Ok(index) } else { Err(DecodeError::FieldOutOfRange) }
}
