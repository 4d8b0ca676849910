//! Observes the health of nodes over CoAP.

use std::time::{Duration, Instant};

use moteseal_core::health::Health;
use moteseal_net::coap::{Address, Code, Format};
use moteseal_net::health::{HEALTH, Heard, NODES, NodeList, RECENT};
use tokio::sync::mpsc;

use crate::reading::{Credentials, GetError, Source, Unverified};

/// How long to wait before a server that does not respond is asked again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often a gateway that has too many observers is read.
const POLL: Duration = Duration::from_secs(30);

/// What a watch reports.
#[derive(Debug)]
pub enum Update {
    /// A node that has not reported yet.
    Listed(String),
    /// A report of a node, and when it arrived at the gateway.
    Heard {
        /// The node's name.
        node: String,
        /// When it arrived.
        at: Instant,
        /// The time until its next report if nothing unusual happens; `None` if the server did not state
        /// it.
        interval: Option<Duration>,
        /// The health.
        health: Box<Health>,
    },
    /// All nodes were reported once.
    Complete,
    /// The server cannot be read at the moment.
    Failed(GetError),
}

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The nodes below a gateway.
    Nodes,
    /// One node.
    Node,
}

/// Opens sockets with fresh credentials.
type NewCredentials = Box<dyn Fn() -> Credentials + Send + Sync>;

