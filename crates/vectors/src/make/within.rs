//! Vectors of answers of a group with a budget (spec/answers.md, section 4): queries for *at most*
//! `m` events in epochs that have a final round, late seals, and missing and superfluous manifests.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Round};
use moteseal_core::signature::Algorithm;
use moteseal_seal::sample::choice::EpochCounts;
use moteseal_seal::sample::permutation::{self, Swap};
use moteseal_verify::write;
use serde_json::{Value as Json, json};

use super::coordinator::{file_within, id, manifest, manifest_under};
use super::pruned::{device, item};
use super::{File, Files};
use moteseal_fixtures::world::{
    BUDGETED, Device, Epoch, FIXED, LEVELS, Pick, Sealed, coordinator, operator, roster_within,
    schema,
};

const ED: Algorithm = Algorithm::Ed25519;
const OP: &str = "answer.open";
const SEED: [u8; 32] = [0x77; 32];

pub fn make(files: &mut Files) {
    files.add(answers());
    files.add(samples());
    files.add(unlimited());
}

/// The final rounds of the epochs 10, 11 and 12.
pub(super) const ROUNDS: [(u64, u8); 3] = [(10, 2), (11, 0), (12, 1)];

/// The seals of two devices for the epochs 10 (in one or two parts), 11, 12 and 13. The seal of
/// epoch 13 proves that no further seal of epoch 12 exists.
pub(super) struct World {
    pub(super) north: Vec<Sealed>,
    pub(super) south: Vec<Sealed>,
}

impl World {
    /// Creates the scene, in which the device `south` raises its own round in epoch 11.
    pub(super) fn new(scheme: Scheme, own_round: u8) -> Self {
        let seal = |name, epochs: &[(u64, u32, bool)]| {
            let mut device = device(name);
            let seal = |&(epoch, count, last_in_epoch): &(u64, u32, bool)| {
                let own_round = if name == "south" && epoch == 11 { own_round } else { 0 };
                device.seal(&Epoch { last_in_epoch, own_round, ..Epoch::new(scheme, epoch, count) })
            };
            epochs.iter().map(seal).collect()
        };
        Self {
            north: seal(
                "north",
                &[(10, 50, false), (10, 40, true), (11, 12, true), (12, 30, false), (13, 9, true)],
            ),
            south: seal("south", &[(10, 30, true), (11, 20, true), (12, 16, false), (13, 5, true)]),
        }
    }

    fn listed(&self, epoch: u64) -> Vec<(DeviceId, Vec<Digest>)> {
        let of = |name: &str, sealed: &[Sealed]| {
            let of_epoch = sealed.iter().filter(|one| one.seal.statement().epoch.0 == epoch);
            (id(name), of_epoch.map(|one| one.seal.digest()).collect::<Vec<_>>())
        };
        vec![of("north", &self.north), of("south", &self.south)]
    }

    pub(super) fn manifests(&self) -> Vec<Vec<u8>> {
        ROUNDS
            .iter()
            .map(|&(epoch, round)| item(&manifest(epoch, round, &self.listed(epoch))))
            .collect()
    }
}

/// Returns the mask of levels of each seal of a device for a query for *at most* `m` events per
/// epoch. The mask is empty for epochs without a round, among them the epochs after the range.
pub(super) fn at_most(sealed: &[Sealed], m: u64, rounds: &[(u64, u8)]) -> Vec<u32> {
    let rounds: BTreeMap<u64, u8> = rounds.iter().copied().collect();
    let mask = |one: &Sealed| {
        let epoch = one.seal.statement().epoch;
        let Some(round) = rounds.get(&epoch.0) else { return 0 };
        let mut counts = EpochCounts::at_round(LEVELS, Round(*round));
        sealed
            .iter()
            .filter(|other| other.seal.statement().epoch == epoch)
            .for_each(|other| counts.add(other.seal.statement()));
        counts.at_most(m)
    };
    sealed.iter().map(mask).collect()
}

