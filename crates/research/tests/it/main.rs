//! Tests of the compared schemes: their costs, their guarantees and their weaknesses.

#![allow(clippy::unwrap_used, missing_docs)]

mod broadcast_weaknesses;
mod dtls_psk;
mod private_sums;
mod redactable;
mod schemes;
mod secoa;
mod sies_weaknesses;
mod tesla;
