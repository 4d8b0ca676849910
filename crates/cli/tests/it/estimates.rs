//! `moteseal estimate` with a cloud: its estimates are close to the true values of the tables.

use crate::scene;
use crate::upload_verifiers;
use std::fs;

use crate::budgeted::{Cloud, FIRST, Group, coordinator, secret};
use crate::scene::{Scene, repository};
use moteseal_adversary::coordinator::{Bundle, Upload};
use moteseal_adversary::{Answer, Item};
use moteseal_core::identity::encode_public_pem;
use moteseal_core::record::Scheme;
use moteseal_verify::write;
use serde_json::Value;

/// Seals and pushes the two example tables of the repository. Also returns the temperatures in
/// them.
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

/// Extends an interval on both sides by twice its width, and asserts that it then contains the true
/// value. The margin makes failures by chance practically impossible, because salts are random.
/// `uniformity` tests how often the intervals themselves contain the true value.
#[track_caller]
fn assert_near(estimate: &Value, truth: f64) {
    let number = |name: &str| estimate[name].as_f64().unwrap();
    let (low, high) = (number("low_95"), number("high_95"));
    assert!(low <= number("value") && number("value") <= high, "{estimate}");
    let margin = 2.0 * (high - low) + 1e-9;
    assert!(low - margin <= truth && truth <= high + margin, "{estimate} of {truth}");
}

#[test]
fn estimates_a_group_at_one_rate_and_by_a_count_per_epoch() {
    let (scene, cloud, devices) = home();
    let mut all = devices.concat();
    all.sort_by(f64::total_cmp);
    let sum: f64 = all.iter().sum();
    let warm = all.iter().filter(|value| **value >= 21.5).count() as f64;
    let median = all[all.len() / 2];
    for choice in [["--rate", "1/8"], ["--at-most", "60"]] {
        let ask = |statistic: &[&str]| {
            let json =
                estimate(&scene, &cloud, &[statistic, &choice, &["--json"]].concat()).done().json();
            assert_eq!(json["group"]["population"], all.len(), "{json}");
            json["group"]["estimates"].as_array().unwrap().clone()
        };
        assert_near(&ask(&["mean", "temperature"])[0], sum / all.len() as f64);
        assert_near(&ask(&["sum", "temperature"])[0], sum);
        assert_near(&ask(&["proportion", "temperature>=21.5"])[0], warm / all.len() as f64);
        assert_near(&ask(&["count", "temperature>=21.5"])[0], warm);
        assert_near(
            &ask(&["mean", "temperature", "--bootstrap", "200"])[0],
            sum / all.len() as f64,
        );
        let quantiles = ask(&["quantile", "temperature", "--at", "0.25,0.5,0.75"]);
        assert_near(&quantiles[1], median);
        assert!(quantiles[0]["value"].as_f64() < quantiles[2]["value"].as_f64());
        // The devices sign the number of readings, so it is exact.
        let count = &ask(&["count", "temperature"])[0];
        assert_eq!(
            (count["value"].as_f64(), &count["low_95"]),
            (Some(all.len() as f64), &count["high_95"]),
            "{count}"
        );
        let edges = [all[0], median, all[all.len() - 1]];
        let text = edges.map(|edge| edge.to_string()).join(",");
        let bins = ask(&["histogram", "temperature", "--edges", &text]);
        assert_near(&bins[0], all.iter().filter(|value| **value < median).count() as f64);
        assert_eq!(bins.len(), 2);
        assert_eq!(ask(&["histogram", "temperature"]).len(), 10);
    }
}

#[test]
fn each_device_has_an_estimate_unless_it_has_no_sampled_reading() {
    let (scene, cloud, devices) = home();
    let json =
        estimate(&scene, &cloud, &["mean", "temperature", "--rate", "1/8", "--each", "--json"])
            .done()
            .json();
    for device in json["devices"].as_array().unwrap() {
        let values = &devices[usize::from(device["device"] == "dev2")];
        assert_eq!(device["population"], values.len(), "{device}");
        assert_near(&device["estimates"][0], values.iter().sum::<f64>() / values.len() as f64);
    }
    let text = estimate(&scene, &cloud, &["mean", "temperature", "dev1", "--rate", "1"]).done();
    assert!(text.out.starts_with("group        temperature mean "), "{text:?}");
    // This samples too few of the 30,000 readings: NoSample is reported instead of zero.
    let small = estimate(&scene, &cloud, &["mean", "temperature", "--at-most", "1"]);
    assert!(small.failed(4).contains("NoSample"), "{small:?}");
    assert!(!small.out.contains(" 0.0000"), "{small:?}");
}

