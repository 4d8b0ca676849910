//! Every wrong answer is rejected with the name of the error, and fault localisation finds the
//! edge. No honest answer is rejected. `MOTESEAL_SEEDS=10000` runs 10,000 cases of each test.

use std::collections::HashMap;

use crate::sum_support::{
    Chance, Contribution, Scene, Traffic, epoch, frame, opened, reading, roster, seeds, tree,
};
use moteseal_client::sum::{Finding, Rejection};
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::Psr;
use moteseal_verify::Roster;

const EPOCH: u64 = 58_000_000;
const QUERY: &str = "SELECT AVG(temperature), VARIANCE(light), COUNT(*) FROM sensors \
                     WHERE humidity > 20 EPOCH DURATION 30s";

/// A random scene, with the answers of its sources to an epoch and to the epoch before.
struct Case {
    scene: Scene,
    answers: Vec<Option<Contribution>>,
    before: Vec<Option<Contribution>>,
    chance: Chance,
}

fn case(rosters: &mut HashMap<usize, Roster>, seed: u64) -> Case {
    let mut chance = Chance(seed);
    let sources = *chance.of(&[6, 8, 17, 40]);
    let roster = rosters.entry(sources).or_insert_with(|| roster(sources)).clone();
    let gateways = 2 + chance.below(5);
    let tree = tree(&roster, gateways, &mut chance);
    let key_group = if chance.hits(50) { sources } else { 1 + chance.below(sources) };
    let scene = Scene::new(roster, tree, QUERY, key_group as u32, 2, &mut chance);
    let mut answers = |number: u64| -> Vec<Option<Contribution>> {
        let each = (0..sources).map(|position| {
            // At least four sources answer, so that the floor is met.
            let answers = position < 4 || chance.hits(90);
            answers.then(|| scene.answer(position as u32, number, Some(&reading(&mut chance))))
        });
        each.collect()
    };
    let (answers, before) = (answers(EPOCH), answers(EPOCH - 1));
    Case { scene, answers, before, chance }
}

impl Case {
    /// Returns the names of all sources and gateways that sent a share.
    fn senders(&self, traffic: &Traffic) -> Vec<String> {
        traffic.shares.keys().cloned().collect()
    }

    fn parent(&self, child: &str) -> String {
        let tree = &self.scene.tree;
        let device = self.scene.roster.id(child).and_then(|id| tree.position(id));
        let parent =
            device.map_or_else(|| tree.parent(child), |position| tree.gateway_of(position));
        parent.unwrap().to_owned()
    }

    fn open(&self, traffic: &Traffic) -> Result<moteseal_client::sum::Accepted, Rejection> {
        let total = traffic.total(&self.scene.tree);
        let frame = total.frame(self.scene.id, EPOCH, self.scene.devices.len() as u32);
        self.scene.querier().open(EPOCH, &opened(&frame))
    }
}

/// Returns the share that the lower end of an edge sends if the sources send `answers` and every
/// node is honest.
fn honest(case: &Case, answers: &[Option<Contribution>], name: &str) -> Option<Contribution> {
    epoch(&case.scene.tree, answers, &mut |_, _| ()).shares.remove(name)
}

/// A function that replaces the records of a child's share with wrong ones. It returns false if it
/// cannot replace them, or if the share did not change.
type Lie = fn(&mut Case, &str, &mut Contribution) -> bool;

fn replaced(share: &mut Contribution, psrs: impl IntoIterator<Item = Psr>) -> bool {
    let before = share.clone();
    share.psrs.values_mut().zip(psrs).for_each(|(psr, other)| *psr = other);
    *share != before
}

