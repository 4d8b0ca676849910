//! The two frames of uTESLA: a packet and a disclosed key .
//!
//! Anyone can send these frames; the [receiver](crate::tesla::receiver) verifies them.

use crate::tesla::{ChainKey, TAG};
use moteseal_broadcast::ChainRef;
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};

/// The maximum length in bytes of a packet's frame without its message. The terms are the lengths
/// of the array's head, the kind, the reference, the interval, the message's CBOR head, and the tag
/// with its head.
pub const OVERHEAD: usize = 1 + 2 + 9 + 5 + 3 + 1 + TAG;
/// The maximum length of a key's frame, in bytes.
pub const KEY_FRAME: usize = 1 + 2 + 9 + 5 + 1 + size_of::<ChainKey>();

/// A frame of uTESLA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeslaFrame<'a> {
    /// `[40, reference, interval, message, tag]`.
    Packet {
        /// The chain of keys.
        chain: ChainRef,
        /// The interval in which the packet was sent.
        interval: u32,
        /// The message.
        message: &'a [u8],
        /// The message's tag under the interval's key.
        tag: [u8; TAG],
    },
    /// `[41, reference, interval, key]`.
    Key {
        /// The chain of keys.
        chain: ChainRef,
        /// The interval of the key.
        interval: u32,
        /// The key.
        key: ChainKey,
    },
}

impl<'a> TeslaFrame<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// [`DecodeError`]; `UnknownItem` for a kind other than 40 and 41.
    pub fn decode(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame)?;
        let fields = reader.array_any()?;
        match (reader.u64()?, fields) {
            (40, 5) => Ok(Self::Packet {
                chain: ChainRef(reader.fixed()?),
                interval: reader.uint()?,
                message: reader.bytes()?,
                tag: reader.fixed()?,
            }),
            (41, 4) => Ok(Self::Key {
                chain: ChainRef(reader.fixed()?),
                interval: reader.uint()?,
                key: reader.fixed()?,
            }),
            (40 | 41, _) => Err(DecodeError::UnexpectedType),
            _ => Err(DecodeError::UnknownItem),
        }
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        match self {
            Self::Packet { chain, interval, message, tag } => {
                out.array(5)?
                    .uint(40u8)?
                    .bytes(&chain.0)?
                    .uint(*interval)?
                    .bytes(message)?
                    .bytes(tag)?;
            }
            Self::Key { chain, interval, key } => {
                out.array(4)?.uint(41u8)?.bytes(&chain.0)?.uint(*interval)?.bytes(key)?;
            }
        }
        Ok(())
    }
}
