//! The rules of RFC 7252, 7641, 7959 and 7967, one test each: what an endpoint sends in reply to
//! messages and as time passes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_net::coap::message::{Block, Kind, Message, Number, Token};
use moteseal_net::coap::{
    Code, Config, Endpoint, Event, ExchangeId, Format, Limits, Output, Peer, Request, RequestError,
    RequestId, Response,
};

/// An endpoint, the time, and its events.
struct Bench {
    endpoint: Endpoint,
    now: Instant,
    events: Vec<Event>,
}

/// Returns the peer with this number. Its address is validated.
fn peer(number: u8) -> Peer {
    Peer { address: SocketAddr::from(([192, 0, 2, number], 5683)), session: u64::from(number) }
}

fn stranger() -> Peer {
    Peer::plain(SocketAddr::from(([198, 51, 100, 1], 5683)))
}

impl Bench {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let now = Instant::now();
        Self { endpoint: Endpoint::new(config, [7; 32], now), now, events: Vec::new() }
    }

    /// Returns what the endpoint has sent, and keeps its events.
    fn sent(&mut self) -> Vec<Message> {
        let mut sent = Vec::new();
        while let Some(output) = self.endpoint.poll() {
            match output {
                Output::Send(_, datagram) => sent.push(Message::decode(&datagram).unwrap()),
                Output::Event(event) => self.events.push(event),
            }
        }
        sent
    }

    fn receive(&mut self, from: Peer, message: &Message) -> Vec<Message> {
        self.endpoint.receive(self.now, from, &message.encode());
        self.sent()
    }

    /// Lets time pass, and returns what the endpoint sends meanwhile.
    fn pass(&mut self, seconds: f64) -> Vec<Message> {
        let end = self.now + Duration::from_secs_f64(seconds);
        while let Some(at) = self.endpoint.next_timeout().filter(|at| *at <= end) {
            self.now = at;
            self.endpoint.timeout(at);
        }
        self.now = end;
        self.endpoint.timeout(end);
        self.sent()
    }

    fn request(&mut self, to: Peer, request: Request) -> (RequestId, Vec<Message>) {
        let id = self.endpoint.request(self.now, to, request, Duration::ZERO).unwrap();
        (id, self.sent())
    }

    /// Returns the request that arrived last.
    fn requested(&mut self) -> (ExchangeId, Request) {
        match self.events.pop() {
            Some(Event::Request { id, request, .. }) => (id, request),
            other => panic!("there is no request but {other:?}"),
        }
    }

    fn respond(&mut self, id: ExchangeId, response: Response) -> Vec<Message> {
        self.endpoint.respond(self.now, id, response);
        self.sent()
    }

    fn failure(&mut self) -> RequestError {
        match self.events.pop() {
            Some(Event::Response { response: Err(error), .. }) => error,
            other => panic!("no request failed: {other:?}"),
        }
    }

    fn success(&mut self) -> Response {
        match self.events.pop() {
            Some(Event::Response { response: Ok(response), .. }) => response,
            other => panic!("no request succeeded: {other:?}"),
        }
    }

    fn notified(&mut self) -> Response {
        match self.events.pop() {
            Some(Event::Notified { response, .. }) => response,
            other => panic!("there is no notification but {other:?}"),
        }
    }
}

fn get(path: &str, id: u16) -> Message {
    let mut message = Message::new(Kind::Confirmable, Code::GET, id);
    message.token = Token::new(b"tk");
    message.options.add(Number::URI_PATH, path.to_owned());
    message
}

fn reply_to(message: &Message, code: Code, payload: &'static [u8]) -> Message {
    let mut reply = Message::new(Kind::Acknowledgement, code, message.id);
    reply.token = message.token;
    reply.payload = Bytes::from_static(payload);
    reply
}

fn ack(message: &Message) -> Message {
    Message::new(Kind::Acknowledgement, Code::EMPTY, message.id)
}

fn block(number: u32, more: bool, exponent: u8) -> Block {
    Block { number, more, exponent }
}

fn text(body: impl Into<Bytes>) -> Response {
    Response::content(Format::TEXT, body)
}

// RFC 7252, section 4: messages.

#[test]
fn a_confirmable_message_is_retransmitted_four_times_with_doubled_waits_and_then_given_up() {
    let mut bench = Bench::new();
    let start = bench.now;
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let before = bench.now;
        bench.now = bench.endpoint.next_timeout().unwrap();
        waits.push((bench.now - before).as_secs_f64());
        assert_eq!(bench.pass(0.0), sent, "it is sent again unchanged");
    }
    assert!((2.0..=3.0).contains(&waits[0]), "{waits:?}");
    waits.windows(2).for_each(|pair| assert!((pair[1] / pair[0] - 2.0).abs() < 1e-6, "{waits:?}"));
    assert_eq!(bench.pass(60.0), []);
    assert_eq!(bench.failure(), RequestError::NoResponse);
    assert!(bench.now - start < Duration::from_secs_f64(93.0 + 60.0));
}

