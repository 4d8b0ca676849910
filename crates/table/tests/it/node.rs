//! The node that all tests share, and their keyspaces.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use moteseal_table::{Address, Options, TableStore, init};

use crate::cassandra::{Cassandra, Shared};

const SETTINGS: &[&str] = &[
    "authenticator=PasswordAuthenticator",
    "authorizer=CassandraAuthorizer",
    "roles_validity=100ms",
    "permissions_validity=100ms",
    "credentials_validity=100ms",
];

static NODE: Shared = Shared::new(SETTINGS, Some("cassandra"));

/// Returns the node, for a test that neither stops nor pauses it.
pub(crate) fn shared() -> RwLockReadGuard<'static, Cassandra> {
    NODE.shared()
}

/// Returns the node, for a test that stops or pauses it. No other test runs at the same time.
pub(crate) fn alone() -> RwLockWriteGuard<'static, Cassandra> {
    NODE.alone()
}

impl Cassandra {
    /// Creates a new keyspace.
    pub(crate) fn keyspace(&self) -> Address {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let address = self.address(&format!("test_{number}"));
        let done = init(&address, 1).unwrap();
        assert!(done.created && done.before.is_none());
        address
    }

    /// Runs a statement as the superuser.
    pub(crate) fn cql(&self, address: &Address, statement: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let session = self.session(address).await;
            session.query_unpaged(statement, &[]).await.unwrap();
        });
    }
}

pub(crate) fn open(address: &Address) -> TableStore {
    TableStore::open(address, Options::default()).unwrap()
}
