//! The health of a gateway and of the nodes below it, as resources of CoAP and as metrics.
//!
//! The nodes report over their links. The newest record of each node of the roster is kept, so the
//! memory is bounded by the roster.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use moteseal_core::health::{Health, Item, Policy, SHORTEST_ON_HOSTS};
use moteseal_core::record::DeviceId;
use moteseal_net::coap::links;
use moteseal_net::coap::{Code, ExchangeId, Format, Handle, Owner, Request, Response, Service};
use moteseal_net::health::{CONF, CORE, NodeHealth, NodeReport, Nodes, NotTaken, Report};
use moteseal_service::health::store;
use moteseal_service::{Figures, HostHealth};
use moteseal_verify::Roster;
use tokio::sync::{Notify, watch};
use tracing::info;

/// The name of the gateway's own health.
pub const GATEWAY: &str = "gateway";
/// The shortest time between two notifications of one resource. News within it go together.
const PAUSE: Duration = Duration::from_millis(60);

/// The health of a gateway and of its nodes.
pub struct GatewayHealth {
    node: Arc<NodeHealth>,
    nodes: Arc<Mutex<Nodes>>,
    figures: Arc<Figures>,
    sockets: Mutex<Vec<Handle>>,
    has_news: Notify,
    /// Is called with each report that was taken: the node, its name, and the health.
    on_taken: OnceLock<OnTaken>,
}

/// Receives the reports that a gateway takes. It must not block.
pub type OnTaken = Box<dyn Fn(DeviceId, &str, &Health) + Send + Sync>;

impl fmt::Debug for GatewayHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayHealth").finish_non_exhaustive()
    }
}

fn lock(nodes: &Mutex<Nodes>) -> MutexGuard<'_, Nodes> {
    // A panic while the lock was held leaves the nodes as they were before or after one record.
    nodes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn members(roster: &Roster) -> impl Iterator<Item = (DeviceId, String)> {
    roster.devices().map(|device| (device.id, device.name.clone()))
}

impl GatewayHealth {
    /// Creates the health of a gateway of a group.
    #[must_use]
    pub fn new(roster: &Roster, policy: Policy, host: HostHealth) -> Arc<Self> {
        // The gateway neither has urgent events of its own nor gives readings up.
        let figures = Arc::new(Figures::without(&[Item::UrgentWaiting, Item::GivenUp]));
        let own = Arc::clone(&figures);
        let source = move || {
            let mut health = host.sample();
            own.write(&mut health);
            health
        };
        Arc::new(Self {
            node: NodeHealth::new(GATEWAY, (policy, SHORTEST_ON_HOSTS), source),
            nodes: Arc::new(Mutex::new(Nodes::new(members(roster)))),
            figures,
            sockets: Mutex::default(),
            has_news: Notify::new(),
            on_taken: OnceLock::new(),
        })
    }

    /// Passes each report that is taken from now on to `on_taken`. Only the first call has an effect.
    pub fn on_taken(&self, on_taken: OnTaken) {
        let _ = self.on_taken.set(on_taken);
    }

    /// Returns the reports of the gateway itself, of which only the newest is kept.
    #[must_use]
    pub fn reports(&self) -> watch::Receiver<Option<Report>> {
        self.node.reports()
    }

    /// Notes the number of uploads that wait, and of the events that were seen.
    pub(crate) fn measured(&self, waiting: usize, seen: u64) {
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        // Only uploads make the number smaller.
        if self.figures.waiting.swap(waiting, Ordering::Relaxed) > waiting {
            self.figures.acknowledged();
        }
        store(&self.figures.readings, seen);
    }

