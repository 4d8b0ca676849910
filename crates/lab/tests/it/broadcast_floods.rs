//! An attacker within range of a broadcast network forges, replays and floods at a hundred times
//! the genuine rate. The tests check that no forged frame is delivered, stored or relayed; that no
//! node checks more signatures than its limits allow; that memory does not grow; and that genuine
//! messages take at most three times as long as without the attacker.
//!
//! `MOTESEAL_SEEDS` sets the number of seeds.

use std::collections::{BTreeMap, BTreeSet};

use moteseal_adversary::broadcaster::{Assault, Broadcaster};
use moteseal_broadcast::Incoming;
use moteseal_broadcast::recovery::{Event, Meter, Purpose, Rate, Settings, Store as _, Timing};
use moteseal_core::signature::Algorithm;
use moteseal_lab::broadcast::chains::{Mote, Repeating, Testbed, settings, speech};
use moteseal_lab::broadcast::truth::Truth;
use moteseal_lab::broadcast::{LINKS, NODES};
use moteseal_lab::chance::Seed;
use moteseal_lab::radio::{Air, Authority, MapStore, Observer, Outsider, poisson};

/// The nodes within range of the attacker. All paths from the sender to nodes 5 and 6 go through
/// these nodes.
const NEAR: [usize; 4] = [1, 2, 3, 4];

/// The maximum ratio of the time under attack to the time without the attacker.
const LATE: f64 = 3.0;
/// The ratio above which a run counts as incomplete.
const NEVER: f64 = 30.0;
/// The time limit of a run without the attacker, in milliseconds.
const LONGEST_MS: u64 = 2 * 3_600_000;

fn seeds(usual: u64) -> u64 {
    std::env::var("MOTESEAL_SEEDS").map_or(usual, |seeds| seeds.parse().unwrap())
}

struct Attacker(Broadcaster);

impl Outsider for Attacker {
    fn receive(&mut self, _: u64, frame: &[u8]) {
        self.0.receive(frame);
    }

    fn next_due(&self) -> Option<u64> {
        self.0.next_due()
    }

    fn send(&mut self, now_ms: u64, out: &mut [u8]) -> Option<usize> {
        self.0.send(now_ms, out)
    }
}

/// A sender with two chains: chain 1, which the attacker replays, and chain 2, which is sent under
/// attack.
struct Scene {
    authority: Authority,
    truth: Truth,
    timing: Timing,
    meter: Meter,
}

impl Scene {
    fn new(pace: &Pace, seed: Seed) -> Self {
        let Pace { messages, per_block, timing, meter, .. } = *pace;
        let authority = Authority::new(Algorithm::Ed25519, 1).unwrap();
        let chains =
            [1, 2].map(|number| speech(&authority, number, messages, per_block, seed).unwrap());
        Self { authority, truth: Truth { chains: chains.to_vec() }, timing, meter }
    }

    fn settings(&self) -> Settings<'_> {
        Settings {
            timing: self.timing,
            meter: self.meter,
            ..settings(&self.authority, Repeating::Suppressed)
        }
    }

    fn radio(&self, loss: f64, seed: Seed) -> Testbed<'_> {
        Testbed::new(&[self.settings(); NODES], LINKS, Air::losing(loss), seed)
    }

    /// Returns nodes that have completed chain 1 and dropped it. Their stores keep only its number,
    /// as the floor for later chains.
    fn later_radio(&self, loss: f64, seed: Seed) -> Testbed<'_> {
        let mut radio = self.radio(loss, seed);
        let first = self.truth.chains[0].outline;
        radio
            .stations
            .iter_mut()
            .for_each(|station| station.store.raise(first.key, first.id.number).unwrap());
        radio
    }

    /// Checks that every item in a node's store is genuine.
    fn check_kept(&self, radio: &Testbed<'_>) {
        for station in &radio.stations {
            for (item, bytes) in station.store.items() {
                let is_genuine = self.truth.is_kept_rightly(item, bytes);
                assert!(is_genuine, "the store has a forged {item:?}");
            }
        }
    }

    /// Checks that each receiver has delivered exactly the messages of these chains, once and in
    /// order.
    fn check_delivered(&self, radio: &Testbed<'_>, chains: std::ops::Range<usize>) {
        let expected: Vec<Vec<u8>> = chains.flat_map(|chain| self.truth.messages(chain)).collect();
        for (who, station) in radio.stations.iter().enumerate().skip(1) {
            let delivered: Vec<Vec<u8>> =
                station.delivered.iter().map(|delivered| delivered.message.clone()).collect();
            assert!(
                delivered == expected,
                "node {who} delivered {} messages of {}",
                delivered.len(),
                expected.len()
            );
        }
    }
}