#[test]
fn the_random_factor_differs_between_messages() {
    let mut bench = Bench::new();
    let mut waits = Vec::new();
    for number in 1..=8 {
        bench.request(peer(number), Request::new(Code::GET, "/a"));
        let wait = bench.endpoint.next_timeout().unwrap() - bench.now;
        waits.push(wait);
        bench.endpoint.forget(peer(number));
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 4, "{waits:?}");
}

#[test]
fn only_one_confirmable_message_to_a_peer_is_outstanding() {
    let mut bench = Bench::new();
    let (_, first) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let (_, second) = bench.request(peer(1), Request::new(Code::GET, "/b"));
    assert_eq!((first.len(), second.len()), (1, 0));
    let (_, other) = bench.request(peer(2), Request::new(Code::GET, "/b"));
    assert_eq!(other.len(), 1, "another peer has its own");
    let next = bench.receive(peer(1), &reply_to(&first[0], Code::CONTENT, b"x"));
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].options.first(Number::URI_PATH).unwrap(), &b"b"[..]);
}

#[test]
fn a_duplicate_of_a_request_gets_the_same_reply_and_is_processed_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.receive(peer(1), &get("a", 5)), []);
    assert_eq!(bench.receive(peer(1), &get("a", 5)), [], "its response is not ready");
    let (id, _) = bench.requested();
    assert!(bench.events.is_empty());
    let reply = bench.respond(id, text("x"));
    assert_eq!(bench.receive(peer(1), &get("a", 5)), reply);
    bench.pass(240.0);
    assert_eq!(bench.receive(peer(1), &get("a", 5)), reply);
    assert!(bench.events.is_empty());
    bench.pass(10.0);
    assert_eq!(bench.receive(peer(1), &get("a", 5)), [], "after 247 s it is another request");
    bench.requested();
    assert_eq!(bench.receive(peer(2), &get("a", 5)), [], "ids are those of a peer");
    bench.requested();
}

#[test]
fn a_duplicate_of_a_non_confirmable_request_is_processed_once() {
    let mut bench = Bench::new();
    let request = Message { kind: Kind::NonConfirmable, ..get("a", 5) };
    assert_eq!(bench.receive(peer(1), &request), []);
    let (id, _) = bench.requested();
    let reply = bench.respond(id, text("x"));
    assert_eq!(reply[0].kind, Kind::NonConfirmable);
    assert_eq!(reply[0].token, request.token);
    bench.receive(peer(1), &request);
    assert!(bench.events.is_empty());
}

#[test]
fn a_ping_is_answered_with_a_reset() {
    let mut bench = Bench::new();
    let sent = bench.receive(peer(1), &Message::new(Kind::Confirmable, Code::EMPTY, 9));
    assert_eq!(sent, [Message::new(Kind::Reset, Code::EMPTY, 9)]);
}

#[test]
fn a_confirmable_message_with_a_format_error_is_rejected_and_another_one_ignored() {
    let mut bench = Bench::new();
    bench.endpoint.receive(bench.now, peer(1), b"\x40\x01\x12\x34\xff");
    assert_eq!(bench.sent(), [Message::new(Kind::Reset, Code::EMPTY, 0x1234)]);
    for ignored in [&b"\x50\x01\x12\x34\xff"[..], b"\x60\x01\x12\x34\xff", b"\x00\x01\x12\x34", b""]
    {
        bench.endpoint.receive(bench.now, peer(1), ignored);
        assert_eq!(bench.sent(), []);
    }
    assert_eq!(bench.endpoint.counters().malformed, 5);
}

#[test]
fn an_unexpected_response_is_rejected() {
    let mut bench = Bench::new();
    let mut response = Message::new(Kind::Confirmable, Code::CONTENT, 3);
    response.token = Token::new(b"unknown");
    assert_eq!(bench.receive(peer(1), &response), [Message::new(Kind::Reset, Code::EMPTY, 3)]);
    let unexpected = Message::new(Kind::Acknowledgement, Code::EMPTY, 3);
    assert_eq!(bench.receive(peer(1), &unexpected), []);
}

#[test]
fn a_reset_ends_a_request() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    bench.receive(peer(1), &Message::new(Kind::Reset, Code::EMPTY, sent[0].id));
    assert_eq!(bench.failure(), RequestError::Reset);
    assert_eq!(bench.pass(100.0), []);
}

#[test]
fn message_ids_are_not_used_again_within_their_lifetime() {
    let mut bench = Bench::new();
    let mut ids = std::collections::HashSet::new();
    let mut sent_all = 0;
    for _ in 0..70_000 {
        let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
        let Some(sent) = sent.first() else { break };
        assert!(ids.insert(sent.id), "{} is used again", sent.id);
        bench.receive(peer(1), &reply_to(sent, Code::CONTENT, b""));
        bench.success();
        sent_all += 1;
    }
    assert!((61_000..=65_536).contains(&sent_all), "{sent_all}");
    assert_eq!(bench.pass(248.0).len(), 1, "the request waited for a free id");
}

