//! Aggregators while a group changes: gateways load a later version of the roster in the middle of an
//! epoch, at different times, and devices join and leave.

use moteseal_core::participation::Participation;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_gateway::sum::{FrameOutcome, Member, Refused};
use moteseal_verify::aggregation::{QUERIER, gateway_id};

use crate::summing::{EPOCH_MS, T, World, secret};

const END: u64 = (T + 1) * EPOCH_MS;
/// The position of a device that joins the group.
const JOINED: u32 = 8;

/// Eight motes below three gateways: a root and two gateways below it.
fn small() -> World {
    let gateways = [("root", QUERIER), ("left", "root"), ("right", "root")];
    World::asked(
        &gateways,
        &["root", "left", "left", "left", "right", "right", "right", "right"],
        3,
    )
}

/// Adds the device `late` below a gateway.
fn join(world: &mut World, gateway: &str) {
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[77; 32]).unwrap().public();
    world.change(&[("late", gateway)], |next| next.add("late", &key, EpochNumber(0)).unwrap());
}

#[test]
fn a_later_version_continues_the_open_epochs_and_asks_the_devices_that_join() {
    let mut world = small();
    for position in 0..5 {
        assert_eq!(world.send_reading(position, T, 10, END - 1), Ok(FrameOutcome::Taken));
    }
    join(&mut world, "left");
    for gateway in ["root", "left", "right"] {
        world.load(gateway);
    }
    world.announce(2, END - 1);
    for position in 5..=JOINED {
        assert_eq!(world.send_reading(position, T, 10, END - 1), Ok(FrameOutcome::Taken));
    }
    let (reached, ended) = world.forward_all(END);
    assert_eq!(reached.len(), 1);
    assert!(ended.iter().all(|(_, ended)| ended.silent.is_empty()), "{ended:?}");
    let share = world.opened("root", T, &reached[0].1);
    assert_eq!(world.sums(T, &[share]), Ok(vec![9, 90]));
}

#[test]
fn a_gateway_with_an_earlier_version_adds_the_sources_of_a_later_one() {
    let mut world = small();
    join(&mut world, "left");
    world.load("left");
    world.announce(2, END - 1);
    for position in 0..=JOINED {
        assert_eq!(world.send_reading(position, T, 10, END - 1), Ok(FrameOutcome::Taken));
    }
    let (reached, _) = world.forward_all(END);
    let share = world.opened("root", T, &reached[0].1);
    assert_eq!(world.sums(T, &[share]), Ok(vec![9, 90]));
}

#[test]
fn an_unknown_source_counts_once_and_only_below_a_gateway() {
    let mut world = small();
    join(&mut world, "left");
    world.announce(2, END - 1);
    let psrs = world.encrypted(JOINED, T, 10);
    let mut one = [0; 8];
    let length = Participation::encode_one(JOINED, &mut one).unwrap();
    let from = |world: &World, child: &str| {
        let child = gateway_id(child);
        (child, world.frame("root", child, T, &one[..length], &psrs))
    };
    let (left, of_left) = from(&world, "left");
    let (right, of_right) = from(&world, "right");
    // A source cannot name another source.
    let mote = world.device((0..8).find(|at| world.tree.gateway_of(*at) == Some("root")).unwrap());
    let of_mote = world.frame("root", mote, T, &one[..length], &psrs);
    let root = world.gateways.get_mut("root").unwrap();
    assert_eq!(root.receive(mote, &of_mote, END - 1), Err(Refused::NotBeneath));
    assert_eq!(root.receive(left, &of_left, END - 1), Ok(FrameOutcome::Taken));
    assert_eq!(root.receive(right, &of_right, END - 1), Err(Refused::NotBeneath));
    // The querier asks nine sources.
    let length = Participation::encode_one(JOINED + 1, &mut one).unwrap();
    let beyond = world.frame("root", right, T, &one[..length], &psrs);
    let root = world.gateways.get_mut("root").unwrap();
    assert_eq!(root.receive(right, &beyond, END - 1).unwrap_err().name(), "UnknownPosition");
}

