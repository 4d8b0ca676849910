//! Receives the messages of other programs from a broker, and acknowledges each message only after
//! the receiver has made it durable.
//!
//! The session is persistent. While the subscriber is not connected, or until it acknowledges a
//! message, messages with QoS 1 wait at the broker, within the broker's limits. A message that was
//! not acknowledged when the connection ended is delivered again, so a receiver may see a message
//! twice. Messages with QoS 0 arrive at most once.
//!
//! Acknowledgements are sent in the order in which the messages arrived, as MQTT requires
//! (MQTT 5, section 4.6). A message that is never acknowledged therefore delays the others.
//!
//! A client of MQTT 5 states how many messages it takes before it acknowledges the first of them. Not
//! every broker obeys, and MQTT 3.1.1 has no such limit. While the receiver is slow, the subscriber
//! therefore stops reading, so that the broker keeps the messages.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

use super::connection::{Ack, Connection, Happened, MAX_UNACKNOWLEDGED, Sender, Session};
use super::{Backoff, Options, parse};
use crate::client::spread;
use crate::link::{LinkError, State};

/// The maximum number of messages that wait for the receiver. At the limit, messages with QoS 0 are
/// dropped.
const WAITING: usize = 2 * MAX_UNACKNOWLEDGED as usize;
/// How long the end of a connection may take.
const FINISH: Duration = Duration::from_secs(2);
/// The maximum number of topic filters in one packet.
const FILTERS: usize = 64;

/// Acknowledges a message. If it is dropped instead, the subscriber connects again, and the broker
/// repeats the message.
#[derive(Debug)]
pub struct Received(Option<oneshot::Sender<()>>);

impl Received {
    /// Acknowledges the message.
    pub fn acknowledge(self) {
        if let Some(send) = self.0 {
            // The connection over which the message arrived may have ended.
            let _ = send.send(());
        }
    }

    /// Returns whether the broker repeats the message if it is not acknowledged. A message with
    /// QoS 0 is not repeated.
    #[must_use]
    pub const fn is_repeated(&self) -> bool {
        self.0.is_some()
    }
}

/// A message of another program.
#[derive(Debug)]
pub struct Message {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Bytes,
    /// Whether the broker had retained the message from before the subscription. Such a message is
    /// the last state of its topic, of an unknown age.
    pub is_retained: bool,
    /// The acknowledgement.
    pub received: Received,
}

/// A client that subscribes to topics. It stops when it is dropped.
#[derive(Debug)]
pub struct Subscriber {
    messages: mpsc::Receiver<Message>,
    state: watch::Receiver<State>,
    dropped: Arc<AtomicU64>,
    sender: Sender,
    finishing: watch::Sender<bool>,
    greet: AbortHandle,
    drive: JoinHandle<()>,
}

/// Publishes messages over the connection of a [`Subscriber`].
#[derive(Clone, Debug)]
pub struct Publisher {
    sender: Sender,
    state: watch::Receiver<State>,
}

impl Publisher {
    /// Publishes a message with QoS 1 that the broker does not retain. Waits until the connection is
    /// up, and for room in its queue, but not for the broker. `is_due` decides, when the connection is
    /// up, whether the message is still sent. Returns whether it was.
    ///
    /// # Errors
    /// `Closed` if the subscriber has ended.
    pub async fn publish(
        &mut self,
        topic: &str,
        payload: Bytes,
        is_due: impl FnOnce() -> bool,
    ) -> Result<bool, LinkError> {
        let up = self.state.wait_for(|state| *state == State::Up).await.map(drop);
        up.map_err(|_| LinkError::Closed)?;
        if !is_due() {
            return Ok(false);
        }
        self.sender.publish(topic, false, payload).await.map(|()| true)
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.greet.abort();
        self.drive.abort();
    }
}

