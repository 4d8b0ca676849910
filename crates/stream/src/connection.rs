//! The connection to the servers, and requests whose failure states the cause.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use async_nats::client::RequestErrorKind;
use async_nats::jetstream::{self, Context};
use async_nats::{
    Auth, AuthError, Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr,
    ServerError,
};
use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::authority::Credentials;
use crate::error::StreamError;
use crate::layout::Names;
use crate::settings::Settings;

/// The most publications whose acknowledgement the client library waits for.
const MOST_UNACKNOWLEDGED: usize = 1 << 16;

/// A connection to a stream. Clones share it. If the connection breaks, the client library connects
/// again, to any of the servers.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    context: Context,
    names: Names,
    settings: Settings,
    /// The last refusal of a server and the number of refusals so far. A server reports a missing
    /// permission in this way and does not answer the request.
    refusals: watch::Receiver<(u64, String)>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("name", &self.inner.settings.name).finish_non_exhaustive()
    }
}

impl Stream {
    /// Connects to the servers. Call [`check`](Self::check) before the stream is used.
    ///
    /// # Errors
    /// `Usage` if a setting is wrong, `Unreachable` if no server answers, `NotPermitted` if the servers
    /// reject the credentials.
    pub async fn connect(settings: Settings) -> Result<Self, StreamError> {
        let settings = settings.checked()?;
        let (report, refusals) = watch::channel((0_u64, String::new()));
        let client = client(&settings, move |text| {
            report.send_modify(|(count, last)| (*count, *last) = (count.wrapping_add(1), text));
        });
        let client = client.await?;
        let context = jetstream::context::ContextBuilder::new()
            .timeout(settings.request_time)
            .ack_timeout(settings.request_time)
            .max_ack_inflight(MOST_UNACKNOWLEDGED)
            .build(client.clone());
        let names = Names::new(&settings.name);
        Ok(Self { inner: Arc::new(Inner { client, context, names, settings, refusals }) })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn names(&self) -> &Names {
        &self.inner.names
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Returns the servers of the settings, without user names and passwords.
    pub(crate) fn servers(&self) -> String {
        servers_of(self.settings())
    }

    /// Sends a request to JetStream's interface and returns the answer.
    pub(crate) async fn api(&self, subject: &str, body: &Value) -> Result<Value, Failed> {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let answer = self.ask(format!("$JS.API.{subject}"), body).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| {
            Failed::Other(StreamError::StreamFailed { what: format!("no JSON ({error})") })
        })?;
        match answer.get("error") {
            None => Ok(answer),
            Some(error) => Err(Failed::Code {
                code: error["err_code"].as_u64().unwrap_or(0),
                text: error["description"].as_str().unwrap_or("an error").to_owned(),
            }),
        }
    }

    /// Sends a request and returns the answer. If the server refuses it, returns that at once.
    pub(crate) async fn ask(&self, subject: String, body: Bytes) -> Result<Bytes, Failed> {
        let asked = self.refused_or(self.client().request(subject, body)).await?;
        match asked {
            Ok(answer) => Ok(answer.payload),
            Err(error) => Err(match error.kind() {
                RequestErrorKind::NoResponders => Failed::NoResponders,
                _ => Failed::Other(StreamError::Unreachable {
                    servers: self.servers(),
                    what: error.to_string(),
                }),
            }),
        }
    }

    /// Waits for `work`, or for a refusal of the server, which then concerns `work` or another request
    /// of this connection.
    pub(crate) async fn refused_or<T>(&self, work: impl Future<Output = T>) -> Result<T, Failed> {
        let mut refusals = self.inner.refusals.clone();
        refusals.mark_unchanged();
        tokio::select! {
            biased;
            done = work => Ok(done),
            Ok(()) = refusals.changed() => {
                let what = refusals.borrow().1.clone();
                Err(Failed::Other(StreamError::NotPermitted { what }))
            }
        }
    }
}

/// Connects to the servers. Calls `on_refusal` with each refusal of a server, for example of a publication
/// for which the user has no permission.
pub(crate) async fn client(
    settings: &Settings,
    on_refusal: impl Fn(String) + Send + Sync + 'static,
) -> Result<Client, StreamError> {
    // The workspace has one provider of TLS; the library uses the default of the process.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut servers = Vec::with_capacity(settings.servers.len());
    for server in &settings.servers {
        let parsed: Result<ServerAddr, _> = server.parse();
        servers.push(parsed.map_err(|error| {
            StreamError::BadSetting(format!(
                "{} is not the URL of a NATS server ({error}); use nats://HOST:PORT or \
                 tls://HOST:PORT",
                without_user(server)
            ))
        })?);
    }
    let on_event = move |event: Event| {
        let text = match event {
            Event::ServerError(ServerError::AuthorizationViolation) => {
                Some("authorization violation".to_owned())
            }
            Event::ServerError(ServerError::Other(text)) => Some(text),
            _ => None,
        };
        if let Some(text) = text {
            on_refusal(text);
        }
        std::future::ready(())
    };
    let mut options = match &settings.credentials {
        None => ConnectOptions::new(),
        Some(file) => {
            credentials(file).map_err(StreamError::BadSetting)?;
            let file = file.clone();
            // Read at each connection, so that replaced credentials need no restart.
            ConnectOptions::with_auth_callback(move |nonce| {
                let auth = credentials(&file)
                    .and_then(|credentials| credentials.answer(&nonce))
                    .map(|(jwt, signature)| {
                        let mut auth = Auth::new();
                        (auth.jwt, auth.signature) = (Some(jwt), Some(signature));
                        auth
                    });
                std::future::ready(auth.map_err(AuthError::new))
            })
        }
    };
    options = options
        .name(format!("moteseal {}", settings.name))
        .custom_inbox_prefix(&settings.inbox)
        .connection_timeout(settings.request_time)
        .request_timeout(Some(settings.request_time))
        .event_callback(on_event)
        // Otherwise a server that states that it has no TLS, or someone in its place, would be accepted.
        .require_tls(settings.ca.is_some() || servers.iter().any(ServerAddr::tls_required));
    if let Some(server) = servers.iter().find(|server| server.has_user_pass()) {
        let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
        options = options.user_and_password(text(server.username()), text(server.password()));
    }
    if let Some(file) = &settings.ca {
        let unusable = |what: &dyn fmt::Display| {
            let file = file.display();
            StreamError::BadSetting(format!("the file of authorities {file} {what}"))
        };
        if let Err(error) = std::fs::File::open(file) {
            return Err(unusable(&format_args!("cannot be read ({error})")));
        }
        // With another file, the library would accept no server, and name the server's certificate.
        let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
        let certificates: Vec<CertificateDer<'_>> = certificates.map_err(|error| {
            unusable(&format_args!("is not in PEM ({error}); name one with certificates in PEM"))
        })?;
        if certificates.is_empty() {
            return Err(unusable(
                &"has no certificate; name one with the certificates of the authorities in PEM",
            ));
        }
        options = options.add_root_certificates(file.clone());
    }
    options.connect(&servers[..]).await.map_err(|error| unconnected(settings, &error))
}

