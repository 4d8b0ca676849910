//! One interface to the two clients of `rumqttc-next`, for MQTT 3.1.1 and 5
//! (docs/decisions/0008-mqtt-client.md). It contains only what links need, and converts errors to
//! those that a user can act on.

use std::error::Error;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Url;
use rumqttc_v4 as v4;
use rumqttc_v5 as v5;

use super::resumption::NothingInTransit;
use super::{Options, Version};
use crate::error::innermost;
use crate::link::{LinkError, MAX_FRAME};
#[cfg(feature = "tls")]
use crate::tls;

/// The maximum number of frames that wait to be published. At the limit, senders wait.
const QUEUE: usize = 256;
/// The maximum number of frames that are published and that the broker has not acknowledged.
const IN_FLIGHT: u16 = 100;
/// The same for a session [`Acknowledged`](Session::Acknowledged), which publishes nothing.
const NONE_IN_FLIGHT: u16 = 1;
/// The maximum size of a packet in bytes: a frame with its topic and headers.
const MAX_PACKET: u32 = (MAX_FRAME + 1024) as u32;
/// The maximum size of a packet from a broker of MQTT 3.1.1 for a session
/// [`Acknowledged`](Session::Acknowledged), in bytes. Such a broker does not know [`MAX_PACKET`], so
/// that any client that may publish can send a longer packet. Up to this size, the packet is only
/// reported. A longer one ends the session.
const LONG_PACKET: usize = 1 << 20;
/// How long the broker keeps the parent's session while the parent is not connected (MQTT 5). With
/// MQTT 3.1.1, the broker's own setting determines this time.
const SESSION: Duration = Duration::from_secs(24 * 3600);

/// An event of a connection.
pub(super) enum Happened {
    /// The broker has accepted the connection. The link must now subscribe.
    Connected {
        /// Whether the broker has kept the session.
        is_resumed: bool,
    },
    /// The broker has accepted the subscriptions.
    Subscribed,
    /// The broker has rejected the subscriptions.
    NotSubscribed,
    /// A message has arrived on one of the topics.
    Message {
        topic: Bytes,
        payload: Bytes,
        /// Whether the broker had retained the message from before the subscription.
        is_retained: bool,
        /// The packet to acknowledge, if the session is [`Acknowledged`](Session::Acknowledged) and
        /// the message has QoS 1.
        packet: Option<Packet>,
    },
    /// An event that a link does not need to handle.
    Other,
}

/// What the broker keeps for a client, and who acknowledges its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session {
    /// The broker keeps nothing after the end of a connection.
    Transient,
    /// Messages with QoS 1 wait at the broker while the client is not connected.
    Persistent,
    /// Like `Persistent`, and the caller acknowledges each message with QoS 1 itself
    /// ([`Sender::acknowledge`]).
    Acknowledged,
}

/// A packet with a message that the caller must acknowledge.
#[derive(Debug)]
pub(super) struct Packet {
    /// Its acknowledgement (PUBACK).
    pub(super) ack: Ack,
    /// The packet identifier. It belongs to this message until the message is acknowledged.
    pub(super) id: u16,
    /// Whether the broker may have sent the packet before (DUP).
    pub(super) is_repeated: bool,
}

/// A message that awaits its acknowledgement (PUBACK).
#[derive(Debug)]
pub(super) enum Ack {
    V3(v4::ManualAck),
    V5(v5::ManualAck),
}

/// A message that was published and that the broker has not acknowledged.
#[derive(Debug)]
pub(super) enum Published {
    V3(v4::PublishNotice),
    V5(v5::PublishNotice),
}

/// What became of a published message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The broker has it.
    Taken,
    /// The broker refuses it. The text is the reason.
    Refused(String),
    /// The connection ended before the broker has acknowledged it.
    Lost,
}

impl Published {
    /// Waits until the broker has acknowledged the message, or until the connection has ended.
    pub(super) async fn fate(self) -> Fate {
        match self {
            Self::V3(notice) => match notice.wait_async().await {
                Ok(_) => Fate::Taken,
                Err(_) => Fate::Lost,
            },
            Self::V5(notice) => match notice.wait_completion_async().await {
                Ok(()) => Fate::Taken,
                Err(v5::PublishNoticeError::V5PubAck(reason)) => {
                    Fate::Refused(format!("{reason:?}"))
                }
                Err(_) => Fate::Lost,
            },
        }
    }
}

