//! `moteseal device provision`: the blob contains the data of the roster and the keys, only its
//! owner can read it, and no secret is printed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::provision::Provisioning;
use moteseal_core::record::NetworkId;
use moteseal_core::record::Scheme;
use moteseal_core::roster::Directory as _;
use moteseal_sum::key_file::SourceKeys;
use moteseal_sum::policy::Policy;
use moteseal_verify::Roster;

/// The configuration of mote1.
pub const CONFIG: &str = "device = \"mote1\"\nkey = \"mote1.key.pem\"\nroster = \"roster.cbor\"\noperator = \"op.pub.pem\"\n\
    link_secret = \"mote1.link.key\"\nscheme = \"tree\"\ncolumns = [\"humidity:%RH:u16/100\"]\n\
    [recording]\nfirst = 7\ncount = 9\nstart = \"2010-05-09T09:00:00Z\"\nevery = \"5s\"\n\
    [sum]\nkey = \"sums/mote1.sum.key\"\nlink_secret = \"mote1.sum-link.key\"\n[broadcast]\nbase = \"base.pub.pem\"\n";

/// Returns the command, to be run in a folder.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moteseal"));
    command.args(arguments).current_dir(folder).env_remove("RUST_LOG");
    command
}

/// Runs the command in a folder.
pub fn moteseal(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// Makes a group with the devices mote1 and mote2, and `mote.toml` of mote1.
pub fn site() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let done = |arguments: &[&str]| {
        let output = moteseal(folder.path(), arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    for key in ["op", "gateway", "q", "base", "mote1", "mote2"] {
        done(&["key", "new", "--out", key]);
    }
    let roster = [
        "roster",
        "new",
        "--operator",
        "op.key.pem",
        "--group",
        "field",
        "--epoch",
        "1h",
        "--levels",
        "16",
    ];
    let budget = ["--budget", "2000", "--coordinator", "gateway.pub.pem", "--out", "roster.cbor"];
    done(
        &[
            &roster[..],
            &budget,
            &["--device", "mote1=mote1.pub.pem", "--device", "mote2=mote2.pub.pem"],
        ]
        .concat(),
    );
    done(&["key", "link", "--out", "mote1.link.key"]);
    done(&["key", "link", "--out", "mote1.sum-link.key"]);
    done(&["sum", "setup", "--roster", "roster.cbor", "--querier", "q.key", "--out", "sums/"]);
    fs::write(folder.path().join("mote.toml"), CONFIG).unwrap();
    folder
}

#[test]
fn a_blob_contains_roster_and_keys_and_is_readable_only_by_its_owner() {
    let site = site();
    let at = |name: &str| fs::read(site.path().join(name)).unwrap();
    let output = moteseal(
        site.path(),
        &["device", "provision", "--config", "mote.toml", "--out", "mote.bin"],
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        fs::metadata(site.path().join("mote.bin")).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let blob = at("mote.bin");
    let decoded = Provisioning::decode(&blob).unwrap();
    let roster =
        Roster::open(&at("roster.cbor"), &decode_public_pem(&at("op.pub.pem")).unwrap()).unwrap();
    let device = roster.device(roster.id("mote1").unwrap()).unwrap();
    assert_eq!(
        (decoded.device, decoded.group, decoded.certificate),
        (device.id, roster.group(), device.certificate)
    );
    assert_eq!(
        (decoded.roster, decoded.levels, decoded.epoch_ms),
        ((roster.digest(), roster.version()), 16, 3_600_000)
    );
    assert_eq!(
        (decoded.scheme, Some(&decoded.coordinator)),
        (Scheme::Tree, roster.newest_period().coordinator.as_ref())
    );
    assert_eq!(
        (
            decoded.window.first,
            decoded.window.count,
            decoded.window.every_ms,
            decoded.window.interval_ms
        ),
        (7, 9, 5000, 5000)
    );
    let signer = decode_secret_pem(&at("mote1.key.pem")).unwrap();
    assert_eq!(*decoded.signer.to_bytes(), *signer.to_bytes());
    let keys = SourceKeys::decode(&at("sums/mote1.sum.key")).unwrap();
    let sums = decoded.sums.as_ref().unwrap();
    assert_eq!(
        (sums.position, sums.roster, &*sums.secret),
        (keys.position, keys.circle.roster, &*keys.secret.to_bytes())
    );
    let base = decode_public_pem(&at("base.pub.pem")).unwrap();
    assert_eq!(
        decoded.audience.as_ref().map(|audience| (audience.network, &audience.base)),
        Some((NetworkId::of(&base), &base))
    );
    // No secret is printed in hexadecimal.
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    for (name, secret) in [
        ("link", &*decoded.link_secret),
        ("salt", &*decoded.salt_key),
        ("sum link", &*sums.link_secret),
    ] {
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!printed.contains(&digits), "{name} is printed");
    }
    assert!(printed.lines().count() == 1 && printed.contains("mote.bin"), "{printed}");
}

#[test]
fn a_blob_contains_the_key_that_the_mote_shares_with_a_sender() {
    let site = site();
    let run = |arguments: &[&str]| {
        let output = moteseal(site.path(), arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let request = ["key", "request", "--key", "q.key.pem", "--sender", "ops", "--out", "request"];
    let certify =
        ["key", "certify", "request", "--ca", "base.key.pem", "--serial", "1", "--out", "ops.cert"];
    let init = ["broadcast", "receivers", "init", "--cert", "ops.cert", "--list", "list"];
    let add =
        ["broadcast", "receivers", "add", "other", "mote1", "--list", "list", "--out", "keys"];
    for arguments in [&request[..], &certify, &init, &add] {
        let (code, shown) = run(arguments);
        assert_eq!(code, Some(0), "{shown}");
    }
    let provision = |config: &str| {
        fs::write(site.path().join("mote.toml"), config).unwrap();
        run(&["device", "provision", "--config", "mote.toml", "--out", "mote.bin"])
    };
    let config = format!("{CONFIG}receiver_key = \"keys/mote1.receiver.key\"\n");
    // The key belongs to the network of the base station.
    let (code, shown) = provision(&format!("{config}network = \"0123456789abcdef\"\n"));
    assert!(code == Some(2) && shown.contains("WrongNetwork"), "{shown}");
    let (code, shown) = provision(&config.replace("keys/mote1.receiver.key", "list"));
    assert!(code == Some(2) && shown.contains("NotAReceiverKey"), "{shown}");
    let (code, shown) = provision(&config);
    assert_eq!(code, Some(0), "{shown}");
    let blob = fs::read(site.path().join("mote.bin")).unwrap();
    let shared = Provisioning::decode(&blob).unwrap().audience.unwrap().shared.unwrap();
    let file = fs::read_to_string(site.path().join("keys/mote1.receiver.key")).unwrap();
    let digits: String = shared.key.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(file.contains(&format!("key {digits}\n")) && !shown.contains(&digits));
    assert_eq!((shared.sender, shared.position), (moteseal_broadcast::sender_named("ops"), 1));
}

#[test]
fn errors_are_one_line_and_nothing_is_written() {
    let site = site();
    for (from, to, expected) in [
        ("\"mote1.key.pem\"", "\"mote2.key.pem\"", "mote2.key.pem is not the key that"),
        ("sums/mote1", "sums/mote2", "WrongDevice: these are the keys of mote2"),
        ("device = \"mote1\"", "device = \"mote9\"", "UnknownDevice"),
        ("\"5s\"", "\"0s\"", "recording"),
        ("count = 9", "count = 0", "recording"),
        ("scheme", "skeme", "unknown field `skeme`"),
        ("\"base.pub.pem\"", "\"op.key.pem\"", "broadcast.base"),
        ("columns = [\"humidity:%RH:u16/100\"]", "columns = []", "columns"),
    ] {
        let bad = CONFIG.replacen(from, to, 1);
        assert_ne!(bad, CONFIG, "{from}");
        fs::write(site.path().join("mote.toml"), bad).unwrap();
        let output = moteseal(
            site.path(),
            &["device", "provision", "--config", "mote.toml", "--out", "mote.bin"],
        );
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{to}: {stderr}");
        assert!(
            stderr.contains(expected) && stderr.trim_end().lines().count() == 1,
            "{to}: {stderr}"
        );
        assert!(!site.path().join("mote.bin").exists(), "{to}");
    }
}

#[test]
fn a_blob_has_the_masks_and_the_policy_of_a_querier_that_is_not_trusted() {
    let site = site();
    let done = |arguments: &[&str]| {
        let output = moteseal(site.path(), arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let setup = ["sum", "setup", "--roster", "roster.cbor", "--querier", "q.key", "--masks"];
    done(&[&setup[..], &["--out", "masked/"]].concat());
    let config = CONFIG.replace("sums/", "masked/");
    let provision = |config: &str, out: &str| {
        fs::write(site.path().join("mote.toml"), config).unwrap();
        moteseal(site.path(), &["device", "provision", "--config", "mote.toml", "--out", out])
    };
    let refused = |config: &str| {
        let output = provision(config, "none.bin");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = refused(&config);
    assert!(error.contains("PolicyMissing") && error.contains("sum.policy"), "{error}");
    let sign = |columns: &str, out: &str| {
        let querier =
            "[[querier]]\nkey = \"q.pub.pem\"\nepoch = \"30s\"\nbudget = 2.0\n[querier.columns]\n";
        let policy = format!("version = 3\nmin_count = 2\n{querier}{columns}");
        fs::write(site.path().join("policy.toml"), policy).unwrap();
        let sign = ["sum", "policy", "sign", "policy.toml", "--roster", "roster.cbor"];
        done(&[&sign[..], &["--operator-key", "op.key.pem", "--out", out]].concat());
    };
    let column =
        |at: usize| format!("\"column{at:02}_{}:Cel:i16/100\" = \"0..85\"\n", "x".repeat(40));
    sign(&(0..16).map(column).collect::<String>(), "long.cbor");
    let with = |policy: &str| {
        let line = format!("policy = \"{policy}\"\n[broadcast]");
        config.replacen("[broadcast]", &line, 1)
    };
    let error = refused(&with("long.cbor"));
    assert!(error.contains("a mote has room for 512"), "{error}");
    let other = provision(&with("roster.cbor"), "none.bin");
    assert_eq!(other.status.code(), Some(3), "{other:?}");
    assert!(String::from_utf8_lossy(&other.stderr).contains("sum policy sign"), "{other:?}");
    sign(&column(1), "policy.cbor");
    let output = provision(&with("policy.cbor"), "mote.bin");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let blob = fs::read(site.path().join("mote.bin")).unwrap();
    let decoded = Provisioning::decode(&blob).unwrap();
    let sums = decoded.sums.unwrap();
    let keys = fs::read(site.path().join("masked/mote1.sum.key")).unwrap();
    let (secret, ring) = SourceKeys::decode(&keys).unwrap().masks.unwrap();
    let masks = [&secret.to_bytes()[..], &ring.to_bytes()].concat();
    assert_eq!((sums.masks.as_ref().unwrap().to_vec(), sums.needs_policy), (masks, true));
    let policy = Policy::decode(sums.policy.unwrap()).unwrap();
    assert_eq!((policy.version, policy.min_count), (3, 2));
}
