//! Proofs that are redacted and merged by real processes: recorded readings of two motes, sealed as
//! trees and as stars, fetched from a cloud.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::scene::{Run, Scene, repository};

const REFUSED: i32 = 3;
const INCOMPLETE: i32 = 4;
const USAGE: i32 = 2;
const FROM: [&str; 2] = ["--since", "2010-05-09T10:00:00Z"];

/// Seals the readings of dev1 as trees and those of dev2 as stars, and gets the proof p.mproof of all
/// of them, with the rows p.csv. The rows have epochs of an hour from 2010-05-09T09:00:00Z on.
pub(crate) fn proven() -> Scene {
    proven_with([("dev1", "tree"), ("dev2", "star")])
}

/// The same, with other schemes.
fn proven_with(schemes: [(&str, &str); 2]) -> Scene {
    let scene = Scene::new();
    for (device, scheme) in schemes {
        let table = fs::read_to_string(repository(&format!("data/examples/{device}.csv"))).unwrap();
        // Three hours and a half, a reading every 5 seconds.
        let part: Vec<&str> = table.lines().take(1 + 2520).collect();
        scene.write("data.csv", &(part.join("\n") + "\n"));
        scene.seal("data.csv", device, &["--scheme", scheme]).done();
    }
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    get(&scene, &cloud.url, &["--rate", "1", "--proof", "p.mproof", "-o", "p.csv"]).done();
    get(&scene, &cloud.url, &["--rate", "5/8", "--proof", "five.mproof", "-o", "five.csv"]).done();
    get(&scene, &cloud.url, &["--rate", "1/2", "--proof", "half.mproof", "-o", "half.csv"]).done();
    scene
}

fn get(scene: &Scene, url: &str, more: &[&str]) -> Run {
    scene.with_roster(&[&["get", "dev1", "dev2", "--from", url][..], more].concat())
}

/// Redacts a proof into another one.
pub(crate) fn redact(scene: &Scene, proof: &str, out: &str, keep: &[&str]) -> Run {
    scene.with_roster(&[&["redact", proof, "-o", out][..], keep].concat())
}

