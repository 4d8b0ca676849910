//! The results of a query as a table, JSON lines, CSV and Arrow: for an accepted answer, for a
//! missing epoch and for a rejected answer.

use std::io::Cursor;

use crate::sum_support::{Chance, Contribution, Scene, epoch, opened, roster, schema, tree};
use arrow_array::{Array as _, Decimal128Array, StringArray};
use arrow_ipc::reader::StreamReader;
use moteseal_client::sum::{Epochs, Finding, Row, RowFormat, RowNames, RowWriter};
use moteseal_core::schema::{MAX_SCHEMA, Schema};
use moteseal_sum::query::Plan;

const FIRST: u64 = 60_000_000;
const QUERY: &str = "SELECT AVG(temperature), VARIANCE(voltage), COUNT(*), SUM(light) FROM sensors \
                     WHERE light > 0 EPOCH DURATION 30s";

/// Returns four epochs: an answer without two of the sources, an answer over no readings, a missing
/// epoch and a rejected answer.
fn rows(query: &str, min_count: u32) -> (Scene, Vec<Row>) {
    let roster = roster(8);
    let mut chance = Chance(3);
    let tree = tree(&roster, 2, &mut chance);
    let mut scene = Scene::new(roster, tree, query, 8, 5, &mut chance);
    // The nonce is fixed because the rows contain the query's id, which depends on it.
    scene.question.nonce = [7; 16];
    scene.question.min_count = min_count;
    scene.id = scene.question.id();
    let tree = scene.tree.clone();
    let mut epochs = Epochs::new(scene.group(), scene.querier(), 1000, FIRST);
    let mut rows = Vec::new();
    for number in FIRST..FIRST + 4 {
        let answers: Vec<Option<Contribution>> = (0..8_u32)
            .map(|position| {
                let light = if number == FIRST + 1 { 0 } else { 100 + i64::from(position) };
                let answers = if number == FIRST + 2 {
                    position < 2
                } else {
                    number != FIRST || position < 6
                };
                answers.then(|| {
                    scene.answer(
                        position,
                        number,
                        Some(&[-2000 + i64::from(position), 0, light, 3000 + i64::from(position)]),
                    )
                })
            })
            .collect();
        let traffic = epoch(&tree, &answers, &mut |_, share| {
            if number == FIRST + 3 {
                share.psrs.values_mut().for_each(|psr| *psr = psr.merge(psr));
            }
        });
        for child in tree.querier().children() {
            if let Some(share) = traffic.shares.get(&child.name) {
                epochs.receive(child.id, &opened(&share.frame(scene.id, number, 8)));
            }
        }
        let (row, failed) = epochs.close();
        let edge = Finding::Edge { child: "mote3".to_owned(), parent: "gw-0".to_owned() };
        let forgotten = Finding::Forgotten { node: "gw-1".to_owned(), parent: "gw-0".to_owned() };
        rows.push(if failed.is_some() { row.with_findings(vec![forgotten, edge]) } else { row });
    }
    (scene, rows)
}

fn written(format: RowFormat, query: &str, min_count: u32) -> Vec<u8> {
    let (scene, rows) = rows(query, min_count);
    let mut buffer = [0; MAX_SCHEMA];
    let schema: Schema<'_> = schema(&mut buffer);
    let plan = Plan::decode(&scene.question.plan).unwrap();
    let names = RowNames::new(&plan, &schema);
    let mut out = Vec::new();
    let mut writer = RowWriter::new(format, names, &mut out).unwrap();
    rows.iter().for_each(|row| writer.row(row).unwrap());
    writer.finish().unwrap();
    out
}

fn text(format: RowFormat) -> String {
    String::from_utf8(written(format, QUERY, 1)).unwrap()
}

#[test]
fn a_table_has_aligned_columns() {
    let silent = {
        let (scene, _) = rows(QUERY, 1);
        let names: Vec<String> = scene.roster.devices().map(|device| device.name.clone()).collect();
        format!("{}, {}", names[6], names[7])
    };
    let expected = format!(
        "\
epoch                 AVG(temperature) [Cel]  VARIANCE(voltage) [V2]      COUNT(*)  SUM(light) [lx]  participants  silent
2027-01-15T08:00:00Z              -19.975000            0.0000029167             6              615           6/8  {silent}
2027-01-15T08:00:30Z                       -                       -             0                0           8/8
2027-01-15T08:01:00Z                       -                       -             -                -           2/8  missing: BelowFloor: 2 took part, but sums of fewer than 5 participants are not shown
2027-01-15T08:01:30Z                       -                       -             -                -           8/8  refused: SharesMismatch: the shares in the sum are not those of the named participants in this query, slot and epoch (the sum of temperature, key group 0); mote3 -> gw-0; forgotten by gw-1
"
    );
    assert_eq!(text(RowFormat::Table), expected);
}

