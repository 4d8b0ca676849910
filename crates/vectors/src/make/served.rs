//! Vectors of answers, which must be complete and contain exactly the queried events
//! (spec/answers.md, section 4).

use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Round};
use moteseal_seal::sample::choice::EpochCounts;
use moteseal_seal::sample::permutation::{self, Swap};
use moteseal_verify::write;
use serde_json::{Value as Json, json};

use super::parts::{file_of_streams, group};
use super::{File, Files};
use moteseal_fixtures::world::{Device, Epoch, FIXED, Pick, Sealed, schema};

const SEED: [u8; 32] = [0x77; 32];

pub fn make(files: &mut Files) {
    files.add(choices());
    files.add(ranges());
    files.add(samples());
}

/// Returns a device's seals of the epochs 10, 11 (in two parts), 13 and 15.
fn sealed(scheme: Scheme) -> Vec<Sealed> {
    let mut device = Device::new(&group(), "ed", &schema(FIXED));
    let epochs = [(10, 30, true), (11, 25, false), (11, 12, true), (13, 40, true), (15, 8, true)];
    let seal = |(epoch, count, last_in_epoch)| {
        device.seal(&Epoch { last_in_epoch, ..Epoch::new(scheme, epoch, count) })
    };
    epochs.map(seal).to_vec()
}

/// Returns an answer with these seals, each with its own selection.
fn answer(sealed: &[(&Sealed, Pick)]) -> Vec<u8> {
    let mut out = Vec::new();
    write::schema(&mut out, &schema(FIXED));
    out.extend(sealed[0].0.open(true));
    for (at, (one, pick)) in sealed.iter().enumerate() {
        out.extend(one.part(pick, at + 1 == sealed.len()));
    }
    write::end(&mut out);
    out
}

fn case(bytes: &[u8], since: u64, until: u64, choice: Json) -> Json {
    let device = Device::new(&group(), "ed", &schema(FIXED)).id;
    json!({ "bytes": hex::encode(bytes), "device": device.to_string(), "since": since, "until": until, "choice": choice })
}

/// Returns an answer in which all seals have the same mask of levels, followed by the next seal
/// without events.
fn masked(sealed: &[Sealed], mask: u32, next: Option<&Sealed>) -> Vec<u8> {
    let mut picks: Vec<(&Sealed, Pick)> =
        sealed.iter().map(|one| (one, Pick::Levels(mask))).collect();
    picks.extend(next.map(|one| (one, Pick::Levels(0))));
    answer(&picks)
}