/// Returns one device's section of an answer: each seal with the levels of its mask.
pub(super) fn course(sealed: &[Sealed], masks: &[u32]) -> Vec<u8> {
    course_of(sealed, &masks.iter().map(|mask| Pick::Levels(*mask)).collect::<Vec<_>>())
}

/// Returns one device's section of an answer: each seal with its selection.
pub(super) fn course_of(sealed: &[Sealed], picks: &[Pick]) -> Vec<u8> {
    let mut out = Vec::new();
    write::schema(&mut out, &schema(FIXED));
    out.extend(sealed[0].open(true));
    for (at, (one, pick)) in sealed.iter().zip(picks).enumerate() {
        out.extend(one.part(pick, at + 1 == sealed.len()));
    }
    out
}

pub(super) fn ended(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut out = pieces.concat();
    write::end(&mut out);
    out
}

pub(super) fn case(bytes: &[u8], names: &[&str], until: Option<u64>, choice: &Json) -> Json {
    let devices: Vec<String> = names.iter().map(|name| id(name).to_string()).collect();
    let mut query = choice.clone();
    (query["devices"], query["since"], query["until"]) = (json!(devices), json!(10), json!(until));
    json!({ "bytes": hex::encode(bytes), "query": query })
}

fn answers() -> File {
    let mut file = file_within(
        "budget/answers.json",
        "Answers of a group with a budget, device by device: answers.md, section 6.3.",
        ED,
    );
    for (kind, scheme) in [("stars", Scheme::Star), ("trees", Scheme::Tree)] {
        let World { north, south } = &World::new(scheme, 2);
        let manifests = World::new(scheme, 2).manifests().concat();
        for m in [3, 12, 1000] {
            let pieces = [
                course(north, &at_most(north, m, &ROUNDS)),
                course(south, &at_most(south, m, &ROUNDS)),
            ];
            let answer = ended(&[std::slice::from_ref(&manifests), &pieces[..]].concat());
            let name = format!("{kind}, and a device that raised itself: at most {m} an epoch");
            file.valid(
                name,
                OP,
                case(&answer, &["north", "south"], Some(13), &json!({ "at_most": m })),
            );
        }
        let served = course(south, &[0xfe, 0xff, 0xfe, 0]);
        let answer = ended(&[manifests.clone(), served]);
        let query = |rate: &str| case(&answer, &["south"], Some(13), &json!({ "rate": rate }));
        let name = format!("{kind}, and a device that raised itself above the rate");
        file.invalid(name, OP, query("1/2"), "RateUnavailable");
    }
    let world = World::new(Scheme::Star, 0);
    let (north, south, manifests) = (&world.north, &world.south, world.manifests());
    let both = ["north", "south"];
    let most = |m: u64| json!({ "at_most": m });
    let all = manifests.concat();
    for m in [0, 1, 7, 25, 1000] {
        let answer = ended(&[
            all.clone(),
            course(north, &at_most(north, m, &ROUNDS)),
            course(south, &at_most(south, m, &ROUNDS)),
        ]);
        file.valid(format!("at most {m} an epoch"), OP, case(&answer, &both, Some(13), &most(m)));
    }
    let (to_north, to_south) = (at_most(north, 1000, &ROUNDS), at_most(south, 1000, &ROUNDS));
    let (of_north, of_south) = (course(north, &to_north), course(south, &to_south));
    let good = ended(&[all.clone(), of_north.clone(), of_south.clone()]);
    file.valid(
        "so far, without an end",
        OP,
        case(&ended(&[all.clone(), course(&north[..4], &to_north)]), &both[..1], None, &most(1000)),
    );
    file.valid(
        "a device of which nothing is known",
        OP,
        case(&ended(&[all.clone(), of_north.clone()]), &["north", "east"], Some(13), &most(1000)),
    );
    // A rate determines the selection of each part independently of the round.
    for (rate, mask) in [("1/4", 0xfcu32), ("1/2", 0xfe), ("1", 0xff)] {
        let masks = |sealed: &[Sealed]| [vec![mask; sealed.len() - 1], vec![0]].concat();
        let pieces = [course(north, &masks(north)), course(south, &masks(south))];
        let rate = json!({ "rate": rate });
        let what = format!("a rate of {}", rate["rate"].as_str().unwrap());
        file.valid(
            what.clone(),
            OP,
            case(
                &ended(&[std::slice::from_ref(&all), &pieces[..]].concat()),
                &both,
                Some(13),
                &rate,
            ),
        );
        file.valid(
            format!("{what}, without manifests"),
            OP,
            case(&ended(&pieces), &both, Some(13), &rate),
        );
    }
    // Each of these answers lacks a manifest.
    for (missing, (epoch, _)) in ROUNDS.iter().enumerate() {
        let rounds: Vec<(u64, u8)> = ROUNDS
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != missing)
            .map(|(_, round)| *round)
            .collect();
        let there: Vec<Vec<u8>> =
            (0..3).filter(|at| *at != missing).map(|at| manifests[at].clone()).collect();
        let masks = |m: u64| at_most(north, m, &rounds);
        let name = format!("no manifest of epoch {epoch}");
        let answer = ended(&[there.concat(), course(north, &masks(1000))]);
        file.valid(name.clone(), OP, case(&answer, &both[..1], Some(13), &most(1000)));
        let served = ended(&[there.concat(), course(north, &to_north)]);
        file.invalid(
            format!("{name}, and events of it"),
            OP,
            case(&served, &both[..1], Some(13), &most(1000)),
            "NotAsAsked",
        );
    }
    let none = vec![0; 5];
    file.valid(
        "no manifest at all",
        OP,
        case(&ended(&[course(north, &none)]), &both[..1], Some(13), &most(1000)),
    );
    let tail = ended(&[
        manifests[0].clone(),
        course(&north[..3], &at_most(&north[..3], 1000, &ROUNDS[..1])),
    ]);
    file.valid(
        "no manifest, and no end behind it",
        OP,
        case(&tail, &both[..1], Some(13), &most(1000)),
    );
    // The answer does not prove that it contains the last part of the epoch. This error is reported
    // first.
    let open = ended(&[course(&north[..1], &[0])]);
    file.valid(
        "no manifest of an epoch that is not whole",
        OP,
        case(&open, &both[..1], Some(13), &most(1000)),
    );

    // In these answers the last epoch has two parts and no seal follows. The second part either
    // closes the epoch or does not.
    let closed = ended(&[manifests[0].clone(), course(&north[..2], &to_north)]);
    file.valid(
        "an epoch that its last part closes",
        OP,
        case(&closed, &both[..1], Some(13), &most(1000)),
    );
    let mut open = device("north");
    let open = [50, 40].map(|count| {
        open.seal(&Epoch { last_in_epoch: false, ..Epoch::new(Scheme::Star, 10, count) })
    });
    let listed = vec![(id("north"), open.iter().map(|one| one.seal.digest()).collect::<Vec<_>>())];
    let of_open =
        ended(&[item(&manifest(10, 2, &listed)), course(&open, &at_most(&open, 1000, &ROUNDS))]);
    file.valid(
        "an epoch that neither of its parts closes",
        OP,
        case(&of_open, &both[..1], Some(13), &most(1000)),
    );
    // Finding F2 of the review: nothing is served without a manifest, also if the tail is unknown.
    for (name, masks) in [("all", [0xff, 0xff]), ("some", [0, 0x01])] {
        let served = ended(&[course(&open, &masks)]);
        file.invalid(
            format!("no manifest of an epoch that is not whole, and {name} of its events"),
            OP,
            case(&served, &both[..1], Some(13), &most(1000)),
            "NotAsAsked",
        );
    }
    let mut faulty = device("north");
    let faulty = [true, false].map(|last_in_epoch| {
        faulty.seal(&Epoch { last_in_epoch, ..Epoch::new(Scheme::Star, 10, 20) })
    });
    let reopened = |masks: [u32; 2]| {
        [course(&faulty[..1], &masks[..1]), course(&faulty[1..], &masks[1..])].concat()
    };
    for (name, masks) in [("nothing", [0, 0]), ("all", [0xff, 0xff])] {
        let served = ended(&[reopened(masks)]);
        file.invalid(
            format!("no manifest, a part after the last of its epoch, and {name} of its events"),
            OP,
            case(&served, &both[..1], Some(13), &most(1000)),
            "EpochClosed",
        );
    }
    let one_part = ended(&[course(north, &[0, 0xff, 0, 0, 0])]);
    let name = "no manifest, and events of one of an epoch's parts";
    file.invalid(name, OP, case(&one_part, &both[..1], Some(13), &most(1000)), "NotAsAsked");

    // These seals arrived after the manifest of their epoch.
    let without = |epoch: u64, round: u8, name: &str| {
        let listed = world
            .listed(epoch)
            .into_iter()
            .filter(|(device, _)| *device != id(name))
            .collect::<Vec<_>>();
        item(&manifest(epoch, round, &listed))
    };
    let late = [without(10, 2, "south"), manifests[1].clone(), without(12, 1, "south")].concat();
    file.valid(
        "late seals",
        OP,
        case(&ended(&[late, of_north.clone(), of_south.clone()]), &both, Some(13), &most(1000)),
    );
    let half = vec![
        (id("north"), vec![north[0].seal.digest()]),
        (id("south"), vec![south[0].seal.digest()]),
    ];
    let half = [item(&manifest(10, 2, &half)), manifests[1].clone(), manifests[2].clone()].concat();
    file.valid(
        "a late part of an epoch",
        OP,
        case(&ended(&[half, of_north.clone()]), &both[..1], Some(13), &most(1000)),
    );
    let elsewhere = vec![(id("north"), vec![south[0].seal.digest()])];
    let swapped =
        [item(&manifest(10, 2, &elsewhere)), manifests[1].clone(), manifests[2].clone()].concat();
    let swapped = ended(&[swapped, of_north.clone(), of_south.clone()]);
    file.invalid(
        "a seal listed under another device",
        OP,
        case(&swapped, &both, Some(13), &most(1000)),
        "Missing",
    );
    let mut extra = world.listed(11);
    extra[1].1.push(Digest([0x78; 32]));
    let invented =
        [manifests[0].clone(), item(&manifest(11, 0, &extra)), manifests[2].clone()].concat();
    let invented_answer = ended(&[invented.clone(), of_north.clone(), of_south.clone()]);
    file.invalid(
        "a listed seal that is not shown",
        OP,
        case(&invented_answer, &both, Some(13), &most(1000)),
        "Missing",
    );
    let north_alone = ended(&[invented, of_north.clone()]);
    file.valid(
        "a listed seal of a device that was not asked",
        OP,
        case(&north_alone, &both[..1], Some(13), &most(1000)),
    );
    let unshown = ended(&[all.clone(), course(&north[..3], &to_north)]);
    file.invalid(
        "listed seals that end too early",
        OP,
        case(&unshown, &both[..1], Some(13), &most(1000)),
        "Missing",
    );
    let silent = ended(&[all.clone(), of_north.clone()]);
    file.invalid(
        "listed seals of a device that is not shown",
        OP,
        case(&silent, &both, Some(13), &most(1000)),
        "Missing",
    );

    // These answers contain data that the query does not select.
    let asked = case(&good, &both, Some(13), &most(1000));
    let masks_below = |change: fn(u32) -> u32, at: usize| {
        let mut masks = to_north.clone();
        masks[at] = change(masks[at]);
        ended(&[all.clone(), course(north, &masks), of_south.clone()])
    };
    for (name, answer) in [
        ("a level below the round", masks_below(|mask| mask | 0x02, 0)),
        ("everything of an epoch", masks_below(|_| 0xff, 3)),
        ("a level less", masks_below(|mask| mask & (mask - 1), 1)),
        ("nothing", masks_below(|_| 0, 2)),
        ("events behind the range", masks_below(|_| 0xff, 4)),
        (
            "manifests out of order",
            ended(&[
                manifests[1].clone(),
                manifests[0].clone(),
                of_north.clone(),
                of_south.clone(),
            ]),
        ),
        (
            "manifests out of order behind others",
            ended(&[
                manifests[0].clone(),
                manifests[2].clone(),
                manifests[1].clone(),
                of_north.clone(),
                of_south.clone(),
            ]),
        ),
        (
            "a manifest twice",
            ended(&[manifests[0].clone(), all.clone(), of_north.clone(), of_south.clone()]),
        ),
        (
            "a manifest before the range",
            ended(&[item(&manifest(9, 0, &[])), all.clone(), of_north.clone(), of_south.clone()]),
        ),
        (
            "a manifest behind the range",
            ended(&[all.clone(), item(&manifest(13, 0, &[])), of_north.clone(), of_south.clone()]),
        ),
        (
            "a manifest behind a part",
            ended(&[
                manifests[..2].concat(),
                of_north.clone(),
                manifests[2].clone(),
                of_south.clone(),
            ]),
        ),
        (
            "a device again",
            ended(&[all.clone(), of_north.clone(), of_south.clone(), of_north.clone()]),
        ),
        ("a query", ended(&[query_item(), all.clone(), of_north.clone(), of_south.clone()])),
        (
            "an explanation",
            ended(&[all.clone(), of_north.clone(), north[0].explain(false), of_south.clone()]),
        ),
    ] {
        file.invalid(name, OP, case(&answer, &both, Some(13), &most(1000)), "NotAsAsked");
    }
    let nothing = |sealed: &[Sealed]| course(sealed, &vec![0; sealed.len()]);
    let swapped = ended(&[nothing(south), nothing(north)]);
    file.invalid(
        "the devices in another order",
        OP,
        case(&swapped, &both, Some(13), &most(0)),
        "NotAsAsked",
    );
    file.invalid(
        "a device that was not asked",
        OP,
        case(&good, &both[..1], Some(13), &most(1000)),
        "NotAsAsked",
    );
    let two = [
        manifests[0].clone(),
        item(&manifest(10, 3, &world.listed(10))),
        manifests[1].clone(),
        manifests[2].clone(),
    ];
    let two = ended(&[two.concat(), of_north.clone(), of_south.clone()]);
    file.invalid(
        "two manifests of one epoch",
        OP,
        case(&two, &both, Some(13), &most(1000)),
        "TwoManifests",
    );
    let mut problem = [all.clone(), of_north.clone()].concat();
    write::problem(&mut problem, "StoreFailed", "the disk");
    file.invalid(
        "the store could not go on",
        OP,
        case(&problem, &both, Some(13), &most(1000)),
        "StoreFailed",
    );
    let unended = [all, of_north.clone(), of_south].concat();
    file.invalid("no end", OP, case(&unended, &both, Some(13), &most(1000)), "Truncated");
    file.invalid("nothing", OP, case(b"", &both, Some(13), &most(1000)), "Truncated");
    let continued = [good, manifests[0].clone()].concat();
    file.invalid(
        "a manifest behind the end",
        OP,
        case(&continued, &both, Some(13), &most(1000)),
        "TrailingBytes",
    );
    file.valid("the answer that the others are made of", OP, asked);
    file
}

