//! Simulates the same chain twice, without and with the attacker. In the second run all nodes then
//! reboot, and all frames are sent again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;

use moteseal_adversary::broadcaster::{Assault, Broadcaster};
use moteseal_broadcast::recovery::{Event, Meter, Purpose, Rate, Store as _};
use moteseal_core::signature::Algorithm;
use moteseal_lab::broadcast::chains::{Mote, Repeating, Sent, Testbed, settings, speech};
use moteseal_lab::broadcast::truth::Truth;
use moteseal_lab::broadcast::{LINKS, MESSAGES, NODES, RATE, arrivals};
use moteseal_lab::radio::{Air, Authority, Observer, Outsider};

use super::{Arguments, Node, Results, Step};
use moteseal_terminal::failure::{Exit, Failure};

/// The nodes in the attacker's range.
const NEAR: [usize; 4] = [1, 2, 3, 4];
/// The attacker's frames per second: a hundred times the sender's messages.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
const ATTACKS_PER_SECOND: u32 = (100.0 * RATE) as u32;
/// The maximum duration of the undisturbed simulation.
const LONGEST_MS: u64 = 4 * 3_600_000;
/// The interval at which completion is checked, and the interval between progress lines.
const STEP_MS: u64 = 500;
const REPORT_MS: u64 = 60_000;
/// The node that reboots, the time at which it stops, and the duration of the reboot in
/// milliseconds.
const REBOOTS: (usize, u64, u64) = (3, 200_000, 20_000);
/// The time during which all frames are sent again after the reboot of all nodes.
const REPLAYED_MS: u64 = 120_000;

fn internal(error: impl Display) -> Failure {
    Failure::new(Exit::Internal, error)
}

/// The attacker as a participant of the simulated radio. The radio owns it, so this type shares its
/// counts by reference.
struct Attacker<'c> {
    attacker: Broadcaster,
    sent: &'c RefCell<BTreeMap<Assault, u64>>,
}

impl Outsider for Attacker<'_> {
    fn receive(&mut self, _: u64, frame: &[u8]) {
        self.attacker.receive(frame);
    }

    fn next_due(&self) -> Option<u64> {
        self.attacker.next_due()
    }

    fn send(&mut self, now_ms: u64, out: &mut [u8]) -> Option<usize> {
        let length = self.attacker.send(now_ms, out);
        let mut sent = self.sent.borrow_mut();
        sent.extend(self.attacker.sent().iter().copied());
        length
    }
}

/// Counts the frames that nodes send, and those that are not genuine.
struct Witness<'t> {
    truth: &'t Truth,
    sent: Sent,
    forged: u64,
    refused: BTreeMap<&'static str, u64>,
}

impl<'t> Witness<'t> {
    fn new(truth: &'t Truth) -> Self {
        Self { truth, sent: Sent::default(), forged: 0, refused: BTreeMap::new() }
    }
}

impl Observer for Witness<'_> {
    fn sent(&mut self, _: u64, _: usize, frame: &[u8], purpose: Purpose) {
        self.sent.count(frame, purpose);
        self.forged += u64::from(!self.truth.is_genuine(frame));
    }

    fn event(&mut self, _: u64, _: usize, event: &Event) {
        if let Event::Refused(error) = event {
            *self.refused.entry(error.name()).or_default() += 1;
        }
    }
}

fn delivered(radio: &Testbed<'_>) -> Vec<usize> {
    radio.stations.iter().map(|station| station.delivered.len()).collect()
}

/// Simulates until every receiver has this many messages. Returns the time of completion; `None` if
/// that is later than `until_ms`.
fn complete(
    radio: &mut Testbed<'_>,
    messages: usize,
    until_ms: u64,
    witness: &mut Witness<'_>,
    report_step: &mut dyn FnMut(&Testbed<'_>, &Witness<'_>),
) -> Option<u64> {
    while radio.now_ms() < until_ms {
        radio.run(radio.now_ms() + STEP_MS, witness);
        if delivered(radio).iter().skip(1).all(|verified| *verified >= messages) {
            return Some(radio.now_ms());
        }
        if radio.now_ms().is_multiple_of(REPORT_MS) {
            report_step(radio, witness);
        }
    }
    None
}

/// Returns the maximum number of signature checks that a rate limit allows in this many
/// milliseconds.
fn allowed(rate: Rate, ms: u64) -> u64 {
    u64::from(rate.burst) + ms / u64::from(rate.each_ms.max(1)) + 1
}

