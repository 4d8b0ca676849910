//! The paper's star, its tree in bounded memory, its receiver with a cache, and its trees of degree
//! k (Li et al., sections IV, VII and VIII). The hash is MD5, SHA-1 or SHA-256, and memory is
//! counted in digests.
//!
//! This module only hashes. The caller signs the root, because the paper's RSA-1024 and DSA-512 are
//! not suites of `moteseal-core`. Unlike in the product, there are no salts and no counters, leaves
//! and nodes have no hash prefixes, and levels come from an event's content.

mod hash;
mod k_tree;
mod receiver;
mod star;
mod tree;

pub use hash::{Hash, Md5, Sha1, Sha256};
pub use k_tree::{KTree, NoSuchEvent};
pub use receiver::Receiver;
pub use star::{Star, cover};
pub use tree::{Nodes, TreeSigner};
