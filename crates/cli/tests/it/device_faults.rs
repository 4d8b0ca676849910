//! Tests a device in four situations: its gateway has lost acknowledged frames, a reading is too
//! long, a seal is full, or the state of the device is old. The device continues, and its seals
//! state the losses. Device and gateway run the code of `device run` and `gateway run`, without a
//! link between them.

use crate::group;
use std::path::Path;

use crate::group::{Cloud, FIRST};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Round, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_core::signature::SecretKey;
use moteseal_device::durable::DurableError;
use moteseal_device::{DurableMote, Outbox, Profile, SealRefused};
use moteseal_gateway::Station;
use moteseal_seal::sample::{Announcement, MAX_ANNOUNCEMENT};
use moteseal_seal::wire::{MAX_RECORD, Uplink};
use moteseal_verify::Roster;

const BOUND: u64 = 1 << 30;
const EPOCH: EpochNumber = EpochNumber(FIRST);

/// Makes a device with room for three waiting seals, and its gateway, in a folder.
fn scene() -> (tempfile::TempDir, Roster, Station, DurableMote<SecretKey>) {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, 1000);
    let station = group::station(&roster, folder.path(), BOUND);
    let mote = group::mote(&roster, 0, folder.path(), 3);
    (folder, roster, station, mote)
}

/// Delivers frames and acknowledgements until the device has nothing left to send. Frames that are
/// not acknowledged are sent again `patience` times.
fn exchange(
    mote: &mut DurableMote<SecretKey>,
    station: &mut Station,
    now: EpochNumber,
    patience: usize,
) {
    let mut tries = 0;
    while tries < patience && !mote.mote().is_done() {
        let frames = mote.frames(64).unwrap();
        if frames.is_empty() {
            tries += 1;
            mote.timeout();
        }
        for frame in frames {
            let _ = station.receive(&frame, now).unwrap();
        }
        for (_, acknowledgement) in station.commit().unwrap().acknowledgements {
            mote.acknowledged(&acknowledgement).unwrap().unwrap();
        }
    }
}

fn sense(mote: &mut DurableMote<SecretKey>, epoch: EpochNumber, readings: std::ops::Range<u32>) {
    readings.for_each(|n| mote.sense(epoch, &n.to_be_bytes()).unwrap());
}

fn end(station: &mut Station, epoch: EpochNumber) {
    station.end(epoch).unwrap();
    let _ = station.commit().unwrap();
}

/// Returns a function that changes a profile to opaque records.
fn opaque(roster: &Roster) -> impl FnOnce(&mut Profile) {
    let mut buffer = [0; 64];
    let schema = Schema::encode(&[], &mut buffer).unwrap();
    let opaque = Profile::new(roster, "mote-0", Scheme::Star, &schema).unwrap();
    move |profile| *profile = opaque
}

#[test]
fn a_reading_of_any_length_reaches_the_gateway_or_is_refused_without_effect_on_others() {
    for length in [
        0,
        1,
        1000,
        65_277,
        65_278,
        MAX_RECORD,
        MAX_RECORD + 1,
        65_529,
        65_530,
        65_535,
        65_536,
        100_000,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let roster = group::roster(1, 100, 1000);
        let mut station = group::station(&roster, folder.path(), BOUND);
        let mut mote = group::open_mote(&roster, 0, folder.path(), 3, opaque(&roster)).unwrap();
        mote.sense(EPOCH, b"before").unwrap();
        let sensed = mote.sense(EPOCH, &vec![7; length]);
        if length <= MAX_RECORD {
            sensed.unwrap();
        } else {
            assert!(
                matches!(sensed, Err(DurableError::Refused(SealRefused::TooLong { .. }))),
                "{length}: {sensed:?}"
            );
        }
        mote.sense(EPOCH, b"after").unwrap();
        mote.end(EPOCH).unwrap();
        mote.sync().unwrap();
        drop(mote);
        let mut mote = group::open_mote(&roster, 0, folder.path(), 3, opaque(&roster)).unwrap();
        exchange(&mut mote, &mut station, EPOCH, 3);
        assert!(mote.mote().is_done(), "{length} bytes never reach the gateway");
        end(&mut station, EPOCH);
        assert_eq!(
            group::sealed(&roster, &station),
            [(0, FIRST, 2 + u64::from(length <= MAX_RECORD), false, true)]
        );
    }
}