pub(crate) fn play(
    arguments: &Arguments,
    report_step: &mut dyn FnMut(&Step),
) -> Result<Results, Failure> {
    let seed = arguments.seed;
    let authority = Authority::new(Algorithm::Ed25519, 1).map_err(internal)?;
    let chains = [1, 2].map(|number| speech(&authority, number, MESSAGES, arguments.block, seed));
    let truth = Truth { chains: chains.into_iter().collect::<Result<_, _>>().map_err(internal)? };
    let [earlier, present] = &truth.chains[..] else {
        return Err(internal("there are two chains"));
    };
    let messages = MESSAGES as usize;
    let start_radio = || {
        let all = [settings(&authority, Repeating::Suppressed); NODES];
        let mut radio = Testbed::new(&all, LINKS, Air::losing(arguments.loss), seed);
        for station in &mut radio.stations {
            // Start with nodes that have received an earlier chain completely and freed its memory.
            let Ok(()) = station.store.raise(earlier.outline.key, earlier.outline.id.number);
        }
        radio.start_all();
        radio.send_at(0, 0, present, &arrivals(MESSAGES, &mut seed.draws()));
        radio
    };

    let mut results = Results { messages, node_bytes: size_of::<Mote<'_>>(), ..Results::default() };
    let mut undisturbed_witness = Witness::new(&truth);
    let mut radio = start_radio();
    results.undisturbed_ms =
        complete(&mut radio, messages, LONGEST_MS, &mut undisturbed_witness, &mut |_, _| ());
    results.undisturbed_sent = undisturbed_witness.sent;
    let Some(undisturbed) = results.undisturbed_ms else { return Ok(results) };

    let (forged, again) = (RefCell::new(BTreeMap::new()), RefCell::new(BTreeMap::new()));
    let mut attacker =
        Broadcaster::new(&Assault::ALL, ATTACKS_PER_SECOND, 0, seed.derive("attacker", 0).0);
    truth.frames(0).iter().for_each(|frame| attacker.remember(frame));
    let mut witness = Witness::new(&truth);
    let mut radio = start_radio();
    radio.add_outsider(Attacker { attacker, sent: &forged }, &NEAR);
    let (who, at, away) = REBOOTS;
    radio.stop_at(at, who);
    radio.start_at(at + away, who);
    let mut report = |radio: &Testbed<'_>, witness: &Witness<'_>, note| {
        let ms = radio.now_ms();
        report_step(&Step {
            ms,
            verified: delivered(radio),
            sent: witness.sent.all(),
            forged: forged.borrow().values().sum(),
            note,
        });
    };
    let mut note = |radio: &Testbed<'_>, witness: &Witness<'_>| {
        let is_near = (at..at + REPORT_MS).contains(&radio.now_ms());
        report(radio, witness, if is_near { "node 3 reboots" } else { "" });
    };
    results.disturbed_ms =
        complete(&mut radio, messages, 3 * undisturbed + STEP_MS, &mut witness, &mut note);
    results.sent = witness.sent;
    report(
        &radio,
        &witness,
        if results.disturbed_ms.is_some() { "complete" } else { "not complete" },
    );
    results.nodes = radio.stations.iter().map(|station| node(station, radio.now_ms())).collect();

    // Reboot all nodes, and send again all frames that were ever sent.
    let (before, end) = (delivered(&radio), radio.now_ms());
    for who in 0..NODES {
        radio.stop_at(end, who);
        radio.start_at(end + STEP_MS, who);
    }
    let mut replayer = Broadcaster::new(
        &[Assault::ReplayOld],
        ATTACKS_PER_SECOND,
        end + 2 * STEP_MS,
        seed.derive("replayer", 0).0,
    );
    (0..2).flat_map(|chain| truth.frames(chain)).for_each(|frame| replayer.remember(&frame));
    radio.add_outsider(Attacker { attacker: replayer, sent: &again }, &[0, 1, 2, 3, 4, 5, 6]);
    radio.run(end + REPLAYED_MS, &mut witness);
    report(&radio, &witness, "all nodes have rebooted, and all frames were sent again");

    if results.disturbed_ms.is_some() {
        results.replayed = before
            .iter()
            .zip(delivered(&radio))
            .map(|(before, after)| after.saturating_sub(*before) as u64)
            .sum();
    }
    results.forged_sent = undisturbed_witness.forged + witness.forged;
    let genuine = truth.messages(1);
    for station in radio.stations.iter().skip(1) {
        let kept = station
            .store
            .items()
            .filter(|(item, bytes)| !truth.is_kept_rightly(item, bytes))
            .count();
        let wrong = station
            .delivered
            .iter()
            .enumerate()
            .filter(|(at, delivered)| genuine.get(*at) != Some(&delivered.message))
            .count();
        results.forged_kept += kept as u64;
        results.forged_delivered += wrong as u64;
    }
    results.over_meter = results
        .nodes
        .iter()
        .filter(|node| {
            node.heads_checked > node.heads_allowed
                || node.certificates_checked > node.certificates_allowed
        })
        .count() as u64;
    results.refused = witness.refused;
    results.attacks = forged.borrow().iter().map(|(assault, count)| (*assault, *count)).collect();
    Ok(results)
}

fn node(station: &moteseal_lab::radio::Station<'_, 2, 2, 10>, now_ms: u64) -> Node {
    let checks = station.node.as_ref().map(|node| node.checks()).unwrap_or_default();
    Node {
        verified: station.delivered.len(),
        kept: station.store.items().map(|(_, bytes)| bytes.len()).sum(),
        heads_checked: checks.heads,
        certificates_checked: checks.certificates,
        heads_allowed: allowed(Meter::MOTE.heads, now_ms),
        certificates_allowed: allowed(Meter::MOTE.certificates, now_ms),
        starts: station.starts,
    }
}
