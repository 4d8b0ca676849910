//! The client of a cloud. A [`Client`] sends requests to one cloud over HTTP or CoAP, and receives each
//! response in chunks.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_api::{AFTER, JSON};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Url};

use crate::coap::Code;
use crate::credentials::{Credential, Identity};
use crate::error::{NetError, innermost};
#[cfg(feature = "tls")]
use crate::tls;

mod coap;

pub use coap::DeviceKey;

/// The maximum size of a problem document that is read, in bytes.
const MAX_PROBLEM: usize = 64 << 10;
/// The media type of problems (RFC 9457).
const PROBLEM_TYPE: &str = "application/problem+json";
/// The pause after a refused connection, while [`Options::patience`] is not over.
const PAUSE: Duration = Duration::from_millis(100);

/// The options for connecting to a cloud.
#[derive(Clone, Debug)]
pub struct Options {
    /// A PEM file of certificate authorities to trust in addition to the platform's.
    pub ca: Option<PathBuf>,
    /// The token or the password, for clouds that require one.
    pub credential: Option<Credential>,
    /// The client certificate, for clouds that require one. It needs `https` or `coaps`.
    pub identity: Option<Identity>,
    /// The key of a device, for `coaps`.
    pub device_key: Option<DeviceKey>,
    /// The timeout for establishing a connection.
    pub connect_timeout: Duration,
    /// How long the cloud may send no data before the connection counts as broken.
    pub idle_timeout: Duration,
    /// When to repeat a request for which the cloud was too busy.
    pub retry: Retry,
    /// How long to retry if the connection is refused, because the cloud may still be starting.
    pub patience: Duration,
    /// The position in the queue of a cloud with workers that an upload's receipt stated. A read waits until the
    /// workers have stored everything up to it.
    pub after: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ca: None,
            credential: None,
            identity: None,
            device_key: None,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            retry: Retry::default(),
            patience: Duration::ZERO,
            after: None,
        }
    }
}

/// When to repeat a request after the status 429 (Too Many Requests) or 503 (Service Unavailable).
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// The maximum number of attempts, including the first.
    pub attempts: u32,
    /// The wait after the first of these responses. Each further wait is twice as long. A longer
    /// `Retry-After` of the cloud takes precedence.
    pub first_wait: Duration,
    /// The maximum length of one wait.
    pub longest_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 6,
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(30),
        }
    }
}

impl Retry {
    /// Returns the wait after attempt `attempt` (from 1) was refused. `requested` is the cloud's
    /// `Retry-After`. `spread` is a random number in 0..1, so that clients do not all return at the
    /// same time.
    fn wait(&self, attempt: u32, requested: Option<Duration>, spread: f64) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << (attempt - 1).min(16));
        let own = doubled.min(self.longest_wait).mul_f64(0.5 + 0.5 * spread);
        own.max(requested.unwrap_or_default()).min(self.longest_wait)
    }
}

/// A client of one cloud. Cloning is cheap, and all clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    retry: Retry,
    patience: Duration,
    /// Whether the cloud has ever responded. After that, a refused connection is reported at once.
    has_responded: Arc<AtomicBool>,
}

/// What carries the requests of a client.
#[derive(Clone, Debug)]
enum Transport {
    Http { http: reqwest::Client, base: Url, authorization: Option<HeaderValue> },
    Coap(Arc<coap::Cloud>),
}

