//! The tasks that run a link over MQTT. They reconnect, subscribe, publish the newest announcement,
//! and sort incoming messages.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::connection::{Connection, Happened, Sender};
use super::{Backoff, Options, named};
use crate::client::spread;
use crate::fair;
use crate::link::{LinkError, MAX_FRAME, State, Up};

/// The maximum total size of the frames that wait at the parent, in bytes.
const PARENT_BYTES: usize = 64 << 20;
/// The maximum number of topics in one packet.
const SUBSCRIBED_AT_ONCE: usize = 256;

/// After this many successive connections that broke soon, another client may have the same id.
const SHORT_CONNECTIONS: u32 = 3;

/// The destination of incoming messages. It drops a message that is too long or on another topic.
pub(super) trait Inbox: Clone + Send + 'static {
    fn put(&self, topic: &[u8], payload: &Bytes);
}

/// The topic of a parent's announcements, and the newest announcement.
type Announcements = (String, watch::Receiver<Option<Bytes>>);

/// The tasks of a link. They stop when this value is dropped.
#[derive(Debug)]
pub(super) struct Driver {
    state: watch::Receiver<State>,
    tasks: [AbortHandle; 2],
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Driver {
    pub(super) fn start(
        connection: Connection,
        sender: Sender,
        options: &Options,
        subscriptions: Vec<String>,
        inbox: impl Inbox,
        announcements: Option<Announcements>,
    ) -> Self {
        let (tell, state) = watch::channel(State::Connecting);
        let connected = watch::Sender::new(());
        let packets = subscriptions.len().div_ceil(SUBSCRIBED_AT_ONCE);
        let greet =
            tokio::spawn(greet(sender, subscriptions, announcements, connected.subscribe()));
        let drive =
            tokio::spawn(drive(connection, options.backoff, inbox, packets, tell, connected));
        Self { state, tasks: [greet.abort_handle(), drive.abort_handle()] }
    }

    pub(super) fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    pub(super) fn is_up(&self) -> bool {
        *self.state.borrow() == State::Up
    }
}

async fn drive(
    mut connection: Connection,
    backoff: Backoff,
    inbox: impl Inbox,
    packets: usize,
    state: watch::Sender<State>,
    connected: watch::Sender<()>,
) {
    let (mut attempt, mut up_since, mut short) = (0, None::<Instant>, 0);
    // The packets with subscriptions that the broker has accepted.
    let mut accepted = 0;
    loop {
        let (cause, asks_again) = match connection.next().await {
            Ok(Happened::Message { topic, payload, .. }) => {
                inbox.put(&topic, &payload);
                continue;
            }
            Ok(Happened::Other) => continue,
            Ok(Happened::Connected { .. }) => {
                accepted = 0;
                connected.send_replace(());
                continue;
            }
            Ok(Happened::Subscribed) => {
                accepted += 1;
                if accepted == packets {
                    state.send_replace(State::Up);
                    up_since = Some(Instant::now());
                }
                continue;
            }
            Ok(Happened::NotSubscribed) => (connection.not_subscribed(), true),
            Err(error) => (error, false),
        };
        // A connection that lasted long enough counts as a success. A connection that broke soon
        // counts as another failure.
        let lasted = up_since.take().map(|since| since.elapsed());
        if lasted.is_some_and(|lasted| lasted > backoff.longest) {
            attempt = 0;
        }
        // Two clients with the same id take turns: every attempt succeeds and ends soon. If a broker
        // stops or the network fails, attempts usually fail. With MQTT 3.1.1, the broker gives no
        // reason, so the cause remains uncertain.
        short = if lasted.is_some_and(|lasted| lasted <= backoff.longest) { short + 1 } else { 0 };
        let cause = match cause {
            LinkError::Unreachable { .. } if short >= SHORT_CONNECTIONS => {
                connection.closed_soon(short)
            }
            cause => cause,
        };
        let again_in = backoff.wait(attempt, spread());
        attempt = attempt.saturating_add(1);
        state.send_replace(State::Down { cause, again_in });
        tokio::time::sleep(again_in).await;
        if asks_again {
            accepted = 0;
            connected.send_replace(());
        }
    }
}

/// Subscribes after every connection. Publishes the newest announcement again, because a broker
/// that restarted may have lost it.
async fn greet(
    sender: Sender,
    subscriptions: Vec<String>,
    announcements: Option<Announcements>,
    mut connected: watch::Receiver<()>,
) {
    let Some((topic, mut newest)) = announcements else {
        while connected.changed().await.is_ok() && subscribe(&sender, &subscriptions).await.is_ok()
        {
        }
        return;
    };
    loop {
        let is_new = tokio::select! {
            changed = connected.changed() => changed.is_ok() && subscribe(&sender, &subscriptions).await.is_ok(),
            changed = newest.changed() => changed.is_ok(),
        };
        if !is_new {
            return;
        }
        let announcement = newest.borrow_and_update().clone();
        if let Some(announcement) = announcement
            && sender.publish(&topic, true, announcement).await.is_err()
        {
            return;
        }
    }
}

async fn subscribe(sender: &Sender, topics: &[String]) -> Result<(), LinkError> {
    for topics in topics.chunks(SUBSCRIBED_AT_ONCE) {
        sender.subscribe(topics).await?;
    }
    Ok(())
}

/// The frames that wait at the parent.
#[derive(Clone)]
pub(super) struct ParentInbox(Arc<AtParent>);

struct AtParent {
    /// The prefix of the children's topics.
    prefix: String,
    /// The children whose frames are accepted, in ascending order. Without this list, a client
    /// could use up the memory with frames under any number of invented names.
    members: RwLock<Vec<[u8; 8]>>,
    waiting: fair::Inbox,
}

impl std::fmt::Debug for ParentInbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParentInbox").field("prefix", &self.0.prefix).finish_non_exhaustive()
    }
}

