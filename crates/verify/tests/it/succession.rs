//! A later version of a roster may have other devices, but not another epoch length, number of
//! levels or budget: they also apply to what was sealed under earlier versions.

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
struct Says<'a> {
    group: &'a str,
    history: &'a [Digest],
    epoch_ms: u64,
    levels: u8,
    budget: Option<u64>,
    devices: &'a [&'a str],
}

const FIRST: Says<'static> = Says {
    group: "lab",
    history: &[],
    epoch_ms: 1000,
    levels: 8,
    budget: Some(500),
    devices: &["mote-1"],
};

fn roster(says: Says<'_>) -> Roster {
    let operator = secret(1);
    let certify = |device: DeviceId| {
        let mut certificate = [0; MAX_CERTIFICATE];
        let (group, key) = (GroupId::of(says.group), secret(2).public());
        let draft =
            CertificateDraft { group, device, serial: 0, key: &key, first_index: SealIndex(0) };
        draft.issue(&operator, &mut certificate).unwrap().to_vec()
    };
    let mut named: Vec<(DeviceId, &str)> =
        says.devices.iter().map(|name| (DeviceId::of(says.group, name), *name)).collect();
    named.sort_unstable();
    let certificates: Vec<Vec<u8>> = named.iter().map(|(device, _)| certify(*device)).collect();
    let certificates: Vec<[&[u8]; 1]> =
        certificates.iter().map(|bytes| [bytes.as_slice()]).collect();
    let drafts = named.iter().zip(&certificates);
    let drafts: Vec<DeviceDraft<'_>> =
        drafts.map(|((_, name), certificates)| DeviceDraft { name, certificates }).collect();
    let coordinator = certify(DeviceId::of(says.group, "coordinator"));
    let draft = RosterDraft {
        group_name: says.group,
        history: says.history,
        epoch_ms: says.epoch_ms,
        levels: says.levels,
        budget: says.budget,
        first_epoch: EpochNumber(0),
        last_epoch: None,
        coordinator: says.budget.is_some().then_some(&coordinator),
        devices: &drafts,
    };
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    Roster::open(draft.sign(&operator, &mut scratch, &mut out).unwrap(), &operator.public())
        .unwrap()
}

#[test]
fn a_later_version_may_have_other_devices() {
    let first = roster(FIRST);
    let second =
        roster(Says { history: &[first.digest()], devices: &["mote-1", "mote-2"], ..FIRST });
    assert_eq!(second.check_succeeds(&first), Ok(()));
    let third =
        roster(Says { history: &[first.digest(), second.digest()], devices: &["mote-2"], ..FIRST });
    assert_eq!((third.check_succeeds(&second), third.check_succeeds(&first)), (Ok(()), Ok(())));
}

#[test]
fn rejects_each_change_that_is_no_later_version() {
    let first = roster(FIRST);
    let history = &[first.digest()][..];
    let name = |says: Says<'_>| roster(says).check_succeeds(&first).unwrap_err().name();
    assert_eq!(name(Says { group: "field", history, ..FIRST }), "WrongGroup");
    // The same version, and one whose history belongs to another roster.
    assert_eq!(name(FIRST), "NotLater");
    assert_eq!(name(Says { history: &[Digest([7; 32])], ..FIRST }), "NotLater");
    assert_eq!(name(Says { history: &[Digest([7; 32]), first.digest()], ..FIRST }), "NotLater");
    let second = roster(Says { history, ..FIRST });
    assert_eq!(first.check_succeeds(&second).unwrap_err().name(), "NotLater");
    assert_eq!(name(Says { history, epoch_ms: 2000, ..FIRST }), "EpochLengthChanged");
    assert_eq!(name(Says { history, levels: 9, ..FIRST }), "LevelsChanged");
    for budget in [Some(499), Some(1000), None] {
        assert_eq!(name(Says { history, budget, ..FIRST }), "BudgetChanged");
    }
}
