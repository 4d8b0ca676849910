//! The tests of `moteseal-store`: the conformance of the embedded store, its comparison with a
//! model, damage, recovery after crashes, the journal and the archive.
#![allow(clippy::unwrap_used, missing_docs)]

mod archive;
mod crash_recovery;
mod damage;
mod embedded;
mod journal;
mod model;
