//! Tests a mote as a source of private sums. Whatever wall time it receives, it never answers that
//! it sensed nothing in an epoch that it did not observe from beginning to end.

use crate::faulty_flash::Simulated;
use moteseal_core::digest::Digest;
use moteseal_core::provision::{Membership, Provisioning, Window};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_mote::answerer::Answerer;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::notice::Notice;
use moteseal_sum::query::{MAX_PLAN, Plan};
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::sies::Master;
use zeroize::Zeroizing;

const DEVICE: DeviceId = DeviceId([7; 8]);
const GROUP: GroupId = GroupId([2; 8]);
const ROSTER: Digest = Digest([6; 32]);
const EPOCH_MS: u64 = 1000;
/// The epoch in which the query schedule was signed.
const SIGNED: u64 = 5_000;
const UNTIL: u64 = 9_000;

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn provisioning(schema: &[u8]) -> Provisioning<'_> {
    let sums = Membership {
        roster: ROSTER,
        key_group: 4,
        position: 8,
        secret: Master::new([3; 32]).source(GROUP, DEVICE, 2).to_bytes(),
        querier: key(4).public(),
        link_secret: Zeroizing::new([5; 32]),
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
        window: Window { first: 0, count: 1, start_ms: 0, every_ms: 1, interval_ms: 1 },
        sums: Some(sums),
        audience: None,
    }
}

/// Returns a query schedule with one query. It is signed at the beginning of epoch `signed`.
fn schedule(schema: &Schema<'_>, signed: u64) -> Vec<u8> {
    let mut plan = [0; MAX_PLAN];
    let plan = Plan::parse("SELECT SUM(reading) FROM sensors EPOCH DURATION 1s", schema)
        .unwrap()
        .encode(&mut plan)
        .unwrap();
    let posed = [Posed { nonce: [3; 16], first: SIGNED, until: UNTIL, plan }];
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
    /// The source receives a hint of the wall time: this epoch began this many milliseconds ago.
    Hint(u64, u64),
    /// The source senses a record.
    Sensed,
}
use Happens::{Hint, Sensed};

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
    source
        .receive(0, &schedule(&schema, SIGNED), &mut durable, &mut |report| {
            assert_eq!(report, Notice::QuerySchedule(SIGNED * EPOCH_MS));
        })
        .unwrap();
    for now_ms in 0..end_ms {
        for (_, happens) in happenings.iter().filter(|(at, _)| *at == now_ms) {
            match happens {
                Hint(epoch, since_ms) => source.hint(now_ms, epoch * EPOCH_MS + since_ms),
                Sensed => source.sensed(now_ms, &7_u32.to_be_bytes()),
            }
        }
        let notify = &mut |report| {
            if let Notice::Answered(epoch) = report {
                answered.push(epoch);
            }
        };
        let _ = source.next_body(now_ms, &mut [0; 1400], &mut durable, notify).unwrap();
    }
    answered
}

#[test]
fn answers_whole_epochs_and_not_the_one_in_which_the_schedule_arrived() {
    assert_eq!(answered(&[(1500, Sensed)], 3500), [SIGNED + 1, SIGNED + 2]);
    // If the source has a reading in the first epoch, it answers that epoch.
    assert_eq!(answered(&[(500, Sensed)], 1500), [SIGNED]);
}

#[test]
fn answers_no_epoch_that_a_clock_change_cut_short() {
    // The clock is set forward by many epochs, because the query schedule was signed long ago. The
    // source does not answer the epoch in progress.
    assert_eq!(answered(&[(1500, Hint(SIGNED + 100, 20))], 1900), [] as [u64; 0]);
    // Readings from before the change do not count, because their time was wrong.
    assert_eq!(answered(&[(1200, Sensed), (1500, Hint(SIGNED + 100, 20))], 1900), [] as [u64; 0]);
    assert_eq!(answered(&[(1500, Hint(SIGNED + 2, 20))], 1900), [] as [u64; 0]);
    // The clock is set back and then continues.
    let back = [(1200, Sensed), (3500, Hint(SIGNED + 1, 900))];
    assert_eq!(answered(&back, 3800), [SIGNED + 1, SIGNED + 2]);
    // The source answers the epochs that begin after the change.
    assert_eq!(answered(&[(1500, Hint(SIGNED + 100, 20))], 4500), [SIGNED + 101, SIGNED + 102]);
    // A change that does not change the current epoch has no effect.
    assert_eq!(answered(&[(1500, Hint(SIGNED + 1, 520))], 2100), [SIGNED + 1]);
}

#[test]
fn a_wrong_time_does_not_end_a_query() {
    let far = [(1500, Hint(UNTIL + 50, 20)), (2500, Hint(SIGNED + 3, 500))];
    assert_eq!(answered(&far, 5500), [SIGNED + 4, SIGNED + 5]);
}
