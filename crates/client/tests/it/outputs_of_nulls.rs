//! Nulls, truth values, labels, texts, timestamps and points (schema version 2) in every format.

use crate::support::{Buffer, EPOCH, Group, everything};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array as _, RecordBatch};
use arrow_ipc::reader::StreamReader;
use moteseal_client::output::{Batches, Format, Writer};
use moteseal_core::schema::{Field, MAX_SCHEMA, RecordCheck, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;

const FIELDS: [&str; 8] = [
    "temperature:Cel:i16/100?~",
    "count::u8?",
    "level:dB:f32?",
    "open::bool?",
    "state::enum(off,on,=1+1)?#40",
    "place::text32?",
    "seen::timestamp?",
    "at::point?",
];
const ROWS: [[&str; 8]; 3] = [
    ["21.3", "254", "-0.5", "true", "on", "kitchen", "2026-03-01T07:00:00.25Z", "59.33,18.07"],
    ["", "", "", "", "", "", "", ""],
    ["-0.01", "0", "0", "false", "=1+1", "-a\u{202e}b", "1969-12-31T23:59:59Z", "-90,-180"],
];

fn records() -> Vec<Vec<u8>> {
    let fields: Vec<Field<'_>> = FIELDS.iter().map(|field| Field::parse(field).unwrap()).collect();
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let check = RecordCheck::new(&schema);
    let record = |row: &[&str; 8]| {
        let mut record = vec![0; schema.longest_record()];
        for (field, text) in schema.fields().zip(row) {
            field.write(text, &mut record).unwrap();
        }
        record.truncate(schema.record_length(&record).unwrap());
        check.check(&record).unwrap();
        record
    };
    ROWS.iter().map(record).collect()
}

fn written(format: Format) -> Vec<u8> {
    let group = Group::new();
    let mut position = group.start("mote-1");
    let sealed = group.seal("mote-1", &mut position, EPOCH, &FIELDS, &records());
    let answer = group.answer(&[(&sealed, u32::MAX)]);
    let query = group.query(&["mote-1"], Some(EPOCH + 1), everything());
    let buffer = Buffer::default();
    let mut writer = Writer::new(format, buffer.clone());
    let report = group.verify(query, None, &answer, &mut writer).unwrap();
    assert!(report.is_complete() && report.rows() == 3);
    writer.finish().unwrap();
    let bytes = buffer.0.lock().unwrap();
    bytes.clone()
}

#[test]
fn csv_has_an_empty_cell_for_null_and_executes_no_text() {
    let text = String::from_utf8(written(Format::Csv)).unwrap();
    let expected = "\
epoch,epoch_start,device,index,seq,temperature,count,level,open,state,place,seen,at
494362,2026-05-25T10:00:00Z,mote-1,0,0,21.30,254,-0.5,true,on,kitchen,2026-03-01T07:00:00.25Z,\"59.3300000,18.0700000\"
494362,2026-05-25T10:00:00Z,mote-1,0,1,,,,,,,,
494362,2026-05-25T10:00:00Z,mote-1,0,2,-0.01,0,0,false,'=1+1,'-a\\u202eb,1969-12-31T23:59:59Z,\"-90.0000000,-180.0000000\"
";
    assert_eq!(text, expected);
}

#[test]
fn json_has_the_types_of_the_values() {
    let text = String::from_utf8(written(Format::JsonLines)).unwrap();
    assert!(!text.contains('\u{202e}'), "{text}");
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = |seq: u8, values: [serde_json::Value; 8]| {
        let names = ["temperature", "count", "level", "open", "state", "place", "seen", "at"];
        let mut row = json!({
            "epoch": EPOCH, "epoch_start": "2026-05-25T10:00:00Z", "device": "mote-1", "index": 0,
            "seq": seq,
        });
        names.iter().zip(values).for_each(|(name, value)| row[name] = value);
        row
    };
    let null = json!(null);
    let expected = [
        row(
            0,
            [
                json!(21.3),
                json!(254),
                json!(-0.5),
                json!(true),
                json!("on"),
                json!("kitchen"),
                json!("2026-03-01T07:00:00.25Z"),
                json!({"lat": 59.33, "lon": 18.07}),
            ],
        ),
        row(1, std::array::from_fn(|_| null.clone())),
        row(
            2,
            [
                json!(-0.01),
                json!(0),
                json!(0),
                json!(false),
                json!("=1+1"),
                json!("-a\u{202e}b"),
                json!("1969-12-31T23:59:59Z"),
                json!({"lat": -90.0, "lon": -180.0}),
            ],
        ),
    ];
    // A float of JSON has no sign of its type.
    assert_eq!(rows[0], expected[0]);
    assert_eq!(rows[1], expected[1]);
    assert_eq!(rows[2], expected[2]);
}

fn check(batch: &RecordBatch) {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    for field in FIELDS {
        let name = field.split(':').next().unwrap();
        let nulls: Vec<bool> = (0..3).map(|row| column(name).is_null(row)).collect();
        assert_eq!(nulls, [false, true, false], "{name}");
    }
    let temperature = column("temperature").as_primitive::<Float64Type>();
    assert_eq!((temperature.value(0), temperature.value(2)), (21.3, -0.01));
    assert_eq!(column("count").as_primitive::<Int64Type>().value(0), 254);
    assert!(column("open").as_boolean().value(0) && !column("open").as_boolean().value(2));
    assert_eq!(column("state").as_string::<i32>().value(2), "=1+1");
    assert_eq!(column("place").as_string::<i32>().value(0), "kitchen");
    let seen = column("seen").as_primitive::<TimestampMillisecondType>();
    assert_eq!((seen.value(0), seen.value(2)), (1_772_348_400_250, -1000));
    let at = column("at").as_struct();
    let part = |at: usize, row| at_struct(at, row, column("at"));
    assert_eq!((at.num_columns(), part(0, 0), part(1, 2)), (2, 59.33, -180.0));
    let schema = batch.schema();
    let metadata = |name: &str| schema.field_with_name(name).unwrap().metadata().clone();
    assert_eq!(metadata("temperature")["relayed"], "true");
    assert_eq!(
        (metadata("temperature")["id"].as_str(), metadata("state")["id"].as_str()),
        ("1", "40")
    );
    assert!(!metadata("state").contains_key("relayed"));
}

fn at_struct(part: usize, row: usize, column: &arrow_array::ArrayRef) -> f64 {
    column.as_struct().column(part).as_primitive::<Float64Type>().value(row)
}

#[test]
fn arrow_and_parquet_have_the_types_and_the_nulls() {
    let bytes = written(Format::Arrow);
    let mut batches = StreamReader::try_new(&bytes[..], None).unwrap();
    check(&batches.next().unwrap().unwrap());
    let bytes = bytes::Bytes::from(written(Format::Parquet));
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
    check(&reader.map(Result::unwrap).next().unwrap());
    let group = Group::new();
    let mut position = group.start("mote-1");
    let sealed = group.seal("mote-1", &mut position, EPOCH, &FIELDS, &records());
    let answer = group.answer(&[(&sealed, u32::MAX)]);
    let mut batches = Batches::new();
    let query = group.query(&["mote-1"], Some(EPOCH + 1), everything());
    group.verify(query, None, &answer, &mut batches).unwrap();
}
