//! A broadcast medium over an MQTT broker. Every participant of a group `G` publishes to
//! `moteseal/1/G/cast/NAME` and subscribes to `moteseal/1/G/cast/+`.
//!
//! `NAME` consists of 16 hexadecimal digits that are random for each link. It has two uses: a link
//! recognises its own frames by it, and a link's queue of received frames lets the names take
//! turns. It does not authenticate anyone. A client that may publish in the group may use any name,
//! including the name of another participant. Its frames then count as frames of that participant,
//! and may cause that participant's frames to be dropped. The broker's access list determines who
//! may publish in a group (`moteseal/1/G/cast/+`). Within the group, the broadcast protocol
//! protects against attackers, as it does on a radio.
//!
//! All messages have QoS 0, because the broadcast protocol itself requests lost frames from any
//! participant that has them. With QoS 1, the broker's acknowledgements would double the number of
//! packets without showing that receivers have a frame. The broker's queue for a slow subscriber
//! would deliver requests and repairs too late. No message is retained: a participant that joins
//! late learns about a chain from advertisements.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use super::connection::{Connection, Quality, Sender, Session};
use super::driver::{self, Driver};
use super::{Options, Topics, name, named, parse};
use crate::broadcast::medium::{BroadcastLink, MAX_DATAGRAM, check_length};
use crate::client::random;
use crate::fair;
use crate::link::{LinkError, State, Up};

/// The maximum total size of the received frames that wait, in bytes.
const WAITING_BYTES: usize = 8 << 20;

/// One end of a broadcast medium over a broker.
#[derive(Debug)]
pub struct MqttBroadcast {
    sender: Sender,
    topic: String,
    inbox: Inbox,
    driver: Driver,
}

impl MqttBroadcast {
    /// Creates a link that connects and reconnects automatically;
    /// [`until_up`](crate::link::until_up) waits until it is connected.
    ///
    /// # Errors
    /// `BadAddress`, `BadFile`, `PasswordInClear`. Nothing is sent yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(options: &Options) -> Result<Self, LinkError> {
        let (url, topics) = (parse(options)?, Topics::new(&options.group)?);
        let own = random().to_be_bytes();
        let client = format!("moteseal-{}-broadcast-{}", options.group, name(own));
        let (connection, sender) = Connection::new(options, &url, client, Session::Transient)?;
        let waiting = Arc::new(fair::Inbox::new(WAITING_BYTES));
        let inbox = Inbox { prefix: topics.broadcast("").into(), own, waiting };
        let driver = Driver::start(
            connection,
            sender.clone(),
            options,
            vec![topics.broadcast("+")],
            inbox.clone(),
            None,
        );
        Ok(Self { sender, topic: topics.broadcast(name(own)), inbox, driver })
    }

    /// Returns the link's state, as a channel that reports changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.driver.state()
    }
}

impl BroadcastLink for MqttBroadcast {
    /// While the link is down, frames are lost, as they are with a radio that is switched off.
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        check_length(&frame)?;
        if !self.driver.is_up() {
            return Ok(());
        }
        self.sender.publish_at(Quality::AtMostOnce, &self.topic, false, frame).await
    }

    async fn receive(&self) -> Result<Bytes, LinkError> {
        Ok(self.inbox.waiting.next(None).await.frame)
    }

    fn dropped(&self) -> u64 {
        self.inbox.waiting.dropped()
    }
}

/// The waiting frames of all other participants.
#[derive(Clone, Debug)]
struct Inbox {
    prefix: Arc<str>,
    own: [u8; 8],
    waiting: Arc<fair::Inbox>,
}

impl driver::Inbox for Inbox {
    fn put(&self, topic: &[u8], payload: &Bytes) {
        match topic.strip_prefix(self.prefix.as_bytes()).and_then(named) {
            Some(from) if from == self.own => {}
            // Copy the payload, because a slice would keep the connection's whole buffer in memory.
            Some(from) if payload.len() <= MAX_DATAGRAM => {
                self.waiting.put(Up::new(from, Bytes::copy_from_slice(payload)));
            }
            _ => self.waiting.refuse(),
        }
    }
}
