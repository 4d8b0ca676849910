//! Broadcasts chains in the testbed: the product's nodes run on the simulated
//! [`radio`](crate::radio) with the paper's traffic.

use std::collections::BTreeMap;

use moteseal_broadcast::recovery::{Event, LinkSet, Meter, Node, Purpose, Relay, Settings, Timing};
use moteseal_broadcast::{ChainRef, DraftError};
use moteseal_core::signature::{Algorithm, KeyError};

use super::{LINKS, MESSAGES, NODES, PAYLOAD, arrivals};
use crate::chance::Seed;
use crate::radio::{Air, Authority, Observer, Radio, SignedChain, frame_name};

/// The capacity of a node: two senders, two chains, and blocks of up to the largest size in
/// [`BLOCKS`](super::BLOCKS).
pub(super) const SENDERS: usize = 2;
pub(super) const CHAINS: usize = 2;
const ROOM: usize = 10;
/// The node of these experiments.
pub type Mote<'a> = Node<'a, SENDERS, CHAINS, ROOM>;
/// The radio of these experiments.
pub type Testbed<'a> = Radio<'a, SENDERS, CHAINS, ROOM>;

/// Which frames a node repeats. A node of the paper always repeats a new frame. A node of the
/// product does not repeat it if enough neighbours have already done so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeating {
    /// Each new frame is repeated once.
    Always,
    /// A new frame is repeated unless two neighbours have repeated it first.
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

/// The number of copies received from neighbours after which a node of the product does not repeat
/// a frame.
const COPIES: u8 = 2;
/// The virtual time after which an execution ends even if the chain is not complete. The sender
/// needs about 500 s for its messages.
const LONGEST_MS: u64 = 4 * 3_600_000;
/// The resolution of the end time.
const STEP_MS: u64 = 100;

/// The numbers of frames that all nodes sent, by kind (spec/broadcast.md, section 5), and their
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Certificates, revocations and heads.
    pub statements: u64,
    /// Fragments that the sender sends or a node repeats.
    pub fragments: u64,
    /// Fragments and coded repairs that answer requests.
    pub answers: u64,
    /// Negative acknowledgements.
    pub requests: u64,
    /// Advertisements.
    pub advertisements: u64,
    /// Bytes of all frames.
    pub bytes: u64,
}

impl Sent {
    /// Returns the number of frames of all kinds.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.statements + self.fragments + self.answers + self.requests + self.advertisements
    }

    /// Returns the number of frames as the paper counts them: broadcasts, acknowledgements and
    /// replies.
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
            (_, Purpose::Advertisement | Purpose::Receipt) => &mut self.advertisements,
            (_, Purpose::Answer) => &mut self.answers,
            (_, Purpose::Original | Purpose::Relay) => &mut self.fragments,
        } += 1;
    }
}

/// The result of broadcasting a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The frames that nodes sent until every node had the complete chain, or until the time limit.
    pub sent: Sent,
    /// Number of messages that receivers have not verified, summed over all receivers.
    pub lacking: u64,
    /// For every block and receiver, the milliseconds between the arrival of the block's first leaf
    /// and its verification.
    pub delays_ms: Vec<u64>,
    /// The time at which the last receiver had the complete chain, in milliseconds from the start.
    pub complete_ms: Option<u64>,
}

impl Outcome {
    /// Returns the average number of messages that a receiver misses.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn lacking_each(&self) -> f64 {
        self.lacking as f64 / (NODES - 1) as f64
    }
}

/// Why a chain cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoChain {
    /// The sender's key cannot be created.
    Key(KeyError),
    /// The chain cannot be created.
    Draft(DraftError),
}

impl std::fmt::Display for NoChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(error) => write!(f, "cannot make the sender's key: {error}"),
            Self::Draft(error) => write!(f, "cannot make the chain: {error}"),
        }
    }
}

impl std::error::Error for NoChain {}

/// Returns the chain that the sender broadcasts. Its messages are derived from the seed.
///
/// # Errors
/// [`NoChain`] if a chain cannot have blocks of this size.
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
    sender.send(number, per_block, &texts).map_err(NoChain::Draft)
}

/// Returns the settings of the testbed's nodes: the paper's interval of two seconds, and the rate
/// limits of a mote.
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

/// Simulates the broadcast of [`MESSAGES`] messages through the testbed.
///
/// # Errors
/// [`NoChain`].
pub fn run(per_block: u8, repeating: Repeating, loss: f64, seed: Seed) -> Result<Outcome, NoChain> {
    run_with(per_block, repeating, Timing::RADIO, loss, seed)
}

/// Like [`run`], with another timing of all nodes.
///
/// # Errors
/// [`NoChain`].
pub fn run_with(
    per_block: u8,
    repeating: Repeating,
    timing: Timing,
    loss: f64,
    seed: Seed,
) -> Result<Outcome, NoChain> {
    let authority = Authority::new(Algorithm::Ed25519, 1).map_err(NoChain::Key)?;
    let speech = speech(&authority, 1, MESSAGES, per_block, seed)?;
    let node = Settings { timing, ..settings(&authority, repeating) };
    let mut radio = Testbed::new(&[node; NODES], LINKS, Air::losing(loss), seed);
    radio.start_all();
    radio.send_at(0, 0, &speech, &arrivals(MESSAGES, &mut seed.draws()));
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

/// Counts the sent frames, and records when blocks are verified.
#[derive(Default)]
struct Watch {
    sent: Sent,
    verified: BTreeMap<(usize, ChainRef, u32), u64>,
}

impl Observer for Watch {
    fn sent(&mut self, _: u64, _: usize, frame: &[u8], purpose: Purpose) {
        self.sent.count(frame, purpose);
    }

    fn event(&mut self, now_ms: u64, who: usize, event: &Event) {
        if let Event::Verified { chain, first, last, .. } = event {
            self.verified.extend((*first..=*last).map(|block| ((who, *chain, block), now_ms)));
        }
    }
}
