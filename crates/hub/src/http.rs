//! Messages by HTTP POST. The response 204 is sent after the reading is durable.
//!
//! Requests of web pages are refused: a page of any site could otherwise make the browser of a person
//! in this network send readings. Browsers state the page's site in the header `Origin`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, HeaderValue, ORIGIN};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use moteseal_service::monitor::text;
use moteseal_service::{ConnectionLimits, ListenError, Listener};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::intake::Intake;
use crate::line::{Done, MAX_LINE, Outcome};

/// The limits of the listener.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 256,
    peer_percent: 50,
    head_time: Duration::from_secs(10),
    head_bytes: 16 << 10,
    connection_time: None,
    write_stall: Duration::from_secs(30),
    write_rate: 1 << 10,
    stop_time: Duration::from_secs(2),
};
/// How long a client may take to send a message.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The listener of all sources that receive messages by HTTP.
pub(crate) struct Http {
    listener: Listener,
    routes: HashMap<String, Arc<Intake>>,
    /// The value of the header `Authorization` that clients must send.
    token: Option<Zeroizing<String>>,
}

impl Http {
    /// Listens on an address. If there is a token, clients must send it.
    ///
    /// # Errors
    /// [`ListenError`].
    pub(crate) async fn bind(
        address: SocketAddr,
        token: Option<Zeroizing<String>>,
    ) -> Result<Self, ListenError> {
        let listener = Listener::bind(address, None).await?;
        Ok(Self { listener, routes: HashMap::new(), token })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    pub(crate) fn add(&mut self, path: String, intake: &Arc<Intake>) {
        self.routes.insert(path, Arc::clone(intake));
    }

    /// Serves until the future is dropped.
    pub(crate) async fn run(self) {
        let shared = Arc::new((self.routes, self.token));
        let service = service_fn(move |request: Request<Incoming>| {
            let shared = Arc::clone(&shared);
            async move {
                let (routes, token) = &*shared;
                Ok::<_, Infallible>(respond(request, routes, token.as_ref()).await)
            }
        });
        self.listener.serve(service, &LIMITS, None, std::future::pending()).await;
    }
}

async fn respond(
    request: Request<Incoming>,
    routes: &HashMap<String, Arc<Intake>>,
    token: Option<&Zeroizing<String>>,
) -> Response<Full<Bytes>> {
    if request.headers().contains_key(ORIGIN) {
        return text(StatusCode::FORBIDDEN, "web pages cannot send readings\n");
    }
    if let Some(token) = token {
        let sent = request.headers().get(AUTHORIZATION).and_then(|sent| sent.to_str().ok());
        let sent = sent.and_then(|sent| sent.strip_prefix("Bearer ")).unwrap_or_default();
        if !bool::from(sent.as_bytes().ct_eq(token.as_bytes())) {
            return text(StatusCode::UNAUTHORIZED, "send the header Authorization: Bearer TOKEN\n");
        }
    }
    let Some(intake) = routes.get(request.uri().path()) else {
        return text(StatusCode::NOT_FOUND, "no source has this path\n");
    };
    if *request.method() != Method::POST {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "use POST\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let body = Limited::new(request.into_body(), MAX_LINE).collect();
    let Ok(Ok(body)) = tokio::time::timeout(BODY_TIME, body).await else {
        return text(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("send a message of at most {MAX_LINE} bytes within 30 s\n"),
        );
    };
    let (done, outcome) = Done::new();
    intake.take(&body.to_bytes(), done).await;
    match outcome.await {
        Ok(Outcome::Durable | Outcome::Ignored) => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Ok(Outcome::Refused(why)) => text(StatusCode::UNPROCESSABLE_ENTITY, format!("{why}\n")),
        Ok(Outcome::Stopped) => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the device cannot continue; the log of the hub says why\n",
        ),
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "not recorded; send it again later\n"),
    }
}
