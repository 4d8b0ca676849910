//! Watchers relay on one medium: messages reach a receiver that is out of the sender's range, and its
//! receipt reaches the sender.

use std::collections::VecDeque;
use std::time::Duration;

use moteseal_broadcast::receipt::ReceiverKey;
use moteseal_broadcast::recovery::Now;
use moteseal_broadcast::wire::MAX_BROADCAST_FRAME;
use moteseal_broadcast::{ChainDraft, ChainId, ChainNumber, KeyId, Kind, Window};
use moteseal_device::broadcast::{Options, WatchEvent, Watcher};
use moteseal_gateway::broadcast::{Content, Hashes, Manner, Receivers, Sender, build, sign};
use moteseal_lab::chance::{Draws, Seed};
use moteseal_store::Archive;

use crate::receiver::{authority, sender};
use crate::sender_world::{World, run};

/// The stations are in a line: the sender, and receivers of which each hears its neighbours only.
const RECEIVERS: usize = 3;
const TRANSIT_MS: u64 = 2;
const MESSAGES: u32 = 20;

fn now(ms: u64) -> Now {
    Now { ms, unix: Some(1_800_000_000 + ms / 1000) }
}

struct Line<'a> {
    watchers: Vec<Watcher<'a>>,
    delivered: [u32; RECEIVERS],
    loss: f64,
    draws: Draws,
    /// Frames in transit: the time of arrival, the station that sent it (0 is the sender), the frame.
    transit: VecDeque<(u64, usize, Vec<u8>)>,
}

impl World for Line<'_> {
    fn receive(&mut self, now_ms: u64, frame: &[u8]) {
        self.transit.push_back((now_ms + TRANSIT_MS, 0, frame.to_vec()));
    }

    fn step(&mut self, now_ms: u64) -> Vec<Vec<u8>> {
        let mut to_sender = Vec::new();
        let count = |delivered: &mut u32, event: WatchEvent<'_>| {
            *delivered += u32::from(matches!(event, WatchEvent::Message { .. }));
            Ok(())
        };
        while let Some((_, from, frame)) = self.transit.pop_front_if(|(due, ..)| *due <= now_ms) {
            for to in [from.wrapping_sub(1), from + 1] {
                if to > RECEIVERS || self.draws.unit() < self.loss {
                    continue;
                }
                let Some(place) = to.checked_sub(1) else {
                    to_sender.push(frame.clone());
                    continue;
                };
                let delivered = &mut self.delivered[place];
                let mut notify = |event: WatchEvent<'_>| count(delivered, event);
                self.watchers[place].receive(now(now_ms), 0, &frame, &mut notify).unwrap();
            }
        }
        let mut out = vec![0; MAX_BROADCAST_FRAME];
        for (place, watcher) in self.watchers.iter_mut().enumerate() {
            let delivered = &mut self.delivered[place];
            watcher.tend(now(now_ms), &mut |event| count(delivered, event)).unwrap();
            while let Some(transmit) = watcher.poll(now(now_ms), &mut out).unwrap() {
                let frame = out[..transmit.length].to_vec();
                self.transit.push_back((now_ms + TRANSIT_MS, place + 1, frame));
            }
        }
        to_sender
    }

    fn next_due(&self) -> Option<u64> {
        let of_watchers = self.watchers.iter().filter_map(Watcher::next_due);
        of_watchers.chain(self.transit.front().map(|(due, ..)| *due)).min()
    }
}

/// Broadcasts messages along the line. Returns how many messages each receiver delivered, and how
/// many receipts the sender has in the end.
fn broadcast(repeats: bool, loss: f64) -> ([u32; RECEIVERS], usize) {
    let authority = authority();
    let (network, source) = (authority.network, sender(&authority));
    let mut list = Receivers::new(network, source.id, [9; 32].into());
    let keys: Vec<[ReceiverKey; 1]> =
        (0..RECEIVERS).map(|at| [list.add(&format!("r{at}")).unwrap().clone()]).collect();
    let folder = tempfile::tempdir().unwrap();
    let base = [authority.public.clone()];
    let watchers = (0..)
        .zip(&keys)
        .map(|(seed, key)| {
            let path = folder.path().join(seed.to_string());
            let archive = Archive::open(&path, network, &[KeyId::of(&base[0])], 1 << 20).unwrap();
            let options = Options { repeats, receiver_keys: key, ..Options::new(network, &base) };
            Watcher::open(options, archive, seed, now(0), &mut |_| Ok(())).unwrap()
        })
        .collect();
    let mut line = Line {
        watchers,
        delivered: [0; RECEIVERS],
        loss,
        draws: Seed::default().derive("relaying", u64::from(repeats)).draws(),
        transit: VecDeque::new(),
    };
    let lines = (0..MESSAGES).map(|line| format!("open valve {line:02}").into()).collect();
    let content = Content::lines(lines).unwrap();
    let draft = ChainDraft {
        id: ChainId { network, sender: source.id, number: ChainNumber(5) },
        key: source.key_id(),
        messages: 0,
        per_block: 4,
        kind: Kind::Announcement,
        is_addressed: false,
        label: "",
        window: Window::ALWAYS,
        previous: None,
    };
    let mut hashes = Hashes::default();
    let chain = build(draft, &content, &mut hashes).unwrap();
    let head = sign(&chain, source.key()).unwrap();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let receipts = runtime.unwrap().block_on(run(&mut line, async |link| {
        let certificate = &source.certificate;
        let mut sender = Sender::new(link, network, certificate, Manner::LAN, 1).unwrap();
        sender.set_receivers(&list);
        sender.expect(chain.reference(), &head, list.current());
        sender.send(&chain, &content, head.clone(), |_| ()).await.unwrap();
        sender.collect(chain.reference(), RECEIVERS, Duration::from_secs(60)).await.unwrap();
        sender.receipts(chain.reference()).unwrap().count()
    }));
    (line.delivered, receipts)
}

#[test]
fn without_relays_only_the_receiver_in_range_acknowledges() {
    // Receivers answer the requests of others, so that messages may go further, but no receipt does.
    let (delivered, receipts) = broadcast(false, 0.0);
    assert_eq!((delivered[0], receipts), (MESSAGES, 1));
}

#[test]
fn relays_on_one_medium_bring_messages_to_receivers_out_of_range_and_their_receipts_back() {
    for loss in [0.0, 0.2] {
        let (delivered, receipts) = broadcast(true, loss);
        assert_eq!(delivered, [MESSAGES; RECEIVERS], "loss {loss}");
        assert_eq!(receipts, RECEIVERS, "loss {loss}");
    }
}
