//! The outbox stores a whole batch or nothing. No crash makes a device sign an index twice.

use std::fs;
use std::path::Path;

use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::outbox::{Outbox, OutboxError, default_state_path};
use moteseal_device::{Bundle, Chain, Profile, Sealer, chain_state};
use moteseal_seal::level::SaltKey;
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;

fn secret() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

fn roster() -> Roster {
    let devices = [("dev1", secret().public()), ("a/b", secret().public())];
    let first =
        FirstRoster { group: "home", epoch_ms: 1000, levels: 8, budget: None, devices: &devices };
    Roster::open(&first.issue(&secret()).unwrap(), &secret().public()).unwrap()
}

fn seal(chain: Chain, epochs: std::ops::Range<u64>) -> Vec<Bundle> {
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&[Field::new("v", "", FieldType::U8)], &mut buffer).unwrap();
    let profile = Profile::new(&roster(), "dev1", Scheme::Star, &schema).unwrap();
    let mut sealer = Sealer::new(profile, secret(), SaltKey::new([2; 32]), chain);
    let mut bundles: Vec<Bundle> =
        epochs.flat_map(|epoch| sealer.push(EpochNumber(epoch), &[1]).unwrap()).collect();
    bundles.extend(sealer.close(true).unwrap());
    bundles
}

/// Opens the outbox of dev1 in a directory, with the chain's state in the same directory.
fn open(directory: &Path) -> Result<(Outbox, Chain), OutboxError> {
    open_with(directory, &directory.join("state"))
}

fn open_with(directory: &Path, state: &Path) -> Result<(Outbox, Chain), OutboxError> {
    let roster = roster();
    let device = roster.id("dev1").unwrap();
    begin(state, &roster, device);
    Outbox::open(directory, state, &roster, device)
}

/// Begins a device's chain, unless there is a state.
fn begin(state: &Path, roster: &Roster, device: DeviceId) {
    let certificate = roster.device(device).unwrap().certificate;
    let _ = chain_state::begin(state, device, &Chain::start(certificate));
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn continues_the_chain_from_batch_to_batch() {
    let directory = tempfile::tempdir().unwrap();
    for (from, to) in [(0, 3), (3, 5)] {
        let (outbox, chain) = open(directory.path()).unwrap();
        assert_eq!(chain.next_index, SealIndex(from as u32));
        assert!(!chain.restarted());
        let bundles = seal(chain, from..to);
        let mut seen = 0;
        assert_eq!(outbox.store(&bundles, &mut |_| seen += 1).unwrap().len(), bundles.len());
        assert_eq!(seen, bundles.len());
    }
    let expected: Vec<String> = (0..5).map(|index| format!("dev1-{index:010}.mseal")).collect();
    assert_eq!(
        names(directory.path()),
        [expected, vec!["state".to_owned(), "state.lock".to_owned()]].concat()
    );
}

#[test]
fn recovers_bundles_that_were_signed_after_the_state_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let (outbox, chain) = open(directory.path()).unwrap();
    let bundles = seal(chain, 0..3);
    // Simulate a crash: the indices are opened, and only two of three bundles are renamed.
    outbox.persist(&Chain { position: chain.position, ..bundles[2].chain }).unwrap();
    for bundle in &bundles[..2] {
        fs::write(outbox.path(bundle.index()), &bundle.bytes).unwrap();
    }
    drop(outbox);
    let (outbox, chain) = open(directory.path()).unwrap();
    assert_eq!(chain.position, bundles[1].chain.position);
    assert_eq!((chain.next_index, chain.restarted()), (SealIndex(3), true));
    // The next seal skips the index that was opened and never signed, and states the restart.
    let next = seal(chain, 2..3);
    assert!(next[0].seal.statement().restart);
    assert_eq!(next[0].index(), SealIndex(3));
    outbox.store(&next, &mut |_| {}).unwrap();
}

#[test]
fn never_overwrites_a_file_or_stores_half_a_batch() {
    let directory = tempfile::tempdir().unwrap();
    let (outbox, chain) = open(directory.path()).unwrap();
    let bundles = seal(chain, 0..3);
    fs::write(outbox.path(SealIndex(2)), b"another file").unwrap();
    assert!(matches!(outbox.store(&bundles, &mut |_| {}), Err(OutboxError::Unknown { .. })));
    assert_eq!(names(directory.path()), ["dev1-0000000002.mseal", "state", "state.lock"]);
    drop(outbox);
    // A chain that was begun again is refused if there are bundles.
    fs::rename(
        directory.path().join("dev1-0000000002.mseal"),
        directory.path().join("dev1-0000000000.mseal"),
    )
    .unwrap();
    let error = open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("Restore the right state or name it"), "{error}");
}

