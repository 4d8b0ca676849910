//! How much less one of eight columns costs than all of them.

use moteseal_core::Digest;
use moteseal_core::record::{Framing, Level, Scheme, Sequence};
use moteseal_core::schema::{GroupLayout, Groups, Schema};
use moteseal_core::signature::Signer as _;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::Counters;
use moteseal_seal::star::{self, whole_block_digest};
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::{MAX_MESSAGE, Seal, tree};
use moteseal_verify::redaction::redact_part;
use moteseal_verify::{Event, ReadError, StreamReader, write};

use super::{Column, INDEX, LEVELS, SealIndex, World, redacted, roster};

/// Run with `cargo test --release -p moteseal-verify --test it -- --ignored --nocapture
/// one_of_eight_columns_is_cheap`.
#[test]
#[ignore = "measures time; run it in release on a quiet machine"]
fn one_of_eight_columns_is_cheap() {
    const EVENTS: u64 = 200_000;
    for scheme in [Scheme::Star, Scheme::Tree] {
        let world = World {
            columns: (0..8).map(|group| Column { group, width: Some(4) }).collect(),
            rows: Vec::new(),
            scheme,
            salt_key: [5; 32],
        };
        let whole = large(&world, EVENTS);
        let one = redacted(&whole, &[0]);
        let verify = |stream: &[u8]| {
            least_time(|| {
                let mut reader = StreamReader::new(&roster().0, Limits::default());
                let mut visit = |_: Event<'_>| Ok::<_, ReadError>(());
                reader.feed(stream, &mut visit).unwrap();
                reader.finish(&mut visit).unwrap();
            })
        };
        let (all, some) = (verify(&whole), verify(&one));
        let (mut redaction, mut hashed) = (f64::INFINITY, 0);
        let mut reader = StreamReader::new(&roster().0, Limits::default());
        let mut visit = |event: Event<'_>| {
            if let Event::Proven(proven) = event {
                redaction = least_time(|| {
                    let mut out = Vec::new();
                    redact_part(&mut out, &proven, Groups::FIRST).unwrap();
                    hashed = out.len();
                });
            }
            Ok::<_, ReadError>(())
        };
        reader.feed(&whole, &mut visit).unwrap();
        reader.finish(&mut visit).unwrap();
        let copy = least_time(|| std::hint::black_box(whole.clone()));
        let schema = Schema::decode(&world.schema()).unwrap().groups();
        let bytes = world.schema();
        let layout = GroupLayout::new(&Schema::decode(&bytes).unwrap(), schema).unwrap();
        let end = whole.len() - 66;
        let events = &whole[end - 32 * usize::try_from(EVENTS).unwrap()..end];
        let cells = least_time(|| {
            let mut out = Vec::new();
            let framing = Framing::fixed(32).unwrap();
            moteseal_lanes::copy_cells(&mut out, layout.cells(3), framing, events);
            out
        });
        println!(
            "{}: one of eight columns takes {:.3} of the bytes and {:.3} of the time; redaction with \
             digests {:.2}, and of cells alone {:.2}, times a copy of the whole",
            scheme.as_str(),
            one.len() as f64 / whole.len() as f64,
            some / all,
            redaction / copy,
            cells / copy,
        );
        assert!(one.len() * 4 <= whole.len() && some * 2.0 <= all);
    }
}

/// The least time of some runs, in seconds.
fn least_time<T>(mut run: impl FnMut() -> T) -> f64 {
    (0..9)
        .map(|_| {
            let start = std::time::Instant::now();
            std::hint::black_box(run());
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// A whole stream of many events, with the digests of the library.
fn large(world: &World, events: u64) -> Vec<u8> {
    let (roster, key) = roster();
    let bytes = world.schema();
    let schema = Schema::decode(&bytes).unwrap();
    let (layout, framing) =
        (GroupLayout::new(&schema, schema.groups()).unwrap(), Framing::fixed(32).unwrap());
    let (seal, _) = world.seal(roster, key);
    let mut statement = seal.statement().clone();
    let salt = statement.salt;
    statement.counters = Counters::of(&salt, LEVELS, u32::try_from(events).unwrap());
    let record = |seq: u64| [seq.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(); 4].concat();
    let mut blocks = vec![Vec::new(); usize::from(LEVELS)];
    let mut all = Vec::new();
    for seq in 0..events {
        let level = salt.level(Sequence(seq), LEVELS);
        blocks[usize::from(level.0)].extend(record(seq));
        all.extend(record(seq));
    }
    let (root, events) = match world.scheme {
        Scheme::Star => {
            let digests: Vec<Digest> = (0..)
                .map(Level)
                .zip(&blocks)
                .map(|(level, block)| {
                    let place = (World::device(), SealIndex(INDEX), level);
                    whole_block_digest(place, (Some(&layout), framing), block)
                })
                .collect();
            (
                star::root(&statement.counters, &digests),
                blocks.into_iter().rev().flatten().collect(),
            )
        }
        Scheme::Tree => {
            let selected = (0..events).map(Sequence);
            let n = events;
            (tree::groups_root(n, &layout, framing, &all, selected, &[]).unwrap(), all)
        }
    };
    let mask = statement.surviving();
    let seal = Seal::new(statement, root, key.algorithm());
    let signature = key.signature(seal.message(&mut [0; MAX_MESSAGE])).unwrap();
    let mut stream = Vec::new();
    write::schema(&mut stream, &bytes);
    let open = Open { device: World::device(), roster_version: 0, prev: None, last: None };
    write::open(&mut stream, &open);
    let events: Vec<u8> = events;
    write::part(&mut stream, &seal, Selection::Levels(mask), &[], &events, Some(&signature));
    stream
}
