//! The loop that dominates a querier's time, behind a trait, so that a host can run several lanes at once (crate
//! `moteseal-lanes`). Every implementation gives the same sums as [`Scalar`].

use crate::sies::{KeyLanes, KeyTotals, Slot};

/// Adding up keys of many sources. The provided method is the reference.
pub trait KeyEngine {
    /// Adds to `totals` the blocks of one slot and epoch of the sources in `lanes` that are `present`, a bit each; as many as both hold.
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

/// One lane: the reference.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar;

impl KeyEngine for Scalar {}
