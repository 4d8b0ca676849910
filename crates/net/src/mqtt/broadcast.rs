//! A broadcast medium at an MQTT broker: everybody of a group `G` publishes to `moteseal/1/G/broadcast/NAME` and subscribes to
//! `moteseal/1/G/broadcast/+`. The name, 16 hexadecimal digits, is drawn anew for each link: by it a link knows its own frames, and
//! clients take turns. It binds nobody: whoever may publish in the group may use any name, one that was heard among them, and have its frames
//! taken for another's or dropped with them. A broker's access list says who may publish in a group at all (`moteseal/1/G/broadcast/+`); within it, what
//! holds against an attacker is the protocol above, as on a radio.
//!
//! Everything is QoS 0. What gets lost is asked for by the protocol above, of whoever has it; a broker's acknowledgements say nothing about
//! receivers, would double the packets, and its queue for a slow subscriber would deliver requests and repairs after nobody
//! needs them any more. Nothing is retained: who comes late hears of a chain by the advertisements.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use super::connection::{Connection, Quality, Sender};
use super::driver::{self, Driver};
use super::{Options, Topics, name, named, parse};
use crate::broadcast::medium::{BroadcastLink, MAX_DATAGRAM, check_length};
use crate::client::random;
use crate::fair;
use crate::link::{LinkError, State};

/// Bytes that may wait here.
const WAITING_BYTES: usize = 8 << 20;

/// One's end of a broadcast medium at a broker.
#[derive(Debug)]
pub struct MqttBroadcast {
    sender: Sender,
    topic: String,
    inbox: Inbox,
    driver: Driver,
}

impl MqttBroadcast {
    /// A link that connects, and connects again, by itself. [`until_up`](crate::link::until_up) waits for that.
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
        let (connection, sender) = Connection::new(options, &url, client, false)?;
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

    /// How the link stands, and a way to be told when that changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.driver.state()
    }
}

impl BroadcastLink for MqttBroadcast {
    /// While the link is down, frames are lost, like those of a radio that is switched off.
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

/// What waits here: everybody's but one's own.
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
            // A slice of the connection's buffer would keep all of that alive.
            Some(from) if payload.len() <= MAX_DATAGRAM => {
                self.waiting.put(from, Bytes::copy_from_slice(payload))
            }
            _ => self.waiting.refuse(),
        }
    }
}
