//! Runs the commands of README.md: all `sh` blocks, in order, as a single script. Nothing is added
//! between the lines; `push` waits for the server that the script starts in the background.
//!
//! The shell starts in a folder that looks like a new clone after `cargo build --release`. Two
//! commands are not run: `make X` only checks that make can plan the target X, and `cargo` does
//! nothing.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ADDRESS: &str = "127.0.0.1:8080";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// Returns the contents of all code blocks marked `sh`.
fn blocks(markdown: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in markdown.lines() {
        match &mut open {
            None if line == "```sh" => open = Some(String::new()),
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some(block) => writeln!(block, "{line}").unwrap(),
            None => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Joins all blocks into a single script.
fn script(blocks: &[String], port: u16) -> String {
    let mut script = String::from(
        "set -euo pipefail\n\
         trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n\
         make() { command make --dry-run \"$@\" >/dev/null; }\n\
         cargo() { :; }\n\
         set -x\n",
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

    let eighth = std::fs::read_to_string(clone.path().join("tour/eighth.csv")).unwrap();
    let header = eighth.lines().next().unwrap();
    assert!(header.contains("temperature") && header.contains("humidity"), "{header}");
    // The expected number is an eighth of 8,834 readings. Levels are random, so allow six standard
    // deviations.
    let rows = eighth.lines().count() - 1;
    assert!((917..=1292).contains(&rows), "{rows} rows");
    let hundred = std::fs::read_to_string(clone.path().join("tour/hundred.jsonl")).unwrap();
    assert!(hundred.lines().count() >= 600, "{} rows of 7 epochs", hundred.lines().count());
}

#[test]
fn a_failing_command_in_the_tour_is_detected() {
    let status = |block: &str| {
        Command::new("bash").args(["-c", &script(&[block.into()], 1)]).output().unwrap().status
    };
    assert!(status("true\n").success());
    assert!(!status("false\ntrue\n").success());
    assert!(!status("make no-such-target\n").success());
}
