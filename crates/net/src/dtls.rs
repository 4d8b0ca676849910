//! DTLS 1.2 (RFC 6347) for CoAP: an encrypted and authenticated session over datagrams.
//!
//! The types of this module own no socket and read no clock. The caller passes each datagram and
//! the time, and sends the datagrams of [`Event::Send`]. A [`Server`] serves all peers of one
//! socket. A [`Client`] has one server.
//!
//! # Suites
//! - `TLS_PSK_WITH_AES_128_CCM_8`: the identity is the device id as 16 hexadecimal digits. The key
//!   is derived from the link secret of the device
//!   ([`dtls_psk`](moteseal_core::link::LinkKey::dtls_psk)). It has no forward secrecy.
//! - `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256` and `..._AES_256_GCM_SHA384` with X.509 certificates
//!   on P-256 or P-384 ([`Certificates`]).
//!
//! One server offers both kinds on one port. The first offered suite that the server has keys for
//! decides. There are no raw public keys, no `ECDHE_ECDSA_WITH_AES_128_CCM_8`, no DTLS 1.3, no
//! session resumption and no connection ids: a device that was silent for longer than the idle
//! time, or whose address has changed, repeats the handshake.
//!
//! # Floods
//! The server keeps no state for an address that has not returned a cookie (RFC 6347, section
//! 4.2.1). Its answer to an unknown address is never longer than the request. After that, the
//! numbers of [`Limits`] bound the memory.

mod certificate;
mod client;
mod config;
mod cookie;
mod engine;
mod hello;
mod record;
mod server;

use std::net::SocketAddr;
use std::time::Duration;

use moteseal_api::ErrorKind;

pub use certificate::{Authority, Certificates};
pub use client::Client;
pub use config::{ClientConfig, Psk, ServerConfig};
pub use server::Server;

/// The maximum length of a datagram that this module sends, in bytes. It fits into an IPv6 packet
/// of 1,280 bytes.
pub const MAX_DATAGRAM: usize = 1232;
/// The maximum length of one plaintext, in bytes. It is long enough for a CoAP message of 1,152
/// bytes (RFC 7252, section 4.6).
pub const MAX_PLAINTEXT: usize = MAX_DATAGRAM - 37;

/// The identity of a session's peer, as the handshake proved it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// The peer has the pre-shared key of this device. On a client's side, this is the client's own
    /// device, whose key the server has.
    Device([u8; 8]),
    /// The peer has the key of a certificate of the configured authority.
    Certificate {
        /// The device that the certificate names (`URI:urn:moteseal:device:0123456789abcdef`).
        device: Option<[u8; 8]>,
        /// The SHA-256 of the certificate.
        fingerprint: [u8; 32],
        /// The SHA-256 of the certificate's public key (`SubjectPublicKeyInfo`), which stays the same
        /// if the certificate is renewed for the same key.
        key: [u8; 32],
    },
    /// The peer proved no identity: a client of a server that asks for no certificate.
    Anonymous,
}

impl Identity {
    /// Returns the device that the identity names.
    #[must_use]
    pub const fn device(&self) -> Option<[u8; 8]> {
        match self {
            Self::Device(device) | Self::Certificate { device: Some(device), .. } => Some(*device),
            Self::Certificate { device: None, .. } | Self::Anonymous => None,
        }
    }

    /// Returns the digest of the public key of the peer's certificate.
    #[must_use]
    pub const fn key(&self) -> Option<[u8; 32]> {
        match self {
            Self::Certificate { key, .. } => Some(*key),
            Self::Device(_) | Self::Anonymous => None,
        }
    }
}

/// A result of a call, passed to the caller's function while the call runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Send this datagram.
    Send {
        /// The receiver.
        to: SocketAddr,
        /// The datagram, of at most [`MAX_DATAGRAM`] bytes.
        datagram: &'a [u8],
    },
    /// A handshake is complete. If the peer's address had a session before, a `Closed` event of
    /// that session comes first.
    Opened {
        /// The peer.
        peer: SocketAddr,
        /// The number of the session, which no other session of this server or client has.
        session: u64,
        /// The identity of the peer.
        identity: Identity,
    },
    /// A plaintext arrived.
    Data {
        /// The peer.
        peer: SocketAddr,
        /// The session.
        session: u64,
        /// The plaintext. It is not longer than one record.
        bytes: &'a [u8],
    },
    /// A session ended.
    Closed {
        /// The peer.
        peer: SocketAddr,
        /// The session.
        session: u64,
        /// The reason.
        why: DtlsError,
    },
    /// A handshake failed. The peer's existing session, if any, is not affected.
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        why: DtlsError,
    },
}

/// The bounds of a server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of sessions. If there are more, the session that was idle longest ends:
    /// first one of an anonymous peer, then one without a device. Sessions without a device have at
    /// most half of this number.
    pub sessions: usize,
    /// The maximum number of sessions without a device of one IPv4 address or one IPv6 /64 network. If
    /// there are more, the one of that network that was idle longest ends.
    pub sessions_per_network: usize,
    /// The maximum number of incomplete handshakes. If there are more, the oldest one of the
    /// network with the most of them ends.
    pub handshakes: usize,
    /// The maximum number of incomplete handshakes of one IPv4 address or one IPv6 /64 network. If
    /// there are more, the oldest one of that network ends.
    pub handshakes_per_network: usize,
    /// The maximum duration of a handshake.
    pub handshake: Duration,
    /// A session ends after this time without an authentic record.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 16_384,
            sessions_per_network: 1024,
            handshakes: 1024,
            handshakes_per_network: 256,
            handshake: Duration::from_secs(40),
            idle: Duration::from_secs(24 * 3600),
        }
    }
}

