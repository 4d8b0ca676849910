//! Columns that are fetched, left out and put together by real processes: a device with column groups,
//! a cloud, and proofs.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::scene::{Cloud, Run, Scene, repository};

const REFUSED: i32 = 3;
const INCOMPLETE: i32 = 4;
const USAGE: i32 = 2;
const SECRET: &str = "--stream-secret dev1=keys/dev1.stream.key";

fn with_roster(scene: &Scene, command: &str) -> Run {
    scene.with_roster(&command.split_whitespace().collect::<Vec<_>>())
}

/// A cloud with the readings of dev1 in `data.csv`, which has these columns, sealed as stars.
fn stored(scene: &Scene, columns: &[&str]) -> Cloud {
    stored_as(scene, columns, "star")
}

/// A cloud with the readings of dev1 in `data.csv`, which has these columns, sealed by the scheme.
fn stored_as(scene: &Scene, columns: &[&str], scheme: &str) -> Cloud {
    for command in [
        "owner new --group home --name alice --out keys/alice",
        "roster set --roster roster.cbor --operator keys/op.key.pem --owner alice=keys/alice.pub.pem",
    ] {
        scene.run(&command.split_whitespace().collect::<Vec<_>>()).done();
    }
    let columns: String = columns.iter().map(|column| format!(" --column {column}")).collect();
    let add = "owner add --owner keys/alice.owner --device dev1 --keys keys";
    with_roster(scene, &format!("{add}{columns}")).done();
    let seal = "seal data.csv --device dev1 --key keys/dev1.key.pem --time ts --out bundles";
    let secret = "--stream-secret keys/dev1.stream.key";
    with_roster(scene, &format!("{seal}{columns} {secret} --scheme {scheme}")).done();
    let cloud = scene.cloud("epochs.redb");
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    cloud
}

/// Three hours of readings with three groups, sealed as stars.
fn three_groups() -> (Scene, Cloud) {
    three_groups_as("star")
}

/// Three hours of readings with three groups, sealed by the scheme.
pub(crate) fn three_groups_as(scheme: &str) -> (Scene, Cloud) {
    let scene = Scene::new();
    let mut text = String::from("ts,humidity,temperature,power\n");
    for i in 0..1800_u64 {
        let time = 1_767_225_600 + i * 6;
        text += &format!("{time},{}.5,{}.25,{}\n", 40 + i % 9, 20 + i % 7, 1000 + i);
    }
    scene.write("data.csv", &text);
    let columns = ["humidity:%RH:u16/100", "temperature:Cel:i16/100!@1", "power:W:u32!aes@2"];
    let cloud = stored_as(&scene, &columns, scheme);
    (scene, cloud)
}

/// Gets rows and their proof with the owner's keys. `more` are further options.
fn get(scene: &Scene, cloud: &Cloud, name: &str, more: &str) -> Run {
    let get = format!("get dev1 --from {} --rate 1 --no-pinned-seals", cloud.url);
    with_roster(scene, &format!("{get} --proof {name}.mproof -o {name}.csv {SECRET} {more}"))
}

/// Returns the columns of a table after the five that every table has, line by line.
pub(crate) fn columns(scene: &Scene, path: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(scene.path(path)).unwrap();
    text.lines().map(|line| line.split(',').skip(5).map(str::to_owned).collect()).collect()
}

/// Returns some of the columns of a table.
pub(crate) fn only(table: &[Vec<String>], names: &[&str]) -> Vec<Vec<String>> {
    let place = |name: &&str| table[0].iter().position(|column| column == name).unwrap();
    let places: Vec<usize> = names.iter().map(place).collect();
    table.iter().map(|row| places.iter().map(|at| row[*at].clone()).collect()).collect()
}

fn length(scene: &Scene, path: &str) -> u64 {
    fs::metadata(scene.path(path)).unwrap().len()
}

/// Checks that the proof with some columns is shorter than that with all, unless it has all groups.
/// Humidity is in group 0, which is always sent.
fn check_length(scene: &Scene, names: &[&str]) {
    let [some, whole] = ["some.mproof", "all.mproof"].map(|path| length(scene, path));
    let has_all_groups = ["temperature", "power"].iter().all(|name| names.contains(name));
    assert_eq!(some < whole, !has_all_groups, "{names:?}: {some} of {whole} bytes");
}

