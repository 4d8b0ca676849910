//! Reads a device's newest reading, or its newest urgent events, from the device itself, over CoAP, and
//! verifies the signatures (spec/objects.md, sections 7 and 7.2; spec/sensors.md).
//!
//! [`check`] and [`Events`] verify bytes and do no I/O. [`Source`] gets them from a device. A signed reading
//! proves that the device made it. It does not prove that there is no newer one, which only the
//! epoch's seal shows. It does not prove that it is the one that was asked for: check this with
//! [`Expected`]. Pin the newest reading of each device, so that an earlier one is refused.

mod events;

use std::net::SocketAddr;
use std::time::Duration;
#[cfg(feature = "tls")]
use std::time::Instant;

use bytes::Bytes;
use moteseal_api::ErrorKind;
use moteseal_core::record::DeviceId;
use moteseal_net::LinkError;
use moteseal_net::coap::config::Config;
use moteseal_net::coap::socket::NoService;
#[cfg(feature = "tls")]
use moteseal_net::coap::socket::Status;
use moteseal_net::coap::{
    Address, Code, Format, Observation, Request, RequestError, Response, Security, Socket, To,
    first_responding,
};
#[cfg(feature = "tls")]
use moteseal_net::dtls;
use moteseal_net::mqtt::Backoff;
use moteseal_verify::Roster;
use moteseal_verify::reading::{MULTIPART, Reading, ReadingError};
use moteseal_verify::urgent::{Urgent, UrgentStreamError};

pub use events::{Events, NewEvents};

use crate::pinned::{OlderReading, PinnedReading, PinnedSeals};

/// How long a response may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long after the end of its freshness an observed reading may be late before it is requested
/// again (RFC 7641, section 3.3.1).
const LATE: Duration = Duration::from_secs(5);
/// How long a response without that information is fresh (RFC 7252, section 5.10.5).
const FRESH: u32 = 60;
/// The maximum length of a response, in bytes.
const MAX_RESPONSE: usize = 1 << 20;
/// The first byte of a stream of urgent events, which begins with a schema item.
const SCHEMA: u8 = 0x82;
/// The content format of a JSON object.
const JSON: u16 = 50;
/// The content format of a SenML pack in JSON.
const SENML_JSON: u16 = 110;

/// Why there is no verified reading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// The address is invalid, or its host is not known.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// There is no socket.
    #[error("cannot open a socket: {0}")]
    Socket(#[from] std::io::Error),
    /// The device does not respond.
    #[error("{url}: {error}")]
    Request {
        /// The address.
        url: String,
        /// The cause.
        error: RequestError,
    },
    /// There is no DTLS session.
    #[cfg(feature = "tls")]
    #[error("{url}: {error}")]
    Session {
        /// The address.
        url: String,
        /// The cause.
        error: dtls::DtlsError,
    },
    /// The device responded with an error.
    #[error("{url} responded with {code}{}{message}", if message.is_empty() { "" } else { ": " })]
    NoReading {
        /// The address.
        url: String,
        /// The response code.
        code: Code,
        /// The device's message, without control characters.
        message: String,
    },
    /// The response is not a record of health.
    #[error("{url}: the response is not a record of health: {cause}")]
    Health {
        /// The address.
        url: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The response is not a signed reading of the group.
    #[error("{0}")]
    Rejected(#[from] ReadingError),
    /// The response is not a stream of signed urgent events of the group.
    #[error("{0}")]
    Event(#[from] UrgentStreamError),
    /// The response has an authentic reading, but not the one that was asked for.
    #[error("the response has a reading of {found}, not of {expected}; somebody has replaced it")]
    OtherReading {
        /// Whose reading, or which values, the response has.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// The client has verified a newer reading of the device.
    #[error(transparent)]
    Older(#[from] OlderReading),
}

impl GetError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Link(error) => error.name(),
            Self::Socket(_) => "Internal",
            Self::Request { error, .. } => error.name(),
            #[cfg(feature = "tls")]
            Self::Session { error, .. } => error.name(),
            Self::NoReading { .. } => "NoReading",
            Self::Health { .. } => "BadHealth",
            Self::Rejected(error) => error.name(),
            Self::Event(error) => error.name(),
            Self::OtherReading { .. } => "OtherReading",
            Self::Older(error) => error.name(),
        }
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Link(error) => error.kind(),
            Self::Socket(_) => ErrorKind::Internal,
            Self::Request { error, .. } => error.kind(),
            #[cfg(feature = "tls")]
            Self::Session { error, .. } => error.kind(),
            // The device has no reading yet, or cannot sign one at the moment.
            Self::NoReading { code, .. } if code.class() == 5 => ErrorKind::Unreachable,
            Self::NoReading { .. } | Self::Health { .. } => ErrorKind::Usage,
            Self::Rejected(_) | Self::Event(_) | Self::OtherReading { .. } => ErrorKind::Refused,
            Self::Older(error) => error.kind(),
        }
    }
}

moteseal_api::named_error!(GetError);

/// A response with a reading or urgent events that are not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unverified {
    /// The content format.
    pub format: u16,
    /// The bytes.
    pub bytes: Bytes,
    /// How long the response is fresh, in seconds, if the server stated it.
    pub max_age: Option<u32>,
}

