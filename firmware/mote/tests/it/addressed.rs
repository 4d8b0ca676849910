//! Tests how a mote receives commands for named receivers (spec/broadcast.md, section 8).

use std::convert::Infallible;

use crate::faulty_flash::Simulated;
use crate::listener::{NETWORK, NOW, SENDER, at, certificate, key, receipts};
use moteseal_broadcast::address::{AddressError, AddressStart, ContentKey};
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, KeyId, Kind, MAX_HEAD, MAX_LEAF, OutgoingChain, Window,
};
use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::provision::{Audience, SharedKey};
use moteseal_core::record::{DeviceId, Scheme};
use moteseal_mote::command::Command;
use moteseal_mote::durable::{Durable, Settings};
use moteseal_mote::flash::NoFlash;
use moteseal_mote::listener::{Listener, Shelf, broadcast_node};
use moteseal_mote::notice::Notice;

fn receiver(position: u32) -> ReceiverKey {
    ReceiverKey::new(NETWORK, SENDER, position, &[position as u8; 32])
}

/// Returns the frames of a chain of commands for the receivers at these positions: one frame if
/// there is one command, or else the head and the fragments. Each message of the address then has at
/// most `each` entries.
fn frames(number: u64, to: &[u32], each: usize, commands: &[&str]) -> Vec<Vec<u8>> {
    let signer = key(20);
    let id = ChainId { network: NETWORK, sender: SENDER, number: ChainNumber(number) };
    let key = KeyId::of(&signer.public());
    let content = ContentKey::new(&[number as u8; 16]);
    let mut entries: Vec<_> = to.iter().map(|at| content.entry(&id, key, &receiver(*at))).collect();
    entries.sort_unstable();
    let cipher = content.cipher(&id, key);
    let mut commands: Vec<Vec<u8>> = commands.iter().map(|text| text.as_bytes().to_vec()).collect();
    (0..).zip(&mut commands).for_each(|(number, command)| cipher.apply(number, command));
    let is_single = commands.len() == 1;
    let first = if is_single { entries.len() } else { each.min(entries.len()) };
    let (first, others) = entries.split_at(first);
    let start = AddressStart {
        commitment: content.commitment(&id, key),
        entries: entries.len() as u32,
        label: &[],
        first: first.as_flattened(),
        content: is_single.then_some(&commands[0]),
    };
    let mut out = [0; 512];
    let mut writer = Writer::new(&mut out);
    start.encode(&mut writer).unwrap();
    let mut messages = vec![writer.finish().to_vec()];
    if !is_single {
        messages.extend(others.chunks(each).map(|part| part.as_flattened().to_vec()));
        messages.extend(commands);
    }
    chain(id, &messages)
}

fn chain(id: ChainId, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let signer = key(20);
    let draft = ChainDraft {
        id,
        key: KeyId::of(&signer.public()),
        messages: messages.len() as u32,
        per_block: 1,
        kind: Kind::Command,
        label: "",
        window: Window { not_before: NOW - 60, not_after: NOW + 600 },
        previous: None,
        is_addressed: true,
    };
    let (mut digests, mut scratch) = (vec![Digest::NULL; messages.len()], [0; MAX_LEAF]);
    let read = |number: u32, buffer: &mut [u8]| {
        let message = &messages[number as usize];
        buffer[..message.len()].copy_from_slice(message);
        Ok::<_, Infallible>(message.len())
    };
    let chain = OutgoingChain::build(draft, &mut digests, &mut [], &mut scratch, read).unwrap();
    let mut head = [0; MAX_HEAD];
    let head = chain.head(&signer, &mut [0; MAX_HEAD], &mut head).unwrap();
    let encoded = |frame: &BroadcastFrame<'_>| {
        let mut out = [0; 2048];
        let mut writer = Writer::new(&mut out);
        frame.encode(&mut writer).unwrap();
        writer.finish().to_vec()
    };
    if let [leaf] = messages {
        return vec![encoded(&BroadcastFrame::Single { head, leaf })];
    }
    let mut frames = vec![encoded(&BroadcastFrame::Head(head))];
    for (block, message) in (1..).zip(messages) {
        let leaf = chain.leaf(block, 0, message, &mut scratch).unwrap();
        let chain = chain.reference();
        frames.push(encoded(&BroadcastFrame::Fragment { chain, block, index: 0, leaf }));
    }
    frames
}

