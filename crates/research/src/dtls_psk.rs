//! A client of DTLS 1.2 (RFC 6347) with one cipher suite, TLS_PSK_WITH_AES_128_CCM_8 (RFC 6655),
//! and the extended master secret (RFC 7627). It has no heap and opens no socket, so
//! `firmware/footprint` counts its instructions on a Cortex-M3.
//!
//! It is for comparison only and is not hardened: it does not erase keys, it has no timer, it
//! refuses fragmented and reordered messages, and it never starts a second handshake. The product
//! uses the crate dimpl, which needs a heap.
//!
//! The handshake has six flights. The client sends flights 1, 3 and 5:
//!
//! | flight | content |
//! |---|---|
//! | 1 | ClientHello |
//! | 2 | HelloVerifyRequest, with a cookie |
//! | 3 | ClientHello, with the cookie |
//! | 4 | ServerHello, optionally ServerKeyExchange (a hint, which is ignored), ServerHelloDone |
//! | 5 | ClientKeyExchange, ChangeCipherSpec, Finished |
//! | 6 | ChangeCipherSpec, Finished |

mod keys;
mod record;

use core::fmt;

use sha2::{Digest as _, Sha256};

use keys::{Direction, Master};
use record::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, Message, Reader, Record, VERSION,
};

pub use record::Datagram;

/// The longest key that the client accepts, in bytes.
pub const MAX_KEY: usize = 32;
/// The longest identity that the client accepts, in bytes.
pub const MAX_IDENTITY: usize = 64;
/// The number of bytes that a protected record adds to its content: the header, the explicit part of
/// the nonce, and the tag.
pub const RECORD_OVERHEAD: usize = record::HEADER + record::EXPLICIT_NONCE + record::TAG;
/// A buffer of this many bytes is sufficient for every flight of the client.
pub const MAX_FLIGHT: usize = 384;

/// TLS_PSK_WITH_AES_128_CCM_8.
const SUITE: [u8; 2] = [0xc0, 0xa8];
/// The extension `extended_master_secret`.
const EXTENDED_MASTER_SECRET: u16 = 23;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const HELLO_VERIFY_REQUEST: u8 = 3;
const SERVER_KEY_EXCHANGE: u8 = 12;
const SERVER_HELLO_DONE: u8 = 14;
const CLIENT_KEY_EXCHANGE: u8 = 16;
const FINISHED: u8 = 20;

/// Why a handshake or a record failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DtlsError {
    /// The output buffer is too small.
    BufferTooSmall,
    /// A record or a message cannot be parsed.
    Malformed,
    /// A message is fragmented, or a message before it is missing.
    Incomplete,
    /// A message or a record is not allowed in this state.
    Unexpected,
    /// The server selected another version or cipher suite, or no extended master secret.
    NotOffered,
    /// The tag of a record is wrong.
    WrongTag,
    /// The server's Finished does not match the handshake.
    WrongFinished,
    /// The server sent an alert with this description (RFC 5246, section 7.2).
    Alert(u8),
}

impl fmt::Display for DtlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BufferTooSmall => "the output buffer is too small",
            Self::Malformed => "a record or a message cannot be parsed",
            Self::Incomplete => "a message is fragmented, or a message before it is missing",
            Self::Unexpected => "a message is not allowed in this state",
            Self::NotOffered => "the server selected parameters that the client did not offer",
            Self::WrongTag => "the tag of a record is wrong",
            Self::WrongFinished => "the server's Finished does not match the handshake",
            Self::Alert(description) => return write!(f, "the server sent alert {description}"),
        })
    }
}

impl core::error::Error for DtlsError {}

/// The message that the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// HelloVerifyRequest or ServerHello.
    Hello,
    ServerHello,
    /// ServerKeyExchange or ServerHelloDone.
    ServerHelloDone,
    ChangeCipherSpec,
    Finished,
    Connected,
}

