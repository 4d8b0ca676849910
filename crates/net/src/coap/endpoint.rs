//! An endpoint of CoAP, client and server at once, without I/O: datagrams and the time are arguments,
//! and datagrams and events are results.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::RandomState;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chacha20::ChaCha12Rng;
use rand_core::{Rng as _, SeedableRng as _};

use super::blocks::{Representations, Uploads};
use super::config::{Config, Owner, Peer};
use super::exchange::{ExchangeId, Request, RequestError, RequestId, Response};
use super::message::{Code, Kind, Malformed, Message, Number, Token};
use super::peer::{Fate, Observer, Purpose, State};
use super::transfer::{Progress, Transfer};

mod observers;
mod serving;

pub use super::peer::CONFIRMED;
use observers::Observers;
pub use observers::PERIODIC_OBSERVERS;

/// A datagram to send, or an event.
#[derive(Debug)]
pub enum Output {
    /// Send this datagram to this peer.
    Send(Peer, Bytes),
    /// Something happened.
    Event(Event),
}

/// An event of an endpoint.
#[derive(Debug)]
pub enum Event {
    /// A peer sent a request. [`Endpoint::respond`] answers it.
    Request {
        /// The request's id.
        id: ExchangeId,
        /// Who sent it.
        owner: Owner,
        /// The request, with its whole body.
        request: Request,
    },
    /// An own request has ended.
    Response {
        /// The request's id.
        id: RequestId,
        /// The response, or why there is none.
        response: Result<Response, RequestError>,
    },
    /// An observed representation has a new version.
    Notified {
        /// The id of the request that registered the observer.
        id: RequestId,
        /// The representation.
        response: Response,
    },
}

/// What an endpoint counted since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that arrived.
    pub received: u64,
    /// Messages that were sent.
    pub sent: u64,
    /// Datagrams that are not messages.
    pub malformed: u64,
    /// Messages that had arrived before.
    pub duplicates: u64,
    /// Messages that were sent again.
    pub retransmissions: u64,
    /// Messages that were not sent, because the address is not validated.
    pub withheld: u64,
    /// Messages from unknown addresses that belong to no exchange.
    pub stray: u64,
    /// Requests that were refused because too many were in progress.
    pub refused: u64,
    /// Observers that were not registered because there were too many.
    pub unregistered: u64,
    /// Observers without a validated address that were ended because there were too many.
    pub displaced: u64,
    /// Bodies and representations in blocks that were dropped because there were too many.
    pub dropped: u64,
    /// Peers that were forgotten because too many were known.
    pub forgotten: u64,
}

impl Counters {
    /// Returns what was refused or dropped, by name.
    #[must_use]
    pub const fn refused(&self) -> [(&'static str, u64); 8] {
        [
            ("Malformed", self.malformed),
            ("Stray", self.stray),
            ("Withheld", self.withheld),
            ("TooManyRequests", self.refused),
            ("TooManyObservers", self.unregistered),
            ("ObserverDisplaced", self.displaced),
            ("BodyDropped", self.dropped),
            ("PeerForgotten", self.forgotten),
        ]
    }
}

/// What the peers of an endpoint share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) rng: ChaCha12Rng,
    pub(super) start: Instant,
    pub(super) counters: Counters,
    output: VecDeque<Output>,
    uploads: Uploads,
    representations: Representations,
    /// The key of the marks of requests.
    marks: RandomState,
    next_number: u64,
    /// The number of the newest notification (RFC 7641, section 4.4).
    notification: u32,
    observers: Observers,
}

impl Shared {
    pub(super) fn send(&mut self, peer: Peer, bytes: Bytes) {
        self.counters.sent += 1;
        self.output.push_back(Output::Send(peer, bytes));
    }

