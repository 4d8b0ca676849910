//! The sum of many sources' keys, which takes most of a querier's time, as a trait. A host can
//! implement it with vector instructions (crate `moteseal-lanes`). Every implementation must return
//! the same sums as [`Scalar`].

use crate::sies::{KeyLanes, KeyTotals, Slot};

/// Sums the keys of many sources. The provided method is the reference.
pub trait KeyEngine {
    /// Adds to `totals` the blocks of one slot and epoch of the sources in `lanes` that are
    /// `present`, one bit each; stops at the shorter of the two slices.
    fn sum_keys(
        &self,
        lanes: &[KeyLanes],
        present: &[u16],
        slot: Slot,
        epoch: u64,
        totals: &mut KeyTotals,
    ) {
        for (lanes, present) in lanes.iter().zip(present) {
            totals.add_lanes(lanes, *present, slot, epoch);
        }
    }
}

/// One lane at a time: the reference.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar;

impl KeyEngine for Scalar {}