#[test]
fn closes_a_full_seal_and_continues_its_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 50, 1000);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let small = |profile: &mut Profile| profile.max_events = 100;
    let mut mote = group::open_mote(&roster, 0, folder.path(), 8, small).unwrap();
    for start in [0, 100, 200] {
        sense(&mut mote, EPOCH, start..start + 100);
        exchange(&mut mote, &mut station, EPOCH, 1);
    }
    sense(&mut mote, EPOCH, 300..310);
    drop(mote);
    // Readings that were not synced do not count as taken.
    let mut mote = group::open_mote(&roster, 0, folder.path(), 8, small).unwrap();
    let (_, taken) = mote.taken().unwrap();
    sense(&mut mote, EPOCH, u32::try_from(taken).unwrap()..310);
    mote.end(EPOCH).unwrap();
    exchange(&mut mote, &mut station, EPOCH, 3);
    assert!(mote.mote().is_done());
    end(&mut station, EPOCH);
    let parts = |index, last| (index, FIRST, if last { 10 } else { 100 }, false, last);
    assert_eq!(
        group::sealed(&roster, &station),
        [parts(0, false), parts(1, false), parts(2, false), parts(3, true)]
    );
    let cloud = Cloud::default();
    cloud.take(&station);
    let audited = group::audit(&roster, &cloud, &|_, _, _| None);
    assert_eq!(audited.justified, [FIRST]);
}

/// Removes the gateway's folder and starts a new gateway.
fn lose(station: Station, roster: &Roster, folder: &Path) -> Station {
    drop(station);
    std::fs::remove_dir_all(folder.join("gateway")).unwrap();
    group::station(roster, folder, BOUND)
}

#[test]
fn gives_up_an_open_seal_that_the_gateway_lost_and_states_it_in_the_next() {
    let (folder, roster, mut station, mut mote) = scene();
    sense(&mut mote, EPOCH, 0..500);
    exchange(&mut mote, &mut station, EPOCH, 1);
    assert_eq!(mote.mote().buffered(), 0, "everything must have been acknowledged");
    let mut station = lose(station, &roster, folder.path());
    sense(&mut mote, EPOCH, 500..510);
    exchange(&mut mote, &mut station, EPOCH, 8);
    assert_eq!(mote.mote().opened(), None, "the lost seal must be given up");
    // A device that is killed now recovers the same state.
    drop(mote);
    let mut mote = group::mote(&roster, 0, folder.path(), 3);
    assert_eq!((mote.mote().opened(), mote.mote().chain().next_index), (None, SealIndex(1)));
    sense(&mut mote, EPOCH, 510..520);
    mote.end(EPOCH).unwrap();
    exchange(&mut mote, &mut station, EPOCH, 3);
    assert!(mote.mote().is_done(), "later seals must be accepted");
    end(&mut station, EPOCH);
    assert_eq!(group::sealed(&roster, &station), [(1, FIRST, 10, true, true)]);
}

#[test]
fn a_closed_seal_that_the_gateway_lost_does_not_block_later_ones() {
    let (folder, roster, mut station, mut mote) = scene();
    sense(&mut mote, EPOCH, 0..500);
    exchange(&mut mote, &mut station, EPOCH, 1);
    let mut station = lose(station, &roster, folder.path());
    mote.end(EPOCH).unwrap();
    let next = EpochNumber(FIRST + 1);
    sense(&mut mote, next, 0..70);
    mote.end(next).unwrap();
    exchange(&mut mote, &mut station, next, 3);
    assert!(
        mote.mote().has(SealIndex(0)),
        "after a few tries the gateway may still be reading its journal"
    );
    exchange(&mut mote, &mut station, next, 8);
    assert!(mote.mote().is_done());
    end(&mut station, next);
    // The next seal refers to the missing seal as its predecessor. It states no restart, because no
    // index was skipped.
    assert_eq!(group::sealed(&roster, &station), [(1, FIRST + 1, 70, false, true)]);
}

#[test]
fn a_gateway_that_has_an_older_copy_of_its_state_gets_the_next_seal() {
    let (folder, roster, mut station, mut mote) = scene();
    sense(&mut mote, EPOCH, 0..100);
    exchange(&mut mote, &mut station, EPOCH, 1);
    let journal = folder.path().join("gateway/journal");
    let copy = std::fs::read(&journal).unwrap();
    sense(&mut mote, EPOCH, 100..500);
    exchange(&mut mote, &mut station, EPOCH, 1);
    drop(station);
    std::fs::write(&journal, copy).unwrap();
    let mut station = group::station(&roster, folder.path(), BOUND);
    mote.end(EPOCH).unwrap();
    exchange(&mut mote, &mut station, EPOCH, 8);
    let next = EpochNumber(FIRST + 1);
    sense(&mut mote, next, 0..7);
    mote.end(next).unwrap();
    exchange(&mut mote, &mut station, next, 8);
    assert!(mote.mote().is_done());
    end(&mut station, next);
    assert_eq!(group::sealed(&roster, &station), [(1, FIRST + 1, 7, false, true)]);
}

