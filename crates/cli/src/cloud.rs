//! `moteseal cloud`: the untrusted store as a service, and its users.

mod coap;
mod follow;
mod policy;
pub(crate) mod stream;
mod user;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use moteseal_api::NamedError as _;
use moteseal_cloud::{Cloud, Config};
use moteseal_service::{TlsFiles, stop_signal};
use moteseal_store::{EpochStore, OpenError, Options, RedbStore, resolve};
use moteseal_table::Access;
use moteseal_verify::Roster;
use tracing::warn;
use tracing_subscriber::EnvFilter;

use crate::failure::{Exit, Failure};
use crate::progress::bar;
use crate::roster_watch::RosterWatch;
use crate::store::quietly;
use crate::succession::{Succession, record_roster};
use crate::table;
use crate::terminal::is_json;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a cloud: verify and store the bundles that devices push, and serve any selection of
    /// their readings with a proof.
    #[command(after_help = "Example:\n  \
                            moteseal cloud run --store epochs.redb --roster roster.cbor \\\n      \
                            --operator keys/op.pub.pem --listen 127.0.0.1:8080\n\n\
                            A cloud need not be trusted, because its clients verify what they get. It verifies uploads so that\n\
                            only the group's devices can fill it. When it accepts connections, it prints its address on\n\
                            stdout.\n\
                            SIGTERM or Ctrl-C stops it cleanly. It serves /metrics, /healthz, /readyz and /openapi.json.")]
    Run(Box<Run>),
    /// Add, list and revoke the users of a cloud, who have passwords or client certificates.
    #[command(subcommand)]
    User(Box<user::Command>),
    /// Decide who may do what in a cloud of several processes: write the credentials, apply them to the
    /// running servers, and check by trying.
    #[command(subcommand)]
    Policy(Box<policy::Command>),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Log {
    Text,
    Json,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The store's file, which is created if it does not exist, or the URL of a keyspace of Cassandra
    /// (cassandra://[user@]host:port/keyspace[?ca=FILE]), which `moteseal store init` creates. An intake may have none
    #[arg(long, value_name = "FILE|URL", required_unless_present = "servers")]
    store: Option<PathBuf>,
    /// What this process does, separated by commas; needs --stream [default: all]
    #[arg(long = "role", value_enum, value_delimiter = ',', value_name = "ROLE")]
    roles: Vec<stream::Role>,
    #[command(flatten)]
    connection: stream::Connection,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// The address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Also listen for CoAP without DTLS on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_coap: Option<SocketAddr>,
    /// Also listen for CoAP with DTLS on this address; needs --link-secret, --tls-cert or both
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_coaps: Option<SocketAddr>,
    /// The link secret of this cloud (`moteseal key link`), from which the keys of the devices that
    /// connect over CoAP with DTLS are derived
    #[arg(long, value_name = "FILE", requires = "listen_coaps")]
    link_secret: Option<PathBuf>,
    /// Serve HTTPS with this certificate chain (PEM), the server's own certificate first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Request client certificates of these authorities (PEM); --users has the keys of the clients
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "users"])]
    tls_client_ca: Option<PathBuf>,
    /// A file of bearer tokens; without --tokens and --users everyone may read and push
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// A table of users, which `moteseal cloud user` makes
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    #[command(flatten)]
    follow: follow::Follow,
    /// Set a limit; may be repeated. docs/cloud.md lists all limits
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    limits: Vec<String>,
    /// The format of the log on stderr; RUST_LOG selects the level
    #[arg(long, value_enum, default_value = "text")]
    log: Log,
}

impl Run {
    /// Checks that a process that is only a worker, which has no HTTP contract, has no option of it.
    fn refuse_options_of_a_cloud(&self) -> Result<(), Failure> {
        let options = [
            ("--tls-cert", self.tls_cert.is_some()),
            ("--tokens", self.tokens.is_some()),
            ("--users", self.users.is_some()),
            ("--listen-coap", self.listen_coap.is_some()),
            ("--listen-coaps", self.listen_coaps.is_some()),
        ];
        let given = options.iter().find(|(_, is_given)| *is_given);
        given.map_or(Ok(()), |(option, _)| {
            Err(Failure::usage(format_args!(
                "{option}: a process that is only a worker serves /metrics, /healthz and /readyz, over HTTP and to \
                 everyone; leave the option out, or add the role serve or intake"
            )))
        })
    }
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(arguments) => serve(*arguments),
        Command::User(command) => user::run(&command),
        Command::Policy(command) => policy::run(&command),
    }
}

