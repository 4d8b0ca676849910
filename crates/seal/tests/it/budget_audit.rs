//! Tests of a coordinator's announcements and manifests, and of the audit's verdicts: an honest
//! coordinator is never accused, and a dishonest one is detected.

use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::roster::{Directory, NoKey};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
use moteseal_core::{DeviceId, Digest, GroupId, Level, Round, Sequence};
use moteseal_seal::level::{Counters, Salt};
use moteseal_seal::sample::{
    Announcement, AnnouncementError, Coordinator, Doubt, Finding, MAX_ANNOUNCEMENT, Manifest,
    ManifestDraft, Offer, Tally, Verdict,
};
use moteseal_seal::{Authentic, Seal, Statement};
use proptest::collection::vec;
use proptest::prelude::*;

const GROUP: GroupId = GroupId(*b"group  1");
const LEVELS: u8 = 8;
const MISSING: Doubt = Doubt { missing: true, restarted: false };
const RESTARTED: Doubt = Doubt { missing: false, restarted: true };

fn secret(seed: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[seed; 32]).unwrap()
}

/// Returns a seal with `events` events of a device to which `round` was announced.
fn seal(device: u8, events: u32, round: u8) -> Seal<Authentic> {
    let mut statement =
        Statement::new(Scheme::Star, GROUP, Digest([1; 32]), DeviceId([device; 8]), LEVELS);
    statement.salt = Salt([device; 16]);
    statement.counters = Counters::of(&statement.salt, LEVELS, events);
    (statement.round, statement.own_round) = (Round(round), Round(round));
    let seal = Seal::new(statement, Digest([2; 32]), Algorithm::Ed25519);
    let signature = secret(device).signature(seal.message(&mut [0; _])).unwrap();
    seal.verify(&Keys, &signature).unwrap()
}

/// A directory in which device `n` has the key that is derived from seed `n`.
struct Keys;

impl Directory for Keys {
    fn group(&self) -> GroupId {
        GROUP
    }

    fn levels(&self, _: EpochNumber) -> u8 {
        LEVELS
    }

    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (EpochNumber(0), None)
    }

    fn roster_digest(&self, _: u32) -> Option<Digest> {
        None
    }

    fn with_key(
        &self,
        device: DeviceId,
        _: SealIndex,
        _: EpochNumber,
        use_key: &mut dyn FnMut(&PublicKey),
    ) -> Result<(), NoKey> {
        use_key(&secret(device.0[0]).public());
        Ok(())
    }

    fn first_prev(&self, _: DeviceId) -> Option<Digest> {
        None
    }
}

fn tally(seals: &[Seal<Authentic>], budget: u64) -> Tally {
    let mut tally = Tally::new(LEVELS, budget);
    seals.iter().for_each(|seal| tally.add(seal));
    tally
}

