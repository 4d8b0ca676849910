//! Slows down those who guess passwords: after some wrong passwords, a source must wait before its
//! next password is checked, and each further wrong password doubles the wait.
//!
//! Failures are counted in a fixed number of cells, so an attacker can neither use up memory nor
//! evict a count. Each source has a cell in each of four rows, chosen by a secret hash, and the
//! lowest of its four counts applies (a count-min sketch). A source that has no failures itself is
//! delayed only if all four of its cells are shared with sources that failed. With `n` such sources
//! the probability is about `(1 - e^(-n/4096))^4`: 1 in 300,000 for 180 attackers, 1 in 400 for 1,000.
//! Nobody can choose whose cells these are. A success does not reset a count, because an attacker may
//! have a user of its own.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The number of rows of cells.
const ROWS: usize = 4;
/// The number of cells in a row.
const CELLS: usize = 4096;
/// For how long the failures of a source are counted after the last one.
const FORGET: Duration = Duration::from_secs(15 * 60);

/// When a source must wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The number of failures after which a source must wait.
    pub(crate) free: u32,
    /// The maximum length of one wait. The first wait is a second, and each further one is twice as
    /// long.
    pub(crate) longest: Duration,
}

/// Counts the failures of sources of one kind.
#[derive(Debug)]
pub(crate) struct Throttle {
    schedule: Schedule,
    hasher: RandomState,
    rows: Mutex<Vec<Cell>>,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    failures: u32,
    last: Instant,
}

impl Throttle {
    pub(crate) fn new(schedule: Schedule) -> Self {
        let empty = Cell { failures: 0, last: Instant::now() };
        Self { schedule, hasher: RandomState::new(), rows: Mutex::new(vec![empty; ROWS * CELLS]) }
    }

    /// Returns the places of a source's cells.
    fn places(&self, source: &impl Hash) -> [usize; ROWS] {
        std::array::from_fn(|row| {
            #[allow(clippy::cast_possible_truncation)]
            let column = self.hasher.hash_one((row, source)) as usize % CELLS;
            row * CELLS + column
        })
    }

    /// Returns how long a source must still wait, or `None` if it need not wait.
    pub(crate) fn wait(&self, source: &impl Hash) -> Option<Duration> {
        let now = Instant::now();
        let places = self.places(source);
        let cells = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = places.map(|place| {
            let end = cells[place].last + self.schedule.wait_after(cells[place].count(now));
            end.saturating_duration_since(now)
        });
        drop(cells);
        waits.into_iter().min().filter(|wait| !wait.is_zero())
    }

    /// Counts a failure of a source.
    pub(crate) fn failed(&self, source: &impl Hash) {
        let now = Instant::now();
        let places = self.places(source);
        let mut cells = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        // Only the lowest counts are those of this source.
        let lowest = places.map(|place| cells[place].count(now)).into_iter().min().unwrap_or(0);
        for place in places {
            let count = cells[place].count(now);
            if count == lowest {
                cells[place] = Cell { failures: lowest.saturating_add(1), last: now };
            }
        }
    }
}

impl Schedule {
    /// Returns the wait after this number of failures.
    fn wait_after(self, failures: u32) -> Duration {
        match failures.checked_sub(self.free) {
            None => Duration::ZERO,
            Some(more) => Duration::from_secs(1 << more.min(31)).min(self.longest),
        }
    }
}

impl Cell {
    fn count(&self, now: Instant) -> u32 {
        let is_forgotten = now.saturating_duration_since(self.last) >= FORGET;
        if is_forgotten { 0 } else { self.failures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const SCHEDULE: Schedule = Schedule { free: 3, longest: Duration::from_secs(60) };

    fn seconds(wait: Option<Duration>) -> u64 {
        wait.map_or(0, |wait| wait.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_a_limit_and_end() {
        let throttle = Throttle::new(SCHEDULE);
        let mut waits = Vec::new();
        for _ in 0..11 {
            throttle.failed(&"mallory");
            let wait = throttle.wait(&"mallory");
            waits.push(seconds(wait));
            advance(wait.unwrap_or_default()).await;
            assert_eq!(throttle.wait(&"mallory"), None);
        }
        assert_eq!(waits, [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.wait(&"alice"), None, "others do not wait");
        advance(FORGET).await;
        throttle.failed(&"mallory");
        assert_eq!(throttle.wait(&"mallory"), None, "old failures are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_of_sources_neither_evict_a_count_nor_use_memory() {
        let throttle = Throttle::new(SCHEDULE);
        for _ in 0..8 {
            throttle.failed(&u32::MAX);
        }
        let before = throttle.wait(&u32::MAX);
        assert_eq!(seconds(before), 32);
        for source in 0..100_000_u32 {
            throttle.failed(&source);
        }
        assert!(throttle.wait(&u32::MAX) >= before, "no failure is forgotten");
        let cells = throttle.rows.lock().map(|cells| cells.len() * size_of::<Cell>());
        assert!(cells.is_ok_and(|bytes| bytes <= 512 << 10));
    }

    #[tokio::test(start_paused = true)]
    async fn attackers_lock_out_few_others() {
        let throttle = Throttle::new(SCHEDULE);
        for attacker in 0..1000_u32 {
            for _ in 0..20 {
                throttle.failed(&attacker);
            }
        }
        let waiting = (1_000_000..1_010_000_u32).filter(|other| throttle.wait(other).is_some());
        // One in 400 on average.
        let waiting = waiting.count();
        assert!(waiting < 150, "{waiting} of 10,000");
    }
}
