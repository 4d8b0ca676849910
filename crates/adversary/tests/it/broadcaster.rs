//! Tests of an attacker on the radio. Each assault must be possible. Its frames must be well
//! formed, and the checks of the broadcast protocol must reject them.

use std::convert::Infallible;

use moteseal_adversary::broadcaster::{Assault, Broadcaster, MAX_FORGED, REMEMBERED};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, Head, Incoming, KeyId, Kind, MAX_HEAD, MAX_LEAF,
    MAX_SENDER_CERTIFICATE, OutgoingChain, Revocation, SenderCertificate, SenderCertificateDraft,
    Taken, Window, open_single, sender_named,
};
use moteseal_core::Digest;
use moteseal_core::cbor::Writer;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, SecretKey};

const MESSAGES: u32 = 12;
const PER_BLOCK: u8 = 4;

/// A sender with a chain, and all its frames.
struct Scene {
    base: SecretKey,
    key: SecretKey,
    network: NetworkId,
    id: ChainId,
    certificate: Vec<u8>,
    head: Vec<u8>,
    leaves: Vec<(u32, u8, Vec<u8>)>,
}

fn frame(frame: &BroadcastFrame<'_>) -> Vec<u8> {
    let mut buffer = vec![0; MAX_FORGED];
    let mut out = Writer::new(&mut buffer);
    frame.encode(&mut out).unwrap();
    out.finish().to_vec()
}

impl Scene {
    fn new(number: u64) -> Self {
        let key = |seed| SecretKey::from_seed(Algorithm::Ed25519, &[seed; 32]).unwrap();
        let (base, key) = (key(1), key(2));
        let network = NetworkId::of(&base.public());
        let id = ChainId { network, sender: sender_named("ops"), number: ChainNumber(number) };
        let mut buffer = [0; MAX_SENDER_CERTIFICATE];
        let draft = SenderCertificateDraft {
            network,
            base: KeyId::of(&base.public()),
            serial: 7,
            sender: id.sender,
            key: &key.public(),
            not_before: 0,
            not_after: u64::MAX,
        };
        let certificate = draft.issue(&base, &mut buffer).unwrap().to_vec();
        let draft = ChainDraft {
            id,
            key: KeyId::of(&key.public()),
            messages: MESSAGES,
            per_block: PER_BLOCK,
            kind: Kind::Announcement,
            label: "",
            window: Window::ALWAYS,
            previous: None,
            is_addressed: false,
        };
        let (mut digests, mut tags) =
            ([Digest::NULL; MESSAGES as usize], [[0; 8]; MESSAGES as usize]);
        let mut scratch = [0; MAX_LEAF];
        let chain =
            OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, |number, out| {
                out[..20].fill(u8::try_from(number).unwrap());
                Ok::<_, Infallible>(20)
            })
            .unwrap();
        let (mut signed, mut head) = ([0; MAX_HEAD], [0; MAX_HEAD]);
        let head = chain.head(&key, &mut signed, &mut head).unwrap().to_vec();
        let mut leaves = Vec::new();
        for block in 1..=chain.blocks() {
            for index in 0..chain.in_block(block) {
                let message = [u8::try_from(chain.outline().message(block, index)).unwrap(); 20];
                leaves.push((
                    block,
                    index,
                    chain.leaf(block, index, &message, &mut scratch).unwrap().to_vec(),
                ));
            }
        }
        Self { base, key, network, id, certificate, head, leaves }
    }

    fn frames(&self) -> Vec<Vec<u8>> {
        let first = [
            frame(&BroadcastFrame::Certificate(&self.certificate)),
            frame(&BroadcastFrame::Head(&self.head)),
        ];
        let leaves = self.leaves.iter().map(|(block, index, leaf)| {
            frame(&BroadcastFrame::Fragment {
                chain: self.id.reference(KeyId::of(&self.key.public())),
                block: *block,
                index: *index,
                leaf,
            })
        });
        first.into_iter().chain(leaves).collect()
    }

    /// Returns a receiver that has verified all blocks before `block`.
    fn receiver(&self, block: u32) -> Incoming<{ PER_BLOCK as usize }> {
        let mut scratch = [0; MAX_HEAD];
        let head =
            Head::open(&self.head, self.network, self.id.sender, &self.key.public(), &mut scratch)
                .unwrap();
        let mut incoming = Incoming::new(&head).unwrap();
        for (block, index, leaf) in self.leaves.iter().filter(|(of, ..)| *of < block) {
            incoming.take(*block, *index, leaf).unwrap();
        }
        incoming
    }

    /// Returns whether the frame is a forgery that a receiver in some state would accept.
    fn accepts_forgery(&self, bytes: &[u8]) -> bool {
        let mut scratch = [0; MAX_HEAD];
        let base = self.base.public();
        match BroadcastFrame::decode(bytes) {
            Ok(BroadcastFrame::Certificate(certificate)) => {
                SenderCertificate::open(certificate, self.network, &base).is_ok()
                    && certificate != self.certificate
            }
            Ok(BroadcastFrame::Revocation(revocation)) => {
                Revocation::open(revocation, self.network, &[base]).is_ok()
            }
            Ok(BroadcastFrame::Head(head)) => {
                let opened = Head::open(
                    head,
                    self.network,
                    self.id.sender,
                    &self.key.public(),
                    &mut scratch,
                );
                opened.is_ok_and(|head| head.id().number >= self.id.number) && head != self.head
            }
            Ok(BroadcastFrame::Single { .. }) => {
                open_single(bytes, self.network, self.id.sender, &self.key.public(), &mut scratch)
                    .is_ok()
            }
            Ok(BroadcastFrame::Fragment { chain, block, index, leaf }) => {
                let is_genuine =
                    self.leaves.iter().any(|(b, i, l)| (*b, *i, &l[..]) == (block, index, leaf));
                let accepted = (1..=MESSAGES / u32::from(PER_BLOCK)).any(|at| {
                    matches!(
                        self.receiver(at).take(block, index, leaf),
                        Ok(Taken::Pending { .. } | Taken::Verified { .. })
                    )
                });
                chain == self.id.reference(KeyId::of(&self.key.public())) && accepted && !is_genuine
            }
            // A receiver treats these frames only as hints.
            Ok(
                BroadcastFrame::Wanted { .. }
                | BroadcastFrame::Holds { .. }
                | BroadcastFrame::Repair { .. },
            )
            | Err(_) => false,
            // A receiver without a key does nothing with these frames.
            Ok(
                BroadcastFrame::Receipts { .. }
                | BroadcastFrame::ReceiptsWanted { .. }
                | BroadcastFrame::HeadWanted { .. }
                | BroadcastFrame::HeadFor { .. }
                | BroadcastFrame::ReceiverWanted { .. },
            ) => false,
        }
    }
}

