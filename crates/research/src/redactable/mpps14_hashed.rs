//! MPPS14 with hashes only: D5.3's Merkle tree over a tree of contents (section 2.3.3.2), with a salt
//! for each node.
//!
//! ```text
//! MH(x) = H(H(salt || c_x) || MH(x_1) || .. || MH(x_n))
//! ```
//!
//! `c_x` is the content of a node, `x_1` to `x_n` are its children, and `H` is SHA-256. The signer signs
//! `MH` of the root. D5.3's formula has no salt; without one, anyone can guess a redacted content and
//! check the guess. With a salt of 16 bytes before each content, a redacted subtree is hidden, and its
//! hash takes its place. The place of the hash shows that a subtree is absent, and all redacted forms
//! of a tree have the same signature, which links them.

use moteseal_core::Digest;
use moteseal_core::named_errors;
use moteseal_core::signature::SignError;
use rand_core::CryptoRng;

use super::document::Document;
use super::encoding::{put, put_number};
use super::signing::{SigningKey, VerifyingKey};

/// The length of a salt in bytes.
pub const SALT: usize = 16;
/// What a signature begins with, so that it is no signature of another scheme.
const CONTEXT: &[u8] = b"moteseal-research/mpps14-hashed\0";

named_errors! {
    /// Why a tree is not signed, not redacted or not accepted.
    Refused {
        /// The document allows moves, which a Merkle tree cannot have.
        Moves => "a subtree is movable; sign the document with accumulators",
        /// There is no node at this path.
        NoSuchNode => "the tree has no node at this path",
        /// The root cannot be redacted.
        Root => "the root cannot be redacted",
        /// The signature is not valid.
        Signature => "the signature of the tree is not valid",
        /// Two trees cannot be merged because they are not redacted forms of one tree.
        OtherOriginal => "the trees are not from one original; merge trees with the same signature",
        /// The signer failed.
        Signer(error: SignError) => from,
    }
}

/// A subtree: shown, or its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subtree {
    /// A node that is shown.
    Shown(Node),
    /// The hash `MH` of a redacted subtree.
    Redacted(Digest),
}

/// A node that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The salt of the content.
    pub salt: [u8; SALT],
    /// The content.
    pub content: Vec<u8>,
    /// The subtrees below, in order.
    pub children: Vec<Subtree>,
}

impl Node {
    fn new(document: &Document, rng: &mut impl CryptoRng) -> Result<Self, Refused> {
        if !document.moves.is_empty() {
            return Err(Refused::Moves);
        }
        let mut salt = [0; SALT];
        rng.fill_bytes(&mut salt);
        let children = document
            .children
            .iter()
            .map(|child| Self::new(child, rng).map(Subtree::Shown))
            .collect::<Result<_, _>>()?;
        Ok(Self { salt, content: document.content.clone(), children })
    }

    /// Returns `MH` of the node.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let mut text = Digest::of(&[&self.salt, &self.content]).0.to_vec();
        for child in &self.children {
            text.extend(child.hash().0);
        }
        Digest::of(&[&text])
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.salt);
        put(out, &self.content);
        put_number(out, self.children.len());
        for child in &self.children {
            match child {
                Subtree::Shown(node) => {
                    out.push(1);
                    node.put(out);
                }
                Subtree::Redacted(hash) => {
                    out.push(0);
                    out.extend(hash.0);
                }
            }
        }
    }

    /// Shows what either of two nodes shows. Both must have the same hash.
    fn join(&mut self, other: &Self) {
        for (child, other) in self.children.iter_mut().zip(&other.children) {
            match child {
                Subtree::Redacted(_) => child.clone_from(other),
                Subtree::Shown(child) => {
                    if let Subtree::Shown(other) = other {
                        child.join(other);
                    }
                }
            }
        }
    }
}

impl Subtree {
    fn hash(&self) -> Digest {
        match self {
            Self::Shown(node) => node.hash(),
            Self::Redacted(hash) => *hash,
        }
    }
}

/// A signed tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The root.
    pub root: Node,
    /// The signature of the root's hash.
    pub signature: Vec<u8>,
}

/// Signs a tree, with fresh salts.
///
/// # Errors
/// `Moves` or `Signer`.
pub fn sign(
    key: &impl SigningKey,
    document: &Document,
    rng: &mut impl CryptoRng,
) -> Result<Signed, Refused> {
    let root = Node::new(document, rng)?;
    let signature = key.sign(&[CONTEXT, &root.hash().0].concat())?;
    Ok(Signed { root, signature })
}

impl Signed {
    /// Verifies the tree.
    ///
    /// # Errors
    /// `Signature`.
    pub fn verify(&self, key: &impl VerifyingKey) -> Result<(), Refused> {
        let text = [CONTEXT, &self.root.hash().0].concat();
        if key.verifies(&text, &self.signature) { Ok(()) } else { Err(Refused::Signature) }
    }

    /// Redacts the subtree at a path: the index of a child of the root, the index of a child of that
    /// node, and so on. No key is necessary.
    ///
    /// # Errors
    /// `Root` for an empty path, `NoSuchNode`.
    pub fn redact(&mut self, path: &[usize]) -> Result<(), Refused> {
        let (last, path) = path.split_last().ok_or(Refused::Root)?;
        let mut node = &mut self.root;
        for index in path {
            let Some(Subtree::Shown(child)) = node.children.get_mut(*index) else {
                return Err(Refused::NoSuchNode);
            };
            node = child;
        }
        let subtree = node.children.get_mut(*last).ok_or(Refused::NoSuchNode)?;
        *subtree = Subtree::Redacted(subtree.hash());
        Ok(())
    }

    /// Verifies two redacted forms of one tree, and shows what either shows.
    ///
    /// # Errors
    /// `OtherOriginal` or `Signature`.
    pub fn merge(&self, other: &Self, key: &impl VerifyingKey) -> Result<Self, Refused> {
        if self.root.hash() != other.root.hash() {
            return Err(Refused::OtherOriginal);
        }
        self.verify(key)?;
        other.verify(key)?;
        let mut merged = self.clone();
        merged.root.join(&other.root);
        Ok(merged)
    }

    /// Returns the bytes of a compact encoding: for each node, its salt, its content after its length,
    /// and its subtrees; then the signature.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.root.put(&mut out);
        out.extend(&self.signature);
        out
    }
}
