//! Links over an MQTT broker (version 3.1.1 or 5), with TCP or TLS.
//!
//! In a group `G`, a child `D` (16 hexadecimal digits) publishes its frames to `moteseal/1/G/up/D`
//! and subscribes to `moteseal/1/G/down/D` and `moteseal/1/G/round`. The parent subscribes to
//! `moteseal/1/G/up/+` and publishes its announcements as retained messages. All messages have
//! QoS 1. The parent's session is persistent: while the parent is not connected, frames for it wait
//! at the broker, within the broker's limits. A broker's acknowledgement does not mean that the
//! parent has received a frame. The parent acknowledges frames with frames of its own.
//!
//! The broker is trusted only for availability. Its access list should allow a device to publish
//! and subscribe only under the device's own name. The broker's settings `max_queued_messages` and
//! `message_size_limit` limit how much it stores for a parent that is not connected. Mosquitto
//! needs the setting `set_tcp_nodelay true`. Without it, Nagle's algorithm at the broker and
//! delayed acknowledgements at this end add 40 ms to every round trip.

pub(crate) mod broadcast;
mod children;
mod connection;
mod driver;
mod publisher;
mod resumption;
mod subscriber;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Url;
use tokio::sync::watch;

use crate::client::is_this_machine;
use crate::link::{LinkError, ParentLink, State, Up, check_length};
use connection::{Connection, Sender, Session};
use driver::{Driver, ParentInbox};

pub use crate::credentials::{Identity, Login, Password};
pub use children::{MqttChild, MqttChildren};
pub use publisher::{Due, Publisher};
pub use subscriber::{Message, Received, Subscriber, is_filter, is_topic, matches};

/// The options for connecting to a broker, and the group whose frames the link carries.
#[derive(Clone, Debug)]
pub struct Options {
    /// The broker's address: `mqtt://host[:1883]`, or `mqtts://host[:8883]` for TLS.
    pub url: String,
    /// The group's name in the topics.
    pub group: String,
    /// The version of MQTT.
    pub version: Version,
    /// A PEM file of certificate authorities to trust instead of the platform's.
    pub ca: Option<PathBuf>,
    /// The client certificate, for brokers that require one.
    pub identity: Option<Identity>,
    /// The user and the password, for brokers that require them.
    pub login: Option<Login>,
    /// When to reconnect after the connection was lost or refused.
    pub backoff: Backoff,
    /// How long a connection may be silent before either end checks whether the other end still
    /// responds.
    pub keep_alive: Duration,
}

impl Options {
    /// Creates options for a broker and a group, with default values for the rest.
    #[must_use]
    pub fn new(url: impl Into<String>, group: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            group: group.into(),
            version: Version::default(),
            ca: None,
            identity: None,
            login: None,
            backoff: Backoff::default(),
            keep_alive: Duration::from_secs(30),
        }
    }
}

/// A version of MQTT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// MQTT 3.1.1.
    V3,
    /// MQTT 5.0.
    #[default]
    V5,
}

/// The waits before each attempt to reconnect. The wait doubles after each failure. Half of each
/// wait is random, so that clients do not all return at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The maximum length of one wait.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(250), longest: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// Returns the wait after failure number `attempt` (from 0). `spread` is a random number in
    /// 0..1.
    pub(crate) fn wait(&self, attempt: u32, spread: f64) -> Duration {
        self.first
            .saturating_mul(1 << attempt.min(16))
            .min(self.longest)
            .mul_f64(0.5 + 0.5 * spread)
    }
}

/// The topics of a group.
#[derive(Clone, Debug)]
struct Topics {
    /// The common prefix of the topics, with a slash at its end.
    base: String,
}

impl Topics {
    fn new(group: &str) -> Result<Self, LinkError> {
        if group.is_empty()
            || group.len() > 64
            || !group.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        {
            let cause =
                "a group's name in topics must be 1 to 64 letters, digits, '-', '_' and '.'"
                    .to_owned();
            return Err(LinkError::BadAddress { url: group.to_owned(), cause, example: "field-7" });
        }
        Ok(Self { base: format!("moteseal/1/{group}/") })
    }

