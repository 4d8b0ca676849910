//! Tests that a broadcast node has the documented size in bytes. To print the sizes, run `cargo
//! test -p moteseal-broadcast memory -- --nocapture`.
//!
//! Most of the memory does not depend on the type's parameters: it holds the queues, and a head and
//! a certificate that wait for a signature check. A mote needs less, because it is built without
//! the post-quantum suite and its long signatures and keys. A 32-bit machine needs no more than
//! stated here, because its pointers are smaller.

use moteseal_broadcast::Incoming;
use moteseal_broadcast::recovery::Node;
use moteseal_core::signature::MAX_SIGNATURE;

#[test]
fn a_node_needs_no_more_memory_than_documented() {
    let nodes = [
        ("1 sender, 1 chain, b = 1", size_of::<Node<'_, 1, 1, 1>>(), 6_100, 13_200),
        ("2 senders, 2 chains, b = 10", size_of::<Node<'_, 2, 2, 10>>(), 8_300, 16_500),
        ("4 senders, 4 chains, b = 16", size_of::<Node<'_, 4, 4, 16>>(), 12_960, 23_420),
        ("8 senders, 8 chains, b = 64", size_of::<Node<'_, 8, 8, 64>>(), 39_540, 54_480),
    ];
    for (name, size, ..) in nodes {
        println!("{name}: {size} bytes");
    }
    for (name, size, mote, host) in nodes {
        let stated = if MAX_SIGNATURE > 64 { host } else { mote };
        assert!(size <= stated, "{name}: {size} bytes, stated {stated}");
    }
    // Each additional chain needs a verifier, half a kilobyte for leaves that arrive early, and the
    // times of its requests and advertisements.
    let (two, three) = (size_of::<Node<'_, 2, 2, 10>>(), size_of::<Node<'_, 2, 3, 10>>());
    assert!(three - two <= size_of::<Incoming<10>>() + 800, "{}", three - two);
}
