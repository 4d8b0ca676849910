//! The check finds and names damage to the file, and the store never returns damaged data.

use std::fs;
use std::path::Path;

use moteseal_api::NamedError as _;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_store::check::{Report, check};
use moteseal_store::conformance::{Made, Mote, Motes, manifest};
use moteseal_store::{EpochStore, OpenError, Options, ReadError, RedbStore, StoredManifest};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// Makes a store with every kind of content: short and long stars and trees, records of any length,
/// and an equivocation.
fn store_of_everything(path: &Path) -> Vec<Made> {
    let store = RedbStore::open(path, Options::default()).unwrap();
    let mut made = Vec::new();
    for (i, name) in NAMES.into_iter().enumerate() {
        let mut mote = Mote::new(name, i == 1);
        let mut fork = mote.position;
        for epoch in 0..12 {
            let scheme = if epoch % 3 == 2 { Scheme::Tree } else { Scheme::Star };
            let n = [3, 40, 298, 1000, 5000][(i + epoch as usize) % 5];
            if epoch == 5 {
                fork = mote.position;
            }
            let whole = mote.seal_some(scheme, epoch, n);
            let prunable = whole.statement.surviving() & 0b11 != 0;
            if epoch == 11 && prunable {
                // An earlier version of the tree with fewer levels. The complete tree below
                // replaces it.
                store.put(vec![whole.pruned(3, mote.schema()).bundle]).unwrap();
            }
            made.push(if prunable && matches!(epoch, 1 | 5 | 8 | 9) {
                whole.pruned(2, mote.schema())
            } else {
                whole
            });
        }
        if i == 2 {
            mote.position = fork;
            made.push(mote.seal_some(Scheme::Star, 20, 10));
        }
    }
    for made in made.chunks(4) {
        store.put(made.iter().map(|made| made.bundle.clone()).collect()).unwrap();
    }
    store.put_manifests(manifests(&made)).unwrap();
    made
}

/// Returns the manifests of the store's epochs. Epoch 5 has two.
fn manifests(made: &[Made]) -> Vec<StoredManifest> {
    let of = |epoch: u64, round| {
        let seals: Vec<&Made> =
            made.iter().filter(|made| made.statement.epoch.0 == epoch).collect();
        manifest(epoch, round, &seals)
    };
    let mut manifests: Vec<StoredManifest> = (0..12).map(|epoch| of(epoch, 3)).collect();
    manifests.push(of(5, 4));
    manifests.sort_by_key(StoredManifest::key);
    manifests
}

fn run_check(path: &Path) -> Result<Report, OpenError> {
    check(path, &Motes::new(&NAMES), &mut |_| {})
}

/// Reads a seal with every method of the store. Returns whether all of it was read. Panics if
/// anything read differs from what was put.
fn reads_back(store: &RedbStore, made: &Made) -> Result<bool, ReadError> {
    let key = made.bundle.key();
    let found = store.seals_at(key.device, key.index)?;
    let Some(seal) = found.iter().find(|seal| seal.key() == key) else { return Ok(false) };
    assert_eq!(seal.seal().statement(), &made.statement);
    match store.schema(&made.statement.schema)? {
        None => return Ok(false),
        Some(schema) => assert_eq!(schema, made.bundle.schema().bytes),
    }
    if made.statement.scheme == Scheme::Star {
        for mask in [u32::MAX, 0xfff8, 0b10] {
            assert!(
                store.star_blocks(seal, mask)? == made.blocks(mask),
                "other events than were put"
            );
        }
        for mask in [made.bundle.kept(), 0xff00 & made.bundle.kept(), 0] {
            assert!(seal.evidence(mask) == made.evidence(mask), "other digests than were put");
        }
    } else {
        let kept = made.kept(made.bundle.kept());
        let framed = |selected: &[Sequence]| {
            made.framed(|seq| selected.binary_search(&Sequence(seq)).is_ok())
        };
        let all = store.kept_part(seal)?;
        assert!(
            all.records == framed(&kept) && all.siblings == made.multiproof(&kept),
            "other events than were put"
        );
        let selected: Vec<Sequence> = kept.iter().copied().step_by(97).collect();
        let part = store.tree_part(seal, &selected)?;
        assert!(part.records == framed(&selected), "other records than were put");
        let leaves = selected
            .iter()
            .map(|&seq| (seq, moteseal_seal::tree::leaf(&made.records[seq.0 as usize])));
        let n = made.records.len() as u64;
        let root = moteseal_seal::tree::multiproof_root(n, leaves, &part.siblings).unwrap();
        assert_eq!(root, *seal.seal().root());
    }
    Ok(true)
}