fn sent(attacker: &mut Broadcaster, frames: usize) -> Vec<Vec<u8>> {
    let mut out = vec![0; MAX_FORGED];
    (0..frames)
        .filter_map(|_| {
            let due = attacker.next_due()?;
            attacker.send(due, &mut out).map(|length| out[..length].to_vec())
        })
        .collect()
}

#[test]
fn every_assault_is_possible_and_rejected() {
    let (scene, earlier) = (Scene::new(9), Scene::new(8));
    for assault in Assault::ALL {
        let mut attacker = Broadcaster::new(&[assault], 100, 0, [3; 32]);
        earlier.frames().iter().for_each(|frame| attacker.remember(frame));
        for frame in scene.frames() {
            attacker.receive(&frame);
            for frame in sent(&mut attacker, 20) {
                assert!(!scene.accepts_forgery(&frame), "{}: {frame:02x?}", assault.about());
            }
        }
        assert!(
            attacker.sent().iter().any(|(of, count)| *of == assault && *count > 100),
            "{}",
            assault.about()
        );
    }
}

/// The forgeries must be well formed, so that a receiver has to check their signatures.
#[test]
fn forged_heads_and_certificates_fail_only_by_their_signature() {
    let scene = Scene::new(9);
    let mut scratch = [0; MAX_HEAD];
    let mut attacker = Broadcaster::new(
        &[Assault::ForgeHeads, Assault::ForgeCertificates, Assault::ForgeRevocations],
        10,
        0,
        [4; 32],
    );
    scene.frames().iter().for_each(|frame| attacker.receive(frame));
    let (mut heads, mut digests) = (0, std::collections::BTreeSet::new());
    for frame in sent(&mut attacker, 300) {
        let name = match BroadcastFrame::decode(&frame).unwrap() {
            BroadcastFrame::Head(head) => {
                heads += 1;
                assert!(Head::peek(head).unwrap().id().number >= scene.id.number);
                digests.insert(head.to_vec());
                Head::open(head, scene.network, scene.id.sender, &scene.key.public(), &mut scratch)
                    .unwrap_err()
                    .name()
            }
            BroadcastFrame::Certificate(certificate) => {
                match SenderCertificate::open(certificate, scene.network, &scene.base.public())
                    .map(|_| ())
                    .unwrap_err()
                    .name()
                {
                    // Half of the certificates are genuine ones with one changed bit, so their
                    // errors vary.
                    "NotAuthentic" => "NotAuthentic",
                    _ => continue,
                }
            }
            BroadcastFrame::Revocation(revocation) => {
                Revocation::open(revocation, scene.network, &[scene.base.public()])
                    .unwrap_err()
                    .name()
            }
            _ => unreachable!("no other kind of frame is sent"),
        };
        assert_eq!(name, "NotAuthentic");
    }
    assert_eq!((heads, digests.len()), (100, 100), "each head has a different digest");
}

