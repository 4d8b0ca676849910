//! Makes the frames of a base station and of a sender that it has certified, for the C tests.

use std::error::Error;

use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, KeyId, Kind, MAX_HEAD, MAX_LEAF, MAX_REVOCATION,
    MAX_SENDER_CERTIFICATE, MAX_SINGLE, OutgoingChain, RevocationDraft, Revoked,
    SenderCertificateDraft, SingleDraft, Window, sender_named,
};
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey};

const MESSAGES: u32 = 20;
const PER_BLOCK: u8 = 8;

/// Returns all frames, each preceded by its length.
pub(crate) fn frames() -> Result<Vec<u8>, Box<dyn Error>> {
    let base = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32])?;
    let (network, sender) = (NetworkId::of(&base.public()), sender_named("ops"));
    let id = |number| ChainId { network, sender, number: ChainNumber(number) };
    let mut out = Vec::new();
    put(&mut out, &base.public().to_bytes())?;

    let (public, base_id) = (key.public(), KeyId::of(&base.public()));
    let draft = SenderCertificateDraft {
        network,
        base: base_id,
        serial: 7,
        sender,
        key: &public,
        not_before: 1000,
        not_after: 1_900_000_000,
    };
    let mut buffer = [0; MAX_SENDER_CERTIFICATE];
    frame(&mut out, &BroadcastFrame::Certificate(draft.issue(&base, &mut buffer)?))?;

    let draft = ChainDraft {
        id: id(5),
        key: KeyId::of(&public),
        messages: MESSAGES,
        per_block: PER_BLOCK,
        kind: Kind::Announcement,
        label: "hello",
        window: Window::ALWAYS,
        previous: None,
        is_addressed: false,
    };
    let (mut digests, mut tags, mut scratch) =
        ([Digest::NULL; 3], [[0; 8]; MESSAGES as usize], [0; MAX_LEAF]);
    let read = |number: u32, buffer: &mut [u8]| -> Result<usize, std::convert::Infallible> {
        let text = message(number);
        buffer[..text.len()].copy_from_slice(text.as_bytes());
        Ok(text.len())
    };
    let chain = OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, read)?;
    let mut head = [0; MAX_HEAD];
    frame(&mut out, &BroadcastFrame::Head(chain.head(&key, &mut scratch, &mut head)?))?;
    for block in 1..=chain.blocks() {
        for index in 0..chain.in_block(block) {
            let number = chain.outline().message(block, index);
            let mut leaf = [0; MAX_LEAF];
            let leaf = chain.leaf(block, index, message(number).as_bytes(), &mut leaf)?;
            frame(
                &mut out,
                &BroadcastFrame::Fragment { chain: chain.reference(), block, index, leaf },
            )?;
        }
    }

    let draft = SingleDraft {
        id: id(6),
        kind: Kind::Announcement,
        label: "",
        window: Window::ALWAYS,
        previous: None,
        message: b"reboot",
    };
    let mut single = [0; MAX_SINGLE];
    put(&mut out, draft.seal(&key, &mut scratch, &mut single)?)?;

    let draft =
        RevocationDraft { network, base: &base.public(), revoked: Revoked::below(8).and(12)? };
    let mut buffer = [0; MAX_REVOCATION];
    frame(&mut out, &BroadcastFrame::Revocation(draft.issue(&base, &mut buffer)?))?;

    // A command for named receivers, as a receiver without a key sees it.
    let draft = ChainDraft {
        id: id(7),
        key: KeyId::of(&public),
        messages: 1,
        per_block: 1,
        kind: Kind::Command,
        label: "",
        window: Window { not_before: 1000, not_after: 2000 },
        previous: None,
        is_addressed: true,
    };
    let mut digests = [Digest::NULL; 1];
    let chain = OutgoingChain::build(draft, &mut digests, &mut [], &mut scratch, read)?;
    let (mut head, leaf) = ([0; MAX_HEAD], message(0));
    let head = chain.head(&key, &mut scratch, &mut head)?;
    frame(&mut out, &BroadcastFrame::Single { head, leaf: leaf.as_bytes() })?;
    Ok(out)
}

fn message(number: u32) -> String {
    format!("message {number}")
}

fn frame(out: &mut Vec<u8>, frame: &BroadcastFrame<'_>) -> Result<(), Box<dyn Error>> {
    let mut buffer = vec![0; MAX_SINGLE];
    let mut writer = Writer::new(&mut buffer);
    frame.encode(&mut writer)?;
    put(out, writer.finish())
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    out.extend_from_slice(&u16::try_from(bytes.len())?.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}
