//! What a bad agent cannot do, and that others go on.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use moteseal_hub::agents::status::State;
use moteseal_hub::agents::{Limits, StopReason};

use crate::agents::{Hub, agent, limits};

/// The resident memory of this process, in bytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn exists(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_agents_are_contained_and_a_good_one_goes_on() {
    let mut hub = Hub::new();
    let small = Limits { storage: 4 << 20, memory: 64 << 20, ..limits() };
    for (name, arguments, limits) in [
        ("good", &["count", ""][..], limits()),
        ("fork", &["fork"], limits()),
        ("fill", &["fill"], small),
        ("allocate", &["allocate"], small),
        ("long", &["long", "1024"], limits()),
        ("spin", &["spin"], Limits { cpu_permille: 50, ..limits() }),
    ] {
        hub.install(&agent(name, 1, arguments, limits)).unwrap();
    }
    let before = memory();
    hub.start();
    hub.until_status("fill", "it is stopped", |status| {
        status.stopped == Some(StopReason::StorageExceeded)
    })
    .await;
    hub.until_status("spin", "it is stopped", |status| {
        status.stopped == Some(StopReason::CpuExceeded)
    })
    .await;
    hub.until_status("allocate", "it fails", |status| status.exits > 0).await;
    hub.until("the line after the long one", |hub| !hub.lines("long").is_empty()).await;
    let grown = memory().saturating_sub(before);
    assert!(grown < 64 << 20, "the memory of the hub grew by {grown} bytes");

    let good = hub.lines("good").len();
    hub.until("the good agent goes on", |hub| hub.lines("good").len() > good + 20).await;
    assert_eq!(hub.status("good").unwrap().exits, 0);
    let forks = hub.status("fork").unwrap();
    assert_eq!((forks.state, forks.exits), (State::Running, 0), "it cannot start processes");
    hub.stop().await;
    assert_eq!(hub.lines("long"), ["{\"after\":1}"]);
    assert_eq!(hub.lines("fork").len(), 1);
    let data = hub.state().join("agents/fill/data");
    let size: u64 =
        fs::read_dir(data).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(size < 512 << 20, "it wrote {size} bytes before it was stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_that_may_start_processes_stays_below_its_limit() {
    let mut hub = Hub::new();
    hub.install(&agent("fork", 1, &["fork"], Limits { processes: 4, ..limits() })).unwrap();
    hub.start();
    hub.until_status("fork", "it is stopped", |status| {
        matches!(status.stopped, Some(StopReason::TooManyProcesses | StopReason::MemoryExceeded))
    })
    .await;
    let process = hub.status("fork").unwrap().process;
    hub.stop().await;
    if let Some(process) = process {
        assert!(!exists(&process.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_of_an_agent_outlives_it() {
    let mut hub = Hub::new();
    hub.install(&agent("parent", 1, &["children"], Limits { processes: 4, ..limits() })).unwrap();
    hub.start();
    hub.until("the child", |hub| !hub.lines("parent").is_empty()).await;
    let line: serde_json::Value = serde_json::from_str(&hub.lines("parent")[0]).unwrap();
    let child = line["child"].as_str().unwrap().to_owned();
    assert!(exists(&child));
    hub.stop().await;
    hub.until("the child is gone", |_| !exists(&child)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reaches_only_its_own_files_and_no_network() {
    let mut hub = Hub::new();
    let outside = hub.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "1").unwrap();
    for (path, mode) in [(outside.join("secret"), 0o666), (outside.clone(), 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("{} {}", outside.display(), listener.local_addr().unwrap().port());
    hub.install(&agent("confined", 1, &["try", &target], limits())).unwrap();
    let network = Limits { network: true, ..limits() };
    hub.install(&agent("online", 1, &["try", &target], network)).unwrap();
    hub.start();
    let end = "{\"did\":\"end\"}".to_owned();
    for name in ["confined", "online"] {
        hub.until("it has tried everything", |hub| hub.lines(name).contains(&end)).await;
    }
    hub.stop().await;
    let did = |attempts: &[&str]| -> Vec<String> {
        attempts.iter().map(|attempt| format!("{{\"did\":\"{attempt}\"}}")).collect()
    };
    assert_eq!(hub.lines("confined"), did(&["own data", "thread", "end"]));
    assert_eq!(hub.lines("online"), did(&["own data", "thread", "network", "end"]));
    assert!(outside.join("secret").exists());
}

/// The hub is killed: an agent with one process, and one with a guard and a child.
#[test]
fn no_agent_outlives_a_hub_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |processes: u32, arguments: &str, parent: u32| {
        serde_json::json!({
            "name": "a", "parent": parent, "program": crate::agents::example("agent"),
            "arguments": [arguments], "files": folder.path(), "data": folder.path(),
            "readable": [crate::agents::example("")], "writable": [], "memory": 1u64 << 30,
            "storage": 1 << 20, "processes": processes, "network": false, "user": null,
            "is_required": true, "is_guard": processes > 1,
        })
        .to_string()
    };
    for (processes, arguments) in [(1, "silent"), (4, "children")] {
        // A shell in the place of the hub.
        let launcher = crate::agents::example("launch");
        let script = format!(
            "P='{}'; {} \"$(echo \"$P\" | sed s/\\\"parent\\\":0/\\\"parent\\\":$$/)\" & echo $!; wait",
            plan(processes, arguments, 0),
            launcher.display()
        );
        let mut shell = std::process::Command::new("sh")
            .args(["-c", &script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(shell.stdout.take().unwrap()));
        let mut all = vec![lines.next().unwrap().unwrap()];
        if processes > 1 {
            let line: serde_json::Value =
                serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            all.push(line["child"].as_str().unwrap().to_owned());
        } else {
            std::thread::sleep(Duration::from_millis(300));
        }
        assert!(all.iter().all(|process| is_running(process)), "{all:?}");
        shell.kill().unwrap();
        shell.wait().unwrap();
        let start = std::time::Instant::now();
        while all.iter().any(|process| is_running(process)) {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "{all:?} with {processes} processes"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns whether a process runs. A process that nobody has waited for does not.
fn is_running(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
