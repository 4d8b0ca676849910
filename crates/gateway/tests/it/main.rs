//! Tests of the coordinator of a group, aggregators of private sums, and their services.

#![allow(clippy::unwrap_used, missing_docs)]

mod aggregator;
mod column_groups;
mod confidential;
mod damage;
mod hostile_frames;
mod hostile_shares;
mod log_lines;
mod lying_gateways;
mod queues;
mod refusals;
mod sum_service;
mod sum_versions;
mod summing;