/// The client's side of one connection.
pub struct Client<'k> {
    identity: &'k [u8],
    key: &'k [u8],
    random: [u8; 32],
    state: State,
    /// The hash of all messages since the ClientHello with the cookie.
    transcript: Sha256,
    /// The sequence numbers of the next message and of the next unprotected record to send.
    message: u16,
    record: u64,
    /// The sequence number of the next message to receive.
    expected: u16,
    server_random: [u8; 32],
    master: Option<Master>,
    protection: Option<Protection>,
}

/// The record protection of both directions, and the sequence numbers of their next records, with
/// epoch 1 in the upper 16 bits.
struct Protection {
    sending: Direction,
    receiving: Direction,
    next_sent: u64,
    next_received: u64,
}

impl<'k> Client<'k> {
    /// Creates a client. `random` must be fresh for each connection. Returns `None` if the identity
    /// or the key is longer than [`MAX_IDENTITY`] or [`MAX_KEY`].
    #[must_use]
    pub fn new(identity: &'k [u8], key: &'k [u8], random: [u8; 32]) -> Option<Self> {
        (identity.len() <= MAX_IDENTITY && key.len() <= MAX_KEY).then(|| Self {
            identity,
            key,
            random,
            state: State::Hello,
            transcript: Sha256::new(),
            message: 0,
            record: 0,
            expected: 0,
            server_random: [0; 32],
            master: None,
            protection: None,
        })
    }

    /// Writes flight 1. Returns its length.
    ///
    /// # Errors
    /// [`DtlsError::BufferTooSmall`].
    pub fn start(&mut self, out: &mut [u8]) -> Result<usize, DtlsError> {
        let mut flight = Datagram::new(out);
        self.client_hello(&[], &mut flight)?;
        Ok(flight.length())
    }

    /// Returns whether the handshake has succeeded.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// Processes a datagram of the server's handshake, and writes the next flight. Returns the
    /// length of the flight, or 0 if the client has to wait. Messages that the client has already
    /// processed are ignored; to answer a flight that was lost, send the last flight again.
    ///
    /// # Errors
    /// [`DtlsError`]. The connection cannot be continued.
    pub fn receive(&mut self, datagram: &[u8], out: &mut [u8]) -> Result<usize, DtlsError> {
        let mut flight = Datagram::new(out);
        let mut rest = datagram;
        while !rest.is_empty() {
            let (record, after) = Record::split(rest).ok_or(DtlsError::Malformed)?;
            rest = after;
            match (record.epoch, record.content) {
                (0, HANDSHAKE) => self.messages(record.fragment, &mut flight)?,
                (0, CHANGE_CIPHER_SPEC) if self.state == State::ChangeCipherSpec => {
                    self.state = State::Finished;
                }
                (0, ALERT) => return Err(alert(record.fragment)),
                (1, HANDSHAKE) if self.state == State::Finished => {
                    let mut plain = [0; record::HANDSHAKE_HEADER + keys::VERIFY_DATA];
                    let length = self.unprotect(&record, &mut plain)?;
                    let plain = plain.get(..length).ok_or(DtlsError::Malformed)?;
                    self.messages(plain, &mut flight)?;
                }
                // A repeated record, or a record that a later state expects.
                _ => {}
            }
        }
        Ok(flight.length())
    }

    /// Writes a record of application data. Returns its length, which is the length of the data and
    /// [`RECORD_OVERHEAD`].
    ///
    /// # Errors
    /// [`DtlsError::Unexpected`] before the handshake has succeeded, or after 2^48 records;
    /// [`DtlsError::BufferTooSmall`].
    pub fn seal(&mut self, data: &[u8], out: &mut [u8]) -> Result<usize, DtlsError> {
        if !self.is_connected() {
            return Err(DtlsError::Unexpected);
        }
        let mut datagram = Datagram::new(out);
        self.protect(APPLICATION_DATA, data, &mut datagram)?;
        Ok(datagram.length())
    }

