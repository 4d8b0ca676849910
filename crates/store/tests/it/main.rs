//! The tests of `moteseal-store`: the conformance of the embedded store, a model of it, damage, lost
//! power, the journal and the archive.
#![allow(clippy::unwrap_used, missing_docs)]

mod archive;
mod damage;
mod embedded;
mod journal;
mod model;
mod recovery;
