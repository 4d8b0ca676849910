//! Receiving authenticated broadcasts (docs/design.md, broadcasts). A [`Watcher`] follows the
//! senders on one or several links and keeps their chains in an archive. It delivers messages in
//! order after they are verified, and files when they are complete. It also repairs and relays: it
//! requests leaves that it lacks, and sends leaves that other receivers lack.
//! Cryptography and timing are in [`moteseal_broadcast::recovery`]. [`run()`] connects a watcher to
//! links.

mod image;
mod runner;
mod watcher;

pub use image::{file_name, save};
pub use runner::{now, run};
pub use watcher::{OnWatchEvent, Options, WatchError, WatchEvent, Watcher};
