//! A group with a budget: what was kept follows from the manifests, and whoever withholds or twists
//! one is named.

use crate::support::{EPOCH, Group, LEVELS, Sealed, nowhere};
use moteseal_client::{Report, Standing};
use moteseal_core::record::{EpochNumber, Round};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_seal::sample::Choice;
use moteseal_seal::sample::choice::{EpochCounts, selected_count};

const ALL: u32 = u32::MAX;
const BUDGET: u64 = 30;

/// Three epochs of one mote, 80 events each, that ended at rounds 2, 3 and 2.
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

/// The levels from a round on.
fn from(round: u8) -> u32 {
    ALL << round
}

/// What *at most* serves of a seal alone in an epoch that ended at `round`.
fn at_most(sealed: &Sealed, round: u8, most: u64) -> u32 {
    let mut counts = EpochCounts::at_round(LEVELS, Round(round));
    counts.add(sealed.seal.statement());
    counts.at_most(most)
}

impl World {
    fn judge(
        &self,
        choice: Choice,
        manifests: &[&Vec<u8>],
        parts: &[(&Sealed, u32)],
    ) -> Result<Report, String> {
        let query = self.group.query(&["mote-1"], Some(EPOCH + 3), choice);
        self.group.judge(query, None, &self.group.answer_behind(manifests, parts), &mut nowhere())
    }

    fn all(&self) -> Vec<&Vec<u8>> {
        self.manifests.iter().collect()
    }

    /// Every epoch as far as it was kept, and it all fits.
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
    let report = world.judge(Choice::AtMost(1000), &world.all(), &world.kept()).unwrap();
    assert!(report.is_complete());
    assert_eq!(report.rows(), world.rows_from(&ROUNDS.map(from)));
    let rounds: Vec<(u64, u8)> =
        report.rounds.iter().map(|(epoch, round)| (epoch.0 - EPOCH, round.0)).collect();
    assert_eq!(
        (report.budget, &rounds[..], report.signatures),
        (Some(BUDGET), &[(0, 2), (1, 3), (2, 2)][..], 6)
    );
    assert_eq!(report.round_span(), Some((Round(2), Round(3))));
    // Fewer than were kept.
    let masks: Vec<u32> =
        world.sealed.iter().zip(ROUNDS).map(|(sealed, round)| at_most(sealed, round, 9)).collect();
    let parts: Vec<(&Sealed, u32)> = world.sealed.iter().zip(masks.iter().copied()).collect();
    assert_eq!(
        world.judge(Choice::AtMost(9), &world.all(), &parts).unwrap().rows(),
        world.rows_from(&masks)
    );
    // None at all: every seal and manifest, and no events.
    let nothing: Vec<(&Sealed, u32)> = world.sealed.iter().map(|sealed| (sealed, 0)).collect();
    let report = world.judge(Choice::AtMost(0), &world.all(), &nothing).unwrap();
    assert_eq!(
        (report.rows(), report.seals(), report.rounds.len(), report.is_complete()),
        (0, 3, 3, true)
    );
}

#[test]
fn what_the_store_keeps_beyond_or_short_of_the_round_changes_nothing() {
    let world = world();
    for (mask, name) in [
        (from(1), "more than the round leaves"),
        (ALL, "everything"),
        (from(3), "less"),
        (0, "nothing"),
    ] {
        let mut parts = world.kept();
        parts[0].1 = mask;
        let judged = world.judge(Choice::AtMost(1000), &world.all(), &parts);
        assert_eq!(judged.unwrap_err(), "NotAsAsked", "{name}");
    }
    // A rate is forced part by part, wherever all its levels are there.
    let rate = |text: &str| Choice::Rate(text.parse().unwrap());
    let parts: Vec<(&Sealed, u32)> = world.sealed.iter().map(|sealed| (sealed, from(3))).collect();
    assert!(world.judge(rate("1/8"), &world.all(), &parts).unwrap().is_complete());
    let everything: Vec<(&Sealed, u32)> = world.sealed.iter().map(|sealed| (sealed, ALL)).collect();
    assert!(world.judge(rate("1"), &world.all(), &everything).unwrap().is_complete());
    assert_eq!(world.judge(rate("1/4"), &world.all(), &parts).unwrap_err(), "NotAsAsked");
}

#[test]
fn an_epoch_without_its_manifest_gives_no_rows() {
    let world = world();
    for left_out in 0..3 {
        let mut manifests = world.all();
        manifests.remove(left_out);
        let mut parts = world.kept();
        // Whatever is served of it is more than nobody can know to be right.
        assert_eq!(
            world.judge(Choice::AtMost(1000), &manifests, &parts).unwrap_err(),
            "NotAsAsked"
        );
        parts[left_out].1 = 0;
        let report = world.judge(Choice::AtMost(1000), &manifests, &parts).unwrap();
        let from_epoch = EpochNumber(EPOCH + left_out as u64);
        assert_eq!(report.devices[0].standing, Standing::ManifestMissing { from: from_epoch });
        assert_eq!((report.is_complete(), report.devices[0].complete_until()), (false, from_epoch));
        let mut masks = ROUNDS.map(from);
        masks[left_out] = 0;
        assert_eq!((report.rows(), report.seals()), (world.rows_from(&masks), 2));
        // For a rate it does not matter.
        let parts: Vec<(&Sealed, u32)> =
            world.sealed.iter().map(|sealed| (sealed, from(3))).collect();
        let report = world.judge(Choice::Rate("1/8".parse().unwrap()), &manifests, &parts).unwrap();
        assert_eq!((report.is_complete(), report.rounds.len()), (true, 2));
    }
    // An unknown tail that begins earlier is what is said.
    let report =
        world.judge(Choice::AtMost(1000), &[&world.manifests[0]], &world.kept()[..1]).unwrap();
    assert_eq!(report.devices[0].standing, Standing::TailUnknown { from: EpochNumber(EPOCH + 1) });
}

