//! Which chains for named receivers a watcher delivers and acknowledges (spec/broadcast.md, section
//! 8).

use std::path::Path;

use moteseal_broadcast::address::{AddressStart, ContentKey};
use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{Kind, sender_named};
use moteseal_core::cbor::Writer;
use moteseal_core::signature::PublicKey;
use moteseal_device::broadcast::Options;

use crate::broadcast_delivery::{NOW, Post, bases, built, command, id, key_id, network};

/// The window of most chains.
const WINDOW: (u64, u64) = (NOW, NOW + 600);

fn receiver(position: u32) -> ReceiverKey {
    ReceiverKey::derive(&[9; 32], network(), sender_named("ops"), position, "valve")
}

/// Returns the frames of a command for the receivers at these positions: an address of one entry in
/// each message, and then the commands.
fn addressed(
    number: u64,
    topic: &str,
    window: (u64, u64),
    to: &[u32],
    commands: &[&str],
) -> Vec<Vec<u8>> {
    let (id, key) = (id(number), key_id());
    let content = ContentKey::new(&[number as u8; 16]);
    let cipher = content.cipher(&id, key);
    let mut label = topic.as_bytes().to_vec();
    cipher.apply_to_label(&mut label);
    let mut entries: Vec<_> = to.iter().map(|at| content.entry(&id, key, &receiver(*at))).collect();
    entries.sort_unstable();
    let start = AddressStart {
        commitment: content.commitment(&id, key),
        entries: entries.len() as u32,
        label: &label,
        first: &entries[0],
        content: None,
    };
    let mut out = [0; 512];
    let mut writer = Writer::new(&mut out);
    start.encode(&mut writer).unwrap();
    let mut messages = vec![writer.finish().to_vec()];
    messages.extend(entries[1..].iter().map(|entry| entry.to_vec()));
    for (number, command) in (0..).zip(commands) {
        let mut command = command.as_bytes().to_vec();
        cipher.apply(number, &mut command);
        messages.push(command);
    }
    built(number, (Kind::Command, "", true), window, &messages)
}

fn open<'a>(folder: &Path, bases: &'a [PublicKey], keys: &'a [ReceiverKey]) -> Post<'a> {
    let options = Options { receiver_keys: keys, ..Options::new(network(), bases) };
    Post::open_with(folder, options, Some(NOW))
}

fn receipts(post: &mut Post<'_>) -> usize {
    let is_receipt = |frame: &Vec<u8>| {
        matches!(BroadcastFrame::decode(frame), Ok(BroadcastFrame::Receipts { .. }))
    };
    post.sent().iter().filter(|frame| is_receipt(frame)).count()
}

#[test]
fn only_addressed_receivers_deliver_and_acknowledge() {
    let bases = bases();
    let frames = addressed(1, "valve", WINDOW, &[1, 3, 5], &["open", "shut"]);
    for (position, expected, acknowledged) in
        [(3, &["open", "shut"][..], 1), (5, &["open", "shut"], 1), (2, &["1 NotAddressed"], 0)]
    {
        let folder = tempfile::tempdir().unwrap();
        let keys = [receiver(position)];
        let mut post = open(folder.path(), &bases, &keys);
        post.receive(&frames[..3]);
        assert_eq!(post.take(), [""; 0], "the address is incomplete");
        post.receive(&frames[3..]);
        post.receive(&frames);
        assert_eq!(post.take(), expected);
        assert_eq!(receipts(&mut post), acknowledged);
    }
}

/// A watcher that was started without its key delivers what it has when it is started with it.
#[test]
fn a_watcher_that_gets_its_key_later_delivers_after_a_restart() {
    let (folder, bases, keys) = (tempfile::tempdir().unwrap(), bases(), [receiver(3)]);
    let frames = addressed(1, "valve", WINDOW, &[3], &["open", "shut"]);
    let mut post = open(folder.path(), &bases, &[]);
    post.receive(&frames);
    post.receive(&frames);
    assert_eq!(post.take(), ["1 NoReceiverKey"], "reported once");
    drop(post);
    let mut post = open(folder.path(), &bases, &keys);
    assert_eq!(post.take(), ["open", "shut"]);
    drop(post);
    let mut post = open(folder.path(), &bases, &keys);
    assert_eq!(post.take(), [""; 0], "delivered once");
}

#[test]
fn a_key_of_an_earlier_list_finds_no_entry() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let old = [ReceiverKey::derive(&[8; 32], network(), sender_named("ops"), 3, "valve")];
    let mut post = open(folder.path(), &bases, &old);
    post.receive(&addressed(1, "valve", WINDOW, &[3], &["open"]));
    assert_eq!(post.take(), ["1 NotAddressed"]);
    assert_eq!(receipts(&mut post), 0);
}

#[test]
fn topics_are_compared_after_decryption() {
    let (folder, bases, keys) = (tempfile::tempdir().unwrap(), bases(), [receiver(3)]);
    let mut post = open(folder.path(), &bases, &keys);
    post.receive(&addressed(2, "valve", WINDOW, &[3], &["open"]));
    post.receive(&addressed(3, "pump", WINDOW, &[3], &["start"]));
    // A command for other receivers supersedes nothing here.
    post.receive(&addressed(4, "valve", WINDOW, &[4], &["other"]));
    assert_eq!(post.take(), ["open", "start", "4 NotAddressed"]);
    post.receive(&command(1, "before"));
    post.receive(&command(5, "after"));
    assert_eq!(post.take(), ["1 SupersededCommand", "after"]);
    assert_eq!(receipts(&mut post), 3, "one for each chain that was delivered");
}

/// The topic of a command that has ended is known only after its address was read.
#[test]
fn an_earlier_command_is_not_delivered_after_an_addressed_one_has_ended() {
    let (folder, bases, keys) = (tempfile::tempdir().unwrap(), bases(), [receiver(3)]);
    let mut post = open(folder.path(), &bases, &keys);
    post.receive(&addressed(2, "valve", (NOW - 60, NOW), &[3], &["ended"]));
    post.receive(&command(1, "before"));
    assert_eq!(post.take(), ["2 Late", "1 SupersededCommand"]);
    assert_eq!(receipts(&mut post), 0);
}

#[test]
fn only_an_addressed_receiver_holds_a_command_until_its_begin() {
    let bases = bases();
    let frames = addressed(1, "valve", (NOW + 60, NOW + 600), &[3], &["open"]);
    for (position, expected, acknowledged) in
        [(3, &["1 Early", "open"][..], 1), (4, &["1 NotAddressed"], 0)]
    {
        let folder = tempfile::tempdir().unwrap();
        let keys = [receiver(position)];
        let mut post = open(folder.path(), &bases, &keys);
        post.receive(&frames);
        assert_eq!(receipts(&mut post), acknowledged);
        for _ in 0..100 {
            post.wait(1_000);
        }
        assert_eq!(post.take(), expected);
    }
}

#[test]
fn a_faulty_address_is_reported_once_and_harms_no_other_chain() {
    let (folder, bases, keys) = (tempfile::tempdir().unwrap(), bases(), [receiver(3)]);
    let mut post = open(folder.path(), &bases, &keys);
    let messages = [b"no address".to_vec(), b"open".to_vec()];
    post.receive(&built(1, (Kind::Command, "", true), WINDOW, &messages));
    post.receive(&addressed(2, "valve", WINDOW, &[3], &["open"]));
    let events = post.take();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[0].starts_with("1 ") && events[1] == "open", "{events:?}");
    assert_eq!(receipts(&mut post), 1);
}
