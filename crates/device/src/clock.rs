//! Determines the epoch of a live reading from a clock that may jump (docs/design.md, sealing).
//!
//! Epochs never decrease. If a device ever sealed a reading while its clock was years ahead, it
//! could not seal any reading again until the date that the clock had shown. The machine's clock is
//! therefore trusted only as far as something else confirms the time: an epoch that the coordinator
//! has announced, or the time at the device's start. The time that has passed since then is added.
//! This module neither sets nor reads the clock: callers pass the times as arguments.

use std::time::Duration;

use moteseal_core::record::EpochNumber;
use moteseal_verify::Calendar;

/// The number of epochs by which a clock may be ahead of the confirmed time. Some tolerance is
/// needed because two clocks differ, and because an announcement names an epoch, not a moment.
const AHEAD: u64 = 2;
/// The longest time for which a device is assumed to have been off, in milliseconds. If the clock
/// is further ahead at the start, the device waits for an announcement of the coordinator.
const LONGEST_ABSENCE: u64 = 31 * 24 * 60 * 60 * 1000;

/// The confirmed time, from which the current epoch is computed.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    calendar: Calendar,
    /// The latest confirmed time minus the time that had passed since the start, in milliseconds
    /// since 1970.
    start_ms: u64,
}

impl Clock {
    /// Creates a clock at the start of the process, when the machine's clock reads `unix_ms`.
    /// `newest` is the newest epoch that the device has opened or that the coordinator has
    /// announced. If it is `None`, the machine's clock is trusted.
    pub(crate) fn new(calendar: Calendar, unix_ms: u64, newest: Option<EpochNumber>) -> Self {
        let known_ms = newest.map(|newest| calendar.start_ms(newest).unwrap_or(u64::MAX));
        let longest_absence = calendar.longest_ms().max(LONGEST_ABSENCE);
        let is_credible =
            known_ms.is_none_or(|known_ms| unix_ms <= known_ms.saturating_add(longest_absence));
        let start_ms = if is_credible { unix_ms } else { known_ms.unwrap_or(unix_ms) };
        Self { calendar, start_ms: start_ms.max(known_ms.unwrap_or(0)) }
    }

    /// Continues with the calendar of a later version of the roster.
    pub(crate) fn load(&mut self, calendar: Calendar) {
        self.calendar = calendar;
    }

    /// Processes an announcement of `epoch` by the coordinator, `elapsed` after the start. An old
    /// announcement changes nothing.
    pub(crate) fn announced(&mut self, epoch: EpochNumber, elapsed: Duration) {
        let unix_ms = self.calendar.start_ms(epoch).unwrap_or(u64::MAX);
        self.start_ms = self.start_ms.max(unix_ms.saturating_sub(millis(elapsed)));
    }

    /// Returns the current epoch when the machine's clock reads `unix_ms`, `elapsed` after the
    /// start. Also returns whether the machine's clock is too far ahead to be trusted.
    pub(crate) fn epoch(&self, unix_ms: u64, elapsed: Duration) -> (EpochNumber, bool) {
        let confirmed = self.calendar.epoch_of(self.start_ms.saturating_add(millis(elapsed)));
        let reading = self.calendar.epoch_of(unix_ms);
        let is_far = reading.0 > confirmed.0.saturating_add(AHEAD);
        (if is_far { confirmed } else { reading }, is_far)
    }

