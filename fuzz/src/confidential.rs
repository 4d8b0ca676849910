//! Fuzzes stored keys, the keys that seals state, and the encryption of records. What decodes must have
//! exactly one encoding. A record that is encrypted must be a record, and decryption must return it.

use moteseal_core::confidential::{
    ColumnId, EncryptedColumns, KeyCommitments, KeyStream, MAX_KEY_COMMITMENTS, Nodes, Nonce, PATH,
    Path, SealKey, StreamSecret,
};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema, Value};

/// Decodes the bytes as a stored path, as the keys of a seal, and as a schema with a record after it.
pub fn run(bytes: &[u8]) {
    if let Ok(encoded) = <&[u8; PATH]>::try_from(bytes)
        && let Ok(path) = Path::decode(encoded)
    {
        assert_eq!(*path.encode(), *encoded, "two encodings of one path");
        let nodes: Vec<_> = path.nodes().collect();
        let set = Nodes::new(path.column(), path.base(), &nodes);
        assert_eq!(set.epoch_key(path.epoch()), Ok(path.epoch_key()));
        let mut later = path.clone();
        if later.advance(EpochNumber(path.epoch().0.saturating_add(bytes[28].into()))).is_ok() {
            assert_eq!(set.epoch_key(later.epoch()), Ok(later.epoch_key()), "the same keys");
        }
    }
    if let Some(keys) = KeyCommitments::decode(bytes) {
        assert_eq!(keys.encode(&mut [0; MAX_KEY_COMMITMENTS]), bytes, "two encodings of keys");
    }
    let Some((&length, rest)) = bytes.split_first() else { return };
    let Some((schema, record)) = rest.split_at_checked(length.into()) else { return };
    let Ok(schema) = Schema::decode(schema) else { return };
    let (columns, keys) = (EncryptedColumns::of(&schema), keys(&schema));
    let mut streams: Vec<_> = keys.iter().cloned().map(KeyStream::new).collect();
    let mut sealed = record.to_vec();
    let seq = Sequence(record.len() as u64 * 7);
    let encrypted = columns.encrypt(seq, &mut sealed, &mut streams);
    if schema.check_record(record).is_err() {
        return;
    }
    assert_eq!(encrypted, Ok(()), "a record can be encrypted");
    assert_eq!(schema.check_record(&sealed), Ok(()), "a ciphertext is a record");
    let mut streams: Vec<_> = keys.into_iter().map(|key| Some(KeyStream::new(key))).collect();
    let decrypted = columns.decrypt(seq, &mut sealed, &mut streams).expect("the same keys");
    assert_eq!(decrypted.as_bytes(), record);
    for field in schema.fields() {
        let (found, expected) = (decrypted.read(&field), field.in_plaintext().read(record));
        // A NaN does not equal itself.
        let is_nan = matches!((&found, &expected), (Ok(Value::Float(one)), Ok(Value::Float(other)))
            if one.is_nan() && other.is_nan());
        assert!(is_nan || found == expected, "{found:?} instead of {expected:?}");
    }
}

fn keys(schema: &Schema<'_>) -> Vec<SealKey> {
    let secret = StreamSecret::new([7; 32], EpochNumber(0));
    let columns = schema.encrypted_columns().map(|(field, column)| {
        let key = secret.column(column).epoch_key(EpochNumber(5)).expect("an epoch with keys");
        let suite = field.suite.expect("an encrypted column");
        key.seal_key(DeviceId([1; 8]), SealIndex(2), suite, &Nonce([3; 12]))
    });
    columns.collect()
}

/// Returns stored paths, keys of seals, and schemas with records.
pub fn seeds() -> Vec<Vec<u8>> {
    let root = StreamSecret::new([7; 32], EpochNumber(9)).column(ColumnId([4; 16]));
    let paths = [9, 10, 0x5555_5555, 9 + u64::from(u32::MAX)];
    let mut seeds: Vec<Vec<u8>> = paths
        .map(|epoch| Path::new(&root, EpochNumber(epoch)).expect("in range").encode().to_vec())
        .to_vec();
    for fields in [&["a:Cel:i16/100!", "b::bool!aes"][..], &["a::text9?!", "b::u8", "c::text9!aes"]]
    {
        let fields: Vec<_> =
            fields.iter().map(|field| Field::parse(field).expect("a column")).collect();
        let mut out = [0; MAX_SCHEMA];
        let schema = Schema::encode(&fields, &mut out).expect("a schema");
        let keys = KeyCommitments::new(Nonce([3; 12]), &keys(&schema)).expect("two columns");
        seeds.push(keys.encode(&mut [0; MAX_KEY_COMMITMENTS]).to_vec());
        let length = u8::try_from(schema.as_bytes().len()).expect("a short schema");
        let record: &[u8] =
            if schema.record_size().is_some() { &[1, 2, 1] } else { &[7, 2, b'h', b'i', 0] };
        seeds.push([&[length], schema.as_bytes(), record].concat());
    }
    let float = Field::parse("a::f64!").expect("a column");
    let mut out = [0; MAX_SCHEMA];
    let schema = Schema::encode(&[float], &mut out).expect("a schema");
    let length = u8::try_from(schema.as_bytes().len()).expect("a short schema");
    seeds.push([&[length], schema.as_bytes(), &f64::NAN.to_be_bytes()].concat());
    seeds
}
