//! Requests and responses as their senders and receivers see them: whole bodies, without messages and
//! blocks.

use std::fmt;

use bytes::Bytes;
use moteseal_api::ErrorKind;

use super::blocks::Key;
use super::config::{Owner, Peer};
use super::message::{Code, Format, Message, Number, Options};

/// The maximum number of segments of a path and of arguments of a request that arrives.
pub const MAX_PARTS: usize = 32;
/// The maximum length of the path and the arguments of a request that arrives, in bytes, with one byte
/// for each separator.
pub const MAX_RESOURCE: usize = 1024;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub code: Code,
    /// The path, such as `/sensors/temperature`.
    pub path: String,
    /// The arguments, such as `sig=cose`.
    pub query: Vec<String>,
    /// The format of the body.
    pub format: Option<Format>,
    /// The format that the client accepts.
    pub accept: Option<Format>,
    /// The body.
    pub body: Bytes,
    /// Whether the client wants later versions of the representation too (RFC 7641).
    pub observes: bool,
    /// The classes of responses that the client does not want, as the bits of RFC 7967: 2 for success, 8
    /// for errors of the client, 16 for errors of the server.
    pub no_response: u8,
}

impl Request {
    /// Creates a request without a body.
    #[must_use]
    pub fn new(code: Code, path: impl Into<String>) -> Self {
        Self {
            code,
            path: path.into(),
            query: Vec::new(),
            format: None,
            accept: None,
            body: Bytes::new(),
            observes: false,
            no_response: 0,
        }
    }

    /// Adds a body.
    #[must_use]
    pub fn with_body(self, format: Format, body: impl Into<Bytes>) -> Self {
        Self { format: Some(format), body: body.into(), ..self }
    }

    /// Returns the value of an argument.
    #[must_use]
    pub fn argument(&self, name: &str) -> Option<&str> {
        self.query.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }

    /// Reads the options of a request, without its body.
    ///
    /// # Errors
    /// `BAD_OPTION` if a path or an argument is not text, a segment of the path contains a slash, or
    /// the path and the arguments have more than [`MAX_PARTS`] parts or [`MAX_RESOURCE`] bytes.
    pub(super) fn of(message: &Message) -> Result<Self, Code> {
        let options = &message.options;
        let parts = options.all(Number::URI_PATH).chain(options.all(Number::URI_QUERY));
        let (count, length) =
            parts.fold((0, 0), |(count, length), part| (count + 1, length + part.len() + 1));
        if count > MAX_PARTS || length > MAX_RESOURCE {
            return Err(Code::BAD_OPTION);
        }
        let text = |value: &Bytes| String::from_utf8(value.to_vec()).map_err(|_| Code::BAD_OPTION);
        let mut request = Self::new(message.code, String::new());
        for segment in options.all(Number::URI_PATH) {
            if segment.contains(&b'/') {
                return Err(Code::BAD_OPTION);
            }
            request.path.push('/');
            request.path.push_str(&text(segment)?);
        }
        if request.path.is_empty() {
            request.path.push('/');
        }
        request.query = options.all(Number::URI_QUERY).map(text).collect::<Result<_, _>>()?;
        request.format = options.format();
        let accept = options.uint(Number::ACCEPT).and_then(|value| u16::try_from(value).ok());
        request.accept = accept.map(Format);
        request.observes = message.code == Code::GET && options.uint(Number::OBSERVE) == Some(0);
        let suppressed = options.uint(Number::NO_RESPONSE).unwrap_or_default();
        request.no_response = u8::try_from(suppressed).unwrap_or_default();
        Ok(request)
    }

    /// Writes the options of the request, without those of blocks.
    pub(super) fn write(&self, options: &mut Options) {
        for segment in self.path.split('/').filter(|segment| !segment.is_empty()) {
            options.add(Number::URI_PATH, segment.to_owned());
        }
        for argument in &self.query {
            options.add(Number::URI_QUERY, argument.clone());
        }
        if let Some(format) = self.format {
            options.add_uint(Number::CONTENT_FORMAT, format.0.into());
        }
        if let Some(accept) = self.accept {
            options.add_uint(Number::ACCEPT, accept.0.into());
        }
        if self.no_response != 0 {
            options.add_uint(Number::NO_RESPONSE, self.no_response.into());
        }
    }

    /// Returns what identifies the representation that the request asks for, for a client and the tag
    /// of the request.
    pub(super) fn key(&self, owner: Owner, tag: Bytes) -> Key {
        let (code, resource, accept) = (self.code, self.resource(), self.accept);
        Key { owner, code, resource, accept, tag }
    }

