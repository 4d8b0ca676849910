//! Bundles that are redacted by real processes, without a cloud: by epochs, by readings and by columns. Bundles
//! that are verified with the keys of a reader.

use std::collections::BTreeSet;
use std::fs;

use moteseal_core::confidential::StreamSecret;
use moteseal_core::record::{DeviceId, EpochNumber};
use serde_json::{Value, json};

use crate::column_groups::{columns, only, three_groups_as};
use crate::confidential_readings::{grant, stored};
use crate::redaction::{accepted, place, proven, record, redact, rows, seal_other_history};
use crate::scene::{Run, Scene};

const REFUSED: i32 = 3;
const INCOMPLETE: i32 = 4;
const USAGE: i32 = 2;
const FIRST: &str = "bundles/dev1-0000000000.mseal";
const SECOND: &str = "bundles/dev1-0000000001.mseal";
const THIRD: &str = "bundles/dev1-0000000002.mseal";

fn with_roster(scene: &Scene, command: &str) -> Run {
    scene.with_roster(&command.split_whitespace().collect::<Vec<_>>())
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|found| found == what)
}

/// Checks that a proof does not pass without the option that accepts redacted ones.
fn check_redacted(scene: &Scene, proof: &str) {
    let run = scene.with_roster(&["verify", proof]);
    assert!(run.failed(INCOMPLETE).contains("Redacted: "), "{run:?}");
    let run = scene.with_roster(&["verify", proof, "-o", "none.csv"]);
    assert!(run.failed(INCOMPLETE).contains("--allow-redacted"), "{run:?}");
    assert!(!scene.path("none.csv").exists());
}

/// Checks what a report states of every device, and returns the report of the first one.
fn redaction(report: &Value) -> &Value {
    assert_eq!((&report["complete"], &report["redacted"]), (&json!(false), &json!(true)));
    assert_eq!(report["query"]["redacted"], true);
    let devices = report["devices"].as_array().unwrap();
    assert!(devices.iter().all(|device| device["standing"] == "Redacted"), "{report}");
    &devices[0]["redaction"]
}

#[test]
fn bundles_are_redacted_by_epochs_and_devices_like_a_proof_of_them() {
    let scene = proven();
    let all = rows(&scene, "p.csv");
    let range = ["--since", "2010-05-09T10:00:00Z", "--until", "2010-05-09T12:00:00Z"];
    redact(&scene, "bundles", "middle.mproof", &range).done();
    let (report, shown) = accepted(&scene, "middle.mproof");
    let in_range = |row: &&String| (353_722..353_724).contains(&place(row).0);
    assert_eq!(shown, all.iter().filter(in_range).cloned().collect::<Vec<_>>());
    let of_range = redaction(&report);
    assert_eq!((&of_range["omitted"], &of_range["gaps"]), (&json!(0), &json!([])), "{report}");
    let query = &report["query"];
    assert_eq!((&query["since"], &query["until"]), (&json!(353_722), &json!(353_724)));
    check_redacted(&scene, "middle.mproof");
    redact(&scene, "p.mproof", "of_proof.mproof", &range).done();
    assert_eq!(accepted(&scene, "of_proof.mproof").1, shown);

    // All that the bundles have is not complete either. The range is theirs: four epochs.
    redact(&scene, "bundles", "whole.mproof", &["--devices", "dev1,dev2"]).done();
    let (report, shown) = accepted(&scene, "whole.mproof");
    assert_eq!(shown, all);
    assert_eq!(redaction(&report)["omitted"], 0);
    let query = &report["query"];
    assert_eq!((&query["since"], &query["until"]), (&json!(353_721), &json!(353_725)));
    check_redacted(&scene, "whole.mproof");
}

#[test]
fn a_bundle_that_is_not_given_is_a_gap() {
    let scene = proven();
    // The order of the files does not matter, nor does it that one is given twice.
    let files = [THIRD, FIRST, THIRD];
    let keep = ["--devices", "dev1", "-o", "gap.mproof"];
    scene.with_roster(&[&["redact"][..], &files, &keep].concat()).done();
    let (report, shown) = accepted(&scene, "gap.mproof");
    let of_files = |row: &&String| place(row).1 == "dev1" && [0, 2].contains(&place(row).2);
    let all = rows(&scene, "p.csv");
    assert_eq!(shown, all.iter().filter(of_files).cloned().collect::<Vec<_>>());
    let gap = json!([{"first": 1, "last": 1, "epoch": 353_722}]);
    assert_eq!(redaction(&report)["gaps"], gap, "{report}");
    let run = scene.with_roster(&["verify", "gap.mproof"]);
    assert!(run.stderr.contains("seal 1 (2010-05-09T10:00:00Z) left out"), "{run:?}");
}

