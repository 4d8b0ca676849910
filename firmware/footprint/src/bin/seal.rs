//! Measures a star of 16 levels and its seal, up to the item to send, without signing: a secure
//! element would sign.

#![no_std]
#![no_main]

use moteseal_board::entry;
use moteseal_core::record::Framing;
use moteseal_core::{DeviceId, SealIndex};
use moteseal_footprint::seal::Chain;
use moteseal_footprint::star::{EVENT, push_all};
use moteseal_footprint::{Meter, Of, failed};
use moteseal_seal::Star;
use moteseal_seal::level::SaltKey;

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (device, key) = (DeviceId(input.fixed()), SaltKey::new(input.fixed()));
    let (index, events) = (SealIndex(u32::from_be_bytes(input.fixed())), input.item());
    let chain = Chain::of(&mut input);
    let Some(framing) = Framing::fixed(EVENT) else { failed("framing") };
    let salt = key.salt(device, index);
    let (mut item, mut length) = ([0; 512], 0);
    for of in [Of::Instructions, Of::Stack] {
        let mut star = Star::<16>::new(device, index, &salt, framing);
        push_all(&mut star, events);
        meter.once(of, "seal", &mut || {
            let closed = star.close_in_place();
            let mut sign = |message: &[u8], signature: &mut [u8; 64]| {
                signature[..2].copy_from_slice(&(message.len() as u16).to_be_bytes());
            };
            length = chain.seal((device, index, salt), &closed, &mut sign, &mut item);
        });
    }
    meter.result("item", &item[..length]);
    meter.end()
}
