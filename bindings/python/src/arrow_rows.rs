//! Verified rows, which data frame libraries import through the Arrow PyCapsule interface without
//! copying them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::SchemaRef;
use moteseal_client::decrypt::{ColumnKeyFiles, SealKeys};
use moteseal_client::output::Batches;
use moteseal_client::pinned::PinFile;
use moteseal_client::proof::{self, Scope};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::failure::Problem;
use crate::keys::key_files;
use crate::query::{names, pin_file};
use crate::roster::roster;
use crate::verification_report::{Report, incomplete, loads};
use crate::work::{self, Stop, Stoppable};

/// Verified rows, and the report about their verification. Data frame libraries import the rows
/// without copying them (by the Arrow PyCapsule interface):
///
/// >>> pyarrow.table(answer)
/// >>> polars.DataFrame(answer)
/// >>> answer.to_pandas()
///
/// The columns are epoch, epoch_start, device, index (the index of the seal) and seq (the event's
/// sequence number in that seal), followed by the columns that the device sealed.
#[pyclass(frozen, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Answer {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: usize,
    scope: Scope,
    report: Arc<moteseal_client::Report>,
    roster: Arc<moteseal_verify::Roster>,
}

impl Answer {
    pub(crate) fn new(
        rows: Batches,
        scope: Scope,
        report: moteseal_client::Report,
        roster: Arc<moteseal_verify::Roster>,
    ) -> Result<Self, Problem> {
        let number = rows.rows();
        let (schema, batches) = rows.finish()?;
        Ok(Self { schema, batches, rows: number, scope, report: Arc::new(report), roster })
    }

    /// Returns the answer. If it is incomplete and `allow_incomplete` is false, returns an
    /// exception that has the answer as its attribute `answer`.
    pub(crate) fn complete_or(self, allow_incomplete: bool, py: Python<'_>) -> PyResult<Py<Self>> {
        let problem = if allow_incomplete { None } else { incomplete(&self.report, &self.roster) };
        let answer = Py::new(py, self)?;
        match problem {
            None => Ok(answer),
            Some(problem) => {
                let error = problem.raise(py);
                error.value(py).setattr("answer", answer)?;
                Err(error)
            }
        }
    }
}

#[pymethods]
impl Answer {
    /// The report about the verification, with an entry for each device.
    #[getter]
    fn report(&self) -> Report {
        Report { report: self.report.clone() }
    }

    /// True if the data of every device is complete over the requested range.
    #[getter]
    fn complete(&self) -> bool {
        self.report.is_complete()
    }

    /// The query that was sent to the cloud. It has ids of devices, numbers of epochs, and the seed
    /// of a sample. For a redacted proof: its devices and epochs, and "redacted": True.
    #[getter]
    fn query<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &self.scope.to_json().to_string())
    }

    /// Raises TailUnknown, ManifestMissing, Redacted or ReadingsNamed if the answer is not complete.
    fn require_complete(&self, py: Python<'_>) -> PyResult<()> {
        incomplete(&self.report, &self.roster).map_or(Ok(()), |problem| Err(problem.raise(py)))
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// The types of the columns, for libraries that import Arrow data: a PyCapsule named
    /// "arrow_schema".
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref())
            .map_err(|error| Problem::system(error).raise(py))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The rows, for libraries that import Arrow data: a PyCapsule named "arrow_array_stream". Each
    /// call returns all rows, and all results share the rows' memory. The method ignores a
    /// requested schema, as the interface allows: the importing library converts the types.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches =
            RecordBatchIterator::new(self.batches.clone().into_iter().map(Ok), self.schema.clone());
        PyCapsule::new_with_value(
            py,
            FFI_ArrowArrayStream::new(Box::new(batches)),
            c"arrow_array_stream",
        )
    }

    /// Returns the rows as a pyarrow.Table that shares their memory. Requires pyarrow.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    /// Returns the rows as a polars.DataFrame that shares their memory. Requires polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.call_method1("DataFrame", (slf,))
    }

    /// Returns the rows as a pandas.DataFrame. Requires pandas and pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_pyarrow(slf)?.call_method0("to_pandas")
    }

    fn __len__(&self) -> usize {
        self.rows
    }

    fn __repr__(&self) -> String {
        let complete = if self.report.is_complete() { "complete" } else { "incomplete" };
        let devices = self.report.devices.len();
        format!("<moteseal.Answer: {} verified rows of {devices} devices, {complete}>", self.rows)
    }
}

