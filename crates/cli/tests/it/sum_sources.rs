//! Tests devices as sources of private sums. A device answers each epoch of a query once, soon
//! after the epoch's end, with what it sensed in the epoch.

use crate::group;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::group::FIRST;
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{ChainId, ChainNumber, Head, KeyId, Kind, SingleDraft, Window};
use moteseal_core::link::LinkKey;
use moteseal_core::record::NetworkId;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::DurableMote;
use moteseal_device::answerer::{Answerer, Membership};
use moteseal_sum::QuerierName;
use moteseal_sum::policy::{ColumnTerms, QuerierTerms};
use moteseal_sum::query::{MAX_PLAN, Plan, QueryId};
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::sies::{KeyTotals, MaskRing, MaskRoot, MaskSecret, Master, Psr, Slot};
use moteseal_sum::wire::SumUplink;
use moteseal_verify::Roster;

pub(crate) const EPOCH_MS: u64 = 1000;
/// The Unix time at which the tests begin, in milliseconds: the start of an epoch of 5 s.
pub(crate) const START: u64 = 1_700_000_000_000;
const AVERAGE: &str = "SELECT AVG(reading) FROM sensors WHERE reading > 10 EPOCH DURATION 5s";

pub(crate) fn schema() -> Vec<u8> {
    let mut buffer = [0; MAX_SCHEMA];
    Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer)
        .unwrap()
        .as_bytes()
        .to_vec()
}

struct Scene {
    folder: tempfile::TempDir,
    roster: Roster,
    mote: DurableMote<SecretKey>,
    answerer: Answerer,
    clock: Arc<AtomicU64>,
    querier: SecretKey,
    query: QueryId,
    /// The reasons that the device has stated for not answering.
    refusals: Vec<String>,
}

fn master() -> Master {
    Master::new([9; 32])
}

fn link() -> LinkKey {
    LinkKey::new(&[8; 32])
}

fn membership(roster: &Roster, querier: &SecretKey) -> Membership {
    Membership {
        querier_name: QuerierName::default(),
        group: roster.group(),
        set_up: roster.first_digest(),
        key_group: 1,
        position: 0,
        secret: master().source(roster.group(), group::device_id(roster, 0), 0),
        masks: None,
        needs_policy: false,
        policy: None,
        querier: querier.public(),
        link: link(),
    }
}

