//! Bad input to the binary. The error is one line that states the cause and the remedy, the exit
//! code is right, and no file is written in part.

use std::fs;
use std::os::unix::fs::symlink;

use crate::scene::{COLUMNS, Scene};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

#[test]
fn an_unknown_column_lists_the_existing_columns() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    let run = scene.seal("data.csv", "dev1", &["--column", "pressure:hPa:u16/10"]);
    let line = run.failed(USAGE);
    assert!(
        line.contains(
            "data.csv: there is no column \"pressure\"; the file has ts, humidity, temperature"
        ),
        "{line}"
    );
    assert_eq!(scene.names("bundles"), [""; 0]);
}

#[test]
fn an_unknown_device_lists_the_devices_of_the_roster() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    let run = scene.seal("data.csv", "stranger", &[]);
    assert!(run.failed(USAGE).contains("has no device \"stranger\"; it has dev1, dev2"), "{run:?}");
    // A device's name with the key of another device.
    let key = ["--key", "keys/stranger.key.pem", "--out", "bundles"];
    let run = scene.with_roster(
        &[&["seal", "data.csv", "--device", "dev1"][..], &key[..], &COLUMNS[..]].concat(),
    );
    assert!(
        run.failed(USAGE).contains("not the key that roster.cbor certifies for dev1"),
        "{run:?}"
    );
    assert!(!scene.path("bundles").exists(), "a directory was created");
    assert_eq!(scene.names("bundles"), [""; 0]);
}

#[test]
fn times_out_of_order_are_reported_with_both_lines() {
    let scene = Scene::new();
    scene.write("data.csv", "ts,humidity,temperature\n7200,40,20\n7260,40,20\n3600,40,20\n");
    let run = scene.seal("data.csv", "dev1", &[]);
    let line = run.failed(USAGE);
    let expected = "data.csv:4: times go back: 1970-01-01T01:00:00Z is before 1970-01-01T02:01:00Z in line 3; sort the file";
    assert!(line.contains(expected), "{line}");
    assert_eq!(scene.names("bundles"), [""; 0]);
    scene.seal("data.csv", "dev1", &["--sort"]).done();
    // Sealing the file again also fails, because these epochs are already sealed.
    let sealed = scene.names("bundles");
    let run = scene.seal("data.csv", "dev1", &["--sort"]);
    assert!(
        run.failed(USAGE).contains(
            "the reading at 1970-01-01T01:00:00Z is in an epoch that the device has already closed"
        ),
        "{run:?}"
    );
    assert!(run.failed(USAGE).contains("--new-only"), "{run:?}");
    scene.seal("data.csv", "dev1", &["--sort", "--new-only"]).done();
    assert_eq!(scene.names("bundles"), sealed);
}

#[test]
fn rejects_times_in_the_future() {
    let scene = Scene::new();
    scene.write("data.csv", "ts,humidity,temperature\n2100-01-01,40,20\n");
    let run = scene.seal("data.csv", "dev1", &[]);
    assert!(
        run.failed(USAGE).contains("data.csv:2: 2100-01-01T00:00:00Z is in the future"),
        "{run:?}"
    );
    assert_eq!(scene.names("bundles"), [""; 0]);
    scene.seal("data.csv", "dev1", &["--allow-future"]).done();
}

#[test]
fn a_bundle_that_cannot_be_written_leaves_no_files() {
    let scene = Scene::new();
    scene.table("data.csv", 200);
    let obstacle = scene.path("bundles/dev1-0000000002.mseal.tmp");
    fs::create_dir_all(&obstacle).unwrap();
    let run = scene.seal("data.csv", "dev1", &[]);
    let line = run.failed(1);
    assert!(line.contains("bundles/dev1-0000000002.mseal.tmp: "), "{line}");
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(scene.names("bundles"), [""; 0]);
    // Once the bundle can be written, sealing succeeds as if nothing had failed: the failed attempt
    // used no index.
    scene.seal("data.csv", "dev1", &[]).done();
    assert_eq!(scene.names("bundles").len(), 4);
    let verified = scene.with_roster(&["verify", "--json", "bundles/dev1-0000000000.mseal"]).done();
    assert_eq!(verified.json()["devices"][0]["restarts"], 0);
}

