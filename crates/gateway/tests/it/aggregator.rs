//! Compares aggregators with plain addition. For any tree and any failures, the querier opens the
//! exact sum over exactly those sources that could be reached. Also tests deadlines, restarts and
//! fault localisation. The tests use no clock: they pass the times as arguments.

use std::collections::BTreeSet;

use crate::summing::{EPOCH_MS, T, World};
use moteseal_gateway::sum::{FrameOutcome, KEPT_EPOCHS, Refused, kept_epochs};
use moteseal_verify::aggregation::{QUERIER, gateway_id};
use proptest::prelude::*;
use proptest::sample::Index;

const END: u64 = (T + 1) * EPOCH_MS;

/// Builds a tree from two lists: the parent of each gateway (an earlier gateway or the querier),
/// and the gateway of each device.
fn shape(parents: &[Index], devices: &[Index]) -> (Vec<(String, String)>, Vec<String>) {
    let name = |at: usize| format!("gw{at}");
    let parent = |(at, parent): (usize, &Index)| {
        parent.index(at + 1).checked_sub(1).map_or_else(|| QUERIER.to_owned(), name)
    };
    let gateways: Vec<_> = std::iter::once((name(0), QUERIER.to_owned()))
        .chain((1..).zip(parents).map(|(at, up)| (name(at), parent((at, up)))))
        .collect();
    // If there are enough devices, each gateway has at least one device.
    let count = gateways.len();
    let devices = devices
        .iter()
        .enumerate()
        .map(|(n, at)| name(if n < count { n } else { at.index(count) }))
        .collect();
    (gateways, devices)
}

fn world(gateways: &[(String, String)], devices: &[String], key_group: u32) -> World {
    let gateways: Vec<_> =
        gateways.iter().map(|(name, parent)| (name.as_str(), parent.as_str())).collect();
    World::asked(&gateways, &devices.iter().map(String::as_str).collect::<Vec<_>>(), key_group)
}