impl Client {
    /// Creates a client of the cloud at `base`, for example `http://127.0.0.1:8080`,
    /// `https://cloud.example/moteseal` or `coaps://cloud.example`.
    ///
    /// # Errors
    /// `BadAddress`, `BadFile`, `BadUser`, or `TokenInClear` or `PasswordInClear` if the credential
    /// would be sent unencrypted to another machine. Nothing is sent yet.
    pub fn new(base: &str, options: &Options) -> Result<Self, NetError> {
        let has_responded = Arc::new(AtomicBool::new(false));
        let (retry, patience) = (options.retry, options.patience);
        if base.starts_with("coap:") || base.starts_with("coaps:") {
            if options.after.is_some() {
                let cause = "a position in the queue needs http or https".to_owned();
                return Err(NetError::BadAddress { url: base.to_owned(), cause });
            }
            let transport = Transport::Coap(Arc::new(coap::Cloud::new(base, options)?));
            return Ok(Self { transport, retry, patience, has_responded });
        }
        let bad =
            |cause: &str| NetError::BadAddress { url: base.to_owned(), cause: cause.to_owned() };
        let mut url = Url::parse(base).map_err(|error| bad(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(bad("its scheme is none of http, https, coap and coaps"));
        }
        if !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(bad("it must not contain a user, a query or a fragment"));
        }
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        if url.scheme() == "http" && !is_this_machine(&url) {
            match &options.credential {
                Some(Credential::Token(_)) => {
                    return Err(NetError::TokenInClear { url: url.to_string() });
                }
                Some(Credential::Login(_)) => {
                    return Err(NetError::PasswordInClear { url: url.to_string() });
                }
                None => {}
            }
        }
        if url.scheme() == "http" && options.identity.is_some() {
            return Err(bad("a client certificate needs https"));
        }
        if options.device_key.is_some() {
            return Err(bad("a device's link secret needs coaps"));
        }
        let authorization = options.credential.as_ref().map(Credential::header).transpose()?;
        #[cfg(not(feature = "tls"))]
        if url.scheme() == "https" || options.ca.is_some() {
            return Err(bad("this program is built without TLS"));
        }
        #[cfg(feature = "tls")]
        tls::install_provider();
        let builder = reqwest::Client::builder()
            .user_agent(concat!("moteseal/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect_timeout)
            .read_timeout(options.idle_timeout)
            .redirect(reqwest::redirect::Policy::none());
        let after = options.after.map(|at| (HeaderName::from_static(AFTER), HeaderValue::from(at)));
        let builder = builder.default_headers(after.into_iter().collect());
        // A proxy of the environment is for other machines. It would see a token for a service on
        // this one, which `TokenInClear` permits because the token does not leave the machine.
        let is_local = is_this_machine(&url);
        let builder = if is_local { builder.no_proxy() } else { builder };
        // Without a proxy and without redirects, no certificate is verified. Those of the platform's
        // authorities are not read then.
        #[cfg(feature = "tls")]
        let builder =
            if is_local && url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        #[cfg(feature = "tls")]
        let builder = match &options.ca {
            Some(path) => builder.tls_certs_merge(tls::authorities(path)?),
            None => builder,
        };
        #[cfg(feature = "tls")]
        let builder = match &options.identity {
            Some(identity) => builder.identity(tls::identity(identity)?),
            None => builder,
        };
        let http = builder.build().map_err(|error| match &options.ca {
            Some(path) => NetError::BadFile { path: path.clone(), cause: innermost(&error) },
            None => NetError::BadAddress { url: base.to_owned(), cause: innermost(&error) },
        })?;
        let transport = Transport::Http { http, base: url, authorization };
        Ok(Self { transport, retry, patience, has_responded })
    }

    /// Returns the cloud's address.
    #[must_use]
    pub fn base(&self) -> &str {
        match &self.transport {
            Transport::Http { base, .. } => base.as_str(),
            Transport::Coap(cloud) => cloud.base(),
        }
    }

    /// Gets a resource. `path` is relative to the cloud's address, for example `v1/devices`. A
    /// leading slash is ignored.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn get(&self, path: &str) -> Result<Response, NetError> {
        self.send(Method::GET, path, None).await
    }

    /// Posts a body. Posted requests are queries, so it is safe to repeat them.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn post(
        &self,
        path: &str,
        media_type: &'static str,
        body: Bytes,
    ) -> Result<Response, NetError> {
        self.send(Method::POST, path, Some((media_type, body))).await
    }

