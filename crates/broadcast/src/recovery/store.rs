//! What a node keeps outside its own memory: flash, a file, a map.

use crate::wire::BroadcastFrame;
use crate::{ChainNumber, ChainRef, KeyId};
use moteseal_core::cbor::{BufferTooSmall, Writer};

/// Something a node keeps. All of it has been found to be genuine, or to carry the tag of what is (a leaf of the block under way).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// The latest certificate of a sender's key.
    Certificate(KeyId),
    /// The latest revocation by a base station, by its place in the settings.
    Revocation(u8),
    /// The certificate under which the head of a chain was accepted.
    ChainCertificate(ChainRef),
    /// The head of a chain.
    Head(ChainRef),
    /// A leaf of a chain.
    Leaf {
        /// The chain.
        chain: ChainRef,
        /// The block, from 1.
        block: u32,
        /// The leaf's place in it, from 0.
        index: u8,
    },
}

impl Item {
    /// Writes what precedes the item's bytes in the frame that carries it.
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

/// Where a node keeps things. `raise` and `raise_minimum` MUST make durable what they are given and everything that was kept before;
/// nothing else needs to be durable at once. After an error the node has not taken what it was told, and takes it when it comes again.
pub trait Store {
    /// Why something was not kept or found.
    type Error;

    /// Keeps an item, in place of what was kept under that name.
    ///
    /// # Errors
    /// Those of the store.
    fn keep(&mut self, item: Item, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Writes what is kept to the start of `out`; `None` if nothing is, or if it is longer than `out`.
    ///
    /// # Errors
    /// Those of the store.
    fn fetch<'b>(&mut self, item: Item, out: &'b mut [u8])
    -> Result<Option<&'b [u8]>, Self::Error>;

    /// Whether exactly these bytes are kept.
    ///
    /// # Errors
    /// Those of the store.
    fn is_kept(&mut self, item: Item, bytes: &[u8]) -> Result<bool, Self::Error>;

    /// Forgets the leaves of a block: some of them were forged, and nobody can tell which.
    ///
    /// # Errors
    /// Those of the store.
    fn forget_block(&mut self, chain: ChainRef, block: u32) -> Result<(), Self::Error>;

    /// Forgets a chain that will not become complete.
    ///
    /// # Errors
    /// Those of the store.
    fn forget(&mut self, chain: ChainRef) -> Result<(), Self::Error>;

    /// A complete chain that the node no longer answers for, because others need its place. An archive keeps it, a mote frees it.
    ///
    /// # Errors
    /// Those of the store.
    fn retire(&mut self, chain: ChainRef) -> Result<(), Self::Error>;

    /// Makes durable that no chain up to `number` that `key` signed may be accepted any more. Keys do not share what they have raised: who has
    /// stolen one and says the highest number silences that one alone.
    ///
    /// # Errors
    /// Those of the store.
    fn raise(&mut self, key: KeyId, number: ChainNumber) -> Result<(), Self::Error>;

    /// What was raised last for `key`.
    ///
    /// # Errors
    /// Those of the store.
    fn floor(&mut self, key: KeyId) -> Result<Option<ChainNumber>, Self::Error>;

    /// Makes durable that no certificate of the base station at place `base` in the settings with a serial below `minimum` is valid.
    ///
    /// # Errors
    /// Those of the store.
    fn raise_minimum(&mut self, base: u8, minimum: u64) -> Result<(), Self::Error>;

    /// What was raised last for that base station; 0 if nothing was.
    ///
    /// # Errors
    /// Those of the store.
    fn minimum(&mut self, base: u8) -> Result<u64, Self::Error>;
}
