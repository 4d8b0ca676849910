//! Tests that trees follow RFC 9162: comparison with a slow reference, properties, external test
//! vectors, and hostile proofs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use moteseal_core::{Digest, Sequence};
use moteseal_fixtures::external_data;
use moteseal_seal::engine::Scalar;
use moteseal_seal::tree::{self, MultiproofError, PathError, Tree, TreeFull, geometry};
use proptest::collection::vec;
use proptest::prelude::*;

fn records(n: usize, size: usize) -> Vec<Vec<u8>> {
    (0..n).map(|i| (0..size).map(|byte| (i * 31 + byte * 7) as u8).collect()).collect()
}

fn joined(digests: &[Digest]) -> Vec<u8> {
    digests.iter().flat_map(|digest| digest.0).collect()
}

fn pushed(records: &[Vec<u8>]) -> Tree<12> {
    let mut tree = Tree::new();
    for (seq, record) in records.iter().enumerate() {
        assert_eq!(tree.push(record), Ok(Sequence(seq as u64)));
    }
    tree
}

fn picked(selected: &[bool]) -> impl Iterator<Item = Sequence> + Clone {
    selected.iter().enumerate().filter(|(_, chosen)| **chosen).map(|(seq, _)| Sequence(seq as u64))
}

fn leaves<'a>(
    selected: &'a [bool],
    records: &'a [Vec<u8>],
) -> impl Iterator<Item = (Sequence, Digest)> + 'a {
    picked(selected).map(|seq| (seq, tree::leaf(&records[seq.0 as usize])))
}

fn multiproof_impl(selected: &[bool], records: &[Vec<u8>]) {
    let n = records.len() as u64;
    let proof = crate::reference::multiproof(selected, records);
    assert_eq!(tree::sibling_count(n, picked(selected)), proof.len() as u64);
    let subtrees: Vec<Digest> = geometry::siblings(n, picked(selected))
        .map(|range| crate::reference::root(&records[range.start as usize..range.end as usize]))
        .collect();
    assert_eq!(subtrees, proof);
    let root = tree::multiproof_root(n, leaves(selected, records), &joined(&proof));
    assert_eq!(root, Ok(crate::reference::root(records)));
}

fn path_impl(seq: usize, records: &[Vec<u8>]) {
    let n = records.len() as u64;
    let path = crate::reference::path(seq, records);
    let subtrees: Vec<Digest> = geometry::path(n, Sequence(seq as u64))
        .map(|range| crate::reference::root(&records[range.start as usize..range.end as usize]))
        .collect();
    assert_eq!(subtrees, path);
    let root = tree::path_root(tree::leaf(&records[seq]), Sequence(seq as u64), n, &joined(&path));
    assert_eq!(root, Ok(crate::reference::root(records)));
}

#[test]
fn multiproofs_of_small_trees_equal_the_reference() {
    for n in 0..=9 {
        let records = records(n, 4);
        for mask in 0..1_u32 << n {
            let selected: Vec<bool> = (0..n).map(|bit| mask >> bit & 1 == 1).collect();
            multiproof_impl(&selected, &records);
        }
    }
}

#[test]
fn paths_of_small_trees_equal_the_reference() {
    for n in 1..=40 {
        let records = records(n, 3);
        for seq in 0..n {
            path_impl(seq, &records);
        }
    }
}

#[test]
fn leaf_hashes_follow_the_rfc_at_every_length_around_a_block_boundary() {
    for length in 0..200 {
        let record = &records(1, length)[0];
        assert_eq!(tree::leaf(record), Digest::of(&[&[0], record]), "{length}");
    }
}

#[test]
fn node_hashes_follow_the_rfc() {
    let (left, right) = (Digest::of(&[b"left"]), Digest::of(&[b"right"]));
    assert_eq!(tree::node(&left, &right), Digest::of(&[&[1], &left.0, &right.0]));
}

