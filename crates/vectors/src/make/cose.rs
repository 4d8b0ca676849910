//! COSE headers, signature suites, seals.

use moteseal_core::record::Scheme;
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_seal::Answered;
use moteseal_verify::{Roster, write};
use serde_json::{Value as Json, json};

use super::{File, Files, of, public};
use moteseal_fixtures::value::{FALSE, NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{
    self, Device, Epoch, FIXED, GROUP, certificate, header, operator, roster, schema, secret, sign1,
};

pub const SEAL: &str = "moteseal-seal+cose";
pub const EVENT: &str = "moteseal-event+cose";
pub const CERT: &str = "moteseal-cert+cose";
pub const ROSTER: &str = "moteseal-roster+cose";

pub fn make(files: &mut Files) {
    files.add(headers());
    files.add(suites());
    files.add(seals());
}

pub fn opened(devices: &[(&str, &[(Algorithm, u32)])]) -> Roster {
    Roster::open(&roster(devices), &operator().public()).unwrap()
}

/// A star's seal and a tree's, signed.
pub fn two_seals() -> [Vec<u8>; 2] {
    let roster = opened(world::DEVICES);
    let mut device = Device::new(&roster, "ed", &schema(FIXED));
    [Scheme::Star, Scheme::Tree].map(|scheme| {
        let mut epoch = Epoch::new(scheme, 7 + u64::from(scheme.number()), 10);
        if scheme == Scheme::Star {
            epoch.own_round = 1;
            epoch.round = 1;
            epoch.answered.push(Answered { query: [0xab; 16], first: 70_000, count: 720 });
        }
        let sealed = device.seal(&epoch);
        write::sign1(&sealed.seal, &sealed.signature)
    })
}

fn object(bytes: &[u8], typ: &str) -> Json {
    json!({ "bytes": hex::encode(bytes), "typ": typ })
}

/// The four elements of a `COSE_Sign1`.
pub fn parts_of(signed: &[u8]) -> Vec<Value> {
    let Value::Tag(18, inner) = Value::decode(signed) else { panic!("tag 18") };
    let Value::Array(parts) = *inner else { panic!("an array") };
    parts
}

pub fn tagged(parts: Vec<Value>) -> Vec<u8> {
    Value::Tag(18, Box::new(Value::Array(parts))).encode()
}

fn headers() -> File {
    let mut file = File::new(
        "cose/objects.json",
        "COSE_Sign1 and its headers: section 2, steps 1 to 3. Nothing is verified.",
    );
    let key = operator();
    let [star, tree] = two_seals();
    let ed = Algorithm::Ed25519;
    let cert = certificate(&key, GROUP, "ed", 1, &secret(ed, 1).public(), 0);
    for (name, bytes, typ) in [
        ("a star's seal", star.clone(), SEAL),
        ("a tree's seal", tree.clone(), SEAL),
        ("a certificate", cert.clone(), CERT),
        ("a roster", roster(world::DEVICES), ROSTER),
        (
            "an urgent event of any payload",
            sign1(&key, &header(ed, EVENT, &[(-70_001, array([int(1)]))]), b"x"),
            EVENT,
        ),
        (
            "another suite",
            sign1(&secret(Algorithm::Esp256, 9), &header(Algorithm::Esp256, CERT, &[]), b""),
            CERT,
        ),
        (
            "a signature of any length",
            tagged(vec![bytes_of_header(ed, CERT), Value::Map(vec![]), bytes(b""), bytes(b"")]),
            CERT,
        ),
    ] {
        file.valid(name, "cose.object", object(&bytes, typ));
    }
    let parts = parts_of(&cert);
    let with = |at: usize, value: Value| {
        let mut changed = parts.clone();
        changed[at] = value;
        tagged(changed)
    };
    for (name, bytes, error) in [
        ("no tag", Value::Array(parts.clone()).encode(), "UnexpectedType"),
        (
            "another tag",
            Value::Tag(17, Box::new(Value::Array(parts.clone()))).encode(),
            "UnexpectedType",
        ),
        (
            "two tags",
            Value::Tag(18, Box::new(Value::Tag(18, Box::new(Value::Array(parts.clone())))))
                .encode(),
            "UnexpectedType",
        ),
        ("three elements", tagged(parts[..3].to_vec()), "UnexpectedType"),
        ("five elements", tagged([&parts[..], &parts[3..]].concat()), "UnexpectedType"),
        (
            "a protected header that is not wrapped",
            with(0, header(ed, CERT, &[])),
            "UnexpectedType",
        ),
        ("an empty protected header", with(0, bytes(b"")), "Truncated"),
        (
            "a protected header that is an array",
            with(0, bytes(&array([]).encode())),
            "UnexpectedType",
        ),
        (
            "a protected header and more",
            with(0, bytes(&[header(ed, CERT, &[]).encode(), vec![0]].concat())),
            "TrailingBytes",
        ),
        (
            "a protected header cut short",
            with(0, bytes(&header(ed, CERT, &[]).encode()[..20])),
            "Truncated",
        ),
        ("an unprotected header that is no map", with(1, array([])), "UnexpectedType"),
        ("a key id", with(1, Value::Map(vec![(int(4), bytes(b"op"))])), "UnexpectedHeader"),
        (
            "a receipt's proofs in the unprotected header",
            with(1, Value::Map(vec![(int(396), Value::Map(vec![]))])),
            "UnexpectedHeader",
        ),
        ("a detached payload", with(2, NULL), "UnexpectedType"),
        ("a text for a payload", with(2, text("x")), "UnexpectedType"),
        ("a text for a signature", with(3, text("x")), "UnexpectedType"),
        ("bytes behind the object", [cert.clone(), vec![0]].concat(), "TrailingBytes"),
        ("an object cut short", cert[..cert.len() - 1].to_vec(), "Truncated"),
        ("nothing", Vec::new(), "Truncated"),
        ("a longer tag than needed", [&[0xd8, 0x12], &cert[1..]].concat(), "NonCanonical"),
    ] {
        file.invalid(name, "cose.object", object(&bytes, CERT), error);
    }
    let pairs = |pairs: Vec<(Value, Value)>| Value::Map(pairs);
    let (alg, typ) = ((int(1), int(-19)), (int(16), text(CERT)));
    let huge = Value::Uint(u64::MAX);
    for (name, protected, error) in [
        ("no header at all", pairs(vec![]), "WrongType"),
        ("no typ", pairs(vec![alg.clone()]), "WrongType"),
        ("the typ of a seal", header(ed, SEAL, &[]), "WrongType"),
        ("a typ in capitals", header(ed, "MOTESEAL-CERT+COSE", &[]), "WrongType"),
        ("a typ that is a number", pairs(vec![alg.clone(), (int(16), int(19))]), "UnexpectedType"),
        ("no alg", pairs(vec![typ.clone()]), "UnknownAlgorithm"),
        ("the polymorphic EdDSA", pairs(vec![(int(1), int(-8)), typ.clone()]), "UnknownAlgorithm"),
        ("the polymorphic ES256", pairs(vec![(int(1), int(-7)), typ.clone()]), "UnknownAlgorithm"),
        ("ML-DSA-65", pairs(vec![(int(1), int(-49)), typ.clone()]), "UnknownAlgorithm"),
        ("an alg of 0", pairs(vec![(int(1), int(0)), typ.clone()]), "UnknownAlgorithm"),
        (
            "an alg that is a text",
            pairs(vec![(int(1), text("EdDSA")), typ.clone()]),
            "UnexpectedType",
        ),
        (
            "an alg above 64 bits",
            pairs(vec![(int(1), huge.clone()), typ.clone()]),
            "FieldOutOfRange",
        ),
        (
            "crit",
            pairs(vec![alg.clone(), (int(2), array([int(1)])), typ.clone()]),
            "UnknownCritical",
        ),
        (
            "a content type",
            pairs(vec![alg.clone(), (int(3), int(0)), typ.clone()]),
            "UnexpectedHeader",
        ),
        (
            "a protected key id",
            pairs(vec![alg.clone(), (int(4), bytes(b"op")), typ.clone()]),
            "UnexpectedHeader",
        ),
        (
            "a label above 64 bits",
            pairs(vec![alg.clone(), typ.clone(), (huge, int(0))]),
            "UnexpectedHeader",
        ),
        (
            "a label below 64 bits",
            pairs(vec![alg.clone(), typ.clone(), (Value::Negative(u64::MAX), int(0))]),
            "UnexpectedHeader",
        ),
        (
            "a text label",
            pairs(vec![alg.clone(), typ.clone(), (text("x"), int(0))]),
            "UnexpectedHeader",
        ),
        (
            "a bytes label",
            pairs(vec![alg.clone(), typ.clone(), (bytes(b"x"), int(0))]),
            "UnexpectedHeader",
        ),
        (
            "a neighbour of the statement's label",
            header(ed, CERT, &[(-70_002, int(0))]),
            "UnexpectedHeader",
        ),
        (
            "a statement where none belongs",
            header(ed, CERT, &[(-70_001, array([]))]),
            "UnexpectedHeader",
        ),
        (
            "a tree's header where none belongs",
            header(ed, CERT, &[(395, int(1))]),
            "UnexpectedHeader",
        ),
        ("another tree", header(ed, CERT, &[(395, int(2))]), "UnexpectedHeader"),
        ("a tree by name", header(ed, CERT, &[(395, text("RFC9162_SHA256"))]), "UnexpectedType"),
        ("typ before alg", pairs(vec![typ.clone(), alg.clone()]), "NonCanonical"),
        ("alg twice", pairs(vec![alg.clone(), alg.clone(), typ.clone()]), "NonCanonical"),
    ] {
        file.invalid(
            name,
            "cose.object",
            object(&sign1(&key, &protected, b"payload"), CERT),
            error,
        );
    }
    file.invalid(
        "a seal without a statement",
        "cose.object",
        object(&sign1(&key, &header(ed, SEAL, &[]), &[0; 32]), SEAL),
        "UnexpectedHeader",
    );
    file.invalid(
        "an event without a statement",
        "cose.object",
        object(&sign1(&key, &header(ed, EVENT, &[]), b""), EVENT),
        "UnexpectedHeader",
    );
    let event = header(ed, EVENT, &[(395, int(1)), (-70_001, array([]))]);
    file.invalid(
        "an event with a tree",
        "cose.object",
        object(&sign1(&key, &event, b""), EVENT),
        "UnexpectedHeader",
    );
    file.invalid(
        "a seal where a certificate is expected",
        "cose.object",
        object(&star, CERT),
        "WrongType",
    );
    file.invalid(
        "a certificate where a roster is expected",
        "cose.object",
        object(&cert, ROSTER),
        "WrongType",
    );
    file.invalid(
        "an event where a seal is expected",
        "cose.object",
        object(&sign1(&key, &header(ed, EVENT, &[(-70_001, int(0))]), b""), SEAL),
        "WrongType",
    );
    file
}

fn bytes_of_header(algorithm: Algorithm, typ: &str) -> Value {
    bytes(&header(algorithm, typ, &[]).encode())
}

/// `value` less `subtrahend`, or plus if `add`: 32 bytes, big-endian.
pub fn sum(value: &[u8], other: &[u8], add: bool) -> Vec<u8> {
    let mut carry = 0i32;
    let mut out = vec![0; 32];
    for at in (0..32).rev() {
        let digit = i32::from(value[at])
            + if add { i32::from(other[at]) } else { -i32::from(other[at]) }
            + carry;
        out[at] = digit.rem_euclid(256) as u8;
        carry = digit.div_euclid(256);
    }
    out
}

pub const P256_ORDER: &str = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
const ED25519_ORDER: &str = "1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3ed";

fn suites() -> File {
    let mut file =
        File::new("cose/suites.json", "Signature suites and their keys: section 2, step 5.");
    let signed =
        |secret: &SecretKey| sign1(secret, &header(secret.algorithm(), CERT, &[]), b"payload");
    let case = |signed: &[u8], secret: &SecretKey| {
        let key = public(secret);
        json!({ "bytes": hex::encode(signed), "typ": CERT, "alg": key["alg"], "key": key["key"] })
    };
    for algorithm in Algorithm::ALL {
        let (key, other) = (secret(algorithm, 0x21), secret(algorithm, 0x22));
        let good = signed(&key);
        file.valid(format!("{algorithm}"), "cose.verify", case(&good, &key));
        file.invalid(
            format!("{algorithm}: another key"),
            "cose.verify",
            case(&good, &other),
            "NotAuthentic",
        );
        let mut parts = parts_of(&good);
        let Value::Bytes(signature) = parts[3].clone() else { panic!() };
        parts[3] = bytes(&signature[..signature.len() - 1]);
        file.invalid(
            format!("{algorithm}: a signature cut short"),
            "cose.verify",
            case(&tagged(parts.clone()), &key),
            "MalformedSignature",
        );
        parts[3] = bytes(&[&signature[..], &[0]].concat());
        file.invalid(
            format!("{algorithm}: a signature too long"),
            "cose.verify",
            case(&tagged(parts.clone()), &key),
            "MalformedSignature",
        );
        parts[3] = bytes(&vec![0; signature.len()]);
        file.invalid(
            format!("{algorithm}: a signature of zeros"),
            "cose.verify",
            case(&tagged(parts.clone()), &key),
            "NotAuthentic",
        );
        for at in [0, signature.len() / 2, signature.len() - 1] {
            let mut flipped = signature.clone();
            flipped[at] ^= 1;
            parts[3] = bytes(&flipped);
            file.invalid(
                format!("{algorithm}: byte {at} of the signature flipped"),
                "cose.verify",
                case(&tagged(parts.clone()), &key),
                "NotAuthentic",
            );
        }
        parts[3] = bytes(&signature);
        parts[2] = bytes(b"Payload");
        file.invalid(
            format!("{algorithm}: another payload"),
            "cose.verify",
            case(&tagged(parts), &key),
            "NotAuthentic",
        );
        let long = [public(&key)["key"].as_str().unwrap(), "00"].concat();
        for (name, key) in
            [("too long", long.as_str()), ("too short", &long[..long.len() - 4]), ("empty", "")]
        {
            file.invalid(
                format!("{algorithm}: a key {name}"),
                "cose.key",
                json!({ "alg": algorithm.name(), "key": key }),
                "KeyLength",
            );
        }
        file.valid(format!("{algorithm}: a key"), "cose.key", public(&key));
    }
    let (ed, p256) = (secret(Algorithm::Ed25519, 0x21), secret(Algorithm::Esp256, 0x21));
    file.invalid(
        "an Ed25519 object under a P-256 key",
        "cose.verify",
        case(&signed(&ed), &p256),
        "AlgorithmMismatch",
    );
    file.invalid(
        "a P-256 object under an Ed25519 key",
        "cose.verify",
        case(&signed(&p256), &ed),
        "AlgorithmMismatch",
    );

    let mut parts = parts_of(&signed(&p256));
    let Value::Bytes(signature) = parts[3].clone() else { panic!() };
    let order = hex::decode(P256_ORDER).unwrap();
    let (r, s) = signature.split_at(32);
    for (name, r, s, error) in [
        ("s in the upper half", r.to_vec(), sum(&order, s, false), "HighS"),
        ("r of 0", vec![0; 32], s.to_vec(), "NotAuthentic"),
        ("s of 0", r.to_vec(), vec![0; 32], "NotAuthentic"),
        ("r of the order", order.clone(), s.to_vec(), "NotAuthentic"),
        ("s of the order", r.to_vec(), order.clone(), "NotAuthentic"),
    ] {
        parts[3] = bytes(&[r, s].concat());
        file.invalid(
            format!("esp256: {name}"),
            "cose.verify",
            case(&tagged(parts.clone()), &p256),
            error,
        );
    }
    let mut parts = parts_of(&signed(&ed));
    let Value::Bytes(signature) = parts[3].clone() else { panic!() };
    let reversed = |bytes: &[u8]| bytes.iter().rev().copied().collect::<Vec<u8>>();
    let larger = sum(&reversed(&signature[32..]), &hex::decode(ED25519_ORDER).unwrap(), true);
    parts[3] = bytes(&[&signature[..32], &reversed(&larger)].concat());
    file.invalid(
        "ed25519: S plus the order",
        "cose.verify",
        case(&tagged(parts), &ed),
        "NotAuthentic",
    );

    // Cases 2 to 4 of "Taming the many EdDSAs" (Chalkias, Garillot, Nikolaenko; SSR 2020), table 6.
    let taming = |message: &str, key: &str, signature: &str| json!({ "alg": "ed25519", "message": message, "key": key, "signature": signature });
    let mixed = "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d";
    file.valid(
        "ed25519: key and R of mixed order, the equation holds without the cofactor",
        "cose.signature",
        taming(
            "9bd9f44f4dcc75bd531b56b2cd280b0bb38fc1cd6d1230e14861d861de092e79",
            mixed,
            "9046a64750444938de19f227bb80485e92b83fdb4b6506c160484c016cc1852f87909e14428a7a1d62e9f22f3d3ad7802db02eb2e688b6c52fcd6648a98bd009",
        ),
    );
    file.invalid(
        "ed25519: the equation holds with the cofactor only",
        "cose.signature",
        taming(
            "e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec4011eaccd55b53f56c",
            mixed,
            "160a1cb0dc9c0258cd0a7d23e94d8fa878bcb1925f2c64246b2dee1796bed5125ec6bc982a269b723e0668e540911a9a6a58921d6925e434ab10aa7940551a09",
        ),
        "NotAuthentic",
    );
    file.invalid(
        "ed25519: R of small order",
        "cose.signature",
        taming(
            "aebf3f2601a0c8c5d39cc7d8911642f740b78168218da8471772b35f9d35b9ab",
            "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa8c4bd45aecaca5b24fb97bc10ac27ac8751a7dfe1baff8b953ec9f5833ca260e",
        ),
        "NotAuthentic",
    );
    let zeros = |ends: [u8; 2]| format!("{:02x}{}{:02x}", ends[0], "00".repeat(30), ends[1]);
    let ones = |ends: [u8; 2]| format!("{:02x}{}{:02x}", ends[0], "ff".repeat(30), ends[1]);
    for (name, key) in [
        ("the neutral element", zeros([1, 0])),
        ("the neutral element with a sign", zeros([1, 0x80])),
        ("order 2", ones([0xec, 0x7f])),
        ("order 4", zeros([0, 0])),
        ("order 8", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa".into()),
        ("y of the field's prime", ones([0xed, 0x7f])),
        ("y above the field's prime", ones([0xf0, 0x7f])),
        ("no point", zeros([2, 0])),
    ] {
        file.invalid(
            format!("ed25519: {name}"),
            "cose.key",
            json!({ "alg": "ed25519", "key": key }),
            "InvalidPublicKey",
        );
    }
    let good = public(&p256)["key"].as_str().unwrap().to_owned();
    let parity = u8::from_str_radix(&good[128..], 16).unwrap() & 1;
    for (name, key) in [
        ("the hybrid form", format!("{:02x}{}", 6 + parity, &good[2..])),
        (
            "a point off the curve",
            format!("{}{:02x}", &good[..128], u8::from_str_radix(&good[128..], 16).unwrap() ^ 1),
        ),
        ("zeros", "00".repeat(65)),
        ("x above the field's prime", format!("04{}{}", "ff".repeat(32), &good[66..])),
    ] {
        file.invalid(
            format!("esp256: {name}"),
            "cose.key",
            json!({ "alg": "esp256", "key": key }),
            "InvalidPublicKey",
        );
    }
    file
}

fn seals() -> File {
    let mut file = File::new(
        "cose/seals.json",
        "Seals as signed objects, and their statements: section 2, steps 1 to 4. Nothing is verified.",
    );
    let [star, tree] = two_seals();
    let roster = opened(world::DEVICES);
    let mut device = Device::new(&roster, "ed", &schema(FIXED));
    let mut epoch = Epoch::new(Scheme::Star, 9, 40);
    epoch.last_in_epoch = false;
    epoch.restart = true;
    epoch.skipped = 2;
    let mut lost = vec![0; 8];
    lost[0] = 3;
    epoch.lost = Some(lost);
    let lossy = device.seal(&epoch);
    let empty = device.seal(&Epoch::new(Scheme::Tree, 9, 0));
    let mut raised = Epoch::new(Scheme::Tree, 9, 40);
    (raised.round, raised.own_round) = (1, 2);
    let raised = device.seal(&raised);
    for (name, bytes) in [
        ("a star", star.clone()),
        ("a tree", tree.clone()),
        ("a tree from level 2 on", write::sign1(&raised.seal, &raised.signature)),
        ("lost events, after a restart", write::sign1(&lossy.seal, &lossy.signature)),
        ("an empty tree", write::sign1(&empty.seal, &empty.signature)),
    ] {
        file.valid(name, "cose.seal", of(&bytes));
    }
    let key = device.secret(0);
    let statement_of = |signed: &[u8]| {
        let Value::Bytes(protected) = &parts_of(signed)[0] else { panic!() };
        let Value::Map(pairs) = Value::decode(protected) else { panic!() };
        pairs.last().unwrap().1.clone()
    };
    let (star, tree) = (statement_of(&star), statement_of(&tree));
    let seal_of = |statement: &Value, vds: bool, root: &[u8]| {
        let mut rest = vec![(-70_001, statement.clone())];
        if vds {
            rest.insert(0, (395, int(1)));
        }
        of(&sign1(&key, &header(Algorithm::Ed25519, SEAL, &rest), root))
    };
    let (unit, wide) = (|count: u64| Value::Uint(count), Value::Uint(1 << 32));
    let counts =
        |counts: &[u64]| Value::Array(counts.iter().map(|&count| Value::Uint(count)).collect());
    let answer = |length: usize| array([bytes(&vec![1; length]), unit(5), unit(1)]);
    let runs = |runs: &[(u8, u64, u64)]| {
        Value::Array(
            runs.iter()
                .map(|&(query, first, count)| {
                    array([bytes(&[query; 16]), unit(first), unit(count)])
                })
                .collect(),
        )
    };
    let second = {
        // The tree is the device's second seal: it has a predecessor.
        let Value::Array(fields) = &tree else { panic!() };
        assert_eq!(
            (&fields[5], &fields[7], &fields[8], &fields[9]),
            (&unit(1), &unit(0), &unit(8), &unit(7))
        );
        tree.clone()
    };
    for (name, value) in [
        ("no answers", runs(&[])),
        ("the last epoch that a run holds", runs(&[(1, u64::MAX - 1, 1)])),
        ("the longest run", runs(&[(1, 0, 0xffff_ffff)])),
        ("runs of one query with an epoch between", runs(&[(1, 5, 2), (1, 8, 1)])),
        (
            "runs in the order in which they were begun",
            runs(&[(2, 7, 1), (1, 5, 720), (2, 9, 3), (1, 726, 1)]),
        ),
        (
            "eight queries",
            Value::Array(
                (0..8).map(|query| array([bytes(&[query; 16]), unit(5), unit(1)])).collect(),
            ),
        ),
    ] {
        file.valid(
            format!("a star: {name}"),
            "cose.seal",
            seal_of(&star.with(18, value), false, &[7; 32]),
        );
    }
    for (name, at, value, error) in [
        ("version 2", 0, unit(2), "UnsupportedVersion"),
        ("version 0", 0, unit(0), "UnsupportedVersion"),
        ("a version that is a text", 0, text("1"), "UnexpectedType"),
        ("scheme 2", 1, unit(2), "FieldOutOfRange"),
        ("a group of 7 bytes", 2, bytes(&[0; 7]), "UnexpectedType"),
        ("a roster digest of 31 bytes", 3, bytes(&[0; 31]), "UnexpectedType"),
        ("a device of 9 bytes", 4, bytes(&[0; 9]), "UnexpectedType"),
        ("an index of 2^32", 5, wide.clone(), "FieldOutOfRange"),
        ("a negative index", 5, int(-1), "UnexpectedType"),
        ("a prev of null", 6, NULL, "UnexpectedType"),
        ("a prev of 33 bytes", 6, bytes(&[0; 33]), "UnexpectedType"),
        ("prev_index without prev_epoch", 7, unit(0), "FieldOutOfRange"),
        ("prev_epoch without prev_index", 9, unit(0), "FieldOutOfRange"),
        ("an epoch of null", 8, NULL, "UnexpectedType"),
        ("last_in_epoch of 1", 10, unit(1), "UnexpectedType"),
        ("restart of null", 11, NULL, "UnexpectedType"),
        ("a schema digest of 0 bytes", 12, bytes(b""), "UnexpectedType"),
        ("a salt of 15 bytes", 13, bytes(&[0; 15]), "UnexpectedType"),
        ("a round above the device's", 14, unit(2), "FieldOutOfRange"),
        ("a round of 256", 14, unit(256), "FieldOutOfRange"),
        ("a device's round of all levels", 15, unit(8), "FieldOutOfRange"),
        ("no counters", 16, counts(&[]), "FieldOutOfRange"),
        ("33 counters", 16, counts(&[0; 33]), "FieldOutOfRange"),
        ("a counter of 2^32", 16, counts(&[1 << 32, 0, 0]), "FieldOutOfRange"),
        ("counters that add up to 2^32", 16, counts(&[0xffff_ffff, 1, 0]), "FieldOutOfRange"),
        ("a counter that is a text", 16, array([text("1")]), "UnexpectedType"),
        ("lost counters of other levels", 17, counts(&[1]), "FieldOutOfRange"),
        ("33 lost counters", 17, counts(&[0; 33]), "FieldOutOfRange"),
        ("lost counters of zeros", 17, counts(&[0; 8]), "FieldOutOfRange"),
        ("more lost than there were", 17, counts(&[0, 0, 0, 0, 0, 0, 0, 99]), "FieldOutOfRange"),
        ("nine answers", 18, Value::Array(vec![answer(16); 9]), "FieldOutOfRange"),
        ("an answer with a query of 15 bytes", 18, array([answer(15)]), "UnexpectedType"),
        ("an answer of one field", 18, array([array([bytes(&[1; 16])])]), "UnexpectedType"),
        ("an answer as a pair", 18, array([array([bytes(&[1; 16]), unit(5)])]), "UnexpectedType"),
        (
            "an answer of four fields",
            18,
            array([array([bytes(&[1; 16]), unit(5), unit(1), unit(1)])]),
            "UnexpectedType",
        ),
        (
            "an answer without an epoch",
            18,
            array([array([bytes(&[1; 16]), NULL, unit(1)])]),
            "UnexpectedType",
        ),
        (
            "an answer without a count",
            18,
            array([array([bytes(&[1; 16]), unit(5), NULL])]),
            "UnexpectedType",
        ),
        ("a run of no answers", 18, runs(&[(1, 5, 0)]), "FieldOutOfRange"),
        ("a run of 2^32 answers", 18, runs(&[(1, 5, 1 << 32)]), "FieldOutOfRange"),
        ("a run past 64 bits", 18, runs(&[(1, u64::MAX - 1, 2)]), "FieldOutOfRange"),
        ("runs of one query that touch", 18, runs(&[(1, 5, 2), (1, 7, 1)]), "FieldOutOfRange"),
        (
            "runs that touch, another query's between",
            18,
            runs(&[(1, 5, 2), (2, 7, 1), (1, 7, 1)]),
            "FieldOutOfRange",
        ),
        ("runs of one query that overlap", 18, runs(&[(1, 5, 3), (1, 7, 3)]), "FieldOutOfRange"),
        ("a run twice", 18, runs(&[(1, 5, 3), (1, 5, 3)]), "FieldOutOfRange"),
        ("runs of one query that descend", 18, runs(&[(1, 50, 3), (1, 5, 3)]), "FieldOutOfRange"),
        (
            "a run below the one before the last",
            18,
            runs(&[(1, 50, 3), (2, 5, 3), (1, 20, 3)]),
            "FieldOutOfRange",
        ),
        ("answers of null", 18, NULL, "UnexpectedType"),
    ] {
        file.invalid(
            format!("a star: {name}"),
            "cose.seal",
            seal_of(&star.with(at, value), false, &[7; 32]),
            error,
        );
    }
    for (name, at, value) in [
        ("the index of the seal before", 7, unit(1)),
        ("an index below the seal before", 7, unit(9)),
        ("an epoch before the seal before", 9, unit(9)),
        ("a device's round of all levels", 15, unit(8)),
        ("lost events", 17, counts(&[1, 0, 0, 0, 0, 0, 0, 0])),
        ("scheme star", 1, unit(0)),
    ] {
        let error = if at == 1 { "UnexpectedHeader" } else { "FieldOutOfRange" };
        file.invalid(
            format!("a tree: {name}"),
            "cose.seal",
            seal_of(&second.with(at, value), true, &[7; 32]),
            error,
        );
    }
    file.invalid(
        "a tree without vds",
        "cose.seal",
        seal_of(&tree, false, &[7; 32]),
        "UnexpectedHeader",
    );
    file.invalid(
        "a star with vds",
        "cose.seal",
        seal_of(&star, true, &[7; 32]),
        "UnexpectedHeader",
    );
    file.invalid(
        "a root of 31 bytes",
        "cose.seal",
        seal_of(&star, false, &[7; 31]),
        "UnexpectedType",
    );
    file.invalid("a root of no bytes", "cose.seal", seal_of(&tree, true, b""), "UnexpectedType");
    let Value::Array(mut fields) = star.clone() else { panic!() };
    fields.pop();
    file.invalid(
        "18 fields",
        "cose.seal",
        seal_of(&Value::Array(fields.clone()), false, &[7; 32]),
        "UnexpectedType",
    );
    fields.extend([array([]), int(0)]);
    file.invalid(
        "20 fields",
        "cose.seal",
        seal_of(&Value::Array(fields), false, &[7; 32]),
        "UnexpectedType",
    );
    file.invalid(
        "a statement in a string",
        "cose.seal",
        seal_of(&bytes(&star.encode()), false, &[7; 32]),
        "UnexpectedType",
    );
    file.invalid(
        "a statement of false",
        "cose.seal",
        seal_of(&FALSE, false, &[7; 32]),
        "UnexpectedType",
    );
    file
}
