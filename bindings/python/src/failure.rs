//! What goes wrong, as exceptions named as in Rust (spec/errors.md). The classes are Python's own, in `moteseal.errors`.

use std::fmt;
use std::path::Path;

use moteseal_client::output::OutputError;
use moteseal_client::{Failure, Refusal, Refused};
use moteseal_core::record::DeviceId;
use moteseal_net::NetError;
use moteseal_verify::{ReadErrorKind, Roster};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What a failure asks of the caller: the base class of its exception, and the exit code that the command line has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something on this machine.
    Failed,
    /// Another call would do.
    Usage,
    /// A proof or an answer does not hold.
    Refused,
    /// Something is withheld, not yet sealed, or not sampled.
    Incomplete,
    /// The cloud does not answer.
    Unreachable,
}

impl Kind {
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Usage => "UsageError",
            Self::Refused => "Refused",
            Self::Incomplete => "Incomplete",
            Self::Unreachable => "Unreachable",
        }
    }

    const fn of_exit_code(code: u8) -> Self {
        match code {
            1 => Self::Failed,
            2 => Self::Usage,
            4 => Self::Incomplete,
            6 => Self::Unreachable,
            _ => Self::Refused,
        }
    }
}

/// A failure on its way to Python.
#[derive(Debug)]
pub(crate) struct Problem(Box<Told>);

/// What is said of it.
#[derive(Debug)]
struct Told {
    kind: Kind,
    name: String,
    message: String,
    /// The device's name, or its id where the roster has no name for it.
    device: Option<String>,
    index: Option<u64>,
    epoch: Option<u64>,
    /// What the answer was refused for as a whole, where an explanation has named something more precise.
    refusal: Option<String>,
    url: Option<String>,
}

impl Problem {
    fn told(kind: Kind, name: String, message: String) -> Self {
        Self(Box::new(Told {
            kind,
            name,
            message,
            device: None,
            index: None,
            epoch: None,
            refusal: None,
            url: None,
        }))
    }

    /// A failure of this name. Its text starts with the name, as everywhere.
    pub(crate) fn new(kind: Kind, name: &str, text: impl fmt::Display) -> Self {
        Self::told(kind, name.to_owned(), format!("{name}: {text}"))
    }

    /// A failure whose text starts with its name already; `otherwise` is what it is called if not.
    pub(crate) fn named(kind: Kind, otherwise: &str, error: impl fmt::Display) -> Self {
        let message = error.to_string();
        let first = message.split_once(": ").map(|(first, _)| first);
        let is_name = |text: &&str| {
            text.starts_with(|c: char| c.is_ascii_uppercase())
                && text.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        let name = first.filter(is_name).unwrap_or(otherwise).to_owned();
        Self::told(kind, name, message)
    }

    /// Something on this machine that cannot be used: a file, or a thread.
    pub(crate) fn system(what: impl fmt::Display) -> Self {
        Self::new(Kind::Failed, "Failed", what)
    }

    /// A file that cannot be read.
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        let kind =
            if error.kind() == std::io::ErrorKind::NotFound { Kind::Usage } else { Kind::Failed };
        Self::new(kind, "BadFile", format_args!("cannot read {}: {error}", path.display()))
    }

    /// The caller has been interrupted, and hears of that by its own exception.
    pub(crate) fn stopped() -> Self {
        Self::new(Kind::Failed, "Failed", "interrupted")
    }

    /// What `moteseal-client` says, with devices by their names.
    pub(crate) fn of(failure: &Failure, roster: &Roster) -> Self {
        let kind = Kind::of_exit_code(failure.exit_code());
        match failure {
            Failure::Refused(refused) => Self::refused(kind, refused, roster),
            Failure::Net(error) => Self::of_net(kind, error),
            Failure::Output(error) => Self::of_output(error),
            _ => Self::named(kind, "Failed", failure),
        }
    }

    fn of_net(kind: Kind, error: &NetError) -> Self {
        let mut problem = Self::told(kind, error.name().to_owned(), error.to_string());
        problem.0.url = url(error).map(str::to_owned);
        problem
    }

