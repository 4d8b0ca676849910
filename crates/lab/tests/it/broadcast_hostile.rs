//! Sends hostile frames to one node. A forged frame must not change the node's state and must be
//! rejected with a named error, and the work that an outsider can cause must be limited.
use std::collections::BTreeMap;

use crate::receiver::{
    RADIO, Receiver, at, authority, encode, follower, leaf_frame, node, refusal, sender,
    sent_until, settings, test_messages,
};
use moteseal_broadcast::recovery::{Checks, Event, Meter, Node, Now, Purpose, Rate, Timing};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{ChainRef, Revoked};
use moteseal_core::signature::Algorithm;
use moteseal_lab::radio::{Authority, MapStore, SignedChain};

#[test]
fn a_leaf_with_any_bit_changed_is_refused_and_neither_kept_nor_relayed() {
    let authority = authority();
    for per_block in [1, 2, 5] {
        let signed = sender(&authority).send(1, per_block, &test_messages(5)).unwrap();
        for place in 0..5 {
            let (mut node, mut store) = follower(&authority, &signed);
            for before in 0..place {
                node.receive(at(0), RADIO, &leaf_frame(&signed, before), &mut store).unwrap();
            }
            sent_until(&mut node, &mut store, 10_000);
            let (items, (block, index, leaf)) =
                (store.items().count(), signed.leaves[place].clone());
            for bit in 0..leaf.len() * 8 {
                let mut forged = leaf.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                let frame = encode(&BroadcastFrame::Fragment {
                    chain: signed.reference(),
                    block,
                    index,
                    leaf: &forged,
                });
                assert_eq!(
                    refusal(node.receive(at(10_000), RADIO, &frame, &mut store).unwrap()),
                    "ForgedLeaf"
                );
            }
            assert_eq!(store.items().count(), items);
            assert!(sent_until(&mut node, &mut store, 12_000).is_empty());
            let event =
                node.receive(at(12_000), RADIO, &leaf_frame(&signed, place), &mut store).unwrap();
            assert!(matches!(event, Event::Verified { .. } | Event::Pending { .. }), "{event:?}");
        }
    }
}

#[test]
fn each_cause_of_refusal_has_its_own_error() {
    let (authority, stranger) = (authority(), Authority::new(Algorithm::Ed25519, 2).unwrap());
    let sink = sender(&authority);
    let signed = sink.send(5, 2, &test_messages(4)).unwrap();
    let (mut node, mut store) = follower(&authority, &signed);
    let mut receive = |frame: &BroadcastFrame<'_>, unix: u64| {
        refusal(
            node.receive(
                Now { ms: 1_000_000, unix: Some(unix) },
                RADIO,
                &encode(frame),
                &mut store,
            )
            .unwrap(),
        )
    };
    let now = 1_700_000_000;
    let of_stranger = stranger.certify("sink", Algorithm::Ed25519, 1).unwrap();
    assert_eq!(
        receive(&BroadcastFrame::Certificate(&of_stranger.certificate), now),
        "WrongNetwork"
    );
    assert_eq!(
        receive(
            &BroadcastFrame::Head(&of_stranger.send(6, 1, &test_messages(1)).unwrap().head),
            now
        ),
        "WrongNetwork"
    );
    let expired = authority.certify_for("late", Algorithm::Ed25519, 2, (0, now)).unwrap();
    assert_eq!(receive(&BroadcastFrame::Certificate(&expired.certificate), now), "Expired");
    let early = authority.certify_for("early", Algorithm::Ed25519, 3, (now + 1, u64::MAX)).unwrap();
    assert_eq!(receive(&BroadcastFrame::Certificate(&early.certificate), now), "NotYetValid");
    let unknown = authority.certify("unknown", Algorithm::Ed25519, 4).unwrap();
    assert_eq!(
        receive(&BroadcastFrame::Head(&unknown.send(1, 1, &test_messages(1)).unwrap().head), now),
        "UnknownSender"
    );
    for number in [0, 4] {
        assert_eq!(
            receive(
                &BroadcastFrame::Head(&sink.send(number, 1, &test_messages(1)).unwrap().head),
                now
            ),
            "ChainGoesBack"
        );
    }
    assert_eq!(
        receive(&BroadcastFrame::Head(&sink.send(5, 1, &test_messages(1)).unwrap().head), now),
        "ChainGoesBack"
    );
    assert_eq!(
        receive(&BroadcastFrame::Head(&signed.head), now),
        "accepted",
        "the same head again is no error"
    );
    assert_eq!(
        receive(&BroadcastFrame::Head(&sink.send(6, 17, &test_messages(20)).unwrap().head), now),
        "BlockTooLarge"
    );
    assert_eq!(
        receive(&BroadcastFrame::Head(&sink.send(6, 64, &test_messages(3)).unwrap().head), now),
        "accepted",
        "its blocks have at most three messages"
    );
    let mut forged = sink.send(7, 1, &test_messages(1)).unwrap().head;
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(receive(&BroadcastFrame::Head(&forged), now), "NotAuthentic");
    assert_eq!(receive(&BroadcastFrame::Head(&forged), now), "RefusedBefore");
    let old = authority.certify("sink", Algorithm::Ed25519, 0).unwrap();
    assert_eq!(receive(&BroadcastFrame::Certificate(&old.certificate), now), "Superseded");
    let revocation = authority.revoke(Revoked::below(2)).unwrap();
    assert_eq!(receive(&BroadcastFrame::Revocation(&revocation), now), "accepted");
    assert_eq!(receive(&BroadcastFrame::Certificate(&sink.certificate), now), "Revoked");
    assert_eq!(
        receive(&BroadcastFrame::Revocation(&authority.revoke(Revoked::below(1)).unwrap()), now),
        "Superseded"
    );
    assert_eq!(receive(&BroadcastFrame::Head(&[]), now), "Malformed");
}

