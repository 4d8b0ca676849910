//! Fuzzes rosters. No inconsistent roster may open, either from arbitrary bytes or from an
//! arbitrary payload that the operator has signed.

use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::record::{DeviceId, GroupId, MAX_LEVELS, SealIndex};
use moteseal_core::roster::{Directory, Roster, RosterDraft, SCRATCH_OVERHEAD};
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
    assert!((1..=MAX_LEVELS).contains(&usize::from(roster.levels())));
    assert!(roster.epoch_ms() > 0);
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
        let _ = device.key(SealIndex(u32::MAX)).expect("the last key has no expiry");
    }
}

/// Returns the fixture's roster, and its payload.
pub fn seeds() -> Vec<Vec<u8>> {
    let payload = Sign1::decode(fixture::roster(), Typ::Roster).unwrap().payload;
    vec![fixture::roster().to_vec(), payload.to_vec()]
}
