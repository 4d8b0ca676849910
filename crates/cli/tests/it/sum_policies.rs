//! The policy of private sums, as an operator types the commands.

use std::fs;

use crate::scene::{Run, Scene};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

/// Makes a group of two devices with a coordinator, and the key files of its private sums with
/// masks.
fn scene() -> Scene {
    let scene = Scene::new();
    for name in ["q", "coordinator"] {
        scene.run(&["key", "new", "--out", &format!("keys/{name}")]).done();
    }
    fs::remove_file(scene.path("roster.cbor")).unwrap();
    let roster = "roster new --operator keys/op.key.pem --group home --epoch 1h --levels 16 --budget 100 \
                  --coordinator keys/coordinator.pub.pem --device dev1=keys/dev1.pub.pem \
                  --device dev2=keys/dev2.pub.pem --out roster.cbor";
    scene.run(&roster.split_whitespace().collect::<Vec<_>>()).done();
    scene
        .with_roster(&[
            "sum",
            "setup",
            "--querier",
            "keys/q.pub.pem",
            "--masks",
            "--out",
            "sumkeys",
        ])
        .done();
    for key in ["link", "querier.link"] {
        scene.run(&["key", "link", "--out", &format!("keys/{key}.key")]).done();
    }
    for (from, to) in [("link", "dev1.link"), ("querier.link", "dev1.sum-link")] {
        let (secret, out) = (format!("keys/{from}.key"), format!("keys/{to}.key"));
        let link = ["key", "link", "--group-secret", &secret, "--device", "dev1", "--out", &out];
        scene.with_roster(&link).done();
    }
    scene
}

/// Writes `policy.toml` and signs it.
fn sign(scene: &Scene, version: u32, rest: &str, out: &str) -> Run {
    scene.write("policy.toml", &format!("version = {version}\nmin_count = 2\n{rest}"));
    let arguments = ["sum", "policy", "sign", "policy.toml", "--roster", "roster.cbor"];
    let keys = ["--operator-key", "keys/op.key.pem", "--out", out];
    scene.run(&[&arguments[..], &keys[..]].concat())
}

const QUERIER: &str = "[[querier]]\nkey = \"keys/q.pub.pem\"\nepoch = \"30s\"\n[querier.columns]\n\
                       \"temperature:Cel:i16/100\" = \"-40..85\"\n";

/// Checks the configuration of `dev1`, with more lines in its section `[sum]`.
fn device(scene: &Scene, more: &str) -> Run {
    scene.write(
        "dev1.toml",
        &format!(
            "device = \"dev1\"\nkey = \"keys/dev1.key.pem\"\nroster = \"roster.cbor\"\n\
             operator = \"keys/op.pub.pem\"\nlink_secret = \"keys/dev1.link.key\"\nstate = \"dev1\"\n\
             [link]\nurl = \"mqtt://127.0.0.1:1\"\n[source]\ncolumns = [\"temperature:Cel:i16/100\"]\n\
             [sum]\nkey = \"sumkeys/dev1.sum.key\"\nparent = \"querier\"\n\
             link_secret = \"keys/dev1.sum-link.key\"\n{more}"
        ),
    );
    scene.run(&["device", "run", "--config", "dev1.toml", "--check"])
}

#[test]
fn a_policy_is_signed_and_shown() {
    let scene = scene();
    sign(&scene, 7, QUERIER, "policy.cbor").done();
    let shown =
        scene.with_roster(&["sum", "policy", "show", "policy.cbor", "--json"]).done().json();
    assert_eq!((&shown["version"], &shown["min_count"]), (&7.into(), &2.into()));
    let querier = &shown["queriers"][0];
    assert_eq!((&querier["trusted"], &querier["epoch_ms"]), (&false.into(), &30_000.into()));
    let column =
        serde_json::json!({ "name": "temperature", "divisor": 100, "range": "-40.00..85.00" });
    assert_eq!(querier["columns"][0], column);
    let text = scene.with_roster(&["sum", "policy", "show", "policy.cbor"]).done();
    assert!(text.stderr.contains("sums of whole key groups only"), "{text:?}");
    // A policy that another party signed.
    let other = ["sum", "policy", "show", "policy.cbor", "--roster", "roster.cbor"];
    let other = scene.run(&[&other[..], &["--operator", "keys/stranger.pub.pem"]].concat());
    assert!(matches!(other.code, USAGE | REFUSED), "{other:?}");
}