/// The numbers of datagrams and handshakes that a server dropped or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Datagrams that are not DTLS, or that belong to no session and no handshake.
    pub stray: u64,
    /// Requests without a valid cookie, which the server answered without keeping state.
    pub unverified: u64,
    /// Handshakes that failed.
    pub refused: u64,
    /// Requests for handshakes with a valid cookie that were dropped because there were too many.
    /// A client repeats the request.
    pub postponed: u64,
    /// Handshakes and sessions that ended because a limit was reached.
    pub evicted: u64,
}

impl Counters {
    /// Returns these numbers by name.
    #[must_use]
    pub const fn by_name(&self) -> [(&'static str, u64); 5] {
        [
            ("DtlsStray", self.stray),
            ("DtlsUnverified", self.unverified),
            ("DtlsRefused", self.refused),
            ("DtlsPostponed", self.postponed),
            ("DtlsEvicted", self.evicted),
        ]
    }
}

/// Why a handshake failed, a session ended, or a plaintext was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DtlsError {
    /// There is no session with the peer.
    #[error("there is no DTLS session with {peer}; wait for the handshake")]
    NoSession {
        /// The peer.
        peer: SocketAddr,
    },
    /// The plaintext is longer than [`MAX_PLAINTEXT`].
    #[error("the message has {length} bytes, but a DTLS record carries at most {MAX_PLAINTEXT}")]
    PlaintextTooLong {
        /// The length in bytes.
        length: usize,
    },
    /// This side closed the session.
    #[error("this side closed the DTLS session")]
    Closed,
    /// The peer closed the session.
    #[error("the peer closed the DTLS session")]
    ClosedByPeer,
    /// The peer completed a new handshake from the same address, usually after a restart.
    #[error("the peer replaced the DTLS session by a new one")]
    Replaced,
    /// The peer sent nothing for the idle time.
    #[error("the DTLS session was idle for too long")]
    Idle,
    /// The server has too many sessions or handshakes.
    #[error("the server has too many DTLS sessions; try again later")]
    Evicted,
    /// The session has carried so many records that its key is not used further.
    #[error("the DTLS session has carried the maximum number of records; open a new one")]
    WornOut,
    /// The peer did not respond in time.
    #[error("the peer did not complete the DTLS handshake in time; check its address and port")]
    Timeout,
    /// The pre-shared keys differ, or the identity is unknown. Both cases look the same.
    #[error(
        "the DTLS key is not the key of the device; check the device's key file and the group's \
         roster"
    )]
    NotAuthentic,
    /// The peer's certificate is not valid for this connection.
    #[error(
        "the peer's certificate is not trusted: {cause}; check the authority, the validity and \
         the name in the certificate"
    )]
    NotTrusted {
        /// The failed property.
        cause: String,
    },
    /// The peer offers no suite that this side has.
    #[error(
        "the peer offers no common DTLS 1.2 suite; use PSK-AES128-CCM8 or \
         ECDHE-ECDSA-AES128-GCM-SHA256 with extended master secret"
    )]
    NoCommonSuite,
    /// The peer refused the handshake or ended the session with a fatal alert.
    #[error("the peer refused the DTLS session with alert {alert} (RFC 5246, section 7.2)")]
    RefusedByPeer {
        /// The alert's number.
        alert: u8,
    },
    /// The peer violated the protocol.
    #[error("the DTLS handshake failed: {cause}; check the peer's software")]
    Protocol {
        /// The library's message.
        cause: String,
    },
}

impl DtlsError {
    /// Returns the error's name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoSession { .. } => "NoSession",
            Self::PlaintextTooLong { .. } => "PlaintextTooLong",
            Self::Closed => "Closed",
            Self::ClosedByPeer => "ClosedByPeer",
            Self::Replaced => "Replaced",
            Self::Idle => "Idle",
            Self::Evicted => "Evicted",
            Self::WornOut => "WornOut",
            Self::Timeout => "Timeout",
            Self::NotAuthentic => "NotAuthentic",
            Self::NotTrusted { .. } => "NotTrusted",
            Self::NoCommonSuite => "NoCommonSuite",
            Self::RefusedByPeer { .. } => "RefusedByPeer",
            Self::Protocol { .. } => "Protocol",
        }
    }

    /// Returns [`Usage`](ErrorKind::Usage) for a plaintext that is too long,
    /// [`Internal`](ErrorKind::Internal) for a session that this side closed, and
    /// [`Unreachable`](ErrorKind::Unreachable) otherwise.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::PlaintextTooLong { .. } => ErrorKind::Usage,
            Self::Closed => ErrorKind::Internal,
            _ => ErrorKind::Unreachable,
        }
    }

    /// Returns whether a retry can succeed only after the configuration of one side has changed.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::NotAuthentic | Self::NotTrusted { .. } | Self::NoCommonSuite)
    }
}

moteseal_api::named_error!(DtlsError);
