//! An audit of what can be seen of a group's chains: whatever a store withholds, an honest
//! coordinator is not accused of inventing it, and whatever range is asked for, a coordinator that
//! lists other seals is not acquitted.

use crate::support::{EPOCH, Group, Sealed};
use moteseal_client::audit::{Audit, Doubt, EpochReport, Finding, Report, Verdict};
use moteseal_core::record::{EpochNumber, SealIndex};

const BUDGET: u64 = 1000;

/// What an audit of some epochs says of an answer with no events.
fn audited(
    group: &Group,
    (since, until): (u64, Option<u64>),
    manifests: &[&Vec<u8>],
    seals: &[&Sealed],
) -> Report {
    let mut audit = Audit::new(&group.roster, EpochNumber(since), until.map(EpochNumber)).unwrap();
    let parts: Vec<(&Sealed, u32)> = seals.iter().map(|sealed| (*sealed, 0)).collect();
    let mut feed = audit.stream();
    feed.feed(&group.answer_behind(manifests, &parts)).unwrap();
    feed.finish().unwrap();
    audit.finish()
}

fn of(report: &Report, epoch: u64) -> &EpochReport {
    report.epochs.iter().find(|found| found.epoch.0 == epoch).unwrap()
}

fn names(epoch: &EpochReport) -> Vec<&'static str> {
    epoch.findings.iter().map(Finding::name).chain(epoch.doubts.iter().map(Doubt::name)).collect()
}

/// Both devices, by id as an answer has them, over some epochs; each epoch of the first one in as
/// many parts as it says here.
struct World {
    group: Group,
    /// By device, epoch and part.
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

    /// Everything of some epochs that is not withheld.
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

/// The manifest of an epoch lists yesterday's seals, and a round too many: who audits that epoch
/// alone does not have these seals, but the epoch's own name them.
#[test]
fn yesterdays_list_is_found_by_an_audit_of_today_alone() {
    let world = World::new(&[1, 1, 1]);
    let yesterdays: Vec<&Sealed> = world.seals.iter().flat_map(|epochs| &epochs[0]).collect();
    let mut manifests = world.manifests();
    manifests[1] = world.group.manifest(EPOCH + 1, 3, &yesterdays);
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
    // With yesterday at hand it is called by the same name.
    let manifests = [&world.manifests()[0], manifests[0]];
    let report =
        audited(&world.group, (EPOCH, Some(EPOCH + 2)), &manifests, &world.shown(0..2, &[]));
    assert_eq!(of(&report, EPOCH + 1).findings, epoch.findings);
}

/// Whichever seals of an epoch in three parts a store withholds, with the coordinator's list at
/// hand or with the coordinator gone on: it listed what there was, and may be asked where it is,
/// but not be called an inventor.
#[test]
fn whatever_is_withheld_of_an_epoch_in_parts_nobody_is_said_to_have_invented_it() {
    for (epochs, behind) in
        [(vec![1, 3, 1], true), (vec![1, 3], false), (vec![3], false), (vec![1, 3, 2, 1], true)]
    {
        let at = epochs.iter().position(|parts| *parts == 3).unwrap();
        let world = World::new(&epochs);
        let (manifests, epoch) = (world.manifests(), EPOCH + at as u64);
        let manifests: Vec<&Vec<u8>> = manifests.iter().collect();
        // The parts of the epoch, and those of the one behind.
        let others = world.seals[0].get(at + 1).into_iter().flatten();
        let of_question: Vec<&Sealed> = world.seals[0][at].iter().chain(others).collect();
        for mask in 0..1u32 << of_question.len() {
            let withheld: Vec<&Sealed> = of_question
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
            // Nobody is accused while the newest manifest may still be on its way, unless the
            // device's own chain goes on.
            if !behind {
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

/// A seal that a device never signed, listed beside all that it did: its chain has no place for it,
/// in whatever parts it came.
#[test]
fn a_seal_that_nobody_signed_is_called_invented_where_the_chain_has_no_gap() {
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

/// The last part of a device's epoch is listed, one before it is not, though it is there: what it
/// counts is left out, and with it the round would be another one.
#[test]
fn an_earlier_part_that_is_not_listed_leaves_the_epoch_undetermined() {
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
