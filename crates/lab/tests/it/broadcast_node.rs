//! Sends frames to one node. It must accept genuine frames in any order and with any loss, also
//! across reboots and failures of its store.
use std::collections::BTreeSet;

use crate::failing::Failing;
use crate::receiver::{
    RADIO, Receiver, at, authority, encode, follower, leaf_frame, node, refusal, sender,
    sent_until, settings, test_messages,
};
use moteseal_broadcast::recovery::{
    Event, Item, Node, Now, Purpose, RefusedBroadcast, Store, Timing,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{ChainNumber, MAX_LEAF, Revoked};
use moteseal_core::signature::Algorithm;
use moteseal_lab::radio::{MapStore, SignedChain, messages};

/// The reference implementation: a receiver that remembers every leaf.
#[derive(Default)]
struct Reference {
    received: BTreeSet<usize>,
    delivered: usize,
}

impl Reference {
    /// Receives a genuine leaf. Returns the leaves that can be delivered as a result.
    fn receive(&mut self, signed: &SignedChain, place: usize) -> Vec<usize> {
        self.received.insert(place);
        let mut delivered = Vec::new();
        while let Some(&(block, _, _)) = signed.leaves.get(self.delivered) {
            let of_block = || {
                signed
                    .leaves
                    .iter()
                    .enumerate()
                    .filter(|(_, leaf)| leaf.0 == block)
                    .map(|(place, _)| place)
            };
            if !of_block().all(|place| self.received.contains(&place)) {
                break;
            }
            delivered.extend(of_block());
            self.delivered += of_block().count();
        }
        delivered
    }
}

/// Returns all sequences that contain each of `fragments` fragments at most twice.
fn sequences(fragments: usize) -> Vec<Vec<usize>> {
    fn grow(sequence: &mut Vec<usize>, left: &mut [u8], all: &mut Vec<Vec<usize>>) {
        all.push(sequence.clone());
        for place in 0..left.len() {
            if left[place] > 0 {
                left[place] -= 1;
                sequence.push(place);
                grow(sequence, left, all);
                sequence.pop();
                left[place] += 1;
            }
        }
    }
    let mut all = Vec::new();
    grow(&mut Vec::new(), &mut vec![2; fragments], &mut all);
    all
}

#[test]
fn every_sequence_of_lost_repeated_and_reordered_leaves_is_delivered_as_by_the_reference() {
    let authority = authority();
    for (count, per_block) in
        [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2), (3, 3), (4, 3)]
    {
        let signed = sender(&authority).send(1, per_block, &test_messages(count)).unwrap();
        let (node, store) = follower(&authority, &signed);
        for sequence in sequences(count) {
            let (mut node, mut store, mut reference) =
                (node.clone(), store.clone(), Reference::default());
            for (step, &place) in sequence.iter().enumerate() {
                let event = node
                    .receive(at(step as u64), RADIO, &leaf_frame(&signed, place), &mut store)
                    .unwrap();
                let expected: Vec<Vec<u8>> = reference
                    .receive(&signed, place)
                    .into_iter()
                    .map(|place| test_messages(count)[place].clone())
                    .collect();
                let delivered: Vec<Vec<u8>> = match event {
                    Event::Verified { chain, first, last, .. } => {
                        messages(&mut store, chain, first, last)
                            .into_iter()
                            .map(|(.., message)| message)
                            .collect()
                    }
                    _ => Vec::new(),
                };
                assert_eq!(
                    delivered, expected,
                    "{count} messages, b = {per_block}: {sequence:?} at {step}"
                );
            }
        }
    }
}

#[test]
fn lost_leaves_are_requested_until_the_chain_is_complete() {
    let authority = authority();
    for (count, per_block) in [(1, 1), (3, 1), (4, 2), (4, 3)] {
        let signed = sender(&authority).send(1, per_block, &test_messages(count)).unwrap();
        let (node, store) = follower(&authority, &signed);
        for lost in 0..1_usize << count {
            let (mut node, mut store) = (node.clone(), store.clone());
            let (mut neighbour, mut archive) = (node.clone(), store.clone());
            for place in 0..count {
                neighbour.receive(at(0), RADIO, &leaf_frame(&signed, place), &mut archive).unwrap();
                if lost >> place & 1 == 0 {
                    node.receive(at(0), RADIO, &leaf_frame(&signed, place), &mut store).unwrap();
                }
            }
            let (mut out, mut now) = (vec![0; MAX_BROADCAST_FRAME], 0);
            while let Some(due) = node.next_due().into_iter().chain(neighbour.next_due()).min() {
                now = due.max(now);
                while let Some(transmit) = node.poll(at(now), &mut store, &mut out).unwrap() {
                    neighbour
                        .receive(at(now), RADIO, &out[..transmit.length], &mut archive)
                        .unwrap();
                }
                while let Some(transmit) = neighbour.poll(at(now), &mut archive, &mut out).unwrap()
                {
                    // Pass only answers to the node. If a leaf was lost, its relayed copy also
                    // counts as lost.
                    if transmit.purpose == Purpose::Answer {
                        node.receive(at(now), RADIO, &out[..transmit.length], &mut store).unwrap();
                    }
                }
            }
            assert!(
                node.chains().all(|(.., is_complete)| is_complete),
                "{count} messages, b = {per_block}, lost {lost:04b}"
            );
            assert!(now < 1_200_000, "nodes still send after {now} ms");
        }
    }
}

