//! Measures the receiver of a chain without any signature code: a secure element or the bootloader
//! has already checked the heads.

#![no_std]
#![no_main]

use moteseal_broadcast::Head;
use moteseal_footprint::Meter;
use moteseal_footprint::broadcast::measure;

#[moteseal_board::entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    // Skip the sender's network, id and key.
    for _ in 0..3 {
        input.item();
    }
    measure(&mut meter, &mut input, |head| Head::reopen(head).ok());
    meter.end()
}
