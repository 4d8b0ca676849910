//! Publishes messages that must not reach their receivers after a given time.
//!
//! A message counts as published when the broker has acknowledged it. A connection that ends forgets
//! its messages: the publisher asks again whether a message is still due before it sends the message
//! over the next connection.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Connection, Fate, Happened, Sender, Session};
use super::{Backoff, Options, is_topic, parse};
use crate::client::spread;
use crate::link::{LinkError, State};

/// The wait after a connection ended before the message is sent again.
const AGAIN: Duration = Duration::from_millis(100);

/// Whether a message may be published now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It may, and has no end.
    Always,
    /// It may, and the broker must discard it after this number of seconds. A broker of MQTT 3.1.1
    /// does not know the end.
    Seconds(u32),
    /// Its time has ended.
    Over,
}

/// A client that publishes messages with QoS 1. It has a connection of its own, and stops when it is
/// dropped.
#[derive(Debug)]
pub struct Publisher {
    url: String,
    sender: Sender,
    state: watch::Receiver<State>,
    drive: AbortHandle,
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.drive.abort();
    }
}

impl Publisher {
    /// Creates a publisher with this client id, which must be unique at the broker. It connects and
    /// reconnects automatically. The group of the options is not used.
    ///
    /// # Errors
    /// `BadAddress`, `BadFile`, `PasswordInClear`. Nothing is sent yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(options: &Options, client: impl Into<String>) -> Result<Self, LinkError> {
        let url = parse(options)?;
        let (connection, sender) =
            Connection::new(options, &url, client.into(), Session::Transient)?;
        let (tell, state) = watch::channel(State::Connecting);
        let drive = tokio::spawn(drive(connection, options.backoff, tell)).abort_handle();
        Ok(Self { url: options.url.clone(), sender, state, drive })
    }

    /// Publishes a message with QoS 1 that the broker does not retain. Waits until the broker has
    /// acknowledged it, over as many connections as necessary. `due` is called before each attempt.
    /// Returns false if the time of the message ended before the broker has acknowledged it.
    ///
    /// # Errors
    /// `Refused` if the broker refuses the message, or if the topic is not valid; `Closed` if the publisher has ended.
    pub async fn publish(
        &mut self,
        topic: &str,
        payload: Bytes,
        due: impl Fn() -> Due,
    ) -> Result<bool, LinkError> {
        let url = self.url.clone();
        let refused = |cause| LinkError::Refused { url: url.clone(), cause };
        if !is_topic(topic) {
            return Err(refused(format!("{topic:?} is not a topic")));
        }
        loop {
            let up = self.state.wait_for(|state| *state == State::Up).await.map(drop);
            up.map_err(|_| LinkError::Closed)?;
            let expiry = match due() {
                Due::Over => return Ok(false),
                Due::Always => None,
                Due::Seconds(seconds) => Some(seconds),
            };
            let left = expiry.map_or(Duration::MAX, |seconds| Duration::from_secs(seconds.into()));
            let published = self.sender.publish_expiring(topic, payload.clone(), expiry).await?;
            match timeout(left, published.fate()).await {
                Ok(Fate::Taken) => return Ok(true),
                Ok(Fate::Refused(cause)) => return Err(refused(cause)),
                // The broker may have the message, but it has not said so in time.
                Err(_) => return Ok(false),
                Ok(Fate::Lost) => sleep(AGAIN).await,
            }
        }
    }
}

async fn drive(mut connection: Connection, backoff: Backoff, state: watch::Sender<State>) {
    let (mut attempt, mut up_since) = (0, None::<Instant>);
    loop {
        let cause = match connection.next().await {
            Ok(Happened::Connected { .. }) => {
                state.send_replace(State::Up);
                up_since = Some(Instant::now());
                continue;
            }
            Ok(_) => continue,
            Err(cause) => cause,
        };
        if up_since.take().is_some_and(|since| since.elapsed() > backoff.longest) {
            attempt = 0;
        }
        let again_in = backoff.wait(attempt, spread());
        attempt = attempt.saturating_add(1);
        state.send_replace(State::Down { cause, again_in });
        connection.forget();
        sleep(again_in).await;
        // A message that was queued while the state changed must not wait for the next connection.
        connection.close();
        connection.forget();
    }
}
