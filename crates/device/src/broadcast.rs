//! Listening to authenticated broadcasts (DESIGN.md, section 8): a [`Watcher`] follows what senders say on one or several links, keeps it in an
//! archive, hands out messages once they are verified, in order, and files once they are complete, and repairs and passes on what others lack.
//!
//! It has no cryptography and no timing of its own: that is [`moteseal_broadcast::recovery`]. [`run()`] connects it to links.

mod image;
mod runner;
mod watcher;

pub use image::{file_name, save};
pub use runner::{now, run};
pub use watcher::{News, Options, Tell, WatchError, Watcher};
