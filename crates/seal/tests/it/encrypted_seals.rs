//! Seals of encrypted columns: the same levels, counters and bytes as in plaintext, but for the nonce
//! and the commitments; verified without a key, and read with one.

use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_core::confidential::{
    ColumnId, EncryptedColumns, KeyCommitments, KeyStream, Nodes, Nonce, StreamSecret,
};
use moteseal_core::record::{Framing, Scheme, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, RecordCheck, Schema, ValueError};
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_core::{DeviceId, Digest, EpochNumber, GroupId, SealIndex};
use moteseal_seal::encryption::SealCipher;
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::{Limits, Shape};
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::stream::{Item, Open, PART_OVERHEAD, Selection};
use moteseal_seal::stream::{encode_part_head, encode_part_tail};
use moteseal_seal::tree::Tree;
use moteseal_seal::{
    Authentic, Follower, MAX_MESSAGE, PartError, Seal, Star, Statement, Unverified, UrgentEvent,
    star,
};
use proptest::prelude::*;

use crate::seal_and_follow::OneDevice;

const FIELDS: [&str; 3] = ["temperature:Cel:i16/100?!", "seen::u8", "open::bool!aes"];
const EPOCH: EpochNumber = EpochNumber(7);
const INDEX: SealIndex = SealIndex(0);

fn encode(fields: &[&str]) -> Vec<u8> {
    let fields: Vec<_> = fields.iter().map(|field| Field::parse(field).unwrap()).collect();
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

fn device() -> DeviceId {
    DeviceId::of("home", "dev1")
}

fn signer() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

fn directory() -> OneDevice {
    OneDevice { key: signer().public(), device: device() }
}

fn secret() -> StreamSecret {
    StreamSecret::new([7; 32], EpochNumber(0))
}

fn cipher(schema: &Schema<'_>, nonce: Nonce) -> SealCipher<Vec<KeyStream>> {
    let streams = schema.encrypted_columns().map(|(field, column)| {
        let key = secret().column(column).epoch_key(EPOCH).unwrap();
        KeyStream::new(key.seal_key(device(), INDEX, field.suite.unwrap(), &nonce))
    });
    SealCipher::new(schema, nonce, streams.collect()).unwrap()
}

/// Seals records and returns the seal and its whole part after an open item.
fn seal(
    schema: &Schema<'_>,
    scheme: Scheme,
    keys: Option<KeyCommitments>,
    records: &[[u8; 4]],
) -> (Seal<Unverified>, Vec<u8>) {
    let salt = SaltKey::new([2; 32]).salt(device(), INDEX);
    let mut statement = Statement::new(scheme, GroupId::of("home"), Digest([9; 32]), device(), 8);
    (statement.prev, statement.epoch, statement.last_in_epoch) = (Digest([5; 32]), EPOCH, true);
    (statement.schema, statement.salt, statement.keys) = (schema.digest(), salt, keys);
    let mut star = Star::<8>::new(device(), INDEX, &salt, Framing::fixed(4).unwrap());
    let mut tree = Tree::<20>::new();
    let mut levels: [Vec<u8>; 8] = Default::default();
    for record in records {
        levels[usize::from(star.push(record).unwrap().0)].extend(record);
        tree.push(record).unwrap();
    }
    let (counters, blocks) = star.close();
    statement.counters = counters;
    let (root, events) = match scheme {
        Scheme::Star => {
            (star::root(&counters, &blocks), levels.iter().rev().flatten().copied().collect())
        }
        Scheme::Tree => (tree.root(), records.concat()),
    };
    let mask = statement.surviving();
    let seal = Seal::new(statement, root, Algorithm::Ed25519);
    let signature = signer().signature(seal.message(&mut [0; MAX_MESSAGE])).unwrap();
    let mut bytes = vec![0; PART_OVERHEAD + 8192];
    let mut out = Writer::new(&mut bytes);
    Open { device: device(), roster_version: 0, prev: None, last: None }.encode(&mut out).unwrap();
    let events: Vec<u8> = events;
    encode_part_head(&mut out, &seal, Selection::Levels(mask), &[], events.len()).unwrap();
    out.raw(&events).unwrap();
    encode_part_tail(&mut out, Some(&signature)).unwrap();
    let length = out.position();
    bytes.truncate(length);
    (seal, bytes)
}

/// Verifies a stream without any key and returns the seal and its events by sequence number.
fn verified(
    schema: &Schema<'_>,
    bytes: &[u8],
) -> Result<(Seal<Authentic>, Vec<Vec<u8>>), &'static str> {
    let directory = directory();
    let mut follower = Follower::new(&directory, Scalar, Limits::default());
    let check = RecordCheck::of(schema);
    let shape = Shape {
        digest: schema.digest(),
        framing: Framing::fixed(4).unwrap(),
        check: check.as_ref(),
        encrypted: schema.encrypted_count(),
        groups: None,
    };
    let (item, length) = Item::decode(bytes).map_err(DecodeError::name)?;
    let Item::Open(open) = item else { return Err("NoOpen") };
    follower.open(&open, |_| None).map_err(|error| error.name())?;
    let Item::Part(part) = Item::decode_whole(&bytes[length..]).map_err(DecodeError::name)? else {
        return Err("NoPart");
    };
    let rebuilt = follower.part(&part, Some(&shape)).map_err(PartError::name)?;
    let signature = part.signature.unwrap_or_default();
    let seal = rebuilt.seal.verify(&directory, signature).map_err(|error| error.name())?;
    let sample = rebuilt.sample.proven(&seal).unwrap();
    let mut events = Vec::new();
    sample.for_each(&Scalar, |_, _, record| events.push(record.to_vec()));
    Ok((seal, events))
}

