//! MPPS14 with accumulators (de Meer, Pöhls, Posegga and Samelin 2014; Benaloh and de Mare 1993; D5.3,
//! section 2.3.3.2): a tree whose redacted parts leave no trace, and whose inner nodes can be redacted
//! where the signer allows it.
//!
//! A node `x` has a digest `d_x`, which accumulates its content, the digests of its children and a
//! random value. `n` is an RSA modulus and `g` a square modulo `n`, and `H` is that of
//! [`accumulator`](super::accumulator):
//!
//! ```text
//! d_x = g^(H(00 || nonce || id || content) * H(01 || d_y) for each child y * H(02 || random)) mod n
//! ```
//!
//! A witness is the same power without the factor of its value. The signer signs `d` of the root. A
//! shown node has its content, its digest, and a witness for the content and for each shown child. The
//! number of redacted children is hidden, because all digests have the same length.
//!
//! **Inner nodes.** If the subtree of `y` may move up to an ancestor `u`, the signer also makes a copy of
//! it, with fresh nonces, a child of `u`. Redacting the parent of `y` drops the original with its parent,
//! and keeps the copy. The copy has the same identifier, so that [`PublicKey::verify`] refuses a tree
//! that shows both. A shown tree does not reveal whether a subtree is an original.
//!
//! `n` and `g` are fixed and `d` of the root is signed, so the forgery against D5.3's form of PS14
//! ([`forgery`](super::forgery)) does not apply. The signer knows the factors of `n` and computes
//! witnesses as roots. All redacted forms of a tree have the same signature, which links them.

use std::collections::BTreeSet;

use moteseal_core::named_errors;
use moteseal_core::signature::SignError;
use rand_core::CryptoRng;

use super::accumulator::{Element, Exponent, Modulus, Trapdoor};
use super::document::Document;
use super::encoding::{put, put_number};
use super::signing::{SigningKey, VerifyingKey};

/// The length of nonces and identifiers in bytes.
pub const NONCE: usize = 16;
/// The largest number of nodes of a signed tree, copies included. The number of copies can grow
/// exponentially with the depth of a tree.
pub const MAX_NODES: usize = 4096;
/// What a signature begins with, so that it is no signature of another scheme.
const CONTEXT: &[u8] = b"moteseal-research/mpps14-accumulated\0";

named_errors! {
    /// Why a tree is not signed, not redacted or not accepted.
    Refused {
        /// A subtree may move by no node, or above the root.
        Moves => "a subtree may move by 0 nodes or above the root; allow moves below the root only",
        /// The tree has too many nodes with the copies of its movable subtrees.
        TooLarge => "the tree has more than 4,096 nodes with its copies; allow fewer moves",
        /// The tree has no node with this identifier.
        NoSuchNode => "the tree has no node with this identifier",
        /// The root cannot be redacted.
        Root => "the root cannot be redacted",
        /// A digest or witness is not between 2 and n - 2, or has a factor in common with the modulus.
        Number => "a number of the tree is not between 2 and n - 2, or has a factor of the modulus",
        /// The witness of a content is not valid.
        Content => "the witness of a content is not valid",
        /// The witness of a child is not valid.
        Child => "the witness of a child is not valid",
        /// A node occurs twice: an original and its copy, or two copies.
        Twice => "the tree shows a subtree and its copy; show one of them",
        /// The signature is not valid.
        Signature => "the signature of the tree is not valid",
        /// Two trees cannot be merged because they are not redacted forms of one tree.
        OtherOriginal => "the trees are not from one original; merge trees with the same signature",
        /// An exponent has no inverse. This is negligible, and reveals a factor of the modulus.
        NoRoot => "the key has no root for this value; use a longer modulus",
        /// The signer failed.
        Signer(error: SignError) => from,
    }
}

/// An identifier, which a node and its copies share.
pub type Identifier = [u8; NONCE];

/// A shown node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The identifier.
    pub id: Identifier,
    /// The nonce of the content.
    pub nonce: [u8; NONCE],
    /// The content.
    pub content: Vec<u8>,
    /// The witness of the content in the digest.
    pub content_witness: Element,
    /// The digest `d`.
    pub digest: Element,
    /// The shown children with their witnesses in the digest.
    pub children: Vec<(Element, Node)>,
}

impl Node {
    /// Removes all nodes with an identifier from the subtrees below. Returns whether there was one.
    fn remove(&mut self, id: &Identifier) -> bool {
        let before = self.children.len();
        self.children.retain(|(_, child)| child.id != *id);
        let mut removed = self.children.len() < before;
        for (_, child) in &mut self.children {
            removed |= child.remove(id);
        }
        removed
    }

    /// Keeps the first node with each identifier. Originals precede copies, and copies are in the order
    /// of the document.
    fn keep_first(&mut self, seen: &mut BTreeSet<Identifier>) {
        seen.insert(self.id);
        self.children.retain_mut(|(_, child)| {
            let is_first = !seen.contains(&child.id);
            if is_first {
                child.keep_first(seen);
            }
            is_first
        });
    }

