//! How many messages no worker has stored yet, and how many dead letters there are, as the servers know it. All workers
//! see the same numbers, also those of uploads and letters from before they were started.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::connection::Stream;
use crate::error::StreamError;

/// The interval at which the servers are asked.
const INTERVAL: Duration = Duration::from_secs(5);
/// The value of a number that is not known.
const UNKNOWN: u64 = u64::MAX;

/// What the stream holds, unless it is unknown.
#[derive(Debug)]
pub(crate) struct Backlog {
    waiting: AtomicU64,
    dead: AtomicU64,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { waiting: AtomicU64::new(UNKNOWN), dead: AtomicU64::new(UNKNOWN) }
    }
}

impl Backlog {
    /// Returns the number of messages that no worker has stored yet.
    pub(crate) fn waiting(&self) -> Option<u64> {
        known(&self.waiting)
    }

    /// Returns the number of dead letters.
    pub(crate) fn dead(&self) -> Option<u64> {
        known(&self.dead)
    }

    /// Asks the servers again and again.
    pub(crate) async fn watch(&self, stream: &Stream) {
        loop {
            let (waiting, dead) =
                tokio::join!(stream.waiting(), stream.extent(&stream.names().dead));
            let dead = dead.map(|letters| letters.messages);
            self.waiting.store(waiting.unwrap_or(UNKNOWN), Ordering::Relaxed);
            self.dead.store(dead.unwrap_or(UNKNOWN), Ordering::Relaxed);
            sleep(INTERVAL).await;
        }
    }
}

fn known(number: &AtomicU64) -> Option<u64> {
    Some(number.load(Ordering::Relaxed)).filter(|number| *number != UNKNOWN)
}

impl Stream {
    /// Returns the number of messages that no worker has stored yet: those that were not delivered, and those whose
    /// acknowledgement has not arrived.
    async fn waiting(&self) -> Result<u64, StreamError> {
        let info = self.consumer_info().await?;
        let of = |name: &str| {
            let what = || StreamError::StreamFailed { what: format!("no {name} of the consumer") };
            info[name].as_u64().ok_or_else(what)
        };
        Ok(of("num_pending")?.saturating_add(of("num_ack_pending")?))
    }
}
