//! Simulates faulty networks: random topologies, losses of up to 30 %, duplicated and reordered
//! frames, reboots of nodes and senders, and nodes that join late. Every node must deliver every
//! message once and in order, and all nodes must stop sending in the end.
//!
//! `MOTESEAL_SEEDS` sets the number of simulations (300 by default).
use std::collections::BTreeSet;

use moteseal_broadcast::recovery::{Event, LinkSet, Meter, Purpose, Relay, Settings, Timing};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_core::signature::Algorithm;
use moteseal_lab::chance::{Draws, Seed};
use moteseal_lab::radio::{
    Air, Authority, CertifiedSender, Observer, SignedChain, Testbed, poisson,
};

/// A day in milliseconds: long enough for all advertisements and requests to end.
const DAY: u64 = 24 * 3600 * 1000;

fn seeds() -> u64 {
    std::env::var("MOTESEAL_SEEDS")
        .ok()
        .map_or(300, |seeds| seeds.parse().expect("MOTESEAL_SEEDS is a number"))
}

fn chance(draws: &mut Draws, percent: u64) -> bool {
    draws.below(100) < percent
}

/// Returns a random connected topology. Each node is linked to one random earlier node, and to
/// further nodes with a probability of 25 %.
fn topology(nodes: usize, draws: &mut Draws) -> Vec<(usize, usize)> {
    let mut edges = BTreeSet::new();
    for node in 1..nodes {
        edges.insert((draws.below(node as u64) as usize, node));
        for other in 0..node {
            if chance(draws, 25) {
                edges.insert((other, node));
            }
        }
    }
    edges.into_iter().collect()
}

fn messages(count: usize, draws: &mut Draws) -> Vec<Vec<u8>> {
    let longest = if chance(draws, 20) { 1_000 } else { 60 };
    (0..count)
        .map(|_| (0..draws.below(longest)).map(|_| draws.below(256) as u8).collect())
        .collect()
}

/// Checks that nodes send only genuine leaves, heads and certificates, and that no node rejects a
/// genuine frame as forged or malformed.
struct Genuine<'s>(&'s [SignedChain]);

impl Observer for Genuine<'_> {
    fn sent(&mut self, _: u64, who: usize, frame: &[u8], purpose: Purpose) {
        let is_genuine = match BroadcastFrame::decode(frame).expect("a frame") {
            BroadcastFrame::Fragment { chain, block, index, leaf } => {
                let signed =
                    self.0.iter().find(|signed| signed.reference() == chain).expect("a chain");
                signed.leaves.iter().any(|of| (of.0, of.1, of.2.as_slice()) == (block, index, leaf))
            }
            BroadcastFrame::Head(head) => self.0.iter().any(|signed| signed.head == head),
            BroadcastFrame::Certificate(certificate) => {
                self.0.iter().any(|signed| signed.certificate == certificate)
            }
            BroadcastFrame::Single { head, leaf } => {
                self.0.iter().any(|signed| signed.head == head && signed.leaves[0].2 == leaf)
            }
            _ => true,
        };
        assert!(is_genuine, "node {who} sends {frame:02x?} as {purpose:?}");
    }

    fn event(&mut self, _: u64, who: usize, event: &Event) {
        if let Event::Refused(error) = event {
            assert!(
                !matches!(
                    error.name(),
                    "NotAuthentic" | "ForgedLeaf" | "BlockMismatch" | "Malformed"
                ),
                "node {who}: {error}"
            );
        }
    }
}

