//! The tree of gateways that adds up a group's private sums: the parent of each gateway and device,
//! and the sources below each gateway (spec/sums.md, section 6).
//!
//! All participants use the same tree. A gateway derives from it which sources each of its children
//! may report. The querier derives the path along which it sends a question to a gateway. The tree
//! is public and need not be trusted: the querier rejects sums that were added over a different
//! tree. This module does no I/O.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use moteseal_core::digest::Digest;
use moteseal_core::error::Named;
use moteseal_core::link::{MAX_NODE_NAME, is_node_name};
use moteseal_core::record::DeviceId;
use moteseal_core::signature::PublicKey;

use crate::roster::Roster;

/// The name of a group's only or first querier. Further queriers have other names.
pub const QUERIER: &str = "querier";
/// Maximum number of gateways on the path from a source to the querier.
pub const MAX_HEIGHT: u32 = 32;

/// Maximum number of device names listed in one error message.
const NAMED: usize = 8;
const NOBODY: u32 = u32::MAX;

/// Returns the id of the gateway called `name`: the first eight bytes of
/// `SHA-256("moteseal/1/gateway" || name)`.
#[must_use]
pub fn gateway_id(name: &str) -> DeviceId {
    let mut id = [0; 8];
    id.copy_from_slice(&Digest::of(&[b"moteseal/1/gateway", name.as_bytes()]).0[..8]);
    DeviceId(id)
}

/// Checks the name of a gateway.
///
/// # Errors
/// `ReservedName`, `InvalidGatewayName`.
pub fn check_gateway_name(name: &str) -> Result<(), TreeError> {
    check_name(name, QUERIER)
}

/// Checks the name of a gateway in the tree of the querier called `querier`.
fn check_name(name: &str, querier: &str) -> Result<(), TreeError> {
    if name == QUERIER || name == querier {
        return Err(TreeError::ReservedName(name.to_owned()));
    }
    if is_node_name(name) { Ok(()) } else { Err(TreeError::InvalidGatewayName(name.to_owned())) }
}

/// Why a tree is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// No gateway has the querier as its parent.
    #[error("no gateway has the parent {0:?}; connect at least one to the querier")]
    NoRoot(String),
    /// The querier's name is empty, too long, or contains characters other than letters, digits, `-`,
    /// `_` and `.`.
    #[error(
        "{0:?} is not a valid name of a querier; use 1 to {MAX_NODE_NAME} letters, digits, \
         '-', '_' and '.'"
    )]
    InvalidQuerierName(String),
    /// A gateway's name is empty, too long, or contains characters other than letters, digits, `-`,
    /// `_` and `.`.
    #[error(
        "{0:?} is not a valid name of a gateway; use 1 to {MAX_NODE_NAME} letters, digits, \
         '-', '_' and '.'"
    )]
    InvalidGatewayName(String),
    /// A gateway has the querier's name.
    #[error("{0:?} is the name of a querier; rename the gateway")]
    ReservedName(String),
    /// A gateway is listed twice.
    #[error("the gateway {0:?} is listed twice; remove one entry")]
    DuplicateGateway(String),
    /// A gateway's parent is not listed.
    #[error(
        "the parent of {gateway:?} is {parent:?}, which is not a gateway; name a gateway or the \
         querier"
    )]
    UnknownParent {
        /// The gateway.
        gateway: String,
        /// The name of its parent.
        parent: String,
    },
    /// A gateway is its own ancestor.
    #[error("the gateway {0:?} is its own ancestor; every path up must end at the querier")]
    Cycle(String),
    /// A path to the querier has more than [`MAX_HEIGHT`] gateways. The field is the lowest gateway
    /// of this path.
    #[error("the path from {0:?} up has more than {MAX_HEIGHT} gateways; make the tree lower")]
    TooHigh(String),
    /// The tree lists a device that is not in the roster.
    #[error("the roster has no device {0:?}; remove it here, or add it to the roster")]
    UnknownDevice(String),
    /// A device is listed twice.
    #[error("the device {0:?} is listed twice; a device has one gateway")]
    DuplicateDevice(String),
    /// A device's gateway is not listed.
    #[error("the gateway of {device:?} is {gateway:?}, which is not listed as a gateway")]
    UnknownGateway {
        /// The device.
        device: String,
        /// The name of its gateway.
        gateway: String,
    },
    /// Some devices of the roster are not in the tree.
    #[error(
        "these devices have no gateway: {}; every device of the roster needs one, also a removed one",
        first_names(_0)
    )]
    DevicesMissing(Vec<String>),
    /// A gateway has no device below it.
    #[error("the gateway {0:?} has no device below it; remove it")]
    NoSources(String),
    /// A gateway has the id of a device or of another gateway.
    #[error("the gateway {gateway:?} has the same id as {other:?}; rename it")]
    IdTaken {
        /// The gateway.
        gateway: String,
        /// The node with the same id.
        other: String,
    },
}

