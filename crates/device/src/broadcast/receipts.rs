//! The receipts of a watcher (spec/broadcast.md, section 7).
//!
//! A watcher acknowledges a chain when it has delivered all its messages, or holds the complete
//! chain until its window begins. What it has delivered is durable, so that it can acknowledge the
//! chain again after a restart. A watcher with several links passes on the receipts of others.

use std::collections::VecDeque;

use moteseal_broadcast::receipt::{ReceiptRelay, ReceiverKey};
use moteseal_broadcast::recovery::{Item, LinkSet, Now, Purpose, Store as _, Transmit};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{ChainRef, MAX_HEAD};

use super::delivery::Watched;
use super::watcher::{WatchError, Watcher, Withheld};

/// The number of chains whose receipts are sent or passed on at the same time.
const CHAINS: usize = 16;
/// Room for the positions of a sender's list, 64 in each word.
const WORDS: usize = 512;
/// The maximum number of frames that wait to be passed on.
const PASSED: usize = 64;

/// The receipts of a watcher, and the frames that it passes on.
pub(super) struct WatcherReceipts<'a> {
    keys: &'a [ReceiverKey],
    relay: Box<ReceiptRelay<CHAINS, WORDS>>,
    passed: VecDeque<(LinkSet, Vec<u8>)>,
}

impl<'a> WatcherReceipts<'a> {
    /// Creates the receipts of a watcher. `repeats` as in `Options`.
    pub(super) fn new(
        keys: &'a [ReceiverKey],
        (links, repeats): (LinkSet, bool),
        spread_ms: u32,
        seed: u64,
    ) -> Self {
        let mut relay = Box::new(ReceiptRelay::new(links, spread_ms, seed));
        if repeats {
            relay.set_repeating();
        }
        Self { keys, relay, passed: VecDeque::new() }
    }

    /// Returns the keys that the watcher shares with senders.
    pub(super) const fn keys(&self) -> &'a [ReceiverKey] {
        self.keys
    }

    /// Notes that a verified part of a chain has arrived on a link.
    pub(super) fn note(&mut self, chain: ChainRef, link: u8) {
        if !self.relay.is_following(chain) {
            self.relay.follow(chain, LinkSet::one(link));
        }
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        if self.passed.is_empty() { self.relay.next_due() } else { Some(0) }
    }

    /// Writes the next frame that is due.
    pub(super) fn poll(&mut self, now: Now, out: &mut [u8]) -> Option<Transmit> {
        if let Some((links, frame)) = self.passed.pop_front() {
            out.get_mut(..frame.len())?.copy_from_slice(&frame);
            return Some(Transmit { links, length: frame.len(), purpose: Purpose::Relay });
        }
        self.relay.poll(now.ms, out)
    }
}

impl Watcher<'_> {
    /// Processes a frame of receipts, a request for receipts, or a frame that a relay passes on.
    pub(super) fn receive_receipts(
        &mut self,
        now: Now,
        link: u8,
        decoded: &BroadcastFrame<'_>,
        frame: &[u8],
    ) -> Result<(), WatchError> {
        if let BroadcastFrame::ReceiptsWanted { chain, .. } = decoded
            && self.archive.has(*chain)
        {
            // After a restart, the sender is on the link from which it asks.
            self.receipts.note(*chain, link);
            self.acknowledge(now, *chain)?;
        }
        let links = self.receipts.relay.receive(now.ms, link, decoded);
        if !links.is_empty() && self.receipts.passed.len() < PASSED {
            self.receipts.passed.push_back((links, frame.to_vec()));
        }
        Ok(())
    }

    /// Acknowledges a chain if its messages were delivered, or the complete chain is held until its
    /// window begins, and the watcher shares a key with the sender.
    pub(super) fn acknowledge(&mut self, now: Now, chain: ChainRef) -> Result<(), WatchError> {
        let receipts = &self.receipts;
        if receipts.keys.is_empty()
            || !receipts.relay.is_following(chain)
            || receipts.relay.has_acknowledged(chain)
        {
            return Ok(());
        }
        let watched = self.head(chain)?;
        let id = watched.outline.id;
        let is_own = |key: &&ReceiverKey| (key.network(), key.sender()) == (id.network, id.sender);
        let Some(key) = self.receipts.keys.iter().find(is_own) else { return Ok(()) };
        if !self.is_kept_safe(chain, &watched) {
            return Ok(());
        }
        let mut head = [0; MAX_HEAD];
        let head = self.archive.fetch(Item::Head(chain), &mut head)?;
        let tag = key.receipt(head.ok_or(WatchError::Damaged(chain))?);
        self.receipts.relay.acknowledge(now.ms, chain, key.position(), tag);
        Ok(())
    }

    /// Returns whether all messages of a chain were delivered, or the complete chain is held until
    /// its window begins.
    fn is_kept_safe(&self, chain: ChainRef, watched: &Watched) -> bool {
        let held = self.held.get(&chain);
        self.archive.noted(chain) == watched.delivered()
            || held.is_some_and(|held| held.is_complete && held.reported == Some(Withheld::Early))
    }
}
