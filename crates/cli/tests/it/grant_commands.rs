//! Owners and grants, as their users type the commands.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use moteseal_client::input;
use moteseal_core::record::EpochNumber;
use moteseal_grant::{GrantRequest, Identity, Owner, Recipients};

use crate::scene::{Run, Scene};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

/// Makes a group whose owner alice has the secrets of both devices, and the identities of a reader.
pub(crate) fn scene() -> (Scene, Identity) {
    let (scene, reader) = (Scene::new(), Identity::generate());
    scene.write("me.txt", &format!("# created today\n{}\n", *reader.expose()));
    words(&scene, "owner new --group home --name alice --out keys/alice").done();
    words(
        &scene,
        "roster set --roster roster.cbor --operator keys/op.key.pem --owner alice=keys/alice.pub.pem",
    )
    .done();
    add(&scene, "dev1").done();
    add(&scene, "dev2").done();
    (scene, reader)
}

pub(crate) fn words(scene: &Scene, command: &str) -> Run {
    scene.run(&command.split_whitespace().collect::<Vec<_>>())
}

pub(crate) fn with_roster(scene: &Scene, command: &str) -> Run {
    scene.with_roster(&command.split_whitespace().collect::<Vec<_>>())
}

fn add(scene: &Scene, device: &str) -> Run {
    with_roster(
        scene,
        &format!(
            "owner add --owner keys/alice.owner --device {device} --column temperature:Cel:i16/100! \
             --column battery:V:u16/1000 --column humidity:%RH:u16/100! --keys keys"
        ),
    )
}

pub(crate) fn make(scene: &Scene, rest: &str) -> Run {
    with_roster(scene, &format!("grant make --owner keys/alice.owner {rest}"))
}

#[test]
fn a_recipient_sees_what_a_grant_opens() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    let mode = |name: &str| fs::metadata(scene.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("keys/alice.owner"), mode("keys/dev1.stream.key")), (0o600, 0o600));
    make(
        &scene,
        &format!(
            "--device dev1 --columns temperature --since 2026-01-01 --until 2026-01-02 --to {to} \
             --purpose study --out x.mgrant"
        ),
    )
    .done();
    let shown = with_roster(&scene, "--json grant show x.mgrant --identity me.txt").done().json();
    assert_eq!((&shown["owner"], &shown["purpose"]), (&"alice".into(), &"study".into()));
    assert_eq!(shown["recipients"], serde_json::json!([to]));
    assert_eq!(shown["columns"].as_array().unwrap().len(), 1);
    assert_eq!(shown["columns"][0]["device"], "dev1");
    let epochs = &shown["columns"][0]["epochs"][0];
    assert_eq!(epochs[1].as_u64().unwrap() - epochs[0].as_u64().unwrap(), 23);
    let text = with_roster(&scene, "grant show x.mgrant --identity me.txt").done().out;
    assert!(text.contains("2026-01-01T00:00:00Z to 2026-01-02T00:00:00Z"), "{text}");

    let stranger = Identity::generate();
    scene.write("other.txt", &stranger.expose());
    let other = with_roster(&scene, "grant show x.mgrant --identity other.txt");
    assert!(other.failed(USAGE).contains("NoMatchingKey"));
}

