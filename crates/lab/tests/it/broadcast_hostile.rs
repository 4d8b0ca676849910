//! One node among liars: what is not genuine changes nothing and has a name, and what a stranger
//! can make a node do is counted.
use std::collections::BTreeMap;

use crate::receiver::{
    RADIO, Receiver, at, authority, encode, follower, leaf_frame, node, refusal, said, says,
    sender, settings,
};
use moteseal_broadcast::ChainRef;
use moteseal_broadcast::recovery::{Checks, Event, Meter, Node, Now, Purpose, Rate, Timing};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_core::signature::Algorithm;
use moteseal_lab::radio::{Authority, MapStore, SignedChain};

#[test]
fn every_bit_of_a_leaf_counts_and_a_forged_one_is_neither_kept_nor_passed_on() {
    let authority = authority();
    for per_block in [1, 2, 5] {
        let speech = sender(&authority).say(1, per_block, &said(5)).unwrap();
        for place in 0..5 {
            let (mut node, mut store) = follower(&authority, &speech);
            for before in 0..place {
                node.receive(at(0), RADIO, &leaf_frame(&speech, before), &mut store).unwrap();
            }
            says(&mut node, &mut store, 10_000);
            let (items, (block, index, leaf)) =
                (store.items().count(), speech.leaves[place].clone());
            for bit in 0..leaf.len() * 8 {
                let mut forged = leaf.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                let frame = encode(&BroadcastFrame::Fragment {
                    chain: speech.reference(),
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
            assert!(says(&mut node, &mut store, 12_000).is_empty());
            let event =
                node.receive(at(12_000), RADIO, &leaf_frame(&speech, place), &mut store).unwrap();
            assert!(matches!(event, Event::Verified { .. } | Event::Pending { .. }), "{event:?}");
        }
    }
}

#[test]
fn what_is_refused_has_a_name() {
    let (authority, stranger) = (authority(), Authority::new(Algorithm::Ed25519, 2).unwrap());
    let sink = sender(&authority);
    let speech = sink.say(5, 2, &said(4)).unwrap();
    let (mut node, mut store) = follower(&authority, &speech);
    let mut hear = |frame: &BroadcastFrame<'_>, unix: u64| {
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
    assert_eq!(hear(&BroadcastFrame::Certificate(&of_stranger.certificate), now), "WrongNetwork");
    assert_eq!(
        hear(&BroadcastFrame::Head(&of_stranger.say(6, 1, &said(1)).unwrap().head), now),
        "WrongNetwork"
    );
    let expired = authority.certify_for("late", Algorithm::Ed25519, 2, (0, now)).unwrap();
    assert_eq!(hear(&BroadcastFrame::Certificate(&expired.certificate), now), "Expired");
    let early = authority.certify_for("early", Algorithm::Ed25519, 3, (now + 1, u64::MAX)).unwrap();
    assert_eq!(hear(&BroadcastFrame::Certificate(&early.certificate), now), "NotYetValid");
    let unknown = authority.certify("unknown", Algorithm::Ed25519, 4).unwrap();
    assert_eq!(
        hear(&BroadcastFrame::Head(&unknown.say(1, 1, &said(1)).unwrap().head), now),
        "UnknownSender"
    );
    for number in [0, 4] {
        assert_eq!(
            hear(&BroadcastFrame::Head(&sink.say(number, 1, &said(1)).unwrap().head), now),
            "ChainGoesBack"
        );
    }
    assert_eq!(
        hear(&BroadcastFrame::Head(&sink.say(5, 1, &said(1)).unwrap().head), now),
        "ChainGoesBack"
    );
    assert_eq!(hear(&BroadcastFrame::Head(&speech.head), now), "taken", "the same head is no lie");
    assert_eq!(
        hear(&BroadcastFrame::Head(&sink.say(6, 17, &said(20)).unwrap().head), now),
        "BlockTooLarge"
    );
    assert_eq!(
        hear(&BroadcastFrame::Head(&sink.say(6, 64, &said(3)).unwrap().head), now),
        "taken",
        "its blocks are small"
    );
    let mut forged = sink.say(7, 1, &said(1)).unwrap().head;
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(hear(&BroadcastFrame::Head(&forged), now), "NotAuthentic");
    assert_eq!(hear(&BroadcastFrame::Head(&forged), now), "RefusedBefore");
    let old = authority.certify("sink", Algorithm::Ed25519, 0).unwrap();
    assert_eq!(hear(&BroadcastFrame::Certificate(&old.certificate), now), "Superseded");
    let revocation = authority.revoke(2).unwrap();
    assert_eq!(hear(&BroadcastFrame::Revocation(&revocation), now), "taken");
    assert_eq!(hear(&BroadcastFrame::Certificate(&sink.certificate), now), "Revoked");
    assert_eq!(hear(&BroadcastFrame::Revocation(&authority.revoke(1).unwrap()), now), "Superseded");
    assert_eq!(hear(&BroadcastFrame::Head(&[]), now), "Malformed");
}

#[test]
fn signature_checks_are_metered_and_the_genuine_head_has_its_chance_whoever_comes_first() {
    let authority = authority();
    let sink = sender(&authority);
    let speech = sink.say(1, 1, &said(1)).unwrap();
    let genuine = encode(&BroadcastFrame::Head(&speech.head));
    let mut accepted_after = Vec::new();
    for run in 0..20_u64 {
        let mut store = MapStore::default();
        let mut node: Receiver<'_> =
            Node::new(settings(&authority), run, at(0), &mut store).unwrap();
        node.receive(
            at(0),
            RADIO,
            &encode(&BroadcastFrame::Certificate(&sink.certificate)),
            &mut store,
        )
        .unwrap();
        let mut forged = speech.head.clone();
        let length = forged.len();
        // Each second the genuine head comes last, behind a hundred forged ones.
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
                says(&mut node, &mut store, second * 1000 + number);
            }
            node.receive(at(second * 1000 + 100), RADIO, &genuine, &mut store).unwrap();
            says(&mut node, &mut store, second * 1000 + 999);
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
    // One in 101 each second, by lot: the mean of twenty is that of a geometric distribution, give
    // or take.
    assert!((40..220).contains(&mean), "{accepted_after:?}");
}

#[test]
fn a_flood_in_the_name_of_one_sender_does_not_keep_out_another() {
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
    let mut forged = sink.say(1, 1, &said(1)).unwrap().head;
    let (length, genuine) =
        (forged.len(), encode(&BroadcastFrame::Head(&other.say(1, 1, &said(1)).unwrap().head)));
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
        says(&mut node, &mut store, seconds * 1000 + 999);
    }
    assert!(seconds < 20, "every other check is the other sender's: {seconds} s");
}

#[test]
fn forged_certificates_cost_the_metered_checks_and_no_place() {
    let authority = authority();
    let speech = sender(&authority).say(1, 1, &said(1)).unwrap();
    let (mut node, mut store) = follower(&authority, &speech);
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
        says(&mut node, &mut store, number * 10);
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
            &encode(&BroadcastFrame::Certificate(&speech.certificate)),
            &mut store
        )
        .unwrap(),
        Event::Nothing
    );
}

