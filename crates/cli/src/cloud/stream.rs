//! A cloud whose uploads go through a NATS JetStream to workers: the arguments, and the parts of the cloud
//! that its roles need.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use moteseal_api::NamedError as _;
use moteseal_cloud::Limits;
use moteseal_cloud::conflicts::{self, ConflictLog};
use moteseal_cloud::queue::{MoreMetrics, Queue, Reached as Waits};
use moteseal_service::{Monitor, Monitored};
use moteseal_store::EpochStore;
use moteseal_stream::{
    BATCH_BYTES, CheckConflicts, IntakeLimits, NoStore, Reached, Settings, Stream, StreamError,
    StreamStore, SyncCheck, Worker, WorkerCounts, WorkerLimits,
};
use moteseal_verify::Roster;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::failure::Failure;
use crate::table;

/// What a cloud does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Accept uploads and publish them to the stream
    Intake,
    /// Take uploads from the stream and write them to the store
    Worker,
    /// Serve reads of the store
    Serve,
    /// All of these
    All,
}

/// How to know that the servers sync each message before they acknowledge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamSync {
    /// Read the servers' monitoring endpoints (--stream-monitor)
    Check,
    /// Rely on the operator
    Unchecked,
}

/// The arguments for the connection to a stream.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// The URL of a NATS server with JetStream, nats://HOST:PORT or tls://HOST:PORT; may be repeated
    #[arg(long = "stream", value_name = "URL")]
    pub(crate) servers: Vec<String>,
    /// The name of the stream
    #[arg(long, value_name = "NAME", default_value = "moteseal")]
    stream_name: String,
    /// A credentials file of NATS, with a JWT and the seed of its nkey
    #[arg(long, value_name = "FILE")]
    stream_creds: Option<PathBuf>,
    /// The authorities that sign the servers' certificates (PEM); by default those of the system
    #[arg(long, value_name = "FILE")]
    stream_ca: Option<PathBuf>,
    /// The number of servers that store each message: 1, 3 or 5
    #[arg(long, value_name = "N", default_value_t = 1)]
    stream_replicas: usize,
    /// The monitoring endpoint of a NATS server, https://HOST:8222 (or http); name that of each server
    #[arg(long = "stream-monitor", value_name = "URL")]
    monitors: Vec<String>,
    /// Whether to check that the servers run with sync_interval: always
    #[arg(long, value_enum, default_value = "check")]
    stream_sync: StreamSync,
}

impl Connection {
    pub(crate) fn settings(&self, role: moteseal_stream::Role) -> Settings {
        Settings {
            name: self.stream_name.clone(),
            credentials: self.stream_creds.clone(),
            ca: self.stream_ca.clone(),
            replicas: self.stream_replicas,
            sync: match self.stream_sync {
                StreamSync::Check => SyncCheck::Monitors(self.monitors.clone()),
                StreamSync::Unchecked => SyncCheck::Unchecked,
            },
            ..Settings::new(self.servers.clone(), role)
        }
    }
}

/// The roles of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roles {
    pub(crate) intake: bool,
    pub(crate) worker: bool,
    pub(crate) serve: bool,
}

impl Roles {
    /// Returns the roles if the arguments fit together. Without a stream, there are none.
    pub(crate) fn of(
        roles: &[Role],
        connection: &Connection,
        store: Option<&PathBuf>,
    ) -> Result<Option<Self>, Failure> {
        let has = |role| roles.is_empty() || roles.contains(&Role::All) || roles.contains(&role);
        if connection.servers.is_empty() {
            return if roles.is_empty() {
                Ok(None)
            } else {
                Err(Failure::usage(
                    "--role needs --stream nats://HOST:PORT; without it, one process does everything",
                ))
            };
        }
        let roles =
            Self { intake: has(Role::Intake), worker: has(Role::Worker), serve: has(Role::Serve) };
        if store.is_none() && (roles.worker || roles.serve) {
            return Err(Failure::usage("the roles worker and serve need --store"));
        }
        if let Some(store) = store
            && roles.worker != roles.serve
            && table::address(store)?.is_none()
        {
            return Err(Failure::usage(format_args!(
                "--store {} is a file, which can be open in one process only; name a keyspace \
                 (cassandra://HOST:PORT/KEYSPACE), or give this process both roles (--role worker,serve)",
                store.display()
            )));
        }
        Ok(Some(roles))
    }

    /// Checks that workers store what this process accepts. A batch has little more than the bytes of its upload.
    pub(crate) fn check_limits(self, limits: &Limits) -> Result<(), Failure> {
        let most = BATCH_BYTES / 2;
        if self.intake && limits.body_bytes as u64 > most {
            return Err(Failure::usage(format_args!(
                "--limit body_bytes={}: workers do not store longer uploads than {most} bytes; set at most that",
                limits.body_bytes
            )));
        }
        Ok(())
    }

    /// Returns whether the process has the HTTP interface of a cloud.
    pub(crate) const fn has_cloud(self) -> bool {
        self.intake || self.serve
    }
}