fn records() -> impl Strategy<Value = Vec<[u8; 4]>> {
    let record = (any::<i16>(), any::<u8>(), prop_oneof![Just(0), Just(1)]);
    let bytes = record.prop_map(|(a, b, c): (i16, u8, u8)| {
        let [x, y] = a.to_be_bytes();
        [x, y, b, c]
    });
    proptest::collection::vec(bytes, 0..80)
}

proptest! {
    #[test]
    fn an_encrypted_seal_verifies_without_a_key_and_has_the_rows_of_plaintext(
        plain in records(),
        scheme in prop_oneof![Just(Scheme::Star), Just(Scheme::Tree)],
        nonce in any::<[u8; 12]>(),
        granted in any::<[bool; 2]>(),
    ) {
        let bytes = encode(&FIELDS);
        let schema = Schema::decode(&bytes).unwrap();
        let mut cipher = cipher(&schema, Nonce(nonce));
        let mut sealed = plain.clone();
        for (seq, record) in (0..).map(Sequence).zip(&mut sealed) {
            cipher.encrypt(seq, record).unwrap();
        }
        let (_, stream) = seal(&schema, scheme, Some(cipher.commitments()), &sealed);
        let plain_bytes = encode(&FIELDS.map(|field| field.split('!').next().unwrap()));
        let plain_schema = Schema::decode(&plain_bytes).unwrap();
        let (plain_seal, plain_stream) = seal(&plain_schema, scheme, None, &plain);

        // 12 bytes a seal and 16 a column, and the head of the byte string.
        prop_assert_eq!(stream.len(), plain_stream.len() + 2 + 12 + 2 * 16);
        let (proven, events) = verified(&schema, &stream).unwrap();
        prop_assert_eq!(proven.statement().counters, plain_seal.statement().counters);
        let (_, plain_events) = verified(&plain_schema, &plain_stream).unwrap();
        prop_assert_eq!(&plain_events, &plain.iter().map(|record| record.to_vec()).collect::<Vec<_>>());

        // With the nodes of some columns, exactly their values are readable.
        let mut streams: Vec<_> = schema
            .encrypted_columns()
            .zip(granted)
            .map(|((_, column), is_granted)| {
                let nodes: Vec<_> = secret().column(column).cover(EPOCH..=EPOCH).collect();
                let nodes = Nodes::new(column, EpochNumber(0), &nodes);
                let key = proven.column_key(&schema, &nodes).unwrap();
                is_granted.then(|| KeyStream::new(key))
            })
            .collect();
        let columns = EncryptedColumns::of(&schema);
        for ((seq, mut event), plain) in (0..).map(Sequence).zip(events).zip(&plain) {
            let decrypted = columns.decrypt(seq, &mut event, &mut streams).unwrap();
            let mut granted = granted.iter();
            for (field, original) in schema.fields().zip(plain_schema.fields()) {
                let expected = match field.suite {
                    Some(_) if !granted.next().unwrap() => Err(ValueError::Encrypted),
                    _ => original.read(plain),
                };
                prop_assert_eq!(decrypted.read(&field), expected);
            }
        }
    }
}

