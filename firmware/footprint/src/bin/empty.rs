//! The harness and no part: what is taken off the size of all the others.

#![no_std]
#![no_main]

use moteseal_board::entry;
use moteseal_footprint::Meter;

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let item = input.item();
    let mut count = 0;
    // All that the parts use of the harness.
    meter.measure("nothing", &mut || count += 1);
    let counted = meter.count(&mut || count += 1);
    meter.number("counted", counted);
    meter.bytes("item", item.len() + count);
    meter.result("item", item);
    meter.end()
}
