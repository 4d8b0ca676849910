//! Measures a star of 32 levels.

#![no_std]
#![no_main]

#[moteseal_board::entry]
fn main() -> ! {
    moteseal_footprint::star::measure::<32>()
}