#[test]
fn json_has_stable_keys_and_exact_values() {
    let lines: Vec<serde_json::Value> = text(RowFormat::JsonLines)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let keys = [
        "duration_ms",
        "epoch",
        "error",
        "groups",
        "masked",
        "not_authentic",
        "outside",
        "participants",
        "privacy",
        "query",
        "readings",
        "reasons",
        "results",
        "silent",
        "sources",
        "start",
        "unheard",
    ];
    for line in &lines {
        let mut found: Vec<&String> = line.as_object().unwrap().keys().collect();
        found.sort_unstable();
        assert_eq!(found, keys);
        assert_eq!((&line["duration_ms"], &line["sources"]), (&30_000.into(), &8.into()));
        assert_eq!(line["query"].as_str().unwrap().len(), 32);
    }
    assert_eq!(lines[0]["epoch"], FIRST);
    assert_eq!(lines[0]["start"], "2027-01-15T08:00:00Z");
    let results = serde_json::json!({
        "AVG(temperature)": "-19.975000",
        "VARIANCE(voltage)": "0.0000029167",
        "COUNT(*)": "6",
        "SUM(light)": "615"
    });
    assert_eq!((&lines[0]["results"], &lines[0]["error"]), (&results, &serde_json::Value::Null));
    assert_eq!(lines[0]["silent"].as_array().unwrap().len(), 2);
    assert_eq!((&lines[0]["readings"], &lines[0]["outside"]), (&6.into(), &0.into()));
    assert_eq!(lines[2]["readings"], serde_json::Value::Null);
    for line in &lines {
        let named = |key: &str| line[key].as_array().unwrap().len() as u64;
        assert_eq!(
            line["participants"].as_u64().unwrap() + named("silent") + named("unheard"),
            8,
            "{line}"
        );
    }
    assert_eq!(lines[1]["results"]["AVG(temperature)"], serde_json::Value::Null);
    assert_eq!(lines[1]["results"]["COUNT(*)"], "0");
    assert_eq!(
        (&lines[2]["results"], &lines[2]["error"]["name"]),
        (&serde_json::Value::Null, &"BelowFloor".into())
    );
    assert_eq!(lines[2]["error"]["edge"], serde_json::Value::Null);
    assert_eq!(
        lines[3]["error"]["edges"],
        serde_json::json!(["mote3 -> gw-0"]),
        "an aggregator that no longer has the epoch is not a fault"
    );
    assert_eq!(lines[3]["error"]["forgotten"], serde_json::json!(["gw-1"]));
    assert_eq!(
        (&lines[3]["error"]["name"], &lines[3]["error"]["edge"]),
        (&"SharesMismatch".into(), &"mote3 -> gw-0".into())
    );
}

#[test]
fn csv_has_a_column_for_every_key() {
    let text = text(RowFormat::Csv);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().unwrap().clone();
    let expected = "epoch,start,duration_ms,AVG(temperature),VARIANCE(voltage),COUNT(*),\
                    SUM(light),participants,sources,silent,error,edge,unheard,readings,outside,masked,epsilon,\
                    reasons";
    assert_eq!(heads.iter().collect::<Vec<_>>().join(","), expected);
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!((rows.len(), &rows[0][3], &rows[0][10]), (4, "-19.975000", ""));
    assert_eq!((&rows[1][3], &rows[1][5]), ("", "0"));
    assert_eq!(
        (&rows[2][5], &rows[2][10], &rows[3][10], &rows[3][11]),
        ("", "BelowFloor", "SharesMismatch", "mote3 -> gw-0")
    );
    assert_eq!(rows[0][9].split(' ').count(), 2);
    assert_eq!((&rows[0][13], &rows[0][14], &rows[2][13]), ("6", "0", ""));
}