    fn up(&self, device: impl fmt::Display) -> String {
        format!("{}up/{device}", self.base)
    }

    fn down(&self, device: impl fmt::Display) -> String {
        format!("{}down/{device}", self.base)
    }

    fn broadcast(&self, from: impl fmt::Display) -> String {
        format!("{}cast/{from}", self.base)
    }

    fn round(&self) -> String {
        format!("{}round", self.base)
    }
}

/// Returns a device's name in topics.
fn name(device: [u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(device))
}

/// Returns the device that the last level of a topic or of a path names. Only the form that [`name`] returns is
/// accepted, so that each device has only one name.
pub(crate) fn named(part: &[u8]) -> Option<[u8; 8]> {
    moteseal_api::parse_id(part)
}

/// Parses and checks the address. Does not contact the broker.
fn parse(options: &Options) -> Result<Url, LinkError> {
    let bad = |cause: &str| LinkError::BadAddress {
        url: options.url.clone(),
        cause: cause.to_owned(),
        example: "mqtts://broker.example:8883",
    };
    let url = Url::parse(&options.url).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "mqtt" | "mqtts") {
        return Err(bad("its scheme is neither mqtt nor mqtts"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(bad("it has no host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("it must not contain a user or a password; give them as options"));
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(bad("it must end after the port"));
    }
    if options.login.is_some() && url.scheme() == "mqtt" && !is_this_machine(&url) {
        return Err(LinkError::PasswordInClear { url: options.url.clone() });
    }
    Ok(url)
}

/// The parent's end of a link over MQTT.
#[derive(Debug)]
pub struct MqttParent {
    sender: Sender,
    topics: Topics,
    inbox: ParentInbox,
    announcement: watch::Sender<Option<Bytes>>,
    driver: Driver,
}

impl MqttParent {
    /// Creates a parent's link to its `members`. The link connects and reconnects automatically;
    /// [`until_up`](crate::link::until_up) waits until it is connected. A group has one parent: if
    /// two parents connect, the broker disconnects the older one. Messages under names that are not
    /// in `members` are counted and dropped when they arrive, so that they do not use the memory
    /// for the members' frames.
    ///
    /// # Errors
    /// `BadAddress`, `BadFile`, `PasswordInClear`. Nothing is sent yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(
        options: &Options,
        members: impl IntoIterator<Item = [u8; 8]>,
    ) -> Result<Self, LinkError> {
        Self::connect(options, members, "hub", true)
    }

    /// Like [`new`](Self::new), but several parents with different names may connect to a group. Each
    /// of them receives all frames.
    ///
    /// # Errors
    /// `BadAddress`, `BadFile`, `PasswordInClear`. Nothing is sent yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn named(
        options: &Options,
        members: impl IntoIterator<Item = [u8; 8]>,
        name: &str,
    ) -> Result<Self, LinkError> {
        Self::connect(options, members, name, true)
    }

    /// Like [`named`](Self::named), but while the parent is not connected, no frames wait for it.
    ///
    /// # Errors
    /// `BadAddress`, `BadFile`, `PasswordInClear`. Nothing is sent yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn one_of_several(
        options: &Options,
        members: impl IntoIterator<Item = [u8; 8]>,
        name: &str,
    ) -> Result<Self, LinkError> {
        Self::connect(options, members, name, false)
    }

    fn connect(
        options: &Options,
        members: impl IntoIterator<Item = [u8; 8]>,
        name: &str,
        is_persistent: bool,
    ) -> Result<Self, LinkError> {
        let (url, topics) = (parse(options)?, Topics::new(&options.group)?);
        let client = format!("moteseal-{}-{name}", options.group);
        let session = if is_persistent { Session::Persistent } else { Session::Transient };
        let (connection, sender) = Connection::new(options, &url, client, session)?;
        let inbox = ParentInbox::new(topics.up(""), members.into_iter().collect());
        let announcement = watch::Sender::new(None);
        let announcements = Some((topics.round(), announcement.subscribe()));
        let driver = Driver::start(
            connection,
            sender.clone(),
            options,
            vec![topics.up("+")],
            inbox.clone(),
            announcements,
        );
        Ok(Self { sender, topics, inbox, announcement, driver })
    }
}

