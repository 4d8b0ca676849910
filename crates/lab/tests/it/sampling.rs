//! Checks that replayed days keep the same events as a simple reference implementation, never
//! exceed the budget, and pass the audit.
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, MAX_LEVELS, Round, SealIndex};
use moteseal_core::roster::{Directory, NoKey};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
use moteseal_core::{DeviceId, Digest, GroupId, Sequence};
use moteseal_fixtures::external_data;
use moteseal_lab::chance::Seed;
use moteseal_lab::data::{DAYS, Event, Folder, Recording, Source};
use moteseal_lab::sampling::{Epoch, Held, Plan, enough_levels, epoch, epochs};
use moteseal_lab::{report, temperature};
use moteseal_seal::sample::{Doubt, Tally, Verdict};
use moteseal_seal::{Authentic, Seal, Statement};
use proptest::collection::vec;
use proptest::prelude::*;

/// Returns a device with events at the given seconds of each day.
fn device(name: &str, days: Vec<Vec<u32>>) -> Recording {
    let event = |second| Event { second, reading: f64::from(second) };
    Recording::new(name, days.into_iter().map(|day| day.into_iter().map(event).collect()).collect())
}

fn devices() -> impl Strategy<Value = Vec<Recording>> {
    vec(vec(vec(0..86_400_u32, 0..120), 1..4), 1..5).prop_map(|all| {
        all.into_iter().zip(0..).map(|(days, i)| device(&format!("d{i}"), days)).collect()
    })
}

/// A directory of one device.
struct OneKey(PublicKey);

impl Directory for OneKey {
    fn group(&self) -> GroupId {
        GroupId::of("lab")
    }

    fn levels(&self, _: EpochNumber) -> u8 {
        MAX_LEVELS as u8
    }

    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (EpochNumber(0), None)
    }

    fn roster_digest(&self, _: u32) -> Option<Digest> {
        None
    }

    fn with_key(
        &self,
        _: DeviceId,
        _: SealIndex,
        _: EpochNumber,
        use_key: &mut dyn FnMut(&PublicKey),
    ) -> Result<(), NoKey> {
        use_key(&self.0);
        Ok(())
    }

    fn first_prev(&self, _: DeviceId) -> Option<Digest> {
        None
    }
}

/// Returns the verified seals of all devices for a day.
fn seals(plan: &Plan, epoch: &Epoch) -> Vec<Seal<Authentic>> {
    let seal = |(device, (salt, counters)): (u8, &_)| {
        let mut statement = Statement::new(
            Scheme::Star,
            GroupId::of("lab"),
            Digest([1; 32]),
            DeviceId([device; 8]),
            plan.levels,
        );
        (statement.salt, statement.counters) = (*salt, *counters);
        (statement.round, statement.own_round) = (epoch.round, epoch.round);
        let key = SecretKey::from_seed(Algorithm::Ed25519, &[device; 32]).unwrap();
        let seal = Seal::new(statement, Digest([2; 32]), Algorithm::Ed25519);
        let signature = key.signature(seal.message(&mut [0; _])).unwrap();
        seal.verify(&OneKey(key.public()), &signature).unwrap()
    };
    (0..).zip(&epoch.stated).map(seal).collect()
}

/// Checks that the signed counters justify the final round of a day, but neither of the two
/// adjacent rounds.
fn check_audit(plan: &Plan, epoch: &Epoch) {
    let mut tally = Tally::new(plan.levels, plan.budget);
    seals(plan, epoch).iter().for_each(|seal| tally.add(seal));
    assert_eq!(tally.verdict(epoch.round, Doubt::default()), Verdict::Justified);
    assert_eq!((tally.due(), tally.from_round(epoch.round)), (epoch.round, epoch.kept()));
    assert_ne!(tally.verdict(Round(epoch.round.0 + 1), Doubt::default()), Verdict::Justified);
    if let Some(before) = epoch.round.0.checked_sub(1) {
        assert_ne!(tally.verdict(Round(before), Doubt::default()), Verdict::Justified);
    }
}