    fn emit(&mut self, event: Event) {
        self.output.push_back(Output::Event(event));
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Returns the time since the endpoint's start, in milliseconds.
    pub(super) fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn lifetime_ms(&self) -> u64 {
        let lifetime = self.config.transmission.exchange_lifetime;
        u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns a token. Without DTLS it is so long that a sender who does not see the request cannot
    /// guess it (RFC 7252, section 5.3.1).
    fn token(&mut self, peer: Peer) -> Token {
        let random = self.rng.next_u64().to_be_bytes();
        Token::new(&random[..if peer.is_secure() { 3 } else { 8 }])
    }
}

/// An endpoint.
pub struct Endpoint {
    peers: HashMap<Peer, Box<State>>,
    /// When each peer needs attention.
    schedule: BTreeSet<(Instant, Peer)>,
    /// The peers in the order in which they are forgotten: those without a validated address first,
    /// then by the second of their last datagram.
    by_use: BTreeSet<(bool, u64, Peer)>,
    /// The owners of DTLS sessions.
    owners: BTreeMap<Peer, Owner>,
    shared: Shared,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("peers", &self.peers.len())
            .field("counters", &self.shared.counters)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates an endpoint. `seed` determines its message ids, tokens and random waits, and must be
    /// secret and random.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Self {
        let lifetime = config.transmission.exchange_lifetime;
        let uploads = Uploads::new(config.limits.upload_bytes, lifetime);
        let representations = Representations::new(config.limits.representation_bytes, lifetime);
        let shared = Shared {
            config,
            rng: ChaCha12Rng::from_seed(seed),
            start: now,
            counters: Counters::default(),
            output: VecDeque::new(),
            uploads,
            representations,
            marks: RandomState::new(),
            next_number: 0,
            notification: 0,
            observers: Observers::default(),
        };
        let (peers, schedule, by_use) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { peers, schedule, by_use, owners: BTreeMap::new(), shared }
    }

    /// Returns the next datagram to send or event, if there is one.
    pub fn poll(&mut self) -> Option<Output> {
        self.shared.output.pop_front()
    }

    /// Returns when [`timeout`](Self::timeout) must be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.schedule.first().map(|(at, _)| *at)
    }

