//! Loads later versions of the policy of private sums while a device runs, when the policy's file
//! changes. The state of the device has a copy of the newest version, so that an earlier version is
//! refused after a restart, too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use moteseal_client::sum::PolicyFile;
use moteseal_service::FileWatch;
use moteseal_verify::Roster;
use tokio::sync::watch;
use tracing::{error, info};

use crate::client_error;
use crate::failure::{Exit, Failure};

/// How long to wait before a policy that was refused is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// The file of a policy in use.
pub(crate) struct PolicyWatch {
    file: FileWatch,
    roster: Roster,
    operator: PathBuf,
    record: PathBuf,
    newest: PolicyFile,
    payloads: watch::Sender<Vec<u8>>,
}

impl PolicyWatch {
    /// Reads a policy and starts to watch its file. `operator` is the path of the operator's public
    /// key, and `record` the path of the copy.
    ///
    /// # Errors
    /// A failure if the policy cannot be read or verified, or if its version is lower than that of
    /// the copy.
    pub(crate) fn open(
        path: PathBuf,
        roster: &Roster,
        operator: PathBuf,
        record: PathBuf,
    ) -> Result<Self, Failure> {
        let file = FileWatch::new(path);
        let newest = read(file.path(), roster, &operator)?;
        if record.try_exists().map_err(|error| Failure::file("read", &record, &error))? {
            let before = read(&record, roster, &operator)?;
            check(&newest, &before).map_err(|failure| failure.about(file.path()))?;
        }
        let (payloads, _) = watch::channel(newest.payload().to_vec());
        Ok(Self { file, roster: roster.clone(), operator, record, newest, payloads })
    }

    /// Returns the payload of the policy in use.
    pub(crate) fn payload(&self) -> Vec<u8> {
        self.newest.payload().to_vec()
    }

    /// Writes the copy. Call this once the state exists.
    ///
    /// # Errors
    /// A failure if the copy cannot be written.
    pub(crate) fn record(&self) -> Result<(), Failure> {
        write(&self.record, &self.newest)
    }

    /// Returns a channel with the payload of the newest version.
    pub(crate) fn payloads(&self) -> watch::Receiver<Vec<u8>> {
        self.payloads.subscribe()
    }

    /// Reads the file again whenever it changes, until the returned future is dropped. A later
    /// version goes to [`payloads`](Self::payloads) after its copy is durable. Anything else is
    /// logged and ignored.
    pub(crate) async fn run(mut self) {
        let mut refused: Option<String> = None;
        loop {
            tokio::select! {
                () = self.file.changed() => refused = None,
                () = tokio::time::sleep(RETRY), if refused.is_some() => {}
            }
            let path = self.file.path().display().to_string();
            let found = read(self.file.path(), &self.roster, &self.operator);
            let accepted = found.and_then(|found| {
                if found.bytes() == self.newest.bytes() {
                    return Ok(None);
                }
                check(&found, &self.newest)?;
                write(&self.record, &found)?;
                Ok(Some(found))
            });
            match accepted {
                Ok(Some(found)) => {
                    info!(
                        policy = path,
                        version = found.version(),
                        "loaded a later version of the policy"
                    );
                    self.payloads.send_replace(found.payload().to_vec());
                    self.newest = found;
                    refused = None;
                }
                Ok(None) => refused = None,
                // Try again later: the reason may be gone, for example if the disk was full.
                Err(failure) if refused == Some(failure.to_string()) => {}
                Err(failure) => {
                    error!(
                        policy = path,
                        in_use = self.newest.version(),
                        "{failure}; the device continues with the version in use"
                    );
                    refused = Some(failure.to_string());
                }
            }
        }
    }
}

fn read(path: &Path, roster: &Roster, operator: &Path) -> Result<PolicyFile, Failure> {
    PolicyFile::read(path, roster, operator).map_err(|error| client_error::input(&error))
}

/// Checks that a policy can replace the one before it.
fn check(found: &PolicyFile, before: &PolicyFile) -> Result<(), Failure> {
    if found.version() > before.version() || found.bytes() == before.bytes() {
        return Ok(());
    }
    let text = format_args!(
        "the policy has version {}, and version {} was in use before; sign it with a higher version",
        found.version(),
        before.version()
    );
    Err(Failure::new(Exit::Usage, text).with_name("OlderPolicy"))
}

fn write(record: &Path, policy: &PolicyFile) -> Result<(), Failure> {
    moteseal_files::remove_abandoned(record);
    moteseal_files::replace(record, policy.bytes(), moteseal_files::PRIVATE)
        .map_err(|error| Failure::file("write", record, &error))
}
