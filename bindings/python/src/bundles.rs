//! Verifies bundles (.mseal) offline.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use moteseal_client::bundles::{BundleVerifier, StreamFile};
use moteseal_verify::Roster;
use pyo3::prelude::*;

use crate::arrow_rows::Stopping;
use crate::failure::Problem;
use crate::roster::roster;
use crate::work::{self, Stop};

/// A summary of one device's bundles, which contain consecutive seals with all their readings.
#[pyclass(frozen, get_all, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct BundleReport {
    /// The device's name.
    name: String,
    /// The device's id, 16 hexadecimal digits.
    id: String,
    /// The number of seals.
    seals: usize,
    /// The index of the first seal.
    first_index: u32,
    /// The index of the last seal.
    last_index: u32,
    /// The first epoch.
    first_epoch: u64,
    /// The last epoch.
    last_epoch: u64,
    /// The number of readings.
    events: u64,
    /// The number of restarts that the device reports.
    restarts: usize,
}

#[pymethods]
impl BundleReport {
    fn __repr__(&self) -> String {
        let Self { name, seals, events, first_index, last_index, .. } = self;
        format!(
            "<moteseal.BundleReport {name:?}: {events} readings in {seals} seals, {first_index} to {last_index}>"
        )
    }
}

/// True if the file's first bytes identify a proof (.mproof). Otherwise, the file may be a bundle.
#[pyfunction]
pub(crate) fn is_proof(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    match StreamFile::open(&path) {
        Ok(file) => Ok(file.is_proof()),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(Problem::file(&path, &error).raise(py)),
    }
}

/// Verifies bundles (.mseal): checks every signature and every reading, and that no seal is missing
/// between the first and the last seal of each device. Needs no network. The reports are sorted by
/// the devices' names.
#[pyfunction]
#[pyo3(signature = (paths, roster, operator = None))]
pub(crate) fn verify_bundles(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    roster: &Bound<'_, PyAny>,
    operator: Option<PathBuf>,
) -> PyResult<Vec<BundleReport>> {
    let roster = self::roster(roster, operator)?.get().roster.clone();
    work::run(py, move |stop| verified(&paths, &roster, stop))
}

fn verified(
    paths: &[PathBuf],
    roster: &Arc<Roster>,
    stop: &Stop,
) -> Result<Vec<BundleReport>, Problem> {
    let mut bundles = BundleVerifier::new(roster);
    for path in paths {
        let file = File::open(path).map_err(|error| Problem::file(path, &error))?;
        let added = bundles.add(path, Stopping { file, stop });
        added.map_err(|error| Problem::of_bundle(&error, roster))?;
    }
    let (reports, faults) = bundles.finish();
    if let Some(fault) = faults.first() {
        return Err(Problem::of_bundle(fault, roster));
    }
    Ok(reports.into_iter().map(BundleReport::from).collect())
}

impl From<moteseal_client::bundles::BundleReport> for BundleReport {
    fn from(report: moteseal_client::bundles::BundleReport) -> Self {
        Self {
            name: report.name,
            id: report.device.to_string(),
            seals: report.seals,
            first_index: report.first_index.0,
            last_index: report.last_index.0,
            first_epoch: report.first_epoch.0,
            last_epoch: report.last_epoch.0,
            events: report.events,
            restarts: report.restarts,
        }
    }
}