#[test]
fn signature_checks_are_limited_and_a_genuine_head_has_the_same_chance_as_each_forged_one() {
    let authority = authority();
    let sink = sender(&authority);
    let signed = sink.send(1, 1, &test_messages(1)).unwrap();
    let genuine = encode(&BroadcastFrame::Head(&signed.head));
    let mut accepted_after = Vec::new();
    for run in 0..20_u64 {
        let mut store = MapStore::default();
        let mut node: Receiver<'_> = Node::new(settings(&authority), run, at(0));
        node.receive(
            at(0),
            RADIO,
            &encode(&BroadcastFrame::Certificate(&sink.certificate)),
            &mut store,
        )
        .unwrap();
        let mut forged = signed.head.clone();
        let length = forged.len();
        // In each second, the node receives a hundred forged heads and then the genuine head.
        let mut after = None;
        'seconds: for second in 1..2_000_u64 {
            for number in 0..100_u64 {
                forged[length - 8..]
                    .copy_from_slice(&(run << 40 | second << 16 | number).to_be_bytes());
                node.receive(
                    at(second * 1000 + number),
                    RADIO,
                    &encode(&BroadcastFrame::Head(&forged)),
                    &mut store,
                )
                .unwrap();
                sent_until(&mut node, &mut store, second * 1000 + number);
            }
            node.receive(at(second * 1000 + 100), RADIO, &genuine, &mut store).unwrap();
            sent_until(&mut node, &mut store, second * 1000 + 999);
            let Rate { burst, each_ms } = Meter::MOTE.heads;
            let allowed = u64::from(burst) + (second + 1) * 1000 / u64::from(each_ms);
            assert!(node.checks().heads <= allowed, "{:?} after {second} s", node.checks());
            if node.chains().next().is_some() {
                after = Some(second);
                break 'seconds;
            }
        }
        accepted_after.push(after.expect("the genuine head is accepted"));
    }
    let mean = accepted_after.iter().sum::<u64>() / accepted_after.len() as u64;
    // In each second the node checks one of 101 heads, chosen at random. The number of seconds
    // until it accepts the genuine head therefore has a geometric distribution with a mean of 101.
    // The range allows for the deviation of the average of twenty runs.
    assert!((40..220).contains(&mean), "{accepted_after:?}");
}

#[test]
fn a_flood_of_heads_of_one_sender_does_not_block_another_sender() {
    let authority = authority();
    let (sink, other) =
        (sender(&authority), authority.certify("other", Algorithm::Ed25519, 2).unwrap());
    let (mut node, mut store) = node(&authority);
    for sender in [&sink, &other] {
        node.receive(
            at(0),
            RADIO,
            &encode(&BroadcastFrame::Certificate(&sender.certificate)),
            &mut store,
        )
        .unwrap();
    }
    let mut forged = sink.send(1, 1, &test_messages(1)).unwrap().head;
    let (length, genuine) = (
        forged.len(),
        encode(&BroadcastFrame::Head(&other.send(1, 1, &test_messages(1)).unwrap().head)),
    );
    let mut seconds = 0_u64;
    while node.chains().next().is_none() {
        seconds += 1;
        for number in 0..100_u64 {
            forged[length - 8..].copy_from_slice(&(seconds << 16 | number).to_be_bytes());
            node.receive(
                at(seconds * 1000),
                RADIO,
                &encode(&BroadcastFrame::Head(&forged)),
                &mut store,
            )
            .unwrap();
        }
        node.receive(at(seconds * 1000), RADIO, &genuine, &mut store).unwrap();
        sent_until(&mut node, &mut store, seconds * 1000 + 999);
    }
    assert!(seconds < 20, "every second check is for the other sender: {seconds} s");
}