/// Checks that honest nodes send only genuine frames. Counts the frames and the rejections.
struct Witness<'t> {
    truth: &'t Truth,
    sent: u64,
    refused: BTreeMap<&'static str, u64>,
}

impl<'t> Witness<'t> {
    fn new(truth: &'t Truth) -> Self {
        Self { truth, sent: 0, refused: BTreeMap::new() }
    }
}

impl Observer for Witness<'_> {
    fn sent(&mut self, now_ms: u64, who: usize, frame: &[u8], purpose: Purpose) {
        self.sent += 1;
        assert!(
            self.truth.is_genuine(frame),
            "{now_ms} ms: node {who} sends {frame:02x?} as {purpose:?}"
        );
    }

    fn event(&mut self, _: u64, _: usize, event: &Event) {
        if let Event::Refused(error) = event {
            *self.refused.entry(error.name()).or_default() += 1;
        }
    }
}

/// Runs until every receiver has delivered this many messages, and returns the time. Returns `None`
/// if that does not happen before `until_ms`.
fn complete(
    radio: &mut Testbed<'_>,
    messages: usize,
    until_ms: u64,
    observer: &mut dyn Observer,
) -> Option<u64> {
    while radio.now_ms() < until_ms {
        radio.run(radio.now_ms() + 250, observer);
        if radio.stations[1..].iter().all(|station| station.delivered.len() >= messages) {
            return Some(radio.now_ms());
        }
    }
    None
}

/// Returns the maximum number of signature checks that a rate limit allows in `ms` milliseconds.
fn allowed(rate: Rate, ms: u64) -> u64 {
    u64::from(rate.burst) + ms / u64::from(rate.each_ms) + 1
}

fn check_meters(radio: &Testbed<'_>, meter: &Meter) {
    for (who, station) in radio.stations.iter().enumerate() {
        let checks = station.node.as_ref().unwrap().checks();
        let (heads, certificates) =
            (allowed(meter.heads, radio.now_ms()), allowed(meter.certificates, radio.now_ms()));
        assert!(
            checks.heads <= heads && checks.certificates <= certificates,
            "node {who}: {checks:?} in {} ms",
            radio.now_ms()
        );
    }
}

/// The traffic of a sender, and the settings of the nodes.
#[derive(Clone, Copy, Debug)]
struct Pace {
    messages: u32,
    per_block: u8,
    per_second: f64,
    loss: f64,
    timing: Timing,
    meter: Meter,
}

/// The paper's traffic: a message every five seconds.
const SLOW: Pace = Pace {
    messages: 40,
    per_block: 5,
    per_second: 0.2,
    loss: 0.1,
    timing: Timing::RADIO,
    meter: Meter::MOTE,
};
/// The sender and the attacker are ten times as fast as in [`SLOW`], and the timeouts for silence
/// are a tenth. The nodes have the rate limits of a host. A mote checks one signature per second,
/// so it could not find the genuine head among 200 forged heads per second within the minute that
/// this run takes.
const FAST: Pace = Pace {
    messages: 60,
    per_block: 10,
    per_second: 2.0,
    loss: 0.1,
    timing: Timing {
        quiet_ms: Timing::RADIO.quiet_ms / 10,
        advertise_ms: (Timing::RADIO.advertise_ms.0 / 10, Timing::RADIO.advertise_ms.1 / 10),
        ..Timing::RADIO
    },
    meter: Meter::HOST,
};

