//! An automated querier that the policy does not trust: it asks queries of all kinds, keeps its last
//! 1,000 answers and combines them. Devices join, leave and are absent. Readings do not change, which is the
//! best case for the querier.
//!
//! The tests take the sum of a key group as known exactly if all of its devices have answered, and as
//! unknown otherwise; that the masks make sure of this is shown by other tests (`policy.rs`, and
//! `sum_policy.rs` of the client).

use std::collections::VecDeque;
use std::ops::Range;

use moteseal_broadcast::KeyId;
use moteseal_core::digest::Digest;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_sum::policy::{
    ColumnTerms, Ledger, MAX_POLICY, NotPermitted, Permission, Policy, PolicyDraft, QuerierTerms,
    permit,
};
use moteseal_sum::query::{MAX_SLOTS, Plan, Value};
use moteseal_sum::sies::MaskRoot;

use crate::noise::{GROUP, record, schema};

/// The number of answers that the querier keeps.
const KEPT: usize = 1000;
const EPOCH_MS: u64 = 30_000;
const MIN_COUNT: u32 = 5;
/// The budget of a day, and the epsilons that the querier chooses, in thousandths.
const BUDGET: u32 = 2000;
const COLUMNS: [ColumnTerms<'static>; 1] =
    [ColumnTerms { name: "t", divisor: 100, range: Some((-4000, 8500)) }];

/// A generator of pseudo-random numbers (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn querier() -> PublicKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap().public()
}

fn policy(out: &mut [u8]) -> Policy<'_> {
    let key = KeyId::of(&querier());
    let epoch_ms = u32::try_from(EPOCH_MS).unwrap();
    let terms =
        QuerierTerms { key, is_trusted: false, epoch_ms, budget: BUDGET, columns: &COLUMNS };
    let draft = PolicyDraft {
        group: GROUP,
        roster: Digest([2; 32]),
        version: 1,
        min_count: MIN_COUNT,
        min_count_squares: 8,
        queriers: &[terms],
    };
    Policy::decode(draft.encode(out).unwrap()).unwrap()
}

fn plan<'a>(text: &'a str, schema: &'a Schema<'a>) -> Plan<'a> {
    let mut plan = Plan::parse(text, schema).map_err(|error| error.to_string()).unwrap();
    plan.declare("t", -4000, 8500);
    plan
}

/// A device.
struct Device {
    reading: i16,
    /// The place of its key group; `None` if it has joined later and has no masks.
    ring: Option<usize>,
    /// The epoch in which it leaves the group.
    leaves: u64,
    /// The epoch in which it joins.
    joins: u64,
    ledger: Ledger,
}

/// A group whose devices enforce the policy.
struct Site {
    rings: Vec<Range<usize>>,
    devices: Vec<Device>,
}

impl Site {
    fn new(chance: &mut Chance) -> Self {
        let (mut rings, mut devices) = (Vec::new(), Vec::new());
        for ring in 0..3 + chance.below(3) as usize {
            let first = devices.len();
            for _ in 0..u64::from(MIN_COUNT) + chance.below(4) {
                // One device in ten leaves the group.
                let leaves = if chance.below(10) == 0 { chance.below(2000) } else { u64::MAX };
                devices.push(Device::new(chance, Some(ring), 0, leaves));
            }
            rings.push(first..devices.len());
        }
        for _ in 0..4 {
            let joins = chance.below(1000);
            devices.push(Device::new(chance, None, joins, u64::MAX));
        }
        Self { rings, devices }
    }

    /// Returns whether no device leaves one of the key groups.
    fn always_answers(&self) -> bool {
        let stays = |device: &Device| device.leaves == u64::MAX;
        self.rings.iter().any(|ring| self.devices[ring.clone()].iter().all(stays))
    }

