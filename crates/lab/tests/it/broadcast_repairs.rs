//! Repairs: frames with the exclusive or of several leaves (spec/broadcast.md, section 5).

use crate::failing::Failing;
use crate::receiver::{RADIO, Receiver, at, authority, encode, leaf_frame, node, sender, settings};
use moteseal_broadcast::recovery::{
    Event, Item, Meter, Node, Purpose, Relay, Settings, Store, Timing,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_lab::broadcast::chains::{Repeating, run_with};
use moteseal_lab::broadcast::hop;
use moteseal_lab::chance::{Average, Seed};
use moteseal_lab::radio::{Authority, MapStore, SignedChain};

const COUNT: usize = 12;
/// The bit of a request whose sender can use repairs.
const USES_REPAIRS: u64 = 1 << 63;

/// A chain of two blocks, whose messages have different lengths.
fn chain(authority: &Authority) -> SignedChain {
    let message = |number: u8| vec![number; usize::from(number) * 7 + 1];
    sender(authority).send(1, 6, &(0..COUNT as u8).map(message).collect::<Vec<_>>()).unwrap()
}

/// Returns a node that has the whole chain, and collects requests.
fn whole<'a>(
    authority: &'a Authority,
    signed: &SignedChain,
    seed: u64,
) -> (Receiver<'a>, MapStore) {
    let timing = Timing { gather_ms: 50, ..Timing::LAN };
    let settings = Settings { timing, relay: Relay::Never, ..settings(authority) };
    let mut node = Node::new(settings, seed, at(0));
    let mut store = MapStore::default();
    receive_all(&mut node, &mut store, signed, 0);
    (node, store)
}

/// Returns a node that has the chain except the leaves in `lost`.
fn lacking<'a>(
    authority: &'a Authority,
    signed: &SignedChain,
    lost: u64,
) -> (Receiver<'a>, MapStore) {
    let (mut node, mut store) = node(authority);
    receive_all(&mut node, &mut store, signed, lost);
    (node, store)
}

/// Returns the exclusive or of leaves, and that of their lengths.
fn combined(signed: &SignedChain, places: &[usize]) -> (Vec<u8>, u16) {
    let (mut bytes, mut lengths) = (Vec::new(), 0);
    for place in places {
        let leaf = &signed.leaves[*place].2;
        bytes.resize(bytes.len().max(leaf.len()), 0);
        bytes.iter_mut().zip(leaf).for_each(|(sum, byte)| *sum ^= byte);
        lengths ^= leaf.len() as u16;
    }
    (bytes, lengths)
}

/// Passes the certificate, the head and the leaves that are not in `lost` to a node.
fn receive_all<S: Store<Error: std::fmt::Debug>>(
    node: &mut Receiver<'_>,
    store: &mut S,
    signed: &SignedChain,
    lost: u64,
) {
    let mut frames = vec![
        encode(&BroadcastFrame::Certificate(&signed.certificate)),
        encode(&BroadcastFrame::Head(&signed.head)),
    ];
    frames.extend(
        (0..COUNT).filter(|place| lost >> place & 1 == 0).map(|place| leaf_frame(signed, place)),
    );
    for frame in frames {
        node.receive(at(0), RADIO, &frame, store).unwrap();
    }
}

fn is_complete(node: &Receiver<'_>) -> bool {
    node.chains().all(|(.., is_complete)| is_complete)
}

#[test]
fn one_repair_serves_receivers_that_lack_different_leaves() {
    let authority = authority();
    let signed = chain(&authority);
    let chain = signed.reference();
    let (mut repairs, mut out) = (0, vec![0; MAX_BROADCAST_FRAME]);
    for seed in 0..20 {
        let (mut node, mut store) = whole(&authority, &signed, seed);
        let mut receivers = [0, 3, 5].map(|place| {
            let (node, store) = lacking(&authority, &signed, 1 << place);
            assert!(!is_complete(&node));
            let wanted =
                BroadcastFrame::Wanted { chain, block: 1, wanted: 1 << place | USES_REPAIRS };
            (node, store, encode(&wanted))
        });
        let start = 10_000 + seed * 1_111;
        for (after, (.., wanted)) in receivers.iter().enumerate() {
            node.receive(at(start + 10 * after as u64), RADIO, wanted, &mut store).unwrap();
        }
        let mut frames = 0;
        for now in start + 30..start + 200 {
            while let Some(transmit) = node.poll(at(now), &mut store, &mut out).unwrap() {
                let frame = &out[..transmit.length];
                if transmit.purpose != Purpose::Answer {
                    continue;
                }
                frames += 1;
                if let Ok(BroadcastFrame::Repair { mask, .. }) = BroadcastFrame::decode(frame) {
                    assert_eq!(mask & !0b10_1001, 0, "a leaf that nobody has requested");
                }
                for (node, store, _) in &mut receivers {
                    node.receive(at(now), RADIO, frame, store).unwrap();
                }
            }
        }
        repairs += u32::from(frames == 1);
        for (node, store, _) in &mut receivers {
            assert!(is_complete(node), "{frames} frames");
            for (block, index, leaf) in &signed.leaves {
                let item = Item::Leaf { chain, block: *block, index: *index };
                assert_eq!(store.is_kept(item, leaf), Ok(true));
            }
        }
    }
    assert_eq!(repairs, 20, "not all answers were one repair");
}