// RFC 7252, section 5: requests and responses.

#[test]
fn a_response_that_takes_long_is_sent_separately() {
    let mut bench = Bench::new();
    let request = get("a", 5);
    assert_eq!(bench.receive(peer(1), &request), []);
    assert_eq!(bench.pass(1.0), [ack(&request)]);
    assert_eq!(bench.receive(peer(1), &request), [ack(&request)], "a duplicate is acknowledged");
    let (id, _) = bench.requested();
    let sent = bench.respond(id, text("late"));
    assert_eq!((sent[0].kind, sent[0].token), (Kind::Confirmable, request.token));
    assert_ne!(sent[0].id, request.id);
    assert_eq!(bench.pass(3.1), sent, "it is retransmitted");
    bench.receive(peer(1), &ack(&sent[0]));
    assert_eq!(bench.pass(100.0), []);
}

#[test]
fn a_separate_response_ends_a_request_and_is_acknowledged() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    bench.receive(peer(1), &ack(&sent[0]));
    assert_eq!(bench.pass(100.0), [], "an acknowledged request is not retransmitted");
    let response =
        Message { kind: Kind::Confirmable, id: 77, ..reply_to(&sent[0], Code::CONTENT, b"x") };
    let acknowledgement = [Message::new(Kind::Acknowledgement, Code::EMPTY, 77)];
    assert_eq!(bench.receive(peer(1), &response), acknowledgement);
    assert_eq!(bench.success().body, "x");
    assert_eq!(bench.receive(peer(1), &response), acknowledgement, "so is its duplicate");
    assert!(bench.events.is_empty());
}

#[test]
fn a_separate_response_also_ends_a_request_whose_acknowledgement_was_lost() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let response =
        Message { kind: Kind::NonConfirmable, id: 77, ..reply_to(&sent[0], Code::CONTENT, b"x") };
    bench.receive(peer(1), &response);
    assert_eq!(bench.success().body, "x");
    assert_eq!(bench.pass(100.0), []);
}

#[test]
fn an_acknowledged_request_without_a_response_is_given_up() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    bench.receive(peer(1), &ack(&sent[0]));
    bench.pass(250.0);
    assert_eq!(bench.failure(), RequestError::NoResponse);
}

#[test]
fn a_response_with_another_token_is_not_the_requests() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let mut response = reply_to(&sent[0], Code::CONTENT, b"x");
    response.token = Token::new(b"other");
    bench.receive(peer(1), &response);
    assert!(bench.events.is_empty());
    assert_eq!(sent[0].token.bytes().len(), 3, "within DTLS");
    let (_, sent) = bench.request(stranger(), Request::new(Code::GET, "/a"));
    assert_eq!(sent[0].token.bytes().len(), 8, "without DTLS, strangers must not guess it");
}

#[test]
fn critical_options_that_are_not_supported_are_refused_and_elective_ones_ignored() {
    let mut bench = Bench::new();
    let mut request = get("a", 5);
    request.options.add(Number(9), &b"oscore"[..]);
    let sent = bench.receive(peer(1), &request);
    assert_eq!((sent[0].kind, sent[0].code), (Kind::Acknowledgement, Code::BAD_OPTION));
    let mut request = Message { kind: Kind::NonConfirmable, ..get("a", 6) };
    request.options.add(Number(9), &b"oscore"[..]);
    assert_eq!(bench.receive(peer(1), &request), [Message::new(Kind::Reset, Code::EMPTY, 6)]);
    let mut request = get("a", 7);
    request.options.add(Number(252), &b"echo"[..]);
    bench.receive(peer(1), &request);
    assert_eq!(bench.requested().1.path, "/a");
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let mut response = reply_to(&sent[0], Code::CONTENT, b"x");
    response.options.add(Number(9), &b""[..]);
    bench.receive(peer(1), &response);
    assert_eq!(bench.failure(), RequestError::BadOption);
}

#[test]
fn a_server_is_no_proxy_and_knows_four_methods() {
    let mut bench = Bench::new();
    let mut request = get("a", 5);
    request.options.add(Number::PROXY_URI, "coap://example.com/");
    assert_eq!(bench.receive(peer(1), &request)[0].code, Code::PROXYING_NOT_SUPPORTED);
    let fetch = Message { code: Code(5), ..get("a", 6) };
    assert_eq!(bench.receive(peer(1), &fetch)[0].code, Code::METHOD_NOT_ALLOWED);
}

#[test]
fn a_path_has_its_segments_and_arguments_as_text() {
    let mut bench = Bench::new();
    let mut request = get("sensors", 5);
    request.options.add(Number::URI_PATH, "chip temp");
    request.options.add(Number::URI_QUERY, "sig=cose");
    bench.receive(peer(1), &request);
    let (_, request) = bench.requested();
    assert_eq!((&*request.path, request.argument("sig")), ("/sensors/chip temp", Some("cose")));
    for (id, wrong) in [(6, &b"a/b"[..]), (7, b"\xff")] {
        let mut request = Message::new(Kind::Confirmable, Code::GET, id);
        request.options.add(Number::URI_PATH, wrong);
        assert_eq!(bench.receive(peer(1), &request)[0].code, Code::BAD_OPTION);
    }
}

