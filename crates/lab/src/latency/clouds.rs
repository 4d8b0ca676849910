//! The services of the paper's four configurations, as processes: `moteseal cloud run`, with the engines
//! of configuration 4.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use moteseal_net::{Client, Credential, Login, Options};

use super::costs::{Used, bytes_in};
use super::engines::{Cassandra, Nats, WORKER_PASSWORD};
use super::log::{LEVEL, Log};
use super::process::Process;
use super::profile::{Callers, Recordings};
use super::wired::{Configuration, TableKind};
use super::{Failed, Fleet, Programs};

/// The time within which a cloud is ready.
const START: Duration = Duration::from_secs(60);
const USER: &str = "sensor";
const PASSWORD: &str = "correct horse battery";

/// The files that the services share: the roster, a certificate for 127.0.0.1, and the table of users.
#[derive(Debug)]
pub(super) struct Site<'p> {
    programs: &'p Programs,
    folder: PathBuf,
    /// The level of the logs.
    level: &'static str,
    /// The number of nats-servers, each of which stores every message.
    replicas: usize,
    /// Whether processes are recorded.
    profiled: bool,
}

/// A service that accepts uploads, and what runs behind it.
#[derive(Debug)]
pub(super) struct Cloud {
    url: String,
    options: Options,
    /// The log of the process that accepts uploads.
    pub(super) uploads: Log,
    /// The log of the worker.
    pub(super) writes: Option<Log>,
    /// The address of the worker's pages.
    pub(super) worker: Option<String>,
    /// The process that accepts uploads, and the worker.
    processes: Vec<Process>,
    nats: Option<Nats>,
    cassandra: Option<Cassandra>,
}

impl Cloud {
    /// Returns a new client without a connection.
    pub(super) fn client(&self) -> Result<Client, Failed> {
        Ok(Client::new(&self.url, &self.options)?)
    }

    /// Returns the processor time of the processes of configuration 4.
    pub(super) fn used(&self) -> Result<Used, Failed> {
        let [intake, worker] = &self.processes[..] else { return Err("there is no worker".into()) };
        let nats = self.nats.as_ref().ok_or("there is no stream")?;
        let cassandra = self.cassandra.as_ref().map(|node| node.process.processor_seconds());
        Ok(Used {
            intake: intake.processor_seconds()?,
            stream: nats.processor_seconds()?,
            worker: worker.processor_seconds()?,
            cassandra: cassandra.transpose()?,
        })
    }

    /// Starts recordings of the processes of configuration 4, into files of a folder.
    pub(super) fn record(&self, folder: &Path) -> Result<Recordings, Failed> {
        let of_ours = ["intake", "worker"].map(str::to_owned).into_iter().zip(&self.processes);
        let servers = self.nats.iter().flat_map(Nats::processes).enumerate();
        let of_stream = servers.map(|(number, server)| match number {
            0 => ("stream".to_owned(), server),
            number => (format!("stream-{number}"), server),
        });
        let of_table = self.cassandra.iter().map(|node| ("cassandra".to_owned(), &node.process));
        let with = |callers| move |(name, process)| (name, process, callers);
        let processes: Vec<_> = of_ours
            .map(with(Callers::Tables))
            .chain(of_stream.chain(of_table).map(with(Callers::FramePointers)))
            .collect();
        Recordings::start(folder, &processes)
    }

    /// Stops the store of configuration 4, and returns the length of its files in `folder`, the folder of
    /// the site.
    pub(super) fn stop_store(&self, folder: &Path, within: Duration) -> Result<u64, Failed> {
        match &self.cassandra {
            // Cassandra writes its tables to the disk when it stops.
            Some(node) => {
                node.process.stop(within)?;
                bytes_in(&node.data(folder))
            }
            None => {
                let worker = self.processes.last().ok_or("there is no worker")?;
                worker.stop(within)?;
                Ok(std::fs::metadata(folder.join("4.redb"))?.len())
            }
        }
    }
}

impl<'p> Site<'p> {
    /// Writes the files into a folder.
    pub(super) fn new(
        programs: &'p Programs,
        folder: &Path,
        fleet: &Fleet,
    ) -> Result<Self, Failed> {
        fleet.write(folder)?;
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        std::fs::write(folder.join("server.pem"), made.cert.pem())?;
        std::fs::write(folder.join("server.key"), made.signing_key.serialize_pem())?;
        std::fs::write(folder.join("password"), PASSWORD)?;
        let site = Self {
            programs,
            folder: folder.to_owned(),
            level: LEVEL,
            replicas: 1,
            profiled: false,
        };
        let add = ["cloud", "user", "add", USER, "--scope", "write"].map(str::to_owned);
        let files = [
            "--password-file".to_owned(),
            site.at("password"),
            "--users".to_owned(),
            site.at("users"),
        ];
        site.run(&[&add[..], &files].concat())?;
        Ok(site)
    }

    /// The services write no lines about single uploads.
    pub(super) fn without_times(self) -> Self {
        Self { level: "info", ..self }
    }

    /// Configuration 4 has this many nats-servers.
    pub(super) fn with_replicas(self, replicas: usize) -> Self {
        Self { replicas, ..self }
    }

    /// The processes of configuration 4 can be recorded ([`Cloud::record`]).
    pub(super) fn profiled(self, profiled: bool) -> Self {
        Self { profiled, ..self }
    }

