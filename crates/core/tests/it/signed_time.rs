//! Tests of time statements: only a statement of the signer for this device and challenge opens, and
//! the range of an anchor contains the true time.

use moteseal_core::cbor::DecodeError;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_core::signed_time::{
    MAX_DELAY_MS, MAX_TIME_STATEMENT, TimeAnchor, TimeChallenge, TimeError, TimeSigner,
    TimeStatement,
};
use proptest::prelude::*;

const STATEMENT: TimeStatement = TimeStatement {
    group: GroupId([1; 8]),
    device: DeviceId([2; 8]),
    challenge: TimeChallenge([3; 16]),
    unix_ms: 1_700_000_000_000,
};

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn issued(role: TimeSigner, signer: &SecretKey) -> Vec<u8> {
    STATEMENT.issue(role, signer, &mut [0; MAX_TIME_STATEMENT]).unwrap().to_vec()
}

/// Opens a statement at a device that knows a querier and no operator.
fn open(bytes: &[u8], querier: &PublicKey) -> Result<TimeStatement, TimeError> {
    let to = (STATEMENT.group, STATEMENT.device);
    TimeStatement::open(bytes, to, STATEMENT.challenge, |role| {
        (role == TimeSigner::Querier).then_some(querier)
    })
}

#[test]
fn a_statement_opens_with_the_key_of_its_signer_only() {
    for (algorithm, other) in
        [(Algorithm::Ed25519, Algorithm::Esp256), (Algorithm::Esp256, Algorithm::Ed25519)]
    {
        let signer = SecretKey::from_seed(algorithm, &[4; 32]).unwrap();
        let bytes = issued(TimeSigner::Querier, &signer);
        assert_eq!(open(&bytes, &signer.public()), Ok(STATEMENT));
        let other = SecretKey::from_seed(other, &[4; 32]).unwrap().public();
        assert_eq!(open(&bytes, &other), Err(TimeError::AlgorithmMismatch));
        let stranger = SecretKey::from_seed(algorithm, &[5; 32]).unwrap().public();
        assert_eq!(open(&bytes, &stranger).unwrap_err().name(), "NotAuthentic");
        let operator = issued(TimeSigner::Operator, &signer);
        assert_eq!(open(&operator, &signer.public()), Err(TimeError::UnknownSigner));
    }
}

#[test]
fn rejects_a_statement_with_any_bit_changed_or_any_truncation() {
    let (whole, querier) = (issued(TimeSigner::Querier, &key(4)), key(4).public());
    for bit in 0..whole.len() * 8 {
        let mut changed = whole.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&changed, &querier).is_err(), "bit {bit}");
    }
    for length in 0..whole.len() {
        assert!(open(&whole[..length], &querier).is_err(), "{length} bytes");
    }
    let longer = [&whole[..], &[0]].concat();
    assert_eq!(open(&longer, &querier), Err(TimeError::Decode(DecodeError::TrailingBytes)));
}

#[test]
fn the_longest_statement_fits_its_buffer() {
    let statement = TimeStatement { unix_ms: u64::MAX, ..STATEMENT };
    let signer = SecretKey::from_seed(Algorithm::Esp256, &[4; 32]).unwrap();
    let mut out = [0; MAX_TIME_STATEMENT];
    let bytes = statement.issue(TimeSigner::Querier, &signer, &mut out).unwrap();
    assert_eq!(open(bytes, &signer.public()), Ok(statement));
}

proptest! {
    /// The true time at the anchor's receipt, the delays of both ways and the timer's error are
    /// arbitrary within their bounds.
    #[test]
    fn the_range_of_an_anchor_contains_the_true_time(
        up_us in 0..2_500_000_u64,
        down_us in 0..2_400_000_u64,
        later_ms in 0..100_000_000_u64,
        ppm in -480..=480_i64,
        first_ms in 0..1_000_000_u64,
    ) {
        // Times of the world in microseconds since the challenge; the timer counts milliseconds.
        let timer = |us: u64| {
            first_ms + (i128::from(us) * i128::from(1_000_000 + ppm) / 1_000_000_000) as u64
        };
        let begin_us = 1_700_000_000_000_000;
        let unix_ms = |us: u64| (begin_us + us) / 1000;
        let statement = TimeStatement { unix_ms: unix_ms(up_us), ..STATEMENT };
        let anchor = TimeAnchor::new(&statement, timer(0), timer(up_us + down_us)).unwrap();
        let now_us = up_us + down_us + later_ms * 1000;
        let range = anchor.range(timer(now_us));
        // Both clocks count whole milliseconds.
        prop_assert!(range.earliest_ms <= unix_ms(now_us) + 1, "{range:?}");
        prop_assert!(range.latest_ms + 2 >= unix_ms(now_us), "{range:?}");
        // The range is no wider than the delays and the timer's error require.
        let width = range.latest_ms - range.earliest_ms;
        prop_assert!(width <= (up_us + down_us) / 1000 + later_ms / 1000 + 12, "{width}");
    }
}

#[test]
fn an_anchor_needs_a_statement_in_time_and_the_range_does_not_overflow() {
    assert!(TimeAnchor::new(&STATEMENT, 10, 10 + MAX_DELAY_MS).is_ok());
    assert_eq!(TimeAnchor::new(&STATEMENT, 10, 11 + MAX_DELAY_MS), Err(TimeError::TimeLate));
    let end = TimeStatement { unix_ms: u64::MAX, ..STATEMENT };
    let range = TimeAnchor::new(&end, 0, 0).unwrap().range(u64::MAX);
    assert_eq!((range.earliest_ms, range.latest_ms), (u64::MAX, u64::MAX));
}
