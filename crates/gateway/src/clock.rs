//! Filters the machine's clock, so that a wrong clock does not end epochs. The filter is needed
//! because an ended epoch cannot be reopened.
//!
//! If the clock jumps ahead, the filter trusts the new time only after the clock has stayed ahead
//! for a whole grace period. Until then, the trusted time advances with the monotonic clock. If the
//! clock is set back, the filter trusts the new time at once, because an earlier time ends no
//! epoch. This module does not read the clock: callers pass the times as arguments.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Clock {
    grace: Duration,
    /// When the clock was last trusted, and the time that it returned then, in milliseconds since
    /// 1970.
    trusted: Option<(Instant, u64)>,
    /// The moment since which the clock has been ahead of the trusted time.
    ahead: Option<Instant>,
}

/// A reading of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The trusted time, in milliseconds since 1970.
    pub(crate) unix_ms: u64,
    /// Whether the clock has just jumped ahead. The jump is not trusted yet.
    pub(crate) has_jumped: bool,
}

impl Clock {
    pub(crate) const fn new(grace: Duration) -> Self {
        Self { grace, trusted: None, ahead: None }
    }

    /// Returns the trusted time, given that the machine's clock reads `unix_ms`.
    pub(crate) fn read(&mut self, unix_ms: u64, now: Instant) -> Reading {
        let passed = |at: Instant| {
            u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX)
        };
        let due = self.trusted.map_or(unix_ms, |(at, reading)| reading.saturating_add(passed(at)));
        // Tolerate slewed clocks, and the delay between reading the two clocks.
        let slack = u64::try_from(self.grace.as_millis() / 4).unwrap_or(u64::MAX);
        let is_ahead = unix_ms > due.saturating_add(slack);
        let is_new = is_ahead && self.ahead.is_none();
        let since = *self.ahead.get_or_insert(now);
        if !is_ahead || now.saturating_duration_since(since) >= self.grace {
            (self.trusted, self.ahead) = (Some((now, unix_ms)), None);
            return Reading { unix_ms, has_jumped: false };
        }
        Reading { unix_ms: due, has_jumped: is_new }
    }
}

#[cfg(test)]
mod tests {
    use moteseal_core::record::EpochNumber;

    use super::*;
    use crate::group_time::{GroupTime, Time};

    const GRACE: Duration = Duration::from_secs(30);
    const YEAR: u64 = 365 * 86_400_000;
    const START: u64 = 1_700_000_000_000;
    const EPOCH_MS: u64 = 60_000;

    /// A simulated gateway. It reads the clock every 50 ms and ends epochs when a real gateway
    /// would.
    struct World {
        clock: Clock,
        group: GroupTime,
        start: Instant,
        passed_ms: u64,
        next: u64,
    }

    impl World {
        fn new() -> Self {
            let start = Instant::now();
            Self {
                clock: Clock::new(GRACE),
                group: GroupTime::new(Time::Clock, GRACE, start),
                start,
                passed_ms: 0,
                next: START / EPOCH_MS,
            }
        }

        /// Lets `seconds` pass while the clock is wrong by `off_ms`. Returns the epochs that ended,
        /// each with the true time at which it ended.
        fn pass(&mut self, seconds: u64, off_ms: i64) -> Vec<(u64, u64)> {
            let mut ended = Vec::new();
            for _ in 0..seconds * 20 {
                self.passed_ms += 50;
                let now = self.start + Duration::from_millis(self.passed_ms);
                let truth = START + self.passed_ms;
                let reading = self.clock.read(truth.saturating_add_signed(off_ms), now).unix_ms;
                self.group.advance(EpochNumber(reading / EPOCH_MS), now);
                let late =
                    Duration::from_millis(reading.saturating_sub((self.next + 1) * EPOCH_MS));
                if self.group.is_over(EpochNumber(self.next), late, now) {
                    self.group.ended(EpochNumber(self.next));
                    ended.push((self.next, truth));
                    self.next += 1;
                }
            }
            ended
        }

        /// Asserts that each epoch ended at least one grace period after its last moment.
        fn assert_none_early(ended: &[(u64, u64)]) {
            for (epoch, at) in ended {
                assert!(*at >= (epoch + 1) * EPOCH_MS + 30_000, "epoch {epoch} ended at {at}");
            }
        }
    }

    #[test]
    fn a_clock_that_glitches_ahead_neither_ends_an_epoch_early_nor_skips_one() {
        let year = i64::try_from(YEAR).unwrap_or(i64::MAX);
        for off_ms in [10_000, 3_600_000, year] {
            let mut world = World::new();
            let mut ended = world.pass(100, 0);
            for _ in 0..10 {
                ended.extend(world.pass(29, off_ms));
                ended.extend(world.pass(40, 0));
            }
            World::assert_none_early(&ended);
            // Every epoch whose grace period is over has ended.
            let (now, last) = (START + world.passed_ms, ended.last().map(|(epoch, _)| *epoch));
            assert_eq!(last, Some((now - 30_000) / EPOCH_MS - 1), "{off_ms} ms ahead");
            assert_eq!(
                world.group.newest(),
                Some(EpochNumber(now / EPOCH_MS)),
                "the newest epoch is a year ahead"
            );
        }
    }

    #[test]
    fn trusts_a_clock_that_was_set_ahead_after_a_grace_period() {
        let mut world = World::new();
        let _ = world.pass(100, 0);
        let ahead = i64::try_from(YEAR).unwrap_or(i64::MAX);
        World::assert_none_early(&world.pass(29, ahead));
        let _ = world.pass(2, ahead);
        assert_eq!(
            world.group.newest(),
            Some(EpochNumber((START + world.passed_ms + YEAR) / EPOCH_MS))
        );
    }

    #[test]
    fn a_clock_set_back_ends_no_epoch_early_and_a_drifting_clock_is_followed() {
        let mut world = World::new();
        let mut ended = world.pass(100, 0);
        ended.extend(world.pass(300, -3_600_000));
        ended.extend(world.pass(300, 0));
        World::assert_none_early(&ended);
        let mut clock = Clock::new(GRACE);
        let start = Instant::now();
        for step in 0..10_000u64 {
            // The clock runs 10 % too fast.
            let reading = clock.read(START + step * 55, start + Duration::from_millis(step * 50));
            assert_eq!(reading, Reading { unix_ms: START + step * 55, has_jumped: false });
        }
    }

    #[test]
    fn reports_a_jump_once() {
        let mut clock = Clock::new(GRACE);
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(!clock.read(START, at(0)).has_jumped);
        assert!(
            clock.read(START + YEAR, at(1)).has_jumped
                && !clock.read(START + YEAR, at(2)).has_jumped
        );
        assert_eq!(
            clock.read(START + 3000, at(3)),
            Reading { unix_ms: START + 3000, has_jumped: false }
        );
        assert!(clock.read(START + YEAR, at(4)).has_jumped);
    }
}
