//! MPPS14 with hashes, against a slow model of the tree.

use std::collections::BTreeSet;

use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_research::redactable::document::Document;
use moteseal_research::redactable::mpps14_hashed::{Node, Refused, Signed, Subtree, sign};
use moteseal_research::redactable::signing::SigningKey as _;
use sha2::{Digest as _, Sha256};

use super::{orders, rng, subsets};

fn key() -> SecretKey {
    SecretKey::from_seed(Algorithm::Esp256, &[3; 32]).unwrap()
}

fn leaf(content: &str) -> Document {
    Document::new(content, Vec::new())
}

/// A reading with two levels below its root.
fn document() -> Document {
    let temperature = Document::new("temperature", vec![leaf("27,"), leaf("4556")]);
    let place = Document::new("place", vec![leaf("kitchen")]);
    Document::new("reading", vec![temperature, place])
}

/// The paths of all nodes but the root.
const PATHS: [&[usize]; 5] = [&[0], &[0, 0], &[0, 1], &[1], &[1, 0]];

fn signed() -> Signed {
    sign(&key(), &document(), &mut rng(1)).unwrap()
}

/// The formula of D5.3 over complete trees, with the salts of a signed tree.
fn merkle_hash(node: &Node) -> Vec<u8> {
    let content = Sha256::digest([&node.salt[..], &node.content].concat());
    let mut text = content.to_vec();
    for child in &node.children {
        let Subtree::Shown(child) = child else { panic!("the tree is complete") };
        text.extend(merkle_hash(child));
    }
    Sha256::digest(text).to_vec()
}

/// Returns the paths of the shown nodes but the root.
fn shown(node: &Node, at: &[usize], into: &mut BTreeSet<Vec<usize>>) {
    for (index, child) in node.children.iter().enumerate() {
        if let Subtree::Shown(child) = child {
            let path = [at, &[index]].concat();
            into.insert(path.clone());
            shown(child, &path, into);
        }
    }
}

fn shown_of(signed: &Signed) -> BTreeSet<Vec<usize>> {
    let mut paths = BTreeSet::new();
    shown(&signed.root, &[], &mut paths);
    paths
}

/// The model: what is shown after redactions, as a set of paths.
fn model(redacted: &[&[usize]]) -> BTreeSet<Vec<usize>> {
    let is_shown = |path: &&&[usize]| !redacted.iter().any(|other| path.starts_with(other));
    PATHS.iter().filter(is_shown).map(|path| path.to_vec()).collect()
}

/// Redacts in this order. A node of a redacted subtree cannot be redacted any more.
fn redact(signed: &Signed, order: &[&[usize]]) -> Signed {
    let mut less = signed.clone();
    for path in order {
        match less.redact(path) {
            Ok(()) | Err(Refused::NoSuchNode) => {}
            Err(other) => panic!("{other}"),
        }
        assert_eq!(less.verify(&key().public()), Ok(()));
    }
    less
}

#[test]
fn the_hash_of_the_root_is_the_formula_of_d5_3() {
    let signed = signed();
    assert_eq!(signed.root.hash().0.to_vec(), merkle_hash(&signed.root));
    // Salts are fresh.
    let other = sign(&key(), &document(), &mut rng(2)).unwrap();
    assert_ne!(signed.root.hash(), other.root.hash());
}

#[test]
fn every_set_of_redactions_in_every_order_verifies_and_shows_the_rest() {
    let signed = signed();
    for redacted in subsets(&PATHS) {
        let mut results = orders(&redacted).into_iter().map(|order| redact(&signed, &order));
        let first = results.next().unwrap();
        assert_eq!(shown_of(&first), model(&redacted));
        assert_eq!(first.root.hash(), signed.root.hash());
        assert!(results.all(|other| other == first));
    }
}

#[test]
fn every_pair_of_redacted_trees_merges_to_its_union() {
    let signed = signed();
    let sets: Vec<_> = subsets(&PATHS).into_iter().map(|set| redact(&signed, &set)).collect();
    for one in &sets {
        for other in &sets {
            let merged = one.merge(other, &key().public()).unwrap();
            let union: BTreeSet<_> = shown_of(one).union(&shown_of(other)).cloned().collect();
            assert_eq!(shown_of(&merged), union);
            assert_eq!(merged.verify(&key().public()), Ok(()));
        }
    }
    let other = sign(&key(), &document(), &mut rng(2)).unwrap();
    assert_eq!(signed.merge(&other, &key().public()), Err(Refused::OtherOriginal));
}

#[test]
fn changed_trees_are_refused() {
    let public = key().public();
    let refused = |change: &dyn Fn(&mut Signed)| {
        let mut changed = signed();
        change(&mut changed);
        changed.verify(&public)
    };
    let wrong = Err(Refused::Signature);
    assert_eq!(refused(&|_| ()), Ok(()));
    assert_eq!(refused(&|signed| signed.root.content.push(0)), wrong);
    assert_eq!(refused(&|signed| signed.root.salt[0] ^= 1), wrong);
    assert_eq!(refused(&|signed| signed.root.children.swap(0, 1)), wrong);
    assert_eq!(refused(&|signed| drop(signed.root.children.pop())), wrong);
    assert_eq!(refused(&|signed| signed.signature[0] ^= 1), wrong);
    // A byte of the content moves to the salt, or back.
    assert_eq!(refused(&|signed| signed.root.content.insert(0, signed.root.salt[15])), wrong);
    // Another tree's subtree.
    let other = sign(&key(), &document(), &mut rng(2)).unwrap();
    assert_eq!(refused(&|signed| signed.root.children[0] = other.root.children[0].clone()), wrong);
    // The root of a subtree is no root of a tree.
    assert_eq!(
        refused(&|signed| {
            let Subtree::Shown(child) = signed.root.children[0].clone() else { panic!() };
            signed.root = child;
        }),
        wrong
    );
    // A signature of the same hash for another purpose.
    assert_eq!(
        refused(&|signed| signed.signature = key().sign(&signed.root.hash().0).unwrap()),
        wrong
    );
}

#[test]
fn wrong_paths_and_movable_subtrees_are_refused_by_name() {
    let mut signed = signed();
    assert_eq!(signed.redact(&[]), Err(Refused::Root));
    assert_eq!(signed.redact(&[2]), Err(Refused::NoSuchNode));
    assert_eq!(signed.redact(&[0, 0, 0]), Err(Refused::NoSuchNode));
    let movable = Document::new("root", vec![Document::new("x", vec![leaf("y").movable([1])])]);
    assert_eq!(sign(&key(), &movable, &mut rng(1)), Err(Refused::Moves));
}

#[test]
fn a_redacted_subtree_takes_the_bytes_of_a_hash() {
    let whole = signed();
    let mut less = whole.clone();
    less.redact(&[0]).unwrap();
    // Three nodes with a salt, the length of their content and the number of their children, of which
    // two have a mark for their parent.
    let nodes = 3 * (16 + 4 + 4) + "temperature27,4556".len() + 2;
    assert_eq!(whole.to_bytes().len() - less.to_bytes().len(), nodes - 32);
}
