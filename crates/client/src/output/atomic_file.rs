//! Files that appear complete or not at all, for paths of every kind.
//!
//! A regular file is written in the folder of its target and then renamed. If the path is a
//! symbolic link, the link is kept and the file to which it points is replaced. A device, pipe or
//! socket cannot be replaced. Its content is collected in a temporary file and copied on commit, so
//! that no reader sees only a part of it.
//!
//! A temporary file can only be read by its owner, because it may have content that others may not
//! read ([`AtomicFile::set_private`]). If a process is killed, its temporary file remains. The next
//! process that writes to the same path removes it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::error::OutputError;

/// The number of files that this process has started to write. It makes the names of their
/// temporary files unique.
static WRITERS: AtomicU64 = AtomicU64::new(0);
/// The temporary files that are neither committed nor dropped. [`AtomicFile::abandon_all`] removes
/// them.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// The maximum length of a chain of symbolic links, which is the same as on Linux.
const MAX_LINKS: usize = 40;
/// An unlocked temporary file that is older than this counts as abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// A file that is being written. [`commit`](Self::commit) gives the file its name and replaces an
/// existing file. If this value is dropped without a commit, the temporary file is removed.
#[derive(Debug)]
pub struct AtomicFile {
    /// The path as the caller gave it.
    path: PathBuf,
    goal: Goal,
    file: Option<BufWriter<File>>,
}

/// How the content is moved to the target.
#[derive(Debug)]
enum Goal {
    /// The temporary file is renamed.
    Rename {
        /// The path of the temporary file.
        temporary: PathBuf,
        /// The path to which it is renamed.
        place: PathBuf,
        /// The permissions that it gets on commit. Until then, only its owner can read it.
        permissions: Option<Permissions>,
        /// Whether the commit replaces a file.
        replaces: bool,
    },
    /// The content is copied, because the target cannot be replaced.
    Copy,
}

impl AtomicFile {
    /// Starts to write a file for `path`.
    ///
    /// # Errors
    /// [`OutputError`] if `path` is a folder or the temporary file cannot be created.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let fail = |error| OutputError::new(path, &error);
        let there = match fs::metadata(path) {
            Ok(there) if there.is_dir() => {
                return Err(OutputError::misused(path, "it is a folder; name a file in it"));
            }
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        // Also copy to `/dev/stdout` if it is a regular file, because the shell has opened that
        // file and keeps it open.
        let in_place = there.as_ref().is_some_and(|there| !there.is_file()) || is_descriptor(path);
        let (goal, file) = if in_place {
            (Goal::Copy, tempfile::tempfile().map_err(|error| OutputError::temporary(&error))?)
        } else {
            let place = place(path).map_err(fail)?;
            let Some(name) = place.file_name() else {
                return Err(OutputError::misused(path, "it names no file"));
            };
            // Two writers in one process use different temporary files. The writer that commits
            // last replaces the other's file.
            let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
            let prefix = format!(".{}.", name.to_string_lossy());
            sweep(&place, &prefix);
            let temporary =
                place.with_file_name(format!("{prefix}{}-{writer}.part", std::process::id()));
            // An earlier process with the same process id may have left a file with this name.
            // Remove it, so that nothing is written through a link with this name.
            let _ = fs::remove_file(&temporary);
            unfinished().insert(temporary.clone());
            let (file, usual) = create_part(&temporary).map_err(|error| {
                unfinished().remove(&temporary);
                fail(error)
            })?;
            // The lock tells `sweep` that the file is in use. On a file system without locks,
            // `sweep` never removes a file.
            let _ = file.try_lock();
            // Keep the permissions of a file that is replaced.
            let replaces = there.is_some();
            let permissions = Some(there.map_or(usual, |there| there.permissions()));
            (Goal::Rename { temporary, place, permissions, replaces }, file)
        };
        Ok(Self {
            path: path.to_owned(),
            goal,
            file: Some(BufWriter::with_capacity(1 << 16, file)),
        })
    }

    /// Makes the file readable and writable for its owner only, unless it replaces a file, whose
    /// permissions it keeps. Call this for content that others may not read.
    pub const fn set_private(&mut self) {
        if let Goal::Rename { permissions, replaces: false, .. } = &mut self.goal {
            *permissions = None;
        }
    }

    /// Writes the content to disk, but does not give the file its name yet. A lack of disk space is
    /// reported here.
    ///
    /// # Errors
    /// [`OutputError`] if the content cannot be written.
    pub fn settle(&mut self) -> Result<(), OutputError> {
        let Some(writer) = &mut self.file else { return Ok(()) };
        writer
            .flush()
            .and_then(|()| writer.get_ref().sync_all())
            .map_err(|error| OutputError::new(&self.path, &error))
    }

