//! Tests a mote as a source of private sums. Whatever steps the time makes, it never answers that it
//! sensed nothing in an epoch that it did not observe from beginning to end.

use crate::faulty_flash::Simulated;
use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::provision::{Membership, Provisioning, ReplayedWindow};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_mote::answerer::Answerer;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::notice::Notice;
use moteseal_sum::query::{MAX_PLAN, Plan, QueryId};
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::sies::{Master, SourceSecret};
use moteseal_sum::wire::SumUplink;
use zeroize::Zeroizing;

pub(crate) const DEVICE: DeviceId = DeviceId([7; 8]);
pub(crate) const GROUP: GroupId = GroupId([2; 8]);
pub(crate) const ROSTER: Digest = Digest([6; 32]);
pub(crate) const EPOCH_MS: u64 = 1000;
/// The epoch in which the query schedule was signed.
const SIGNED: u64 = 5_000;
const UNTIL: u64 = 9_000;

pub(crate) fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

pub(crate) fn provisioning(schema: &[u8]) -> Provisioning<'_> {
    let sums = Membership {
        roster: ROSTER,
        key_group: 4,
        position: 8,
        secret: Master::new([3; 32]).source(GROUP, DEVICE, 2).to_bytes(),
        querier: key(4).public(),
        link_secret: Zeroizing::new([5; 32]),
        masks: None,
        needs_policy: false,
        policy: None,
    };
    Provisioning {
        device: DEVICE,
        group: GROUP,
        roster: (ROSTER, 7),
        certificate: Digest([8; 32]),
        levels: 8,
        epoch_ms: 60_000,
        epochs: (EpochNumber(0), None),
        start_ms: 0,
        scheme: Scheme::Star,
        schema,
        signer: key(9),
        salt_key: Zeroizing::new([10; 32]),
        link_secret: Zeroizing::new([11; 32]),
        coordinator: key(12).public(),
        window: ReplayedWindow { first: 0, count: 1, start_ms: 0, every_ms: 1, interval_ms: 1 },
        sums: Some(sums),
        audience: None,
        operator: None,
    }
}

/// Returns a query schedule with one query that ends before epoch `until`. The schedule is signed at
/// the beginning of epoch `signed`.
fn schedule(schema: &Schema<'_>, signed: u64, until: u64) -> Vec<u8> {
    schedule_of("SELECT SUM(reading) FROM sensors EPOCH DURATION 1s", schema, signed, until)
}

fn schedule_of(query: &str, schema: &Schema<'_>, signed: u64, until: u64) -> Vec<u8> {
    let mut plan = [0; MAX_PLAN];
    let plan = Plan::parse(query, schema).unwrap().encode(&mut plan).unwrap();
    let posed = [Posed { nonce: [3; 16], first: SIGNED, until, plan }];
    let draft = QueryScheduleDraft {
        group: GROUP,
        roster: ROSTER,
        number: signed * EPOCH_MS,
        sources: 9,
        key_group: 4,
        queries: &posed,
    };
    draft
        .issue(&key(4), &mut [0; MAX_QUERY_SCHEDULE], &mut [0; MAX_QUERY_SCHEDULE])
        .unwrap()
        .to_vec()
}

/// Something that happens to a source in a test.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// A time statement sets the time: this epoch began this many milliseconds ago.
    Time(u64, u64),
    /// The time is no longer known.
    NoTime,
    /// The source senses a record.
    Sensed,
    /// A new query schedule arrives, in which the query ends before this epoch.
    Until(u64),
}
use Happens::{NoTime, Sensed, Time, Until};

