//! Attacks on the points that the paper's scheme leaves open. Each attack uses bare residues modulo
//! `p = 2^256 - 189`, so that it can be tried on every scheme of the form `K_t * m + k_{i,t}`. It
//! succeeds on the paper's scheme and must fail on `moteseal-sum`.
//!
//! `value_shift` is the position of the value in `m`: [`VALUE_SHIFT`](super::VALUE_SHIFT) here.

use super::field::{add, from_bytes, invert, multiply, residue, shifted, subtract, to_bytes};
use crate::prf::{KEY_BYTES, hm256};

/// `K_t`, from two answers that one source gave in one epoch, if the adversary knows by how much
/// the second reading was smaller. Everything else cancels: `c_1 - c_2 = K_t (v_1 - v_2) 2^shift`.
///
/// `None` if an answer is not a residue, or the difference is 0.
#[must_use]
pub fn epoch_key_of_two(
    first: &[u8; 32],
    second: &[u8; 32],
    difference: i64,
    value_shift: u32,
) -> Option<[u8; 32]> {
    let gap = subtract(&from_bytes(first)?, &from_bytes(second)?);
    Some(to_bytes(&multiply(&gap, &invert(&shifted(difference, value_shift))?)))
}

/// Uses the same two answers without knowing the readings: adding the difference of the answers
/// `times` times to a sum of that epoch changes the sum by `times` the difference of the readings.
/// `None` if one of the records is not a residue.
#[must_use]
pub fn alter_by_two(
    sum: &[u8; 32],
    first: &[u8; 32],
    second: &[u8; 32],
    times: i64,
) -> Option<[u8; 32]> {
    let gap = subtract(&from_bytes(first)?, &from_bytes(second)?);
    Some(to_bytes(&add(&from_bytes(sum)?, &multiply(&gap, &shifted(times, 0)))))
}

/// Adds `delta` to a record of an epoch, as an attacker with that epoch's `K_t` can. `None` if the
/// record is not a residue.
#[must_use]
pub fn alter(
    sum: &[u8; 32],
    epoch_key: &[u8; 32],
    delta: i64,
    value_shift: u32,
) -> Option<[u8; 32]> {
    Some(to_bytes(&add(
        &from_bytes(sum)?,
        &multiply(&residue(epoch_key), &shifted(delta, value_shift)),
    )))
}

/// `K_t` of any past or future epoch, from `K`, which every source of the paper's scheme has.
#[must_use]
pub fn epoch_key_of_leaked(global: &[u8; KEY_BYTES], epoch: u64) -> [u8; 32] {
    hm256(global, &epoch.to_be_bytes())
}
