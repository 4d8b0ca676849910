//! The archive of a broadcast node returns the data that it stored, even after kills, incomplete
//! writes and damage, and stays within its quota.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use moteseal_broadcast::recovery::{Item, Store};
use moteseal_broadcast::{ChainNumber, ChainRef, KeyId, Revoked};
use moteseal_core::record::NetworkId;
use moteseal_store::Archive;
use moteseal_store::archive::{MOST_COMPLETE, QUOTA};
use proptest::prelude::*;

const NETWORK: NetworkId = NetworkId(*b"network1");
const SENDER: KeyId = KeyId(*b"sender 1");
const BASES: [KeyId; 2] = [KeyId(*b"base one"), KeyId(*b"base two")];
const A: ChainRef = ChainRef(*b"chain  A");
const B: ChainRef = ChainRef(*b"chain  B");
const C: ChainRef = ChainRef(*b"chain  C");

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cast.state");
    (directory, path)
}

fn open(path: &Path) -> Archive {
    Archive::open(path, NETWORK, &BASES, QUOTA).unwrap()
}

const fn leaf(chain: ChainRef, block: u32, index: u8) -> Item {
    Item::Leaf { chain, block, index }
}

fn get(archive: &mut Archive, item: Item) -> Option<Vec<u8>> {
    let mut out = [0; 4096];
    archive.fetch(item, &mut out).unwrap().map(<[u8]>::to_vec)
}

/// Copies the folder as it is now. The copy equals the folder that a kill of the process would
/// leave.
fn killed(path: &Path, copy: &Path) {
    fs::create_dir_all(copy).unwrap();
    for entry in fs::read_dir(path).unwrap() {
        let file = entry.unwrap().path();
        fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
    }
}

#[test]
fn raised_numbers_and_earlier_items_are_durable_at_once() {
    let (directory, path) = place();
    let mut archive = open(&path);
    for (step, number) in [3, 9, 7].into_iter().enumerate() {
        archive.keep(Item::Certificate(SENDER), b"certificate").unwrap();
        archive.keep(Item::ChainCertificate(A), b"certificate").unwrap();
        archive.keep(Item::Head(A), b"head").unwrap();
        archive.keep(leaf(A, 1, 0), b"leaf").unwrap();
        archive.raise(SENDER, ChainNumber(number)).unwrap();
        archive.keep(Item::Revocation(1), b"revocation").unwrap();
        archive.revoke(1, &Revoked::below(number)).unwrap();
        let copy = directory.path().join(step.to_string());
        killed(&path, &copy);
        let mut after = open(&copy);
        let highest = [3, 9, 9][step];
        assert_eq!(
            after.floor(SENDER).unwrap(),
            Some(ChainNumber(highest)),
            "the number must not decrease"
        );
        assert_eq!(
            (after.revoked(1).unwrap(), after.revoked(0).unwrap()),
            (Revoked::below(highest), Revoked::NONE)
        );
        assert_eq!(get(&mut after, Item::Head(A)).unwrap(), b"head");
        assert_eq!(get(&mut after, Item::ChainCertificate(A)).unwrap(), b"certificate");
        assert_eq!(get(&mut after, Item::Certificate(SENDER)).unwrap(), b"certificate");
        assert_eq!(get(&mut after, Item::Revocation(1)).unwrap(), b"revocation");
        assert_eq!(get(&mut after, leaf(A, 1, 0)).unwrap(), b"leaf");
    }
    assert_eq!(archive.floor(KeyId(*b"sender 2")).unwrap(), None);
}

#[test]
fn base_stations_are_identified_by_key_not_by_position() {
    let (_directory, path) = place();
    let mut archive = open(&path);
    let revoked = Revoked::below(5).and(8).unwrap();
    archive.revoke(1, &revoked).unwrap();
    archive.keep(Item::Revocation(1), b"of two").unwrap();
    archive.sync().unwrap();
    drop(archive);
    let mut swapped = Archive::open(&path, NETWORK, &[BASES[1], BASES[0]], QUOTA).unwrap();
    assert_eq!(
        (swapped.revoked(0).unwrap(), swapped.revoked(1).unwrap()),
        (revoked, Revoked::NONE)
    );
    assert_eq!(get(&mut swapped, Item::Revocation(0)).unwrap(), b"of two");
    assert_eq!(get(&mut swapped, Item::Revocation(1)), None);
}

