//! A trait for summing the keys of many sources, the operation in which a querier spends most of
//! its time. The crate `moteseal-lanes` implements it with vector instructions on hosts. Every
//! implementation must return the same sums as [`Scalar`].

use crate::sies::{KeyLanes, KeyTotals, Slot};

/// An implementation that sums the keys of many sources. The provided method is the reference.
pub trait KeyEngine {
    /// Adds to `totals` the ChaCha20 blocks of one slot and epoch for all present sources. Element
    /// `i` of `present` has one bit per source in element `i` of `lanes`. Surplus elements of the
    /// longer slice are ignored.
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

/// The reference implementation, which processes one source at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar;

impl KeyEngine for Scalar {}