/// Passes frames to the mote that is the receiver 3, or has no key. Returns its notices and the
/// number of its receipts.
fn receive(has_key: bool, frames: &[Vec<u8>]) -> (Vec<Notice>, usize) {
    let shared = SharedKey { sender: SENDER, position: 3, key: [3; 32].into() };
    let audience =
        Audience { network: NETWORK, base: key(14).public(), shared: has_key.then_some(shared) };
    let keys = moteseal_mote::receipt::receiver_key(&audience);
    let mut flash = Simulated::new();
    let settings = Settings { interval_ms: 1, led: false, scheme: Scheme::Star };
    let mut durable =
        Durable::open(&mut flash, DeviceId([1; 8]), Digest([8; 32]), settings).unwrap();
    let mut shelf = Shelf::new();
    let mut node = broadcast_node(&audience, keys.as_slice(), 1, 0);
    let mut listener = Listener::<NoFlash>::new(&mut node, &mut shelf, None, 0);
    let (mut notices, mut sent) = (Vec::new(), 0);
    let all = [&[certificate(&key(20))], frames].concat();
    for (now_ms, frame) in (0..).step_by(10_000).zip(&all) {
        let mut notify = |notice| notices.push(notice);
        listener.receive(now_ms, Some(at(NOW)), frame, &mut durable, &mut notify).unwrap();
        sent += receipts(&mut listener, &mut durable, now_ms..now_ms + 5_000).len();
    }
    (notices, sent)
}

#[test]
fn acts_on_encrypted_commands_for_it_and_acknowledges_them() {
    let acted = |number, command| Notice::Acted(ChainNumber(number), command);
    let (on, off) = (Command::Led(true), Command::Led(false));
    let one = frames(5, &[1, 3, 4], 9, &["led on"]);
    assert_eq!(one.len(), 1, "one frame");
    assert!(!one[0].windows(6).any(|bytes| bytes == b"led on"), "the command is in clear");
    assert_eq!(receive(true, &one), (vec![acted(5, on)], 1));
    let several = frames(6, &[1, 2, 3, 4, 5, 6, 7], 3, &["led on", "led off"]);
    assert_eq!(several.len(), 6, "the head, three messages of the address, and two commands");
    assert_eq!(receive(true, &several), (vec![acted(6, on), acted(6, off)], 1));
}

#[test]
fn reports_a_chain_that_it_cannot_read_once_and_does_not_acknowledge_it() {
    let not_read = |number, why| Notice::NotRead(ChainNumber(number), why);
    for commands in [&["led on"][..], &["led on", "led off"]] {
        let others = frames(5, &[1, 2], 1, commands);
        assert_eq!(receive(true, &others), (vec![not_read(5, AddressError::NotAddressed)], 0));
        let own = frames(5, &[3], 1, commands);
        assert_eq!(receive(false, &own), (vec![not_read(5, AddressError::NoReceiverKey)], 0));
    }
    // More receivers than fit in the mote's memory for a message.
    let long = frames(6, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 11, &["led on"]);
    let truncated = not_read(6, AddressError::Decode(DecodeError::Truncated));
    assert_eq!(receive(true, &long), (vec![truncated], 0));
    // A later chain is read all the same.
    let mut frames_of_both = long;
    frames_of_both.extend(frames(7, &[3], 1, &["led on"]));
    let acted = Notice::Acted(ChainNumber(7), Command::Led(true));
    assert_eq!(receive(true, &frames_of_both), (vec![truncated, acted], 1));
}
