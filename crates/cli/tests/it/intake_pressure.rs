//! An intake while its stream takes nothing, because it is full or because its server is paused. Uploads are refused with
//! 503 and `Retry-After`, and the memory and the open files of the intake stay within its limits. When the stream takes
//! messages again, every refused upload succeeds, and each bundle is stored once.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use moteseal_api::{POSITION, paths};
use rustix::process::Signal;

use crate::coap_memory::memory;
use crate::coap_transport::Service;
use crate::hostile_clients::connect;
use crate::nats::Server;
use crate::scene::Scene;
use crate::soak::{read_response, request};
use crate::stream_roles::{cloud, curl};

/// The clients that upload at the same time, each of them the bundle of one epoch.
const SENDERS: usize = 64;
/// The readings of a sender's bundle, and of a long bundle. A reading has at most 260 bytes.
const READINGS: u64 = 225;
const LONG_READINGS: u64 = 3600;
/// The clients that announce a body of the maximum size, and stop after 64 KiB.
const STALLED: usize = 16;
/// The long uploads that are sent together by clients that do not wait for their responses.
const AT_ONCE: usize = 8;
/// The addresses 127.0.0.x of the senders and of the other clients.
const SENDER: u8 = 2;
const OTHER: u8 = 3;

/// The refusals for which the test waits: while the stream is full, and after the intake has reached its limit while
/// the server is paused.
const FULL: usize = 300;
const BUSY: usize = 150;
const PATIENCE: Duration = Duration::from_secs(120);

/// The limits of the intake, which are its options, in bytes or connections.
const BODY: usize = 4 << 20;
const UPLOADS: usize = 48 << 20;
const CONNECTIONS: usize = 256;
/// Encoded batches (docs/scale.md, "Back-pressure").
const BATCHES: usize = 128 << 20;
/// A connection may have a read buffer of 128 KiB, and a first piece of a body in a previous one.
const OF_CONNECTION: usize = 256 << 10;
/// Everything that does not depend on the clients, without the pages of the program's file.
const REST: usize = 32 << 20;
const MOST: usize = UPLOADS + BATCHES + CONNECTIONS * OF_CONNECTION + REST;
/// How much the memory may grow after the limit was reached. The uploads that are refused then are twice as long.
const GROWTH: usize = 64 << 20;
/// The files that an intake opens for a short time, apart from connections.
const FILES: usize = 8;

/// Writes a table whose readings are `step` seconds apart. Their lengths are nearly the maximum.
fn table(scene: &Scene, name: &str, readings: u64, step: u64) {
    let note = "all is well ".repeat(21);
    let mut text = String::from("ts,humidity,temperature,note\n");
    for number in 0..readings {
        let second = 1_767_225_600 + number * step;
        text += &format!("{second},{}.5,{}.25,{note}\n", 40 + number % 9, number % 97);
    }
    scene.write(name, &text);
}

fn bundles(scene: &Scene, device: &str) -> Vec<Vec<u8>> {
    let names = scene.names("bundles").into_iter().filter(|name| name.starts_with(device));
    names.map(|name| fs::read(scene.path("bundles").join(name)).unwrap()).collect()
}

fn files(process: &Service) -> usize {
    fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count()
}

/// Returns the peak of a process's memory, without the pages of its program's file.
fn peak(process: &Service) -> usize {
    memory(process, "VmHWM").saturating_sub(memory(process, "RssFile"))
}

pub(crate) fn metric(url: &str, name: &str) -> f64 {
    let page = curl(&[&format!("{url}/metrics")]);
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name}: {page}")).parse().unwrap()
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} takes too long");
        sleep(Duration::from_millis(10));
    }
}

/// An intake, and the reasons of all refusals so far.
struct Intake {
    address: SocketAddr,
    refusals: Mutex<Vec<String>>,
}

