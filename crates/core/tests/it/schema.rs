//! Tests of stream schemas: round trips, rejections with their errors, and exact values.

use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::schema::{
    Decimal, Field, FieldType, MAX_FIELDS, MAX_SCHEMA, Schema, SchemaError, Value, ValueError,
};
use proptest::prelude::*;

fn encode(fields: &[Field<'_>]) -> Result<Vec<u8>, SchemaError> {
    Ok(Schema::encode(fields, &mut [0; MAX_SCHEMA])?.as_bytes().to_vec())
}

fn field(text: &str) -> Field<'_> {
    Field::parse(text).unwrap()
}

/// Returns the record that results from writing `text` to a record with only this field.
fn write(spec: &str, text: &str) -> Result<Vec<u8>, ValueError> {
    let field = field(spec);
    let mut record = vec![0xaa; field.kind.size()];
    field.write(text, &mut record).map(|()| record)
}

fn show(spec: &str, record: &[u8]) -> String {
    field(spec).read(record).unwrap().to_string()
}

#[test]
fn a_schema_lists_its_fields_with_their_offsets() {
    let fields = [
        Field::new("at", "", FieldType::Time),
        Field::new("temperature", "Cel", FieldType::I16).scaled(100, 0),
        Field::new("humidity", "%RH", FieldType::U16).scaled(100, -400),
        Field::new("voltage", "V", FieldType::F32),
        Field::new("état", "", FieldType::U8),
    ];
    let bytes = encode(&fields).unwrap();
    let schema = Schema::decode(&bytes).unwrap();
    assert_eq!(schema.record_size(), Some(13));
    let listed: Vec<_> = schema.fields().collect();
    assert_eq!(listed.iter().map(Field::start).collect::<Vec<_>>(), [0, 4, 6, 8, 12]);
    for (found, given) in listed.iter().zip(fields) {
        assert_eq!(
            (found.name, found.unit, found.kind, found.divisor, found.offset),
            (given.name, given.unit, given.kind, given.divisor, given.offset)
        );
        assert_eq!(schema.field(given.name), Some(*found));
    }
    assert_eq!(schema.field("pressure"), None);
    assert_eq!(schema.digest(), Digest::of(&[b"moteseal/1/schema\0", &bytes]));
}

#[test]
fn the_encoding_matches_the_specification() {
    let bytes = encode(&[Field::new("t", "Cel", FieldType::I16).scaled(100, -1)]).unwrap();
    // This is the encoding of [1, [["t", "Cel", 3, 100, -1]]].
    assert_eq!(hex::encode(bytes), "8201818561746343656c03186420");
    assert_eq!(encode(&[]).unwrap(), Schema::OPAQUE.as_bytes());
    assert_eq!(hex::encode(Schema::OPAQUE.as_bytes()), "820180");
    assert_eq!(Schema::OPAQUE.record_size(), None);
    assert_eq!(Schema::OPAQUE.fields().len(), 0);
}

#[test]
fn packs_values_big_endian_with_offset_and_divisor() {
    assert_eq!(write("t:Cel:i16/100", "27.97").unwrap(), 2797i16.to_be_bytes());
    assert_eq!(show("t:Cel:i16/100", &2797i16.to_be_bytes()), "27.97");
    assert_eq!(write("t:Cel:i16/100", "-0.05").unwrap(), (-5i16).to_be_bytes());
    assert_eq!(show("t:Cel:i16/100", &(-5i16).to_be_bytes()), "-0.05");
    assert_eq!(show("t:Cel:i16/100", &2800i16.to_be_bytes()), "28.00");
    // value = (raw + offset) / divisor: 1013.2 hPa is raw 1132 with offset 9000 and divisor 10.
    assert_eq!(write("p:hPa:u16/10+9000", "1013.2").unwrap(), 1132u16.to_be_bytes());
    assert_eq!(show("p:hPa:u16/10+9000", &1132u16.to_be_bytes()), "1013.2");
    assert_eq!(write("p:hPa:u16/10+9000", "899.9"), Err(ValueError::OutOfRange));
    assert_eq!(write("a::u8-5", "0").unwrap(), [5]);
    assert_eq!(write("v:V:f32", "2.5").unwrap(), 2.5f32.to_be_bytes());
    assert_eq!(show("v:V:f32", &2.5f32.to_be_bytes()), "2.5");
    assert_eq!(write("at::time", "899999").unwrap(), 899_999u32.to_be_bytes());
    assert_eq!(field("at::time").read(&899_999u32.to_be_bytes()), Ok(Value::TimeMs(899_999)));
    assert_eq!(
        field("v:V:f64").read(&f64::MIN_POSITIVE.to_be_bytes()),
        Ok(Value::Float(f64::MIN_POSITIVE))
    );
}