/// Returns the first [`NAMED`] names of a list and the number of further names.
fn first_names(names: &[String]) -> String {
    let first = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

impl TreeError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoRoot(_) => "NoRoot",
            Self::InvalidGatewayName(_) => "InvalidGatewayName",
            Self::ReservedName(_) => "ReservedName",
            Self::InvalidQuerierName(_) => "InvalidQuerierName",
            Self::DuplicateGateway(_) => "DuplicateGateway",
            Self::UnknownParent { .. } => "UnknownParent",
            Self::Cycle(_) => "Cycle",
            Self::TooHigh(_) => "TooHigh",
            Self::UnknownDevice(_) => "UnknownDevice",
            Self::DuplicateDevice(_) => "DuplicateDevice",
            Self::UnknownGateway { .. } => "UnknownGateway",
            Self::DevicesMissing(_) => "DevicesMissing",
            Self::NoSources(_) => "NoSources",
            Self::IdTaken { .. } => "IdTaken",
        }
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(&self) -> Named<'static, &Self> {
        Named { name: self.name(), error: self }
    }
}

/// A tree of gateways that contains all devices of a roster. All checks of [`TreeError`] have
/// passed.
#[derive(Clone, Debug)]
pub struct AggregationTree {
    querier: String,
    /// Sorted by name.
    gateways: Vec<Gateway>,
    by_id: BTreeMap<DeviceId, usize>,
    /// Sorted by position.
    sources: Vec<Source>,
    /// The positions of the sources, by device.
    positions: BTreeMap<DeviceId, u32>,
    height: u32,
}

/// A group as the parties of private sums know it: a version of its roster, and a tree of the
/// devices of this version.
#[derive(Clone, Debug)]
pub struct SumGroup {
    /// The roster.
    pub roster: Arc<Roster>,
    /// The tree.
    pub tree: Arc<AggregationTree>,
}

impl SumGroup {
    /// Takes a roster and a tree of its devices.
    #[must_use]
    pub fn new(roster: Roster, tree: AggregationTree) -> Self {
        Self { roster: Arc::new(roster), tree: Arc::new(tree) }
    }

    /// Returns the public key of the tree's querier if the roster states it. The roster states only that
    /// of the querier [`QUERIER`].
    #[must_use]
    pub fn querier_in_roster(&self) -> Option<&PublicKey> {
        self.roster.querier().filter(|_| self.tree.querier_name() == QUERIER)
    }

    /// Returns the number of sources that take part in sums at an instant, in Unix milliseconds.
    #[must_use]
    pub fn sources_at(&self, unix_ms: u64) -> u32 {
        let epoch = self.roster.epoch_of(unix_ms);
        let members = self.roster.devices().filter(|device| device.takes_part_in(epoch)).count();
        u32::try_from(members).unwrap_or(u32::MAX)
    }
}

#[derive(Clone, Debug)]
struct Gateway {
    id: DeviceId,
    name: String,
    /// The index of the parent in `gateways`; `None` if the parent is the querier.
    parent: Option<usize>,
    /// The largest number of edges from the gateway down to a source.
    height: u32,
}

#[derive(Clone, Debug)]
struct Source {
    id: DeviceId,
    name: String,
    gateway: usize,
}

/// A gateway, or the querier, in its role as the aggregator of its children.
#[derive(Clone, Debug)]
pub struct Aggregator {
    name: String,
    id: Option<DeviceId>,
    height: u32,
    /// Sorted by id.
    children: Vec<Child>,
    /// For each position: the index of the child that is the source or is above it; [`NOBODY`] if
    /// the source is not below this aggregator.
    owners: Vec<u32>,
    /// For each gateway below this aggregator: the index of the child that is this gateway or is
    /// above it.
    ways: BTreeMap<DeviceId, usize>,
}

