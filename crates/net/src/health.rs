//! The health of a node as resources of CoAP that clients observe (spec/health.md, section 4): `/h` and
//! a resource for each group below it; at a gateway also the newest record of each node.
//!
//! A [`NodeHealth`] samples the node's health, decides when to report it, and notifies the observers.
//! [`Nodes`] holds what the nodes below a gateway reported. Both answer requests without I/O.

mod conf;
mod exposition;
mod node;
mod nodes;
mod representation;
mod webhook;

pub use conf::{ConfError, decode_policy, encode_policy};
pub use node::{NodeHealth, NodeService, Report, WATCHED};
pub use nodes::{Heard, Listed, NodeList, NodeReport, Nodes, NotTaken, is_silent};
pub use representation::{content, json};
pub use webhook::{Webhook, WebhookError};

use crate::coap::Owner;

/// The path of the list of resources (RFC 6690).
pub const CORE: &str = "/.well-known/core";
/// The path of a node's health.
pub const HEALTH: &str = "/h";
/// The path of the policy by which a node reports.
pub const CONF: &str = "/h/conf";
/// The path of the newest records of all nodes below a gateway.
pub const NODES: &str = "/h/nodes";
/// The path of the records that arrived last.
pub const RECENT: &str = "/h/recent";
/// The path of the neighbours of a gateway.
pub const NEIGHBOURS: &str = "/h/nbr";
/// The start of the path of one node's newest record. Its name follows.
pub const NODE: &str = "/h/node/";

/// Returns whether a client may change how a node reports: it has a DTLS session, or it is on the same
/// machine.
#[must_use]
pub fn may_configure(owner: Owner) -> bool {
    match owner {
        Owner::Device(_) => true,
        Owner::Peer(peer) => peer.is_secure() || peer.is_local(),
    }
}