    /// Reads a datagram with one record of application data into `out`. Returns the length of the
    /// data. Records that are older than one that was read are refused, so that none is read twice.
    ///
    /// # Errors
    /// [`DtlsError`]. The connection can still be used, unless the error is an alert.
    pub fn open(&mut self, datagram: &[u8], out: &mut [u8]) -> Result<usize, DtlsError> {
        let (record, rest) = Record::split(datagram).ok_or(DtlsError::Malformed)?;
        if !self.is_connected() || record.epoch != 1 || !rest.is_empty() {
            return Err(DtlsError::Unexpected);
        }
        let length = self.unprotect(&record, out)?;
        match record.content {
            APPLICATION_DATA => Ok(length),
            ALERT => Err(alert(out.get(..length).unwrap_or_default())),
            _ => Err(DtlsError::Unexpected),
        }
    }

    /// Processes the messages of a record.
    fn messages(&mut self, fragment: &[u8], flight: &mut Datagram<'_>) -> Result<(), DtlsError> {
        let mut rest = fragment;
        while !rest.is_empty() {
            let (message, after) = Message::split(rest)?;
            rest = after;
            if message.sequence < self.expected {
                continue;
            }
            if message.sequence > self.expected {
                return Err(DtlsError::Incomplete);
            }
            self.expected += 1;
            self.message(&message, flight)?;
        }
        Ok(())
    }

    fn message(
        &mut self,
        message: &Message<'_>,
        flight: &mut Datagram<'_>,
    ) -> Result<(), DtlsError> {
        match (self.state, message.kind) {
            (State::Hello, HELLO_VERIFY_REQUEST) => {
                let mut body = Reader(message.body);
                // The version is not part of the negotiation (RFC 6347, section 4.2.1).
                let cookie = body.take(2).and_then(|_| body.vector8());
                self.state = State::ServerHello;
                // The transcript begins with the second ClientHello (RFC 6347, section 4.2.1).
                self.transcript = Sha256::new();
                self.client_hello(cookie.ok_or(DtlsError::Malformed)?, flight)
            }
            (State::Hello | State::ServerHello, SERVER_HELLO) => {
                self.server_hello(message.body)?;
                self.transcript.update(message.bytes);
                self.state = State::ServerHelloDone;
                Ok(())
            }
            (State::ServerHelloDone, SERVER_KEY_EXCHANGE) => {
                self.transcript.update(message.bytes);
                Ok(())
            }
            (State::ServerHelloDone, SERVER_HELLO_DONE) if message.body.is_empty() => {
                self.transcript.update(message.bytes);
                self.state = State::ChangeCipherSpec;
                self.key_exchange(flight)
            }
            (State::Finished, FINISHED) => {
                let master = self.master.as_ref().ok_or(DtlsError::Unexpected)?;
                let expected = master.verify_data(b"server finished", &self.transcript);
                // This comparison is not constant-time. The tag of the record has been checked.
                if message.body != expected {
                    return Err(DtlsError::WrongFinished);
                }
                self.state = State::Connected;
                Ok(())
            }
            _ => Err(DtlsError::Unexpected),
        }
    }

    fn client_hello(&mut self, cookie: &[u8], flight: &mut Datagram<'_>) -> Result<(), DtlsError> {
        let cookie_length = u8::try_from(cookie.len()).map_err(|_| DtlsError::Malformed)?;
        // An empty session identifier follows the random, and the cookie follows that. After the
        // cookie come one suite, no compression, and one extension, which is empty.
        let [high, low] = EXTENDED_MASTER_SECRET.to_be_bytes();
        let offer = [0, 2, SUITE[0], SUITE[1], 1, 0, 0, 4, high, low, 0, 0];
        let random = self.random;
        let body: [&[u8]; 5] = [&VERSION, &random, &[0, cookie_length], cookie, &offer];
        self.send(CLIENT_HELLO, &body, flight)
    }

