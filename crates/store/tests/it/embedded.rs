//! Runs the conformance suite on the embedded store.

use std::sync::Arc;

use moteseal_store::{Options, RedbStore, conformance};

#[test]
fn the_embedded_store_passes_the_suite() {
    let directory = tempfile::tempdir().unwrap();
    conformance::run(&|name| {
        Arc::new(RedbStore::open(&directory.path().join(name), Options::default()).unwrap())
    });
}
