//! The machine's clock, as far as a gateway trusts it: it ends epochs, and an ended epoch stays
//! ended.
//!
//! A clock that jumps ahead is trusted once it has stayed ahead for a grace without interruption.
//! Until then, time advances by what has passed. A clock that is set back is trusted at once, since
//! that ends nothing. This module reads no clock: times are arguments.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Clock {
    grace: Duration,
    /// When the clock was last trusted, and its value then, in milliseconds since 1970.
    believed: Option<(Instant, u64)>,
    /// Since when it has been ahead.
    ahead: Option<Instant>,
}

/// What the clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The time, in milliseconds since 1970.
    pub(crate) unix_ms: u64,
    /// The clock has just jumped ahead and is not trusted yet.
    pub(crate) has_jumped: bool,
}

impl Clock {
    pub(crate) const fn new(grace: Duration) -> Self {
        Self { grace, believed: None, ahead: None }
    }

    /// The trusted time, when the machine's clock reads `unix_ms`.
    pub(crate) fn read(&mut self, unix_ms: u64, now: Instant) -> Told {
        let passed = |at: Instant| {
            u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX)
        };
        let due = self.believed.map_or(unix_ms, |(at, told)| told.saturating_add(passed(at)));
        // Clocks are slewed, and are read a moment after the time that passes.
        let slack = u64::try_from(self.grace.as_millis() / 4).unwrap_or(u64::MAX);
        let is_ahead = unix_ms > due.saturating_add(slack);
        let is_new = is_ahead && self.ahead.is_none();
        let since = *self.ahead.get_or_insert(now);
        if !is_ahead || now.saturating_duration_since(since) >= self.grace {
            (self.believed, self.ahead) = (Some((now, unix_ms)), None);
            return Told { unix_ms, has_jumped: false };
        }
        Told { unix_ms: due, has_jumped: is_new }
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

    /// A gateway's time: reads the clock every 50 ms, and ends the epochs that the gateway would
    /// end.
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

        /// Lets time pass with the clock off by `off_ms`; returns the epochs that end, and when, in
        /// true time.
        fn pass(&mut self, seconds: u64, off_ms: i64) -> Vec<(u64, u64)> {
            let mut ended = Vec::new();
            for _ in 0..seconds * 20 {
                self.passed_ms += 50;
                let now = self.start + Duration::from_millis(self.passed_ms);
                let truth = START + self.passed_ms;
                let told = self.clock.read(truth.saturating_add_signed(off_ms), now).unix_ms;
                self.group.look(EpochNumber(told / EPOCH_MS), now);
                let late = Duration::from_millis(told.saturating_sub((self.next + 1) * EPOCH_MS));
                if self.group.is_over(EpochNumber(self.next), late, now) {
                    self.group.ended(EpochNumber(self.next));
                    ended.push((self.next, truth));
                    self.next += 1;
                }
            }
            ended
        }

        /// Asserts that no epoch ended before a grace after its time.
        fn assert_none_early(ended: &[(u64, u64)]) {
            for (epoch, at) in ended {
                assert!(*at >= (epoch + 1) * EPOCH_MS + 30_000, "epoch {epoch} ended at {at}");
            }
        }
    }

    #[test]
    fn a_clock_that_glitches_ahead_ends_no_epoch_early_and_loses_none() {
        let year = i64::try_from(YEAR).unwrap_or(i64::MAX);
        for off_ms in [10_000, 3_600_000, year] {
            let mut world = World::new();
            let mut ended = world.pass(100, 0);
            for _ in 0..10 {
                ended.extend(world.pass(29, off_ms));
                ended.extend(world.pass(40, 0));
            }
            World::assert_none_early(&ended);
            // Every epoch whose grace is over has ended.
            let (now, last) = (START + world.passed_ms, ended.last().map(|(epoch, _)| *epoch));
            assert_eq!(last, Some((now - 30_000) / EPOCH_MS - 1), "{off_ms} ms ahead");
            assert_eq!(
                world.group.newest(),
                Some(EpochNumber(now / EPOCH_MS)),
                "frames of a year ahead are too far"
            );
        }
    }

    #[test]
    fn a_clock_that_was_set_ahead_is_believed_after_a_grace() {
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
    fn a_clock_that_goes_back_ends_nothing_early_and_one_that_drifts_is_followed() {
        let mut world = World::new();
        let mut ended = world.pass(100, 0);
        ended.extend(world.pass(300, -3_600_000));
        ended.extend(world.pass(300, 0));
        World::assert_none_early(&ended);
        let mut clock = Clock::new(GRACE);
        let start = Instant::now();
        for step in 0..10_000u64 {
            // A tenth faster than it should be.
            let told = clock.read(START + step * 55, start + Duration::from_millis(step * 50));
            assert_eq!(told, Told { unix_ms: START + step * 55, has_jumped: false });
        }
    }

    #[test]
    fn a_jump_is_said_once() {
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
            Told { unix_ms: START + 3000, has_jumped: false }
        );
        assert!(clock.read(START + YEAR, at(4)).has_jumped);
    }
}
