//! Fuzzes the stored and transmitted data of authenticated broadcast: frames, certificates, heads,
//! leaves, snapshots and evidence. Data that decodes must have exactly one encoding. Only signed
//! objects may open. A receiver must accept only the sender's messages, in any order.

use std::sync::OnceLock;

use moteseal_broadcast::firmware::{
    FirmwareDraft, FirmwareManifest, IMAGE_TAG, UpdateReport, find_tag, image_tag,
};
use moteseal_broadcast::receipt::{ReceiptRelay, ReceiverKey, receivers};
use moteseal_broadcast::recovery::LinkSet;
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, EvidenceCheck, Head, Incoming, KeyId, Kind, MAX_HEAD,
    MAX_LEAF, MAX_REQUEST, MAX_REVOCATION, MAX_SENDER_CERTIFICATE, MAX_SINGLE, MAX_SNAPSHOT,
    OutgoingChain, Revocation, RevocationDraft, Revoked, SenderCertificate, SenderCertificateDraft,
    SenderRequest, SenderRequestDraft, Shown, SingleDraft, Taken, Window, export, open_single,
    sender_named,
};
use moteseal_core::Digest;
use moteseal_core::cbor::{Writer, item_length};
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey};

use crate::fixture;

const MESSAGES: [&[u8]; 5] = [b"open valve 3", b"", b"set 20 degrees", b"wait", b"close valve 3"];
const PER_BLOCK: u8 = 2;

fn ops() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap()
}

fn network() -> NetworkId {
    NetworkId::of(&fixture::operator().public())
}

fn id() -> ChainId {
    ChainId { network: network(), sender: sender_named("ops"), number: ChainNumber(3) }
}

/// A relay between two links combines what arrives from both sides, and whatever it sends can be
/// read.
fn pass_on(frame: &BroadcastFrame<'_>) {
    let (BroadcastFrame::Receipts { chain, .. } | BroadcastFrame::ReceiptsWanted { chain, .. }) =
        frame
    else {
        return;
    };
    let mut relay: ReceiptRelay<2, 16> = ReceiptRelay::new(LinkSet::first(2), 10, 1);
    relay.follow(*chain, LinkSet::one(0));
    relay.acknowledge(0, *chain, 5, [1; 16]);
    let mut out = vec![0; MAX_BROADCAST_FRAME];
    for now in 0..40 {
        relay.receive(now, u8::try_from(now % 2).expect("a link"), frame);
        while let Some(sent) = relay.poll(now, &mut out) {
            let sent = BroadcastFrame::decode(&out[..sent.length]);
            let Ok(BroadcastFrame::Receipts { chain: of, receivers: set, .. }) = sent else {
                panic!("a relay sends receipts");
            };
            assert!(of == *chain && receivers(set).is_ok_and(|set| set.count() > 0));
        }
    }
}

