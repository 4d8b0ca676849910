//! The verifier of a chain (spec/broadcast.md, section 3). It accepts one block after the other,
//! and the leaves of a block in any order.
//!
//! The memory is fixed: 48 bytes per message of a block. The verifier does not store messages. It
//! checks each leaf when the leaf arrives, so a node knows at once whether to relay and store the
//! leaf.

use core::fmt;
use moteseal_core::named_errors;

use crate::chain::{Outline, tags_of};
use crate::hash::{Prefixes, Running};
use crate::head::Head;
use crate::{ChainRef, MAX_PER_BLOCK};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};

/// The maximum length of a snapshot of an [`Incoming`] in bytes.
pub const MAX_SNAPSHOT: usize = 112 + 8 * MAX_PER_BLOCK as usize;

/// An error: the chain's blocks have more messages than this receiver has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTooLarge;

impl BlockTooLarge {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(self) -> &'static str {
        "BlockTooLarge"
    }
}

impl fmt::Display for BlockTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the chain's blocks have more messages than there is room for; send it with smaller blocks")
    }
}

impl core::error::Error for BlockTooLarge {}

named_errors! {
    /// Why a leaf was rejected. A rejected leaf changes nothing in the verifier, except after
    /// `BlockMismatch`.
    LeafError {
        /// The leaf matches neither its tag nor its block's digest.
        ForgedLeaf => "the bytes are not what the sender signed",
        /// The leaf belongs to a block that is already verified, or to a later block.
        NotThisBlock => "the leaf belongs to an earlier or a later block",
        /// The block has no such leaf.
        IndexOutOfRange => "the block has no such leaf",
        /// The leaf is longer than the chain's longest message allows.
        LeafTooLong => "the leaf is longer than any leaf of the chain can be",
        /// The leaf is too short for its trailer.
        LeafTooShort => "the leaf is too short for its trailer",
        /// All tags of the block match, but its digest does not: either an attacker has found a
        /// different leaf with the same 64-bit tag, or the sender is dishonest. The caller must
        /// delete every stored leaf of the block. The verifier starts the block again.
        BlockMismatch => "the leaves match their tags, but not the block's digest; the block starts again",
    }
}

/// The result of an accepted leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken<'l> {
    /// The leaf was received before; its tag matches.
    Repeated,
    /// The leaf matches its 64-bit tag. This is enough to relay and store the leaf, but not to act
    /// on its message.
    Pending {
        /// The leaf's message.
        message: &'l [u8],
    },
    /// The block is complete and authentic, including the leaves that were pending. The caller may
    /// act on all its messages.
    Verified {
        /// The message of the leaf that completed the block. It need not be the block's last
        /// message.
        message: &'l [u8],
        /// The block.
        block: u32,
        /// Whether the chain is complete now.
        is_last: bool,
    },
}

/// The memory that a receiver needs per message of a block, in bytes. It contains the message's
/// digest, its tag, and the tag of the message at the same index in the next block.
pub const BYTES_PER_MESSAGE: usize = 48;

/// The memory of a receiver, divided into its three tables.
struct Places<'m> {
    tags: &'m mut [[u8; 8]],
    next_tags: &'m mut [[u8; 8]],
    /// The digests of the received leaves, except the last leaf of the block.
    others: &'m mut [[u8; 32]],
}

impl<'m> Places<'m> {
    #[inline]
    fn of(memory: &'m mut [[u8; BYTES_PER_MESSAGE]]) -> Self {
        let count = memory.len();
        let (tags, rest) = memory.as_flattened_mut().split_at_mut(8 * count);
        let (next_tags, others) = rest.split_at_mut(8 * count);
        Self {
            tags: tags.as_chunks_mut().0,
            next_tags: next_tags.as_chunks_mut().0,
            others: others.as_chunks_mut().0,
        }
    }
}

/// Returns the tags of the current block.
#[inline]
fn tags_in(memory: &[[u8; BYTES_PER_MESSAGE]]) -> &[[u8; 8]] {
    let count = memory.len();
    memory.as_flattened().as_chunks().0.get(..count).unwrap_or_default()
}

/// The verifier of one chain whose blocks have at most `B` messages. Its size is at most `48 * B +
/// 408` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<const B: usize> {
    state: IncomingState,
    memory: [[u8; BYTES_PER_MESSAGE]; B],
}

