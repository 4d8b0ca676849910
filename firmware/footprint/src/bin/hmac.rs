//! Measures a message authentication code: HMAC-SHA-256 with a key that all nodes share.

#![no_std]
#![no_main]

use core::hint::black_box;

use hmac::{Hmac, KeyInit, Mac};
use moteseal_footprint::{Meter, failed};
use sha2::Sha256;

#[moteseal_board::entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (key, message) = (input.fixed::<32>(), input.item());
    let mut code = [0; 32];
    meter.bytes("state", size_of_val(&key));
    meter.measure("code", &mut || {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(black_box(&key)) else { failed("key") };
        mac.update(black_box(message));
        code = mac.finalize().into_bytes().into();
    });
    meter.result("code", &code);
    meter.end()
}