#[test]
fn only_the_columns_that_are_asked_for_are_sent_and_verified() {
    let (scene, cloud) = three_groups();
    get(&scene, &cloud, "all", "").done();
    let all = columns(&scene, "all.csv");
    assert_eq!(all[0], ["humidity", "temperature", "power"]);
    assert_eq!((all.len(), &all[1][..]), (1801, &["40.50", "20.25", "1000"].map(String::from)[..]));
    for names in [&["power"][..], &["humidity"], &["temperature", "power"], &["power", "humidity"]]
    {
        get(&scene, &cloud, "some", &format!("--columns {}", names.join(","))).done();
        let mut sorted = names.to_vec();
        sorted.sort_by_key(|name| all[0].iter().position(|column| column == name));
        assert_eq!(columns(&scene, "some.csv"), only(&all, &sorted), "{names:?}");
        check_length(&scene, names);
        // The proof verifies offline, with the same columns.
        let verify = with_roster(&scene, &format!("verify some.mproof -o again.csv {SECRET}"));
        verify.done();
        assert_eq!(columns(&scene, "again.csv"), columns(&scene, "some.csv"));
    }
    let text = with_roster(&scene, "verify some.mproof").done();
    assert!(text.out.contains("only power, humidity"), "{text:?}");
    for format in ["jsonl", "arrow", "parquet", "table"] {
        let more = format!("--columns power --format {format}");
        get(&scene, &cloud, "some", &more).done();
    }
}

#[test]
fn a_column_that_is_missing_is_an_error_by_name() {
    let (scene, cloud) = three_groups();
    for (more, name) in [
        ("--columns attic", "UnknownColumn"),
        ("--columns power,power", "BadQuery"),
        ("--columns humidity --mean power", "ColumnHidden"),
    ] {
        let run = get(&scene, &cloud, "none", more);
        assert!(run.failed(USAGE).contains(name), "{name}: {run:?}");
        assert!(!scene.path("none.csv").exists() && !scene.path("none.mproof").exists());
    }
    get(&scene, &cloud, "mean", "--columns power --mean power").done();
}

