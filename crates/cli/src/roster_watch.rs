//! Loads later versions of a roster while a service or a device runs: when the roster's file
//! changes, and when the process receives SIGHUP.

use std::path::PathBuf;
use std::sync::Arc;

use moteseal_service::FileWatch;
use moteseal_verify::Roster;
use tokio::sync::watch;
use tracing::{debug, error};

use crate::failure::{Exit, Failure};
use crate::files;

/// The file of a roster in use.
pub(crate) struct RosterWatch {
    file: FileWatch,
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
        Ok((Self { file, operator, newest }, roster))
    }

    /// Returns a channel with the newest version of the roster.
    pub(crate) fn rosters(&self) -> watch::Receiver<Arc<Roster>> {
        self.newest.subscribe()
    }

    /// Reads the file again whenever it changes, until the returned future is dropped. A later
    /// version of the roster goes to [`rosters`](Self::rosters). `accept` can refuse it. Anything
    /// else is logged and ignored.
    pub(crate) async fn run(mut self, mut accept: impl FnMut(&Roster) -> Result<(), Failure>) {
        loop {
            self.file.changed().await;
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
            if roster.digest() == current.digest() {
                debug!(roster = path, "the file has the version in use");
                continue;
            }
            let accepted = roster
                .check_succeeds(&current)
                .map_err(|error| Failure::named(Exit::Usage, error.named()))
                .and_then(|()| accept(&roster));
            if let Err(failure) = accepted {
                let (is, was) = (roster.version(), current.version());
                error!(
                    roster = path,
                    version = is,
                    in_use = was,
                    "{failure}; the service continues with the version in use"
                );
                continue;
            }
            self.newest.send_replace(Arc::new(roster));
        }
    }
}