#[test]
fn a_head_of_an_expired_sender_is_refused() {
    let authority = authority();
    let sink = authority.certify_for("sink", Algorithm::Ed25519, 1, (100, 200)).unwrap();
    let (mut node, mut store) = node(&authority);
    let mut receive = |frame: &BroadcastFrame<'_>, unix| {
        refusal(node.receive(Now { ms: 0, unix }, RADIO, &encode(frame), &mut store).unwrap())
    };
    assert_eq!(receive(&BroadcastFrame::Certificate(&sink.certificate), Some(199)), "accepted");
    assert_eq!(
        receive(
            &BroadcastFrame::Head(&sink.send(1, 1, &test_messages(1)).unwrap().head),
            Some(199)
        ),
        "accepted"
    );
    assert_eq!(
        receive(
            &BroadcastFrame::Head(&sink.send(2, 1, &test_messages(1)).unwrap().head),
            Some(200)
        ),
        "Expired"
    );
    assert_eq!(
        receive(&BroadcastFrame::Head(&sink.send(2, 1, &test_messages(1)).unwrap().head), None),
        "accepted",
        "a node without a clock ignores the validity period"
    );
}

#[test]
fn a_revoked_sender_is_refused_and_still_is_after_a_reboot() {
    let authority = authority();
    let signed = sender(&authority).send(1, 1, &test_messages(3)).unwrap();
    let (mut node, mut store) = follower(&authority, &signed);
    node.receive(at(0), RADIO, &leaf_frame(&signed, 0), &mut store).unwrap();
    let revocation =
        encode(&BroadcastFrame::Revocation(&authority.revoke(Revoked::below(2)).unwrap()));
    assert_eq!(
        node.receive(at(1), RADIO, &revocation, &mut store).unwrap(),
        Event::Revoked { base: 0 }
    );
    assert_eq!(
        refusal(node.receive(at(2), RADIO, &leaf_frame(&signed, 1), &mut store).unwrap()),
        "UnknownChain"
    );
    assert!(!store.chains().contains(&signed.reference()), "the incomplete chain is dropped");
    // The node must relay only the revocation.
    let sent = sent_until(&mut node, &mut store, 60_000);
    let relayed: Vec<_> = sent
        .iter()
        .filter(|(_, purpose, _)| *purpose == Purpose::Relay)
        .map(|(.., frame)| frame)
        .collect();
    assert_eq!(relayed, [&revocation, &revocation], "once on each link");

    let mut rebooted: Receiver<'_> = Node::new(settings(&authority), 8, at(0));
    let certificate = encode(&BroadcastFrame::Certificate(&signed.certificate));
    assert_eq!(
        refusal(rebooted.receive(at(0), RADIO, &certificate, &mut store).unwrap()),
        "Revoked"
    );
    // The node must answer a revoked certificate with the revocation.
    let sent = sent_until(&mut rebooted, &mut store, 10_000);
    assert_eq!(sent.into_iter().map(|(.., frame)| frame).collect::<Vec<_>>(), [revocation]);
}

