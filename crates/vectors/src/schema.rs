//! Runs the operations of the schema vectors (spec/objects.md, section 5) with the product's code.

use moteseal_core::schema::{Decimal, Schema, Value as FieldValue};
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, hex_of, name};

/// Decodes a schema. Returns its fields; of version 2, with all of their keys.
pub fn open(input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let schema = Schema::decode(&bytes).map_err(name)?;
    let is_version_1 = bytes[1] == 1;
    let fields = schema.fields().map(|field| {
        let mut out = vec![
            json!(field.name),
            json!(field.unit),
            json!(field.kind.name()),
            json!(field.divisor),
            json!(field.offset.to_string()),
        ];
        if !is_version_1 {
            out.extend([
                json!(field.id),
                json!(field.nullable),
                json!(field.labels.iter().collect::<Vec<_>>()),
                json!(field.longest),
                json!(field.relayed),
            ]);
            out.extend(field.suite.map(|suite| json!(suite.number())));
            out.extend((field.group > 0).then(|| json!(field.group)));
        }
        Value::Array(out)
    });
    Ok(json!({
        "digest": schema.digest().to_string(),
        "record_size": schema.record_size(),
        "fields": fields.collect::<Vec<_>>(),
    }))
}

/// Reads the values of a record. Under version 2, checks the record first.
pub fn record(input: &Value) -> Verdict {
    let (bytes, record) = (bytes(input, "schema"), bytes(input, "record"));
    let schema = Schema::decode(&bytes).unwrap();
    if bytes[1] != 1 {
        schema.check_record(&record).map_err(name)?;
    }
    let mut values = Vec::new();
    for field in schema.fields() {
        values.push(value_of(field.read(&record).map_err(name)?));
    }
    Ok(json!({ "values": values }))
}

/// Returns a value in the form of the vectors.
pub fn value_of(value: FieldValue<'_>) -> Value {
    let quotient = |value: Decimal| format!("{}/{}", value.numerator, value.divisor);
    match value {
        FieldValue::Null => Value::Null,
        FieldValue::Integer(value) => quotient(value).into(),
        FieldValue::Float(value) => hex_of(value.to_be_bytes()).into(),
        FieldValue::Point { latitude, longitude } => {
            format!("{} {}", quotient(latitude), quotient(longitude)).into()
        }
        FieldValue::Timestamp(ms) => ms.to_string().into(),
        value => value.to_string().into(),
    }
}
