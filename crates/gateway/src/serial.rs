//! A gateway for motes on serial lines. It connects each mote to the links that other devices use
//! directly (spec/serial.md, section 5).
//!
//! The gateway holds no key and forwards frames without reading them. It accepts the device id in a
//! mote's HELLO if the group's roster lists the device, and if the port is not reserved for another
//! device. This check is sufficient, because the receiver of a frame accepts it only if its tag
//! verifies. Each port has its own task and links, and its own queues of limited length. A mote
//! that floods, forges frames or restarts all the time therefore harms only its own line.

mod claims;
mod metrics;
mod port;
mod turns;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use moteseal_core::DeviceId;
use moteseal_net::serial::{Options, SerialLine};
use moteseal_net::{Broadcast, BroadcastLink as _, LinkError, mqtt};
use moteseal_serial::MAX_BODY;
use moteseal_service::metrics::UPKEEP;
use moteseal_service::{Monitor, Monitored, MoreMetrics};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::error::ServiceError;
use claims::Claims;
use metrics::{PortMetrics, SerialMetrics};
use port::PortTask;
use turns::Turns;

/// The maximum number of ports of one gateway.
pub const MAX_PORTS: usize = 64;

/// A serial port.
#[derive(Clone, Debug)]
pub struct Port {
    /// The port's address and speed.
    pub line: Options,
    /// The only mote that may use the port; `None` if any mote may.
    pub device: Option<DeviceId>,
}

/// A mote of the group.
#[derive(Clone, Debug)]
pub struct Mote {
    /// The mote's name in the roster.
    pub name: String,
    /// The broker and group of the mote's aggregator of private sums, if there is one.
    pub sums: Option<mqtt::Options>,
}

/// The settings of a gateway for serial lines.
#[derive(Debug)]
pub struct Settings {
    /// The ports: at most [`MAX_PORTS`].
    pub ports: Vec<Port>,
    /// The motes that may use a port.
    pub motes: HashMap<DeviceId, Mote>,
    /// The broker and group of the group's coordinator, if it has one.
    pub coordinator: Option<mqtt::Options>,
    /// The broker and the topics of the signers of the time, if the motes need the time.
    pub time: Option<mqtt::Options>,
    /// The broadcast medium, if there is one.
    pub broadcast: Option<Broadcast>,
    /// The address on which metrics and health are served, if any.
    pub listen: Option<SocketAddr>,
}

/// The state that the tasks of all ports share.
struct Shared {
    motes: HashMap<DeviceId, Mote>,
    /// For each port, the only mote that may use it; `None` if any mote may.
    pinned: Vec<Option<DeviceId>>,
    coordinator: Option<mqtt::Options>,
    time: Option<mqtt::Options>,
    broadcast: Option<Broadcast>,
    claims: Claims,
    /// For each port, the broadcast frames that wait for it.
    outgoing: Vec<Turns>,
    metrics: SerialMetrics,
    ports: Vec<PortMetrics>,
    is_stopping: AtomicBool,
}

