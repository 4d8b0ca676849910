//! Tests that every lie can be applied and is rejected with one of the names in its table, and that
//! every honest answer is accepted.

use std::collections::BTreeMap;

use moteseal_adversary::{
    Accomplice, Answer, Context, EXPLAIN_LIES, Explanation, Holdings, LIES, Lie, Question,
    SCHEMA_2_LIES,
};
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, SealIndex, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::Choice;
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::tree::Tree;
use moteseal_seal::{History, MAX_MESSAGE, Position, Seal, Star, Statement, star};
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::{Event, Explained, ReadError, Roster, StreamReader, explain_run, write};

const GROUP: &str = "orchard";
const NAMES: [&str; 3] = ["north", "south", "west"];
const LEVELS: usize = 12;

struct World {
    roster: Roster,
    keys: BTreeMap<DeviceId, SecretKey>,
    devices: Vec<DeviceId>,
    holdings: Holdings,
    bundles: Vec<Vec<u8>>,
}

fn sign(key: &SecretKey, message: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public().algorithm().signature_length()];
    key.sign(message, &mut signature).unwrap();
    signature
}

/// Returns a bundle, and the position of the device's chain after it.
fn bundle(
    roster: &Roster,
    (device, key): (DeviceId, &SecretKey),
    scheme: Scheme,
    (epoch, last_in_epoch): (u64, bool),
    position: &Position,
    (schema, records): (&Schema<'_>, &[Vec<u8>]),
) -> (Vec<u8>, Position) {
    let framing = schema.record_size().and_then(Framing::fixed).unwrap_or(Framing::Prefixed);
    let index = SealIndex(position.last.map_or(0, |(index, _)| index.0 + 1));
    let salt = SaltKey::new([9; 32]).salt(device, index);
    let mut statement = Statement::new(
        scheme,
        roster.group(),
        roster.digest(),
        device,
        roster.levels(EpochNumber(0)),
    );
    (statement.index, statement.prev, statement.last) = (index, position.prev, position.last);
    (statement.epoch, statement.last_in_epoch) = (EpochNumber(epoch), last_in_epoch);
    (statement.schema, statement.salt) = (schema.digest(), salt);
    let (mut star, mut tree) =
        (Star::<LEVELS>::new(device, index, &salt, framing), Tree::<20>::new());
    for record in records {
        star.push(record).unwrap();
        tree.push(record).unwrap();
    }
    let (counters, blocks) = star.close();
    statement.counters = counters;
    let mut order: Vec<usize> = (0..records.len()).collect();
    let root = match scheme {
        Scheme::Star => {
            order.sort_by_key(|&seq| {
                std::cmp::Reverse(salt.level(Sequence(seq as u64), roster.levels(EpochNumber(0))))
            });
            star::root(&counters, &blocks)
        }
        Scheme::Tree => tree.root(),
    };
    let seal = Seal::new(statement, root, key.public().algorithm());
    let mut events = Vec::new();
    for seq in order {
        framing.frame(&records[seq], |bytes| events.extend_from_slice(bytes));
    }
    let mut out = Vec::new();
    write::schema(&mut out, schema.as_bytes());
    let last = seal.statement().last;
    write::open(&mut out, &Open { device, roster_version: 0, prev: Some(position.prev), last });
    let signature = sign(key, seal.message(&mut [0; MAX_MESSAGE]));
    let all = Selection::Levels(seal.statement().surviving());
    write::part(&mut out, &seal, all, &[], &events, Some(&signature));
    (out, seal.position())
}

/// Creates three devices with nine epochs each. The second device never marks a seal as the last of
/// its epoch. The third device has two parts per epoch.
fn world(scheme: Scheme) -> World {
    let columns = ["temperature:Cel:i16/100", "humidity:%RH:u16/100"];
    world_of(scheme, &columns, &|wave, seq| {
        ((wave << 16) | (4000 + seq % 97)).to_be_bytes().to_vec()
    })
}

/// Creates the same devices with records under a schema of version 2.
fn world_of_version_2(scheme: Scheme) -> World {
    let columns = ["note::text30?", "temperature:Cel:i16/100?", "on::enum(no,yes)", "place::text9"];
    world_of(scheme, &columns, &|wave, seq| {
        let schema = encode(&columns);
        let schema = Schema::decode(&schema).unwrap();
        let mut record = vec![0; schema.longest_record()];
        let note = "n".repeat(seq as usize % 5);
        let temperature =
            if seq % 3 == 0 { String::new() } else { format!("{}.{:02}", wave / 100, wave % 100) };
        let on = if wave % 2 == 0 { "no" } else { "yes" };
        for (field, text) in schema.fields().zip([&*note, &temperature, on, "Åre"]) {
            field.write(text, &mut record).unwrap();
        }
        record.truncate(schema.record_length(&record).unwrap());
        record
    })
}

fn encode(columns: &[&str]) -> Vec<u8> {
    let fields: Vec<_> = columns.iter().map(|column| Field::parse(column).unwrap()).collect();
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

fn world_of(scheme: Scheme, columns: &[&str], record_of: &dyn Fn(u32, u32) -> Vec<u8>) -> World {
    let schema = encode(columns);
    let schema = Schema::decode(&schema).unwrap();
    let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
    let secret =
        |number: usize| SecretKey::from_seed(Algorithm::Ed25519, &[10 + number as u8; 32]).unwrap();
    let devices: Vec<(&str, PublicKey)> =
        NAMES.iter().enumerate().map(|(at, name)| (*name, secret(at).public())).collect();
    let issued = FirstRoster {
        group: GROUP,
        epoch_ms: 900_000,
        levels: LEVELS as u8,
        budget: None,
        devices: &devices,
    };
    let roster = Roster::open(&issued.issue(&operator).unwrap(), &operator.public()).unwrap();
    let mut world = World {
        keys: BTreeMap::new(),
        devices: Vec::new(),
        holdings: Holdings::default(),
        bundles: Vec::new(),
        roster,
    };
    for (number, name) in NAMES.iter().enumerate() {
        let device = world.roster.id(name).unwrap();
        let key = secret(number);
        let mut position = Position::start(world.roster.first_prev(device).unwrap());
        for epoch in 100..109_u64 {
            let parts = if number == 2 { 2 } else { 1 };
            for part in 0..parts {
                let record = |seq: u32| {
                    let wave =
                        2500 + (seq * 7 + number as u32 * 31 + epoch as u32 * 13 + part * 5) % 190;
                    record_of(wave, seq)
                };
                let records: Vec<Vec<u8>> =
                    (0..160 + (epoch as u32 * 5 + number as u32) % 9).map(record).collect();
                let last = number != 1 && part + 1 == parts;
                let (bytes, next) = bundle(
                    &world.roster,
                    (device, &key),
                    scheme,
                    (epoch, last),
                    &position,
                    (&schema, &records),
                );
                world.holdings.take(&world.roster, &bytes).unwrap();
                world.bundles.push(bytes);
                position = next;
            }
        }
        world.devices.push(device);
        world.keys.insert(device, key);
    }
    world
}

fn questions(scheme: Scheme) -> Vec<Question> {
    let (since, until) = (EpochNumber(102), Some(EpochNumber(107)));
    let rate = |text: &str| Question { since, until, choice: Choice::Rate(text.parse().unwrap()) };
    let mut questions = vec![
        rate("1/8"),
        rate("1"),
        rate("5/8"),
        Question { since, until, choice: Choice::AtMost(40) },
    ];
    if scheme == Scheme::Tree {
        questions.push(Question {
            since,
            until,
            choice: Choice::Sample { count: 30, seed: [4; 32] },
        });
    }
    questions
}

/// A minimal verifier. It checks an answer with the stream reader and the history, and compares the
/// selections with the selections in the honest answer.
fn verify_answer(world: &World, question: &Question, bytes: &[u8]) -> Result<(), String> {
    let honest: BTreeMap<(DeviceId, u32), String> = {
        let answer = world.holdings.answer(&world.devices, question);
        let parts = answer
            .places()
            .into_iter()
            .filter_map(|place| Some((place, answer.part(place.item)?.clone())));
        parts
            .map(|(place, part)| ((place.device, place.index.0), format!("{:?}", part.select)))
            .collect()
    };
    let until = question.until.unwrap();
    let mut histories: Vec<History> = Vec::new();
    let mut at: Option<usize> = None;
    let mut ended = false;
    // The selection that a query determines depends on complete epochs, so first check that no
    // epoch is missing.
    let mut as_determined = true;
    let mut reader = StreamReader::new(&world.roster, Limits::default());
    for chunk in bytes.chunks(1 << 20) {
        reader.feed::<Rejected>(chunk, &mut |event| {
            if ended {
                return Err("TrailingBytes".into());
            }
            match event {
                Event::Proven(proven) => {
                    let statement = proven.seal.statement();
                    let place = world
                        .devices
                        .iter()
                        .position(|device| *device == statement.device)
                        .unwrap();
                    if at.is_some_and(|at| place < at) {
                        return Err("NotAsAsked".into());
                    }
                    at = Some(place);
                    while histories.len() <= place {
                        histories.push(History::new(
                            world.devices[histories.len()],
                            question.since,
                            until,
                        ));
                    }
                    histories[place]
                        .next(proven.seal)
                        .map_err(|error| Rejected(error.name().into()))?;
                    let select =
                        format!("{:?}", moteseal_adversary::Part::from(proven.part).select);
                    match honest.get(&(statement.device, statement.index.0)) {
                        Some(determined) => as_determined &= *determined == select,
                        None => return Err("NotAsAsked".into()),
                    }
                    Ok(())
                }
                Event::End => {
                    ended = true;
                    Ok(())
                }
                Event::Problem(name, _) => Err(name.into()),
                Event::Proof(_)
                | Event::Explain(..)
                | Event::Manifest(..)
                | Event::Sanitised(..) => Err("NotAsAsked".into()),
            }
        })?;
    }
    reader.finish::<Rejected>(&mut |_| Ok(()))?;
    if !ended {
        return Err("Truncated".into());
    }
    if histories.len() < world.devices.len() {
        return Err("TailUnknown".into());
    }
    histories.into_iter().try_for_each(|history| {
        history.finish().map(|_| ()).map_err(|error| error.name().to_owned())
    })?;
    if as_determined { Ok(()) } else { Err("NotAsAsked".into()) }
}

#[derive(Debug)]
struct Rejected(String);

impl From<ReadError> for Rejected {
    fn from(error: ReadError) -> Self {
        Self(error.name().into())
    }
}

impl From<&str> for Rejected {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<Rejected> for String {
    fn from(rejected: Rejected) -> Self {
        rejected.0
    }
}

fn context<'a>(
    world: &'a World,
    question: Question,
    accomplice: &'a Accomplice<'a>,
) -> Context<'a> {
    Context { holdings: &world.holdings, question, accomplice: Some(accomplice) }
}

/// Returns the items up to the end of the run that is not proven. A client requests the explaining
/// form of this run.
fn failed_run(world: &World, answer: &Answer) -> Option<Vec<u8>> {
    let mut before = Answer::default();
    for (at, item) in answer.items.iter().enumerate() {
        before.items.push(item.clone());
        let signed =
            matches!(item, moteseal_adversary::Item::Part(part) if part.signature.is_some());
        if !signed {
            continue;
        }
        let mut reader = StreamReader::new(&world.roster, Limits::default());
        if reader.feed::<ReadError>(&before.encode(), &mut |_| Ok(())).is_err() {
            let open = answer.items[..at]
                .iter()
                .rposition(|item| matches!(item, moteseal_adversary::Item::Open(_)))?;
            let schema = answer.items[..at]
                .iter()
                .rfind(|item| matches!(item, moteseal_adversary::Item::Schema(_)))?;
            let mut bytes = Vec::new();
            schema.encode(&mut bytes);
            answer.items[open..=at].iter().for_each(|item| item.encode(&mut bytes));
            return Some(bytes);
        }
    }
    None
}

fn honest_explanation(world: &World, device: DeviceId, index: SealIndex) -> Option<Explained> {
    let held = world.holdings.get(device, index)?;
    Some(Explained { seal: held.sign1(), digests: held.explaining() })
}

#[test]
fn an_unchanged_answer_encodes_to_the_same_bytes() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let world = world(scheme);
        for question in questions(scheme) {
            let bytes = world.holdings.answer(&world.devices, &question).encode();
            assert_eq!(Answer::decode(&bytes).unwrap().encode(), bytes);
        }
        for bundle in &world.bundles {
            assert_eq!(Answer::decode(bundle).unwrap().encode(), *bundle);
        }
    }
}

