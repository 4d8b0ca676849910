//! Runs the commands of the README and of `--help`, from a table to verified rows and a proof that
//! verifies offline.

use crate::scene;
use std::fs;
use std::process::Command;

use crate::scene::{Scene, repository};

const SEED: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Seals and pushes the two example tables of the repository: dev1 as star, dev2 as tree.
fn home() -> (Scene, scene::Cloud) {
    let scene = Scene::new();
    for (device, scheme) in [("dev1", "star"), ("dev2", "tree")] {
        let table = repository(&format!("data/examples/{device}.csv"));
        scene.seal(table.to_str().unwrap(), device, &["--scheme", scheme]).done();
    }
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles/", "--to", &cloud.url]).done();
    (scene, cloud)
}

/// Returns the values of a column of a CSV table.
fn temperatures(csv: &str, column: usize) -> Vec<f64> {
    csv.lines().skip(1).map(|line| line.split(',').nth(column).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_rate_is_verified_and_has_a_proof() {
    let (scene, cloud) = home();
    let get = [
        "get",
        "dev1",
        "dev2",
        "--from",
        &cloud.url,
        "--rate",
        "1/8",
        "--proof",
        "p.mproof",
        "-o",
        "out.csv",
        "--mean",
        "temperature",
    ];
    let run = scene.with_roster(&[&get[..], &["--json"]].concat()).done();
    let json = run.json();
    assert_eq!(json["events"], 8834);
    assert_eq!(json["complete"], true);
    let csv = fs::read_to_string(scene.path("out.csv")).unwrap();
    assert!(csv.starts_with("epoch,epoch_start,device,index,seq,temperature,humidity\n"), "{csv}");
    assert_eq!(csv.lines().count() as u64 - 1, json["rows"].as_u64().unwrap());

    // Every row of dev1 is the reading at the same position in the table: 720 readings per hour.
    let table = fs::read_to_string(repository("data/examples/dev1.csv")).unwrap();
    let truth = temperatures(&table, 1);
    for row in csv.lines().skip(1).filter(|row| row.contains(",dev1,")) {
        let cells: Vec<&str> = row.split(',').collect();
        let place = (cells[0].parse::<usize>().unwrap() - 353_721) * 720
            + cells[4].parse::<usize>().unwrap();
        assert_eq!(cells[5].parse::<f64>().unwrap(), truth[place], "{row}");
    }
    let all = [
        truth,
        temperatures(&fs::read_to_string(repository("data/examples/dev2.csv")).unwrap(), 1),
    ]
    .concat();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let (estimate, half) =
        (json["mean"]["mean"].as_f64().unwrap(), json["mean"]["half_width_95"].as_f64().unwrap());
    // Salts are random, so allow five half-widths of the interval, which are practically never
    // exceeded.
    assert!((estimate - mean).abs() < 5.0 * half, "{estimate} +- {half}, truth {mean}");

    // The proof verifies without a cloud and gives the same rows.
    drop(cloud);
    let verified = scene.with_roster(&["verify", "p.mproof", "--json"]).done().json();
    assert_eq!((&verified["verified"], &verified["rows"]), (&true.into(), &json["rows"]));
    scene.with_roster(&["verify", "p.mproof", "-o", "again.csv"]).done();
    assert_eq!(fs::read_to_string(scene.path("again.csv")).unwrap(), csv);
    // A proof with a changed byte is refused.
    let proof = fs::read(scene.path("p.mproof")).unwrap();
    for at in (200..proof.len()).step_by(proof.len() / 7) {
        let mut altered = proof.clone();
        altered[at] ^= 4;
        fs::write(scene.path("altered.mproof"), altered).unwrap();
        let run = scene.with_roster(&["verify", "altered.mproof", "-o", "altered.csv"]);
        assert!([3, 4].contains(&run.code), "byte {at}: {run:?}");
        assert!(!scene.path("altered.csv").exists());
    }
}

#[test]
fn at_most_and_sample_queries_verify() {
    let (scene, cloud) = home();
    let ask = |more: &[&str]| {
        scene.with_roster(&[&["get", "--from", &cloud.url, "--format", "csv"][..], more].concat())
    };
    let range = ["--since", "2010-05-09T10:00:00Z", "--until", "2010-05-09T12:00:00Z"];
    let most = ask(&[&["dev1", "dev2", "--at-most", "100"][..], &range].concat()).done();
    let rows = most.out.lines().count() - 1;
    assert!(rows > 4 * 20 && rows <= 4 * 100, "{rows}");
    let draw =
        |seed| ask(&[&["dev2", "--sample", "100", "--seed", seed][..], &range].concat()).done();
    let drawn = draw(SEED);
    assert_eq!(drawn.out.lines().count() - 1, 2 * 100);
    assert_eq!(draw(SEED).out, drawn.out, "the same seed must draw the same readings");
    assert_ne!(draw(&SEED.replace('0', "1")).out, drawn.out);
    // A star cannot be sampled by a seed.
    let star = ask(&["dev1", "--sample", "100", "--seed", SEED]);
    assert!(star.failed(2).contains("SchemeMismatch"), "{star:?}");
}

#[test]
fn every_format_has_the_same_rows() {
    let (scene, cloud) = home();
    for format in ["table", "csv", "jsonl", "arrow", "parquet"] {
        let out = format!("out.{format}");
        scene
            .with_roster(&[
                "get", "dev1", "--from", &cloud.url, "--rate", "1/16", "--format", format, "-o",
                &out,
            ])
            .done();
    }
    let lines = |name: &str| fs::read_to_string(scene.path(name)).unwrap().lines().count();
    assert_eq!(lines("out.csv"), lines("out.table"));
    assert_eq!(lines("out.csv"), lines("out.jsonl") + 1);
    assert_eq!(&fs::read(scene.path("out.parquet")).unwrap()[..4], b"PAR1");
    assert_eq!(&fs::read(scene.path("out.arrow")).unwrap()[..4], b"\xff\xff\xff\xff");
}

#[test]
fn a_range_that_is_not_sealed_yet_is_incomplete() {
    let (scene, cloud) = home();
    let get = [
        "get",
        "dev1",
        "--from",
        &cloud.url,
        "--rate",
        "1/8",
        "--until",
        "2010-05-10",
        "-o",
        "out.csv",
    ];
    let run = scene.with_roster(&get);
    assert!(
        run.failed(4)
            .contains("TailUnknown: nothing shows what dev1 sealed from 2010-05-09T16:00:00Z on"),
        "{run:?}"
    );
    // If the range ends at the time that the error states, the answer is complete.
    let get = [
        "get",
        "dev1",
        "--from",
        &cloud.url,
        "--rate",
        "1/8",
        "--until",
        "2010-05-09T16:00:00Z",
        "-o",
        "out.csv",
    ];
    scene.with_roster(&get).done();
}

#[test]
fn a_cloud_that_loses_seals_is_detected_by_pinned_seals() {
    let (scene, cloud) = home();
    let ask = |url: &str, more: &[&str]| {
        scene.with_roster(
            &[&["get", "dev1", "--from", url, "--rate", "1/8", "-o", "out.csv"][..], more].concat(),
        )
    };
    ask(&cloud.url, &[]).done();
    // Another cloud has the same chain, but without its newest seals.
    let other = scene.cloud("other.redb");
    for index in 0..4 {
        scene.run(&["push", &format!("bundles/dev1-{index:010}.mseal"), "--to", &other.url]).done();
    }
    let before = fs::read(scene.path("out.csv")).unwrap();
    let run = ask(&other.url, &[]);
    assert!(run.failed(4).contains("Missing"), "{run:?}");
    assert_eq!(
        fs::read(scene.path("out.csv")).unwrap(),
        before,
        "a row of a refused answer was written"
    );
    ask(&other.url, &["--no-pinned-seals"]).done();
}

#[cfg(unix)]
#[test]
fn rows_are_printed_after_all_files_are_written_or_not_at_all() {
    let (scene, cloud) = home();
    // The path of the pinned seals does not exist and cannot be created.
    std::os::unix::fs::symlink("nowhere/deep", scene.path("link")).unwrap();
    let get = [
        "get", "dev1", "--from", &cloud.url, "--rate", "1/8", "--format", "csv", "--proof",
        "p.mproof",
    ];
    let before = scene.names(".");
    for more in [&["-o", "out.csv"][..], &[]] {
        let run =
            scene.with_roster(&[&get[..], &["--pinned-seals", "link/pinned.json"], more].concat());
        assert!(run.failed(1).contains("link/pinned.json"), "{run:?}");
        assert_eq!(run.out, "", "a row was printed");
        assert_eq!(scene.names("."), before, "rows or a proof remain");
    }
    let run = scene.with_roster(&[&get[..], &["--pinned-seals", "pinned.json"]].concat()).done();
    assert!(
        run.out.lines().count() > 1
            && scene.path("p.mproof").exists()
            && scene.path("pinned.json").exists()
    );
}

#[test]
fn a_proof_stays_valid_when_its_device_seals_more() {
    let (scene, cloud) = home();
    // This cloud has only the first seals. Its answer is complete for the time range of these
    // seals.
    let early = scene.cloud("early.redb");
    for index in 0..4 {
        scene.run(&["push", &format!("bundles/dev1-{index:010}.mseal"), "--to", &early.url]).done();
    }
    let get = |url: &str, more: &[&str]| {
        scene
            .with_roster(
                &[&["get", "dev1", "--from", url, "--rate", "1/8", "-o", "out.csv"][..], more]
                    .concat(),
            )
            .done()
    };
    get(&early.url, &["--proof", "old.mproof"]);
    let verify = || scene.with_roster(&["verify", "old.mproof", "--json"]).done();
    assert!(verify().json()["devices"][0]["newer_known"].is_null());
    get(&cloud.url, &[]);
    let run = verify();
    assert!(run.stderr.contains("newer seals are known"), "{run:?}");
    assert!(
        run.json()["complete"] == true
            && run.json()["devices"][0]["newer_known"]["index"].as_u64() > Some(3),
        "{run:?}"
    );
}

#[test]
fn refuses_a_proof_for_another_roster_and_names_the_roster() {
    let (scene, cloud) = home();
    scene
        .with_roster(&[
            "get", "dev1", "--from", &cloud.url, "--rate", "1/8", "--proof", "p.mproof", "-o",
            "out.csv",
        ])
        .done();
    scene.roster("away", "keys/op.key.pem", "away.cbor");
    let run = scene.run(&[
        "verify",
        "p.mproof",
        "--roster",
        "away.cbor",
        "--operator",
        "keys/op.pub.pem",
    ]);
    let line = run.failed(3);
    assert!(line.contains("p.mproof: UnknownRoster") && line.contains("use that roster"), "{line}");
    scene.roster("home", "keys/stranger.key.pem", "false.cbor");
    let run = scene.run(&[
        "verify",
        "p.mproof",
        "--roster",
        "false.cbor",
        "--operator",
        "keys/op.pub.pem",
    ]);
    assert!(run.failed(3).contains("false.cbor: NotAuthentic"), "{run:?}");
    let run = scene.run(&[
        "verify",
        "p.mproof",
        "--roster",
        "false.cbor",
        "--operator",
        "keys/stranger.pub.pem",
    ]);
    assert!(run.failed(3).contains("p.mproof: UnknownRoster"), "{run:?}");
}

#[test]
fn reports_unknown_devices_and_unreachable_clouds() {
    let scene = Scene::new();
    let run = scene.with_roster(&["get", "dev7", "--from", "http://127.0.0.1:9", "--rate", "1"]);
    assert!(
        run.failed(2)
            .contains("UnknownDevice: roster.cbor has no device \"dev7\"; it has dev1, dev2"),
        "{run:?}"
    );
    let run = scene.with_roster(&[
        "get",
        "dev1",
        "--from",
        "http://127.0.0.1:9",
        "--rate",
        "1",
        "-o",
        "out.csv",
        "--proof",
        "p.mproof",
    ]);
    assert!(run.failed(6).contains("Unreachable: http://127.0.0.1:9"), "{run:?}");
    assert!(
        scene.names(".").iter().all(|name| !name.contains("out") && !name.contains("mproof")),
        "{:?}",
        scene.names(".")
    );
}

#[test]
fn push_and_get_trust_a_cloud_by_the_given_certificate() {
    let scene = Scene::new();
    scene.table("data.csv", 100);
    scene.seal("data.csv", "dev1", &[]).done();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    scene.write("cert.pem", &made.cert.pem());
    scene.write("cert.key.pem", &made.signing_key.serialize_pem());
    let cloud =
        scene.cloud_with("epochs.redb", &["--tls-cert", "cert.pem", "--tls-key", "cert.key.pem"]);
    let url = format!("https://localhost:{}", cloud.port());
    let run = scene.run(&["push", "bundles", "--to", &url]);
    assert!(run.failed(6).contains("certificate"), "{run:?}");
    scene.run(&["push", "bundles", "--to", &url, "--ca", "cert.pem"]).done();
    scene
        .with_roster(&[
            "get", "dev1", "--from", &url, "--ca", "cert.pem", "--rate", "1", "-o", "out.csv",
        ])
        .done();
}

#[test]
fn openssl_reads_the_keys_and_show_prints_the_roster() {
    let scene = Scene::new();
    for suite in ["ed25519", "esp256", "ml-dsa-44"] {
        scene.run(&["key", "new", "--out", &format!("keys/{suite}"), "--alg", suite]).done();
    }
    let openssl = Command::new("openssl")
        .args(["pkey", "-noout", "-text", "-in"])
        .arg(scene.path("keys/esp256.key.pem"))
        .output();
    match openssl {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(_) => eprintln!("skipped: openssl is not installed"),
    }
    let shown = scene
        .run(&["roster", "show", "roster.cbor", "--operator", "keys/op.pub.pem", "--json"])
        .done()
        .json();
    assert_eq!(
        (&shown["group"], &shown["epoch_ms"], &shown["levels"]),
        (&"home".into(), &3_600_000.into(), &16.into())
    );
    for shell in ["bash", "zsh", "fish"] {
        assert!(scene.run(&["completions", shell]).done().out.contains("moteseal"));
    }
    scene.table("data.csv", 10);
    scene.seal("data.csv", "dev1", &[]).done();
    let items = scene.run(&["inspect", "bundles/dev1-0000000000.mseal", "--json"]).done();
    let items: Vec<serde_json::Value> =
        items.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        items.iter().map(|item| item["item"].as_str().unwrap()).collect::<Vec<_>>(),
        ["schema", "open", "part"]
    );
    assert_eq!(items[2]["events"], 10);
}