#[test]
fn stores_a_text_exactly_or_rejects_it() {
    let spec = "t:Cel:i16/100";
    for text in [
        "27.97",
        "+27.97",
        "27.970",
        "027.97",
        "27.9700000000000000000000000000000000000000000",
        "2.797e1",
        "2797E-2",
    ] {
        assert_eq!(write(spec, text).unwrap(), 2797i16.to_be_bytes(), "{text}");
    }
    for text in
        ["27.971", "0.001", "27.97000000000000000000000000000000000000000001", "1e-3", "5e-99999"]
    {
        assert_eq!(write(spec, text), Err(ValueError::NotRepresentable), "{text}");
    }
    for text in [
        "327.68",
        "-327.69",
        "1e9",
        "1e99999",
        "99999999999999999999999999999999999999999999999999",
    ] {
        assert_eq!(write(spec, text), Err(ValueError::OutOfRange), "{text}");
    }
    for text in ["327.67", "-327.68", "0", "-0", "0e99999", ".5", "5."] {
        assert!(write(spec, text).is_ok(), "{text}");
    }
    for text in [
        "", " 1", "1 ", "-", "+", ".", "1.2.3", "1,5", "0x10", "1e", "1e+", "e5", "nan", "inf",
        "--1", "1_0", "١",
    ] {
        assert_eq!(write(spec, text), Err(ValueError::NotANumber), "{text}");
        assert_eq!(write("v:V:f64", text), Err(ValueError::NotANumber), "{text}");
        assert_eq!(write("v:V:f32", text), Err(ValueError::NotANumber), "{text}");
    }
    assert_eq!(
        write(spec, "1".repeat(2000).as_str()),
        Err(ValueError::NotANumber),
        "the text is too long for a number"
    );
}

#[test]
fn divisors_other_than_powers_of_ten_are_exact() {
    assert_eq!(write("a::u8/8", "0.125").unwrap(), [1]);
    assert_eq!(write("a::u8/8", "31.875").unwrap(), [255]);
    assert_eq!(write("a::u8/8", "0.1"), Err(ValueError::NotRepresentable));
    assert_eq!(show("a::u8/8", &[1]), "0.125");
    assert_eq!(show("a::u8/8", &[8]), "1.000");
    assert_eq!(write("a::u8/3", "2").unwrap(), [6]);
    assert_eq!(write("a::u8/3", "0.33"), Err(ValueError::NotRepresentable));
    assert_eq!(show("a::u8/3", &[1]), "0.3333333333333333");
    assert_eq!(write("a::u8/6", "0.5").unwrap(), [3]);
    let finest = "0.0000000004656612873077392578125";
    assert_eq!(write("a::u64/2147483648", finest).unwrap(), 1u64.to_be_bytes());
    assert_eq!(show("a::u64/2147483648", &1u64.to_be_bytes()), finest);
    let largest = "8589934591.9999999995343387126922607421875";
    assert_eq!(show("a::u64/2147483648", &u64::MAX.to_be_bytes()), largest);
    assert_eq!(write("a::u64/2147483648", largest).unwrap(), u64::MAX.to_be_bytes());
}

