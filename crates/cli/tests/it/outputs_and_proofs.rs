//! The files that an application gets: rows in every format exactly as sealed, proofs that verify
//! offline unless they were changed, and pinned seals that a cloud cannot withdraw.

use std::fs::{self, File};
use std::path::Path;

use crate::testbed::{Checked, EPOCH_MS, Field, Honest, Key, client};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampMillisecondType, UInt64Type};
use arrow_array::{Array as _, RecordBatch};
use moteseal_adversary::{Answer, Item};
use moteseal_api::ErrorKind;
use moteseal_api::Query;
use moteseal_client::estimate::{Estimator, Values};
use moteseal_client::output::{AtomicFile, Format, Writer};
use moteseal_client::proof::{self, Scope};
use moteseal_client::redact::{Keep, KeptReadings, redact};
use moteseal_client::{Error, NoRows, PinnedSeals, Report, Sink};
use moteseal_core::record::{EpochNumber, Scheme, SealIndex};
use moteseal_core::schema::Schema;
use moteseal_seal::sample::{Choice, ReadingRun, Readings};
use moteseal_verify::Roster;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

fn rate(text: &str) -> Choice {
    Choice::Rate(text.parse().unwrap())
}

async fn export(field: &Field, cloud: &Honest, query: &Query, format: Format, path: &Path) {
    let mut file = AtomicFile::create(path).unwrap();
    let mut writer = Writer::new(format, &mut file);
    let report = moteseal_client::Client::new(&client(&cloud.url), &field.roster)
        .query(query)
        .run(&mut writer)
        .await
        .unwrap()
        .report;
    assert!(report.is_complete());
    writer.finish().unwrap();
    assert!(!path.exists(), "the file exists before it is complete");
    file.commit().unwrap();
}

/// Returns the keys of all events in a query's range, in the order of an answer.
fn expected(field: &Field, query: &Query) -> Vec<Key> {
    let in_range =
        |key: &&Key| key.1 >= query.since.0 && query.until.is_none_or(|until| key.1 < until.0);
    let of =
        |device| field.truth.keys().filter(in_range).filter(move |key| key.0 == device).copied();
    query.devices.iter().flat_map(|device| of(*device)).collect()
}

/// Returns the record whose row has these cells. It uses
/// [`Field::write`](moteseal_core::schema::Field) as the oracle, which accepts only exact decimals.
fn record_of(field: &Field, key: &Key, cells: &[String]) -> Vec<u8> {
    let schema = Schema::decode(&field.schema).unwrap();
    let start = i64::try_from(key.1 * EPOCH_MS).unwrap();
    let mut record = vec![0; schema.record_size().unwrap()];
    assert_eq!(cells.len(), schema.fields().count());
    for (column, cell) in schema.fields().zip(cells) {
        let cell = match column.name {
            "taken" => {
                (cell.parse::<jiff::Timestamp>().unwrap().as_millisecond() - start).to_string()
            }
            _ => cell.clone(),
        };
        column.write(&cell, &mut record).unwrap();
    }
    record
}

