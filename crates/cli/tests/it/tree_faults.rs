//! Tests trees in a group with a budget, with full buffers, exhausted slots and full disks. The
//! gateway accepts every seal and stays within its disk limit, and a device recovers the same seals
//! after every restart.

use crate::group;
use std::path::Path;

use crate::group::FIRST;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::SecretKey;
use moteseal_device::{DurableMote, Profile};
use moteseal_gateway::Station;
use moteseal_seal::level::SaltKey;
use moteseal_seal::wire::{MAX_RECORD, Uplink};
use moteseal_verify::Roster;

const BOUND: u64 = 1 << 30;
const EPOCH: EpochNumber = EpochNumber(FIRST);

/// Opens a device with one field, or with opaque records if `field` is `None`. `slots` is the
/// maximum number of closed seals that wait, and `most` the maximum number of events per seal.
fn mote(
    roster: &Roster,
    folder: &Path,
    slots: u32,
    (scheme, field, most): (Scheme, Option<&str>, u32),
) -> DurableMote<SecretKey> {
    let mut buffer = [0; 64];
    let fields: Vec<Field<'_>> =
        field.map(|field| Field::parse(field).unwrap()).into_iter().collect();
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let profile =
        Profile { max_events: most, ..Profile::new(roster, "mote-0", scheme, &schema).unwrap() };
    group::open_mote(roster, 0, folder, slots, |of| *of = profile).unwrap()
}

/// Delivers the frames that are due and the gateway's acknowledgements. Returns the names of
/// refusals.
fn exchange(mote: &mut DurableMote<SecretKey>, station: &mut Station) -> Vec<&'static str> {
    let frames = mote.frames(64).unwrap();
    if frames.is_empty() {
        mote.timeout();
    }
    let refused = frames
        .iter()
        .filter_map(|frame| station.receive(frame, EPOCH).err())
        .map(|refused| refused.name())
        .collect();
    for (_, message) in station.commit().unwrap().acknowledgements {
        let _ = mote.acknowledged(&message).unwrap().unwrap();
    }
    refused
}

/// Repeats [`exchange`] until nothing waits.
fn deliver(mote: &mut DurableMote<SecretKey>, station: &mut Station) {
    for _ in 0..200 {
        if mote.mote().is_done() {
            return;
        }
        assert_eq!(exchange(mote, station), Vec::<&str>::new());
    }
    panic!("the device is never done");
}

/// Ends the epoch, which moves its seals to the outbox.
fn end(station: &mut Station) {
    station.end(EPOCH).unwrap();
    let _ = station.commit().unwrap();
}

#[test]
fn accepts_a_seal_whose_round_rose_after_its_last_frame() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let folder = tempfile::tempdir().unwrap();
        let roster = group::roster(1, 100_000, 1000);
        let mut station = group::station(&roster, folder.path(), BOUND);
        let mut mote = mote(&roster, folder.path(), 8, (scheme, None, u32::MAX));
        // Choose the number of readings so that the next reading is of the last level. It will be
        // as long as the whole buffer.
        let salt = SaltKey::new([0x33; 32]).salt(group::device_id(&roster, 0), SealIndex(0));
        let is_last_level = |seq: &u64| {
            seq.count_ones() > 1 && salt.level(Sequence(*seq), group::LEVELS).0 == group::LEVELS - 1
        };
        let count = (3..).find(is_last_level).unwrap();
        (0..count).for_each(|_| mote.sense(EPOCH, &[7; 40]).unwrap());
        group::begin_session(&mut mote, &mut station);
        // All frames arrive, but the acknowledgement is lost.
        mote.frames(1000)
            .unwrap()
            .iter()
            .for_each(|frame| _ = station.receive(frame, EPOCH).unwrap());
        let _ = station.commit().unwrap();
        mote.sense(EPOCH, &vec![9; MAX_RECORD]).unwrap();
        mote.end(EPOCH).unwrap();
        deliver(&mut mote, &mut station);
        end(&mut station);
        let sensed: u64 =
            group::sealed(&roster, &station).iter().map(|(_, _, events, ..)| events).sum();
        assert_eq!(sensed, count + 1, "{scheme:?}");
    }
}

#[test]
fn a_seal_has_the_round_that_a_full_buffer_raised_last() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 100_000, 1000);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let mut mote = mote(&roster, folder.path(), 8, (Scheme::Tree, None, u32::MAX));
    for n in 0..300u32 {
        mote.sense(EPOCH, &n.to_be_bytes()).unwrap();
    }
    group::begin_session(&mut mote, &mut station);
    mote.frames(1000).unwrap().iter().for_each(|frame| _ = station.receive(frame, EPOCH).unwrap());
    let _ = station.commit().unwrap();
    // None of these frames is acknowledged, so the buffer fills many times.
    for n in 0..3000u32 {
        mote.sense(EPOCH, &[&n.to_be_bytes()[..], &[5; 100]].concat()).unwrap();
    }
    mote.end(EPOCH).unwrap();
    deliver(&mut mote, &mut station);
    end(&mut station);
    assert_eq!(group::sealed(&roster, &station), [(0, FIRST, 3300, false, true)]);
}

