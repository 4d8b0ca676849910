//! Importing records the values of a table exactly. Every error names the place and what to do.

use std::path::Path;

use moteseal_core::schema::Schema;
use moteseal_device::import::{Clock, Delimiter, TimeFormat};
use moteseal_device::{Import, Recording};
use moteseal_verify::Calendar;

fn import(columns: &[&str]) -> Import {
    Import {
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        opaque: None,
        clock: Clock::Column("ts".to_owned()),
        keep_time: None,
        delimiter: None,
        skip_incomplete: false,
        sort: false,
        latest_ms: None,
    }
}

fn read(import: &Import, text: &str) -> Result<Recording, String> {
    import.read(Path::new("data.csv"), text.as_bytes()).map_err(|error| error.to_string())
}

/// Returns the times and the values, as the schema formats them.
fn rows(recording: &Recording) -> Vec<(u64, String)> {
    let schema = Schema::decode(&recording.schema).unwrap();
    let show = |record: &[u8]| {
        schema
            .fields()
            .map(|field| field.read(record).unwrap().to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    recording.iter().map(|(unix_ms, record)| (unix_ms, show(record))).collect()
}

const TWO: &[&str] = &["temperature:Cel:i16/100", "humidity:%RH:u16/100"];

#[test]
fn reads_the_same_records_with_every_delimiter() {
    for (text, delimiter) in [
        ("ts,humidity,temperature\n10,45.9,-0.05\n11,46,27.97\n", Delimiter::Comma),
        (
            "\u{feff}ts, humidity, temperature\r\n\r\n10, 45.9, -0.05\r\n11,46,\"27.97\"\r\n",
            Delimiter::Comma,
        ),
        ("ts;humidity;temperature\n10;45,9;-0,05\n11;46;27,97", Delimiter::Semicolon),
        ("ts\thumidity\ttemperature\n10\t45.9\t-0.05\n11\t46\t27.97\n", Delimiter::Tab),
        ("ts humidity temperature\n10\t45.9\t-0.05\n\n11 46  27.97\n", Delimiter::Whitespace),
    ] {
        let recording = read(&import(TWO), text).unwrap();
        assert_eq!(recording.delimiter, delimiter, "{text:?}");
        assert_eq!(recording.time_format, Some(TimeFormat::UnixSeconds));
        assert_eq!(
            rows(&recording),
            [(10_000, "-0.05 45.90".to_owned()), (11_000, "27.97 46.00".to_owned())]
        );
    }
}

#[test]
fn keeps_the_time_in_the_record_on_request() {
    let kept = Import { keep_time: Some(Calendar::constant(4000)), ..import(&["v::u8"]) };
    let recording = read(&kept, "ts,v\n2010-05-09T09:00:05.250Z,7\n").unwrap();
    let schema = Schema::decode(&recording.schema).unwrap();
    assert_eq!(
        schema.fields().map(|field| field.to_string()).collect::<Vec<_>>(),
        ["ts::time", "v::u8"]
    );
    assert_eq!(rows(&recording), [(1_273_395_605_250, "1250 7".to_owned())]);
}

#[test]
fn computes_times_from_row_numbers() {
    let timed =
        Import { clock: Clock::Every { start_ms: 5000, every_ms: 250 }, ..import(&["v::u8"]) };
    assert_eq!(
        rows(&read(&timed, "v\n1\n2\n").unwrap()),
        [(5000, "1".to_owned()), (5250, "2".to_owned())]
    );
}

#[test]
fn a_skipped_row_still_uses_its_time() {
    let timed = Import {
        clock: Clock::Every { start_ms: 5000, every_ms: 250 },
        skip_incomplete: true,
        ..import(&["v::u8", "w::u8"])
    };
    let recording = read(&timed, "v,w\n1,1\n,2\n3,\n4,4\n").unwrap();
    assert_eq!(recording.skipped, 2);
    assert_eq!(rows(&recording), [(5000, "1 1".to_owned()), (5750, "4 4".to_owned())]);
}

#[test]
fn opaque_records_are_the_unchanged_text() {
    let opaque = Import { opaque: Some("note".to_owned()), ..import(&[]) };
    let recording = read(&opaque, "ts,note\n1,\"door, open\"\n2,\n").unwrap();
    assert_eq!(Schema::decode(&recording.schema).unwrap(), Schema::OPAQUE);
    assert_eq!(recording.iter().collect::<Vec<_>>(), [(1000, &b"door, open"[..]), (2000, b"")]);
}

#[test]
fn an_empty_cell_of_a_nullable_column_is_null_and_texts_have_their_own_lengths() {
    let columns =
        ["t:Cel:i16/10?", "note::text20?", "open::bool?", "at::point?", "state::enum(off,on)"];
    let text =
        "ts;t;note;open;at;state\n1;21,5;door, open;true;59.33,18.07;on\n2;;;;;off\n3;-1;x;;;on\n";
    let recording = read(&import(&columns), text).unwrap();
    assert_eq!(
        rows(&recording),
        [
            (1000, "21.5 door, open true 59.3300000,18.0700000 on".to_owned()),
            (2000, "    off".to_owned()),
            (3000, "-1.0 x   on".to_owned())
        ]
    );
    let lengths: Vec<usize> = recording.iter().map(|(_, record)| record.len()).collect();
    assert_eq!(lengths, [12 + 11, 12 + 1, 12 + 2]);
    let schema = Schema::decode(&recording.schema).unwrap();
    assert!(recording.iter().all(|(_, record)| schema.check_record(record).is_ok()));
    let error = read(&import(&columns), "ts;t;note;open;at;state\n1;;;;;\n").unwrap_err();
    assert!(error.starts_with("data.csv:2: column state: no value"), "{error}");
}

#[test]
fn skips_or_sorts_rows_on_request() {
    let text = "ts,v\n3,1\n2,\n1,5\n";
    let lenient = Import { skip_incomplete: true, sort: true, ..import(&["v::u8"]) };
    let recording = read(&lenient, text).unwrap();
    assert_eq!(
        (rows(&recording), recording.skipped),
        (vec![(1000, "5".to_owned()), (3000, "1".to_owned())], 1)
    );
}

#[test]
fn errors_name_the_place_and_the_remedy() {
    let v = || import(&["v::u8"]);
    for (case, text, expected) in [
        (v(), "", "data.csv: the file is empty; it needs a header line"),
        (v(), "\n\n", "data.csv: the file is empty"),
        (v(), "ts,v\n", "data.csv: there are no readings below the header"),
        (
            import(&["volts:V:u8"]),
            "ts,v\n1,2\n",
            "data.csv: there is no column \"volts\"; the file has ts, v",
        ),
        (
            Import { clock: Clock::Column("when".to_owned()), ..v() },
            "ts,v\n",
            "data.csv: there is no column \"when\"; the file has ts, v",
        ),
        (v(), "ts,v\n1,2\n2,300\n", "data.csv:3: column v: \"300\" does not fit v::u8: OutOfRange"),
        (
            v(),
            "ts,v\n1,2.5\n",
            "data.csv:2: column v: \"2.5\" does not fit v::u8: NotRepresentable",
        ),
        (v(), "ts v\n1 2\n\n2 x\n", "data.csv:4: column v: \"x\" does not fit v::u8: NotANumber"),
        (
            v(),
            "ts,v\n5,1\n6,1\n4,1\n",
            "data.csv:4: times go back: 1970-01-01T00:00:04Z is before 1970-01-01T00:00:06Z in line 3; sort",
        ),
        (v(), "ts,v\n1,1\n2\n", "data.csv:3: 1 columns, but the header has 2"),
        (v(), "ts,v\nsoon,1\n", "data.csv:2: column ts: \"soon\" is not a time; use Unix seconds"),
        (
            v(),
            "ts,v\n2010-05-09,1\n7,1\n",
            "data.csv:3: column ts: \"7\" is not a time in the format of the first row, YYYY-MM-DD",
        ),
        (v(), "ts,v\n1,\n", "data.csv:2: column v: no value; declare the column as nullable (?)"),
        (v(), "ts,v,v\n", "data.csv: the header has two columns with the name \"v\""),
        (import(&["v:furlong:u8"]), "ts,v\n", "data.csv: --column v:furlong:u8: UnknownUnit"),
        (import(&[]), "ts,v\n", "data.csv: name the columns to seal with --column"),
        (
            Import { latest_ms: Some(9000), ..v() },
            "ts,v\n9,1\n10,1\n",
            "data.csv:3: 1970-01-01T00:00:10Z is in the future",
        ),
        (
            Import { keep_time: Some(Calendar::constant(1 << 33)), ..v() },
            "ts,v\n",
            "data.csv: --keep-time allows epochs of at most 49 days",
        ),
    ] {
        let error = read(&case, text).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = v().read(Path::new("x"), &b"ts,v\n\xff,1\n"[..]).unwrap_err().to_string();
    assert!(error.contains("not UTF-8"), "{error}");
    let error = v().file(Path::new("nowhere/x.csv")).unwrap_err().to_string();
    assert!(error.starts_with("nowhere/x.csv: No such file"), "{error}");
}

/// Errors are logged, and a log must not have the value of an encrypted column.
#[test]
fn no_error_has_a_value_of_an_encrypted_column() {
    const SECRET: &str = "7654";
    let encrypted = || import(&["v::u8!", "w::u8"]);
    let timed = || Import { latest_ms: Some(2_000_000), ..import(&["ts::timestamp!", "v::u8"]) };
    for (case, text, expected) in [
        (
            encrypted(),
            "ts,v,w\n1,7654,1\n",
            "data.csv:2: column v: the value does not fit v::u8!: OutOfRange",
        ),
        (
            encrypted(),
            "ts,v,w\n1,765x4,1\n",
            "data.csv:2: column v: the value does not fit v::u8!: NotANumber",
        ),
        // Shifted cells, and a table without a header.
        (
            encrypted(),
            "ts,v,w\n7654x,1,1\n",
            "data.csv:2: column ts: the value is not a time; use Unix seconds",
        ),
        (
            encrypted(),
            "1,7654,3\n2,3,1\n",
            "data.csv: there is no column \"ts\"; compare it with the first line",
        ),
        (
            encrypted(),
            "1,7654,7654\n",
            "data.csv: the header has two columns with the same name; rename one",
        ),
        (
            import(&["v::u8!", "w:furlong:u8"]),
            "ts,7654,7654\n",
            "data.csv: the header has two columns with the same",
        ),
        // The time's column is encrypted.
        (timed(), "ts,v\n7654,1\n", "data.csv:2: the time is in the future"),
        (
            timed(),
            "ts,v\n1765,1\n765.4,1\n",
            "data.csv:3: times go back: the time is before the time in line 2",
        ),
        (
            timed(),
            "ts,v\n1,1\n7654x,1\n",
            "data.csv:3: column ts: the value is not a time in the format",
        ),
    ] {
        let error = read(&case, text).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
        for secret in [SECRET, "765", "1970-01-01T02:07:34", "1970-01-01T00:29:25"] {
            assert!(!error.contains(secret), "{error}");
        }
    }
    // A plain column next to an encrypted one is shown.
    let error = read(&encrypted(), "ts,v,w\n1,1,300\n").unwrap_err();
    assert!(error.starts_with("data.csv:2: column w: \"300\" does not fit w::u8"), "{error}");
}
