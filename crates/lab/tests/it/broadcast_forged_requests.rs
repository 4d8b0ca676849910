//! Forged requests delay a sender that shares keys with its receivers by at most a tenth.

use std::collections::VecDeque;
use std::time::Duration;

use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::recovery::{Event, LinkSet, Meter, Node, Now, Relay, Settings, Timing};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{ChainDraft, ChainId, ChainNumber, ChainRef, Kind, Window};
use moteseal_gateway::broadcast::{Content, Hashes, Manner, Receivers, Sender, build, sign};
use moteseal_lab::chance::{Draws, Seed};
use moteseal_lab::radio::{Authority, MapStore};
use tokio::time::Instant;

use crate::receiver::{authority, encode, sender};
use crate::sender_world::{World, run};

const RECEIVERS: usize = 5;
/// The time for a frame, in milliseconds.
const TRANSIT_MS: u64 = 1;
const MESSAGES: usize = 160;
const PER_BLOCK: u8 = 8;

/// What an attacker sends to the sender, each kind once each millisecond.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Forger {
    None,
    /// Requests for all leaves of the newest block, and for the head, of a stranger and of a
    /// receiver.
    Requests,
    /// Copies of all requests of receivers, one after the other.
    Copies,
}

struct Receiver<'a> {
    node: Node<'a, 2, 2, 64>,
    store: MapStore,
    has_all: bool,
}

struct Field<'a> {
    receivers: Vec<Receiver<'a>>,
    loss: f64,
    draws: Draws,
    /// Frames in transit: the time of arrival, the origin (`None` for the sender), the frame.
    transit: VecDeque<(u64, Option<usize>, Vec<u8>)>,
    forger: Forger,
    forged_due: u64,
    /// The newest block that was sent.
    newest: (ChainRef, u32),
    requests: Vec<Vec<u8>>,
    copied: usize,
}

fn now(ms: u64) -> Now {
    Now { ms, unix: None }
}

impl Field<'_> {
    fn forged(&mut self) -> Vec<Vec<u8>> {
        let (chain, block) = self.newest;
        let wanted = u64::MAX;
        match self.forger {
            Forger::None => vec![],
            Forger::Copies => {
                self.copied += 1;
                let count = self.requests.len();
                self.requests.get(self.copied % count.max(1)).cloned().into_iter().collect()
            }
            Forger::Requests => [0, block]
                .into_iter()
                .flat_map(|block| {
                    let (attempt, receiver, tag) = (u32::MAX, 1, [3; 16]);
                    [
                        encode(&BroadcastFrame::Wanted { chain, block, wanted }),
                        encode(&BroadcastFrame::ReceiverWanted {
                            chain,
                            block,
                            wanted,
                            attempt,
                            receiver,
                            tag,
                        }),
                    ]
                })
                .collect(),
        }
    }
}

impl World for Field<'_> {
    fn receive(&mut self, now_ms: u64, frame: &[u8]) {
        if let Ok(BroadcastFrame::Fragment { chain, block, .. }) = BroadcastFrame::decode(frame) {
            self.newest = (chain, self.newest.1.max(block));
        }
        self.transit.push_back((now_ms + TRANSIT_MS, None, frame.to_vec()));
    }

    fn step(&mut self, now_ms: u64) -> Vec<Vec<u8>> {
        let mut to_sender = Vec::new();
        while let Some((_, from, frame)) = self.transit.pop_front_if(|(due, ..)| *due <= now_ms) {
            if from.is_some() && self.draws.unit() >= self.loss {
                to_sender.push(frame.clone());
            }
            for (at, receiver) in self.receivers.iter_mut().enumerate() {
                if Some(at) == from || self.draws.unit() < self.loss {
                    continue;
                }
                let event = receiver.node.receive(now(now_ms), 0, &frame, &mut receiver.store);
                if let Ok(Event::Verified { is_last: true, .. }) = event {
                    receiver.has_all = true;
                }
            }
        }
        let mut out = vec![0; MAX_BROADCAST_FRAME];
        for (at, receiver) in self.receivers.iter_mut().enumerate() {
            while let Some(transmit) =
                receiver.node.poll(now(now_ms), &mut receiver.store, &mut out).unwrap()
            {
                let frame = out[..transmit.length].to_vec();
                if let Ok(BroadcastFrame::ReceiverWanted { .. }) = BroadcastFrame::decode(&frame) {
                    self.requests.push(frame.clone());
                }
                self.transit.push_back((now_ms + TRANSIT_MS, Some(at), frame));
            }
        }
        if self.forger != Forger::None && now_ms >= self.forged_due {
            self.forged_due = now_ms + 1;
            to_sender.extend(self.forged());
        }
        to_sender
    }

    fn next_due(&self) -> Option<u64> {
        let of_nodes = self.receivers.iter().filter_map(|of| of.node.next_due());
        let transit = self.transit.front().map(|(due, ..)| *due);
        let forged = (self.forger != Forger::None).then_some(self.forged_due);
        of_nodes.chain(transit).chain(forged).min()
    }
}

struct Scene {
    authority: Authority,
    list: Receivers,
    keys: Vec<[ReceiverKey; 1]>,
    /// Whether receivers use their keys, if the sender has the list.
    are_keys_used: bool,
}