#[test]
fn a_grant_that_has_ended_is_shown_and_not_used() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    let past = format!("--since -2d --until -1d --to {to} --not-after 2020-01-01 --out x.mgrant");
    assert!(make(&scene, &past).failed(USAGE).contains("2020-01-01T00:00:00Z is in the past"));

    let roster = input::roster(&scene.path("roster.cbor"), &scene.path("keys/op.pub.pem")).unwrap();
    let owner = Owner::decode(&fs::read(scene.path("keys/alice.owner")).unwrap()).unwrap();
    let request = GrantRequest {
        devices: &[roster.id("dev1").unwrap()],
        columns: None,
        epochs: EpochNumber(490_896)..=EpochNumber(490_919),
        recipients: &Recipients::Keys(vec![reader.recipient().clone()]),
        not_after_ms: Some(1_577_836_800_000),
        purpose: "",
    };
    let grant = owner.grant(&request, &roster, false).unwrap();
    fs::write(scene.path("old.mgrant"), grant).unwrap();
    let shown = with_roster(&scene, "grant show old.mgrant --identity me.txt").done().out;
    assert!(shown.contains("not after  2020-01-01T00:00:00Z (it has ended)"), "{shown}");
    assert!(!shown.contains("purpose"), "{shown}");
    let shown = with_roster(&scene, "--json grant show old.mgrant --identity me.txt").done().json();
    assert_eq!(shown["ended"], true);
    let times = &shown["columns"][0]["times"];
    assert_eq!(*times, serde_json::json!([["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]]));
    let get = "get dev1 --from http://127.0.0.1:9 --rate 1 --out out.csv --grant old.mgrant";
    let used = with_roster(&scene, &format!("{get} --identity me.txt"));
    let line = used.failed(REFUSED);
    assert!(line.contains("GrantExpired") && line.contains("2020-01-01T00:00:00Z"), "{line}");
}

#[test]
fn a_wrong_name_in_a_grant_is_an_error_that_names_it() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    let make = |columns: &str, more: &[&str]| {
        let range = ["--since", "2026-01-01", "--until", "2026-01-02", "--to", to];
        let start = ["grant", "make", "--owner", "keys/alice.owner", "--columns", columns];
        scene.with_roster(&[&start[..], &range, more].concat())
    };
    for (columns, device) in [("temprature", "dev1"), ("humidity,temprature", "dev2")] {
        let run = make(columns, &["--device", device, "--out", "none.mgrant"]);
        let line = run.failed(USAGE);
        assert!(line.contains("UnknownColumn") && line.contains("\"temprature\""), "{line}");
        assert!(line.contains("are humidity, temperature"), "{line}");
    }
    assert!(make("attic", &["--out", "none.mgrant"]).failed(USAGE).contains("\"attic\""));
    // Spaces after a comma are not part of the name.
    make("temperature, humidity", &["--out", "both.mgrant"]).done();
    let run = make("humidity", &["--device", "dev7", "--out", "none.mgrant"]);
    assert!(run.failed(USAGE).contains("UnknownDevice"), "{run:?}");
    assert!(!scene.path("none.mgrant").exists());
}

#[test]
fn a_secret_identity_that_is_given_as_a_recipient_is_not_printed() {
    let (scene, reader) = scene();
    let secret = reader.expose();
    for secret in [secret.to_uppercase(), secret.to_lowercase()] {
        let rest = format!("--since -2d --until -1d --to {secret} --out none.mgrant --json");
        let run = make(&scene, &rest);
        assert!(run.failed(USAGE).contains("a secret identity"), "{run:?}");
        let printed = format!("{}{}", run.out, run.stderr).to_ascii_lowercase();
        assert!(!printed.contains("age-secret-key-1"), "{printed}");
    }
    let wrong = make(&scene, "--since -2d --until -1d --to horse --out none.mgrant");
    assert!(wrong.failed(USAGE).contains("InvalidRecipient") && !wrong.stderr.contains("horse"));
    let wrong = make(&scene, "--since -2d --until -1d --to age1horse --out none.mgrant");
    assert!(wrong.failed(USAGE).contains("--to age1horse"), "{wrong:?}");
}

#[test]
fn a_wrong_file_is_named_for_what_it_is() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    make(&scene, &format!("--since -2d --until -1d --to {to} --out x.mgrant")).done();
    words(&scene, &format!("owner backup --owner keys/alice.owner --to {to} --out alice.backup"))
        .done();
    let secret = "get dev1 --from http://127.0.0.1:9 --rate 1 --out o.csv --stream-secret dev1=";
    for (command, expected) in [
        (
            "owner show --owner keys/alice.pub.pem",
            "not an owner's file (NAME.owner); it looks like a key",
        ),
        ("owner show --owner alice.backup", "a backup (`moteseal owner restore`)"),
        ("redact x.mgrant --devices dev1 -o none", "a grant (`moteseal grant show`)"),
        (
            &format!("{secret}keys/dev1.key.pem"),
            "not a stream secret; name the file NAME.stream.key",
        ),
        (
            &format!("{secret}keys/alice.owner"),
            "not a stream secret; name the file NAME.stream.key",
        ),
    ] {
        let run = with_roster(&scene, command);
        assert!(matches!(run.code, USAGE | REFUSED), "{command}: {run:?}");
        assert!(run.stderr.contains(expected), "{command}: {run:?}");
    }
    let run = words(&scene, "owner restore x.mgrant --identity me.txt --out none.owner");
    assert!(run.failed(REFUSED).contains("is it a grant?"), "{run:?}");
    assert!(!scene.path("none").exists() && !scene.path("none.owner").exists());
}

#[test]
fn an_owner_sees_what_its_file_has() {
    let (scene, _) = scene();
    let forget = "owner forget --owner keys/alice.owner --device dev2 --before 2026-01-01";
    with_roster(&scene, forget).done();
    let show = with_roster(&scene, "owner show --owner keys/alice.owner").done();
    assert!(show.out.contains("owner      alice of group home"), "{show:?}");
    assert!(
        show.out.contains("secret     dev1  humidity, temperature  from 1970-01-01T00:00:00Z\n"),
        "{show:?}"
    );
    assert!(
        show.out.contains("dev2  humidity, temperature  from 2026-01-01T00:00:00Z (earlier keys"),
        "{show:?}"
    );
    let json = with_roster(&scene, "--json owner show --owner keys/alice.owner").done();
    let secret = fs::read_to_string(scene.path("keys/dev1.stream.key")).unwrap();
    let secret = secret.split(' ').next().unwrap();
    assert!(!show.out.contains(secret) && !json.out.contains(secret));
    let json = json.json();
    assert_eq!((&json["name"], &json["listed"]), (&"alice".into(), &true.into()));
    assert_eq!(json["secrets"][1]["forgotten_before"], "2026-01-01T00:00:00Z");
    assert_eq!(json["secrets"][0]["columns"], serde_json::json!(["humidity", "temperature"]));
}

#[test]
fn the_keys_of_the_future_are_erased_only_if_this_is_meant() {
    let (scene, reader) = scene();
    let before = fs::read(scene.path("keys/alice.owner")).unwrap();
    let forget =
        |rest: &str| with_roster(&scene, &format!("owner forget --owner keys/alice.owner {rest}"));
    let refused = forget("--before 2099-01-01");
    assert!(refused.failed(USAGE).contains("is in the future"), "{refused:?}");
    let nothing = forget("--before 1970-01-01").done();
    assert!(nothing.stderr.contains("nothing to erase"), "{nothing:?}");
    assert_eq!(fs::read(scene.path("keys/alice.owner")).unwrap(), before);
    let erased = forget("--before 2026-01-01 --device dev1 --json").done().json();
    assert_eq!((&erased["secrets"], &erased["devices"]), (&1.into(), &serde_json::json!(["dev1"])));
    let all = forget("--before 2026-01-01T02:00:00Z").done();
    assert!(all.stderr.contains("erased of dev1, dev2;"), "{all:?}");
    forget("--before 2099-01-01 --future").done();
    let to = reader.recipient().as_str();
    let make = make(&scene, &format!("--since -2d --until -1d --to {to} --out x.mgrant"));
    assert!(make.failed(USAGE).contains("Forgotten"), "{make:?}");
}

#[test]
fn seals_of_other_devices_add_no_columns_and_are_named() {
    let (scene, _) = scene();
    scene.table("data.csv", 20);
    let seal = "seal data.csv --device dev1 --key keys/dev1.key.pem --time ts --out bundles";
    let column = "--column temperature:Cel:i16/100! --stream-secret keys/dev1.stream.key";
    with_roster(&scene, &format!("{seal} {column}")).done();
    words(&scene, "owner new --group home --name bob --out keys/bob").done();
    let add = |owner: &str, more: &str| {
        with_roster(&scene, &format!("owner add-columns --owner keys/{owner}.owner {more}"))
    };
    let other = add("alice", "--seals bundles --device dev2");
    assert!(other.failed(USAGE).contains("no seal of dev2, but of dev1"), "{other:?}");
    let bob = add("bob", "--seals bundles");
    let line = bob.failed(USAGE);
    assert!(line.contains("NotOwned: the owner bob has no stream secret of dev1"), "{line}");
    let known = add("alice", "--seals bundles").done();
    assert!(known.stderr.contains("no new columns"), "{known:?}");
    let none = add("alice", "");
    let line = none.failed(USAGE);
    assert!(line.contains("--seals FILE") && line.contains("--device and --column"), "{line}");
}

#[test]
fn one_key_is_not_listed_for_two_owners() {
    let (scene, _) = scene();
    let set = "roster set --roster roster.cbor --operator keys/op.key.pem";
    let twice = words(&scene, &format!("{set} --owner bob=keys/alice.pub.pem"));
    assert!(twice.failed(USAGE).contains("is the key of owner alice"), "{twice:?}");
    let renamed = format!("{set} --remove-owner alice --owner bob=keys/alice.pub.pem");
    words(&scene, &renamed).done();
    // An owner that the roster does not list is told so.
    words(&scene, "owner new --group home --name carol --out keys/carol").done();
    let add = "owner add --owner keys/carol.owner --device dev1 --keys others";
    let added = with_roster(&scene, &format!("{add} --column temperature:Cel:i16/100!")).done();
    assert!(added.stderr.contains("the roster does not list the owner carol"), "{added:?}");
}

#[test]
fn nobody_can_grant_what_the_owner_forgot() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    with_roster(&scene, "owner forget --owner keys/alice.owner --device dev1 --before 2026-01-01")
        .done();
    let of = |device: &str, out: &str| {
        let range = "--since 2025-12-31 --until 2026-02-01";
        make(&scene, &format!("--device {device} {range} --to {to} --out {out}"))
    };
    let failed = of("dev1", "x.mgrant");
    let line = failed.failed(USAGE);
    assert!(line.contains("Forgotten") && line.contains("dev1"), "{line}");
    assert!(line.contains("2026-01-01T00:00:00Z"), "{line}");
    assert!(line.contains("; begin there or later"), "{line}");
    of("dev2", "y.mgrant").done();
    // Without names, the device is left out and reported.
    let range = "--since 2025-12-31 --until 2026-02-01";
    let all = make(&scene, &format!("{range} --to {to} --out z.mgrant")).done();
    assert!(all.stderr.contains("left out   dev1: the owner has forgotten the keys"), "{all:?}");
    assert!(all.stderr.contains("opens      dev2: humidity, temperature"), "{all:?}");
    let json = make(&scene, &format!("--json {range} --to {to} --out j.mgrant")).done().json();
    assert_eq!(json["devices"], serde_json::json!(["dev2"]));
    let left_out = serde_json::json!([{ "device": "dev1", "reason": "Forgotten" }]);
    assert_eq!((&json["left_out"], &json["since"]), (&left_out, &"2025-12-31T00:00:00Z".into()));
}

