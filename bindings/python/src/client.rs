//! The Python class `Client`: it queries an untrusted cloud, then verifies the response, saves it
//! and returns it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moteseal_api::{ErrorKind, Query};
use moteseal_client::decrypt::ColumnKeyFiles;
use moteseal_client::estimate::GroupSample;
use moteseal_client::output::{AtomicFile, Batches};
use moteseal_client::pinned::PinFile;
use moteseal_client::proof::Scope;
use moteseal_client::{Client as DataClient, Error, Report, Sink};
use moteseal_net::{Credential, Identity, Login, Options, Token};
use moteseal_seal::sample::{Choice, Rate};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::arrow_rows::Answer;
use crate::estimate::{Collected, Estimates, subject};
use crate::failure::Problem;
use crate::keys::key_files;
use crate::query::{self as query_arguments, pin_file};
use crate::roster::{Roster, roster};
use crate::work::{self, Stop, Stoppable};

/// Default time to wait for a cloud that is starting, in seconds. `moteseal get` has the same
/// default.
const PATIENCE: f64 = 2.0;
/// The maximum value of the argument `patience`, in seconds.
const MOST_PATIENCE: f64 = 86_400.0;

/// Fetches sealed readings from one cloud and verifies every response: the readings are authentic,
/// complete, and not chosen by the cloud. Otherwise the method raises an exception.
///
/// >>> trust = {"roster": "roster.cbor", "operator": "keys/op.pub.pem"}
/// >>> client = moteseal.Client("http://127.0.0.1:8080", **trust)
/// >>> answer = client.get(["dev1", "dev2"], since="2026-01-01", rate="1/8")
///
/// roster is a moteseal.Roster, or the path of a roster; in that case, operator is the path of the
/// operator's public key. token is the path of a file with a bearer token. user is the name of
/// a user, and password_file is the path of a file with the user's password. client_cert and
/// client_key are the paths of PEM files with a client certificate and its key. ca is the path of a
/// PEM file with certificate authorities that are trusted in addition to the system's. pinned_seals is
/// the path of a file that stores the newest verified seal of each device and the newest version of
/// the roster: a later response that omits or contradicts a stored seal is rejected, and so is an
/// earlier version of the roster (NotLater). True means the file that `moteseal get` uses,
/// False means no file. patience is the number of seconds to wait for a cloud that is starting.
/// Threads may share a client.
#[pyclass(frozen, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Client {
    inner: Arc<Inner>,
}

