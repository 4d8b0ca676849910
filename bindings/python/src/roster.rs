//! The roster, verified with the operator's public key. Every verification relies on it.

use std::path::PathBuf;
use std::sync::Arc;

use moteseal_api::ErrorKind;
use moteseal_client::{input, known_devices};
use moteseal_core::record::{DeviceId, EpochNumber};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::failure::Problem;

/// A group's roster: its devices and its epochs. The operator's signature has been verified.
///
/// >>> roster = moteseal.Roster("roster.cbor", "keys/op.pub.pem")
/// >>> roster.devices
/// ['dev1', 'dev2']
#[pyclass(frozen, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Roster {
    pub(crate) roster: Arc<moteseal_verify::Roster>,
    /// The roster's file, for messages.
    pub(crate) path: PathBuf,
    /// The file with the operator's public key.
    pub(crate) operator: PathBuf,
}

#[pymethods]
impl Roster {
    #[new]
    pub(crate) fn new(py: Python<'_>, path: PathBuf, operator: PathBuf) -> PyResult<Self> {
        py.detach(|| Self::read(path, operator)).map_err(|problem| problem.raise(py))
    }

    /// The group's name.
    #[getter]
    fn group(&self) -> &str {
        self.roster.group_name()
    }

    /// The roster's version. Each version contains all earlier versions.
    #[getter]
    fn version(&self) -> u32 {
        self.roster.version()
    }

    /// The roster's digest, 64 hexadecimal digits.
    #[getter]
    fn digest(&self) -> String {
        self.roster.digest().to_string()
    }

    /// The length of an epoch in the newest period, in milliseconds.
    #[getter]
    fn epoch_ms(&self) -> u64 {
        self.roster.newest_period().epoch_ms
    }

    /// The maximum number of events that the group keeps per epoch in the newest period; None if it
    /// keeps all events.
    #[getter]
    fn budget(&self) -> Option<u64> {
        self.roster.newest_period().budget
    }

    /// The names of the devices.
    #[getter]
    fn devices(&self) -> Vec<String> {
        self.roster.devices().map(|device| device.name.clone()).collect()
    }

    /// The start of an epoch, in Unix milliseconds; None if it is 2^64 or more.
    fn epoch_start_ms(&self, epoch: u64) -> Option<u64> {
        self.roster.epoch_start_ms(EpochNumber(epoch))
    }

    /// The number of the epoch that contains a Unix time, in milliseconds.
    fn epoch_of(&self, unix_ms: u64) -> u64 {
        self.roster.epoch_of(unix_ms).0
    }

    fn __len__(&self) -> usize {
        self.roster.devices().len()
    }

    fn __repr__(&self) -> String {
        let devices = self.roster.devices().len();
        format!(
            "<moteseal.Roster of {:?}, version {}, {devices} devices>",
            self.roster.group_name(),
            self.roster.version()
        )
    }
}

impl Roster {
    fn read(path: PathBuf, operator: PathBuf) -> Result<Self, Problem> {
        let roster = input::roster(&path, &operator)?;
        Ok(Self { roster: Arc::new(roster), path, operator })
    }

    /// Returns the ids of the devices with these names; without names, of all devices in the
    /// roster.
    pub(crate) fn named(&self, names: Option<&[String]>) -> Result<Vec<DeviceId>, Problem> {
        let Some(names) = names else {
            return Ok(self.roster.devices().map(|device| device.id).collect());
        };
        names.iter().map(|name| self.roster.id(name).ok_or_else(|| self.unknown(name))).collect()
    }

    fn unknown(&self, name: &str) -> Problem {
        let known = known_devices(&self.roster);
        Problem::new(
            ErrorKind::Usage,
            "UnknownDevice",
            format_args!("{} has no device {name:?}; it has {known}", self.path.display()),
        )
    }
}

/// Converts a roster, or reads it from its path together with the operator's public key.
pub(crate) fn roster(roster: &Bound<'_, PyAny>, operator: Option<PathBuf>) -> PyResult<Py<Roster>> {
    let py = roster.py();
    if let Ok(given) = roster.cast::<Roster>() {
        return match operator {
            None => Ok(given.clone().unbind()),
            Some(_) => Err(PyTypeError::new_err(
                "operator: a moteseal.Roster is already verified; omit the operator's key",
            )),
        };
    }
    let Ok(path) = roster.extract::<PathBuf>() else {
        let kind = roster.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "roster: expected a path or a moteseal.Roster, got {kind}"
        )));
    };
    let operator = operator.ok_or_else(|| {
        PyTypeError::new_err(
            "operator: the roster is given as a path; also pass the path of the operator's public key",
        )
    })?;
    Py::new(py, Roster::new(py, path, operator)?)
}
