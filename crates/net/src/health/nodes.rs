//! The newest health of each node below a gateway.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::health::{Health, Item, MAX_ENCODED};
use moteseal_core::record::DeviceId;
use serde_json::{Value, json};

use super::representation::{content, json as health_json};
use super::{HEALTH, NEIGHBOURS, NODE, NODES, RECENT};
use crate::coap::links::Link;
use crate::coap::{Code, Format, Request, Response};

/// The number of records that the resource of the recent ones has. With all values and short names, they fit
/// into one block.
const RECENT_RECORDS: usize = 6;
/// A node is silent if nothing was heard for twice the time that it stated, and this time.
const GRACE: Duration = Duration::from_secs(30);
/// The shortest time between two offers of a session to a node, so that repeated frames cause few answers.
const OFFER_PAUSE: Duration = Duration::from_secs(1);
/// A session is replaced after this time, so that the node compares its clock with the gateway's again.
const SESSION_TIME: Duration = Duration::from_secs(3600);
/// The version of the lists.
const VERSION: u8 = 1;

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The node is none of the group.
    UnknownNode,
    /// It is not later than the newest one of its session: it was repeated or delayed.
    NotNewer,
    /// It belongs to no current session: it was repeated, or the node or the gateway has started again. The
    /// node reports again after it has received this session; `None` if it was offered just now.
    OtherSession(Option<u64>),
}

impl NotTaken {
    /// Returns the error's name (spec/errors.md).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownNode => "UnknownDevice",
            Self::NotNewer => "NotNewer",
            Self::OtherSession(_) => "OtherSession",
        }
    }
}

/// What a node reports, and the session in which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// The session that the node knows; 0 if it knows none.
    pub session: u64,
    /// The time until its next report if nothing unusual happens, in seconds.
    pub interval_s: u32,
    /// The health.
    pub health: Health,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// When the newest report was taken, and the report.
    pub(super) heard: Option<(Instant, NodeReport)>,
    /// The session that the node will use next, and when it was offered.
    offered: Option<(u64, Instant)>,
    /// When the current session began.
    begun: Option<Instant>,
}

impl Node {
    /// Returns the session to offer to the node now: `fresh`, or the one that was offered before. Returns
    /// `None` if it was offered just now.
    fn offer(&mut self, now: Instant, fresh: u64) -> Option<u64> {
        let (session, at) = self.offered.unwrap_or((fresh, now));
        let is_due = self.offered.is_none() || now.saturating_duration_since(at) >= OFFER_PAUSE;
        self.offered = Some((session, if is_due { now } else { at }));
        is_due.then_some(session)
    }

    /// Returns whether the node has been silent for longer than it should be.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.heard.is_some_and(|(at, report)| {
            is_silent(now.saturating_duration_since(at), report.interval_s)
        })
    }
}

/// Returns whether a node that stated this time until its next report is silent for longer than it should
/// be.
#[must_use]
pub fn is_silent(age: Duration, interval_s: u32) -> bool {
    age > 2 * Duration::from_secs(interval_s.into()) + GRACE
}

/// The newest health of each node of a group.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    nodes: BTreeMap<DeviceId, Node>,
    /// The number of records that were taken.
    taken: u64,
    /// The nodes whose records were taken last, with their numbers.
    recent: VecDeque<(u64, DeviceId)>,
    /// The path of each node that has news since the last [`changed`](Self::changed).
    news: BTreeMap<DeviceId, String>,
    /// The paths of the nodes that were removed since then.
    removed: Vec<String>,
}

/// A node in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The node's name.
    pub name: String,
    /// Its newest report; `None` if there is none since the gateway started.
    pub heard: Option<Heard>,
}

/// A report in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// How long ago the report was taken, in milliseconds.
    pub age_ms: u64,
    /// The time until the node's next report if nothing unusual happens, in seconds.
    pub interval_s: u32,
    /// The health.
    pub health: Health,
}

/// A list of nodes, as the resources of a gateway represent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeList {
    /// How many records the gateway has taken.
    pub taken: u64,
    /// The nodes.
    pub nodes: Vec<Listed>,
}

