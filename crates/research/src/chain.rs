//! Hash chaining: Gennaro and Rohatgi, "How to sign digital streams" (Information and Computation
//! 165, 2001), as Li et al. compare with it. One signature is at the head, and every message
//! authenticates the next.
//!
//! To prove event `k`, a chain needs every event before it. A sample therefore costs as much as the
//! whole epoch.

mod offline;
mod one_time;
mod online;

pub use offline::OfflineChain;
pub use one_time::{OneTimeKey, SIGNATURE_BYTES};
pub use online::OnlineChain;

use crate::scheme::{Ask, OpenError};

/// Returns the number of events from the start that must be served for a query.
fn prefix(events: usize, ask: &Ask<'_>) -> usize {
    match ask {
        Ask::Events(chosen) => chosen
            .last()
            .map_or(0, |&last| usize::try_from(last).map_or(events, |last| last + 1))
            .min(events),
        Ask::All | Ask::Rate(_) => events,
    }
}

/// Whether a prefix of `events` events, complete or not, can answer the query.
fn suffices(events: usize, whole: bool, ask: &Ask<'_>) -> Result<(), OpenError> {
    let enough = match ask {
        Ask::Events(chosen) => chosen.last().is_some_and(|&last| last < events as u64),
        Ask::All | Ask::Rate(_) => whole,
    };
    if enough { Ok(()) } else { Err(OpenError::NotAsAsked) }
}
