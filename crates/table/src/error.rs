//! Why a keyspace cannot be opened or created. Each message says what is wrong and how to mend it.

use moteseal_api::ErrorKind;

use crate::address::{AddressError, PASSWORD, PASSWORD_FILE, USER_FILE};

/// Why a keyspace could not be opened or created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No node could be reached.
    #[error(
        "Cassandra cannot be reached at {hosts} ({what}); check that it runs, that the URL names its port for clients, and that it has ?ca=FILE if they must use TLS"
    )]
    Unreachable {
        /// The hosts in the URL.
        hosts: String,
        /// What failed.
        what: String,
    },
    /// The certificates could not be read, the node's certificate was rejected, or the node does not use TLS.
    #[error("the connection to {hosts} is not secure ({what}); {remedy}")]
    Tls {
        /// The hosts in the URL.
        hosts: String,
        /// What failed.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Cassandra rejected the user or its password.
    #[error("Cassandra at {hosts} rejected {}", user_and_remedy(user.as_deref()))]
    Rejected {
        /// The hosts in the URL.
        hosts: String,
        /// The user, or `None` if none was named.
        user: Option<String>,
    },
    /// The URL has no authorities, and a node is another machine.
    #[error(
        "the password of {user} would be sent to {host} unencrypted; add ?ca=FILE to the URL, with the authorities that signed the nodes' certificates"
    )]
    InClear {
        /// The user.
        user: String,
        /// The node.
        host: String,
    },
    /// The file with the user could not be read.
    #[error(
        "the user of Cassandra cannot be read ({what}); name it in the URL (cassandra://user@host), or let {USER_FILE} name a file that this user may read"
    )]
    User {
        /// What failed.
        what: String,
    },
    /// The file with the password could not be read.
    #[error(
        "the password of {user} cannot be read ({what}); set {PASSWORD}, or let {PASSWORD_FILE} name a file that this user may read"
    )]
    Password {
        /// The user.
        user: String,
        /// What failed.
        what: String,
    },
    /// The keyspace does not exist.
    #[error("there is no keyspace {keyspace}; create it with `moteseal store init --store {url}`")]
    NoKeyspace {
        /// The keyspace.
        keyspace: String,
        /// The URL.
        url: String,
    },
    /// The keyspace has no tables of this program, or not all of them.
    #[error(
        "the keyspace {keyspace} has no tables of Moteseal; create them with `moteseal store init --store {url}`"
    )]
    NoTables {
        /// The keyspace.
        keyspace: String,
        /// The URL.
        url: String,
    },
    /// The tables have an older version.
    #[error(
        "the tables in {keyspace} have version {found}, and this program needs {wanted}; migrate them with `moteseal store init --store {url}`"
    )]
    Older {
        /// The keyspace.
        keyspace: String,
        /// The URL.
        url: String,
        /// The version of the tables.
        found: i32,
        /// The version that this program needs.
        wanted: i32,
    },
    /// The tables have a newer version.
    #[error(
        "the tables in {keyspace} have version {found}, and this program knows versions up to {wanted}; install the newer program"
    )]
    Newer {
        /// The keyspace.
        keyspace: String,
        /// The version of the tables.
        found: i32,
        /// The highest version that this program knows.
        wanted: i32,
    },
    /// The user lacks a permission.
    #[error(
        "{user} may not {action} ({what}); grant it (docs/scale.md lists the permissions of each role)"
    )]
    Forbidden {
        /// The user.
        user: String,
        /// What it tried.
        action: &'static str,
        /// Cassandra's message.
        what: String,
    },
    /// Too few replicas of the keyspace are alive.
    #[error(
        "{alive} of the {required} replicas that keyspace {keyspace} needs are alive; start the missing nodes, or create the keyspace with fewer replicas"
    )]
    Replicas {
        /// The keyspace.
        keyspace: String,
        /// How many replicas a quorum needs.
        required: i32,
        /// How many of them are alive.
        alive: i32,
    },
    /// Too few replicas of Cassandra's users are alive, so that it cannot tell what a user may do.
    #[error(
        "too few replicas of the users of {hosts} are alive ({what}); start the missing nodes, and give the keyspace system_auth as many replicas as yours"
    )]
    UserReplicas {
        /// The hosts in the URL.
        hosts: String,
        /// Cassandra's message.
        what: String,
    },
    /// A node acknowledges writes before they are on its disk.
    #[error(
        "node {node} acknowledges before data is on disk (commitlog_sync: {found}); set `commitlog_sync: batch`, or `group` with a window of at most 5 ms, in its cassandra.yaml and restart it"
    )]
    Commitlog {
        /// The node.
        node: String,
        /// The settings that were found.
        found: String,
    },
    /// Cassandra does not write the keyspace's data to its commit log.
    #[error(
        "Cassandra does not log the writes to keyspace {keyspace} (durable_writes = false), so a power loss loses acknowledged data; run `ALTER KEYSPACE {keyspace} WITH durable_writes = true` in cqlsh"
    )]
    NotLogged {
        /// The keyspace.
        keyspace: String,
    },
    /// Several data centres have replicas of the keyspace.
    #[error(
        "keyspace {keyspace} has replicas in several data centres ({centres}), so a read in one of them may miss what was acknowledged in another; keep the replicas in one (ALTER KEYSPACE), and let clouds of the others follow it (--follow)"
    )]
    DataCentres {
        /// The keyspace.
        keyspace: String,
        /// Their names.
        centres: String,
    },
    /// Cassandra removes the rows of a table after a time.
    #[error(
        "Cassandra removes the rows of table {keyspace}.{table} after a time (default_time_to_live); run `ALTER TABLE {keyspace}.{table} WITH default_time_to_live = 0` in cqlsh"
    )]
    Expires {
        /// The keyspace.
        keyspace: String,
        /// The table.
        table: String,
    },
    /// A node keeps roles or permissions in a cache for too long, or does not require them.
    #[error(
        "node {node} applies a revocation too late or not at all ({setting}: {found}); set `{setting}` to {wanted} in its cassandra.yaml and restart it"
    )]
    SlowRevocation {
        /// The node.
        node: String,
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// The value that it must have.
        wanted: String,
    },
    /// Anything else.
    #[error("{url} could not be opened ({what})")]
    Failed {
        /// The URL.
        url: String,
        /// What failed.
        what: String,
    },
}

