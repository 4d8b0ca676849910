//! The ClientHello as far as the server reads it before it keeps state, and the
//! HelloVerifyRequest (RFC 6347, sections 4.2.1 and 4.2.2).

use super::record::{self, HANDSHAKE, HEADER, Record};

const CLIENT_HELLO: u8 = 1;
const HELLO_VERIFY_REQUEST: u8 = 3;
/// Length of the header of a handshake message in bytes.
const MESSAGE_HEADER: usize = 12;
/// The maximum number of a ClientHello. Each expired cookie adds one.
const MAX_MESSAGE: u16 = 3;
/// Length of a cookie in bytes.
pub(super) const COOKIE: usize = 32;

/// An unfragmented ClientHello of DTLS 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientHello<'a> {
    /// The sequence number of the record.
    pub(super) sequence: u64,
    /// The number of the handshake message: 0 without a cookie, 1 with the first cookie.
    pub(super) message: u16,
    /// The client's random.
    pub(super) random: &'a [u8; 32],
    /// The cookie, which is empty in the first ClientHello.
    pub(super) cookie: &'a [u8],
    /// The offered suites, two bytes each.
    pub(super) suites: &'a [u8],
    /// All bytes before the cookie's length: the version, the random and the session id.
    pub(super) before: &'a [u8],
    /// All bytes after the cookie: the suites, the compression methods and the extensions.
    pub(super) after: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// Reads the only record of a datagram. Returns `None` if the record is no complete
    /// ClientHello. Stateless servers cannot reassemble a fragmented one.
    pub(super) fn parse(record: &Record<'a>) -> Option<Self> {
        let message = record.body();
        if record.content != HANDSHAKE || record.epoch != 0 {
            return None;
        }
        let (header, body) = message.split_first_chunk::<MESSAGE_HEADER>()?;
        let number = u16::from_be_bytes([header[4], header[5]]);
        let is_whole = header[0] == CLIENT_HELLO
            && number <= MAX_MESSAGE
            && header[1] == 0
            && header[6..9] == [0; 3]
            && header[9..12] == header[1..4]
            && usize::from(u16::from_be_bytes([header[2], header[3]])) == body.len();
        if !is_whole || body.get(..2)? != [0xfe, 0xfd] {
            return None;
        }
        let random = body.get(2..)?.first_chunk()?;
        let (_, rest) = vector(body.get(34..)?, 1)?;
        let before = &body[..body.len() - rest.len()];
        let (cookie, after) = vector(rest, 1)?;
        let (suites, rest) = vector(after, 2)?;
        let (methods, _) = vector(rest, 1)?;
        if suites.is_empty() || suites.len() % 2 != 0 || methods.is_empty() {
            return None;
        }
        let sequence = record.sequence;
        Some(Self { sequence, message: number, random, cookie, suites, before, after })
    }

    /// The offered suites.
    pub(super) fn suites(&self) -> impl Iterator<Item = u16> + 'a {
        self.suites.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
    }

    /// Returns the datagram of this ClientHello without its cookie, as the client sent it before,
    /// with this message number.
    pub(super) fn without_cookie(&self, number: u16) -> Vec<u8> {
        let body = self.before.len() + 1 + self.after.len();
        let mut datagram = message(CLIENT_HELLO, number, u64::from(number), body);
        datagram.extend_from_slice(self.before);
        datagram.push(0);
        datagram.extend_from_slice(self.after);
        datagram
    }

    /// Returns a HelloVerifyRequest with a cookie. It has the numbers of the ClientHello, and is
    /// shorter than any ClientHello that this type accepts.
    pub(super) fn verify_request(&self, cookie: &[u8; COOKIE]) -> Vec<u8> {
        let mut datagram = message(HELLO_VERIFY_REQUEST, self.message, self.sequence, 3 + COOKIE);
        // The version is always that of DTLS 1.0.
        datagram.extend_from_slice(&[0xfe, 0xff, 32]);
        datagram.extend_from_slice(cookie);
        datagram
    }

    /// Returns a fatal alert that answers this ClientHello.
    pub(super) fn alert(&self, description: u8) -> [u8; HEADER + 2] {
        record::fatal_alert(self.sequence, description)
    }
}

/// Starts a datagram of one unfragmented handshake message.
fn message(kind: u8, number: u16, sequence: u64, body: usize) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(HEADER + MESSAGE_HEADER + body);
    datagram.extend_from_slice(&[HANDSHAKE, 0xfe, 0xfd, 0, 0]);
    datagram.extend_from_slice(&sequence.to_be_bytes()[2..]);
    datagram.extend_from_slice(&((MESSAGE_HEADER + body) as u16).to_be_bytes());
    let length = (body as u32).to_be_bytes();
    datagram.extend_from_slice(&[kind, length[1], length[2], length[3]]);
    datagram.extend_from_slice(&number.to_be_bytes());
    datagram.extend_from_slice(&[0; 3]);
    datagram.extend_from_slice(&length[1..]);
    datagram
}

/// Splits off a vector whose length has `width` bytes.
fn vector(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}