proptest! {
    #[test]
    fn pushed_records_have_the_reference_root(n in 0_usize..300, size in 0_usize..70) {
        let records = records(n, size);
        prop_assert_eq!(pushed(&records).root(), crate::reference::root(&records));
    }

    #[test]
    fn extending_equals_pushing(portions in vec(0_usize..300, 0..8), size in 1_usize..70) {
        let records = records(portions.iter().sum(), size);
        let mut tree = Tree::<12>::new();
        let mut at = 0;
        for portion in portions {
            tree.extend(&Scalar, size, &records[at..at + portion].concat()).unwrap();
            at += portion;
        }
        prop_assert_eq!(tree.len(), records.len() as u64);
        prop_assert_eq!(tree.root(), pushed(&records).root());
    }

    #[test]
    fn any_multiproof_equals_the_reference(selected in vec(any::<bool>(), 0..200), sparse in any::<bool>()) {
        let selected: Vec<bool> = selected.iter().enumerate().map(|(i, chosen)| *chosen && (!sparse || i % 17 == 0)).collect();
        multiproof_impl(&selected, &records(selected.len(), 4));
    }

    #[test]
    fn any_path_equals_the_reference(n in 1_usize..300, seq: prop::sample::Index) {
        path_impl(seq.index(n), &records(n, 4));
    }

    #[test]
    fn siblings_and_selected_leaves_cover_the_tree(n in 0_u64..1 << 32, selected in prop::collection::btree_set(0_u64..1 << 32, 0..40)) {
        let mut ranges: Vec<_> = geometry::siblings(n, selected.iter().copied().map(Sequence)).collect();
        ranges.extend(selected.iter().filter(|seq| **seq < n).map(|seq| *seq..seq + 1));
        ranges.sort_unstable_by_key(|range| range.start);
        let mut at = 0;
        for range in ranges {
            prop_assert_eq!(range.start, at);
            at = range.end;
        }
        prop_assert_eq!(at, n);
    }

    #[test]
    fn rejects_a_wrong_number_of_digests(selected in vec(any::<bool>(), 1..100), cut in 1_usize..32) {
        let records = records(selected.len(), 4);
        let proof = joined(&crate::reference::multiproof(&selected, &records));
        let root = |proof: &[u8]| tree::multiproof_root(records.len() as u64, leaves(&selected, &records), proof);
        prop_assert_eq!(root(&[&proof[..], &[0; 32]].concat()), Err(MultiproofError::TooManyDigests));
        prop_assert_eq!(root(&[&proof[..], &[0; 31][..cut - 1], &[0]].concat()), Err(MultiproofError::TooManyDigests));
        if !proof.is_empty() {
            prop_assert_eq!(root(&proof[..proof.len() - cut]), Err(MultiproofError::TooFewDigests));
        }
    }

    #[test]
    fn a_changed_proof_has_a_different_root(selected in vec(any::<bool>(), 2..60), at: prop::sample::Index, bit in 0_u32..8) {
        let records = records(selected.len(), 4);
        let mut proof = joined(&crate::reference::multiproof(&selected, &records));
        prop_assume!(!proof.is_empty());
        let at = at.index(proof.len());
        proof[at] ^= 1_u8 << bit;
        let root = tree::multiproof_root(records.len() as u64, leaves(&selected, &records), &proof).unwrap();
        prop_assert_ne!(root, crate::reference::root(&records));
    }

    #[test]
    fn no_input_makes_the_verifier_panic(n: u64, selected in vec((any::<u64>(), any::<[u8; 32]>()), 0..5), proof in vec(any::<u8>(), 0..200)) {
        let selected = selected.into_iter().map(|(seq, leaf)| (Sequence(seq), Digest(leaf)));
        prop_assert!(tree::multiproof_root(n, selected, &proof).is_err() || n <= u64::from(u32::MAX));
        let path = tree::path_root(Digest::NULL, Sequence(n / 2), n, &proof);
        prop_assert!(path.is_err() || n > 0);
        prop_assert!(geometry::path(n, Sequence(n / 3)).count() <= 64);
    }
}

#[test]
fn rejects_unsorted_repeated_and_out_of_range_positions() {
    let root = |n, selected: &[u64]| {
        let selected = selected.iter().map(|&seq| (Sequence(seq), Digest::NULL));
        tree::multiproof_root(n, selected, &[0; 32 * 8])
    };
    assert_eq!(root(8, &[3, 2]), Err(MultiproofError::Unsorted));
    assert_eq!(root(8, &[3, 3]), Err(MultiproofError::Unsorted));
    assert_eq!(root(8, &[8]), Err(MultiproofError::OutOfRange));
    assert_eq!(root(0, &[0]), Err(MultiproofError::OutOfRange));
    assert_eq!(root(1 << 32, &[0]), Err(MultiproofError::OutOfRange));
}

#[test]
fn rejects_a_path_of_wrong_length_or_out_of_range() {
    let records = records(7, 4);
    let path = joined(&crate::reference::path(6, &records));
    let root =
        |seq, n, path: &[u8]| tree::path_root(tree::leaf(&records[6]), Sequence(seq), n, path);
    assert_eq!(root(6, 7, &path), Ok(crate::reference::root(&records)));
    assert_eq!(root(7, 7, &path), Err(PathError::OutOfRange));
    assert_eq!(root(0, 0, &path), Err(PathError::OutOfRange));
    assert_eq!(root(6, 7, &path[..32]), Err(PathError::DigestCount));
    assert_eq!(root(6, 7, &path[..63]), Err(PathError::DigestCount));
    assert_eq!(root(6, 7, &[&path[..], &[0; 32]].concat()), Err(PathError::DigestCount));
}

