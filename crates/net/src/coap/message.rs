//! The messages of CoAP (RFC 7252, section 3) and their options.
//!
//! The crate `coap-lite` splits a datagram into its fields. This module applies the rules that it
//! leaves to its user: which messages have a format error, and how long each option's value may be.

use std::fmt;

use bytes::Bytes;
use coap_lite::{CoapOption, MessageClass, MessageType, Packet};

/// The maximum length of a token (RFC 7252, section 3). Longer tokens (RFC 8974) serve intermediaries
/// that keep no state, and are a format error here.
pub const MAX_TOKEN: usize = 8;

/// The maximum length of a message that arrives, in bytes. The longest block has 1,024 bytes, so that
/// there is room for as many bytes of options.
pub const MAX_MESSAGE: usize = 2048;

/// The type of a message (RFC 7252, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The receiver acknowledges the message.
    Confirmable,
    /// The receiver does not acknowledge the message.
    NonConfirmable,
    /// Acknowledges a confirmable message, and may carry the response.
    Acknowledgement,
    /// Rejects a message.
    Reset,
}

/// The code of a message: a method, a response code, or empty (RFC 7252, section 12.1). The upper
/// three bits are the class, and the lower five bits the detail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u8);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $class:literal . $detail:literal;)+) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($class << 5 | $detail);)+
        }
    };
}

codes! {
    /// No request and no response.
    EMPTY = 0 . 0;
    /// The method GET.
    GET = 0 . 1;
    /// The method POST.
    POST = 0 . 2;
    /// The method PUT.
    PUT = 0 . 3;
    /// The method DELETE.
    DELETE = 0 . 4;
    /// The resource was created.
    CREATED = 2 . 1;
    /// The representation that the client has is still valid.
    VALID = 2 . 3;
    /// The request changed the resource.
    CHANGED = 2 . 4;
    /// The response has the representation.
    CONTENT = 2 . 5;
    /// The server has this block and expects the next one (RFC 7959).
    CONTINUE = 2 . 31;
    /// The request is malformed.
    BAD_REQUEST = 4 . 0;
    /// The client is not authorised.
    UNAUTHORIZED = 4 . 1;
    /// The request has a critical option that the server does not support.
    BAD_OPTION = 4 . 2;
    /// The client may not do this.
    FORBIDDEN = 4 . 3;
    /// There is no such resource.
    NOT_FOUND = 4 . 4;
    /// The resource does not support the method.
    METHOD_NOT_ALLOWED = 4 . 5;
    /// The resource has no representation in an accepted format.
    NOT_ACCEPTABLE = 4 . 6;
    /// The server lacks blocks that precede this one (RFC 7959).
    REQUEST_ENTITY_INCOMPLETE = 4 . 8;
    /// The request conflicts with the state of the resource (RFC 8132).
    CONFLICT = 4 . 9;
    /// The body is longer than the server accepts.
    REQUEST_ENTITY_TOO_LARGE = 4 . 13;
    /// The server does not support the format of the body.
    UNSUPPORTED_CONTENT_FORMAT = 4 . 15;
    /// The body is well-formed, but cannot be processed (RFC 8132).
    UNPROCESSABLE_ENTITY = 4 . 22;
    /// The client sent too many requests (RFC 8516).
    TOO_MANY_REQUESTS = 4 . 29;
    /// The server failed.
    INTERNAL_SERVER_ERROR = 5 . 0;
    /// The server does not support the method.
    NOT_IMPLEMENTED = 5 . 1;
    /// The server is overloaded; the option Max-Age states when to try again.
    SERVICE_UNAVAILABLE = 5 . 3;
    /// The server is not a proxy.
    PROXYING_NOT_SUPPORTED = 5 . 5;
}

impl Code {
    /// Returns the class: 0 for requests, 2 for success, 4 for an error of the client, 5 for an error
    /// of the server.
    #[must_use]
    pub const fn class(self) -> u8 {
        self.0 >> 5
    }

    /// Returns whether this is the code of a request.
    #[must_use]
    pub const fn is_request(self) -> bool {
        self.class() == 0 && self.0 != 0
    }