/// Returns the epochs that a source answers before `end_ms`. Times are in milliseconds after the
/// query schedule arrived.
fn answered(happenings: &[(u64, Happens)], end_ms: u64) -> Vec<u64> {
    let mut buffer = [0; 64];
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
    let provisioning = provisioning(schema.as_bytes());
    let mut flash = Simulated::new();
    let settings = Settings { interval_ms: 1, led: false, scheme: provisioning.scheme };
    let mut durable =
        Durable::open(&mut flash, DEVICE, provisioning.certificate, settings).unwrap();
    let mut source = Answerer::new(&provisioning, provisioning.sums.as_ref().unwrap());
    let mut answered = Vec::new();
    // The Unix time minus the time of the test.
    let mut ahead_ms = None;
    source
        .receive(None, &schedule(&schema, SIGNED, UNTIL), &mut durable, &mut |report| {
            assert_eq!(report, Notice::QuerySchedule(SIGNED * EPOCH_MS));
        })
        .unwrap();
    for now_ms in 0..end_ms {
        for (_, happens) in happenings.iter().filter(|(at, _)| *at == now_ms) {
            let before = ahead_ms.map(|ahead_ms| now_ms + ahead_ms);
            match happens {
                Time(epoch, since_ms) => {
                    let after = epoch * EPOCH_MS + since_ms;
                    ahead_ms = Some(after - now_ms);
                    source.stepped(before, Some(after));
                }
                NoTime => {
                    ahead_ms = None;
                    source.stepped(before, None);
                }
                Until(until) => {
                    let schedule = schedule(&schema, SIGNED + 1 + now_ms, *until);
                    source.receive(before, &schedule, &mut durable, &mut |_| ()).unwrap();
                }
                Sensed => {
                    before.inspect(|unix_ms| source.sensed(*unix_ms, &7_u32.to_be_bytes()));
                }
            }
        }
        let notify = &mut |report| {
            if let Notice::Answered(epoch) = report {
                answered.push(epoch);
            }
        };
        if let Some(ahead_ms) = ahead_ms {
            let out = &mut [0; 1400];
            let _ = source.next_body(now_ms + ahead_ms, out, &mut durable, notify).unwrap();
        }
    }
    answered
}

/// The time statement with which most tests begin.
const START: (u64, Happens) = (0, Time(SIGNED, 0));

#[test]
fn answers_whole_epochs_and_not_the_one_in_which_the_time_arrived() {
    assert_eq!(answered(&[START, (1500, Sensed)], 3500), [SIGNED + 1, SIGNED + 2]);
    // If the source has a reading in the first epoch, it answers that epoch.
    assert_eq!(answered(&[START, (500, Sensed)], 1500), [SIGNED]);
}

#[test]
fn answers_nothing_without_a_time() {
    assert_eq!(answered(&[(500, Sensed), (1500, Sensed)], 9000), [] as [u64; 0]);
    assert_eq!(answered(&[START, (1500, NoTime), (1600, Sensed)], 9000), [] as [u64; 0]);
    // When the time is known again, the epoch in progress was not observed from its beginning.
    let again = [START, (1200, Sensed), (1500, NoTime), (1600, Time(SIGNED + 1, 600))];
    assert_eq!(answered(&again, 3500), [SIGNED + 2]);
}

#[test]
fn answers_no_epoch_that_a_change_of_the_time_cut_short() {
    // The clock is set forward by many epochs. The source does not answer the epoch in progress.
    let far = (1500, Time(SIGNED + 100, 20));
    assert_eq!(answered(&[START, far], 1900), [] as [u64; 0]);
    // Readings from before the change do not count, because their time was wrong.
    assert_eq!(answered(&[START, (1200, Sensed), far], 1900), [] as [u64; 0]);
    assert_eq!(answered(&[START, (1500, Time(SIGNED + 2, 20))], 1900), [] as [u64; 0]);
    // The source answers the epochs that begin after the change.
    assert_eq!(answered(&[START, far], 4500), [SIGNED + 101, SIGNED + 102]);
    // A change that does not change the current epoch has no effect.
    assert_eq!(answered(&[START, (1500, Time(SIGNED + 1, 520))], 2100), [SIGNED + 1]);
}

#[test]
fn a_small_step_into_the_next_epoch_keeps_the_readings() {
    // The timer was slow by 150 ms.
    let step = (1900, Time(SIGNED + 2, 50));
    assert_eq!(answered(&[START, (1200, Sensed), step], 2500), [SIGNED + 1]);
    // Without a reading, the epoch before the step and the epoch after it are not answered: a reading
    // may be in either of them.
    assert_eq!(answered(&[START, step], 4000), [SIGNED + 3]);
    // After a longer step, the readings do not count.
    let step = (1700, Time(SIGNED + 2, 0));
    assert_eq!(answered(&[START, (1200, Sensed), step], 2500), [] as [u64; 0]);
}

#[test]
fn a_query_ends_where_the_newest_schedule_states() {
    // The querier prolongs a query while it runs.
    let prolonged = [START, (0, Until(SIGNED + 2)), (1500, Until(SIGNED + 4))];
    assert_eq!(answered(&prolonged, 9000), [SIGNED + 1, SIGNED + 2, SIGNED + 3]);
    let shortened = [START, (1500, Until(SIGNED + 2))];
    assert_eq!(answered(&shortened, 9000), [SIGNED + 1]);
}

