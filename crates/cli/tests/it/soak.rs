//! All hostile clients of the review's findings B at once, against one cloud: its memory and its log
//! stay within their limits, and the latency of other clients at most doubles.
//!
//! `MOTESEAL_SOAK_SECONDS` sets the duration. Without it, the test takes ten seconds and does not
//! compare latencies, because other tests run at the same time.
//!
//! The hostile clients are a process with a low priority, so that the processor time that they need
//! themselves does not delay the cloud. The test stops and continues this process, and compares the
//! latencies of both phases.

use std::env;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use moteseal_api::paths;
use moteseal_core::identity::decode_public_pem;
use moteseal_core::record::SealIndex;
use moteseal_net::{Client, Options};
use moteseal_verify::Roster;

use crate::hostile_clients::{Cloud, connect};
use crate::scene::{COLUMNS, Scene};

const TOKEN: &str = "4q9mB0xJ2kTqvYfB";
/// The hosts 127.0.0.x from which the clients connect.
const HOSTILE: u8 = 2;
const HONEST: u8 = 3;
/// The limits of the cloud, in bytes.
const ANSWERS: u64 = 32 << 20;
const UPLOADS: u64 = 48 << 20;
/// The store's page cache, and everything that does not depend on the clients, in bytes.
const REST: u64 = 256 << 20;

/// Returns a request of a client that has a token.
pub(crate) fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/cbor-seq\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Reads a response that states its length. Returns its status line.
fn response(stream: &mut TcpStream) -> std::io::Result<String> {
    read_response(stream).map(|(head, _)| head.lines().next().unwrap_or_default().to_owned())
}

/// Reads a response that states its length. Returns its head in lower case, and its body.
pub(crate) fn read_response(stream: &mut TcpStream) -> std::io::Result<(String, String)> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((head, String::from_utf8_lossy(&body).into_owned()))
}

/// Repeats `session` for ever on new connections, on `count` threads. The cloud may close a
/// connection at any time.
fn hostile(
    cloud: SocketAddr,
    count: usize,
    session: impl Fn(TcpStream) -> std::io::Result<()> + Clone + Send + 'static,
) {
    for _ in 0..count {
        let session = session.clone();
        thread::spawn(move || {
            loop {
                let _ = connect(cloud, HOSTILE).and_then(&session);
                thread::sleep(Duration::from_millis(20));
            }
        });
    }
}

