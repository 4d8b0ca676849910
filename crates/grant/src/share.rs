//! Shares of a 32-byte secret, any two of which restore it (A. Shamir, "How to share a secret",
//! 1979): byte by byte, with polynomials of degree 1 over GF(2^8).
//!
//! A single share is independent of the secret. Multiplication takes the same time for all values
//! and uses no table.

use std::fmt;

use bech32::{FromBase32 as _, ToBase32 as _, Variant};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The number of shares.
pub const SHARES: usize = 3;
/// The human-readable part of a share's text.
const PREFIX: &str = "moteseal-share-";
/// The length of an encoded share: version, set, position, value.
const LENGTH: usize = 1 + 4 + 1 + 32;

moteseal_core::named_errors! {
    /// Why shares did not restore a secret.
    ShareError {
        /// The text is not a share, or it has a typing error.
        MalformedShare => "not a share of a backup, or it has a typing error",
        /// The share is of another version.
        UnsupportedShare => "the share was made by a newer version of this software",
        /// The shares are of different backups.
        OtherBackup => "the shares are of different backups",
        /// There are fewer than two different shares.
        TooFewShares => "give two different shares of the backup",
        /// The shares contradict each other.
        ShareMismatch => "the shares contradict each other; leave one out",
    }
}

/// Multiplies in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x + 1, as AES does.
fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    for _ in 0..8 {
        product ^= (b & 1).wrapping_neg() & a;
        a = (a << 1) ^ ((a >> 7).wrapping_neg() & 0x1b);
        b >>= 1;
    }
    product
}

/// Returns the inverse, `a^254`; 0 for 0.
fn invert(a: u8) -> u8 {
    // 254 = 2 + 4 + ... + 128.
    let mut power = a;
    let mut product = 1;
    for _ in 0..7 {
        power = multiply(power, power);
        product = multiply(product, power);
    }
    product
}

/// A share of a secret. `Debug` does not print its value.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Share {
    set: [u8; 4],
    position: u8,
    value: [u8; 32],
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "share {} of {:02x?}", self.position, self.set)
    }
}

impl Share {
    /// Returns the position, 1 to [`SHARES`].
    #[must_use]
    pub const fn position(&self) -> u8 {
        self.position
    }

    /// Returns the text: bech32m (BIP 350) of version, set, position and value, in capital letters.
    /// Its checksum detects up to four wrong characters.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new([0; LENGTH]);
        bytes[0] = 1;
        bytes[1..5].copy_from_slice(&self.set);
        bytes[5] = self.position;
        bytes[6..].copy_from_slice(&self.value);
        let text = bech32::encode(PREFIX, bytes.to_base32(), Variant::Bech32m);
        let text = Zeroizing::new(text.unwrap_or_default());
        Zeroizing::new(text.to_uppercase())
    }

    /// Reads a text.
    ///
    /// # Errors
    /// `MalformedShare`, `UnsupportedShare`.
    pub fn parse(text: &str) -> Result<Self, ShareError> {
        let malformed = |_| ShareError::MalformedShare;
        let (prefix, digits, variant) = bech32::decode(text.trim()).map_err(malformed)?;
        if (prefix.as_str(), variant) != (PREFIX, Variant::Bech32m) {
            return Err(ShareError::MalformedShare);
        }
        let bytes = Zeroizing::new(Vec::<u8>::from_base32(&digits).map_err(malformed)?);
        let Ok(bytes) = <&[u8; LENGTH]>::try_from(&bytes[..]) else {
            return Err(match bytes.first() {
                Some(0 | 1) | None => ShareError::MalformedShare,
                Some(_) => ShareError::UnsupportedShare,
            });
        };
        let (mut set, mut value) = ([0; 4], [0; 32]);
        set.copy_from_slice(&bytes[1..5]);
        value.copy_from_slice(&bytes[6..]);
        let share = Self { set, position: bytes[5], value };
        value.zeroize();
        match bytes[0] {
            1 if (1..=SHARES as u8).contains(&share.position) => Ok(share),
            0 | 1 => Err(ShareError::MalformedShare),
            _ => Err(ShareError::UnsupportedShare),
        }
    }
}

/// Splits a secret. `set` names the backup; `slope` must be uniformly random, secret, and used once.
#[must_use]
pub fn split(secret: &[u8; 32], set: [u8; 4], slope: &[u8; 32]) -> [Share; SHARES] {
    [1, 2, 3].map(|position| Share { set, position, value: at(secret, slope, position) })
}

/// Returns the points at `position` of the lines through `origin` with `slope`.
fn at(origin: &[u8; 32], slope: &[u8; 32], position: u8) -> [u8; 32] {
    let mut value = [0; 32];
    for ((value, origin), slope) in value.iter_mut().zip(origin).zip(slope) {
        *value = origin ^ multiply(*slope, position);
    }
    value
}

/// Restores a secret from two or three shares, in any order. A share that is given twice counts once.
/// The caller must check the result: two shares that were altered together restore another secret.
///
/// # Errors
/// `TooFewShares`, `OtherBackup`, `ShareMismatch`.
pub fn join(shares: &[Share]) -> Result<Zeroizing<[u8; 32]>, ShareError> {
    let first = shares.first().ok_or(ShareError::TooFewShares)?;
    if shares.iter().any(|share| share.set != first.set) {
        return Err(ShareError::OtherBackup);
    }
    let second = shares.iter().find(|share| share.position != first.position);
    let second = second.ok_or(ShareError::TooFewShares)?;
    let inverse = invert(first.position ^ second.position);
    let (mut origin, mut slope) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
    for (place, (one, other)) in first.value.iter().zip(&second.value).enumerate() {
        slope[place] = multiply(one ^ other, inverse);
        origin[place] = one ^ multiply(slope[place], first.position);
    }
    let fits = |share: &Share| *Zeroizing::new(at(&origin, &slope, share.position)) == share.value;
    if shares.iter().all(fits) { Ok(origin) } else { Err(ShareError::ShareMismatch) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn multiplication_is_that_of_aes_and_every_element_has_an_inverse() {
        // FIPS 197, section 4.2: {57} * {83} = {c1}, {57} * {13} = {fe}.
        assert_eq!((multiply(0x57, 0x83), multiply(0x57, 0x13)), (0xc1, 0xfe));
        for a in 1..=255 {
            assert_eq!(multiply(a, invert(a)), 1);
        }
        assert_eq!(invert(0), 0);
    }

    #[test]
    fn multiplication_distributes_over_addition() {
        for a in 0..=255_u8 {
            for b in 0..=255_u8 {
                assert_eq!(multiply(a, b), multiply(b, a));
                assert_eq!(multiply(a, b ^ 0x5a), multiply(a, b) ^ multiply(a, 0x5a));
            }
        }
    }

    #[test]
    fn one_share_is_consistent_with_every_secret() {
        // For each secret there is one slope that gives this share.
        for position in 1..=3_u8 {
            for secret in 0..=255_u8 {
                let slope = multiply(secret ^ 0x77, invert(position));
                assert_eq!(secret ^ multiply(slope, position), 0x77);
            }
        }
    }
}