/// Returns the state of the device's answers when it starts.
fn answerer(roster: &Roster, querier: &SecretKey, clock: &Arc<AtomicU64>) -> Answerer {
    let now = Arc::clone(clock);
    Answerer::new(
        membership(roster, querier),
        schema(),
        Box::new(move || now.load(Ordering::Relaxed)),
    )
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let roster = group::roster(1, 1000, EPOCH_MS);
        let mote = group::mote(&roster, 0, folder.path(), 8);
        let querier = SecretKey::from_seed(Algorithm::Ed25519, &[7; 32]).unwrap();
        let clock = Arc::new(AtomicU64::new(START));
        let answerer = answerer(&roster, &querier, &clock);
        let (query, refusals) = (QueryId([0; 16]), Vec::new());
        Self { folder, roster, mote, answerer, clock, querier, query, refusals }
    }

    /// Kills the device and starts it again. Only the journal survives.
    fn restart(&mut self) {
        let Self { folder, roster, mote, .. } = self;
        // Only one handle of the journal can be open, so close it before it is opened again.
        let spare = tempfile::tempdir().unwrap();
        drop(std::mem::replace(mote, group::mote(roster, 0, spare.path(), 8)));
        *mote = group::mote(roster, 0, folder.path(), 8);
        self.answerer = answerer(roster, &self.querier, &self.clock);
    }

    fn receive(&mut self, number: u64, queries: &[&str]) {
        let schedule = self.schedule(number, queries);
        self.answerer.receive(&schedule, &mut self.mote).unwrap();
    }

    /// Passes an announcement to the device.
    ///
    /// # Errors
    /// The name of the reason why the announcement has no effect.
    fn try_receive(&mut self, announcement: &[u8]) -> Result<(), &'static str> {
        self.answerer
            .try_receive(announcement, &mut self.mote)
            .unwrap()
            .map_err(|error| error.name())
    }

    /// Returns an announcement of the querier.
    fn schedule(&mut self, number: u64, queries: &[&str]) -> Vec<u8> {
        let encoded: Vec<Vec<u8>> = queries.iter().map(|text| plan(text)).collect();
        self.schedule_of(number, &encoded)
    }

    /// Returns an announcement of these plans.
    fn schedule_of(&mut self, number: u64, encoded: &[Vec<u8>]) -> Vec<u8> {
        let (first, until) = (START / 5000, START / 5000 + 20_000);
        let posed = |plan| Posed { nonce: [1; 16], first, until, plan };
        let queries: Vec<Posed<'_>> = encoded.iter().map(|plan| posed(&plan[..])).collect();
        if let Some(query) = queries.first() {
            self.query = query.id(&self.roster.digest());
        }
        let draft = QueryScheduleDraft {
            group: self.roster.group(),
            roster: self.roster.digest(),
            number,
            sources: 1,
            key_group: 1,
            queries: &queries,
        };
        let (mut scratch, mut out) = (vec![0; MAX_QUERY_SCHEDULE], vec![0; MAX_QUERY_SCHEDULE]);
        draft.issue(&self.querier, &mut scratch, &mut out).unwrap().to_vec()
    }

    fn sense(&mut self, after_ms: u64, reading: u32) {
        self.clock.store(START + after_ms, Ordering::Relaxed);
        self.mote.sense(EpochNumber(FIRST), &reading.to_be_bytes()).unwrap();
        self.answerer.sensed(&reading.to_be_bytes());
    }

    /// Returns the frames that are sent at the time `after_ms`.
    fn frames(&mut self, after_ms: u64) -> Vec<Vec<u8>> {
        self.clock.store(START + after_ms, Ordering::Relaxed);
        let frames = self.answerer.answers(true, &mut self.mote).unwrap();
        self.shares(frames)
    }

    /// Returns the frames with shares. The reasons in the other ones, which are refusals, are added to
    /// `refusals`.
    fn shares(&mut self, mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let device = group::device_id(&self.roster, 0);
        let secret = master().source(self.roster.group(), device, 0);
        frames.retain(|frame| {
            let SumUplink::Refusal(refusal) = SumUplink::open(frame, &link()).unwrap() else {
                return true;
            };
            let (epoch, reason) = (refusal.epoch, refusal.reason);
            if refusal.query == self.query.reference() {
                assert!(secret.has_refused(self.query, epoch, reason, &refusal.tag));
                assert!(!secret.has_refused(self.query, epoch + 1, reason, &refusal.tag));
                assert!(!secret.has_refused(self.query, epoch, "NoReading2", &refusal.tag));
            }
            self.refusals.push(reason.to_owned());
            false
        });
        frames
    }

    /// Returns the answers that are sent at the time `after_ms`: each with its epoch, and its
    /// decrypted count and value.
    fn answers(&mut self, after_ms: u64, is_up: bool) -> Vec<(u64, Vec<u128>)> {
        self.clock.store(START + after_ms, Ordering::Relaxed);
        let frames = self.answerer.answers(is_up, &mut self.mote).unwrap();
        let frames = self.shares(frames);
        let device = group::device_id(&self.roster, 0);
        let opened = frames.iter().map(|frame| {
            let SumUplink::Share(share) = SumUplink::open(frame, &link()).unwrap() else {
                panic!("not a share")
            };
            assert_eq!((share.query, share.participation), (self.query.reference(), &[0, 0][..]));
            let source = master().source(self.roster.group(), device, 0).for_query(self.query);
            let key = master().key_group(self.roster.group(), 0).for_query(self.query);
            let values = (0..).map(Slot).zip(share.psrs.iter()).flat_map(|(slot, psr)| {
                let mut totals = KeyTotals::default();
                totals.add(&source, slot, share.epoch);
                let psr: Psr = psr.unwrap();
                let total = totals.open(&psr, &key, slot, share.epoch, u128::MAX).unwrap();
                [total >> 56, total & ((1 << 56) - 1)]
            });
            (share.epoch - START / 5000, values.collect())
        });
        opened.collect()
    }
}

fn plan(text: &str) -> Vec<u8> {
    let schema = schema();
    let schema = Schema::decode(&schema).unwrap();
    let mut buffer = [0; MAX_PLAN];
    Plan::parse(text, &schema).unwrap().encode(&mut buffer).unwrap().to_vec()
}