impl<const B: usize> Incoming<B> {
    /// Returns a verifier at the start of a chain.
    ///
    /// # Errors
    /// [`BlockTooLarge`].
    pub fn new(head: &Head<'_>) -> Result<Self, BlockTooLarge> {
        let mut memory = [[0; BYTES_PER_MESSAGE]; B];
        Ok(Self { state: IncomingState::new(head, &mut memory)?, memory })
    }

    /// Returns a verifier that continues at a block, whose digest the receiver has stored: it is the
    /// start of the verified message before the block. A chain of larger blocks, or without this
    /// block, starts at its first block, as with `None`.
    ///
    /// # Errors
    /// [`BlockTooLarge`].
    pub fn continued(
        head: &Head<'_>,
        reached: Option<(u32, [u8; 32])>,
    ) -> Result<Self, BlockTooLarge> {
        let (outline, mut memory) = (*head.outline(), [[0; BYTES_PER_MESSAGE]; B]);
        let (block, digest) = reached
            .filter(|(block, _)| outline.per_block == 1 && (2..=outline.blocks()).contains(block))
            .unwrap_or((1, head.first().0));
        // Blocks of one message have no tags.
        let state = IncomingState::at(outline, block, digest, head.tags(), &mut memory)?;
        Ok(Self { state, memory })
    }

    /// Returns the chain's parameters, which its head contains.
    #[must_use]
    pub const fn outline(&self) -> &Outline {
        self.state.outline()
    }

    /// Returns the reference that names the chain in frames.
    #[must_use]
    pub fn reference(&self) -> ChainRef {
        self.state.reference()
    }

    /// Returns the number of the current block, counted from 1. If the chain is complete, this is
    /// one more than the number of blocks.
    #[must_use]
    pub const fn current(&self) -> u32 {
        self.state.current()
    }

    /// Returns whether every block is verified.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.state.is_complete()
    }

    /// Returns the missing leaves of the current block as bits. Bit `j` is set if leaf `j` is
    /// missing.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.state.missing()
    }

    /// Verifies a leaf. This costs one hash of the leaf. If the leaf completes the block, it also
    /// costs one hash over 32 bytes per other leaf of the block.
    ///
    /// # Errors
    /// [`LeafError`].
    #[inline]
    pub fn take<'l>(
        &mut self,
        block: u32,
        index: u8,
        leaf: &'l [u8],
    ) -> Result<Taken<'l>, LeafError> {
        self.state.take(&mut self.memory, block, index, leaf)
    }

    /// Writes a snapshot of the verifier. It includes the verified blocks, but not the leaves of
    /// the current block: after [`restore`](Self::restore), pass these leaves to the verifier
    /// again. [`MAX_SNAPSHOT`] bytes suffice. A snapshot is not authenticated, so store it where
    /// only the receiver can write.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn save<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        self.state.save(&self.memory, out)
    }

    /// Creates a verifier that continues from a snapshot that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a snapshot, or the chain's blocks are larger than `B`
    /// (`FieldOutOfRange`).
    pub fn restore(snapshot: &[u8]) -> Result<Self, DecodeError> {
        let mut memory = [[0; BYTES_PER_MESSAGE]; B];
        Ok(Self { state: IncomingState::restore(snapshot, &mut memory)?, memory })
    }
}

/// A verifier without memory for a block. The caller provides [`BYTES_PER_MESSAGE`] bytes per
/// message of the largest block and passes the same memory to every call. [`Incoming`] contains the
/// state and the memory. Use this type if the size of blocks is known only at run time.
#[derive(Clone, Copy, Debug)]
pub struct IncomingState {
    outline: Outline,
    prefixes: Prefixes,
    /// The number of blocks of the chain.
    blocks: u32,
    /// The current block; one more than the number of blocks if the chain is complete.
    current: u32,
    /// The number of leaves in the current block; 0 if the chain is complete.
    leaves: u8,
    /// The length in bytes of the trailer in the current block's last leaf.
    trailer: usize,
    /// The received leaves of the current block, one bit each.
    held: u64,
    /// The digest of the current block.
    digest: [u8; 32],
    /// Used if the block's last leaf arrived before other leaves. `last` is the state of the
    /// block's hash after that leaf. The next block's digest and tags come from the leaf's trailer,
    /// and are valid only after this block is verified.
    last: Running,
    next_digest: [u8; 32],
}

impl IncomingState {
    /// Creates a verifier at the start of a chain. The previous content of the memory does not
    /// matter.
    ///
    /// # Errors
    /// [`BlockTooLarge`] if the memory is too small for the chain's blocks.
    pub fn new(
        head: &Head<'_>,
        memory: &mut [[u8; BYTES_PER_MESSAGE]],
    ) -> Result<Self, BlockTooLarge> {
        Self::at(*head.outline(), 1, head.first().0, head.tags(), memory)
    }