/// Asserts that a row contains this event. `head` is the row's epoch, epoch_start, device, index
/// and seq.
fn assert_row(field: &Field, key: &Key, head: [&str; 5], cells: &[String]) {
    let start: jiff::Timestamp = head[1].parse().unwrap();
    assert_eq!(
        (head[0].parse(), head[3].parse(), head[4].parse()),
        (Ok(key.1), Ok(key.2), Ok(key.3))
    );
    assert_eq!(start.as_millisecond(), i64::try_from(key.1 * EPOCH_MS).unwrap());
    assert_eq!(field.roster.id(head[2]), Some(key.0));
    assert_eq!(record_of(field, key, cells), field.truth[key].0, "{key:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_formats_read_back_as_the_sealed_records() {
    let field = Field::new(Scheme::Star);
    let cloud = Honest::serve(&field, u64::MAX).await;
    let folder = tempfile::tempdir().unwrap();
    let query = field.query(rate("1"));
    let keys = expected(&field, &query);

    let path = folder.path().join("rows.csv");
    export(&field, &cloud, &query, Format::Csv, &path).await;
    let mut reader = csv::Reader::from_path(&path).unwrap();
    let head: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let names = ["temperature", "humidity", "energy", "pressure", "current", "taken"];
    assert_eq!(head, [&["epoch", "epoch_start", "device", "index", "seq"][..], &names].concat());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), keys.len());
    for (row, key) in rows.iter().zip(&keys) {
        let cells: Vec<String> = row.iter().skip(5).map(str::to_owned).collect();
        assert_row(&field, key, [&row[0], &row[1], &row[2], &row[3], &row[4]], &cells);
    }

    let path = folder.path().join("rows.jsonl");
    export(&field, &cloud, &query, Format::JsonLines, &path).await;
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), keys.len());
    for (line, key) in text.lines().zip(&keys) {
        // Compare numbers as text: a JSON reader that converts them to floats loses digits.
        let row: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_str(line).unwrap();
        let cell = |name: &str| row[name].get().trim_matches('"').to_owned();
        assert_eq!(row.len(), 5 + names.len());
        assert!(
            !row["energy"].get().starts_with('"') && row["taken"].get().starts_with('"'),
            "{line}"
        );
        let [epoch, start, device, index, seq] =
            ["epoch", "epoch_start", "device", "index", "seq"].map(cell);
        assert_row(&field, key, [&epoch, &start, &device, &index, &seq], &names.map(cell));
    }

    let path = folder.path().join("rows.txt");
    export(&field, &cloud, &query, Format::Table, &path).await;
    let text = fs::read_to_string(&path).unwrap();
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    assert!(head.contains("temperature [Cel]") && head.contains("humidity [%RH]"), "{head}");
    for (line, key) in lines.clone().zip(&keys) {
        let row: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_row(&field, key, [&row[0], &row[1], &row[2], &row[3], &row[4]], &row[5..]);
    }
    assert_eq!(lines.clone().count(), keys.len());
    // The widths of the columns are measured from the first 1,000 rows. In these rows, all cells of
    // a column of numbers end at the same position, and all cells of a column of text start at the
    // same position.
    let edges = |line: &str| -> Vec<usize> {
        let mut at = 0;
        let place = |(column, word): (usize, &str)| {
            let start = at + line[at..].find(word).unwrap();
            at = start + word.len();
            if matches!(column, 1 | 2) { start } else { at }
        };
        line.split_whitespace().enumerate().map(place).collect()
    };
    let first = edges(lines.clone().next().unwrap());
    lines.take(1000).for_each(|line| assert_eq!(edges(line), first, "{line}"));
    assert_eq!(first[5], head.find("temperature [Cel]").unwrap() + "temperature [Cel]".len());
}

