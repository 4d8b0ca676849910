//! The integration tests of the client.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    missing_docs
)]

mod auditing;
mod budget;
mod checking;
mod columns;
mod confidential;
mod confidential_lies;
mod decrypted_outputs;
mod decrypting;
mod decryption_lies;
#[cfg(unix)]
mod files;
mod health;
mod outputs;
mod outputs_of_nulls;
mod pruned_trees;
mod readings;
mod requests;
mod sanitising;
mod sum_masks;
mod sum_outputs;
mod sum_policy;
mod sum_reasons;
mod sum_refusals;
mod sum_running;
mod sum_support;
mod sum_versions;
mod sums;
mod support;
mod time_server;
mod trickling;
mod urgent_keys;