    /// Puts a body. The HTTP contract makes these requests idempotent, so it is safe to repeat
    /// them.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn put(
        &self,
        path: &str,
        media_type: &'static str,
        body: Bytes,
    ) -> Result<Response, NetError> {
        self.send(Method::PUT, path, Some((media_type, body))).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Response, NetError> {
        let (mut attempt, start) = (0, Instant::now());
        loop {
            let response = match &self.transport {
                Transport::Http { http, base, authorization } => {
                    let url = base.join(path.trim_start_matches('/'));
                    let url = url.map_err(|error| NetError::BadAddress {
                        url: path.to_owned(),
                        cause: error.to_string(),
                    })?;
                    let mut request = http.request(method.clone(), url.clone());
                    request = request.header(
                        ACCEPT,
                        "application/cbor-seq, application/json, application/problem+json",
                    );
                    if let Some(authorization) = authorization {
                        request = request.header(AUTHORIZATION, authorization.clone());
                    }
                    if let Some((media_type, body)) = &body {
                        request = request.header(CONTENT_TYPE, *media_type).body(body.clone());
                    }
                    match request.send().await {
                        Err(error)
                            if is_refused(&error)
                                && !self.has_responded.load(Ordering::Relaxed)
                                && start.elapsed() < self.patience =>
                        {
                            tokio::time::sleep(PAUSE).await;
                            continue;
                        }
                        sent => Response::of_http(sent.map_err(|error| NetError::Unreachable {
                            url: url.to_string(),
                            cause: unreached(&url, &error),
                        })?),
                    }
                }
                Transport::Coap(cloud) => {
                    let code = match method {
                        Method::PUT => Code::PUT,
                        Method::POST => Code::POST,
                        _ => Code::GET,
                    };
                    let response = cloud.send(code, path, body.clone()).await?;
                    Response::of_coap(cloud.url(path), response)
                }
            };
            attempt += 1;
            self.has_responded.store(true, Ordering::Relaxed);
            let status = response.status;
            if (200..300).contains(&status) {
                return Ok(response);
            }
            if !matches!(status, 429 | 503) {
                return Err(refusal(response).await);
            }
            if attempt >= self.retry.attempts {
                return Err(busy(response, attempt).await);
            }
            let wait = self.retry.wait(attempt, response.retry_after, spread());
            tokio::time::sleep(wait).await;
        }
    }
}

/// A response whose body may still be arriving.
#[derive(Debug)]
pub struct Response {
    url: String,
    status: u16,
    retry_after: Option<Duration>,
    body: Body,
}

/// The body of a response.
#[derive(Debug)]
enum Body {
    /// The rest of the body is arriving.
    Http(reqwest::Response),
    /// The whole body, until it is taken.
    Whole { media_type: &'static str, bytes: Option<Bytes> },
}

impl Response {
    fn of_http(response: reqwest::Response) -> Self {
        Self {
            url: response.url().to_string(),
            status: response.status().as_u16(),
            retry_after: retry_after(&response),
            body: Body::Http(response),
        }
    }

    /// An error over CoAP has its problem document as JSON.
    fn of_coap(url: String, response: crate::coap::Response) -> Self {
        let status = coap::status(response.code);
        let media_type = match coap::media_type(response.format) {
            JSON if status >= 400 => PROBLEM_TYPE,
            media_type => media_type,
        };
        Self {
            url,
            status,
            retry_after: response.max_age.map(|age| Duration::from_secs(age.into())),
            body: Body::Whole { media_type, bytes: Some(response.body) },
        }
    }

    /// Returns the address that responded.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the response's media type without parameters. Returns an empty text if there is
    /// none.
    #[must_use]
    pub fn media_type(&self) -> &str {
        let header = match &self.body {
            Body::Whole { media_type, .. } => media_type,
            Body::Http(response) => response
                .headers()
                .get(CONTENT_TYPE)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default(),
        };
        header.split(';').next().unwrap_or_default().trim()
    }

