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

/// Encodes the items of a proof: the parts, and the schema and open items that they need.
#[derive(Debug)]
pub(super) struct Encoder<'r> {
    roster: &'r Roster,
    /// The bytes that the caller has not taken yet.
    pub(super) bytes: Vec<u8>,
    /// The schema of the newest part.
    schema: Option<Digest>,
    /// The device and the roster of the newest seal, and the digest of the seal.
    newest: Option<(DeviceId, Digest, Digest)>,
}

impl<'r> Encoder<'r> {
    /// Starts a proof with this scope.
    pub(super) fn new(scope: &Scope, roster: &'r Roster) -> Self {
        let mut bytes = Vec::new();
        write::proof(&mut bytes, &scope.encode(roster));
        Self { roster, bytes, schema: None, newest: None }
    }

    pub(super) fn part(&mut self, part: &OwnedPart) {
        let statement = part.seal.statement();
        if self.schema != Some(statement.schema) {
            self.schema = Some(statement.schema);
            write::schema(&mut self.bytes, &part.schema.whole().bytes);
        }
        if self.newest != Some((statement.device, statement.roster, statement.prev)) {
            // The seal has been verified, so its roster is one of the versions.
            let roster_version = self.roster.version_of(&statement.roster).unwrap_or_default();
            let (prev, last) = (Some(statement.prev), statement.last);
            write::open(
                &mut self.bytes,
                &Open { device: statement.device, roster_version, prev, last },
            );
        }
        part.write(&mut self.bytes);
        self.newest = Some((statement.device, statement.roster, part.seal.digest()));
    }

    /// Returns whether there has been no part.
    const fn is_empty(&self) -> bool {
        self.newest.is_none()
    }
}

/// A proof that is being written.
pub(super) struct Output<'r> {
    encoder: Encoder<'r>,
    writer: ProofWriter,
    /// Verifies what is written.
    session: Session<'r>,
    guessable: Guessable,
}

impl<'r> Output<'r> {
    pub(super) fn create(path: &Path, scope: &Scope, roster: &'r Roster) -> Result<Self, Error> {
        Ok(Self {
            encoder: Encoder::new(scope, roster),
            writer: ProofWriter::create(path)?,
            session: Session::of_proof(roster, None)
                .with_threads(all_threads())
                .accepting(Accepted::All),
            guessable: Guessable::default(),
        })
    }

    /// Writes a manifest, which must be before all parts.
    pub(super) fn manifest(&mut self, manifest: &[u8]) {
        write::manifest(&mut self.encoder.bytes, manifest);
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
        if part.fewest_omitted().is_some_and(|number| number < FEW_READINGS) {
            let statement = part.seal.statement();
            self.guessable.seals += 1;
            let place = (statement.device, statement.index, statement.epoch);
            self.guessable.first.get_or_insert(place);
        }
        self.encoder.part(part);
        if self.encoder.bytes.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Returns whether no part has been written.
    pub(super) const fn is_empty(&self) -> bool {
        self.encoder.is_empty()
    }

    fn flush(&mut self) -> Result<(), Error> {
        let bytes = &mut self.encoder.bytes;
        self.writer.write(bytes)?;
        self.session.feed(bytes, &mut NoRows)?;
        bytes.clear();
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
        write::end(&mut self.encoder.bytes);
        self.flush()?;
        let (report, _) = self.session.finish(&mut NoRows)?;
        self.writer.settle()?;
        self.writer.keep()?;
        Ok(report)
    }
}
