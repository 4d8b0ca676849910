//! Simulates commands to watchers with archives: losses of up to 30 %, watchers that join late and
//! reboot, clocks that are apart by the allowed offset, clocks that are set back, and an attacker
//! who withholds chains and replays them later.
//!
//! No watcher may deliver a command after its end (by the sender's clock, plus the allowed offset),
//! or after a later command of the same topic. Where nobody withholds, every watcher delivers every
//! command that is in force for long enough.
//!
//! `MOTESEAL_SEEDS` sets the number of simulations (200 by default).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::{Path, PathBuf};

use moteseal_broadcast::recovery::{
    Item, LinkSet, Meter, Node, Now, Relay, Settings, Store as _, Timing,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{CLOCK_OFFSET_SECONDS, KeyId, Kind, Window};
use moteseal_core::cbor::Writer;
use moteseal_core::signature::Algorithm;
use moteseal_device::broadcast::{Options, WatchEvent, Watcher};
use moteseal_lab::broadcast::truth::Truth;
use moteseal_lab::chance::{Draws, Seed};
use moteseal_lab::radio::{Authority, CertifiedSender, MapStore, SignedChain};
use moteseal_store::Archive;

/// The sender's clock at the start of each simulation, in seconds of Unix time.
const START: u64 = 1_700_000_000;
/// The duration of a simulation in milliseconds.
const END: u64 = 200_000;
/// A command that is in force for this long while a watcher runs must be delivered, at a loss of up
/// to 30 %, in milliseconds.
const LONG_ENOUGH: u64 = 45_000;
/// How long a sender offers a chain after it was sent, and the interval, in milliseconds.
const OFFERS: (u64, u64) = (2_000, 100);
const TOPICS: [&str; 3] = ["valve", "lamp", ""];

fn seeds() -> u64 {
    std::env::var("MOTESEAL_SEEDS")
        .ok()
        .map_or(200, |seeds| seeds.parse().expect("MOTESEAL_SEEDS is a number"))
}

fn chance(draws: &mut Draws, percent: u64) -> bool {
    draws.below(100) < percent
}

/// A command of the simulation.
struct Sent {
    signed: SignedChain,
    topic: &'static str,
    window: Window,
    at_ms: u64,
}

/// A delivered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Delivered {
    at_ms: u64,
    /// The place of the command in the list of sent commands.
    command: usize,
    message: u32,
}

/// A receiver of the simulation.
struct Receiver {
    archive: PathBuf,
    /// The receiver's clock minus the sender's clock, in seconds.
    ahead: i64,
    /// When it runs, in milliseconds: from and until.
    runs: Vec<(u64, u64)>,
    /// How far the clock is set back in each run, in seconds.
    set_back: Vec<u64>,
    delivered: Vec<Delivered>,
}

/// An event of the simulation, ordered by its time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// A frame arrives; the receiver 0 is the sender.
    Arrives(usize, Vec<u8>),
    Sends(usize),
    Offers(usize),
    Starts(usize, usize),
    Stops(usize),
    Polls(usize),
}

struct Simulation<'a> {
    seed: Seed,
    draws: Draws,
    loss: f64,
    authority: &'a Authority,
    sent: Vec<Sent>,
    receivers: Vec<Receiver>,
    /// Whether an attacker withholds and replays.
    is_hostile: bool,
    /// The chains that do not reach a receiver before this time.
    withheld: BTreeMap<(usize, usize), u64>,
    queue: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    /// The names of what the receivers reported.
    reported: BTreeSet<&'static str>,
    /// When each participant is next polled.
    polls: Vec<Option<u64>>,
    order: u64,
}

