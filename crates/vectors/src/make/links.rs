//! Vectors of frames between devices and their coordinator, both valid and with every kind of fault
//! (spec/coordinator.md, section 4).

use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::record::Scheme;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, GroupId, Level, Round, SealIndex, Sequence,
};
use moteseal_seal::wire::{
    Acknowledgement, Forward, MAX_ACKNOWLEDGEMENT, Refusal, StoredSeal, Uplink, encode_event,
};
use serde_json::{Value as Json, json};

use super::coordinator::id;
use super::pruned::device;
use super::{File, Files};
use moteseal_fixtures::cbor_tree::{FALSE, NULL, Value, array, bytes, head, int, text};
use moteseal_fixtures::world::{Epoch, FIXED, GROUP, Pick, schema};

mod events;
mod reports;

const GROUP_SECRET: [u8; 32] = [0x51; 32];

pub fn make(files: &mut Files) {
    files.add(up());
    files.add(down());
    files.add(refusals());
    events::make(files);
    reports::make(files);
    files.add(followed());
}

/// Returns the HMAC-SHA256 (RFC 2104) of a message.
fn hmac(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    Digest::of(&[&pad(0x5c), &Digest::of(&[&pad(0x36), message]).0]).0
}

pub fn secret_of(group_secret: &[u8; 32], group: &str, device: DeviceId) -> [u8; 32] {
    hmac(group_secret, &[&b"moteseal/1/link"[..], &GroupId::of(group).0, &device.0].concat())
}

pub fn tagged(secret: &[u8; 32], direction: &str, item: &[u8]) -> Vec<u8> {
    let key = hmac(secret, format!("moteseal/1/link/{direction}").as_bytes());
    [item, &hmac(&key, item)[..16]].concat()
}

fn key() -> LinkKey {
    LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, GroupId::of(GROUP), id("north")))
}

/// Returns a frame of the device `north`.
fn frame(uplink: &Uplink<'_>) -> Vec<u8> {
    let mut out = vec![0; 1 << 16];
    uplink.close(id("north"), &key(), &mut out).unwrap().to_vec()
}

/// Returns an item with the tag of an uplink frame of the device `north`.
fn ours(item: &[u8]) -> Vec<u8> {
    tagged(&secret_of(&GROUP_SECRET, GROUP, id("north")), "up", item)
}

fn of_up(frame: &[u8]) -> Json {
    let (secret, group) = (hex::encode(GROUP_SECRET), GroupId::of(GROUP).to_string());
    json!({ "group_secret": secret, "group": group, "frame": hex::encode(frame) })
}

fn events(from: u64, framing: Framing, events: &[(u64, u8, &[u8])]) -> Vec<u8> {
    let mut buffer = [0; 4096];
    let (mut out, mut next) = (Writer::new(&mut buffer), Sequence(from));
    for (seq, level, record) in events {
        let prefix = (framing == Framing::Prefixed)
            .then(|| u16::try_from(record.len()).unwrap().to_be_bytes());
        encode_event(&mut out, next, Sequence(*seq), Level(*level), prefix, record).unwrap();
        next = Sequence(seq + 1);
    }
    out.finish().to_vec()
}

fn forward<'a>(from: u64, until: u64, framing: Framing, events: &'a [u8]) -> Forward<'a> {
    let (index, epoch, own_round) = (SealIndex(7), EpochNumber(30), Round(2));
    Forward {
        index,
        epoch,
        own_round,
        from: Sequence(from),
        until: Sequence(until),
        framing,
        events,
        digests: None,
    }
}

