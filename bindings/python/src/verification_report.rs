//! The report about a verified response, device by device, for Python.

use std::sync::Arc;

use moteseal_client::Standing;
use pyo3::prelude::*;

use crate::failure::Problem;

/// The result of verifying a response: counts of rows, events, seals and signatures. `to_dict()`
/// gives the same object as `moteseal get --json`.
#[pyclass(frozen, module = "moteseal")]
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) report: Arc<moteseal_client::Report>,
}

/// The result of verifying one device's part of a response.
#[pyclass(frozen, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct DeviceReport {
    report: Arc<moteseal_client::Report>,
    at: usize,
}

/// A restart of a device. The device may have lost readings that it had not sealed before the
/// restart.
#[pyclass(frozen, get_all, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Outage {
    /// The epoch of the last seal before the restart; None if there is none.
    from_epoch: Option<u64>,
    /// The epoch of the first seal after the restart.
    to_epoch: u64,
    /// The index of the first seal after the restart.
    index: u32,
}

#[pymethods]
impl Outage {
    fn __repr__(&self) -> String {
        let Self { from_epoch, to_epoch, index } = self;
        let from = from_epoch.map_or_else(|| "None".to_owned(), |from| from.to_string());
        format!("Outage(from_epoch={from}, to_epoch={to_epoch}, index={index})")
    }
}

#[pymethods]
impl Report {
    /// True if the data of every device is complete over the requested range.
    #[getter]
    fn complete(&self) -> bool {
        self.report.is_complete()
    }

    /// True if this is a report about a proof whose query names readings. The maker of the proof chose
    /// them, so it is never complete.
    #[getter]
    fn named(&self) -> bool {
        self.report.is_named()
    }

    /// A report for each device, in the order of the query.
    #[getter]
    fn devices(&self) -> Vec<DeviceReport> {
        (0..self.report.devices.len())
            .map(|at| DeviceReport { report: self.report.clone(), at })
            .collect()
    }

    /// The number of verified rows.
    #[getter]
    fn rows(&self) -> u64 {
        self.report.rows()
    }

    /// The number of events that the seals state.
    #[getter]
    fn events(&self) -> u64 {
        self.report.events()
    }

    /// The number of verified seals.
    #[getter]
    fn seals(&self) -> u64 {
        self.report.seals()
    }

    /// The number of verified signatures.
    #[getter]
    fn signatures(&self) -> u64 {
        self.report.signatures
    }

    /// The size of the response, in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.report.bytes
    }

    /// The maximum number of events that the group keeps per epoch; None if it keeps all events.
    #[getter]
    fn budget(&self) -> Option<u64> {
        self.report.budget
    }

    /// For a group with a budget: the epochs whose manifest is in the response, each with its final
    /// sampling round.
    #[getter]
    fn rounds(&self) -> Vec<(u64, u8)> {
        self.report.rounds.iter().map(|(epoch, round)| (epoch.0, round.0)).collect()
    }

    /// The version of the roster that the cloud states, if it is not the client's; otherwise None. The
    /// statement is not verified. If it is a later version, get it from the operator.
    #[getter]
    fn cloud_roster(&self) -> Option<u32> {
        self.report.cloud_roster.map(|versions| versions.cloud)
    }

    /// Returns the report as a dict, the same object that `moteseal get --json` prints.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &self.report.to_json().to_string())
    }

    fn __repr__(&self) -> String {
        let Self { report } = self;
        let complete = if report.is_complete() { "complete" } else { "incomplete" };
        format!(
            "<moteseal.Report: {} of {} events, {} devices, {complete}>",
            report.rows(),
            report.events(),
            report.devices.len()
        )
    }
}

/// Parses JSON to Python's dicts, lists, strings and numbers.
pub(crate) fn loads<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

impl DeviceReport {
    fn device(&self) -> &moteseal_client::DeviceReport {
        &self.report.devices[self.at]
    }
}

#[pymethods]
impl DeviceReport {
    /// The device's name in the roster.
    #[getter]
    fn name(&self) -> &str {
        &self.device().name
    }

    /// The device's id, 16 hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.device().device.to_string()
    }

    /// The first epoch of the requested range.
    #[getter]
    fn since(&self) -> u64 {
        self.device().since.0
    }

    /// The epoch that follows the requested range; None if the range has no end.
    #[getter]
    fn until(&self) -> Option<u64> {
        self.device().until.map(|until| until.0)
    }

    /// True if the device's data is complete over the requested range. If the range has no end: up
    /// to the newest seal.
    #[getter]
    fn complete(&self) -> bool {
        self.device().is_complete()
    }

    /// "Complete", "TailUnknown" (no seal shows what the device sealed from `complete_until` on),
    /// "ManifestMissing", or "Redacted" (a redactor chose what the proof shows).
    #[getter]
    fn standing(&self) -> &'static str {
        match self.device().standing {
            Standing::Complete => "Complete",
            Standing::TailUnknown { .. } => "TailUnknown",
            Standing::ManifestMissing { .. } => "ManifestMissing",
            Standing::Redacted => "Redacted",
        }
    }

    /// The data before this epoch is complete; None if all requested data is complete.
    #[getter]
    fn complete_until(&self) -> Option<u64> {
        Some(self.device().complete_until().0).filter(|until| *until != u64::MAX)
    }

    /// The number of verified seals of the range.
    #[getter]
    fn seals(&self) -> u64 {
        self.device().seals
    }

    /// The number of different epochs of these seals.
    #[getter]
    fn epochs(&self) -> u64 {
        self.device().epochs
    }

    /// The number of events that these seals state.
    #[getter]
    fn events(&self) -> u64 {
        self.device().events
    }

    /// The number of verified rows.
    #[getter]
    fn rows(&self) -> u64 {
        self.device().rows
    }

    /// The number of events that the device reports as lost.
    #[getter]
    fn lost(&self) -> u64 {
        self.device().lost
    }

    /// The number of seals that arrived after the coordinator had closed their epoch.
    #[getter]
    fn late(&self) -> u64 {
        self.device().late
    }

    /// The restarts that the device reports; at most the first 256.
    #[getter]
    fn outages(&self) -> Vec<Outage> {
        let outages = self.device().outages.iter();
        outages
            .map(|outage| Outage {
                from_epoch: outage.from.map(|from| from.0),
                to_epoch: outage.to.0,
                index: outage.index.0,
            })
            .collect()
    }

    /// In the report of a proof: the index and epoch of a pinned seal in the range that is newer
    /// than the proof's seals; otherwise None.
    #[getter]
    fn newer(&self) -> Option<(u32, u64)> {
        self.device().newer.map(|(index, epoch)| (index.0, epoch.0))
    }

    fn __repr__(&self) -> String {
        let device = self.device();
        format!(
            "<moteseal.DeviceReport {:?}: {} of {} events, {}>",
            device.name,
            device.rows,
            device.events,
            self.standing()
        )
    }
}

/// Returns the error of the first device whose data is incomplete over the requested range, if
/// there is one.
pub(crate) fn incomplete(
    report: &moteseal_client::Report,
    roster: &moteseal_verify::Roster,
) -> Option<Problem> {
    let error = report.require_complete(roster).err()?;
    Some(Problem::of_incomplete(&error, roster))
}
