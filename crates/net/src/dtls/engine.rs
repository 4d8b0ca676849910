//! One end of one DTLS connection, on the library `dimpl`. No other file of this module but the
//! configuration depends on the library.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use dimpl::crypto::{CryptoProvider, HashAlgorithm, HmacProvider, aws_lc_rs};
use dimpl::{
    Config, CryptoError, CryptoOperation, Dtls, DtlsCertificate, Error, Output, SecurityError,
};

use super::DtlsError;
use super::hello::{COOKIE, ClientHello};
use super::record::{self, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, Record};

/// The maximum number of datagrams that the library keeps of one connection.
pub(super) const QUEUE: usize = 16;
/// Length of the buffer for polling a connection, in bytes. The largest certificate that a peer can
/// send during a handshake fits.
pub(super) const BUFFER: usize = QUEUE * record::MAX_HANDSHAKE_DATAGRAM;

/// A result of polling a connection.
pub(super) enum Step<'a> {
    /// Send this datagram.
    Send(&'a [u8]),
    /// The peer presented this certificate, which is not verified.
    Certificate(&'a [u8]),
    /// The handshake is complete.
    Connected,
    /// A plaintext arrived.
    Data(&'a [u8]),
    /// The peer closed the session.
    ClosedByPeer,
    /// Nothing is left to do before this time.
    Wait(Instant),
}

/// One end of a connection.
pub(super) struct Connection {
    dtls: Box<Dtls>,
    /// Added to the sequence numbers of unprotected records ([`record::shift_sequence`]).
    shift: u64,
    is_psk: bool,
    /// The device whose pre-shared key the connection uses.
    device: Option<[u8; 8]>,
    is_connected: bool,
}

/// The keys of one end.
#[derive(Clone)]
pub(super) enum Keys {
    /// A pre-shared key, which the configuration contains.
    Psk(Arc<Config>),
    /// The key of a certificate.
    Certificate(Arc<Config>, DtlsCertificate),
}

impl Keys {
    fn instance(&self, now: Instant) -> Box<Dtls> {
        Box::new(match self {
            Self::Psk(config) => Dtls::new_12_psk(config.clone(), now),
            Self::Certificate(config, pair) => Dtls::new_12(config.clone(), pair.clone(), now),
        })
    }

    const fn is_psk(&self) -> bool {
        matches!(self, Self::Psk(_))
    }
}

impl Connection {
    /// Creates the client's end. The first datagram is due at once.
    pub(super) fn client(keys: &Keys, now: Instant) -> Self {
        let mut dtls = keys.instance(now);
        dtls.set_active(true);
        Self { dtls, shift: 0, is_psk: keys.is_psk(), device: None, is_connected: false }
    }

    /// Creates the server's end from a ClientHello with a valid cookie, and the datagram that
    /// contains it.
    ///
    /// The library has its own cookies, whose secret belongs to one instance. An instance is made
    /// only after this module has verified its own cookie. It therefore gets the ClientHello
    /// without a cookie first, as if it had made the cookie, and its HelloVerifyRequests are
    /// discarded. Its numbers of messages, and the transcript, are then those of the client.
    pub(super) fn server(
        keys: &Keys,
        now: Instant,
        hello: &ClientHello<'_>,
        datagram: &[u8],
    ) -> (Self, Result<(), DtlsError>) {
        let mut connection = Self {
            dtls: keys.instance(now),
            shift: hello.sequence.wrapping_sub(u64::from(hello.message)),
            is_psk: keys.is_psk(),
            device: None,
            is_connected: false,
        };
        let mut discarded = vec![0; 256];
        for number in 0..hello.message {
            if let Err(error) = connection.receive(now, &hello.without_cookie(number)) {
                return (connection, Err(error));
            }
            while !matches!(connection.poll(&mut discarded), Step::Wait(_)) {}
        }
        let cookie = hello.cookie.first_chunk().copied();
        ACCEPTED.with(|accepted| accepted.set(cookie));
        let received = connection.receive(now, datagram);
        ACCEPTED.with(|accepted| accepted.set(None));
        (connection, received)
    }

    /// Returns whether the connection uses a pre-shared key.
    pub(super) const fn is_psk(&self) -> bool {
        self.is_psk
    }

    /// Returns the device whose pre-shared key the server's end uses.
    pub(super) const fn device(&self) -> Option<[u8; 8]> {
        self.device
    }

    /// Processes the records of a datagram that may be processed in the connection's state.
    /// Returns `Ok(false)` if there are none.
    pub(super) fn receive_records(
        &mut self,
        now: Instant,
        datagram: &[u8],
        records: &[Record<'_>],
    ) -> Result<bool, DtlsError> {
        let is_accepted = |record: &&Record<'_>| match record.epoch {
            // These records cannot belong to the connection's state. The library drops them, too.
            0 if self.is_connected => matches!(record.content, HANDSHAKE | CHANGE_CIPHER_SPEC),
            0 => record.content != APPLICATION_DATA,
            1 => record.content != CHANGE_CIPHER_SPEC,
            _ => false,
        };
        let accepted: Vec<_> = records.iter().filter(is_accepted).collect();
        let limit = if self.is_connected { usize::MAX } else { record::MAX_HANDSHAKE_DATAGRAM };
        if accepted.is_empty() || datagram.len() > limit {
            return Ok(false);
        }
        if accepted.len() == records.len() {
            self.receive(now, datagram)?;
        } else {
            let rest: Vec<u8> = accepted.iter().flat_map(|record| record.whole).copied().collect();
            self.receive(now, &rest)?;
        }
        Ok(true)
    }

    fn receive(&mut self, now: Instant, datagram: &[u8]) -> Result<(), DtlsError> {
        LOOKED_UP.with(|device| device.set(None));
        let done = self.dtls.handle_timeout(now).and_then(|()| self.dtls.handle_packet(datagram));
        // The lookup belongs to this connection also if the datagram has an error.
        if let Some(device) = LOOKED_UP.with(Cell::take)
            && self.device.replace(device).is_some_and(|before| before != device)
        {
            return Err(DtlsError::NotAuthentic);
        }
        done.map_err(|error| self.failure(error))
    }

    /// Encrypts a plaintext. The datagram follows from [`poll`](Self::poll).
    pub(super) fn send(&mut self, now: Instant, plaintext: &[u8]) -> Result<(), DtlsError> {
        let sent = self.dtls.handle_timeout(now);
        let sent = sent.and_then(|()| self.dtls.send_application_data(plaintext));
        sent.map(drop).map_err(|error| self.failure(error))
    }

    /// Processes the passing of time.
    pub(super) fn timeout(&mut self, now: Instant) -> Result<(), DtlsError> {
        self.dtls.handle_timeout(now).map_err(|error| self.failure(error))
    }

    /// Closes the connection. If it is complete, [`poll`](Self::poll) returns a `close_notify`.
    pub(super) fn close(&mut self) {
        // The session ends in any case.
        let _ = self.dtls.close();
    }

    /// Returns the next result. `buffer` is made longer if necessary.
    pub(super) fn poll<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Step<'b> {
        enum Kind {
            Send,
            Certificate,
            Data,
        }
        loop {
            // The library writes each result to the start of the buffer.
            let (kind, length) = match self.dtls.poll_output(buffer) {
                Output::Packet(packet) => (Kind::Send, packet.len()),
                Output::PeerCert(certificate) => (Kind::Certificate, certificate.len()),
                Output::ApplicationData(data) => (Kind::Data, data.len()),
                Output::BufferTooSmall { needed } => {
                    buffer.resize(needed, 0);
                    continue;
                }
                Output::Connected => {
                    self.is_connected = true;
                    return Step::Connected;
                }
                Output::CloseNotify => return Step::ClosedByPeer,
                Output::Timeout(at) => return Step::Wait(at),
                // Keys for SRTP are not used.
                _ => continue,
            };
            let bytes = &mut buffer[..length];
            return match kind {
                Kind::Send => {
                    record::shift_sequence(bytes, self.shift);
                    Step::Send(bytes)
                }
                Kind::Certificate => Step::Certificate(bytes),
                Kind::Data => Step::Data(bytes),
            };
        }
    }

    /// Returns the alert that tells the peer why its handshake failed.
    pub(super) fn alert(&self, why: &DtlsError) -> Option<[u8; record::HEADER + 2]> {
        /// The sequence number is greater than those of the records before.
        const SEQUENCE: u64 = 1 << 16;
        let description = match why {
            // The peer cannot know whether the identity or the key is wrong (RFC 4279, section 2).
            DtlsError::NotAuthentic => 51,
            DtlsError::NotTrusted { .. } => 46,
            DtlsError::NoCommonSuite => 40,
            _ => return None,
        };
        (!self.is_connected)
            .then(|| record::fatal_alert(self.shift.wrapping_add(SEQUENCE), description))
    }

    fn failure(&self, error: Error) -> DtlsError {
        match error {
            Error::Timeout(_) => DtlsError::Timeout,
            Error::ConnectionClosed => DtlsError::Closed,
            Error::SecurityError(security) => match security {
                SecurityError::FatalAlert { description: 20 | 51 | 115 } if self.is_psk => {
                    DtlsError::NotAuthentic
                }
                SecurityError::FatalAlert { description } => {
                    DtlsError::RefusedByPeer { alert: description }
                }
                SecurityError::ClientFinishedVerificationFailed
                | SecurityError::ServerFinishedVerificationFailed
                    if self.is_psk =>
                {
                    DtlsError::NotAuthentic
                }
                SecurityError::NoMutuallyAcceptableCipherSuite
                | SecurityError::ExtendedMasterSecretNotNegotiated
                | SecurityError::NoCommonKeyExchangeGroup => DtlsError::NoCommonSuite,
                other => DtlsError::Protocol { cause: Error::SecurityError(other).to_string() },
            },
            // The Finished message of a peer with another key cannot be decrypted.
            Error::CryptoError(CryptoError::OperationFailed(CryptoOperation::Decrypt))
                if self.is_psk && !self.is_connected =>
            {
                DtlsError::NotAuthentic
            }
            Error::CertificateError(error) => DtlsError::NotTrusted { cause: error.to_string() },
            other => DtlsError::Protocol { cause: other.to_string() },
        }
    }
}

/// Returns the library's cryptography, with the one change that [`Connection::server`] needs.
pub(super) fn provider() -> CryptoProvider {
    CryptoProvider { hmac_provider: &AcceptedCookie, ..aws_lc_rs::default_provider() }
}

thread_local! {
    /// The cookie of the ClientHello that [`Connection::server`] passes to a new instance.
    static ACCEPTED: Cell<Option<[u8; COOKIE]>> = const { Cell::new(None) };
    /// The device whose key the library looked up while it processes a datagram. All connections
    /// share one configuration, so the lookup does not know its connection.
    static LOOKED_UP: Cell<Option<[u8; 8]>> = const { Cell::new(None) };
}

/// Notes the device whose key the library looks up on this thread.
pub(super) fn note_device(device: [u8; 8]) {
    LOOKED_UP.with(|looked_up| looked_up.set(Some(device)));
}

/// HMAC as the library has it. While a new instance processes a ClientHello whose cookie this
/// module has verified, the result is that cookie. The instance computes its own cookie at that
/// time and no other HMAC.
#[derive(Debug)]
struct AcceptedCookie;

impl HmacProvider for AcceptedCookie {
    fn hmac(
        &self,
        hash: HashAlgorithm,
        key: &[u8],
        data: &[u8],
        out: &mut [u8],
    ) -> Result<usize, CryptoError> {
        if let (Some(cookie), Some(out)) = (ACCEPTED.with(Cell::get), out.first_chunk_mut()) {
            *out = cookie;
            return Ok(COOKIE);
        }
        aws_lc_rs::default_provider().hmac_provider.hmac(hash, key, data, out)
    }
}