fn up() -> File {
    let mut file = File::new("link/up.json", "Frames of devices: coordinator.md, section 4.");
    let op = "link.up";
    for (name, group_secret) in
        [("north", [0x51; 32]), ("south", [0x51; 32]), ("north", [0xa0; 32])]
    {
        let device = id(name);
        let secret = LinkKey::secret_of(&group_secret, GroupId::of(GROUP), device);
        assert_eq!(*secret, secret_of(&group_secret, GROUP, device));
        let (group_secret, group) = (hex::encode(group_secret), GroupId::of(GROUP).to_string());
        let input =
            json!({ "group_secret": group_secret, "group": group, "device": device.to_string() });
        file.valid(format!("the link secret of {name}"), "link.secret", input);
    }
    let four = Framing::fixed(4).unwrap();
    let some = events(
        40,
        four,
        &[(40, 2, &[1; 4]), (41, 31, &[2; 4]), (49, 0, &[3; 4]), (75, 5, &[4; 4])],
    );
    let opaque =
        events(0, Framing::Prefixed, &[(0, 2, b""), (3, 7, b"fire"), (9, 2, &[0x66; 300])]);
    let last = u64::from(u32::MAX) - 1;
    let far = events(0, four, &[(last, 4, &[5; 4])]);
    for (name, forward) in [
        ("records of one size", forward(40, 80, four, &some)),
        ("up to the last event", forward(40, 76, four, &some)),
        ("opaque records", forward(0, 10, Framing::Prefixed, &opaque)),
        ("no events of a range", forward(5, 90, four, b"")),
        ("nothing of no range", forward(9, 9, four, b"")),
        ("the last event that a seal may have", forward(0, u64::from(u32::MAX), four, &far)),
        (
            "no events of an empty range at the end",
            forward(u64::from(u32::MAX), u64::from(u32::MAX), four, b""),
        ),
        (
            "the last index, epoch and round",
            Forward {
                index: SealIndex(u32::MAX),
                epoch: EpochNumber(u64::MAX),
                own_round: Round(31),
                ..forward(40, 80, four, &some)
            },
        ),
    ] {
        file.valid(format!("forward: {name}"), op, of_up(&frame(&Uplink::Forward(forward))));
    }
    let digests = |count: usize| -> Vec<u8> {
        (0..count).flat_map(|at| Digest::of(&[&at.to_be_bytes()]).0).collect()
    };
    let ends = events(0, four, &[(0, 2, &[1; 4]), (last, 2, &[2; 4])]);
    for (name, range, framing, events, count) in [
        ("records of one size", 40..80, four, &some[..], 3 + 6 + 1),
        ("up to the last event", 40..76, four, &some[..], 3 + 6),
        ("opaque records", 0..10, Framing::Prefixed, &opaque[..], 2 + 2),
        ("no event", 5..90, four, &b""[..], 3 + 5),
        ("one perfect subtree", 64..128, four, b"", 1),
        ("nothing of no range", 9..9, four, b"", 0),
        (
            "the first and the last event that a seal may have",
            0..last + 1,
            four,
            &ends[..],
            31 + 30,
        ),
    ] {
        let digests = digests(count);
        let forward =
            Forward { digests: Some(&digests), ..forward(range.start, range.end, framing, events) };
        file.valid(
            format!("forward of a tree: {name}"),
            op,
            of_up(&frame(&Uplink::Forward(forward))),
        );
    }
    let mut north = device("north");
    let sealed = north.seal(&Epoch::new(Scheme::Star, 30, 40));
    let (open, part) = (sealed.open(true), sealed.part(&Pick::Levels(0xfc), true));
    let close = Uplink::Close { schema: Digest([0x44; 32]), open: &open, part: &part };
    file.valid("close", op, of_up(&frame(&close)));
    let nothing = Uplink::Close { schema: Digest::NULL, open: b"", part: b"\xff" };
    file.valid("close: what it holds is judged later", op, of_up(&frame(&nothing)));
    let fixed = schema(FIXED);
    file.valid("schema", op, of_up(&frame(&Uplink::Schema(&fixed))));
    file.valid("schema: what it holds is judged later", op, of_up(&frame(&Uplink::Schema(b""))));
    for challenge in [0, 7, 1 << 32, u64::MAX] {
        let challenge_frame = frame(&Uplink::Challenge(challenge));
        file.valid(format!("challenge {challenge}"), op, of_up(&challenge_frame));
    }
    let challenge = array([int(6), bytes(&id("north").0), Value::Uint(1 << 40)]);
    for (what, item) in [
        ("a negative challenge", challenge.with(2, int(-1))),
        ("a challenge of null", challenge.with(2, NULL)),
        ("a challenge of bytes", challenge.with(2, bytes(&[0; 8]))),
        ("a challenge of two fields", Value::Array(challenge.clone().elements()[..2].to_vec())),
        (
            "a challenge of four fields",
            Value::Array([&challenge.clone().elements()[..], &[int(0)]].concat()),
        ),
    ] {
        let frame = ours(&item.encode());
        file.invalid(format!("{what}, with the right tag"), op, of_up(&frame), "Malformed");
    }

    let good = frame(&Uplink::Forward(forward(40, 80, four, &some)));
    let item = &good[..good.len() - 16];
    assert_eq!(good, ours(item));
    for (name, frame) in [("forward", &good), ("schema", &frame(&Uplink::Schema(&fixed)))] {
        file.mutate(
            format!("{name}, changed everywhere"),
            op,
            of_up(frame),
            "frame",
            &[0x01, 0x20, 0x80],
        );
    }
    let north_secret = secret_of(&GROUP_SECRET, GROUP, id("north"));
    for (name, frame, error) in [
        ("nothing", Vec::new(), "Malformed"),
        ("ten bytes", good[..10].to_vec(), "Malformed"),
        ("no room for a tag", good[..15].to_vec(), "Malformed"),
        ("a tag alone", tagged(&north_secret, "up", b""), "Malformed"),
        ("a byte behind the tag", [&good[..], &[0]].concat(), "NotAuthentic"),
        ("a byte before the tag", ours(&[item, &[0]].concat()), "Malformed"),
        ("the item again before the tag", ours(&[item, item].concat()), "Malformed"),
        ("cut short before the tag", ours(&item[..item.len() - 1]), "Malformed"),
        ("no tag", item.to_vec(), "NotAuthentic"),
        ("a tag of zeros", [item, &[0; 16]].concat(), "NotAuthentic"),
        (
            "a tag of 32 bytes",
            [item, &hmac(&hmac(&north_secret, b"moteseal/1/link/up"), item)].concat(),
            "NotAuthentic",
        ),
        ("the tag of the other direction", tagged(&north_secret, "down", item), "NotAuthentic"),
        (
            "the tag of another device",
            tagged(&secret_of(&GROUP_SECRET, GROUP, id("south")), "up", item),
            "NotAuthentic",
        ),
        (
            "the tag of another group",
            tagged(&secret_of(&GROUP_SECRET, "others", id("north")), "up", item),
            "NotAuthentic",
        ),
        (
            "the tag of another group's secret",
            tagged(&secret_of(&[0x52; 32], GROUP, id("north")), "up", item),
            "NotAuthentic",
        ),
        (
            "the tag under the link secret itself",
            [item, &hmac(&north_secret, item)[..16]].concat(),
            "NotAuthentic",
        ),
        ("23 fields, no tag", [&[0x97, 3, 0x48], &good[3..]].concat(), "NotAuthentic"),
        ("24 fields, no tag", [&[0x98, 24, 3, 0x48], &good[3..]].concat(), "Malformed"),
        (
            "an array's head of three bytes, no tag",
            [&[0x99, 0, 0x48], &good[3..]].concat(),
            "Malformed",
        ),
        ("kind 23, no tag", [&[0x83, 0x17, 0x48], &good[3..]].concat(), "NotAuthentic"),
        ("kind 24, no tag", [&[0x83, 0x18, 24, 0x48], &good[3..]].concat(), "Malformed"),
        (
            "24 fields, with the right tag",
            ours(&[&[0x98, 24, 3], &item[2..]].concat()),
            "Malformed",
        ),
        ("an acknowledgement back", ack_frame("up"), "Malformed"),
        ("an acknowledgement as it came", ack_frame("down"), "NotAuthentic"),
    ] {
        file.invalid(name, op, of_up(&frame), error);
    }
    let north = bytes(&id("north").0);
    let fields = array([
        int(1),
        north.clone(),
        int(7),
        int(30),
        int(2),
        int(40),
        int(80),
        int(4),
        bytes(&some),
    ]);
    assert_eq!(ours(&fields.encode()), good);
    let wide = Value::Uint(1 << 32);
    let of_tree =
        |digests: &[u8]| Value::Array([&fields.clone().elements()[..], &[bytes(digests)]].concat());
    assert!(Uplink::open(&ours(&of_tree(&digests(10)).encode()), &key()).is_ok());
    let of_events = |events: &[u8]| fields.with(8, bytes(events));
    let opaque_fields = |events: &[u8]| of_events(events).with(7, int(0)).with(5, int(0));
    let raw =
        |gap_and_level: u64, record: &[u8]| [head(0, gap_and_level), record.to_vec()].concat();
    for (name, item) in [
        ("an index of 2^32", fields.with(2, wide.clone())),
        ("a negative index", fields.with(2, int(-1))),
        ("an epoch of null", fields.with(3, NULL)),
        ("a negative epoch", fields.with(3, int(-1))),
        ("round 32", fields.with(4, int(32))),
        ("round 256", fields.with(4, int(256))),
        ("a round of false", fields.with(4, FALSE)),
        ("from behind until", fields.with(5, int(81)).with(8, bytes(b""))),
        ("until 2^32", fields.with(6, wide.clone())),
        (
            "from 2^64-1",
            fields
                .with(5, Value::Uint(u64::MAX))
                .with(6, Value::Uint(u64::MAX))
                .with(8, bytes(b"")),
        ),
        ("an event at until", fields.with(6, int(75))),
        ("a size of 2^16", fields.with(7, int(1 << 16))),
        ("a size of text", fields.with(7, text("4"))),
        ("another size than the records'", fields.with(7, int(5))),
        ("events that are an array", fields.with(8, array([]))),
        ("events cut short", of_events(&some[..some.len() - 1])),
        ("a byte behind the events", of_events(&[&some[..], &[0]].concat())),
        ("events of an empty range", fields.with(6, int(40))),
        ("an event far away", of_events(&raw(u64::MAX, &[0; 4]))),
        (
            "two events far away",
            of_events(&[raw(32 * 39, &[0; 4]), raw(u64::MAX, &[0; 4])].concat()),
        ),
        ("a place in too many bytes", of_events(&[&[0x18, 0x17][..], &[0; 4]].concat())),
        (
            "a place in eight bytes that needs four",
            of_events(&[&[0x1b, 0, 0, 0, 0, 0, 0, 1, 0][..], &[0; 4]].concat()),
        ),
        ("a place of reserved form", of_events(&[&[0x1c][..], &[0; 4]].concat())),
        ("a negative place", of_events(&[&[0x20][..], &[0; 4]].concat())),
        ("a place cut short", of_events(&[0x19, 1])),
        ("an opaque record without its length", opaque_fields(&raw(2, &[0]))),
        ("an opaque record that is shorter than said", opaque_fields(&raw(2, &[0, 3, 1, 2]))),
        ("eight fields", Value::Array(fields.clone().elements()[..8].to_vec())),
        (
            "ten fields, the last of them no bytes",
            Value::Array([&fields.clone().elements()[..], &[int(0)]].concat()),
        ),
        ("no digests of a tree", of_tree(&digests(0))),
        ("a digest too few of a tree", of_tree(&digests(9))),
        ("a digest too many of a tree", of_tree(&digests(11))),
        ("a tree's last digest cut short", of_tree(&digests(10)[..319])),
        (
            "a digest of a tree without an event that is not there",
            of_tree(&digests(0)).with(6, int(40)).with(8, bytes(b"")).with(9, bytes(&[0; 32])),
        ),
        ("an event of a tree at until", of_tree(&digests(9)).with(6, int(75))),
        ("eleven fields", Value::Array([&of_tree(&digests(10)).elements()[..], &[NULL]].concat())),
        ("a kind of 0", fields.with(0, int(0))),
        (
            "a kind that was given up",
            array([int(4), north.clone(), int(7), bytes(b""), bytes(b"")]),
        ),
        ("a close of four fields", array([int(2), north.clone(), bytes(&[0; 32]), bytes(b"")])),
        (
            "a close of six fields",
            array([int(2), north.clone(), bytes(&[0; 32]), bytes(b""), bytes(b""), NULL]),
        ),
        (
            "a close with a schema's digest of 31 bytes",
            array([int(2), north.clone(), bytes(&[0; 31]), bytes(b""), bytes(b"")]),
        ),
        (
            "a close whose open is not wrapped",
            array([int(2), north.clone(), bytes(&[0; 32]), array([]), bytes(b"")]),
        ),
        (
            "a close without a part",
            array([int(2), north.clone(), bytes(&[0; 32]), bytes(b""), NULL]),
        ),
        ("a schema of two fields", array([int(3), north.clone()])),
        ("a schema of four fields", array([int(3), north.clone(), bytes(&fixed), NULL])),
        ("a schema that is not wrapped", array([int(3), north.clone(), Value::decode(&fixed)])),
        ("a device id of 7 bytes", array([int(3), bytes(&id("north").0[..7]), bytes(&fixed)])),
        ("a device id that is a text", array([int(3), text("northern"), bytes(&fixed)])),
        ("a kind that is a text", array([text("3"), north.clone(), bytes(&fixed)])),
        ("a tag around it", Value::Tag(18, Box::new(fields.clone()))),
        ("a map", Value::Map(vec![(int(3), north.clone())])),
    ] {
        file.invalid(
            format!("{name}, with the right tag"),
            op,
            of_up(&ours(&item.encode())),
            "Malformed",
        );
    }
    // In each of these frames one item has a non-deterministic encoding: the array's head, the
    // kind, an index, or a string's length.
    let encoded = array([int(3), north, bytes(&fixed)]).encode();
    let splice = |at: usize, remove: usize, with: &[u8]| {
        let mut changed = encoded.clone();
        changed.splice(at..at + remove, with.iter().copied());
        ours(&changed)
    };
    for (name, frame) in [
        ("an array's head in two bytes", splice(0, 1, &[0x98, 3])),
        ("an indefinite array", [&splice(0, 1, &[0x9f])[..]].concat()),
        ("a kind in two bytes", splice(1, 1, &[0x18, 3])),
        ("an id's length in two bytes", splice(2, 1, &[0x58, 8])),
        (
            "a schema's length in three bytes",
            splice(11, 2, &[0x59, 0, u8::try_from(fixed.len()).unwrap()]),
        ),
    ] {
        file.invalid(format!("{name}, with the right tag"), op, of_up(&frame), "Malformed");
    }
    file
}

