//! The data folder of an agent: its size, its owner and its removal.
//!
//! The agent chooses what is in the folder, and may change it at the same time. All functions open each
//! folder below its parent, so that they follow no symbolic link and need no path, which may be too
//! long.

use std::ffi::CStr;
use std::fs::{self, File, Permissions};
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, openat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

/// The number of entries that are counted in a data folder. A folder with more is too large.
const MAX_ENTRIES: u64 = 100_000;
/// The size that each entry of a folder counts at least, in bytes.
const ENTRY: u64 = 1024;
/// The depth of folders in a data folder. A deeper folder is too large.
const MAX_DEPTH: u32 = 64;
/// The size of a folder that cannot be measured.
pub(super) const TOO_LARGE: u64 = u64::MAX;

fn is_folder(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(parent, name, flags, Mode::empty())
}

fn attributes(parent: BorrowedFd<'_>, name: &CStr) -> Result<Stat, Errno> {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Calls `each` for all entries below a folder, each folder before its entries. An entry that is gone is
/// left out.
fn visit(
    folder: BorrowedFd<'_>,
    depth: u32,
    each: &mut dyn FnMut(BorrowedFd<'_>, &CStr, &Stat) -> Result<(), Errno>,
) -> Result<(), Errno> {
    if depth > MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let found = match attributes(folder, name) {
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        each(folder, name, &found)?;
        if is_folder(&found) {
            match open(folder, name) {
                Err(Errno::NOENT) => {}
                inner => visit(inner?.as_fd(), depth + 1, each)?,
            }
        }
    }
    Ok(())
}

/// Returns the size of everything below a folder, in bytes. Stops when it exceeds `limit`. A folder that
/// cannot be read, or that is too deep, is [`TOO_LARGE`].
pub(super) fn size(folder: &Path, limit: u64) -> u64 {
    let (mut size, mut entries) = (0u64, 0);
    let opened = match File::open(folder) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return 0,
        Err(_) => return TOO_LARGE,
    };
    let visited = visit(opened.as_fd(), 0, &mut |_, _, found| {
        let blocks = u64::try_from(found.st_blocks).unwrap_or(0);
        size = size.saturating_add(blocks.saturating_mul(512).max(ENTRY));
        entries += 1;
        if size > limit || entries > MAX_ENTRIES { Err(Errno::FBIG) } else { Ok(()) }
    });
    match visited {
        Ok(()) => size,
        Err(Errno::FBIG) if size > limit => size,
        Err(_) => TOO_LARGE,
    }
}

/// Gives a folder and everything below it to a user and to the group with the same number.
pub(super) fn give(folder: &Path, user: u32) -> io::Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(user)));
    let opened = File::open(folder)?;
    rustix::fs::fchown(&opened, uid, gid)?;
    let each = &mut |parent: BorrowedFd<'_>, name: &CStr, _: &Stat| {
        chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
    };
    Ok(visit(opened.as_fd(), 0, each)?)
}

/// Removes a folder and everything below it, however deep it is and whatever its permissions are. Does
/// nothing if it does not exist.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    let opened = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // The agent may change the permissions of its folder, but not replace it by a link.
            fs::set_permissions(folder, Permissions::from_mode(0o700))?;
            File::open(folder)?
        }
        opened => opened?,
    };
    let mut removal = Removal { top: opened.as_fd(), moved: 0 };
    while !removal.empty(opened.as_fd(), 0)? {}
    fs::remove_dir(folder)
}

/// A removal of all entries of a folder.
struct Removal<'f> {
    /// The folder.
    top: BorrowedFd<'f>,
    /// The number of folders that were moved to the top.
    moved: u64,
}

impl Removal<'_> {
    /// Removes the entries of a folder. Moves folders that are too deep to the top. Returns whether
    /// everything was removed.
    fn empty(&mut self, folder: BorrowedFd<'_>, depth: u32) -> Result<bool, Errno> {
        let mut is_complete = true;
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let found = match attributes(folder, name) {
                Err(Errno::NOENT) => continue,
                found => found?,
            };
            if !is_folder(&found) {
                unlinkat(folder, name, AtFlags::empty())?;
                continue;
            }
            permit(folder, name)?;
            if depth >= MAX_DEPTH {
                self.raise(folder, name)?;
                is_complete = false;
                continue;
            }
            let is_empty = self.empty(open(folder, name)?.as_fd(), depth + 1)?;
            match unlinkat(folder, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY) => is_complete = false,
                removed => removed?,
            }
            is_complete &= is_empty;
        }
        Ok(is_complete)
    }

    /// Moves a folder to the top, under a name that no other entry has.
    fn raise(&mut self, folder: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let target = format!(".removed-{}", self.moved);
            match renameat(folder, name, self.top, &target) {
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                moved => return moved,
            }
        }
    }
}

/// Permits the owner to list and change a folder.
#[cfg(not(target_os = "linux"))]
fn permit(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    rustix::fs::chmodat(parent, name, Mode::from_raw_mode(0o700), AtFlags::SYMLINK_NOFOLLOW)
}

/// Permits the owner to list and change a folder.
#[cfg(target_os = "linux")]
fn permit(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(parent, name, flags, Mode::empty())?;
    // A descriptor of a path has no other way to change the permissions. Without /proc, opening the
    // folder reports the error.
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_folder_with_many_small_files_is_not_small() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..20 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(size(folder.path(), u64::MAX), 20 * ENTRY);
        assert!(size(folder.path(), 5000) < 8000, "it stops above the limit");
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/file"), vec![1; 100_000]).unwrap();
        assert!(size(folder.path(), u64::MAX) > 100_000, "with folders inside");
    }

    #[test]
    fn a_folder_that_does_not_exist_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(size(&folder.path().join("none"), 1), 0);
        remove(&folder.path().join("none")).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_is_deeper_than_any_path_is_too_large_and_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("data");
        fs::create_dir(&top).unwrap();
        let mut inner: OwnedFd = File::open(&top).unwrap().into();
        let name = c"a-name-that-is-not-short";
        for _ in 0..300 {
            rustix::fs::mkdirat(&inner, name, Mode::from_raw_mode(0o300)).unwrap();
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            inner = openat(&inner, name, flags, Mode::empty()).unwrap();
        }
        assert_eq!(size(&top, u64::MAX), TOO_LARGE);
        remove(&top).unwrap();
        assert!(!top.exists());
    }
}