const LIES: [(&str, Lie); 9] = [
    ("the values of a source are dropped, but it is still named", |case, _, share| {
        let dropped = case.answers[share.participants[0] as usize].clone().unwrap();
        let mut rest = Contribution::default();
        for position in &share.participants[1..] {
            rest.merge(&case.answers[*position as usize].clone().unwrap());
        }
        let psrs: Vec<Psr> = share
            .psrs
            .keys()
            .map(|place| rest.psrs.get(place).copied().unwrap_or(Psr::ZERO))
            .collect();
        !dropped.psrs.is_empty() && replaced(share, psrs)
    }),
    ("a number is added", |case, _, share| {
        let mut bytes = [0; 32];
        bytes[31] = 1 + (case.chance.next() % 255) as u8;
        let more = Psr::from_bytes(&bytes).unwrap();
        let psrs: Vec<Psr> = share.psrs.values().map(|psr| psr.merge(&more)).collect();
        replaced(share, psrs)
    }),
    ("the sum is doubled", |_, _, share| {
        let psrs: Vec<Psr> = share.psrs.values().map(|psr| psr.merge(psr)).collect();
        replaced(share, psrs)
    }),
    ("the share of the epoch before is repeated", |case, _, share| {
        let mut old = Contribution::default();
        for position in &share.participants {
            let Some(answer) = &case.before[*position as usize] else { return false };
            old.merge(answer);
        }
        replaced(share, old.psrs.into_values())
    }),
    ("the answer to a different query is sent", |case, _, share| {
        let other = QueryId([0xee; 16]);
        let mut sum = Contribution::default();
        for position in &share.participants {
            let values = vec![0; case.scene.slots];
            sum.merge(&case.scene.encrypt(
                *position,
                case.scene.key_group_of(*position),
                other,
                EPOCH,
                &values,
            ));
        }
        replaced(share, sum.psrs.into_values())
    }),
    ("two aggregates are exchanged", |_, _, share| {
        let mut psrs: Vec<Psr> = share.psrs.values().copied().collect();
        psrs.swap(0, 1);
        replaced(share, psrs)
    }),
    ("a child sends the share of its sibling", |case, child, share| {
        let parent = case.parent(child);
        let aggregator = case.scene.tree.aggregator(&parent).unwrap();
        let names: Vec<String> = aggregator
            .children()
            .iter()
            .map(|child| child.name.clone())
            .filter(|name| name != child)
            .collect();
        let sibling = names.iter().find_map(|name| honest(case, &case.answers, name));
        sibling.is_some_and(|sibling| replaced(share, sibling.psrs.into_values()))
    }),
    ("a source sends more than its largest value", |case, _, share| {
        let position = share.participants[0];
        let values = vec![1 << 95; case.scene.slots];
        let large = case.scene.encrypt(
            position,
            case.scene.key_group_of(position),
            case.scene.id,
            EPOCH,
            &values,
        );
        let mut sum = large;
        for position in &share.participants[1..] {
            sum.merge(&case.answers[*position as usize].clone().unwrap());
        }
        replaced(share, sum.psrs.into_values())
    }),
    ("a source uses the key of another key group", |case, _, share| {
        let position = share.participants[0];
        let mut sum =
            case.scene.encrypt(position, 9999, case.scene.id, EPOCH, &vec![1; case.scene.slots]);
        for position in &share.participants[1..] {
            sum.merge(&case.answers[*position as usize].clone().unwrap());
        }
        replaced(share, sum.psrs.into_values())
    }),
];

#[test]
fn a_false_share_is_rejected_and_its_edge_is_named() {
    let mut rosters = HashMap::new();
    let (mut lies, mut edges) = (0, 0);
    for seed in 0..seeds(60) {
        for (what, lie) in LIES {
            let mut case = case(&mut rosters, seed);
            let truth = epoch(&case.scene.tree, &case.answers, &mut |_, _| ());
            let senders = case.senders(&truth);
            let liar = senders[case.chance.below(senders.len())].clone();
            let mut lied = false;
            let answers = case.answers.clone();
            let tree = case.scene.tree.clone();
            let traffic = epoch(&tree, &answers, &mut |child, share| {
                if child == liar {
                    lied = lie(&mut case, child, share);
                }
            });
            if !lied {
                continue;
            }
            lies += 1;
            let refusal = case.open(&traffic).expect_err(what);
            let expected =
                if what.contains("largest value") { "SumOutOfRange" } else { "SharesMismatch" };
            assert_eq!(refusal.name(), expected, "seed {seed}: {what}: {refusal}");
            let found = traffic.localise(&case.scene, &case.scene.querier(), EPOCH, &[]);
            let edge = Finding::Edge { child: liar.clone(), parent: case.parent(&liar) };
            assert_eq!(found, [edge], "seed {seed}: {what}");
            edges += 1;
        }
    }
    assert!(lies > seeds(60) * 6 && edges == lies, "{lies} lies");
}