#[test]
fn a_chain_has_one_state_for_all_directories() {
    let home = tempfile::tempdir().unwrap();
    let (january, february, state) =
        (home.path().join("january"), home.path().join("february"), home.path().join("state"));
    let (outbox, chain) = open_with(&january, &state).unwrap();
    // The directories differ, but the state is the same, so the second process cannot seal.
    assert!(
        matches!(open_with(&february, &state), Err(OutboxError::Locked(path)) if path == state)
    );
    let first = seal(chain, 0..2);
    outbox.store(&first, &mut |_| {}).unwrap();
    drop(outbox);
    let (outbox, chain) = open_with(&february, &state).unwrap();
    assert_eq!((chain.position, chain.next_index), (first[1].chain.position, SealIndex(2)));
    // A bundle that was renamed in one directory before a crash is found when another one is
    // opened.
    let bundle = seal(chain, 2..3).remove(0);
    outbox
        .persist(&Chain { position: chain.position, readings: chain.readings, ..bundle.chain })
        .unwrap();
    fs::write(outbox.path(bundle.index()), &bundle.bytes).unwrap();
    drop(outbox);
    let (_outbox, chain) = open_with(&january, &state).unwrap();
    assert_eq!(chain, bundle.chain);
}

#[test]
fn the_state_is_next_to_the_key_under_one_name() {
    let home = tempfile::tempdir().unwrap();
    let (device, other) = (roster().id("dev1").unwrap(), roster().id("a/b").unwrap());
    let key = home.path().join("dev1.key.pem");
    fs::write(&key, "a key").unwrap();
    let state = default_state_path(&key, device).unwrap();
    assert_eq!(state.file_name().unwrap().to_str().unwrap(), format!("dev1.{device}.chain"));
    assert_ne!(default_state_path(&key, other).unwrap(), state);
    fs::create_dir(home.path().join("elsewhere")).unwrap();
    let link = home.path().join("elsewhere/link.key.pem");
    std::os::unix::fs::symlink(&key, &link).unwrap();
    assert_eq!(default_state_path(&link, device).unwrap(), state);
    // If the state cannot be stored next to the key, the error tells the user to give a file.
    for key in [home.path(), &home.path().join("none.key.pem")] {
        assert!(default_state_path(key, device).unwrap_err().to_string().contains("with --state"));
    }
    let error = open_with(home.path(), &key.join("state")).unwrap_err().to_string();
    assert!(
        error.contains("the chain's state cannot be stored at") && error.contains("with --state"),
        "{error}"
    );
}

#[test]
fn detects_a_bundle_that_the_state_does_not_know() {
    let directory = tempfile::tempdir().unwrap();
    let (outbox, chain) = open(directory.path()).unwrap();
    outbox.store(&seal(chain, 0..3), &mut |_| {}).unwrap();
    drop(outbox);
    // The first bundles were moved to an archive, and the state is lost.
    fs::remove_file(directory.path().join("dev1-0000000000.mseal")).unwrap();
    fs::remove_file(directory.path().join("state")).unwrap();
    assert!(matches!(open(directory.path()), Err(OutboxError::Unknown { .. })));
}

#[test]
fn a_failed_batch_can_be_stored_again() {
    let directory = tempfile::tempdir().unwrap();
    let (outbox, chain) = open(directory.path()).unwrap();
    let bundles = seal(chain, 0..3);
    let obstacle = directory.path().join("dev1-0000000001.mseal.tmp");
    fs::create_dir(&obstacle).unwrap();
    assert!(matches!(outbox.store(&bundles, &mut |_| {}), Err(OutboxError::Io { .. })));
    fs::remove_dir(&obstacle).unwrap();
    // One bundle is already renamed, as it is after a crash.
    fs::write(outbox.path(SealIndex(0)), &bundles[0].bytes).unwrap();
    let mut seen = 0;
    assert_eq!(outbox.store(&bundles, &mut |_| seen += 1).unwrap().len(), 3);
    assert_eq!(seen, 3);
    let indices: Vec<u32> =
        outbox.bundles().unwrap().into_iter().map(|(index, _)| index.0).collect();
    assert_eq!(indices, [0, 1, 2]);
    drop(outbox);
    assert_eq!(open(directory.path()).unwrap().1, bundles[2].chain);
}

