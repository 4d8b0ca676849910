//! Compares verification of several runs together, on one or several threads, with verification of
//! one run at a time. The rows and errors must be the same, for valid streams and for streams with
//! an error at any place.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::sleep;
use std::time::Duration;

use moteseal_core::record::Scheme;
use moteseal_core::signature::Algorithm;
use moteseal_fixtures::cbor_tree::{Value, encode_sequence, sequence};
use moteseal_fixtures::world::{Device, Epoch, FIXED, Pick, operator, roster, schema, stream};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::stream::MAX_RUN_PARTS;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

const DEVICES: [&str; 4] = ["ed", "north", "south", "east"];
/// The piece sizes, in bytes. With small pieces the reader verifies each run alone; with large
/// pieces it verifies several together.
const PIECES: [usize; 3] = [61, 5000, usize::MAX];

fn group() -> Roster {
    let keys: &[(Algorithm, u32)] = &[(Algorithm::Ed25519, 0)];
    let devices = DEVICES.map(|name| (name, keys));
    Roster::open(&roster(&devices), &operator().public()).unwrap()
}

/// Returns a stream of stars and trees, whole and partial, with other items between them. The
/// lengths of its runs are around the number of parts that a thread hashes at once.
fn answer(group: &Roster) -> Vec<u8> {
    let fixed = schema(FIXED);
    let mut bytes = Vec::new();
    for ((name, lengths), number) in
        DEVICES.into_iter().zip([&[1, 17, 2][..], &[40], &[1, 1, 1], &[12, 3]]).zip(0_usize..)
    {
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
            let pick = [Pick::Levels(0xff), Pick::Levels(0xfe), Pick::Levels(0)]
                [(run + number) % 3]
                .clone();
            bytes.extend(stream(&fixed, &seals, &pick));
        }
    }
    bytes
}

/// Returns a stream with more parts than the reader verifies together, and far more than it
/// processes ahead. It has runs of the maximum length and short runs.
fn long_answer(group: &Roster) -> Vec<u8> {
    let fixed = schema(FIXED);
    let mut bytes = Vec::new();
    for name in &DEVICES[1..] {
        let (mut device, mut epoch) = (Device::new(group, name, &fixed), 50);
        for length in [MAX_RUN_PARTS, 1, MAX_RUN_PARTS, 90] {
            let seals: Vec<_> = (0..length)
                .map(|_| {
                    epoch += 1;
                    device.seal(&Epoch::new(Scheme::Star, epoch, 3 + (epoch * 7 % 30) as u32))
                })
                .collect();
            bytes.extend(stream(&fixed, &seals, &Pick::Levels(0xff)));
        }
    }
    bytes
}

/// Reads a stream. Returns everything that the reader passed to its visitor, in order, then the
/// error, and the suspects.
fn outcome(
    group: &Roster,
    bytes: &[u8],
    piece: usize,
    threads: usize,
) -> (Vec<String>, Result<(), ReadError>, Vec<String>) {
    let mut out = Vec::new();
    let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
        if let Event::Proven(proven) = &event {
            let mut rows = 0;
            proven.sample.for_each(&Scalar, |seq, level, record| {
                out.push(format!("{seq:?} {level:?} {record:?}"));
                rows += 1;
            });
            out.push(format!(
                "{rows} rows of {:?} under {:?}, blocks {:?}",
                proven.seal, proven.schema, proven.blocks
            ));
        } else {
            out.push(format!("{event:?}"));
        }
        Ok(())
    };
    let limits = Limits { max_events: 1 << 12 };
    let mut reader = StreamReader::new(group, limits).with_threads(NonZero::new(threads).unwrap());
    let fed = bytes
        .chunks(piece.min(bytes.len().max(1)))
        .try_for_each(|piece| reader.feed(piece, &mut visit));
    let suspects = reader.suspects().iter().map(|suspect| format!("{suspect:?}")).collect();
    let result = fed.and_then(|()| reader.finish(&mut visit));
    (out, result, suspects)
}