/// The maximum number of messages that a broker sends to a client of a session
/// [`Acknowledged`](Session::Acknowledged) before the first of them is acknowledged (MQTT 5). A
/// broker of MQTT 3.1.1 has its own limit.
pub(super) const MAX_UNACKNOWLEDGED: u16 = 32;

/// The delivery guarantee of a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quality {
    /// QoS 0.
    AtMostOnce,
    /// QoS 1.
    AtLeastOnce,
}

/// Publishes and subscribes over a connection. Cloning is cheap.
#[derive(Clone, Debug)]
pub(super) enum Sender {
    V3(v4::AsyncClient),
    V5(v5::AsyncClient),
}

impl Sender {
    /// Publishes a message with QoS 1. Waits for room in the queue, but not for the broker.
    pub(super) async fn publish(
        &self,
        topic: &str,
        retained: bool,
        payload: Bytes,
    ) -> Result<(), LinkError> {
        self.publish_at(Quality::AtLeastOnce, topic, retained, payload).await
    }

    /// Publishes a message with the given QoS.
    pub(super) async fn publish_at(
        &self,
        quality: Quality,
        topic: &str,
        retained: bool,
        payload: Bytes,
    ) -> Result<(), LinkError> {
        let is_once = quality == Quality::AtMostOnce;
        let closed = match self {
            Self::V3(client) => {
                let quality = if is_once { v4::QoS::AtMostOnce } else { v4::QoS::AtLeastOnce };
                let options = v4::PublishOptions::new(quality).retain(retained);
                client.publish(topic, payload, options).await.is_err()
            }
            Self::V5(client) => {
                let quality = if is_once { v5::QoS::AtMostOnce } else { v5::QoS::AtLeastOnce };
                let options = v5::PublishOptions::new(quality).retain(retained);
                client.publish(topic, payload, options).await.is_err()
            }
        };
        if closed { Err(LinkError::Closed) } else { Ok(()) }
    }

    /// Publishes a message with QoS 1 that the broker does not retain. With MQTT 5, the broker
    /// discards the message after `expiry` seconds if it has not passed it on. Waits for room in the
    /// queue, but not for the broker.
    pub(super) async fn publish_expiring(
        &self,
        topic: &str,
        payload: Bytes,
        expiry: Option<u32>,
    ) -> Result<Published, LinkError> {
        match self {
            Self::V3(client) => {
                let options = v4::PublishOptions::new(v4::QoS::AtLeastOnce);
                let published = client.publish_tracked(topic, payload, options).await;
                published.map(Published::V3).map_err(|_| LinkError::Closed)
            }
            Self::V5(client) => {
                let properties = v5::PublishProperties {
                    message_expiry_interval: expiry,
                    ..v5::PublishProperties::default()
                };
                let options = v5::PublishOptions::new(v5::QoS::AtLeastOnce).properties(properties);
                let published = client.publish_tracked(topic, payload, options).await;
                published.map(Published::V5).map_err(|_| LinkError::Closed)
            }
        }
    }

    /// Acknowledges a message that arrived over the present connection. Does not wait.
    ///
    /// # Errors
    /// `Closed` if there is no room for the acknowledgement.
    pub(super) fn acknowledge(&self, ack: Ack) -> Result<(), LinkError> {
        let failed = match (self, ack) {
            (Self::V3(client), Ack::V3(ack)) => client.try_manual_ack(ack).is_err(),
            (Self::V5(client), Ack::V5(ack)) => client.try_manual_ack(ack).is_err(),
            _ => true,
        };
        if failed { Err(LinkError::Closed) } else { Ok(()) }
    }

    /// Sends what is queued, and ends the connection. [`Connection::next`] then returns an error.
    pub(super) async fn disconnect(&self) {
        // If the client has stopped, it has no connection.
        match self {
            Self::V3(client) => _ = client.disconnect().await,
            Self::V5(client) => _ = client.disconnect().await,
        }
    }

    pub(super) async fn subscribe(&self, topics: &[String]) -> Result<(), LinkError> {
        let closed = match self {
            Self::V3(client) => {
                let filters = topics
                    .iter()
                    .map(|topic| v4::SubscribeFilter::new(topic.clone(), v4::QoS::AtLeastOnce));
                client.subscribe_many(filters).await.is_err()
            }
            Self::V5(client) => {
                let filters = topics
                    .iter()
                    .map(|topic| v5::SubscribeFilter::new(topic.clone(), v5::QoS::AtLeastOnce));
                client.subscribe_many(filters).await.is_err()
            }
        };
        if closed { Err(LinkError::Closed) } else { Ok(()) }
    }
}