#[test]
fn forged_certificates_cost_limited_checks_and_displace_no_sender() {
    let authority = authority();
    let signed = sender(&authority).send(1, 1, &test_messages(1)).unwrap();
    let (mut node, mut store) = follower(&authority, &signed);
    for number in 0..1_000_u64 {
        let mut forged = authority
            .certify(&format!("sender {number}"), Algorithm::Ed25519, number + 2)
            .unwrap()
            .certificate;
        *forged.last_mut().unwrap() ^= 1;
        node.receive(
            at(number * 10),
            RADIO,
            &encode(&BroadcastFrame::Certificate(&forged)),
            &mut store,
        )
        .unwrap();
        sent_until(&mut node, &mut store, number * 10);
    }
    let Checks { certificates, .. } = node.checks();
    assert!(
        certificates
            <= u64::from(Meter::MOTE.certificates.burst)
                + 1
                + 10_000 / u64::from(Meter::MOTE.certificates.each_ms)
    );
    assert!(node.chains().next().is_some());
    assert_eq!(
        node.receive(
            at(10_000),
            RADIO,
            &encode(&BroadcastFrame::Certificate(&signed.certificate)),
            &mut store
        )
        .unwrap(),
        Event::Nothing
    );
}

/// Returns a node that has a complete chain and no more frames to send.
fn archive<'a>(authority: &'a Authority, signed: &SignedChain) -> (Receiver<'a>, MapStore, u64) {
    let (mut node, mut store) = follower(authority, signed);
    for place in 0..signed.leaves.len() {
        node.receive(at(0), RADIO, &leaf_frame(signed, place), &mut store).unwrap();
    }
    sent_until(&mut node, &mut store, 10_000_000);
    assert_eq!(node.next_due(), None, "the node stops advertising");
    (node, store, 10_000_000)
}

#[test]
fn a_node_sends_a_fragment_once_per_hold_off_however_often_it_is_requested() {
    let authority = authority();
    let signed = sender(&authority).send(1, 5, &test_messages(100)).unwrap();
    let (mut node, mut store, start) = archive(&authority, &signed);
    let mut last: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut answers = 0;
    let mut draws = moteseal_lab::chance::Seed::default().draws();
    for step in 0..6_000_u64 {
        let now = start + step * 10;
        let block = 1 + u32::try_from(draws.below(20)).unwrap();
        let wanted = BroadcastFrame::Wanted { chain: signed.reference(), block, wanted: u64::MAX };
        node.receive(at(now), u8::try_from(draws.below(2)).unwrap(), &encode(&wanted), &mut store)
            .unwrap();
        for (when, purpose, frame) in sent_until(&mut node, &mut store, now) {
            assert_eq!(purpose, Purpose::Answer);
            let before = last.insert(frame, when);
            assert!(
                before.is_none_or(|before| when - before >= u64::from(Timing::RADIO.hold_off_ms)),
                "the same answer at {when} and {before:?} ms"
            );
            answers += 1;
        }
    }
    let Rate { burst, each_ms } = Meter::MOTE.answers;
    assert!(answers <= u64::from(burst) + 60_000 / u64::from(each_ms), "{answers}");
    assert!(answers > 100, "{answers}");
}