fn run(authority: &Authority, senders: &[CertifiedSender; 2], seed: u64) -> usize {
    let seed = Seed::default().derive("runs", seed);
    let mut draws = seed.draws();
    let nodes = 3 + draws.below(7) as usize;
    let edges = topology(nodes, &mut draws);
    let relay = [
        Relay::Flood { copies: 255 },
        Relay::Flood { copies: 2 },
        Relay::Flood { copies: 1 },
        Relay::Never,
    ];
    let settings = Settings {
        network: authority.network,
        bases: std::slice::from_ref(&authority.public),
        links: LinkSet::one(0),
        relay: relay[draws.below(4) as usize],
        timing: Timing::RADIO,
        meter: Meter::MOTE,
    };
    let air = Air {
        loss: draws.unit() * 0.3,
        duplicates: if chance(&mut draws, 50) { draws.unit() * 0.2 } else { 0.0 },
        delay_ms: 5,
        jitter_ms: if chance(&mut draws, 50) { draws.below(3_000) as u32 } else { 0 },
    };
    // One sender sends two chains, one after the other. In half of the runs a second sender sends a
    // chain at the same time.
    let mut chains = Vec::new();
    for (sender, number) in [(0, 1), (0, 2), (1, 1)] {
        if number == 1 && sender == 1 && chance(&mut draws, 50) {
            continue;
        }
        let count = if chance(&mut draws, 15) {
            1
        } else {
            1 + draws.below(if sender == 0 { 60 } else { 20 }) as usize
        };
        let of = messages(count, &mut draws);
        chains.push((
            sender,
            senders[sender].send(number, 1 + draws.below(16) as u8, &of).unwrap(),
            of,
        ));
    }
    let mut radio = Testbed::new(&vec![settings; nodes], edges, air, seed);
    radio.unix = Some(1_700_000_000);
    let mut start = 1_000;
    for (sender, signed, of) in &chains {
        let rate = [0.2, 2.0][draws.below(2) as usize];
        let times = poisson(start, of.len(), rate, seed.derive("times", start));
        radio.send_at(start, if *sender == 0 { 0 } else { nodes - 1 }, signed, &times);
        start = if *sender == 0 { times.last().unwrap() + 1_000 } else { start };
    }
    for who in 0..nodes {
        // Senders start at time 0. Some of the other nodes join while chains are being sent, or
        // later.
        let is_sender = who == 0 || who == nodes - 1;
        radio.start_at(
            if !is_sender && chance(&mut draws, 20) { draws.below(2 * start) } else { 0 },
            who,
        );
        if chance(&mut draws, 20) {
            let down = 2_000 + draws.below(start);
            radio.stop_at(down, who);
            radio.start_at(down + draws.below(20_000), who);
        }
    }
    let genuine: Vec<SignedChain> = chains.iter().map(|(_, signed, _)| signed.clone()).collect();
    radio.run(DAY, &mut Genuine(&genuine));
    // Expect only chains that were sent. A sender that was down at the start of a chain never sends
    // it.
    let kept = |who: usize, signed: &SignedChain, radio: &Testbed<'_>| {
        radio.stations[who].store.chains().contains(&signed.reference())
    };
    let expected: Vec<_> = chains
        .iter()
        .filter(|(sender, signed, _)| {
            kept(if *sender == 0 { 0 } else { nodes - 1 }, signed, &radio)
        })
        .collect();
    // Chain numbers only increase. A node that has accepted a later chain of a sender therefore
    // rejects an earlier chain that is new to it.
    let is_due = |who: usize, signed: &SignedChain, radio: &Testbed<'_>| {
        let id = signed.outline.id;
        let is_later = |of: &SignedChain| {
            of.outline.id.sender == id.sender && of.outline.id.number > id.number
        };
        kept(who, signed, radio) || !genuine.iter().any(|of| is_later(of) && kept(who, of, radio))
    };
    // A node may not know a chain, or may have stopped requesting it. It requests the chain after a
    // restart.
    let mut restarts = 0;
    for round in 0..5_u64 {
        let incomplete: Vec<usize> = (0..nodes)
            .filter(|who| {
                let station = &radio.stations[*who];
                let own = |sender: usize| {
                    (sender == 0 && *who == 0) || (sender == 1 && *who == nodes - 1)
                };
                let due = expected
                    .iter()
                    .filter(|(sender, signed, _)| !own(*sender) && is_due(*who, signed, &radio));
                let all: usize = due.map(|(.., of)| of.len()).sum();
                station.delivered.len() < all
            })
            .collect();
        restarts += incomplete.len();
        for who in incomplete {
            radio.stop_at(radio.now_ms() + 1, who);
            radio.start_at(radio.now_ms() + 2, who);
        }
        radio.run((round + 2) * DAY, &mut Genuine(&genuine));
    }
    for (who, station) in radio.stations.iter().enumerate() {
        for (sender, signed, of) in &expected {
            let delivered: Vec<&[u8]> = station
                .delivered
                .iter()
                .filter(|delivered| delivered.chain == signed.outline.id)
                .map(|delivered| delivered.message.as_slice())
                .collect();
            if who == if *sender == 0 { 0 } else { nodes - 1 } {
                assert!(delivered.is_empty(), "a sender does not deliver its own messages");
            } else {
                let all = if is_due(who, signed, &radio) { of.as_slice() } else { &[] };
                assert!(
                    delivered == all,
                    "{seed}: node {who} of {nodes} delivered {} of {} messages of {:?} ({air:?}, {relay:?})",
                    delivered.len(),
                    all.len(),
                    signed.outline.id,
                    relay = settings.relay
                );
            }
        }
        assert!(
            station.node.as_ref().is_none_or(|node| node.next_due().is_none()),
            "{seed}: node {who} still has something to send"
        );
    }
    restarts
}

#[test]
fn every_node_delivers_every_message_once_and_in_order_despite_faults() {
    let authority = Authority::new(Algorithm::Ed25519, 1).unwrap();
    let senders =
        ["sink", "other"].map(|name| authority.certify(name, Algorithm::Ed25519, 1).unwrap());
    let runs = seeds();
    let restarts: usize = (0..runs).map(|seed| run(&authority, &senders, seed)).sum();
    println!("{runs} runs; {restarts} nodes had to be restarted to complete a chain");
    assert!(restarts as u64 <= runs / 20 + 5, "{restarts} of {runs}");
}
