//! Confidential readings from end to end: an owner, a device that encrypts, a cloud that cannot read, and two
//! readers with different grants.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use moteseal_core::confidential::StreamSecret;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_grant::Identity;

use crate::scene::{Cloud, Scene};

const READINGS: u32 = 400;
const COLUMNS: [&str; 2] = ["temperature:Cel:i16/100!", "humidity:%RH:u16/100!"];

fn with_roster(scene: &Scene, command: &str) -> crate::scene::Run {
    scene.with_roster(&command.split_whitespace().collect::<Vec<_>>())
}

/// An owner with the secret of dev1, whose readings of `data.csv` are encrypted and at a cloud.
pub(crate) fn stored(scheme: &str) -> (Scene, Cloud) {
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
pub(crate) fn grant(scene: &Scene, name: &str, column: &str, until: &str) {
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
        assert!(lacks.contains("humidity is empty in 400 rows: NotCovered: no key of this column"));

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

    // A wrong secret is refused: the cells stay empty, and the command fails. A column that is
    // only not covered is not a failure.
    let secret = StreamSecret::new([7; 32], EpochNumber(0));
    let device = DeviceId::of("home", "dev1");
    scene.write("other.key", &moteseal_grant::encode_stream_secret(device, &secret));
    let proof = "--proof all.mproof --stream-secret dev1=other.key";
    let wrong = with_roster(&scene, &format!("{get} {proof}"));
    let line = wrong.failed(3);
    assert!(
        line.contains("dev1: column temperature: WrongKey: ") && line.contains("check"),
        "{line}"
    );
    let seen = fs::read_to_string(scene.path("out.csv")).unwrap();
    assert!(seen.lines().skip(1).all(|row| row.ends_with(",,")), "{seen}");
    let verify = "verify all.mproof --json --stream-secret dev1=other.key";
    assert_eq!(with_roster(&scene, verify).code, 3);
    with_roster(&scene, "verify all.mproof --grant warm.mgrant --identity warm.txt").done();

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

const PRESSURE: &str = "pressure:Pa:u32!";

/// Writes a table with a reading a minute from a minute of 2026-01-01 on.
fn table(scene: &Scene, name: &str, minutes: std::ops::Range<u64>) {
    let mut text = String::from("ts,temperature,humidity,pressure\n");
    for minute in minutes {
        let time = 1_767_225_600 + minute * 60;
        text +=
            &format!("{time},20.{:02},40.{:02},{}\n", minute % 100, minute % 90, 100_000 + minute);
    }
    scene.write(name, &text);
}

/// Returns the values of columns that a reader sees.
fn values(scene: &Scene, cloud: &Cloud, column: &str, keys: &str) -> Vec<String> {
    let get = format!("get dev1 --from {} --rate 1 --format jsonl --out out.jsonl", cloud.url);
    with_roster(scene, &format!("{get} {keys}")).done();
    let text = fs::read_to_string(scene.path("out.jsonl")).unwrap();
    let value = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        row.get(column).map_or_else(String::new, |value| match value {
            serde_json::Value::Null => String::new(),
            value => value.to_string(),
        })
    };
    text.lines().map(value).collect()
}

/// A device gets a column after its stream secret was removed. The owner forgets in between, and adds the
/// column from a seal, or by its name.
#[test]
fn a_column_that_is_added_later_is_granted_while_old_grants_still_open_and_the_owner_forgets() {
    for from_seal in [true, false] {
        let scene = Scene::new();
        for command in [
            "owner new --group home --name alice --out keys/alice",
            "roster set --roster roster.cbor --operator keys/op.key.pem --owner alice=keys/alice.pub.pem",
        ] {
            scene.run(&command.split_whitespace().collect::<Vec<_>>()).done();
        }
        let [temperature, humidity] = COLUMNS;
        let first = format!("--column {temperature} --column {humidity}");
        let later = format!("{first} --column {PRESSURE}");
        let owner = "--owner keys/alice.owner";
        with_roster(&scene, &format!("owner add {owner} --device dev1 --keys keys {first}")).done();
        let seal = "--device dev1 --key keys/dev1.key.pem --time ts --out bundles";
        table(&scene, "one.csv", 0..180);
        let secret = "--stream-secret keys/dev1.stream.key";
        with_roster(&scene, &format!("seal one.csv {seal} {first} {secret}")).done();
        grant(&scene, "old", "temperature", "2026-01-02");
        fs::rename(scene.path("keys/dev1.stream.key"), scene.path("kept.key")).unwrap();

        // The device has only its spare secret.
        table(&scene, "two.csv", 180..360);
        with_roster(&scene, &format!("seal two.csv {seal} {later}")).done();
        let cloud = scene.cloud("epochs.redb");
        scene.run(&["push", "bundles", "--to", &cloud.url]).done();
        let make = |name: &str, columns: &str, since: &str| {
            let reader = Identity::generate();
            scene.write(&format!("{name}.txt"), &format!("{}\n", *reader.expose()));
            let to = reader.recipient().as_str().to_owned();
            let make = format!("grant make {owner} --device dev1 --until 2026-01-02 --to {to}");
            let rest = format!("--columns {columns} --since {since} --out {name}.mgrant");
            with_roster(&scene, &format!("{make} {rest}"))
        };
        let hours = |hour: u64| format!("2026-01-01T{hour:02}:00:00Z");
        // The first seals have no such column.
        let early = "--rate 1 --columns pressure --out none.csv --no-pinned-seals";
        let early = with_roster(&scene, &format!("get dev1 --from {} {early}", cloud.url));
        let line = early.failed(2);
        assert!(
            line.contains("UnknownColumn: seal 0 of device dev1 (2026-01-01T00:00:00Z)"),
            "{line}"
        );
        assert!(line.contains("\"pressure\", only temperature, humidity;"), "{line}");
        assert!(line.contains("--since"), "{line}");
        assert!(make("none", "pressure", &hours(3)).failed(2).contains("UnknownColumn"));
        let forget = |hour| {
            let forget = format!("owner forget {owner} --before {}", hours(hour));
            with_roster(&scene, &forget).done().stderr
        };
        let erased = forget(1);
        assert!(erased.contains("erased of dev1"), "{erased}");
        let bundle = scene.names("bundles").pop().unwrap();
        let add = if from_seal {
            format!("owner add-columns {owner} --seals bundles/{bundle}")
        } else {
            format!("owner add-columns {owner} --device dev1 {later}")
        };
        let added = with_roster(&scene, &add).done();
        let expected = [
            "dev1  pressure",
            "1 column added",
            "owner forget --device dev1 --before 2026-01-01T01:00:00Z",
        ];
        assert!(expected.iter().all(|line| added.stderr.contains(line)), "{added:?}");
        assert!(forget(1).contains("erased of dev1"));
        assert!(forget(1).contains("nothing to erase"));
        // Nothing is left to add.
        let again = with_roster(&scene, &format!("--json {add}")).done().json()["added"].clone();
        assert_eq!(again, serde_json::json!([]));
        make("new", "temperature,pressure", &hours(2)).done();
        forget(4);
        make("newest", "pressure", &hours(4)).done();

        let keys = |name: &str| format!("--grant {name}.mgrant --identity {name}.txt");
        let see = |name: &str, column: &str| {
            let seen = values(&scene, &cloud, column, &keys(name));
            seen.iter().map(|value| !value.is_empty()).collect::<Vec<_>>()
        };
        let open = |range: std::ops::Range<usize>| -> Vec<bool> {
            (0..360).map(|minute| range.contains(&minute)).collect()
        };
        assert_eq!(see("old", "temperature"), open(0..360));
        assert_eq!(see("old", "pressure"), open(0..0));
        assert_eq!(see("new", "temperature"), open(120..360));
        assert_eq!(see("new", "pressure"), open(180..360));
        assert_eq!(see("newest", "pressure"), open(240..360));
        let owner_sees = values(&scene, &cloud, "pressure", "--stream-secret dev1=kept.key");
        assert_eq!(
            owner_sees[180..],
            (180..360).map(|at| (100_000 + at).to_string()).collect::<Vec<_>>()
        );
        let granted = values(&scene, &cloud, "pressure", &keys("new"));
        assert_eq!(granted, owner_sees);
    }
}

#[test]
fn a_grant_for_a_passphrase_is_opened_with_a_file_a_descriptor_or_at_the_terminal() {
    let (scene, cloud) = stored("star");
    scene.write("pass", "correct horse\nnot this line\n");
    scene.write("wrong", "wrong horse\n");
    let make =
        "grant make --owner keys/alice.owner --device dev1 --since 2026-01-01 --until 2026-01-02";
    let rest = "--columns temperature --passphrase-file pass --out warm.mgrant";
    with_roster(&scene, &format!("{make} {rest}")).done();
    grant(&scene, "damp", "humidity", "2026-01-02");
    // Grants for an identity and for a passphrase.
    let both = "--grant warm.mgrant --grant damp.mgrant --identity damp.txt --passphrase-file pass";
    let (seen, _) = rows(&scene, &cloud, both);
    assert_eq!(seen[0], ("20.00".to_owned(), "40.50".to_owned()));
    let get = format!("get dev1 --from {} --rate 1 --out out.csv --grant warm.mgrant", cloud.url);
    let wrong = with_roster(&scene, &format!("{get} --passphrase-file wrong"));
    assert!(wrong.failed(2).contains("NoMatchingKey"), "{wrong:?}");
    let missing = with_roster(&scene, &format!("{get} --identity damp.txt"));
    let line = missing.failed(2);
    assert!(line.contains("OtherKeyKind") && line.contains("--passphrase-file"), "{line}");
    let alone =
        with_roster(&scene, "get dev1 --from http://127.0.0.1:9 --rate 1 --identity damp.txt");
    assert!(alone.failed(2).contains("--grant"), "{alone:?}");

    // A descriptor of the shell.
    let program = env!("CARGO_BIN_EXE_moteseal");
    let roster = "--roster roster.cbor --operator keys/op.pub.pem";
    let estimate = format!(
        "estimate mean temperature dev1 --from {} --rate 1 --grant warm.mgrant {roster}",
        cloud.url
    );
    let shell = |script: &str, wrapped: &[&str]| {
        let mut command = Command::new(wrapped[0]);
        command.args(&wrapped[1..]).arg(script).current_dir(scene.path(""));
        command.env("XDG_STATE_HOME", scene.path("state"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let script = format!("exec {program} {estimate} --passphrase-file /dev/fd/3 3<pass");
    let output = shell(&script, &["sh", "-c"]).wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // A pipe can be read once, and opens several grants.
    let rest = "--columns humidity --passphrase-file pass --out wet.mgrant";
    with_roster(&scene, &format!("{make} {rest}")).done();
    let opened = format!("{estimate} --grant wet.mgrant --passphrase-file /dev/stdin");
    let script = format!("cat pass | {program} {opened}");
    let output = shell(&script, &["sh", "-c"]).wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // The terminal, whose input and output `script` passes on.
    scene
        .run(&[
            "get",
            "dev1",
            "--from",
            &cloud.url,
            "--rate",
            "1",
            "--proof",
            "p.mproof",
            "--out",
            "out.csv",
            "--roster",
            "roster.cbor",
            "--operator",
            "keys/op.pub.pem",
        ])
        .done();
    let verify = format!("{program} verify p.mproof --grant warm.mgrant --out read.csv {roster}");
    let mut asked = shell(&verify, &["script", "-q", "-e", "/dev/null", "-c"]);
    let (mut stdin, mut stdout) = (asked.stdin.take().unwrap(), asked.stdout.take().unwrap());
    let mut shown = Vec::new();
    // Input from before the question is discarded.
    while !shown.ends_with(b"passphrase of warm.mgrant: ") {
        let mut byte = [0];
        stdout.read_exact(&mut byte).unwrap();
        shown.extend(byte);
    }
    stdin.write_all(b"correct horse\n").unwrap();
    stdout.read_to_end(&mut shown).unwrap();
    assert!(asked.wait().unwrap().success(), "{}", String::from_utf8_lossy(&shown));
    assert!(!shown.windows(5).any(|window| window == b"horse"));
    let read = fs::read_to_string(scene.path("read.csv")).unwrap();
    assert!(read.lines().nth(1).unwrap().contains("20.00"), "{read}");
}