/// Returns an acknowledgement. `sealed` is the index, the epoch and the mark `last_in_epoch` of the
/// stored seal.
fn ack(
    index: u32,
    next: u64,
    sealed: Option<(u32, u64, bool)>,
    wants_schema: bool,
    challenge: Option<u64>,
) -> Acknowledgement {
    let sealed = sealed.map(|(index, epoch, last_in_epoch)| StoredSeal {
        index: SealIndex(index),
        epoch: EpochNumber(epoch),
        last_in_epoch,
        digest: Digest(SEALED),
    });
    Acknowledgement {
        index: SealIndex(index),
        next: Sequence(next),
        sealed,
        wants_schema,
        challenge,
    }
}

/// The digest of the stored seal in the acknowledgements.
const SEALED: [u8; 32] = [0x66; 32];

/// Returns the fields of an acknowledgement, and the fields of the stored seal in it.
fn ack_fields() -> (Value, Value) {
    let sealed = array([int(6), int(30), int(1), bytes(&SEALED)]);
    let fields = [
        int(16),
        bytes(&id("north").0),
        int(7),
        int(40),
        sealed.clone(),
        int(1),
        Value::Uint(1 << 40),
    ];
    (array(fields), sealed)
}

/// Returns an acknowledgement whose tag is computed for the given direction.
fn ack_frame(direction: &str) -> Vec<u8> {
    let (item, _) = ack_fields();
    tagged(&secret_of(&GROUP_SECRET, GROUP, id("north")), direction, &item.encode())
}

