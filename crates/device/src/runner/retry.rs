//! The timer that determines when a device sends frames again.

use std::time::Duration;

use tokio::time::Instant;

use super::Settings;

/// Determines when frames that the gateway has not acknowledged are sent again.
pub(super) struct Retry {
    first: Duration,
    longest: Duration,
    /// Whether the gateway must answer something. If not, frames are sent again after `longest`, to see
    /// whether the gateway still has everything.
    is_waiting: bool,
    /// The current wait, which ends at `at`.
    pub(super) wait: Duration,
    pub(super) at: Instant,
    /// When a frame or announcement last arrived from the gateway.
    last_received: Instant,
}

impl Retry {
    pub(super) fn new(settings: &Settings) -> Self {
        let (first, longest, now) = (settings.first_wait, settings.longest_wait, Instant::now());
        Self { first, longest, is_waiting: true, wait: first, at: now + first, last_received: now }
    }

    /// Notes whether the gateway must answer something. Starts a wait when this changes.
    pub(super) fn watch(&mut self, is_waiting: bool) {
        if std::mem::replace(&mut self.is_waiting, is_waiting) != is_waiting {
            self.wait = self.first;
            self.at = Instant::now() + if is_waiting { self.first } else { self.longest };
        }
    }

    /// Starts again with the shortest wait, because the gateway makes progress.
    pub(super) fn reset(&mut self) {
        self.wait = self.first;
        self.at = Instant::now() + self.wait;
    }

    /// Starts the next wait. It is twice as long if the previous wait was `in_vain`.
    pub(super) fn back_off(&mut self, in_vain: bool) {
        if in_vain {
            self.wait = (self.wait * 2).min(self.longest);
        }
        self.at = Instant::now() + self.wait;
    }

    /// Records that something arrived from the gateway. Returns whether this ends a long silence.
    pub(super) fn received(&mut self) -> bool {
        let before = std::mem::replace(&mut self.last_received, Instant::now());
        self.last_received - before >= self.longest / 2
    }
}
