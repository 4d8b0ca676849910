//! Agents of a hub on the command line: packages, installations that are killed, and the whole way of
//! a package and of commands through broadcasts.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::broadcasting::GROUP;
use crate::chance::Chance;
use crate::hub_home::{Home, Process};

/// An agent that repeats each line of its input. It needs no other program.
const ECHO: &str = "#!/bin/sh\necho\nwhile read -r line; do echo \"$line\"; done\n";

/// An agent that counts: it continues with the number that it has stored, and ends cleanly on SIGTERM.
const COUNT: &str = r#"#!/usr/bin/perl
$| = 1;
my ($stop, $n, $path) = (0, 0, "$ENV{MOTESEAL_DATA}/n");
$SIG{TERM} = sub { $stop = 1 };
if (open(my $file, '<', $path)) { $n = <$file> + 0; }
while (!$stop) { $n++; print "{\"n\":$n,\"version\":VERSION}\n"; select(undef, undef, undef, 0.02); }
open(my $file, '>', $path) or die; print $file $n; close($file) or die;
"#;

const HUB: [&str; 2] = ["--config", "hub.toml"];

/// A folder with an operator's key, a roster, and a configuration without sources.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.done(&["key", "new", "--out", "keys/op"]);
        folder.done(&["key", "new", "--out", "keys/dev1"]);
        folder.done(&[
            "roster",
            "new",
            "--operator",
            "keys/op.key.pem",
            "--group",
            "home",
            "--epoch",
            "1m",
            "--device",
            "dev1=keys/dev1.pub.pem",
            "--out",
            "roster.cbor",
        ]);
        let text = "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nstate = \"hub\"\n";
        fs::write(folder.0.path().join("hub.toml"), text).unwrap();
        folder
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moteseal"));
        command.args(arguments).current_dir(self.0.path());
        command
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn pack(&self, version: u32) -> String {
        pack(self.0.path(), version, ECHO);
        let out = format!("echo-{version}.agent");
        self.done(&pack_arguments(&out));
        out
    }

    /// Returns the version that is installed.
    fn version(&self) -> Option<u64> {
        let list = self.done(&[&["hub", "agent", "list", "--json"][..], &HUB].concat());
        let line = list.lines().next()?;
        serde_json::from_str::<Value>(line).unwrap()["record"]["current"].as_u64()
    }
}

/// Writes the folder and the description of a version of an agent.
fn pack(folder: &std::path::Path, version: u32, program_text: &str) {
    let program = folder.join("echo/agent.sh");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, format!("{program_text}# version {version}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        "group = \"home\"\nname = \"echo\"\nversion = {version}\narguments = [\"agent.sh\"]\n\
         [limits]\nmemory = \"64MiB\"\ncpu_percent = 50\n"
    );
    fs::write(folder.join("agent.toml"), text).unwrap();
}

fn pack_arguments(out: &str) -> [&str; 10] {
    let key = "keys/op.key.pem";
    [
        "hub",
        "agent",
        "pack",
        "echo",
        "--manifest",
        "agent.toml",
        "--operator-key",
        key,
        "--out",
        out,
    ]
}

fn install(package: &str) -> Vec<&str> {
    [&["hub", "agent", "install"][..], &[package], &HUB].concat()
}