/// Returns the state of an honest coordinator that has received all events.
fn honest(events: &[u32], budget: u64) -> Coordinator {
    let mut coordinator = Coordinator::new(LEVELS, budget);
    for (device, &events) in (0..).zip(events) {
        for seq in 0..u64::from(events) {
            let (Offer::Declined | Offer::Kept | Offer::Raised(_)) =
                coordinator.offer(Salt([device; 16]).level(Sequence(seq), LEVELS));
        }
    }
    coordinator
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn justifies_exactly_the_honest_round(events in vec(0..300u32, 1..8), budget in 1..400u64) {
        let coordinator = honest(&events, budget);
        let due = coordinator.round();
        let seals: Vec<_> = (0..).zip(&events).map(|(device, &events)| seal(device, events, 0)).collect();
        let tally = tally(&seals, budget);
        prop_assert_eq!(tally.due(), due);
        prop_assert_eq!(tally.from_round(due), coordinator.kept());
        for round in (0..=LEVELS).map(Round) {
            match tally.verdict(round, Doubt::default()) {
                Verdict::Justified => prop_assert_eq!(round, due),
                Verdict::Unjustified(Finding::OverBudget { kept, due: named, .. }) => {
                    prop_assert!(round < due && named == due && kept > budget);
                }
                Verdict::Unjustified(Finding::StoppedEarly { fitting, due: named, .. }) => {
                    prop_assert!(round > due && named == due && fitting <= budget);
                }
                other => prop_assert!(false, "{:?}", other),
            }
            // If a device is missing, its counters may require a higher round, but never a lower
            // one.
            match tally.verdict(round, MISSING) {
                Verdict::Undetermined => prop_assert!(round >= due),
                Verdict::Unjustified(Finding::OverBudget { .. }) => prop_assert!(round < due),
                other => prop_assert!(false, "{:?}", other),
            }
            // Events that were lost in a restart may have raised the round. They cannot have
            // lowered the required round.
            match tally.verdict(round, RESTARTED) {
                Verdict::Justified => prop_assert_eq!(round, due),
                Verdict::Undetermined => prop_assert!(round > due),
                Verdict::Unjustified(Finding::OverBudget { .. }) => prop_assert!(round < due),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn a_missing_device_is_never_justified(events in vec(1..300u32, 2..8), budget in 1..400u64) {
        let seals: Vec<_> = (1..).zip(&events[1..]).map(|(device, &events)| seal(device, events, 0)).collect();
        let tally = tally(&seals, budget);
        for round in (0..=LEVELS).map(Round) {
            prop_assert_ne!(tally.verdict(round, MISSING), Verdict::Justified);
        }
    }
}

#[test]
fn a_round_announced_above_the_final_one_is_a_finding() {
    let tally = tally(&[seal(1, 50, 0), seal(2, 50, 3)], 1000);
    let overstated =
        Verdict::Unjustified(Finding::RoundOverstated { round: Round(0), announced: Round(3) });
    assert_eq!(tally.verdict(Round(0), Doubt::default()), overstated);
    assert_eq!(tally.verdict(Round(0), MISSING), overstated);
    assert!(matches!(
        tally.verdict(Round(3), Doubt::default()),
        Verdict::Unjustified(Finding::StoppedEarly { due: Round(0), fitting: 100, .. })
    ));
}

fn digests(count: u8) -> Vec<Digest> {
    (0..count).map(|byte| Digest([byte; 32])).collect()
}

fn manifest(devices: &[(DeviceId, &[Digest])], round: u8) -> Vec<u8> {
    let draft = ManifestDraft {
        group: GROUP,
        roster: Digest([9; 32]),
        epoch: EpochNumber(70),
        round: Round(round),
        devices,
    };
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    draft.issue(&secret(9), &mut scratch, &mut out).unwrap().to_vec()
}

fn open(bytes: &[u8]) -> Result<Manifest<'_>, AnnouncementError> {
    Manifest::open(bytes, GROUP, &secret(9).public(), &mut vec![0; bytes.len() + 64])
}

#[test]
fn a_manifest_round_trips() {
    let digests = digests(3);
    let devices: [(DeviceId, &[Digest]); 2] =
        [(DeviceId([1; 8]), &digests[..1]), (DeviceId([4; 8]), &digests[1..])];
    let bytes = manifest(&devices, LEVELS);
    let manifest = open(&bytes).unwrap();
    assert_eq!(
        (manifest.epoch(), manifest.round(), manifest.roster()),
        (EpochNumber(70), Round(LEVELS), Digest([9; 32]))
    );
    let listed: Vec<(DeviceId, Vec<Digest>)> =
        manifest.devices().map(|(device, seals)| (device, seals.collect())).collect();
    assert_eq!(listed, devices.map(|(device, seals)| (device, seals.to_vec())));
    assert_eq!(manifest.seals(DeviceId([4; 8])).collect::<Vec<_>>(), digests[1..]);
    assert_eq!(manifest.seals(DeviceId([2; 8])).count(), 0);
}

#[test]
fn rejects_a_manifest_out_of_order_or_with_an_empty_entry() {
    let digests = digests(1);
    let (one, two) = ((DeviceId([1; 8]), &digests[..]), (DeviceId([2; 8]), &digests[..]));
    assert!(open(&manifest(&[one, two], 0)).is_ok());
    assert!(open(&manifest(&[], 0)).is_ok());
    for devices in [&[two, one][..], &[one, one], &[(DeviceId([1; 8]), &[])]] {
        assert_eq!(open(&manifest(devices, 0)).unwrap_err(), AnnouncementError::UnsortedDevices);
    }
}

#[test]
fn rejects_changed_or_foreign_announcements_and_manifests() {
    let mut out = [0; MAX_ANNOUNCEMENT];
    let bytes =
        Announcement::issue(GROUP, EpochNumber(70), Round(3), &secret(9), &mut out).unwrap();
    let word = Announcement::open(bytes, GROUP, &secret(9).public()).unwrap();
    assert_eq!((word.epoch(), word.round()), (EpochNumber(70), Round(3)));
    assert_eq!(
        Announcement::open(bytes, GroupId([0; 8]), &secret(9).public()).unwrap_err(),
        AnnouncementError::WrongGroup
    );
    assert_eq!(
        Announcement::open(bytes, GROUP, &secret(8).public()).unwrap_err().name(),
        "NotAuthentic"
    );
    let esp256 = SecretKey::from_seed(Algorithm::Esp256, &[9; 32]).unwrap();
    assert_eq!(
        Announcement::open(bytes, GROUP, &esp256.public()).unwrap_err(),
        AnnouncementError::AlgorithmMismatch
    );
    // An announcement is not a manifest.
    assert_eq!(open(bytes).unwrap_err().name(), "WrongType");
    let digests = digests(2);
    let manifest = manifest(&[(DeviceId([1; 8]), &digests)], 2);
    for (bytes, is_right) in [(bytes.to_vec(), false), (manifest, true)] {
        for place in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                if changed[place] == value {
                    continue;
                }
                changed[place] = value;
                assert!(
                    Announcement::open(&changed, GROUP, &secret(9).public()).is_err(),
                    "{place}"
                );
                assert!(open(&changed).is_err(), "{place}");
            }
            assert!(open(&bytes[..place]).is_err(), "{place}");
        }
        assert_eq!(open(&bytes).is_ok(), is_right);
    }
}

#[test]
fn rejects_a_round_above_the_number_of_levels() {
    let mut out = [0; MAX_ANNOUNCEMENT];
    let bytes =
        Announcement::issue(GROUP, EpochNumber(70), Round(32), &secret(9), &mut out).unwrap();
    assert_eq!(
        Announcement::open(bytes, GROUP, &secret(9).public()).unwrap_err().name(),
        "FieldOutOfRange"
    );
    assert_eq!(open(&manifest(&[], 33)).unwrap_err().name(), "FieldOutOfRange");
    assert_eq!(Level(0), Salt([0; 16]).level(Sequence(0), 1));
}
