//! Arrow columns contain the sealed values. The test compares every value of every type and scale
//! in every row with the result of a slow and simple computation.

use crate::support::{EPOCH, Group, LEVELS, Picked, coordinator, everything};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMillisecondType, UInt64Type};
use arrow_array::{Array, RecordBatch};
use moteseal_api::Query;
use moteseal_client::output::Batches;
use moteseal_core::record::{DeviceId, EpochNumber, Sequence};
use moteseal_seal::sample::permutation::{Swap, choose, scratch_for};
use moteseal_seal::sample::{Choice, Rate};
use proptest::prelude::*;

const BATCH: usize = 8192;
const HOUR: u64 = 3_600_000;
/// The last epoch that starts within the range of Arrow's timestamps. Timestamps in this epoch can
/// exceed that range.
const LAST_SIGNED: u64 = i64::MAX as u64 / HOUR;
/// The last epoch that starts within the range of unsigned 64-bit milliseconds.
const LAST: u64 = u64::MAX / HOUR;

const TYPES: [(&str, usize); 11] = [
    ("u8", 1),
    ("i8", 1),
    ("u16", 2),
    ("i16", 2),
    ("u32", 4),
    ("i32", 4),
    ("u64", 8),
    ("i64", 8),
    ("f32", 4),
    ("f64", 8),
    ("time", 4),
];

/// A field whose type is one of [`TYPES`].
#[derive(Clone, Copy, Debug)]
struct Shape {
    of: usize,
    divisor: u32,
    offset: i64,
}

impl Shape {
    fn has_scale(self) -> bool {
        self.of < 8 && (self.divisor, self.offset) != (1, 0)
    }

    fn text(self, place: usize) -> String {
        let scale = if self.has_scale() {
            format!("/{}{:+}", self.divisor, self.offset)
        } else {
            String::new()
        };
        format!("field {place}::{}{scale}", TYPES[self.of].0)
    }

    /// Asserts that a column contains the value of these bytes at `row`.
    fn check(self, column: &dyn Array, row: usize, bytes: &[u8], start_ms: Option<u64>) {
        let unsigned = bytes.iter().fold(0_i128, |value, byte| value << 8 | i128::from(*byte));
        let signed = if bytes[0] < 0x80 { unsigned } else { unsigned - (1 << (8 * bytes.len())) };
        let (name, raw) =
            (TYPES[self.of].0, if TYPES[self.of].0.starts_with('i') { signed } else { unsigned });
        if name == "time" {
            let column = column.as_primitive::<TimestampMillisecondType>();
            let expected =
                start_ms.map(|start| i128::from(start) + raw).and_then(|ms| i64::try_from(ms).ok());
            assert_eq!(column.is_valid(row).then(|| column.value(row)), expected);
            return;
        }
        assert!(column.is_valid(row));
        let float = match name {
            "f32" => Some(f64::from(f32::from_bits(unsigned as u32))),
            "f64" => Some(f64::from_bits(unsigned as u64)),
            _ => self
                .has_scale()
                .then(|| (raw + i128::from(self.offset)) as f64 / f64::from(self.divisor)),
        };
        match float {
            Some(float) => assert_eq!(
                column.as_primitive::<Float64Type>().value(row).to_bits(),
                float.to_bits()
            ),
            None if name == "u64" => {
                assert_eq!(i128::from(column.as_primitive::<UInt64Type>().value(row)), raw);
            }
            None => assert_eq!(i128::from(column.as_primitive::<Int64Type>().value(row)), raw),
        }
    }
}

/// A generator of pseudo-random bytes, which are often the minimum or the maximum of a type.
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 32
    }

    fn take(&mut self, size: usize) -> Vec<u8> {
        let (first, rest) = match self.next() % 12 {
            0 => (0, 0),
            1 => (0xff, 0xff),
            2 => (0x80, 0),
            3 => (0x7f, 0xff),
            _ => return (0..size).map(|_| self.next() as u8).collect(),
        };
        (0..size).map(|place| if place == 0 { first } else { rest }).collect()
    }
}

/// An expected row.
struct Row {
    epoch: u64,
    device: &'static str,
    index: u32,
    seq: u64,
    record: Vec<u8>,
}

/// Asserts that the batches contain exactly these rows.
fn check(batches: &[RecordBatch], shapes: &[Shape], rows: &[Row]) {
    assert!(batches.iter().rev().skip(1).all(|batch| batch.num_rows() == BATCH));
    assert!(batches.iter().all(|batch| batch.num_rows() <= BATCH));
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), rows.len());
    let mut rows = rows.iter();
    for batch in batches {
        for (at, row) in (0..batch.num_rows()).zip(&mut rows) {
            let start_ms = row.epoch.checked_mul(HOUR);
            let unsigned =
                |column: usize| batch.column(column).as_primitive::<UInt64Type>().value(at);
            assert_eq!(
                (unsigned(0), unsigned(3), unsigned(4)),
                (row.epoch, row.index.into(), row.seq)
            );
            assert_eq!(batch.column(2).as_string::<i32>().value(at), row.device);
            let start = batch.column(1).as_primitive::<TimestampMillisecondType>();
            assert_eq!(
                start.is_valid(at).then(|| start.value(at)),
                start_ms.and_then(|ms| i64::try_from(ms).ok())
            );
            if shapes.is_empty() {
                assert_eq!(batch.column(5).as_binary::<i32>().value(at), row.record);
            }
            let mut rest = &row.record[..];
            for (place, shape) in shapes.iter().enumerate() {
                let (bytes, tail) = rest.split_at(TYPES[shape.of].1);
                shape.check(batch.column(5 + place), at, bytes, start_ms);
                rest = tail;
            }
        }
    }
}

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let divisor = prop_oneof![Just(1), Just(100), Just(u32::MAX), 1..=u32::MAX];
    let offset =
        prop_oneof![3 => Just(0), 1 => Just(i64::MIN), 1 => Just(i64::MAX), 2 => any::<i64>()];
    let shape = (0..TYPES.len(), divisor, offset).prop_map(|(of, divisor, offset)| Shape {
        of,
        divisor,
        offset,
    });
    prop_oneof![1 => Just(Vec::new()), 6 => prop::collection::vec(shape, 1..8)]
}

