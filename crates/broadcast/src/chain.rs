//! The sender's side of a chain: blocks of messages under one signed head (spec/broadcast.md,
//! sections 2 and 3).
//!
//! The sender hashes from the last block to the first. It keeps one digest per block and one tag
//! per message, but not the messages. It reads each message again when it sends the message, and
//! does not send a message that has changed since it was hashed.

use core::fmt;
use moteseal_core::named_errors;

use crate::hash::Prefixes;
use crate::head::Head;
use crate::{
    ChainId, ChainNumber, ChainRef, KeyId, Kind, MAX_LABEL, MAX_MESSAGE, MAX_MESSAGES,
    MAX_PER_BLOCK, Tag, Window,
};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::digest::Digest;
use moteseal_core::identity::{IssueError, protected};
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, KeyPair, MAX_SIGNATURE};

/// The number of SHA-256 in the COSE registry.
pub(super) const SHA_256: i64 = -16;
/// What is added to the number of the kind of an addressed chain.
const ADDRESSED: u8 = 8;
/// The maximum length of a head's payload in bytes: an array of sixteen fields. The label and the
/// tags have variable lengths.
const MAX_PAYLOAD: usize = 139 + MAX_LABEL + 8 * MAX_PER_BLOCK as usize;
/// The maximum length of a signed head, and of the bytes that the sender signs for it.
pub const MAX_HEAD: usize = MAX_PAYLOAD + 80 + MAX_SIGNATURE;

/// The parameters of a chain: the content of its head except the label, the window, the previous
/// chain, the first block's digest and its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The chain.
    pub id: ChainId,
    /// The sender's key that signs it.
    pub key: KeyId,
    /// The number of messages, 1 to [`MAX_MESSAGES`].
    pub messages: u32,
    /// The number of messages in a block, 1 to [`MAX_PER_BLOCK`]; the last block may have fewer.
    pub per_block: u8,
    /// The length of the longest message in bytes, at most [`MAX_MESSAGE`].
    pub longest: u16,
    /// The kind of the messages.
    pub kind: Kind,
    /// Whether the chain is for named receivers: its first messages are an address, and the others
    /// are encrypted (spec/broadcast.md, section 8).
    pub is_addressed: bool,
}

impl Outline {
    /// Returns the number that encodes the kind in a head, and whether the chain is addressed.
    #[must_use]
    pub const fn kind_number(&self) -> u8 {
        self.kind.number() + if self.is_addressed { ADDRESSED } else { 0 }
    }

    /// Returns the number of blocks. The first block has number 1.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.messages.div_ceil(self.per_block as u32)
    }

    /// Returns the number of leaves in a block; 0 if the chain has no such block.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub const fn in_block(&self, block: u32) -> u8 {
        let blocks = self.blocks();
        if block == 0 || block > blocks {
            0
        } else if block < blocks {
            self.per_block
        } else {
            (self.messages - (blocks - 1) * self.per_block as u32) as u8
        }
    }

    /// Returns the length in bytes of the trailer, which precedes the message in a block's last
    /// leaf. The chain's last block has no trailer; its length is 0.
    #[must_use]
    pub const fn trailer(&self, block: u32) -> usize {
        match self.in_block(block.saturating_add(1)) {
            0 => 0,
            leaves => 32 + 8 * tags_of(leaves),
        }
    }

    /// Returns the number in the chain, counted from 0, of the message at `index` in `block`. The
    /// chain must have this leaf.
    #[must_use]
    pub const fn message(&self, block: u32, index: u8) -> u32 {
        block.saturating_sub(1).saturating_mul(self.per_block as u32).saturating_add(index as u32)
    }

    /// Returns the number of leaves in the largest block, for which a receiver needs room.
    #[must_use]
    pub const fn largest_block(&self) -> u8 {
        self.in_block(1)
    }

    /// Returns the reference that names the chain in frames.
    #[must_use]
    pub fn reference(&self) -> ChainRef {
        self.id.reference(self.key)
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        let id = &self.id;
        out.bytes(&id.network.0)?
            .bytes(&id.sender.0)?
            .bytes(&self.key.0)?
            .uint(id.number.0)?
            .uint(self.messages)?
            .uint(self.per_block)?;
        out.uint(self.longest)?.uint(self.kind_number())?;
        Ok(())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let network = NetworkId(reader.fixed()?);
        let (sender, key, number) =
            (DeviceId(reader.fixed()?), KeyId(reader.fixed()?), ChainNumber(reader.u64()?));
        let (messages, per_block, longest): (u32, u8, u16) =
            (reader.uint()?, reader.uint()?, reader.uint()?);
        let stated: u8 = reader.uint()?;
        let is_addressed = stated >= ADDRESSED;
        let kind = Kind::from_number(if is_addressed { stated - ADDRESSED } else { stated })
            .filter(|kind| !is_addressed || kind.may_be_addressed())
            .ok_or(DecodeError::FieldOutOfRange)?;
        let fits = (1..=MAX_MESSAGES).contains(&messages)
            && (1..=MAX_PER_BLOCK).contains(&per_block)
            && usize::from(longest) <= MAX_MESSAGE;
        let outline = Self {
            id: ChainId { network, sender, number },
            key,
            messages,
            per_block,
            longest,
            kind,
            is_addressed,
        };
        if fits { Ok(outline) } else { Err(DecodeError::FieldOutOfRange) }
    }
}

