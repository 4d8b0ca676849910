//! Sends authenticated broadcasts (docs/design.md, broadcasts). Lines or a file become a chain,
//! whose number is never used again. A [`Sender`] sends the chain block by block and answers
//! receivers that request lost parts. It never waits for a receiver.
//!
//! `moteseal_broadcast` defines chains and their repair. A sender is one of its nodes; its store
//! reads the messages from their source.

mod content;
mod error;
mod numbers;
mod own_chains;
mod sender;

pub use content::{Content, ContentError};
pub use error::SendError;
pub use numbers::{ChainNumbers, NumbersError};
pub use sender::{Amount, Hashes, Manner, Sender, build, sign};
