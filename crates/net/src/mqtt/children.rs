//! Children of a parent over MQTT. Those of one process share a connection to the broker.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::watch;

use super::connection::{Connection, Sender, Session};
use super::driver::{Driver, Inbox};
use super::{Options, Topics, name, named, parse};
use crate::child_inbox::ChildInbox;
use crate::link::{ChildLink, Down, LinkError, MAX_FRAME, State, check_length};

/// A child's end of a link over MQTT.
#[derive(Debug)]
pub struct MqttChild {
    device: [u8; 8],
    up: String,
    inbox: Arc<ChildInbox>,
    connection: Arc<Shared>,
}

impl MqttChild {
    /// Creates a child's link with a connection of its own. The link connects and reconnects
    /// automatically; [`until_up`](crate::link::until_up) waits until it is connected.
    ///
    /// # Errors
    /// `BadAddress`, `BadFile`, `PasswordInClear`. Nothing is sent yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(options: &Options, device: [u8; 8]) -> Result<Self, LinkError> {
        MqttChildren::new(options.clone(), vec![device])?.open(device)
    }
}

impl ChildLink for MqttChild {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        check_length(&frame)?;
        self.connection.sender.publish(&self.up, false, frame).await
    }

    async fn receive(&mut self) -> Result<Down, LinkError> {
        Ok(self.inbox.next().await)
    }

    fn state(&self) -> watch::Receiver<State> {
        self.connection.driver.state()
    }
}

impl Drop for MqttChild {
    fn drop(&mut self) {
        self.connection.waiting.remove(self.device, &self.inbox);
    }
}

/// Children of one process. They share a connection, so that a thousand of them cost the process and the
/// broker as much as one. The broker must let this client use the names of all of them.
#[derive(Clone)]
pub struct MqttChildren(Arc<Children>);

struct Children {
    options: Options,
    topics: Topics,
    /// In ascending order.
    devices: Vec<[u8; 8]>,
    /// The connection, while a child is open.
    connection: Mutex<Weak<Shared>>,
}

impl fmt::Debug for MqttChildren {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttChildren").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl MqttChildren {
    /// Creates the children `devices`. Nothing connects before [`open`](Self::open).
    ///
    /// # Errors
    /// `BadAddress`, `PasswordInClear`.
    pub fn new(options: Options, mut devices: Vec<[u8; 8]>) -> Result<Self, LinkError> {
        parse(&options)?;
        let topics = Topics::new(&options.group)?;
        devices.sort_unstable();
        devices.dedup();
        Ok(Self(Arc::new(Children { options, topics, devices, connection: Mutex::default() })))
    }

    /// Returns the options of the connection.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Opens the link of one of the children. The first one starts the connection, and the last one
    /// that is dropped ends it. If the link of the child is open already, the new one receives its
    /// frames.
    ///
    /// # Errors
    /// `BadFile`; `BadAddress` if the child is not one of these.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(&self, device: [u8; 8]) -> Result<MqttChild, LinkError> {
        let Children { options, topics, devices, connection } = &*self.0;
        if devices.binary_search(&device).is_err() {
            let cause = format!("{} is not a child of this connection", name(device));
            let (url, example) = (options.url.clone(), "mqtts://broker.example:8883");
            return Err(LinkError::BadAddress { url, cause, example });
        }
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = match connection.upgrade() {
            Some(shared) => shared,
            None => Arc::new(Shared::connect(options, topics, devices)?),
        };
        *connection = Arc::downgrade(&shared);
        let inbox = shared.waiting.insert(device);
        Ok(MqttChild { device, up: topics.up(name(device)), inbox, connection: shared })
    }
}

/// A connection of several children.
#[derive(Debug)]
struct Shared {
    sender: Sender,
    waiting: SharedInbox,
    driver: Driver,
}

impl Shared {
    fn connect(options: &Options, topics: &Topics, devices: &[[u8; 8]]) -> Result<Self, LinkError> {
        let url = parse(options)?;
        // Another client with the same id would end this connection: the id of several children is
        // not that of one of them.
        let first = devices.first().copied().map(name).unwrap_or_default();
        let others = if devices.len() > 1 { "-and-others" } else { "" };
        let client = format!("moteseal-{}-{first}{others}", options.group);
        let (connection, sender) = Connection::new(options, &url, client, Session::Transient)?;
        let waiting = SharedInbox::new(topics);
        let mut subscriptions = vec![topics.round()];
        subscriptions.extend(devices.iter().map(|device| topics.down(name(*device))));
        let driver = Driver::start(
            connection,
            sender.clone(),
            options,
            subscriptions,
            waiting.clone(),
            None,
        );
        Ok(Self { sender, waiting, driver })
    }
}

/// The messages that wait at the children.
#[derive(Clone)]
struct SharedInbox(Arc<AtChildren>);

struct AtChildren {
    round: String,
    /// The prefix of the topics of frames.
    down: String,
    children: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// The newest announcement, for children that are opened later.
    announcement: Option<Bytes>,
    children: HashMap<[u8; 8], Arc<ChildInbox>>,
}

impl fmt::Debug for SharedInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInbox").field("down", &self.0.down).finish_non_exhaustive()
    }
}

impl SharedInbox {
    fn new(topics: &Topics) -> Self {
        let (round, down) = (topics.round(), topics.down(""));
        Self(Arc::new(AtChildren { round, down, children: Mutex::default() }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, device: [u8; 8]) -> Arc<ChildInbox> {
        let mut open = self.open();
        let inbox = Arc::new(ChildInbox::default());
        if let Some(announcement) = &open.announcement {
            inbox.put(Down::Announcement(announcement.clone()));
        }
        open.children.insert(device, Arc::clone(&inbox));
        inbox
    }

    /// Removes a child, unless it was opened again.
    fn remove(&self, device: [u8; 8], inbox: &Arc<ChildInbox>) {
        let mut open = self.open();
        if open.children.get(&device).is_some_and(|open| Arc::ptr_eq(open, inbox)) {
            open.children.remove(&device);
        }
    }
}

impl Inbox for SharedInbox {
    fn put(&self, topic: &[u8], payload: &Bytes) {
        if payload.len() > MAX_FRAME {
            return;
        }
        // Copy the payload, because a slice would keep the connection's whole buffer in memory.
        let payload = Bytes::copy_from_slice(payload);
        let mut open = self.open();
        if topic == self.0.round.as_bytes() {
            for inbox in open.children.values() {
                inbox.put(Down::Announcement(payload.clone()));
            }
            open.announcement = Some(payload);
        } else if let Some(device) = topic.strip_prefix(self.0.down.as_bytes()).and_then(named)
            && let Some(inbox) = open.children.get(&device)
        {
            inbox.put(Down::Frame(payload));
        }
    }
}
