//! Finds out what a user may do by trying it at a running server. Every attempt changes nothing, also if
//! the user may do it: JetStream rejects its content.
//!
//! A server checks the permission for a publication or subscription before anything else and in the order
//! of a connection, and reports only refusals. Each attempt is therefore followed by a publication to a
//! subject of its own, whose arrival or refusal ends the attempt.

use std::time::Duration;

use async_nats::{Client, HeaderMap, ServerAddr};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::connection;
use crate::error::StreamError;
use crate::layout::Names;
use crate::permissions::Duty;
use crate::settings::Settings;

/// How long to wait for a refusal after the end of an attempt arrived as a message, because both arrive on different ways.
const SETTLE: Duration = Duration::from_millis(100);

/// How long a server may take to send its first line, and the longest line.
const PLAIN: Duration = Duration::from_secs(5);
const MOST_INFO: u64 = 64 << 10;

/// An attempt of a user and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What was tried, for example `publish uploads`.
    pub action: &'static str,
    /// Whether the user should be able to do it.
    pub expected: bool,
    /// Whether the server permits it, or why this is unknown.
    pub found: Result<bool, String>,
}

/// What is sent.
enum Sent {
    Publish(String, &'static str),
    /// With a header that makes JetStream reject the message.
    Reject(String),
    Subscribe(String),
}

struct Action {
    name: &'static str,
    /// Who may do it. An admin may do everything.
    by: &'static [Duty],
    sent: Sent,
}

fn actions(names: &Names) -> Vec<Action> {
    use Duty::{Intake, Serve, Worker};
    let Names { batches, pieces, dead, batch_subject, piece_subject, dead_subject, consumer } =
        names;
    let api = |subject: String, body| Sent::Publish(format!("$JS.API.{subject}"), body);
    // No JSON, so JetStream rejects a request with this body.
    let wrong = "{";
    let action = |name, by, sent| Action { name, by, sent };
    vec![
        action("publish uploads", &[Intake], Sent::Reject(batch_subject.clone())),
        action("publish pieces", &[Intake], Sent::Reject(format!("{piece_subject}.policy"))),
        action("publish dead letters", &[Worker], Sent::Reject(dead_subject.clone())),
        action(
            "take uploads",
            &[Worker],
            api(format!("CONSUMER.MSG.NEXT.{batches}.{consumer}"), wrong),
        ),
        action(
            "acknowledge uploads",
            &[Worker],
            Sent::Publish(format!("$JS.ACK.{batches}.{consumer}.0.0.0.0.0"), "+WPI"),
        ),
        action("read pieces", &[Worker], api(format!("STREAM.MSG.GET.{pieces}"), wrong)),
        action("remove pieces", &[Worker], api(format!("STREAM.PURGE.{pieces}"), wrong)),
        action(
            "ask for the position",
            &[Worker, Serve],
            api(format!("CONSUMER.INFO.{batches}.{consumer}"), ""),
        ),
        action("read the settings", &[Intake, Worker], api(format!("STREAM.INFO.{batches}"), "")),
        action("listen to uploads", &[], Sent::Subscribe(batch_subject.clone())),
        action(
            "receive others' answers",
            &[],
            Sent::Subscribe("_INBOX.moteseal.policy".to_owned()),
        ),
        action("read uploads", &[], api(format!("STREAM.MSG.GET.{batches}"), wrong)),
        action("remove uploads", &[], api(format!("STREAM.PURGE.{batches}"), wrong)),
        action("read dead letters", &[], api(format!("STREAM.MSG.GET.{dead}"), wrong)),
        action("change the stream", &[], api(format!("STREAM.UPDATE.{batches}"), wrong)),
        // A request to delete has no body, so one with a body is rejected.
        action("delete the stream", &[], api(format!("STREAM.DELETE.{batches}"), "{\"no\":1}")),
        action("create a consumer", &[], api(format!("CONSUMER.CREATE.{batches}.policy"), wrong)),
        action(
            "delete the consumer",
            &[],
            api(format!("CONSUMER.DELETE.{batches}.{consumer}"), "{\"no\":1}"),
        ),
    ]
}

/// The action that precedes all others.
pub const CONNECT: &str = "connect";

/// Tries everything as the user of these settings. `duties` are what the user should be able to do; without duties, it
/// should not even be able to connect.
///
/// # Errors
/// `Usage` if a setting is wrong. That the servers refuse the user is a result, not an error.
pub async fn attempts(settings: Settings, duties: &[Duty]) -> Result<Vec<Attempt>, StreamError> {
    let settings = settings.checked()?;
    let actions = actions(&Names::new(&settings.name));
    let expects = |action: &Action| {
        duties.iter().any(|duty| *duty == Duty::Admin || action.by.contains(duty))
    };
    let (report, mut refusals) = mpsc::unbounded_channel();
    let connected = connection::client(&settings, move |text| drop(report.send(text))).await;
    let mut done = vec![Attempt {
        action: CONNECT,
        expected: !duties.is_empty(),
        found: match &connected {
            Ok(_) => Ok(true),
            Err(StreamError::NotPermitted { .. }) => Ok(false),
            Err(error @ StreamError::BadSetting(_)) => return Err(error.clone()),
            Err(error) => Err(error.to_string()),
        },
    }];
    for action in &actions {
        let found = match (&connected, &done[0].found) {
            (Ok(client), _) => {
                let tried = attempt(client, &mut refusals, &action.sent);
                timeout(settings.request_time, tried)
                    .await
                    .unwrap_or_else(|_| Err("the server does not answer".to_owned()))
            }
            (Err(_), found) => found.clone(),
        };
        done.push(Attempt { action: action.name, expected: expects(action), found });
    }
    Ok(done)
}

/// Returns whether a server accepts clients without TLS. It states this in the first line that it sends.
///
/// # Errors
/// Why this is unknown, as text.
pub async fn accepts_plain_text(server: &str) -> Result<bool, String> {
    let address: ServerAddr = server.parse().map_err(|error| format!("{server}: {error}"))?;
    let host = address.host().trim_matches(['[', ']']).to_owned();
    let connected = timeout(PLAIN, TcpStream::connect((host, address.port()))).await;
    let stream = connected.map_err(|_| "the server does not answer".to_owned())?;
    let stream = stream.map_err(|error| error.to_string())?;
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(MOST_INFO));
    // A server that starts with TLS sends no line.
    let Ok(Ok(1..)) = timeout(PLAIN, reader.read_line(&mut line)).await else { return Ok(false) };
    let info = line.strip_prefix("INFO ").map(serde_json::from_str::<serde_json::Value>);
    match info {
        Some(Ok(info)) => Ok(info["tls_required"] != true),
        _ => Err("this is not a NATS server".to_owned()),
    }
}