/// A gateway or node that is watched.
pub struct Watch {
    /// The address without a path.
    server: String,
    /// What stands before the names of nodes, if several gateways are watched.
    prefix: String,
    what: Option<Watched>,
    credentials: NewCredentials,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Watch {
    /// Creates a watch of a server. With the path `/h` the server's own health is watched; with
    /// `/h/nodes` or without a path the nodes below it, if it is a gateway.
    ///
    /// # Errors
    /// `Link` if the address is invalid or has another path.
    pub fn new(
        url: &str,
        credentials: impl Fn() -> Credentials + Send + Sync + 'static,
    ) -> Result<Self, GetError> {
        let address = Address::parse(url)?;
        let path = address.path().to_owned();
        let what = match path.trim_end_matches('/') {
            "" => None,
            HEALTH => Some(Watched::Node),
            NODES => Some(Watched::Nodes),
            _ => {
                return Err(GetError::Link(moteseal_net::LinkError::BadAddress {
                    url: url.to_owned(),
                    cause: "the path is not /h or /h/nodes".to_owned(),
                    example: "coap://gateway.example/h/nodes",
                }));
            }
        };
        let server = url.trim_end_matches('/').trim_end_matches(&*path).trim_end_matches('/');
        let (server, prefix) = (server.to_owned(), String::new());
        Ok(Self { server, prefix, what, credentials: Box::new(credentials) })
    }

    /// Puts the gateway before the names of its nodes, because another one may have nodes of the same
    /// names.
    #[must_use]
    pub fn with_gateway(mut self) -> Self {
        self.prefix = format!("{}/", self.host());
        self
    }

    /// Returns the address without its scheme.
    fn host(&self) -> &str {
        self.server.rsplit("//").next().unwrap_or_default()
    }

    async fn source(&self, path: &str) -> Result<Source, GetError> {
        let address = Address::parse(&format!("{}{path}", self.server))?;
        Source::new(address, (self.credentials)()).await
    }

    /// Reports all nodes once.
    ///
    /// # Errors
    /// [`GetError`].
    pub async fn once(&self, updates: &mpsc::Sender<Update>) -> Result<(), GetError> {
        match self.kind().await? {
            Watched::Nodes => {
                let response = self.source(NODES).await?.get().await?;
                self.send_all(&response, updates).await?;
            }
            Watched::Node => {
                let response = self.source(HEALTH).await?.get().await?;
                self.send_own(&response, updates).await?;
            }
        }
        let _ = updates.send(Update::Complete).await;
        Ok(())
    }

    /// Observes until the receiver is dropped. What fails is reported and tried again.
    pub async fn run(&self, updates: &mpsc::Sender<Update>) {
        while !updates.is_closed() {
            let Err(error) = self.observe(updates).await else { continue };
            if updates.send(Update::Failed(error)).await.is_err() {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn observe(&self, updates: &mpsc::Sender<Update>) -> Result<(), GetError> {
        let what = self.kind().await?;
        let path = if what == Watched::Nodes { RECENT } else { HEALTH };
        let mut source = self.source(path).await?;
        let mut known: Option<u64> = None;
        loop {
            let response = match source.next().await {
                Err(GetError::NoReading { code: Code::TOO_MANY_REQUESTS, .. }) => {
                    self.once(updates).await?;
                    tokio::time::sleep(POLL).await;
                    return Ok(());
                }
                response => response?,
            };
            if what == Watched::Node {
                self.send_own(&response, updates).await?;
            } else {
                let list = self.decode(&response)?;
                let new = known.and_then(|known| list.taken.checked_sub(known));
                // A notification was lost, or the gateway has restarted.
                let has_all = new.is_some_and(|new| new <= list.nodes.len() as u64);
                let at = Instant::now();
                known = if has_all {
                    let taken = list.taken;
                    self.send(list, at, updates).await;
                    Some(taken)
                } else {
                    let taken = self.send_all(&source.get_other(NODES).await?, updates).await?;
                    let _ = updates.send(Update::Complete).await;
                    Some(taken)
                };
            }
            if updates.is_closed() {
                return Ok(());
            }
        }
    }

    /// Returns what is watched. If the address does not determine it, asks the server.
    async fn kind(&self) -> Result<Watched, GetError> {
        if let Some(what) = self.what {
            return Ok(what);
        }
        match self.source(RECENT).await?.get().await {
            Ok(_) => Ok(Watched::Nodes),
            Err(GetError::NoReading { code: Code::NOT_FOUND, .. }) => Ok(Watched::Node),
            Err(error) => Err(error),
        }
    }

    /// Reports all nodes of the gateway. Returns how many reports it has taken.
    async fn send_all(
        &self,
        response: &Unverified,
        updates: &mpsc::Sender<Update>,
    ) -> Result<u64, GetError> {
        let list = self.decode(response)?;
        let taken = list.taken;
        self.send(list, Instant::now(), updates).await;
        Ok(taken)
    }

    fn decode(&self, response: &Unverified) -> Result<NodeList, GetError> {
        NodeList::decode(&response.bytes).map_err(|error| self.malformed(&error))
    }

    async fn send_own(
        &self,
        response: &Unverified,
        updates: &mpsc::Sender<Update>,
    ) -> Result<(), GetError> {
        if response.format != Format::CBOR.0 {
            return Err(self.malformed(&"the response is not CBOR"));
        }
        let health = Health::decode(&response.bytes).map_err(|error| self.malformed(&error))?;
        let node = self.host().to_owned();
        // A node states in Max-Age when it reports next, if that is later than the default of CoAP.
        let interval = response.max_age.map(|seconds| Duration::from_secs(seconds.into()));
        let (at, health) = (Instant::now(), Box::new(health));
        let _ = updates.send(Update::Heard { node, at, interval, health }).await;
        Ok(())
    }

    fn malformed(&self, error: &dyn std::fmt::Display) -> GetError {
        GetError::Health { url: self.server.clone(), cause: error.to_string() }
    }

    async fn send(&self, list: NodeList, now: Instant, updates: &mpsc::Sender<Update>) {
        for node in list.nodes {
            let name = format!("{}{}", self.prefix, node.name);
            let update = match node.heard {
                None => Update::Listed(name),
                Some(Heard { age_ms, interval_s, health }) => Update::Heard {
                    node: name,
                    at: now.checked_sub(Duration::from_millis(age_ms)).unwrap_or(now),
                    interval: Some(Duration::from_secs(interval_s.into())),
                    health: Box::new(health),
                },
            };
            if updates.send(update).await.is_err() {
                return;
            }
        }
    }
}
