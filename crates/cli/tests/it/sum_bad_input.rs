//! `moteseal sum`: an error in a query, a key file, a tree or a configuration is reported in one
//! line with its position.

use std::fs;
use std::net::TcpListener;

use moteseal_sum::key_file::SourceKeys;

use crate::scene::{Run, Scene};

const USAGE: i32 = 2;
const UNREACHABLE: i32 = 6;

const TREE: &str = "[gateways]\nroot = \"querier\"\n[devices]\ndev1 = \"root\"\ndev2 = \"root\"\n";
const QUERY: &str = "SELECT AVG(temperature) FROM sensors EPOCH DURATION 5s";

/// Makes a group that is set up for sums, with a broker that does not run.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.run(&["key", "new", "--out", "keys/q"]).done();
    scene.run(&["key", "link", "--out", "keys/querier.link.key"]).done();
    scene.with_roster(&["sum", "setup", "--querier", "keys/q.key.pem", "--out", "sumkeys"]).done();
    scene.write("tree.toml", TREE);
    // A free port, on which no broker listens.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    configure(&scene, &format!("[link]\nurl = \"mqtt://127.0.0.1:{port}\"\n"));
    scene
}

fn configure(scene: &Scene, rest: &str) {
    let columns =
        r#"["temperature:Cel:i16/100", "humidity:%RH:u16/100", "wind:m/s:f32", "total::u64"]"#;
    scene.write(
        "querier.toml",
        &format!(
            "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/q.key.pem\"\n\
             keys = \"sumkeys/querier.sum.key\"\ntree = \"tree.toml\"\nlink_secret = \"keys/querier.link.key\"\n\
             state = \"querier.state\"\ncolumns = {columns}\n{rest}"
        ),
    );
}

fn ask(scene: &Scene, query: &str) -> Run {
    scene.run(&["sum", "run", query, "--config", "querier.toml", "--epochs", "1"])
}

/// Returns the column of the query that the caret points to.
fn caret(run: &Run, query: &str) -> usize {
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines[0], query, "{run:?}");
    assert!(lines[1].trim_start() == "^", "{run:?}");
    lines[1].len()
}

#[test]
fn an_invalid_query_is_shown_with_a_caret_below_the_mistake() {
    let scene = scene();
    let cases = [
        ("SELECT AVG temperature FROM sensors EPOCH DURATION 5s", 12, "UnexpectedToken"),
        ("SELECT MODE(temperature) FROM sensors EPOCH DURATION 5s", 8, "UnknownAggregate"),
        ("SELECT AVG(pressure) FROM sensors EPOCH DURATION 5s", 12, "UnknownColumn"),
        ("SELECT AVG(wind) FROM sensors EPOCH DURATION 5s", 12, "NotExact"),
        ("SELECT COUNT(*) FROM sensors WHERE humidity > 'wet' EPOCH DURATION 5s", 47, "NotNumeric"),
        ("SELECT COUNT(*) FROM sensors EPOCH DURATION 0s", 45, "DurationOutOfRange"),
        ("SELECT COUNT(*) FROM sensors EPOCH DURATION 9d", 45, "DurationOutOfRange"),
        ("SELECT COUNT(*) FROM sensors", 29, "DurationMissing"),
    ];
    for (query, column, name) in cases {
        let run = ask(&scene, query);
        let line = run.failed(USAGE).to_owned();
        assert!(
            line.starts_with(&format!("moteseal: {name}: column {column}: ")),
            "{query}: {line}"
        );
        assert_eq!(caret(&run, query), column, "{query}");
        assert_eq!(run.out, "");
    }
    let run = ask(&scene, "SELECT AVG(pressure) FROM sensors EPOCH DURATION 5s");
    assert!(run.failed(USAGE).contains("the columns are temperature, humidity, total"), "{run:?}");
}

#[test]
fn control_characters_in_a_query_are_escaped() {
    let scene = scene();
    let run = ask(&scene, "SELECT \u{1b}[31mAVG(x)\nFROM sensors");
    let _ = run.failed(USAGE);
    assert!(!run.stderr.contains('\u{1b}') && run.stderr.lines().count() == 3, "{run:?}");
}

#[test]
fn refuses_a_sum_that_could_overflow_before_sending_the_query() {
    let scene = scene();
    let run = ask(&scene, "SELECT VARIANCE(total) FROM sensors EPOCH DURATION 5s");
    let line = run.failed(USAGE);
    assert!(
        line.contains(
            "Overflow: the sum of squares of total over 2 sources can exceed its 96 bits"
        ),
        "{line}"
    );
    assert!(line.contains("[ranges]"), "{line}");
}

#[test]
fn an_invalid_range_is_reported_with_its_column() {
    let scene = scene();
    for (range, expected) in [
        (
            "temperature = \"warm\"",
            "ranges.temperature: \"warm\": a range is two numbers, for example \"-40..125\"",
        ),
        ("temperature = \"125..-40\"", "ranges.temperature: \"125..-40\": RangeEmpty"),
        ("temperature = \"1..x\"", "ranges.temperature: \"1..x\": NotANumber"),
        ("pressure = \"0..1\"", "ranges.pressure: UnknownColumn: `columns` lacks this column"),
    ] {
        configure(&scene, &format!("[ranges]\n{range}\n[link]\nurl = \"mqtt://127.0.0.1:1\"\n"));
        let run = ask(&scene, QUERY);
        assert!(run.failed(USAGE).contains(expected), "{range}: {run:?}");
    }
}