    /// Gives the file its name, durably.
    ///
    /// # Errors
    /// [`OutputError`] if the content cannot be written or the file cannot be renamed. A regular
    /// file then does not appear, and its temporary file is removed.
    pub fn commit(mut self) -> Result<(), OutputError> {
        let Some(writer) = self.file.take() else { return Ok(()) };
        let written = writer.into_inner().map_err(io::IntoInnerError::into_error);
        let done = written.and_then(|mut file| match &self.goal {
            Goal::Rename { temporary, place, permissions, .. } => {
                if let Some(permissions) = permissions {
                    // A file that keeps the permissions of the temporary file can be read by fewer.
                    let _ = file.set_permissions(permissions.clone());
                }
                file.sync_all()?;
                fs::rename(temporary, place)?;
                sync_folder(place)
            }
            Goal::Copy => {
                file.rewind()?;
                let mut out = OpenOptions::new().append(true).open(&self.path)?;
                match io::copy(&mut file, &mut out) {
                    // A reader may close the pipe early. This is not an error.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                    copied => copied.and_then(|_| out.flush()),
                }
            }
        });
        self.forget();
        done.map_err(|error| OutputError::new(&self.path, &error))
    }

    /// Removes the temporary file, if it still exists.
    fn forget(&self) {
        if let Goal::Rename { temporary, .. } = &self.goal {
            // After a rename, the temporary file no longer exists and this call does nothing.
            let _ = fs::remove_file(temporary);
            unfinished().remove(temporary);
        }
    }

    /// Removes the temporary files that this process has not committed. Call this last, when the
    /// process is asked to stop, because a later commit fails.
    pub fn abandon_all() {
        for temporary in std::mem::take(&mut *unfinished()) {
            let _ = fs::remove_file(temporary);
        }
    }

    /// Returns whether two paths name the same regular file. If they do, a file that is written to
    /// one path replaces a file that was written to the other. The files do not need to exist.
    #[must_use]
    pub fn is_same(one: &Path, other: &Path) -> bool {
        let plain = |path: &Path| {
            fs::metadata(path).map_or(true, |there| there.is_file()) && !is_descriptor(path)
        };
        plain(one)
            && plain(other)
            && absolute(one).zip(absolute(other)).is_some_and(|(one, other)| one == other)
    }
}

/// Creates a temporary file that only its owner can read and write. Also returns the permissions that a new
/// file has otherwise. These depend on the process and the folder, so they are read from an empty file.
fn create_part(temporary: &Path) -> io::Result<(File, Permissions)> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let usual = options.open(temporary)?.metadata().map(|empty| empty.permissions());
    fs::remove_file(temporary)?;
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    Ok((options.open(temporary)?, usual?))
}

fn unfinished() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a path is a file descriptor that this process already has open.
fn is_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr"].iter().any(|name| path == Path::new(name))
        || ["/dev/fd", "/proc/self/fd"]
            .iter()
            .any(|folder| path.parent() == Some(Path::new(folder)))
}

/// Returns the path to which a file with this name is written: the end of its chain of symbolic
/// links.
fn place(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&place) {
            // The target of a link may be relative to the folder of the link. `join` returns an
            // absolute target unchanged.
            Ok(target) => place = place.parent().unwrap_or_else(|| Path::new("")).join(target),
            Err(_) => return Ok(place),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Returns the canonical path, or `None` if the folder does not exist.
fn absolute(path: &Path) -> Option<PathBuf> {
    let place = place(path).ok()?;
    Some(fs::canonicalize(folder(&place)).ok()?.join(place.file_name()?))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Removes the temporary files for this path that killed processes have left. Only files that are
/// old and not locked are removed.
fn sweep(place: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(folder(place)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_suffix(".part"));
        if !number
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
        {
            continue;
        }
        let written = entry
            .metadata()
            .and_then(|found| found.modified())
            .unwrap_or_else(|_| SystemTime::now());
        let is_old = written.elapsed().is_ok_and(|age| age > ABANDONED_AFTER);
        if is_old && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Makes the new name of a file durable. The name is part of the folder, so the folder is synced.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    match moteseal_files::sync_folder_of(path) {
        // The process may write to the folder but not read it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// Does nothing, because other systems cannot open a folder.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file
            .as_mut()
            .map_or(Ok(bytes.len()), |file| file.write(bytes))
            .map_err(|error| named(&self.path, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush).map_err(|error| named(&self.path, &error))
    }
}

/// Returns an error whose message also names the file and states what to do. The format writers
/// return such an error unchanged.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), OutputError::new(path, error))
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            self.forget();
        }
    }
}
