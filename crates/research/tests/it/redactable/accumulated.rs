//! MPPS14 with accumulators, against a slow model of moves.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use moteseal_core::signature::{self, Algorithm};
use moteseal_research::redactable::document::Document;
use moteseal_research::redactable::moduli;
use moteseal_research::redactable::mpps14_accumulated::{
    Identifier, MAX_NODES, Node, Refused, SecretKey, Signed,
};

use super::{orders, rng, subsets};

type Key = SecretKey<signature::SecretKey>;

fn signer() -> signature::SecretKey {
    signature::SecretKey::from_seed(Algorithm::Ed25519, &[3; 32]).unwrap()
}

static KEY: LazyLock<Key> =
    LazyLock::new(|| SecretKey::generate(super::trapdoor(), signer(), &mut rng(2)));

fn node(name: &str, moves: &[usize], children: Vec<Document>) -> Document {
    Document::new(name, children).movable(moves)
}

/// A tree in which some subtrees may move: `d` by one node or by two, `c` by one, `e` by two.
fn document() -> Document {
    let d = node("d", &[1, 2], vec![]);
    let e = node("e", &[2], vec![]);
    let c = node("c", &[1], vec![d, e]);
    let f = node("f", &[], vec![]);
    node("a", &[], vec![node("b", &[], vec![c, f]), node("g", &[], vec![])])
}

/// All nodes but the root.
const NAMES: [&str; 6] = ["b", "c", "d", "e", "f", "g"];

static SIGNED: LazyLock<Signed> = LazyLock::new(|| KEY.sign(&document(), &mut rng(3)).unwrap());

/// The shown nodes, and the node above each.
type Shown = BTreeMap<String, String>;

fn name(node: &Node) -> String {
    String::from_utf8(node.content.clone()).unwrap()
}

fn shown(node: &Node, into: &mut Shown) {
    for (_, child) in &node.children {
        assert_eq!(into.insert(name(child), name(node)), None);
        shown(child, into);
    }
}

fn shown_of(signed: &Signed) -> Shown {
    let mut nodes = Shown::new();
    shown(&signed.root, &mut nodes);
    nodes
}

/// The model: a node stays if it is not redacted, and its parent or an ancestor to which it may move
/// stays. It is then below the nearest of these.
fn model(document: &Document, redacted: &[&str]) -> Shown {
    fn walk(node: &Document, above: &mut Vec<(String, bool)>, redacted: &[&str], into: &mut Shown) {
        let name = String::from_utf8(node.content.clone()).unwrap();
        let mut places = node.moves.clone();
        places.push(0);
        places.sort_unstable();
        let nearest = places.into_iter().find_map(|by| {
            let (name, stays) = &above[above.len() - 1 - by];
            stays.then(|| name.clone())
        });
        let stays = nearest.is_some() && !redacted.contains(&&*name);
        if let Some(parent) = nearest.filter(|_| stays) {
            into.insert(name.clone(), parent);
        }
        above.push((name, stays));
        for child in &node.children {
            walk(child, above, redacted, into);
        }
        above.pop();
    }
    let mut nodes = Shown::new();
    let mut above = vec![(String::from_utf8(document.content.clone()).unwrap(), true)];
    for child in &document.children {
        walk(child, &mut above, redacted, &mut nodes);
    }
    nodes
}

/// Returns the identifier of a node by its content.
fn id(signed: &Signed, content: &str) -> Option<Identifier> {
    fn find(node: &Node, content: &str) -> Option<Identifier> {
        if node.content == content.as_bytes() {
            return Some(node.id);
        }
        node.children.iter().find_map(|(_, child)| find(child, content))
    }
    find(&signed.root, content)
}

/// Redacts in this order. A node that left with another one cannot be redacted any more.
fn redact(signed: &Signed, order: &[&str]) -> Signed {
    let mut less = signed.clone();
    for content in order {
        if let Some(id) = id(&less, content) {
            less.redact(&id).unwrap();
        }
    }
    less
}

#[test]
fn every_set_of_redactions_in_every_order_verifies_and_shows_what_the_model_shows() {
    for redacted in subsets(&NAMES) {
        let orders = if redacted.len() < 4 { orders(&redacted) } else { vec![redacted.clone()] };
        let mut results = orders.into_iter().map(|order| redact(&SIGNED, &order));
        let first = results.next().unwrap();
        assert!(results.all(|other| other == first));
        let shown = first.shown();
        assert_eq!(KEY.public().verify(&shown), Ok(()), "{redacted:?}");
        assert_eq!(shown_of(&shown), model(&document(), &redacted), "{redacted:?}");
    }
}

#[test]
fn redacting_an_inner_node_keeps_what_may_move() {
    let whole = shown_of(&SIGNED.shown());
    assert_eq!((&*whole["d"], &*whole["e"]), ("c", "c"));
    let without_c = shown_of(&redact(&SIGNED, &["c"]).shown());
    assert_eq!((&*without_c["d"], &*without_c["e"]), ("b", "a"));
    let without_b = shown_of(&redact(&SIGNED, &["b"]).shown());
    assert_eq!((&*without_b["c"], &*without_b["d"]), ("a", "c"));
    assert!(!without_b.contains_key("f"));
}

