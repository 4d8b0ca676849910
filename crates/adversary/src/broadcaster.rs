//! Attacks of an outsider in range of a broadcast network, who can record, forge, replay and flood
//! (spec/broadcast.md).
//!
//! A [`Broadcaster`] knows the formats, the network's id and every byte that was ever sent. It has
//! signing keys of its own, but no key of a sender or base station. It does no I/O: its inputs are
//! received frames and the time, and its outputs are frames to send. Its memory is bounded, and its
//! seed determines all its choices. It does not jam the radio, because authentication does not help
//! against noise.

mod forge;

use std::collections::VecDeque;

use moteseal_core::Digest;
use moteseal_core::signature::{Algorithm, SecretKey};

/// The maximum number of recent frames that the attacker keeps, and also the maximum number of
/// frames of earlier chains that it keeps.
pub const REMEMBERED: usize = 2048;
/// The number of recent frames in which the attacker searches for the current block.
const RECENT: usize = 8;
/// The maximum length in bytes of the attacker's frames. It is more than the length of any genuine
/// frame.
pub const MAX_FORGED: usize = 12_288;

/// An attack on a broadcast network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Assault {
    /// Heads that name a known sender but are signed with the attacker's keys. They have the number
    /// of the current or a later chain, and each has a different digest.
    ForgeHeads,
    /// A genuine head with changed bits under the original signature.
    AlterHeads,
    /// Fragments of the current and later blocks with invented leaves.
    ForgeLeaves,
    /// Genuine fragments with one changed bit in the message or in the trailer before it.
    AlterLeaves,
    /// Genuine messages at other positions of their chain.
    MoveLeaves,
    /// Complete earlier chains, with their certificates.
    ReplayOld,
    /// Repeated frames of the current chain.
    ReplayPresent,
    /// Requests for all leaves.
    Ask,
    /// Advertisements of leaves that no node has.
    Advertise,
    /// Repair frames with unrelated bytes.
    ForgeRepairs,
    /// Certificates that assign a key of the attacker to a known sender, and genuine certificates
    /// with changed bits.
    ForgeCertificates,
    /// Revocations of every certificate, signed with the attacker's keys.
    ForgeRevocations,
    /// Complete chains of one message that name a known sender.
    ForgeSingles,
    /// Bytes that are not a frame: truncated, extended, changed or random.
    Malform,
}

impl Assault {
    /// All assaults.
    pub const ALL: [Self; 14] = [
        Self::ForgeHeads,
        Self::AlterHeads,
        Self::ForgeLeaves,
        Self::AlterLeaves,
        Self::MoveLeaves,
        Self::ReplayOld,
        Self::ReplayPresent,
        Self::Ask,
        Self::Advertise,
        Self::ForgeRepairs,
        Self::ForgeCertificates,
        Self::ForgeRevocations,
        Self::ForgeSingles,
        Self::Malform,
    ];

    /// Returns a short description.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::ForgeHeads => "forged heads",
            Self::AlterHeads => "altered heads",
            Self::ForgeLeaves => "invented fragments",
            Self::AlterLeaves => "altered fragments",
            Self::MoveLeaves => "fragments at another position",
            Self::ReplayOld => "replays of earlier chains",
            Self::ReplayPresent => "replays of this chain",
            Self::Ask => "requests for everything",
            Self::Advertise => "forged advertisements",
            Self::ForgeRepairs => "forged coded repairs",
            Self::ForgeCertificates => "forged certificates",
            Self::ForgeRevocations => "forged revocations",
            Self::ForgeSingles => "forged commands",
            Self::Malform => "malformed bytes",
        }
    }
}

/// A generator of random numbers from a seed: SHA-256 in counter mode.
#[derive(Clone, Debug)]
struct Chance {
    seed: [u8; 32],
    drawn: u64,
}

impl Chance {
    fn word(&mut self) -> u64 {
        self.bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    fn bytes(&mut self) -> [u8; 32] {
        self.drawn += 1;
        Digest::of(&[b"moteseal/adversary/broadcaster\0", &self.seed, &self.drawn.to_be_bytes()]).0
    }

    /// Returns a number in `0 .. bound`; 0 for a bound of 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.word().checked_rem(bound).unwrap_or(0)
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.index(of.len()))
    }

    fn filled(&mut self, length: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(length + 32);
        while out.len() < length {
            out.extend(self.bytes());
        }
        out.truncate(length);
        out
    }
}

/// An attacker in range of a broadcast network.
#[derive(Debug)]
pub struct Broadcaster {
    chance: Chance,
    key: SecretKey,
    assaults: Vec<Assault>,
    turn: usize,
    per_second: u32,
    from_ms: u64,
    ticks: u64,
    /// Recently received frames, the newest last.
    recent: VecDeque<Vec<u8>>,
    /// Frames of earlier chains.
    recorded: VecDeque<Vec<u8>>,
    replayed: usize,
    sent: Vec<(Assault, u64)>,
}

impl Broadcaster {
    /// Creates an attacker that performs these assaults in turn. From `from_ms` on it sends
    /// `per_second` frames per second, but at least one per second.
    #[must_use]
    pub fn new(assaults: &[Assault], per_second: u32, from_ms: u64, seed: [u8; 32]) -> Self {
        let mut chance = Chance { seed, drawn: 0 };
        let key = loop {
            if let Ok(key) = SecretKey::from_seed(Algorithm::Ed25519, &chance.bytes()) {
                break key;
            }
        };
        Self {
            chance,
            key,
            assaults: assaults.to_vec(),
            turn: 0,
            per_second: per_second.max(1),
            from_ms,
            ticks: 0,
            recent: VecDeque::new(),
            recorded: VecDeque::new(),
            replayed: 0,
            sent: Vec::new(),
        }
    }

    /// Records a frame of an earlier chain, for replay.
    pub fn remember(&mut self, frame: &[u8]) {
        keep(&mut self.recorded, frame);
    }

    /// Records a frame that was received just now.
    pub fn receive(&mut self, frame: &[u8]) {
        keep(&mut self.recent, frame);
    }

    /// Returns the time in milliseconds at which the attacker sends its next frame; `None` if it
    /// has no assaults.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        (!self.assaults.is_empty())
            .then(|| self.from_ms + self.ticks.saturating_mul(1000) / u64::from(self.per_second))
    }

    /// Writes the frame that is due, if any, to the start of `out` and returns its length. Skips
    /// assaults that are not possible yet.
    pub fn send(&mut self, now_ms: u64, out: &mut [u8]) -> Option<usize> {
        if self.next_due()? > now_ms {
            return None;
        }
        self.ticks += 1;
        for _ in 0..self.assaults.len() {
            let assault = *self.assaults.get(self.turn % self.assaults.len())?;
            self.turn += 1;
            if let Some(frame) = self.frame(assault)
                && let Some(place) = out.get_mut(..frame.len())
            {
                place.copy_from_slice(&frame);
                match self.sent.iter_mut().find(|(of, _)| *of == assault) {
                    Some((_, count)) => *count += 1,
                    None => self.sent.push((assault, 1)),
                }
                return Some(frame.len());
            }
        }
        None
    }

    /// Returns the number of frames that the attacker has sent for each assault.
    #[must_use]
    pub fn sent(&self) -> &[(Assault, u64)] {
        &self.sent
    }
}

fn keep(frames: &mut VecDeque<Vec<u8>>, frame: &[u8]) {
    if frames.len() >= REMEMBERED {
        frames.pop_front();
    }
    frames.push_back(frame.to_vec());
}
