//! Proof files (`.mproof`): a query and the answer to it as received. They verify later, elsewhere and offline, with nothing but
//! the roster and the operator's key.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use moteseal_api::Query;
use moteseal_verify::{Roster, write};
use serde_json::Value;

use crate::get::Failure;
use crate::memory::Memory;
use crate::output::{AtomicFile, OutputError};
use crate::report::Report;
use crate::rows::Sink;
use crate::session::{PIECE, Session, all_threads};

/// Writes a proof while its answer arrives. The file appears when it is kept, and not before.
#[derive(Debug)]
pub struct ProofWriter {
    path: PathBuf,
    file: AtomicFile,
}

impl ProofWriter {
    /// Starts a proof for the answer to a query that is verified under `roster`.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn create(path: &Path, query: &Query, roster: &Roster) -> Result<Self, OutputError> {
        let mut writer = Self { path: path.to_owned(), file: AtomicFile::create(path)? };
        let mut first = Vec::new();
        write::proof(&mut first, &query_text(query, roster));
        writer.write(&first)?;
        Ok(writer)
    }

    /// Takes the next bytes of the answer.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        self.file.write_all(bytes).map_err(|error| OutputError::new(&self.path, &error))
    }

    /// Brings the whole proof to the disk, and not yet into its place.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn settle(&mut self) -> Result<(), OutputError> {
        self.file.settle()
    }

    /// Keeps the proof: its answer has been verified.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn keep(self) -> Result<(), OutputError> {
        self.file.commit()
    }
}

/// What stands in a proof's first item: the query, and the digest of the roster under which the answer was verified. The digest is
/// a hint that makes a wrong roster known by its name; the signatures do not need it.
fn query_text(query: &Query, roster: &Roster) -> String {
    let mut text: Value = serde_json::from_str(&query.to_json()).unwrap_or_default();
    if let Some(text) = text.as_object_mut() {
        text.insert("roster".to_owned(), roster.digest().to_string().into());
    }
    text.to_string()
}

/// Reads a proof's first item: the query, and the roster's digest if it is there.
pub(crate) fn read_query(text: &str) -> Result<(Query, Option<String>), String> {
    let mut text: Value =
        serde_json::from_str(text).map_err(|error| format!("its query is no JSON ({error})"))?;
    let roster = text.as_object_mut().and_then(|text| text.remove("roster"));
    let roster = match roster {
        None => None,
        Some(Value::String(digest))
            if digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            Some(digest)
        }
        Some(_) => return Err("its roster is no digest".to_owned()),
    };
    let query =
        serde_json::from_value(text).map_err(|error| format!("its query is none ({error})"))?;
    Ok((query, roster))
}

/// Verifies a proof and gives `sink` its rows. `memory`, if given, must not be contradicted: another seal under an index that we
/// remember is `Equivocation`. That we know of a newer seal is no fault of the proof, which proves what was there when it was kept:
/// the report names that seal.
///
/// # Errors
/// [`Failure`]: refused, or `source` cannot be read; `path` is what an error calls it.
pub fn verify(
    mut source: impl Read,
    path: &Path,
    roster: &Roster,
    memory: Option<&Memory>,
    sink: &mut dyn Sink,
) -> Result<(Query, Report), Failure> {
    let mut session = Session::of_proof(roster, memory).with_threads(all_threads());
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
    let query = query.ok_or_else(|| {
        crate::session::Stop::from(crate::Refusal::NotAProof { cause: "it is empty".into() })
    })?;
    Ok((query, report))
}
