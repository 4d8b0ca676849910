//! A group with a budget. The manifests determine which events exist. An answer in which the store
//! withheld or altered a manifest is rejected or incomplete.

use crate::support::{EPOCH, Group, LEVELS, Sealed, nowhere};
use moteseal_client::{Report, Standing};
use moteseal_core::record::{EpochNumber, Round};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_seal::sample::Choice;
use moteseal_seal::sample::choice::{EpochCounts, selected_count};

const ALL: u32 = u32::MAX;
const BUDGET: u64 = 30;

/// Three epochs of one mote with 80 events each. They ended at rounds 2, 3 and 2.
struct World {
    group: Group,
    sealed: Vec<Sealed>,
    manifests: Vec<Vec<u8>>,
}

const ROUNDS: [u8; 3] = [2, 3, 2];

fn world() -> World {
    let group = Group::budgeted(BUDGET);
    let mut position = group.start("mote-1");
    let records: Vec<Vec<u8>> = (0..80).map(|value| vec![value]).collect();
    let sealed: Vec<Sealed> = (0..3)
        .map(|epoch| group.seal("mote-1", &mut position, EPOCH + epoch, &["a:V:u8"], &records))
        .collect();
    let manifests =
        (0..3).map(|at| group.manifest(EPOCH + at as u64, ROUNDS[at], &[&sealed[at]])).collect();
    World { group, sealed, manifests }
}

/// Returns the levels from a round on.
fn from(round: u8) -> u32 {
    ALL << round
}

/// Returns the levels that *at most* requires of `sealed`. The epoch has no other seal, and ended
/// at `round`.
fn at_most(sealed: &Sealed, round: u8, most: u64) -> u32 {
    let mut counts = EpochCounts::at_round(LEVELS, Round(round));
    counts.add(sealed.seal.statement());
    counts.at_most(most)
}

impl World {
    fn verify(
        &self,
        choice: Choice,
        manifests: &[&Vec<u8>],
        parts: &[(&Sealed, u32)],
    ) -> Result<Report, String> {
        let query = self.group.query(&["mote-1"], Some(EPOCH + 3), choice);
        self.group.verify(query, None, &self.group.answer_after(manifests, parts), &mut nowhere())
    }

    fn all(&self) -> Vec<&Vec<u8>> {
        self.manifests.iter().collect()
    }

    /// Returns the seals of all epochs, each with all of its kept levels.
    fn kept(&self) -> Vec<(&Sealed, u32)> {
        self.sealed.iter().zip(ROUNDS).map(|(sealed, round)| (sealed, from(round))).collect()
    }

    fn rows_from(&self, masks: &[u32]) -> u64 {
        let count = |(sealed, mask): (&Sealed, &u32)| {
            u64::from(selected_count(&sealed.seal.statement().counters, *mask))
        };
        self.sealed.iter().zip(masks).map(count).sum()
    }
}

#[test]
fn at_most_follows_from_the_rounds_of_the_manifests() {
    let world = world();
    let report = world.verify(Choice::AtMost(1000), &world.all(), &world.kept()).unwrap();
    assert!(report.is_complete());
    assert_eq!(report.rows(), world.rows_from(&ROUNDS.map(from)));
    let rounds: Vec<(u64, u8)> =
        report.rounds.iter().map(|(epoch, round)| (epoch.0 - EPOCH, round.0)).collect();
    assert_eq!(
        (report.budget, &rounds[..], report.signatures),
        (Some(BUDGET), &[(0, 2), (1, 3), (2, 2)][..], 6)
    );
    assert_eq!(report.round_span(), Some((Round(2), Round(3))));
    // The query requests fewer events than were kept.
    let masks: Vec<u32> =
        world.sealed.iter().zip(ROUNDS).map(|(sealed, round)| at_most(sealed, round, 9)).collect();
    let parts: Vec<(&Sealed, u32)> = world.sealed.iter().zip(masks.iter().copied()).collect();
    assert_eq!(
        world.verify(Choice::AtMost(9), &world.all(), &parts).unwrap().rows(),
        world.rows_from(&masks)
    );
    // The query requests no events. Every seal and every manifest is still required.
    let nothing: Vec<(&Sealed, u32)> = world.sealed.iter().map(|sealed| (sealed, 0)).collect();
    let report = world.verify(Choice::AtMost(0), &world.all(), &nothing).unwrap();
    assert_eq!(
        (report.rows(), report.seals(), report.rounds.len(), report.is_complete()),
        (0, 3, 3, true)
    );
}

