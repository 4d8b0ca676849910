//! Confidential readings from end to end: an owner, a device that encrypts, a cloud that cannot read, and two
//! readers with different grants.

use std::fs;

use moteseal_grant::Identity;

use crate::scene::{Cloud, Scene};

const READINGS: u32 = 400;
const COLUMNS: [&str; 2] = ["temperature:Cel:i16/100!", "humidity:%RH:u16/100!"];

fn with_roster(scene: &Scene, command: &str) -> crate::scene::Run {
    scene.with_roster(&command.split_whitespace().collect::<Vec<_>>())
}

/// An owner with the secret of dev1, whose readings of `data.csv` are encrypted and at a cloud.
fn stored(scheme: &str) -> (Scene, Cloud) {
    let scene = Scene::new();
    for command in [
        "owner new --group home --name alice --out keys/alice",
        "roster set --roster roster.cbor --operator keys/op.key.pem --owner alice=keys/alice.pub.pem",
    ] {
        scene.run(&command.split_whitespace().collect::<Vec<_>>()).done();
    }
    let [temperature, humidity] = COLUMNS;
    let columns = format!("--column {temperature} --column {humidity}");
    let add = "owner add --owner keys/alice.owner --device dev1 --keys keys";
    with_roster(&scene, &format!("{add} {columns}")).done();
    scene.table("data.csv", READINGS);
    let seal = "seal data.csv --device dev1 --key keys/dev1.key.pem --time ts --out bundles";
    let secret = "--stream-secret keys/dev1.stream.key";
    with_roster(&scene, &format!("{seal} {columns} --scheme {scheme} {secret}")).done();
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    (scene, cloud)
}

/// Makes a grant of a column of dev1 until a time, and the identity that opens it.
fn grant(scene: &Scene, name: &str, column: &str, until: &str) {
    let reader = Identity::generate();
    scene.write(&format!("{name}.txt"), &format!("{}\n", *reader.expose()));
    let make = "grant make --owner keys/alice.owner --device dev1 --since 2026-01-01";
    let to = reader.recipient().as_str().to_owned();
    let command =
        format!("{make} --columns {column} --until {until} --to {to} --out {name}.mgrant");
    with_roster(scene, &command).done();
}

/// Returns the rows of dev1 that a reader sees: temperature and humidity.
fn rows(scene: &Scene, cloud: &Cloud, more: &str) -> (Vec<(String, String)>, String) {
    let get = format!("get dev1 --from {} --rate 1 --format csv --out out.csv", cloud.url);
    let run = with_roster(scene, &format!("{get} {more}")).done();
    let mut rows = csv::Reader::from_path(scene.path("out.csv")).unwrap();
    let names = rows.headers().unwrap().clone();
    let of = |row: &csv::StringRecord, name: &str| {
        row[names.iter().position(|column| column == name).unwrap()].to_owned()
    };
    let rows = rows.records().map(Result::unwrap);
    (rows.map(|row| (of(&row, "temperature"), of(&row, "humidity"))).collect(), run.stderr)
}

#[test]
fn two_readers_see_different_columns_of_the_same_verified_answer() {
    for scheme in ["star", "tree"] {
        let (scene, cloud) = stored(scheme);
        grant(&scene, "warm", "temperature", "2026-01-01T03:00:00Z");
        grant(&scene, "damp", "humidity", "2026-01-02");
        let reader = |name: &str| {
            let keys = format!("--grant {name}.mgrant --identity {name}.txt");
            rows(&scene, &cloud, &keys)
        };
        let (owner, _) = rows(&scene, &cloud, "--stream-secret dev1=keys/dev1.stream.key");
        let (nobody, report) = rows(&scene, &cloud, "");
        let ((warm, lacks), (damp, _)) = (reader("warm"), reader("damp"));
        assert_eq!(owner.len(), READINGS as usize);
        assert_eq!((owner[0].0.as_str(), owner[0].1.as_str()), ("20.00", "40.50"));
        let empty = String::new();
        for (place, (temperature, humidity)) in owner.iter().enumerate() {
            assert_eq!(nobody[place], (empty.clone(), empty.clone()));
            // Three hours of a reading a minute are granted.
            let granted = if place < 180 { temperature } else { &empty };
            assert_eq!(warm[place], (granted.clone(), empty.clone()), "{place}");
            assert_eq!(damp[place], (empty.clone(), humidity.clone()), "{place}");
        }
        assert!(report.contains("temperature is empty in 400 rows: Encrypted"), "{report}");
        assert!(lacks.contains("temperature is empty in 220 rows: NotCovered"), "{lacks}");

        // The cloud's file has no row in plaintext.
        let file = fs::read(scene.path("epochs.redb")).unwrap();
        let hundredths = |text: &str| text.replace('.', "").parse::<u16>().unwrap().to_be_bytes();
        for (temperature, humidity) in &owner {
            let row = [hundredths(temperature), hundredths(humidity)].concat();
            let pairs = file.windows(4).filter(|window| **window == row[..]).count();
            assert_eq!(pairs, 0, "{temperature} {humidity}");
        }
    }
}

#[test]
fn a_grant_of_somebody_else_opens_nothing_and_an_estimate_needs_its_column() {
    let (scene, cloud) = stored("star");
    grant(&scene, "warm", "temperature", "2026-01-02");
    grant(&scene, "damp", "humidity", "2026-01-02");
    let get = format!("get dev1 --from {} --rate 1 --out out.csv", cloud.url);
    let stolen = with_roster(&scene, &format!("{get} --grant warm.mgrant --identity damp.txt"));
    assert!(stolen.failed(2).contains("NoMatchingKey"), "{stolen:?}");
    let estimate = |keys: &str| {
        let what = format!("estimate mean temperature dev1 --from {} --rate 1", cloud.url);
        with_roster(&scene, &format!("{what} {keys}"))
    };
    assert!(estimate("").failed(2).contains("ColumnEncrypted"));
    assert!(
        estimate("--grant damp.mgrant --identity damp.txt").failed(2).contains("ColumnEncrypted")
    );
    let mean = estimate("--grant warm.mgrant --identity warm.txt").done();
    assert!(mean.out.contains("temperature"), "{mean:?}");

    // Every byte of a grant matters.
    let bytes = fs::read(scene.path("warm.mgrant")).unwrap();
    for at in (0..bytes.len()).step_by(bytes.len() / 16) {
        let mut altered = bytes.clone();
        altered[at] ^= 1;
        fs::write(scene.path("altered.mgrant"), altered).unwrap();
        let run = with_roster(&scene, &format!("{get} --grant altered.mgrant --identity warm.txt"));
        assert!(matches!(run.code, 2 | 3), "byte {at}: {run:?}");
    }
}