/// Finding C6 of the review: a mote states why it does not answer, in frames that only it can make.
#[test]
fn states_why_it_does_not_answer() {
    let (mut own, mut other) = ([0; 64], [0; 64]);
    let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut own).unwrap();
    let wider = Schema::encode(&[Field::parse("pressure::u32").unwrap()], &mut other).unwrap();
    let provisioning = provisioning(schema.as_bytes());
    let membership = provisioning.sums.as_ref().unwrap();
    let (secret, link) =
        (SourceSecret::from_bytes(&membership.secret), LinkKey::new(&membership.link_secret));
    let query = "SELECT SUM(pressure) FROM sensors EPOCH DURATION 1s";
    let mut plan = [0; MAX_PLAN];
    let plan = Plan::parse(query, &wider).unwrap().encode(&mut plan).unwrap();
    let id = QueryId::of(&ROSTER, &[3; 16], plan);
    let mut flash = Simulated::new();
    let settings = Settings { interval_ms: 1, led: false, scheme: provisioning.scheme };
    let mut durable =
        Durable::open(&mut flash, DEVICE, provisioning.certificate, settings).unwrap();
    let mut refusals = Vec::new();
    let mut run = |source: &mut Answerer<'_>,
                   durable: &mut Durable<_>,
                   seconds: core::ops::Range<u64>| {
        for unix_ms in seconds.flat_map(|second| [second * EPOCH_MS, second * EPOCH_MS + 40]) {
            let mut out = [0; 1400];
            if let Some(length) = source.next_body(unix_ms, &mut out, durable, &mut |_| ()).unwrap()
                && let SumUplink::Refusal(refusal) = SumUplink::open(&out[..length], &link).unwrap()
            {
                refusals.push((unix_ms, refusal.epoch, refusal.reason.to_owned()));
                assert_eq!((refusal.query, refusal.position), (id.reference(), 8));
                assert!(secret.has_refused(id, refusal.epoch, refusal.reason, &refusal.tag));
            }
        }
        std::mem::take(&mut refusals)
    };
    let mut source = Answerer::new(&provisioning, membership);
    source.stepped(None, Some(SIGNED * EPOCH_MS));
    let schedule = |signed, until| schedule_of(query, &wider, signed, until);
    source
        .receive(Some(SIGNED * EPOCH_MS), &schedule(SIGNED, UNTIL), &mut durable, &mut |_| ())
        .unwrap();
    // At most one statement in 30 seconds, also if the schedule is announced again.
    let stated = run(&mut source, &mut durable, SIGNED..SIGNED + 20);
    source
        .receive(
            Some((SIGNED + 20) * EPOCH_MS),
            &schedule(SIGNED, UNTIL),
            &mut durable,
            &mut |_| (),
        )
        .unwrap();
    let again = run(&mut source, &mut durable, SIGNED + 20..SIGNED + 40);
    let at = |second: u64| {
        ((SIGNED + second) * EPOCH_MS, SIGNED + second - 1, "UnknownColumn".to_owned())
    };
    assert_eq!((stated, again), (vec![at(1)], vec![at(31)]));
    // After the end of the query, the mote states nothing.
    source
        .receive(
            Some((SIGNED + 40) * EPOCH_MS),
            &schedule(SIGNED + 40, SIGNED + 50),
            &mut durable,
            &mut |_| (),
        )
        .unwrap();
    assert_eq!(run(&mut source, &mut durable, SIGNED + 55..SIGNED + 200), []);

    // A query that the mote answers: the reason why it does not answer an epoch.
    let query = "SELECT SUM(reading) FROM sensors EPOCH DURATION 1s";
    let mut plan = [0; MAX_PLAN];
    let plan = Plan::parse(query, &schema).unwrap().encode(&mut plan).unwrap();
    let id = QueryId::of(&ROSTER, &[3; 16], plan);
    let start = SIGNED + 300;
    source.stepped(Some(start * EPOCH_MS), Some(start * EPOCH_MS + 500));
    let schedule = schedule_of(query, &schema, start, UNTIL);
    source.receive(Some(start * EPOCH_MS + 500), &schedule, &mut durable, &mut |_| ()).unwrap();
    let mut out = [0; 1400];
    let mut stated = Vec::new();
    for second in start + 1..start + 40 {
        let now = second * EPOCH_MS;
        if let Some(length) = source.next_body(now, &mut out, &mut durable, &mut |_| ()).unwrap()
            && let SumUplink::Refusal(refusal) = SumUplink::open(&out[..length], &link).unwrap()
        {
            assert!(secret.has_refused(id, refusal.epoch, refusal.reason, &refusal.tag));
            stated.push((refusal.epoch, refusal.reason.to_owned()));
        }
        // The time is lost and found again in each second, so no epoch is observed to its end.
        source.stepped(Some(now), None);
        source.stepped(None, Some(now + 10));
    }
    let why = "EpochNotObserved".to_owned();
    assert_eq!(stated, [(start, why.clone()), (start + 30, why)]);
}
