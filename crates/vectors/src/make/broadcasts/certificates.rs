//! Vectors of sender identities in authenticated broadcast (spec/broadcast.md, section 1): names,
//! certificate requests, certificates and revocations.

use moteseal_broadcast::sender_named;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int};
use moteseal_fixtures::world::secret;
use serde_json::{Value as Json, json};

use super::{
    CERTIFICATE, MAX, REQUEST, REVOCATION, base, certificate, ed, id_of, key_fields, listening,
    network, ops, signed, with,
};
use crate::make::{File, Files, of, public};

pub(super) fn make(files: &mut Files) {
    files.add(names());
    files.add(requests());
    files.add(certificates());
    files.add(revocations());
}

fn names() -> File {
    let mut file = File::new(
        "broadcast/names.json",
        "What senders, keys and networks are named by: broadcast.md, section 1.",
    );
    for (name, algorithm) in [
        ("ops", Algorithm::Ed25519),
        ("querier", Algorithm::Esp256),
        ("Z\u{fc}rich", Algorithm::MlDsa44),
    ] {
        let key = public(&secret(algorithm, 0x82));
        file.valid(
            name,
            "cast.ids",
            json!({ "sender": name, "alg": key["alg"], "key": key["key"] }),
        );
    }
    file
}

fn requests() -> File {
    let mut file =
        File::new("broadcast/requests.json", "Requests of senders: broadcast.md, section 1.");
    let op = "cast.request";
    let asks = |key: &SecretKey| {
        let [suite, raw] = key_fields(key);
        array([int(1), bytes(&sender_named("ops").0), suite, raw])
    };
    for algorithm in Algorithm::ALL {
        let key = secret(algorithm, 0x82);
        file.valid(algorithm.name(), op, of(&signed(&key, REQUEST, &asks(&key))));
    }
    let good = asks(&ops());
    for (what, payload, error) in [
        ("version 2", good.with(0, int(2)), "UnsupportedVersion"),
        ("a sender of seven bytes", good.with(1, bytes(&[1; 7])), "UnexpectedType"),
        ("an unknown suite", good.with(2, int(-7)), "UnknownAlgorithm"),
        ("another suite's key", good.with(2, int(-9)), "KeyLength"),
        ("a key of zeros", good.with(3, bytes(&[0; 32])), "InvalidPublicKey"),
        ("somebody else's key", good.with(3, bytes(&ed(0x83).public().to_bytes())), "NotAuthentic"),
        ("three fields", Value::Array(good.clone().elements()[..3].to_vec()), "UnexpectedType"),
    ] {
        file.invalid(what, op, of(&signed(&ops(), REQUEST, &payload)), error);
    }
    let p256 = secret(Algorithm::Esp256, 0x82);
    file.invalid(
        "signed with another suite",
        op,
        of(&signed(&p256, REQUEST, &good)),
        "AlgorithmMismatch",
    );
    file.invalid(
        "another type of object",
        op,
        of(&signed(&ops(), CERTIFICATE, &good)),
        "WrongType",
    );
    file.mutate("changed everywhere", op, of(&signed(&ops(), REQUEST, &good)), "bytes", &[0x01]);
    file
}

fn certificates() -> File {
    let mut file = File::new(
        "broadcast/certificates.json",
        "Certificates of senders, and when they count: broadcast.md, section 1.",
    );
    let op = "cast.certificate";
    let at = |input: &Json, now: Json, minimum: u64| {
        with(&with(&with(input, "now", now), "minimum", minimum), "serials", json!([]))
    };
    let good = listening(&signed(&base(), CERTIFICATE, &certificate()));
    for (what, now, minimum) in [
        ("its first second", json!(100), 0),
        ("its last second", json!(199), 7),
        ("without a clock", NULL_JSON, 7),
    ] {
        file.valid(what, op, at(&good, now, minimum));
    }
    let endless = listening(&signed(&base(), CERTIFICATE, &certificate().with(8, MAX)));
    file.valid("without an end, at the end of time", op, at(&endless, json!(u64::MAX), 0));
    let highest =
        listening(&signed(&base(), CERTIFICATE, &certificate().with(3, Value::Uint(u64::MAX - 1))));
    file.valid("the highest serial", op, at(&highest, NULL_JSON, u64::MAX - 1));
    file.invalid(
        "the highest serial, once all are revoked",
        op,
        at(&highest, NULL_JSON, u64::MAX),
        "Revoked",
    );
    for (what, now, minimum, error) in [
        ("a second before its first", json!(99), 0, "NotYetValid"),
        ("a second behind its last", json!(200), 0, "Expired"),
        ("a serial below the minimum", json!(150), 8, "Revoked"),
        ("a serial below the minimum, without a clock", NULL_JSON, 8, "Revoked"),
        ("revoked and expired", json!(200), 8, "Revoked"),
    ] {
        file.invalid(what, op, at(&good, now, minimum), error);
    }
    file.valid(
        "other serials are revoked",
        op,
        with(&at(&good, json!(150), 3), "serials", json!([5, 6, 8])),
    );
    for (what, now) in [("a serial that is revoked alone", json!(150)), ("the same", NULL_JSON)] {
        let revoked = with(&at(&good, now, 3), "serials", json!([5, 7, 8]));
        file.invalid(what, op, revoked, "Revoked");
    }
    let usual = |payload: &Value, key: &SecretKey| {
        at(&listening(&signed(key, CERTIFICATE, payload)), json!(150), 0)
    };
    for (what, payload, error) in [
        ("version 2", certificate().with(0, int(2)), "UnsupportedVersion"),
        ("another network", certificate().with(1, bytes(&[0; 8])), "WrongNetwork"),
        ("another base station", certificate().with(2, bytes(&[0; 8])), "UnknownBaseStation"),
        ("the serial that nothing could revoke", certificate().with(3, MAX), "FieldOutOfRange"),
        ("a negative serial", certificate().with(3, int(-1)), "UnexpectedType"),
        ("a sender of nine bytes", certificate().with(4, bytes(&[1; 9])), "UnexpectedType"),
        ("an unknown suite", certificate().with(5, int(-7)), "UnknownAlgorithm"),
        ("another suite's key", certificate().with(5, int(-9)), "KeyLength"),
        ("a key of zeros", certificate().with(6, bytes(&[0; 32])), "InvalidPublicKey"),
        ("no time at all", certificate().with(8, int(100)), "FieldOutOfRange"),
        ("an end before the beginning", certificate().with(8, int(99)), "FieldOutOfRange"),
        (
            "ten fields",
            Value::Array([&certificate().elements()[..], &[NULL]].concat()),
            "UnexpectedType",
        ),
    ] {
        file.invalid(what, op, usual(&payload, &base()), error);
    }
    file.invalid("in a base station's name", op, usual(&certificate(), &ed(0x85)), "NotAuthentic");
    file.invalid(
        "with another suite",
        op,
        usual(&certificate(), &secret(Algorithm::Esp256, 0x84)),
        "AlgorithmMismatch",
    );
    let other = listening(&signed(&base(), REVOCATION, &certificate()));
    file.invalid("another type of object", op, at(&other, NULL_JSON, 0), "WrongType");
    file.mutate("changed everywhere", op, at(&good, json!(150), 0), "bytes", &[0x01]);
    file
}