#[test]
fn a_removed_source_is_rejected_from_its_end_on_and_is_not_awaited() {
    let mut world = small();
    let gone = (0..8).find(|at| world.tree.gateway_of(*at) == Some("right")).unwrap();
    let name = world.roster.name(world.device(gone)).unwrap().to_owned();
    // The roster's epochs last a second. The device leaves with the epoch of the query after `T`.
    let end = EpochNumber((T + 1) * EPOCH_MS / 1000);
    world.change(&[], |next| next.end(&name, None, Some(end)).unwrap());
    for gateway in ["root", "left", "right"] {
        world.load(gateway);
    }
    assert_eq!(world.send_reading(gone, T, 10, END - 1), Ok(FrameOutcome::Taken));
    assert_eq!(world.send_reading(gone, T + 1, 10, END + 1), Err(Refused::NotMember));
    for position in (0..8).filter(|position| *position != gone) {
        for epoch in [T, T + 1] {
            assert_eq!(world.send_reading(position, epoch, 10, END + 1), Ok(FrameOutcome::Taken));
        }
    }
    // Nobody waited for the end of the grace period.
    let (reached, ended) = world.forward_all(END + 1);
    assert!(ended.iter().all(|(_, ended)| ended.silent.is_empty()), "{ended:?}");
    for (epoch, count) in [(T, 8), (T + 1, 7)] {
        let at = usize::from(epoch > T);
        let share = world.opened("root", epoch, &reached[at].1);
        assert_eq!(world.sums(epoch, &[share]), Ok(vec![count, 10 * count]));
    }
}

#[test]
fn a_revoked_source_is_rejected_at_once_and_its_share_is_dropped() {
    let mut world = small();
    let name = world.roster.name(world.device(1)).unwrap().to_owned();
    let gateway = world.tree.gateway_of(1).unwrap().to_owned();
    let siblings: Vec<u32> =
        (0..8).filter(|at| world.tree.gateway_of(*at) == Some(&gateway)).collect();
    for position in siblings {
        assert_eq!(world.send_reading(position, T + 1, 10, END), Ok(FrameOutcome::Taken));
        if position != 1 {
            assert_eq!(world.send_reading(position, T, 10, END - 1), Ok(FrameOutcome::Taken));
        }
    }
    world.gateways.get_mut(&gateway).unwrap().take_outgoing();
    world.change(&[], |next| next.end(&name, Some(SealIndex(3)), None).unwrap());
    world.load(&gateway);
    assert_eq!(world.send_reading(1, T, 10, END - 1), Err(Refused::NotMember));
    // The epoch that waited for the source alone is over. The epoch with its share was over before.
    let ended = world.gateways.get_mut(&gateway).unwrap().take_outgoing().ended;
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!((ended[0].epoch, ended[0].participants, &ended[0].silent[..]), (T, 2, &[][..]));
}

#[test]
fn a_share_that_a_later_version_does_not_accept_is_dropped() {
    let mut world = small();
    join(&mut world, "left");
    world.announce(2, END - 1);
    let psrs = world.encrypted(JOINED, T, 10);
    let mut one = [0; 8];
    let length = Participation::encode_one(JOINED, &mut one).unwrap();
    let [left, right] = ["left", "right"].map(gateway_id);
    // Before the root has the later version, the wrong gateway names the new source first.
    let [of_left, of_right] =
        [left, right].map(|child| world.frame("root", child, T, &one[..length], &psrs));
    let root = world.gateways.get_mut("root").unwrap();
    assert_eq!(root.receive(right, &of_right, END - 1), Ok(FrameOutcome::Taken));
    world.load("root");
    let root = world.gateways.get_mut("root").unwrap();
    assert_eq!(root.receive(left, &of_left, END - 1), Ok(FrameOutcome::Taken));
    assert_eq!(root.receive(right, &of_right, END - 1), Err(Refused::NotBeneath));
}

#[test]
fn the_queries_of_a_replaced_querier_end() {
    let mut world = small();
    let other = SecretKey::from_seed(Algorithm::Ed25519, &[78; 32]).unwrap();
    let mut root = world.gateways.remove("root").unwrap();
    root.take_outgoing();
    world
        .with_member("root", 0, |member| root.load(&Member { querier: &other.public(), ..*member }))
        .unwrap();
    assert_eq!(root.queries().len(), 0);
    root.tick(END + 120_000);
    assert!(root.take_outgoing().announcement.is_none());
    let schedule = |key: &SecretKey| world.draft(2, &[world.posed()], key);
    let (old, new) = (schedule(&secret(3)), schedule(&other));
    assert!(root.receive_schedule(&old, END, |_| Ok(())).is_err());
    assert_eq!(root.receive_schedule(&new, END, |_| Ok(())), Ok(FrameOutcome::Taken));
}

#[test]
fn a_schedule_far_ahead_of_the_clock_does_not_use_up_the_numbers() {
    let mut world = small();
    let day_ms = 24 * 3600 * 1000;
    let [last, ahead, highest] = [END + day_ms, END + day_ms + 1, u64::MAX]
        .map(|number| world.schedule(number, &[world.posed()]));
    let root = world.gateways.get_mut("root").unwrap();
    for schedule in [&ahead, &highest] {
        assert_eq!(
            root.receive_schedule(schedule, END, |_| panic!("not recorded")),
            Err(Refused::ScheduleAhead)
        );
    }
    assert_eq!(root.receive_schedule(&last, END, |_| Ok(())), Ok(FrameOutcome::Taken));
}
