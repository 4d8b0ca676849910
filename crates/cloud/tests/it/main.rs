//! Tests of the cloud through its HTTP interface: uploads, queries, listings, limits, tokens and
//! TLS.
#![allow(clippy::unwrap_used, missing_docs)]

mod coap_floods;
mod concurrency;
mod contract;
mod events;
mod fairness;
mod follow;
mod follow_cost;
mod follow_lies;
mod follow_shared;
mod forged_rows;
mod gone_clients;
mod limits;
mod manifests;
mod progress;
mod pruned;
mod responses;
mod running;
mod testbed;
mod unavailable_store;
mod uploads;
mod users;
