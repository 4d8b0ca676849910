//! Simulates the radio between nodes of authenticated broadcast, frame by frame in virtual time.
//! The module contains the seven-node testbed of Liu, Li and Guizani (section V) and accepts any
//! other topology.
//!
//! On the way to each neighbour, a frame is lost, duplicated or delayed with the given
//! probabilities, independently of other neighbours. Nodes may join late, and may reboot: they then
//! lose their memory and keep their store. Outsiders in range may send arbitrary frames. There are
//! no collisions, no hidden terminals and no transmission times, because figure 6 of the paper only
//! counts messages. The same seed gives the same result.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use moteseal_broadcast::recovery::{
    Event, Item, Node, Now, Purpose, RefusedBroadcast, Settings, Store as _,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{ChainId, ChainRef, Head, MAX_HEAD, MAX_LEAF};

use crate::chance::{Draws, Seed};

mod senders;
mod store;

pub use senders::{Authority, CertifiedSender, SignedChain};
pub use store::MapStore;

/// The links of the testbed. The paper shows them only in a picture, figure 2. Its text states that
/// node 0 is the sender, that there are three hops, and that the sender and nodes 1, 3 and 4 are in
/// range of node 2. The other links are assumed.
pub const TESTBED: [(usize, usize); 11] =
    [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5), (4, 5), (4, 6), (5, 6)];

/// The effects of the radio on a frame on the way to one neighbour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Air {
    /// The probability that the frame is lost.
    pub loss: f64,
    /// The probability that the frame arrives twice.
    pub duplicates: f64,
    /// The minimum delay in milliseconds.
    pub delay_ms: u32,
    /// The maximum random delay that is added to the minimum, in milliseconds. Frames can overtake
    /// each other.
    pub jitter_ms: u32,
}

impl Air {
    /// Returns a radio that loses frames with this probability and delays them by 5 ms.
    #[must_use]
    pub const fn losing(loss: f64) -> Self {
        Self { loss, duplicates: 0.0, delay_ms: 5, jitter_ms: 0 }
    }
}

/// A connection between the links of two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// One node, and the number of its link.
    pub a: (usize, u8),
    /// The other node, and the number of its link.
    pub b: (usize, u8),
}

impl From<(usize, usize)> for Edge {
    /// Connects link 0 of one node with link 0 of the other.
    fn from((a, b): (usize, usize)) -> Self {
        Self { a: (a, 0), b: (b, 0) }
    }
}

/// A participant that is not a node: it receives frames and sends arbitrary frames.
pub trait Outsider {
    /// Receives a frame.
    fn receive(&mut self, now_ms: u64, frame: &[u8]);
    /// Returns the next time at which the outsider sends, in milliseconds.
    fn next_due(&self) -> Option<u64>;
    /// Writes a frame to `out` and returns its length; `None` if the outsider sends nothing more at
    /// this time.
    fn send(&mut self, now_ms: u64, out: &mut [u8]) -> Option<usize>;
}

/// An observer of all frames that nodes send and of all outcomes that they report.
pub trait Observer {
    /// Called when a node has sent a frame on one of its links.
    fn sent(&mut self, now_ms: u64, who: usize, frame: &[u8], purpose: Purpose) {
        let _ = (now_ms, who, frame, purpose);
    }

    /// Called when a node has reported an outcome of a frame.
    fn event(&mut self, now_ms: u64, who: usize, event: &Event) {
        let _ = (now_ms, who, event);
    }
}

impl Observer for () {}

/// A message that a node has delivered to its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The time of delivery, in milliseconds.
    pub ms: u64,
    /// The chain.
    pub chain: ChainId,
    /// The block of the chain.
    pub block: u32,
    /// The index of the message in the block.
    pub index: u8,
    /// The message.
    pub message: Vec<u8>,
}

