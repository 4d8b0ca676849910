//! Tests the path from a table to a cloud: sealing continues where it stopped, a push can be
//! resumed, and a replay survives kills.

use crate::scene;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use crate::scene::{COLUMNS, Scene};

#[test]
fn a_second_table_continues_the_chain_of_the_first() {
    let scene = Scene::new();
    scene.table("all.csv", 300);
    let text = fs::read_to_string(scene.path("all.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    scene.write("first.csv", &lines[..181].join("\n"));
    scene.write("second.csv", &[&lines[..1], &lines[181..]].concat().join("\n"));
    let first = scene.seal("first.csv", "dev1", &["--json"]).done().json();
    assert_eq!(first["bundles"].as_array().unwrap().len(), 3);
    let second = scene.seal("second.csv", "dev1", &["--json", "--scheme", "tree"]).done().json();
    assert_eq!(second["bundles"][0]["index"], 3);
    let files: Vec<String> = scene
        .names("bundles")
        .iter()
        .filter(|name| !name.starts_with('.'))
        .map(|name| format!("bundles/{name}"))
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let verified = scene.with_roster(&[&["verify", "--json"][..], &files].concat()).done().json();
    assert_eq!(verified["devices"][0]["events"], 300);
    assert_eq!(verified["devices"][0]["seals"], 5);
    // First verify bundles with a missing seal, then a bundle with a changed byte.
    let run = scene.with_roster(&["verify", files[0], files[2]]);
    assert!(run.failed(4).contains("Missing: seal 1 of dev1"), "{run:?}");
    let mut bytes = fs::read(scene.path(files[4])).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(scene.path("altered.mseal"), bytes).unwrap();
    let run = scene.with_roster(&["verify", files[0], "altered.mseal"]);
    assert!(run.failed(3).contains("altered.mseal: "), "{run:?}");
}

/// Writes two tables of one device, the second with later times.
fn january_and_february(scene: &Scene) {
    scene.table("all.csv", 120);
    let text = fs::read_to_string(scene.path("all.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    scene.write("january.csv", &lines[..61].join("\n"));
    scene.write("february.csv", &[&lines[..1], &lines[61..]].concat().join("\n"));
}

fn seal_into(scene: &Scene, table: &str, key: &str, out: &str, more: &[&str]) -> scene::Run {
    let arguments = ["seal", table, "--device", "dev1", "--key", key, "--out", out, "--json"];
    scene.with_roster(&[&arguments[..], &COLUMNS, more].concat())
}

#[test]
fn another_directory_continues_the_chain_of_the_key() {
    let scene = Scene::new();
    january_and_february(&scene);
    let key = "keys/dev1.key.pem";
    seal_into(&scene, "january.csv", key, "jan", &[]).done();
    let second = seal_into(&scene, "february.csv", key, "feb", &[]).done().json();
    assert_eq!(second["bundles"][0]["index"], 1);
    let cloud = scene.cloud("epochs.redb");
    for out in ["jan", "feb"] {
        let pushed = scene.run(&["push", out, "--to", &cloud.url, "--json"]).done().json();
        assert_eq!(
            (pushed["stored"].as_u64(), pushed["known"].as_u64()),
            (Some(1), Some(0)),
            "{out}"
        );
    }
    // With a new state file, the device would start a second chain.
    let run = seal_into(&scene, "february.csv", key, "mar", &["--state", "new.chain"]);
    assert!(
        run.failed(2).contains("new.chain does not exist, but the state of the chain is in "),
        "{run:?}"
    );
    assert!(scene.names("mar").is_empty());
}

#[test]
fn a_key_in_a_read_only_folder_needs_a_state_option() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    let seal = |more: &[&str]| {
        let arguments = [
            "seal",
            "data.csv",
            "--device",
            "dev1",
            "--key",
            "/dev/stdin",
            "--salt-key",
            "keys/dev1.salt.key",
        ];
        let options =
            ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem", "--out", "bundles"];
        let mut command = scene.command(&[&arguments[..], &options, &COLUMNS, more].concat());
        let mut process = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let key = fs::read(scene.path("keys/dev1.key.pem")).unwrap();
        process.stdin.take().unwrap().write_all(&key).unwrap();
        process.wait_with_output().unwrap()
    };
    let output = seal(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("the chain's state cannot be stored at /dev/stdin")
            && stderr.contains("--state"),
        "{stderr}"
    );
    // With a key from a pipe, nothing tells whether the device has sealed before.
    let output = seal(&["--state", "dev1.chain"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("moteseal: ChainUnknown: "));
    let key = ["--key", "keys/dev1.key.pem", "--state", "dev1.chain"];
    scene.with_roster(&[&["chain", "new"][..], &key].concat()).done();
    assert!(seal(&["--state", "dev1.chain"]).status.success());
    assert_eq!(scene.names("bundles"), ["dev1-0000000000.mseal"]);
}

#[test]
fn a_key_used_twice_is_reported() {
    let scene = Scene::new();
    january_and_february(&scene);
    // Nothing on this machine shows that the whole folder of a new key was copied.
    fs::create_dir(scene.path("copy")).unwrap();
    for name in ["dev1.key.pem", "dev1.salt.key", "dev1.begun"] {
        fs::copy(scene.path("keys").join(name), scene.path("copy").join(name)).unwrap();
    }
    let first = seal_into(&scene, "january.csv", "keys/dev1.key.pem", "bundles", &[]).done().json();
    let second =
        seal_into(&scene, "february.csv", "copy/dev1.key.pem", "elsewhere", &[]).done().json();
    let digests =
        [&first, &second].map(|sealed| sealed["bundles"][0]["digest"].as_str().unwrap().to_owned());
    let files = ["bundles/dev1-0000000000.mseal", "elsewhere/dev1-0000000000.mseal"];
    let run = scene.with_roster(&[&["verify"][..], &files].concat());
    assert!(
        run.failed(5)
            .contains("Equivocation: device dev1 signed two different seals under index 0"),
        "{run:?}"
    );

    // When the bundles of both chains are pushed to a cloud, every push of the second chain reports
    // the equivocation.
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    for stored in [1, 0] {
        let run = scene.run(&["push", "elsewhere", "--to", &cloud.url, "--json"]);
        let line = run.failed(5);
        assert!(
            line.contains("signed different seals under index 0") && line.contains(files[1]),
            "{line}"
        );
        assert!(digests.iter().all(|digest| line.contains(digest.as_str())), "{line}");
        assert_eq!(run.json()["stored"], stored, "{run:?}");
        assert_eq!(run.json()["conflicts"][0]["index"], 0, "{run:?}");
    }
}

/// Finding B6 of the review.
#[test]
fn a_token_for_a_cloud_on_this_machine_is_not_sent_to_a_proxy() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.write("tokens", "read,write writing-writing-1\n");
    scene.write("write.token", "writing-writing-1\n");
    let cloud = scene.cloud_with("epochs.redb", &["--tokens", "tokens"]);
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let proxy_url = format!("http://{}", proxy.local_addr().unwrap());
    let arguments = ["push", "bundles", "--to", &cloud.url, "--token", "write.token"];
    let output = scene
        .command(&arguments)
        .envs(["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"].map(|name| (name, &proxy_url)))
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "no connection");
}

#[test]
fn a_push_sends_what_the_cloud_does_not_have() {
    let scene = Scene::new();
    scene.table("data.csv", 300);
    for device in ["dev1", "dev2"] {
        scene.seal("data.csv", device, &[]).done();
    }
    let cloud = scene.cloud("epochs.redb");
    let one = scene
        .run(&["push", "bundles/dev2-0000000000.mseal", "--to", &cloud.url, "--json"])
        .done()
        .json();
    assert_eq!((one["stored"].as_u64(), one["known"].as_u64()), (Some(1), Some(0)));
    let rest = scene.run(&["push", "bundles", "--to", &cloud.url, "--json"]).done().json();
    assert_eq!((rest["stored"].as_u64(), rest["known"].as_u64()), (Some(9), Some(1)));
    let again = scene.run(&["push", "bundles", "--to", &cloud.url, "--json"]).done().json();
    assert_eq!(
        (again["stored"].as_u64(), again["known"].as_u64(), again["bytes"].as_u64()),
        (Some(0), Some(10), Some(0))
    );

    fs::create_dir(scene.path("nothing")).unwrap();
    let run = scene.run(&["push", "nothing", "--to", &cloud.url]);
    assert!(run.failed(2).contains("nothing has no bundles (.mseal)"), "{run:?}");
    scene.write("nothing/x.mseal", "not a bundle");
    let run = scene.run(&["push", "nothing", "--to", &cloud.url]);
    assert!(run.failed(2).contains("nothing/x.mseal is not a bundle: Truncated: "), "{run:?}");

    // A cloud refuses bundles of another group.
    scene.roster("away", "keys/op.key.pem", "away.cbor");
    let arguments =
        ["seal", "data.csv", "--device", "dev1", "--key", "keys/dev1.key.pem", "--out", "away"];
    let options = ["--roster", "away.cbor", "--operator", "keys/op.pub.pem"];
    scene.run(&[&arguments[..], &COLUMNS, &options].concat()).done();
    let run = scene.run(&["push", "away", "--to", &cloud.url]);
    assert!(run.stderr.contains("UnknownDevice"), "{run:?}");
    assert_ne!(run.code, 0);

    let url = cloud.url.clone();
    drop(cloud);
    let run = scene.run(&["push", "bundles", "--to", &url]);
    assert!(run.failed(6).contains("Unreachable"), "{run:?}");
    let run = scene.run(&["push", "bundles", "--to", "ftp://x"]);
    assert!(run.failed(2).contains("BadAddress"), "{run:?}");
}

#[test]
fn a_killed_replay_continues_without_losing_a_sealed_reading() {
    let scene = Scene::new();
    scene.table("data.csv", 300);
    let cloud = scene.cloud("epochs.redb");
    let options =
        ["--device", "dev1", "--key", "keys/dev1.key.pem", "--out", "bundles", "--to", &cloud.url];
    let replay = |speed| {
        [
            &[
                "replay",
                "data.csv",
                "--roster",
                "roster.cbor",
                "--operator",
                "keys/op.pub.pem",
                "--speed",
                speed,
            ][..],
            &COLUMNS,
            &options,
        ]
        .concat()
    };
    // Replay five hours in about half a second, and kill the process before it ends.
    let mut process = scene.command(&replay("36000")).stderr(Stdio::null()).spawn().unwrap();
    while scene.names("bundles").iter().filter(|name| name.ends_with(".mseal")).count() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    scene.run(&replay("max")).done();
    let files: Vec<String> = scene
        .names("bundles")
        .iter()
        .filter(|name| name.ends_with(".mseal"))
        .map(|name| format!("bundles/{name}"))
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let verified = scene.with_roster(&[&["verify", "--json"][..], &files].concat()).done().json();
    let device = &verified["devices"][0];
    assert_eq!(device["events"].as_u64(), Some(300), "every reading must be sealed once");
    assert!(device["restarts"].as_u64().unwrap() <= 1, "{device}");
    // The second run has pushed the bundles that were stored but not yet pushed when the first was
    // killed.
    let pushed = scene.run(&["push", "bundles", "--to", &cloud.url, "--json"]).done().json();
    assert_eq!(
        (pushed["stored"].as_u64(), pushed["known"].as_u64()),
        (Some(0), Some(files.len() as u64)),
        "{pushed}"
    );
}

#[test]
fn sealing_is_refused_until_an_interrupted_replay_has_finished() {
    let scene = Scene::new();
    scene.table("data.csv", 70);
    let options = ["--device", "dev1", "--key", "keys/dev1.key.pem", "--out", "bundles"];
    let group = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
    // The first reading is due at once, and the second one a minute later.
    let arguments = [&["replay", "data.csv"][..], &options, &group, &COLUMNS].concat();
    let mut process = scene.command(&arguments).stderr(Stdio::null()).spawn().unwrap();
    let waits = || {
        let journal = scene.names("keys").into_iter().find(|name| name.ends_with(".journal"));
        journal.is_some_and(|name| fs::metadata(scene.path("keys").join(name)).unwrap().len() > 60)
    };
    while !waits() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // While the replay runs, no other process can seal with the key, in any directory.
    let run = seal_into(&scene, "data.csv", "keys/dev1.key.pem", "elsewhere", &[]);
    let line = run.failed(2);
    assert!(
        line.contains("another process is sealing with ")
            && line.contains(".chain; wait for it to end"),
        "{run:?}"
    );
    process.kill().unwrap();
    process.wait().unwrap();
    // `seal` is refused, because the reading of the interrupted replay would be skipped.
    let run = scene.seal("data.csv", "dev1", &[]);
    assert!(
        run.failed(2).contains("not sealed yet: 1 reading of an interrupted replay of dev1"),
        "{run:?}"
    );
    scene.run(&[&arguments[..], &["--speed", "max"]].concat()).done();
    let files = ["bundles/dev1-0000000001.mseal", "bundles/dev1-0000000002.mseal"];
    let verified = scene.with_roster(&[&["verify", "--json"][..], &files].concat()).done().json();
    assert_eq!(verified["devices"][0]["events"].as_u64(), Some(70));
}
