//! Tests of schema version 2: its text form, its encoding, nulls, and the checks of records.

use moteseal_core::schema::{
    Decimal, Field, FieldType, MAX_FIELDS, MAX_SCHEMA, RecordCheck, RecordError, Schema,
    SchemaError, Value, ValueError,
};
use proptest::prelude::*;

/// A field of each type that version 1 does not have.
const NEW: [&str; 7] = [
    "open::bool",
    "state::enum(off,on,stand by)",
    "place::text32",
    "seen::timestamp",
    "position::point",
    "temperature:Cel:i16/100?",
    "note::text8?~#700",
];

fn encode(fields: &[&str]) -> Result<Vec<u8>, SchemaError> {
    let fields: Vec<_> = fields.iter().map(|field| Field::parse(field).unwrap()).collect();
    Ok(Schema::encode(&fields, &mut [0; MAX_SCHEMA])?.as_bytes().to_vec())
}

/// Returns the record that results from writing the texts.
fn write(schema: &Schema<'_>, texts: &[&str]) -> Result<Vec<u8>, ValueError> {
    let mut record = vec![0; schema.longest_record()];
    for (field, text) in schema.fields().zip(texts) {
        field.write(text, &mut record)?;
    }
    record.truncate(schema.record_length(&record).unwrap());
    Ok(record)
}

/// Returns the record of a schema with one field.
fn write_one(field: &str, text: &str) -> Result<Vec<u8>, ValueError> {
    write(&Schema::decode(&encode(&[field]).unwrap()).unwrap(), &[text])
}

fn read(schema: &Schema<'_>, record: &[u8]) -> Vec<String> {
    schema.fields().map(|field| field.read(record).unwrap().to_string()).collect()
}

fn check(schema: &Schema<'_>, record: &[u8]) -> Result<(), RecordError> {
    let result = schema.check_record(record);
    assert_eq!(RecordCheck::new(schema).check(record), result, "both checks agree");
    result
}

#[test]
fn a_schema_has_version_1_unless_a_field_needs_version_2() {
    assert_eq!(encode(&["a::u8", "b::time#2"]).unwrap()[1], 1);
    for field in NEW {
        assert_eq!(encode(&[field]).unwrap()[1], 2, "{field}");
    }
    assert_eq!(encode(&["a::u8", "b::u8#3"]).unwrap()[1], 2);
    assert_eq!(encode(&["a::u8~"]).unwrap()[1], 2);
}

#[test]
fn the_encoding_matches_the_specification() {
    // {0: 1, 1: "t", 2: "Cel", 3: 3, 4: 100, 5: -1, 6: true, 9: true}
    assert_eq!(
        hex::encode(encode(&["t:Cel:i16/100-1?~"]).unwrap()),
        "820281a80001016174026343656c0303041864052006f509f5"
    );
    // {0: 9, 1: "s", 3: 12, 7: ["off", "on"]}, {0: 2, 1: "x", 3: 13, 8: 32}
    assert_eq!(
        hex::encode(encode(&["s::enum(off,on)#9", "x::text32"]).unwrap()),
        "820282a40009016173030c0782636f6666626f6ea40002016178030d081820"
    );
}

#[test]
fn a_record_has_the_fixed_cells_before_the_texts() {
    let bytes = encode(&NEW).unwrap();
    let schema = Schema::decode(&bytes).unwrap();
    let record = write(
        &schema,
        &["true", "stand by", "Åre", "2026-03-01T07:00:00.25Z", "59.3293,18.0686", "27.97", "ok"],
    )
    .unwrap();
    // The texts are the last two cells.
    let cells =
        ["01", "02", "0000019ca832627a", "235ceec80ac50cb0", "0aed", "04c3857265", "026f6b"];
    assert_eq!(hex::encode(&record), cells.concat());
    assert_eq!(
        read(&schema, &record),
        [
            "true",
            "stand by",
            "Åre",
            "2026-03-01T07:00:00.25Z",
            "59.3293000,18.0686000",
            "27.97",
            "ok"
        ]
    );
    assert_eq!(check(&schema, &record), Ok(()));
    assert_eq!((schema.record_size(), schema.is_opaque()), (None, false));
    assert_eq!(schema.longest_record(), 1 + 1 + 8 + 8 + 2 + 33 + 9);
    assert_eq!(schema.field_with_id(700).unwrap().name, "note");
    let starts: Vec<_> = schema.fields().map(|field| field.start()).collect();
    assert_eq!(starts, [0, 1, 20, 2, 10, 18, 20]);

    let bytes = encode(&["open::bool?", "at::time"]).unwrap();
    assert_eq!(Schema::decode(&bytes).unwrap().record_size(), Some(5));
    assert!(Schema::OPAQUE.is_opaque());
    assert_eq!(Schema::OPAQUE.check_record(&[7; 100]), Ok(()));
}

