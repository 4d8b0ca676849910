//! Vectors of the explaining form, and of receipts.

use moteseal_core::cbor::Writer;
use moteseal_core::record::Scheme;
use moteseal_core::signature::Algorithm;
use moteseal_verify::{receipt, write};
use serde_json::{Value as Json, json};

use super::{File, Files, public};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, encode_sequence, int, sequence};
use moteseal_fixtures::world::{
    self, Device, Epoch, FIXED, Pick, Sealed, operator, root_of, schema, stream,
};

use super::parts::*;

pub fn make(files: &mut Files) {
    files.add(explained());
    files.add(receipts());
}

fn explained() -> File {
    let mut file = file_of_streams(
        "stream/explained.json",
        "What was wrong with a run, from the explaining form of its seals: answers.md, section 8.",
    );
    let fixed = schema(FIXED);
    let case = |run: &[Value], explained: &[Vec<u8>]| json!({ "bytes": hex::encode(encode_sequence(run)), "explained": explained.iter().map(hex::encode).collect::<Vec<_>>() });
    let sealed = three("ed", Scheme::Star);
    let honest: Vec<Vec<u8>> = sealed.iter().map(|one| one.explain(false)).collect();
    let good = sequence(&stream(&fixed, &sealed, &Pick::Levels(0x05)));
    let field_of = |item: &Value, field: usize| {
        let Value::Array(fields) = item else { panic!() };
        let Value::Bytes(bytes) = &fields[field] else { panic!() };
        bytes.clone()
    };
    let flipped = |item: &Value, field: usize, at: usize| {
        let mut bytes = field_of(item, field);
        bytes[at] ^= 1;
        item.with(field, Value::Bytes(bytes))
    };
    let altered = |at: usize, part: Value| {
        let mut run = good.clone();
        run[2 + at] = part;
        run
    };
    file.valid("an honest run", "stream.explain", case(&good, &honest));
    file.valid(
        "a run whose signature only is wrong",
        "stream.explain",
        case(&altered(2, flipped(&good[4], SIGNATURE, 9)), &honest),
    );
    file.valid(
        "a run without a signature",
        "stream.explain",
        case(&altered(2, good[4].with(SIGNATURE, NULL)), &honest),
    );
    let last = field_of(&good[2], EVENTS).len() - 1;
    for (name, run, error) in [
        (
            "an event of the finest level",
            altered(0, flipped(&good[2], EVENTS, 0)),
            "BlockDigestMismatch",
        ),
        (
            "an event of the coarsest level",
            altered(0, flipped(&good[2], EVENTS, last)),
            "BlockDigestMismatch",
        ),
        (
            "an event of the last seal",
            altered(2, flipped(&good[4], EVENTS, 0)),
            "BlockDigestMismatch",
        ),
        ("a digest", altered(0, flipped(&good[2], DIGESTS, 0)), "EvidenceMismatch"),
        (
            "an event and a digest",
            altered(0, flipped(&flipped(&good[2], DIGESTS, 0), EVENTS, 0)),
            "BlockDigestMismatch",
        ),
        (
            "the salt",
            sequence_of_nothing(&sealed, |part| flipped(part, SALT, 0)),
            "StatementMismatch",
        ),
        ("the epoch", altered(1, good[3].with(ADVANCE, int(2))), "StatementMismatch"),
        ("a restart", altered(0, good[2].with(FLAGS, int(6))), "StatementMismatch"),
        (
            "the scheme",
            sequence_of_nothing(&sealed, |part| part.with(FLAGS, int(3))),
            "StatementMismatch",
        ),
        (
            "an answered query",
            altered(0, good[2].with(ANSWERED, array([array([bytes(&[1; 16]), int(1), int(1)])]))),
            "StatementMismatch",
        ),
        (
            "the schema",
            [&[array([int(0), bytes(&schema(&["x::u32"]))])], &good[1..]].concat(),
            "StatementMismatch",
        ),
        ("a seal left out", [&good[..3], &good[4..]].concat(), "StatementMismatch"),
        ("a part that cannot be", altered(0, good[2].with(EVENTS, bytes(b""))), "EventsLength"),
    ] {
        let index = if name == "a seal left out" {
            vec![honest[0].clone(), honest[2].clone()]
        } else {
            honest.clone()
        };
        file.invalid(format!("a star: {name}"), "stream.explain", case(&run, &index), error);
    }
    // This store serves an altered answer, and also returns wrong explaining forms.
    let explain =
        |seal: &[u8], digests: &[u8]| array([int(6), bytes(seal), bytes(digests)]).encode();
    let signed: Vec<Vec<u8>> =
        sealed.iter().map(|one| write::sign1(&one.seal, &one.signature)).collect();
    let digests: Vec<u8> = sealed[0].blocks.iter().flat_map(|digest| digest.0).collect();
    let mut wrong = digests.clone();
    wrong[100] ^= 1;
    let mut broken = signed[0].clone();
    *broken.last_mut().unwrap() ^= 1;
    let mut short = Value::decode(&signed[0]);
    short.elements()[3] = bytes(&[1; 63]);
    let theirs = three("late", Scheme::Tree).len();
    assert_eq!(theirs, 3);
    let foreign = opaque(Scheme::Star);
    for (name, explanation, error) in [
        ("another seal of the device", explain(&signed[2], &digests), "StatementMismatch"),
        (
            "a seal of another suite",
            explain(&write::sign1(&foreign.seal, &foreign.signature), &digests),
            "AlgorithmMismatch",
        ),
        ("a seal with another signature", explain(&broken, &digests), "NotAuthentic"),
        ("a seal with a short signature", explain(&short.encode(), &digests), "MalformedSignature"),
        ("no seal", explain(b"", &digests), "Truncated"),
        (
            "a certificate",
            explain(
                &world::certificate(&operator(), "vectors", "ed", 0, &operator().public(), 0),
                &digests,
            ),
            "WrongType",
        ),
        ("a digest less", explain(&signed[0], &digests[32..]), "DigestCount"),
        ("a byte more", explain(&signed[0], &[&digests[..], &[0]].concat()), "DigestCount"),
        ("no digests", explain(&signed[0], b""), "DigestCount"),
        ("another digest", explain(&signed[0], &wrong), "RootMismatch"),
    ] {
        let explained = [explanation, honest[1].clone(), honest[2].clone()];
        file.invalid(
            format!("explained: {name}"),
            "stream.explain",
            case(&altered(0, flipped(&good[2], EVENTS, 0)), &explained),
            error,
        );
    }
    file.invalid(
        "a seal that is not explained",
        "stream.explain",
        case(&good, &honest[..2]),
        "ExplanationWithheld",
    );

    let tree = three("ed", Scheme::Tree);
    let good = sequence(&stream(&fixed, &tree[..1], &Pick::Events(vec![3, 4, 20])));
    let altered = |part: Value| [&good[..2], &[part]].concat();
    for leaves in [false, true] {
        let honest = [tree[0].explain(leaves)];
        let how = if leaves { "with leaf hashes" } else { "without leaf hashes" };
        file.valid(
            format!("an honest tree, explained {how}"),
            "stream.explain",
            case(&good, &honest),
        );
        file.invalid(
            format!("a tree: an event, explained {how}"),
            "stream.explain",
            case(&altered(flipped(&good[2], EVENTS, 5)), &honest),
            "PathMismatch",
        );
        let digest = if leaves { "EvidenceMismatch" } else { "PathMismatch" };
        file.invalid(
            format!("a tree: a digest, explained {how}"),
            "stream.explain",
            case(&altered(flipped(&good[2], DIGESTS, 5)), &honest),
            digest,
        );
    }
    let seal = write::sign1(&tree[0].seal, &tree[0].signature);
    let mut leaves: Vec<u8> = tree[0].leaves().iter().flat_map(|leaf| leaf.0).collect();
    file.invalid(
        "a tree: a leaf hash less",
        "stream.explain",
        case(&good, &[explain(&seal, &leaves[32..])]),
        "DigestCount",
    );
    leaves[40] ^= 1;
    file.invalid(
        "a tree: another leaf hash",
        "stream.explain",
        case(&good, &[explain(&seal, &leaves)]),
        "RootMismatch",
    );
    file
}

