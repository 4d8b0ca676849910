//! What an endpoint stores about one peer, and the message layer between them (RFC 7252, section 4):
//! retransmission, message ids, detection of duplicates, and the limit on what is sent to an address
//! that is not validated.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand_core::Rng as _;

use super::blocks::Mark;
use super::config::{Owner, Peer};
use super::endpoint::Shared;
use super::exchange::Request;
use super::message::{Block, Code, Kind, Message, Token};
use super::transfer::Transfer;

/// The number of groups of message ids. An id is used again when its whole group is free.
const GROUPS: usize = 16;
/// The length of the headers of IPv4 and UDP, which the limit on amplification counts.
const HEADERS: u64 = 28;
/// The maximum ratio of the bytes that are sent to an address and those received from it, while the
/// address is not validated (as in RFC 9000, section 8.1).
const AMPLIFICATION: u64 = 3;
/// Every one of so many notifications of a periodic representation is confirmable.
pub const CONFIRMED: u8 = 20;
/// A notification that is sent this long after the last confirmable one is confirmable; RFC 7641,
/// section 4.5, requires one in 24 hours.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(23 * 3600);

/// The state of a peer.
pub(super) struct State {
    pub(super) owner: Owner,
    ids: MessageIds,
    pub(super) active: Vec<Outgoing>,
    waiting: VecDeque<Outgoing>,
    /// When a message may be sent that waits for a free message id.
    held: Option<Instant>,
    seen: VecDeque<Seen>,
    seen_bytes: usize,
    pub(super) incoming: Vec<Incoming>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) observers: Vec<Observer>,
    budget: Option<Budget>,
    /// Whether the peer returned the id of a message.
    answers: bool,
    /// Whether the peer returned an id that no message has. It may be guessing.
    guesses: bool,
    /// The id of a ping that was withdrawn. Its answer may still arrive.
    withdrawn: Option<u16>,
    /// The entry of this peer in the endpoint's schedule.
    pub(super) scheduled: Option<Instant>,
    /// The second of the last datagram, for the order in which peers are forgotten.
    pub(super) used: u64,
}

/// The bytes that were received from and sent to an address that is not validated.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    received: u64,
    sent: u64,
}

/// The purpose of a confirmable message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A message of the transfer with this number.
    Transfer(u64),
    /// A response, separate from the acknowledgement.
    Response,
    /// A notification of the observer with this token.
    Notification(Token),
    /// A ping, whose reset shows that an observer exists.
    Proof,
    /// A message whose loss has no consequence.
    Other,
}

/// A confirmable message that waits to be sent, or for its acknowledgement.
pub(super) struct Outgoing {
    message: Message,
    pub(super) purpose: Purpose,
    bytes: Vec<u8>,
    deadline: Instant,
    timeout: Duration,
    retransmissions: u8,
    /// The number of bytes that were sent, with all retransmissions.
    sent: u64,
}

/// A received message id.
struct Seen {
    id: u16,
    expires: Instant,
    /// What is sent again if the message arrives again.
    reply: Option<Bytes>,
}

/// A request that the user of the endpoint processes.
pub(super) struct Incoming {
    pub(super) number: u64,
    pub(super) reception: Reception,
    pub(super) request: Request,
    /// The tag of the request's body.
    pub(super) tag: Bytes,
    /// Identifies the request's body.
    pub(super) mark: Mark,
    /// The last block of the request's body, which the response repeats.
    pub(super) block1: Option<Block>,
    /// The block of the response's body that the client asks for.
    pub(super) block2: Option<Block>,
}

/// A message with a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reception {
    pub(super) kind: Kind,
    pub(super) id: u16,
    pub(super) token: Token,
    /// When the request is acknowledged without its response; `None` if it is acknowledged or need not
    /// be.
    pub(super) acknowledge: Option<Instant>,
}

/// An observer (RFC 7641).
pub(super) struct Observer {
    /// The number of the registration.
    pub(super) number: u64,
    pub(super) token: Token,
    pub(super) request: Request,
    /// The exponent of the blocks that the observer asked for.
    pub(super) exponent: u8,
    /// Whether a notification waits for its acknowledgement.
    pub(super) in_flight: bool,
    /// The newest representation, which is sent when the notification is acknowledged.
    pub(super) newest: Option<super::exchange::Response>,
    /// The notifications that need no acknowledgement.
    pub(super) unconfirmed: Unconfirmed,
}