/// A child of an aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The child's id on the link.
    pub id: DeviceId,
    /// The child's name.
    pub name: String,
    /// Whether the child is a gateway. Otherwise it is a source.
    pub is_gateway: bool,
    /// The position of the child, if it is a source.
    pub position: Option<u32>,
    /// The number of sources below the child; 1 if the child is a source.
    pub sources: u32,
}

impl AggregationTree {
    /// Creates a tree of the querier [`QUERIER`] from pairs of a gateway and its parent (the querier
    /// or a gateway), and pairs of a device and its gateway. The position of a source is the position
    /// of its device in the roster.
    ///
    /// # Errors
    /// [`TreeError`]: the first mistake.
    pub fn new<'a>(
        roster: &Roster,
        gateways: impl IntoIterator<Item = (&'a str, &'a str)>,
        devices: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, TreeError> {
        Self::of_querier(QUERIER, roster, gateways, devices)
    }

    /// Like [`new`](Self::new), for the querier with this name.
    ///
    /// # Errors
    /// [`TreeError`]: the first mistake.
    pub fn of_querier<'a>(
        querier: &str,
        roster: &Roster,
        gateways: impl IntoIterator<Item = (&'a str, &'a str)>,
        devices: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, TreeError> {
        if !is_node_name(querier) {
            return Err(TreeError::InvalidQuerierName(querier.to_owned()));
        }
        let gateways = linked(querier, gateways)?;
        if gateways.iter().all(|gateway| gateway.parent.is_some()) {
            return Err(TreeError::NoRoot(querier.to_owned()));
        }
        let sources = attached(roster, &gateways, devices)?;
        let positions = sources.iter().map(|source| source.id).zip(0..).collect();
        let by_id = ids(&gateways, &sources, &positions)?;
        let querier = querier.to_owned();
        let mut tree = Self { querier, gateways, by_id, sources, positions, height: 0 };
        tree.measure()?;
        Ok(tree)
    }

    /// Computes every gateway's height.
    fn measure(&mut self) -> Result<(), TreeError> {
        for at in 0..self.gateways.len() {
            if self.way_up(at).nth(MAX_HEIGHT as usize).is_some() {
                let is_cycle =
                    self.way_up(at).take(self.gateways.len() + 1).count() > self.gateways.len();
                let name = self.gateways[at].name.clone();
                return Err(if is_cycle {
                    TreeError::Cycle(name)
                } else {
                    TreeError::TooHigh(name)
                });
            }
        }
        let mut heights = vec![0; self.gateways.len()];
        for source in &self.sources {
            for (above, height) in self.way_up(source.gateway).zip(1..) {
                heights[above] = height.max(heights[above]);
            }
        }
        for (gateway, height) in self.gateways.iter_mut().zip(heights) {
            if height == 0 {
                return Err(TreeError::NoSources(gateway.name.clone()));
            }
            gateway.height = height;
            self.height = self.height.max(height + 1);
        }
        Ok(())
    }