impl NodeList {
    /// Writes the compact form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let names: usize = self.nodes.iter().map(|node| node.name.len()).sum();
        let mut buffer = vec![0; names + self.nodes.len() * (MAX_ENCODED + 20) + 32];
        let mut out = Writer::new(&mut buffer);
        let written = self.write(&mut out);
        debug_assert!(written.is_ok());
        out.written().to_vec()
    }

    fn write(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(3)?.uint(VERSION)?.uint(self.taken)?.array(self.nodes.len() as u64)?;
        for node in &self.nodes {
            out.array(4)?.text(&node.name)?;
            match &node.heard {
                None => drop(out.null()?.null()?.null()?),
                Some(heard) => {
                    out.uint(heard.age_ms)?.uint(heard.interval_s)?;
                    heard.health.encode(out)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the compact form.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes)?;
        reader.array(3)?;
        reader.version()?;
        let taken = reader.u64()?;
        let count = reader.array_any()?;
        let mut nodes = Vec::new();
        for _ in 0..count {
            reader.array(4)?;
            let name = reader.text()?.to_owned();
            let age = reader.optional(Reader::u64)?;
            let interval = reader.optional(Reader::uint)?;
            let health = reader.optional(|reader| Health::decode(reader.raw()?))?;
            let heard = match (age, interval, health) {
                (Some(age_ms), Some(interval_s), Some(health)) => {
                    Some(Heard { age_ms, interval_s, health })
                }
                (None, None, None) => None,
                _ => return Err(DecodeError::UnexpectedType),
            };
            nodes.push(Listed { name, heard });
        }
        Ok(Self { taken, nodes })
    }
}

impl Nodes {
    /// Creates the nodes of a group, of which nothing was heard yet.
    #[must_use]
    pub fn new(members: impl IntoIterator<Item = (DeviceId, String)>) -> Self {
        let mut nodes = Self::default();
        nodes.set_members(members);
        nodes
    }

    /// Replaces the members of the group. What the remaining ones reported is kept.
    pub fn set_members(&mut self, members: impl IntoIterator<Item = (DeviceId, String)>) {
        let mut before = std::mem::take(&mut self.nodes);
        for (id, name) in members {
            let node = match before.remove(&id) {
                Some(node) if node.name == name => node,
                Some(node) => {
                    self.removed.push(path_of(&node.name));
                    Node { name, ..node }
                }
                None => Node { name, heard: None, offered: None, begun: None },
            };
            self.nodes.insert(id, node);
        }
        // The observers of removed nodes learn that there is no such node any more.
        self.removed.extend(before.into_values().map(|node| path_of(&node.name)));
        self.recent.retain(|(_, id)| self.nodes.contains_key(id));
        self.news.retain(|id, _| self.nodes.contains_key(id));
    }

    /// Takes a report of a node. The caller has checked that the node sent it. `fresh` is a random number,
    /// which is not 0.
    ///
    /// A node keeps its session in memory, so all reports of a session are of one start, and a later one
    /// has a longer time since it. A report of the session that was offered last proves that the node made
    /// it after the offer; it begins this session, and those of the session before have no effect any more.
    ///
    /// Returns a session to offer to the node, if its current one is old.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn take(
        &mut self,
        now: Instant,
        id: DeviceId,
        report: &NodeReport,
        fresh: u64,
    ) -> Result<Option<u64>, NotTaken> {
        let node = self.nodes.get_mut(&id).ok_or(NotTaken::UnknownNode)?;
        let current = node.heard.filter(|(_, newest)| newest.session == report.session);
        if let Some((_, newest)) = current {
            let (before, health) = (newest.health, report.health);
            if health.boot != before.boot || health.uptime_s <= before.uptime_s {
                return Err(NotTaken::NotNewer);
            }
        } else if node.offered.is_some_and(|(offered, _)| offered == report.session) {
            (node.offered, node.begun) = (None, Some(now));
        } else {
            return Err(NotTaken::OtherSession(node.offer(now, fresh)));
        }
        let age = node.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun));
        let offer = if age >= SESSION_TIME { node.offer(now, fresh) } else { None };
        node.heard = Some((now, *report));
        self.taken += 1;
        self.recent.retain(|(_, recent)| *recent != id);
        self.recent.push_back((self.taken, id));
        if self.recent.len() > RECENT_RECORDS {
            self.recent.pop_front();
        }
        self.news.entry(id).or_insert_with(|| path_of(&node.name));
        Ok(offer)
    }

    /// Returns the name of a node.
    #[must_use]
    pub fn name(&self, id: DeviceId) -> Option<&str> {
        self.nodes.get(&id).map(|node| &*node.name)
    }

    /// Returns the paths whose representations have changed since the last call.
    pub fn changed(&mut self) -> Vec<String> {
        let removed = std::mem::take(&mut self.removed);
        if self.news.is_empty() {
            return removed;
        }
        let news = std::mem::take(&mut self.news).into_values();
        news.chain([RECENT.to_owned()]).chain(removed).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    fn find(&self, name: &str) -> Option<&Node> {
        self.nodes.values().find(|node| node.name == name)
    }

    fn listed(now: Instant, node: &Node) -> Listed {
        let heard = node.heard.map(|(at, NodeReport { interval_s, health, .. })| {
            let age = now.saturating_duration_since(at).as_millis();
            Heard { age_ms: u64::try_from(age).unwrap_or(u64::MAX), interval_s, health }
        });
        Listed { name: node.name.clone(), heard }
    }

    /// Returns all nodes.
    #[must_use]
    pub fn list(&self, now: Instant) -> NodeList {
        let nodes = self.nodes.values().map(|node| Self::listed(now, node)).collect();
        NodeList { taken: self.taken, nodes }
    }

    /// Returns the nodes whose records were taken last, oldest first.
    #[must_use]
    pub fn recent(&self, now: Instant) -> NodeList {
        let nodes = self.recent.iter().filter_map(|(_, id)| self.nodes.get(id));
        NodeList { taken: self.taken, nodes: nodes.map(|node| Self::listed(now, node)).collect() }
    }

    /// Answers a request. Returns `None` if the path is none of the nodes'.
    pub fn respond(&self, now: Instant, own: &Health, request: &Request) -> Option<Response> {
        let is_list = matches!(&*request.path, NODES | RECENT | NEIGHBOURS);
        if request.code != Code::GET && (is_list || request.path.starts_with(NODE)) {
            return Some(Response::error(Code::METHOD_NOT_ALLOWED, "health can only be read"));
        }
        Some(match &*request.path {
            NODES => represent(&self.list(now), request.accept),
            RECENT => Response {
                accepts_observer: request.observes,
                is_periodic: true,
                ..represent(&self.recent(now), request.accept)
            },
            NEIGHBOURS => match request.accept.unwrap_or(Format::CBOR) {
                Format::CBOR => Response::content(Format::CBOR, self.neighbours(now, own)),
                _ => Response::error(Code::NOT_ACCEPTABLE, "the format is 60"),
            },
            path => {
                let name = path.strip_prefix(NODE)?;
                match self.find(name) {
                    None => Response::error(Code::NOT_FOUND, "the group has no such node"),
                    Some(node) => node_content(now, node, request),
                }
            }
        })
    }

    /// Returns the neighbours that were heard: name, ETX, signal strength, and how long ago.
    fn neighbours(&self, now: Instant, own: &Health) -> Bytes {
        let heard: Vec<_> =
            self.nodes.values().filter_map(|node| Some((node, node.heard?))).collect();
        let names: usize = heard.iter().map(|(node, _)| node.name.len()).sum();
        let mut buffer = vec![0; names + heard.len() * 24 + 32];
        let mut out = Writer::new(&mut buffer);
        let written = (|| {
            out.array(4)?.uint(VERSION)?.uint(own.boot)?.uint(own.uptime_s)?;
            out.array(heard.len() as u64)?;
            for (node, (at, NodeReport { health, .. })) in heard {
                let age = now.saturating_duration_since(at).as_secs();
                // The link to a node reports no ETX.
                out.array(4)?.text(&node.name)?.null()?;
                out.optional(health.get(Item::Rssi), |out, rssi| out.int(rssi))?.uint(age)?;
            }
            Ok::<(), BufferTooSmall>(())
        })();
        debug_assert!(written.is_ok());
        Bytes::copy_from_slice(out.written())
    }

    /// Returns the links to the resources.
    pub fn links() -> impl Iterator<Item = Link> {
        let link = |path, formats| Link::new(path, "moteseal.health.nodes", formats, "");
        let lists = [link(NODES, "60 50"), link(NEIGHBOURS, "60")].map(Link::unobservable);
        lists.into_iter().chain([link(RECENT, "60 50")])
    }
}

