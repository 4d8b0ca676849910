//! A seal that the gateway never accepts does not block its device: the gateway refuses it
//! permanently, and the device gives it up and continues.

use crate::group;
use crate::group::FIRST;
use moteseal_core::DeviceId;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::SecretKey;
use moteseal_device::DurableMote;
use moteseal_gateway::Station;
use moteseal_verify::Roster;
use moteseal_verify::issue::PeriodChange;

const EPOCH_MS: u64 = 1000;
const BOUND: u64 = 1 << 26;

/// Delivers frames and acknowledgements until the device has nothing left to send, for at most
/// `rounds` rounds. Returns the names of the refusals.
fn exchange(
    device: &mut DurableMote<SecretKey>,
    id: DeviceId,
    station: &mut Station,
    now: u64,
    rounds: usize,
) -> Vec<&'static str> {
    let mut names = Vec::new();
    for _ in 0..rounds {
        if device.mote().is_done() {
            break;
        }
        let frames = device.frames(64).unwrap();
        if frames.is_empty() {
            device.timeout();
        }
        names.extend(
            frames
                .iter()
                .filter_map(|frame| station.receive(frame, EpochNumber(now)).err())
                .map(|refused| refused.name()),
        );
        for (to, message) in station.commit().unwrap().acknowledgements {
            assert_eq!(to, id);
            device.acknowledged(&message).unwrap().unwrap();
        }
    }
    names
}

/// Returns a frame with one event of a seal, which the device sent earlier.
fn earlier_frame(roster: &Roster, id: DeviceId, index: u32, epoch: u64) -> Vec<u8> {
    group::forward_frame((id, &group::link_key(roster, id)), (index, epoch), 0..1, 5)
}

fn sense(device: &mut DurableMote<SecretKey>, epochs: std::ops::Range<u64>) {
    for epoch in epochs {
        (0..20u32).for_each(|n| device.sense(EpochNumber(epoch), &n.to_be_bytes()).unwrap());
        device.end(EpochNumber(epoch)).unwrap();
    }
}

#[test]
fn gives_up_permanently_refused_seals_and_delivers_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, EPOCH_MS);
    let id = group::device_id(&roster, 0);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let now = FIRST + 9;
    // The device's clock was set back: the gateway has already received a later epoch than the
    // device seals now. The gateway has answered the device before, so that the device does not
    // take this for a loss of its state.
    let mut device = group::mote(&roster, 0, folder.path(), 16);
    group::begin_session(&mut device, &mut station);
    let _ = station.receive(&earlier_frame(&roster, id, 0, FIRST + 4), EpochNumber(now)).unwrap();
    station.commit().unwrap();
    sense(&mut device, FIRST..FIRST + 7);
    let names = exchange(&mut device, id, &mut station, now, 200);
    assert!(device.mote().is_done(), "{} wait; {names:?}", device.mote().waiting());
    assert!(names.contains(&"NotAsForwarded") && names.contains(&"EpochGoesBack"), "{names:?}");
    // The refused seals include the first seal of the epoch that the gateway has received. Its
    // index differs from the index in the earlier frame, because in the device's chain that index
    // belongs to an earlier seal.
    assert_eq!(device.refused(), 5);
    // After a restart, the device does not send the refused seals again.
    device.sync().unwrap();
    drop(device);
    let device = group::mote(&roster, 0, folder.path(), 16);
    assert!(device.mote().is_done() && device.mote().chain().next_index == SealIndex(7));
    for epoch in FIRST + 4..FIRST + 7 {
        station.end(EpochNumber(epoch)).unwrap();
        station.commit().unwrap();
    }
    let found: Vec<(u32, u64)> =
        group::sealed(&roster, &station).iter().map(|found| (found.0, found.1)).collect();
    assert_eq!(found, [(5, FIRST + 5), (6, FIRST + 6)]);
}

#[test]
fn abandons_a_permanently_refused_open_seal_and_states_it_in_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, EPOCH_MS);
    let id = group::device_id(&roster, 0);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let now = FIRST + 9;
    let mut device = group::mote(&roster, 0, folder.path(), 16);
    sense(&mut device, FIRST..FIRST + 1);
    exchange(&mut device, id, &mut station, now, 50);
    // The device opens a seal and loses its journal. The gateway receives the same index as a seal
    // of a later epoch.
    device.sense(EpochNumber(FIRST + 1), &[0; 4]).unwrap();
    device.frames(64).unwrap();
    drop(device);
    std::fs::remove_file(folder.path().join("mote-0/journal")).unwrap();
    let mut device = group::mote(&roster, 0, folder.path(), 16);
    let _ = station.receive(&earlier_frame(&roster, id, 1, FIRST + 3), EpochNumber(now)).unwrap();
    station.commit().unwrap();
    for (epoch, refused) in [(FIRST + 1, 1), (FIRST + 2, 2)] {
        (0..20u32).for_each(|n| device.sense(EpochNumber(epoch), &n.to_be_bytes()).unwrap());
        assert!(device.mote().opened().is_some());
        assert_eq!(exchange(&mut device, id, &mut station, now, 20), ["EpochGoesBack"]);
        assert_eq!((device.mote().opened(), device.refused()), (None, refused));
    }
    sense(&mut device, FIRST + 3..FIRST + 4);
    assert!(exchange(&mut device, id, &mut station, now, 50).is_empty());
    assert!(device.mote().is_done());
    for epoch in [FIRST, FIRST + 3] {
        station.end(EpochNumber(epoch)).unwrap();
        station.commit().unwrap();
    }
    assert_eq!(
        group::sealed(&roster, &station),
        [(0, FIRST, 20, false, true), (4, FIRST + 3, 20, true, true)]
    );
}

