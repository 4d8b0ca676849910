//! What an agent uses: processor time, memory and processes from `/proc`, and the size of its data
//! folder.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::data_folder::{self, TOO_LARGE};
use super::launcher;
use super::manifest::Limits;
use super::status::StopReason;

/// The unit of processor times in `/proc` on Linux: hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;
/// The size of a page for the resident memory of a process. Larger pages are counted too low, and
/// the limit of the address space still applies.
const PAGE: u64 = 4096;
/// The resident memory of a guard, in bytes.
const GUARD_MEMORY: u64 = 64 << 20;
/// The maximum length of the list of a process's mappings, in bytes.
const MAX_MAPPINGS: u64 = 16 << 20;
/// The data folder is measured for at most this part of the time.
const WALKING: u32 = 20;

/// One process of an agent, as in `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    /// The process id.
    id: u32,
    /// Whether the first thread has ended.
    is_zombie: bool,
    /// The process group.
    group: u32,
    /// The processor time of the process, in hundredths of a second.
    own: u64,
    /// The processor time of its children that have ended and that it has waited for.
    children: u64,
    /// The number of threads.
    threads: u64,
    /// When it started, in hundredths of a second since the system started.
    started: u64,
    /// The resident memory, in bytes.
    memory: u64,
}

impl Process {
    /// Reads one line of `/proc/PID/stat`.
    fn parse(stat: &str) -> Option<Self> {
        let id = stat.split_once(' ')?.0.parse().ok()?;
        // The name of the program, in parentheses, may contain any characters.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            id,
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
            group: u32::try_from(number(2)?).ok()?,
            own: number(11)?.saturating_add(number(12)?),
            children: number(13)?.saturating_add(number(14)?),
            threads: number(17)?,
            started: number(19)?,
            memory: number(21)?.saturating_mul(PAGE),
        })
    }

    fn read(folder: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(folder.join("stat")).ok()?)
    }

    /// Returns the folder in `/proc` of a thread that has not ended, and its statistics: the first thread
    /// of a process may end before the others, and then has no memory and no descriptors.
    fn live_thread(&self) -> Option<(PathBuf, Self)> {
        let folder = PathBuf::from(format!("/proc/{}", self.id));
        if !self.is_zombie {
            return Some((folder, *self));
        }
        fs::read_dir(folder.join("task")).into_iter().flatten().flatten().find_map(|task| {
            let found = Self::read(&task.path()).filter(|thread| !thread.is_zombie)?;
            Some((task.path(), found))
        })
    }
}

/// Returns the processes that have a property, in ascending order of their ids.
fn processes(mut is_one: impl FnMut(&Path, &Process) -> bool) -> Vec<Process> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_process = entry.file_name().as_bytes().first().is_some_and(u8::is_ascii_digit);
        if is_process
            && let Some(process) = Process::read(&entry.path())
            && is_one(&entry.path(), &process)
        {
            found.push(process);
        }
    }
    found.sort_unstable_by_key(|process| process.id);
    found
}

/// Returns what identifies a process together with its id: the start of the system, and the start of the
/// process in hundredths of a second since then.
pub(super) fn started(process: u32) -> Option<(String, u64)> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let found = Process::read(Path::new(&format!("/proc/{process}")))?;
    Some((boot.trim().to_owned(), found.started))
}

