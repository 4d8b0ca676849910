//! The experiments on authenticated broadcast in section V of Liu, Li and Guizani ("PKC Based
//! Broadcast Authentication using Signature Amortization for WSNs", IEEE Transactions on Wireless
//! Communications, 2012): the testbed of seven motes, the sender's traffic, and the paper's
//! numbers.
//!
//! [`flood`] contains simple models of the schemes without repair that the paper compares with.
//! [`mod@bytes`] computes the bytes that a chain adds to its messages on the air, and [`ram`] the
//! memory that it needs in a node. `moteseal-bench broadcast` measures speed and passes the results
//! as [`times`].

pub mod bytes;
pub mod chains;
pub mod flood;
pub mod hop;
pub mod ram;
pub mod times;
pub mod truth;

use crate::chance::Draws;

/// Number of nodes in the testbed: the sender, which is node 0, and six receivers.
pub const NODES: usize = 7;
/// Number of messages that the sender broadcasts.
pub const MESSAGES: u32 = 100;
/// Size of each message, in bytes.
pub const PAYLOAD: usize = 20;
/// Average number of messages per second. The messages arrive as a Poisson process.
pub const RATE: f64 = 0.2;
/// The maximum random delay before a node rebroadcasts, requests or answers, in milliseconds.
pub const BACK_OFF_MS: u32 = 2000;
/// Numbers of messages per block. The paper calls the schemes with these block sizes SA1, SA2, SA5
/// and SA10.
pub const BLOCKS: [u8; 4] = [1, 2, 5, 10];
/// Probabilities with which a node misses a transmission.
pub const LOSSES: [f64; 7] = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3];
/// Number of executions over which each data point is averaged.
pub const RUNS: u64 = 5;

/// The pairs of nodes that are in range of each other. The paper shows the links only in a picture,
/// figure 2. Its text states that there are seven nodes and three hops, that the sender's one-hop
/// receivers are nodes 1 and 2, and that the sender and nodes 1, 3 and 4 are in range of node 2.
/// The other links are assumed.
pub const LINKS: [(usize, usize); 11] =
    [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5), (4, 5), (4, 6), (5, 6)];
/// The assumed links in one line, for the subtitle of a figure.
pub const ASSUMED: &str = "S-1 S-2 1-2 1-3 2-3 2-4 3-4 3-5 4-5 4-6 5-6";

/// Iterates over the nodes that are in range of `node`.
pub fn neighbours(node: usize) -> impl Iterator<Item = usize> {
    LINKS.into_iter().filter_map(move |(one, other)| match node {
        _ if node == one => Some(other),
        _ if node == other => Some(one),
        _ => None,
    })
}

/// Returns the times at which the sender's messages become available, in milliseconds from the
/// start: a Poisson process of rate [`RATE`].
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

/// The paper's numbers that its text states.
pub mod paper {
    /// Number of transmissions of all nodes with SA10 at a loss of [`SA10_LOSS`]: 700 broadcasts,
    /// and 41 acknowledgements and replies.
    pub const SA10_TRANSMISSIONS: u32 = 741;
    /// The loss in the experiment of [`SA10_TRANSMISSIONS`].
    pub const SA10_LOSS: f64 = 0.2;
    /// Number of transmissions without loss: seven nodes times a hundred messages. The paper states
    /// "more than 700".
    pub const BROADCASTS: u32 = 700;
    /// Number of messages that a receiver in the HMAC scheme misses at a loss of 0.2. The paper
    /// states "about".
    pub const HMAC_LACKING: f64 = 10.0;
    /// Time to sign a message in SIGS, in milliseconds. The paper states "more than".
    pub const SIGS_SIGN_MS: f64 = 3000.0;
    /// Time to verify a message in SIGS, in milliseconds. The paper states "more than".
    pub const SIGS_VERIFY_MS: f64 = 3900.0;
    /// Time per message at the sender with chains of 100 messages, in milliseconds, for every block
    /// size.
    pub const CHAIN_SENDER_MS: f64 = 60.0;
    /// Time per message at a receiver in the HMAC scheme, in milliseconds. The time per message of
    /// a chain approaches this value as the chain gets longer.
    pub const HMAC_MS: f64 = 20.0;
    /// Size of a signature over secp160r1, in bytes.
    pub const SIGNATURE: u32 = 44;
    /// Size of a digest, in bytes. The paper truncates SHA-1.
    pub const DIGEST: u32 = 8;

    /// A column of tables I and II: the memory that a scheme needs, in bytes.
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

    /// Returns the authenticator bytes per message by the paper's equation 7, with the paper's
    /// sizes of signature and digest.
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

    /// Returns each node's number of hops from the sender, by breadth-first search.
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

    /// The paper's text states that SIGS needs 44 bytes per message, and that SA1 approaches 8
    /// bytes per message.
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