/// Verifies a proof (.mproof) and returns its rows. Needs no network.
///
/// If the proof contradicts a pinned seal, it is rejected. If it is redacted, the rows are authentic and
/// not complete; allow_incomplete=True returns them. For pinned_seals, see moteseal.Client; for the keys of
/// encrypted columns, moteseal.Client.get.
///
/// accept_sanitised is the name of a sanitiser, or several names: their values are accepted in place of
/// those of devices, and the metadata moteseal.origin of a column names the sanitiser. Otherwise a proof
/// with such values is rejected (ColumnSanitised).
#[pyfunction]
#[pyo3(signature = (path, roster, operator = None, *, pinned_seals = None, allow_incomplete = false, grants = None, identity = None, passphrase = None, stream_secrets = None, accept_sanitised = None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn verify_proof(
    py: Python<'_>,
    path: PathBuf,
    roster: &Bound<'_, PyAny>,
    operator: Option<PathBuf>,
    pinned_seals: Option<&Bound<'_, PyAny>>,
    allow_incomplete: bool,
    grants: Option<&Bound<'_, PyAny>>,
    identity: Option<PathBuf>,
    passphrase: Option<&Bound<'_, PyAny>>,
    stream_secrets: Option<&Bound<'_, PyAny>>,
    accept_sanitised: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<Answer>> {
    let keys = key_files(grants, identity, passphrase, stream_secrets)?;
    let roster = self::roster(roster, operator)?.get().roster.clone();
    let what = "a sanitiser's name or an iterable of names";
    let accepted = accept_sanitised.map(|given| names(given, "accept_sanitised", what));
    let accepted = accepted.transpose()?.unwrap_or_default();
    check_sanitisers(&accepted, &roster)?;
    let pin_file = pin_file(pinned_seals)?;
    let answer =
        work::run(py, move |stop| verified(&path, (&roster, &pin_file), &accepted, &keys, stop))?;
    answer.complete_or(allow_incomplete, py)
}

/// Checks that the roster names these sanitisers.
fn check_sanitisers(names: &[String], roster: &moteseal_verify::Roster) -> PyResult<()> {
    let known: Vec<&str> = roster.sanitisers().iter().map(|of| of.name.as_str()).collect();
    let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(PyValueError::new_err(format!(
        "accept_sanitised: the roster names no sanitiser {name}; its sanitisers are {known}"
    )))
}

fn verified(
    path: &Path,
    (roster, pin_file): (&Arc<moteseal_verify::Roster>, &PinFile),
    accepted: &[String],
    keys: &ColumnKeyFiles,
    stop: &Stop,
) -> Result<Answer, Problem> {
    let keys = keys.open(roster)?;
    let mut keys = keys.set();
    let mut pinned = pin_file.open(roster).map_err(|error| Problem::of(&error, roster))?;
    let file = File::open(path).map_err(|error| Problem::file(path, &error))?;
    let mut rows = Batches::new();
    let mut sink = Stoppable { sink: &mut rows, stop };
    let (source, given) = (Stopping { file, stop }, (&**roster, pinned.as_ref()));
    let keys = keys.as_mut().map(|keys| keys as &mut dyn SealKeys);
    let found = proof::verify_sanitised(source, path, given, accepted, keys, &mut sink);
    let (scope, report) = found.map_err(|error| Problem::of(&error, roster).in_file(path))?;
    if stop.is_stopped() {
        return Err(Problem::stopped());
    }
    if let Some(pinned) = &mut pinned {
        pinned.save_if_changed()?;
    }
    Answer::new(rows, scope, report, roster.clone())
}

/// A reader of a file. Reading fails once the work is stopped.
pub(crate) struct Stopping<'a, F> {
    pub(crate) file: F,
    pub(crate) stop: &'a Stop,
}

impl<F: Read> Read for Stopping<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_stopped() {
            Err(io::Error::other("stopped"))
        } else {
            self.file.read(buffer)
        }
    }
}