/// Returns the lines of the file without the heading.
pub(crate) fn rows(scene: &Scene, path: &str) -> Vec<String> {
    let text = fs::read_to_string(scene.path(path)).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

/// Verifies a redacted proof. Returns its report, and its rows.
pub(crate) fn accepted(scene: &Scene, proof: &str) -> (Value, Vec<String>) {
    let verify = ["verify", proof, "--allow-redacted", "-o", "rows.csv", "--json"];
    let report = scene.with_roster(&verify).done().json();
    (report, rows(scene, "rows.csv"))
}

/// Returns the cells epoch, device, index and seq of a row.
pub(crate) fn place(row: &str) -> (u64, String, u64, u64) {
    let cells: Vec<&str> = row.split(',').collect();
    let number = |at: usize| cells[at].parse().unwrap();
    (number(0), cells[2].to_owned(), number(3), number(4))
}

/// The record of a row: temperature and humidity in hundredths, 2 bytes each.
pub(crate) fn record(row: &str) -> Vec<u8> {
    let cells: Vec<String> = row.split(',').map(|cell| cell.replace('.', "")).collect();
    let (temperature, humidity) =
        (cells[5].parse::<i16>().unwrap(), cells[6].parse::<u16>().unwrap());
    [temperature.to_be_bytes(), humidity.to_be_bytes()].concat()
}

#[test]
fn a_redacted_proof_shows_what_was_kept_and_states_what_was_left_out() {
    let scene = proven();
    let all = rows(&scene, "p.csv");
    let keep = ["--devices", "dev1", "--events", "1/17,1/40-42,2/0"];
    let written = redact(&scene, "p.mproof", "few.mproof", &keep).done();
    assert_eq!(written.out.trim(), "few.mproof");
    let (report, shown) = accepted(&scene, "few.mproof");
    let kept = |row: &&String| {
        let (_, device, index, seq) = place(row);
        device == "dev1" && matches!((index, seq), (1, 17 | 40..=42) | (2, 0))
    };
    assert_eq!(shown, all.iter().filter(kept).cloned().collect::<Vec<_>>());
    assert_eq!((&report["complete"], &report["redacted"]), (&json!(false), &json!(true)));
    assert_eq!(report["query"]["redacted"], true);
    let device = &report["devices"][0];
    assert_eq!((&device["name"], &device["standing"]), (&json!("dev1"), &json!("Redacted")));
    // Each hour has 720 readings. Seal 0 was left out before the first seal that is shown. The
    // statement of seal 3 leads to the signature.
    let omitted = json!([
        {"index": 1, "epoch": 353_722, "shown": 4, "omitted": 716},
        {"index": 2, "epoch": 353_723, "shown": 1, "omitted": 719},
        {"index": 3, "epoch": 353_724, "shown": 0, "omitted": 360},
    ]);
    assert_eq!(device["redaction"]["seals"], omitted, "{report}");
    assert_eq!(device["redaction"]["omitted"], 716 + 719 + 360);
    assert_eq!(
        device["redaction"]["gaps"],
        json!([{"first": null, "last": 0, "epoch": 353_721}]),
        "{report}"
    );

    // Without --allow-redacted, the proof does not pass. The text states what is missing.
    let run = scene.with_roster(&["verify", "few.mproof"]);
    assert!(run.failed(INCOMPLETE).contains("Redacted: "), "{run:?}");
    for text in
        ["5 of 1,800 readings", "4 shown, 716 omitted", "seal 0 (2010-05-09T09:00:00Z) left out"]
    {
        assert!(run.stderr.contains(text), "{text}: {run:?}");
    }
    assert!(run.out.contains("what a redactor left of dev1"), "{run:?}");
    // No row is written.
    let run = scene.with_roster(&["verify", "few.mproof", "-o", "none.csv"]);
    assert!(run.failed(INCOMPLETE).contains("--allow-redacted"), "{run:?}");
    assert!(!scene.path("none.csv").exists());
    let run = scene.with_roster(&["verify", "few.mproof", "--format", "csv"]);
    assert!(run.failed(INCOMPLETE).contains("--allow-redacted"), "{run:?}");
    assert_eq!(run.out, "");
}

#[test]
fn nothing_of_what_was_left_out_remains_in_the_file() {
    let scene = proven();
    let all = rows(&scene, "p.csv");
    let range = ["--until", "2010-05-09T11:00:00Z", "--devices", "dev1", "--events", "5-9"];
    redact(&scene, "p.mproof", "few.mproof", &[&FROM[..], &range].concat()).done();
    let (_, shown) = accepted(&scene, "few.mproof");
    assert_eq!(shown.len(), 5);
    let (whole, few) =
        (fs::read(scene.path("p.mproof")).unwrap(), fs::read(scene.path("few.mproof")).unwrap());
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|found| found == what);
    // Three consecutive records of a tree, which the whole proof has.
    let of_tree: Vec<&String> = all.iter().filter(|row| place(row).1 == "dev1").collect();
    let runs = |rows: &[&String]| -> BTreeSet<Vec<u8>> {
        rows.windows(3).map(|rows| rows.iter().flat_map(|row| record(row)).collect()).collect()
    };
    let kept = runs(&shown.iter().collect::<Vec<_>>());
    assert!(kept.iter().all(|run| find(&few, run)));
    let dropped: Vec<Vec<u8>> = runs(&of_tree).difference(&kept).cloned().collect();
    let before = dropped.iter().filter(|run| find(&whole, run)).count();
    // Not all: the rows of two seals are adjacent here, and not in the proof.
    assert!(before > dropped.len() * 9 / 10, "{before} of {}", dropped.len());
    let remaining = dropped.iter().filter(|run| find(&few, run)).count();
    assert_eq!(remaining, 0, "of {}", dropped.len());
    // Nor the other device, whose id and blocks the whole proof has.
    let roster =
        scene.run(&["roster", "show", "roster.cbor", "--operator", "keys/op.pub.pem", "--json"]);
    let roster = roster.done().out;
    let ids: BTreeSet<Vec<u8>> = {
        let id = |text: &str| hex::decode(text).ok().filter(|id| id.len() == 8);
        roster.split('"').filter_map(id).collect()
    };
    let found = |bytes: &[u8]| {
        let has = |id: &&Vec<u8>| find(bytes, id) || find(bytes, hex::encode(id).as_bytes());
        ids.iter().filter(has).count()
    };
    assert_eq!((found(&whole), found(&few)), (2, 1), "{roster}");
    assert!(few.len() * 10 < whole.len(), "{} of {}", few.len(), whole.len());
}

