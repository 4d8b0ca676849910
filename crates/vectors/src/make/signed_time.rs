//! Vectors of signed time (spec/time.md).

use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::signed_time::{MAX_TIME_STATEMENT, TimeChallenge, TimeSigner, TimeStatement};
use moteseal_fixtures::cbor_tree::{FALSE, NULL, Value, array, bytes, int};
use moteseal_fixtures::world::{GROUP, header, operator, secret, sign1};
use serde_json::json;

use super::{File, Files, public};

const TIME: &str = "moteseal-time+cose";
const OPEN: &str = "time.open";
const ED: Algorithm = Algorithm::Ed25519;
const UNIX_MS: u64 = 1_764_144_000_123;
const CHALLENGE: TimeChallenge = TimeChallenge([0x5a; 16]);

pub fn make(files: &mut Files) {
    files.add(challenges());
    files.add(statements());
    files.add(ranges());
}

fn querier() -> SecretKey {
    secret(ED, 44)
}

fn device() -> DeviceId {
    DeviceId::of(GROUP, "mote1")
}

fn challenges() -> File {
    let mut file = File::new("time/challenges.json", "Challenges of a mote: time.md, section 1.");
    for (secret, starts, count) in [
        ([0; 32], 1, 0),
        ([7; 32], 1, 0),
        ([7; 32], 1, 1),
        ([7; 32], 2, 0),
        ([7; 32], u32::MAX, u32::MAX),
    ] {
        file.valid(
            format!("number {count} of start {starts}"),
            "time.challenge",
            json!({ "secret": hex::encode(secret), "starts": starts, "count": count }),
        );
    }
    file
}

/// Returns the input of a mote that knows the keys of both signers.
fn given(statement: &[u8]) -> serde_json::Value {
    json!({
        "bytes": hex::encode(statement),
        "group": GroupId::of(GROUP).to_string(),
        "device": device().to_string(),
        "challenge": hex::encode(CHALLENGE.0),
        "operator": public(&operator()),
        "querier": public(&querier()),
    })
}

fn issued(role: TimeSigner, signer: &SecretKey, unix_ms: u64) -> Vec<u8> {
    let (group, device) = (GroupId::of(GROUP), device());
    let statement = TimeStatement { group, device, challenge: CHALLENGE, unix_ms };
    statement.issue(role, signer, &mut [0; MAX_TIME_STATEMENT]).unwrap().to_vec()
}

