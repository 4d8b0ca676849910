//! The options with which a cloud follows other clouds.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use moteseal_net::{Client, Credential, Login, Options, Retry, Token};

use crate::failure::Failure;

/// How long the followed cloud may send no data before the connection counts as broken.
const IDLE: Duration = Duration::from_secs(15);
/// The time for establishing a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// When a request is repeated for which the followed cloud was too busy. The follower itself waits
/// longer after that.
const RETRY: Retry = Retry {
    attempts: 4,
    first_wait: Duration::from_millis(500),
    longest_wait: Duration::from_secs(5),
};

/// The followed clouds, and the access to them.
#[derive(Args, Debug)]
pub(super) struct Follow {
    /// Fetch, verify and store what the cloud at this address has and this one does not; may be
    /// repeated
    #[arg(long = "follow", value_name = "URL", conflicts_with = "servers")]
    urls: Vec<String>,
    /// How often to ask the followed clouds for news, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "10",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    follow_every: u64,
    /// Certificate authorities (PEM) of the followed clouds, in addition to the system's
    #[arg(long, value_name = "FILE", requires = "urls")]
    follow_ca: Option<PathBuf>,
    /// A file with the bearer token for the followed clouds
    #[arg(long, value_name = "FILE", requires = "urls", conflicts_with = "follow_user")]
    follow_token: Option<PathBuf>,
    /// The user's name at the followed clouds
    #[arg(long, value_name = "NAME", requires_all = ["urls", "follow_password_file"])]
    follow_user: Option<String>,
    /// A file with the password of --follow-user
    #[arg(long, value_name = "FILE", requires = "follow_user")]
    follow_password_file: Option<PathBuf>,
}

impl Follow {
    /// Returns a client of each followed cloud.
    pub(super) fn clients(&self) -> Result<Vec<Client>, Failure> {
        let login = self.follow_user.as_deref().zip(self.follow_password_file.as_deref());
        let credential = match (&self.follow_token, login) {
            (Some(token), _) => Some(Credential::Token(Token::read(token)?)),
            (None, Some((user, password))) => Some(Credential::Login(Login::read(user, password)?)),
            (None, None) => None,
        };
        let options = Options {
            ca: self.follow_ca.clone(),
            credential,
            connect_timeout: CONNECT,
            idle_timeout: IDLE,
            retry: RETRY,
            ..Options::default()
        };
        self.urls.iter().map(|url| Client::new(url, &options).map_err(Failure::from)).collect()
    }

    pub(super) const fn every(&self) -> Duration {
        Duration::from_secs(self.follow_every)
    }
}