/// Returns why no connection was made.
fn unconnected(settings: &Settings, error: &ConnectError) -> StreamError {
    let what = error.to_string().replace('\n', " ").replace("; ", ", ");
    let servers = servers_of(settings);
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            return StreamError::NotPermitted { what };
        }
        _ => {}
    }
    let lower = what.to_lowercase();
    // The answer to the first bytes of a handshake was not one of TLS.
    let remedy = if lower.contains("corrupt message") || lower.contains("handshake eof") {
        "the server does not use TLS: add `tls { cert_file: .., key_file: .. }` to its configuration, or \
         use nats:// without --stream-ca"
    } else if lower.contains("expired") || lower.contains("not valid yet") {
        "renew the server's certificate, and check the clocks"
    } else if lower.contains("not valid for name") {
        "issue the server's certificate for the host in its URL"
    } else if lower.contains("certificate") || error.kind() == ConnectErrorKind::Tls {
        "name the authorities that signed the servers' certificates with --stream-ca FILE"
    } else {
        return StreamError::Unreachable { servers, what };
    };
    StreamError::Tls { servers, what, remedy }
}

/// Reads a credentials file.
fn credentials(file: &Path) -> Result<Credentials, String> {
    let unusable = |what: &str| {
        format!(
            "the credentials file {} cannot be used ({what}); it must have a JWT and the seed of its \
             nkey",
            file.display()
        )
    };
    let text = std::fs::read_to_string(file).map(Zeroizing::new);
    let text = text.map_err(|error| unusable(&error.to_string()))?;
    Credentials::parse(&text).ok_or_else(|| unusable("it has not both"))
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// JetStream answered with an error.
    Code {
        code: u64,
        text: String,
    },
    /// Nothing listens on the subject.
    NoResponders,
    Other(StreamError),
}

impl From<Failed> for StreamError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Code { text, .. } => Self::StreamFailed { what: text },
            Failed::NoResponders => {
                Self::StreamFailed { what: "no server handles the request".to_owned() }
            }
            Failed::Other(error) => error,
        }
    }
}

fn servers_of(settings: &Settings) -> String {
    settings.servers.iter().map(|server| without_user(server)).collect::<Vec<_>>().join(", ")
}

/// Removes a user name and password from a URL.
pub(crate) fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::without_user;

    #[test]
    fn a_url_is_shown_without_user_and_password() {
        for url in ["nats://a:secret@host:4222", "a:secret@host:4222", "nats://host:4222"] {
            assert_eq!(without_user(url), "nats://host:4222");
        }
    }
}
