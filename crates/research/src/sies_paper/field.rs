//! Arithmetic modulo `p = 2^256 - 189`, the largest 32-byte prime. The paper allows any 32-byte
//! prime. The module is public so that its functions can be timed for table II. The product uses a
//! separate implementation.

use crypto_bigint::{Limb, NonZero, Odd, U256};

/// `2^256 - p`.
const C: Limb = Limb(189);
const P: Odd<U256> =
    Odd::<U256>::from_be_hex("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF43");

/// Decodes a residue from 32 bytes, big-endian; `None` if the number is `p` or larger.
#[must_use]
pub fn from_bytes(bytes: &[u8; 32]) -> Option<U256> {
    let number = U256::from_be_slice(bytes);
    (number < *P.as_ref()).then_some(number)
}

/// Reduces 32 bytes, big-endian, modulo `p`.
#[must_use]
pub fn residue(bytes: &[u8; 32]) -> U256 {
    reduced(U256::from_be_slice(bytes))
}

/// Reduces a 256-bit number modulo `p`.
#[must_use]
pub fn reduced(number: U256) -> U256 {
    if number < *P.as_ref() { number } else { number.wrapping_sub(P.as_ref()) }
}

/// Encodes a residue as 32 bytes, big-endian.
#[must_use]
pub fn to_bytes(residue: &U256) -> [u8; 32] {
    residue.to_be_bytes().into()
}

/// Returns `a + b`.
#[must_use]
pub const fn add(a: &U256, b: &U256) -> U256 {
    a.add_mod_special(b, C)
}

/// Returns `a - b`.
#[must_use]
pub const fn subtract(a: &U256, b: &U256) -> U256 {
    a.sub_mod_special(b, C)
}

/// Returns `a * b`.
#[must_use]
pub const fn multiply(a: &U256, b: &U256) -> U256 {
    a.mul_mod_special(b, C)
}

/// Returns `1 / a`; `None` for 0.
#[must_use]
pub fn invert(a: &U256) -> Option<U256> {
    a.invert_odd_mod_vartime(&P).into_option()
}

/// Returns `value * 2^shift`; `value` may be negative.
#[must_use]
pub fn shifted(value: i64, shift: u32) -> U256 {
    let size = U256::from(value.unsigned_abs());
    let power = reduced(U256::ONE.shl_vartime(shift));
    let product = multiply(&size, &power);
    if value < 0 { product.neg_mod(&NonZero::<U256>::from(P)) } else { product }
}
