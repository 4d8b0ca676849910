//! The parameters of an endpoint: the times of RFC 7252, section 4.8, and the bounds on memory.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::message::{Block, Code};

/// The transmission parameters (RFC 7252, section 4.8).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transmission {
    /// The shortest wait for an acknowledgement before the first retransmission.
    pub ack_timeout: Duration,
    /// The longest first wait, as a multiple of the shortest.
    pub ack_random_factor: f64,
    /// How often a message is retransmitted.
    pub max_retransmit: u8,
    /// How many confirmable messages to one peer may wait for an acknowledgement at the same time.
    pub nstart: usize,
    /// How long a message id must not be used again, and how long a receiver remembers it.
    pub exchange_lifetime: Duration,
    /// How long a request may be processed before it is acknowledged without its response.
    pub processing_delay: Duration,
}

impl Default for Transmission {
    fn default() -> Self {
        Self {
            ack_timeout: Duration::from_secs(2),
            ack_random_factor: 1.5,
            max_retransmit: 4,
            nstart: 1,
            exchange_lifetime: Duration::from_secs(247),
            processing_delay: Duration::from_millis(500),
        }
    }
}

/// Returns the maximum length of the body of a request, in bytes, by its method and path.
pub type BodyLimit = Arc<dyn Fn(Code, &str) -> usize + Send + Sync>;

/// The configuration of an endpoint.
#[derive(Clone)]
pub struct Config {
    /// The transmission parameters.
    pub transmission: Transmission,
    /// The exponent of the largest block that this endpoint sends; 2 for links with small frames.
    pub block_exponent: u8,
    /// The maximum lengths of the bodies of requests.
    pub body_limit: BodyLimit,
    /// The maximum length of the body of a response, in bytes.
    pub response_limit: usize,
    /// The name of the server of a client, which its requests carry (Uri-Host).
    pub server_name: Option<String>,
    /// The bounds on memory.
    pub limits: Limits,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transmission: Transmission::default(),
            block_exponent: Block::LARGEST,
            body_limit: Arc::new(|_, _| 1 << 16),
            response_limit: 1 << 20,
            server_name: None,
            limits: Limits::default(),
        }
    }
}

/// The bounds on what peers can make an endpoint store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of peers. At the limit, the peer that was silent the longest is forgotten, first
    /// among those whose address is not validated.
    pub peers: usize,
    /// The number of requests of one peer that are processed at the same time.
    pub incoming: usize,
    /// The number of own requests to one peer, and of confirmable messages that wait to be sent to it.
    pub outgoing: usize,
    /// The number of remembered message ids of one peer.
    pub remembered: usize,
    /// The number of bytes of the remembered replies to one peer.
    pub remembered_bytes: usize,
    /// The number of observers. Those whose addresses are not validated get a quarter of it. At
    /// that limit, the oldest one of them ends.
    pub observers: usize,
    /// The number of observers with validated addresses of one IPv4 address or one IPv6 /64 network.
    pub observers_of_network: usize,
    /// The number of observers of one peer.
    pub observers_of_peer: usize,
    /// The number of bytes of bodies that arrive in blocks. At the limit, the device or network with
    /// the most bytes loses its oldest body.
    pub upload_bytes: usize,
    /// The number of bytes of bodies that are fetched in blocks, limited in the same way.
    pub representation_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            peers: 16_384,
            incoming: 16,
            outgoing: 64,
            remembered: 128,
            remembered_bytes: 8 << 10,
            observers: 4096,
            observers_of_network: 512,
            observers_of_peer: 16,
            upload_bytes: 64 << 20,
            representation_bytes: 16 << 20,
        }
    }
}

/// A peer: an address, or a DTLS session with that address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// The address of the peer.
    pub address: SocketAddr,
    /// The number of the DTLS session; 0 without DTLS.
    pub session: u64,
}

impl Peer {
    /// Returns the peer with an address, without DTLS.
    #[must_use]
    pub const fn plain(address: SocketAddr) -> Self {
        Self { address, session: 0 }
    }

    /// Returns whether the peer has a DTLS session, whose handshake validated the address.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.session != 0
    }

    /// Returns whether the peer is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

/// Returns what limits count as one network: an IPv4 address, or the first 64 bits of an IPv6
/// address.
pub(crate) fn network(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address) >> 64,
    }
}

/// What the handshake of a DTLS session proved about a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proven {
    /// The device that the peer is.
    pub device: Option<[u8; 8]>,
    /// The SHA-256 of the public key of the peer's certificate, if it has presented one.
    pub key: Option<[u8; 32]>,
}

/// The owner of a body that arrives in blocks: the identity that a DTLS handshake proved, by which a
/// client continues after a new handshake, or else the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The peer itself.
    Peer(Peer),
    /// A device.
    Device([u8; 8]),
}
