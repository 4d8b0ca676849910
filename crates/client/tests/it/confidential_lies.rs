//! Lies and abuses of grants and of encrypted seals, each of which is refused by its name.

use std::collections::BTreeSet;

use moteseal_client::Session;
use moteseal_client::decrypt::{DeviceKeys, SealKeys};
use moteseal_client::estimate::Estimator;
use moteseal_core::confidential::{
    Commitment, KeyCommitments, KeyRequest, MAX_KEY_COMMITMENTS, Nonce, StreamSecret, Suite,
};
use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_fixtures::cbor_tree::{Value, array, bytes, int, text};
use moteseal_fixtures::world::{header, sign1};
use moteseal_grant::{
    GrantRequest, Identity, OpenError, OpenGrant, Owner, Passphrase, Recipient, Recipients, Unlock,
    encrypt,
};
use moteseal_seal::Position;
use moteseal_verify::Roster;
use moteseal_verify::issue::{FirstRoster, NextRoster, PeriodChange};

use crate::confidential::{
    BASE, Cells, FIELDS, encode, encrypted, next_index, record, secret_of, streams, unchecked,
};
use crate::support::{EPOCH, Group, everything};

const TYP: &str = "moteseal-grant+cose";
const ALL: u32 = u32::MAX;
/// The end of the grant, in Unix milliseconds.
const END: u64 = 1_000;

/// The records of a seal, and what it states about their keys.
type SealedRecords = (Vec<Vec<u8>>, KeyCommitments);

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[seed; 32]).unwrap()
}

/// An owner, a reader with a grant of temperatures, a thief, and a device whose seals they read.
struct World {
    group: Group,
    /// Version 1 of the group's roster lists alice, version 2 also bob.
    rosters: [Roster; 2],
    alice: Owner,
    bob: Owner,
    reader: Unlock,
    thief: Unlock,
    /// The grant of temperatures in two epochs, and its content.
    file: Vec<u8>,
    signed: Vec<u8>,
}

fn recipient(unlock: &Unlock) -> Recipients {
    let Unlock::Identities(identities) = unlock else { unreachable!() };
    Recipients::Keys(vec![identities[0].recipient().clone()])
}

