//! Under which roster a state was kept: recorded beside it, so that only that roster or a later version goes on with it (spec/formats.md,
//! section 2.2).
//!
//! What was sealed under the versions before is judged by the one at hand: with another epoch length, other levels or another budget, honest
//! epochs would be found wrong. The record is the roster itself, signed by the operator. It is not trusted with more than that.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use moteseal_verify::Roster;

use crate::failure::Failure;
use crate::files;

/// The record beside a state, and the roster that is to go on with it.
pub(crate) struct Succession<'a> {
    record: PathBuf,
    roster: &'a Roster,
    /// The record is this roster already.
    is_recorded: bool,
}

impl<'a> Succession<'a> {
    /// For a state that is not there yet.
    pub(crate) const fn start(record: PathBuf, roster: &'a Roster) -> Self {
        Self { record, roster, is_recorded: false }
    }

    /// Refuses a roster, read from `path`, that is neither the recorded one nor a later version of it. `operator` is the operator's public key
    /// file. Where nothing is recorded, nothing is known to contradict it.
    ///
    /// # Errors
    /// A line that names what changed.
    pub(crate) fn check(
        record: PathBuf,
        roster: &'a Roster,
        path: &Path,
        operator: &Path,
    ) -> Result<Self, Failure> {
        if !record.exists() {
            return Ok(Self::start(record, roster));
        }
        let before = files::roster(&record, operator)?;
        let is_recorded = before.digest() == roster.digest();
        if !is_recorded {
            roster.check_succeeds(&before).map_err(|error| {
                let (is, was) = (roster.version(), before.version());
                let state = record.display();
                Failure::usage(format_args!(
                    "{}: {}: {error} (version {is} here, version {was} in {state})",
                    path.display(),
                    error.name()
                ))
            })?;
        }
        Ok(Self { record, roster, is_recorded })
    }

    /// Records the roster, once the state is there and nothing else is wrong.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn record(self) -> Result<(), Failure> {
        if self.is_recorded {
            return Ok(());
        }
        let temporary = files::beside(&self.record);
        let written = (|| {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o644)
                .open(&temporary)?;
            file.write_all(self.roster.bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &self.record)?;
            let folder = self
                .record
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            fs::File::open(folder)?.sync_all()
        })();
        written.map_err(|error| {
            let _ = fs::remove_file(&temporary);
            Failure::file("write", &self.record, &error)
        })
    }
}
