//! Converts errors to Python exceptions. The kind of an error determines the exception's class, and
//! `error.name` is the error's stable name (`spec/errors.md`). The Python module `moteseal.errors`
//! defines the classes.

use std::fmt;
use std::path::Path;

use moteseal_api::ErrorKind;
use moteseal_client::bundles::BundleError;
use moteseal_client::output::OutputError;
use moteseal_client::{Error, Incomplete, InputError, Lack};
use moteseal_core::record::DeviceId;
use moteseal_net::NetError;
use moteseal_verify::Roster;
use pyo3::prelude::*;
use pyo3::types::PyDict;

pub(crate) use moteseal_client::bundles::device_name as name;

/// An error before it is raised in Python.
#[derive(Debug)]
pub(crate) struct Problem(Box<Fields>);

/// The attributes of the exception.
#[derive(Debug)]
struct Fields {
    kind: ErrorKind,
    name: String,
    message: String,
    /// The device's name, or its id if the roster has no name for it.
    device: Option<String>,
    index: Option<u64>,
    epoch: Option<u64>,
    /// The name of the error for which the whole response was rejected at first, if the cloud's
    /// explaining form then located the fault.
    refusal: Option<String>,
    url: Option<String>,
}

impl Problem {
    /// Creates an error with the message `Name: sentence`.
    pub(crate) fn new(kind: ErrorKind, name: &str, sentence: impl fmt::Display) -> Self {
        Self(Box::new(Fields {
            kind,
            name: name.to_owned(),
            message: format!("{name}: {sentence}"),
            device: None,
            index: None,
            epoch: None,
            refusal: None,
            url: None,
        }))
    }

    /// Creates an error of this machine, for example of a file or a thread.
    pub(crate) fn system(what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Internal, "Failed", what)
    }

    /// Creates the error for a file that cannot be read.
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        let kind = if error.kind() == std::io::ErrorKind::NotFound {
            ErrorKind::Usage
        } else {
            ErrorKind::Internal
        };
        Self::new(kind, "BadFile", format_args!("cannot read {}: {error}", path.display()))
    }

    /// Creates the error of work that was interrupted. The caller raises the signal's own exception
    /// instead.
    pub(crate) fn stopped() -> Self {
        Self::system("interrupted")
    }

    /// Converts an error of the client library. Its message has the device's name instead of the
    /// id.
    pub(crate) fn of(error: &Error, roster: &Roster) -> Self {
        let mut problem = Self::new(error.kind(), error.name(), error);
        match error {
            Error::Rejected(rejected) => {
                if rejected.finding.is_some() {
                    problem.0.refusal = Some(rejected.rejection.name().to_owned());
                }
                let (index, epoch) = (rejected.index(), rejected.epoch());
                problem
                    .at(index.map(|index| index.0.into()), epoch.map(|epoch| epoch.0))
                    .about(rejected.device(), roster)
            }
            Error::Net(error) => {
                problem.0.url = url(error).map(str::to_owned);
                problem
            }
            _ => problem,
        }
    }

    /// Converts an error about an address, a token or a certificate that cannot be used.
    pub(crate) fn net(error: &NetError) -> Self {
        let mut problem = Self::new(ErrorKind::Usage, error.name(), error);
        problem.0.url = url(error).map(str::to_owned);
        problem
    }

    /// Converts the error of a bundle that is rejected or cannot be read.
    pub(crate) fn of_bundle(error: &BundleError, roster: &Roster) -> Self {
        let fault = &error.fault;
        let (index, epoch) = (fault.index(), fault.epoch());
        Self::new(fault.kind(), fault.name(), fault)
            .about(fault.device(), roster)
            .at(index.map(|index| index.0.into()), epoch.map(|epoch| epoch.0))
            .in_file(&error.path)
    }

    /// Sets the device, and replaces its id in the message by its name.
    pub(crate) fn about(mut self, device: Option<DeviceId>, roster: &Roster) -> Self {
        if let Some(id) = device {
            let name = name(roster, id);
            self.0.message = self.0.message.replace(&id.to_string(), &name);
            self.0.device = Some(name);
        }
        self
    }

    /// Sets the seal's index and the epoch.
    pub(crate) fn at(mut self, index: Option<u64>, epoch: Option<u64>) -> Self {
        (self.0.index, self.0.epoch) = (index, epoch);
        self
    }

    /// Puts the file's path before the message.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        self.at_place(path.display())
    }

    /// Puts a place before the message: a file, or a key of a configuration.
    fn at_place(mut self, place: impl fmt::Display) -> Self {
        self.0.message = format!("{place}: {}", self.0.message);
        self
    }

    /// Converts the error to its exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        self.exception(py).unwrap_or_else(|error| error)
    }

    fn exception(self, py: Python<'_>) -> PyResult<PyErr> {
        let Fields { kind, name, message, device, index, epoch, refusal, url } = *self.0;
        let about = PyDict::new(py);
        about.set_item("device", device)?;
        about.set_item("index", index)?;
        about.set_item("epoch", epoch)?;
        about.set_item("refusal", refusal)?;
        about.set_item("url", url)?;
        let make = py.import("moteseal.errors")?.getattr("_of")?;
        Ok(PyErr::from_value(make.call((kind.as_str(), name, message), Some(&about))?))
    }
}

impl From<OutputError> for Problem {
    fn from(error: OutputError) -> Self {
        Self::new(error.kind(), error.name(), error)
    }
}

impl From<InputError> for Problem {
    fn from(error: InputError) -> Self {
        let problem = Self::new(error.kind(), error.name(), error.sentence());
        error.place().iter().rev().fold(problem, Self::at_place)
    }
}

impl Problem {
    /// Converts the error of a device whose data is incomplete over the requested range.
    pub(crate) fn of_incomplete(error: &Incomplete, roster: &Roster) -> Self {
        let until =
            if error.can_end { format!(" (until={:?})", error.time) } else { String::new() };
        let hint = if error.lack == Lack::Manifest {
            String::new()
        } else {
            format!("{until}; or allow it with allow_incomplete=True")
        };
        Self::new(error.kind(), error.name(), format_args!("{error}{hint}"))
            .about(Some(error.device), roster)
            .at(None, Some(error.from.0))
    }
}

fn url(error: &NetError) -> Option<&str> {
    match error {
        NetError::BadAddress { url, .. }
        | NetError::TokenInClear { url }
        | NetError::PasswordInClear { url }
        | NetError::Unreachable { url, .. }
        | NetError::Interrupted { url, .. }
        | NetError::Busy { url, .. }
        | NetError::Refused { url, .. }
        | NetError::NotACloud { url, .. } => Some(url),
        _ => None,
    }
}
