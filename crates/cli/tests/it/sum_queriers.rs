//! Tests a device as a source of several queriers: the budget of a day and the rules for exact answers
//! apply to all of them together, and the epoch guard and the numbers of query schedules to each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::group::{self, FIRST};
use crate::sum_sources::{EPOCH_MS, START, schema};
use moteseal_broadcast::KeyId;
use moteseal_core::link::LinkKey;
use moteseal_core::record::EpochNumber;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::answerer::Membership;
use moteseal_device::{Answerer, Answerers, DurableMote};
use moteseal_sum::QuerierName;
use moteseal_sum::policy::{ColumnTerms, QuerierTerms};
use moteseal_sum::query::{MAX_PLAN, Plan};
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::sies::{MaskRing, MaskRoot, Master};
use moteseal_sum::wire::SumUplink;
use moteseal_verify::Roster;

const NOISY: &str = "SELECT COUNT(*) FROM sensors WHERE reading > 40 EPSILON 0.5 EPOCH DURATION 5s";
const EXACT: &str = "SELECT SUM(reading) FROM sensors EPOCH DURATION 5s";

/// A device with the queriers `querier`, `q1`, `q2` and so on, none of which is trusted.
struct Scene {
    folder: tempfile::TempDir,
    roster: Roster,
    mote: DurableMote<SecretKey>,
    answerers: Answerers,
    clock: Arc<AtomicU64>,
}

fn name(place: usize) -> QuerierName {
    if place == 0 {
        QuerierName::default()
    } else {
        QuerierName::new(&format!("q{place}")).unwrap()
    }
}

fn key(place: usize) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[40 + u8::try_from(place).unwrap(); 32]).unwrap()
}

fn plan(text: &str) -> Vec<u8> {
    let schema = schema();
    let mut plan = Plan::parse(text, &Schema::decode(&schema).unwrap()).unwrap();
    if !plan.has_noise() {
        plan.declare("reading", 0, 1000);
    }
    plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec()
}

/// Returns the policy of a querier.
fn policy(roster: &Roster, place: usize, budget: u32, high: i64) -> Vec<u8> {
    let columns = [ColumnTerms { name: "reading", divisor: 1, range: Some((0, high)) }];
    let key = KeyId::of(&key(place).public());
    let terms = QuerierTerms { key, is_trusted: false, epoch_ms: 5000, budget, columns: &columns };
    group::policy(roster, 1, &[terms])
}

fn answerers(roster: &Roster, budgets: &[u32], clock: &Arc<AtomicU64>) -> Answerers {
    let now = Arc::clone(clock);
    answerers_with(roster, budgets, Arc::new(move || now.load(Ordering::Relaxed)))
}

type Time = Arc<dyn Fn() -> u64 + Send + Sync>;

fn answerers_with(roster: &Roster, budgets: &[u32], clock: Time) -> Answerers {
    let answerer = |(place, budget): (usize, &u32)| {
        let seed = u8::try_from(place).unwrap();
        let device = group::device_id(roster, 0);
        let membership = Membership {
            querier_name: name(place),
            group: roster.group(),
            set_up: name(place).set_up_digest(&roster.first_digest()),
            key_group: 5,
            position: 0,
            secret: Master::new([seed; 32]).source(roster.group(), device, 0),
            masks: Some((
                MaskRoot::new([seed; 32]).source(roster.group(), 0..5, 0),
                MaskRing::of(Some(0..5)),
            )),
            needs_policy: true,
            policy: Some(policy(roster, place, *budget, 1000)),
            querier: key(place).public(),
            link: link(place),
        };
        let now = Arc::clone(&clock);
        Answerer::new(membership, schema(), Box::new(move || now()))
    };
    Answerers::new(budgets.iter().enumerate().map(answerer).collect())
}

fn link(place: usize) -> LinkKey {
    LinkKey::new(&[100 + u8::try_from(place).unwrap(); 32])
}

impl Scene {
    fn new(budgets: &[u32]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let roster = group::roster(1, 1000, EPOCH_MS);
        let mote = group::mote(&roster, 0, folder.path(), 8);
        let clock = Arc::new(AtomicU64::new(START));
        let answerers = answerers(&roster, budgets, &clock);
        Self { folder, roster, mote, answerers, clock }
    }