/// A scheduled event.
#[derive(Clone, Debug)]
enum Act {
    Hear { to: usize, link: u8, frame: Rc<[u8]> },
    Overhear { outsider: usize, frame: Rc<[u8]> },
    Originate { who: usize, chain: Rc<SignedChain> },
    Release { who: usize, chain: ChainRef, block: u32, index: u8 },
    Start { who: usize },
    Stop { who: usize },
    Revoke { who: usize, revocation: Rc<[u8]> },
}

#[derive(Debug)]
struct Due {
    ms: u64,
    order: u64,
    act: Act,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.ms, self.order) == (other.ms, other.order)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.ms, self.order).cmp(&(other.ms, other.order))
    }
}

/// A simulated node: the state that survives reboots, and the node itself while it is running.
pub struct Station<'a, const SENDERS: usize, const CHAINS: usize, const B: usize> {
    settings: Settings<'a>,
    /// The node; `None` while it is not running.
    pub node: Option<Node<'a, SENDERS, CHAINS, B>>,
    /// The node's store.
    pub store: MapStore,
    /// The messages delivered to the node's application since its first start, across all reboots.
    pub delivered: Vec<Delivered>,
    /// The time at which this node received the first leaf of each block, genuine or not.
    pub first_heard: BTreeMap<(ChainRef, u32), u64>,
    /// The number of frames that the node rejected, by name of the error.
    pub refused: BTreeMap<&'static str, u64>,
    /// The number of times the node has started.
    pub starts: u64,
}

/// An outsider, and the nodes in its range.
struct Stranger<'a> {
    outsider: Box<dyn Outsider + 'a>,
    near: Vec<usize>,
}

/// The nodes, the connections between them, and the scheduled events.
pub struct Radio<'a, const SENDERS: usize, const CHAINS: usize, const B: usize> {
    /// The nodes, in the order of the topology's numbers.
    pub stations: Vec<Station<'a, SENDERS, CHAINS, B>>,
    edges: Vec<Edge>,
    air: Air,
    draws: Draws,
    seed: Seed,
    due: BinaryHeap<Reverse<Due>>,
    order: u64,
    now_ms: u64,
    /// The Unix time at the start; `None` if the nodes have no clocks.
    pub unix: Option<u64>,
    strangers: Vec<Stranger<'a>>,
    /// The number of frames that nodes sent, by purpose and by name of the frame.
    pub sent: BTreeMap<(Purpose, &'static str), u64>,
    /// The total size of these frames, in bytes.
    pub said_bytes: u64,
}

/// The radio of most experiments. Its nodes have room for four senders and four chains, with blocks
/// of up to 16 messages.
pub type Testbed<'a> = Radio<'a, 4, 4, 16>;

impl<'a, const SENDERS: usize, const CHAINS: usize, const B: usize> Radio<'a, SENDERS, CHAINS, B> {
    /// Creates nodes with these settings. They are not running yet.
    #[must_use]
    pub fn new(
        settings: &[Settings<'a>],
        edges: impl IntoIterator<Item = impl Into<Edge>>,
        air: Air,
        seed: Seed,
    ) -> Self {
        let station = |settings: &Settings<'a>| Station {
            settings: *settings,
            node: None,
            store: MapStore::default(),
            delivered: Vec::new(),
            first_heard: BTreeMap::new(),
            refused: BTreeMap::new(),
            starts: 0,
        };
        Self {
            stations: settings.iter().map(station).collect(),
            edges: edges.into_iter().map(Into::into).collect(),
            air,
            draws: seed.derive("air", 0).draws(),
            seed,
            due: BinaryHeap::new(),
            order: 0,
            now_ms: 0,
            unix: None,
            strangers: Vec::new(),
            sent: BTreeMap::new(),
            said_bytes: 0,
        }
    }

    /// Adds an outsider in range of the nodes `near`.
    pub fn add_outsider(&mut self, outsider: impl Outsider + 'a, near: &[usize]) {
        self.strangers.push(Stranger { outsider: Box::new(outsider), near: near.to_vec() });
    }

    /// Returns the virtual time, in milliseconds.
    #[must_use]
    pub const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn at(&mut self, ms: u64, act: Act) {
        self.order += 1;
        self.due.push(Reverse(Due { ms, order: self.order, act }));
    }

