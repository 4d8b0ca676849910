//! What commands print for other programs: with `--json`, every line of stdout is a JSON object,
//! and an error is an object with a name, a subject, a message and a remedy.

use serde_json::{Value, json};

use crate::scene::{Run, Scene};

const USAGE: i32 = 2;

/// Returns the lines of stdout as JSON objects.
fn objects(run: &Run) -> Vec<Value> {
    let parse = |line| serde_json::from_str::<Value>(line);
    let objects: Result<Vec<_>, _> = run.out.lines().map(parse).collect();
    let objects = objects.unwrap_or_else(|error| panic!("{error}: {run:?}"));
    assert!(!objects.is_empty() && objects.iter().all(Value::is_object), "{run:?}");
    objects
}

/// Returns the error of a failed run, which must be the last line.
fn error(run: &Run) -> Value {
    let error = objects(run).pop().unwrap()["error"].take();
    assert!(run.code != 0 && error["exit"] == run.code, "{run:?}");
    assert!(error["name"].is_string() && error["message"].is_string(), "{run:?}");
    error
}

/// Returns the commands that have no further subcommands, by their help texts.
fn commands(scene: &Scene, path: &[String], found: &mut Vec<Vec<String>>) {
    let words = path.iter().map(String::as_str);
    let help = scene.run(&words.chain(["--help"]).collect::<Vec<_>>()).done().out;
    let list = help.split_once("\nCommands:\n").map(|(_, rest)| rest.split("\n\n").next().unwrap());
    let Some(list) = list else { return found.push(path.to_vec()) };
    for line in list.lines() {
        // The names are indented by two spaces, the texts of long descriptions by more.
        let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) else {
            continue;
        };
        let name = name.split_whitespace().next().unwrap();
        if name != "help" {
            commands(scene, &[path, &[name.to_owned()]].concat(), found);
        }
    }
}

/// Finding G3 of the review.
#[test]
fn every_command_reports_an_error_as_an_object() {
    let scene = Scene::new();
    let mut all = Vec::new();
    commands(&scene, &[], &mut all);
    assert!(all.len() >= 30, "{all:?}");
    for path in &all {
        let words = path.iter().map(String::as_str);
        let arguments: Vec<&str> = words.chain(["--json", "--no-such-option"]).collect();
        let run = scene.run(&arguments);
        let error = error(&run);
        assert_eq!((run.code, &error["name"]), (USAGE, &json!("Usage")), "{run:?}");
        assert!(error["message"].as_str().unwrap().contains("--no-such-option"), "{run:?}");
    }
}

/// Finding G3 of the review.
#[test]
fn an_error_has_a_name_a_subject_a_message_and_a_remedy() {
    let scene = Scene::new();
    let run = |arguments: &[&str]| scene.with_roster(&[arguments, &["--json"]].concat());
    scene.table("data.csv", 60);
    scene.seal("data.csv", "dev1", &[]).done();
    let file = "bundles/dev1-0000000000.mseal";

    // Another device's key.
    let key = ["chain", "show", "--key", "keys/dev2.key.pem", "--device", "dev1"];
    let other = error(&run(&key));
    assert_eq!((&other["name"], &other["exit"]), (&json!("Usage"), &json!(USAGE)));
    assert!(other["remedy"].as_str().unwrap().starts_with("name the right key"), "{other}");

    // A flipped byte.
    let mut bytes = std::fs::read(scene.path(file)).unwrap();
    let signature = bytes.len() - 64;
    bytes[signature] ^= 1;
    std::fs::write(scene.path("bad.mseal"), bytes).unwrap();
    let run_bad = run(&["verify", "bad.mseal"]);
    let bad = error(&run_bad);
    assert_eq!(
        (&bad["name"], &bad["subject"], &bad["exit"]),
        (&json!("NotAuthentic"), &json!("bad.mseal"), &json!(3))
    );
    assert_eq!(objects(&run_bad)[0]["problems"][0], bad, "the result has the same object");
    let text = scene.with_roster(&["verify", "bad.mseal"]);
    assert!(
        text.out.is_empty() && text.failed(3).contains("bad.mseal: NotAuthentic: "),
        "{text:?}"
    );

    // A service that does not answer, and a file that does not exist.
    let get = ["get", "dev1", "--from", "http://127.0.0.1:9", "--rate", "1", "-o", "rows.csv"];
    let away = error(&run(&get));
    assert_eq!((&away["name"], &away["exit"]), (&json!("Unreachable"), &json!(6)));
    let missing = error(&scene.run(&[
        "roster",
        "show",
        "none.cbor",
        "--operator",
        "keys/op.pub.pem",
        "--json",
    ]));
    assert!(missing["message"].as_str().unwrap().contains("none.cbor"), "{missing}");
}

/// Finding G3 of the review.
#[test]
fn commands_that_write_files_name_them_in_an_object() {
    let scene = Scene::new();
    let one = |run: Run| {
        let mut objects = objects(&run.done());
        assert_eq!(objects.len(), 1);
        objects.pop().unwrap()
    };
    let key = one(scene.run(&["key", "new", "--out", "keys/dev3", "--json"]));
    assert_eq!(key["public_key"], "keys/dev3.pub.pem");
    let add = ["roster", "add", "--roster", "roster.cbor", "--operator", "keys/op.key.pem"];
    let add = [&add[..], &["--device", "dev3=keys/dev3.pub.pem", "--json"]].concat();
    let added = one(scene.run(&add));
    assert_eq!((&added["file"], &added["version"]), (&json!("roster.cbor"), &json!(1)));
    let link = one(scene.run(&["key", "link", "--out", "keys/link.key", "--json"]));
    let derive = ["key", "link", "--group-secret", "keys/link.key", "--device", "dev3"];
    let derive = [&derive[..], &["--out", "keys/dev3.link.key", "--json"]].concat();
    let derived = one(scene.with_roster(&derive));
    assert_eq!((&derived["device"], &derived["name"]), (&json!("dev3"), &link["name"]));
    let sums = ["sum", "setup", "--roster", "roster.cbor", "--querier", "keys/dev1.key.pem"];
    let sums = one(scene.run(&[&sums[..], &["--out", "sums", "--json"]].concat()));
    assert_eq!(sums["devices"], 3);
    scene.table("data.csv", 60);
    let sealed = one(scene.seal("data.csv", "dev1", &["--json"]));
    assert_eq!(sealed["events"], 60);
}
