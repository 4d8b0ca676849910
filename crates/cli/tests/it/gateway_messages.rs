//! Tests messages from a gateway with a valid key. After any message, a device has lost at most the
//! closed seals that the message acknowledges or refuses, or it reports that the gateway has more
//! than the device. The device recovers the same state from its journal, and continues.

use crate::group;
use crate::group::FIRST;
use moteseal_core::digest::Digest;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::signature::SecretKey;
use moteseal_device::DurableMote;
use moteseal_seal::wire::{
    Acknowledgement, MAX_ACKNOWLEDGEMENT, MAX_REFUSAL, Refusal, StoredSeal, Uplink,
};
use moteseal_verify::Roster;

/// A device whose closed seals 0 and 1 wait and whose seal 2 is open, with 20 events each. The
/// gateway has acknowledged nothing.
struct Waiting {
    device: DurableMote<SecretKey>,
    /// The current challenge.
    challenge: u64,
    /// The digests of the closed seals.
    digests: [Digest; 2],
}

fn device(roster: &Roster, folder: &std::path::Path) -> Waiting {
    let mut device = group::mote(roster, 0, folder, 8);
    group::answer_challenge(roster, &mut device);
    let mut digests = [Digest::NULL; 2];
    for (epoch, place) in (FIRST..FIRST + 3).zip(0..) {
        (0..20u32).for_each(|n| device.sense(EpochNumber(epoch), &n.to_be_bytes()).unwrap());
        if let Some(digest) = digests.get_mut(place) {
            device.end(EpochNumber(epoch)).unwrap();
            *digest = device.mote().chain().position.prev;
        }
    }
    device.timeout();
    let key = group::link_key(roster, group::device_id(roster, 0));
    let frames = device.frames(64).unwrap();
    let challenge = frames.iter().find_map(|frame| match Uplink::open(frame, &key).unwrap() {
        Uplink::Challenge(challenge) => Some(challenge),
        _ => None,
    });
    Waiting { device, challenge: challenge.unwrap(), digests }
}

/// Returns the state of a device that must survive a restart: the number of waiting seals, the open
/// seal, the number of buffered events, and the next index.
fn state(device: &DurableMote<SecretKey>) -> (usize, Option<SealIndex>, usize, SealIndex) {
    let mote = device.mote();
    (mote.waiting(), mote.opened(), mote.buffered(), mote.chain().next_index)
}

/// Sends a message to a new device and asserts that the device continues. Returns how many closed
/// seals still wait, which seal is open, and how often the gateway had more than the device.
fn after_message(
    roster: &Roster,
    message: &dyn Fn(&Waiting) -> Vec<u8>,
) -> (usize, Option<u32>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut waiting = device(roster, folder.path());
    let message = message(&waiting);
    let device = &mut waiting.device;
    let before = state(device);
    device.acknowledged(&message).unwrap().unwrap();
    let (after, rollbacks) = (state(device), device.rollbacks());
    assert!(
        after.0 <= before.0 && after.2 <= before.2 && (after.3 == before.3 || rollbacks > 0),
        "{before:?}, {after:?}"
    );
    device.sync().unwrap();
    drop(waiting);
    let mut device = group::mote(roster, 0, folder.path(), 8);
    assert_eq!(state(&device), after);
    group::answer_challenge(roster, &mut device);
    // The message may have moved the device to an epoch that is far ahead.
    let epoch = device.mote().chain().epoch.unwrap_or(EpochNumber(FIRST + 2));
    if after.3 != SealIndex(u32::MAX) {
        device.sense(epoch, &[7; 4]).unwrap();
        device.end(epoch).unwrap();
        assert_eq!(device.mote().waiting(), after.0 + 1);
        assert!(!device.frames(64).unwrap().is_empty());
    }
    (after.0, after.1.map(|index| index.0), rollbacks)
}