async fn attempt(
    client: &Client,
    refusals: &mut mpsc::UnboundedReceiver<String>,
    sent: &Sent,
) -> Result<bool, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    while refusals.try_recv().is_ok() {}
    let end = client.new_inbox();
    let mut ended = client.subscribe(end.clone()).await.map_err(|error| text(&error))?;
    let (subject, _held) = match sent {
        Sent::Publish(subject, body) => {
            let reply = client.new_inbox();
            let sent = client.publish_with_reply(subject.clone(), reply, Bytes::from(*body));
            sent.await.map_err(|error| text(&error))?;
            (subject, None)
        }
        Sent::Reject(subject) => {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Expected-Last-Sequence", u64::MAX.to_string().as_str());
            let sent = client.publish_with_headers(subject.clone(), headers, Bytes::new());
            sent.await.map_err(|error| text(&error))?;
            (subject, None)
        }
        Sent::Subscribe(subject) => {
            let subscribed = client.subscribe(subject.clone()).await;
            (subject, Some(subscribed.map_err(|error| text(&error))?))
        }
    };
    client.publish(end.clone(), Bytes::new()).await.map_err(|error| text(&error))?;
    let mut is_refused = false;
    loop {
        tokio::select! {
            Some(refusal) = refusals.recv() => {
                if refusal.contains(&format!("Publish to \"{end}\"")) {
                    return Ok(!is_refused);
                }
                is_refused |= refusal.contains(&format!("\"{subject}\""));
            }
            message = ended.next() => {
                if message.is_none() {
                    return Err("the connection was closed".to_owned());
                }
                sleep(SETTLE).await;
                while let Ok(refusal) = refusals.try_recv() {
                    is_refused |= refusal.contains(&format!("\"{subject}\""));
                }
                return Ok(!is_refused);
            }
        }
    }
}