    /// Shows what either of two nodes shows. Both must have the same digest.
    fn join(&mut self, other: &Self) {
        for (witness, other) in &other.children {
            match self.children.iter_mut().find(|(_, child)| child.digest == other.digest) {
                Some((_, child)) => child.join(other),
                None => self.children.push((witness.clone(), other.clone())),
            }
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.id);
        out.extend(self.nonce);
        put(out, &self.content);
        out.extend(self.content_witness.as_bytes());
        out.extend(self.digest.as_bytes());
        put_number(out, self.children.len());
        for (witness, child) in &self.children {
            out.extend(witness.as_bytes());
            child.put(out);
        }
    }
}

/// A signed tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The root.
    pub root: Node,
    /// The signature of the root's digest.
    pub signature: Vec<u8>,
}

impl Signed {
    /// Redacts a node: removes it and its copies, with their subtrees. Subtrees of which the tree has a
    /// copy above the node remain. No key is necessary.
    ///
    /// # Errors
    /// `Root` or `NoSuchNode`.
    pub fn redact(&mut self, id: &Identifier) -> Result<(), Refused> {
        if self.root.id == *id {
            return Err(Refused::Root);
        }
        if self.root.remove(id) { Ok(()) } else { Err(Refused::NoSuchNode) }
    }

    /// Returns the tree without copies of what it shows. [`PublicKey::verify`] accepts only this form.
    /// Its receiver cannot redact inner nodes any more and keep what is below them.
    #[must_use]
    pub fn shown(&self) -> Self {
        let mut shown = self.clone();
        shown.root.keep_first(&mut BTreeSet::new());
        shown
    }

    /// Returns the bytes of a compact encoding: for each node, its identifier, its nonce, its content
    /// after its length, the witness of the content, the digest, and its children after their
    /// witnesses; then the signature.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.root.put(&mut out);
        out.extend(&self.signature);
        out
    }
}

/// A public key.
#[derive(Clone, Debug, PartialEq)]
pub struct PublicKey<P> {
    modulus: Modulus,
    key: P,
}

impl<P: VerifyingKey> PublicKey<P> {
    /// Verifies a tree.
    ///
    /// # Errors
    /// `Twice`, `Number`, `Content`, `Child` or `Signature`.
    pub fn verify(&self, signed: &Signed) -> Result<(), Refused> {
        let text = [CONTEXT, signed.root.digest.as_bytes()].concat();
        if !self.key.verifies(&text, &signed.signature) {
            return Err(Refused::Signature);
        }
        if !self.modulus.accepts(&signed.root.digest) {
            return Err(Refused::Number);
        }
        self.verify_node(&signed.root, &mut BTreeSet::new())
    }

    /// Verifies a node whose digest is an element and authentic.
    fn verify_node(&self, node: &Node, seen: &mut BTreeSet<Identifier>) -> Result<(), Refused> {
        let modulus = &self.modulus;
        if !seen.insert(node.id) {
            return Err(Refused::Twice);
        }
        if !modulus.accepts(&node.content_witness) {
            return Err(Refused::Number);
        }
        let content = of_content(modulus, &node.nonce, &node.id, &node.content);
        if !modulus.is_witness(&node.content_witness, &content, &node.digest) {
            return Err(Refused::Content);
        }
        for (witness, child) in &node.children {
            if !modulus.accepts(witness) || !modulus.accepts(&child.digest) {
                return Err(Refused::Number);
            }
            if !modulus.is_witness(witness, &of_child(modulus, &child.digest), &node.digest) {
                return Err(Refused::Child);
            }
            self.verify_node(child, seen)?;
        }
        Ok(())
    }

    /// Verifies two redacted forms of one tree, and shows what either shows.
    ///
    /// # Errors
    /// `OtherOriginal`, `Twice` if one form shows a subtree and the other one its copy, and the errors
    /// of [`verify`](Self::verify).
    pub fn merge(&self, one: &Signed, other: &Signed) -> Result<Signed, Refused> {
        if one.root.digest != other.root.digest {
            return Err(Refused::OtherOriginal);
        }
        self.verify(one)?;
        self.verify(other)?;
        let mut merged = one.clone();
        merged.root.join(&other.root);
        let mut seen = BTreeSet::new();
        if is_unique(&merged.root, &mut seen) { Ok(merged) } else { Err(Refused::Twice) }
    }
}

fn is_unique(node: &Node, seen: &mut BTreeSet<Identifier>) -> bool {
    seen.insert(node.id) && node.children.iter().all(|(_, child)| is_unique(child, seen))
}

fn of_content(modulus: &Modulus, nonce: &[u8], id: &Identifier, content: &[u8]) -> Exponent {
    modulus.exponent(&[&[0], nonce, id, content])
}

