//! The receiver of a chain. Measures reading the chain's head, with and without checking its
//! signature, and receiving the messages, in blocks of one message and of ten.

use core::hint::black_box;

use moteseal_broadcast::{Head, Incoming, MAX_HEAD, Taken};
use moteseal_core::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, PublicKey};

use crate::{Input, Meter, Of, failed};

/// The maximum number of messages in a block.
pub const BLOCK: usize = 10;

/// The sender of a chain: its network, id and public key.
pub struct Sender {
    network: NetworkId,
    id: DeviceId,
    key: PublicKey,
}

impl Sender {
    /// Reads the sender from the input.
    pub fn of(input: &mut Input) -> Self {
        let (network, id) = (NetworkId(input.fixed()), DeviceId(input.fixed()));
        let Ok(key) = PublicKey::from_bytes(Algorithm::Ed25519, input.item()) else {
            failed("key")
        };
        Self { network, id, key }
    }

    /// Checks a head's signature. `scratch` is the buffer for the signed bytes. A mote would use
    /// its transmit buffer, because the stack is deepest in this function.
    #[must_use]
    #[inline(never)]
    pub fn open<'a>(&self, head: &'a [u8], scratch: &mut [u8; MAX_HEAD]) -> Option<Head<'a>> {
        Head::open(head, self.network, self.id, &self.key, scratch).ok()
    }
}

/// Receives all leaves in the input and returns their number.
pub fn take_all<const B: usize>(chain: &mut Incoming<B>, input: &mut Input) -> u64 {
    let per_block = u32::from(chain.outline().per_block);
    for number in 0..chain.outline().messages {
        let (block, index) = (number / per_block + 1, (number % per_block) as u8);
        match chain.take(block, index, input.item()) {
            Ok(Taken::Verified { .. } | Taken::Pending { .. }) => {}
            _ => failed("leaf"),
        }
    }
    if !chain.is_complete() {
        failed("chain");
    }
    chain.outline().messages.into()
}

/// Measures two chains: one with blocks of one message, one with blocks of ten messages.
pub fn measure(
    meter: &mut Meter,
    input: &mut Input,
    mut open: impl FnMut(&'static [u8]) -> Option<Head<'static>>,
) {
    meter.bytes("state", size_of::<Incoming<BLOCK>>());
    meter.bytes("state.1", size_of::<Incoming<1>>());
    meter.bytes("state.16", size_of::<Incoming<16>>());
    for [head_name, name] in [["head.1", "messages.1"], ["head.10", "messages.10"]] {
        let bytes = input.item();
        let start = *input;
        let mut count = 0;
        for of in [Of::Instructions, Of::Stack] {
            *input = start;
            let mut head = None;
            meter.once(of, head_name, &mut || head = open(black_box(bytes)));
            let Some(Ok(mut chain)) = head.map(|head| Incoming::<BLOCK>::new(&head)) else {
                failed("head")
            };
            meter.once(of, name, &mut || count = take_all(&mut chain, input));
        }
        meter.number("count", count);
    }
}
