//! Opens broadcast links from the arguments of a command.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use moteseal_net::Broadcast;
use moteseal_net::mqtt::{Identity, Login, Options, Password};

use crate::failure::{Exit, Failure};

/// How long to wait until a broker accepts the login.
const PATIENCE: Duration = Duration::from_secs(15);

/// The arguments for the login to a broker.
#[derive(Args, Debug)]
pub(crate) struct Access {
    /// For mqtts: a PEM file of certificate authorities to trust instead of the certificate
    /// authorities of the platform
    #[arg(long, value_name = "FILE")]
    broker_ca: Option<PathBuf>,
    /// The user name for the broker
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// A file with the user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// A PEM file with the client certificate, for a broker that requests one
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_certificate: Option<PathBuf>,
    /// A PEM file with the secret key of --client-certificate
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,
}

impl Access {
    fn options(&self) -> Result<Options, Failure> {
        let login = match (&self.user, &self.password_file) {
            (Some(user), Some(file)) => {
                let password = Password::read(file)?;
                Some(Login { user: user.clone(), password })
            }
            _ => None,
        };
        let identity = match (&self.client_certificate, &self.client_key) {
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: certificate.clone(), key: key.clone() })
            }
            _ => None,
        };
        Ok(Options { ca: self.broker_ca.clone(), login, identity, ..Options::new("", "") })
    }

    /// Opens a link. Call this within an async runtime.
    pub(crate) fn open(&self, url: &str) -> Result<Broadcast, Failure> {
        Broadcast::open(url, self.options()?).map_err(Failure::from)
    }
}

/// Waits until a link is up.
pub(crate) async fn until_up(link: &Broadcast, url: &str) -> Result<(), Failure> {
    match tokio::time::timeout(PATIENCE, link.until_up()).await {
        Ok(up) => up.map_err(Failure::from),
        Err(_) => {
            let message = format_args!(
                "Unreachable: {url}: no broker responds; check that it is running and that the address is right"
            );
            Err(Failure::new(Exit::Unreachable, message))
        }
    }
}
