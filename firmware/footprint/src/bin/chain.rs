//! The receiver of a chain, with Ed25519 for its heads.

#![no_std]
#![no_main]

use moteseal_core::cast::MAX_HEAD;
use moteseal_footprint::Meter;
use moteseal_footprint::cast::{Sender, measure};

#[moteseal_board::entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let sender = Sender::of(&mut input);
    let mut scratch = [0; MAX_HEAD];
    measure(&mut meter, &mut input, |head| sender.open(head, &mut scratch));
    meter.end()
}