#[test]
fn a_full_tree_rejects_records_and_stays_unchanged() {
    let records = records(7, 4);
    let mut tree = Tree::<3>::new();
    tree.extend(&Scalar, 4, &records.concat()).unwrap();
    assert_eq!(Tree::<3>::CAPACITY, 7);
    assert_eq!(tree.push(b"more"), Err(TreeFull));
    assert_eq!(tree.extend(&Scalar, 4, b"more"), Err(TreeFull));
    assert_eq!((tree.len(), tree.root()), (7, crate::reference::root(&records)));

    let mut part = Tree::<3>::new();
    part.push(&records[0]).unwrap();
    assert_eq!(part.extend(&Scalar, 4, &records.concat()), Err(TreeFull));
    assert_eq!((part.len(), part.root()), (1, tree::leaf(&records[0])));
}

#[test]
fn a_tree_takes_at_most_33_bytes_per_height_plus_256() {
    assert!(size_of::<Tree<1>>() <= 33 + 256);
    assert!(size_of::<Tree<20>>() <= 33 * 20 + 256);
    assert!(size_of::<Tree<32>>() <= 33 * 32 + 256);
}

/// Returns the folder of test vectors that are not in the repository. Unpacks them once per run of
/// the tests. Returns `None` if they are absent.
fn vectors() -> Option<&'static Path> {
    static UNPACKED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let unpack = || {
        let folder = external_data("vectors_merkle")?;
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vectors_merkle");
        std::fs::create_dir_all(&out).unwrap();
        for archive in
            ["tessera_tlog_tiles_testdata.tar.xz", "transparency_dev_merkle_testdata.tar.xz"]
        {
            let status = Command::new("tar")
                .arg("-xJf")
                .arg(folder.join(archive))
                .arg("-C")
                .arg(&out)
                .status()
                .unwrap();
            assert!(status.success(), "tar -xJf {archive} failed");
        }
        Some(out.join("testdata"))
    };
    UNPACKED.get_or_init(unpack).as_deref()
}

fn base64(text: &str) -> Vec<u8> {
    let digits = text.bytes().filter(|byte| *byte != b'=').map(|byte| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("not base64: {other}"),
    });
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// The probes in `testdata/inclusion` of transparency-dev/merkle. Each probe states whether the
/// proof must be rejected.
#[test]
fn agrees_with_external_inclusion_probes() {
    let Some(vectors) = vectors() else { return };
    let mut probes = Vec::new();
    files(&vectors.join("inclusion"), &mut probes);
    let (mut good, mut bad) = (0, 0);
    for file in probes {
        let probe: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let bytes = |field: &str| probe[field].as_str().map(base64).unwrap_or_default();
        let mut path = Vec::new();
        let mut lengths_right = true;
        for digest in probe["proof"].as_array().into_iter().flatten() {
            let digest = base64(digest.as_str().unwrap());
            lengths_right &= digest.len() == 32;
            path.extend(digest);
        }
        let accepted = lengths_right
            && <[u8; 32]>::try_from(bytes("leafHash")).is_ok_and(|leaf| {
                let (seq, n) =
                    (probe["leafIdx"].as_u64().unwrap(), probe["treeSize"].as_u64().unwrap());
                tree::path_root(Digest(leaf), Sequence(seq), n, &path)
                    .is_ok_and(|root| root.0[..] == bytes("root"))
            });
        assert_eq!(accepted, !probe["wantErr"].as_bool().unwrap(), "{}", file.display());
        if accepted { good += 1 } else { bad += 1 }
    }
    assert!(good >= 6 && bad >= 80, "{good} good, {bad} bad probes");
}

/// The log in `testdata/log` of transparency-dev/tessera: its entries, its leaf hashes, and the
/// root that it signed at each size.
#[test]
fn agrees_with_the_checkpoints_of_an_external_log() {
    let Some(vectors) = vectors() else { return };
    let log = vectors.join("log");
    let mut tree = Tree::<8>::new();
    for size in 0..=15_u64 {
        if size > 0 {
            let Ok(bundle) = std::fs::read(log.join(format!("tile/entries/000.p/{size}"))) else {
                continue;
            };
            let (mut rest, mut entries) = (&bundle[..], Vec::new());
            while let Some((length, after)) = rest.split_first_chunk::<2>() {
                let (entry, after) = after.split_at(u16::from_be_bytes(*length).into());
                entries.push(entry);
                rest = after;
            }
            assert_eq!(entries.len() as u64, size);
            let hashes: Vec<u8> = entries.iter().flat_map(|entry| tree::leaf(entry).0).collect();
            assert_eq!(hashes, std::fs::read(log.join(format!("tile/0/000.p/{size}"))).unwrap());
            for entry in &entries[tree.len() as usize..] {
                tree.push(entry).unwrap();
            }
        }
        let checkpoint = std::fs::read_to_string(log.join(format!("checkpoint.{size}"))).unwrap();
        let mut lines = checkpoint.lines().skip(1);
        assert_eq!(lines.next().unwrap(), size.to_string());
        assert_eq!(tree.root().0[..], base64(lines.next().unwrap()), "checkpoint.{size}");
    }
    assert!(tree.len() >= 12);
}
