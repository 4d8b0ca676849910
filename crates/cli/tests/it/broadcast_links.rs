//! Tests broadcasts over several kinds of links: lines and live commands, a Mosquitto broker, and
//! watchers that relay from one link to another.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::broadcasting::{Network, image, text};
use crate::broker::Broker;

/// Sends lines and waits until the command ends.
#[track_caller]
fn send(network: &Network, url: &str, lines: &[&str], more: &[&str]) {
    let mut command = network.send(url, &[&["--lines", "-", "--linger", "1"], more].concat());
    let mut process = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn lines_arrive_once_and_in_order_despite_losses_and_leave_evidence() {
    let network = Network::new();
    let watchers = [1, 2].map(|seed| {
        let url = network.url(&format!("&loss=0.2&seed={seed}"));
        network.watch(&format!("w{seed}"), &[&url], &["--evidence", "evidence"])
    });
    let lines: Vec<String> = (0..50).map(|number| format!("order {number}")).collect();
    send(
        &network,
        &network.url("&loss=0.2&seed=3"),
        &lines.iter().map(String::as_str).collect::<Vec<_>>(),
        &["--block", "5"],
    );
    for watcher in &watchers {
        for (number, line) in lines.iter().enumerate() {
            let event = watcher.until("message");
            assert_eq!(
                (&event["message"], &event["text"], &event["of"]),
                (&number.into(), &line.as_str().into(), &50.into())
            );
        }
        let complete = watcher.until("complete");
        let evidence = complete["evidence"].as_str().unwrap().to_owned();
        let shown = network.done(&["broadcast", "verify", &evidence, "--ca", "keys/base.pub.pem"]);
        assert!(
            text(&shown.stdout).lines().last().unwrap().ends_with("order 49"),
            "{}",
            text(&shown.stdout)
        );
        assert!(
            watcher.rest().iter().all(|event| event["event"] != "message"),
            "a message was delivered twice"
        );
    }
}

#[test]
fn a_live_line_arrives_before_the_next_is_written() {
    let network = Network::new();
    let watcher = network.watch("w", &[&network.url("")], &[]);
    let mut command = network.send(&network.url(""), &["--lines", "-", "--live", "--linger", "0"]);
    let mut sender = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = sender.stdin.take().unwrap();
    let mut last = 0;
    for number in 0..5 {
        input.write_all(format!("command {number}\n").as_bytes()).unwrap();
        let event = watcher.until("message");
        assert_eq!(
            (&event["text"], &event["of"]),
            (&format!("command {number}").into(), &1.into())
        );
        let chain = event["chain"].as_u64().unwrap();
        assert!(chain > last);
        last = chain;
    }
    drop(input);
    assert!(sender.wait().unwrap().success());
}

#[test]
fn a_watcher_stops_cleanly_and_prints_nothing_twice() {
    let network = Network::new();
    let start = || {
        let arguments =
            ["broadcast", "watch", "--ca", "keys/base.pub.pem", "--state", "w.state", "--on"];
        let mut command = network.command(&[&arguments[..], &[&network.url("")]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = start();
    std::thread::sleep(Duration::from_secs(1));
    send(&network, &network.url(""), &["one", "two"], &[]);
    assert!(
        Command::new("kill").args(["-TERM", &first.id().to_string()]).status().unwrap().success()
    );
    let output = first.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), &*text(&output.stdout)),
        (Some(0), "one\ntwo\n"),
        "{}",
        text(&output.stderr)
    );
    let second = start();
    std::thread::sleep(Duration::from_secs(1));
    send(&network, &network.url(""), &["three"], &[]);
    assert!(
        Command::new("kill").args(["-INT", &second.id().to_string()]).status().unwrap().success()
    );
    let output = second.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), &*text(&output.stdout)),
        (Some(0), "three\n"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn lines_files_and_repairs_pass_through_a_broker() {
    let network = Network::new();
    let broker = Broker::open(&network.path(""));
    let url = format!("{}/field", broker.url());
    let bytes = image(200_000);
    fs::write(network.path("image.bin"), &bytes).unwrap();
    let watcher = network.watch("w", &[&format!("{url}?loss=0.1&seed=1")], &[]);
    send(&network, &url, &["over", "the broker"], &["--block", "2"]);
    assert_eq!(watcher.until("message")["text"], "over");
    assert_eq!(watcher.until("message")["text"], "the broker");
    watcher.until("complete");
    let sent = network.send(&format!("{url}?loss=0.1&seed=2"), &["image.bin"]).output().unwrap();
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    watcher.until("complete");
    assert!(network.saved("w", "image.bin") == bytes);
}

#[test]
fn an_unreachable_broker_is_reported() {
    let network = Network::new();
    fs::write(network.path("image.bin"), "x").unwrap();
    let start = Instant::now();
    let output = network.send("mqtt://127.0.0.1:9/field", &["image.bin"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn watchers_relay_over_two_hops_from_udp_to_a_broker() {
    let network = Network::new();
    let broker = Broker::open(&network.path(""));
    let bytes = image(150_000);
    fs::write(network.path("image.bin"), &bytes).unwrap();
    let (near, middle) = (network.url("&loss=0.05&seed=1"), format!("{}/middle", broker.url()));
    let far = format!("{}/far?loss=0.05&seed=2", broker.url());
    let last = network.watch("last", &[&far], &["--chains", "2"]);
    let _second = network.watch("second", &[&middle, &far], &[]);
    let _first = network.watch("first", &[&near, &middle], &[]);
    let sent = network.send(&network.url(""), &["image.bin"]).output().unwrap();
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    assert_eq!(last.until("complete")["label"], "image.bin");
    assert!(network.saved("last", "image.bin") == bytes);
    send(&network, &network.url(""), &["stop"], &[]);
    assert_eq!(last.until("message")["text"], "stop");
    assert_eq!(last.ended(), 0);
}