    /// Iterates over the gateways from `from` up to the querier. Never ends if a gateway is its own
    /// ancestor.
    fn way_up(&self, from: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(from), |at| self.gateways[*at].parent)
    }

    /// Returns the name of the querier.
    #[must_use]
    pub fn querier_name(&self) -> &str {
        &self.querier
    }

    /// Returns the number of sources.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub const fn sources(&self) -> u32 {
        // A roster's devices are fewer than 2^32.
        self.sources.len() as u32
    }

    /// Returns the largest number of edges from the querier down to a source: at least 2.
    #[must_use]
    pub const fn height(&self) -> u32 {
        self.height
    }

    /// Returns the gateways' names, sorted.
    pub fn gateways(&self) -> impl ExactSizeIterator<Item = &str> {
        self.gateways.iter().map(|gateway| gateway.name.as_str())
    }

    /// Returns the name of a gateway's parent.
    #[must_use]
    pub fn parent(&self, gateway: &str) -> Option<&str> {
        let parent = self.gateways[self.place(gateway)?].parent;
        Some(parent.map_or(&self.querier, |parent| self.gateways[parent].name.as_str()))
    }

    /// Returns the name of a source's parent.
    #[must_use]
    pub fn gateway_of(&self, position: u32) -> Option<&str> {
        self.sources
            .get(position as usize)
            .map(|source| self.gateways[source.gateway].name.as_str())
    }

    /// Returns the name of a gateway or device.
    #[must_use]
    pub fn name(&self, node: DeviceId) -> Option<&str> {
        if let Some(at) = self.by_id.get(&node) {
            return Some(&self.gateways[*at].name);
        }
        self.position(node).map(|position| self.sources[position as usize].name.as_str())
    }

    /// Returns the position of a device.
    #[must_use]
    pub fn position(&self, device: DeviceId) -> Option<u32> {
        self.positions.get(&device).copied()
    }

    fn place(&self, gateway: &str) -> Option<usize> {
        self.gateways.binary_search_by(|found| found.name.as_str().cmp(gateway)).ok()
    }

    /// Returns the gateway called `name`, or the querier if it has this name, in its role as the
    /// aggregator of its children.
    #[must_use]
    pub fn aggregator(&self, name: &str) -> Option<Aggregator> {
        if name == self.querier {
            Some(self.querier())
        } else {
            self.place(name).map(|at| self.aggregator_at(Some(at)))
        }
    }

    /// Returns the querier in its role as the aggregator of its child gateways.
    #[must_use]
    pub fn querier(&self) -> Aggregator {
        self.aggregator_at(None)
    }

    fn aggregator_at(&self, at: Option<usize>) -> Aggregator {
        // Returns the aggregator's child on the path to a gateway.
        let child_above =
            |from: usize| self.way_up(from).find(|place| self.gateways[*place].parent == at);
        let mut children = Vec::new();
        for gateway in self.gateways.iter().filter(|gateway| gateway.parent == at) {
            children.push(Child {
                id: gateway.id,
                name: gateway.name.clone(),
                is_gateway: true,
                position: None,
                sources: 0,
            });
        }
        for source in self.sources.iter().filter(|source| Some(source.gateway) == at) {
            children.push(Child {
                id: source.id,
                name: source.name.clone(),
                is_gateway: false,
                position: self.position(source.id),
                sources: 0,
            });
        }
        children.sort_unstable_by_key(|child| child.id);
        let child = |id: DeviceId| children.binary_search_by_key(&id, |child| child.id).ok();
        let ways: Vec<Option<usize>> = (0..self.gateways.len())
            .map(|from| child(self.gateways[child_above(from)?].id))
            .collect();
        let owners = self.sources.iter().map(|source| {
            let owner =
                if Some(source.gateway) == at { child(source.id) } else { ways[source.gateway] };
            owner.and_then(|owner| u32::try_from(owner).ok()).unwrap_or(NOBODY)
        });
        let owners: Vec<u32> = owners.collect();
        for owner in owners.iter().filter(|owner| **owner != NOBODY) {
            children[*owner as usize].sources += 1;
        }
        let ways = self
            .gateways
            .iter()
            .zip(ways)
            .filter_map(|(gateway, way)| Some((gateway.id, way?)))
            .collect();
        let aggregator = at.map(|at| &self.gateways[at]);
        Aggregator {
            name: aggregator.map_or(&self.querier, |aggregator| &aggregator.name).clone(),
            id: aggregator.map(|aggregator| aggregator.id),
            height: aggregator.map_or(self.height, |aggregator| aggregator.height),
            children,
            owners,
            ways,
        }
    }
}

/// Returns the gateways with their parents, sorted by name.
fn linked<'a>(
    querier: &str,
    gateways: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<Gateway>, TreeError> {
    let mut parents = BTreeMap::new();
    for (name, parent) in gateways {
        check_name(name, querier)?;
        if parents.insert(name, parent).is_some() {
            return Err(TreeError::DuplicateGateway(name.to_owned()));
        }
    }
    let places: BTreeMap<&str, usize> = parents.keys().copied().zip(0..).collect();
    let linked = parents.iter().map(|(name, parent)| {
        let unknown = || TreeError::UnknownParent {
            gateway: (*name).to_owned(),
            parent: (*parent).to_owned(),
        };
        let place =
            if *parent == querier { None } else { Some(*places.get(parent).ok_or_else(unknown)?) };
        Ok(Gateway { id: gateway_id(name), name: (*name).to_owned(), parent: place, height: 0 })
    });
    linked.collect()
}