fn batches_are(field: &Field, keys: &[Key], batches: &[RecordBatch]) {
    let schema = Schema::decode(&field.schema).unwrap();
    let mut keys = keys.iter();
    for batch in batches {
        for (name, unit, divisor, offset) in [
            ("temperature", "Cel", "100", "0"),
            ("pressure", "Pa", "1", "90000"),
            ("energy", "J", "1", "0"),
            ("taken", "ms", "1", "0"),
        ] {
            let metadata = batch.schema().field_with_name(name).unwrap().metadata().clone();
            let got = ["unit", "divisor", "offset"].map(|key| metadata[key].as_str());
            assert_eq!(got, [unit, divisor, offset], "{name}");
        }
        let column = |name: &str| batch.column_by_name(name).unwrap();
        assert!(batch.columns().iter().all(|column| column.null_count() == 0));
        for row in 0..batch.num_rows() {
            let key = keys.next().unwrap();
            let record = &field.truth[key].0;
            assert_eq!(column("epoch").as_primitive::<UInt64Type>().value(row), key.1);
            assert_eq!(
                u32::try_from(column("index").as_primitive::<UInt64Type>().value(row)),
                Ok(key.2)
            );
            assert_eq!(column("seq").as_primitive::<UInt64Type>().value(row), key.3);
            assert_eq!(
                field.roster.id(column("device").as_string::<i32>().value(row)),
                Some(key.0)
            );
            let start = i64::try_from(key.1 * EPOCH_MS).unwrap();
            assert_eq!(
                column("epoch_start").as_primitive::<TimestampMillisecondType>().value(row),
                start
            );
            let raw = |name: &str| schema.field(name).unwrap().raw(record).unwrap();
            let taken = column("taken").as_primitive::<TimestampMillisecondType>().value(row);
            assert_eq!(i128::from(taken - start), raw("taken"));
            assert_eq!(
                i128::from(column("energy").as_primitive::<UInt64Type>().value(row)),
                raw("energy")
            );
            for name in ["temperature", "humidity", "pressure", "current"] {
                let value = column(name).as_primitive::<Float64Type>().value(row);
                let sealed = schema.field(name).unwrap().read_f64(record).unwrap().unwrap();
                assert_eq!(value.to_bits(), sealed.to_bits(), "{name} {key:?}");
            }
        }
    }
    assert_eq!(keys.next(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrow_and_parquet_read_back_as_the_sealed_records_with_their_units() {
    let field = Field::new(Scheme::Tree);
    let cloud = Honest::serve(&field, u64::MAX).await;
    let folder = tempfile::tempdir().unwrap();
    let query = field.query(rate("1"));
    let keys = expected(&field, &query);
    let path = folder.path().join("rows.arrows");
    export(&field, &cloud, &query, Format::Arrow, &path).await;
    let reader =
        arrow_ipc::reader::StreamReader::try_new(File::open(&path).unwrap(), None).unwrap();
    batches_are(&field, &keys, &reader.map(Result::unwrap).collect::<Vec<_>>());
    let path = folder.path().join("rows.parquet");
    export(&field, &cloud, &query, Format::Parquet, &path).await;
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap())
        .unwrap()
        .build()
        .unwrap();
    batches_are(&field, &keys, &reader.map(Result::unwrap).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_appears_complete_or_not_at_all() {
    let field = Field::new(Scheme::Star);
    let cloud = Honest::serve(&field, u64::MAX).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, "the old contents").unwrap();
    let names = || {
        fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    // A roster that does not certify these devices refuses the answer.
    let stranger = Field::stranger(2, "orchard");
    for format in Format::NAMES.iter().map(|(_, format)| *format) {
        let mut file = AtomicFile::create(&path).unwrap();
        let mut writer = Writer::new(format, &mut file);
        let query = field.query(rate("1"));
        let outcome = moteseal_client::Client::new(&client(&cloud.url), &stranger)
            .query(&query)
            .run(&mut writer)
            .await
            .map(|verified| verified.report);
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Refused);
        drop(writer);
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "the old contents");
        assert_eq!(names(), ["rows.csv"], "a temporary file remains");
    }
    export_over(&field, &cloud, &path).await;
    assert_eq!(names(), ["rows.csv"]);
    let error = AtomicFile::create(folder.path()).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Usage && error.to_string().contains("name a file in it"),
        "{error}"
    );
    let error = AtomicFile::create(&folder.path().join("nowhere/rows.csv")).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Usage && error.to_string().contains("nowhere; make it first"),
        "{error}"
    );
    // On a full disk the error names the file and the remedy, in every format.
    for format in Format::NAMES.iter().map(|(_, format)| *format) {
        let mut file = AtomicFile::create(Path::new("/dev/full")).unwrap();
        let mut writer = Writer::new(format, &mut file);
        let _ = moteseal_client::Client::new(&client(&cloud.url), &field.roster)
            .query(&field.query(rate("1/8")))
            .run(&mut writer)
            .await
            .unwrap();
        writer.finish().unwrap();
        let error = file.commit().unwrap_err();
        assert!(
            error.kind() == ErrorKind::Internal
                && error.to_string().contains("/dev/full: the disk is full; make room"),
            "{error}"
        );
    }
}

