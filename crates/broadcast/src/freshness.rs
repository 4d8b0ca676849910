//! When the messages of a chain may be delivered (spec/broadcast.md, section 3.5).

use moteseal_core::named_errors;

use crate::{DraftError, Kind};

/// The longest time from the begin to the end of a command, in seconds: 7 days.
pub const MAX_COMMAND_SECONDS: u64 = 7 * 24 * 3600;
/// The default of the allowed offset between the clocks of a sender and a receiver, in seconds.
pub const CLOCK_OFFSET_SECONDS: u64 = 10;

/// The time in which a sender allows a chain to be delivered. Its head states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first second of the window, in Unix time.
    pub not_before: u64,
    /// The first second after the window, in Unix time; `u64::MAX` for no end.
    pub not_after: u64,
}

named_errors! {
    /// Why a chain must not be delivered at this time.
    Untimely {
        /// The receiver has no trusted time, so it cannot compare the window with the time.
        NoTrustedTime => "the receiver has no trusted time; set its clock",
        /// The window has not begun.
        Early => "the chain must not be delivered yet",
        /// The window has ended.
        Late => "the chain must not be delivered any more",
    }
}

impl Window {
    /// The window without a begin and an end.
    pub const ALWAYS: Self = Self { not_before: 0, not_after: u64::MAX };

    /// Returns whether the window has an end.
    #[must_use]
    pub const fn has_end(&self) -> bool {
        self.not_after != u64::MAX
    }

    /// Checks that a chain of this kind may have this window: the begin is before the end, and a
    /// command has an end at most [`MAX_COMMAND_SECONDS`] after its begin.
    ///
    /// # Errors
    /// `EmptyWindow`, `CommandWithoutEnd` and `ValidityTooLong`.
    pub const fn check_for(&self, kind: Kind) -> Result<(), DraftError> {
        if self.not_before >= self.not_after {
            return Err(DraftError::EmptyWindow);
        }
        match kind {
            Kind::Command if !self.has_end() => Err(DraftError::CommandWithoutEnd),
            Kind::Command if self.not_after - self.not_before > MAX_COMMAND_SECONDS => {
                Err(DraftError::ValidityTooLong)
            }
            _ => Ok(()),
        }
    }

    /// Checks that a chain with this window may be delivered at `now`, in seconds of Unix time;
    /// `None` if the receiver has no trusted time. A receiver delivers a chain up to `offset`
    /// seconds before its begin, because its clock may be late, and never at or after its end.
    ///
    /// # Errors
    /// [`Untimely`].
    pub const fn check(&self, now: Option<u64>, offset: u64) -> Result<(), Untimely> {
        if self.not_before == 0 && !self.has_end() {
            return Ok(());
        }
        match now {
            None => Err(Untimely::NoTrustedTime),
            Some(now) if now.saturating_add(offset) < self.not_before => Err(Untimely::Early),
            Some(now) if self.has_end() && now >= self.not_after => Err(Untimely::Late),
            Some(_) => Ok(()),
        }
    }
}