#[test]
fn one_revoked_serial_stops_its_sender_only_and_an_older_revocation_changes_nothing() {
    let authority = authority();
    let [one, two] = [("sink", 3), ("other", 4)].map(|(name, serial)| {
        let sender = authority.certify(name, Algorithm::Ed25519, serial).unwrap();
        sender.send(1, 1, &test_messages(3)).unwrap()
    });
    let (mut node, mut store) = follower(&authority, &one);
    let receive = |node: &mut Receiver<'_>, store: &mut MapStore, frame: &BroadcastFrame<'_>| {
        node.receive(at(0), RADIO, &encode(frame), store).unwrap()
    };
    for frame in [BroadcastFrame::Certificate(&two.certificate), BroadcastFrame::Head(&two.head)] {
        receive(&mut node, &mut store, &frame);
    }
    let revocation = |revoked: Revoked| authority.revoke(revoked).unwrap();
    let single = revocation(Revoked::NONE.and(3).unwrap());
    let both = revocation(Revoked::NONE.and(3).unwrap().and(8).unwrap());
    let event = receive(&mut node, &mut store, &BroadcastFrame::Revocation(&single));
    assert_eq!(event, Event::Revoked { base: 0 });
    let leaf = |signed: &SignedChain| leaf_frame(signed, 0);
    assert_eq!(
        refusal(node.receive(at(0), RADIO, &leaf(&one), &mut store).unwrap()),
        "UnknownChain"
    );
    let taken = node.receive(at(0), RADIO, &leaf(&two), &mut store).unwrap();
    assert!(matches!(taken, Event::Verified { .. }), "{taken:?}");

    let event = receive(&mut node, &mut store, &BroadcastFrame::Revocation(&both));
    assert_eq!(event, Event::Revoked { base: 0 });
    // A replayed revocation, and one that lost a serial, restore no certificate; also not after a
    // reboot.
    let lost = revocation(Revoked::below(3).and(8).unwrap());
    for mut node in [node, Node::new(settings(&authority), 8, at(0))] {
        for old in [&single, &lost] {
            let event = receive(&mut node, &mut store, &BroadcastFrame::Revocation(old));
            assert_eq!(refusal(event), "Superseded");
        }
        let event = receive(&mut node, &mut store, &BroadcastFrame::Certificate(&one.certificate));
        assert_eq!(refusal(event), "Revoked");
    }
    let raised = revocation(Revoked::below(9));
    let event = receive(
        &mut Node::new(settings(&authority), 9, at(0)),
        &mut store,
        &BroadcastFrame::Revocation(&raised),
    );
    assert_eq!(event, Event::Revoked { base: 0 });
}