#[test]
fn an_original_and_its_copy_together_are_refused() {
    // The signed tree has all copies.
    assert_eq!(KEY.public().verify(&SIGNED), Err(Refused::Twice));
    // One redacted form shows an original, the other one its copy.
    let original = SIGNED.shown();
    let copy = redact(&SIGNED, &["c"]).shown();
    assert_eq!(KEY.public().verify(&original), Ok(()));
    assert_eq!(KEY.public().verify(&copy), Ok(()));
    assert_eq!(KEY.public().merge(&original, &copy), Err(Refused::Twice));
}

#[test]
fn every_pair_of_redacted_trees_without_moves_merges_to_its_union() {
    let document =
        node("a", &[], vec![node("b", &[], vec![node("c", &[], vec![])]), node("d", &[], vec![])]);
    let signed = KEY.sign(&document, &mut rng(4)).unwrap();
    let forms: Vec<_> =
        subsets(&["b", "c", "d"]).into_iter().map(|set| redact(&signed, &set)).collect();
    for one in &forms {
        for other in &forms {
            let merged = KEY.public().merge(one, other).unwrap();
            let mut union = shown_of(one);
            union.extend(shown_of(other));
            assert_eq!(shown_of(&merged), union);
            assert_eq!(KEY.public().verify(&merged), Ok(()));
        }
    }
    let other = KEY.sign(&document, &mut rng(5)).unwrap();
    assert_eq!(KEY.public().merge(&signed, &other), Err(Refused::OtherOriginal));
}

#[test]
fn redactions_leave_no_trace_in_the_length() {
    // Of a node with one shown child, nobody sees whether it had more.
    let one = node("a", &[], vec![node("b", &[], vec![])]);
    let three = node(
        "a",
        &[],
        vec![node("b", &[], vec![]), node("c", &[], vec![]), node("d", &[], vec![])],
    );
    let one = KEY.sign(&one, &mut rng(4)).unwrap();
    let three = redact(&KEY.sign(&three, &mut rng(4)).unwrap(), &["c", "d"]);
    assert_eq!(one.to_bytes().len(), three.to_bytes().len());
    let length = super::trapdoor().modulus().length();
    let nodes = 2 * (16 + 16 + 4 + 1 + 2 * length + 4) + length;
    assert_eq!(one.to_bytes().len(), nodes + 64);
}

#[test]
fn changed_trees_are_refused_by_name() {
    let public = KEY.public();
    let refused = |change: &dyn Fn(&mut Node)| {
        let mut changed = SIGNED.shown();
        change(&mut changed.root);
        public.verify(&changed).unwrap_err()
    };
    assert_eq!(refused(&|root| root.content.push(0)), Refused::Content);
    assert_eq!(refused(&|root| root.nonce[0] ^= 1), Refused::Content);
    assert_eq!(refused(&|root| root.id[0] ^= 1), Refused::Content);
    assert_eq!(refused(&|root| root.children[0].0 = root.children[1].0.clone()), Refused::Child);
    assert_eq!(
        refused(&|root| root.content_witness = root.children[0].0.clone()),
        Refused::Content
    );
    assert_eq!(refused(&|root| root.digest = root.content_witness.clone()), Refused::Signature);
    assert_eq!(
        refused(&|root| {
            let [(_, b), (_, g)] = &mut root.children[..] else { panic!("two children") };
            std::mem::swap(b, g);
        }),
        Refused::Child
    );
    // A node of another tree of the same signer, with its witness.
    let other = KEY.sign(&document(), &mut rng(9)).unwrap().shown();
    assert_eq!(refused(&|root| root.children[1] = other.root.children[1].clone()), Refused::Child);
    // A child twice.
    assert_eq!(refused(&|root| root.children.push(root.children[1].clone())), Refused::Twice);
    // A number modulo another modulus.
    let long = moduli::d5_3().unwrap().modulus().random_square(&mut rng(6));
    assert_eq!(refused(&|root| root.children[1].0 = long.clone()), Refused::Number);
    assert_eq!(refused(&|root| root.children[1].1.digest = long.clone()), Refused::Number);
    assert_eq!(refused(&|root| root.content_witness = long.clone()), Refused::Number);
}

#[test]
fn wrong_documents_and_redactions_are_refused_by_name() {
    let sign = |document: &Document| KEY.sign(document, &mut rng(1)).map(|_| ());
    let below =
        |moves: &[usize]| node("a", &[], vec![node("b", &[], vec![node("c", moves, vec![])])]);
    assert_eq!(sign(&below(&[1])), Ok(()));
    assert_eq!(sign(&below(&[2])), Err(Refused::Moves));
    assert_eq!(sign(&below(&[0])), Err(Refused::Moves));
    assert_eq!(sign(&node("a", &[1], vec![])), Err(Refused::Moves));
    let wide = node("a", &[], vec![node("b", &[], vec![]); MAX_NODES]);
    assert_eq!(sign(&wide), Err(Refused::TooLarge));
    // The copies of copies double with each node of a chain.
    let mut chain = node("z", &[1], vec![]);
    for _ in 0..40 {
        chain = node("y", &[1], vec![chain]);
    }
    assert_eq!(sign(&node("a", &[], vec![node("b", &[], vec![chain])])), Err(Refused::TooLarge));

    let mut signed = SIGNED.shown();
    let root = signed.root.id;
    assert_eq!(signed.redact(&root), Err(Refused::Root));
    assert_eq!(signed.redact(&[0; 16]), Err(Refused::NoSuchNode));
}
