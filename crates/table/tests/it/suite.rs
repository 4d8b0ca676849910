//! The conformance suite.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use moteseal_store::conformance;
use moteseal_table::Address;

use crate::node::{open, shared};

#[test]
#[ignore = "takes minutes; `make test-long` runs it"]
fn the_table_passes_the_suite() {
    let cassandra = shared();
    let keyspaces: Mutex<HashMap<String, Address>> = Mutex::default();
    conformance::run(&|name| {
        let mut keyspaces = keyspaces.lock().unwrap();
        let address = keyspaces.entry(name.to_owned()).or_insert_with(|| cassandra.keyspace());
        Arc::new(open(address))
    });
}