impl Subscriber {
    /// Creates a subscriber with this client id, which must be unique at the broker. It connects
    /// and reconnects automatically. The group of the options is not used.
    ///
    /// # Errors
    /// `BadAddress`, `BadFile`, `PasswordInClear`. Nothing is sent yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(
        options: &Options,
        client: impl Into<String>,
        filters: Vec<String>,
    ) -> Result<Self, LinkError> {
        let url = parse(options)?;
        let (connection, sender) =
            Connection::new(options, &url, client.into(), Session::Acknowledged)?;
        let (put, messages) = mpsc::channel(WAITING);
        let (tell, state) = watch::channel(State::Connecting);
        let connected = watch::Sender::new(());
        let subscribes = !filters.is_empty();
        let dropped = Arc::new(AtomicU64::new(0));
        let greet = tokio::spawn(greet(sender.clone(), filters, connected.subscribe()));
        let inbox = Inbox { put, dropped: Arc::clone(&dropped), subscribes };
        let (finishing, finishes) = watch::channel(false);
        let run =
            drive(connection, sender.clone(), options.backoff, inbox, tell, connected, finishes);
        let (greet, drive) = (greet.abort_handle(), tokio::spawn(run));
        Ok(Self { messages, state, dropped, sender, finishing, greet, drive })
    }

    /// Waits for the next message. Returns `None` if the subscriber has ended, which happens only
    /// with its runtime. If the future is dropped, nothing is lost.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
    }

    /// Sends the acknowledgements of the messages that the receiver has recorded, and ends the
    /// connection. The broker keeps the other messages. Takes at most two seconds.
    pub async fn finish(mut self) {
        self.finishing.send_replace(true);
        self.messages.close();
        // Messages that were not received are dropped, and therefore not acknowledged.
        while self.messages.try_recv().is_ok() {}
        let _ = timeout(FINISH, &mut self.drive).await;
    }

    /// Returns a publisher that uses the same connection.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher { sender: self.sender.clone(), state: self.state() }
    }

    /// Returns the state of the connection, as a channel that reports changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Returns the number of messages with QoS 0 that were dropped because too many waited.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Returns whether a text is a topic filter: not empty, `+` only as a whole level, `#` only as the
/// last level (MQTT 5, section 4.7.1).
#[must_use]
pub fn is_filter(text: &str) -> bool {
    let mut levels = text.split('/').peekable();
    let mut is_valid = !text.is_empty() && text.len() <= 1024 && !text.contains('\0');
    while let Some(level) = levels.next() {
        is_valid &= match level {
            "+" => true,
            "#" => levels.peek().is_none(),
            level => !level.contains(['+', '#']),
        };
    }
    is_valid
}

/// Returns whether a topic matches a filter (MQTT 5, section 4.7).
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(level), Some(of)) if level == of => {}
            _ => return false,
        }
    }
}

async fn greet(sender: Sender, filters: Vec<String>, mut connected: watch::Receiver<()>) {
    while connected.changed().await.is_ok() {
        for filters in filters.chunks(FILTERS) {
            if sender.subscribe(filters).await.is_err() {
                return;
            }
        }
    }
}

/// The end into which the connection puts its messages.
struct Inbox {
    put: mpsc::Sender<Message>,
    dropped: Arc<AtomicU64>,
    /// Whether there are topics to subscribe to. Without any, the connection is only for publishing.
    subscribes: bool,
}

/// The messages that the broker has sent and that are not acknowledged, oldest first.
#[derive(Default)]
struct Unacknowledged(VecDeque<(Ack, oneshot::Receiver<()>)>);

impl Unacknowledged {
    /// Waits until the oldest message may be acknowledged. Returns `None` if it was not recorded.
    /// Waits forever if there is none. The future may be dropped.
    async fn next(&mut self) -> Option<Ack> {
        let Some((_, received)) = self.0.front_mut() else { return std::future::pending().await };
        let is_recorded = received.await.is_ok();
        self.0.pop_front().filter(|_| is_recorded).map(|(ack, _)| ack)
    }
}