fn of_down(frame: &[u8], name: &str) -> Json {
    let mut input = of_up(frame);
    input["device"] = json!(id(name).to_string());
    input
}

fn down() -> File {
    let mut file = File::new("link/down.json", "Acknowledgements: coordinator.md, section 5.");
    let op = "link.down";
    let closed = |ack: &Acknowledgement| {
        ack.close(id("north"), &key(), &mut [0; MAX_ACKNOWLEDGEMENT]).unwrap().to_vec()
    };
    for (name, ack) in [
        ("nothing yet", ack(0, 0, None, false, Some(0))),
        ("the schema is wanted", ack(0, 0, None, true, Some(1))),
        ("no challenge was received", ack(7, 40, Some((6, 30, true)), false, None)),
        ("events and seals", ack(7, 40, Some((6, 30, true)), false, Some(1 << 40))),
        ("the epoch of the seal continues", ack(7, 0, Some((6, 30, false)), false, Some(7))),
        (
            "as far as can be",
            ack(
                u32::MAX,
                u64::from(u32::MAX),
                Some((u32::MAX, u64::MAX, true)),
                true,
                Some(u64::MAX),
            ),
        ),
    ] {
        file.valid(name, op, of_down(&closed(&ack), "north"));
    }
    let good = closed(&ack(7, 40, Some((6, 30, true)), true, Some(1 << 40)));
    assert_eq!(good, ack_frame("down"));
    file.mutate("changed everywhere", op, of_down(&good, "north"), "frame", &[0x01, 0x20, 0x80]);
    let item = &good[..good.len() - 16];
    let secret = secret_of(&GROUP_SECRET, GROUP, id("north"));
    for (what, frame, name, error) in [
        ("nothing", Vec::new(), "north", "Malformed"),
        ("a tag alone, of nothing", tagged(&secret, "down", b""), "north", "Malformed"),
        ("15 bytes", vec![0; 15], "north", "Malformed"),
        ("16 zeros", vec![0; 16], "north", "NotAuthentic"),
        ("the tag of the other direction", ack_frame("up"), "north", "NotAuthentic"),
        ("to another device", good.clone(), "south", "NotAuthentic"),
        (
            "of another group",
            tagged(&secret_of(&GROUP_SECRET, "others", id("north")), "down", item),
            "north",
            "NotAuthentic",
        ),
        (
            "a byte before the tag",
            tagged(&secret, "down", &[item, &[0]].concat()),
            "north",
            "Malformed",
        ),
        ("a byte behind the tag", [&good[..], &[0]].concat(), "north", "NotAuthentic"),
        (
            "cut short before the tag",
            tagged(&secret, "down", &item[..item.len() - 1]),
            "north",
            "Malformed",
        ),
    ] {
        file.invalid(what, op, of_down(&frame, name), error);
    }
    let (fields, sealed) = ack_fields();
    let first = |count: usize| Value::Array(fields.clone().elements()[..count].to_vec());
    for (what, item) in [
        ("another device's id", fields.with(1, bytes(&id("south").0))),
        ("an id of 9 bytes", fields.with(1, bytes(&[0; 9]))),
        ("another kind", fields.with(0, int(17))),
        ("a device's kind", fields.with(0, int(1))),
        ("an index of 2^32", fields.with(2, Value::Uint(1 << 32))),
        ("a next of 2^32", fields.with(3, Value::Uint(1 << 32))),
        ("a negative next", fields.with(3, int(-1))),
        ("a next of null", fields.with(3, NULL)),
        ("a seal of false", fields.with(4, FALSE)),
        ("a seal without epoch and digest", fields.with(4, int(6))),
        ("a seal of 2^32", fields.with(4, sealed.with(0, Value::Uint(1 << 32)))),
        ("a seal of a negative epoch", fields.with(4, sealed.with(1, int(-1)))),
        ("a seal whose mark is 2", fields.with(4, sealed.with(2, int(2)))),
        ("a seal whose mark is true", fields.with(4, sealed.with(2, Value::Simple(21)))),
        ("a seal's digest of 31 bytes", fields.with(4, sealed.with(3, bytes(&SEALED[1..])))),
        ("a seal's digest of null", fields.with(4, sealed.with(3, NULL))),
        (
            "a seal of three fields",
            fields.with(4, Value::Array(sealed.clone().elements()[..3].to_vec())),
        ),
        (
            "a seal of five fields",
            fields.with(4, Value::Array([&sealed.clone().elements()[..], &[int(0)]].concat())),
        ),
        ("2 is wanted", fields.with(5, int(2))),
        ("256 is wanted", fields.with(5, int(256))),
        ("true is wanted", fields.with(5, Value::Simple(21))),
        ("a negative challenge", fields.with(6, int(-1))),
        ("a challenge of bytes", fields.with(6, bytes(&[0; 8]))),
        ("five fields", first(5)),
        ("six fields", first(6)),
        ("eight fields", Value::Array([&fields.clone().elements()[..], &[int(0)]].concat())),
        (
            "the form before challenges",
            array([int(16), bytes(&id("north").0), int(7), int(40), int(6), int(1)]),
        ),
    ] {
        let frame = tagged(&secret, "down", &item.encode());
        file.invalid(
            format!("{what}, with the right tag"),
            op,
            of_down(&frame, "north"),
            "Malformed",
        );
    }
    let mut long = item.to_vec();
    long.splice(11..12, [0x18, 7]);
    file.invalid(
        "an index in two bytes, with the right tag",
        op,
        of_down(&tagged(&secret, "down", &long), "north"),
        "Malformed",
    );
    file
}