#[test]
fn readings_of_a_tree_stay_and_nothing_of_the_others_is_in_the_file() {
    let scene = proven();
    redact(&scene, SECOND, "few.mproof", &["--events", "17,1/40-42"]).done();
    let (report, shown) = accepted(&scene, "few.mproof");
    let all = rows(&scene, "p.csv");
    let of_seal = |row: &&String| place(row).1 == "dev1" && place(row).2 == 1;
    let is_kept = |row: &&String| of_seal(row) && matches!(place(row).3, 17 | 40..=42);
    assert_eq!(shown, all.iter().filter(is_kept).cloned().collect::<Vec<_>>());
    let omitted = json!([{"index": 1, "epoch": 353_722, "shown": 4, "omitted": 716}]);
    let of_bundle = redaction(&report);
    assert_eq!((&of_bundle["seals"], &of_bundle["gaps"]), (&omitted, &json!([])), "{report}");
    check_redacted(&scene, "few.mproof");

    let [bundle, few] = [SECOND, "few.mproof"].map(|path| fs::read(scene.path(path)).unwrap());
    let sealed: Vec<String> = all.iter().filter(of_seal).cloned().collect();
    let runs = |rows: &[String]| -> BTreeSet<Vec<u8>> {
        rows.windows(3).map(|rows| rows.iter().flat_map(|row| record(row)).collect()).collect()
    };
    let kept = runs(&shown);
    assert!(kept.iter().all(|run| has(&few, run)));
    for run in runs(&sealed).difference(&kept) {
        assert!(has(&bundle, run) && !has(&few, run), "{run:?}");
    }
}

#[test]
fn a_column_that_is_dropped_from_bundles_is_not_in_the_file() {
    let (scene, _cloud) = three_groups_as("tree");
    let secret = "--stream-secret dev1=keys/dev1.stream.key";
    let run = with_roster(&scene, "redact bundles --columns temperature --drop -o none.mproof");
    assert!(run.failed(USAGE).contains("the bundles: ColumnNotSeparate"), "{run:?}");
    for (name, column) in [("t", "temperature"), ("p", "power")] {
        let columns = format!("--columns humidity,{column} --drop");
        with_roster(&scene, &format!("redact bundles {columns} -o {name}.mproof")).done();
        check_redacted(&scene, &format!("{name}.mproof"));
    }
    let read = |name: &str| {
        let verify = format!("verify {name}.mproof --allow-redacted -o rows.csv {secret}");
        (with_roster(&scene, &verify).done().stderr, columns(&scene, "rows.csv"))
    };
    let mut table = vec![["humidity", "temperature", "power"].map(str::to_owned).to_vec()];
    table.extend((0..1800).map(|i| {
        vec![format!("{}.50", 40 + i % 9), format!("{}.25", 20 + i % 7), (1000 + i).to_string()]
    }));
    let (report, rows) = read("t");
    assert!(report.contains("power is empty in 1,800 rows: ColumnHidden"), "{report}");
    let shown = ["humidity", "temperature"];
    assert_eq!(only(&rows, &shown), only(&table, &shown));
    assert!(only(&rows, &["power"]).iter().skip(1).all(|row| row[0].is_empty()));

    // Each bundle has 600 records of 8 bytes, one after the other, in a byte string of 4800 bytes:
    // humidity and temperature, and the ciphertext of power.
    let redacted = fs::read(scene.path("t.mproof")).unwrap();
    let mut found = 0;
    for name in scene.names("bundles").iter().filter(|name| name.starts_with("dev1-")) {
        let bundle = fs::read(scene.path(&format!("bundles/{name}"))).unwrap();
        let head = [0x59, 0x12, 0xc0];
        let start = bundle.windows(3).position(|bytes| bytes == head).unwrap() + head.len();
        let records: Vec<&[u8]> = bundle[start..start + 4800].chunks(8).collect();
        let shown: Vec<u8> =
            records.iter().flat_map(|record| record[..4].iter().copied()).collect();
        assert!(has(&redacted, &shown), "{name}");
        found += records.iter().filter(|record| has(&redacted, &record[4..])).count();
    }
    // Four bytes may occur by chance.
    assert!(found <= 2, "{found} of 1,800 cells");

    // Both together show everything, and are not complete.
    with_roster(&scene, "merge t.mproof p.mproof -o both.mproof").done();
    assert_eq!(read("both").1, table);
    check_redacted(&scene, "both.mproof");
}

