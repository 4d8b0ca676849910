//! The health of nodes, watched live: what `moteseal health watch` shows.
//!
//! [`Watch`] observes a gateway's nodes, or one node, over CoAP, and [`Table`] computes rates, names what
//! is lost and what is stale, and checks [`Rule`]s. Health is not signed: it is as trustworthy as the
//! gateway and the connection to it. For a history that can be proven, seal it.

mod alert;
mod table;
mod watch;

pub use alert::{Alert, Rule, RuleError};
pub use table::{Row, Table};
pub use watch::{Update, Watch, Watched};