/// Kills what still runs of an agent that an earlier hub has started: the process group of the process
/// `leader`, which started at the given time, as far as it runs as the agent's `user`.
pub(super) fn end_survivors(user: u32, leader: u32, began: &(String, u64)) {
    // While a process group exists, no other process gets its id.
    match started(leader) {
        Some(found) if found != *began => return,
        None if started(std::process::id()).is_none_or(|(boot, _)| boot != began.0) => return,
        _ => {}
    }
    let is_survivor = |folder: &Path, process: &Process| {
        let status = || fs::read_to_string(folder.join("status")).unwrap_or_default();
        !process.is_zombie
            && process.group == leader
            && process.started >= began.1
            && (process.id == leader || is_of_user(&status(), user))
    };
    // A process that was started meanwhile is killed by the next round.
    for _ in 0..100 {
        let left = processes(is_survivor);
        if left.is_empty() {
            return;
        }
        for process in left {
            if let Some(id) = i32::try_from(process.id).ok().and_then(Pid::from_raw) {
                let _ = kill_process(id, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether a process with this `/proc/PID/status` has a user as its real user.
fn is_of_user(status: &str, user: u32) -> bool {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let real = users.and_then(|users| users.split_ascii_whitespace().next());
    real.and_then(|real| real.parse().ok()) == Some(user)
}

/// The processor time of an agent. It grows also if processes end.
#[derive(Debug, Default)]
struct ProcessorTime {
    /// The times of each process at the last measurement: its own and that of its children. The key is
    /// the id and the start.
    known: BTreeMap<(u32, u64), (u64, u64)>,
    /// The sum, in hundredths of a second.
    total: u64,
}

impl ProcessorTime {
    /// Adds a measurement of all processes, and returns the sum.
    fn add(&mut self, processes: &[Process]) -> u64 {
        let mut before = std::mem::take(&mut self.known);
        let (mut own, mut children) = (0u64, 0u64);
        for process in processes {
            let key = (process.id, process.started);
            let (known_own, known_children) = before.remove(&key).unwrap_or_default();
            own = own.saturating_add(process.own.saturating_sub(known_own));
            children = children.saturating_add(process.children.saturating_sub(known_children));
            self.known.insert(key, (process.own, process.children));
        }
        // The time of a process that has ended is now part of its parent's, if the parent has waited
        // for it.
        let ended = before.values().map(|(own, children)| own.saturating_add(*children));
        let ended = ended.fold(0, u64::saturating_add);
        self.total = self.total.saturating_add(own).saturating_add(children.saturating_sub(ended));
        self.total
    }
}

/// The processor time of the last seconds.
#[derive(Debug, Default)]
struct CpuShare(VecDeque<(Instant, u64)>);

impl CpuShare {
    /// Adds a measurement. Returns the share of a core over the last `window`, or `None` before the
    /// first window is over.
    fn add(&mut self, now: Instant, ticks: u64, window: Duration) -> Option<f64> {
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

/// Measures one agent while it runs.
#[derive(Debug)]
pub(super) struct Meter {
    /// The leader of the process group: the agent, or its guard.
    leader: u32,
    limits: Limits,
    data: PathBuf,
    window: Duration,
    reserve: Option<u64>,
    time: ProcessorTime,
    share: CpuShare,
    /// When the data folder may be measured again.
    next_walk: Instant,
}

impl Meter {
    /// Prepares to measure the process group of `leader`. `window` is the time over which the use of the
    /// processor is averaged, and `reserve` that of [`is_nearly_full`].
    pub(super) fn new(
        leader: u32,
        limits: Limits,
        data: &Path,
        window: Duration,
        reserve: Option<u64>,
    ) -> Self {
        Self {
            leader,
            limits,
            data: data.to_owned(),
            window,
            reserve,
            time: ProcessorTime::default(),
            share: CpuShare::default(),
            next_walk: Instant::now(),
        }
    }

    /// Measures the agent. Returns the limit that it exceeds.
    pub(super) fn exceeded(&mut self) -> Option<StopReason> {
        let Limits { memory, cpu_permille, storage, processes: count, .. } = self.limits;
        let is_group = count > 1;
        let (leader, guards) = (self.leader, u32::from(is_group));
        let all = if is_group {
            processes(|_, process| process.group == leader)
        } else {
            Process::read(Path::new(&format!("/proc/{leader}"))).into_iter().collect()
        };
        let used = all.iter().map(|process| match process.live_thread() {
            Some((_, thread)) if process.is_zombie && process.threads > 1 => thread.memory,
            _ => process.memory,
        });
        let used: u64 = used.fold(0, u64::saturating_add);
        let now = Instant::now();
        let cpu = self.share.add(now, self.time.add(&all), self.window);
        if all.len() > count.saturating_add(guards) as usize {
            return Some(StopReason::TooManyProcesses);
        }
        if used > memory.saturating_add(GUARD_MEMORY * u64::from(guards)) {
            return Some(StopReason::MemoryExceeded);
        }
        if cpu.is_some_and(|cpu| cpu * 1000.0 > f64::from(cpu_permille)) {
            return Some(StopReason::CpuExceeded);
        }
        if is_nearly_full(&self.data, self.reserve) {
            return Some(StopReason::DiskNearlyFull);
        }
        if now < self.next_walk {
            return None;
        }
        let in_folder = data_folder::size(&self.data, storage);
        let guard = is_group.then_some(leader);
        let agents = all.iter().filter(|process| Some(process.id) != guard);
        let is_over =
            in_folder > storage || in_folder.saturating_add(deleted(agents, &self.data)) > storage;
        self.next_walk = Instant::now() + now.elapsed() * WALKING;
        is_over.then_some(StopReason::StorageExceeded)
    }
}

/// Returns whether the file system of a folder has less free space than `reserve`, or if there is no
/// reserve than 3 % of its size and 64 MiB. Returns `false` if this is not known.
pub(super) fn is_nearly_full(folder: &Path, reserve: Option<u64>) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|found| {
        let size = found.f_blocks.saturating_mul(found.f_frsize);
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        free < reserve.unwrap_or((size / 32).min(64 << 20))
    })
}

/// Returns the size of the deleted files that processes keep open or mapped, in bytes. A file whose size
/// is not known, and a process that cannot be inspected, are [`TOO_LARGE`].
fn deleted<'p>(processes: impl Iterator<Item = &'p Process>, data: &Path) -> u64 {
    if !launcher::can_inspect() {
        return 0;
    }
    let mut held = Held { data: escaped(data), size: 0, seen: HashSet::new() };
    for process in processes {
        let Some((folder, _)) = process.live_thread() else { continue };
        match held.add(process.id, &folder) {
            Err(error) if !has_ended(&error) => return TOO_LARGE,
            _ => {}
        }
    }
    held.size
}

/// Returns whether an error states that the process has ended.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Returns the beginning of the paths below a folder, as the list of mappings writes them.
fn escaped(data: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in data.as_os_str().as_bytes() {
        match byte {
            b'\n' => escaped.extend(b"\\012"),
            byte => escaped.push(*byte),
        }
    }
    escaped.push(b'/');
    escaped
}

/// The deleted files that were found.
struct Held {
    /// The beginning of the paths in the data folder.
    data: Vec<u8>,
    /// The sum of the sizes, in bytes.
    size: u64,
    /// The numbers of the files that are counted.
    seen: HashSet<u64>,
}

impl Held {
    fn count(&mut self, found: &fs::Metadata) {
        if found.is_file() && found.nlink() == 0 && self.seen.insert(found.ino()) {
            self.size = self.size.saturating_add(found.blocks().saturating_mul(512));
        }
    }

    /// Adds the files of one process. `thread` is the folder in `/proc` of one of its threads.
    fn add(&mut self, process: u32, thread: &Path) -> io::Result<()> {
        for entry in fs::read_dir(thread.join("fd"))? {
            match fs::metadata(entry?.path()) {
                Ok(found) => self.count(&found),
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let mut mappings = Vec::new();
        fs::File::open(thread.join("maps"))?.take(MAX_MAPPINGS).read_to_end(&mut mappings)?;
        if mappings.len() as u64 == MAX_MAPPINGS {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        for line in mappings.split(|byte| *byte == b'\n') {
            let Some((range, file)) = deleted_mapping(line, &self.data) else { continue };
            if self.seen.contains(&file) {
                continue;
            }
            // Only root may look at the file itself.
            match fs::metadata(format!("/proc/{process}/map_files/{range}")) {
                Ok(found) => self.count(&found),
                Err(error) if has_ended(&error) && !thread.exists() => {}
                Err(_) => self.size = TOO_LARGE,
            }
        }
        Ok(())
    }
}

/// Returns the range of addresses and the number of the file of a line of `/proc/PID/maps`, if the file
/// was deleted and its path starts with `data`.
fn deleted_mapping<'l>(line: &'l [u8], data: &[u8]) -> Option<(&'l str, u64)> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let range = std::str::from_utf8(fields.next()?).ok()?;
    let file = std::str::from_utf8(fields.nth(3)?).ok()?.parse().ok()?;
    let path = fields.next()?.trim_ascii_start();
    (path.starts_with(data) && path.ends_with(b" (deleted)")).then_some((range, file))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_name_of_a_program_does_not_confuse_the_statistics() {
        let stat =
            "71 (a) R 1 2 (b) S 1 70 70 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 2 0 5 6000 50 18446";
        let process = Process::parse(stat).unwrap();
        let expected = Process {
            id: 71,
            is_zombie: false,
            group: 70,
            own: 30,
            children: 70,
            threads: 2,
            started: 5,
            memory: 50 * PAGE,
        };
        assert_eq!(process, expected);
        assert_eq!(Process::parse("71 (a"), None);
        assert_eq!(Process::parse(""), None);
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
    fn processor_time_does_not_vanish_with_a_process() {
        let process = |id, own, children| {
            let stat =
                format!("{id} (a) R 1 1 1 0 -1 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 5 0 1");
            Process::parse(&stat).unwrap()
        };
        let mut time = ProcessorTime::default();
        assert_eq!(time.add(&[process(1, 10, 0), process(2, 50, 0)]), 60);
        assert_eq!(time.add(&[process(1, 10, 70)]), 80, "2 has used 20 more, and 1 has waited");
        assert_eq!(time.add(&[process(1, 10, 70), process(3, 90, 0)]), 170);
        assert_eq!(time.add(&[process(1, 15, 70)]), 175, "nobody has waited for 3");
        assert_eq!(time.add(&[process(1, 15, 70), process(3, 5, 0)]), 180, "another process 3");
        let restarted = Process { started: 9, ..process(3, 1, 0) };
        assert_eq!(time.add(&[process(1, 15, 70), restarted]), 181, "it has the same id");
    }

    #[test]
    fn only_deleted_files_of_the_data_folder_count_as_mapped() {
        let data = escaped(Path::new("/a b/data\n"));
        let line = |path: &str| format!("7f00-7f01 r--s 00001000 fe:01 42                 {path}");
        let found = |path: &str| {
            let line = line(path);
            deleted_mapping(line.as_bytes(), &data).map(|(range, file)| (range.to_owned(), file))
        };
        assert_eq!(found("/a b/data\\012/x (deleted)"), Some(("7f00-7f01".to_owned(), 42)));
        assert_eq!(found("/a b/data\\012/x"), None);
        assert_eq!(found("/usr/lib/x (deleted)"), None);
        assert_eq!(deleted_mapping(b"7f00-7f01 rw-p 00000000 00:00 0 ", &data), None);
        assert_eq!(deleted_mapping(b"", &data), None);
    }

    #[test]
    fn the_user_of_a_process_is_its_real_one() {
        let status = "Name:\ta\nUid:\t64000\t1\t1\t1\nGid:\t5\t5\t5\t5\n";
        assert!(is_of_user(status, 64_000));
        assert!(!is_of_user(status, 1));
        assert!(!is_of_user("", 0));
    }
}
