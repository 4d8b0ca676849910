//! When a watcher acknowledges a chain, and what a watcher with several links passes on.

use std::path::Path;

use moteseal_broadcast::Kind;
use moteseal_broadcast::receipt::{ReceiverKey, ReceiverTag};
use moteseal_broadcast::sender_named;
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_core::participation::Participation;
use moteseal_core::signature::PublicKey;
use moteseal_device::broadcast::Options;

use crate::broadcast_delivery::{NOW, Post, bases, chain, command, encoded, network, reference};

/// The position of the watcher.
const POSITION: u32 = 3;

fn keys() -> [ReceiverKey; 1] {
    [ReceiverKey::derive(&[9; 32], network(), sender_named("ops"), POSITION, "valve 3")]
}

fn open<'a>(
    folder: &Path,
    base: &'a [PublicKey],
    receiver_keys: &'a [ReceiverKey],
    links: u8,
) -> Post<'a> {
    let options = Options { receiver_keys, links, ..Options::new(network(), base) };
    Post::open_with(folder, options, Some(NOW))
}

/// Returns the receipt that the watcher must send for a chain.
fn receipt(frames: &[Vec<u8>]) -> Vec<u8> {
    let Ok(BroadcastFrame::Head(head)) = BroadcastFrame::decode(&frames[0]) else {
        panic!("the first frame of a chain is its head");
    };
    frame(1, POSITION, keys()[0].receipt(head))
}

fn frame(number: u64, position: u32, tag: ReceiverTag) -> Vec<u8> {
    let mut set = [0; 6];
    let length = Participation::encode_one(position, &mut set).unwrap();
    let chain = reference(number);
    encoded(&BroadcastFrame::Receipts { chain, receivers: &set[..length], tag })
}

fn wanted(number: u64, position: u32) -> Vec<u8> {
    let mut set = [0; 6];
    let length = Participation::encode_one(position, &mut set).unwrap();
    let chain = reference(number);
    encoded(&BroadcastFrame::ReceiptsWanted { chain, most: 1, receivers: &set[..length] })
}

/// Returns the frames of receipts among those that the watcher sends.
fn receipts(post: &mut Post<'_>) -> Vec<Vec<u8>> {
    let is_receipt = |frame: &Vec<u8>| {
        matches!(BroadcastFrame::decode(frame), Ok(BroadcastFrame::Receipts { .. }))
    };
    post.sent().into_iter().filter(is_receipt).collect()
}

#[test]
fn a_delivered_command_is_acknowledged_once_and_again_on_request_and_after_a_restart() {
    let (folder, bases, keys) = (tempfile::tempdir().unwrap(), bases(), keys());
    let frames = command(1, "open");
    let mut post = open(folder.path(), &bases, &keys, 1);
    post.receive(&frames[..1]);
    assert_eq!(receipts(&mut post), [[0; 0]; 0], "the message is missing");
    post.receive(&frames[1..]);
    assert_eq!(receipts(&mut post), [receipt(&frames)]);
    assert_eq!(receipts(&mut post), [[0; 0]; 0]);
    post.receive(&[wanted(1, POSITION + 1)]);
    assert_eq!(receipts(&mut post), [[0; 0]; 0], "the receipt of another receiver is wanted");
    post.receive(&[wanted(1, POSITION)]);
    assert_eq!(receipts(&mut post), [receipt(&frames)]);
    assert_eq!(post.take(), ["open"]);
    drop(post);
    let mut post = open(folder.path(), &bases, &keys, 1);
    assert_eq!(receipts(&mut post), [[0; 0]; 0]);
    post.receive(&[wanted(1, POSITION)]);
    assert_eq!(receipts(&mut post), [receipt(&frames)]);
    assert_eq!(post.take(), [""; 0], "the command is not delivered again");
}

#[test]
fn a_command_that_is_held_until_its_begin_is_acknowledged_also_after_a_restart() {
    let (folder, bases, keys) = (tempfile::tempdir().unwrap(), bases(), keys());
    let frames = chain(1, (Kind::Command, "valve"), (NOW + 600, NOW + 900), &["open"]);
    let mut post = open(folder.path(), &bases, &keys, 1);
    post.receive(&frames);
    assert_eq!(post.take(), ["1 Early"]);
    assert_eq!(receipts(&mut post), [receipt(&frames)]);
    drop(post);
    let mut post = open(folder.path(), &bases, &keys, 1);
    post.receive(&[wanted(1, POSITION)]);
    assert_eq!(receipts(&mut post), [receipt(&frames)]);
}

#[test]
fn what_is_not_delivered_is_not_acknowledged() {
    let (folder, bases, keys) = (tempfile::tempdir().unwrap(), bases(), keys());
    let mut post = open(folder.path(), &bases, &keys, 1);
    post.receive(&command(2, "shut"));
    receipts(&mut post);
    assert_eq!(post.take(), ["shut"]);
    // The first command is superseded.
    post.receive(&command(1, "open"));
    post.receive(&[wanted(1, POSITION)]);
    assert_eq!(receipts(&mut post), [[0; 0]; 0]);
    // The third one has ended.
    post.receive(&chain(3, (Kind::Command, "valve"), (NOW - 60, NOW), &["late"]));
    post.receive(&[wanted(3, POSITION)]);
    assert_eq!(receipts(&mut post), [[0; 0]; 0]);
    assert!(!post.take().iter().any(|event| event == "open" || event == "late"));
}

#[test]
fn a_watcher_without_a_key_of_the_sender_acknowledges_nothing() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let other = [ReceiverKey::derive(&[9; 32], network(), sender_named("other"), POSITION, "v")];
    for keys in [&[][..], &other] {
        let mut post = open(&folder.path().join(keys.len().to_string()), &bases, keys, 1);
        post.receive(&command(1, "open"));
        post.receive(&[wanted(1, POSITION)]);
        assert_eq!(post.take(), ["open"]);
        assert_eq!(receipts(&mut post), [[0; 0]; 0]);
    }
}

/// A relay passes on the receipts of others together with its own, and requests for receipts.
#[test]
fn a_watcher_with_two_links_passes_on_receipts_and_requests_for_them() {
    let (folder, bases, keys) = (tempfile::tempdir().unwrap(), bases(), keys());
    let frames = command(1, "open");
    let mut post = open(folder.path(), &bases, &keys, 2);
    post.receive(&frames);
    post.receive_on(1, &frame(1, 7, [0xff; 16]));
    let sent = receipts(&mut post);
    let Ok(BroadcastFrame::Receipts { receivers, tag, .. }) = BroadcastFrame::decode(&sent[0])
    else {
        panic!("receipts");
    };
    let set = Participation::decode(receivers, 100).unwrap();
    assert_eq!(set.runs().flatten().collect::<Vec<_>>(), [POSITION, 7]);
    let Ok(BroadcastFrame::Receipts { tag: own, .. }) = BroadcastFrame::decode(&receipt(&frames))
    else {
        panic!("receipts");
    };
    assert_eq!(tag, own.map(|byte| byte ^ 0xff));
    assert_eq!(sent.len(), 1);
    // From the sender's side, requests are passed on; receipts are not.
    post.receive_on(0, &wanted(1, 7));
    post.receive_on(0, &frame(1, 8, [1; 16]));
    let sent = post.sent();
    assert!(sent.contains(&wanted(1, 7)), "{sent:?}");
    assert!(!sent.contains(&frame(1, 8, [1; 16])));
    // From the other side, requests are not passed on.
    post.receive_on(1, &wanted(1, 9));
    assert!(!post.sent().contains(&wanted(1, 9)));
}
