//! Measures a star of 16 levels.

#![no_std]
#![no_main]

#[moteseal_board::entry]
fn main() -> ! {
    moteseal_footprint::star::measure::<16>()
}