/// Returns the roster's devices with their gateways, sorted by position.
fn attached<'a>(
    roster: &Roster,
    gateways: &[Gateway],
    devices: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<Source>, TreeError> {
    let named: BTreeMap<&str, DeviceId> =
        roster.devices().map(|device| (device.name.as_str(), device.id)).collect();
    let mut places = BTreeMap::new();
    for (name, gateway) in devices {
        let id = *named.get(name).ok_or_else(|| TreeError::UnknownDevice(name.to_owned()))?;
        let place = gateways.binary_search_by(|found| found.name.as_str().cmp(gateway));
        let unknown =
            |_| TreeError::UnknownGateway { device: name.to_owned(), gateway: gateway.to_owned() };
        if places.insert(id, place.map_err(unknown)?).is_some() {
            return Err(TreeError::DuplicateDevice(name.to_owned()));
        }
    }
    let (mut sources, mut missing) = (Vec::with_capacity(places.len()), Vec::new());
    for device in roster.sources() {
        match places.get(&device.id) {
            Some(gateway) => {
                sources.push(Source {
                    id: device.id,
                    name: device.name.clone(),
                    gateway: *gateway,
                });
            }
            None => missing.push(device.name.clone()),
        }
    }
    missing.sort_unstable();
    if missing.is_empty() { Ok(sources) } else { Err(TreeError::DevicesMissing(missing)) }
}

/// Returns an index of the gateways by id, after checking that all ids are different.
fn ids(
    gateways: &[Gateway],
    sources: &[Source],
    positions: &BTreeMap<DeviceId, u32>,
) -> Result<BTreeMap<DeviceId, usize>, TreeError> {
    let mut by_id = BTreeMap::new();
    for (at, gateway) in gateways.iter().enumerate() {
        let source = positions.get(&gateway.id).map(|at| &sources[*at as usize].name);
        let other = by_id.insert(gateway.id, at).map(|other: usize| &gateways[other].name);
        if let Some(other) = source.or(other) {
            return Err(TreeError::IdTaken { gateway: gateway.name.clone(), other: other.clone() });
        }
    }
    Ok(by_id)
}

impl Aggregator {
    /// Returns the aggregator's name, or the querier's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id under which the aggregator is a child of its parent; `None` for the querier.
    #[must_use]
    pub const fn id(&self) -> Option<DeviceId> {
        self.id
    }

    /// Returns the largest number of edges from the aggregator down to a source: at least 1.
    #[must_use]
    pub const fn height(&self) -> u32 {
        self.height
    }

    /// Returns the children, sorted by id.
    #[must_use]
    pub fn children(&self) -> &[Child] {
        &self.children
    }

    /// Returns the position of a child in [`children`](Self::children).
    #[must_use]
    pub fn child(&self, id: DeviceId) -> Option<usize> {
        self.children.binary_search_by_key(&id, |child| child.id).ok()
    }

    /// Returns the number of sources in the group.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub const fn group_sources(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Returns the index of the child that is this source or is above it.
    #[must_use]
    pub fn owner(&self, position: u32) -> Option<usize> {
        self.owners
            .get(position as usize)
            .filter(|owner| **owner != NOBODY)
            .map(|owner| *owner as usize)
    }

    /// Returns whether each source at these positions is the child or is below the child.
    #[must_use]
    pub fn are_beneath(&self, positions: Range<u32>, child: usize) -> bool {
        let owners = self.owners.get(positions.start as usize..positions.end as usize);
        owners.is_some_and(|owners| owners.iter().all(|owner| *owner as usize == child))
    }

    /// Returns whether each source at these positions is the child or is below it, or may be below
    /// it in a later version of the roster: a source that this version does not have can be below
    /// any gateway.
    #[must_use]
    pub fn can_be_beneath(&self, positions: Range<u32>, child: usize) -> bool {
        let known = positions.start..positions.end.min(self.group_sources());
        let is_gateway = self.children.get(child).is_some_and(|child| child.is_gateway);
        (known.is_empty() || self.are_beneath(known, child))
            && (is_gateway || positions.end <= self.group_sources())
    }

    /// Returns the index of the child that is this gateway or is above it: the next hop of a
    /// question to the gateway. `None` if the gateway is not below this aggregator.
    #[must_use]
    pub fn next_hop(&self, gateway: DeviceId) -> Option<usize> {
        self.ways.get(&gateway).copied()
    }
}
