//! The integration tests of `moteseal`: the command as a user runs it, several roles together in
//! one process, and the rules of the workspace.
//!
//! Three test programs are separate from this one: `broadcast_image`, `gateway_refusals` and
//! `mutation`. Their module comments state why.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod answered_queries;
mod bad_input;
mod broadcast_addressed;
mod broadcast_bad_input;
mod broadcast_commands;
mod broadcast_keys;
mod broadcast_links;
mod broadcast_receipts;
mod broadcast_resume;
mod broadcasting;
mod broker;
mod budget_uniformity;
mod budgeted;
mod chain;
mod chance;
mod cheating_coordinator;
mod claimed_silent;
mod device_faults;
mod device_processes;
mod device_provision;
mod device_provision_many;
mod device_provision_qr;
mod device_run;
mod emulator;
mod estimates;
mod firmware_update;
mod gateway;
mod gateway_commands;
mod gateway_kills;
mod gateway_messages;
mod gateway_processes;
mod gateway_uplink;
mod group;
mod group_changes;
mod hostile_clients;
mod hostile_files;
mod import_order;
mod late_versions;
mod lying_cloud;
mod lying_devices;
mod lying_trees;
mod mote_qemu;
mod named_readings;
mod output_files;
mod outputs_and_proofs;
mod pairings;
mod program_output;
mod push_and_replay;
mod readme;
mod refused_seals;
mod rollback;
mod roster_versions;
mod sampling_faults;
mod scene;
mod second_verifier;
mod serial_gateway;
mod soak;
mod store_check;
mod sum_bad_input;
mod sum_gateway;
mod sum_gateway_processes;
mod sum_policies;
mod sum_processes;
mod sum_sources;
mod sum_whole_path;
mod testbed;
mod tree_faults;
mod uneven_devices;
mod uniformity;
mod upload_verifiers;
mod whole_path;
