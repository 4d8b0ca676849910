//! `moteseal broadcast`: sends, receives and verifies authenticated broadcasts (spec/broadcast.md).

mod certificates;
mod link;
mod receivers;
mod send;
mod verify;
pub(crate) mod watch;

use clap::Subcommand;

pub(crate) use certificates::describe as describe_revoked;
pub(crate) use receivers::key as receiver_key;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Send(Box<send::Arguments>),
    Watch(Box<watch::Arguments>),
    Verify(verify::Arguments),
    Receivers(receivers::Arguments),
    Certificates(certificates::Arguments),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Send(arguments) => send::run(arguments),
        Command::Watch(arguments) => watch::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Receivers(arguments) => receivers::run(arguments),
        Command::Certificates(arguments) => certificates::run(arguments),
    }
}