#[test]
fn too_many_requests_of_a_peer_are_refused() {
    let mut bench = Bench::new();
    let most = Limits::default().incoming as u16;
    for id in 0..most {
        assert_eq!(bench.receive(peer(1), &get("a", id)), []);
    }
    let sent = bench.receive(peer(1), &get("a", most));
    assert_eq!(sent[0].code, Code::SERVICE_UNAVAILABLE);
    assert_eq!(sent[0].options.uint(Number::MAX_AGE), Some(1));
    assert_eq!(bench.receive(peer(2), &get("a", 0)), [], "others are served");
}

// RFC 7967: No-Response.

#[test]
fn a_response_that_the_client_does_not_want_is_not_sent() {
    let mut bench = Bench::new();
    let mut request = get("a", 5);
    request.options.add_uint(Number::NO_RESPONSE, 2);
    bench.receive(peer(1), &request);
    let (id, _) = bench.requested();
    assert_eq!(bench.respond(id, text("x")), [ack(&request)]);
    request.id = 6;
    bench.receive(peer(1), &request);
    let (id, _) = bench.requested();
    assert_eq!(bench.respond(id, Response::new(Code::NOT_FOUND))[0].code, Code::NOT_FOUND);
    let mut request = Message { kind: Kind::NonConfirmable, ..get("a", 7) };
    request.options.add_uint(Number::NO_RESPONSE, 26);
    bench.receive(peer(1), &request);
    let (id, _) = bench.requested();
    assert_eq!(bench.respond(id, Response::new(Code::NOT_FOUND)), []);
}

// RFC 7959: transfers in blocks.

fn put(id: u16, number: u32, more: bool, payload: &[u8]) -> Message {
    let mut message = Message { code: Code::PUT, ..get("bundles", id) };
    message.options.add_block(Number::BLOCK1, block(number, more, 0));
    message.payload = Bytes::copy_from_slice(payload);
    message
}

#[test]
fn a_body_arrives_in_blocks() {
    let mut bench = Bench::new();
    let sent = bench.receive(peer(1), &put(1, 0, true, &[1; 16]));
    assert_eq!(sent[0].code, Code::CONTINUE);
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(0, true, 0))));
    assert_eq!(bench.receive(peer(1), &put(2, 1, false, &[2; 3])), []);
    let (id, request) = bench.requested();
    assert_eq!(request.body, [&[1; 16][..], &[2; 3]].concat());
    let sent = bench.respond(id, Response::new(Code::CHANGED));
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(1, false, 0))));
}