/// Generates the number of events of each part of a device.
fn parts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(
        prop_oneof![
            3 => 0_usize..4,
            3 => 254_usize..=258,
            3 => 500_usize..900,
            1 => 8000_usize..9000,
        ],
        1..5,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn columns_contain_the_sealed_values(
        shapes in shapes(),
        devices in [parts(), parts()],
        first in prop_oneof![Just(EPOCH), LAST_SIGNED - 2..=LAST_SIGNED, LAST - 2..=LAST],
        rate in prop_oneof![Just((1, 1)), Just((1, 2)), Just((1, 8)), Just((5, 8))],
        seed: u64,
    ) {
        let group = Group::new();
        let rate = Rate::new(rate.0, rate.1).unwrap();
        let mask = rate.levels(LEVELS).unwrap();
        let texts: Vec<String> =
            shapes.iter().enumerate().map(|(place, shape)| shape.text(place)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut bytes = Bytes(seed);
        let (mut sealed, mut rows) = (Vec::new(), Vec::new());
        let mut names = ["mote-1", "mote-2"];
        names.sort_by_key(|name| group.device(name));
        for (device, parts) in names.into_iter().zip(&devices) {
            let mut position = group.start(device);
            // Each epoch has two parts.
            let places = (first..).flat_map(|epoch| [(epoch, false), (epoch, true)]);
            for ((epoch, is_last), count) in places.zip(parts) {
                let records: Vec<Vec<u8>> = (0..*count)
                    .map(|_| match &shapes[..] {
                        [] => { let size = bytes.next() as usize % 40; bytes.take(size) }
                        shapes => {
                            let sizes = shapes.iter().map(|shape| TYPES[shape.of].1);
                            sizes.flat_map(|size| bytes.take(size)).collect()
                        }
                    })
                    .collect();
                let part =
                    group.seal_part(device, &mut position, (epoch, is_last), &texts, &records);
                let statement = part.seal.statement();
                for (seq, record) in (0..).zip(records) {
                    if mask >> statement.salt.level(Sequence(seq), LEVELS).0 & 1 == 1 {
                        rows.push(Row { epoch, device, index: statement.index.0, seq, record });
                    }
                }
                sealed.push(part);
            }
        }
        let answer: Vec<_> = sealed.iter().map(|part| (part, mask)).collect();
        let devices: Vec<DeviceId> = names.iter().map(|name| group.device(name)).collect();
        let query = Query {
            devices,
            since: EpochNumber(first),
            until: Some(EpochNumber(first + 3)),
            choice: Choice::Rate(rate), columns: Vec::new() };
        let mut batches = Batches::new();
        group.verify(query, None, &group.answer(&answer), &mut batches).unwrap();
        prop_assert_eq!(batches.rows(), rows.len());
        check(&batches.finish().unwrap().1, &shapes, &rows);
    }
}

/// Rows are processed in chunks of 256. The samples of this test end before, at and after the
/// end of a chunk.
#[test]
fn drawn_events_of_a_tree_are_the_rows_of_a_table() {
    let group = Group::budgeted(1000);
    let records: Vec<u8> = (0..700_u32).map(|place| (place * 7) as u8).collect();
    let tree = group.seal_tree(&mut group.start("mote-1"), (EPOCH, true), 0, &records);
    let manifest = group.manifest_of(&coordinator(), EPOCH, 0, &[&tree.seal]);
    let seed = [5; 32];
    let drawn = |count: usize| -> Vec<Sequence> {
        let (mut chosen, mut scratch) = (vec![0; count], vec![Swap::FREE; scratch_for(count)]);
        let chosen = choose(
            &seed,
            group.device("mote-1"),
            EpochNumber(EPOCH),
            700,
            &mut chosen,
            &mut scratch,
        )
        .unwrap();
        chosen.sort_unstable();
        chosen.iter().map(|seq| Sequence(*seq)).collect()
    };
    let sampled = [1, 255, 256, 257, 512, 600].map(|count: u32| {
        let events = drawn(count as usize);
        (Choice::Sample { count, seed }, Picked::Events(events.clone()), events)
    });
    let whole = (everything(), Picked::Levels(u32::MAX), tree.at(u32::MAX));
    for (choice, picked, events) in sampled.into_iter().chain([whole]) {
        let row = |seq: &Sequence| {
            let record = vec![records[usize::try_from(seq.0).unwrap()]];
            Row { epoch: EPOCH, device: "mote-1", index: 0, seq: seq.0, record }
        };
        let rows: Vec<Row> = events.iter().map(row).collect();
        let answer = group.answer_of_trees(&[&manifest], &[(&tree, picked)]);
        let mut batches = Batches::new();
        group
            .verify(group.query(&["mote-1"], Some(EPOCH + 1), choice), None, &answer, &mut batches)
            .unwrap();
        check(&batches.finish().unwrap().1, &[Shape { of: 0, divisor: 1, offset: 0 }], &rows);
    }
}