#[test]
fn the_names_of_columns_are_shown_if_a_file_tells_them() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    let range = "--since 2026-01-01 --until 2026-01-02";
    make(&scene, &format!("--device dev1 --columns temperature {range} --to {to} --out x.mgrant"))
        .done();
    scene.table("data.csv", 20);
    let seal = "seal data.csv --device dev1 --key keys/dev1.key.pem --time ts --out bundles";
    let columns = "--column temperature:Cel:i16/100! --column humidity:%RH:u16/100!";
    with_roster(&scene, &format!("{seal} {columns} --stream-secret keys/dev1.stream.key")).done();
    let bundle = format!("bundles/{}", scene.names("bundles")[0]);
    let show = |more: &str| {
        let command = format!("--json grant show x.mgrant --identity me.txt {more}");
        with_roster(&scene, &command).done().json()["columns"][0].clone()
    };
    let unknown = show("");
    assert_eq!(unknown["name"], serde_json::Value::Null);
    for more in [format!("--schema {bundle}"), "--owner keys/alice.owner".to_owned()] {
        let named = show(&more);
        assert_eq!((&named["name"], &named["column"]), (&"temperature".into(), &unknown["column"]));
        let text = with_roster(&scene, &format!("grant show x.mgrant --identity me.txt {more}"));
        assert!(text.done().out.contains("dev1  temperature  2026-01-01"), "{more}");
    }
    let text = with_roster(&scene, "grant show x.mgrant --identity me.txt").done().out;
    assert!(text.contains(unknown["column"].as_str().unwrap()), "{text}");
    let wrong = with_roster(&scene, "grant show x.mgrant --identity me.txt --schema data.csv");
    assert!(wrong.failed(USAGE).contains("no schema"));
}

