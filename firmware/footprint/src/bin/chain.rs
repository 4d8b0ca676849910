//! Measures the receiver of a chain that checks the chain's head with Ed25519.

#![no_std]
#![no_main]

use moteseal_broadcast::MAX_HEAD;
use moteseal_footprint::broadcast::{Sender, measure};
use moteseal_footprint::{Meter, Of, failed};

#[moteseal_board::entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    meter.bytes("sender", size_of::<Sender>());
    meter.bytes("head", MAX_HEAD);
    let (start, mut sender) = (input, None);
    meter.once(Of::Instructions, "sender", &mut || {
        input = start;
        sender = Some(Sender::of(&mut input));
    });
    let Some(sender) = sender else { failed("key") };
    let mut scratch = [0; MAX_HEAD];
    measure(&mut meter, &mut input, |head| sender.open(head, &mut scratch));
    meter.end()
}
