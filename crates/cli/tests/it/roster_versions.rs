//! A cloud and a gateway accept their state only with the roster that it was made with, or a later
//! version of it.

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

/// What the versions of this test differ in.
#[derive(Clone, Copy)]
struct Says<'a> {
    history: &'a [Digest],
    epoch_ms: u64,
    levels: u8,
    budget: u64,
}

const FIRST: Says<'static> = Says { history: &[], epoch_ms: 3_600_000, levels: 16, budget: 500 };

/// Writes a version of the group's roster; its digest.
fn roster(scene: &Scene, out: &str, says: Says<'_>) -> Digest {
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
        history: says.history,
        epoch_ms: says.epoch_ms,
        levels: says.levels,
        budget: Some(says.budget),
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
    /// The roster, a later version, and versions that are none; a gateway whose broker is away.
    fn new() -> Self {
        let scene = Scene::new();
        scene.run(&["key", "new", "--out", "keys/gateway"]).done();
        scene.run(&["key", "link", "--out", "keys/link.key"]).done();
        let history = &[roster(&scene, "first.cbor", FIRST)][..];
        for (name, says) in [
            ("later", Says { history, ..FIRST }),
            ("budget", Says { history, budget: 600, ..FIRST }),
            ("levels", Says { history, levels: 17, ..FIRST }),
            ("epochs", Says { history, epoch_ms: 1_800_000, ..FIRST }),
            ("other", Says { history: &[Digest([7; 32])], ..FIRST }),
        ] {
            roster(&scene, &format!("{name}.cbor"), says);
        }
        Self(scene)
    }

    /// A cloud that runs with a roster; its last word where it does not.
    fn cloud(&self, version: &str) -> Result<(), String> {
        let roster = format!("{version}.cbor");
        let arguments = ["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"];
        self.runs(
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
        self.runs(&["gateway", "run", "--config", "gateway.toml"], "gateway/roster", version)
    }

    /// Runs until the roster is recorded, or the command ends.
    fn runs(&self, arguments: &[&str], record: &str, version: &str) -> Result<(), String> {
        let wanted = fs::read(self.0.path(&format!("{version}.cbor"))).unwrap();
        let mut process =
            self.0.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let start = Instant::now();
        while process.try_wait().unwrap().is_none() {
            if fs::read(self.0.path(record)).is_ok_and(|found| found == wanted) {
                end(process);
                return Ok(());
            }
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "it neither records the roster nor ends"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.trim().lines().count(), 1, "{said}");
        Err(said)
    }
}

fn end(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

/// The first version, then those that cannot follow it, then the later one, and then the first
/// again.
fn goes_on(site: &Site, runs: fn(&Site, &str) -> Result<(), String>) {
    runs(site, "first").unwrap();
    runs(site, "first").unwrap();
    for (version, name) in [
        ("budget", "BudgetChanged"),
        ("levels", "LevelsChanged"),
        ("epochs", "EpochLengthChanged"),
        ("other", "NotLater"),
    ] {
        let said = runs(site, version).unwrap_err();
        assert!(said.contains(name) && said.contains(&format!("{version}.cbor")), "{said}");
    }
    // What was refused has left no trace.
    runs(site, "first").unwrap();
    runs(site, "later").unwrap();
    let said = runs(site, "first").unwrap_err();
    assert!(said.contains("NotLater"), "{said}");
    runs(site, "later").unwrap();
}

#[test]
fn a_cloud_accepts_only_later_versions_of_its_roster() {
    let site = Site::new();
    goes_on(&site, Site::cloud);
    // A store that is gone binds nobody.
    ["epochs.redb", "epochs.redb-journal"]
        .iter()
        .for_each(|file| fs::remove_file(site.0.path(file)).unwrap());
    site.cloud("budget").unwrap();
}

#[test]
fn a_gateway_accepts_only_later_versions_of_its_roster() {
    let site = Site::new();
    goes_on(&site, Site::gateway);
    // A check says the same and changes nothing.
    site.config("budget");
    assert!(
        site.0
            .run(&["gateway", "run", "--config", "gateway.toml", "--check"])
            .failed(2)
            .contains("NotLater")
    );
    site.gateway("later").unwrap();
}
