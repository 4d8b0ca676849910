//! A process that is killed while it closes its store loses nothing.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use moteseal_core::record::{Scheme, SealIndex};
use moteseal_store::check::check;
use moteseal_store::conformance::{Mote, Motes};
use moteseal_store::{EpochStore, Options, RedbStore};

const NAME: &str = "mote";
/// The number of seals that the child process puts.
const SEALS: u64 = 400;

/// The child process: puts bundles, reports the acknowledgement on stdout, and closes the store.
#[test]
#[ignore = "started and killed by a_kill_during_closing_loses_nothing"]
fn put_and_close() {
    let Ok(path) = std::env::var("MOTESEAL_STORE") else { return };
    // Batches are applied only when the store is closed.
    let options = Options { apply_after: Duration::from_secs(3600), ..Options::default() };
    let store = RedbStore::open(Path::new(&path), options).unwrap();
    let mut mote = Mote::new(NAME, false);
    for epoch in 0..SEALS {
        store.put(vec![mote.seal_some(Scheme::Star, epoch, 3).bundle]).unwrap();
    }
    println!("acknowledged");
    drop(store);
    println!("closed");
}

#[test]
fn a_kill_during_closing_loses_nothing() {
    let _alone = crate::alone();
    let directory = tempfile::tempdir().unwrap();
    let mut left = 0;
    for round in 0..12u64 {
        let path = directory.path().join(format!("epochs{round}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "closing::put_and_close", "--ignored", "--nocapture"])
            .env("MOTESEAL_STORE", &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.lines().map_while(Result::ok).any(|line| line.contains("acknowledged")));
        // Applying and closing take some milliseconds, so the kills occur before, during and after
        // them.
        thread::sleep(Duration::from_micros(round * round * 150));
        child.kill().unwrap();
        child.wait().unwrap();
        left += usize::from(Path::new(&format!("{}-journal", path.display())).exists());
        let store = RedbStore::open(&path, Options::default()).unwrap();
        let device = Mote::new(NAME, false).device();
        assert_eq!(
            store.seals(device, SealIndex(0), usize::MAX).unwrap().len() as u64,
            SEALS,
            "round {round}"
        );
        drop(store);
        let report = check(&path, &Motes::new(&[NAME]), &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{:?}", report.damage);
    }
    assert!(left > 0, "no kill came before the store was closed");
}