    /// Notes that a frame was refused.
    pub(crate) fn refused(&self) {
        self.figures.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Notifies the observers on a socket too.
    pub fn attach(&self, socket: Handle) {
        self.node.attach(socket.clone());
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    }

    /// Takes a report of a node, which the node sent. Returns a session to offer to the node, if its current
    /// one is old.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn take(&self, device: DeviceId, report: &NodeReport) -> Result<Option<u64>, NotTaken> {
        let mut fresh = [0; 8];
        // Without random numbers no session begins, so nothing is taken.
        getrandom::fill(&mut fresh).map_err(|_| NotTaken::OtherSession(None))?;
        let fresh = u64::from_be_bytes(fresh).max(1);
        let (offer, name) = {
            let mut nodes = lock(&self.nodes);
            let offer = nodes.take(Instant::now(), device, report, fresh)?;
            (offer, self.on_taken.get().and_then(|_| nodes.name(device).map(str::to_owned)))
        };
        if let (Some(on_taken), Some(name)) = (self.on_taken.get(), name) {
            on_taken(device, &name, &report.health);
        }
        self.has_news.notify_one();
        Ok(offer)
    }

    /// Continues with the members of a later version of the roster.
    pub(crate) fn load(&self, roster: &Roster) {
        lock(&self.nodes).set_members(members(roster));
        self.has_news.notify_one();
    }

    /// Answers a request on the socket of the links. Without DTLS, health is served only to the same
    /// machine, because anyone can reach this socket. Returns `None` if the path is none of health.
    #[must_use]
    pub fn respond_on_link(&self, owner: Owner, request: &Request) -> Option<Response> {
        let response = self.respond(owner, request)?;
        let is_stranger =
            matches!(owner, Owner::Peer(peer) if !peer.is_secure() && !peer.is_local());
        let is_refused = is_stranger && request.path != CORE;
        Some(match is_refused {
            true => Response::error(
                Code::UNAUTHORIZED,
                "read health over DTLS, from the gateway itself, or at the address of [health] listen",
            ),
            false => response,
        })
    }

    /// Answers a request. Returns `None` if the path is none of health.
    #[must_use]
    pub fn respond(&self, owner: Owner, request: &Request) -> Option<Response> {
        let now = Instant::now();
        if request.path == CORE && request.code == Code::GET {
            let links = NodeHealth::links().chain(Nodes::links());
            return Some(Response::content(Format::LINKS, links::list(links, &request.query)));
        }
        // Each device of the group can open a DTLS session here.
        if request.path == CONF && request.code != Code::GET && matches!(owner, Owner::Device(_)) {
            let why = "a device may not change the policy of its gateway";
            return Some(Response::error(Code::FORBIDDEN, why));
        }
        if let Some(response) = self.node.respond(now, owner, request) {
            if request.path == CONF && response.code == Code::CHANGED {
                info!(
                    ?owner,
                    "a client has changed the policy by which the gateway reports its health"
                );
            }
            return Some(response);
        }
        let own = self.node.sample(now);
        lock(&self.nodes).respond(now, &own, request)
    }

    /// Appends the metrics of the gateway and its nodes in Prometheus' text format.
    pub fn render(&self, out: &mut String) {
        let now = Instant::now();
        let own = self.node.sample(now);
        // The station's thread needs the lock, so that it is not held while the text is written.
        let nodes = lock(&self.nodes).clone();
        nodes.render(now, (GATEWAY, &own), out);
    }

    /// Samples the gateway's health, and notifies the observers, until the future is dropped.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(Arc::clone(&self.node).run(), self.notify());
    }

    async fn notify(&self) {
        loop {
            self.has_news.notified().await;
            let changed = lock(&self.nodes).changed();
            let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for socket in &sockets {
                for path in &changed {
                    let nodes = Arc::clone(&self.nodes);
                    // The own health is only in the list of neighbours, which is not observed.
                    let own = Health::new(0, 0);
                    let representation = move |request: &Request| {
                        lock(&nodes).respond(Instant::now(), &own, request)
                    };
                    socket.notify(path.clone(), Box::new(representation)).await;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Serves only health on a socket.
#[derive(Debug)]
pub struct HealthService(pub Arc<GatewayHealth>);

impl Service for HealthService {
    fn request(&mut self, _: ExchangeId, owner: Owner, request: Request) -> Option<Response> {
        let response = self.0.respond(owner, &request);
        Some(response.unwrap_or_else(|| Response::new(Code::NOT_FOUND)))
    }
}
