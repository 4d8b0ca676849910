//! Fuzzes rosters. No inconsistent roster may open, either from arbitrary bytes or from an
//! arbitrary payload that the operator has signed.

use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, MAX_LEVELS, SealIndex};
use moteseal_core::roster::{Directory, NoKey, Period, Roster, RosterDraft, SCRATCH_OVERHEAD};
use moteseal_core::signature::{Algorithm, Signer};

use crate::fixture;

/// Opens the bytes as a roster, and as the payload of a roster that the operator has signed.
pub fn run(bytes: &[u8]) {
    if open(bytes).is_some() {
        assert_eq!(bytes, fixture::roster(), "a roster that was never signed");
    }
    let operator = fixture::operator();
    let mut scratch = vec![0; bytes.len() + 256];
    let message = RosterDraft::message(Algorithm::Ed25519, bytes, &mut scratch).unwrap();
    let signature = operator.signature(message).unwrap();
    let mut out = vec![0; bytes.len() + 256];
    let signed = RosterDraft::attach(Algorithm::Ed25519, bytes, &signature, &mut out).unwrap();
    if open(signed).is_some() {
        let mut again = vec![0; signed.len() + SCRATCH_OVERHEAD];
        check(&Roster::open(signed, &operator.public(), &mut again).unwrap());
    }
}

fn open(bytes: &[u8]) -> Option<()> {
    Roster::open(bytes, &fixture::operator().public(), &mut vec![0; bytes.len() + SCRATCH_OVERHEAD])
        .ok()
        .map(|_| ())
}

/// Checks the properties that every opened roster must have.
fn check(roster: &Roster<'_>) {
    assert_eq!(roster.group(), GroupId::of(roster.group_name()));
    let mut before: Option<Period<'_>> = None;
    for period in roster.periods() {
        assert!((1..=MAX_LEVELS).contains(&usize::from(period.levels)));
        assert!(period.epoch_ms > 0 && period.version <= roster.version());
        if let Some(before) = before {
            assert!(before.version < period.version && before.first_epoch < period.first_epoch);
            assert_eq!(before.epoch_start_ms(period.first_epoch), period.start_ms);
        }
        assert_eq!(roster.levels(period.first_epoch), period.levels);
        before = Some(period);
    }
    assert_eq!(before, Some(roster.newest_period()));
    assert_eq!(roster.history().count(), roster.version() as usize);
    let mut last: Option<DeviceId> = None;
    for device in roster.devices() {
        assert!(last < Some(device.id), "devices out of order");
        last = Some(device.id);
        assert!(roster.first_prev(device.id).is_some());
        for certificate in device.certificates() {
            assert_eq!((certificate.group, certificate.device), (roster.group(), device.id));
            assert!(certificate.key().is_ok());
        }
        let last = device.key(SealIndex(u32::MAX), EpochNumber(u64::MAX));
        assert_ne!(last.err(), Some(NoKey::Unknown), "the last term has begun");
    }
}

/// Returns the fixture's roster, its payload, and the payload of a later version.
pub fn seeds() -> Vec<Vec<u8>> {
    let payload = |bytes| Sign1::decode(bytes, Typ::Roster).unwrap().payload.to_vec();
    vec![fixture::roster().to_vec(), payload(fixture::roster()), payload(fixture::later_roster())]
}
