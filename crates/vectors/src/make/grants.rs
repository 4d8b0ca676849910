//! Vectors of grants, owners' files and shares (spec/grants.md).

use moteseal_core::confidential::{ColumnId, Commitment, Nonce, SealKey, StreamSecret, Suite};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{self, GROUP, header, operator, roster, secret, sign1};
use moteseal_grant::{GrantRequest, Owner, Recipient, Recipients, split};
use moteseal_verify::Roster;
use moteseal_verify::issue::{NextRoster, PeriodChange};
use serde_json::{Value as Json, json};

use super::cose::parts_of;
use super::{File, Files, of};

const TYP: &str = "moteseal-grant+cose";
const BASE: u64 = 100;
/// Recipients of age: those of the identities whose secret bytes are 1 to 32, and 2 to 33.
const READERS: [&str; 2] = [
    "age1q73he0q5yzfu3d64msd3p6rvksnrwjk3d2598mgtmlqt9wrdr37q2vrn72",
    "age14w0jv2xryhq5r60mysc0zp59pa3fxz7r7zcjmuu6nwz2f8rur5fqtfp9v9",
];

pub fn make(files: &mut Files) {
    let scene = Scene::new();
    files.add(scene.grants());
    files.add(scene.keys());
    files.add(scene.longer_epochs());
    files.add(owners());
    files.add(shares());
}

fn alice() -> SecretKey {
    secret(Algorithm::Ed25519, 61)
}

fn device(name: &str) -> DeviceId {
    DeviceId::of(GROUP, name)
}

fn column(name: &str) -> ColumnId {
    ColumnId::of(name.as_bytes())
}

fn stream(byte: u8, base: u64) -> StreamSecret {
    StreamSecret::new([byte; 32], EpochNumber(base))
}

/// Returns an owner of two devices, of which one has had two secrets.
fn owner() -> Owner {
    let columns = ["temperature", "humidity"].map(|name| (column(name), name));
    let mut owner = Owner::new(GROUP, "alice", alice()).unwrap();
    owner.add(device("north"), stream(1, BASE), &columns).unwrap();
    owner.add(device("south"), stream(2, BASE + 50), &columns[..1]).unwrap();
    owner.add(device("south"), stream(3, BASE + 90), &columns).unwrap();
    owner
}

struct Scene {
    owner: Owner,
    bytes: Vec<u8>,
    roster: Roster,
}

impl Scene {
    fn new() -> Self {
        let (operator, first) = (operator(), roster(world::BUDGETED));
        let public = operator.public();
        let mut next = NextRoster::after(&first, &operator, &public).unwrap();
        next.set_owner("alice", &alice().public()).unwrap();
        next.set_owner("bob", &secret(Algorithm::Esp256, 62).public()).unwrap();
        let bytes = next.issue().unwrap();
        let roster = Roster::open(&bytes, &public).unwrap();
        Self { owner: owner(), bytes, roster }
    }

    fn file(&self, path: &'static str, about: &'static str) -> File {
        File::new(path, about)
            .operator(&operator())
            .shared("roster", json!(hex::encode(&self.bytes)))
    }

    fn signed(&self, recipients: &Recipients, names: &[&str]) -> Vec<u8> {
        let devices: Vec<_> = names.iter().map(|name| device(name)).collect();
        let request = GrantRequest {
            devices: &devices,
            columns: None,
            epochs: EpochNumber(BASE + 3)..=EpochNumber(BASE + 107),
            recipients,
            not_after_ms: Some(1_800_000_000_000),
            purpose: "heating study",
        };
        self.owner.sign_grant(&request, &self.roster).unwrap().to_vec()
    }

    fn readers() -> Recipients {
        Recipients::Keys(READERS.map(|text| Recipient::parse(text).unwrap()).to_vec())
    }