    /// Starts or restarts a node at the given time. The node continues with the chains in its
    /// store, and advertises them to find other nodes.
    pub fn start_at(&mut self, ms: u64, who: usize) {
        self.at(ms, Act::Start { who });
    }

    /// Starts all nodes at time 0.
    pub fn start_all(&mut self) {
        (0..self.stations.len()).for_each(|who| self.start_at(0, who));
    }

    /// Stops a node at the given time. It loses its memory.
    pub fn stop_at(&mut self, ms: u64, who: usize) {
        self.at(ms, Act::Stop { who });
    }

    /// Lets a node broadcast a chain: its head at `ms`, and its messages at the times in
    /// `releases`. Messages without a time follow at the last of these times.
    pub fn send_at(&mut self, ms: u64, who: usize, chain: &SignedChain, releases: &[u64]) {
        self.at(ms, Act::Originate { who, chain: Rc::new(chain.clone()) });
        let last = releases.iter().copied().max().unwrap_or(ms);
        let times = releases.iter().copied().chain(std::iter::repeat(last));
        for (&(block, index, _), time) in chain.leaves.iter().zip(times) {
            self.at(time.max(ms), Act::Release { who, chain: chain.reference(), block, index });
        }
    }

    /// Lets a base station send a revocation through a node.
    pub fn revoke_at(&mut self, ms: u64, who: usize, revocation: &[u8]) {
        self.at(ms, Act::Revoke { who, revocation: revocation.into() });
    }

    /// Continues the simulation until no event is scheduled, or until the given time.
    pub fn run(&mut self, until_ms: u64, observer: &mut dyn Observer) {
        while let Some(ms) = self.next().filter(|ms| *ms <= until_ms) {
            self.now_ms = self.now_ms.max(ms);
            while self.due.peek().is_some_and(|due| due.0.ms <= self.now_ms) {
                if let Some(Reverse(due)) = self.due.pop() {
                    self.act(due.act, observer);
                }
            }
            for who in 0..self.stations.len() {
                self.poll(who, observer);
            }
            for who in 0..self.strangers.len() {
                self.hear_stranger(who);
            }
        }
        self.now_ms = self.now_ms.max(until_ms.min(self.next().unwrap_or(until_ms)));
    }

    fn next(&self) -> Option<u64> {
        let nodes = self.stations.iter().filter_map(|station| station.node.as_ref()?.next_due());
        let strangers = self.strangers.iter().filter_map(|stranger| stranger.outsider.next_due());
        nodes.chain(strangers).chain(self.due.peek().map(|due| due.0.ms)).min()
    }

    fn now(&self) -> Now {
        Now { ms: self.now_ms, unix: self.unix.map(|unix| unix + self.now_ms / 1000) }
    }

    fn act(&mut self, act: Act, observer: &mut dyn Observer) {
        let now = self.now();
        match act {
            Act::Hear { to, link, frame } => self.receive(to, link, &frame, observer),
            Act::Overhear { outsider, frame } => {
                self.strangers[outsider].outsider.receive(now.ms, &frame);
            }
            Act::Start { who } => self.start(who),
            Act::Stop { who } => self.stations[who].node = None,
            Act::Originate { who, chain } => {
                let station = &mut self.stations[who];
                let reference = chain.reference();
                for (block, index, leaf) in &chain.leaves {
                    let Ok(()) = station
                        .store
                        .keep(Item::Leaf { chain: reference, block: *block, index: *index }, leaf);
                }
                if let Some(node) = &mut station.node {
                    let Ok(event) =
                        node.originate(now, &chain.certificate, &chain.head, &mut station.store);
                    self.note(who, &event, observer);
                    self.poll(who, observer);
                }
            }
            Act::Release { who, chain, block, index } => {
                let released = self.stations[who]
                    .node
                    .as_mut()
                    .map(|node| node.release(now, chain, block, index));
                if let Some(Err(error)) = released {
                    self.note(who, &Event::Refused(error), observer);
                }
                self.poll(who, observer);
            }
            Act::Revoke { who, revocation } => {
                let station = &mut self.stations[who];
                if let Some(node) = &mut station.node {
                    let Ok(event) = node.revoke(now, &revocation, &mut station.store);
                    self.note(who, &event, observer);
                    self.poll(who, observer);
                }
            }
        }
    }

