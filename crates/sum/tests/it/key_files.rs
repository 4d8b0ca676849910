//! Tests of the key files of private sums: a written file can be read, and a malformed file is
//! rejected.

use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::{DeviceId, Digest, GroupId};
use moteseal_sum::key_file::{Circle, KeyFileError, MAX_KEY_FILE, QuerierKeys, SourceKeys};
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::Master;

const CIRCLE: Circle =
    Circle { group: GroupId([1; 8]), roster: Digest([2; 32]), sources: 100, key_group: 40 };
const DEVICE: DeviceId = DeviceId(*b"mote0041");

fn files() -> (String, String) {
    let mut out = [0; MAX_KEY_FILE];
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[9; 32]).unwrap().public();
    let querier = QuerierKeys::encode(&CIRCLE, &key, &[7; 32], false, &mut out).unwrap().to_owned();
    let keys = QuerierKeys::decode(querier.as_bytes()).unwrap();
    let source = keys.source(DEVICE, 41).encode(&mut out).unwrap().to_owned();
    (querier, source)
}

#[test]
fn reads_what_was_written() {
    let (querier, source) = files();
    let querier = QuerierKeys::decode(querier.as_bytes()).unwrap();
    let source = SourceKeys::decode(source.as_bytes()).unwrap();
    assert_eq!((querier.circle, source.circle), (CIRCLE, CIRCLE));
    assert_eq!((source.device, source.position), (DEVICE, 41));
    assert_eq!(source.querier, querier.querier);
    // With key groups of 40 positions, position 41 is in the second key group, which has number 1.
    let expected = Master::new([7; 32]).source(CIRCLE.group, DEVICE, 1);
    assert_eq!(*source.secret.to_bytes(), *expected.to_bytes());
    assert_eq!(source.secret.for_query(QueryId([0; 16])).query(), QueryId([0; 16]));
    assert!(!format!("{source:?} {querier:?}").contains("07, 07"));
}

#[test]
fn rejects_a_file_for_another_roster_or_group() {
    assert_eq!(CIRCLE.check(CIRCLE.group, &CIRCLE.roster), Ok(()));
    assert_eq!(CIRCLE.check(CIRCLE.group, &Digest([3; 32])), Err(KeyFileError::WrongRoster));
    assert_eq!(CIRCLE.check(GroupId([3; 8]), &CIRCLE.roster), Err(KeyFileError::WrongGroup));
}

#[test]
fn rejects_damaged_files_and_the_wrong_kind_of_file() {
    let (querier, source) = files();
    assert_eq!(SourceKeys::decode(querier.as_bytes()).unwrap_err(), KeyFileError::WrongPemLabel);
    assert_eq!(QuerierKeys::decode(source.as_bytes()).unwrap_err(), KeyFileError::WrongPemLabel);
    assert_eq!(SourceKeys::decode(b"").unwrap_err(), KeyFileError::MalformedPem);
    assert_eq!(SourceKeys::decode(b"64 digits").unwrap_err(), KeyFileError::MalformedPem);
    for cut in 0..source.len() - 1 {
        assert!(SourceKeys::decode(&source.as_bytes()[..cut]).is_err(), "{cut}");
    }
    for at in 0..source.len() {
        let mut bytes = source.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        // A changed secret cannot be detected, because it has no checksum. The call must only not
        // panic.
        let _ = SourceKeys::decode(&bytes);
    }
}

#[test]
fn a_device_that_joins_a_group_with_masks_needs_a_policy() {
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[3; 32]).unwrap().public();
    for has_masks in [false, true] {
        let (mut out, mut pem) = ([0; MAX_KEY_FILE], [0; MAX_KEY_FILE]);
        let text = QuerierKeys::encode(&CIRCLE, &key, &[7; 32], has_masks, &mut out).unwrap();
        let keys = QuerierKeys::decode(text.as_bytes()).unwrap();
        assert_eq!(keys.has_masks, has_masks);
        let joined = keys.source(DeviceId([4; 8]), 1);
        let text = joined.encode(&mut pem).unwrap();
        let read = SourceKeys::decode(text.as_bytes()).unwrap();
        assert_eq!((read.masks.is_some(), read.needs_policy), (false, has_masks));
    }
}