#[test]
fn every_truncation_of_a_file_of_leaves_keeps_the_complete_ones() {
    let (directory, path) = place();
    let mut archive = open(&path);
    archive.keep(Item::Head(A), b"head").unwrap();
    archive.sync().unwrap();
    let leaves: Vec<Vec<u8>> =
        (0_u8..5).map(|number| vec![number; usize::from(number) * 7]).collect();
    for (index, bytes) in (0..).zip(&leaves) {
        archive.keep(leaf(A, 1, index), bytes).unwrap();
    }
    drop(archive);
    let file = format!("{A}.leaves");
    let whole = fs::read(path.join(&file)).unwrap();
    let ends: Vec<usize> = leaves
        .iter()
        .scan(0, |end, bytes| {
            *end += 15 + bytes.len();
            Some(*end)
        })
        .collect();
    assert_eq!(*ends.last().unwrap(), whole.len());
    for length in 0..=whole.len() {
        let copy = directory.path().join(length.to_string());
        killed(&path, &copy);
        fs::write(copy.join(&file), &whole[..length]).unwrap();
        let mut after = open(&copy);
        for (index, (bytes, end)) in (0..).zip(leaves.iter().zip(&ends)) {
            assert_eq!(
                get(&mut after, leaf(A, 1, index)),
                (*end <= length).then(|| bytes.clone()),
                "cut at {length}"
            );
        }
        // A leaf that is added afterwards can be read again.
        after.keep(leaf(A, 2, 0), b"more").unwrap();
        drop(after);
        assert_eq!(get(&mut open(&copy), leaf(A, 2, 0)).unwrap(), b"more");
    }
}

#[test]
fn a_damaged_leaf_is_missing_and_never_returned() {
    let (directory, path) = place();
    let mut archive = open(&path);
    archive.keep(Item::Head(A), b"head").unwrap();
    archive.sync().unwrap();
    let leaves: Vec<Vec<u8>> = (0..4).map(|number| vec![number; 9]).collect();
    for (index, bytes) in (0..).zip(&leaves) {
        archive.keep(leaf(A, 1, index), bytes).unwrap();
    }
    let file = format!("{A}.leaves");
    let whole = fs::read(path.join(&file)).unwrap();
    for at in 0..whole.len() {
        let copy = directory.path().join(at.to_string());
        killed(&path, &copy);
        let mut bytes = whole.clone();
        bytes[at] ^= 0x81;
        // Damage that occurs before the file is opened.
        fs::write(copy.join(&file), &bytes).unwrap();
        let mut after = open(&copy);
        let found: Vec<Option<Vec<u8>>> =
            (0..4).map(|index| get(&mut after, leaf(A, 1, index))).collect();
        assert!(
            found
                .iter()
                .zip(&leaves)
                .all(|(found, kept)| found.as_ref().is_none_or(|found| found == kept)),
            "{at}"
        );
        assert!(found[at / 24].is_none(), "byte {at}: {found:?}");
        assert!(found[..at / 24].iter().all(Option::is_some), "byte {at}: {found:?}");
        if !(5..7).contains(&(at % 24)) {
            assert_eq!(
                found.iter().flatten().count(),
                3,
                "only a damaged length may lose other leaves: byte {at}, {found:?}"
            );
        }
        after.keep(leaf(A, 1, u8::try_from(at / 24).unwrap()), &leaves[at / 24]).unwrap();
        assert_eq!(
            get(&mut after, leaf(A, 1, u8::try_from(at / 24).unwrap())).as_ref(),
            Some(&leaves[at / 24])
        );
    }
    // Damage that occurs while the archive is open.
    let mut bytes = whole;
    bytes[20] ^= 1;
    fs::write(path.join(&file), &bytes).unwrap();
    assert_eq!(get(&mut archive, leaf(A, 1, 0)), None);
    assert_eq!(get(&mut archive, leaf(A, 1, 1)).as_ref(), Some(&leaves[1]));
}