/// The notifications of an observer that are not confirmable (RFC 7641, section 4.5).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unconfirmed {
    /// How many were sent since the last confirmable one.
    count: u8,
    /// When the last confirmable one was sent.
    confirmed: Option<Instant>,
    /// The message id of the newest one, by which the observer rejects it.
    id: Option<u16>,
}

impl Unconfirmed {
    /// Returns whether the next notification need not be confirmable.
    pub(super) fn may_follow(&self, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < CONFIRMED_WITHIN;
        self.count + 1 < CONFIRMED && self.confirmed.is_some_and(is_recent)
    }

    /// Notes that a notification with this message id was sent.
    pub(super) const fn sent(&mut self, id: u16) {
        (self.count, self.id) = (self.count + 1, Some(id));
    }

    /// Notes that a confirmable notification was sent.
    pub(super) const fn confirm(&mut self, now: Instant) {
        *self = Self { count: 0, confirmed: Some(now), id: None };
    }

    /// Returns whether the newest notification has this message id.
    pub(super) fn is(&self, id: u16) -> bool {
        self.id == Some(id)
    }
}

/// The own message ids. An id must not be used again within EXCHANGE_LIFETIME.
struct MessageIds {
    next: u16,
    /// For each group, when its ids may be used again, in milliseconds since the endpoint's start.
    free: [u64; GROUPS],
    /// While more than half of the ids are in use: when the next confirmable message may be sent.
    paced: u64,
}

impl MessageIds {
    const SIZE: u16 = u16::MAX / GROUPS as u16 + 1;
    /// The number of groups whose ids are used as fast as messages are sent.
    const FAST: usize = GROUPS / 2;
    /// The number of groups whose ids are then spread over EXCHANGE_LIFETIME. The rest is for replies
    /// to messages that are not confirmable, which do not wait.
    const SLOW: usize = 6;

    /// Returns the next id, or when it is free.
    fn take(&mut self, now_ms: u64, lifetime_ms: u64) -> Result<u16, u64> {
        let group = usize::from(self.next / Self::SIZE);
        let is_first = self.next.is_multiple_of(Self::SIZE);
        if is_first && self.free[group] > now_ms {
            return Err(self.free[group]);
        }
        self.free[group] = now_ms + lifetime_ms;
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        Ok(id)
    }

    /// Returns the next id for a confirmable message, or when it is free. Ids do not run out: when
    /// many are in use, the messages are sent at intervals.
    fn pace(&mut self, now_ms: u64, lifetime_ms: u64) -> Result<u16, u64> {
        if self.free.iter().filter(|free| **free > now_ms).count() > Self::FAST {
            if self.paced > now_ms {
                return Err(self.paced);
            }
            self.paced = now_ms + lifetime_ms / (Self::SLOW as u64 * u64::from(Self::SIZE));
        }
        self.take(now_ms, lifetime_ms)
    }
}

/// What happened to a confirmable message.
pub(super) enum Fate {
    /// The peer did not acknowledge it.
    Lost(Purpose),
}

impl State {
    pub(super) fn new(peer: Peer, shared: &mut Shared) -> Self {
        let next = (shared.rng.next_u32() >> 16) as u16;
        Self {
            owner: Owner::Peer(peer),
            ids: MessageIds { next, free: [0; GROUPS], paced: 0 },
            active: Vec::new(),
            waiting: VecDeque::new(),
            held: None,
            seen: VecDeque::new(),
            seen_bytes: 0,
            incoming: Vec::new(),
            transfers: Vec::new(),
            observers: Vec::new(),
            budget: (!peer.is_secure()).then(Budget::default),
            answers: false,
            guesses: false,
            withdrawn: None,
            scheduled: None,
            used: 0,
        }
    }

    /// Notes a datagram of the peer.
    pub(super) fn received(&mut self, length: usize) {
        if let Some(budget) = &mut self.budget {
            budget.received += length as u64 + HEADERS;
        }
    }

