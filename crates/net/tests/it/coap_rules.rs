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

mod blocks;
mod messages;
mod observers;
mod periodic;
mod requests;

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
