//! Tests of policies and masks (spec/policy.md; spec/sums.md, section 2.3).

use moteseal_broadcast::KeyId;
use moteseal_core::cbor::DecodeError;
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::policy::{
    ColumnTerms, MAX_POLICY, NotPermitted, Permission, Policy, PolicyDraft, PolicyError,
    QuerierTerms, permit,
};
use moteseal_sum::query::{Plan, QueryId};
use moteseal_sum::sies::{KeyTotals, MaskRoot, MaskSecret, Master, OpenError, Psr, Slot};
use proptest::prelude::*;

const GROUP: GroupId = GroupId([1; 8]);
const ROSTER: Digest = Digest([2; 32]);
const QUERY: QueryId = QueryId([9; 16]);
const WHOLE: Digest = Digest([9; 32]);

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[seed; 32]).unwrap()
}

fn schema() -> Vec<u8> {
    let fields = ["t:Cel:i16/100", "h:%RH:u16/100", "room::u8"].map(|f| Field::parse(f).unwrap());
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

const COLUMNS: [ColumnTerms<'static>; 1] =
    [ColumnTerms { name: "t", divisor: 100, range: Some((-4000, 8500)) }];

fn draft<'a>(queriers: &'a [QuerierTerms<'a>]) -> PolicyDraft<'a> {
    PolicyDraft {
        group: GROUP,
        roster: ROSTER,
        version: 3,
        min_count: 5,
        min_count_squares: 8,
        queriers,
    }
}

fn terms(key: &PublicKey, is_trusted: bool) -> QuerierTerms<'static> {
    QuerierTerms { key: KeyId::of(key), is_trusted, epoch_ms: 30_000, budget: 0, columns: &COLUMNS }
}

/// Returns what a policy permits the querier with the key `querier`.
fn permitted(
    queriers: &[QuerierTerms<'_>],
    querier: &PublicKey,
    text: &str,
    range: Option<(i64, i64)>,
    ring: Option<u32>,
) -> Result<Permission, NotPermitted> {
    let mut out = vec![0; MAX_POLICY];
    let policy = Policy::decode(draft(queriers).encode(&mut out).unwrap()).unwrap();
    let schema = schema();
    let mut plan = Plan::parse(text, &Schema::decode(&schema).unwrap()).unwrap();
    if let Some((low, high)) = range {
        plan.declare("t", low, high);
    }
    permit(Some(&policy), querier, &plan, ring, true)
}

#[test]
fn a_querier_that_is_not_trusted_gets_only_sums_over_whole_key_groups() {
    let (querier, stranger) = (key(1).public(), key(2).public());
    let queriers = [terms(&querier, false)];
    let range = Some((-4000, 8500));
    let ask = |text: &str, range, ring| permitted(&queriers, &querier, text, range, ring);
    let sum = "SELECT SUM(t), COUNT(*) FROM sensors EPOCH DURATION 30s";
    assert_eq!(ask(sum, range, Some(5)), Ok(Permission::Masked));
    assert_eq!(
        permitted(&queriers, &stranger, sum, range, Some(5)),
        Err(NotPermitted::QuerierNotPermitted)
    );
    // Another length of epochs selects other newest readings, and the difference of two sums may be
    // the difference of two readings of one device.
    for epoch in ["29s", "31s", "1m"] {
        let text = format!("SELECT SUM(t) FROM sensors EPOCH DURATION {epoch}");
        assert_eq!(ask(&text, range, Some(5)), Err(NotPermitted::EpochNotPermitted));
    }
    let other = "SELECT SUM(h) FROM sensors EPOCH DURATION 30s";
    assert_eq!(ask(other, range, Some(5)), Err(NotPermitted::ColumnNotPermitted));
    // A range is a condition: readings outside it are only counted.
    for range in [(-4000, 8499), (-3999, 8500), (-4001, 8500), (0, 0)] {
        assert_eq!(ask(sum, Some(range), Some(5)), Err(NotPermitted::RangeNotPermitted));
    }
    let condition = "SELECT SUM(t) FROM sensors WHERE t > 3 EPOCH DURATION 30s";
    assert_eq!(ask(condition, range, Some(5)), Err(NotPermitted::ConditionNotPermitted));
    let elsewhere = "SELECT SUM(t) FROM sensors WHERE room = 3 EPOCH DURATION 30s";
    assert_eq!(ask(elsewhere, range, Some(5)), Err(NotPermitted::ColumnNotPermitted));
    assert_eq!(ask(sum, range, None), Err(NotPermitted::NoMasks));
    assert_eq!(ask(sum, range, Some(4)), Err(NotPermitted::GroupTooSmall));
    let squares = "SELECT STDDEV(t) FROM sensors EPOCH DURATION 30s";
    assert_eq!(ask(squares, range, Some(7)), Err(NotPermitted::GroupTooSmall));
    assert_eq!(ask(squares, range, Some(8)), Ok(Permission::Masked));
    // A reading counts only if all summed columns are in range.
    let two = [COLUMNS[0], ColumnTerms { name: "h", divisor: 100, range: Some((0, 65_535)) }];
    let both = [QuerierTerms { columns: &two, ..queriers[0] }];
    let text = "SELECT SUM(t), SUM(h) FROM sensors EPOCH DURATION 30s";
    assert_eq!(
        permitted(&both, &querier, text, range, Some(5)),
        Err(NotPermitted::ColumnsCombined)
    );
    let humidity = "SELECT SUM(h), COUNT(t) FROM sensors EPOCH DURATION 30s";
    assert_eq!(permitted(&both, &querier, humidity, None, Some(5)), Ok(Permission::Masked));
}

#[test]
fn a_trusted_querier_may_ask_about_its_columns() {
    let querier = key(1).public();
    let free = [QuerierTerms { columns: &[], ..terms(&querier, true) }];
    let any = "SELECT STDDEV(h) FROM sensors WHERE room = 3 EPOCH DURATION 1m";
    assert_eq!(permitted(&free, &querier, any, None, Some(2)), Ok(Permission::Plain));
    let short = "SELECT SUM(h) FROM sensors EPOCH DURATION 29s";
    assert_eq!(permitted(&free, &querier, short, None, None), Err(NotPermitted::EpochNotPermitted));
    let columns = [ColumnTerms { name: "h", divisor: 100, range: None }];
    let some = [QuerierTerms { columns: &columns, ..terms(&querier, true) }];
    assert_eq!(permitted(&some, &querier, any, None, None), Err(NotPermitted::ColumnNotPermitted));
    let humid = "SELECT AVG(h) FROM sensors WHERE h > 40 EPOCH DURATION 30s";
    assert_eq!(permitted(&some, &querier, humid, None, None), Ok(Permission::Plain));
    // Another divisor would be another column.
    let columns = [ColumnTerms { name: "h", divisor: 10, range: None }];
    let some = [QuerierTerms { columns: &columns, ..terms(&querier, true) }];
    assert_eq!(
        permitted(&some, &querier, humid, None, None),
        Err(NotPermitted::ColumnNotPermitted)
    );
}

#[test]
fn a_device_with_masks_answers_only_under_a_policy() {
    let schema = schema();
    let text = "SELECT SUM(t) FROM sensors EPOCH DURATION 30s";
    let plan = Plan::parse(text, &Schema::decode(&schema).unwrap()).unwrap();
    let querier = key(1).public();
    assert_eq!(permit(None, &querier, &plan, Some(5), true), Err(NotPermitted::PolicyMissing));
    // A device that joined a group with masks.
    assert_eq!(permit(None, &querier, &plan, None, true), Err(NotPermitted::PolicyMissing));
    assert_eq!(permit(None, &querier, &plan, None, false), Ok(Permission::Plain));
}

#[test]
fn opens_only_a_policy_that_the_operator_signed_for_this_group() {
    for algorithm in [Algorithm::Ed25519, Algorithm::Esp256] {
        let operator = SecretKey::from_seed(algorithm, &[3; 32]).unwrap();
        let querier = key(1).public();
        let queriers = [terms(&querier, false)];
        let (mut scratch, mut out) = (vec![0; MAX_POLICY], vec![0; MAX_POLICY]);
        let signed = draft(&queriers).issue(&operator, &mut scratch, &mut out).unwrap().to_vec();
        let mut scratch = vec![0; MAX_POLICY + 64];
        let mut open = |bytes: &[u8], group, roster: &Digest, key: &PublicKey| {
            Policy::open(bytes, (group, roster), key, &mut scratch).map(|policy| policy.version)
        };
        assert_eq!(open(&signed, GROUP, &ROSTER, &operator.public()), Ok(3));
        let other = GroupId([7; 8]);
        assert_eq!(open(&signed, other, &ROSTER, &operator.public()), Err(PolicyError::WrongGroup));
        assert_eq!(
            open(&signed, GROUP, &Digest([7; 32]), &operator.public()),
            Err(PolicyError::WrongRoster)
        );
        assert!(open(&signed, GROUP, &ROSTER, &key(8).public()).is_err());
        for at in 0..signed.len() {
            let mut changed = signed.clone();
            changed[at] ^= 1;
            assert!(open(&changed, GROUP, &ROSTER, &operator.public()).is_err(), "byte {at}");
            assert!(open(&signed[..at], GROUP, &ROSTER, &operator.public()).is_err());
        }
    }
}

#[test]
fn a_draft_that_readers_would_reject_is_not_signed() {
    let querier = key(1).public();
    let good = terms(&querier, false);
    let unranged = [ColumnTerms { range: None, ..COLUMNS[0] }];
    let empty = [ColumnTerms { range: Some((1, 0)), ..COLUMNS[0] }];
    let twice = [COLUMNS[0], COLUMNS[0]];
    let unnamed = [ColumnTerms { name: "", ..COLUMNS[0] }];
    let undivided = [ColumnTerms { divisor: 0, ..COLUMNS[0] }];
    let wrong = [unranged, empty, unnamed, undivided];
    let mut drafts: Vec<Vec<QuerierTerms<'_>>> =
        wrong.iter().map(|columns| vec![QuerierTerms { columns, ..good }]).collect();
    drafts.push(vec![QuerierTerms { columns: &twice, ..good }]);
    drafts.push(vec![good, QuerierTerms { is_trusted: true, ..good }]);
    drafts.push(vec![QuerierTerms { epoch_ms: 999, ..good }]);
    // All queriers have the same secrets.
    drafts.push(vec![good, terms(&key(2).public(), true)]);
    let mut out = vec![0; MAX_POLICY];
    for queriers in &drafts {
        let bytes = draft(queriers).encode(&mut out).unwrap();
        assert_eq!(Policy::decode(bytes), Err(DecodeError::FieldOutOfRange), "{queriers:?}");
    }
    let queriers = [good];
    for (min_count, min_count_squares) in [(1, 8), (5, 4), (0, 0)] {
        let draft = PolicyDraft { min_count, min_count_squares, ..draft(&queriers) };
        let bytes = draft.encode(&mut out).unwrap();
        assert_eq!(Policy::decode(bytes), Err(DecodeError::FieldOutOfRange));
    }
}

// ------------------------------------------------------------------ masks

/// Returns the masked records of the sources of a ring, and what the querier needs to open them.
fn masked(size: u32, epoch: u64) -> (Master, Vec<DeviceId>, Vec<Psr>) {
    let (master, root) = (Master::new([7; 32]), MaskRoot::new([8; 32]));
    let devices: Vec<DeviceId> =
        (0..size).map(|position| DeviceId(u64::from(position).to_be_bytes())).collect();
    let records = (0..size).zip(&devices).map(|(position, device)| {
        let mut permit = EpochGuard::default().advance(QUERY, 1000, epoch).unwrap();
        let source = master.source(GROUP, *device, 0).for_query(QUERY);
        let psr = source.encrypt(&mut permit, Slot(0), 100 + u128::from(position)).unwrap();
        let secret = root.source(GROUP, 0..size, position);
        let secret = MaskSecret::from_bytes(&secret.to_bytes());
        secret.for_query(&WHOLE).cover(&psr, Slot(0), epoch)
    });
    let records = records.collect();
    (master, devices, records)
}

/// Opens the sum of a subset of the records, with the keys of these sources.
fn open(
    (master, devices, records): &(Master, Vec<DeviceId>, Vec<Psr>),
    subset: u32,
    epoch: u64,
) -> Result<u128, OpenError> {
    let (mut totals, mut sum) = (KeyTotals::default(), Psr::ZERO);
    for (place, (device, psr)) in devices.iter().zip(records).enumerate() {
        if subset >> place & 1 == 1 {
            totals.add(&master.source(GROUP, *device, 0).for_query(QUERY), Slot(0), epoch);
            sum = sum.merge(psr);
        }
    }
    let key = master.key_group(GROUP, 0).for_query(QUERY);
    totals.open(&sum, &key, Slot(0), epoch, 1000)
}

/// Findings C3 and C4 of the review: a querier that gets hold of single encrypted values, or that
/// drops a device, opens nothing.
#[test]
fn only_the_sum_of_the_whole_key_group_opens() {
    for size in [2, 3, 5, 8] {
        let all = masked(size, 12);
        let expected = (0..u128::from(size)).map(|position| 100 + position).sum();
        let whole = (1 << size) - 1;
        assert_eq!(open(&all, whole, 12), Ok(expected));
        for subset in 1..whole {
            assert_eq!(open(&all, subset, 12), Err(OpenError::SharesMismatch), "{subset:b}");
        }
        // The masks of another epoch do not add up with those of this epoch.
        let (master, devices, mut records) = masked(size, 12);
        records[0] = masked(size, 13).2[0];
        assert!(open(&(master, devices, records), whole, 12).is_err());
    }
}

/// The keys of a querier open a masked record to a value that any other value could have.
#[test]
fn a_masked_record_is_independent_of_its_value() {
    let (master, root) = (Master::new([7; 32]), MaskRoot::new([8; 32]));
    let device = DeviceId([4; 8]);
    let mask = root.source(GROUP, 0..5, 1).for_query(&WHOLE);
    let record = |value| {
        let mut permit = EpochGuard::default().advance(QUERY, 1000, 5).unwrap();
        let source = master.source(GROUP, device, 0).for_query(QUERY);
        source.encrypt(&mut permit, Slot(0), value).unwrap()
    };
    let covered = |psr: &Psr| mask.cover(psr, Slot(0), 5);
    // The mask is the same number for every value: it is a one-time pad.
    let difference = |a: &Psr, b: &Psr| {
        let (a, b) = (a.to_bytes(), b.to_bytes());
        num_bigint::BigInt::from_bytes_be(num_bigint::Sign::Plus, &a)
            - num_bigint::BigInt::from_bytes_be(num_bigint::Sign::Plus, &b)
    };
    let p: num_bigint::BigInt = (num_bigint::BigInt::from(1) << 256) - 189;
    let of = |value| {
        let psr = record(value);
        let mask: num_bigint::BigInt = (difference(&covered(&psr), &psr) % &p + &p) % &p;
        mask
    };
    assert_eq!(of(0), of(77));
    assert!(of(0).bits() > 200);
    assert_ne!(covered(&record(1)), covered(&record(2)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Policy::decode(&bytes);
    }

    #[test]
    fn what_decodes_encodes_to_the_same_bytes(at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let querier = key(1).public();
        let queriers = [terms(&querier, false)];
        let mut out = vec![0; MAX_POLICY];
        let mut bytes = draft(&queriers).encode(&mut out).unwrap().to_vec();
        let place = at.index(bytes.len());
        bytes[place] = value;
        let Ok(policy) = Policy::decode(&bytes) else { return Ok(()) };
        let mut again = Vec::new();
        policy.for_each_querier(|terms| {
            let queriers = [*terms];
            let draft = PolicyDraft {
                group: policy.group,
                roster: policy.roster,
                version: policy.version,
                min_count: policy.min_count,
                min_count_squares: policy.min_count_squares,
                queriers: &queriers,
            };
            let mut out = vec![0; MAX_POLICY];
            again = draft.encode(&mut out).unwrap().to_vec();
        });
        if !again.is_empty() {
            prop_assert_eq!(again, bytes);
        }
    }
}
