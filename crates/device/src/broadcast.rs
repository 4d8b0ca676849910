//! Receives authenticated broadcasts (docs/design.md, broadcasts). A [`Watcher`] follows the
//! senders on one or several links and stores their chains in an archive. It delivers messages in
//! order after they are verified and within the time that their sender states, and files when they
//! are complete. It also helps to repair losses: it requests leaves that it lacks, and sends leaves
//! that other receivers lack.
//!
//! A watcher that shares a key with a sender acknowledges the sender's chains, and can read those that
//! are for it only.
//!
//! [`moteseal_broadcast::recovery`] implements the cryptography and the timing. [`run()`] connects
//! a watcher to its links.

mod addressed;
mod delivery;
mod image;
mod receipts;
mod runner;
mod watcher;

pub use image::{AGENT_SUFFIX, file_name, save};
pub use runner::{now, run};
pub use watcher::{OnWatchEvent, Options, WatchError, WatchEvent, Watcher, Withheld};