/// Finding B8 of the review. Another user who may write to the folder places symbolic links.
#[test]
fn bundles_and_states_are_private_and_not_written_through_links() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = Scene::new();
    scene.table("data.csv", 200);
    scene.write("victim", "precious");
    fs::create_dir(scene.path("bundles")).unwrap();
    let key = "keys/dev1.key.pem";
    let states: Vec<String> = ["bundles/dev1-0000000002.mseal", "keys/dev1.begun", "dev1.chain"]
        .iter()
        .map(|name| format!("{name}.tmp"))
        .chain([format!("{key}.chain.tmp")])
        .collect();
    for link in &states {
        symlink(scene.path("victim"), scene.path(link)).unwrap();
    }
    scene.seal("data.csv", "dev1", &["--state", "dev1.chain"]).done();
    assert_eq!(fs::read(scene.path("victim")).unwrap(), b"precious");
    let mut names: Vec<String> =
        scene.names("bundles").into_iter().map(|name| format!("bundles/{name}")).collect();
    names.extend(["dev1.chain".to_owned(), "dev1.chain.lock".to_owned(), key.to_owned()]);
    let mut checked = 0;
    for name in names {
        let facts = fs::symlink_metadata(scene.path(&name)).unwrap();
        assert!(facts.is_file(), "{name}");
        assert_eq!(facts.permissions().mode() & 0o777, 0o600, "{name}");
        checked += 1;
    }
    assert_eq!(checked, 4 + 3);
    let cloud = scene.cloud("epochs.redb");
    for name in ["epochs.redb", "epochs.redb-journal"] {
        let mode = fs::metadata(scene.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(cloud);
}

#[test]
fn a_full_disk_for_stdout_is_an_error() {
    let scene = Scene::new();
    let arguments = ["roster", "show", "roster.cbor", "--operator", "keys/op.pub.pem"];
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = scene
        .command(&arguments)
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_port_in_use_is_reported_and_leaves_no_store() {
    let scene = Scene::new();
    let cloud = scene.cloud("epochs.redb");
    let address = format!("127.0.0.1:{}", cloud.port());
    let run = scene.with_roster(&["cloud", "run", "--store", "other.redb", "--listen", &address]);
    assert!(run.failed(USAGE).contains(&format!("{address} is in use")), "{run:?}");
    assert!(!scene.path("other.redb").exists());
    let run =
        scene.with_roster(&["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"]);
    assert!(run.failed(USAGE).contains("another process has epochs.redb open"), "{run:?}");
}

#[test]
fn every_command_refuses_a_roster_of_another_operator() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.roster("home", "keys/stranger.key.pem", "false.cbor");
    let roster_options = ["--roster", "false.cbor", "--operator", "keys/op.pub.pem"];
    let seal =
        [
            &[
                "seal",
                "data.csv",
                "--device",
                "dev1",
                "--key",
                "keys/dev1.key.pem",
                "--out",
                "more",
            ][..],
            &COLUMNS[..],
        ]
        .concat();
    for command in [
        &seal[..],
        &["verify", "bundles/dev1-0000000000.mseal"],
        &["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"],
    ] {
        let run = scene.run(&[command, &roster_options[..]].concat());
        let line = run.failed(REFUSED);
        assert!(
            line.contains("false.cbor: NotAuthentic: the roster is not signed by this operator"),
            "{line}"
        );
        assert!(line.contains("keys/op.pub.pem"), "{line}");
    }
    assert!(!scene.path("more").exists() && !scene.path("epochs.redb").exists());
}

#[test]
fn refuses_bundles_of_another_group() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.roster("away", "keys/op.key.pem", "away.cbor");
    let run = scene.run(&[
        "verify",
        "bundles/dev1-0000000000.mseal",
        "--roster",
        "away.cbor",
        "--operator",
        "keys/op.pub.pem",
    ]);
    assert!(
        run.failed(REFUSED).contains("bundles/dev1-0000000000.mseal: UnknownDevice"),
        "{run:?}"
    );
}

#[test]
fn every_command_reports_an_empty_file() {
    let scene = Scene::new();
    scene.write("empty", "");
    scene.table("data.csv", 10);
    let roster_options = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
    let seal = |table: &'static str, key: &'static str| {
        [
            &["seal", table, "--device", "dev1", "--key", key, "--out", "bundles"][..],
            &COLUMNS[..],
            &roster_options[..],
        ]
        .concat()
    };
    for arguments in [
        seal("empty", "keys/dev1.key.pem"),
        seal("data.csv", "empty"),
        [&["verify", "empty"][..], &roster_options[..]].concat(),
        vec!["inspect", "empty"],
        vec!["roster", "show", "empty", "--operator", "keys/op.pub.pem"],
        vec!["roster", "show", "roster.cbor", "--operator", "empty"],
        [&["cloud", "run", "--listen", "127.0.0.1:0", "--store", "empty"][..], &roster_options[..]]
            .concat(),
    ] {
        let run = scene.run(&arguments);
        let line = run.failed(USAGE);
        assert!(line.contains("empty") && line.contains("is empty"), "{line}");
    }
    assert_eq!(scene.names("bundles"), [""; 0]);
}

