//! What a cloud is told when it starts: where it listens, what it keeps, whom it serves, and how much it does at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use moteseal_verify::Roster;

/// Everything a cloud needs to start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The verified roster: only its devices are stored and served.
    pub roster: Roster,
    /// Certificate chain and key for TLS; `None` serves plain HTTP.
    pub tls: Option<TlsFiles>,
    /// A file of bearer tokens ([`crate::token`]); `None` lets everyone read and write. Uploads are verified either way.
    pub tokens: Option<PathBuf>,
    /// How much is done at once, and how long anything may take.
    pub limits: Limits,
}

impl Config {
    /// A configuration with every default: plain HTTP on a free port of the loopback interface, no tokens.
    #[must_use]
    pub fn new(roster: Roster) -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), roster, tls: None, tokens: None, limits: Limits::default() }
    }
}

/// PEM files for TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain, the server's own first.
    pub chain: PathBuf,
    /// Its private key: PKCS#8, SEC 1 or PKCS#1.
    pub key: PathBuf,
}

/// How much is done at once, and how long anything may take. Whatever passes a limit is refused before memory is taken for it.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; one more is answered 503 and closed. Default 1024.
    pub connections: usize,
    /// Requests being answered at once; one more is answered 503. Default 256.
    pub requests: usize,
    /// Queries and bundles being streamed at once; one more is answered 429. Default 32.
    pub answers: usize,
    /// Memory for the events of all long parts being sent; an answer waits for its share. Default 256 MiB.
    pub answer_bytes: usize,
    /// Bytes of one upload; more is 413. Default 64 MiB.
    pub body_bytes: usize,
    /// Memory for all uploads being read, verified and stored, three times their bytes; more is 503. Default 512 MiB.
    pub upload_bytes: usize,
    /// Bundles in one upload; more is 413. Default 4096.
    pub upload_parts: usize,
    /// Events under one seal, and under all seals of one upload; more is 413. Default 2^24.
    pub events: u32,
    /// Devices of one query; more is 413. Default 4096.
    pub query_devices: usize,
    /// Epochs of a query's range, an open one counting to the end of time; more is 413. Default unlimited: what costs is seals,
    /// and those are streamed.
    pub query_epochs: u64,
    /// Events an epoch that a query by count and seed may ask for; more is 413. Default 2^18.
    pub query_sample: u32,
    /// Seals on one page of a listing. Default 1000.
    pub page: usize,
    /// A request's head must be there in this time, also the first byte of the next on an idle connection. Default 30 s.
    pub head_time: Duration,
    /// The next bytes of a request's body must come in this time. Default 10 s.
    pub body_stall: Duration,
    /// A request's whole body must come in this time. Default 120 s.
    pub body_time: Duration,
    /// The receiver of an answer must take bytes in this time. Default 30 s.
    pub write_stall: Duration,
    /// Requests under way when the service is told to stop may take this long. Default 10 s.
    pub stop_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            requests: 256,
            answers: 32,
            answer_bytes: 256 << 20,
            body_bytes: 64 << 20,
            upload_bytes: 512 << 20,
            upload_parts: 4096,
            events: 1 << 24,
            query_devices: 4096,
            query_epochs: u64::MAX,
            query_sample: 1 << 18,
            page: 1000,
            head_time: Duration::from_secs(30),
            body_stall: Duration::from_secs(10),
            body_time: Duration::from_secs(120),
            write_stall: Duration::from_secs(30),
            stop_time: Duration::from_secs(10),
        }
    }
}
