//! Measures signing with RSA-1024, which the paper's table I lists.

#![no_std]
#![no_main]

use core::hint::black_box;

use crypto_bigint::U512;
use moteseal_board::entry;
use moteseal_footprint::big::{Modulus, Rsa};
use moteseal_footprint::{Meter, failed};

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (Some(p), Some(q)) = (Modulus::new(&input.fixed()), Modulus::new(&input.fixed())) else {
        failed("primes")
    };
    let [dp, dq, q_inverse] = core::array::from_fn(|_| U512::from_be_slice(&input.fixed::<64>()));
    let key = Rsa { p, q, dp, dq, q_inverse };
    let message = input.fixed::<128>();
    let mut signature = [0; 128];
    meter.measure("sign", &mut || {
        signature.copy_from_slice(black_box(&key).sign(&message).to_be_bytes().as_ref());
    });
    meter.result("signature", &signature);
    meter.end()
}
