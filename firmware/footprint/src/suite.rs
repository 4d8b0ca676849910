//! Measures signing and verifying with one signature suite.

use core::hint::black_box;

use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};

use crate::{Meter, failed};

/// Measures preparing a secret key and signing with it.
pub fn sign(algorithm: Algorithm) -> ! {
    let (mut meter, mut input) = Meter::start();
    let (seed, message) = (input.fixed::<32>(), input.item());
    let mut key = None;
    meter.measure("key", &mut || key = SecretKey::from_bytes(algorithm, black_box(&seed)).ok());
    let Some(key) = key else { failed("key") };
    meter.bytes("state", size_of::<SecretKey>());
    let mut signature = [0; 64];
    meter.measure("sign", &mut || {
        if key.sign(black_box(message), &mut signature).is_err() {
            failed("sign");
        }
    });
    meter.result("signature", &signature);
    meter.end()
}

/// Measures preparing a public key and verifying with it.
pub fn verify(algorithm: Algorithm) -> ! {
    let (mut meter, mut input) = Meter::start();
    let (public, message, signature) = (input.item(), input.item(), input.item());
    let mut key = None;
    meter.measure("key", &mut || key = PublicKey::from_bytes(algorithm, black_box(public)).ok());
    let Some(key) = key else { failed("key") };
    meter.bytes("state", size_of::<PublicKey>());
    meter.measure("verify", &mut || {
        if key.verify(black_box(message), signature).is_err() {
            failed("verify");
        }
    });
    meter.end()
}
