//! Tests how a mote receives broadcasts: it acts on each command once, and sends a notice of
//! messages that are not commands.

use crate::faulty_flash::Simulated;
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    ChainId, ChainNumber, KeyId, Kind, MAX_SENDER_CERTIFICATE, MAX_SINGLE, SenderCertificateDraft,
    SingleDraft,
};
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::provision::Audience;
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::record::Scheme;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_mote::command::Command;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::listener::{Listener, Shelf, broadcast_node};
use moteseal_mote::notice::Notice;

const NETWORK: NetworkId = NetworkId([13; 8]);
const SENDER: DeviceId = DeviceId([7; 8]);

fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// Returns the frame with the certificate for a sender's key.
fn certificate(signer: &SecretKey) -> Vec<u8> {
    let (base, public) = (key(14), signer.public());
    let draft = SenderCertificateDraft {
        network: NETWORK,
        base: KeyId::of(&base.public()),
        serial: 3,
        sender: SENDER,
        key: &public,
        not_before: 0,
        not_after: u64::MAX,
    };
    let mut bytes = [0; MAX_SENDER_CERTIFICATE];
    let bytes = draft.issue(&base, &mut bytes).unwrap();
    let mut out = [0; 1400];
    let mut writer = Writer::new(&mut out);
    BroadcastFrame::Certificate(bytes).encode(&mut writer).unwrap();
    writer.finish().to_vec()
}

/// Returns the frame with a chain of one message.
fn command_frame(signer: &SecretKey, number: u64, message: &[u8]) -> Vec<u8> {
    let id = ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(number) };
    let draft = SingleDraft { id, kind: Kind::Messages, label: "", message };
    draft.seal(signer, &mut [0; MAX_SINGLE], &mut [0; MAX_SINGLE]).unwrap().to_vec()
}

/// Passes these frames to a mote. Returns the notices that it sends, and its settings afterwards.
fn receive(frames: &[Vec<u8>]) -> (Vec<Notice>, Settings) {
    let audience = Audience { network: NETWORK, base: key(14).public() };
    let mut flash = Simulated::new();
    let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
    let mut durable =
        Durable::open(&mut flash, DeviceId([1; 8]), Digest([8; 32]), settings).unwrap();
    let mut shelf = Shelf::new();
    let mut broadcast_node = broadcast_node(&audience, 1, 0, &mut shelf, &mut durable).unwrap();
    let mut listener = Listener::new(&mut broadcast_node, &mut shelf, 0);
    let mut reports = Vec::new();
    for (now_ms, frame) in (0..).step_by(10_000).zip(frames) {
        listener.receive(now_ms, frame, &mut durable, &mut |report| reports.push(report)).unwrap();
    }
    (reports, durable.memory().settings())
}

#[test]
fn acts_on_a_command_once_and_reports_messages_that_are_no_commands_or_too_long() {
    let sender = key(20);
    let lamp = command_frame(&sender, 5, b"led on");
    let frames = [
        certificate(&sender),
        lamp.clone(),
        lamp,
        command_frame(&sender, 6, b"dance"),
        command_frame(&sender, 7, &[b' '; 600]),
    ];
    let more = [command_frame(&sender, 8, b"interval=9")];
    let (reports, settings) = receive(&[&frames[..], &more].concat());
    let expected = [
        Notice::Acted(ChainNumber(5), Command::Led(true)),
        Notice::NoCommand(ChainNumber(6)),
        Notice::NoCommand(ChainNumber(7)),
        Notice::Acted(ChainNumber(8), Command::Interval(9)),
    ];
    assert_eq!(reports, expected);
    assert_eq!(settings, Settings { interval_ms: 9, led: true, scheme: Scheme::Star });
}

#[test]
fn rejects_replayed_commands_of_five_keys() {
    let keys = [20, 21, 22, 23, 24].map(key);
    let audience = Audience { network: NETWORK, base: key(14).public() };
    let mut flash = Simulated::new();
    let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
    let mut obeyed = |number: u64| {
        keys.each_ref().map(|key| {
            // The listener has room for one sender at a time: restart it before each sender.
            let mut durable =
                Durable::open(&mut flash, DeviceId([1; 8]), Digest([8; 32]), settings).unwrap();
            let mut shelf = Shelf::new();
            let mut broadcast_node =
                broadcast_node(&audience, 1, 0, &mut shelf, &mut durable).unwrap();
            let mut listener = Listener::new(&mut broadcast_node, &mut shelf, 0);
            let mut is_obeyed = false;
            for frame in [certificate(key), command_frame(key, number, b"led on")] {
                let notify = &mut |report| is_obeyed |= matches!(report, Notice::Acted(..));
                listener.receive(0, &frame, &mut durable, notify).unwrap();
            }
            is_obeyed
        })
    };
    assert_eq!(obeyed(5), [true, true, true, true, false]);
    for number in [5, 4, 5] {
        assert_eq!(obeyed(number), [false; 5]);
    }
    assert_eq!(obeyed(6), [true, true, true, true, false]);
}
