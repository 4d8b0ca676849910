//! Records the roster with which a state was written, in a file next to the state. A state is a
//! cloud's store or a coordinator's journal. Only the recorded roster or a later version of it may
//! continue the state (spec/objects.md, section 4).
//!
//! All seals in the state are checked with the current roster. If its epoch duration, number of
//! levels or budget differed, honest epochs would fail the checks. The record is the roster itself
//! with the operator's signature, which is verified when the record is read.

use std::path::{Path, PathBuf};

use moteseal_verify::Roster;

use crate::failure::{Exit, Failure};
use crate::files;

/// The record of a state, and the roster that is about to continue the state.
pub(crate) struct Succession<'a> {
    record: PathBuf,
    roster: &'a Roster,
    /// The recorded roster, if there is one.
    before: Option<Roster>,
}

impl<'a> Succession<'a> {
    /// Returns the succession of a state that does not exist yet.
    pub(crate) const fn start(record: PathBuf, roster: &'a Roster) -> Self {
        Self { record, roster, before: None }
    }

    /// Returns the roster with which the state was written, if there is one.
    pub(crate) const fn before(&self) -> Option<&Roster> {
        self.before.as_ref()
    }

    /// Checks that a roster, which was read from `path`, is the recorded roster or a later version
    /// of it. `operator` is the path of the operator's public key. If there is no record, every
    /// roster passes.
    ///
    /// # Errors
    /// A usage failure whose message states what changed, or any failure to read and verify the
    /// record.
    pub(crate) fn check(
        record: PathBuf,
        roster: &'a Roster,
        path: &Path,
        operator: &Path,
    ) -> Result<Self, Failure> {
        if !record.exists() {
            return Ok(Self::start(record, roster));
        }
        // The record of the roster in use was verified when this roster was opened.
        let is_current = *files::read(&record)? == *roster.bytes();
        let before = if is_current { roster.clone() } else { files::roster(&record, operator)? };
        if before.digest() != roster.digest() {
            roster.check_succeeds(&before).map_err(|error| {
                let (is, was) = (roster.version(), before.version());
                let state = record.display();
                Failure::named(Exit::Usage, error.named())
                    .with(format_args!(" (it is version {is}; {state} is version {was})"))
                    .about(path)
            })?;
        }
        Ok(Self { record, roster, before: Some(before) })
    }

    /// Records the roster. Call this last, once the state exists and every other check has passed.
    ///
    /// # Errors
    /// A failure if the record cannot be written.
    pub(crate) fn record(self) -> Result<(), Failure> {
        if self.before.is_some_and(|before| before.digest() == self.roster.digest()) {
            return Ok(());
        }
        record_roster(&self.record, self.roster)
    }
}

/// Records a later version of the roster of a state in use.
///
/// # Errors
/// A failure if the record cannot be written.
pub(crate) fn record_roster(record: &Path, roster: &Roster) -> Result<(), Failure> {
    moteseal_files::remove_abandoned(record);
    moteseal_files::replace(record, roster.bytes(), 0o644)
        .map_err(|error| Failure::file("write", record, &error))
}
