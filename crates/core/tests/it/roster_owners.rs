//! The owners of confidential readings in rosters.

use moteseal_core::digest::Digest;
use moteseal_core::identity::{CertificateDraft, MAX_CERTIFICATE};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{
    OwnerDraft, Period, Roster, RosterDraft, RosterError, SCRATCH_OVERHEAD, owner_id,
};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};

const NAMES: [&str; 3] = ["alice", "bob", "carol"];

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn certificate(operator: &SecretKey, group: &str, device: DeviceId) -> Vec<u8> {
    let key = key(7).public();
    let group = GroupId::of(group);
    let draft = CertificateDraft { group, device, serial: 1, key: &key, first_index: SealIndex(0) };
    draft.issue(operator, &mut [0; MAX_CERTIFICATE]).unwrap().to_vec()
}

/// Returns the certificates of all names, sorted by id.
fn certified() -> Vec<(&'static str, Vec<u8>)> {
    let mut names = NAMES;
    names.sort_by_key(|name| owner_id("home", name));
    names.map(|name| (name, certificate(&key(1), "home", owner_id("home", name)))).to_vec()
}

fn sign(owners: &[(&str, Vec<u8>)], history: &[Digest]) -> Result<Vec<u8>, RosterError> {
    let owners: Vec<_> =
        owners.iter().map(|(name, certificate)| OwnerDraft { name, certificate }).collect();
    let draft = RosterDraft {
        group_name: "home",
        history,
        periods: &[Period::first(1000, 8, None, EpochNumber(0), None)],
        last_epoch: None,
        querier: None,
        devices: &[],
        owners: &owners,
        sanitisers: &[],
    };
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    draft.sign(&key(1), &mut scratch, &mut out).map(<[u8]>::to_vec)
}

fn open(bytes: &[u8]) -> Result<Vec<String>, RosterError> {
    let mut scratch = vec![0; bytes.len() + SCRATCH_OVERHEAD];
    let roster = Roster::open(bytes, &key(1).public(), &mut scratch)?;
    let key = key(7).public();
    assert!(roster.owners().all(|owner| owner.key().as_ref() == Some(&key)));
    Ok(roster.owners().map(|owner| owner.name.to_owned()).collect())
}

const LATER: [Digest; 1] = [Digest([4; 32])];

#[test]
fn a_later_version_of_a_roster_lists_owners() {
    let owners = certified();
    for count in 0..=owners.len() {
        let bytes = sign(&owners[..count], &LATER).unwrap();
        let names: Vec<_> = owners[..count].iter().map(|(name, _)| *name).collect();
        assert_eq!(open(&bytes).unwrap(), names);
    }
    assert_eq!(sign(&owners, &[]).unwrap_err(), RosterError::NotAFirstVersion);
}

#[test]
fn an_owner_is_certified_under_an_id_that_no_device_has() {
    assert_ne!(owner_id("home", "alice"), DeviceId::of("home", "alice"));
    assert_ne!(owner_id("home", "alice"), owner_id("office", "alice"));
    let of_device = certificate(&key(1), "home", DeviceId::of("home", "alice"));
    let error = sign(&[("alice", of_device)], &LATER).unwrap_err();
    assert_eq!(error, RosterError::CertificateMismatch);
    let of_group = certificate(&key(1), "office", owner_id("home", "alice"));
    let error = sign(&[("alice", of_group)], &LATER).unwrap_err();
    assert_eq!(error, RosterError::CertificateMismatch);
}

#[test]
fn owners_that_are_unsorted_listed_twice_or_not_certified_are_refused() {
    let mut owners = certified();
    owners.swap(0, 1);
    assert_eq!(sign(&owners, &LATER).unwrap_err(), RosterError::UnsortedOwners);
    owners[1] = owners[0].clone();
    assert_eq!(sign(&owners, &LATER).unwrap_err(), RosterError::UnsortedOwners);
    owners[0].0 = "";
    assert_eq!(sign(&owners, &LATER).unwrap_err(), RosterError::InvalidName);
    let forged = certificate(&key(2), "home", owner_id("home", "alice"));
    let bytes = sign(&[("alice", forged)], &LATER).unwrap();
    assert_eq!(open(&bytes).unwrap_err(), RosterError::CertificateNotAuthentic);
}

#[test]
fn an_empty_list_of_owners_is_refused() {
    let draft = RosterDraft {
        group_name: "home",
        history: &LATER,
        periods: &[Period::first(1000, 8, None, EpochNumber(0), None)],
        last_epoch: None,
        querier: None,
        devices: &[],
        owners: &[],
        sanitisers: &[],
    };
    let mut scratch = vec![0; draft.size()];
    let mut payload = draft.payload(&mut scratch).unwrap().to_vec();
    assert_eq!(payload[0], 0x89);
    payload[0] = 0x8a;
    payload.push(0x80);
    let (operator, mut scratch) = (key(1), vec![0; draft.size()]);
    let message = RosterDraft::message(Algorithm::Ed25519, &payload, &mut scratch).unwrap();
    let signature = operator.signature(message).unwrap();
    let mut out = vec![0; draft.size()];
    let bytes = RosterDraft::attach(Algorithm::Ed25519, &payload, &signature, &mut out).unwrap();
    assert_eq!(open(bytes).unwrap_err().name(), "UnexpectedType");
}