/// The process of the hostile clients. It runs until it is killed.
#[test]
#[ignore = "started and killed by hostile_clients_at_once_do_not_affect_others"]
fn run_hostile_clients() {
    let Ok(cloud) = env::var("MOTESEAL_CLOUD") else { return };
    let cloud: SocketAddr = cloud.parse().unwrap();
    let replayed = fs::read("replayed.seals").unwrap();
    let long = env::var("MOTESEAL_LONG").unwrap();
    // B1: genuine seals that take long to verify.
    let upload = request("PUT", "/v1/bundles", &replayed);
    hostile(cloud, 8, move |mut stream| {
        loop {
            stream.write_all(&upload)?;
            response(&mut stream)?;
        }
    });
    // B2: receivers of a long bundle that read almost nothing.
    hostile(cloud, 6, move |mut stream| {
        stream.write_all(&request("GET", &long, &[]))?;
        loop {
            stream.read_exact(&mut [0; 100])?;
            thread::sleep(Duration::from_secs(1));
        }
    });
    // B3: requests without waiting for the responses.
    let metrics = request("GET", "/metrics", &[]).repeat(100);
    hostile(cloud, 4, move |mut stream| {
        let mut receiver = stream.try_clone()?;
        thread::spawn(move || {
            let mut pages = vec![0; 1 << 16];
            while receiver.read(&mut pages).is_ok_and(|length| length > 0) {}
        });
        loop {
            stream.write_all(&metrics)?;
        }
    });
    // B4: long addresses without a token.
    let uri = format!("GET /v1/devices/{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(60_000));
    hostile(cloud, 2, move |mut stream| {
        loop {
            stream.write_all(uri.as_bytes())?;
            response(&mut stream)?;
        }
    });
    // B5: idle connections.
    hostile(cloud, 100, |mut stream| {
        stream.set_read_timeout(None)?;
        stream.read_exact(&mut [0])
    });
    // B7: a service that never sends its final response.
    let endless = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", endless.local_addr().unwrap());
    thread::spawn(move || {
        for stream in endless.incoming().flatten() {
            thread::spawn(move || {
                let mut stream = stream;
                while stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").is_ok() {
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    let options = Options { idle_timeout: Duration::from_secs(1), ..Options::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        loop {
            let client = Client::new(&url, &options).unwrap();
            assert!(client.get("x").await.is_err());
        }
    });
}

/// The process of [`run_hostile_clients`].
struct Hostile(Child);

impl Hostile {
    fn signal(&mut self, signal: &str) {
        assert!(self.0.try_wait().unwrap().is_none(), "the hostile clients ended");
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the median latency of each request, in seconds.
fn latencies(stream: &mut TcpStream, requests: &[Vec<u8>]) -> Vec<f64> {
    let medians = requests.iter().map(|request| {
        let mut times: Vec<f64> = (0..31)
            .map(|_| {
                thread::sleep(Duration::from_millis(5));
                let start = Instant::now();
                stream.write_all(request).unwrap();
                let status = response(stream).unwrap();
                assert!(status.contains(" 200 "), "{status}");
                start.elapsed().as_secs_f64()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    medians.collect()
}

/// Returns a value of `/proc/PID/status`, in bytes.
fn memory(process: &Child, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() * 1024
}

fn files(scene: &Scene, device: &str) -> Vec<Vec<u8>> {
    let names = scene.names(device).into_iter().filter(|name| name.ends_with(".mseal"));
    names.map(|name| fs::read(scene.path(device).join(name)).unwrap()).collect()
}

/// Makes a group with three devices, and their bundles: a long one, 200 that are replayed, and one of
/// an honest client.
fn sealed(scene: &Scene) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    fs::remove_file(scene.path("roster.cbor")).unwrap();
    let mut roster: Vec<String> = "roster new --operator keys/op.key.pem --group soak --epoch 1h \
         --levels 16 --out roster.cbor"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    for device in ["long", "replayed", "honest"] {
        let key = format!("keys/{device}");
        scene.run(&["key", "new", "--alg", "esp256", "--out", &key]).done();
        roster.extend(["--device".to_owned(), format!("{device}={key}.pub.pem")]);
    }
    scene.run(&roster.iter().map(String::as_str).collect::<Vec<_>>()).done();
    let mut text = String::from("ts,humidity,temperature\n");
    for i in 0..1_000_000 {
        text += &format!("{},{}.5,20.25\n", 1_767_225_600 + i / 1000, 40 + i % 9);
    }
    scene.write("long.csv", &text);
    scene.table("replayed.csv", 12_000);
    scene.table("honest.csv", 60);
    for device in ["long", "replayed", "honest"] {
        let (table, key) = (format!("{device}.csv"), format!("keys/{device}.key.pem"));
        let seal = ["seal", &table, "--device", device, "--key", &key, "--out", device];
        scene.with_roster(&[&seal[..], &COLUMNS[..]].concat()).done();
    }
    let [long, replayed, honest] = ["long", "replayed", "honest"].map(|name| files(scene, name));
    assert_eq!((long.len(), replayed.len(), honest.len()), (1, 200, 1));
    (long.concat(), replayed.concat(), honest.concat())
}

/// Findings B1 to B5 and B7 of the review, at once.
#[test]
fn hostile_clients_at_once_do_not_affect_others() {
    let seconds = env::var("MOTESEAL_SOAK_SECONDS").ok().map(|text| text.parse().unwrap());
    let scene = Scene::new();
    let (long, replayed, honest) = sealed(&scene);
    scene.write("tokens", &format!("read,write {TOKEN}\n"));
    let limits = [format!("answer_bytes={ANSWERS}"), format!("upload_bytes={UPLOADS}")];
    let body = "body_bytes=16MiB";
    let arguments = ["--tokens", "tokens", "--limit", &limits[0], "--limit", &limits[1]];
    let cloud = Cloud::start(&scene, "true", &[&arguments[..], &["--limit", body]].concat());
    let mut stream = cloud.connect(HONEST);
    for body in [&long, &replayed, &honest] {
        stream.write_all(&request("PUT", "/v1/bundles", body)).unwrap();
        let status = response(&mut stream).unwrap();
        assert!(status.contains(" 200 "), "{status}");
    }
    let operator = decode_public_pem(&fs::read(scene.path("keys/op.pub.pem")).unwrap()).unwrap();
    let roster = Roster::open(&fs::read(scene.path("roster.cbor")).unwrap(), &operator).unwrap();
    let path = paths::bundle(roster.id("long").unwrap(), SealIndex(0));
    fs::write(scene.path("replayed.seals"), &replayed).unwrap();

    let child = Command::new("nice")
        .args(["-n", "19"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "soak::run_hostile_clients", "--ignored"])
        .current_dir(scene.path(""))
        .env("MOTESEAL_CLOUD", cloud.address.to_string())
        .env("MOTESEAL_LONG", path)
        .stdout(Stdio::null())
        .spawn();
    let mut hostile = Hostile(child.unwrap());
    let requests = [
        request("GET", "/healthz", &[]),
        request("GET", "/v1/devices", &[]),
        request("PUT", "/v1/bundles", &honest),
    ];
    let (start, length) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(10)));
    let mut ratios = vec![Vec::new(); requests.len()];
    while start.elapsed() < length {
        hostile.signal("-STOP");
        thread::sleep(Duration::from_secs(1));
        let alone = latencies(&mut stream, &requests);
        hostile.signal("-CONT");
        thread::sleep(Duration::from_secs(2));
        let loaded = latencies(&mut stream, &requests);
        for ((ratios, alone), loaded) in ratios.iter_mut().zip(alone).zip(loaded) {
            ratios.push(loaded / alone);
        }
    }
    drop(hostile);
    let medians = ratios.into_iter().map(|mut ratios| {
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    });
    let medians: Vec<f64> = medians.collect();
    stream.write_all(&request("GET", "/metrics", &[])).unwrap();
    let (_, metrics) = read_response(&mut stream).unwrap();
    let uploaded = metrics
        .lines()
        .find_map(|line| line.strip_prefix("moteseal_upload_bytes_total "))
        .map_or(0, |bytes| bytes.parse::<usize>().unwrap());
    let used = memory(&cloud.process, "VmHWM:");
    let log = cloud.stop(&scene);
    println!(
        "slowdown of a health check, a listing and an upload: {medians:.2?}; {} replayed uploads; {} \
         MiB of memory; {} bytes of log",
        uploaded / replayed.len(),
        used >> 20,
        log.len()
    );
    // The hostile clients were active.
    assert!(uploaded > 20 * replayed.len(), "{uploaded} bytes of uploads");
    assert!(log.contains("were suppressed") && log.contains("127.0.0.2"), "{log}");
    assert!(used < ANSWERS + UPLOADS + REST, "{} MiB of memory", used >> 20);
    // Each address may cause 20 lines in ten seconds.
    let intervals = start.elapsed().as_secs() / 10 + 2;
    let lines = log.lines().count() as u64;
    assert!(lines < 50 * intervals, "{lines} lines in {intervals} intervals");
    assert!(log.len() as u64 <= 600 * lines, "{} bytes in {lines} lines", log.len());
    if seconds.is_some() {
        assert!(medians.iter().all(|slowdown| *slowdown < 2.0), "{medians:?}");
    }
}
