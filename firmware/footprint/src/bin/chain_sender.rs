//! Measures the sender of a chain: hashing and signing 20 messages of 48 bytes, in blocks of ten.

#![no_std]
#![no_main]

use core::convert::Infallible;
use core::hint::black_box;

use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, KeyId, Kind, MAX_HEAD, MAX_LEAF, OutgoingChain, Window,
};
use moteseal_core::DeviceId;
use moteseal_core::digest::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_footprint::{Meter, failed};

const MESSAGES: u32 = 20;
const LENGTH: usize = 48;

#[moteseal_board::entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (network, sender) = (NetworkId(input.fixed()), DeviceId(input.fixed()));
    let Ok(key) = SecretKey::from_bytes(Algorithm::Ed25519, &input.fixed::<32>()) else {
        failed("key")
    };
    let message = |number: u32| [number as u8; LENGTH];
    let (mut digests, mut tags) = ([Digest::NULL; MESSAGES as usize], [[0; 8]; MESSAGES as usize]);
    let (mut scratch, mut head) = ([0; MAX_LEAF], [0; MAX_HEAD]);
    let mut length = 0;
    meter.measure("head", &mut || {
        let draft = ChainDraft {
            id: ChainId { network, sender, number: ChainNumber(2) },
            key: KeyId::of(&key.public()),
            messages: MESSAGES,
            per_block: 10,
            kind: Kind::Announcement,
            is_addressed: false,
            label: "footprint",
            window: Window::ALWAYS,
            previous: None,
        };
        let chain =
            OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, |number, buffer| {
                let message = black_box(message(number));
                let Some(place) = buffer.get_mut(..LENGTH) else { failed("buffer") };
                place.copy_from_slice(&message);
                Ok::<_, Infallible>(LENGTH)
            });
        let Ok(chain) = chain else { failed("chain") };
        let mut signed = [0; MAX_HEAD];
        let Ok(bytes) = chain.head(&key, &mut signed, &mut head) else { failed("head") };
        length = bytes.len();
        // The leaves are written as they are sent.
        let mut leaf = [0; MAX_LEAF];
        for number in 0..MESSAGES {
            let (block, index) = (number / 10 + 1, (number % 10) as u8);
            if chain.leaf(block, index, &message(number), &mut leaf).is_err() {
                failed("leaf");
            }
            black_box(&leaf);
        }
    });
    meter.result("head", &head[..length]);
    meter.end()
}