#[test]
fn a_block_without_those_before_it_is_incomplete() {
    let mut bench = Bench::new();
    let code = |sent: Vec<Message>| sent[0].code;
    assert_eq!(
        code(bench.receive(peer(1), &put(1, 1, true, &[1; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE
    );
    assert_eq!(code(bench.receive(peer(1), &put(2, 0, true, &[1; 16]))), Code::CONTINUE);
    assert_eq!(
        code(bench.receive(peer(1), &put(3, 2, true, &[1; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE
    );
    assert_eq!(
        code(bench.receive(peer(2), &put(4, 1, true, &[1; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE,
        "the blocks are another peer's"
    );
    assert_eq!(code(bench.receive(peer(1), &put(5, 1, true, &[1; 16]))), Code::CONTINUE);
    assert_eq!(
        code(bench.receive(peer(1), &put(6, 1, true, &[1; 16]))),
        Code::CONTINUE,
        "the server has it"
    );
    assert_eq!(
        code(bench.receive(peer(1), &put(7, 1, true, &[9; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE,
        "it differs"
    );
    bench.pass(248.0);
    assert_eq!(
        code(bench.receive(peer(1), &put(8, 2, true, &[1; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE,
        "it took too long"
    );
}

#[test]
fn blocks_have_the_size_that_they_state() {
    let mut bench = Bench::new();
    for (id, message) in
        [put(1, 0, true, &[1; 15]), put(2, 0, true, &[1; 17]), put(3, 0, false, &[1; 17])]
            .iter()
            .enumerate()
    {
        assert_eq!(bench.receive(peer(1), message)[0].code, Code::BAD_REQUEST, "{id}");
    }
    let mut reserved = Message { id: 9, ..get("bundles", 0) };
    reserved.options.add_uint(Number::BLOCK1, 7);
    assert_eq!(bench.receive(peer(1), &reserved)[0].code, Code::BAD_REQUEST);
}

#[test]
fn a_body_beyond_the_limit_is_refused_at_its_first_block_if_it_states_its_size() {
    let limit = |_: Code, _: &str| 40;
    let mut bench =
        Bench::with(Config { body_limit: std::sync::Arc::new(limit), ..Config::default() });
    let mut stated = put(1, 0, true, &[1; 16]);
    stated.options.add_uint(Number::SIZE1, 41);
    let sent = bench.receive(peer(1), &stated);
    assert_eq!(sent[0].code, Code::REQUEST_ENTITY_TOO_LARGE);
    assert_eq!(sent[0].options.uint(Number::SIZE1), Some(40));
    for number in 0..2 {
        let sent = bench.receive(peer(1), &put(2 + number, number.into(), true, &[1; 16]));
        assert_eq!(sent[0].code, Code::CONTINUE);
    }
    let sent = bench.receive(peer(1), &put(9, 2, false, &[1; 9]));
    assert_eq!(sent[0].code, Code::REQUEST_ENTITY_TOO_LARGE);
    let whole =
        Message { code: Code::PUT, payload: Bytes::from_static(&[1; 41]), ..get("bundles", 10) };
    assert_eq!(bench.receive(peer(1), &whole)[0].code, Code::REQUEST_ENTITY_TOO_LARGE);
}

#[test]
fn two_bodies_at_the_same_time_are_distinguished_by_their_tags() {
    let mut bench = Bench::new();
    let tagged = |id, number, more, payload: &[u8], tag: &'static [u8]| {
        let mut message = put(id, number, more, payload);
        message.options.add(Number::REQUEST_TAG, tag);
        message
    };
    bench.receive(peer(1), &tagged(1, 0, true, &[1; 16], b"a"));
    bench.receive(peer(1), &tagged(2, 0, true, &[2; 16], b"b"));
    bench.receive(peer(1), &tagged(3, 1, false, &[1; 1], b"a"));
    assert_eq!(bench.requested().1.body, vec![1; 17]);
    bench.receive(peer(1), &tagged(4, 1, false, &[2; 1], b"b"));
    assert_eq!(bench.requested().1.body, vec![2; 17]);
}

#[test]
fn the_blocks_of_a_representation_are_of_one_version() {
    let mut bench = Bench::new();
    let mut first = get("a", 1);
    first.options.add_block(Number::BLOCK2, block(0, false, 1));
    bench.receive(peer(1), &first);
    let (id, _) = bench.requested();
    let body: Vec<u8> = (0..70).collect();
    let sent = bench.respond(id, text(body.clone()));
    assert_eq!(sent[0].options.block(Number::BLOCK2), Ok(Some(block(0, true, 1))));
    assert_eq!(sent[0].options.uint(Number::SIZE2), Some(70));
    assert_eq!(sent[0].payload, body[..32]);
    let etag = sent[0].options.first(Number::ETAG).cloned();
    assert!(etag.is_some());
    // The resource changes now, and is not asked again.
    let mut last = get("a", 2);
    last.options.add_block(Number::BLOCK2, block(2, false, 1));
    let sent = bench.receive(peer(1), &last);
    assert_eq!(sent[0].options.block(Number::BLOCK2), Ok(Some(block(2, false, 1))));
    assert_eq!(
        (&sent[0].payload, sent[0].options.first(Number::ETAG)),
        (&Bytes::from(body[64..].to_vec()), etag.as_ref())
    );
    let mut beyond = get("a", 3);
    beyond.options.add_block(Number::BLOCK2, block(3, false, 1));
    assert_eq!(bench.receive(peer(1), &beyond)[0].code, Code::BAD_REQUEST);
}

#[test]
fn a_client_fetches_all_blocks_and_starts_again_if_the_version_changes() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let part = |request: &Message, number, more, payload: &'static [u8], etag: &'static [u8]| {
        let mut reply = reply_to(request, Code::CONTENT, payload);
        reply.options.add_block(Number::BLOCK2, block(number, more, 0));
        reply.options.add(Number::ETAG, etag);
        reply
    };
    let sent = bench.receive(peer(1), &part(&sent[0], 0, true, &[1; 16], b"1"));
    assert_eq!(sent[0].options.block(Number::BLOCK2), Ok(Some(block(1, false, 0))));
    let sent = bench.receive(peer(1), &part(&sent[0], 1, false, &[2; 3], b"2"));
    assert_eq!(sent[0].options.block(Number::BLOCK2), Ok(None), "it starts again");
    let sent = bench.receive(peer(1), &part(&sent[0], 0, true, &[3; 16], b"2"));
    bench.receive(peer(1), &part(&sent[0], 1, false, &[2; 3], b"2"));
    assert_eq!(bench.success().body, [&[3; 16][..], &[2; 3]].concat());
}

#[test]
fn a_client_sends_smaller_blocks_if_the_server_asks() {
    let mut bench = Bench::new();
    let body = Bytes::from((0..=255).collect::<Vec<u8>>().repeat(8));
    let (_, sent) = bench
        .request(peer(1), Request::new(Code::PUT, "/a").with_body(Format::OCTETS, body.clone()));
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(0, true, 6))));
    assert_eq!(sent[0].options.uint(Number::SIZE1), Some(2048));
    // RFC 7959, figure 8: the server acknowledges the block, and asks for smaller ones from then on.
    let mut reply = reply_to(&sent[0], Code::CONTINUE, b"");
    reply.options.add_block(Number::BLOCK1, block(0, true, 5));
    let sent = bench.receive(peer(1), &reply);
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(2, true, 5))));
    assert_eq!(sent[0].payload, body[1024..1536]);
    // With 4.13 it refuses the block, and the body starts again.
    let mut reply = reply_to(&sent[0], Code::REQUEST_ENTITY_TOO_LARGE, b"");
    reply.options.add_block(Number::BLOCK1, block(2, true, 4));
    let sent = bench.receive(peer(1), &reply);
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(0, true, 4))));
    // With 4.08 the server lost the blocks before.
    let mut reply = reply_to(&sent[0], Code::CONTINUE, b"");
    reply.options.add_block(Number::BLOCK1, block(0, true, 4));
    let sent = bench.receive(peer(1), &reply);
    let sent = bench.receive(peer(1), &reply_to(&sent[0], Code::REQUEST_ENTITY_INCOMPLETE, b""));
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(0, true, 4))));
    // Without a smaller block, 4.13 is final.
    bench.receive(peer(1), &reply_to(&sent[0], Code::REQUEST_ENTITY_TOO_LARGE, b""));
    assert_eq!(bench.success().code, Code::REQUEST_ENTITY_TOO_LARGE);
}

#[test]
fn a_response_beyond_the_limit_is_not_fetched() {
    let mut bench = Bench::with(Config { response_limit: 24, ..Config::default() });
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let mut reply = reply_to(&sent[0], Code::CONTENT, &[1; 16]);
    reply.options.add_block(Number::BLOCK2, block(0, true, 0));
    let sent = bench.receive(peer(1), &reply);
    let mut reply = reply_to(&sent[0], Code::CONTENT, &[1; 16]);
    reply.options.add_block(Number::BLOCK2, block(1, true, 0));
    bench.receive(peer(1), &reply);
    assert_eq!(bench.failure(), RequestError::ResponseTooLong);
}

#[test]
fn an_upload_continues_after_a_new_handshake_of_the_same_device() {
    let (mut client, mut server) = (Bench::new(), Bench::new());
    let (before, after) = (peer(1), Peer { session: 99, ..peer(1) });
    server.endpoint.identify(before, *b"device-1");
    let body = Bytes::from(vec![5; 5000]);
    let request = Request::new(Code::PUT, "/bundles").with_body(Format::CBOR_SEQ, body.clone());
    let id =
        client.endpoint.request(client.now, before, request, Duration::from_secs(600)).unwrap();
    let mut sent = client.sent();
    for _ in 0..2 {
        let replies = server.receive(before, &sent[0]);
        sent = client.receive(before, &replies[0]);
    }
    // The session ends. The client makes a new one, and moves its request.
    server.endpoint.identify(after, *b"device-1");
    server.endpoint.forget(before);
    client.endpoint.move_requests(client.now, before, after);
    sent = client.sent();
    assert_eq!(
        sent[0].options.block(Number::BLOCK1).unwrap().unwrap().number,
        2,
        "the third block"
    );
    for _ in 0..2 {
        let replies = server.receive(after, &sent[0]);
        sent = client.receive(after, &replies[0]);
    }
    assert_eq!(server.receive(after, &sent[0]), []);
    let (exchange, request) = server.requested();
    assert_eq!(request.body, body);
    let replies = server.respond(exchange, Response::new(Code::CHANGED));
    client.receive(after, &replies[0]);
    let expected = RequestId { peer: after, number: id.number };
    assert!(
        matches!(client.events.pop(), Some(Event::Response { id, response: Ok(_) }) if id == expected)
    );
}

#[test]
fn a_patient_upload_survives_an_outage_that_is_longer_than_all_retransmissions() {
    let (mut client, mut server) = (Bench::new(), Bench::new());
    let body = Bytes::from(vec![5; 3000]);
    let request = Request::new(Code::PUT, "/bundles").with_body(Format::CBOR_SEQ, body.clone());
    client.endpoint.request(client.now, peer(1), request, Duration::from_secs(600)).unwrap();
    let sent = client.sent();
    let replies = server.receive(peer(1), &sent[0]);
    client.receive(peer(1), &replies[0]);
    let lost = client.pass(150.0);
    assert!(lost.len() > 5, "the second block is sent again and again");
    server.now = client.now;
    let replies = server.receive(peer(1), lost.last().unwrap());
    let sent = client.receive(peer(1), &replies[0]);
    server.receive(peer(1), &sent[0]);
    assert_eq!(server.requested().1.body, body);
}

// RFC 7641: observers.

fn observe(path: &str, id: u16, value: u32) -> Message {
    let mut message = get(path, id);
    message.options.add_uint(Number::OBSERVE, value);
    message
}

fn observable(body: impl Into<Bytes>) -> Response {
    Response { accepts_observer: true, ..text(body) }
}

impl Bench {
    fn register(&mut self, from: Peer, message: &Message) -> Vec<Message> {
        self.receive(from, message);
        let (id, request) = self.requested();
        assert!(request.observes);
        self.respond(id, observable("first"))
    }

    fn notify(&mut self, path: &str, body: &str) -> Vec<Message> {
        self.endpoint.notify(self.now, path, &mut |_| Some(observable(body.to_owned())));
        self.sent()
    }
}

#[test]
fn an_observer_gets_every_new_version_with_an_increasing_number_until_it_cancels() {
    let mut bench = Bench::new();
    let sent = bench.register(peer(1), &observe("a", 1, 0));
    let first = sent[0].options.uint(Number::OBSERVE).unwrap();
    let sent = bench.notify("/a", "second");
    assert_eq!((sent[0].kind, &*sent[0].payload), (Kind::Confirmable, &b"second"[..]));
    assert_eq!(sent[0].token, Token::new(b"tk"));
    assert!(sent[0].options.uint(Number::OBSERVE).unwrap() > first);
    assert_eq!(bench.notify("/b", "another resource"), []);
    bench.receive(peer(1), &ack(&sent[0]));
    // Another request for the resource with Observe 1 ends the observation.
    bench.receive(peer(1), &observe("a", 2, 1));
    let (id, request) = bench.requested();
    assert!(!request.observes);
    assert_eq!(bench.respond(id, observable("third"))[0].options.uint(Number::OBSERVE), None);
    assert_eq!(bench.notify("/a", "fourth"), []);
    assert_eq!(bench.endpoint.observers(), 0);
}

#[test]
fn an_observer_that_resets_or_does_not_acknowledge_is_removed() {
    let mut bench = Bench::new();
    bench.register(peer(1), &observe("a", 1, 0));
    let sent = bench.notify("/a", "second");
    bench.receive(peer(1), &Message::new(Kind::Reset, Code::EMPTY, sent[0].id));
    assert_eq!((bench.endpoint.observers(), bench.notify("/a", "third")), (0, vec![]));
    bench.register(peer(1), &observe("a", 2, 0));
    bench.notify("/a", "fourth");
    bench.pass(100.0);
    assert_eq!((bench.endpoint.observers(), bench.notify("/a", "fifth")), (0, vec![]));
}

#[test]
fn while_a_notification_is_outstanding_only_the_newest_version_waits() {
    let mut bench = Bench::new();
    bench.register(peer(1), &observe("a", 1, 0));
    let sent = bench.notify("/a", "second");
    assert_eq!(bench.notify("/a", "third"), []);
    assert_eq!(bench.notify("/a", "fourth"), []);
    let sent = bench.receive(peer(1), &ack(&sent[0]));
    assert_eq!((sent.len(), &*sent[0].payload), (1, &b"fourth"[..]));
}

#[test]
fn registering_again_with_the_same_token_replaces_the_registration() {
    let mut bench = Bench::new();
    bench.register(peer(1), &observe("a", 1, 0));
    bench.register(peer(1), &observe("a", 2, 0));
    assert_eq!(bench.endpoint.observers(), 1);
    assert_eq!(bench.notify("/a", "second").len(), 1);
}

#[test]
fn an_error_ends_all_observations() {
    let mut bench = Bench::new();
    bench.register(peer(1), &observe("a", 1, 0));
    bench.endpoint.notify(bench.now, "/a", &mut |_| Some(Response::new(Code::NOT_FOUND)));
    let sent = bench.sent();
    assert_eq!((sent[0].code, sent[0].options.uint(Number::OBSERVE)), (Code::NOT_FOUND, None));
    assert_eq!(bench.endpoint.observers(), 0);
}

#[test]
fn observers_beyond_the_limit_get_the_representation_only() {
    let limits = Limits { observers: 3, observers_of_peer: 2, ..Limits::default() };
    let mut bench = Bench::with(Config { limits, ..Config::default() });
    let register = |bench: &mut Bench, of: u8, id: u16| {
        let mut message = observe("a", id, 0);
        message.token = Token::new(&id.to_be_bytes());
        bench.register(peer(of), &message)[0].options.uint(Number::OBSERVE).is_some()
    };
    let accepted: Vec<bool> = [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]
        .into_iter()
        .map(|(of, id)| register(&mut bench, of, id))
        .collect();
    assert_eq!(accepted, [true, true, false, true, false]);
    assert_eq!(bench.endpoint.counters().refused, 2);
    bench.endpoint.forget(peer(1));
    assert_eq!(bench.endpoint.observers(), 1);
}

#[test]
fn a_client_ignores_older_notifications_and_fetches_the_rest_of_long_ones() {
    let mut bench = Bench::new();
    let request = Request { observes: true, ..Request::new(Code::GET, "/a") };
    let (id, sent) = bench.request(peer(1), request);
    assert_eq!(sent[0].options.uint(Number::OBSERVE), Some(0));
    let token = sent[0].token;
    let mut reply = reply_to(&sent[0], Code::CONTENT, b"first");
    reply.options.add_uint(Number::OBSERVE, 100);
    bench.receive(peer(1), &reply);
    assert_eq!(bench.notified().body, "first");
    let notification = |id: u16, number: u32, payload: &'static [u8]| {
        let mut message = Message::new(Kind::NonConfirmable, Code::CONTENT, id);
        message.token = token;
        message.options.add_uint(Number::OBSERVE, number);
        message.payload = Bytes::from_static(payload);
        message
    };
    bench.receive(peer(1), &notification(1, 102, b"third"));
    assert_eq!(bench.notified().body, "third");
    bench.receive(peer(1), &notification(2, 101, b"second"));
    assert!(bench.events.is_empty(), "it is older");
    // The number wraps around at 2^24, and any number is newer after 128 s.
    bench.pass(129.0);
    bench.events.clear();
    bench.receive(peer(1), &notification(3, 5, b"fourth"));
    assert_eq!(bench.notified().body, "fourth");
    let mut long = notification(4, 6, &[1; 16]);
    long.options.add_block(Number::BLOCK2, block(0, true, 0));
    long.options.add(Number::ETAG, &b"e"[..]);
    let sent = bench.receive(peer(1), &long);
    assert_ne!(sent[0].token, token, "the blocks have another token");
    assert_eq!(sent[0].options.uint(Number::OBSERVE), None);
    let mut rest = reply_to(&sent[0], Code::CONTENT, &[2; 3]);
    rest.options.add_block(Number::BLOCK2, block(1, false, 0));
    rest.options.add(Number::ETAG, &b"e"[..]);
    bench.receive(peer(1), &rest);
    assert_eq!(bench.notified().body, [&[1; 16][..], &[2; 3]].concat());
    bench.endpoint.cancel(bench.now, id);
    let sent = bench.sent();
    assert_eq!((sent[0].options.uint(Number::OBSERVE), sent[0].token), (Some(1), token));
    let late = Message { kind: Kind::Confirmable, ..notification(9, 7, b"late") };
    assert_eq!(bench.receive(peer(1), &late), [Message::new(Kind::Reset, Code::EMPTY, 9)]);
}

#[test]
fn a_client_registers_again_when_its_representation_is_stale() {
    let mut bench = Bench::new();
    let request = Request { observes: true, ..Request::new(Code::GET, "/a") };
    let (_, sent) = bench.request(peer(1), request);
    let mut reply = reply_to(&sent[0], Code::CONTENT, b"first");
    reply.options.add_uint(Number::OBSERVE, 100);
    reply.options.add_uint(Number::MAX_AGE, 30);
    bench.receive(peer(1), &reply);
    assert_eq!(bench.pass(30.0), []);
    let again = bench.pass(11.0);
    assert_eq!(again[0].options.uint(Number::OBSERVE), Some(0));
    assert_eq!(again[0].token, sent[0].token);
}

// RFC 7252, section 11.3: amplification.

#[test]
fn an_address_that_is_not_validated_receives_at_most_three_times_what_it_sent() {
    let mut bench = Bench::new();
    let request = observe("sensors", 1, 0);
    bench.receive(stranger(), &request);
    let (id, _) = bench.requested();
    let wire = |messages: &[Message]| -> usize {
        messages.iter().map(|message| message.encode().len() + 28).sum()
    };
    let received = wire(std::slice::from_ref(&request));
    let mut all = bench.respond(id, observable(vec![b'x'; 4000]));
    assert_eq!(all.len(), 1);
    assert!(all[0].options.block(Number::BLOCK2).unwrap().unwrap().size() < 1024);
    for _ in 0..50 {
        all.extend(bench.notify("/sensors", "a new version of the representation"));
        all.extend(bench.pass(10.0));
    }
    assert!(wire(&all) <= 3 * received, "{} > 3 * {received}", wire(&all));
    assert!(bench.endpoint.counters().withheld > 0);
}

#[test]
fn an_address_is_validated_by_an_acknowledgement() {
    let mut bench = Bench::new();
    bench.receive(stranger(), &observe("a", 1, 0));
    let (id, _) = bench.requested();
    bench.respond(id, observable("x"));
    let sent = bench.notify("/a", "y");
    bench.receive(stranger(), &ack(&sent[0]));
    let long = vec![b'z'; 900];
    bench.endpoint.notify(bench.now, "/a", &mut |_| Some(observable(long.clone())));
    assert_eq!(bench.sent()[0].payload.len(), 900);
}

#[test]
fn the_peers_are_bounded_and_strangers_are_forgotten_first() {
    let limits = Limits { peers: 100, ..Limits::default() };
    let mut bench = Bench::with(Config { limits, ..Config::default() });
    bench.register(peer(1), &observe("a", 1, 0));
    for number in 0..100_000u32 {
        let address = SocketAddr::from((number.to_be_bytes(), 5683));
        bench.receive(Peer::plain(address), &get("a", 1));
        bench.events.clear();
    }
    assert_eq!(bench.endpoint.peers(), 100);
    assert_eq!(bench.notify("/a", "still there").len(), 1);
}
