//! A cloud that nobody trusts, asked from Python: query, verify, keep, and only then hand out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moteseal_api::Query;
use moteseal_client::audit::common_rate;
use moteseal_client::output::{AtomicFile, Batches};
use moteseal_client::proof::ProofWriter;
use moteseal_client::{Failure, Memory, Report, Sink, get};
use moteseal_net::{Options, Token};
use moteseal_seal::sample::{Choice, Rate};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::answer::Answer;
use crate::estimate::{Collected, Estimates, Question};
use crate::failure::{Kind, Problem};
use crate::question::{self, Remembering};
use crate::source::{Roster, roster};
use crate::work::{self, Stop, Stoppable};

/// How long a cloud that is being started is waited for unless said otherwise, as `moteseal get` does.
const PATIENCE: f64 = 2.0;
/// A longer patience is a mistake: seconds.
const MOST_PATIENCE: f64 = 86_400.0;

/// Asks one cloud for what devices sealed, and verifies every answer: authentic, complete, and chosen by nobody. Or it raises.
///
/// >>> client = moteseal.Client("http://127.0.0.1:8080", roster="roster.cbor", operator="keys/op.pub.pem")
/// >>> answer = client.get(["dev1", "dev2"], since="2026-01-01", rate="1/8")
///
/// roster is a path (then operator is the path of the operator's public key) or a moteseal.Roster. token is a file with a bearer
/// token, ca a PEM file of certificate authorities to believe besides the system's. memory is where the newest seal of each device is
/// remembered, so that a cloud that forgets later is found out: True for the file that `moteseal get` uses, too, False for none, or a
/// path. patience is how many seconds to wait for a cloud that is being started. Threads may share a client.
#[pyclass(frozen, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Client {
    inner: Arc<Inner>,
}

/// What the work needs; it may outlive the client that was asked.
#[derive(Debug)]
struct Inner {
    cloud: moteseal_net::Client,
    roster: Py<Roster>,
    memory: Remembering,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    process: u32,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Python's lock may be held here: wait for nothing.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (url, *, roster, operator = None, token = None, ca = None, memory = None, patience = PATIENCE))]
    fn new(
        url: &str,
        roster: &Bound<'_, PyAny>,
        operator: Option<PathBuf>,
        token: Option<PathBuf>,
        ca: Option<PathBuf>,
        memory: Option<&Bound<'_, PyAny>>,
        patience: f64,
    ) -> PyResult<Self> {
        let py = roster.py();
        if !(0.0..=MOST_PATIENCE).contains(&patience) {
            return Err(PyValueError::new_err(format!(
                "patience: seconds between 0 and {MOST_PATIENCE}, not {patience}"
            )));
        }
        let roster = self::roster(roster, operator)?;
        let memory = Remembering::of(memory)?;
        let token = token.as_deref().map(Token::read).transpose();
        let made = token.and_then(|token| {
            let options = Options {
                ca,
                token,
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
            inner: Arc::new(Inner { cloud, roster, memory, runtime: Some(runtime), process }),
        })
    }

    /// The cloud's address.
    #[getter]
    fn url(&self) -> &str {
        self.inner.cloud.base()
    }

    /// By whose word answers are judged.
    #[getter]
    fn roster(&self, py: Python<'_>) -> Py<Roster> {
        self.inner.roster.clone_ref(py)
    }

    /// Gets a part of what devices sealed, verified; or raises, and there are no rows.
    ///
    /// devices is a name or several, all of the roster unless given. since and until are a datetime with a time zone, a date, Unix
    /// milliseconds or RFC 3339; whole epochs are served. How much is one of rate ("1/8", 0.125, Fraction(1, 8); 1 is all), at_most
    /// (readings an epoch) and sample (readings an epoch, drawn by seed; of trees only). proof is a file to keep the answer in, which
    /// `verify_proof` and `moteseal verify` check later, offline. Where something of the range is missing and nothing shows why, it
    /// raises TailUnknown or ManifestMissing with what there is as `.answer`; allow_incomplete=True returns that instead.
    #[pyo3(signature = (devices = None, since = None, until = None, rate = None, *, at_most = None, sample = None, seed = None, proof = None, allow_incomplete = false))]
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
        proof: Option<PathBuf>,
        allow_incomplete: bool,
    ) -> PyResult<Py<Answer>> {
        let choice = question::choice(rate, at_most, sample, seed)?;
        let query = question::query(self.inner.roster.get(), devices, since, until, choice, py)?;
        let inner = self.inner()?;
        let answer = work::run(py, move |stop| {
            let mut rows = Batches::new();
            let got = inner.get(&query, proof.as_deref(), &mut rows, stop)?;
            let Got { report, kept } = got;
            // The rows come last: whoever has them has their proof, and we remember what they were taken from.
            let answer = Answer::new(rows, query, report, inner.roster.get().roster.clone())?;
            kept.keep()?;
            Ok(answer)
        })?;
        answer.complete_or(allow_incomplete, py)
    }