#[test]
fn a_device_gets_its_copy_of_the_secret_again() {
    let (scene, _) = scene();
    let path = scene.path("keys/dev1.stream.key");
    let copy = |device: &str| {
        let copy = format!("owner copy --owner keys/alice.owner --device {device} --keys keys");
        with_roster(&scene, &copy)
    };
    assert!(copy("dev1").failed(USAGE).contains("already exists"));
    let before = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    copy("dev1").done();
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(&path).unwrap();
    with_roster(&scene, "owner forget --owner keys/alice.owner --device dev1 --before 2026-01-01")
        .done();
    let refused = copy("dev1");
    let line = refused.failed(USAGE);
    assert!(line.contains("NoCopy") && line.contains("dev1"), "{line}");
    assert!(line.contains("owner add --from"), "{line}");
    assert!(!path.exists());
}

#[test]
fn a_device_gets_the_copy_of_the_secret_that_it_uses_now() {
    let (scene, _) = scene();
    let path = scene.path("keys/dev1.stream.key");
    let now = fs::read(&path).unwrap();
    let later = "--column temperature:Cel:i16/100! --from 2130-01-01 --keys later";
    let add = format!("owner add --owner keys/alice.owner --device dev1 {later}");
    with_roster(&scene, &add).done();
    let copy = |more: &str| {
        fs::remove_file(&path).unwrap();
        let copy = "owner copy --owner keys/alice.owner --device dev1 --device dev1 --keys keys";
        let run = with_roster(&scene, &format!("{copy} {more}")).done();
        (fs::read(&path).unwrap(), run)
    };
    let (file, run) = copy("");
    assert_eq!(file, now);
    assert!(run.stderr.contains("dev1 has another secret from 2130-01-01"), "{run:?}");
    let (file, run) = copy("--at 2130-01-02");
    assert_eq!(file, fs::read(scene.path("later/dev1.stream.key")).unwrap());
    assert!(!run.stderr.contains("another secret"), "{run:?}");
}

