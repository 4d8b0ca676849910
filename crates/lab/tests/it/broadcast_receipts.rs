//! Receipts of a thousand receivers reach the sender of the product, directly or by relays.

use std::collections::VecDeque;
use std::time::Duration;

use moteseal_broadcast::receipt::{ReceiptRelay, ReceiverTag};
use moteseal_broadcast::recovery::LinkSet;
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_gateway::broadcast::{Manner, Receivers, Sender};
use moteseal_lab::chance::{Draws, Seed};
use moteseal_lab::radio::SignedChain;

use crate::receiver::{authority, encode, sender, test_messages};
use crate::sender_world::{World, run};

const RECEIVERS: u32 = 1_000;
/// The time within which receivers send their receipts, in milliseconds.
const SPREAD_MS: u32 = 100;
/// The time for a frame, in milliseconds.
const TRANSIT_MS: u64 = 2;
/// The medium of the sender.
const TOP: usize = 0;

/// A receiver or relay: link `n` is on medium `media[n]`.
struct Station {
    relay: ReceiptRelay<2, 16>,
    media: Vec<usize>,
    position: u32,
    tag: ReceiverTag,
}

struct Field {
    stations: Vec<Station>,
    loss: f64,
    draws: Draws,
    /// Frames in transit: the time of arrival, the medium, the station that sent it, the frame.
    transit: VecDeque<(u64, usize, usize, Vec<u8>)>,
    /// Sent to the sender each 10 ms by an attacker.
    forged: Option<Vec<u8>>,
    forged_due: u64,
    at_sender: u64,
}

impl Field {
    /// Creates receivers that have the chain. `relays` of them connect the others with the sender;
    /// if it is 0, all are on the sender's medium.
    fn new(signed: &SignedChain, list: &Receivers, relays: u32, loss: f64) -> Self {
        let seed = Seed::default().derive("receipts", u64::from(relays));
        let station = |position: u32| {
            let media = match (relays, position) {
                (0, _) => vec![TOP],
                (relays, at) if at < relays => vec![TOP, 1 + at as usize],
                (relays, at) => vec![1 + (at % relays) as usize],
            };
            let links = LinkSet::first(u8::try_from(media.len()).unwrap());
            let mut relay = ReceiptRelay::new(links, SPREAD_MS, u64::from(position));
            relay.follow(signed.reference(), LinkSet::one(0));
            let tag = list.key(position).unwrap().receipt(&signed.head);
            Station { relay, media, position, tag }
        };
        Self {
            stations: (0..RECEIVERS).map(station).collect(),
            loss,
            draws: seed.draws(),
            transit: VecDeque::new(),
            forged: None,
            forged_due: 0,
            at_sender: 0,
        }
    }

    fn acknowledge(&mut self, now_ms: u64, signed: &SignedChain) {
        for Station { relay, position, tag, .. } in &mut self.stations {
            relay.acknowledge(now_ms, signed.reference(), *position, *tag);
        }
    }

    /// Delivers a frame to the stations on a medium.
    fn deliver(&mut self, now_ms: u64, medium: usize, from: usize, frame: &[u8]) {
        let decoded = BroadcastFrame::decode(frame).unwrap();
        let is_receipt = matches!(decoded, BroadcastFrame::Receipts { .. });
        for at in 0..self.stations.len() {
            let station = &mut self.stations[at];
            let Some(link) = station.media.iter().position(|of| *of == medium) else { continue };
            // Receivers that are no relays ignore receipts.
            let ignores = is_receipt && station.media.len() == 1;
            if at == from || ignores || self.draws.unit() < self.loss {
                continue;
            }
            let on = station.relay.receive(now_ms, u8::try_from(link).unwrap(), &decoded);
            let media: Vec<usize> = (0..)
                .zip(&station.media)
                .filter(|(link, _)| on.has(*link))
                .map(|(_, medium)| *medium)
                .collect();
            for medium in media {
                self.transit.push_back((now_ms + TRANSIT_MS, medium, at, frame.to_vec()));
            }
        }
    }
}

impl World for Field {
    fn receive(&mut self, now_ms: u64, frame: &[u8]) {
        self.transit.push_back((now_ms + TRANSIT_MS, TOP, usize::MAX, frame.to_vec()));
    }

    fn step(&mut self, now_ms: u64) -> Vec<Vec<u8>> {
        let mut to_sender = Vec::new();
        while let Some((_, medium, from, frame)) =
            self.transit.pop_front_if(|(due, ..)| *due <= now_ms)
        {
            if medium == TOP && from != usize::MAX && self.draws.unit() >= self.loss {
                self.at_sender += frame.len() as u64;
                to_sender.push(frame.clone());
            }
            self.deliver(now_ms, medium, from, &frame);
        }
        let mut out = vec![0; MAX_BROADCAST_FRAME];
        for at in 0..self.stations.len() {
            while let Some(transmit) = self.stations[at].relay.poll(now_ms, &mut out) {
                let frame = out[..transmit.length].to_vec();
                for (link, medium) in (0..).zip(&self.stations[at].media) {
                    if transmit.links.has(link) {
                        self.transit.push_back((now_ms + TRANSIT_MS, *medium, at, frame.clone()));
                    }
                }
            }
        }
        if let Some(forged) = self.forged.clone().filter(|_| now_ms >= self.forged_due) {
            self.forged_due = now_ms + 10;
            // The attacker is on the sender's medium and on that of the first relay.
            self.transit.push_back((now_ms, 1, usize::MAX - 1, forged.clone()));
            to_sender.push(forged);
        }
        to_sender
    }

