//! The timer that determines when the mote resends frames that the coordinator has not
//! acknowledged. The first wait is one second; each further wait is twice as long, up to half a
//! minute.

/// The first and the longest wait, in milliseconds.
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

    /// Starts the wait for an acknowledgement, because a frame was sent.
    pub(crate) fn sent(&mut self, now_ms: u64) {
        self.at_ms = now_ms.saturating_add(self.wait_ms);
    }

    /// Makes the waits short again, because the coordinator has acknowledged something new.
    pub(crate) fn progress(&mut self, now_ms: u64) {
        self.wait_ms = WAITS_MS.0;
        self.sent(now_ms);
    }

    /// Returns whether the wait is over. If so, starts the next wait, which is twice as long.
    pub(crate) fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.at_ms;
        if is_due {
            self.wait_ms = (self.wait_ms * 2).min(WAITS_MS.1);
            self.sent(now_ms);
        }
        is_due
    }
}
