//! The client's side: one server.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::config::{ClientConfig, ClientKeys};
use super::engine::{self, Connection, Step};
use super::record::records;
use super::server::MAX_RECORDS;
use super::{DtlsError, Event, Identity, MAX_PLAINTEXT};

/// The maximum duration of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(40);

thread_local! {
    /// Room for a result of polling a connection, for all clients of a thread.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls a function with room for the result of polling a connection.
fn with_buffer<T>(poll: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buffer = BUFFER.take();
    buffer.resize(buffer.len().max(engine::BUFFER), 0);
    let polled = poll(&mut buffer);
    BUFFER.set(buffer);
    polled
}

/// The client's end of the session with one server. After the session has ended, the client can
/// [`connect`](Self::connect) again.
pub struct Client {
    keys: ClientKeys,
    server: SocketAddr,
    connection: Option<Connection>,
    /// The identity from a verified certificate.
    identity: Option<Identity>,
    /// The number of the session, or of the handshake.
    number: u64,
    is_open: bool,
    wait: Instant,
    sent: u32,
}

type Out<'o> = &'o mut dyn FnMut(Event<'_>);

impl Client {
    /// Creates a client. The first datagram follows from the next call of
    /// [`timeout`](Self::timeout), which is due at once.
    ///
    /// # Errors
    /// `Protocol` if the library refuses the configuration.
    pub fn new(config: ClientConfig, server: SocketAddr, now: Instant) -> Result<Self, DtlsError> {
        let keys = config.build(HANDSHAKE)?;
        let connection = Some(Connection::client(&keys.keys, now));
        Ok(Self {
            keys,
            server,
            connection,
            identity: None,
            number: 1,
            is_open: false,
            wait: now,
            sent: 0,
        })
    }

    /// Starts a new handshake. An existing session is dropped without a message, because the
    /// server replaces it.
    pub fn connect(&mut self, now: Instant, out: Out<'_>) {
        if self.is_open {
            self.finish(DtlsError::Replaced, out);
        }
        self.connection = Some(Connection::client(&self.keys.keys, now));
        (self.identity, self.sent) = (None, 0);
        self.number += 1;
        self.timeout(now, out);
    }

    /// Processes a datagram that arrived from the server's address.
    pub fn receive(&mut self, now: Instant, datagram: &[u8], out: Out<'_>) {
        if let Some(connection) = &mut self.connection
            && let Some(records) = records(datagram)
        {
            let done = connection.receive_records(now, datagram, &records);
            self.advance(done.map(drop), out);
        }
    }

    /// Encrypts and sends a plaintext.
    ///
    /// # Errors
    /// `NoSession`, `PlaintextTooLong`.
    pub fn send(&mut self, now: Instant, plaintext: &[u8], out: Out<'_>) -> Result<(), DtlsError> {
        if plaintext.len() > MAX_PLAINTEXT {
            return Err(DtlsError::PlaintextTooLong { length: plaintext.len() });
        }
        let none = DtlsError::NoSession { peer: self.server };
        let Some(connection) = self.connection.as_mut().filter(|_| self.is_open) else {
            return Err(none);
        };
        let done = if self.sent == MAX_RECORDS {
            Err(DtlsError::WornOut)
        } else {
            self.sent += 1;
            connection.send(now, plaintext)
        };
        self.advance(done, out);
        if self.is_open { Ok(()) } else { Err(none) }
    }

    /// Repeats messages that were not answered, and ends a handshake whose time is over. Call this
    /// at [`next_timeout`](Self::next_timeout) or later.
    pub fn timeout(&mut self, now: Instant, out: Out<'_>) {
        if let Some(connection) = &mut self.connection {
            let done = connection.timeout(now);
            self.advance(done, out);
        }
    }

    /// Returns the time of the next call of [`timeout`](Self::timeout).
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.connection.as_ref().map(|_| self.wait)
    }

    /// Closes the session, or ends the handshake.
    pub fn close(&mut self, _now: Instant, out: Out<'_>) {
        if self.connection.is_some() {
            self.finish(DtlsError::Closed, out);
        }
    }

    /// Returns the number of the open session.
    #[must_use]
    pub fn session(&self) -> Option<u64> {
        self.is_open.then_some(self.number)
    }

    fn advance(&mut self, done: Result<(), DtlsError>, out: Out<'_>) {
        let done = done.and_then(|()| with_buffer(|buffer| self.poll(buffer, out)));
        match done {
            Ok(wait) => self.wait = wait,
            Err(why) => self.finish(why, out),
        }
    }

    fn poll(&mut self, buffer: &mut Vec<u8>, out: Out<'_>) -> Result<Instant, DtlsError> {
        let server = self.server;
        loop {
            let Some(connection) = &mut self.connection else { return Err(DtlsError::Closed) };
            match connection.poll(buffer) {
                Step::Send(datagram) => out(Event::Send { to: server, datagram }),
                Step::Certificate(certificate) => {
                    let (authority, name) =
                        self.keys.server.as_ref().ok_or(DtlsError::NoCommonSuite)?;
                    self.identity = Some(authority.verify_server(certificate, name)?);
                }
                Step::Connected => {
                    let identity = match self.keys.device {
                        Some(device) => Some(Identity::Device(device)),
                        None => self.identity.take(),
                    };
                    let identity = identity.ok_or(DtlsError::NotAuthentic)?;
                    self.is_open = true;
                    out(Event::Opened { peer: server, session: self.number, identity });
                }
                Step::Data(bytes) => {
                    out(Event::Data { peer: server, session: self.number, bytes });
                }
                Step::ClosedByPeer => {
                    while let Step::Send(datagram) = connection.poll(buffer) {
                        out(Event::Send { to: server, datagram });
                    }
                    return Err(DtlsError::ClosedByPeer);
                }
                Step::Wait(at) => return Ok(at),
            }
        }
    }

    fn finish(&mut self, why: DtlsError, out: Out<'_>) {
        let (peer, session) = (self.server, self.number);
        let Some(mut connection) = self.connection.take() else { return };
        if !std::mem::take(&mut self.is_open) {
            if let Some(alert) = connection.alert(&why) {
                out(Event::Send { to: peer, datagram: &alert });
            }
            return out(Event::Refused { peer, why });
        }
        if matches!(why, DtlsError::Closed | DtlsError::WornOut) {
            connection.close();
            with_buffer(|buffer| {
                while let Step::Send(datagram) = connection.poll(buffer) {
                    out(Event::Send { to: peer, datagram });
                }
            });
        }
        out(Event::Closed { peer, session, why });
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server)
            .field("session", &self.session())
            .finish_non_exhaustive()
    }
}
