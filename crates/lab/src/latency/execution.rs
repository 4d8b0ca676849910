//! How results were measured: the command and the day.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The options whose values are paths of a machine, and what replaces the values.
const PATHS: [(&str, &str); 3] =
    [("--out", "DIRECTORY"), ("--moteseal", "FILE"), ("--engines", "FILE")];

/// An execution of `moteseal-lab` that measured something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// The command, without the paths of the machine.
    pub command: String,
    /// The day on which it ended, in UTC.
    pub date: String,
}

impl Execution {
    /// Describes an execution of `moteseal-lab` with these arguments that ends now.
    #[must_use]
    pub fn now(arguments: &[String]) -> Self {
        let now = Timestamp::now().to_string();
        let date = now.split_once('T').map_or(&*now, |(date, _)| date).to_owned();
        Self { command: command(arguments), date }
    }
}

fn command(arguments: &[String]) -> String {
    let mut command = "moteseal-lab".to_owned();
    let mut value = None;
    for argument in arguments {
        let name = argument.split_once('=').map_or(&**argument, |(name, _)| name);
        let path = PATHS.iter().find(|(option, _)| *option == name).map(|(_, path)| *path);
        command.push(' ');
        match (value.take(), path) {
            (Some(path), _) => command += path,
            (None, Some(path)) if name != argument => {
                command += name;
                command.push('=');
                command += path;
            }
            (None, path) => {
                command += argument;
                value = path;
            }
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_no_paths_of_the_machine() {
        let arguments = ["costs", "--out", "a/b", "--moteseal=c/d", "--repeat", "3"];
        assert_eq!(
            command(&arguments.map(str::to_owned)),
            "moteseal-lab costs --out DIRECTORY --moteseal=FILE --repeat 3"
        );
        let date = Execution::now(&[]).date;
        assert!(date.len() == 10 && date.starts_with('2'), "{date}");
    }
}