    /// An address, a token or a certificate that cannot be used.
    pub(crate) fn net(error: &NetError) -> Self {
        Self::of_net(Kind::Usage, error)
    }

    pub(crate) fn of_output(error: &OutputError) -> Self {
        let (kind, otherwise) = if error.is_misuse() {
            (Kind::Usage, "UsageError")
        } else {
            (Kind::Failed, "OutputFailed")
        };
        Self::named(kind, otherwise, error)
    }

    fn refused(kind: Kind, refused: &Refused, roster: &Roster) -> Self {
        let Refused { refusal, finding } = refused;
        let problem = Self::told(kind, refused.name(), refused.to_string());
        let Some(finding) = finding else {
            let (index, epoch) = place(refusal);
            return problem.at(index, epoch).about(refusal.device(), roster);
        };
        let mut problem = problem
            .at(Some(finding.index.0.into()), Some(finding.epoch.0))
            .about(Some(finding.device), roster);
        problem.0.refusal = Some(refusal.name());
        problem
    }

    /// With the device's name, also in the text.
    pub(crate) fn about(mut self, device: Option<DeviceId>, roster: &Roster) -> Self {
        if let Some(id) = device {
            let name = name(roster, id);
            self.0.message = self.0.message.replace(&id.to_string(), &name);
            self.0.device = Some(name);
        }
        self
    }

    /// With the seal's index and the epoch that it is about.
    pub(crate) fn at(mut self, index: Option<u64>, epoch: Option<u64>) -> Self {
        (self.0.index, self.0.epoch) = (index, epoch);
        self
    }

    /// With the file's name before the text.
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        self.0.message = format!("{}: {}", path.display(), self.0.message);
        self
    }

    /// The exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        self.exception(py).unwrap_or_else(|error| error)
    }

    fn exception(self, py: Python<'_>) -> PyResult<PyErr> {
        let Told { kind, name, message, device, index, epoch, refusal, url } = *self.0;
        let about = PyDict::new(py);
        about.set_item("device", device)?;
        about.set_item("index", index)?;
        about.set_item("epoch", epoch)?;
        about.set_item("refusal", refusal)?;
        about.set_item("url", url)?;
        let make = py.import("moteseal.errors")?.getattr("_of")?;
        Ok(PyErr::from_value(make.call((kind.class(), name, message), Some(&about))?))
    }
}

/// A device's name, or its id where the roster has none for it.
pub(crate) fn name(roster: &Roster, device: DeviceId) -> String {
    roster.name(device).map_or_else(|| device.to_string(), str::to_owned)
}

fn url(error: &NetError) -> Option<&str> {
    match error {
        NetError::BadAddress { url, .. }
        | NetError::TokenInClear { url }
        | NetError::Unreachable { url, .. }
        | NetError::Interrupted { url, .. }
        | NetError::Busy { url, .. }
        | NetError::Refused { url, .. }
        | NetError::NotACloud { url, .. } => Some(url),
        _ => None,
    }
}

/// The seal's index and the epoch that a refusal is about.
fn place(refusal: &Refusal) -> (Option<u64>, Option<u64>) {
    match refusal {
        Refusal::Choice { index, .. } | Refusal::Equivocation { index, .. } => {
            (Some(index.0.into()), None)
        }
        Refusal::NotAsAsked { index, .. } => (index.map(|index| index.0.into()), None),
        Refusal::Missing { index, epoch, .. } => (Some(index.0.into()), epoch.map(|epoch| epoch.0)),
        Refusal::Epoch { epoch, .. }
        | Refusal::Unshown { epoch, .. }
        | Refusal::ManifestNotAsAsked { epoch }
        | Refusal::TwoManifests { epoch }
        | Refusal::EpochTooLarge { epoch, .. } => (None, Some(epoch.0)),
        Refusal::Read(error) => match (&error.kind, error.run) {
            (ReadErrorKind::Seal(_), Some((first, last))) if first == last => {
                (Some(first.0.into()), None)
            }
            _ => (None, None),
        },
        _ => (None, None),
    }
}
