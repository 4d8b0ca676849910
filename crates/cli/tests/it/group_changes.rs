//! A group changes while its services run: devices join and leave, keys change and are revoked, and
//! epochs get another length. Finding G2 of the review.

use std::time::{Duration, Instant};

use crate::scene::{COLUMNS, Cloud, Run, Scene, own_time, repository};

/// Issues the next version of `roster.cbor`.
fn change(scene: &Scene, arguments: &[&str]) -> Run {
    let (command, rest) = arguments.split_first().unwrap();
    let roster = ["--roster", "roster.cbor", "--operator", "keys/op.key.pem"];
    scene.run(&[&["roster", command][..], &roster, rest].concat())
}

/// Writes a table with a reading every five minutes, for `hours` hours from `hour` o'clock on
/// 2026-01-01.
fn table(scene: &Scene, name: &str, hour: u64, hours: u64) {
    let mut text = String::from("ts,humidity,temperature\n");
    for at in 0..12 * hours {
        let seconds = 1_767_225_600 + 3600 * hour + 300 * at;
        text += &format!("{seconds},40.5,20.{:02}\n", at % 100);
    }
    scene.write(name, &text);
}

fn seal(scene: &Scene, table: &str, device: &str, key: &str, more: &[&str]) -> Run {
    let arguments = ["seal", table, "--device", device, "--key", key, "--out", "bundles"];
    scene.with_roster(&[&arguments[..], &COLUMNS[..], more].concat())
}

