//! Receiving authenticated broadcasts (docs/design.md, broadcasts). A [`Watcher`] follows the
//! senders on one or several links and keeps their chains in an archive. It delivers messages in
//! order once they are verified, and files once they are complete, and it repairs and relays what
//! other receivers lack.
//!
//! Cryptography and timing are in [`moteseal_broadcast::recovery`]. [`run()`] connects a watcher to
//! links.

mod image;
mod runner;
mod watcher;

pub use image::{file_name, save};
pub use runner::{now, run};
pub use watcher::{News, Options, Tell, WatchError, Watcher};
