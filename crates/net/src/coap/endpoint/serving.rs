//! The server's side of an endpoint: requests, responses, observers.

use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::time::Instant;

use bytes::Bytes;

use super::super::blocks::{Mark, Received};
use super::super::config::Peer;
use super::super::exchange::{ExchangeId, Request, Response};
use super::super::message::{Block, Code, Kind, Message, Number, Token, encoded_length};
use super::super::peer::{Incoming, Observer, Purpose, Reception, State, Unconfirmed};
use super::{Endpoint, Event, Shared, add_observe};

/// The maximum length of the options that a response has in addition to those of its representation: a
/// version, a block, a length, an observer's number, and the marker of the payload.
const OPTIONS: usize = 5 + 4 + 5 + 4 + 1;
/// When a client may try again after a request was refused because others are in progress, in seconds.
const AGAIN: u32 = 1;
/// When a client may try again to observe a periodic representation that too many observe, in seconds.
const AGAIN_OBSERVING: u32 = 60;
/// The length of a ping in bytes, with its IPv4 and UDP headers.
const PING: usize = 4 + 28;
/// The length of an observer's number as an option, and of the marker of the payload, in bytes.
const OBSERVE: usize = 4 + 1;

impl Endpoint {
    /// Answers a request. If the peer was forgotten meanwhile, nothing happens.
    pub fn respond(&mut self, now: Instant, id: ExchangeId, response: Response) {
        if !self.peers.contains_key(&id.peer) {
            return;
        }
        self.with(now, id.peer, |state, shared| {
            let place = state.incoming.iter().position(|incoming| incoming.number == id.number);
            let Some(place) = place else { return };
            let incoming = state.incoming.swap_remove(place);
            finish(now, id.peer, state, shared, incoming, response);
            state.replace_ping(now, id.peer, shared);
        });
        while let Some((peer, token)) = self.shared.observers.displaced.pop() {
            if self.peers.contains_key(&peer) {
                self.with(now, peer, |state, shared| unregister(peer, state, shared, token));
            }
        }
    }

    /// Sends the new version of a resource to its observers. `representation` returns the response to
    /// each observer's request, or `None` if there is no new version of it. An error ends the
    /// observation. An observer that has not acknowledged the version before receives the new one
    /// after it has.
    pub fn notify(
        &mut self,
        now: Instant,
        path: &str,
        representation: &mut dyn FnMut(&Request) -> Option<Response>,
    ) {
        let Some(peers) = self.shared.observers.paths.get(path).cloned() else { return };
        for peer in peers {
            self.with(now, peer, |state, shared| {
                let tokens: Vec<Token> = state
                    .observers
                    .iter()
                    .filter(|observer| observer.request.path == path)
                    .map(|observer| observer.token)
                    .collect();
                for token in tokens {
                    let mut observers = state.observers.iter_mut();
                    let found = observers.find(|observer| observer.token == token);
                    let Some(observer) = found else { continue };
                    let Some(response) = representation(&observer.request) else { continue };
                    if observer.in_flight {
                        observer.newest = Some(response);
                    } else {
                        push(now, peer, state, shared, token, response);
                    }
                }
            });
        }
    }
}

/// Processes a message with a request.
pub(super) fn requested(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    message: Message,
) {
    if state.is_duplicate(peer, shared, message.id) {
        return;
    }
    state.remember(now, shared, message.id);
    let delay = shared.config.transmission.processing_delay;
    let acknowledge = (message.kind == Kind::Confirmable).then(|| now + delay);
    let (kind, id, token) = (message.kind, message.id, message.token);
    let reception = Reception { kind, id, token, acknowledge };
    let mut message = message;
    match read(now, peer, state, shared, (reception, &mut message)) {
        Ok(Read { request, tag, mark, block1, block2 }) => {
            let number = shared.number();
            let exchange = ExchangeId { peer, number };
            let owner = state.owner;
            shared.emit(Event::Request { id: exchange, owner, request: request.clone() });
            // The body is with the user of the endpoint.
            let request = Request { body: Bytes::new(), ..request };
            let incoming = Incoming { number, reception, request, tag, mark, block1, block2 };
            state.incoming.push(incoming);
        }
        Err(Reply::Later) => {}
        Err(Reply::Message(reply))
            if kind == Kind::NonConfirmable && reply.code == Code::BAD_OPTION =>
        {
            // RFC 7252, section 5.4.1: the message is rejected.
            state.reset(peer, shared, id);
        }
        Err(Reply::Message(reply)) => reply_with(now, peer, state, shared, reception, reply),
    }
}