    fn grants(&self) -> File {
        let mut file =
            self.file("grant/grants.json", "Signed grants: grants.md, sections 3 and 4.");
        let op = "grant.open";
        let signed = self.signed(&Self::readers(), &["north", "south"]);
        let given = |signed: &[u8], recipient: &str, now: u64| {
            let mut input = of(signed);
            input["recipient"] = json!(recipient);
            input["now"] = json!(now);
            input
        };
        let (end, reader) = (1_800_000_000_000, READERS[0]);
        file.valid("two devices", op, given(&signed, reader, 0));
        file.valid("the other recipient, at the end", op, given(&signed, READERS[1], end));
        file.invalid("after the end", op, given(&signed, reader, end + 1), "GrantExpired");
        file.invalid("another recipient", op, given(&signed, "age1xyz", 0), "NotForYou");
        let with_passphrase = |signed: &[u8], passphrase: &str| {
            let mut input = of(signed);
            input["passphrase"] = json!(passphrase);
            input["now"] = json!(0);
            input
        };
        file.invalid("a passphrase", op, with_passphrase(&signed, "correct horse"), "NotForYou");
        // The salt is random, so the payload is made by hand.
        let payload = payload_of(&signed);
        let tag = hex::decode(PASSPHRASE_TAG).unwrap();
        let sign = |payload: &Value| {
            sign1(&alice(), &header(Algorithm::Ed25519, TYP, &[]), &payload.encode())
        };
        let for_passphrase = sign(&payload.with(8, bytes(&tag)));
        file.valid("for a passphrase", op, with_passphrase(&for_passphrase, "correct horse"));
        let other = with_passphrase(&for_passphrase, "wrong horse");
        file.invalid("another passphrase", op, other, "NotForYou");
        file.invalid("no passphrase", op, given(&for_passphrase, reader, 0), "NotForYou");

        let streams = elements(&payload)[9].clone();
        let one = elements(&streams)[0].clone();
        let columns = elements(&one)[3].clone();
        let nodes = elements(&elements(&columns)[0])[1].clone();
        let with_streams = |streams: Value| payload.with(9, streams);
        let with_columns = |columns: Value| with_streams(streams.with(0, one.with(3, columns)));
        let with_nodes =
            |nodes: Value| with_columns(columns.with(0, elements(&columns)[0].with(1, nodes)));
        let node = |depth: i64, prefix: i64| array([int(depth), int(prefix), bytes(&[7; 32])]);
        for (what, payload) in [
            ("no end and no purpose", payload.with(6, NULL).with(7, text(""))),
            ("the longest purpose", payload.with(7, text(&"x".repeat(256)))),
            ("no end of the time", payload.with(5, NULL)),
            ("a time of one millisecond", payload.with(4, int(7)).with(5, int(8))),
            ("the root", with_nodes(array([node(0, 0)]))),
            ("the last leaf", with_nodes(array([node(32, i64::from(u32::MAX))]))),
        ] {
            file.valid(what, op, given(&sign(&payload), reader, 0));
        }
        let many = |count: usize| {
            let texts = (0..count).map(|number| text(&format!("age1{number:03}")));
            payload.with(8, Value::Array(texts.collect()))
        };
        for (what, payload, error) in [
            ("another version", payload.with(0, int(2)), "UnsupportedVersion"),
            ("nine fields", Value::Array(elements(&payload)[..9].to_vec()), "UnexpectedType"),
            ("another group", payload.with(1, bytes(&[9; 8])), "WrongGroup"),
            ("another roster", payload.with(2, bytes(&[9; 32])), "UnknownRoster"),
            ("an unknown owner", payload.with(3, bytes(&[9; 8])), "UnknownOwner"),
            ("an empty time", payload.with(4, int(8)).with(5, int(8)), "FieldOutOfRange"),
            ("a negative start", payload.with(4, int(-1)), "UnexpectedType"),
            ("a negative end", payload.with(6, int(-1)), "UnexpectedType"),
            ("a purpose of 257 bytes", payload.with(7, text(&"x".repeat(257))), "FieldOutOfRange"),
            ("a purpose with a line feed", payload.with(7, text("a\nb")), "FieldOutOfRange"),
            ("no recipients", many(0), "FieldOutOfRange"),
            ("65 recipients", many(65), "FieldOutOfRange"),
            (
                "a recipient twice",
                payload.with(8, array([text(reader), text(reader)])),
                "FieldOutOfRange",
            ),
            ("an empty recipient", payload.with(8, array([text("")])), "FieldOutOfRange"),
            (
                "a recipient of 129 bytes",
                payload.with(8, array([text(&"x".repeat(129))])),
                "FieldOutOfRange",
            ),
            ("a passphrase tag of 31 bytes", payload.with(8, bytes(&[1; 31])), "UnexpectedType"),
            ("no streams", with_streams(array([])), "FieldOutOfRange"),
            ("a stream twice", with_streams(array([one.clone(), one.clone()])), "FieldOutOfRange"),
            (
                "a base epoch without 2^32 epochs",
                with_streams(streams.with(0, one.with(2, Value::Uint(u64::MAX - 5)))),
                "FieldOutOfRange",
            ),
            ("no columns", with_columns(array([])), "FieldOutOfRange"),
            (
                "a column twice",
                with_columns(Value::Array(vec![elements(&columns)[0].clone(); 2])),
                "FieldOutOfRange",
            ),
            ("no nodes", with_nodes(array([])), "FieldOutOfRange"),
            (
                "65 nodes",
                with_nodes(Value::Array((0..65).map(|n| node(32, n)).collect())),
                "FieldOutOfRange",
            ),
            ("a node of depth 33", with_nodes(array([node(33, 0)])), "FieldOutOfRange"),
            ("a prefix that is too large", with_nodes(array([node(4, 16)])), "FieldOutOfRange"),
            ("overlapping nodes", with_nodes(array([node(4, 0), node(5, 1)])), "FieldOutOfRange"),
            (
                "nodes out of order",
                with_nodes(nodes.with(0, node(32, i64::from(u32::MAX)))),
                "FieldOutOfRange",
            ),
            (
                "a key of 31 bytes",
                with_nodes(array([node(4, 0).with(2, bytes(&[7; 31]))])),
                "UnexpectedType",
            ),
        ] {
            file.invalid(what, op, given(&sign(&payload), reader, 0), error);
        }
        let generations = |count: i64| {
            let root = array([bytes(&[1; 16]), array([node(0, 0)])]);
            let of = |generation| one.with(1, int(generation)).with(3, array([root.clone()]));
            with_streams(Value::Array((0..count).map(of).collect()))
        };
        file.valid("64 generations", op, given(&sign(&generations(64)), reader, 0));
        let many = given(&sign(&generations(65)), reader, 0);
        file.invalid("65 generations", op, many, "TooManyGenerations");
        let esp = secret(Algorithm::Esp256, 62);
        let by_bob = sign1(&esp, &header(esp.algorithm(), TYP, &[]), &payload.encode());
        file.invalid("another suite", op, given(&by_bob, reader, 0), "AlgorithmMismatch");
        let mallory = secret(Algorithm::Ed25519, 63);
        let forged = sign1(&mallory, &header(mallory.algorithm(), TYP, &[]), &payload.encode());
        file.invalid("another key", op, given(&forged, reader, 0), "NotAuthentic");
        let typ = header(Algorithm::Ed25519, "moteseal-roster+cose", &[]);
        let wrong = sign1(&alice(), &typ, &payload.encode());
        file.invalid("the typ of a roster", op, given(&wrong, reader, 0), "WrongType");
        let small =
            self.signed(&Recipients::Keys(vec![Recipient::parse(reader).unwrap()]), &["north"]);
        file.mutate("changed bytes", op, given(&small, reader, 0), "bytes", &[1, 0x80]);
        file
    }

