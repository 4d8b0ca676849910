//! Commands over a real link: they have an end and a topic, and watchers that join late, were away
//! or lost a chain do not act on old ones. Also tests what `send` and `watch` report if nothing was
//! received.

use serde_json::Value;

use crate::broadcasting::{Network, Watcher, text};

#[track_caller]
fn sent(network: &Network, line: &str, more: &[&str]) {
    let output = network.send_line(line, more);
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
}

#[track_caller]
fn order(network: &Network, line: &str, valid: &str) {
    sent(network, line, &["--kind", "command", "--topic", "valve", "--valid", valid]);
}

/// Returns the texts of the messages among events.
fn messages(events: &[Value]) -> Vec<&str> {
    let is_message = |event: &&Value| event["event"] == "message";
    events.iter().filter(is_message).filter_map(|event| event["text"].as_str()).collect()
}

fn next_text(watcher: &Watcher) -> String {
    watcher.until("message")["text"].as_str().unwrap().to_owned()
}

#[test]
fn watchers_that_join_late_or_were_away_act_only_on_the_newest_command() {
    let network = Network::new();
    let url = network.url("");
    let steady = network.watch("steady", &[&url], &[]);
    let away = network.watch("away", &[&url], &[]);
    order(&network, "open", "10m");
    assert_eq!((next_text(&steady), next_text(&away)), ("open".into(), "open".into()));
    away.kill();
    order(&network, "shut", "10m");
    assert_eq!(next_text(&steady), "shut");
    // This watcher joins between the commands.
    let second = network.watch("second", &[&url], &[]);
    assert_eq!(next_text(&second), "shut");
    order(&network, "on", "10m");
    assert_eq!((next_text(&steady), next_text(&second)), ("on".into(), "on".into()));
    let fresh = network.watch("fresh", &[&url], &[]);
    let away = network.watch("away", &[&url], &[]);
    assert_eq!(next_text(&fresh), "on");
    assert_eq!(next_text(&away), "on");
    // The earlier commands reach all watchers, which must not print them.
    sent(&network, "the end", &[]);
    for watcher in [&steady, &second, &fresh, &away] {
        watcher.find(|event| event["event"] == "message" && event["text"] == "the end");
    }
    std::thread::sleep(std::time::Duration::from_secs(3));
    for watcher in [&steady, &second, &fresh, &away] {
        assert_eq!(messages(&watcher.rest()), [""; 0]);
    }
}

#[test]
fn an_expired_command_is_reported_and_not_printed() {
    let network = Network::new();
    let url = network.url("");
    let steady = network.watch("steady", &[&url], &[]);
    order(&network, "open", "2s");
    assert_eq!(next_text(&steady), "open");
    std::thread::sleep(std::time::Duration::from_secs(3));
    let fresh = network.watch("fresh", &[&url], &[]);
    let event = fresh.until("withheld");
    assert_eq!(
        (&event["name"], &event["label"], &event["is_final"]),
        (&"Late".into(), &"valve".into(), &true.into())
    );
    assert_eq!(messages(&fresh.rest()), [""; 0]);
}

#[test]
fn a_watcher_names_a_chain_that_it_missed_and_gets_it_from_another_watcher() {
    let network = Network::new();
    let url = network.url("");
    let steady = network.watch("steady", &[&url], &[]);
    let away = network.watch("away", &[&url], &[]);
    sent(&network, "first", &[]);
    assert_eq!((next_text(&steady), next_text(&away)), ("first".into(), "first".into()));
    away.kill();
    sent(&network, "second", &[]);
    let missed = steady.until("message")["chain"].as_u64().unwrap();
    steady.kill();
    let away = network.watch("away", &[&url], &[]);
    sent(&network, "third", &[]);
    assert_eq!(away.until("missed")["chain"], missed);
    assert_eq!(next_text(&away), "third");
    // A watcher that has the missed chain comes back.
    let _steady = network.watch("steady", &[&url], &[]);
    assert_eq!(next_text(&away), "second");
}

#[test]
fn send_fails_without_receivers_and_names_a_key_that_is_not_certified() {
    let network = Network::new();
    let alone = network.send_line("hello", &[]);
    let stderr = text(&alone.stderr);
    assert_eq!(alone.status.code(), Some(6), "{stderr}");
    assert!(stderr.contains("NoReceiver"), "{stderr}");
    sent(&network, "hello", &["--without-receivers"]);
    network.done(&["key", "new", "--out", "keys/uncertified"]);
    let mut command = network.command(&[
        "broadcast",
        "send",
        "--key",
        "keys/uncertified.key.pem",
        "--cert",
        "ops.cert",
        "--to",
        &network.url(""),
        "ops.cert",
    ]);
    let output = command.output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("KeyNotCertified") && stderr.contains("keys/uncertified.key.pem"),
        "{stderr}"
    );
}

#[test]
fn watch_fails_if_everything_was_refused() {
    let network = Network::new();
    network.certify("other", 7, &[], "other.cert");
    let watcher = network.watch("w", &[&network.url("")], &["--wait", "5"]);
    network.send_line("hello", &["--cert", "other.cert", "--without-receivers"]);
    assert_eq!(watcher.until("refused")["name"], "WrongNetwork");
    assert_eq!(watcher.ended(), 3);
    let quiet = network.watch("quiet", &[&network.url("")], &["--wait", "1"]);
    assert_eq!(quiet.ended(), 0);
}

#[test]
fn commands_need_an_end_and_impossible_terms_are_refused_before_anything_is_sent() {
    let network = Network::new();
    for (more, name) in [
        (&["--kind", "command"][..], "CommandWithoutEnd"),
        (&["--kind", "command", "--not-before", "2026-01-01"], "CommandWithoutEnd"),
        (&["--kind", "command", "--valid", "8d"], "ValidityTooLong"),
        (&["--kind", "command", "--not-after", "2020-01-01"], "EmptyWindow"),
        (
            &["--kind", "command", "--not-before", "2100-01-02", "--not-after", "2100-01-01"],
            "EmptyWindow",
        ),
        (&["--topic", "valve"], "--kind command"),
        (&["--kind", "file"], "--lines"),
    ] {
        let output = network.send_line("open", more);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {stderr}");
        assert!(stderr.contains(name), "{more:?}: {stderr}");
    }
    assert!(!network.path("keys/ops.chains").exists(), "no chain number was used");
    let watcher = network.watch("w", &[&network.url("")], &[]);
    let valid = ["--kind", "command", "--not-before", "2020-01-01", "--not-after", "2020-01-03"];
    assert_eq!(network.send_line("open", &valid).status.code(), Some(2));
    let announced = ["--not-after", "2100-01-01", "--label", "notes"];
    sent(&network, "hello", &announced);
    assert_eq!(next_text(&watcher), "hello");
}
