//! Tests of the hub.

#![allow(clippy::unwrap_used, missing_docs)]

mod agent_confinement;
mod agent_life;
mod agent_limits;
mod agent_packages;
mod agent_store;
mod agents;