impl Inbox {
    /// Passes a message on. Waits for room for a message that must not be lost; drops another one if
    /// there is no room. If the receiver has ended, the message is not recorded.
    async fn put(&self, message: Message) {
        if message.received.is_repeated() {
            let _ = self.put.send(message).await;
        } else if self.put.try_send(message).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The next step of a connection.
enum Step {
    Happened(Result<Happened, LinkError>),
    /// The receiver did not record a message.
    NotRecorded,
    /// The receiver wants to finish.
    Finishing,
}

/// Waits for the next event of the connection, and sends acknowledgements meanwhile.
async fn step(
    connection: &mut Connection,
    sender: &Sender,
    unacknowledged: &mut Unacknowledged,
    finishes: &mut watch::Receiver<bool>,
) -> Step {
    // This future must run to its end, because it may hold a part of a packet.
    let mut next = pin!(connection.next());
    loop {
        tokio::select! {
            biased;
            happened = &mut next => return Step::Happened(happened),
            _ = finishes.wait_for(|finishes| *finishes) => return Step::Finishing,
            ack = unacknowledged.next() => {
                let Some(ack) = ack else { return Step::NotRecorded };
                // `next` sends the acknowledgements meanwhile. There is no room only if the broker
                // does not read them.
                if sender.acknowledge(ack).is_err() {
                    return Step::NotRecorded;
                }
            }
        }
    }
}

/// Sends the acknowledgements of the messages that were recorded, up to the first that was not, and
/// disconnects.
async fn finish(mut connection: Connection, sender: &Sender, mut unacknowledged: Unacknowledged) {
    while !unacknowledged.0.is_empty() {
        tokio::select! {
            happened = connection.next() => if happened.is_err() { return },
            ack = unacknowledged.next() => match ack {
                Some(ack) => if sender.acknowledge(ack).is_err() { break },
                None => break,
            },
        }
    }
    sender.disconnect().await;
    while connection.next().await.is_ok() {}
}

async fn drive(
    mut connection: Connection,
    sender: Sender,
    backoff: Backoff,
    inbox: Inbox,
    state: watch::Sender<State>,
    connected: watch::Sender<()>,
    mut finishes: watch::Receiver<bool>,
) {
    let (mut attempt, mut up_since) = (0, None::<Instant>);
    let mut unacknowledged = Unacknowledged::default();
    loop {
        let cause = match step(&mut connection, &sender, &mut unacknowledged, &mut finishes).await {
            Step::Finishing => return finish(connection, &sender, unacknowledged).await,
            Step::Happened(Ok(Happened::Message { topic, payload, is_retained, ack })) => {
                let (received, ack) = match ack {
                    Some(ack) => {
                        let (send, receive) = oneshot::channel();
                        (Received(Some(send)), Some((ack, receive)))
                    }
                    None => (Received(None), None),
                };
                unacknowledged.0.extend(ack);
                // Copy both, because a slice would keep the connection's whole buffer in memory.
                let topic = String::from_utf8_lossy(&topic).into_owned();
                let payload = Bytes::copy_from_slice(&payload);
                let message = Message { topic, payload, is_retained, received };
                let is_put = tokio::select! {
                    () = inbox.put(message) => true,
                    _ = finishes.wait_for(|finishes| *finishes) => false,
                };
                if is_put {
                    continue;
                }
                return finish(connection, &sender, unacknowledged).await;
            }
            Step::Happened(Ok(Happened::Other)) => continue,
            Step::Happened(Ok(Happened::Connected)) => {
                connected.send_replace(());
                if !inbox.subscribes {
                    state.send_replace(State::Up);
                    up_since.get_or_insert_with(Instant::now);
                }
                continue;
            }
            Step::Happened(Ok(Happened::Subscribed)) => {
                state.send_replace(State::Up);
                up_since.get_or_insert_with(Instant::now);
                continue;
            }
            Step::Happened(Ok(Happened::NotSubscribed)) => {
                connection.close();
                connection.not_subscribed()
            }
            Step::Happened(Err(error)) => error,
            Step::NotRecorded => {
                connection.close();
                LinkError::Unreachable {
                    url: connection.url().to_owned(),
                    cause: "a message was not recorded; the broker must repeat it".to_owned(),
                }
            }
        };
        // The broker repeats these messages. Their packet identifiers may soon have a new meaning.
        unacknowledged.0.clear();
        if up_since.take().is_some_and(|since| since.elapsed() > backoff.longest) {
            attempt = 0;
        }
        let again_in = backoff.wait(attempt, spread()).max(Duration::from_millis(100));
        attempt = attempt.saturating_add(1);
        state.send_replace(State::Down { cause, again_in });
        tokio::select! {
            () = tokio::time::sleep(again_in) => {}
            _ = finishes.wait_for(|finishes| *finishes) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_topics_as_mqtt_requires() {
        for (filter, topic) in [
            ("a/b", "a/b"),
            ("a/+", "a/b"),
            ("+/b", "a/b"),
            ("a/#", "a/b/c"),
            ("a/#", "a"),
            ("#", "a/b"),
            ("+/+", "/x"),
            ("$SYS/#", "$SYS/x"),
        ] {
            assert!(matches(filter, topic), "{filter} {topic}");
            assert!(is_filter(filter), "{filter}");
        }
        for (filter, topic) in [
            ("a/b", "a/b/c"),
            ("a/+", "a"),
            ("a/+", "a/b/c"),
            ("+", "a/b"),
            ("a", "A"),
            ("#", "$SYS/x"),
            ("+/x", "$SYS/x"),
        ] {
            assert!(!matches(filter, topic), "{filter} {topic}");
        }
        for wrong in ["", "a#", "#/a", "a/b+", "a\0"] {
            assert!(!is_filter(wrong), "{wrong:?}");
        }
    }
}