fn next(before: &Roster, change: impl FnOnce(&mut NextRoster<'_>)) -> Roster {
    let operator = key(1);
    let mut next = NextRoster::after(before.bytes(), &operator, &operator.public()).unwrap();
    change(&mut next);
    Roster::open(&next.issue().unwrap(), &operator.public()).unwrap()
}

impl World {
    fn new() -> Self {
        let group = Group::new();
        let first = next(&group.roster, |next| next.set_owner("alice", &key(61).public()).unwrap());
        let second = next(&first, |next| next.set_owner("bob", &key(62).public()).unwrap());
        let bytes = encode(&FIELDS);
        let schema = Schema::decode(&bytes).unwrap();
        let columns: Vec<_> =
            schema.encrypted_columns().map(|(field, column)| (column, field.name)).collect();
        let mut alice = Owner::new("lab", "alice", key(61)).unwrap();
        let mut bob = Owner::new("lab", "bob", key(62)).unwrap();
        for name in ["mote-1", "mote-2"] {
            alice.add(group.device(name), secret_of(name), &columns).unwrap();
        }
        // Bob claims the first device, too.
        bob.add(group.device("mote-1"), StreamSecret::new([77; 32], BASE), &columns).unwrap();
        let [reader, thief] = [(); 2].map(|()| Unlock::Identities(vec![Identity::generate()]));
        let mut world = Self {
            group,
            rosters: [first, second],
            alice,
            bob,
            reader,
            thief,
            file: Vec::new(),
            signed: Vec::new(),
        };
        world.signed = world.sign(&world.alice, "mote-1", "temperature", (EPOCH, EPOCH + 1));
        world.file = encrypt(&world.signed, &recipient(&world.reader), false).unwrap();
        world
    }

    fn sign(&self, owner: &Owner, device: &str, column: &str, epochs: (u64, u64)) -> Vec<u8> {
        let (devices, columns) = ([self.group.device(device)], [column]);
        let recipients = recipient(&self.reader);
        let request = GrantRequest {
            devices: &devices,
            columns: Some(&columns),
            epochs: EpochNumber(epochs.0)..=EpochNumber(epochs.1),
            recipients: &recipients,
            not_after_ms: Some(END),
            purpose: "test",
        };
        owner.sign_grant(&request, &self.rosters[1]).unwrap().to_vec()
    }

    /// Opens a file at a time.
    fn open_at(&self, file: &[u8], unlock: &Unlock, now_ms: u64) -> String {
        self.open_with(file, unlock, &self.rosters[1], now_ms)
    }

    fn open_with(&self, file: &[u8], unlock: &Unlock, roster: &Roster, now_ms: u64) -> String {
        name(OpenGrant::open(file, unlock, roster, now_ms))
    }

    /// Opens a file with the reader's identity.
    fn open(&self, file: &[u8]) -> String {
        self.open_at(file, &self.reader, END)
    }

    /// Encrypts a signed object for the reader, who opens it.
    fn open_signed(&self, signed: &[u8]) -> String {
        self.open(&encrypt(signed, &recipient(&self.reader), false).unwrap())
    }

    /// Alice signs the payload of the grant after a change.
    fn open_changed(&self, change: impl FnOnce(&Value) -> Value) -> String {
        let payload = Value::decode(Sign1::decode(&self.signed, Typ::Grant).unwrap().payload);
        self.open_payload(&key(61), &change(&payload).encode())
    }

    fn open_payload(&self, key: &SecretKey, payload: &[u8]) -> String {
        self.open_signed(&sign1(key, &header(Algorithm::Ed25519, TYP, &[]), payload))
    }

    /// Alice signs the grant with other nodes.
    fn open_nodes(&self, nodes: Value) -> String {
        self.open_changed(|payload| change(payload, &[9, 0, 3, 0, 1], nodes))
    }

    /// Seals records of an epoch after a change of the device, and returns the answer.
    fn answer(&self, seal: &dyn Fn(&Schema<'_>, &Position) -> SealedRecords) -> Vec<u8> {
        let bytes = encode(&FIELDS);
        let mut position = self.group.start("mote-1");
        let (records, keys) = seal(&Schema::decode(&bytes).unwrap(), &position);
        self.answer_with(&mut position, &FIELDS, &records, Some(keys))
    }

    fn answer_with(
        &self,
        position: &mut Position,
        fields: &[&str],
        records: &[Vec<u8>],
        keys: Option<KeyCommitments>,
    ) -> Vec<u8> {
        let sealed = (records, keys);
        let part = (EPOCH, true);
        let seal = self.group.seal_encrypted("mote-1", position, part, fields, sealed);
        self.group.answer(&[(&seal, ALL)])
    }

    /// Returns the records that the device seals, and what it states about their keys.
    fn sealed(&self, schema: &Schema<'_>, position: &Position) -> SealedRecords {
        let (nonce, place) = (Nonce([8; 12]), (EpochNumber(EPOCH), next_index(position)));
        let device = self.group.device("mote-1");
        let streams = streams(schema, device, place, (&secret_of("mote-1"), nonce));
        encrypted(schema, &records(), nonce, streams)
    }

    /// Returns the answer of a device that states other keys than those of its records.
    fn stated(&self, alter: impl Fn(&mut [u8])) -> Vec<u8> {
        self.answer(&|schema, position| {
            let (records, keys) = self.sealed(schema, position);
            let mut buffer = [0; MAX_KEY_COMMITMENTS];
            let mut keys = keys.encode(&mut buffer).to_vec();
            alter(&mut keys);
            (records, KeyCommitments::decode(&keys).unwrap())
        })
    }

    fn honest(&self) -> Vec<u8> {
        self.answer(&|schema, position| self.sealed(schema, position))
    }

    /// Returns the reason why the temperature is missing in all rows of an answer, the value in the first
    /// row, or the error of the answer.
    fn temperature(&self, answer: &[u8], keys: Option<&mut dyn SealKeys>) -> String {
        let mut found = Cells::default();
        match self.group.read(&["mote-1"], keys, answer, &mut found) {
            Err(error) => error,
            Ok(_) => {
                let reasons: BTreeSet<_> =
                    found.0.iter().map(|(.., row)| row[0].as_ref().err().copied()).collect();
                assert_eq!((found.0.len(), reasons.len()), (records().len(), 1));
                found.0[0].3[0].clone().unwrap_or_else(str::to_owned)
            }
        }
    }

    /// The same for the holder of a signed grant.
    fn granted(&self, answer: &[u8], signed: &[u8]) -> String {
        let grant = OpenGrant::verify(signed, &self.rosters[1]).unwrap();
        self.temperature(answer, Some(&mut grant.keys()))
    }
}

fn records() -> Vec<Vec<u8>> {
    (0..9).map(|at| record(2000 + 100 * at, at as u8, at % 2 == 0, "attic")).collect()
}

fn name(result: Result<OpenGrant, OpenError>) -> String {
    result.map_or_else(|error| error.name().to_owned(), |_| "opened".to_owned())
}

/// Returns a tree in which the element on a path is replaced.
fn change(value: &Value, path: &[usize], new: Value) -> Value {
    let Some((at, rest)) = path.split_first() else { return new };
    let Value::Array(elements) = value else { panic!("{value:?} is not an array") };
    value.with(*at, change(&elements[*at], rest, new))
}

fn element(value: &Value, path: &[usize]) -> Value {
    path.iter().fold(value.clone(), |value, at| {
        let Value::Array(elements) = value else { panic!("not an array") };
        elements[*at].clone()
    })
}

fn node(depth: i64, prefix: i64) -> Value {
    array([int(depth), int(prefix), bytes(&[7; 32])])
}

fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(text).unwrap().with_work_factor(2).unwrap()
}

/// A header of age that demands 2^40 rounds of scrypt.
const BOMB: &str = "age-encryption.org/v1\n-> scrypt AAAAAAAAAAAAAAAAAAAAAA 40\n\
    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n\
    --- AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n0123456789abcdef0123456789abcdef";

type Lie = (&'static str, fn(&World) -> String, &'static str);

/// Files and grants: who may open what, and until when.
const GRANTS: [Lie; 32] = [
    (
        "a thief opens the file",
        |world| world.open_at(&world.file, &world.thief, 0),
        "NoMatchingKey",
    ),
    (
        "the reader encrypts the grant for a thief",
        |world| {
            let file = encrypt(&world.signed, &recipient(&world.thief), false).unwrap();
            world.open_at(&file, &world.thief, 0)
        },
        "NotForYou",
    ),
    (
        "the reader encrypts the grant with a passphrase",
        |world| {
            let chosen = Recipients::Passphrase(passphrase("chosen"));
            let file = encrypt(&world.signed, &chosen, false).unwrap();
            world.open_at(&file, &Unlock::Passphrase(passphrase("chosen")), 0)
        },
        "NotForYou",
    ),
    (
        "a passphrase is guessed",
        |world| {
            let chosen = Recipients::Passphrase(passphrase("chosen"));
            let file = encrypt(&world.signed, &chosen, false).unwrap();
            world.open_at(&file, &Unlock::Passphrase(passphrase("guessed")), 0)
        },
        "NoMatchingKey",
    ),
    (
        "a passphrase for a file for identities",
        |world| world.open_at(&world.file, &Unlock::Passphrase(passphrase("x")), 0),
        "OtherKeyKind",
    ),
    (
        "a file that makes its reader compute for years",
        |world| world.open_at(BOMB.as_bytes(), &Unlock::Passphrase(passphrase("x")), 0),
        "ExcessiveWork",
    ),
    (
        "a file with a hundred thousand recipients",
        |world| {
            let stanzas = "-> X25519 aaaa\nbbbb\n".repeat(100_000);
            world.open(format!("age-encryption.org/v1\n{stanzas}--- mac\n").as_bytes())
        },
        "FileTooLong",
    ),
    ("a file that was cut", |world| world.open(&world.file[..world.file.len() - 1]), "Damaged"),
    (
        "a file with an altered byte",
        |world| {
            let mut file = world.file.clone();
            *file.last_mut().unwrap() ^= 1;
            world.open(&file)
        },
        "Damaged",
    ),
    ("a grant in plaintext", |world| world.open(&world.signed), "NotEncrypted"),
    (
        "a grant after its end",
        |world| world.open_at(&world.file, &world.reader, END + 1),
        "GrantExpired",
    ),
    (
        "a reader moves the end",
        |world| {
            let payload = Value::decode(Sign1::decode(&world.signed, Typ::Grant).unwrap().payload);
            world.open_payload(&key(63), &payload.with(6, int(9_000)).encode())
        },
        "NotAuthentic",
    ),
    (
        "another owner signs in the name of alice",
        |world| {
            let payload = Sign1::decode(&world.signed, Typ::Grant).unwrap().payload.to_vec();
            world.open_payload(&key(62), &payload)
        },
        "NotAuthentic",
    ),
    (
        "an owner that was removed",
        |world| {
            let later = next(&world.rosters[1], |next| next.remove_owner("alice").unwrap());
            world.open_with(&world.file, &world.reader, &later, 0)
        },
        "UnknownOwner",
    ),
    (
        "an owner whose key was replaced by one of another suite",
        |world| {
            let esp = SecretKey::from_seed(Algorithm::Esp256, &[5; 32]).unwrap();
            let later =
                next(&world.rosters[1], |next| next.set_owner("alice", &esp.public()).unwrap());
            world.open_with(&world.file, &world.reader, &later, 0)
        },
        "OwnerKeyChanged",
    ),
    (
        "a reader moves the start of the time",
        |world| {
            let payload = Value::decode(Sign1::decode(&world.signed, Typ::Grant).unwrap().payload);
            world.open_payload(&key(63), &payload.with(4, int(0)).encode())
        },
        "NotAuthentic",
    ),
    (
        "an operator makes the epochs of a grant longer",
        |world| {
            let first = EpochNumber(EPOCH);
            let epoch_ms = Some(world.rosters[1].calendar().epoch_ms(first) * 100);
            let change = PeriodChange { epoch_ms, ..PeriodChange::default() };
            let later = next(&world.rosters[1], |next| next.begin_period(first, &change).unwrap());
            let grant = OpenGrant::verify(&world.signed, &later).unwrap();
            let bytes = encode(&FIELDS);
            let schema = Schema::decode(&bytes).unwrap();
            let (_, column) = schema.encrypted_columns().next().unwrap();
            let seal = KeyRequest {
                device: world.group.device("mote-1"),
                column,
                epoch: first,
                index: SealIndex(0),
                suite: Suite::ChaCha20,
                nonce: Nonce([3; 12]),
            };
            let key = grant.keys().seal_key(&seal, &Commitment([0; 16]));
            key.map_or_else(|error| error.name().to_owned(), |_| "opened".to_owned())
        },
        "GrantOutdated",
    ),
    (
        "a grant for a later version of the roster",
        |world| world.open_with(&world.file, &world.reader, &world.rosters[0], 0),
        "UnknownRoster",
    ),
    (
        "a grant of another group",
        |world| {
            let office = FirstRoster {
                group: "office",
                epoch_ms: 1,
                levels: 4,
                budget: None,
                devices: &[("mote-1", key(2).public())],
            };
            let office = office.issue(&key(1)).unwrap();
            let office = Roster::open(&office, &key(1).public()).unwrap();
            world.open_with(&world.file, &world.reader, &office, 0)
        },
        "WrongGroup",
    ),
    ("a roster as a grant", |world| world.open_signed(world.rosters[1].bytes()), "WrongType"),
    (
        "a later version of the format",
        |world| world.open_changed(|payload| payload.with(0, int(2))),
        "UnsupportedVersion",
    ),
    (
        "bytes after the payload",
        |world| {
            let payload = Sign1::decode(&world.signed, Typ::Grant).unwrap().payload.to_vec();
            world.open_payload(&key(61), &[&payload[..], &[0]].concat())
        },
        "TrailingBytes",
    ),
    (
        "a purpose that moves the cursor of a terminal",
        |world| world.open_changed(|payload| payload.with(7, text("\u{1b}[2J"))),
        "FieldOutOfRange",
    ),
    (
        "65 secrets of a device, so that its reader tries them all",
        |world| {
            world.open_changed(|payload| {
                let one = element(payload, &[9, 0]);
                let of = |generation| one.with(1, int(generation));
                payload.with(9, Value::Array((0..65).map(of).collect()))
            })
        },
        "TooManyGenerations",
    ),
    (
        "a secret twice",
        |world| {
            world.open_changed(|payload| {
                let one = element(payload, &[9, 0]);
                payload.with(9, array([one.clone(), one]))
            })
        },
        "FieldOutOfRange",
    ),
    (
        "a column twice",
        |world| {
            world.open_changed(|payload| {
                let one = element(payload, &[9, 0, 3, 0]);
                change(payload, &[9, 0, 3], array([one.clone(), one]))
            })
        },
        "FieldOutOfRange",
    ),
    ("a column without nodes", |world| world.open_nodes(array([])), "FieldOutOfRange"),
    (
        "65 nodes of a column",
        |world| world.open_nodes(Value::Array((0..65).map(|at| node(32, at)).collect())),
        "FieldOutOfRange",
    ),
    ("a node below the leaves", |world| world.open_nodes(array([node(33, 0)])), "FieldOutOfRange"),
    ("a node beside the tree", |world| world.open_nodes(array([node(4, 16)])), "FieldOutOfRange"),
    (
        "two nodes for one epoch",
        |world| world.open_nodes(array([node(4, 0), node(5, 1)])),
        "FieldOutOfRange",
    ),
    (
        "a base epoch at the end of time",
        |world| {
            world.open_changed(|payload| change(payload, &[9, 0, 2], Value::Uint(u64::MAX - 5)))
        },
        "FieldOutOfRange",
    ),
];

/// Seals with encrypted columns: which keys open them.
const SEALS: [Lie; 16] = [
    ("no keys", |world| world.temperature(&world.honest(), None), "Encrypted"),
    (
        "a grant of another column",
        |world| {
            let signed = world.sign(&world.alice, "mote-1", "open", (EPOCH, EPOCH));
            world.granted(&world.honest(), &signed)
        },
        "NotCovered",
    ),
    (
        "a grant of another device",
        |world| {
            let signed = world.sign(&world.alice, "mote-2", "temperature", (EPOCH, EPOCH));
            world.granted(&world.honest(), &signed)
        },
        "NotCovered",
    ),
    (
        "a grant of the epoch before",
        |world| {
            let signed = world.sign(&world.alice, "mote-1", "temperature", (EPOCH - 9, EPOCH - 1));
            world.granted(&world.honest(), &signed)
        },
        "NotCovered",
    ),
    (
        "a grant of the epoch after",
        |world| {
            let signed = world.sign(&world.alice, "mote-1", "temperature", (EPOCH + 1, EPOCH + 9));
            world.granted(&world.honest(), &signed)
        },
        "NotCovered",
    ),
    (
        "an owner grants a device that is not its own",
        |world| {
            let signed = world.sign(&world.bob, "mote-1", "temperature", (EPOCH, EPOCH));
            world.granted(&world.honest(), &signed)
        },
        "WrongKey",
    ),
    (
        "a device states another nonce",
        |world| world.granted(&world.stated(|keys| keys[0] ^= 1), &world.signed),
        "WrongKey",
    ),
    (
        "a device states another commitment",
        |world| world.granted(&world.stated(|keys| keys[12] ^= 1), &world.signed),
        "WrongKey",
    ),
    (
        "a device exchanges two commitments",
        |world| {
            let answer = world.stated(|keys| {
                let (one, two) = keys[12..].split_at_mut(16);
                one.swap_with_slice(&mut two[..16]);
            });
            world.granted(&answer, &world.signed)
        },
        "WrongKey",
    ),
    (
        "a device encrypts with keys of the next epoch",
        |world| {
            let answer = world.answer(&|schema, position| {
                let place = (EpochNumber(EPOCH + 1), next_index(position));
                let (device, nonce) = (world.group.device("mote-1"), Nonce([8; 12]));
                let streams = streams(schema, device, place, (&secret_of("mote-1"), nonce));
                encrypted(schema, &records(), nonce, streams)
            });
            world.granted(&answer, &world.signed)
        },
        "WrongKey",
    ),
    (
        "the secret of another device",
        |world| {
            let mut keys = DeviceKeys::new(world.group.device("mote-1"), secret_of("mote-2"));
            world.temperature(&world.honest(), Some(&mut keys))
        },
        "WrongKey",
    ),
    (
        "a device encrypts what is no value",
        |world| {
            let answer = world.answer(&|schema, position| {
                let place = (EpochNumber(EPOCH), next_index(position));
                let (device, nonce) = (world.group.device("mote-1"), Nonce([8; 12]));
                let streams = streams(schema, device, place, (&secret_of("mote-1"), nonce));
                let mut records = records();
                // Neither true nor false.
                records[4][3] = 2;
                unchecked(schema, &records, nonce, streams)
            });
            let mut keys = DeviceKeys::new(world.group.device("mote-1"), secret_of("mote-1"));
            world.temperature(&answer, Some(&mut keys))
        },
        "RecordValue",
    ),
    (
        "a seal states too few keys",
        |world| {
            let bytes = encode(&FIELDS);
            let schema = Schema::decode(&bytes).unwrap();
            let mut position = world.group.start("mote-1");
            let (records, keys) = world.sealed(&schema, &position);
            let mut buffer = [0; MAX_KEY_COMMITMENTS];
            let keys = keys.encode(&mut buffer);
            let fewer = KeyCommitments::decode(&keys[..keys.len() - 16]);
            let answer = world.answer_with(&mut position, &FIELDS, &records, fewer);
            world.granted(&answer, &world.signed)
        },
        "KeyCommitmentCount",
    ),
    (
        "a seal of encrypted columns states no keys",
        |world| {
            let mut position = world.group.start("mote-1");
            let answer = world.answer_with(&mut position, &FIELDS, &records(), None);
            world.granted(&answer, &world.signed)
        },
        "KeyCommitmentCount",
    ),
    (
        "a cloud alters ciphertext",
        |world| {
            let mut answer = world.honest();
            let sealed = world
                .sealed(&Schema::decode(&encode(&FIELDS)).unwrap(), &world.group.start("mote-1"));
            let record = &sealed.0[3];
            let at = answer.windows(record.len()).position(|at| at == record).unwrap();
            answer[at] ^= 1;
            world.granted(&answer, &world.signed)
        },
        "NotAuthentic",
    ),
    (
        "an estimate from ciphertext",
        |world| {
            let query = world.group.query(&["mote-1"], None, everything());
            let mut mean = Estimator::new("temperature");
            let mut session = Session::new(&world.group.roster, query, None);
            let fed = session.feed(&world.honest(), &mut mean);
            fed.err().map_or("estimated".to_owned(), |stop| {
                moteseal_client::Error::from(stop).name().to_owned()
            })
        },
        "ColumnEncrypted",
    ),
];

/// What an owner refuses to grant.
const OWNERS: [Lie; 5] = [
    (
        "the forgotten past",
        |world| make(world, |request| request.epochs = EpochNumber(EPOCH)..=EpochNumber(EPOCH + 1)),
        "Forgotten",
    ),
    (
        "a device of another owner",
        |world| make(world, |request| request.devices = &[moteseal_core::DeviceId([9; 8])]),
        "NotOwned",
    ),
    (
        "a column that does not exist",
        |world| make(world, |request| request.columns = Some(&["pressure"])),
        "UnknownColumn",
    ),
    (
        "a purpose that moves the cursor of a terminal",
        |world| make(world, |request| request.purpose = "\u{1b}[2J"),
        "InvalidPurpose",
    ),
    (
        "an SSH key as a recipient",
        |_| {
            Recipient::parse("ssh-ed25519 AAAA")
                .map_or_else(|error| error.name().to_owned(), |_| String::new())
        },
        "InvalidRecipient",
    ),
];

/// Asks an owner that has forgotten the past for a grant.
fn make(world: &World, change: impl FnOnce(&mut GrantRequest<'_>)) -> String {
    let bytes = world.alice.encode().unwrap();
    let mut alice = Owner::decode(&bytes).unwrap();
    alice.forget(EpochNumber(EPOCH + 1), None).unwrap();
    let recipients = recipient(&world.reader);
    let devices = [world.group.device("mote-1")];
    let mut request = GrantRequest {
        devices: &devices,
        columns: None,
        epochs: EpochNumber(EPOCH + 1)..=EpochNumber(EPOCH + 1),
        recipients: &recipients,
        not_after_ms: None,
        purpose: "",
    };
    change(&mut request);
    let made = alice.sign_grant(&request, &world.rosters[1]);
    made.map_or_else(|error| error.name().to_owned(), |_| "made".to_owned())
}

#[test]
fn more_than_fifty_lies_and_abuses_are_each_refused_by_their_name() {
    let world = World::new();
    // The same without a lie.
    assert_eq!(world.open(&world.file), "opened");
    assert_eq!(world.open_changed(Clone::clone), "opened");
    assert_eq!(world.open_nodes(array([node(4, 0), node(4, 1)])), "opened");
    assert_eq!(world.granted(&world.honest(), &world.signed), "20.00");
    assert_eq!(world.granted(&world.stated(|_| ()), &world.signed), "20.00");
    assert_eq!(make(&world, |_| ()), "made");
    let lies: Vec<&Lie> = GRANTS.iter().chain(&SEALS).chain(&OWNERS).collect();
    assert!(lies.len() > 50);
    for (what, lie, expected) in lies {
        assert_eq!(lie(&world), *expected, "{what}");
    }
}
