//! When frames that the coordinator has not acknowledged are sent again: after a second, then after
//! twice as long each time, up to half a minute.

/// The first wait and the longest one, in milliseconds.
const WAITS_MS: (u64, u64) = (1_000, 30_000);

#[derive(Debug)]
pub(crate) struct Retry {
    wait_ms: u64,
    at_ms: u64,
}

impl Retry {
    pub(crate) const fn new() -> Self {
        Self { wait_ms: WAITS_MS.0, at_ms: 0 }
    }

    /// A frame was sent: starts the wait for its acknowledgement.
    pub(crate) fn sent(&mut self, now_ms: u64) {
        self.at_ms = now_ms.saturating_add(self.wait_ms);
    }

    /// The coordinator made progress: waits are short again.
    pub(crate) fn progress(&mut self, now_ms: u64) {
        self.wait_ms = WAITS_MS.0;
        self.sent(now_ms);
    }

    /// Whether the wait is over. If so, starts the next one, which is twice as long.
    pub(crate) fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.at_ms;
        if is_due {
            self.wait_ms = (self.wait_ms * 2).min(WAITS_MS.1);
            self.sent(now_ms);
        }
        is_due
    }
}
