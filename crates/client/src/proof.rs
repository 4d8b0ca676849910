//! Proof files (`.mproof`). A proof is a query and the response to it, as received. It can be
//! verified later and offline, with only the roster and the operator's public key.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use moteseal_api::Query;
use moteseal_verify::{Roster, write};

use crate::completeness::Report;
use crate::decrypt::{KeySource, SealKeys};
use crate::error::{Error, OutputError};
use crate::output::AtomicFile;
use crate::pinned::PinnedSeals;
use crate::proof_query;
use crate::rejection::Rejection;
use crate::rows::Sink;
use crate::session::{PIECE, Session, all_threads};

/// Writes a proof while its response arrives. The file appears when [`keep`](Self::keep) is called.
#[derive(Debug)]
pub struct ProofWriter {
    path: PathBuf,
    file: AtomicFile,
}

impl ProofWriter {
    /// Starts a proof for the response to `query`, which is verified under `roster`.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub fn create(path: &Path, query: &Query, roster: &Roster) -> Result<Self, OutputError> {
        let mut writer = Self { path: path.to_owned(), file: AtomicFile::create(path)? };
        let mut first = Vec::new();
        write::proof(&mut first, &proof_query::encode(query, roster));
        writer.write(&first)?;
        Ok(writer)
    }

    /// Appends the next bytes of the response.
    ///
    /// # Errors
    /// [`OutputError`] if the bytes cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        self.file.write_all(bytes).map_err(|error| OutputError::new(&self.path, &error))
    }

    /// Writes the whole proof to disk, under a temporary name.
    ///
    /// # Errors
    /// [`OutputError`] if the proof cannot be written.
    pub fn settle(&mut self) -> Result<(), OutputError> {
        self.file.settle()
    }

    /// Gives the proof its final name. Call this once the response has been verified.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be renamed.
    pub fn keep(self) -> Result<(), OutputError> {
        self.file.commit()
    }
}

/// Verifies a proof and passes its rows to `sink`. `path` is the name of `source` in error
/// messages.
///
/// The proof must not contradict the seals in `pinned`: a different seal under a pinned index is
/// the error `Equivocation`. A pinned seal that is newer than the proof is not an error, because a
/// proof contains only what was sealed when it was saved. The report names such a seal.
///
/// The roster must be the version in `pinned` or a later one. A proof that was made under an earlier
/// version verifies with a later one.
///
/// # Errors
/// [`Error`] if a later version of the roster is pinned, if the proof is rejected, or if `source`
/// cannot be read.
pub fn verify(
    source: impl Read,
    path: &Path,
    roster: &Roster,
    pinned: Option<&PinnedSeals>,
    sink: &mut dyn Sink,
) -> Result<(Query, Report), Error> {
    read(source, path, (roster, pinned), KeySource::NONE, sink)
}

/// Verifies a proof as [`verify`] does, and decrypts the columns for which `keys` has keys.
///
/// # Errors
/// The errors of [`verify`].
pub fn verify_with_keys(
    source: impl Read,
    path: &Path,
    roster: &Roster,
    pinned: Option<&PinnedSeals>,
    keys: &mut dyn SealKeys,
    sink: &mut dyn Sink,
) -> Result<(Query, Report), Error> {
    read(source, path, (roster, pinned), KeySource::new(keys), sink)
}

fn read(
    mut source: impl Read,
    path: &Path,
    (roster, pinned): (&Roster, Option<&PinnedSeals>),
    mut keys: KeySource<'_>,
    sink: &mut dyn Sink,
) -> Result<(Query, Report), Error> {
    if let Some(pinned) = pinned {
        pinned.check_roster(roster)?;
    }
    let session = Session::of_proof(roster, pinned).with_threads(all_threads());
    let mut session = session.with_key_source(keys.reborrow());
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        let length = source
            .by_ref()
            .take(PIECE as u64)
            .read_to_end(&mut piece)
            .map_err(|error| OutputError::new(path, &error))?;
        if length == 0 {
            break;
        }
        session.feed(&piece, sink)?;
    }
    let query = session.query().cloned();
    let (report, _) = session.finish(sink)?;
    let query = query.ok_or_else(|| Rejection::NotAProof { cause: "the file is empty".into() })?;
    Ok((query, report))
}
