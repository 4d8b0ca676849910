//! Tests how a mote receives broadcasts: it acts on each command once, within its window, and only
//! while the time is known. It sends a notice of messages that are not commands.

use crate::faulty_flash::Simulated;
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    ChainId, ChainNumber, ChainRef, KeyId, Kind, MAX_SENDER_CERTIFICATE, MAX_SINGLE,
    SenderCertificateDraft, SingleDraft, Untimely, Window,
};
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::participation::Participation;
use moteseal_core::provision::{Audience, SharedKey};
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;
use moteseal_core::record::Scheme;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::signed_time::TimeRange;
use moteseal_mote::command::Command;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::listener::{Listener, Shelf, broadcast_node};
use moteseal_mote::notice::Notice;
use moteseal_mote::receipt::receiver_key;

pub(crate) const NETWORK: NetworkId = NetworkId([13; 8]);
pub(crate) const SENDER: DeviceId = DeviceId([7; 8]);
/// The time, in seconds of Unix time.
pub(crate) const NOW: u64 = 1_700_000_000;

/// Returns the range of times of a mote that knows the time in seconds exactly.
pub(crate) const fn at(unix: u64) -> TimeRange {
    TimeRange { earliest_ms: unix * 1000, latest_ms: unix * 1000 }
}

pub(crate) fn key(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// Returns the frame with the certificate for a sender's key.
pub(crate) fn certificate(signer: &SecretKey) -> Vec<u8> {
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
    let window = Window { not_before: NOW - 60, not_after: NOW + 600 };
    let draft = SingleDraft { id, kind: Kind::Command, label: "", window, previous: None, message };
    draft.seal(signer, &mut [0; MAX_SINGLE], &mut [0; MAX_SINGLE]).unwrap().to_vec()
}

/// Returns the frame with a chain of one message of any kind and window.
fn frame_of(number: u64, kind: Kind, (not_before, not_after): (u64, u64)) -> Vec<u8> {
    let id = ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(number) };
    let window = Window { not_before, not_after };
    let draft = SingleDraft { id, kind, label: "lamp", window, previous: None, message: b"led on" };
    draft.seal(&key(20), &mut [0; MAX_SINGLE], &mut [0; MAX_SINGLE]).unwrap().to_vec()
}