#[test]
fn a_manifest_is_taken_once_in_order_and_of_the_range_only() {
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
            assert_eq!(world.judge(choice, &manifests, &world.kept()).unwrap_err(), name);
        }
    }
    // Behind a part there is none.
    let query = || world.group.query(&["mote-1"], Some(EPOCH + 3), Choice::AtMost(1000));
    let mut answer = world.group.answer_behind(&[first, second], &world.kept()[..2]);
    answer.pop();
    answer.pop();
    moteseal_verify::write::manifest(&mut answer, third);
    answer.extend(world.group.answer(&world.kept()[2..]));
    assert_eq!(
        world.group.judge(query(), None, &answer, &mut nowhere()).unwrap_err(),
        "NotAsAsked"
    );
    // A group without a budget has none.
    let plain = Group::new();
    let answer = plain.answer_behind(&[first], &[]);
    let query = plain.query(&["mote-1"], Some(EPOCH + 3), Choice::AtMost(1000));
    assert_eq!(plain.judge(query, None, &answer, &mut nowhere()).unwrap_err(), "NoCoordinator");
}

#[test]
fn a_listed_seal_must_be_shown_and_one_that_is_not_listed_is_late() {
    let world = world();
    // The chain alone would not show that the last one is withheld.
    let query = || world.group.query(&["mote-1", "mote-2"], None, Choice::AtMost(1000));
    let judge = |manifests: &[&Vec<u8>], parts: &[(&Sealed, u32)]| {
        world.group.judge(
            query(),
            None,
            &world.group.answer_behind(manifests, parts),
            &mut nowhere(),
        )
    };
    assert_eq!(judge(&world.all(), &world.kept()[..2]).unwrap_err(), "Missing");
    assert_eq!(judge(&world.all(), &[]).unwrap_err(), "Missing");
    let report = judge(&world.all(), &world.kept()).unwrap();
    assert_eq!(report.devices.iter().map(|device| device.late).collect::<Vec<_>>(), [0, 0]);
    // Of a device that was not asked for nothing has to be shown.
    let mut position = world.group.start("mote-2");
    let other = world.group.seal("mote-2", &mut position, EPOCH + 2, &["a:V:u8"], &[vec![1]]);
    let both = world.group.manifest(EPOCH + 2, 2, &[&world.sealed[2], &other]);
    let manifests = [&world.manifests[0], &world.manifests[1], &both];
    assert!(world.judge(Choice::AtMost(1000), &manifests, &world.kept()).unwrap().is_complete());
    assert_eq!(judge(&manifests, &world.kept()).unwrap_err(), "Missing");
    // A seal that came after the manifest is shown all the same, and counted.
    let without = world.group.manifest(EPOCH + 2, 2, &[&other]);
    let manifests = [&world.manifests[0], &world.manifests[1], &without];
    let mut parts = world.kept();
    parts.push((&other, from(2)));
    let report = judge(&manifests, &parts).unwrap();
    assert_eq!(report.devices.iter().map(|device| device.late).collect::<Vec<_>>(), [1, 0]);
    // A seal that stands in for the listed one is not it.
    let mut position = world.sealed[1].seal.position();
    let instead =
        world.group.seal("mote-1", &mut position, EPOCH + 2, &["a:V:u8"], &[vec![1], vec![2]]);
    let mut parts = world.kept();
    parts[2] = (&instead, from(2));
    assert_eq!(world.judge(Choice::AtMost(1000), &world.all(), &parts).unwrap_err(), "Missing");
}

/// Every byte of a small answer with manifests and pruned parts, altered: refused, or no different.
#[test]
fn no_altered_byte_gives_another_row() {
    let group = Group::budgeted(BUDGET);
    let mut position = group.start("mote-1");
    let records: Vec<Vec<u8>> = (0..12).map(|value| vec![value]).collect();
    let sealed = group.seal("mote-1", &mut position, EPOCH, &["a:V:u8"], &records);
    let manifest = group.manifest(EPOCH, 1, &[&sealed]);
    let answer = group.answer_behind(&[&manifest], &[(&sealed, from(1))]);
    let query = || group.query(&["mote-1"], Some(EPOCH + 1), Choice::AtMost(1000));
    let rows = group.judge(query(), None, &answer, &mut nowhere()).unwrap().rows();
    assert!(rows > 2 && rows < 12, "{rows} rows");
    group.refuses_every_altered_byte(query, &answer);
}