#[test]
fn two_redactions_of_one_bundle_are_merged_to_what_both_show() {
    let scene = proven();
    for (name, events) in [("a", "7,100-160"), ("b", "150-200,719"), ("both", "7,100-200,719")] {
        redact(&scene, SECOND, &format!("{name}.mproof"), &["--events", events]).done();
    }
    for (proofs, out) in [(["a.mproof", "b.mproof"], "ab"), (["b.mproof", "a.mproof"], "ba")] {
        let out = format!("{out}.mproof");
        scene.with_roster(&[&["merge"][..], &proofs, &["-o", out.as_str()]].concat()).done();
        let files = [out.as_str(), "both.mproof"].map(|path| fs::read(scene.path(path)).unwrap());
        assert_eq!(files[0], files[1], "{out}");
    }
    let (report, shown) = accepted(&scene, "ab.mproof");
    assert_eq!((shown.len(), &redaction(&report)["omitted"]), (103, &json!(617)));
    // A redaction of a bundle is merged with a proof of the same device.
    redact(&scene, "p.mproof", "c.mproof", &["--devices", "dev1", "--events", "2/5"]).done();
    scene.with_roster(&["merge", "ab.mproof", "c.mproof", "-o", "abc.mproof"]).done();
    assert_eq!(accepted(&scene, "abc.mproof").1.len(), 104);
}

#[test]
fn what_cannot_be_redacted_is_an_error_by_name_and_file() {
    let scene = proven();
    let bundle = fs::read(scene.path(FIRST)).unwrap();
    let mut damaged = bundle.clone();
    damaged[bundle.len() / 2] ^= 1;
    fs::write(scene.path("damaged.mseal"), damaged).unwrap();
    fs::write(scene.path("short.mseal"), &bundle[..bundle.len() - 3]).unwrap();
    fs::create_dir(scene.path("nothing")).unwrap();
    let proof = "p.mproof is a proof; redact each proof by itself";
    for (files, keep, code, text) in [
        ("damaged.mseal", "--devices dev1", REFUSED, "damaged.mseal: NotAuthentic"),
        ("bundles damaged.mseal", "--devices dev1", REFUSED, "damaged.mseal: NotAuthentic"),
        ("short.mseal", "--devices dev1", REFUSED, "short.mseal: Truncated"),
        ("roster.cbor", "--devices dev1", REFUSED, "it looks like a roster or a certificate"),
        ("none.mseal", "--devices dev1", USAGE, "cannot read none.mseal"),
        ("nothing", "--devices dev1", USAGE, "there are no bundles (.mseal) in it"),
        ("p.mproof bundles", "--devices dev1", USAGE, proof),
        ("bundles p.mproof", "--devices dev1", USAGE, proof),
        ("p.mproof five.mproof", "--devices dev1", USAGE, proof),
        ("bundles", "", USAGE, "what to keep is missing"),
        (FIRST, "--devices dev2", USAGE, "dev1-0000000000.mseal: NotInProof"),
        ("bundles", "--events 1/17", USAGE, "the bundles: AmbiguousSeal"),
        ("bundles", "--devices dev2 --events 17", USAGE, "the bundles: SchemeMismatch"),
        (FIRST, "--events 0/719-720", USAGE, "there is only 1 of the readings 719 to 720"),
        (FIRST, "--until 2010-05-01", USAGE, "NothingLeft"),
    ] {
        let run = with_roster(&scene, &format!("redact {files} {keep} -o out.mproof"));
        assert!(run.failed(code).contains(text), "{files} {keep}: {text}: {run:?}");
        assert!(!scene.path("out.mproof").exists());
    }
    let run = with_roster(&scene, &format!("redact {FIRST} --devices dev1 -o {FIRST}"));
    assert!(run.failed(USAGE).contains("would replace an input file"), "{run:?}");
    assert_eq!(fs::read(scene.path(FIRST)).unwrap(), bundle);

    // The roster of another group with the same keys.
    scene.roster("away", "keys/op.key.pem", "away.cbor");
    let options = "--devices dev1 -o out.mproof --roster away.cbor --operator keys/op.pub.pem";
    let command = format!("redact {FIRST} {options}");
    let run = scene.run(&command.split_whitespace().collect::<Vec<_>>());
    assert!(run.failed(REFUSED).contains(&format!("{FIRST}: UnknownDevice")), "{run:?}");
}

