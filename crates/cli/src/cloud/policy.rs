//! `moteseal cloud policy`: who may do what in a cloud of several processes. One file names the processes and
//! tokens; `init` writes their credentials, `apply` makes running servers follow, and `check` tries everything.

mod apply;
mod check;
mod config;
mod folder;
mod merge;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::failure::Failure;
use crate::terminal::report_lines;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write the credentials of all processes and tokens, and what the servers need to know about them.
    #[command(after_help = "Example:\n  \
                            moteseal cloud policy init policy.toml --out policy\n\n\
                            The folder has secrets: keep it offline and backed up. Running it again adds what is missing,\n\
                            keeps what exists, and revokes what the file does not name any more; `apply` makes running servers\n\
                            follow.\n\
                            docs/scale.md describes the file and the folder.")]
    Init(Init),
    /// Pass the account and the roles to the running NATS servers and Cassandra. Revocations take effect.
    #[command(after_help = "Example:\n  \
                            moteseal cloud policy apply policy.toml --from policy\n\n\
                            If the section [table] names a superuser, MOTESEAL_CASSANDRA_PASSWORD has its password, or\n\
                            MOTESEAL_CASSANDRA_PASSWORD_FILE names its file. A cloud reads the file of tokens by itself.\n\
                            What the servers have revoked and the folder lacks, as after a restore from a backup, stays revoked\n\
                            and is added to the folder.")]
    Apply(Applied),
    /// Try at the running servers who can do what, and compare it with the policy. Nothing is changed.
    #[command(after_help = "Example:\n  \
                            moteseal cloud policy check policy.toml --from policy\n\n\
                            Exit codes: 0 everything is as the policy states, 4 something could not be tried, 5 something\n\
                            differs.")]
    Check(Applied),
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// The policy (TOML)
    policy: PathBuf,
    /// The folder to write to; it is created if it does not exist
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Make new secrets for this process or token, and revoke the old ones; may be repeated
    #[arg(long, value_name = "NAME")]
    renew: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Applied {
    /// The policy (TOML)
    policy: PathBuf,
    /// The folder that `init` has written
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Init(Init { policy, out, renew }) => {
            let policy = config::load(policy)?;
            let done = folder::init(&policy, out, renew)?;
            let lines = [("created", &done.created), ("changed", &done.changed)]
                .into_iter()
                .flat_map(|(what, files)| files.iter().map(move |file| format!("{what} {file}")))
                .chain(done.revoked.iter().map(|name| format!("revoked {name}")))
                .chain(done.next_step().map(str::to_owned));
            report_lines(
                lines,
                || json!({ "created": done.created, "changed": done.changed, "revoked": done.revoked }),
            )
        }
        Command::Apply(Applied { policy, from }) => apply::run(&config::load(policy)?, from),
        Command::Check(Applied { policy, from }) => check::run(&config::load(policy)?, from),
    }
}
