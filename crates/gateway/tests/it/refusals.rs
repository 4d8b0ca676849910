//! Sources that state why they do not answer: gateways relay the statements (spec/sums.md, section
//! 4.1).

use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_gateway::sum::{FrameOutcome, Refused};
use moteseal_sum::wire::{Refusal, SumUplink};
use moteseal_verify::aggregation::{QUERIER, gateway_id};

use crate::summing::{EPOCH_MS, T, World};

const END: u64 = (T + 1) * EPOCH_MS;

/// A root with one gateway below it, `left`, which has three motes.
fn world() -> World {
    World::asked(&[("root", QUERIER), ("left", "root")], &["left", "left", "left"], 3)
}

fn refusal(world: &World, position: u32, epoch: u64) -> Refusal<'static> {
    let device = world.device(position);
    let secret = world.master.source(world.roster.group(), device, position / world.key_group);
    let tag = secret.refusal_tag(world.query, epoch, "BudgetSpent");
    Refusal { query: world.query.reference(), epoch, position, reason: "BudgetSpent", tag }
}

/// Passes a refusal to a gateway, as a frame of a child.
fn send(
    world: &mut World,
    (gateway, child): (&str, DeviceId),
    refusal: &Refusal<'_>,
    now_ms: u64,
) -> Result<FrameOutcome, Refused> {
    let frame = refusal.close(&world.key_at(gateway, child), &mut [0; 128]).unwrap().to_vec();
    world.gateways.get_mut(gateway).unwrap().receive(child, &frame, now_ms)
}

#[test]
fn a_refusal_reaches_the_querier_unchanged() {
    let mut world = world();
    let (sent, device) = (refusal(&world, 1, T), world.device(1));
    assert_eq!(send(&mut world, ("left", device), &sent, END), Ok(FrameOutcome::Taken));
    let (reached, ended) = world.forward_all(END);
    let [(child, frame)] = &reached[..] else { panic!("{reached:?}") };
    let key = world.key_at(QUERIER, gateway_id(child));
    assert_eq!(SumUplink::open(frame, &key), Ok(SumUplink::Refusal(sent)));
    // A refusal is no share: the epoch has not ended, and the share of the mote still counts.
    assert!(ended.is_empty());
    for position in 0..3 {
        assert_eq!(world.send_reading(position, T, 10, END), Ok(FrameOutcome::Taken));
    }
    let (reached, _) = world.forward_all(END);
    let share = world.opened("root", T, &reached[0].1);
    assert_eq!(world.sums(T, &[share]), Ok(vec![3, 30]));
}

#[test]
fn relays_a_refusal_of_a_source_at_most_every_twenty_seconds() {
    let mut world = world();
    let ids = [world.device(1), world.device(2)];
    let mut at = |after_ms: u64, position: u32| {
        let now_ms = END + after_ms;
        let sent = refusal(&world, position, now_ms / EPOCH_MS - 1);
        let child = ids[position as usize - 1];
        let outcome = send(&mut world, ("left", child), &sent, now_ms).unwrap();
        let relayed = world.gateways.get_mut("left").unwrap().take_outgoing().up.len();
        (outcome, relayed)
    };
    assert_eq!(at(0, 1), (FrameOutcome::Taken, 1));
    assert_eq!(at(19_999, 1), (FrameOutcome::Repeated, 0));
    assert_eq!(at(19_999, 2), (FrameOutcome::Taken, 1));
    assert_eq!(at(20_000, 1), (FrameOutcome::Taken, 1));
}

#[test]
fn rejects_a_refusal_of_another_source_query_or_epoch() {
    let mut world = world();
    let (device, other) = (world.device(1), world.device(2));
    let good = refusal(&world, 1, T);
    for (expected, bad) in [
        (Refused::NotBeneath, Refusal { position: 2, ..good }),
        (Refused::NotBeneath, Refusal { position: 0, ..good }),
        (Refused::NotBeneath, Refusal { position: u32::MAX, ..good }),
        (Refused::WrongQuery, Refusal { query: good.query ^ 1, ..good }),
        (Refused::WrongEpoch, Refusal { epoch: T + 5, ..good }),
        (Refused::WrongEpoch, Refusal { epoch: u64::MAX, ..good }),
    ] {
        assert_eq!(send(&mut world, ("left", device), &bad, END), Err(expected), "{bad:?}");
    }
    // A frame under the key of another child.
    let frame = good.close(&world.key_at("left", other), &mut [0; 128]).unwrap().to_vec();
    let left = world.gateways.get_mut("left").unwrap();
    let refused = left.receive(device, &frame, END).unwrap_err();
    assert_eq!(refused.name(), "NotAuthentic");
    assert!(left.take_outgoing().up.is_empty());
}