    /// Kills the device and starts it again. Only the journal survives.
    fn restart(&mut self, budgets: &[u32]) {
        let spare = tempfile::tempdir().unwrap();
        drop(std::mem::replace(&mut self.mote, group::mote(&self.roster, 0, spare.path(), 8)));
        self.mote = group::mote(&self.roster, 0, self.folder.path(), 8);
        self.answerers = answerers(&self.roster, budgets, &self.clock);
    }

    /// Like [`restart`](Self::restart), with these policies.
    fn restart_with(&mut self, policies: &[Vec<u8>]) {
        self.restart(&vec![0; policies.len()]);
        for (place, policy) in policies.iter().enumerate() {
            self.answerers.set_policy(place, policy.clone());
        }
    }

    /// Passes a query schedule of a querier to the device.
    fn ask(&mut self, place: usize, number: u64, queries: &[&str]) {
        let queries: Vec<(u8, &str)> = (0..).zip(queries.iter().copied()).collect();
        self.ask_with(place, number, &queries);
    }

    /// Like [`ask`](Self::ask), with the nonces of the queries.
    fn ask_with(&mut self, place: usize, number: u64, queries: &[(u8, &str)]) {
        let schedule = self.schedule(&key(place), place, number, queries);
        self.answerers.receive(place, &schedule, &mut self.mote).unwrap();
    }

    /// Returns a query schedule for the set-up of a querier.
    fn schedule(
        &self,
        signer: &SecretKey,
        place: usize,
        number: u64,
        queries: &[(u8, &str)],
    ) -> Vec<u8> {
        let plans: Vec<(u8, Vec<u8>)> =
            queries.iter().map(|(nonce, text)| (*nonce, plan(text))).collect();
        let posed: Vec<Posed<'_>> = plans
            .iter()
            .map(|(nonce, plan)| Posed { nonce: [*nonce; 16], first: 0, until: u64::MAX, plan })
            .collect();
        let draft = QueryScheduleDraft {
            group: self.roster.group(),
            roster: name(place).set_up_digest(&self.roster.digest()),
            number,
            sources: 5,
            key_group: 5,
            queries: &posed,
        };
        let (mut scratch, mut out) = (vec![0; MAX_QUERY_SCHEDULE], vec![0; MAX_QUERY_SCHEDULE]);
        draft.issue(signer, &mut scratch, &mut out).unwrap().to_vec()
    }

    fn sense(&mut self, after_ms: u64, reading: u32) {
        self.clock.store(START + after_ms, Ordering::Relaxed);
        self.mote.sense(EpochNumber(FIRST), &reading.to_be_bytes()).unwrap();
        self.answerers.sensed(&reading.to_be_bytes());
    }

    /// Returns the number of answers that a querier gets at the time `after_ms`, and the reasons that
    /// the device states to it.
    fn answers(&mut self, place: usize, after_ms: u64) -> (usize, Vec<String>) {
        self.clock.store(START + after_ms, Ordering::Relaxed);
        let frames = self.answerers.answers(place, true, &mut self.mote).unwrap();
        let (mut shares, mut reasons) = (0, Vec::new());
        for frame in frames {
            match SumUplink::open(&frame, &link(place)).unwrap() {
                SumUplink::Share(_) => shares += 1,
                SumUplink::Refusal(refusal) => reasons.push(refusal.reason.to_owned()),
                SumUplink::Children(_) => panic!("a device has no children"),
            }
        }
        (shares, reasons)
    }
}

#[test]
fn all_queriers_share_the_budget_of_a_day() {
    let budgets = [1000, 1200];
    let mut scene = Scene::new(&budgets);
    for place in 0..2 {
        scene.ask(place, 1, &[NOISY]);
    }
    scene.sense(100, 50);
    assert_eq!(scene.answers(0, 5010), (1, vec![]));
    assert_eq!(scene.answers(1, 5010), (1, vec![]));
    // The first querier's budget of 1.0 is spent, half of it by the other one's answer.
    assert_eq!(scene.answers(0, 10_010), (0, vec!["BudgetSpent".to_owned()]));
    assert_eq!(scene.answers(1, 10_010), (0, vec!["BudgetSpent".to_owned()]));
    // Neither a restart nor another section makes it grow.
    scene.restart(&budgets);
    for place in 0..2 {
        scene.ask(place, 2, &[NOISY]);
    }
    scene.sense(16_000, 50);
    assert_eq!(scene.answers(0, 20_010).0 + scene.answers(1, 20_010).0, 0);
    scene.sense(86_400_100, 50);
    assert_eq!(scene.answers(1, 86_405_010), (1, vec![]));
}

