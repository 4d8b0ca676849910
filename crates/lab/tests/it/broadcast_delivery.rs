//! Tests that every node receives every message once and in order despite lost frames, and that
//! this takes at most a given number of frames.
use moteseal_broadcast::recovery::{LinkSet, Meter, Purpose, Relay, Settings, Timing};
use moteseal_core::signature::Algorithm;
use moteseal_lab::chance::Seed;
use moteseal_lab::radio::{Air, Authority, SignedChain, TESTBED, Testbed, poisson};

/// A time long after the last message, when nodes have no more frames to send.
const LONG: u64 = 24 * 3600 * 1000;

fn messages(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("message {number:012}").into_bytes()).collect()
}

fn signed(authority: &Authority, count: usize, per_block: u8) -> SignedChain {
    authority
        .certify("sink", Algorithm::Ed25519, 1)
        .unwrap()
        .send(1, per_block, &messages(count))
        .unwrap()
}

fn settings(authority: &Authority, relay: Relay) -> Settings<'_> {
    Settings {
        network: authority.network,
        bases: std::slice::from_ref(&authority.public),
        links: LinkSet::one(0),
        relay,
        timing: Timing::RADIO,
        meter: Meter::MOTE,
    }
}

fn run<'a>(
    authority: &'a Authority,
    signed: &SignedChain,
    relay: Relay,
    loss: f64,
    seed: u64,
) -> Testbed<'a> {
    let seed = Seed::default().derive("run", seed);
    let mut radio =
        Testbed::new(&[settings(authority, relay); 7], TESTBED, Air::losing(loss), seed);
    radio.start_all();
    radio.send_at(1_000, 0, signed, &poisson(10_000, signed.leaves.len(), 0.2, seed));
    radio.run(LONG, &mut ());
    radio
}

#[test]
fn every_node_delivers_every_message_once_and_in_order() {
    let authority = Authority::new(Algorithm::Ed25519, 1).unwrap();
    for per_block in [1, 2, 5, 10] {
        let signed = signed(&authority, 100, per_block);
        let radio =
            run(&authority, &signed, Relay::Flood { copies: 255 }, 0.2, u64::from(per_block));
        for (who, station) in radio.stations.iter().enumerate().skip(1) {
            let delivered: Vec<Vec<u8>> =
                station.delivered.iter().map(|delivered| delivered.message.clone()).collect();
            assert!(
                delivered == messages(100),
                "b = {per_block}: node {who} delivered {} of 100",
                delivered.len()
            );
        }
    }
}

/// Counts the requests and answers of ten runs as figure 6 of the paper does, without
/// advertisements, certificates and heads.
#[test]
fn larger_blocks_need_fewer_requests_and_answers_and_blocks_of_ten_no_more_than_the_papers() {
    let authority = Authority::new(Algorithm::Ed25519, 1).unwrap();
    let repairs = |per_block| {
        let signed = signed(&authority, 100, per_block);
        let runs: Vec<Testbed<'_>> = (0..10)
            .map(|seed| run(&authority, &signed, Relay::Flood { copies: 255 }, 0.2, seed))
            .collect();
        assert!(
            runs.iter()
                .all(|radio| radio.sent_for(Purpose::Original) + radio.sent_for(Purpose::Relay)
                    == 7 * 102)
        );
        runs.iter()
            .map(|radio| radio.sent_for(Purpose::Request) + radio.sent_for(Purpose::Answer))
            .sum::<u64>()
    };
    let (one, ten) = (repairs(1), repairs(10));
    assert!(ten < one, "b = 10: {ten}, b = 1: {one}");
    // The paper's 741 messages at b = 10 are 700 fragments and 41 requests and answers.
    assert!(ten <= 410, "{ten}");
}