impl ParentLink for MqttParent {
    async fn receive_but(&self, device: Option<[u8; 8]>) -> Result<Up, LinkError> {
        Ok(self.inbox.next(device).await)
    }

    /// While the link is down, frames are lost. The parent sends their contents again when the
    /// device asks for them.
    async fn send(&self, device: [u8; 8], frame: Bytes) -> Result<(), LinkError> {
        check_length(&frame)?;
        if !self.driver.is_up() {
            return Ok(());
        }
        self.sender.publish(&self.topics.down(name(device)), false, frame).await
    }

    /// Never waits. While the link is down, the newest announcement is kept, and it is sent when
    /// the link is up.
    async fn announce(&self, announcement: Bytes) -> Result<(), LinkError> {
        check_length(&announcement)?;
        self.announcement.send_replace(Some(announcement));
        Ok(())
    }

    fn set_members(&self, members: Vec<[u8; 8]>) {
        self.inbox.set_members(members);
    }

    fn state(&self) -> watch::Receiver<State> {
        self.driver.state()
    }

    fn dropped(&self) -> u64 {
        self.inbox.dropped()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn checks_an_address_before_anything_is_sent() {
        for url in [
            "",
            "broker",
            "http://host",
            "mqtt://",
            "mqtts://user@host",
            "mqtts://:pw@host",
            "mqtt://host/x",
            "mqtt://host?q",
        ] {
            assert_eq!(parse(&Options::new(url, "g")).unwrap_err().name(), "BadAddress", "{url}");
        }
        for url in ["mqtt://host", "mqtts://host:8883/", "mqtt://[::1]:1883"] {
            parse(&Options::new(url, "g")).unwrap();
        }
    }

    #[test]
    fn a_password_is_sent_unencrypted_only_to_this_machine() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "sesame\n").unwrap();
        let password = Password::read(file.path()).unwrap();
        let login = Some(Login { user: "mote".to_owned(), password });
        let options = |url: &str| Options { login: login.clone(), ..Options::new(url, "g") };
        assert_eq!(parse(&options("mqtt://broker.example")).unwrap_err().name(), "PasswordInClear");
        for url in
            ["mqtts://broker.example", "mqtt://localhost", "mqtt://127.0.0.1:1", "mqtt://[::1]"]
        {
            parse(&options(url)).unwrap();
        }
        assert!(!format!("{:?}", options("mqtt://localhost")).contains("sesame"));
    }

    #[test]
    fn a_group_cannot_contain_other_topics() {
        for group in ["", "a/b", "+", "#", "a\0", "ä", &"a".repeat(65)] {
            assert_eq!(Topics::new(group).unwrap_err().name(), "BadAddress", "{group}");
        }
        assert_eq!(
            Topics::new("00ff").unwrap().up(name([0, 0, 0, 0, 0, 0, 0xab, 1])),
            "moteseal/1/00ff/up/000000000000ab01"
        );
    }

    #[test]
    fn a_device_has_one_name() {
        let device = [0xfe, 0, 1, 2, 3, 4, 5, 6];
        assert_eq!(named(name(device).as_bytes()), Some(device));
        for part in [
            "",
            "fe",
            "FE00010203040506",
            "+e00010203040506",
            "fe000102030405067",
            "fe0001020304050g",
            " e00010203040506",
        ] {
            assert_eq!(named(part.as_bytes()), None, "{part}");
        }
    }

    #[test]
    fn waits_double_up_to_a_limit_and_half_of_each_is_random() {
        let backoff =
            Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
        assert_eq!(backoff.wait(0, 1.0), Duration::from_millis(100));
        assert_eq!(backoff.wait(0, 0.0), Duration::from_millis(50));
        assert_eq!(backoff.wait(2, 1.0), Duration::from_millis(400));
        assert_eq!(backoff.wait(u32::MAX, 1.0), Duration::from_secs(1));
    }
}
