//! The tests of the research schemes: what they cost, what they prove, and where they break.

#![allow(clippy::unwrap_used, missing_docs)]

mod broadcast_weaknesses;
mod private_sums;
mod schemes;
mod secoa;
mod sies_weaknesses;
