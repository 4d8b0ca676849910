//! Measures key agreement on P-256: an ephemeral key, and the secret that it shares with another key.

#![no_std]
#![no_main]

use core::hint::black_box;

use moteseal_board::entry;
use moteseal_footprint::{Meter, failed};
use p256::elliptic_curve::point::AffineCoordinates as _;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::{PublicKey, SecretKey};

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (seed, other) = (input.fixed::<32>(), input.item());
    let Ok(secret) = SecretKey::from_slice(&seed) else { failed("secret") };
    let mut public = [0; 65];
    meter.measure("key", &mut || {
        let point = black_box(&secret).public_key().to_sec1_point(false);
        public.copy_from_slice(point.as_bytes());
    });
    meter.result("public", &public);
    let mut shared = [0; 32];
    meter.measure("agree", &mut || {
        let Ok(other) = PublicKey::from_sec1_bytes(black_box(other)) else { failed("public") };
        let point = other.to_projective() * *secret.to_nonzero_scalar();
        shared.copy_from_slice(&point.to_affine().x());
    });
    meter.result("shared", &shared);
    meter.end()
}