fn choices() -> File {
    let mut file = file_of_streams(
        "choice/answers.json",
        "Answers to a rate or to at most so many events an epoch: answers.md, section 4.",
    );
    for scheme in [Scheme::Star, Scheme::Tree] {
        let all = sealed(scheme);
        let (range, next) = (&all[..4], Some(&all[4]));
        let kind = scheme.as_str();
        for (rate, mask) in
            [("1", 0xff), ("1/2", 0xfe), ("1/8", 0xf8), ("5/8", 0xf9), ("1/128", 0x80)]
        {
            file.valid(
                format!("{kind}s: rate {rate}"),
                "choice.answer",
                case(&masked(range, mask, next), 10, 15, json!({ "rate": rate })),
            );
        }
        let rate = json!({ "rate": "1/8" });
        for (name, mask) in [
            ("levels too many", 0xfc),
            ("a level less", 0xf0),
            ("another level", 0xf4),
            ("nothing", 0),
            ("everything", 0xff),
        ] {
            file.invalid(
                format!("{kind}s: {name}"),
                "choice.answer",
                case(&masked(range, mask, next), 10, 15, rate.clone()),
                "NotAsAsked",
            );
        }
        file.invalid(
            format!("{kind}s: a rate that is too low"),
            "choice.answer",
            case(&masked(range, 0, next), 10, 15, json!({ "rate": "1/256" })),
            "RateUnavailable",
        );
        let mut picks: Vec<(&Sealed, Pick)> =
            range.iter().map(|one| (one, Pick::Levels(0xf8))).collect();
        picks[2].1 = Pick::Levels(0xf0);
        picks.push((&all[4], Pick::Levels(0)));
        let one_part = case(&answer(&picks), 10, 15, rate.clone());
        file.invalid(
            format!("{kind}s: one part of an epoch without a level"),
            "choice.answer",
            one_part,
            "NotAsAsked",
        );
        picks[2].1 = Pick::Levels(0xf8);
        picks[4].1 = Pick::Levels(0xf8);
        file.invalid(
            format!("{kind}s: events behind the range"),
            "choice.answer",
            case(&answer(&picks), 10, 15, rate),
            "NotAsAsked",
        );

        for m in [0, 3, 20, 1000] {
            let masks = at_most(range, m);
            let mut picks: Vec<(&Sealed, Pick)> =
                range.iter().zip(&masks).map(|(one, mask)| (one, Pick::Levels(*mask))).collect();
            picks.push((&all[4], Pick::Levels(0)));
            file.valid(
                format!("{kind}s: at most {m}"),
                "choice.answer",
                case(&answer(&picks), 10, 15, json!({ "at_most": m })),
            );
            let asked = if m == 0 { 20 } else { 0 };
            if m != 0 {
                let name = format!("{kind}s: at most {m} where {asked} were asked for");
                file.invalid(
                    name,
                    "choice.answer",
                    case(&answer(&picks), 10, 15, json!({ "at_most": asked })),
                    "NotAsAsked",
                );
            }
        }
    }
    // This device has dropped the levels 0 and 1.
    let mut device = Device::new(&group(), "ed", &schema(FIXED));
    let mut epoch = Epoch::new(Scheme::Star, 10, 60);
    (epoch.own_round, epoch.round) = (2, 1);
    let dropped = device.seal(&epoch);
    let only = |mask: u32| masked(std::slice::from_ref(&dropped), mask, None);
    file.valid(
        "a rate above the device's round",
        "choice.answer",
        case(&only(0xfc), 10, 11, json!({ "rate": "1/4" })),
    );
    for (rate, mask) in [("1", 0xfc), ("1/2", 0xfc), ("5/8", 0xf8)] {
        let input = case(&only(mask), 10, 11, json!({ "rate": rate }));
        file.invalid(
            format!("a rate of {rate} that the device's round did not leave"),
            "choice.answer",
            input,
            "RateUnavailable",
        );
    }
    file.valid(
        "at most all of what is left",
        "choice.answer",
        case(&only(0xfc), 10, 11, json!({ "at_most": 60 })),
    );
    file
}

/// Returns the mask of levels of each seal for a query for *at most* `m` events per epoch.
fn at_most(sealed: &[Sealed], m: u64) -> Vec<u32> {
    let mut masks = Vec::new();
    for one in sealed {
        let epoch = one.seal.statement().epoch;
        let mut counts = EpochCounts::new(8);
        sealed
            .iter()
            .filter(|other| other.seal.statement().epoch == epoch)
            .for_each(|other| counts.add(other.seal.statement()));
        masks.push(counts.at_most(m));
    }
    masks
}