/// Returns the number of tags for a block with `leaves` leaves. A block with one leaf has no tags,
/// because the block's digest verifies the leaf directly.
pub(super) const fn tags_of(leaves: u8) -> usize {
    if leaves > 1 { leaves as usize } else { 0 }
}

named_errors! {
    /// Why a chain's draft is invalid.
    DraftError {
        /// The chain has no messages.
        NoMessages => "a chain has at least one message",
        /// More than [`MAX_MESSAGES`] messages.
        TooManyMessages => "a chain has at most 16,777,216 messages; send the rest as another chain",
        /// The block size is 0 or above [`MAX_PER_BLOCK`].
        BlockTooLarge => "a block has 1 to 64 messages",
        /// The label is longer than [`MAX_LABEL`] bytes.
        LabelTooLong => "a label has at most 64 bytes",
        /// The label contains control characters. They could change what a terminal displays.
        LabelNotPlain => "a label has no control characters",
        /// A message is longer than [`MAX_MESSAGE`].
        MessageTooLong => "a message has at most 8,192 bytes; split it into several",
        /// An addressed chain has a label in its head. Its label is encrypted, in its address.
        LabelNotHidden => "the label of a chain for named receivers is not in its head",
        /// A query schedule is addressed.
        KindNotAddressed => "a query schedule is for all receivers",
        /// The window of the chain ends before or when it begins.
        EmptyWindow => "a chain must end after its begin",
        /// A command has no end.
        CommandWithoutEnd => "a command must have an end",
        /// A command is valid for longer than [`MAX_COMMAND_SECONDS`](crate::MAX_COMMAND_SECONDS).
        ValidityTooLong => "a command is valid for at most 7 days",
        /// The number of the previous chain is not below that of the chain.
        PreviousNotBelow => "the previous chain must have a lower number",
        /// A buffer is too small.
        BufferTooSmall => "a buffer is too small for the chain",
    }
}

impl From<BufferTooSmall> for DraftError {
    fn from(_: BufferTooSmall) -> Self {
        Self::BufferTooSmall
    }
}

/// Why building a chain failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError<E> {
    /// The draft is invalid.
    Draft(DraftError),
    /// Reading a message failed.
    Read(E),
}

impl<E> From<DraftError> for BuildError<E> {
    fn from(error: DraftError) -> Self {
        Self::Draft(error)
    }
}

impl<E: fmt::Display> fmt::Display for BuildError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draft(error) => error.fmt(f),
            Self::Read(error) => error.fmt(f),
        }
    }
}