#[test]
fn after_a_reboot_an_old_chain_is_refused_and_nothing_is_delivered_twice() {
    let authority = authority();
    let sink = sender(&authority);
    let (old, signed) =
        (sink.send(1, 1, &test_messages(1)).unwrap(), sink.send(2, 2, &test_messages(6)).unwrap());
    let (mut node, mut store) = follower(&authority, &signed);
    for place in 0..3 {
        node.receive(at(0), RADIO, &leaf_frame(&signed, place), &mut store).unwrap();
    }
    // The rebooted node resumes all chains from its store, or none.
    for resumes in [true, false] {
        let mut store = store.clone();
        let mut node: Receiver<'_> = Node::new(settings(&authority), 9, at(0));
        if resumes {
            let resumed = node
                .resume(at(0), signed.reference(), &mut store, &mut [0; MAX_LEAF])
                .unwrap()
                .unwrap();
            assert_eq!((resumed.verified, resumed.is_complete), (1, false));
        } else {
            node.receive(
                at(0),
                RADIO,
                &encode(&BroadcastFrame::Certificate(&signed.certificate)),
                &mut store,
            )
            .unwrap();
            let head = encode(&BroadcastFrame::Head(&signed.head));
            assert_eq!(
                refusal(node.receive(at(0), RADIO, &head, &mut store).unwrap()),
                "ChainGoesBack"
            );
        }
        assert_eq!(
            refusal(
                node.receive(at(0), RADIO, &encode(&BroadcastFrame::Head(&old.head)), &mut store)
                    .unwrap()
            ),
            "ChainGoesBack"
        );
        let events: Vec<Event> = (0..6)
            .map(|place| {
                node.receive(at(1), RADIO, &leaf_frame(&signed, place), &mut store).unwrap()
            })
            .collect();
        let verified: Vec<(u32, u32)> = events
            .iter()
            .filter_map(|event| {
                if let Event::Verified { first, last, .. } = event {
                    Some((*first, *last))
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(verified, if resumes { vec![(2, 2), (3, 3)] } else { vec![] });
    }
}

#[test]
fn a_chain_whose_head_was_stored_just_before_a_power_failure_continues_and_cannot_be_replayed() {
    // The head becomes durable before the chain's number. After a power failure in between, the
    // chain continues from the head alone, and the node then rejects an older chain.
    let authority = authority();
    let sink = sender(&authority);
    let (old, signed) =
        (sink.send(1, 1, &test_messages(2)).unwrap(), sink.send(2, 1, &test_messages(2)).unwrap());
    let (_, mut whole) = follower(&authority, &signed);
    let mut store = MapStore::default();
    for (item, bytes) in whole.clone().items() {
        store.keep(*item, bytes).unwrap();
    }
    assert_eq!(store.floor(sink.key_id()).unwrap(), None);
    let mut node: Receiver<'_> = Node::new(settings(&authority), 9, at(0));
    assert!(
        node.resume(at(0), signed.reference(), &mut store, &mut [0; MAX_LEAF]).unwrap().is_some()
    );
    assert_eq!(store.floor(sink.key_id()).unwrap(), whole.floor(sink.key_id()).unwrap());
    assert_eq!(
        refusal(
            node.receive(at(0), RADIO, &encode(&BroadcastFrame::Head(&old.head)), &mut store)
                .unwrap()
        ),
        "ChainGoesBack"
    );
}

#[test]
fn a_failure_of_the_store_at_any_call_loses_no_message_and_repeats_none() {
    let authority = authority();
    let signed = sender(&authority).send(1, 2, &test_messages(5)).unwrap();
    let mut frames = vec![
        encode(&BroadcastFrame::Certificate(&signed.certificate)),
        encode(&BroadcastFrame::Head(&signed.head)),
    ];
    frames.extend((0..5).map(|place| leaf_frame(&signed, place)));
    for fails_after in 0..24 {
        let mut store = Failing::<false>::default();
        let mut node: Receiver<'_> = Node::new(settings(&authority), 7, at(0));
        store.left = Some(fails_after);
        let mut verified = Vec::new();
        for frame in &frames {
            let event = node.receive(at(0), RADIO, frame, &mut store);
            // If a frame could not be stored, it arrives a second time.
            let event = event.or_else(|_| node.receive(at(0), RADIO, frame, &mut store)).unwrap();
            if let Event::Verified { first, last, .. } = event {
                verified.extend(first..=last);
            }
        }
        assert_eq!(verified, [1, 2, 3], "fails after {fails_after}");
        let got: Vec<Vec<u8>> = messages(&mut store.inner, signed.reference(), 1, 3)
            .into_iter()
            .map(|(.., message)| message)
            .collect();
        assert_eq!(got, test_messages(5));
    }
}

#[test]
fn a_senders_oldest_chain_is_replaced_by_its_newest_and_never_by_another_senders() {
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
    let chains: Vec<SignedChain> =
        (1..=4).map(|number| sink.send(number, 1, &test_messages(2)).unwrap()).collect();
    let mut receive = |head: &[u8], ms| {
        node.receive(at(ms), RADIO, &encode(&BroadcastFrame::Head(head)), &mut store).unwrap()
    };
    for signed in &chains[..3] {
        assert!(matches!(receive(&signed.head, 0), Event::Accepted { abandoned: None, .. }));
    }
    let of_other = other.send(1, 1, &test_messages(1)).unwrap();
    assert_eq!(receive(&of_other.head, 60_000), Event::Refused(RefusedBroadcast::NoRoom));
    // An incomplete chain is kept during half an hour of silence, because its sender may be out of
    // range for a while.
    assert_eq!(receive(&of_other.head, 1_900_000), Event::Refused(RefusedBroadcast::NoRoom));
    let event = receive(&chains[3].head, 1_900_000);
    assert!(
        matches!(event, Event::Accepted { abandoned: Some(old), .. } if old == chains[0].reference()),
        "{event:?}"
    );
    assert!(!store.chains().contains(&chains[0].reference()));
    // A chain of any sender may replace a complete chain.
    for place in 0..2 {
        node.receive(at(60_000), RADIO, &leaf_frame(&chains[1], place), &mut store).unwrap();
    }
    let event = node
        .receive(at(60_000), RADIO, &encode(&BroadcastFrame::Head(&of_other.head)), &mut store)
        .unwrap();
    assert!(matches!(event, Event::Accepted { abandoned: None, .. }), "{event:?}");
    assert!(
        store.chains().contains(&chains[1].reference()),
        "the store, an archive, keeps the complete chain"
    );
}

#[test]
fn a_chain_of_one_message_is_one_frame_and_is_verified_at_once() {
    let authority = authority();
    let signed = sender(&authority).send(1, 1, &test_messages(1)).unwrap();
    let (mut sender, mut kept) = node(&authority);
    kept.keep(Item::Leaf { chain: signed.reference(), block: 1, index: 0 }, &signed.leaves[0].2)
        .unwrap();
    let event = sender.originate(at(0), &signed.certificate, &signed.head, &mut kept).unwrap();
    assert!(matches!(event, Event::Accepted { .. }), "{event:?}");
    sender.release(at(0), signed.reference(), 1, 0).unwrap();
    let sent = sent_until(&mut sender, &mut kept, 0);
    assert_eq!(sent.len(), 2);
    assert!(matches!(BroadcastFrame::decode(&sent[0].2), Ok(BroadcastFrame::Certificate(_))));
    assert!(matches!(BroadcastFrame::decode(&sent[1].2), Ok(BroadcastFrame::Single { .. })));
    let (mut node, mut store) = node(&authority);
    node.receive(at(0), RADIO, &sent[0].2, &mut store).unwrap();
    let event = node.receive(at(0), RADIO, &sent[1].2, &mut store).unwrap();
    assert!(matches!(event, Event::Verified { first: 1, last: 1, is_last: true, .. }), "{event:?}");
    assert_eq!(node.receive(at(0), RADIO, &sent[1].2, &mut store).unwrap(), Event::Nothing);
    let relayed: Vec<Vec<u8>> =
        sent_until(&mut node, &mut store, 5_000).into_iter().map(|(.., frame)| frame).collect();
    assert_eq!(
        relayed.iter().filter(|frame| **frame == sent[1].2).count(),
        2,
        "once on each link, as one frame"
    );
    assert_eq!(relayed.len(), 4, "and the certificate, once on each link");
}

#[test]
fn chains_whose_leaves_never_arrive_are_replaced_after_a_timeout() {
    let authority = authority();
    let (silent, other) =
        (sender(&authority), authority.certify("other", Algorithm::Ed25519, 2).unwrap());
    let (mut node, mut store) = node(&authority);
    for sender in [&silent, &other] {
        node.receive(
            at(0),
            RADIO,
            &encode(&BroadcastFrame::Certificate(&sender.certificate)),
            &mut store,
        )
        .unwrap();
    }
    for number in 1..=3 {
        let head = silent.send(number, 1, &test_messages(2)).unwrap().head;
        node.receive(at(0), RADIO, &encode(&BroadcastFrame::Head(&head)), &mut store).unwrap();
    }
    let head = encode(&BroadcastFrame::Head(&other.send(1, 1, &test_messages(1)).unwrap().head));
    let patience = 4 * u64::from(Timing::RADIO.advertise_ms.1);
    assert_eq!(
        node.receive(at(patience), RADIO, &head, &mut store).unwrap(),
        Event::Refused(RefusedBroadcast::NoRoom)
    );
    let event = node.receive(at(patience + 1), RADIO, &head, &mut store).unwrap();
    assert!(matches!(event, Event::Accepted { abandoned: Some(_), .. }), "{event:?}");
}

#[test]
fn a_stolen_key_can_exhaust_its_own_chain_numbers_but_not_those_of_the_senders_next_key() {
    let authority = authority();
    let stolen = sender(&authority);
    let next = authority
        .certify_key("sink", "its next key", Algorithm::Ed25519, 2, (0, u64::MAX))
        .unwrap();
    assert_eq!(stolen.id, next.id);
    let (mut node, mut store) = node(&authority);
    // Both certificates remain valid, in whatever order and however often they arrive.
    for sender in [&next, &stolen, &next, &stolen] {
        node.receive(
            at(0),
            RADIO,
            &encode(&BroadcastFrame::Certificate(&sender.certificate)),
            &mut store,
        )
        .unwrap();
    }
    assert_eq!(node.checks().certificates, 2);
    let mut receive = |signed: &SignedChain| {
        node.receive(at(60_000), RADIO, &encode(&BroadcastFrame::Head(&signed.head)), &mut store)
            .unwrap()
    };
    assert!(matches!(
        receive(&stolen.send(u64::MAX, 1, &test_messages(1)).unwrap()),
        Event::Accepted { .. }
    ));
    assert_eq!(
        receive(&stolen.send(7, 1, &test_messages(1)).unwrap()),
        Event::Refused(RefusedBroadcast::ChainGoesBack)
    );
    assert!(matches!(
        receive(&next.send(1, 1, &test_messages(1)).unwrap()),
        Event::Accepted { .. }
    ));
    // The store has a floor for each key, so these values also apply after a reboot.
    assert_eq!(store.floor(stolen.key_id()).unwrap(), Some(ChainNumber(u64::MAX)));
    assert_eq!(store.floor(next.key_id()).unwrap(), Some(ChainNumber(1)));
}
