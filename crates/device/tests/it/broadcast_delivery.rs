//! When a watcher delivers what it has verified: within the window, the newest command of a topic
//! only, and not after the clock was set back.

use std::convert::Infallible;
use std::path::Path;

use moteseal_broadcast::recovery::{Now, RefusedBroadcast};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_broadcast::{
    ChainDraft, ChainId, ChainNumber, ChainRef, KeyId, Kind, MAX_HEAD, MAX_LEAF,
    MAX_SENDER_CERTIFICATE, OutgoingChain, SenderCertificateDraft, Window, sender_named,
};
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_device::broadcast::{Options, WatchEvent, Watcher};
use moteseal_store::Archive;

/// The time at which the tests begin, in seconds of Unix time.
pub(crate) const NOW: u64 = 1_700_000_000;
/// How long a watcher waits for later commands when it catches up, in milliseconds.
const CATCH_UP_MS: u64 = 2_000;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[seed; 32]).unwrap()
}

pub(crate) fn encoded(frame: &BroadcastFrame<'_>) -> Vec<u8> {
    let mut buffer = vec![0; MAX_BROADCAST_FRAME];
    let mut out = Writer::new(&mut buffer);
    frame.encode(&mut out).unwrap();
    out.finish().to_vec()
}

pub(crate) fn network() -> NetworkId {
    NetworkId::of(&key(1).public())
}

fn certificate() -> Vec<u8> {
    let (base, public) = (key(1), key(2).public());
    let draft = SenderCertificateDraft {
        network: network(),
        base: KeyId::of(&base.public()),
        serial: 1,
        sender: sender_named("ops"),
        key: &public,
        not_before: 0,
        not_after: u64::MAX,
    };
    let mut out = [0; MAX_SENDER_CERTIFICATE];
    encoded(&BroadcastFrame::Certificate(draft.issue(&base, &mut out).unwrap()))
}

/// Returns the frames of a chain with one message in each block: its head, then its leaves.
pub(crate) fn chain(
    number: u64,
    (kind, label): (Kind, &str),
    window: (u64, u64),
    messages: &[&str],
) -> Vec<Vec<u8>> {
    let messages: Vec<_> = messages.iter().map(|message| message.as_bytes().to_vec()).collect();
    built(number, (kind, label, false), window, &messages)
}

/// Returns the id of the chain with this number.
pub(crate) fn id(number: u64) -> ChainId {
    ChainId { network: network(), sender: sender_named("ops"), number: ChainNumber(number) }
}

/// Returns the id of the sender's key.
pub(crate) fn key_id() -> KeyId {
    KeyId::of(&key(2).public())
}

/// Like [`chain`], for messages of any bytes. The last part of the terms states whether the chain is
/// addressed.
pub(crate) fn built(
    number: u64,
    (kind, label, is_addressed): (Kind, &str, bool),
    (not_before, not_after): (u64, u64),
    messages: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let signer = key(2);
    let draft = ChainDraft {
        id: id(number),
        key: KeyId::of(&signer.public()),
        messages: messages.len() as u32,
        per_block: 1,
        kind,
        label,
        window: Window { not_before, not_after },
        previous: (number > 1).then(|| ChainNumber(number - 1)),
        is_addressed,
    };
    let mut digests = vec![Digest::NULL; messages.len()];
    let mut scratch = vec![0; MAX_LEAF];
    let read = |number: u32, buffer: &mut [u8]| {
        let message = &messages[number as usize];
        buffer[..message.len()].copy_from_slice(message);
        Ok::<_, Infallible>(message.len())
    };
    let built = OutgoingChain::build(draft, &mut digests, &mut [], &mut scratch, read).unwrap();
    let mut head = [0; MAX_HEAD];
    let head = built.head(&signer, &mut [0; MAX_HEAD], &mut head).unwrap();
    let mut frames = vec![encoded(&BroadcastFrame::Head(head))];
    for (block, message) in (1..).zip(messages) {
        let leaf = built.leaf(block, 0, message, &mut scratch).unwrap();
        let chain = built.reference();
        frames.push(encoded(&BroadcastFrame::Fragment { chain, block, index: 0, leaf }));
    }
    frames
}

/// Returns the frames of a command on the valve that is valid for ten minutes.
pub(crate) fn command(number: u64, message: &str) -> Vec<Vec<u8>> {
    chain(number, (Kind::Command, "valve"), (NOW, NOW + 600), &[message])
}

/// Returns the reference of the chain with this number.
pub(crate) fn reference(number: u64) -> ChainRef {
    id(number).reference(key_id())
}