    /// Returns what the endpoint counted.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        let dropped = self.shared.uploads.dropped() + self.shared.representations.dropped();
        Counters { dropped, ..self.shared.counters }
    }

    /// Returns the number of peers about which the endpoint stores something.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Returns the number of observers.
    #[must_use]
    pub const fn observers(&self) -> usize {
        self.shared.observers.total
    }

    /// Returns whether a message to a peer was retransmitted twice without an acknowledgement.
    #[must_use]
    pub fn is_stalled(&self, peer: Peer) -> bool {
        self.peers.get(&peer).is_some_and(|state| state.is_stalled())
    }

    /// States which device a DTLS session belongs to. Its uploads continue after a new handshake.
    pub fn identify(&mut self, peer: Peer, device: [u8; 8]) {
        self.owners.insert(peer, Owner::Device(device));
        if let Some(state) = self.peers.get_mut(&peer) {
            state.owner = Owner::Device(device);
        }
    }

    /// Forgets a peer whose DTLS session ended. Its requests fail with `SessionEnded`.
    pub fn forget(&mut self, peer: Peer) {
        self.owners.remove(&peer);
        self.remove(peer, RequestError::SessionEnded);
    }

    /// Continues the own requests to the session `from` in the session `to`, after a new handshake with
    /// the same server. Each transfer sends its last block again. The requests keep their numbers.
    pub fn move_requests(&mut self, now: Instant, from: Peer, to: Peer) {
        let Some(old) = self.peers.get_mut(&from) else { return };
        let transfers = std::mem::take(&mut old.transfers);
        let numbers: Vec<u64> = transfers.iter().map(|transfer| transfer.number).collect();
        numbers.iter().for_each(|number| old.withdraw(Purpose::Transfer(*number)));
        self.reschedule(now, from);
        self.with(now, to, |state, shared| {
            for mut transfer in transfers {
                transfer.renew();
                if !send_next(now, to, state, shared, &mut transfer) {
                    transfer.deadline = now;
                }
                state.transfers.push(transfer);
            }
        });
    }

    /// Processes a datagram.
    pub fn receive(&mut self, now: Instant, peer: Peer, datagram: &[u8]) {
        self.shared.counters.received += 1;
        let message = Message::decode(datagram);
        let is_request = message.as_ref().is_ok_and(|message| {
            message.code.is_request()
                && matches!(message.kind, Kind::Confirmable | Kind::NonConfirmable)
        });
        if !is_request && !peer.is_secure() && !self.peers.contains_key(&peer) {
            return stray(peer, &mut self.shared, message);
        }
        self.with(now, peer, |state, shared| {
            state.received(datagram.len());
            match message {
                Ok(message) => received(now, peer, state, shared, message),
                Err(malformed) => {
                    shared.counters.malformed += 1;
                    if let Malformed::Format(Kind::Confirmable, id) = malformed {
                        state.reset(peer, shared, id);
                    }
                }
            }
            state.replace_ping(now, peer, shared);
        });
        self.touch(now, peer);
    }

    /// Does what is due: retransmissions, acknowledgements, and giving up.
    pub fn timeout(&mut self, now: Instant) {
        while let Some((at, peer)) = self.schedule.first().copied()
            && at <= now
        {
            self.with(now, peer, |state, shared| {
                for Fate::Lost(purpose) in state.retransmit(now, peer, shared) {
                    lost(now, peer, state, shared, purpose, RequestError::NoResponse);
                }
                state.start_waiting(now, peer, shared);
                state.keep_up(now, peer, shared);
                give_up(now, peer, state, shared);
            });
        }
    }

    /// Sends a request. If it gets no response, its last block is sent again until there was no progress
    /// for `patience`.
    ///
    /// # Errors
    /// `Busy`.
    pub fn request(
        &mut self,
        now: Instant,
        peer: Peer,
        request: Request,
        patience: Duration,
    ) -> Result<RequestId, RequestError> {
        let (number, tag) = (self.shared.number(), self.shared.rng.next_u64().to_be_bytes());
        let exponent = self.shared.config.block_exponent;
        let mut transfer = Transfer::new(number, request, exponent, tag, (patience, now));
        let limit = self.shared.config.limits.outgoing;
        self.with(now, peer, |state, shared| {
            state.contact();
            if state.transfers.len() >= limit || !send_next(now, peer, state, shared, &mut transfer)
            {
                return Err(RequestError::Busy);
            }
            state.transfers.push(transfer);
            Ok(RequestId { peer, number })
        })
    }

    /// Ends an own request. There is no event of it afterwards. An observation ends at the server too.
    pub fn cancel(&mut self, now: Instant, id: RequestId) {
        if !self.peers.contains_key(&id.peer) {
            return;
        }
        self.with(now, id.peer, |state, shared| {
            let place = state.transfers.iter().position(|transfer| transfer.number == id.number);
            let Some(transfer) = place.map(|place| state.transfers.remove(place)) else { return };
            state.withdraw(Purpose::Transfer(id.number));
            if let Some(mut message) = transfer.cancellation() {
                add_host(shared, &mut message);
                state.confirm(now, id.peer, shared, (message, Purpose::Other));
            }
            state.start_waiting(now, id.peer, shared);
        });
    }

    /// Runs a step with the state of a peer, which is created if it does not exist, and updates the
    /// schedule.
    fn with<T>(
        &mut self,
        now: Instant,
        peer: Peer,
        step: impl FnOnce(&mut State, &mut Shared) -> T,
    ) -> T {
        if !self.peers.contains_key(&peer) {
            while self.peers.len() >= self.shared.config.limits.peers
                && let Some((_, _, oldest)) = self.by_use.first().copied()
            {
                self.shared.counters.forgotten += 1;
                self.remove(oldest, RequestError::Busy);
            }
            let mut state = State::new(peer, &mut self.shared);
            if let Some(owner) = self.owners.get(&peer) {
                state.owner = *owner;
            }
            state.used = self.shared.ms(now) / 1000;
            self.by_use.insert((state.is_validated(), state.used, peer));
            self.peers.insert(peer, Box::new(state));
        }
        let Some(state) = self.peers.get_mut(&peer) else {
            unreachable!("the state was inserted above")
        };
        let place = (state.is_validated(), state.used, peer);
        let result = step(state, &mut self.shared);
        state.release();
        let moved = (state.is_validated(), state.used, peer);
        if place != moved {
            self.by_use.remove(&place);
            self.by_use.insert(moved);
            self.shared.observers.prove(peer, state, &self.shared.config.limits);
        }
        self.reschedule(now, peer);
        result
    }

    /// Notes that a peer sent a datagram now.
    fn touch(&mut self, now: Instant, peer: Peer) {
        let Some(state) = self.peers.get_mut(&peer) else { return };
        let used = self.shared.ms(now) / 1000;
        if state.used != used {
            self.by_use.remove(&(state.is_validated(), state.used, peer));
            state.used = used;
            self.by_use.insert((state.is_validated(), state.used, peer));
        }
    }

    fn reschedule(&mut self, now: Instant, peer: Peer) {
        let Some(state) = self.peers.get_mut(&peer) else { return };
        let deadline = state.deadline();
        if deadline != state.scheduled {
            if let Some(old) = state.scheduled {
                self.schedule.remove(&(old, peer));
            }
            if let Some(new) = deadline {
                self.schedule.insert((new, peer));
            }
            state.scheduled = deadline;
        }
        if state.is_idle(self.shared.ms(now)) {
            self.remove(peer, RequestError::NoResponse);
        }
    }

    fn remove(&mut self, peer: Peer, why: RequestError) {
        let Some(state) = self.peers.remove(&peer) else { return };
        self.by_use.remove(&(state.is_validated(), state.used, peer));
        if let Some(scheduled) = state.scheduled {
            self.schedule.remove(&(scheduled, peer));
        }
        for observer in &state.observers {
            self.shared.observers.ended(peer, observer);
            self.shared.observers.stop(peer, &observer.request.path);
        }
        for transfer in state.transfers {
            let id = RequestId { peer, number: transfer.number };
            self.shared.emit(Event::Response { id, response: Err(why) });
        }
    }
}

