//! Helpers for tests of one node: they pass frames to the node and collect the frames that it
//! sends.
use moteseal_broadcast::recovery::{
    Event, LinkSet, Meter, Node, Now, Purpose, Relay, Settings, Timing,
};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_core::cbor::Writer;
use moteseal_core::signature::Algorithm;
use moteseal_lab::radio::{Authority, CertifiedSender, MapStore, SignedChain};

pub(crate) type Receiver<'a> = Node<'a, 3, 3, 16>;

pub(crate) const RADIO: u8 = 0;

pub(crate) fn authority() -> Authority {
    Authority::new(Algorithm::Ed25519, 1).unwrap()
}

pub(crate) fn sender(authority: &Authority) -> CertifiedSender {
    authority.certify("sink", Algorithm::Ed25519, 1).unwrap()
}

pub(crate) fn test_messages(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("message {number}").into_bytes()).collect()
}

pub(crate) fn settings(authority: &Authority) -> Settings<'_> {
    Settings {
        network: authority.network,
        bases: std::slice::from_ref(&authority.public),
        links: LinkSet::first(2),
        relay: Relay::Flood { copies: 255 },
        timing: Timing::RADIO,
        meter: Meter::MOTE,
    }
}

pub(crate) const fn at(ms: u64) -> Now {
    Now { ms, unix: Some(1_700_000_000) }
}

pub(crate) fn encode(frame: &BroadcastFrame<'_>) -> Vec<u8> {
    let mut out = vec![0; MAX_BROADCAST_FRAME];
    let mut writer = Writer::new(&mut out);
    frame.encode(&mut writer).unwrap();
    writer.finish().to_vec()
}

pub(crate) fn leaf_frame(signed: &SignedChain, place: usize) -> Vec<u8> {
    let (block, index, leaf) = &signed.leaves[place];
    encode(&BroadcastFrame::Fragment {
        chain: signed.reference(),
        block: *block,
        index: *index,
        leaf,
    })
}

pub(crate) fn node(authority: &Authority) -> (Receiver<'_>, MapStore) {
    (Node::new(settings(authority), 7, at(0)), MapStore::default())
}

/// Returns a node that knows the sender and has accepted the chain.
pub(crate) fn follower<'a>(
    authority: &'a Authority,
    signed: &SignedChain,
) -> (Receiver<'a>, MapStore) {
    let (mut node, mut store) = node(authority);
    let certified = node
        .receive(
            at(0),
            RADIO,
            &encode(&BroadcastFrame::Certificate(&signed.certificate)),
            &mut store,
        )
        .unwrap();
    assert!(matches!(certified, Event::Certified { .. }), "{certified:?}");
    let accepted = node
        .receive(at(0), RADIO, &encode(&BroadcastFrame::Head(&signed.head)), &mut store)
        .unwrap();
    assert!(matches!(accepted, Event::Accepted { .. }), "{accepted:?}");
    (node, store)
}

/// Returns all frames that a node sends until the given time, with their times and purposes.
pub(crate) fn sent_until(
    node: &mut Receiver<'_>,
    store: &mut MapStore,
    until: u64,
) -> Vec<(u64, Purpose, Vec<u8>)> {
    let (mut out, mut sent) = (vec![0; MAX_BROADCAST_FRAME], Vec::new());
    while let Some(due) = node.next_due().filter(|due| *due <= until) {
        while let Some(transmit) = node.poll(at(due), store, &mut out).unwrap() {
            sent.push((due, transmit.purpose, out[..transmit.length].to_vec()));
        }
    }
    sent
}

/// Returns the name of the error, or `accepted`.
pub(crate) fn refusal(event: Event) -> &'static str {
    if let Event::Refused(error) = event { error.name() } else { "accepted" }
}
