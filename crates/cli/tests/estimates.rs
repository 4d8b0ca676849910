//! `moteseal estimate` over a cloud: what it says of a group is near the truth of the tables, and between bounds that hold it.
#![allow(clippy::unwrap_used, missing_docs)]

mod budgeted;
mod scene;

use std::fs;

use budgeted::{Cloud, FIRST, Group, secret};
use moteseal_core::identity::encode_public_pem;
use scene::{Scene, repository};
use serde_json::Value;

/// The two example tables of the repository, sealed and pushed, and the temperatures in them.
fn home() -> (Scene, scene::Cloud, [Vec<f64>; 2]) {
    let scene = Scene::new();
    let temperatures = ["dev1", "dev2"].map(|device| {
        let table = repository(&format!("data/examples/{device}.csv"));
        scene.seal(table.to_str().unwrap(), device, &[]).done();
        let text = fs::read_to_string(table).unwrap();
        text.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect()
    });
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles/", "--to", &cloud.url]).done();
    (scene, cloud, temperatures)
}

fn estimate(scene: &Scene, cloud: &scene::Cloud, arguments: &[&str]) -> scene::Run {
    scene.with_roster(&[&["estimate"], arguments, &["--from", &cloud.url]].concat())
}

/// The bounds of an estimate, widened by twice its width: salts are random here, and the coverage of the bounds themselves is
/// another test's.
#[track_caller]
fn near(estimate: &Value, truth: f64) {
    let number = |name: &str| estimate[name].as_f64().unwrap();
    let (low, high) = (number("low_95"), number("high_95"));
    assert!(low <= number("value") && number("value") <= high, "{estimate}");
    let wide = 2.0 * (high - low) + 1e-9;
    assert!(low - wide <= truth && truth <= high + wide, "{estimate} of {truth}");
}

#[test]
fn a_group_is_estimated_at_one_rate_and_by_a_number_an_epoch() {
    let (scene, cloud, devices) = home();
    let mut all = devices.concat();
    all.sort_by(f64::total_cmp);
    let sum: f64 = all.iter().sum();
    let warm = all.iter().filter(|value| **value >= 21.5).count() as f64;
    let median = all[all.len() / 2];
    for choice in [["--rate", "1/8"], ["--at-most", "60"]] {
        let ask = |what: &[&str]| {
            let json = estimate(&scene, &cloud, &[what, &choice, &["--json"]].concat()).done().json();
            assert_eq!(json["group"]["population"], all.len(), "{json}");
            json["group"]["estimates"].as_array().unwrap().clone()
        };
        near(&ask(&["mean", "temperature"])[0], sum / all.len() as f64);
        near(&ask(&["sum", "temperature"])[0], sum);
        near(&ask(&["proportion", "temperature>=21.5"])[0], warm / all.len() as f64);
        near(&ask(&["count", "temperature>=21.5"])[0], warm);
        near(&ask(&["mean", "temperature", "--bootstrap", "200"])[0], sum / all.len() as f64);
        let quantiles = ask(&["quantile", "temperature", "--at", "0.25,0.5,0.75"]);
        near(&quantiles[1], median);
        assert!(quantiles[0]["value"].as_f64() < quantiles[2]["value"].as_f64());
        // What the devices signed is no estimate.
        let count = &ask(&["count", "temperature"])[0];
        assert_eq!((count["value"].as_f64(), &count["low_95"]), (Some(all.len() as f64), &count["high_95"]), "{count}");
        let edges = [all[0], median, all[all.len() - 1]];
        let text = edges.map(|edge| edge.to_string()).join(",");
        let bins = ask(&["histogram", "temperature", "--edges", &text]);
        near(&bins[0], all.iter().filter(|value| **value < median).count() as f64);
        assert_eq!(bins.len(), 2);
        assert_eq!(ask(&["histogram", "temperature"]).len(), 10);
    }
}

#[test]
fn each_device_has_its_own_estimate_and_without_a_sampled_reading_none() {
    let (scene, cloud, devices) = home();
    let json = estimate(&scene, &cloud, &["mean", "temperature", "--rate", "1/8", "--each", "--json"]).done().json();
    for about in json["devices"].as_array().unwrap() {
        let values = &devices[usize::from(about["device"] == "dev2")];
        assert_eq!(about["population"], values.len(), "{about}");
        near(&about["estimates"][0], values.iter().sum::<f64>() / values.len() as f64);
    }
    let text = estimate(&scene, &cloud, &["mean", "temperature", "dev1", "--rate", "1"]).done();
    assert!(text.out.starts_with("group        temperature mean "), "{text:?}");
    // Fewer than two of 30,000: too thin a sample, which is said and not taken for zero.
    let thin = estimate(&scene, &cloud, &["mean", "temperature", "--at-most", "1"]);
    assert!(thin.failed(4).contains("NoSample"), "{thin:?}");
    assert!(!thin.out.contains(" 0.0000"), "{thin:?}");
}