/// Returns the milliseconds that the chain takes without and with the attacker. The second value is
/// `u64::MAX` if the chain is not complete within `late` times the first value.
fn times(pace: Pace, assaults: &[Assault], late: u64, seed: Seed) -> (u64, u64) {
    let scene = Scene::new(&pace, seed);
    let mut longest = LONGEST_MS;
    let [undisturbed, attacked] = [false, true].map(|is_attacked| {
        let mut radio = scene.later_radio(pace.loss, seed);
        let mut witness = Witness::new(&scene.truth);
        if is_attacked {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let per_second = (100.0 * pace.per_second) as u32;
            let mut attacker = Broadcaster::new(assaults, per_second, 0, seed.derive("attacker", 0).0);
            scene.truth.frames(0).iter().for_each(|frame| attacker.remember(frame));
            radio.add_outsider(Attacker(attacker), &NEAR);
        }
        radio.start_all();
        radio.send_at(1000, 0, &scene.truth.chains[1], &poisson(1000, pace.messages as usize, pace.per_second, seed));
        let messages = pace.messages as usize;
        let end = complete(&mut radio, messages, longest, &mut witness);
        let Some(end) = end else {
            let delivered: Vec<_> = radio.stations.iter().map(|station| station.delivered.len()).collect();
            println!("{} messages a second under {assaults:?}, seed {seed}: delivered only {delivered:?} of {messages}", pace.per_second);
            return u64::MAX;
        };
        scene.check_delivered(&radio, 1..2);
        scene.check_kept(&radio);
        check_meters(&radio, &pace.meter);
        assert!(witness.sent > 0);
        // The time limit of the attacked run.
        longest = end * late + 1000;
        end
    });
    (undisturbed, attacked)
}

/// Returns the median and the largest ratio of the time under attack to the time without the
/// attacker. A run counts as never complete if its ratio exceeds `late`.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ratios(pace: Pace, assaults: &[Assault], late: f64, seeds: u64) -> (f64, f64) {
    let mut ratios: Vec<f64> = (0..seeds)
        .map(|seed| times(pace, assaults, late as u64, Seed::default().derive("floods", seed)))
        .map(|(undisturbed, attacked)| attacked as f64 / undisturbed as f64)
        .collect();
    ratios.sort_by(f64::total_cmp);
    (ratios[ratios.len() / 2], *ratios.last().unwrap())
}

#[test]
fn each_assault_alone_delays_genuine_messages_at_most_threefold() {
    let mut slower = Vec::new();
    for assault in Assault::ALL {
        let (median, worst) = ratios(SLOW, &[assault], LATE, seeds(3));
        let line = format!("{:<28} median {median:.2}, worst {worst:.2}", assault.about());
        println!("{line}");
        slower.extend((worst > LATE).then_some(line));
    }
    assert!(slower.is_empty(), "{slower:#?}");
}

#[test]
fn all_assaults_together_delay_genuine_messages_at_most_threefold() {
    let (median, worst) = ratios(SLOW, &Assault::ALL, LATE, seeds(10));
    println!("all assaults: median {median:.2}, worst {worst:.2}");
    assert!(worst <= LATE, "median {median:.2}, worst {worst:.2}");
}

/// A sender sends a chain for half a minute while the attacker sends 200 forgeries per second. A
/// node that misses the head or the end of a block repeats its request a few times. Each attempt
/// takes a large part of that half minute, so the delay is longer than in the other test. Every
/// genuine message still arrives, and no forged message is accepted.
#[test]
fn at_ten_times_the_rate_exactly_the_genuine_messages_still_arrive() {
    for assaults in Assault::ALL.iter().map(std::slice::from_ref).chain([&Assault::ALL[..]]) {
        let (median, worst) = ratios(FAST, assaults, NEVER, seeds(2));
        let names: Vec<_> = assaults.iter().take(2).map(|assault| assault.about()).collect();
        println!("{:<28} median {median:.2}, worst {worst:.2}", names.join(" and "));
        assert!(worst <= NEVER, "{names:?}: median {median:.2}, worst {worst:.2}");
    }
}

/// A node uses no heap memory, so its size is the size of its type, independently of the frames
/// that it receives.
#[test]
fn a_node_needs_at_most_the_documented_memory() {
    assert!(size_of::<Incoming<10>>() <= 48 * 10 + 400);
    assert!(!std::mem::needs_drop::<Incoming<10>>(), "the type has no heap memory");
    assert!(size_of::<Mote<'_>>() <= 24 << 10, "{} bytes", size_of::<Mote<'_>>());
}

