//! Private sums in Python: a background thread runs a query with `moteseal_client::sum` and puts
//! its rows into a queue, from which Python reads them. The Python module `moteseal.sums` wraps
//! this module for users.

mod setup;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use moteseal_client::sum::{
    BrokerConfig, Minimums, PreparedQuery, RowFormat, RowWriter, RunError, TreeSource, TreeTables,
};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyValueError};
use pyo3::prelude::*;

pub(crate) use setup::setup_sums;

use crate::failure::Problem;
use crate::roster::Roster;
use crate::verification_report::loads;
use crate::work::{self, Stop};

/// The waiting thread checks for signals at this interval.
const TICK: Duration = Duration::from_millis(50);
/// Capacity of the queue of rows. Even with the shortest epochs, it holds the rows of more than an
/// hour.
const WAITING: usize = 4096;

/// The configuration of a querier; it has the settings of `querier.toml`.
#[pyclass(frozen, module = "moteseal._moteseal")]
#[derive(Debug)]
pub(crate) struct QuerierConfig {
    inner: moteseal_client::sum::QuerierConfig,
    roster: Py<Roster>,
}

#[pymethods]
impl QuerierConfig {
    /// Reads a `querier.toml` and the roster whose path it contains.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let inner = moteseal_client::sum::QuerierConfig::read(&path)
            .map_err(|error| Problem::from(error).raise(py))?;
        let roster = Roster::new(py, inner.roster.clone(), inner.operator.clone())?;
        Ok(Self { inner, roster: Py::new(py, roster)? })
    }

    /// Creates a configuration from values that Python passes.
    #[new]
    fn new(roster: Py<Roster>, values: Values) -> PyResult<Self> {
        if !(0.0..=86_400.0).contains(&values.grace) {
            return Err(PyValueError::new_err(format!(
                "grace: expected 0 to 86,400 seconds, got {}",
                values.grace
            )));
        }
        let tree = match values.tree {
            Tree::File(path) => TreeSource::File(path),
            Tree::Tables { querier, gateways, devices } => {
                TreeSource::Tables(TreeTables { querier, gateways, devices })
            }
        };
        let Link { url, version, ca, user, password_file, certificate, certificate_key } =
            values.link;
        let link =
            BrokerConfig { url, version, ca, user, password_file, certificate, certificate_key };
        let (path, operator) = (roster.get().path.clone(), roster.get().operator.clone());
        let inner = moteseal_client::sum::QuerierConfig {
            roster: path,
            operator,
            key: values.key,
            keys: values.keys,
            tree,
            link_secret: values.link_secret,
            policy: values.policy,
            state: values.state,
            columns: values.columns,
            ranges: values.ranges,
            grace: Duration::from_secs_f64(values.grace),
            link,
        };
        Ok(Self { inner, roster })
    }

    /// The roster.
    #[getter]
    fn roster(&self, py: Python<'_>) -> Py<Roster> {
        self.roster.clone_ref(py)
    }
}

/// The values of a configuration, as `moteseal.sums.Querier` passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Values {
    key: PathBuf,
    keys: PathBuf,
    tree: Tree,
    link_secret: PathBuf,
    policy: Option<PathBuf>,
    state: PathBuf,
    columns: Vec<String>,
    /// The range of each column's values: `-40..125`.
    ranges: BTreeMap<String, String>,
    grace: f64,
    link: Link,
}

/// The path of a `tree.toml`, or its content.
#[derive(Debug, FromPyObject)]
enum Tree {
    #[pyo3(transparent)]
    File(PathBuf),
    Tables {
        #[pyo3(item)]
        querier: Option<String>,
        #[pyo3(item)]
        gateways: BTreeMap<String, String>,
        #[pyo3(item)]
        devices: BTreeMap<String, String>,
    },
}

/// How to reach the broker.
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

/// An iterator over the rows of a running query, one for each epoch, in order.
#[pyclass(frozen, module = "moteseal._moteseal")]
#[derive(Debug)]
pub(crate) struct Following {
    rows: Mutex<Receiver<Message>>,
    stop: Stop,
    /// The query's id.
    #[pyo3(get)]
    query: String,
    /// The minimum number of participants for which a result is opened.
    #[pyo3(get)]
    floor: u32,
    /// The number of devices that the query asks.
    #[pyo3(get)]
    sources: u32,
    /// The number of epochs without a row. It is known once the query has ended.
    missed: Mutex<Option<u64>>,
    /// The id of the process whose thread runs the query.
    process: u32,
}

