//! ECDSA over secp192r1 (P-192) with SHA-256, the signature of the RERUM project's motes (SEC 2
//! version 1, section 2.5.2; SEC 1, section 4.1).
//!
//! The project's motes take random nonces. Here the nonce is derived from the key and the message
//! (RFC 6979), so no randomness is needed.
//!
//! It is for comparison only: it has 96 bits of security, and the running time depends on the
//! secret. Products use the suites of `moteseal-core`.

use std::sync::LazyLock;

use hmac::{Hmac, KeyInit as _, Mac as _};
use num_bigint::BigUint;
use sha2::{Digest as _, Sha256};

use crate::weierstrass::{Affine, Curve, fixed};

/// The length of a number below the order in bytes.
const SCALAR: usize = 24;
/// The length of a signature in bytes: `r` and `s`, big-endian.
pub const SIGNATURE: usize = 48;
/// The length of a public key in bytes: both coordinates, big-endian.
pub const PUBLIC_KEY: usize = 48;

static CURVE: LazyLock<Curve> = LazyLock::new(|| {
    Curve::new([
        b"fffffffffffffffffffffffffffffffeffffffffffffffff",
        b"64210519e59c80e70fa7e9ab72243049feb8deecc146b9b1",
        b"ffffffffffffffffffffffff99def836146bc9b1b4d22831",
        b"188da80eb03090f67cbf20eb43a18800f4ff0afd82ff1012",
        b"07192b95ffc8da78631011ed6b24cdd573f977a11e794811",
    ])
});

/// Returns the SHA-256 of a message as an integer: its leftmost 192 bits, the length of the order.
fn hashed(message: &[u8]) -> BigUint {
    BigUint::from_bytes_be(&Sha256::digest(message)[..SCALAR])
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(Affine);

impl PublicKey {
    /// Decodes 48 bytes; `None` if they are not a point of the curve.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; PUBLIC_KEY]) -> Option<Self> {
        let (x, y) = bytes.split_at(SCALAR);
        CURVE.point(BigUint::from_bytes_be(x), BigUint::from_bytes_be(y)).map(Self)
    }

    /// Encodes the key as 48 bytes: `x` and `y`, big-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PUBLIC_KEY] {
        let mut out = [0; PUBLIC_KEY];
        out[..SCALAR].copy_from_slice(&fixed::<SCALAR>(&self.0.x));
        out[SCALAR..].copy_from_slice(&fixed::<SCALAR>(&self.0.y));
        out
    }

    /// Returns whether a signature of a message is valid under this key. If `(r, s)` is valid,
    /// `(r, n - s)` is also valid, because SEC 1 excludes neither.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE]) -> bool {
        let (r, s) = signature.split_at(SCALAR);
        let [r, s] = [r, s].map(BigUint::from_bytes_be);
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
    /// Creates the key from 24 bytes, big-endian; `None` unless the number is at least 1 and below
    /// the order.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; SCALAR]) -> Option<Self> {
        let d = BigUint::from_bytes_be(bytes);
        let point = CURVE.multiple(&d).filter(|_| CURVE.is_scalar(&d))?;
        Some(Self { d, public: PublicKey(point) })
    }

    /// Returns the public key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message. The same message always has the same signature (RFC 6979, section 3.2).
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE] {
        let hashed = hashed(message);
        let seed = [fixed::<SCALAR>(&self.d), fixed::<SCALAR>(&(&hashed % &CURVE.n))].concat();
        let (mut key, mut value) = ([0; 32], [1; 32]);
        for byte in [0, 1] {
            key = code(&key, &[&value, &[byte], &seed]);
            value = code(&key, &[&value]);
        }
        loop {
            value = code(&key, &[&value]);
            let nonce = BigUint::from_bytes_be(&value[..SCALAR]);
            let signature =
                CURVE.is_scalar(&nonce).then(|| CURVE.sign(&self.d, &hashed, &nonce)).flatten();
            if let Some((r, s)) = signature {
                let mut out = [0; SIGNATURE];
                out[..SCALAR].copy_from_slice(&fixed::<SCALAR>(&r));
                out[SCALAR..].copy_from_slice(&fixed::<SCALAR>(&s));
                return out;
            }
            key = code(&key, &[&value, &[0]]);
            value = code(&key, &[&value]);
        }
    }
}

#[allow(clippy::expect_used)]
fn code(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let keyed = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().fold(keyed, |code, part| code.chain_update(part)).finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key() -> SecretKey {
        let d = hex::decode("6fab034934e4c0fc9ae67f5b5659a9d7d1fefd187ee09fd4").unwrap();
        SecretKey::from_bytes(&d.try_into().unwrap()).unwrap()
    }

    /// RFC 6979, section A.2.3, with SHA-256.
    #[test]
    fn the_signatures_of_the_rfcs_examples_are_reproduced() {
        let key = key();
        assert_eq!(
            hex::encode(key.public().to_bytes()),
            "ac2c77f529f91689fea0ea5efec7f210d8eea0b9e047ed56\
             3bc723e57670bd4887ebc732c523063d0a7c957bc97c1c43"
        );
        for (message, signature) in [
            (
                "sample",
                "4b0b8ce98a92866a2820e20aa6b75b56382e0f9bfd5ecb55\
                 ccdb006926ea9565cbadc840829d8c384e06de1f1e381b85",
            ),
            (
                "test",
                "3a718bd8b4926c3b52ee6bbe67ef79b18cb6eb62b1ad97ae\
                 5662e6848a4a19b1f1ae2f72acd4b8bbe50f1eac65d9124f",
            ),
        ] {
            assert_eq!(hex::encode(key.sign(message.as_bytes())), signature, "{message}");
        }
    }

    #[test]
    fn the_base_point_is_on_the_curve_and_has_the_stated_order() {
        crate::weierstrass::check(&CURVE);
        let key = key();
        let mut bytes = key.public().to_bytes();
        assert_eq!(PublicKey::from_bytes(&bytes).as_ref(), Some(key.public()));
        bytes[47] ^= 1;
        assert_eq!(PublicKey::from_bytes(&bytes), None);
    }

    #[test]
    fn a_changed_signature_or_message_is_invalid() {
        let key = key();
        let signature = key.sign(b"message");
        assert!(key.public().verify(b"message", &signature));
        assert!(!key.public().verify(b"massage", &signature));
        for at in [0, 23, 24, 47] {
            let mut changed = signature;
            changed[at] ^= 1;
            assert!(!key.public().verify(b"message", &changed), "byte {at}");
        }
        assert!(!key.public().verify(b"message", &[0; SIGNATURE]));
        // The order itself is no valid `s`.
        let mut changed = signature;
        changed[24..].copy_from_slice(&fixed::<SCALAR>(&CURVE.n));
        assert!(!key.public().verify(b"message", &changed));
        for d in [BigUint::ZERO, CURVE.n.clone(), &CURVE.n + 1_u8] {
            assert!(SecretKey::from_bytes(&fixed(&d)).is_none());
        }
    }
}
