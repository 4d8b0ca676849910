//! Fuzz targets, one in each module. `run` processes any bytes and panics if a parser breaks one of
//! its guarantees. `seeds` returns valid inputs to start from.
//!
//! Two drivers use these targets: libFuzzer (`make fuzz-smoke`), and the deterministic mutations of
//! `crates/cli/tests/mutation.rs`, which are part of `make test`.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

pub mod address;
pub mod agent;
pub mod broadcast;
pub mod coap;
pub mod confidential;
pub mod cose;
pub mod dtls;
pub mod fixture;
pub mod grant;
pub mod grouped;
pub mod health;
pub mod keys;
pub mod link;
pub mod owner;
pub mod proof;
pub mod provision;
pub mod query;
pub mod reading;
pub mod redaction;
pub mod roster;
pub mod sanitised;
pub mod schema;
pub mod serial;
pub mod statement;
pub mod stream;
pub mod sums;
pub mod urgent;

/// A target: its name, its check, and valid inputs.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// Every target.
pub const TARGETS: [Target; 25] = [
    ("address", address::run, address::seeds),
    ("agent", agent::run, agent::seeds),
    ("broadcast", broadcast::run, broadcast::seeds),
    ("coap", coap::run, coap::seeds),
    ("confidential", confidential::run, confidential::seeds),
    ("cose", cose::run, cose::seeds),
    ("dtls", dtls::run, dtls::seeds),
    ("grant", grant::run, grant::seeds),
    ("health", health::run, health::seeds),
    ("keys", keys::run, keys::seeds),
    ("link", link::run, link::seeds),
    ("owner", owner::run, owner::seeds),
    ("proof", proof::run, proof::seeds),
    ("provision", provision::run, provision::seeds),
    ("query", query::run, query::seeds),
    ("reading", reading::run, reading::seeds),
    ("redaction", redaction::run, redaction::seeds),
    ("roster", roster::run, roster::seeds),
    ("sanitised", sanitised::run, sanitised::seeds),
    ("schema", schema::run, schema::seeds),
    ("serial", serial::run, serial::seeds),
    ("statement", statement::run, statement::seeds),
    ("stream", stream::run, stream::seeds),
    ("sums", sums::run, sums::seeds),
    ("urgent", urgent::run, urgent::seeds),
];

/// Writes the seeds of a target to the folder `TARGET/` in the folder that `MOTESEAL_FUZZ_CORPUS`
/// names. Does nothing if that variable is not set.
pub fn write_seeds(target: &str) {
    let Some(corpus) = std::env::var_os("MOTESEAL_FUZZ_CORPUS") else { return };
    let folder = std::path::Path::new(&corpus).join(target);
    std::fs::create_dir_all(&folder).unwrap();
    for (_, _, seeds) in TARGETS.iter().filter(|(name, _, _)| *name == target) {
        for (number, seed) in seeds().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed).unwrap();
        }
    }
}
