//! A querier that the policy does not trust with the readings: the devices mask their answers, so
//! that only the sums of whole key groups open.

use std::collections::BTreeSet;

use moteseal_client::sum::{Epochs, Outcome, Participants, Received, ResultValue, Row};
use moteseal_core::schema::MAX_SCHEMA;
use moteseal_sum::query::{MAX_SLOTS, Plan, QueryId};
use moteseal_sum::sies::{MaskRoot, Slot};

use crate::sum_support::{
    Chance, Contribution, Scene, opened, record, roster, schema, seeds, tree,
};

const FIRST: u64 = 1007;
const SOURCES: u32 = 20;
/// The size of a key group, which is the minimum of the policy.
const KEY_GROUP: u32 = 5;
const QUERY: &str = "SELECT SUM(light) FROM sensors EPOCH DURATION 5s";

fn scene(seed: u64) -> Scene {
    scene_of(seed, QUERY)
}

fn scene_of(seed: u64, query: &str) -> Scene {
    let roster = roster(SOURCES as usize);
    let mut chance = Chance(seed);
    let tree = tree(&roster, 3, &mut chance);
    let mut scene = Scene::new(roster, tree, query, KEY_GROUP, 2, &mut chance);
    let mut all = Participants::none(SOURCES);
    all.insert(0..SOURCES);
    scene.question.masked = Some(all);
    scene.question.min_count = 5;
    scene
}

/// Returns a source's masked share of the value `100 + position`, with noise if the query asks for it.
fn share(scene: &Scene, epoch: u64, position: u32) -> Contribution {
    let reading = [0, 0, 100 + i64::from(position), 0];
    let start = position / KEY_GROUP * KEY_GROUP;
    let root = MaskRoot::new([0x77; 32]);
    let (question, plan) = (&scene.question, &scene.question.plan);
    let whole = QueryId::whole(&question.roster, &question.nonce, plan);
    let secret = root.source(scene.question.group, start..start + KEY_GROUP, position);
    let key = secret.for_query(&whole);
    let decoded = Plan::decode(plan).unwrap();
    let mut share = if decoded.has_noise() {
        let (mut buffer, mut slots) = ([0; MAX_SCHEMA], [0; MAX_SLOTS]);
        let (schema, noise) = (schema(&mut buffer), key.noise(epoch, KEY_GROUP));
        let bound = decoded.bind(&schema).unwrap();
        let record = record(&reading);
        let count = bound.contribution_with_noise(Some(&record), &noise, &mut slots).unwrap();
        scene.encrypt(position, position / KEY_GROUP, scene.id, epoch, &slots[..count])
    } else {
        scene.answer(position, epoch, Some(&reading))
    };
    for ((_, slot), psr) in &mut share.psrs {
        *psr = key.cover(psr, Slot(*slot), epoch);
    }
    share
}

fn sum(scene: &Scene, epoch: u64, positions: impl IntoIterator<Item = u32>) -> Contribution {
    let mut sum = Contribution::default();
    positions.into_iter().for_each(|position| sum.merge(&share(scene, epoch, position)));
    sum
}

/// Closes an epoch in which these sources have answered. `alter` changes what the gateways send.
fn closed(
    scene: &Scene,
    answered: &BTreeSet<u32>,
    alter: impl FnOnce(&mut Contribution),
) -> (Row, bool) {
    let mut epochs = Epochs::new(scene.group(), scene.querier(), 1000, FIRST);
    let mut alter = Some(alter);
    for child in epochs.aggregator().children().to_vec() {
        let place = epochs.aggregator().child(child.id).unwrap();
        let below = answered
            .iter()
            .copied()
            .filter(|position| epochs.aggregator().owner(*position) == Some(place));
        let mut share = sum(scene, FIRST, below);
        if let Some(alter) = alter.take() {
            alter(&mut share);
        }
        let frame = share.frame(scene.id, FIRST, SOURCES);
        assert_eq!(epochs.receive(child.id, &opened(&frame)), Received::Kept);
    }
    let (row, failed) = epochs.close();
    (row, failed.is_some())
}

/// The results of a condition have noise, and are near the exact ones. They are not withheld, although
/// few readings match.
#[test]
fn a_condition_is_answered_with_noise() {
    let query = "SELECT COUNT(*) FROM sensors WHERE light > 116 EPSILON 2 EPOCH DURATION 5s";
    let all: BTreeSet<u32> = (0..SOURCES).collect();
    let mut numbers = BTreeSet::new();
    for seed in 1..=8 {
        let scene = scene_of(seed, query);
        let (row, _) = closed(&scene, &all, |_| ());
        let Outcome::Accepted(accepted) = &row.outcome else { panic!("{row:?}") };
        let [Some(ResultValue::Noisy(number, within))] = accepted.values()[..] else {
            panic!("{accepted:?}")
        };
        let (number, within) = (number.digits().unwrap(), within.digits().unwrap());
        // Three readings match. The noise of four key groups exceeds three times the distance of 95 %
        // with a probability below 10^-5.
        assert!(
            (1..20).contains(&within) && (number - 3).abs() <= 3 * within,
            "{number} ± {within}"
        );
        numbers.insert(number);
    }
    assert!(numbers.len() > 1, "there is no noise");
}

