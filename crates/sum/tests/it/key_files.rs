//! Tests of the key files of private sums: a written file can be read, and a malformed file is
//! rejected.

use moteseal_core::link::MAX_NODE_NAME;
use moteseal_core::participation::Participation;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::{DeviceId, Digest, GroupId};
use moteseal_sum::QuerierName;
use moteseal_sum::key_file::{Circle, KeyFileError, MAX_KEY_FILE, Masked, QuerierKeys, SourceKeys};
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{MaskKey, MaskRing, MaskRoot, Master, Psr, Slot};

const CIRCLE: Circle =
    Circle { group: GroupId([1; 8]), roster: Digest([2; 32]), sources: 100, key_group: 40 };
const DEVICE: DeviceId = DeviceId(*b"mote0041");

fn files() -> (String, String) {
    let mut out = [0; MAX_KEY_FILE];
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[9; 32]).unwrap().public();
    let querier =
        QuerierKeys::encode(&CIRCLE, (&QuerierName::default(), &key), &[7; 32], None, &mut out)
            .unwrap()
            .to_owned();
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
        let text = QuerierKeys::encode(
            &CIRCLE,
            (&QuerierName::default(), &key),
            &[7; 32],
            has_masks.then(|| Masked::all(CIRCLE.sources).unwrap()).as_ref(),
            &mut out,
        )
        .unwrap();
        let keys = QuerierKeys::decode(text.as_bytes()).unwrap();
        assert_eq!(keys.masked.is_some(), has_masks);
        let joined = keys.source(DeviceId([4; 8]), 1);
        let text = joined.encode(&mut pem).unwrap();
        let read = SourceKeys::decode(text.as_bytes()).unwrap();
        assert_eq!((read.masks.is_some(), read.needs_policy), (false, has_masks));
    }
}

#[test]
fn the_files_of_a_further_querier_have_its_name() {
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[3; 32]).unwrap().public();
    let (mut out, mut pem) = ([0; MAX_KEY_FILE], [0; MAX_KEY_FILE]);
    let name = QuerierName::new(&"a".repeat(MAX_NODE_NAME)).unwrap();
    let all = Masked::all(CIRCLE.sources).unwrap();
    let text = QuerierKeys::encode(&CIRCLE, (&name, &key), &[7; 32], Some(&all), &mut out).unwrap();
    let keys = QuerierKeys::decode(text.as_bytes()).unwrap();
    assert_eq!((keys.name, keys.masked, keys.circle), (name, Some(all), CIRCLE));
    let mut source = keys.source(DEVICE, 41);
    let secret = MaskRoot::new([5; 32]).source(CIRCLE.group, CIRCLE.ring(41), 41);
    let ring = MaskRing::of(Some(CIRCLE.ring(41)));
    source.masks = Some((secret, ring));
    let text = source.encode(&mut pem).unwrap();
    let read = SourceKeys::decode(text.as_bytes()).unwrap();
    assert_eq!((read.querier_name, read.position, read.masks.is_some()), (name, 41, true));
    assert_ne!(name.id(), QuerierName::default().id());
}

#[test]
fn a_name_has_letters_digits_and_few_signs() {
    for name in ["", "a b", "a/b", "a+", "#", "\u{e4}", &"a".repeat(MAX_NODE_NAME + 1)] {
        assert_eq!(QuerierName::new(name), None, "{name:?}");
    }
    assert_eq!(QuerierName::new("querier"), Some(QuerierName::default()));
    assert_eq!(QuerierName::new("Alerts-2_b.c").unwrap().to_string(), "Alerts-2_b.c");
}

#[test]
fn files_with_new_masks_state_the_devices_that_have_them() {
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[3; 32]).unwrap().public();
    let (mut out, mut pem) = ([0; MAX_KEY_FILE], [0; MAX_KEY_FILE]);
    // All but the devices at the positions 41 and 43.
    let masked = Masked::new(|| [0..41, 42..43, 44..100].into_iter()).unwrap();
    let of = (&QuerierName::default(), &key);
    let text = QuerierKeys::encode(&CIRCLE, of, &[7; 32], Some(&masked), &mut out).unwrap();
    let keys = QuerierKeys::decode(text.as_bytes()).unwrap();
    assert_eq!(keys.masked, Some(masked));
    assert!(keys.masked.unwrap().runs().eq([0..41, 42..43, 44..100]));

    let ring = MaskRing::of([40..41, 42..43, 44..80]);
    assert_eq!((ring.sources, MaskRing::from_bytes(&ring.to_bytes())), (38, ring));
    // Another set with as many members, and one with other runs.
    assert_ne!(ring, MaskRing::of([40..42, 43..44, 45..80]));
    assert_ne!(MaskRing::of(Some(40..80)), MaskRing::of(Some(40..79)));
    let members = (40..80).filter(|position| ![41, 43].contains(position));
    let mut source = keys.source(DEVICE, 42);
    let secret = MaskRoot::new([5; 32]).source(CIRCLE.group, members.clone(), 42);
    source.masks = Some((secret, ring));
    let text = source.encode(&mut pem).unwrap().to_owned();
    let (secret, read) = SourceKeys::decode(text.as_bytes()).unwrap().masks.unwrap();
    assert_eq!(read, ring);
    // The masks of the ring add up to 0.
    let whole = Digest([6; 32]);
    let key_of = |position| {
        let secret = MaskRoot::new([5; 32]).source(CIRCLE.group, members.clone(), position);
        secret.for_query(&whole)
    };
    let cover = |key: &MaskKey| key.cover(&Psr::ZERO, Slot(3), 70);
    assert_eq!(cover(&secret.for_query(&whole)), cover(&key_of(42)));
    let total =
        members.clone().fold(Psr::ZERO, |sum, position| sum.merge(&cover(&key_of(position))));
    assert_eq!(total, Psr::ZERO);
    let part = members.clone().skip(1).fold(Psr::ZERO, |sum, at| sum.merge(&cover(&key_of(at))));
    assert_ne!(part, Psr::ZERO);
    // Too many separate devices.
    let many = || (0..6400).map(|position| 2 * position..2 * position + 1);
    assert!(Masked::new(many).is_err());
}

