//! The storage of a node outside the `Node` value, for example in flash, in a file or in a map.

use crate::wire::BroadcastFrame;
use crate::{ChainNumber, ChainRef, KeyId, Revoked};
use moteseal_core::cbor::{BufferTooSmall, Writer};
use moteseal_core::record::DeviceId;

/// An item that a node stores. Each item was verified before it was stored. The leaves of the
/// current block are an exception: they have only matched their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// The latest certificate of a sender's key.
    Certificate(KeyId),
    /// The latest revocation by a base station, given by its index in the settings.
    Revocation(u8),
    /// The certificate under which the head of a chain was accepted.
    ChainCertificate(ChainRef),
    /// The head of a chain.
    Head(ChainRef),
    /// A leaf of a chain.
    Leaf {
        /// The chain.
        chain: ChainRef,
        /// The block, counted from 1.
        block: u32,
        /// The leaf's index in the block, counted from 0.
        index: u8,
    },
}

impl Item {
    /// Writes the part of the item's frame before the item's bytes.
    pub(super) fn begin_frame(self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        match self {
            Self::Certificate(_) | Self::ChainCertificate(_) => {
                BroadcastFrame::begin_certificate(out)
            }
            Self::Revocation(_) => BroadcastFrame::begin_revocation(out),
            Self::Head(_) => BroadcastFrame::begin_head(out),
            Self::Leaf { chain, block, index } => {
                BroadcastFrame::begin_fragment(chain, block, index, out)
            }
        }
    }
}

/// A chain that a node has missed: a later head of the same key names it, and the node has not
/// accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedChain {
    /// The chain.
    pub chain: ChainRef,
    /// The chain's sender.
    pub sender: DeviceId,
    /// The sender's key.
    pub key: KeyId,
    /// The chain's number.
    pub number: ChainNumber,
    /// The highest number that the node had accepted under the key before it accepted a later one.
    /// Chains up to this number are not missed. `None` if the node knew no chain of the key.
    pub above: Option<ChainNumber>,
    /// How many chains before this one the node may also note as missed.
    pub left: u8,
}

/// A node's storage. [`raise`](Self::raise) and [`revoke`](Self::revoke) MUST make their argument
/// durable, together with all items that were stored before. The other methods need
/// not make their changes durable at once. If a method fails, the node does not accept the frame
/// that caused the call; it accepts the frame when it arrives again.
pub trait Store {
    /// The error of the storage.
    type Error;

    /// Whether the node sends repairs and computes leaves from them (spec/broadcast.md, section
    /// 5.1). For this it reads up to eight leaves for one frame, and needs 18 KiB of stack.
    const REPAIRS: bool = false;

    /// Stores an item. Replaces an earlier value of the same item.
    ///
    /// # Errors
    /// The errors of the storage.
    fn keep(&mut self, item: Item, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Reads an item into the start of `out`. Returns `None` if the item is not kept, or is longer
    /// than `out`.
    ///
    /// # Errors
    /// The errors of the storage.
    fn fetch<'b>(&mut self, item: Item, out: &'b mut [u8])
    -> Result<Option<&'b [u8]>, Self::Error>;

    /// Returns whether exactly these bytes are kept for the item.
    ///
    /// # Errors
    /// The errors of the storage.
    fn is_kept(&mut self, item: Item, bytes: &[u8]) -> Result<bool, Self::Error>;

    /// Deletes the leaves of a block. Some of them were forged, and the node cannot tell which.
    ///
    /// # Errors
    /// The errors of the storage.
    fn forget_block(&mut self, chain: ChainRef, block: u32) -> Result<(), Self::Error>;

    /// Deletes a chain that will not become complete.
    ///
    /// # Errors
    /// The errors of the storage.
    fn forget(&mut self, chain: ChainRef) -> Result<(), Self::Error>;

    /// Releases a complete chain for which the node no longer answers requests, because another
    /// chain needs its slot. An archive keeps the chain; a mote deletes it.
    ///
    /// # Errors
    /// The errors of the storage.
    fn retire(&mut self, chain: ChainRef) -> Result<(), Self::Error>;

    /// Durably stores that chains up to `number` under `key` are no longer accepted. Each key has
    /// its own number. An attacker that has stolen one key and uses the highest possible number
    /// therefore blocks only that key.
    ///
    /// # Errors
    /// The errors of the storage.
    fn raise(&mut self, key: KeyId, number: ChainNumber) -> Result<(), Self::Error>;

    /// Returns the number that was last passed to [`raise`](Self::raise) for `key`.
    ///
    /// # Errors
    /// The errors of the storage.
    fn floor(&mut self, key: KeyId) -> Result<Option<ChainNumber>, Self::Error>;

    /// Notes a missed chain: the node then requests its head, and accepts it although its number is
    /// not above the highest one. The note becomes durable with the next [`raise`](Self::raise) or
    /// [`found`](Self::found). Returns whether the chain was noted. A store without memory for
    /// notes returns `false`: the node then never accepts a missed chain.
    ///
    /// # Errors
    /// The errors of the storage.
    fn miss(&mut self, _: &MissedChain) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// Returns the note of a missed chain, if there is one.
    ///
    /// # Errors
    /// The errors of the storage.
    fn missed(&mut self, _: ChainRef) -> Result<Option<MissedChain>, Self::Error> {
        Ok(None)
    }

    /// Returns the first block of a chain of blocks of one message that the store lacks, and the
    /// digest of this block. The node then accepts the head again, also if its number is not above
    /// the highest one, and continues there. Returns `None` to begin with the first block.
    ///
    /// # Errors
    /// The errors of the storage.
    fn reached(&mut self, _: ChainRef) -> Result<Option<(u32, [u8; 32])>, Self::Error> {
        Ok(None)
    }

    /// Durably removes the note of a missed chain, because the node accepts the chain now, together
    /// with all items that were stored before.
    ///
    /// # Errors
    /// The errors of the storage.
    fn found(&mut self, _: ChainRef) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Durably stores all that a base station has revoked. `base` is the base station's index in the
    /// settings. The value covers the earlier one.
    ///
    /// # Errors
    /// The errors of the storage.
    fn revoke(&mut self, base: u8, revoked: &Revoked) -> Result<(), Self::Error>;

    /// Returns the value that was last passed to [`revoke`](Self::revoke) for `base`;
    /// [`Revoked::NONE`] if it was never called.
    ///
    /// # Errors
    /// The errors of the storage.
    fn revoked(&mut self, base: u8) -> Result<Revoked, Self::Error>;
}
