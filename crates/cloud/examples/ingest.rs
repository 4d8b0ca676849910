//! How much an upload costs: eight uploaders on keep-alive connections, one bundle of 1,000 four-byte events a request, every
//! signature and digest verified, every bundle durable before it is acknowledged.
//!
//! `cargo run --release -p moteseal-cloud --example ingest -- [--bundles N] [--uploaders N] [--no-sync] [DIRECTORY]`
//!
//! The cloud is a process of its own, so that its processor time is its own too (`/proc/PID/stat`, Linux only).
#![allow(clippy::unwrap_used)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use moteseal_cloud::{Cloud, Config};
use moteseal_core::seal::Scheme;
use moteseal_store::{EpochStore, Options, RedbStore};

const EVENTS: u32 = 1000;

fn names(uploaders: usize) -> Vec<String> {
    (0..uploaders).map(|i| format!("mote-{i}")).collect()
}

fn group(uploaders: usize) -> (moteseal_verify::Roster, Vec<support::Mote>) {
    let names = names(uploaders);
    support::group(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut bundles, mut uploaders, mut sync, mut serve, mut directory) = (20_000, 8, true, false, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bundles" => bundles = arguments.next().unwrap().parse().unwrap(),
            "--uploaders" => uploaders = arguments.next().unwrap().parse().unwrap(),
            "--no-sync" => sync = false,
            "--serve" => serve = true,
            other => directory = Some(PathBuf::from(other)),
        }
    }
    let temporary = tempfile::tempdir().unwrap();
    let directory = directory.unwrap_or_else(|| temporary.path().to_owned());
    if serve {
        return run(&directory, uploaders, sync);
    }
    measure(&directory, uploaders, bundles / uploaders, sync);
}

fn run(directory: &Path, uploaders: usize, sync: bool) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = RedbStore::open(&directory.join("epochs.redb"), Options { sync, ..Options::default() }).unwrap();
        let cloud = Cloud::bind(Config::new(group(uploaders).0), Arc::new(store) as Arc<dyn EpochStore>).await.unwrap();
        println!("{}", cloud.address());
        cloud.run(async { moteseal_cloud::stop_signal().await.unwrap() }).await;
    });
}

fn measure(directory: &Path, uploaders: usize, each: usize, sync: bool) {
    let (_, motes) = group(uploaders);
    let requests: Vec<Vec<Vec<u8>>> = motes.into_iter().map(|mote| requests(mote, each)).collect();
    let bytes: usize = requests.iter().flatten().map(Vec::len).sum();

    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--serve").arg("--uploaders").arg(uploaders.to_string()).arg(directory);
    if !sync {
        command.arg("--no-sync");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = address.trim().to_owned();
    let (cpu, start) = (processor_seconds(child.id()), Instant::now());
    std::thread::scope(|scope| {
        for requests in &requests {
            let address = &address;
            scope.spawn(move || upload(address, requests));
        }
    });
    let (took, cpu) = (start.elapsed().as_secs_f64(), processor_seconds(child.id()) - cpu);
    child.kill().unwrap();
    child.wait().unwrap();
    let count = (uploaders * each) as f64;
    println!(
        "{count} bundles of {EVENTS} events, {uploaders} uploaders, sync {sync}: {:.1} us and {:.1} us of server CPU a bundle, {:.1} MB/s",
        took / count * 1e6,
        cpu / count * 1e6,
        bytes as f64 / took / 1e6,
    );
}

fn requests(mut mote: support::Mote, count: usize) -> Vec<Vec<u8>> {
    let request = |epoch: u64| {
        let events: Vec<u32> = (0..EVENTS).map(|i| i.wrapping_mul(0x9e37_79b9) ^ epoch as u32).collect();
        let body = mote.seal(Scheme::Star, epoch, true, &events);
        let mut request = format!(
            "PUT /v1/bundles HTTP/1.1\r\nhost: cloud\r\ncontent-type: application/cbor-seq\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend(body);
        request
    };
    (0..count as u64).map(request).collect()
}

/// A client that costs nearly nothing: prepared bytes out, the answer's end in.
fn upload(address: &str, requests: &[Vec<u8>]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut answer = vec![0; 4096];
    for request in requests {
        stream.write_all(request).unwrap();
        let mut filled = 0;
        while !answer[..filled].ends_with(b"}") {
            let read = stream.read(&mut answer[filled..]).unwrap();
            assert!(read > 0, "the cloud closed the connection");
            filled += read;
        }
        let text = String::from_utf8_lossy(&answer[..filled]);
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with(r#"{"stored":1,"known":0}"#), "{text}");
    }
}

/// Processor time of a process, user and system, to a hundredth of a second.
fn processor_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}
