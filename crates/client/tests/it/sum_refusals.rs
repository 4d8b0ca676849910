//! What is wrong is refused by its name, and the walk down names the edge: no lie is believed, and
//! no honest answer is refused. `MOTESEAL_SEEDS=10000` runs as many of each.

use std::collections::HashMap;

use crate::sum_support::{
    Chance, Said, Scene, Traffic, epoch, frame, opened, reading, roster, seeds, tree,
};
use moteseal_client::sum::{Finding, Rejection};
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::Psr;
use moteseal_verify::Roster;

const EPOCH: u64 = 58_000_000;
const QUERY: &str = "SELECT AVG(temperature), VARIANCE(light), COUNT(*) FROM sensors WHERE humidity > 20 EPOCH DURATION 30s";

/// A random scene, its sources' answers to an epoch, and to the one before.
struct Case {
    scene: Scene,
    answers: Vec<Option<Said>>,
    before: Vec<Option<Said>>,
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
    let mut answers = |number: u64| -> Vec<Option<Said>> {
        let each = (0..sources).map(|position| {
            // Enough speak that the floor is no matter.
            let speaks = position < 4 || chance.hits(90);
            speaks.then(|| scene.answer(position as u32, number, Some(&reading(&mut chance))))
        });
        each.collect()
    };
    let (answers, before) = (answers(EPOCH), answers(EPOCH - 1));
    Case { scene, answers, before, chance }
}

