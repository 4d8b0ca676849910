//! The errors of the client library as failures of a command: the kind decides the exit code, and
//! the line starts with the name of the error.

use moteseal_api::NamedError as _;
use moteseal_client::output::OutputError;
use moteseal_client::{Error, InputError};
use moteseal_verify::Roster;

use crate::device_name::with_name;
use crate::failure::Failure;

/// The reason why there are no verified rows, with the device's name instead of its id.
pub(crate) fn failure(roster: &Roster, error: &Error) -> Failure {
    let text = match error {
        Error::Output(error) => error.to_string(),
        error => error.named().to_string(),
    };
    let device = match error {
        Error::Rejected(rejected) => rejected.device(),
        _ => None,
    };
    let text = device.map_or_else(|| text.clone(), |device| with_name(roster, device, &text));
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
