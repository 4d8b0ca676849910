//! Elliptic curves `y^2 = x^3 - 3x + b` over a prime field, and the equations of ECDSA on them (SEC
//! 1, section 4.1).
//!
//! It is for comparison only: the running time depends on the secret.

use num_bigint::BigUint;

/// The parameters of a curve: the field's prime `p`, the coefficient `b`, the order `n` of the base
/// point, and the base point. The coefficient `a` is -3, and the cofactor is 1.
pub(crate) struct Curve {
    pub(crate) p: BigUint,
    pub(crate) b: BigUint,
    pub(crate) n: BigUint,
    pub(crate) base: Affine,
}

/// A point that is not the point at infinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Affine {
    pub(crate) x: BigUint,
    pub(crate) y: BigUint,
}

/// The point `(x / z^2, y / z^3)` in Jacobian coordinates. The point at infinity has `z = 0`.
#[derive(Clone, Debug)]
struct Jacobian {
    x: BigUint,
    y: BigUint,
    z: BigUint,
}

impl Jacobian {
    fn infinity() -> Self {
        Self { x: BigUint::from(1_u8), y: BigUint::from(1_u8), z: BigUint::ZERO }
    }

    fn is_infinity(&self) -> bool {
        self.z == BigUint::ZERO
    }
}

impl Curve {
    /// Creates a curve from `p`, `b`, `n` and the coordinates of the base point, in hexadecimal.
    pub(crate) fn new([p, b, n, x, y]: [&[u8]; 5]) -> Self {
        let number = |digits| BigUint::parse_bytes(digits, 16).unwrap_or_default();
        Self {
            p: number(p),
            b: number(b),
            n: number(n),
            base: Affine { x: number(x), y: number(y) },
        }
    }

    fn times(&self, a: &BigUint, b: &BigUint) -> BigUint {
        a * b % &self.p
    }

    fn minus(&self, a: &BigUint, b: &BigUint) -> BigUint {
        if a >= b { a - b } else { a + &self.p - b }
    }

    /// Returns the point with these coordinates; `None` if it is not on the curve.
    pub(crate) fn point(&self, x: BigUint, y: BigUint) -> Option<Affine> {
        if x >= self.p || y >= self.p {
            return None;
        }
        let cubic =
            self.times(&self.minus(&self.times(&x, &x), &BigUint::from(3_u8)), &x) + &self.b;
        (self.times(&y, &y) == cubic % &self.p).then_some(Affine { x, y })
    }

    /// Doubles a point. Because `a = -3`, `alpha = 3 (x - z^2)(x + z^2)`.
    fn double(&self, point: &Jacobian) -> Jacobian {
        if point.is_infinity() || point.y == BigUint::ZERO {
            return Jacobian::infinity();
        }
        let Jacobian { x, y, z } = point;
        let (delta, gamma) = (self.times(z, z), self.times(y, y));
        let beta = self.times(x, &gamma);
        let alpha = self.times(&self.minus(x, &delta), &(x + &delta)) * 3_u8 % &self.p;
        let eight_beta = (&beta << 3_u8) % &self.p;
        let new_x = self.minus(&self.times(&alpha, &alpha), &eight_beta);
        let new_z = (self.times(y, z) << 1_u8) % &self.p;
        let four_beta = (beta << 2_u8) % &self.p;
        let eight_gamma_squared = (self.times(&gamma, &gamma) << 3_u8) % &self.p;
        let new_y =
            self.minus(&self.times(&alpha, &self.minus(&four_beta, &new_x)), &eight_gamma_squared);
        Jacobian { x: new_x, y: new_y, z: new_z }
    }

    fn add(&self, point: &Jacobian, other: &Affine) -> Jacobian {
        if point.is_infinity() {
            return Jacobian { x: other.x.clone(), y: other.y.clone(), z: BigUint::from(1_u8) };
        }
        let zz = self.times(&point.z, &point.z);
        let h = self.minus(&self.times(&other.x, &zz), &point.x);
        let r = self.minus(&self.times(&other.y, &self.times(&zz, &point.z)), &point.y);
        if h == BigUint::ZERO {
            return if r == BigUint::ZERO { self.double(point) } else { Jacobian::infinity() };
        }
        let hh = self.times(&h, &h);
        let (hhh, v) = (self.times(&h, &hh), self.times(&point.x, &hh));
        let x = self.minus(&self.minus(&self.times(&r, &r), &hhh), &((&v << 1_u8) % &self.p));
        let y = self.minus(&self.times(&r, &self.minus(&v, &x)), &self.times(&point.y, &hhh));
        Jacobian { x, y, z: self.times(&point.z, &h) }
    }