/// A watcher with a clock that the test sets.
pub(crate) struct Post<'a> {
    watcher: Watcher<'a>,
    ms: u64,
    unix: Option<u64>,
    events: Vec<String>,
}

fn describe(event: &WatchEvent<'_>) -> Option<String> {
    match event {
        WatchEvent::Message { message, .. } => Some(String::from_utf8_lossy(message).into_owned()),
        WatchEvent::Withheld { outline, why, .. } => {
            Some(format!("{} {}", outline.id.number, why.name()))
        }
        WatchEvent::NotAddressed { outline, why } => {
            Some(format!("{} {}", outline.id.number, why.name()))
        }
        WatchEvent::Missed { number, .. } => Some(format!("missed {number}")),
        // Leaves of a chain that was dropped.
        WatchEvent::Refused(RefusedBroadcast::UnknownChain) => None,
        WatchEvent::Refused(refused) => Some(refused.name().to_owned()),
        _ => None,
    }
}

impl<'a> Post<'a> {
    /// Opens the watcher's archive, and waits until it has caught up.
    fn open(folder: &Path, base: &'a [PublicKey], unix: Option<u64>) -> Self {
        Self::open_with(folder, Options::new(network(), base), unix)
    }

    pub(crate) fn open_with(folder: &Path, options: Options<'a>, unix: Option<u64>) -> Self {
        let base = options.bases;
        let archive = Archive::open(folder, network(), &[KeyId::of(&base[0])], 1 << 20).unwrap();
        let mut events = Vec::new();
        let mut notify = |event: WatchEvent<'_>| {
            events.extend(describe(&event));
            Ok(())
        };
        let now = Now { ms: 0, unix };
        let watcher = Watcher::open(options, archive, 1, now, &mut notify).unwrap();
        let mut post = Self { watcher, ms: 0, unix, events };
        post.wait(CATCH_UP_MS);
        post.receive(&[certificate()]);
        post
    }

    fn now(&self) -> Now {
        Now { ms: self.ms, unix: self.unix }
    }

    /// Receives a frame on a link.
    pub(crate) fn receive_on(&mut self, link: u8, frame: &[u8]) {
        let now = self.now();
        self.watcher.receive(now, link, frame, &mut |_| Ok(())).unwrap();
    }

    pub(crate) fn receive(&mut self, frames: &[Vec<u8>]) {
        let (now, events) = (self.now(), &mut self.events);
        for frame in frames {
            let mut notify = |event: WatchEvent<'_>| {
                events.extend(describe(&event));
                Ok(())
            };
            self.watcher.receive(now, 0, frame, &mut notify).unwrap();
        }
    }

    /// Lets time pass, on both clocks.
    pub(crate) fn wait(&mut self, ms: u64) {
        self.ms += ms;
        self.unix = self.unix.map(|unix| unix + ms / 1000);
        let (now, events) = (self.now(), &mut self.events);
        let mut notify = |event: WatchEvent<'_>| {
            events.extend(describe(&event));
            Ok(())
        };
        self.watcher.tend(now, &mut notify).unwrap();
    }

    /// Returns the events since the last call.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Returns the frames that the watcher sends within half a second.
    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut out = vec![0; MAX_BROADCAST_FRAME];
        let mut frames = Vec::new();
        for _ in 0..50 {
            self.ms += 10;
            while let Some(sent) = self.watcher.poll(self.now(), &mut out).unwrap() {
                frames.push(out[..sent.length].to_vec());
            }
        }
        frames
    }

    /// Returns the chains whose heads the watcher requests.
    fn requests(&mut self) -> Vec<ChainRef> {
        let mut requested = Vec::new();
        for frame in self.sent() {
            if let Ok(BroadcastFrame::Wanted { chain, block: 0, .. }) =
                BroadcastFrame::decode(&frame)
            {
                requested.push(chain);
            }
        }
        requested.sort_unstable();
        requested.dedup();
        requested
    }
}

pub(crate) fn bases() -> [PublicKey; 1] {
    [key(1).public()]
}

#[test]
fn a_current_command_is_delivered_at_once_and_an_expired_one_never() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let mut post = Post::open(folder.path(), &bases, Some(NOW));
    post.receive(&command(1, "open"));
    assert_eq!(post.take(), ["open"]);
    post.receive(&chain(2, (Kind::Command, "valve"), (NOW - 60, NOW), &["shut"]));
    assert_eq!(post.take(), ["2 Late"]);
    drop(post);
    let mut post = Post::open(folder.path(), &bases, Some(NOW - 5));
    post.wait(60_000);
    assert_eq!(post.take(), [""; 0], "nothing is delivered again or revived after a restart");
}