#[test]
fn at_the_quota_the_oldest_complete_chains_are_removed_and_incomplete_ones_kept() {
    let (_directory, path) = place();
    let quota = 40_000;
    let mut archive = Archive::open(&path, NETWORK, &BASES, quota).unwrap();
    let big = vec![7; 4000];
    for (chain, leaves) in [(A, 3), (B, 3), (C, 2)] {
        archive.keep(Item::ChainCertificate(chain), b"certificate").unwrap();
        archive.keep(Item::Head(chain), b"head").unwrap();
        for index in 0..leaves {
            archive.keep(leaf(chain, 1, index), &big).unwrap();
        }
    }
    // Chain A is incomplete; B and C are complete, and B is older than C.
    archive.retire(C).unwrap();
    archive.retire(B).unwrap();
    archive.raise(SENDER, ChainNumber(4)).unwrap();
    for index in 3..5 {
        archive.keep(leaf(A, 1, index), &big).unwrap();
    }
    assert_eq!(archive.chains(), [A, C]);
    assert_eq!((get(&mut archive, Item::Head(B)), get(&mut archive, leaf(B, 1, 0))), (None, None));
    let mut index = 5;
    let rejected = loop {
        match archive.keep(leaf(A, 1, index), &big) {
            Ok(()) => index += 1,
            Err(rejected) => break rejected,
        }
        assert!(archive.used() <= quota);
    };
    assert_eq!((rejected.name(), archive.chains()), ("QuotaReached", vec![A]));
    drop(archive);
    let on_disk: u64 = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name() != "journal")
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert!((30_000..=quota).contains(&on_disk), "{on_disk}");
    let mut archive = Archive::open(&path, NETWORK, &BASES, quota).unwrap();
    assert_eq!(
        archive.floor(SENDER).unwrap(),
        Some(ChainNumber(4)),
        "chain numbers must outlive the chains"
    );
    assert_eq!(archive.kept_leaves(A), usize::from(index));
    assert_eq!(
        archive.keep(Item::Head(B), &vec![0; 9000]).unwrap_err().name(),
        "QuotaReached",
        "heads count towards the quota"
    );
}

#[test]
fn the_journal_stays_short_after_many_short_chains() {
    let (_directory, path) = place();
    let mut archive = Archive::open(&path, NETWORK, &BASES, 10_000).unwrap();
    for number in 0..2000_u32 {
        let chain = ChainRef(u64::from(number).to_be_bytes());
        archive.keep(Item::ChainCertificate(chain), &[1; 200]).unwrap();
        archive.keep(Item::Head(chain), &[2; 200]).unwrap();
        archive.raise(SENDER, ChainNumber(u64::from(number))).unwrap();
        archive.keep(leaf(chain, 1, 0), b"on").unwrap();
        archive.complete(chain).unwrap();
        archive.note(chain, 1).unwrap();
    }
    assert!(archive.used() <= 10_000);
    let newest = ChainRef(1999_u64.to_be_bytes());
    assert_eq!(archive.noted(newest), 1);
    assert!(fs::metadata(path.join("journal")).unwrap().len() < 300_000);
    assert!(fs::read_dir(&path).unwrap().count() < 30);
    drop(archive);
    let mut archive = Archive::open(&path, NETWORK, &BASES, 10_000).unwrap();
    assert_eq!((archive.noted(newest), archive.is_complete(newest)), (1, true));
    assert_eq!(archive.floor(SENDER).unwrap(), Some(ChainNumber(1999)));
}

#[test]
fn the_number_of_complete_chains_is_limited() {
    let (_directory, path) = place();
    let mut archive = open(&path);
    let chain = |number: u64| ChainRef(number.to_be_bytes());
    for number in 0..MOST_COMPLETE as u64 + 50 {
        archive.keep(Item::Head(chain(number)), b"head").unwrap();
        archive.keep(leaf(chain(number), 1, 0), b"on").unwrap();
        archive.complete(chain(number)).unwrap();
    }
    let newest: Vec<ChainRef> = (50..MOST_COMPLETE as u64 + 50).map(chain).collect();
    assert_eq!(archive.chains(), newest);
    assert!(fs::read_dir(&path).unwrap().count() <= MOST_COMPLETE + 1);
    drop(archive);
    assert_eq!(open(&path).chains(), newest);
}

#[test]
fn no_chain_replaces_another_one() {
    let (_directory, path) = place();
    let mut archive = open(&path);
    archive.keep(Item::ChainCertificate(A), b"certificate").unwrap();
    archive.keep(Item::Head(A), b"head").unwrap();
    archive.keep(leaf(A, 1, 0), b"leaf").unwrap();
    archive.note(A, 1).unwrap();
    archive.complete(A).unwrap();
    // A node accepts another head with the same reference.
    archive.keep(Item::ChainCertificate(A), b"another certificate").unwrap();
    assert_eq!(archive.keep(Item::Head(A), b"another").unwrap_err().name(), "ReferenceTaken");
    archive.keep(Item::Head(A), b"head").unwrap();
    assert_eq!(get(&mut archive, Item::ChainCertificate(A)).unwrap(), b"certificate");
    assert_eq!(get(&mut archive, leaf(A, 1, 0)).unwrap(), b"leaf");
    assert_eq!((archive.noted(A), archive.is_complete(A)), (1, true));
    archive.forget(A).unwrap();
    archive.keep(Item::Head(A), b"another").unwrap();
    assert_eq!(
        (get(&mut archive, leaf(A, 1, 0)), archive.noted(A), archive.is_complete(A)),
        (None, 0, false)
    );
}

