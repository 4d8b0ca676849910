//! Writes a redacted proof, and verifies it while it is written.

use std::path::Path;

use moteseal_core::digest::Digest;
use moteseal_core::record::DeviceId;
use moteseal_seal::stream::Open;
use moteseal_verify::{Roster, write};

use super::part::OwnedPart;
use super::{FEW_READINGS, Guessable, RedactError};
use crate::completeness::Report;
use crate::error::Error;
use crate::proof::{ProofWriter, Scope};
use crate::rows::NoRows;
use crate::sanitised::Accepted;
use crate::session::{PIECE, Session, all_threads};

/// A proof that is being written.
pub(super) struct Output<'r> {
    roster: &'r Roster,
    writer: ProofWriter,
    /// Verifies what is written.
    session: Session<'r>,
    /// The bytes that have not been written yet.
    bytes: Vec<u8>,
    /// The schema of the newest part.
    schema: Option<Digest>,
    /// The device and the digest of the newest seal.
    newest: Option<(DeviceId, Digest)>,
    guessable: Guessable,
}

impl<'r> Output<'r> {
    pub(super) fn create(path: &Path, scope: &Scope, roster: &'r Roster) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        write::proof(&mut bytes, &scope.encode(roster));
        Ok(Self {
            roster,
            writer: ProofWriter::create(path)?,
            session: Session::of_proof(roster, None)
                .with_threads(all_threads())
                .accepting(Accepted::All),
            bytes,
            schema: None,
            newest: None,
            guessable: Guessable::default(),
        })
    }

    /// Writes a manifest, which must be before all parts.
    pub(super) fn manifest(&mut self, manifest: &[u8]) {
        write::manifest(&mut self.bytes, manifest);
    }

    /// Writes consecutive seals, of which the last one is signed, from the first one on that the proof
    /// must show. Writes nothing if there is none.
    pub(super) fn run(&mut self, run: Vec<(OwnedPart, bool)>) -> Result<(), Error> {
        for (part, _) in run.into_iter().skip_while(|(_, is_shown)| !is_shown) {
            self.part(&part)?;
        }
        Ok(())
    }

    fn part(&mut self, part: &OwnedPart) -> Result<(), Error> {
        let statement = part.seal.statement();
        if self.schema != Some(statement.schema) {
            self.schema = Some(statement.schema);
            write::schema(&mut self.bytes, &part.schema.whole().bytes);
        }
        if self.newest != Some((statement.device, statement.prev)) {
            // The seal has been verified, so its roster is one of the versions.
            let roster_version = self.roster.version_of(&statement.roster).unwrap_or_default();
            let (prev, last) = (Some(statement.prev), statement.last);
            write::open(
                &mut self.bytes,
                &Open { device: statement.device, roster_version, prev, last },
            );
        }
        if part.fewest_omitted().is_some_and(|number| number < FEW_READINGS) {
            self.guessable.seals += 1;
            let place = (statement.device, statement.index, statement.epoch);
            self.guessable.first.get_or_insert(place);
        }
        part.write(&mut self.bytes);
        self.newest = Some((statement.device, part.seal.digest()));
        if self.bytes.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Returns whether no part has been written.
    pub(super) const fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.writer.write(&self.bytes)?;
        self.session.feed(&self.bytes, &mut NoRows)?;
        self.bytes.clear();
        Ok(())
    }

    /// Returns the seals with few omitted readings so far.
    pub(super) const fn guessable(&self) -> Guessable {
        self.guessable
    }

    /// Ends the proof. The file appears if all of it has been verified. Returns the report of the
    /// verification.
    pub(super) fn finish(mut self) -> Result<Report, Error> {
        if self.is_empty() {
            return Err(RedactError::NothingLeft.into());
        }
        write::end(&mut self.bytes);
        self.flush()?;
        let (report, _) = self.session.finish(&mut NoRows)?;
        self.writer.settle()?;
        self.writer.keep()?;
        Ok(report)
    }
}