fn sealed_three(scheme: Scheme) -> (Vec<u8>, Seal<Unverified>, Vec<u8>) {
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let mut cipher = cipher(&schema, Nonce([4; 12]));
    let mut records = [[0, 1, 2, 0], [0, 4, 5, 1], [0, 7, 8, 0]];
    for (seq, record) in (0..).map(Sequence).zip(&mut records) {
        cipher.encrypt(seq, record).unwrap();
    }
    let (seal, stream) = seal(&schema, scheme, Some(cipher.commitments()), &records);
    (bytes, seal, stream)
}

#[test]
fn every_altered_byte_and_every_cut_of_an_encrypted_part_is_refused() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let (bytes, _, stream) = sealed_three(scheme);
        let schema = Schema::decode(&bytes).unwrap();
        assert!(verified(&schema, &stream).is_ok());
        for at in 0..stream.len() {
            assert!(verified(&schema, &stream[..at]).is_err(), "{at}");
            for flip in [1, 0x80] {
                let mut altered = stream.clone();
                altered[at] ^= flip;
                assert!(verified(&schema, &altered).is_err(), "{at}");
            }
        }
    }
}

#[test]
fn a_part_must_state_as_many_keys_as_its_schema_has_encrypted_columns() {
    let (bytes, _, _) = sealed_three(Scheme::Star);
    let schema = Schema::decode(&bytes).unwrap();
    let plain = encode(&["a::u32"]);
    let plain = Schema::decode(&plain).unwrap();
    let keys = |count: usize| KeyCommitments::decode(&vec![1; 12 + 16 * count]);
    for (schema, keys, expected) in [
        (&schema, None, Err("KeyCommitmentCount")),
        (&schema, keys(1), Err("KeyCommitmentCount")),
        (&schema, keys(2), Ok(())),
        (&schema, keys(3), Err("KeyCommitmentCount")),
        (&plain, None, Ok(())),
        (&plain, keys(1), Err("KeyCommitmentCount")),
    ] {
        let (_, stream) = seal(schema, Scheme::Tree, keys, &[[0, 0, 0, 1]]);
        assert_eq!(verified(schema, &stream).map(|_| ()), expected);
    }
}

#[test]
fn keys_of_another_secret_column_or_epoch_are_refused_by_name() {
    let (bytes, _, stream) = sealed_three(Scheme::Star);
    let schema = Schema::decode(&bytes).unwrap();
    let (seal, _) = verified(&schema, &stream).unwrap();
    let (_, column) = schema.encrypted_columns().next().unwrap();
    let name = |secret: &StreamSecret, column, epochs| {
        let nodes: Vec<_> = secret.column(column).cover(epochs).collect();
        let nodes = Nodes::new(column, EpochNumber(0), &nodes);
        seal.column_key(&schema, &nodes).map(|_| ()).map_err(|error| error.name())
    };
    assert_eq!(name(&secret(), column, EpochNumber(0)..=EpochNumber(9)), Ok(()));
    assert_eq!(name(&secret(), column, EpochNumber(8)..=EpochNumber(9)), Err("NotCovered"));
    let other = StreamSecret::new([8; 32], EpochNumber(0));
    assert_eq!(name(&other, column, EPOCH..=EPOCH), Err("WrongKey"));
    assert_eq!(name(&secret(), ColumnId([1; 16]), EPOCH..=EPOCH), Err("WrongColumn"));
    let plain = encode(&["a::u32"]);
    let nodes = Nodes::new(column, EpochNumber(0), &[]);
    let error = seal.column_key(&Schema::decode(&plain).unwrap(), &nodes).unwrap_err();
    assert_eq!(error.name(), "SchemaUnknown");
}

#[test]
fn a_statement_has_version_2_if_and_only_if_it_states_keys() {
    let (bytes, encrypted, _) = sealed_three(Scheme::Star);
    let schema = Schema::decode(&bytes).unwrap();
    let (plain, _) = seal(&schema, Scheme::Star, None, &[]);
    let encoded = |seal: &Seal<Unverified>| {
        let mut out = vec![0; MAX_MESSAGE];
        let mut writer = Writer::new(&mut out);
        seal.statement().encode(&mut writer).unwrap();
        let length = writer.position();
        out.truncate(length);
        out
    };
    let (plain, with_keys) = (encoded(&plain), encoded(&encrypted));
    assert_eq!((&plain[..2], &with_keys[..2]), (&[0x93, 1][..], &[0x94, 2][..]));
    assert_eq!(Statement::decode(&with_keys).as_ref(), Ok(encrypted.statement()));
    let refused =
        |head: [u8; 2], body: &[u8]| Statement::decode(&[&head, &body[2..]].concat()).unwrap_err();
    assert_eq!(refused([0x93, 2], &plain), DecodeError::UnsupportedVersion);
    assert_eq!(refused([0x94, 1], &with_keys), DecodeError::UnexpectedType);
    assert_eq!(refused([0x94, 3], &with_keys), DecodeError::UnexpectedType);
    let keys = with_keys.len() - (12 + 32);
    assert_eq!(with_keys[keys - 2..keys], [0x58, 44]);
    // A byte string without a commitment, or of another length.
    for length in [0_u8, 12, 27, 43] {
        let (head, size) = moteseal_core::cbor::head(2, length.into());
        let mut altered = with_keys[..keys - 2].to_vec();
        altered.extend(&head[..size]);
        altered.extend(vec![7; length.into()]);
        assert_eq!(Statement::decode(&altered), Err(DecodeError::FieldOutOfRange), "{length}");
    }
}

