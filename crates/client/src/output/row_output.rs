//! The destination of verified rows: a file that appears complete or not at all, or a temporary
//! file that is copied to its destination once everything is verified.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{AtomicFile, Format, Writer};
use crate::error::OutputError;
use crate::rows::{Rows, Sink};

/// Writes verified rows. The rows do not appear at their destination until they are
/// [released](RowSpool::release).
#[derive(Debug)]
pub struct RowOutput {
    writer: Writer<Box<dyn Write + Send>>,
    target: Target,
}

impl RowOutput {
    /// Creates an output to a file, which appears when the rows are released. If a column was decrypted,
    /// only the owner of the file can read it, unless it replaces a file with other permissions.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub fn to_file(path: &Path, format: Format) -> Result<Self, OutputError> {
        let shared = Shared::new(AtomicFile::create(path)?);
        Ok(Self {
            writer: Writer::new(format, Box::new(shared.clone())),
            target: Target::File(shared),
        })
    }

    /// Creates an output to a temporary file, whose content the caller copies when the rows are
    /// released.
    ///
    /// # Errors
    /// [`OutputError`] if the temporary file cannot be created.
    pub fn to_spool(format: Format) -> Result<Self, OutputError> {
        let failed = |error| OutputError::temporary(&error);
        let spool = tempfile::tempfile().map_err(failed)?;
        let again = spool.try_clone().map_err(failed)?;
        let out = BufWriter::with_capacity(1 << 16, spool);
        Ok(Self { writer: Writer::new(format, Box::new(out)), target: Target::Spool(again) })
    }

    /// Finishes writing. All rows are then on disk, but they are not released yet.
    ///
    /// # Errors
    /// [`OutputError`] if the rows cannot be written.
    pub fn finish(self) -> Result<RowSpool, OutputError> {
        self.writer.finish()?;
        Ok(RowSpool(match self.target {
            Target::File(shared) => {
                let mut file = shared.take();
                file.as_mut().map_or(Ok(()), AtomicFile::settle)?;
                Spooled::File(file)
            }
            Target::Spool(mut file) => {
                file.rewind().map_err(|error| OutputError::temporary(&error))?;
                Spooled::Spool(file)
            }
        }))
    }
}

impl Sink for RowOutput {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        if let (Target::File(shared), Some(_)) = (&self.target, rows.replaced) {
            shared.set_private();
        }
        self.writer.rows(rows)
    }
}

/// All rows of an output, written to disk but not released. Dropping this value discards the rows.
#[derive(Debug)]
pub struct RowSpool(Spooled);

#[derive(Debug)]
enum Spooled {
    File(Option<AtomicFile>),
    Spool(File),
}

impl RowSpool {
    /// Releases the rows: gives their file its name, or returns the temporary file, from which the
    /// caller copies the rows.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be renamed.
    pub fn release(self) -> Result<Option<File>, OutputError> {
        match self.0 {
            Spooled::File(file) => file.map_or(Ok(()), AtomicFile::commit).map(|()| None),
            Spooled::Spool(file) => Ok(Some(file)),
        }
    }
}

#[derive(Debug)]
enum Target {
    File(Shared),
    Spool(File),
}

/// A file that the writer fills and that [`RowOutput`] commits.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Option<AtomicFile>>>);

impl Shared {
    fn new(file: AtomicFile) -> Self {
        Self(Arc::new(Mutex::new(Some(file))))
    }

    fn set_private(&self) {
        if let Some(file) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            file.set_private();
        }
    }

    fn take(&self) -> Option<AtomicFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(file) => file.write(bytes),
            None => Err(io::Error::other("the file is closed")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(file) => file.flush(),
            None => Ok(()),
        }
    }
}
