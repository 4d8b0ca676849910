//! The demonstrations as a user runs them.
#![allow(clippy::unwrap_used, missing_docs)]

mod broadcast;
mod seals;
mod sums;