#[test]
fn records_of_any_length_make_a_tree_whose_rounds_rise_late() {
    let folder = tempfile::tempdir().unwrap();
    let roster = group::roster(1, 30, 1000);
    let mut station = group::station(&roster, folder.path(), BOUND);
    let mut mote = mote(&roster, folder.path(), 8, (Scheme::Tree, None, u32::MAX));
    for n in 0..3000usize {
        mote.sense(EPOCH, &vec![u8::try_from(n % 251).unwrap(); n * 37 % 900]).unwrap();
        if n % 400 == 399 {
            assert_eq!(exchange(&mut mote, &mut station), Vec::<&str>::new());
        }
    }
    mote.end(EPOCH).unwrap();
    deliver(&mut mote, &mut station);
    end(&mut station);
    assert_eq!(
        group::sealed(&roster, &station).iter().map(|(_, _, events, ..)| events).sum::<u64>(),
        3000
    );
}

/// Returns the closing frames that are due.
fn closing_frames(roster: &Roster, mote: &mut DurableMote<SecretKey>) -> Vec<Vec<u8>> {
    let key = group::link_key(roster, group::device_id(roster, 0));
    group::answer_challenge(roster, mote);
    mote.timeout();
    let frames = mote.frames(100_000).unwrap().into_iter();
    frames
        .filter(|frame| matches!(Uplink::open(frame, &key).unwrap(), Uplink::Close { .. }))
        .collect()
}

#[test]
fn given_up_seals_after_a_full_one_do_not_change_it() {
    // The seals are full because of their number of readings, or, for the last tree, because its
    // buffer is full.
    for (scheme, most, length) in
        [(Scheme::Star, 10, 20), (Scheme::Tree, 10, 20), (Scheme::Tree, u32::MAX, MAX_RECORD)]
    {
        for next_epoch in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let roster = group::roster(1, 1000, 1000);
            let open = || mote(&roster, folder.path(), 1, (scheme, None, most));
            let mut mote = open();
            while mote.mote().opened() < Some(SealIndex(if next_epoch { 1 } else { 2 })) {
                mote.sense(EPOCH, &vec![9; length]).unwrap();
            }
            if next_epoch {
                mote.sense(EpochNumber(FIRST + 1), &[9; 20]).unwrap();
            }
            mote.sync().unwrap();
            let before = closing_frames(&roster, &mut mote);
            assert_eq!(before.len(), 1, "one seal must wait, the other must be given up");
            drop(mote);
            for restart in 1..4 {
                let mut mote = open();
                assert_eq!(
                    closing_frames(&roster, &mut mote),
                    before,
                    "{scheme:?} of {length} bytes, restart {restart}"
                );
                mote.sync().unwrap();
            }
        }
    }
}

#[test]
fn a_gateway_keeps_its_disk_limit_with_digests_longer_than_readings() {
    let folder = tempfile::tempdir().unwrap();
    // At round 0 everything is forwarded. The last readings exceed the budget: half of all readings
    // are then kept, and digests replace the others.
    let (bound, readings) = (6 << 20, 590_000u64);
    for budget in [readings - 10_000, 80_000, 10_000] {
        let folder = folder.path().join(budget.to_string());
        let roster = group::roster(1, budget, 1000);
        let mut station = group::station(&roster, &folder, bound);
        let mut mote = mote(&roster, &folder, 8, (Scheme::Tree, Some("reading::u8"), u32::MAX));
        group::begin_session(&mut mote, &mut station);
        let mut forwarded = 0;
        for n in 0..readings {
            mote.sense(EPOCH, &[u8::try_from(n % 251).unwrap()]).unwrap();
            if n % 5000 == 4999 {
                if !station.has_room() {
                    break;
                }
                assert_eq!(exchange(&mut mote, &mut station), Vec::<&str>::new());
                forwarded = n;
            }
        }
        assert!(forwarded > 80_000, "{forwarded}");
        mote.end(EPOCH).unwrap();
        for _ in 0..200 {
            if mote.mote().is_done() || !station.has_room() {
                break;
            }
            let _ = exchange(&mut mote, &mut station);
        }
        end(&mut station);
        assert!(
            station.bytes() <= bound,
            "{} of {bound} bytes at a budget of {budget}",
            station.bytes()
        );
    }
}
