//! Receivers acknowledge broadcasts over a real link, and `send` reports who has not.

use std::fs;
use std::process::Child;

use serde_json::Value;

use crate::broadcasting::{GROUP, Network, image, text};

const NAMES: [&str; 3] = ["valve-1", "valve-2", "valve-3"];

/// Returns a network whose sender has a list with three receivers.
fn network() -> Network {
    let network = Network::new();
    let list = ["--list", "keys/ops.receivers"];
    network.done(&[&["broadcast", "receivers", "init", "--cert", "ops.cert"][..], &list].concat());
    let add = ["broadcast", "receivers", "add", "--out", "receivers"];
    network.done(&[&add[..], &list, &NAMES].concat());
    network
}

fn key(name: &str) -> String {
    format!("receivers/{name}.receiver.key")
}

/// Returns the lines of JSON that a command has printed.
fn lines(stdout: &[u8]) -> Vec<Value> {
    text(stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the line with the receipts.
#[track_caller]
fn receipts(lines: &[Value]) -> &Value {
    lines.iter().find(|line| line.get("acknowledged").is_some()).unwrap_or_else(|| {
        panic!("{lines:?}");
    })
}

fn start(network: &Network, line: &str, more: &[&str]) -> Child {
    network.start_line(line, &[&["--json"], more].concat())
}

#[test]
fn send_waits_for_receipts_and_names_who_is_missing_or_has_a_wrong_key() {
    let network = network();
    let url = network.url("");
    let wrong = fs::read_to_string(network.path(&key("valve-3"))).unwrap();
    let place = wrong.find("\nkey ").unwrap() + 5;
    let digit = if wrong.as_bytes()[place] == b'0' { "1" } else { "0" };
    let wrong = format!("{}{digit}{}", &wrong[..place], &wrong[place + 1..]);
    fs::write(network.path("wrong.key"), wrong).unwrap();
    let keys = [key("valve-1"), key("valve-2"), "wrong.key".to_owned()];
    let _watchers: Vec<_> = NAMES
        .iter()
        .zip(&keys)
        .map(|(name, key)| network.watch(name, &[&url], &["--receiver-key", key]))
        .collect();

    let output = start(&network, "all", &["--wait-for", "100%", "--timeout", "5"]);
    let output = output.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    let printed = lines(&output.stdout);
    let found = receipts(&printed);
    assert_eq!((&found["acknowledged"], &found["expected"]), (&2.into(), &3.into()));
    assert_eq!(found["missing"], serde_json::json!(["valve-3"]));
    assert_eq!(found["failing"], serde_json::json!(["valve-3"]));
    assert!(found["receipt_bytes"].as_u64().unwrap() > 60);
    assert_eq!(printed.last().unwrap()["error"]["name"], "NotAcknowledged");

    for more in [
        &["--wait-for", "60%"][..],
        &["--wait-for", "2"],
        &["--wait-for", "100%", "--for", "valve-1,valve-2"],
    ] {
        let output = start(&network, "some", more).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{more:?}: {}", text(&output.stderr));
        let printed = lines(&output.stdout);
        assert_eq!(receipts(&printed)["acknowledged"], 2);
    }
    // Without --json and --wait-for, the command reports what it knows.
    let output = network.send_line("report", &[]);
    assert!(output.status.success());
    let shown = text(&output.stderr);
    assert!(shown.contains("acknowledged by 2 of 3 receivers; missing: valve-3"), "{shown}");
    assert!(shown.contains("receipts that fail: valve-3"), "{shown}");
}

/// One watcher joins while the sender waits, one is killed and continues, and a command that
/// receivers hold until its begin is acknowledged, too.
#[test]
fn late_and_restarted_receivers_acknowledge_while_the_sender_waits() {
    let network = network();
    let url = network.url("");
    let watch = |name: &str| network.watch(name, &[&url], &["--receiver-key", &key(name)]);
    let (_first, second) = (watch("valve-1"), watch("valve-2"));
    let command = ["--kind", "command", "--topic", "valve", "--valid", "10m"];
    let waits = ["--wait-for", "100%", "--timeout", "60"];
    let begin = ["--not-before", "2099-01-01T00:00:00Z"];
    let sending = start(&network, "open", &[&command[..], &waits, &begin].concat());
    second.until("withheld");
    second.kill();
    let (_second, _third) = (watch("valve-2"), watch("valve-3"));
    let output = sending.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(receipts(&lines(&output.stdout))["acknowledged"], 3);
}

#[test]
fn a_relay_passes_receipts_from_one_link_to_the_other() {
    let network = network();
    let (near, far) = (
        network.url(""),
        format!("udp://{GROUP}:{}?interface=127.0.0.1", {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.local_addr().unwrap().port()
        }),
    );
    let watch =
        |name: &str, urls: &[&str]| network.watch(name, urls, &["--receiver-key", &key(name)]);
    let _relay = watch("valve-1", &[&near, &far]);
    let _others = [watch("valve-2", &[&far]), watch("valve-3", &[&far])];
    fs::write(network.path("image"), image(40_000)).unwrap();
    let more = ["image", "--wait-for", "100%", "--timeout", "60", "--json"];
    let output = network.send(&near, &more).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(receipts(&lines(&output.stdout))["acknowledged"], 3);
}

#[test]
fn the_list_and_the_keys_are_private_and_names_are_never_used_again() {
    use std::os::unix::fs::PermissionsExt as _;
    let network = network();
    for file in ["keys/ops.receivers".to_owned(), key("valve-1")] {
        let mode = fs::metadata(network.path(&file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let list = ["--list", "keys/ops.receivers"];
    let run = |more: &[&str]| {
        let arguments = [&["broadcast", "receivers"], more, &list].concat();
        let output = network.run(&arguments);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, shown) = run(&["remove", "valve-2"]);
    assert_eq!(code, Some(0), "{shown}");
    let (_, printed, _) = run(&["list"]);
    assert_eq!(printed, "    0  valve-1\n    1  valve-2  removed\n    2  valve-3\n");
    fs::remove_file(network.path(&key("valve-2"))).unwrap();
    for (more, expected) in [
        (&["add", "valve-2", "--out", "receivers"][..], "NameUsed"),
        (&["add", "a/b", "--out", "receivers"], "BadReceiverName"),
        (&["add", "valve-1", "--out", "receivers"], "already exists"),
        (&["key", "valve-2", "--out", "again"], "UnknownReceiver"),
        (&["remove", "valve-2"], "UnknownReceiver"),
        (&["init", "--cert", "ops.cert"], "already exists"),
    ] {
        let (code, _, shown) = run(more);
        assert_eq!(code, Some(2), "{more:?}: {shown}");
        assert!(shown.contains(expected), "{more:?}: {shown}");
    }
    // The key of a receiver can be written again.
    let (code, _, shown) = run(&["key", "valve-3", "--out", "again"]);
    assert_eq!(code, Some(0), "{shown}");
    let read = |path: &str| fs::read(network.path(path)).unwrap();
    assert_eq!(read("again/valve-3.receiver.key"), read(&key("valve-3")));
    let mode = fs::metadata(network.path("keys/ops.receivers")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "also after a change");
}

#[test]
fn wrong_lists_keys_and_numbers_are_refused() {
    let network = network();
    let watch = ["broadcast", "watch", "--ca", "keys/base.pub.pem", "--state", "state"];
    let url = network.url("");
    fs::write(network.path("line"), "open\n").unwrap();
    let send = ["broadcast", "send", "--key", "keys/ops.key.pem", "--cert", "ops.cert"];
    let (valve, list) = (key("valve-1"), "keys/ops.receivers");
    let network_of = ["--network", "0123456789abcdef"];
    for (arguments, expected) in [
        ([&watch[..], &["--on", &url, "--receiver-key", list]].concat(), "NotAReceiverKey"),
        (
            [&watch[..], &["--on", &url, "--receiver-key", &valve, "--receiver-key", &valve]]
                .concat(),
            "same sender",
        ),
        (
            [&watch[..], &network_of, &["--on", &url, "--receiver-key", &valve]].concat(),
            "WrongNetwork",
        ),
        ([&send[..], &["--to", &url, "--lines", "line", "--wait-for", "4"]].concat(), "only 3"),
        (
            [&send[..], &["--to", &url, "--lines", "line", "--for", "valve-9"]].concat(),
            "UnknownReceiver",
        ),
        (
            [&send[..], &["--to", &url, "--lines", "line", "--receivers", &valve]].concat(),
            "NotAReceiverList",
        ),
    ] {
        let output = network.run(&arguments);
        let shown = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {shown}");
        assert!(shown.contains(expected), "{arguments:?}: {shown}");
    }
    // A list of another sender.
    let other = fs::read_to_string(network.path(list)).unwrap();
    let at = other.find("sender ").unwrap() + 7;
    fs::write(
        network.path("other"),
        format!("{}{}{}", &other[..at], "0".repeat(16), &other[at + 16..]),
    )
    .unwrap();
    let arguments =
        [&send[..], &["--to", &url, "--lines", "line", "--receivers", "other"]].concat();
    let output = network.run(&arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("OtherSender"), "{}", text(&output.stderr));
    // Without a list, there is nothing to wait for.
    fs::remove_file(network.path(list)).unwrap();
    let arguments = [&send[..], &["--to", &url, "--lines", "line", "--wait-for", "1"]].concat();
    let output = network.run(&arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("need a list of receivers"));
}
