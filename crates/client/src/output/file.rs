//! A file that appears whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::OutputError;

/// Files that this process has started, so that each has a temporary name of its own.
static WRITERS: AtomicU64 = AtomicU64::new(0);

/// A file being written beside its final place. It goes there when it is [committed](Self::commit), replacing what was there; dropped
/// before, it leaves nothing.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
}

impl AtomicFile {
    /// Starts a file for `path`.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let Some(name) = path.file_name() else {
            return Err(OutputError::because(path, "it names no file"));
        };
        if path.is_dir() {
            return Err(OutputError::because(path, "it is a folder; name a file in it"));
        }
        // Two writers of one process do not meet; the last one to commit wins.
        let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{}.{}-{writer}.part", name.to_string_lossy(), std::process::id()));
        // What an earlier process of this number left behind is replaced, never written through.
        let _ = std::fs::remove_file(&temporary);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary);
        let file = file.map_err(|error| OutputError::new(path, &error))?;
        Ok(Self { path: path.to_owned(), temporary, file: Some(BufWriter::with_capacity(1 << 16, file)) })
    }

    /// Brings all that was written to the disk, and not yet into its place: what fails for want of space fails here.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn settle(&mut self) -> Result<(), OutputError> {
        let Some(writer) = &mut self.file else { return Ok(()) };
        writer.flush().and_then(|()| writer.get_ref().sync_all()).map_err(|error| OutputError::new(&self.path, &error))
    }

    /// Puts the file in its place, durably.
    ///
    /// # Errors
    /// [`OutputError`]; nothing is then left of it.
    pub fn commit(mut self) -> Result<(), OutputError> {
        let Some(writer) = self.file.take() else { return Ok(()) };
        let done = writer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .and_then(|()| std::fs::rename(&self.temporary, &self.path))
            .and_then(|()| sync_folder(&self.path));
        if let Err(error) = &done {
            let _ = std::fs::remove_file(&self.temporary);
            return Err(OutputError::new(&self.path, error));
        }
        Ok(())
    }
}

/// Makes the new name of a file survive a loss of power: it is the folder's, not the file's.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // A folder that may be written but not read, or one of a file system that cannot sync folders: more cannot be done there.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => Ok(()),
        done => done,
    }
}

/// Other systems cannot open a folder.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(bytes.len()), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