/// Returns whether a search by epoch finds a seal.
fn is_listed(store: &RedbStore, made: &Made) -> bool {
    let found = store.seals_since(made.statement.device, EpochNumber(made.statement.epoch.0), 9);
    found.is_ok_and(|seals| seals.iter().any(|seal| seal.key() == made.bundle.key()))
}

#[test]
fn an_undamaged_store_is_clean() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("epochs");
    let made = store_of_everything(&path);
    let before = fs::read(&path).unwrap();
    let mut seen = 0;
    let report = check(&path, &Motes::new(&NAMES), &mut |progress| {
        assert!(progress.seals > seen && progress.bytes <= progress.file_bytes);
        seen = progress.seals;
    })
    .unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
    assert_eq!((report.seals, report.manifests, report.gaps.len()), (made.len() as u64, 13, 0));
    assert_eq!(seen, made.len() as u64);
    assert_eq!(fs::read(&path).unwrap(), before, "a check must not write");
    // With a directory that lacks these devices, each seal is reported as `UnknownDevice` and
    // nothing else is reported.
    let report = check(&path, &Motes::new(&["stranger"]), &mut |_| {}).unwrap();
    assert!(
        report.damage.iter().all(|finding| finding.name == "UnknownDevice"),
        "{:?}",
        report.damage
    );
    assert_eq!(report.damage.len(), made.len());
}

#[test]
fn a_missing_predecessor_is_a_gap_but_not_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("epochs");
    let mut mote = Mote::new("one", false);
    let made: Vec<Made> = (0..4).map(|epoch| mote.seal_some(Scheme::Star, epoch, 10)).collect();
    let store = RedbStore::open(&path, Options::default()).unwrap();
    store.put(vec![made[0].bundle.clone(), made[3].bundle.clone()]).unwrap();
    let error = run_check(&path).unwrap_err().named().to_string();
    assert!(error.starts_with("StoreLocked: another process has "), "{error}");
    drop(store);
    let report = run_check(&path).unwrap();
    assert!(report.is_clean());
    let gaps: Vec<String> = report.gaps.iter().map(ToString::to_string).collect();
    let device = mote.device();
    assert_eq!(
        gaps,
        [format!(
            "Missing: device {device}, index 2: \
             seal 3 names it as its predecessor, but it is missing"
        )]
    );
}