    /// Returns whether this is the code of a response.
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(self.class(), 2 | 4 | 5)
    }

    /// Returns whether this is the code of a response that reports success.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.class() == 2
    }

    /// Returns the response code that corresponds to an HTTP status.
    #[must_use]
    pub const fn of_http(status: u16) -> Self {
        match status {
            200 | 204 => Self::CHANGED,
            201 => Self::CREATED,
            401 => Self::UNAUTHORIZED,
            403 => Self::FORBIDDEN,
            404 => Self::NOT_FOUND,
            405 => Self::METHOD_NOT_ALLOWED,
            406 => Self::NOT_ACCEPTABLE,
            408 => Self::REQUEST_ENTITY_INCOMPLETE,
            409 => Self::CONFLICT,
            413 => Self::REQUEST_ENTITY_TOO_LARGE,
            415 => Self::UNSUPPORTED_CONTENT_FORMAT,
            422 => Self::UNPROCESSABLE_ENTITY,
            429 => Self::TOO_MANY_REQUESTS,
            503 | 507 => Self::SERVICE_UNAVAILABLE,
            400..500 => Self::BAD_REQUEST,
            _ => Self::INTERNAL_SERVER_ERROR,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.class(), self.0 & 31)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of an option (RFC 7252, section 12.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number(pub u16);

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $lengths:expr, $repeats:literal;)+) => {
        impl Number {
            $($(#[$doc])* pub const $name: Self = Self($number);)+

            /// Returns the lengths that the option's value may have, and whether the option may be
            /// repeated; `None` for an option that this endpoint does not support.
            fn form(self) -> Option<(std::ops::RangeInclusive<usize>, bool)> {
                match self.0 {
                    $($number => Some(($lengths, $repeats)),)+
                    _ => None,
                }
            }
        }
    };
}

options! {
    /// The host of the request's URI.
    URI_HOST = 3, 1..=255, false;
    /// The version of a representation.
    ETAG = 4, 1..=8, true;
    /// Registers an observer, or the number of a notification (RFC 7641).
    OBSERVE = 6, 0..=3, false;
    /// The port of the request's URI.
    URI_PORT = 7, 0..=2, false;
    /// A segment of the path of a created resource.
    LOCATION_PATH = 8, 0..=255, true;
    /// A segment of the request's path.
    URI_PATH = 11, 0..=255, true;
    /// The format of the payload.
    CONTENT_FORMAT = 12, 0..=2, false;
    /// How long the response is fresh, in seconds.
    MAX_AGE = 14, 0..=4, false;
    /// An argument of the request.
    URI_QUERY = 15, 0..=255, true;
    /// The format that the client accepts.
    ACCEPT = 17, 0..=2, false;
    /// An argument of a created resource.
    LOCATION_QUERY = 20, 0..=255, true;
    /// The block of a response's body (RFC 7959).
    BLOCK2 = 23, 0..=3, false;
    /// The block of a request's body (RFC 7959).
    BLOCK1 = 27, 0..=3, false;
    /// The length of a response's body (RFC 7959).
    SIZE2 = 28, 0..=4, false;
    /// A forward proxy's target. Not supported.
    PROXY_URI = 35, 1..=1034, false;
    /// A forward proxy's scheme. Not supported.
    PROXY_SCHEME = 39, 1..=255, false;
    /// The length of a request's body, or the maximum length (RFC 7959).
    SIZE1 = 60, 0..=4, false;
    /// The classes of responses that the client does not want (RFC 7967).
    NO_RESPONSE = 258, 0..=1, false;
    /// Distinguishes the bodies that a client sends at the same time (RFC 9175).
    REQUEST_TAG = 292, 0..=8, true;
}

impl Number {
    /// Returns whether a receiver that does not support the option must reject the message (RFC 7252,
    /// section 5.4.1).
    #[must_use]
    pub const fn is_critical(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The format of a payload (RFC 7252, section 12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Format(pub u16);

impl Format {
    /// Text in UTF-8.
    pub const TEXT: Self = Self(0);
    /// `application/cose; cose-type="cose-sign1"`.
    pub const COSE_SIGN1: Self = Self(18);
    /// Links (RFC 6690).
    pub const LINKS: Self = Self(40);
    /// Bytes.
    pub const OCTETS: Self = Self(42);
    /// `application/json`.
    pub const JSON: Self = Self(50);
    /// `application/cbor`.
    pub const CBOR: Self = Self(60);
    /// `application/multipart-core` (RFC 8710).
    pub const MULTIPART: Self = Self(62);
    /// `application/cbor-seq`.
    pub const CBOR_SEQ: Self = Self(63);
    /// `application/senml+json`.
    pub const SENML_JSON: Self = Self(110);
    /// `application/senml+cbor`.
    pub const SENML_CBOR: Self = Self(112);
    /// `application/concise-problem-details+cbor` (RFC 9290).
    pub const PROBLEM: Self = Self(257);
}

/// A block of a body (RFC 7959, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of the block, from 0.
    pub number: u32,
    /// Whether more blocks follow; in a request for a block, always false.
    pub more: bool,
    /// The exponent of the block's size, 0 to 6.
    pub exponent: u8,
}

impl Block {
    /// The largest exponent: blocks of 1,024 bytes.
    pub const LARGEST: u8 = 6;

    /// Returns the size of the block, in bytes: 16 to 1,024.
    #[must_use]
    pub const fn size(self) -> usize {
        16 << self.exponent
    }

    /// Returns the position of the block's first byte in the body.
    #[must_use]
    pub const fn offset(self) -> usize {
        (self.number as usize) << (self.exponent + 4)
    }

    const fn value(self) -> u32 {
        self.number << 4 | (self.more as u32) << 3 | self.exponent as u32
    }

    /// Returns the block that an option's value names. `None` for the reserved exponent 7.
    const fn of(value: u32) -> Option<Self> {
        let exponent = (value & 7) as u8;
        if exponent > Self::LARGEST {
            return None;
        }
        Some(Self { number: value >> 4, more: value & 8 != 0, exponent })
    }
}

/// A token (RFC 7252, section 5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Token {
    length: u8,
    bytes: [u8; MAX_TOKEN],
}

impl Token {
    /// Creates a token of the first [`MAX_TOKEN`] bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut token = Self::default();
        for (to, from) in token.bytes.iter_mut().zip(bytes) {
            *to = *from;
            token.length += 1;
        }
        token
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The options of a message, in ascending order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(Number, Bytes)>);

impl Options {
    /// Adds an option after the options of the same number.
    pub fn add(&mut self, number: Number, value: impl Into<Bytes>) {
        let at = self.0.partition_point(|(of, _)| *of <= number);
        self.0.insert(at, (number, value.into()));
    }

    /// Adds an option whose value is a number (RFC 7252, section 3.2: big-endian, without leading
    /// zeros).
    pub fn add_uint(&mut self, number: Number, value: u32) {
        let bytes = value.to_be_bytes();
        let zeros = value.leading_zeros() as usize / 8;
        self.add(number, Bytes::copy_from_slice(&bytes[zeros..]));
    }

    /// Adds the option of a block.
    pub fn add_block(&mut self, number: Number, block: Block) {
        self.add_uint(number, block.value());
    }

    /// Removes an option in all its repetitions.
    pub fn remove(&mut self, number: Number) {
        self.0.retain(|(of, _)| *of != number);
    }

    /// Returns the values of an option, in order.
    pub fn all(&self, number: Number) -> impl Iterator<Item = &Bytes> {
        self.0.iter().filter(move |(of, _)| *of == number).map(|(_, value)| value)
    }

    /// Returns the first value of an option.
    #[must_use]
    pub fn first(&self, number: Number) -> Option<&Bytes> {
        self.all(number).next()
    }

    /// Returns the value of an option as a number.
    #[must_use]
    pub fn uint(&self, number: Number) -> Option<u32> {
        let value = self.first(number).filter(|value| value.len() <= 4)?;
        Some(value.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    }

    /// Returns the format of the payload.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.uint(Number::CONTENT_FORMAT).and_then(|value| u16::try_from(value).ok()).map(Format)
    }

    /// Returns a block option.
    ///
    /// # Errors
    /// `Err` for a block of the reserved size.
    pub fn block(&self, number: Number) -> Result<Option<Block>, ReservedSize> {
        self.uint(number).map(|value| Block::of(value).ok_or(ReservedSize)).transpose()
    }

    /// Returns the options and their numbers, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (Number, &Bytes)> {
        self.0.iter().map(|(number, value)| (*number, value))
    }

    /// Ignores the elective options that this endpoint does not support, or whose value has a wrong
    /// length, and returns the first critical option of this kind (RFC 7252, section 5.4).
    pub fn reduce(&mut self) -> Option<Number> {
        let (mut critical, mut last) = (None, None);
        self.0.retain(|(number, value)| {
            let repeats = last.replace(*number) == Some(*number);
            let is_known = number
                .form()
                .is_some_and(|(lengths, may)| lengths.contains(&value.len()) && (may || !repeats));
            if !is_known && number.is_critical() {
                critical = critical.or(Some(*number));
            }
            is_known
        });
        critical
    }
}

/// A block option has the reserved size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedSize;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The type.
    pub kind: Kind,
    /// The code.
    pub code: Code,
    /// The message id, which relates acknowledgements to messages and detects duplicates.
    pub id: u16,
    /// The token, which relates responses to requests.
    pub token: Token,
    /// The options.
    pub options: Options,
    /// The payload.
    pub payload: Bytes,
}

