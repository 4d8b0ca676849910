//! The tests of grants: the oracle is the derivation of keys in `moteseal_core::confidential`.

#![allow(clippy::unwrap_used, missing_docs)]

mod backups;
mod grants;
mod hostile;
mod owners;
mod periods;
mod scene;