/// Flips bits of one byte at a time. The check must report damage to everything that a client could
/// read, and a read must return what was put or an error.
fn flip_impl(
    positions: impl Iterator<Item = (u64, u8)>,
    directory: &Path,
    made: &[Made],
) -> (usize, usize) {
    let path = directory.join("epochs");
    let whole = fs::read(&path).unwrap();
    let flipped = directory.join("flipped");
    let (mut named, mut harmless) = (0, 0);
    for (at, flip) in positions {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= flip;
        fs::write(&flipped, &bytes).unwrap();
        let report = match run_check(&flipped) {
            Ok(report) => report,
            // A flip of the bytes that identify the file as a store makes it another type of file.
            Err(OpenError::NotAStore(_)) if at < 4096 => {
                named += 1;
                continue;
            }
            Err(error) => panic!("byte {at} ^ {flip:#x}: {error}"),
        };
        assert_eq!(fs::read(&flipped).unwrap(), bytes, "a check must not write");
        let what = |made: &Made| {
            format!("byte {at} ^ {flip:#x}, {}: {:#?}", made.bundle.key(), report.damage)
        };
        match RedbStore::open(&flipped, Options { create: false, ..Options::default() }) {
            Err(error) => {
                assert!(matches!(error, OpenError::Damaged(..)), "byte {at} ^ {flip:#x}: {error}");
                assert!(!report.is_clean(), "byte {at} ^ {flip:#x}: {error}");
            }
            Ok(store) => {
                for made in made {
                    let whole = reads_back(&store, made);
                    let key = made.bundle.key();
                    // Besides the finding about the file as a whole, which names no seal, another
                    // finding must name this seal.
                    let naming = || {
                        report
                            .damage
                            .iter()
                            .filter(|finding| !finding.what.starts_with("the file as a whole"))
                    };
                    let named = naming().any(|finding| finding.concerns(key.device, key.index));
                    assert!(whole == Ok(true) || named, "{whole:?} {}", what(made));
                    // A search by epoch may also stop at damage to another seal of the device.
                    let near = naming()
                        .any(|finding| finding.device.is_none_or(|device| device == key.device));
                    assert!(is_listed(&store, made) || near, "not found by epoch: {}", what(made));
                }
                let listed = store.manifests(EpochNumber(0), None, None, 100);
                assert!(
                    listed.is_ok_and(|listed| listed == manifests(made)) || !report.is_clean(),
                    "byte {at} ^ {flip:#x}"
                );
                let heads = store.devices(None, 100);
                assert!(
                    heads.is_ok_and(|heads| heads.len() == NAMES.len()) || !report.is_clean(),
                    "byte {at} ^ {flip:#x}"
                );
                let doubled = store.equivocations(None, 100);
                assert!(
                    doubled.is_ok_and(|doubled| doubled.len() == 1) || !report.is_clean(),
                    "byte {at} ^ {flip:#x}"
                );
            }
        }
        if report.is_clean() {
            harmless += 1;
        } else {
            named += 1;
        }
    }
    (named, harmless)
}

#[test]
fn flips_anywhere_in_the_file_are_reported_or_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let made = store_of_everything(&directory.path().join("epochs"));
    let length = fs::metadata(directory.path().join("epochs")).unwrap().len();
    let mut state = 1u64;
    let random = std::iter::repeat_with(move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 16) % length, 1 << (state >> 60 & 7))
    });
    let (named, harmless) = flip_impl(random.take(300), directory.path(), &made);
    assert!(named > 30 && harmless > 10, "{named} named, {harmless} harmless");
}

#[test]
fn flips_in_the_header_are_reported_or_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let made = store_of_everything(&directory.path().join("epochs"));
    let header = (0..320).chain(4064..4096).map(|at| (at, 1 << (at % 8)));
    flip_impl(header, directory.path(), &made);
}

#[test]
fn flips_in_every_page_are_reported_or_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let made = store_of_everything(&directory.path().join("epochs"));
    let length = fs::metadata(directory.path().join("epochs")).unwrap().len();
    // The first bytes of a page contain its type and its pointers.
    let pages = (0..(length - 4096) / 4104).map(|page| (4096 + page * 4104 + page % 24, 0x40));
    let used: Vec<(u64, u8)> = pages.collect();
    let (named, _) = flip_impl(used.into_iter().step_by(3), directory.path(), &made);
    assert!(named > 10, "{named} named");
}

#[test]
fn a_truncated_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("epochs");
    store_of_everything(&path);
    let whole = fs::read(&path).unwrap();
    for length in [1, 100, 4095, 4096, 5000, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        match run_check(&path) {
            Ok(report) => assert!(!report.is_clean(), "{length} bytes of {}", whole.len()),
            Err(error) => {
                assert!(matches!(error, OpenError::NotAStore(_)), "{length} bytes: {error}");
            }
        }
    }
}