fn statements() -> File {
    let mut file =
        File::new("time/statements.json", "Time statements at a mote: time.md, section 2.2.");
    let genuine = issued(TimeSigner::Querier, &querier(), UNIX_MS);
    file.valid("of the querier", OPEN, given(&genuine));
    file.valid("of the operator", OPEN, given(&issued(TimeSigner::Operator, &operator(), UNIX_MS)));
    for unix_ms in [0, 23, u64::MAX] {
        let statement = issued(TimeSigner::Querier, &querier(), unix_ms);
        file.valid(format!("time {unix_ms}"), OPEN, given(&statement));
    }
    let p256 = secret(Algorithm::Esp256, 45);
    let mut of_p256 = given(&issued(TimeSigner::Operator, &p256, UNIX_MS));
    of_p256["operator"] = public(&p256);
    file.valid("of an operator with a P-256 key", OPEN, of_p256.clone());
    of_p256["operator"] = public(&operator());
    file.invalid("of another suite than the operator's", OPEN, of_p256, "AlgorithmMismatch");

    let with = |field: &str, value: serde_json::Value| {
        let mut input = given(&genuine);
        input[field] = value;
        input
    };
    let other = |length: usize| json!(hex::encode(vec![9; length]));
    for (name, field, value, error) in [
        ("at a mote of another group", "group", other(8), "WrongGroup"),
        ("at another mote", "device", other(8), "OtherDevice"),
        ("after another challenge", "challenge", other(16), "WrongChallenge"),
        ("at a mote without a querier", "querier", json!(null), "UnknownSigner"),
        ("at a mote with another querier", "querier", public(&operator()), "NotAuthentic"),
    ] {
        file.invalid(name, OPEN, with(field, value), error);
    }
    // The group, the device, the challenge and the signer are checked in this order.
    let mut everything = with("group", other(8));
    everything["device"] = other(8);
    everything["challenge"] = other(16);
    everything["querier"] = json!(null);
    for (field, error) in [
        ("group", "WrongGroup"),
        ("device", "OtherDevice"),
        ("challenge", "WrongChallenge"),
        ("querier", "UnknownSigner"),
    ] {
        file.invalid(
            format!("from {field} on everything is wrong"),
            OPEN,
            everything.clone(),
            error,
        );
        everything[field] = given(&genuine)[field].clone();
    }
    let querier_as_operator = issued(TimeSigner::Operator, &querier(), UNIX_MS);
    file.invalid("the querier as operator", OPEN, given(&querier_as_operator), "NotAuthentic");

    let fields = [
        int(1),
        bytes(&GroupId::of(GROUP).0),
        bytes(&device().0),
        bytes(&CHALLENGE.0),
        Value::Uint(UNIX_MS),
        int(1),
    ];
    let signed = |payload: &[u8]| given(&sign1(&querier(), &header(ED, TIME, &[]), payload));
    let payload = array(fields.clone()).encode();
    assert_eq!(sign1(&querier(), &header(ED, TIME, &[]), &payload), genuine);
    for (name, at, value, error) in [
        ("version 2", 0, int(2), "UnsupportedVersion"),
        ("a group of 9 bytes", 1, bytes(&[0; 9]), "UnexpectedType"),
        ("a device of 7 bytes", 2, bytes(&[0; 7]), "UnexpectedType"),
        ("a challenge of 8 bytes", 3, bytes(&[0; 8]), "UnexpectedType"),
        ("a negative time", 4, int(-1), "UnexpectedType"),
        ("a time of null", 4, NULL, "UnexpectedType"),
        ("signer 2", 5, int(2), "FieldOutOfRange"),
        ("signer 256", 5, int(256), "FieldOutOfRange"),
        ("a signer of false", 5, FALSE, "UnexpectedType"),
    ] {
        file.invalid(name, OPEN, signed(&array(fields.clone()).with(at, value).encode()), error);
    }
    let five = Value::Array(fields[..5].to_vec()).encode();
    file.invalid("five fields", OPEN, signed(&five), "UnexpectedType");
    // The longest payload that is read, and a longer one. Neither is a valid payload.
    let long = |length: usize| array([bytes(&vec![0; length])]).encode();
    file.invalid("a payload of 48 bytes", OPEN, signed(&long(45)), "UnexpectedType");
    file.invalid("a payload of 49 bytes", OPEN, signed(&long(46)), "FieldOutOfRange");
    let round = sign1(&querier(), &header(ED, "moteseal-round+cose", &[]), &payload);
    file.invalid("another kind of object", OPEN, given(&round), "WrongType");
    file.invalid("nothing", OPEN, given(&[]), "Truncated");
    file.invalid("8 bytes that are a time", OPEN, given(&UNIX_MS.to_be_bytes()), "TrailingBytes");
    file.mutate("any change", OPEN, given(&genuine), "bytes", &[1, 0x80]);
    file
}

fn ranges() -> File {
    let mut file = File::new(
        "time/ranges.json",
        "The possible times after a statement: time.md, section 3, rule 2.",
    );
    let of = |time: u64, sent: u64, received: u64, now: u64| {
        let [time, sent, received, now] =
            [time, sent, received, now].map(|value| value.to_string());
        json!({ "time": time, "sent": sent, "received": received, "now": now })
    };
    for (name, input) in [
        ("at the receipt, without a delay", of(UNIX_MS, 1000, 1000, 1000)),
        ("at the receipt, after 40 ms", of(UNIX_MS, 1000, 1040, 1040)),
        ("a millisecond later", of(UNIX_MS, 1000, 1040, 1041)),
        ("2,048 ms later", of(UNIX_MS, 1000, 1000, 3048)),
        ("2,049 ms later", of(UNIX_MS, 1000, 1000, 3049)),
        ("a minute later, after the longest delay", of(UNIX_MS, 7, 5007, 65_007)),
        ("a year later", of(UNIX_MS, 0, 300, 31_536_000_300)),
        ("at the end of time", of(u64::MAX - 100, 0, 0, 1000)),
    ] {
        file.valid(name, "time.range", input);
    }
    file.invalid("after 5,001 ms", "time.range", of(UNIX_MS, 7, 5008, 6000), "TimeLate");
    file
}
