//! Tests that evidence can be checked with only the base stations' keys, and that a change of any
//! byte is detected.

use std::convert::Infallible;

use moteseal_broadcast::wire::MAX_BROADCAST_FRAME;
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, EvidenceCheck, EvidenceError, HeadError, KeyId, Kind,
    LeafError, MAX_HEAD, MAX_LEAF, MAX_SENDER_CERTIFICATE, OutgoingChain, SenderCertificateDraft,
    SenderCertificateError, Shown, Window, export, sender_named,
};
use moteseal_core::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};

const MESSAGES: u32 = 11;
const PER_BLOCK: u8 = 4;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[seed; 32]).unwrap()
}

fn network() -> NetworkId {
    NetworkId::of(&key(1).public())
}

fn message(number: u32) -> Vec<u8> {
    format!("order {number}{}", "!".repeat(number as usize)).into_bytes()
}

/// Returns the frames of the evidence of the first `blocks` blocks.
fn evidence(blocks: u32) -> Vec<Vec<u8>> {
    evidence_of(&key(2), blocks)
}

/// Like [`evidence`], for a sender with this key.
fn evidence_of(ops: &SecretKey, blocks: u32) -> Vec<Vec<u8>> {
    let base = key(1);
    let id = ChainId { network: network(), sender: sender_named("ops"), number: ChainNumber(3) };
    let ops_key = ops.public();
    let draft = SenderCertificateDraft {
        network: id.network,
        base: KeyId::of(&base.public()),
        serial: 5,
        sender: id.sender,
        key: &ops_key,
        not_before: 0,
        not_after: u64::MAX,
    };
    let certificate = draft.issue(&base, &mut [0; MAX_SENDER_CERTIFICATE]).unwrap().to_vec();
    let (mut digests, mut tags) = (vec![Digest::NULL; 11], vec![[0; 8]; 11]);
    let draft = ChainDraft {
        id,
        key: KeyId::of(&ops.public()),
        messages: MESSAGES,
        per_block: PER_BLOCK,
        kind: Kind::Announcement,
        label: "orders",
        window: Window::ALWAYS,
        previous: None,
        is_addressed: false,
    };
    let read = |number, buffer: &mut [u8]| {
        let message = message(number);
        buffer[..message.len()].copy_from_slice(&message);
        Ok::<_, Infallible>(message.len())
    };
    let chain =
        OutgoingChain::build(draft, &mut digests, &mut tags, &mut [0; MAX_LEAF], read).unwrap();
    let head = chain.head(ops, &mut [0; MAX_HEAD], &mut [0; MAX_HEAD]).unwrap().to_vec();
    let mut frames = Vec::new();
    let fetch = |block, index, out: &mut [u8]| {
        let message = message(chain.outline().message(block, index));
        Ok::<_, Infallible>(chain.leaf(block, index, &message, out).unwrap().len())
    };
    let write = |frame: &[u8]| {
        frames.push(frame.to_vec());
        Ok(())
    };
    let buffers = (&mut [0; MAX_LEAF][..], &mut [0; MAX_BROADCAST_FRAME][..]);
    export((&certificate, &head, chain.outline()), blocks, buffers, fetch, write).unwrap();
    frames
}

/// Returns the messages that the frames prove, in order, and the error that ended the check, if
/// any.
fn proven(frames: &[Vec<u8>], bases: &[PublicKey]) -> (Vec<Vec<u8>>, Option<EvidenceError>) {
    let mut check = EvidenceCheck::new(network(), bases);
    let (mut proven, mut pending) = (Vec::new(), Vec::new());
    for frame in frames {
        match check.take(frame) {
            Ok(Shown::Message { number, message, is_proven }) => {
                assert_eq!(number as usize, proven.len() + pending.len());
                pending.push(message.to_vec());
                if is_proven {
                    proven.append(&mut pending);
                }
                assert_eq!(check.proven(), Some((proven.len() as u32, MESSAGES)));
            }
            Ok(Shown::Head(head)) => assert_eq!(head.label(), "orders"),
            Ok(Shown::Certificate { certificate, .. }) => {
                assert_eq!(certificate.sender, sender_named("ops"));
            }
            Err(error) => return (proven, Some(error)),
        }
    }
    (proven, None)
}