/// What is sent in reply to a message with a request that is not processed further.
enum Reply {
    /// The message.
    Message(Message),
    /// Nothing now: the request is in progress.
    Later,
}

/// Returns a reply without options.
fn bare(code: Code) -> Reply {
    Reply::Message(Message::new(Kind::Acknowledgement, code, 0))
}

/// A request that was read.
struct Read {
    request: Request,
    tag: Bytes,
    mark: Mark,
    block1: Option<Block>,
    block2: Option<Block>,
}

/// Reads a request and its body. Returns the reply instead if the request is refused, or is answered
/// here because it is a block or was answered before.
fn read(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    (reception, message): (Reception, &mut Message),
) -> Result<Read, Reply> {
    if message.options.reduce().is_some() {
        return Err(bare(Code::BAD_OPTION));
    }
    if message.options.first(Number::PROXY_URI).is_some()
        || message.options.first(Number::PROXY_SCHEME).is_some()
    {
        return Err(bare(Code::PROXYING_NOT_SUPPORTED));
    }
    if message.code > Code::DELETE {
        return Err(bare(Code::METHOD_NOT_ALLOWED));
    }
    let mut request = Request::of(message).map_err(bare)?;
    let (Ok(block1), Ok(block2)) =
        (message.options.block(Number::BLOCK1), message.options.block(Number::BLOCK2))
    else {
        return Err(bare(Code::BAD_REQUEST));
    };
    if message.options.uint(Number::OBSERVE) == Some(1) {
        unregister(peer, state, shared, message.token);
    }
    let limit = (shared.config.body_limit)(request.code, &request.path);
    let size1 = message.options.uint(Number::SIZE1).map_or(0, |size| size as usize);
    if message.payload.len() > limit || (block1.is_some() && size1 > limit) {
        return Err(too_large(limit, block1));
    }
    let tag = message.options.first(Number::REQUEST_TAG).cloned().unwrap_or_default();
    let number = block1.map(|block| (block.number, block.exponent));
    let last =
        shared.marks.hash_one((request.format.map(|format| format.0), number, &message.payload));
    let upload = block1.map(|block| {
        let key = Request { accept: None, ..request.clone() }.key(state.owner, tag.clone());
        (key, block)
    });
    // While a body with the same tag arrives, its last block may equal that of the body before.
    if upload.as_ref().is_none_or(|(key, _)| !shared.uploads.has(now, key)) {
        let same = |of: &Mark| of.last == last;
        if let Some(reply) = answered(now, state, shared, reception, (&request, &tag, block2), same)
        {
            return Err(reply);
        }
    }
    let mut mark = Mark { last, whole: last };
    match upload {
        None => request.body = message.payload.clone(),
        Some((key, block)) => {
            match shared.uploads.receive(now, key, block, &message.payload, limit) {
                Received::Whole(body) => request.body = body,
                Received::Continue => {
                    let mut reply = Message::new(Kind::Acknowledgement, Code::CONTINUE, 0);
                    reply.options.add_block(Number::BLOCK1, block);
                    return Err(Reply::Message(reply));
                }
                Received::Refused(Code::REQUEST_ENTITY_TOO_LARGE) => {
                    return Err(too_large(limit, block1));
                }
                Received::Refused(code) => return Err(bare(code)),
            }
            if request.code != Code::GET && !tag.is_empty() {
                mark.whole =
                    shared.marks.hash_one((request.format.map(|format| format.0), &request.body));
                let same = |of: &Mark| of.whole == mark.whole;
                let request = (&request, &tag, block2);
                if let Some(reply) = answered(now, state, shared, reception, request, same) {
                    return Err(reply);
                }
            }
        }
    }
    if state.incoming.len() >= shared.config.limits.incoming {
        shared.counters.refused += 1;
        let mut reply = Message::new(Kind::Acknowledgement, Code::SERVICE_UNAVAILABLE, 0);
        reply.options.add_uint(Number::MAX_AGE, AGAIN);
        return Err(Reply::Message(reply));
    }
    Ok(Read { request, tag, mark, block1, block2 })
}

