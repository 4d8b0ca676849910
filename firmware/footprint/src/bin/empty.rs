//! The harness without any part. The size of this program is subtracted from the size of every
//! other program.

#![no_std]
#![no_main]

use moteseal_board::entry;
use moteseal_footprint::Meter;

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let item = input.item();
    let mut count = 0;
    // Call every function of the harness that the parts use.
    meter.measure("nothing", &mut || count += 1);
    let counted = meter.count(&mut || count += 1);
    meter.number("counted", counted);
    meter.bytes("item", item.len() + count);
    meter.result("item", item);
    meter.end()
}
