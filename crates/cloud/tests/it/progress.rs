//! Time as far as a thread could use it. Attackers are paced by it: if other programs have the processor of the
//! thread that serves, the same number of requests a second would occupy a larger part of the rest.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time without that in which a thread was ready and had no processor.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    start: Instant,
    /// How long the thread had waited for a processor at the start.
    waited: Duration,
    schedstat: PathBuf,
}

impl Progress {
    /// Starts the clock of the thread that calls this.
    pub(crate) fn of_this_thread() -> Self {
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let schedstat = Path::new("/proc").join(thread).join("schedstat");
        Self { start: Instant::now(), waited: waited(&schedstat), schedstat }
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Duration {
        let waited = waited(&self.schedstat).saturating_sub(self.waited);
        self.start.elapsed().saturating_sub(waited)
    }

    /// Waits until this much time has passed.
    pub(crate) async fn sleep(&self, time: Duration) {
        let until = self.now() + time;
        loop {
            let left = until.saturating_sub(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

/// Returns how long a thread has been ready without a processor.
fn waited(schedstat: &Path) -> Duration {
    // The thread may have ended.
    let text = std::fs::read_to_string(schedstat).unwrap_or_default();
    let nanoseconds = text.split_whitespace().nth(1).and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
