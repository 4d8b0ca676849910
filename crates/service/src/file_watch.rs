//! Notices that a file was replaced or changed, so that a service can load it again while it runs.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often the file is looked up.
const INTERVAL: Duration = Duration::from_secs(1);

/// The properties of a file that change when the file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    modified: Option<SystemTime>,
    length: u64,
    /// The number of the file in its file system; 0 where there is none.
    inode: u64,
}

/// Watches a file by looking it up at intervals. This also works on file systems that report no
/// changes, for example on network file systems and in containers.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    seen: Option<State>,
}

impl FileWatch {
    /// Starts to watch a file. The caller reads the file after this call, so that no change is
    /// missed.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        let seen = state(&path);
        Self { path, seen }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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
            let now = state(&self.path);
            if now.is_some() && (is_asked || now != self.seen) {
                self.seen = now;
                return;
            }
        }
    }
}

fn state(path: &Path) -> Option<State> {
    let found = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&found);
    #[cfg(not(unix))]
    let inode = 0;
    Some(State { modified: found.modified().ok(), length: found.len(), inode })
}
