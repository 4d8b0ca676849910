//! Which events of an epoch make a sample.