    fn at(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Runs a command of `moteseal` that must succeed.
    fn run(&self, arguments: &[String]) -> Result<(), Failed> {
        let program = &self.programs.moteseal;
        let run = Command::new(program).args(arguments).output().map_err(|error| {
            format!(
                "{}: {error}; build it with cargo build --release -p moteseal",
                program.display()
            )
        })?;
        if run.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&run.stderr).trim().to_owned().into())
    }

    /// Starts `moteseal cloud run`. Returns its address and its log.
    fn serve(
        &self,
        name: &str,
        more: &[String],
        variables: &[(&str, &str)],
    ) -> Result<(Process, String, Log), Failed> {
        let path = self.folder.join(format!("{name}.log"));
        let run = ["cloud", "run", "--listen", "127.0.0.1:0", "--log", "json"].map(str::to_owned);
        let roster = [
            "--roster".to_owned(),
            // Each process records the roster next to its own one.
            self.copy("roster.cbor", &format!("{name}-roster.cbor"))?,
            "--operator".to_owned(),
            self.at("op.pub.pem"),
        ];
        let arguments = [&run[..], &roster, more].concat();
        let variables = [&[("RUST_LOG", self.level)][..], variables].concat();
        let process = Process::start(&self.programs.moteseal, &arguments, &variables, &path)?;
        let url = process.line(START)?;
        Ok((process, url, Log::new(&path)))
    }

    fn copy(&self, from: &str, to: &str) -> Result<String, Failed> {
        std::fs::copy(self.folder.join(from), self.folder.join(to))?;
        Ok(self.at(to))
    }

    /// Returns the arguments of a process that serves HTTPS.
    fn tls(&self) -> Vec<String> {
        let (certificate, key) = (self.at("server.pem"), self.at("server.key"));
        ["--tls-cert".to_owned(), certificate, "--tls-key".to_owned(), key].to_vec()
    }

    fn users(&self) -> Vec<String> {
        vec!["--users".to_owned(), self.at("users")]
    }

    fn options(&self, configuration: Configuration) -> Result<Options, Failed> {
        let ca = (configuration != Configuration::One).then(|| self.folder.join("server.pem"));
        let has_password = matches!(configuration, Configuration::Three | Configuration::Four);
        let login =
            has_password.then(|| Login::read(USER, &self.folder.join("password"))).transpose()?;
        Ok(Options { ca, credential: login.map(Credential::Login), ..Options::default() })
    }

    /// Starts the service of a configuration, with new stores.
    pub(super) fn start(&self, configuration: Configuration) -> Result<Cloud, Failed> {
        let options = self.options(configuration)?;
        if configuration == Configuration::Four {
            return self.start_four(options);
        }
        let name = configuration.number().to_string();
        let mut more = vec!["--store".to_owned(), self.at(&format!("{name}.redb"))];
        if configuration != Configuration::One {
            more.extend(self.tls());
        }
        if configuration == Configuration::Three {
            more.extend(self.users());
        }
        let (process, url, uploads) = self.serve(&format!("cloud-{name}"), &more, &[])?;
        Ok(Cloud {
            url,
            options,
            uploads,
            writes: None,
            worker: None,
            processes: vec![process],
            nats: None,
            cassandra: None,
        })
    }

    /// Starts the engines, an intake and a worker.
    fn start_four(&self, options: Options) -> Result<Cloud, Failed> {
        let engines = std::path::absolute(&self.programs.engines)?;
        let (certificate, key) = (self.folder.join("server.pem"), self.folder.join("server.key"));
        let nats = Nats::start(&engines, &self.folder, (&certificate, &key), self.replicas)?;
        let init = ["stream".to_owned(), "init".to_owned()];
        let limits = ["--max-mib", "256", "--piece-mib", "64", "--dead-mib", "8"];
        let limits = limits.map(str::to_owned);
        let init = [&init[..], &limits, &nats.arguments("admin")].concat();
        // The servers of a cluster choose their leader first.
        let until = Instant::now() + START;
        while let Err(failed) = self.run(&init) {
            if self.replicas == 1 || Instant::now() > until {
                return Err(failed);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let cassandra = match self.programs.table {
            TableKind::Cassandra => {
                let (program, tls) = (&self.programs.moteseal, (&*certificate, &*key));
                Some(Cassandra::start(&engines, &self.folder, program, tls, self.profiled)?)
            }
            TableKind::Embedded => None,
        };
        let store = cassandra.as_ref().map_or_else(|| self.at("4.redb"), |node| node.url("worker"));
        let role = |role: &str| vec!["--role".to_owned(), role.to_owned()];
        // A worker with the embedded store serves it, too, because no other process can.
        let roles = if cassandra.is_some() { "worker" } else { "worker,serve" };
        let worker =
            [role(roles), nats.arguments("worker"), vec!["--store".to_owned(), store]].concat();
        let password = [("MOTESEAL_CASSANDRA_PASSWORD", WORKER_PASSWORD)];
        let (worker, pages, writes) = self.serve("worker", &worker, &password)?;
        let intake = [role("intake"), nats.arguments("intake"), self.tls(), self.users()].concat();
        let (intake, url, uploads) = self.serve("intake", &intake, &[])?;
        Ok(Cloud {
            url,
            options,
            uploads,
            writes: Some(writes),
            worker: Some(pages),
            processes: vec![intake, worker],
            nats: Some(nats),
            cassandra,
        })
    }
}
