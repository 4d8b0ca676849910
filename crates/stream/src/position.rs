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

/// How far the workers are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// When the consumer was created. If the stream is created again, so is its consumer, and positions
    /// start at 1 again.
    created: String,
    /// The last position that was delivered to a worker.
    delivered: u64,
    /// The position up to which the workers have stored every message, or have written it to the dead
    /// letters.
    pub(crate) stored: u64,
}

impl Progress {
    /// Returns whether what was stored at an earlier time is still stored. Otherwise the stream is another one,
    /// or an older copy.
    fn continues(&self, before: &Self) -> bool {
        self.created == before.created && self.delivered >= before.delivered
    }
}

impl Stream {
    /// Returns how far the workers are.
    pub(crate) async fn progress(&self) -> Result<Progress, StreamError> {
        let info = self.consumer_info().await?;
        let of = |name: &str| info[name]["stream_seq"].as_u64().unwrap_or(0);
        // Without messages in progress, everything that was delivered is acknowledged. The floor may be
        // lower, because it counts only acknowledged messages.
        let stored = match info["num_ack_pending"].as_u64() {
            Some(0) => of("delivered").max(of("ack_floor")),
            _ => of("ack_floor"),
        };
        let created = info["created"].as_str().unwrap_or_default().to_owned();
        Ok(Progress { created, delivered: of("delivered"), stored })
    }
}

/// Tells readers when the workers have stored a position. All readers of a process share its requests.
#[derive(Clone, Debug)]
pub struct Reached {
    stream: Stream,
    /// The last answer of the servers, and when they were asked for it.
    known: Arc<Mutex<(Progress, Option<Instant>)>>,
}

impl Reached {
    /// Returns the positions of a stream.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self { stream, known: Arc::default() }
    }

    /// Waits until the workers have stored everything up to a position. Returns whether it is known within this
    /// time that they have. Positions are those of the stream that exists during the call, also if it was
    /// deleted and created again before.
    ///
    /// # Errors
    /// [`StreamError`] if the servers answer with an error.
    pub async fn wait(&self, position: u64, time: Duration) -> Result<bool, StreamError> {
        let start = Instant::now();
        let until = start + time;
        loop {
            // Another reader's request may take long.
            let Ok(stored) = timeout_at(until, self.position(position, start)).await else {
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

    /// Returns a position that the workers have stored. An answer that is not older than the interval is
    /// enough to keep a reader waiting. One that lets it go on must be from after `start`: before, the
    /// stream may have been another one.
    async fn position(&self, wanted: u64, start: Instant) -> Result<u64, StreamError> {
        let mut known = self.known.lock().await;
        let is_stored = known.0.stored >= wanted;
        let is_usable = known.1.is_some_and(|asked| {
            if is_stored { asked >= start } else { asked.elapsed() < INTERVAL }
        });
        if !is_usable {
            let asked = Instant::now();
            let mut progress = self.stream.progress().await?;
            if progress.continues(&known.0) {
                progress.stored = progress.stored.max(known.0.stored);
            }
            *known = (progress, Some(asked));
        }
        Ok(known.0.stored)
    }
}
