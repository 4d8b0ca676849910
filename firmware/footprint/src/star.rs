//! The star: measures adding an event and ending an epoch, for a given number of levels.

use moteseal_core::digest::Digest;
use moteseal_core::record::Framing;
use moteseal_core::{DeviceId, SealIndex};
use moteseal_seal::level::SaltKey;
use moteseal_seal::{Star, star};

use crate::{Input, Meter, Of, failed};

/// The length of an event, in bytes.
pub const EVENT: usize = 4;

/// Creates an empty star with the device and the salt key from the input.
pub fn open<const L: usize>(input: &mut Input) -> Star<L> {
    let (device, key) = (DeviceId(input.fixed()), SaltKey::new(input.fixed()));
    let index = SealIndex(u32::from_be_bytes(input.fixed()));
    let Some(framing) = Framing::fixed(EVENT) else { failed("framing") };
    Star::new(device, index, &key.salt(device, index), framing)
}

/// Adds all events to a star.
pub fn push_all<const L: usize>(star: &mut Star<L>, events: &[u8]) {
    for event in events.as_chunks::<EVENT>().0 {
        if star.push(event).is_err() {
            failed("push");
        }
    }
}

/// Measures a star of `L` levels.
pub fn measure<const L: usize>() -> ! {
    let (mut meter, mut input) = Meter::start();
    let empty = open::<L>(&mut input);
    let events = input.item();
    meter.bytes("state", size_of::<Star<L>>());
    meter.number("events", (events.len() / EVENT) as u64);
    let mut root = Digest::NULL;
    for of in [Of::Instructions, Of::Stack] {
        let mut running = empty.clone();
        meter.once(of, "push", &mut || push_all(&mut running, events));
        meter.once(of, "close", &mut || {
            let (counters, digests) = running.close_in_place();
            root = star::root(&counters, &digests);
        });
    }
    meter.result("root", &root.0);
    meter.end()
}
