//! Runs the demonstrations as a user does.
#![allow(clippy::unwrap_used, missing_docs)]

mod broadcast;
mod seals;
mod sums;