/// Processes a message that is no request, from an address without DTLS about which nothing is stored.
/// The reset has four bytes, as many as the shortest message, so the address receives no more than it
/// sent.
fn stray(peer: Peer, shared: &mut Shared, message: Result<Message, Malformed>) {
    let reset = match &message {
        // A ping, or a response to nothing.
        Ok(message) if message.kind == Kind::Confirmable => Some(message.id),
        Err(Malformed::Format(Kind::Confirmable, id)) => Some(*id),
        _ => None,
    };
    match message {
        Ok(message) if message.kind == Kind::Confirmable && message.code == Code::EMPTY => {}
        Ok(_) => shared.counters.stray += 1,
        Err(_) => shared.counters.malformed += 1,
    }
    if let Some(id) = reset {
        shared.send(peer, Bytes::from(Message::new(Kind::Reset, Code::EMPTY, id).encode()));
    }
}

/// Processes a message of a peer.
fn received(now: Instant, peer: Peer, state: &mut State, shared: &mut Shared, message: Message) {
    match message.kind {
        Kind::Acknowledgement if message.code.is_request() => {}
        Kind::Acknowledgement => acknowledged(now, peer, state, shared, message),
        Kind::Reset if message.code != Code::EMPTY => {}
        Kind::Reset => {
            let rejects = |observer: &&Observer| observer.unconfirmed.is(message.id);
            if let Some(token) = state.observers.iter().find(rejects).map(|of| of.token) {
                serving::unregister(peer, state, shared, token);
            } else if let Some(outgoing) = state.settle(message.id, None) {
                lost(now, peer, state, shared, outgoing.purpose, RequestError::Reset);
                state.start_waiting(now, peer, shared);
            }
        }
        Kind::Confirmable | Kind::NonConfirmable if message.code.is_request() => {
            serving::requested(now, peer, state, shared, message);
        }
        Kind::Confirmable | Kind::NonConfirmable if message.code.is_response() => {
            separate(now, peer, state, shared, message);
        }
        // A ping (RFC 7252, section 4.3).
        Kind::Confirmable => state.reset(peer, shared, message.id),
        Kind::NonConfirmable => {}
    }
}

fn acknowledged(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    message: Message,
) {
    let token = (message.code != Code::EMPTY).then_some(message.token);
    let Some(outgoing) = state.settle(message.id, token) else { return };
    match outgoing.purpose {
        Purpose::Transfer(_) if message.code != Code::EMPTY => {
            responded(now, peer, state, shared, message);
        }
        Purpose::Transfer(number) => {
            let lifetime = shared.config.transmission.exchange_lifetime;
            let place = state.transfers.iter().position(|transfer| transfer.number == number);
            if let Some(place) = place {
                if state.transfers[place].ends_with_acknowledgement() {
                    state.transfers.swap_remove(place);
                    let response = Ok(Response::new(Code::CHANGED));
                    shared.emit(Event::Response { id: RequestId { peer, number }, response });
                } else {
                    state.transfers[place].deadline = now + lifetime;
                }
            }
        }
        Purpose::Notification(token) => serving::notified(now, peer, state, shared, token),
        Purpose::Response | Purpose::Proof | Purpose::Other => {}
    }
    state.start_waiting(now, peer, shared);
}

/// Processes a response that is separate from an acknowledgement, or a notification.
fn separate(now: Instant, peer: Peer, state: &mut State, shared: &mut Shared, message: Message) {
    if state.is_duplicate(peer, shared, message.id) {
        return;
    }
    let is_expected = state.transfers.iter().any(|transfer| transfer.has_token(message.token));
    if !is_expected {
        // This also ends observations that this endpoint no longer knows (RFC 7641, section 3.6).
        state.reset(peer, shared, message.id);
        return;
    }
    state.remember(now, shared, message.id);
    if message.kind == Kind::Confirmable {
        state.acknowledge(now, peer, shared, message.id);
    }
    responded(now, peer, state, shared, message);
    state.start_waiting(now, peer, shared);
}

