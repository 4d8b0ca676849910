//! The tree: measures adding an event and ending an epoch, for a given capacity.

use core::hint::black_box;

use moteseal_core::digest::Digest;
use moteseal_seal::tree::Tree;

use crate::star::EVENT;
use crate::{Meter, Of, failed};

/// Measures a tree of fewer than `2^H` events.
pub fn measure<const H: usize>() -> ! {
    let (mut meter, mut input) = Meter::start();
    let events = input.item();
    meter.bytes("state", size_of::<Tree<H>>());
    meter.number("events", (events.len() / EVENT) as u64);
    let mut root = Digest::NULL;
    for of in [Of::Instructions, Of::Stack] {
        let mut tree = Tree::<H>::new();
        meter.once(of, "push", &mut || {
            for event in events.as_chunks::<EVENT>().0 {
                if tree.push(event).is_err() {
                    failed("push");
                }
            }
        });
        meter.once(of, "close", &mut || root = black_box(&tree).root());
    }
    meter.result("root", &root.0);
    meter.end()
}