    fn keys(&self) -> File {
        let mut file = self.file("grant/keys.json", "Keys of seals: grants.md, section 4.2.");
        let op = "grant.key";
        let signed = self.signed(&Self::readers(), &["north", "south"]);
        let north =
            Case { device: "north", column: "humidity", epoch: BASE + 64, suite: Suite::ChaCha20 };
        let south = Case {
            device: "south",
            column: "temperature",
            epoch: BASE + 95,
            suite: Suite::Aes128Ctr,
        };
        let (first, second, third) = (stream(1, BASE), stream(2, BASE + 50), stream(3, BASE + 90));
        file.valid("a column", op, north.input(&signed, &first));
        file.valid("the earlier of two secrets", op, south.input(&signed, &second));
        file.valid("the later of two secrets", op, south.input(&signed, &third));
        for epoch in [BASE + 3, BASE + 107] {
            file.valid(
                "the first and the last epoch",
                op,
                Case { epoch, ..north }.input(&signed, &first),
            );
        }
        for (what, case) in [
            ("before the first epoch", Case { epoch: BASE + 2, ..north }),
            ("after the last epoch", Case { epoch: BASE + 108, ..north }),
            ("another device", Case { device: "west", ..north }),
            ("another column", Case { column: "pressure", ..north }),
        ] {
            file.invalid(what, op, case.input(&signed, &first), "NotCovered");
        }
        // The same keys, for a time that begins or ends a millisecond inside an epoch.
        let payload = payload_of(&signed);
        let (since, until) = (elements(&payload)[4].clone(), elements(&payload)[5].clone());
        let (Value::Uint(since), Value::Uint(until)) = (since, until) else { panic!() };
        let sign = |field: usize, ms: u64| {
            let payload = payload.with(field, Value::Uint(ms)).encode();
            sign1(&alice(), &header(Algorithm::Ed25519, TYP, &[]), &payload)
        };
        for (what, field, ms, epoch) in [
            ("the time begins in the epoch", 4, since + 1, BASE + 3),
            ("the time ends in the epoch", 5, until - 1, BASE + 107),
        ] {
            let case = |epoch| Case { epoch, ..north }.input(&sign(field, ms), &first);
            file.invalid(what, op, case(epoch), "GrantOutdated");
            file.valid("another epoch of this grant", op, case(BASE + 64));
        }
        file.valid("the time has no end", op, {
            let payload = payload.with(5, NULL).encode();
            let signed = sign1(&alice(), &header(Algorithm::Ed25519, TYP, &[]), &payload);
            Case { epoch: BASE + 107, ..north }.input(&signed, &first)
        });
        file.invalid("the key of another secret", op, north.input(&signed, &second), "WrongKey");
        file
    }
}