/// Eight motes below three gateways: a root and two gateways below it.
fn small() -> World {
    let gateways = [("root", QUERIER), ("left", "root"), ("right", "root")];
    World::asked(
        &gateways,
        &["root", "left", "left", "left", "right", "right", "right", "right"],
        3,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_querier_opens_the_exact_sum_of_the_reachable_sources(
        parents in prop::collection::vec(any::<Index>(), 0..9),
        devices in prop_oneof![prop::collection::vec(any::<Index>(), 10), prop::collection::vec(any::<Index>(), 240)],
        key_group in prop_oneof![Just(7_u32), Just(64), Just(1000)],
        values in prop::collection::vec(0_u32.., 240),
        silent in prop::collection::vec(0_u8..10, 240),
        dead in prop::collection::vec(0_u8..8, 10),
        order in any::<u64>(),
    ) {
        let (gateways, devices) = shape(&parents, &devices);
        let mut world = world(&gateways, &devices, key_group);
        // A gateway that does not run sends nothing, so the sources below it do not take part in
        // the sum.
        for (at, (name, _)) in gateways.iter().enumerate() {
            if dead[at] == 0 {
                world.gateways.remove(name);
            }
        }
        let is_reached = |world: &World, position: u32| {
            let mut at = world.tree.gateway_of(position).unwrap();
            while at != QUERIER && world.gateways.contains_key(at) {
                at = world.tree.parent(at).unwrap();
            }
            at == QUERIER
        };
        let mut speaks: Vec<u32> = (0..world.tree.sources()).filter(|n| silent[*n as usize] != 0).collect();
        speaks.sort_by_key(|n| (u64::from(*n) + 1).wrapping_mul(order | 1));
        let mut reached = Vec::new();
        for position in &speaks {
            if world.gateways.contains_key(world.tree.gateway_of(*position).unwrap()) {
                prop_assert_eq!(world.send_reading(*position, T, values[*position as usize].into(), END + 3), Ok(FrameOutcome::Taken));
                reached.extend(world.forward_all(END + 5).0);
            }
        }
        // Each gateway waits for a time that depends on its height in the tree, and not longer.
        let mut ended = Vec::new();
        for height in 1..world.tree.height() {
            let now = END + 200 * u64::from(height);
            for name in world.tree.gateways().map(str::to_owned).collect::<Vec<_>>() {
                let Some(gateway) = world.gateways.get_mut(&name) else { continue };
                if gateway.node().height() == height {
                    gateway.tick(now - 1);
                    gateway.tick(now);
                }
            }
            let (frames, over) = world.forward_all(now);
            reached.extend(frames);
            ended.extend(over);
        }
        let shares: Vec<_> = reached.iter().map(|(child, frame)| world.opened(child, T, frame)).collect();
        let reached_sources: BTreeSet<u32> = shares.iter().flat_map(|share| share.participants.clone()).collect();
        let expected: BTreeSet<u32> = speaks.iter().copied().filter(|position| is_reached(&world, *position)).collect();
        prop_assert_eq!(&reached_sources, &expected);
        prop_assert_eq!(shares.iter().map(|share| share.participants.len()).sum::<usize>(), reached_sources.len());
        let sum: u128 = expected.iter().map(|position| u128::from(values[*position as usize])).sum();
        prop_assert_eq!(world.sums(T, &shares), Ok(vec![expected.len() as u128, sum]));
        // Every gateway that runs sends a frame, even if no source answered, and reports the
        // children that sent nothing.
        let roots = gateways.iter().filter(|(name, parent)| parent == QUERIER && world.gateways.contains_key(name)).count();
        prop_assert_eq!(reached.len(), roots);
        for (name, over) in ended {
            let aggregator = world.tree.aggregator(&name).unwrap();
            let was_silent = |child: &moteseal_verify::aggregation::Child| if child.is_gateway {
                !world.gateways.contains_key(&child.name)
            } else {
                !speaks.contains(&world.tree.position(child.id).unwrap())
            };
            let silent: Vec<String> = aggregator.children().iter().filter(|child| was_silent(child)).map(|child| child.name.clone()).collect();
            prop_assert_eq!(over.silent, silent);
        }
    }
}

#[test]
fn an_epoch_is_sent_once_when_all_have_answered_or_its_time_is_up() {
    let mut world = small();
    for position in 0..8 {
        assert_eq!(world.send_reading(position, T, 10, END - 1), Ok(FrameOutcome::Taken));
        // The same frame may arrive twice.
        assert_eq!(world.send_reading(position, T, 10, END - 1), Ok(FrameOutcome::Repeated));
    }
    let (reached, _) = world.forward_all(END);
    assert_eq!(reached.len(), 1);
    let share = world.opened("root", T, &reached[0].1);
    assert_eq!(world.sums(T, &[share]), Ok(vec![8, 80]));
    for gateway in world.gateways.values_mut() {
        assert_eq!(
            gateway.due_ms(),
            Some(END + EPOCH_MS + 200 * u64::from(gateway.node().height()))
        );
        gateway.tick(END + EPOCH_MS);
        assert!(gateway.take_outgoing().up.is_empty());
    }
}

#[test]
fn rejects_a_late_share_and_does_not_send_the_epoch_again() {
    let mut world = small();
    for name in ["left", "right", "root"] {
        let wait = world.wait_ms(name);
        world.gateways.get_mut(name).unwrap().tick(END + wait);
    }
    let (late, now) = (world.send_reading(0, T, 1, END + 400), END + 400);
    assert_eq!(late, Err(Refused::EpochOver));
    assert_eq!(world.send_reading(0, T + 1, 1, now), Ok(FrameOutcome::Taken));
    let of_left = (0..8).find(|position| world.tree.gateway_of(*position) == Some("left")).unwrap();
    assert_eq!(world.send_reading(of_left, T, 1, END + 199), Err(Refused::EpochOver));
    // A clock that is behind does not open an ended epoch again.
    assert_eq!(world.send_reading(of_left, T, 1, END - EPOCH_MS), Err(Refused::EpochOver));
}

#[test]
fn shortens_a_grace_period_that_is_longer_than_epochs_for_the_whole_tree() {
    let world = small();
    let querier = crate::summing::secret(3).public();
    let member = |grace| moteseal_gateway::sum::Member {
        roster: world.roster,
        tree: &world.tree,
        name: "root",
        querier: &querier,
        children_secret: &[0; 32],
        up_secret: &[0; 32],
        grace,
        number: 0,
    };
    let schedule = world.schedule(1, &[world.posed()]);
    let due = |seconds| {
        let mut gateway = moteseal_gateway::sum::Aggregator::new(&member(
            std::time::Duration::from_secs(seconds),
        ))
        .unwrap();
        gateway.receive_schedule(&schedule, END - 1, |_| Ok(())).unwrap();
        // End the epochs that are still open at the start.
        while gateway.due_ms().unwrap() <= END {
            gateway.tick(gateway.due_ms().unwrap());
        }
        assert!(gateway.take_outgoing().up.len() <= 1);
        gateway.due_ms().unwrap() % EPOCH_MS
    };
    // Below the querier the tree has two levels of gateways and one of devices. The root waits for
    // two of these three levels, so it waits for at most four of the six epochs.
    assert_eq!((due(1), due(4), due(11), due(3600)), (2000, 3000, 0, 0));
}

#[test]
fn a_restarted_gateway_answers_the_next_epochs() {
    let mut world = small();
    let schedule = world.schedule(1, &[world.posed()]);
    assert_eq!(world.send_reading(1, T, 10, END), Ok(FrameOutcome::Taken));
    let name = world.tree.gateway_of(1).unwrap().to_owned();
    // Simulate a crash: the number is still on disk, and the newest query schedule must be received
    // again.
    let mut restarted = world.gateway(&name, 1);
    assert_eq!(
        restarted.receive(world.device(1), &world.reading(1, T, 10), END),
        Err(Refused::WrongQuery)
    );
    let mut kept = None;
    let accepted = restarted.receive_schedule(&schedule, END + 100, |number| {
        kept = Some(number);
        Ok(())
    });
    assert_eq!((accepted, kept), (Ok(FrameOutcome::Taken), None));
    // The gateway sends nothing for the ended epoch, because it may have sent the epoch's sum
    // before the crash. Frames for epochs that have not ended are accepted.
    restarted.tick(END + 10_000);
    let output = restarted.take_outgoing();
    assert_eq!(
        (output.announcement, output.ended.iter().map(|ended| ended.epoch).collect::<Vec<_>>()),
        (Some(schedule), vec![T + 1])
    );
    world.gateways.insert(name, restarted);
    for gateway in world.gateways.values_mut() {
        gateway.tick(END + 2 * EPOCH_MS - 1);
        gateway.take_outgoing();
    }
    for position in 0..8 {
        assert_eq!(
            world.send_reading(position, T + 2, 10, END + 2 * EPOCH_MS),
            Ok(FrameOutcome::Taken)
        );
    }
    let (reached, _) = world.forward_all(END + 2 * EPOCH_MS);
    let share = world.opened("root", T + 2, &reached[0].1);
    assert_eq!(world.sums(T + 2, &[share]), Ok(vec![8, 80]));
}

#[test]
fn answers_questions_about_shares_page_by_page_and_forgets_the_shares_later() {
    let mut world = small();
    let mut values = Vec::new();
    for position in 0..8 {
        values.push(u128::from(position) + 40);
        world.send_reading(position, T, values[position as usize], END).unwrap();
    }
    world.forward_all(END);
    let of_root = world.explain("root", "root", T, END);
    let names: BTreeSet<_> =
        of_root.iter().map(|(child, _)| world.tree.name(*child).unwrap().to_owned()).collect();
    assert_eq!(names.len(), 3);
    assert!(names.contains("left") && names.contains("right"));
    for (child, share) in of_root {
        let sum: u128 = share.participants.iter().map(|position| values[*position as usize]).sum();
        assert_eq!(
            world.sums(T, std::slice::from_ref(&share)),
            Ok(vec![share.participants.len() as u128, sum])
        );
        let Some(name) = world
            .tree
            .name(child)
            .map(str::to_owned)
            .filter(|name| world.gateways.contains_key(name))
        else {
            continue;
        };
        let children = world.explain("root", &name, T, END);
        assert_eq!(children.len(), share.participants.len());
        for (child, share) in children {
            let position = world.tree.position(child).unwrap();
            assert_eq!(share.participants, [position].into());
            assert_eq!(world.sums(T, &[share]), Ok(vec![1, values[position as usize]]));
        }
    }
    // An answer is not forwarded if its question was not asked, or if it comes from the wrong
    // child.
    let key = world.key_at("root", gateway_id("left"));
    let ask = |node: &str| moteseal_sum::wire::Explain {
        query: world.query.reference(),
        epoch: T,
        node: gateway_id(node),
        first: 0,
    };
    let answer = |node: &str| {
        moteseal_sum::wire::Children::close(&ask(node), &[], &key, &mut [0; 256]).unwrap().to_vec()
    };
    let frames = [
        (answer("left"), Refused::NotAsked),
        (answer("right"), Refused::NotBeneath),
        (answer("root"), Refused::NotBeneath),
    ];
    for (frame, refused) in frames {
        assert_eq!(
            world.gateways.get_mut("root").unwrap().receive(gateway_id("left"), &frame, END),
            Err(refused)
        );
    }
    let stranger = world.question(QUERIER, gateway_id("root"), gateway_id("nobody"), T, 0);
    assert_eq!(
        world.gateways.get_mut("root").unwrap().receive_question(&stranger, END),
        Err(Refused::UnknownNode)
    );
    let early = world.question(QUERIER, gateway_id("root"), gateway_id("root"), T + 1, 0);
    assert_eq!(
        world.gateways.get_mut("root").unwrap().receive_question(&early, END),
        Err(Refused::WrongEpoch)
    );
    // Shares are kept for a minute, which is twelve epochs of this query.
    assert_eq!(
        (kept_epochs(EPOCH_MS), kept_epochs(1000), kept_epochs(86_400_000)),
        (12, 60, KEPT_EPOCHS)
    );
    for (later, is_kept) in [(11, true), (12, false)] {
        let now = END + later * EPOCH_MS + 1000;
        for gateway in world.gateways.values_mut() {
            gateway.tick(now);
            gateway.take_outgoing();
        }
        assert_eq!(world.explain("root", "left", T, now).is_empty(), !is_kept, "{later}");
    }
}

#[test]
fn a_gateway_that_stops_sends_the_sums_of_epochs_that_have_ended() {
    let mut world = small();
    let of_left: Vec<u32> =
        (0..8).filter(|position| world.tree.gateway_of(*position) == Some("left")).collect();
    world.send_reading(of_left[0], T, 5, END).unwrap();
    world.send_reading(of_left[0], T + 1, 5, END).unwrap();
    let left = world.gateways.get_mut("left").unwrap();
    left.finish(END);
    let output = left.take_outgoing();
    assert_eq!(
        output.ended.iter().map(|ended| (ended.epoch, ended.participants)).collect::<Vec<_>>(),
        [(T, 1)]
    );
    assert_eq!(output.up.len(), 1);
}

#[test]
fn epochs_are_skipped_if_the_clock_was_not_read_for_hours() {
    let mut world = small();
    world.send_reading(0, T, 5, END - 10).unwrap();
    let name = world.tree.gateway_of(0).unwrap().to_owned();
    let gateway = world.gateways.get_mut(&name).unwrap();
    gateway.tick(END + 10_000 * EPOCH_MS);
    let output = gateway.take_outgoing();
    // The epoch with a share is sent, but ten thousand epochs without shares are not.
    assert_eq!((output.ended[0].epoch, output.ended[0].participants), (T, 1));
    assert!((2..20).contains(&output.up.len()), "{}", output.up.len());
    assert!(gateway.due_ms().unwrap() > END + 10_000 * EPOCH_MS);
}

#[test]
fn a_clock_that_was_ahead_for_a_moment_loses_no_epoch_after_it_is_set_back() {
    let mut world = small();
    // The clock jumps ahead by an hour and back. If the gateway did not open epochs again, it would
    // reject all shares for an hour.
    for gateway in world.gateways.values_mut() {
        gateway.tick(END + 3_600_000);
        gateway.tick(END);
        assert!(gateway.due_ms().unwrap() < END + EPOCH_MS);
        gateway.take_outgoing();
    }
    // Test the epoch that is just ending, the next epoch, and an epoch that was ended an hour too
    // early.
    for epoch in [T, T + 1, T + 718] {
        let now = (epoch + 1) * EPOCH_MS;
        for gateway in world.gateways.values_mut() {
            gateway.tick(now);
            gateway.take_outgoing();
        }
        for position in 0..8 {
            assert_eq!(
                world.send_reading(position, epoch, 10, now),
                Ok(FrameOutcome::Taken),
                "{}",
                epoch - T
            );
        }
        let (reached, _) = world.forward_all(now);
        let share = world.opened("root", epoch, &reached[0].1);
        assert_eq!(world.sums(epoch, &[share]), Ok(vec![8, 80]));
        assert_eq!(world.explain("root", "left", epoch, now).len(), 3);
    }
}

#[test]
fn a_clock_that_is_set_back_a_little_opens_no_epoch_again() {
    let mut world = small();
    for position in 0..8 {
        world.send_reading(position, T + 1, 10, END).unwrap();
    }
    world.forward_all(END);
    let wait = world.wait_ms("root");
    for now in [END + EPOCH_MS + wait, END, END - EPOCH_MS] {
        for gateway in world.gateways.values_mut() {
            gateway.tick(now);
            gateway.take_outgoing();
        }
        assert_eq!(world.send_reading(0, T, 10, now), Err(Refused::EpochOver));
        assert_eq!(world.send_reading(0, T + 1, 10, now), Ok(FrameOutcome::Repeated));
    }
}

#[test]
fn a_restarted_gateway_answers_no_question_about_epochs_before_its_restart() {
    let mut world = small();
    let schedule = world.schedule(1, &[world.posed()]);
    let of_left: Vec<u32> =
        (0..8).filter(|position| world.tree.gateway_of(*position) == Some("left")).collect();
    let mut restarted = world.gateway("left", 1);
    restarted.receive_schedule(&schedule, END + 100, |_| Ok(())).unwrap();
    restarted.take_outgoing();
    world.gateways.insert("left".to_owned(), restarted);
    // One child answered before the restart, and the other children answer now. The gateway does
    // not know all shares, so it reports none of them.
    for epoch in [T, T + 1, T + 2] {
        let now = (epoch + 1) * EPOCH_MS + 150;
        for position in &of_left[1..] {
            assert_eq!(world.send_reading(*position, epoch, 10, now), Ok(FrameOutcome::Taken));
        }
        let left = world.gateways.get_mut("left").unwrap();
        left.tick(now + 100);
        assert_eq!(
            left.take_outgoing().ended.last().map(|ended| (ended.epoch, ended.participants)),
            Some((epoch, 2))
        );
        let answered = world.explain("root", "left", epoch, now + 100).len();
        assert_eq!(answered, if epoch == T + 2 { 2 } else { 0 }, "{}", epoch - T);
    }
}

#[test]
fn announces_the_unchanged_schedule_every_minute() {
    let mut world = small();
    let schedule = world.schedule(1, &[world.posed()]);
    let left = world.gateways.get_mut("left").unwrap();
    let start = T * EPOCH_MS;
    let mut announced = |now| {
        left.tick(now);
        left.take_outgoing().announcement
    };
    for (now, is_announced) in [
        (0, false),
        (59_999, false),
        (60_000, true),
        (60_001, false),
        (119_999, false),
        (125_000, true),
        (184_999, false),
    ] {
        assert_eq!(announced(start + now), is_announced.then(|| schedule.clone()), "{now}");
    }
    // Announcements continue after the clock is set back by an hour.
    assert_eq!(announced(start - 3_600_000), Some(schedule.clone()));
    assert_eq!(announced(start - 3_540_000), Some(schedule.clone()));
    // A newer schedule replaces the announced one and is itself announced after a minute. A gateway
    // without a schedule announces nothing.
    let newer = world.schedule(2, &[]);
    let left = world.gateways.get_mut("left").unwrap();
    left.receive_schedule(&newer, start, |_| Ok(())).unwrap();
    assert_eq!(left.take_outgoing().announcement.as_ref(), Some(&newer));
    left.tick(start + 60_000);
    assert_eq!(left.take_outgoing().announcement.as_ref(), Some(&newer));
    let mut fresh = world.gateway("left", 2);
    fresh.tick(start);
    assert_eq!(fresh.take_outgoing().announcement, None);
}

#[test]
fn shares_that_arrived_before_an_epoch_ended_count_even_if_processed_late() {
    let mut world = World::asked(&[("root", QUERIER)], &["root"; 8], 3);
    // The waiting times of three epochs are over, but `tick` has not been called.
    let now = END + 3 * EPOCH_MS;
    for position in 0..8 {
        for epoch in [T + 2, T, T + 1] {
            let (frame, device) = (world.reading(position, epoch, 10), world.device(position));
            // One source does not answer in the first epoch.
            if (position, epoch) != (3, T) {
                assert_eq!(
                    world.gateways.get_mut("root").unwrap().receive(device, &frame, now),
                    Ok(FrameOutcome::Taken)
                );
            }
        }
    }
    world.gateways.get_mut("root").unwrap().tick(now);
    let (reached, ended) = world.forward_all(now);
    let counted: BTreeSet<_> =
        ended.iter().map(|(_, ended)| (ended.epoch, ended.participants)).collect();
    assert_eq!(counted, [(T, 7), (T + 1, 8), (T + 2, 8)].into());
    assert_eq!(reached.len(), 3);
    // Ended epochs are not opened again.
    assert_eq!(world.send_reading(3, T, 10, now), Err(Refused::EpochOver));
}
