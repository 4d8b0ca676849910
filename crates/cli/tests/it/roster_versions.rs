//! A cloud and a gateway continue their state only with the roster with which it was made, or with
//! a later version of that roster.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::scene::Scene;
use moteseal_core::Digest;
use moteseal_core::identity::{
    CertificateDraft, MAX_CERTIFICATE, decode_public_pem, decode_secret_pem,
};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{DeviceDraft, RosterDraft};
use moteseal_verify::Roster;

/// The fields in which the roster versions of this test differ.
#[derive(Clone, Copy)]
struct Version<'a> {
    history: &'a [Digest],
    epoch_ms: u64,
    levels: u8,
    budget: u64,
}

const FIRST: Version<'static> =
    Version { history: &[], epoch_ms: 3_600_000, levels: 16, budget: 500 };

/// Writes a version of the group's roster. Returns its digest.
fn roster(scene: &Scene, out: &str, version: Version<'_>) -> Digest {
    let operator = decode_secret_pem(&fs::read(scene.path("keys/op.key.pem")).unwrap()).unwrap();
    let certify = |device: DeviceId, key: &str| {
        let key = decode_public_pem(&fs::read(scene.path(&format!("keys/{key}.pub.pem"))).unwrap())
            .unwrap();
        let mut certificate = [0; MAX_CERTIFICATE];
        let draft = CertificateDraft {
            group: GroupId::of("home"),
            device,
            serial: 0,
            key: &key,
            first_index: SealIndex(0),
        };
        draft.issue(&operator, &mut certificate).unwrap().to_vec()
    };
    let device = certify(DeviceId::of("home", "dev1"), "dev1");
    let coordinator = certify(DeviceId::of("home", "coordinator"), "gateway");
    let draft = RosterDraft {
        group_name: "home",
        history: version.history,
        epoch_ms: version.epoch_ms,
        levels: version.levels,
        budget: Some(version.budget),
        first_epoch: EpochNumber(0),
        last_epoch: None,
        coordinator: Some(&coordinator),
        devices: &[DeviceDraft { name: "dev1", certificates: &[&device] }],
    };
    let (mut scratch, mut bytes) = (vec![0; draft.size()], vec![0; draft.size()]);
    let bytes = draft.sign(&operator, &mut scratch, &mut bytes).unwrap();
    fs::write(scene.path(out), bytes).unwrap();
    let operator = decode_public_pem(&fs::read(scene.path("keys/op.pub.pem")).unwrap()).unwrap();
    Roster::open(bytes, &operator).unwrap().digest()
}

struct Site(Scene);

impl Site {
    /// Writes the first version of a roster, a later version, and four rosters that cannot follow
    /// the first.
    fn new() -> Self {
        let scene = Scene::new();
        scene.run(&["key", "new", "--out", "keys/gateway"]).done();
        scene.run(&["key", "link", "--out", "keys/link.key"]).done();
        let history = &[roster(&scene, "first.cbor", FIRST)][..];
        for (name, version) in [
            ("later", Version { history, ..FIRST }),
            ("budget", Version { history, budget: 600, ..FIRST }),
            ("levels", Version { history, levels: 17, ..FIRST }),
            ("epochs", Version { history, epoch_ms: 1_800_000, ..FIRST }),
            ("other", Version { history: &[Digest([7; 32])], ..FIRST }),
        ] {
            roster(&scene, &format!("{name}.cbor"), version);
        }
        Self(scene)
    }

    /// Runs a cloud with a roster.
    ///
    /// # Errors
    /// The error that the cloud printed.
    fn cloud(&self, version: &str) -> Result<(), String> {
        let roster = format!("{version}.cbor");
        let arguments = ["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"];
        self.run(
            &[&arguments[..], &["--roster", &roster, "--operator", "keys/op.pub.pem"]].concat(),
            "epochs.redb-roster",
            version,
        )
    }

    fn config(&self, version: &str) {
        let config = format!(
            "roster = \"{version}.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\nlink_secret = \"keys/link.key\"\n\
             state = \"gateway\"\n[link]\nurl = \"mqtt://127.0.0.1:1\"\n"
        );
        self.0.write("gateway.toml", &config);
    }

    fn gateway(&self, version: &str) -> Result<(), String> {
        self.config(version);
        self.run(&["gateway", "run", "--config", "gateway.toml"], "gateway/roster", version)
    }

    /// Runs a command until it has recorded the roster or has ended.
    fn run(&self, arguments: &[&str], record: &str, version: &str) -> Result<(), String> {
        let expected = fs::read(self.0.path(&format!("{version}.cbor"))).unwrap();
        let mut process =
            self.0.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        while process.try_wait().unwrap().is_none() {
            if fs::read(self.0.path(record)).is_ok_and(|found| found == expected) {
                end(process);
                return Ok(());
            }
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "the command neither records the roster nor ends"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
        Err(stderr)
    }
}

fn end(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Runs with the first version, then with the rosters that cannot follow it, with the later
/// version, and with the first version again.
fn check_versions(site: &Site, run: fn(&Site, &str) -> Result<(), String>) {
    run(site, "first").unwrap();
    run(site, "first").unwrap();
    for (version, name) in [
        ("budget", "BudgetChanged"),
        ("levels", "LevelsChanged"),
        ("epochs", "EpochLengthChanged"),
        ("other", "NotLater"),
    ] {
        let error = run(site, version).unwrap_err();
        assert!(error.contains(name) && error.contains(&format!("{version}.cbor")), "{error}");
    }
    // A refused roster changes nothing.
    run(site, "first").unwrap();
    run(site, "later").unwrap();
    let error = run(site, "first").unwrap_err();
    assert!(error.contains("NotLater"), "{error}");
    run(site, "later").unwrap();
}

#[test]
fn a_cloud_accepts_only_later_versions_of_its_roster() {
    let site = Site::new();
    check_versions(&site, Site::cloud);
    // The roster of a removed store does not restrict a new store.
    ["epochs.redb", "epochs.redb-journal"]
        .iter()
        .for_each(|file| fs::remove_file(site.0.path(file)).unwrap());
    site.cloud("budget").unwrap();
}

#[test]
fn a_gateway_accepts_only_later_versions_of_its_roster() {
    let site = Site::new();
    check_versions(&site, Site::gateway);
    // With --check the result is the same, and nothing changes.
    site.config("budget");
    assert!(
        site.0
            .run(&["gateway", "run", "--config", "gateway.toml", "--check"])
            .failed(2)
            .contains("NotLater")
    );
    site.gateway("later").unwrap();
}