    /// Checks the server's selection (RFC 5246, section 7.4.1.3) and stores its random.
    fn server_hello(&mut self, body: &[u8]) -> Result<(), DtlsError> {
        let mut body = Reader(body);
        let mut field = |length| body.take(length).ok_or(DtlsError::Malformed);
        let version = field(2)?;
        self.server_random.copy_from_slice(field(32)?);
        body.vector8().ok_or(DtlsError::Malformed)?;
        let selection = body.take(3).ok_or(DtlsError::Malformed)?;
        let mut extensions = Reader(body.vector16().unwrap_or_default());
        let mut extended = false;
        while let Some(name) = extensions.number16() {
            extensions.vector16().ok_or(DtlsError::Malformed)?;
            extended |= name == EXTENDED_MASTER_SECRET;
        }
        if version == VERSION && selection == [SUITE[0], SUITE[1], 0] && extended {
            Ok(())
        } else {
            Err(DtlsError::NotOffered)
        }
    }

    /// Writes flight 5.
    fn key_exchange(&mut self, flight: &mut Datagram<'_>) -> Result<(), DtlsError> {
        let length = u16::try_from(self.identity.len()).map_err(|_| DtlsError::Malformed)?;
        let identity = self.identity;
        self.send(CLIENT_KEY_EXCHANGE, &[&length.to_be_bytes(), identity], flight)?;
        let master = Master::extended(self.key, &self.transcript).ok_or(DtlsError::Malformed)?;
        let [sending, receiving] = master.directions(&self.server_random, &self.random);

        flight.record_header(CHANGE_CIPHER_SPEC, self.record, 1)?;
        flight.put(&[1])?;
        let verify_data = master.verify_data(b"client finished", &self.transcript);
        const FIRST: u64 = 1 << 48;
        self.protection =
            Some(Protection { sending, receiving, next_sent: FIRST, next_received: FIRST });
        self.master = Some(master);

        let mut finished = [0; record::HANDSHAKE_HEADER + keys::VERIFY_DATA];
        let (header, body) = finished.split_at_mut(record::HANDSHAKE_HEADER);
        header.copy_from_slice(&record::handshake_header(FINISHED, self.message, body.len())?);
        body.copy_from_slice(&verify_data);
        self.transcript.update(finished);
        self.protect(HANDSHAKE, &finished, flight)
    }

    /// Writes an unprotected message in a record of its own, and adds it to the transcript.
    fn send(
        &mut self,
        kind: u8,
        body: &[&[u8]],
        flight: &mut Datagram<'_>,
    ) -> Result<(), DtlsError> {
        let length = body.iter().map(|part| part.len()).sum();
        let header = record::handshake_header(kind, self.message, length)?;
        flight.record_header(HANDSHAKE, self.record, record::HANDSHAKE_HEADER + length)?;
        flight.put(&header)?;
        self.transcript.update(header);
        for part in body {
            flight.put(part)?;
            self.transcript.update(part);
        }
        self.message += 1;
        self.record += 1;
        Ok(())
    }

    fn protect(
        &mut self,
        content: u8,
        data: &[u8],
        datagram: &mut Datagram<'_>,
    ) -> Result<(), DtlsError> {
        let protection = self.protection.as_mut().ok_or(DtlsError::Unexpected)?;
        if protection.next_sent >> 48 != 1 {
            return Err(DtlsError::Unexpected);
        }
        protection.sending.seal(content, protection.next_sent, data, datagram)?;
        protection.next_sent += 1;
        Ok(())
    }

    fn unprotect(&mut self, record: &Record<'_>, out: &mut [u8]) -> Result<usize, DtlsError> {
        let protection = self.protection.as_mut().ok_or(DtlsError::Unexpected)?;
        if record.sequence < protection.next_received {
            return Err(DtlsError::Unexpected);
        }
        let length = protection.receiving.open(record, out)?;
        protection.next_received = record.sequence + 1;
        Ok(length)
    }
}

fn alert(fragment: &[u8]) -> DtlsError {
    fragment.get(1).map_or(DtlsError::Malformed, |description| DtlsError::Alert(*description))
}
