//! A node's own health.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use moteseal_core::health::{Group, Health, Item, Policy, Reason, Reporter};
use tokio::sync::{Notify, watch};

use super::representation::content;
use super::{CONF, CORE, HEALTH, conf, may_configure};
use crate::coap::links::{self, Link};
use crate::coap::{Code, ExchangeId, Format, Handle, Owner, Request, Response, Service};

/// The totals whose rates a host watches.
pub const WATCHED: [Item; 16] = [
    Item::LinkTooLong,
    Item::LinkTooShort,
    Item::LinkBadSync,
    Item::LinkBadCrc,
    Item::LinkCollisions,
    Item::LinkRetransmitted,
    Item::IpDropped,
    Item::IcmpDropped,
    Item::UdpDropped,
    Item::UdpBadChecksum,
    Item::TcpBadChecksum,
    Item::TcpRetransmitted,
    Item::TcpSynDrops,
    Item::Nd6Dropped,
    Item::GivenUp,
    Item::Refused,
];
/// Requests within this time see the same sample.
const SAMPLED_FOR: Duration = Duration::from_secs(1);
/// A client that hears nothing for this time, in seconds, renews its registration (RFC 7252, section
/// 5.10.5: the default of Max-Age).
const DEFAULT_AGE: u32 = 60;
/// The formats of a record.
const FORMATS: &str = "60 110 112 50";

/// A report of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The health.
    pub health: Health,
    /// Why the node reports.
    pub reason: Reason,
    /// The time until the next report if nothing unusual happens, in seconds.
    pub interval_s: u32,
}

/// Returns a node's health now.
type Source = Box<dyn FnMut() -> Health + Send>;

/// A node's own health, its resources and its reports.
pub struct NodeHealth {
    name: String,
    /// The shortest period that a client may set, in seconds.
    shortest_s: u32,
    state: Mutex<State>,
    /// Notified when the policy has changed.
    changed: Notify,
    sockets: Mutex<Vec<Handle>>,
    reports: watch::Sender<Option<Report>>,
}

struct State {
    source: Source,
    sampled: Option<(Instant, Health)>,
    reporter: Reporter<{ WATCHED.len() }>,
}

impl fmt::Debug for NodeHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeHealth").field("name", &self.name).finish_non_exhaustive()
    }
}