/// What runs next to the cloud.
pub(crate) struct Running {
    /// The store of the cloud.
    pub(crate) store: Arc<dyn EpochStore>,
    pub(crate) queue: Queue,
    pub(crate) worker: Option<RunningWorker>,
}

/// A worker that runs until it is stopped.
pub(crate) struct RunningWorker {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    counts: Arc<WorkerCounts>,
}

impl RunningWorker {
    /// Stops the worker and waits until its writes have ended.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

/// Connects to the stream once for each role, checks what the role needs, and starts the worker.
pub(crate) async fn start(
    roles: Roles,
    connection: &Connection,
    store: Option<Arc<dyn EpochStore>>,
    rosters: watch::Receiver<Arc<Roster>>,
) -> Result<Running, Failure> {
    let connect = async |role| -> Result<Stream, StreamError> {
        let stream = Stream::connect(connection.settings(role)).await?;
        stream.check(role).await?;
        Ok(stream)
    };
    let mut worker = None;
    if roles.worker
        && let Some(store) = &store
    {
        let stream = connect(moteseal_stream::Role::Worker).await?;
        let check = Some(check_conflicts(rosters));
        let new = Worker::new(stream, Arc::clone(store), check, WorkerLimits::default()).await?;
        let (stop, mut stopped) = watch::channel(false);
        let counts = new.counts();
        let task = tokio::spawn(new.run(async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        }));
        worker = Some(RunningWorker { stop, task, counts });
    }
    let reached: Option<Waits> = if roles.serve {
        let reached = Reached::new(connect(moteseal_stream::Role::Serve).await?);
        Some(Box::new(move |position, time| {
            let reached = reached.clone();
            Box::pin(async move {
                reached.wait(position, time).await.map_err(|error| error.named().to_string())
            })
        }))
    } else {
        None
    };
    let reads = store.unwrap_or_else(|| Arc::new(NoStore));
    let store: Arc<dyn EpochStore> = if roles.intake {
        let stream = connect(moteseal_stream::Role::Intake).await?;
        Arc::new(StreamStore::new(stream, reads, IntakeLimits::default()))
    } else {
        reads
    };
    let metrics = worker.as_ref().map(|worker| {
        let counts = Arc::clone(&worker.counts);
        Box::new(move |page: &mut String| metrics(&counts, page)) as MoreMetrics
    });
    Ok(Running { store, queue: Queue { reached, accepts: roles.intake, metrics }, worker })
}

/// Returns the check with which a worker reports only conflicts that signatures prove.
fn check_conflicts(rosters: watch::Receiver<Arc<Roster>>) -> CheckConflicts {
    let log = ConflictLog::default();
    Arc::new(move |store, receipt| {
        let roster = Arc::clone(&rosters.borrow());
        let unproven = conflicts::confirm(store, &roster, receipt, &mut || ());
        log.log(receipt, &unproven);
    })
}

/// Appends the metrics of a worker.
fn metrics(counts: &WorkerCounts, page: &mut String) {
    for (name, about, value) in [
        ("messages", "Messages that were stored and acknowledged.", counts.messages()),
        ("stored", "Bundles, manifests and urgent events that were new.", counts.stored()),
        ("known", "Bundles, manifests and urgent events that were known.", counts.known()),
        ("conflicts", "Places at which one signer signed different things.", counts.conflicts()),
        ("writes", "Writes to the store.", counts.writes()),
        ("retries", "Writes to the store that failed and were repeated.", counts.retries()),
        ("returned", "Messages that were returned to the stream.", counts.returned()),
        ("dead", "Messages that were written to the dead letters.", counts.dead()),
    ] {
        let name = format!("moteseal_worker_{name}_total");
        let _ = writeln!(page, "# HELP {name} {about}\n# TYPE {name} counter\n{name} {value}");
    }
    // Those of the stream, which are the same in all workers. A number that is unknown is left out.
    for (name, about, value) in [
        ("waiting", "Messages that no worker has stored yet.", counts.waiting()),
        ("dead", "Dead letters.", counts.dead_letters()),
    ] {
        if let Some(value) = value {
            let name = format!("moteseal_stream_{name}");
            let _ = writeln!(page, "# HELP {name} {about}\n# TYPE {name} gauge\n{name} {value}");
        }
    }
}

struct Watched(Arc<WorkerCounts>);

impl Monitored for Watched {
    fn metrics(&self) -> String {
        let mut page = String::new();
        metrics(&self.0, &mut page);
        page
    }

    fn trouble(&self) -> Option<&'static str> {
        self.0.is_stuck().then_some("the worker cannot take messages or cannot store them")
    }
}

/// Serves /metrics, /healthz and /readyz of a process that is only a worker, until `stop` completes.
pub(crate) async fn monitor(
    address: SocketAddr,
    worker: &RunningWorker,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let monitor = Monitor::bind(address).await?;
    super::print_urls(&format!("http://{}", monitor.address()), &[]);
    tokio::select! {
        () = monitor.serve(Arc::new(Watched(Arc::clone(&worker.counts)))) => {}
        () = stop => {}
    }
    Ok(())
}
