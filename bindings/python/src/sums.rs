//! Private sums: a group is asked a question every epoch, and only the exact answer over named participants comes out (DESIGN section 7).
//!
//! What asks, opens and checks is `moteseal_client::sum`. Here its parts are put together from files, a thread runs it, and rows wait
//! until Python takes them. The package's `moteseal.sums` reads the configuration and makes rows of what comes.

mod setup;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moteseal_client::sum::{
    Asking, FollowError, NumberError, Numbers, Querier, Question, RowFormat, RowNames, RowWriter,
    Run, default_floor, follow,
};
use moteseal_core::identity::decode_secret_pem;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::SecretKey;
use moteseal_lanes::Host;
use moteseal_net::link::until_up_within;
use moteseal_net::mqtt::{Identity, Login, MqttParent, Options, Password, Version};
use moteseal_net::{LinkError, ParentLink as _};
use moteseal_sum::key_file::QuerierKeys;
use moteseal_sum::query::{MAX_PLAN, Plan};
use moteseal_verify::aggregation::{AggregationTree, QUERIER};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyValueError};
use pyo3::prelude::*;
use zeroize::Zeroizing;

pub(crate) use setup::setup_sums;

use crate::failure::{Kind, Problem};
use crate::report::loads;
use crate::source::{Roster, read};
use crate::work::{self, Stop};

/// A broker that is not reached within this time is not waited for.
const REACHED_WITHIN: Duration = Duration::from_secs(10);
/// A query of a querier that has died ends after this time.
const LEASE: Duration = Duration::from_secs(3600);
/// How often the waiting thread looks for signals.
const TICK: Duration = Duration::from_millis(50);
/// More rows than these are not kept for somebody who does not take them: more than an hour of the shortest epochs.
const WAITING: usize = 4096;

/// What a querier is made of, as `querier.toml` has it.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Parts {
    key: PathBuf,
    keys: PathBuf,
    gateways: Vec<(String, String)>,
    devices: Vec<(String, String)>,
    link_secret: PathBuf,
    state: PathBuf,
    columns: Vec<String>,
    /// Column, least and greatest value.
    ranges: Vec<(String, String, String)>,
    grace: f64,
    link: Link,
}

/// How the broker is reached.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
struct Link {
    url: String,
    version: Option<String>,
    ca: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    certificate: Option<PathBuf>,
    certificate_key: Option<PathBuf>,
}

/// A query that runs: its rows, an epoch each, in order.
#[pyclass(frozen, module = "moteseal._moteseal")]
#[derive(Debug)]
pub(crate) struct Following {
    rows: Mutex<Receiver<Said>>,
    stop: Stop,
    /// The query's id.
    #[pyo3(get)]
    query: String,
    /// Nothing of fewer participants is shown.
    #[pyo3(get)]
    floor: u32,
    /// How many devices are asked.
    #[pyo3(get)]
    sources: u32,
    /// How many epochs were passed over, once the query has ended.
    missed: Mutex<Option<u64>>,
    /// Whose thread runs it.
    process: u32,
}

/// What the thread that runs a query says.
enum Said {
    Row(String),
    Ended(Result<u64, Problem>),
}

impl Drop for Following {
    fn drop(&mut self) {
        // Nobody should go on answering: the thread takes the query back.
        self.stop.stop();
    }
}

