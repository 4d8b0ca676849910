//! Tests of noise (spec/sums.md, section 2.4): the noise of a key group has the stated distribution,
//! an answer with noise is differentially private, and results are within the stated distance.

use std::collections::HashMap;

use moteseal_core::GroupId;
use moteseal_core::digest::Digest;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_sum::query::{MAX_SLOTS, Plan, Value};
use moteseal_sum::sies::{MaskKey, MaskRoot};

pub(crate) const GROUP: GroupId = GroupId([1; 8]);
/// The number of steps of a summed column.
const STEPS: f64 = 32.0;

pub(crate) fn schema() -> Vec<u8> {
    let fields = ["t:Cel:i16/100", "room::u8"].map(|column| Field::parse(column).unwrap());
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

pub(crate) fn record(t: i16, room: u8) -> [u8; 3] {
    let [high, low] = t.to_be_bytes();
    [high, low, room]
}

/// Returns the keys of the sources of a key group for a query.
fn keys(seed: u8, ring: u32) -> Vec<MaskKey> {
    let root = MaskRoot::new([seed; 32]);
    let of = |position| root.source(GROUP, 0..ring, position).for_query(&Digest([9; 32]));
    (0..ring).map(of).collect()
}

/// Parses a query over `t` from -10 to 50 degrees.
fn plan<'a>(text: &'a str, schema: &'a Schema<'a>) -> Plan<'a> {
    let mut plan = Plan::parse(text, schema).map_err(|error| error.to_string()).unwrap();
    let _ = plan.narrow("t", "-10", "50");
    plan
}

/// Returns the totals of the slots over one key group in an epoch. Sources from `honest` on add no
/// noise: they contribute the mean.
fn totals(
    plan: &Plan<'_>,
    schema: &Schema<'_>,
    keys: &[MaskKey],
    records: &[Option<[u8; 3]>],
    epoch: u64,
) -> Vec<u128> {
    let bound = plan.bind(schema).unwrap();
    let ring = u32::try_from(keys.len()).unwrap();
    let mut totals = vec![0; plan.slots().count()];
    for (key, record) in keys.iter().zip(records) {
        let mut slots = [0; MAX_SLOTS];
        let record = record.as_ref().map(|record| &record[..]);
        let noise = key.noise(epoch, ring);
        assert_eq!(bound.contribution_with_noise(record, &noise, &mut slots), Ok(totals.len()));
        for ((total, slot), value) in totals.iter_mut().zip(plan.slots()).zip(slots) {
            assert!(value <= slot.most());
            *total += value;
        }
    }
    totals
}

/// The epsilon of the queries of the tests of the distribution.
const EPSILON: f64 = 0.5;

/// Returns how often each number of readings is reported by `trials` epochs of a query that selects
/// `readings` of the readings of the first `honest` sources of a key group of `ring`. The other
/// sources add no noise.
fn reported(
    seed: u8,
    (ring, honest): (u32, usize),
    readings: usize,
    trials: u64,
) -> HashMap<i64, u64> {
    let schema = schema();
    let schema = Schema::decode(&schema).unwrap();
    let plan =
        plan("SELECT COUNT(*) FROM sensors WHERE room = 3 EPSILON 0.5 EPOCH DURATION 1s", &schema);
    let bound = plan.bind(&schema).unwrap();
    let keys = keys(seed, ring);
    // The number that a source without a selected reading contributes if it adds no noise.
    let mean = (plan.slots().next().unwrap().most() - 1) / 2;
    let mut found = HashMap::new();
    for epoch in 0..trials {
        let mut total = (u128::from(ring) - honest as u128) * mean;
        for (place, key) in keys.iter().enumerate().take(honest) {
            let mut slots = [0; MAX_SLOTS];
            let record = record(2000, if place < readings { 3 } else { 4 });
            let noise = key.noise(epoch, ring);
            bound.contribution_with_noise(Some(&record), &noise, &mut slots).unwrap();
            total += slots[0];
        }
        let totals = [total];
        let answer = plan.answer(&totals, ring, 1).unwrap();
        let Some(Some(Value::Noisy(count, _))) = answer.values().next() else { panic!() };
        *found.entry(i64::try_from(count.digits().unwrap()).unwrap()).or_default() += 1;
    }
    found
}

