//! ECDSA over secp160r1 with SHA-1, the signature of the motes in the broadcast paper (SEC 2
//! version 1, section 2.4.2; SEC 1, section 4.1).
//!
//! It is for comparison only: it has 80 bits of security, SEC 2 withdrew the curve in 2010, and the
//! running time depends on the secret. Products use the suites of `moteseal-core`.

use std::sync::LazyLock;

use num_bigint::BigUint;
use sha1::{Digest as _, Sha1};

use crate::prf::hm256;

/// The length of a signature in bytes. `r` and `s` have 161 bits each and are stored in 11 words of
/// 16 bits, as TinyECC stores them. The paper counts 44 bytes.
pub const SIGNATURE: usize = 44;
/// The length of a public key in bytes: both coordinates.
pub const PUBLIC_KEY: usize = 40;

/// The parameters of the curve: the field's prime `p`, the coefficient `b`, the order `n` of the
/// base point, and the base point. The coefficient `a` is -3.
struct Curve {
    p: BigUint,
    b: BigUint,
    n: BigUint,
    base: Affine,
}

static CURVE: LazyLock<Curve> = LazyLock::new(|| {
    let number = |digits: &[u8]| BigUint::parse_bytes(digits, 16).unwrap_or_default();
    Curve {
        p: number(b"ffffffffffffffffffffffffffffffff7fffffff"),
        b: number(b"1c97befc54bd7a8b65acf89f81d4d4adc565fa45"),
        n: number(b"0100000000000000000001f4c8f927aed3ca752257"),
        base: Affine {
            x: number(b"4a96b5688ef573284664698968c38bb913cbfc82"),
            y: number(b"23a628553168947d59dcc912042351377ac5fb32"),
        },
    }
});

#[derive(Clone, Debug, PartialEq, Eq)]
struct Affine {
    x: BigUint,
    y: BigUint,
}

/// The point `(x / z^2, y / z^3)` in Jacobian coordinates. The point at infinity has `z = 0`.
#[derive(Clone, Debug)]
struct Jacobian {
    x: BigUint,
    y: BigUint,
    z: BigUint,
}

fn zero() -> BigUint {
    BigUint::ZERO
}

fn times(a: &BigUint, b: &BigUint) -> BigUint {
    a * b % &CURVE.p
}

fn minus(a: &BigUint, b: &BigUint) -> BigUint {
    if a >= b { a - b } else { a + &CURVE.p - b }
}

impl Jacobian {
    fn infinity() -> Self {
        Self { x: BigUint::from(1_u8), y: BigUint::from(1_u8), z: zero() }
    }

    fn is_infinity(&self) -> bool {
        self.z == zero()
    }

    /// Doubles the point. Because `a = -3`, `alpha = 3 (x - z^2)(x + z^2)`.
    fn double(&self) -> Self {
        if self.is_infinity() || self.y == zero() {
            return Self::infinity();
        }
        let (delta, gamma) = (times(&self.z, &self.z), times(&self.y, &self.y));
        let beta = times(&self.x, &gamma);
        let alpha = times(&minus(&self.x, &delta), &(&self.x + &delta)) * 3_u8 % &CURVE.p;
        let eight_beta = (&beta << 3_u8) % &CURVE.p;
        let x = minus(&times(&alpha, &alpha), &eight_beta);
        let z = (times(&self.y, &self.z) << 1_u8) % &CURVE.p;
        let four_beta = (beta << 2_u8) % &CURVE.p;
        let eight_gamma_squared = (times(&gamma, &gamma) << 3_u8) % &CURVE.p;
        let y = minus(&times(&alpha, &minus(&four_beta, &x)), &eight_gamma_squared);
        Self { x, y, z }
    }

    fn add(&self, other: &Affine) -> Self {
        if self.is_infinity() {
            return Self { x: other.x.clone(), y: other.y.clone(), z: BigUint::from(1_u8) };
        }
        let zz = times(&self.z, &self.z);
        let h = minus(&times(&other.x, &zz), &self.x);
        let r = minus(&times(&other.y, &times(&zz, &self.z)), &self.y);
        if h == zero() {
            return if r == zero() { self.double() } else { Self::infinity() };
        }
        let hh = times(&h, &h);
        let (hhh, v) = (times(&h, &hh), times(&self.x, &hh));
        let x = minus(&minus(&times(&r, &r), &hhh), &((&v << 1_u8) % &CURVE.p));
        let y = minus(&times(&r, &minus(&v, &x)), &times(&self.y, &hhh));
        Self { x, y, z: times(&self.z, &h) }
    }

    fn affine(&self) -> Option<Affine> {
        let inverse = self.z.modinv(&CURVE.p)?;
        let square = times(&inverse, &inverse);
        Some(Affine { x: times(&self.x, &square), y: times(&self.y, &times(&square, &inverse)) })
    }
}