#[test]
fn a_cloud_can_neither_withhold_a_column_nor_send_another_one() {
    let (scene, cloud) = three_groups();
    get(&scene, &cloud, "two", "--columns temperature,power").done();
    let proof = fs::read(scene.path("two.mproof")).unwrap();
    let asked = br#""columns":["temperature","power"],"#;
    let at = proof.windows(asked.len()).position(|bytes| bytes == asked).unwrap();
    // The answer to a query is not the answer to one for other columns.
    for (query, code, name) in [
        (r#""columns":["power"],"#, REFUSED, "NotAsAsked"),
        (r#""columns":["humidity"],"#, REFUSED, "NotAsAsked"),
        (r#""columns":["attic"],"#, USAGE, "UnknownColumn"),
    ] {
        let mut changed = proof.clone();
        let width = asked.len();
        changed[at..at + width].copy_from_slice(format!("{query:<width$}").as_bytes());
        fs::write(scene.path("changed.mproof"), changed).unwrap();
        let run = with_roster(&scene, "verify changed.mproof");
        assert!(run.failed(code).contains(name), "{query}: {run:?}");
    }
    get(&scene, &cloud, "one", "--columns power").done();
    let proof = fs::read(scene.path("one.mproof")).unwrap();
    let asked = br#""columns":["power"],"#;
    let at = proof.windows(asked.len()).position(|bytes| bytes == asked).unwrap();
    let mut changed = proof;
    changed[at..at + asked.len()].fill(b' ');
    fs::write(scene.path("changed.mproof"), changed).unwrap();
    let run = with_roster(&scene, "verify changed.mproof");
    assert!(run.failed(INCOMPLETE).contains("ColumnWithheld"), "{run:?}");
}

#[test]
fn columns_are_dropped_from_a_proof_and_merged_without_a_key() {
    let (scene, cloud) = three_groups();
    get(&scene, &cloud, "all", "").done();
    let all = columns(&scene, "all.csv");
    let redact = |name: &str, columns: &str| {
        with_roster(
            &scene,
            &format!("redact all.mproof --columns {columns} --drop -o {name}.mproof"),
        )
    };
    // Humidity is in group 0, so it cannot be dropped, and must be named.
    let run = redact("none", "temperature");
    assert!(run.failed(USAGE).contains("ColumnNotSeparate"), "{run:?}");
    assert!(run.stderr.contains("humidity of dev1 is in column group 0"), "{run:?}");
    redact("t", "temperature,humidity").done();
    redact("p", "power,humidity").done();
    let read = |name: &str| {
        let verify = format!("verify {name}.mproof --allow-redacted -o rows.csv {SECRET}");
        (with_roster(&scene, &verify).done().stderr, columns(&scene, "rows.csv"))
    };
    // The column that was dropped is empty, and the report says so. The column of group 0 stays.
    let (report, rows) = read("t");
    assert!(report.contains("power is empty in 1,800 rows: ColumnHidden"), "{report}");
    assert_eq!(only(&rows, &["humidity", "temperature"]), only(&all, &["humidity", "temperature"]));
    assert!(only(&rows, &["power"]).iter().skip(1).all(|row| row[0].is_empty()));
    // Its cells have left the file: the ciphertext of the whole proof is not in it.
    let (whole, dropped) =
        (fs::read(scene.path("all.mproof")).unwrap(), fs::read(scene.path("t.mproof")).unwrap());
    assert!(dropped.len() < whole.len());
    // Both together show everything.
    with_roster(&scene, "merge t.mproof p.mproof -o both.mproof").done();
    let (_, rows) = read("both");
    assert_eq!(rows, all);
    // Other readings and other columns of the same seals do not fit into one proof.
    let half = format!("get dev1 --from {} --rate 1/2 --no-pinned-seals", cloud.url);
    let half = format!("{half} --proof half.mproof -o half.csv --columns power");
    with_roster(&scene, &half).done();
    with_roster(&scene, "merge half.mproof p.mproof -o same.mproof").done();
    let run = with_roster(&scene, "merge half.mproof t.mproof -o none.mproof");
    assert!(run.failed(USAGE).contains("NotMergeable"), "{run:?}");
    // A proof that shows everything that they show makes them fit, in whatever order they are given.
    for order in
        ["half t all", "half all t", "t half all", "t all half", "all half t", "all t half"]
    {
        let proofs = order.split(' ').map(|name| format!("{name}.mproof "));
        let merge = format!("merge {}-o three.mproof", proofs.collect::<String>());
        with_roster(&scene, &merge).done();
        assert_eq!(read("three").1, all, "{order}");
    }
    let run = redact("none", "attic,humidity");
    assert!(run.failed(USAGE).contains("UnknownColumn"), "{run:?}");
}

#[test]
fn groups_of_a_tree_are_stored_served_redacted_and_merged() {
    let (scene, cloud) = three_groups_as("tree");
    get(&scene, &cloud, "all", "").done();
    let all = columns(&scene, "all.csv");
    assert_eq!((all.len(), &all[1][..]), (1801, &["40.50", "20.25", "1000"].map(String::from)[..]));
    for names in [&["power"][..], &["humidity"], &["temperature", "power"]] {
        get(&scene, &cloud, "some", &format!("--columns {}", names.join(","))).done();
        assert_eq!(columns(&scene, "some.csv"), only(&all, names), "{names:?}");
        check_length(&scene, names);
    }
    // A share of the readings, a sample of 20 in each of the three hours, and single readings.
    let read = |choice: &str| {
        let get = format!("get dev1 --from {} --no-pinned-seals {choice}", cloud.url);
        let get = format!("{get} --columns power --proof few.mproof -o few.csv {SECRET}");
        with_roster(&scene, &get).done();
        columns(&scene, "few.csv")
    };
    let power = only(&all, &["power"]);
    let seed = "07".repeat(32);
    for (choice, most) in [("--rate 1/8", 500), (&format!("--sample 20 --seed {seed}"), 62)] {
        let rows = read(choice);
        assert!((2..most).contains(&rows.len()), "{choice}: {}", rows.len());
        assert!(rows.iter().all(|row| power.contains(row)), "{choice}");
    }
    assert_eq!(read("--reading 0/3"), [power[0].clone(), power[4].clone()]);
    // Single readings and single columns of the proof, and both together again.
    let redact = |name: &str, keep: &str| {
        with_roster(&scene, &format!("redact all.mproof {keep} -o {name}.mproof")).done();
    };
    redact("few", "--devices dev1 --events 0/3-5 --columns temperature,humidity --drop");
    redact("more", "--devices dev1 --events 0/5-9 --columns temperature,humidity --drop");
    with_roster(&scene, "merge few.mproof more.mproof -o both.mproof").done();
    let verify = format!("verify both.mproof --allow-redacted -o rows.csv {SECRET}");
    let report = with_roster(&scene, &verify).done().stderr;
    assert!(report.contains("ColumnHidden"), "{report}");
    let rows = columns(&scene, "rows.csv");
    let shown = ["humidity", "temperature"];
    assert_eq!(only(&rows, &shown)[1..], only(&all, &shown)[4..11]);
    assert!(only(&rows, &["power"]).iter().skip(1).all(|row| row[0].is_empty()));
    redact("rest", "--columns power,humidity --drop");
    redact("one", "--columns temperature,humidity --drop");
    with_roster(&scene, "merge rest.mproof one.mproof -o whole.mproof").done();
    with_roster(&scene, &format!("verify whole.mproof --allow-redacted -o rows.csv {SECRET}"))
        .done();
    assert_eq!(columns(&scene, "rows.csv"), all);
}

/// Makes `p.mproof` with all columns, and names the sanitiser `gw` of the groups 1 and 2.
fn with_sanitiser() -> (Scene, Cloud) {
    let (scene, cloud) = three_groups();
    get(&scene, &cloud, "p", "").done();
    scene.run(&["key", "new", "--out", "keys/gw"]).done();
    let roster = "--roster roster.cbor --operator keys/op.key.pem";
    let command = format!("roster sanitiser gw --key keys/gw.pub.pem --groups 1,2 {roster}");
    scene.run(&command.split_whitespace().collect::<Vec<_>>()).done();
    (scene, cloud)
}

fn sanitise(scene: &Scene, proof: &str, columns: &str, more: &str) -> Run {
    let command = format!("sanitise {proof} --key keys/gw.key.pem {SECRET}");
    with_roster(scene, &format!("{command} {columns} -o coarse.mproof {more}"))
}

#[test]
fn a_sanitised_proof_is_refused_unless_its_sanitiser_is_accepted() {
    let (scene, _cloud) = with_sanitiser();
    let all = columns(&scene, "p.csv");
    sanitise(&scene, "p.mproof", "--to temperature:Cel:i8", "--policy degrees").done();
    let run = with_roster(&scene, "verify coarse.mproof");
    let error = run.failed(REFUSED);
    assert!(error.contains("ColumnSanitised: gw replaced the values of temperature"), "{error}");
    let run = with_roster(&scene, "verify coarse.mproof --accept-sanitised gateway");
    assert!(run.failed(USAGE).contains("no sanitiser gateway; its sanitisers are gw"), "{run:?}");
    let verify = "verify coarse.mproof --accept-sanitised gw -o rows.csv";
    let run = with_roster(&scene, &format!("{verify} {SECRET}")).done();
    let report = "temperature is sanitised by gw in 1,800 rows: degrees";
    assert!(run.stderr.contains(report), "{run:?}");
    let rows = columns(&scene, "rows.csv");
    assert_eq!(rows[0], ["humidity", "temperature", "power", "origin"]);
    assert_eq!(only(&rows, &["humidity", "power"]), only(&all, &["humidity", "power"]));
    let (coarse, fine) = (only(&rows, &["temperature"]), only(&all, &["temperature"]));
    for (coarse, fine) in coarse.iter().zip(&fine).skip(1) {
        assert_eq!(coarse[0], fine[0].split('.').next().unwrap());
    }
    let origin = "temperature sanitised by gw: degrees";
    assert!(only(&rows, &["origin"])[1..].iter().all(|row| row[0] == origin));
    for format in ["jsonl", "arrow", "parquet"] {
        with_roster(&scene, &format!("{verify} --format {format}")).done();
    }
    let step = "--to power:W:u16 --step power=500 --to temperature:Cel:i8";
    sanitise(&scene, "p.mproof", step, "--json").done();
    let text = with_roster(&scene, &format!("{verify} --json")).done().out;
    let policy = "power as u16 in steps of 500, temperature as i8";
    assert!(text.contains(policy), "{text}");
    let powers = only(&columns(&scene, "rows.csv"), &["power"]);
    assert!(powers[1..].iter().all(|row| row[0].parse::<u32>().unwrap() % 500 == 0));
}

#[test]
fn what_a_sanitiser_must_not_replace_is_an_error_by_name() {
    let (scene, _cloud) = with_sanitiser();
    for (columns, name) in [
        ("--to humidity:%RH:u8", "GroupsOutOfRange"),
        ("--to temperature:K:i8", "FieldMismatch"),
        ("--to attic::u8", "UnknownColumn"),
        ("--to temperature:Cel:bool", "WrongValueType"),
        ("--to temperature:Cel", "MalformedField"),
        ("--to temperature:Cel:i8 --to temperature:Cel:i16", "--to: temperature is given twice"),
        (
            "--to temperature:Cel:i8 --step temperature=2 --step temperature=5",
            "--step: temperature is given twice",
        ),
    ] {
        let run = sanitise(&scene, "p.mproof", columns, "");
        assert!(run.failed(USAGE).contains(name), "{columns}: {run:?}");
        assert!(!scene.path("coarse.mproof").exists());
    }
    sanitise(&scene, "p.mproof", "--to temperature:Cel:i8", "").done();
    // The operator takes the rights away, and then the sanitiser.
    let roster = "--roster roster.cbor --operator keys/op.key.pem";
    let sanitiser = |what: &str| {
        let command = format!("roster sanitiser {what} {roster}");
        scene.run(&command.split_whitespace().collect::<Vec<_>>())
    };
    let change = |what: &str| sanitiser(&format!("gw {what}")).done();
    // Nobody else has the key of a sanitiser.
    for (key, holder) in [("gw", "gw"), ("dev2", "dev2"), ("alice", "alice")] {
        let run = sanitiser(&format!("other --key keys/{key}.pub.pem --groups 1"));
        let line = run.failed(USAGE);
        let reason = format!("KeyInUse: the key of other is also a key of {holder}");
        assert!(line.contains(&reason), "{line}");
    }
    let verify = || with_roster(&scene, "verify coarse.mproof --accept-sanitised gw");
    verify().done();
    change("--until 2030-01-01");
    verify().done();
    let run = sanitiser("gw --until 2035-01-01");
    assert!(run.failed(USAGE).contains("EndNotEarlier: the rights of sanitiser gw already end"));
    change("--until 2026-01-01T00:00:00Z");
    assert!(verify().failed(REFUSED).contains("SanitiserNotPermitted"));
    change("--remove");
    assert!(verify().failed(USAGE).contains("no sanitiser gw; its sanitisers are none"));
    let run = with_roster(&scene, "verify coarse.mproof");
    assert!(run.failed(REFUSED).contains("UnknownSanitiser"), "{run:?}");
    let run = sanitise(&scene, "p.mproof", "--to temperature:Cel:i8", "");
    assert!(run.failed(USAGE).contains("UnknownSanitiser"), "{run:?}");
}

#[test]
fn the_example_of_sanitising_works() {
    let (scene, cloud) = three_groups();
    get(&scene, &cloud, "p", "").done();
    let page = fs::read_to_string(repository("docs/redaction.md")).unwrap();
    let script = page.split("```bash\n").nth(1).unwrap().split("```").next().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_moteseal")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(scene.path(""))
        .env("PATH", path)
        .env("XDG_STATE_HOME", scene.path("state"))
        .output();
    let run = Run::of(output.unwrap()).done();
    assert!(run.out.contains("temperature sanitised by gw: temperature as i8"), "{run:?}");
}

/// Eight columns of 4 bytes, each in its own group, a reading a second for four hours.
fn eight_groups() -> (Scene, Cloud) {
    let scene = Scene::new();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut text = format!("ts,{}\n", names.join(","));
    for i in 0..4 * 3600_u64 {
        text += &(1_767_225_600 + i).to_string();
        for column in 0..8 {
            text += &format!(",{}", i * (column + 1) % 100_000);
        }
        text.push('\n');
    }
    scene.write("data.csv", &text);
    let columns = ["a:W:u32!", "b:W:u32!@1", "c:W:u32!@2", "d:W:u32!@3"];
    let more = ["e:W:u32!@4", "f:W:u32!@5", "g:W:u32!@6", "h:W:u32!@7"];
    let cloud = stored(&scene, &[&columns[..], &more].concat());
    (scene, cloud)
}

#[test]
fn one_of_eight_columns_takes_less_than_a_quarter_of_the_bytes() {
    let (scene, cloud) = eight_groups();
    get(&scene, &cloud, "all", "").done();
    get(&scene, &cloud, "one", "--columns a").done();
    let (all, one) = (length(&scene, "all.mproof"), length(&scene, "one.mproof"));
    println!("{one} of {all} bytes");
    assert!(4 * one < all, "{one} of {all}");
}
