//! Audits of a group's chains. An audit must not accuse an honest coordinator of inventing seals,
//! whichever seals a store withholds. If a coordinator lists seals of another epoch, the verdict
//! must not be `Justified`, whichever range is audited.

use crate::support::{EPOCH, Group, Sealed};
use moteseal_client::audit::{Audit, Doubt, EpochReport, Finding, Report, Verdict};
use moteseal_core::record::{EpochNumber, SealIndex};

const BUDGET: u64 = 1000;

/// Returns the result of an audit of the epochs `since .. until`, from an answer without events.
fn audited(
    group: &Group,
    (since, until): (u64, Option<u64>),
    manifests: &[&Vec<u8>],
    seals: &[&Sealed],
) -> Report {
    let mut audit = Audit::new(&group.roster, EpochNumber(since), until.map(EpochNumber)).unwrap();
    let parts: Vec<(&Sealed, u32)> = seals.iter().map(|sealed| (*sealed, 0)).collect();
    let mut feed = audit.stream();
    feed.feed(&group.answer_after(manifests, &parts)).unwrap();
    feed.finish().unwrap();
    audit.finish()
}

fn of(report: &Report, epoch: u64) -> &EpochReport {
    report.epochs.iter().find(|found| found.epoch.0 == epoch).unwrap()
}

fn names(epoch: &EpochReport) -> Vec<&'static str> {
    epoch.findings.iter().map(Finding::name).chain(epoch.doubts.iter().map(Doubt::name)).collect()
}

/// The seals of two devices over several epochs. The devices are in ascending order of their ids.
/// Each epoch of the first device has the given number of parts.
struct World {
    group: Group,
    /// The seals by device, epoch and part.
    seals: [Vec<Vec<Sealed>>; 2],
    names: [&'static str; 2],
}

impl World {
    fn new(parts: &[usize]) -> Self {
        let group = Group::budgeted(BUDGET);
        let mut names = ["mote-1", "mote-2"];
        names.sort_by_key(|name| group.device(name));
        let records: Vec<Vec<u8>> = (0..20).map(|value| vec![value]).collect();
        let mut at = names.iter().enumerate().map(|(device, name)| {
            let mut position = group.start(name);
            let epochs = (EPOCH..).zip(parts).map(|(epoch, parts)| {
                let parts = if device == 0 { *parts } else { 1 };
                let part = |part| {
                    group.seal_part(
                        name,
                        &mut position,
                        (epoch, part + 1 == parts),
                        &["a:V:u8"],
                        &records,
                    )
                };
                (0..parts).map(part).collect()
            });
            epochs.collect()
        });
        let seals = [at.next().unwrap(), at.next().unwrap()];
        drop(at);
        Self { group, seals, names }
    }

    /// Returns all seals of these epochs that are not withheld.
    fn shown(&self, epochs: std::ops::Range<usize>, withheld: &[&Sealed]) -> Vec<&Sealed> {
        let all =
            self.seals.iter().flat_map(|epochs_of| epochs_of[epochs.clone()].iter().flatten());
        all.filter(|sealed| {
            withheld.iter().all(|other| other.seal.digest() != sealed.seal.digest())
        })
        .collect()
    }