#[test]
fn each_querier_has_its_own_numbers_of_query_schedules_also_after_a_restart() {
    let mut scene = Scene::new(&[0, 0, 0]);
    scene.ask(1, 9, &[EXACT]);
    scene.ask(0, 3, &[EXACT]);
    // A schedule for another querier's set-up is refused, also with a valid signature.
    let foreign = scene.schedule(&key(2), 1, 9, &[(0, EXACT)]);
    scene.answerers.receive(2, &foreign, &mut scene.mote).unwrap();
    assert_eq!(scene.mote.schedule(&name(2)), None);
    scene.sense(100, 50);
    assert_eq!(scene.answers(2, 5010), (0, vec![]));
    assert_eq!([0, 1].map(|place| scene.answers(place, 5010).0), [1, 1]);
    for _ in 0..2 {
        let numbers = [0, 1, 2].map(|place| scene.mote.schedule(&name(place)));
        assert_eq!(
            numbers.map(|newest| newest.map(|(number, _)| number)),
            [Some(3), Some(9), None]
        );
        // An earlier schedule of the one does not start its queries again.
        scene.ask(1, 8, &[EXACT, EXACT]);
        scene.restart(&[0, 0, 0]);
    }
    scene.ask(1, 8, &[EXACT]);
    scene.ask(0, 8, &[EXACT]);
    scene.sense(20_100, 50);
    assert_eq!([0, 1].map(|place| scene.answers(place, 25_010).0), [1, 0]);
}

#[test]
fn exact_answers_need_the_same_range_in_all_policies() {
    let mut scene = Scene::new(&[700, 700]);
    scene.ask(0, 1, &[EXACT, NOISY]);
    scene.ask(1, 1, &[EXACT]);
    scene.sense(100, 50);
    assert_eq!([0, 1].map(|place| scene.answers(place, 5010).0), [2, 1]);
    // A later policy has another range. Both queriers lose their exact answers: the first one asked
    // for the range 0 to 1000, and the other one could ask for another.
    let other = policy(&scene.roster, 1, 700, 999);
    scene.answerers.set_policy(1, other);
    scene.sense(35_100, 50);
    let (shares, reasons) = scene.answers(0, 40_010);
    // The noise has used up the budget.
    assert_eq!(shares, 0);
    assert!(reasons.contains(&"PoliciesDiffer".to_owned()), "{reasons:?}");
    assert_eq!(scene.answers(1, 40_010), (0, vec!["RangeNotPermitted".to_owned()]));
    // The earlier range again.
    let same = policy(&scene.roster, 1, 700, 1000);
    scene.answerers.set_policy(1, same);
    scene.ask(0, 2, &[EXACT]);
    scene.ask(1, 2, &[EXACT]);
    scene.sense(55_100, 50);
    assert_eq!([0, 1].map(|place| scene.answers(place, 60_010).0), [1, 1]);
}

#[test]
fn exact_answers_need_the_same_key_group_in_all_set_ups() {
    let scene = Scene::new(&[]);
    let device = group::device_id(&scene.roster, 0);
    let membership = |place: usize, ring: Option<MaskRing>| Membership {
        querier_name: name(place),
        group: scene.roster.group(),
        set_up: name(place).set_up_digest(&scene.roster.first_digest()),
        key_group: 8,
        position: 0,
        secret: Master::new([1; 32]).source(scene.roster.group(), device, 0),
        masks: ring
            .map(|ring| (MaskRoot::new([1; 32]).source(scene.roster.group(), 0..8, 0), ring)),
        needs_policy: true,
        policy: Some(policy(&scene.roster, place, 0, 1000)),
        querier: key(place).public(),
        link: link(place),
    };
    let first = membership(0, Some(MaskRing::of(Some(0..8))));
    for (ring, agrees) in [
        (Some(MaskRing::of(Some(0..8))), true),
        // Other key groups, or a device has joined the last key group between the two set-ups.
        (Some(MaskRing::of(Some(0..7))), false),
        // Another device has left the one.
        (Some(MaskRing::of([0..4, 5..9])), false),
        // A device without masks gives no masked answers.
        (None, true),
    ] {
        let other = membership(1, ring);
        assert_eq!(first.agrees_with(&other), agrees, "{ring:?}");
        assert_eq!(Answerers::differing([&first, &other]), (!agrees).then_some((0, 1)));
    }
}

