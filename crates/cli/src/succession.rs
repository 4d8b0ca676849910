//! Records the roster under which a state (a cloud's store, a coordinator's journal) was written,
//! in a file next to the state. Only that roster or a later version of it may continue the state
//! (spec/formats.md, section 2.2).
//!
//! Seals of earlier versions are checked under the current one: with another epoch duration, number
//! of levels or budget, honest epochs would fail. The record is the roster itself, with the
//! operator's signature, which is verified again.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use moteseal_verify::Roster;

use crate::failure::Failure;
use crate::files;

/// The record of a state, and the roster that continues it.
pub(crate) struct Succession<'a> {
    record: PathBuf,
    roster: &'a Roster,
    /// Whether the record is already this roster.
    is_recorded: bool,
}

impl<'a> Succession<'a> {
    /// For a state that does not exist yet.
    pub(crate) const fn start(record: PathBuf, roster: &'a Roster) -> Self {
        Self { record, roster, is_recorded: false }
    }

    /// Checks that a roster, read from `path`, is the recorded one or a later version of it.
    /// `operator` is the path of the operator's public key. Any roster passes if there is no
    /// record.
    ///
    /// # Errors
    /// Usage, with a line that names what changed. Any failure to read and verify the record.
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
                    "{}: {} (it is version {is}; {state} is version {was})",
                    path.display(),
                    error.named()
                ))
            })?;
        }
        Ok(Self { record, roster, is_recorded })
    }

    /// Records the roster. Call it last: once the state exists and every other check has passed.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) fn record(self) -> Result<(), Failure> {
        if self.is_recorded {
            return Ok(());
        }
        let temporary = files::temporary_path(&self.record);
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