#[test]
fn honest_answers_are_accepted() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let world = world(scheme);
        for question in questions(scheme) {
            let bytes = world.holdings.answer(&world.devices, &question).encode();
            assert_eq!(verify_answer(&world, &question, &bytes), Ok(()), "{scheme:?} {question:?}");
        }
    }
}

#[test]
fn rejects_every_lie_with_a_name_of_its_table() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        rejects(LIES, scheme, &world(scheme));
    }
}

#[test]
fn rejects_lies_about_cells_of_version_2_with_a_name_of_their_table() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let world = world_of_version_2(scheme);
        for question in questions(scheme) {
            let bytes = world.holdings.answer(&world.devices, &question).encode();
            assert_eq!(verify_answer(&world, &question, &bytes), Ok(()), "{scheme:?} {question:?}");
        }
        rejects(SCHEMA_2_LIES, scheme, &world);
    }
}

fn rejects(lies: &[Lie], scheme: Scheme, world: &World) {
    let mut wrong = Vec::new();
    let accomplice =
        |device: DeviceId, message: &[u8]| Some(sign(world.keys.get(&device)?, message));
    for lie in lies.iter().filter(|lie| lie.schemes.include(scheme)) {
        let mut applied = 0;
        for question in questions(scheme) {
            let context = context(world, question, &accomplice);
            let honest = world.holdings.answer(&world.devices, &question);
            let mut answer = honest.clone();
            if !(lie.alter)(&mut answer, &context) {
                assert_eq!(answer, honest, "{}: not applied, but the answer is changed", lie.name);
                continue;
            }
            applied += 1;
            let verdict = verify_answer(world, &question, &answer.encode());
            let name = verdict.err().unwrap_or_else(|| "accepted".into());
            if !lie.expected.contains(&name.as_str()) {
                wrong.push(format!("{} ({scheme:?}, {:?}): {name}", lie.name, question.choice));
                continue;
            }
            if name != "NotAuthentic" {
                continue;
            }
            let run = failed_run(world, &answer).unwrap();
            let mut show = |device, index| honest_explanation(world, device, index);
            let found =
                explain_run(&world.roster, Limits::default(), &run, &|_, _| None, &mut show);
            let found = found.err().map_or("NotAuthentic", |found| found.finding.name());
            if lie.explained.map(|explains| explains.of(scheme)) != Some(found) {
                wrong.push(format!(
                    "{} ({scheme:?}, {:?}) explained: {found}",
                    lie.name, question.choice
                ));
            }
        }
        if applied == 0 {
            wrong.push(format!("{} ({scheme:?}): never applied", lie.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rejects_lies_about_explanations_with_a_name_of_their_table() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let world = world(scheme);
        let accomplice = |_: DeviceId, _: &[u8]| None;
        let question = questions(scheme)[0];
        let context = context(&world, question, &accomplice);
        let mut answer = world.holdings.answer(&world.devices, &question);
        assert!((moteseal_adversary::find("altered-reading").unwrap().alter)(
            &mut answer,
            &context
        ));
        let run = failed_run(&world, &answer).unwrap();
        for lie in EXPLAIN_LIES.iter().filter(|lie| lie.schemes.include(scheme)) {
            let mut show = |device, index| {
                let honest = honest_explanation(&world, device, index)?;
                let honest = Explanation { seal: honest.seal, digests: honest.digests };
                (lie.alter)(&honest, device, index, &context)
                    .map(|lie| Explained { seal: lie.seal, digests: lie.digests })
            };
            let found =
                explain_run(&world.roster, Limits::default(), &run, &|_, _| None, &mut show);
            let found = found.unwrap_err().finding.name();
            assert!(lie.expected.contains(&found), "{} ({scheme:?}): {found}", lie.name);
        }
    }
}

#[test]
fn names_are_distinct() {
    let mut names: Vec<&str> =
        LIES.iter().map(|lie| lie.name).chain(EXPLAIN_LIES.iter().map(|lie| lie.name)).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count >= 50);
}