/// Decodes the bytes as each kind of object.
pub fn run(bytes: &[u8]) {
    let (base, ops) = (fixture::operator().public(), ops().public());
    let is_seed = || seeds().iter().any(|seed| seed == bytes);
    if let Ok(frame) = BroadcastFrame::decode(bytes) {
        let mut out = vec![0; bytes.len()];
        let mut writer = Writer::new(&mut out);
        frame.encode(&mut writer).expect("a decoded frame can be encoded");
        assert_eq!(&*writer.finish(), bytes, "two encodings of one frame");
        pass_on(&frame);
    }
    if FirmwareManifest::open_part(bytes, network(), &base).is_ok() {
        assert!(is_seed(), "only the base station signs manifests");
    }
    if let Ok((board, version)) = find_tag(bytes) {
        let tag = image_tag(board, version);
        let places = bytes.windows(IMAGE_TAG).filter(|place| **place == tag);
        assert_eq!(places.count(), 1, "an image has one tag");
    }
    if let Ok(report) = UpdateReport::decode(bytes) {
        assert_eq!(report.encode(), bytes, "two encodings of one report");
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok((key, name)) = ReceiverKey::parse(text)
    {
        let mut written = String::new();
        key.write(name, &mut written).expect("a string has room");
        assert!(written.lines().eq(text.lines()), "two files of one key");
    }
    if SenderRequest::open(bytes).is_ok() {
        assert!(is_seed(), "a request that was never signed");
    }
    let _ = SenderCertificate::peek(bytes);
    if SenderCertificate::open(bytes, network(), &base).is_ok()
        || Revocation::open(bytes, network(), std::slice::from_ref(&base)).is_ok()
    {
        assert!(is_seed(), "an object that the base station never signed");
    }
    if Head::open(bytes, network(), sender_named("ops"), &ops, &mut [0; MAX_HEAD]).is_ok() {
        assert!(is_seed(), "a head that was never signed");
    }
    if let Ok(head) = Head::reopen(bytes)
        && let Ok(mut chain) = Incoming::<64>::new(&head)
    {
        let _ = chain.take(1, 0, bytes);
    }
    let mut scratch = vec![0; MAX_SINGLE];
    if let Ok(single) = open_single(bytes, network(), sender_named("ops"), &ops, &mut scratch) {
        assert_eq!(single.message(), MESSAGES[0], "a message that was never sent");
    }
    if let Ok(chain) = Incoming::<64>::restore(bytes) {
        assert_eq!(
            chain.save(&mut [0; MAX_SNAPSHOT]).expect("it fits"),
            bytes,
            "two encodings of one snapshot"
        );
        assert!(
            chain.current() <= chain.outline().blocks() + 1
                && chain.outline().largest_block() <= 64
        );
    }
    fragments(bytes);
    evidence(bytes);
}

/// Uses the bytes, cut at each zero, as leaves of the chain. Every message that a receiver verifies
/// must be one that the sender sent.
fn fragments(bytes: &[u8]) {
    let (_, head, leaves) = chain();
    let head = Head::reopen(head).expect("it was signed");
    let mut chain = Incoming::<2>::new(&head).expect("its blocks have two messages");
    for piece in bytes.split(|byte| *byte == 0).take(8) {
        for index in 0..3 {
            let (block, before) = (chain.current(), chain.missing());
            let number =
                usize::try_from(block - 1).unwrap() * usize::from(PER_BLOCK) + usize::from(index);
            match chain.take(block, index, piece) {
                Ok(Taken::Verified { message, .. } | Taken::Pending { message }) => {
                    assert_eq!(message, MESSAGES[number]);
                }
                Ok(Taken::Repeated) => {
                    assert_eq!(piece, leaves[number], "a repetition of a different leaf");
                }
                Err(_) => {
                    assert_eq!(chain.missing(), before, "a refused leaf has changed the state");
                }
            }
        }
    }
}

fn evidence(bytes: &[u8]) {
    let bases = [fixture::operator().public()];
    let mut check = EvidenceCheck::new(network(), &bases);
    let mut rest = bytes;
    while let Ok(length) = item_length(rest) {
        let (frame, behind) = rest.split_at(length);
        rest = behind;
        match check.take(frame) {
            Ok(Shown::Message { number, message, .. }) => {
                assert_eq!(message, MESSAGES[number as usize], "a message that was never sent");
            }
            Ok(_) => {}
            Err(_) => return,
        }
        if rest.is_empty() {
            return;
        }
    }
}

/// The certificate, the head and the leaves of a chain.
type Built = (Vec<u8>, Vec<u8>, Vec<Vec<u8>>);

fn chain() -> &'static Built {
    static CHAIN: OnceLock<Built> = OnceLock::new();
    CHAIN.get_or_init(signed)
}

fn signed() -> Built {
    let (base, ops) = (fixture::operator(), ops());
    let key = ops.public();
    let draft = SenderCertificateDraft {
        network: network(),
        base: KeyId::of(&base.public()),
        serial: 7,
        sender: sender_named("ops"),
        key: &key,
        not_before: 0,
        not_after: u64::MAX,
    };
    let certificate = draft.issue(&base, &mut [0; MAX_SENDER_CERTIFICATE]).unwrap().to_vec();
    let (mut digests, mut tags) = ([Digest::NULL; 3], [[0; 8]; 5]);
    let draft = ChainDraft {
        id: id(),
        key: KeyId::of(&key),
        messages: 5,
        per_block: PER_BLOCK,
        kind: Kind::Announcement,
        label: "orders",
        window: Window::ALWAYS,
        previous: None,
        is_addressed: false,
    };
    let read = |number: u32, buffer: &mut [u8]| {
        let message = MESSAGES[number as usize];
        buffer[..message.len()].copy_from_slice(message);
        Ok::<_, core::convert::Infallible>(message.len())
    };
    let chain =
        OutgoingChain::build(draft, &mut digests, &mut tags, &mut [0; MAX_LEAF], read).unwrap();
    let head = chain.head(&ops, &mut [0; MAX_HEAD], &mut [0; MAX_HEAD]).unwrap().to_vec();
    let leaf = |number: usize| {
        let (block, index) = (number as u32 / 2 + 1, (number % 2) as u8);
        chain.leaf(block, index, MESSAGES[number], &mut [0; MAX_LEAF]).unwrap().to_vec()
    };
    (certificate, head, (0..5).map(leaf).collect())
}

