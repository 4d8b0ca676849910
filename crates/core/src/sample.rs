//! Which events of an epoch make a sample.

pub mod permutation;