/// A connection to a broker. It connects and reconnects while [`next`](Self::next) is called.
pub(super) struct Connection {
    url: String,
    client: String,
    events: Events,
    session: Session,
    /// The end that queues acknowledgements.
    sender: Sender,
}

enum Events {
    V3(Box<v4::EventLoop>),
    V5(Box<v5::EventLoop>),
}

impl Connection {
    /// Creates a connection and sends nothing yet.
    pub(super) fn new(
        options: &Options,
        url: &Url,
        client: String,
        session: Session,
    ) -> Result<(Self, Sender), LinkError> {
        let is_persistent = session != Session::Transient;
        let is_manual = session == Session::Acknowledged;
        let in_flight = if is_manual { NONE_IN_FLIGHT } else { IN_FLIGHT };
        #[cfg(not(feature = "tls"))]
        if url.scheme() == "mqtts" {
            return Err(LinkError::BadAddress {
                url: options.url.clone(),
                cause: "this program is built without TLS".to_owned(),
                example: "mqtt://127.0.0.1:1883",
            });
        }
        #[cfg(feature = "tls")]
        let tls = match url.scheme() {
            "mqtts" => {
                let identity = options
                    .identity
                    .as_ref()
                    .map(|identity| (&*identity.certificate, &*identity.key));
                Some(Arc::new(tls::client_config(options.ca.as_deref(), identity)?))
            }
            _ => None,
        };
        let id = client.clone();
        let host = url
            .host_str()
            .unwrap_or_default()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let port = url.port().unwrap_or(if url.scheme() == "mqtts" { 8883 } else { 1883 });
        let keep_alive = u16::try_from(options.keep_alive.as_secs()).unwrap_or(u16::MAX).max(1);
        let (sender, events) = match options.version {
            Version::V3 => {
                let mut set = v4::MqttOptions::new(client, (host, port));
                #[cfg(feature = "tls")]
                if let Some(tls) = tls {
                    set.set_transport(v4::Transport::tls_with_config(
                        v4::TlsConfiguration::Rustls(tls),
                    ));
                }
                if let Some(login) = &options.login {
                    set.set_credentials(login.user.clone(), login.password.text().to_owned());
                }
                set.set_keep_alive(keep_alive)
                    .set_inflight(in_flight)
                    .set_clean_session(!is_persistent);
                let longest = if is_manual { LONG_PACKET } else { MAX_PACKET as usize };
                set.set_max_packet_size(longest, MAX_PACKET as usize);
                if is_manual {
                    // Each packet of a batch may be long.
                    set.set_read_batch_size(4);
                }
                if is_manual {
                    set.set_ack_mode(v4::AckMode::Manual);
                }
                let (client, mut events) = v4::AsyncClient::builder(set).capacity(QUEUE).build();
                events.network_options.set_tcp_nodelay(true);
                (Sender::V3(client), Events::V3(Box::new(events)))
            }
            Version::V5 => {
                let mut set = v5::MqttOptions::new(client, (host, port));
                #[cfg(feature = "tls")]
                if let Some(tls) = tls {
                    set.set_transport(v5::Transport::tls_with_config(
                        v5::TlsConfiguration::Rustls(tls),
                    ));
                }
                if let Some(login) = &options.login {
                    set.set_credentials(login.user.clone(), login.password.text().to_owned());
                }
                set.set_keep_alive(keep_alive)
                    .set_outgoing_inflight_upper_limit(in_flight)
                    .set_clean_start(!is_persistent);
                set.set_max_packet_size(Some(MAX_PACKET));
                if is_manual {
                    set.set_ack_mode(v5::AckMode::Manual);
                    set.set_receive_maximum(Some(MAX_UNACKNOWLEDGED));
                }
                if is_persistent {
                    set.set_session_expiry_interval(Some(
                        u32::try_from(SESSION.as_secs()).unwrap_or(u32::MAX),
                    ));
                    set.set_session_store(NothingInTransit { in_flight, is_manual });
                }
                let mut network = set.network_options();
                network.set_tcp_nodelay(true);
                set.set_network_options(network);
                let (client, events) = v5::AsyncClient::builder(set).capacity(QUEUE).build();
                (Sender::V5(client), Events::V5(Box::new(events)))
            }
        };
        let connection =
            Self { url: options.url.clone(), client: id, events, session, sender: sender.clone() };
        Ok((connection, sender))
    }