async fn export_over(field: &Field, cloud: &Honest, path: &Path) {
    let mut file = AtomicFile::create(path).unwrap();
    let mut writer = Writer::new(Format::Csv, &mut file);
    let _ = moteseal_client::Client::new(&client(&cloud.url), &field.roster)
        .query(&field.query(rate("1/8")))
        .run(&mut writer)
        .await
        .unwrap();
    writer.finish().unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "the old contents");
    file.commit().unwrap();
    assert!(fs::read_to_string(path).unwrap().starts_with("epoch,epoch_start,device,index,seq,"));
}

/// Writes a proof. Returns the number of rows that it proves.
async fn prove(field: &Field, cloud: &Honest, query: &Query, path: &Path) -> usize {
    let mut sink = Checked::new(field);
    let client = client(&cloud.url);
    let request = moteseal_client::Client::new(&client, &field.roster).query(query).proof(path);
    let verified = request.run(&mut sink).await.unwrap();
    assert!(!path.exists(), "the proof exists before it is kept");
    verified.keep().unwrap();
    sink.seen.len()
}

fn verify(
    field: &Field,
    bytes: &[u8],
    roster: &Roster,
    pinned: Option<&PinnedSeals>,
) -> Result<(Query, Report, usize), Error> {
    let mut sink = Checked::new(field);
    let (scope, report) =
        proof::verify(bytes, Path::new("kept.mproof"), roster, pinned, &mut sink)?;
    let Scope::Answer(query) = scope else { panic!("the proof is redacted") };
    Ok((query, report, sink.seen.len()))
}

