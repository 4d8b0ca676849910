//! The integration tests of `moteseal`: the command as a user runs it, several roles together in
//! one process, and the rules of the workspace.
//!
//! Three test programs are separate from this one: `broadcast_image`, `gateway_refusals` and
//! `mutation`. Their module comments state why.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod answered_queries;
mod backup_bucket;
mod backups;
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
mod bundle_redaction;
// The tests of the table use the rest of it.
#[allow(dead_code)]
#[path = "../../../table/tests/it/cassandra.rs"]
mod cassandra;
mod chain;
mod chance;
mod cheating_coordinator;
mod claimed_silent;
mod cloud_policy;
mod cluster;
mod cluster_tls;
mod coap_dissected;
mod coap_memory;
mod coap_transport;
mod column_groups;
mod confidential_processes;
mod confidential_readings;
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
mod grant_commands;
mod group;
mod group_changes;
mod health_commands;
mod health_history;
mod health_load;
mod hostile_clients;
mod hostile_files;
mod http_grades;
mod hub;
mod hub_agents;
mod hub_faults;
mod hub_home;
mod hub_recipes;
mod import_order;
mod intake_pressure;
mod late_versions;
mod latency;
mod lying_cloud;
mod lying_devices;
mod lying_events;
mod lying_rows;
mod lying_stream;
mod lying_table;
mod lying_trees;
mod mote_encrypted;
mod mote_health;
mod mote_qemu;
mod named_readings;
// The tests of the stream use the rest of it.
#[allow(dead_code)]
#[path = "../../../stream/tests/it/server.rs"]
mod nats;
mod output_files;
mod outputs_and_proofs;
mod owner_files;
mod pairings;
mod program_output;
mod push_and_replay;
mod reading_commands;
mod readme;
mod redaction;
mod refused_seals;
mod rollback;
mod roster_versions;
mod sampling_faults;
mod scale_faults;
mod scale_mistakes;
mod scene;
mod second_verifier;
mod serial_gateway;
mod soak;
mod store_check;
mod stream_roles;
mod sum_bad_input;
mod sum_gateway;
mod sum_gateway_processes;
mod sum_policies;
mod sum_processes;
mod sum_queriers;
mod sum_sources;
mod sum_whole_path;
mod table_store;
mod tap;
mod testbed;
mod three_nodes;
mod tree_faults;
mod typed_columns;
mod uneven_devices;
mod uniformity;
mod upload_verifiers;
mod urgent_events;
mod urgent_faults;
mod whole_path;
