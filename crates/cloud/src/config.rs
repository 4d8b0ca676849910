//! The configuration of a cloud: its address, its roster, its credentials and its limits.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use moteseal_service::TlsFiles;
use moteseal_verify::Roster;

use crate::limits::Limits;

/// The values that a cloud needs to start, except its store.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on; port 0 selects a free port.
    pub listen: SocketAddr,
    /// The verified roster. The cloud stores and serves seals of this roster's devices only.
    pub roster: Roster,
    /// Certificate chain and key for TLS; `None` serves plain HTTP.
    pub tls: Option<TlsFiles>,
    /// A file of bearer tokens ([`crate::token`]). Without tokens and users, every client may read
    /// and write. Uploads are verified either way.
    pub tokens: Option<PathBuf>,
    /// A table of users ([`crate::users`]), who have passwords or client certificates.
    pub users: Option<PathBuf>,
    /// How much the cloud does at once, and how long each step may take.
    pub limits: Limits,
}

impl Config {
    /// Returns the default configuration: plain HTTP on a free port of the loopback interface,
    /// without tokens and users.
    #[must_use]
    pub fn new(roster: Roster) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            roster,
            tls: None,
            tokens: None,
            users: None,
            limits: Limits::default(),
        }
    }
}