impl Intake {
    fn connect(&self, host: u8) -> TcpStream {
        let stream = connect(self.address, host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Reads the response to an upload. Returns its position, or `None` if it was refused with an invitation to try again.
    fn response(&self, stream: &mut TcpStream) -> Option<u64> {
        let (head, body) = read_response(stream).unwrap();
        let field = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            line.unwrap_or_else(|| panic!("no {name}: {head}{body}")).parse::<u64>().unwrap()
        };
        if head.starts_with("http/1.1 200 ") {
            return Some(field(POSITION));
        }
        let is_temporary = ["503", "429"].iter().any(|code| head.split(' ').nth(1) == Some(*code));
        assert!(is_temporary, "{head}{body}");
        assert!(field("retry-after") > 0, "{head}");
        self.refusals.lock().unwrap().push(body);
        None
    }

    /// Returns the number of refusals with a reason.
    fn refused(&self, reason: &str) -> usize {
        self.refusals.lock().unwrap().iter().filter(|body| body.contains(reason)).count()
    }

    /// Uploads until the intake acknowledges it, sooner than `Retry-After` demands. Returns the position.
    fn send(&self, bundle: &[u8]) -> u64 {
        let (start, upload) = (Instant::now(), request("PUT", paths::BUNDLES, bundle));
        loop {
            let mut stream = self.connect(SENDER);
            stream.write_all(&upload).unwrap();
            if let Some(position) = self.response(&mut stream) {
                return position;
            }
            assert!(start.elapsed() < PATIENCE, "{:?}", self.refusals.lock().unwrap().last());
            sleep(Duration::from_millis(10));
        }
    }

    /// Sends uploads whose clients close the connections as soon as the intake publishes what they sent. Reads only
    /// refusals.
    fn abandon(&self, upload: &[u8]) {
        let url = format!("http://{}", self.address);
        let queue = || metric(&url, "moteseal_store_queue");
        let (start, before) = (Instant::now(), queue());
        let mut streams: Vec<TcpStream> = (0..AT_ONCE).map(|_| self.connect(OTHER)).collect();
        for stream in &mut streams {
            stream.write_all(upload).unwrap();
            stream.set_nonblocking(true).unwrap();
        }
        // Publications that began earlier may end now, so the number of those in progress need not grow.
        while !streams.is_empty() && start.elapsed() < Duration::from_secs(2) {
            streams.retain_mut(|stream| {
                if !stream.peek(&mut [0]).is_ok_and(|length| length > 0) {
                    return true;
                }
                stream.set_nonblocking(false).unwrap();
                assert_eq!(self.response(stream), None, "the server is paused");
                false
            });
            if queue() >= before + streams.len() as f64 {
                return;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn the_memory_of_an_intake_stays_bounded_while_its_stream_takes_nothing() {
    let (scene, nats) = (Scene::new(), Server::start());
    table(&scene, "short.csv", SENDERS as u64 * READINGS, 3600 / READINGS);
    table(&scene, "long.csv", LONG_READINGS, 1);
    scene.seal("short.csv", "dev1", &["--column", "note::text254"]).done();
    scene.seal("long.csv", "dev2", &["--column", "note::text254"]).done();
    let (short, long) = (bundles(&scene, "dev1"), bundles(&scene, "dev2").concat());
    assert_eq!(short.len(), SENDERS);
    let init = ["stream", "init", "--max-mib", "2", "--piece-mib", "2", "--dead-mib", "2"];
    scene.run(&[&init[..], &nats.arguments()].concat()).done();

    let limits = [
        format!("body_bytes={BODY}"),
        format!("upload_bytes={UPLOADS}"),
        format!("connections={CONNECTIONS}"),
        "peer_percent=100".to_owned(),
    ];
    let limits = limits.iter().flat_map(|limit| ["--limit", limit]);
    let role = ["--role", "intake"].into_iter().chain(limits).collect::<Vec<_>>();
    let process = cloud(&scene, &nats, &role);
    let url = process.url("http");
    let address = url.trim_start_matches("http://").parse().unwrap();
    let intake = Intake { address, refusals: Mutex::default() };
    let (alone, opened) = (peak(&process), files(&process));
    let mut most_open = opened;
    let mut watch = || {
        most_open = most_open.max(files(&process));
        assert!(most_open <= opened + CONNECTIONS + FILES, "{most_open} open files");
        assert!(peak(&process) < MOST, "{} bytes of memory, limit {MOST}", peak(&process));
    };

    let announced = request("PUT", paths::BUNDLES, &vec![0; BODY]);
    let stalled: Vec<TcpStream> = (0..STALLED)
        .map(|_| {
            let mut stream = intake.connect(OTHER);
            stream.write_all(&announced[..64 << 10]).unwrap();
            stream
        })
        .collect();
    let (at_limit, at_most, worker) = scope(|scope| {
        let senders: Vec<_> =
            short.iter().map(|bundle| scope.spawn(|| intake.send(bundle))).collect();
        // No worker runs, so the stream fills up.
        until("filling the stream", || {
            watch();
            intake.refused("the stream is full") >= FULL
        });
        let sent = senders.iter().filter(|sender| sender.is_finished()).count();
        assert!((1..SENDERS).contains(&sent), "{sent} uploads are in the stream");

        nats.signal(Signal::STOP);
        let upload = request("PUT", paths::BUNDLES, &long);
        let mut at_limit = None;
        until("reaching the limit of the intake", || {
            intake.abandon(&upload);
            watch();
            let busy = intake.refused("queue is full");
            if busy > 0 {
                at_limit.get_or_insert_with(|| peak(&process));
            }
            busy >= BUSY
        });
        let (at_limit, at_most) = (at_limit.unwrap(), peak(&process));

        nats.signal(Signal::CONT);
        let worker = cloud(&scene, &nats, &["--role", "worker,serve", "--store", "epochs.redb"]);
        for sender in senders {
            assert!(sender.join().unwrap() > 0);
        }
        (at_limit, at_most, worker)
    });
    intake.send(&long);
    watch();
    println!(
        "at most {:.0} MiB of memory, of which {:.0} MiB without clients and {:.0} MiB at the limit of the intake; \
         limit {:.0} MiB; {} refusals; {opened} open files without clients, at most {most_open}",
        peak(&process) as f64 / f64::from(1 << 20),
        alone as f64 / f64::from(1 << 20),
        at_limit as f64 / f64::from(1 << 20),
        MOST as f64 / f64::from(1 << 20),
        intake.refusals.lock().unwrap().len(),
    );
    assert!(BUSY * long.len() > 2 * GROWTH && at_most < at_limit + GROWTH, "{at_limit} {at_most}");
    assert!(peak(&process) < at_limit + GROWTH, "{} bytes after the flood", peak(&process));
    drop(stalled);
    until("closing what the clients closed", || files(&process) <= opened + FILES);
    until("publishing", || metric(url, "moteseal_store_queue") == 0.0);

    let reads = worker.url("http");
    let count = |name: &str| metric(reads, &format!("moteseal_worker_{name}_total"));
    until("storing", || count("stored") >= (SENDERS + 1) as f64);
    let counts = ["stored", "conflicts", "dead"].map(count);
    assert_eq!(counts, [(SENDERS + 1) as f64, 0.0, 0.0], "each bundle is stored once");
    for (device, readings) in [("dev1", SENDERS as u64 * READINGS), ("dev2", LONG_READINGS)] {
        let get = ["get", device, "--from", reads, "--rate", "1", "--format", "csv"];
        let got = scene.with_roster(&get).done();
        assert_eq!(got.out.lines().count() as u64, readings + 1, "{device}");
    }
}