/// If the head is forged, it matches its message, and only the signature is wrong. If the head is
/// genuine, the message differs from the message to which the head commits.
#[test]
fn forged_commands_fail_by_their_signature_or_as_another_message() {
    let scene = Scene::new(9);
    let mut scratch = [0; MAX_HEAD];
    let mut attacker = Broadcaster::new(&[Assault::ForgeSingles], 10, 0, [8; 32]);
    scene.frames().iter().for_each(|frame| attacker.receive(frame));
    let mut names = std::collections::BTreeSet::new();
    for frame in sent(&mut attacker, 100) {
        let opened =
            open_single(&frame, scene.network, scene.id.sender, &scene.key.public(), &mut scratch);
        names.insert(opened.unwrap_err().name());
    }
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["NotAuthentic", "NotSingle"],
        "the genuine head has many messages"
    );
}

/// Each forged head is well formed, so a receiver has to check its signature.
#[test]
fn every_forged_head_is_well_formed() {
    let scene = Scene::new(9);
    let mut attacker = Broadcaster::new(&[Assault::ForgeHeads], 10, 0, [9; 32]);
    scene.frames().iter().for_each(|frame| attacker.receive(frame));
    for frame in sent(&mut attacker, 1000) {
        let Ok(BroadcastFrame::Head(head)) = BroadcastFrame::decode(&frame) else {
            panic!("the frame is not a head")
        };
        assert!(Head::peek(head).is_ok(), "{head:02x?}");
    }
}

#[test]
fn replays_only_recorded_frames_in_bounded_memory() {
    let (scene, earlier) = (Scene::new(9), Scene::new(8));
    let mut attacker =
        Broadcaster::new(&[Assault::ReplayOld, Assault::ReplayPresent], 10, 0, [5; 32]);
    assert!(
        sent(&mut attacker, 10).is_empty(),
        "nothing must be replayed before a frame was recorded"
    );
    earlier.frames().iter().for_each(|frame| attacker.remember(frame));
    (0..2 * REMEMBERED).for_each(|_| attacker.receive(&scene.frames()[0]));
    scene.frames().iter().for_each(|frame| attacker.receive(frame));
    let known: Vec<_> = scene.frames().into_iter().chain(earlier.frames()).collect();
    let replayed = sent(&mut attacker, 200);
    assert_eq!(replayed.len(), 200);
    assert!(replayed.iter().all(|frame| known.contains(frame)));
    assert!(
        earlier.frames().iter().all(|frame| replayed.contains(frame)),
        "an earlier chain must be replayed completely"
    );
}

#[test]
fn the_same_seed_sends_the_same_frames_at_the_stated_rate() {
    let scene = Scene::new(9);
    let frames_of = |seed| {
        let mut attacker = Broadcaster::new(&Assault::ALL, 20, 5000, seed);
        scene.frames().iter().for_each(|frame| attacker.receive(frame));
        assert_eq!(attacker.send(4999, &mut [0; MAX_FORGED]), None, "no frame before the start");
        let frames = sent(&mut attacker, 100);
        assert_eq!(attacker.next_due(), Some(10_000), "a hundred frames at twenty a second");
        frames
    };
    assert_eq!(frames_of([6; 32]), frames_of([6; 32]));
    assert_ne!(frames_of([6; 32]), frames_of([7; 32]));
}