/// A message from the thread that runs a query.
enum Message {
    Row(String),
    Ended(Result<u64, Problem>),
}

impl Drop for Following {
    fn drop(&mut self) {
        // The thread then withdraws the query, and the devices stop answering it.
        self.stop.stop();
    }
}

#[pymethods]
impl Following {
    const fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Waits for the next epoch's row, without Python's lock, and returns it as a dict.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.next(py)? {
            Some(row) => loads(py, &row),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Withdraws the query, and waits until the withdrawal is announced to the devices. Discards
    /// the rows that were not read.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stop.stop();
        while self.next(py)?.is_some() {}
        Ok(())
    }

    /// The number of epochs without a row; None while the query runs.
    #[getter]
    fn missed(&self) -> Option<u64> {
        *self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Following {
    fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        // A forked process does not have the thread: it would wait forever.
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(
                "this query was started before a fork; start one in each process",
            ));
        }
        loop {
            if self.missed().is_some() {
                return Ok(None);
            }
            let message = py.detach(|| {
                self.rows.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TICK)
            });
            let ended = match message {
                Ok(Message::Row(row)) => return Ok(Some(row)),
                Ok(Message::Ended(ended)) => ended,
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

/// Starts a query in the background.
#[pyfunction]
#[pyo3(signature = (query, config, epochs, floor, min_count))]
pub(crate) fn follow_sums(
    py: Python<'_>,
    query: String,
    config: &Bound<'_, QuerierConfig>,
    epochs: Option<u64>,
    floor: Option<u32>,
    min_count: Option<u32>,
) -> PyResult<Following> {
    if epochs == Some(0) {
        return Err(PyValueError::new_err(
            "epochs: expected at least 1, or None to run without end",
        ));
    }
    let roster = config.get().roster.get().roster.clone();
    let config = config.get().inner.clone();
    let minimums = Minimums { participants: floor, readings: min_count };
    let prepared = work::run(py, move |_| {
        Ok(PreparedQuery::new(&query, &roster, &config, minimums, &|_| ())?)
    })?;
    let (query, floor, sources) = (prepared.id(), prepared.floor(), prepared.sources());
    let (sender, rows) = sync_channel(WAITING);
    let stop = Stop::default();
    let theirs = stop.clone();
    let spawned = thread::Builder::new().name("moteseal-sum".to_owned()).spawn(move || {
        let ended = run(prepared, epochs, &theirs, &sender);
        // Sending fails if the iterator was dropped.
        let _ = sender.send(Message::Ended(ended));
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

/// Runs a query until its last epoch is over, or until it is stopped. Returns the number of epochs
/// without a row.
fn run(
    query: PreparedQuery,
    epochs: Option<u64>,
    stop: &Stop,
    sender: &SyncSender<Message>,
) -> Result<u64, Problem> {
    let lines = Lines { sender, line: Vec::new() };
    let mut writer = RowWriter::new(RowFormat::JsonLines, query.names(), lines)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime =
        runtime.map_err(|error| Problem::system(format_args!("cannot start threads: {error}")))?;
    let mut rows = |row: &_| writer.row(row);
    let ended = runtime.block_on(query.run(epochs, None, || (), &mut rows, stop.stopped()));
    ended.map_err(|error| match error {
        RunError::Output(error) => error.into(),
        error => Problem::new(error.kind(), error.name(), &error),
    })
}

/// Collects the bytes that the client library writes, and sends each complete line as a row.
struct Lines<'a> {
    sender: &'a SyncSender<Message>,
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
        self.sender.try_send(Message::Row(line)).map_err(|error| {
            io::Error::other(match error {
                TrySendError::Full(_) => "the query was stopped: thousands of rows were not read; read the iterator continuously",
                TrySendError::Disconnected(_) => "the iterator of the rows was closed",
            })
        })
    }
}