impl OpenError {
    /// Returns the error's stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Address(error) => error.name(),
            Self::Unreachable { .. } => "TableUnreachable",
            Self::Tls { .. } => "TableTls",
            Self::Rejected { .. } => "TableRejected",
            Self::InClear { .. } => "PasswordInClear",
            Self::User { .. } => "TableUser",
            Self::Password { .. } => "TablePassword",
            Self::NoKeyspace { .. } => "TableNoKeyspace",
            Self::NoTables { .. } => "TableNotInitialized",
            Self::Older { .. } => "TableOlder",
            Self::Newer { .. } => "TableNewer",
            Self::Forbidden { .. } => "TableForbidden",
            Self::Replicas { .. } | Self::UserReplicas { .. } => "TableReplicas",
            Self::Commitlog { .. } | Self::NotLogged { .. } | Self::Expires { .. } => {
                "TableNotDurable"
            }
            Self::DataCentres { .. } => "TableDataCentres",
            Self::SlowRevocation { .. } => "TableSlowRevocation",
            Self::Failed { .. } => "TableFailed",
        }
    }

    /// Returns [`ErrorKind::Unreachable`] if the same call may succeed later,
    /// [`ErrorKind::Internal`] for unexpected errors, and otherwise [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } | Self::Replicas { .. } | Self::UserReplicas { .. } => {
                ErrorKind::Unreachable
            }
            Self::Failed { .. } => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(OpenError, AddressError);

/// Returns the user that Cassandra rejected, and what to do.
fn user_and_remedy(user: Option<&str>) -> String {
    match user {
        Some(user) => format!(
            "the user {user}; check its password ({PASSWORD}, or the file that {PASSWORD_FILE} names); the user comes from the URL, from the file that {USER_FILE} names, or from a policy (table.superuser)"
        ),
        None => format!(
            "a client without a user; name a user in the URL (cassandra://user@host), and set {PASSWORD} or {PASSWORD_FILE}"
        ),
    }
}

/// Returns what to do about a certificate that is of an authority and is refused nevertheless. `what` is the cause in
/// lower case.
pub(crate) fn remedy_of_certificate(what: &str) -> Option<&'static str> {
    if what.contains("expired") || what.contains("not valid yet") {
        Some("renew the node's certificate, and check the clocks")
    } else if what.contains("not valid for name") {
        Some("issue the node's certificate for its IP address")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::CertificateError;
    use rustls_pki_types::{ServerName, UnixTime};

    use super::remedy_of_certificate;

    #[test]
    fn a_refused_certificate_of_an_authority_is_renewed_or_issued_for_another_name() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let of = |error: CertificateError| {
            let what = rustls::Error::InvalidCertificate(error).to_string().to_lowercase();
            remedy_of_certificate(&what).map(str::to_owned)
        };
        let expired = of(CertificateError::ExpiredContext { time: at(9), not_after: at(8) });
        assert!(expired.is_some_and(|remedy| remedy.contains("renew")));
        let early = of(CertificateError::NotValidYetContext { time: at(8), not_before: at(9) });
        assert!(early.is_some_and(|remedy| remedy.contains("clocks")));
        let expected = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()).to_owned();
        let presented = vec!["IpAddress(10.0.0.1)".to_owned()];
        let other = of(CertificateError::NotValidForNameContext { expected, presented });
        assert!(other.is_some_and(|remedy| remedy.contains("IP address")));
        assert_eq!(of(CertificateError::UnknownIssuer), None);
    }
}
