//! `moteseal push`: pushes bundles to a cloud.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use moteseal_client::input::LinkSecret;
use moteseal_device::push::{Conflict, Push};
use moteseal_net::{Client, Credential, DeviceKey, Identity, Login, Options, Token};
use serde_json::json;

use crate::client_error;
use crate::cloud::runtime;
use crate::failure::{Exit, Failure};
use crate::progress::{bar, bytes, count, thousands};
use crate::terminal::{Stdout, diagnostic, is_json};

/// How long to wait for the cloud to respond, in case it was started at the same time as this
/// command.
const PATIENCE: Duration = Duration::from_secs(2);

/// Push the bundles of a directory to a cloud, in the order of their chains.
///
/// If the command is interrupted, run it again. It continues where it stopped.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  moteseal push bundles/ --to http://127.0.0.1:8080\n\n\
                        The bundles stay in the directory. Exit codes: 0 the cloud has all of them, 3 it refused one,\n\
                        5 a device has signed two different seals with one index, 6 the cloud does not respond.")]
pub(crate) struct Arguments {
    /// A directory of bundles, or a single bundle
    bundles: PathBuf,
    /// The cloud's address: https://.., http://.., coaps://.. or coap://..
    #[arg(long, value_name = "URL")]
    to: String,
    #[command(flatten)]
    access: Access,
}

/// The arguments for access to a cloud.
#[derive(Args, Debug)]
pub(crate) struct Access {
    /// A file with the bearer token for the cloud
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    token: Option<PathBuf>,
    /// The user's name at the cloud
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// A file with the password of --user
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// A client certificate for the cloud (PEM)
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The private key of --client-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// The link secret of a device, with which it authenticates to a cloud at coaps://
    #[arg(long, value_name = "FILE")]
    link_secret: Option<PathBuf>,
    /// Certificate authorities (PEM) to trust in addition to the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Access {
    /// Returns a client of the cloud at `url`.
    pub(crate) fn client(&self, url: &str) -> Result<Client, Failure> {
        self.client_after(url, None)
    }

    /// Returns a client that reads what was acknowledged up to a position.
    pub(crate) fn client_after(&self, url: &str, after: Option<u64>) -> Result<Client, Failure> {
        let credential =
            match (&self.token, self.user.as_deref().zip(self.password_file.as_deref())) {
                (Some(token), _) => Some(Credential::Token(Token::read(token)?)),
                (None, Some((user, password))) => {
                    Some(Credential::Login(Login::read(user, password)?))
                }
                (None, None) => None,
            };
        let identity = self.client_cert.as_ref().zip(self.client_key.as_ref());
        let identity = identity.map(|(certificate, key)| Identity {
            certificate: certificate.clone(),
            key: key.clone(),
        });
        let device_key = self.link_secret.as_ref().map(|path| LinkSecret::of_child(path));
        let device_key = device_key.transpose().map_err(|error| client_error::input(&error))?;
        let device_key = device_key
            .map(|(device, secret)| DeviceKey { device: device.0, secret: secret.into_bytes() });
        let options = Options {
            ca: self.ca.clone(),
            credential,
            identity,
            device_key,
            patience: PATIENCE,
            after,
            ..Options::default()
        };
        Client::new(url, &options).map_err(Failure::from)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let cloud = arguments.access.client(&arguments.to)?;
    let push = Push::open(&arguments.bundles)?;
    let progress = bar(push.len() as u64, "pushing");
    let pushed = runtime()?.block_on(push.to(&cloud, &mut |done| progress.set_position(done)));
    progress.finish_and_clear();
    let pushed = pushed?;
    let queued = match pushed.queued {
        0 => String::new(),
        queued => format!(
            ", {} queued for the workers{}",
            thousands(queued),
            pushed.position.map_or_else(String::new, |at| format!(" up to position {at}"))
        ),
    };
    diagnostic(format_args!(
        "{}: {} stored, {} already there{queued}; {} in {}",
        arguments.to,
        count(pushed.stored, "bundle"),
        thousands(pushed.known),
        bytes(pushed.bytes),
        count(pushed.requests, "request")
    ));
    if is_json() {
        let object = json!({
            "stored": pushed.stored,
            "known": pushed.known,
            "queued": pushed.queued,
            "position": pushed.position,
            "bytes": pushed.bytes,
            "requests": pushed.requests,
            "conflicts": pushed.conflicts.iter().map(|conflict| json!({
                "device": conflict.device.to_string(),
                "index": conflict.index.0,
                "digests": conflict.digests,
                "file": conflict.path.display().to_string(),
            })).collect::<Vec<_>>(),
        });
        Stdout::lock().line(object)?;
    }
    equivocation(&pushed.conflicts)
}

/// Returns an audit finding for the first device that signed different seals under one index, if
/// there is one.
pub(crate) fn equivocation(conflicts: &[Conflict]) -> Result<(), Failure> {
    let Some(first) = conflicts.first() else { return Ok(()) };
    let more = if conflicts.len() > 1 {
        format!(" (and {} indices more)", conflicts.len() - 1)
    } else {
        String::new()
    };
    let message = format_args!(
        "{first}{more}; its chain was started twice, or somebody else has its key: find out which, and revoke the key"
    );
    Err(Failure::new(Exit::Finding, message).with_name("Equivocation"))
}
