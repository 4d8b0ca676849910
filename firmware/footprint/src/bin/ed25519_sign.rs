//! Measures signing with Ed25519.

#![no_std]
#![no_main]

use moteseal_core::signature::Algorithm;
use moteseal_footprint::suite;

#[moteseal_board::entry]
fn main() -> ! {
    suite::sign(Algorithm::Ed25519)
}
