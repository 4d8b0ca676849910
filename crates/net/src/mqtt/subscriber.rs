//! Receives the messages of other programs from a broker, and acknowledges each message only after
//! the receiver has made it durable.
//!
//! The session is persistent. While the subscriber is not connected, or until it acknowledges a
//! message, messages with QoS 1 wait at the broker, within the broker's limits. The broker delivers
//! a message that was not acknowledged when the connection ended again. The subscriber recognises
//! such messages while it runs, and passes each on once. After a restart, a receiver may see a
//! message twice. Messages with QoS 0 arrive at most once.
//!
//! Acknowledgements are sent in the order in which the messages arrived, as MQTT requires
//! (MQTT 5, section 4.6). A message that is never acknowledged therefore delays the others of the
//! same subscriber.
//!
//! A client of MQTT 5 states how many messages it takes before it acknowledges the first of them. Not
//! every broker obeys, and MQTT 3.1.1 has no such limit. While the receiver is slow, the subscriber
//! therefore stops reading, so that the broker keeps the messages.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

use super::connection::{Ack, Connection, Happened, MAX_UNACKNOWLEDGED, Packet, Sender, Session};
use super::{Backoff, Options, parse};
use crate::client::spread;
use crate::link::{LinkError, MAX_FRAME, State};

/// The maximum number of messages that wait for the receiver. At the limit, messages with QoS 0 are
/// dropped, and others stay at the broker.
const WAITING: usize = 2 * MAX_UNACKNOWLEDGED as usize;
/// The maximum number of messages of earlier connections that are recognised if the broker delivers
/// them again.
const EARLIER: usize = 256;
/// What a message takes in addition to its topic and its payload, in bytes.
const OVERHEAD: usize = 256;
/// How long the end of a connection may take.
const FINISH: Duration = Duration::from_secs(2);
/// The maximum number of topic filters in one packet.
const FILTERS: usize = 64;

/// The memory for the messages that their receiver has not dropped.
struct Room {
    free: Arc<Semaphore>,
    bytes: u32,
}

impl Room {
    fn new(bytes: u32) -> Self {
        let free = usize::try_from(bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(free)), bytes }
    }

    /// Returns what a message takes: at most everything.
    fn share(&self, bytes: usize) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bytes)
    }

    /// Takes room, or returns `None` if there is not enough.
    fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_many_owned(self.share(bytes)).ok()
    }

    /// Takes room. Waits until there is enough.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).acquire_many_owned(self.share(bytes)).await.ok()
    }
}

/// Acknowledges a message. If it is dropped instead, the subscriber connects again, and the broker
/// repeats the message.
#[derive(Debug)]
pub struct Received(Option<oneshot::Sender<()>>);

impl Received {
    /// Acknowledges the message.
    pub fn acknowledge(self) {
        if let Some(send) = self.0 {
            // The subscriber may have ended.
            let _ = send.send(());
        }
    }
}

/// A message of another program.
#[derive(Debug)]
pub struct Message {
    /// The topic.
    pub topic: String,
    /// The payload; empty if it is too long.
    pub payload: Bytes,
    /// Whether the payload is longer than [`MAX_FRAME`].
    pub is_too_long: bool,
    /// Whether the broker had retained the message from before the subscription. Such a message is
    /// the last state of its topic, of an unknown age.
    pub is_retained: bool,
    /// The acknowledgement.
    pub received: Received,
    /// The room that the message takes.
    _room: OwnedSemaphorePermit,
}

/// A client that subscribes to topics. It stops when it is dropped.
#[derive(Debug)]
pub struct Subscriber {
    messages: mpsc::Receiver<Message>,
    state: watch::Receiver<State>,
    dropped: Arc<AtomicU64>,
    finishing: watch::Sender<bool>,
    greet: AbortHandle,
    drive: JoinHandle<()>,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.greet.abort();
        self.drive.abort();
    }
}

