//! Exact private sums (SIES): readings are encrypted at the motes, added up on their way by parties who can neither read nor bend them,
//! and opened and checked by the querier (DESIGN section 7).
//!
//! After Papadopoulos, Kiayias and Papadias, "Secure and Efficient In-Network Processing of Exact SUM Queries" (ICDE 2011).

pub mod guard;
pub mod query;
