//! Vectors of private sums (spec/sums.md): keys and encryption, opening, participants and frames.
//! The attacks of a party that knows keys are constructed by arithmetic on records, because the API
//! offers no other way.

use moteseal_core::record::{DeviceId, GroupId};
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{Master, Psr, SUM_LIMIT, Slot};
use serde_json::{Value as Json, json};

use super::links::{secret_of, tagged};
use super::{File, Files};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::GROUP;

const MASTER: [u8; 32] = [0x6d; 32];
const QUERY: [u8; 16] = *b"a query's number";
const EPOCH: u64 = 58_000_000;
/// The largest value of a source in these files, unless a case states another one.
const VMAX: u128 = 1000;
/// `p - 1`, big-endian.
const MINUS_ONE: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff42";
/// `2^-160` modulo `p`, big-endian.
const OVER_2_160: &str = "fa94fea53fa94fea53fa94fea53fa94fea53fa94ffffffffffffffffffffff47";

pub fn make(files: &mut Files) {
    files.add(encrypted());
    files.add(opened());
    files.add(participation());
    files.add(up());
    files.add(refusals());
    files.add(explained());
}

fn device(name: &str) -> DeviceId {
    DeviceId::of(GROUP, name)
}

fn psr(name: &str, key_group: u32, query: [u8; 16], slot: u8, epoch: u64, value: u128) -> Psr {
    let mut permit = EpochGuard::default().advance(QueryId(query), 1, epoch).unwrap();
    let source = Master::new(MASTER)
        .source(GroupId::of(GROUP), device(name), key_group)
        .for_query(QueryId(query));
    source.encrypt(&mut permit, Slot(slot), value).unwrap()
}

/// Returns the record of a source in key group 0, for slot 0 of the epoch.
fn record_of(name: &str, value: u128) -> Psr {
    psr(name, 0, QUERY, 0, EPOCH, value)
}

/// Returns a record multiplied by a factor, which is given as big-endian hexadecimal digits.
fn times(psr: Psr, factor: &str) -> Psr {
    let factor = hex::decode(factor).unwrap();
    let bits = factor.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    bits.fold(Psr::ZERO, |sum, bit| {
        let twice = sum.merge(&sum);
        if bit == 1 { twice.merge(&psr) } else { twice }
    })
}

fn minus(one: Psr, other: Psr) -> Psr {
    one.merge(&times(other, MINUS_ONE))
}

fn encrypted() -> File {
    let mut file = File::new(
        "sum/encrypted.json",
        "Keys of sources and what they send: sums.md, sections 1 and 2.",
    );
    let op = "sum.encrypt";
    let input = |name: &str, key_group: u32, query: [u8; 16], slot: u8, epoch: u64, value: u128| {
        json!({
            "master": hex::encode(MASTER), "group": GroupId::of(GROUP).to_string(), "device": device(name).to_string(),
            "key_group": key_group, "query": hex::encode(query), "slot": slot, "epoch": epoch, "value": value.to_string(),
        })
    };
    for (what, input) in [
        ("zero", input("north", 0, QUERY, 0, EPOCH, 0)),
        ("one", input("north", 0, QUERY, 0, EPOCH, 1)),
        ("another source", input("south", 0, QUERY, 0, EPOCH, 1)),
        ("another key group", input("north", 1, QUERY, 0, EPOCH, 1)),
        ("the last key group", input("north", u32::MAX, QUERY, 0, EPOCH, 1)),
        ("another query", input("north", 0, [0; 16], 0, EPOCH, 1)),
        ("another slot", input("north", 0, QUERY, 1, EPOCH, 1)),
        ("the last slot there can be", input("north", 0, QUERY, 16, EPOCH, 1)),
        ("the next epoch", input("north", 0, QUERY, 0, EPOCH + 1, 1)),
        ("an epoch of more than 32 bits", input("north", 0, QUERY, 0, 0x0102_0304_0506_0708, 1)),
        ("epoch 0", input("north", 0, QUERY, 0, 0, 1)),
        ("a value of 64 bits", input("north", 0, QUERY, 0, EPOCH, u64::MAX.into())),
        ("the largest value of one source", input("north", 0, QUERY, 0, EPOCH, SUM_LIMIT - 1)),
    ] {
        file.valid(what, op, input);
    }
    let mut zeros = input("north", 0, QUERY, 0, EPOCH, 7);
    zeros["master"] = json!(hex::encode([0; 32]));
    file.valid("a master secret of zeros", op, zeros);
    let mut group = input("north", 0, QUERY, 0, EPOCH, 7);
    group["group"] = json!(GroupId::of("others").to_string());
    file.valid("another group", op, group);
    for value in [SUM_LIMIT, u128::MAX] {
        file.invalid(
            format!("a value of {value}"),
            op,
            input("north", 0, QUERY, 0, EPOCH, value),
            "ValueTooLarge",
        );
    }
    file
}

