//! Points in time whose distance also counts the time while the machine is suspended.
//!
//! [`std::time::Instant`] does not advance on Linux while the machine is suspended. A process that must
//! not act after a deadline of another machine therefore compares two other clocks.

use std::time::{Duration, SystemTime};

/// A point in time on two clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// A clock that cannot be set. On Linux, it advances while the machine is suspended.
    steady: Duration,
    /// The time of day. It advances while the machine is suspended, and can be set.
    wall: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { steady: steady(), wall: SystemTime::now() }
    }

    /// Returns whether `later` is at most `limit` after this point on both clocks. If the time of day was
    /// set back by more than `limit`, the distance is unknown, and the result is `false`.
    pub(crate) fn is_within(self, limit: Duration, later: Self) -> bool {
        let steady = later.steady.checked_sub(self.steady);
        let wall = later.wall.duration_since(self.wall);
        let wall = wall.unwrap_or_else(|back| back.duration());
        steady.is_some_and(|passed| passed <= limit) && wall <= limit
    }
}

/// Returns the time since the machine started.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn steady() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns the time since the first call.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn steady() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_mins(5);
    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a point in time at which the clocks show these numbers of seconds.
    fn at(steady: u64, wall: u64) -> Moment {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(wall);
        Moment { steady: Duration::from_secs(steady), wall }
    }

    #[test]
    fn a_time_is_within_a_limit_only_on_both_clocks() {
        let start = at(1_000, 50_000);
        for (steady, wall, expected) in [
            (0, 0, true),
            (300, 300, true),
            // The machine was suspended, and both clocks show it.
            (1_200, 1_200, false),
            // Only one clock shows it.
            (301, 20, false),
            (20, 301, false),
            (20, 1_200, false),
        ] {
            let later = at(1_000 + steady, 50_000 + wall);
            assert_eq!(start.is_within(LIMIT, later), expected, "{steady} s, {wall} s");
        }
    }

    #[test]
    fn a_time_of_day_that_was_set_back_by_more_than_the_limit_is_not_within_it() {
        let start = at(1_000, 50_000);
        assert!(start.is_within(LIMIT, at(1_020, 49_700)));
        assert!(!start.is_within(LIMIT, at(1_020, 49_699)));
        // The steady clock never goes back. If it does, nothing is known.
        assert!(!start.is_within(LIMIT, at(999, 50_000)));
    }

    #[test]
    fn the_clocks_of_this_machine_advance() {
        let start = Moment::now();
        std::thread::sleep(Duration::from_millis(20));
        let later = Moment::now();
        assert!(later.steady >= start.steady + Duration::from_millis(20), "{start:?} {later:?}");
        assert!(start.is_within(LIMIT, later));
        assert!(!start.is_within(Duration::ZERO, later));
        assert!(!at(0, 50_000).is_within(SECOND, at(1, 50_002)));
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn the_steady_clock_of_linux_is_the_time_since_boot() {
        let boot = || rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (before, read, after) = (boot(), steady(), boot());
        let [before, after] = [before, after].map(|time| Duration::try_from(time).ok());
        assert!(before <= Some(read) && Some(read) <= after, "{before:?} {read:?} {after:?}");
    }
}
