//! Forged and invalid broadcasts, and invalid arguments. Each is reported, and no part of a
//! broadcast is delivered.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Output, Stdio};

use crate::broadcasting::{Network, Watcher, image, text};
use moteseal_broadcast::sender_named;
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_core::cbor::Writer;
use moteseal_store::Journal;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

/// Sends a line that no receiver needs to answer.
fn try_send_line(network: &Network, line: &str, more: &[&str]) -> Output {
    network.send_line(line, &[&["--without-receivers"], more].concat())
}

#[track_caller]
fn send_line(network: &Network, line: &str, more: &[&str]) {
    let output = try_send_line(network, line, more);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Sends a frame to the group.
fn put(network: &Network, frame: &BroadcastFrame<'_>) {
    let mut buffer = vec![0; MAX_BROADCAST_FRAME];
    let mut writer = Writer::new(&mut buffer);
    frame.encode(&mut writer).unwrap();
    raw(network, writer.finish());
}

fn raw(network: &Network, frame: &[u8]) {
    let socket = socket2::Socket::from(UdpSocket::bind("127.0.0.1:0").unwrap());
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    UdpSocket::from(socket).send_to(frame, ("239.83.7.2", network.port)).unwrap();
}

/// Waits for a refusal with this name and asserts that nothing was delivered before it.
#[track_caller]
fn refuses(watcher: &Watcher, name: &str) {
    let event = watcher.find(|event| {
        event["event"] == "message" || event["event"] == "complete" || event["name"] == name
    });
    assert_eq!(event["name"], name, "{event}");
}

fn end(watcher: Watcher) -> i32 {
    let code = watcher.ended();
    assert_ne!(code, 0);
    code
}

#[test]
fn an_invalid_certificate_is_reported_and_nothing_is_delivered() {
    let network = Network::new();
    let watcher = network.watch("w", &[&network.url("")], &["--chains", "1", "--wait", "20"]);
    // A certificate for the network of another base station.
    network.certify("other", 1, &[], "foreign.cert");
    send_line(&network, "one", &["--cert", "foreign.cert"]);
    refuses(&watcher, "WrongNetwork");
    let expired = ["--not-before", "2020-01-01T00:00:00Z", "--not-after", "2020-02-01T00:00:00Z"];
    network.certify("base", 6, &expired, "expired.cert");
    let refused = try_send_line(&network, "two", &["--cert", "expired.cert"]);
    assert_eq!(refused.status.code(), Some(REFUSED));
    assert!(text(&refused.stderr).contains("Expired"), "{}", text(&refused.stderr));
    // Another sender could send the expired certificate nevertheless.
    put(&network, &BroadcastFrame::Certificate(&fs::read(network.path("expired.cert")).unwrap()));
    refuses(&watcher, "Expired");
    assert_eq!(end(watcher), REFUSED);
}

#[test]
fn refuses_a_revoked_certificate_by_file_and_by_broadcast() {
    let network = Network::new();
    network.done(&[
        "key",
        "revoke",
        "--ca",
        "keys/base.key.pem",
        "--min-serial",
        "8",
        "--out",
        "base.revocation",
    ]);
    let informed =
        network.watch("informed", &[&network.url("")], &["--revocations", "base.revocation"]);
    let uninformed = network.watch("uninformed", &[&network.url("")], &[]);
    // The watcher with the revocation refuses the certificate and broadcasts the revocation.
    send_line(&network, "one", &[]);
    refuses(&informed, "Revoked");
    assert_eq!(uninformed.until("revoked")["min_serial"], 8);
    send_line(&network, "two", &[]);
    refuses(&uninformed, "Revoked");
    uninformed.kill();
    let again = network.watch("uninformed", &[&network.url("")], &[]);
    send_line(&network, "three", &[]);
    refuses(&again, "Revoked");
    network.certify("base", 8, &[], "new.cert");
    send_line(&network, "four", &["--cert", "new.cert"]);
    let message = again.until("message");
    assert_eq!(message["text"], "four");

    // The state of the watcher has the sender, its newest chain and the revocation.
    let list = [
        "broadcast",
        "certificates",
        "--ca",
        "keys/base.pub.pem",
        "--state",
        "uninformed.state",
        "--json",
    ];
    assert!(!network.run(&list).status.success(), "the watcher runs");
    again.kill();
    let printed = text(&network.done(&list).stdout);
    let lines: Vec<serde_json::Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [sender, base] = &lines[..] else { panic!("{printed}") };
    assert_eq!((&sender["serial"], &sender["status"]), (&8.into(), &"Valid".into()));
    assert_eq!(sender["newest_chain"], message["chain"]);
    assert_eq!((&base["min_serial"], &base["serials"]), (&8.into(), &serde_json::json!([])));
}

#[test]
fn any_receiver_of_a_revocation_broadcasts_it() {
    let network = Network::new();
    network.done(&[
        "key",
        "revoke",
        "--ca",
        "keys/base.key.pem",
        "--min-serial",
        "9",
        "--out",
        "base.revocation",
    ]);
    let watcher = network.watch("w", &[&network.url("")], &[]);
    network.done(&["broadcast", "send", "--revoke", "base.revocation", "--to", &network.url("")]);
    assert_eq!(watcher.until("revoked")["min_serial"], 9);
    assert_eq!(
        network
            .run(&["broadcast", "send", "--revoke", "ops.cert", "--to", &network.url("")])
            .status
            .code(),
        Some(USAGE)
    );
}

#[test]
fn refuses_a_lower_chain_number_also_after_a_restart() {
    let network = Network::new();
    let watcher = network.watch("w", &[&network.url("")], &[]);
    send_line(&network, "one", &[]);
    assert_eq!(watcher.until("message")["text"], "one");
    watcher.until("complete");
    // Makes the sender lose the number of its last chain.
    let lose = || {
        let path = network.path("lost.chains");
        let _ = fs::remove_file(&path);
        let mut journal = Journal::open(&path).unwrap();
        let record = [sender_named("ops").0, [0; 8], 5_u64.to_be_bytes()].concat();
        journal.append(&record).unwrap();
        journal.sync().unwrap();
    };
    lose();
    send_line(&network, "two", &["--state", "lost.chains"]);
    refuses(&watcher, "ChainGoesBack");
    watcher.kill();
    let again = network.watch("w", &[&network.url("")], &[]);
    lose();
    send_line(&network, "two", &["--state", "lost.chains"]);
    refuses(&again, "ChainGoesBack");
    send_line(&network, "three", &[]);
    assert_eq!(again.until("message")["text"], "three");
}

#[test]
fn a_file_that_changes_while_it_is_sent_ends_the_chain() {
    let network = Network::new();
    let bytes = image(400_000);
    fs::write(network.path("image.bin"), &bytes).unwrap();
    let watcher = network.watch("w", &[&network.url("")], &["--chains", "1", "--wait", "25"]);
    let mut command = network.send(&network.url(""), &["--rate", "200000", "image.bin"]);
    let process = command.stderr(Stdio::piped()).spawn().unwrap();
    watcher
        .find(|event| event["event"] == "progress" && event["verified_blocks"].as_u64() >= Some(2));
    // Change the file in place, without replacing it: the sender has it open.
    let mut changed = bytes;
    changed.iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(network.path("image.bin"), &changed).unwrap();
    let output = process.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(REFUSED), "{stderr}");
    assert!(stderr.lines().last().unwrap().contains("ContentChanged"), "{stderr}");
    assert_ne!(watcher.ended(), 0);
    assert!(!network.path("w.saved").join("image.bin").exists());
}

