//! An operator's mistakes are reported at the start, each in one line that says how to mend it. Tables of an
//! earlier version are migrated.

use moteseal_core::record::{EpochNumber, Scheme, SealIndex};
use moteseal_store::conformance::{Made, Mote, assert_reads_back};
use moteseal_store::{EpochStore, PutError};
use moteseal_table::{Access, Address, OpenError, Options, Password, TableStore, init};

use crate::cassandra::free_ports;
use crate::listing::seal;
use crate::node::{open, shared};

#[track_caller]
fn fails(address: &Address, access: Access, name: &str, texts: &[&str]) {
    let opened = TableStore::open(address, Options { access, ..Options::default() });
    is(&opened.unwrap_err(), name, texts);
}

#[track_caller]
fn is(error: &OpenError, name: &str, texts: &[&str]) {
    let text = error.to_string();
    println!("{}: {text}", error.name());
    assert_eq!(error.name(), name, "{text}");
    assert!(!text.contains('\n'), "{text}");
    for wanted in texts {
        assert!(text.contains(wanted), "{text} does not contain {wanted}");
    }
}

#[test]
fn every_mistake_is_named_at_the_start() {
    use Access::ReadWrite;
    let cassandra = shared();
    let address = cassandra.keyspace();
    drop(open(&address));

    let missing = cassandra.address("missing");
    fails(
        &missing,
        ReadWrite,
        "TableNoKeyspace",
        &["no keyspace missing", "moteseal store init --store cassandra://"],
    );

    let empty = cassandra.address("empty");
    cassandra.cql(&address, "CREATE KEYSPACE empty WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    fails(&empty, ReadWrite, "TableNotInitialized", &["has no tables", "store init"]);

    // A migration that was interrupted.
    assert_eq!(init(&empty, 1).unwrap().before, None);
    cassandra.cql(&empty, "TRUNCATE schema_version");
    fails(&empty, ReadWrite, "TableNotInitialized", &["has no tables"]);
    cassandra.cql(&empty, "INSERT INTO schema_version (one, version) VALUES (0, 0)");
    fails(&empty, ReadWrite, "TableOlder", &["version 0", "store init"]);
    let done = init(&empty, 1).unwrap();
    assert_eq!((done.created, done.before, done.version), (false, Some(0), 2));
    drop(open(&empty));
    assert_eq!(init(&empty, 1).unwrap().before, Some(2), "it can be repeated");

    // Cassandra would lose what it has acknowledged.
    cassandra.cql(&empty, "ALTER KEYSPACE empty WITH durable_writes = false");
    let words = ["keyspace empty", "ALTER KEYSPACE empty WITH durable_writes = true"];
    fails(&empty, ReadWrite, "TableNotDurable", &words);
    is(&init(&empty, 1).unwrap_err(), "TableNotDurable", &words);
    cassandra.cql(&empty, "ALTER KEYSPACE empty WITH durable_writes = true");
    cassandra.cql(&empty, "ALTER TABLE empty.seals WITH default_time_to_live = 60");
    let words = ["ALTER TABLE empty.seals WITH default_time_to_live = 0"];
    fails(&empty, ReadWrite, "TableNotDurable", &words);
    cassandra.cql(&empty, "ALTER TABLE empty.seals WITH default_time_to_live = 0");
    drop(open(&empty));

    cassandra.cql(&empty, "DROP TABLE pieces");
    fails(&empty, ReadWrite, "TableNotInitialized", &["has no tables", "store init"]);
    cassandra.cql(&empty, "INSERT INTO schema_version (one, version) VALUES (0, 99)");
    fails(&empty, ReadWrite, "TableNewer", &["version 99", "newer program"]);
    is(&init(&empty, 1).unwrap_err(), "TableNewer", &["99"]);

    // One node cannot have a quorum of three replicas.
    let three = cassandra.address("three");
    is(&init(&three, 3).unwrap_err(), "TableReplicas", &["1 of the 2 replicas", "three"]);
    fails(&three, ReadWrite, "TableReplicas", &["start the missing nodes"]);

    let [closed, _] = free_ports();
    let mut nowhere = address.clone();
    nowhere.hosts = vec![format!("127.0.0.1:{closed}")];
    fails(&nowhere, ReadWrite, "TableUnreachable", &["cannot be reached", "check that it runs"]);

    let mut wrong = address.clone();
    wrong.password = Some(Password("not the password".to_owned()));
    fails(
        &wrong,
        ReadWrite,
        "TableRejected",
        &["rejected the user cassandra; check its password", "MOTESEAL_CASSANDRA_PASSWORD"],
    );
    let mut nobody = address.clone();
    nobody.user = None;
    fails(&nobody, ReadWrite, "TableRejected", &["without a user", "cassandra://user@host"]);
    let mut unset = address.clone();
    unset.password = None;
    fails(&unset, ReadWrite, "TablePassword", &["MOTESEAL_CASSANDRA_PASSWORD_FILE"]);
}

/// Version 1 had no marks in the partitions of seals.
#[test]
fn tables_of_the_first_version_are_migrated_with_their_seals() {
    let cassandra = shared();
    let address = cassandra.keyspace();
    let mut mote = Mote::new("old", false);
    let made = [(0, 1), (300, 5), (301, 6), (255, 10)];
    let made = made.map(|(index, epoch)| seal(&mut mote, index, epoch));
    let bundles = |made: &[Made]| made.iter().map(|made| made.bundle.clone()).collect::<Vec<_>>();
    open(&address).put(bundles(&made[..2])).unwrap();
    for statement in [
        "ALTER TABLE seals DROP listed",
        "ALTER TABLE seals DROP followed",
        "DELETE FROM schema_version WHERE one = 0 AND version = 2",
    ] {
        cassandra.cql(&address, statement);
    }
    fails(&address, Access::ReadWrite, "TableOlder", &["version 1", "store init"]);
    let done = init(&address, 1).unwrap();
    assert_eq!((done.created, done.before, done.version), (false, Some(1), 2));
    let store = open(&address);
    let device = made[0].statement.device;
    assert_eq!(store.put(bundles(&made[..3])).unwrap().known, 2);
    // Its epoch does not ascend with its index, which is found although the next partition is older.
    store.put(bundles(&made[3..])).unwrap();
    for store in [&store, &open(&address)] {
        assert_eq!(store.devices(None, 10).unwrap().len(), 1);
        made.iter().for_each(|made| assert_reads_back(store, made));
        let since = store.seals_since(device, EpochNumber(7), 1).unwrap();
        assert_eq!(since.first().map(|seal| seal.key().index), Some(SealIndex(255)));
    }
}

#[test]
fn a_role_needs_only_its_permissions() {
    use Access::{Read, ReadWrite};
    let cassandra = shared();
    let address = cassandra.keyspace();
    let mut mote = Mote::new("role", false);
    let made = mote.seal_some(Scheme::Star, 1, 5);
    open(&address).put(vec![made.bundle.clone()]).unwrap();
    let keyspace = &address.keyspace;
    let reader = format!("reader_of_{keyspace}");
    let serve = cassandra.address_of(&reader, "pw", keyspace);
    let grant = |what: &str| cassandra.cql(&address, &format!("GRANT {what} TO {reader}"));
    cassandra.cql(&address, &format!("CREATE ROLE {reader} WITH PASSWORD = 'pw' AND LOGIN = true"));
    fails(
        &serve,
        Read,
        "TableForbidden",
        &[&format!("the user {reader} may not read its tables"), "docs/scale.md"],
    );
    grant(&format!("SELECT ON KEYSPACE {keyspace}"));
    fails(&serve, Read, "TableForbidden", &["read the settings of the nodes"]);
    grant("SELECT ON system_views.settings");
    fails(&serve, ReadWrite, "TableForbidden", &["write its tables"]);

    let store = TableStore::open(&serve, Options { access: Read, ..Options::default() }).unwrap();
    assert_eq!(store.seals_at(mote.device(), made.bundle.key().index).unwrap().len(), 1);
    let refused = store.put(vec![made.bundle.clone()]).unwrap_err();
    assert!(matches!(&refused, PutError::Failed { what, .. } if what.contains("reading only")));

    grant(&format!("MODIFY ON KEYSPACE {keyspace}"));
    let worker = TableStore::open(&serve, Options::default()).unwrap();
    assert_eq!(worker.put(vec![made.bundle]).unwrap().known, 1);
}