fn ranges() -> File {
    let mut file = file_of_streams(
        "choice/ranges.json",
        "Whether an answer is all there is: answers.md, section 6.1.",
    );
    let all = sealed(Scheme::Star);
    let rate = || json!({ "rate": "1" });
    let whole = |from: usize, to: usize, next: Option<usize>, since: u64, until: u64| {
        case(&masked(&all[from..to], 0xff, next.map(|at| &all[at])), since, until, rate())
    };
    file.valid("everything, and the seal behind", "choice.answer", whole(0, 4, Some(4), 10, 15));
    file.valid(
        "everything, ended by the last part of the last epoch",
        "choice.answer",
        whole(0, 4, None, 10, 14),
    );
    file.valid("from the first epoch of the group", "choice.answer", whole(0, 1, None, 0, 11));
    file.valid("an epoch in two parts", "choice.answer", whole(1, 3, None, 11, 12));
    file.valid("a silent epoch", "choice.answer", whole(3, 3, Some(3), 12, 13));
    file.valid("an empty range", "choice.answer", case(b"", 12, 12, rate()));
    for (name, input, error) in [
        ("no seals", case(b"", 10, 15, rate()), "TailUnknown"),
        ("the seal behind is missing", whole(0, 4, None, 10, 15), "TailUnknown"),
        ("the second part of the last epoch is missing", whole(0, 2, None, 10, 12), "TailUnknown"),
        ("the first seal is missing", whole(1, 4, Some(4), 10, 15), "Missing"),
        ("the first part of an epoch is missing", whole(2, 3, None, 11, 12), "Missing"),
        ("a seal too early", whole(0, 4, Some(4), 11, 15), "NotAsAsked"),
        ("a seal behind the end", whole(0, 4, Some(4), 10, 14), "NotAsAsked"),
        ("a seal in an empty range", whole(0, 1, None, 10, 10), "NotAsAsked"),
    ] {
        file.invalid(name, "choice.answer", input, error);
    }
    // In these answers each seal has its own proof. Otherwise the chain of a run would reveal gaps.
    let each = |which: &[usize]| {
        let mut out = Vec::new();
        write::schema(&mut out, &schema(FIXED));
        for &at in which {
            out.extend(all[at].open(true));
            out.extend(all[at].part(&Pick::Levels(if at == 4 { 0 } else { 0xff }), true));
        }
        out
    };
    file.valid(
        "each seal proven by itself",
        "choice.answer",
        case(&each(&[0, 1, 2, 3, 4]), 10, 15, rate()),
    );
    for (name, which, error) in [
        ("a seal in the middle is missing", vec![0, 1, 3, 4], "Missing"),
        ("an epoch is missing", vec![0, 3, 4], "Missing"),
        ("a seal twice", vec![0, 1, 1, 2, 3, 4], "NotAsAsked"),
        ("two seals swapped", vec![0, 2, 1, 3, 4], "Missing"),
        ("the first seal again", vec![0, 1, 0, 2, 3, 4], "NotAsAsked"),
        ("the last but one is missing", vec![0, 1, 2, 4], "Missing"),
    ] {
        file.invalid(name, "choice.answer", case(&each(&which), 10, 15, rate()), error);
    }
    // This is another history of the same device, so a second seal has the same index.
    let mut fork = Device::new(&group(), "ed", &schema(FIXED));
    fork.seal(&Epoch::new(Scheme::Star, 10, 31));
    let other = fork.seal(&Epoch::new(Scheme::Star, 11, 3));
    let mut out = Vec::new();
    write::schema(&mut out, &schema(FIXED));
    out.extend(all[0].open(true));
    out.extend(all[0].part(&Pick::Levels(0xff), true));
    out.extend(other.open(true));
    out.extend(other.part(&Pick::Levels(0xff), true));
    file.invalid(
        "a seal of another history",
        "choice.answer",
        case(&out, 10, 12, rate()),
        "Equivocation",
    );
    out.clear();
    write::schema(&mut out, &schema(FIXED));
    for one in [&all[0], &all[1], &other] {
        out.extend(one.open(true));
        out.extend(one.part(&Pick::Levels(0xff), true));
    }
    file.invalid(
        "two seals under one index",
        "choice.answer",
        case(&out, 10, 12, rate()),
        "Equivocation",
    );
    let mut theirs = Device::new(&group(), "p256", &schema(FIXED));
    let foreign = theirs.seal(&Epoch::new(Scheme::Star, 10, 5));
    file.invalid(
        "another device's seals",
        "choice.answer",
        case(&masked(&[foreign], 0xff, None), 10, 11, rate()),
        "NotAsAsked",
    );
    // A query without an end covers all epochs up to the newest seal in the answer.
    let open = |to: usize, choice: Json| {
        let mut case = case(&masked(&all[..to], 0xff, None), 10, 0, choice);
        case["until"] = Json::Null;
        case
    };
    let at_most = || json!({ "at_most": 1000 });
    file.valid("no end: to a seal that closes its epoch", "choice.answer", open(3, at_most()));
    file.valid(
        "no end: an epoch of which nothing shows the last part gives no rows",
        "choice.answer",
        open(2, at_most()),
    );
    file.valid("no end: a rate is forced part by part", "choice.answer", open(2, rate()));
    // This device continues an epoch that it has closed. Within a run, the reader would already
    // reject this.
    let mut device = Device::new(&group(), "ed", &schema(FIXED));
    let broken = [
        device.seal(&Epoch::new(Scheme::Star, 10, 30)),
        device.seal(&Epoch::new(Scheme::Star, 10, 9)),
    ];
    let mut out = Vec::new();
    write::schema(&mut out, &schema(FIXED));
    for one in &broken {
        out.extend(one.open(true));
        out.extend(one.part(&Pick::Levels(0xff), true));
    }
    let mut closed = case(&out, 10, 0, at_most());
    closed["until"] = Json::Null;
    file.invalid("a part behind the last of its epoch", "choice.answer", closed, "EpochClosed");
    file
}

