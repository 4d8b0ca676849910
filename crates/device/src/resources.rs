//! The resources of a device for clients of CoAP (spec/sensors.md): its newest reading below
//! [`SENSORS`](crate::sensors::SENSORS), its newest urgent events ([`EVENT`]), the seals of its newest
//! epoch that has ended ([`SEAL`]), and the list of these resources ([`CORE`]).
//!
//! [`Resources`] answers requests and does no I/O. Only readings are signed when they are requested;
//! events and seals were signed before.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use moteseal_core::signature::Signer;
use moteseal_net::coap::links::{self, Link};
use moteseal_net::coap::{Code, Format, Request, Response};
use moteseal_verify::{Roster, write};
use sha2::{Digest as _, Sha256};

use crate::durable::SignedEvent;
use crate::mote::{EndedEpoch, MAX_ENDED};
use crate::sensors::{Sensed, Sensors};

/// The path of the list of resources (RFC 6690).
pub const CORE: &str = "/.well-known/core";
/// The path of the newest urgent events.
pub const EVENT: &str = "/event";
/// The path of the seals of the newest epoch that has ended.
pub const SEAL: &str = "/seal";
/// How long the representations of events and seals are fresh, in seconds. An observer that hears
/// nothing for longer renews its registration, so that it notices a device that has restarted.
const FRESH: u32 = 60;

/// A representation and its version.
#[derive(Clone, Debug)]
struct Version {
    body: Bytes,
    etag: Bytes,
}

impl Version {
    fn new(body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let etag = Bytes::copy_from_slice(&Sha256::digest(&body)[..8]);
        Self { body, etag }
    }

    fn response(&self, format: Format, request: &Request) -> Response {
        Response {
            etag: Some(self.etag.clone()),
            max_age: Some(FRESH),
            accepts_observer: request.observes,
            ..Response::content(format, self.body.clone())
        }
    }
}

/// The resources of a device.
#[derive(Debug)]
pub struct Resources<K> {
    sensors: Sensors<K>,
    /// The stream of the newest urgent events.
    events: Version,
    /// The newest urgent event.
    event: Option<Version>,
    /// The seals of the newest epoch that has ended, or why there are none.
    seals: Result<Version, String>,
    /// The links to the resources of others on the same sockets.
    others: Vec<Link>,
}

impl<K: Signer> Resources<K> {
    /// Creates the resources of a device without an event and a seal.
    #[must_use]
    pub fn new(sensors: Sensors<K>) -> Self {
        let events = Version::new(stream(sensors.schema(), &[]));
        Self { sensors, events, event: None, seals: Err(no_epoch()), others: Vec::new() }
    }

    /// Adds links to resources that another service answers on the same sockets.
    #[must_use]
    pub fn with_links(self, others: impl IntoIterator<Item = Link>) -> Self {
        Self { others: others.into_iter().collect(), ..self }
    }

    /// Continues under a later version of the roster.
    pub fn load(&mut self, roster: &Roster) {
        self.sensors.load(roster);
    }

    /// Takes the newest reading. Returns the paths of the resources that have changed.
    pub fn take_reading(&mut self, now: Instant, sensed: Sensed) -> Vec<String> {
        self.sensors.take(now, sensed);
        self.sensors.paths().collect()
    }

    /// Takes the newest urgent events, oldest first. Returns the path of the resource that has changed.
    pub fn take_events(&mut self, events: &[SignedEvent]) -> Vec<String> {
        self.events = Version::new(stream(self.sensors.schema(), events));
        self.event = events.last().map(|newest| Version::new(newest.event.clone()));
        vec![EVENT.to_owned()]
    }

    /// Takes the newest epoch that has ended. Returns the path of the resource that has changed.
    pub fn take_ended(&mut self, ended: Option<&Arc<EndedEpoch>>) -> Vec<String> {
        self.seals = match ended.map(|ended| (ended.epoch, &ended.stream)) {
            Some((_, Some(stream))) => Ok(Version::new(stream.clone())),
            Some((epoch, None)) => Err(format!(
                "the seals of epoch {epoch} have more than {MAX_ENDED} bytes; get them from the cloud"
            )),
            None => Err(no_epoch()),
        };
        vec![SEAL.to_owned()]
    }

    /// Answers a request.
    pub fn respond(&mut self, now: Instant, request: &Request) -> Response {
        if let Some(response) = self.sensors.respond(now, request) {
            return response;
        }
        match request.path.as_str() {
            CORE | EVENT | SEAL if request.code != Code::GET => {
                Response::error(Code::METHOD_NOT_ALLOWED, "this resource can only be read")
            }
            CORE => Response::content(Format::LINKS, self.links(&request.query)),
            EVENT => self.event(request),
            SEAL => self.seal(request),
            _ => Response::new(Code::NOT_FOUND),
        }
    }

    /// Returns the links to the resources (RFC 6690), of which `query` selects some.
    #[must_use]
    pub fn links(&self, query: &[String]) -> String {
        let own = [
            Link::new(EVENT, "moteseal.event", "63 18", ""),
            Link::new(SEAL, "moteseal.seal", "63", ""),
        ];
        links::list(self.sensors.links().chain(own).chain(self.others.iter().cloned()), query)
    }

    fn event(&self, request: &Request) -> Response {
        match (request.accept, &self.event) {
            (None | Some(Format::CBOR_SEQ), _) => self.events.response(Format::CBOR_SEQ, request),
            (Some(Format::COSE_SIGN1), Some(event)) => event.response(Format::COSE_SIGN1, request),
            (Some(Format::COSE_SIGN1), None) => Response::error(
                Code::SERVICE_UNAVAILABLE,
                "there is no urgent event yet; request the format 63 to wait for one",
            ),
            _ => Response::error(Code::NOT_ACCEPTABLE, "the formats are 63 and 18"),
        }
    }

    fn seal(&self, request: &Request) -> Response {
        if request.accept.is_some_and(|accept| accept != Format::CBOR_SEQ) {
            return Response::error(Code::NOT_ACCEPTABLE, "the format is 63");
        }
        match &self.seals {
            Ok(seals) => seals.response(Format::CBOR_SEQ, request),
            Err(cause) => Response::error(Code::SERVICE_UNAVAILABLE, cause.as_str()),
        }
    }
}

fn no_epoch() -> String {
    "the device has no epoch that has ended since its start".to_owned()
}

/// Returns the stream of events (spec/answers.md, section 9). `schema` is the device's schema.
fn stream(schema: &[u8], events: &[SignedEvent]) -> Vec<u8> {
    let (mut out, mut newest) = (Vec::new(), None);
    if events.is_empty() {
        write::schema(&mut out, schema);
    }
    for event in events {
        if newest != Some(&event.schema) {
            write::schema(&mut out, &event.schema);
            newest = Some(&event.schema);
        }
        out.extend_from_slice(&event.event);
    }
    write::end(&mut out);
    out
}
