//! The cloud over CoAP: the paths of the HTTP contract, and the short paths `/bundles` and `/events`.
//! A request is passed to the same routes as a request over HTTP, so that the same limits, checks and
//! metrics apply. A device whose session proved its identity may upload its own seals and events, and
//! nothing else. A client certificate has the rights of its user. Other clients have the rights of HTTP
//! clients without a credential.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Method};
use http_body_util::{BodyExt as _, Limited};
use moteseal_api::{CBOR_SEQ, COSE, ErrorKind, JSON, paths};
use moteseal_core::record::DeviceId;
use moteseal_net::coap::{
    Code, Config, ExchangeId, Format, Handle, Limits, Owner, Peer as CoapPeer, Proven, Request,
    Response, Security, Service, Socket, refused_by,
};
use moteseal_service::{ClientKey, Peer, Pool};
use tower::ServiceExt as _;

use crate::state::Shared;

/// The maximum length of the body of an upload over CoAP, in bytes. Longer uploads take HTTP.
const MAX_UPLOAD: usize = 16 << 20;
/// The maximum length of the body of another request, in bytes.
const MAX_REQUEST: usize = 64 << 10;
/// The maximum total length of the bodies of the requests in progress, and of the responses that are
/// prepared, in KiB. One request may always have the longest body.
const IN_PROGRESS: u64 = 4 * (MAX_UPLOAD as u64 >> 10);
/// The part of it that one address may use while less than half is free, in percent.
const SHARE: u8 = 25;
/// The memory for a request in progress in addition to its body, in KiB.
const OVERHEAD: u64 = 16;
/// The maximum length of a response over CoAP, in bytes.
const MAX_RESPONSE: usize = 1 << 20;
/// The short paths, and the paths of the HTTP contract for which they stand.
const SHORT: [(&str, &str); 2] = [("/bundles", paths::BUNDLES), ("/events", paths::EVENTS)];
/// The resources of this server (RFC 6690).
const LINKS: &str = "</bundles>;rt=\"moteseal.bundles\";ct=63,</events>;rt=\"moteseal.events\";ct=63,\
                     </v1/devices>;rt=\"moteseal.devices\";ct=50";

/// Where a cloud listens for CoAP.
#[derive(Default)]
pub struct Listen {
    /// The address without DTLS.
    pub coap: Option<SocketAddr>,
    /// The address with DTLS, and its sessions.
    pub coaps: Option<(SocketAddr, Security)>,
}

impl std::fmt::Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listen").field("coap", &self.coap).finish_non_exhaustive()
    }
}

/// An address on which the cloud cannot listen for CoAP.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for CoAP on {address}: {error}")]
pub struct CoapError {
    /// The address.
    pub address: SocketAddr,
    /// The operating system's error.
    pub error: std::io::Error,
}

impl CoapError {
    /// Returns the error's name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "BadAddress"
    }

    /// Returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

/// The device that a DTLS session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionDevice(pub(crate) DeviceId);

/// The sockets of a cloud, and their addresses.
#[derive(Default)]
pub(crate) struct Sockets {
    pub(crate) urls: Vec<String>,
    sockets: Vec<Socket>,
    /// The requests that were refused because too many were in progress.
    busy: Arc<AtomicU64>,
}

impl Sockets {
    /// Returns what the sockets refused or dropped, by name.
    pub(crate) fn refused(&self) -> Vec<(&'static str, u64)> {
        if self.sockets.is_empty() {
            return Vec::new();
        }
        let mut refused = refused_by(self.sockets.iter().map(Socket::handle));
        refused.push(("Busy", self.busy.load(Ordering::Relaxed)));
        refused
    }
}

impl Listen {
    /// Listens, and serves requests by `router` until the returned value is dropped.
    pub(crate) fn open(self, shared: &Arc<Shared>, router: &Router) -> Result<Sockets, CoapError> {
        let plain = self.coap.map(|address| ("coap", address, Security::Plain));
        let secure = self.coaps.map(|(address, security)| ("coaps", address, security));
        let most = MAX_UPLOAD.min(shared.limits.body_bytes);
        let (mut urls, mut sockets) = (Vec::new(), Vec::new());
        let pool = || Pool::new(IN_PROGRESS, SHARE, 1);
        let (room, responses) = (pool(), pool());
        let busy = Arc::<AtomicU64>::default();
        for (scheme, address, security) in plain.into_iter().chain(secure) {
            let config = Config {
                body_limit: Arc::new(move |code, path| match code {
                    Code::PUT | Code::POST if http_path(path).is_some_and(is_upload) => most,
                    _ => MAX_REQUEST,
                }),
                limits: Limits { upload_bytes: 4 * most, ..Limits::default() },
                ..Config::default()
            };
            let socket = Socket::listen(address, security, config, |handle| {
                let (room, responses) = (Arc::clone(&room), Arc::clone(&responses));
                let (router, handle, busy) = (router.clone(), handle.clone(), Arc::clone(&busy));
                Box::new(Requests { router, handle, keys: HashMap::new(), room, responses, busy })
            });
            let socket = socket.map_err(|error| CoapError { address, error })?;
            urls.push(format!("{scheme}://{}", socket.handle().address()));
            sockets.push(socket);
        }
        Ok(Sockets { urls, sockets, busy })
    }
}

fn is_upload(path: &str) -> bool {
    matches!(path, paths::BUNDLES | paths::EVENTS | paths::MANIFESTS)
}