#[test]
fn late_acknowledgements_lose_no_seal() {
    let (_folder, _, mut station, mut mote) = scene();
    group::begin_session(&mut mote, &mut station);
    sense(&mut mote, EPOCH, 0..100);
    let frames = mote.frames(64).unwrap();
    for frame in &frames {
        let _ = station.receive(frame, EPOCH).unwrap();
    }
    let (_, old) = station.commit().unwrap().acknowledgements.remove(0);
    sense(&mut mote, EPOCH, 100..200);
    exchange(&mut mote, &mut station, EPOCH, 1);
    // After each of 40 timeouts, an old acknowledgement arrives ten times. After every third
    // timeout the gateway responds.
    for wait in 0..40 {
        mote.timeout();
        (0..10).for_each(|_| {
            assert!(
                !mote.acknowledged(&old).unwrap().unwrap(),
                "an old acknowledgement had an effect"
            );
        });
        if wait % 3 == 2 {
            exchange(&mut mote, &mut station, EPOCH, 1);
            sense(&mut mote, EPOCH, 0..1);
            exchange(&mut mote, &mut station, EPOCH, 1);
        }
    }
    assert_eq!(mote.mote().opened(), Some(SealIndex(0)));
}

#[test]
fn accepts_an_announcement_of_the_open_epoch_although_another_device_is_ahead() {
    let roster = group::roster(1, 1000, 1000);
    let next = EpochNumber(FIRST + 1);
    let announcement = |epoch: EpochNumber, round: u8| {
        let mut out = [0; MAX_ANNOUNCEMENT];
        let coordinator = group::secret(group::COORDINATOR);
        Announcement::issue(roster.group(), epoch, Round(round), &coordinator, &mut out)
            .unwrap()
            .to_vec()
    };
    // Returns the frames for the gateway and the size of the buffer in the next epoch, after this
    // many restarts of the device.
    let after_restarts = |restarts: usize| {
        let folder = tempfile::tempdir().unwrap();
        let mut mote = group::mote(&roster, 0, folder.path(), 3);
        group::answer_challenge(&roster, &mut mote);
        sense(&mut mote, EPOCH, 0..500);
        for (epoch, round, is_accepted) in
            [(next, 2, false), (EPOCH, 3, true), (EPOCH, 1, false), (next, 1, false)]
        {
            let before = mote.mote().buffered();
            mote.announced(&announcement(epoch, round)).unwrap().unwrap();
            assert_eq!(
                mote.mote().buffered() < before,
                is_accepted,
                "epoch {epoch}, round {round}"
            );
        }
        assert_eq!(mote.newest_announced(), Some(next));
        mote.sync().unwrap();
        for _ in 0..restarts {
            drop(mote);
            mote = group::mote(&roster, 0, folder.path(), 3);
            group::answer_challenge(&roster, &mut mote);
        }
        sense(&mut mote, next, 0..500);
        (mote.frames(1000).unwrap(), mote.mote().buffered())
    };
    let (frames, buffered) = after_restarts(0);
    // The device keeps an eighth of the first epoch (round 3) and a quarter of the next (round 2).
    let link = group::link_key(&roster, group::device_id(&roster, 0));
    let forwarded = frames.iter().filter_map(|frame| match Uplink::open(frame, &link) {
        Ok(Uplink::Forward(forward)) => {
            Some(forward.events().map(|(_, level, _)| level.0).collect::<Vec<_>>())
        }
        _ => None,
    });
    let levels: Vec<u8> = forwarded.flatten().collect();
    assert!(
        levels.iter().all(|level| *level >= 3) && (30..100).contains(&levels.len()),
        "{levels:?}"
    );
    assert!((80 * 11..180 * 11).contains(&buffered), "{buffered}");
    for restarts in [1, 2] {
        assert_eq!(
            after_restarts(restarts),
            (frames.clone(), buffered),
            "after {restarts} restarts"
        );
    }
}

/// Opens the state of the chain, the only file that `moteseal device run` and `moteseal seal`
/// share.
fn chain_state(folder: &Path, roster: &Roster) -> (Outbox, moteseal_device::Chain) {
    let folder = folder.join("mote-0");
    Outbox::open(&folder.join("sealed"), &folder.join("chain"), roster, group::device_id(roster, 0))
        .unwrap()
}