#[test]
fn null_is_one_raw_value_of_each_type() {
    for (field, null) in [
        ("a::u8?", "ff"),
        ("a::i8?", "80"),
        ("a::u16/10?", "ffff"),
        ("a::i16+5?", "8000"),
        ("a::u32?", "ffffffff"),
        ("a::i32?", "80000000"),
        ("a::u64?", "ffffffffffffffff"),
        ("a::i64?", "8000000000000000"),
        ("a::f32?", "ffffffff"),
        ("a::f64?", "ffffffffffffffff"),
        ("a::time?", "ffffffff"),
        ("a::bool?", "ff"),
        ("a::enum(x)?", "ff"),
        ("a::text9?", "ff"),
        ("a::timestamp?", "8000000000000000"),
        ("a::point?", "8000000080000000"),
    ] {
        let bytes = encode(&[field]).unwrap();
        let schema = Schema::decode(&bytes).unwrap();
        let record = write(&schema, &[""]).unwrap();
        assert_eq!(hex::encode(&record), null, "{field}");
        let column = schema.fields().next().unwrap();
        assert_eq!(column.read(&record), Ok(Value::Null));
        assert_eq!(column.read_f64(&record), Ok(None));
        assert_eq!(check(&schema, &record), Ok(()));
        if column.kind != FieldType::Text {
            assert_eq!(column.raw(&record).ok(), column.null());
        }

        let bytes = encode(&[field.trim_end_matches('?')]).unwrap();
        let schema = Schema::decode(&bytes).unwrap();
        let column = schema.fields().next().unwrap();
        assert_ne!(column.read(&record), Ok(Value::Null));
        assert_eq!(column.write_null(&mut [0; 8]), Err(ValueError::NotNullable));
        let has_other = matches!(
            column.kind,
            FieldType::Bool | FieldType::Enum | FieldType::Text | FieldType::Point
        );
        let expected = if has_other { Err(RecordError::RecordValue) } else { Ok(()) };
        assert_eq!(check(&schema, &record), expected, "{field}");
    }
}

#[test]
fn the_value_that_stands_for_null_cannot_be_written() {
    for (field, text) in [
        ("a::u8", "255"),
        ("a::i8", "-128"),
        ("a::u16/10", "6553.5"),
        ("a::i16+5", "-32763"),
        ("a::u64", "18446744073709551615"),
        ("a::time", "4294967295"),
        ("a::timestamp", "-9223372036854775808"),
    ] {
        assert!(write_one(field, text).is_ok(), "{field}");
        assert_eq!(write_one(&format!("{field}?"), text), Err(ValueError::OutOfRange), "{field}");
    }
}

