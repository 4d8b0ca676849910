//! The errors of the client library as failures of a command: the kind decides the exit code, and
//! the line starts with the name of the error.

use std::fmt::Display;

use moteseal_client::output::OutputError;
use moteseal_client::{Error, InputError};
use moteseal_verify::Roster;

use crate::failure::Failure;
use crate::files;

/// `Name: sentence`, for an error whose sentence may already start with its name.
pub(crate) fn named(name: &str, sentence: &impl Display) -> String {
    let text = sentence.to_string();
    let is_named = text.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "));
    if is_named { text } else { format!("{name}: {text}") }
}

/// The reason why there are no verified rows, with the device's name instead of its id.
pub(crate) fn failure(roster: &Roster, error: &Error) -> Failure {
    let text = match error {
        Error::Output(error) => error.to_string(),
        error => named(error.name(), error),
    };
    let device = match error {
        Error::Rejected(rejected) => rejected.device(),
        _ => None,
    };
    let text =
        device.map_or_else(|| text.clone(), |device| files::with_name(roster, device, &text));
    Failure::new(error.kind().into(), text)
}

/// A file or value that cannot be used.
pub(crate) fn input(error: &InputError) -> Failure {
    Failure::new(error.kind().into(), error.line())
}

/// Rows that could not be written.
pub(crate) fn output(error: OutputError) -> Failure {
    Failure::new(error.kind().into(), error)
}