    /// Returns the value of a header, if the response has it and it is text. Responses over CoAP have
    /// none.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        match &self.body {
            Body::Http(response) => response.headers().get(name)?.to_str().ok(),
            Body::Whole { .. } => None,
        }
    }

    /// Checks that the response has this media type.
    ///
    /// # Errors
    /// `NotACloud` if the response has another media type.
    pub fn expect(self, media_type: &str) -> Result<Self, NetError> {
        if self.media_type().eq_ignore_ascii_case(media_type) {
            return Ok(self);
        }
        let cause = format!("the response is {:?} instead of {media_type}", self.media_type());
        Err(NetError::NotACloud { url: self.url, cause })
    }

    /// Returns the next bytes of the body, or `None` at its end.
    ///
    /// # Errors
    /// `Interrupted` if the connection broke.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        match &mut self.body {
            Body::Whole { bytes, .. } => Ok(bytes.take()),
            Body::Http(response) => {
                let chunk = response.chunk().await;
                chunk.map_err(|error| NetError::Interrupted {
                    url: self.url.clone(),
                    cause: cause_of(&error),
                })
            }
        }
    }

    /// Returns the whole body, which may have at most `limit` bytes.
    ///
    /// # Errors
    /// `Interrupted` if the connection broke, `NotACloud` if the body is longer.
    pub async fn bytes(mut self, limit: usize) -> Result<Vec<u8>, NetError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if bytes.len() + chunk.len() > limit {
                let cause = format!("the response is longer than {limit} bytes");
                return Err(NetError::NotACloud { url: self.url.to_string(), cause });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// Converts a response with an error status to an error. Uses the problem document (RFC 9457) in
/// the body, if there is one.
async fn refusal(answer: Response) -> NetError {
    let (url, status) = (answer.url.clone(), answer.status);
    let is_problem = answer.media_type() == PROBLEM_TYPE;
    let body = answer.bytes(MAX_PROBLEM).await.unwrap_or_default();
    let problem =
        is_problem.then(|| serde_json::from_slice::<serde_json::Value>(&body).ok()).flatten();
    let text = |field: &str| {
        problem.as_ref().and_then(|problem| problem.get(field)).and_then(|value| value.as_str())
    };
    let name = text("type").and_then(|name| name.rsplit(':').next()).filter(|name| is_name(name));
    match (name, text("detail").or_else(|| text("title"))) {
        (Some(name), detail) => {
            let detail = one_line(detail.unwrap_or("the cloud gave no detail"));
            let device = text("device").and_then(moteseal_api::parse_device);
            NetError::Refused { url, status, name: name.to_owned(), detail, device }
        }
        (None, _) if status == 401 => NetError::Refused {
            url,
            status: 401,
            name: "Unauthorized".to_owned(),
            detail:
                "the cloud requires a token or a user; pass the token or the password in a file"
                    .to_owned(),
            device: None,
        },
        (None, _) => {
            let cause = format!("the response has status {status} and no known problem document");
            NetError::NotACloud { url, cause }
        }
    }
}

/// Converts the last of several responses with the status 429 or 503 to an error.
async fn busy(answer: Response, attempts: u32) -> NetError {
    let (url, status) = (answer.url.clone(), answer.status);
    let (problem, detail) = match refusal(answer).await {
        NetError::Refused { name, detail, .. } => (Some(name), detail),
        _ => (None, "none given".to_owned()),
    };
    NetError::Busy { url, status, attempts, problem, detail }
}

/// Returns whether a name from the cloud is a plain identifier, which is safe to print.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns a text from the cloud as one line, without control characters and with a limited length.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect()
}

