//! The inbox: packages that arrive as files. The hub installs them and removes them. A refused
//! package stays with another name, for its owner to look at.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use moteseal_api::NamedError as _;
use moteseal_device::broadcast::AGENT_SUFFIX as SUFFIX;
use moteseal_service::LogLimit;
use moteseal_service::log_limit::cut;
use tracing::{info, warn};

use super::error::{AgentError, PackageError};
use super::store::{Installed, Store};

/// The name of the inbox in the hub's state folder.
pub const INBOX: &str = "inbox";
/// The end of the names of refused packages.
const REFUSED: &str = ".agent.refused";
/// The maximum number of refused packages that are kept.
const MAX_REFUSED: usize = 8;
/// The maximum number of packages that are installed in one pass.
const MAX_AT_ONCE: usize = 64;

/// Returns whether a file name, or the label of a chain, is that of a package.
#[must_use]
pub fn is_package_name(name: &str) -> bool {
    !name.starts_with('.') && name.len() > SUFFIX.len() && name.ends_with(SUFFIX)
}

/// Installs all packages of the inbox. Returns what was installed.
pub(super) fn process(inbox: &Path, store: &Store, log: &LogLimit<&'static str>) -> Vec<Installed> {
    let mut packages: Vec<PathBuf> = entries(inbox, is_package_name);
    packages.sort_unstable();
    packages.truncate(MAX_AT_ONCE);
    let mut installed = Vec::new();
    for path in packages {
        match install(&path, store) {
            Ok(done) => {
                info!(package = %path.display(), ?done, "installed an agent");
                installed.push(done);
                let _ = fs::remove_file(&path);
            }
            // The disk may be full. The package is tried again.
            Err(error @ (AgentError::Io(..) | AgentError::Package(PackageError::Io(..)))) => {
                if log.allows("AgentFileFailed") {
                    warn!(%error, "an agent cannot be installed at the moment");
                }
            }
            Err(error) => {
                let error = error.named().to_string();
                warn!(package = %path.display(), error = %cut(&error), "refused an agent");
                refuse(inbox, &path);
            }
        }
    }
    installed
}

fn install(path: &Path, store: &Store) -> Result<Installed, AgentError> {
    // Only regular files: opening a pipe would block.
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        return Err(PackageError::NotAFile(path.to_owned()).into());
    }
    let file = File::open(path).map_err(AgentError::at(path))?;
    store.install(file, path, false)
}

/// Renames a refused package, and removes the oldest ones.
fn refuse(inbox: &Path, path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(SUFFIX).unwrap_or(&name);
    if fs::rename(path, inbox.join(format!("{stem}{REFUSED}"))).is_err() {
        let _ = fs::remove_file(path);
    }
    let mut refused = entries(inbox, |name| name.ends_with(REFUSED));
    refused.sort_by_key(|path| fs::metadata(path).and_then(|found| found.modified()).ok());
    let surplus = refused.len().saturating_sub(MAX_REFUSED);
    for path in &refused[..surplus] {
        let _ = fs::remove_file(path);
    }
}

fn entries(folder: &Path, is_meant: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(&is_meant))
        .map(|entry| entry.path())
        .collect()
}
