//! Kills a cloud process thirty times at random moments under load. Each process uses the same
//! store. Every bundle that a process acknowledged must be stored afterwards, and must verify.
//!
//! This test is a separate test program, because it starts processes and the tests in `it` reopen
//! stores. Between fork and exec, a child process has copies of all files that its parent has open.
//! It would therefore briefly hold the locks of the stores, and a test could not reopen its store.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "it/testbed.rs"]
mod testbed;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moteseal_api::{Receipt, paths};
use moteseal_cloud::{Cloud, Config};
use moteseal_core::record::DeviceId;
use moteseal_core::record::Scheme;
use moteseal_seal::sample::{Choice, Rate};
use moteseal_store::EpochStore;
use testbed::{Mote, group, open_store, query, verified};

const KILLS: u32 = 30;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const DIRECTORY: &str = "MOTESEAL_CRASH_TEST_DIRECTORY";

/// Runs the process that is killed: a cloud that prints its URL on stdout.
#[test]
#[ignore = "started and killed by every_acknowledged_bundle_survives_kills"]
fn serve() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = open_store(Path::new(&directory)) as Arc<dyn EpochStore>;
        let cloud = Cloud::bind(Config::new(group(&NAMES).0), store).await.unwrap();
        println!("listening {}", cloud.url());
        std::io::stdout().flush().unwrap();
        cloud.run(std::future::pending()).await;
    });
}

struct Process {
    child: Child,
    url: String,
}

impl Process {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serve", "--ignored", "--nocapture"]).env(DIRECTORY, directory);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("listening ").map(|(_, url)| url.to_owned()));
        Self { child, url: url.expect("the cloud starts over the store of a killed one") }
    }

    /// Sends SIGKILL, so that the process runs no signal handler and flushes nothing.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Uploads one bundle after another until the cloud is killed, and counts the acknowledged bundles.
/// Returns the mote and the bundle whose upload was interrupted. The cloud may or may not have
/// stored this bundle; the next run sends it again.
async fn upload(
    url: String,
    mut mote: Mote,
    mut pending: Option<Vec<u8>>,
    acknowledged: Arc<AtomicU64>,
) -> (Mote, Option<Vec<u8>>) {
    let http = reqwest::Client::new();
    loop {
        let bundle = pending.take().unwrap_or_else(|| {
            let index = mote.position.last.map_or(0, |(index, _)| u64::from(index.0) + 1);
            let scheme = if index.is_multiple_of(3) { Scheme::Tree } else { Scheme::Star };
            let events: Vec<u32> = (0..200).map(|i| i + index as u32).collect();
            mote.seal(scheme, index, true, &events)
        });
        let request = http.put(format!("{url}{}", paths::BUNDLES)).body(bundle.clone());
        let Ok(response) = request.send().await else { return (mote, Some(bundle)) };
        assert_eq!(response.status(), 200);
        let Ok(receipt) = response.json::<Receipt>().await else { return (mote, Some(bundle)) };
        assert_eq!(receipt.stored + receipt.known, 1);
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn every_acknowledged_bundle_survives_kills() {
    let directory = tempfile::tempdir().unwrap();
    let (roster, motes) = group(&NAMES);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut state: Vec<(Mote, Option<Vec<u8>>)> =
        motes.into_iter().map(|mote| (mote, None)).collect();
    let counts: BTreeMap<DeviceId, Arc<AtomicU64>> =
        state.iter().map(|(mote, _)| (mote.id, Arc::default())).collect();
    // The sequence of random numbers is fixed. The varying speed of the machine makes the moments
    // random enough.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for kill in 0..KILLS {
        let process = Process::start(directory.path());
        let uploads: Vec<_> = state
            .drain(..)
            .map(|(mote, pending)| {
                let count = Arc::clone(&counts[&mote.id]);
                runtime.spawn(upload(process.url.clone(), mote, pending, count))
            })
            .collect();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(20 + random % 300));
        // On a busy machine, five runs may be too short for a single acknowledgement.
        let total = || counts.values().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
        let start = Instant::now();
        while kill >= 5 && total() == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "no bundle was acknowledged");
            std::thread::sleep(Duration::from_millis(20));
        }
        process.kill();
        state = uploads.into_iter().map(|upload| runtime.block_on(upload).unwrap()).collect();
    }

    let process = Process::start(directory.path());
    let mut acknowledged = 0;
    for (mote, _) in &state {
        let all = query(&[mote.id], 0, None, Choice::Rate(Rate::ALL));
        let answer = runtime.block_on(async {
            let request = reqwest::Client::new()
                .post(format!("{}{}", process.url, paths::QUERY))
                .body(all.to_json());
            request.send().await.unwrap().bytes().await.unwrap()
        });
        let read = verified(&roster, &answer).unwrap();
        assert!(read.ended, "{:?}", read.problem);
        // The bundles of a mote are acknowledged in order. The stored bundles must therefore be the
        // acknowledged bundles without a gap, and possibly the interrupted bundle.
        let count = counts[&mote.id].load(Ordering::Relaxed);
        let stored = read.parts.len() as u64;
        assert!(
            stored == count || stored == count + 1,
            "{stored} of {count} acknowledged bundles of {} are stored",
            mote.id
        );
        let expected: Vec<_> = (0..stored)
            .flat_map(|index| (0..200).map(move |i| (index as u32, i, i as u32 + index as u32)))
            .map(|(index, seq, value)| (mote.id, index, seq, value))
            .collect();
        assert_eq!(read.rows, expected);
        acknowledged += count;
    }
    process.kill();
    assert!(
        acknowledged > u64::from(KILLS),
        "only {acknowledged} bundles were acknowledged in {KILLS} runs"
    );
    println!("{acknowledged} bundles acknowledged over {KILLS} kills, none lost");
}