impl Subscriber {
    /// Creates a subscriber with this client id, which must be unique at the broker. It connects
    /// and reconnects automatically. The group of the options is not used. The messages that
    /// were received and not dropped take at most `room` bytes. Further messages are dropped if they
    /// have QoS 0; others stay at the broker.
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
        room: u32,
    ) -> Result<Self, LinkError> {
        let url = parse(options)?;
        let (connection, sender) =
            Connection::new(options, &url, client.into(), Session::Acknowledged)?;
        let (put, messages) = mpsc::channel(WAITING);
        let (tell, state) = watch::channel(State::Connecting);
        let connected = watch::Sender::new(());
        let dropped = Arc::new(AtomicU64::new(0));
        let greet = tokio::spawn(greet(sender.clone(), filters, connected.subscribe()));
        let inbox = Inbox { put, room: Room::new(room), dropped: Arc::clone(&dropped) };
        let (finishing, finishes) = watch::channel(false);
        let run = drive(connection, sender, options.backoff, inbox, tell, connected, finishes);
        let (greet, drive) = (greet.abort_handle(), tokio::spawn(run));
        Ok(Self { messages, state, dropped, finishing, greet, drive })
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

    /// Returns the state of the connection, as a channel that reports changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Returns the number of messages with QoS 0 that were dropped because too many waited, since the
    /// subscriber was created.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Returns whether a text is a topic to which one can publish: a filter without wildcards.
#[must_use]
pub fn is_topic(text: &str) -> bool {
    is_filter(text) && !text.contains(['+', '#'])
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
    room: Room,
    dropped: Arc<AtomicU64>,
}

/// Identifies a message that the broker may deliver again: the packet identifier, and a digest of the
/// topic and the payload.
type Key = (u16, u64);

/// Receives that a message was recorded. Its other end is dropped if the message was not recorded.
type Recorded = oneshot::Receiver<()>;

/// The messages with QoS 1 that the broker has sent and that are not acknowledged.
#[derive(Default)]
struct Unacknowledged {
    /// Those that arrived over this connection, oldest first.
    waiting: VecDeque<(Ack, Key, Recorded)>,
    /// Those that arrived only over earlier connections, oldest first. The broker delivers them again,
    /// with the same packet identifiers (MQTT 5, section 4.4).
    earlier: VecDeque<(Key, Recorded)>,
    hasher: RandomState,
}

impl Unacknowledged {
    /// Waits until the oldest message may be acknowledged. Returns `None` if it was not recorded.
    /// Waits forever if there is none. The future may be dropped.
    async fn next(&mut self) -> Option<Ack> {
        let Some((.., recorded)) = self.waiting.front_mut() else {
            return std::future::pending().await;
        };
        let is_recorded = recorded.await.is_ok();
        self.waiting.pop_front().filter(|_| is_recorded).map(|(ack, ..)| ack)
    }

    /// Notes that the connection has ended.
    fn disconnected(&mut self) {
        self.earlier.extend(self.waiting.drain(..).map(|(_, key, recorded)| (key, recorded)));
        let over = self.earlier.len().saturating_sub(EARLIER);
        self.earlier.drain(..over);
    }

    /// Notes that there is another connection. If the broker has not kept the session, the packet
    /// identifiers have another meaning.
    fn connected(&mut self, is_resumed: bool) {
        if !is_resumed {
            self.earlier.clear();
        }
    }

    /// Notes a packet that has arrived. Returns the acknowledgement of its message; or `None` if the
    /// receiver already has the message.
    fn arrived(&mut self, packet: Packet, topic: &[u8], payload: &[u8]) -> Option<Received> {
        let Packet { ack, id, is_repeated } = packet;
        let key = (id, self.hasher.hash_one((topic, payload)));
        let place = self.earlier.iter().position(|((of, _), _)| *of == id);
        let earlier = place.and_then(|place| self.earlier.remove(place));
        let (send, recorded) = oneshot::channel();
        match earlier {
            Some((of, mut earlier)) if is_repeated && of == key => match earlier.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.waiting.push_back((ack, key, earlier));
                    return None;
                }
                Ok(()) => {
                    let _ = send.send(());
                    self.waiting.push_back((ack, key, recorded));
                    return None;
                }
                // The receiver did not record it.
                Err(TryRecvError::Closed) => {}
            },
            _ => {}
        }
        self.waiting.push_back((ack, key, recorded));
        Some(Received(Some(send)))
    }
}

impl Inbox {
    /// Passes a message on. Waits for room for a message that the broker repeats; drops another one
    /// if there is no room. If the receiver has ended, the message is not recorded.
    async fn put(&self, topic: &[u8], payload: &[u8], is_retained: bool, received: Received) {
        let (is_repeated, is_too_long) = (received.0.is_some(), payload.len() > MAX_FRAME);
        let payload = if is_too_long { &[] } else { payload };
        let size = OVERHEAD + topic.len() + payload.len();
        // Copy both, because a slice would keep the connection's whole buffer in memory.
        let topic = String::from_utf8_lossy(topic).into_owned();
        let payload = Bytes::copy_from_slice(payload);
        let message = |_room| Message { topic, payload, is_too_long, is_retained, received, _room };
        if is_repeated {
            if let Some(room) = self.room.take(size).await {
                let _ = self.put.send(message(room)).await;
            }
        } else {
            let put = self.room.try_take(size).map(|room| self.put.try_send(message(room)));
            if !matches!(put, Some(Ok(()))) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
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
    while !unacknowledged.waiting.is_empty() {
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
            Step::Happened(Ok(Happened::Message { topic, payload, is_retained, packet })) => {
                let received = match packet {
                    Some(packet) => unacknowledged.arrived(packet, &topic, &payload),
                    None => Some(Received(None)),
                };
                let Some(received) = received else { continue };
                let is_put = tokio::select! {
                    () = inbox.put(&topic, &payload, is_retained, received) => true,
                    _ = finishes.wait_for(|finishes| *finishes) => false,
                };
                if is_put {
                    continue;
                }
                return finish(connection, &sender, unacknowledged).await;
            }
            Step::Happened(Ok(Happened::Other)) => continue,
            Step::Happened(Ok(Happened::Connected { is_resumed })) => {
                unacknowledged.connected(is_resumed);
                connected.send_replace(());
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
        unacknowledged.disconnected();
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
            assert!(!is_topic(wrong), "{wrong:?}");
        }
        assert!(is_topic("a/b") && !is_topic("a/+") && !is_topic("#"));
    }
}
