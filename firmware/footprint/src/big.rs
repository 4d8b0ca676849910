//! RSA-1024 and DSA-512, to compare with the paper's table I on this processor. Do not use them for
//! anything else: both schemes are broken or nearly broken, and this DSA gets its nonce from the
//! caller.

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{NonZero, Odd, U512, U1024};

/// A modulus, and the constants for Montgomery multiplication with it.
pub struct Modulus(FixedMontyParams<{ U512::LIMBS }>);

impl Modulus {
    /// Creates the modulus from an odd integer of 64 bytes, big-endian.
    #[must_use]
    pub fn new(bytes: &[u8; 64]) -> Option<Self> {
        Odd::new(U512::from_be_slice(bytes))
            .into_option()
            .map(|modulus| Self(FixedMontyParams::new(modulus)))
    }

    fn form(&self, integer: &U512) -> FixedMontyForm<{ U512::LIMBS }> {
        FixedMontyForm::new(integer, &self.0)
    }

    fn pow(&self, base: &U512, exponent: &U512) -> U512 {
        self.form(base).pow(exponent).retrieve()
    }
}

/// A private RSA key in the form with primes (RFC 8017, section 3.2). Each number has 64 bytes,
/// big-endian.
pub struct Rsa {
    /// `p`.
    pub p: Modulus,
    /// `q`.
    pub q: Modulus,
    /// `d mod (p - 1)`.
    pub dp: U512,
    /// `d mod (q - 1)`.
    pub dq: U512,
    /// `1/q mod p`.
    pub q_inverse: U512,
}

impl Rsa {
    /// Returns the signature of a padded message, `message^d mod pq` (RFC 8017, section 5.2.1).
    #[must_use]
    pub fn sign(&self, message: &[u8; 128]) -> U1024 {
        let message = U1024::from_be_slice(message);
        let [p, q] = [&self.p, &self.q].map(|prime| *prime.0.modulus().as_nz_ref());
        let m1 = self.p.pow(&message.rem(&p), &self.dp);
        let m2 = self.q.pow(&message.rem(&q), &self.dq);
        let h =
            self.p.form(&m1.sub_mod(&m2.rem(&p), &p)).mul(&self.p.form(&self.q_inverse)).retrieve();
        let product: U1024 = h.concatenating_mul(&*q);
        product.wrapping_add(&m2.resize())
    }
}

/// The domain parameters and the private key of DSA (FIPS 186-4, section 4): `p` has 512 bits, `q`
/// 160 bits.
pub struct Dsa {
    /// `p`.
    pub p: Modulus,
    /// `q`, below `2^160`.
    pub q: Modulus,
    /// `g`.
    pub g: U512,
    /// `x`.
    pub x: U512,
}

impl Dsa {
    /// Returns the signature `(r, s)` of a digest of at most 160 bits, made with this nonce (FIPS
    /// 186-4, section 4.6).
    #[must_use]
    pub fn sign(&self, digest: &U512, nonce: &U512) -> Option<(U512, U512)> {
        let q: &NonZero<U512> = self.q.0.modulus().as_nz_ref();
        let r = self.p.form(&self.g).pow_bounded_exp(nonce, 160).retrieve().rem(q);
        let inverse = nonce.invert_odd_mod(self.q.0.modulus()).into_option()?;
        let form = |integer: &U512| self.q.form(integer);
        let s = form(&inverse).mul(&form(digest).add(&form(&self.x).mul(&form(&r)))).retrieve();
        Some((r, s))
    }
}