impl<E: core::error::Error> core::error::Error for BuildError<E> {}

named_errors! {
    /// Why writing a leaf failed.
    ContentChanged {
        /// The message has changed since the chain was built.
        ContentChanged => "the message is not the one that was signed; build a new chain",
        /// The chain has no such leaf.
        NoSuchLeaf => "the chain has no such message",
        /// The buffer is too small for the leaf.
        BufferTooSmall => "the leaf does not fit the buffer",
    }
}

/// The parameters of a new chain, without its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainDraft<'a> {
    /// The chain's id. Its number must be higher than the number of every earlier chain that the
    /// same key signed.
    pub id: ChainId,
    /// The id of the key that will sign the chain.
    pub key: KeyId,
    /// The number of messages.
    pub messages: u32,
    /// The number of messages in a block.
    pub per_block: u8,
    /// The kind of the messages.
    pub kind: Kind,
    /// The chain's label; may be empty. The label of commands is their topic.
    pub label: &'a str,
    /// When the chain may be delivered.
    pub window: Window,
    /// The number of the last chain that the same key signed before this one, so that receivers
    /// detect that they have missed it; `None` if it is unknown or there is none.
    pub previous: Option<ChainNumber>,
    /// Whether the chain is for named receivers. Its messages are then the address and the encrypted
    /// content, and its label is empty.
    pub is_addressed: bool,
}

impl ChainDraft<'_> {
    pub(super) fn check(&self) -> Result<(), DraftError> {
        match self {
            Self { messages: 0, .. } => Err(DraftError::NoMessages),
            Self { messages, .. } if *messages > MAX_MESSAGES => Err(DraftError::TooManyMessages),
            Self { per_block, .. } if !(1..=MAX_PER_BLOCK).contains(per_block) => {
                Err(DraftError::BlockTooLarge)
            }
            Self { label, .. } if label.len() > MAX_LABEL => Err(DraftError::LabelTooLong),
            Self { label, .. } if label.chars().any(char::is_control) => {
                Err(DraftError::LabelNotPlain)
            }
            Self { is_addressed: true, label, .. } if !label.is_empty() => {
                Err(DraftError::LabelNotHidden)
            }
            Self { is_addressed: true, kind, .. } if !kind.may_be_addressed() => {
                Err(DraftError::KindNotAddressed)
            }
            Self { previous: Some(previous), .. } if *previous >= self.id.number => {
                Err(DraftError::PreviousNotBelow)
            }
            Self { kind, window, .. } => window.check_for(*kind),
        }
    }

    const fn outline(&self, longest: u16) -> Outline {
        Outline {
            id: self.id,
            key: self.key,
            messages: self.messages,
            per_block: self.per_block,
            longest,
            kind: self.kind,
            is_addressed: self.is_addressed,
        }
    }
}

/// A hashed chain, from which a sender signs the head and produces the leaves. It borrows memory
/// for one digest per block and one tag per message.
#[derive(Debug)]
pub struct OutgoingChain<'s> {
    outline: Outline,
    label: &'s str,
    window: Window,
    previous: Option<ChainNumber>,
    prefixes: Prefixes,
    /// The digest of block `i` is at `i - 1`.
    digests: &'s [Digest],
    /// The tag of message `i` is at `i`. Empty if each block has only one message.
    tags: &'s [Tag],
}

