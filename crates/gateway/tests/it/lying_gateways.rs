//! Gateways that alter the sums that they forward. Either the parent rejects the frame, or the sum
//! does not open. In the second case the querier localises the fault: it finds the edge of the tree
//! at which the sum was altered. It learns only whether the sum of each child opens.

use std::collections::BTreeSet;

use crate::summing::{EPOCH_MS, OpenedShare, T, World, children_secret};
use moteseal_adversary::{LyingAggregator, Malice};
use moteseal_core::roster::Directory as _;
use moteseal_gateway::sum::Refused;
use moteseal_sum::schedule::Posed;
use moteseal_verify::aggregation::{QUERIER, gateway_id};
use proptest::prelude::*;

const GATEWAYS: [(&str, &str); 4] =
    [("root", QUERIER), ("left", "root"), ("right", "root"), ("deep", "right")];
const DEVICES: [&str; 12] = [
    "root", "left", "left", "left", "right", "right", "deep", "deep", "deep", "deep", "root",
    "left",
];

fn liar(world: &World, name: &str, malice: Malice) -> LyingAggregator {
    let up = world.secret_at(world.tree.parent(name).unwrap(), gateway_id(name));
    LyingAggregator::new(
        malice,
        world.tree.aggregator(name).unwrap(),
        world.roster.group(),
        (&children_secret(name), &up),
        world.key_group,
    )
}

/// The result of one epoch in a tree with one dishonest gateway.
struct Outcome {
    /// The sum that reached the querier; `None` if one of its records is invalid.
    share: Option<OpenedShare>,
    /// Why the parent rejected the dishonest gateway's frame, if it did.
    refused: Option<Refused>,
    /// Whether the dishonest gateway altered a frame.
    lied: bool,
}

/// Runs one epoch. All sources that are not in `silent` answer, and the dishonest gateway replaces
/// the frame to its parent.
fn run(
    world: &mut World,
    liar: (&str, &mut LyingAggregator),
    epoch: u64,
    silent: &[u32],
) -> Outcome {
    let end = (epoch + 1) * EPOCH_MS;
    let (name, lying) = liar;
    for position in (0..12).filter(|position| !silent.contains(position)) {
        let value = reading(position, epoch);
        if world.tree.gateway_of(position) == Some(name) {
            let frame = world.reading(position, epoch, value);
            lying.receive(world.device(position), &frame);
        }
        world.send_reading(position, epoch, value, end).unwrap();
    }
    let (mut reached, mut refused, mut lied) = (None, None, false);
    // Start with the deepest gateways. Each gateway ends the epoch at its deadline.
    for (gateway, height) in [("deep", 1), ("left", 1), ("right", 2), ("root", 3)] {
        let now = end + 200 * height;
        world.gateways.get_mut(gateway).unwrap().tick(now);
        let parent = world.tree.parent(gateway).unwrap().to_owned();
        for frame in world.gateways.get_mut(gateway).unwrap().take_outgoing().up {
            // Skip the frame of the query to which no source answers.
            let is_other = frame[3..7] != world.query.reference().to_be_bytes();
            if is_other {
                continue;
            }
            let lie = if gateway == name { lying.lie(&frame) } else { None };
            lied |= lie.is_some();
            let frame = lie.unwrap_or(frame);
            if parent == name {
                lying.receive(gateway_id(gateway), &frame);
            }
            match world.gateways.get_mut(&parent) {
                Some(above) => {
                    refused = above.receive(gateway_id(gateway), &frame, now).err().or(refused);
                }
                None => reached = Some(frame),
            }
        }
    }
    let share = world.try_opened("root", epoch, &reached.unwrap());
    Outcome { share, refused, lied }
}