/// Returns the refusal of a body, with the maximum length. The block option, which repeats the request's, does
/// not ask for smaller blocks.
fn too_large(limit: usize, block1: Option<Block>) -> Reply {
    let mut reply = Message::new(Kind::Acknowledgement, Code::REQUEST_ENTITY_TOO_LARGE, 0);
    if let Some(block) = block1 {
        reply.options.add_block(Number::BLOCK1, block);
    }
    reply.options.add_uint(Number::SIZE1, u32::try_from(limit).unwrap_or(u32::MAX));
    Reply::Message(reply)
}

/// Answers a request for a further block of a response. Also answers a request that is not safe and
/// has the tag and the body of one that was received before: a client sends its last block again,
/// under another message id, if the response was lost. `same` compares the mark of its body. Returns
/// `None` for another request: a client may use a tag again for another body (RFC 9175, section
/// 3.5.1).
fn answered(
    now: Instant,
    state: &mut State,
    shared: &mut Shared,
    reception: Reception,
    (request, tag, block2): (&Request, &Bytes, Option<Block>),
    same: impl Fn(&Mark) -> bool,
) -> Option<Reply> {
    let is_further = block2.is_some_and(|block| block.number > 0);
    let is_tagged = request.code != Code::GET && !tag.is_empty();
    if !is_further && !is_tagged {
        return None;
    }
    let key = request.key(state.owner, tag.clone());
    let repeats = |incoming: &&mut Incoming| {
        is_tagged
            && incoming.tag == *tag
            && (is_further || same(&incoming.mark))
            && incoming.request.key(key.owner, tag.clone()) == key
    };
    if let Some(incoming) = state.incoming.iter_mut().find(repeats) {
        incoming.reception = reception;
        return Some(Reply::Later);
    }
    if let Some(mut response) = shared.representations.get(now, &key, |of| is_further || same(of)) {
        return Some(Reply::Message(sliced(
            state.room(),
            shared,
            reception.token,
            &mut response,
            block2,
        )));
    }
    // A request that is not safe must not be processed again for the rest of its response.
    (is_further && request.code != Code::GET).then(|| bare(Code::REQUEST_ENTITY_INCOMPLETE))
}

/// Sends the response to a request, and registers the observer.
fn finish(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    incoming: Incoming,
    response: Response,
) {
    let Incoming { reception, request, tag, mark, block1, block2, .. } = incoming;
    let is_unwanted = request.no_response >> (response.code.class().saturating_sub(1)) & 1 == 1;
    if is_unwanted {
        if reception.acknowledge.is_some() {
            state.acknowledge(now, peer, shared, reception.id);
        }
        return;
    }
    let mut response = response;
    let is_first = block2.is_none_or(|block| block.number == 0);
    let is_observed =
        is_first && request.observes && response.accepts_observer && response.code.is_success();
    if is_observed && response.is_periodic && shared.observers.is_full(peer, &request.path) {
        shared.counters.unregistered += 1;
        let refusal = "too many observe this resource; read it without observing it";
        response = Response {
            max_age: Some(AGAIN_OBSERVING),
            ..Response::error(Code::TOO_MANY_REQUESTS, refusal)
        };
    }
    let is_observed = is_observed && response.code.is_success();
    // A new observer is pinged.
    let room = match is_observed && !state.is_validated() {
        true => state.room().saturating_sub(PING),
        false => state.room(),
    };
    let mut reply = sliced(room, shared, reception.token, &mut response, block2);
    let is_in_blocks = reply.options.first(Number::BLOCK2).is_some();
    if (is_in_blocks && response.code.is_success())
        || (request.code != Code::GET && !tag.is_empty())
    {
        let key = request.key(state.owner, tag);
        shared.representations.put(now, key, response.clone(), mark);
    }
    if let Some(block) = block1 {
        reply.options.add_block(Number::BLOCK1, block);
    }
    let registers =
        is_observed && register(peer, state, shared, (reception.token, request, block2));
    if registers {
        add_observe(shared, &mut reply);
    }
    reply_with(now, peer, state, shared, reception, reply);
    if registers && !state.is_validated() {
        // The reset that answers this ping validates the address (RFC 7252, section 4.3).
        let ping = Message::new(Kind::Confirmable, Code::EMPTY, 0);
        state.confirm(now, peer, shared, (ping, Purpose::Proof));
    }
}

