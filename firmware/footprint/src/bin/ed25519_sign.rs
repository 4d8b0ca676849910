//! Measures signing with Ed25519.

#![no_std]
#![no_main]

use moteseal_core::signature::Algorithm;
use moteseal_footprint::each;

#[moteseal_board::entry]
fn main() -> ! {
    each::sign(Algorithm::Ed25519)
}