fn serve(arguments: Run) -> Result<(), Failure> {
    let (roster_watch, roster) =
        RosterWatch::open(arguments.roster.clone(), arguments.operator.clone())?;
    log(arguments.log);
    let roles =
        stream::Roles::of(&arguments.roles, &arguments.connection, arguments.store.as_ref())?;
    if roles.is_some_and(|roles| !roles.has_cloud()) {
        arguments.refuse_options_of_a_cloud()?;
    }
    let coap = coap::listen(&arguments, &roster_watch, &roster)?;
    let followed = arguments.follow.clients()?;
    let every = arguments.follow.every();
    let client_ca = arguments.tls_client_ca;
    let tls = arguments.tls_cert.zip(arguments.tls_key);
    let tls = tls.map(|(chain, key)| TlsFiles { chain, key, client_ca });
    let mut config = Config {
        listen: arguments.listen,
        tls,
        tokens: arguments.tokens,
        users: arguments.users,
        ..Config::new(roster.clone())
    };
    for limit in &arguments.limits {
        config.limits.set(limit).map_err(Failure::usage)?;
    }
    roles.map_or(Ok(()), |roles| roles.check_limits(&config.limits))?;
    let opened = match &arguments.store {
        Some(path) => {
            let access = access(roles, !followed.is_empty());
            Some(Opened::open(path, access, (&roster, &arguments.roster), &arguments.operator)?)
        }
        None => None,
    };
    let runtime = runtime()?;
    let running = match roles {
        Some(roles) => {
            let store = opened.as_ref().map(|opened| Arc::clone(&opened.store));
            let rosters = roster_watch.rosters();
            Some(runtime.block_on(stream::start(roles, &arguments.connection, store, rosters))?)
        }
        None => None,
    };
    runtime.block_on(async move {
        let (store, queue, worker) = match running {
            Some(running) => (Some(running.store), Some(running.queue), running.worker),
            None => (opened.as_ref().map(|opened| Arc::clone(&opened.store)), None, None),
        };
        let stop = async { drop(stop_signal().await) };
        let record = opened.as_ref().map(|opened| opened.record.clone());
        let accept = |roster: &Roster| {
            record.as_deref().map_or(Ok(()), |record| record_roster(record, roster))
        };
        if let Some(worker) =
            worker.as_ref().filter(|_| roles.is_some_and(|roles| !roles.has_cloud()))
        {
            if let Some(opened) = opened {
                opened.succession.record()?;
            }
            tokio::select! {
                served = stream::monitor(arguments.listen, worker, stop) => served?,
                () = roster_watch.run(accept) => {}
            }
        } else if let Some(store) = store {
            let bound = Cloud::bind(config, store).await;
            let cloud = match bound.and_then(|cloud| cloud.with_coap(coap)) {
                Ok(cloud) => cloud,
                Err(error) => {
                    opened.into_iter().for_each(Opened::forget);
                    return Err(error.into());
                }
            };
            if let Some(opened) = opened {
                opened.succession.record()?;
            }
            print_urls(&cloud.url(), cloud.coap_urls());
            let cloud = match queue {
                Some(queue) => cloud.with_queue(queue),
                None => cloud,
            };
            let cloud = cloud.with_rosters(roster_watch.rosters());
            let cloud = cloud.with_followed(followed, every);
            tokio::select! {
                () = cloud.run(stop) => {}
                () = roster_watch.run(accept) => {}
            }
        }
        if let Some(worker) = worker {
            worker.stop().await;
        }
        Ok(())
    })
}

/// Returns what a process does with the store. Only workers and processes without a stream write to it, and a
/// process that follows others and is no intake.
const fn access(roles: Option<stream::Roles>, follows: bool) -> Access {
    match roles {
        Some(roles) if !roles.worker && (roles.intake || !follows) => Access::Read,
        _ => Access::ReadWrite,
    }
}

