//! The seal: one signed statement over everything a device says under one index.
pub mod tree;

/// Nothing has been proven yet.
pub struct Unverified;
/// Signed by that device.
pub struct Authentic;
/// A seal.
pub struct Seal<S>(core::marker::PhantomData<S>);
