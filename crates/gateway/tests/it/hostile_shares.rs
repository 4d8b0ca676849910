//! Frames and query schedules that no honest child or querier sends. An aggregator rejects each of
//! them with the name of an error, they do not affect other children, and the memory that they use
//! is bounded.

use std::time::Duration;

use crate::summing::{EPOCH_MS, T, World, plan, secret};
use hmac::{Hmac, KeyInit, Mac};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{ChainId, Head, Kind, SingleDraft, Window};
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::participation::Participation;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_gateway::sum::{Aggregator, FrameOutcome, Member, OPEN_EPOCHS, Refused, kept_epochs};
use moteseal_sum::query::QueryId;
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::{Explain, close_share};
use moteseal_verify::aggregation::{QUERIER, gateway_id};

const END: u64 = (T + 1) * EPOCH_MS;
const GATEWAYS: [(&str, &str); 3] = [("root", QUERIER), ("left", "root"), ("right", "root")];
const DEVICES: [&str; 8] = ["root", "left", "left", "left", "right", "right", "right", "right"];

fn world() -> World {
    World::asked(&GATEWAYS, &DEVICES, 3)
}

fn sources_below(world: &World, gateway: &str) -> Vec<u32> {
    (0..8).filter(|position| world.tree.gateway_of(*position) == Some(gateway)).collect()
}

/// Returns the encoding of a set of positions.
fn set(positions: &[u32]) -> Vec<u8> {
    let mut out = vec![0; 16];
    let words = [positions.iter().fold(0, |word, position| word | 1 << position)];
    let length = Participation::encode(&words, &mut out).unwrap();
    out.truncate(length);
    out
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    Hmac::<sha2::Sha256>::new_from_slice(key)
        .unwrap()
        .chain_update(message)
        .finalize()
        .into_bytes()
        .into()
}

/// Returns the item with a valid tag, made with the child's key.
fn tagged(world: &World, aggregator: &str, child: DeviceId, item: &[u8]) -> Vec<u8> {
    let tag = hmac(&hmac(&world.secret_at(aggregator, child), b"moteseal/1/link/up"), item);
    [item, &tag[..16]].concat()
}

/// Returns whether spec/errors.md lists the name.
fn is_listed(name: &str) -> bool {
    include_str!("../../../../spec/errors.md").contains(&format!("`{name}`"))
}

