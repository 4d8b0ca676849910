//! Simulates broadcast by flooding without repair. A node that receives a message for the first
//! time repeats it once after a random delay. Lost messages are not sent again. Section V of Liu et
//! al. measures HMAC, SIGS and uTESLA in this way. The models only decide which node receives which
//! message; they do not contain code for a mote.
//!
//! Every receiver misses each transmission independently with the same probability. There are no
//! collisions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{BACK_OFF_MS, MESSAGES, NODES, arrivals, neighbours};
use crate::chance::{Draws, Seed};

/// A scheme that uses flooding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A message authentication code for each message, under a key that all nodes share.
    Hmac,
    /// A signature for each message.
    Sigs,
    /// A message authentication code under a key that a separate flood discloses later.
    Tesla,
}

/// The interval in which a key of uTESLA is in use. It is longer than a message needs for three
/// hops with delays of up to [`BACK_OFF_MS`].
pub const INTERVAL_MS: u64 = 10_000;
/// The number of intervals from the start of a key's own interval to its disclosure (`d` in RFC
/// 4082).
pub const DISCLOSURE: u64 = 2;

/// The result of flooding a sender's messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Number of transmissions by all nodes, for messages and for disclosed keys.
    pub transmissions: u64,
    /// Number of messages that a receiver has not received or cannot verify at the end, summed over
    /// all receivers.
    pub lacking: u64,
    /// For every message and every receiver that verified it: the milliseconds between the arrival
    /// and the verification of the message.
    pub delays_ms: Vec<u64>,
}

impl Outcome {
    /// Returns the average number of messages that a receiver misses.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn lacking_each(&self) -> f64 {
        self.lacking as f64 / (NODES - 1) as f64
    }

    /// Returns the number of transmissions if each missing message costs one request and one
    /// answer. The paper counts the losses of HMAC in this way.
    #[must_use]
    pub const fn repaired(&self) -> u64 {
        self.transmissions + 2 * self.lacking
    }
}

/// Simulates the flooding of [`MESSAGES`] messages through the testbed.
#[must_use]
pub fn run(scheme: Scheme, loss: f64, seed: Seed) -> Outcome {
    let mut draws = seed.draws();
    let sent = arrivals(MESSAGES, &mut draws);
    let floods: Vec<_> = sent.iter().map(|&at| flood(at, loss, &mut draws)).collect();
    let mut outcome = Outcome {
        transmissions: floods.iter().map(|flood| flood.transmissions).sum(),
        lacking: 0,
        delays_ms: Vec::new(),
    };
    let keys =
        if scheme == Scheme::Tesla { disclosures(&sent, loss, &mut draws) } else { Vec::new() };
    outcome.transmissions += keys.iter().map(|(_, flood)| flood.transmissions).sum::<u64>();
    for (sent, flood) in sent.iter().zip(&floods) {
        for (node, received) in flood.received.iter().enumerate().skip(1) {
            let verified = match scheme {
                Scheme::Hmac | Scheme::Sigs => *received,
                Scheme::Tesla => {
                    received.and_then(|received| verified_at(*sent, received, node, &keys))
                }
            };
            match (received, verified) {
                (Some(received), Some(verified)) => {
                    outcome.delays_ms.push(verified.saturating_sub(*received));
                }
                _ => outcome.lacking += 1,
            }
        }
    }
    outcome
}

/// Returns the time at which a receiver can verify a message, given the times at which it was sent
/// and received. `None` if the message arrived after its key was disclosed, or if neither this key
/// nor a later one arrived.
fn verified_at(sent: u64, received: u64, node: usize, keys: &[(u64, Flood)]) -> Option<u64> {
    let interval = sent / INTERVAL_MS;
    if received >= (interval + DISCLOSURE) * INTERVAL_MS {
        return None;
    }
    // The key can be computed from any later key of the key chain.
    keys.iter()
        .filter(|(of, _)| *of >= interval)
        .filter_map(|(_, key)| key.received.get(node).copied().flatten())
        .min()
}

/// Simulates the floods that disclose the keys: one for each interval in which a message was sent.
fn disclosures(sent: &[u64], loss: f64, draws: &mut Draws) -> Vec<(u64, Flood)> {
    let mut intervals: Vec<_> = sent.iter().map(|at| at / INTERVAL_MS).collect();
    intervals.dedup();
    intervals
        .into_iter()
        .map(|interval| (interval, flood((interval + DISCLOSURE) * INTERVAL_MS, loss, draws)))
        .collect()
}

