//! Saying authenticated broadcasts (DESIGN.md, section 8): lines or a file become a chain, whose number is never used again, and a [`Sender`] says
//! it block by block, answers those who ask, and goes on when nobody does.
//!
//! What chains are and how they are repaired is `moteseal_broadcast`; a sender is one of its nodes, with a store that reads messages
//! from where they lie.

mod content;
mod error;
mod numbers;
mod own_chains;
mod sender;

pub use content::{Content, ContentError};
pub use error::SendError;
pub use numbers::{ChainNumbers, NumbersError};
pub use sender::{Amount, Hashes, Manner, Sender, build, sign};
