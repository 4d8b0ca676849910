//! The steps that uploads of bundles and of manifests share: verification on threads that may
//! block, storage, and acknowledgement.

use std::sync::Arc;
use std::time::Instant;

use axum::response::Json;
use moteseal_api::ProblemType;
use moteseal_store::{PutError, Reply};
use tokio::sync::oneshot;
use tracing::warn;

use crate::refusal::Refusal;
use crate::state::Shared;

/// Uploads of up to this many bytes are verified on the thread that received them, because passing
/// them to another thread would cost more time than it saves.
pub(crate) const INLINE: usize = 64 << 10;

/// Converts the result of an upload to its response, and counts rejected uploads.
pub(crate) fn acknowledge<T>(
    shared: &Shared,
    result: Result<T, Refusal>,
) -> Result<Json<T>, Refusal> {
    if let Err(refusal) = &result {
        shared.metrics.refused_upload(refusal.problem().name());
    }
    result.map(Json)
}

/// Runs `work` on a thread that may block. At most one such thread per core runs at a time. If the
/// client closes the connection, `work` still runs to its end, and its memory counts against the
/// limits until then.
pub(crate) async fn on_verifier<T: Send + 'static>(
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let core = Arc::clone(&shared.verifiers).acquire_owned().await;
    let shared = Arc::clone(shared);
    let verified = tokio::task::spawn_blocking(move || {
        let _core = core;
        work(&shared)
    });
    let failed = |_| {
        Refusal::new(
            ProblemType::STORE_FAILED,
            "verification failed unexpectedly; send the upload again",
        )
    };
    verified.await.map_err(failed)?
}

/// Calls `submit`, which passes an upload to the store, and waits until the upload is durable.
pub(crate) async fn stored(
    shared: &Shared,
    submit: impl FnOnce(Reply) -> Result<(), PutError>,
) -> Result<moteseal_store::Receipt, Refusal> {
    let (reply, stored) = oneshot::channel();
    let start = Instant::now();
    shared.metrics.store_queue.increment(1);
    let submitted = submit(Box::new(move |result| {
        let _ = reply.send(result);
    }));
    let result = match submitted {
        Ok(()) => stored.await.unwrap_or(Err(PutError::Closed)),
        Err(error) => Err(error),
    };
    shared.metrics.store_queue.decrement(1);
    shared.metrics.store_seconds.record(start.elapsed());
    result.map_err(|error| {
        match error {
            PutError::Busy | PutError::Closed => {}
            _ => warn!(name = error.name(), %error, "the store failed"),
        }
        let of = match error {
            PutError::Busy | PutError::Closed => ProblemType::UNAVAILABLE,
            PutError::DiskFull { .. } => ProblemType::STORE_FULL,
            _ => ProblemType::STORE_FAILED,
        };
        Refusal::new(of, error.to_string())
    })
}
