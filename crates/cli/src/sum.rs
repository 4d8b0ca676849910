//! `moteseal sum`: queries exact sums over encrypted readings. Gateways add the readings up, but
//! can neither read them nor alter them undetected.

mod list;
mod policy;
mod run;
mod setup;
mod stop;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Setup(setup::Arguments),
    /// Sign or show the policy that states which queries the devices answer.
    #[command(subcommand)]
    Policy(policy::Command),
    Run(Box<run::Arguments>),
    List(list::Arguments),
    Stop(stop::Arguments),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Setup(arguments) => setup::run(arguments),
        Command::Policy(command) => policy::run(command),
        Command::Run(arguments) => run::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Stop(arguments) => stop::run(arguments),
    }
}
