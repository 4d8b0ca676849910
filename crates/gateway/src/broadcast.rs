//! Sends authenticated broadcasts (docs/design.md, broadcasts). Lines of text or a file become the
//! messages of a chain. Each chain has a number that is never used again. A [`Sender`] sends the
//! chain block by block, and sends lost parts again to receivers that request them. It never waits
//! for a particular receiver.
//!
//! A sender with a list of [`Receivers`] shares a key with each of them. It learns from [`Receipts`]
//! which of them have a chain, and waits only for their requests.
//!
//! With [`Addressees`], only some of these receivers can read a chain.
//!
//! `moteseal_broadcast` defines chains and how lost parts are repaired. A sender is one of its
//! nodes. The node's store reads the messages from the lines or the file.

mod addressed;
mod content;
mod error;
mod issued;
mod numbers;
mod own_chains;
mod receipts;
mod receivers;
mod requests;
mod sender;
mod unfinished;
mod update_file;

pub use addressed::{AddressForm, Addressees};
pub use content::{Content, ContentError};
pub use error::SendError;
pub use issued::{Issued, IssuedCertificate, IssuedError};
pub use numbers::{ChainNumbers, NumbersError};
pub use receipts::{Checked, Receipts};
pub use receivers::{Receiver, Receivers, ReceiversError};
pub use requests::HeadAnswers;
pub use sender::{Amount, Hashes, Manner, Sender, build, sign};
pub use unfinished::{BegunChain, Unfinished};
pub use update_file::{UpdateFile, UpdateFileError};