/// Returns a run without selected events, in which `change` has changed the first part. Without
/// events and digests, the run has the same form for every salt and scheme.
fn sequence_of_nothing(sealed: &[Sealed], change: impl Fn(&Value) -> Value) -> Vec<Value> {
    let mut run = sequence(&stream(&schema(FIXED), sealed, &Pick::Levels(0)));
    run[2] = change(&run[2]);
    run
}

fn receipts() -> File {
    let mut file = File::new(
        "tree/receipts.json",
        "COSE Receipts of inclusion: objects.md, section 8, RFC 9942.",
    );
    let fixed = schema(FIXED);
    let mut cases = Vec::new();
    for (name, algorithm) in [("ed", Algorithm::Ed25519), ("p256", Algorithm::Esp256)] {
        let mut device = Device::new(&group(), name, &fixed);
        for count in [2u32, 3, 24] {
            let sealed = device.seal(&Epoch::new(Scheme::Tree, 10 + u64::from(count), count));
            let key = public(&device.secret(0));
            for seq in [0, count - 1, count / 2] {
                let multiproof = sealed.multiproof(&[u64::from(seq)]);
                let seq_ = moteseal_core::record::Sequence(u64::from(seq));
                let path = receipt::path_of(u64::from(count), seq_, &multiproof).unwrap();
                assert_eq!(path, world::path(&sealed.leaves(), u64::from(seq)));
                let mut out = vec![0; 4096];
                let mut writer = Writer::new(&mut out);
                sealed.seal.encode_receipt(&mut writer, &sealed.signature, seq_, &path).unwrap();
                let length = writer.position();
                let record = &sealed.records[usize::try_from(seq).unwrap()];
                let input = json!({ "bytes": hex::encode(&out[..length]), "record": hex::encode(record), "alg": key["alg"], "key": key["key"] });
                assert_eq!(root_of(&sealed.leaves()), *sealed.seal.root());
                file.valid(
                    format!("event {seq} of {count}, {algorithm}"),
                    "tree.receipt",
                    input.clone(),
                );
                cases.push(input);
            }
        }
    }
    let good = cases[7].clone();
    let changed = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut value = Value::decode(&hex::decode(good["bytes"].as_str().unwrap()).unwrap());
        change(value.elements());
        let mut input = good.clone();
        input["bytes"] = json!(hex::encode(value.encode()));
        input
    };
    let proof = |change: &dyn Fn(&mut Vec<Value>)| {
        changed(&|parts| {
            let Value::Map(vdp) = &mut parts[1] else { panic!() };
            let Value::Map(proofs) = &mut vdp[0].1 else { panic!() };
            let list = proofs[0].1.elements();
            let Value::Bytes(encoded) = &list[0] else { panic!() };
            let mut proof = Value::decode(encoded);
            change(proof.elements());
            list[0] = Value::Bytes(proof.encode());
        })
    };
    let refused = "ReceiptRefused";
    let with = |field: &str, value: &Json| {
        let mut input = good.clone();
        input[field] = value.clone();
        input
    };
    file.invalid("another record", "tree.receipt", with("record", &json!("00000000")), refused);
    file.invalid("an empty record", "tree.receipt", with("record", &json!("")), refused);
    file.invalid("another key", "tree.receipt", with("key", &public(&operator())["key"]), refused);
    file.invalid(
        "another event's record",
        "tree.receipt",
        with("record", &cases[6]["record"]),
        refused,
    );
    file.invalid("another position", "tree.receipt", proof(&|proof| proof[1] = int(5)), refused);
    file.invalid(
        "a position that is not there",
        "tree.receipt",
        proof(&|proof| proof[1] = int(24)),
        refused,
    );
    file.invalid("another size", "tree.receipt", proof(&|proof| proof[0] = int(1000)), refused);
    file.invalid(
        "a digest less",
        "tree.receipt",
        proof(&|proof| drop(proof[2].elements().pop())),
        refused,
    );
    file.invalid(
        "no digests",
        "tree.receipt",
        proof(&|proof| proof[2].elements().clear()),
        refused,
    );
    file.invalid(
        "a digest more",
        "tree.receipt",
        proof(&|proof| proof[2].elements().push(bytes(&[0; 32]))),
        refused,
    );
    file.invalid(
        "another digest",
        "tree.receipt",
        proof(&|proof| proof[2].elements()[0] = bytes(&[0; 32])),
        refused,
    );
    file.invalid(
        "a digest of 31 bytes",
        "tree.receipt",
        proof(&|proof| proof[2].elements()[0] = bytes(&[0; 31])),
        refused,
    );
    file.invalid(
        "the payload attached",
        "tree.receipt",
        changed(&|parts| parts[2] = bytes(&[0; 32])),
        refused,
    );
    file.invalid(
        "no proof",
        "tree.receipt",
        changed(&|parts| parts[1] = Value::Map(vec![])),
        refused,
    );
    file.invalid(
        "another signature",
        "tree.receipt",
        changed(&|parts| parts[3] = bytes(&[0; 64])),
        refused,
    );
    file.invalid("no tag", "tree.receipt", changed(&|parts| parts.push(NULL)), refused);
    let mut star = Device::new(&group(), "ed", &fixed);
    let sealed = star.seal(&Epoch::new(Scheme::Star, 7, 24));
    let mut parts = Value::decode(&write::sign1(&sealed.seal, &sealed.signature));
    let tree =
        Value::decode(&hex::decode(good["bytes"].as_str().unwrap()).unwrap()).elements().clone();
    parts.elements()[1] = tree[1].clone();
    parts.elements()[2] = NULL;
    file.invalid(
        "the seal of a star",
        "tree.receipt",
        with("bytes", &json!(hex::encode(parts.encode()))),
        refused,
    );
    file
}
