//! A mote that shares a key with a sender accepts the sender's genuine head soon, although an
//! attacker sends a hundred forged heads each second and the radio loses frames.
//!
//! `MOTESEAL_SEEDS` sets the number of seeds.

use std::collections::VecDeque;

use moteseal_broadcast::receipt::{HeadRequest, ReceiverKey};
use moteseal_broadcast::recovery::{Event, Meter, Node, Rate};
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_gateway::broadcast::{HeadAnswers, Receivers};
use moteseal_lab::chance::{Draws, Seed};
use moteseal_lab::radio::{Authority, MapStore, SignedChain};

use crate::receiver::{
    RADIO, Receiver, at, authority, encode, refusal, sender, settings, test_messages,
};

/// The number of forged heads per second.
const FORGED: u64 = 100;
/// When the sender sends the genuine head, in milliseconds. The flood begins at 0.
const BEGIN_MS: u64 = 5_000;
/// The time for a frame, in milliseconds.
const AIR_MS: u64 = 5;
/// The end of a run, in milliseconds.
const END_MS: u64 = 65_000;

fn receivers(authority: &Authority) -> Receivers {
    let id = sender(authority).id;
    let mut list = Receivers::new(authority.network, id, [9; 32].into());
    list.add("another").unwrap();
    list.add("mote").unwrap();
    list
}

struct Run<'a> {
    signed: &'a SignedChain,
    list: &'a Receivers,
    loss: f64,
    draws: Draws,
    answers: HeadAnswers,
    /// The frames on the way to the mote, with their times of arrival.
    air: VecDeque<(u64, Vec<u8>)>,
    head_requests: u64,
}

impl Run<'_> {
    /// Sends a frame to the mote.
    fn send(&mut self, now: u64, frame: Vec<u8>) {
        if self.draws.unit() >= self.loss {
            self.air.push_back((now + AIR_MS, frame));
        }
    }

    /// The sender receives a frame of the mote.
    fn at_sender(&mut self, frame: &[u8]) {
        if let BroadcastFrame::HeadWanted { key, above, receiver, tag } =
            BroadcastFrame::decode(frame).unwrap()
        {
            self.head_requests += 1;
            let newest = self.signed.outline.id.number.0;
            let request = HeadRequest { key, above };
            self.answers.take(self.list, newest, &request, receiver, &tag);
        }
    }

    /// Returns the time until the mote accepts the genuine head, in milliseconds after it was first
    /// sent.
    fn until_accepted(&mut self, node: &mut Receiver<'_>, forged_for: bool) -> u64 {
        let (mut store, mut out) = (MapStore::default(), vec![0; MAX_BROADCAST_FRAME]);
        let certificate = encode(&BroadcastFrame::Certificate(&self.signed.certificate));
        node.receive(at(0), RADIO, &certificate, &mut store).unwrap();
        let (mut forged, length) = (self.signed.head.clone(), self.signed.head.len());
        for now in 0..END_MS {
            if now == BEGIN_MS {
                self.send(now, encode(&BroadcastFrame::Head(&self.signed.head)));
            }
            if now % (1000 / FORGED) == 0 {
                forged[length - 8..].copy_from_slice(&now.to_be_bytes());
                self.air.push_back((now, encode(&BroadcastFrame::Head(&forged))));
                if forged_for {
                    let frame =
                        BroadcastFrame::HeadFor { receiver: 1, tag: [7; 16], head: &forged };
                    self.air.push_back((now, encode(&frame)));
                }
            }
            if now >= BEGIN_MS
                && let Some(receiver) = self.answers.next(now)
            {
                let tag = self.list.key(receiver).unwrap().head(&self.signed.head);
                let head = &self.signed.head;
                self.send(now, encode(&BroadcastFrame::HeadFor { receiver, tag, head }));
            }
            for _ in 0..self.air.len() {
                let (due, frame) = self.air.pop_front().unwrap();
                if due <= now {
                    node.receive(at(now), RADIO, &frame, &mut store).unwrap();
                } else {
                    self.air.push_back((due, frame));
                }
            }
            while let Some(transmit) = node.poll(at(now), &mut store, &mut out).unwrap() {
                if self.draws.unit() >= self.loss && now >= BEGIN_MS {
                    self.at_sender(&out[..transmit.length]);
                }
            }
            if node.chains().next().is_some() {
                return now.saturating_sub(BEGIN_MS);
            }
        }
        END_MS
    }
}