#[test]
fn accepts_the_limits_of_every_integer_type_and_nothing_beyond() {
    for (spec, low, high) in [
        ("a::u8", 0, i128::from(u8::MAX)),
        ("a::i8", i8::MIN.into(), i8::MAX.into()),
        ("a::u16", 0, u16::MAX.into()),
        ("a::i16", i16::MIN.into(), i16::MAX.into()),
        ("a::u32", 0, u32::MAX.into()),
        ("a::i32", i32::MIN.into(), i32::MAX.into()),
        ("a::u64", 0, u64::MAX.into()),
        ("a::i64", i64::MIN.into(), i64::MAX.into()),
        ("a::time", 0, u32::MAX.into()),
        (
            "a::u64+9223372036854775807",
            i64::MAX.into(),
            i128::from(u64::MAX) + i128::from(i64::MAX),
        ),
        ("a::i64-9223372036854775808", i128::from(i64::MIN) * 2, -1),
    ] {
        for value in [low, high] {
            let record = write(spec, &value.to_string()).unwrap();
            assert_eq!(show(spec, &record), value.to_string());
        }
        assert_eq!(write(spec, &(low - 1).to_string()), Err(ValueError::OutOfRange), "{spec}");
        assert_eq!(write(spec, &(high + 1).to_string()), Err(ValueError::OutOfRange), "{spec}");
    }
    assert_eq!(write("a::f32", "1e39"), Err(ValueError::OutOfRange));
    assert_eq!(write("a::f64", "1e309"), Err(ValueError::OutOfRange));
}

#[test]
fn rounds_table_numbers_to_the_scale_only_within_float_error() {
    let field = field("t:Cel:i16/100");
    let mut record = [0; 2];
    field.write_f64(27.97, &mut record).unwrap();
    assert_eq!(record, 2797i16.to_be_bytes());
    assert_eq!(field.read_f64(&record), Ok(Some(27.97)));
    field.write_f64(-0.29, &mut record).unwrap();
    assert_eq!(record, (-29i16).to_be_bytes());
    for (value, error) in [
        (27.971, ValueError::NotRepresentable),
        (0.001, ValueError::NotRepresentable),
        (400.0, ValueError::OutOfRange),
        (1e300, ValueError::OutOfRange),
        (f64::NAN, ValueError::NotANumber),
        (f64::INFINITY, ValueError::NotANumber),
    ] {
        assert_eq!(field.write_f64(value, &mut record), Err(error), "{value}");
    }
    assert_eq!(record, (-29i16).to_be_bytes(), "a rejected value does not change the record");
}

#[test]
fn rejects_a_record_that_is_too_short() {
    let bytes = encode(&[field("a::u8"), field("t:Cel:i16/100")]).unwrap();
    let second = Schema::decode(&bytes).unwrap().field("t").unwrap();
    assert_eq!(second.read(&[1, 2]), Err(ValueError::RecordTooShort));
    assert_eq!(second.write("1", &mut [1, 2]), Err(ValueError::RecordTooShort));
    assert_eq!(second.read(&[1, 0, 5]), Ok(Value::Integer(Decimal { numerator: 5, divisor: 100 })));
}

