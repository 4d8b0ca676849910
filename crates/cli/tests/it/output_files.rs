//! What `moteseal seal` and `moteseal get` write and print: the format that an extension names,
//! records that are text, units, and devices without seals.

use crate::scene::Scene;

const USAGE: i32 = 2;
const INCOMPLETE: i32 = 4;

/// Finding G7 of the review.
#[test]
fn the_extension_of_the_output_names_its_format_or_is_rejected() {
    let scene = Scene::new();
    let cloud = scene.cloud("epochs.redb");
    scene.table("data.csv", 60);
    scene.seal("data.csv", "dev1", &[]).done();
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let get = |out: &str| {
        scene.with_roster(&["get", "dev1", "--from", &cloud.url, "--rate", "1", "-o", out])
    };
    for (out, start) in [
        ("rows.CSV", &b"epoch,epoch_start,"[..]),
        ("rows.ndjson", b"{\"epoch\":"),
        ("rows.Parquet", b"PAR1"),
        ("rows.txt", b" epoch  epoch_start"),
        ("rows", b" epoch  epoch_start"),
    ] {
        get(out).done();
        let written = std::fs::read(scene.path(out)).unwrap();
        assert!(written.starts_with(start), "{out}: {:?}", String::from_utf8_lossy(&written[..40]));
    }
    for out in ["rows.json", "rows.feather", "rows.xlsx"] {
        let run = get(out);
        let extension = out.strip_prefix("rows").unwrap();
        let message = format!("--out: no format has the extension {extension}; use .csv, ");
        assert!(run.failed(USAGE).contains(&message), "{run:?}");
        assert!(!scene.path(out).exists());
    }
}

/// Finding G7 of the review.
#[test]
fn records_that_are_text_are_readable_as_text() {
    let scene = Scene::new();
    let cloud = scene.cloud("epochs.redb");
    scene.write(
        "notes.csv",
        "ts,note\n\
         2026-01-01T00:00:00Z,door open\n\
         2026-01-01T00:01:00Z,=1+1\n\
         2026-01-01T00:02:00Z,größer\n",
    );
    let seal = ["seal", "notes.csv", "--device", "dev1", "--key", "keys/dev1.key.pem"];
    let more = ["--out", "bundles", "--time", "ts", "--opaque", "note"];
    scene.with_roster(&[&seal[..], &more].concat()).done();
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let get = ["get", "dev1", "--from", &cloud.url, "--rate", "1"];
    let csv = scene.with_roster(&[&get[..], &["--format", "csv"]].concat()).done().out;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "epoch,epoch_start,device,index,seq,payload,text");
    assert!(lines[1].ends_with(",0,646f6f72206f70656e,door open"), "{csv}");
    assert!(lines[2].ends_with(",1,3d312b31,'=1+1"), "no spreadsheet executes it: {csv}");
    assert!(lines[3].ends_with(",2,6772c3b6c39f6572,größer"), "{csv}");
    let json = scene.with_roster(&[&get[..], &["--format", "jsonl"]].concat()).done().out;
    let row: serde_json::Value = serde_json::from_str(json.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&row["payload"], &row["text"]), (&"3d312b31".into(), &"=1+1".into()));
}

/// Finding H of the review.
#[test]
fn a_device_that_has_never_sealed_is_reported_without_a_time_to_end_at() {
    let scene = Scene::new();
    let cloud = scene.cloud("epochs.redb");
    let run = scene.with_roster(&["get", "dev1", "--from", &cloud.url, "--rate", "1"]);
    let message = run.failed(INCOMPLETE);
    assert!(message.contains("nothing shows whether dev1 has sealed"), "{run:?}");
    assert!(!message.contains("--until") && !message.contains("complete to"), "{run:?}");
}

/// Finding H of the review.
#[test]
fn a_unit_that_is_often_mistaken_is_explained() {
    let scene = Scene::new();
    scene.write("data.csv", "ts,inside\n2026-01-01T00:00:00Z,21\n");
    let seal = |unit: &str, out: &str| {
        let column = format!("inside:{unit}:i16");
        let seal = ["seal", "data.csv", "--device", "dev1", "--key", "keys/dev1.key.pem"];
        let more = ["--out", out, "--time", "ts", "--column", &column, "--new-only"];
        scene.with_roster(&[&seal[..], &more].concat()).done().stderr
    };
    let hint = "column inside: the unit C is coulomb; degrees Celsius is Cel";
    assert!(seal("C", "bundles").contains(hint));
    assert!(!seal("Cel", "bundles").contains("the unit"));
}
