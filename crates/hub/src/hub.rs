//! Runs all sources of a hub and their devices.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use moteseal_api::{ErrorKind, NamedError as _};
use moteseal_device::hosted::{self, Device};
use moteseal_net::LinkError;
use moteseal_net::link::{State, until_up};
use moteseal_net::mqtt::{self as net_mqtt, Subscriber};
use moteseal_service::metrics::{Table, UPKEEP};
use moteseal_service::{ListenError, Monitor, Monitored, MoreMetrics};
use moteseal_verify::Roster;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::coap::{self, Resource};
use crate::command::{self, Program};
use crate::http::Http;
use crate::intake::{Intake, LAST, READINGS, REFUSED};
use crate::line::Line;
use crate::mapping::Mapping;
use crate::mqtt;
use crate::udp;

/// How long changes of connections are collected before they are logged.
const MOMENT: Duration = Duration::from_millis(500);

/// Where the messages of a source come from.
#[derive(Debug)]
pub enum From {
    /// Topics of the broker.
    Mqtt(Vec<String>),
    /// Notifications of a CoAP server.
    Coap(Resource),
    /// Datagrams to an address.
    Udp {
        /// The address.
        address: SocketAddr,
        /// The senders whose datagrams are accepted; empty for all.
        senders: Vec<IpAddr>,
    },
    /// POST to this path of the HTTP listener.
    Http(String),
    /// Lines of a program's output.
    Command(Program),
    /// Messages of an agent.
    Agent(mpsc::Receiver<Line>),
}

/// A source of readings, and the device in whose name they are sealed.
#[derive(Debug)]
pub struct Source {
    /// The name of the device.
    pub name: String,
    /// How its messages become rows.
    pub mapping: Mapping,
    /// Where its messages come from.
    pub from: From,
    /// Whether messages count that the broker had retained from before the subscription.
    pub takes_retained: bool,
    /// Its device.
    pub device: Device,
}

/// The connection to the broker of the sensors.
#[derive(Debug)]
pub struct Broker {
    /// The address, and how to log in.
    pub options: net_mqtt::Options,
    /// The start of the client ids, which must be unique at the broker: each source is a client with
    /// the id `CLIENT-NAME`, for which the broker keeps messages.
    pub client: String,
}

/// What a hub runs.
pub struct Settings {
    /// The sources.
    pub sources: Vec<Source>,
    /// The broker, if a source needs it.
    pub broker: Option<Broker>,
    /// The address of the HTTP listener and the token that clients must send, if a source needs it.
    pub http: Option<(SocketAddr, Option<Zeroizing<String>>)>,
    /// The address of `/metrics`, `/healthz` and `/readyz`.
    pub listen: Option<SocketAddr>,
    /// The newest version of the roster.
    pub rosters: watch::Receiver<Arc<Roster>>,
    /// Whether broadcasts are received, if they should be.
    pub broadcasts: Option<watch::Receiver<bool>>,
    /// Appends further metrics, for example those of the hub's own health.
    pub more_metrics: Option<MoreMetrics>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("sources", &self.sources).finish_non_exhaustive()
    }
}

/// Why a hub does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The address of the pages or of the HTTP listener cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The address of a source of datagrams cannot be used.
    #[error("cannot receive datagrams at {address}: {error}")]
    Udp {
        /// The address.
        address: SocketAddr,
        /// The cause.
        error: io::Error,
    },
    /// The broker's address is wrong, or the broker refuses the hub.
    #[error(transparent)]
    Broker(#[from] LinkError),
    /// The task of a device has panicked, which is a bug. Its readings that are durable are kept.
    #[error("the task of a device has failed, which is a bug; start the hub again")]
    DeviceFailed,
}