/// Returns a file with one alteration of its content: `from`, which occurs once, becomes `to`.
fn altered(file: &str, from: &[u8], to: &[u8]) -> String {
    let mut buffer = [0; MAX_KEY_FILE];
    let (label, body) = pem_rfc7468::decode(file.as_bytes(), &mut buffer).unwrap();
    let at: Vec<usize> = (0..body.len()).filter(|at| body[*at..].starts_with(from)).collect();
    let [at] = at[..] else { panic!("{from:?} occurs {} times", at.len()) };
    let body = [&body[..at], to, &body[at + from.len()..]].concat();
    let mut out = [0; MAX_KEY_FILE];
    pem_rfc7468::encode(label, pem_rfc7468::LineEnding::LF, &body, &mut out).unwrap().to_owned()
}

#[test]
fn rejects_other_forms_of_names_masks_and_rings() {
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[3; 32]).unwrap().public();
    let (mut out, mut pem) = ([0; MAX_KEY_FILE], [0; MAX_KEY_FILE]);
    let name = QuerierName::new("alerts1").unwrap();
    let masked = Masked::new(|| [0..2, 3..4].into_iter()).unwrap();
    let mut file = |masked: &Masked| {
        let of = (&name, &key);
        QuerierKeys::encode(&CIRCLE, of, &[7; 32], Some(masked), &mut out).unwrap().to_owned()
    };
    let (some, all) = (file(&masked), file(&Masked::all(CIRCLE.sources).unwrap()));
    let error = |file: &str| QuerierKeys::decode(file.as_bytes()).unwrap_err().name();
    assert_eq!(error(&altered(&some, b"galerts1", b"gquerier")), "FieldOutOfRange");
    assert_eq!(error(&altered(&some, b"galerts1", b"galerts+")), "FieldOutOfRange");
    // The last item: `true`, or a set of positions.
    let secret = [&[0x58, 32][..], &[7; 32]].concat();
    let with = |item: &[u8]| [&secret[..], item].concat();
    assert_eq!(error(&altered(&all, &with(&[0xf5]), &with(&[0xf4]))), "FieldOutOfRange");
    assert_eq!(error(&altered(&all, &with(&[0xf5]), &with(&[0x01]))), "UnexpectedType");
    // All positions below 100, as one run.
    let run = [0x42, 0, 99];
    assert_eq!(error(&altered(&all, &with(&[0xf5]), &with(&run))), "FieldOutOfRange");
    let set = [&[0x40 + u8::try_from(masked_bytes().len()).unwrap()][..], &masked_bytes()].concat();
    assert_eq!(error(&altered(&some, &with(&set), &with(&[0x42, 0, 0xff]))), "FieldOutOfRange");

    let mut source = QuerierKeys::decode(some.as_bytes()).unwrap().source(DEVICE, 41);
    let secret = MaskRoot::new([5; 32]).source(CIRCLE.group, [41, 43], 41);
    let ring = MaskRing::of([41..42, 43..44]);
    source.masks = Some((secret, ring));
    let text = source.encode(&mut pem).unwrap().to_owned();
    let error = |from: &[u8], to: &[u8]| {
        SourceKeys::decode(altered(&text, from, to).as_bytes()).unwrap_err().name()
    };
    let ring = ring.to_bytes();
    for sources in [0, CIRCLE.key_group + 1] {
        let other = [&sources.to_be_bytes()[..], &ring[4..]].concat();
        assert_eq!(error(&ring, &other), "FieldOutOfRange");
    }
    let secret = source.masks.as_ref().unwrap().0.to_bytes();
    let masks = [&[0x58, 96][..], &*secret].concat();
    assert_eq!(error(&masks, &[0x40]), "UnexpectedType");
}

/// The encoded positions 0, 1 and 3.
fn masked_bytes() -> Vec<u8> {
    let mut out = [0; 8];
    let length = Participation::encode(&[0b1011], &mut out).unwrap();
    out[..length].to_vec()
}