#[test]
fn a_receiver_that_cannot_use_repairs_gets_leaves_alone() {
    let authority = authority();
    let signed = chain(&authority);
    let chain = signed.reference();
    let mut out = vec![0; MAX_BROADCAST_FRAME];
    let mut repairs = 0;
    for lost in [0b1, 0b1_0000, 0b11_0010, 0b11_1111] {
        let (mut helper, mut archive) = whole(&authority, &signed, 5);
        let mut store = Failing::<false>::default();
        let mut node =
            Node::new(Settings { timing: Timing::LAN, ..settings(&authority) }, 9, at(0));
        receive_all(&mut node, &mut store, &signed, lost);
        for now in 5_000..8_000 {
            while let Some(transmit) = node.poll(at(now), &mut store, &mut out).unwrap() {
                if transmit.purpose != Purpose::Request {
                    continue;
                }
                helper.receive(at(now), RADIO, &out[..transmit.length], &mut archive).unwrap();
                // Other receivers, or an attacker, request the same leaves and others each time.
                for wanted in [0b1, 0b10, 0b100, 0b1000, 0b11_0000] {
                    let wanted = wanted | USES_REPAIRS;
                    let request = encode(&BroadcastFrame::Wanted { chain, block: 1, wanted });
                    helper.receive(at(now + 1), RADIO, &request, &mut archive).unwrap();
                }
            }
            while let Some(transmit) = helper.poll(at(now), &mut archive, &mut out).unwrap() {
                let frame = &out[..transmit.length];
                if let Ok(BroadcastFrame::Repair { mask, .. }) = BroadcastFrame::decode(frame) {
                    assert_eq!(mask & lost, 0, "{mask:b}");
                    repairs += 1;
                }
                node.receive(at(now), RADIO, frame, &mut store).unwrap();
            }
        }
        assert!(is_complete(&node), "{lost:b} is not complete");
    }
    assert!(repairs > 0, "no answer was a repair");
}

#[test]
fn forged_repairs_cause_little_work() {
    let authority = authority();
    let signed = chain(&authority);
    let chain = signed.reference();
    let (mut node, store) = lacking(&authority, &signed, 1 << 3);
    const CALLS: usize = 1_000_000;
    let mut store = Failing::<true> { inner: store, left: Some(CALLS) };
    let mut calls = |mask: u64| {
        let forged = BroadcastFrame::Repair { chain, block: 1, mask, lengths: 0, bytes: &[1; 90] };
        let before = store.left.unwrap();
        node.receive(at(1_000_000), RADIO, &encode(&forged), &mut store).unwrap();
        before - store.left.unwrap()
    };
    // No repair of a sender has more than eight leaves.
    assert_eq!(calls(u64::MAX >> 1), 0);
    let limit = usize::from(Meter::MOTE.answers.burst);
    let all: usize = (0..1_000).map(|_| calls(0b11_1111)).sum();
    assert!((1..=limit).contains(&all), "the store was called {all} times");
}

