//! Measures a tree of fewer than 2^10 events.

#![no_std]
#![no_main]

#[moteseal_board::entry]
fn main() -> ! {
    moteseal_footprint::tree::measure::<10>()
}
