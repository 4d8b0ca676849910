//! Links of any kind: over MQTT or CoAP, by the scheme of the address, or within the process.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::coap::{Address, ChildOptions, CoapChild, CoapParent};
#[cfg(feature = "tls")]
use crate::dtls;
use crate::in_memory::{MemoryChild, MemoryParent, Network};
use crate::link::{ChildLink, Down, LinkError, Origin, ParentLink, State, Up, Via};
use crate::mqtt::{self, MqttChild, MqttChildren, MqttParent};

/// The address of a parent, and what a child needs to connect to it.
#[derive(Clone, Debug)]
pub enum ParentAddress {
    /// A broker.
    Mqtt(Box<mqtt::Options>),
    /// A broker, over a connection that several children of this process share.
    SharedMqtt(MqttChildren),
    /// A parent that listens itself.
    Coap(Box<CoapAddress>),
    /// A parent in this process.
    InProcess {
        /// The network.
        network: Network,
        /// The group's name.
        group: String,
    },
}

/// The address of a parent that listens for CoAP.
#[derive(Clone)]
pub struct CoapAddress {
    /// The address.
    pub address: Address,
    /// The group's name in paths.
    pub group: String,
    /// The link secret that the child shares with the parent. The key of DTLS is derived from it.
    pub secret: Zeroizing<[u8; 32]>,
    /// Certificates instead of the key.
    pub certificates: Option<CertificateFiles>,
}

/// The files of a child's certificate, and of the authority that issued the parent's.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The authority's certificates (PEM).
    pub ca: PathBuf,
    /// The own certificate (PEM).
    pub certificate: PathBuf,
    /// Its key (PEM).
    pub key: PathBuf,
}

impl std::fmt::Debug for CoapAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoapAddress").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ParentAddress {
    /// Returns the address.
    #[must_use]
    pub fn url(&self) -> &str {
        match self {
            Self::Mqtt(options) => &options.url,
            Self::SharedMqtt(children) => &children.options().url,
            Self::Coap(coap) => coap.address.url(),
            Self::InProcess { .. } => "this process",
        }
    }

    /// Returns the group's name in topics or paths.
    #[must_use]
    pub fn group(&self) -> &str {
        match self {
            Self::Mqtt(options) => &options.group,
            Self::SharedMqtt(children) => &children.options().group,
            Self::Coap(coap) => &coap.group,
            Self::InProcess { group, .. } => group,
        }
    }

    /// Returns the address with which these children of one process share a connection, or `None` if
    /// each child needs one of its own: a parent that listens for CoAP authenticates each child.
    ///
    /// # Errors
    /// `BadAddress`, `PasswordInClear`.
    pub fn shared(&self, children: Vec<[u8; 8]>) -> Result<Option<Self>, LinkError> {
        match self {
            Self::Mqtt(options) => {
                let children = MqttChildren::new((**options).clone(), children)?;
                Ok(Some(Self::SharedMqtt(children)))
            }
            Self::SharedMqtt(_) => Ok(Some(self.clone())),
            Self::Coap(_) | Self::InProcess { .. } => Ok(None),
        }
    }

    /// Creates the link of a child. The link connects and reconnects automatically.
    ///
    /// # Errors
    /// `BadAddress`, `BadFile`, `PasswordInClear`, `NotTrusted`. Nothing is sent yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(&self, device: [u8; 8]) -> Result<AnyChild, LinkError> {
        match self {
            Self::Mqtt(options) => Ok(AnyChild::Mqtt(MqttChild::new(options, device)?)),
            Self::SharedMqtt(children) => Ok(AnyChild::Mqtt(children.open(device)?)),
            Self::Coap(coap) => Ok(AnyChild::Coap(CoapChild::new(coap.options(device)?, device)?)),
            Self::InProcess { network, .. } => Ok(AnyChild::InProcess(network.child(device))),
        }
    }
}

impl CoapAddress {
    #[cfg(feature = "tls")]
    fn options(&self, device: [u8; 8]) -> Result<ChildOptions, LinkError> {
        let mut options = ChildOptions::new(self.address.clone(), self.group.clone());
        if self.address.is_secure {
            let (of, host) = (self.clone(), self.address.host.clone());
            let config = move || of.client(device, &host);
            // The files are read now, so that a mistake in them is reported before anything runs.
            drop(config()?);
            options.credentials = Some(Box::new(config));
        }
        Ok(options)
    }

    #[cfg(feature = "tls")]
    fn client(&self, device: [u8; 8], host: &str) -> Result<dtls::ClientConfig, LinkError> {
        let Some(files) = &self.certificates else {
            let key = moteseal_core::link::LinkKey::dtls_psk(&self.secret);
            return Ok(dtls::ClientConfig::psk(dtls::Psk::new(device, key)));
        };
        let authority = dtls::Authority::load(&files.ca, std::time::SystemTime::now)?;
        let own = dtls::Certificates::load(&files.certificate, &files.key, authority)?;
        dtls::ClientConfig::certificates(own, host).map_err(|error| LinkError::NotTrusted {
            url: self.address.url().to_owned(),
            cause: error.to_string(),
        })
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unnecessary_wraps, reason = "with DTLS it can fail")]
    fn options(&self, _: [u8; 8]) -> Result<ChildOptions, LinkError> {
        Ok(ChildOptions::new(self.address.clone(), self.group.clone()))
    }
}

/// A child's end of a link.
#[derive(Debug)]
pub enum AnyChild {
    /// Over MQTT.
    Mqtt(MqttChild),
    /// Over CoAP.
    Coap(CoapChild),
    /// Within the process.
    InProcess(MemoryChild),
}