#[test]
fn forged_hints_cause_no_more_requests_than_the_rate_limit_allows() {
    let authority = authority();
    let signed = sender(&authority).send(1, 5, &test_messages(100)).unwrap();
    let (mut node, mut store) = follower(&authority, &signed);
    let mut requests = 0;
    for step in 0..60_000_u64 {
        let now = step * 10;
        let chain = if step % 2 == 0 { signed.reference() } else { ChainRef(step.to_be_bytes()) };
        let frame = match step % 6 {
            0 => BroadcastFrame::Holds { chain, block: 20, index: 4 },
            1 | 2 => BroadcastFrame::Fragment { chain, block: 9, index: 0, leaf: b"forged" },
            3 => BroadcastFrame::Holds { chain, block: 1, index: 0 },
            _ => BroadcastFrame::Wanted { chain, block: 20, wanted: 1 },
        };
        node.receive(at(now), RADIO, &encode(&frame), &mut store).unwrap();
        for (_, purpose, frame) in sent_until(&mut node, &mut store, now) {
            requests += u64::from(purpose == Purpose::Request);
            assert!(
                purpose == Purpose::Request
                    || matches!(
                        BroadcastFrame::decode(&frame),
                        Ok(BroadcastFrame::Certificate(_) | BroadcastFrame::Head(_))
                    )
            );
        }
    }
    let Rate { burst, each_ms } = Meter::MOTE.requests;
    assert!(
        requests <= u64::from(burst) + 600_000 / u64::from(each_ms),
        "{requests} requests in ten minutes"
    );
    // The node must still accept the chain.
    let mut verified = 0;
    for place in 0..100 {
        let event =
            node.receive(at(600_000), RADIO, &leaf_frame(&signed, place), &mut store).unwrap();
        verified += u32::from(matches!(event, Event::Verified { .. }));
    }
    assert_eq!(verified, 20);
}

#[test]
fn a_forged_copy_of_a_leaf_does_not_suppress_an_answer() {
    let authority = authority();
    let signed = sender(&authority).send(1, 1, &test_messages(3)).unwrap();
    let (mut node, mut store, start) = archive(&authority, &signed);
    let wanted = encode(&BroadcastFrame::Wanted { chain: signed.reference(), block: 2, wanted: 1 });
    let forged = encode(&BroadcastFrame::Fragment {
        chain: signed.reference(),
        block: 2,
        index: 0,
        leaf: b"forged",
    });
    node.receive(at(start), RADIO, &wanted, &mut store).unwrap();
    node.receive(at(start), RADIO, &forged, &mut store).unwrap();
    let sent = sent_until(&mut node, &mut store, start + 5_000);
    assert_eq!(
        sent.into_iter().map(|(.., frame)| frame).collect::<Vec<_>>(),
        [leaf_frame(&signed, 1)]
    );
    // A genuine copy of a leaf suppresses the node's answer only once. If the request is repeated,
    // the requesting node has not received the copy.
    let copy = leaf_frame(&signed, 1);
    for (round, answers) in [0, 1, 0].into_iter().enumerate() {
        let now = start + 10_000 * (round as u64 + 1);
        node.receive(at(now), RADIO, &wanted, &mut store).unwrap();
        node.receive(at(now), RADIO, &copy, &mut store).unwrap();
        assert_eq!(sent_until(&mut node, &mut store, now + 5_000).len(), answers, "round {round}");
    }
}

#[test]
fn a_clock_that_jumps_causes_neither_a_flood_nor_a_loss() {
    let authority = authority();
    let signed = sender(&authority).send(1, 1, &test_messages(3)).unwrap();
    let (mut node, mut store) = follower(&authority, &signed);
    let mut out = vec![0; MAX_BROADCAST_FRAME];
    for (step, ms) in
        [u64::MAX, 0, 1 << 41, 5, u64::MAX - 1, u64::MAX, 1_000].into_iter().enumerate()
    {
        let mut frames = 0;
        while node.poll(at(ms), &mut store, &mut out).unwrap().is_some() {
            frames += 1;
            assert!(frames < 100, "the number of frames after a jump is limited");
        }
        if let Some(place) = step.checked_sub(4) {
            let event =
                node.receive(at(ms), RADIO, &leaf_frame(&signed, place), &mut store).unwrap();
            assert!(matches!(event, Event::Verified { .. }), "{event:?}");
        }
    }
    assert!(node.chains().all(|(.., is_complete)| is_complete));
}

#[test]
fn a_genuine_head_with_a_forged_leaf_does_not_suppress_an_answer() {
    let authority = authority();
    let signed = sender(&authority).send(1, 1, &test_messages(1)).unwrap();
    let (mut node, mut store, start) = archive(&authority, &signed);
    let wanted = encode(&BroadcastFrame::Wanted { chain: signed.reference(), block: 0, wanted: 1 });
    let whole = encode(&BroadcastFrame::Single { head: &signed.head, leaf: &signed.leaves[0].2 });
    let forged = encode(&BroadcastFrame::Single { head: &signed.head, leaf: b"forged" });
    node.receive(at(start), RADIO, &wanted, &mut store).unwrap();
    node.receive(at(start), RADIO, &forged, &mut store).unwrap();
    let answers = sent_until(&mut node, &mut store, start + 5_000);
    assert_eq!(
        answers.into_iter().map(|(.., frame)| frame).collect::<Vec<_>>(),
        std::slice::from_ref(&whole)
    );
    node.receive(at(start + 10_000), RADIO, &wanted, &mut store).unwrap();
    node.receive(at(start + 10_000), RADIO, &whole, &mut store).unwrap();
    assert!(sent_until(&mut node, &mut store, start + 15_000).is_empty());
}