    /// Takes a verified sample to estimate from: client.estimate("temperature", rate="1/8").mean().
    ///
    /// what is a field, or a condition on one ("temperature>=25") whose share and number are estimated. Without a rate or at_most, it
    /// is the highest rate at which all of the range can be had. each=True keeps the sample of each device apart, too.
    #[pyo3(signature = (what, devices = None, since = None, until = None, rate = None, *, at_most = None, each = false, proof = None, allow_incomplete = false))]
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
    ) -> PyResult<Py<Estimates>> {
        let is_free = rate.is_none() && at_most.is_none();
        let choice = if is_free {
            Choice::Rate(Rate::ALL)
        } else {
            question::choice(rate, at_most, None, None)?
        };
        let mut query =
            question::query(self.inner.roster.get(), devices, since, until, choice, py)?;
        let question = Question::parse(what)?;
        let inner = self.inner()?;
        let collected = work::run(py, move |stop| {
            let roster = &inner.roster.get().roster;
            if is_free {
                let range = (query.since, query.until);
                query.choice = Choice::Rate(
                    inner.wait(common_rate(&inner.cloud, roster, &query.devices, range), stop)?,
                );
            }
            let mut collected = Collected::new(question, each);
            let Got { report, kept } = inner.get(&query, proof.as_deref(), &mut collected, stop)?;
            kept.keep()?;
            Ok(collected.finish(query, report, roster.clone()))
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
    /// What the work needs.
    fn inner(&self) -> PyResult<Arc<Inner>> {
        // A fork has this process' memory and none of its threads: asking would hang.
        if self.inner.process == std::process::id() {
            Ok(self.inner.clone())
        } else {
            Err(PyRuntimeError::new_err(
                "this moteseal.Client was made before a fork; make one in each process",
            ))
        }
    }
}

/// A verified answer, and what is to be kept of it.
struct Got {
    report: Report,
    kept: Kept,
}

/// The answer's proof, and what is remembered; neither is in its place yet.
struct Kept {
    proof: Option<ProofWriter>,
    memory: Option<Memory>,
}

impl Kept {
    /// Puts both in place. What can fail for want of space fails before anything is.
    fn keep(mut self) -> Result<(), Problem> {
        let fail = |error| Problem::of_output(&error);
        if let Some(proof) = &mut self.proof {
            proof.settle().map_err(fail)?;
        }
        if let Some(memory) = &mut self.memory {
            memory.save().map_err(fail)?;
        }
        self.proof.map_or(Ok(()), |proof| proof.keep().map_err(fail))
    }
}

impl Inner {
    /// Waits for what the cloud says, unless the work is stopped before.
    fn wait<T>(
        &self,
        asked: impl Future<Output = Result<T, Failure>>,
        stop: &Stop,
    ) -> Result<T, Problem> {
        let Some(runtime) = &self.runtime else { return Err(Problem::stopped()) };
        let found = runtime.block_on(async {
            tokio::select! {
                biased;
                () = stop.stopped() => None,
                found = asked => Some(found),
            }
        });
        let found = found.filter(|_| !stop.is_stopped()).ok_or_else(Problem::stopped)?;
        found.map_err(|failure| Problem::of(&failure, &self.roster.get().roster))
    }

    fn get(
        &self,
        query: &Query,
        proof: Option<&Path>,
        sink: &mut (impl Sink + Send),
        stop: &Stop,
    ) -> Result<Got, Problem> {
        let fail = |error| Problem::of_output(&error);
        let roster = &self.roster.get().roster;
        let remembered = self.memory.path(roster);
        if let Some(proof) = proof {
            self.distinct(proof, remembered.as_deref())?;
        }
        let mut memory = remembered.map(|path| Memory::open(&path)).transpose().map_err(fail)?;
        let mut proof =
            proof.map(|path| ProofWriter::create(path, query, roster)).transpose().map_err(fail)?;
        let mut sink = Stoppable { sink, stop };
        let report = self.wait(
            get(&self.cloud, roster, query, memory.as_mut(), proof.as_mut(), &mut sink),
            stop,
        )?;
        Ok(Got { report, kept: Kept { proof, memory } })
    }

    /// Refuses to write a proof over a file that is read here.
    fn distinct(&self, proof: &Path, memory: Option<&Path>) -> Result<(), Problem> {
        let roster = self.roster.get();
        let read = [Some(roster.path.as_path()), Some(roster.operator.as_path()), memory];
        if read.into_iter().flatten().any(|read| AtomicFile::is_same(proof, read)) {
            let text = format_args!(
                "proof {} would replace a file that is read here; name another",
                proof.display()
            );
            return Err(Problem::new(Kind::Usage, "BadFile", text));
        }
        Ok(())
    }
}
