//! `moteseal device provision --devices-file`: one command provisions all motes of a group, or
//! writes nothing and names the device with the error.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::provision::Provisioning;
use moteseal_verify::Roster;
use serde_json::Value;

use crate::device_provision::{command, moteseal, site};
use crate::device_provision_qr::read_png;
use crate::scene::own_time;

const CONFIG: &str = "device = \"{device}\"\nkey = \"keys/{device}.key.pem\"\nroster = \"roster.cbor\"\noperator = \"op.pub.pem\"\n\
    link_secret = \"links/{device}.link.key\"\ncolumns = [\"humidity:%RH:u16/100\"]\n\
    [recording]\ncount = 9\nstart = \"2010-05-09T09:00:00Z\"\nevery = \"5s\"\n\
    [sum]\nkey = \"sums/{device}.sum.key\"\nlink_secret = \"sum-links/{device}.link.key\"\n";

const MANY: [&str; 8] = [
    "device",
    "provision",
    "--config",
    "mote.toml",
    "--devices-file",
    "names.txt",
    "--out",
    "motes",
];

/// Runs a command that must succeed, and returns its JSON.
fn done(folder: &Path, arguments: &[&str]) -> Value {
    let output = moteseal(folder, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command that must fail with a usage error, and returns the message.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = moteseal(folder, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    stderr
}

/// Makes a group with a number of motes, and their keys.
fn group(motes: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for key in ["op", "gateway", "q"] {
        done(at, &["key", "new", "--out", key]);
    }
    let names: String = (0..motes).map(|number| format!("m{number}\n")).collect();
    fs::write(at.join("names.txt"), format!("# motes\n{names}")).unwrap();
    let list = ["--devices-file", "names.txt"];
    let roster = ["roster", "new", "--operator", "op.key.pem", "--group", "field", "--epoch", "1h"];
    let budget = ["--budget", "2000", "--coordinator", "gateway.pub.pem", "--keys", "keys"];
    done(at, &[&roster[..], &budget, &list, &["--out", "roster.cbor"]].concat());
    for (secret, out) in [("link.key", "links"), ("sum-link.key", "sum-links")] {
        done(at, &["key", "link", "--out", secret]);
        let derive = ["key", "link", "--group-secret", secret, "--out", out];
        let roster = ["--roster", "roster.cbor", "--operator", "op.pub.pem"];
        let made = done(at, &[&derive[..], &roster, &list].concat());
        assert_eq!(made["devices"].as_array().unwrap().len(), motes);
        assert_eq!(mode(&at.join(out).join("m0.link.key")), 0o600);
    }
    done(at, &["sum", "setup", "--roster", "roster.cbor", "--querier", "q.key", "--out", "sums/"]);
    fs::write(at.join("mote.toml"), CONFIG).unwrap();
    folder
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn one_command_provisions_each_device_with_its_own_secrets() {
    let folder = group(3);
    let at = |name: String| folder.path().join(name);
    let made = done(folder.path(), &[&MANY[..], &["--qr", "png"]].concat());
    assert_eq!(made["folder"], "motes");
    assert_eq!(mode(&at("motes".to_owned())), 0o700);
    let operator = decode_public_pem(&fs::read(at("op.pub.pem".to_owned())).unwrap()).unwrap();
    let roster = Roster::open(&fs::read(at("roster.cbor".to_owned())).unwrap(), &operator).unwrap();
    for number in 0..3 {
        let name = format!("m{number}");
        let (file, code) = (format!("motes/{name}.mote"), format!("motes/{name}.png"));
        let reported = &made["devices"][number];
        let blob = fs::read(at(file.clone())).unwrap();
        assert_eq!(
            *reported,
            serde_json::json!({ "file": file, "device": name, "bytes": blob.len(), "qr": code })
        );
        assert_eq!([mode(&at(file)), mode(&at(code.clone()))], [0o600; 2]);
        assert_eq!(read_png(&at(code)).0, blob);
        let decoded = Provisioning::decode(&blob).unwrap();
        assert_eq!(Some(decoded.device), roster.id(&name));
        let key = decode_secret_pem(&fs::read(at(format!("keys/{name}.key.pem"))).unwrap());
        assert_eq!(*decoded.signer.to_bytes(), *key.unwrap().to_bytes());
        let first_line = |path| fs::read_to_string(at(path)).unwrap()[..64].to_owned();
        let digits =
            |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        assert_eq!(digits(&*decoded.link_secret), first_line(format!("links/{name}.link.key")));
        assert_eq!(digits(&*decoded.salt_key), first_line(format!("keys/{name}.salt.key")));
        let sums = decoded.sums.unwrap();
        assert_eq!(digits(&*sums.link_secret), first_line(format!("sum-links/{name}.link.key")));
    }
    assert_eq!(fs::read_dir(at("motes".to_owned())).unwrap().count(), 6);
    // The command replaces nothing.
    let again = refused(folder.path(), &MANY);
    assert!(again.contains("m0: motes/m0.mote already exists"), "{again}");
}

#[test]
fn an_error_in_the_third_device_names_it_and_nothing_is_written() {
    let folder = group(3);
    let at = |name: &str| folder.path().join(name);
    let fails = |expected: &str| {
        let stderr = refused(folder.path(), &[&MANY[..], &["--qr", "svg"]].concat());
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!at("motes").exists(), "{expected}");
    };
    let names = fs::read_to_string(at("names.txt")).unwrap();
    fs::write(at("names.txt"), names.replace("m2", "m9")).unwrap();
    fails("m9: mote.toml: device: UnknownDevice");
    fs::write(at("names.txt"), names.replace("m2", "m1")).unwrap();
    fails("the device m1 is named twice");
    fs::write(at("names.txt"), "# nothing\n").unwrap();
    fails("there is no device");
    // The roster determines the public key; the file's is not read.
    fs::write(at("names.txt"), names.replace("m1", "m1=none.pub.pem")).unwrap();
    fs::rename(at("links/m2.link.key"), at("links/kept")).unwrap();
    fs::copy(at("links/m1.link.key"), at("links/m2.link.key")).unwrap();
    fails("m2: mote.toml: link_secret: ./links/m2.link.key: WrongDevice");
    fs::rename(at("links/kept"), at("links/m2.link.key")).unwrap();
    fs::remove_file(at("keys/m2.salt.key")).unwrap();
    fails("m2: mote.toml: salt_key");
    fs::copy(at("keys/m1.salt.key"), at("keys/m2.salt.key")).unwrap();
    fs::copy(at("keys/m1.key.pem"), at("keys/m2.key.pem")).unwrap();
    fails("m2: mote.toml: key: ./keys/m2.key.pem is not the key that");
    // A file of the third device that exists.
    let folder = group(3);
    fs::create_dir(folder.path().join("motes")).unwrap();
    fs::write(folder.path().join("motes/m2.svg"), "kept").unwrap();
    let stderr = refused(folder.path(), &[&MANY[..], &["--qr", "svg"]].concat());
    assert!(stderr.contains("m2: motes/m2.svg already exists"), "{stderr}");
    assert_eq!(fs::read_dir(folder.path().join("motes")).unwrap().count(), 1);
    assert_eq!(fs::read(folder.path().join("motes/m2.svg")).unwrap(), b"kept");
}

#[test]
fn the_placeholder_and_the_devices_file_need_each_other() {
    let site = site();
    let one = ["device", "provision", "--config", "mote.toml", "--out", "mote.bin"];
    let own = fs::read_to_string(site.path().join("mote.toml")).unwrap();
    fs::write(site.path().join("names.txt"), "mote1\nmote2\n").unwrap();
    for (from, to, key) in [
        ("device = \"mote1\"", "device = \"{device}\"", "device"),
        ("\"mote1.key.pem\"", "\"{device}.key.pem\"", "key"),
        ("roster =", "salt_key = \"{device}.salt.key\"\nroster =", "salt_key"),
        ("\"mote1.link.key\"", "\"{device}.link.key\"", "link_secret"),
        ("sums/mote1", "sums/{device}", "sum.key"),
        ("\"mote1.sum-link.key\"", "\"{device}.sum-link.key\"", "sum.link_secret"),
    ] {
        fs::write(site.path().join("mote.toml"), own.replacen(from, to, 1)).unwrap();
        let stderr = refused(site.path(), &one);
        let expected = format!("mote.toml: {key}: {{device}} stands for");
        assert!(stderr.contains(&expected) && stderr.contains("--devices-file"), "{stderr}");
        assert!(!site.path().join("mote.bin").exists());
    }
    let group = group(2);
    for (from, to, key) in [
        ("\"{device}\"", "\"m1\"", "device"),
        ("\"{device}\"", "\"m{device}\"", "device"),
        ("keys/{device}", "keys/m1", "key"),
        ("links/{device}", "links/m1", "link_secret"),
        ("sums/{device}", "sums/m1", "sum.key"),
        ("sum-links/{device}", "sum-links/m1", "sum.link_secret"),
        ("roster =", "salt_key = \"keys/m1.salt.key\"\nroster =", "salt_key"),
    ] {
        let shared = CONFIG.replacen(from, to, 1);
        assert_ne!(shared, CONFIG, "{from}");
        fs::write(group.path().join("mote.toml"), shared).unwrap();
        let stderr = refused(group.path(), &MANY);
        let expected = format!("mote.toml: {key}: with --devices-file, write ");
        assert!(stderr.contains(&expected), "{stderr}");
        assert!(!group.path().join("motes").exists());
    }
}

#[test]
fn link_secrets_of_many_devices_are_those_that_single_commands_derive() {
    let folder = group(2);
    let roster = ["--roster", "roster.cbor", "--operator", "op.pub.pem"];
    let derive = ["key", "link", "--group-secret", "link.key"];
    let one = ["--device", "m1", "--out", "one.key"];
    done(folder.path(), &[&derive[..], &roster, &one].concat());
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("one.key"), read("links/m1.link.key"));
    let many = ["--devices-file", "names.txt", "--out", "links"];
    let stderr = refused(folder.path(), &[&derive[..], &roster, &many].concat());
    assert!(stderr.contains("links/m0.link.key already exists"), "{stderr}");
}

#[test]
fn a_thousand_motes_are_provisioned_with_one_command() {
    let folder = group(1000);
    let provision = [&MANY[..], &["--qr", "png"]].concat();
    let took = own_time(&mut command(folder.path(), &provision));
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(fs::read_dir(folder.path().join("motes")).unwrap().count(), 2000);
}
