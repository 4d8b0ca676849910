//! Measures all parts in one program: a star of 16 levels sealed with Ed25519, a source of private
//! sums, and the receiver of a chain that checks the chain's heads.

#![no_std]
#![no_main]

use moteseal_board::entry;
use moteseal_broadcast::{Incoming, MAX_HEAD};
use moteseal_core::record::Framing;
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_core::{DeviceId, SealIndex};
use moteseal_footprint::broadcast::{BLOCK, Sender, take_all};
use moteseal_footprint::seal::Chain;
use moteseal_footprint::star::{EVENT, push_all};
use moteseal_footprint::{Meter, Of, failed};
use moteseal_seal::Star;
use moteseal_seal::level::SaltKey;
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{Slot, SourceSecret};

#[entry]
fn main() -> ! {
    let (mut meter, mut input) = Meter::start();
    let (device, salt_key) = (DeviceId(input.fixed()), SaltKey::new(input.fixed()));
    let (index, events) = (SealIndex(u32::from_be_bytes(input.fixed())), input.item());
    let chain = Chain::of(&mut input);
    let Ok(key) = SecretKey::from_bytes(Algorithm::Ed25519, &input.fixed::<32>()) else {
        failed("key")
    };
    let (secret, query) = (SourceSecret::from_bytes(&input.fixed()), QueryId(input.fixed()));
    let sender = Sender::of(&mut input);
    let head = input.item();
    let Some(framing) = Framing::fixed(EVENT) else { failed("framing") };
    meter.bytes(
        "state",
        size_of::<(
            Star<16>,
            SecretKey,
            SaltKey,
            Chain,
            SourceSecret,
            EpochGuard,
            Sender,
            Incoming<BLOCK>,
        )>() + MAX_HEAD,
    );
    let (mut room, mut item, mut length) = ([0; MAX_HEAD], [0; 512], 0);
    for of in [Of::Instructions, Of::Stack] {
        let mut input = input;
        let salt = salt_key.salt(device, index);
        let mut star = Star::<16>::new(device, index, &salt, framing);
        meter.once(of, "push", &mut || push_all(&mut star, events));
        meter.once(of, "seal", &mut || {
            let closed = star.close_in_place();
            let mut sign = |message: &[u8], signature: &mut [u8; 64]| {
                if key.sign(message, signature).is_err() {
                    failed("sign");
                }
            };
            length = chain.seal((device, index, salt), &closed, &mut sign, &mut item);
        });
        let mut guard = EpochGuard::default();
        meter.once(of, "reading", &mut || {
            let source = secret.for_query(query);
            let Ok(mut permit) = guard.advance(query, 30_000, 66_051) else { failed("guard") };
            if source.encrypt(&mut permit, Slot(0), 258).is_err() {
                failed("encrypt");
            }
        });
        let mut opened = None;
        meter.once(of, "head", &mut || opened = sender.open(head, &mut room));
        let Some(Ok(mut incoming)) = opened.map(|head| Incoming::<BLOCK>::new(&head)) else {
            failed("head")
        };
        meter.once(of, "messages", &mut || {
            take_all(&mut incoming, &mut input);
        });
    }
    meter.result("item", &item[..length]);
    meter.end()
}
