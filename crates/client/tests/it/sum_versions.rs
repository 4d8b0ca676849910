//! A querier while its group changes: sources join and leave in the middle of an epoch.

use moteseal_client::sum::{Epochs, Outcome, PoseError, Received, Rejection};
use moteseal_core::record::EpochNumber;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_sum::engine::Scalar;
use moteseal_sum::sies::Master;
use moteseal_sum::wire::SumUplink;
use moteseal_verify::aggregation::{AggregationTree, QUERIER};
use moteseal_verify::issue::NextRoster;
use moteseal_verify::{Roster, SumGroup};

use crate::sum_support::{
    Chance, Contribution, MASTER, Scene, Traffic, link, opened, operator, roster,
};

/// The first epoch of the query, and the length of its epochs in milliseconds. The next epoch starts
/// with an epoch of the roster.
const FIRST: u64 = 1007;
const EPOCH_MS: u64 = 5000;
/// The number of sources before the change, and the size of their key groups.
const SOURCES: u32 = 20;
const KEY_GROUP: u32 = 7;
const QUERY: &str = "SELECT SUM(light) FROM sensors EPOCH DURATION 5s";

/// Returns the tree with one gateway above all sources.
fn tree(roster: &Roster) -> AggregationTree {
    let sources = roster.sources();
    let homes = sources.iter().map(|device| (device.name.as_str(), "gw"));
    AggregationTree::new(roster, [("gw", QUERIER)], homes).unwrap()
}

/// A query to a group, and the next version of the group.
struct Change {
    scene: Scene,
    epochs: Epochs<Scalar>,
}

impl Change {
    fn new() -> Self {
        let roster = roster(SOURCES as usize);
        let tree = tree(&roster);
        let scene = Scene::new(roster, tree, QUERY, KEY_GROUP, 2, &mut Chance(7));
        let epochs = Epochs::new(scene.group(), scene.querier(), 1000, FIRST);
        Self { scene, epochs }
    }