#[test]
fn parses_fields_in_command_line_form() {
    for text in [
        "temperature:Cel:i16/100",
        "humidity:%RH:u16/100-400",
        "a:b::f64",
        "load:/:u8/255",
        "p:hPa:u16/10+9000",
    ] {
        assert_eq!(field(text).to_string(), text);
    }
    assert_eq!(field("load:/:u8/255").unit, "/");
    assert_eq!(field("a:b::f64").name, "a:b");
    for (text, name) in [
        ("", "MalformedField"),
        ("temperature", "MalformedField"),
        ("temperature:Cel", "MalformedField"),
        (":Cel:i16", "InvalidFieldName"),
        ("t:C°:i16", "UnknownUnit"),
        ("t:celsius:i16", "UnknownUnit"),
        ("t:Cel:", "UnknownFieldType"),
        ("t:Cel:int", "UnknownFieldType"),
        ("t:Cel:I16", "UnknownFieldType"),
        ("t:Cel:i16/0", "ScaleOutOfRange"),
        ("t:Cel:i16/-1", "ScaleOutOfRange"),
        ("t:Cel:i16/", "ScaleOutOfRange"),
        ("t:Cel:i16/4294967296", "ScaleOutOfRange"),
        ("t:Cel:i16+9223372036854775808", "ScaleOutOfRange"),
        ("t:Cel:f32/10", "ScaleOutOfRange"),
        ("t::time+1", "ScaleOutOfRange"),
    ] {
        let error = Field::parse(text).unwrap_err();
        assert_eq!(error.name(), name, "{text}");
        assert!(error.named().to_string().starts_with(&format!("{name}: ")));
    }
}

#[test]
fn accepts_exactly_the_registered_units() {
    for unit in [
        "", "Cel", "%RH", "V", "m/s2", "Bspl", "beat/min", "kg/m3", "furlong", "mV", "hPa", "dBm",
        "ppm", "km/h",
    ] {
        assert_eq!(
            encode(&[Field::new("a", unit, FieldType::U8)]).is_ok(),
            unit != "furlong",
            "{unit}"
        );
    }
    for unit in ["C°", "cel", "degC", "°", " ", "volts", "%rh"] {
        assert_eq!(
            encode(&[Field::new("a", unit, FieldType::U8)]),
            Err(SchemaError::UnknownUnit),
            "{unit}"
        );
    }
}