#[test]
fn a_seed_repeats_what_was_re_sampled_and_a_proof_what_was_answered() {
    let (scene, cloud, _) = home();
    let seed = "00".repeat(32);
    let ask = || {
        let arguments = ["quantile", "temperature", "--rate", "1/16", "--bootstrap", "100", "--seed", &seed, "--json"];
        estimate(&scene, &cloud, &[&arguments[..], &["--proof", "p.mproof"]].concat()).done().json()["group"].clone()
    };
    assert_eq!(ask(), ask());
    let verified = scene.with_roster(&["verify", "p.mproof", "--json"]).done().json();
    assert_eq!(verified["verified"], true);
}

#[test]
fn what_cannot_be_estimated_is_said_before_anything_is_asked_twice() {
    let (scene, cloud, _) = home();
    for (arguments, says) in [
        (&["mean", "pressure", "--rate", "1/8"][..], "there are temperature, humidity"),
        (&["mean", "temperature>3"], "only count and proportion take a condition"),
        (&["proportion", "temperature"], "a condition is a field"),
        (&["histogram", "temperature", "--bootstrap", "100"], "leave --bootstrap out"),
        (&["histogram", "temperature", "--edges", "3,2"], "ascend"),
        (&["mean", "temperature", "attic"], "UnknownDevice"),
    ] {
        let run = estimate(&scene, &cloud, arguments);
        assert!(run.failed(2).contains(says), "{run:?}");
    }
    assert_eq!(estimate(&scene, &cloud, &["quantile", "temperature", "--at", "1.5"]).code, 2);
}

#[test]
fn rows_of_the_whole_group_need_no_names() {
    let (scene, cloud, devices) = home();
    let run = scene.with_roster(&["get", "--from", &cloud.url, "--rate", "1", "--format", "csv"]).done();
    assert_eq!(run.out.lines().count() - 1, devices.concat().len());
}

/// A group with a budget keeps other rates in other epochs; it is estimated at the highest one that all of them have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_with_a_budget_is_estimated_at_the_rate_that_every_epoch_has() {
    let mut group = Group::new(12, 200, 3);
    let loads = [[900, 1200, 300, 600], [100, 40, 0, 30], [2000, 1500, 1800, 2100]];
    let uploads: Vec<_> = loads.iter().map(|readings| group.epoch(*readings)).collect();
    let cloud = Cloud::serve(&group.roster).await;
    for upload in &uploads {
        cloud.take(&group.roster, upload).await.unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("roster.cbor"), group.roster.bytes()).unwrap();
    let mut pem = [0; 512];
    fs::write(path("op.pub.pem"), encode_public_pem(&secret(98).public(), &mut pem).unwrap()).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_moteseal"));
        command.current_dir(directory.path()).arg("estimate").args(arguments).args(["--no-memory", "--json"]);
        command.args(["--from", &cloud.url, "--roster", "roster.cbor", "--operator", "op.pub.pem"]);
        let until = format!("@{}", FIRST + 3);
        let output = command.args(["--until", &until]).output().unwrap();
        let talk = String::from_utf8(output.stderr).unwrap();
        let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (output.status.code().unwrap(), json, talk)
    };
    let round = uploads.iter().map(|upload| upload.round).max().unwrap();
    assert!(uploads.iter().any(|upload| upload.round < round));
    let all: Vec<f64> = loads.iter().flatten().flat_map(|count| (0..*count).map(f64::from)).collect();
    let (sum, count) = (all.iter().sum::<f64>(), all.len() as f64);
    let (code, json, talk) = run(&["mean", "place"]);
    assert_eq!(
        (code, &json["rate"], &json["group"]["population"]),
        (0, &format!("1/{}", 1 << round.0).into(), &all.len().into()),
        "{talk}"
    );
    near(&json["group"]["estimates"][0], sum / count);
    near(&run(&["sum", "place"]).1["group"]["estimates"][0], sum);
    near(&run(&["count", "place<500"]).1["group"]["estimates"][0], all.iter().filter(|place| **place < 500.0).count() as f64);
    // The number itself is signed, however few readings there are to be had.
    assert_eq!(run(&["count", "place"]).1["group"]["estimates"][0]["value"], count);
    // By number each epoch has a rate of its own, and all that was kept can be used.
    let (code, most, _) = run(&["mean", "place", "--at-most", "10000"]);
    let kept = |json: &Value| json["group"]["sampled"].as_u64().unwrap();
    assert!(code == 0 && kept(&most) > kept(&json), "{most}");
    near(&most["group"]["estimates"][0], sum / count);
    // A rate above that cannot be had, and it is said which one can.
    let (code, _, talk) = run(&["mean", "place", "--rate", "1/2"]);
    assert!(code != 0 && talk.contains("RateUnavailable"), "{code} {talk}");
}