#[test]
fn a_command_whose_last_block_arrives_after_its_end_is_not_delivered_any_more() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let mut post = Post::open(folder.path(), &bases, Some(NOW));
    let frames =
        chain(1, (Kind::Command, "valve"), (NOW, NOW + 60), &["step 1", "step 2", "step 3"]);
    post.receive(&frames[..2]);
    assert_eq!(post.take(), ["step 1"]);
    post.wait(60_000);
    post.receive(&frames[2..]);
    assert_eq!(post.take(), ["1 Late"]);
}

#[test]
fn a_watcher_that_catches_up_delivers_only_the_newest_command_of_a_topic() {
    let later = NOW + 60;
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
        let mut post = Post::open(folder.path(), &bases, Some(later));
        for number in order {
            post.receive(&command(number, ["open", "shut", "on"][number as usize - 1]));
        }
        post.receive(&chain(4, (Kind::Command, "lamp"), (NOW, NOW + 600), &["led on"]));
        post.wait(CATCH_UP_MS);
        post.wait(60_000);
        let events = post.take();
        let messages: Vec<&String> = events.iter().filter(|event| !event.contains(' ')).collect();
        assert_eq!(messages, ["on"], "{order:?}: {events:?}");
        assert!(events.contains(&"led on".to_owned()), "{events:?}");
        assert!(events.iter().any(|event| event.ends_with(" SupersededCommand")), "{events:?}");
    }
}

#[test]
fn a_later_command_that_has_expired_still_supersedes_an_earlier_one() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let mut post = Post::open(folder.path(), &bases, Some(NOW + 60));
    post.receive(&chain(2, (Kind::Command, "valve"), (NOW, NOW + 30), &["shut"]));
    post.receive(&command(1, "open"));
    post.wait(60_000);
    assert_eq!(post.take(), ["2 Late", "1 SupersededCommand"]);
}

#[test]
fn an_early_command_is_held_until_its_begin_unless_a_later_one_applies() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let early = (NOW + 100, NOW + 200);
    let mut post = Post::open(folder.path(), &bases, Some(NOW));
    post.receive(&chain(1, (Kind::Command, "valve"), early, &["open"]));
    post.receive(&chain(2, (Kind::Command, "lamp"), early, &["led on"]));
    assert_eq!(post.take(), ["1 Early", "2 Early"]);
    post.receive(&chain(3, (Kind::Command, "lamp"), (NOW, NOW + 600), &["led off"]));
    assert_eq!(post.take(), ["led off"]);
    for _ in 0..7 {
        post.wait(10_000);
    }
    assert_eq!(post.take(), ["2 SupersededCommand"], "a later command cancels it");
    // The wait survives a restart.
    drop(post);
    let mut post = Post::open(folder.path(), &bases, Some(NOW + 80));
    for _ in 0..20 {
        post.wait(1_000);
    }
    let events = post.take();
    assert_eq!(events, ["1 Early", "open"]);
}

#[test]
fn without_a_date_or_after_the_clock_was_set_back_commands_wait_and_announcements_do_not() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let mut post = Post::open(folder.path(), &bases, None);
    post.receive(&chain(1, (Kind::Announcement, ""), (0, u64::MAX), &["hello"]));
    post.receive(&command(2, "open"));
    post.wait(60_000);
    assert_eq!(post.take(), ["hello", "2 NoTrustedTime"]);
    post.unix = Some(NOW + 10);
    post.wait(10_000);
    post.wait(CATCH_UP_MS);
    assert_eq!(post.take(), ["open"]);
    drop(post);
    // The clock is an hour behind: the attacker sends a command that has ended.
    let mut post = Post::open(folder.path(), &bases, Some(NOW - 3600));
    post.receive(&chain(3, (Kind::Command, "valve"), (NOW - 3600, NOW - 3000), &["shut"]));
    post.wait(60_000);
    assert_eq!(post.take(), ["3 ClockSetBack"]);
    post.unix = Some(NOW + 30);
    post.wait(10_000);
    assert_eq!(post.take(), ["3 Late"]);
    drop(post);
    // The user states that the earlier time was wrong.
    let options = Options { accepts_earlier_time: true, ..Options::new(network(), &bases) };
    let mut post = Post::open_with(folder.path(), options, Some(NOW - 7200));
    post.receive(&chain(4, (Kind::Command, "valve"), (NOW - 7200, NOW - 6000), &["open"]));
    assert_eq!(post.take(), ["open"]);
}

