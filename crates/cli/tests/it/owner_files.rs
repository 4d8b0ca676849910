//! Changes of an owner's file: what they erase, what they refuse, and a new key.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::symlink;

use crate::grant_commands::{make, scene, with_roster, words};
use crate::scene::{Run, Scene};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

fn forget(scene: &Scene, owner: &str) -> Run {
    with_roster(scene, &format!("owner forget --owner {owner} --before 2026-01-01"))
}

#[test]
fn what_was_forgotten_is_overwritten_also_behind_a_symbolic_link() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    let (real, link) = (scene.path("usb/real.owner"), scene.path("keys/link.owner"));
    fs::create_dir(scene.path("usb")).unwrap();
    fs::rename(scene.path("keys/alice.owner"), &real).unwrap();
    symlink("../usb/real.owner", &link).unwrap();
    let before = fs::read(&real).unwrap();
    let mut held = File::open(&real).unwrap();
    let run = forget(&scene, "keys/link.owner").done();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "the link is still one");
    assert_ne!(fs::read(&real).unwrap(), before);
    // What was in the place of the file.
    let mut left = Vec::new();
    held.read_to_end(&mut left).unwrap();
    assert_eq!(left, vec![0; before.len()]);
    let text = format!("{}{}", run.out, run.stderr);
    assert!(text.contains("keys/dev1.stream.key and 1 more"), "{text}");

    let make = "--device dev1 --since 2025-12-31 --until 2026-01-02";
    let make = format!("grant make --owner usb/real.owner {make} --to {to} --out x.mgrant");
    assert!(with_roster(&scene, &make).failed(USAGE).contains("Forgotten"));
}

#[test]
fn a_file_with_a_hard_link_is_not_changed() {
    let (scene, _) = scene();
    let other = scene.path("other.owner");
    fs::hard_link(scene.path("keys/alice.owner"), &other).unwrap();
    let before = fs::read(&other).unwrap();
    let refused = forget(&scene, "keys/alice.owner");
    assert!(refused.failed(USAGE).contains("HardLinked"), "{refused:?}");
    for path in [&other, &scene.path("keys/alice.owner")] {
        assert!(fs::read(path).unwrap() == before, "{}", path.display());
    }
    fs::remove_file(&other).unwrap();
    forget(&scene, "keys/alice.owner").done();
}

#[test]
fn an_owner_gets_a_new_key_and_keeps_its_secrets() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    let grant = |name: &str| {
        make(&scene, &format!("--since 2026-01-01 --until 2026-01-02 --to {to} --out {name}"))
    };
    let show = |name: &str| with_roster(&scene, &format!("grant show {name} --identity me.txt"));
    grant("old.mgrant").done();
    let rotate = "owner rotate-key --owner keys/alice.owner --out keys/alice-2.pub.pem";
    words(&scene, rotate).done();
    let after = fs::read(scene.path("keys/alice.owner")).unwrap();
    assert!(words(&scene, rotate).failed(USAGE).contains("already exists"));
    assert!(fs::read(scene.path("keys/alice.owner")).unwrap() == after, "nothing has changed");

    // The operator has not listed the new key yet.
    assert!(grant("new.mgrant").failed(USAGE).contains("WrongOwnerKey"));
    show("old.mgrant").done();
    words(
        &scene,
        "roster set --roster roster.cbor --operator keys/op.key.pem --owner alice=keys/alice-2.pub.pem",
    )
    .done();
    let refused = show("old.mgrant");
    assert!(refused.failed(REFUSED).contains("OwnerKeyChanged"), "{refused:?}");
    grant("new.mgrant").done();
    let text = show("new.mgrant").done().out;
    assert!(text.contains("dev1") && text.contains("dev2"), "{text}");
}

