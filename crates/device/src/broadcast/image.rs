//! Saves a file that was received as a chain. The file appears only when it is complete, never
//! replaces another file, and is always inside the given folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The name of a file if the chain's label contains no usable name.
const NAMELESS: &str = "image";
/// The end of the names of files that are packages of agents (spec/agents.md).
pub const AGENT_SUFFIX: &str = ".agent";
/// The maximum length of a name in bytes. It leaves room for the number that [`save`] may add.
const MAX_NAME: usize = 200;
/// The maximum number of files with the same name in one folder.
const MAX_NUMBER: u32 = 10_000;

/// Returns the file name for a chain with this label. The name is the part after the last `/` or
/// `\`. Control characters, characters with a meaning to a file system, and a leading dot are
/// replaced by `_`.
#[must_use]
pub fn file_name(label: &str) -> String {
    let last = label.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_plain = |character: char| !character.is_control() && !"<>:\"|?*".contains(character);
    let mut name: String = last
        .trim()
        .chars()
        .map(|character| if is_plain(character) { character } else { '_' })
        .collect();
    if name.bytes().all(|byte| byte == b'.') {
        return NAMELESS.to_owned();
    }
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    while name.len() > MAX_NAME {
        name.pop();
    }
    name
}

/// Writes a file into `folder` and returns its path. If another file already has the name `name`,
/// the new file gets the next free number, for example `name-2.txt`. If that other file has the
/// same content, no second file is written, and the path of the existing file is returned. The file
/// appears under its name only after all of it is on the disk. `key` distinguishes the unfinished
/// files of different chains.
///
/// The file has the mode `mode`.
///
/// # Errors
/// The errors of the file system and of `fill`. After an error, a file whose name ends with `.part`
/// may remain; the next call with the same `key` removes it.
pub fn save(
    folder: &Path,
    name: &str,
    key: &str,
    mode: u32,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    remove_unfinished(folder, key)?;
    // Several processes may save files to the same folder.
    let part = folder.join(format!(".{key}.{}.part", std::process::id()));
    let placed = write(&part, mode, fill).and_then(|()| place(folder, name, &part));
    let _ = fs::remove_file(&part);
    let path = placed?;
    moteseal_files::sync_folder(folder)?;
    Ok(path)
}

/// Removes the unfinished files with this key that were written by processes which no longer run.
fn remove_unfinished(folder: &Path, key: &str) -> io::Result<()> {
    let start = format!(".{key}.");
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let process = name
            .to_str()
            .and_then(|name| name.strip_prefix(&start)?.strip_suffix(".part")?.parse::<u32>().ok());
        let Some(process) = process else { continue };
        if process == std::process::id() || !Path::new("/proc").join(process.to_string()).exists() {
            match fs::remove_file(folder.join(&name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

fn write(
    part: &Path,
    mode: u32,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut out = BufWriter::new(options.open(part)?);
    fill(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Gives the finished file its name. Fails if the name is taken. It uses a hard link, which fails
/// in that case, whereas a rename would replace the other file. On a file system without hard
/// links, it reserves the name with an empty file before the rename.
fn link(part: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(part, path) {
        Err(error)
            if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) =>
        {
            OpenOptions::new().write(true).create_new(true).open(path)?;
            fs::rename(part, path)
        }
        linked => linked,
    }
}

/// Gives the finished file the first free name, or finds an existing file with the same content.
fn place(folder: &Path, name: &str, part: &Path) -> io::Result<PathBuf> {
    for number in 1..=MAX_NUMBER {
        let path = folder.join(numbered(name, number));
        match link(part, &path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if is_same(part, &path)? {
                    return Ok(path);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Returns `report.txt`, `report-2.txt` and so on.
fn numbered(name: &str, number: u32) -> String {
    match name.rsplit_once('.') {
        _ if number == 1 => name.to_owned(),
        Some((stem, extension)) if !stem.is_empty() => format!("{stem}-{number}.{extension}"),
        _ => format!("{name}-{number}"),
    }
}

/// Returns whether two files have the same content. Returns `false` if `other` is not a regular
/// file.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (length, found) = (fs::metadata(one)?.len(), fs::symlink_metadata(other)?);
    if !found.is_file() || found.len() != length {
        return Ok(false);
    }
    let (mut one, mut other) =
        (BufReader::new(File::open(one)?), BufReader::new(File::open(other)?));
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let read = one.read(&mut a)?;
        if read == 0 {
            return Ok(other.read(&mut b)? == 0);
        }
        match other.read_exact(&mut b[..read]) {
            Ok(()) if a[..read] == b[..read] => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_files::PUBLIC;

    use super::*;

    fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        save(folder, name, "0011", PUBLIC, |out| out.write_all(bytes))
    }

    #[test]
    fn a_label_becomes_a_safe_file_name() {
        for (label, name) in [
            ("firmware.bin", "firmware.bin"),
            ("", "image"),
            (".", "image"),
            ("..", "image"),
            ("...", "image"),
            ("../../etc/passwd", "passwd"),
            ("/etc/", "image"),
            ("..\\..\\boot.ini", "boot.ini"),
            (".bashrc", "_bashrc"),
            ("a\u{1b}[2J\0b", "a_[2J_b"),
            ("C:evil", "C_evil"),
            ("  ", "image"),
            ("Z\u{fc}rich 1", "Z\u{fc}rich 1"),
        ] {
            assert_eq!(file_name(label), name, "{label:?}");
        }
        let long = file_name(&"\u{fc}".repeat(300));
        assert!(long.len() <= MAX_NAME && long.len() > MAX_NAME - 4);
    }

    #[test]
    fn a_file_is_never_overwritten_or_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let folder = &folder.path().join("new");
        assert_eq!(put(folder, "a.bin", b"one").unwrap(), folder.join("a.bin"));
        assert_eq!(put(folder, "a.bin", b"two").unwrap(), folder.join("a-2.bin"));
        assert_eq!(
            put(folder, "a.bin", b"one").unwrap(),
            folder.join("a.bin"),
            "a file with the same content is not written again"
        );
        assert_eq!(put(folder, "a.bin", b"two").unwrap(), folder.join("a-2.bin"));
        assert_eq!(put(folder, "plain", b"1").unwrap(), folder.join("plain"));
        assert_eq!(put(folder, "plain", b"2").unwrap(), folder.join("plain-2"));
        assert_eq!(fs::read(folder.join("a.bin")).unwrap(), b"one");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 4, "no unfinished file remains");
    }

    #[test]
    fn a_link_or_folder_with_the_same_name_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::write(&outside, "old").unwrap();
        let inside = folder.path().join("saved");
        fs::create_dir(&inside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("a")).unwrap();
        fs::create_dir(inside.join("a-2")).unwrap();
        assert_eq!(put(&inside, "a", b"new").unwrap(), inside.join("a-3"));
        assert_eq!(fs::read(&outside).unwrap(), b"old");
    }

    #[test]
    fn an_unfinished_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let failed = save(folder.path(), "a", "0011", PUBLIC, |out| {
            out.write_all(b"half")?;
            Err(ErrorKind::Other.into())
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // The folder contains one unfinished file of a process that was killed, and one of a
        // process that is still running.
        let running = folder.path().join(".0011.1.part");
        fs::write(folder.path().join(format!(".0011.{}.part", u32::MAX)), "half").unwrap();
        fs::write(&running, "half").unwrap();
        put(folder.path(), "a", b"whole").unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"whole");
        assert!(running.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