#[test]
fn a_seed_repeats_the_resampling_and_a_proof_the_response() {
    let (scene, cloud, _) = home();
    let seed = "00".repeat(32);
    let ask = || {
        let arguments = [
            "quantile",
            "temperature",
            "--rate",
            "1/16",
            "--bootstrap",
            "100",
            "--seed",
            &seed,
            "--json",
        ];
        estimate(&scene, &cloud, &[&arguments[..], &["--proof", "p.mproof"]].concat()).done().json()
            ["group"]
            .clone()
    };
    assert_eq!(ask(), ask());
    let verified = scene.with_roster(&["verify", "p.mproof", "--json"]).done().json();
    assert_eq!(verified["verified"], true);
}

#[test]
fn rejects_an_impossible_estimate_before_a_second_query() {
    let (scene, cloud, _) = home();
    for (arguments, expected) in [
        (&["mean", "pressure", "--rate", "1/8"][..], "their fields are temperature, humidity"),
        (&["mean", "temperature>3"], "only count and proportion accept a condition"),
        (&["proportion", "temperature"], "a condition is a field"),
        (&["histogram", "temperature", "--bootstrap", "100"], "omit --bootstrap"),
        (&["histogram", "temperature", "--edges", "3,2"], "ascend"),
        (&["mean", "temperature", "attic"], "UnknownDevice"),
    ] {
        let run = estimate(&scene, &cloud, arguments);
        assert!(run.failed(2).contains(expected), "{run:?}");
    }
    assert_eq!(estimate(&scene, &cloud, &["quantile", "temperature", "--at", "1.5"]).code, 2);
}

#[test]
fn rows_of_the_whole_group_need_no_names() {
    let (scene, cloud, devices) = home();
    let run =
        scene.with_roster(&["get", "--from", &cloud.url, "--rate", "1", "--format", "csv"]).done();
    assert_eq!(run.out.lines().count() - 1, devices.concat().len());
}

/// A group's cloud, and a folder with its roster in which commands run.
struct ClientFolder {
    cloud: Cloud,
    folder: tempfile::TempDir,
    until: String,
}

impl ClientFolder {
    async fn of(group: &Group, uploads: &[Upload]) -> Self {
        let cloud = Cloud::serve(&group.roster).await;
        for upload in uploads {
            cloud.take(&group.roster, upload).await.unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("roster.cbor"), group.roster.bytes()).unwrap();
        let mut pem = [0; 512];
        fs::write(
            folder.path().join("op.pub.pem"),
            encode_public_pem(&secret(98).public(), &mut pem).unwrap(),
        )
        .unwrap();
        Self { cloud, folder, until: format!("@{}", FIRST + uploads.len() as u64) }
    }

    /// Runs a command with the group's roster. Returns the exit code, stdout and stderr.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_moteseal"));
        command.current_dir(self.folder.path()).args(arguments).args([
            "--roster",
            "roster.cbor",
            "--operator",
            "op.pub.pem",
        ]);
        command.env("XDG_STATE_HOME", self.folder.path().join("state"));
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Runs a command that queries the cloud for the whole range.
    fn ask(&self, arguments: &[&str]) -> (i32, String, String) {
        self.run(
            &[arguments, &["--no-pinned-seals", "--from", &self.cloud.url, "--until", &self.until]]
                .concat(),
        )
    }

    fn estimate(&self, arguments: &[&str]) -> (i32, Value, String) {
        let (code, out, stderr) = self.ask(&[&["estimate", "--json"], arguments].concat());
        (code, serde_json::from_str(&out).unwrap_or(Value::Null), stderr)
    }
}