    fn manifests(&self) -> Vec<Vec<u8>> {
        let honest = |(at, epoch)| {
            let listed: Vec<&Sealed> =
                self.seals.iter().flat_map(|epochs: &Vec<Vec<Sealed>>| &epochs[at]).collect();
            self.group.manifest(epoch, 0, &listed)
        };
        (0..self.seals[0].len()).zip(EPOCH..).map(honest).collect()
    }
}

/// The manifest of the second epoch lists the seals of the first epoch, and its round is too high.
/// An audit of the second epoch alone does not see the listed seals, but the seals of the second
/// epoch name them as their predecessors.
#[test]
fn an_audit_of_one_epoch_finds_listed_seals_of_the_epoch_before() {
    let world = World::new(&[1, 1, 1]);
    let of_epoch_before: Vec<&Sealed> = world.seals.iter().flat_map(|epochs| &epochs[0]).collect();
    let mut manifests = world.manifests();
    manifests[1] = world.group.manifest(EPOCH + 1, 3, &of_epoch_before);
    let manifests: Vec<&Vec<u8>> = manifests[1..].iter().collect();
    let report =
        audited(&world.group, (EPOCH + 1, Some(EPOCH + 2)), &manifests, &world.shown(1..2, &[]));
    let epoch = of(&report, EPOCH + 1);
    let found = |name| {
        let device = world.group.device(name);
        epoch.findings.contains(&Finding::Replayed {
            device,
            index: SealIndex(0),
            from: EpochNumber(EPOCH),
        })
    };
    assert!(world.names.iter().all(|name| found(name)), "{epoch:?}");
    assert_eq!((report.verdict(), epoch.verdict()), (Verdict::Unjustified, "Unjustified"));
    // An audit that also covers the first epoch reports the same findings.
    let manifests = [&world.manifests()[0], manifests[0]];
    let report =
        audited(&world.group, (EPOCH, Some(EPOCH + 2)), &manifests, &world.shown(0..2, &[]));
    assert_eq!(of(&report, EPOCH + 1).findings, epoch.findings);
}

/// One epoch has three parts. A store withholds any set of the seals of this epoch and of the next
/// one, and the coordinator may have continued with later epochs. The audit may report that a seal
/// is missing, but must not report that the honest coordinator invented it.
#[test]
fn an_honest_coordinator_is_not_accused_of_inventing_withheld_seals() {
    for (epochs, continued) in
        [(vec![1, 3, 1], true), (vec![1, 3], false), (vec![3], false), (vec![1, 3, 2, 1], true)]
    {
        let at = epochs.iter().position(|parts| *parts == 3).unwrap();
        let world = World::new(&epochs);
        let (manifests, epoch) = (world.manifests(), EPOCH + at as u64);
        let manifests: Vec<&Vec<u8>> = manifests.iter().collect();
        // The parts of the epoch and of the next epoch.
        let others = world.seals[0].get(at + 1).into_iter().flatten();
        let concerned: Vec<&Sealed> = world.seals[0][at].iter().chain(others).collect();
        for mask in 0..1u32 << concerned.len() {
            let withheld: Vec<&Sealed> = concerned
                .iter()
                .enumerate()
                .filter(|(place, _)| mask >> place & 1 == 1)
                .map(|(_, sealed)| *sealed)
                .collect();
            let report = audited(
                &world.group,
                (EPOCH, None),
                &manifests,
                &world.shown(0..epochs.len(), &withheld),
            );
            let audited = of(&report, epoch);
            let what = format!("{mask:03b} of {epochs:?}: {audited:?}");
            assert_eq!(audited.is_justified, mask & 7 == 0, "{what}");
            let allowed = ["Missing", "Withheld", "Unshown", "NotShownYet", "Absent"];
            assert!(names(audited).iter().all(|name| allowed.contains(name)), "{what}");
            // If the coordinator has not continued, the listed seals may still arrive, so there is
            // no finding.
            if !continued {
                assert!(audited.findings.is_empty(), "{what}");
            }
            let device = world.group.device(world.names[0]);
            let of_others = audited.doubts.iter().any(|doubt| doubt.device() != Some(device));
            assert!(
                !of_others && audited.findings.iter().all(|finding| finding.devices() == [device]),
                "{what}"
            );
        }
    }
}

/// The manifest lists all seals of a device, and one seal that the device never signed. For any
/// number of parts, the device's chain shows that this seal does not exist.
#[test]
fn a_listed_seal_that_the_device_never_signed_is_invented_if_the_chain_has_no_gap() {
    for parts in 1..4 {
        let world = World::new(&[1, parts, 1]);
        let mut elsewhere = world.group.start("mote-1");
        let other = world.group.seal("mote-1", &mut elsewhere, EPOCH + 1, &["a:V:u8"], &[vec![9]]);
        let device = other.seal.statement().device;
        let mut manifests = world.manifests();
        let listed: Vec<&Sealed> =
            world.seals.iter().flat_map(|epochs| &epochs[1]).chain([&other]).collect();
        manifests[1] = world.group.manifest(EPOCH + 1, 0, &listed);
        let manifests: Vec<&Vec<u8>> = manifests.iter().collect();
        for (since, until) in [(0, None), (1, None), (1, Some(EPOCH + 2))] {
            let end = until.map_or(3, |_| 2);
            let report = audited(
                &world.group,
                (EPOCH + since, until),
                &manifests[since as usize..],
                &world.shown(since as usize..end, &[]),
            );
            let epoch = of(&report, EPOCH + 1);
            assert_eq!(
                epoch.findings,
                [Finding::InventedSeal { device, digest: other.seal.digest() }],
                "{parts} parts: {epoch:?}"
            );
        }
    }
}

/// The manifest does not list some parts of a device's epoch, although they exist. Their events are
/// not counted. If they were counted, the due round could be different.
#[test]
fn a_part_that_is_not_listed_leaves_the_epoch_undetermined() {
    let world = World::new(&[1, 3, 1]);
    for left_out in [0b001, 0b010, 0b011, 0b100, 0b101, 0b110, 0b111u32] {
        let listed = world.seals[0][1]
            .iter()
            .enumerate()
            .filter(|(part, _)| left_out >> part & 1 == 0)
            .map(|(_, sealed)| sealed);
        let listed: Vec<&Sealed> = listed.chain(&world.seals[1][1]).collect();
        let mut manifests = world.manifests();
        manifests[1] = world.group.manifest(EPOCH + 1, 0, &listed);
        let manifests: Vec<&Vec<u8>> = manifests.iter().collect();
        let report = audited(&world.group, (EPOCH, None), &manifests, &world.shown(0..3, &[]));
        let (epoch, device) = (of(&report, EPOCH + 1), world.group.device(world.names[0]));
        let absent = epoch
            .doubts
            .iter()
            .any(|doubt| matches!(doubt, Doubt::Absent { device: of, .. } if *of == device));
        assert!(absent && epoch.verdict() == "Undetermined", "{left_out:03b}: {epoch:?}");
        assert!(
            epoch.doubts.iter().any(|doubt| matches!(doubt, Doubt::Late { .. })),
            "{left_out:03b}: {epoch:?}"
        );
    }
}

/// Finding F6 of the review: an honest coordinator is not accused. It ends an epoch while an audit
/// reads one stream after the other, so only the later streams have the manifest. The seals of the
/// earlier streams do not count, and without them the round is too high.
#[test]
fn ignores_a_manifest_that_was_signed_during_the_audit() {
    let group = Group::budgeted(50);
    let mut motes = ["mote-1", "mote-2"];
    motes.sort_by_key(|name| group.device(name));
    let records: Vec<Vec<u8>> = (0..40).map(|value| vec![value]).collect();
    let seals = motes.map(|name| {
        let mut position = group.start(name);
        [EPOCH, EPOCH + 1]
            .map(|epoch| group.seal(name, &mut position, epoch, &["a:V:u8"], &records))
    });
    let [first, second] =
        [0, 1].map(|at| group.manifest(EPOCH + at as u64, 1, &[&seals[0][at], &seals[1][at]]));
    let mut audit = Audit::new(&group.roster, EpochNumber(EPOCH), None).unwrap();
    for (manifests, device) in [(&[&first][..], 0), (&[&first, &second], 1)] {
        let mut feed = audit.stream();
        let parts = [(&seals[device][0], 0), (&seals[device][1], 0)];
        feed.feed(&group.answer_after(manifests, &parts)).unwrap();
        feed.finish().unwrap();
    }
    let report = audit.finish();
    assert_eq!(report.findings().next(), None, "{report:?}");
    assert_eq!(of(&report, EPOCH).verdict(), "Justified", "{report:?}");
    assert_eq!(names(of(&report, EPOCH + 1)), ["NoManifest"]);
    // An audit that gets both manifests first agrees with the round.
    let shown: Vec<&Sealed> = seals.iter().flatten().collect();
    let report = audited(&group, (EPOCH, None), &[&first, &second], &shown);
    assert_eq!(report.verdict(), Verdict::Justified, "{report:?}");
}
