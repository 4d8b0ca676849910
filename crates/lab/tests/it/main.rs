//! The tests of `moteseal-lab`.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod broadcast_commands;
mod broadcast_delivery;
mod broadcast_faults;
mod broadcast_floods;
mod broadcast_forged_requests;
mod broadcast_hostile;
mod broadcast_node;
mod broadcast_receipts;
mod broadcast_relaying;
mod broadcast_repairs;
mod broadcast_report;
mod broadcast_reserved_checks;
mod failing;
mod figures;
mod program;
mod receiver;
mod sampling;
mod sampling_report;
mod sender_world;
mod sums_report;
mod traffic;