    /// Returns the sum of the values of each key group that opens, and the devices that refuse to answer
    /// with their reasons.
    fn ask(
        &mut self,
        (policy, querier): (&Policy<'_>, &PublicKey),
        plan: &Plan<'_>,
        schema: &Schema<'_>,
        epoch: u64,
        chance: &mut Chance,
    ) -> (Vec<(usize, u128)>, Vec<NotPermitted>) {
        let bound = plan.bind(schema).unwrap();
        let (mut sums, mut refusals) = (vec![(0, 0); self.rings.len()], Vec::new());
        for device in &mut self.devices {
            // One device in 60 is absent in an epoch.
            if !(device.joins..device.leaves).contains(&epoch) || chance.below(60) == 0 {
                continue;
            }
            let size = device.ring.map(|ring| self.rings[ring].len() as u32);
            let permitted = permit(Some(policy), querier, plan, size, true);
            let charged = permitted.and_then(|permission| match permission {
                Permission::Noisy { budget: Some(budget) } => {
                    device.ledger.charge(epoch * EPOCH_MS, plan.epsilon(), budget)
                }
                Permission::Masked => Ok(()),
                permission => panic!("{permission:?}"),
            });
            if let Err(refusal) = charged {
                refusals.push(refusal);
                continue;
            }
            let mut slots = [0; MAX_SLOTS];
            if !plan.has_noise() {
                bound.contribution(Some(&record(device.reading, 1)), &mut slots).unwrap();
            }
            let (answered, sum) = &mut sums[device.ring.unwrap()];
            *answered += 1;
            *sum += slots[0];
        }
        let opened = sums.into_iter().enumerate().filter_map(|(ring, (answered, sum))| {
            (answered == self.rings[ring].len()).then_some((ring, sum))
        });
        (opened.collect(), refusals)
    }
}

impl Device {
    fn new(chance: &mut Chance, ring: Option<usize>, joins: u64, leaves: u64) -> Self {
        let reading = chance.below(6000) as i16 - 1000;
        Self { reading, ring, leaves, joins, ledger: Ledger::default() }
    }
}

/// Exact answers: while devices join, leave and are absent, the difference of any two of the querier's
/// last 1,000 answers is a sum over no device, or over at least as many as the policy requires.
#[test]
fn no_two_of_a_thousand_answers_differ_by_fewer_devices_than_the_policy_requires() {
    let schema = schema();
    let schema = Schema::decode(&schema).unwrap();
    let mut out = vec![0; MAX_POLICY];
    let (policy, querier) = (policy(&mut out), querier());
    let texts = [
        "SELECT SUM(t) FROM sensors EPOCH DURATION 30s",
        "SELECT AVG(t) FROM sensors EPOCH DURATION 30s",
        "SELECT SUM(t) FROM sensors WHERE t > 20 EPOCH DURATION 30s",
        "SELECT SUM(t) FROM sensors EPOCH DURATION 31s",
        "SELECT HISTOGRAM(t) FROM sensors EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE t > 20 EPSILON 0.25 EPOCH DURATION 30s",
    ];
    let plans = texts.map(|text| plan(text, &schema));
    for seed in 0..number("MOTESEAL_SEEDS", 10) {
        let mut chance = Chance(seed);
        // A site in which every key group loses a device soon gives no answers.
        let mut site = Site::new(&mut chance);
        while !site.always_answers() {
            site = Site::new(&mut chance);
        }
        let mut kept: VecDeque<(u64, u128)> = VecDeque::new();
        let (mut refused, mut epoch) = ([0_usize; 6], 0);
        while kept.len() < KEPT || epoch < 2000 {
            let place = chance.below(plans.len() as u64) as usize;
            let plan = &plans[place];
            let (opened, refusals) =
                site.ask((&policy, &querier), plan, &schema, epoch, &mut chance);
            refused[place] += refusals.len();
            for refusal in refusals {
                let expected = match place {
                    0 | 1 => &[NotPermitted::NoMasks][..],
                    2 | 4 => &[NotPermitted::ConditionNotPermitted],
                    3 => &[NotPermitted::EpochNotPermitted],
                    _ => &[NotPermitted::NoMasks, NotPermitted::BudgetSpent],
                };
                assert!(expected.contains(&refusal), "{refusal:?}: {}", texts[place]);
            }
            // The querier may combine the answers of single key groups of one query, too.
            for (ring, sum) in opened.into_iter().filter(|_| !plan.has_noise()) {
                let devices = site.rings[ring].clone().fold(0, |set, at| set | 1_u64 << at);
                kept.push_back((devices, sum));
                if kept.len() > KEPT {
                    kept.pop_front();
                }
            }
            epoch += 1;
        }
        assert!(refused.iter().all(|refused| *refused > 0), "seed {seed}: {refused:?}");
        for (one, sum) in &kept {
            for (other, same) in &kept {
                let differ = (one ^ other).count_ones();
                assert!(differ == 0 || differ >= MIN_COUNT, "seed {seed}: {differ} devices");
                assert!(differ > 0 || sum == same, "seed {seed}: a set of devices has two sums");
            }
        }
    }
}

/// Answers with noise: a querier that knows all other readings, and the noise of half of a key group,
/// combines all answers of a day in the best possible way to find out whether a reading is above a
/// threshold. Its advantage is at most that of the budget, for one expensive query as for many cheap
/// ones, and the ledger permits no more answers.
#[test]
fn all_answers_of_a_day_together_tell_no_more_than_the_budget_allows() {
    let schema = schema();
    let schema = Schema::decode(&schema).unwrap();
    let trials = number("MOTESEAL_PRIVACY_TRIALS", 6000);
    let total = f64::from(BUDGET) / 1000.0;
    // The greatest advantage that pure differential privacy permits, and four standard errors.
    let bound = total.exp_m1() / (total.exp() + 1.0);
    let error = 4.0 * (1.0 / trials as f64).sqrt();
    let mut best = 0.0_f64;
    for epsilon in [2000_u32, 500, 250] {
        let cost = f64::from(epsilon) / 1000.0;
        let text =
            format!("SELECT COUNT(*) FROM sensors WHERE t > 20 EPSILON {cost} EPOCH DURATION 30s");
        let plan = plan(&text, &schema);
        let bound_plan = plan.bind(&schema).unwrap();
        let mut right = 0.0;
        for trial in 0..trials {
            let mut chance = Chance(trial ^ u64::from(epsilon) << 32);
            let ring = MIN_COUNT + chance.below(4) as u32;
            let honest = ring.div_ceil(2);
            let is_above = chance.below(2) == 1;
            let mut seed = [0x31; 32];
            seed[..8].copy_from_slice(&trial.to_be_bytes());
            let root = MaskRoot::new(seed);
            let mut ledger = Ledger::default();
            let (mut evidence, mut answers) = (0, 0);
            let mut keys = Vec::new();
            for position in 0..honest {
                let query = Digest([epsilon.to_be_bytes()[3]; 32]);
                keys.push(root.source(GROUP, 0..ring, position).for_query(&query));
            }
            for epoch in 0.. {
                // A restart does not change the ledger, and a clock that is set back adds nothing.
                ledger = Ledger::decode(&ledger.encode()).unwrap();
                let start_ms = (2880 + epoch) * EPOCH_MS
                    - if answers > 0 { chance.below(2) * 86_400_000 } else { 0 };
                if ledger.charge(start_ms, plan.epsilon(), BUDGET).is_err() {
                    break;
                }
                answers += 1;
                let mean = (plan.slots().next().unwrap().most() - 1) / 2;
                let mut total = u128::from(ring - honest) * mean;
                for (place, key) in keys.iter().enumerate() {
                    let mut slots = [0; MAX_SLOTS];
                    let reading = record(if place == 0 && is_above { 2500 } else { 1500 }, 1);
                    let noise = key.noise(epoch, ring);
                    bound_plan.contribution_with_noise(Some(&reading), &noise, &mut slots).unwrap();
                    total += slots[0];
                }
                let totals = [total];
                let answer = plan.answer(&totals, ring, 1).unwrap();
                let Some(Some(Value::Noisy(count, _))) = answer.values().next() else { panic!() };
                let count = count.digits().unwrap();
                evidence += count.abs() - (count - 1).abs();
            }
            assert_eq!(answers, BUDGET / epsilon);
            right += match evidence {
                0 => 0.5,
                evidence => f64::from(u8::from((evidence > 0) == is_above)),
            };
        }
        let advantage = 2.0 * right / trials as f64 - 1.0;
        println!(
            "{answers} answers with epsilon {cost}: advantage {advantage:.4}, at most {bound:.4}",
            answers = BUDGET / epsilon
        );
        assert!(advantage <= bound + error, "epsilon {cost}: {advantage} is above {bound}");
        assert!(advantage > 0.2, "epsilon {cost}: the guess is useless: {advantage}");
        best = best.max(advantage);
    }
    // The noise is not larger than necessary: the bound is reached.
    assert!(best >= bound - error, "{best} is below {bound}");
}
