//! Hash chaining, with which Li et al. compare their schemes: Gennaro and Rohatgi, "How to sign
//! digital streams" (Information and Computation 165, 2001). One signature at the start
//! authenticates the first message, and every message authenticates the next.
//!
//! To prove event `k`, a cloud must send every event before it. A sample therefore costs nearly as
//! much as the complete epoch.

mod offline;
mod one_time;
mod online;

pub use offline::OfflineChain;
pub use one_time::{OneTimeKey, SIGNATURE_BYTES};
pub use online::OnlineChain;

use crate::scheme::{Ask, OpenError};

/// Returns the number of events that must be served for a query, counted from the first event.
fn prefix(events: usize, ask: &Ask<'_>) -> usize {
    match ask {
        Ask::Events(chosen) => chosen
            .last()
            .map_or(0, |&last| usize::try_from(last).map_or(events, |last| last + 1))
            .min(events),
        Ask::All | Ask::Rate(_) => events,
    }
}

/// Checks that a prefix of `events` events can answer the query. `whole` states whether the prefix
/// is the complete epoch.
fn suffices(events: usize, whole: bool, ask: &Ask<'_>) -> Result<(), OpenError> {
    let enough = match ask {
        Ask::Events(chosen) => chosen.last().is_some_and(|&last| last < events as u64),
        Ask::All | Ask::Rate(_) => whole,
    };
    if enough { Ok(()) } else { Err(OpenError::NotAsAsked) }
}