#[test]
fn answers_the_last_reading_of_an_epoch_once_and_soon() {
    let mut scene = Scene::new();
    scene.receive(1, &[AVERAGE]);
    scene.sense(100, 50);
    scene.sense(4900, 60);
    assert_eq!(scene.answers(4999, true), []);
    // A reading of the next epoch arrives before the answer is due. It does not affect the answer.
    scene.sense(5001, 99);
    assert_eq!(scene.answers(5010, true), [(0, vec![1, 60])]);
    assert_eq!(scene.answers(5020, true), []);
    assert_eq!(scene.answers(10_010, true), [(1, vec![1, 99])]);
    // In one epoch the device senses nothing, and in the next it senses a reading that does not
    // meet the condition. The answer is zeros in both cases, so that they cannot be distinguished.
    assert_eq!(scene.answers(15_010, true), [(2, vec![0, 0])]);
    scene.sense(16_000, 10);
    assert_eq!(scene.answers(20_010, true), [(3, vec![0, 0])]);
    // The answer is too late: the gateway no longer waits for it, so it is not sent.
    scene.sense(22_000, 70);
    assert_eq!(scene.answers(25_900, true), []);
    assert_eq!(scene.answers(30_000, true), [(5, vec![0, 0])]);
}

#[test]
fn does_not_send_an_answer_that_would_be_too_late() {
    let mut scene = Scene::new();
    scene.receive(1, &[AVERAGE]);
    scene.sense(100, 50);
    assert_eq!(scene.answers(5010, false), []);
    // The link is available again in time.
    assert_eq!(scene.answers(5200, true), [(0, vec![1, 50])]);
    scene.sense(5500, 51);
    assert_eq!(scene.answers(10_010, false), []);
    assert_eq!(scene.answers(14_000, true), []);
    assert_eq!(scene.answers(15_100, true), [(2, vec![0, 0])]);
}

#[test]
fn a_schedule_without_a_query_ends_it_and_no_older_one_restores_it() {
    let mut scene = Scene::new();
    scene.receive(5, &[AVERAGE]);
    scene.sense(100, 50);
    assert_eq!(scene.answers(5010, true), [(0, vec![1, 50])]);
    // The query continues when a newer schedule contains it again.
    scene.sense(6000, 51);
    scene.receive(6, &[AVERAGE]);
    assert_eq!(scene.answers(10_010, true), [(1, vec![1, 51])]);
    scene.receive(7, &[]);
    scene.sense(11_000, 52);
    assert_eq!(scene.answers(15_010, true), []);
    scene.receive(6, &[AVERAGE]);
    scene.sense(16_000, 52);
    assert_eq!(scene.answers(20_010, true), []);
    // A schedule that another key signed has no effect.
    scene.querier = SecretKey::from_seed(Algorithm::Ed25519, &[6; 32]).unwrap();
    scene.receive(8, &[AVERAGE]);
    scene.sense(21_000, 52);
    assert_eq!(scene.answers(25_010, true), []);
}

#[test]
fn refuses_a_replayed_announcement_after_a_restart() {
    let mut scene = Scene::new();
    let (old, newest, other) =
        (scene.schedule(6, &[AVERAGE]), scene.schedule(7, &[]), scene.schedule(7, &[AVERAGE]));
    assert_eq!(scene.try_receive(&old), Ok(()));
    assert_eq!(scene.try_receive(&newest), Ok(()));
    for _ in 0..2 {
        assert_eq!(scene.try_receive(&old), Err("OlderAgenda"));
        assert_eq!(scene.try_receive(&other), Err("TwoAgendas"));
        scene.restart();
    }
    scene.sense(100, 50);
    assert_eq!(scene.answers(5010, true), []);
    // The newest schedule is accepted again, and so is the next schedule.
    assert_eq!(scene.try_receive(&newest), Ok(()));
    scene.receive(8, &[AVERAGE]);
    scene.sense(6000, 51);
    assert_eq!(scene.answers(10_010, true), [(1, vec![1, 51])]);
}

