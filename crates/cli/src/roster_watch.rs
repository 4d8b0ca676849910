//! Loads later versions of a roster while a service or a device runs: when the roster's file
//! changes, and when the process receives SIGHUP.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use moteseal_service::FileWatch;
use moteseal_verify::Roster;
use tokio::sync::watch;
use tracing::{debug, error};

use crate::failure::{Exit, Failure};
use crate::files;

/// How long to wait before a version that was refused is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// The file of a roster in use.
pub(crate) struct RosterWatch {
    file: FileWatch,
    /// The file of the group's tree of aggregators, for a party of private sums.
    tree: Option<FileWatch>,
    operator: PathBuf,
    newest: watch::Sender<Arc<Roster>>,
}

impl RosterWatch {
    /// Reads a roster and starts to watch its file. `operator` is the path of the operator's public
    /// key.
    ///
    /// # Errors
    /// A failure if the roster cannot be read or verified.
    pub(crate) fn open(path: PathBuf, operator: PathBuf) -> Result<(Self, Roster), Failure> {
        let file = FileWatch::new(path);
        let roster = files::roster(file.path(), &operator)?;
        let (newest, _) = watch::channel(Arc::new(roster.clone()));
        Ok((Self { file, tree: None, operator, newest }, roster))
    }

    /// Also watches the file of the group's tree. Call this before the tree is read.
    #[must_use]
    pub(crate) fn with_tree(mut self, tree: PathBuf) -> Self {
        self.tree = Some(FileWatch::new(tree));
        self
    }

    /// Completes when the roster's file or the tree's file has changed. Returns whether the tree's
    /// file has.
    async fn changed(&mut self) -> bool {
        let Some(tree) = &mut self.tree else {
            self.file.changed().await;
            return false;
        };
        tokio::select! {
            () = self.file.changed() => false,
            () = tree.changed() => true,
        }
    }

    /// Returns a channel with the newest version of the roster.
    pub(crate) fn rosters(&self) -> watch::Receiver<Arc<Roster>> {
        self.newest.subscribe()
    }

    /// Reads the file again whenever it changes, until the returned future is dropped. A later
    /// version of the roster goes to [`rosters`](Self::rosters). `accept` can refuse it. Anything
    /// else is logged and ignored. If only the tree's file has changed, `accept` is called with the
    /// version in use. A version that `accept` refused is tried again at intervals, because the
    /// reason may be gone, for example if a disk was full.
    pub(crate) async fn run(mut self, mut accept: impl FnMut(&Roster) -> Result<(), Failure>) {
        let mut refused: Option<String> = None;
        loop {
            let is_tree = tokio::select! {
                is_tree = self.changed() => {
                    refused = None;
                    is_tree
                }
                () = tokio::time::sleep(RETRY), if refused.is_some() => self.tree.is_some(),
            };
            let path = self.file.path().display().to_string();
            let roster = match files::roster(self.file.path(), &self.operator) {
                Ok(roster) => roster,
                Err(failure) => {
                    error!(
                        roster = path,
                        "{failure}; the service continues with the version in use"
                    );
                    continue;
                }
            };
            let current = Arc::clone(&self.newest.borrow());
            let is_current = roster.digest() == current.digest();
            if is_current && !is_tree {
                debug!(roster = path, "the file has the version in use");
                continue;
            }
            let succeeds = if is_current { Ok(()) } else { roster.check_succeeds(&current) };
            let accepted = succeeds
                .map_err(|error| Failure::named(Exit::Usage, error.named()))
                .and_then(|()| accept(&roster));
            if let Err(failure) = accepted {
                let reason = Some(failure.to_string());
                if refused == reason {
                    continue;
                }
                refused = reason;
                let (is, was) = (roster.version(), current.version());
                error!(
                    roster = path,
                    version = is,
                    in_use = was,
                    "{failure}; the service continues with the version in use"
                );
                continue;
            }
            refused = None;
            if !is_current {
                self.newest.send_replace(Arc::new(roster));
            }
        }
    }
}
