//! The outbox stores whole batches or nothing, and no crash makes a device sign an index twice.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;

use moteseal_core::level::SaltKey;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_core::seal::Scheme;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_device::outbox::{Outbox, OutboxError};
use moteseal_device::{Bundle, Chain, Profile, Sealer};
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;

fn secret() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

fn roster() -> Roster {
    let devices = [("dev1", secret().public()), ("a/b", secret().public())];
    let first = FirstRoster { group: "home", epoch_ms: 1000, levels: 8, budget: None, devices: &devices };
    Roster::open(&first.issue(&secret()).unwrap(), &secret().public()).unwrap()
}

fn seal(chain: Chain, epochs: std::ops::Range<u64>) -> Vec<Bundle> {
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&[Field::new("v", "", FieldType::U8)], &mut buffer).unwrap();
    let profile = Profile::new(&roster(), "dev1", Scheme::Star, &schema).unwrap();
    let mut sealer = Sealer::new(profile, secret(), SaltKey::new([2; 32]), chain);
    let mut bundles: Vec<Bundle> = epochs.flat_map(|epoch| sealer.push(EpochNumber(epoch), &[1]).unwrap()).collect();
    bundles.extend(sealer.close(true).unwrap());
    bundles
}

fn names(directory: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_chain_goes_on_from_batch_to_batch() {
    let directory = tempfile::tempdir().unwrap();
    let roster = roster();
    let device = roster.id("dev1").unwrap();
    for (from, to) in [(0, 3), (3, 5)] {
        let (outbox, chain) = Outbox::open(directory.path(), None, &roster, device).unwrap();
        assert_eq!(chain.next_index, SealIndex(from as u32));
        assert!(!chain.restarted());
        let bundles = seal(chain, from..to);
        let mut seen = 0;
        assert_eq!(outbox.store(&bundles, &mut |_| seen += 1).unwrap().len(), bundles.len());
        assert_eq!(seen, bundles.len());
    }
    let expected: Vec<String> = (0..5).map(|index| format!("dev1-{index:010}.mseal")).collect();
    assert_eq!(names(directory.path()), [vec![".dev1.chain".to_owned()], expected].concat());
}

#[test]
fn signed_bundles_beyond_the_state_are_taken_up_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let roster = roster();
    let device = roster.id("dev1").unwrap();
    let (outbox, chain) = Outbox::open(directory.path(), None, &roster, device).unwrap();
    let bundles = seal(chain, 0..3);
    // The crash: opened, two of three have got their names.
    outbox.persist(&Chain { position: chain.position, ..bundles[2].chain }).unwrap();
    for bundle in &bundles[..2] {
        fs::write(outbox.path(bundle.index()), &bundle.bytes).unwrap();
    }
    drop(outbox);
    let (outbox, chain) = Outbox::open(directory.path(), None, &roster, device).unwrap();
    assert_eq!(chain.position, bundles[1].chain.position);
    assert_eq!((chain.next_index, chain.restarted()), (SealIndex(3), true));
    // The next seal skips the index that was opened and never signed, and says so.
    let next = seal(chain, 2..3);
    assert!(next[0].seal.statement().restart);
    assert_eq!(next[0].index(), SealIndex(3));
    outbox.store(&next, &mut |_| {}).unwrap();
}

#[test]
fn nothing_is_overwritten_and_nothing_half_written() {
    let directory = tempfile::tempdir().unwrap();
    let roster = roster();
    let device = roster.id("dev1").unwrap();
    let (outbox, chain) = Outbox::open(directory.path(), None, &roster, device).unwrap();
    let bundles = seal(chain, 0..3);
    fs::write(outbox.path(SealIndex(2)), b"somebody's").unwrap();
    assert!(matches!(outbox.store(&bundles, &mut |_| {}), Err(OutboxError::Unknown { .. })));
    assert_eq!(names(directory.path()), ["dev1-0000000002.mseal"]);
    drop(outbox);
    // A lost state is not taken for a new device.
    fs::rename(directory.path().join("dev1-0000000002.mseal"), directory.path().join("dev1-0000000000.mseal")).unwrap();
    let error = Outbox::open(directory.path(), None, &roster, device).unwrap_err().to_string();
    assert!(error.contains("restore the state"), "{error}");
}

#[test]
fn only_one_process_seals_into_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let roster = roster();
    let device = roster.id("dev1").unwrap();
    let first = Outbox::open(directory.path(), None, &roster, device).unwrap();
    assert!(matches!(Outbox::open(directory.path(), None, &roster, device), Err(OutboxError::Locked(_))));
    drop(first);
    Outbox::open(directory.path(), None, &roster, device).unwrap();
}

#[test]
fn a_damaged_state_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let roster = roster();
    let device = roster.id("dev1").unwrap();
    let state = directory.path().join("state");
    let (outbox, chain) = Outbox::open(directory.path(), Some(&state), &roster, device).unwrap();
    outbox.persist(&chain).unwrap();
    drop(outbox);
    let good = fs::read(&state).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&state, bad).unwrap();
        assert!(matches!(Outbox::open(directory.path(), Some(&state), &roster, device), Err(OutboxError::BadState(_))));
    }
    fs::write(&state, good).unwrap();
    let other = roster.id("a/b").unwrap();
    assert!(matches!(Outbox::open(directory.path(), Some(&state), &roster, other), Err(OutboxError::BadState(_))));
    let (named, _) = Outbox::open(directory.path(), None, &roster, other).unwrap();
    let name = named.path(SealIndex(0)).file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(name, format!("a_b-{}-0000000000.mseal", &other.to_string()[..8]));
}