#[test]
fn arrow_has_exact_decimals() {
    let bytes = written(RowFormat::Arrow, QUERY, 1);
    let batches: Vec<_> =
        StreamReader::try_new(Cursor::new(bytes), None).unwrap().map(Result::unwrap).collect();
    assert_eq!(batches.len(), 4);
    let decimal = |batch: usize, name: &str| {
        let column = batches[batch].column_by_name(name).unwrap().clone();
        let column = column.as_any().downcast_ref::<Decimal128Array>().unwrap().clone();
        column.is_valid(0).then(|| column.value_as_string(0))
    };
    assert_eq!(decimal(0, "AVG(temperature)").as_deref(), Some("-19.975000"));
    assert_eq!(decimal(0, "VARIANCE(voltage)").as_deref(), Some("0.0000029167"));
    assert_eq!(decimal(0, "COUNT(*)").as_deref(), Some("6"));
    assert_eq!(decimal(1, "AVG(temperature)"), None);
    assert_eq!(decimal(3, "COUNT(*)"), None);
    let edge = batches[3]
        .column_by_name("edge")
        .unwrap()
        .as_any()
        .downcast_ref::<StringArray>()
        .unwrap()
        .value(0)
        .to_owned();
    assert_eq!(edge, "mote3 -> gw-0");
    let schema = batches[0].schema();
    assert_eq!(schema.field_with_name("VARIANCE(voltage)").unwrap().metadata()["unit"], "V2");
}

const GROUPED: &str = "SELECT MEDIAN(temperature), HISTOGRAM(voltage), COUNT(*) FROM sensors \
                       GROUP BY humidity (1, 0) BINS 4 EPOCH DURATION 30s";

#[test]
fn each_group_has_its_own_results() {
    let shown = |format| String::from_utf8(written(format, GROUPED, 5)).unwrap();
    let line = shown(RowFormat::JsonLines);
    let line: serde_json::Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(line["results"], serde_json::Value::Null);
    let (none, some) = (&line["groups"][0], &line["groups"][1]);
    assert_eq!((&none["readings"], &none["results"]["COUNT(*)"]), (&0.into(), &"0".into()));
    assert_eq!(none["results"]["MEDIAN(temperature)"], serde_json::Value::Null);
    assert_eq!((&some["readings"], &some["results"]["COUNT(*)"]), (&6.into(), &"6".into()));
    // The temperatures are about -20 degrees, in the second quarter of the range of the type.
    let median = serde_json::json!({ "low": "-163.84", "high": "-0.01" });
    assert_eq!(some["results"]["MEDIAN(temperature)"], median);
    let bins = some["results"]["HISTOGRAM(voltage)"]["bins"].as_array().unwrap();
    let counts: Vec<u64> = bins.iter().map(|bin| bin["count"].as_u64().unwrap()).collect();
    assert_eq!((counts.iter().sum::<u64>(), counts.len()), (6, 4));
    assert!(bins[0]["low"].is_null() && bins[3]["high"].is_null());

    let csv = shown(RowFormat::Csv);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let heads = reader.headers().unwrap().iter().skip(3).take(5).collect::<Vec<_>>().join(",");
    assert_eq!(
        heads,
        "humidity,MEDIAN(temperature) low,MEDIAN(temperature) high,HISTOGRAM(voltage),COUNT(*)"
    );
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!([&records[0][4], &records[1][4], &records[1][5]], ["", "-163.84", "-0.01"]);
    // The two rows without an answer have a line each.
    assert_eq!(records.len(), 2 + 2 + 1 + 1);

    let table = shown(RowFormat::Table);
    assert!(table.lines().nth(1).unwrap().starts_with("# bins of HISTOGRAM(voltage): .."));
    assert!(table.lines().nth(3).unwrap().contains("-163.84..-0.01"));

    let arrow = written(RowFormat::Arrow, GROUPED, 5);
    let rows: usize = StreamReader::try_new(Cursor::new(arrow), None)
        .unwrap()
        .map(|batch| batch.unwrap().num_rows())
        .sum();
    assert_eq!(rows, records.len());
}

#[test]
fn the_results_of_a_small_group_are_withheld() {
    let query = "SELECT COUNT(*) FROM sensors GROUP BY voltage (3, 3.001, 9) EPOCH DURATION 30s";
    let line = String::from_utf8(written(RowFormat::JsonLines, query, 5)).unwrap();
    let line: serde_json::Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    // Two groups have one reading each, and the third has none.
    assert_eq!(line["error"]["name"], "TooFewReadings");
    assert_eq!(line["groups"], serde_json::Value::Null);
}
