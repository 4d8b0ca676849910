//! Vectors of manifests in streams, and of bundles without the levels below a round
//! (spec/answers.md, sections 1 and 2).

use moteseal_core::record::Scheme;
use moteseal_core::signature::Algorithm;
use moteseal_verify::write;
use serde_json::json;

use super::coordinator::{file_within, group_within, id, manifest};
use super::parts::{ALL, EVENTS, SELECT, SIGNATURE, file_of_streams};
use super::{File, Files, of};
use moteseal_fixtures::cbor_tree::{
    NULL, Value, array, bytes, encode_sequence, int, sequence, text,
};
use moteseal_fixtures::world::{
    BUDGETED, Device, Epoch, FIXED, LEVELS, Pick, Sealed, coordinator, operator, roster_within,
    schema, stream,
};

const ED: Algorithm = Algorithm::Ed25519;

pub fn make(files: &mut Files) {
    files.add(manifests());
    files.add(strangers());
    files.add(pruned());
    files.add(unlimited());
}

pub fn device(name: &'static str) -> Device {
    Device::new(&group_within(ED), name, &schema(FIXED))
}

/// Returns a manifest encoded as a stream item.
pub fn item(manifest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write::manifest(&mut out, manifest);
    out
}

fn manifests() -> File {
    let mut file = file_within(
        "stream/manifests.json",
        "Manifests in streams: answers.md, section 2, step 5.",
        ED,
    );
    let fixed = schema(FIXED);
    let mut north = device("north");
    let sealed = [7, 8].map(|epoch| north.seal(&Epoch::new(Scheme::Star, epoch, 20)));
    let run = stream(&fixed, &sealed, &ALL);
    let listed = |at: usize| vec![(id("north"), vec![sealed[at].seal.digest()])];
    let (first, second) = (item(&manifest(7, 0, &listed(0))), item(&manifest(8, 1, &listed(1))));
    let other = item(&manifest(7, 2, &[]));
    let mut end = Vec::new();
    write::end(&mut end);
    for (name, pieces) in [
        ("alone", vec![&first]),
        ("before a run", vec![&first, &second, &run]),
        ("behind a run", vec![&run, &first]),
        ("between two runs", vec![&run, &first, &run]),
        ("descending", vec![&second, &first]),
        ("one of an epoch twice", vec![&first, &first]),
        ("two of one epoch", vec![&first, &other]),
        ("behind the end", vec![&end, &first]),
        ("before the end", vec![&first, &run, &second, &end]),
    ] {
        file.valid(
            name,
            "stream.read",
            of(&pieces.into_iter().flatten().copied().collect::<Vec<u8>>()),
        );
    }
    let raw = manifest(7, 0, &listed(0));
    for (name, item, error) in [
        ("of one element", array([int(7)]), "UnexpectedType"),
        ("of three elements", array([int(7), bytes(&raw), NULL]), "UnexpectedType"),
        ("of null", array([int(7), NULL]), "UnexpectedType"),
        ("of a text", array([int(7), text("moteseal")]), "UnexpectedType"),
        ("that is not wrapped", array([int(7), Value::decode(&raw)]), "UnexpectedType"),
        ("of nothing", array([int(7), bytes(b"")]), "Truncated"),
        ("of an array", array([int(7), bytes(&[0x80])]), "UnexpectedType"),
        (
            "with bytes behind it",
            array([int(7), bytes(&[&raw[..], &[0]].concat())]),
            "TrailingBytes",
        ),
        ("cut short", array([int(7), bytes(&raw[..raw.len() - 1])]), "Truncated"),
        (
            "with another byte in its signature",
            array([int(7), bytes(&changed_last(&raw))]),
            "NotAuthentic",
        ),
        (
            "of an epoch that the roster does not have",
            array([int(7), bytes(&manifest(4, 0, &[]))]),
            "EpochOutOfRange",
        ),
        (
            "of a round above the levels",
            array([int(7), bytes(&manifest(7, 9, &[]))]),
            "RoundOutOfRange",
        ),
        (
            "that is a seal",
            array([int(7), bytes(&write::sign1(&sealed[0].seal, &sealed[0].signature))]),
            "WrongType",
        ),
    ] {
        file.invalid(format!("a manifest {name}"), "stream.read", of(&item.encode()), error);
        let followed = [&run[..], &item.encode()].concat();
        file.invalid(
            format!("behind a run, a manifest {name}"),
            "stream.read",
            of(&followed),
            error,
        );
    }
    let mut within = sequence(&run);
    within.insert(3, Value::decode(&first));
    file.invalid("within a run", "stream.read", of(&encode_sequence(&within)), "Unsigned");
    within[3] = array([int(7), bytes(&changed_last(&raw))]);
    file.invalid(
        "within a run, and not authentic",
        "stream.read",
        of(&encode_sequence(&within)),
        "Unsigned",
    );
    within[3] = array([int(7)]);
    file.invalid(
        "within a run, and no item",
        "stream.read",
        of(&encode_sequence(&within)),
        "UnexpectedType",
    );
    within.truncate(3);
    let torn = [encode_sequence(&within), first.clone()].concat();
    file.invalid("behind a part that no signature proves", "stream.read", of(&torn), "Unsigned");
    file
}

