//! Geometric Star Chaining with memory for `u` digests. There are `u` levels, and the last includes
//! all higher ones (section IV.C).

use xxhash_rust::xxh64::xxh64;

use super::Hash;

/// The running digest of each level, on a device or on a verifier that recomputes it.
#[derive(Clone, Debug)]
pub struct Star<H: Hash>(Vec<H::Digest>);

impl<H: Hash> Star<H> {
    /// Creates a star with one level for each digest of memory, and at least one level.
    #[must_use]
    pub fn new(units: usize) -> Self {
        Self(vec![H::Digest::default(); units.max(1)])
    }

    /// Returns the level of an event: the number of leading zeros of its xxHash64.
    #[must_use]
    pub fn level(&self, event: &[u8]) -> usize {
        (xxh64(event, 0).leading_zeros() as usize).min(self.0.len() - 1)
    }

    /// Adds an event by `D = H(H(event) || D)`, and returns its level.
    pub fn push(&mut self, event: &[u8]) -> usize {
        let level = self.level(event);
        self.fold(level, event);
        level
    }

    /// Adds an event whose level is known. The level must be below the number of levels.
    pub fn fold(&mut self, level: usize, event: &[u8]) {
        let running = &mut self.0[level];
        *running = H::of(&[H::of(&[event]).as_ref(), running.as_ref()]);
    }

    /// Returns a level's digest.
    #[must_use]
    pub fn digest(&self, level: usize) -> H::Digest {
        self.0[level]
    }

    /// Sets the digest of a level for which the verifier has no events.
    pub fn adopt(&mut self, level: usize, digest: H::Digest) {
        self.0[level] = digest;
    }

    /// Returns the digest over the digests of all levels, each preceded by the number of its level.
    #[must_use]
    pub fn root(&self) -> H::Digest {
        let numbers: Vec<[u8; 1]> =
            (0..self.0.len()).map(|level| [u8::try_from(level).unwrap_or(u8::MAX)]).collect();
        let parts: Vec<&[u8]> = numbers
            .iter()
            .zip(&self.0)
            .flat_map(|(number, digest)| [&number[..], digest.as_ref()])
            .collect();
        H::of(&parts)
    }
}

/// Returns the levels whose blocks together have at least the share `rate` of all events, with the
/// smallest excess that `units` levels allow. The result has one bit per level.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn cover(rate: f64, units: usize) -> u64 {
    let last = units.clamp(1, 63) - 1;
    // The share in multiples of the smallest block's share, rounded up, and at most 1.
    let steps = ((rate * (1_u64 << last) as f64 - 1e-9).ceil() as u64).clamp(1, 1 << last);
    if steps == 1 << last {
        return (1 << (last + 1)) - 1;
    }
    // Level i has 2^(last - 1 - i) of these multiples. The last level has one, like the level
    // before it.
    (0..last)
        .filter(|level| steps >> (last - 1 - level) & 1 == 1)
        .fold(0, |mask, level| mask | 1 << level)
}

#[cfg(test)]
mod tests {
    use super::super::{Md5, Sha256};
    use super::*;

    fn events() -> Vec<[u8; 4]> {
        (0..2000_u32).map(u32::to_be_bytes).collect()
    }

    #[test]
    fn a_verifier_with_some_blocks_and_the_digests_of_the_others_computes_the_same_root() {
        let mut device = Star::<Md5>::new(5);
        let levels: Vec<_> = events().iter().map(|event| device.push(event)).collect();
        for mask in [0_u64, 0b10010, 0b11111] {
            let mut verifier = Star::<Md5>::new(5);
            (0..5)
                .filter(|level| mask >> level & 1 == 0)
                .for_each(|level| verifier.adopt(level, device.digest(level)));
            for (event, &level) in
                events().iter().zip(&levels).filter(|(_, level)| mask >> **level & 1 == 1)
            {
                assert_eq!(verifier.level(event), level);
                verifier.fold(level, event);
            }
            assert_eq!(verifier.root(), device.root());
        }
    }

    #[test]
    fn the_step_is_that_of_the_paper_and_of_the_star_over_sha_256() {
        let (mut wide, mut narrow) = (
            crate::RunningStar::new(),
            Star::<Sha256>::new(usize::from(crate::content_levels::LEVELS)),
        );
        for event in events() {
            assert_eq!(usize::from(wide.push(&event)), narrow.push(&event));
        }
        assert_eq!(wide.root().0, narrow.root());
    }

    #[test]
    fn a_cover_exceeds_the_requested_share_by_less_than_the_finest_block() {
        // The paper's example: to serve a rate of 10 %, a star of two levels sends half of the
        // events, and a star of three levels sends a quarter.
        assert_eq!((cover(0.1, 2), cover(0.1, 3)), (0b1, 0b10));
        assert_eq!((cover(1.0, 4), cover(0.625, 4), cover(0.01, 1)), (0b1111, 0b101, 0b1));
        for units in 1..12_usize {
            for percent in 1..=100 {
                let (rate, mask) =
                    (f64::from(percent) / 100.0, cover(f64::from(percent) / 100.0, units));
                let finest = 0.5_f64.powi(units as i32 - 1);
                let share = |level: usize| {
                    if level + 1 == units { finest } else { 0.5_f64.powi(level as i32 + 1) }
                };
                let covered: f64 =
                    (0..units).filter(|level| mask >> level & 1 == 1).map(share).sum();
                assert!(
                    covered >= rate - 1e-9 && covered < rate + finest,
                    "{percent} % from {units} units: {covered}"
                );
            }
        }
    }
}