#[test]
fn a_full_disk_is_reported_with_what_to_do() {
    let error = OutboxError::Io {
        path: "bundles/dev1-0000000002.mseal.tmp".into(),
        error: std::io::ErrorKind::StorageFull.into(),
    };
    assert_eq!(
        error.to_string(),
        "bundles/dev1-0000000002.mseal.tmp: the disk is full; nothing was stored; free some space \
         and try again"
    );
}

#[test]
fn only_one_process_seals_into_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path()).unwrap();
    assert!(matches!(open(directory.path()), Err(OutboxError::Locked(_))));
    drop(first);
    open(directory.path()).unwrap();
}

#[test]
fn a_damaged_state_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let roster = roster();
    let state = directory.path().join("state");
    let (outbox, chain) = open(directory.path()).unwrap();
    outbox.persist(&chain).unwrap();
    drop(outbox);
    let good = fs::read(&state).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&state, bad).unwrap();
        assert!(matches!(open(directory.path()), Err(OutboxError::BadState(_))));
    }
    fs::write(&state, good).unwrap();
    let other = roster.id("a/b").unwrap();
    assert!(matches!(
        Outbox::open(directory.path(), &state, &roster, other),
        Err(OutboxError::BadState(_))
    ));
    let state = directory.path().join("other");
    begin(&state, &roster, other);
    let (named, _) = Outbox::open(directory.path(), &state, &roster, other).unwrap();
    let name = named.path(SealIndex(0)).file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(name, format!("a_b-{}-0000000000.mseal", &other.to_string()[..8]));
}

/// Finding A2 of the review.
#[test]
fn a_missing_state_is_not_taken_for_a_new_device() {
    let directory = tempfile::tempdir().unwrap();
    let (roster, state) = (roster(), directory.path().join("state"));
    let device = roster.id("dev1").unwrap();
    let opened = Outbox::open(&directory.path().join("out"), &state, &roster, device);
    let error = opened.unwrap_err();
    assert_eq!(error.name(), "ChainUnknown");
    let text = error.to_string();
    assert!(text.contains("chain new") && text.contains("chain recover --from CLOUD"), "{text}");
    assert!(names(directory.path()).is_empty(), "nothing is created");
}

/// Finding A4 of the review.
#[test]
fn the_lock_of_a_state_shows_that_the_state_is_an_old_copy() {
    let directory = tempfile::tempdir().unwrap();
    let (roster, state) = (roster(), directory.path().join("state"));
    let device = roster.id("dev1").unwrap();
    let out = |name: &str| directory.path().join(name);
    let (outbox, chain) = open_with(&out("a"), &state).unwrap();
    outbox.store(&seal(chain, 0..2), &mut |_| {}).unwrap();
    let copy = fs::read(&state).unwrap();
    let chain = seal(chain, 0..2)[1].chain;
    outbox.store(&seal(chain, 2..5), &mut |_| {}).unwrap();
    drop(outbox);
    fs::write(&state, copy).unwrap();
    // With the bundles in another directory, nothing else shows that the indices were signed.
    let error = open_with(&out("b"), &state).unwrap_err();
    assert_eq!(error.name(), "StateOutdated");
    let (_outbox, chain) = Outbox::open_forwarding(&out("b"), &state, &roster, device, 7).unwrap();
    assert_eq!(chain.next_index, SealIndex(5 + (1 << 16) + 7));
    assert!(chain.restarted());
}

#[test]
fn a_state_behind_a_symbolic_link_is_written_in_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    drop(open_with(&directory.path().join("out"), &real).unwrap());
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let (outbox, chain) = open_with(&directory.path().join("out"), &link).unwrap();
    let bundles = seal(chain, 0..2);
    outbox.store(&bundles, &mut |_| {}).unwrap();
    // Both names have one lock.
    let locked = open_with(&directory.path().join("other"), &real);
    assert!(matches!(locked, Err(OutboxError::Locked(_))));
    drop(outbox);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let (_outbox, chain) = open_with(&directory.path().join("out"), &real).unwrap();
    assert_eq!(chain, bundles[1].chain);
}
