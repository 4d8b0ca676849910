//! Proofs that show less, and proofs that show what several proofs show.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moteseal_api::ErrorKind;
use moteseal_client::output::AtomicFile;
use moteseal_client::redact as proofs;
use moteseal_client::redact::{Keep, KeptReadings, MergeError};
use moteseal_core::record::SealIndex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow_rows::Stopping;
use crate::failure::Problem;
use crate::query::{self as query_arguments, wrong_type};
use crate::roster::{Roster, roster};
use crate::verification_report::Report;
use crate::work::{self, Stop};

/// Writes a proof that shows less of a proof to the file out, and returns its report. It verifies
/// without what was left out. Needs no key and no network.
///
/// Every argument states what to keep; by default, everything. devices, since and until are those of
/// Client.get. readings are single readings of seals that are trees, by the columns index and seq of an
/// answer: [(12, 7)], or [(12, 7, 3)] for three readings; with None as the index, those of every seal.
/// columns are names of columns: the cells of the column groups that have none of them are left out.
#[pyfunction]
#[pyo3(signature = (proof, out, roster, operator = None, *, devices = None, since = None, until = None, readings = None, columns = None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn redact(
    py: Python<'_>,
    proof: PathBuf,
    out: PathBuf,
    roster: &Bound<'_, PyAny>,
    operator: Option<PathBuf>,
    devices: Option<&Bound<'_, PyAny>>,
    since: Option<&Bound<'_, PyAny>>,
    until: Option<&Bound<'_, PyAny>>,
    readings: Option<&Bound<'_, PyAny>>,
    columns: Option<&Bound<'_, PyAny>>,
) -> PyResult<Report> {
    let roster = self::roster(roster, operator)?;
    let (since, until) = query_arguments::epochs(roster.get(), since, until, py)?;
    let keep = Keep {
        // Without the argument, all devices of the proof are kept, not those of the roster.
        devices: match devices {
            Some(_) => query_arguments::devices(roster.get(), devices, py)?,
            None => Vec::new(),
        },
        since,
        until,
        readings: readings.map(kept_readings).transpose()?.unwrap_or_default(),
        columns: query_arguments::columns(columns, py)?,
    };
    work::run(py, move |stop| {
        let roster = roster.get();
        distinct(&out, std::slice::from_ref(&proof), roster)?;
        let source = open(&proof, stop)?;
        let found = proofs::redact(source, &proof, &roster.roster, &keep, &out);
        let found = found.map_err(|error| Problem::of(&error, &roster.roster).in_file(&proof));
        report(found.map(|redacted| redacted.report), stop)
    })
}

/// Writes a proof that shows what several proofs of the same devices show to the file out, and returns
/// its report. Where they have the same seal, the new proof has the readings and the columns of all of
/// them. Needs no key and no network. The new proof is a redacted one, whatever the others are.
#[pyfunction]
#[pyo3(signature = (proofs, out, roster, operator = None))]
pub(crate) fn merge(
    py: Python<'_>,
    proofs: Vec<PathBuf>,
    out: PathBuf,
    roster: &Bound<'_, PyAny>,
    operator: Option<PathBuf>,
) -> PyResult<Report> {
    if proofs.len() < 2 {
        return Err(PyValueError::new_err("proofs: pass the paths of at least two proofs"));
    }
    let roster = self::roster(roster, operator)?;
    work::run(py, move |stop| {
        let roster = roster.get();
        distinct(&out, &proofs, roster)?;
        let mut sources = Vec::with_capacity(proofs.len());
        for path in &proofs {
            sources.push((open(path, stop)?, path.as_path()));
        }
        let found = proofs::merge(sources, &roster.roster, &out);
        let found = found.map_err(|MergeError { path, error }| {
            let problem = Problem::of(&error, &roster.roster);
            match path {
                Some(path) => problem.in_file(&path),
                None => problem,
            }
        });
        report(found, stop)
    })
}

/// Returns the report of a written proof. If the work was stopped, a source has failed.
fn report(found: Result<moteseal_client::Report, Problem>, stop: &Stop) -> Result<Report, Problem> {
    match found {
        Err(_) if stop.is_stopped() => Err(Problem::stopped()),
        found => Ok(Report { report: Arc::new(found?) }),
    }
}

fn open<'s>(path: &Path, stop: &'s Stop) -> Result<Stopping<'s, File>, Problem> {
    let file = File::open(path).map_err(|error| Problem::file(path, &error))?;
    Ok(Stopping { file, stop })
}

/// Rejects a path for the new proof if the new proof would replace a file that is read.
fn distinct(out: &Path, proofs: &[PathBuf], roster: &Roster) -> Result<(), Problem> {
    let mut read = proofs.iter().chain([&roster.path, &roster.operator]);
    if read.any(|read| AtomicFile::is_same(out, read)) {
        let text = format_args!(
            "out: {} would replace a file that this call reads; pass another path",
            out.display()
        );
        return Err(Problem::new(ErrorKind::Usage, "BadFile", text));
    }
    Ok(())
}

/// Converts readings to keep: a list of (index, seq) or (index, seq, count). The index is None for the
/// readings of every seal.
fn kept_readings(readings: &Bound<'_, PyAny>) -> PyResult<Vec<KeptReadings>> {
    const EXPECTED: &str =
        "a list of (index, seq) or (index, seq, count), where the index is an int or None";
    let wrong = |_| wrong_type("readings", EXPECTED, readings);
    let mut kept = Vec::new();
    for one in readings.try_iter().map_err(wrong)? {
        let one = one?;
        let (index, first, count) = match one.extract::<(Option<u32>, u32)>() {
            Ok((index, first)) => (index, first, 1),
            Err(_) => one.extract::<(Option<u32>, u32, u32)>().map_err(wrong)?,
        };
        let last = count.checked_sub(1).and_then(|more| first.checked_add(more));
        let last = last.ok_or_else(|| {
            PyValueError::new_err("readings: name at least one reading, with seq below 2**32")
        })?;
        kept.push(KeptReadings { index: index.map(SealIndex), first, last });
    }
    if kept.is_empty() {
        return Err(PyValueError::new_err(
            "readings: no reading is given; pass at least one, or omit readings to keep all readings",
        ));
    }
    Ok(kept)
}