#[test]
fn names_the_reason_why_a_childs_frame_is_rejected_and_changes_nothing() {
    let mut world = world();
    let (left, right) = (sources_below(&world, "left"), sources_below(&world, "right"));
    let own: Vec<u32> = sources_below(&world, "root");
    // The key groups of a set of positions. A frame needs one record for each slot in each key
    // group.
    let groups = |positions: &[u32]| {
        positions
            .iter()
            .map(|position| position / 3)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    let records = |count: usize| vec![Psr::ZERO; count];
    let all = groups(&left) * 2;
    let child = gateway_id("left");
    let share_frame = |world: &World, epoch, positions: &[u8], psrs: &[Psr]| {
        world.frame("root", child, epoch, positions, psrs)
    };
    let mut other = world.query;
    other.0[0] ^= 1;
    let of_other = {
        let mut out = vec![0; MAX_FRAME];
        close_share(
            other.reference(),
            T,
            &set(&left),
            &records(all),
            &world.key_at("root", child),
            &mut out,
        )
        .unwrap()
        .to_vec()
    };
    let raw = |first: &[u8]| {
        let mut item = vec![0x85, 4, 0x44];
        item.extend(world.query.reference().to_be_bytes());
        item.extend([0x1a, 0, 1, 0x86, 0xa0]);
        let positions = set(&left);
        item.push(0x40 | u8::try_from(positions.len()).unwrap());
        item.extend(positions);
        item.push(0x80 | u8::try_from(all).unwrap());
        for at in 0..all {
            let record = if at == 1 { first.to_vec() } else { vec![0; 32] };
            item.extend([0x58, u8::try_from(record.len()).unwrap()]);
            item.extend(record);
        }
        tagged(&world, "root", child, &item)
    };
    let cases = vec![
        (child, share_frame(&world, T + 3, &set(&left), &records(all)), "WrongEpoch"),
        (child, share_frame(&world, u64::MAX, &set(&left), &records(all)), "WrongEpoch"),
        (child, share_frame(&world, T - 1, &set(&left), &records(all)), "EpochOver"),
        (child, share_frame(&world, 0, &set(&left), &records(all)), "EpochOver"),
        (child, of_other, "WrongQuery"),
        (
            child,
            share_frame(
                &world,
                T,
                &set(&[left[0], right[0]]),
                &records(2 * groups(&[left[0], right[0]])),
            ),
            "NotBeneath",
        ),
        (child, share_frame(&world, T, &set(&own), &records(2)), "NotBeneath"),
        (child, share_frame(&world, T, &[0x10, 0], &records(2)), "UnknownPosition"),
        (child, share_frame(&world, T, &[0x80, 0], &records(2)), "MalformedParticipation"),
        (child, share_frame(&world, T, &set(&left), &records(all - 1)), "WrongPsrCount"),
        (child, share_frame(&world, T, &set(&left), &records(all + 1)), "WrongPsrCount"),
        (child, share_frame(&world, T, &set(&left), &records(1500)), "WrongPsrCount"),
        (child, share_frame(&world, T, &set(&left), &[]), "WrongPsrCount"),
        (child, share_frame(&world, T, &[], &records(1)), "WrongPsrCount"),
        (child, raw(&[0xff; 32]), "NotCanonical"),
        (child, raw(&[0; 31]), "TruncatedPsr"),
        (child, raw(&[0; 33]), "TruncatedPsr"),
        (child, tagged(&world, "root", child, &[0x81, 9]), "Malformed"),
        (
            child,
            world.frame("root", gateway_id("right"), T, &set(&left), &records(all)),
            "NotAuthentic",
        ),
        (gateway_id("right"), share_frame(&world, T, &set(&left), &records(all)), "NotAuthentic"),
        (gateway_id("nobody"), share_frame(&world, T, &set(&left), &records(all)), "UnknownChild"),
        (world.device(left[0]), share_frame(&world, T, &set(&left), &records(all)), "UnknownChild"),
        (world.device(own[0]), vec![0; 4096], "FrameTooLong"),
        (child, vec![0; MAX_FRAME + 1], "FrameTooLong"),
        (child, vec![0; 3], "Malformed"),
    ];
    // The same bytes with a valid record are accepted, so each of the other frames was rejected
    // only because of its own defect.
    let mut root = world.gateway("root", 0);
    root.receive_schedule(&world.schedule(1, &[world.posed()]), T * EPOCH_MS, |_| Ok(())).unwrap();
    assert_eq!(root.receive(child, &raw(&[0; 32]), END), Ok(FrameOutcome::Taken));

    let root = world.gateways.get_mut("root").unwrap();
    root.tick(END);
    for (from, frame, name) in &cases {
        let refused = root.receive(*from, frame, END).unwrap_err();
        assert_eq!(refused.name(), *name);
        assert!(is_listed(name), "{name} is not in spec/errors.md");
        assert!(refused.named().to_string().starts_with(name), "{refused}");
        let output = root.take_outgoing();
        assert!(
            output.up.is_empty()
                && output.down.is_empty()
                && output.ended.iter().all(|ended| ended.epoch < T),
            "{name}"
        );
        assert_eq!(root.held_bytes(), 0, "{name}");
    }
    // The sum of the epoch is the same as without the rejected frames.
    for position in 0..8 {
        assert_eq!(world.send_reading(position, T, 7, END), Ok(FrameOutcome::Taken));
    }
    let (reached, _) = world.forward_all(END);
    let share = world.opened("root", T, &reached[0].1);
    assert_eq!(world.sums(T, &[share]), Ok(vec![8, 56]));
}

#[test]
fn rejects_a_second_share_of_an_epoch_that_differs_and_keeps_the_first() {
    let mut world = world();
    for position in 0..8 {
        assert_eq!(world.send_reading(position, T, 7, END), Ok(FrameOutcome::Taken));
        assert_eq!(world.send_reading(position, T, 8, END), Err(Refused::Contradiction));
        assert_eq!(world.send_reading(position, T, 7, END), Ok(FrameOutcome::Repeated));
    }
    let (reached, _) = world.forward_all(END);
    let share = world.opened("root", T, &reached[0].1);
    assert_eq!(world.sums(T, &[share]), Ok(vec![8, 56]));
    assert_eq!(world.send_reading(0, T, 8, END), Err(Refused::Contradiction));
    assert!(world.gateways.values_mut().all(|gateway| gateway.take_outgoing().up.is_empty()));
}

#[test]
fn rejects_every_altered_byte_and_every_truncation_of_a_frame() {
    let mut world = world();
    let (frame, device) = (world.reading(0, T, 5), world.device(0));
    let aggregator = world.tree.gateway_of(0).unwrap().to_owned();
    let gateway = world.gateways.get_mut(&aggregator).unwrap();
    for at in 0..frame.len() {
        for flip in [1, 0x80, 0xff] {
            let mut altered = frame.clone();
            altered[at] ^= flip;
            assert_eq!(gateway.receive(device, &altered, END).unwrap_err().name(), "NotAuthentic");
        }
        assert!(gateway.receive(device, &frame[..at], END).is_err());
    }
    assert_eq!((gateway.held_bytes(), gateway.take_outgoing().up.len()), (0, 0));
    assert_eq!(gateway.receive(device, &frame, END), Ok(FrameOutcome::Taken));
}

#[test]
fn an_altered_item_with_a_valid_tag_is_accepted_or_rejected_with_a_listed_name() {
    let mut world = world();
    let position = sources_below(&world, "right")[0];
    let (frame, device) = (world.reading(position, T, 5), world.device(position));
    let item = &frame[..frame.len() - 16];
    for at in 0..item.len() {
        for flip in [1, 2, 0x20, 0x40, 0x80, 0xff] {
            let mut altered = item.to_vec();
            altered[at] ^= flip;
            let frame = tagged(&world, "right", device, &altered);
            let mut gateway = world.gateway("right", 0);
            gateway
                .receive_schedule(&world.schedule(1, &[world.posed()]), T * EPOCH_MS, |_| Ok(()))
                .unwrap();
            if let Err(refused) = gateway.receive(device, &frame, END) {
                assert!(is_listed(refused.name()), "{}", refused.name());
                assert_eq!(gateway.held_bytes(), 0);
            }
        }
    }
}

#[test]
fn a_flood_of_a_childs_frames_takes_bounded_memory() {
    let mut world = world();
    let position = sources_below(&world, "right")[0];
    let device = world.device(position);
    let mut most = 0;
    for round in 0..400_u64 {
        let now = END + round * EPOCH_MS / 8;
        let current = now / EPOCH_MS;
        for epoch in current.saturating_sub(20)..current + 20 {
            let mut one = [0; 8];
            let length = Participation::encode_one(position, &mut one).unwrap();
            let mut bytes = [0; 32];
            bytes[24..].copy_from_slice(&(round * 100 + epoch).to_be_bytes());
            let psrs = [Psr::from_bytes(&bytes).unwrap(); 2];
            let frame = world.frame("right", device, epoch, &one[..length], &psrs);
            let gateway = world.gateways.get_mut("right").unwrap();
            gateway.tick(now);
            let _ = gateway.receive(device, &frame, now);
            gateway.take_outgoing();
            most = most.max(gateway.held_bytes());
        }
    }
    let epochs = kept_epochs(EPOCH_MS) + usize::try_from(OPEN_EPOCHS).unwrap() + 2;
    assert!((64..=epochs * (2 * 32 + 8 + 48)).contains(&most), "{most}");
}

#[test]
fn only_the_last_of_many_questions_are_remembered() {
    let mut world = world();
    let key = LinkKey::new(&world.secret_at(QUERIER, gateway_id("root")));
    let ask = |first| Explain {
        query: world.query.reference(),
        epoch: T,
        node: gateway_id("left"),
        first,
    };
    let root = world.gateways.get_mut("root").unwrap();
    for first in 0..1000 {
        let frame = ask(first).close(&key, &mut [0; 128]).unwrap().to_vec();
        assert_eq!(root.receive_question(&frame, END), Ok(FrameOutcome::Taken));
        assert_eq!(root.take_outgoing().down.len(), 1);
    }
    let of_left = LinkKey::new(&LinkKey::secret_of(
        &crate::summing::children_secret("root"),
        world.roster.group(),
        gateway_id("left"),
    ));
    let answer = |first| {
        moteseal_sum::wire::Children::close(&ask(first), &[], &of_left, &mut [0; 256])
            .unwrap()
            .to_vec()
    };
    assert_eq!(root.receive(gateway_id("left"), &answer(999), END), Ok(FrameOutcome::Taken));
    assert_eq!(root.receive(gateway_id("left"), &answer(999), END), Err(Refused::NotAsked));
    assert_eq!(root.receive(gateway_id("left"), &answer(900), END), Err(Refused::NotAsked));
    assert_eq!(root.take_outgoing().up.len(), 1);
}

#[test]
fn accepts_only_the_queriers_newest_schedule_and_only_once_its_number_is_durable() {
    let world = World::new(&GATEWAYS, &DEVICES, 3);
    let now = T * EPOCH_MS;
    let fresh = |number| world.gateway("root", number);
    let draft = |group, roster, sources| {
        let draft =
            QueryScheduleDraft { group, roster, number: 9, sources, key_group: 3, queries: &[] };
        draft
            .issue(&secret(3), &mut vec![0; MAX_QUERY_SCHEDULE], &mut vec![0; MAX_QUERY_SCHEDULE])
            .unwrap()
            .to_vec()
    };
    let (group, digest) = (world.roster.group(), world.roster.digest());
    let posed = world.posed();
    let good = world.schedule(9, &[posed]);
    let BroadcastFrame::Single { head, leaf } = BroadcastFrame::decode(&good).unwrap() else {
        panic!("not a chain of one")
    };
    let id = Head::peek(head).unwrap().id();
    let schedule_as = |id, kind| {
        let draft = SingleDraft {
            id,
            kind,
            label: "",
            window: Window::ALWAYS,
            previous: None,
            message: leaf,
        };
        draft
            .seal(&secret(3), &mut vec![0; MAX_QUERY_SCHEDULE], &mut vec![0; MAX_QUERY_SCHEDULE])
            .unwrap()
            .to_vec()
    };
    assert_eq!(schedule_as(id, Kind::QuerySchedule), good);
    let cases = [
        (vec![], "Truncated"),
        (vec![0xd2; MAX_QUERY_SCHEDULE * 2], "NonCanonical"),
        (world.draft(9, &[posed], &secret(4)), "WrongKey"),
        (draft(moteseal_core::GroupId([1; 8]), digest, 8), "WrongNetwork"),
        (
            schedule_as(ChainId { sender: DeviceId([1; 8]), ..id }, Kind::QuerySchedule),
            "WrongSender",
        ),
        (schedule_as(id, Kind::Announcement), "WrongKind"),
        (schedule_as(id, Kind::File), "WrongKind"),
        (draft(group, moteseal_core::Digest([1; 32]), 8), "WrongRoster"),
        (world.schedule(9, &[posed, posed]), "AmbiguousQuery"),
        (world.schedule(9, &[Posed { until: 0, ..posed }]), "FieldOutOfRange"),
    ];
    for (bytes, name) in cases {
        let mut gateway = fresh(0);
        let refused = gateway
            .receive_schedule(&bytes, now, |_| panic!("{name}: the number was stored"))
            .unwrap_err();
        assert_eq!(refused.name(), name);
        assert!(is_listed(name), "{name}");
        assert!(gateway.take_outgoing().announcement.is_none() && gateway.queries().len() == 0);
    }
    let mut gateway = fresh(5);
    let mut kept = Vec::new();
    let mut receive = |gateway: &mut Aggregator, bytes: &[u8]| {
        let received = gateway.receive_schedule(bytes, now, |number| {
            kept.push(number);
            Ok(())
        });
        (received, gateway.take_outgoing().announcement.is_some(), gateway.queries().len())
    };
    assert_eq!(
        receive(&mut gateway, &world.schedule(4, &[posed])),
        (Err(Refused::OlderAgenda), false, 0)
    );
    // An older schedule is rejected before its signature is checked, so that an attacker cannot
    // make a gateway spend time on signatures by replaying old schedules.
    assert_eq!(
        receive(&mut gateway, &world.draft(4, &[posed], &secret(4))),
        (Err(Refused::OlderAgenda), false, 0)
    );
    assert_eq!(
        receive(&mut gateway, &world.schedule(5, &[posed])),
        (Ok(FrameOutcome::Taken), true, 1)
    );
    assert_eq!(
        receive(&mut gateway, &world.schedule(5, &[posed])),
        (Ok(FrameOutcome::Repeated), false, 1)
    );
    // Send a different schedule with the same number, then a schedule that ends the query, then the
    // first schedule again.
    assert_eq!(
        receive(&mut gateway, &world.schedule(5, &[])),
        (Err(Refused::TwoAgendas), false, 1)
    );
    assert_eq!(receive(&mut gateway, &world.schedule(6, &[])), (Ok(FrameOutcome::Taken), true, 0));
    assert_eq!(
        receive(&mut gateway, &world.schedule(5, &[posed])),
        (Err(Refused::OlderAgenda), false, 0)
    );
    assert_eq!(kept, [6]);
    let full = || Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
    assert_eq!(
        gateway.receive_schedule(&world.schedule(7, &[posed]), now, |_| full()),
        Err(Refused::NotDurable)
    );
    assert_eq!((gateway.queries().len(), gateway.number()), (0, 6));
    assert!(gateway.take_outgoing().announcement.is_none());
}

#[test]
fn reports_a_query_that_cannot_be_answered_and_answers_the_others() {
    let world = World::new(&GATEWAYS, &DEVICES, 3);
    let mut gateway = world.gateway("root", 0);
    let good = world.posed();
    let queries = [Posed { nonce: [1; 16], plan: &[0x80], ..good }, good];
    gateway.receive_schedule(&world.schedule(1, &queries), T * EPOCH_MS, |_| Ok(())).unwrap();
    let output = gateway.take_outgoing();
    let bad = QueryId::of(&world.roster.digest(), &[1; 16], &[0x80]);
    assert_eq!(
        output.unusable.iter().map(|query| (query.query, query.name)).collect::<Vec<_>>(),
        [(bad, "UnexpectedType")]
    );
    assert_eq!(gateway.queries().collect::<Vec<_>>(), [world.query]);

    // If each source has its own key group, the records do not fit in one frame.
    let names: Vec<&str> = vec!["root"; 1000];
    let mut many = World::new(&[("root", QUERIER)], &names, 1);
    many.plan = plan("SELECT VARIANCE(t), SUM(u) FROM sensors EPOCH DURATION 5s");
    let mut gateway = many.gateway("root", 0);
    gateway.receive_schedule(&many.schedule(1, &[many.posed()]), T * EPOCH_MS, |_| Ok(())).unwrap();
    assert_eq!(gateway.take_outgoing().unusable[0].name, "QueryTooLarge");
    assert!(is_listed("QueryTooLarge"));
    many.key_group = 2;
    gateway.receive_schedule(&many.schedule(2, &[many.posed()]), T * EPOCH_MS, |_| Ok(())).unwrap();
    assert_eq!((gateway.take_outgoing().unusable.len(), gateway.queries().len()), (0, 1));
}

#[test]
fn a_query_that_continues_in_a_newer_schedule_keeps_its_shares() {
    let mut world = world();
    for position in 0..8 {
        if position != 3 {
            world.send_reading(position, T, 7, END).unwrap();
        }
    }
    let other = Posed { nonce: [6; 16], ..world.posed() };
    let newer = world.schedule(2, &[other, world.posed()]);
    for gateway in world.gateways.values_mut() {
        gateway.receive_schedule(&newer, END, |_| Ok(())).unwrap();
        assert_eq!(gateway.queries().len(), 2);
    }
    world.send_reading(3, T, 7, END + 10).unwrap();
    let (reached, _) = world.forward_all(END + 10);
    let share = world.opened("root", T, &reached[0].1);
    assert_eq!(world.sums(T, &[share]), Ok(vec![8, 56]));
    // A newer schedule can also end the query.
    let short = Posed { until: T + 2, ..world.posed() };
    let ended = world.schedule(3, &[short]);
    let root = world.gateways.get_mut("root").unwrap();
    root.receive_schedule(&ended, END + 20, |_| Ok(())).unwrap();
    assert_eq!(root.due_ms(), Some((T + 2) * EPOCH_MS + 400));
    root.tick((T + 2) * EPOCH_MS + 400);
    assert_eq!(root.due_ms(), None);
}

#[test]
fn there_is_no_aggregator_for_a_gateway_that_is_not_in_the_tree() {
    let world = World::new(&GATEWAYS, &DEVICES, 3);
    let querier = secret(3).public();
    for name in ["nobody", QUERIER] {
        let member = Member {
            roster: world.roster,
            tree: &world.tree,
            name,
            querier: &querier,
            children_secret: &[0; 32],
            up_secret: &[0; 32],
            grace: Duration::ZERO,
            number: 0,
        };
        assert!(Aggregator::new(&member).is_none());
        assert!(!format!("{member:?}").contains("secret"));
    }
}
