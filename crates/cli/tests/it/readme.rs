//! Runs the commands of README.md: all `sh` blocks, in order, as a single script. Nothing is added
//! between the lines; `push` waits for the server that the script starts in the background.
//!
//! The shell starts in a folder that looks like a new clone after `cargo build --release`. Two
//! commands are not run: `make X` only checks that make can plan the target X, and `cargo build`
//! only checks that the package exists.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ADDRESS: &str = "127.0.0.1:8080";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// Returns the contents of all code blocks. Each of them must be marked `sh`.
fn blocks(markdown: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in markdown.lines() {
        match &mut open {
            None if line == "```sh" => open = Some(String::new()),
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some(block) => writeln!(block, "{line}").unwrap(),
            None => assert!(!line.contains("```"), "a block that is not run: {line}"),
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Joins all blocks into a single script.
fn script(blocks: &[String], port: u16) -> String {
    let manifest = root().join("Cargo.toml");
    let mut script = format!(
        "set -euo pipefail\n\
         trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n\
         make() {{ command make --dry-run \"$@\" >/dev/null; }}\n\
         cargo() {{ [[ \"$*\" == \"build --release -p $4\" ]] \\\n\
                    && '{}' pkgid --manifest-path '{}' -p \"$4\" >/dev/null; }}\n\
         set -x\n",
        env!("CARGO"),
        manifest.display()
    );
    for block in blocks {
        script.push_str(&block.replace(ADDRESS, &format!("127.0.0.1:{port}")));
    }
    script
}

#[test]
fn the_tour_works_as_written() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = blocks(&readme);
    assert!(
        blocks.iter().any(|block| block.contains(ADDRESS)),
        "the tour no longer has a cloud at {ADDRESS}"
    );

    let clone = tempfile::tempdir().unwrap();
    for name in ["data", "Makefile", "tools", "spec"] {
        symlink(root().join(name), clone.path().join(name)).unwrap();
    }
    std::fs::create_dir_all(clone.path().join("target/release")).unwrap();
    symlink(env!("CARGO_BIN_EXE_moteseal"), clone.path().join("target/release/moteseal")).unwrap();

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = Command::new("bash")
        .args(["-c", &script(&blocks, port)])
        .current_dir(clone.path())
        .env("HOME", clone.path())
        .env_remove("XDG_STATE_HOME")
        .env_remove("XDG_DATA_HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}:\n{}\n{stderr}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );

    let stdout = String::from_utf8_lossy(&output.stdout);
    for line in [
        "tour/eighth.mproof: verified, 1/8 of dev1, dev2, everything sealed so far",
        "tour/epochs.redb: whole; 14 seals, 8,834 readings,",
    ] {
        assert!(stdout.contains(line), "{line:?} is not in\n{stdout}");
    }
    let tour = |name: &str| std::fs::read_to_string(clone.path().join("tour").join(name)).unwrap();
    let recorded = ["dev1", "dev2"].map(|device| (device, recorded(device)));
    let recorded: BTreeMap<&str, Hours> = recorded.into_iter().collect();

    let eighth = rows(&tour("eighth.csv"));
    // The expected number is an eighth of 4,417 readings of each device. Levels are random, so allow
    // six standard deviations.
    for device in ["dev1", "dev2"] {
        let rows = eighth.keys().filter(|row| row.0 == device).count();
        assert!((420..=684).contains(&rows), "{rows} rows of {device}");
    }
    assert_recorded(&eighth, &recorded);

    let hundred: String = tour("hundred.jsonl")
        .lines()
        .map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let of = |name: &str| row[name].to_string().replace('"', "");
            let names =
                ["epoch", "epoch_start", "device", "index", "seq", "temperature", "humidity"];
            names.map(of).join(",") + "\n"
        })
        .collect();
    let hundred = rows(&format!("{HEADER}\n{hundred}"));
    for (hour, readings) in &recorded["dev2"] {
        let rows = hundred.keys().filter(|row| row.0 == "dev2" && row.1 == *hour).count();
        assert_eq!(rows, readings.len().min(100), "the rows of {hour}");
    }
    assert_recorded(&hundred, &recorded);

    let one = rows(&tour("one.csv"));
    assert_eq!(one.keys().collect::<Vec<_>>(), [&("dev2".to_owned(), START.to_owned(), 7)]);
    assert_recorded(&one, &recorded);
}

const HEADER: &str = "epoch,epoch_start,device,index,seq,temperature,humidity";
/// The first hour of the recordings.
const START: &str = "2010-05-09T09:00:00Z";

/// The temperatures and humidities of a recording, in order, by the start of the hour.
type Hours = BTreeMap<String, Vec<(f64, f64)>>;

/// Reads a recording that the tour seals.
fn recorded(device: &str) -> Hours {
    let path = root().join(format!("data/examples/{device}.csv"));
    let mut hours = Hours::new();
    for row in csv::Reader::from_path(path).unwrap().records() {
        let row = row.unwrap();
        let hour = format!("{}:00:00Z", row[0].split(':').next().unwrap());
        let reading = (row[1].parse().unwrap(), row[2].parse().unwrap());
        hours.entry(hour).or_default().push(reading);
    }
    assert_eq!(hours.values().map(Vec::len).sum::<usize>(), 4417);
    hours
}

/// Reads a table that `get` has written: the temperature and the humidity by device, hour and place
/// in the hour. Asserts that no row is repeated.
fn rows(table: &str) -> BTreeMap<(String, String, usize), (f64, f64)> {
    assert_eq!(table.lines().next(), Some(HEADER));
    let mut rows = BTreeMap::new();
    for row in csv::Reader::from_reader(table.as_bytes()).records() {
        let row = row.unwrap();
        let place = (row[2].to_owned(), row[1].to_owned(), row[4].parse().unwrap());
        let reading = (row[5].parse().unwrap(), row[6].parse().unwrap());
        assert_eq!(rows.insert(place, reading), None, "{row:?} is repeated");
    }
    rows
}

/// Asserts that each row has the reading that was recorded at its place.
fn assert_recorded(
    rows: &BTreeMap<(String, String, usize), (f64, f64)>,
    recorded: &BTreeMap<&str, Hours>,
) {
    for ((device, hour, place), reading) in rows {
        let expected = &recorded[device.as_str()][hour][*place];
        assert_eq!(reading, expected, "reading {place} of {device} in {hour}");
    }
}

#[test]
fn a_failing_command_in_the_tour_is_detected() {
    let status = |block: &str| {
        Command::new("bash").args(["-c", &script(&[block.into()], 1)]).output().unwrap().status
    };
    assert!(status("true\n").success());
    assert!(!status("false\ntrue\n").success());
    assert!(!status("make no-such-target\n").success());
    assert!(status("cargo build --release -p moteseal\n").success());
    for command in ["build --release -p no-such-package", "biuld --release -p moteseal", "build"] {
        assert!(!status(&format!("cargo {command}\n")).success(), "cargo {command}");
    }
}
