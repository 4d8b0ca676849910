//! `moteseal time`: serves signed time to the motes of a group.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use moteseal_client::time_server::{TimeServer, time_members, unix_ms};
use moteseal_core::roster::Directory as _;
use moteseal_core::signed_time::TimeSigner;
use moteseal_net::ParentLink as _;
use moteseal_net::link::until_up;
use moteseal_net::mqtt::MqttParent;
use moteseal_service::stop_signal;
use tokio::sync::watch;
use tracing::info;

use crate::cloud::{Log, log, runtime};
use crate::config::{self, time_options};
use crate::failure::Failure;
use crate::files;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer the challenges of motes with the signed time of this machine's clock. `sum run` does
    /// the same while it runs.
    #[command(after_help = "Example, time.toml:\n  \
                            roster   = \"roster.cbor\"\n  \
                            operator = \"keys/op.pub.pem\"\n  \
                            key      = \"keys/op.key.pem\"\n  \
                            [link]\n  \
                            url      = \"mqtts://broker.example:8883\"\n\n\
                            `key` is the secret key of the operator, or of the querier of private sums. The motes' gateways\n\
                            reach the broker by [time] in serial.toml.\n\
                            Paths are relative to the file. SIGTERM or Ctrl-C stops it cleanly.")]
    Serve(Serve),
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The format of the log on stderr; RUST_LOG selects the level
    #[arg(long, value_enum, default_value = "text")]
    log: Log,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Serve(Serve { config: file, log: format }) = command;
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let (config, folder): (config::TimeServer, _) = config::load(file)?;
    let operator = folder.join(&config.operator);
    let roster =
        files::roster(&folder.join(&config.roster), &operator).map_err(in_key("roster"))?;
    let signer = files::secret_key(&folder.join(&config.key)).map_err(in_key("key"))?;
    let role = if files::public_key(&operator).map_err(in_key("operator"))? == signer.public() {
        TimeSigner::Operator
    } else {
        files::check_querier(&roster, &signer.public()).map_err(in_key("key"))?;
        TimeSigner::Querier
    };
    let options = time_options(&config.link, "link", file, &folder, &roster)?;
    let name = match role {
        TimeSigner::Operator => "operator",
        TimeSigner::Querier => "querier-serve",
    };
    log(*format);
    runtime()?.block_on(async {
        let members = time_members(&roster);
        let motes = members.len();
        let link = MqttParent::one_of_several(&options, members.iter().copied(), name)?;
        let server = TimeServer::new(roster.group(), role, &signer, &unix_ms);
        let (_sender, changes) = watch::channel(members);
        let started = async {
            until_up(link.state()).await?;
            info!(devices = motes, signer = name, "serving the time");
            // A closed stdout does not stop the service.
            let _ = writeln!(std::io::stdout(), "{}", options.url);
            std::future::pending::<Result<(), Failure>>().await
        };
        tokio::select! {
            failed = server.serve(&link, changes) => match failed? {},
            failed = started => failed,
            _ = stop_signal() => Ok(()),
        }
    })
}