/// A policy with two queriers that are not trusted and follow each other, with different terms.
#[test]
fn the_policy_of_one_querier_does_not_differ_from_itself() {
    let mut scene = Scene::new(&[0]);
    let columns = [ColumnTerms { name: "reading", divisor: 1, range: Some((0, 1000)) }];
    let terms = |place: usize, epoch_ms| {
        let key = KeyId::of(&key(place).public());
        QuerierTerms { key, is_trusted: false, epoch_ms, budget: 0, columns: &columns }
    };
    let policy = group::policy(&scene.roster, 1, &[terms(0, 5000), terms(1, 10_000)]);
    scene.answerers.set_policy(0, policy);
    scene.ask(0, 1, &[EXACT]);
    scene.sense(100, 50);
    assert_eq!(scene.answers(0, 5010), (1, vec![]));
}

/// A reading that arrives at the end of an epoch is in the same epoch for all queriers.
#[test]
fn a_reading_is_in_the_same_epoch_for_all_queriers() {
    let mut scene = Scene::new(&[0, 0]);
    // A clock that advances by 1 ms whenever it is read.
    let ticks = Arc::clone(&scene.clock);
    let clock = move || ticks.fetch_add(1, Ordering::Relaxed);
    scene.answerers = answerers_with(&scene.roster, &[0, 0], Arc::new(clock));
    for place in 0..2 {
        scene.ask(place, 1, &[EXACT]);
    }
    // Since the start of the second epoch, there is one reading: in its last millisecond.
    scene.sense(5000, 7);
    scene.sense(9999, 50);
    let answers = [0, 1].map(|place| scene.answers(place, 10_010).0);
    assert_eq!(answers, [1, 1]);
    scene.clock.store(START + 10_020, Ordering::Relaxed);
    // Neither querier has a reading in the third epoch.
    let reasons = [0, 1].map(|place| scene.answers(place, 15_010).1);
    assert_eq!(reasons, [vec!["NoReading".to_owned()], vec!["NoReading".to_owned()]]);
}

/// Queries of one querier that begin and end do not make the device refuse a long epoch of a query of
/// another one, nor of the same one.
#[test]
fn many_short_queries_do_not_suppress_a_long_epoch() {
    const LONG: &str = "SELECT SUM(reading) FROM sensors EPOCH DURATION 300s";
    let mut scene = Scene::new(&[0, 0]);
    let roster = scene.roster.clone();
    // Two trusted queriers, which may use any epoch.
    let trusted = |place| {
        let key = KeyId::of(&key(place).public());
        let terms = QuerierTerms { key, is_trusted: true, epoch_ms: 1000, budget: 0, columns: &[] };
        group::policy(&roster, 2, &[terms])
    };
    for place in 0..2 {
        scene.answerers.set_policy(place, trusted(place));
        scene.ask(place, 1, &[LONG]);
    }
    // START is not the start of such an epoch.
    let first = 300_000 - START % 300_000;
    scene.sense(first + 100, 50);
    assert_eq!([0, 1].map(|place| scene.answers(place, first + 300_010).0), [1, 1]);
    // 12 short queries of the second querier, one after the other, within the next long epoch.
    let second = first + 300_000;
    for number in 0..12_u64 {
        let at = second + 15_000 * (number + 1);
        let texts = [LONG, EXACT].map(str::to_owned);
        let nonce = u8::try_from(number).unwrap() + 100;
        scene.clock.store(START + at - 10_000, Ordering::Relaxed);
        scene.ask_with(1, number + 2, &[(0, &texts[0]), (nonce, &texts[1])]);
        let at = START + at;
        let end = at - at % 5000 - START;
        scene.sense(end - 100, 50);
        assert_eq!(scene.answers(1, end + 10).0, 1, "{number}");
    }
    scene.restart_with(&[trusted(0), trusted(1)]);
    scene.ask(0, 99, &[LONG]);
    scene.ask_with(1, 99, &[(0, LONG)]);
    scene.sense(second + 299_000, 51);
    assert_eq!([0, 1].map(|place| scene.answers(place, second + 300_010).0), [1, 1]);
}
