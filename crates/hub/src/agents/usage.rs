//! What an agent uses: processor time, memory and processes from `/proc`, and the size of its data
//! folder.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of entries that are counted in a data folder. A folder with more is too large.
const MAX_ENTRIES: u64 = 100_000;
/// The size that each entry of a folder counts at least, in bytes.
const ENTRY: u64 = 1024;
/// The unit of processor times in `/proc` on Linux: hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;
/// The size of a page for the resident memory of a process. Larger pages are counted too low, and
/// the limit of the address space still applies.
const PAGE: u64 = 4096;

/// The sums over the processes of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Processes {
    /// The number of processes.
    pub(super) count: u32,
    /// The processor time, in hundredths of a second.
    pub(super) ticks: u64,
    /// The resident memory, in bytes.
    pub(super) memory: u64,
}

/// Reads one line of `/proc/PID/stat`: the process group, the processor time and the memory.
fn parse(stat: &str) -> Option<(u32, u64, u64)> {
    // The name of the program, in parentheses, may contain any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let group = u32::try_from(number(2)?).ok()?;
    let ticks = (11..15).map(number).sum::<Option<u64>>()?;
    Some((group, ticks, number(21)?.saturating_mul(PAGE)))
}

impl Processes {
    /// Measures the process `leader`, or its whole process group. Without `/proc`, everything is 0.
    pub(super) fn of(leader: u32, is_group: bool) -> Self {
        let mut sums = Self::default();
        let mut add = |path: &Path| {
            let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
            if let Some((group, ticks, memory)) = parse(&stat)
                && group == leader
            {
                sums.count += 1;
                sums.ticks += ticks;
                sums.memory += memory;
            }
        };
        let processes = Path::new("/proc");
        if !is_group {
            add(&processes.join(leader.to_string()));
            return sums;
        }
        for entry in fs::read_dir(processes).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(|first: char| first.is_ascii_digit())
            {
                add(&entry.path());
            }
        }
        sums
    }
}

/// The processor time of the last seconds.
#[derive(Debug, Default)]
pub(super) struct CpuShare(VecDeque<(Instant, u64)>);

impl CpuShare {
    /// Adds a measurement. Returns the share of a core over the last `window`, or `None` before the
    /// first window is over.
    pub(super) fn add(&mut self, now: Instant, ticks: u64, window: Duration) -> Option<f64> {
        self.0.push_back((now, ticks));
        let since = |then: Instant| now.saturating_duration_since(then);
        while self.0.get(1).is_some_and(|(then, _)| since(*then) >= window) {
            self.0.pop_front();
        }
        let (then, before) = *self.0.front()?;
        let elapsed = since(then);
        // Processor times are approximate: the exact count of a tick is not known.
        (elapsed >= window)
            .then(|| ticks.saturating_sub(before) as f64 / TICKS_PER_SECOND / elapsed.as_secs_f64())
    }
}

/// Returns the size of everything below a folder, in bytes. Stops when it exceeds `limit`.
pub(super) fn folder_size(folder: &Path, limit: u64) -> u64 {
    let (mut size, mut entries) = (0u64, 0);
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            // The metadata of an entry is that of a symbolic link, not of its target.
            let Ok(found) = entry.metadata() else { continue };
            size = size.saturating_add((found.blocks() * 512).max(ENTRY));
            entries += 1;
            if entries > MAX_ENTRIES {
                return u64::MAX;
            }
            if size > limit {
                return size;
            }
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    size
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_name_of_a_program_does_not_confuse_the_statistics() {
        let stat =
            "71 (a) R 1 2 (b) S 1 70 70 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6000 50 18446";
        assert_eq!(parse(stat), Some((70, 100, 50 * PAGE)));
        assert_eq!(parse("71 (a"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn the_share_of_the_processor_is_that_of_the_last_window() {
        let (start, mut share) = (Instant::now(), CpuShare::default());
        let window = Duration::from_secs(10);
        let mut at =
            |seconds, ticks| share.add(start + Duration::from_secs(seconds), ticks, window);
        assert_eq!(at(0, 0), None);
        assert_eq!(at(5, 500), None, "half of a window is not enough");
        assert_eq!(at(10, 500), Some(0.5));
        assert_eq!(at(20, 500), Some(0.0), "an earlier burst is forgotten");
    }

    #[test]
    fn a_folder_with_many_small_files_is_not_small() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..20 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(folder_size(folder.path(), u64::MAX), 20 * ENTRY);
        assert!(folder_size(folder.path(), 5000) < 8000, "it stops above the limit");
    }
}