impl ChildLink for AnyChild {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        match self {
            Self::Mqtt(link) => link.send(frame).await,
            Self::Coap(link) => link.send(frame).await,
            Self::InProcess(link) => link.send(frame).await,
        }
    }

    async fn receive(&mut self) -> Result<Down, LinkError> {
        match self {
            Self::Mqtt(link) => link.receive().await,
            Self::Coap(link) => link.receive().await,
            Self::InProcess(link) => link.receive().await,
        }
    }

    fn state(&self) -> watch::Receiver<State> {
        match self {
            Self::Mqtt(link) => link.state(),
            Self::Coap(link) => link.state(),
            Self::InProcess(link) => link.state(),
        }
    }
}

/// A parent's end of a link: a broker, listeners for CoAP, or both at once; and children in this process.
#[derive(Debug)]
pub struct AnyParent {
    mqtt: Option<MqttParent>,
    coap: Option<CoapParent>,
    in_process: Option<InProcess>,
    /// When each child last proved that it uses the broker, if there are both.
    by_broker: Mutex<HashMap<[u8; 8], Instant>>,
    /// The state of a parent without a broker.
    listening: watch::Sender<State>,
}

/// The children in this process.
#[derive(Debug)]
struct InProcess {
    parent: MemoryParent,
    children: Vec<[u8; 8]>,
}

impl AnyParent {
    /// Creates a parent of children over MQTT, CoAP or both.
    #[must_use]
    pub fn new(mqtt: Option<MqttParent>, coap: Option<CoapParent>) -> Self {
        let (by_broker, listening) = (Mutex::default(), watch::Sender::new(State::Up));
        Self { mqtt, coap, in_process: None, by_broker, listening }
    }

    /// Adds children in this process, which connect to `network`. They have no other link.
    #[must_use]
    pub fn with_in_process(self, network: &Network, children: Vec<[u8; 8]>) -> Self {
        Self { in_process: Some(InProcess { parent: network.parent(), children }), ..self }
    }

    async fn receive_from_others(&self, device: Option<[u8; 8]>) -> Result<Up, LinkError> {
        match (&self.mqtt, &self.coap) {
            (Some(mqtt), Some(coap)) => tokio::select! {
                up = mqtt.receive_but(device) => up,
                up = coap.receive_but(device) => up,
            },
            (Some(mqtt), None) => mqtt.receive_but(device).await,
            (None, Some(coap)) => coap.receive_but(device).await,
            (None, None) => std::future::pending().await,
        }
    }

    fn by_broker(&self) -> MutexGuard<'_, HashMap<[u8; 8], Instant>> {
        self.by_broker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a child last proved that it uses CoAP, and not the broker.
    fn is_by_coap(&self, coap: &CoapParent, device: [u8; 8]) -> bool {
        coap.confirmed_at(device) > self.by_broker().get(&device).copied()
    }
}

impl ParentLink for AnyParent {
    async fn receive_but(&self, device: Option<[u8; 8]>) -> Result<Up, LinkError> {
        let Some(own) = &self.in_process else { return self.receive_from_others(device).await };
        tokio::select! {
            up = own.parent.receive_but(device) => up,
            up = self.receive_from_others(device) => up,
        }
    }

    async fn send(&self, device: [u8; 8], frame: Bytes) -> Result<(), LinkError> {
        if let Some(own) = self.in_process.as_ref().filter(|own| own.children.contains(&device)) {
            return own.parent.send(device, frame).await;
        }
        match (&self.mqtt, &self.coap) {
            (Some(_), Some(coap)) if self.is_by_coap(coap, device) => {
                coap.send(device, frame).await
            }
            (Some(mqtt), _) => mqtt.send(device, frame).await,
            (None, Some(coap)) => coap.send(device, frame).await,
            (None, None) => Ok(()),
        }
    }

    fn confirm(&self, device: [u8; 8], origin: Origin) {
        let Some(coap) = &self.coap else { return };
        match origin.0 {
            Via::Own => drop(self.by_broker().insert(device, Instant::now())),
            Via::Coap(_) => coap.confirm(device, origin),
        }
    }

    async fn announce(&self, announcement: Bytes) -> Result<(), LinkError> {
        if let Some(own) = &self.in_process {
            own.parent.announce(announcement.clone()).await?;
        }
        if let Some(coap) = &self.coap {
            coap.announce(announcement.clone()).await?;
        }
        if let Some(mqtt) = &self.mqtt {
            mqtt.announce(announcement).await?;
        }
        Ok(())
    }

    fn set_members(&self, members: Vec<[u8; 8]>) {
        self.by_broker().retain(|device, _| members.contains(device));
        if let Some(coap) = &self.coap {
            coap.set_members(members.clone());
        }
        if let Some(mqtt) = &self.mqtt {
            mqtt.set_members(members);
        }
    }

    /// Returns the state of the connection to the broker, or `Up` without a broker.
    fn state(&self) -> watch::Receiver<State> {
        self.mqtt.as_ref().map_or_else(|| self.listening.subscribe(), MqttParent::state)
    }

    /// While the broker cannot be reached, the link is up if children use CoAP.
    fn is_up(&self) -> bool {
        let has_children = self.coap.as_ref().is_some_and(CoapParent::has_children);
        has_children || *self.state().borrow() == State::Up
    }

    fn dropped(&self) -> u64 {
        let mqtt = self.mqtt.as_ref().map_or(0, MqttParent::dropped);
        let own = self.in_process.as_ref().map_or(0, |own| own.parent.dropped());
        mqtt + own + self.coap.as_ref().map_or(0, CoapParent::dropped)
    }

    fn refused(&self) -> Vec<(&'static str, u64)> {
        self.coap.as_ref().map_or_else(Vec::new, CoapParent::refused)
    }
}