#[test]
fn keeps_temporarily_refused_seals_while_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, EPOCH_MS);
    let id = group::device_id(&roster, 0);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let mut device = group::mote(&roster, 0, folder.path(), 3);
    // The device's clock is a thousand epochs ahead.
    sense(&mut device, FIRST + 1000..FIRST + 1002);
    let names = exchange(&mut device, id, &mut station, FIRST, 30);
    assert!(!names.is_empty() && names.iter().all(|name| *name == "EpochTooFar"), "{names:?}");
    assert_eq!(
        (device.mote().waiting(), device.refused()),
        (2, 0),
        "refused seals wait while there is room"
    );
    sense(&mut device, FIRST + 1002..FIRST + 1003);
    exchange(&mut device, id, &mut station, FIRST, 30);
    assert_eq!(
        (device.mote().waiting(), device.refused()),
        (2, 1),
        "only the oldest seal is given up"
    );
    // The gateway's clock reaches the epoch.
    exchange(&mut device, id, &mut station, FIRST + 1003, 30);
    assert!(device.mote().is_done());
    assert_eq!(device.refused(), 1);
}

#[test]
fn a_temporary_refusal_does_not_lose_a_seal() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, EPOCH_MS);
    let id = group::device_id(&roster, 0);
    // The journal has room for only a few frames. Further frames are over the quota until the epoch
    // ends.
    let mut station = group::station(&roster, folder.path(), (1 << 20) + (8 << 10));
    let mut device = group::mote(&roster, 0, folder.path(), 1);
    for n in 0..2000u32 {
        device.sense(EpochNumber(FIRST), &n.to_be_bytes()).unwrap();
    }
    device.end(EpochNumber(FIRST)).unwrap();
    let names = exchange(&mut device, id, &mut station, FIRST, 60);
    assert!(names.contains(&"OverQuota"), "{names:?}");
    assert_eq!((device.mote().waiting(), device.refused()), (1, 0));
}

#[test]
fn a_device_that_loads_a_version_late_leaves_out_its_outdated_seals() {
    late_device(false);
}

#[test]
fn a_device_that_starts_with_a_late_version_leaves_out_its_outdated_seals() {
    late_device(true);
}

/// Lets a device seal under a version that a later one has made outdated. It loads the later version
/// while it runs, or restarts with it.
fn late_device(restarts: bool) {
    let folder = tempfile::tempdir().unwrap();
    let first = group::roster(1, 1000, EPOCH_MS);
    let change = PeriodChange { levels: Some(group::LEVELS + 1), ..PeriodChange::default() };
    let begin = EpochNumber(FIRST + 2);
    let second = group::next_version(&first, |next| next.begin_period(begin, &change));
    let id = group::device_id(&first, 0);
    let mut station = group::station(&second, folder.path(), BOUND);
    let mut device = group::mote(&first, 0, folder.path(), 16);
    sense(&mut device, FIRST..FIRST + 2);
    assert!(exchange(&mut device, id, &mut station, FIRST + 2, 50).is_empty());
    assert!(device.mote().is_done());

    // The gateway refuses the seals of the new period that name the first version.
    sense(&mut device, FIRST + 2..FIRST + 4);
    let names = exchange(&mut device, id, &mut station, FIRST + 4, 30);
    assert!(names.contains(&"RosterOutdated"), "{names:?}");
    assert_eq!(device.mote().waiting(), 2);
    device.sense(EpochNumber(FIRST + 4), &[0; 4]).unwrap();
    if restarts {
        device.sync().unwrap();
        drop(device);
        device = group::mote(&second, 0, folder.path(), 16);
        device.leave_outdated(&second).unwrap();
    } else {
        device.load(&second).unwrap();
    }
    assert_eq!((device.mote().waiting(), device.mote().opened()), (0, None));
    assert_eq!(device.mote().given_up(), 41, "the readings that are given up are counted");
    assert_eq!(device.mote().chain().position.last, Some((SealIndex(1), EpochNumber(FIRST + 1))));

    // The next seals follow the last one that the gateway has, also after a restart.
    sense(&mut device, FIRST + 4..FIRST + 5);
    device.sync().unwrap();
    drop(device);
    let mut device = group::mote(&second, 0, folder.path(), 16);
    sense(&mut device, FIRST + 5..FIRST + 6);
    let names = exchange(&mut device, id, &mut station, FIRST + 6, 50);
    assert!(device.mote().is_done() && names.is_empty(), "{names:?}");
    for epoch in FIRST..FIRST + 6 {
        station.end(EpochNumber(epoch)).unwrap();
        station.commit().unwrap();
    }
    assert_eq!(
        group::sealed(&second, &station),
        [
            (0, FIRST, 20, false, true),
            (1, FIRST + 1, 20, false, true),
            (5, FIRST + 4, 20, true, true),
            (6, FIRST + 5, 20, false, true)
        ]
    );
    // The audit has no findings: no seal is missing.
    let cloud = group::Cloud::default();
    cloud.take(&station);
    let audited = group::audit(&second, &cloud, &|_, _, _| None);
    assert_eq!(audited.justified, [FIRST, FIRST + 1, FIRST + 4, FIRST + 5]);
}
