//! Measures a tree of fewer than 2^20 events.

#![no_std]
#![no_main]

#[moteseal_board::entry]
fn main() -> ! {
    moteseal_footprint::tree::measure::<20>()
}