impl HubError {
    /// Returns the error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Listen(error) => error.name(),
            Self::Udp { .. } => "CannotListen",
            Self::Broker(error) => error.name(),
            Self::DeviceFailed => "Internal",
        }
    }

    /// Returns the error's kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Listen(error) => error.kind(),
            Self::Udp { .. } => ErrorKind::Usage,
            Self::Broker(error) => error.kind(),
            Self::DeviceFailed => ErrorKind::Internal,
        }
    }
}

moteseal_api::named_error!(HubError);

/// The metrics of a hub, and whether it is ready.
struct Status {
    table: Arc<Table>,
    /// The states of the connections to the broker.
    broker: Vec<watch::Receiver<State>>,
    broadcasts: Option<watch::Receiver<bool>>,
}

impl Monitored for Status {
    fn metrics(&self) -> String {
        self.table.render()
    }

    fn trouble(&self) -> Option<&'static str> {
        if self.broker.iter().any(|state| *state.borrow() != State::Up) {
            return Some("the broker cannot be reached");
        }
        let is_deaf = self.broadcasts.as_ref().is_some_and(|receives| !*receives.borrow());
        is_deaf.then_some("broadcasts are not received")
    }
}

/// A hub that listens, and that runs when [`run`](Self::run) is called.
pub struct Hub {
    tasks: JoinSet<()>,
    devices: JoinSet<()>,
    /// The task that passes on the messages of the broker.
    messages: JoinSet<()>,
    /// Whether all devices have stopped, and all readings that have arrived are durable.
    recorded: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    broker: Vec<watch::Receiver<State>>,
    pages: Option<SocketAddr>,
    http: Option<SocketAddr>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("pages", &self.pages).field("http", &self.http).finish()
    }
}