#[test]
fn texts_are_written_as_a_value_of_the_column_or_rejected() {
    for (field, text, record) in [
        ("a::bool", "true", "01"),
        ("a::bool", "0", "00"),
        ("a::enum(off,on)", "on", "01"),
        ("a::text4", "", "00"),
        ("a::text4", "abcd", "0461626364"),
        ("a::timestamp", "1970-01-01T01:00:00+01:00", "0000000000000000"),
        ("a::timestamp", "-1", "ffffffffffffffff"),
        ("a::point", "90,-180", "35a4e90094b62e00"),
        ("a::point", "-90.0000000,1e-7", "ca5b170000000001"),
    ] {
        assert_eq!(hex::encode(write_one(field, text).unwrap()), record, "{field} {text}");
    }
    for (field, text, error) in [
        ("a::bool", "TRUE", ValueError::NotABoolean),
        ("a::bool", "", ValueError::NotABoolean),
        ("a::enum(off,on)", "ON", ValueError::UnknownLabel),
        ("a::enum(off,on)", "1", ValueError::UnknownLabel),
        ("a::text4", "abcde", ValueError::TextTooLong),
        ("a::text4", "a\tb", ValueError::InvalidText),
        ("a::timestamp", "yesterday", ValueError::NotATimestamp),
        ("a::point", "59", ValueError::NotAPoint),
        ("a::point", "59,18,7", ValueError::NotAPoint),
        ("a::point", "90.0000001,0", ValueError::OutOfRange),
        ("a::point", "0,-180.0000001", ValueError::OutOfRange),
        ("a::point", "1e9,0", ValueError::OutOfRange),
        ("a::point", "0.00000001,0", ValueError::NotRepresentable),
    ] {
        assert_eq!(write_one(field, text), Err(error), "{field} {text}");
    }
    let field = Field::text("a", 4);
    assert_eq!(field.write("abcd", &mut [0; 4]), Err(ValueError::RecordTooShort));
}

#[test]
fn values_are_written_to_fields_of_their_type_only() {
    let decimal = |numerator, divisor| Value::Integer(Decimal { numerator, divisor });
    let degrees = |numerator| Decimal { numerator, divisor: 2 };
    let point = Value::Point { latitude: degrees(1), longitude: degrees(-1) };
    let written = |field: &str, value| {
        let mut record = vec![0; 9];
        Field::parse(field).unwrap().write_value(value, &mut record).map(|()| record)
    };
    for (field, value, record) in [
        ("a::bool", Value::Bool(true), "01"),
        ("a::bool?", Value::Null, "ff"),
        ("a::enum(x,y)", Value::Label("y"), "01"),
        ("a::enum(x,y)", Value::Text("y"), "01"),
        ("a::text8?", Value::Text(""), "00"),
        ("a::text8", Value::Text("hej"), "0368656a"),
        ("a::timestamp", Value::Timestamp(-1), "ffffffffffffffff"),
        ("a::point", point, "004c4b40ffb3b4c0"),
        ("a::u16/100", decimal(5, 2), "00fa"),
        ("a::u16/100", Value::Float(2.5), "00fa"),
        ("a::f32", decimal(5, 2), "40200000"),
        ("a::u16/10", Value::TimeMs(3), "001e"),
        ("a::time", decimal(3, 1), "00000003"),
    ] {
        let written = written(field, value).unwrap();
        assert_eq!(hex::encode(&written[..record.len() / 2]), record, "{field}");
    }
    for (field, value, error) in [
        ("a::bool", decimal(1, 1), ValueError::WrongValueType),
        ("a::bool", Value::Float(1.0), ValueError::WrongValueType),
        ("a::u8", Value::Bool(true), ValueError::WrongValueType),
        ("a::u8", Value::Text("1"), ValueError::WrongValueType),
        ("a::f64", Value::Text("1"), ValueError::WrongValueType),
        ("a::u8", Value::Timestamp(1), ValueError::WrongValueType),
        ("a::text8", Value::Label("x"), ValueError::WrongValueType),
        ("a::u8", Value::Null, ValueError::NotNullable),
        ("a::u8/10", decimal(1, 3), ValueError::NotRepresentable),
        ("a::u8", decimal(i128::MAX, 1), ValueError::OutOfRange),
    ] {
        assert_eq!(written(field, value), Err(error), "{field} {value:?}");
    }
    assert_eq!(
        Field::parse("a::timestamp").unwrap().write_f64(1.0, &mut [0; 8]),
        Err(ValueError::WrongValueType)
    );
}

