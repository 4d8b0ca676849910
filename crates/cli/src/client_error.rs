//! Turns errors of the client library into failures of a command. The kind of the error determines
//! the exit code, and the message starts with the error's name.

use moteseal_client::output::OutputError;
use moteseal_client::{Error, InputError, Rejection, start_text};
use moteseal_verify::Roster;

use crate::device_name::with_name;
use crate::failure::Failure;

/// Returns the failure for an error of a query. The message contains the device's name instead of
/// its id, and the start of an epoch without a column instead of the epoch's number.
pub(crate) fn failure(roster: &Roster, error: &Error) -> Failure {
    let text = error.to_string();
    let device = match error {
        Error::Rejected(rejected) => rejected.device(),
        Error::Bundle(fault) => fault.device(),
        _ => None,
    };
    let text = device.map_or_else(|| text.clone(), |device| with_name(roster, device, &text));
    let text = match error {
        Error::Rejected(rejected) => match rejected.rejection {
            Rejection::UnknownColumn { epoch, .. } => {
                let start = format!(" ({})", start_text(roster, epoch));
                text.replace(&format!(", of epoch {epoch},"), &start) + " (--since)"
            }
            _ => text,
        },
        _ => text,
    };
    let failure = Failure::new(error.kind().into(), text);
    match error {
        Error::Output(error) if error.name() == "OutputFailed" => failure,
        error => failure.with_name(error.name()),
    }
}

/// Returns the failure for a file or value that cannot be used.
pub(crate) fn input(error: &InputError) -> Failure {
    let mut failure = Failure::new(error.kind().into(), error.sentence());
    if !error.is_general() {
        failure = failure.with_name(error.name());
    }
    if error.place().is_empty() { failure } else { failure.of(error.place().join(": ")) }
}

/// Returns the failure for rows that could not be written.
pub(crate) fn output(error: OutputError) -> Failure {
    Failure::new(error.kind().into(), error)
}
