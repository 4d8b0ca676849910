//! Two endpoints over a network that loses, repeats and reorders datagrams: seeded runs in simulated
//! time. Every request is processed exactly once and gets its own response, every body arrives whole,
//! and an observer ends with the newest version.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_net::coap::{
    Code, Config, Endpoint, Event, Format, Output, Peer, Request, Response, Transmission,
};

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn hits(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn peer(side: usize) -> Peer {
    Peer { address: SocketAddr::from(([192, 0, 2, side as u8], 5683)), session: 1 }
}

struct Network {
    chance: Chance,
    now: Instant,
    ends: [Endpoint; 2],
    /// Datagrams in transit: when they arrive, a number that makes the time unique, and where.
    transit: BTreeMap<(Instant, u64), (usize, Bytes)>,
    number: u64,
    loss: u64,
}

impl Network {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let mut chance = Chance(seed);
        let exponent = chance.below(7) as u8;
        let transmission =
            Transmission { nstart: 1 + chance.below(3) as usize, ..Transmission::default() };
        let config = Config { block_exponent: exponent, transmission, ..Config::default() };
        let end = |of: u8| Endpoint::new(config.clone(), [of ^ seed as u8; 32], now);
        let loss = chance.below(31);
        Self { chance, now, ends: [end(1), end(2)], transit: BTreeMap::new(), number: 0, loss }
    }

    /// Sends what the endpoints have to send, and returns their events.
    fn exchange(&mut self) -> Vec<(usize, Event)> {
        let mut events = Vec::new();
        for side in [CLIENT, SERVER] {
            while let Some(output) = self.ends[side].poll() {
                match output {
                    Output::Event(event) => events.push((side, event)),
                    Output::Send(_, datagram) => {
                        let copies = 1 + u64::from(self.chance.hits(15));
                        for _ in 0..copies {
                            if !self.chance.hits(self.loss) {
                                // A delay of up to 40 s reorders datagrams beyond retransmissions.
                                let slow = self.chance.hits(10);
                                let delay = self.chance.below(if slow { 40_000 } else { 300 });
                                self.number += 1;
                                let at = self.now + Duration::from_millis(delay);
                                self.transit
                                    .insert((at, self.number), (1 - side, datagram.clone()));
                            }
                        }
                    }
                }
            }
        }
        events
    }

    /// Lets time pass until the next datagram or timeout. Returns false if there is none.
    fn step(&mut self) -> bool {
        let arrival = self.transit.first_key_value().map(|((at, _), _)| *at);
        let timeout = self.ends.iter().filter_map(Endpoint::next_timeout).min();
        let Some(next) = arrival.into_iter().chain(timeout).min() else { return false };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            if let Some((_, (side, datagram))) = self.transit.pop_first() {
                self.ends[side].receive(self.now, peer(1 - side), &datagram);
            }
        } else {
            self.ends.iter_mut().for_each(|end| end.timeout(self.now));
        }
        true
    }
}

fn body(number: u64, length: u64) -> Bytes {
    let mut chance = Chance(number);
    (0..length).map(|_| chance.next() as u8).collect::<Vec<u8>>().into()
}

/// The response to the request with this body.
fn echo(request: &Bytes) -> Bytes {
    request.iter().rev().map(|byte| byte ^ 0x5a).collect::<Vec<u8>>().into()
}

fn run(seed: u64) -> (u64, u64) {
    let mut network = Network::new(seed);
    let patience = Duration::from_secs(3600);
    let mut expected = HashMap::new();
    let requests = 1 + network.chance.below(6);
    for number in 0..requests {
        let length = 8 + network.chance.below(3000);
        let mut body = body(seed ^ number << 32, length).to_vec();
        body[..8].copy_from_slice(&number.to_be_bytes());
        let body = Bytes::from(body);
        let request = Request::new(Code::POST, "/echo").with_body(Format::OCTETS, body.clone());
        let id =
            network.ends[CLIENT].request(network.now, peer(SERVER), request, patience).unwrap();
        expected.insert(id, (number, echo(&body)));
    }
    let observe = Request { observes: true, ..Request::new(Code::GET, "/value") };
    let observation =
        network.ends[CLIENT].request(network.now, peer(SERVER), observe, patience).unwrap();
    let (mut processed, mut newest, mut seen) = (HashMap::<u64, u32>::new(), 0u64, None);
    let value = |newest: u64| Response {
        accepts_observer: true,
        max_age: Some(60),
        ..Response::content(Format::OCTETS, body(newest, 5 + newest * 37))
    };
    let versions = network.chance.below(5);
    let mut next_version = network.now + Duration::from_secs(5);
    let end = network.now + Duration::from_secs(24 * 3600);
    loop {
        for (side, event) in network.exchange() {
            match (side, event) {
                (SERVER, Event::Request { id, request, .. }) if request.path == "/echo" => {
                    let number = u64::from_be_bytes(request.body[..8].try_into().unwrap());
                    *processed.entry(number).or_default() += 1;
                    let response = Response::content(Format::OCTETS, echo(&request.body));
                    network.ends[SERVER].respond(network.now, id, response);
                }
                (SERVER, Event::Request { id, .. }) => {
                    network.ends[SERVER].respond(network.now, id, value(newest));
                }
                (CLIENT, Event::Response { id, response }) => {
                    let response = response.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                    let (number, body) = expected.remove(&id).expect("a response to each request");
                    assert!(
                        response.body == body,
                        "seed {seed}, request {number}: {}",
                        response.code
                    );
                }
                (CLIENT, Event::Notified { id, response }) => {
                    assert_eq!(id, observation);
                    seen = Some(response.body);
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        if newest < versions && network.now >= next_version {
            newest += 1;
            next_version = network.now + Duration::from_secs(network.chance.below(20));
            network.ends[SERVER].notify(network.now, "/value", &mut |_| Some(value(newest)));
            continue;
        }
        let is_current = seen.as_ref() == Some(&value(newest).body);
        if expected.is_empty() && newest == versions && is_current {
            break;
        }
        assert!(
            network.now < end,
            "seed {seed}: {} requests wait, observed {:?}",
            expected.len(),
            seen.map(|seen| seen.len())
        );
        assert!(network.step(), "seed {seed}: nothing happens");
    }
    for number in 0..requests {
        assert_eq!(processed.get(&number), Some(&1), "seed {seed}, request {number}");
    }
    let counters = network.ends.iter().map(Endpoint::counters);
    counters.fold((0, 0), |sum, of| (sum.0 + of.retransmissions, sum.1 + of.duplicates))
}

/// Runs `MOTESEAL_SEEDS` seeds from `MOTESEAL_FIRST_SEED` on, by default 1,000 from 0; `make test-long`
/// runs 10,000. A failure names its seed.
#[test]
fn nothing_is_lost_and_nothing_is_processed_twice() {
    let number = |name, default| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let (first, runs): (u64, u64) =
        (number("MOTESEAL_FIRST_SEED", 0), number("MOTESEAL_SEEDS", 1000));
    let (mut retransmissions, mut duplicates) = (0, 0);
    for seed in first..first + runs {
        let counted = run(seed);
        (retransmissions, duplicates) = (retransmissions + counted.0, duplicates + counted.1);
    }
    println!("{runs} runs: {retransmissions} retransmissions, {duplicates} duplicates");
    assert!(retransmissions > runs && duplicates > runs, "{retransmissions}, {duplicates}");
}
