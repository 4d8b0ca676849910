//! Measures the hash functions of the paper's table I, each over 10 bytes, and one compression of
//! SHA-256, which is the unit of the other measurements.

#![no_std]
#![no_main]

use core::hint::black_box;

use md5::Md5;
use moteseal_board::entry;
use moteseal_core::digest::{INITIAL, compress256};
use moteseal_footprint::Meter;
use sha1::Sha1;
use sha2::{Digest, Sha256};

fn hash<D: Digest>(meter: &mut Meter, name: &str, text: &[u8]) {
    let mut digest = [0; 32];
    meter.measure(name, &mut || {
        let output = D::digest(black_box(text));
        for (to, from) in digest.iter_mut().zip(&output) {
            *to = *from;
        }
    });
    meter.result(name, &digest[..<D as Digest>::output_size()]);
}

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let text = input.item();
    hash::<Md5>(&mut meter, "md5", text);
    hash::<Sha1>(&mut meter, "sha1", text);
    hash::<Sha256>(&mut meter, "sha256", text);
    let (mut state, mut block) = (INITIAL, [0; 64]);
    block[..text.len()].copy_from_slice(text);
    meter.measure("compress", &mut || compress256(black_box(&mut state), black_box(&[block])));
    meter.end()
}