/// Registers an observer. Returns false if there are too many.
fn register(
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    (token, request, block2): (Token, Request, Option<Block>),
) -> bool {
    unregister(peer, state, shared, token);
    let (limits, of) = (shared.config.limits, (token, &*request.path));
    let added = shared.observers.add((peer, state), of, &limits, &mut shared.counters);
    let Some(number) = added else { return false };
    let exponent = block2.map_or(Block::LARGEST, |block| block.exponent);
    let (in_flight, newest, unconfirmed) = (false, None, Unconfirmed::default());
    state.observers.push(Observer {
        number,
        token,
        request,
        exponent,
        in_flight,
        newest,
        unconfirmed,
    });
    true
}

/// Ends an observation.
pub(super) fn unregister(peer: Peer, state: &mut State, shared: &mut Shared, token: Token) {
    let place = state.observers.iter().position(|observer| observer.token == token);
    let Some(place) = place else { return };
    let observer = state.observers.swap_remove(place);
    shared.observers.ended(peer, &observer);
    state.withdraw(Purpose::Notification(token));
    let path = &observer.request.path;
    if !state.observers.iter().any(|other| other.request.path == *path) {
        shared.observers.stop(peer, path);
    }
}

/// Sends a notification.
fn push(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    token: Token,
    response: Response,
) {
    let found = state.observers.iter_mut().find(|observer| observer.token == token);
    let Some(observer) = found else { return };
    observer.in_flight = true;
    let key = observer.request.key(state.owner, Bytes::new());
    let block = Block { number: 0, more: false, exponent: observer.exponent };
    let mut response = response;
    let mut message = sliced(usize::MAX, shared, token, &mut response, Some(block));
    // What is too long for an address that is not validated waits for the answer to the ping, or for a
    // further request.
    let is_long =
        encoded_length(&token, &message.options) + OBSERVE + message.payload.len() > state.room();
    let waits = is_long && state.awaits(Purpose::Proof);
    if is_long && !waits {
        message = sliced(state.room(), shared, token, &mut response, Some(block));
    }
    match message.options.first(Number::BLOCK2) {
        Some(_) => shared.representations.put(now, key, response.clone(), Mark::default()),
        None => shared.representations.forget(&key),
    }
    if response.is_periodic
        && response.code.is_success()
        && state.is_unlimited()
        && unconfirmed(now, peer, state, shared, (token, &mut message))
    {
        return;
    }
    message.kind = Kind::Confirmable;
    if response.code.is_success() {
        add_observe(shared, &mut message);
    } else {
        unregister(peer, state, shared, token);
    }
    // The acknowledgement of the notification validates the address, too.
    if !waits {
        state.withdraw(Purpose::Proof);
    }
    let purpose = Purpose::Notification(token);
    if !state.confirm(now, peer, shared, (message, purpose)) {
        unregister(peer, state, shared, token);
    }
}

