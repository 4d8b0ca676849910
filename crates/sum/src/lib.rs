//! Exact private sums (SIES): readings are encrypted at the motes, added up on their way by parties who can neither read nor bend them,
//! and opened and checked by the querier (spec/sums.md).
//!
//! After Papadopoulos, Kiayias and Papadias, "Secure and Efficient In-Network Processing of Exact SUM Queries" (ICDE 2011), section
//! IV, with what the paper leaves open closed: keys of their own for each query, aggregate and epoch; an epoch guard; a named set of
//! participants; key groups (spec/sums.md).

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod chacha;
pub mod engine;
mod field;
pub mod guard;
pub mod key_file;
pub mod participation;
pub mod query;
pub mod schedule;
pub mod sies;
pub mod wire;
