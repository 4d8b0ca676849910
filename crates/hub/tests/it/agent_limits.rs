//! What a bad agent cannot do, and that others go on.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use moteseal_hub::agents::status::State;
use moteseal_hub::agents::{Limits, Status, StopReason};

use crate::agents::{Hub, agent, limits, script};

/// The resident memory of this process, in bytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Returns the fields of `/proc/PID/stat` after the name of the program.
fn statistics(process: &str) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().map(str::to_owned).collect()
}

/// Returns the processes of a group that have not ended.
fn members(group: u32) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().into_string().ok());
    processes
        .filter(|process| {
            let fields = statistics(process);
            fields.get(2) == Some(&group.to_string()) && fields[0] != "Z"
        })
        .collect()
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
    let process = hub.status("good").unwrap().process.unwrap();
    let preference = fs::read_to_string(format!("/proc/{process}/oom_score_adj")).unwrap();
    assert_eq!(preference.trim(), "1000", "without memory, the kernel kills it before others");
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
    // Either the limit of the agent's own user keeps its processes few, or it is stopped.
    let mut groups = std::collections::BTreeSet::new();
    hub.until("it runs", |hub| !hub.lines("fork").is_empty()).await;
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let status = hub.status("fork").unwrap();
        if let Some(process) = status.process {
            groups.insert(process);
            let (count, guards) = (members(process).len(), 1);
            let is_root = rustix::process::getuid().is_root();
            assert!(count <= if is_root { 4 + guards } else { 4 + 64 + guards }, "{count}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!groups.is_empty());
    hub.stop().await;
    for group in groups {
        hub.until("all processes are gone", |_| members(group).is_empty()).await;
    }
}

/// Files that no list of the data folder shows, and folders that cannot be listed.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_hide_what_it_stores() {
    let mut hub = Hub::new();
    let mmap = libc::SYS_mmap.to_string();
    let ways = ["unlinked", "mapped", "deep", "locked"];
    let small = Limits { storage: 4 << 20, ..limits() };
    for way in ways {
        let hide = include_bytes!("attacks/hide.pl");
        hub.install(&script(way, hide, &[way, &mmap], small)).unwrap();
    }
    hub.start();
    for way in ways {
        hub.until_status(way, "it is stopped", |status| {
            status.stopped == Some(StopReason::StorageExceeded)
        })
        .await;
    }
    hub.until_status("deep", "it stays stopped", |status| {
        status.process.is_none() && status.state == State::Waiting
    })
    .await;
    hub.store.remove("deep", true).unwrap();
    assert!(!hub.state().join("agents/deep/data").exists(), "a person can repair it");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_agent_runs_while_the_disk_is_nearly_full() {
    let mut hub = Hub::new();
    hub.settings.reserve = Some(u64::MAX);
    hub.install(&agent("good", 1, &["count", ""], limits())).unwrap();
    hub.start();
    hub.until_status("good", "it is not started", |status| {
        status.stopped == Some(StopReason::DiskNearlyFull) && status.state == State::Waiting
    })
    .await;
    hub.stop().await;
    assert!(hub.lines("good").is_empty());
}

/// Each worker ends before it can be measured. Its parent has ended before.
#[tokio::test(flavor = "multi_thread")]
async fn short_processes_count_towards_the_share_of_the_processor() {
    let mut hub = Hub::new();
    let slow = Limits { processes: 8, cpu_permille: 50, ..limits() };
    hub.install(&agent("workers", 1, &["workers"], slow)).unwrap();
    hub.start();
    hub.until_status("workers", "it is stopped", |status| {
        status.stopped == Some(StopReason::CpuExceeded)
    })
    .await;
    hub.stop().await;
}

/// A hub and the guard of an agent were killed together.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_hub_ends_what_an_earlier_one_has_left() {
    let mut hub = Hub::new();
    hub.install(&agent("good", 1, &["count", ""], limits())).unwrap();
    let mut left = std::process::Command::new("sleep");
    std::os::unix::process::CommandExt::process_group(left.arg("60"), 0);
    let mut left = left.spawn().unwrap();
    let started: u64 = statistics(&left.id().to_string())[19].parse().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let id = left.id();
    let status = |started: u64| {
        let (process, process_started) = (Some(id), Some((boot.trim().into(), started)));
        let status = Status { name: "good".into(), process, process_started, ..Status::default() };
        serde_json::to_vec(&status).unwrap()
    };
    let path = hub.state().join("agents/good/status");
    // Another process with the same id is no process of the agent.
    fs::write(&path, status(started + 1)).unwrap();
    hub.start();
    hub.until("the agent runs", |hub| !hub.lines("good").is_empty()).await;
    hub.stop().await;
    assert!(left.try_wait().unwrap().is_none());
    fs::write(&path, status(started)).unwrap();
    hub.start();
    hub.until("the process has ended", |_| !is_running(&id.to_string())).await;
    hub.stop().await;
    left.wait().unwrap();
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
            "name": "a", "parent": parent, "hub": parent, "landlock": u32::MAX, "program": crate::agents::example("agent"),
            "arguments": [arguments], "files": folder.path(), "data": folder.path(),
            "readable": [crate::agents::example("")], "writable": [], "memory": 1u64 << 30,
            "storage": 1 << 20, "processes": processes, "network": false, "user": null,
            "is_required": true, "is_guard": processes > 1,
        })
        .to_string()
    };
    for (processes, arguments) in [(1, "silent"), (1, "stubborn"), (4, "children")] {
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