    fn start(&mut self, who: usize) {
        let now = self.now();
        let station = &mut self.stations[who];
        station.starts += 1;
        let seed = self.seed.derive("node", (who as u64) << 32 | station.starts).draws().word();
        let mut node = Node::new(station.settings, seed, now);
        let mut scratch = [0; MAX_LEAF];
        for chain in station.store.chains() {
            let Ok(_) = node.resume(now, chain, &mut station.store, &mut scratch);
        }
        if station.starts > 1 || self.now_ms > 0 {
            node.solicit(now);
        }
        station.node = Some(node);
    }

    fn receive(&mut self, to: usize, link: u8, frame: &[u8], observer: &mut dyn Observer) {
        let now = self.now();
        let station = &mut self.stations[to];
        let Some(node) = &mut station.node else { return };
        if let Ok(BroadcastFrame::Fragment { chain, block, .. }) = BroadcastFrame::decode(frame) {
            station.first_heard.entry((chain, block)).or_insert(now.ms);
        }
        let Ok(event) = node.receive(now, link, frame, &mut station.store);
        self.note(to, &event, observer);
    }

    /// Passes an event to the observer, and delivers the messages of verified blocks to the
    /// application.
    fn note(&mut self, who: usize, event: &Event, observer: &mut dyn Observer) {
        observer.event(self.now_ms, who, event);
        let station = &mut self.stations[who];
        match event {
            Event::Verified { chain, first, last, .. } => {
                let messages = messages(&mut station.store, *chain, *first, *last);
                let delivered = messages.into_iter().map(|(id, block, index, message)| Delivered {
                    ms: self.now_ms,
                    chain: id,
                    block,
                    index,
                    message,
                });
                station.delivered.extend(delivered);
            }
            Event::Refused(error) => {
                *station.refused.entry(RefusedBroadcast::name(*error)).or_default() += 1;
            }
            _ => {}
        }
    }

    fn poll(&mut self, who: usize, observer: &mut dyn Observer) {
        let mut out = vec![0; MAX_BROADCAST_FRAME];
        let now = self.now();
        loop {
            let station = &mut self.stations[who];
            let Some(node) = &mut station.node else { return };
            let Ok(Some(transmit)) = node.poll(now, &mut station.store, &mut out) else { return };
            let frame: Rc<[u8]> = out[..transmit.length].into();
            for link in (0..8).filter(|link| transmit.links.has(*link)) {
                *self.sent.entry((transmit.purpose, frame_name(&frame))).or_default() += 1;
                self.said_bytes += frame.len() as u64;
                observer.sent(now.ms, who, &frame, transmit.purpose);
                self.carry(who, link, &frame);
            }
        }
    }

    /// Sends a frame to all neighbours on a link, and to the outsiders in range.
    fn carry(&mut self, from: usize, link: u8, frame: &Rc<[u8]>) {
        let hears = |edge: &Edge| {
            let from = (from, link);
            if edge.a == from { Some(edge.b) } else { (edge.b == from).then_some(edge.a) }
        };
        let neighbours: Vec<(usize, u8)> = self.edges.iter().filter_map(hears).collect();
        for (to, link) in neighbours {
            self.arrive(Act::Hear { to, link, frame: frame.clone() });
        }
        for outsider in 0..self.strangers.len() {
            if self.strangers[outsider].near.contains(&from) {
                self.arrive(Act::Overhear { outsider, frame: frame.clone() });
            }
        }
    }

    fn arrive(&mut self, act: Act) {
        let copies = if self.draws.unit() <= self.air.duplicates { 2 } else { 1 };
        for _ in 0..copies {
            // `unit` is in (0, 1]: at a loss of 0 no frame is lost, at a loss of 1 every frame.
            if self.draws.unit() > self.air.loss {
                let ms = self.now_ms
                    + u64::from(self.air.delay_ms)
                    + self.draws.below(u64::from(self.air.jitter_ms) + 1);
                self.at(ms, act.clone());
            }
        }
    }

