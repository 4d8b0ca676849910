//! Measures private sums. On one thread and in units of D, it measures the cost per reading at a
//! source, per child at an aggregator, and per source at the querier. On all threads and in
//! wall-clock time, it measures a complete query, from frame to result, for 64 sources to a
//! million.

use std::hint::black_box;
use std::time::Instant;

use moteseal_client::sum::{Querier, Question};
use moteseal_core::link::LinkKey;
use moteseal_core::participation::{self, Participation};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::{DeviceId, Digest, GroupId};
use moteseal_lanes::Host;
use moteseal_sum::engine::{KeyEngine, Scalar};
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::{MAX_PLAN, Plan, QueryId};
use moteseal_sum::sies::{KeyGroupKey, KeyLanes, KeyTotals, LANES, Master, Psr, Slot, SourceKey};
use moteseal_sum::wire::{SumUplink, close_share};

use crate::hashing::dependent_compressions;
use crate::measure::{Bar, Contender, Report, interleaved, median};

const QUERY: QueryId = QueryId([5; 16]);
const GROUP: GroupId = GroupId([1; 8]);
const SLOT: Slot = Slot(0);
const EPOCH: u64 = 1_000;

fn sources(n: usize) -> impl Iterator<Item = SourceKey> {
    let master = Master::new([7; 32]);
    (0..n as u64).map(move |i| master.source(GROUP, DeviceId(i.to_be_bytes()), 0).for_query(QUERY))
}

/// Runs all measurements.
pub(crate) fn run() -> Report {
    let host = Host::detect();
    let mut report = Report::new(format!(
        "private sums, one thread; host loops: {}; D = one dependent SHA-256 compression",
        host.name()
    ));
    steps(&mut report);
    for n in [64, 1024, 16_384] {
        querier(&mut report, host, n);
    }
    for n in [64, 1024, 16_384, 131_072, 1_000_000] {
        answer(&mut report, host, n);
    }
    report
}

/// Measures the complete querier, from an epoch's frame to the answer, with every hundredth source
/// silent. Also measures the set-up for a query.
fn answer(report: &mut Report, host: Host, n: u32) {
    const EPOCHS: u64 = 5;
    let mut schema = [0; MAX_SCHEMA];
    let schema = Schema::encode(&[Field::parse("reading::u16").expect("a field")], &mut schema)
        .expect("a schema");
    let mut plan = [0; MAX_PLAN];
    let parsed = Plan::parse("SELECT SUM(reading) FROM sensors EPOCH DURATION 30s", &schema)
        .expect("a query");
    let plan = parsed.encode(&mut plan).expect("a plan fits").to_vec();
    let bound = parsed.bind(&schema).expect("the schema of the query");
    let question = Question {
        group: GROUP,
        roster: Digest([2; 32]),
        nonce: [3; 16],
        plan,
        key_group: n,
        floor: 2,
        min_count: 1,
        masked: None,
    };
    let (id, master) = (question.id(), Master::new([7; 32]));
    let devices: Vec<DeviceId> = (0..u64::from(n)).map(|i| DeviceId(i.to_be_bytes())).collect();
    let sources: Vec<SourceKey> =
        devices.iter().map(|device| master.source(GROUP, *device, 0).for_query(id)).collect();
    let start = Instant::now();
    let mut querier =
        Querier::new(question, &master, &devices, host, &|_| ()).expect("a valid question");
    let set_up = start.elapsed();
    let mut set = vec![0_u64; n.div_ceil(64) as usize];
    let answers = |i: u32| i % 100 != 50;
    (0..n).filter(|i| answers(*i)).for_each(|i| set[i as usize / 64] |= 1 << (i % 64));
    let mut participation = vec![0; participation::max_size(n)];
    let length = Participation::encode(&set, &mut participation).expect("the set fits");
    let link = LinkKey::new(&[9; 32]);
    let mut times = Vec::new();
    for epoch in EPOCH..EPOCH + EPOCHS {
        let (mut sum, mut expected) = (Psr::ZERO, 0);
        for (i, source) in (0..n).zip(&sources).filter(|(i, _)| answers(*i)) {
            let reading = u16::try_from(i % 1000).expect("below 1000").to_be_bytes();
            let mut value = [0];
            bound.contribution(Some(&reading), &mut value).expect("a reading");
            let mut permit =
                EpochGuard::default().advance(id, 1, epoch).expect("a new guard takes any epoch");
            sum = sum
                .merge(&source.encrypt(&mut permit, SLOT, value[0]).expect("the value is small"));
            expected += i128::from(i % 1000);
        }
        let mut frame = vec![0; length + 128];
        let frame =
            close_share(id.reference(), epoch, &participation[..length], &[sum], &link, &mut frame)
                .expect("the frame fits");
        let start = Instant::now();
        let Ok(SumUplink::Share(share)) = SumUplink::open(frame, &link) else {
            panic!("not a share")
        };
        let found = querier.open(epoch, &share).expect("an honest sum");
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        assert_eq!(found.values()[0].and_then(|value| value.number()?.digits()), Some(expected));
    }
    let bar = (n == 1_000_000).then_some(Bar::AtMost(150.0));
    report.add(
        format!("querier: an epoch of {n}, frame to answer, all threads"),
        median(times),
        "ms",
        bar,
    );
    report.add("  set-up, once a query", set_up.as_secs_f64() * 1000.0, "ms", None);
}