    /// Returns the path and the arguments.
    fn resource(&self) -> String {
        let length = self.query.iter().map(|argument| argument.len() + 1).sum::<usize>();
        let mut key = String::with_capacity(self.path.len() + length);
        key.push_str(&self.path);
        for argument in &self.query {
            // No path and no argument contains this byte, because both are text.
            key.push('\0');
            key.push_str(argument);
        }
        key
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The code.
    pub code: Code,
    /// The format of the body.
    pub format: Option<Format>,
    /// The version of the representation.
    pub etag: Option<Bytes>,
    /// How long the response is fresh, in seconds; 60 if absent.
    pub max_age: Option<u32>,
    /// The body.
    pub body: Bytes,
    /// Whether the server registers the observer that the request asks for.
    pub accepts_observer: bool,
    /// Whether new versions follow at intervals and a lost one does not matter. Notifications are then
    /// not confirmable, except for the first one, every
    /// [`CONFIRMED`](super::endpoint::CONFIRMED)th one and one a day, and a path has at most
    /// [`PERIODIC_OBSERVERS`](super::endpoint::PERIODIC_OBSERVERS) observers.
    pub is_periodic: bool,
}

impl Response {
    /// Creates a response without a body.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self {
            code,
            format: None,
            etag: None,
            max_age: None,
            body: Bytes::new(),
            accepts_observer: false,
            is_periodic: false,
        }
    }

    /// Creates a response with a representation.
    #[must_use]
    pub fn content(format: Format, body: impl Into<Bytes>) -> Self {
        Self { format: Some(format), body: body.into(), ..Self::new(Code::CONTENT) }
    }

    /// Creates a response that reports an error, with a diagnostic message (RFC 7252, section 5.5.2).
    #[must_use]
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self { body: Bytes::from(message.into()), ..Self::new(code) }
    }

    /// Reads the options of a response, without its body.
    pub(super) fn of(message: &Message) -> Self {
        let options = &message.options;
        Self {
            code: message.code,
            format: options.format(),
            etag: options.first(Number::ETAG).cloned(),
            max_age: options.uint(Number::MAX_AGE),
            body: Bytes::new(),
            accepts_observer: options.first(Number::OBSERVE).is_some(),
            is_periodic: false,
        }
    }

    /// Writes the options of the response, without those of blocks and observers.
    pub(super) fn write(&self, options: &mut Options) {
        if let Some(format) = self.format {
            options.add_uint(Number::CONTENT_FORMAT, format.0.into());
        }
        if let Some(etag) = &self.etag {
            options.add(Number::ETAG, etag.clone());
        }
        if let Some(max_age) = self.max_age {
            options.add_uint(Number::MAX_AGE, max_age);
        }
    }
}

/// An own request to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// The peer.
    pub peer: Peer,
    /// The number of the request.
    pub number: u64,
}

/// A request of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExchangeId {
    /// The peer.
    pub peer: Peer,
    /// The number of the request.
    pub number: u64,
}

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The peer does not acknowledge the request or does not respond.
    NoResponse,
    /// The peer rejected the request with a reset.
    Reset,
    /// The response is longer than [`Config::response_limit`](super::config::Config::response_limit).
    ResponseTooLong,
    /// The response contradicts RFC 7959, or its representation changed repeatedly during the transfer.
    BadBlocks,
    /// The response has a critical option that this endpoint does not support.
    BadOption,
    /// Too many requests to the peer wait for their responses.
    Busy,
    /// The peer's session ended.
    SessionEnded,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoResponse => "there is no response",
            Self::Reset => "the request was rejected with a reset: there is no CoAP server",
            Self::ResponseTooLong => "the response is too long",
            Self::BadBlocks => "the blocks of the response do not fit together",
            Self::BadOption => "the response has a critical option that is not supported",
            Self::Busy => "too many requests wait for their responses",
            Self::SessionEnded => "the DTLS session ended",
        })
    }
}

impl std::error::Error for RequestError {}

impl RequestError {
    /// Returns the error's name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoResponse => "NoResponse",
            Self::Reset => "Reset",
            Self::ResponseTooLong => "ResponseTooLong",
            Self::BadBlocks => "BadBlocks",
            Self::BadOption => "BadOption",
            Self::Busy => "Busy",
            Self::SessionEnded => "SessionEnded",
        }
    }

    /// Returns [`ErrorKind::Unreachable`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Unreachable
    }
}

moteseal_api::named_error!(RequestError);
