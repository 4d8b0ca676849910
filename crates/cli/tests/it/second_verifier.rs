//! Compares `moteseal verify` with the verifier in spec/verify.py, which was written from the
//! specification alone. Both read bundles that `moteseal seal` made. Both accept good bundles of
//! every suite and scheme, and report the same error name for bad bundles.

use std::fs;

use crate::scene::{COLUMNS, Scene};
use moteseal_adversary::{Answer, Holdings, Select};
use moteseal_core::identity::decode_public_pem;
use moteseal_verify::Roster;

/// Returns the result of the second verifier for each file: "verified" or the name of the error.
/// Returns `None` if Python is not set up.
fn second_verifier(scene: &Scene, files: &[String], roster: &str) -> Option<Vec<String>> {
    let mut command = moteseal_fixtures::second_verifier()?;
    command.arg("bundle").args(files.iter().map(|file| scene.path(file)));
    command
        .arg("--roster")
        .arg(scene.path(roster))
        .arg("--operator")
        .arg(scene.path("keys/op.pub.pem"));
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let outcome = |file: &String| {
        let prefix = format!("{}: ", scene.path(file).display());
        let line = text
            .lines()
            .rfind(|line| line.starts_with(&prefix))
            .unwrap_or_else(|| panic!("nothing on {file}: {text}"));
        let verdict = line[prefix.len()..].trim_start_matches("refused, ");
        verdict.split([',', ':']).next().unwrap().to_owned()
    };
    Some(files.iter().map(outcome).collect())
}

/// Returns the bundle without its readings, with the unchanged signature.
fn emptied(scene: &Scene, bundle: &[u8]) -> Vec<u8> {
    let operator = decode_public_pem(&fs::read(scene.path("keys/op.pub.pem")).unwrap()).unwrap();
    let roster = Roster::open(&fs::read(scene.path("roster.cbor")).unwrap(), &operator).unwrap();
    let mut holdings = Holdings::default();
    holdings.take(&roster, bundle).unwrap();
    let held = holdings.seals(holdings.devices().next().unwrap()).next().unwrap();
    Answer { items: held.run(Select::Levels(0)).to_vec() }.encode()
}

#[test]
fn bundles_of_every_suite_and_scheme_verify() {
    let scene = Scene::new();
    scene.table("data.csv", 130);
    for suite in ["ed25519", "esp256", "ml-dsa-44"] {
        scene.run(&["key", "new", "--out", &format!("keys/{suite}"), "--alg", suite]).done();
        let (roster, device) = (format!("{suite}.cbor"), format!("mote=keys/{suite}.pub.pem"));
        let group = [
            "roster",
            "new",
            "--operator",
            "keys/op.key.pem",
            "--group",
            "fields",
            "--epoch",
            "30m",
            "--levels",
            "8",
        ];
        scene.run(&[&group[..], &["--device", &device, "--out", &roster]].concat()).done();
        let record = scene.path(&format!("keys/{suite}.begun"));
        let new = fs::read(&record).unwrap();
        for scheme in ["star", "tree"] {
            fs::write(&record, &new).unwrap();
            let (out, key) = (format!("{suite}-{scheme}"), format!("keys/{suite}.key.pem"));
            let options = [
                "--roster",
                &roster,
                "--operator",
                "keys/op.pub.pem",
                "--key",
                &key,
                "--device",
                "mote",
            ];
            // Seal the same table twice with the same key, as two chains with separate state files.
            let state = format!("{out}.chain");
            let seal = ["seal", "data.csv", "--scheme", scheme, "--out", &out, "--state", &state];
            scene.run(&[&seal[..], &options[..], &COLUMNS[..]].concat()).done();
            let names = scene.names(&out).into_iter().filter(|name| name.ends_with(".mseal"));
            let files: Vec<String> = names.map(|name| format!("{out}/{name}")).collect();
            assert_eq!(files.len(), 5, "{files:?}");
            let Some(outcomes) = second_verifier(&scene, &files, &roster) else { return };
            assert!(
                outcomes.iter().all(|outcome| outcome == "verified"),
                "{suite} {scheme}: {outcomes:?}"
            );
        }
    }
}

#[test]
fn both_verifiers_refuse_bad_bundles_by_the_same_name() {
    let scene = Scene::new();
    scene.table("data.csv", 60);
    let mut files = Vec::new();
    let record = scene.path("keys/dev1.begun");
    let new = fs::read(&record).unwrap();
    for scheme in ["star", "tree"] {
        fs::write(&record, &new).unwrap();
        let state = format!("{scheme}.chain");
        let key =
            ["--key", "keys/dev1.key.pem", "--out", scheme, "--scheme", scheme, "--state", &state];
        scene
            .with_roster(
                &[&["seal", "data.csv", "--device", "dev1"][..], &key[..], &COLUMNS[..]].concat(),
            )
            .done();
        let good = scene.names(scheme).into_iter().find(|name| name.ends_with(".mseal")).unwrap();
        let good = fs::read(scene.path(scheme).join(good)).unwrap();
        for step in 0..24 {
            let at = step * good.len() / 24;
            let mut changed = good.clone();
            changed[at] ^= [0x01, 0x20, 0x80][step % 3];
            for (how, bytes) in [("flip", &changed[..]), ("cut", &good[..at])] {
                let name = format!("{scheme}-{how}-{at}.mseal");
                fs::write(scene.path(&name), bytes).unwrap();
                files.push(name);
            }
        }
    }
    // Bundles whose readings were removed: the signature still verifies.
    for scheme in ["star", "tree"] {
        let good = scene.names(scheme).into_iter().find(|name| name.ends_with(".mseal")).unwrap();
        let good = fs::read(scene.path(scheme).join(good)).unwrap();
        let name = format!("{scheme}-emptied.mseal");
        fs::write(scene.path(&name), emptied(&scene, &good)).unwrap();
        files.push(name);
    }
    // `moteseal verify` does not read an empty file as a stream.
    files.retain(|file| !file.ends_with("cut-0.mseal"));
    let Some(outcomes) = second_verifier(&scene, &files, "roster.cbor") else { return };
    for (file, outcome) in files.iter().zip(outcomes) {
        let run = scene.with_roster(&["verify", file]);
        // A file that was truncated between two items has no part.
        assert_ne!(outcome, "verified", "{file}");
        assert!(
            run.failed(3).contains(&format!("{file}: {outcome}: ")),
            "{file}: {outcome}, but {run:?}"
        );
    }
}
