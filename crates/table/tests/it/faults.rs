//! Cassandra is paused, killed and restarted while a store puts seals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use moteseal_core::record::Scheme;
use moteseal_store::conformance::{Made, Mote, assert_reads_back};
use moteseal_store::{EpochStore, PutError};
use moteseal_table::{Options, TableStore};

use crate::node::{alone, open};

#[test]
#[ignore = "takes a minute; `make test-long` runs it"]
fn everything_acknowledged_survives_pauses_and_kills_of_the_node() {
    let cassandra = alone();
    let address = cassandra.keyspace();
    let options = Options {
        put_time: Duration::from_secs(90),
        read_time: Duration::from_secs(90),
        ..Options::default()
    };
    let store = TableStore::open(&address, options).unwrap();
    let stop = AtomicBool::new(false);
    let acknowledged: Vec<Made> = thread::scope(|scope| {
        let putting: Vec<_> = (0..2)
            .map(|number| {
                let (store, stop) = (&store, &stop);
                scope.spawn(move || {
                    let mut mote = Mote::new(&format!("stubborn {number}"), false);
                    let mut acknowledged = Vec::new();
                    let mut epoch = 0;
                    while !stop.load(Ordering::SeqCst) {
                        let n = if epoch % 5 == 4 { 5_000 } else { 30 };
                        let made = mote.seal_some(Scheme::Star, epoch, n);
                        epoch += 1;
                        // The store itself repeats the put until Cassandra answers again.
                        assert_eq!(store.put(vec![made.bundle.clone()]).unwrap().known, 0);
                        acknowledged.push(made);
                        thread::sleep(Duration::from_millis(20));
                    }
                    acknowledged
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(1));
        cassandra.signal("STOP");
        thread::sleep(Duration::from_secs(3));
        cassandra.signal("CONT");
        thread::sleep(Duration::from_millis(500));
        cassandra.kill();
        cassandra.start(&[]);
        thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::SeqCst);
        putting.into_iter().flat_map(|putting| putting.join().unwrap()).collect()
    });
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    acknowledged.iter().for_each(|made| assert_reads_back(&store, made));
    drop(store);

    // A killed node makes a put fail with an error that says to repeat it.
    let hasty = TableStore::open(
        &address,
        Options {
            put_time: Duration::from_millis(500),
            read_time: Duration::from_millis(500),
            ..Options::default()
        },
    );
    let hasty = hasty.unwrap();
    cassandra.kill();
    let mut mote = Mote::new("hasty", false);
    let made = mote.seal_some(Scheme::Star, 1, 3);
    let refused = hasty.put(vec![made.bundle.clone()]).unwrap_err();
    assert!(matches!(refused, PutError::Unavailable { .. }), "{refused:?}");
    assert_eq!(hasty.devices(None, 1).unwrap_err().name(), "Unavailable");
    let unreachable = TableStore::open(&address, Options::default()).unwrap_err();
    assert_eq!(unreachable.name(), "TableUnreachable", "{unreachable}");
    println!("{unreachable}");

    // A node that acknowledges before it syncs is refused at the start.
    cassandra.start(&["commitlog_sync=periodic", "commitlog_sync_period=10s"]);
    let unsafe_node = TableStore::open(&address, Options::default()).unwrap_err();
    assert_eq!(unsafe_node.name(), "TableNotDurable", "{unsafe_node}");
    println!("{unsafe_node}");
    cassandra.kill();
    cassandra.start(&["commitlog_sync=group", "commitlog_sync_group_window=5ms"]);
    let store = open(&address);
    acknowledged.iter().for_each(|made| assert_reads_back(&store, made));
    store.put(vec![made.bundle.clone()]).unwrap();
    assert_reads_back(&store, &made);
    println!("Cassandra used {} s of processor time since its last start", cassandra.seconds());
}