impl<'s> OutgoingChain<'s> {
    /// Hashes a chain from its last block to its first. `read` writes a message, given by its
    /// number from 0, to the start of its buffer and returns the length. Each message is read once.
    ///
    /// `digests` needs one entry per block, and `tags` needs one entry per message, or none if each
    /// block has only one message. `scratch` needs room for a trailer and the longest message;
    /// [`MAX_LEAF`](crate::MAX_LEAF) bytes suffice.
    ///
    /// # Errors
    /// [`BuildError`]; `MessageTooLong` if a message is longer than its buffer.
    pub fn build<E>(
        draft: ChainDraft<'s>,
        digests: &'s mut [Digest],
        tags: &'s mut [Tag],
        scratch: &mut [u8],
        mut read: impl FnMut(u32, &mut [u8]) -> Result<usize, E>,
    ) -> Result<Self, BuildError<E>> {
        draft.check()?;
        let mut outline = draft.outline(0);
        let blocks = outline.blocks();
        let tagged = if outline.per_block > 1 { draft.messages } else { 0 };
        let digests = index(blocks)
            .and_then(|blocks| digests.get_mut(..blocks))
            .ok_or(DraftError::BufferTooSmall)?;
        let tags = index(tagged)
            .and_then(|tagged| tags.get_mut(..tagged))
            .ok_or(DraftError::BufferTooSmall)?;
        let prefixes = Prefixes::new(&draft.id, draft.key);
        let mut longest = 0;
        let mut message = |number, buffer: &mut [u8]| {
            let room = buffer.len().min(MAX_MESSAGE);
            let length = read(number, &mut buffer[..room]).map_err(BuildError::Read)?;
            let fits = u16::try_from(length)
                .ok()
                .filter(|_| length <= room)
                .ok_or(DraftError::MessageTooLong)?;
            longest = longest.max(fits);
            Ok::<_, BuildError<E>>(length)
        };
        for (block, place) in (1..=blocks).rev().zip((0..digests.len()).rev()) {
            let last = outline.in_block(block) - 1;
            let before =
                write_trailer(&outline, block, digests, tags, scratch).map_err(DraftError::from)?;
            let length = message(outline.message(block, last), &mut scratch[before..])?;
            let mut hash = prefixes.block();
            hash.update(&scratch[..before + length]);
            if last > 0 {
                set_tag(
                    tags,
                    outline.message(block, last),
                    &prefixes.leaf(&scratch[..before + length]),
                );
                for index in 0..last {
                    let number = outline.message(block, index);
                    let length = message(number, scratch)?;
                    let digest = prefixes.leaf(&scratch[..length]);
                    set_tag(tags, number, &digest);
                    hash.update(&digest);
                }
            }
            digests[place] = Digest(hash.finish());
        }
        outline.longest = longest;
        let ChainDraft { label, window, previous, .. } = draft;
        Ok(Self { outline, label, window, previous, prefixes, digests, tags })
    }

    /// Returns the chain's parameters.
    #[must_use]
    pub const fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns when the chain may be delivered.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
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

    /// Returns whether the head has the parameters and the content of this chain.
    #[must_use]
    pub fn is_of(&self, head: &Head<'_>) -> bool {
        head.outline() == &self.outline && self.digests.first() == Some(&head.first())
    }