/// Returns the events of an epoch of trees that still exist at a round, in the order of their
/// parts.
fn existing(sealed: &[Sealed], round: u8) -> Vec<(usize, u64)> {
    let dropped = |level: u8| {
        let by = |one: &&Sealed| level < one.seal.statement().own_round.0;
        level < round || sealed.iter().filter(by).any(|one| !one.at_level(level).is_empty())
    };
    let of = |(part, one): (usize, &Sealed)| -> Vec<(usize, u64)> {
        (0..one.records.len())
            .filter(|&seq| !dropped(one.level(seq)))
            .map(|seq| (part, seq as u64))
            .collect()
    };
    sealed.iter().enumerate().flat_map(of).collect()
}

/// Adds cases with samples of an epoch of trees that has a final round. The epoch has two parts. Of
/// the second part, the device kept only the levels from 1 on.
fn pruned_samples(file: &mut File) {
    let mut device = Device::new(&group(), "ed", &schema(FIXED));
    let first = device.seal(&Epoch { last_in_epoch: false, ..Epoch::new(Scheme::Tree, 10, 60) });
    let second = device.seal(&Epoch { own_round: 1, ..Epoch::new(Scheme::Tree, 10, 50) });
    let parts = [first, second];
    let picks = |round: u8, count: usize| {
        let there = existing(&parts, round);
        let (mut chosen, mut scratch) =
            (vec![0; count], vec![Swap::FREE; permutation::scratch_for(count)]);
        let (device, total) = (parts[0].seal.statement().device, there.len() as u64);
        let chosen =
            permutation::choose(&SEED, device, EpochNumber(10), total, &mut chosen, &mut scratch)
                .unwrap();
        chosen.sort_unstable();
        let pick = |part: usize| {
            let chosen = chosen.iter().map(|&at| there[usize::try_from(at).unwrap()]);
            let mine: Vec<u64> = chosen.filter(|(of, _)| *of == part).map(|(_, seq)| seq).collect();
            if mine.is_empty() { Pick::Levels(0) } else { Pick::Events(mine) }
        };
        vec![(&parts[0], pick(0)), (&parts[1], pick(1))]
    };
    let asked = |round: u8, count: usize| json!({ "count": count, "seed": hex::encode(SEED), "round": round });
    for (round, count) in [(0, 1), (0, 9), (0, 200), (1, 9), (2, 5), (2, 60), (4, 3), (8, 5)] {
        let name = format!("{count} of what exists at round {round}");
        file.valid(
            name,
            "choice.answer",
            case(&answer(&picks(round, count)), 10, 11, asked(round, count)),
        );
    }
    let mut exchanged = picks(2, 5);
    let (at, Pick::Events(chosen)) =
        exchanged.iter_mut().map(|(_, pick)| pick).enumerate().next().unwrap()
    else {
        panic!()
    };
    let free = existing(&parts, 2)
        .into_iter()
        .find(|(of, seq)| *of == at && !chosen.contains(seq))
        .unwrap()
        .1;
    chosen[0] = free;
    chosen.sort_unstable();
    // The device kept the first part from a lower level on than the second part. This sample has
    // too many events of the first part, as if each part had its own round.
    let each = [existing(&parts[..1], 0), existing(&parts[1..], 0)];
    let [first, second] =
        each.map(|there| there.into_iter().map(|(_, seq)| seq).collect::<Vec<u64>>());
    let each_its_own = vec![(&parts[0], Pick::Events(first)), (&parts[1], Pick::Events(second))];
    let mut withheld = picks(2, 5);
    let Pick::Events(chosen) = &mut withheld[0].1 else { panic!() };
    chosen.pop();
    for (name, picks, round) in [
        ("served as of a lower round", picks(1, 5), 2),
        ("served as of a higher round", picks(3, 5), 2),
        ("an existing event exchanged for another", exchanged, 2),
        ("an existing event said not to exist", withheld, 2),
        ("one less than exist", picks(4, 2), 4),
    ] {
        let asked = asked(round, if round == 4 { 3 } else { 5 });
        file.invalid(name, "choice.answer", case(&answer(&picks), 10, 11, asked), "NotAsAsked");
    }
    let input = case(&answer(&each_its_own), 10, 11, asked(0, 200));
    file.invalid("each part from a round of its own on", "choice.answer", input, "NotAsAsked");
    for (round, most) in [(0, 200), (2, 200), (2, 12), (8, 200)] {
        let mut counts = EpochCounts::at_round(8, Round(round));
        parts.iter().for_each(|part| counts.add(part.seal.statement()));
        let masks = masked(&parts, counts.at_most(most), None);
        let asked = json!({ "at_most": most, "round": round });
        file.valid(
            format!("at most {most} of what exists at round {round}"),
            "choice.answer",
            case(&masks, 10, 11, asked),
        );
    }
}

