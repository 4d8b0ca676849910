//! Every format contains the sealed values, types, units and times when it is read back.

use crate::support::{Buffer, EPOCH, Group, everything};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMillisecondType, UInt64Type};
use arrow_ipc::reader::StreamReader;
use moteseal_client::Sink;
use moteseal_client::output::{Batches, Format, Writer};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;

const FIELDS: [&str; 6] =
    ["at::time", "temperature:Cel:i16/100-5", "count::u64", "level:dB:f64", "seq::i8", "odd::u8/3"];

fn record(at: u32, temperature: i16, count: u64, level: f64, seq: i8, odd: u8) -> Vec<u8> {
    let mut record = at.to_be_bytes().to_vec();
    record.extend(temperature.to_be_bytes());
    record.extend(count.to_be_bytes());
    record.extend(level.to_be_bytes());
    record.extend(seq.to_be_bytes());
    record.push(odd);
    record
}

/// Passes the rows of four readings to a sink.
fn pass_rows(sink: &mut dyn Sink) {
    let group = Group::new();
    let mut position = group.start("mote-1");
    let records = [
        record(500, 2802, u64::MAX, -0.5, -3, 1),
        record(0, -1, 0, f64::NAN, 0, 3),
        record(3_599_999, 105, 7, 1e300, 127, 2),
    ];
    let one = group.seal("mote-1", &mut position, EPOCH, &FIELDS, &records);
    let other = group.seal("mote-1", &mut position, EPOCH + 1, &FIELDS, &records[..1]);
    let answer = group.answer(&[(&one, u32::MAX), (&other, u32::MAX)]);
    let report = group
        .verify(group.query(&["mote-1"], Some(EPOCH + 2), everything()), None, &answer, sink)
        .unwrap();
    assert!(report.is_complete() && report.rows() == 4);
}

fn written(format: Format) -> Vec<u8> {
    let buffer = Buffer::default();
    let mut writer = Writer::new(format, buffer.clone());
    pass_rows(&mut writer);
    writer.finish().unwrap();
    let bytes = buffer.0.lock().unwrap();
    bytes.clone()
}

/// Finding B8 of the review. A hostile device can choose the names of its columns, and many users
/// open CSV with a spreadsheet.
#[test]
fn a_hostile_column_name_is_neither_executed_nor_shown_in_another_order() {
    let fields = ["=1+1::u8", "@x::u8", "+5V::u8", "-x::u8", "a\u{202e}b::u8", "a=b::u8"];
    let group = Group::new();
    let mut position = group.start("mote-1");
    let sealed = group.seal("mote-1", &mut position, EPOCH, &fields, &[vec![1; 6]]);
    let written = |format| {
        let buffer = Buffer::default();
        let mut writer = Writer::new(format, buffer.clone());
        let answer = group.answer(&[(&sealed, u32::MAX)]);
        let query = group.query(&["mote-1"], Some(EPOCH + 1), everything());
        group.verify(query, None, &answer, &mut writer).unwrap();
        writer.finish().unwrap();
        let bytes = buffer.0.lock().unwrap();
        String::from_utf8(bytes.clone()).unwrap()
    };
    let csv = written(Format::Csv);
    let header = csv.lines().next().unwrap();
    assert!(header.ends_with(r"seq,'=1+1,'@x,'+5V,'-x,a\u202eb,a=b"), "{header}");
    assert!(written(Format::Table).contains(r"+5V  -x  a\u202eb"));
    let line = written(Format::JsonLines);
    assert!(!line.contains('\u{202e}'), "{line}");
    let row: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&row["=1+1"], &row["a\u{202e}b"]), (&json!(1), &json!(1)), "names stay exact");
}

#[test]
fn csv_is_exact_to_the_last_digit_of_the_scale() {
    let text = String::from_utf8(written(Format::Csv)).unwrap();
    let expected = "\
epoch,epoch_start,device,index,seq,at,temperature,count,level,seq_,odd
494362,2026-05-25T10:00:00Z,mote-1,0,0,2026-05-25T10:00:00.5Z,27.97,18446744073709551615,-0.5,-3,0.3333333333333333
494362,2026-05-25T10:00:00Z,mote-1,0,1,2026-05-25T10:00:00Z,-0.06,0,NaN,0,1
";
    assert!(text.starts_with(expected), "{text}");
    assert!(
        text.contains("494363,2026-05-25T11:00:00Z,mote-1,1,0,2026-05-25T11:00:00.5Z,27.97,"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 5);
}

#[test]
fn json_lines_are_objects_with_numbers_and_null_for_nan() {
    let text = String::from_utf8(written(Format::JsonLines)).unwrap();
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 4);
    assert_eq!(
        rows[0],
        json!({
            "epoch": EPOCH, "epoch_start": "2026-05-25T10:00:00Z", "device": "mote-1", "index": 0,
            "seq": 0, "at": "2026-05-25T10:00:00.5Z", "temperature": 27.97, "count": u64::MAX,
            "level": -0.5, "seq_": -3, "odd": 1.0 / 3.0,
        })
    );
    assert_eq!((&rows[1]["level"], &rows[2]["level"]), (&json!(null), &json!(1e300)));
}

