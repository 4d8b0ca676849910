//! Trees in a group with a budget. The seals and the round of the manifest determine which events
//! exist, so a cloud has no choice. Any other sample, for any round, is rejected.

use crate::support::{EPOCH, Group, LEVELS, Picked, Tree, coordinator, nowhere};
use moteseal_client::{Report, Standing};
use moteseal_core::record::{EpochNumber, Sequence};
use moteseal_seal::sample::Choice;
use moteseal_seal::sample::permutation::{Swap, choose, scratch_for};

const ROUND: u8 = 2;
const SEED: [u8; 32] = [5; 32];
const ALL: u32 = u32::MAX;

/// One epoch with two trees. The first has 150 events. The second has 90 events, of which the
/// device kept the levels from `own_round` on.
struct World {
    group: Group,
    trees: [Tree; 2],
    manifest: Vec<u8>,
}

fn world(round: u8, own_round: u8) -> World {
    let group = Group::budgeted(60);
    let mut position = group.start("mote-1");
    let records: Vec<u8> = (0..150).collect();
    let first = group.seal_tree(&mut position, (EPOCH, false), 0, &records);
    let second = group.seal_tree(&mut position, (EPOCH, true), own_round, &records[..90]);
    let manifest = group.manifest_of(&coordinator(), EPOCH, round, &[&first.seal, &second.seal]);
    World { group, trees: [first, second], manifest }
}

impl World {
    /// Returns every event that exists in an epoch that ended at `round`: the number of its part,
    /// and its sequence number in this part.
    fn existing(&self, round: u8) -> Vec<(usize, Sequence)> {
        self.at(round.max(self.trees[1].seal.statement().own_round.0))
    }

    /// Returns every event of the levels from `round` on, whether it was kept or not.
    fn at(&self, round: u8) -> Vec<(usize, Sequence)> {
        let [first, second] = [0, 1].map(|part| {
            self.trees[part]
                .at(ALL << round)
                .into_iter()
                .map(move |seq| (part, seq))
                .collect::<Vec<_>>()
        });
        [first, second].concat()
    }

    /// Returns the events that the seed draws from `events`.
    fn drawn(&self, events: &[(usize, Sequence)], count: usize) -> Vec<(usize, Sequence)> {
        let (mut chosen, mut scratch) = (vec![0; count], vec![Swap::FREE; scratch_for(count)]);
        let device = self.group.device("mote-1");
        let chosen = choose(
            &SEED,
            device,
            EpochNumber(EPOCH),
            events.len() as u64,
            &mut chosen,
            &mut scratch,
        )
        .unwrap();
        chosen.sort_unstable();
        chosen.iter().map(|&at| events[usize::try_from(at).unwrap()]).collect()
    }

    fn serve(&self, events: &[(usize, Sequence)]) -> Vec<(&Tree, Picked)> {
        let of = |part: usize| {
            let mine: Vec<Sequence> =
                events.iter().filter(|(of, _)| *of == part).map(|(_, seq)| *seq).collect();
            if mine.is_empty() { Picked::Levels(0) } else { Picked::Events(mine) }
        };
        vec![(&self.trees[0], of(0)), (&self.trees[1], of(1))]
    }

    fn verify(
        &self,
        choice: Choice,
        manifests: &[&Vec<u8>],
        parts: &[(&Tree, Picked)],
    ) -> Result<Report, String> {
        let query = self.group.query(&["mote-1"], Some(EPOCH + 1), choice);
        self.group.verify(
            query,
            None,
            &self.group.answer_of_trees(manifests, parts),
            &mut nowhere(),
        )
    }

    fn sampled(&self, count: u32, events: &[(usize, Sequence)]) -> Result<u64, String> {
        let verified = self.verify(
            Choice::Sample { count, seed: SEED },
            &[&self.manifest],
            &self.serve(events),
        );
        verified.map(|report| report.rows())
    }
}

