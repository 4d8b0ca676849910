//! `moteseal-demo scale`: a cloud of many processes on real engines. Real readings are sealed and pushed to
//! it while one process of each kind is killed; everything that was acknowledged must be served.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use moteseal_api::Query;
use moteseal_client::Rows;
use moteseal_core::record::EpochNumber;
use moteseal_device::push::Push;
use moteseal_lab::latency::Process;
use moteseal_net::{Client, Options};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_terminal::failure::Failure;
use moteseal_terminal::output::{Stdout, diagnostic};
use moteseal_terminal::progress::{bar, count, thousands};
use serde_json::json;

use crate::fleet::{self, Fleet};
use crate::{internal, readings, runtime};

/// The number of epochs of each mote with `--quick`.
const QUICK_EPOCHS: u64 = 4;
/// The servers of the stream, each with all messages.
const SERVERS: usize = 3;
/// The time within which an engine is ready.
const ENGINE_START: Duration = Duration::from_secs(180);
/// The time within which a process of the cloud is ready.
const START: Duration = Duration::from_secs(60);
/// The time within which an upload is acknowledged, and everything that was acknowledged is served.
const RECOVERY: Duration = Duration::from_secs(120);
/// The pause before an upload is sent to the other intake.
const PAUSE: Duration = Duration::from_millis(200);
const KEYSPACE: &str = "moteseal";

/// Run a cloud on three JetStream servers and Cassandra, and kill one process of each kind.
///
/// Eight motes push their sealed readings to two intakes. Two workers take them from the stream and write them
/// to Cassandra, and one process serves them. In the middle, one process of each kind is killed with SIGKILL.
/// Afterwards, a client fetches and verifies everything that was acknowledged.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  make demo-scale\n\n\
                        Everything runs on the loopback interface of this machine and ends with the demo. Exit codes: 0 nothing\n\
                        that was acknowledged is missing, 3 something is missing.")]
pub(crate) struct Arguments {
    /// The `moteseal` program
    #[arg(long, value_name = "FILE")]
    moteseal: PathBuf,
    /// The script that runs the engines
    #[arg(long, value_name = "FILE", default_value = "tools/engines.sh")]
    engines: PathBuf,
    /// Use fewer epochs
    #[arg(long)]
    quick: bool,
    /// Print the result as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let home = tempfile::tempdir().map_err(internal)?;
    let motes = readings::motes(arguments.quick.then_some(QUICK_EPOCHS))?;
    let fleet = fleet::build(home.path(), &motes)?;
    let mut cloud = Cloud::start(arguments, home.path())?;
    diagnostic(format_args!(
        "{SERVERS} servers of JetStream, 1 of Cassandra, 2 intakes, 2 workers and 1 server of reads are ready"
    ));
    let runtime = runtime()?;
    let start = Instant::now();
    let acknowledged = runtime.block_on(push(&mut cloud, &fleet))?;
    let pushed = start.elapsed();
    let served = runtime.block_on(fetch(&cloud, &fleet))?;
    let drained = start.elapsed().saturating_sub(pushed);
    let sealed = fleet.stars.events + fleet.trees.events;
    let bundles = (fleet.stars.bundles.len() + fleet.trees.bundles.len()) as u64;
    if arguments.json {
        Stdout::lock().line(json!({
            "bundles": bundles, "acknowledged": acknowledged, "served": served.bundles,
            "readings": sealed, "served_readings": served.readings, "killed": cloud.killed,
            "push_s": pushed.as_secs_f64(), "drain_s": drained.as_secs_f64(),
        }))?;
    } else {
        let mut out = Stdout::lock();
        out.line("")?;
        out.line(format_args!("  killed        {}", cloud.killed.join(", ")))?;
        out.line(format_args!(
            "  acknowledged  {} of {} in {:.1} s",
            thousands(acknowledged),
            count(bundles, "bundle"),
            pushed.as_secs_f64()
        ))?;
        out.line(format_args!(
            "  served        {} with {} readings {:.1} s later, every seal verified",
            count(served.bundles, "bundle"),
            thousands(served.readings),
            drained.as_secs_f64()
        ))?;
        out.line(format_args!(
            "  missing       {} of {} readings",
            thousands(sealed - served.readings.min(sealed)),
            thousands(sealed)
        ))?;
        out.line("")?;
    }
    if served.bundles == acknowledged && acknowledged == bundles && served.readings == sealed {
        return Ok(());
    }
    Err(Failure::refused(
        "NOT EVERYTHING THAT WAS ACKNOWLEDGED IS SERVED: this is a fault of Moteseal; please report it",
    ))
}

/// The engines and the processes of the cloud.
struct Cloud {
    folder: PathBuf,
    moteseal: String,
    engines: String,
    /// The configuration of each server of the stream: arguments of its start.
    servers: Vec<(Vec<String>, Option<Process>)>,
    table: (u16, Option<Process>),
    /// The arguments for the stream and for the table.
    stream: Vec<String>,
    store: String,
    intakes: Vec<(Process, Client)>,
    workers: Vec<Process>,
    reads: Option<(Process, Client)>,
    killed: Vec<String>,
}

