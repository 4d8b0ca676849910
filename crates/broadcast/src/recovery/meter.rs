//! Limits on the work that frames of unknown origin cause: token buckets, one slot that many
//! candidates share, and a list of recently rejected frames.

use crate::recovery::settings::Rate;
use moteseal_core::digest::Digest;
use moteseal_core::siphash::SipKey;

/// A small random generator: SipHash of a counter. Its output is unpredictable without the seed.
#[derive(Clone)]
pub(crate) struct Draws {
    key: SipKey,
    seed: [u8; 16],
    drawn: u64,
}

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        bytes[8..].copy_from_slice(b"mscast/1");
        Self { key: SipKey::new(&bytes), seed: bytes, drawn: 0 }
    }

    /// Returns a uniformly distributed number in `0 .. bound`, with a bias of at most `bound /
    /// 2^64`. Returns 0 if `bound` is 0.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.drawn = self.drawn.wrapping_add(1);
        ((u128::from(self.key.hash(self.drawn)) * u128::from(bound)) >> 64) as u32
    }

    /// Returns a keyed 64-bit fingerprint of some bytes. An attacker that does not know the seed
    /// cannot find other bytes with the same fingerprint.
    pub(crate) fn fingerprint(&self, bytes: &[u8]) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = Digest::of(&[&self.seed, bytes]).0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// A token bucket: it limits how often an action may happen.
#[derive(Clone, Copy)]
pub(crate) struct Bucket {
    rate: Rate,
    tokens: u16,
    /// The time of the last update.
    since: u64,
}

impl Bucket {
    pub(crate) const fn new(rate: Rate) -> Self {
        Self { rate, tokens: rate.burst, since: 0 }
    }

    fn count(&mut self, clock: u64) {
        let each = u64::from(self.rate.each_ms.max(1));
        let gained = clock.saturating_sub(self.since) / each;
        self.since = self.since.saturating_add(gained.saturating_mul(each));
        self.tokens = self.tokens.saturating_add(u16::try_from(gained).unwrap_or(u16::MAX));
        if self.tokens >= self.rate.burst {
            (self.tokens, self.since) = (self.rate.burst, clock);
        }
    }

    pub(crate) fn take(&mut self, clock: u64) -> bool {
        self.count(clock);
        let left = self.tokens.checked_sub(1);
        self.tokens = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns the earliest time at which a token is available; `u64::MAX` if the burst is 0.
    pub(crate) fn ready(&self) -> u64 {
        match (self.tokens, self.rate.burst) {
            (_, 0) => u64::MAX,
            (0, _) => self.since.saturating_add(u64::from(self.rate.each_ms.max(1))),
            _ => 0,
        }
    }
}

/// A slot of `N` bytes that keeps one of the candidates that arrive while no signature can be
/// checked. The choice is random: each of the `G` sources has the same probability, and within a
/// source each candidate has the same probability. A candidate therefore has no advantage by
/// arriving first or more often. The bytes are not verified.
#[derive(Clone)]
pub(super) struct Waiting<const N: usize, const G: usize> {
    bytes: [u8; N],
    length: usize,
    link: u8,
    source: usize,
    /// The number of candidates from each source.
    arrived: [u16; G],
    /// The number of sources with a candidate.
    sources: u16,
}

/// A candidate: its bytes, its length, and the link on which it arrived.
pub(super) struct Waited<const N: usize> {
    bytes: [u8; N],
    length: usize,
    pub(super) link: u8,
}

impl<const N: usize> Waited<N> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl<const N: usize, const G: usize> Waiting<N, G> {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; N], length: 0, link: 0, source: 0, arrived: [0; G], sources: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn offer(&mut self, bytes: &[u8], link: u8, source: usize, draws: &mut Draws) {
        let (Some(room), Some(arrived)) =
            (self.bytes.get_mut(..bytes.len()), self.arrived.get_mut(source))
        else {
            return;
        };
        if bytes.is_empty() || (self.length == bytes.len() && *room == *bytes) {
            return;
        }
        let before = *arrived;
        *arrived = arrived.saturating_add(1);
        let drawn = if before == 0 {
            self.sources = self.sources.saturating_add(1);
            draws.below(u32::from(self.sources)) == 0
        } else {
            self.source == source && draws.below(u32::from(before) + 1) == 0
        };
        if drawn {
            room.copy_from_slice(bytes);
            (self.length, self.link, self.source) = (bytes.len(), link, source);
        }
    }

    /// Removes and returns the chosen candidate, and starts the next draw.
    pub(super) fn take(&mut self) -> Option<Waited<N>> {
        if self.is_empty() {
            return None;
        }
        let waited = Waited { bytes: self.bytes, length: self.length, link: self.link };
        (self.length, self.arrived, self.sources) = (0, [0; G], 0);
        Some(waited)
    }
}

/// Fingerprints of recently rejected bytes, so that the node does not check the same bytes again.
#[derive(Clone)]
pub(super) struct Refusals {
    fingerprints: [u64; 8],
    at: usize,
}

impl Refusals {
    pub(super) const fn new() -> Self {
        Self { fingerprints: [0; 8], at: 0 }
    }

    pub(super) fn has(&self, fingerprint: u64) -> bool {
        self.fingerprints.contains(&fingerprint)
    }

    pub(super) fn add(&mut self, fingerprint: u64) {
        if let Some(place) = self.fingerprints.get_mut(self.at) {
            *place = fingerprint;
        }
        self.at = (self.at + 1) % self.fingerprints.len();
    }
}