    /// Notes that this endpoint sends a request on its own account. It chose the address, so the
    /// limit does not apply, unless the peer sent something before.
    pub(super) fn contact(&mut self) {
        if self.budget.is_some_and(|budget| budget.received == 0) {
            self.budget = None;
        }
    }

    /// Notes that the peer receives what is sent to its address.
    pub(super) fn validate(&mut self) {
        self.budget = None;
    }

    /// Returns whether the peer probably receives what is sent to its address. Such a peer is
    /// preferred to others if there are too many. The limit on amplification ends with
    /// [`validate`](Self::validate).
    pub(super) fn is_validated(&self) -> bool {
        self.budget.is_none() || self.answers
    }

    /// Returns whether the limit on amplification has ended.
    pub(super) const fn is_unlimited(&self) -> bool {
        self.budget.is_none()
    }

    /// Returns the number of bytes that a message to this peer may have.
    pub(super) fn room(&self) -> usize {
        self.budget.map_or(usize::MAX, |budget| {
            let room = (AMPLIFICATION * budget.received).saturating_sub(budget.sent + HEADERS);
            usize::try_from(room).unwrap_or(usize::MAX)
        })
    }

    /// Sends a datagram, unless the address is not validated and would receive too much. Returns the
    /// number of bytes that were sent, with their headers.
    pub(super) fn transmit(&mut self, peer: Peer, shared: &mut Shared, bytes: Bytes) -> u64 {
        if bytes.len() > self.room() {
            shared.counters.withheld += 1;
            return 0;
        }
        let sent = bytes.len() as u64 + HEADERS;
        if let Some(budget) = &mut self.budget {
            budget.sent += sent;
        }
        shared.send(peer, bytes);
        sent
    }

    /// Returns the next own message id, for a message that is not confirmable. While no id is free, the
    /// message is not sent.
    pub(super) fn id(&mut self, now: Instant, shared: &Shared) -> Option<u16> {
        self.ids.take(shared.ms(now), shared.lifetime_ms()).ok()
    }

    /// Sends a confirmable message, at once or when an earlier one is acknowledged. Returns false if too
    /// many messages wait.
    pub(super) fn confirm(
        &mut self,
        now: Instant,
        peer: Peer,
        shared: &mut Shared,
        (message, purpose): (Message, Purpose),
    ) -> bool {
        if self.waiting.len() >= shared.config.limits.outgoing {
            return false;
        }
        let (bytes, timeout, retransmissions, sent) = (Vec::new(), Duration::ZERO, 0, 0);
        let outgoing =
            Outgoing { message, purpose, bytes, deadline: now, timeout, retransmissions, sent };
        self.waiting.push_back(outgoing);
        self.start_waiting(now, peer, shared);
        true
    }

    /// Sends messages that wait, as far as NSTART and the message ids permit.
    pub(super) fn start_waiting(&mut self, now: Instant, peer: Peer, shared: &mut Shared) {
        let transmission = shared.config.transmission;
        self.held = None;
        while self.active.len() < transmission.nstart
            && let Some(mut outgoing) = self.waiting.pop_front()
        {
            match self.ids.pace(shared.ms(now), shared.lifetime_ms()) {
                Ok(id) => outgoing.message.id = id,
                Err(free) => {
                    self.held = Some(shared.start + Duration::from_millis(free));
                    self.waiting.push_front(outgoing);
                    return;
                }
            }
            outgoing.bytes = outgoing.message.encode();
            let spread = f64::from(shared.rng.next_u32()) / f64::from(u32::MAX);
            let factor = 1.0 + (transmission.ack_random_factor - 1.0) * spread;
            outgoing.timeout = transmission.ack_timeout.mul_f64(factor);
            outgoing.deadline = now + outgoing.timeout;
            let bytes = Bytes::copy_from_slice(&outgoing.bytes);
            outgoing.sent = self.transmit(peer, shared, bytes);
            self.active.push(outgoing);
        }
    }