impl Scene {
    /// A grant for eight epochs. The second half of them got twice the length afterwards.
    fn longer_epochs(&self) -> File {
        let first = BASE + 4;
        let devices = [device("north")];
        let request = GrantRequest {
            devices: &devices,
            columns: None,
            epochs: EpochNumber(first)..=EpochNumber(first + 7),
            recipients: &Self::readers(),
            not_after_ms: None,
            purpose: "",
        };
        let signed = self.owner.sign_grant(&request, &self.roster).unwrap();
        let (operator, public) = (operator(), operator().public());
        let mut next = NextRoster::after(&self.bytes, &operator, &public).unwrap();
        let change = PeriodChange { epoch_ms: Some(1_800_000), ..PeriodChange::default() };
        next.begin_period(EpochNumber(first + 4), &change).unwrap();
        let about = "A grant whose epochs became longer: grants.md, section 4.2.";
        let mut file = File::new("grant/longer_epochs.json", about)
            .operator(&operator)
            .shared("roster", json!(hex::encode(next.issue().unwrap())));
        let mut input = of(&signed);
        input["recipient"] = json!(READERS[0]);
        input["now"] = json!(0);
        file.valid("what it opens", "grant.open", input);
        let key = |epoch: u64| {
            let case = Case { device: "north", column: "humidity", epoch, suite: Suite::ChaCha20 };
            case.input(&signed, &stream(1, BASE))
        };
        for (what, epoch) in [
            ("the first epoch", first),
            ("the last epoch of the old length", first + 3),
            ("the first epoch of the new length", first + 4),
            ("the last epoch within the time", first + 5),
        ] {
            file.valid(what, "grant.key", key(epoch));
        }
        for (what, epoch) in [
            ("the first epoch after the time", first + 6),
            ("the last epoch that the nodes open", first + 7),
        ] {
            file.invalid(what, "grant.key", key(epoch), "GrantOutdated");
        }
        file.invalid("after the last epoch", "grant.key", key(first + 8), "NotCovered");
        for (what, other) in [
            ("another key, with an earlier roster", secret(Algorithm::Ed25519, 63)),
            ("another suite, with an earlier roster", secret(Algorithm::Esp256, 62)),
        ] {
            let head = header(other.algorithm(), TYP, &[]);
            let mut input = of(&sign1(&other, &head, &payload_of(&signed).encode()));
            input["recipient"] = json!(READERS[0]);
            input["now"] = json!(0);
            file.invalid(what, "grant.open", input, "OwnerKeyChanged");
        }
        file
    }
}

