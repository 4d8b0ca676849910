//! Tests of the store with processes that are killed or whose disk is full.
//!
//! These tests are not in the test program `it`, whose tests reopen stores all the time. A new
//! child process inherits copies of its parent's open files, and therefore their locks, from the
//! fork until its exec, so a test in `it` could find its store locked. For the same reason the
//! tests here run one after the other.
#![allow(clippy::unwrap_used, missing_docs)]

mod closing;
mod crash;
mod full_disk;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test of this program is running, and keeps other tests waiting until the
/// guard is dropped.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
