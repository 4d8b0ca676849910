//! A cloud on a cluster of three nats-servers and on Cassandra, while processes are killed and paused during
//! uploads, connections are cut, disks of servers are full, and the clocks of an intake and a worker are wrong by
//! hours. Nothing that was acknowledged is missing, stored twice or altered, and no message is left in the end.
//!
//! `MOTESEAL_SEEDS` sets the number of runs, by default 2, and `MOTESEAL_FIRST_SEED` the first seed, by default 17.
//! Each run has new readings, three faults and a check of everything. A seed determines the faults. `MOTESEAL_LONGEST_FAULT` is the longest time of one
//! fault in eight, in seconds; it is longer than the times after which processes give up.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::cassandra::Cassandra;
use crate::chance::Chance;
use crate::cluster::{Cluster, Proxy, SERVERS};
use crate::coap_transport::{ROSTER, Service};
use crate::scene::{GROUP_ARGUMENTS, Scene};
use crate::table_store::alone;

/// The readings of each device in a run, one a minute. An epoch is an hour.
const READINGS: u64 = 360;
/// The faults of a run.
const FAULTS: usize = 3;
/// The time within which an upload is acknowledged, and within which everything is served after the faults.
const PATIENCE: Duration = Duration::from_secs(90);
/// The time in which a fault begins after the uploads have begun, in milliseconds.
const UPLOADS_MS: u64 = 300;
/// The longest time of a fault.
const PAUSE_MS: u64 = 3000;
/// One fault in this many may last longer.
const LONG: u64 = 8;

/// What is wrong now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    ServerKilled(usize),
    ServerPaused(usize),
    ServerCut(usize),
    /// A server and the next one do not reach one another.
    RouteCut(usize),
    DiskFull(usize),
    TableKilled,
    TablePaused,
    /// Intakes, workers and readers do not reach Cassandra.
    TableCut,
    IntakeKilled(usize),
    IntakePaused(usize),
    WorkerKilled(usize),
    WorkerPaused(usize),
    ReadsKilled,
}

impl Fault {
    fn any(chance: &mut Chance) -> Self {
        let server = usize::try_from(chance.below(SERVERS as u64)).unwrap();
        let one = usize::try_from(chance.below(2)).unwrap();
        match chance.below(100) {
            0..12 => Self::ServerKilled(server),
            12..24 => Self::ServerPaused(server),
            24..34 => Self::ServerCut(server),
            34..40 => Self::RouteCut(server),
            40..50 => Self::DiskFull(server),
            // Cassandra takes long to start.
            50..53 => Self::TableKilled,
            53..58 => Self::TablePaused,
            58..63 => Self::TableCut,
            63..73 => Self::IntakeKilled(one),
            73..80 => Self::IntakePaused(one),
            80..90 => Self::WorkerKilled(one),
            90..97 => Self::WorkerPaused(one),
            _ => Self::ReadsKilled,
        }
    }
}

/// Returns temperature and humidity of a reading, without their fractions.
const fn reading_of(reading: u64, seed: u64) -> [u64; 2] {
    [20 + (reading + seed) % 7, 40 + reading % 9]
}

/// Returns the library that changes the clock of a process.
fn faketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().map(|folder| folder.unwrap().path());
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    libraries.find(|path| path.exists()).expect("faketime is missing; run tools/setup.sh test")
}