#[test]
fn invalid_broadcast_arguments_are_usage_errors() {
    let network = Network::new();
    fs::write(network.path("image.bin"), "x").unwrap();
    fs::write(network.path("empty"), "").unwrap();
    let url = network.url("");
    let usage = |command: &mut std::process::Command, expected: &str| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(USAGE), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{expected}: {}", text(&output.stderr));
    };
    usage(&mut network.send(&url, &["--block", "65", "image.bin"]), "1..=64");
    usage(&mut network.send(&url, &["--block", "0", "image.bin"]), "1..=64");
    usage(&mut network.send(&url, &["--message", "9000", "image.bin"]), "BadMessageSize");
    usage(&mut network.send(&url, &["empty"]), "NothingToSay");
    usage(&mut network.send(&url, &["missing"]), "missing");
    usage(&mut network.send(&url, &["--label", &"x".repeat(65), "image.bin"]), "LabelTooLong");
    usage(&mut network.send("udp://127.0.0.1:5000", &["image.bin"]), "BadAddress");
    usage(&mut network.send("udp://239.1.2.3", &["image.bin"]), "udp://239.1.2.3:5000");
    usage(
        &mut network.send(&format!("{url}&interface=198.51.100.9"), &["image.bin"]),
        "NoSuchInterface",
    );
    let watch = |more: &[&str]| {
        let arguments =
            ["broadcast", "watch", "--ca", "keys/base.pub.pem", "--on", &url, "--wait", "0"];
        network.command(&[&arguments[..], more].concat())
    };
    usage(&mut watch(&["--state", "keys"]), "NotAnArchive");
    let first = watch(&["--state", "w.state"]).output().unwrap();
    assert!(first.status.success(), "{}", text(&first.stderr));
    usage(&mut watch(&["--state", "w.state", "--network", "0011223344556677"]), "OtherNetwork");
    let running = network.watch("w", &[&url], &[]);
    let locked = watch(&["--state", "w.state"]).output().unwrap();
    assert_ne!(locked.status.code(), Some(0));
    assert!(text(&locked.stderr).contains("JournalLocked"), "{}", text(&locked.stderr));
    drop(running);
}

