//! The report about a verified response, device by device, for Python.

use std::sync::Arc;

use moteseal_client::Standing;
use pyo3::prelude::*;

use crate::failure::Problem;

/// The numbers of a verified response. `to_dict()` gives the same object as `moteseal get --json`.
#[pyclass(frozen, module = "moteseal")]
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) report: Arc<moteseal_client::Report>,
}

/// The numbers of one device.
#[pyclass(frozen, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct DeviceReport {
    report: Arc<moteseal_client::Report>,
    at: usize,
}

/// A restart of a device: readings before it may not have been sealed.
#[pyclass(frozen, get_all, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Outage {
    /// The epoch of the last seal before; None before the first seal.
    from_epoch: Option<u64>,
    /// The epoch of the first seal after.
    to_epoch: u64,
    /// The index of that seal.
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
    /// Whether every device is as complete as it was asked for.
    #[getter]
    fn complete(&self) -> bool {
        self.report.is_complete()
    }

    /// The devices, by the order of the query.
    #[getter]
    fn devices(&self) -> Vec<DeviceReport> {
        (0..self.report.devices.len())
            .map(|at| DeviceReport { report: self.report.clone(), at })
            .collect()
    }

    /// Rows handed out.
    #[getter]
    fn rows(&self) -> u64 {
        self.report.rows()
    }

    /// Events that the seals count.
    #[getter]
    fn events(&self) -> u64 {
        self.report.events()
    }

    /// Seals that were judged.
    #[getter]
    fn seals(&self) -> u64 {
        self.report.seals()
    }

    /// Signatures that were checked.
    #[getter]
    fn signatures(&self) -> u64 {
        self.report.signatures
    }

    /// Bytes of the answer.
    #[getter]
    fn bytes(&self) -> u64 {
        self.report.bytes
    }

    /// The most events that the group may keep an epoch; None where everything is kept.
    #[getter]
    fn budget(&self) -> Option<u64> {
        self.report.budget
    }

    /// Of a group with a budget: each epoch whose manifest is there, with the round that it ended at.
    #[getter]
    fn rounds(&self) -> Vec<(u64, u8)> {
        self.report.rounds.iter().map(|(epoch, round)| (epoch.0, round.0)).collect()
    }

    /// The report as plain values.
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

/// Plain values from JSON.
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

    /// The first epoch that was asked for.
    #[getter]
    fn since(&self) -> u64 {
        self.device().since.0
    }

    /// The epoch behind the last; None where everything so far was asked for.
    #[getter]
    fn until(&self) -> Option<u64> {
        self.device().until.map(|until| until.0)
    }

    /// Whether everything is there that was asked for; without an end, everything up to the newest seal.
    #[getter]
    fn complete(&self) -> bool {
        self.device().is_complete()
    }

    /// "Complete", "TailUnknown" (nothing shows what was sealed from `complete_until` on) or "ManifestMissing".
    #[getter]
    fn standing(&self) -> &'static str {
        match self.device().standing {
            Standing::Complete => "Complete",
            Standing::TailUnknown { .. } => "TailUnknown",
            Standing::ManifestMissing { .. } => "ManifestMissing",
        }
    }

    /// The epoch before which nothing is missing; None where nothing at all is.
    #[getter]
    fn complete_until(&self) -> Option<u64> {
        Some(self.device().complete_until().0).filter(|until| *until != u64::MAX)
    }

    /// Seals of the range that were judged.
    #[getter]
    fn seals(&self) -> u64 {
        self.device().seals
    }

    /// Epochs of these.
    #[getter]
    fn epochs(&self) -> u64 {
        self.device().epochs
    }

    /// Events that those seals count.
    #[getter]
    fn events(&self) -> u64 {
        self.device().events
    }

    /// Rows handed out.
    #[getter]
    fn rows(&self) -> u64 {
        self.device().rows
    }

    /// Events that the device admits to have lost.
    #[getter]
    fn lost(&self) -> u64 {
        self.device().lost
    }

    /// Seals that came after the coordinator had closed their epoch.
    #[getter]
    fn late(&self) -> u64 {
        self.device().late
    }

    /// Where the device admits to have been off; the first 256 of them.
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

    /// Of a proof: index and epoch of a newer seal of the range that an earlier answer held.
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

/// The exception for a device that is less complete than was asked for, if there is one.
pub(crate) fn incomplete(
    report: &moteseal_client::Report,
    roster: &moteseal_verify::Roster,
) -> Option<Problem> {
    let error = report.require_complete(roster).err()?;
    Some(Problem::of_incomplete(&error, roster))
}
