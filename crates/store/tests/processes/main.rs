//! Tests of the store with processes that are killed or whose disk is full.
//!
//! A test program apart from `it`, whose tests reopen stores all the time: between fork and exec, a
//! new process holds copies of the open files of its parent, and thus their locks. For the same
//! reason the tests here run one after the other.
#![allow(clippy::unwrap_used, missing_docs)]

mod closing;
mod crash;
mod full_disk;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test of this program runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
