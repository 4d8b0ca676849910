//! The sanitisers in rosters.

use moteseal_core::digest::Digest;
use moteseal_core::identity::{CertificateDraft, MAX_CERTIFICATE};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{
    OwnerDraft, Period, RightDraft, Roster, RosterDraft, RosterError, SCRATCH_OVERHEAD,
    SanitiserDraft, owner_id, sanitiser_id,
};
use moteseal_core::schema::Groups;
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};

const LATER: [Digest; 1] = [Digest([4; 32])];

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

fn certificate(operator: &SecretKey, group: &str, device: DeviceId) -> Vec<u8> {
    let key = key(7).public();
    let group = GroupId::of(group);
    let draft = CertificateDraft { group, device, serial: 1, key: &key, first_index: SealIndex(0) };
    draft.issue(operator, &mut [0; MAX_CERTIFICATE]).unwrap().to_vec()
}

/// Returns names and certificates, sorted by id.
fn certified() -> Vec<(&'static str, Vec<u8>)> {
    let mut names = ["gw1", "gw2", "gw3"];
    names.sort_by_key(|name| sanitiser_id("home", name));
    names.map(|name| (name, certificate(&key(1), "home", sanitiser_id("home", name)))).to_vec()
}

fn right() -> RightDraft<'static> {
    RightDraft {
        devices: None,
        groups: Groups::from_bits(0b110),
        first_epoch: EpochNumber(3),
        end_epoch: Some(EpochNumber(9)),
    }
}