#[test]
fn refuses_keys_of_another_roster_or_another_kind() {
    let scene = scene();
    let devices = ["--device", "dev1=keys/dev1.pub.pem", "--device", "dev2=keys/dev2.pub.pem"];
    let new = [
        "roster",
        "new",
        "--operator",
        "keys/op.key.pem",
        "--group",
        "home",
        "--epoch",
        "2h",
        "--out",
        "later.cbor",
    ];
    scene.run(&[&new[..], &devices[..]].concat()).done();
    let keep = fs::read(scene.path("roster.cbor")).unwrap();
    fs::rename(scene.path("later.cbor"), scene.path("roster.cbor")).unwrap();
    let run = ask(&scene, QUERY);
    assert!(run.failed(USAGE).contains("sumkeys/querier.sum.key: WrongRoster: "), "{run:?}");
    fs::write(scene.path("roster.cbor"), keep).unwrap();
    fs::copy(scene.path("sumkeys/dev1.sum.key"), scene.path("sumkeys/querier.sum.key")).unwrap();
    let run = ask(&scene, QUERY);
    assert!(run.failed(USAGE).contains("WrongPemLabel: "), "{run:?}");
    scene.write("sumkeys/querier.sum.key", "no key\n");
    assert!(ask(&scene, QUERY).failed(USAGE).contains("MalformedPem: "));
}

#[test]
fn keys_are_never_replaced() {
    let scene = scene();
    let before = fs::read(scene.path("sumkeys/querier.sum.key")).unwrap();
    let run =
        scene.with_roster(&["sum", "setup", "--querier", "keys/q.key.pem", "--out", "sumkeys"]);
    assert!(run.failed(USAGE).contains("already exists; keys are never replaced"), "{run:?}");
    assert_eq!(fs::read(scene.path("sumkeys/querier.sum.key")).unwrap(), before);
    let run = scene.with_roster(&[
        "sum",
        "setup",
        "--querier",
        "keys/q.key.pem",
        "--out",
        "more",
        "--key-groups",
        "3",
    ]);
    assert!(run.failed(USAGE).contains("--key-groups 3"), "{run:?}");
    assert!(!scene.path("more").exists());
}

/// Finding C5 of the review: with one key group, a stolen device can falsify every sum.
#[test]
fn the_devices_are_divided_into_key_groups_by_default() {
    let scene = Scene::new();
    scene.run(&["key", "new", "--out", "keys/q"]).done();
    let names: String = (0..10).map(|at| format!("sensor-{at}\n")).collect();
    scene.write("names.txt", &names);
    let add = ["roster", "add", "--devices-file", "names.txt", "--keys", "devices"];
    let roster = ["--roster", "roster.cbor", "--operator", "keys/op.key.pem"];
    scene.run(&[&add[..], &roster].concat()).done();
    let setup = |out, more: &[&str]| {
        let setup = ["sum", "setup", "--querier", "keys/q.key.pem", "--json", "--out", out];
        let groups = scene.with_roster(&[&setup[..], more].concat()).done().json();
        let key = fs::read(scene.path(out).join("sensor-7.sum.key")).unwrap();
        let key_group = SourceKeys::decode(&key).unwrap().circle.key_group;
        (groups["key_groups"].as_u64().unwrap(), key_group)
    };
    // The first version of the roster has two more devices.
    assert_eq!(setup("sums", &[]), (2, 6));
    assert_eq!(setup("one", &["--key-groups", "1"]), (1, 12));
}

#[test]
fn an_invalid_tree_and_an_unknown_key_are_reported_with_their_file() {
    let scene = scene();
    scene.write("tree.toml", "[gateways]\nroot = \"querier\"\n[devices]\ndev1 = \"root\"\n");
    let run = ask(&scene, QUERY);
    let line = run.failed(USAGE);
    assert!(line.contains("tree.toml: DevicesMissing: ") && line.contains("dev2"), "{line}");
    scene.write("tree.toml", TREE);
    configure(&scene, "flor = 3\n");
    let run = ask(&scene, QUERY);
    let line = run.failed(USAGE);
    assert!(
        line.contains("querier.toml:9: unknown field `flor`")
            && line.contains("docs/sums.md lists all keys"),
        "{line}"
    );
}

#[test]
fn refuses_a_floor_that_would_reveal_a_reading() {
    let scene = scene();
    for floor in ["0", "1", "3"] {
        let run = scene.run(&["sum", "run", QUERY, "--config", "querier.toml", "--floor", floor]);
        let line = run.failed(USAGE);
        assert!(
            line.contains("FloorOutOfRange: the floor is")
                && line.contains("from 2 to the number of sources in the roster, 2"),
            "{line}"
        );
    }
}

#[test]
fn a_state_path_with_another_file_leaves_it_unchanged() {
    let scene = scene();
    scene.write("querier.state", "my notes\n");
    let run = ask(&scene, QUERY);
    assert!(run.failed(USAGE).contains("querier.toml: state: NotAState: "), "{run:?}");
    assert_eq!(fs::read_to_string(scene.path("querier.state")).unwrap(), "my notes\n");
}

#[test]
fn the_wait_for_a_broker_is_bounded() {
    let scene = scene();
    let run = ask(&scene, QUERY);
    assert!(run.failed(UNREACHABLE).contains("Unreachable: mqtt://127.0.0.1:"), "{run:?}");
    assert_eq!(run.out, "");
    // No empty file of rows remains.
    let run = scene.run(&[
        "sum",
        "run",
        QUERY,
        "--config",
        "querier.toml",
        "--json",
        "--out",
        "rows.jsonl",
    ]);
    let _ = run.failed(UNREACHABLE);
    assert!(!scene.path("rows.jsonl").exists());
}
