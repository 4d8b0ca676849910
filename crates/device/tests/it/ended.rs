//! Tests of the newest epoch that has ended, which a mote keeps for clients: its stream verifies, and
//! states what the device gave up.

use moteseal_core::link::LinkKey;
use moteseal_core::record::{EpochNumber, Scheme, SealIndex, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::SecretKey;
use moteseal_device::mote::{BUFFER, EndedEpoch, MAX_ENDED, Progress};
use moteseal_device::{Chain, Mote, Profile};
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_verify::{Event, ReadError, StreamReader};

use crate::sensors::{roster, secret};

/// Returns a mote whose seals have a buffer of `N` bytes and at most `max_events` readings, and of
/// whose seals at most `waiting` wait. Without columns, records are opaque.
fn mote<const N: usize>(
    scheme: Scheme,
    columns: &[&str],
    (waiting, max_events): (usize, u32),
) -> Mote<SecretKey, N> {
    let mut buffer = [0; MAX_SCHEMA];
    let fields: Vec<Field<'_>> = columns.iter().map(|text| Field::parse(text).unwrap()).collect();
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let mut profile = Profile::new(&roster(), "dev1", scheme, &schema).unwrap();
    profile.max_events = max_events;
    let (device, chain) = (profile.device, Chain::start(profile.certificate));
    let session = DeviceSession::new(device, LinkKey::new(&[7; 32]), 1);
    let mut mote =
        Mote::new(profile, secret(), SaltKey::new([3; 32]), session, chain, Vec::new(), waiting);
    mote.keep_ended();
    mote
}

/// A part of a stream that verifies: its readings, those that are in the part, and whether it states
/// a restart.
type Part = (u64, u32, bool);

/// Verifies the stream of an epoch as a file of bundles.
fn parts(ended: &EndedEpoch) -> Vec<Part> {
    let (roster, mut parts) = (roster(), Vec::new());
    let mut reader = StreamReader::new(&roster, Limits::default());
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(proven) = event {
            let statement = proven.seal.statement();
            assert!(proven.is_whole(), "the part has every level that survives");
            assert_eq!(statement.epoch, ended.epoch);
            parts.push((statement.counters.total(), proven.sample.len(), statement.restart));
        }
        Ok::<(), ReadError>(())
    };
    reader.feed(ended.stream.as_ref().unwrap(), &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    parts
}

fn sense<const N: usize>(mote: &mut Mote<SecretKey, N>, epoch: u64, count: u32) {
    for number in 0..count {
        mote.sense(EpochNumber(epoch), &number.to_be_bytes()).unwrap();
    }
}

#[test]
fn an_epoch_is_kept_with_all_its_seals_until_the_next_one_has_ended() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        for columns in [&["place::u32"][..], &[]] {
            let mut mote = mote::<BUFFER>(scheme, columns, (100, 100));
            sense(&mut mote, 7, 250);
            assert_eq!(mote.ended(), None, "the epoch has not ended");
            sense(&mut mote, 8, 1);
            let ended = mote.ended().unwrap().clone();
            assert_eq!(parts(&ended), [(100, 100, false), (100, 100, false), (50, 50, false)]);
            mote.end(EpochNumber(8)).unwrap();
            assert_eq!(parts(mote.ended().unwrap()), [(1, 1, false)]);
            mote.end(EpochNumber(9)).unwrap();
            assert_eq!(parts(mote.ended().unwrap()), [(0, 0, false)], "nothing was sensed");
        }
    }
}

#[test]
fn levels_that_the_device_gave_up_are_not_in_the_parts() {
    for (scheme, columns) in
        [(Scheme::Star, &["place::u32"][..]), (Scheme::Star, &[]), (Scheme::Tree, &[])]
    {
        // A buffer for some twenty events makes the device raise its own round.
        let mut mote = mote::<300>(scheme, columns, (100, 100));
        sense(&mut mote, 7, 100);
        mote.end(EpochNumber(7)).unwrap();
        let parts = parts(mote.ended().unwrap());
        let sum = |of: fn(&Part) -> u64| parts.iter().map(of).sum::<u64>();
        let (all, kept) = (sum(|part| part.0), sum(|part| part.1.into()));
        assert_eq!(all, 100);
        assert!(0 < kept && kept < 60, "{scheme:?}: {kept} of {all}");
    }
}

#[test]
fn the_parts_state_the_seals_that_were_given_up() {
    let mut mote = mote::<BUFFER>(Scheme::Star, &["place::u32"], (2, 100));
    sense(&mut mote, 7, 150);
    mote.end(EpochNumber(7)).unwrap();
    let ended = mote.ended().unwrap().clone();
    assert_eq!(parts(&ended).len(), 2);
    // Two seals wait, so that the seals of the next epoch are given up.
    sense(&mut mote, 8, 10);
    mote.end(EpochNumber(8)).unwrap();
    assert_eq!(mote.ended().unwrap(), &ended, "no seal states the epoch");
    mote.set_most_waiting(3);
    sense(&mut mote, 9, 10);
    mote.end(EpochNumber(9)).unwrap();
    assert_eq!(parts(mote.ended().unwrap()), [(10, 10, true)]);
}

#[test]
fn an_epoch_that_is_too_long_is_not_kept_and_the_next_one_is() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        for (count, is_kept) in [(31, true), (33, false)] {
            let mut mote = mote::<BUFFER>(scheme, &[], (100, 100));
            for number in 0..count {
                mote.sense(EpochNumber(7), &vec![5; MAX_ENDED / 32]).unwrap();
                // The gateway stores each reading at once, so that the device gives up none.
                let (index, next) = (SealIndex(0), Sequence(number + 1));
                mote.advance(&Progress { index, next, sealed: None });
            }
            mote.end(EpochNumber(7)).unwrap();
            let ended = mote.ended().unwrap();
            assert_eq!((ended.epoch, ended.stream.is_some()), (EpochNumber(7), is_kept));
            if is_kept {
                assert_eq!(parts(ended), [(31, 31, false)]);
            }
            sense(&mut mote, 8, 3);
            mote.end(EpochNumber(8)).unwrap();
            assert_eq!(parts(mote.ended().unwrap()), [(3, 3, false)]);
        }
    }
}

/// The number is that of docs/readings.md.
#[test]
fn a_seal_costs_less_than_a_byte_for_each_reading() {
    let columns = ["temperature:Cel:i16/100", "humidity:%RH:u16/100"];
    for scheme in [Scheme::Star, Scheme::Tree] {
        let mut mote = mote::<BUFFER>(scheme, &columns, (9, 1000));
        sense(&mut mote, 7, 298);
        mote.end(EpochNumber(7)).unwrap();
        let ended = mote.ended().unwrap();
        assert_eq!(parts(ended), [(298, 298, false)]);
        let cost = ended.stream.as_ref().unwrap().len() - 298 * 4;
        assert_eq!((cost, 100 * cost / 298), (196, 65), "{scheme:?}");
    }
}