#[test]
fn a_changed_repair_yields_no_leaf() {
    let authority = authority();
    let signed = chain(&authority);
    let chain = signed.reference();
    let (mut node, mut store) = lacking(&authority, &signed, 1 << 3);
    let (bytes, lengths) = combined(&signed, &[0, 3, 5]);
    let mask = 0b10_1001;
    let genuine = BroadcastFrame::Repair { chain, block: 1, mask, lengths, bytes: &bytes };
    let frame = encode(&genuine);
    let mut accepted = 0;
    for at_byte in 0..frame.len() {
        for change in [1, 0x80] {
            let mut changed = frame.clone();
            changed[at_byte] ^= change;
            let (mut node, mut store) = (node.clone(), store.clone());
            let event = node.receive(at(10), RADIO, &changed, &mut store).unwrap();
            let is_new = matches!(event, Event::Pending { .. } | Event::Verified { .. });
            let item = Item::Leaf { chain, block: 1, index: 3 };
            assert_eq!(
                is_new,
                store.is_kept(item, &signed.leaves[3].2).unwrap(),
                "{at_byte}: {event:?}"
            );
            accepted += u32::from(is_new);
        }
    }
    assert_eq!(accepted, 0, "changed repairs were accepted");
    // Parts beyond the leaf, and leaves that the block does not have.
    let longer = [bytes.as_slice(), &[0]].concat();
    let trailing = [bytes.as_slice(), &[7]].concat();
    let refused = [
        BroadcastFrame::Repair { chain, block: 1, mask, lengths, bytes: &trailing },
        BroadcastFrame::Repair { chain, block: 1, mask, lengths: lengths ^ 0x4000, bytes: &bytes },
        BroadcastFrame::Repair { chain, block: 1, mask: mask | 1 << 6, lengths, bytes: &bytes },
        BroadcastFrame::Repair { chain, block: 1, mask, lengths, bytes: &[0xff; 9_000] },
    ];
    for frame in refused {
        let event = node.receive(at(10), RADIO, &encode(&frame), &mut store).unwrap();
        assert!(matches!(event, Event::Refused(_)), "{frame:?}: {event:?}");
    }
    let padded = BroadcastFrame::Repair { chain, block: 1, mask, lengths, bytes: &longer };
    let event = node.receive(at(10), RADIO, &encode(&padded), &mut store).unwrap();
    assert!(matches!(event, Event::Verified { .. }), "{event:?}");
    assert_eq!(node.receive(at(11), RADIO, &frame, &mut store), Ok(Event::Nothing));
}

#[test]
fn a_repair_of_the_same_leaves_by_another_node_ends_a_planned_answer() {
    let authority = authority();
    let signed = chain(&authority);
    let chain = signed.reference();
    let (mut node, mut store) = whole(&authority, &signed, 5);
    let (bytes, lengths) = combined(&signed, &[1, 4]);
    let repair =
        |bytes| encode(&BroadcastFrame::Repair { chain, block: 1, mask: 0b1_0010, lengths, bytes });
    let mut out = vec![0; MAX_BROADCAST_FRAME];
    let mut answers = |now: u64, repair: &[u8]| {
        for wanted in [0b10 | USES_REPAIRS, 0b1_0000 | USES_REPAIRS] {
            let wanted = encode(&BroadcastFrame::Wanted { chain, block: 1, wanted });
            node.receive(at(now), RADIO, &wanted, &mut store).unwrap();
        }
        node.receive(at(now + 1), RADIO, repair, &mut store).unwrap();
        let mut count = 0;
        for now in now + 2..now + 200 {
            while let Some(transmit) = node.poll(at(now), &mut store, &mut out).unwrap() {
                count += u32::from(transmit.purpose == Purpose::Answer);
            }
        }
        count
    };
    // A forged repair silences nobody.
    assert!(answers(10_000, &repair(&[9; 400])) > 0);
    assert_eq!(answers(20_000, &repair(&bytes)), 0);
    // The same leaves are requested again, so the repair did not arrive.
    assert!(answers(30_000, &repair(&bytes)) > 0);
}

/// Decision 11: on one hop, repairs save transmissions.
#[test]
fn repairs_save_at_least_a_tenth_of_the_transmissions() {
    for (loss, per_block, most) in [(0.1, 10, 0.92), (0.1, 32, 0.87), (0.2, 32, 0.86)] {
        let sent = |gather_ms| -> Average {
            let run = |run| {
                let seed = Seed::default().derive("repairs", run);
                hop::simulated(loss, per_block, gather_ms, seed).unwrap().expect("all is received")
            };
            (0..10).map(run).collect()
        };
        let (single, repairs) = (sent(0), sent(Timing::LAN.gather_ms));
        println!("loss {loss}, blocks of {per_block}: {single:.2} and {repairs:.2}");
        assert!(repairs.mean() < single.mean() * most, "{single:.2} and {repairs:.2}");
    }
}

/// Decision 11: where neighbours repeat each message, repairs save nothing, so nodes with the timing
/// of radios send none.
#[test]
fn repairs_save_no_frames_where_neighbours_repeat_each_message() {
    for loss in [0.1, 0.3] {
        let sent = |gather_ms| -> Average {
            let timing = Timing { gather_ms, ..Timing::RADIO };
            let run = |run| {
                let seed = Seed::default().derive("repairs", run);
                let outcome = run_with(10, Repeating::Suppressed, timing, loss, seed).unwrap();
                assert_eq!(outcome.lacking, 0);
                outcome.sent.as_the_paper_counts() as f64
            };
            (0..10).map(run).collect()
        };
        let (single, repairs) = (sent(0), sent(Timing::RADIO.request_ms));
        println!("loss {loss}: {single:.0} frames with single leaves, {repairs:.0} with repairs");
        let ratio = repairs.mean() / single.mean();
        assert!((0.98..=1.05).contains(&ratio), "loss {loss}: {ratio:.3}");
    }
    assert_eq!(Timing::RADIO.gather_ms, 0);
}
