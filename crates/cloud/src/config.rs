//! What a cloud is told when it starts: where it listens, what it keeps, whom it serves, and how much it does at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use moteseal_verify::Roster;

use crate::limits::Limits;

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
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            roster,
            tls: None,
            tokens: None,
            limits: Limits::default(),
        }
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
