//! Owners and grants, as their users type the commands.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use moteseal_grant::Identity;

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
    make(
        &scene,
        &format!("--since -2d --until -1d --to {to} --not-after 2020-01-01 --out y.mgrant"),
    )
    .done();
    let ended = with_roster(&scene, "grant show y.mgrant --identity me.txt");
    assert!(ended.failed(REFUSED).contains("GrantExpired"));
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
    of("dev2", "y.mgrant").done();
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
    assert!(!path.exists());
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
}

#[test]
fn a_device_that_joins_gets_its_copy_of_the_secret() {
    let (scene, _) = scene();
    words(&scene, "key new --out keys/dev3").done();
    words(
        &scene,
        "roster add --roster roster.cbor --operator keys/op.key.pem --device dev3=keys/dev3.pub.pem \
         --owner keys/alice.owner --column temperature:Cel:i16/100! --stream-keys keys",
    )
    .done();
    let text = fs::read_to_string(scene.path("keys/dev3.stream.key")).unwrap();
    assert!(moteseal_grant::decode_stream_secret(&text).is_ok());
    let again = add(&scene, "dev3");
    assert!(again.failed(USAGE).contains("already exists"));
    fs::remove_file(scene.path("keys/dev3.stream.key")).unwrap();
    assert!(add(&scene, "dev3").failed(USAGE).contains("BaseNotLater"));
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