fn of_records(participants: &[&str], psrs: &[Psr]) -> Json {
    let ids: Vec<String> = participants.iter().map(|name| device(name).to_string()).collect();
    let psrs: Vec<String> = psrs.iter().map(|psr| hex::encode(psr.to_bytes())).collect();
    json!({
        "master": hex::encode(MASTER), "group": GroupId::of(GROUP).to_string(), "key_group": 0, "query": hex::encode(QUERY),
        "slot": 0, "epoch": EPOCH, "vmax": VMAX.to_string(), "participants": ids, "psrs": psrs,
    })
}

fn with(input: &Json, field: &str, value: Json) -> Json {
    let mut input = input.clone();
    input[field] = value;
    input
}

fn opened() -> File {
    let mut file =
        File::new("sum/opened.json", "Sums of one key group and slot, opened: sums.md, section 2.");
    let op = "sum.open";
    let all = ["north", "south", "east", "west"];
    let honest: Vec<Psr> =
        all.iter().zip([0, 20, 22, VMAX]).map(|(name, value)| record_of(name, value)).collect();
    let sum = honest.iter().fold(Psr::ZERO, |sum, psr| sum.merge(psr));
    let names: Vec<String> = (0..40).map(|i| format!("mote{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many: Vec<Psr> =
        names.iter().zip(0..).map(|(name, value)| record_of(name, value)).collect();
    let vmax = |input: &Json, vmax: u128| with(input, "vmax", json!(vmax.to_string()));
    let large = (SUM_LIMIT - 1) / 4 - 1;
    let largest: Vec<Psr> = all.iter().map(|name| record_of(name, large)).collect();
    for (what, input) in [
        ("one source", of_records(&["south"], &honest[1..2])),
        ("four sources", of_records(&all, &honest)),
        ("four sources, added up before", of_records(&all, &[sum])),
        (
            "three of four",
            of_records(&["north", "south", "west"], &[honest[0], honest[1], honest[3]]),
        ),
        ("forty sources, whose shares carry", of_records(&names, &many)),
        ("nobody", of_records(&[], &[])),
        ("nobody, as a record of zero", of_records(&[], &[Psr::ZERO])),
        ("all at the largest value", vmax(&of_records(&all, &largest), large)),
        ("exactly what the participants may say", vmax(&of_records(&["south"], &honest[1..2]), 20)),
        (
            "more than one may say, but not than two may",
            vmax(&of_records(&["north", "south"], &honest[..2]), 10),
        ),
        ("in the order they came", of_records(&["west", "north", "east", "south"], &honest)),
    ] {
        file.valid(what, op, input);
    }

    // `unit` is K * 2^160 and `share` is K. Only a source knows K; here both are computed from two
    // records of a source.
    let unit = minus(record_of("south", 21), record_of("south", 20));
    let share = times(unit, OVER_2_160);
    let south = honest[1];
    let zero = record_of("south", 0);
    let largest_sum = times(unit, &format!("{:024x}", SUM_LIMIT - 1));
    for (what, input, error) in [
        ("a participant's record is missing", of_records(&all, &honest[..3]), "SharesMismatch"),
        ("somebody's record who is not named", of_records(&all[..3], &honest), "SharesMismatch"),
        ("a record twice", of_records(&["south"], &[south, south]), "SharesMismatch"),
        ("a participant named twice", of_records(&["south", "south"], &[south]), "SharesMismatch"),
        ("another participant's", of_records(&["north"], &[south]), "SharesMismatch"),
        ("a participant of nothing", of_records(&["south"], &[]), "SharesMismatch"),
        ("a record of nobody", of_records(&[], &[south]), "SharesMismatch"),
        (
            "of the epoch before",
            of_records(&["south"], &[psr("south", 0, QUERY, 0, EPOCH - 1, 20)]),
            "SharesMismatch",
        ),
        (
            "of another slot",
            of_records(&["south"], &[psr("south", 0, QUERY, 1, EPOCH, 20)]),
            "SharesMismatch",
        ),
        (
            "of another query",
            of_records(&["south"], &[psr("south", 0, [0; 16], 0, EPOCH, 20)]),
            "SharesMismatch",
        ),
        (
            "of another key group",
            of_records(&["south"], &[psr("south", 1, QUERY, 0, EPOCH, 20)]),
            "SharesMismatch",
        ),
        (
            "a 1 added by somebody without a key",
            {
                let mut one = [0; 32];
                one[31] = 1;
                of_records(&["south"], &[south.merge(&Psr::from_bytes(&one).unwrap())])
            },
            "SharesMismatch",
        ),
        ("doubled", of_records(&["south"], &[south.merge(&south)]), "SharesMismatch"),
        (
            "a share too much by 1, by a source",
            of_records(&["south"], &[south.merge(&share)]),
            "SharesMismatch",
        ),
        (
            "a remainder of -1, by a source",
            of_records(&["south"], &[minus(zero, share)]),
            "SharesMismatch",
        ),
        (
            "a value of -1, by a source",
            of_records(&["south"], &[minus(zero, unit)]),
            "SharesMismatch",
        ),
        (
            "one more than it may say",
            of_records(&["south"], &[record_of("south", VMAX + 1)]),
            "SumOutOfRange",
        ),
        (
            "one more than two may say",
            of_records(
                &["north", "south"],
                &[record_of("north", VMAX), record_of("south", VMAX + 1)],
            ),
            "SumOutOfRange",
        ),
        (
            "one where only zero may be said",
            vmax(&of_records(&["south"], &[record_of("south", 1)]), 0),
            "SumOutOfRange",
        ),
        (
            "the largest sum there can be",
            of_records(&["south"], &[zero.merge(&largest_sum)]),
            "SumOutOfRange",
        ),
        ("zero for nobody, one unit more", of_records(&[], &[unit]), "SumOutOfRange"),
        (
            "p",
            with(&of_records(&["south"], &[]), "psrs", json!([format!("{}43", "f".repeat(62))])),
            "NotCanonical",
        ),
        (
            "2^256 - 1",
            with(&of_records(&["south"], &[]), "psrs", json!(["f".repeat(64)])),
            "NotCanonical",
        ),
        (
            "31 bytes",
            with(&of_records(&["south"], &[]), "psrs", json!(["0".repeat(62)])),
            "TruncatedPsr",
        ),
        (
            "33 bytes",
            with(&of_records(&["south"], &[]), "psrs", json!(["0".repeat(66)])),
            "TruncatedPsr",
        ),
        ("no bytes", with(&of_records(&["south"], &[]), "psrs", json!([""])), "TruncatedPsr"),
    ] {
        file.invalid(what, op, input, error);
    }
    let epoch = with(&of_records(&["south"], &[south]), "epoch", json!(EPOCH + 1));
    file.invalid("opened for another epoch", op, epoch, "SharesMismatch");
    let slot = with(&of_records(&["south"], &[south]), "slot", json!(1));
    file.invalid("opened for another slot", op, slot, "SharesMismatch");
    let master = with(&of_records(&["south"], &[south]), "master", json!(hex::encode([0x6c; 32])));
    file.invalid("opened with another master secret", op, master, "SharesMismatch");
    // Subtract the sum of the values, 0 + 1 + ... + 39 = 780, and 1 more, so that the value of the
    // sum is -1. The shares of forty sources together exceed 2^160, so they hide the negative
    // value: the decrypted number is positive.
    let below = many.iter().fold(times(unit, MINUS_ONE), |sum, psr| sum.merge(psr));
    let below = minus(below, times(unit, &format!("{:04x}", 780)));
    file.invalid(
        "a value of -1 of forty sources, by a source",
        op,
        of_records(&names, &[below]),
        "SharesMismatch",
    );
    // A change of any bit is detected. Changes that make the record p or more are not tested here.
    file.invalid(
        "p - 1",
        op,
        with(&of_records(&["south"], &[]), "psrs", json!([MINUS_ONE])),
        "SharesMismatch",
    );
    for bit in [0, 7, 100, 159, 160, 200, 255] {
        let mut changed = south.to_bytes();
        changed[31 - bit / 8] ^= 1 << (bit % 8);
        let input = with(&of_records(&["south"], &[]), "psrs", json!([hex::encode(changed)]));
        file.invalid(format!("bit {bit} is turned around"), op, input, "SharesMismatch");
    }
    file
}

fn participation() -> File {
    let mut file = File::new(
        "sum/participation.json",
        "Sets of positions and their encodings: sums.md, section 5.",
    );
    let every_other =
        |from: u32, until: u32| (from..until).step_by(2).map(|at| [at, at + 1]).collect::<Vec<_>>();
    for (what, runs, sources) in [
        ("nobody", vec![], 1),
        ("the first", vec![[0, 1]], 1),
        ("the second", vec![[1, 2]], 2),
        ("a head of one byte", vec![[63, 64]], 64),
        ("a head of two bytes", vec![[64, 65]], 65),
        ("the last position there can be", vec![[(1 << 31) - 1, 1 << 31]], 1_u32 << 31),
        ("everybody", vec![[0, 1000]], 1000),
        ("a run of 128", vec![[3, 131]], 131),
        ("a run of 129", vec![[3, 132]], 132),
        ("two runs with one between", vec![[0, 1], [2, 3]], 3),
        ("two runs with 128 between", vec![[0, 1], [129, 130]], 130),
        ("two runs with 129 between", vec![[0, 1], [130, 131]], 131),
        ("three runs, where a bitmap is as long", vec![[0, 10], [11, 20], [21, 40]], 40),
        ("three runs in a byte", vec![[0, 1], [2, 3], [4, 5]], 8),
        ("two runs in two bytes", vec![[3, 7], [9, 14]], 16),
        ("a bitmap as long as runs, which count", vec![[0, 1], [2, 17]], 17),
        ("every other one", every_other(0, 100), 100),
        ("every other one from 1", every_other(1, 64), 64),
        ("every other one behind a base", every_other(1003, 1040), 2000),
        ("a bitmap whose base has two bytes", every_other(512, 600), 600),
        ("a bitmap whose base has one byte", every_other(504, 592), 600),
        ("all but one of a thousand", vec![[0, 500], [501, 1000]], 1000),
    ] {
        file.valid(format!("{what}, encoded"), "sum.participants", json!({ "runs": runs }));
        let mut words = vec![0_u64; runs.last().map_or(0, |run| run[1]) as usize / 64 + 1];
        let single = runs.len() == 1 && runs[0][1] - runs[0][0] == 1;
        let mut out = vec![0; words.len() * 8 + 16];
        let length = if single {
            moteseal_core::participation::Participation::encode_one(runs[0][0], &mut out)
        } else {
            runs.iter()
                .flat_map(|run| run[0]..run[1])
                .for_each(|at| words[at as usize / 64] |= 1 << (at % 64));
            moteseal_core::participation::Participation::encode(&words, &mut out)
        };
        let encoded = hex::encode(&out[..length.unwrap()]);
        file.valid(
            format!("{what}, read"),
            "sum.participation",
            json!({ "bytes": encoded, "sources": sources }),
        );
    }
    for (what, bytes, sources, error) in [
        ("a position beyond the last", "0200", 1, "UnknownPosition"),
        ("a run that ends beyond the last", "0001", 1, "UnknownPosition"),
        ("a second run beyond the last", "00001c00", 30, "UnknownPosition"),
        ("a bitmap whose last is beyond", "0155", 6, "UnknownPosition"),
        ("anybody where nobody is", "0000", 0, "UnknownPosition"),
        ("a head alone", "00", 64, "MalformedParticipation"),
        ("a head cut short", "80", 64, "MalformedParticipation"),
        ("a length cut short", "0080", 64, "MalformedParticipation"),
        ("a gap without a length", "000000", 64, "MalformedParticipation"),
        ("a gap cut short", "000080", 64, "MalformedParticipation"),
        ("a head in too many bytes", "800000", 64, "MalformedParticipation"),
        ("a length in too many bytes", "008000", 64, "MalformedParticipation"),
        ("a gap in too many bytes", "0000800000", 64, "MalformedParticipation"),
        ("a head of six bytes", "80808080800000", 64, "MalformedParticipation"),
        ("a head of more than 32 bits", "808080801000", 64, "MalformedParticipation"),
        ("a bitmap without a byte", "01", 64, "MalformedParticipation"),
        ("a bitmap of nothing", "0100", 64, "MalformedParticipation"),
        ("a bitmap where runs are as long", "0101", 64, "MalformedParticipation"),
        ("a bitmap where runs are shorter", "01ffff", 64, "MalformedParticipation"),
        ("a bitmap that begins with a zero byte", "010055", 64, "MalformedParticipation"),
        ("a bitmap that ends with a zero byte", "015500", 64, "MalformedParticipation"),
        ("a bitmap's base in too many bytes", "810055", 64, "MalformedParticipation"),
        ("runs where a bitmap is shorter", "000000000000", 64, "MalformedParticipation"),
    ] {
        file.invalid(
            what,
            "sum.participation",
            json!({ "bytes": bytes, "sources": sources }),
            error,
        );
    }
    file
}

const CHILDREN_SECRET: [u8; 32] = [0x48; 32];

fn of_frame(frame: &[u8], child: &str) -> Json {
    json!({
        "hub_secret": hex::encode(CHILDREN_SECRET), "group": GroupId::of(GROUP).to_string(), "child": device(child).to_string(),
        "frame": hex::encode(frame),
    })
}

/// Returns the frame of an item, with a tag under the secret that the device `north` shares with
/// its parent.
fn from_child(item: &Value) -> Vec<u8> {
    tagged(&secret_of(&CHILDREN_SECRET, GROUP, device("north")), "up", &item.encode())
}

fn share(participation: &[u8], psrs: &[Psr]) -> Value {
    let psrs = psrs.iter().map(|psr| bytes(&psr.to_bytes())).collect();
    array([
        int(4),
        bytes(&QUERY[..4]),
        Value::Uint(EPOCH),
        bytes(participation),
        Value::Array(psrs),
    ])
}

fn child(name: &str, participation: &[u8], psrs: &[Psr]) -> Value {
    let psrs = psrs.iter().map(|psr| bytes(&psr.to_bytes())).collect();
    array([bytes(&device(name).0), bytes(participation), Value::Array(psrs)])
}

fn children(first: i64, total: i64, children: &[Value]) -> Value {
    let node = bytes(&device("gateway").0);
    array([
        int(5),
        bytes(&QUERY[..4]),
        Value::Uint(EPOCH),
        node,
        int(first),
        int(total),
        Value::Array(children.to_vec()),
    ])
}

fn refusal(reason: &str) -> Value {
    let tag = bytes(&[7; 8]);
    array([int(6), bytes(&QUERY[..4]), Value::Uint(EPOCH), int(3), text(reason), tag])
}

fn refusals() -> File {
    let mut file = File::new("sum/refusals.json", "The tags of refusals: sums.md, section 4.1.");
    for (name, query, epoch, reason) in [
        ("north", QUERY, EPOCH, "NoReading"),
        ("north", QUERY, EPOCH + 1, "NoReading"),
        ("north", [9; 16], EPOCH, "NoReading"),
        ("north", QUERY, EPOCH, "BudgetSpent"),
        ("south", QUERY, 0, "X"),
    ] {
        let input = json!({
            "master": hex::encode(MASTER),
            "group": GroupId::of(GROUP).to_string(),
            "device": device(name).to_string(),
            "query": hex::encode(query),
            "epoch": epoch,
            "reason": reason,
        });
        file.valid(format!("{reason} of {name} in epoch {epoch}"), "sum.refusal", input);
    }
    file
}

fn up() -> File {
    let mut file = File::new(
        "sum/up.json",
        "Shares and the children of a node, as a hub opens them: sums.md, section 4.",
    );
    let op = "sum.up";
    let good = share(&[0, 1], &[record_of("north", 1), psr("north", 0, QUERY, 1, EPOCH, 40)]);
    let two = [
        child("east", &[0, 0], &[record_of("east", 3)]),
        child("west", &[2, 0], &[record_of("west", 4)]),
    ];
    for (what, item) in [
        ("a share of two slots", good.clone()),
        ("a share of nobody", share(&[], &[])),
        ("a share of no slots that names somebody", share(&[0, 0], &[])),
        ("a participation that is none: whose business it is comes later", share(&[0x80], &[])),
        ("a record of zero", share(&[0, 0], &[Psr::ZERO])),
        ("the last epoch", good.with(2, Value::Uint(u64::MAX))),
        ("no children", children(0, 0, &[])),
        ("two children", children(0, 2, &two)),
        ("the second page", children(1, 2, &two[1..])),
        ("a page behind the last", children(7, 2, &[])),
        ("more children in all than are on the page", children(0, 4_294_967_295, &two)),
        ("a refusal", refusal("BudgetSpent")),
        ("a refusal with the longest name", refusal(&"a1Z9".repeat(10))),
        ("a refusal of the last position", refusal("NoReading").with(3, int(4_294_967_295))),
        ("a child that had said it has nobody", children(0, 1, &[child("east", &[], &[])])),
    ] {
        file.valid(what, op, of_frame(&from_child(&item), "north"));
    }
    let frame = from_child(&share(&[0, 0], &[Psr::ZERO]));
    file.mutate("changed everywhere", op, of_frame(&frame, "north"), "frame", &[0x01, 0x80]);
    let key = secret_of(&CHILDREN_SECRET, GROUP, device("north"));
    let item = &frame[..frame.len() - 16];
    for (what, frame, child, error) in [
        ("nothing", Vec::new(), "north", "Malformed"),
        ("15 bytes", vec![0; 15], "north", "Malformed"),
        ("a tag alone, of nothing", tagged(&key, "up", b""), "north", "Malformed"),
        ("of another child", frame.clone(), "south", "NotAuthentic"),
        ("the tag of the other direction", tagged(&key, "down", item), "north", "NotAuthentic"),
        (
            "of another hub",
            tagged(&secret_of(&[0x49; 32], GROUP, device("north")), "up", item),
            "north",
            "NotAuthentic",
        ),
        (
            "of another group",
            tagged(&secret_of(&CHILDREN_SECRET, "others", device("north")), "up", item),
            "north",
            "NotAuthentic",
        ),
        ("a byte behind the tag", [&frame[..], &[0]].concat(), "north", "NotAuthentic"),
        ("a byte before the tag", tagged(&key, "up", &[item, &[0]].concat()), "north", "Malformed"),
        (
            "cut short before the tag",
            tagged(&key, "up", &item[..item.len() - 1]),
            "north",
            "Malformed",
        ),
    ] {
        file.invalid(what, op, of_frame(&frame, child), error);
    }
    let page = children(0, 2, &two);
    let of_psrs = |psrs: Value| good.with(4, psrs);
    for (what, item, error) in [
        ("a record of 31 bytes", of_psrs(Value::Array(vec![bytes(&[0; 31])])), "TruncatedPsr"),
        ("a record of 33 bytes", of_psrs(Value::Array(vec![bytes(&[0; 33])])), "TruncatedPsr"),
        ("a record of 2^256 - 1", of_psrs(Value::Array(vec![bytes(&[0xff; 32])])), "NotCanonical"),
        ("a record that is a text", of_psrs(Value::Array(vec![text("x")])), "Malformed"),
        ("records that are bytes", of_psrs(bytes(&[0; 32])), "Malformed"),
        ("records of null", of_psrs(NULL), "Malformed"),
        ("another kind", good.with(0, int(3)), "Malformed"),
        ("the children's kind", good.with(0, int(5)), "Malformed"),
        ("the explain frame's kind", good.with(0, int(18)), "Malformed"),
        ("a reference of 3 bytes", good.with(1, bytes(&QUERY[..3])), "Malformed"),
        ("a reference of 5 bytes", good.with(1, bytes(&QUERY[..5])), "Malformed"),
        ("a reference that is a number", good.with(1, int(7)), "Malformed"),
        ("an epoch of -1", good.with(2, int(-1)), "Malformed"),
        ("a participation of null", good.with(3, NULL), "Malformed"),
        ("four fields", Value::Array(good.clone().elements()[..4].to_vec()), "Malformed"),
        ("six fields", Value::Array([&good.clone().elements()[..], &[NULL]].concat()), "Malformed"),
        ("a tag around it", Value::Tag(18, Box::new(good.clone())), "Malformed"),
        ("a refusal without a reason", refusal(""), "Malformed"),
        ("a reason of 41 letters", refusal(&"a".repeat(41)), "Malformed"),
        ("a reason with a blank", refusal("No Reading"), "Malformed"),
        ("a reason with a letter that is not ASCII", refusal("Nö"), "Malformed"),
        ("a reason of bytes", refusal("X").with(4, bytes(b"X")), "Malformed"),
        ("a position of 2^32", refusal("X").with(3, Value::Uint(1 << 32)), "Malformed"),
        ("a tag of 7 bytes", refusal("X").with(5, bytes(&[7; 7])), "Malformed"),
        ("a refusal's kind of share", good.with(0, int(6)), "Malformed"),
        ("a share's kind of children", page.with(0, int(4)), "Malformed"),
        ("a node of 7 bytes", page.with(3, bytes(&[0; 7])), "Malformed"),
        ("a first of 2^32", page.with(4, Value::Uint(1 << 32)), "Malformed"),
        ("a total of 2^32", page.with(5, Value::Uint(1 << 32)), "Malformed"),
        ("a first of -1", page.with(4, int(-1)), "Malformed"),
        ("children of null", page.with(6, NULL), "Malformed"),
        (
            "a child of two fields",
            page.with(6, Value::Array(vec![Value::Array(two[0].clone().elements()[..2].to_vec())])),
            "Malformed",
        ),
        (
            "a child of an id of 9 bytes",
            page.with(6, Value::Array(vec![two[0].with(0, bytes(&[0; 9]))])),
            "Malformed",
        ),
        (
            "a child's participation of null",
            page.with(6, Value::Array(vec![two[0].with(1, NULL)])),
            "Malformed",
        ),
        (
            "a child's record of 31 bytes",
            page.with(6, Value::Array(vec![two[0].with(2, array([bytes(&[0; 31])]))])),
            "TruncatedPsr",
        ),
        (
            "a child's record of p",
            {
                let p = hex::decode(format!("{}43", "f".repeat(62))).unwrap();
                page.with(6, Value::Array(vec![two[0].with(2, array([bytes(&p)]))]))
            },
            "NotCanonical",
        ),
        (
            "children in six fields",
            Value::Array(page.clone().elements()[..6].to_vec()),
            "Malformed",
        ),
    ] {
        file.invalid(
            format!("{what}, with the right tag"),
            op,
            of_frame(&from_child(&item), "north"),
            error,
        );
    }
    file
}

fn explained() -> File {
    let mut file =
        File::new("sum/explain.json", "A hub's question to a node beneath it: sums.md, section 4.");
    let op = "sum.explain";
    let key = secret_of(&CHILDREN_SECRET, GROUP, device("north"));
    let closed = |item: &Value| tagged(&key, "down", &item.encode());
    let good = array([
        int(18),
        bytes(&QUERY[..4]),
        Value::Uint(EPOCH),
        bytes(&device("gateway").0),
        int(0),
    ]);
    for (what, item) in [
        ("the first page", good.clone()),
        ("a later page", good.with(4, int(300))),
        (
            "as far as can be",
            good.with(2, Value::Uint(u64::MAX)).with(4, Value::Uint(u32::MAX.into())),
        ),
    ] {
        file.valid(what, op, of_frame(&closed(&item), "north"));
    }
    for (what, item) in [
        ("another kind", good.with(0, int(16))),
        ("a child's kind", good.with(0, int(4))),
        ("a reference of 3 bytes", good.with(1, bytes(&QUERY[..3]))),
        ("an epoch of -1", good.with(2, int(-1))),
        ("a node of 9 bytes", good.with(3, bytes(&[0; 9]))),
        ("a first of 2^32", good.with(4, Value::Uint(1 << 32))),
        ("a first of null", good.with(4, NULL)),
        ("four fields", Value::Array(good.clone().elements()[..4].to_vec())),
        ("six fields", Value::Array([&good.clone().elements()[..], &[NULL]].concat())),
    ] {
        file.invalid(
            format!("{what}, with the right tag"),
            op,
            of_frame(&closed(&item), "north"),
            "Malformed",
        );
    }
    file.invalid("to another child", op, of_frame(&closed(&good), "south"), "NotAuthentic");
    file.invalid(
        "the tag of the other direction",
        op,
        of_frame(&from_child(&good), "north"),
        "NotAuthentic",
    );
    file.mutate("changed everywhere", op, of_frame(&closed(&good), "north"), "frame", &[0x01]);
    file
}
