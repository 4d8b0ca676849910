//! Fuzzes CoAP. The bytes are a message, and a script: messages of strangers to an endpoint that serves
//! a resource and observes one, with time that passes. An endpoint must not send more bytes to an
//! address that is not validated than three times what the address sent, and its memory is bounded.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use moteseal_net::coap::message::{Block, Kind, Message, Number, Token};
use moteseal_net::coap::{
    Code, Config, Endpoint, Event, Format, Limits, Output, Peer, Request, Response,
};

/// The length of the headers of IPv4 and UDP, which the limit on amplification counts.
const HEADERS: usize = 28;

fn peer(number: u8) -> Peer {
    let address = SocketAddr::from(([192, 0, 2, number & 3], 5683));
    // Peers with an odd number have a DTLS session.
    Peer { address, session: u64::from(number & 1) }
}

/// An endpoint, and what strangers sent to it and received from it.
struct World {
    endpoint: Endpoint,
    now: Instant,
    received: [usize; 4],
    sent: [usize; 4],
    validated: [bool; 4],
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let limits = Limits {
            peers: 4,
            observers: 6,
            observers_of_peer: 3,
            upload_bytes: 64 << 10,
            ..Limits::default()
        };
        let config = Config { limits, response_limit: 4096, ..Config::default() };
        let mut endpoint = Endpoint::new(config, [1; 32], now);
        let observe = Request { observes: true, ..Request::new(Code::GET, "/other") };
        let _ = endpoint.request(now, peer(1), observe, Duration::ZERO);
        let mut world =
            Self { endpoint, now, received: [0; 4], sent: [0; 4], validated: [false; 4] };
        world.drain();
        world
    }

    fn drain(&mut self) {
        for _ in 0..1000 {
            match self.endpoint.poll() {
                None => return,
                Some(Output::Send(to, message)) => {
                    assert!(Message::decode(&message).is_ok(), "an endpoint sends messages only");
                    self.note_sent(to, message.len());
                }
                Some(Output::Event(Event::Request { id, request, .. })) => {
                    let body = vec![b'x'; request.body.len() * 3 + 40];
                    let response = Response {
                        accepts_observer: true,
                        ..Response::content(Format::TEXT, body)
                    };
                    self.endpoint.respond(self.now, id, response);
                }
                Some(Output::Event(_)) => {}
            }
        }
        panic!("an endpoint sends without end");
    }

    fn index(of: Peer) -> usize {
        match of.address.ip() {
            std::net::IpAddr::V4(address) => usize::from(address.octets()[3] & 3),
            std::net::IpAddr::V6(_) => 0,
        }
    }

    fn note_sent(&mut self, to: Peer, length: usize) {
        let at = Self::index(to);
        self.sent[at] += length + HEADERS;
        assert!(
            to.is_secure() || self.validated[at] || self.sent[at] <= 3 * self.received[at],
            "{} bytes answer {}",
            self.sent[at],
            self.received[at]
        );
    }

    fn receive(&mut self, from: Peer, message: &[u8]) {
        let at = Self::index(from);
        self.received[at] += message.len() + HEADERS;
        // An acknowledgement may validate the address.
        self.validated[at] |= message.first().is_some_and(|first| first >> 4 & 3 == 2);
        self.endpoint.receive(self.now, from, message);
        self.drain();
        assert!(self.endpoint.peers() <= 4 && self.endpoint.observers() <= 6);
    }
}

/// Returns the message of a step of the script.
fn message(operation: u8, value: u8) -> Message {
    let kind = [Kind::Confirmable, Kind::NonConfirmable, Kind::Acknowledgement, Kind::Reset];
    let codes = [Code::GET, Code::PUT, Code::POST, Code::CONTENT, Code::CONTINUE, Code::EMPTY];
    let code = codes[usize::from(operation >> 2) % codes.len()];
    let mut message = Message::new(kind[usize::from(operation & 3)], code, value.into());
    if code == Code::EMPTY {
        return message;
    }
    message.token = Token::new(&[value >> 4]);
    message.options.add(Number::URI_PATH, "a");
    if value & 1 == 1 {
        message.options.add_uint(Number::OBSERVE, u32::from(value >> 7));
    }
    let block = Block { number: u32::from(value >> 2 & 7), more: value & 2 != 0, exponent: 0 };
    match operation >> 6 {
        1 => message.options.add_block(Number::BLOCK1, block),
        2 => message.options.add_block(Number::BLOCK2, block),
        3 => message.options.add_uint(Number::NO_RESPONSE, 2),
        _ => {}
    }
    message.payload = vec![operation; if block.more { 16 } else { usize::from(value & 15) }].into();
    message
}

/// Processes the bytes as a message and as a script: two bytes for each step.
pub fn run(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        let again = Message::decode(&message.encode());
        assert_eq!(again.as_ref(), Ok(&message), "a message does not decode to itself");
    }
    let mut world = World::new();
    world.receive(peer(2), bytes);
    world.receive(peer(1), bytes);
    for step in bytes.as_chunks::<2>().0.iter().take(200) {
        let [operation, value] = *step;
        if operation & 0x30 == 0x30 {
            world.now += Duration::from_millis(u64::from(value) * 200);
            world.endpoint.timeout(world.now);
            let mut newest = |_: &Request| {
                let body = vec![value; usize::from(value) * 8];
                Some(Response { accepts_observer: true, ..Response::content(Format::TEXT, body) })
            };
            world.endpoint.notify(world.now, "/a", &mut newest);
            world.drain();
        } else {
            world.receive(peer(value >> 5), &message(operation, value).encode());
        }
    }
}

/// Returns messages of each kind, and scripts of transfers in blocks and of observers.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for operation in [0, 1, 4, 0x44, 0x84, 0xc4, 0x48, 2, 3, 12, 16, 20] {
        seeds.push(message(operation, 7).encode());
    }
    seeds.push(b"\x40\x01\x7d\x34\xbbtemperature".to_vec());
    // A body in three blocks, its response in blocks, observers, and time.
    seeds.push([[0x44, 2], [0x44, 6], [0x44, 8], [0x84, 4], [0x84, 8]].concat());
    seeds.push([[0, 1], [0, 33], [0x30, 9], [2, 1], [0x30, 90], [0x30, 200], [3, 2]].concat());
    seeds
}
