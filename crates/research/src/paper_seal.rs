//! The paper's star, its tree that is built in little room, its receiver with a cache, and its trees of degree k, as sections IV, VII and VIII
//! of Li et al. have them: over MD5, SHA-1 or SHA-256, with space counted in digests.
//!
//! Hashing alone: who signs a root is the caller's affair, since the paper's RSA-1024 and DSA-512 are no suites of ours. Nothing here is a
//! product's: there are no salts, no counters, no leaf and node prefixes, and levels come from an event's content.

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
