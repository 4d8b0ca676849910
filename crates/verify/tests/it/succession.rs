//! A later version of a roster may have different devices, but not a different epoch length, number
//! of levels or budget, because these also apply to seals under earlier versions.

use moteseal_core::Digest;
use moteseal_core::identity::{CertificateDraft, MAX_CERTIFICATE};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{DeviceDraft, RosterDraft};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_verify::Roster;

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// The properties in which the rosters of this test differ.
#[derive(Clone, Copy)]
struct Properties<'a> {
    group: &'a str,
    history: &'a [Digest],
    epoch_ms: u64,
    levels: u8,
    budget: Option<u64>,
    devices: &'a [&'a str],
}

const FIRST: Properties<'static> = Properties {
    group: "lab",
    history: &[],
    epoch_ms: 1000,
    levels: 8,
    budget: Some(500),
    devices: &["mote-1"],
};

fn roster(properties: Properties<'_>) -> Roster {
    let operator = secret(1);
    let certify = |device: DeviceId| {
        let mut certificate = [0; MAX_CERTIFICATE];
        let (group, key) = (GroupId::of(properties.group), secret(2).public());
        let draft =
            CertificateDraft { group, device, serial: 0, key: &key, first_index: SealIndex(0) };
        draft.issue(&operator, &mut certificate).unwrap().to_vec()
    };
    let mut named: Vec<(DeviceId, &str)> = properties
        .devices
        .iter()
        .map(|name| (DeviceId::of(properties.group, name), *name))
        .collect();
    named.sort_unstable();
    let certificates: Vec<Vec<u8>> = named.iter().map(|(device, _)| certify(*device)).collect();
    let certificates: Vec<[&[u8]; 1]> =
        certificates.iter().map(|bytes| [bytes.as_slice()]).collect();
    let drafts = named.iter().zip(&certificates);
    let drafts: Vec<DeviceDraft<'_>> =
        drafts.map(|((_, name), certificates)| DeviceDraft { name, certificates }).collect();
    let coordinator = certify(DeviceId::of(properties.group, "coordinator"));
    let draft = RosterDraft {
        group_name: properties.group,
        history: properties.history,
        epoch_ms: properties.epoch_ms,
        levels: properties.levels,
        budget: properties.budget,
        first_epoch: EpochNumber(0),
        last_epoch: None,
        coordinator: properties.budget.is_some().then_some(&coordinator),
        devices: &drafts,
    };
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    Roster::open(draft.sign(&operator, &mut scratch, &mut out).unwrap(), &operator.public())
        .unwrap()
}

#[test]
fn a_later_version_may_have_different_devices() {
    let first = roster(FIRST);
    let second =
        roster(Properties { history: &[first.digest()], devices: &["mote-1", "mote-2"], ..FIRST });
    assert_eq!(second.check_succeeds(&first), Ok(()));
    let third = roster(Properties {
        history: &[first.digest(), second.digest()],
        devices: &["mote-2"],
        ..FIRST
    });
    assert_eq!((third.check_succeeds(&second), third.check_succeeds(&first)), (Ok(()), Ok(())));
}

#[test]
fn rejects_a_roster_that_is_not_a_later_version() {
    let first = roster(FIRST);
    let history = &[first.digest()][..];
    let name =
        |properties: Properties<'_>| roster(properties).check_succeeds(&first).unwrap_err().name();
    assert_eq!(name(Properties { group: "field", history, ..FIRST }), "WrongGroup");
    // Rosters whose version is not higher, and rosters whose history contains a different roster at
    // this version.
    assert_eq!(name(FIRST), "NotLater");
    assert_eq!(name(Properties { history: &[Digest([7; 32])], ..FIRST }), "NotLater");
    assert_eq!(
        name(Properties { history: &[Digest([7; 32]), first.digest()], ..FIRST }),
        "NotLater"
    );
    let second = roster(Properties { history, ..FIRST });
    assert_eq!(first.check_succeeds(&second).unwrap_err().name(), "NotLater");
    assert_eq!(name(Properties { history, epoch_ms: 2000, ..FIRST }), "EpochLengthChanged");
    assert_eq!(name(Properties { history, levels: 9, ..FIRST }), "LevelsChanged");
    for budget in [Some(499), Some(1000), None] {
        assert_eq!(name(Properties { history, budget, ..FIRST }), "BudgetChanged");
    }
}