/// Asserts that a stream has the same result with each tested combination of piece size and number
/// of threads. Returns whether the stream is rejected.
fn all_agree(group: &Roster, bytes: &[u8], what: &str) -> bool {
    let expected = outcome(group, bytes, PIECES[0], 1);
    for (piece, threads) in
        [(PIECES[1], 1), (PIECES[2], 1), (PIECES[1], 2), (PIECES[2], 2), (PIECES[2], 5)]
    {
        let found = outcome(group, bytes, piece, threads);
        assert!(
            found == expected,
            "{what}, {threads} threads, {piece} bytes per piece: {:?} for {:?}",
            found.1,
            expected.1
        );
    }
    expected.1.is_err()
}

#[test]
fn a_valid_stream_has_one_result_for_all_piece_sizes_and_thread_counts() {
    let group = group();
    let bytes = answer(&group);
    assert!(!all_agree(&group, &bytes, "whole"));
    let parts = outcome(&group, &bytes, PIECES[2], 2)
        .0
        .iter()
        .filter(|line| line.contains(" rows of "))
        .count();
    assert_eq!(parts, (1 + 17 + 2) + 40 + 3 + (12 + 3));
}

#[test]
fn a_truncated_stream_has_one_result_for_all_piece_sizes_and_thread_counts() {
    let group = group();
    let bytes = answer(&group);
    for at in (0..bytes.len()).step_by(bytes.len() / 40) {
        all_agree(&group, &bytes[..at], &format!("cut at {at}"));
    }
}

#[test]
fn a_stream_with_a_changed_byte_has_one_result_for_all_piece_sizes_and_thread_counts() {
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
fn a_stream_with_an_extra_or_missing_item_has_one_result_for_all_piece_sizes_and_thread_counts() {
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
        all_agree(&group, &encode_sequence(&swapped), &format!("item {at} after the next"));
        let mut strange = items.clone();
        strange.insert(at, Value::Array(vec![Value::Uint(3)]));
        all_agree(&group, &encode_sequence(&strange), &format!("an end before item {at}"));
    }
}

#[test]
fn a_stream_longer_than_the_pipeline_has_one_result_for_all_piece_sizes_and_thread_counts() {
    let group = group();
    let bytes = long_answer(&group);
    assert!(!all_agree(&group, &bytes, "whole"));
    for at in [bytes.len() / 10, bytes.len() / 2, bytes.len() - 20] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(all_agree(&group, &changed, &format!("byte {at}")));
    }
}

/// Why a visitor stops.
#[derive(Debug, PartialEq)]
enum Stop {
    Read(ReadError),
    Enough,
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

#[test]
fn a_visitor_that_stops_receives_nothing_more() {
    let group = group();
    let bytes = long_answer(&group);
    for (enough, threads) in [(1, 2), (2, 5), (257, 2), (600, 1), (600, 3), (1200, 2)] {
        let mut taken = 0;
        let mut reader = StreamReader::new(&group, Limits::default())
            .with_threads(NonZero::new(threads).unwrap());
        let fed = reader.feed(&bytes, &mut |_| {
            taken += 1;
            // Give the other threads time to reach their limits.
            if taken % 100 == 1 {
                sleep(Duration::from_millis(5));
            }
            if taken == enough { Err(Stop::Enough) } else { Ok(()) }
        });
        assert_eq!((fed, taken), (Err(Stop::Enough), enough), "{threads} threads");
        assert_eq!(
            reader.feed(&bytes, &mut |_| Err(Stop::Enough)),
            Ok(()),
            "a reader that has failed ignores further input"
        );
    }
}

#[test]
fn a_panicking_visitor_leaves_no_thread_waiting() {
    let group = group();
    let bytes = long_answer(&group);
    for threads in [1, 2, 5] {
        let mut reader = StreamReader::new(&group, Limits::default())
            .with_threads(NonZero::new(threads).unwrap());
        let mut taken = 0;
        let fed = catch_unwind(AssertUnwindSafe(|| {
            reader.feed::<ReadError>(&bytes, &mut |_| {
                taken += 1;
                assert!(taken < 300, "the visitor panics here");
                Ok(())
            })
        }));
        assert!(fed.is_err() && taken == 300);
    }
}
