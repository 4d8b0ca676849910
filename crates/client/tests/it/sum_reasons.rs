//! The reasons that sources state for not answering (spec/sums.md, section 4.1): no gateway can forge
//! them, and they explain why a source is not a participant.

use std::collections::BTreeMap;

use moteseal_client::sum::{Epochs, Received};
use moteseal_core::roster::Directory as _;
use moteseal_sum::sies::Master;
use moteseal_sum::wire::Refusal;

use crate::sum_support::{Chance, Contribution, MASTER, Scene, opened, roster, tree};

const FIRST: u64 = 1007;
const SOURCES: u32 = 8;
/// The source that does not answer.
const REFUSING: u32 = 5;

fn scene() -> Scene {
    let roster = roster(SOURCES as usize);
    let mut chance = Chance(4);
    let tree = tree(&roster, 3, &mut chance);
    let query = "SELECT SUM(light) FROM sensors EPOCH DURATION 30s";
    Scene::new(roster, tree, query, 4, 2, &mut chance)
}

/// Returns the refusal of a source.
fn refusal(scene: &Scene, position: u32, epoch: u64, reason: &'static str) -> Refusal<'static> {
    let device = scene.roster.sources()[position as usize].id;
    let key_group = scene.key_group_of(position);
    let secret = Master::new(MASTER).source(scene.roster.group(), device, key_group);
    let tag = secret.refusal_tag(scene.id, epoch, reason);
    Refusal { query: scene.id.reference(), epoch, position, reason, tag }
}

/// Closes an epoch in which all sources answer except `REFUSING`. Returns the reasons in its row.
fn reasons(
    scene: &Scene,
    epochs: &mut Epochs<moteseal_sum::engine::Scalar>,
    all_answer: bool,
) -> BTreeMap<u32, String> {
    let epoch = epochs.next();
    for child in epochs.aggregator().children().to_vec() {
        let place = epochs.aggregator().child(child.id);
        let mut share = Contribution::default();
        (0..SOURCES)
            .filter(|position| all_answer || *position != REFUSING)
            .filter(|position| epochs.aggregator().owner(*position) == place)
            .for_each(|position| share.merge(&scene.answer(position, epoch, Some(&[0, 0, 7, 0]))));
        let frame = share.frame(scene.id, epoch, SOURCES);
        assert_eq!(epochs.receive(child.id, &opened(&frame)), Received::Kept);
    }
    epochs.close().0.reasons
}

#[test]
fn a_reason_explains_a_source_that_is_not_a_participant() {
    let (scene, master) = (scene(), Master::new(MASTER));
    let mut epochs = Epochs::new(scene.group(), scene.querier(), 1000, FIRST);
    let owner = epochs.aggregator().owner(REFUSING).unwrap();
    let child = epochs.aggregator().children()[owner].id;
    let stated = refusal(&scene, REFUSING, FIRST, "BudgetSpent");
    assert!(epochs.note_refusal(child, &stated, &master));
    let expected = BTreeMap::from([(REFUSING, "BudgetSpent".to_owned())]);
    assert_eq!(reasons(&scene, &mut epochs, false), expected);
    // The source repeats the reason every 30 s, so that it holds in the next epoch, too.
    assert_eq!(reasons(&scene, &mut epochs, false), expected);
    // A participant needs no reason.
    assert_eq!(reasons(&scene, &mut epochs, true), BTreeMap::new());
    // After a minute without a repetition, the reason no longer holds.
    assert_eq!(reasons(&scene, &mut epochs, false), expected);
    assert_eq!(reasons(&scene, &mut epochs, false), BTreeMap::new());
    let stated = refusal(&scene, REFUSING, FIRST + 5, "NoReading");
    assert!(epochs.note_refusal(child, &stated, &master));
    assert_eq!(reasons(&scene, &mut epochs, false)[&REFUSING], "NoReading");
}

#[test]
fn a_reason_that_the_source_did_not_state_is_dropped() {
    let (scene, master) = (scene(), Master::new(MASTER));
    let mut epochs = Epochs::new(scene.group(), scene.querier(), 1000, FIRST);
    let owner = epochs.aggregator().owner(REFUSING).unwrap();
    let children: Vec<_> = epochs.aggregator().children().iter().map(|child| child.id).collect();
    let good = refusal(&scene, REFUSING, FIRST, "BudgetSpent");
    let mut altered = good.tag;
    altered[7] ^= 1;
    let other = refusal(&scene, REFUSING - 1, FIRST, "BudgetSpent");
    for forged in [
        Refusal { tag: altered, ..good },
        Refusal { tag: other.tag, ..good },
        Refusal { reason: "NoReading", ..good },
        Refusal { epoch: FIRST + 1, ..good },
        Refusal { epoch: 1, ..refusal(&scene, REFUSING, 1, "BudgetSpent") },
        Refusal { position: REFUSING - 1, ..good },
        Refusal { position: SOURCES, ..good },
        Refusal { query: good.query ^ 1, ..good },
    ] {
        assert!(!epochs.note_refusal(children[owner], &forged, &master), "{forged:?}");
    }
    // From a child of the querier that the source is not below.
    for child in children.iter().filter(|child| **child != children[owner]) {
        assert!(!epochs.note_refusal(*child, &good, &master));
    }
    assert_eq!(reasons(&scene, &mut epochs, false), BTreeMap::new());
    assert!(epochs.note_refusal(
        children[owner],
        &refusal(&scene, REFUSING, FIRST + 1, "X"),
        &master
    ));
}