#[test]
fn under_a_flood_of_forged_heads_a_node_keeps_requesting_the_genuine_one_and_stops_after_it() {
    let authority = authority();
    let sink = sender(&authority);
    let signed = sink.send(1, 1, &test_messages(2)).unwrap();
    let (mut node, mut store) = node(&authority);
    node.receive(
        at(0),
        RADIO,
        &encode(&BroadcastFrame::Certificate(&sink.certificate)),
        &mut store,
    )
    .unwrap();
    let mut forged = signed.head.clone();
    let length = forged.len();
    let mut requests = Vec::new();
    let head = BroadcastFrame::Wanted { chain: signed.reference(), block: 0, wanted: 1 };
    for number in 0..36_000_u64 {
        forged[length - 8..].copy_from_slice(&number.to_be_bytes());
        node.receive(at(number * 100), RADIO, &encode(&BroadcastFrame::Head(&forged)), &mut store)
            .unwrap();
        if number == 10 {
            node.receive(at(number * 100), RADIO, &leaf_frame(&signed, 0), &mut store).unwrap();
        }
        let sent = sent_until(&mut node, &mut store, number * 100);
        requests.extend(
            sent.into_iter().filter(|(.., frame)| *frame == encode(&head)).map(|(when, ..)| when),
        );
    }
    assert!(
        requests.windows(2).all(|pair| pair[1] - pair[0] <= 7_000),
        "a request every few seconds for an hour"
    );
    assert!(requests.last().is_some_and(|last| *last > 3_590_000));
    sent_until(&mut node, &mut store, 20_000_000);
    assert_eq!(node.next_due(), None, "the node stops requesting after the flood");
}

#[test]
fn constantly_forged_hints_cost_four_requests_and_then_one_per_quiet_time() {
    let authority = authority();
    let signed = sender(&authority).send(1, 5, &test_messages(20)).unwrap();
    let (mut node, mut store) = follower(&authority, &signed);
    let hint = encode(&BroadcastFrame::Holds { chain: signed.reference(), block: 4, index: 4 });
    let mut requests = Vec::new();
    for now in (0..600_000).step_by(100) {
        node.receive(at(now), RADIO, &hint, &mut store).unwrap();
        requests.extend(
            sent_until(&mut node, &mut store, now)
                .into_iter()
                .filter(|sent| sent.1 == Purpose::Request)
                .map(|sent| sent.0),
        );
    }
    let quiet = u64::from(Timing::RADIO.quiet_ms);
    assert!(requests.windows(2).skip(3).all(|pair| pair[1] - pair[0] >= quiet), "{requests:?}");
    assert!(
        requests[3] < quiet,
        "the node that gives the hint may be able to answer: {requests:?}"
    );
    assert!(requests.len() > 4, "and may be able to answer later: {requests:?}");
}

#[test]
fn a_forged_hint_causes_only_a_few_requests() {
    let authority = authority();
    let signed = sender(&authority).send(1, 5, &test_messages(20)).unwrap();
    let (mut node, mut store) = follower(&authority, &signed);
    let hint = BroadcastFrame::Holds { chain: signed.reference(), block: 4, index: 4 };
    node.receive(at(0), RADIO, &encode(&hint), &mut store).unwrap();
    let mut requests = Vec::new();
    // One genuine leaf arrives per minute. If the node still trusted the hint, it would send
    // requests after each leaf.
    for place in 0..15_u64 {
        let now = 60_000 * (place + 1);
        requests.push(
            sent_until(&mut node, &mut store, now)
                .into_iter()
                .filter(|(_, purpose, _)| *purpose == Purpose::Request)
                .count(),
        );
        node.receive(at(now), RADIO, &leaf_frame(&signed, place as usize), &mut store).unwrap();
    }
    assert!(requests[0] >= 3, "{requests:?}");
    assert!(
        requests[1..].iter().all(|count| *count <= 2),
        "one request after half a minute of silence, and one more: {requests:?}"
    );
}