    /// Waits for the next event. Connects first if necessary. After an error, call this function
    /// again to reconnect.
    pub(super) async fn next(&mut self) -> Result<Happened, LinkError> {
        match &mut self.events {
            Events::V3(events) => match events.poll().await {
                Ok(v4::Event::Incoming(packet)) => Ok(match packet {
                    v4::Incoming::ConnAck(ack) => {
                        events.mqtt_options.set_clean_session(self.session == Session::Transient);
                        Happened::Connected { is_resumed: ack.session_present }
                    }
                    v4::Incoming::SubAck(ack) => {
                        let is_taken = |code: &v4::SubscribeReasonCode| {
                            matches!(code, v4::SubscribeReasonCode::Success(_))
                        };
                        if ack.return_codes.iter().all(is_taken) {
                            Happened::Subscribed
                        } else {
                            Happened::NotSubscribed
                        }
                    }
                    v4::Incoming::Publish(publish) => {
                        let ack = match (&self.sender, self.session) {
                            (Sender::V3(client), Session::Acknowledged) => {
                                client.prepare_ack(&publish).map(Ack::V3)
                            }
                            _ => None,
                        };
                        let (id, is_repeated) = (publish.pkid, publish.dup);
                        let packet = ack.map(|ack| Packet { ack, id, is_repeated });
                        let is_retained = publish.retain;
                        let (topic, payload) = (publish.topic, publish.payload);
                        Happened::Message { topic, payload, is_retained, packet }
                    }
                    _ => Happened::Other,
                }),
                Ok(v4::Event::Outgoing(_)) => Ok(Happened::Other),
                Err(error) => {
                    use v4::ConnectReturnCode::{
                        BadUserNamePassword, NotAuthorized, ServiceUnavailable,
                    };
                    use v4::mqttbytes::Error::PayloadSizeLimitExceeded;
                    let url = self.url.clone();
                    if let v4::ConnectionError::MqttState(v4::StateError::Deserialization(
                        PayloadSizeLimitExceeded { .. },
                    )) = error
                    {
                        // Start a new session. Otherwise the broker would send the same packet
                        // again after each connection.
                        events.mqtt_options.set_clean_session(true);
                        return Err(LinkError::Unreachable {
                            url,
                            cause: "a client sent a packet that is too long".to_owned(),
                        });
                    }
                    let v4::ConnectionError::ConnectionRefused(code) = error else {
                        return Err(self.lost(&error));
                    };
                    let cause = match code {
                        ServiceUnavailable => {
                            return Err(LinkError::Unreachable {
                                url,
                                cause: "the broker is busy".to_owned(),
                            });
                        }
                        BadUserNamePassword => "wrong user or password".to_owned(),
                        NotAuthorized => "not authorized".to_owned(),
                        other => format!("{other:?}"),
                    };
                    Err(LinkError::Refused { url, cause })
                }
            },
            Events::V5(events) => match events.poll().await {
                Ok(v5::Event::Incoming(packet)) => Ok(match packet {
                    v5::Incoming::ConnAck(ack) => {
                        // The client keeps the session's state in memory from now on.
                        events.options.clear_session_store();
                        events.options.set_clean_start(self.session == Session::Transient);
                        Happened::Connected { is_resumed: ack.session_present }
                    }
                    v5::Incoming::SubAck(ack) => {
                        let is_taken = |code: &v5::SubscribeReasonCode| {
                            matches!(code, v5::SubscribeReasonCode::Success(_))
                        };
                        if ack.return_codes.iter().all(is_taken) {
                            Happened::Subscribed
                        } else {
                            Happened::NotSubscribed
                        }
                    }
                    v5::Incoming::Publish(publish) => {
                        let ack = match (&self.sender, self.session) {
                            (Sender::V5(client), Session::Acknowledged) => {
                                client.prepare_ack(&publish).map(Ack::V5)
                            }
                            _ => None,
                        };
                        let (id, is_repeated) = (publish.pkid, publish.dup);
                        let packet = ack.map(|ack| Packet { ack, id, is_repeated });
                        let is_retained = publish.retain;
                        let (topic, payload) = (publish.topic, publish.payload);
                        Happened::Message { topic, payload, is_retained, packet }
                    }
                    _ => Happened::Other,
                }),
                Ok(_) => Ok(Happened::Other),
                Err(error) => {
                    use v5::ConnectReturnCode::{
                        BadUserNamePassword, NotAuthorized, ServerBusy, ServerUnavailable,
                    };
                    use v5::StateError::{Deserialization, IncomingPacketTooLarge};
                    let url = self.url.clone();
                    if let v5::ConnectionError::MqttState(
                        IncomingPacketTooLarge { .. }
                        | Deserialization(v5::mqttbytes::Error::PayloadSizeLimitExceeded { .. }),
                    ) = error
                    {
                        // A broker that respects the limit never sends such a packet. Start a new
                        // session, because other brokers would send the packet again.
                        events.options.set_clean_start(true);
                        return Err(LinkError::Unreachable {
                            url,
                            cause: "a client sent a packet that is too long".to_owned(),
                        });
                    }
                    if let v5::ConnectionError::MqttState(v5::StateError::ServerDisconnect {
                        reason_code: v5::DisconnectReasonCode::SessionTakenOver,
                        ..
                    }) = error
                    {
                        return Err(LinkError::ClientIdTaken { url, client: self.client.clone() });
                    }
                    let (v5::ConnectionError::ConnectionRefused(code)
                    | v5::ConnectionError::MqttState(v5::StateError::ConnFail { reason: code })) =
                        error
                    else {
                        return Err(self.lost(&error));
                    };
                    let cause = match code {
                        ServerUnavailable | ServerBusy => {
                            return Err(LinkError::Unreachable {
                                url,
                                cause: "the broker is busy".to_owned(),
                            });
                        }
                        BadUserNamePassword => "wrong user or password".to_owned(),
                        NotAuthorized => "not authorized".to_owned(),
                        other => format!("{other:?}"),
                    };
                    Err(LinkError::Refused { url, cause })
                }
            },
        }
    }