impl Scene {
    fn new() -> Self {
        let authority = authority();
        let id = sender(&authority).id;
        let mut list = Receivers::new(authority.network, id, [9; 32].into());
        let mut key = |at: usize| [list.add(&format!("r{at}")).unwrap().clone()];
        let keys = (0..RECEIVERS).map(&mut key).collect();
        Self { authority, list, keys, are_keys_used: true }
    }

    /// Returns how long the sender takes for a chain, in milliseconds, and how many receivers have
    /// it in the end.
    fn time(
        &self,
        has_list: bool,
        forger: Forger,
        loss: f64,
        rate: u64,
        seed: u64,
    ) -> (u64, usize) {
        let settings = Settings {
            network: self.authority.network,
            bases: std::slice::from_ref(&self.authority.public),
            links: LinkSet::first(1),
            relay: Relay::Never,
            timing: Timing::LAN,
            meter: Meter::HOST,
        };
        let mut receivers = Vec::new();
        for (at, key) in self.keys.iter().enumerate() {
            let store = MapStore::default();
            let mut node = Node::new(settings, seed << 8 | at as u64, now(0));
            if has_list && self.are_keys_used {
                node.set_receiver_keys(key);
            }
            receivers.push(Receiver { node, store, has_all: false });
        }
        let mut field = Field {
            receivers,
            loss,
            draws: Seed::default().derive("forged requests", seed).draws(),
            transit: VecDeque::new(),
            forger,
            forged_due: 0,
            newest: (ChainRef([1; 8]), 0),
            requests: Vec::new(),
            copied: 0,
        };
        let sink = sender(&self.authority);
        let lines = (0..MESSAGES).map(|line| vec![line as u8; 1_000]).collect();
        let content = Content::lines(lines).unwrap();
        let (network, number) = (self.authority.network, ChainNumber(5));
        let draft = ChainDraft {
            id: ChainId { network, sender: sink.id, number },
            key: sink.key_id(),
            messages: 0,
            per_block: PER_BLOCK,
            kind: Kind::Announcement,
            label: "",
            window: Window::ALWAYS,
            previous: None,
            is_addressed: false,
        };
        let mut hashes = Hashes::default();
        let chain = build(draft, &content, &mut hashes).unwrap();
        let head = sign(&chain, sink.key()).unwrap();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let took = runtime.unwrap().block_on(run(&mut field, async |link| {
            let manner = Manner { rate, ..Manner::LAN };
            let mut sender = Sender::new(link, network, &sink.certificate, manner, 1).unwrap();
            if has_list {
                sender.set_receivers(&self.list);
            }
            let begin = Instant::now();
            sender.send(&chain, &content, head, |_| ()).await.unwrap();
            let took = begin.elapsed();
            sender.linger(Duration::from_secs(3)).await.unwrap();
            took
        }));
        let complete = field.receivers.iter().filter(|of| of.has_all).count();
        (u64::try_from(took.as_millis()).unwrap(), complete)
    }

    /// Returns the total times without and with the attacker.
    fn times(&self, has_list: bool, forger: Forger, loss: f64, rate: u64) -> (u64, u64) {
        let mut totals = (0, 0);
        for seed in 0..5 {
            for (forger, total) in [(Forger::None, &mut totals.0), (forger, &mut totals.1)] {
                let (time, complete) = self.time(has_list, forger, loss, rate, seed);
                assert_eq!(complete, RECEIVERS, "{forger:?}, loss {loss}, seed {seed}");
                *total += time;
            }
        }
        totals
    }
}

#[test]
fn forged_requests_delay_a_sender_with_a_list_of_receivers_by_at_most_a_tenth() {
    let scene = Scene::new();
    for forger in [Forger::Requests, Forger::Copies] {
        for (loss, rate) in [(0.0, 4_000_000), (0.1, 4_000_000), (0.1, 200_000)] {
            let (without, with) = scene.times(true, forger, loss, rate);
            let ratio = with as f64 / without as f64;
            println!(
                "{forger:?}, {:.0} % loss, {rate} bytes/s: {without} ms, {with} ms, {ratio:.3}",
                loss * 100.0
            );
            assert!(ratio <= 1.1, "{forger:?}, loss {loss}, rate {rate}: {without} ms, {with} ms");
        }
    }
}

/// Without a list, the sender cannot tell forged requests from others.
#[test]
fn forged_requests_delay_a_sender_without_a_list_longer() {
    let (without, with) = Scene::new().times(false, Forger::Requests, 0.0, 4_000_000);
    assert!(with > 2 * without, "{without} ms, {with} ms");
}

/// A sender with a list waits for the requests of its receivers: they have the chain in the end, as
/// without a list, and the sender has not given up earlier.
#[test]
fn a_sender_with_a_list_waits_for_the_requests_of_its_receivers() {
    let scene = Scene::new();
    let (lossless, _) = scene.time(true, Forger::None, 0.0, 4_000_000, 1);
    let (lossy, complete) = scene.time(true, Forger::None, 0.2, 4_000_000, 1);
    assert_eq!(complete, RECEIVERS);
    assert!(lossy > lossless * 5 / 4, "{lossless} ms, {lossy} ms");
}

/// A sender with a list does not wait for receivers without a key, but answers them.
#[test]
fn a_sender_with_a_list_also_serves_receivers_without_a_key() {
    let scene = Scene { are_keys_used: false, ..Scene::new() };
    for seed in 0..3 {
        let (_, complete) = scene.time(true, Forger::None, 0.1, 4_000_000, seed);
        assert_eq!(complete, RECEIVERS, "seed {seed}");
    }
}
