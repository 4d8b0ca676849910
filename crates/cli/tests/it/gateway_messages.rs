//! Tests messages from a gateway with a valid key. After any message, a device has lost at most the
//! closed seals that the message acknowledges or refuses. The device keeps its open seal, recovers
//! the same state from its journal, and continues.

use crate::group;
use crate::group::FIRST;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::signature::SecretKey;
use moteseal_device::DurableMote;
use moteseal_seal::wire::{Acknowledgement, MAX_REFUSAL, Refusal};
use moteseal_verify::Roster;

/// Makes a device whose closed seals 0 and 1 wait and whose seal 2 is open. The gateway has
/// acknowledged nothing.
fn device(roster: &Roster, folder: &std::path::Path) -> DurableMote<SecretKey> {
    let mut device = group::mote(roster, 0, folder, 8);
    for epoch in FIRST..FIRST + 3 {
        (0..20u32).for_each(|n| device.sense(EpochNumber(epoch), &n.to_be_bytes()).unwrap());
        if epoch < FIRST + 2 {
            device.end(EpochNumber(epoch)).unwrap();
        }
    }
    device.timeout();
    device.frames(64).unwrap();
    device
}

/// Returns the state of a device that must survive a restart: the number of waiting seals, the open
/// seal, the number of buffered events, and the next index.
fn state(device: &DurableMote<SecretKey>) -> (usize, Option<SealIndex>, usize, SealIndex) {
    let mote = device.mote();
    (mote.waiting(), mote.opened(), mote.buffered(), mote.chain().next_index)
}

/// Sends a message to a new device and asserts that the device continues. Returns how many closed
/// seals still wait, and which seal is open.
fn after_message(roster: &Roster, message: &[u8]) -> (usize, Option<u32>) {
    let folder = tempfile::tempdir().unwrap();
    let mut device = device(roster, folder.path());
    let before = state(&device);
    device.acknowledged(message).unwrap().unwrap();
    let after = state(&device);
    assert!(
        after.0 <= before.0 && after.2 <= before.2 && after.3 == before.3,
        "{before:?}, {after:?}"
    );
    device.sync().unwrap();
    drop(device);
    let mut device = group::mote(roster, 0, folder.path(), 8);
    assert_eq!(state(&device), after);
    device.sense(EpochNumber(FIRST + 2), &[7; 4]).unwrap();
    device.end(EpochNumber(FIRST + 2)).unwrap();
    assert_eq!(device.mote().waiting(), after.0 + 1);
    assert!(!device.frames(64).unwrap().is_empty());
    (after.0, after.1.map(|index| index.0))
}

#[test]
fn an_acknowledgement_removes_at_most_the_seals_that_it_acknowledges() {
    let roster = group::roster(1, 1000, 1000);
    let id = group::device_id(&roster, 0);
    let key = group::link_key(&roster, id);
    let sealed = [(None, 2), (Some(0), 1), (Some(1), 0), (Some(2), 0), (Some(u32::MAX), 0)];
    for index in [0, 1, 2, 3, u32::MAX] {
        for next in [0, 1, 20, 21, u64::from(u32::MAX)] {
            for (sealed, left) in sealed {
                let (index, next, sealed) =
                    (SealIndex(index), Sequence(next), sealed.map(SealIndex));
                let message =
                    Acknowledgement { index, next, sealed, wants_schema: next.0 % 2 == 1 };
                let message = message.close(id, &key, &mut [0; 96]).unwrap().to_vec();
                assert_eq!(
                    after_message(&roster, &message),
                    (left, Some(2)),
                    "{index}, {next:?}, {sealed:?}"
                );
            }
        }
    }
}

#[test]
fn a_refusal_removes_at_most_the_oldest_seal_that_it_names() {
    let roster = group::roster(1, 1000, 1000);
    let id = group::device_id(&roster, 0);
    let key = group::link_key(&roster, id);
    for index in [0, 1, 2, 3, u32::MAX] {
        for is_final in [false, true] {
            let message = Refusal { index: SealIndex(index), is_final, name: "NotAsForwarded" };
            let message = message.close(id, &key, &mut [0; MAX_REFUSAL]).unwrap().to_vec();
            let left = if index == 0 && is_final { 1 } else { 2 };
            assert_eq!(after_message(&roster, &message), (left, Some(2)), "{index}, {is_final}");
        }
    }
}
