//! Tests that a sender that was killed goes on with its chain, and when it does not.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::broadcasting::{LONG, Network, image, text};

/// 80 messages of 1,024 bytes in 20 blocks.
const FILE: usize = 80 << 10;
const QUICK: &[&str] = &["--linger", "0", "--json", "--without-receivers"];

/// Returns the files of unfinished chains.
fn unfinished(network: &Network) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(network.path("keys/ops.chains.unfinished")) else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Starts to send `image` and kills the process with SIGKILL after some blocks. Returns the number
/// of the chain.
fn killed(network: &Network, more: &[&str]) -> u64 {
    let before = unfinished(network);
    let mut process = begun(network, more);
    let start = Instant::now();
    let path = loop {
        let sent = |path: &PathBuf| {
            let content = fs::read(path).unwrap_or_default();
            content.first_chunk().is_some_and(|blocks| u32::from_be_bytes(*blocks) >= 5)
        };
        if let Some(path) =
            unfinished(network).into_iter().find(|path| !before.contains(path) && sent(path))
        {
            break path;
        }
        assert!(start.elapsed() < LONG, "no block was sent");
        assert!(process.try_wait().unwrap().is_none(), "the sender has ended");
        std::thread::sleep(Duration::from_millis(5));
    };
    process.kill().unwrap();
    process.wait().unwrap();
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

fn begun(network: &Network, more: &[&str]) -> Child {
    let arguments = [&["image", "--message", "1024", "--block", "4"], QUICK, more].concat();
    let mut command = network.send(&network.url(""), &arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end of a send, and returns what it prints about its chain.
fn sent(process: Child) -> Value {
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_str(text(&output.stdout).lines().next().unwrap()).unwrap()
}

#[test]
fn a_killed_send_goes_on_with_its_chain_and_the_receiver_saves_the_file_once() {
    let network = Network::new();
    let content = image(FILE);
    fs::write(network.path("image"), &content).unwrap();
    let watcher = network.watch("w", &[&network.url("")], &[]);
    let number = killed(&network, &[]);
    assert_eq!(watcher.until("begun")["chain"], number);
    let report = sent(begun(&network, &[]));
    assert_eq!(report["chain"], number);
    let bytes = report["sent_bytes"].as_u64().unwrap();
    assert!(bytes < FILE as u64, "the sent blocks were sent again: {bytes}");
    assert_eq!(watcher.until("complete")["chain"], number);
    assert_eq!(network.saved("w", "image"), content);
    assert!(unfinished(&network).is_empty(), "the chain is finished");

    // The same command again sends a new chain.
    let next = sent(begun(&network, &[]));
    assert_eq!(next["chain"], number + 1);
    let events = [watcher.until("begun"), watcher.until("complete")];
    assert!(events.iter().all(|event| event["chain"] == number + 1), "{events:?}");
}

#[test]
fn a_chain_with_other_content_or_terms_or_in_progress_is_not_resumed() {
    let network = Network::new();
    fs::write(network.path("image"), image(FILE)).unwrap();
    let number = killed(&network, &["--valid", "1h"]);
    // Two processes at once: the second one takes another number.
    let (first, second) =
        (begun(&network, &["--valid", "1h"]), begun(&network, &["--valid", "1h"]));
    let mut numbers = [first, second].map(|process| sent(process)["chain"].as_u64().unwrap());
    numbers.sort_unstable();
    assert_eq!(numbers, [number, number + 1]);

    let number = killed(&network, &["--valid", "1h"]);
    for (more, name) in [
        (&["--valid", "2h"][..], "other terms"),
        (&["--valid", "1h", "--label", "other"], "another label"),
        (&["--valid", "1h", "--resume", "never"], "not wanted"),
    ] {
        assert!(sent(begun(&network, more))["chain"].as_u64().unwrap() > number, "{name}");
    }

    let number = killed(&network, &[]);
    let mut changed = image(FILE);
    changed[FILE - 1] ^= 1;
    fs::write(network.path("image"), changed).unwrap();
    assert_eq!(sent(begun(&network, &[]))["chain"], number + 1, "changed content");

    // A chain whose end has passed is not resumed.
    let number = killed(&network, &["--valid", "2s"]);
    std::thread::sleep(Duration::from_millis(2_100));
    assert_eq!(sent(begun(&network, &["--valid", "2s"]))["chain"], number + 1, "ended");
}

#[test]
fn an_old_record_of_a_chain_is_not_resumed_after_later_chains() {
    let network = Network::new();
    fs::write(network.path("image"), image(FILE)).unwrap();
    let number = killed(&network, &[]);
    let [path] = &unfinished(&network)[..] else { panic!("one chain is unfinished") };
    let backup = fs::read(path).unwrap();
    assert_eq!(sent(begun(&network, &[]))["chain"], number);
    // A restored record is resumed while no later chain was begun: receivers know the head.
    fs::write(path, &backup).unwrap();
    assert_eq!(sent(begun(&network, &[]))["chain"], number);
    assert_eq!(sent(begun(&network, &[]))["chain"], number + 1);
    fs::write(path, &backup).unwrap();
    assert_eq!(sent(begun(&network, &[]))["chain"], number + 2);
    // An incomplete record, or one with a wrong signature, is removed.
    let mut forged = backup.clone();
    *forged.last_mut().unwrap() ^= 1;
    for content in [&backup[..40], &[], &forged[..]] {
        fs::write(path, content).unwrap();
        let chain = sent(begun(&network, &[]))["chain"].as_u64().unwrap();
        assert!(chain > number + 2);
        assert!(!path.exists());
    }
}

#[test]
fn lines_are_resumed_on_request() {
    let network = Network::new();
    let lines: Vec<String> = (0..40).map(|line| format!("line {line}\n")).collect();
    fs::write(network.path("lines"), lines.concat()).unwrap();
    let start = |more: &[&str]| {
        let arguments = [&["--lines", "lines"], QUICK, more].concat();
        let mut command = network.send(&network.url(""), &arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let kill = || {
        let mut process = start(&[]);
        let begin = Instant::now();
        // An empty file is a chain that is not begun yet.
        let is_begun = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() > 0);
        while !unfinished(&network).iter().any(is_begun) {
            assert!(begin.elapsed() < LONG, "no chain was begun");
            assert!(process.try_wait().unwrap().is_none(), "the sender has ended");
            std::thread::sleep(Duration::from_millis(2));
        }
        process.kill().unwrap();
        process.wait().unwrap();
        let [path] = &unfinished(&network)[..] else { panic!("one chain is unfinished") };
        path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap()
    };
    let number = kill();
    assert_eq!(sent(start(&["--resume", "always"]))["chain"], number);
    let number = kill();
    assert_eq!(sent(start(&[]))["chain"], number + 1);
}