/// Returns one seed for each kind of object.
pub fn seeds() -> Vec<Vec<u8>> {
    let (base, ops) = (fixture::operator(), ops());
    let (certificate, head, leaves) = chain();
    let key = ops.public();
    let request = SenderRequestDraft { sender: sender_named("ops"), key: &key }
        .issue(&ops, &mut [0; MAX_REQUEST])
        .unwrap()
        .to_vec();
    let draft =
        RevocationDraft { network: network(), base: &base.public(), revoked: Revoked::below(7) };
    let revocation = draft.issue(&base, &mut [0; MAX_REVOCATION]).unwrap().to_vec();
    let draft = SingleDraft {
        id: id(),
        kind: Kind::Announcement,
        label: "",
        window: Window::ALWAYS,
        previous: None,
        message: MESSAGES[0],
    };
    let single = draft.seal(&ops, &mut [0; MAX_SINGLE], &mut [0; MAX_SINGLE]).unwrap().to_vec();
    let opened = Head::reopen(head).unwrap();
    let snapshot =
        Incoming::<64>::new(&opened).unwrap().save(&mut [0; MAX_SNAPSHOT]).unwrap().to_vec();
    let mut evidence = Vec::new();
    let fetch = |block: u32, index: u8, out: &mut [u8]| {
        let leaf = &leaves[opened.outline().message(block, index) as usize];
        out[..leaf.len()].copy_from_slice(leaf);
        Ok::<_, core::convert::Infallible>(leaf.len())
    };
    let write = |frame: &[u8]| {
        evidence.extend_from_slice(frame);
        Ok(())
    };
    let buffers = (&mut [0; MAX_LEAF][..], &mut [0; MAX_BROADCAST_FRAME][..]);
    export((certificate, head, opened.outline()), 3, buffers, fetch, write).unwrap();
    let chain = opened.reference();
    let frames = [
        BroadcastFrame::Revocation(&revocation),
        BroadcastFrame::Wanted { chain, block: 2, wanted: 3 },
        BroadcastFrame::Holds { chain, block: 2, index: 1 },
        BroadcastFrame::Repair { chain, block: 1, mask: 3, lengths: 9, bytes: &leaves[1] },
        BroadcastFrame::Receipts { chain, receivers: &[10, 3], tag: [7; 16] },
        BroadcastFrame::ReceiptsWanted { chain, most: 3, receivers: &[10, 3] },
        BroadcastFrame::HeadWanted { key: opened.key(), above: 2, receiver: 5, tag: [7; 16] },
        BroadcastFrame::HeadFor { receiver: 5, tag: [7; 16], head },
        BroadcastFrame::ReceiverWanted {
            chain,
            block: 2,
            wanted: 3,
            attempt: 1,
            receiver: 5,
            tag: [7; 16],
        },
    ];
    let encoded = |frame: BroadcastFrame<'_>| {
        let mut out = vec![0; MAX_BROADCAST_FRAME];
        let mut writer = Writer::new(&mut out);
        frame.encode(&mut writer).unwrap();
        writer.finish().to_vec()
    };
    let pieces = leaves.join(&0);
    let manifest = FirmwareDraft {
        network: network(),
        base: KeyId::of(&base.public()),
        board: "mps2-an385",
        version: 7,
        length: 70_000,
        digest: [5; 32],
    };
    [
        manifest.issue_part(&base).unwrap().to_vec(),
        image_tag("mps2-an385", 7).to_vec(),
        UpdateReport::Confirmed(7).encode().to_vec(),
        request,
        certificate.clone(),
        revocation.clone(),
        head.clone(),
        single,
        snapshot,
        evidence,
        pieces,
    ]
    .into_iter()
    .chain(frames.map(encoded))
    .collect()
}
