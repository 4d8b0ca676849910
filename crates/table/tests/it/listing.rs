//! Readers find what was stored, with few requests to Cassandra.

use std::thread;
use std::time::Duration;

use moteseal_core::record::{EpochNumber, Scheme, SealIndex};
use moteseal_store::EpochStore;
use moteseal_store::conformance::{Made, Mote, assert_reads_back};

use crate::equal::random;
use crate::node::{open, shared};

/// Makes a seal of any index and epoch.
pub(crate) fn seal(mote: &mut Mote, index: u32, epoch: u64) -> Made {
    mote.position.last = index.checked_sub(1).map(|last| (SealIndex(last), EpochNumber(0)));
    mote.seal_some(Scheme::Star, epoch, 3)
}

/// Two processes store two seals at the same time, in two partitions of a device, whose epochs do not ascend
/// with their indices. A search that relied on the order would miss the first one.
#[test]
fn an_order_that_two_processes_break_between_two_partitions_is_noticed() {
    let cassandra = shared();
    let address = cassandra.keyspace();
    let stores = [open(&address), open(&address)];
    let mut state = 11;
    for round in 0..48 {
        let mut mote = Mote::new(&format!("device {round}"), false);
        let made = [(0, 1), (256, 2), (255, 10), (257, 5)];
        let [first, next, before, after] = made.map(|(index, epoch)| seal(&mut mote, index, epoch));
        let put = |store: usize, made: &Made| {
            stores[store].put(vec![made.bundle.clone()]).unwrap();
        };
        // Either process knows the first partition; neither, one or both know the second one.
        put(round % 2, &first);
        if round % 3 == 0 {
            put(round % 2, &next);
        }
        if round % 4 == 0 {
            put(1 - round % 2, &next);
        }
        thread::scope(|scope| {
            for (store, made) in [(0, &before), (1, &after)] {
                let delay = Duration::from_micros(random(&mut state) % 3_000);
                scope.spawn(move || {
                    thread::sleep(delay);
                    put(store, made);
                });
            }
        });
        for store in &stores {
            let since = store.seals_since(mote.device(), EpochNumber(7), 1).unwrap();
            let found = since.first().map(|seal| seal.key().index);
            assert_eq!(found, Some(SealIndex(255)), "round {round}");
        }
    }
}

/// A process was killed after it had listed a partition, and before it stored a seal in it.
#[test]
fn a_partition_that_was_listed_without_seals_hides_no_order() {
    let cassandra = shared();
    let address = cassandra.keyspace();
    let store = open(&address);
    let mut mote = Mote::new("interrupted", false);
    let made = [(0, 1), (512, 5), (255, 10)].map(|(index, epoch)| seal(&mut mote, index, epoch));
    let put = |made: &Made| store.put(vec![made.bundle.clone()]).unwrap();
    put(&made[0]);
    let id: String = mote.device().0.iter().map(|byte| format!("{byte:02x}")).collect();
    cassandra.cql(&address, &format!("INSERT INTO spans (device, span) VALUES (0x{id}, 1)"));
    put(&made[1]);
    put(&made[2]);
    let since = store.seals_since(mote.device(), EpochNumber(7), 1).unwrap();
    assert_eq!(since.first().map(|seal| seal.key().index), Some(SealIndex(255)));
    assert_eq!(store.devices(None, 2).unwrap()[0].key, made[1].bundle.key());
}

/// Readers find what a process stores in a keyspace that was emptied while the process ran and stored.
#[test]
fn a_keyspace_that_is_emptied_under_a_process_is_listed_again() {
    let cassandra = shared();
    let address = cassandra.keyspace();
    let store = open(&address);
    let mut mote = Mote::new("emptied", false);
    let made: Vec<Made> = (0..5).map(|index| seal(&mut mote, index, index.into())).collect();
    let put = |made: &Made| assert_eq!(store.put(vec![made.bundle.clone()]).unwrap().stored, 1);
    made[..2].iter().for_each(put);
    for table in ["devices", "spans", "listing", "schemas"] {
        cassandra.cql(&address, &format!("TRUNCATE {table}"));
    }
    put(&made[2]);
    cassandra.cql(&address, "TRUNCATE seals");
    assert_eq!(store.devices(None, 10).unwrap(), []);
    made[3..].iter().for_each(put);
    for store in [&store, &open(&address)] {
        assert_eq!(store.devices(None, 10).unwrap()[0].key, made[4].bundle.key());
        made[3..].iter().for_each(|made| assert_reads_back(store, made));
    }
}

/// A process that has stored earlier seals of a device stores the next one with two requests.
#[test]
fn a_seal_that_follows_another_one_takes_two_requests() {
    const SEALS: u32 = 100;
    let cassandra = shared();
    let address = cassandra.keyspace();
    let user = format!("counted_in_{}", address.keyspace);
    for statement in [
        format!("CREATE ROLE {user} WITH PASSWORD = 'pw' AND LOGIN = true"),
        format!("GRANT SELECT ON KEYSPACE {} TO {user}", address.keyspace),
        format!("GRANT MODIFY ON KEYSPACE {} TO {user}", address.keyspace),
        format!("GRANT SELECT ON system_views.settings TO {user}"),
    ] {
        cassandra.cql(&address, &statement);
    }
    let store = open(&cassandra.address_of(&user, "pw", &address.keyspace));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let requests = || {
        runtime.block_on(async {
            let session = cassandra.session(&address).await;
            let select = "SELECT username, request_count FROM system_views.clients";
            let rows =
                session.query_unpaged(select, &[]).await.unwrap().into_rows_result().unwrap();
            let rows = rows.rows::<(Option<String>, i64)>().unwrap().map(Result::unwrap);
            let of_user = rows.filter(|(name, _)| name.as_ref() == Some(&user));
            of_user.map(|(_, requests)| requests).sum::<i64>()
        })
    };
    let mut mote = Mote::new("counted", false);
    let made: Vec<Made> = (0..=SEALS).map(|index| seal(&mut mote, index, index.into())).collect();
    let (first, next) = made.split_first().unwrap();
    let put = |made: &Made| assert_eq!(store.put(vec![made.bundle.clone()]).unwrap().stored, 1);
    put(first);
    let before = requests();
    next.iter().for_each(put);
    let took = requests() - before;
    // The driver also sends requests by itself.
    let most = i64::from(2 * SEALS + SEALS / 10);
    assert!((i64::from(2 * SEALS)..=most).contains(&took), "{took} requests of {SEALS} seals");
}