fn drawn(sealed: &[&Sealed], count: usize, seed: &[u8; 32]) -> Vec<Pick> {
    let statement = sealed[0].seal.statement();
    let total: u64 = sealed.iter().map(|one| one.seal.statement().counters.total()).sum();
    let (mut chosen, mut scratch) =
        (vec![0; count], vec![Swap::FREE; permutation::scratch_for(count)]);
    let epoch = EpochNumber(statement.epoch.0);
    let chosen =
        permutation::choose(seed, statement.device, epoch, total, &mut chosen, &mut scratch)
            .unwrap();
    chosen.sort_unstable();
    let mut start = 0;
    let pick = |one: &&Sealed| {
        let end = start + one.seal.statement().counters.total();
        let mine: Vec<u64> =
            chosen.iter().filter(|at| (start..end).contains(at)).map(|at| at - start).collect();
        start = end;
        if mine.is_empty() { Pick::Levels(0) } else { Pick::Events(mine) }
    };
    sealed.iter().map(pick).collect()
}

fn samples() -> File {
    let mut file = file_of_streams(
        "permutation/answers.json",
        "Answers to a number of events and a seed: answers.md, section 4.",
    );
    let all = sealed(Scheme::Tree);
    let picks = |count: usize, seed: &[u8; 32]| {
        let mut picks: Vec<(&Sealed, Pick)> = Vec::new();
        for epoch in [&all[..1], &all[1..3], &all[3..4]] {
            let epoch: Vec<&Sealed> = epoch.iter().collect();
            picks.extend(epoch.iter().copied().zip(drawn(&epoch, count, seed)));
        }
        picks.push((&all[4], Pick::Levels(0)));
        picks
    };
    let asked = |count: usize| json!({ "count": count, "seed": hex::encode(SEED) });
    for count in [1, 5, 12, 30, 100] {
        file.valid(
            format!("{count} of each epoch"),
            "choice.answer",
            case(&answer(&picks(count, &SEED)), 10, 15, asked(count)),
        );
    }
    for (name, picks, count) in [
        ("one less", picks(4, &SEED), 5),
        ("one more", picks(6, &SEED), 5),
        ("by another seed", picks(5, &[0x78; 32]), 5),
        (
            "nothing",
            vec![
                (&all[0], Pick::Levels(0)),
                (&all[1], Pick::Levels(0)),
                (&all[2], Pick::Levels(0)),
                (&all[3], Pick::Levels(0)),
                (&all[4], Pick::Levels(0)),
            ],
            1,
        ),
    ] {
        file.invalid(
            name,
            "choice.answer",
            case(&answer(&picks), 10, 15, asked(count)),
            "NotAsAsked",
        );
    }
    let mut others = picks(5, &SEED);
    let Pick::Events(chosen) = &mut others[0].1 else { panic!() };
    let free = (0..30).find(|seq| !chosen.contains(seq)).unwrap();
    chosen[0] = free;
    chosen.sort_unstable();
    file.invalid(
        "one event exchanged for another",
        "choice.answer",
        case(&answer(&others), 10, 15, asked(5)),
        "NotAsAsked",
    );
    let levels = masked(&all[..4], 0xff, Some(&all[4]));
    file.invalid(
        "all levels instead of all events",
        "choice.answer",
        case(&levels, 10, 15, asked(100)),
        "NotAsAsked",
    );
    pruned_samples(&mut file);
    let stars = sealed(Scheme::Star);
    file.invalid(
        "of a star",
        "choice.answer",
        case(&masked(&stars[..4], 0xff, Some(&stars[4])), 10, 15, asked(5)),
        "SchemeMismatch",
    );
    file
}
