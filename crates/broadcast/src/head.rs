//! The receiver's side of a head: the signed start of a chain (spec/broadcast.md, sections 3.1 and
//! 3.2).

use moteseal_core::named_errors;

use crate::chain::{Outline, SHA_256, tags_of};
use crate::firmware::UPDATE_SUFFIX;
use crate::{ChainId, ChainNumber, ChainRef, KeyId, Kind, MAX_LABEL, Window};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader};
use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, NetworkId};
use moteseal_core::signature::{PublicKey, SignatureError};

named_errors! {
    /// Why a head was rejected.
    HeadError {
        /// The bytes are not a head.
        Decode(error: DecodeError) => from,
        /// The head belongs to another network.
        WrongNetwork => "the chain belongs to another network",
        /// The head belongs to another sender.
        WrongSender => "the chain belongs to another sender",
        /// The head is signed with another key of the sender.
        WrongKey => "the chain is signed with another key of the sender",
        /// The signature's suite differs from the suite of the sender's key.
        AlgorithmMismatch => "the signature's suite differs from that of the sender's key",
        /// The signature was rejected.
        Signature(error: SignatureError) => forward,
    }
}

impl From<BufferTooSmall> for HeadError {
    fn from(_: BufferTooSmall) -> Self {
        Self::Decode(DecodeError::FieldOutOfRange)
    }
}

/// The unverified content of a head. A receiver uses it to find the sender's key, and to reject an
/// unwanted head before it checks the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    outline: Outline,
    window: Window,
    previous: Option<ChainNumber>,
    is_update_file: bool,
}

impl Claim {
    /// Returns the claimed chain's id.
    #[must_use]
    pub const fn id(&self) -> ChainId {
        self.outline.id
    }

    /// Returns the id of the claimed key of the sender.
    #[must_use]
    pub const fn key(&self) -> KeyId {
        self.outline.key
    }

    /// Returns the reference of the claimed chain.
    #[must_use]
    pub fn reference(&self) -> ChainRef {
        self.outline.reference()
    }

    /// Returns the number of leaves in the largest block.
    #[must_use]
    pub const fn largest_block(&self) -> u8 {
        self.outline.largest_block()
    }

    /// Returns the claimed number of messages.
    #[must_use]
    pub const fn messages(&self) -> u32 {
        self.outline.messages
    }

    /// Returns the claimed kind of the messages.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.outline.kind
    }

    /// Returns whether the chain is for named receivers, as claimed.
    #[must_use]
    pub const fn is_addressed(&self) -> bool {
        self.outline.is_addressed
    }

    /// Returns the claimed parameters of the chain.
    #[must_use]
    pub const fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns when the chain may be delivered, as claimed.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Returns whether the chain claims to contain an update file for motes (spec/update.md, section
    /// 2): its kind is file, and its label ends with [`UPDATE_SUFFIX`].
    #[must_use]
    pub const fn is_update_file(&self) -> bool {
        self.is_update_file
    }

    /// Returns the claimed number of the key's previous chain.
    #[must_use]
    pub const fn previous(&self) -> Option<ChainNumber> {
        self.previous
    }
}

/// A verified head. Either [`open`](Self::open) has just checked its signature, or the signature
/// was checked before the head was stored and [`reopen`](Self::reopen) read it back.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    outline: Outline,
    label: &'a str,
    window: Window,
    previous: Option<ChainNumber>,
    first: Digest,
    tags: &'a [u8],
}

impl<'a> Head<'a> {
    /// Reads a head and checks that `sender` signed it with `key` for this network. `scratch` needs
    /// [`MAX_HEAD`] bytes.
    ///
    /// # Errors
    /// [`HeadError`].
    pub fn open(
        bytes: &'a [u8],
        network: NetworkId,
        sender: DeviceId,
        key: &PublicKey,
        scratch: &mut [u8],
    ) -> Result<Self, HeadError> {
        let (object, head) = Self::decode(bytes)?;
        if head.outline.id.network != network {
            return Err(HeadError::WrongNetwork);
        }
        if head.outline.id.sender != sender {
            return Err(HeadError::WrongSender);
        }
        if head.outline.key != KeyId::of(key) {
            return Err(HeadError::WrongKey);
        }
        if object.header.algorithm != key.algorithm() {
            return Err(HeadError::AlgorithmMismatch);
        }
        key.verify(object.message(scratch)?, object.signature).map_err(HeadError::Signature)?;
        Ok(head)
    }