#[test]
fn rejects_each_invalid_schema_with_its_error() {
    let long = "x".repeat(65);
    assert!(encode(&[Field::new(&long[1..], "", FieldType::U8)]).is_ok());
    assert_eq!(encode(&[Field::new(&long, "", FieldType::U8)]), Err(SchemaError::InvalidFieldName));
    assert_eq!(encode(&[Field::new("", "", FieldType::U8)]), Err(SchemaError::InvalidFieldName));
    for name in ["\u{1b}[31m", "a\nb", "a\0", "\t", "\u{7f}", "\u{85}", "\u{9b}0m"] {
        assert_eq!(
            encode(&[Field::new(name, "", FieldType::U8)]),
            Err(SchemaError::InvalidFieldName),
            "{name:?}"
        );
        assert_eq!(
            Field::parse(&format!("{name}::u8")),
            Err(SchemaError::InvalidFieldName),
            "{name:?}"
        );
    }
    assert!(encode(&[Field::new("\u{a0}\u{6e29}\u{5ea6} [31m", "", FieldType::U8)]).is_ok());
    let (a, b) = (Field::new("a", "", FieldType::U8), Field::new("b", "", FieldType::U8));
    assert_eq!(encode(&[a, b, a]), Err(SchemaError::DuplicateField));
    assert_eq!(encode(&[a.scaled(0, 0)]), Err(SchemaError::ScaleOutOfRange));
    assert_eq!(
        encode(&[Field::new("a", "", FieldType::F64).scaled(1, 1)]),
        Err(SchemaError::ScaleOutOfRange)
    );
    assert_eq!(
        encode(&[Field::new("a", "", FieldType::Time).scaled(2, 0)]),
        Err(SchemaError::ScaleOutOfRange)
    );
    let names: Vec<_> = (0..=MAX_FIELDS).map(|number| format!("{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| Field::new(name, "", FieldType::F64)).collect();
    assert_eq!(encode(&many), Err(SchemaError::TooManyFields));
    assert_eq!(Schema::decode(&encode(&many[1..]).unwrap()).unwrap().record_size(), Some(512));
    assert_eq!(Schema::encode(&[a], &mut [0; 5]), Err(SchemaError::BufferTooSmall));
}

#[test]
fn the_largest_schema_fits_max_schema() {
    let names: Vec<_> = (0..MAX_FIELDS).map(|number| format!("{number:064}")).collect();
    let fields: Vec<_> = names
        .iter()
        .map(|name| Field::new(name, "beat/min", FieldType::I64).scaled(u32::MAX, i64::MIN))
        .collect();
    let bytes = encode(&fields).unwrap();
    assert!(bytes.len() <= MAX_SCHEMA);
    assert_eq!(Schema::decode(&bytes).unwrap().fields().count(), MAX_FIELDS);
}

#[test]
fn rejects_encoded_schemas_with_invalid_content() {
    let one = |version: u8, kind: u64, divisor: u64, offset: i64, extra: &[u8]| {
        let mut out = [0; 100];
        let mut writer = Writer::new(&mut out);
        writer
            .array(2)
            .unwrap()
            .uint(version)
            .unwrap()
            .array(1)
            .unwrap()
            .array(5)
            .unwrap()
            .text("a")
            .unwrap();
        writer
            .text("")
            .unwrap()
            .uint(kind)
            .unwrap()
            .uint(divisor)
            .unwrap()
            .int(offset)
            .unwrap()
            .raw(extra)
            .unwrap();
        Schema::decode(&*writer.finish()).map(|_| ())
    };
    assert_eq!(one(1, 0, 1, 0, &[]), Ok(()));
    assert_eq!(one(2, 0, 1, 0, &[]), Err(SchemaError::Decode(DecodeError::UnexpectedType)));
    assert_eq!(one(3, 0, 1, 0, &[]), Err(SchemaError::Decode(DecodeError::UnsupportedVersion)));
    assert_eq!(one(1, 11, 1, 0, &[]), Err(SchemaError::UnknownFieldType));
    assert_eq!(one(1, u64::MAX, 1, 0, &[]), Err(SchemaError::UnknownFieldType));
    assert_eq!(one(1, 0, 1 << 32, 0, &[]), Err(SchemaError::ScaleOutOfRange));
    assert_eq!(one(1, 0, 1, 0, &[0]), Err(SchemaError::Decode(DecodeError::TrailingBytes)));
    for (hex, error) in [
        ("", DecodeError::Truncated),
        ("820180ff", DecodeError::TrailingBytes),
        ("8201", DecodeError::Truncated),
        ("9f0180ff", DecodeError::NonCanonical),
        ("82180180", DecodeError::NonCanonical),
        ("8101", DecodeError::UnexpectedType),
        ("820140", DecodeError::UnexpectedType),
        ("820181846161600001", DecodeError::UnexpectedType),
        // An offset of 2^63.
        ("8201818561616000011b8000000000000000", DecodeError::FieldOutOfRange),
    ] {
        assert_eq!(
            Schema::decode(&hex::decode(hex).unwrap()).map(|_| ()),
            Err(SchemaError::Decode(error)),
            "{hex}"
        );
    }
}

fn any_field() -> impl Strategy<Value = (String, &'static str, FieldType, u32, i64)> {
    let unit = prop::sample::select(vec!["", "Cel", "%RH", "V", "lx", "m/s2"]);
    // Enumerations and texts need more than a type.
    let kinds = FieldType::ALL
        .into_iter()
        .filter(|kind| !matches!(kind, FieldType::Enum | FieldType::Text));
    let kind = prop::sample::select(kinds.collect::<Vec<_>>());
    ("[a-zé :/.]{1,16}", unit, kind, 1u32.., any::<i64>()).prop_map(
        |(name, unit, kind, divisor, offset)| {
            if kind.is_integer() {
                (name, unit, kind, divisor, offset)
            } else {
                (name, unit, kind, 1, 0)
            }
        },
    )
}

proptest! {
    #[test]
    fn any_schema_round_trips(fields in prop::collection::vec(any_field(), 0..12)) {
        let mut seen = std::collections::BTreeSet::new();
        let fields: Vec<_> = fields.iter().filter(|field| seen.insert(field.0.clone())).collect();
        let given: Vec<_> =
            fields.iter().map(|(name, unit, kind, divisor, offset)| Field::new(name, unit, *kind).scaled(*divisor, *offset)).collect();
        let bytes = encode(&given).unwrap();
        let schema = Schema::decode(&bytes).unwrap();
        let listed: Vec<_> = schema.fields().collect();
        prop_assert_eq!(&encode(&listed).unwrap(), &bytes);
        let size: usize = given.iter().map(|field| field.kind.size()).sum();
        prop_assert_eq!(schema.record_size().unwrap_or(0), size);
        for (found, given) in listed.iter().zip(&given) {
            let text = found.to_string();
            prop_assert_eq!(Field::parse(&text).unwrap(), *given);
        }
    }

    /// Writing the text that was read from a record yields the same record. So does writing the
    /// `f64` that was read, if an `f64` is precise enough.
    #[test]
    fn any_scaled_record_round_trips_through_text((_, _, kind, _, offset) in any_field(), twos in 0u32..10, fives in 0u32..9, raw: u64) {
        prop_assume!(kind.is_integer());
        let field = Field::new("a", "", kind).scaled(2u32.pow(twos) * 5u32.pow(fives), offset);
        let record = raw.to_be_bytes()[8 - kind.size()..].to_vec();
        let value = field.read(&record).unwrap();
        let mut again = vec![0; record.len()];
        field.write(&value.to_string(), &mut again).unwrap();
        prop_assert_eq!(&again, &record);
        let Value::Integer(decimal) = value else { panic!("an integer field") };
        if decimal.numerator.unsigned_abs() < 1 << 50 {
            again.fill(0);
            field.write_f64(field.read_f64(&record).unwrap().unwrap(), &mut again).unwrap();
            prop_assert_eq!(&again, &record);
        }
    }

    /// The expected value is computed from the digits with integer arithmetic.
    #[test]
    fn a_text_with_two_places_is_scaled_by_a_hundred(whole in 0u32..400, hundredths in 0u32..100, negative: bool, zeros in 0usize..4) {
        let text = format!("{}{whole}.{hundredths:02}{}", if negative { "-" } else { "" }, "0".repeat(zeros));
        let scaled = i64::from(whole * 100 + hundredths) * if negative { -1 } else { 1 };
        let expected = i16::try_from(scaled).map(|raw| raw.to_be_bytes().to_vec()).map_err(|_| ValueError::OutOfRange);
        prop_assert_eq!(write("t:Cel:i16/100", &text), expected);
    }

    #[test]
    fn floats_round_trip_through_text(float: f64, single: f32) {
        if float.is_finite() {
            let record = write("v:V:f64", &float.to_string()).unwrap();
            prop_assert_eq!(&record, &float.to_be_bytes());
            prop_assert_eq!(show("v:V:f64", &record), float.to_string());
        }
        if single.is_finite() {
            let record = write("v:V:f32", &single.to_string()).unwrap();
            prop_assert_eq!(&record, &single.to_be_bytes());
        }
    }

    #[test]
    fn rejects_noise_as_a_number_or_schema(text in "\\PC{0,20}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let readable = text.parse::<f64>().is_ok_and(f64::is_finite);
        if !readable {
            prop_assert!(write("v:V:f64", &text).is_err());
            prop_assert!(write("t:Cel:i16/100", &text).is_err());
        }
        if let Ok(schema) = Schema::decode(&bytes) {
            prop_assert_eq!(encode(&schema.fields().collect::<Vec<_>>()).unwrap(), bytes);
        }
    }

    #[test]
    fn a_mutated_schema_is_rejected_or_round_trips(at: prop::sample::Index, byte: u8) {
        let mut bytes = encode(&[field("t:Cel:i16/100"), field("h:%RH:u16/100-400"), field("v:V:f32")]).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(schema) = Schema::decode(&bytes) {
            prop_assert_eq!(encode(&schema.fields().collect::<Vec<_>>()).unwrap(), bytes);
        }
    }
}
