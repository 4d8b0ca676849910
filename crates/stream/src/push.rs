//! Reads the JWT of an account from running servers, and passes a new one to them. They then end the
//! connections of revoked users.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_nats::{Client, StatusCode};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use moteseal_api::ErrorKind;
use serde_json::Value;
use tokio::time::timeout;

use crate::authority::{UPDATE, lookup};
use crate::connection;
use crate::error::StreamError;
use crate::settings::Settings;

const REMEDY: &str = "check that it runs with the lines of this policy";
/// How long to wait for the answers of the other servers of a cluster.
const OTHERS: Duration = Duration::from_millis(500);
/// The most answers that are read. No cluster has as many servers.
const MOST: usize = 256;

/// Returns the JWTs that the servers of the settings and the others of their cluster have of an account:
/// one, unless servers differ, or none if no server has any. The credentials of the settings are those of
/// [`Authority::system_user`](crate::Authority::system_user). Servers that cannot be reached are skipped.
/// The signatures are not checked ([`Authority::read_account`](crate::Authority::read_account)).
///
/// # Errors
/// [`StreamError`] of the first server if none of them answers.
pub async fn fetch_account(
    settings: Settings,
    account: &str,
) -> Result<BTreeSet<String>, StreamError> {
    let settings = settings.checked()?;
    let (mut found, mut answered, mut first) = (BTreeSet::new(), false, None);
    for server in &settings.servers {
        let one = Settings { servers: vec![server.clone()], ..settings.clone() };
        let fetched = async {
            let client = connection::client(&one, |_| {}).await?;
            fetch(&client, &one, account).await
        };
        match fetched.await {
            Ok(jwts) => {
                answered = true;
                found.extend(jwts);
            }
            Err(error) => first = first.or(Some(error)),
        }
    }
    match first {
        Some(error) if !answered => Err(error),
        _ => Ok(found),
    }
}

async fn fetch(
    client: &Client,
    settings: &Settings,
    account: &str,
) -> Result<Vec<String>, StreamError> {
    let failed = |what: String| unreachable(settings, what);
    let inbox = client.new_inbox();
    let answers = client.subscribe(inbox.clone()).await;
    let mut answers = answers.map_err(|error| failed(error.to_string()))?;
    let sent = client.publish_with_reply(lookup(account), inbox, "".into()).await;
    sent.map_err(|error| failed(error.to_string()))?;
    // Each server of a cluster answers, and its answer does not name it.
    let (mut found, mut wait) = (Vec::new(), settings.request_time);
    while found.len() < MOST
        && let Ok(Some(answer)) = timeout(wait, answers.next()).await
    {
        if answer.status == Some(StatusCode::NO_RESPONDERS) {
            break;
        }
        // A server without a JWT of the account returns no text.
        found.push(String::from_utf8_lossy(&answer.payload).trim().to_owned());
        wait = OTHERS;
    }
    if found.is_empty() {
        return Err(failed(format!("it returns no account; {REMEDY}")));
    }
    found.retain(|jwt| !jwt.is_empty());
    Ok(found)
}

/// Why not every server has an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotPassed {
    /// The number of servers to which it was passed.
    pub servers: usize,
    /// The URL of each server that does not have it, without a user and password, and why.
    pub missing: Vec<(String, StreamError)>,
}

impl NotPassed {
    /// Returns the stable name of the first error.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.missing.first().map_or("Unreachable", |(_, error)| error.name())
    }

    /// Returns the kind of the first error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.missing.first().map_or(ErrorKind::Unreachable, |(_, error)| error.kind())
    }
}

impl fmt::Display for NotPassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { servers, missing } = self;
        write!(f, "{} of {servers} NATS servers have the account", servers - missing.len())?;
        for (number, (server, error)) in missing.iter().enumerate() {
            let before = if number == 0 { ", missing: " } else { ", " };
            match error {
                StreamError::Unreachable { what, .. } => write!(f, "{before}{server} ({what})")?,
                // Only the last part states what to do.
                error => {
                    let what = error.to_string().replace("; ", ": ");
                    write!(f, "{before}{server} ({what})")?;
                }
            }
        }
        f.write_str("; run it again when they are up")
    }
}

impl std::error::Error for NotPassed {}

moteseal_api::named_error!(NotPassed);

/// Passes the JWT of an account to each server of the settings, whose credentials are those of
/// [`Authority::system_user`](crate::Authority::system_user). When it returns, these servers have ended the
/// connections of the users that the JWT revokes. Other servers of the cluster receive the JWT from them.
///
/// # Errors
/// [`NotPassed`] if a server cannot be reached or does not accept the JWT. All others have it, and it is safe to
/// repeat the call.
pub async fn push_account(settings: Settings, jwt: &str) -> Result<(), NotPassed> {
    let servers = settings.servers.clone();
    // A server that does not answer does not delay the others.
    let passed = join_all(servers.iter().map(|server| {
        let one = Settings { servers: vec![server.clone()], ..settings.clone() };
        async move {
            let one = one.checked()?;
            let client = connection::client(&one, |_| {}).await?;
            push(&client, &one, jwt).await
        }
    }));
    let passed = servers.iter().zip(passed.await);
    let missing = passed
        .filter_map(|(server, passed)| Some((connection::without_user(server), passed.err()?)))
        .collect::<Vec<_>>();
    if missing.is_empty() {
        return Ok(());
    }
    Err(NotPassed { servers: servers.len(), missing })
}

async fn push(client: &Client, settings: &Settings, jwt: &str) -> Result<(), StreamError> {
    let failed = |what: String| unreachable(settings, what);
    let inbox = client.new_inbox();
    let answers = client.subscribe(inbox.clone()).await;
    let mut answers = answers.map_err(|error| failed(error.to_string()))?;
    let sent = client.publish_with_reply(UPDATE, inbox, jwt.to_owned().into()).await;
    sent.map_err(|error| failed(error.to_string()))?;
    // Each server of a cluster answers.
    let id = client.server_info().server_id;
    let own = async {
        while let Some(answer) = answers.next().await {
            let answer: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
            if answer["server"]["id"] == id.as_str() {
                return Some(answer);
            }
        }
        None
    };
    let answer = timeout(settings.request_time, own).await.ok().flatten();
    let answer = answer.ok_or_else(|| failed(format!("it does not answer to a JWT; {REMEDY}")))?;
    match answer.get("error") {
        None if answer["data"]["code"] == 200 => Ok(()),
        None => Err(StreamError::StreamFailed { what: answer.to_string() }),
        Some(error) => Err(StreamError::StreamFailed {
            what: error["description"].as_str().unwrap_or("an error").to_owned(),
        }),
    }
}

fn unreachable(settings: &Settings, what: String) -> StreamError {
    let servers = settings.servers.join(", ");
    StreamError::Unreachable { servers: connection::without_user(&servers), what }
}
