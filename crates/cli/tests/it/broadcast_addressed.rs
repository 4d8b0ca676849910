//! Broadcasts for named receivers: only these can read them, and `send` waits only for these.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::broadcasting::{LONG, Network, Watcher, image, text};

const NAMES: [&str; 3] = ["valve-1", "valve-2", "valve-3"];
const LIST: [&str; 2] = ["--list", "keys/ops.receivers"];

fn network() -> Network {
    let network = Network::new();
    network.done(&[&["broadcast", "receivers", "init", "--cert", "ops.cert"][..], &LIST].concat());
    let add = ["broadcast", "receivers", "add", "--out", "receivers"];
    network.done(&[&add[..], &LIST, &NAMES].concat());
    network
}

fn watch(network: &Network, name: &str) -> Watcher {
    let key = format!("receivers/{name}.receiver.key");
    network.watch(name, &[&network.url("")], &["--receiver-key", &key])
}

fn lines(stdout: &[u8]) -> Vec<Value> {
    text(stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns whether a file below a folder contains these bytes.
fn contains(folder: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return contains(&path, bytes);
        }
        fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn only_named_receivers_read_a_command_and_send_waits_only_for_them() {
    let network = network();
    let watchers = NAMES.map(|name| watch(&network, name));
    let secret = "open the secret valve";
    let output = network.send_line(
        secret,
        &[
            "--json",
            "--only",
            "valve-1,valve-3",
            "--kind",
            "command",
            "--topic",
            "hidden topic",
            "--valid",
            "10m",
            "--wait-for",
            "100%",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = lines(&output.stdout);
    assert_eq!((&printed[0]["messages"], &printed[0]["receivers"]), (&1.into(), &2.into()));
    assert_eq!(
        (&printed[1]["acknowledged"], &printed[1]["expected"]),
        (&2.into(), &2.into()),
        "{printed:?}"
    );
    for watcher in [&watchers[0], &watchers[2]] {
        let message = watcher.until("message");
        assert_eq!(message["text"], secret);
        assert_eq!((&message["label"], &message["of"]), (&"hidden topic".into(), &1.into()));
    }
    let withheld = watchers[1].until("withheld");
    assert_eq!(withheld["name"], "NotAddressed");
    let rest = watchers[1].rest();
    assert!(rest.iter().all(|event| event["event"] != "message"), "{rest:?}");
    for bytes in [secret.as_bytes(), b"hidden topic", b"valve-1"] {
        let state = network.path("valve-2.state");
        assert!(!contains(&state, bytes), "{:?} is in clear", text(bytes));
    }
}

/// Returns the files of unfinished chains.
fn unfinished(network: &Network) -> Vec<PathBuf> {
    let entries = fs::read_dir(network.path("keys/ops.chains.unfinished"));
    entries.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn send_image(network: &Network, more: &[&str]) -> std::process::Child {
    let quick = ["image", "--message", "1024", "--block", "4", "--linger", "0.5", "--json"];
    let mut command = network.send(&network.url(""), &[&quick, more].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A file for a group goes on after the sender was killed, with the same key, and the receivers get
/// it once. Other receivers of the group make another chain.
#[test]
fn a_file_for_a_group_is_resumed_after_a_kill_and_saved_by_its_members() {
    let network = network();
    let group = ["broadcast", "receivers", "group", "north", "valve-1", "valve-2"];
    network.done(&[&group[..], &LIST].concat());
    let content = image(80 << 10);
    fs::write(network.path("image"), &content).unwrap();
    let watchers = NAMES.map(|name| watch(&network, name));
    let only = ["--only", "north"];
    let mut process = send_image(&network, &only);
    let start = Instant::now();
    let number = loop {
        let sent = |path: &PathBuf| {
            let content = fs::read(path).unwrap_or_default();
            content.first_chunk().is_some_and(|blocks| u32::from_be_bytes(*blocks) >= 5)
        };
        if let Some(path) = unfinished(&network).into_iter().find(sent) {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "the file has the key of the content");
            break path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
        }
        assert!(start.elapsed() < LONG, "no block was sent");
        std::thread::sleep(Duration::from_millis(5));
    };
    process.kill().unwrap();
    process.wait().unwrap();

    let output = send_image(&network, &[&only[..], &["--wait-for", "100%"]].concat());
    let output = output.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = lines(&output.stdout);
    assert_eq!(printed[0]["chain"], number, "the chain goes on");
    assert_eq!(printed[1]["acknowledged"], 2);
    for (watcher, name) in watchers.iter().zip(&NAMES[..2]) {
        let complete = watcher.until("complete");
        assert_eq!((&complete["chain"], &complete["label"]), (&number.into(), &"image".into()));
        assert_eq!(network.saved(name, "image"), content);
    }
    assert!(!network.path("valve-3.saved").join("image").exists());
    assert!(unfinished(&network).is_empty(), "the key of the content is removed");

    // Another set of receivers is another chain.
    let output = send_image(&network, &["--only", "valve-3", "--wait-for", "1"]);
    let output = output.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lines(&output.stdout)[0]["chain"], number + 1);
    watchers[2].until("complete");
    assert_eq!(network.saved("valve-3", "image"), content);
}

#[test]
fn live_lines_for_named_receivers_are_in_one_frame_each() {
    let network = network();
    let watchers = ["valve-1", "valve-2"].map(|name| watch(&network, name));
    let output = network.send_line("live secret", &["--live", "--only", "valve-2", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = &lines(&output.stdout)[0];
    assert_eq!((&report["messages"], &report["blocks"]), (&1.into(), &1.into()));
    assert_eq!(watchers[1].until("message")["text"], "live secret");
    assert_eq!(watchers[0].until("withheld")["name"], "NotAddressed");
}

#[test]
fn evidence_of_an_encrypted_chain_is_read_with_the_key_of_a_receiver() {
    let network = network();
    let key = ["--receiver-key", "receivers/valve-1.receiver.key"];
    let url = network.url("");
    let more = [&key[..], &["--evidence", "evidence"]].concat();
    let watcher = network.watch("valve-1", &[&url], &more);
    let output = network.send_line("prove this", &["--only", "valve-1", "--label", "notes"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let evidence = watcher.until("complete")["evidence"].as_str().unwrap().to_owned();
    let verify = ["broadcast", "verify", &evidence, "--ca", "keys/base.pub.pem"];
    let output = network.run(&verify);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains("prove this"));
    assert!(text(&output.stderr).contains("encrypted"), "{}", text(&output.stderr));
    let output = network.run(&[&verify[..], &key].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "0  prove this\n");
    assert!(text(&output.stderr).contains("notes"), "{}", text(&output.stderr));
    let other = ["--receiver-key", "receivers/valve-2.receiver.key"];
    let output = network.run(&[&verify[..], &other].concat());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("NotAddressed"), "{}", text(&output.stderr));

    // Nothing is written without the key, and the key of another sender is named.
    let output = network.run(&[&verify[..], &["--out", "shown"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--out needs --receiver-key"));
    assert!(!network.path("shown").exists());
    network.done(&[&verify[..], &key, &["--out", "shown"]].concat());
    assert_eq!(fs::read(network.path("shown")).unwrap(), b"prove this");
    let of_other = fs::read_to_string(network.path("receivers/valve-1.receiver.key")).unwrap();
    let sender = of_other.lines().find_map(|line| line.strip_prefix("sender ")).unwrap();
    let of_other = of_other.replace(sender, "0011223344556677");
    fs::write(network.path("other.receiver.key"), of_other).unwrap();
    let output = network.run(&[&verify[..], &["--receiver-key", "other.receiver.key"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("NoReceiverKey"), "{}", text(&output.stderr));
}

#[test]
fn wrong_receivers_and_groups_are_refused() {
    let network = network();
    fs::write(network.path("line"), "open\n").unwrap();
    fs::write(network.path("empty"), "").unwrap();
    let url = network.url("");
    let to = ["--to", &url, "--lines", "line"];
    let send = ["broadcast", "send", "--key", "keys/ops.key.pem", "--cert", "ops.cert"];
    let receivers = ["broadcast", "receivers"];
    for (arguments, expected) in [
        ([&send[..], &to, &["--only", "valve-9"]].concat(), "UnknownReceiver"),
        ([&send[..], &to, &["--only", "valve-1", "--for", "valve-1"]].concat(), "cannot be used"),
        ([&send[..], &to[..2], &["--only", "valve-1", "empty"]].concat(), "NothingToSay"),
        ([&send[..], &to, &["--only", "valve-1", "--wait-for", "2"]].concat(), "only 1"),
        ([&receivers[..], &["group", "valve-1", "valve-2"], &LIST].concat(), "NameUsed"),
        ([&receivers[..], &["group", "north", "valve-9"], &LIST].concat(), "UnknownReceiver"),
        ([&receivers[..], &["group", "a/b", "valve-1"], &LIST].concat(), "BadReceiverName"),
        ([&receivers[..], &["group", "north"], &LIST].concat(), "UnknownReceiver"),
    ] {
        let output = network.run(&arguments);
        let shown = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {shown}");
        assert!(shown.contains(expected), "{arguments:?}: {shown}");
    }
    network.done(&[&receivers[..], &["group", "north", "valve-2", "valve-1"], &LIST].concat());
    let output = network.done(&[&receivers[..], &["list"], &LIST].concat());
    assert!(text(&output.stdout).ends_with("group  north: valve-1, valve-2\n"));
    fs::remove_file(network.path("keys/ops.receivers")).unwrap();
    let output = network.run(&[&send[..], &to, &["--only", "valve-1"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("list of receivers"), "{}", text(&output.stderr));
}