#[pymethods]
impl Following {
    const fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// The next epoch's row as plain values. Waits for it without Python's lock.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.next(py)? {
            Some(row) => loads(py, &row),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Takes the query back, and waits until that is said. Rows that were not taken are gone.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stop.stop();
        while self.next(py)?.is_some() {}
        Ok(())
    }

    /// How many epochs have no row; None while the query runs.
    #[getter]
    fn missed(&self) -> Option<u64> {
        *self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Following {
    fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        // A fork has this process' memory and none of its threads: waiting would never end.
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(
                "this query was asked before a fork; ask one in each process",
            ));
        }
        loop {
            if self.missed().is_some() {
                return Ok(None);
            }
            let said = py.detach(|| {
                self.rows.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TICK)
            });
            let ended = match said {
                Ok(Said::Row(row)) => return Ok(Some(row)),
                Ok(Said::Ended(ended)) => ended,
                Err(RecvTimeoutError::Timeout) => {
                    py.check_signals()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    Err(Problem::system("an internal error ended the query; please report it"))
                }
            };
            *self.missed.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(*ended.as_ref().unwrap_or(&0));
            return ended.map(|_| None).map_err(|problem| problem.raise(py));
        }
    }
}

/// Asks a group a question every epoch.
#[pyfunction]
#[pyo3(signature = (query, roster, parts, epochs, floor))]
pub(crate) fn follow_sums(
    py: Python<'_>,
    query: String,
    roster: &Bound<'_, Roster>,
    parts: Parts,
    epochs: Option<u64>,
    floor: Option<u32>,
) -> PyResult<Following> {
    if epochs == Some(0) {
        return Err(PyValueError::new_err(
            "epochs: at least 1, or None to go on until it is closed",
        ));
    }
    if !(0.0..=86_400.0).contains(&parts.grace) {
        return Err(PyValueError::new_err(format!(
            "grace: seconds between 0 and 86,400, not {}",
            parts.grace
        )));
    }
    let roster = roster.get().roster.clone();
    let posed = work::run(py, move |_| Posed::new(&query, &roster, parts, floor))?;
    let (query, floor, sources) =
        (posed.querier.id().to_string(), posed.querier.question().floor, posed.sources);
    let (says, rows) = sync_channel(WAITING);
    let stop = Stop::default();
    let theirs = stop.clone();
    let spawned = thread::Builder::new().name("moteseal-sum".to_owned()).spawn(move || {
        let ended = posed.run(epochs, &theirs, &says);
        // Where nobody listens any more, nobody is told.
        let _ = says.send(Said::Ended(ended));
    });
    spawned.map_err(|error| {
        Problem::system(format_args!("cannot start a thread: {error}")).raise(py)
    })?;
    Ok(Following {
        rows: Mutex::new(rows),
        stop,
        query,
        floor,
        sources,
        missed: Mutex::new(None),
        process: std::process::id(),
    })
}

/// A query that is ready to be asked.
struct Posed {
    querier: Querier<Host>,
    sources: u32,
    tree: AggregationTree,
    signer: SecretKey,
    link_secret: Zeroizing<[u8; 32]>,
    link: Options,
    numbers: Numbers,
    names: RowNames,
    grace: Duration,
}