fn refusals() -> File {
    let mut file = File::new(
        "link/refusal.json",
        "A coordinator's word that a seal is refused: coordinator.md, section 4.5.",
    );
    let op = "link.refusal";
    let closed = |index: u32, is_final: bool, name: &str| {
        let refusal = Refusal { index: SealIndex(index), is_final, name };
        refusal.close(id("north"), &key(), &mut [0; 128]).unwrap().to_vec()
    };
    for (what, frame) in [
        ("for good", closed(7, true, "EpochGoesBack")),
        ("for now", closed(0, false, "EpochTooFar")),
        ("as far as can be", closed(u32::MAX, true, &"x".repeat(48))),
    ] {
        file.valid(what, op, of_down(&frame, "north"));
    }
    let good = closed(7, true, "NotAsForwarded");
    file.mutate("changed everywhere", op, of_down(&good, "north"), "frame", &[0x01, 0x20, 0x80]);
    for (what, frame, name, error) in [
        ("an acknowledgement", ack_frame("down"), "north", "Malformed"),
        ("to another device", good.clone(), "south", "NotAuthentic"),
        ("a name of 49 letters", closed(7, true, &"x".repeat(49)), "north", "Malformed"),
        ("no name", closed(7, true, ""), "north", "Malformed"),
        ("a name with a space", closed(7, true, "Epoch GoesBack"), "north", "Malformed"),
        ("a name with what a terminal obeys", closed(7, true, "\u{1b}[2J"), "north", "Malformed"),
        ("a name that is not ASCII", closed(7, true, "Z\u{fc}rich"), "north", "Malformed"),
    ] {
        file.invalid(what, op, of_down(&frame, name), error);
    }
    let secret = secret_of(&GROUP_SECRET, GROUP, id("north"));
    let fields = array([int(17), bytes(&id("north").0), int(7), int(1), text("FramingChanged")]);
    for (what, item) in [
        ("another device's id", fields.with(1, bytes(&id("south").0))),
        ("another kind", fields.with(0, int(16))),
        ("an index of 2^32", fields.with(2, Value::Uint(1 << 32))),
        ("2 is final", fields.with(3, int(2))),
        ("true is final", fields.with(3, Value::Simple(21))),
        ("a name of bytes", fields.with(4, bytes(b"FramingChanged"))),
        ("four fields", Value::Array(fields.clone().elements()[..4].to_vec())),
        ("six fields", Value::Array([&fields.clone().elements()[..], &[int(0)]].concat())),
    ] {
        let frame = tagged(&secret, "down", &item.encode());
        file.invalid(
            format!("{what}, with the right tag"),
            op,
            of_down(&frame, "north"),
            "Malformed",
        );
    }
    file
}