/// Prints the addresses of a service. A closed stdout does not stop the service.
fn print_urls(url: &str, coap: &[String]) {
    let lines = match is_json() {
        true if coap.is_empty() => vec![serde_json::json!({ "url": url }).to_string()],
        true => vec![serde_json::json!({ "url": url, "coap": coap }).to_string()],
        false => [&[url.to_owned()], coap].concat(),
    };
    for line in lines {
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// An open store, and the roster that is recorded next to it.
struct Opened<'r> {
    store: Arc<dyn EpochStore>,
    path: PathBuf,
    existed: bool,
    record: PathBuf,
    succession: Succession<'r>,
}

impl<'r> Opened<'r> {
    fn open(
        path: &Path,
        access: Access,
        (roster, roster_file): (&'r Roster, &Path),
        operator: &Path,
    ) -> Result<Self, Failure> {
        let address = table::address(path)?;
        // The roster is recorded next to the store's file. The processes that share a keyspace each record
        // the roster next to their own one.
        let (recorded, suffix) = if address.is_some() {
            (roster_file.to_owned(), "-served")
        } else {
            check_folder(path)?;
            (resolve(path).map_err(|error| store_failure(&error))?, "-roster")
        };
        let existed = address.is_some() || path.exists();
        let mut record = recorded.into_os_string();
        record.push(suffix);
        let record = PathBuf::from(record);
        // If the store was removed, its recorded roster does not apply to the new store.
        let succession = if existed {
            Succession::check(record.clone(), roster, roster_file, operator)?
        } else {
            Succession::start(record.clone(), roster)
        };
        let store: Arc<dyn EpochStore> = match &address {
            Some(address) => Arc::new(table::open(address, access)?),
            None => open(path)?,
        };
        Ok(Self { store, path: path.to_owned(), existed, record, succession })
    }

    /// Removes the file again if it is new, because nothing has been stored.
    fn forget(self) {
        drop(self.store);
        if !self.existed {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Checks that a path can be that of a store's file.
fn check_folder(store: &Path) -> Result<(), Failure> {
    if store.is_dir() {
        return Err(Failure::usage(format_args!(
            "--store {} is a directory; name a file in it",
            store.display()
        )));
    }
    let folder = store.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(Failure::usage(format_args!(
            "--store {}: there is no folder {}; make it first",
            store.display(),
            folder.display()
        )));
    }
    Ok(())
}

/// Opens the store. Shows a progress bar if the store has to recover first.
fn open(path: &Path) -> Result<Arc<dyn EpochStore>, Failure> {
    let progress = bar(1000, "recovering");
    let shown = progress.clone();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let on_recovery = Arc::new(move |share: f64| shown.set_position((share * 1000.0) as u64));
    let options = Options { on_recovery: Some(on_recovery), ..Options::default() };
    let store = quietly(|| RedbStore::open(path, options));
    progress.finish_and_clear();
    let store = store.map_err(|error| store_failure(&error))?;
    let torn = store.torn_bytes();
    if torn > 0 {
        warn!(
            bytes = torn,
            "the tail of the store's journal may have lost uploads: a crash interrupted its last \
             write, or acknowledged uploads are damaged; push the devices' data again"
        );
    }
    if store.is_full() {
        warn!("the store's disk is full; uploads are rejected until there is space again");
    }
    Ok(Arc::new(store))
}

/// Returns the failure for a store that cannot be opened. If the store is damaged, the exit code is
/// [`Exit::Finding`].
pub(crate) fn store_failure(error: &OpenError) -> Failure {
    let exit = if error.is_damage() { Exit::Finding } else { error.kind().into() };
    Failure::named(exit, error.named())
}

/// Returns an async runtime for commands that use the network.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    built(&mut tokio::runtime::Builder::new_multi_thread())
}

/// Returns an async runtime with this number of threads, for commands whose tasks wait for disks.
pub(crate) fn runtime_with(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    built(tokio::runtime::Builder::new_multi_thread().worker_threads(threads))
}

fn built(builder: &mut tokio::runtime::Builder) -> Result<tokio::runtime::Runtime, Failure> {
    builder.enable_all().build().map_err(|error| {
        Failure::new(Exit::Internal, format_args!("cannot start threads: {error}"))
    })
}

/// The lines of the log of a service. The store in Cassandra reports itself that Cassandra does not answer; the driver would
/// report each attempt, with structures of the program.
const SERVICE_LOG: &str = "info,scylla=off,async_nats=warn";
/// The lines of the log of a command that is not a service.
const COMMAND_LOG: &str = "warn,scylla=off";

/// Writes the log of a service to stderr.
pub(crate) fn log(format: Log) {
    log_from(format, SERVICE_LOG);
}

/// Writes the warnings and errors in the log to stderr, for a command that is not a service.
pub(crate) fn log_warnings() {
    log_from(Log::Text, COMMAND_LOG);
}

/// Writes the log to stderr, by default the lines of a filter.
fn log_from(format: Log, lines: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(lines));
    // A line that cannot be written, for example because the disk is full, is lost. The library would
    // report that on stderr, which panics.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match format {
        Log::Text => builder
            .with_ansi(
                std::env::var_os("NO_COLOR").is_none()
                    && std::io::IsTerminal::is_terminal(&std::io::stderr()),
            )
            .init(),
        Log::Json => builder.json().init(),
    }
}