impl Simulation<'_> {
    fn plan(&mut self, at: u64, happens: Happens) {
        self.order += 1;
        self.queue.push(Reverse((at, self.order, happens)));
    }

    /// Plans to poll a participant, unless that is planned already.
    fn plan_poll(&mut self, at: u64, who: usize) {
        if self.polls[who].is_none_or(|planned| at < planned) {
            self.polls[who] = Some(at);
            self.plan(at, Happens::Polls(who));
        }
    }

    /// Sends a frame to all participants but its sender.
    fn transmit(&mut self, now: u64, from: usize, frame: &[u8]) {
        for to in 0..=self.receivers.len() {
            let is_held_back = to > 0
                && self.sent.iter().enumerate().any(|(at, sent)| {
                    self.withheld.get(&(to - 1, at)).is_some_and(|until| now < *until)
                        && is_about(frame, &sent.signed)
                });
            if to != from && !is_held_back && self.draws.unit() >= self.loss {
                let delay = 1 + self.draws.below(8);
                self.plan(now + delay, Happens::Arrives(to, frame.to_vec()));
            }
        }
    }

    fn run(&mut self) {
        let settings = Settings {
            network: self.authority.network,
            bases: &[],
            links: LinkSet::first(1),
            relay: Relay::Never,
            timing: Timing { reply_ms: 2, ..Timing::LAN },
            meter: Meter::HOST,
        };
        let base = [self.authority.public.clone()];
        let mut store = MapStore::default();
        let sender_time = |ms: u64| Now { ms, unix: Some(START + ms / 1000) };
        let mut sender = Box::new(Node::<1, 16, 64>::new(settings, 1, sender_time(0)));
        let mut watchers: Vec<Option<Watcher<'_>>> = self.receivers.iter().map(|_| None).collect();
        let mut current: Vec<usize> = vec![0; self.receivers.len()];
        let mut out = vec![0; MAX_BROADCAST_FRAME];
        while let Some(Reverse((now, _, happens))) = self.queue.pop() {
            if now > END {
                return;
            }
            let who = match &happens {
                Happens::Arrives(who, _) | Happens::Polls(who) => *who,
                Happens::Sends(_) | Happens::Offers(_) => 0,
                Happens::Starts(who, _) | Happens::Stops(who) => *who,
            };
            if self.polls[who] == Some(now) {
                self.polls[who] = None;
            }
            if who == 0 {
                match happens {
                    Happens::Arrives(_, frame) => {
                        sender.receive(sender_time(now), 0, &frame, &mut store).unwrap();
                    }
                    Happens::Sends(at) => {
                        let signed = self.sent[at].signed.clone();
                        let chain = signed.reference();
                        for (block, index, leaf) in &signed.leaves {
                            let item = Item::Leaf { chain, block: *block, index: *index };
                            store.keep(item, leaf).unwrap();
                        }
                        let (certificate, head) = (&signed.certificate, &signed.head);
                        let time = sender_time(now);
                        sender.originate(time, certificate, head, &mut store).unwrap();
                        for (block, index, _) in &signed.leaves {
                            sender.release(sender_time(now), chain, *block, *index).unwrap();
                        }
                    }
                    Happens::Offers(at) => {
                        let outline = &self.sent[at].signed.outline;
                        let (chain, block) = (outline.reference(), outline.blocks());
                        let index = outline.in_block(block) - 1;
                        let mut writer = Writer::new(&mut out);
                        let offer = BroadcastFrame::Holds { chain, block, index };
                        offer.encode(&mut writer).unwrap();
                        let frame = writer.finish().to_vec();
                        self.transmit(now, 0, &frame);
                    }
                    _ => {}
                }
                while let Some(sends) = sender.poll(sender_time(now), &mut store, &mut out).unwrap()
                {
                    let frame = out[..sends.length].to_vec();
                    self.transmit(now, 0, &frame);
                }
                if let Some(due) = sender.next_due() {
                    self.plan_poll(due.max(now + 1), 0);
                }
                continue;
            }
            let place = who - 1;
            if let Happens::Starts(_, run) = happens {
                current[place] = run;
            }
            let receiver = &mut self.receivers[place];
            let unix = (START + now / 1000).saturating_add_signed(receiver.ahead)
                - receiver.set_back[current[place]];
            let time = Now { ms: now, unix: Some(unix) };
            let mut news = Vec::new();
            let (sent, reported) = (&self.sent, &mut self.reported);
            let mut notify = |event: WatchEvent<'_>| {
                match event {
                    WatchEvent::Message { outline, number, .. } => {
                        let is_it = |sent: &Sent| sent.signed.outline.id == outline.id;
                        let command = sent.iter().position(is_it).unwrap();
                        news.push(Delivered { at_ms: now, command, message: number });
                    }
                    WatchEvent::Withheld { why, .. } => {
                        reported.insert(why.name());
                    }
                    WatchEvent::Missed { .. } => {
                        reported.insert("MissedChain");
                    }
                    _ => {}
                }
                Ok(())
            };
            match happens {
                Happens::Starts(..) => {
                    let options = Options::new(self.authority.network, &base);
                    let seed = self.draws.below(u64::MAX);
                    let archive = Archive::open(
                        &receiver.archive,
                        self.authority.network,
                        &[KeyId::of(&self.authority.public)],
                        1 << 20,
                    );
                    watchers[place] = Some(
                        Watcher::open(options, archive.unwrap(), seed, time, &mut notify).unwrap(),
                    );
                }
                // The process is killed.
                Happens::Stops(_) => watchers[place] = None,
                Happens::Arrives(_, frame) => {
                    if let Some(watcher) = &mut watchers[place] {
                        watcher.receive(time, 0, &frame, &mut notify).unwrap();
                    }
                }
                _ => {}
            }
            if let Some(watcher) = &mut watchers[place] {
                watcher.tend(time, &mut notify).unwrap();
                let mut frames = Vec::new();
                while let Some(sends) = watcher.poll(time, &mut out).unwrap() {
                    frames.push(out[..sends.length].to_vec());
                }
                let due = watcher.next_due();
                receiver.delivered.append(&mut news);
                for frame in frames {
                    self.transmit(now, who, &frame);
                }
                if let Some(due) = due {
                    self.plan_poll(due.max(now + 1), who);
                }
            }
        }
    }

    /// Checks that nothing was delivered outside of its window, or out of order.
    fn check_deliveries(&self) {
        let offset = CLOCK_OFFSET_SECONDS;
        for (who, receiver) in self.receivers.iter().enumerate() {
            let mut newest: BTreeMap<&str, (usize, u32)> = BTreeMap::new();
            for delivered in &receiver.delivered {
                let sent = &self.sent[delivered.command];
                let time = START + delivered.at_ms / 1000;
                assert!(
                    time < sent.window.not_after + offset
                        && time + 2 * offset >= sent.window.not_before,
                    "{}: receiver {who} delivers {delivered:?} at {time}, outside of {:?}",
                    self.seed,
                    sent.window
                );
                let is_in_order = newest.get(sent.topic).is_none_or(|(command, message)| {
                    // After a reboot, the messages of the newest command may come again.
                    delivered.command > *command
                        || delivered.command == *command && delivered.message <= message + 1
                });
                assert!(
                    is_in_order,
                    "{}: receiver {who} delivers {delivered:?} after {newest:?}: {:?}",
                    self.seed, receiver.delivered
                );
                newest.insert(sent.topic, (delivered.command, delivered.message));
            }
        }
    }

    /// Checks that every receiver has delivered every command that was in force for long enough.
    /// Returns the number of these deliveries.
    fn check_completeness(&self) -> usize {
        let mut expected = 0;
        for (who, receiver) in self.receivers.iter().enumerate() {
            for (at, sent) in self.sent.iter().enumerate() {
                let offset = CLOCK_OFFSET_SECONDS * 1000;
                let later = self.sent[at + 1..].iter().find(|later| later.topic == sent.topic);
                // The command is in force by all clocks, and no later one is sent.
                let from = ((sent.window.not_before - START) * 1000).max(sent.at_ms) + offset;
                let until = ((sent.window.not_after - START) * 1000)
                    .saturating_sub(offset)
                    .min(later.map_or(END, |later| later.at_ms));
                let is_long_enough = receiver
                    .runs
                    .iter()
                    .any(|(start, stop)| (*start).max(from) + LONG_ENOUGH <= (*stop).min(until));
                if !is_long_enough {
                    continue;
                }
                expected += 1;
                let messages: Vec<u32> = receiver
                    .delivered
                    .iter()
                    .filter(|delivered| delivered.command == at)
                    .map(|delivered| delivered.message)
                    .collect();
                let all = sent.signed.outline.messages;
                assert!(
                    (0..all).all(|message| messages.contains(&message)),
                    "{}: receiver {who} (runs {:?}, ahead {}) lacks command {at} ({:?} at {} ms): it \
                     has {messages:?}; loss {}",
                    self.seed,
                    receiver.runs,
                    receiver.ahead,
                    sent.window,
                    sent.at_ms,
                    self.loss
                );
            }
        }
        expected
    }
}