    /// Removes the confirmable message that an acknowledgement or a reset names. If an acknowledgement
    /// has a response, its token must be that of the message.
    ///
    /// The id also validates the address, unless the peer has returned a wrong one before. The ids of a
    /// peer begin at a random one of 65,536, so a sender with a forged address has one guess. After a
    /// wrong one, a message no longer counts as sent when it is acknowledged.
    pub(super) fn settle(&mut self, id: u16, token: Option<Token>) -> Option<Outgoing> {
        let is_it = |outgoing: &Outgoing| {
            outgoing.message.id == id && token.is_none_or(|token| outgoing.message.token == token)
        };
        let Some(at) = self.active.iter().position(is_it) else {
            match self.withdrawn.take_if(|withdrawn| *withdrawn == id) {
                Some(_) if !self.guesses => self.validate(),
                Some(_) => {}
                None => self.guesses = true,
            }
            return None;
        };
        let outgoing = self.active.remove(at);
        self.answers = true;
        if !self.guesses {
            self.validate();
        }
        if let Some(budget) = &mut self.budget {
            budget.sent = budget.sent.saturating_sub(outgoing.sent);
        }
        Some(outgoing)
    }

    /// Returns whether a message of a purpose waits for its acknowledgement.
    pub(super) fn awaits(&self, purpose: Purpose) -> bool {
        self.active.iter().any(|outgoing| outgoing.purpose == purpose)
    }

    /// Removes the messages of a purpose, because they are no longer needed.
    pub(super) fn withdraw(&mut self, purpose: Purpose) {
        if let Some(ping) =
            self.active.iter().find(|of| purpose == Purpose::Proof && of.purpose == purpose)
        {
            self.withdrawn = Some(ping.message.id);
        }
        self.active.retain(|outgoing| outgoing.purpose != purpose);
        self.waiting.retain(|outgoing| outgoing.purpose != purpose);
    }

    /// Sends a notification that waits for the answer to a ping, if the peer's requests permit it
    /// meanwhile: clients may leave a ping unanswered. The notification's acknowledgement validates the
    /// address, too. The responses to requests in progress come first.
    pub(super) fn replace_ping(&mut self, now: Instant, peer: Peer, shared: &mut Shared) {
        let room = self.room();
        let fits = |of: &Outgoing| {
            matches!(of.purpose, Purpose::Notification(_)) && of.message.encode().len() <= room
        };
        if self.incoming.is_empty()
            && self.awaits(Purpose::Proof)
            && self.waiting.front().is_some_and(fits)
        {
            self.withdraw(Purpose::Proof);
            self.start_waiting(now, peer, shared);
        }
    }

    /// Retransmits what is due, and returns what is lost.
    pub(super) fn retransmit(
        &mut self,
        now: Instant,
        peer: Peer,
        shared: &mut Shared,
    ) -> Vec<Fate> {
        let most = shared.config.transmission.max_retransmit;
        let (mut due, mut lost) = (Vec::new(), Vec::new());
        self.active.retain_mut(|outgoing| {
            if outgoing.deadline > now {
                return true;
            }
            if outgoing.retransmissions == most {
                lost.push(Fate::Lost(outgoing.purpose));
                return false;
            }
            outgoing.retransmissions += 1;
            outgoing.timeout *= 2;
            outgoing.deadline = now + outgoing.timeout;
            due.push((outgoing.message.id, Bytes::copy_from_slice(&outgoing.bytes)));
            true
        });
        for (id, bytes) in due {
            shared.counters.retransmissions += 1;
            let sent = self.transmit(peer, shared, bytes);
            if let Some(outgoing) = self.active.iter_mut().find(|of| of.message.id == id) {
                outgoing.sent += sent;
            }
        }
        lost
    }

    /// Returns whether a message id was seen before. If so, the reply is sent again.
    pub(super) fn is_duplicate(&mut self, peer: Peer, shared: &mut Shared, id: u16) -> bool {
        let Some(seen) = self.seen.iter().rev().find(|seen| seen.id == id) else { return false };
        shared.counters.duplicates += 1;
        if let Some(reply) = seen.reply.clone() {
            self.transmit(peer, shared, reply);
        }
        true
    }