#[test]
fn refuses_announcements_of_other_groups_or_kinds_without_using_a_number() {
    let mut scene = Scene::new();
    let good = scene.schedule(9, &[AVERAGE]);
    let BroadcastFrame::Single { head, leaf } = BroadcastFrame::decode(&good).unwrap() else {
        panic!("not a chain of one message")
    };
    let id = Head::peek(head).unwrap().id();
    let announce = |querier: &SecretKey, id: ChainId, kind: Kind| {
        let draft = SingleDraft {
            id,
            kind,
            label: "",
            window: Window::ALWAYS,
            previous: None,
            message: leaf,
        };
        draft
            .seal(querier, &mut vec![0; MAX_QUERY_SCHEDULE], &mut vec![0; MAX_QUERY_SCHEDULE])
            .unwrap()
            .to_vec()
    };
    let highest = ChainId { number: ChainNumber(u64::MAX), ..id };
    let stranger = SecretKey::from_seed(Algorithm::Ed25519, &[6; 32]).unwrap();
    for (announcement, name) in [
        (
            announce(
                &scene.querier,
                ChainId { network: NetworkId([1; 8]), ..highest },
                Kind::QuerySchedule,
            ),
            "WrongNetwork",
        ),
        (
            announce(
                &scene.querier,
                ChainId { sender: DeviceId([1; 8]), ..highest },
                Kind::QuerySchedule,
            ),
            "WrongSender",
        ),
        (announce(&scene.querier, highest, Kind::Announcement), "WrongKind"),
        (announce(&scene.querier, highest, Kind::File), "WrongKind"),
        (announce(&stranger, highest, Kind::QuerySchedule), "WrongKey"),
        (good[..good.len() - 1].to_vec(), "Truncated"),
    ] {
        assert_eq!(scene.try_receive(&announcement), Err(name));
        assert_eq!(scene.mote.schedule(&QuerierName::default()), None, "{name}");
    }
    assert_eq!(announce(&scene.querier, id, Kind::QuerySchedule), good);
    assert_eq!(scene.try_receive(&good), Ok(()));
    scene.sense(100, 50);
    assert_eq!(scene.answers(5010, true), [(0, vec![1, 50])]);
}

#[test]
fn a_clock_that_is_set_back_gives_no_second_answer() {
    let mut scene = Scene::new();
    scene.receive(1, &[AVERAGE]);
    scene.sense(100, 50);
    assert_eq!(scene.answers(5010, true), [(0, vec![1, 50])]);
    scene.sense(200, 51);
    assert_eq!(scene.answers(5020, true), []);
    // Even after a restart from the journal, the epoch is not answered again.
    scene.restart();
    scene.clock.store(START + 300, Ordering::Relaxed);
    scene.receive(1, &[AVERAGE]);
    scene.sense(400, 52);
    assert_eq!(scene.answers(5030, true), []);
    // Later epochs are answered.
    scene.sense(6000, 53);
    assert_eq!(scene.answers(10_010, true), [(1, vec![1, 53])]);
}

/// Finding C7 of the review: the guard is that of a backup, and the clock is set back.
#[test]
fn a_restored_device_whose_clock_is_set_back_gives_no_second_answer() {
    const HOUR: u64 = 3_600_000;
    let mut scene = Scene::new();
    scene.receive(START, &[AVERAGE]);
    scene.sense(100, 50);
    assert_eq!(scene.answers(5010, true), [(0, vec![1, 50])]);
    // All that the device knows is lost, as with a backup of its state from before its first answer.
    let fresh = Scene::new();
    (scene.folder, scene.mote) = (fresh.folder, fresh.mote);
    scene.answerer = answerer(&scene.roster, &scene.querier, &scene.clock);
    // The querier has signed a schedule since then, as it does each hour.
    scene.receive(START + HOUR, &[AVERAGE]);
    scene.sense(100, 51);
    assert_eq!(scene.answers(5010, true), []);
    // With a right clock it answers.
    scene.sense(HOUR + 100, 53);
    let epoch = HOUR / 5000;
    assert_eq!(scene.answers(HOUR + 5010, true), [(epoch, vec![1, 53])]);
}

#[test]
fn a_device_that_starts_within_an_epoch_does_not_answer_it() {
    let mut scene = Scene::new();
    scene.receive(1, &[AVERAGE]);
    scene.sense(100, 50);
    scene.restart();
    scene.clock.store(START + 4000, Ordering::Relaxed);
    scene.receive(1, &[AVERAGE]);
    // The device does not know the readings from before the kill, so it stays silent instead of
    // answering zero.
    assert_eq!(scene.answers(5010, true), []);
    assert_eq!(scene.answers(10_010, true), [(1, vec![0, 0])]);
    // The last reading of an epoch is the answer. The device has sensed a reading after the
    // restart, so it can answer.
    scene.sense(11_000, 60);
    scene.restart();
    scene.clock.store(START + 12_000, Ordering::Relaxed);
    scene.receive(1, &[AVERAGE]);
    scene.sense(13_000, 61);
    assert_eq!(scene.answers(15_010, true), [(2, vec![1, 61])]);
}

