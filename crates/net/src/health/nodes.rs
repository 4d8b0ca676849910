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

/// The number of records that the resource of the recent ones has. They fit into one datagram.
const RECENT_RECORDS: usize = 8;
/// A record of an earlier start is taken if nothing was heard for this time: a node that has lost its
/// state may count its starts from 1 again.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// The version of the lists.
const VERSION: u8 = 1;

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The node is none of the group.
    UnknownNode,
    /// It is not later than the newest one: it was repeated or delayed.
    NotNewer,
}

impl NotTaken {
    /// Returns the error's name (spec/errors.md).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownNode => "UnknownDevice",
            Self::NotNewer => "NotNewer",
        }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) heard: Option<(Instant, Health)>,
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
}

/// A node in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The node's name.
    pub name: String,
    /// How long ago its newest record was taken, in milliseconds, and the record; `None` if there is
    /// none.
    pub heard: Option<(u64, Health)>,
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
            out.array(3)?.text(&node.name)?;
            match &node.heard {
                None => drop(out.null()?.null()?),
                Some((age, health)) => {
                    out.uint(*age)?;
                    health.encode(out)?;
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
            reader.array(3)?;
            let name = reader.text()?.to_owned();
            let age = reader.optional(Reader::u64)?;
            let health = reader.optional(|reader| Health::decode(reader.raw()?))?;
            let heard = match (age, health) {
                (Some(age), Some(health)) => Some((age, health)),
                (None, None) => None,
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
            let heard = before.remove(&id).and_then(|node| node.heard);
            self.nodes.insert(id, Node { name, heard });
        }
        self.recent.retain(|(_, id)| self.nodes.contains_key(id));
        self.news.retain(|id, _| self.nodes.contains_key(id));
    }

    /// Takes a record of a node. The caller has checked that the node sent it.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn take(&mut self, now: Instant, id: DeviceId, health: &Health) -> Result<(), NotTaken> {
        let node = self.nodes.get_mut(&id).ok_or(NotTaken::UnknownNode)?;
        let is_newer = node.heard.is_none_or(|(at, newest)| {
            // Starts are counted modulo 2^32.
            let starts = health.boot.wrapping_sub(newest.boot);
            let is_later_start = starts != 0 && starts < 1 << 31;
            is_later_start
                || (starts == 0 && health.uptime_s > newest.uptime_s)
                || (starts != 0 && now.saturating_duration_since(at) >= FORGOTTEN)
        });
        if !is_newer {
            return Err(NotTaken::NotNewer);
        }
        node.heard = Some((now, *health));
        self.taken += 1;
        self.recent.retain(|(_, recent)| *recent != id);
        self.recent.push_back((self.taken, id));
        if self.recent.len() > RECENT_RECORDS {
            self.recent.pop_front();
        }
        self.news.entry(id).or_insert_with(|| path_of(&node.name));
        Ok(())
    }

    /// Returns the paths whose representations have changed since the last call.
    pub fn changed(&mut self) -> Vec<String> {
        if self.news.is_empty() {
            return Vec::new();
        }
        let news = std::mem::take(&mut self.news).into_values();
        news.chain([RECENT.to_owned()]).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    fn find(&self, name: &str) -> Option<&Node> {
        let is_it = |(id, node): &(&DeviceId, &Node)| node.name == name || id.to_string() == name;
        self.nodes.iter().find(is_it).map(|(_, node)| node)
    }

    fn listed(now: Instant, node: &Node) -> Listed {
        let age = |at| now.saturating_duration_since(at).as_millis();
        let heard =
            node.heard.map(|(at, health)| (u64::try_from(age(at)).unwrap_or(u64::MAX), health));
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
        let response = match &*request.path {
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
                    Some(node) => node_content(node, request),
                }
            }
        };
        if request.code != Code::GET {
            return Some(Response::error(Code::METHOD_NOT_ALLOWED, "health can only be read"));
        }
        Some(response)
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
            for (node, (at, health)) in heard {
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
        [link(NODES, "60 50"), link(RECENT, "60 50"), link(NEIGHBOURS, "60")].into_iter()
    }
}

fn path_of(name: &str) -> String {
    debug_assert!(NODE.starts_with(HEALTH));
    format!("{NODE}{name}")
}

fn node_content(node: &Node, request: &Request) -> Response {
    let Some((_, health)) = &node.heard else {
        return Response::error(Code::SERVICE_UNAVAILABLE, "the node has not reported yet");
    };
    Response {
        accepts_observer: request.observes,
        is_periodic: true,
        // The node decides when it reports next, at most every 16 periods.
        max_age: Some(600),
        ..content(&node.name, health, request.accept)
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
        Some((age_ms, health)) => {
            json!({ "name": node.name, "age_ms": age_ms, "health": health_json(health) })
        }
        None => json!({ "name": node.name }),
    });
    json!({ "taken": list.taken, "nodes": nodes.collect::<Vec<_>>() })
}
