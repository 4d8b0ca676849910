//! The checks before a role starts: the streams are as they must be, and the user may do what the role
//! does. Each permission is tried with a request that changes nothing.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::connection::{Failed, Stream};
use crate::error::StreamError;
use crate::layout::{Described, Layout, check_consumer, code};
use crate::settings::Role;
use crate::sync;

/// How long a process or a command that starts waits for servers that do not answer.
const ELECTION: Duration = Duration::from_secs(20);
/// The pause before they are asked again.
const PAUSE: Duration = Duration::from_millis(500);

impl Stream {
    /// Checks that the servers sync, that the streams and the consumer are as [`init`](Self::init)
    /// creates them, and that this connection's user may do what the role needs. Waits up to 20 s for servers that
    /// do not answer, for example while they choose a leader.
    ///
    /// # Errors
    /// [`StreamError`], for the first check that fails.
    pub async fn check(&self, role: Role) -> Result<(), StreamError> {
        self.patiently(|| self.check_once(role)).await
    }

    /// Asks the servers again for up to 20 s if they do not answer, for example while they choose a leader.
    pub(crate) async fn patiently<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, StreamError>
    where
        F: Future<Output = Result<T, StreamError>>,
    {
        let until = Instant::now() + ELECTION;
        loop {
            match ask().await {
                Err(error @ StreamError::Unreachable { .. }) if Instant::now() + PAUSE < until => {
                    info!(%error, "waiting for the servers of the stream");
                    sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn check_once(&self, role: Role) -> Result<(), StreamError> {
        let (names, replicas) = (self.names().clone(), self.settings().replicas);
        if role == Role::Serve {
            let consumer = self.consumer_info().await?;
            return check_consumer(&names, &consumer["config"]);
        }
        let synced = sync::check(self.settings()).await?;
        let described = Described::all(&names, &Layout::default());
        for stream in
            described.iter().filter(|stream| role == Role::Worker || stream.name != names.dead)
        {
            let (config, servers) = self.info_and_servers(&stream.name).await?;
            stream.check(&config, replicas)?;
            synced.as_ref().map_or(Ok(()), |synced| synced.check(&stream.name, &servers))?;
        }
        match role {
            Role::Intake => {
                self.may_publish(&names.batch_subject).await?;
                self.may_publish(&format!("{}.check", names.piece_subject)).await
            }
            _ => {
                let consumer = self.consumer_info().await?;
                check_consumer(&names, &consumer["config"])?;
                self.may_publish(&names.dead_subject).await?;
                self.may_take().await?;
                self.may_read_pieces().await
            }
        }
    }

    /// Tries to publish a message that the stream rejects, because it states a wrong sequence number.
    async fn may_publish(&self, subject: &str) -> Result<(), StreamError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Sequence", u64::MAX.to_string().as_str());
        let request = async_nats::Request::new().headers(headers).payload(Bytes::new());
        let sent = self.refused_or(self.client().send_request(subject.to_owned(), request)).await?;
        let answer = sent.map_err(|error| StreamError::Unreachable {
            servers: self.servers(),
            what: format!("{subject}: {error}"),
        })?;
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
        match answer["error"]["err_code"].as_u64() {
            Some(code::WRONG_LAST_SEQUENCE) => Ok(()),
            _ => Err(StreamError::StreamFailed { what: format!("{subject}: {answer}") }),
        }
    }

    /// Tries to take messages with a request that the consumer rejects as malformed.
    async fn may_take(&self) -> Result<(), StreamError> {
        let names = self.names();
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", names.batches, names.consumer);
        self.ask(subject, Bytes::from_static(b"{")).await.map(|_| ()).map_err(StreamError::from)
    }

    /// Tries to read a piece that does not exist, in both ways, and to remove it.
    async fn may_read_pieces(&self) -> Result<(), StreamError> {
        let (pieces, subject) =
            (&self.names().pieces, format!("{}.check", self.names().piece_subject));
        let direct = format!("$JS.API.DIRECT.GET.{pieces}.{subject}");
        self.ask(direct, Bytes::new()).await?;
        let get = format!("STREAM.MSG.GET.{pieces}");
        match self.api(&get, &json!({ "last_by_subj": subject })).await {
            Ok(_) | Err(Failed::Code { code: code::MESSAGE_NOT_FOUND, .. }) => {}
            Err(failed) => return Err(self.explained(failed)),
        }
        let purged =
            self.api(&format!("STREAM.PURGE.{pieces}"), &json!({ "filter": subject })).await;
        purged.map(drop).map_err(|failed| self.explained(failed))
    }
}