#[test]
fn rejects_levels_that_differ_from_the_round_of_the_manifest() {
    let world = world();
    for (mask, name) in [
        (from(1), "one level below the round"),
        (ALL, "all levels"),
        (from(3), "too few levels"),
        (0, "no level"),
    ] {
        let mut parts = world.kept();
        parts[0].1 = mask;
        let verified = world.verify(Choice::AtMost(1000), &world.all(), &parts);
        assert_eq!(verified.unwrap_err(), "NotAsAsked", "{name}");
    }
    // A rate selects levels of each part independently of the other parts. The answer is accepted
    // if every part has all levels of the rate.
    let rate = |text: &str| Choice::Rate(text.parse().unwrap());
    let parts: Vec<(&Sealed, u32)> = world.sealed.iter().map(|sealed| (sealed, from(3))).collect();
    assert!(world.verify(rate("1/8"), &world.all(), &parts).unwrap().is_complete());
    let everything: Vec<(&Sealed, u32)> = world.sealed.iter().map(|sealed| (sealed, ALL)).collect();
    assert!(world.verify(rate("1"), &world.all(), &everything).unwrap().is_complete());
    assert_eq!(world.verify(rate("1/4"), &world.all(), &parts).unwrap_err(), "NotAsAsked");
}

#[test]
fn an_epoch_without_its_manifest_gives_no_rows() {
    let world = world();
    for left_out in 0..3 {
        let mut manifests = world.all();
        manifests.remove(left_out);
        let mut parts = world.kept();
        // Without the manifest, no event of this epoch can be checked.
        assert_eq!(
            world.verify(Choice::AtMost(1000), &manifests, &parts).unwrap_err(),
            "NotAsAsked"
        );
        parts[left_out].1 = 0;
        let report = world.verify(Choice::AtMost(1000), &manifests, &parts).unwrap();
        let from_epoch = EpochNumber(EPOCH + left_out as u64);
        assert_eq!(report.devices[0].standing, Standing::ManifestMissing { from: from_epoch });
        assert_eq!((report.is_complete(), report.devices[0].complete_until()), (false, from_epoch));
        let mut masks = ROUNDS.map(from);
        masks[left_out] = 0;
        assert_eq!((report.rows(), report.seals()), (world.rows_from(&masks), 2));
        // The selection of a rate does not depend on the manifest.
        let parts: Vec<(&Sealed, u32)> =
            world.sealed.iter().map(|sealed| (sealed, from(3))).collect();
        let report =
            world.verify(Choice::Rate("1/8".parse().unwrap()), &manifests, &parts).unwrap();
        assert_eq!((report.is_complete(), report.rounds.len()), (true, 2));
    }
    // If an unknown tail begins before the epoch without a manifest, the report states the unknown
    // tail.
    let report =
        world.verify(Choice::AtMost(1000), &[&world.manifests[0]], &world.kept()[..1]).unwrap();
    assert_eq!(report.devices[0].standing, Standing::TailUnknown { from: EpochNumber(EPOCH + 1) });
}

/// Finding F2 of the review. Nothing is served of an epoch without a manifest, also if it is unknown
/// whether the epoch has further parts.
#[test]
fn rejects_events_of_an_open_epoch_without_its_manifest() {
    let group = Group::budgeted(BUDGET);
    let mut position = group.start("mote-1");
    let records: Vec<Vec<u8>> = (0..80).map(|value| vec![value]).collect();
    let last = (EPOCH, false);
    let open = group.seal_part("mote-1", &mut position, last, &["a:V:u8"], &records);
    let manifest = group.manifest(EPOCH, 2, &[&open]);
    let verify = |until, manifests: &[&Vec<u8>], mask| {
        let query = group.query(&["mote-1"], until, Choice::AtMost(1000));
        let answer = group.answer_after(manifests, &[(&open, mask)]);
        group.verify(query, None, &answer, &mut nowhere())
    };
    for until in [None, Some(EPOCH + 1), Some(EPOCH + 3)] {
        for mask in [ALL, from(2), 1] {
            assert_eq!(verify(until, &[], mask).unwrap_err(), "NotAsAsked");
        }
        let report = verify(until, &[], 0).unwrap();
        assert_eq!(report.devices[0].standing, Standing::TailUnknown { from: EpochNumber(EPOCH) });
        assert_eq!(report.rows(), 0);
        // With the manifest, the selection cannot be checked yet, and no rows are returned.
        assert_eq!(verify(until, &[&manifest], from(2)).unwrap().rows(), 0);
    }
}