/// Returns a tree with two queries after one honest epoch, in which the dishonest gateway could
/// record frames. For `Malice::ReplayQuery`, this epoch belongs to the other query.
fn prepared(
    name: &str,
    malice: Malice,
    key_group: u32,
    silent: &[u32],
) -> (World, LyingAggregator) {
    let mut world = World::asked(&GATEWAYS, &DEVICES, key_group);
    let (one, other) = (world.posed(), Posed { nonce: [6; 16], ..world.posed() });
    let both = world.schedule(2, &[one, other]);
    for gateway in world.gateways.values_mut() {
        gateway.receive_schedule(&both, T * EPOCH_MS, |_| Ok(())).unwrap();
    }
    let mut lying = liar(&world, name, Malice::ReplayQuery);
    if malice == Malice::ReplayQuery {
        world.use_nonce(other.nonce);
    }
    let before = run(&mut world, (name, &mut lying), T, silent);
    assert!(!before.lied);
    let participants: BTreeSet<u32> =
        (0..12).filter(|position| !silent.contains(position)).collect();
    assert_eq!(world.sums(T, &[before.share.unwrap()]), Ok(plain(&participants, T)));
    world.use_nonce(one.nonce);
    lying.turn(malice);
    (world, lying)
}

fn reading(position: u32, epoch: u64) -> u128 {
    u128::from(position) * 100 + u128::from(epoch % 7) + 1
}

/// Returns the expected count and sum.
fn plain(participants: &BTreeSet<u32>, epoch: u64) -> Vec<u128> {
    vec![
        participants.len() as u128,
        participants.iter().map(|position| reading(*position, epoch)).sum(),
    ]
}

/// Runs fault localisation from the querier. Returns the faulty edges as pairs of child and parent.
/// An edge is faulty if the child's sum does not open, although the sums of all nodes below the
/// child do.
fn faulty_edges(world: &mut World, epoch: u64, now: u64) -> Vec<(String, String)> {
    let (mut found, mut open) = (Vec::new(), vec![("root".to_owned(), QUERIER.to_owned())]);
    while let Some((node, parent)) = open.pop() {
        let children = world.explain("root", &node, epoch, now);
        let mut failing = Vec::new();
        for (child, share) in children {
            if world.sums(epoch, &[share]).is_err() {
                failing.push(world.tree.name(child).unwrap().to_owned());
            }
        }
        if failing.is_empty() {
            found.push((node, parent));
        } else {
            open.extend(failing.into_iter().map(|child| (child, node.clone())));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn no_altered_sum_is_accepted_and_the_edge_is_found(
        which in 0..Malice::ALL.len(),
        at in 0..4_usize,
        key_group in prop_oneof![Just(4_u32), Just(100)],
        silent in prop::collection::vec(0_u32..12, 0..3),
    ) {
        let malice = Malice::ALL[which];
        let name = GATEWAYS[at].0;
        let (mut world, mut lying) = prepared(name, malice, key_group, &silent);
        let now = (T + 2) * EPOCH_MS + 600;
        let outcome = run(&mut world, (name, &mut lying), T + 1, &silent);
        let answering: BTreeSet<u32> = (0..12).filter(|position| !silent.contains(position)).collect();
        let Some(share) = outcome.share else {
            prop_assert!(malice.is_malformed() && name == "root");
            return Ok(());
        };
        prop_assert_eq!(outcome.refused.is_some(), outcome.lied && malice.is_malformed());
        if !outcome.lied || malice.is_sound() || malice.is_malformed() {
            // Either the gateway did not alter the frame, or it left out sources. In the second
            // case the sum is right for the sources that the frame lists.
            prop_assert_eq!(share.participants.len() < answering.len(), outcome.lied);
            prop_assert!(share.participants.is_subset(&answering));
            let expected = plain(&share.participants, T + 1);
            prop_assert_eq!(world.sums(T + 1, &[share]), Ok(expected));
        } else {
            prop_assert!(world.sums(T + 1, &[share]).is_err(), "{malice:?} of {name}");
            let parent = world.tree.parent(name).unwrap().to_owned();
            prop_assert_eq!(faulty_edges(&mut world, T + 1, now), vec![(name.to_owned(), parent)]);
        }
    }
}

#[test]
fn every_malice_alters_a_frame_if_it_can() {
    for malice in Malice::ALL {
        let tree = World::new(&GATEWAYS, &DEVICES, 4).tree;
        let silent = (0..12).find(|position| tree.gateway_of(*position) == Some("deep")).unwrap();
        let (mut world, mut lying) = prepared("root", malice, 4, &[silent]);
        assert!(run(&mut world, ("root", &mut lying), T + 1, &[silent]).lied, "{malice:?}");
        assert!(!malice.about().is_empty());
    }
}