fn changed_last(bytes: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    changed
}

/// Returns the vectors of a group without a coordinator.
fn strangers() -> File {
    let mut file = file_of_streams(
        "stream/no-coordinator.json",
        "Manifests where the roster names no coordinator: answers.md, section 2.",
    );
    let mut end = Vec::new();
    write::end(&mut end);
    file.valid("none", "stream.read", of(&end));
    for (name, bytes) in
        [("a manifest", manifest(7, 0, &[])), ("nonsense", vec![0xff]), ("nothing", Vec::new())]
    {
        file.invalid(name, "stream.read", of(&item(&bytes)), "NoCoordinator");
    }
    file
}

/// Returns three stars of epoch 7: one with 40 events, one of a device that raised its own round,
/// and one that lost events.
fn kinds() -> [Sealed; 3] {
    let plain = device("north").seal(&Epoch::new(Scheme::Star, 7, 40));
    let mut raised = Epoch::new(Scheme::Star, 7, 60);
    (raised.round, raised.own_round) = (1, 2);
    let mut lossy = Epoch::new(Scheme::Star, 7, 60);
    lossy.lost = Some(vec![0, 0, 3, 0, 0, 0, 0, 0]);
    [plain, device("south").seal(&raised), device("west").seal(&lossy)]
}

/// Like [`kinds`], but for trees, which never lose events.
fn trees() -> [Sealed; 2] {
    let plain = device("north").seal(&Epoch::new(Scheme::Tree, 7, 40));
    let mut raised = Epoch::new(Scheme::Tree, 7, 60);
    (raised.round, raised.own_round) = (1, 2);
    [plain, device("south").seal(&raised)]
}

fn from(round: u32) -> Pick {
    Pick::Levels(0xffu32.checked_shl(round).unwrap_or(0) & 0xff)
}

