//! Winternitz one-time signatures over SHA-256, with 4 bits per chain. An on-line chain signs each
//! message with one of them.
//!
//! The construction is Merkle's ("A certified digital signature", 1989). There are 64 chains for
//! the digits of the digest and 3 for a checksum. The checksum falls when a digit rises, so an
//! attacker cannot advance a signature along all chains.

use moteseal_core::digest::Digest;

const DIGITS: usize = 64;
const CHAINS: usize = DIGITS + 3;
const TOP: u8 = 15;

/// The length of a signature in bytes: 67 digests of 32 bytes.
pub const SIGNATURE_BYTES: usize = CHAINS * 32;

/// A key that must sign only one message.
#[derive(Clone, Copy)]
pub struct OneTimeKey<'s> {
    seed: &'s [u8; 32],
    number: u64,
}

impl std::fmt::Debug for OneTimeKey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OneTimeKey({} secret)", self.number)
    }
}

impl<'s> OneTimeKey<'s> {
    /// Creates key number `number` of the keys that are derived from `seed`.
    #[must_use]
    pub const fn new(seed: &'s [u8; 32], number: u64) -> Self {
        Self { seed, number }
    }

    fn secret(&self, chain: usize) -> Digest {
        Digest::of(&[
            b"moteseal/research/one-time/secret",
            self.seed,
            &self.number.to_be_bytes(),
            &[number(chain)],
        ])
    }

    /// Returns the public key: the digest of the ends of all chains.
    #[must_use]
    pub fn public(&self) -> Digest {
        let ends: Vec<u8> =
            (0..CHAINS).flat_map(|chain| advance(chain, self.secret(chain), 0, TOP).0).collect();
        Digest::of(&[&ends])
    }

    /// Signs a message's digest.
    #[must_use]
    pub fn sign(&self, digest: &Digest) -> Vec<u8> {
        let digits = digits(digest);
        (0..CHAINS)
            .flat_map(|chain| advance(chain, self.secret(chain), 0, digits[chain]).0)
            .collect()
    }
}

/// Returns the public key that a signature of the digest implies. It is the signer's key if the
/// signature is valid.
#[must_use]
pub(super) fn implied_key(digest: &Digest, signature: &[u8]) -> Option<Digest> {
    if signature.len() != SIGNATURE_BYTES {
        return None;
    }
    let digits = digits(digest);
    let ends: Vec<u8> = signature
        .chunks_exact(32)
        .enumerate()
        .flat_map(|(chain, value)| {
            let mut start = Digest::NULL;
            start.0.copy_from_slice(value);
            advance(chain, start, digits[chain], TOP).0
        })
        .collect();
    Some(Digest::of(&[&ends]))
}

/// Returns the hexadecimal digits of the digest, followed by the digits of the checksum, which is
/// the sum of the differences between [`TOP`] and each digit.
fn digits(digest: &Digest) -> [u8; CHAINS] {
    let mut digits = [0; CHAINS];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(digest.0) {
        pair.copy_from_slice(&[byte >> 4, byte & 15]);
    }
    let checksum: u16 = digits[..DIGITS].iter().map(|&digit| u16::from(TOP - digit)).sum();
    for (at, digit) in digits[DIGITS..].iter_mut().enumerate() {
        #[allow(clippy::cast_possible_truncation)]
        let nibble = (checksum >> (8 - 4 * at)) as u8 & 15;
        *digit = nibble;
    }
    digits
}

fn advance(chain: usize, start: Digest, from: u8, to: u8) -> Digest {
    (from..to).fold(start, |value, step| {
        Digest::of(&[b"moteseal/research/one-time", &[number(chain), step], &value.0])
    })
}

fn number(chain: usize) -> u8 {
    #[allow(clippy::cast_possible_truncation)]
    let number = chain as u8;
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_implies_its_key_for_its_digest_only() {
        let key = OneTimeKey::new(&[1; 32], 3);
        let digest = Digest::of(&[b"message"]);
        let signature = key.sign(&digest);
        assert_eq!(signature.len(), SIGNATURE_BYTES);
        assert_eq!(implied_key(&digest, &signature), Some(key.public()));
        for bit in 0..256 {
            let mut other = digest;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(implied_key(&other, &signature), Some(key.public()), "bit {bit}");
        }
        assert_ne!(key.public(), OneTimeKey::new(&[1; 32], 4).public());
    }

    #[test]
    fn the_checksum_falls_when_a_digit_rises() {
        let value = |digest: &Digest| {
            digits(digest)[DIGITS..].iter().fold(0u32, |sum, &digit| sum << 4 | u32::from(digit))
        };
        assert_eq!(value(&Digest([0; 32])), 64 * 15);
        assert_eq!(value(&Digest([0xff; 32])), 0);
        let mut digest = Digest([0x33; 32]);
        let before = value(&digest);
        digest.0[7] = 0x43;
        assert_eq!(value(&digest), before - 1);
    }
}