/// scrypt of "correct horse" with the salt of 16 bytes 5: grants.md, section 3.2.
const PASSPHRASE_TAG: &str = "050505050505050505050505050505051200d860b6a17ade9d12de770e5e3e6a";

#[derive(Clone, Copy)]
struct Case {
    device: &'static str,
    column: &'static str,
    epoch: u64,
    suite: Suite,
}

impl Case {
    /// Returns the key that a device with this secret uses.
    fn key(&self, secret: &StreamSecret) -> SealKey {
        let key = secret.column(column(self.column)).epoch_key(EpochNumber(self.epoch)).unwrap();
        key.seal_key(device(self.device), SealIndex(7), self.suite, &Nonce([8; 12]))
    }

    fn input(&self, signed: &[u8], secret: &StreamSecret) -> Json {
        let Commitment(commitment) = self.key(secret).commitment();
        let mut input = of(signed);
        input["device"] = json!(device(self.device).to_string());
        input["column"] = json!(column(self.column).to_string());
        input["epoch"] = json!(self.epoch);
        input["index"] = json!(7);
        input["suite"] = json!(self.suite.number());
        input["nonce"] = json!(hex::encode([8; 12]));
        input["commitment"] = json!(hex::encode(commitment));
        input
    }
}

fn payload_of(signed: &[u8]) -> Value {
    let Value::Bytes(payload) = parts_of(signed)[2].clone() else { panic!() };
    Value::decode(&payload)
}

fn elements(value: &Value) -> &[Value] {
    let Value::Array(elements) = value else { panic!("not an array") };
    elements
}

/// Returns a file with this content and the right check value.
fn owner_file(version: i64, content: &[u8]) -> Vec<u8> {
    let check = Digest::of(&[b"moteseal/1/owner-file\0", content]);
    array([int(version), bytes(content), bytes(&check.0)]).encode()
}

