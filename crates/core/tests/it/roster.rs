//! Tests of certificates and rosters: valid ones open, and each invalid property is reported as its
//! own error.

use moteseal_core::cbor::{BufferTooSmall, DecodeError, Writer};
use moteseal_core::cose::{Protected, Sign1, Typ, sig_structure};
use moteseal_core::digest::Digest;
use moteseal_core::identity::{Certificate, CertificateDraft, CertificateError, MAX_CERTIFICATE};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{
    DeviceDraft, Directory, MAX_EPOCH_MS, NoKey, Period, Roster, RosterDraft, RosterError,
    SCRATCH_OVERHEAD, Term,
};
use moteseal_core::signature::{Algorithm, KeyError, PublicKey, SecretKey, SignatureError, Signer};
use proptest::prelude::*;

fn suites() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL
        .into_iter()
        .filter(|&algorithm| cfg!(feature = "host") || algorithm != Algorithm::MlDsa44)
}

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn operator() -> SecretKey {
    key(0xee)
}

fn issue(
    operator: &SecretKey,
    group: &str,
    device: &str,
    key: &PublicKey,
    first_index: u32,
) -> Vec<u8> {
    let draft = CertificateDraft {
        group: GroupId::of(group),
        device: DeviceId::of(group, device),
        serial: 7,
        key,
        first_index: SealIndex(first_index),
    };
    draft.issue(operator, &mut [0; MAX_CERTIFICATE]).unwrap().to_vec()
}

/// Returns the names, sorted by the ids that devices of these names have in the group.
fn sorted<'n>(group: &str, names: &[&'n str]) -> Vec<&'n str> {
    let mut names = names.to_vec();
    names.sort_by_key(|name| DeviceId::of(group, name));
    names
}

fn open<'b>(bytes: &'b [u8], operator: &SecretKey) -> Result<Roster<'b>, RosterError> {
    Roster::open(bytes, &operator.public(), &mut vec![0; bytes.len() + SCRATCH_OVERHEAD])
}

