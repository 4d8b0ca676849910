//! Hash chaining: Gennaro and Rohatgi, "How to sign digital streams" (Information and Computation 165, 2001), as Li et al. compare
//! with it. One signature stands at the head, and every message vouches for the next.
//!
//! A chain cannot do without a link: to prove event `k`, all before it must be there. So a sample costs as much as everything.

mod offline;
mod one_time;
mod online;

pub use offline::OfflineChain;
pub use one_time::{OneTimeKey, SIGNATURE_BYTES};
pub use online::OnlineChain;

use crate::scheme::{Ask, OpenError};

/// How many events from the start have to travel for what is asked.
fn prefix(events: usize, ask: &Ask<'_>) -> usize {
    match ask {
        Ask::Events(chosen) => chosen
            .last()
            .map_or(0, |&last| usize::try_from(last).map_or(events, |last| last + 1))
            .min(events),
        Ask::All | Ask::Rate(_) => events,
    }
}

/// Whether a prefix of `events` events, which is the whole chain or not, can answer what is asked.
fn suffices(events: usize, whole: bool, ask: &Ask<'_>) -> Result<(), OpenError> {
    let enough = match ask {
        Ask::Events(chosen) => chosen.last().is_some_and(|&last| last < events as u64),
        Ask::All | Ask::Rate(_) => whole,
    };
    if enough { Ok(()) } else { Err(OpenError::NotAsAsked) }
}