/// Seals three hours of readings of a device from an hour of a day on, with the pressure or without.
fn seal(scene: &Scene, device: &str, hour: u64, has_pressure: bool, more: &str) -> Run {
    let mut text = String::from("ts,temperature,humidity,pressure\n");
    for minute in 60 * hour..60 * (hour + 3) {
        let time = 1_767_225_600 + 60 * minute;
        text += &format!("{time},20.{:02},40.00,{}\n", minute % 100, 100_000 + minute);
    }
    scene.write("data.csv", &text);
    let pressure = if has_pressure { "--column pressure:Pa:u32!" } else { "" };
    let seal = format!("seal data.csv --device {device} --key keys/{device}.key.pem --time ts");
    let columns = "--column temperature:Cel:i16/100! --column humidity:%RH:u16/100!";
    let rest = format!("--out bundles {columns} {pressure} {more}");
    with_roster(scene, &format!("{seal} {rest}"))
}

/// Returns the newest bundle of a device.
fn newest(scene: &Scene, device: &str) -> String {
    let mut names = scene.names("bundles");
    names.retain(|name| name.starts_with(device) && name.ends_with(".mseal"));
    names.sort();
    format!("bundles/{}", names.pop().unwrap())
}

/// A device loses its keys, and starts from its stream secret again. Another device is as it should be.
#[test]
fn a_column_that_a_device_begins_again_is_moved_only_on_request() {
    let (scene, reader) = scene();
    let to = reader.recipient().as_str();
    for device in ["dev1", "dev2"] {
        let secret = format!("--stream-secret keys/{device}.stream.key");
        seal(&scene, device, 0, false, &secret).done();
        seal(&scene, device, 3, true, "").done();
    }
    let add = |more: &str| {
        with_roster(&scene, &format!("owner add-columns --owner keys/alice.owner {more}"))
    };
    let before = newest(&scene, "dev1");
    add(&format!("--seals {before}")).done();
    let keys = scene.names("keys");
    let columns = keys.iter().find(|name| name.contains("dev1") && name.ends_with(".columns"));
    fs::remove_file(scene.path(&format!("keys/{}", columns.unwrap()))).unwrap();
    seal(&scene, "dev1", 6, true, "--stream-secret keys/dev1.stream.key").done();

    let (after, other) = (newest(&scene, "dev1"), newest(&scene, "dev2"));
    let both = format!("--seals {after} --seals {other}");
    let refused = add(&both);
    let line = refused.failed(USAGE);
    assert!(line.contains("ColumnMoved") && line.contains("pressure"), "{line}");
    assert!(line.contains("dev1") && line.contains("--move"), "{line}");
    // The column of the other device was added.
    let grant = |device: &str, name: &str| {
        let range = "--since 2026-01-01 --until 2026-01-02";
        let rest = format!("--columns pressure {range} --to {to} --out {name}");
        make(&scene, &format!("--device {device} {rest}")).done();
    };
    grant("dev2", "two.mgrant");
    let moved = add(&format!("--json {both} --move"));
    assert_eq!(moved.done().json()["moved"], serde_json::json!([["dev1", "pressure"]]));
    assert_eq!(add(&format!("--json {both}")).done().json()["moved"], serde_json::json!([]));
    // Seals of the start before are still refused by name.
    assert!(add(&format!("--seals {before}")).failed(USAGE).contains("ColumnMoved"));
    grant("dev1", "one.mgrant");
}

/// The operator changes the length of past epochs by force. The device has erased the keys of their numbers.
#[test]
fn a_device_that_cannot_seal_an_epoch_again_is_told_how_to_get_new_keys() {
    let (scene, _) = scene();
    seal(&scene, "dev1", 5, false, "--stream-secret keys/dev1.stream.key").done();
    let set = "roster set --roster roster.cbor --operator keys/op.key.pem --epoch 6h";
    words(&scene, &format!("{set} --from 2026-01-01 --force")).done();
    let refused = seal(&scene, "dev1", 5, false, "");
    let line = refused.failed(USAGE);
    assert!(line.contains("KeyErased") && line.contains("owner add --from"), "{line}");
}
