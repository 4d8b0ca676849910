//! Runs all sources of a hub and their devices.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use moteseal_api::{ErrorKind, NamedError as _};
use moteseal_net::LinkError;
use moteseal_net::link::{State, until_up};
use moteseal_net::mqtt::{self, Publisher, Subscriber};
use moteseal_service::metrics::{Table, UPKEEP};
use moteseal_service::{ListenError, Monitor, Monitored};
use moteseal_verify::Roster;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::coap::{self, Resource};
use crate::command::{self, Program};
use crate::host::{self, Device};
use crate::http::Http;
use crate::intake::{Intake, LAST, READINGS, REFUSED};
use crate::line::Line;
use crate::mapping::Mapping;
use crate::mqtt::Routes;
use crate::udp;

/// Where the messages of a source come from.
#[derive(Debug)]
pub enum From {
    /// Topics of the broker.
    Mqtt(Vec<String>),
    /// Notifications of a CoAP server.
    Coap(Resource),
    /// Datagrams to this address.
    Udp(SocketAddr),
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
    pub options: mqtt::Options,
    /// The client id, which must be unique at the broker. The broker keeps messages for it.
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
}

impl HubError {
    /// Returns the error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Listen(error) => error.name(),
            Self::Udp { .. } => "CannotListen",
            Self::Broker(error) => error.name(),
        }
    }

    /// Returns the error's kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Listen(error) => error.kind(),
            Self::Udp { .. } => ErrorKind::Usage,
            Self::Broker(error) => error.kind(),
        }
    }
}

moteseal_api::named_error!(HubError);

/// The metrics of a hub, and whether it is ready.
struct Status {
    table: Arc<Table>,
    /// The states of the broker's connection and of the pages.
    broker: Option<watch::Receiver<State>>,
}

impl Monitored for Status {
    fn metrics(&self) -> String {
        self.table.render()
    }

    fn trouble(&self) -> Option<&'static str> {
        let is_down = |state: &watch::Receiver<State>| *state.borrow() != State::Up;
        self.broker.as_ref().is_some_and(is_down).then_some("the broker cannot be reached")
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
    broker: Option<watch::Receiver<State>>,
    publisher: Option<Publisher>,
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
        let Settings { sources, broker, http, listen, rosters } = settings;
        let table = Arc::new(Table::new());
        table.describe_counter(READINGS, "Readings that are durable.");
        table.describe_counter(REFUSED, "Messages that did not become readings, by reason.");
        table
            .describe_gauge(LAST, "When the newest reading became durable, in seconds since 1970.");
        let (stop, stopped) = watch::channel(false);
        let recorded = watch::Sender::new(false);
        let (mut tasks, mut devices, mut messages) =
            (JoinSet::new(), JoinSet::new(), JoinSet::new());
        let (mut routes, mut intakes) = (Routes::default(), Vec::new());
        let mut http = match http {
            Some((address, token)) => Some(Http::bind(address, token).await?),
            None => None,
        };
        let monitor = match listen {
            Some(address) => Some(Monitor::bind(address).await?),
            None => None,
        };
        for source in sources {
            let Source { name, mapping, from, takes_retained, device } = source;
            let intake = Arc::new(Intake::new(name, mapping, takes_retained, Arc::clone(&table)));
            match from {
                From::Mqtt(filters) => {
                    filters.iter().for_each(|filter| routes.add(filter, &intake));
                }
                From::Coap(resource) => {
                    tasks.spawn(coap::run(resource, Arc::clone(&intake)));
                }
                From::Udp(address) => {
                    let socket = udp::bind(address).await;
                    let socket = socket.map_err(|error| HubError::Udp { address, error })?;
                    tasks.spawn(udp::run(socket, Arc::clone(&intake)));
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
                            intake.take(None, &text, done).await;
                        }
                    });
                }
            }
            intakes.push(Arc::clone(&intake));
            devices.spawn(host::run(device, intake, rosters.clone(), stopped.clone()));
        }
        let mut publisher = None;
        let broker = match broker {
            Some(Broker { options, client }) => {
                // A message that arrives before its device has started would not be recorded.
                for intake in &intakes {
                    intake.started().await;
                }
                let subscriber = Subscriber::new(&options, client, routes.filters())?;
                let state = subscriber.state();
                publisher = Some(subscriber.publisher());
                let (mut stopped, mut ended) = (stopped, recorded.subscribe());
                messages.spawn(async move {
                    let stop = async { _ = stopped.wait_for(|stop| *stop).await };
                    let recorded = async { _ = ended.wait_for(|ended| *ended).await };
                    routes.run(subscriber, stop, recorded).await;
                });
                tasks.spawn(log_state(state.clone()));
                Some(state)
            }
            None => None,
        };
        let (pages, address) =
            (monitor.as_ref().map(Monitor::address), http.as_ref().map(Http::address));
        if let Some(http) = http {
            tasks.spawn(http.run());
        }
        if let Some(monitor) = monitor {
            let status = Status { table: Arc::clone(&table), broker: broker.clone() };
            tasks.spawn(monitor.serve(Arc::new(status)));
        }
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                table.upkeep();
            }
        });
        let http = address;
        Ok(Self { tasks, devices, messages, recorded, stop, broker, publisher, pages, http })
    }

    /// Returns a publisher at the broker of the sensors, if there is a broker.
    #[must_use]
    pub fn publisher(&self) -> Option<Publisher> {
        self.publisher.clone()
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
    /// [`HubError::Broker`] if the broker refuses the hub.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), HubError> {
        let refused = async {
            let Some(state) = self.broker.clone() else { return std::future::pending().await };
            match until_up(state).await {
                Err(error) if error.is_refusal() => error,
                _ => std::future::pending().await,
            }
        };
        let refusal = tokio::select! {
            () = stop => None,
            error = refused => Some(error),
        };
        self.stop.send_replace(true);
        while self.devices.join_next().await.is_some() {}
        self.recorded.send_replace(true);
        while self.messages.join_next().await.is_some() {}
        self.tasks.shutdown().await;
        refusal.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Logs when the broker's connection is established or lost.
async fn log_state(mut state: watch::Receiver<State>) {
    while state.changed().await.is_ok() {
        match &*state.borrow_and_update() {
            State::Up => info!("the broker is connected"),
            State::Down { cause, again_in } => {
                warn!(cause = %cause.named(), ?again_in, "the broker is not connected; messages wait there");
            }
            State::Connecting => {}
        }
    }
}