#[test]
fn errors_on_opening_name_the_file_and_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str, create| {
        RedbStore::open(&directory.path().join(name), Options { create, ..Options::default() })
    };
    let _held = open("held", true).unwrap();
    fs::write(directory.path().join("empty"), "").unwrap();
    fs::write(directory.path().join("notes.txt"), "not a store at all").unwrap();
    fs::write(directory.path().join("long.bin"), vec![7; 100_000]).unwrap();
    fs::create_dir(directory.path().join("folder")).unwrap();
    redb::Database::create(directory.path().join("other.redb")).unwrap();
    for (name, create, error, remedy) in [
        ("held", true, "StoreLocked", "stop it first"),
        ("empty", true, "StoreEmpty", "delete it to start a new store"),
        ("notes.txt", true, "NotAStore", "check the path"),
        ("long.bin", true, "NotAStore", "check the path"),
        ("other.redb", true, "NotAStore", "check the path"),
        ("missing", false, "StoreNotFound", "check the path"),
        ("missing/deep", true, "StoreNotFound", "check the path"),
        ("folder", true, "StoreFailed", "folder"),
    ] {
        let found = open(name, create).unwrap_err();
        let text = found.named().to_string();
        assert_eq!(found.name(), error, "{text}");
        assert!(text.starts_with(error) && text.contains(name) && text.contains(remedy), "{text}");
        assert!(!text.contains('\n'));
    }
    assert_eq!(fs::read(directory.path().join("notes.txt")).unwrap(), b"not a store at all");
    assert!(!directory.path().join("missing").exists());
    let store = open("made", true).unwrap();
    assert!(store.seals(Mote::new("one", false).device(), SealIndex(0), 1).unwrap().is_empty());
}

/// Damages each page in turn, then writes to the store.
#[test]
fn a_damaged_page_fails_only_the_batches_that_need_it() {
    let directory = tempfile::tempdir().unwrap();
    let (path, flipped) = (directory.path().join("epochs"), directory.path().join("flipped"));
    let mut motes = NAMES.map(|name| Mote::new(name, false));
    let made: Vec<Made> = (0..24)
        .map(|i| motes[i % 3].seal_some(Scheme::Star, i as u64, [10, 300, 1000, 5000][i / 3 % 4]))
        .collect();
    let store = RedbStore::open(&path, Options::default()).unwrap();
    store.put(made.iter().map(|made| made.bundle.clone()).collect()).unwrap();
    drop(store);
    let next = motes.map(|mut mote| mote.seal_some(Scheme::Star, 100, 1000));
    let whole = fs::read(&path).unwrap();
    let (mut partly, mut fully) = (0, 0);
    // The used pages are at the start of the file.
    for page in 1..=((whole.len() - 4096) / 4104).min(70) {
        let mut bytes = whole.clone();
        bytes[page * 4104] ^= 1;
        fs::write(&flipped, &bytes).unwrap();
        let Ok(store) = RedbStore::open(&flipped, Options { create: false, ..Options::default() })
        else {
            continue;
        };
        // Submit all batches before waiting for any, so that one commit contains them.
        let (send, receive) = std::sync::mpsc::channel();
        for (number, made) in next.iter().enumerate() {
            let send = send.clone();
            let reply = move |result: Result<_, _>| send.send((number, result)).unwrap();
            store.submit(vec![made.bundle.clone()], Box::new(reply)).unwrap();
        }
        drop(send);
        let mut stored = 0;
        for (number, result) in receive.iter().take(3) {
            match result {
                Ok(_) => {
                    // Look the seal up by its index: a search by epoch could encounter the damaged
                    // page.
                    let key = next[number].bundle.key();
                    let seals = store.seals_at(key.device, key.index).unwrap();
                    assert!(
                        seals.iter().any(|seal| seal.key() == key),
                        "page {page}: acknowledged but not stored"
                    );
                    stored += 1;
                }
                Err(error) => assert_eq!(error.name(), "StoreFailed", "{error}"),
            }
        }
        let readable = made.iter().filter(|made| reads_back(&store, made) == Ok(true)).count();
        if readable > 0 && readable < made.len() {
            partly += 1;
            assert!(
                stored >= 2,
                "page {page}: {readable} of {} seals are readable, \
                 but only {stored} of 3 could be stored",
                made.len()
            );
        }
        fully += usize::from(stored == 3);
        // The damaged store can be closed and opened again.
        drop(store);
        let again = RedbStore::open(&flipped, Options { create: false, ..Options::default() });
        assert!(again.is_ok(), "page {page}: {again:?}");
    }
    assert!(partly > 5 && fully > 5, "{partly} pages are needed by some, {fully} by none");
}