/// A node that holds a whole chain and has said all it had to say.
fn archive<'a>(authority: &'a Authority, speech: &SignedChain) -> (Receiver<'a>, MapStore, u64) {
    let (mut node, mut store) = follower(authority, speech);
    for place in 0..speech.leaves.len() {
        node.receive(at(0), RADIO, &leaf_frame(speech, place), &mut store).unwrap();
    }
    says(&mut node, &mut store, 10_000_000);
    assert_eq!(node.next_due(), None, "advertisements end");
    (node, store, 10_000_000)
}

#[test]
fn a_fragment_is_answered_once_in_a_hold_off_whatever_is_asked() {
    let authority = authority();
    let speech = sender(&authority).say(1, 5, &said(100)).unwrap();
    let (mut node, mut store, start) = archive(&authority, &speech);
    let mut last: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut answers = 0;
    let mut draws = moteseal_lab::chance::Seed::default().draws();
    for step in 0..6_000_u64 {
        let now = start + step * 10;
        let block = 1 + u32::try_from(draws.below(20)).unwrap();
        let wanted = BroadcastFrame::Wanted { chain: speech.reference(), block, wanted: u64::MAX };
        node.receive(at(now), u8::try_from(draws.below(2)).unwrap(), &encode(&wanted), &mut store)
            .unwrap();
        for (when, purpose, frame) in says(&mut node, &mut store, now) {
            assert_eq!(purpose, Purpose::Answer);
            let before = last.insert(frame, when);
            assert!(
                before.is_none_or(|before| when - before >= u64::from(Timing::RADIO.hold_off_ms)),
                "at {when} and {before:?}"
            );
            answers += 1;
        }
    }
    let Rate { burst, each_ms } = Meter::MOTE.answers;
    assert!(answers <= u64::from(burst) + 60_000 / u64::from(each_ms), "{answers}");
    assert!(answers > 100, "{answers}");
}