impl Cloud {
    fn start(arguments: &Arguments, folder: &Path) -> Result<Self, Failure> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let ports = free_ports(3 * SERVERS + 2)?;
        let (clients, rest) = ports.split_at(SERVERS);
        let (monitors, rest) = rest.split_at(SERVERS);
        let (routes, rest) = rest.split_at(SERVERS);
        let mut cloud = Self {
            folder: folder.to_owned(),
            moteseal: text(&arguments.moteseal),
            engines: text(&arguments.engines),
            servers: Vec::new(),
            table: (rest[0], None),
            stream: vec!["--stream-replicas".to_owned(), SERVERS.to_string()],
            store: format!("cassandra://127.0.0.1:{}/{KEYSPACE}", rest[0]),
            intakes: Vec::new(),
            workers: Vec::new(),
            reads: None,
            killed: Vec::new(),
        };
        for number in 0..SERVERS {
            let mut server = vec![
                text(&folder.join(format!("nats-{}", number + 1))),
                clients[number].to_string(),
                monitors[number].to_string(),
                format!("nats-{}", number + 1),
            ];
            server.push(routes[number].to_string());
            server.extend(routes.iter().map(u16::to_string));
            cloud.servers.push((server, None));
            cloud.stream.extend([
                "--stream".to_owned(),
                format!("nats://127.0.0.1:{}", clients[number]),
                "--stream-monitor".to_owned(),
                format!("http://127.0.0.1:{}", monitors[number]),
            ]);
            cloud.start_server(number)?;
        }
        cloud.start_table(rest[1])?;
        let limits =
            ["--max-mib", "256", "--piece-mib", "64", "--dead-mib", "16", "--ack-wait", "2"];
        cloud.until_done("the stream", &[&["stream", "init"][..], &limits].concat(), true)?;
        let store = cloud.store.clone();
        let init = ["store", "init", "--replicas", "1", "--store", &store];
        cloud.until_done("Cassandra", &init, false)?;
        for _ in 0..2 {
            cloud.start_intake()?;
            cloud.start_worker()?;
        }
        cloud.start_reads()?;
        Ok(cloud)
    }

    fn start_server(&mut self, number: usize) -> Result<(), Failure> {
        let (arguments, process) = &mut self.servers[number];
        let mut run = vec![self.engines.clone(), "run".to_owned(), "nats".to_owned()];
        run.extend_from_slice(arguments);
        *process = Some(start(&self.folder, &format!("nats-{}", number + 1), &run)?);
        Ok(())
    }

    fn start_table(&mut self, internal: u16) -> Result<(), Failure> {
        let folder = self.folder.join("cassandra").to_string_lossy().into_owned();
        let run = [&self.engines, "run", "cassandra", &folder].map(str::to_owned);
        let ports = [self.table.0.to_string(), format!("storage_port={internal}")];
        let run = [&run[..], &ports].concat();
        self.table.1 = Some(start(&self.folder, "cassandra", &run)?);
        Ok(())
    }

    /// Repeats a command until an engine is ready for it.
    fn until_done(&self, engine: &str, what: &[&str], is_stream: bool) -> Result<(), Failure> {
        let start = Instant::now();
        let mut all = vec![self.moteseal.clone()];
        all.extend(what.iter().map(|&argument| argument.to_owned()));
        if is_stream {
            all.extend_from_slice(&self.stream);
        }
        while let Err(error) = command(&all) {
            if start.elapsed() > ENGINE_START {
                return Err(internal(format_args!("{engine} does not become ready: {error}")));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Starts a process of the cloud, and returns a client for it.
    fn start_role(&self, name: &str, role: &str) -> Result<(Process, Client), Failure> {
        let path = |name: &str| self.folder.join(name).to_string_lossy().into_owned();
        let (roster, operator) = (path("roster.cbor"), path("keys/op.pub.pem"));
        let run =
            ["cloud", "run", "--listen", "127.0.0.1:0", "--role", role, "--store", &self.store];
        let group = ["--roster", &roster, "--operator", &operator];
        let mut all = vec![self.moteseal.clone()];
        all.extend([&run[..], &group].concat().into_iter().map(str::to_owned));
        all.extend_from_slice(&self.stream);
        let process = start(&self.folder, name, &all)?;
        let url = process.line(START).map_err(internal)?;
        let client = Client::new(&url, &Options::default()).map_err(internal)?;
        Ok((process, client))
    }

    fn start_intake(&mut self) -> Result<(), Failure> {
        let name = format!("intake-{}", self.intakes.len() + 1);
        self.intakes.push(self.start_role(&name, "intake")?);
        Ok(())
    }

    fn start_worker(&mut self) -> Result<(), Failure> {
        let name = format!("worker-{}", self.workers.len() + 1);
        self.workers.push(self.start_role(&name, "worker")?.0);
        Ok(())
    }

    fn start_reads(&mut self) -> Result<(), Failure> {
        self.reads = Some(self.start_role("server", "serve")?);
        Ok(())
    }

    /// Kills a process. Its drop sends SIGKILL.
    fn kill(&mut self, process: Option<Process>, acknowledged: u64) {
        let Some(process) = process else { return };
        diagnostic(format_args!(
            "{} acknowledged: {} is killed",
            count(acknowledged, "bundle"),
            process.name()
        ));
        self.killed.push(process.name());
    }

    /// Does what happens after this part of the uploads, in tenths. Engines and the server of reads start again;
    /// an intake and a worker do not.
    fn disturb(&mut self, tenths: usize, acknowledged: u64) -> Result<(), Failure> {
        match tenths {
            2 => {
                let server = self.servers[0].1.take();
                self.kill(server, acknowledged);
            }
            3 => {
                let (intake, _) = self.intakes.remove(0);
                self.kill(Some(intake), acknowledged);
            }
            4 => {
                let worker = self.workers.remove(0);
                self.kill(Some(worker), acknowledged);
            }
            5 => {
                let table = self.table.1.take();
                self.kill(table, acknowledged);
                let internal = free_ports(1)?[0];
                self.start_table(internal)?;
            }
            7 => self.start_server(0)?,
            8 => {
                let server = self.reads.take().map(|(server, _)| server);
                self.kill(server, acknowledged);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Pushes each bundle to one of the intakes, and to the other one if it does not acknowledge it. Returns how many
/// bundles were acknowledged.
async fn push(cloud: &mut Cloud, fleet: &Fleet) -> Result<u64, Failure> {
    let fail = |error| Failure::file("read", &fleet.bundles, &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&fleet.bundles).map_err(fail)? {
        files.push(entry.map_err(fail)?.path());
    }
    files.sort();
    let progress = bar(files.len() as u64, "pushing");
    let (mut acknowledged, mut tenths) = (0, 0);
    for (number, file) in files.iter().enumerate() {
        while tenths < 10 * number / files.len() {
            tenths += 1;
            cloud.disturb(tenths, acknowledged)?;
        }
        let push = Push::of(vec![file.clone()]).map_err(internal)?;
        let start = Instant::now();
        let mut intake = number;
        acknowledged += loop {
            let (process, client) = &cloud.intakes[intake % cloud.intakes.len()];
            match push.to(client, &mut |_| {}).await {
                Ok(pushed) => break pushed.queued + pushed.stored + pushed.known,
                Err(error) if start.elapsed() > RECOVERY => {
                    return Err(internal(process.reason(&error.to_string())));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
            intake += 1;
        };
        progress.set_position(acknowledged);
    }
    progress.finish_and_clear();
    cloud.start_reads()?;
    Ok(acknowledged)
}

/// What a client fetched.
#[derive(Debug, Default)]
struct Served {
    bundles: u64,
    readings: u64,
}

/// Fetches and verifies all readings, until the workers have stored everything that was acknowledged.
async fn fetch(cloud: &Cloud, fleet: &Fleet) -> Result<Served, Failure> {
    let (process, client) =
        cloud.reads.as_ref().ok_or_else(|| internal("the server of reads does not run"))?;
    let devices = [&fleet.stars.devices[..], &fleet.trees.devices].concat();
    let bundles = fleet.stars.bundles.iter().chain(&fleet.trees.bundles);
    let first = bundles.map(moteseal_device::Bundle::epoch).min().unwrap_or(EpochNumber(0));
    let wanted = fleet.stars.events + fleet.trees.events;
    let query = Query {
        devices,
        since: first,
        until: None,
        choice: Choice::Rate(Rate::ALL),
        columns: Vec::new(),
    };
    let start = Instant::now();
    loop {
        let mut rows = 0;
        let mut sink = |of: &Rows<'_>| {
            rows += u64::from(of.len());
            Ok(())
        };
        let reader = moteseal_client::Client::new(client, &fleet.roster);
        let result = reader.query(&query).run(&mut sink).await;
        let is_late = start.elapsed() > RECOVERY;
        match result {
            Ok(verified) if is_late || verified.report.is_complete() && rows >= wanted => {
                let seals = verified.report.devices.iter().map(|device| device.seals).sum();
                return Ok(Served { bundles: seals, readings: rows });
            }
            Err(error) if is_late => return Err(internal(process.reason(&error.to_string()))),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Starts a command. What it prints on standard error goes to `NAME.log` in a folder.
fn start(folder: &Path, name: &str, command: &[String]) -> Result<Process, Failure> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| internal("there is no command"))?;
    let log = folder.join(format!("{name}.log"));
    Process::start(Path::new(program), arguments, &[], &log).map_err(internal)
}

/// Runs a command to its end.
fn command(command: &[String]) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("there is no command")?;
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// Returns ports of the loopback interface that are free now.
fn free_ports(count: usize) -> Result<Vec<u16>, Failure> {
    let fail = |error| internal(format_args!("there is no free port: {error}"));
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").map_err(fail));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    listeners.iter().map(|of| Ok(of.local_addr().map_err(fail)?.port())).collect()
}