#[test]
fn a_record_is_checked_for_its_length_and_for_every_value() {
    let bytes = encode(&["b::bool", "e::enum(x,y)?", "p::point", "s::text4", "t::text4?"]).unwrap();
    let schema = Schema::decode(&bytes).unwrap();
    let good = write(&schema, &["true", "y", "1,2", "ab", ""]).unwrap();
    assert_eq!(hex::encode(&good), "0101009896800131 2d00026162ff".replace(' ', ""));
    assert_eq!(check(&schema, &good), Ok(()));
    let with = |at: usize, bytes: &[u8]| {
        let mut record = good.clone();
        record[at..at + bytes.len()].copy_from_slice(bytes);
        check(&schema, &record).err().map_or("", RecordError::name)
    };
    for (at, cell, error) in [
        (0, "00", ""),
        (0, "02", "RecordValue"),
        (0, "ff", "RecordValue"),
        (1, "ff", ""),
        (1, "02", "RecordValue"),
        (2, "8000000080000000", "RecordValue"),
        (2, "35a4e900", ""),
        (2, "35a4e901", "RecordValue"),
        (6, "94b62dff", "RecordValue"),
        (10, "03", "RecordLength"),
        (10, "01", "RecordLength"),
        (10, "ff", "RecordLength"),
        (11, "c3a5", ""),
        (11, "c3", "RecordValue"),
        (11, "0a", "RecordValue"),
        (11, "c285", "RecordValue"),
        (13, "00", ""),
        (13, "01", "RecordLength"),
    ] {
        assert_eq!(with(at, &hex::decode(cell).unwrap()), error, "{at} {cell}");
    }
    for length in 0..good.len() {
        assert_eq!(check(&schema, &good[..length]), Err(RecordError::RecordLength));
    }
    assert_eq!(check(&schema, &[&good[..], &[0]].concat()), Err(RecordError::RecordLength));
    let five = [&good[..10], &[5], b"abcde", &[0]].concat();
    assert_eq!(check(&schema, &five), Err(RecordError::RecordValue), "a text is too long");
    let null = [&good[..10], &[0xff, 0]].concat();
    assert_eq!(check(&schema, &null), Err(RecordError::RecordValue), "a text must not be null");
}

