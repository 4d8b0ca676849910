//! The frames that a node exchanges with a sender with whom it shares a key (spec/broadcast.md,
//! section 7.4). Its requests are authenticated, so that the sender waits for them. While more
//! heads arrive than the node can check, it asks the sender for the newest head. The answer has a
//! tag, which is cheap to check, and its signature is checked at once.

use crate::Head;
use crate::receipt::{HeadRequest, ReceiverKey, ReceiverTag, Request, is_tag};
use crate::recovery::receive::refused;
use crate::recovery::*;

/// The maximum random delay of the first request for the newest head, in milliseconds.
const FIRST_MS: u32 = 250;
/// The shortest interval between two of these requests, and the maximum random time that is added,
/// in milliseconds.
const EVERY_MS: (u32, u32) = (1_000, 500);

impl<'a, const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'a, SENDERS, CHAINS, B> {
    /// Sets the keys that the node shares with senders of its network, at most one for each sender.
    pub const fn set_receiver_keys(&mut self, keys: &'a [ReceiverKey]) {
        self.receiver_keys = keys;
    }

    /// Returns the keys that the node shares with senders.
    #[must_use]
    pub const fn receiver_keys(&self) -> &'a [ReceiverKey] {
        self.receiver_keys
    }

    /// Returns the key that the node shares with a sender.
    fn receiver_key(&self, sender: DeviceId) -> Option<&'a ReceiverKey> {
        let network = self.settings.network;
        self.receiver_keys.iter().find(|key| (key.network(), key.sender()) == (network, sender))
    }

    /// Returns a request for leaves of a chain, or for its head. The request is authenticated if
    /// the node shares a key with the chain's sender. For a chain whose sender it does not know, it
    /// uses its only key, if it has one.
    pub(super) fn request_frame(
        &mut self,
        chain: ChainRef,
        block: u32,
        wanted: u64,
    ) -> BroadcastFrame<'static> {
        let plain = BroadcastFrame::Wanted { chain, block, wanted };
        if chain == ANY_CHAIN {
            return plain;
        }
        let sender = self.tracked(chain).map(|tracked| tracked.outline.id.sender);
        let sender = sender.or_else(|| {
            self.senders.iter().flatten().find(|of| of.next == chain).map(|sender| sender.id)
        });
        let key = match (sender, self.receiver_keys) {
            (Some(sender), _) => self.receiver_key(sender),
            (None, [key]) if key.network() == self.settings.network => Some(key),
            (None, _) => None,
        };
        let Some(key) = key else { return plain };
        self.attempts = self.attempts.saturating_add(1);
        let request = Request { chain, block, wanted, attempt: self.attempts };
        BroadcastFrame::ReceiverWanted {
            chain,
            block,
            wanted,
            attempt: self.attempts,
            receiver: key.position(),
            tag: key.request(&request),
        }
    }

    /// Asks the sender in a slot for its newest head, because a head that claims to be the sender's
    /// could not be checked.
    pub(super) fn note_flooded(&mut self, place: usize) {
        let due = self.within(FIRST_MS);
        let Some(sender) = self.senders.get(place).and_then(Option::as_ref) else { return };
        if self.receiver_key(sender.id).is_some()
            && let Some(Some(sender)) = self.senders.get_mut(place)
        {
            // While a request is planned, further heads do not change its time.
            if sender.head_due == u64::MAX {
                sender.head_due = due;
            }
        }
    }

    /// Asks the sender in a slot for its newest head, and plans the next request.
    pub(super) fn send_head_wanted(&mut self, place: usize, out: &mut [u8]) -> Option<Transmit> {
        let next = self.within(EVERY_MS.1).saturating_add(u64::from(EVERY_MS.0));
        let is_flooded = self.clock < self.contended;
        let sender = self.senders.get_mut(place)?.as_mut()?;
        sender.head_due = if is_flooded { next } else { u64::MAX };
        let (id, key, above) = (sender.id, sender.key_id, sender.floor.map_or(0, |floor| floor.0));
        if !is_flooded {
            return None;
        }
        let own = self.receiver_key(id)?;
        let tag = own.head_request(&HeadRequest { key, above });
        let frame = BroadcastFrame::HeadWanted { key, above, receiver: own.position(), tag };
        send::transmit(&frame, self.settings.links, Purpose::Request, out)
    }

    /// Processes a head that a sender sends to one receiver. If the tag is right, the signature is
    /// checked at once: only the sender can make the tag.
    pub(super) fn receive_head_for<S: Store>(
        &mut self,
        (now, link): (Now, u8),
        receiver: u32,
        tag: &ReceiverTag,
        head: &[u8],
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let Ok(claim) = Head::peek(head) else { return Ok(refused(RefusedBroadcast::Malformed)) };
        let Some(key) = self.receiver_key(claim.id().sender) else { return Ok(Event::Nothing) };
        if key.position() != receiver || self.tracked(claim.reference()).is_some() {
            return Ok(Event::Nothing);
        }
        if !is_tag(&key.head(head), tag) {
            return Ok(refused(RefusedBroadcast::NotAuthentic));
        }
        self.receive_head(now, link, head, None, true, store)
    }
}