#[test]
fn announcements_and_files_are_not_begun_after_their_end_but_completed() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let mut post = Post::open(folder.path(), &bases, Some(NOW));
    let window = (0, NOW + 60);
    let announcement = chain(1, (Kind::Announcement, ""), window, &["one", "two"]);
    post.receive(&announcement[..2]);
    let file = chain(2, (Kind::File, "file"), window, &["three", "four"]);
    post.receive(&file[..2]);
    post.wait(60_000);
    post.receive(&announcement[2..]);
    post.receive(&file[2..]);
    assert_eq!(post.take(), ["one", "two"]);
    for chain in [1, 2].map(reference) {
        assert!(post.watcher.archive().is_complete(chain));
    }
    post.receive(&chain(3, (Kind::Announcement, ""), window, &["five"]));
    post.receive(&chain(4, (Kind::File, "file"), window, &["six", "seven"]));
    assert_eq!(post.take(), ["3 Late", "4 Late"]);
}

#[test]
fn missed_chains_are_reported_requested_and_accepted_once() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let mut post = Post::open(folder.path(), &bases, Some(NOW));
    post.receive(&command(1, "open"));
    post.receive(&chain(4, (Kind::Command, "lamp"), (NOW, NOW + 600), &["led on"]));
    assert_eq!(post.take(), ["open", "missed 3", "led on"]);
    assert!(post.requests().contains(&reference(3)));
    // Its head names the chain before it, which was missed, too. A restart changes nothing.
    drop(post);
    let mut post = Post::open(folder.path(), &bases, Some(NOW));
    assert!(post.requests().contains(&reference(3)));
    let announcement = chain(3, (Kind::Announcement, ""), (0, u64::MAX), &["hello"]);
    post.receive(&announcement);
    assert_eq!(post.take(), ["missed 2", "hello"]);
    assert!(post.requests().contains(&reference(2)));
    post.receive(&command(2, "shut"));
    assert_eq!(post.take(), ["shut"]);
    // The chain is not accepted twice, and chain 1 is not missed.
    let _ = post.requests();
    post.receive(&announcement);
    post.receive(&command(1, "open"));
    assert_eq!(post.take(), [""; 0]);
    drop(post);
    let mut post = Post::open(folder.path(), &bases, Some(NOW));
    assert_eq!(post.requests(), [ChainRef([0; 8])], "only the request for any chain");
    assert_eq!(post.take(), [""; 0]);
}

#[test]
fn a_missed_command_that_does_not_apply_any_more_is_reported_and_its_messages_not_requested() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let mut post = Post::open(folder.path(), &bases, Some(NOW));
    post.receive(&command(1, "open"));
    post.receive(&command(3, "on"));
    let ended = chain(5, (Kind::Command, "lamp"), (NOW - 60, NOW), &["led on", "led off"]);
    post.receive(&chain(6, (Kind::Announcement, ""), (0, u64::MAX), &["hello"]));
    assert_eq!(post.take(), ["open", "missed 2", "on", "missed 5", "hello"]);
    let superseded = chain(2, (Kind::Command, "valve"), (NOW, NOW + 600), &["shut", "lock"]);
    post.receive(&superseded[..1]);
    post.receive(&ended[..1]);
    assert_eq!(post.take(), ["2 SupersededCommand", "missed 4", "5 Late"]);
    let held: Vec<ChainRef> = post.watcher.archive().chains();
    assert!(![2, 5].map(reference).iter().any(|chain| held.contains(chain)));
}

#[test]
fn a_late_joiner_gets_earlier_commands_of_other_topics_but_no_earlier_announcements() {
    let (folder, bases) = (tempfile::tempdir().unwrap(), bases());
    let mut post = Post::open(folder.path(), &bases, Some(NOW + 60));
    post.receive(&chain(3, (Kind::Command, "lamp"), (NOW, NOW + 600), &["led on"]));
    assert!(post.requests().contains(&reference(2)));
    post.receive(&chain(2, (Kind::Announcement, ""), (0, u64::MAX), &["hello"]));
    assert!(post.requests().contains(&reference(1)));
    post.receive(&command(1, "open"));
    post.wait(CATCH_UP_MS);
    post.wait(CATCH_UP_MS);
    let mut events = post.take();
    events.sort_unstable();
    assert_eq!(events, ["led on", "open"]);
}