    /// Closes the connection. [`next`](Self::next) connects again, and the broker sends all
    /// unacknowledged messages again.
    pub(super) fn close(&mut self) {
        match &mut self.events {
            Events::V3(events) => events.clean(),
            Events::V5(events) => events.clean(),
        }
    }

    /// Discards all messages that were published and not acknowledged. The connection must be
    /// closed.
    pub(super) fn forget(&mut self) {
        match &mut self.events {
            Events::V3(events) => events.reset_session_state(),
            Events::V5(events) => events.reset_session_state(),
        }
    }

    /// Returns the address of the broker.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn not_subscribed(&self) -> LinkError {
        LinkError::Refused {
            url: self.url.clone(),
            cause: "the broker rejected the subscription to the group's topics".to_owned(),
        }
    }

    /// Returns the error for successive connections that the broker closed soon without a reason.
    pub(super) fn closed_soon(&self, connections: u32) -> LinkError {
        LinkError::ClosedSoon { url: self.url.clone(), client: self.client.clone(), connections }
    }

    /// Returns the error for a failed connection for which the broker gave no reason.
    fn lost(&self, error: &(dyn Error + 'static)) -> LinkError {
        let url = self.url.clone();
        #[cfg(not(feature = "tls"))]
        return LinkError::Unreachable { url, cause: innermost(error) };
        #[cfg(feature = "tls")]
        match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(cause)) => LinkError::NotTrusted {
                url,
                cause: format!("the broker's certificate is not accepted: {cause:?}"),
            },
            Some(rustls::Error::AlertReceived(alert)) => LinkError::NotTrusted {
                url,
                cause: format!("the broker aborted the handshake: {alert:?}"),
            },
            Some(rustls::Error::InvalidMessage(_)) => LinkError::Unreachable {
                url,
                cause: "the service there does not use TLS; try mqtt://".to_owned(),
            },
            Some(other) => LinkError::Unreachable { url, cause: other.to_string() },
            None => {
                let cause = innermost(error);
                // Once connected, the client keeps only the text of an I/O error. With TLS 1.3, a
                // broker that requires a client certificate reports a missing certificate only
                // after the connection is established.
                match cause.split_once("received fatal alert: ") {
                    Some((_, alert)) => LinkError::NotTrusted {
                        url,
                        cause: format!("the broker aborted the handshake: {alert}"),
                    },
                    None => LinkError::Unreachable { url, cause },
                }
            }
        }
    }
}

/// Returns the TLS error within another error. It also looks inside I/O errors, because their
/// `source` does not return the error that they wrap.
#[cfg(feature = "tls")]
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}