#[test]
fn forged_hints_make_a_node_ask_no_more_than_its_patience_allows() {
    let authority = authority();
    let speech = sender(&authority).say(1, 5, &said(100)).unwrap();
    let (mut node, mut store) = follower(&authority, &speech);
    let mut asked = 0;
    for step in 0..60_000_u64 {
        let now = step * 10;
        let chain = if step % 2 == 0 { speech.reference() } else { ChainRef(step.to_be_bytes()) };
        let frame = match step % 6 {
            0 => BroadcastFrame::Holds { chain, block: 20, index: 4 },
            1 | 2 => BroadcastFrame::Fragment { chain, block: 9, index: 0, leaf: b"forged" },
            3 => BroadcastFrame::Holds { chain, block: 1, index: 0 },
            _ => BroadcastFrame::Wanted { chain, block: 20, wanted: 1 },
        };
        node.receive(at(now), RADIO, &encode(&frame), &mut store).unwrap();
        for (_, purpose, frame) in says(&mut node, &mut store, now) {
            asked += u64::from(purpose == Purpose::Request);
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
        asked <= u64::from(burst) + 600_000 / u64::from(each_ms),
        "{asked} requests in ten minutes"
    );
    // And the chain is taken all the same.
    let mut verified = 0;
    for place in 0..100 {
        let event =
            node.receive(at(600_000), RADIO, &leaf_frame(&speech, place), &mut store).unwrap();
        verified += u32::from(matches!(event, Event::Verified { .. }));
    }
    assert_eq!(verified, 20);
}

#[test]
fn a_forged_copy_of_a_leaf_silences_no_answer() {
    let authority = authority();
    let speech = sender(&authority).say(1, 1, &said(3)).unwrap();
    let (mut node, mut store, start) = archive(&authority, &speech);
    let wanted = encode(&BroadcastFrame::Wanted { chain: speech.reference(), block: 2, wanted: 1 });
    let forged = encode(&BroadcastFrame::Fragment {
        chain: speech.reference(),
        block: 2,
        index: 0,
        leaf: b"forged",
    });
    node.receive(at(start), RADIO, &wanted, &mut store).unwrap();
    node.receive(at(start), RADIO, &forged, &mut store).unwrap();
    let said = says(&mut node, &mut store, start + 5_000);
    assert_eq!(
        said.into_iter().map(|(.., frame)| frame).collect::<Vec<_>>(),
        [leaf_frame(&speech, 1)]
    );
    // A true copy does, once: who asks again has not heard it.
    let copy = leaf_frame(&speech, 1);
    for (round, answers) in [0, 1, 0].into_iter().enumerate() {
        let now = start + 10_000 * (round as u64 + 1);
        node.receive(at(now), RADIO, &wanted, &mut store).unwrap();
        node.receive(at(now), RADIO, &copy, &mut store).unwrap();
        assert_eq!(says(&mut node, &mut store, now + 5_000).len(), answers, "round {round}");
    }
}

#[test]
fn the_clock_may_jump() {
    let authority = authority();
    let speech = sender(&authority).say(1, 1, &said(3)).unwrap();
    let (mut node, mut store) = follower(&authority, &speech);
    let mut out = vec![0; MAX_BROADCAST_FRAME];
    for (step, ms) in
        [u64::MAX, 0, 1 << 41, 5, u64::MAX - 1, u64::MAX, 1_000].into_iter().enumerate()
    {
        let mut frames = 0;
        while node.poll(at(ms), &mut store, &mut out).unwrap().is_some() {
            frames += 1;
            assert!(frames < 100, "a jump is no endless flood");
        }
        if let Some(place) = step.checked_sub(4) {
            let event =
                node.receive(at(ms), RADIO, &leaf_frame(&speech, place), &mut store).unwrap();
            assert!(matches!(event, Event::Verified { .. }), "{event:?}");
        }
    }
    assert!(node.chains().all(|(.., is_complete)| is_complete));
}

#[test]
fn a_genuine_head_with_another_leaf_is_no_copy_of_it() {
    let authority = authority();
    let speech = sender(&authority).say(1, 1, &said(1)).unwrap();
    let (mut node, mut store, start) = archive(&authority, &speech);
    let wanted = encode(&BroadcastFrame::Wanted { chain: speech.reference(), block: 0, wanted: 1 });
    let whole = encode(&BroadcastFrame::Single { head: &speech.head, leaf: &speech.leaves[0].2 });
    let forged = encode(&BroadcastFrame::Single { head: &speech.head, leaf: b"forged" });
    node.receive(at(start), RADIO, &wanted, &mut store).unwrap();
    node.receive(at(start), RADIO, &forged, &mut store).unwrap();
    let answers = says(&mut node, &mut store, start + 5_000);
    assert_eq!(
        answers.into_iter().map(|(.., frame)| frame).collect::<Vec<_>>(),
        std::slice::from_ref(&whole)
    );
    node.receive(at(start + 10_000), RADIO, &wanted, &mut store).unwrap();
    node.receive(at(start + 10_000), RADIO, &whole, &mut store).unwrap();
    assert!(says(&mut node, &mut store, start + 15_000).is_empty());
}

#[test]
fn while_forged_heads_flood_a_node_it_goes_on_asking_for_the_genuine_one_and_then_it_ends() {
    let authority = authority();
    let sink = sender(&authority);
    let speech = sink.say(1, 1, &said(2)).unwrap();
    let (mut node, mut store) = node(&authority);
    node.receive(
        at(0),
        RADIO,
        &encode(&BroadcastFrame::Certificate(&sink.certificate)),
        &mut store,
    )
    .unwrap();
    let mut forged = speech.head.clone();
    let length = forged.len();
    let mut asked = Vec::new();
    let head = BroadcastFrame::Wanted { chain: speech.reference(), block: 0, wanted: 1 };
    for number in 0..36_000_u64 {
        forged[length - 8..].copy_from_slice(&number.to_be_bytes());
        node.receive(at(number * 100), RADIO, &encode(&BroadcastFrame::Head(&forged)), &mut store)
            .unwrap();
        if number == 10 {
            node.receive(at(number * 100), RADIO, &leaf_frame(&speech, 0), &mut store).unwrap();
        }
        let said = says(&mut node, &mut store, number * 100);
        asked.extend(
            said.into_iter().filter(|(.., frame)| *frame == encode(&head)).map(|(when, ..)| when),
        );
    }
    assert!(
        asked.windows(2).all(|pair| pair[1] - pair[0] <= 7_000),
        "each few seconds for an hour"
    );
    assert!(asked.last().is_some_and(|last| *last > 3_590_000));
    says(&mut node, &mut store, 20_000_000);
    assert_eq!(node.next_due(), None, "when the flood is over it ends too");
}

#[test]
fn hints_that_are_forged_all_the_time_cost_four_requests_and_then_one_a_silence() {
    let authority = authority();
    let speech = sender(&authority).say(1, 5, &said(20)).unwrap();
    let (mut node, mut store) = follower(&authority, &speech);
    let hint = encode(&BroadcastFrame::Holds { chain: speech.reference(), block: 4, index: 4 });
    let mut asked = Vec::new();
    for now in (0..600_000).step_by(100) {
        node.receive(at(now), RADIO, &hint, &mut store).unwrap();
        asked.extend(
            says(&mut node, &mut store, now)
                .into_iter()
                .filter(|said| said.1 == Purpose::Request)
                .map(|said| said.0),
        );
    }
    let quiet = u64::from(Timing::RADIO.quiet_ms);
    assert!(asked.windows(2).skip(3).all(|pair| pair[1] - pair[0] >= quiet), "{asked:?}");
    assert!(asked[3] < quiet, "somebody who says it may be there to answer: {asked:?}");
    assert!(asked.len() > 4, "and may be there later: {asked:?}");
}

#[test]
fn a_forged_hint_is_believed_for_a_few_requests_and_no_longer() {
    let authority = authority();
    let speech = sender(&authority).say(1, 5, &said(20)).unwrap();
    let (mut node, mut store) = follower(&authority, &speech);
    let hint = BroadcastFrame::Holds { chain: speech.reference(), block: 4, index: 4 };
    node.receive(at(0), RADIO, &encode(&hint), &mut store).unwrap();
    let mut asked = Vec::new();
    // What comes is a leaf a minute: a node that believed the hint would ask after each.
    for place in 0..15_u64 {
        let now = 60_000 * (place + 1);
        asked.push(
            says(&mut node, &mut store, now)
                .into_iter()
                .filter(|(_, purpose, _)| *purpose == Purpose::Request)
                .count(),
        );
        node.receive(at(now), RADIO, &leaf_frame(&speech, place as usize), &mut store).unwrap();
    }
    assert!(asked[0] >= 3, "{asked:?}");
    assert!(
        asked[1..].iter().all(|count| *count <= 2),
        "after half a minute of silence, and once more: {asked:?}"
    );
}
