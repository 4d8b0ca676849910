//! Private sums in Python: a background thread runs a query of `moteseal_client::sum`, and its rows
//! wait in a queue until Python takes them. `moteseal.sums` wraps this for users.

mod setup;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use moteseal_client::sum::{
    BrokerConfig, PreparedQuery, RowFormat, RowWriter, RunError, TreeSource, TreeTables,
};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyValueError};
use pyo3::prelude::*;

pub(crate) use setup::setup_sums;

use crate::failure::Problem;
use crate::report::loads;
use crate::source::Roster;
use crate::work::{self, Stop};

/// Interval at which the waiting thread checks for signals.
const TICK: Duration = Duration::from_millis(50);
/// Capacity of the queue of rows: more than an hour of the shortest epochs.
const WAITING: usize = 4096;

/// The configuration of a querier, as in `querier.toml`.
#[pyclass(frozen, module = "moteseal._moteseal")]
#[derive(Debug)]
pub(crate) struct QuerierConfig {
    inner: moteseal_client::sum::QuerierConfig,
    roster: Py<Roster>,
}

#[pymethods]
impl QuerierConfig {
    /// Reads a `querier.toml`, and the roster that it names.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let inner = moteseal_client::sum::QuerierConfig::read(&path)
            .map_err(|error| Problem::from(error).raise(py))?;
        let roster = Roster::new(py, inner.roster.clone(), inner.operator.clone())?;
        Ok(Self { inner, roster: Py::new(py, roster)? })
    }

    /// The configuration of these values.
    #[new]
    fn new(roster: Py<Roster>, values: Values) -> PyResult<Self> {
        if !(0.0..=86_400.0).contains(&values.grace) {
            return Err(PyValueError::new_err(format!(
                "grace: seconds between 0 and 86,400, not {}",
                values.grace
            )));
        }
        let tree = match values.tree {
            Tree::File(path) => TreeSource::File(path),
            Tree::Tables { gateways, devices } => {
                TreeSource::Tables(TreeTables { gateways, devices })
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

/// The values of a configuration.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Values {
    key: PathBuf,
    keys: PathBuf,
    tree: Tree,
    link_secret: PathBuf,
    state: PathBuf,
    columns: Vec<String>,
    /// The range of a column: `-40..125`.
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

/// The rows of a running query, one for each epoch, in order.
#[pyclass(frozen, module = "moteseal._moteseal")]
#[derive(Debug)]
pub(crate) struct Following {
    rows: Mutex<Receiver<Message>>,
    stop: Stop,
    /// The query's id.
    #[pyo3(get)]
    query: String,
    /// The minimum number of participants of a result.
    #[pyo3(get)]
    floor: u32,
    /// The number of devices that are asked.
    #[pyo3(get)]
    sources: u32,
    /// How many epochs have no row; known once the query has ended.
    missed: Mutex<Option<u64>>,
    /// The process whose thread runs it.
    process: u32,
}

/// A message of the thread that runs a query.
enum Message {
    Row(String),
    Ended(Result<u64, Problem>),
}

impl Drop for Following {
    fn drop(&mut self) {
        // The thread withdraws the query, so that the devices stop answering.
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

    /// Withdraws the query, and waits until that is announced. Rows that were not taken are
    /// discarded.
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
        // After a fork, the thread is missing and waiting would never end.
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
#[pyo3(signature = (query, config, epochs, floor))]
pub(crate) fn follow_sums(
    py: Python<'_>,
    query: String,
    config: &Bound<'_, QuerierConfig>,
    epochs: Option<u64>,
    floor: Option<u32>,
) -> PyResult<Following> {
    if epochs == Some(0) {
        return Err(PyValueError::new_err("epochs: at least 1, or None for no end"));
    }
    let roster = config.get().roster.get().roster.clone();
    let config = config.get().inner.clone();
    let prepared =
        work::run(py, move |_| Ok(PreparedQuery::new(&query, &roster, &config, floor, &|_| ())?))?;
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

/// Runs a query until its epochs are over or it is stopped. Returns how many epochs have no row.
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
    let ended = runtime.block_on(query.run(epochs, || (), &mut rows, stop.stopped()));
    ended.map_err(|error| match error {
        RunError::Output(error) => error.into(),
        error => Problem::new(error.kind(), error.name(), &error),
    })
}

/// Collects lines, and sends each as a row.
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
                TrySendError::Full(_) => "the query was stopped: the rows of thousands of epochs wait to be read; read the iterator faster",
                TrySendError::Disconnected(_) => "the iterator of the rows was closed",
            })
        })
    }
}
