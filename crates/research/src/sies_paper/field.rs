//! Arithmetic modulo `p = 2^256 - 189`, the largest 32-byte prime; the paper allows any. The module
//! is public so that its primitives can be timed (table II); the product has its own arithmetic.

use crypto_bigint::{Limb, NonZero, Odd, U256};

/// `2^256 - p`.
const C: Limb = Limb(189);
const P: Odd<U256> =
    Odd::<U256>::from_be_hex("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF43");

/// Returns the residue of 32 bytes, big-endian; `None` for `p` and above.
#[must_use]
pub fn from_bytes(bytes: &[u8; 32]) -> Option<U256> {
    let number = U256::from_be_slice(bytes);
    (number < *P.as_ref()).then_some(number)
}

/// Returns the residue of any 32 bytes, big-endian.
#[must_use]
pub fn residue(bytes: &[u8; 32]) -> U256 {
    reduced(U256::from_be_slice(bytes))
}

/// Returns the residue of any 256-bit number.
#[must_use]
pub fn reduced(number: U256) -> U256 {
    if number < *P.as_ref() { number } else { number.wrapping_sub(P.as_ref()) }
}

/// Returns its 32 bytes, big-endian.
#[must_use]
pub fn to_bytes(residue: &U256) -> [u8; 32] {
    residue.to_be_bytes().into()
}

/// `a + b`.
#[must_use]
pub const fn add(a: &U256, b: &U256) -> U256 {
    a.add_mod_special(b, C)
}

/// `a - b`.
#[must_use]
pub const fn subtract(a: &U256, b: &U256) -> U256 {
    a.sub_mod_special(b, C)
}

/// `a * b`.
#[must_use]
pub const fn multiply(a: &U256, b: &U256) -> U256 {
    a.mul_mod_special(b, C)
}

/// `1 / a`; `None` for 0.
#[must_use]
pub fn invert(a: &U256) -> Option<U256> {
    a.invert_odd_mod_vartime(&P).into_option()
}

/// `value * 2^shift` with the value's sign.
#[must_use]
pub fn shifted(value: i64, shift: u32) -> U256 {
    let size = U256::from(value.unsigned_abs());
    let power = reduced(U256::ONE.shl_vartime(shift));
    let product = multiply(&size, &power);
    if value < 0 { product.neg_mod(&NonZero::<U256>::from(P)) } else { product }
}
