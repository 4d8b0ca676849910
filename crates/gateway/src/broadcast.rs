//! Sending authenticated broadcasts (docs/design.md, broadcasts). Lines or a file become a chain,
//! whose number is never used again. A [`Sender`] sends it block by block, serves receivers that
//! request parts, and continues when no receiver does.
//!
//! `moteseal_broadcast` defines chains and their repair. A sender is one of its nodes, with a store
//! that reads messages from their source.

mod content;
mod error;
mod numbers;
mod own_chains;
mod sender;

pub use content::{Content, ContentError};
pub use error::SendError;
pub use numbers::{ChainNumbers, NumbersError};
pub use sender::{Amount, Hashes, Manner, Sender, build, sign};