/// Returns vectors of the forward frames of one device. A frame is given by its index, epoch, own
/// round, `from` and `until`, in the order of arrival.
fn followed() -> File {
    let about = "What forward frames are to one who follows a device: coordinator.md, section 4.6. A frame is its index, epoch, own round, from and until.";
    let mut file = File::new("link/followed.json", about);
    for (name, frames) in [
        ("one after the other", vec![[7, 30, 0, 0, 10], [7, 30, 0, 10, 25], [7, 30, 0, 25, 26]]),
        (
            "again",
            vec![[7, 30, 0, 0, 10], [7, 30, 0, 0, 10], [7, 30, 0, 10, 25], [7, 30, 0, 0, 10]],
        ),
        (
            "in another order",
            vec![[7, 30, 0, 0, 10], [7, 30, 0, 25, 40], [7, 30, 0, 10, 25], [7, 30, 0, 25, 40]],
        ),
        ("the first is lost", vec![[7, 30, 0, 10, 25], [7, 30, 0, 0, 10], [7, 30, 0, 10, 25]]),
        (
            "overlapping",
            vec![[7, 30, 0, 0, 10], [7, 30, 0, 5, 25], [7, 30, 0, 24, 25], [7, 30, 0, 0, 26]],
        ),
        (
            "of no events",
            vec![[7, 30, 0, 0, 0], [7, 30, 0, 0, 10], [7, 30, 0, 10, 10], [7, 30, 0, 11, 11]],
        ),
        (
            "the device raises itself",
            vec![[7, 30, 0, 0, 10], [7, 30, 3, 10, 25], [7, 30, 1, 25, 30], [7, 30, 5, 25, 30]],
        ),
        (
            "a raise that is not news",
            vec![[7, 30, 1, 0, 10], [7, 30, 4, 0, 10], [7, 30, 4, 20, 30]],
        ),
        (
            "the next seal",
            vec![[7, 30, 2, 0, 10], [8, 30, 0, 0, 5], [8, 30, 0, 5, 9], [7, 30, 0, 10, 12]],
        ),
        (
            "the next seal of a later epoch",
            vec![[7, 30, 2, 0, 10], [9, 32, 1, 0, 5], [8, 31, 0, 0, 5]],
        ),
        (
            "the next seal without its start",
            vec![[7, 30, 0, 0, 10], [8, 31, 0, 5, 9], [7, 30, 0, 10, 12], [8, 31, 0, 0, 5]],
        ),
        (
            "the next seal with no events yet",
            vec![[7, 30, 0, 0, 10], [8, 31, 0, 0, 0], [7, 30, 0, 10, 12]],
        ),
        (
            "the same seal in another epoch",
            vec![[7, 30, 0, 0, 10], [7, 31, 0, 10, 12], [7, 29, 0, 0, 12], [7, 30, 0, 10, 12]],
        ),
        (
            "to the last event",
            vec![
                [0, 5, 0, 0, u32::MAX - 1],
                [0, 5, 0, u32::MAX - 1, u32::MAX],
                [u32::MAX, 5, 31, 0, 1],
            ],
        ),
    ] {
        file.valid(name, "link.follow", json!({ "frames": frames }));
    }
    file
}