    /// Reads a head without checking its signature.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a head.
    pub fn peek(bytes: &[u8]) -> Result<Claim, DecodeError> {
        let (_, head) = Head::decode(bytes)?;
        let Head { outline, window, previous, label, .. } = head;
        let is_update_file = outline.kind == Kind::File && label.ends_with(UPDATE_SUFFIX);
        Ok(Claim { outline, window, previous, is_update_file })
    }

    /// Reads a head without checking its signature. Use it only for a head that was verified
    /// earlier and then stored where no other party can write.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a head.
    pub fn reopen(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Self::decode(bytes)?.1)
    }

    fn decode(bytes: &'a [u8]) -> Result<(Sign1<'a>, Self), DecodeError> {
        let object = Sign1::decode(bytes, Typ::Chain)?;
        let mut reader = Reader::new(object.payload)?;
        reader.array(16)?;
        reader.version()?;
        let outline = Outline::read(&mut reader)?;
        let label = reader.text()?;
        let window = Window { not_before: reader.u64()?, not_after: reader.u64()? };
        let step = reader.u64()?;
        let hash = reader.i64()?;
        let (first, tags) = (Digest(reader.fixed()?), reader.bytes()?);
        if hash != SHA_256 {
            return Err(DecodeError::UnknownAlgorithm);
        }
        let plain = label.len() <= MAX_LABEL && !label.chars().any(char::is_control);
        let previous = match step {
            0 => None,
            step => Some(ChainNumber(
                outline.id.number.0.checked_sub(step).ok_or(DecodeError::FieldOutOfRange)?,
            )),
        };
        if !plain
            || (outline.is_addressed && !label.is_empty())
            || window.check_for(outline.kind).is_err()
            || tags.len() != 8 * tags_of(outline.in_block(1))
        {
            return Err(DecodeError::FieldOutOfRange);
        }
        Ok((object, Self { outline, label, window, previous, first, tags }))
    }

    /// Returns the chain's parameters.
    #[must_use]
    pub const fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns the chain's id.
    #[must_use]
    pub const fn id(&self) -> ChainId {
        self.outline.id
    }

    /// Returns the id of the sender's key that signed the head.
    #[must_use]
    pub const fn key(&self) -> KeyId {
        self.outline.key
    }

    /// Returns the chain's label, which may be empty. It contains no control characters. The label
    /// of commands is their topic. It is empty if the chain is addressed.
    #[must_use]
    pub const fn label(&self) -> &'a str {
        self.label
    }

    /// Returns when the chain may be delivered.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Returns the number of the last chain that the same key signed before this one, if the head
    /// states it.
    #[must_use]
    pub const fn previous(&self) -> Option<ChainNumber> {
        self.previous
    }

    /// Returns the digest of the first block. It authenticates every block of the chain, because
    /// each block contains the digest of the next one.
    #[must_use]
    pub const fn first(&self) -> Digest {
        self.first
    }

    /// Returns the tags of the first block, eight bytes each.
    pub(super) const fn tags(&self) -> &'a [u8] {
        self.tags
    }

    /// Returns the number of blocks.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.outline.blocks()
    }

    /// Returns the number of leaves in a block; 0 if the chain has no such block.
    #[must_use]
    pub const fn in_block(&self, block: u32) -> u8 {
        self.outline.in_block(block)
    }

    /// Returns the reference that names the chain in frames.
    #[must_use]
    pub fn reference(&self) -> ChainRef {
        self.outline.reference()
    }
}