fn signal(process: &Service, signal: Signal) {
    let pid = Pid::from_raw(process.id().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Pushes bundles in one request to one of the intakes until one acknowledges them.
fn push(scene: &Scene, intakes: &Mutex<Vec<String>>, bundles: &[String], chance: &mut Chance) {
    let start = Instant::now();
    let folder = scene.path("sending");
    std::fs::create_dir(&folder).unwrap();
    for bundle in bundles {
        std::fs::hard_link(scene.path("bundles").join(bundle), folder.join(bundle)).unwrap();
    }
    let mut intake = usize::try_from(chance.below(2)).unwrap();
    loop {
        let url = intakes.lock().unwrap()[intake].clone();
        let push = scene.command(&["push", "sending", "--to", &url, "--json"]);
        // An intake that is paused does not answer, so the wait for it is bounded from outside.
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "10"]).arg(push.get_program()).args(push.get_args());
        command.current_dir(push.get_current_dir().unwrap()).stdin(Stdio::null());
        let output = command.output().unwrap();
        if output.status.success() {
            return std::fs::remove_dir_all(folder).unwrap();
        }
        let error = String::from_utf8_lossy(&output.stdout);
        assert!(start.elapsed() < PATIENCE, "{bundles:?}: {error}");
        std::thread::sleep(Duration::from_millis(50));
        intake = 1 - intake;
    }
}

struct Site<'c> {
    scene: Arc<Scene>,
    cluster: Cluster,
    cassandra: &'c Cassandra,
    /// The connection of the processes to Cassandra.
    wire: Proxy,
    table: String,
    intakes: Vec<Service>,
    /// The addresses of the intakes.
    urls: Arc<Mutex<Vec<String>>>,
    workers: Vec<Service>,
    reads: Option<Service>,
    /// How many readings of each device were acknowledged.
    readings: u64,
    /// The longest time of one fault in [`LONG`], in milliseconds, if it is not [`PAUSE_MS`].
    longest_ms: Option<u64>,
}