#[test]
fn ignores_malformed_frames() {
    let network = Network::new();
    let watcher = network.watch("w", &[&network.url("")], &[]);
    for frame in [&b""[..], b"\xff", b"hello", &[0x82, 0x18, 34, 0x40], &[0x85; 9000]] {
        raw(&network, frame);
    }
    refuses(&watcher, "Malformed");
    send_line(&network, "still there", &[]);
    assert_eq!(watcher.until("message")["text"], "still there");
}

#[test]
fn messages_that_were_not_read_are_delivered_again() {
    let network = Network::new();
    let url = network.url("");
    let arguments =
        ["broadcast", "watch", "--ca", "keys/base.pub.pem", "--state", "w.state", "--on", &url];
    let mut unread =
        network.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    drop(unread.stdout.take());
    send_line(&network, "not read", &[]);
    let ended = unread.wait_with_output().unwrap();
    assert!(
        !ended.status.success() && text(&ended.stderr).contains("OutputFailed"),
        "{}",
        text(&ended.stderr)
    );
    let again = network.command(&[&arguments[..], &["--wait", "1"]].concat()).output().unwrap();
    assert_eq!(text(&again.stdout), "not read\n", "{}", text(&again.stderr));
}

#[test]
fn gives_up_a_chain_larger_than_the_quota_and_accepts_the_next() {
    let network = Network::new();
    fs::write(network.path("image.bin"), image(2 << 20)).unwrap();
    let watcher = network.watch("w", &[&network.url("")], &["--quota", "1"]);
    let sent = network.send(&network.url(""), &["--linger", "0", "image.bin"]).output().unwrap();
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    assert_eq!(watcher.until("abandoned")["name"], "QuotaReached");
    send_line(&network, "still there", &[]);
    assert_eq!(watcher.until("message")["text"], "still there");
    watcher.kill();
    let again = network.watch("w", &[&network.url("")], &["--quota", "1"]);
    send_line(&network, "and again", &[]);
    assert_eq!(again.until("message")["text"], "and again");
}

/// Finding B4 of the review. Anyone can send any number of forged frames.
#[test]
fn forged_frames_do_not_fill_the_output() {
    let network = Network::new();
    let watcher = network.watch("w", &[&network.url("")], &[]);
    let certificate = fs::read(network.path("ops.cert")).unwrap();
    for forgery in 0..100 {
        let mut forged = certificate.clone();
        let at = forged.len() - 1 - forgery % 60;
        forged[at] ^= 0x55;
        put(&network, &BroadcastFrame::Certificate(&forged));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    send_line(&network, "end", &[]);
    let refusals = std::cell::Cell::new(0);
    watcher.find(|event| {
        refusals.set(refusals.get() + u32::from(event["event"] == "refused"));
        event["event"] == "message"
    });
    assert!((1..=4).contains(&refusals.get()), "{} lines", refusals.get());
}
