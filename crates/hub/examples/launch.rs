//! A launcher of agents, for programs that embed the hub, and for tests. `moteseal hub agent-launch`
//! does the same.

use std::process::ExitCode;

use moteseal_hub::agents::launcher::{NOT_STARTED, launch};

fn main() -> ExitCode {
    let mut command: Vec<_> = std::env::args_os().collect();
    let plan = command.pop().unwrap_or_default();
    let Err(error) = launch(&plan.to_string_lossy(), &command);
    eprintln!("{}: {error}", error.name());
    ExitCode::from(NOT_STARTED)
}