    /// Remembers a message id, for EXCHANGE_LIFETIME.
    pub(super) fn remember(&mut self, now: Instant, shared: &Shared, id: u16) {
        let expires = now + shared.config.transmission.exchange_lifetime;
        self.seen.push_back(Seen { id, expires, reply: None });
        self.forget_seen(now, shared);
    }

    /// Remembers the reply to a message.
    pub(super) fn remember_reply(&mut self, now: Instant, shared: &Shared, id: u16, reply: Bytes) {
        if let Some(seen) = self.seen.iter_mut().rev().find(|seen| seen.id == id) {
            self.seen_bytes += reply.len();
            self.seen_bytes -= seen.reply.replace(reply).map_or(0, |old| old.len());
        }
        self.forget_seen(now, shared);
    }

    fn forget_seen(&mut self, now: Instant, shared: &Shared) {
        let limits = &shared.config.limits;
        while let Some(seen) = self.seen.front()
            && (seen.expires <= now
                || self.seen.len() > limits.remembered
                || (self.seen_bytes > limits.remembered_bytes && self.seen.len() > 1))
        {
            self.seen_bytes -= seen.reply.as_ref().map_or(0, Bytes::len);
            self.seen.pop_front();
        }
        if self.seen.is_empty() {
            self.seen = VecDeque::new();
        }
    }

    /// Acknowledges the requests whose processing takes long, and forgets old message ids.
    pub(super) fn keep_up(&mut self, now: Instant, peer: Peer, shared: &mut Shared) {
        let mut due = Vec::new();
        for incoming in &mut self.incoming {
            if incoming.reception.acknowledge.is_some_and(|at| at <= now) {
                incoming.reception.acknowledge = None;
                due.push(incoming.reception.id);
            }
        }
        for id in due {
            self.acknowledge(now, peer, shared, id);
        }
        self.forget_seen(now, shared);
        if self.held.is_some_and(|held| held <= now) {
            self.start_waiting(now, peer, shared);
        }
    }

    /// Sends an empty acknowledgement.
    pub(super) fn acknowledge(&mut self, now: Instant, peer: Peer, shared: &mut Shared, id: u16) {
        let bytes = Bytes::from(Message::new(Kind::Acknowledgement, Code::EMPTY, id).encode());
        self.remember_reply(now, shared, id, bytes.clone());
        self.transmit(peer, shared, bytes);
    }

    /// Sends a reset.
    pub(super) fn reset(&mut self, peer: Peer, shared: &mut Shared, id: u16) {
        let bytes = Bytes::from(Message::new(Kind::Reset, Code::EMPTY, id).encode());
        self.transmit(peer, shared, bytes);
    }

    /// Returns whether a message was retransmitted twice without an acknowledgement.
    pub(super) fn is_stalled(&self) -> bool {
        self.active.iter().any(|outgoing| outgoing.retransmissions >= 2)
    }

    /// Returns when this peer needs attention next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let active = self.active.iter().map(|outgoing| outgoing.deadline);
        let incoming = self.incoming.iter().filter_map(|incoming| incoming.reception.acknowledge);
        let transfers = self.transfers.iter().map(|transfer| transfer.deadline);
        let again =
            self.transfers.iter().filter_map(|transfer| transfer.observation.as_ref()?.again);
        let seen = self.seen.front().map(|seen| seen.expires);
        active.chain(incoming).chain(transfers).chain(again).chain(seen).chain(self.held).min()
    }

    /// Frees the memory of empty lists. Most peers are idle most of the time.
    pub(super) fn release(&mut self) {
        fn free<T>(list: &mut Vec<T>) {
            if list.is_empty() {
                *list = Vec::new();
            }
        }
        free(&mut self.active);
        free(&mut self.incoming);
        free(&mut self.transfers);
        free(&mut self.observers);
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
    }

    /// Returns whether nothing is stored about the peer that a new state would lack.
    pub(super) fn is_idle(&self, now_ms: u64) -> bool {
        self.active.is_empty()
            && self.waiting.is_empty()
            && self.seen.is_empty()
            && self.incoming.is_empty()
            && self.transfers.is_empty()
            && self.observers.is_empty()
            && self.ids.free.iter().all(|free| *free <= now_ms)
    }
}