#[test]
fn an_acknowledgement_removes_at_most_the_seals_that_it_acknowledges() {
    let roster = group::roster(1, 1000, 1000);
    let id = group::device_id(&roster, 0);
    let key = group::link_key(&roster, id);
    // The index of the newest stored seal, whether its digest is the device's, and the number of
    // seals that wait afterwards; `None` if the gateway has more than the device.
    let sealed = [
        (None, Some(2)),
        (Some((0, true)), Some(1)),
        (Some((0, false)), None),
        (Some((1, true)), Some(0)),
        (Some((1, false)), None),
        (Some((2, false)), None),
        (Some((3, false)), None),
        (Some((u32::MAX, false)), None),
    ];
    for index in [0, 1, 2, 3, u32::MAX] {
        for next in [0, 1, 20, 21, u64::from(u32::MAX)] {
            for (sealed, left) in sealed {
                let message = |waiting: &Waiting| {
                    let sealed = sealed.map(|(index, is_own): (u32, bool)| StoredSeal {
                        index: SealIndex(index),
                        epoch: EpochNumber(FIRST),
                        last_in_epoch: false,
                        digest: if is_own {
                            waiting.digests[index as usize]
                        } else {
                            Digest([9; 32])
                        },
                    });
                    let message = Acknowledgement {
                        index: SealIndex(index),
                        next: Sequence(next),
                        sealed,
                        wants_schema: next % 2 == 1,
                        challenge: Some(waiting.challenge),
                    };
                    message.close(id, &key, &mut [0; MAX_ACKNOWLEDGEMENT]).unwrap().to_vec()
                };
                // The device has opened three seals with 20 events each.
                let has_events = next == 0 || (index <= 2 && next <= 20);
                let is_implausible = (index == u32::MAX && next > 0)
                    || sealed.is_some_and(|(index, _)| index == u32::MAX);
                let expected = match left.filter(|_| has_events) {
                    _ if is_implausible => (2, Some(2), 0),
                    Some(left) => (left, Some(2), 0),
                    None => (0, None, 1),
                };
                assert_eq!(
                    after_message(&roster, &message),
                    expected,
                    "{index}, {next}, {sealed:?}"
                );
            }
        }
    }
}

/// Finding A5 of the review.
#[test]
fn an_acknowledgement_that_does_not_answer_the_current_challenge_has_no_effect() {
    let roster = group::roster(1, 1000, 1000);
    let id = group::device_id(&roster, 0);
    let key = group::link_key(&roster, id);
    for (index, is_own) in [(0, true), (1, true), (1, false), (9, false)] {
        for offset in [None, Some(-1), Some(1), Some(1 << 40)] {
            let message = |waiting: &Waiting| {
                let stored = StoredSeal {
                    index: SealIndex(index),
                    epoch: EpochNumber(FIRST),
                    last_in_epoch: true,
                    digest: if is_own { waiting.digests[index as usize] } else { Digest::NULL },
                };
                let challenge = offset.map(|offset| waiting.challenge.wrapping_add_signed(offset));
                let message = Acknowledgement {
                    index: SealIndex(2),
                    next: Sequence(20),
                    sealed: Some(stored),
                    wants_schema: false,
                    challenge,
                };
                message.close(id, &key, &mut [0; MAX_ACKNOWLEDGEMENT]).unwrap().to_vec()
            };
            assert_eq!(after_message(&roster, &message), (2, Some(2), 0), "{index}, {offset:?}");
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
            assert_eq!(
                after_message(&roster, &|_| message.clone()),
                (left, Some(2), 0),
                "{index}, {is_final}"
            );
        }
    }
}

/// A coordinator that lies can otherwise make a device use up its indices or epochs.
#[test]
fn an_acknowledgement_of_an_implausible_index_or_epoch_is_ignored_and_counted() {
    let roster = group::roster(1, 1000, 1000);
    let device = |folder: &std::path::Path| device(&roster, folder);
    let id = group::device_id(&roster, 0);
    let key = group::link_key(&roster, id);
    let stored = |index, epoch| StoredSeal {
        index: SealIndex(index),
        epoch: EpochNumber(epoch),
        last_in_epoch: true,
        digest: Digest([7; 32]),
    };
    let forged = |challenge, index, next, sealed| {
        let acknowledgement = Acknowledgement {
            index: SealIndex(index),
            next: Sequence(next),
            sealed,
            wants_schema: false,
            challenge: Some(challenge),
        };
        acknowledgement.close(id, &key, &mut [0; MAX_ACKNOWLEDGEMENT]).unwrap().to_vec()
    };
    for (index, next, sealed, is_ignored) in [
        (1 << 31, 1, None, true),
        (0, 0, Some(stored(u32::MAX, FIRST)), true),
        (0, 0, Some(stored(9, FIRST + 501)), true),
        (0, 0, Some(stored(9, u64::MAX)), true),
        // These show that the state is old.
        (0, 0, Some(stored(9, FIRST + 500)), false),
        ((1 << 31) - 1, 1, None, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut waiting = device(folder.path());
        waiting.device.set_latest_epoch(EpochNumber(FIRST + 500));
        let before = state(&waiting.device);
        let message = forged(waiting.challenge, index, next, sealed);
        let changed = waiting.device.acknowledged(&message).unwrap().unwrap();
        assert_eq!(changed, !is_ignored, "{index} {sealed:?}");
        assert_eq!(waiting.device.implausible(), u64::from(is_ignored));
        assert_eq!(waiting.device.rollbacks(), u64::from(!is_ignored));
        assert_eq!(state(&waiting.device) == before, is_ignored);
        // Another copy of the state may have signed the device's own next index.
        let least = if is_ignored { before.3.0 } else { before.3.0 + (1 << 16) };
        assert!(state(&waiting.device).3 >= SealIndex(least));
    }
}
