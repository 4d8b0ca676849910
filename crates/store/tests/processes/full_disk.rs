//! A journal whose disk is full reports that, and keeps both the synced records and those that wait
//! for a sync.

use std::path::PathBuf;

use moteseal_api::NamedError as _;
use moteseal_store::Journal;

/// Returns all records of a journal.
fn all(journal: &Journal) -> Vec<Vec<u8>> {
    journal.iter().map(Result::unwrap).collect()
}

/// The child process: its files may not exceed 64 KiB (see the test below).
#[test]
#[ignore = "run by a_full_disk_is_reported_and_loses_nothing in a process with a limit"]
fn fill_the_disk() {
    let Ok(path) = std::env::var("MOTESEAL_JOURNAL") else { return };
    let mut journal = Journal::open(PathBuf::from(path).as_path()).unwrap();
    journal.append(b"small").unwrap();
    journal.sync().unwrap();
    journal.append(&[7; 100_000]).unwrap();
    for _ in 0..2 {
        let error = journal.sync().unwrap_err().named().to_string();
        assert!(
            error.starts_with("DiskFull: no space left for ")
                && error.ends_with("free some space and try again"),
            "{error}"
        );
    }
    assert_eq!(all(&journal).len(), 2, "records that wait must be kept");
}

#[test]
fn a_full_disk_is_reported_and_loses_nothing() {
    let _alone = crate::alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let limited =
        "trap '' XFSZ; ulimit -f 128; exec \"$0\" --exact full_disk::fill_the_disk --ignored";
    let this = std::env::current_exe().unwrap();
    // The child writes its output to pipes, because a long output file would also reach the limit.
    let child = std::process::Command::new("sh")
        .args(["-c", limited])
        .arg(this)
        .env("MOTESEAL_JOURNAL", &path)
        .output()
        .unwrap();
    assert!(
        child.status.success() && String::from_utf8_lossy(&child.stdout).contains("1 passed"),
        "{child:?}"
    );
    let journal = Journal::open(&path).unwrap();
    assert_eq!((all(&journal), journal.torn_bytes()), (vec![b"small".to_vec()], 0));
}