#[test]
fn epochs_and_devices_are_left_out_of_stars_and_trees() {
    let scene = proven();
    let all = rows(&scene, "p.csv");
    let until = ["--until", "2010-05-09T12:00:00Z"];
    redact(&scene, "p.mproof", "middle.mproof", &[&FROM[..], &until].concat()).done();
    let (report, shown) = accepted(&scene, "middle.mproof");
    let in_range = |row: &&String| (353_722..353_724).contains(&place(row).0);
    assert_eq!(shown, all.iter().filter(in_range).cloned().collect::<Vec<_>>());
    assert_eq!(
        (&report["query"]["since"], &report["query"]["until"]),
        (&json!(353_722), &json!(353_724))
    );
    // A redacted proof can be redacted again.
    redact(&scene, "middle.mproof", "dev2.mproof", &["--devices", "dev2"]).done();
    let (_, shown) = accepted(&scene, "dev2.mproof");
    let of_dev2 = |row: &&String| in_range(row) && place(row).1 == "dev2";
    assert_eq!(shown, all.iter().filter(of_dev2).cloned().collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_kept_is_an_error_by_name() {
    let scene = proven();
    redact(&scene, "p.mproof", "dev1.mproof", &["--devices", "dev1"]).done();
    for (proof, keep, name) in [
        ("dev1.mproof", &["--devices", "dev2"][..], "NotInProof"),
        ("p.mproof", &["--events", "1/17"], "AmbiguousSeal"),
        ("p.mproof", &["--devices", "dev2", "--events", "17"], "SchemeMismatch"),
        ("dev1.mproof", &["--events", "1/719-720"], "ReadingUnavailable"),
        ("dev1.mproof", &["--events", "9/1"], "ReadingUnavailable"),
        ("dev1.mproof", &["--events", "720"], "NothingLeft"),
        ("dev1.mproof", &["--until", "2010-05-01"], "NothingLeft"),
        ("dev1.mproof", &["--since", "2011-05-01"], "NothingLeft"),
        ("dev1.mproof", &["--events", "9-8"], "12/7-9"),
        ("dev1.mproof", &["--devices", "attic"], "attic"),
    ] {
        let run = redact(&scene, proof, "none.mproof", keep);
        assert_eq!(run.code, USAGE, "{run:?}");
        assert!(run.stderr.contains(name), "{name}: {run:?}");
        assert!(!scene.path("none.mproof").exists());
        if name == "ReadingUnavailable" {
            let line = run.failed(USAGE);
            let expected = if keep[1] == "9/1" {
                "there is no reading 1 of seal 9;"
            } else {
                "there is only 1 of the readings 719 to 720 of seal 1;"
            };
            assert!(line.contains(expected), "{line}");
        }
    }
    let run = redact(&scene, "p.mproof", "p.mproof", &[]);
    assert!(run.failed(USAGE).contains("would replace an input file"), "{run:?}");
    let run = redact(&scene, "p.mproof", "none.mproof", &[]);
    assert!(run.failed(USAGE).contains("what to keep is missing"), "{run:?}");
}

#[test]
fn merged_proofs_show_what_any_of_them_shows() {
    let scene = proven();
    let all = rows(&scene, "p.csv");
    let merge = |proofs: &[&str], out: &str| {
        scene.with_roster(&[&["merge"][..], proofs, &["-o", out]].concat())
    };
    // Events of trees, that overlap; epochs; and devices.
    for (name, keep) in [
        ("a.mproof", &["--devices", "dev1", "--events", "1/7,1/100-160,3/2"][..]),
        ("b.mproof", &["--devices", "dev1", "--events", "1/150-200,2/0-99"]),
        ("c.mproof", &["--devices", "dev2", "--until", "2010-05-09T10:00:00Z"]),
    ] {
        redact(&scene, "p.mproof", name, keep).done();
    }
    merge(&["a.mproof", "b.mproof", "c.mproof"], "abc.mproof").done();
    let (report, shown) = accepted(&scene, "abc.mproof");
    let kept = |row: &&String| match (place(row), place(row).1.as_str()) {
        ((.., index, seq), "dev1") => {
            matches!((index, seq), (1, 7 | 100..=200) | (2, 0..=99) | (3, 2))
        }
        ((.., index, _), _) => index == 0,
    };
    assert_eq!(shown, all.iter().filter(kept).cloned().collect::<Vec<_>>());
    assert_eq!(report["complete"], false);

    // Levels of stars, of which neither proof has all: 5/8 is not contained in 1/2.
    merge(&["five.mproof", "half.mproof"], "levels.mproof").done();
    let (_, shown) = accepted(&scene, "levels.mproof");
    let (five, half) = (rows(&scene, "five.csv"), rows(&scene, "half.csv"));
    let either: BTreeSet<&String> = five.iter().chain(&half).collect();
    assert!(either.len() > five.len().max(half.len()));
    assert_eq!(shown, all.iter().filter(|row| either.contains(row)).cloned().collect::<Vec<_>>());

    // All parts together show what the whole proof shows, and do not pass for it.
    merge(&["levels.mproof", "p.mproof"], "again.mproof").done();
    let (report, shown) = accepted(&scene, "again.mproof");
    assert_eq!((shown, &report["complete"]), (all, &json!(false)));
}

/// Seals other readings of dev1 into the folder `others`, with a copy of its key that begins another chain.
pub(crate) fn seal_other_history(scene: &Scene) {
    scene.table("other.csv", 60);
    fs::create_dir(scene.path("stolen")).unwrap();
    for name in ["dev1.key.pem", "dev1.salt.key"] {
        let [from, to] = ["keys", "stolen"].map(|folder| scene.path(&format!("{folder}/{name}")));
        fs::copy(from, to).unwrap();
    }
    scene.with_roster(&["chain", "new", "--key", "stolen/dev1.key.pem"]).done();
    let key = ["--key", "stolen/dev1.key.pem", "--device", "dev1", "--out", "others"];
    let columns = &crate::scene::COLUMNS[..];
    scene.with_roster(&[&["seal", "other.csv"], &key[..], columns].concat()).done();
}

#[test]
fn proofs_of_two_histories_of_a_device_are_not_merged() {
    let scene = proven();
    seal_other_history(&scene);
    let cloud = scene.cloud("others.redb");
    scene.run(&["push", "others", "--to", &cloud.url]).done();
    let more =
        ["--rate", "1", "--proof", "other.mproof", "-o", "other-rows.csv", "--no-pinned-seals"];
    scene.with_roster(&[&["get", "dev1", "--from", &cloud.url][..], &more].concat()).done();
    let merge = ["merge", "p.mproof", "other.mproof", "-o", "both.mproof"];
    let run = scene.with_roster(&merge);
    assert!(run.failed(REFUSED).contains("moteseal: other.mproof: NotOneOriginal"), "{run:?}");
    assert!(!scene.path("both.mproof").exists());
}

#[test]
fn an_altered_redacted_proof_is_refused_and_never_passes_for_a_whole_one() {
    let scene = proven();
    let keep = ["--devices", "dev1", "--events", "1/17,1/40-42"];
    redact(&scene, "p.mproof", "few.mproof", &[&FROM[..], &keep].concat()).done();
    let proof = fs::read(scene.path("few.mproof")).unwrap();
    let verify = |bytes: &[u8]| {
        fs::write(scene.path("altered.mproof"), bytes).unwrap();
        let _ = fs::remove_file(scene.path("rows.csv"));
        let verify = ["verify", "altered.mproof", "--allow-redacted", "-o", "rows.csv"];
        scene.with_roster(&verify)
    };
    // The statement that the proof is redacted is not signed. Without it, another claim takes its
    // place, which the signed counters contradict.
    let marker = b"\"redacted\":true";
    let at = proof.windows(marker.len()).position(|bytes| bytes == marker).unwrap();
    for claim in [r#""rate":"1"     "#, r#""rate":"1/8"   "#, r#""at_most":4    "#] {
        let mut claimed = proof.clone();
        claimed[at..at + marker.len()].copy_from_slice(claim.as_bytes());
        let run = verify(&claimed);
        assert!(run.failed(REFUSED).contains("NotAsAsked"), "{claim}: {run:?}");
        assert!(!scene.path("rows.csv").exists());
    }
    // The file is the true answer to a query that names the readings in it. It is not complete either.
    let claim = r#""readings":[[1,17,1],[1,40,3]]"#;
    let head = r#""redacted":true"#;
    // The first item is an array of 3: the format, the number of the item, and a text of 24 to 255
    // bytes, whose length is the byte before the text.
    let text = proof.iter().position(|byte| *byte == b'{').unwrap();
    assert_eq!(proof[text - 2], 0x78);
    let mut claimed = proof[..at].to_vec();
    claimed.extend(claim.as_bytes());
    claimed.extend(&proof[at + marker.len()..]);
    claimed[text - 1] += u8::try_from(claim.len() - head.len()).unwrap();
    let run = verify(&claimed).done();
    assert!(run.stderr.contains("the readings that the query names"), "{run:?}");
    assert_eq!(fs::read_to_string(scene.path("rows.csv")).unwrap().lines().count(), 1 + 4);
    let run = scene.with_roster(&["verify", "altered.mproof", "--json"]);
    assert!(run.failed(INCOMPLETE).contains("ReadingsNamed"), "{run:?}");
    assert!(run.out.contains(r#""complete":false"#) && run.out.contains(r#""named":true"#));
    // No byte of the parts can be changed: neither a digest, nor a record that was restored by a guess.
    let items = scene.run(&["inspect", "few.mproof", "--json"]).done().out;
    assert!(items.contains("\"item\":\"part\""), "{items}");
    for at in (at + 200..proof.len()).step_by(proof.len() / 40) {
        let mut altered = proof.clone();
        altered[at] ^= 4;
        let run = verify(&altered);
        assert!([REFUSED, INCOMPLETE].contains(&run.code), "byte {at}: {run:?}");
        assert!(!scene.path("rows.csv").exists());
    }
    // A damaged proof is not redacted.
    fs::write(scene.path("altered.mproof"), &proof[..proof.len() - 3]).unwrap();
    let run = redact(&scene, "altered.mproof", "out.mproof", &["--devices", "dev1"]);
    assert!(run.failed(REFUSED).contains("altered.mproof: "), "{run:?}");
    // `merge` names the file, too.
    let run = scene.with_roster(&["merge", "p.mproof", "altered.mproof", "-o", "out.mproof"]);
    assert!(run.failed(REFUSED).contains("moteseal: altered.mproof: "), "{run:?}");
    let bundle = format!("bundles/{}", scene.names("bundles")[0]);
    let run = scene.with_roster(&["merge", "p.mproof", &bundle, "-o", "out.mproof"]);
    assert_eq!(run.code, REFUSED, "{run:?}");
    assert!(run.stderr.contains(&format!("moteseal: {bundle}: NotAProof")), "{run:?}");
}

#[test]
fn digests_of_few_plain_readings_are_warned_of() {
    for (columns, scheme, is_warned) in [
        ("a:Cel:i16/100", "star", true),
        ("a:Cel:i16/100", "tree", true),
        ("a:Cel:i16/100!", "star", false),
        // The ciphertext of a short cell is guessed, too.
        ("a:Cel:i16/100! b:Cel:i16/100", "star", true),
        ("b:Cel:i16/100 a:Cel:i16/100!@1", "tree", true),
        ("a:Cel:i16/100! b:Cel:i16/100!", "tree", false),
    ] {
        let scene = Scene::new();
        let count = columns.split(' ').count();
        // Two readings of an hour, then 40 of the next one and one of the last one.
        let times = (0..2).chain((0..40).map(|at| 3600 + at)).chain([7200]);
        let cells = |at: u64| format!(",{}.5", at % 30).repeat(count);
        let rows = times.map(|at| format!("{}{}\n", 1_767_225_600 + at, cells(at)));
        let names = ["ts", "a", "b"][..=count].join(",");
        scene.write("few.csv", &format!("{names}\n{}", rows.collect::<String>()));
        let mut seal = format!(
            "seal few.csv --device dev1 --key keys/dev1.key.pem --time ts --out bundles --scheme {scheme}"
        );
        let options = format!("--column {}", columns.replace(' ', " --column "));
        seal += &format!(" {options}");
        if columns.contains('!') {
            let run =
                |command: &str| scene.run(&command.split_whitespace().collect::<Vec<_>>()).done();
            run("owner new --group home --name alice --out keys/alice");
            run(
                "roster set --roster roster.cbor --operator keys/op.key.pem --owner alice=keys/alice.pub.pem",
            );
            let add =
                format!("owner add --owner keys/alice.owner --device dev1 --keys keys {options}");
            scene.with_roster(&add.split_whitespace().collect::<Vec<_>>()).done();
            seal += " --stream-secret keys/dev1.stream.key";
        }
        scene.with_roster(&seal.split_whitespace().collect::<Vec<_>>()).done();
        let cloud = scene.cloud("few.redb");
        scene.run(&["push", "bundles", "--to", &cloud.url]).done();
        let get = ["get", "dev1", "--from", &cloud.url, "--rate", "1", "-o", "few.rows.csv"];
        scene.with_roster(&[&get[..], &["--proof", "few.mproof"]].concat()).done();
        // The first hour is kept. The statements of the others lead to the signature.
        let until = ["--until", "2026-01-01T01:00:00Z"];
        let run = redact(&scene, "few.mproof", "first.mproof", &until).done();
        let warning = "digests of fewer than 8 omitted readings, in 1 seal (the first is seal 2 of dev1, \
                       2026-01-01T02:00:00Z)";
        assert_eq!(run.stderr.contains(warning), is_warned, "{columns} {scheme}: {run:?}");
        // Nothing is left out.
        let run = redact(&scene, "few.mproof", "all.mproof", &["--devices", "dev1"]).done();
        assert!(!run.stderr.contains("warning"), "{run:?}");
        if scheme == "tree" && is_warned {
            // Between the readings that are kept is a digest of a single one.
            let run = redact(&scene, "few.mproof", "some.mproof", &["--events", "1/4,1/6"]).done();
            assert!(run.stderr.contains("in 2 seals (the first is seal 1 of dev1"), "{run:?}");
            assert!(run.stderr.lines().any(|line| line.starts_with("a reader who can guess")));
        }
    }
}

/// Runs the commands of docs/redaction.md in their order. The schemes are those of README.md.
#[test]
fn the_examples_of_the_page_work() {
    let scene = proven_with([("dev1", "star"), ("dev2", "tree")]);
    let page = fs::read_to_string(repository("docs/redaction.md")).unwrap();
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let script: String = blocks.collect();
    assert!(script.matches("moteseal ").count() >= 4, "{script}");
    let binary = Path::new(env!("CARGO_BIN_EXE_moteseal")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(scene.path(""))
        .env("PATH", path)
        .env("XDG_STATE_HOME", scene.path("state"))
        .output();
    let run = Run::of(output.unwrap()).done();
    assert!(run.out.contains("four.mproof: verified, what a redactor left of dev2"), "{run:?}");
    let (_, shown) = accepted(&scene, "both.mproof");
    assert_eq!(shown.len(), 1440 + 4);
}

#[test]
fn a_proof_of_ciphertext_is_redacted_without_a_key() {
    let scene = Scene::new();
    let run = |command: &str| scene.with_roster(&command.split_whitespace().collect::<Vec<_>>());
    for command in [
        "owner new --group home --name alice --out keys/alice",
        "roster set --roster roster.cbor --operator keys/op.key.pem --owner alice=keys/alice.pub.pem",
    ] {
        scene.run(&command.split_whitespace().collect::<Vec<_>>()).done();
    }
    let columns = "--column temperature:Cel:i16/100! --column humidity:%RH:u16/100";
    run(&format!("owner add --owner keys/alice.owner --device dev1 --keys keys {columns}")).done();
    scene.table("data.csv", 180);
    let seal =
        "seal data.csv --device dev1 --key keys/dev1.key.pem --time ts --out bundles --scheme tree";
    run(&format!("{seal} {columns} --stream-secret keys/dev1.stream.key")).done();
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let get = format!("get dev1 --from {} --rate 1 --proof p.mproof -o p.csv", cloud.url);
    let secret = "--stream-secret dev1=keys/dev1.stream.key";
    run(&format!("{get} {secret}")).done();
    let all = rows(&scene, "p.csv");
    run("redact p.mproof --events 1/3,1/58 -o two.mproof").done();
    run("redact p.mproof --events 1/58,2/0 -o three.mproof").done();
    run("merge two.mproof three.mproof -o m.mproof").done();
    run(&format!("verify m.mproof --allow-redacted -o rows.csv {secret}")).done();
    let kept = |row: &&String| matches!((place(row).2, place(row).3), (1, 3 | 58) | (2, 0));
    assert_eq!(rows(&scene, "rows.csv"), all.iter().filter(kept).cloned().collect::<Vec<_>>());
}