const NULL_JSON: Json = Json::Null;

fn revocations() -> File {
    let mut file = File::new(
        "broadcast/revocations.json",
        "What a base station has revoked: broadcast.md, section 1.",
    );
    let op = "cast.revocation";
    let payload = |minimum: Value, serials: &[u64]| {
        let serials = Value::Array(serials.iter().map(|serial| Value::Uint(*serial)).collect());
        array([int(1), bytes(&network().0), id_of(&base()), minimum, serials])
    };
    let after = |bytes: &[u8], minimum: u64, serials: Json| {
        with(&listening(bytes), "known", json!({ "minimum": minimum, "serials": serials }))
    };
    let first = |bytes: &[u8]| after(bytes, 0, json!([]));
    let by_base = |payload: &Value| signed(&base(), REVOCATION, payload);
    let eight = [9, 10, 11, 12, 13, 14, 15, u64::MAX - 1];
    for (what, minimum, serials) in [
        ("none", int(0), &[][..]),
        ("seven", int(7), &[]),
        ("all", MAX, &[]),
        ("a single serial", int(0), &[3]),
        ("the highest number of single serials", int(7), &eight),
    ] {
        file.valid(what, op, first(&by_base(&payload(minimum, serials))));
    }
    let p256 = secret(Algorithm::Esp256, 0x84);
    let good = payload(int(7), &[9, 12]);
    file.valid(
        "the other base station",
        op,
        first(&signed(&p256, REVOCATION, &good.with(2, id_of(&p256)))),
    );
    for (what, minimum, serials) in [
        ("the same again", 7, json!([9, 12])),
        ("a serial more", 7, json!([12])),
        ("a higher minimum", 6, json!([9, 12])),
        ("a higher minimum in place of single serials", 3, json!([5, 6, 9])),
    ] {
        file.valid(what, op, after(&by_base(&good), minimum, serials));
    }
    for (what, minimum, serials) in [
        ("a lower minimum than the known one", 8, json!([])),
        ("a lower minimum, and a serial more", 8, json!([12])),
        ("a known serial is missing", 7, json!([10])),
        ("another set of serials", 7, json!([9, 12, 13])),
    ] {
        file.invalid(what, op, after(&by_base(&good), minimum, serials), "Superseded");
    }
    let nine = [9, 10, 11, 12, 13, 14, 15, 16, 17];
    for (what, payload, error) in [
        ("version 0", good.with(0, int(0)), "UnsupportedVersion"),
        ("another network", good.with(1, bytes(&[0; 8])), "WrongNetwork"),
        ("another base station", good.with(2, bytes(&[0; 8])), "UnknownBaseStation"),
        ("a negative minimum", good.with(3, int(-1)), "UnexpectedType"),
        ("a serial in place of the list", good.with(4, int(9)), "UnexpectedType"),
        ("a negative serial", good.with(4, array([int(-1)])), "UnexpectedType"),
        ("serials out of order", payload(int(7), &[12, 9]), "FieldOutOfRange"),
        ("a serial twice", payload(int(7), &[9, 9]), "FieldOutOfRange"),
        ("a serial below the minimum", payload(int(7), &[6]), "FieldOutOfRange"),
        ("the minimum as a serial", payload(int(7), &[7]), "FieldOutOfRange"),
        ("the serial that no certificate has", payload(int(7), &[u64::MAX]), "FieldOutOfRange"),
        ("nine serials", payload(int(7), &nine), "FieldOutOfRange"),
        (
            "without the list",
            array([int(1), bytes(&network().0), id_of(&base()), int(7)]),
            "UnexpectedType",
        ),
    ] {
        file.invalid(what, op, first(&by_base(&payload)), error);
    }
    file.invalid(
        "in a base station's name",
        op,
        first(&signed(&ed(0x85), REVOCATION, &good)),
        "NotAuthentic",
    );
    file.invalid(
        "by the other base station",
        op,
        first(&signed(&p256, REVOCATION, &good)),
        "AlgorithmMismatch",
    );
    file.mutate("changed everywhere", op, first(&by_base(&good)), "bytes", &[0x01]);
    file
}
