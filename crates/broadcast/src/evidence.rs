//! Evidence, which proves to third parties what a sender has sent (spec/broadcast.md, section 6).
//! It consists of the sender's certificate, the head of a chain, and the chain's leaves in order.
//! To check it, a verifier needs only the base stations' keys.
//!
//! A message is proven as soon as its block is complete, so evidence may end after any block.
//! Evidence does not prove when a message was sent.

use core::fmt;

use crate::certificate::{SenderCertificate, SenderCertificateError};
use crate::chain::{MAX_HEAD, Outline};
use crate::head::{Head, HeadError};
use crate::incoming::{Incoming, LeafError, Taken};
use crate::wire::BroadcastFrame;
use crate::{ChainRef, MAX_PER_BLOCK};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Writer};
use moteseal_core::named_errors;
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::PublicKey;

named_errors! {
    /// Why evidence was rejected.
    EvidenceError {
        /// The bytes are not a frame.
        Decode(error: DecodeError) => from,
        /// A frame is in the wrong place.
        OutOfOrder => "evidence must be a certificate, a head, and the chain's leaves in order",
        /// The certificate was rejected.
        Certificate(error: SenderCertificateError) => from,
        /// The head was rejected.
        Head(error: HeadError) => from,
        /// A leaf was rejected.
        Leaf(error: LeafError) => from,
    }
}

/// The content of a frame of evidence.
#[derive(Clone, Copy, Debug)]
pub enum Shown<'f> {
    /// The certificate of the chain's sender.
    Certificate {
        /// The authentic certificate.
        certificate: SenderCertificate<'f>,
        /// The index of the base station that signed it.
        base: usize,
    },
    /// The head of the chain.
    Head(Head<'f>),
    /// The next message.
    Message {
        /// Its number in the chain, from 0.
        number: u32,
        /// The message.
        message: &'f [u8],
        /// Whether this message completes its block. If so, this message and all earlier ones are
        /// proven. The other messages are not proven until their block is complete.
        is_proven: bool,
    },
}

/// A verifier that checks evidence frame by frame, in about 5 KiB of memory.
#[derive(Debug)]
pub struct EvidenceCheck<'k> {
    network: NetworkId,
    bases: &'k [PublicKey],
    stage: Stage,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
enum Stage {
    Start,
    Certified { sender: DeviceId, key: PublicKey },
    Chain { chain: Incoming<{ MAX_PER_BLOCK as usize }>, reference: ChainRef },
}

impl<'k> EvidenceCheck<'k> {
    /// Creates a verifier for a network whose base stations have these keys.
    #[must_use]
    pub const fn new(network: NetworkId, bases: &'k [PublicKey]) -> Self {
        Self { network, bases, stage: Stage::Start }
    }

    /// Checks the next frame. After an error, the caller must not pass further frames.
    ///
    /// # Errors
    /// [`EvidenceError`].
    pub fn take<'f>(&mut self, frame: &'f [u8]) -> Result<Shown<'f>, EvidenceError> {
        match (&mut self.stage, BroadcastFrame::decode(frame)?) {
            (Stage::Start, BroadcastFrame::Certificate(bytes)) => {
                let (certificate, base) =
                    SenderCertificate::open_any(bytes, self.network, self.bases)?;
                let key = certificate.key().map_err(SenderCertificateError::Key)?;
                self.stage = Stage::Certified { sender: certificate.sender, key };
                Ok(Shown::Certificate { certificate, base })
            }
            (Stage::Certified { sender, key }, BroadcastFrame::Head(bytes)) => {
                let head = Head::open(bytes, self.network, *sender, key, &mut [0; MAX_HEAD])?;
                let chain = Incoming::new(&head).map_err(|_| DecodeError::FieldOutOfRange)?;
                self.stage = Stage::Chain { chain, reference: head.reference() };
                Ok(Shown::Head(head))
            }
            (
                Stage::Chain { chain, reference },
                BroadcastFrame::Fragment { chain: named, block, index, leaf },
            ) => {
                let is_next = block == chain.current()
                    && u32::from(index) == chain.missing().trailing_zeros();
                if named != *reference || !is_next {
                    return Err(EvidenceError::OutOfOrder);
                }
                let number = chain.outline().message(block, index);
                Ok(match chain.take(block, index, leaf)? {
                    Taken::Verified { message, .. } => {
                        Shown::Message { number, message, is_proven: true }
                    }
                    Taken::Pending { message } => {
                        Shown::Message { number, message, is_proven: false }
                    }
                    Taken::Repeated => return Err(EvidenceError::OutOfOrder),
                })
            }
            _ => Err(EvidenceError::OutOfOrder),
        }
    }

    /// Returns the number of proven messages and the number of messages in the chain; `None` before
    /// the head was checked.
    #[must_use]
    pub const fn proven(&self) -> Option<(u32, u32)> {
        match &self.stage {
            Stage::Start | Stage::Certified { .. } => None,
            Stage::Chain { chain, .. } if chain.is_complete() => {
                Some((chain.outline().messages, chain.outline().messages))
            }
            Stage::Chain { chain, .. } => {
                let outline = chain.outline();
                Some((outline.message(chain.current(), 0), outline.messages))
            }
        }
    }
}

/// Why writing evidence failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportError<E> {
    /// The buffer is too small for a frame:
    /// [`MAX_BROADCAST_FRAME`](crate::wire::MAX_BROADCAST_FRAME) bytes suffice.
    BufferTooSmall,
    /// Reading the leaves or writing the evidence failed.
    Other(E),
}

impl<E> From<BufferTooSmall> for ExportError<E> {
    fn from(_: BufferTooSmall) -> Self {
        Self::BufferTooSmall
    }
}

impl<E: fmt::Display> fmt::Display for ExportError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BufferTooSmall => BufferTooSmall.fmt(f),
            Self::Other(error) => error.fmt(f),
        }
    }
}

/// Writes the evidence of the first `blocks` blocks of a chain, one frame at a time. `fetch` is
/// called with a block and an index, writes that leaf to the start of its buffer and returns the
/// leaf's length. `write` receives the frames. The buffer `leaf` needs room for the longest leaf,
/// and the buffer `frame` for the longest frame.
///
/// This function does not check its inputs. The receiver has already checked the leaves, and the
/// reader of the evidence checks them again.
///
/// # Errors
/// [`ExportError`].
pub fn export<E>(
    (certificate, head, outline): (&[u8], &[u8], &Outline),
    blocks: u32,
    (leaf, frame): (&mut [u8], &mut [u8]),
    mut fetch: impl FnMut(u32, u8, &mut [u8]) -> Result<usize, E>,
    mut write: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), ExportError<E>> {
    let mut put = |content: BroadcastFrame<'_>| {
        let mut out = Writer::new(frame);
        content.encode(&mut out)?;
        write(out.finish()).map_err(ExportError::Other)
    };
    put(BroadcastFrame::Certificate(certificate))?;
    put(BroadcastFrame::Head(head))?;
    let chain = outline.reference();
    for block in 1..=blocks.min(outline.blocks()) {
        for index in 0..outline.in_block(block) {
            let length = fetch(block, index, leaf).map_err(ExportError::Other)?;
            let leaf = leaf.get(..length).ok_or(ExportError::BufferTooSmall)?;
            put(BroadcastFrame::Fragment { chain, block, index, leaf })?;
        }
    }
    Ok(())
}