#[test]
fn keys_are_never_replaced_and_never_printed() {
    let scene = Scene::new();
    let before = fs::read(scene.path("keys/dev1.key.pem")).unwrap();
    let run = scene.run(&["key", "new", "--out", "keys/dev1"]);
    assert!(run.failed(USAGE).contains("keys/dev1.key.pem already exists"), "{run:?}");
    assert_eq!(fs::read(scene.path("keys/dev1.key.pem")).unwrap(), before);
    use std::os::unix::fs::PermissionsExt as _;
    for (name, mode) in [("keys/dev1.key.pem", 0o600), ("keys/dev1.salt.key", 0o600)] {
        assert_eq!(
            fs::metadata(scene.path(name)).unwrap().permissions().mode() & 0o777,
            mode,
            "{name}"
        );
    }
}

#[test]
fn refuses_too_few_levels_for_a_budget() {
    let scene = Scene::new();
    let arguments = [
        "roster",
        "new",
        "--operator",
        "keys/op.key.pem",
        "--group",
        "g",
        "--epoch",
        "1h",
        "--levels",
        "4",
    ];
    let budget = [
        "--budget",
        "10",
        "--coordinator",
        "keys/dev2.pub.pem",
        "--expected",
        "1000",
        "--device",
        "d=keys/dev1.pub.pem",
        "--out",
        "small.cbor",
    ];
    let run = scene.run(&[&arguments[..], &budget[..]].concat());
    assert!(run.failed(USAGE).contains("--levels 4 is too few for 1000 events"), "{run:?}");
    assert!(!scene.path("small.cbor").exists());
}

#[test]
fn refuses_one_file_for_two_outputs() {
    let scene = Scene::new();
    fs::create_dir(scene.path("sub")).unwrap();
    symlink("same", scene.path("link")).unwrap();
    let get = ["get", "dev1", "--from", "http://127.0.0.1:1", "--rate", "1"];
    for (one, other) in [("same", "same"), ("same", "./sub/../same"), ("link", "same")] {
        for option in ["--proof", "--pinned-seals"] {
            let run = scene.with_roster(&[&get[..], &["-o", one, option, other]].concat());
            assert!(
                run.failed(USAGE).contains("one would replace the other; name two files"),
                "{run:?}"
            );
        }
    }
    let run = scene.with_roster(&[&get[..], &["-o", "./roster.cbor"]].concat());
    assert!(
        run.failed(USAGE).contains("--out ./roster.cbor would replace an input file"),
        "{run:?}"
    );
}

#[test]
fn an_impossible_output_path_is_a_usage_error() {
    let scene = Scene::new();
    let get = ["get", "dev1", "--from", "http://127.0.0.1:1", "--rate", "1"];
    for (option, name, expected) in [
        ("-o", "nodir/x.csv", "nodir/x.csv: there is no folder nodir; make it first"),
        ("--proof", "nodir/x.mproof", "nodir/x.mproof: there is no folder nodir; make it first"),
        ("-o", "keys", "keys: it is a folder; name a file in it"),
        ("-o", "roster.cbor/x", "roster.cbor/x: roster.cbor is not a folder"),
    ] {
        let run = scene.with_roster(&[&get[..], &[option, name]].concat());
        assert!(run.failed(USAGE).contains(expected), "{run:?}");
    }
}

#[test]
fn every_command_reports_an_unreachable_cloud_in_the_same_way() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    scene.seal("data.csv", "dev1", &[]).done();
    let cloud = scene.cloud("epochs.redb");
    let elsewhere = format!("{}/elsewhere", cloud.url);
    let https = cloud.url.replace("http://", "https://");
    for (url, expected) in [(&elsewhere, "elsewhere"), (&https, "does not use TLS; try http://")] {
        let get = ["get", "dev1", "--from", url, "--rate", "1", "--format", "csv"];
        for run in [scene.with_roster(&get), scene.run(&["push", "bundles", "--to", url])] {
            assert!(run.failed(6).contains(expected), "{run:?}");
        }
    }
}

#[test]
fn a_push_waits_for_a_cloud_that_is_starting() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    scene.seal("data.csv", "dev1", &[]).done();
    // A port on which nothing listens: it was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut push = scene.command(&["push", "bundles", "--to", &format!("http://{address}")]);
    let mut push = push.stderr(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let _cloud = scene.cloud_at("epochs.redb", &address);
    assert!(push.wait().unwrap().success());
}

#[test]
fn a_roster_needs_distinct_keys_and_names_that_are_file_names() {
    let scene = Scene::new();
    let roster = |devices: &[&str]| {
        let arguments = [
            "roster",
            "new",
            "--operator",
            "keys/op.key.pem",
            "--group",
            "g",
            "--epoch",
            "1h",
            "--out",
            "new.cbor",
        ];
        let devices = devices.iter().flat_map(|device| ["--device", device]);
        scene.run(&arguments.into_iter().chain(devices).collect::<Vec<_>>())
    };
    let run = roster(&["a=keys/dev1.pub.pem", "b=keys/dev1.pub.pem"]);
    assert!(run.failed(USAGE).contains("the public key of b is also the key of a"), "{run:?}");
    for name in ["../../x", "a/b", ".hidden", "a b", "a\nb"] {
        let run = roster(&[&format!("{name}=keys/dev1.pub.pem")]);
        assert_eq!(run.code, USAGE, "{run:?}");
        assert!(run.stderr.contains("a device's name is also a file name"), "{run:?}");
    }
    assert!(!scene.path("new.cbor").exists());
    roster(&["Mote_1.a-b=keys/dev1.pub.pem", "b=keys/dev2.pub.pem"]).done();
}

