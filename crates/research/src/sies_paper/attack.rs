//! Attacks on the weaknesses of the paper's scheme. The attacks work on bare residues modulo
//! `p = 2^256 - 189`, so that they can be tried on every scheme of the form `K_t * m + k_{i,t}`.
//! Each attack succeeds on the paper's scheme and must fail on `moteseal-sum`.
//!
//! `value_shift` is the position of the value in `m`. In the paper's scheme it is
//! [`VALUE_SHIFT`](super::VALUE_SHIFT).

use super::field::{add, from_bytes, invert, multiply, residue, shifted, subtract, to_bytes};
use crate::prf::{KEY_BYTES, hm256};

/// Computes `K_t` from two answers that one source gave in one epoch. `difference` is the first
/// reading minus the second, which the adversary must know. All other terms cancel:
/// `c_1 - c_2 = K_t (v_1 - v_2) 2^shift`.
///
/// Returns `None` if an answer is not a residue, or the difference is 0.
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

/// Alters a sum of an epoch with two answers that one source gave in this epoch, without knowing
/// the readings. Adds the difference of the answers `times` times. This adds the difference of the
/// readings to the sum `times` times. Returns `None` if one of the records is not a residue.
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

/// Adds `delta` to a record of an epoch. This is possible for every attacker that has `K_t` of this
/// epoch. Returns `None` if the record is not a residue.
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

/// Computes `K_t` of any past or future epoch from `K`, which every source of the paper's scheme
/// has.
#[must_use]
pub fn epoch_key_of_leaked(global: &[u8; KEY_BYTES], epoch: u64) -> [u8; 32] {
    hm256(global, &epoch.to_be_bytes())
}