/// Returns whether a frame carries a part of the chain, or its name.
fn is_about(frame: &[u8], signed: &SignedChain) -> bool {
    let contains = |part: &[u8]| frame.windows(part.len()).any(|window| window == part);
    contains(&signed.reference().0) || contains(&signed.head)
}

fn commands(sender: &CertifiedSender, draws: &mut Draws) -> Vec<Sent> {
    let count = 2 + draws.below(6);
    let mut at_ms = 0;
    let mut sent = Vec::new();
    let mut previous = None;
    for number in (0..count).map(|place| 100 + place) {
        at_ms += if chance(draws, 40) { draws.below(300) } else { draws.below(30_000) };
        let topic = TOPICS[draws.below(3) as usize];
        let now = START + at_ms / 1000;
        let not_before = now + if chance(draws, 20) { draws.below(20) } else { 0 };
        let window = Window { not_before, not_after: not_before + 1 + draws.below(180) };
        let messages: Vec<Vec<u8>> = (0..1 + draws.below(2) * draws.below(4))
            .map(|message| format!("{number} {message}").into_bytes())
            .collect();
        let (terms, per_block) = ((Kind::Command, topic, window), 1 + draws.below(3) as u8);
        let signed = sender.send_as(terms, previous, number, per_block, &messages).unwrap();
        previous = Some(number);
        sent.push(Sent { signed, topic, window, at_ms });
    }
    sent
}