#[test]
fn a_table_has_aligned_columns_and_units() {
    let text = String::from_utf8(written(Format::Table)).unwrap();
    let header = text.lines().next().unwrap();
    assert!(header.contains("temperature [Cel]") && header.contains("level [dB]"), "{header}");
    let end = header.find("temperature [Cel]").unwrap() + "temperature [Cel]".len();
    assert!(text.lines().nth(1).unwrap()[..end].ends_with(" 27.97"), "{text}");
    assert!(text.lines().nth(2).unwrap()[..end].ends_with(" -0.06"), "{text}");
}

fn check(batch: &RecordBatch) {
    let schema = batch.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let expected = [
        "epoch",
        "epoch_start",
        "device",
        "index",
        "seq",
        "at",
        "temperature",
        "count",
        "level",
        "seq_",
        "odd",
    ];
    assert_eq!(names, expected);
    let temperature = schema.field_with_name("temperature").unwrap().metadata();
    assert_eq!(
        (
            temperature["unit"].as_str(),
            temperature["divisor"].as_str(),
            temperature["offset"].as_str()
        ),
        ("Cel", "100", "-5")
    );
    assert_eq!(batch.num_rows(), 4);
    let column = |name: &str| batch.column_by_name(name).unwrap();
    assert_eq!(
        column("epoch").as_primitive::<UInt64Type>().values(),
        &[EPOCH, EPOCH, EPOCH, EPOCH + 1]
    );
    assert_eq!(column("index").as_primitive::<UInt64Type>().values(), &[0, 0, 0, 1]);
    assert_eq!(column("seq").as_primitive::<UInt64Type>().values(), &[0, 1, 2, 0]);
    assert_eq!(column("device").as_string::<i32>().value(3), "mote-1");
    assert_eq!(
        column("temperature").as_primitive::<Float64Type>().values(),
        &[27.97, -0.06, 1.0, 27.97]
    );
    assert_eq!(column("count").as_primitive::<UInt64Type>().value(0), u64::MAX);
    assert_eq!(column("seq_").as_primitive::<Int64Type>().values(), &[-3, 0, 127, -3]);
    assert!(column("level").as_primitive::<Float64Type>().value(1).is_nan());
    let start = i64::try_from(EPOCH * 3_600_000).unwrap();
    let at = column("at").as_primitive::<TimestampMillisecondType>();
    assert_eq!(at.values(), &[start + 500, start, start + 3_599_999, start + 3_600_500]);
    assert_eq!(at.timezone(), Some("UTC"));
}

#[test]
fn arrow_reads_back_with_types_and_units() {
    let bytes = written(Format::Arrow);
    let batches: Vec<RecordBatch> =
        StreamReader::try_new(&bytes[..], None).unwrap().map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1);
    check(&batches[0]);
}

#[test]
fn parquet_reads_back_with_types_and_units() {
    let bytes = bytes::Bytes::from(written(Format::Parquet));
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    assert_eq!(batches.len(), 1);
    check(&batches[0]);
}

#[test]
fn batches_in_memory_have_types_and_units() {
    let mut rows = Batches::new();
    pass_rows(&mut rows);
    assert_eq!(rows.rows(), 4);
    let (schema, batches) = rows.finish().unwrap();
    assert_eq!(batches.len(), 1);
    assert_eq!(schema, batches[0].schema());
    check(&batches[0]);
}

#[test]
fn batches_without_rows_have_the_common_columns() {
    let (schema, batches) = Batches::new().finish().unwrap();
    let names: Vec<&str> =
        schema.fields().iter().take(5).map(|field| field.name().as_str()).collect();
    assert_eq!((names, batches.len()), (vec!["epoch", "epoch_start", "device", "index", "seq"], 0));
}

#[test]
fn formats_with_fixed_columns_reject_rows_of_a_second_schema() {
    let group = Group::new();
    let (mut one, mut two) = (group.start("mote-1"), group.start("mote-2"));
    let first = group.seal("mote-1", &mut one, EPOCH, &["a:V:u8"], &[vec![1]]);
    let second = group.seal("mote-2", &mut two, EPOCH, &["b:A:u8"], &[vec![2]]);
    let answer = group.answer(&[(&first, u32::MAX), (&second, u32::MAX)]);
    let query = group.query(&["mote-1", "mote-2"], Some(EPOCH + 1), everything());
    for (_, format) in Format::NAMES.iter().copied() {
        let mut writer = Writer::new(format, Vec::new());
        let verified = group.verify(query.clone(), None, &answer, &mut writer);
        assert_eq!(verified.is_ok(), format == Format::JsonLines, "{format:?}");
    }
    assert_eq!(
        group.verify(query, None, &answer, &mut Batches::new()),
        Err("OutputFailed".to_owned())
    );
}