impl<'c> Site<'c> {
    fn new(cassandra: &'c Cassandra) -> Self {
        let (scene, cluster) = (Arc::new(Scene::new()), Cluster::start());
        let mut address = cassandra.address("faults");
        let port = address.hosts[0].rsplit_once(':').unwrap().1.parse().unwrap();
        let wire = Proxy::to(port);
        address.hosts = vec![format!("127.0.0.1:{}", wire.port)];
        let table = address.to_string();
        scene.run(&["store", "init", "--replicas", "1", "--store", &table]).done();
        let stream = cluster.arguments();
        let stream: Vec<&str> = stream.iter().map(String::as_str).collect();
        let limits = ["--max-mib", "32", "--piece-mib", "16", "--dead-mib", "4", "--ack-wait", "2"];
        let init = [&["stream", "init"][..], &limits, &stream].concat();
        let start = Instant::now();
        loop {
            // The cluster must choose its leader first.
            let run = scene.run(&init);
            if run.code == 0 {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{run:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
        let mut site = Self {
            scene,
            cluster,
            cassandra,
            wire,
            table,
            intakes: Vec::new(),
            urls: Arc::default(),
            workers: Vec::new(),
            reads: None,
            readings: 0,
            longest_ms: std::env::var("MOTESEAL_LONGEST_FAULT")
                .ok()
                .map(|seconds| seconds.parse::<u64>().unwrap() * 1000),
        };
        site.intakes = (0..2).map(|number| site.process("intake", number)).collect();
        let urls = site.intakes.iter().map(|intake| intake.url("http").to_owned());
        *site.urls.lock().unwrap() = urls.collect();
        site.workers = (0..2).map(|number| site.process("worker", number)).collect();
        site.reads = Some(site.process("serve", 0));
        site
    }

    /// Starts a process. The clock of the first one with a role is right; that of the second one is not.
    fn process(&self, role: &str, number: usize) -> Service {
        let stream = self.cluster.arguments();
        let stream: Vec<&str> = stream.iter().map(String::as_str).collect();
        let run =
            ["cloud", "run", "--listen", "127.0.0.1:0", "--role", role, "--store", &self.table];
        let mut command = self.scene.command(&[&run[..], &ROSTER, &stream].concat());
        if number > 0 {
            let clock = if role == "worker" { "+3h" } else { "-3h" };
            command.env("LD_PRELOAD", faketime()).env("FAKETIME", clock);
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        Service::of(command, 1)
    }

    /// Makes a fault happen. Returns false if it is impossible here.
    fn begin(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::ServerKilled(number) => self.cluster.servers[number].kill(),
            Fault::ServerPaused(number) => self.cluster.servers[number].signal(Signal::STOP),
            Fault::ServerCut(number) => self.cluster.cut(number, true),
            Fault::RouteCut(number) => self.cluster.cut_route(number, (number + 1) % SERVERS, true),
            Fault::DiskFull(number) => return self.cluster.fill(number),
            Fault::TableKilled => self.cassandra.kill(),
            Fault::TablePaused => self.cassandra.signal("STOP"),
            Fault::TableCut => self.wire.cut(true),
            // A process that is killed is replaced when the fault ends.
            Fault::IntakeKilled(number) => signal(&self.intakes[number], Signal::KILL),
            Fault::IntakePaused(number) => signal(&self.intakes[number], Signal::STOP),
            Fault::WorkerKilled(number) => signal(&self.workers[number], Signal::KILL),
            Fault::WorkerPaused(number) => signal(&self.workers[number], Signal::STOP),
            Fault::ReadsKilled => drop(self.reads.take()),
        }
        true
    }

    fn end(&mut self, fault: Fault) {
        match fault {
            Fault::ServerKilled(number) => self.cluster.servers[number].restart(),
            Fault::ServerPaused(number) => self.cluster.servers[number].signal(Signal::CONT),
            Fault::ServerCut(number) => self.cluster.cut(number, false),
            Fault::RouteCut(number) => {
                self.cluster.cut_route(number, (number + 1) % SERVERS, false);
            }
            Fault::DiskFull(number) => self.cluster.free(number),
            Fault::TableKilled => self.cassandra.start(&[]),
            Fault::TablePaused => self.cassandra.signal("CONT"),
            Fault::TableCut => self.wire.cut(false),
            Fault::IntakeKilled(number) => {
                self.intakes[number] = self.process("intake", number);
                self.urls.lock().unwrap()[number] = self.intakes[number].url("http").to_owned();
            }
            Fault::IntakePaused(number) => signal(&self.intakes[number], Signal::CONT),
            Fault::WorkerKilled(number) => self.workers[number] = self.process("worker", number),
            Fault::WorkerPaused(number) => signal(&self.workers[number], Signal::CONT),
            Fault::ReadsKilled => self.reads = Some(self.process("serve", 0)),
        }
    }

    /// Seals the next readings of both devices. Returns the new bundles.
    fn seal(&self, seed: u64) -> Vec<String> {
        let mut table = "ts,humidity,temperature\n".to_owned();
        for reading in self.readings..self.readings + READINGS {
            let minute = 1_767_225_600 + reading * 60;
            let [temperature, humidity] = reading_of(reading, seed);
            table += &format!("{minute},{humidity}.5,{temperature}.25\n");
        }
        self.scene.write("readings.csv", &table);
        let before = self.scene.names("bundles");
        self.scene.seal("readings.csv", "dev1", &[]).done();
        self.scene.seal("readings.csv", "dev2", &["--scheme", "tree"]).done();
        self.scene.names("bundles").into_iter().filter(|name| !before.contains(name)).collect()
    }

    /// Waits until a client gets and verifies every reading of a run.
    fn check(&self, seed: u64) {
        let reads = self.reads.as_ref().unwrap();
        let (first, last) = (1_767_225_600 + self.readings * 60, READINGS);
        let since = jiff::Timestamp::from_second(first.cast_signed()).unwrap().to_string();
        for device in ["dev1", "dev2"] {
            let get =
                ["get", device, "--from", reads.url("http"), "--rate", "1", "--format", "csv"];
            let range = ["--since", &since];
            let start = Instant::now();
            loop {
                let run = self.scene.run(&[&get[..], &range, &GROUP_ARGUMENTS[..]].concat());
                let rows = run.out.lines().count() as u64;
                if run.code == 0 && rows == last + 1 {
                    let values =
                        run.out.lines().skip(1).map(|row| row.splitn(6, ',').last().unwrap());
                    let expected = (self.readings..).map(|reading| {
                        let [temperature, humidity] = reading_of(reading, seed);
                        format!("{temperature}.25,{humidity}.50")
                    });
                    values.zip(expected).for_each(|(value, expected)| assert_eq!(value, expected));
                    break;
                }
                assert!(rows <= last + 1, "{seed}: {device} has {rows} rows");
                assert!(start.elapsed() < PATIENCE, "{seed}: {device} has {rows} rows: {run:?}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// Waits until no server has a message that is not stored.
    fn drained(&self) {
        let start = Instant::now();
        for server in 0..SERVERS {
            while self.cluster.messages(server, "moteseal") != Some(0) {
                let left = self.cluster.messages(server, "moteseal");
                assert!(start.elapsed() < PATIENCE, "server {server} has {left:?} messages");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn run(&mut self, seed: u64) {
        let mut chance = Chance::new(seed);
        let bundles = self.seal(seed);
        let mut faults: Vec<Fault> = Vec::new();
        while faults.len() < FAULTS {
            let fault = Fault::any(&mut chance);
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        // If this test ends here, the seed is the last line.
        println!("seed {seed}: {} bundles, {faults:?}", bundles.len());
        for (fault, bundles) in faults.iter().zip(bundles.chunks(bundles.len().div_ceil(FAULTS))) {
            let (scene, urls) = (Arc::clone(&self.scene), Arc::clone(&self.urls));
            let longest = self.longest_ms.filter(|_| chance.below(LONG) == 0).unwrap_or(PAUSE_MS);
            let pause = Duration::from_millis(500 + chance.below(longest - 500));
            let delay = Duration::from_millis(chance.below(UPLOADS_MS));
            std::thread::scope(|scope| {
                // The fault begins while uploads are in progress. Those that it stops are repeated until it has ended.
                scope.spawn(move || {
                    let mut chance = Chance::new(seed + 1);
                    let mut rest = bundles;
                    while !rest.is_empty() {
                        let count = 1 + usize::try_from(chance.below(2)).unwrap();
                        let (first, later) = rest.split_at(count.min(rest.len()));
                        push(&scene, &urls, first, &mut chance);
                        rest = later;
                    }
                });
                std::thread::sleep(delay);
                if self.begin(*fault) {
                    std::thread::sleep(pause);
                    self.end(*fault);
                } else {
                    println!(
                        "seed {seed}: {fault:?} is left out: this user cannot mount a small disk"
                    );
                }
            });
        }
        self.check(seed);
        self.readings += READINGS;
    }
}

#[test]
fn faults_of_every_process_and_engine_lose_double_and_alter_nothing() {
    let number =
        |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse::<u64>().unwrap());
    let (seeds, first) = (number("MOTESEAL_SEEDS", 2), number("MOTESEAL_FIRST_SEED", 17));
    let cassandra = alone();
    let mut site = Site::new(&cassandra);
    let start = Instant::now();
    for seed in first..first + seeds {
        site.run(seed);
        println!("{} of {seeds} runs, {:.1} s", seed - first + 1, start.elapsed().as_secs_f32());
    }
    site.drained();
    let check = site.scene.run(&[&["store", "check", &site.table][..], &GROUP_ARGUMENTS].concat());
    let readings = 2 * seeds * READINGS;
    let seals = readings / 60;
    let check = check.done().out.replace(',', "");
    assert!(check.contains(&format!("whole; {seals} seals {readings} readings")), "{check}");
    let stream = site.cluster.arguments();
    let stream: Vec<&str> = stream.iter().map(String::as_str).collect();
    let dead = site.scene.run(&[&["stream", "dead", "count"][..], &stream].concat()).done();
    assert_eq!(dead.out.trim(), "0");
}
