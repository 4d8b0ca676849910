//! Chains for named receivers (spec/broadcast.md, section 8): whether this watcher is one of them,
//! and how it reads the content.

use moteseal_broadcast::address::{AddressError, AddressReader, AddressStart, Opened};
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::recovery::{Item, Store as _};
use moteseal_broadcast::{ChainRef, MAX_LABEL, Outline};

use super::watcher::{WatchError, Watcher};

/// The maximum number of chains whose addresses are remembered. They can be read again.
const MOST: usize = 64;

/// The content of an addressed chain that this watcher can read.
#[derive(Clone, Debug)]
pub(super) struct OwnContent {
    opened: Opened,
    pub(super) label: String,
}

/// What the address of a chain says about this watcher.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Own(OwnContent),
    /// The watcher does not deliver the chain. This was reported.
    Not,
}

impl OwnContent {
    /// Returns the parameters of the chain without its address.
    pub(super) fn shown(&self, outline: &Outline) -> Outline {
        Outline { messages: outline.messages.saturating_sub(self.opened.address), ..*outline }
    }

    /// Returns the number and the content of a verified message of the chain; `None` if it belongs
    /// to the address only.
    ///
    /// # Errors
    /// [`AddressError`] if a chain of one message is malformed.
    pub(super) fn read(
        &self,
        number: u32,
        message: &[u8],
    ) -> Result<Option<(u32, Vec<u8>)>, AddressError> {
        let Some((number, content)) = self.opened.content(number, message)? else {
            return Ok(None);
        };
        let mut content = content.to_vec();
        self.opened.cipher.apply(number, &mut content);
        Ok(Some((number, content)))
    }
}

/// A part of an address that was read: the blocks before `next`.
pub(super) struct Reading {
    chain: ChainRef,
    next: u32,
    reader: AddressReader,
    /// The first message.
    first: Vec<u8>,
}

impl Watcher<'_> {
    /// Returns what the address of a chain says, and why the watcher does not deliver the chain if
    /// that was not reported before. Returns `None` if the address is not verified completely.
    /// `verified` is the number of verified blocks.
    pub(super) fn address(
        &mut self,
        chain: ChainRef,
        outline: &Outline,
        verified: u32,
    ) -> Result<Option<(Address, Option<AddressError>)>, WatchError> {
        if let Some(address) = self.addresses.get(&chain) {
            return Ok(Some((address.clone(), None)));
        }
        let (address, why) = match self.read_address(chain, outline, verified)? {
            Ok(None) => return Ok(None),
            Ok(Some(own)) => (Address::Own(own), None),
            Err(why) => (Address::Not, Some(why)),
        };
        if self.addresses.len() >= MOST {
            let is_old = |of: &ChainRef| !self.held.contains_key(of);
            if let Some(old) = self.addresses.keys().copied().find(is_old) {
                self.addresses.remove(&old);
            }
        }
        self.addresses.insert(chain, address.clone());
        Ok(Some((address, why)))
    }

    fn read_address(
        &mut self,
        chain: ChainRef,
        outline: &Outline,
        verified: u32,
    ) -> Result<Result<Option<OwnContent>, AddressError>, WatchError> {
        let id = outline.id;
        let is_own = |key: &&ReceiverKey| (key.network(), key.sender()) == (id.network, id.sender);
        let key = self.receipts.keys().iter().find(is_own);
        if key.is_none() {
            return Ok(Err(AddressError::NoReceiverKey));
        }
        // Go on after the blocks that were read before, so that a long address is read once.
        let begun = self.reading.take_if(|begun| begun.chain == chain);
        let Reading { next, mut reader, mut first, .. } = begun.unwrap_or_else(|| Reading {
            chain,
            next: 1,
            reader: AddressReader::new(outline),
            first: Vec::new(),
        });
        'blocks: for block in next..=verified {
            for index in 0..outline.in_block(block) {
                let item = Item::Leaf { chain, block, index };
                let leaf = self.archive.fetch(item, &mut self.leaf)?;
                let is_last = index + 1 == outline.in_block(block);
                let before = if is_last { outline.trailer(block) } else { 0 };
                let message = leaf.and_then(|leaf| leaf.get(before..));
                let message = message.ok_or(WatchError::Damaged(chain))?;
                if (block, index) == (1, 0) {
                    first = message.to_vec();
                }
                if let Err(error) = reader.take(key, message) {
                    return Ok(Err(error));
                }
                if reader.is_complete() {
                    break 'blocks;
                }
            }
        }
        if !reader.is_complete() {
            let next = next.max(verified.saturating_add(1));
            self.reading = Some(Reading { chain, next, reader, first });
            return Ok(Ok(None));
        }
        Ok(reader.open().and_then(|opened| {
            let start = AddressStart::decode(&first, outline.messages)?;
            let mut label = [0; MAX_LABEL];
            let label = opened.cipher.label(&start, &mut label)?.to_owned();
            Ok(Some(OwnContent { opened, label }))
        }))
    }
}