#[test]
fn an_error_about_a_wrong_file_names_its_likely_kind() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    for (file, like) in [
        ("data.csv", "a text, such as a CSV"),
        ("keys/dev1.pub.pem", "a key (PEM)"),
        ("keys/dev1.salt.key", "a secret, such as NAME.salt.key or NAME.stream.key"),
        ("roster.cbor", "a roster or a certificate"),
    ] {
        for run in [scene.with_roster(&["verify", file]), scene.run(&["inspect", file])] {
            assert!(
                run.failed(REFUSED)
                    .contains(&format!("this is not a bundle or proof; it looks like {like}")),
                "{run:?}"
            );
        }
        if file != "roster.cbor" {
            let run = scene.run(&["roster", "show", file, "--operator", "keys/op.pub.pem"]);
            assert!(
                run.failed(USAGE)
                    .contains(&format!("{file} is not a roster; it looks like {like}")),
                "{run:?}"
            );
        }
    }
}

#[test]
fn reports_a_directory_instead_of_a_file_and_the_reverse() {
    let scene = Scene::new();
    scene.table("data.csv", 10);
    for (store, expected) in [
        ("keys", "--store keys is a directory"),
        ("nodir/x.redb", "there is no folder nodir; make it first"),
    ] {
        let run = scene.with_roster(&["cloud", "run", "--listen", "127.0.0.1:0", "--store", store]);
        assert!(run.failed(USAGE).contains(expected), "{run:?}");
    }
    for run in [
        scene.with_roster(&["store", "check", "keys"]),
        scene.run(&["store", "discard-journal", "keys"]),
    ] {
        assert!(run.failed(USAGE).contains("keys is a directory"), "{run:?}");
    }
    scene.write("bundles", "");
    let run = scene.seal("data.csv", "dev1", &[]);
    assert!(
        run.failed(USAGE)
            .contains("bundles: this path, or a part of it, is a file; name a directory"),
        "{run:?}"
    );
}

#[test]
fn names_a_roster_of_another_operator_as_the_cause_and_every_file_once() {
    let scene = Scene::new();
    scene.table("data.csv", 200);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.roster("home", "keys/stranger.key.pem", "other.cbor");
    let names = scene.names("bundles");
    assert_eq!(names.len(), 4);
    // A directory argument means all bundles in it.
    let run = scene.run(&[
        "verify",
        "bundles",
        "--roster",
        "other.cbor",
        "--operator",
        "keys/stranger.pub.pem",
    ]);
    assert_eq!(run.code, REFUSED, "{run:?}");
    let lines: Vec<&str> =
        run.stderr.lines().filter(|line| line.starts_with("moteseal: ")).collect();
    assert_eq!(lines.len(), names.len(), "{run:?}");
    for (line, name) in lines.iter().zip(&names) {
        assert!(
            line.contains(name) && line.contains("no seal verifies under other.cbor"),
            "{line}"
        );
    }
    let run = scene.with_roster(&["verify", "bundles"]).done();
    assert!(
        run.out.contains("4 of seals 0 to 3  200 readings  epochs from 2026-01-01T00:00:00Z to 2026-01-01T04:00:00Z"),
        "{run:?}"
    );
}

#[test]
fn a_file_size_limit_is_an_error_and_leaves_no_files() {
    let scene = Scene::new();
    scene.table("data.csv", 3000);
    let arguments = [
        "seal",
        "data.csv",
        "--device",
        "dev1",
        "--key",
        "keys/dev1.key.pem",
        "--max-events",
        "3000",
    ];
    let group = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem", "--out", "bundles"];
    let binary = scene.command(&[&arguments[..], &group, &COLUMNS].concat());
    // With a limit of 0 bytes per file, nothing can be written.
    let mut limited = std::process::Command::new("bash");
    limited
        .args(["-c", "ulimit -f 0; exec \"$0\" \"$@\" 2>&1 | cat; exit ${PIPESTATUS[0]}"])
        .arg(binary.get_program());
    let output = limited.args(binary.get_args()).current_dir(scene.path("")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("moteseal: "), "{output:?}");
    assert!(
        !scene.names("bundles").iter().any(|name| name.ends_with(".tmp")),
        "{:?}",
        scene.names("bundles")
    );
}