impl Shared {
    fn new(settings: Settings) -> Self {
        let metrics = SerialMetrics::new();
        let ports = settings.ports.iter().map(|port| metrics.port(&port.line.address)).collect();
        Self {
            motes: settings.motes,
            pinned: settings.ports.iter().map(|port| port.device).collect(),
            coordinator: settings.coordinator,
            time: settings.time,
            broadcast: settings.broadcast,
            claims: Claims::default(),
            outgoing: settings.ports.iter().map(|_| Turns::default()).collect(),
            metrics,
            ports,
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Forwards a broadcast frame to all ports except `from`, and to the medium unless the frame
    /// came from the medium. `from` is the port that the frame came from, or `None` for the medium.
    async fn broadcast(&self, frame: Bytes, from: Option<usize>) -> Result<(), LinkError> {
        for (_, turns) in self.outgoing.iter().enumerate().filter(|(port, _)| Some(*port) != from) {
            turns.put(from, frame.clone());
        }
        match (&self.broadcast, from) {
            (Some(link), Some(_)) => link.send(frame).await,
            _ => Ok(()),
        }
    }
}

impl Monitored for Shown {
    fn metrics(&self) -> String {
        self.0.metrics.render()
    }

    fn trouble(&self) -> Option<&'static str> {
        if self.0.is_stopping.load(Ordering::Relaxed) {
            Some("stopping")
        } else if !self.0.ports.iter().any(PortMetrics::is_open) {
            Some("no serial line is open")
        } else if self.0.ports.iter().any(PortMetrics::is_cut_off) {
            Some(
                "a link between a mote and its coordinator, its aggregator or the signers of the time is down",
            )
        } else {
            None
        }
    }
}

struct Shown(Arc<Shared>);

/// A gateway for serial lines that is ready to run.
pub struct SerialGateway {
    ports: Vec<Port>,
    shared: Arc<Shared>,
    monitor: Option<Monitor>,
}

impl fmt::Debug for SerialGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SerialGateway").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl SerialGateway {
    /// Creates the gateway, and serves metrics and health if `settings` contains an address for
    /// them.
    ///
    /// # Errors
    /// `Listen` if the address for metrics and health cannot be used.
    pub async fn bind(settings: Settings) -> Result<Self, ServiceError> {
        let monitor = crate::monitor(settings.listen).await?;
        let ports = settings.ports.clone();
        Ok(Self { ports, shared: Arc::new(Shared::new(settings)), monitor })
    }

    /// Appends further metrics to those of the gateway, for example those of its own health.
    #[must_use]
    pub fn with_more_metrics(mut self, more: MoreMetrics) -> Self {
        self.monitor = self.monitor.take().map(|monitor| monitor.with_more(more));
        self
    }

    /// Returns the address on which metrics and health are served.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.monitor.as_ref().map(Monitor::address)
    }

    /// Runs until `stop` completes.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) -> Result<(), ServiceError> {
        info!(ports = self.ports.len(), motes = self.shared.motes.len(), "connecting serial lines");
        let mut tasks = JoinSet::new();
        if let Some(monitor) = self.monitor.take() {
            let shown = Arc::new(Shown(Arc::clone(&self.shared)));
            tasks.spawn(async move {
                monitor.serve(shown).await;
                Ok(())
            });
        }
        for (number, port) in self.ports.iter().enumerate() {
            let line = SerialLine::new(&port.line).map_err(ServiceError::Link)?;
            tasks.spawn(PortTask::new(number, port, line, Arc::clone(&self.shared)).run());
        }
        if self.shared.broadcast.is_some() {
            tasks.spawn(forward_broadcasts(Arc::clone(&self.shared)));
        }
        let mut upkeep = tokio::time::interval(UPKEEP);
        let mut stop = std::pin::pin!(stop);
        let ended = loop {
            tokio::select! {
                () = &mut stop => break Ok(()),
                _ = upkeep.tick() => self.shared.metrics.upkeep(),
                Some(ended) = tasks.join_next() => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => break Err(ServiceError::Link(error)),
                    Err(error) => {
                        warn!(%error, "a task stopped unexpectedly");
                        break Err(ServiceError::Link(LinkError::Closed));
                    }
                },
            }
        };
        info!("stopping");
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        tasks.shutdown().await;
        info!("stopped");
        ended
    }
}

/// Forwards the frames of the broadcast medium to all ports.
async fn forward_broadcasts(shared: Arc<Shared>) -> Result<(), LinkError> {
    let Some(link) = &shared.broadcast else { return Ok(()) };
    loop {
        let frame = link.receive().await?;
        if frame.len() > MAX_BODY {
            shared.metrics.broadcasts_too_long.increment(1);
            continue;
        }
        shared.broadcast(frame, None).await?;
    }
}