/// Returns the probability of `z` under the two-sided geometric distribution.
fn two_sided_geometric(z: i64, epsilon: f64) -> f64 {
    let alpha = (-epsilon).exp();
    (1.0 - alpha) / (1.0 + alpha) * alpha.powf(z.abs() as f64)
}

/// Half of the sources of a key group add noise: the sum has exactly the two-sided geometric
/// distribution. The test statistic is below its 99.99 % quantile.
#[test]
fn half_of_a_key_group_adds_the_noise_of_the_two_sided_geometric_distribution() {
    for (seed, ring, honest) in [(1, 5, 3), (2, 8, 4), (3, 2, 1), (4, 40, 20)] {
        let trials = 20_000;
        let found = reported(seed, (ring, honest), 0, trials);
        // The classes are the numbers from -10 to 10, and all above and below.
        let classes = 10;
        let class = |z: i64| z.clamp(-classes - 1, classes + 1);
        let mut observed = HashMap::new();
        found.iter().for_each(|(z, times)| *observed.entry(class(*z)).or_insert(0) += times);
        let statistic: f64 = (-classes - 1..=classes + 1)
            .map(|z| {
                let expected = if z.abs() <= classes {
                    two_sided_geometric(z, EPSILON)
                } else {
                    (1.0 - (-classes..=classes)
                        .map(|z| two_sided_geometric(z, EPSILON))
                        .sum::<f64>())
                        / 2.0
                };
                let (observed, expected) =
                    (*observed.get(&z).unwrap_or(&0) as f64, expected * trials as f64);
                (observed - expected).powi(2) / expected
            })
            .sum();
        // 22 degrees of freedom.
        assert!(statistic < 54.0, "ring {ring}: {statistic}");
    }
}

/// A querier guesses from the reported number whether a certain device has a reading in the room. Its
/// advantage over 100,000 answers is at most that of (epsilon, delta)-differential privacy, whatever
/// threshold it uses, although the other half of the key group adds no noise.
#[test]
fn no_guess_is_better_than_epsilon_allows() {
    let trials: u64 = std::env::var("MOTESEAL_PRIVACY_TRIALS")
        .ok()
        .and_then(|trials| trials.parse().ok())
        .unwrap_or(20_000);
    let (without, with) = (reported(5, (5, 3), 1, trials), reported(6, (5, 3), 2, trials));
    let above = |found: &HashMap<i64, u64>, threshold: i64| {
        let count: u64 =
            found.iter().filter(|(z, _)| **z >= threshold).map(|(_, times)| times).sum();
        count as f64 / trials as f64
    };
    let best = (-20..20)
        .map(|threshold| above(&with, threshold) - above(&without, threshold))
        .fold(0.0, f64::max);
    // The greatest difference of the probabilities of an event that pure differential privacy
    // permits, and four standard errors.
    let bound = EPSILON.exp_m1() / (EPSILON.exp() + 1.0);
    let error = 4.0 * (0.5 / trials as f64).sqrt();
    assert!(best <= bound + error, "{best} is above {bound}");
    // The noise is not larger than necessary: the bound is reached.
    assert!(best >= bound - error, "{best} is below {bound}");
}

#[test]
fn noise_depends_on_the_query_the_epoch_the_field_and_the_source() {
    let schema = schema();
    let schema = Schema::decode(&schema).unwrap();
    let plan = plan("SELECT HISTOGRAM(t) FROM sensors EPSILON 1 EPOCH DURATION 1s", &schema);
    let bound = plan.bind(&schema).unwrap();
    let root = MaskRoot::new([7; 32]);
    let values = |query: u8, epoch, position| {
        let key = root.source(GROUP, 0..5, position).for_query(&Digest([query; 32]));
        let mut slots = [0; MAX_SLOTS];
        bound.contribution_with_noise(None, &key.noise(epoch, 5), &mut slots).unwrap();
        slots
    };
    let first = values(1, 10, 0);
    assert_eq!(values(1, 10, 0), first);
    for other in [values(2, 10, 0), values(1, 11, 0), values(1, 10, 1)] {
        assert_ne!(other, first);
    }
    // The fields of the bins differ from each other.
    assert!(first[..4].windows(2).any(|pair| pair[0] != pair[1]));
}