fn owners() -> File {
    let mut file = File::new("grant/owners.json", "Owners' files: grants.md, section 2.");
    let (open, forget) = ("owner.open", "owner.forget");
    let owner = owner();
    let bytes_of = |owner: &Owner| owner.encode().unwrap().to_vec();
    let fresh = bytes_of(&owner);
    file.valid("three secrets", open, of(&fresh));
    let none = Owner::new(GROUP, "bob", alice()).unwrap();
    file.valid("no secret", open, of(&bytes_of(&none)));
    let before = |file: &[u8], epoch: u64| {
        let mut input = of(file);
        input["epoch"] = json!(epoch);
        input
    };
    for (what, epoch) in [
        ("nothing is forgotten", BASE),
        ("one secret forgets", BASE + 1),
        ("two secrets forget", BASE + 87),
        ("all secrets forget", BASE + (1 << 31)),
        ("all but the last epoch is forgotten", BASE + u64::from(u32::MAX)),
    ] {
        file.valid(what, forget, before(&fresh, epoch));
    }
    let late = before(&fresh, BASE + (1 << 32));
    file.invalid("after the last epoch", forget, late, "EpochOutOfKeyRange");
    let mut later = owner;
    later.add_columns(device("north"), &[(column("pressure"), "pressure")]).unwrap();
    file.valid("a column that was added", forget, before(&bytes_of(&later), BASE + 5));
    later.forget(EpochNumber(BASE + 5), None).unwrap();
    later.add_columns(device("north"), &[(column("light"), "light")]).unwrap();
    let punctured = bytes_of(&later);
    file.valid("columns before and after", open, of(&punctured));
    file.valid("a second time", forget, before(&punctured, BASE + 1000));
    file.valid(
        "an earlier time, and a column that was added",
        forget,
        before(&punctured, BASE + 4),
    );
    later.forget(EpochNumber(BASE + 5), None).unwrap();
    let whole = bytes_of(&later);
    file.valid("the same time, and no added column", forget, before(&whole, BASE + 5));
    file.valid("an earlier time, and no added column", forget, before(&whole, BASE + 4));

    let Value::Bytes(content) = elements(&Value::decode(&fresh))[1].clone() else { panic!() };
    let content = Value::decode(&content);
    let streams = elements(&content)[3].clone();
    let one = elements(&streams)[0].clone();
    let with_streams = |streams: Value| content.with(3, streams);
    let with = |field: usize, value: Value| with_streams(streams.with(0, one.with(field, value)));
    let columns = elements(&one)[6].clone();
    let with_column = |field: usize, value: Value| {
        with(6, columns.with(0, elements(&columns)[0].with(field, value)))
    };
    let node = array([int(3), int(1), bytes(&[7; 32])]);
    let nodes = array([node.clone()]);
    for (what, content, error) in [
        ("an empty name", content.with(1, text("")), "FieldOutOfRange"),
        ("a secret twice", with_streams(array([one.clone(), one.clone()])), "DuplicateStream"),
        (
            "secrets out of order",
            with_streams(Value::Array(elements(&streams).iter().rev().cloned().collect())),
            "FieldOutOfRange",
        ),
        ("a secret of 31 bytes", with(4, bytes(&[1; 31])), "UnexpectedType"),
        ("a step without a forgotten epoch", with(3, int(1)), "FieldOutOfRange"),
        ("a forgotten epoch without a step", with(5, int(200)), "FieldOutOfRange"),
        ("nodes that are not expected", with_column(3, nodes), "FieldOutOfRange"),
        (
            "a column twice",
            with(6, Value::Array(vec![elements(&columns)[0].clone(); 2])),
            "FieldOutOfRange",
        ),
        ("an empty name of a column", with_column(1, text("")), "FieldOutOfRange"),
        ("a batch of 256", with_column(2, int(256)), "FieldOutOfRange"),
    ] {
        file.invalid(what, open, of(&owner_file(1, &content.encode())), error);
    }
    let right = content.encode();
    file.invalid("another version", open, of(&owner_file(2, &right)), "UnsupportedVersion");
    file.invalid(
        "four elements",
        open,
        of(&array([int(1), int(1), int(1), int(1)]).encode()),
        "UnexpectedType",
    );
    let mut damaged = fresh.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    file.invalid("another check value", open, of(&damaged), "Damaged");
    file.mutate("changed bytes", open, of(&bytes_of(&none)), "bytes", &[1, 0x80]);
    file
}

fn shares() -> File {
    let mut file = File::new("grant/shares.json", "Shares of backups: grants.md, section 5.2.");
    let op = "owner.share";
    let mut key = [0; 32];
    key.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value);
    let texts = |set: u8, slope: u8| {
        split(&key, [set; 4], &[slope; 32]).map(|share| share.to_text().to_string())
    };
    let (mine, other) = (texts(1, 0x9a), texts(2, 0x9a));
    let given = |shares: &[&String]| json!({ "shares": shares });
    let [one, two, three] = &mine;
    file.valid("the first and the second", op, given(&[one, two]));
    file.valid("the third and the first", op, given(&[three, one]));
    file.valid("all three", op, given(&[one, two, three]));
    file.valid("one twice", op, given(&[two, two, three]));
    file.valid("small letters", op, given(&[&one.to_lowercase(), two]));
    file.invalid("one share", op, given(&[one]), "TooFewShares");
    file.invalid("the same twice", op, given(&[three, three]), "TooFewShares");
    file.invalid("shares of two backups", op, given(&[one, &other[1]]), "OtherBackup");
    let [_, _, wrong] = &texts(1, 0x9b);
    file.invalid("a share that does not fit", op, given(&[one, two, wrong]), "ShareMismatch");
    let mut mistyped = one.clone();
    mistyped.replace_range(20..21, if &mistyped[20..21] == "Q" { "P" } else { "Q" });
    file.invalid("a mistyped share", op, given(&[&mistyped, two]), "MalformedShare");
    file.invalid("an age recipient", op, given(&[&READERS[0].to_owned(), two]), "MalformedShare");
    file
}
