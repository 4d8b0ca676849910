//! Vectors of records of health, of the rows of their streams, and of their frames (spec/health.md).

use moteseal_core::cbor::Writer;
use moteseal_core::health::{Columns, Health, Item, MAX_ENCODED};
use moteseal_core::schema::MAX_SCHEMA;
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int, text};
use moteseal_seal::wire::{HealthFrame, HealthSession};
use serde_json::{Value as Json, json};

use super::{File, Files, GROUP, GROUP_SECRET, id, key, of_down, of_up, ours, secret_of, tagged};

pub(super) fn make(files: &mut Files) {
    files.add(records());
    files.add(rows());
    files.add(up());
    files.add(down());
}

fn encoded(health: &Health) -> Vec<u8> {
    let mut out = [0; MAX_ENCODED];
    let mut out = Writer::new(&mut out);
    health.encode(&mut out).unwrap();
    out.finish().to_vec()
}

/// Returns a record in which each value is the extreme of its kind.
fn extreme(value: i64) -> Health {
    let mut health = Health::new(u32::MAX, u32::MAX);
    Item::all().for_each(|item| {
        health.set(item, value);
    });
    health
}

fn some() -> Health {
    let mut health = Health::new(3, 86_400);
    health.set(Item::Temperature, 235).set(Item::ClockOffset, -12).set(Item::LinkBadCrc, 70_000);
    health.set(Item::Rssi, -87).set(Item::Nd6Dropped, 1).set(Item::Waiting, 2);
    health
}

fn of_record(record: &[u8]) -> Json {
    json!({ "record": hex::encode(record) })
}

/// Returns vectors of records.
fn records() -> File {
    let mut file = File::new("health/records.json", "Records of health: health.md, section 1.");
    let op = "health.record";
    let good = encoded(&some());
    for (what, record) in [
        ("nothing is known", encoded(&Health::new(0, 0))),
        ("some values", good.clone()),
        ("the largest values", encoded(&extreme(i64::from(i32::MAX)))),
        ("the least gauges, and totals that wrap", encoded(&extreme(i64::from(i32::MIN)))),
        (
            "a later value and a later group",
            array([
                int(1),
                int(0),
                int(0),
                array([int(1), int(2), int(3), int(4), int(-5)]),
                NULL,
                NULL,
                NULL,
                NULL,
                NULL,
                NULL,
                array([int(1)]),
                array([NULL, int(-1_000_000_000_000)]),
            ])
            .encode(),
        ),
    ] {
        file.valid(what, op, of_record(&record));
    }
    let fields = array([int(1), int(5), int(6), array([int(7)])]);
    for (what, item, error) in [
        ("two fields", array([int(1), int(0)]), "UnexpectedType"),
        ("no array", bytes(b"record"), "UnexpectedType"),
        ("another version", fields.with(0, int(2)), "UnsupportedVersion"),
        ("a start of 2^32", fields.with(1, int(1 << 32)), "FieldOutOfRange"),
        ("a time as a text", fields.with(2, text("6")), "UnexpectedType"),
        ("a group that is a number", fields.with(3, int(7)), "UnexpectedType"),
        ("a gauge of 2^31", fields.with(3, array([int(1 << 31)])), "FieldOutOfRange"),
        (
            "a negative total",
            array([int(1), int(5), int(6), NULL, array([int(-1)])]),
            "FieldOutOfRange",
        ),
        ("a value as a text", fields.with(3, array([text("7")])), "UnexpectedType"),
        ("null at the end of a group", fields.with(3, array([int(7), NULL])), "NonCanonical"),
        ("an empty group", fields.with(3, array([])), "NonCanonical"),
        ("null at the end", fields.with(3, NULL), "NonCanonical"),
    ] {
        file.invalid(what, op, of_record(&item.encode()), error);
    }
    let long = vec![int(1); 520];
    let long = array([int(1), int(5), int(6), Value::Array(long)]).encode();
    file.invalid("more than 512 bytes", op, of_record(&long), "FieldOutOfRange");
    file
}