/// Why a datagram is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The datagram is too short, or has another version. It is ignored.
    Ignore,
    /// The message has a format error. A confirmable message is rejected.
    Format(Kind, u16),
}

impl Message {
    /// Creates a message without token, options and payload.
    #[must_use]
    pub fn new(kind: Kind, code: Code, id: u16) -> Self {
        let (token, options, payload) = (Token::default(), Options::default(), Bytes::new());
        Self { kind, code, id, token, options, payload }
    }

    /// Decodes a datagram. One of more than [`MAX_MESSAGE`] bytes has a format error.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        let &[first, code, high, low, ..] = datagram else { return Err(Malformed::Ignore) };
        if first >> 6 != 1 {
            return Err(Malformed::Ignore);
        }
        let kind = match first >> 4 & 3 {
            0 => Kind::Confirmable,
            1 => Kind::NonConfirmable,
            2 => Kind::Acknowledgement,
            _ => Kind::Reset,
        };
        let (code, id) = (Code(code), u16::from_be_bytes([high, low]));
        let wrong = Malformed::Format(kind, id);
        let is_reserved = !matches!(code.class(), 0 | 2 | 4 | 5);
        let is_long = datagram.len() > MAX_MESSAGE;
        if is_reserved || is_long || (code == Code::EMPTY && datagram.len() > 4) {
            return Err(wrong);
        }
        let mut packet = Packet::from_bytes(datagram).map_err(|_| wrong)?;
        let token = Token::new(packet.get_token());
        let mut options = Options::default();
        for (number, values) in packet.options() {
            for value in values {
                options.0.push((Number(*number), Bytes::copy_from_slice(value)));
            }
        }
        let payload = std::mem::take(&mut packet.payload);
        // A payload marker without a payload is a format error (RFC 7252, section 3). The parser does
        // not tell an absent payload from an empty one.
        if payload.is_empty() && datagram.len() > encoded_length(&token, &options) {
            return Err(wrong);
        }
        Ok(Self { kind, code, id, token, options, payload: payload.into() })
    }

    /// Encodes the message. Its length is at most the sum of the lengths of its parts.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = Packet::new();
        packet.header.set_version(1);
        packet.header.set_type(match self.kind {
            Kind::Confirmable => MessageType::Confirmable,
            Kind::NonConfirmable => MessageType::NonConfirmable,
            Kind::Acknowledgement => MessageType::Acknowledgement,
            Kind::Reset => MessageType::Reset,
        });
        packet.header.code = MessageClass::from(self.code.0);
        packet.header.message_id = self.id;
        packet.set_token(self.token.bytes().to_vec());
        for (number, value) in &self.options.0 {
            packet.add_option(CoapOption::from(number.0), value.to_vec());
        }
        packet.payload = self.payload.to_vec();
        // An unlimited message always encodes: the token is short and the options are sorted.
        packet.to_bytes_unlimited().unwrap_or_default()
    }
}