#[test]
fn results_are_within_the_stated_distance_in_95_percent_of_epochs() {
    let schema = schema();
    let schema = Schema::decode(&schema).unwrap();
    let text = "SELECT COUNT(*), SUM(t), AVG(t), MEDIAN(t), HISTOGRAM(t) FROM sensors WHERE room < 9 EPSILON 4 EPOCH DURATION 1s";
    let plan = plan(text, &schema);
    let ring = 25;
    let keys = keys(8, ring);
    let records: Vec<Option<[u8; 3]>> =
        (0..25).map(|at: i16| (at != 7).then(|| record(1500 + 20 * at, 1))).collect();
    let inside: Vec<f64> = records
        .iter()
        .flatten()
        .map(|record| f64::from(i16::from_be_bytes([record[0], record[1]])) / 100.0)
        .collect();
    let (count, sum) = (inside.len() as f64, inside.iter().sum::<f64>());
    let exact = [count, sum, sum / count];
    let (epochs, mut outside, mut medians, mut bins) = (400, [0; 3], 0, 0);
    for epoch in 0..epochs {
        let totals = totals(&plan, &schema, &keys, &records, epoch);
        let answer = plan.answer(&totals, ring, 1).unwrap();
        for (at, value) in answer.values().enumerate() {
            match value {
                Some(Value::Noisy(value, within)) => {
                    let number = |text: String| text.parse::<f64>().unwrap();
                    let distance = (number(value.to_string()) - exact[at]).abs();
                    outside[at] += u32::from(distance > number(within.to_string()));
                }
                Some(Value::Bin(bin)) => {
                    let number = |bound: Option<_>, none| {
                        bound.map_or(none, |bound: moteseal_sum::query::FixedPoint| {
                            bound.to_string().parse::<f64>().unwrap()
                        })
                    };
                    let range = number(bin.low, -1e9)..=number(bin.high, 1e9);
                    medians += u32::from(!range.contains(&17.4));
                }
                Some(Value::Histogram(histogram)) => {
                    // All readings are in the bins from 12.5 to 20 and from 20 to 27.5 degrees.
                    let within = i64::try_from(histogram.within()).unwrap();
                    let far = histogram.bins().zip([0, 0, 0, 24, 0, 0, 0, 0]);
                    bins +=
                        far.filter(|((_, found), exact)| (found - exact).abs() > within).count();
                }
                None => assert!(at > 1),
                other => panic!("{other:?}"),
            }
        }
    }
    let most = u32::try_from(epochs).unwrap() * 8 / 100;
    assert!(outside.iter().all(|outside| *outside <= most), "{outside:?} of {epochs}");
    assert!(medians <= most && bins <= 8 * most as usize, "{medians}, {bins}");
}

#[test]
fn rounding_to_steps_does_not_change_the_mean() {
    let schema = schema();
    let schema = Schema::decode(&schema).unwrap();
    let plan = plan("SELECT SUM(t) FROM sensors EPSILON 4 EPOCH DURATION 1s", &schema);
    let bound = plan.bind(&schema).unwrap();
    let keys = keys(3, 2);
    // 12.34 degrees are 11.914... steps of 1.875 degrees above -10.
    let (steps, trials) = ((12.34 + 10.0) / 60.0 * STEPS, 20_000);
    let mean: f64 = (0..trials)
        .map(|epoch| {
            let of = |record: Option<&[u8]>| {
                let mut slots = [0; MAX_SLOTS];
                bound
                    .contribution_with_noise(record, &keys[0].noise(epoch, 2), &mut slots)
                    .unwrap();
                // The fields are the number of readings and the steps, with 48 bits each.
                (slots[0] >> 48) as f64
            };
            of(Some(&record(1234, 1))) - of(None)
        })
        .sum::<f64>()
        / f64::from(u32::try_from(trials).unwrap());
    assert!((mean - steps).abs() < 0.02, "{mean} is not {steps}");
}
