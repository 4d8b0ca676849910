//! Chains in the testbed: the nodes that the product runs, on the simulated [`radio`](crate::radio), with the paper's traffic.

use std::collections::BTreeMap;

use moteseal_broadcast::recovery::{Event, LinkSet, Meter, Node, Purpose, Relay, Settings, Timing};
use moteseal_broadcast::{ChainRef, DraftError};
use moteseal_core::signature::{Algorithm, KeyError};

use super::{LINKS, MESSAGES, NODES, PAYLOAD, arrivals};
use crate::chance::Seed;
use crate::radio::{Air, Authority, Observer, Radio, SignedChain, frame_name};

/// Room of a node: two senders, two chains, and blocks of the largest of [`BLOCKS`](super::BLOCKS).
pub(super) const SENDERS: usize = 2;
pub(super) const CHAINS: usize = 2;
const ROOM: usize = 10;
/// The node of these experiments.
pub type Mote<'a> = Node<'a, SENDERS, CHAINS, ROOM>;
/// And its radio.
pub type Testbed<'a> = Radio<'a, SENDERS, CHAINS, ROOM>;

/// What a node repeats: the paper's always does, the product's not where it has heard so many others do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeating {
    /// Everything that is new, once.
    Always,
    /// What not more than a few neighbours have repeated meanwhile.
    Suppressed,
}

impl Repeating {
    const fn relay(self) -> Relay {
        match self {
            Self::Always => Relay::Flood { copies: u8::MAX },
            Self::Suppressed => Relay::Flood { copies: COPIES },
        }
    }
}

/// Copies that are heard of others before a node of the product keeps silent.
const COPIES: u8 = 2;
/// Virtual time after which a run is over, complete or not: the messages take some 500 s.
const LONGEST_MS: u64 = 4 * 3_600_000;
/// How finely the end of a run is looked for.
const STEP_MS: u64 = 100;

/// What all nodes sent, by kind of frame (spec/broadcast.md, section 5), and in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Certificates, revocations and heads.
    pub statements: u64,
    /// Fragments that the sender says, or that a node says on.
    pub fragments: u64,
    /// Fragments and coded repairs that answer requests.
    pub answers: u64,
    /// Negative acknowledgements.
    pub requests: u64,
    /// Advertisements.
    pub advertisements: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Sent {
    /// Frames of all kinds.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.statements + self.fragments + self.answers + self.requests + self.advertisements
    }

    /// What the paper counts: broadcasts, acknowledgements and replies.
    #[must_use]
    pub const fn as_the_paper_counts(&self) -> u64 {
        self.fragments + self.answers + self.requests
    }

    /// Counts a frame that a node has sent.
    pub fn count(&mut self, frame: &[u8], purpose: Purpose) {
        self.bytes += frame.len() as u64;
        *match (frame_name(frame), purpose) {
            ("certificate" | "revocation" | "head", _) => &mut self.statements,
            (_, Purpose::Request) => &mut self.requests,
            (_, Purpose::Advertisement) => &mut self.advertisements,
            (_, Purpose::Answer) => &mut self.answers,
            (_, Purpose::Original | Purpose::Relay) => &mut self.fragments,
        } += 1;
    }
}

/// What became of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was sent until every node had everything, or the time was over.
    pub sent: Sent,
    /// Messages that were not verified, over all receivers.
    pub lacking: u64,
    /// For every block and receiver, the milliseconds between the block's first leaf and its verification.
    pub delays_ms: Vec<u64>,
    /// When the last receiver had everything, in milliseconds from the start.
    pub complete_ms: Option<u64>,
}

impl Outcome {
    /// Messages that a receiver lacks, on average.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn lacking_each(&self) -> f64 {
        self.lacking as f64 / (NODES - 1) as f64
    }
}

/// Why there is no chain to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoChain {
    /// The keys.
    Key(KeyError),
    /// The chain.
    Draft(DraftError),
}

impl std::fmt::Display for NoChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(error) => write!(f, "the sender has no key: {error}"),
            Self::Draft(error) => write!(f, "there is no such chain: {error}"),
        }
    }
}

impl std::error::Error for NoChain {}

/// What the sender says: a chain of messages that follow from the seed.
///
/// # Errors
/// [`NoChain`]; none of blocks that a chain may have.
pub fn speech(
    authority: &Authority,
    number: u64,
    messages: u32,
    per_block: u8,
    seed: Seed,
) -> Result<SignedChain, NoChain> {
    let sender = authority.certify("ops", Algorithm::Ed25519, 1).map_err(NoChain::Key)?;
    let message =
        |at: u32| seed.derive("message", number << 32 | u64::from(at)).0[..PAYLOAD].to_vec();
    let texts: Vec<Vec<u8>> = (0..messages).map(message).collect();
    sender.say(number, per_block, &texts).map_err(NoChain::Draft)
}

/// The settings of the testbed's nodes: the paper's two seconds, and a mote's meters.
#[must_use]
pub const fn settings(authority: &Authority, repeating: Repeating) -> Settings<'_> {
    Settings {
        network: authority.network,
        bases: std::slice::from_ref(&authority.public),
        links: LinkSet::one(0),
        relay: repeating.relay(),
        timing: Timing::RADIO,
        meter: Meter::MOTE,
    }
}

/// Sends a hundred messages through the testbed.
///
/// # Errors
/// [`NoChain`].
pub fn run(per_block: u8, repeating: Repeating, loss: f64, seed: Seed) -> Result<Outcome, NoChain> {
    let authority = Authority::new(Algorithm::Ed25519, 1).map_err(NoChain::Key)?;
    let speech = speech(&authority, 1, MESSAGES, per_block, seed)?;
    let mut radio =
        Testbed::new(&[settings(&authority, repeating); NODES], LINKS, Air::losing(loss), seed);
    radio.start_all();
    radio.say_at(0, 0, &speech, &arrivals(MESSAGES, &mut seed.draws()));
    let (mut watch, mut complete_ms) = (Watch::default(), None);
    while complete_ms.is_none() && radio.now_ms() < LONGEST_MS {
        radio.run(radio.now_ms() + STEP_MS, &mut watch);
        let is_complete =
            radio.stations[1..].iter().all(|station| station.delivered.len() == MESSAGES as usize);
        complete_ms = is_complete.then(|| radio.now_ms());
    }
    let delivered: usize = radio.stations[1..].iter().map(|station| station.delivered.len()).sum();
    let first = |who: usize, chain, block| {
        radio.stations.get(who)?.first_heard.get(&(chain, block)).copied()
    };
    let delays = watch.verified.iter().filter_map(|((who, chain, block), at)| {
        Some(at.saturating_sub(first(*who, *chain, *block)?))
    });
    Ok(Outcome {
        sent: watch.sent,
        lacking: u64::from(MESSAGES) * (NODES as u64 - 1) - delivered as u64,
        delays_ms: delays.collect(),
        complete_ms,
    })
}

/// Counts what is said, and notes when blocks are verified.
#[derive(Default)]
struct Watch {
    sent: Sent,
    verified: BTreeMap<(usize, ChainRef, u32), u64>,
}

impl Observer for Watch {
    fn said(&mut self, _: u64, _: usize, frame: &[u8], purpose: Purpose) {
        self.sent.count(frame, purpose);
    }

    fn event(&mut self, now_ms: u64, who: usize, event: &Event) {
        if let Event::Verified { chain, first, last, .. } = event {
            self.verified.extend((*first..=*last).map(|block| ((who, *chain, block), now_ms)));
        }
    }
}
