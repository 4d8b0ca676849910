//! Tests of the hub.

#![allow(clippy::unwrap_used, missing_docs)]

#[cfg(target_os = "linux")]
mod agent_confinement;
mod agent_life;
#[cfg(target_os = "linux")]
mod agent_limits;
mod agent_packages;
mod agent_stop;
mod agent_store;
mod agents;
