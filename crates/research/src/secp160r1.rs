//! ECDSA over secp160r1 with SHA-1, the signature of the motes in the broadcast paper (SEC 2
//! version 1, section 2.4.2; SEC 1, section 4.1).
//!
//! It is for comparison only: it has 80 bits of security, SEC 2 withdrew the curve in 2010, and the
//! running time depends on the secret. Products use the suites of `moteseal-core`.

use std::sync::LazyLock;

use num_bigint::BigUint;
use sha1::{Digest as _, Sha1};

use crate::prf::hm256;
use crate::weierstrass::{Affine, Curve, fixed};

/// The length of a signature in bytes. `r` and `s` have 161 bits each and are stored in 11 words of
/// 16 bits, as TinyECC stores them. The paper counts 44 bytes.
pub const SIGNATURE: usize = 44;
/// The length of a public key in bytes: both coordinates.
pub const PUBLIC_KEY: usize = 40;

static CURVE: LazyLock<Curve> = LazyLock::new(|| {
    Curve::new([
        b"ffffffffffffffffffffffffffffffff7fffffff",
        b"1c97befc54bd7a8b65acf89f81d4d4adc565fa45",
        b"0100000000000000000001f4c8f927aed3ca752257",
        b"4a96b5688ef573284664698968c38bb913cbfc82",
        b"23a628553168947d59dcc912042351377ac5fb32",
    ])
});

/// Returns the SHA-1 of a message as an integer. Its 160 bits are not longer than the order.
fn hashed(message: &[u8]) -> BigUint {
    BigUint::from_bytes_be(&Sha1::digest(message))
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(Affine);

impl PublicKey {
    /// Decodes 40 bytes; `None` if they are not a point of the curve.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; PUBLIC_KEY]) -> Option<Self> {
        let (x, y) = (BigUint::from_bytes_be(&bytes[..20]), BigUint::from_bytes_be(&bytes[20..]));
        CURVE.point(x, y).map(Self)
    }

    /// Encodes the key as 40 bytes: `x` and `y`, big-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PUBLIC_KEY] {
        let mut out = [0; PUBLIC_KEY];
        out[..20].copy_from_slice(&fixed::<20>(&self.0.x));
        out[20..].copy_from_slice(&fixed::<20>(&self.0.y));
        out
    }

    /// Returns whether a signature of a message is valid under this key. If `(r, s)` is valid,
    /// `(r, n - s)` is also valid, because SEC 1 excludes neither.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE]) -> bool {
        let (r, s) =
            (BigUint::from_bytes_be(&signature[..22]), BigUint::from_bytes_be(&signature[22..]));
        CURVE.verify(&self.0, &hashed(message), &r, &s)
    }
}

/// A private key. The type does not protect the key, so it must not hold a real secret.
#[derive(Clone, Debug)]
pub struct SecretKey {
    d: BigUint,
    public: PublicKey,
}

impl SecretKey {
    /// Creates the key from a number; `None` unless the number is at least 1 and below the order.
    #[must_use]
    pub fn new(d: BigUint) -> Option<Self> {
        let point = CURVE.multiple(&d).filter(|_| CURVE.is_scalar(&d))?;
        Some(Self { d, public: PublicKey(point) })
    }

    /// Returns the public key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message with the given nonce; `None` if this nonce gives no signature.
    #[must_use]
    pub fn sign_with_nonce(&self, message: &[u8], nonce: &BigUint) -> Option<[u8; SIGNATURE]> {
        let (r, s) = CURVE.sign(&self.d, &hashed(message), nonce)?;
        let mut out = [0; SIGNATURE];
        out[..22].copy_from_slice(&fixed::<22>(&r));
        out[22..].copy_from_slice(&fixed::<22>(&s));
        Some(out)
    }

    /// Signs a message with a nonce that is derived from the key and the message, so no randomness
    /// is needed.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE] {
        let digest = Sha1::digest(message);
        (0_u32..)
            .find_map(|attempt| {
                let nonce =
                    hm256(&self.d.to_bytes_be(), &[&digest[..], &attempt.to_be_bytes()].concat());
                self.sign_with_nonce(message, &(BigUint::from_bytes_be(&nonce) % &CURVE.n))
            })
            .unwrap_or([0; SIGNATURE])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn decimal(digits: &str) -> BigUint {
        BigUint::parse_bytes(digits.as_bytes(), 10).unwrap()
    }

    /// The test vector of GEC 2, "Test Vectors for SEC 1", section 2.1.
    #[test]
    fn the_signature_of_the_standards_example_is_reproduced() {
        let key =
            SecretKey::new(decimal("971761939728640320549601132085879836204587084162")).unwrap();
        assert_eq!(key.public().0.x, decimal("466448783855397898016055842232266600516272889280"));
        assert_eq!(key.public().0.y, decimal("1110706324081757720403272427311003102474457754220"));
        let nonce = decimal("702232148019446860144825009548118511996283736794");
        let signature = key.sign_with_nonce(b"abc", &nonce).unwrap();
        let r = decimal("1176954224688105769566774212902092897866168635793");
        let s = decimal("299742580584132926933316745664091704165278518100");
        assert_eq!(signature, [fixed::<22>(&r), fixed::<22>(&s)].concat()[..]);
        assert!(key.public().verify(b"abc", &signature));
        assert!(!key.public().verify(b"abd", &signature));
    }

    #[test]
    fn the_base_point_is_on_the_curve_and_has_the_stated_order() {
        crate::weierstrass::check(&CURVE);
        let mut off = PublicKey(CURVE.base.clone()).to_bytes();
        off[39] ^= 1;
        assert_eq!(PublicKey::from_bytes(&off), None);
    }

    #[test]
    fn a_signature_verifies_and_one_with_a_changed_bit_does_not() {
        for seed in 1..=20_u32 {
            let key = SecretKey::new(BigUint::from(seed) << 100_u8).unwrap();
            let message = seed.to_be_bytes();
            let signature = key.sign(&message);
            assert!(key.public().verify(&message, &signature));
            for at in [0, 1, 21, 22, 23, 43] {
                let mut changed = signature;
                changed[at] ^= 1;
                assert!(!key.public().verify(&message, &changed), "byte {at}");
            }
            assert!(
                !SecretKey::new(BigUint::from(7_u8)).unwrap().public().verify(&message, &signature)
            );
        }
        let zeros = [0; SIGNATURE];
        let key = SecretKey::new(BigUint::from(7_u8)).unwrap();
        assert!(!key.public().verify(b"", &zeros));
        assert!(SecretKey::new(BigUint::ZERO).is_none());
        assert!(SecretKey::new(CURVE.n.clone()).is_none());
        assert!(SecretKey::new(&CURVE.n + 1_u8).is_none());
    }
}