/// Returns the 95 % quantile of the time until the mote accepts the genuine head, in milliseconds.
fn quantile(loss: f64, has_key: bool, forged_for: bool) -> u64 {
    let authority = authority();
    let signed = sender(&authority).send(7, 1, &test_messages(1)).unwrap();
    let list = receivers(&authority);
    let keys: Vec<ReceiverKey> = if has_key { vec![list.key(1).unwrap().clone()] } else { vec![] };
    let seeds = std::env::var("MOTESEAL_SEEDS").map_or(200, |seeds| seeds.parse().unwrap());
    let mut times: Vec<u64> = (0..seeds)
        .map(|seed| {
            let mut node: Receiver<'_> = Node::new(settings(&authority), seed, at(0));
            node.set_receiver_keys(&keys);
            let mut run = Run {
                signed: &signed,
                list: &list,
                loss,
                draws: Seed::default().derive("reserved checks", seed).draws(),
                answers: HeadAnswers::default(),
                air: VecDeque::new(),
                head_requests: 0,
            };
            let time = run.until_accepted(&mut node, forged_for);
            let Rate { burst, each_ms } = Meter::MOTE.heads;
            let allowed = u64::from(burst) + (BEGIN_MS + time) / u64::from(each_ms) + 2;
            assert!(node.checks().heads <= allowed, "{:?} in {time} ms", node.checks());
            assert!(run.head_requests <= time / 1_000 + 2, "{} requests", run.head_requests);
            time
        })
        .collect();
    times.sort_unstable();
    times[times.len() * 95 / 100]
}

#[test]
fn under_a_flood_a_mote_with_a_key_accepts_the_genuine_head_within_ten_seconds() {
    for (loss, forged_for) in [(0.0, false), (0.3, false), (0.3, true)] {
        let quantile = quantile(loss, true, forged_for);
        println!("{:.0} % loss: {:.1} s", loss * 100.0, quantile as f64 / 1000.0);
        assert!(quantile <= 10_000, "{loss} loss, {forged_for}: {quantile} ms");
    }
}

#[test]
fn without_a_key_the_same_flood_delays_the_genuine_head_longer() {
    assert!(quantile(0.3, false, false) > 10_000);
}

/// A forged tag, the tag of another receiver and the tag of another head cause no check of a
/// signature. A genuine one causes one check, and a copy of it none.
#[test]
fn only_the_senders_tag_reserves_a_check() {
    let authority = authority();
    let sink = sender(&authority);
    let (first, second) =
        (sink.send(7, 1, &test_messages(1)).unwrap(), sink.send(8, 1, &test_messages(1)).unwrap());
    let list = receivers(&authority);
    let (keys, other) = ([list.key(1).unwrap().clone()], list.key(0).unwrap());
    let mut store = MapStore::default();
    let mut node: Receiver<'_> = Node::new(settings(&authority), 1, at(0));
    node.set_receiver_keys(&keys);
    let certificate = encode(&BroadcastFrame::Certificate(&sink.certificate));
    node.receive(at(0), RADIO, &certificate, &mut store).unwrap();
    let own = &keys[0];
    let head = &first.head;
    for (receiver, tag, expected) in [
        (1, [0; 16], "NotAuthentic"),
        (1, other.head(head), "NotAuthentic"),
        (1, own.receipt(head), "NotAuthentic"),
        (1, own.head(&second.head), "NotAuthentic"),
        (0, other.head(head), "accepted"),
    ] {
        let frame = encode(&BroadcastFrame::HeadFor { receiver, tag, head });
        let event = node.receive(at(0), RADIO, &frame, &mut store).unwrap();
        assert_eq!(refusal(event), expected);
        assert_eq!((node.checks().heads, node.chains().count()), (0, 0));
    }
    let genuine = encode(&BroadcastFrame::HeadFor { receiver: 1, tag: own.head(head), head });
    let event = node.receive(at(0), RADIO, &genuine, &mut store).unwrap();
    assert!(matches!(event, Event::Accepted { .. }), "{event:?}");
    for _ in 0..5 {
        assert_eq!(node.receive(at(0), RADIO, &genuine, &mut store).unwrap(), Event::Nothing);
    }
    assert_eq!(node.checks().heads, 1);
}

/// A receiver that has the newest chain asks with its number, so that the sender does not answer.
#[test]
fn a_request_names_the_newest_chain_that_the_mote_has() {
    let authority = authority();
    let sink = sender(&authority);
    let signed = sink.send(7, 1, &test_messages(1)).unwrap();
    let (list, mut store) = (receivers(&authority), MapStore::default());
    let keys = [list.key(1).unwrap().clone()];
    let mut node: Receiver<'_> = Node::new(settings(&authority), 1, at(0));
    node.set_receiver_keys(&keys);
    for frame in
        [BroadcastFrame::Certificate(&sink.certificate), BroadcastFrame::Head(&signed.head)]
    {
        node.receive(at(0), RADIO, &encode(&frame), &mut store).unwrap();
    }
    let mut forged = sink.send(9, 1, &test_messages(1)).unwrap().head;
    let length = forged.len();
    for number in 0..10_u64 {
        forged[length - 8..].copy_from_slice(&number.to_be_bytes());
        node.receive(at(1), RADIO, &encode(&BroadcastFrame::Head(&forged)), &mut store).unwrap();
    }
    let sent = crate::receiver::sent_until(&mut node, &mut store, 600);
    let key = signed.outline.key;
    let request = HeadRequest { key, above: 7 };
    let expected = encode(&BroadcastFrame::HeadWanted {
        key,
        above: 7,
        receiver: 1,
        tag: keys[0].head_request(&request),
    });
    assert!(sent.iter().any(|(.., frame)| *frame == expected), "{sent:?}");
}