    /// Changes the roster. From then on, shares are encrypted by the sources of the new version.
    fn next(&mut self, change: impl FnOnce(&mut NextRoster<'_>)) -> Roster {
        let operator = operator();
        let before = self.scene.roster.bytes();
        let mut next = NextRoster::after(before, &operator, &operator.public()).unwrap();
        change(&mut next);
        let roster = Roster::open(&next.issue().unwrap(), &operator.public()).unwrap();
        self.scene.devices = roster.sources().iter().map(|device| device.id).collect();
        roster
    }

    fn load(&mut self, roster: Roster) -> Result<(), PoseError> {
        let tree = tree(&roster);
        self.epochs.load(SumGroup::new(roster, tree), &Master::new(MASTER))
    }

    /// Returns the gateway's sum of the values `100 + position` of these sources.
    fn sum(&self, epoch: u64, positions: impl IntoIterator<Item = u32>) -> Contribution {
        let mut share = Contribution::default();
        for position in positions {
            let reading = [0, 0, 100 + i64::from(position), 0];
            share.merge(&self.scene.answer(position, epoch, Some(&reading)));
        }
        share
    }

    /// Sends the gateway's share with the values `100 + position` of these sources.
    fn share(&mut self, epoch: u64, positions: impl IntoIterator<Item = u32>) {
        let sources = u32::try_from(self.scene.devices.len()).unwrap();
        let frame = self.sum(epoch, positions).frame(self.scene.id, epoch, sources);
        let gateway = self.epochs.aggregator().children()[0].id;
        assert_eq!(self.epochs.receive(gateway, &opened(&frame)), Received::Kept);
    }
}

/// Returns the sum of an epoch over sources, if their result was accepted.
fn total(outcome: &Outcome) -> Option<i128> {
    match outcome {
        Outcome::Accepted(accepted) => accepted.values()[0].unwrap().number().unwrap().digits(),
        _ => None,
    }
}

fn expected(positions: impl IntoIterator<Item = u32>) -> Option<i128> {
    Some(positions.into_iter().map(|position| 100 + i128::from(position)).sum())
}

#[test]
fn sources_that_join_are_asked_and_open_epochs_continue() {
    let mut change = Change::new();
    // A share of an epoch that is open while the version is loaded.
    change.share(FIRST, 0..SOURCES);
    let key = |byte| SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap().public();
    let roster = change.next(|next| {
        for number in 0..3 {
            next.add(&format!("late{number}"), &key(200 + number), EpochNumber(0)).unwrap();
        }
    });
    change.load(roster).unwrap();
    let (row, failed) = change.epochs.close();
    assert!(failed.is_none());
    assert_eq!(total(&row.outcome), expected(0..SOURCES));
    // The gateway has perhaps not loaded the version, so the devices are not reported as silent.
    assert_eq!((row.members.count(), row.silent().count(), row.unheard()), (SOURCES + 3, 0, 3));
    assert_eq!(row.name(22).get(..4), Some("late"));
    // They are in the fourth key group, which the query did not have before.
    change.share(FIRST + 1, 0..SOURCES + 3);
    let (row, _) = change.epochs.close();
    assert_eq!(total(&row.outcome), expected(0..SOURCES + 3));
    assert_eq!((row.silent().count(), row.unheard()), (0, 0));
    // The gateway knows them now.
    change.share(FIRST + 2, 0..SOURCES + 2);
    let (row, _) = change.epochs.close();
    assert_eq!((row.silent().collect::<Vec<_>>(), row.unheard()), (vec![SOURCES + 2], 0));
}

#[test]
fn a_source_that_left_does_not_count_and_no_sum_with_it_is_accepted() {
    let mut change = Change::new();
    let gone = change.scene.roster.sources()[3].name.clone();
    let calendar = change.scene.roster.calendar().clone();
    // The source leaves with the query's second epoch.
    let end = calendar.epoch_of((FIRST + 1) * EPOCH_MS);
    let roster = change.next(|next| next.end(&gone, None, Some(end)).unwrap());
    change.load(roster).unwrap();
    change.share(FIRST, 0..SOURCES);
    let (row, _) = change.epochs.close();
    assert_eq!((total(&row.outcome), row.members.count()), (expected(0..SOURCES), SOURCES));
    let others = || (0..SOURCES).filter(|position| *position != 3);
    change.share(FIRST + 1, others());
    let (row, _) = change.epochs.close();
    assert_eq!((total(&row.outcome), row.members.count()), (expected(others()), SOURCES - 1));
    assert_eq!((row.silent().count(), row.unheard()), (0, 0));
    // A gateway with an earlier version adds the source. The edge is found where it did so.
    change.share(FIRST + 2, 0..SOURCES);
    let (row, failed) = change.epochs.close();
    let Outcome::Rejected { refusal, .. } = &row.outcome else { panic!("{row:?}") };
    assert_eq!(refusal.name(), "NotMember");
    assert!(refusal.to_string().contains(&gone), "{refusal}");
    let mut traffic = Traffic::default();
    for (position, device) in (0..).zip(change.scene.roster.sources()) {
        let share = change.sum(FIRST + 2, [position]);
        traffic.shares.insert(device.name.clone(), share);
    }
    let mut localisation = change.epochs.localise(failed.unwrap());
    while let Some((gateway, asked)) = localisation.question() {
        let (frame, key) = (traffic.explain(&change.scene, &asked, 6000), link());
        let Ok(SumUplink::Children(children)) = SumUplink::open(&frame, &key) else {
            panic!("expected an answer")
        };
        assert!(localisation.answer(change.epochs.querier(), gateway, &children));
    }
    let edges: Vec<String> = localisation.finish().iter().map(ToString::to_string).collect();
    assert_eq!(edges, [format!("{gone} -> gw")]);
}

#[test]
fn the_default_floor_follows_the_members_of_each_epoch() {
    let mut change = Change::new();
    let epochs = Epochs::new(change.scene.group(), change.scene.querier(), 1000, FIRST);
    change.epochs = epochs.with_default_floor();
    let end = change.scene.roster.calendar().epoch_of((FIRST + 1) * EPOCH_MS);
    let names: Vec<String> =
        change.scene.roster.sources()[..12].iter().map(|device| device.name.clone()).collect();
    let roster = change.next(|next| {
        for name in &names {
            next.end(name, None, Some(end)).unwrap();
        }
    });
    change.load(roster).unwrap();
    // Before the 12 of 20 sources leave, 11 are needed; then 5 of 8.
    for (epoch, positions, floor) in
        [(FIRST, 0..10, Some(11)), (FIRST + 1, 12..16, Some(5)), (FIRST + 2, 12..17, None)]
    {
        change.share(epoch, positions.clone());
        let (row, _) = change.epochs.close();
        match row.outcome {
            Outcome::Missing(Rejection::BelowFloor { floor: least, .. }) => {
                assert_eq!(Some(least), floor);
            }
            outcome => assert_eq!((total(&outcome), floor), (expected(positions), None)),
        }
    }
}
