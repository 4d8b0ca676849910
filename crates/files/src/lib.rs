//! Files that only their owner may read, and files that appear complete or not at all.
//!
//! Stores, journals, keys and the state of devices and gateways tell who measured what and when, so
//! only their owner may read them. [`private`] and [`create_folder`] create them with this
//! permission. An existing file or folder keeps its permissions.
//!
//! [`replace`] and [`create`] write a file under a temporary name and then give it its name. A
//! [`Temporary`] is always a new file: if another user has prepared a file or a symbolic link with
//! the temporary name, nothing is written to it.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("state");
//! moteseal_files::replace(&path, b"first", moteseal_files::PRIVATE)?;
//! moteseal_files::replace(&path, b"second", moteseal_files::PRIVATE)?;
//! assert_eq!(std::fs::read(&path)?, b"second");
//! assert!(moteseal_files::create(&path, b"third", moteseal_files::PRIVATE).is_err());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The Unix mode of a file that only its owner may read and write.
pub const PRIVATE: u32 = 0o600;
/// The Unix mode of a file that everyone may read, reduced by the umask.
pub const PUBLIC: u32 = 0o666;
/// The Unix mode of a folder that only its owner may use.
const PRIVATE_FOLDER: u32 = 0o700;
/// The number of names that are tried for a temporary file.
const ATTEMPTS: u32 = 16;
/// The maximum length of the part of a temporary name that is taken from the file's name, in bytes.
/// With it, a temporary name is never longer than a file system permits.
const STEM: usize = 200;
/// The flags with which opening a link fails, and opening a pipe does not wait.
const NO_LINK: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
/// The ending of temporary names.
const ENDING: &str = "tmp";

/// Returns options that create a file with the mode [`PRIVATE`]. The caller selects the access.
#[must_use]
pub fn private() -> OpenOptions {
    let mut options = File::options();
    options.mode(PRIVATE);
    options
}

/// Creates a folder and its missing parents, which only their owner may use. Does nothing if the
/// folder exists.
///
/// # Errors
/// The errors of the operating system.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)
}

/// Replaces a file, or creates it. After a crash, the file has either the old content or the new
/// content. When this function returns, the new content is durable.
///
/// # Errors
/// The errors of the operating system. The file has not changed, unless only the folder could not
/// be synced.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    Temporary::create(path, mode)?.filled(bytes)?.replace(path)?;
    sync_folder_of(path)
}

/// Replaces a file durably, like [`replace`], and then overwrites the previous content with zeros, for
/// files with secrets that must not be kept. A file system or disk that writes changed data to another
/// place may keep a copy. If the file has another name (a hard link), that name has only zeros afterwards.
///
/// If the process is killed before the previous content is overwritten, that content has a temporary name,
/// under which [`erase_abandoned`] finds it. Outside of Linux, and on file systems that cannot exchange
/// two names, it has no name then.
///
/// # Errors
/// The errors of the operating system; `PermissionDenied` if the previous content cannot be overwritten.
/// The file has the previous or the new content, and the call can be repeated after [`erase_abandoned`].
pub fn replace_erasing(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let previous = match File::options().write(true).open(path) {
        Ok(previous) => previous,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return replace(path, bytes, mode),
        Err(error) => return Err(error),
    };
    let new = Temporary::create(path, mode)?.filled(bytes)?;
    if exchange(new.path(), path).is_err() {
        new.replace(path)?;
        sync_folder_of(path)?;
        return erase(&previous);
    }
    // The temporary name is now that of the previous content.
    let erased = sync_folder_of(path).and_then(|()| erase(&previous));
    if erased.is_err() {
        std::mem::forget(new);
    }
    erased
}

