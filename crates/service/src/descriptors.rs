//! The process's limit on open files, which connections count against.
//!
//! Each connection needs a file descriptor. If the process has none left, it can accept no
//! connection, not even that of a health check, and cannot open the files of its store. A listener
//! therefore raises the limit and caps its connections below it.

use std::fs;

/// Descriptors that stay free for the files of the service, such as its store.
const RESERVED: usize = 32;
/// The limits to try if the operating system rejects a higher limit. macOS rejects values above
/// 10,240, even if the hard limit is higher.
const ATTEMPTS: [u64; 2] = [1 << 20, 10_240];

/// Raises the soft limit to the hard limit, as far as the operating system permits. Then returns
/// the number of connections that a listener may hold: at most `wanted`, and at most the
/// descriptors that are left.
pub(crate) fn connections(wanted: usize) -> usize {
    match raised_limit() {
        Some(limit) => wanted.min(available(limit, open())),
        None => wanted,
    }
}

/// Raises the soft limit to the hard limit, as far as the operating system permits.
pub fn raise_open_files() {
    let _ = raised_limit();
}

fn available(limit: usize, open: usize) -> usize {
    let free = limit.saturating_sub(open);
    // With very few descriptors, some connections are better than none.
    free.saturating_sub(RESERVED).max(free / 2)
}

/// Returns the soft limit after it was raised, or `None` if there is no limit.
#[cfg(unix)]
fn raised_limit() -> Option<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    let mut current = limit.current?;
    for attempt in ATTEMPTS {
        let raised = limit.maximum.map_or(attempt, |maximum| maximum.min(attempt));
        if raised <= current {
            break;
        }
        let wanted = Rlimit { current: Some(raised), maximum: limit.maximum };
        if setrlimit(Resource::Nofile, wanted).is_ok() {
            current = raised;
            break;
        }
    }
    Some(usize::try_from(current).unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
const fn raised_limit() -> Option<usize> {
    None
}

/// Returns the number of open descriptors.
fn open() -> usize {
    fs::read_dir("/dev/fd").map_or(RESERVED, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finding B5 of the review.
    #[test]
    fn connections_leave_descriptors_for_files() {
        assert_eq!(available(256, 20), 204);
        assert_eq!(available(40, 20), 10);
        assert_eq!(available(10, 20), 0);
        assert!(connections(1) <= 1);
    }
}