/// Returns `u G + v Q`. Processes the bits of `u` and `v` together.
fn combination(u: &BigUint, v: &BigUint, q: &Affine) -> Option<Affine> {
    let both = Jacobian { x: q.x.clone(), y: q.y.clone(), z: BigUint::from(1_u8) }
        .add(&CURVE.base)
        .affine();
    let mut sum = Jacobian::infinity();
    for bit in (0..u.bits().max(v.bits())).rev() {
        sum = sum.double();
        sum = match (u.bit(bit), v.bit(bit), &both) {
            (true, true, Some(both)) => sum.add(both),
            // `Q` is `-G`, so their sum is the point at infinity.
            (true, true, None) | (false, false, _) => sum,
            (true, false, _) => sum.add(&CURVE.base),
            (false, true, _) => sum.add(q),
        };
    }
    sum.affine()
}

/// Returns the SHA-1 of a message as an integer. Its 160 bits are not longer than the order.
fn hashed(message: &[u8]) -> BigUint {
    BigUint::from_bytes_be(&Sha1::digest(message))
}

fn fixed<const N: usize>(number: &BigUint) -> [u8; N] {
    let (mut out, bytes) = ([0; N], number.to_bytes_be());
    if let Some(place) = N.checked_sub(bytes.len()) {
        out[place..].copy_from_slice(&bytes);
    }
    out
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(Affine);

impl PublicKey {
    /// Decodes 40 bytes; `None` if they are not a point of the curve.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; PUBLIC_KEY]) -> Option<Self> {
        let (x, y) = (BigUint::from_bytes_be(&bytes[..20]), BigUint::from_bytes_be(&bytes[20..]));
        if x >= CURVE.p || y >= CURVE.p {
            return None;
        }
        let cubic = times(&minus(&times(&x, &x), &BigUint::from(3_u8)), &x) + &CURVE.b;
        (times(&y, &y) == cubic % &CURVE.p).then_some(Self(Affine { x, y }))
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
        let range = BigUint::from(1_u8)..CURVE.n.clone();
        if !range.contains(&r) || !range.contains(&s) {
            return false;
        }
        let Some(w) = s.modinv(&CURVE.n) else { return false };
        let (u, v) = (hashed(message) * &w % &CURVE.n, &r * w % &CURVE.n);
        combination(&u, &v, &self.0).is_some_and(|point| point.x % &CURVE.n == r)
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
        let range = BigUint::from(1_u8)..CURVE.n.clone();
        let point = combination(&d, &zero(), &CURVE.base).filter(|_| range.contains(&d))?;
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
        let r = combination(nonce, &zero(), &CURVE.base)?.x % &CURVE.n;
        let s = nonce.modinv(&CURVE.n)? * (hashed(message) + &self.d * &r) % &CURVE.n;
        let mut out = [0; SIGNATURE];
        out[..22].copy_from_slice(&fixed::<22>(&r));
        out[22..].copy_from_slice(&fixed::<22>(&s));
        (r != zero() && s != zero()).then_some(out)
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
        let base = PublicKey(CURVE.base.clone());
        assert_eq!(PublicKey::from_bytes(&base.to_bytes()), Some(base));
        assert!(combination(&CURVE.n, &zero(), &CURVE.base).is_none());
        let before = combination(&(&CURVE.n - 1_u8), &zero(), &CURVE.base).unwrap();
        assert_eq!((before.x, before.y), (CURVE.base.x.clone(), &CURVE.p - &CURVE.base.y));
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
        assert!(SecretKey::new(zero()).is_none());
        assert!(SecretKey::new(CURVE.n.clone()).is_none());
        assert!(SecretKey::new(&CURVE.n + 1_u8).is_none());
    }

    #[test]
    fn sums_of_multiples_are_the_multiples_of_sums() {
        // With Q = 5 G, u G + v Q is (u + 5 v) G.
        let five = combination(&BigUint::from(5_u8), &zero(), &CURVE.base).unwrap();
        for u in 0..20_u32 {
            for v in 0..20_u32 {
                let sum = combination(&BigUint::from(u), &BigUint::from(v), &five);
                let direct = combination(&BigUint::from(u + 5 * v), &zero(), &CURVE.base);
                assert_eq!(sum, direct, "{u} G + {v} Q");
            }
        }
        // The special cases in which Q is -G or G.
        let minus = Affine { x: CURVE.base.x.clone(), y: &CURVE.p - &CURVE.base.y };
        assert!(combination(&BigUint::from(9_u8), &BigUint::from(9_u8), &minus).is_none());
        assert_eq!(
            combination(&BigUint::from(9_u8), &BigUint::from(4_u8), &CURVE.base),
            combination(&BigUint::from(13_u8), &zero(), &CURVE.base)
        );
    }
}