    fn payload<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(16)?.uint(1u8)?;
        self.outline.write(&mut out)?;
        let number = self.outline.id.number.0;
        let step = self.previous.map_or(0, |previous| number.saturating_sub(previous.0));
        out.text(self.label)?
            .uint(self.window.not_before)?
            .uint(self.window.not_after)?
            .uint(step)?
            .int(SHA_256)?
            .bytes(&self.digests.first().unwrap_or(&Digest::NULL).0)?;
        let tags = self.tags.get(..tags_of(self.in_block(1))).unwrap_or_default();
        out.bytes(tags.as_flattened())?;
        Ok(out.finish())
    }

    /// Writes to `scratch` the bytes that the sender must sign with its key of suite `algorithm`,
    /// and returns them. [`MAX_HEAD`] bytes suffice.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn message<'o>(
        &self,
        algorithm: Algorithm,
        scratch: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let (mut header, mut payload) = ([0; _], [0; MAX_PAYLOAD]);
        sig_structure(
            scratch,
            protected(algorithm, Typ::Chain, &mut header)?,
            self.payload(&mut payload)?,
        )
    }

    /// Writes the head with its signature to `out` and returns it. [`MAX_HEAD`] bytes suffice.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn attach<'o>(
        &self,
        algorithm: Algorithm,
        signature: &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let (mut header, mut payload) = ([0; _], [0; MAX_PAYLOAD]);
        let header = protected(algorithm, Typ::Chain, &mut header)?;
        let mut out = Writer::new(out);
        Sign1::encode(&mut out, header, self.payload(&mut payload)?, signature)?;
        Ok(out.finish())
    }

    /// Signs the head with the sender's key and writes it to `out`. `scratch` and `out` need
    /// [`MAX_HEAD`] bytes each.
    ///
    /// # Errors
    /// [`IssueError`]; `WrongKey` if the chain was built for another key.
    pub fn head<'o>(
        &self,
        signer: &dyn KeyPair,
        scratch: &mut [u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], IssueError> {
        if KeyId::of(&signer.public_key()) != self.outline.key {
            return Err(IssueError::WrongKey);
        }
        let signature = signer.signature(self.message(signer.algorithm(), scratch)?)?;
        Ok(self.attach(signer.algorithm(), &signature, out)?)
    }

    /// Writes a leaf to `out`, after checking that `message` has not changed since it was hashed.
    ///
    /// In a block of one message, the check compares the block's 32-byte digest. In a larger block
    /// it compares the message's 8-byte tag, which is enough to detect accidental changes.
    ///
    /// # Errors
    /// [`ContentChanged`].
    pub fn leaf<'o>(
        &self,
        block: u32,
        index: u8,
        message: &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], ContentChanged> {
        let leaves = self.in_block(block);
        if index >= leaves {
            return Err(ContentChanged::NoSuchLeaf);
        }
        if message.len() > usize::from(self.outline.longest) {
            return Err(ContentChanged::ContentChanged);
        }
        let before = if index + 1 == leaves {
            write_trailer(&self.outline, block, self.digests, self.tags, out)
        } else {
            Ok(0)
        };
        let before = before.map_err(|_| ContentChanged::BufferTooSmall)?;
        let leaf = out.get_mut(..before + message.len()).ok_or(ContentChanged::BufferTooSmall)?;
        leaf[before..].copy_from_slice(message);
        let same = if leaves == 1 {
            self::index(block - 1)
                .and_then(|place| self.digests.get(place))
                .is_some_and(|digest| digest.0 == self.prefixes.alone(leaf))
        } else {
            let tag = self::index(self.outline.message(block, index))
                .and_then(|place| self.tags.get(place));
            tag.is_some_and(|tag| self.prefixes.leaf(leaf).starts_with(tag))
        };
        if same { Ok(leaf) } else { Err(ContentChanged::ContentChanged) }
    }
}

fn index(number: u32) -> Option<usize> {
    usize::try_from(number).ok()
}

fn set_tag(tags: &mut [Tag], message: u32, digest: &[u8; 32]) {
    let tag = index(message).and_then(|place| tags.get_mut(place));
    if let (Some(tag), Some(first)) = (tag, digest.first_chunk()) {
        *tag = *first;
    }
}

/// Writes the trailer of a block and returns its length. The trailer contains the digest and the
/// tags of the next block, which must already be hashed.
fn write_trailer(
    outline: &Outline,
    block: u32,
    digests: &[Digest],
    tags: &[Tag],
    out: &mut [u8],
) -> Result<usize, BufferTooSmall> {
    let leaves = outline.in_block(block + 1);
    if leaves == 0 {
        return Ok(0);
    }
    // The digest of block `i` is at `i - 1`, and the digest of the next block is at `i`.
    let digest = index(block).and_then(|place| digests.get(place)).ok_or(BufferTooSmall)?;
    let first = index(outline.message(block + 1, 0)).ok_or(BufferTooSmall)?;
    let tags = match tags_of(leaves) {
        0 => &[],
        count => tags.get(first..first + count).ok_or(BufferTooSmall)?,
    };
    let mut out = Writer::new(out);
    out.raw(&digest.0)?.raw(tags.as_flattened())?;
    Ok(out.position())
}