    fn affine(&self, point: &Jacobian) -> Option<Affine> {
        let inverse = point.z.modinv(&self.p)?;
        let square = self.times(&inverse, &inverse);
        Some(Affine {
            x: self.times(&point.x, &square),
            y: self.times(&point.y, &self.times(&square, &inverse)),
        })
    }

    /// Returns `u G`; `None` if it is the point at infinity.
    pub(crate) fn multiple(&self, u: &BigUint) -> Option<Affine> {
        self.combination(u, &BigUint::ZERO, &self.base)
    }

    /// Returns `u G + v Q`; `None` if it is the point at infinity. Processes the bits of `u` and `v`
    /// together.
    pub(crate) fn combination(&self, u: &BigUint, v: &BigUint, q: &Affine) -> Option<Affine> {
        let single = Jacobian { x: q.x.clone(), y: q.y.clone(), z: BigUint::from(1_u8) };
        let both = self.affine(&self.add(&single, &self.base));
        let mut sum = Jacobian::infinity();
        for bit in (0..u.bits().max(v.bits())).rev() {
            sum = self.double(&sum);
            sum = match (u.bit(bit), v.bit(bit), &both) {
                (true, true, Some(both)) => self.add(&sum, both),
                // `Q` is `-G`, so their sum is the point at infinity.
                (true, true, None) | (false, false, _) => sum,
                (true, false, _) => self.add(&sum, &self.base),
                (false, true, _) => self.add(&sum, q),
            };
        }
        self.affine(&sum)
    }

    /// Returns whether a number is at least 1 and below the order.
    pub(crate) fn is_scalar(&self, number: &BigUint) -> bool {
        *number != BigUint::ZERO && *number < self.n
    }

    /// Returns the signature `(r, s)` of a hashed message; `None` if the nonce gives none.
    pub(crate) fn sign(
        &self,
        d: &BigUint,
        hashed: &BigUint,
        nonce: &BigUint,
    ) -> Option<(BigUint, BigUint)> {
        let r = self.multiple(nonce)?.x % &self.n;
        let s = nonce.modinv(&self.n)? * (hashed + d * &r) % &self.n;
        (self.is_scalar(&r) && self.is_scalar(&s)).then_some((r, s))
    }

    /// Returns whether `(r, s)` is a signature of a hashed message under the key `q`. If it is,
    /// `(r, n - s)` is one too.
    pub(crate) fn verify(&self, q: &Affine, hashed: &BigUint, r: &BigUint, s: &BigUint) -> bool {
        if !self.is_scalar(r) || !self.is_scalar(s) {
            return false;
        }
        let Some(w) = s.modinv(&self.n) else { return false };
        let (u, v) = (hashed * &w % &self.n, r * w % &self.n);
        self.combination(&u, &v, q).is_some_and(|point| point.x % &self.n == *r)
    }
}

/// Encodes a number in `N` bytes, big-endian. The result is zero if the number is longer.
pub(crate) fn fixed<const N: usize>(number: &BigUint) -> [u8; N] {
    let (mut out, bytes) = ([0; N], number.to_bytes_be());
    if let Some(place) = N.checked_sub(bytes.len()) {
        out[place..].copy_from_slice(&bytes);
    }
    out
}

/// Checks that the base point of a curve is on it and has the stated order, and that sums of
/// multiples are multiples of sums.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) fn check(curve: &Curve) {
    let Affine { x, y } = curve.base.clone();
    assert_eq!(curve.point(x.clone(), y.clone()), Some(curve.base.clone()));
    assert_eq!(curve.point(x, &y + 1_u8), None);
    assert!(curve.multiple(&curve.n).is_none());
    let before = curve.multiple(&(&curve.n - 1_u8)).unwrap();
    let minus = Affine { x: curve.base.x.clone(), y: &curve.p - &y };
    assert_eq!(before, minus);
    // With Q = 5 G, u G + v Q is (u + 5 v) G.
    let five = curve.multiple(&BigUint::from(5_u8)).unwrap();
    for u in 0..20_u32 {
        for v in 0..20_u32 {
            let sum = curve.combination(&BigUint::from(u), &BigUint::from(v), &five);
            assert_eq!(sum, curve.multiple(&BigUint::from(u + 5 * v)), "{u} G + {v} Q");
        }
    }
    // The special cases in which Q is -G or G.
    let [four, nine, thirteen] = [4_u8, 9, 13].map(BigUint::from);
    assert!(curve.combination(&nine, &nine, &minus).is_none());
    assert_eq!(curve.combination(&nine, &four, &curve.base), curve.multiple(&thirteen));
}