/// The result of flooding one message.
#[derive(Clone, Debug)]
struct Flood {
    transmissions: u64,
    /// The time at which each node received the message.
    received: [Option<u64>; NODES],
}

fn flood(at: u64, loss: f64, draws: &mut Draws) -> Flood {
    let mut flood = Flood { transmissions: 0, received: [None; NODES] };
    flood.received[0] = Some(at);
    let mut due = BinaryHeap::from([Reverse((at, 0_usize))]);
    while let Some(Reverse((now, node))) = due.pop() {
        flood.transmissions += 1;
        for neighbour in neighbours(node) {
            // `unit` is in (0, 1], so at a loss of 0 no transmission is lost.
            if draws.unit() <= loss {
                continue;
            }
            if let Some(place @ None) = flood.received.get_mut(neighbour) {
                *place = Some(now);
                due.push(Reverse((now + draws.below(BACK_OFF_MS.into()), neighbour)));
            }
        }
    }
    flood
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_loss_every_node_sends_every_message_once() {
        for scheme in [Scheme::Hmac, Scheme::Sigs] {
            let outcome = run(scheme, 0.0, Seed([1; 32]));
            assert_eq!((outcome.transmissions, outcome.lacking), (700, 0));
            assert!(
                outcome.delays_ms.iter().all(|&delay| delay == 0) && outcome.delays_ms.len() == 600
            );
        }
    }

    #[test]
    fn with_certain_loss_only_the_sender_sends() {
        let outcome = run(Scheme::Hmac, 1.0, Seed([1; 32]));
        assert_eq!((outcome.transmissions, outcome.lacking, outcome.repaired()), (100, 600, 1300));
    }

    /// Compares the number of missing messages with an oracle. In the oracle each direction of each
    /// link exists with the probability that a transmission arrives, and exactly the nodes that are
    /// reachable from the sender receive the message.
    #[test]
    fn unreachable_nodes_miss_a_message() {
        let loss = 0.3;
        let seeds = 400;
        let flooded: u64 = (0..seeds)
            .map(|seed| run(Scheme::Hmac, loss, Seed::default().derive("flood", seed)).lacking)
            .sum();
        let mut draws = Seed([9; 32]).draws();
        let mut unreached = 0_u64;
        for _ in 0..seeds * u64::from(MESSAGES) {
            let mut up = [[false; NODES]; NODES];
            for (from, row) in up.iter_mut().enumerate() {
                neighbours(from).for_each(|to| row[to] = draws.unit() > loss);
            }
            let mut reached = [false; NODES];
            reached[0] = true;
            for _ in 0..NODES {
                for from in 0..NODES {
                    (0..NODES).for_each(|to| reached[to] |= reached[from] && up[from][to]);
                }
            }
            unreached += reached.iter().filter(|reached| !**reached).count() as u64;
        }
        #[allow(clippy::cast_precision_loss)]
        let ratio = flooded as f64 / unreached as f64;
        assert!((ratio - 1.0).abs() < 0.03, "{flooded} flooded, {unreached} unreached");
    }

    #[test]
    fn a_key_follows_its_interval_and_verifies_no_later_message() {
        let outcome = run(Scheme::Tesla, 0.0, Seed([2; 32]));
        assert!(outcome.transmissions > 700, "{}", outcome.transmissions);
        // The key of a message that is sent at the end of an interval is disclosed one interval
        // later. The key of a message that is sent at the beginning of an interval is disclosed two
        // intervals later.
        assert!(outcome.delays_ms.iter().all(|&delay| delay < DISCLOSURE * INTERVAL_MS + 12_000));
        let key = Flood { transmissions: 0, received: [Some(DISCLOSURE * INTERVAL_MS + 5); NODES] };
        let keys = [(0, key)];
        let end = DISCLOSURE * INTERVAL_MS;
        assert_eq!(verified_at(0, end - 1, 1, &keys), Some(end + 5));
        assert_eq!(verified_at(0, end, 1, &keys), None, "its key may be public by then");
        assert_eq!(
            verified_at(INTERVAL_MS, INTERVAL_MS, 1, &keys),
            None,
            "an earlier key verifies no later message"
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_result() {
        assert_eq!(run(Scheme::Tesla, 0.2, Seed([5; 32])), run(Scheme::Tesla, 0.2, Seed([5; 32])));
        assert_ne!(run(Scheme::Tesla, 0.2, Seed([5; 32])), run(Scheme::Tesla, 0.2, Seed([6; 32])));
    }
}