    fn hear_stranger(&mut self, who: usize) {
        let mut out = vec![0; MAX_BROADCAST_FRAME];
        while self.strangers[who].outsider.next_due().is_some_and(|due| due <= self.now_ms) {
            let Some(length) = self.strangers[who].outsider.send(self.now_ms, &mut out) else {
                return;
            };
            let frame: Rc<[u8]> = out[..length].into();
            for to in self.strangers[who].near.clone() {
                self.arrive(Act::Hear { to, link: 0, frame: frame.clone() });
            }
        }
    }

    /// Returns the number of frames that nodes have sent.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sent.values().sum()
    }

    /// Returns the number of frames that nodes have sent for a purpose.
    #[must_use]
    pub fn sent_for(&self, purpose: Purpose) -> u64 {
        self.sent.iter().filter(|((of, _), _)| *of == purpose).map(|(_, count)| count).sum()
    }
}

/// Returns the kind of a frame as named in spec/broadcast.md.
#[must_use]
pub fn frame_name(frame: &[u8]) -> &'static str {
    match BroadcastFrame::decode(frame) {
        Ok(BroadcastFrame::Certificate(_)) => "certificate",
        Ok(BroadcastFrame::Revocation(_)) => "revocation",
        Ok(BroadcastFrame::Head(_)) => "head",
        Ok(BroadcastFrame::Fragment { .. }) => "fragment",
        Ok(BroadcastFrame::Wanted { .. }) => "wanted",
        Ok(BroadcastFrame::Holds { .. }) => "holds",
        Ok(BroadcastFrame::Single { .. }) => "single",
        Ok(BroadcastFrame::Repair { .. }) => "repair",
        Ok(BroadcastFrame::Receipts { .. }) => "receipts",
        Ok(BroadcastFrame::ReceiptsWanted { .. }) => "receipts wanted",
        Ok(BroadcastFrame::HeadWanted { .. }) => "head wanted",
        Ok(BroadcastFrame::HeadFor { .. }) => "head for",
        Ok(BroadcastFrame::ReceiverWanted { .. }) => "receiver wanted",
        Err(_) => "malformed",
    }
}

/// Returns the messages of the blocks `first` to `last` in a store, without their trailers: chain,
/// block, index, message.
#[must_use]
pub fn messages(
    store: &mut MapStore,
    chain: ChainRef,
    first: u32,
    last: u32,
) -> Vec<(ChainId, u32, u8, Vec<u8>)> {
    let mut buffer = [0; MAX_HEAD];
    let Ok(Some(head)) = store.fetch(Item::Head(chain), &mut buffer) else { return Vec::new() };
    let Ok(head) = Head::reopen(head) else { return Vec::new() };
    let outline = head.outline();
    let leaves = (first..=last)
        .flat_map(|block| (0..outline.in_block(block)).map(move |index| (block, index)));
    let message = |(block, index)| {
        let mut buffer = [0; MAX_LEAF];
        let Ok(leaf) = store.fetch(Item::Leaf { chain, block, index }, &mut buffer);
        let trailer = if index + 1 == outline.in_block(block) { outline.trailer(block) } else { 0 };
        let message = leaf.unwrap_or_default().get(trailer..).unwrap_or_default().to_vec();
        (outline.id, block, index, message)
    };
    leaves.map(message).collect()
}

/// Returns `count` times of a Poisson process that starts at `start_ms` and has `per_second` events
/// per second on average.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn poisson(start_ms: u64, count: usize, per_second: f64, seed: Seed) -> Vec<u64> {
    let mut draws = seed.derive("poisson", 0).draws();
    let mut now = start_ms as f64;
    (0..count)
        .map(|_| {
            now -= draws.unit().ln() / per_second * 1000.0;
            now as u64
        })
        .collect()
}