/// Processes a response to an own request.
fn responded(now: Instant, peer: Peer, state: &mut State, shared: &mut Shared, message: Message) {
    let place = state.transfers.iter().position(|transfer| transfer.has_token(message.token));
    let Some(place) = place else { return };
    let mut transfer = state.transfers.swap_remove(place);
    state.validate();
    let mut message = message;
    let progress = match message.options.reduce() {
        Some(_) => Progress::Done(Err(RequestError::BadOption)),
        None => transfer.receive(now, &message, shared.config.response_limit),
    };
    let id = RequestId { peer, number: transfer.number };
    match progress {
        Progress::Ignored => {
            // An observation has no deadline.
            if !transfer.is_registered() {
                transfer.deadline = now + shared.config.transmission.exchange_lifetime;
            }
            state.transfers.push(transfer);
        }
        Progress::Next => {
            state.withdraw(Purpose::Transfer(transfer.number));
            if send_next(now, peer, state, shared, &mut transfer) {
                state.transfers.push(transfer);
            } else {
                shared.emit(Event::Response { id, response: Err(RequestError::Busy) });
            }
        }
        Progress::Notified(response) => {
            state.withdraw(Purpose::Transfer(transfer.number));
            // An observation has no deadline: it is renewed when its representation is stale.
            transfer.deadline = far(now);
            state.transfers.push(transfer);
            shared.emit(Event::Notified { id, response });
        }
        Progress::Done(response) => {
            state.withdraw(Purpose::Transfer(transfer.number));
            shared.emit(Event::Response { id, response });
        }
    }
}

/// Returns a time that is not reached.
fn far(now: Instant) -> Instant {
    now + Duration::from_secs(100 * 365 * 86_400)
}

/// Sends the next message of a transfer. Returns false if too many messages wait.
fn send_next(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    transfer: &mut Transfer,
) -> bool {
    let token = shared.token(peer);
    let mut message = transfer.message(token);
    add_host(shared, &mut message);
    transfer.deadline = far(now);
    state.confirm(now, peer, shared, (message, Purpose::Transfer(transfer.number)))
}

/// Handles a confirmable message that was not acknowledged, or was rejected.
fn lost(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    purpose: Purpose,
    why: RequestError,
) {
    match purpose {
        Purpose::Transfer(number) => fail(now, peer, state, shared, number, why),
        Purpose::Notification(token) => serving::unregister(peer, state, shared, token),
        Purpose::Response | Purpose::Proof | Purpose::Other => {}
    }
}

/// Sends the last message of a transfer again if the transfer is patient, or else ends it.
fn fail(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    number: u64,
    why: RequestError,
) {
    let place = state.transfers.iter().position(|transfer| transfer.number == number);
    let Some(place) = place else { return };
    let mut transfer = state.transfers.swap_remove(place);
    state.withdraw(Purpose::Transfer(number));
    if why == RequestError::NoResponse
        && transfer.may_repeat(now)
        && send_next(now, peer, state, shared, &mut transfer)
    {
        state.transfers.push(transfer);
        return;
    }
    shared.emit(Event::Response { id: RequestId { peer, number }, response: Err(why) });
}

/// Ends the requests that were acknowledged but not answered, and renews the observations that are
/// stale.
fn give_up(now: Instant, peer: Peer, state: &mut State, shared: &mut Shared) {
    let due = |transfer: &Transfer| transfer.deadline <= now;
    let numbers: Vec<u64> =
        state.transfers.iter().filter(|transfer| due(transfer)).map(|of| of.number).collect();
    for number in numbers {
        fail(now, peer, state, shared, number, RequestError::NoResponse);
    }
    let is_stale = |transfer: &Transfer| {
        let again = transfer.observation.as_ref().and_then(|observation| observation.again);
        again.is_some_and(|again| again <= now)
    };
    while let Some(place) = state.transfers.iter().position(is_stale) {
        let mut transfer = state.transfers.swap_remove(place);
        transfer.renew();
        if !send_next(now, peer, state, shared, &mut transfer) {
            transfer.renew_later(now);
        }
        state.transfers.push(transfer);
    }
}

/// Adds the name of the server to a request (RFC 7252, section 6.4).
fn add_host(shared: &Shared, message: &mut Message) {
    if let Some(host) = &shared.config.server_name {
        message.options.add(Number::URI_HOST, host.clone());
    }
}

/// Returns the value of the option Observe of the next notification.
fn next_notification(shared: &mut Shared) -> u32 {
    shared.notification = (shared.notification + 1) & 0xff_ffff;
    shared.notification
}

/// Adds the option Observe to a message.
fn add_observe(shared: &mut Shared, message: &mut Message) {
    let number = next_notification(shared);
    message.options.add_uint(Number::OBSERVE, number);
}
