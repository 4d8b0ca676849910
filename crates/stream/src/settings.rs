//! The settings of a connection, of an intake and of a worker.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::StreamError;

/// The most characters of a stream's name.
const MAX_NAME: usize = 32;

/// What a process does with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Publishes batches.
    Intake,
    /// Takes batches and writes them to a store.
    Worker,
    /// Reads the store, and asks how far the workers are.
    Serve,
}

impl Role {
    /// Returns the role's name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Intake => "intake",
            Self::Worker => "worker",
            Self::Serve => "serve",
        }
    }
}

/// Whether a process checks that the servers sync each message before they acknowledge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncCheck {
    /// Read the monitoring endpoint (`http://HOST:8222`, or `https://` with [`Settings::ca`]) of each of these
    /// servers.
    Monitors(Vec<String>),
    /// Rely on the operator. For servers whose monitoring endpoints this process cannot reach.
    Unchecked,
}

/// The settings of a connection to a stream.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URLs of the servers: `nats://HOST:PORT`, or `tls://HOST:PORT`.
    pub servers: Vec<String>,
    /// The name of the stream, which is also the first token of its subjects.
    pub name: String,
    /// A credentials file with a JWT and the seed of its nkey.
    pub credentials: Option<PathBuf>,
    /// A file (PEM) with the authorities that sign the servers' certificates; `None` uses those of
    /// the system.
    pub ca: Option<PathBuf>,
    /// The prefix of the subjects at which this process receives answers. Permissions should name it, so
    /// that no other user can read the answers.
    pub inbox: String,
    /// The number of servers that store each message.
    pub replicas: usize,
    /// How to check that the servers sync.
    pub sync: SyncCheck,
    /// How long a request to the servers may take.
    pub request_time: Duration,
}

impl Settings {
    /// Returns the settings for these servers, with one replica and without credentials. The servers'
    /// syncing is not checked until [`Settings::sync`] names monitoring endpoints.
    #[must_use]
    pub fn new(servers: Vec<String>, role: Role) -> Self {
        Self {
            servers,
            name: "moteseal".to_owned(),
            credentials: None,
            ca: None,
            inbox: Self::inbox_of(role).to_owned(),
            replicas: 1,
            sync: SyncCheck::Monitors(Vec::new()),
            request_time: Duration::from_secs(5),
        }
    }

    /// Returns the prefix of the answers' subjects that a role uses by default.
    #[must_use]
    pub const fn inbox_of(role: Role) -> &'static str {
        match role {
            Role::Intake => "_INBOX.moteseal.intake",
            Role::Worker => "_INBOX.moteseal.worker",
            Role::Serve => "_INBOX.moteseal.serve",
        }
    }

    /// Returns the settings if they can be used.
    pub(crate) fn checked(self) -> Result<Self, StreamError> {
        let bad = |what: String| Err(StreamError::BadSetting(what));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.chars().all(is_name) {
            return bad(format!(
                "the stream's name {:?} is not usable; use 1 to {MAX_NAME} of the characters a-z, A-Z, \
                 0-9, - and _",
                self.name
            ));
        }
        if self.servers.is_empty() {
            return bad(
                "no NATS server is named; name at least one, as nats://HOST:PORT".to_owned()
            );
        }
        if let SyncCheck::Monitors(monitors) = &self.sync
            && let Some(monitor) = monitors.iter().find(|monitor| !is_http(monitor))
        {
            return bad(format!(
                "{} is not the URL of a monitoring endpoint; use https://HOST:8222 or http://HOST:8222",
                monitor.rsplit_once('@').map_or(&**monitor, |(_, host)| host)
            ));
        }
        if !matches!(self.replicas, 1 | 3 | 5) {
            return bad(format!("{} replicas are not possible; use 1, 3 or 5", self.replicas));
        }
        Ok(self)
    }
}

fn is_http(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme))
}

/// What an intake may have in memory. Beyond these limits it rejects batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntakeLimits {
    /// The number of batches that are not acknowledged yet, or that were rejected because no acknowledgement
    /// arrived in time and are still in the queue of the connection.
    pub batches: usize,
    /// Their encoded bytes. A single batch may be longer.
    pub bytes: usize,
    /// How long an intake tries to publish a batch before it rejects it.
    pub publish_time: Duration,
    /// The longest piece of a batch that does not fit into one message. The server's `max_payload`
    /// limits it, too.
    pub piece_bytes: usize,
}

impl Default for IntakeLimits {
    fn default() -> Self {
        Self {
            batches: 4096,
            bytes: 128 << 20,
            publish_time: Duration::from_secs(15),
            piece_bytes: 1 << 20,
        }
    }
}

/// The longest batch that a worker stores, in bytes. An intake rejects longer ones.
pub const BATCH_BYTES: u64 = 256 << 20;

/// What a worker does at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerLimits {
    /// The most messages that it writes together.
    pub messages: usize,
    /// It starts to write once messages whose batches have this many bytes have arrived.
    pub bytes: usize,
    /// How many writes it has in progress.
    pub writes: usize,
    /// The longest batch that it assembles from pieces, in bytes.
    pub batch_bytes: u64,
    /// How long it retries to write messages before it returns them to the stream.
    pub patience: Duration,
    /// How long the store must reject a message, while it stores others, before the message goes to the dead
    /// letters.
    pub rejection_time: Duration,
    /// How long after a piece its batch must have been published. A piece without a batch is removed
    /// after this time.
    pub orphan_age: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            messages: 256,
            bytes: 4 << 20,
            writes: 2,
            batch_bytes: BATCH_BYTES,
            patience: Duration::from_secs(10),
            rejection_time: Duration::from_hours(1),
            orphan_age: crate::pieces::ORPHAN_AGE,
        }
    }
}