#[test]
fn mistakes_in_a_policy_are_named() {
    let scene = scene();
    for (rest, expected) in [
        ("[[querier]]\nkey = \"keys/q.pub.pem\"\nepoch = \"1ms\"\n", "FieldOutOfRange"),
        ("[[querier]]\nkey = \"keys/none.pem\"\nepoch = \"30s\"\n", "keys/none.pem"),
        ("[[querier]]\nepoch = \"30s\"\n", "key"),
        (&QUERIER.replace("-40..85", ""), "give the range"),
        (&QUERIER.replace("-40..85", "85"), "two numbers"),
        (&QUERIER.replace("-40..85", "85..-40"), "RangeEmpty"),
        (&QUERIER.replace("i16/100", "string"), "UnknownFieldType"),
        (&QUERIER.replace("i16/100", "text"), "InvalidTextLength"),
        (&format!("{QUERIER}{QUERIER}"), "FieldOutOfRange"),
        ("min_counts = 5\n", "min_counts"),
    ] {
        let run = sign(&scene, 1, rest, "policy.cbor");
        assert!(run.failed(USAGE).contains(expected), "{rest}: {run:?}");
    }
    assert!(!scene.path("policy.cbor").exists());
}

#[test]
fn a_device_with_masks_needs_a_policy_and_refuses_an_earlier_one() {
    let scene = scene();
    let missing = device(&scene, "");
    assert!(missing.failed(USAGE).contains("PolicyMissing"), "{missing:?}");
    sign(&scene, 2, QUERIER, "policy.cbor").done();
    device(&scene, "policy = \"policy.cbor\"\n").done();
    // The state has a copy of the newest policy. An earlier version and another policy with the same
    // version are refused.
    fs::create_dir_all(scene.path("dev1")).unwrap();
    fs::copy(scene.path("policy.cbor"), scene.path("dev1/policy.cbor")).unwrap();
    device(&scene, "policy = \"policy.cbor\"\n").done();
    for (version, rest) in [(1, QUERIER), (2, "")] {
        sign(&scene, version, rest, "policy.cbor").done();
        let older = device(&scene, "policy = \"policy.cbor\"\n");
        assert!(older.failed(USAGE).contains("OlderPolicy"), "{older:?}");
    }
    sign(&scene, 3, QUERIER, "policy.cbor").done();
    device(&scene, "policy = \"policy.cbor\"\n").done();
    // A mote has no masks.
    let key = fs::read_to_string(scene.path("sumkeys/dev1.sum.key")).unwrap();
    assert!(key.contains("MOTESEAL SUM SOURCE KEY"));
}

#[test]
fn a_querier_refuses_its_own_query_before_it_asks_the_devices() {
    let scene = scene();
    sign(&scene, 1, QUERIER, "policy.cbor").done();
    scene.write(
        "tree.toml",
        "[gateways]\nroot = \"querier\"\n[devices]\ndev1 = \"root\"\ndev2 = \"root\"\n",
    );
    scene.write(
        "querier.toml",
        "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/q.key.pem\"\n\
         keys = \"sumkeys/querier.sum.key\"\ntree = \"tree.toml\"\npolicy = \"policy.cbor\"\n\
         link_secret = \"keys/querier.link.key\"\nstate = \"querier.state\"\n\
         columns = [\"temperature:Cel:i16/100\"]\n[link]\nurl = \"mqtt://127.0.0.1:1\"\n",
    );
    for (query, expected) in [
        ("SELECT SUM(temperature) FROM sensors EPOCH DURATION 31s", "EpochNotPermitted"),
        (
            "SELECT SUM(temperature) FROM sensors WHERE temperature > 3 EPOCH DURATION 30s",
            "ConditionNotPermitted",
        ),
        ("SELECT STDDEV(temperature) FROM sensors EPOCH DURATION 30s", "GroupTooSmall"),
    ] {
        let run = scene.run(&["sum", "run", query, "--config", "querier.toml"]);
        assert!(run.failed(USAGE).contains(expected), "{query}: {run:?}");
    }
}
