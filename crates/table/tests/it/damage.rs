//! Rows of a table that another client of Cassandra changed or deleted.

use moteseal_core::record::{EpochNumber, Scheme, SealIndex};
use moteseal_store::conformance::{Mote, manifest};
use moteseal_store::{EpochStore, ReadError, UrgentLimits};

use crate::node::{open, shared};

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

#[track_caller]
fn is_damaged<T: std::fmt::Debug>(result: Result<T, ReadError>) {
    assert!(matches!(result, Err(ReadError::Damaged { .. })), "{result:?}");
}

#[test]
fn a_changed_or_deleted_row_is_damaged_and_never_wrong() {
    let cassandra = shared();
    let address = cassandra.keyspace();
    let store = open(&address);
    let mut mote = Mote::new("victim", false);
    let long = mote.seal_some(Scheme::Star, 1, 60_000);
    let short = mote.seal_some(Scheme::Star, 2, 10);
    let other = mote.seal_some(Scheme::Star, 3, 10);
    let bundles = [&long, &short, &other].map(|made| made.bundle.clone());
    store.put(bundles.to_vec()).unwrap();
    let device = mote.device();
    let cql = |statement: String| cassandra.cql(&address, &statement);
    let id = hex(&device.0);
    let place = |index: u32, made: &moteseal_store::conformance::Made| {
        format!(
            "device = {id} AND span = 0 AND seal_index = {index} AND digest = {} AND kept = {}",
            hex(&made.bundle.key().digest.0),
            made.bundle.kept()
        )
    };
    let variant = |made: &moteseal_store::conformance::Made| {
        let digest = moteseal_core::digest::Digest::of(&[b"head", made.bundle.rows().0]);
        hex(&digest.0[..16])
    };

    // A piece of a body.
    let seal = store.seals_at(device, SealIndex(0)).unwrap().remove(0);
    let owner = [&long.bundle.key().to_bytes()[..], &long.bundle.kept().to_be_bytes()].concat();
    let piece = format!("owner = {} AND part = 0 AND number = 2", hex(&owner));
    cql(format!("UPDATE pieces SET data = 0x{} WHERE {piece}", "00".repeat((64 << 10) + 8)));
    is_damaged(store.body(&seal, 131_072..131_073));
    is_damaged(store.events(&seal));
    assert_eq!(
        store.body(&seal, 0..131_072).unwrap(),
        long.bundle.rows().1[..131_072],
        "other pieces can still be read"
    );
    cql(format!("DELETE FROM pieces WHERE {piece}"));
    is_damaged(store.events(&seal));
    is_damaged(store.body(&seal, 0..seal.body_length() + 1));

    // The head and the short body of a seal.
    let at = format!("{} AND variant = {}", place(1, &short), variant(&short));
    let (head, body) = short.bundle.rows();
    let mut changed = [head, body].concat();
    *changed.last_mut().unwrap() ^= 1;
    changed.extend([0; 8]);
    cql(format!("UPDATE seals SET head = {} WHERE {at}", hex(&changed)));
    is_damaged(store.seals_at(device, SealIndex(1)));
    is_damaged(store.seals(device, SealIndex(0), 10));
    assert_eq!(store.seals_at(device, SealIndex(2)).unwrap().len(), 1);
    // The epoch by which seals are searched.
    cql(format!("UPDATE seals SET epoch = 0x{} WHERE {at}", "00".repeat(16)));
    is_damaged(store.seals_since(device, EpochNumber(2), 10));
    // A row that was deleted is missing, and others are not affected.
    cql(format!("DELETE FROM seals WHERE {at}"));
    assert!(store.seals_at(device, SealIndex(1)).unwrap().is_empty());
    assert_eq!(store.seals(device, SealIndex(0), 10).unwrap().len(), 2);
    // It can be put again.
    assert_eq!(store.put(vec![short.bundle.clone()]).unwrap().stored, 1);
    moteseal_store::conformance::assert_reads_back(&store, &short);

    // A schema, a manifest and an urgent event.
    cql(format!(
        "UPDATE schemas SET encoding = 0x00 WHERE digest = {}",
        hex(&short.statement.schema.0)
    ));
    is_damaged(store.schema(&short.statement.schema));
    store.put_manifests(vec![manifest(7, 1, &[&long])]).unwrap();
    let key = store.manifests(EpochNumber(0), None, None, 1).unwrap()[0].key();
    cql(format!(
        "UPDATE manifests SET manifest = 0x0000 WHERE span = 0x{:016x} AND epoch = 0x{:016x} AND digest = {}",
        0,
        7,
        hex(&key.digest.0)
    ));
    is_damaged(store.manifests(EpochNumber(0), None, None, 1));
    let event = mote.urgent(0, 1, 0, 5);
    store.put_urgent(vec![event.clone()]).unwrap();
    let all = UrgentLimits { read: 9, events: 9, bytes: 1 << 20 };
    assert_eq!(store.urgent(None, all, &|_, _| true).unwrap().events.len(), 1);
    let digest = hex(&event.key().digest.0);
    cql(format!(
        "DELETE FROM urgent WHERE device = {id} AND span = 0 AND seal_index = 0 AND seq = 0x{:016x} AND digest = {digest}",
        0
    ));
    is_damaged(store.urgent(None, all, &|_, _| true));
    assert!(store.urgent(None, all, &|_, _| false).unwrap().events.is_empty());
    cql(format!(
        "UPDATE urgent_order SET place = 0x00 WHERE bucket = 0 AND number = 1 AND digest = {digest}"
    ));
    is_damaged(store.urgent(None, all, &|_, _| false));
}
