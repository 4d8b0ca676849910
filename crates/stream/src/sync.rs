//! Whether the servers sync a message to disk before they acknowledge it. Only the monitoring endpoint
//! of a server states it (`/varz`).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};
use serde_json::Value;
use tracing::warn;

use crate::connection::without_user;
use crate::error::StreamError;
use crate::settings::{Settings, SyncCheck};

/// How long a monitoring endpoint may take to answer.
const TIME: Duration = Duration::from_secs(5);
/// The longest answer of a monitoring endpoint, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// A server that has a stream.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) is_offline: bool,
}

/// The servers that sync.
#[derive(Debug)]
pub(crate) struct Synced {
    names: BTreeSet<String>,
    /// The number of servers that did not answer.
    silent: usize,
}

impl Synced {
    /// Checks the servers that have a stream: a majority is among these, and no more of the others are up than
    /// did not answer.
    pub(crate) fn check(&self, stream: &str, servers: &[Server]) -> Result<(), StreamError> {
        let others: Vec<&Server> =
            servers.iter().filter(|server| !self.names.contains(&server.name)).collect();
        let up = others.iter().filter(|server| !server.is_offline).count();
        // While a leader is chosen, no server may be known.
        if up <= self.silent && (2 * others.len() < servers.len() || servers.is_empty()) {
            return Ok(());
        }
        let names: Vec<&str> = others.iter().map(|server| &*server.name).collect();
        Err(StreamError::NotSynced {
            server: names.join(", "),
            what: format!(
                "stream {stream} is there, and it is unknown whether this server syncs; name its monitoring \
                 endpoint, too (--stream-monitor)"
            ),
        })
    }
}

/// Checks that as many servers as there are replicas sync each message before they acknowledge it. Servers that
/// do not answer are left out with a warning, while a majority of the replicas is checked. Returns `None` if the
/// operator has checked it.
pub(crate) async fn check(settings: &Settings) -> Result<Option<Synced>, StreamError> {
    let SyncCheck::Monitors(monitors) = &settings.sync else { return Ok(None) };
    if monitors.is_empty() {
        return Err(StreamError::BadSetting(
            "it is unknown whether the NATS servers sync messages before they acknowledge them; name \
             their monitoring endpoints (--stream-monitor https://HOST:8222), or state that you have \
             checked it (--stream-sync unchecked)"
                .to_owned(),
        ));
    }
    let (mut servers, mut names, mut unread) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let client = client(settings.ca.as_deref())?;
    for monitor in monitors.iter().collect::<BTreeSet<_>>() {
        match read(&client, monitor).await {
            Ok(answer) => {
                let [id, name] = checked(monitor, &answer)?;
                servers.insert(id);
                names.insert(name);
            }
            Err(what) => unread.push(unreadable(monitor, &what)),
        }
    }
    if servers.len() + unread.len() < settings.replicas {
        return Err(StreamError::BadSetting(format!(
            "the stream has {} replicas, but only {} servers can be checked; name the monitoring \
             endpoint of each server (--stream-monitor)",
            settings.replicas,
            servers.len() + unread.len()
        )));
    }
    // An acknowledgement needs a majority of the replicas. The stream works while the others are down, and a
    // process can then start, too.
    if servers.len() <= settings.replicas / 2
        && let Some(error) = unread.pop()
    {
        return Err(error);
    }
    for error in &unread {
        warn!(%error, "a server cannot be checked now");
    }
    Ok(Some(Synced { names, silent: unread.len() }))
}

fn unreadable(monitor: &str, what: &str) -> StreamError {
    StreamError::NotSynced {
        server: without_user(monitor),
        what: format!(
            "the monitoring endpoint cannot be read ({what}); check that the server has `https: \
             HOST:8222` or `http: HOST:8222` in its configuration, that the URL is right, and that \
             --stream-ca names the authority of an https URL"
        ),
    }
}

/// Checks one server by the answer of its monitoring endpoint, and returns its id and name.
fn checked(monitor: &str, answer: &Value) -> Result<[String; 2], StreamError> {
    let server = without_user(monitor);
    let jetstream = &answer["jetstream"]["config"];
    if jetstream.is_null() {
        return Err(StreamError::NoJetStream { servers: server });
    }
    if jetstream["sync_always"].as_bool() != Some(true) {
        return Err(StreamError::NotSynced {
            server,
            what: "the server acknowledges messages before they are on disk, so a power loss loses \
                   acknowledged data; set `sync_interval: always` in its `jetstream` block and restart \
                   it"
            .to_owned(),
        });
    }
    Ok(["server_id", "server_name"].map(|of| answer[of].as_str().unwrap_or_default().to_owned()))
}

/// Creates the client for monitoring endpoints. With `https`, it trusts the same authorities as the connection to the
/// stream: those in the file `ca`, or those of the system.
fn client(ca: Option<&Path>) -> Result<Client, StreamError> {
    // A redirect could lead from https to http.
    let mut builder = Client::builder().timeout(TIME).redirect(Policy::none());
    if let Some(file) = ca {
        let unusable = |what: &str| {
            let file = file.display();
            StreamError::BadSetting(format!(
                "the file of authorities {file} cannot be used ({what})"
            ))
        };
        let pem = std::fs::read(file).map_err(|error| unusable(&error.to_string()))?;
        let authorities = Certificate::from_pem_bundle(&pem);
        let authorities = authorities.map_err(|error| unusable(&innermost(&error)))?;
        builder = builder.tls_certs_only(authorities);
    }
    builder.build().map_err(|error| StreamError::BadSetting(innermost(&error)))
}

/// Returns the innermost cause. The outer error repeats the URL.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

async fn read(client: &Client, monitor: &str) -> Result<Value, String> {
    let text = |error: reqwest::Error| innermost(&error);
    let url = format!("{}/varz", monitor.trim_end_matches('/'));
    let mut response = client.get(url).send().await.map_err(text)?;
    if !response.status().is_success() {
        return Err(format!("HTTP status {}", response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(text)? {
        body.extend_from_slice(&chunk);
        if body.len() > MOST_BYTES {
            return Err("the answer is too long".to_owned());
        }
    }
    serde_json::from_slice(&body).map_err(|_| "the answer is not that of a NATS server".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers in capital letters are offline.
    fn accepts(checked: &str, silent: usize, servers: &str) -> bool {
        let server = |name: &str| Server {
            name: name.to_lowercase(),
            is_offline: name != name.to_lowercase(),
        };
        let servers: Vec<Server> = servers.split_terminator(' ').map(server).collect();
        let names = checked.split(' ').map(str::to_owned).collect();
        Synced { names, silent }.check("s", &servers).is_ok()
    }

    #[test]
    fn a_majority_of_the_servers_of_a_stream_is_checked() {
        assert!(accepts("a", 0, "a"));
        assert!(!accepts("a", 0, "b"));
        assert!(!accepts("a", 1, "b"), "b is perhaps not the one that is silent");
        assert!(accepts("a b c", 0, "a b c") && accepts("a b c", 0, "c"));
        assert!(accepts("a b", 1, "a b c") && accepts("a b", 1, "a b C"));
        assert!(!accepts("a b", 0, "a b c"));
        assert!(accepts("a b d", 0, "a b C"), "c was replaced by d and is still a peer");
        assert!(!accepts("a b c", 2, "a d e"));
        assert!(accepts("a", 0, ""), "while a leader is chosen");
    }
}