#[test]
fn a_sample_is_drawn_among_the_events_that_exist() {
    for round in [0, 1, ROUND, 4, LEVELS] {
        let world = world(round, 1);
        let existing = world.existing(round);
        for count in [1, 7, 30, 1000] {
            let drawn = world.drawn(&existing, count);
            assert_eq!(drawn.len(), count.min(existing.len()));
            assert_eq!(
                world.sampled(u32::try_from(count).unwrap(), &drawn),
                Ok(drawn.len() as u64),
                "{count} at round {round}"
            );
        }
    }
}

#[test]
fn rejects_any_other_events() {
    let world = world(ROUND, 1);
    let existing = world.existing(ROUND);
    let honest = world.drawn(&existing, 12);
    let rejected = |what: &str, count: u32, events: &[(usize, Sequence)]| {
        assert_eq!(world.sampled(count, events).unwrap_err(), "NotAsAsked", "{what}");
    };
    // For each drawn event, three answers are rejected: the event is withheld; the event is
    // replaced by an event that was not drawn; the sample is drawn from the events without this
    // event.
    for at in 0..honest.len() {
        let mut withheld = honest.clone();
        withheld.remove(at);
        rejected("one withheld", 12, &withheld);
        let mut replaced = withheld.clone();
        replaced.extend(
            existing.iter().find(|event| event.0 == honest[at].0 && !honest.contains(event)),
        );
        replaced.sort_unstable();
        rejected("one replaced", 12, &replaced);
        let without: Vec<_> =
            existing.iter().copied().filter(|event| *event != honest[at]).collect();
        rejected("one left out before drawing", 12, &world.drawn(&without, 12));
    }
    let mut more = honest.clone();
    more.extend(existing.iter().find(|event| !honest.contains(event)));
    more.sort_unstable();
    rejected("one more", 12, &more);
    rejected("drawn for another count", 12, &world.drawn(&existing, 11));
    rejected("nothing", 12, &[]);
    // Events below the round do not exist, even if a store has them. Events from the round on must
    // not be left out.
    for other in [1, 3, 5] {
        rejected("drawn for another round", 12, &world.drawn(&world.existing(other), 12));
    }
    // The answer has all events, but it selects them by level. The query requires that single
    // events are selected.
    let by_levels =
        [(&world.trees[0], Picked::Levels(ALL << ROUND)), (&world.trees[1], Picked::Levels(ALL))];
    let choice = Choice::Sample { count: 1000, seed: SEED };
    assert_eq!(world.verify(choice, &[&world.manifest], &by_levels).unwrap_err(), "NotAsAsked");
}

/// If the device used a higher round for one part, that round applies to all parts of the epoch.
/// Otherwise the events of the parts would not be equally likely to be drawn.
#[test]
fn the_parts_of_an_epoch_have_one_round() {
    let world = world(ROUND, 3);
    let drawn = world.drawn(&world.existing(ROUND), 12);
    assert_eq!(world.sampled(12, &drawn), Ok(12));
    let each_its_own: Vec<_> = world
        .at(ROUND)
        .into_iter()
        .filter(|(part, seq)| *part == 0 || world.trees[1].at(ALL << 3).contains(seq))
        .collect();
    assert_ne!(each_its_own, world.existing(ROUND));
    assert_eq!(world.sampled(12, &world.drawn(&each_its_own, 12)).unwrap_err(), "NotAsAsked");
    assert_eq!(world.sampled(1000, &each_its_own).unwrap_err(), "NotAsAsked");
}

#[test]
fn rejects_an_event_that_the_device_did_not_keep() {
    let world = world(ROUND, 3);
    let gone = world.trees[1].at(0b111)[0];
    assert_eq!(world.sampled(1, &[(1, gone)]).unwrap_err(), "SelectOutOfRange");
}