impl ParentInbox {
    pub(super) fn new(prefix: String, members: Vec<[u8; 8]>) -> Self {
        let waiting = fair::Inbox::new(PARENT_BYTES);
        let inbox = Self(Arc::new(AtParent { prefix, members: RwLock::default(), waiting }));
        inbox.set_members(members);
        inbox
    }

    /// Replaces the set of children whose frames are accepted.
    pub(super) fn set_members(&self, mut members: Vec<[u8; 8]>) {
        members.sort_unstable();
        *self.0.members.write().unwrap_or_else(PoisonError::into_inner) = members;
    }

    fn is_member(&self, device: &[u8; 8]) -> bool {
        let members = self.0.members.read().unwrap_or_else(PoisonError::into_inner);
        members.binary_search(device).is_ok()
    }

    pub(super) async fn next(&self, excluded: Option<[u8; 8]>) -> Up {
        self.0.waiting.next(excluded).await
    }

    pub(super) fn dropped(&self) -> u64 {
        self.0.waiting.dropped()
    }
}

impl Inbox for ParentInbox {
    fn put(&self, topic: &[u8], payload: &Bytes) {
        let device = topic.strip_prefix(self.0.prefix.as_bytes()).and_then(named);
        let device = device.filter(|device| self.is_member(device));
        match device {
            // Copy the payload, because a slice would keep the connection's whole buffer in memory.
            Some(device) if payload.len() <= MAX_FRAME => {
                self.0.waiting.put(Up::new(device, Bytes::copy_from_slice(payload)));
            }
            _ => self.0.waiting.refuse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unknown senders send more frames than the queue has room for. All of them must be dropped on
    /// arrival, so that the longer frames of members stay in the queue.
    #[tokio::test]
    async fn unknown_senders_take_no_room_from_members() {
        let members = [[0xff; 8], [1; 8], [7; 8]];
        let inbox = ParentInbox::new("up/".to_owned(), members.to_vec());
        let topic = |device: [u8; 8]| format!("up/{:016x}", u64::from_be_bytes(device));
        let put = |device: [u8; 8], length: usize| {
            inbox.put(topic(device).as_bytes(), &Bytes::from(vec![3; length]));
        };
        let unknown = 600_000;
        for number in 0..unknown {
            put((1_u64 << 32 | number).to_be_bytes(), 1);
            if number % (unknown / 2) == 7 {
                members.iter().for_each(|device| put(*device, 60_000));
            }
        }
        assert_eq!(inbox.dropped(), unknown);
        for _ in 0..2 {
            for device in members {
                assert_eq!(inbox.next(None).await, Up::new(device, Bytes::from(vec![3; 60_000])));
            }
        }
    }
}