#[test]
fn another_sealer_does_not_reuse_an_index_that_the_journal_opened() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 1000, 1000);
    let chain = folder.path().join("mote-0/chain");
    let mut mote = group::mote(&roster, 0, folder.path(), 3);
    let before = std::fs::read(&chain).ok();
    sense(&mut mote, EPOCH, 0..10);
    mote.sync().unwrap();
    drop(mote);
    // Restore a copy of the chain's state, and its lock, that is older than the journal.
    std::fs::remove_file(folder.path().join("mote-0/chain.lock")).unwrap();
    match before {
        Some(before) => std::fs::write(&chain, before).unwrap(),
        None => std::fs::remove_file(&chain).unwrap(),
    }
    let (outbox, state) = chain_state(folder.path(), &roster);
    let mut buffer = [0; 256];
    let fields = [moteseal_core::schema::Field::parse("reading::u32").unwrap()];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let profile = Profile::new(&roster, "mote-0", Scheme::Star, &schema).unwrap();
    let salt_key = moteseal_seal::level::SaltKey::new([0x33; 32]);
    let mut sealer = moteseal_device::Sealer::new(profile, group::secret(0), salt_key, state);
    sealer.push(EPOCH, &[1; 4]).unwrap();
    let bundle = sealer.close(true).unwrap().unwrap();
    assert_eq!(bundle.index(), SealIndex(0));
    outbox.store(&[bundle], &mut |_| {}).unwrap();
    drop(outbox);
    let opened = group::open_mote(&roster, 0, folder.path(), 3, |_| {});
    assert!(
        matches!(opened, Err(DurableError::SealedElsewhere { .. })),
        "index 0 would be signed twice: {opened:?}"
    );
}

#[test]
fn the_chain_state_has_an_opened_seal_before_the_journal() {
    let (folder, roster, mut station, mut mote) = scene();
    sense(&mut mote, EPOCH, 0..10);
    mote.sync().unwrap();
    drop(mote);
    // Simulate a kill after the device has written a second seal to the chain's state, but not yet
    // to the journal.
    let (outbox, state) = chain_state(folder.path(), &roster);
    assert_eq!(state.next_index, SealIndex(1));
    outbox
        .persist(&moteseal_device::Chain {
            next_index: SealIndex(2),
            epoch: Some(EpochNumber(FIRST + 1)),
            ..state
        })
        .unwrap();
    drop(outbox);
    for _ in 0..2 {
        let mote = group::mote(&roster, 0, folder.path(), 3);
        assert_eq!(mote.taken(), Some((EPOCH, 10)), "the open seal must not change");
        assert_eq!(
            (mote.mote().opened(), mote.mote().chain().next_index),
            (Some(SealIndex(0)), SealIndex(2))
        );
    }
    let mut mote = group::mote(&roster, 0, folder.path(), 3);
    sense(&mut mote, EPOCH, 10..30);
    let next = EpochNumber(FIRST + 1);
    sense(&mut mote, next, 0..5);
    mote.end(next).unwrap();
    exchange(&mut mote, &mut station, next, 3);
    assert!(mote.mote().is_done());
    end(&mut station, EPOCH);
    end(&mut station, next);
    // The next seal states the skipped index, as after any restart.
    assert_eq!(
        group::sealed(&roster, &station),
        [(0, FIRST, 30, false, true), (2, FIRST + 1, 5, true, true)]
    );
}

#[test]
fn waiting_readings_keep_their_scheme() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 50, 1000);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let tree = |profile: &mut Profile| profile.scheme = Scheme::Tree;
    let mut mote = group::open_mote(&roster, 0, folder.path(), 3, tree).unwrap();
    sense(&mut mote, EPOCH, 0..30);
    mote.sync().unwrap();
    drop(mote);
    // With another scheme the device would sign the same index a second time with a different
    // statement.
    let refused = group::open_mote(&roster, 0, folder.path(), 3, |_| {}).unwrap_err();
    assert!(matches!(refused, DurableError::OtherScheme(_, Scheme::Tree)), "{refused:?}");
    assert!(
        refused.to_string().contains(
            "sealed by tree, that the gateway does not have yet; run once more with that scheme"
        ),
        "{refused}"
    );
    let mut mote = group::open_mote(&roster, 0, folder.path(), 3, tree).unwrap();
    mote.end(EPOCH).unwrap();
    exchange(&mut mote, &mut station, EPOCH, 3);
    mote.sync().unwrap();
    drop(mote);
    // When nothing is left to send, the device may use another scheme for the next readings.
    let mut mote = group::open_mote(&roster, 0, folder.path(), 3, |_| {}).unwrap();
    let next = EpochNumber(EPOCH.0 + 1);
    sense(&mut mote, next, 0..5);
    mote.end(next).unwrap();
    exchange(&mut mote, &mut station, next, 3);
    end(&mut station, EPOCH);
    end(&mut station, next);
    assert_eq!(
        group::sealed(&roster, &station),
        [(0, FIRST, 30, false, true), (1, FIRST + 1, 5, false, true)]
    );
}
