//! Broadcast media. Every participant of a broadcast medium receives the frames of all others
//! (docs/design.md, broadcasts).
//!
//! A broadcast link carries the frames of spec/broadcast.md. It may lose, repeat and reorder
//! frames, and anyone may send. `moteseal_broadcast` interprets the frames and verifies their
//! senders. [`Broadcast::open`] opens a link by its address: UDP multicast or broadcast ([`udp`]),
//! or a topic of an MQTT broker ([`MqttBroadcast`]). A participant does not receive its own frames.

pub mod lossy;
pub(crate) mod medium;
pub mod udp;

use bytes::Bytes;
use reqwest::Url;

use crate::link::LinkError;
use crate::mqtt;
pub use crate::mqtt::broadcast::MqttBroadcast;
use lossy::Losses;
use medium::bad_address;
pub use medium::{BroadcastLink, MAX_DATAGRAM};
use udp::UdpBroadcast;

/// A broadcast link over UDP or MQTT.
#[derive(Debug)]
pub struct Broadcast {
    medium: Medium,
    losses: Option<Losses>,
}

#[derive(Debug)]
enum Medium {
    Udp(UdpBroadcast),
    Mqtt(MqttBroadcast),
}

impl Broadcast {
    /// Opens the link at `url`:
    ///
    /// - `udp://GROUP:PORT[?interface=..][&ttl=1]`: multicast over IPv4 (`interface` is an address
    ///   of this machine) or IPv6 (`interface` is a name or a number), or broadcast if the address
    ///   is an interface's broadcast address or `255.255.255.255`;
    /// - `mqtt://host[:1883]/GROUP` and `mqtts://host[:8883]/GROUP`: a broker, with the login, TLS
    ///   and timing options of `access`; the address and the group in `access` are ignored.
    ///
    /// For experiments, every address may also contain `loss=0.1` and `seed=7`. This end then drops
    /// that fraction of the frames that it receives.
    ///
    /// # Errors
    /// `BadAddress`, `PortInUse`, `NoSuchInterface`, `NetworkDown`, `BadFile`, `PasswordInClear`.
    /// An MQTT broker is not contacted yet; see [`until_up`](Self::until_up).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(url: &str, access: mqtt::Options) -> Result<Self, LinkError> {
        let mut parsed = Url::parse(url).map_err(|error| bad_address(url, &error.to_string()))?;
        let losses = take_losses(url, &mut parsed)?;
        let medium = match parsed.scheme() {
            "udp" => Medium::Udp(UdpBroadcast::open(url, &parsed)?),
            "mqtt" | "mqtts" => Medium::Mqtt(MqttBroadcast::new(&of_broker(url, parsed, access)?)?),
            _ => return Err(bad_address(url, "its scheme is not udp, mqtt or mqtts")),
        };
        Ok(Self { medium, losses })
    }

    /// Waits until the link works. A UDP link works at once. An MQTT broker must first accept the
    /// connection.
    ///
    /// # Errors
    /// The broker's rejection, or `Closed` if the link was shut down.
    pub async fn until_up(&self) -> Result<(), LinkError> {
        match &self.medium {
            Medium::Udp(_) => Ok(()),
            Medium::Mqtt(link) => crate::link::until_up(link.state()).await,
        }
    }
}

impl BroadcastLink for Broadcast {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        match &self.medium {
            Medium::Udp(link) => link.send(frame).await,
            Medium::Mqtt(link) => link.send(frame).await,
        }
    }

    async fn receive(&self) -> Result<Bytes, LinkError> {
        loop {
            let frame = match &self.medium {
                Medium::Udp(link) => link.receive().await?,
                Medium::Mqtt(link) => link.receive().await?,
            };
            if self.losses.as_ref().is_none_or(|losses| !losses.hits()) {
                return Ok(frame);
            }
        }
    }

    fn dropped(&self) -> u64 {
        match &self.medium {
            Medium::Udp(link) => link.dropped(),
            Medium::Mqtt(link) => link.dropped(),
        }
    }
}

/// Removes the parameters `loss` and `seed` from an address, and returns the losses that they
/// select.
fn take_losses(url: &str, parsed: &mut Url) -> Result<Option<Losses>, LinkError> {
    let (mut loss, mut seed, mut others) = (None, 0, Vec::new());
    for (name, value) in parsed.query_pairs() {
        match &*name {
            "loss" => {
                let fraction = value.parse().ok().filter(|loss| (0.0..=0.95).contains(loss));
                loss = Some(fraction.ok_or_else(|| {
                    bad_address(url, "loss must be a fraction of the frames, from 0 to 0.95")
                })?);
            }
            "seed" => {
                seed =
                    value.parse().map_err(|_| bad_address(url, "seed must be a whole number"))?;
            }
            _ => others.push((name.into_owned(), value.into_owned())),
        }
    }
    parsed.set_query(None);
    if !others.is_empty() {
        parsed.query_pairs_mut().extend_pairs(others);
    }
    Ok(loss.map(|loss| Losses::new(seed, loss)))
}

/// Returns the options for an MQTT address, whose path is the group.
fn of_broker(
    url: &str,
    mut parsed: Url,
    access: mqtt::Options,
) -> Result<mqtt::Options, LinkError> {
    let group = parsed.path().trim_start_matches('/').trim_end_matches('/').to_owned();
    if group.is_empty() {
        return Err(bad_address(
            url,
            "the group must follow the broker's address, as in mqtt://broker.example/GROUP",
        ));
    }
    parsed.set_path("");
    Ok(mqtt::Options { url: parsed.to_string(), group, ..access })
}