#[test]
fn no_backup_stays_whose_shares_were_not_printed() {
    let (scene, _) = scene();
    for json in [&[][..], &["--json"]] {
        let backup = ["owner", "backup", "--owner", "keys/alice.owner", "--shares", "--out", "b"];
        let mut command = scene.command(&[&backup[..], json].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(USAGE), "{errors}");
        assert!(errors.contains("the shares could not be printed"), "{errors}");
        assert!(!scene.path("b").exists());
    }
}

#[test]
fn temporary_files_of_killed_commands_are_removed_at_the_next_use_unless_they_are_in_use() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    let abandoned = scene.path("keys/.alice.owner.0123456789abcdef.tmp");
    let uses = [
        format!(
            "grant make --owner keys/alice.owner --since -2d --until -1d --to {to} --out x.mgrant"
        ),
        "owner forget --owner keys/alice.owner --before 2026-01-01".to_owned(),
    ];
    for command in uses {
        fs::copy(scene.path("keys/alice.owner"), &abandoned).unwrap();
        with_roster(&scene, &command).done();
        assert!(!abandoned.exists(), "{command}");
    }
    // Another command writes the file.
    fs::copy(scene.path("keys/alice.owner"), &abandoned).unwrap();
    let lock = fs::File::open(scene.path("keys/alice.owner.lock")).unwrap();
    lock.lock().unwrap();
    let make = "--since -2d --until -1d";
    self::make(&scene, &format!("{make} --to {to} --out y.mgrant")).done();
    assert!(abandoned.exists());
    drop(lock);
    self::make(&scene, &format!("{make} --to {to} --out z.mgrant")).done();
    assert!(!abandoned.exists());
}

#[test]
fn two_shares_restore_the_file_of_an_owner() {
    let (scene, _) = scene();
    let shares = words(&scene, "owner backup --owner keys/alice.owner --shares --out alice.backup")
        .done()
        .out;
    let shares: Vec<&str> = shares.lines().collect();
    assert_eq!(shares.len(), 3);
    for (name, share) in ["one", "two", "three"].iter().zip(&shares) {
        scene.write(name, share);
    }
    let one = words(&scene, "owner restore alice.backup --share-file one --out back.owner");
    assert!(one.failed(USAGE).contains("TooFewShares"));
    words(
        &scene,
        "owner restore alice.backup --share-file one --share-file three --out back.owner",
    )
    .done();
    let [before, after] =
        ["keys/alice.owner", "back.owner"].map(|name| fs::read(scene.path(name)).unwrap());
    assert!(before == after, "the restored file differs");

    // What is missing or does not belong together is stated.
    let other = words(&scene, "owner backup --owner keys/alice.owner --shares --out other.backup");
    other.done();
    let shares = "--share-file one --share-file two --out other.owner";
    let run = words(&scene, &format!("owner restore other.backup {shares}"));
    assert!(run.failed(USAGE).contains("these are shares of another backup"), "{run:?}");
    let run = words(&scene, "owner restore alice.backup --out other.owner");
    assert!(run.failed(USAGE).contains("--share-file"), "{run:?}");
    let run = words(&scene, "owner backup --owner keys/alice.owner --out third.backup");
    assert!(run.failed(USAGE).contains("--shares"), "{run:?}");
}