/// Returns the path of the HTTP contract for a path over CoAP.
fn http_path(path: &str) -> Option<&str> {
    let short = SHORT.iter().find(|(short, _)| *short == path);
    short.map(|(_, path)| *path).or_else(|| path.starts_with("/v1/").then_some(path))
}

/// Passes requests to the routes.
struct Requests {
    router: Router,
    handle: Handle,
    /// The keys of the certificates of clients, for each DTLS session that has one.
    keys: HashMap<CoapPeer, ClientKey>,
    /// Room for the requests in progress, in KiB.
    room: Arc<Pool>,
    /// Room for the responses that are prepared, in KiB.
    responses: Arc<Pool>,
    /// The number of requests for which there was no room.
    busy: Arc<AtomicU64>,
}

impl Service for Requests {
    fn request(&mut self, id: ExchangeId, owner: Owner, request: Request) -> Option<Response> {
        if request.path == "/.well-known/core" {
            return Some(match request.code {
                Code::GET => Response::content(Format::LINKS, LINKS),
                _ => Response::new(Code::METHOD_NOT_ALLOWED),
            });
        }
        let method = match request.code {
            Code::GET => Method::GET,
            Code::PUT => Method::PUT,
            // CoAP clients post events and bundles, too: both are idempotent.
            Code::POST if http_path(&request.path).is_some_and(is_upload) => Method::PUT,
            Code::POST => Method::POST,
            _ => return Some(Response::new(Code::METHOD_NOT_ALLOWED)),
        };
        let Some(path) = http_path(&request.path) else {
            return Some(Response::error(
                Code::NOT_FOUND,
                "there is nothing at this path; /.well-known/core lists the paths",
            ));
        };
        let (peer, size) =
            (Peer::from(id.peer.address.ip()), (request.body.len() as u64 >> 10) + OVERHEAD);
        let Some(room) = self.room.take(peer, size) else {
            self.busy.fetch_add(1, Ordering::Relaxed);
            let text = "too many requests are in progress; try again shortly";
            let busy = Response::error(Code::SERVICE_UNAVAILABLE, text);
            return Some(Response { max_age: Some(1), ..busy });
        };
        let Some(mut http) = to_http(path, method, id, owner, &request) else {
            return Some(Response::new(Code::BAD_OPTION));
        };
        if let Some(key) = self.keys.get(&id.peer) {
            http.extensions_mut().insert(*key);
        }
        let (router, handle) = (self.router.clone(), self.handle.clone());
        let responses = Arc::clone(&self.responses);
        tokio::spawn(async move {
            // The routes answer every request.
            let Ok(response) = router.oneshot(http).await;
            let _room = responses.wait(peer, MAX_RESPONSE as u64 >> 10).await;
            handle.respond(id, to_coap(response, request.code == Code::GET).await).await;
            drop(room);
        });
        None
    }

    fn opened(&mut self, peer: CoapPeer, proven: Proven) {
        self.keys.extend(proven.key.map(|key| (peer, ClientKey(key))));
    }

    fn closed(&mut self, peer: CoapPeer) {
        self.keys.remove(&peer);
    }
}

/// Returns the request over HTTP, or `None` if the path or an argument has characters that a URI does
/// not have.
fn to_http(
    path: &str,
    method: Method,
    id: ExchangeId,
    owner: Owner,
    request: &Request,
) -> Option<axum::http::Request<Body>> {
    let uri = if request.query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", request.query.join("&"))
    };
    let mut http = axum::http::Request::builder().method(method).uri(uri);
    if let Some(format) = request.format {
        let media_type = match format {
            Format::CBOR_SEQ => CBOR_SEQ,
            Format::JSON => JSON,
            Format::OCTETS => "application/octet-stream",
            Format::COSE_SIGN1 => COSE,
            _ => "application/x-unknown",
        };
        http = http.header(CONTENT_TYPE, media_type);
    }
    let mut http = http.body(Body::from(request.body.clone())).ok()?;
    http.extensions_mut().insert(Peer::from(id.peer.address.ip()));
    if let Owner::Device(device) = owner {
        http.extensions_mut().insert(SessionDevice(DeviceId(device)));
    }
    Some(http)
}

/// Returns the response over CoAP. A problem is sent as JSON.
async fn to_coap(response: axum::http::Response<Body>, is_get: bool) -> Response {
    let (head, body) = response.into_parts();
    let Ok(body) = Limited::new(body, MAX_RESPONSE).collect().await else {
        let text =
            format!("the response has more than {MAX_RESPONSE} bytes; use HTTP, or ask for less");
        return Response::error(Code::REQUEST_ENTITY_TOO_LARGE, text);
    };
    let status = head.status.as_u16();
    let code = match status {
        200..300 if is_get || head.headers.contains_key(CONTENT_TYPE) => Code::CONTENT,
        status => Code::of_http(status),
    };
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let media_type = head.headers.get(CONTENT_TYPE).map(text).unwrap_or_default();
    let format = match media_type.split(';').next().unwrap_or_default() {
        CBOR_SEQ => Some(Format::CBOR_SEQ),
        JSON | "application/problem+json" => Some(Format::JSON),
        "text/plain" => Some(Format::TEXT),
        _ => None,
    };
    let wait = head.headers.get(RETRY_AFTER).map(text).and_then(|seconds| seconds.parse().ok());
    Response { format, max_age: wait, body: body.to_bytes(), ..Response::new(code) }
}
