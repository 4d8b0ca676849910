//! The store: versions only rise, except for the one before; a crash leaves no half version.

use std::fs;
use std::path::Path;

use moteseal_hub::agents::{AgentError, Installed, Manifest, Store};

use crate::agents::{manifest, operator, package, trust};

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), trust()).unwrap();
    (folder, store)
}

fn weather(version: u64, content: &[u8]) -> Vec<u8> {
    package(manifest("weather", version), &[("agent", content), ("lib/b", b"b")], &operator())
}

fn install(store: &Store, bytes: &[u8], again: bool) -> Result<Installed, AgentError> {
    store.install(bytes, Path::new("test.agent"), again)
}

fn refusal(store: &Store, bytes: &[u8]) -> &'static str {
    install(store, bytes, true).unwrap_err().name()
}

/// Returns the version that runs, and the content of its program.
fn running(store: &Store) -> Option<(u64, Vec<u8>)> {
    let active = store.active("weather").unwrap()?;
    Some((active.manifest.version, fs::read(active.files.join("agent")).unwrap()))
}

fn now(version: u64) -> Installed {
    Installed::Now { name: "weather".into(), version }
}

fn before(version: u64) -> Installed {
    Installed::Before { name: "weather".into(), version }
}

#[test]
fn a_lower_version_or_another_content_of_a_version_is_refused() {
    let (_folder, store) = store();
    assert_eq!(install(&store, &weather(5, b"five"), true).unwrap(), now(5));
    assert_eq!(install(&store, &weather(5, b"five"), true).unwrap(), before(5));
    assert_eq!(refusal(&store, &weather(4, b"four")), "AgentVersionNotAbove");
    assert_eq!(refusal(&store, &weather(5, b"5")), "AgentVersionChanged");
    assert_eq!(running(&store), Some((5, b"five".to_vec())));
    store.remove("weather", false).unwrap();
    assert_eq!(running(&store), None);
    assert_eq!(refusal(&store, &weather(4, b"four")), "AgentVersionNotAbove", "after a removal");
    assert_eq!(
        install(&store, &weather(5, b"five"), false).unwrap(),
        before(5),
        "it arrives again"
    );
    assert_eq!(running(&store), None);
    assert_eq!(install(&store, &weather(5, b"five"), true).unwrap(), now(5));
}

#[test]
fn no_version_below_the_signed_minimum_can_be_restored() {
    let with_minimum = |version, minimum| {
        let manifest = Manifest { minimum, ..manifest("weather", version) };
        package(manifest, &[("agent", b"x"), ("lib/b", b"b")], &operator())
    };
    let (_folder, store) = store();
    install(&store, &weather(1, b"x"), true).unwrap();
    store.confirm("weather", 1).unwrap();
    install(&store, &with_minimum(2, 2), true).unwrap();
    assert_eq!(store.roll_back("weather").unwrap_err().name(), "NothingToRollBackTo");
    assert_eq!(store.fall_back("weather", 2, "NoLineInTime").unwrap(), None);
    assert_eq!(running(&store).unwrap().0, 2);
    // A later version cannot lower the minimum.
    store.confirm("weather", 2).unwrap();
    install(&store, &weather(3, b"x"), true).unwrap();
    assert_eq!(store.fall_back("weather", 3, "NoLineInTime").unwrap(), Some(2));
    assert_eq!(store.record("weather").unwrap().unwrap().minimum, 2);
}

#[test]
fn only_the_version_before_can_be_restored() {
    let (_folder, store) = store();
    for version in 1..=3 {
        install(&store, &weather(version, b"x"), true).unwrap();
        store.confirm("weather", version).unwrap();
        store.tidy("weather").unwrap();
    }
    assert_eq!(store.roll_back("weather").unwrap(), 2);
    assert_eq!(running(&store).unwrap().0, 2);
    assert_eq!(store.roll_back("weather").unwrap_err().name(), "NothingToRollBackTo");
    assert_eq!(refusal(&store, &weather(1, b"x")), "AgentVersionNotAbove");
    assert_eq!(install(&store, &weather(3, b"x"), true).unwrap(), now(3));
    assert_eq!(install(&store, &weather(4, b"x"), true).unwrap(), now(4));
    assert_eq!(store.roll_back("weather").unwrap(), 2, "version 3 has not come up again");
    assert_eq!(store.roll_back("other").unwrap_err().name(), "UnknownAgent");
}

#[test]
fn a_refused_package_leaves_nothing() {
    let (folder, store) = store();
    install(&store, &weather(1, b"one"), true).unwrap();
    let entries = |folder: &Path| fs::read_dir(folder).unwrap().count();
    let agents = folder.path().join("agents");
    let (all, versions) = (entries(&agents), agents.join("weather/versions"));
    let good = weather(2, b"two");
    for end in [good.len() / 2, good.len() - 3, good.len() - 1] {
        assert_eq!(refusal(&store, &good[..end]), "Truncated");
    }
    assert_eq!((entries(&agents), entries(&versions)), (all, 1));
    assert_eq!(running(&store).unwrap().0, 1);
}

/// The states in which a process can be killed: while it unpacks, and after it has renamed the
/// folder.
#[test]
fn a_crash_at_any_step_leaves_the_old_version_and_the_next_installation_works() {
    let (folder, store) = store();
    install(&store, &weather(1, b"one"), true).unwrap();
    let agents = folder.path().join("agents");
    let unfinished = agents.join(".unfinished-1/files");
    fs::create_dir_all(&unfinished).unwrap();
    fs::write(unfinished.join("agent"), "half").unwrap();
    let renamed = agents.join("weather/versions/2/files");
    fs::create_dir_all(&renamed).unwrap();
    fs::write(renamed.join("agent"), "whole, but not recorded").unwrap();
    fs::write(agents.join("weather/.current.0123456789abcdef.tmp"), "half a record").unwrap();
    assert_eq!(running(&store), Some((1, b"one".to_vec())));
    assert_eq!(install(&store, &weather(2, b"two"), false).unwrap(), now(2));
    assert_eq!(running(&store), Some((2, b"two".to_vec())));
    assert!(!agents.join(".unfinished-1").exists());
}

#[test]
fn changed_files_are_noticed_and_repaired_by_an_installation() {
    let (folder, store) = store();
    install(&store, &weather(1, b"one"), true).unwrap();
    fs::write(folder.path().join("agents/weather/versions/1/files/agent"), "1").unwrap();
    assert_eq!(store.active("weather").unwrap_err().name(), "InstalledFilesChanged");
    assert_eq!(install(&store, &weather(1, b"one"), true).unwrap(), now(1));
    assert_eq!(running(&store), Some((1, b"one".to_vec())));
}

#[test]
fn only_one_hub_runs_the_agents_of_a_folder() {
    let (_folder, store) = store();
    let claim = store.claim().unwrap();
    assert_eq!(store.claim().unwrap_err().name(), "HubIsRunning");
    drop(claim);
    store.claim().unwrap();
}

#[test]
fn two_agents_have_different_numbers() {
    let (_folder, store) = store();
    for name in ["a", "b", "c"] {
        let bytes = package(manifest(name, 1), &[("agent", b"x")], &operator());
        install(&store, &bytes, true).unwrap();
    }
    let numbers: Vec<_> = store
        .names()
        .unwrap()
        .iter()
        .map(|name| store.record(name).unwrap().unwrap().number)
        .collect();
    assert_eq!(numbers, [0, 1, 2]);
}