#[test]
fn an_aggregator_whose_sum_differs_from_its_childrens_is_named() {
    let mut rosters = HashMap::new();
    let mut lies = 0;
    for seed in 0..seeds(200) {
        let mut case = case(&mut rosters, seed);
        let truth = epoch(&case.scene.tree, &case.answers, &mut |_, _| ());
        // The dishonest node is a gateway that has at least one answering source below it.
        let gateways: Vec<String> = case
            .scene
            .tree
            .gateways()
            .filter(|name| truth.shares.contains_key(*name))
            .map(str::to_owned)
            .collect();
        let liar = gateways[case.chance.below(gateways.len())].clone();
        // The dishonest gateway alters one record of its own share, and reports its children's
        // shares unchanged.
        let answers = case.answers.clone();
        let traffic = epoch(&case.scene.tree, &answers, &mut |child, share| {
            if child == liar {
                let one = share.psrs.values().next().copied().unwrap();
                let last = share.psrs.values_mut().last().unwrap();
                *last = last.merge(&one);
                lies += 1;
            }
        });
        assert_eq!(
            case.open(&traffic).map_err(|refusal| refusal.name()).unwrap_err(),
            "SharesMismatch",
            "seed {seed}"
        );
        let found = traffic.localise(&case.scene, &case.scene.querier(), EPOCH, &[]);
        assert_eq!(
            found,
            [Finding::Edge { parent: case.parent(&liar), child: liar.clone() }],
            "seed {seed}"
        );
        // The dishonest gateway does not answer the question.
        let unanswered = [Finding::Unanswered { parent: case.parent(&liar), node: liar.clone() }];
        assert_eq!(
            traffic.localise(&case.scene, &case.scene.querier(), EPOCH, &[&liar]),
            unanswered,
            "seed {seed}"
        );
        // The dishonest gateway answers that it no longer has its children's shares.
        let mut traffic = traffic;
        for child in case.scene.tree.aggregator(&liar).unwrap().children() {
            traffic.shares.remove(&child.name);
        }
        let forgotten = [Finding::Forgotten { parent: case.parent(&liar), node: liar.clone() }];
        assert_eq!(
            traffic.localise(&case.scene, &case.scene.querier(), EPOCH, &[]),
            forgotten,
            "seed {seed}"
        );
    }
    assert_eq!(lies, seeds(200));
}

#[test]
fn an_added_or_removed_participant_is_rejected() {
    let mut rosters = HashMap::new();
    for seed in 0..seeds(300) {
        let mut case = case(&mut rosters, seed);
        // With one key group, the number of records is the same for any set of participants.
        case.scene.question.key_group = case.scene.devices.len() as u32;
        let mut chance = Chance(seed ^ 0xdead);
        let answers = case.answers.clone();
        let traffic = {
            case.scene.id = case.scene.question.id();
            let scene = &case.scene;
            let again: Vec<Option<Contribution>> = (0..)
                .zip(&answers)
                .map(|(position, share)| {
                    share
                        .as_ref()
                        .map(|_| scene.answer(position, EPOCH, Some(&reading(&mut chance))))
                })
                .collect();
            epoch(&scene.tree, &again, &mut |_, _| ())
        };
        let mut total = traffic.total(&case.scene.tree);
        let sources = case.scene.devices.len() as u32;
        let silent: Vec<u32> =
            (0..sources).filter(|position| !total.participants.contains(position)).collect();
        let honest = total.clone();
        if chance.hits(50) && !silent.is_empty() {
            total.participants.push(*chance.of(&silent));
        } else {
            let place = chance.below(total.participants.len());
            total.participants.remove(place);
        }
        let mut querier = case.scene.querier();
        let refused = querier.open(EPOCH, &opened(&total.frame(case.scene.id, EPOCH, sources)));
        assert_eq!(refused.unwrap_err().name(), "SharesMismatch", "seed {seed}");
        querier
            .open(EPOCH, &opened(&honest.frame(case.scene.id, EPOCH, sources)))
            .expect("the honest answer");
    }
}