fn all() -> Vec<Vec<u8>> {
    (0..MESSAGES).map(message).collect()
}

#[test]
fn every_number_of_complete_blocks_is_evidence() {
    let bases = [key(9).public(), key(1).public()];
    for blocks in 0..=4 {
        let count = (blocks * 4).min(11) as usize;
        assert_eq!(proven(&evidence(blocks), &bases), (all()[..count].to_vec(), None));
    }
    // The frames of an incomplete block prove no messages of that block.
    let frames = evidence(3);
    for length in 2..=frames.len() {
        let count = if length == frames.len() { 11 } else { (length - 2) / 4 * 4 };
        assert_eq!(proven(&frames[..length], &bases), (all()[..count].to_vec(), None));
    }
}

#[test]
fn rejects_every_flipped_bit_of_evidence() {
    let (bases, frames) = ([key(1).public()], evidence(3));
    for (at, frame) in frames.iter().enumerate() {
        for bit in 0..frame.len() * 8 {
            let mut forged = frames.clone();
            forged[at][bit / 8] ^= 1 << (bit % 8);
            let (messages, error) = proven(&forged, &bases);
            assert!(error.is_some(), "frame {at} bit {bit}");
            assert_eq!(messages, all()[..at.saturating_sub(2) / 4 * 4], "frame {at} bit {bit}");
        }
    }
}

#[test]
fn rejects_omitted_repeated_and_moved_frames() {
    let (bases, frames) = ([key(1).public()], evidence(3));
    for at in 0..frames.len() {
        for other in 0..frames.len() {
            let mut changed = frames.clone();
            changed.swap(at, other);
            assert_eq!(
                proven(&changed, &bases).1,
                (at != other).then_some(EvidenceError::OutOfOrder),
                "{at} {other}"
            );
        }
        let mut changed = frames.clone();
        changed.remove(at);
        let is_last = at + 1 == frames.len();
        assert_eq!(
            proven(&changed, &bases).1,
            (!is_last).then_some(EvidenceError::OutOfOrder),
            "without {at}"
        );
        changed.insert(at, frames[at].clone());
        changed.insert(at, frames[at].clone());
        assert_eq!(proven(&changed, &bases).1, Some(EvidenceError::OutOfOrder), "{at} twice");
    }
}

#[test]
fn rejects_evidence_of_other_base_stations_and_networks() {
    let frames = evidence(3);
    let refusal = |bases: &[PublicKey]| proven(&frames, bases).1;
    assert_eq!(
        refusal(&[key(2).public()]),
        Some(EvidenceError::Certificate(SenderCertificateError::UnknownBaseStation))
    );
    let bases = [key(1).public()];
    let mut check = EvidenceCheck::new(NetworkId([0; 8]), &bases);
    let refused = check.take(&frames[0]).unwrap_err();
    assert_eq!(refused, EvidenceError::Certificate(SenderCertificateError::WrongNetwork));
    // The certificate of one key is followed by the head and the leaves of a chain that another key
    // signed.
    let foreign = evidence_of(&key(3), 3);
    let mixed: Vec<_> = frames[..1].iter().chain(&foreign[1..]).cloned().collect();
    assert_eq!(
        proven(&mixed, &bases),
        (Vec::new(), Some(EvidenceError::Head(HeadError::WrongKey)))
    );
    let mixed: Vec<_> = frames[..2].iter().chain(&foreign[2..]).cloned().collect();
    assert_eq!(proven(&mixed, &bases), (Vec::new(), Some(EvidenceError::OutOfOrder)));
    let mut forged = frames;
    *forged[2].last_mut().unwrap() ^= 1;
    assert_eq!(
        proven(&forged, &bases),
        (Vec::new(), Some(EvidenceError::Leaf(LeafError::ForgedLeaf)))
    );
}