impl Hub {
    /// Listens on all addresses, and starts the devices and their sources.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn start(settings: Settings) -> Result<Self, HubError> {
        let Settings { sources, broker, http, listen, rosters, broadcasts, more_metrics } =
            settings;
        let table = Arc::new(Table::new());
        table.describe_counter(READINGS, "Readings that are durable.");
        table.describe_counter(REFUSED, "Messages that did not become readings, by reason.");
        table
            .describe_gauge(LAST, "When the newest reading became durable, in seconds since 1970.");
        let (stop, stopped) = watch::channel(false);
        let recorded = watch::Sender::new(false);
        let (mut tasks, mut devices, mut messages) =
            (JoinSet::new(), JoinSet::new(), JoinSet::new());
        let mut states = Vec::new();
        let mut http = match http {
            Some((address, token)) => Some(Http::bind(address, token).await?),
            None => None,
        };
        let monitor = match listen {
            Some(address) => {
                let monitor = Monitor::bind(address).await?;
                Some(match more_metrics {
                    Some(more) => monitor.with_more(more),
                    None => monitor,
                })
            }
            None => None,
        };
        for source in sources {
            let Source { name, mapping, from, takes_retained, device } = source;
            let counts = (Arc::clone(&table), Arc::clone(&device.figures));
            let intake = Arc::new(Intake::new(name, mapping, takes_retained, counts));
            match from {
                From::Mqtt(filters) => {
                    if let Some(Broker { options, client }) = &broker {
                        let client = format!("{client}-{}", intake.name);
                        let intake = Arc::clone(&intake);
                        let subscriber =
                            Subscriber::new(options, client, filters.clone(), mqtt::ROOM)?;
                        states.push(subscriber.state());
                        let (mut stopped, mut ended) = (stopped.clone(), recorded.subscribe());
                        messages.spawn(async move {
                            let stop = async { _ = stopped.wait_for(|stop| *stop).await };
                            let recorded = async { _ = ended.wait_for(|ended| *ended).await };
                            mqtt::run(subscriber, filters, intake, stop, recorded).await;
                        });
                    }
                }
                From::Coap(resource) => {
                    tasks.spawn(coap::run(resource, Arc::clone(&intake)));
                }
                From::Udp { address, senders } => {
                    let socket = udp::bind(address).await;
                    let socket = socket.map_err(|error| HubError::Udp { address, error })?;
                    tasks.spawn(udp::run(socket, senders, Arc::clone(&intake)));
                }
                From::Http(path) => {
                    http.iter_mut().for_each(|http| http.add(path.clone(), &intake));
                }
                From::Command(program) => {
                    tasks.spawn(command::run(program, Arc::clone(&intake)));
                }
                From::Agent(mut lines) => {
                    let intake = Arc::clone(&intake);
                    tasks.spawn(async move {
                        while let Some(Line { text, done }) = lines.recv().await {
                            intake.hold(&text, done).await;
                        }
                    });
                }
            }
            devices.spawn(hosted::run(device, intake, rosters.clone(), stopped.clone()));
        }
        tasks.spawn(log_states(states.clone()));
        let (pages, address) =
            (monitor.as_ref().map(Monitor::address), http.as_ref().map(Http::address));
        if let Some(http) = http {
            tasks.spawn(http.run());
        }
        if let Some(monitor) = monitor {
            let (table, broker) = (Arc::clone(&table), states.clone());
            let status = Status { table, broker, broadcasts };
            tasks.spawn(monitor.serve(Arc::new(status)));
        }
        tasks.spawn(async move {
            loop {
                sleep(UPKEEP).await;
                table.upkeep();
            }
        });
        let (http, broker) = (address, states);
        Ok(Self { tasks, devices, messages, recorded, stop, broker, pages, http })
    }

    /// Returns the address of `/metrics`, `/healthz` and `/readyz`.
    #[must_use]
    pub const fn pages(&self) -> Option<SocketAddr> {
        self.pages
    }

    /// Returns the address of the HTTP listener.
    #[must_use]
    pub const fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Runs until `stop` completes. Then makes the readings that have arrived durable.
    ///
    /// # Errors
    /// [`HubError::Broker`] if the broker refuses the hub, [`HubError::DeviceFailed`].
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), HubError> {
        let mut connections = JoinSet::new();
        for state in self.broker.drain(..) {
            connections.spawn(until_up(state));
        }
        let refused = async {
            while let Some(up) = connections.join_next().await {
                if let Ok(Err(error)) = up
                    && error.is_refusal()
                {
                    return error;
                }
            }
            std::future::pending().await
        };
        let devices = &mut self.devices;
        let failed = async {
            while devices.join_next().await.is_none_or(|ended| ended.is_ok()) {
                if devices.is_empty() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let error = tokio::select! {
            () = stop => None,
            error = refused => Some(HubError::from(error)),
            () = failed => Some(HubError::DeviceFailed),
        };
        self.stop.send_replace(true);
        while self.devices.join_next().await.is_some() {}
        self.recorded.send_replace(true);
        while self.messages.join_next().await.is_some() {}
        self.tasks.shutdown().await;
        error.map_or(Ok(()), Err)
    }
}

/// Logs when the connections to the broker are established or lost. Changes within a moment are one
/// line.
async fn log_states(mut states: Vec<watch::Receiver<State>>) {
    if states.is_empty() {
        return;
    }
    let mut were_up = false;
    loop {
        let changes = states.iter_mut().map(|state| Box::pin(state.changed()));
        let (changed, ..) = select_all(changes).await;
        if changed.is_err() {
            return;
        }
        sleep(MOMENT).await;
        let (mut down, mut connecting, mut why) = (0, false, None);
        for state in &mut states {
            match &*state.borrow_and_update() {
                State::Up => {}
                State::Connecting => connecting = true,
                State::Down { cause, .. } => {
                    down += 1;
                    why = Some(cause.clone());
                }
            }
        }
        if let Some(cause) = why {
            let cause = cause.named();
            warn!(%cause, sources = down, "the broker is not connected; messages wait there");
        } else if !were_up && !connecting {
            info!(sources = states.len(), "the broker is connected");
        }
        were_up = down == 0 && !connecting;
    }
}