/// Makes a period whose certificate lives as long as the test.
fn leak(period: Period<'_>) -> Period<'static> {
    let coordinator =
        period.coordinator.map(|bytes| &*Box::leak(bytes.to_vec().into_boxed_slice()));
    Period { coordinator, ..period }
}

/// A roster of three devices: `dev1` and `dev2` have one key each, and `dev3` has a second key from
/// index 100 on.
struct Group {
    devices: Vec<(&'static str, Vec<Vec<u8>>)>,
    history: Vec<Digest>,
    coordinator: Option<Vec<u8>>,
}

impl Group {
    fn new() -> Self {
        let certificates = |name| match name {
            "dev1" => vec![issue(&operator(), "home", "dev1", &key(1).public(), 0)],
            "dev2" => vec![issue(&operator(), "home", "dev2", &key(2).public(), 0)],
            _ => vec![
                issue(&operator(), "home", "dev3", &key(3).public(), 0),
                issue(&operator(), "home", "dev3", &key(33).public(), 100),
            ],
        };
        let devices = sorted("home", &["dev1", "dev2", "dev3"])
            .into_iter()
            .map(|name| (name, certificates(name)))
            .collect();
        let coordinator = Some(issue(&operator(), "home", "gateway", &key(9).public(), 0));
        Self { devices, history: vec![Digest([1; 32]), Digest([2; 32])], coordinator }
    }

    /// Applies `change` to the draft of the roster and signs it.
    fn sign(&self, change: impl FnOnce(&mut RosterDraft<'_>)) -> Result<Vec<u8>, RosterError> {
        let terms: Vec<Vec<Term<'_>>> = self
            .devices
            .iter()
            .map(|(_, certificates)| certificates.iter().map(|bytes| Term::always(bytes)).collect())
            .collect();
        let devices: Vec<_> = self
            .devices
            .iter()
            .zip(&terms)
            .map(|((name, _), terms)| DeviceDraft { name, since: 0, terms })
            .collect();
        let coordinator = self.coordinator.as_deref();
        let first = EpochNumber(400_000);
        let mut draft = RosterDraft {
            group_name: "home",
            history: &self.history,
            periods: &[Period::first(3_600_000, 16, Some(1000), first, coordinator)],
            last_epoch: Some(EpochNumber(500_000)),
            querier: None,
            devices: &devices,
            owners: &[],
            sanitisers: &[],
        };
        change(&mut draft);
        let size = draft.size();
        Ok(draft.sign(&operator(), &mut vec![0; size], &mut vec![0; size])?.to_vec())
    }

    /// Signs the roster with a change of its only period.
    fn with(&self, change: impl FnOnce(&mut Period<'_>)) -> Result<Vec<u8>, RosterError> {
        let first = EpochNumber(400_000);
        let coordinator = self.coordinator.as_deref();
        let mut period = Period::first(3_600_000, 16, Some(1000), first, coordinator);
        change(&mut period);
        period.start_ms = period.first_epoch.0.checked_mul(period.epoch_ms);
        self.sign(|draft| draft.periods = Box::leak(Box::new([leak(period)])))
    }

    /// Returns the error of a roster with a change of its only period.
    fn refused_with(&self, change: impl FnOnce(&mut Period<'_>)) -> &'static str {
        self.with(change).unwrap_err().name()
    }

    fn refused(&self, change: impl FnOnce(&mut RosterDraft<'_>)) -> &'static str {
        let error = self.sign(change).unwrap_err();
        assert_eq!(error.named().to_string(), format!("{}: {error}", error.name()));
        assert!(!error.to_string().starts_with(error.name()), "{error}");
        error.name()
    }
}

#[test]
fn a_certificate_opens_only_under_its_operators_key() {
    for signing in suites() {
        for certified in suites() {
            let operator = SecretKey::from_seed(signing, &[1; 32]).unwrap();
            let device = SecretKey::from_seed(certified, &[2; 32]).unwrap();
            let bytes = issue(&operator, "home", "dev1", &device.public(), 5);
            let certificate = Certificate::open(&bytes, &operator.public()).unwrap();
            assert_eq!(certificate.group, GroupId::of("home"));
            assert_eq!(certificate.device, DeviceId::of("home", "dev1"));
            assert_eq!((certificate.serial, certificate.first_index), (7, SealIndex(5)));
            assert_eq!(certificate.key().unwrap(), device.public());
            let stranger = SecretKey::from_seed(signing, &[3; 32]).unwrap().public();
            let error = Certificate::open(&bytes, &stranger).unwrap_err();
            assert_eq!(error, CertificateError::Signature(SignatureError::NotAuthentic));
        }
    }
    let bytes = issue(&operator(), "home", "dev1", &key(1).public(), 0);
    let other = SecretKey::from_seed(Algorithm::Esp256, &[3; 32]).unwrap().public();
    assert_eq!(Certificate::open(&bytes, &other).unwrap_err(), CertificateError::AlgorithmMismatch);
}

#[test]
fn a_certificates_digest_covers_the_signed_bytes() {
    let key = key(1).public();
    let draft = CertificateDraft {
        group: GroupId([1; 8]),
        device: DeviceId([2; 8]),
        serial: 0,
        key: &key,
        first_index: SealIndex(0),
    };
    let mut scratch = [0; MAX_CERTIFICATE];
    let message = draft.message(Algorithm::Ed25519, &mut scratch).unwrap();
    let signature = operator().signature(message).unwrap();
    let mut out = [0; MAX_CERTIFICATE];
    let bytes = draft.attach(Algorithm::Ed25519, &signature, &mut out).unwrap();
    assert_eq!(
        Certificate::open(bytes, &operator().public()).unwrap().digest(),
        Digest::of(&[message])
    );
    assert_eq!(
        bytes,
        draft.issue(&operator(), &mut [0; MAX_CERTIFICATE]).unwrap(),
        "both ways give the same bytes"
    );
}

#[test]
fn rejects_a_certificate_with_any_byte_changed() {
    let bytes = issue(&operator(), "home", "dev1", &key(1).public(), 0);
    for at in 0..bytes.len() {
        for flip in [1, 2, 0x40, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            assert!(Certificate::open(&bytes, &operator().public()).is_err(), "byte {at}");
        }
        assert!(Certificate::open(&bytes[..at], &operator().public()).is_err());
    }
}

/// Returns an object that the operator has signed, with any content. An operator could make it with
/// other software.
fn signed(typ: Typ, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; 64];
    let mut writer = Writer::new(&mut header);
    Protected::new(Algorithm::Ed25519, typ).encode(&mut writer).unwrap();
    let header = &*writer.finish();
    let mut scratch = vec![0; payload.len() + 128];
    let signature =
        operator().signature(sig_structure(&mut scratch, header, payload).unwrap()).unwrap();
    let mut out = vec![0; payload.len() + 256];
    let mut writer = Writer::new(&mut out);
    Sign1::encode(&mut writer, header, payload, &signature).unwrap();
    writer.finish().to_vec()
}

fn certificate_payload(version: u8, algorithm: i64, key: &[u8], index: u64) -> Vec<u8> {
    let mut out = vec![0; key.len() + 64];
    let mut writer = Writer::new(&mut out);
    writer
        .array(7)
        .unwrap()
        .uint(version)
        .unwrap()
        .bytes(&[1; 8])
        .unwrap()
        .bytes(&[2; 8])
        .unwrap()
        .uint(0u8)
        .unwrap();
    writer.int(algorithm).unwrap().bytes(key).unwrap().uint(index).unwrap();
    writer.finish().to_vec()
}

#[test]
fn rejects_signed_certificates_with_invalid_content() {
    let good = key(1).public().to_bytes();
    let refused = |payload: &[u8], typ: Typ| {
        let error = Certificate::open(&signed(typ, payload), &operator().public()).unwrap_err();
        assert_eq!(error.named().to_string(), format!("{}: {error}", error.name()));
        assert!(!error.to_string().starts_with(error.name()), "{error}");
        error
    };
    let payload = |version, algorithm, key: &[u8], index| {
        refused(&certificate_payload(version, algorithm, key, index), Typ::Certificate)
    };
    assert_eq!(
        payload(2, -19, &good, 0),
        CertificateError::Decode(DecodeError::UnsupportedVersion)
    );
    assert_eq!(payload(1, -7, &good, 0), CertificateError::Decode(DecodeError::UnknownAlgorithm));
    assert_eq!(
        payload(1, -19, &good, 1 << 32),
        CertificateError::Decode(DecodeError::FieldOutOfRange)
    );
    assert_eq!(payload(1, -9, &good, 0), CertificateError::Key(KeyError::KeyLength));
    assert_eq!(payload(1, -19, &[0; 32], 0), CertificateError::Key(KeyError::InvalidPublicKey));
    assert_eq!(
        payload(1, -19, &[0; 5000], 0),
        CertificateError::Key(KeyError::KeyLength),
        "longer than every suite's key"
    );
    let fine = certificate_payload(1, -19, &good, 0);
    assert!(Certificate::open(&signed(Typ::Certificate, &fine), &operator().public()).is_ok());
    assert_eq!(refused(&fine, Typ::Roster), CertificateError::Decode(DecodeError::WrongType));
    assert_eq!(
        refused(&[&fine[..], &[0]].concat(), Typ::Certificate),
        CertificateError::Decode(DecodeError::TrailingBytes)
    );
}

#[test]
fn a_roster_opens_with_the_drafted_content() {
    let group = Group::new();
    let bytes = group.sign(|_| {}).unwrap();
    let roster = open(&bytes, &operator()).unwrap();
    assert_eq!((roster.group_name(), roster.group()), ("home", GroupId::of("home")));
    assert_eq!(
        (
            roster.version(),
            roster.levels(EpochNumber(400_000)),
            roster.least_version(EpochNumber(9))
        ),
        (2, 16, 0)
    );
    let period = roster.newest_period();
    assert_eq!((period.epoch_ms, period.budget), (3_600_000, Some(1000)));
    assert_eq!(roster.periods().collect::<Vec<_>>(), [period]);
    assert_eq!(
        (roster.first_epoch(), roster.last_epoch()),
        (EpochNumber(400_000), Some(EpochNumber(500_000)))
    );
    assert_eq!(roster.history().collect::<Vec<_>>(), group.history);
    assert_eq!(roster.digest_of(0), Some(Digest([1; 32])));
    assert_eq!(roster.digest_of(1), Some(Digest([2; 32])));
    assert_eq!(roster.digest_of(2), Some(roster.digest()));
    assert_eq!(roster.digest_of(3), None);
    assert_eq!(period.coordinator().unwrap().device, DeviceId::of("home", "gateway"));
    let names: Vec<_> = roster.devices().map(|device| device.name).collect();
    assert_eq!(names, sorted("home", &["dev1", "dev2", "dev3"]));
    for device in roster.devices() {
        assert_eq!(roster.device(device.id).unwrap().name, device.name);
        assert_eq!(roster.device_named(device.name).unwrap().id, device.id);
    }
    assert!(roster.device_named("dev4").is_none());
}

#[test]
fn a_seals_key_is_in_the_last_certificate_up_to_its_index() {
    let bytes = Group::new().sign(|_| {}).unwrap();
    let roster = open(&bytes, &operator()).unwrap();
    let device = DeviceId::of("home", "dev3");
    for (index, expected) in [(0, 3), (99, 3), (100, 33), (u32::MAX, 33)] {
        let mut found = None;
        let epoch = EpochNumber(index.into());
        roster
            .with_key(device, SealIndex(index), epoch, &mut |key| found = Some(key.clone()))
            .unwrap();
        assert_eq!(found, Some(key(expected).public()), "index {index}");
    }
    let stranger = DeviceId::of("home", "dev4");
    let found =
        roster.with_key(stranger, SealIndex(0), EpochNumber(0), &mut |_| panic!("no such device"));
    assert_eq!(found, Err(NoKey::Unknown));
    let first = issue(&operator(), "home", "dev3", &key(3).public(), 0);
    assert_eq!(
        roster.first_prev(device),
        Some(Certificate::open(&first, &operator().public()).unwrap().digest())
    );
    assert_eq!(roster.first_prev(DeviceId::of("home", "dev4")), None);
}

#[test]
fn a_seal_before_the_first_certificate_has_no_key() {
    let mut group = Group::new();
    for (name, certificates) in &mut group.devices {
        *certificates = vec![issue(&operator(), "home", name, &key(1).public(), 50)];
    }
    let bytes = group.sign(|_| {}).unwrap();
    let device = open(&bytes, &operator()).unwrap().device_named("dev1").unwrap();
    assert_eq!(device.key(SealIndex(49), EpochNumber(0)).unwrap_err(), NoKey::Unknown);
    assert!(device.key(SealIndex(50), EpochNumber(0)).is_ok());
}

#[test]
fn maps_instants_to_epochs() {
    let bytes = Group::new().sign(|_| {}).unwrap();
    let roster = open(&bytes, &operator()).unwrap();
    assert_eq!(roster.epoch_of(0), EpochNumber(0));
    assert_eq!(roster.epoch_of(3_599_999), EpochNumber(0));
    assert_eq!(roster.epoch_of(3_600_000), EpochNumber(1));
    for (epoch, inside) in [(399_999, false), (400_000, true), (500_000, true), (500_001, false)] {
        assert_eq!(roster.contains(EpochNumber(epoch)), inside);
    }
    let endless = Group::new().sign(|draft| draft.last_epoch = None).unwrap();
    assert!(open(&endless, &operator()).unwrap().contains(EpochNumber(u64::MAX)));
}

#[test]
fn rejects_a_roster_of_another_operator() {
    let bytes = Group::new().sign(|_| {}).unwrap();
    let error = open(&bytes, &key(1)).unwrap_err();
    assert_eq!(error, RosterError::NotAuthentic);
    assert_eq!(error.name(), "NotAuthentic");
    assert_eq!(error.to_string(), "the roster is not signed by this operator");
    let other = SecretKey::from_seed(Algorithm::Esp256, &[1; 32]).unwrap();
    assert_eq!(open(&bytes, &other).unwrap_err(), RosterError::AlgorithmMismatch);
    let small = Roster::open(&bytes, &operator().public(), &mut [0; 100]).unwrap_err();
    assert_eq!(small, RosterError::BufferTooSmall);
}

#[test]
fn every_suite_signs_rosters() {
    for algorithm in suites() {
        let operator = SecretKey::from_seed(algorithm, &[1; 32]).unwrap();
        let certificate = issue(&operator, "home", "dev1", &key(1).public(), 0);
        let terms = [Term::always(&certificate)];
        let devices = [DeviceDraft { name: "dev1", since: 0, terms: &terms }];
        let draft = RosterDraft {
            group_name: "home",
            history: &[],
            periods: &[Period::first(1, 1, None, EpochNumber(0), None)],
            last_epoch: None,
            querier: None,
            devices: &devices,
            owners: &[],
            sanitisers: &[],
        };
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        let bytes = draft.sign(&operator, &mut scratch, &mut out).unwrap();
        assert!(open(bytes, &operator).is_ok());
    }
}

const TOO_LONG: &str = "a name of sixty-five bytes: one more than a group's name may have";

#[test]
fn rejects_each_invalid_draft_with_its_error() {
    let group = Group::new();
    assert_eq!(group.refused_with(|period| period.levels = 0), "LevelsOutOfRange");
    assert_eq!(group.refused_with(|period| period.levels = 33), "LevelsOutOfRange");
    assert!(group.with(|period| period.levels = 32).is_ok());
    assert_eq!(group.refused_with(|period| period.epoch_ms = 0), "EpochLengthOutOfRange");
    assert_eq!(
        group.refused_with(|period| period.epoch_ms = MAX_EPOCH_MS + 1),
        "EpochLengthOutOfRange"
    );
    let longest = |period: &mut Period<'_>| {
        (period.epoch_ms, period.first_epoch) = (MAX_EPOCH_MS, EpochNumber(1));
    };
    assert!(group.with(longest).is_ok());
    assert_eq!(group.refused_with(|period| period.budget = Some(0)), "BudgetOutOfRange");
    assert_eq!(group.refused(|draft| draft.last_epoch = Some(EpochNumber(0))), "EpochRangeEmpty");
    assert!(group.sign(|draft| draft.last_epoch = Some(EpochNumber(400_000))).is_ok());
    assert_eq!(group.refused(|draft| draft.group_name = ""), "InvalidName");
    assert_eq!(group.refused(|draft| draft.group_name = "ho\0me"), "InvalidName");
    assert_eq!(group.refused(|draft| draft.group_name = "ho\u{85}me"), "InvalidName");
    assert_eq!(group.refused(|draft| draft.group_name = TOO_LONG), "InvalidName");
    assert_eq!(
        group.refused(|draft| draft.group_name = &TOO_LONG[1..]),
        "CertificateMismatch",
        "64 bytes are fine"
    );
    assert_eq!(group.refused(|draft| draft.group_name = "away"), "CertificateMismatch");
}

#[test]
fn rejects_each_invalid_device_with_its_error() {
    let changed = |change: fn(&mut Group)| {
        let mut group = Group::new();
        change(&mut group);
        group.refused(|_| {})
    };
    assert_eq!(changed(|group| group.devices.swap(0, 1)), "UnsortedDevices");
    assert_eq!(changed(|group| group.devices[1] = group.devices[0].clone()), "DuplicateDevice");
    assert_eq!(
        changed(|group| group.coordinator = Some(group.devices[0].1[0].clone())),
        "DuplicateDevice"
    );
    assert_eq!(
        changed(|group| group.devices[0].1 = group.devices[1].1.clone()),
        "CertificateMismatch"
    );
    assert_eq!(changed(|group| group.devices[0].1.clear()), "CertificateMissing");
    assert_eq!(changed(|group| group.devices[0].1[0].truncate(50)), "Truncated");
    assert_eq!(
        changed(|group| {
            let twice = group.devices.iter_mut().find(|(name, _)| *name == "dev3").unwrap();
            twice.1.swap(0, 1);
        }),
        "UnsortedCertificates"
    );
    assert_eq!(
        changed(|group| {
            let first = group.devices[0].1[0].clone();
            group.devices[0].1.push(first);
        }),
        "UnsortedCertificates",
        "the same first index twice"
    );
    assert_eq!(
        changed(|group| group.coordinator =
            Some(issue(&operator(), "away", "gateway", &key(9).public(), 0))),
        "CertificateMismatch"
    );
}

#[test]
fn rejects_certificates_of_another_operator() {
    let mut group = Group::new();
    let (name, certificates) = &mut group.devices[2];
    *certificates = vec![issue(&key(1), "home", name, &key(5).public(), 0)];
    let error = open(&group.sign(|_| {}).unwrap(), &operator()).map(|_| ()).unwrap_err();
    assert_eq!(error.name(), "CertificateNotAuthentic");
    assert!(error.named().to_string().starts_with("CertificateNotAuthentic: "));

    let mut group = Group::new();
    group.coordinator = Some(issue(&key(1), "home", "gateway", &key(9).public(), 0));
    assert_eq!(
        open(&group.sign(|_| {}).unwrap(), &operator()).map(|_| ()).unwrap_err().name(),
        "CertificateNotAuthentic"
    );
}

/// Returns the payload of a roster with one device, as other software could write it.
fn payload(group_id: GroupId, device_id: DeviceId, version: u32, history: &[&[u8]]) -> Vec<u8> {
    let certificate = issue(&operator(), "home", "dev1", &key(1).public(), 0);
    let mut out = vec![0; 1000];
    let mut writer = Writer::new(&mut out);
    writer
        .array(if version == 0 { 12 } else { 9 })
        .unwrap()
        .uint(1u8)
        .unwrap()
        .text("home")
        .unwrap()
        .bytes(&group_id.0)
        .unwrap()
        .uint(version)
        .unwrap();
    writer.array(history.len() as u64).unwrap();
    for digest in history {
        writer.bytes(digest).unwrap();
    }
    write_rest(&mut writer, device_id, version, &certificate).unwrap();
    writer.finish().to_vec()
}

/// Writes the elements after the history, in the form of the version.
fn write_rest(
    out: &mut Writer<'_>,
    device: DeviceId,
    version: u32,
    certificate: &[u8],
) -> Result<(), BufferTooSmall> {
    if version == 0 {
        out.uint(1000u32)?.uint(16u8)?.null()?.uint(0u8)?.null()?.null()?;
        out.array(1)?.array(3)?.bytes(&device.0)?.text("dev1")?;
        out.array(1)?.bytes(certificate)?;
        return Ok(());
    }
    out.array(1)?.array(7)?.uint(0u8)?.uint(0u8)?.uint(0u8)?;
    out.uint(1000u32)?.uint(16u8)?.null()?.null()?;
    out.null()?.null()?.array(1)?.array(4)?.bytes(&device.0)?.text("dev1")?.uint(0u8)?;
    out.array(1)?.array(4)?.bytes(certificate)?.uint(0u8)?.null()?.null()?;
    Ok(())
}

#[test]
fn rejects_inconsistent_ids_and_history_in_a_signed_roster() {
    let (group, device) = (GroupId::of("home"), DeviceId::of("home", "dev1"));
    let name = |payload: &[u8]| {
        open(&signed(Typ::Roster, payload), &operator())
            .map(|_| "fine")
            .unwrap_or_else(|e| e.name())
    };
    assert_eq!(name(&payload(group, device, 0, &[])), "fine");
    assert_eq!(name(&payload(group, device, 1, &[&[1; 32]])), "fine");
    assert_eq!(name(&payload(GroupId([1; 8]), device, 0, &[])), "GroupMismatch");
    assert_eq!(name(&payload(group, DeviceId([1; 8]), 0, &[])), "DeviceMismatch");
    assert_eq!(name(&payload(group, device, 1, &[])), "HistoryLength");
    assert_eq!(name(&payload(group, device, 0, &[&[1; 32]])), "HistoryLength");
    // Each form belongs to its versions.
    let mut first = payload(group, device, 0, &[]);
    first[0] = 0x89;
    assert_eq!(name(&first), "TrailingBytes", "9 of 12 elements");
    assert_eq!(name(&payload(group, device, 1, &[&[1; 31]])), "UnexpectedType");
    assert_eq!(name(&payload(group, device, 0, &[])[1..]), "TrailingBytes");
}

#[test]
fn rejects_a_roster_with_any_bit_changed_or_any_byte_missing() {
    let bytes = Group::new().sign(|_| {}).unwrap();
    let public = operator().public();
    let mut scratch = vec![0; bytes.len() + SCRATCH_OVERHEAD + 1];
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            assert!(Roster::open(&bytes, &public, &mut scratch).is_err(), "byte {at} bit {bit}");
        }
        assert!(Roster::open(&bytes[..at], &public, &mut scratch).is_err(), "cut at {at}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(
        Roster::open(&longer, &public, &mut scratch).map(|_| ()).unwrap_err().name(),
        "TrailingBytes"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// The operator's software may sign any bytes. If a roster opens, drafting it again yields the
    /// same bytes, which shows that nothing was misread.
    #[test]
    fn a_mutated_signed_payload_is_rejected_or_round_trips(at: prop::sample::Index, byte: u8) {
        let mut mutated = payload(GroupId::of("home"), DeviceId::of("home", "dev1"), 1, &[&[1; 32]]);
        let at = at.index(mutated.len());
        mutated[at] = byte;
        let bytes = signed(Typ::Roster, &mutated);
        if let Ok(roster) = open(&bytes, &operator()) {
            let terms: Vec<Vec<Term<'_>>> = roster.devices().map(|device| device.terms().collect()).collect();
            let devices: Vec<_> = roster
                .devices()
                .zip(&terms)
                .map(|(device, terms)| DeviceDraft { name: device.name, since: device.since, terms })
                .collect();
            let periods: Vec<Period<'_>> = roster.periods().collect();
            let history: Vec<_> = roster.history().collect();
            let draft = RosterDraft {
                group_name: roster.group_name(),
                history: &history,
                periods: &periods,
                last_epoch: roster.last_epoch(),
                querier: roster.querier_bytes(),
                devices: &devices,
                owners: &[],
                sanitisers: &[],
            };
            let mut scratch = vec![0; draft.size()];
            prop_assert_eq!(draft.payload(&mut scratch).unwrap(), &mutated[..]);
        }
    }

    #[test]
    fn rejects_noise_as_a_roster(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(open(&bytes, &operator()).is_err());
        prop_assert!(Certificate::open(&bytes, &operator().public()).is_err());
    }

    #[test]
    fn a_roster_of_any_shape_opens_as_drafted(
        names in prop::collection::btree_set("[a-zé0-9 /]{1,20}", 0..6),
        versions in 0usize..4,
        levels in 1u8..=32,
        epoch_ms in 1..=MAX_EPOCH_MS,
        budget in prop::option::of(1u64..),
    ) {
        let names = sorted("g", &names.iter().map(String::as_str).collect::<Vec<_>>());
        let issued: Vec<Vec<u8>> = names.iter().map(|name| issue(&operator(), "g", name, &key(1).public(), 0)).collect();
        let terms: Vec<[Term<'_>; 1]> = issued.iter().map(|bytes| [Term::always(bytes)]).collect();
        let devices: Vec<_> =
            names.iter().zip(&terms).map(|(name, terms)| DeviceDraft { name, since: 0, terms }).collect();
        let history = vec![Digest([3; 32]); versions];
        let draft = RosterDraft {
            group_name: "g",
            history: &history,
            periods: &[Period::first(epoch_ms, levels, budget, EpochNumber(0), None)],
            last_epoch: None,
            querier: None,
            devices: &devices,
            owners: &[],
            sanitisers: &[],
        };
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        let bytes = draft.sign(&operator(), &mut scratch, &mut out).unwrap();
        let roster = open(bytes, &operator()).unwrap();
        prop_assert_eq!(roster.devices().map(|device| device.name).collect::<Vec<_>>(), names);
        let period = roster.newest_period();
        prop_assert_eq!((roster.version() as usize, period.levels), (versions, levels));
        prop_assert_eq!((period.epoch_ms, period.budget), (epoch_ms, budget));
    }
}