/// The data that a background thread needs. The thread may outlive the client.
#[derive(Debug)]
struct Inner {
    cloud: moteseal_net::Client,
    roster: Py<Roster>,
    pin_file: PinFile,
    /// `None` only while this value is being dropped.
    runtime: Option<Runtime>,
    process: u32,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // This thread may hold Python's lock: do not wait for the runtime's threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (url, *, roster, operator = None, token = None, ca = None, pinned_seals = None, patience = PATIENCE, user = None, password_file = None, client_cert = None, client_key = None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        url: &str,
        roster: &Bound<'_, PyAny>,
        operator: Option<PathBuf>,
        token: Option<PathBuf>,
        ca: Option<PathBuf>,
        pinned_seals: Option<&Bound<'_, PyAny>>,
        patience: f64,
        user: Option<&str>,
        password_file: Option<PathBuf>,
        client_cert: Option<PathBuf>,
        client_key: Option<PathBuf>,
    ) -> PyResult<Self> {
        let py = roster.py();
        if !(0.0..=MOST_PATIENCE).contains(&patience) {
            return Err(PyValueError::new_err(format!(
                "patience: expected 0 to {MOST_PATIENCE} seconds, got {patience}"
            )));
        }
        let roster = self::roster(roster, operator)?;
        let pin_file = pin_file(pinned_seals)?;
        let credential = match (&token, user, &password_file) {
            (None, None, None) => Ok(None),
            (Some(token), None, None) => {
                Token::read(token).map(|token| Some(Credential::Token(token)))
            }
            (None, Some(user), Some(password)) => {
                Login::read(user, password).map(|login| Some(Credential::Login(login)))
            }
            _ => {
                return Err(PyValueError::new_err(
                    "user, password_file: give both, or a token, or none of them",
                ));
            }
        };
        let identity = match (client_cert, client_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            _ => {
                return Err(PyValueError::new_err(
                    "client_cert, client_key: give both, or none of them",
                ));
            }
        };
        let made = credential.and_then(|credential| {
            let options = Options {
                ca,
                credential,
                identity,
                patience: Duration::from_secs_f64(patience),
                ..Options::default()
            };
            moteseal_net::Client::new(url, &options)
        });
        let cloud = made.map_err(|error| Problem::net(&error).raise(py))?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("moteseal-net")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| {
            Problem::system(format_args!("cannot start threads: {error}")).raise(py)
        })?;
        let process = std::process::id();
        Ok(Self {
            inner: Arc::new(Inner { cloud, roster, pin_file, runtime: Some(runtime), process }),
        })
    }

    /// The cloud's address.
    #[getter]
    fn url(&self) -> &str {
        self.inner.cloud.base()
    }

    /// The roster with which responses are verified.
    #[getter]
    fn roster(&self, py: Python<'_>) -> Py<Roster> {
        self.inner.roster.clone_ref(py)
    }

    /// Fetches readings, verifies them and returns them. Raises an exception if they are not
    /// authentic or not complete.
    ///
    /// devices is a device's name or several names; default: all devices of the roster. since and
    /// until are a datetime with a time zone, a date, Unix milliseconds or RFC 3339 text; the range
    /// is rounded to whole epochs. Give one of these amounts: rate ("1/8", 0.125, Fraction(1, 8); 1
    /// means all readings), at_most (the maximum number of readings per device and epoch), sample
    /// (the number of readings per device and epoch, drawn with seed; only for devices that seal
    /// trees), or readings (single readings of one device that seals trees, by the columns index
    /// and seq of an answer: [(12, 7)], or [(12, 7, 3)] for three readings). proof is the path of a file in which to save
    /// the response; `verify_proof` and `moteseal verify` can check it later, offline. If nothing shows yet what was sealed up to
    /// the end of the range, the method raises TailUnknown or ManifestMissing, and the exception
    /// has the verified readings as its attribute answer. With allow_incomplete=True, the method
    /// returns these readings instead.
    ///
    /// Encrypted columns are null, unless a key opens them. grants is the path of a grant or of
    /// several. identity is the path of the file with your age identities, for which they were made,
    /// and passphrase is the passphrase of those that were made for one. stream_secrets is for
    /// owners: a dict from names of devices to the paths of their stream secrets. In the Arrow schema, the metadata moteseal.withheld of a column states why cells are
    /// null (Encrypted, NotCovered), and so does the report.
    ///
    /// columns is a column's name or several names: only these columns are returned. If a device
    /// seals column groups, the cloud sends only the groups that have one of them, and only these are
    /// verified and decrypted.
    #[pyo3(signature = (devices = None, since = None, until = None, rate = None, *, at_most = None, sample = None, seed = None, readings = None, columns = None, proof = None, allow_incomplete = false, grants = None, identity = None, passphrase = None, stream_secrets = None))]
    #[allow(clippy::too_many_arguments)]
    fn get(
        &self,
        py: Python<'_>,
        devices: Option<&Bound<'_, PyAny>>,
        since: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        rate: Option<&Bound<'_, PyAny>>,
        at_most: Option<&Bound<'_, PyAny>>,
        sample: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
        readings: Option<&Bound<'_, PyAny>>,
        columns: Option<&Bound<'_, PyAny>>,
        proof: Option<PathBuf>,
        allow_incomplete: bool,
        grants: Option<&Bound<'_, PyAny>>,
        identity: Option<PathBuf>,
        passphrase: Option<&Bound<'_, PyAny>>,
        stream_secrets: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Answer>> {
        let keys = key_files(grants, identity, passphrase, stream_secrets)?;
        let choice = query_arguments::choice(rate, at_most, sample, seed, readings)?;
        let columns = query_arguments::columns(columns, py)?;
        let roster = self.inner.roster.get();
        let query = query_arguments::query(roster, devices, (since, until), choice, columns, py)?;
        let inner = self.inner()?;
        let answer = work::run(py, move |stop| {
            let roster = inner.roster.get().roster.clone();
            let store =
                |rows, query, report| Answer::new(rows, Scope::Answer(query), report, roster);
            inner.get(&query, (proof.as_deref(), &keys), Batches::new(), stop, store)
        })?;
        answer.complete_or(allow_incomplete, py)
    }

    /// Fetches and verifies a sample for estimates: client.estimate("temperature",
    /// rate="1/8").mean().
    ///
    /// what is a field, or a condition on a field ("temperature>=25"). For a condition, count()
    /// estimates how many readings meet it, and proportion() estimates their share of all readings.
    /// If neither rate nor at_most is given, the rate is the highest at which the whole range is
    /// available. With each=True, there are also estimates for each single device. An encrypted
    /// column needs keys for all its readings, as in get; otherwise the method raises UsageError
    /// (ColumnEncrypted).
    #[pyo3(signature = (what, devices = None, since = None, until = None, rate = None, *, at_most = None, each = false, proof = None, allow_incomplete = false, grants = None, identity = None, passphrase = None, stream_secrets = None))]
    #[allow(clippy::too_many_arguments)]
    fn estimate(
        &self,
        py: Python<'_>,
        what: &str,
        devices: Option<&Bound<'_, PyAny>>,
        since: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        rate: Option<&Bound<'_, PyAny>>,
        at_most: Option<&Bound<'_, PyAny>>,
        each: bool,
        proof: Option<PathBuf>,
        allow_incomplete: bool,
        grants: Option<&Bound<'_, PyAny>>,
        identity: Option<PathBuf>,
        passphrase: Option<&Bound<'_, PyAny>>,
        stream_secrets: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Estimates>> {
        let keys = key_files(grants, identity, passphrase, stream_secrets)?;
        let is_free = rate.is_none() && at_most.is_none();
        let choice = if is_free {
            Choice::Rate(Rate::ALL)
        } else {
            query_arguments::choice(rate, at_most, None, None, None)?
        };
        let roster = self.inner.roster.get();
        let mut query =
            query_arguments::query(roster, devices, (since, until), choice, Vec::new(), py)?;
        let subject = subject(what)?;
        let inner = self.inner()?;
        let collected = work::run(py, move |stop| {
            let roster = &inner.roster.get().roster;
            if is_free {
                let client = DataClient::new(&inner.cloud, roster);
                let rate = client.common_rate(&query.devices, query.since, query.until);
                query.choice = Choice::Rate(inner.wait(rate, stop)?);
            }
            let sample = GroupSample::new(subject.clone(), true, each);
            let store = |sample, query, report| {
                Ok(Collected { subject, each, sample, query, report, roster: roster.clone() })
            };
            inner.get(&query, (proof.as_deref(), &keys), sample, stop, store)
        })?;
        Estimates::complete_or(collected, allow_incomplete, py)
    }

    fn __repr__(&self) -> String {
        format!(
            "<moteseal.Client of {}, group {:?}>",
            self.inner.cloud.base(),
            self.inner.roster.get().roster.group_name()
        )
    }
}

impl Client {
    /// Returns the data that a background thread needs, or an exception if the process was forked.
    fn inner(&self) -> PyResult<Arc<Inner>> {
        // A forked process does not have the runtime's threads: a request would never end.
        if self.inner.process == std::process::id() {
            Ok(self.inner.clone())
        } else {
            Err(PyRuntimeError::new_err(
                "this moteseal.Client was created before a fork; create one in each process",
            ))
        }
    }
}

impl Inner {
    /// Waits for a response of the cloud, or until the work is stopped.
    fn wait<T>(
        &self,
        response: impl Future<Output = Result<T, Error>>,
        stop: &Stop,
    ) -> Result<T, Problem> {
        let Some(runtime) = &self.runtime else { return Err(Problem::stopped()) };
        let found = runtime.block_on(async {
            tokio::select! {
                biased;
                () = stop.stopped() => None,
                found = response => Some(found),
            }
        });
        let found = found.filter(|_| !stop.is_stopped()).ok_or_else(Problem::stopped)?;
        found.map_err(|error| Problem::of(&error, &self.roster.get().roster))
    }

    /// Runs a query. `store` receives the verified query and report before the proof and the pinned
    /// seals are saved.
    fn get<S: Sink + Send, T>(
        &self,
        query: &Query,
        (proof, keys): (Option<&Path>, &ColumnKeyFiles),
        mut sink: S,
        stop: &Stop,
        store: impl FnOnce(S, Query, Report) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let roster = &self.roster.get().roster;
        let pin_file = self.pin_file.path(roster);
        if let Some(proof) = proof {
            self.distinct(proof, pin_file.as_deref(), keys)?;
        }
        let keys = keys.open(roster)?;
        let mut keys = keys.set();
        let opened = self.pin_file.open(roster);
        let mut pinned = opened.map_err(|error| Problem::of(&error, roster))?;
        let mut request = DataClient::new(&self.cloud, roster).query(query);
        if let Some(pinned) = &mut pinned {
            request = request.pinned_seals(pinned);
        }
        if let Some(proof) = proof {
            request = request.proof(proof);
        }
        if let Some(keys) = &mut keys {
            request = request.keys(keys);
        }
        let mut stoppable = Stoppable { sink: &mut sink, stop };
        let verified = self.wait(request.run(&mut stoppable), stop)?;
        let stored = store(sink, verified.query.clone(), verified.report.clone())?;
        verified.keep()?;
        Ok(stored)
    }

    /// Rejects a path for the proof if the proof would replace a file that the client reads.
    fn distinct(
        &self,
        proof: &Path,
        pin_file: Option<&Path>,
        keys: &ColumnKeyFiles,
    ) -> Result<(), Problem> {
        let roster = self.roster.get();
        let read = [Some(roster.path.as_path()), Some(roster.operator.as_path()), pin_file];
        let mut read = read.into_iter().flatten().chain(keys.read().map(PathBuf::as_path));
        if read.any(|read| AtomicFile::is_same(proof, read)) {
            let text = format_args!(
                "proof: {} would replace a file that this call reads; pass another path",
                proof.display()
            );
            return Err(Problem::new(ErrorKind::Usage, "BadFile", text));
        }
        Ok(())
    }
}
