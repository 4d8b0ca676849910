//! A file that appears whole or not at all, wherever its name leads.
//!
//! A plain file is written beside its place and renamed into it. A symbolic link stays one: the file that it leads to is replaced. A
//! device, a pipe or a socket cannot be replaced; what is for it rests in a temporary file until it is committed, so that nobody sees
//! half of it. What a killed process has left behind is removed by the next one that writes to the same name.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::error::OutputError;

/// Files that this process has started, so that each has a temporary name of its own.
static WRITERS: AtomicU64 = AtomicU64::new(0);
/// The temporary names that are not finished, for [`AtomicFile::abandon_all`].
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// How often a symbolic link may lead to another, as on Linux.
const MAX_LINKS: usize = 40;
/// A temporary file that is older, and that no process holds, has been left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// A file being written. It goes to its place when it is [committed](Self::commit), replacing what was there; dropped before, it
/// leaves nothing.
#[derive(Debug)]
pub struct AtomicFile {
    /// As the caller calls it.
    path: PathBuf,
    goal: Goal,
    file: Option<BufWriter<File>>,
}

/// How what was written gets to where it belongs.
#[derive(Debug)]
enum Goal {
    /// It is renamed.
    Rename {
        /// Where it is now.
        temporary: PathBuf,
        /// Where it goes.
        place: PathBuf,
    },
    /// It is copied into what cannot be replaced.
    Copy,
}

impl AtomicFile {
    /// Starts a file for `path`.
    ///
    /// # Errors
    /// [`OutputError`].
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
        // `/dev/stdout` too, even where it leads to a plain file: that one is the shell's, which holds it open.
        let in_place = there.as_ref().is_some_and(|there| !there.is_file()) || is_descriptor(path);
        let (goal, file) = if in_place {
            (Goal::Copy, tempfile::tempfile().map_err(|error| OutputError::temporary(&error))?)
        } else {
            let place = place(path).map_err(fail)?;
            let Some(name) = place.file_name() else {
                return Err(OutputError::misused(path, "it names no file"));
            };
            // Two writers of one process do not meet; the last one to commit wins.
            let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
            let prefix = format!(".{}.", name.to_string_lossy());
            sweep(&place, &prefix);
            let temporary =
                place.with_file_name(format!("{prefix}{}-{writer}.part", std::process::id()));
            // What an earlier process of this number left behind is replaced, never written through.
            let _ = fs::remove_file(&temporary);
            unfinished().insert(temporary.clone());
            let opened = OpenOptions::new().write(true).create_new(true).open(&temporary);
            let file = opened.map_err(|error| {
                unfinished().remove(&temporary);
                fail(error)
            })?;
            // A lock says that somebody is writing; where a file system has none, files are only never swept.
            let _ = file.try_lock();
            if let Some(there) = there {
                // Who could not read it before cannot read it afterwards.
                let _ = file.set_permissions(there.permissions());
            }
            (Goal::Rename { temporary, place }, file)
        };
        Ok(Self {
            path: path.to_owned(),
            goal,
            file: Some(BufWriter::with_capacity(1 << 16, file)),
        })
    }

    /// Brings all that was written to the disk, and not yet into its place: what fails for want of space fails here.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn settle(&mut self) -> Result<(), OutputError> {
        let Some(writer) = &mut self.file else { return Ok(()) };
        writer
            .flush()
            .and_then(|()| writer.get_ref().sync_all())
            .map_err(|error| OutputError::new(&self.path, &error))
    }

    /// Puts the file in its place, durably.
    ///
    /// # Errors
    /// [`OutputError`]; of a plain file nothing is then left.
    pub fn commit(mut self) -> Result<(), OutputError> {
        let Some(writer) = self.file.take() else { return Ok(()) };
        let written = writer.into_inner().map_err(io::IntoInnerError::into_error);
        let done = written.and_then(|mut file| match &self.goal {
            Goal::Rename { temporary, place } => {
                file.sync_all()?;
                fs::rename(temporary, place)?;
                sync_folder(place)
            }
            Goal::Copy => {
                file.rewind()?;
                let mut out = OpenOptions::new().append(true).open(&self.path)?;
                match io::copy(&mut file, &mut out) {
                    // A reader that has read enough is no failure.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                    copied => copied.and_then(|_| out.flush()),
                }
            }
        });
        self.forget();
        done.map_err(|error| OutputError::new(&self.path, &error))
    }

    /// Removes what is left of the file.
    fn forget(&self) {
        if let Goal::Rename { temporary, .. } = &self.goal {
            // A committed one is not there any more.
            let _ = fs::remove_file(temporary);
            unfinished().remove(temporary);
        }
    }

    /// Removes the temporary files that this process has not finished: the last thing it does when it is told to stop. Files that are
    /// committed afterwards fail.
    pub fn abandon_all() {
        for temporary in std::mem::take(&mut *unfinished()) {
            let _ = fs::remove_file(temporary);
        }
    }

    /// Whether two names lead to one plain file, so that the second to be written would replace the first. Neither has to exist.
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

fn unfinished() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a name stands for a file that this process has open already.
fn is_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr"].iter().any(|name| path == Path::new(name))
        || ["/dev/fd", "/proc/self/fd"]
            .iter()
            .any(|folder| path.parent() == Some(Path::new(folder)))
}

/// Where a file of this name belongs: the end of its symbolic links.
fn place(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&place) {
            // A relative link is one from the folder that it lies in; `join` lets an absolute one stand.
            Ok(target) => place = place.parent().unwrap_or_else(|| Path::new("")).join(target),
            Err(_) => return Ok(place),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// One spelling for every way to say where a file belongs; `None` where there is no such folder.
fn absolute(path: &Path) -> Option<PathBuf> {
    let place = place(path).ok()?;
    Some(fs::canonicalize(folder(&place)).ok()?.join(place.file_name()?))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Removes the temporary files for this name that a process left behind when it was killed: old ones that nobody holds locked.
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
        let is_old = written.elapsed().is_ok_and(|age| age > LEFT_BEHIND);
        if is_old && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Makes the new name of a file survive a loss of power: it is the folder's, not the file's.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(folder(path)).and_then(|folder| folder.sync_all()) {
        // A folder that may be written but not read, or one of a file system that cannot sync folders: more cannot be done there.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
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
        self.file
            .as_mut()
            .map_or(Ok(bytes.len()), |file| file.write(bytes))
            .map_err(|error| named(&self.path, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush).map_err(|error| named(&self.path, &error))
    }
}

/// The same error with the file's name and the way out: the writers of formats pass on what they are given.
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
