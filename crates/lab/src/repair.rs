//! Computes the cost of repair on one hop of a broadcast: plain retransmission, coded repair, and
//! an ideal erasure code.
//!
//! [Decision 11](../../../docs/decisions/0011-coded-repair.md) is based on these numbers. A block
//! is sent to receivers, each of which loses every message with the same probability. Rounds of
//! repair follow until no receiver lacks a message. Requests cost nothing in this model and always
//! arrive, so the numbers are lower bounds. The [`radio`](crate::radio) simulator and tests over
//! real UDP measure the transmissions of the product's nodes.

use crate::chance::{Draws, Seed};

/// A method of repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Sends each message that a receiver lacks, once in each round.
    Plain,
    /// Sends the exclusive-or of several messages. Each receiver lacks at most one of them and can
    /// compute it from the others. A greedy choice of the messages keeps the number of
    /// transmissions small.
    Coded,
    /// Sends as many symbols as the receiver with the most losses lacks. Each symbol serves every
    /// receiver. No code needs fewer symbols.
    Ideal,
}

impl Repair {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Coded, Self::Ideal];
}

/// The mean cost over many blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Number of transmissions per message of the block; 1 without losses.
    pub sent: f64,
    /// Number of rounds, including the first transmission.
    pub rounds: f64,
}

/// Simulates sending `runs` blocks of `messages` messages (at most 64) to `receivers` receivers.
///
/// # Panics
/// If a block has more than 64 messages, or there are no runs.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn cost(
    repair: Repair,
    messages: u32,
    receivers: usize,
    loss: f64,
    runs: u32,
    seed: Seed,
) -> Cost {
    assert!(
        (1..=64).contains(&messages) && runs > 0,
        "a block has 1 to 64 messages, and there is at least one run"
    );
    let mut draws = seed.derive("repair", u64::from(messages)).draws();
    let (mut sent, mut rounds) = (0, 0);
    for _ in 0..runs {
        let (more_sent, more_rounds) = block(repair, messages, receivers, loss, &mut draws);
        sent += more_sent;
        rounds += more_rounds;
    }
    let runs = f64::from(runs);
    Cost { sent: f64::from(sent) / runs / f64::from(messages), rounds: f64::from(rounds) / runs }
}

fn block(
    repair: Repair,
    messages: u32,
    receivers: usize,
    loss: f64,
    draws: &mut Draws,
) -> (u32, u32) {
    let all = u64::MAX >> (64 - messages);
    // For each receiver, bit j is set if message j is missing. With the ideal code only the number
    // of set bits matters.
    let mut lacking = vec![all; receivers];
    let (mut sent, mut rounds) = (0, 0);
    let mut symbols: Vec<u64> = (0..messages).map(|j| 1 << j).collect();
    while !symbols.is_empty() {
        rounds += 1;
        for &symbol in &symbols {
            sent += 1;
            for lacks in &mut lacking {
                if draws.unit() <= loss {
                    continue;
                }
                match repair {
                    Repair::Ideal => *lacks &= lacks.wrapping_sub(1),
                    _ if (*lacks & symbol).count_ones() == 1 => *lacks &= !symbol,
                    _ => {}
                }
            }
        }
        symbols = next_round(repair, &lacking);
    }
    (sent, rounds)
}

fn next_round(repair: Repair, lacking: &[u64]) -> Vec<u64> {
    let mut left = lacking.iter().fold(0, |all, lacks| all | lacks);
    match repair {
        Repair::Plain => (0..64).map(|j| 1 << j).filter(|bit| left & bit != 0).collect(),
        Repair::Ideal => {
            vec![0; lacking.iter().map(|lacks| lacks.count_ones()).max().unwrap_or(0) as usize]
        }
        Repair::Coded => {
            let wanted = |bit: &u64| {
                std::cmp::Reverse(lacking.iter().filter(|lacks| *lacks & bit != 0).count())
            };
            let mut order: Vec<u64> =
                (0..64).map(|j| 1 << j).filter(|bit| left & bit != 0).collect();
            order.sort_by_key(wanted);
            let mut symbols = Vec::new();
            while left != 0 {
                let mut symbol = 0;
                for bit in order.iter().filter(|bit| left & *bit != 0) {
                    if lacking.iter().all(|lacks| (lacks & (symbol | bit)).count_ones() <= 1) {
                        symbol |= bit;
                    }
                }
                left &= !symbol;
                symbols.push(symbol);
            }
            symbols
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(repair: Repair, receivers: usize, loss: f64) -> f64 {
        cost(repair, 32, receivers, loss, 400, Seed::default()).sent
    }

    #[test]
    fn nothing_is_repaired_without_losses() {
        for repair in Repair::ALL {
            assert_eq!(
                cost(repair, 10, 6, 0.0, 3, Seed::default()),
                Cost { sent: 1.0, rounds: 1.0 }
            );
        }
    }

    #[test]
    fn all_methods_cost_the_same_for_one_receiver() {
        for repair in Repair::ALL {
            let sent = sent(repair, 1, 0.2);
            assert!(
                (sent - 1.25).abs() < 0.02,
                "{repair:?}: {sent}; one message needs 1 / (1 - loss) on average"
            );
        }
    }

    #[test]
    fn coded_repair_comes_close_to_the_ideal_code() {
        let [plain, coded, ideal] = Repair::ALL.map(|repair| sent(repair, 6, 0.1));
        // Each message is sent until all six receivers have it. The expected number of
        // transmissions is the sum of 1 - (1 - 0.1^t)^6 over t >= 0.
        assert!((plain - 1.534).abs() < 0.02, "{plain}");
        assert!(ideal <= coded && coded < 1.05 * ideal, "{coded} compared with {ideal}");
        assert!(coded < 0.82 * plain, "{coded} compared with {plain}");
    }

    #[test]
    fn no_receiver_lacks_two_messages_of_one_symbol() {
        let mut draws = Seed::default().draws();
        for _ in 0..200 {
            let lacking: Vec<u64> =
                (0..6).map(|_| draws.word() & draws.word() & draws.word()).collect();
            let symbols = next_round(Repair::Coded, &lacking);
            let (any, covered) = (
                lacking.iter().fold(0, |all, lacks| all | lacks),
                symbols.iter().fold(0, |all, symbol| all | symbol),
            );
            assert_eq!(any, covered);
            for symbol in &symbols {
                assert!(lacking.iter().all(|lacks| (lacks & symbol).count_ones() <= 1));
            }
        }
    }
}