/// Returns vectors of rows.
fn rows() -> File {
    let mut file =
        File::new("health/rows.json", "The rows of streams of health: health.md, section 6.");
    for (what, columns, node) in [("own", Columns::Own, ""), ("relayed", Columns::Relayed, "north")]
    {
        let mut buffer = vec![0; MAX_SCHEMA];
        let schema = hex::encode(columns.schema(&mut buffer).unwrap().as_bytes());
        for (which, health) in [
            ("nothing is known", Health::new(0, 0)),
            ("some values", some()),
            ("the largest values", extreme(i64::from(i32::MAX))),
            ("values that stand for null", extreme(-1 << 31)),
            ("a total that stands for null", extreme(-1)),
        ] {
            let record = hex::encode(encoded(&health));
            let input = json!({ "schema": schema, "record": record, "at": 1_700_000_000_123_u64, "node": node });
            file.valid(format!("{what}: {which}"), "health.row", input);
        }
    }
    file
}

/// Returns vectors of reports.
fn up() -> File {
    let mut file =
        File::new("link/health.json", "Frames with a device's health: health.md, section 5.");
    let op = "link.health";
    let closed = |session, interval_s, health| {
        let frame = HealthFrame { session, interval_s, health };
        frame.close(id("north"), &key(), &mut [0; 512]).unwrap().to_vec()
    };
    let good = closed(7, 30, some());
    file.valid("a report", op, of_up(&good));
    file.valid("no session", op, of_up(&closed(0, 0, Health::new(0, 0))));
    file.valid("the largest values", op, of_up(&closed(u64::MAX, u32::MAX, extreme(-1))));
    file.mutate("changed everywhere", op, of_up(&good), "frame", &[0x01, 0x20, 0x80]);
    let record = array([int(1), int(5), int(6), array([int(7)])]);
    let fields = array([int(8), bytes(&id("north").0), int(9), int(30), record.clone()]);
    assert!(HealthFrame::open(&ours(&fields.encode()), &key()).is_ok());
    for (what, item) in [
        ("another kind", fields.with(0, int(7))),
        ("an interval of 2^32", fields.with(3, int(1 << 32))),
        ("a record of another version", fields.with(4, record.with(0, int(2)))),
        ("a record that is a string", fields.with(4, bytes(b"record"))),
        ("four fields", Value::Array(fields.clone().elements()[..4].to_vec())),
    ] {
        let frame = ours(&item.encode());
        file.invalid(format!("{what}, with the right tag"), op, of_up(&frame), "Malformed");
    }
    file
}

/// Returns vectors of offers of sessions.
fn down() -> File {
    let mut file = File::new(
        "link/health_session.json",
        "The coordinator's offers of sessions of reports: health.md, section 5.",
    );
    let op = "link.health_session";
    let closed = |session, unix_ms, answers| {
        let offer = HealthSession { session, unix_ms, answers };
        offer.close(id("north"), &key(), &mut [0; 64]).unwrap().to_vec()
    };
    let good = closed(8, 1_700_000_000_123, (3, 86_400));
    file.valid("an offer", op, of_down(&good, "north"));
    file.valid("the least values", op, of_down(&closed(1, 0, (0, 0)), "north"));
    let largest = closed(u64::MAX, u64::MAX, (u32::MAX, u32::MAX));
    file.valid("the largest values", op, of_down(&largest, "north"));
    file.mutate("changed everywhere", op, of_down(&good, "north"), "frame", &[0x01, 0x20, 0x80]);
    file.invalid("session 0", op, of_down(&closed(0, 0, (0, 0)), "north"), "Malformed");
    file.invalid("to another device", op, of_down(&good, "south"), "NotAuthentic");
    let secret = secret_of(&GROUP_SECRET, GROUP, id("north"));
    let fields = array([int(20), bytes(&id("north").0), int(8), int(9), int(3), int(4)]);
    for (what, item) in [
        ("another kind", fields.with(0, int(19))),
        ("another device's id", fields.with(1, bytes(&id("south").0))),
        ("a start of 2^32", fields.with(4, int(1 << 32))),
        ("a negative time", fields.with(3, int(-1))),
        ("five fields", Value::Array(fields.clone().elements()[..5].to_vec())),
    ] {
        let frame = tagged(&secret, "down", &item.encode());
        let what = format!("{what}, with the right tag");
        file.invalid(what, op, of_down(&frame, "north"), "Malformed");
    }
    file
}
