//! What an attacker in earshot of a broadcast network might do to it: overhear, forge, replay and flood (`spec/broadcast.md`).
//!
//! A [`Broadcaster`] knows the formats, the base stations' network and every byte that was ever on the air, and has signing keys of its own; it has
//! no key of a sender or base station. It is sans-IO: it is given what is in earshot and the time, and gives frames to send. What it remembers is
//! bounded, and everything follows from its seed. It does not jam: against noise no authentication helps.

mod forge;

use std::collections::VecDeque;

use moteseal_core::Digest;
use moteseal_core::signature::{Algorithm, SecretKey};

/// Frames that an attacker remembers of what it hears; as many of an earlier time.
pub const REMEMBERED: usize = 2048;
/// Of those, how far back it looks for the block that is under way.
const RECENT: usize = 8;
/// The longest frame that it sends: more than any genuine one has.
pub const MAX_FORGED: usize = 12_288;

/// An attack on a broadcast network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Assault {
    /// First blocks in a known sender's name under keys of its own, with numbers of this and of later chains, each another digest.
    ForgeHeads,
    /// A genuine first block with bits of the statement changed, under the signature that was there.
    AlterHeads,
    /// Fragments of the block that is under way, and of later ones, with made-up leaves.
    ForgeLeaves,
    /// Genuine fragments with a bit of the leaf changed: of the message, or of the digest and tags before it.
    AlterLeaves,
    /// Genuine messages at another place of their chain.
    MoveLeaves,
    /// Whole chains of earlier, with their certificates.
    ReplayOld,
    /// Frames of the present chain, again.
    ReplayPresent,
    /// Requests for everything there is.
    Ask,
    /// Advertisements of what nobody has.
    Advertise,
    /// Coded repairs of nothing.
    ForgeRepairs,
    /// Certificates that give a known sender a key of the attacker, and genuine ones with bits changed.
    ForgeCertificates,
    /// Revocations of everything, under keys of its own.
    ForgeRevocations,
    /// Whole chains of one message in a known sender's name.
    ForgeSingles,
    /// Bytes that are no frame: cut short, lengthened, changed, made up.
    Malform,
}

impl Assault {
    /// All of them.
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

    /// What it is, for people.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::ForgeHeads => "forged first blocks",
            Self::AlterHeads => "altered first blocks",
            Self::ForgeLeaves => "made-up fragments",
            Self::AlterLeaves => "altered fragments",
            Self::MoveLeaves => "fragments of another place",
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

/// A number that follows from a seed: SHA-256 in counter mode.
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

    /// In `0 .. bound`; 0 where there is none.
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

/// The attacker.
#[derive(Debug)]
pub struct Broadcaster {
    chance: Chance,
    key: SecretKey,
    assaults: Vec<Assault>,
    turn: usize,
    per_second: u32,
    from_ms: u64,
    ticks: u64,
    /// What it hears now, the newest last.
    heard: VecDeque<Vec<u8>>,
    /// What it has from earlier.
    recorded: VecDeque<Vec<u8>>,
    replayed: usize,
    sent: Vec<(Assault, u64)>,
}

impl Broadcaster {
    /// An attacker that tells these lies in turn, `per_second` frames a second (at least one) from `from_ms` on.
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
            heard: VecDeque::new(),
            recorded: VecDeque::new(),
            replayed: 0,
            sent: Vec::new(),
        }
    }

    /// A frame that was on the air before: of chains that are over, to be replayed.
    pub fn remember(&mut self, frame: &[u8]) {
        keep(&mut self.recorded, frame);
    }

    /// A frame that is on the air now.
    pub fn hear(&mut self, frame: &[u8]) {
        keep(&mut self.heard, frame);
    }

    /// When it wants to send next, in milliseconds; none if it has no lies to tell.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        (!self.assaults.is_empty())
            .then(|| self.from_ms + self.ticks.saturating_mul(1000) / u64::from(self.per_second))
    }

    /// The frame that is due, if any: written to the start of `out`, its length. A kind of lie that there is no occasion for yet lets the next kind go first.
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

    /// How many frames of each kind it has sent.
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