#[test]
fn replayed_chains_are_refused_before_and_after_a_reboot() {
    let seed = Seed::default().derive("replays", 0);
    let scene = Scene::new(&Pace { messages: 20, ..SLOW }, seed);
    let mut radio = scene.radio(0.1, seed);
    let mut witness = Witness::new(&scene.truth);
    radio.start_all();
    radio.send_at(0, 0, &scene.truth.chains[0], &poisson(0, 20, 2.0, seed));
    complete(&mut radio, 20, LONGEST_MS, &mut witness).unwrap();
    let now = radio.now_ms();
    radio.send_at(now, 0, &scene.truth.chains[1], &poisson(now, 20, 2.0, seed));
    complete(&mut radio, 40, LONGEST_MS, &mut witness).unwrap();
    scene.check_delivered(&radio, 0..2);

    // The attacker replays both chains to all nodes. No message may be delivered again.
    let mut attacker = Broadcaster::new(&[Assault::ReplayOld], 50, radio.now_ms(), seed.0);
    (0..2).flat_map(|chain| scene.truth.frames(chain)).for_each(|frame| attacker.remember(&frame));
    radio.add_outsider(Attacker(attacker), &[0, 1, 2, 3, 4, 5, 6]);
    for _ in 0..2 {
        let end = radio.now_ms() + 120_000;
        radio.run(end, &mut witness);
        scene.check_delivered(&radio, 0..2);
        // Reboot all nodes. They lose their memory and keep their stores.
        for who in 0..NODES {
            radio.stop_at(end, who);
            radio.start_at(end + 500, who);
        }
    }
    scene.check_kept(&radio);
    let floors: BTreeSet<_> =
        radio.stations.iter_mut().map(|station| store_floor(&mut station.store, &scene)).collect();
    assert_eq!(floors, BTreeSet::from([2]), "every store has the highest chain number");
}

/// If the store of a node has only the floor left, the node rejects an earlier chain.
#[test]
fn a_node_that_has_only_its_floor_refuses_an_earlier_chain() {
    use moteseal_broadcast::ChainNumber;
    use moteseal_broadcast::recovery::{Node, Now, RefusedBroadcast};

    let scene = Scene::new(&Pace { messages: 4, per_block: 2, ..SLOW }, Seed::default());
    let mut store = MapStore::default();
    store.raise(scene.truth.chains[0].outline.key, ChainNumber(2)).unwrap();
    let now = Now { ms: 0, unix: None };
    let mut node: Mote<'_> = Node::new(scene.settings(), 1, now);
    let mut events: Vec<Event> = Vec::new();
    for chain in [0, 1] {
        events.extend(
            scene
                .truth
                .frames(chain)
                .iter()
                .map(|frame| node.receive(now, 0, frame, &mut store).unwrap()),
        );
    }
    let refused = Event::Refused(RefusedBroadcast::ChainGoesBack);
    assert_eq!(events.iter().filter(|event| **event == refused).count(), 2, "{events:?}");
    assert!(!events.iter().any(|event| matches!(
        event,
        Event::Accepted { .. } | Event::Pending { .. } | Event::Verified { .. }
    )));
}

fn store_floor(store: &mut MapStore, scene: &Scene) -> u64 {
    store.floor(scene.truth.chains[0].outline.key).unwrap().map_or(0, |number| number.0)
}

/// Nodes reboot during a flood. Verified messages must not be delivered again, and all other
/// messages must arrive.
#[test]
fn nodes_that_reboot_under_a_flood_continue_their_chain() {
    for seed in (0..seeds(3)).map(|seed| Seed::default().derive("reboots", seed)) {
        let scene = Scene::new(&Pace { messages: 60, ..SLOW }, seed);
        let mut radio = scene.later_radio(0.2, seed);
        let mut witness = Witness::new(&scene.truth);
        let mut attacker = Broadcaster::new(&Assault::ALL, 20, 0, seed.0);
        scene.truth.frames(0).iter().for_each(|frame| attacker.remember(frame));
        radio.add_outsider(Attacker(attacker), &NEAR);
        radio.start_all();
        radio.send_at(1000, 0, &scene.truth.chains[1], &poisson(1000, 60, 0.2, seed));
        for (who, at) in [(2, 60_000), (3, 90_000), (6, 90_000), (2, 150_000), (4, 200_000)] {
            radio.stop_at(at, who);
            radio.start_at(at + 5000, who);
        }
        complete(&mut radio, 60, LONGEST_MS, &mut witness)
            .unwrap_or_else(|| panic!("seed {seed}: the chain is not complete"));
        scene.check_delivered(&radio, 1..2);
        scene.check_kept(&radio);
    }
}
