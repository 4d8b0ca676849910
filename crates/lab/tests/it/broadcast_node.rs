//! One node, frame by frame: what is genuine is taken in every order and with every loss, over
//! reboots and failing stores.
use std::collections::BTreeSet;

use crate::receiver::{
    RADIO, Receiver, at, authority, encode, follower, leaf_frame, node, refusal, said, says,
    sender, settings,
};
use moteseal_broadcast::recovery::{
    Event, Item, Node, Now, Purpose, RefusedBroadcast, Store, Timing,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{ChainNumber, ChainRef, KeyId, MAX_LEAF};
use moteseal_core::signature::Algorithm;
use moteseal_lab::radio::{MapStore, SignedChain, messages};

/// What a receiver with memory for everything knows: the slow reference.
#[derive(Default)]
struct Reference {
    heard: BTreeSet<usize>,
    delivered: usize,
}

impl Reference {
    /// Hears a genuine leaf; which leaves are delivered by that.
    fn hear(&mut self, speech: &SignedChain, place: usize) -> Vec<usize> {
        self.heard.insert(place);
        let mut news = Vec::new();
        while let Some(&(block, _, _)) = speech.leaves.get(self.delivered) {
            let of_block = || {
                speech
                    .leaves
                    .iter()
                    .enumerate()
                    .filter(|(_, leaf)| leaf.0 == block)
                    .map(|(place, _)| place)
            };
            if !of_block().all(|place| self.heard.contains(&place)) {
                break;
            }
            news.extend(of_block());
            self.delivered += of_block().count();
        }
        news
    }
}

/// All sequences in which each of `fragments` comes at most twice.
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
fn whatever_of_a_small_chain_is_lost_repeated_or_out_of_order_what_is_delivered_is_what_the_reference_delivers()
 {
    let authority = authority();
    for (count, per_block) in
        [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2), (3, 3), (4, 3)]
    {
        let speech = sender(&authority).say(1, per_block, &said(count)).unwrap();
        let (node, store) = follower(&authority, &speech);
        for sequence in sequences(count) {
            let (mut node, mut store, mut reference) =
                (node.clone(), store.clone(), Reference::default());
            for (step, &place) in sequence.iter().enumerate() {
                let event = node
                    .receive(at(step as u64), RADIO, &leaf_frame(&speech, place), &mut store)
                    .unwrap();
                let expected: Vec<Vec<u8>> = reference
                    .hear(&speech, place)
                    .into_iter()
                    .map(|place| said(count)[place].clone())
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
fn whatever_of_a_small_chain_was_lost_is_asked_for_until_it_is_whole() {
    let authority = authority();
    for (count, per_block) in [(1, 1), (3, 1), (4, 2), (4, 3)] {
        let speech = sender(&authority).say(1, per_block, &said(count)).unwrap();
        let (node, store) = follower(&authority, &speech);
        for lost in 0..1_usize << count {
            let (mut node, mut store) = (node.clone(), store.clone());
            let (mut neighbour, mut archive) = (node.clone(), store.clone());
            for place in 0..count {
                neighbour.receive(at(0), RADIO, &leaf_frame(&speech, place), &mut archive).unwrap();
                if lost >> place & 1 == 0 {
                    node.receive(at(0), RADIO, &leaf_frame(&speech, place), &mut store).unwrap();
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
                    // Its relays of what was lost are lost again.
                    if transmit.purpose == Purpose::Answer {
                        node.receive(at(now), RADIO, &out[..transmit.length], &mut store).unwrap();
                    }
                }
            }
            assert!(
                node.chains().all(|(.., is_complete)| is_complete),
                "{count} messages, b = {per_block}, lost {lost:04b}"
            );
            assert!(now < 1_200_000, "nodes are silent after {now} ms");
        }
    }
}

#[test]
fn a_sender_whose_time_is_over_says_no_more_chains() {
    let authority = authority();
    let sink = authority.certify_for("sink", Algorithm::Ed25519, 1, (100, 200)).unwrap();
    let (mut node, mut store) = node(&authority);
    let mut hear = |frame: &BroadcastFrame<'_>, unix| {
        refusal(node.receive(Now { ms: 0, unix }, RADIO, &encode(frame), &mut store).unwrap())
    };
    assert_eq!(hear(&BroadcastFrame::Certificate(&sink.certificate), Some(199)), "taken");
    assert_eq!(
        hear(&BroadcastFrame::Head(&sink.say(1, 1, &said(1)).unwrap().head), Some(199)),
        "taken"
    );
    assert_eq!(
        hear(&BroadcastFrame::Head(&sink.say(2, 1, &said(1)).unwrap().head), Some(200)),
        "Expired"
    );
    assert_eq!(
        hear(&BroadcastFrame::Head(&sink.say(2, 1, &said(1)).unwrap().head), None),
        "taken",
        "without a clock dates do not count"
    );
}

#[test]
fn a_revoked_sender_is_followed_no_longer_and_not_after_a_reboot_either() {
    let authority = authority();
    let speech = sender(&authority).say(1, 1, &said(3)).unwrap();
    let (mut node, mut store) = follower(&authority, &speech);
    node.receive(at(0), RADIO, &leaf_frame(&speech, 0), &mut store).unwrap();
    let revocation = encode(&BroadcastFrame::Revocation(&authority.revoke(2).unwrap()));
    assert_eq!(
        node.receive(at(1), RADIO, &revocation, &mut store).unwrap(),
        Event::Revoked { base: 0, minimum: 2 }
    );
    assert_eq!(
        refusal(node.receive(at(2), RADIO, &leaf_frame(&speech, 1), &mut store).unwrap()),
        "UnknownChain"
    );
    assert!(!store.chains().contains(&speech.reference()), "what was under way is forgotten");
    // The revocation is passed on, and nothing else.
    let said = says(&mut node, &mut store, 60_000);
    let relayed: Vec<_> = said
        .iter()
        .filter(|(_, purpose, _)| *purpose == Purpose::Relay)
        .map(|(.., frame)| frame)
        .collect();
    assert_eq!(relayed, [&revocation, &revocation], "once on each link");

    let mut rebooted: Receiver<'_> = Node::new(settings(&authority), 8, at(0), &mut store).unwrap();
    let certificate = encode(&BroadcastFrame::Certificate(&speech.certificate));
    assert_eq!(
        refusal(rebooted.receive(at(0), RADIO, &certificate, &mut store).unwrap()),
        "Revoked"
    );
    // Whoever presents what was revoked is told.
    let said = says(&mut rebooted, &mut store, 10_000);
    assert_eq!(said.into_iter().map(|(.., frame)| frame).collect::<Vec<_>>(), [revocation]);
}

#[test]
fn after_a_reboot_an_old_chain_is_refused_and_nothing_is_delivered_twice() {
    let authority = authority();
    let sink = sender(&authority);
    let (old, speech) = (sink.say(1, 1, &said(1)).unwrap(), sink.say(2, 2, &said(6)).unwrap());
    let (mut node, mut store) = follower(&authority, &speech);
    for place in 0..3 {
        node.receive(at(0), RADIO, &leaf_frame(&speech, place), &mut store).unwrap();
    }
    // With its chains, and with none of them.
    for resumes in [true, false] {
        let mut store = store.clone();
        let mut node: Receiver<'_> = Node::new(settings(&authority), 9, at(0), &mut store).unwrap();
        if resumes {
            let resumed = node
                .resume(at(0), speech.reference(), &mut store, &mut [0; MAX_LEAF])
                .unwrap()
                .unwrap();
            assert_eq!((resumed.verified, resumed.is_complete), (1, false));
        } else {
            node.receive(
                at(0),
                RADIO,
                &encode(&BroadcastFrame::Certificate(&speech.certificate)),
                &mut store,
            )
            .unwrap();
            let head = encode(&BroadcastFrame::Head(&speech.head));
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
                node.receive(at(1), RADIO, &leaf_frame(&speech, place), &mut store).unwrap()
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
fn a_chain_that_was_kept_just_before_power_was_lost_is_neither_lost_nor_replayed() {
    // The head is durable before the number is: whatever of both is there, the chain goes on, and
    // an older one is refused once it does.
    let authority = authority();
    let sink = sender(&authority);
    let (old, speech) = (sink.say(1, 1, &said(2)).unwrap(), sink.say(2, 1, &said(2)).unwrap());
    let (_, mut whole) = follower(&authority, &speech);
    let mut store = MapStore::default();
    for (item, bytes) in whole.clone().items() {
        store.keep(*item, bytes).unwrap();
    }
    assert_eq!(store.floor(sink.key_id()).unwrap(), None);
    let mut node: Receiver<'_> = Node::new(settings(&authority), 9, at(0), &mut store).unwrap();
    assert!(
        node.resume(at(0), speech.reference(), &mut store, &mut [0; MAX_LEAF]).unwrap().is_some()
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

/// A store that fails now and then.
#[derive(Default)]
struct Failing {
    inner: MapStore,
    /// Calls that succeed before one fails.
    left: Option<usize>,
}

impl Failing {
    fn turn(&mut self) -> Result<(), &'static str> {
        match &mut self.left {
            Some(0) => {
                self.left = None;
                Err("no power")
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Store for Failing {
    type Error = &'static str;

    fn keep(&mut self, item: Item, bytes: &[u8]) -> Result<(), Self::Error> {
        self.turn()?;
        let Ok(()) = self.inner.keep(item, bytes);
        Ok(())
    }

    fn fetch<'b>(
        &mut self,
        item: Item,
        out: &'b mut [u8],
    ) -> Result<Option<&'b [u8]>, Self::Error> {
        self.turn()?;
        let Ok(found) = self.inner.fetch(item, out);
        Ok(found)
    }

    fn is_kept(&mut self, item: Item, bytes: &[u8]) -> Result<bool, Self::Error> {
        self.turn()?;
        let Ok(is_kept) = self.inner.is_kept(item, bytes);
        Ok(is_kept)
    }

    fn forget_block(&mut self, chain: ChainRef, block: u32) -> Result<(), Self::Error> {
        self.turn()?;
        let Ok(()) = self.inner.forget_block(chain, block);
        Ok(())
    }

    fn forget(&mut self, chain: ChainRef) -> Result<(), Self::Error> {
        self.turn()?;
        let Ok(()) = self.inner.forget(chain);
        Ok(())
    }

    fn retire(&mut self, chain: ChainRef) -> Result<(), Self::Error> {
        self.turn()?;
        let Ok(()) = self.inner.retire(chain);
        Ok(())
    }

    fn raise(&mut self, key: KeyId, number: ChainNumber) -> Result<(), Self::Error> {
        self.turn()?;
        let Ok(()) = self.inner.raise(key, number);
        Ok(())
    }

    fn floor(&mut self, key: KeyId) -> Result<Option<ChainNumber>, Self::Error> {
        self.turn()?;
        let Ok(floor) = self.inner.floor(key);
        Ok(floor)
    }

    fn raise_minimum(&mut self, base: u8, minimum: u64) -> Result<(), Self::Error> {
        self.turn()?;
        let Ok(()) = self.inner.raise_minimum(base, minimum);
        Ok(())
    }

    fn minimum(&mut self, base: u8) -> Result<u64, Self::Error> {
        self.turn()?;
        let Ok(minimum) = self.inner.minimum(base);
        Ok(minimum)
    }
}

#[test]
fn a_store_that_fails_at_any_moment_costs_no_message_and_repeats_none() {
    let authority = authority();
    let speech = sender(&authority).say(1, 2, &said(5)).unwrap();
    let mut frames = vec![
        encode(&BroadcastFrame::Certificate(&speech.certificate)),
        encode(&BroadcastFrame::Head(&speech.head)),
    ];
    frames.extend((0..5).map(|place| leaf_frame(&speech, place)));
    for fails_after in 0..24 {
        let mut store = Failing::default();
        let mut node: Receiver<'_> = Node::new(settings(&authority), 7, at(0), &mut store).unwrap();
        store.left = Some(fails_after);
        let mut verified = Vec::new();
        for frame in &frames {
            let event = node.receive(at(0), RADIO, frame, &mut store);
            // What was not taken comes again.
            let event = event.or_else(|_| node.receive(at(0), RADIO, frame, &mut store)).unwrap();
            if let Event::Verified { first, last, .. } = event {
                verified.extend(first..=last);
            }
        }
        assert_eq!(verified, [1, 2, 3], "fails after {fails_after}");
        let got: Vec<Vec<u8>> = messages(&mut store.inner, speech.reference(), 1, 3)
            .into_iter()
            .map(|(.., message)| message)
            .collect();
        assert_eq!(got, said(5));
    }
}

#[test]
fn a_senders_oldest_chain_gives_way_to_its_newest_and_never_to_another_senders() {
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
        (1..=4).map(|number| sink.say(number, 1, &said(2)).unwrap()).collect();
    let mut hear = |head: &[u8], ms| {
        node.receive(at(ms), RADIO, &encode(&BroadcastFrame::Head(head)), &mut store).unwrap()
    };
    for speech in &chains[..3] {
        assert!(matches!(hear(&speech.head, 0), Event::Accepted { abandoned: None, .. }));
    }
    let of_other = other.say(1, 1, &said(1)).unwrap();
    assert_eq!(hear(&of_other.head, 60_000), Event::Refused(RefusedBroadcast::NoRoom));
    // Half an hour of silence is what a sender that comes and goes may make.
    assert_eq!(hear(&of_other.head, 1_900_000), Event::Refused(RefusedBroadcast::NoRoom));
    let event = hear(&chains[3].head, 1_900_000);
    assert!(
        matches!(event, Event::Accepted { abandoned: Some(old), .. } if old == chains[0].reference()),
        "{event:?}"
    );
    assert!(!store.chains().contains(&chains[0].reference()));
    // One that is complete gives way to anybody's.
    for place in 0..2 {
        node.receive(at(60_000), RADIO, &leaf_frame(&chains[1], place), &mut store).unwrap();
    }
    let event = node
        .receive(at(60_000), RADIO, &encode(&BroadcastFrame::Head(&of_other.head)), &mut store)
        .unwrap();
    assert!(matches!(event, Event::Accepted { abandoned: None, .. }), "{event:?}");
    assert!(store.chains().contains(&chains[1].reference()), "an archive keeps it");
}

#[test]
fn a_chain_of_one_travels_whole_and_arrives_at_once() {
    let authority = authority();
    let speech = sender(&authority).say(1, 1, &said(1)).unwrap();
    let (mut sender, mut kept) = node(&authority);
    kept.keep(Item::Leaf { chain: speech.reference(), block: 1, index: 0 }, &speech.leaves[0].2)
        .unwrap();
    let event = sender.originate(at(0), &speech.certificate, &speech.head, &mut kept).unwrap();
    assert!(matches!(event, Event::Accepted { .. }), "{event:?}");
    sender.release(at(0), speech.reference(), 1, 0).unwrap();
    let said = says(&mut sender, &mut kept, 0);
    assert_eq!(said.len(), 2);
    assert!(matches!(BroadcastFrame::decode(&said[0].2), Ok(BroadcastFrame::Certificate(_))));
    assert!(matches!(BroadcastFrame::decode(&said[1].2), Ok(BroadcastFrame::Single { .. })));
    let (mut node, mut store) = node(&authority);
    node.receive(at(0), RADIO, &said[0].2, &mut store).unwrap();
    let event = node.receive(at(0), RADIO, &said[1].2, &mut store).unwrap();
    assert!(matches!(event, Event::Verified { first: 1, last: 1, is_last: true, .. }), "{event:?}");
    assert_eq!(node.receive(at(0), RADIO, &said[1].2, &mut store).unwrap(), Event::Nothing);
    let relayed: Vec<Vec<u8>> =
        says(&mut node, &mut store, 5_000).into_iter().map(|(.., frame)| frame).collect();
    assert_eq!(
        relayed.iter().filter(|frame| **frame == said[1].2).count(),
        2,
        "once on each link, whole"
    );
    assert_eq!(relayed.len(), 4, "and the certificate");
}

#[test]
fn chains_whose_leaves_never_come_do_not_hold_all_places_for_ever() {
    let authority = authority();
    let (thief, other) =
        (sender(&authority), authority.certify("other", Algorithm::Ed25519, 2).unwrap());
    let (mut node, mut store) = node(&authority);
    for sender in [&thief, &other] {
        node.receive(
            at(0),
            RADIO,
            &encode(&BroadcastFrame::Certificate(&sender.certificate)),
            &mut store,
        )
        .unwrap();
    }
    for number in 1..=3 {
        let head = thief.say(number, 1, &said(2)).unwrap().head;
        node.receive(at(0), RADIO, &encode(&BroadcastFrame::Head(&head)), &mut store).unwrap();
    }
    let head = encode(&BroadcastFrame::Head(&other.say(1, 1, &said(1)).unwrap().head));
    let patience = 4 * u64::from(Timing::RADIO.advertise_ms.1);
    assert_eq!(
        node.receive(at(patience), RADIO, &head, &mut store).unwrap(),
        Event::Refused(RefusedBroadcast::NoRoom)
    );
    let event = node.receive(at(patience + 1), RADIO, &head, &mut store).unwrap();
    assert!(matches!(event, Event::Accepted { abandoned: Some(_), .. }), "{event:?}");
}

#[test]
fn who_has_stolen_a_key_silences_that_key_and_not_the_sender() {
    let authority = authority();
    let stolen = sender(&authority);
    let next = authority
        .certify_key("sink", "its next key", Algorithm::Ed25519, 2, (0, u64::MAX))
        .unwrap();
    assert_eq!(stolen.id, next.id);
    let (mut node, mut store) = node(&authority);
    // Both certificates stand side by side, in whatever order and however often they come.
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
    let mut hear = |speech: &SignedChain| {
        node.receive(at(60_000), RADIO, &encode(&BroadcastFrame::Head(&speech.head)), &mut store)
            .unwrap()
    };
    assert!(matches!(hear(&stolen.say(u64::MAX, 1, &said(1)).unwrap()), Event::Accepted { .. }));
    assert_eq!(
        hear(&stolen.say(7, 1, &said(1)).unwrap()),
        Event::Refused(RefusedBroadcast::ChainGoesBack)
    );
    assert!(matches!(hear(&next.say(1, 1, &said(1)).unwrap()), Event::Accepted { .. }));
    // And so it stays after a reboot.
    assert_eq!(store.floor(stolen.key_id()).unwrap(), Some(ChainNumber(u64::MAX)));
    assert_eq!(store.floor(next.key_id()).unwrap(), Some(ChainNumber(1)));
}
