//! Vectors of the frames of urgent events: coordinator.md, section 8.

use moteseal_core::Digest;
use moteseal_fixtures::cbor_tree::{Value, array, bytes, int, text};
use moteseal_seal::wire::{EventAnswer, EventFrame};

use super::{
    File, Files, GROUP, GROUP_SECRET, ack_frame, id, key, of_down, of_up, ours, secret_of, tagged,
};

pub(super) fn make(files: &mut Files) {
    files.add(up());
    files.add(down());
}

/// Returns vectors of the frames with an event.
fn up() -> File {
    let mut file = File::new(
        "link/event.json",
        "Frames with an urgent event: coordinator.md, section 8. The schema and the event are checked later.",
    );
    let op = "link.event";
    let closed = |schema: &[u8], event: &[u8]| {
        let mut out = vec![0; 1 << 16];
        EventFrame { schema, event }.close(id("north"), &key(), &mut out).unwrap().to_vec()
    };
    let good = closed(b"\x81\x01", b"\xd2\x84\x40\xa0\x40\x40");
    file.valid("a schema and an event", op, of_up(&good));
    file.valid("empty strings", op, of_up(&closed(b"", b"")));
    file.valid("an event of 300 bytes", op, of_up(&closed(b"\x80", &[7; 300])));
    file.mutate("changed everywhere", op, of_up(&good), "frame", &[0x01, 0x20, 0x80]);
    let fields = array([int(7), bytes(&id("north").0), bytes(b"\x80"), bytes(b"\xd2")]);
    for (what, item) in [
        ("another kind", fields.with(0, int(3))),
        ("a schema that is no string", fields.with(2, array([]))),
        ("an event that is no string", fields.with(3, text("event"))),
        ("three fields", Value::Array(fields.clone().elements()[..3].to_vec())),
        ("five fields", Value::Array([&fields.clone().elements()[..], &[int(0)]].concat())),
    ] {
        let frame = ours(&item.encode());
        file.invalid(format!("{what}, with the right tag"), op, of_up(&frame), "Malformed");
    }
    file.invalid("less than a tag", op, of_up(&good[..9]), "Malformed");
    file
}

/// Returns vectors of the answers to events.
fn down() -> File {
    let mut file = File::new(
        "link/event_answer.json",
        "The coordinator's answers to urgent events: coordinator.md, section 8.",
    );
    let op = "link.event_answer";
    let digest = Digest::of(&[b"event"]);
    let closed = |answer: EventAnswer<'_>| {
        answer.close(id("north"), &key(), &mut [0; 160]).unwrap().to_vec()
    };
    let refused = |is_final, name| closed(EventAnswer::Refused { digest, is_final, name });
    let long = "x".repeat(48);
    let (stored, good) = (closed(EventAnswer::Stored { digest }), refused(true, "KeyEnded"));
    for (what, frame) in [
        ("stored", &stored),
        ("refused for good", &good),
        ("refused for now", &refused(false, "TooManyUrgent")),
        ("the longest name", &refused(true, &long)),
    ] {
        file.valid(what, op, of_down(frame, "north"));
    }
    for (what, frame) in [("stored, changed", &stored), ("refused, changed", &good)] {
        file.mutate(what, op, of_down(frame, "north"), "frame", &[0x01, 0x20, 0x80]);
    }
    for (what, frame, name, error) in [
        ("an acknowledgement", ack_frame("down"), "north", "Malformed"),
        ("to another device", stored, "south", "NotAuthentic"),
        ("no name", refused(true, ""), "north", "Malformed"),
        ("a name with a space", refused(true, "Key Ended"), "north", "Malformed"),
    ] {
        file.invalid(what, op, of_down(&frame, name), error);
    }
    let secret = secret_of(&GROUP_SECRET, GROUP, id("north"));
    let stored = array([int(18), bytes(&id("north").0), bytes(&digest.0)]);
    let refused = [int(19), bytes(&id("north").0), bytes(&digest.0), int(1), text("KeyEnded")];
    let refused = array(refused);
    for (what, item) in [
        ("stored, another device's id", stored.with(1, bytes(&id("south").0))),
        ("stored, another kind", stored.with(0, int(19))),
        ("stored, a digest of 31 bytes", stored.with(2, bytes(&digest.0[..31]))),
        ("refused, another kind", refused.with(0, int(18))),
        ("refused, another device's id", refused.with(1, bytes(&id("south").0))),
        ("refused, 2 is final", refused.with(3, int(2))),
        ("refused, a name of bytes", refused.with(4, bytes(b"KeyEnded"))),
        ("refused, four fields", Value::Array(refused.clone().elements()[..4].to_vec())),
    ] {
        let frame = tagged(&secret, "down", &item.encode());
        let what = format!("{what}, with the right tag");
        file.invalid(what, op, of_down(&frame, "north"), "Malformed");
    }
    file
}
