//! Notices that a file was replaced or changed, so that a service can load it again while it runs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often the file is looked up.
const INTERVAL: Duration = Duration::from_secs(1);
/// For how long after a change another change may have the same time. File systems record times in
/// steps: of a few milliseconds on local disks, and of up to two seconds on network and FAT file
/// systems.
const STEP: Duration = Duration::from_secs(2);

/// The properties of a file that change when the file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    modified: Option<SystemTime>,
    /// When the content or the properties of the file last changed, as seconds and nanoseconds
    /// since 1970. A program cannot set this time. It is 0 on systems that do not have it.
    changed: (i64, i64),
    length: u64,
    /// The number of the file in its file system; 0 where there is none.
    inode: u64,
}

impl FileState {
    /// Looks up a file.
    ///
    /// # Errors
    /// The errors of the operating system, for example if the file does not exist.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        #[cfg(unix)]
        let (changed, inode) = {
            use std::os::unix::fs::MetadataExt as _;
            ((found.ctime(), found.ctime_nsec()), found.ino())
        };
        #[cfg(not(unix))]
        let (changed, inode) = ((0, 0), 0);
        Ok(Self { modified: found.modified().ok(), changed, length: found.len(), inode })
    }

    /// Returns whether the file may change after `now` without a change of this value, because its
    /// last change was less than two seconds ago. This also holds if the clock was set back.
    #[must_use]
    pub fn is_recent(&self, now: SystemTime) -> bool {
        let since_1970 = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
        let changed = u64::try_from(self.changed.0).ok().map(Duration::from_secs);
        let last = changed.max(self.modified.and_then(since_1970)).unwrap_or_default();
        since_1970(now).unwrap_or_default() < last.saturating_add(STEP)
    }
}

/// Watches a file by looking it up at intervals. This also works on file systems that report no
/// changes, for example on network file systems and in containers.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    seen: Option<FileState>,
    /// Whether the file may have changed after it was looked up, without a change of its state.
    may_differ: bool,
}

impl FileWatch {
    /// Starts to watch a file. The caller reads the file after this call, so that no change is
    /// missed.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        let seen = FileState::of(&path).ok();
        Self { path, seen, may_differ: true }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks the file up. Returns whether it has changed since the last call, or may have: a file that was changed
    /// less than two seconds before the last call may have changed again without a trace. A file that does not
    /// exist has not changed.
    #[must_use]
    pub fn has_changed(&mut self) -> bool {
        let Ok(now) = FileState::of(&self.path) else { return false };
        let has_changed = self.may_differ || self.seen != Some(now);
        self.seen = Some(now);
        self.may_differ = now.is_recent(SystemTime::now());
        has_changed
    }

    /// Completes when the file has changed since the last call, or when the process receives
    /// SIGHUP. A file that does not exist has not changed.
    pub async fn changed(&mut self) {
        #[cfg(unix)]
        let mut hangup =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
        loop {
            let tick = tokio::time::sleep(INTERVAL);
            #[cfg(unix)]
            let is_asked = match &mut hangup {
                Some(hangup) => tokio::select! {
                    _ = hangup.recv() => true,
                    () = tick => false,
                },
                None => {
                    tick.await;
                    false
                }
            };
            #[cfg(not(unix))]
            let is_asked = {
                tick.await;
                false
            };
            let now = FileState::of(&self.path).ok();
            if now.is_some() && (is_asked || now != self.seen) {
                self.seen = now;
                return;
            }
        }
    }
}