fn of_child(modulus: &Modulus, digest: &Element) -> Exponent {
    modulus.exponent(&[&[1], digest.as_bytes()])
}

/// A secret key: the factors of the modulus, the base `g` and the key of an ordinary signature.
#[derive(Clone, Debug)]
pub struct SecretKey<K> {
    trapdoor: Trapdoor,
    base: Element,
    key: K,
}

impl<K: SigningKey> SecretKey<K> {
    /// Generates the base of a key whose modulus has these factors.
    pub fn generate(trapdoor: Trapdoor, key: K, rng: &mut impl CryptoRng) -> Self {
        let base = trapdoor.modulus().random_square(rng);
        Self { trapdoor, base, key }
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> PublicKey<K::Public> {
        PublicKey { modulus: self.trapdoor.modulus().clone(), key: self.key.public() }
    }

    /// Signs a tree. The result has copies of all movable subtrees: [`Signed::shown`] leaves them out.
    ///
    /// # Errors
    /// `Moves`, `TooLarge`, `NoRoot` or `Signer`.
    pub fn sign(&self, document: &Document, rng: &mut impl CryptoRng) -> Result<Signed, Refused> {
        let (plan, rising) = Plan::new(document, rng)?;
        if !rising.is_empty() || !document.moves.is_empty() {
            return Err(Refused::Moves);
        }
        let root = self.node(&plan, rng)?;
        let signature = self.key.sign(&[CONTEXT, root.digest.as_bytes()].concat())?;
        Ok(Signed { root, signature })
    }

    fn node(&self, plan: &Plan<'_>, rng: &mut impl CryptoRng) -> Result<Node, Refused> {
        let modulus = self.trapdoor.modulus();
        let children = plan
            .children
            .iter()
            .map(|child| self.node(child, rng))
            .collect::<Result<Vec<_>, _>>()?;
        let (nonce, blinding) = (random(rng), random(rng));
        let content = of_content(modulus, &nonce, &plan.id, plan.content);
        let exponents: Vec<_> =
            children.iter().map(|child| of_child(modulus, &child.digest)).collect();
        let blinding = modulus.exponent(&[&[2], &blinding]);
        let digest = [&content, &blinding]
            .into_iter()
            .chain(&exponents)
            .try_fold(self.base.clone(), |power, exponent| modulus.power(&power, exponent))
            .ok_or(Refused::NoRoot)?;
        let root =
            |exponent: &Exponent| self.trapdoor.root(&digest, exponent).ok_or(Refused::NoRoot);
        let children = exponents
            .iter()
            .zip(children)
            .map(|(exponent, child)| Ok((root(exponent)?, child)))
            .collect::<Result<_, Refused>>()?;
        Ok(Node {
            id: plan.id,
            nonce,
            content: plan.content.to_vec(),
            content_witness: root(&content)?,
            digest,
            children,
        })
    }
}

fn random(rng: &mut impl CryptoRng) -> [u8; NONCE] {
    let mut bytes = [0; NONCE];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// A node to sign, with the copies of movable subtrees after its own children.
#[derive(Clone)]
struct Plan<'d> {
    id: Identifier,
    content: &'d [u8],
    children: Vec<Plan<'d>>,
    /// The number of nodes of the subtree.
    nodes: usize,
}

/// A copy, and by how many nodes it still has to move up.
type Rising<'d> = (usize, Plan<'d>);

impl<'d> Plan<'d> {
    /// Returns the plan of a node, and the copies that belong to nodes above it.
    fn new(
        document: &'d Document,
        rng: &mut impl CryptoRng,
    ) -> Result<(Self, Vec<Rising<'d>>), Refused> {
        let mut plan =
            Plan { id: random(rng), content: &document.content, children: Vec::new(), nodes: 1 };
        let (mut copies, mut rising) = (Vec::new(), Vec::new());
        let mut held = 0;
        for child in &document.children {
            let (child_plan, from_child) = Self::new(child, rng)?;
            // A subtree precedes the copies of what is below it, so that the first copy of a node is
            // the one below its nearest possible ancestor.
            for by in &child.moves {
                if *by == 0 {
                    return Err(Refused::Moves);
                }
                held += child_plan.nodes;
                rising.push((*by, child_plan.clone()));
                if held > MAX_NODES {
                    return Err(Refused::TooLarge);
                }
            }
            for (by, copy) in from_child {
                if by == 1 {
                    copies.push(copy);
                } else {
                    held += copy.nodes;
                    rising.push((by - 1, copy));
                }
            }
            plan.nodes += child_plan.nodes;
            plan.children.push(child_plan);
        }
        plan.nodes += copies.iter().map(|copy| copy.nodes).sum::<usize>();
        plan.children.extend(copies);
        if plan.nodes + held > MAX_NODES { Err(Refused::TooLarge) } else { Ok((plan, rising)) }
    }
}