#[test]
fn a_field_has_one_text_form() {
    for text in [
        "a::bool",
        "a::bool?",
        "a:b:lx:u8/2+3?~#9",
        "a::u8-3#65535",
        "a::enum(off,on)?",
        "a::enum(off)~#3",
        "a::enum(x:y?~#1,b#2)",
        "en:um()::enum( a)",
        "a::text1",
        "a::text254?#2",
        "a::timestamp~",
        "a::point?~",
    ] {
        assert_eq!(Field::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(Field::parse("a::u8#1").unwrap().to_string(), "a::u8#1");
    for (text, name) in [
        ("a::u8~?", "UnknownFieldType"),
        ("a::u8#1?", "InvalidFieldId"),
        ("a::u8#0", "InvalidFieldId"),
        ("a::u8#+1", "InvalidFieldId"),
        ("a::u8#", "InvalidFieldId"),
        ("a::u8#65536", "InvalidFieldId"),
        ("a::bool/2", "ScaleOutOfRange"),
        ("a::point+2", "ScaleOutOfRange"),
        ("a::enum", "InvalidLabels"),
        ("a::enum()", "InvalidLabels"),
        ("a::enum(x,x)", "InvalidLabels"),
        ("a::enum(x,)", "InvalidLabels"),
        ("a::enum((x))", "InvalidLabels"),
        ("a::enum(\u{85})", "InvalidLabels"),
        ("a::enum(x)/2", "MalformedField"),
        ("a::enum x)", "MalformedField"),
        ("a:enum(x)", "MalformedField"),
        ("a::bool(x)", "MalformedField"),
        ("a::text", "InvalidTextLength"),
        ("a::text0", "InvalidTextLength"),
        ("a::text255", "InvalidTextLength"),
        ("a::text32/2", "ScaleOutOfRange"),
        ("a::textual", "UnknownFieldType"),
    ] {
        assert_eq!(Field::parse(text).unwrap_err().name(), name, "{text}");
    }
    let labels = |length: usize, count: usize| {
        let labels: Vec<_> = (0..count).map(|label| format!("{label:0length$}")).collect();
        format!("a::enum({})", labels.join(","))
    };
    assert!(Field::parse(&labels(64, 1)).is_ok());
    assert!(Field::parse(&labels(3, 254)).is_ok());
    assert_eq!(Field::parse(&labels(65, 1)), Err(SchemaError::InvalidLabels));
    assert_eq!(Field::parse(&labels(3, 255)), Err(SchemaError::InvalidLabels));
    let bytes = encode(&[&labels(3, 254)]).unwrap();
    let schema = Schema::decode(&bytes).unwrap();
    let labels = schema.fields().next().unwrap().labels;
    assert_eq!((labels.len(), labels.get(253), labels.get(254)), (254, Some("253"), None));
    assert_eq!((labels.position("007"), labels.position("7")), (Some(7), None));
}

#[test]
fn encoded_schemas_with_invalid_content_are_rejected() {
    for (fields, error) in [
        // {0: 1, 1: "a", 3: 0}, with an unknown odd key, and with unknown even keys.
        ("81a3000101616103 00", ""),
        ("81a400010161610300 0b8201a10203", ""),
        ("81a400010161610300 0af5", "UnsupportedField"),
        ("81a400010161610300 0c00", "NonCanonical"),
        ("81a400010161610300 0c03", "UnknownSuite"),
        ("81a400010161610300 0e00", "UnsupportedField"),
        ("81a400010161610300 18fef5", "UnsupportedField"),
        ("81a400010161610300 1901ff00", ""),
        ("80", "UnsupportedVersion"),
        ("81a2 00010161 61", "UnexpectedType"),
        ("81a2 00010300", "UnexpectedType"),
        ("81a2 0161610300", "UnexpectedType"),
        ("8185 6161600001 00", "UnexpectedType"),
        ("81a3 6161000101 0300", "NonCanonical"),
        ("81a3 20000101 0300", "NonCanonical"),
        ("81a3 0161610001 0300", "NonCanonical"),
        ("81a4 0001 0001 016161 0300", "NonCanonical"),
        ("81a3 0000 016161 0300", "InvalidFieldId"),
        ("81a3 001a00010000 016161 0300", "InvalidFieldId"),
        ("81a3 0001 0160 0300", "InvalidFieldName"),
        ("81a3 0001 016161 0310", "UnknownFieldType"),
        ("81a3 0001 016161 031864", "UnknownFieldType"),
        ("81a4 0001 016161 0260 0300", "NonCanonical"),
        ("81a4 0001 016161 026161 0300", "UnknownUnit"),
        ("81a4 0001 016161 0300 0401", "NonCanonical"),
        ("81a4 0001 016161 0300 0400", "ScaleOutOfRange"),
        ("81a4 0001 016161 0300 0500", "NonCanonical"),
        ("81a4 0001 016161 0300 051bffffffffffffffff", "FieldOutOfRange"),
        ("81a4 0001 016161 030b 0501", "ScaleOutOfRange"),
        ("81a4 0001 016161 0300 06f4", "NonCanonical"),
        ("81a4 0001 016161 0300 0601", "UnexpectedType"),
        ("81a4 0001 016161 0300 09f4", "NonCanonical"),
        ("81a4 0001 016161 0300 09f5", ""),
        ("81a4 0001 016161 0300 07816161", "InvalidLabels"),
        ("81a4 0001 016161 0300 0780", "InvalidLabels"),
        ("81a3 0001 016161 030c", "InvalidLabels"),
        ("81a4 0001 016161 030c 0780", "InvalidLabels"),
        ("81a4 0001 016161 030c 078160", "InvalidLabels"),
        ("81a4 0001 016161 030c 078261616161", "InvalidLabels"),
        ("81a4 0001 016161 030c 07816128", "InvalidLabels"),
        ("81a4 0001 016161 030c 0781612c", "InvalidLabels"),
        ("81a4 0001 016161 030c 0781617f", "InvalidLabels"),
        ("81a4 0001 016161 030c 078101", "UnexpectedType"),
        ("81a4 0001 016161 030c 076161", "UnexpectedType"),
        ("81a4 0001 016161 030c 07816161", ""),
        ("81a3 0001 016161 030d", "InvalidTextLength"),
        ("81a4 0001 016161 030d 0800", "NonCanonical"),
        ("81a4 0001 016161 030d 0818ff", "InvalidTextLength"),
        ("81a4 0001 016161 030d 08190101", "InvalidTextLength"),
        ("81a4 0001 016161 030d 0818fe", ""),
        ("81a4 0001 016161 0300 0801", "InvalidTextLength"),
        ("82a3 0001 016161 0300 a3 0002 016161 0300", "DuplicateField"),
        ("82a3 0001 016161 0300 a3 0001 016162 0300", "DuplicateFieldId"),
        ("82a3 0002 016161 0300 a3 0001 016162 0300", ""),
    ] {
        let bytes = hex::decode(format!("8202{}", fields.replace(' ', ""))).unwrap();
        let result = Schema::decode(&bytes);
        assert_eq!(result.err().map_or("", SchemaError::name), error, "{fields}");
    }
    let bytes = hex::decode("820281a40001016161030018180 0".replace(' ', "")).unwrap();
    assert_eq!(Schema::decode(&bytes), Err(SchemaError::UnsupportedField { key: 24 }));
    assert_eq!(
        Schema::decode(&hex::decode("820380").unwrap()).unwrap_err().name(),
        "UnsupportedVersion"
    );
    assert_eq!(encode(&["a::u8", "b::u8#1"]), Err(SchemaError::DuplicateFieldId));
}

#[test]
fn a_schema_is_at_most_max_schema_bytes_long() {
    let labels: Vec<_> = (0..99).map(|label| format!("{label:064}")).collect();
    let long = format!("a::enum({})", labels.join(","));
    assert_eq!(encode(&[&long]), Err(SchemaError::SchemaTooLong));
    let field = Field::parse(&long).unwrap();
    let mut bytes = [0; 2 * MAX_SCHEMA];
    assert_eq!(Schema::encode(&[field], &mut bytes), Err(SchemaError::SchemaTooLong));
    assert_eq!(Schema::encode(&[field], &mut [0; 99]), Err(SchemaError::BufferTooSmall));
    let short = format!("a::enum({})", labels[..90].join(","));
    assert!(encode(&[&short]).is_ok());

    let names: Vec<_> = (0..=MAX_FIELDS).map(|name| format!("{name}::bool")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert_eq!(encode(&names), Err(SchemaError::TooManyFields));
    assert!(encode(&names[1..]).is_ok());
}

/// A field of any type, as text.
fn fields() -> impl Strategy<Value = String> {
    let kind = prop_oneof![
        Just("u8/10+3".to_owned()),
        Just("i16-400".to_owned()),
        Just("u32".to_owned()),
        Just("i64/1000".to_owned()),
        Just("f32".to_owned()),
        Just("f64".to_owned()),
        Just("time".to_owned()),
        Just("bool".to_owned()),
        Just("timestamp".to_owned()),
        Just("point".to_owned()),
        (1u8..=254).prop_map(|longest| format!("text{longest}")),
        (1usize..40, 0usize..3).prop_map(|(count, width)| {
            let labels: Vec<_> = (0..count).map(|label| format!("{label:0width$}#:")).collect();
            format!("enum({})", labels.join(","))
        }),
    ];
    let marks = (any::<bool>(), any::<bool>());
    ("[^\\p{Cc}]{0,9}", kind, marks).prop_map(|(name, kind, (nullable, relayed))| {
        let marks = [if nullable { "?" } else { "" }, if relayed { "~" } else { "" }];
        format!("{name}::{kind}{}", marks.concat())
    })
}

/// The text forms of distinct fields with distinct ids.
fn schemas() -> impl Strategy<Value = Vec<String>> {
    (prop::collection::vec(fields(), 1..12), any::<bool>()).prop_map(|(fields, ids)| {
        let named = fields.iter().enumerate();
        named
            .map(|(at, field)| {
                let id = format!("#{}", 1 + (at * 7919 + 5) % 65535);
                format!("{at}{field}{}", if ids { &id } else { "" })
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn a_schema_round_trips_through_its_encoding_and_its_text(texts in schemas()) {
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let bytes = encode(&texts).unwrap();
        let schema = Schema::decode(&bytes).unwrap();
        let shown: Vec<_> = schema.fields().map(|field| field.to_string()).collect();
        prop_assert_eq!(&shown, &texts);
        let shown: Vec<_> = shown.iter().map(String::as_str).collect();
        prop_assert_eq!(&encode(&shown).unwrap(), &bytes);
        let fields: Vec<_> = schema.fields().collect();
        let mut out = [0; MAX_SCHEMA];
        prop_assert_eq!(Schema::encode(&fields, &mut out).unwrap().as_bytes(), &bytes);
    }

    #[test]
    fn a_record_of_valid_cells_is_accepted_and_written_again(
        texts in schemas(),
        noise in prop::collection::vec(any::<u8>(), 3000),
    ) {
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let bytes = encode(&texts).unwrap();
        let schema = Schema::decode(&bytes).unwrap();
        // Each field takes a text from the noise.
        let mut record = vec![0; schema.longest_record()];
        for (field, noise) in schema.fields().zip(noise.chunks(250)) {
            let raw = u64::from_be_bytes(*noise.first_chunk().unwrap());
            let text = match field.kind {
                FieldType::Bool => (raw % 2 == 0).to_string(),
                FieldType::Enum => {
                    let count = field.labels.len() as u64;
                    field.labels.get(u8::try_from(raw % count).unwrap()).unwrap().to_owned()
                }
                FieldType::Text => String::from_utf8_lossy(noise)
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(usize::from(field.longest) / 4)
                    .collect(),
                FieldType::Timestamp => (raw / 2).to_string(),
                FieldType::Point => format!("{},-{}", raw % 91, raw % 181),
                FieldType::F32 | FieldType::F64 => (raw % 100_000).to_string(),
                // The offsets of these fields are above -1000.
                _ => Decimal { numerator: i128::from(raw % 100) + 3, divisor: field.divisor }.to_string(),
            };
            let is_null = field.nullable && (raw % 3 == 0 || text.is_empty());
            field.write(if is_null { "" } else { &text }, &mut record).unwrap();
            prop_assert_eq!(field.read(&record).unwrap() == Value::Null, is_null, "{}", field);
        }
        record.truncate(schema.record_length(&record).unwrap());
        prop_assert_eq!(check(&schema, &record), Ok(()));
        let (mut again, mut as_values) = (vec![0; schema.longest_record()], vec![0; schema.longest_record()]);
        for field in schema.fields() {
            let value = field.read(&record).unwrap();
            field.write(&value.to_string(), &mut again).unwrap();
            field.write_value(value, &mut as_values).unwrap();
        }
        prop_assert_eq!(&again[..record.len()], &record);
        prop_assert_eq!(&as_values[..record.len()], &record);
    }

    #[test]
    fn any_record_is_readable_if_it_passes_the_check(
        texts in schemas(),
        record in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..90),
    ) {
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let bytes = encode(&texts).unwrap();
        let schema = Schema::decode(&bytes).unwrap();
        let length = schema.record_length(&record).unwrap_or(record.len());
        for record in [&record[..], &record[..length]] {
            let result = check(&schema, record);
            let values: Vec<_> = schema.fields().map(|field| field.read(record)).collect();
            if result.is_ok() {
                prop_assert!(values.iter().all(Result::is_ok));
            }
        }
    }

    #[test]
    fn any_bytes_are_rejected_or_a_schema(
        texts in schemas(),
        at: prop::sample::Index,
        byte: u8,
        record in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let mut bytes = encode(&texts).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(schema) = Schema::decode(&bytes) {
            let fields: Vec<_> = schema.fields().collect();
            prop_assert!(Schema::encode(&fields, &mut [0; MAX_SCHEMA]).is_ok());
            let _ = check(&schema, &record);
        }
    }

    #[test]
    fn any_text_is_rejected_or_a_field(text in "(a::|b:V:)(u8|bool|enum\\(a,?b?\\)|text9?)[/0-9+?~#():,-]{0,6}") {
        if let Ok(field) = Field::parse(&text) {
            let shown = field.to_string();
            prop_assert_eq!(Field::parse(&shown).unwrap(), field, "{}", text);
        }
    }
}