pub(crate) fn is_this_machine(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

/// Returns the wait that a `Retry-After` header requests in seconds. A Moteseal cloud never sends a
/// date in this header.
fn retry_after(response: &reqwest::Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// Returns whether the connection was refused.
fn is_refused(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Describes why there is no response. Suggests the other scheme if this one seems to be wrong.
fn unreached(url: &Url, error: &reqwest::Error) -> String {
    let cause = cause_of(error);
    // For bytes that are not TLS, rustls returns the error `InvalidContentType`. For bytes that are
    // not HTTP, hyper returns the error `invalid HTTP version`.
    match url.scheme() {
        "https" if cause.contains("InvalidContentType") => {
            "the service there does not use TLS; try http://".to_owned()
        }
        "http" if cause.contains("invalid HTTP version") => {
            "the service there does not use plain HTTP; try https://".to_owned()
        }
        _ => cause,
    }
}

fn cause_of(error: &reqwest::Error) -> String {
    if error.is_timeout() { "no response in time".to_owned() } else { innermost(error) }
}

/// Returns a number in 0..1 that differs between processes and calls. It may be predictable.
pub(crate) fn spread() -> f64 {
    f64::from((random() >> 32) as u32) / f64::from(u32::MAX)
}

/// Returns 64 random bits that identify this end. They are not secret.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::credentials::{Login, Token};

    #[test]
    fn waits_double_and_respect_retry_after_up_to_a_limit() {
        let retry = Retry::default();
        assert_eq!(retry.wait(1, None, 1.0), Duration::from_millis(200));
        assert_eq!(retry.wait(3, None, 1.0), Duration::from_millis(800));
        assert_eq!(retry.wait(3, None, 0.0), Duration::from_millis(400));
        assert_eq!(retry.wait(1, Some(Duration::from_secs(2)), 0.0), Duration::from_secs(2));
        assert_eq!(retry.wait(1, Some(Duration::from_secs(9999)), 0.0), retry.longest_wait);
        assert_eq!(retry.wait(40, None, 1.0), retry.longest_wait);
    }

    #[test]
    fn checks_an_address_before_anything_is_sent() {
        for url in [
            "",
            "cloud",
            "ftp://x/",
            "http://",
            "http://user@host/",
            "http://host/?q",
            "http://host/#f",
        ] {
            assert_eq!(
                Client::new(url, &Options::default()).unwrap_err().name(),
                "BadAddress",
                "{url}"
            );
        }
        assert_eq!(
            Client::new("http://[::1]:81/a", &Options::default()).unwrap().base(),
            "http://[::1]:81/a/"
        );
    }

    #[test]
    fn a_token_or_a_password_is_sent_unencrypted_only_to_this_machine() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "sesame\n").unwrap();
        let token = Token::read(file.path()).unwrap();
        let login = Login::read("ali", file.path()).unwrap();
        std::fs::write(file.path(), "open sesame\n").unwrap();
        assert_eq!(Token::read(file.path()).unwrap_err().name(), "BadFile");
        for (credential, name) in [
            (Credential::Token(token), "TokenInClear"),
            (Credential::Login(login), "PasswordInClear"),
        ] {
            let options = Options { credential: Some(credential), ..Options::default() };
            assert_eq!(Client::new("http://cloud.example", &options).unwrap_err().name(), name);
            for url in [
                "http://127.0.0.1:1",
                "http://localhost:1",
                "http://[::1]:1",
                "https://cloud.example",
            ] {
                assert!(Client::new(url, &options).is_ok(), "{url}");
            }
            let client = Client::new("http://[::1]:1", &options).unwrap();
            for shown in [format!("{options:?}"), format!("{client:?}")] {
                assert!(!shown.contains("sesame") && !shown.contains("c2VzYW1l"), "{shown}");
            }
        }
    }

    #[test]
    fn a_user_name_must_be_one_that_http_can_carry() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "sesame\n").unwrap();
        for user in ["", "a:b", "a\nb"] {
            let credential = Some(Credential::Login(Login::read(user, file.path()).unwrap()));
            let options = Options { credential, ..Options::default() };
            assert_eq!(Client::new("http://[::1]:1", &options).unwrap_err().name(), "BadUser");
        }
    }
}
