//! Arithmetic modulo `p = 2^256 - 189`, the largest 256-bit prime. All operations take constant
//! time.

use crypto_bigint::{Limb, Odd, U256};
use zeroize::Zeroize;

/// `2^256 - p`.
const C: Limb = Limb(189);
const P: U256 = U256::MAX.wrapping_sub(&U256::from_u8(188));

/// An integer below `p`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Element(U256);

impl Element {
    pub(super) const ZERO: Self = Self(U256::ZERO);

    /// Converts an integer to an element; returns `None` if the integer is not below `p`.
    pub(super) fn canonical(value: U256) -> Option<Self> {
        (value < P).then_some(Self(value))
    }

    /// Returns `low + 2^256 * high mod p`.
    pub(super) const fn reduce(low: U256, high: u64) -> Self {
        // `sub_mod_special` adds p again if `low - p` is negative. `2^256` equals 189 modulo p.
        let low = Self(low.sub_mod_special(&P, C));
        low.add(Self(U256::from_u128(high as u128 * 189)))
    }

    /// Returns the element, or 1 for 0.
    pub(super) fn or_one(self) -> Self {
        Self(self.0.wrapping_add(&U256::from_u8(self.0.is_zero().to_u8())))
    }

    #[inline]
    pub(super) const fn add(self, other: Self) -> Self {
        Self(self.0.add_mod_special(&other.0, C))
    }

    pub(super) const fn sub(self, other: Self) -> Self {
        Self(self.0.sub_mod_special(&other.0, C))
    }

    pub(super) const fn mul(self, other: Self) -> Self {
        Self(self.0.mul_mod_special(&other.0, C))
    }

    /// Returns the multiplicative inverse; 0 for 0.
    pub(super) fn invert(self) -> Self {
        const MODULUS: Odd<U256> = Odd::<U256>::from_be_hex(
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff43",
        );
        Self(self.0.invert_odd_mod(&MODULUS).unwrap_or(U256::ZERO))
    }

    pub(super) const fn value(self) -> U256 {
        self.0
    }
}

impl Zeroize for Element {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}
