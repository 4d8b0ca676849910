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
pub use crate::proof_scope::{Extent, Scope};
use crate::rejection::Rejection;
use crate::rows::Sink;
use crate::sanitised::Accepted;
use crate::session::{PIECE, Session, all_threads};

/// Writes a proof while its response arrives. The file appears when [`keep`](Self::keep) is called.
#[derive(Debug)]
pub struct ProofWriter {
    path: PathBuf,
    file: AtomicFile,
}

impl ProofWriter {
    /// Starts a proof.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        Ok(Self { path: path.to_owned(), file: AtomicFile::create(path)? })
    }

    /// Starts a proof of the response to `query`, which is verified under `roster`.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created or written.
    pub fn of_answer(path: &Path, query: &Query, roster: &Roster) -> Result<Self, OutputError> {
        let (mut writer, mut first) = (Self::create(path)?, Vec::new());
        write::proof(&mut first, &Scope::Answer(query.clone()).encode(roster));
        writer.write(&first)?;
        Ok(writer)
    }

    /// Appends the next bytes.
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
/// A redacted proof verifies like any other. Its report is never complete, and states what is left
/// out ([`Redaction`](crate::Redaction)).
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
) -> Result<(Scope, Report), Error> {
    read(source, path, (roster, pinned), KeySource::NONE, Accepted::None, sink)
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
) -> Result<(Scope, Report), Error> {
    read(source, path, (roster, pinned), KeySource::new(keys), Accepted::None, sink)
}

/// Verifies a proof as [`verify_with_keys`] does, and accepts the values by which the sanitisers called
/// `accepted` replaced those of devices ([`Origin`](crate::Origin)).
///
/// # Errors
/// The errors of [`verify`].
pub fn verify_sanitised(
    source: impl Read,
    path: &Path,
    (roster, pinned): (&Roster, Option<&PinnedSeals>),
    accepted: &[String],
    keys: Option<&mut dyn SealKeys>,
    sink: &mut dyn Sink,
) -> Result<(Scope, Report), Error> {
    let accepted = Accepted::Named(accepted.iter().cloned().collect());
    let keys = keys.map_or(KeySource::NONE, KeySource::new);
    read(source, path, (roster, pinned), keys, accepted, sink)
}

fn read(
    source: impl Read,
    path: &Path,
    (roster, pinned): (&Roster, Option<&PinnedSeals>),
    mut keys: KeySource<'_>,
    accepted: Accepted,
    sink: &mut dyn Sink,
) -> Result<(Scope, Report), Error> {
    if let Some(pinned) = pinned {
        pinned.check_roster(roster)?;
    }
    let session = Session::of_proof(roster, pinned).with_threads(all_threads());
    let mut session = session.with_key_source(keys.reborrow()).accepting(accepted);
    pieces(source, path, &mut |piece| Ok(session.feed(piece, sink)?))?;
    let scope = session.scope().cloned();
    let (report, _) = session.finish(sink)?;
    let scope = scope.ok_or_else(|| Rejection::NotAProof { cause: "the file is empty".into() })?;
    Ok((scope, report))
}

/// Reads a file in pieces. `path` is its name in error messages.
pub(crate) fn pieces(
    mut source: impl Read,
    path: &Path,
    each: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        let length = source
            .by_ref()
            .take(PIECE as u64)
            .read_to_end(&mut piece)
            .map_err(|error| OutputError::new(path, &error))?;
        if length == 0 {
            return Ok(());
        }
        each(&piece)?;
    }
}
