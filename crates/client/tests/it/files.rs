//! An output file appears complete or not at all. The tests write through links and into devices and
//! pipes, and kill the writing process.

use std::fs::{self, FileTimes, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use moteseal_client::output::AtomicFile;

fn write(path: &Path, text: &str) -> Result<(), moteseal_client::output::OutputError> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(text.as_bytes()).unwrap();
    file.commit()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn keeps_a_symbolic_link_and_replaces_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    fs::write(two.join("target.csv"), "before").unwrap();
    fs::set_permissions(two.join("target.csv"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("../two/target.csv", one.join("near.csv")).unwrap();
    symlink(one.join("near.csv"), one.join("far.csv")).unwrap();
    symlink("../two/new.csv", one.join("dangling.csv")).unwrap();
    for link in ["near.csv", "far.csv"] {
        write(&one.join(link), link).unwrap();
        assert!(fs::symlink_metadata(one.join(link)).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(two.join("target.csv")).unwrap(), link);
    }
    assert_eq!(
        fs::metadata(two.join("target.csv")).unwrap().permissions().mode() & 0o777,
        0o600,
        "the permissions are kept"
    );
    write(&one.join("dangling.csv"), "new").unwrap();
    assert_eq!(fs::read_to_string(two.join("new.csv")).unwrap(), "new");
    assert_eq!(names(&two), ["new.csv", "target.csv"], "no temporary file is left");
    symlink("loop", one.join("loop")).unwrap();
    assert!(write(&one.join("loop"), "").is_err());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn only_the_owner_reads_a_file_until_it_is_committed_and_a_private_one_always() {
    let folder = tempfile::tempdir().unwrap();
    let (path, usual) = (folder.path().join("rows.csv"), folder.path().join("usual"));
    fs::write(&usual, "").unwrap();
    let part = || {
        let names = names(folder.path());
        let parts: Vec<&String> = names.iter().filter(|name| name.ends_with(".part")).collect();
        assert_eq!(parts.len(), 1, "{names:?}");
        mode(&folder.path().join(parts[0]))
    };
    // The modes of a file before and after, if there is one.
    for (before, is_private, after) in [
        (None, false, mode(&usual)),
        (None, true, 0o600),
        (Some(0o644), false, 0o644),
        (Some(0o640), true, 0o640),
        (Some(0o600), false, 0o600),
    ] {
        let _ = fs::remove_file(&path);
        if let Some(before) = before {
            fs::write(&path, "before").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        }
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"some").unwrap();
        if is_private {
            file.set_private();
        }
        file.settle().unwrap();
        assert_eq!(part(), 0o600, "{before:?} {is_private}");
        file.commit().unwrap();
        assert_eq!(mode(&path), after, "{before:?} {is_private}");
        assert_eq!(names(folder.path()), ["rows.csv", "usual"]);
    }
}

#[test]
fn writes_to_a_pipe_only_on_commit() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // If a file is dropped without a commit, nothing is sent to the pipe, and dropping does not
    // wait for a reader.
    AtomicFile::create(&pipe).unwrap().write_all(b"half").unwrap();
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || {
            let mut text = String::new();
            fs::File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
            text
        })
    };
    write(&pipe, "whole").unwrap();
    assert_eq!(reader.join().unwrap(), "whole");
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(names(folder.path()), ["pipe"]);
}

#[test]
fn writes_to_devices_without_replacing_them() {
    write(Path::new("/dev/null"), "gone").unwrap();
    let error = write(Path::new("/dev/full"), "no").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot use /dev/full: the disk is full; make room, or name a file on another one"
    );
    for device in ["/dev/null", "/dev/full"] {
        assert!(fs::metadata(device).unwrap().file_type().is_char_device(), "{device}");
    }
}

#[test]
fn recognises_the_same_file_under_different_paths() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path();
    fs::create_dir(base.join("sub")).unwrap();
    symlink("same.csv", base.join("link.csv")).unwrap();
    symlink("sub", base.join("folder")).unwrap();
    let same = |one: &str, other: &str| AtomicFile::is_same(&base.join(one), &base.join(other));
    for (one, other) in [
        ("same.csv", "same.csv"),
        ("same.csv", "sub/../same.csv"),
        ("./same.csv", "link.csv"),
        ("sub/x", "folder/x"),
    ] {
        assert!(same(one, other), "{one} {other}");
        fs::write(base.join(one), "").unwrap();
        assert!(same(one, other), "{one} {other}, after it was created");
    }
    assert!(
        !same("same.csv", "other.csv")
            && !same("sub/same.csv", "same.csv")
            && !same("nowhere/x", "same.csv")
    );
    assert!(
        !AtomicFile::is_same(Path::new("/dev/null"), Path::new("/dev/null")),
        "two outputs to a device do not replace each other"
    );
}

#[test]
fn removes_temporary_files_of_killed_processes_only() {
    let folder = tempfile::tempdir().unwrap();
    let long_ago = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(3600));
    let old = |name: &str| {
        let file = fs::File::create(folder.path().join(name)).unwrap();
        file.set_times(long_ago).unwrap();
        file
    };
    let kept = [".rows.csv.999999-1.part", ".rows.csv.notes.part", ".other.csv.999998-0.part"];
    let living = old(kept[0]);
    living.lock().unwrap();
    drop(kept[1..].iter().map(|name| old(name)).collect::<Vec<_>>());
    drop(old(".rows.csv.999998-0.part"));
    fs::write(folder.path().join(".rows.csv.999997-0.part"), "just now").unwrap();
    write(&folder.path().join("rows.csv"), "rows").unwrap();
    assert_eq!(
        names(folder.path()),
        [
            ".other.csv.999998-0.part",
            ".rows.csv.999997-0.part",
            ".rows.csv.999999-1.part",
            ".rows.csv.notes.part",
            "rows.csv"
        ]
    );
    OpenOptions::new().write(true).open(folder.path().join(kept[0])).unwrap();
}