/// Pushes until the cloud has loaded the newest roster.
fn push(scene: &Scene, cloud: &Cloud) {
    let start = Instant::now();
    loop {
        let run = scene.run(&["push", "bundles", "--to", &cloud.url]);
        if run.code == 0 {
            return;
        }
        assert!(
            ["UnknownRoster", "UnknownDevice"].iter().any(|name| run.stderr.contains(name)),
            "{run:?}"
        );
        assert!(start.elapsed() < Duration::from_secs(30), "the roster is not loaded: {run:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Gets all readings of devices between two hours.
fn get(scene: &Scene, cloud: &Cloud, devices: &[&str], hours: (u64, u64)) -> Run {
    let time = |hour: u64| format!("2026-01-01T{hour:02}:00:00Z");
    let (since, until) = (time(hours.0), time(hours.1));
    let range = [
        "--from", &cloud.url, "--since", &since, "--until", &until, "--format", "csv", "--rate",
        "1",
    ];
    scene.with_roster(&[&["get"][..], devices, &range].concat())
}

fn rows(run: &Run) -> usize {
    assert_eq!(run.code, 0, "{run:?}");
    run.out.lines().count() - 1
}

#[test]
fn a_group_changes_while_its_cloud_runs() {
    let scene = Scene::new();
    for key in ["dev1b", "dev3"] {
        scene.run(&["key", "new", "--out", &format!("keys/{key}")]).done();
    }
    let cloud = scene.cloud("epochs.redb");
    table(&scene, "morning.csv", 0, 3);
    seal(&scene, "morning.csv", "dev1", "keys/dev1.key.pem", &[]).done();
    seal(&scene, "morning.csv", "dev2", "keys/dev2.key.pem", &[]).done();
    push(&scene, &cloud);

    // A device joins. The cloud loads the version without a restart.
    let added = change(
        &scene,
        &["add", "--device", "dev3=keys/dev3.pub.pem", "--from", "2026-01-01T01:00:00Z"],
    )
    .done();
    assert!(
        added.stderr.contains("version 1") && added.stderr.contains("2026-01-01T01:00:00Z"),
        "{added:?}"
    );
    let early = seal(&scene, "morning.csv", "dev3", "keys/dev3.key.pem", &[]);
    assert!(early.failed(2).contains("KeyMissing") || early.stderr.contains("key"), "{early:?}");
    table(&scene, "later.csv", 1, 2);
    seal(&scene, "later.csv", "dev3", "keys/dev3.key.pem", &[]).done();
    push(&scene, &cloud);
    assert_eq!(
        rows(&get(&scene, &cloud, &["dev1", "dev2", "dev3"], (0, 3))),
        3 * 12 + 3 * 12 + 2 * 12
    );

    // A key changes at 03:00. The old one is no longer valid then, and the chain goes on.
    change(
        &scene,
        &["rotate", "--device", "dev1=keys/dev1b.pub.pem", "--from", "2026-01-01T03:00:00Z"],
    )
    .done();
    table(&scene, "noon.csv", 3, 2);
    assert!(seal(&scene, "noon.csv", "dev1", "keys/dev1.key.pem", &[]).failed(2).contains("key"));
    let lost = seal(&scene, "noon.csv", "dev1", "keys/dev1b.key.pem", &[]);
    assert!(lost.failed(2).contains("--state"), "a new key does not begin a new chain: {lost:?}");
    let new = ["chain", "new", "--key", "keys/dev1b.key.pem"];
    assert!(scene.with_roster(&new).failed(2).contains("ChainExists"), "nor on request");
    let state = scene
        .names("keys")
        .into_iter()
        .find(|name| name.starts_with("dev1.") && name.ends_with(".chain"))
        .unwrap();
    let state = format!("keys/{state}");
    let salt = ["--state", &state, "--salt-key", "keys/dev1.salt.key"];
    seal(&scene, "noon.csv", "dev1", "keys/dev1b.key.pem", &salt).done();
    push(&scene, &cloud);
    assert_eq!(rows(&get(&scene, &cloud, &["dev1"], (0, 5))), 5 * 12);

    // A device is removed at 04:00: it cannot seal later, its past stays verifiable, and nothing is
    // missing after its end.
    change(&scene, &["remove", "--device", "dev2", "--from", "2026-01-01T04:00:00Z"]).done();
    assert!(
        seal(&scene, "noon.csv", "dev2", "keys/dev2.key.pem", &[]).failed(2).contains("removed")
    );
    table(&scene, "three.csv", 3, 1);
    seal(&scene, "three.csv", "dev2", "keys/dev2.key.pem", &[]).done();
    push(&scene, &cloud);
    assert_eq!(rows(&get(&scene, &cloud, &["dev2"], (0, 8))), 4 * 12);

    // A stolen key is revoked from 02:00 on: what it sealed from then on is void.
    change(&scene, &["revoke", "--device", "dev3", "--from", "2026-01-01T02:00:00Z"]).done();
    let start = Instant::now();
    loop {
        let run = get(&scene, &cloud, &["dev3"], (0, 3));
        // Until the cloud has loaded the roster, it serves seals that this client rejects.
        if run.code == 0 {
            assert_eq!(rows(&run), 12);
            break;
        }
        assert!(run.failed(3).contains("KeyEnded"), "{run:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "the roster is not loaded");
        std::thread::sleep(Duration::from_millis(100));
    }
    // It joins again with a new key.
    scene.run(&["key", "new", "--out", "keys/dev3b"]).done();
    change(
        &scene,
        &["add", "--device", "dev3=keys/dev3b.pub.pem", "--from", "2026-01-01T05:00:00Z"],
    )
    .done();

    // Epochs get shorter at 06:00.
    change(&scene, &["set", "--epoch", "20m", "--levels", "8", "--from", "2026-01-01T06:00:00Z"])
        .done();
    table(&scene, "evening.csv", 5, 3);
    seal(&scene, "evening.csv", "dev1", "keys/dev1b.key.pem", &salt).done();
    push(&scene, &cloud);
    let answer = get(&scene, &cloud, &["dev1"], (0, 8));
    assert_eq!(rows(&answer), 8 * 12);
    let times: Vec<&str> =
        answer.out.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert!(!times.is_empty());
    assert_eq!(rows(&get(&scene, &cloud, &["dev1"], (6, 8))), 2 * 12);

    // A proof of all versions verifies with the newest roster.
    let all = [
        "get",
        "dev1",
        "dev2",
        "--from",
        &cloud.url,
        "--until",
        "2026-01-01T08:00:00Z",
        "--rate",
        "1",
        "--proof",
        "all.mproof",
        "-o",
        "all.csv",
    ];
    scene.with_roster(&all).done();
    scene.with_roster(&["verify", "all.mproof"]).done();

    // The void seals of the stolen key are no damage.
    drop(cloud);
    let check = scene.with_roster(&["store", "check", "epochs.redb"]).done();
    assert!(check.out.contains("1 seal void"), "{check:?}");

    let shown = scene
        .run(&["roster", "show", "roster.cbor", "--operator", "keys/op.pub.pem", "--json"])
        .done()
        .json();
    assert_eq!(shown["version"], 6);
    assert_eq!(shown["periods"].as_array().unwrap().len(), 2);
}

#[test]
fn a_thousand_devices_are_enrolled_with_one_command() {
    let scene = Scene::new();
    let names: String = (0..1000).map(|at| format!("sensor-{at:04}\n")).collect();
    scene.write("names.txt", &names);
    let roster = ["--roster", "roster.cbor", "--operator", "keys/op.key.pem"];
    let add = ["roster", "add", "--devices-file", "names.txt", "--keys", "devices"];
    let took = own_time(&mut scene.command(&[&add[..], &roster].concat()));
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(scene.names("devices").len(), 4000);
    let shown = scene
        .run(&["roster", "show", "roster.cbor", "--operator", "keys/op.pub.pem", "--json"])
        .done()
        .json();
    assert_eq!(shown["devices"].as_array().unwrap().len(), 1002);
    // The command can be repeated only with new names; nothing is overwritten.
    let again = change(&scene, &["add", "--devices-file", "names.txt", "--keys", "devices"]);
    assert!(again.failed(2).contains("sensor-0000"), "{again:?}");
    scene.write("wrong.txt", "# a comment\nfine=keys/dev1.pub.pem\n../up\n");
    let wrong = change(&scene, &["add", "--devices-file", "wrong.txt", "--keys", "devices"]);
    assert!(wrong.failed(2).contains("wrong.txt, line 3"), "{wrong:?}");
}

/// Copies a certificate request of OpenSSL from the tests of the core.
fn copy_request(scene: &Scene, name: &str, to: &str) -> String {
    let path = repository("crates/core/tests/it/requests").join(name);
    let request = std::fs::read_to_string(path).unwrap();
    scene.write(to, &request);
    request
}

/// Returns the newest public key of each device of the roster, in hexadecimal digits.
fn newest_keys(scene: &Scene) -> Vec<(String, String)> {
    let shown = scene
        .run(&["roster", "show", "roster.cbor", "--operator", "keys/op.pub.pem", "--json"])
        .done()
        .json();
    let devices = shown["devices"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    devices
        .iter()
        .map(|device| {
            let keys = device["keys"].as_array().unwrap();
            (text(&device["name"]), text(&keys.last().unwrap()["key"]["public_key"]))
        })
        .collect()
}

const ED25519_KEY: &str = "d8264f0bc4666a43b97251d82f09486540d313e3f05ba56689d43ee6762bf7e8";
const P256_KEY: &str = "047041a37eae59be7dbdb19df31f47b4b308272243c2de73d09c4c26fe65277076\
                        93a61c4edf64638964ae6921d846ecadc30c03207b9d8b2f57bee6bda0a91ea7";

#[test]
fn devices_are_enrolled_and_rotated_with_certificate_requests() {
    let scene = Scene::new();
    copy_request(&scene, "ed25519.pem", "keys/dev3.csr.pem");
    copy_request(&scene, "p256_extensions.pem", "keys/dev4.csr.pem");
    scene.write("names.txt", "dev3 = keys/dev3.csr.pem\ndev4 = keys/dev4.csr.pem\n");
    change(&scene, &["add", "--devices-file", "names.txt"]).done();
    let has = |device: &str, key: &str| newest_keys(&scene).contains(&(device.into(), key.into()));
    assert!(has("dev3", ED25519_KEY) && has("dev4", P256_KEY), "{:?}", newest_keys(&scene));

    copy_request(&scene, "ed25519_extensions.pem", "keys/dev1b.csr.pem");
    change(&scene, &["rotate", "--device", "dev1=keys/dev1b.csr.pem"]).done();
    assert!(has("dev1", "4dc7b9362cec78548d2072482040592f6e79bf581d1013cb33e6003c4b20265c"));

    // A request is another file with the same key.
    let again = change(
        &scene,
        &["add", "--device", "a=keys/dev1b.csr.pem", "--device", "b=keys/dev1b.csr.pem"],
    );
    assert!(again.failed(2).contains("the public key of b is also the key of a"), "{again:?}");
}

#[test]
fn refuses_a_forged_certificate_request_and_names_file_and_device() {
    let scene = Scene::new();
    let request = copy_request(&scene, "ed25519.pem", "keys/dev3.csr.pem");
    // The subject is changed from dev1 to dev9.
    let forged = request.replacen("ZGV2MTAq", "ZGV2OTAq", 1);
    assert_ne!(forged, request);
    scene.write("keys/dev9.csr.pem", &forged);
    scene.write("names.txt", "dev3 = keys/dev3.csr.pem\ndev9 = keys/dev9.csr.pem\n");
    let before = std::fs::read(scene.path("roster.cbor")).unwrap();
    let refused = change(&scene, &["add", "--devices-file", "names.txt"]);
    let reason = refused.failed(2);
    assert!(reason.contains("dev9: keys/dev9.csr.pem: RequestNotAuthentic: "), "{reason}");
    assert!(reason.contains("make it again with the device's secret key"), "{reason}");
    assert_eq!(std::fs::read(scene.path("roster.cbor")).unwrap(), before);

    copy_request(&scene, "rsa.pem", "keys/rsa.csr.pem");
    let refused = change(&scene, &["add", "--device", "dev5=keys/rsa.csr.pem"]);
    let reason = refused.failed(2);
    assert!(reason.contains("dev5: keys/rsa.csr.pem: UnknownAlgorithm: "), "{reason}");
}

#[test]
fn only_keys_of_devices_are_read_from_certificate_requests() {
    let scene = Scene::new();
    copy_request(&scene, "ed25519.pem", "keys/q.csr.pem");
    let set = change(&scene, &["set", "--querier", "keys/q.csr.pem"]);
    assert!(set.failed(2).contains("keys/q.csr.pem: WrongPemLabel: "), "{set:?}");
    let show = scene.run(&["roster", "show", "roster.cbor", "--operator", "keys/q.csr.pem"]);
    assert!(show.failed(2).contains("keys/q.csr.pem: WrongPemLabel: "), "{show:?}");
    let show = scene.run(&["roster", "show", "keys/q.csr.pem", "--operator", "keys/op.pub.pem"]);
    assert!(show.failed(2).contains("it looks like a certificate request (PEM)"), "{show:?}");
}