#[test]
fn a_clock_that_was_ahead_for_a_while_does_not_silence_a_source() {
    const YEARS: u64 = 14 * 365 * 86_400_000;
    let mut scene = Scene::new();
    scene.clock.store(START + YEARS, Ordering::Relaxed);
    scene.receive(1, &[AVERAGE]);
    scene.sense(YEARS + 100, 50);
    assert_eq!(scene.answers(YEARS + 5010, true), []);
    // The clock is correct again, and the query schedule is received again, as happens every
    // minute.
    scene.clock.store(START, Ordering::Relaxed);
    scene.receive(1, &[AVERAGE]);
    scene.sense(100, 51);
    assert_eq!(scene.answers(5010, true), [(0, vec![1, 51])]);
}

/// A device adds noise to the answers to a querier that is not trusted, also without a reading, until
/// the budget of the day is spent. The budget survives a restart.
#[test]
fn a_device_adds_noise_until_the_budget_of_the_day_is_spent() {
    let mut scene = Scene::new();
    let columns = [ColumnTerms { name: "reading", divisor: 1, range: Some((0, 1000)) }];
    let key = KeyId::of(&scene.querier.public());
    let terms =
        QuerierTerms { key, is_trusted: false, epoch_ms: 5000, budget: 1200, columns: &columns };
    let policy = group::policy(&scene.roster, 1, &[terms]);
    let mask = MaskRoot::new([4; 32]).source(scene.roster.group(), 0..5, 0);
    let answerer = |scene: &Scene| {
        let mut membership = membership(&scene.roster, &scene.querier);
        membership.masks = Some((mask.clone(), MaskRing::of(Some(0..5))));
        membership.policy = Some(policy.clone());
        let now = Arc::clone(&scene.clock);
        Answerer::new(membership, schema(), Box::new(move || now.load(Ordering::Relaxed)))
    };
    let noisy = |epsilon: &str| {
        plan(&format!(
            "SELECT COUNT(*) FROM sensors WHERE reading > 40 EPSILON {epsilon} EPOCH DURATION 5s"
        ))
    };
    scene.answerer = answerer(&scene);
    let (dear, cheap) = (noisy("1.3"), noisy("0.5"));
    let schedule = scene.schedule_of(1, &[dear, cheap.clone()]);
    scene.answerer.receive(&schedule, &mut scene.mote).unwrap();
    // The first query costs more than the budget of a day. The other one is answered twice.
    scene.sense(100, 50);
    assert_eq!(scene.frames(5010).len(), 1);
    // A device without a reading answers, too.
    assert_eq!(scene.frames(10_010).len(), 1);
    assert!(scene.frames(15_010).is_empty());
    scene.restart();
    scene.answerer = answerer(&scene);
    let schedule = scene.schedule_of(2, std::slice::from_ref(&cheap));
    scene.answerer.receive(&schedule, &mut scene.mote).unwrap();
    scene.sense(16_000, 50);
    assert!(scene.frames(20_010).is_empty());
    assert!(scene.frames(25_010).is_empty());
    // The next day has a budget of its own.
    scene.sense(86_400_100, 50);
    assert_eq!(scene.frames(86_405_010).len(), 1);
}