impl Unverified {
    /// Returns the response that was saved in a file. The first byte shows the content format.
    #[must_use]
    pub fn of_file(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let format = match bytes.first() {
            Some(b'{') => JSON,
            Some(b'[') => SENML_JSON,
            Some(&SCHEMA) => Format::CBOR_SEQ.0,
            _ => MULTIPART,
        };
        Self { format, bytes, max_age: None }
    }
}

/// Verifies a response. With `pinned`, also checks that the client has not verified a newer reading
/// of the device, and pins the reading.
///
/// # Errors
/// `Rejected` or `Older`.
pub fn check(
    response: &Unverified,
    roster: &Roster,
    pinned: Option<&mut PinnedSeals>,
) -> Result<Reading, GetError> {
    let reading = Reading::open(response.format, &response.bytes, roster)?;
    if let Some(pinned) = pinned {
        let Reading { device, index, epoch, seq, .. } = reading;
        pinned.check_reading(roster, device, PinnedReading { index, epoch, seq })?;
    }
    Ok(reading)
}

/// Which reading a client has asked for. Without this check, a party between the client and the device
/// could answer with another signed reading of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The device, if the client knows it.
    pub device: Option<DeviceId>,
    /// The name of the only value, for `/sensors/NAME`.
    pub value: Option<String>,
}

impl Expected {
    /// Returns what the response to a request for this address must have.
    #[must_use]
    pub fn of(address: &Address, device: Option<DeviceId>) -> Self {
        let value = address.path().strip_prefix("/sensors/").map(str::to_owned);
        Self { device, value }
    }

    /// Checks that a reading is the one that was asked for.
    ///
    /// # Errors
    /// `OtherReading`.
    pub fn check(&self, reading: &Reading, roster: &Roster) -> Result<(), GetError> {
        self.check_device(reading.device, roster)?;
        let mut values = reading.pack.values.iter().map(|value| &*value.name);
        let Some(expected) = &self.value else { return Ok(()) };
        if values.next() == Some(expected) && values.next().is_none() {
            return Ok(());
        }
        let names: Vec<&str> = reading.pack.values.iter().map(|value| &*value.name).collect();
        Err(GetError::OtherReading { found: names.join(", "), expected: expected.clone() })
    }

    fn check_device(&self, found: DeviceId, roster: &Roster) -> Result<(), GetError> {
        let name = |device: DeviceId| {
            let known = roster.device(device).map(|device| device.name.clone());
            known.unwrap_or_else(|| device.to_string())
        };
        match self.device {
            Some(expected) if expected != found => {
                Err(GetError::OtherReading { found: name(found), expected: name(expected) })
            }
            _ => Ok(()),
        }
    }

    /// Checks that urgent events are what was asked for.
    fn check_events(&self, events: &[Urgent], roster: &Roster) -> Result<(), GetError> {
        if let Some(expected) = &self.value {
            let (found, expected) = ("urgent events".to_owned(), expected.clone());
            return Err(GetError::OtherReading { found, expected });
        }
        events.iter().try_for_each(|event| self.check_device(event.device(), roster))
    }
}

/// How a client authenticates itself and the device.
#[derive(Debug)]
#[non_exhaustive]
pub enum Credentials {
    /// Not at all: the address is `coap`.
    None,
    /// By a key that is derived from the device's link secret: the address is `coaps`.
    #[cfg(feature = "tls")]
    Psk(dtls::Psk),
}

impl Credentials {
    /// Returns the protection of a socket for this server.
    #[cfg_attr(not(feature = "tls"), allow(unused_variables))]
    fn security(&self, address: &Address, server: SocketAddr) -> Result<Security, GetError> {
        match self {
            Self::None if address.is_secure => Err(LinkError::BadAddress {
                url: address.url().to_owned(),
                cause: "there are no credentials for DTLS".to_owned(),
                example: "coap://sensor.example/sensors",
            }
            .into()),
            Self::None => Ok(Security::Plain),
            #[cfg(feature = "tls")]
            Self::Psk(psk) => {
                let config = dtls::ClientConfig::psk(psk.clone());
                let client = dtls::Client::new(config, server, Instant::now());
                let client = client.map_err(|error| {
                    let url = address.url().to_owned();
                    GetError::Session { url, error }
                })?;
                Ok(Security::Client(Box::new(client)))
            }
        }
    }
}

