//! The store of a sender's node. It contains only the sender's own chains, and reads their messages
//! from the lines or the file. A message that has changed since the chain was signed is not sent.

use std::collections::VecDeque;
use std::io;

use moteseal_broadcast::recovery::{Item, Store};
use moteseal_broadcast::{
    ChainNumber, ChainRef, ContentChanged, KeyId, MAX_MESSAGE, OutgoingChain, Revoked,
};

use super::content::Content;
use super::error::SendError;

/// A chain that is being sent.
pub(super) enum Own<'s> {
    /// A chain whose leaves are created when they are sent.
    Lazy {
        /// The digests and tags of the chain.
        chain: &'s OutgoingChain<'s>,
        /// The messages.
        content: &'s Content,
        /// The signed head.
        head: Vec<u8>,
    },
    /// A chain of a single message, which is in memory.
    Single {
        /// The signed head.
        head: Vec<u8>,
        /// The message, which is the only leaf.
        message: Vec<u8>,
    },
}

impl Own<'_> {
    fn head(&self) -> &[u8] {
        match self {
            Self::Lazy { head, .. } | Self::Single { head, .. } => head,
        }
    }
}

/// The sender's certificate and its newest chains.
pub(super) struct OwnChains<'s> {
    certificate: &'s [u8],
    most: usize,
    chains: VecDeque<(ChainRef, Own<'s>)>,
    message: Vec<u8>,
}

impl<'s> OwnChains<'s> {
    /// Creates a store that keeps the newest `most` chains.
    pub(super) fn new(certificate: &'s [u8], most: usize) -> Self {
        Self { certificate, most, chains: VecDeque::new(), message: vec![0; MAX_MESSAGE] }
    }

    pub(super) fn add(&mut self, chain: ChainRef, own: Own<'s>) {
        while self.chains.len() >= self.most {
            self.chains.pop_front();
        }
        self.chains.push_back((chain, own));
    }

    pub(super) fn has(&self, chain: ChainRef) -> bool {
        self.own(chain).is_some()
    }

    /// Returns the length of the longest leaf of a chain, at most; 0 if the chain is not known.
    pub(super) fn longest_leaf(&self, chain: ChainRef) -> usize {
        match self.own(chain) {
            Some(Own::Lazy { chain, .. }) => {
                let outline = chain.outline();
                usize::from(outline.longest) + 32 + 8 * usize::from(outline.largest_block())
            }
            Some(Own::Single { message, .. }) => message.len(),
            None => 0,
        }
    }

    /// Returns the items that a request for a block can mean: its leaves, or for block 0 the head
    /// and the certificate.
    pub(super) fn items(&self, chain: ChainRef, block: u32) -> u64 {
        let leaves = match (self.own(chain), block) {
            (None, _) | (_, 0) => 2,
            (Some(Own::Lazy { chain, .. }), block) => chain.in_block(block),
            (Some(Own::Single { .. }), block) => u8::from(block == 1),
        };
        u64::MAX.checked_shr(64 - u32::from(leaves)).unwrap_or(0)
    }

    fn own(&self, chain: ChainRef) -> Option<&Own<'s>> {
        self.chains.iter().rev().find(|(of, _)| *of == chain).map(|(_, own)| own)
    }
}

fn copy<'b>(bytes: &[u8], out: &'b mut [u8]) -> Option<&'b [u8]> {
    let out = out.get_mut(..bytes.len())?;
    out.copy_from_slice(bytes);
    Some(out)
}

impl Store for OwnChains<'_> {
    type Error = SendError;
    const REPAIRS: bool = true;

    /// Does nothing. The sender adds its chains before its node knows of them, and the node does
    /// not follow the chains of other senders.
    fn keep(&mut self, _: Item, _: &[u8]) -> Result<(), SendError> {
        Ok(())
    }

    fn fetch<'b>(&mut self, item: Item, out: &'b mut [u8]) -> Result<Option<&'b [u8]>, SendError> {
        Ok(match item {
            Item::Certificate(_) | Item::ChainCertificate(_) => copy(self.certificate, out),
            Item::Revocation(_) => None,
            Item::Head(chain) => self.own(chain).and_then(|own| copy(own.head(), out)),
            Item::Leaf { chain, block, index } => {
                let place = self.chains.iter().rev().find(|(of, _)| *of == chain);
                match place.map(|(_, own)| own) {
                    None => None,
                    Some(Own::Single { message, .. }) => copy(message, out),
                    Some(Own::Lazy { chain, content, .. }) => {
                        let number = chain.outline().message(block, index);
                        let changed = || SendError::ContentChanged { message: Some(number) };
                        let length = match content.read(number, &mut self.message) {
                            Ok(length) => length,
                            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                                return Err(changed());
                            }
                            Err(error) => return Err(SendError::Read(error)),
                        };
                        let message = self.message.get(..length).unwrap_or_default();
                        match chain.leaf(block, index, message, out).map(<[u8]>::len) {
                            Ok(length) => out.get(..length),
                            Err(ContentChanged::ContentChanged) => return Err(changed()),
                            Err(_) => None,
                        }
                    }
                }
            }
        })
    }

    fn is_kept(&mut self, item: Item, bytes: &[u8]) -> Result<bool, SendError> {
        let mut kept = vec![0; bytes.len()];
        Ok(self.fetch(item, &mut kept)? == Some(bytes))
    }

    fn forget_block(&mut self, _: ChainRef, _: u32) -> Result<(), SendError> {
        Ok(())
    }

    fn forget(&mut self, _: ChainRef) -> Result<(), SendError> {
        Ok(())
    }

    fn retire(&mut self, _: ChainRef) -> Result<(), SendError> {
        Ok(())
    }

    /// Does nothing. [`ChainNumbers`](super::ChainNumbers) makes a number durable before the chain
    /// is created.
    fn raise(&mut self, _: KeyId, _: ChainNumber) -> Result<(), SendError> {
        Ok(())
    }

    fn floor(&mut self, _: KeyId) -> Result<Option<ChainNumber>, SendError> {
        Ok(None)
    }

    fn revoke(&mut self, _: u8, _: &Revoked) -> Result<(), SendError> {
        Ok(())
    }

    fn revoked(&mut self, _: u8) -> Result<Revoked, SendError> {
        Ok(Revoked::NONE)
    }
}