#[test]
fn a_cipher_encrypts_no_event_twice_and_no_invalid_record() {
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let mut cipher = cipher(&schema, Nonce([4; 12]));
    let name = |result: Result<(), moteseal_seal::encryption::EncryptError>| {
        result.map_err(|error| error.name())
    };
    let mut invalid = [0, 0, 0, 7];
    assert_eq!(name(cipher.encrypt(Sequence(0), &mut invalid)), Err("RecordValue"));
    assert_eq!(invalid, [0, 0, 0, 7]);
    assert_eq!(name(cipher.encrypt(Sequence(0), &mut [0; 3])), Err("RecordLength"));
    assert_eq!(name(cipher.encrypt(Sequence(1), &mut [0; 4])), Ok(()));
    for seq in [0, 1] {
        let mut record = [0; 4];
        assert_eq!(name(cipher.encrypt(Sequence(seq), &mut record)), Err("SequenceReused"));
        assert_eq!(record, [0; 4]);
    }
    assert_eq!(name(cipher.encrypt(Sequence(2), &mut [0; 4])), Ok(()));
}

#[test]
fn the_key_streams_of_a_cipher_are_those_of_its_schema() {
    let bytes = encode(&["a::u8!", "b::u8!"]);
    let schema = Schema::decode(&bytes).unwrap();
    let streams = || -> Vec<KeyStream> {
        let columns = schema.encrypted_columns();
        let keys = columns.map(|(field, column)| {
            let key = secret().column(column).epoch_key(EPOCH).unwrap();
            key.seal_key(device(), INDEX, field.suite.unwrap(), &Nonce([0; 12]))
        });
        keys.map(KeyStream::new).collect()
    };
    let refused = |streams| SealCipher::new(&schema, Nonce([0; 12]), streams).unwrap_err().name();
    assert_eq!(refused(streams().into_iter().rev().collect()), "WrongColumn");
    assert_eq!(refused(streams().into_iter().take(1).collect::<Vec<_>>()), "KeyCount");
    assert_eq!(refused(Vec::new()), "KeyCount");
}

#[test]
fn an_urgent_event_states_the_keys_of_its_seal() {
    let (bytes, seal, _) = sealed_three(Scheme::Star);
    let schema = Schema::decode(&bytes).unwrap();
    let event = |keys| UrgentEvent {
        group: GroupId::of("home"),
        roster: Digest([9; 32]),
        device: device(),
        index: INDEX,
        epoch: EPOCH,
        seq: Sequence(0),
        schema: schema.digest(),
        keys,
        record: &[1, 2, 3, 4],
    };
    for keys in [None, seal.statement().keys] {
        let event = event(keys);
        let signature =
            signer().signature(event.message(Algorithm::Ed25519, &mut [0; 700]).unwrap()).unwrap();
        let mut out = [0; 1024];
        let mut writer = Writer::new(&mut out);
        event.encode(&mut writer, Algorithm::Ed25519, &signature).unwrap();
        let length = writer.position();
        let bytes = &out[..length];
        let directory = directory();
        let opened = UrgentEvent::open(bytes, &directory, &mut [0; 1100]);
        assert_eq!(opened, Ok(event));
        for at in 0..length {
            let mut altered = bytes.to_vec();
            altered[at] ^= 1;
            let mut scratch = [0; 1100];
            assert!(UrgentEvent::open(&altered, &directory, &mut scratch).is_err(), "{at}");
        }
    }
}

#[test]
fn the_levels_of_an_encrypted_seal_do_not_depend_on_the_key() {
    let salt = SaltKey::new([2; 32]).salt(device(), INDEX);
    let (_, seal, _) = sealed_three(Scheme::Star);
    assert_eq!(seal.statement().counters, Counters::of(&salt, 8, 3));
}