#[test]
fn errors_name_a_folder_that_is_in_use_or_not_an_archive() {
    let (directory, path) = place();
    let archive = open(&path);
    let name =
        |path: &Path, network| Archive::open(path, network, &BASES, QUOTA).unwrap_err().name();
    assert_eq!(name(&path, NETWORK), "JournalLocked");
    drop(archive);
    assert_eq!(name(&path, NetworkId(*b"network2")), "OtherNetwork");
    assert_eq!(name(directory.path(), NETWORK), "NotAnArchive");
    let file = directory.path().join("file");
    fs::write(&file, "text").unwrap();
    assert_eq!(name(&file, NETWORK), "NotAnArchive");
    // A journal that does not belong to an archive.
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    let mut journal = moteseal_store::Journal::open(&other.join("journal")).unwrap();
    journal.append(b"\x01something").unwrap();
    journal.sync().unwrap();
    drop(journal);
    assert_eq!(name(&other, NETWORK), "NotAnArchive");
}

#[derive(Clone, Debug)]
enum Step {
    Keep(Item, Vec<u8>),
    ForgetBlock(ChainRef, u32),
    Forget(ChainRef),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let chain = prop::sample::select(vec![A, B, C]);
    let item = prop_oneof![
        1 => chain.clone().prop_map(Item::ChainCertificate),
        8 => (chain.clone(), 1_u32..4, 0_u8..4)
            .prop_map(|(chain, block, index)| leaf(chain, block, index)),
    ];
    let bytes = prop::collection::vec(any::<u8>(), 0..60);
    let step = prop_oneof![
        12 => (item, bytes).prop_map(|(item, bytes)| Step::Keep(item, bytes)),
        1 => (chain.clone(), 1_u32..4).prop_map(|(chain, block)| Step::ForgetBlock(chain, block)),
        1 => chain.prop_map(Step::Forget),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    // Reopening an archive takes a few syncs, so run only a few cases to keep the test short on a
    // busy disk.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn an_archive_behaves_like_a_map(steps in steps()) {
        let (_directory, path) = place();
        let mut archive = open(&path);
        let mut model: BTreeMap<Item, Vec<u8>> = BTreeMap::new();
        for chain in [A, B, C] {
            archive.keep(Item::Head(chain), &chain.0).unwrap();
        }
        for step in steps {
            match step {
                Step::Keep(item, bytes) => {
                    archive.keep(item, &bytes).unwrap();
                    if matches!(item, Item::ChainCertificate(_)) {
                        // The model leaves out chain certificates: while the chain has a head, the
                        // archive does not replace them.
                        continue;
                    }
                    prop_assert!(archive.is_kept(item, &bytes).unwrap());
                    model.insert(item, bytes);
                }
                Step::ForgetBlock(chain, block) => {
                    archive.forget_block(chain, block).unwrap();
                    let is_of = |item: &Item| {
                        matches!(item, Item::Leaf { chain: of, block: at, .. }
                            if (*of, *at) == (chain, block))
                    };
                    model.retain(|item, _| !is_of(item));
                    for index in 0..4 {
                        prop_assert_eq!(get(&mut archive, leaf(chain, block, index)), None);
                    }
                    // After the archive is reopened, it may return the forgotten leaves again,
                    // which the model does not represent. Overwrite them.
                    for index in 0..4 {
                        archive.keep(leaf(chain, block, index), b"again").unwrap();
                        model.insert(leaf(chain, block, index), b"again".to_vec());
                    }
                }
                Step::Forget(chain) => {
                    archive.forget(chain).unwrap();
                    model.retain(|item, _| {
                        !matches!(item, Item::Leaf { chain: of, .. } | Item::ChainCertificate(of)
                            if *of == chain)
                    });
                    archive.keep(Item::Head(chain), &chain.0).unwrap();
                }
                Step::Reopen => {
                    archive.sync().unwrap();
                    drop(archive);
                    archive = open(&path);
                }
            }
            for chain in [A, B, C] {
                let leaves =
                    (1..4).flat_map(|block| (0..4).map(move |index| leaf(chain, block, index)));
                for item in leaves.chain([Item::ChainCertificate(chain)]) {
                    prop_assert_eq!(get(&mut archive, item), model.get(&item).cloned());
                    let other = model
                        .get(&item)
                        .map_or_else(|| b"x".to_vec(), |kept| [kept, &b"x"[..]].concat());
                    prop_assert!(!archive.is_kept(item, &other).unwrap());
                }
            }
        }
    }
}