/// Readings that somebody chose give no estimate: those that a redactor left, and those that a query
/// names. Nothing else about them is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_from_chosen_readings_is_refused_by_name() {
    let field = Field::new(Scheme::Tree);
    let cloud = Honest::serve(&field, u64::MAX).await;
    let folder = tempfile::tempdir().unwrap();
    let (whole, few) = (folder.path().join("p.mproof"), folder.path().join("few.mproof"));
    let named = folder.path().join("named.mproof");
    let query = Query { devices: vec![field.devices[0]], ..field.query(rate("1")) };
    prove(&field, &cloud, &query, &whole).await;
    let readings = [KeptReadings { index: None, first: 0, last: 5 }].to_vec();
    let keep = Keep { readings, ..Keep::default() };
    let file = |path: &Path| File::open(path).unwrap();
    let report = redact(file(&whole), &whole, &field.roster, &keep, &few).unwrap().report;
    assert!(report.is_redacted && !report.is_complete() && report.rows() > 0);
    let run = ReadingRun { index: SealIndex(0), first: 0, count: 3 };
    let choice = Choice::Readings(Readings::new(&[run]).unwrap());
    let all = Query { choice, since: EpochNumber(0), until: None, ..query.clone() };
    prove(&field, &cloud, &all, &named).await;

    let (_, of_proof) =
        proof::verify(file(&named), &named, &field.roster, None, &mut NoRows).unwrap();
    assert!(of_proof.is_named() && !of_proof.is_complete() && of_proof.rows() == 3);
    let refused = of_proof.require_complete(&field.roster).unwrap_err();
    assert_eq!(refused.name(), "ReadingsNamed");

    let estimate = |path: &Path, sink: &mut dyn Sink| {
        proof::verify(file(path), path, &field.roster, None, sink).map(drop)
    };
    let mean: fn() -> Box<dyn Sink> = || Box::new(Estimator::new("temperature"));
    let quantiles: fn() -> Box<dyn Sink> = || Box::new(Values::new("temperature"));
    for (what, sink) in [("a mean", mean), ("quantiles", quantiles)] {
        estimate(&whole, &mut *sink()).unwrap();
        for path in [&few, &named] {
            let refused = estimate(path, &mut *sink()).unwrap_err();
            assert_eq!(
                (refused.name(), refused.kind()),
                ("NotUniform", ErrorKind::Usage),
                "{what}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_verifies_offline_and_only_unchanged() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let field = Field::new(scheme);
        let cloud = Honest::serve(&field, u64::MAX).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.mproof");
        let mut sent = field.query(rate("1/32"));
        sent.until = Some(EpochNumber(104));
        let rows = prove(&field, &cloud, &sent, &path).await;
        assert!(rows > 10);
        let proof = fs::read(&path).unwrap();
        let (query, report, proven) = verify(&field, &proof, &field.roster, None).unwrap();
        assert_eq!((&query, proven), (&sent, rows));
        assert!(report.is_complete());

        // The proof starts with the query, which is not signed. A change that does not alter the
        // query's meaning (the case of a letter) is accepted.
        let mut first = Vec::new();
        Answer::decode(&proof).unwrap().items[0].encode(&mut first);
        let mut accepted = 0;
        for at in (0..proof.len()).filter(|at| *at < 600 || at % 3 == 0 || *at + 100 > proof.len())
        {
            let mut bytes = proof.clone();
            bytes[at] ^= 1 << (at % 8);
            let Ok((query, report, proven)) = verify(&field, &bytes, &field.roster, None) else {
                continue;
            };
            assert!(at < first.len(), "{scheme:?}: accepted with byte {at} changed");
            assert!(
                !report.is_complete() || (query == sent && proven == rows),
                "{scheme:?}: byte {at} changes the query: {query:?}"
            );
            accepted += 1;
        }
        assert!(accepted < first.len() / 2, "{accepted}");
        for length in (0..proof.len()).step_by(41).chain([proof.len() - 1]) {
            let outcome = verify(&field, &proof[..length], &field.roster, None);
            assert!(outcome.is_err(), "{scheme:?}: accepted truncated to {length} bytes");
        }
        let longer = [&proof[..], &[0x81, 0x03]].concat();
        assert_eq!(
            verify(&field, &longer, &field.roster, None).unwrap_err().name(),
            "TrailingBytes"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_a_proof_of_another_roster_or_operator() {
    let field = Field::new(Scheme::Star);
    let cloud = Honest::serve(&field, u64::MAX).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.mproof");
    prove(&field, &cloud, &field.query(rate("1/8")), &path).await;
    let proof = fs::read(&path).unwrap();
    let mut answer = Answer::decode(&proof).unwrap();
    answer.items[0] = Item::Proof(field.query(rate("1/8")).to_json());
    let without_roster = answer.encode();
    assert!(
        verify(&field, &without_roster, &field.roster, None).is_ok(),
        "the roster's digest is only a hint"
    );
    // A device's chain starts at its certificate, so another operator's certificates start a
    // different chain. In another group the devices have different ids.
    for (stranger, name) in [
        (Field::stranger(2, "orchard"), "NotAuthentic"),
        (Field::stranger(1, "vineyard"), "UnknownDevice"),
    ] {
        let refused = verify(&field, &proof, &stranger, None).unwrap_err();
        assert_eq!(
            (refused.name(), refused.kind()),
            ("UnknownRoster", ErrorKind::Refused),
            "{refused}"
        );
        // The proof is refused with the same error if it does not state its roster.
        let refused = verify(&field, &without_roster, &stranger, None).unwrap_err();
        assert_eq!((refused.name(), refused.kind()), (name, ErrorKind::Refused), "{refused}");
    }
    let without_query = { Answer { items: answer.items[1..].to_vec() } }.encode();
    for bytes in [&without_query[..], b"", b"dear diary"] {
        assert!(verify(&field, bytes, &field.roster, None).is_err());
    }
    assert_eq!(
        verify(&field, &without_query, &field.roster, None).unwrap_err().name(),
        "NotAProof"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_seals_cannot_be_withdrawn() {
    for scheme in [Scheme::Star, Scheme::Tree] {
        let field = Field::new(scheme);
        let (whole, short) =
            (Honest::serve(&field, u64::MAX).await, Honest::serve(&field, 105).await);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pinned.json");
        let mut everything = field.query(rate("1/8"));
        everything.until = None;
        let ask = async |cloud: &Honest, query: &Query, pinned: Option<&mut PinnedSeals>| {
            let client = client(&cloud.url);
            let mut request = moteseal_client::Client::new(&client, &field.roster).query(query);
            if let Some(pinned) = pinned {
                request = request.pinned_seals(pinned);
            }
            let verified = request.run(&mut Checked::new(&field)).await;
            verified.map(|verified| verified.report)
        };
        // A client without pinned seals cannot detect that seals are withheld. A client that has
        // pinned the newest seals can detect it, even after a restart.
        assert!(ask(&short, &everything, None).await.unwrap().is_complete());
        let mut pinned = PinnedSeals::open(&path).unwrap();
        ask(&whole, &everything, Some(&mut pinned)).await.unwrap();
        pinned.save().unwrap();
        let mut pinned = PinnedSeals::open(&path).unwrap();
        for query in [&everything, &field.query(rate("1/8"))] {
            let withheld = ask(&short, query, Some(&mut pinned)).await.unwrap_err();
            assert_eq!(
                (withheld.name(), withheld.kind()),
                ("Missing", ErrorKind::Incomplete),
                "{withheld}"
            );
            assert!(
                withheld.to_string().contains("which an earlier response contained"),
                "{withheld}"
            );
        }
        ask(&whole, &everything, Some(&mut pinned)).await.unwrap();

        // A range that ends before the withheld seals is complete.
        let mut early = field.query(rate("1/8"));
        early.until = Some(EpochNumber(104));
        assert!(ask(&short, &early, Some(&mut pinned)).await.unwrap().is_complete());

        // A different history of the same devices and keys.
        let other_history = Field::with_shift(scheme, 1);
        assert_eq!(other_history.roster.digest(), field.roster.digest());
        let rolled_back = Honest::serve(&other_history, u64::MAX).await;
        let query = Query { choice: rate("1/8"), ..everything.clone() };
        let mut sink = Checked::new(&other_history);
        let client = client(&rolled_back.url);
        let request = moteseal_client::Client::new(&client, &field.roster).query(&query);
        let outcome = request.pinned_seals(&mut pinned).run(&mut sink).await;
        assert_eq!(outcome.unwrap_err().name(), "Equivocation");

        // A proof remains valid when there are newer seals. If the client has pinned newer seals,
        // its report states them.
        let path = folder.path().join("short.mproof");
        let rows = prove(&field, &short, &everything, &path).await;
        let proof = fs::read(&path).unwrap();
        let (_, unpinned, _) = verify(&field, &proof, &field.roster, None).unwrap();
        assert!(
            unpinned.is_complete() && unpinned.devices.iter().all(|device| device.newer.is_none())
        );
        let (_, report, proven) = verify(&field, &proof, &field.roster, Some(&pinned)).unwrap();
        assert_eq!((report.is_complete(), proven), (true, rows));
        for (old, now) in unpinned.devices.iter().zip(&report.devices) {
            assert_eq!(
                now.newer,
                pinned.of(&field.roster, now.device).map(|known| (known.index, known.epoch))
            );
            assert_eq!(now.complete_until(), old.complete_until());
        }
        // A proof of a different history of the same devices contradicts the pinned seals, so it is
        // refused.
        let path = folder.path().join("other_history.mproof");
        prove(&other_history, &rolled_back, &everything, &path).await;
        let refused =
            verify(&other_history, &fs::read(&path).unwrap(), &field.roster, Some(&pinned))
                .unwrap_err();
        assert_eq!(
            (refused.name(), refused.kind()),
            ("Equivocation", ErrorKind::Refused),
            "{refused}"
        );
    }
}
