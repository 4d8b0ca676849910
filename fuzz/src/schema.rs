//! Fuzzes schemas. A schema of version 1 that decodes must have exactly one encoding. Every record
//! that passes the check must be readable, and its values must result in the same record.

use moteseal_core::schema::{
    Field, FieldType, MAX_SCHEMA, RecordCheck, Schema, SchemaError, Value, ValueError,
};

use crate::fixture;

/// Decodes the bytes as a schema, encodes it again, and reads records with it. Also uses the bytes
/// as the text that describes a column.
pub fn run(bytes: &[u8]) {
    if let Ok(schema) = Schema::decode(bytes) {
        let fields: Vec<Field<'_>> = schema.fields().collect();
        let mut out = [0; MAX_SCHEMA];
        let again = Schema::encode(&fields, &mut out).unwrap();
        if bytes[1] == 1 {
            assert_eq!(again.as_bytes(), bytes, "two encodings of one schema");
        }
        // Version 2 has keys that a reader ignores, and can express what version 1 can.
        assert!(again.as_bytes().len() <= bytes.len());
        assert!(again.fields().eq(fields.iter().copied()));
        let cells = fields.iter().map(|field| field.kind.size()).sum::<usize>();
        if !schema.is_opaque() {
            assert!(schema.record_size().is_none_or(|size| size == cells));
        }
        for length in [cells, bytes.len(), schema.longest_record().min(20_000)] {
            let noise: Vec<u8> = bytes.iter().copied().cycle().take(length).collect();
            let length = schema.record_length(&noise).unwrap_or(length);
            check(&schema, &fields, &noise[..length]);
        }
        let zeros = vec![0; cells];
        if !schema.is_opaque() {
            assert_eq!(schema.check_record(&zeros), Ok(()), "zeros are a record");
        }
        check(&schema, &fields, &zeros);
    }
    if let Ok(text) = core::str::from_utf8(bytes)
        && let Ok(field) = Field::parse(text)
    {
        assert_eq!(Field::parse(&field.to_string()), Ok(field));
        let mut out = [0; MAX_SCHEMA];
        match Schema::encode(&[field], &mut out) {
            Ok(schema) => {
                let record = vec![0; schema.longest_record()];
                assert!(schema.fields().next().unwrap().in_plaintext().read(&record).is_ok());
            }
            Err(error) => assert_eq!(error, SchemaError::SchemaTooLong),
        }
    }
}

/// Checks a record in both ways, reads its values and writes them again.
fn check(schema: &Schema<'_>, fields: &[Field<'_>], record: &[u8]) {
    let is_sealed = schema.check_record(record);
    assert_eq!(RecordCheck::new(schema).check(record), is_sealed);
    if let Some(check) = RecordCheck::of(schema) {
        assert_eq!(check.check(record), is_sealed);
    }
    let is_valid = schema.check_plain_record(record);
    if let Some(check) = RecordCheck::of_plain(schema) {
        assert_eq!(check.check(record), is_valid);
    }
    assert!(is_valid.is_err() || is_sealed.is_ok(), "a ciphertext has no more rules");
    let mut again = vec![0; schema.longest_record()];
    for field in fields {
        let is_encrypted = field.suite.is_some();
        assert!(!is_encrypted || field.read(record) == Err(ValueError::Encrypted));
        let value = match field.in_plaintext().read(record) {
            Ok(value) => value,
            Err(_) => {
                assert!(is_valid.is_err(), "a valid record has values");
                continue;
            }
        };
        let _ = (value.to_string(), value.to_f64());
        if is_valid.is_ok() {
            match value {
                // Not every float is finite, and texts have one NaN.
                Value::Float(_) => {}
                value => field.write_value(value, &mut again).expect("a value that was read"),
            }
        }
    }
    let has_float =
        fields.iter().any(|field| matches!(field.kind, FieldType::F32 | FieldType::F64));
    if is_valid.is_ok() && !has_float && !schema.is_opaque() {
        assert_eq!(&again[..record.len()], record, "a record has one encoding");
    }
}

/// Returns encoded schemas, and descriptions of columns as on the command line.
pub fn seeds() -> Vec<Vec<u8>> {
    let columns =
        ["temperature:Cel:i16/100", "humidity:%RH:u16/100", "t::time", "x:m/s:f64", "y:V:u8/10+5"];
    let mut seeds = vec![fixture::schema(), Schema::OPAQUE.as_bytes().to_vec()];
    seeds.extend(columns.map(|column| column.as_bytes().to_vec()));
    let columns = [
        "open::bool?",
        "state::enum(off,on)~#9",
        "place::text32?",
        "seen::timestamp",
        "position::point?",
        "temperature:Cel:i16/100?",
        "secret:Cel:i16/100?!",
        "note::text32?~!aes#99",
    ];
    seeds.extend(columns.map(|column| column.as_bytes().to_vec()));
    let fields = columns.map(|column| Field::parse(column).expect("a column"));
    let mut out = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut out).expect("the columns are a schema");
    seeds.push(schema.as_bytes().to_vec());
    seeds
}
