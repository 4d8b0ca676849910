//! `moteseal cast`: authenticated broadcast (spec/cast.md).

mod verify;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Verify(verify::Arguments),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Verify(arguments) => verify::run(arguments),
    }
}