#[test]
fn bundles_of_two_histories_of_a_device_are_refused() {
    let scene = proven();
    seal_other_history(&scene);
    let run = with_roster(&scene, "redact bundles others --devices dev1 -o out.mproof");
    let name = "moteseal: others/dev1-0000000000.mseal: NotOneOriginal";
    assert!(run.failed(REFUSED).contains(name), "{run:?}");
    // The two seals have different indices here: the later one does not follow the first.
    let command = format!("redact others {SECOND} --devices dev1 -o out.mproof");
    let run = with_roster(&scene, &command);
    assert!(run.failed(REFUSED).contains("Equivocation"), "{run:?}");
    assert!(!scene.path("out.mproof").exists());
}

#[test]
fn bundles_under_two_versions_of_the_roster_are_in_one_proof() {
    let scene = Scene::new();
    let seal = |first: u64| {
        let rows = (0..60).map(|at| format!("{},20.5,40.5\n", first + 60 * at));
        let table = format!("ts,temperature,humidity\n{}", rows.collect::<String>());
        scene.write("data.csv", &table);
        scene.seal("data.csv", "dev1", &["--scheme", "tree"]).done();
    };
    seal(1_767_225_600);
    for command in [
        "owner new --group home --name alice --out keys/alice",
        "roster set --roster roster.cbor --operator keys/op.key.pem --owner alice=keys/alice.pub.pem",
    ] {
        scene.run(&command.split_whitespace().collect::<Vec<_>>()).done();
    }
    seal(1_767_229_200);
    redact(&scene, "bundles", "both.mproof", &["--events", "0/3,1/4"]).done();
    let (_, shown) = accepted(&scene, "both.mproof");
    let places: Vec<(u64, u64)> = shown.iter().map(|row| (place(row).2, place(row).3)).collect();
    assert_eq!(places, [(0, 3), (1, 4)]);
}

#[test]
fn bundles_are_verified_with_the_keys_of_a_reader() {
    let (scene, _cloud) = stored("star");
    let verify = |keys: &str| with_roster(&scene, &format!("verify bundles {keys}"));
    let line = verify("").done().out;
    let owner = verify("--stream-secret dev1=keys/dev1.stream.key").done();
    assert_eq!((&owner.out, owner.stderr.contains("is empty")), (&line, false), "{owner:?}");
    grant(&scene, "warm", "temperature", "2026-01-01T03:00:00Z");
    let warm = "--grant warm.mgrant --identity warm.txt";
    let run = verify(warm).done();
    assert_eq!(run.out, line);
    for text in ["temperature is empty in 220 rows: NotCovered", "humidity is empty in 400 rows"] {
        assert!(run.stderr.contains(text), "{run:?}");
    }
    let report = verify(&format!("{warm} --json")).done().json();
    let temperature =
        json!({"column": "temperature", "reason": "NotCovered", "seals": 4, "rows": 220});
    let withheld = report["devices"][0]["withheld"].as_array().unwrap();
    assert_eq!((withheld.len(), &report["verified"]), (2, &json!(true)), "{report}");
    assert!(withheld.contains(&temperature), "{report}");
    assert!(verify("--json").done().json()["devices"][0].get("withheld").is_none());

    // A secret that is not the device's is refused, and so is an identity without a grant.
    let secret = StreamSecret::new([7; 32], EpochNumber(0));
    let device = DeviceId::of("home", "dev1");
    scene.write("other.key", &moteseal_grant::encode_stream_secret(device, &secret));
    let run = verify("--stream-secret dev1=other.key");
    assert!(run.failed(REFUSED).contains("dev1: column temperature: WrongKey: "), "{run:?}");
    let run = verify("--identity warm.txt");
    assert!(run.failed(USAGE).contains("name one with --grant"), "{run:?}");
}