/// Runs a simulation. Returns the number of deliveries that were due, and what was reported.
fn simulate(
    authority: &Authority,
    sender: &CertifiedSender,
    seed: u64,
    folder: &Path,
) -> (usize, BTreeSet<&'static str>) {
    let seed = Seed::default().derive("commands", seed);
    let mut draws = seed.draws();
    let is_hostile = chance(&mut draws, 50);
    let sent = commands(sender, &mut draws);
    let mut receivers = Vec::new();
    for who in 0..1 + draws.below(3) {
        let joins = if chance(&mut draws, 50) { 0 } else { draws.below(80_000) };
        let mut runs = vec![(joins, END)];
        while chance(&mut draws, 40) && runs.len() < 4 {
            let (start, _) = runs.pop().unwrap();
            let stop = start + draws.below(40_000);
            runs.extend([(start, stop), (stop + 1 + draws.below(20_000), END)]);
        }
        let set_back = runs
            .iter()
            .enumerate()
            .map(|(run, _)| {
                let is_set_back = run > 0 && is_hostile && chance(&mut draws, 30);
                if is_set_back { 1_000 + draws.below(100_000) } else { 0 }
            })
            .collect();
        let ahead = draws.below(2 * CLOCK_OFFSET_SECONDS + 1) as i64 - CLOCK_OFFSET_SECONDS as i64;
        let archive = folder.join(format!("{seed}-{who}"));
        receivers.push(Receiver { archive, ahead, runs, set_back, delivered: Vec::new() });
    }
    let mut simulation = Simulation {
        seed,
        loss: draws.unit() * 0.3,
        draws,
        authority,
        sent,
        receivers,
        is_hostile,
        withheld: BTreeMap::new(),
        queue: BinaryHeap::new(),
        reported: BTreeSet::new(),
        polls: Vec::new(),
        order: 0,
    };
    simulation.prepare();
    simulation.run();
    simulation.check_deliveries();
    let due = if is_hostile { 0 } else { simulation.check_completeness() };
    (due, simulation.reported)
}

impl Simulation<'_> {
    fn prepare(&mut self) {
        self.polls = vec![None; 1 + self.receivers.len()];
        for at in 0..self.sent.len() {
            let at_ms = self.sent[at].at_ms;
            self.plan(at_ms, Happens::Sends(at));
            for offer in (OFFERS.1..=OFFERS.0).step_by(OFFERS.1 as usize) {
                self.plan(at_ms + offer, Happens::Offers(at));
            }
        }
        for place in 0..self.receivers.len() {
            let runs = self.receivers[place].runs.clone();
            for (run, (start, stop)) in runs.into_iter().enumerate() {
                self.plan(start, Happens::Starts(place + 1, run));
                self.plan(stop, Happens::Stops(place + 1));
            }
        }
        if !self.is_hostile {
            return;
        }
        for at in 0..self.sent.len() {
            for place in 0..self.receivers.len() {
                if chance(&mut self.draws, 40) {
                    let until = self.sent[at].at_ms + self.draws.below(END);
                    self.withheld.insert((place, at), until);
                }
                // The attacker replays everything at any time, also frames that it withheld.
                for _ in 0..self.draws.below(4) {
                    let when = self.sent[at].at_ms + self.draws.below(END);
                    let signed = &self.sent[at].signed;
                    let truth = Truth { chains: vec![signed.clone()] };
                    for frame in truth.frames(0) {
                        self.plan(when, Happens::Arrives(place + 1, frame));
                    }
                }
            }
        }
    }
}

#[test]
fn commands_are_delivered_in_order_within_their_windows_and_none_is_lost_while_valid() {
    let authority = Authority::new(Algorithm::Ed25519, 1).unwrap();
    let sender = authority.certify("ops", Algorithm::Ed25519, 1).unwrap();
    // Archives sync often; a file system in memory is much faster.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    };
    let runs = seeds();
    let (mut expected, mut reported) = (0, BTreeSet::new());
    for seed in 0..runs {
        let of_run = folder.path().join(seed.to_string());
        std::fs::create_dir(&of_run).unwrap();
        let (due, of_this) = simulate(&authority, &sender, seed, &of_run);
        expected += due;
        reported.extend(of_this);
        std::fs::remove_dir_all(&of_run).unwrap();
    }
    println!("{runs} runs; {expected} deliveries were due");
    // The simulations reach every reason for which a command is not delivered.
    let reasons = ["ClockSetBack", "Early", "Late", "MissedChain", "SupersededCommand"];
    assert!(reported.iter().eq(&reasons), "{reported:?}");
    assert!(expected as u64 > runs / 2, "{expected} deliveries were due in {runs} runs");
}