    fn next_due(&self) -> Option<u64> {
        let of_stations = self.stations.iter().filter_map(|of| of.relay.next_due());
        let transit = self.transit.front().map(|(due, ..)| *due);
        of_stations.chain(transit).chain(self.forged.as_ref().map(|_| self.forged_due)).min()
    }
}

fn list(count: u32) -> Receivers {
    let authority = authority();
    let mut list = Receivers::new(authority.network, sender(&authority).id, [9; 32].into());
    (0..count).for_each(|at| _ = list.add(&format!("r{at}")).unwrap());
    list
}

/// What a sender knows in the end: the number of receipts, the positions that are missing, and
/// those of which only wrong receipts have arrived.
type Known = (usize, Vec<u32>, Vec<u32>);

fn collect(field: &mut Field, signed: &SignedChain, list: &Receivers, seconds: u64) -> Known {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let authority = authority();
    let (certificate, head) = (&signed.certificate, &signed.head);
    runtime.unwrap().block_on(run(field, async |link| {
        let mut sender = Sender::new(link, authority.network, certificate, Manner::LAN, 1).unwrap();
        sender.set_receivers(list);
        sender.expect(signed.reference(), head, list.current());
        let time = Duration::from_secs(seconds);
        sender.collect(signed.reference(), usize::MAX, time).await.unwrap();
        let receipts = sender.receipts(signed.reference()).unwrap();
        (receipts.count(), receipts.missing().collect(), receipts.failing().collect())
    }))
}

fn signed() -> SignedChain {
    sender(&authority()).send(3, 1, &test_messages(1)).unwrap()
}

#[test]
fn the_receipts_of_a_thousand_receivers_cost_the_sender_at_most_forty_kilobytes() {
    let (signed, list) = (signed(), list(RECEIVERS));
    for (relays, loss) in [(0, 0.0), (0, 0.1), (10, 0.0), (10, 0.1), (10, 0.3)] {
        let mut field = Field::new(&signed, &list, relays, loss);
        field.acknowledge(0, &signed);
        let (count, ..) = collect(&mut field, &signed, &list, 60);
        println!(
            "{relays} relays, {:.0} % loss: {count} receipts, {} bytes",
            loss * 100.0,
            field.at_sender
        );
        assert_eq!(count, RECEIVERS as usize, "{relays} relays, loss {loss}");
        assert!(field.at_sender <= 40_000, "{relays} relays, loss {loss}: {}", field.at_sender);
        assert!(relays == 0 || field.at_sender < 10_000, "{} bytes", field.at_sender);
    }
}

#[test]
fn receivers_without_the_chain_and_with_a_wrong_key_are_named_and_harm_no_other_receipt() {
    let (signed, list) = (signed(), list(RECEIVERS));
    let mut field = Field::new(&signed, &list, 10, 0.1);
    for wrong in [17, 500] {
        field.stations[wrong].tag[3] ^= 1;
    }
    field.acknowledge(0, &signed);
    // This receiver does not have the chain.
    field.stations[23].relay = ReceiptRelay::new(LinkSet::first(1), SPREAD_MS, 1);
    let (count, missing, failing) = collect(&mut field, &signed, &list, 60);
    assert_eq!((count, missing), (997, vec![17, 23, 500]));
    assert_eq!(failing, [17, 500]);
}

/// An attacker sends a forged receipt of a receiver that does not have the chain, a hundred times a
/// second, to the sender and to a relay, which combines it with others.
#[test]
fn forged_receipts_are_not_counted_and_harm_no_other_receipt() {
    let (signed, list) = (signed(), list(RECEIVERS));
    for positions in [vec![40], (0..RECEIVERS).collect()] {
        let mut field = Field::new(&signed, &list, 10, 0.1);
        field.acknowledge(0, &signed);
        field.stations[40].relay = ReceiptRelay::new(LinkSet::first(1), SPREAD_MS, 1);
        let mut words = [0_u64; 16];
        positions.iter().for_each(|at| words[*at as usize / 64] |= 1 << (at % 64));
        let mut set = vec![0; 256];
        let length = moteseal_core::participation::Participation::encode(&words, &mut set).unwrap();
        let frame = BroadcastFrame::Receipts {
            chain: signed.reference(),
            receivers: &set[..length],
            tag: [5; 16],
        };
        field.forged = Some(encode(&frame));
        let (count, missing, _) = collect(&mut field, &signed, &list, 120);
        assert_eq!((count, missing), (999, vec![40]), "{} positions", positions.len());
    }
}

/// Relays and receivers lose their memory while the receipts are on their way.
#[test]
fn receipts_arrive_although_relays_and_receivers_restart() {
    let (signed, list) = (signed(), list(RECEIVERS));
    let mut field = Field::new(&signed, &list, 10, 0.1);
    field.acknowledge(0, &signed);
    // Half of the receipts are at the relays, which lose them.
    for now_ms in 0..80 {
        assert!(field.step(now_ms).is_empty());
    }
    let fresh = Field::new(&signed, &list, 10, 0.1);
    for (station, fresh) in field.stations.iter_mut().zip(fresh.stations) {
        if station.position < 10 || station.position.is_multiple_of(7) {
            station.relay = fresh.relay;
        }
    }
    field.acknowledge(80, &signed);
    let (count, ..) = collect(&mut field, &signed, &list, 60);
    assert_eq!(count, RECEIVERS as usize);
}
