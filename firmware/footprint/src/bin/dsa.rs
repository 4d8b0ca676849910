//! Measures signing with DSA-512, which the paper's table I lists.

#![no_std]
#![no_main]

use core::hint::black_box;

use crypto_bigint::U512;
use moteseal_board::entry;
use moteseal_footprint::big::{Dsa, Modulus};
use moteseal_footprint::{Meter, failed};

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (Some(p), Some(q)) = (Modulus::new(&input.fixed()), Modulus::new(&input.fixed())) else {
        failed("primes")
    };
    let [g, x, nonce, digest] = core::array::from_fn(|_| U512::from_be_slice(&input.fixed::<64>()));
    let key = Dsa { p, q, g, x };
    let mut signature = [0; 128];
    meter.measure("sign", &mut || {
        let Some((r, s)) = black_box(&key).sign(&digest, &nonce) else { failed("sign") };
        signature[..64].copy_from_slice(r.to_be_bytes().as_ref());
        signature[64..].copy_from_slice(s.to_be_bytes().as_ref());
    });
    meter.result("signature", &signature);
    meter.end()
}