/// Returns the sample of a device's trees for a query with a number of events and a seed. In each
/// epoch with a round, the sample is drawn from the events of the levels from that round on.
fn drawn(sealed: &[Sealed], count: usize, rounds: &[(u64, u8)]) -> Vec<Pick> {
    let mut picks = vec![Pick::Levels(0); sealed.len()];
    for &(epoch, round) in rounds {
        let of_epoch = |one: &Sealed| one.seal.statement().epoch.0 == epoch;
        let mut existing = Vec::new();
        for (at, one) in sealed.iter().enumerate().filter(|(_, one)| of_epoch(one)) {
            let seqs = (0..one.records.len()).filter(|seq| one.level(*seq) >= round);
            existing.extend(seqs.map(|seq| (at, seq as u64)));
        }
        let (mut chosen, mut scratch) =
            (vec![0; count], vec![Swap::FREE; permutation::scratch_for(count)]);
        let (device, total) = (sealed[0].seal.statement().device, existing.len() as u64);
        let chosen = permutation::choose(
            &SEED,
            device,
            EpochNumber(epoch),
            total,
            &mut chosen,
            &mut scratch,
        )
        .unwrap();
        let mut chosen: Vec<(usize, u64)> =
            chosen.iter().map(|at| existing[usize::try_from(*at).unwrap()]).collect();
        chosen.sort_unstable();
        for (at, seq) in chosen {
            match &mut picks[at] {
                Pick::Events(events) => events.push(seq),
                nothing => *nothing = Pick::Events(vec![seq]),
            }
        }
    }
    picks
}

