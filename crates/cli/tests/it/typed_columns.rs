//! Columns with nulls, booleans, labels, texts, timestamps and points: from a table to verified rows
//! and estimates.

use crate::scene::Scene;

const TABLE: &str = "ts,temperature,door,mode,note,seen,place\n\
    2026-01-01T00:00:00Z,20,true,on,\"a, b\",2026-01-01T00:00:00Z,\"59.33,18.07\"\n\
    2026-01-01T00:01:00Z,,,,,,\n\
    2026-01-01T00:02:00Z,21,false,off,x,1969-12-31T23:59:59.5Z,\"-90,180\"\n\
    2026-01-01T01:00:00Z,,,,,,\n\
    2026-01-01T01:01:00Z,22,,on,,,\n";
const COLUMNS: [&str; 6] = [
    "temperature:Cel:i16/100?",
    "door::bool?",
    "mode::enum(off,on)?",
    "note::text20?",
    "seen::timestamp?",
    "place::point?",
];

#[test]
fn a_table_with_nulls_becomes_verified_rows_and_estimates_that_state_the_nulls() {
    let scene = Scene::new();
    scene.write("home.csv", TABLE);
    let mut seal = vec!["seal", "home.csv", "--time", "ts", "--device", "dev1"];
    seal.extend(["--key", "keys/dev1.key.pem", "--out", "bundles"]);
    COLUMNS.iter().for_each(|column| seal.extend(["--column", column]));
    scene.with_roster(&seal).done();
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles/", "--to", &cloud.url]).done();
    let ask = |arguments: &[&str]| {
        scene.with_roster(&[arguments, &["--from", &cloud.url, "dev1"]].concat())
    };
    let rows = ask(&["get", "--rate", "1", "--format", "csv"]).done().out;
    let rows: Vec<&str> =
        rows.lines().skip(1).map(|row| row.splitn(6, ',').last().unwrap()).collect();
    assert_eq!(
        rows,
        [
            "20.00,true,on,\"a, b\",2026-01-01T00:00:00Z,\"59.3300000,18.0700000\"",
            ",,,,,",
            "21.00,false,off,x,1969-12-31T23:59:59.5Z,\"-90.0000000,180.0000000\"",
            ",,,,,",
            "22.00,,on,,,",
        ]
    );
    let estimate = |statistic: &str, field: &str| {
        ask(&["estimate", statistic, field, "--rate", "1", "--json"])
    };
    for (statistic, value) in [("mean", 21.0), ("sum", 63.0)] {
        let group = &estimate(statistic, "temperature").done().json()["group"];
        assert_eq!((&group["sampled"], &group["nulls"]), (&5.into(), &2.into()), "{group}");
        assert_eq!(group["estimates"][0]["value"], value, "{group}");
    }
    let why = estimate("mean", "door");
    let why = why.failed(2);
    assert!(why.contains("the values of door are of type bool, which has no statistics"), "{why}");
}
