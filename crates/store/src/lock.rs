//! Locks on files that only one process at a time may use.

use std::fs::{File, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// How long to retry. A child process that another thread starts inherits copies of all open files,
/// and therefore their locks, from the fork until its exec. During that time a file may still be
/// locked although this process has closed it.
const PATIENCE: Duration = Duration::from_millis(500);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Locks a file against other processes until it is closed. Retries for half a second.
///
/// # Errors
/// `WouldBlock` if another process, or another open handle in this process, holds the lock.
pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::{File, TryLockError};
    use std::thread;
    use std::time::Duration;

    use super::try_lock;

    #[test]
    fn waits_for_a_lock_that_is_released_soon_and_reports_one_that_is_not() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let open = || File::open(&path).unwrap();
        let (held, second) = (open(), open());
        try_lock(&held).unwrap();
        assert!(matches!(try_lock(&second), Err(TryLockError::WouldBlock)));
        let release = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(held);
        });
        try_lock(&second).unwrap();
        release.join().unwrap();
    }
}
