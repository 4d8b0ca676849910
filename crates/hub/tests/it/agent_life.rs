//! The life of an agent: start, exits, updates, failed updates, removal, commands.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use moteseal_hub::agents::commands::{Command, Commands, Destination};
use moteseal_hub::agents::status::State;
use moteseal_hub::agents::{INBOX, StopReason};

use crate::agents::{Hub, agent, limits, manifest, operator, package};

/// Checks that the numbers 1 to N arrived exactly once and in order. Returns N.
fn all_numbers(lines: &[String]) -> usize {
    for (line, number) in lines.iter().zip(1..) {
        assert!(line.starts_with(&format!("{{\"n\":{number},")), "{line} instead of {number}");
    }
    lines.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_replaced_in_place_and_no_line_is_lost_or_doubled() {
    let mut hub = Hub::new();
    hub.install(&agent("counter", 1, &["count", "first"], limits())).unwrap();
    hub.start();
    hub.until("lines of version 1", |hub| hub.lines("counter").len() > 50).await;
    // Delivered as a file: the running hub installs it.
    let part = hub.state().join(INBOX).join(".part");
    fs::write(&part, agent("counter", 2, &["count", "second"], limits())).unwrap();
    fs::rename(part, hub.state().join(INBOX).join("counter.agent")).unwrap();
    let is_second = |line: &String| line.contains("second");
    hub.until("lines of version 2", |hub| {
        hub.lines("counter").iter().filter(|line| is_second(line)).count() > 50
    })
    .await;
    hub.store.roll_back("counter").unwrap();
    hub.until("lines of version 1 again", |hub| {
        hub.lines("counter").last().is_some_and(|line| !is_second(line))
    })
    .await;
    hub.stop().await;
    let before = all_numbers(&hub.lines("counter"));
    assert_eq!(fs::read_dir(hub.state().join(INBOX)).unwrap().count(), 0, "the package is removed");

    // After a restart of the hub, the agent continues.
    hub.start();
    hub.until("lines after the restart", |hub| hub.lines("counter").len() > before + 50).await;
    hub.stop().await;
    all_numbers(&hub.lines("counter"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_does_not_come_up_is_replaced_by_the_one_before() {
    let mut hub = Hub::new();
    hub.install(&agent("counter", 1, &["count", "first"], limits())).unwrap();
    hub.start();
    hub.until_status("counter", "version 1 runs", |status| status.state == State::Running).await;
    for (version, arguments, reason) in
        [(2, "fail", StopReason::ExitedRepeatedly), (3, "silent", StopReason::NoLineInTime)]
    {
        hub.install(&agent("counter", version, &[arguments], limits())).unwrap();
        hub.until_status("counter", "version 1 runs again", |status| {
            status.fell_back == Some((version, reason.name().to_owned()))
                && status.version == 1
                && status.state == State::Running
        })
        .await;
        let again = hub.store.install(
            &*agent("counter", version, &[arguments], limits()),
            std::path::Path::new("test.agent"),
            false,
        );
        assert!(again.is_ok(), "a package that arrives again is not an error");
        assert_eq!(hub.store.record("counter").unwrap().unwrap().current, Some(1));
    }
    let lower = hub.install(&agent("counter", 2, &["count"], limits())).unwrap_err();
    assert_eq!(lower.name(), "AgentVersionNotAbove");
    hub.stop().await;
    all_numbers(&hub.lines("counter"));
}

/// Silence, which others may cause, does not bring back a version that the operator excludes.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_version_is_not_replaced_by_one_below_its_minimum() {
    let mut hub = Hub::new();
    hub.install(&agent("counter", 1, &["count", "first"], limits())).unwrap();
    hub.start();
    hub.until_status("counter", "version 1 runs", |status| status.state == State::Running).await;
    let mut fixed = manifest("counter", 2);
    (fixed.minimum, fixed.start_timeout_ms) = (2, 100);
    fixed.arguments.push("silent".into());
    let program = fs::read(crate::agents::example("agent")).unwrap();
    hub.install(&package(fixed, &[("agent", &program)], &operator())).unwrap();
    hub.until_status("counter", "version 2 runs", |status| {
        status.version == 2 && status.process.is_some()
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let record = hub.store.record("counter").unwrap().unwrap();
    assert_eq!((record.current, record.previous, record.failed), (Some(2), None, None));
    assert_eq!(hub.status("counter").unwrap().version, 2);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_exits_is_started_again_with_growing_delays() {
    let mut hub = Hub::new();
    hub.settings.timing.backoff_first = Duration::from_millis(40);
    hub.install(&agent("crash", 1, &["exit"], limits())).unwrap();
    hub.start();
    hub.until_status("crash", "it exits", |status| status.exits >= 3).await;
    let start = std::time::Instant::now();
    hub.until_status("crash", "it exits again", |status| status.exits >= 5).await;
    // The delays before the fourth and the fifth start: 160 and 320 ms.
    assert!(start.elapsed() > Duration::from_millis(300), "{:?}", start.elapsed());
    let status = hub.status("crash").unwrap();
    assert!(status.last_exit.unwrap().contains('3'), "the exit code is shown");
    assert_eq!(status.fell_back, None, "there is no version before");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_agent_stops_and_a_package_of_another_operator_is_set_aside() {
    let mut hub = Hub::new();
    hub.install(&agent("counter", 1, &["count", ""], limits())).unwrap();
    hub.start();
    hub.until_status("counter", "it runs", |status| status.state == State::Running).await;
    let process = hub.status("counter").unwrap().process.unwrap();
    hub.store.remove("counter", true).unwrap();
    hub.until_status("counter", "it stops", |status| status.state == State::Stopped).await;
    assert!(!std::path::Path::new("/proc").join(process.to_string()).exists());

    let inbox = hub.state().join(INBOX);
    fs::write(inbox.join("bad.agent"), "no package").unwrap();
    hub.until("the package is refused", |_| inbox.join("bad.agent.refused").exists()).await;
    hub.stop().await;
}

fn command(chain: u64, not_after: Option<u64>) -> Command {
    Command {
        destination: Destination::Agent("lamp".into()),
        sender: "00".into(),
        key: "11".into(),
        topic: format!("agent/lamp/{chain}"),
        chain,
        message: 0,
        not_before: 0,
        not_after,
        content: b"on".to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reaches_its_agent_and_an_expired_one_does_not() {
    let mut hub = Hub::new();
    let commands = Commands::open(&hub.folder.path().join("commands"), false).unwrap();
    let commands = Arc::new(commands);
    hub.commands = Some(Arc::clone(&commands));
    // Both wait for the agent. One expires before the agent starts.
    commands.add(command(1, Some(commands.now() + 1))).unwrap();
    commands.add(command(2, None)).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    hub.install(&agent("lamp", 1, &["echo"], limits())).unwrap();
    hub.start();
    hub.until("the command", |hub| !hub.lines("lamp").is_empty()).await;
    commands.add(command(3, Some(commands.now() + 60))).unwrap();
    hub.until("the next command", |hub| hub.lines("lamp").len() >= 2).await;
    hub.stop().await;
    let chains: Vec<_> = hub
        .lines("lamp")
        .iter()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            (line["chain"].as_u64().unwrap(), line["text"].as_str().unwrap().to_owned())
        })
        .collect();
    assert_eq!(chains, [(2, "on".to_owned()), (3, "on".to_owned())]);
}
