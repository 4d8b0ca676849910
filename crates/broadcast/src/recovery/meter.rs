//! Bounds on what strangers may cost a node: token buckets, a place for one of many candidates, and a memory of what was refused.

use crate::recovery::settings::Rate;
use moteseal_core::digest::Digest;
use moteseal_core::siphash::SipKey;

/// A small seeded generator: SipHash of a counter. Whoever does not know the seed cannot tell what is drawn.
#[derive(Clone)]
pub(super) struct Draws {
    key: SipKey,
    seed: [u8; 16],
    drawn: u64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        bytes[8..].copy_from_slice(b"mscast/1");
        Self { key: SipKey::new(&bytes), seed: bytes, drawn: 0 }
    }

    /// Uniform in `0 .. bound`, but for at most `bound / 2^64`; 0 of a `bound` of 0.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.drawn = self.drawn.wrapping_add(1);
        ((u128::from(self.key.hash(self.drawn)) * u128::from(bound)) >> 64) as u32
    }

    /// What a node knows bytes by. Nobody who does not know the seed can make others that are known by the same.
    pub(super) fn fingerprint(&self, bytes: &[u8]) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = Digest::of(&[&self.seed, bytes]).0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// A token bucket.
#[derive(Clone, Copy)]
pub(super) struct Bucket {
    rate: Rate,
    tokens: u16,
    /// When the tokens were counted last.
    since: u64,
}

impl Bucket {
    pub(super) const fn new(rate: Rate) -> Self {
        Self { rate, tokens: rate.burst, since: 0 }
    }

    fn count(&mut self, clock: u64) {
        let each = u64::from(self.rate.each_ms.max(1));
        let came = clock.saturating_sub(self.since) / each;
        self.since = self.since.saturating_add(came.saturating_mul(each));
        self.tokens = self.tokens.saturating_add(u16::try_from(came).unwrap_or(u16::MAX));
        if self.tokens >= self.rate.burst {
            (self.tokens, self.since) = (self.rate.burst, clock);
        }
    }

    pub(super) fn take(&mut self, clock: u64) -> bool {
        self.count(clock);
        let left = self.tokens.checked_sub(1);
        self.tokens = left.unwrap_or(0);
        left.is_some()
    }

    /// When there is a token, at the earliest; never if there are none at all.
    pub(super) fn ready(&self) -> u64 {
        match (self.tokens, self.rate.burst) {
            (_, 0) => u64::MAX,
            (0, _) => self.since.saturating_add(u64::from(self.rate.each_ms.max(1))),
            _ => 0,
        }
    }
}

/// One of those that came while no signature could be checked, drawn so that each of `G` sources is as likely as another, and of one
/// source each that came: whoever comes first or most gains nothing by it. Its bytes are not checked.
#[derive(Clone)]
pub(super) struct Waiting<const N: usize, const G: usize> {
    bytes: [u8; N],
    length: usize,
    link: u8,
    source: usize,
    /// How many came of each source.
    came: [u16; G],
    /// How many sources there were.
    sources: u16,
}

/// What waited: bytes, length, and the link it came on.
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
        Self { bytes: [0; N], length: 0, link: 0, source: 0, came: [0; G], sources: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn offer(&mut self, bytes: &[u8], link: u8, source: usize, draws: &mut Draws) {
        let (Some(room), Some(came)) =
            (self.bytes.get_mut(..bytes.len()), self.came.get_mut(source))
        else {
            return;
        };
        if bytes.is_empty() || (self.length == bytes.len() && *room == *bytes) {
            return;
        }
        let before = *came;
        *came = came.saturating_add(1);
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

    /// Takes the one that was drawn; the next draw begins.
    pub(super) fn take(&mut self) -> Option<Waited<N>> {
        if self.is_empty() {
            return None;
        }
        let waited = Waited { bytes: self.bytes, length: self.length, link: self.link };
        (self.length, self.came, self.sources) = (0, [0; G], 0);
        Some(waited)
    }
}

/// What was refused lately, so that it costs no second check.
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