impl Case {
    /// The names of all who have said something, gateways too.
    fn speakers(&self, traffic: &Traffic) -> Vec<String> {
        traffic.heard.keys().cloned().collect()
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

/// What an edge's lower end says in the epoch, if `answers` are said and nobody lies.
fn honest(case: &Case, answers: &[Option<Said>], name: &str) -> Option<Said> {
    epoch(&case.scene.tree, answers, &mut |_, _| ()).heard.remove(name)
}

/// A lie about numbers: makes of what a child says something else; false if it cannot here.
type ScheduleNumbers = fn(&mut Case, &str, &mut Said) -> bool;

fn replaced(said: &mut Said, psrs: impl IntoIterator<Item = Psr>) -> bool {
    let before = said.clone();
    said.psrs.values_mut().zip(psrs).for_each(|(psr, other)| *psr = other);
    *said != before
}

const LIES: [(&str, ScheduleNumbers); 9] = [
    ("the values of a source are dropped and it is named all the same", |case, _, said| {
        let dropped = case.answers[said.who[0] as usize].clone().unwrap();
        let mut rest = Said::default();
        for position in &said.who[1..] {
            rest.merge(&case.answers[*position as usize].clone().unwrap());
        }
        let psrs: Vec<Psr> = said
            .psrs
            .keys()
            .map(|place| rest.psrs.get(place).copied().unwrap_or(Psr::ZERO))
            .collect();
        !dropped.psrs.is_empty() && replaced(said, psrs)
    }),
    ("something is added", |case, _, said| {
        let mut bytes = [0; 32];
        bytes[31] = 1 + (case.chance.next() % 255) as u8;
        let more = Psr::from_bytes(&bytes).unwrap();
        let psrs: Vec<Psr> = said.psrs.values().map(|psr| psr.merge(&more)).collect();
        replaced(said, psrs)
    }),
    ("it is scaled", |_, _, said| {
        let psrs: Vec<Psr> = said.psrs.values().map(|psr| psr.merge(psr)).collect();
        replaced(said, psrs)
    }),
    ("the epoch before is said again", |case, _, said| {
        let mut old = Said::default();
        for position in &said.who {
            let Some(answer) = &case.before[*position as usize] else { return false };
            old.merge(answer);
        }
        replaced(said, old.psrs.into_values())
    }),
    ("the answer to another query is said", |case, _, said| {
        let other = QueryId([0xee; 16]);
        let mut sum = Said::default();
        for position in &said.who {
            let values = vec![0; case.scene.slots];
            sum.merge(&case.scene.says(
                *position,
                case.scene.key_group_of(*position),
                other,
                EPOCH,
                &values,
            ));
        }
        replaced(said, sum.psrs.into_values())
    }),
    ("two aggregates are exchanged", |_, _, said| {
        let mut psrs: Vec<Psr> = said.psrs.values().copied().collect();
        psrs.swap(0, 1);
        replaced(said, psrs)
    }),
    ("a child says what its sibling says", |case, child, said| {
        let parent = case.parent(child);
        let aggregator = case.scene.tree.aggregator(&parent).unwrap();
        let names: Vec<String> = aggregator
            .children()
            .iter()
            .map(|child| child.name.clone())
            .filter(|name| name != child)
            .collect();
        let sibling = names.iter().find_map(|name| honest(case, &case.answers, name));
        sibling.is_some_and(|sibling| replaced(said, sibling.psrs.into_values()))
    }),
    ("a source says more than it may", |case, _, said| {
        let position = said.who[0];
        let values = vec![1 << 95; case.scene.slots];
        let large = case.scene.says(
            position,
            case.scene.key_group_of(position),
            case.scene.id,
            EPOCH,
            &values,
        );
        let mut sum = large;
        for position in &said.who[1..] {
            sum.merge(&case.answers[*position as usize].clone().unwrap());
        }
        replaced(said, sum.psrs.into_values())
    }),
    ("a source uses the key of another key group", |case, _, said| {
        let position = said.who[0];
        let mut sum =
            case.scene.says(position, 9999, case.scene.id, EPOCH, &vec![1; case.scene.slots]);
        for position in &said.who[1..] {
            sum.merge(&case.answers[*position as usize].clone().unwrap());
        }
        replaced(said, sum.psrs.into_values())
    }),
];

#[test]
fn a_lie_about_numbers_is_refused_and_its_edge_is_named() {
    let mut rosters = HashMap::new();
    let (mut told, mut edges) = (0, 0);
    for seed in 0..seeds(60) {
        for (what, lie) in LIES {
            let mut case = case(&mut rosters, seed);
            let truth = epoch(&case.scene.tree, &case.answers, &mut |_, _| ());
            let speakers = case.speakers(&truth);
            let liar = speakers[case.chance.below(speakers.len())].clone();
            let mut lied = false;
            let answers = case.answers.clone();
            let tree = case.scene.tree.clone();
            let traffic = epoch(&tree, &answers, &mut |child, said| {
                if child == liar {
                    lied = lie(&mut case, child, said);
                }
            });
            if !lied {
                continue;
            }
            told += 1;
            let refusal = case.open(&traffic).expect_err(what);
            let expected =
                if what.contains("more than it may") { "SumOutOfRange" } else { "SharesMismatch" };
            assert_eq!(refusal.name(), expected, "seed {seed}: {what}: {refusal}");
            let found = traffic.walk(&case.scene, &case.scene.querier(), EPOCH, &[]);
            let edge = Finding::Edge { child: liar.clone(), parent: case.parent(&liar) };
            assert_eq!(found, [edge], "seed {seed}: {what}");
            edges += 1;
        }
    }
    assert!(told > seeds(60) * 6 && edges == told, "{told} lies");
}

#[test]
fn an_aggregator_that_leaves_a_child_out_of_its_sum_is_named_itself() {
    let mut rosters = HashMap::new();
    let mut told = 0;
    for seed in 0..seeds(200) {
        let mut case = case(&mut rosters, seed);
        let truth = epoch(&case.scene.tree, &case.answers, &mut |_, _| ());
        // One beneath which somebody speaks.
        let gateways: Vec<String> = case
            .scene
            .tree
            .gateways()
            .filter(|name| truth.heard.contains_key(*name))
            .map(str::to_owned)
            .collect();
        let liar = gateways[case.chance.below(gateways.len())].clone();
        // One of the records is another, by as much as nobody said; what its children said it tells
        // as it was.
        let answers = case.answers.clone();
        let traffic = epoch(&case.scene.tree, &answers, &mut |child, said| {
            if child == liar {
                let one = said.psrs.values().next().copied().unwrap();
                let last = said.psrs.values_mut().last().unwrap();
                *last = last.merge(&one);
                told += 1;
            }
        });
        assert_eq!(
            case.open(&traffic).map_err(|refusal| refusal.name()).unwrap_err(),
            "SharesMismatch",
            "seed {seed}"
        );
        let found = traffic.walk(&case.scene, &case.scene.querier(), EPOCH, &[]);
        assert_eq!(
            found,
            [Finding::Edge { parent: case.parent(&liar), child: liar.clone() }],
            "seed {seed}"
        );
        // Asked, and silent.
        let unanswered = [Finding::Unanswered { parent: case.parent(&liar), node: liar.clone() }];
        assert_eq!(
            traffic.walk(&case.scene, &case.scene.querier(), EPOCH, &[&liar]),
            unanswered,
            "seed {seed}"
        );
        // Asked, and it has forgotten what its children have said.
        let mut traffic = traffic;
        for child in case.scene.tree.aggregator(&liar).unwrap().children() {
            traffic.heard.remove(&child.name);
        }
        let forgotten = [Finding::Forgotten { parent: case.parent(&liar), node: liar.clone() }];
        assert_eq!(
            traffic.walk(&case.scene, &case.scene.querier(), EPOCH, &[]),
            forgotten,
            "seed {seed}"
        );
    }
    assert_eq!(told, seeds(200));
}

#[test]
fn an_altered_set_of_participants_is_refused_in_either_direction() {
    let mut rosters = HashMap::new();
    for seed in 0..seeds(300) {
        let mut case = case(&mut rosters, seed);
        // One group, so that the number of records is right whoever is named.
        case.scene.question.key_group = case.scene.devices.len() as u32;
        let mut chance = Chance(seed ^ 0xdead);
        let answers = case.answers.clone();
        let traffic = {
            case.scene.id = case.scene.question.id();
            let scene = &case.scene;
            let again: Vec<Option<Said>> = (0..)
                .zip(&answers)
                .map(|(position, said)| {
                    said.as_ref()
                        .map(|_| scene.answer(position, EPOCH, Some(&reading(&mut chance))))
                })
                .collect();
            epoch(&scene.tree, &again, &mut |_, _| ())
        };
        let mut total = traffic.total(&case.scene.tree);
        let sources = case.scene.devices.len() as u32;
        let silent: Vec<u32> =
            (0..sources).filter(|position| !total.who.contains(position)).collect();
        let honest = total.clone();
        if chance.hits(50) && !silent.is_empty() {
            total.who.push(*chance.of(&silent));
        } else {
            let place = chance.below(total.who.len());
            total.who.remove(place);
        }
        let mut querier = case.scene.querier();
        let refused = querier.open(EPOCH, &opened(&total.frame(case.scene.id, EPOCH, sources)));
        assert_eq!(refused.unwrap_err().name(), "SharesMismatch", "seed {seed}");
        querier
            .open(EPOCH, &opened(&honest.frame(case.scene.id, EPOCH, sources)))
            .expect("the honest one");
    }
}

#[test]
fn an_honest_answer_is_never_refused() {
    let mut rosters = HashMap::new();
    for seed in 0..seeds(300) {
        let case = case(&mut rosters, seed);
        let traffic = epoch(&case.scene.tree, &case.answers, &mut |_, _| ());
        case.open(&traffic).unwrap_or_else(|refusal| panic!("seed {seed}: {refusal}"));
        assert_eq!(
            traffic.walk(&case.scene, &case.scene.querier(), EPOCH, &[]),
            [],
            "seed {seed}: nobody is to blame"
        );
    }
}

/// A scene of eight sources of whom all but the last have spoken, in two key groups.
fn eight() -> (Scene, Said) {
    let roster = roster(8);
    let mut chance = Chance(4);
    let tree = tree(&roster, 3, &mut chance);
    let scene = Scene::new(
        roster,
        tree,
        "SELECT AVG(temperature) FROM sensors EPOCH DURATION 30s",
        4,
        5,
        &mut chance,
    );
    let mut total = Said::default();
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
fn each_thing_that_is_wrong_with_an_answer_has_a_name() {
    let (scene, total) = eight();
    let reference = scene.id.reference();
    let (who, records) = (total.participation(8), total.records());
    let with = |at: usize, record: &[u8]| {
        let mut records = records.clone();
        records[at] = record.to_vec();
        records
    };
    let fewer = Said { who: vec![0, 1, 4, 5], ..total.clone() };
    let mut p = [0xff; 32];
    p[31] = 0x43;
    let cases: [(&str, Vec<u8>); 14] = [
        ("WrongQuery", frame(reference ^ 1, EPOCH, &who, &records)),
        ("WrongEpoch", frame(reference, EPOCH - 1, &who, &records)),
        ("WrongQuery", frame(reference ^ 1, EPOCH - 1, &[0xff], &[])),
        ("MalformedParticipation", frame(reference, EPOCH, &[0], &records)),
        // Once more than it need be.
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
        .expect("nothing that was refused is in the way of the truth");
    assert_eq!(found.values()[0].map(|value| value.to_string()).as_deref(), Some("20.030000"));
    assert_eq!(querier.open(EPOCH, &opened(&honest)).expect_err("once").name(), "AlreadyAccepted");
    assert_eq!(
        querier.open(EPOCH - 1, &opened(&honest)).expect_err("another").name(),
        "WrongEpoch"
    );
}

#[test]
fn a_refused_sum_says_which_aggregate_and_key_group_it_is_of() {
    let (scene, mut total) = eight();
    // The second slot, the sum, of the second key group: positions 4 to 7.
    let place = (1, 1);
    let psr = total.psrs[&place];
    total.psrs.insert(place, psr.merge(&psr));
    let refusal =
        scene.querier().open(EPOCH, &opened(&total.frame(scene.id, EPOCH, 8))).expect_err("scaled");
    assert!(refusal.to_string().ends_with("(the sum of temperature, key group 1)"), "{refusal}");
}

#[test]
fn a_question_that_would_show_a_reading_is_not_asked() {
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