/// The queries of a modified querier under a policy that does not trust it: the device does not answer
/// them, and it masks what it answers.
#[test]
fn a_device_refuses_what_the_policy_does_not_permit() {
    let mut scene = Scene::new();
    let columns = [ColumnTerms { name: "reading", divisor: 1, range: Some((0, 1000)) }];
    let payload = |version, is_trusted| {
        let key = KeyId::of(&scene.querier.public());
        let budget = if is_trusted { 0 } else { 700 };
        let queriers =
            [QuerierTerms { key, is_trusted, epoch_ms: 5000, budget, columns: &columns }];
        group::policy(&scene.roster, version, &queriers)
    };
    let (untrusted, trusted) = (payload(1, false), payload(2, true));
    let root = MaskRoot::new([4; 32]);
    let mask = root.source(scene.roster.group(), 0..5, 0);
    let mut membership = membership(&scene.roster, &scene.querier);
    membership.masks = Some((mask.clone(), MaskRing::of(Some(0..5))));
    let now = Arc::clone(&scene.clock);
    scene.answerer =
        Answerer::new(membership, schema(), Box::new(move || now.load(Ordering::Relaxed)));
    let sum = "SELECT SUM(reading) FROM sensors EPOCH DURATION 5s";
    let ranged = |text: &str| {
        let schema = schema();
        let mut plan = Plan::parse(text, &Schema::decode(&schema).unwrap()).unwrap();
        plan.declare("reading", 0, 1000);
        plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec()
    };
    let plans = [
        plan(AVERAGE),
        plan(sum),
        ranged("SELECT SUM(reading) FROM sensors EPOCH DURATION 10s"),
        ranged("SELECT STDDEV(reading) FROM sensors EPOCH DURATION 5s"),
    ];
    // Without a policy, a device with masks answers nothing.
    let permitted = ranged(sum);
    let schedule = scene.schedule_of(1, std::slice::from_ref(&permitted));
    scene.answerer.receive(&schedule, &mut scene.mote).unwrap();
    scene.sense(100, 50);
    assert!(scene.frames(5010).is_empty());
    assert_eq!(std::mem::take(&mut scene.refusals), ["PolicyMissing"]);
    scene.answerer.set_policy(untrusted);
    let schedule = scene.schedule_of(2, &plans);
    scene.answerer.receive(&schedule, &mut scene.mote).unwrap();
    scene.sense(6000, 51);
    assert!(scene.frames(10_010).is_empty());
    // The first epoch of the query with longer epochs has not ended yet.
    let expected = ["RangeNotPermitted", "RangeNotPermitted", "GroupTooSmall"];
    assert_eq!(std::mem::take(&mut scene.refusals), expected);
    // The reasons are not stated again in the next epoch.
    assert!(scene.frames(10_900).is_empty() && scene.refusals.is_empty());
    let schedule = scene.schedule_of(3, std::slice::from_ref(&permitted));
    scene.answerer.receive(&schedule, &mut scene.mote).unwrap();
    scene.sense(11_000, 52);
    let frames = scene.frames(15_010);
    let opened = |scene: &Scene, frame: &[u8], mask: Option<&MaskSecret>| {
        let SumUplink::Share(share) = SumUplink::open(frame, &link()).unwrap() else {
            panic!("not a share")
        };
        let device = group::device_id(&scene.roster, 0);
        let source = master().source(scene.roster.group(), device, 0).for_query(scene.query);
        let key = master().key_group(scene.roster.group(), 0).for_query(scene.query);
        let psr = share.psrs.iter().next().unwrap().unwrap();
        let mut totals = KeyTotals::default();
        totals.add(&source, Slot(0), share.epoch);
        // The mask of a source whose neighbours are exchanged is the negative mask.
        let removed = mask.map(|mask| {
            let mut bytes = *mask.to_bytes();
            bytes[..64].rotate_left(32);
            let roster = scene.roster.digest();
            let whole = QueryId::whole(&roster, &[1; 16], &ranged(sum));
            let negative = MaskSecret::from_bytes(&bytes).for_query(&whole);
            negative.cover(&psr, Slot(0), share.epoch)
        });
        totals.open(&removed.unwrap_or(psr), &key, Slot(0), share.epoch, u128::MAX)
    };
    assert_eq!(frames.len(), 1);
    assert!(opened(&scene, &frames[0], None).is_err(), "the querier opened a single value");
    assert_eq!(opened(&scene, &frames[0], Some(&mask)), Ok((1 << 56) + 52));
    // Without a reading, the sum of the key group would be over the readings of the others.
    assert!(scene.frames(20_010).is_empty());
    assert_eq!(std::mem::take(&mut scene.refusals), ["NoReading"]);
    // The operator decides to trust the querier. The running query ends, and is answered without a
    // mask when the querier announces it again.
    scene.answerer.set_policy(trusted);
    scene.sense(21_000, 53);
    assert!(scene.frames(25_010).is_empty());
    assert!(scene.refusals.is_empty(), "a reason was stated less than 30 s ago");
    scene.answerer.receive(&schedule, &mut scene.mote).unwrap();
    scene.sense(26_000, 54);
    let frames = scene.frames(30_010);
    assert_eq!(opened(&scene, &frames[0], None), Ok((1 << 56) + 54));
}