/// Exchanges the names of two files, in one step.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// Exchanges the names of two files, in one step.
#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Overwrites the content of a file with zeros, durably.
fn erase(file: &File) -> io::Result<()> {
    let (length, zeros) = (file.metadata()?.len(), [0; 1 << 12]);
    let mut place = 0;
    while place < length {
        let count = usize::try_from(length - place).unwrap_or(zeros.len()).min(zeros.len());
        file.write_all_at(&zeros[..count], place)?;
        place += count as u64;
    }
    file.sync_data()
}

/// Creates a file, completely or not at all. Never replaces a file.
///
/// # Errors
/// `AlreadyExists` if there is a file with this name, and the errors of the operating system.
pub fn create(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    Temporary::create(path, mode)?.filled(bytes)?.link(path)?;
    sync_folder_of(path)
}

/// A file to create: its path, its contents and its mode.
pub type NewFile<'a> = (&'a Path, &'a [u8], u32);

/// Creates many files at once. Never replaces a file. All files are durable when this function
/// returns. It is much faster than [`create`] for each file, but after an error or a crash some of
/// the files may exist, and may be incomplete.
///
/// # Errors
/// The path of the file and the error of the operating system; `AlreadyExists` if there is a file
/// with this name.
pub fn create_many(files: &[NewFile<'_>]) -> Result<(), (PathBuf, io::Error)> {
    let mut folders = BTreeSet::new();
    for (path, bytes, mode) in files {
        let at = |error| (path.to_path_buf(), error);
        let mut file =
            File::options().write(true).create_new(true).mode(*mode).open(path).map_err(at)?;
        file.write_all(bytes).map_err(at)?;
        folders.insert(folder_of(path));
    }
    for folder in folders {
        let synced = File::open(folder).and_then(|opened| Ok(rustix::fs::syncfs(opened)?));
        synced.map_err(|error| (folder.to_owned(), error))?;
    }
    Ok(())
}

/// Removes the temporary files of a file, which processes that were killed have left. Call this
/// only while a lock guarantees that no other process writes the file.
pub fn remove_abandoned(path: &Path) {
    for abandoned in abandoned(path) {
        let _ = fs::remove_file(abandoned);
    }
}

/// Removes the temporary files of a file, like [`remove_abandoned`], and overwrites their content before.
/// For files that are written by [`replace_erasing`].
pub fn erase_abandoned(path: &Path) {
    let all = abandoned(path);
    // After a crash during `replace_erasing`, the disk may still have the names as they were before.
    if all.is_empty() || sync_folder_of(path).is_err() {
        return;
    }
    for abandoned in all {
        // Another user may have prepared a link with this name, which is only removed.
        let opened = File::options().write(true).custom_flags(NO_LINK).open(&abandoned);
        let erased = opened.and_then(|file| {
            let of = file.metadata()?;
            if of.is_file() && of.nlink() == 1 { erase(&file) } else { Ok(()) }
        });
        let is_link = fs::symlink_metadata(&abandoned).is_ok_and(|of| of.is_symlink());
        // What could not be overwritten keeps its name, so that the next call finds it.
        if erased.is_ok() || is_link {
            let _ = fs::remove_file(abandoned);
        }
    }
}

/// Returns the paths of the temporary files of a file.
fn abandoned(path: &Path) -> Vec<PathBuf> {
    let prefix = prefix(path);
    let is_ours = |name: &str| {
        let random = name
            .strip_prefix(&prefix)
            .and_then(|name| name.strip_suffix(ENDING)?.strip_suffix('.'));
        random.is_some_and(|random| {
            random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let entries = fs::read_dir(folder_of(path)).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    entries.map(|entry| entry.path()).collect()
}

/// Makes the names in the folder of `path` durable, like [`sync_folder`].
///
/// # Errors
/// The errors of the operating system.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    sync_folder(folder_of(path))
}

/// Makes the names in a folder durable. Some file systems cannot sync folders, for example network
/// file systems. On these, this function does nothing.
///
/// # Errors
/// The errors of the operating system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    match rustix::fs::fsync(File::open(folder)?) {
        // The errors of a file system that cannot sync folders.
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        synced => Ok(synced?),
    }
}

/// A new file under a temporary name. If this value is dropped before [`replace`](Self::replace),
/// the file is removed.
#[derive(Debug)]
pub struct Temporary {
    path: PathBuf,
    file: Option<File>,
}

impl Temporary {
    /// Creates an empty file in the folder of `target`, under a name that no other user can
    /// predict.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let mut attempt = 1;
        loop {
            let random = RandomState::new().build_hasher().finish();
            let name = format!("{}{random:016x}.{ENDING}", prefix(target));
            match Self::at(target.with_file_name(name), mode) {
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                made => return made,
            }
        }
    }

    /// Creates an empty file with the given name. Removes a file or symbolic link that has this
    /// name. Use this only for a folder in which a lock excludes other processes.
    ///
    /// # Errors
    /// The errors of the operating system, for example if the name belongs to a folder.
    pub fn create_named(path: PathBuf, mode: u32) -> io::Result<Self> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Self::at(path, mode),
        }
    }

    fn at(path: PathBuf, mode: u32) -> io::Result<Self> {
        // `create_new` fails for every existing name. It never follows a symbolic link (`O_EXCL`).
        let file =
            File::options().read(true).write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { path, file: Some(file) })
    }

    /// Returns the temporary path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a handle of the file, which is open for reading and writing.
    ///
    /// # Errors
    /// The errors of the operating system; `NotFound` after [`filled`](Self::filled).
    pub fn file(&self) -> io::Result<File> {
        self.file.as_ref().ok_or(io::ErrorKind::NotFound)?.try_clone()
    }

    /// Writes the content, makes it durable, and closes the file.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub fn filled(mut self, bytes: &[u8]) -> io::Result<Self> {
        let mut file = self.file.take().ok_or(io::ErrorKind::NotFound)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(self)
    }

    /// Gives the file its name, and replaces a file with this name. The new name is durable after
    /// [`sync_folder_of`].
    ///
    /// # Errors
    /// The errors of the operating system. The temporary file is then removed.
    pub fn replace(self, target: &Path) -> io::Result<()> {
        // After the rename, no file has the temporary name, and dropping this value does nothing.
        fs::rename(&self.path, target)
    }

    /// Gives the file its name, but never replaces a file. The new name is durable after
    /// [`sync_folder_of`].
    ///
    /// # Errors
    /// `AlreadyExists` if there is a file with this name, and the errors of the operating system.
    /// The temporary file is then removed.
    pub fn link(self, target: &Path) -> io::Result<()> {
        // Unlike a rename, creating a link fails if the file exists.
        fs::hard_link(&self.path, target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the start of the temporary names of a file.
fn prefix(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    format!(".{}.", &name[..name.floor_char_boundary(STEM)])
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Finding B8 of the review.
    #[test]
    fn only_the_owner_may_read_private_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        create_folder(&inner).unwrap();
        create_folder(&inner).unwrap();
        assert_eq!((mode(&inner), mode(&folder.path().join("a"))), (0o700, 0o700));
        private().write(true).create(true).truncate(false).open(inner.join("journal")).unwrap();
        replace(&inner.join("state"), b"1", PRIVATE).unwrap();
        create(&inner.join("key"), b"1", PRIVATE).unwrap();
        for name in ["journal", "state", "key"] {
            assert_eq!(mode(&inner.join(name)), 0o600, "{name}");
        }
        assert_eq!(names(&inner).len(), 3, "no temporary file is left");
    }

    /// Finding B8 of the review. Another user may write to the folder.
    #[test]
    fn nothing_is_written_through_a_prepared_link() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let (target, named) = (folder.path().join("state"), folder.path().join("state.tmp"));
        symlink(&victim, &named).unwrap();
        let temporary = Temporary::create_named(named.clone(), PRIVATE).unwrap();
        temporary.filled(b"new").unwrap().replace(&target).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        // The target itself is replaced, too, even if it is a link.
        fs::remove_file(&target).unwrap();
        symlink(&victim, &target).unwrap();
        replace(&target, b"newer", PRIVATE).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"newer");
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        fs::create_dir(&named).unwrap();
        Temporary::create_named(named.clone(), PRIVATE).unwrap_err();
        assert!(named.is_dir());
    }

    #[test]
    fn the_previous_content_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets");
        replace_erasing(&path, b"first", PRIVATE).unwrap();
        for length in [5, 4096, 10_000] {
            let old = vec![7; length];
            replace(&path, &old, PRIVATE).unwrap();
            let held = File::open(&path).unwrap();
            replace_erasing(&path, b"new", PRIVATE).unwrap();
            let mut left = vec![1; length];
            held.read_exact_at(&mut left, 0).unwrap();
            assert!(left.iter().all(|byte| *byte == 0), "{length}");
            assert_eq!(held.metadata().unwrap().len(), length as u64);
            assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"new".to_vec(), 0o600));
        }
    }

    #[test]
    fn what_a_killed_process_left_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets");
        let left = Temporary::create(&path, PRIVATE).unwrap().filled(&[7; 10_000]).unwrap();
        let held = File::open(left.path()).unwrap();
        std::mem::forget(left);
        // Another user has prepared names of files of others.
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::hard_link(&victim, folder.path().join(".secrets.0123456789abcdef.tmp")).unwrap();
        symlink(&victim, folder.path().join(".secrets.1123456789abcdef.tmp")).unwrap();
        erase_abandoned(&path);
        let mut bytes = vec![1; 10_000];
        held.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(names(folder.path()), ["victim"]);
    }

    /// Between the exchange and the overwriting, the previous content has a name.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_previous_content_keeps_a_name_until_it_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets");
        replace_erasing(&path, b"old", PRIVATE).unwrap();
        let new = Temporary::create(&path, PRIVATE).unwrap().filled(b"new").unwrap();
        exchange(new.path(), &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read(new.path()).unwrap(), b"old");
        let held = File::open(new.path()).unwrap();
        std::mem::forget(new);
        erase_abandoned(&path);
        let mut bytes = [1; 3];
        held.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes, names(folder.path())), ([0; 3], vec!["secrets".to_owned()]));
    }

    #[test]
    fn a_failure_leaves_the_old_content_and_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(replace(&taken, b"1", PRIVATE).is_err());
        let file = folder.path().join("file");
        create(&file, b"old", PRIVATE).unwrap();
        assert_eq!(
            create(&file, b"new", PRIVATE).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read(&file).unwrap(), b"old");
        drop(Temporary::create(&file, PRIVATE).unwrap());
        assert_eq!(names(folder.path()).len(), 2);
        let long = folder.path().join("\u{e4}".repeat(127));
        replace(&long, b"1", PUBLIC).unwrap();
        assert_eq!(fs::read(&long).unwrap(), b"1");
    }

    /// Linux cannot sync the folders of the file system `/proc`: fsync returns EINVAL.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_cannot_be_synced_is_not_an_error() {
        let folder = Path::new("/proc/self");
        assert_eq!(File::open(folder).unwrap().sync_all().unwrap_err().raw_os_error(), Some(22));
        sync_folder(folder).unwrap();
        sync_folder_of(&folder.join("status")).unwrap();
        let missing = sync_folder(&folder.join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn temporary_files_of_killed_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        replace(&state, b"1", PRIVATE).unwrap();
        let kept = [".state.tmp", ".state.0123456789abcdeg.tmp", ".other.0123456789abcdef.tmp"];
        for name in kept {
            fs::write(folder.path().join(name), "").unwrap();
        }
        std::mem::forget(Temporary::create(&state, PRIVATE).unwrap());
        assert_eq!(names(folder.path()).len(), 5);
        remove_abandoned(&state);
        let mut left = names(folder.path());
        left.sort();
        assert_eq!(left, [kept[2], kept[1], kept[0], "state"]);
    }
}
