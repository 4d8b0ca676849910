//! The tests of sealing.

#![allow(clippy::unwrap_used, missing_docs)]

mod authentic_nonsense;
mod budget_audit;
mod encrypted_seals;
mod health_frames;
mod reference;
mod salts;
mod sampling_link;
mod seal_and_follow;
mod tree;