/// A group with a budget keeps a different share of its readings in each epoch. The estimate uses
/// the highest rate that all epochs have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn estimates_a_group_with_a_budget_at_the_common_rate() {
    let mut group = Group::new(Scheme::Star, 12, 200, 3);
    let loads = [[900, 1200, 300, 600], [100, 40, 0, 30], [2000, 1500, 1800, 2100]];
    let uploads: Vec<_> = loads.iter().map(|readings| group.epoch(*readings)).collect();
    let client = ClientFolder::of(&group, &uploads).await;
    let run = |arguments: &[&str]| client.estimate(arguments);
    let round = uploads.iter().map(|upload| upload.round).max().unwrap();
    assert!(uploads.iter().any(|upload| upload.round < round));
    let all: Vec<f64> =
        loads.iter().flatten().flat_map(|count| (0..*count).map(f64::from)).collect();
    let (sum, count) = (all.iter().sum::<f64>(), all.len() as f64);
    let (code, json, stderr) = run(&["mean", "place"]);
    assert_eq!(
        (code, &json["rate"], &json["group"]["population"]),
        (0, &format!("1/{}", 1 << round.0).into(), &all.len().into()),
        "{stderr}"
    );
    assert_near(&json["group"]["estimates"][0], sum / count);
    assert_near(&run(&["sum", "place"]).1["group"]["estimates"][0], sum);
    assert_near(
        &run(&["count", "place<500"]).1["group"]["estimates"][0],
        all.iter().filter(|place| **place < 500.0).count() as f64,
    );
    // The devices sign the number of readings, so it is known even if few of them were kept.
    assert_eq!(run(&["count", "place"]).1["group"]["estimates"][0]["value"], count);
    // With --at-most each epoch has its own rate, and every kept reading is used.
    let (code, most, _) = run(&["mean", "place", "--at-most", "10000"]);
    let kept = |json: &Value| json["group"]["sampled"].as_u64().unwrap();
    assert!(code == 0 && kept(&most) > kept(&json), "{most}");
    assert_near(&most["group"]["estimates"][0], sum / count);
    // A rate above the common rate is refused.
    let (code, _, stderr) = run(&["mean", "place", "--rate", "1/2"]);
    assert!(code != 0 && stderr.contains("RateUnavailable"), "{code} {stderr}");
}

/// Finding F7 of the review. The first epoch lacks the levels of the rate 1. Only the last one lacks
/// those of the lower rate, after the cloud has sent parts of the others. Both rates are refused with
/// one exit code, and name one rate that is available.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rate_above_the_common_rate_is_refused_in_the_same_way() {
    let mut group = Group::new(Scheme::Star, 12, 200, 3);
    let loads = [[400, 500, 30, 60], [100, 40, 0, 30], [2000, 1500, 1800, 2100]];
    let uploads: Vec<_> = loads.iter().map(|readings| group.epoch(*readings)).collect();
    let [first, _, last] = [0, 1, 2].map(|at: usize| uploads[at].round.0);
    assert!(0 < first && first < last, "{first} {last}");
    let client = ClientFolder::of(&group, &uploads).await;
    let available = format!("the highest available rate is 1/{}", 1 << last);
    for round in 0..last {
        let rate = format!("1/{}", 1 << round);
        for command in [&["get"][..], &["estimate", "mean", "place"]] {
            let (code, out, stderr) = client.ask(&[command, &["--rate", &rate]].concat());
            assert_eq!((code, &out[..]), (2, ""), "{command:?} {rate}: {stderr}");
            assert!(stderr.contains("RateUnavailable"), "{command:?} {rate}: {stderr}");
            assert!(stderr.contains(&available), "{command:?} {rate}: {stderr}");
        }
    }
    let (code, _, stderr) = client.ask(&["get", "--rate", &format!("1/{}", 1 << last)]);
    assert_eq!(code, 0, "{stderr}");
}

/// A device whose link was down had to raise its own round above the round of the epoch's manifest,
/// so the readings below its own round are lost. This lowers the common rate of the whole group. A
/// query of only the other devices keeps their higher rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_was_cut_off_only_lowers_the_common_rate() {
    let mut group = Group::new(Scheme::Star, 12, 30_000, 5);
    let mut uploads = vec![group.epoch([50, 60, 70, 80])];
    group.cut_off = Some(1);
    uploads.push(group.epoch([500, 40_000, 300, 200]));
    let cut_off =
        uploads[1].bundles.iter().find(|bundle| bundle.device == group.devices[1]).unwrap();
    let items = Answer::decode(&cut_off.bytes).unwrap().items;
    let own_round = items
        .iter()
        .find_map(|item| if let Item::Part(part) = item { Some(part.own_round) } else { None })
        .unwrap();
    let round = uploads[1].round;
    assert!(own_round > round && round.0 > 0, "{own_round} {round}");
    let client = ClientFolder::of(&group, &uploads).await;
    let (code, json, stderr) = client.estimate(&["mean", "place"]);
    assert_eq!((code, &json["rate"]), (0, &format!("1/{}", 1 << own_round.0).into()), "{stderr}");
    assert!(stderr.contains(&format!("--rate 1/{}", 1 << own_round.0)), "{stderr}");
    let (code, json, stderr) = client.estimate(&["mean", "place", "north", "west"]);
    assert_eq!((code, &json["rate"]), (0, &format!("1/{}", 1 << round.0).into()), "{stderr}");
    // A query of all devices at that higher rate is refused because of the device that was cut off.
    let (code, _, stderr) =
        client.estimate(&["mean", "place", "--rate", &format!("1/{}", 1 << round.0)]);
    assert!(code != 0 && stderr.contains("RateUnavailable"), "{code} {stderr}");
}