impl Posed {
    fn new(
        text: &str,
        roster: &moteseal_verify::Roster,
        parts: Parts,
        floor: Option<u32>,
    ) -> Result<Self, Problem> {
        let mut buffer = [0; MAX_SCHEMA];
        let schema = schema(&parts.columns, &mut buffer)?;
        let plan = plan(text, &schema, &parts.ranges)?;
        let in_file = |path: &Path, error: &dyn std::fmt::Display| {
            Problem::named(Kind::Usage, "BadFile", error).in_file(path)
        };
        let signer = decode_secret_pem(&secret(&parts.key)?)
            .map_err(|error| in_file(&parts.key, &error.named()))?;
        let keys = QuerierKeys::decode(&secret(&parts.keys)?)
            .map_err(|error| in_file(&parts.keys, &error.named()))?;
        keys.circle
            .check(roster.group(), &roster.digest())
            .map_err(|error| in_file(&parts.keys, &error.named()))?;
        if keys.querier != signer.public() {
            let text = format_args!(
                "{} is not the key that the set-up was told of, and no device would answer it",
                parts.key.display()
            );
            return Err(Problem::new(Kind::Usage, "WrongQuerier", text));
        }
        let tree = AggregationTree::new(roster, pairs(&parts.gateways), pairs(&parts.devices));
        let tree = tree.map_err(|error| Problem::new(Kind::Usage, error.name(), &error))?;
        let mut link_secret = Zeroizing::new([0; 32]);
        hex::decode_to_slice(secret(&parts.link_secret)?.trim_ascii(), &mut *link_secret).map_err(
            |_| in_file(&parts.link_secret, &"a link secret file holds 64 hexadecimal digits"),
        )?;
        let link = parts.link.options(roster)?;

        let mut bytes = [0; MAX_PLAN];
        let encoded = plan.encode(&mut bytes).map_err(Problem::system)?.to_vec();
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| {
            Problem::system(format_args!("the system has no random bytes: {error}"))
        })?;
        let sources = keys.circle.sources;
        let question = Question {
            group: keys.circle.group,
            roster: keys.circle.roster,
            nonce,
            plan: encoded,
            key_group: keys.circle.key_group,
            floor: floor.unwrap_or_else(|| default_floor(sources)),
        };
        let devices: Vec<DeviceId> = roster.devices().map(|device| device.id).collect();
        let querier = Querier::new(question, &keys.master, &devices, Host::detect(), &|_| {});
        let querier = querier.map_err(|error| Problem::named(Kind::Usage, error.name(), &error))?;
        let names = RowNames::new(
            &plan,
            &schema,
            roster.devices().map(|device| device.name.clone()).collect(),
        );
        let numbers = Numbers::open(&parts.state).map_err(|error| number_problem(&error))?;
        let grace = Duration::from_secs_f64(parts.grace);
        Ok(Self { querier, sources, tree, signer, link_secret, link, numbers, names, grace })
    }

    /// Runs the query until its epochs are over, or it is stopped; says how many have no row.
    fn run(
        self,
        epochs: Option<u64>,
        stop: &Stop,
        says: &SyncSender<Said>,
    ) -> Result<u64, Problem> {
        let Self { querier, tree, signer, link_secret, link, mut numbers, names, grace, .. } = self;
        let lines = Lines { says, line: Vec::new() };
        let mut writer = RowWriter::new(RowFormat::JsonLines, names, lines)
            .map_err(|error| Problem::of_output(&error))?;
        let members: Vec<[u8; 8]> =
            tree.querier().children().iter().map(|child| child.id.0).collect();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime
            .map_err(|error| Problem::system(format_args!("cannot start threads: {error}")))?;
        runtime.block_on(async {
            let aggregator = MqttParent::new(&link, members).map_err(|error| link_problem(&error))?;
            tokio::select! {
                reached = until_up_within(aggregator.state(), REACHED_WITHIN) => reached.map_err(|error| link_problem(&error))?,
                () = stop.stopped() => return Ok(0),
            }
            let asking =
                Asking { link: &aggregator, link_secret: &link_secret, signer: &signer, numbers: &mut numbers, unix_ms: &unix_ms };
            let settings = Run { epochs, grace, lease: LEASE };
            let followed = follow(asking, &tree, querier, settings, &mut |row| writer.row(row), stop.stopped()).await;
            followed.map_err(|error| follow_problem(&error))
        })
    }
}

/// Takes lines, and says each as a row.
struct Lines<'a> {
    says: &'a SyncSender<Said>,
    line: Vec<u8>,
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.line.is_empty() {
            return Ok(());
        }
        let line = String::from_utf8(std::mem::take(&mut self.line)).map_err(io::Error::other)?;
        self.says.try_send(Said::Row(line)).map_err(|error| {
            io::Error::other(match error {
                TrySendError::Full(_) => "nobody has taken a row for thousands of epochs",
                TrySendError::Disconnected(_) => "nobody takes the rows any more",
            })
        })
    }
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn pairs(all: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    all.iter().map(|(name, above)| (name.as_str(), above.as_str()))
}