#[test]
fn accepts_each_manifest_of_the_range_once_and_in_order() {
    let world = world();
    let [first, second, third] = &world.manifests[..] else { panic!("three") };
    let other = world.group.manifest(EPOCH + 1, 2, &[&world.sealed[1]]);
    let outside =
        [EPOCH - 1, EPOCH + 3].map(|epoch| world.group.manifest(epoch, 2, &[&world.sealed[0]]));
    let forged = {
        let stranger = SecretKey::from_seed(Algorithm::Ed25519, &[77; 32]).unwrap();
        world.group.manifest_by(&stranger, EPOCH + 1, 3, &[&world.sealed[1]])
    };
    for (manifests, name) in [
        (vec![first, first, second, third], "NotAsAsked"),
        (vec![second, first, third], "NotAsAsked"),
        (vec![&outside[0], first, second, third], "NotAsAsked"),
        (vec![first, second, third, &outside[1]], "NotAsAsked"),
        (vec![first, second, &other, third], "TwoManifests"),
        (vec![first, &other, second, third], "TwoManifests"),
        (vec![first, &forged, third], "NotAuthentic"),
    ] {
        for choice in [Choice::AtMost(1000), Choice::AtMost(0)] {
            assert_eq!(world.verify(choice, &manifests, &world.kept()).unwrap_err(), name);
        }
    }
    // No manifest may follow after a part.
    let query = || world.group.query(&["mote-1"], Some(EPOCH + 3), Choice::AtMost(1000));
    let mut answer = world.group.answer_after(&[first, second], &world.kept()[..2]);
    answer.pop();
    answer.pop();
    moteseal_verify::write::manifest(&mut answer, third);
    answer.extend(world.group.answer(&world.kept()[2..]));
    assert_eq!(
        world.group.verify(query(), None, &answer, &mut nowhere()).unwrap_err(),
        "NotAsAsked"
    );
    // A group without a budget has no manifests.
    let plain = Group::new();
    let answer = plain.answer_after(&[first], &[]);
    let query = plain.query(&["mote-1"], Some(EPOCH + 3), Choice::AtMost(1000));
    assert_eq!(plain.verify(query, None, &answer, &mut nowhere()).unwrap_err(), "NoCoordinator");
}

#[test]
fn a_listed_seal_must_be_served_and_an_unlisted_one_is_late() {
    let world = world();
    // The chain alone does not show that the last seal is withheld, but the manifest of its epoch
    // does.
    let query = || world.group.query(&["mote-1", "mote-2"], None, Choice::AtMost(1000));
    let verify = |manifests: &[&Vec<u8>], parts: &[(&Sealed, u32)]| {
        world.group.verify(
            query(),
            None,
            &world.group.answer_after(manifests, parts),
            &mut nowhere(),
        )
    };
    assert_eq!(verify(&world.all(), &world.kept()[..2]).unwrap_err(), "Missing");
    assert_eq!(verify(&world.all(), &[]).unwrap_err(), "Missing");
    let report = verify(&world.all(), &world.kept()).unwrap();
    assert_eq!(report.devices.iter().map(|device| device.late).collect::<Vec<_>>(), [0, 0]);
    // The manifest also lists a seal of a device that the query does not name. This seal does not
    // have to be served.
    let mut position = world.group.start("mote-2");
    let other = world.group.seal("mote-2", &mut position, EPOCH + 2, &["a:V:u8"], &[vec![1]]);
    let both = world.group.manifest(EPOCH + 2, 2, &[&world.sealed[2], &other]);
    let manifests = [&world.manifests[0], &world.manifests[1], &both];
    assert!(world.verify(Choice::AtMost(1000), &manifests, &world.kept()).unwrap().is_complete());
    assert_eq!(verify(&manifests, &world.kept()).unwrap_err(), "Missing");
    // A seal that arrived after the manifest is still served, and is counted as late.
    let without = world.group.manifest(EPOCH + 2, 2, &[&other]);
    let manifests = [&world.manifests[0], &world.manifests[1], &without];
    let mut parts = world.kept();
    parts.push((&other, from(2)));
    let report = verify(&manifests, &parts).unwrap();
    assert_eq!(report.devices.iter().map(|device| device.late).collect::<Vec<_>>(), [1, 0]);
    // The device also signed a different seal. It does not replace the listed seal.
    let mut position = world.sealed[1].seal.position();
    let instead =
        world.group.seal("mote-1", &mut position, EPOCH + 2, &["a:V:u8"], &[vec![1], vec![2]]);
    let mut parts = world.kept();
    parts[2] = (&instead, from(2));
    assert_eq!(world.verify(Choice::AtMost(1000), &world.all(), &parts).unwrap_err(), "Missing");
}

/// Alters every byte of a small answer that has a manifest and a pruned part.
#[test]
fn rejects_an_answer_with_any_altered_byte() {
    let group = Group::budgeted(BUDGET);
    let mut position = group.start("mote-1");
    let records: Vec<Vec<u8>> = (0..12).map(|value| vec![value]).collect();
    let sealed = group.seal("mote-1", &mut position, EPOCH, &["a:V:u8"], &records);
    let manifest = group.manifest(EPOCH, 1, &[&sealed]);
    let answer = group.answer_after(&[&manifest], &[(&sealed, from(1))]);
    let query = || group.query(&["mote-1"], Some(EPOCH + 1), Choice::AtMost(1000));
    let rows = group.verify(query(), None, &answer, &mut nowhere()).unwrap().rows();
    assert!(rows > 2 && rows < 12, "{rows} rows");
    group.rejects_every_altered_byte(query, &answer);
}
