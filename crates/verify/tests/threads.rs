//! Verifying runs together, and on several threads, gives the rows and refusals that reading them one by one gives: of streams that
//! are right, and of streams with anything wrong about them anywhere.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod common;

use std::num::NonZero;

use common::value::{Value, encode_sequence, sequence};
use common::world::{Device, Epoch, FIXED, Pick, operator, roster, schema, stream};
use moteseal_core::engine::Scalar;
use moteseal_core::seal::Scheme;
use moteseal_core::seal::follow::Limits;
use moteseal_core::signature::Algorithm;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

const DEVICES: [&str; 4] = ["ed", "north", "south", "east"];
/// Small pieces bring every run alone; large ones bring them together.
const PIECES: [usize; 3] = [61, 5000, usize::MAX];

fn group() -> Roster {
    let keys: &[(Algorithm, u32)] = &[(Algorithm::Ed25519, 0)];
    let devices = DEVICES.map(|name| (name, keys));
    Roster::open(&roster(&devices), &operator().public()).unwrap()
}

/// Runs of every length around a thread's share, of stars and trees, whole and in part, and what else may stand between them.
fn answer(group: &Roster) -> Vec<u8> {
    let fixed = schema(FIXED);
    let mut bytes = Vec::new();
    for ((name, lengths), number) in DEVICES.into_iter().zip([&[1, 17, 2][..], &[40], &[1, 1, 1], &[12, 3]]).zip(0_usize..) {
        let mut device = Device::new(group, name, &fixed);
        let mut epoch = 50;
        for (&length, run) in lengths.iter().zip(0..) {
            let seals: Vec<_> = (0..length)
                .map(|seal| {
                    epoch += 1;
                    let scheme = if (seal + number) % 5 == 4 { Scheme::Tree } else { Scheme::Star };
                    device.seal(&Epoch::new(scheme, epoch, 3 + (epoch * 7 % 30) as u32))
                })
                .collect();
            let pick = [Pick::Levels(0xff), Pick::Levels(0xfe), Pick::Levels(0)][(run + number) % 3].clone();
            bytes.extend(stream(&fixed, &seals, &pick));
        }
    }
    bytes
}

/// All that comes out of a reader: what it hands out, in order, then why it stopped, and what it suspects.
fn outcome(group: &Roster, bytes: &[u8], piece: usize, threads: usize) -> (Vec<String>, Result<(), ReadError>, Vec<String>) {
    let mut out = Vec::new();
    let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
        if let Event::Proven(proven) = &event {
            let mut rows = 0;
            proven.sample.for_each(&Scalar, |seq, level, record| {
                out.push(format!("{seq:?} {level:?} {record:?}"));
                rows += 1;
            });
            out.push(format!("{rows} rows of {:?} under {:?}, blocks {:?}", proven.seal, proven.schema, proven.blocks));
        } else {
            out.push(format!("{event:?}"));
        }
        Ok(())
    };
    let limits = Limits { max_events: 1 << 12 };
    let mut reader = StreamReader::new(group, limits).with_threads(NonZero::new(threads).unwrap());
    let fed = bytes.chunks(piece.min(bytes.len().max(1))).try_for_each(|piece| reader.feed(piece, &mut visit));
    let suspects = reader.suspects().iter().map(|suspect| format!("{suspect:?}")).collect();
    let result = fed.and_then(|()| reader.finish(&mut visit));
    (out, result, suspects)
}

/// Judges one stream in every way; whether it is refused.
fn all_agree(group: &Roster, bytes: &[u8], what: &str) -> bool {
    let expected = outcome(group, bytes, PIECES[0], 1);
    for (piece, threads) in [(PIECES[1], 1), (PIECES[2], 1), (PIECES[1], 2), (PIECES[2], 2), (PIECES[2], 5)] {
        let found = outcome(group, bytes, piece, threads);
        assert!(found == expected, "{what}, {threads} threads, {piece} bytes a piece: {:?} for {:?}", found.1, expected.1);
    }
    expected.1.is_err()
}

#[test]
fn a_stream_that_is_right_gives_the_same_in_every_way() {
    let group = group();
    let bytes = answer(&group);
    assert!(!all_agree(&group, &bytes, "whole"));
    let parts = outcome(&group, &bytes, PIECES[2], 2).0.iter().filter(|line| line.contains(" rows of ")).count();
    assert_eq!(parts, (1 + 17 + 2) + 40 + 3 + (12 + 3));
}

#[test]
fn a_stream_that_is_cut_gives_the_same_in_every_way() {
    let group = group();
    let bytes = answer(&group);
    for at in (0..bytes.len()).step_by(bytes.len() / 40) {
        all_agree(&group, &bytes[..at], &format!("cut at {at}"));
    }
}

#[test]
fn a_stream_with_a_changed_byte_gives_the_same_in_every_way() {
    let group = group();
    let bytes = answer(&group);
    let mut refused = 0;
    for at in (0..bytes.len()).step_by(bytes.len() / 150) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        refused += u32::from(all_agree(&group, &changed, &format!("byte {at}")));
    }
    assert!(refused > 140, "{refused}");
}

#[test]
fn a_stream_with_an_item_too_many_or_too_few_gives_the_same_in_every_way() {
    let group = group();
    let items = sequence(&answer(&group));
    for at in (0..items.len()).step_by(3) {
        let mut fewer = items.clone();
        let item = fewer.remove(at);
        all_agree(&group, &encode_sequence(&fewer), &format!("without item {at}"));
        let mut more = items.clone();
        more.insert(at, item);
        all_agree(&group, &encode_sequence(&more), &format!("item {at} twice"));
        let mut swapped = items.clone();
        swapped.swap(at, (at + 1) % items.len());
        all_agree(&group, &encode_sequence(&swapped), &format!("item {at} behind the next"));
        let mut strange = items.clone();
        strange.insert(at, Value::Array(vec![Value::Uint(3)]));
        all_agree(&group, &encode_sequence(&strange), &format!("an end before item {at}"));
    }
}
