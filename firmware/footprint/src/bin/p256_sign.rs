//! Measures signing with ESP256 (ECDSA on P-256).

#![no_std]
#![no_main]

use moteseal_core::signature::Algorithm;
use moteseal_footprint::suite;

#[moteseal_board::entry]
fn main() -> ! {
    suite::sign(Algorithm::Esp256)
}