fn pruned() -> File {
    let mut file = file_within(
        "stream/pruned.json",
        "Bundles that lack the levels below a round: answers.md, section 1.",
        ED,
    );
    let fixed = schema(FIXED);
    let bundle = |sealed: &Sealed, pick: &Pick| stream(&fixed, std::slice::from_ref(sealed), pick);
    let ended = |epoch: u64, round: u8| item(&manifest(epoch, round, &[]));
    let [plain, raised, lossy] = kinds();
    assert!((0..5).all(|level| !plain.at_level(level).is_empty()), "levels 0 to 4 have events");
    let op = "stream.bundle";
    let [tree, raised_tree] = trees();
    for (kind, sealed) in [
        ("a star", &plain),
        ("a star from the device's own round on", &raised),
        ("a star with losses", &lossy),
        ("a tree", &tree),
        ("a tree from the device's own round on", &raised_tree),
    ] {
        file.valid(format!("{kind}, whole"), op, of(&bundle(sealed, &ALL)));
        for round in 1..=8u8 {
            let pruned = bundle(sealed, &from(round.into()));
            let exact = [ended(7, round), pruned.clone()].concat();
            file.valid(format!("{kind}, from the manifest's round {round} on"), op, of(&exact));
        }
        file.valid(
            format!("{kind}, more than the manifest's round asks for"),
            op,
            of(&[ended(7, 5), bundle(sealed, &from(3))].concat()),
        );
        file.invalid(format!("{kind}, no manifest"), op, of(&bundle(sealed, &from(3))), "NotWhole");
        for (name, manifests) in [
            ("a round too low", ended(7, 2)),
            ("of another epoch", [ended(6, 8), ended(8, 8)].concat()),
        ] {
            let pruned = [manifests, bundle(sealed, &from(4))].concat();
            file.invalid(format!("{kind}, the manifest is of {name}"), op, of(&pruned), "NotWhole");
        }
        let followed = [bundle(sealed, &from(4)), ended(7, 4)].concat();
        file.invalid(format!("{kind}, the manifest stands behind"), op, of(&followed), "NotWhole");
        let surviving = sealed.seal.statement().surviving();
        let lowest = surviving & surviving.wrapping_neg();
        let second = (surviving ^ lowest) & (surviving ^ lowest).wrapping_neg();
        for (name, mask) in [
            ("a hole above the first level", surviving ^ second),
            ("the first level alone", lowest),
            ("the second level alone", second),
            ("all but the last level", surviving ^ 1 << surviving.ilog2()),
        ] {
            let holed = [ended(7, 8), bundle(sealed, &Pick::Levels(mask))].concat();
            file.invalid(format!("{kind}, {name}"), op, of(&holed), "NotWhole");
        }
    }
    let two = |rounds: [u8; 2]| {
        [ended(7, rounds[0]), ended(7, rounds[1]), bundle(&plain, &from(4))].concat()
    };
    file.valid("two manifests of the epoch, the first is enough", op, of(&two([4, 1])));
    file.valid("two manifests of the epoch, the second is enough", op, of(&two([1, 4])));
    file.invalid("two manifests of the epoch, neither is enough", op, of(&two([1, 3])), "NotWhole");
    file.valid(
        "the round of all levels, and nothing kept",
        op,
        of(&[ended(7, LEVELS), bundle(&plain, &Pick::Levels(0))].concat()),
    );
    let kept: Vec<u64> = (0..40).filter(|&seq| tree.level(seq as usize) >= 2).collect();
    let one_by_one = [ended(7, 2), bundle(&tree, &Pick::Events(kept))].concat();
    file.invalid("a tree, what the round leaves one by one", op, of(&one_by_one), "NotWhole");
    let events = Pick::Events((0..40).collect());
    file.invalid(
        "a tree, all events one by one",
        op,
        of(&[ended(7, 8), bundle(&tree, &events)].concat()),
        "NotWhole",
    );

    // This run covers several epochs. Each epoch has the levels from its final round on.
    let mut north = device("north");
    let sealed = [(7, 60), (8, 10), (9, 90)]
        .map(|(epoch, count)| north.seal(&Epoch::new(Scheme::Star, epoch, count)));
    let run = |picks: [Pick; 3]| {
        let mut out = [ended(7, 2), ended(8, 0), ended(9, 3)].concat();
        write::schema(&mut out, &fixed);
        out.extend(sealed[0].open(true));
        for (at, (one, pick)) in sealed.iter().zip(&picks).enumerate() {
            out.extend(one.part(pick, at == 2));
        }
        out
    };
    file.valid("a run of three epochs", op, of(&run([from(2), from(0), from(3)])));
    file.invalid(
        "a run of three epochs, the first lacks a level",
        op,
        of(&run([from(3), from(0), from(3)])),
        "NotWhole",
    );
    file.invalid(
        "a run of three epochs, the last lacks a level",
        op,
        of(&run([from(2), from(0), from(4)])),
        "NotWhole",
    );
    let mut unproven = sequence(&run([from(3), from(0), from(3)]));
    unproven[7] = unproven[7].with(SIGNATURE, bytes(&[9; 64]));
    file.invalid(
        "a run that lacks a level, and is not proven",
        op,
        of(&encode_sequence(&unproven)),
        "NotAuthentic",
    );

    // The events of a pruned part are verified like those of any other part.
    let good = sequence(&[ended(7, 3), bundle(&plain, &from(3))].concat());
    let Value::Array(fields) = &good[3] else { panic!() };
    let Value::Bytes(kept) = fields[EVENTS].clone() else { panic!() };
    let with = |field: usize, value: Value| {
        let mut changed = good.clone();
        changed[3] = changed[3].with(field, value);
        of(&encode_sequence(&changed))
    };
    let mut other = kept.clone();
    other[0] ^= 1;
    file.invalid("another byte in what was kept", op, with(EVENTS, bytes(&other)), "NotAuthentic");
    file.invalid(
        "an event less than was kept",
        op,
        with(EVENTS, bytes(&kept[4..])),
        "EventsLength",
    );
    file.invalid("said to be pruned higher", op, with(SELECT, int(0x10)), "DigestCount");
    let own = sequence(&bundle(&raised, &from(2)));
    let mut below = own.clone();
    below[2] = below[2].with(SELECT, int(0xfe));
    file.invalid(
        "a level below the device's own round",
        op,
        of(&encode_sequence(&below)),
        "SelectOutOfRange",
    );
    for (name, pick) in [
        ("from its own round on", from(2)),
        ("from a higher round on", from(5)),
        ("nothing", Pick::Levels(0)),
    ] {
        file.valid(
            format!("read as part of an answer: {name}"),
            "stream.read",
            of(&bundle(&raised, &pick)),
        );
    }
    file
}

/// Returns the vectors of a group with a coordinator and no budget, in which nothing is pruned.
fn unlimited() -> File {
    let roster = roster_within(BUDGETED, None, Some(&coordinator(ED).public()));
    let opened = moteseal_verify::Roster::open(&roster, &operator().public()).unwrap();
    let about = "A group with a coordinator and no budget: nothing is pruned there. Section 4.";
    let mut file = File::new("stream/no-budget.json", about)
        .operator(&operator())
        .shared("roster", json!(hex::encode(&roster)));
    let one = Device::new(&opened, "north", &schema(FIXED)).seal(&Epoch::new(Scheme::Star, 7, 40));
    let ended = item(&super::coordinator::manifest_under(opened.digest(), 7, 3, &[]));
    let bundle = |pick: &Pick| {
        [ended.clone(), stream(&schema(FIXED), std::slice::from_ref(&one), pick)].concat()
    };
    file.valid("whole", "stream.bundle", of(&bundle(&ALL)));
    file.invalid(
        "from the manifest's round on",
        "stream.bundle",
        of(&bundle(&from(3))),
        "NotWhole",
    );
    file
}