#[test]
fn an_honest_answer_is_never_rejected() {
    let mut rosters = HashMap::new();
    for seed in 0..seeds(300) {
        let case = case(&mut rosters, seed);
        let traffic = epoch(&case.scene.tree, &case.answers, &mut |_, _| ());
        case.open(&traffic).unwrap_or_else(|refusal| panic!("seed {seed}: {refusal}"));
        assert_eq!(
            traffic.localise(&case.scene, &case.scene.querier(), EPOCH, &[]),
            [],
            "seed {seed}: there is no fault to find"
        );
    }
}

/// Returns a scene of eight sources in two key groups, and the sum of the shares of all sources but
/// the last.
fn eight() -> (Scene, Contribution) {
    let roster = roster(8);
    let mut chance = Chance(4);
    let tree = tree(&roster, 3, &mut chance);
    let scene = Scene::new(
        roster,
        tree,
        "SELECT AVG(temperature), SUM(light) FROM sensors EPOCH DURATION 30s",
        4,
        5,
        &mut chance,
    );
    let mut total = Contribution::default();
    for position in 0..7 {
        total.merge(&scene.answer(
            position,
            EPOCH,
            Some(&[2000 + i64::from(position), 0, 0, 2000]),
        ));
    }
    (scene, total)
}

#[test]
fn every_error_in_an_answer_has_a_name() {
    let (scene, total) = eight();
    let reference = scene.id.reference();
    let (who, records) = (total.participation(8), total.records());
    let with = |at: usize, record: &[u8]| {
        let mut records = records.clone();
        records[at] = record.to_vec();
        records
    };
    let fewer = Contribution { participants: vec![0, 1, 4, 5], ..total.clone() };
    let mut p = [0xff; 32];
    p[31] = 0x43;
    let cases: [(&str, Vec<u8>); 14] = [
        ("WrongQuery", frame(reference ^ 1, EPOCH, &who, &records)),
        ("WrongEpoch", frame(reference, EPOCH - 1, &who, &records)),
        ("WrongQuery", frame(reference ^ 1, EPOCH - 1, &[0xff], &[])),
        ("MalformedParticipation", frame(reference, EPOCH, &[0], &records)),
        // This encoding is one byte longer than necessary.
        ("MalformedParticipation", frame(reference, EPOCH, &[0x80, 0x00, 0x06], &records)),
        ("UnknownPosition", frame(reference, EPOCH, &[0, 8], &records)),
        ("UnknownPosition", frame(reference, EPOCH, &[0, 8], &[])),
        ("BelowFloor", frame(reference, EPOCH, &fewer.participation(8), &[])),
        ("BelowFloor", frame(reference, EPOCH, &[], &[])),
        ("WrongPsrCount", frame(reference, EPOCH, &who, &records[..3])),
        ("WrongPsrCount", frame(reference, EPOCH, &who, &[&records[..], &records[..1]].concat())),
        ("TruncatedPsr", frame(reference, EPOCH, &who, &with(2, &records[2][..31]))),
        ("NotCanonical", frame(reference, EPOCH, &who, &with(3, &p))),
        ("SharesMismatch", frame(reference, EPOCH, &who, &with(1, &[0; 32]))),
    ];
    let mut querier = scene.querier();
    for (name, bytes) in &cases {
        let refusal = querier.open(EPOCH, &opened(bytes)).expect_err(name);
        assert_eq!(refusal.name(), *name);
        let text = refusal.to_string();
        assert!(!text.is_empty() && !text.starts_with(name) && !text.contains('\n'), "{text}");
    }
    let honest = frame(reference, EPOCH, &who, &records);
    let found = querier
        .open(EPOCH, &opened(&honest))
        .expect("rejected answers do not prevent the honest one");
    assert_eq!(found.values()[0].map(|value| value.to_string()).as_deref(), Some("20.030000"));
    assert_eq!(
        querier.open(EPOCH, &opened(&honest)).expect_err("accepted twice").name(),
        "AlreadyAccepted"
    );
    assert_eq!(
        querier.open(EPOCH - 1, &opened(&honest)).expect_err("a different epoch").name(),
        "WrongEpoch"
    );
}

#[test]
fn the_rejection_of_a_sum_names_its_aggregate_and_key_group() {
    let (scene, mut total) = eight();
    // Slot 1 is the sum of light; key group 1 has the positions 4 to 7.
    let place = (1, 1);
    let psr = total.psrs[&place];
    total.psrs.insert(place, psr.merge(&psr));
    let refusal = scene
        .querier()
        .open(EPOCH, &opened(&total.frame(scene.id, EPOCH, 8)))
        .expect_err("a doubled sum");
    assert!(refusal.to_string().ends_with("(the sum of light, key group 1)"), "{refusal}");
}

