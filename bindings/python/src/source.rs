//! By whose word answers are judged: the roster that an operator signed, read from files.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moteseal_core::identity::decode_public_pem;
use moteseal_core::record::{DeviceId, EpochNumber};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::failure::{Kind, Problem};

/// No key or roster is larger: 16 MiB hold a hundred thousand devices.
const MAX_FILE: u64 = 16 << 20;

/// A group's roster: who belongs to it, and how its epochs run. Signed by the group's operator, and checked.
///
/// >>> roster = moteseal.Roster("roster.cbor", "keys/op.pub.pem")
/// >>> roster.devices
/// ['dev1', 'dev2']
#[pyclass(frozen, module = "moteseal")]
#[derive(Debug)]
pub(crate) struct Roster {
    pub(crate) roster: Arc<moteseal_verify::Roster>,
    /// Where it was read from: what messages call it.
    pub(crate) path: PathBuf,
    /// The operator's public key.
    pub(crate) operator: PathBuf,
}

#[pymethods]
impl Roster {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, operator: PathBuf) -> PyResult<Self> {
        py.detach(|| Self::read(path, operator)).map_err(|problem| problem.raise(py))
    }

    /// The group's name.
    #[getter]
    fn group(&self) -> &str {
        self.roster.group_name()
    }

    /// Its version: each later one knows the ones before it.
    #[getter]
    fn version(&self) -> u32 {
        self.roster.version()
    }

    /// Its digest, 64 hexadecimal digits.
    #[getter]
    fn digest(&self) -> String {
        self.roster.digest().to_string()
    }

    /// How long an epoch is, in milliseconds.
    #[getter]
    fn epoch_ms(&self) -> u64 {
        self.roster.epoch_ms()
    }

    /// The most events that the group keeps an epoch; None where everything is kept.
    #[getter]
    fn budget(&self) -> Option<u64> {
        self.roster.budget()
    }

    /// The names of the devices.
    #[getter]
    fn devices(&self) -> Vec<String> {
        self.roster.devices().map(|device| device.name.clone()).collect()
    }

    /// When an epoch starts, in Unix milliseconds; None past 2^64.
    fn epoch_start_ms(&self, epoch: u64) -> Option<u64> {
        self.roster.epoch_start_ms(EpochNumber(epoch))
    }

    /// The epoch that a Unix time in milliseconds lies in.
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
        let key = decode_public_pem(&read(&operator)?).map_err(|error| {
            Problem::named(
                Kind::Usage,
                "BadFile",
                format_args!(
                    "{}: {}; a public key file is a PEM like op.pub.pem",
                    operator.display(),
                    error.named()
                ),
            )
        })?;
        let bytes = read(&path)?;
        let roster = moteseal_verify::Roster::open(&bytes, &key).map_err(|error| {
            // A COSE_Sign1, tagged (spec/formats.md, section 2.2): anything else is some other file.
            if bytes.starts_with(&[0xd2, 0x84]) {
                Problem::new(
                    Kind::Refused,
                    error.name(),
                    format_args!("{error} (operator {})", operator.display()),
                )
                .in_file(&path)
            } else {
                Problem::new(
                    Kind::Usage,
                    "BadFile",
                    format_args!(
                        "{} is not a roster; `moteseal roster new` makes one",
                        path.display()
                    ),
                )
            }
        })?;
        Ok(Self { roster: Arc::new(roster), path, operator })
    }

    /// The devices of these names; every one of the roster where none is named.
    pub(crate) fn named(&self, names: Option<&[String]>) -> Result<Vec<DeviceId>, Problem> {
        let Some(names) = names else {
            return Ok(self.roster.devices().map(|device| device.id).collect());
        };
        names.iter().map(|name| self.roster.id(name).ok_or_else(|| self.unknown(name))).collect()
    }

    fn unknown(&self, name: &str) -> Problem {
        let mut names = self.devices();
        names.sort_unstable();
        let more = names.len().saturating_sub(8);
        names.truncate(8);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Problem::new(
            Kind::Usage,
            "UnknownDevice",
            format_args!(
                "{} has no device {name:?}; it has {}{more}",
                self.path.display(),
                names.join(", ")
            ),
        )
    }
}

/// A roster, or the path of one together with the operator's public key.
pub(crate) fn roster(roster: &Bound<'_, PyAny>, operator: Option<PathBuf>) -> PyResult<Py<Roster>> {
    let py = roster.py();
    if let Ok(given) = roster.cast::<Roster>() {
        return match operator {
            None => Ok(given.clone().unbind()),
            Some(_) => Err(PyTypeError::new_err(
                "operator: a Roster has been checked already; give the operator's key to it",
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
            "operator: the path of the operator's public key belongs to a roster's",
        )
    })?;
    Py::new(py, Roster::new(py, path, operator)?)
}

/// Reads a small file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let fail = |error: std::io::Error| Problem::file(path, &error);
    let mut bytes = Vec::new();
    File::open(path).map_err(fail)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(fail)?;
    match bytes.len() as u64 {
        0 => Err(Problem::new(Kind::Usage, "BadFile", format_args!("{} is empty", path.display()))),
        1..=MAX_FILE => Ok(bytes),
        _ => Err(Problem::new(
            Kind::Usage,
            "BadFile",
            format_args!(
                "{} is larger than {MAX_FILE} bytes; is it the right file?",
                path.display()
            ),
        )),
    }
}
