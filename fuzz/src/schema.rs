//! Fuzzes schemas. A schema that decodes must have exactly one encoding, and every record of its
//! size must be readable.

use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};

use crate::fixture;

/// Decodes the bytes as a schema, encodes it again, and reads a record with it. Also uses the bytes
/// as the text that describes a column.
pub fn run(bytes: &[u8]) {
    if let Ok(schema) = Schema::decode(bytes) {
        let fields: Vec<Field<'_>> = schema.fields().collect();
        let mut out = [0; MAX_SCHEMA];
        assert_eq!(
            Schema::encode(&fields, &mut out).unwrap().as_bytes(),
            bytes,
            "two encodings of one schema"
        );
        assert_eq!(
            schema.record_size().unwrap_or(0),
            fields.iter().map(|field| field.kind.size()).sum::<usize>()
        );
        let record: Vec<u8> =
            bytes.iter().copied().cycle().take(schema.record_size().unwrap_or(0)).collect();
        for field in &fields {
            let value = field.read(&record).expect("a record of the schema's size");
            let _ = (value.to_string(), value.to_f64());
        }
    }
    if let Ok(text) = core::str::from_utf8(bytes)
        && let Ok(field) = Field::parse(text)
    {
        let mut out = [0; MAX_SCHEMA];
        let schema =
            Schema::encode(&[field], &mut out).expect("a parsed column can be encoded as a schema");
        let record = vec![0; schema.record_size().unwrap()];
        assert!(schema.fields().next().unwrap().read(&record).is_ok());
    }
}

/// Returns encoded schemas, and descriptions of columns as on the command line.
pub fn seeds() -> Vec<Vec<u8>> {
    let columns =
        ["temperature:Cel:i16/100", "humidity:%RH:u16/100", "t::time", "x:m/s:f64", "y:V:u8/10+5"];
    let mut seeds = vec![fixture::schema(), Schema::OPAQUE.as_bytes().to_vec()];
    seeds.extend(columns.map(|column| column.as_bytes().to_vec()));
    seeds
}
