//! A cloud whose uploads go through a queue to workers (docs/scale.md). A client that knows the position
//! of its upload can ask that a read waits until the workers have stored it: read your writes, within a
//! bound.

use std::fmt;
use std::time::Duration;

use axum::http::HeaderMap;
use futures_util::future::BoxFuture;
use moteseal_api::{AFTER, ProblemType};
use moteseal_service::Peer;

use crate::refusal::Refusal;
use crate::rights::Scope;
use crate::state::Shared;

/// How long a read waits for a position.
const TIME: Duration = Duration::from_secs(5);

/// Waits until everything up to a position is stored, at most for this time, and returns whether it is.
pub type Reached =
    Box<dyn Fn(u64, Duration) -> BoxFuture<'static, Result<bool, String>> + Send + Sync>;

/// Appends metrics in Prometheus' text format.
pub type MoreMetrics = Box<dyn Fn(&mut String) + Send + Sync>;

/// The queue of a cloud.
#[derive(Default)]
pub struct Queue {
    /// Waits for positions; `None` if this cloud serves no reads.
    pub reached: Option<Reached>,
    /// Whether the cloud accepts uploads.
    pub accepts: bool,
    /// The metrics of a worker in the same process.
    pub metrics: Option<MoreMetrics>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("accepts", &self.accepts).finish_non_exhaustive()
    }
}

/// Rejects a request that a cloud with a queue does not handle. Waits for the position that a read names,
/// if it names one. `scope` is `None` for pages that reveal no data.
pub(crate) async fn admit(
    shared: &Shared,
    peer: Peer,
    (scope, lists_seals, headers): (Option<Scope>, bool, &HeaderMap),
) -> Result<(), Refusal> {
    let queue = shared.queue.get();
    match scope {
        None => return Ok(()),
        Some(Scope::Write) if queue.is_some_and(|queue| !queue.accepts) => {
            return Err(Refusal::not_found(
                "this cloud accepts no uploads; send them to a cloud with the role intake",
            ));
        }
        Some(Scope::Write) => return Ok(()),
        // A client lists the seals of a device before it uploads.
        Some(Scope::Read) if !lists_seals && queue.is_some_and(|queue| queue.reached.is_none()) => {
            return Err(Refusal::not_found(
                "this cloud only accepts uploads; read from a cloud with the role serve",
            ));
        }
        Some(Scope::Read) => {}
    }
    let Some(position) = headers.get(AFTER) else { return Ok(()) };
    let position = position.to_str().ok().and_then(|text| text.parse().ok());
    let position: u64 = position.ok_or_else(|| {
        Refusal::bad_query(format!("{AFTER} must be a position that a receipt stated"))
    })?;
    let Some(reached) = queue.and_then(|queue| queue.reached.as_ref()) else {
        return Err(Refusal::bad_query(format!(
            "this cloud has no queue, so leave out {AFTER}: what it acknowledged is readable"
        )));
    };
    let _place = shared.waiters.take(peer, 1).ok_or_else(|| {
        Refusal::new(
            ProblemType::TOO_MANY_REQUESTS,
            format!("too many clients wait; ask without {AFTER}, or try again later"),
        )
    })?;
    match reached(position, TIME).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::busy(format!(
            "the workers have not stored position {position} within {} s; try again later",
            TIME.as_secs()
        ))),
        Err(error) => Err(Refusal::busy(error)),
    }
}