fn path_of(name: &str) -> String {
    debug_assert!(NODE.starts_with(HEALTH));
    format!("{NODE}{name}")
}

fn node_content(now: Instant, node: &Node, request: &Request) -> Response {
    let Some((at, report)) = &node.heard else {
        let why = "the node has not reported since this gateway started";
        return Response::error(Code::SERVICE_UNAVAILABLE, why);
    };
    let age = now.saturating_duration_since(*at);
    if node.is_silent(now) {
        let why = format!("the node is silent: its newest report is {} s old", age.as_secs());
        return Response::error(Code::SERVICE_UNAVAILABLE, why);
    }
    let next = Duration::from_secs(report.interval_s.into()).saturating_sub(age) + GRACE;
    Response {
        accepts_observer: request.observes,
        is_periodic: true,
        max_age: Some(u32::try_from(next.as_secs()).unwrap_or(u32::MAX)),
        ..content(&node.name, (&report.health, age), request.accept)
    }
}

fn represent(list: &NodeList, accept: Option<Format>) -> Response {
    match accept.unwrap_or(Format::CBOR) {
        Format::CBOR => Response::content(Format::CBOR, list.encode()),
        Format::JSON => Response::content(Format::JSON, list_json(list).to_string()),
        _ => Response::error(Code::NOT_ACCEPTABLE, "the formats are 60 and 50"),
    }
}

fn list_json(list: &NodeList) -> Value {
    let nodes = list.nodes.iter().map(|node| match &node.heard {
        Some(Heard { age_ms, interval_s, health }) => json!({
            "name": node.name,
            "age_ms": age_ms,
            "interval_s": interval_s,
            "health": health_json(health),
        }),
        None => json!({ "name": node.name }),
    });
    json!({ "taken": list.taken, "nodes": nodes.collect::<Vec<_>>() })
}