impl NodeHealth {
    /// Creates the health of a node with this name. `source` returns the health now; it is called at
    /// most once a second and must not block for long.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        (policy, shortest_s): (Policy, u32),
        source: impl FnMut() -> Health + Send + 'static,
    ) -> Arc<Self> {
        let reporter = Reporter::new(policy, WATCHED);
        let state = State { source: Box::new(source), sampled: None, reporter };
        Arc::new(Self {
            name: name.into(),
            shortest_s,
            state: Mutex::new(state),
            changed: Notify::new(),
            sockets: Mutex::default(),
            reports: watch::Sender::new(None),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves the state as it was before or after one sample.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the reports, of which only the newest is kept.
    #[must_use]
    pub fn reports(&self) -> watch::Receiver<Option<Report>> {
        self.reports.subscribe()
    }

    /// Notifies the observers on a socket too.
    pub fn attach(&self, socket: Handle) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    }

    /// Returns the health now.
    #[must_use]
    pub fn sample(&self, now: Instant) -> Health {
        self.state().sample(now)
    }

    /// Samples and reports, until the future is dropped.
    pub async fn run(self: Arc<Self>) {
        loop {
            let next = self.report(Instant::now()).await;
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Takes a sample, and reports it if that is due. Returns the time until the next sample.
    async fn report(self: &Arc<Self>, now: Instant) -> Duration {
        let (report, next) = {
            let mut state = self.state();
            let health = (state.source)();
            state.sampled = Some((now, health));
            let reason = state.reporter.sample(&health);
            let next = state.reporter.next_s().saturating_sub(health.uptime_s).max(1);
            let interval_s = state.reporter.interval_s();
            let report = reason.map(|reason| Report { health, reason, interval_s });
            (report, Duration::from_secs(next.into()))
        };
        if let Some(report) = report {
            self.reports.send_replace(Some(report));
            let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for socket in sockets {
                for path in paths() {
                    let this = Arc::clone(self);
                    let group = group_of(&path);
                    let notification = move |request: &Request| {
                        Some(this.representation(&report.health, group?, request))
                    };
                    socket.notify(path, Box::new(notification)).await;
                }
            }
        }
        next
    }

    /// Answers a request. Returns `None` if the path is none of this node's health.
    pub fn respond(&self, now: Instant, owner: Owner, request: &Request) -> Option<Response> {
        if request.path == CONF {
            return Some(self.configure(owner, request));
        }
        let group = group_of(&request.path)?;
        if request.code != Code::GET {
            return Some(Response::error(Code::METHOD_NOT_ALLOWED, "health can only be read"));
        }
        let health = self.sample(now);
        Some(self.representation(&health, group, request))
    }

    fn representation(&self, health: &Health, group: Option<Group>, request: &Request) -> Response {
        let health = group.map_or(*health, |group| health.only(group));
        let interval = self.state().reporter.interval_s();
        Response {
            max_age: (interval > DEFAULT_AGE).then_some(interval),
            accepts_observer: request.observes,
            is_periodic: true,
            ..content(&self.name, (&health, Duration::ZERO), request.accept)
        }
    }

    fn configure(&self, owner: Owner, request: &Request) -> Response {
        let format = request.accept.unwrap_or(Format::CBOR);
        match request.code {
            Code::GET if format == Format::CBOR || format == Format::JSON => {
                let policy = self.state().reporter.policy();
                Response::content(format, conf::encode_policy(policy, format))
            }
            Code::GET => Response::error(Code::NOT_ACCEPTABLE, "the formats are 60 and 50"),
            Code::PUT if !may_configure(owner) => Response::error(
                Code::UNAUTHORIZED,
                "the policy is changed only over DTLS, or from the node itself",
            ),
            Code::PUT => {
                let mut state = self.state();
                let policy = state.reporter.policy();
                let policy =
                    conf::decode_policy(&request.body, request.format, policy).and_then(|policy| {
                        policy.check(self.shortest_s).map_err(conf::ConfError::Policy)
                    });
                match policy {
                    Ok(policy) => {
                        state.reporter.set_policy(policy);
                        self.changed.notify_one();
                        Response::new(Code::CHANGED)
                    }
                    Err(error) => {
                        Response::error(Code::BAD_REQUEST, format!("{}: {error}", error.name()))
                    }
                }
            }
            _ => Response::new(Code::METHOD_NOT_ALLOWED),
        }
    }

    /// Returns the links to the resources.
    pub fn links() -> impl Iterator<Item = Link> {
        paths().map(|path| Link::new(path, "moteseal.health", FORMATS, ""))
    }
}

/// Serves only a node's own health on a socket.
#[derive(Debug)]
pub struct NodeService(pub Arc<NodeHealth>);

impl Service for NodeService {
    fn request(&mut self, _: ExchangeId, owner: Owner, request: Request) -> Option<Response> {
        if request.path == CORE && request.code == Code::GET {
            let links = links::list(NodeHealth::links(), &request.query);
            return Some(Response::content(Format::LINKS, links));
        }
        let response = self.0.respond(Instant::now(), owner, &request);
        Some(response.unwrap_or_else(|| Response::new(Code::NOT_FOUND)))
    }
}

impl State {
    fn sample(&mut self, now: Instant) -> Health {
        if let Some((at, health)) = self.sampled
            && now.saturating_duration_since(at) < SAMPLED_FOR
        {
            return health;
        }
        let health = (self.source)();
        self.sampled = Some((now, health));
        health
    }
}

/// Returns the paths that are observed.
fn paths() -> impl Iterator<Item = String> {
    let groups = Group::ALL.iter().map(|group| format!("{HEALTH}/{}", group.name()));
    std::iter::once(HEALTH.to_owned()).chain(groups)
}

/// Returns the group of a path, or `Some(None)` for all groups.
fn group_of(path: &str) -> Option<Option<Group>> {
    let rest = path.strip_prefix(HEALTH)?;
    if rest.is_empty() {
        return Some(None);
    }
    let name = rest.strip_prefix('/')?;
    Group::ALL.iter().find(|group| group.name() == name).copied().map(Some)
}