/// Passes these frames to a mote. Returns the notices that it sends, and its settings afterwards.
fn receive(frames: &[Vec<u8>]) -> (Vec<Notice>, Settings) {
    let audience = Audience { network: NETWORK, base: key(14).public(), shared: None };
    let mut flash = Simulated::new();
    let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
    let mut durable =
        Durable::open(&mut flash, DeviceId([1; 8]), Digest([8; 32]), settings).unwrap();
    let mut shelf = Shelf::new();
    let mut broadcast_node = broadcast_node(&audience, &[], 1, 0);
    let mut listener = <Listener>::new(&mut broadcast_node, &mut shelf, None, 0);
    let mut reports = Vec::new();
    for (now_ms, frame) in (0..).step_by(10_000).zip(frames) {
        listener
            .receive(now_ms, Some(at(NOW)), frame, &mut durable, &mut |report| reports.push(report))
            .unwrap();
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
    let audience = Audience { network: NETWORK, base: key(14).public(), shared: None };
    let mut flash = Simulated::new();
    let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
    let mut obeyed = |number: u64| {
        keys.each_ref().map(|key| {
            // The listener has room for one sender at a time: restart it before each sender.
            let mut durable =
                Durable::open(&mut flash, DeviceId([1; 8]), Digest([8; 32]), settings).unwrap();
            let mut shelf = Shelf::new();
            let mut broadcast_node = broadcast_node(&audience, &[], 1, 0);
            let mut listener = <Listener>::new(&mut broadcast_node, &mut shelf, None, 0);
            let mut is_obeyed = false;
            for frame in [certificate(key), command_frame(key, number, b"led on")] {
                let notify = &mut |report| is_obeyed |= matches!(report, Notice::Acted(..));
                listener.receive(0, Some(at(NOW)), &frame, &mut durable, notify).unwrap();
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

/// Does [`run_until`], and stays at the time of the last frame.
fn run(flash: &mut Simulated, frames: &[(Option<TimeRange>, &[u8])]) -> (Vec<Notice>, usize) {
    run_until(flash, frames, frames.last().and_then(|(time, _)| *time))
}

/// Starts a mote with this flash, and passes frames to it at these times. Returns its notices, and
/// the number of frames with which it asks for all chains afterwards, at the time `later`.
fn run_until(
    flash: &mut Simulated,
    frames: &[(Option<TimeRange>, &[u8])],
    later: Option<TimeRange>,
) -> (Vec<Notice>, usize) {
    let audience = Audience { network: NETWORK, base: key(14).public(), shared: None };
    let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
    let mut durable = Durable::open(flash, DeviceId([1; 8]), Digest([8; 32]), settings).unwrap();
    let mut shelf = Shelf::new();
    let mut node = broadcast_node(&audience, &[], 1, 0);
    let mut listener = <Listener>::new(&mut node, &mut shelf, None, 0);
    let mut out = [0; 2048];
    // The first request, which a mote sends when it starts.
    while listener.next_body(500_000, None, &mut out, &mut durable).unwrap().is_some() {}
    let mut notices = Vec::new();
    for (now_ms, (time, frame)) in (600_000..).step_by(10_000).zip(frames) {
        let notify = &mut |notice| notices.push(notice);
        listener.receive(now_ms, *time, frame, &mut durable, notify).unwrap();
    }
    let mut requests = 0;
    for now_ms in (700_000..720_000).step_by(100) {
        let length = listener.next_body(now_ms, later, &mut out, &mut durable).unwrap();
        let frame = length.map(|length| BroadcastFrame::decode(&out[..length]).unwrap());
        let is_request = |frame| match frame {
            BroadcastFrame::Wanted { chain, block, .. } => (chain, block) == (ChainRef([0; 8]), 0),
            _ => false,
        };
        requests += usize::from(frame.is_some_and(is_request));
    }
    (notices, requests)
}

#[test]
fn acts_only_on_commands_within_their_window_and_never_again_after_a_reboot() {
    let certificate = certificate(&key(20));
    let window = (NOW, NOW + 600);
    let frames = [
        frame_of(1, Kind::Announcement, (0, u64::MAX)),
        frame_of(2, Kind::Announcement, window),
        frame_of(3, Kind::File, window),
        frame_of(4, Kind::Command, (NOW - 600, NOW)),
        frame_of(5, Kind::Command, (NOW + 11, NOW + 600)),
        frame_of(6, Kind::Command, (NOW + 10, NOW + 600)),
        frame_of(7, Kind::Command, (NOW - 600, NOW + 1)),
    ];
    let timed: Vec<(Option<TimeRange>, &[u8])> = std::iter::once(&certificate)
        .chain(&frames)
        .map(|frame| (Some(at(NOW)), frame.as_slice()))
        .collect();
    let mut flash = Simulated::new();
    let expected = [
        Notice::NotObeyed(ChainNumber(4), Untimely::Late),
        Notice::NotObeyed(ChainNumber(5), Untimely::Early),
        Notice::Acted(ChainNumber(6), Command::Led(true)),
        Notice::Acted(ChainNumber(7), Command::Led(true)),
    ];
    assert_eq!(run(&mut flash, &timed).0, expected);
    let mut again = [Notice::Refused(RefusedBroadcast::ChainGoesBack); 7];
    again[4] = Notice::NotObeyed(ChainNumber(5), Untimely::Early);
    assert_eq!(run(&mut flash, &timed).0, again, "a reboot revives no command");
}

#[test]
fn every_possible_time_must_be_within_the_window() {
    let certificate = certificate(&key(20));
    let time = TimeRange { earliest_ms: (NOW - 5) * 1000 + 1, latest_ms: (NOW + 4) * 1000 + 1 };
    // The latest time is rounded up to NOW + 5, and the earliest one down to NOW - 5.
    let frames = [
        frame_of(1, Kind::Command, (NOW + 6, NOW + 600)),
        frame_of(2, Kind::Command, (NOW - 600, NOW + 5)),
        frame_of(3, Kind::Command, (NOW + 5, NOW + 6)),
    ];
    let timed: Vec<(Option<TimeRange>, &[u8])> = std::iter::once(&certificate)
        .chain(&frames)
        .map(|frame| (Some(time), frame.as_slice()))
        .collect();
    let expected = [
        Notice::NotObeyed(ChainNumber(1), Untimely::Early),
        Notice::NotObeyed(ChainNumber(2), Untimely::Late),
        Notice::Acted(ChainNumber(3), Command::Led(true)),
    ];
    assert_eq!(run(&mut Simulated::new(), &timed).0, expected);
}

#[test]
fn waits_for_the_time_and_then_asks_for_the_commands_again() {
    let certificate = certificate(&key(20));
    let command = command_frame(&key(20), 5, b"led on");
    let mut flash = Simulated::new();
    let not_yet = Notice::NotObeyed(ChainNumber(5), Untimely::NoTrustedTime);
    let without: [(Option<TimeRange>, &[u8]); 3] =
        [(None, &certificate), (None, &command), (None, &command)];
    assert_eq!(run(&mut flash, &without).0, [not_yet], "it is reported once");
    let with = [&without[..], &[(Some(at(NOW)), &certificate)]].concat();
    let (notices, requests) = run(&mut flash, &with);
    assert_eq!(notices, [not_yet]);
    assert!(requests > 0, "the mote asks which chains there are");
    let with = [&with[..], &[(Some(at(NOW)), &command)]].concat();
    let acted = Notice::Acted(ChainNumber(5), Command::Led(true));
    assert_eq!(run(&mut flash, &with).0, [not_yet, acted], "its number was not used up");
}

#[test]
fn asks_again_for_a_command_when_its_window_begins() {
    let certificate = certificate(&key(20));
    let command = frame_of(5, Kind::Command, (NOW + 60, NOW + 600));
    let later = frame_of(6, Kind::Command, (NOW + 3600, NOW + 4000));
    let first = frame_of(1, Kind::Command, (NOW, NOW + 600));
    let mut flash = Simulated::new();
    let known = [(Some(at(NOW)), &certificate[..]), (Some(at(NOW)), &first[..])];
    let acted = |number| Notice::Acted(ChainNumber(number), Command::Led(true));
    assert_eq!(run(&mut Simulated::new(), &known), (vec![acted(1)], 0));
    let early = [(Some(at(NOW)), &command[..]), (Some(at(NOW)), &later[..])];
    let early = [&known[..], &early[1..], &early, &early[..1]].concat();
    let of = |number| Notice::NotObeyed(ChainNumber(number), Untimely::Early);
    let (notices, requests) = run_until(&mut flash, &early, Some(at(NOW + 60)));
    assert_eq!(notices, [acted(1), of(6), of(5), of(6), of(5)]);
    assert!(requests > 0, "the window of one of them has begun");
    let asks = |unix| run_until(&mut Simulated::new(), &early, Some(at(unix))).1 > 0;
    assert_eq!([NOW + 59, NOW + 3600].map(asks), [false, true]);
    let only_later = [&known[..], &[(Some(at(NOW)), &later[..])]].concat();
    let asks = |unix| run_until(&mut Simulated::new(), &only_later, Some(at(unix))).1 > 0;
    assert_eq!([NOW + 3599, NOW + 3600].map(asks), [false, true]);
    let begun = [&known[..], &[(Some(at(NOW + 60)), &command[..])]].concat();
    let back = Notice::Refused(RefusedBroadcast::ChainGoesBack);
    assert_eq!(run(&mut flash, &begun).0, [back, acted(5)], "its number was not used up");
}

/// Returns the frames of receipts that the listener sends until a time.
pub(crate) fn receipts(
    listener: &mut Listener<'_, '_>,
    durable: &mut Durable<&mut Simulated>,
    times: std::ops::Range<u64>,
) -> Vec<Vec<u8>> {
    let mut out = [0; 2048];
    let mut sent = Vec::new();
    for now_ms in times.step_by(50) {
        while let Some(length) = listener.next_body(now_ms, None, &mut out, durable).unwrap() {
            let frame = out[..length].to_vec();
            if let Ok(BroadcastFrame::Receipts { .. }) = BroadcastFrame::decode(&frame) {
                sent.push(frame);
            }
        }
    }
    sent
}

#[test]
fn acknowledges_commands_after_it_has_acted_and_again_on_request() {
    let shared = SharedKey { sender: SENDER, position: 300, key: [7; 32].into() };
    let audience = Audience { network: NETWORK, base: key(14).public(), shared: Some(shared) };
    let keys = receiver_key(&audience);
    let own = keys.as_ref().unwrap();
    let sender = key(20);
    let (obeyed, unknown, late) = (
        command_frame(&sender, 5, b"led on"),
        command_frame(&sender, 6, b"dance"),
        frame_of(7, Kind::Command, (NOW - 600, NOW)),
    );
    let encoded = |frame: &BroadcastFrame<'_>| {
        let mut out = [0; 256];
        let mut writer = Writer::new(&mut out);
        frame.encode(&mut writer).unwrap();
        writer.finish().to_vec()
    };
    let mut set = [0; 8];
    let length = Participation::encode_one(300, &mut set).unwrap();
    let set = &set[..length];
    let chain = |number| {
        let id = ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(number) };
        id.reference(KeyId::of(&sender.public()))
    };
    let Ok(BroadcastFrame::Single { head, .. }) = BroadcastFrame::decode(&obeyed) else {
        panic!("a chain of one message");
    };
    let tag = own.receipt(head);
    let receipt = encoded(&BroadcastFrame::Receipts { chain: chain(5), receivers: set, tag });
    let wanted = |number, receivers| {
        encoded(&BroadcastFrame::ReceiptsWanted { chain: chain(number), most: 1, receivers })
    };

    let mut flash = Simulated::new();
    let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
    let mut durable =
        Durable::open(&mut flash, DeviceId([1; 8]), Digest([8; 32]), settings).unwrap();
    let mut shelf = Shelf::new();
    let mut node = broadcast_node(&audience, keys.as_slice(), 1, 0);
    let mut listener = <Listener>::new(&mut node, &mut shelf, None, 0);
    let mut step = |now_ms: u64, frame: &[u8]| {
        listener.receive(now_ms, Some(at(NOW)), frame, &mut durable, &mut |_| {}).unwrap();
        receipts(&mut listener, &mut durable, now_ms..now_ms + 5_000)
    };
    assert!(step(10_000, &certificate(&sender)).is_empty());
    assert_eq!(step(20_000, &obeyed), std::slice::from_ref(&receipt));
    assert_eq!(step(30_000, &wanted(5, set)), std::slice::from_ref(&receipt));
    assert!(step(40_000, &wanted(5, &[2, 0])).is_empty(), "the receipt of another receiver");
    assert!(step(50_000, &wanted(6, set)).is_empty(), "a chain that the mote does not have");
    assert!(step(60_000, &unknown).is_empty(), "no command");
    assert!(step(70_000, &wanted(6, set)).is_empty());
    assert!(step(80_000, &late).is_empty(), "the command has ended");
    assert!(step(90_000, &wanted(7, set)).is_empty());
    assert_eq!(step(100_000, &wanted(5, set)), [receipt], "the last one on which it acted");
}