/// A device's resource with a reading or urgent events.
#[derive(Debug)]
pub struct Source {
    address: Address,
    socket: Socket,
    observation: Option<Observation>,
    /// How long the newest response is fresh.
    fresh: Duration,
}

impl Source {
    /// Opens a socket for a resource such as `coap://sensor.example/sensors`. Sends nothing yet, unless
    /// the host has several addresses: then uses the first that responds.
    ///
    /// # Errors
    /// `Link`, `Session` or `Socket`; `Request` if none of several addresses responds.
    pub async fn new(address: Address, credentials: Credentials) -> Result<Self, GetError> {
        let addresses = address.resolve().await?;
        let server_name = address.server_name();
        let config = Config { response_limit: MAX_RESPONSE, server_name, ..Config::default() };
        let no_service = |_: &_| Box::new(NoService) as _;
        let open = |server| -> Result<Socket, GetError> {
            let security = credentials.security(&address, server)?;
            let config = config.clone();
            Ok(Socket::connect(server, security, Backoff::default(), config, no_service)?)
        };
        let request = Request::new(Code::GET, "/.well-known/core");
        let found = first_responding(&addresses, 0, &request, open).await?;
        let Some(socket) = found else {
            let (url, error) = (address.url().to_owned(), RequestError::NoResponse);
            return Err(GetError::Request { url, error });
        };
        Ok(Self { address, socket, observation: None, fresh: Duration::ZERO })
    }

    /// Gets the newest reading.
    ///
    /// # Errors
    /// `Request` or `NoReading`.
    pub async fn get(&self) -> Result<Unverified, GetError> {
        self.requested(self.address.request()).await
    }

    /// Gets another resource of the same server, also while this one is observed. The server knows the
    /// address of an observer, and sends it longer blocks than to a new socket.
    pub(crate) async fn get_other(&self, path: &str) -> Result<Unverified, GetError> {
        self.requested(Request::new(Code::GET, path)).await
    }

    async fn requested(&self, request: Request) -> Result<Unverified, GetError> {
        let got = self.socket.handle().request(To::Server, request, PATIENCE).await;
        self.response(got).map(|(response, _)| response)
    }

    /// Waits for the next reading. The first call returns the newest one. If the device reports none
    /// for longer than its readings are fresh, it is asked again.
    ///
    /// # Errors
    /// `Request` or `NoReading`.
    pub async fn next(&mut self) -> Result<Unverified, GetError> {
        loop {
            // If this future is dropped, the next call begins another observation.
            let mut observation = match self.observation.take() {
                Some(observation) => observation,
                None => {
                    let request = Request { observes: true, ..self.address.request() };
                    let observed = self.socket.handle().observe(To::Server, request).await;
                    observed.map_err(|error| self.failed(error))?
                }
            };
            let wait = if self.fresh.is_zero() { PATIENCE } else { self.fresh + LATE };
            let Ok(next) = tokio::time::timeout(wait, observation.next()).await else {
                if std::mem::take(&mut self.fresh).is_zero() {
                    return Err(self.failed(RequestError::NoResponse));
                }
                continue;
            };
            let next = next.unwrap_or(Err(RequestError::SessionEnded));
            let (response, fresh) = self.response(next)?;
            (self.observation, self.fresh) = (Some(observation), fresh);
            return Ok(response);
        }
    }

    fn failed(&self, error: RequestError) -> GetError {
        let url = self.address.url().to_owned();
        #[cfg(feature = "tls")]
        if let Status::Down { error, .. } = &*self.socket.handle().status().borrow() {
            return GetError::Session { url, error: error.clone() };
        }
        GetError::Request { url, error }
    }

    /// Returns the representation of a response, and how long it is fresh.
    fn response(
        &self,
        got: Result<Response, RequestError>,
    ) -> Result<(Unverified, Duration), GetError> {
        let response = got.map_err(|error| self.failed(error))?;
        if response.code != Code::CONTENT {
            let text = String::from_utf8_lossy(&response.body);
            let message = text.chars().filter(|char| !char.is_control()).take(200).collect();
            let url = self.address.url().to_owned();
            return Err(GetError::NoReading { url, code: response.code, message });
        }
        let fresh = Duration::from_secs(response.max_age.unwrap_or(FRESH).max(1).into());
        // A response without a content format is none of a reading.
        let format = response.format.map_or(u16::MAX, |format| format.0);
        Ok((Unverified { format, bytes: response.body, max_age: response.max_age }, fresh))
    }
}