fn steps(report: &mut Report) {
    const READINGS: u64 = 2_000;
    let source = sources(1).next().expect("there is one");
    let encrypted: Vec<Psr> = (0..1024_u64)
        .map(|i| {
            let mut permit = EpochGuard::default()
                .advance(QUERY, 1, EPOCH + i)
                .expect("a new guard takes any epoch");
            source.encrypt(&mut permit, SLOT, i.into()).expect("the value is small")
        })
        .collect();
    let bytes: Vec<[u8; 32]> = encrypted.iter().map(Psr::to_bytes).collect();
    let mut epoch = 0;
    let mut guard = EpochGuard::default();
    let encrypt = Contender::new(READINGS as usize, || {
        for reading in 0..READINGS {
            epoch += 1;
            let mut permit = guard.advance(QUERY, 1, epoch).expect("epochs ascend");
            black_box(
                source
                    .encrypt(&mut permit, SLOT, black_box(reading).into())
                    .expect("the value is small")
                    .to_bytes(),
            );
        }
    });
    let merge = Contender::new(bytes.len(), || {
        let sum = bytes.iter().try_fold(Psr::ZERO, |sum, bytes| {
            Psr::from_bytes(black_box(bytes)).map(|psr| sum.merge(&psr))
        });
        black_box(sum.is_ok());
    });
    let times = interleaved(101, &mut [dependent_compressions(), encrypt, merge]);
    report.add("D", times.nanoseconds(0), "ns", None);
    report.add("source: a reading, guard and encryption", times.ratio(1, 0), "D", Bar::AtMost(8.0));
    report.add(
        "aggregator: a child, read, checked, added",
        times.ratio(2, 0),
        "D",
        Bar::AtMost(0.4),
    );
}

/// Measures opening one slot of an epoch in which every tenth source is silent.
fn querier(report: &mut Report, host: Host, n: usize) {
    let key = Master::new([7; 32]).key_group(GROUP, 0).for_query(QUERY);
    let mut lanes = vec![KeyLanes::default(); n.div_ceil(LANES)];
    let mut present = vec![0_u16; lanes.len()];
    let mut sum = Psr::ZERO;
    for (i, source) in sources(n).enumerate() {
        lanes[i / LANES].set(i % LANES, &source);
        if i % 10 != 3 {
            present[i / LANES] |= 1 << (i % LANES);
            let mut permit = EpochGuard::default()
                .advance(QUERY, 1, EPOCH)
                .expect("a new guard takes any epoch");
            sum = sum.merge(&source.encrypt(&mut permit, SLOT, 1).expect("the value is small"));
        }
    }
    let (fast, slow) =
        (open(host, &lanes, &present, &sum, &key), open(Scalar, &lanes, &present, &sum, &key));
    let times = interleaved(
        31,
        &mut [dependent_compressions(), Contender::new(n, fast), Contender::new(n, slow)],
    );
    let name = format!("querier: a source of {n}, keys, shares, opening");
    report.add(name, times.ratio(1, 0), "D", Bar::AtMost(4.0));
    report.add("  without vectors", times.ratio(2, 0), "D", None);
}

fn open<'a, E: KeyEngine + 'a>(
    engine: E,
    lanes: &'a [KeyLanes],
    present: &'a [u16],
    sum: &'a Psr,
    key: &'a KeyGroupKey,
) -> impl FnMut() + 'a {
    let expected: u32 = present.iter().map(|present| present.count_ones()).sum();
    move || {
        let mut totals = KeyTotals::default();
        engine.sum_keys(lanes, present, SLOT, EPOCH, &mut totals);
        assert_eq!(totals.open(black_box(sum), key, SLOT, EPOCH, 1), Ok(expected.into()));
    }
}
