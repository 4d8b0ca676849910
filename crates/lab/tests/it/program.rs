//! Runs `moteseal-lab` as a user does: a table, JSON, files, and errors for missing data.

use std::path::Path;
use std::process::{Command, Output};

/// Runs `moteseal-lab` in the checkout, which has `data/telosb` and no other recorded data.
fn lab(arguments: &[&str]) -> Output {
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
fn the_table_has_every_day_and_the_papers_numbers() {
    let printed = stdout(&lab(&TELOSB));
    assert_eq!(printed.lines().filter(|line| line.starts_with("2012-")).count(), 92);
    for text in [
        "2012-05-01      4,417",
        "1,057 of 2,572 events sent on 2012-05-01",
        "homes A and B cannot be obtained",
        "over budget on 0 days",
        "(8 days, repeated)",
    ] {
        assert!(printed.contains(text), "no {text:?} in\n{printed}");
    }
    assert_eq!(printed, stdout(&lab(&TELOSB)));
    assert_ne!(printed, stdout(&lab(&[&TELOSB[..], &["--seed", "cafe"]].concat())));
}

#[test]
fn json_and_csv_agree_and_the_plot_is_a_png() {
    let out = tempfile::tempdir().unwrap();
    let (csv, png) = (out.path().join("days.csv"), out.path().join("days.png"));
    let files =
        ["--format", "json", "--csv", csv.to_str().unwrap(), "--plot", png.to_str().unwrap()];
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&lab(&[&TELOSB[..], &files].concat()))).unwrap();
    let days = json["days"].as_array().unwrap();
    assert_eq!((days.len(), json["totals"]["days_over_budget"].as_u64()), (92, Some(0)));
    let mut rows = csv::Reader::from_path(&csv).unwrap();
    let column = rows.headers().unwrap().iter().position(|name| name == "kept").unwrap();
    let kept: Vec<u64> = rows.records().map(|row| row.unwrap()[column].parse().unwrap()).collect();
    assert_eq!(kept, days.iter().map(|day| day["kept"].as_u64().unwrap()).collect::<Vec<_>>());
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn errors_exit_with_2_and_state_the_remedy() {
    for (arguments, message) in [
        (
            &["sampling", "--budget", "500", "--source", "all"][..],
            "put it into umass_smartstar_homeC",
        ),
        (
            &["sampling", "--budget", "500", "--source", "house-a"],
            "put them into events_kasteren_mit",
        ),
        (
            &["sampling", "--budget", "500", "--source", "house-z"],
            "valid sources: all, home-c, house-a",
        ),
        (&["sampling", "--budget", "0", "--source", "telosb"], "0 is not in 1.."),
        (
            &["sampling", "--budget", "500", "--source", "telosb", "--seed", "xyz"],
            "an even number of hexadecimal digits, at most 64",
        ),
        (&["report", "--out", "data/none/report"], "DataAbsent"),
    ] {
        let output = lab(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(message) && output.stdout.is_empty(), "{error}");
    }
}

#[test]
fn the_report_on_broadcast_needs_no_recorded_data() {
    let out = tempfile::tempdir().unwrap();
    let printed =
        stdout(&lab(&["broadcast", "--runs", "1", "--out", out.path().to_str().unwrap()]));
    assert_eq!(Path::new(printed.trim()), out.path().join("README.md"));
    let index = std::fs::read_to_string(out.path().join("README.md")).unwrap();
    for part in ["S-1 S-2 1-2 1-3 2-3 2-4 3-4 3-5 4-5 4-6 5-6", "| SA10 |", "741"] {
        assert!(index.contains(part), "no {part:?} in\n{index}");
    }
    assert!(std::fs::read(out.path().join("fig6.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn parts_of_the_study_of_latency_make_one_report() {
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/latency/study.json");
    let folder = tempfile::tempdir().unwrap();
    let study: serde_json::Value = serde_json::from_slice(&std::fs::read(&whole).unwrap()).unwrap();
    let part = |name: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let mut part = study.clone();
        change(&mut part);
        let path = folder.path().join(name);
        std::fs::write(&path, part.to_string()).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let keep = |part: &mut serde_json::Value, is_four: bool| {
        let wired = part["wired"].as_array_mut().unwrap();
        wired.retain(|run| (run["configuration"] == 4) == is_four);
        assert!(!wired.is_empty());
    };
    let four = part("four.json", &|part| keep(part, true));
    let grades = part("grades.json", &|part| {
        keep(part, false);
        part["wireless"] = serde_json::json!([]);
    });
    let longer = part("longer.json", &|part| {
        keep(part, false);
        part["wireless"] = serde_json::json!([]);
        part["seconds"] = 300.5.into();
    });
    let out = folder.path().join("report");
    let report = |from: &[&str]| {
        let arguments = ["latency", "--json", "--out", out.to_str().unwrap(), "--from"];
        lab(&[&arguments[..], from].concat())
    };
    let expected = stdout(&report(&[whole.to_str().unwrap()]));
    assert_eq!(stdout(&report(&[&four, &grades])), expected);
    assert_eq!(stdout(&report(&[&grades, &four])), expected, "in any order");
    for (second, message) in [
        (&four, "both executions have the wireless part"),
        (&longer, "of 300.5 s cannot be compared"),
    ] {
        let output = report(&[&four, second]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(message), "no {message:?} in {stderr}");
    }
    let output = report(&[&grades, &grades]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("have configuration 1"));
}

#[test]
fn a_missed_limit_of_the_study_of_latency_exits_with_1_after_the_results() {
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/latency/study.json");
    let folder = tempfile::tempdir().unwrap();
    let mut study: serde_json::Value =
        serde_json::from_slice(&std::fs::read(whole).unwrap()).unwrap();
    let runs = study["wired"].as_array_mut().unwrap();
    let is_slow = |run: &&mut serde_json::Value| {
        (run["configuration"] == 4, &run["message"], &run["rate"])
            == (true, &"short".into(), &"low".into())
    };
    runs.iter_mut().find(is_slow).unwrap()["total"]["p99"] = 61.25.into();
    let from = folder.path().join("slow.json");
    std::fs::write(&from, study.to_string()).unwrap();
    let out = folder.path().join("report");
    let index = out.join("README.md");
    let report = |more: &[&str]| {
        let from = ["latency", "--out", out.to_str().unwrap(), "--from", from.to_str().unwrap()];
        let output = lab(&[&from[..], more].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        for text in
            ["24 bytes: end-to-end latency", "61.25 exceeds 60", "the results miss 1 limit;"]
        {
            assert!(error.contains(text), "no {text:?} in {error}");
        }
        assert!(std::fs::read_to_string(&index).unwrap().contains("| MISS |"));
        std::fs::remove_dir_all(&out).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = report(&[]);
    assert!(printed.contains("MISS") && printed.ends_with("README.md\n"), "{printed}");
    let json: serde_json::Value = serde_json::from_str(&report(&["--json"])).unwrap();
    assert_eq!(json["wired"].as_array().map(Vec::len), study["wired"].as_array().map(Vec::len));
}
