//! `moteseal-lab` as a user meets it: a table, JSON, files, and what it says when data is not there.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::process::{Command, Output};

/// Runs in the checkout, whose `data/telosb` is always there, without other data.
fn sim(arguments: &[&str]) -> Output {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_moteseal-lab"));
    command
        .args(arguments)
        .current_dir(checkout)
        .env("MOTESEAL_DATA", "data/none")
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

const TELOSB: [&str; 5] = ["sampling", "--budget", "500", "--source", "telosb"];

#[test]
fn a_table_has_each_day_and_the_papers_numbers_beside_the_totals() {
    let said = stdout(&sim(&TELOSB));
    assert_eq!(said.lines().filter(|line| line.starts_with("2012-")).count(), 92);
    for part in [
        "2012-05-01      4,417",
        "1,057 of 2,572 events sent on 2012-05-01",
        "homes A and B cannot be had",
        "over budget on 0 days",
        "(8 days, repeated)",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    assert_eq!(said, stdout(&sim(&TELOSB)));
    assert_ne!(said, stdout(&sim(&[&TELOSB[..], &["--seed", "cafe"]].concat())));
}

#[test]
fn json_csv_and_plot_say_the_same() {
    let out = tempfile::tempdir().unwrap();
    let (csv, png) = (out.path().join("days.csv"), out.path().join("days.png"));
    let files =
        ["--format", "json", "--csv", csv.to_str().unwrap(), "--plot", png.to_str().unwrap()];
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&sim(&[&TELOSB[..], &files].concat()))).unwrap();
    let days = json["days"].as_array().unwrap();
    assert_eq!((days.len(), json["totals"]["days_over_budget"].as_u64()), (92, Some(0)));
    let mut rows = csv::Reader::from_path(&csv).unwrap();
    let column = rows.headers().unwrap().iter().position(|name| name == "kept").unwrap();
    let kept: Vec<u64> = rows.records().map(|row| row.unwrap()[column].parse().unwrap()).collect();
    assert_eq!(kept, days.iter().map(|day| day["kept"].as_u64().unwrap()).collect::<Vec<_>>());
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn what_is_wrong_is_said_in_a_line_with_the_way_out() {
    for (arguments, said) in [
        (
            &["sampling", "--budget", "500", "--source", "all"][..],
            "put it into umass_smartstar_homeC",
        ),
        (
            &["sampling", "--budget", "500", "--source", "house-a"],
            "put them into events_kasteren_mit",
        ),
        (&["sampling", "--budget", "500", "--source", "house-z"], "there are all, home-c, house-a"),
        (&["sampling", "--budget", "0", "--source", "telosb"], "0 is not in 1.."),
        (
            &["sampling", "--budget", "500", "--source", "telosb", "--seed", "xyz"],
            "up to 64 hexadecimal digits",
        ),
        (&["report", "--out", "data/none/report"], "DataAbsent"),
    ] {
        let output = sim(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said) && output.stdout.is_empty(), "{error}");
    }
}

#[test]
fn a_report_on_broadcasts_needs_no_recorded_data() {
    let out = tempfile::tempdir().unwrap();
    let said = stdout(&sim(&["broadcast", "--runs", "1", "--out", out.path().to_str().unwrap()]));
    assert_eq!(Path::new(said.trim()), out.path().join("README.md"));
    let index = std::fs::read_to_string(out.path().join("README.md")).unwrap();
    for part in ["S-1 S-2 1-2 1-3 2-3 2-4 3-4 3-5 4-5 4-6 5-6", "| SA10 |", "741"] {
        assert!(index.contains(part), "no {part:?} in\n{index}");
    }
    assert!(std::fs::read(out.path().join("fig6.png")).unwrap().starts_with(b"\x89PNG"));
}