#[test]
fn an_epoch_without_its_manifest_gives_no_sample() {
    let world = world(ROUND, 1);
    let choice = Choice::Sample { count: 9, seed: SEED };
    for events in [world.drawn(&world.existing(ROUND), 9), world.drawn(&world.existing(1), 9)] {
        assert_eq!(world.verify(choice, &[], &world.serve(&events)).unwrap_err(), "NotAsAsked");
    }
    let report = world.verify(choice, &[], &world.serve(&[])).unwrap();
    assert_eq!(
        (report.rows(), report.devices[0].standing),
        (0, Standing::ManifestMissing { from: EpochNumber(EPOCH) })
    );
    // A manifest with a different round is rejected, because it is a second manifest of the epoch.
    let other = world.group.manifest_of(
        &coordinator(),
        EPOCH,
        3,
        &[&world.trees[0].seal, &world.trees[1].seal],
    );
    let events = world.drawn(&world.existing(3), 9);
    assert_eq!(
        world.verify(choice, &[&world.manifest, &other], &world.serve(&events)).unwrap_err(),
        "TwoManifests"
    );
}

#[test]
fn rates_and_at_most_serve_a_pruned_tree_like_a_star() {
    let world = world(ROUND, 3);
    let levels = |masks: [u32; 2]| {
        [(&world.trees[0], Picked::Levels(masks[0])), (&world.trees[1], Picked::Levels(masks[1]))]
    };
    let verify = |choice: Choice, masks: [u32; 2]| {
        world.verify(choice, &[&world.manifest], &levels(masks)).map(|report| report.rows())
    };
    let rate = |text: &str| Choice::Rate(text.parse().unwrap());
    let count = |masks: [u32; 2]| {
        (world.trees[0].at(masks[0]).len() + world.trees[1].at(masks[1] & ALL << 3).len()) as u64
    };
    assert_eq!(verify(rate("1/8"), [ALL << 3; 2]), Ok(count([ALL << 3; 2])));
    assert_eq!(
        verify(rate("1/4"), [ALL << 2, ALL << 3]).unwrap_err(),
        "RateUnavailable",
        "the second part has no level 2"
    );
    assert_eq!(verify(rate("1/8"), [ALL << 3, ALL << 4]).unwrap_err(), "NotAsAsked");
    assert_eq!(verify(rate("1/8"), [ALL << 2, ALL << 3]).unwrap_err(), "NotAsAsked");
    // The second part has no level 2, so *at most* requires only the levels from 3 on.
    assert_eq!(verify(Choice::AtMost(1000), [ALL << 3; 2]), Ok(count([ALL << 3; 2])));
    assert_eq!(verify(Choice::AtMost(1000), [ALL << 2, ALL << 3]).unwrap_err(), "NotAsAsked");
}

/// Alters every byte of a small answer that has a pruned tree, for each kind of query.
#[test]
fn rejects_an_answer_with_any_altered_byte() {
    let group = Group::budgeted(9);
    let mut position = group.start("mote-1");
    let records: Vec<u8> = (0..24).collect();
    let tree = group.seal_tree(&mut position, (EPOCH, true), 1, &records);
    let manifest = group.manifest_of(&coordinator(), EPOCH, ROUND, &[&tree.seal]);
    let kept = tree.at(ALL << ROUND);
    assert!(kept.len() > 2 && kept.len() < 12, "{} events", kept.len());
    for (choice, picked) in [
        (Choice::Rate("1/4".parse().unwrap()), Picked::Levels(ALL << ROUND)),
        (Choice::AtMost(1000), Picked::Levels(ALL << ROUND)),
        (Choice::Sample { count: 1000, seed: SEED }, Picked::Events(kept)),
    ] {
        let answer = group.answer_of_trees(&[&manifest], &[(&tree, picked)]);
        let query = || group.query(&["mote-1"], Some(EPOCH + 1), choice);
        assert!(group.verify(query(), None, &answer, &mut nowhere()).unwrap().rows() > 2);
        group.rejects_every_altered_byte(query, &answer);
    }
}