    /// Returns the time from a reading of the machine's clock to the end of its epoch, in
    /// milliseconds. While the machine's clock is too far ahead, returns the time to the end of the
    /// confirmed epoch.
    pub(crate) fn end_ms(&self, unix_ms: u64, elapsed: Duration) -> u64 {
        let (epoch, is_far) = self.epoch(unix_ms, elapsed);
        let now = if is_far { self.start_ms.saturating_add(millis(elapsed)) } else { unix_ms };
        let next = EpochNumber(epoch.0.saturating_add(1));
        self.calendar.start_ms(next).unwrap_or(u64::MAX).saturating_sub(now)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;
    const NOW: u64 = 490_000 * HOUR;
    const FAR: u64 = NOW + 14 * 365 * 24 * HOUR;

    fn hours(hours: u64) -> Duration {
        Duration::from_millis(hours * HOUR)
    }

    fn epoch(clock: &Clock, unix_ms: u64, elapsed: Duration) -> u64 {
        clock.epoch(unix_ms, elapsed).0.0
    }

    #[test]
    fn trusts_a_clock_that_agrees_with_the_elapsed_time() {
        let clock = Clock::new(Calendar::constant(HOUR), NOW, Some(EpochNumber(489_990)));
        for elapsed in [0, 1, 1000, 100_000] {
            assert_eq!(
                clock.epoch(NOW + elapsed * HOUR, hours(elapsed)),
                (EpochNumber(490_000 + elapsed), false)
            );
        }
        // A step of two epochs ahead is accepted. A clock that is behind is used unchanged.
        assert_eq!(epoch(&clock, NOW + 2 * HOUR, hours(0)), 490_002);
        assert_eq!(epoch(&clock, NOW - 9 * HOUR, hours(0)), 489_991);
    }

    #[test]
    fn does_not_follow_a_far_jump_without_an_announcement() {
        let mut clock = Clock::new(Calendar::constant(HOUR), NOW, Some(EpochNumber(490_000)));
        assert_eq!(clock.epoch(FAR, hours(0)), (EpochNumber(490_000), true));
        assert_eq!(
            clock.epoch(FAR, hours(5)),
            (EpochNumber(490_005), true),
            "the epoch follows the elapsed time"
        );
        assert_eq!(clock.epoch(u64::MAX, Duration::MAX).0.0, u64::MAX / HOUR, "nothing overflows");
        let far = EpochNumber(FAR / HOUR);
        clock.announced(EpochNumber(490_003), hours(3));
        assert_eq!(clock.epoch(FAR, hours(3)), (EpochNumber(490_003), true));
        clock.announced(far, hours(6));
        assert_eq!(clock.epoch(FAR, hours(6)), (far, false));
        clock.announced(EpochNumber(490_000), hours(7));
        assert_eq!(clock.epoch(FAR, hours(7)), (far, false), "an old announcement changes nothing");
    }

    #[test]
    fn returns_the_time_to_the_end_of_the_epoch() {
        let clock = Clock::new(Calendar::constant(HOUR), NOW, Some(EpochNumber(490_000)));
        assert_eq!(clock.end_ms(NOW, hours(0)), HOUR);
        assert_eq!(clock.end_ms(NOW + HOUR - 1, hours(1)), 1);
        assert_eq!(clock.end_ms(FAR + 5, Duration::from_millis(7)), HOUR - 7, "as time has passed");
        assert!(clock.end_ms(u64::MAX, Duration::MAX) <= u64::MAX - NOW, "nothing overflows");
    }

    #[test]
    fn assumes_an_absence_of_weeks_but_not_of_years() {
        let newest = Some(EpochNumber(490_000));
        assert_eq!(
            epoch(
                &Clock::new(Calendar::constant(HOUR), NOW + 30 * 24 * HOUR, newest),
                NOW + 30 * 24 * HOUR,
                hours(0)
            ),
            490_720
        );
        assert_eq!(
            Clock::new(Calendar::constant(HOUR), FAR, newest).epoch(FAR, hours(1)),
            (EpochNumber(490_001), true)
        );
        // A device that has never sealed or received an announcement can only trust its clock.
        assert_eq!(
            epoch(&Clock::new(Calendar::constant(HOUR), FAR, None), FAR, hours(0)),
            FAR / HOUR
        );
        // A machine whose clock has no battery starts in 1970, and its clock is set later.
        let mut clock = Clock::new(Calendar::constant(HOUR), 0, None);
        assert_eq!(clock.epoch(NOW, hours(1)), (EpochNumber(1), true));
        clock.announced(EpochNumber(490_001), hours(1));
        assert_eq!(clock.epoch(NOW + HOUR, hours(1)), (EpochNumber(490_001), false));
    }
}
