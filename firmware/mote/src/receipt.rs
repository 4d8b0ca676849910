//! The receipts of a mote that shares a key with a sender (spec/broadcast.md, section 7; spec/mote.md,
//! section 4).
//!
//! The mote acknowledges a chain of commands if it has acted on every message of it. It keeps the
//! receipt of one chain in RAM, so that it can send the receipt again when the sender asks. After a
//! reboot it has none, except that of a command to install (spec/update.md, section 2.3).

use moteseal_broadcast::ChainRef;
use moteseal_broadcast::receipt::{ReceiverKey, ReceiverTag, receivers};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_core::cbor::Writer;
use moteseal_core::participation::Participation;
use moteseal_core::provision::Audience;

/// The maximum delay of a receipt, and the shortest time between two receipts, in milliseconds.
const SPREAD_MS: u64 = 1_000;

/// Returns the key that a mote shares with a sender, if its provisioning has one.
#[must_use]
pub fn receiver_key(audience: &Audience) -> Option<ReceiverKey> {
    let shared = audience.shared.as_ref()?;
    Some(ReceiverKey::new(audience.network, shared.sender, shared.position, &shared.key))
}

/// A receipt that was sent, or is to be sent.
struct Receipt {
    chain: ChainRef,
    position: u32,
    tag: ReceiverTag,
    /// When to send it; `None` if it is not to be sent now.
    due: Option<u64>,
    /// When it was last sent.
    sent: u64,
}

/// The receipts of a mote.
#[derive(Default)]
pub(crate) struct OwnReceipts {
    /// The chain on which the mote acts, and the last of its blocks on all of whose messages, and
    /// those before them, it has acted.
    acted: Option<(ChainRef, u32)>,
    receipt: Option<Receipt>,
}

impl OwnReceipts {
    /// Notes that the mote has acted on the message of a block.
    pub(crate) fn note_acted(&mut self, chain: ChainRef, block: u32) {
        if block == 1 || self.acted == Some((chain, block.saturating_sub(1))) {
            self.acted = Some((chain, block));
        }
    }

    /// Acknowledges a chain if the mote has acted on every message up to the block `last`, which is
    /// the last one. `head` is the head of the chain.
    pub(crate) fn complete(
        &mut self,
        now_ms: u64,
        key: &ReceiverKey,
        (chain, last): (ChainRef, u32),
        head: &[u8],
    ) {
        if self.acted == Some((chain, last)) {
            self.owe(Some(now_ms), chain, key.position(), key.receipt(head));
        }
    }

    /// Notes that the mote has acted on the whole chain, whose last block is `last`.
    pub(crate) const fn note_whole(&mut self, chain: ChainRef, last: u32) {
        self.acted = Some((chain, last));
    }

    /// Keeps a receipt with this tag, to send it on request. If `now_ms` is given, also sends it
    /// soon.
    #[inline(never)]
    pub(crate) fn owe(
        &mut self,
        now_ms: Option<u64>,
        chain: ChainRef,
        position: u32,
        tag: ReceiverTag,
    ) {
        let due = now_ms.map(|now_ms| now_ms.saturating_add(delay_ms(&tag)));
        self.receipt = Some(Receipt { chain, position, tag, due, sent: now_ms.unwrap_or(0) });
    }

    /// Processes a request for receipts.
    pub(crate) fn asked(&mut self, now_ms: u64, chain: ChainRef, set: &[u8]) {
        if let Some(receipt) = &mut self.receipt
            && receipt.chain == chain
            && receipt.due.is_none()
            && now_ms >= receipt.sent.saturating_add(SPREAD_MS)
            && receivers(set).is_ok_and(|set| set.runs().any(|run| run.contains(&receipt.position)))
        {
            receipt.due = Some(now_ms.saturating_add(delay_ms(&receipt.tag)));
        }
    }

    /// If a receipt is due, writes its frame to `out` and returns the length.
    pub(crate) fn next(&mut self, now_ms: u64, out: &mut [u8]) -> Option<usize> {
        let receipt = self.receipt.as_mut()?;
        receipt.due.take_if(|due| now_ms >= *due)?;
        receipt.sent = now_ms;
        let mut set = [0; 8];
        let length = Participation::encode_one(receipt.position, &mut set).ok()?;
        let mut writer = Writer::new(out);
        let (chain, receivers, tag) = (receipt.chain, set.get(..length)?, receipt.tag);
        BroadcastFrame::Receipts { chain, receivers, tag }.encode(&mut writer).ok()?;
        Some(writer.position())
    }
}

/// Returns a delay that differs between motes and chains.
fn delay_ms(tag: &ReceiverTag) -> u64 {
    u64::from(u16::from_be_bytes([tag[0], tag[1]])) % SPREAD_MS
}