#[test]
fn packages_are_packed_shown_installed_listed_and_removed() {
    let folder = Folder::new();
    let (first, second) = (folder.pack(1), folder.pack(2));
    let shown = folder.done(&["hub", "agent", "show", &second, "--operator", "keys/op.pub.pem"]);
    for part in ["echo version 2", "verified", "agent.sh", "no network", "processor 50 %"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    folder.done(&install(&first));
    assert_eq!(folder.version(), Some(1));
    folder.done(&install(&second));
    assert!(folder.refused(&install(&first)).contains("AgentVersionNotAbove"));
    let bytes = fs::read(folder.0.path().join(folder.pack(3))).unwrap();
    fs::write(folder.0.path().join("cut.agent"), &bytes[..bytes.len() - 1]).unwrap();
    assert!(folder.refused(&install("cut.agent")).contains("Truncated"));
    folder.done(&["key", "new", "--out", "keys/other"]);
    let shown = ["hub", "agent", "show", &second, "--operator", "keys/other.pub.pem"];
    assert!(folder.refused(&shown).contains("NotAuthentic"));
    assert_eq!(folder.version(), Some(2));
    folder.done(&[&["hub", "agent", "remove", "echo"][..], &HUB].concat());
    assert_eq!(folder.version(), None);
    assert!(folder.refused(&install(&first)).contains("AgentVersionNotAbove"));
}

#[test]
fn an_installation_that_is_killed_leaves_a_whole_version() {
    let folder = Folder::new();
    folder.done(&install(&folder.pack(1)));
    let mut chance = Chance::new(7);
    let mut before = 1;
    for version in 2..22 {
        let package = folder.pack(version);
        let arguments = install(&package);
        let mut process =
            Process(folder.command(&arguments).stderr(Stdio::null()).spawn().unwrap());
        std::thread::sleep(Duration::from_micros(chance.below(30_000)));
        process.0.kill().unwrap();
        process.0.wait().unwrap();
        let found = folder.version().unwrap();
        assert!([before, u64::from(version)].contains(&found), "{found} after {before}");
        let files = format!("hub/agents/echo/versions/{found}/files/agent.sh");
        let text = fs::read_to_string(folder.0.path().join(files)).unwrap();
        assert!(text.ends_with(&format!("# version {found}\n")), "{text}");
        before = found;
    }
    folder.done(&install(&folder.pack(22)));
    assert_eq!(folder.version(), Some(22));
    let left = fs::read_dir(folder.0.path().join("hub/agents")).unwrap().count();
    assert_eq!(left, 2, "the lock and the agent");
}

/// Sends a broadcast on the hub's group.
fn send(home: &Home, url: &str, arguments: &[&str], line: &str) {
    let start =
        ["broadcast", "send", "--key", "keys/ops.key.pem", "--cert", "ops.cert", "--to", url];
    let mut command = home.command(&[&start[..], &["--linger", "0.5"], arguments].concat());
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    assert!(process.wait().unwrap().success());
}

#[test]
fn a_broadcast_package_runs_and_its_commands_become_rows_and_messages_for_actuators() {
    let home = Home::new(&["lamp".to_owned()], "2s");
    // As root, each agent has a user of its own, who must be able to enter the folder.
    fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["base", "ops"] {
        home.done(&["key", "new", "--out", &format!("keys/{name}")]);
    }
    let request = ["key", "request", "--key", "keys/ops.key.pem", "--sender", "ops"];
    home.done(&[&request[..], &["--out", "ops.request"]].concat());
    let certify = ["key", "certify", "ops.request", "--ca", "keys/base.key.pem", "--serial", "7"];
    home.done(&[&certify[..], &["--out", "ops.cert"]].concat());
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("udp://{GROUP}:{port}?interface=127.0.0.1");
    home.configure(&format!(
        "[[source]]\ndevice = \"lamp\"\nagent = \"echo\"\ncolumns = [\"level::i16\"]\nfrom = [\"/text\"]\n\
         [broadcast]\nca = [\"keys/base.pub.pem\"]\n[[broadcast.link]]\nurl = \"{url}\"\n\
         [[broadcast.topic]]\nlabel = \"kitchen-lamp\"\nmqtt = \"lamp/set\"\n"
    ));
    pack(&home.path(""), 1, ECHO);
    home.done(&pack_arguments("echo.agent"));
    let (hub, _) = home.hub();

    send(&home, &url, &["echo.agent"], "");
    let start = Instant::now();
    let list = [&["hub", "agent", "list"][..], &HUB].concat();
    while !home.done(&list).contains("running") {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", home.log("hub"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let command = |topic| ["--lines", "-", "--kind", "command", "--topic", topic, "--valid", "1m"];
    send(&home, &url, &command("agent/echo"), "21\n");
    let rows = home.wait_for_rows("lamp", 1);
    assert_eq!(rows[0]["level"].to_string().trim_matches('"'), "21", "{rows:?}");

    let broker = home.broker.as_ref().unwrap().port.to_string();
    let mut subscriber = Command::new("mosquitto_sub");
    subscriber.args(["-h", "127.0.0.1", "-p", &broker, "-C", "1", "-W", "60", "-t", "lamp/set"]);
    let subscriber = subscriber.stdout(Stdio::piped()).spawn().unwrap();
    // The subscription must be complete before the command is published.
    std::thread::sleep(Duration::from_millis(500));
    send(&home, &url, &command("kitchen-lamp"), "on\n");
    let output = subscriber.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"on\n", "{}", home.log("hub"));
    hub.stop();
    assert!(!home.log("hub").contains("ERROR"), "{}", home.log("hub"));
}

#[test]
fn readings_of_an_agent_that_is_updated_in_place_are_rows_exactly_once() {
    let home = Home::new(&["counter".to_owned()], "1s");
    fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    home.configure(
        "[[source]]\ndevice = \"counter\"\nagent = \"echo\"\ncolumns = [\"n::u32\", \"version::u8\"]\n",
    );
    for version in [1, 2] {
        pack(&home.path(""), version, &COUNT.replace("VERSION", &version.to_string()));
        home.done(&pack_arguments(&format!("echo-{version}.agent")));
    }
    home.done(&install("echo-1.agent"));
    let (_hub, _) = home.hub();
    let start = Instant::now();
    let until_newest_is = |version: u64| {
        loop {
            let rows = home.rows("counter");
            let numbers = |key: &str| -> Vec<u64> {
                rows.iter().filter_map(|row| row[key].as_u64()).collect()
            };
            let expected: Vec<u64> = (1..).take(rows.len()).collect();
            assert_eq!(numbers("n"), expected, "{}", home.log("hub"));
            let versions = numbers("version");
            if versions.len() > 20 && versions.iter().rev().take(20).all(|of| *of == version) {
                return versions;
            }
            let is_late = start.elapsed() > Duration::from_secs(120);
            assert!(!is_late, "{versions:?}\n{}", home.log("hub"));
            std::thread::sleep(Duration::from_millis(300));
        }
    };
    until_newest_is(1);
    // Delivered as a file, while readings flow.
    fs::copy(home.path("echo-2.agent"), home.path("hub/inbox/.part")).unwrap();
    fs::rename(home.path("hub/inbox/.part"), home.path("hub/inbox/echo.agent")).unwrap();
    until_newest_is(2);
    home.done(&[&["hub", "agent", "rollback", "echo"][..], &HUB].concat());
    let versions = until_newest_is(1);
    let changes = versions.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes, 2, "{versions:?}");
}
