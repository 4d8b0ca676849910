//! Vectors of COSE headers, signature suites and seals.

mod seals;

use moteseal_core::record::Scheme;
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_seal::Answered;
use moteseal_verify::{Roster, write};
use serde_json::{Value as Json, json};

use super::{File, Files, public};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int, text};
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
    files.add(seals::seals());
}

pub fn opened(devices: &[(&str, &[(Algorithm, u32)])]) -> Roster {
    Roster::open(&roster(devices), &operator().public()).unwrap()
}

/// Returns two signed seals, one of a star and one of a tree.
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

/// Returns the four elements of a `COSE_Sign1`.
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
        "COSE_Sign1 and its headers: objects.md, section 2.1, steps 1 to 3. Nothing is verified.",
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

/// Returns `value + other` if `add`, otherwise `value - other`, modulo 2^256, as 32 big-endian
/// bytes.
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
    let mut file = File::new(
        "cose/suites.json",
        "Signature suites and their keys: objects.md, section 2.1, step 5.",
    );
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

    // The following are the cases 2 to 4 of table 6 in "Taming the many EdDSAs" (Chalkias,
    // Garillot, Nikolaenko; SSR 2020).
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