#[test]
fn rejects_a_floor_that_would_show_a_reading_or_exceeds_the_sources() {
    use moteseal_client::sum::Querier;
    use moteseal_sum::engine::Scalar;
    use moteseal_sum::sies::Master;
    let (scene, _) = eight();
    for floor in [0, 1, 9] {
        let mut question = scene.question.clone();
        question.floor = floor;
        let refused = Querier::new(
            question,
            &Master::new(crate::sum_support::MASTER),
            &scene.devices,
            Scalar,
            &|_| (),
        );
        assert_eq!(refused.expect_err("a bad floor").name(), "FloorOutOfRange", "{floor}");
    }
}

/// Finding C1 of the review: the floor counts participants, and `WHERE` selects readings.
#[test]
fn withholds_the_results_of_few_readings_but_not_those_of_none() {
    for (humid, is_withheld) in [(0, false), (1, true), (4, true), (5, false), (8, false)] {
        let mut chance = Chance(humid as u64);
        let roster = roster(8);
        let tree = tree(&roster, 2, &mut chance);
        let text = "SELECT AVG(temperature) FROM sensors WHERE humidity > 20 EPOCH DURATION 30s";
        let mut scene = Scene::new(roster, tree, text, 4, 2, &mut chance);
        scene.question.min_count = 5;
        let answers: Vec<_> = (0..8)
            .map(|position| {
                let humidity = if position < humid { 4000 } else { 1000 };
                Some(scene.answer(position as u32, EPOCH, Some(&[2150, humidity, 5, 2000])))
            })
            .collect();
        let total = epoch(&scene.tree, &answers, &mut |_, _| ()).total(&scene.tree);
        let frame = total.frame(scene.id, EPOCH, 8);
        let mut querier = scene.querier();
        match querier.open(EPOCH, &opened(&frame)) {
            Ok(accepted) => {
                assert!(!is_withheld, "{humid}");
                assert_eq!((accepted.count(), accepted.outside()), (humid as u32, 0));
            }
            Err(refusal) => {
                assert!(is_withheld, "{humid}: {refusal}");
                assert_eq!(refusal.name(), "TooFewReadings");
                let shown = refusal.to_string();
                assert_eq!(shown, "the results of fewer than 5 readings are withheld");
            }
        }
        // Also a withheld epoch is opened only once.
        let again = querier.open(EPOCH, &opened(&frame)).unwrap_err();
        assert_eq!(again.name(), "AlreadyAccepted");
    }
}

/// Finding C2 of the review: the participants do not show whose reading is outside the range.
#[test]
fn a_reading_outside_the_range_is_counted_and_its_source_takes_part() {
    let mut chance = Chance(7);
    let roster = roster(8);
    let tree = tree(&roster, 2, &mut chance);
    let text = "SELECT SUM(temperature) FROM sensors EPOCH DURATION 30s";
    let mut scene = Scene::new(roster, tree, text, 8, 2, &mut chance);
    let bytes = scene.question.plan.clone();
    let mut plan = moteseal_sum::query::Plan::decode(&bytes).unwrap();
    plan.narrow("temperature", "0", "40").unwrap();
    let mut narrowed = [0; moteseal_sum::query::MAX_PLAN];
    scene.question.plan = plan.encode(&mut narrowed).unwrap().to_vec();
    scene.id = scene.question.id();
    let answers: Vec<_> = (0..8)
        .map(|position| {
            let temperature = if position == 3 { 4001 } else { 2000 };
            Some(scene.answer(position, EPOCH, Some(&[temperature, 1000, 5, 2000])))
        })
        .collect();
    let total = epoch(&scene.tree, &answers, &mut |_, _| ()).total(&scene.tree);
    let frame = total.frame(scene.id, EPOCH, 8);
    let accepted = scene.querier().open(EPOCH, &opened(&frame)).unwrap();
    assert_eq!((accepted.count(), accepted.outside()), (7, 1));
    assert_eq!(accepted.participants().count(), 8);
    assert_eq!(accepted.values()[0].unwrap().to_string(), "140.00");
}
