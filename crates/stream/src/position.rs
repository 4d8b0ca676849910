//! How far the workers are. A client that knows the position of its upload can wait until it is
//! readable.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::Stream;
use crate::error::StreamError;

/// The interval at which a waiting reader asks the servers.
const INTERVAL: Duration = Duration::from_millis(20);

impl Stream {
    /// Returns the position up to which the workers have stored every message, or have written it to the
    /// dead letters.
    pub(crate) async fn stored_position(&self) -> Result<u64, StreamError> {
        let info = self.consumer_info().await?;
        let of = |name: &str| info[name]["stream_seq"].as_u64().unwrap_or(0);
        // Without messages in progress, everything that was delivered is acknowledged. The floor may be
        // lower, because it counts only acknowledged messages.
        Ok(match info["num_ack_pending"].as_u64() {
            Some(0) => of("delivered").max(of("ack_floor")),
            _ => of("ack_floor"),
        })
    }
}

/// Tells readers when the workers have stored a position. All readers of a process share its requests.
#[derive(Clone, Debug)]
pub struct Reached {
    stream: Stream,
    /// The last known position, and when it was asked for.
    known: Arc<Mutex<(u64, Option<Instant>)>>,
}

impl Reached {
    /// Returns the positions of a stream.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self { stream, known: Arc::default() }
    }

    /// Waits until the workers have stored everything up to a position. Returns whether it is known within this
    /// time that they have.
    ///
    /// # Errors
    /// [`StreamError`] if the servers answer with an error.
    pub async fn wait(&self, position: u64, time: Duration) -> Result<bool, StreamError> {
        let until = Instant::now() + time;
        loop {
            // Another reader's request may take long.
            let Ok(stored) = timeout_at(until, self.position(position)).await else {
                return Ok(false);
            };
            if stored? >= position {
                return Ok(true);
            }
            if Instant::now() + INTERVAL > until {
                return Ok(false);
            }
            sleep(INTERVAL).await;
        }
    }

    /// Returns a position that the workers have stored. It is asked for only if the known one is below
    /// `wanted` and is older than the interval.
    async fn position(&self, wanted: u64) -> Result<u64, StreamError> {
        let mut known = self.known.lock().await;
        let is_fresh = known.1.is_some_and(|at| at.elapsed() < INTERVAL);
        if known.0 < wanted && !is_fresh {
            let stored = self.stream.stored_position().await?;
            *known = (known.0.max(stored), Some(Instant::now()));
        }
        Ok(known.0)
    }
}
