//! Tests what the coordinator does when an epoch's queues are full. The test is inside the crate
//! because it marks the queues as full without storing events; real contents would take four
//! gibibytes.
#![allow(clippy::unwrap_used)]

use moteseal_core::link::MAX_FRAME;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Level, Round, SealIndex, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_seal::wire::{Forward, Uplink};
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};

use super::error::Refused;
use super::{GroupCoordinator, link_key};

const SECRET: [u8; 32] = [7; 32];
const FIRST: EpochNumber = EpochNumber(70);
const NEXT: EpochNumber = EpochNumber(71);

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn forward(
    roster: &Roster,
    device: DeviceId,
    index: u32,
    epoch: EpochNumber,
    from: u64,
) -> Vec<u8> {
    let forward = Forward {
        index: SealIndex(index),
        epoch,
        own_round: Round(0),
        from: Sequence(from),
        until: Sequence(from + 1),
        framing: Framing::fixed(4).unwrap(),
        events: &[3, 0, 0, 0, 9],
        digests: None,
    };
    let mut out = vec![0; MAX_FRAME];
    Uplink::Forward(forward)
        .close(device, &link_key(&SECRET, roster, device), &mut out)
        .unwrap()
        .to_vec()
}

/// The frame with the schema of a device, whose records have 4 bytes.
fn schema(roster: &Roster, device: DeviceId) -> Vec<u8> {
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let mut out = [0; MAX_FRAME];
    let key = link_key(&SECRET, roster, device);
    Uplink::Schema(schema.as_bytes()).close(device, &key, &mut out).unwrap().to_vec()
}

#[test]
fn a_full_epoch_rejects_frames_and_does_not_affect_other_epochs() {
    let devices = [("north", secret(0).public()), ("south", secret(1).public())];
    let budget = Some(Budget { events: 100, coordinator: secret(9).public() });
    let first =
        FirstRoster { group: "field", epoch_ms: 1000, levels: 8, budget, devices: &devices };
    let roster = Roster::open(&first.issue(&secret(8)).unwrap(), &secret(8).public()).unwrap();
    let (north, south) = (roster.id("north").unwrap(), roster.id("south").unwrap());
    let mut coordinator = GroupCoordinator::new(roster.clone(), SECRET).unwrap();
    for device in [north, south] {
        assert!(coordinator.receive(&schema(&roster, device), NEXT).unwrap().durable);
    }
    assert!(coordinator.receive(&forward(&roster, north, 0, FIRST, 0), NEXT).unwrap().durable);
    coordinator.epoch(FIRST).queues.exhaust(Level(5));

    let (standing, counts, kept) =
        (coordinator.standing(), coordinator.counts(), coordinator.kept(FIRST));
    let acknowledged = coordinator.acknowledgement(north);
    for device in [north, south] {
        let (index, from) = if device == north { (0, 1) } else { (0, 0) };
        assert_eq!(
            coordinator.receive(&forward(&roster, device, index, FIRST, from), NEXT).unwrap_err(),
            Refused::EpochFull
        );
    }
    assert_eq!(
        (
            coordinator.standing(),
            coordinator.counts(),
            coordinator.kept(FIRST),
            coordinator.acknowledgement(north)
        ),
        (standing, counts, kept, acknowledged)
    );

    // The queues of another epoch still have room.
    assert!(coordinator.receive(&forward(&roster, south, 0, NEXT, 0), NEXT).unwrap().durable);
    assert_eq!(coordinator.kept(NEXT), 1);
    // The full epoch ends as usual. If a device then repeats a seal of this epoch that was
    // rejected, the seal counts as late.
    let ended = coordinator.end(FIRST, &secret(9)).unwrap();
    assert_eq!(
        (ended.round, ended.bundles.len(), ended.absent),
        (Round(0), 0, vec![north.min(south), north.max(south)])
    );
    assert!(coordinator.receive(&forward(&roster, south, 0, NEXT, 1), NEXT).unwrap().durable);
}