fn samples() -> File {
    let about = "Samples by a number and a seed of trees in a group with a budget: among what its rounds left. Section 5.";
    let mut file = file_within("budget/samples.json", about, ED);
    let world = World::new(Scheme::Tree, 0);
    let (north, manifests) = (&world.north, world.manifests());
    let asked = |bytes: &[u8], count: usize| {
        let sample = json!({ "sample": { "count": count, "seed": hex::encode(SEED) } });
        case(bytes, &["north"], Some(13), &sample)
    };
    for count in [1, 4, 11, 60] {
        let answer = ended(&[manifests.concat(), course_of(north, &drawn(north, count, &ROUNDS))]);
        file.valid(format!("{count} of each epoch"), OP, asked(&answer, count));
        let all = [(10, 0), (11, 0), (12, 0)];
        let answer = ended(&[manifests.concat(), course_of(north, &drawn(north, count, &all))]);
        file.invalid(
            format!("{count} of all events of each epoch"),
            OP,
            asked(&answer, count),
            "NotAsAsked",
        );
    }
    let there = [manifests[0].clone(), manifests[2].clone()].concat();
    let without =
        ended(&[there.clone(), course_of(north, &drawn(north, 4, &[ROUNDS[0], ROUNDS[2]]))]);
    file.valid("no manifest of an epoch", OP, asked(&without, 4));
    let served = ended(&[there, course_of(north, &drawn(north, 4, &ROUNDS))]);
    file.invalid("no manifest of an epoch, and events of it", OP, asked(&served, 4), "NotAsAsked");
    // Finding F2 of the review.
    let open = ended(&[course_of(&north[..1], &[Pick::Events(vec![0, 7])])]);
    file.invalid(
        "no manifest of an epoch that is not whole, and events of it",
        OP,
        asked(&open, 4),
        "NotAsAsked",
    );
    let other = ended(&[manifests.concat(), course_of(north, &drawn(north, 5, &ROUNDS))]);
    file.invalid("one event more", OP, asked(&other, 4), "NotAsAsked");
    file
}

fn query_item() -> Vec<u8> {
    let mut out = Vec::new();
    write::proof(&mut out, "{}");
    out
}

fn unlimited() -> File {
    let roster = roster_within(BUDGETED, None, Some(&coordinator(ED).public()));
    let opened = moteseal_verify::Roster::open(&roster, &operator().public()).unwrap();
    let about = "Answers of a group with a coordinator and no budget: manifests say nothing there. Section 5.";
    let mut file = File::new("budget/none.json", about)
        .operator(&operator())
        .shared("roster", json!(hex::encode(&roster)));
    let one = Device::new(&opened, "north", &schema(FIXED)).seal(&Epoch::new(Scheme::Star, 10, 40));
    let manifest_item = item(&manifest_under(opened.digest(), 10, 3, &[]));
    let whole = course(std::slice::from_ref(&one), &[0xff]);
    let most = json!({ "at_most": 1000 });
    file.valid(
        "at most, of everything",
        OP,
        case(&ended(std::slice::from_ref(&whole)), &["north"], Some(11), &most),
    );
    file.invalid(
        "a manifest",
        OP,
        case(&ended(&[manifest_item, whole]), &["north"], Some(11), &most),
        "NotAsAsked",
    );
    file
}