    fn at(
        outline: Outline,
        current: u32,
        digest: [u8; 32],
        tags: &[u8],
        memory: &mut [[u8; BYTES_PER_MESSAGE]],
    ) -> Result<Self, BlockTooLarge> {
        if usize::from(outline.largest_block()) > memory.len() {
            return Err(BlockTooLarge);
        }
        let prefixes = Prefixes::new(&outline.id, outline.key);
        let incoming = Self {
            outline,
            prefixes,
            blocks: outline.blocks(),
            current,
            leaves: outline.in_block(current),
            trailer: outline.trailer(current),
            held: 0,
            digest,
            last: prefixes.block(),
            next_digest: [0; 32],
        };
        memory.fill([0; BYTES_PER_MESSAGE]);
        read_tags(tags, Places::of(memory).tags);
        Ok(incoming)
    }

    /// Returns the chain's parameters, which its head contains.
    #[must_use]
    pub const fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns the reference that names the chain in frames.
    #[must_use]
    pub fn reference(&self) -> ChainRef {
        self.outline.reference()
    }

    /// Returns the number of the current block, counted from 1. If the chain is complete, this is
    /// one more than the number of blocks.
    #[must_use]
    pub const fn current(&self) -> u32 {
        self.current
    }

    /// Returns whether every block is verified.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.current > self.blocks
    }

    /// Returns the missing leaves of the current block as bits. Bit `j` is set if leaf `j` is
    /// missing.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        !self.held & every(self.leaves)
    }

    /// Verifies a leaf. This costs one hash of the leaf. If the leaf completes the block, it also
    /// costs one hash over 32 bytes per other leaf of the block.
    ///
    /// # Errors
    /// [`LeafError`].
    #[inline]
    pub fn take<'l>(
        &mut self,
        memory: &mut [[u8; BYTES_PER_MESSAGE]],
        block: u32,
        index: u8,
        leaf: &'l [u8],
    ) -> Result<Taken<'l>, LeafError> {
        if block != self.current || self.is_complete() {
            return Err(LeafError::NotThisBlock);
        }
        if index >= self.leaves {
            return Err(LeafError::IndexOutOfRange);
        }
        let is_last = index + 1 == self.leaves;
        let trailer = if is_last { self.trailer } else { 0 };
        let (trailer, message) = leaf.split_at_checked(trailer).ok_or(LeafError::LeafTooShort)?;
        if message.len() > usize::from(self.outline.longest) {
            return Err(LeafError::LeafTooLong);
        }
        let places = Places::of(memory);
        if is_last {
            self.take_last(places, trailer, leaf, message)
        } else {
            self.take_other(places, index, leaf, message)
        }
    }

    /// Verifies a leaf that is not the last of its block.
    #[inline]
    fn take_other<'l>(
        &mut self,
        places: Places<'_>,
        index: u8,
        leaf: &[u8],
        message: &'l [u8],
    ) -> Result<Taken<'l>, LeafError> {
        let (bit, place) = (1 << index, usize::from(index));
        let digest = self.prefixes.leaf(leaf);
        if places.tags.get(place) != digest.first_chunk() {
            return Err(LeafError::ForgedLeaf);
        }
        if self.held & bit != 0 {
            return Ok(Taken::Repeated);
        }
        if let Some(other) = places.others.get_mut(place) {
            *other = digest;
        }
        self.held |= bit;
        if self.missing() != 0 {
            return Ok(Taken::Pending { message });
        }
        let hash = self.last;
        self.close(places, hash, message)
    }

    /// Verifies the last leaf of a block, with the trailer for the next block. If all other leaves
    /// were received before, the digest of the block is checked instead of the leaf's tag.
    #[inline]
    fn take_last<'l>(
        &mut self,
        places: Places<'_>,
        trailer: &[u8],
        leaf: &[u8],
        message: &'l [u8],
    ) -> Result<Taken<'l>, LeafError> {
        let (place, bit) = (usize::from(self.leaves - 1), 1 << (self.leaves - 1));
        let is_tagged =
            |prefixes: &Prefixes| places.tags.get(place) == prefixes.leaf(leaf).first_chunk();
        if self.missing() == bit {
            let digest = if place == 0 {
                self.prefixes.alone(leaf)
            } else {
                self.with_others(places.others, self.prefixes.block(), leaf)
            };
            if digest == self.digest {
                self.note_trailer(places.next_tags, trailer);
                return Ok(self.advance(places, message));
            }
            if place == 0 || !is_tagged(&self.prefixes) {
                return Err(LeafError::ForgedLeaf);
            }
            self.held = 0;
            return Err(LeafError::BlockMismatch);
        }
        if !is_tagged(&self.prefixes) {
            return Err(LeafError::ForgedLeaf);
        }
        if self.held & bit != 0 {
            return Ok(Taken::Repeated);
        }
        let mut hash = self.prefixes.block();
        hash.update(leaf);
        self.last = hash;
        self.note_trailer(places.next_tags, trailer);
        self.held |= bit;
        Ok(Taken::Pending { message })
    }

    /// Returns the block's digest. `hash` may already include the start of the last leaf; `last` is
    /// the rest of that leaf. The digests of the other leaves follow.
    #[inline]
    fn with_others(&self, others: &[[u8; 32]], mut hash: Running, last: &[u8]) -> [u8; 32] {
        hash.update(last);
        let others = others.get(..usize::from(self.leaves - 1)).unwrap_or_default();
        hash.update(others.as_flattened());
        hash.finish()
    }

    fn close<'l>(
        &mut self,
        places: Places<'_>,
        hash: Running,
        message: &'l [u8],
    ) -> Result<Taken<'l>, LeafError> {
        if self.with_others(places.others, hash, &[]) == self.digest {
            return Ok(self.advance(places, message));
        }
        self.held = 0;
        Err(LeafError::BlockMismatch)
    }

    #[inline]
    fn note_trailer(&mut self, next_tags: &mut [[u8; 8]], trailer: &[u8]) {
        if let Some((digest, tags)) = trailer.split_first_chunk() {
            self.next_digest = *digest;
            read_tags(tags, next_tags);
        }
    }

    #[inline]
    fn advance<'l>(&mut self, places: Places<'_>, message: &'l [u8]) -> Taken<'l> {
        let block = self.current;
        self.current += 1;
        self.held = 0;
        self.digest = self.next_digest;
        places.tags.copy_from_slice(places.next_tags);
        let is_last = block == self.blocks;
        // Each block except the last two has the same number of leaves and the same trailer length
        // as the block before it, so only the last two need new values.
        if self.current + 1 >= self.blocks {
            self.leaves = self.outline.in_block(self.current);
            self.trailer = self.outline.trailer(self.current);
        }
        Taken::Verified { message, block, is_last }
    }

    /// Writes a snapshot of the verifier. It includes the verified blocks, but not the leaves of
    /// the current block: after [`restore`](Self::restore), pass these leaves to the verifier
    /// again. [`MAX_SNAPSHOT`] bytes suffice. A snapshot is not authenticated, so store it where
    /// only the receiver can write.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn save<'o>(
        &self,
        memory: &[[u8; BYTES_PER_MESSAGE]],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(12)?.uint(1u8)?;
        self.outline.write(&mut out)?;
        out.uint(self.current)?.bytes(&self.digest)?;
        let tags = tags_in(memory).get(..tags_of(self.leaves)).unwrap_or_default();
        out.bytes(tags.as_flattened())?;
        Ok(out.finish())
    }

    /// Creates a verifier that continues from a snapshot that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a snapshot, or the chain's blocks are larger than the
    /// memory allows (`FieldOutOfRange`).
    pub fn restore(
        snapshot: &[u8],
        memory: &mut [[u8; BYTES_PER_MESSAGE]],
    ) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(snapshot)?;
        reader.array(12)?;
        reader.version()?;
        let outline = Outline::read(&mut reader)?;
        let current: u32 = reader.uint()?;
        let (digest, tags) = (reader.fixed()?, reader.bytes()?);
        let is_there = (1..=outline.blocks() + 1).contains(&current);
        if !is_there || tags.len() != 8 * tags_of(outline.in_block(current)) {
            return Err(DecodeError::FieldOutOfRange);
        }
        Self::at(outline, current, digest, tags, memory).map_err(|_| DecodeError::FieldOutOfRange)
    }
}

/// Returns a mask with the lowest `leaves` bits set.
const fn every(leaves: u8) -> u64 {
    match leaves {
        0 => 0,
        leaves => u64::MAX >> (MAX_PER_BLOCK - leaves),
    }
}

#[inline]
fn read_tags(bytes: &[u8], tags: &mut [[u8; 8]]) {
    for (tag, bytes) in tags.iter_mut().zip(bytes.as_chunks().0) {
        *tag = *bytes;
    }
}