fn draft_with<T>(
    sanitisers: &[(&str, Vec<u8>)],
    rights: &[RightDraft<'_>],
    (owners, history): (&[OwnerDraft<'_>], &[Digest]),
    use_draft: impl FnOnce(&RosterDraft<'_>) -> T,
) -> T {
    let sanitisers: Vec<_> = sanitisers
        .iter()
        .map(|(name, certificate)| SanitiserDraft { name, certificate, rights })
        .collect();
    use_draft(&RosterDraft {
        group_name: "home",
        history,
        periods: &[Period::first(1000, 8, None, EpochNumber(0), None)],
        last_epoch: None,
        querier: None,
        devices: &[],
        owners,
        sanitisers: &sanitisers,
    })
}

fn sign(
    sanitisers: &[(&str, Vec<u8>)],
    rights: &[RightDraft<'_>],
    history: &[Digest],
) -> Result<Vec<u8>, RosterError> {
    draft_with(sanitisers, rights, (&[], history), |draft| {
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        draft.sign(&key(1), &mut scratch, &mut out).map(<[u8]>::to_vec)
    })
}

fn open(bytes: &[u8]) -> Result<Vec<(String, usize)>, RosterError> {
    let mut scratch = vec![0; bytes.len() + SCRATCH_OVERHEAD];
    let roster = Roster::open(bytes, &key(1).public(), &mut scratch)?;
    let key = key(7).public();
    assert!(roster.sanitisers().all(|sanitiser| sanitiser.key().as_ref() == Some(&key)));
    assert_eq!(roster.owners().count(), 0);
    let listed = roster.sanitisers();
    Ok(listed.map(|of| (of.name.to_owned(), of.rights().count())).collect())
}

#[test]
fn a_later_version_of_a_roster_lists_sanitisers_and_their_rights() {
    let sanitisers = certified();
    for count in 0..=sanitisers.len() {
        let bytes = sign(&sanitisers[..count], &[right(), right()], &LATER).unwrap();
        let names: Vec<_> =
            sanitisers[..count].iter().map(|(name, _)| ((*name).to_owned(), 2)).collect();
        assert_eq!(open(&bytes).unwrap(), names);
    }
    let mut devices = [DeviceId::of("home", "a"), DeviceId::of("home", "b")];
    devices.sort_unstable();
    let with_devices = RightDraft { devices: Some(&devices), ..right() };
    let bytes = sign(&sanitisers[..1], &[with_devices], &LATER).unwrap();
    let mut scratch = vec![0; bytes.len() + SCRATCH_OVERHEAD];
    let roster = Roster::open(&bytes, &key(1).public(), &mut scratch).unwrap();
    let read = roster.sanitisers().next().unwrap().rights().next().unwrap();
    assert_eq!(read.devices().unwrap().collect::<Vec<_>>(), devices);
    assert_eq!((read.groups, read.first_epoch), (right().groups, right().first_epoch));
    assert_eq!(read.end_epoch, right().end_epoch);
    assert_eq!(sign(&sanitisers, &[right()], &[]).unwrap_err(), RosterError::NotAFirstVersion);
}

#[test]
fn rosters_without_sanitisers_are_encoded_as_before() {
    let owner = certificate(&key(1), "home", owner_id("home", "alice"));
    let owners = [OwnerDraft { name: "alice", certificate: &owner }];
    let head = |owners: &[OwnerDraft<'_>], sanitisers: &[(&str, Vec<u8>)]| {
        draft_with(sanitisers, &[right()], (owners, &LATER), |draft| {
            draft.payload(&mut vec![0; draft.size()]).unwrap()[0]
        })
    };
    let heads = (head(&[], &[]), head(&owners, &[]), head(&owners, &certified()));
    assert_eq!(heads, (0x89, 0x8a, 0x8b));
    // Without owners, an empty list is before the sanitisers.
    assert_eq!(head(&[], &certified()), 0x8b);
}

#[test]
fn a_sanitiser_is_certified_under_an_id_of_its_own() {
    assert_ne!(sanitiser_id("home", "gw"), DeviceId::of("home", "gw"));
    assert_ne!(sanitiser_id("home", "gw"), owner_id("home", "gw"));
    assert_ne!(sanitiser_id("home", "gw"), sanitiser_id("office", "gw"));
    for (group, device) in [
        ("home", DeviceId::of("home", "gw")),
        ("home", owner_id("home", "gw")),
        ("office", sanitiser_id("home", "gw")),
    ] {
        let wrong = certificate(&key(1), group, device);
        let error = sign(&[("gw", wrong)], &[right()], &LATER).unwrap_err();
        assert_eq!(error, RosterError::CertificateMismatch);
    }
    let forged = certificate(&key(2), "home", sanitiser_id("home", "gw"));
    let bytes = sign(&[("gw", forged)], &[right()], &LATER).unwrap();
    assert_eq!(open(&bytes).unwrap_err(), RosterError::CertificateNotAuthentic);
}

#[test]
fn invalid_lists_of_sanitisers_and_rights_are_refused() {
    let mut sanitisers = certified();
    let one = sanitisers[..1].to_vec();
    sanitisers.swap(0, 1);
    let result = |sanitisers: &[(&str, Vec<u8>)], rights: &[RightDraft<'_>]| {
        sign(sanitisers, rights, &LATER).unwrap_err().name()
    };
    assert_eq!(result(&sanitisers, &[right()]), "UnsortedSanitisers");
    sanitisers[1] = sanitisers[0].clone();
    assert_eq!(result(&sanitisers, &[right()]), "UnsortedSanitisers");
    sanitisers[0].0 = "";
    assert_eq!(result(&sanitisers, &[right()]), "InvalidName");
    assert_eq!(result(&one, &[]), "UnexpectedType");
    let groups = |bits| RightDraft { groups: Groups::from_bits(bits), ..right() };
    assert_eq!(result(&one, &[groups(0)]), "FieldOutOfRange");
    assert_eq!(result(&one, &[groups(3)]), "FieldOutOfRange");
    let ends = RightDraft { end_epoch: Some(EpochNumber(2)), ..right() };
    assert_eq!(result(&one, &[right(), ends]), "TermRangeEmpty");
    let none = RightDraft { devices: Some(&[]), ..right() };
    assert_eq!(result(&one, &[none]), "UnexpectedType");
    let twice = [DeviceId([1; 8]); 2];
    let twice = RightDraft { devices: Some(&twice), ..right() };
    assert_eq!(result(&one, &[twice]), "UnsortedDevices");
}

#[test]
fn an_empty_list_of_sanitisers_is_refused() {
    let payload = draft_with(&[], &[], (&[], &LATER), |draft| {
        draft.payload(&mut vec![0; draft.size()]).unwrap().to_vec()
    });
    let payload = [&[0x8b], &payload[1..], &[0x80, 0x80]].concat();
    let (operator, mut scratch, mut out) = (key(1), vec![0; 1024], vec![0; 1024]);
    let message = RosterDraft::message(Algorithm::Ed25519, &payload, &mut scratch).unwrap();
    let signature = operator.signature(message).unwrap();
    let bytes = RosterDraft::attach(Algorithm::Ed25519, &payload, &signature, &mut out).unwrap();
    assert_eq!(open(bytes).unwrap_err().name(), "UnexpectedType");
}