/// Returns the length of a message without a payload, in bytes.
pub(super) fn encoded_length(token: &Token, options: &Options) -> usize {
    let extended = |value: usize| match value {
        0..13 => 0,
        13..269 => 1,
        _ => 2,
    };
    let mut last = 0;
    let mut length = 4 + token.bytes().len();
    for (number, value) in options.iter() {
        let delta = usize::from(number.0 - last);
        length += 1 + extended(delta) + extended(value.len()) + value.len();
        last = number.0;
    }
    length
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_encoded_as_there() {
        // RFC 7252, appendix A, figure 16: GET /temperature and its response.
        let mut request = Message::new(Kind::Confirmable, Code::GET, 0x7d34);
        request.options.add(Number::URI_PATH, "temperature");
        let bytes = b"\x40\x01\x7d\x34\xbbtemperature";
        assert_eq!(request.encode(), bytes);
        assert_eq!(Message::decode(bytes).unwrap(), request);
        let mut response = Message::new(Kind::Acknowledgement, Code::CONTENT, 0x7d34);
        response.payload = "22.3 C".into();
        assert_eq!(response.encode(), b"\x60\x45\x7d\x34\xff22.3 C");
    }

    #[test]
    fn a_datagram_of_another_version_is_ignored_and_a_format_error_is_reported() {
        for ignored in [&b""[..], b"\x40\x01\x00", b"\x00\x01\x00\x00", b"\x80\x01\x00\x00"] {
            assert_eq!(Message::decode(ignored), Err(Malformed::Ignore), "{ignored:?}");
        }
        for wrong in [
            // Tokens of 9 to 15 bytes.
            &b"\x49\x01\x00\x01aaaaaaaaaaaaaaa"[..],
            b"\x4f\x01\x00\x01aaaaaaaaaaaaaaa",
            // A token that the datagram lacks.
            b"\x44\x01\x00\x01aa",
            // An empty message with a token, and with more bytes.
            b"\x41\x00\x00\x01a",
            b"\x40\x00\x00\x01\xffx",
            // The reserved classes 1, 3, 6 and 7.
            b"\x40\x21\x00\x01",
            b"\x40\x61\x00\x01",
            b"\x40\xc1\x00\x01",
            b"\x40\xe1\x00\x01",
            // The reserved option delta and length.
            b"\x40\x01\x00\x01\xf0",
            b"\x40\x01\x00\x01\x0f",
            // An option beyond the end, and a payload marker without a payload.
            b"\x40\x01\x00\x01\xb4tem",
            b"\x40\x01\x00\x01\xff",
            b"\x40\x01\x00\x01\xb1t\xff",
            // Numbers of options beyond 65,535.
            b"\x40\x01\x00\x01\xe0\xff\xff",
        ] {
            let expected = Err(Malformed::Format(Kind::Confirmable, 1));
            assert_eq!(Message::decode(wrong), expected, "{wrong:02x?}");
        }
    }

    #[test]
    fn elective_options_are_ignored_and_critical_ones_reported() {
        let mut options = Options::default();
        options.add(Number(2048), "elective");
        options.add(Number::URI_PATH, "a");
        options.add(Number::ETAG, &b"more than eight"[..]);
        assert_eq!(options.reduce(), None);
        assert_eq!(options.iter().count(), 1);
        options.add(Number::URI_HOST, "");
        assert_eq!(options.reduce(), Some(Number::URI_HOST), "its value has the wrong length");
        options.add(Number(2049), "");
        assert_eq!(options.reduce(), Some(Number(2049)));
        options.add_uint(Number::ACCEPT, 50);
        options.add_uint(Number::ACCEPT, 60);
        assert_eq!(options.reduce(), Some(Number::ACCEPT), "it must not be repeated");
        assert_eq!(options.uint(Number::ACCEPT), Some(50));
    }

    #[test]
    fn a_block_option_has_the_form_of_the_rfc() {
        let mut options = Options::default();
        options.add_block(Number::BLOCK2, Block { number: 0, more: false, exponent: 0 });
        assert_eq!(options.first(Number::BLOCK2).unwrap(), &b""[..]);
        options.remove(Number::BLOCK2);
        let block = Block { number: 4, more: true, exponent: 1 };
        options.add_block(Number::BLOCK2, block);
        assert_eq!(options.first(Number::BLOCK2).unwrap(), &b"\x49"[..]);
        assert_eq!(options.block(Number::BLOCK2), Ok(Some(block)));
        assert_eq!((block.size(), block.offset()), (32, 128));
        options.add_uint(Number::BLOCK1, 7);
        assert_eq!(options.block(Number::BLOCK1), Err(ReservedSize));
    }

    proptest! {
        #[test]
        fn every_message_decodes_to_itself(
            (kind, code, id) in (0..4u8, prop::sample::select(vec![1u8, 2, 0x45, 0x84, 0xa3]), any::<u16>()),
            token in prop::collection::vec(any::<u8>(), 0..=8),
            options in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..300)), 0..5),
            payload in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let kind = [Kind::Confirmable, Kind::NonConfirmable, Kind::Acknowledgement, Kind::Reset][usize::from(kind)];
            let mut message = Message::new(kind, Code(code), id);
            message.token = Token::new(&token);
            options.into_iter().for_each(|(number, value)| message.options.add(Number(number), value));
            message.payload = payload.into();
            let bytes = message.encode();
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
        }

        #[test]
        fn no_datagram_panics(datagram in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Message::decode(&datagram);
        }
    }
}