/// Sends a notification that is not confirmable. Returns false if it must be confirmable.
fn unconfirmed(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    (token, message): (Token, &mut Message),
) -> bool {
    let id = state.id(now, shared);
    let found = state.observers.iter_mut().find(|observer| observer.token == token);
    let Some(observer) = found else { return true };
    let Some(id) = id.filter(|_| observer.unconfirmed.may_follow(now)) else {
        observer.unconfirmed.confirm(now);
        return false;
    };
    observer.in_flight = false;
    observer.unconfirmed.sent(id);
    (message.kind, message.id) = (Kind::NonConfirmable, id);
    add_observe(shared, message);
    let bytes = Bytes::from(message.encode());
    state.transmit(peer, shared, bytes);
    true
}

/// Continues after a notification was acknowledged.
pub(super) fn notified(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    token: Token,
) {
    let found = state.observers.iter_mut().find(|observer| observer.token == token);
    let Some(observer) = found else { return };
    observer.in_flight = false;
    if let Some(response) = observer.newest.take() {
        push(now, peer, state, shared, token, response);
    }
}

/// Returns the message with a block of a response, or with the whole body if it fits. The blocks are at
/// most as long as the client asks, as this endpoint sends, and as an address that is not validated
/// may receive. A representation in blocks gets a version, if it has none.
fn sliced(
    room: usize,
    shared: &Shared,
    token: Token,
    response: &mut Response,
    wanted: Option<Block>,
) -> Message {
    let mut message = Message::new(Kind::Acknowledgement, response.code, 0);
    message.token = token;
    let largest = shared.config.block_exponent;
    let asked = wanted.unwrap_or(Block { number: 0, more: false, exponent: largest });
    response.write(&mut message.options);
    let head = encoded_length(&token, &message.options) + OPTIONS;
    let mut exponent = asked.exponent.min(largest);
    while exponent > 0 && (16 << exponent) + head > room {
        exponent -= 1;
    }
    let (size, start, length) = (16 << exponent, asked.offset(), response.body.len());
    if start > 0 && start >= length {
        message = Message::new(Kind::Acknowledgement, Code::BAD_REQUEST, 0);
        message.token = token;
        return message;
    }
    if start == 0 && length <= size {
        message.payload = response.body.clone();
        return message;
    }
    if response.etag.is_none() {
        let mut hasher = DefaultHasher::new();
        response.body.hash(&mut hasher);
        let etag = Bytes::copy_from_slice(&hasher.finish().to_be_bytes()[..4]);
        message.options.add(Number::ETAG, etag.clone());
        response.etag = Some(etag);
    }
    let end = length.min(start + size);
    let number = u32::try_from(start >> (exponent + 4)).unwrap_or(u32::MAX);
    let block = Block { number, more: end < length, exponent };
    message.options.add_block(Number::BLOCK2, block);
    if number == 0 {
        message.options.add_uint(Number::SIZE2, u32::try_from(length).unwrap_or(u32::MAX));
    }
    message.payload = response.body.slice(start..end);
    message
}

/// Sends the reply to a request: in its acknowledgement, or as a separate message.
fn reply_with(
    now: Instant,
    peer: Peer,
    state: &mut State,
    shared: &mut Shared,
    reception: Reception,
    mut reply: Message,
) {
    reply.token = reception.token;
    match (reception.kind, reception.acknowledge) {
        (Kind::Confirmable, Some(_)) => {
            (reply.kind, reply.id) = (Kind::Acknowledgement, reception.id);
        }
        (Kind::Confirmable, None) => {
            reply.kind = Kind::Confirmable;
            state.confirm(now, peer, shared, (reply, Purpose::Response));
            return;
        }
        _ => {
            let Some(id) = state.id(now, shared) else { return };
            (reply.kind, reply.id) = (Kind::NonConfirmable, id);
        }
    }
    let bytes = Bytes::from(reply.encode());
    state.remember_reply(now, shared, reception.id, bytes.clone());
    state.transmit(peer, shared, bytes);
}