/// A literal implementation of the paper's algorithms 1 and 2, with a queue for each level. Returns
/// the number of sent events, the number of announcements, the final round and the kept events.
fn reference(
    plan: &Plan,
    devices: &[Recording],
    day: usize,
    epoch: &Epoch,
) -> (u64, u64, u8, Vec<Held>) {
    let mut events = Vec::new();
    for (device, recording) in devices.iter().enumerate() {
        for (seq, event) in (0_u32..).zip(recording.day(day)) {
            let level = epoch.stated[device].0.level(Sequence(u64::from(seq)), plan.levels);
            events.push((event.second, device, seq, level));
        }
    }
    events.sort();
    let mut queues = vec![Vec::new(); usize::from(plan.levels)];
    let (mut round, mut sent, mut raised) = (0, 0, 0);
    for (_, device, seq, level) in events {
        if level.0 < round {
            continue;
        }
        sent += 1;
        queues[usize::from(level.0)].push(Held { device, seq, level });
        let before = round;
        while queues.iter().map(Vec::len).sum::<usize>() as u64 > plan.budget && round < plan.levels
        {
            queues[usize::from(round)].clear();
            round += 1;
        }
        raised += u64::from(round > before);
    }
    (sent, raised, round, queues.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_day_is_sampled_as_in_the_paper_and_passes_the_audit(devices in devices(), budget in 1..150_u64, day in 0..6_usize, seed: [u8; 32]) {
        let plan = Plan::new(budget, &devices, 8, Seed(seed)).unwrap();
        let mut steps = Vec::new();
        let epoch = epoch(&plan, &devices, day, &mut |step| steps.push(step));
        let (sent, raised, round, mut held) = reference(&plan, &devices, day, &epoch);
        prop_assert_eq!((epoch.sent, epoch.announcements, epoch.round), (sent, raised, Round(round)));
        let mut ours = epoch.held.clone();
        let order = |held: &Held| (held.device, held.seq);
        ours.sort_by_key(order);
        held.sort_by_key(order);
        prop_assert_eq!(ours, held);
        check_audit(&plan, &epoch);

        // The budget is never exceeded, and the steps are in order.
        prop_assert!(epoch.most_kept <= budget && steps.iter().all(|step| step.kept <= budget));
        prop_assert!(steps.is_sorted_by_key(|step| (step.second, step.monitored, step.sent, step.round)));
        prop_assert_eq!(steps.len() as u64, epoch.monitored);
        if let Some(last) = steps.last() {
            prop_assert_eq!((last.sent, last.kept, last.round), (epoch.sent, epoch.kept(), epoch.round));
        }
    }
}

#[test]
fn a_load_within_the_budget_is_kept_completely() {
    let devices = [device("a", vec![(0..300).collect()]), device("b", vec![(100..200).collect()])];
    let plan = Plan::new(400, &devices, 1, Seed::default()).unwrap();
    let epoch = epoch(&plan, &devices, 0, &mut |_| {});
    assert_eq!((epoch.monitored, epoch.sent, epoch.kept(), epoch.round), (400, 400, 400, Round(0)));
}

#[test]
fn equal_seeds_sample_the_same_events_and_different_seeds_do_not() {
    let devices = [device("a", vec![(0..3000).collect()])];
    let run = |seed| epochs(&Plan::new(100, &devices, 2, Seed([seed; 32])).unwrap(), &devices, 2);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    // Both days have the same events, but each day has its own salt, so different events are kept.
    assert_ne!(run(1)[0].held, run(1)[1].held);
}

#[test]
fn enough_levels_is_the_minimum_of_a_roster() {
    assert_eq!(enough_levels(1000, 1000), Some(4));
    assert_eq!(enough_levels(1001, 1000), Some(5));
    assert_eq!(enough_levels(0, 1), Some(1));
    assert_eq!(enough_levels(100_000_000, 100), Some(24));
    assert_eq!(enough_levels(1, 0), None);
    assert_eq!(enough_levels(u64::MAX, 1), None);
}

#[test]
fn truncation_is_biased_towards_the_morning_and_sampling_is_not() {
    // One reading per minute, rising over the day.
    let day =
        (0..1440).map(|minute| Event { second: minute * 60, reading: f64::from(minute) }).collect();
    let devices = [Recording::new("thermometer", vec![day])];
    let (mut sampled, mut days) = (0.0, 0.0);
    for seed in 0..200 {
        let plan = Plan::new(100, &devices, 1, Seed([seed; 32])).unwrap();
        let epoch = epoch(&plan, &devices, 0, &mut |_| {});
        let day = temperature::day(&devices, 0, 0, &epoch).unwrap();
        assert_eq!((day.truth, day.truncated, day.readings as u64), (719.5, 19.5, epoch.kept()));
        assert!(day.truncated_alike_off().unwrap() < -650.0);
        sampled += day.sampled_off().unwrap();
        days += 1.0;
    }
    // The mean of one sample of 50 to 100 readings deviates from the true mean by about 50. The
    // mean of 200 such samples deviates by less than 15.
    assert!((sampled / days).abs() < 15.0, "{}", sampled / days);
}

/// Returns all recordings; `None` if they are absent.
fn recorded() -> Option<Vec<Recording>> {
    let data = external_data("umass_smartstar_homeC")?;
    let folder = Folder::new(data.parent().unwrap());
    Some(Source::ALL.iter().map(|source| source.load(&folder).unwrap()).collect())
}

#[test]
fn the_recordings_have_as_many_days_and_events_as_published() {
    let Some(devices) = recorded() else { return };
    let counts: Vec<_> = devices
        .iter()
        .map(|device| (device.days(), (0..device.days()).map(|day| device.day(day).len()).sum()))
        .collect();
    assert_eq!(
        counts,
        [
            (92, 132_561),
            (28, 1229),
            (28, 19_075),
            (20, 22_700),
            (16, 2772),
            (16, 1962),
            (8, 37_674)
        ]
    );
    assert!(
        devices
            .iter()
            .all(|device| (0..DAYS)
                .all(|day| device.day(day).is_sorted_by_key(|event| event.second)))
    );
}

#[test]
fn every_recorded_day_is_within_budget_and_passes_the_audit() {
    let Some(devices) = recorded() else { return };
    for budget in report::BUDGETS {
        let plan = Plan::new(budget, &devices, DAYS, Seed::default()).unwrap();
        for epoch in epochs(&plan, &devices, DAYS) {
            assert!(epoch.most_kept <= budget);
            check_audit(&plan, &epoch);
        }
    }
}

/// Figure 7a of the paper: over many days the mean of a sample is unbiased, and the mean of a
/// truncation is biased.
#[test]
fn recorded_temperatures_are_biased_by_truncation_and_not_by_sampling() {
    let Some(devices) = recorded() else {
        return;
    };
    let plan = Plan::new(500, &devices, DAYS, Seed::default()).unwrap();
    let epochs = epochs(&plan, &devices, DAYS);
    let days: Vec<_> =
        (0..DAYS).filter_map(|day| temperature::day(&devices, 0, day, &epochs[day])).collect();
    let mean = |of: fn(&temperature::Day) -> Option<f64>| {
        let off: moteseal_lab::chance::Average = days.iter().filter_map(of).collect();
        off.mean() / off.error()
    };
    assert!(mean(temperature::Day::sampled_off).abs() < 4.0);
    assert!(mean(|day| Some(day.truncated_off())) < -8.0);
}
