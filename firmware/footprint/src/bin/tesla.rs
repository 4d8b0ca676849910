//! Measures a receiver of uTESLA that buffers messages of 32 bytes in four rows of four places.

#![no_std]
#![no_main]

use moteseal_board::entry;
use moteseal_broadcast::tesla::Parameters;
use moteseal_broadcast::tesla::receiver::{Receiver, Settings};
use moteseal_broadcast::tesla::wire::TeslaFrame;
use moteseal_broadcast::{ChainId, ChainNumber};
use moteseal_core::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_footprint::{Input, Meter, Of, failed};

type Mote = Receiver<4, 4, 32>;

fn receive_frame(receiver: &mut Mote, now_ms: u64, frame: &[u8]) {
    let Ok(frame) = TeslaFrame::decode(frame) else { failed("frame") };
    if receiver.receive(now_ms, &frame).is_err() {
        failed("receive");
    }
}

fn time(input: &mut Input) -> u64 {
    u64::from_be_bytes(input.fixed())
}

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let id = ChainId {
        network: NetworkId(input.fixed()),
        sender: DeviceId(input.fixed()),
        number: ChainNumber(time(&mut input)),
    };
    let parameters = input.item();
    meter.bytes("state", size_of::<Mote>());
    let settings = Settings { offset_ms: 100, steps: 16, budget: 64, seed: time(&mut input) };
    let mut taken = ([0; 32], 0);
    for of in [Of::Instructions, Of::Stack] {
        let mut input = input;
        let mut receiver = None;
        meter.once(of, "join", &mut || {
            let parameters = Parameters::decode(parameters, id).ok();
            receiver = parameters.and_then(|parameters| Mote::new(parameters, settings).ok());
        });
        let Some(mut receiver) = receiver else { failed("join") };
        let (now, packet) = (time(&mut input), input.item());
        meter.once(of, "packet", &mut || receive_frame(&mut receiver, now, packet));
        let (now, key) = (time(&mut input), input.item());
        meter.once(of, "key", &mut || receive_frame(&mut receiver, now, key));
        meter.once(of, "take", &mut || match receiver.take() {
            Some(message) => {
                taken.1 = message.message.len().min(32);
                taken.0[..taken.1].copy_from_slice(&message.message[..taken.1]);
            }
            None => failed("take"),
        });
    }
    meter.result("message", &taken.0[..taken.1]);
    meter.end()
}
