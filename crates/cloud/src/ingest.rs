//! The steps that uploads of bundles and of manifests share: verification on threads that may
//! block, storage, and acknowledgement.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Json;
use metrics::Gauge;
use moteseal_api::{POSITION, ProblemType};
use moteseal_service::{Held, Peer};
use moteseal_store::{PutError, Receipt, Reply};
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tracing::warn;

use crate::conflicts;
use crate::metrics::Uploaded;
use crate::refusal::Refusal;
use crate::state::{Finding, Shared};
use crate::summary::Mark;
use crate::turns::Turn;

/// The maximum size of an upload, in bytes, that is verified on the thread that received it. Passing
/// a small upload to another thread would cost more time than it saves. The upload must also have
/// few signatures, because a signature takes longer to verify than several KiB take to hash.
pub(crate) const INLINE: usize = 64 << 10;

/// The response to an upload that is durable, and its position if it is in a queue.
pub(crate) type Acknowledged<T> = (T, Option<u64>);

/// The memory of an upload that is being verified and stored: of its body, and of the copies.
pub(crate) type Room = (Option<Held>, Option<Held>);

/// Converts the result of an upload to its response, and counts rejected uploads.
pub(crate) fn acknowledge<T>(
    shared: &Shared,
    result: Result<Acknowledged<T>, Refusal>,
) -> Result<(HeaderMap, Json<T>), Refusal> {
    if let Err(refusal) = &result {
        shared.metrics.refused_upload(refusal.problem().name());
    }
    result.map(|(receipt, position)| {
        let position =
            position.map(|at| (HeaderName::from_static(POSITION), HeaderValue::from(at)));
        (position.into_iter().collect(), Json(receipt))
    })
}

/// Runs `work` on a thread that may block. The number of these threads is limited, in total and per
/// address. `work` calls [`Turn::pause`] between its signatures, so that its address uses only its
/// share of the processors. If the client closes the connection, `work` still runs to its end, and
/// its memory counts against the limits until then.
pub(crate) async fn on_verifier<T: Send + 'static>(
    shared: &Arc<Shared>,
    peer: Peer,
    work: impl FnOnce(&Shared, &Turn) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let thread = shared.verifiers.wait(peer, 1).await;
    let shared = Arc::clone(shared);
    let verified = tokio::task::spawn_blocking(move || {
        let _thread = thread;
        let turn = shared.turns.start(peer);
        work(&shared, &turn)
    });
    verified.await.map_err(failed)?
}

/// Returns the response to an upload whose task panicked or was stopped.
fn failed(_: JoinError) -> Refusal {
    let what = "verification failed unexpectedly; send the upload again";
    Refusal::new(ProblemType::STORE_FAILED, what)
}

/// Calls `submit`, which passes an upload to the store, and waits until the upload is durable. `mark`
/// records what the upload adds to the store, and `uploaded` counts it. The receipt has only conflicts that
/// signatures prove; they are counted and logged. All this is done also if the client closes the connection.
pub(crate) async fn stored(
    shared: &Arc<Shared>,
    peer: Peer,
    uploaded: &Uploaded,
    mut mark: Mark,
    submit: impl FnOnce(Reply) -> Result<(), PutError>,
) -> Result<Receipt, Refusal> {
    let (reply, stored) = oneshot::channel();
    let start = Instant::now();
    let waiting = Waiting::new(&shared.metrics.store_queue);
    let uploaded = uploaded.clone();
    let submitted = submit(Box::new(move |result| {
        // The upload is recorded before it is acknowledged.
        mark.replied(&result);
        if let Ok(receipt) = &result {
            uploaded.add(receipt);
        }
        drop((mark, waiting));
        let _ = reply.send(result);
    }));
    let task = Arc::clone(shared);
    let stored = tokio::spawn(async move {
        let result = match submitted {
            Ok(()) => stored.await.unwrap_or(Err(PutError::Closed)),
            Err(error) => Err(error),
        };
        task.metrics.store_seconds.record(start.elapsed());
        let receipt = result.map_err(|error| {
            let refusal = refusal(&error);
            if refusal.problem().status != 503 && task.findings_log.allows(Finding::Failure) {
                warn!(name = error.name(), %error, "the store failed");
            }
            refusal
        })?;
        if receipt.has_conflicts() {
            let confirm = |shared: &Shared, turn: &Turn| Ok(confirmed(shared, turn, receipt));
            return on_verifier(&task, peer, confirm).await;
        }
        Ok(receipt)
    });
    stored.await.map_err(failed)?
}

/// Returns a receipt with the conflicts that signatures prove, and counts and logs them.
fn confirmed(shared: &Shared, turn: &Turn, mut receipt: Receipt) -> Receipt {
    let roster = shared.roster();
    let unproven = conflicts::confirm(&*shared.store, &roster, &mut receipt, &mut || turn.pause());
    conflicts::log(&shared.findings_log, &receipt, &unproven);
    let of_devices = receipt.equivocations.len() + receipt.doubled_events.len();
    shared.metrics.conflicts.increment(of_devices as u64);
    shared.metrics.manifests_doubled.increment(receipt.doubled.len() as u64);
    receipt
}

/// Counts an upload that waits for the store until it is dropped. The upload waits also after its client has gone.
struct Waiting(Gauge);

impl Waiting {
    fn new(gauge: &Gauge) -> Self {
        gauge.increment(1);
        Self(gauge.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// Returns the response to an upload that the store rejected.
fn refusal(error: &PutError) -> Refusal {
    let problem = match error {
        PutError::Busy | PutError::Closed | PutError::Unavailable { .. } => {
            ProblemType::UNAVAILABLE
        }
        PutError::DiskFull { .. } => ProblemType::STORE_FULL,
        _ => ProblemType::STORE_FAILED,
    };
    Refusal::new(problem, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_retries_if_the_store_is_busy_and_not_if_it_failed() {
        for (error, status) in [
            (PutError::Busy, 503),
            (PutError::Closed, 503),
            (
                PutError::Unavailable { store: "a table".to_owned(), what: "a timeout".to_owned() },
                503,
            ),
            (PutError::DiskFull { store: "epochs".to_owned() }, 507),
            (PutError::Failed { store: "epochs".to_owned(), what: "an error".to_owned() }, 500),
        ] {
            assert_eq!(refusal(&error).problem().status, status, "{error}");
        }
    }
}