#[test]
fn a_device_that_joins_gets_its_copy_of_the_secret() {
    let (scene, _) = scene();
    words(&scene, "key new --out keys/dev3").done();
    let run = words(
        &scene,
        "roster add --roster roster.cbor --operator keys/op.key.pem --device dev3=keys/dev3.pub.pem \
         --owner keys/alice.owner --column temperature:Cel:i16/100! --stream-keys keys",
    )
    .done();
    let made = "stream secrets of 1 device with 1 encrypted column: keys";
    assert!(run.stderr.contains(made), "{run:?}");
    let text = fs::read_to_string(scene.path("keys/dev3.stream.key")).unwrap();
    assert!(moteseal_grant::decode_stream_secret(&text).is_ok());
    let again = add(&scene, "dev3");
    let line = again.failed(USAGE);
    assert!(
        line.contains("keys/alice.owner: BaseNotLater: device dev3 has a secret from 1970-01-01")
    );
    assert!(line.contains("`moteseal owner copy`") && line.contains("owner add --from"), "{line}");
    assert_eq!(fs::read_to_string(scene.path("keys/dev3.stream.key")).unwrap(), text);
    // A file of another device with this name is kept.
    words(&scene, "key new --out keys/dev4").done();
    scene.write("keys/dev4.stream.key", "mine");
    let run = words(
        &scene,
        "roster add --roster roster.cbor --operator keys/op.key.pem --device dev4=keys/dev4.pub.pem \
         --owner keys/alice.owner --column temperature:Cel:i16/100! --stream-keys keys",
    );
    assert!(run.failed(USAGE).contains("keys/dev4.stream.key already exists"), "{run:?}");
    assert_eq!(fs::read_to_string(scene.path("keys/dev4.stream.key")).unwrap(), "mine");
}

/// The operator makes epochs six times as long after the owner has granted a day.
#[test]
fn longer_epochs_give_a_grant_no_other_time() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    let day = "--device dev1 --columns temperature --since 2026-01-01 --until 2026-01-02";
    make(&scene, &format!("{day} --to {to} --out x.mgrant")).done();
    // The granted time, the first epoch, the number of epochs, and whether the grant is outdated.
    let show = |name: &str| {
        let shown = with_roster(&scene, &format!("--json grant show {name} --identity me.txt"));
        let shown = shown.done().json();
        let column = &shown["columns"][0];
        let [first, last] = [0, 1].map(|at| column["epochs"][0][at].as_u64().unwrap());
        let time = ["since_ms", "until_ms"].map(|name| shown[name].as_u64().unwrap());
        (time, first, last - first + 1, column["outdated"].as_bool().unwrap())
    };
    let midnight = 1_767_225_600_000;
    let (time, first, count, is_outdated) = show("x.mgrant");
    assert_eq!(time, [midnight, midnight + 86_400_000]);
    assert_eq!((count, is_outdated), (24, false));

    let set = |more: &str| {
        let set = "roster set --roster roster.cbor --operator keys/op.key.pem --epoch 6h";
        words(&scene, &format!("{set} --from 2026-01-01 {more}"))
    };
    assert!(set("").failed(USAGE).contains("PastEpochs"));
    set("--force").done();
    assert_eq!(show("x.mgrant"), (time, first, 4, true));
    let text = with_roster(&scene, "grant show x.mgrant --identity me.txt").done().out;
    assert!(text.contains("time       2026-01-01T00:00:00Z to 2026-01-02T00:00:00Z"), "{text}");
    make(&scene, &format!("{day} --to {to} --out y.mgrant")).done();
    assert_eq!(show("y.mgrant"), (time, first, 4, false));
}