/// The schema of columns as `moteseal seal` takes them.
fn schema<'b>(columns: &[String], buffer: &'b mut [u8; MAX_SCHEMA]) -> Result<Schema<'b>, Problem> {
    let wrong = |text: std::fmt::Arguments<'_>| Problem::named(Kind::Usage, "UsageError", text);
    let fields = columns.iter().map(|column| {
        Field::parse(column).map_err(|error| {
            wrong(format_args!(
                "{} ({column:?}; a column is NAME:UNIT:TYPE: temperature:Cel:i16/100)",
                error.named()
            ))
        })
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    if fields.is_empty() {
        return Err(wrong(format_args!(
            "columns: name those that the devices seal, for example \"temperature:Cel:i16/100\""
        )));
    }
    Schema::encode(&fields, buffer).map_err(|error| wrong(format_args!("{}", error.named())))
}

/// Reads the query, and narrows its columns to the values that they can have.
fn plan<'a>(
    text: &'a str,
    schema: &Schema<'a>,
    ranges: &[(String, String, String)],
) -> Result<Plan<'a>, Problem> {
    let mut plan = Plan::parse(text, schema)
        .map_err(|error| Problem::named(Kind::Usage, "UsageError", error.named()))?;
    for (column, least, greatest) in ranges {
        if schema.field(column).is_none() {
            return Err(Problem::new(
                Kind::Usage,
                "UnknownColumn",
                format_args!("ranges: there is no column {column:?}"),
            ));
        }
        plan.narrow(column, least, greatest).map_err(|error| {
            Problem::named(
                Kind::Usage,
                "UsageError",
                format_args!("{} (ranges: {column}, {least} to {greatest})", error.named()),
            )
        })?;
    }
    Ok(plan)
}

impl Link {
    fn options(self, roster: &moteseal_verify::Roster) -> Result<Options, Problem> {
        let wrong =
            |text: &str| Problem::new(Kind::Usage, "UsageError", format_args!("link: {text}"));
        let mut options =
            Options::new(self.url, format!("{}.{QUERIER}", hex::encode(roster.group().0)));
        options.version = match self.version.as_deref() {
            None | Some("5") => Version::V5,
            Some("3.1.1") => Version::V3,
            Some(_) => return Err(wrong("version is \"5\" or \"3.1.1\"")),
        };
        options.ca = self.ca;
        options.login = match (self.user, self.password_file) {
            (None, None) => None,
            (Some(user), Some(file)) => Some(Login {
                user,
                password: Password::read(&file).map_err(|error| link_problem(&error))?,
            }),
            _ => return Err(wrong("user and password_file go together")),
        };
        options.identity = match (self.certificate, self.certificate_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            _ => return Err(wrong("certificate and certificate_key go together")),
        };
        Ok(options)
    }
}

/// Reads a file whose bytes are not to stay in memory.
fn secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, Problem> {
    read(path).map(Zeroizing::new)
}

fn link_problem(error: &LinkError) -> Problem {
    let kind = match error {
        LinkError::BadAddress { .. }
        | LinkError::BadFile { .. }
        | LinkError::PasswordInClear { .. } => Kind::Usage,
        LinkError::Closed => Kind::Failed,
        _ => Kind::Unreachable,
    };
    Problem::named(kind, kind.class(), error)
}

fn number_problem(error: &NumberError) -> Problem {
    let kind = match error {
        NumberError::File(_, error) if error.kind() != io::ErrorKind::NotFound => Kind::Failed,
        _ => Kind::Usage,
    };
    Problem::named(kind, error.name(), error)
}

fn follow_problem(error: &FollowError) -> Problem {
    match error {
        FollowError::Link(error) => link_problem(error),
        FollowError::Number(error) => number_problem(error),
        FollowError::Output(error) => Problem::of_output(error),
        _ => Problem::named(Kind::Failed, "Failed", error),
    }
}
