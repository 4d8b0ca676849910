//! The experiments on authenticated broadcast in section V of Liu, Li and Guizani ("PKC Based
//! Broadcast Authentication using Signature Amortization for WSNs", IEEE Transactions on Wireless
//! Communications, 2012): the testbed of seven motes, the sender's traffic, and the paper's
//! numbers.
//!
//! [`flood`] has simple models of the schemes without repair that the paper compares with.
//! [`mod@bytes`] and [`ram`] compute the cost of a chain on the air and in a node. `moteseal-bench
//! broadcast` measures speed and passes it as [`times`].

pub mod bytes;
pub mod chains;
pub mod flood;
pub mod hop;
pub mod ram;
pub mod times;
pub mod truth;

use crate::chance::Draws;

/// Nodes of the testbed: the sender, which is node 0, and six receivers.
pub const NODES: usize = 7;
/// Messages that the sender broadcasts.
pub const MESSAGES: u32 = 100;
/// Bytes of each message.
pub const PAYLOAD: usize = 20;
/// Messages per second on average, in a Poisson process.
pub const RATE: f64 = 0.2;
/// The interval in milliseconds within which a node rebroadcasts, requests or answers.
pub const BACK_OFF_MS: u32 = 2000;
/// Messages per block: SA1, SA2, SA5 and SA10.
pub const BLOCKS: [u8; 4] = [1, 2, 5, 10];
/// Probabilities with which a node misses a transmission.
pub const LOSSES: [f64; 7] = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3];
/// Executions over which a point is averaged.
pub const RUNS: u64 = 5;

/// The nodes that receive each other. Figure 2 of the paper is only a picture. The text states that
/// there are seven nodes and three hops, that the sender's one-hop receivers are 1 and 2, and that
/// the sender and nodes 1, 3 and 4 receive node 2. The rest is assumed.
pub const LINKS: [(usize, usize); 11] =
    [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5), (4, 5), (4, 6), (5, 6)];
/// The assumed links in one line, for the subtitle of a figure.
pub const ASSUMED: &str = "S-1 S-2 1-2 1-3 2-3 2-4 3-4 3-5 4-5 4-6 5-6";

/// Returns the nodes that receive a node.
pub fn neighbours(node: usize) -> impl Iterator<Item = usize> {
    LINKS.into_iter().filter_map(move |(one, other)| match node {
        _ if node == one => Some(other),
        _ if node == other => Some(one),
        _ => None,
    })
}

/// Returns the times at which the sender has its messages, in milliseconds from the start: a
/// Poisson process of [`RATE`].
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn arrivals(messages: u32, draws: &mut Draws) -> Vec<u64> {
    let mut at = 0.0;
    (0..messages)
        .map(|_| {
            at += -draws.unit().ln() / RATE * 1000.0;
            at as u64
        })
        .collect()
}

/// The paper's numbers, as far as its text states them.
pub mod paper {
    /// All transmissions of SA10 at [`SA10_LOSS`]: 700 broadcasts, 41 acknowledgements and replies.
    pub const SA10_TRANSMISSIONS: u32 = 741;
    /// The loss of that experiment.
    pub const SA10_LOSS: f64 = 0.2;
    /// Transmissions without loss, seven nodes times a hundred messages; the paper states "more
    /// than 700".
    pub const BROADCASTS: u32 = 700;
    /// Messages that a receiver of the HMAC scheme misses at a loss of 0.2, "about".
    pub const HMAC_LACKING: f64 = 10.0;
    /// Milliseconds to sign a message in SIGS, "more than".
    pub const SIGS_SIGN_MS: f64 = 3000.0;
    /// Milliseconds to verify one in SIGS, "more than".
    pub const SIGS_VERIFY_MS: f64 = 3900.0;
    /// Milliseconds for each message at the sender with chains of 100 messages, for every block
    /// size.
    pub const CHAIN_SENDER_MS: f64 = 60.0;
    /// Milliseconds for each message of HMAC, which the chains approach at a receiver.
    pub const HMAC_MS: f64 = 20.0;
    /// Bytes of a signature over secp160r1.
    pub const SIGNATURE: u32 = 44;
    /// Bytes of a digest: truncated SHA-1.
    pub const DIGEST: u32 = 8;

    /// A column of tables I and II, in bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Memory {
        /// The scheme.
        pub scheme: &'static str,
        /// ROM and RAM at the sender: table I.
        pub sender: (u32, u32),
        /// ROM and RAM at a receiver: table II.
        pub receiver: (u32, u32),
    }

    /// Tables I and II.
    pub const MEMORY: [Memory; 6] = [
        Memory { scheme: "SIGS", sender: (24_650, 2433), receiver: (24_490, 2197) },
        Memory { scheme: "HMAC", sender: (14_748, 657), receiver: (14_676, 532) },
        Memory { scheme: "SA1", sender: (30_084, 5950), receiver: (25_042, 2681) },
        Memory { scheme: "SA2", sender: (30_158, 5550), receiver: (25_060, 2701) },
        Memory { scheme: "SA5", sender: (30_176, 5310), receiver: (25_106, 2761) },
        Memory { scheme: "SA10", sender: (30_184, 5230), receiver: (25_106, 2861) },
    ];

    /// Equation 7, the authenticator bytes of a message, with the paper's signature and digest.
    #[must_use]
    pub fn bytes_a_message(messages: u32, per_block: u32) -> f64 {
        let blocks = messages.div_ceil(per_block.max(1));
        f64::from(SIGNATURE + (blocks + 1) * DIGEST) / f64::from(messages.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Seed;

    /// Hops from the sender, by breadth-first search.
    fn hops() -> [usize; NODES] {
        let mut hops = [usize::MAX; NODES];
        hops[0] = 0;
        let mut queue = std::collections::VecDeque::from([0]);
        while let Some(node) = queue.pop_front() {
            for next in neighbours(node) {
                if hops[next] == usize::MAX {
                    hops[next] = hops[node] + 1;
                    queue.push_back(next);
                }
            }
        }
        hops
    }

    #[test]
    fn the_assumed_testbed_agrees_with_the_papers_text() {
        let sorted = |node| {
            let mut all: Vec<_> = neighbours(node).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(sorted(0), [1, 2], "the sender's one-hop receivers");
        assert_eq!(sorted(2), [0, 1, 3, 4], "receivers of node 2");
        assert_eq!(hops().into_iter().max(), Some(3), "three hops at most");
        let links: Vec<String> = LINKS
            .iter()
            .map(|(one, other)| {
                format!("{}-{other}", if *one == 0 { "S".to_owned() } else { one.to_string() })
            })
            .collect();
        assert_eq!(links.join(" "), ASSUMED);
    }

    #[test]
    fn messages_have_the_stated_rate() {
        let at = arrivals(20_000, &mut Seed([3; 32]).draws());
        assert!(at.is_sorted());
        #[allow(clippy::cast_precision_loss)]
        let seconds = *at.last().expect("there are messages") as f64 / 1000.0;
        assert!((20_000.0 / seconds / RATE - 1.0).abs() < 0.03, "{seconds} s");
    }

    /// The bytes that the paper's text states: 44 for each message in SIGS, and a limit of 8 for
    /// SA1.
    #[test]
    fn equation_seven_gives_the_values_of_figure_five() {
        assert!((paper::bytes_a_message(100, 1) - 8.52).abs() < 1e-9);
        assert!(
            BLOCKS[1..]
                .iter()
                .all(|&per_block| paper::bytes_a_message(100, per_block.into()) < 8.0)
        );
        assert!(paper::bytes_a_message(20, 1) > paper::bytes_a_message(100, 1));
    }
}