#[test]
fn a_result_is_over_the_key_groups_of_which_all_devices_have_answered() {
    let scene = scene(1);
    let all: BTreeSet<u32> = (0..SOURCES).collect();
    let (row, _) = closed(&scene, &all, |_| ());
    let Outcome::Accepted(accepted) = &row.outcome else { panic!("{row:?}") };
    assert_eq!((accepted.participants().count(), row.masked.count()), (SOURCES, 0));
    // A device of the second key group is silent.
    let mut others = all.clone();
    others.remove(&7);
    let (row, _) = closed(&scene, &others, |_| ());
    let Outcome::Accepted(accepted) = &row.outcome else { panic!("{row:?}") };
    let expected: i128 = (0..SOURCES)
        .filter(|position| !(5..10).contains(position))
        .map(|position| 100 + i128::from(position))
        .sum();
    assert_eq!(accepted.values()[0].unwrap().number().unwrap().digits(), Some(expected));
    assert_eq!(accepted.count(), SOURCES - 5);
    assert_eq!(row.masked.iter().collect::<Vec<_>>(), [5, 6, 8, 9]);
    assert_eq!(row.silent().collect::<Vec<_>>(), [7]);
    assert_eq!((row.participants.count(), row.unheard()), (SOURCES - 5, 0));
    // A device of each key group is silent.
    let few: BTreeSet<u32> = all.iter().copied().filter(|position| position % 5 != 3).collect();
    let (row, is_localised) = closed(&scene, &few, |_| ());
    let Outcome::Missing(refusal) = &row.outcome else { panic!("{row:?}") };
    assert_eq!((refusal.name(), is_localised), ("BelowFloor", false));
}

/// Finding C3 of the review: no single encrypted value goes to the querier.
#[test]
fn an_altered_sum_is_rejected_without_a_question_about_single_devices() {
    let scene = scene(2);
    let all: BTreeSet<u32> = (0..SOURCES).collect();
    let (row, is_localised) = closed(&scene, &all, |share| {
        let psr = share.psrs.values_mut().next().unwrap();
        *psr = psr.merge(&psr.clone());
    });
    let Outcome::Rejected { refusal, findings } = &row.outcome else { panic!("{row:?}") };
    assert_eq!(refusal.name(), "SharesMismatch");
    assert!(refusal.to_string().contains("key group"), "{refusal}");
    assert!(findings.is_empty() && !is_localised);
}

/// Findings C3 and C4 of the review: whatever subset of the encrypted values a querier obtains, and
/// whichever devices are dropped between two epochs, two results differ by no device, or by at least
/// the devices of a whole key group.
#[test]
fn no_two_results_differ_by_fewer_devices_than_the_policy_requires() {
    for seed in 0..seeds(100) {
        let (scene, mut chance) = (scene(seed), Chance(seed ^ 0x5eed));
        let mut opened_sets: Vec<BTreeSet<u32>> = vec![BTreeSet::new()];
        for _ in 0..8 {
            let drops = chance.below(4);
            let mut answered: BTreeSet<u32> = (0..SOURCES).collect();
            for _ in 0..drops {
                answered.remove(&(chance.below(SOURCES as usize) as u32));
            }
            let (row, _) = closed(&scene, &answered, |_| ());
            if let Outcome::Accepted(accepted) = &row.outcome {
                opened_sets.push(accepted.participants().iter().collect());
            }
        }
        for one in &opened_sets {
            for other in &opened_sets {
                let differ = one.symmetric_difference(other).count();
                assert!(differ == 0 || differ >= KEY_GROUP as usize, "seed {seed}: {differ}");
            }
        }
        // A modified querier opens any subset that it wants. It knows all keys except the masks.
        let mut modified = scene.question.clone();
        modified.masked = None;
        let scene = Scene { question: modified, ..scene };
        for _ in 0..40 {
            let subset: BTreeSet<u32> = (0..SOURCES).filter(|_| chance.hits(60)).collect();
            let is_whole = |group: u32| {
                let members = group * KEY_GROUP..(group + 1) * KEY_GROUP;
                let count = members.filter(|position| subset.contains(position)).count();
                count == 0 || count == KEY_GROUP as usize
            };
            let frame = sum(&scene, FIRST, subset.iter().copied()).frame(scene.id, FIRST, SOURCES);
            let result = scene.querier().open(FIRST, &opened(&frame));
            if subset.len() >= 5 {
                assert_eq!(result.is_ok(), (0..4).all(is_whole), "seed {seed}: {subset:?}");
            }
        }
    }
}