/// Answers for a group with a budget verify offline, both by rate and by number. They verify as a
/// proof, and as a file with a manifest and its bundles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_of_a_group_with_a_budget_is_verified_offline() {
    let mut group = Group::new(Scheme::Star, 10, 200, 6);
    // No round is announced, so the devices forward everything, and only the manifests state what
    // the coordinator pruned.
    group.announces = |_, _| None;
    let uploads: Vec<Upload> = [[900, 200, 300, 0], [10, 0, 20, 30], [400, 400, 400, 400]]
        .map(|load| group.epoch(load))
        .into();
    let round = uploads.iter().map(|upload| upload.round.0).max().unwrap();
    let client = ClientFolder::of(&group, &uploads).await;
    for (choice, kept) in
        [(["--rate", &format!("1/{}", 1 << round)], false), (["--at-most", "100000"], true)]
    {
        let (code, _, stderr) = client.ask(
            &[&["get", "--proof", "p.mproof", "--format", "csv", "--out", "rows.csv"][..], &choice]
                .concat(),
        );
        assert_eq!(code, 0, "{choice:?}: {stderr}");
        let (code, out, stderr) = client.run(&["verify", "p.mproof", "--json"]);
        let json: Value = serde_json::from_str(&out).unwrap_or(Value::Null);
        assert_eq!((code, &json["verified"]), (0, &true.into()), "{choice:?}: {out}{stderr}");
        let rows =
            fs::read_to_string(client.folder.path().join("rows.csv")).unwrap().lines().count()
                as u64
                - 1;
        let all: u64 = uploads
            .iter()
            .flat_map(|upload| &upload.bundles)
            .map(|bundle| kept_readings(&group, &uploads, bundle))
            .sum();
        assert!(rows > 0 && (rows == all) == kept, "{choice:?}: {rows} of {all}");
        // A proof with a changed byte is refused.
        let path = client.folder.path().join("p.mproof");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (code, out, _) = client.run(&["verify", "p.mproof", "--json"]);
        assert!(code != 0, "{choice:?}: {out}");
        fs::remove_file(path).unwrap();
        fs::remove_file(client.folder.path().join("rows.csv")).unwrap();
    }
    // A file with the uploads of a gateway verifies. It contains a manifest, followed by the
    // bundles that were pruned to the round of the manifest. The bundles without the manifest do
    // not verify.
    let pruned: Vec<u8> =
        uploads[0].bundles.iter().flat_map(|bundle| bundle.bytes.clone()).collect();
    let mut uploaded = Vec::new();
    write::manifest(&mut uploaded, &uploads[0].manifest(&group.roster, &coordinator()).unwrap());
    uploaded.extend_from_slice(&pruned);
    fs::write(client.folder.path().join("uploaded.mseal"), uploaded).unwrap();
    fs::write(client.folder.path().join("without_manifest.mseal"), pruned).unwrap();
    let (code, out, stderr) = client.run(&["verify", "uploaded.mseal", "--json"]);
    assert_eq!(code, 0, "{out}{stderr}");
    let (code, out, stderr) = client.run(&["verify", "without_manifest.mseal"]);
    assert!(code == 3 && stderr.contains("NotWhole"), "{code} {out}{stderr}");
}

/// Returns the number of readings in a bundle.
fn kept_readings(group: &Group, uploads: &[Upload], bundle: &Bundle) -> u64 {
    let upload = uploads.iter().find(|upload| upload.bundles.contains(bundle)).unwrap();
    upload_verifiers::rows_of(&group.roster, upload, bundle).unwrap()
}
