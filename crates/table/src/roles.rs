//! Who may do what in a keyspace: the statements that create Cassandra's roles, and attempts that find out
//! what a role may do. docs/scale.md has the permissions as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::statement::unprepared::Statement;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::address::{Address, Password};
use crate::connect::{Check, attempt, connect};
use crate::error::OpenError;
use crate::init::CHANGE;

/// The time within which a node answers the first frame.
const PLAIN: Duration = Duration::from_secs(5);
/// A frame of CQL, version 4, that asks for the options of the node. It needs no login.
const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];
/// The first byte of a node's frame of CQL, version 4.
const RESPONSE: u8 = 0x84;

/// Returns whether a node (`HOST:PORT`) answers clients without TLS.
///
/// # Errors
/// Why this is unknown, as text.
pub async fn accepts_plain_text(node: &str) -> Result<bool, String> {
    let connected = timeout(PLAIN, TcpStream::connect(node)).await;
    let stream = connected.map_err(|_| "the node does not answer".to_owned())?;
    let mut stream = stream.map_err(|error| error.to_string())?;
    let mut first = [0];
    let answer = async {
        stream.write_all(&OPTIONS).await?;
        stream.read_exact(&mut first).await
    };
    // A node with TLS sends an alert, closes the connection, or waits for more of the handshake.
    Ok(matches!(timeout(PLAIN, answer).await, Ok(Ok(_))) && first == [RESPONSE])
}

/// The longest time that a revocation may take, in seconds. Cassandra's caches of roles and permissions
/// must not be older.
pub const REVOCATION_S: u32 = 5;

/// What a role does with a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// Reads.
    Read,
    /// Reads and writes.
    Write,
    /// Creates and migrates the tables.
    Create,
}

impl Rights {
    /// Returns the permissions on the keyspace.
    #[must_use]
    pub const fn permissions(self) -> &'static [&'static str] {
        match self {
            Self::Read => &["SELECT"],
            Self::Write => &["SELECT", "MODIFY"],
            Self::Create => &["SELECT", "MODIFY", "CREATE", "ALTER"],
        }
    }
}

/// A role of Cassandra that logs in with a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name: lower-case letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// Its password: letters and digits.
    pub password: Password,
    /// What it does.
    pub rights: Rights,
}

/// Returns the statements that create the keyspace, if it does not exist, and these roles with exactly their permissions, and
/// that drop the roles `revoked`. They can be repeated. They contain the passwords.
#[must_use]
pub fn role_statements(
    keyspace: &str,
    replicas: u32,
    roles: &[Role],
    revoked: &[String],
) -> Vec<Zeroizing<String>> {
    let mut statements = vec![Zeroizing::new(format!(
        "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
    ))];
    let mut add = |statement: String| statements.push(Zeroizing::new(statement));
    for Role { name, password, rights } in roles {
        // A role keeps its password: Cassandra neither ends sessions when it changes, nor permits two changes
        // within 5 s.
        add(format!(
            "CREATE ROLE IF NOT EXISTS \"{name}\" WITH PASSWORD = '{}' AND LOGIN = true AND \
             SUPERUSER = false",
            password.0
        ));
        add(format!("ALTER ROLE \"{name}\" WITH LOGIN = true AND SUPERUSER = false"));
        let wanted = rights.permissions();
        for permission in Rights::Create.permissions() {
            let (verb, to) =
                if wanted.contains(permission) { ("GRANT", "TO") } else { ("REVOKE", "FROM") };
            add(format!("{verb} {permission} ON KEYSPACE {keyspace} {to} \"{name}\""));
        }
        add(format!("GRANT SELECT ON system_views.settings TO \"{name}\""));
    }
    for name in revoked {
        add(format!("DROP ROLE IF EXISTS \"{name}\""));
    }
    statements
}

/// Returns the statements as the text of a file for `cqlsh`.
#[must_use]
pub fn cql(statements: &[Zeroizing<String>]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::new());
    for statement in statements {
        let _ = writeln!(text, "{};", **statement);
    }
    text
}

/// Runs statements of [`role_statements`]. `address` names a superuser of Cassandra.
///
/// # Errors
/// [`OpenError`] of the first statement that fails.
pub fn apply_roles(address: &Address, statements: &[Zeroizing<String>]) -> Result<(), OpenError> {
    blocking(address, async {
        let session = connect(address).await?;
        let check = Check { address, session: &session };
        for statement in statements {
            let mut statement = Statement::new(statement.as_str());
            statement.set_request_timeout(Some(CHANGE));
            session
                .query_unpaged(statement, &[])
                .await
                .map_err(|error| check.rejected(&error, "create roles and grant permissions"))?;
        }
        Ok(())
    })
}

/// An attempt of a role and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What was tried, for example `read`.
    pub action: &'static str,
    /// Whether the role should be able to do it.
    pub expected: bool,
    /// Whether Cassandra permits it, or why this is unknown.
    pub found: Result<bool, String>,
}

/// The action that precedes all others.
pub const LOGIN: &str = "log in";

/// The actions, the rights that permit each of them, and a statement that needs the permission and has no effect. Cassandra
/// checks the permissions of a statement before it carries it out.
fn actions(address: &Address) -> [(&'static str, &'static [Rights], String); 6] {
    use Rights::{Create, Read, Write};
    let keyspace = &address.keyspace;
    let own = address.user.as_deref().unwrap_or_default();
    [
        (
            "read",
            &[Read, Write, Create],
            format!("SELECT version FROM {keyspace}.schema_version WHERE one = 0"),
        ),
        // A negative time to live is refused.
        (
            "write",
            &[Write, Create],
            format!("INSERT INTO {keyspace}.listing (kind, item) VALUES (-1, 0x) USING TTL -1"),
        ),
        // The table exists.
        (
            "create tables",
            &[Create],
            format!("CREATE TABLE IF NOT EXISTS {keyspace}.listing (one tinyint PRIMARY KEY)"),
        ),
        // The column exists.
        ("change tables", &[Create], format!("ALTER TABLE {keyspace}.listing ADD kind smallint")),
        // The role exists.
        ("manage roles", &[], format!("CREATE ROLE IF NOT EXISTS \"{own}\"")),
        (
            "read the settings",
            &[Read, Write, Create],
            "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'".to_owned(),
        ),
    ]
}

/// Tries everything as the user of this address. `rights` are what the user should have; without rights, it
/// should not even be able to log in.
///
/// # Errors
/// [`OpenError`] if the address cannot be used. That Cassandra refuses the user is a result, not an error.
pub fn attempts(address: &Address, rights: Option<Rights>) -> Result<Vec<Attempt>, OpenError> {
    blocking(address, async {
        let session = match connect(address).await {
            Ok(session) => Ok(session),
            Err(OpenError::Rejected { .. }) => Err(Ok(false)),
            Err(error @ (OpenError::Password { .. } | OpenError::Address(_))) => return Err(error),
            Err(error) => Err(Err(error.to_string())),
        };
        let found = session.as_ref().map_or_else(Clone::clone, |_| Ok(true));
        let mut done = vec![Attempt { action: LOGIN, expected: rights.is_some(), found }];
        for (action, by, statement) in actions(address) {
            let found = match &session {
                Ok(session) => permitted(session, &statement).await,
                Err(found) => found.clone(),
            };
            let expected = rights.is_some_and(|rights| by.contains(&rights));
            done.push(Attempt { action, expected, found });
        }
        Ok(done)
    })
}

/// Returns whether Cassandra permits a statement.
async fn permitted(session: &Session, statement: &str) -> Result<bool, String> {
    let error: ExecutionError = match session.query_unpaged(statement, &[]).await {
        Ok(_) => return Ok(true),
        Err(error) => error,
    };
    match attempt(&error) {
        Some(RequestAttemptError::DbError(DbError::Unauthorized, _)) => Ok(false),
        // The refusals that follow the check of the permission.
        Some(RequestAttemptError::DbError(DbError::Invalid, what))
            if what.contains("TTL") || what.contains("already exists") =>
        {
            Ok(true)
        }
        Some(RequestAttemptError::DbError(_, what)) => Err(what.replace('\n', " ")),
        _ => Err(error.to_string().replace('\n', " ")),
    }
}

/// Checks on every node that a revocation takes effect within [`REVOCATION_S`]: passwords and permissions
/// are required, and no cache keeps them for longer.
///
/// # Errors
/// `TableSlowRevocation` names a node and its setting; other [`OpenError`] if the nodes cannot be asked.
pub fn check_revocation(address: &Address) -> Result<(), OpenError> {
    blocking(address, async {
        let session = connect(address).await?;
        let check = Check { address, session: &session };
        let names = "'authenticator', 'authorizer', 'permissions_validity', 'roles_validity', \
                     'credentials_validity'";
        check
            .each_node(names, |node, settings| {
                slow(settings).map_or(Ok(()), |(setting, found, wanted)| {
                    Err(OpenError::SlowRevocation { node, setting, found, wanted })
                })
            })
            .await
    })
}

/// Returns a setting with which a revocation takes too long, its value and the value that it must have.
fn slow(settings: &BTreeMap<String, String>) -> Option<(&'static str, String, String)> {
    let found = |name: &str| settings.get(name).cloned().unwrap_or_else(|| "unknown".to_owned());
    for (name, open, wanted) in [
        ("authenticator", "AllowAllAuthenticator", "PasswordAuthenticator"),
        ("authorizer", "AllowAllAuthorizer", "CassandraAuthorizer"),
    ] {
        if found(name).contains(open) || found(name) == "unknown" {
            return Some((name, found(name), wanted.to_owned()));
        }
    }
    for name in ["permissions_validity", "roles_validity", "credentials_validity"] {
        let longest = f64::from(REVOCATION_S) * 1e3;
        if crate::connect::milliseconds(&found(name)).is_none_or(|time| time > longest) {
            return Some((name, found(name), format!("at most {REVOCATION_S}s")));
        }
    }
    None
}

fn blocking<T>(
    address: &Address,
    work: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| OpenError::Failed {
        url: address.to_string(),
        what: format!("cannot start threads: {error}"),
    })?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn statements_grant_what_a_role_needs_and_revoke_the_rest() {
        let role = |name: &str, rights| Role {
            name: name.to_owned(),
            password: Password("secret".to_owned()),
            rights,
        };
        let roles = [role("k_reads", Rights::Read), role("k_writes", Rights::Write)];
        let statements = role_statements("k", 3, &roles, &["k_gone".to_owned()]);
        let text = cql(&statements);
        for wanted in [
            "CREATE KEYSPACE IF NOT EXISTS k WITH",
            "GRANT SELECT ON KEYSPACE k TO \"k_reads\";",
            "REVOKE MODIFY ON KEYSPACE k FROM \"k_reads\";",
            "GRANT MODIFY ON KEYSPACE k TO \"k_writes\";",
            "REVOKE ALTER ON KEYSPACE k FROM \"k_writes\";",
            "DROP ROLE IF EXISTS \"k_gone\";",
        ] {
            assert!(text.contains(wanted), "{}", *text);
        }
        assert!(!format!("{roles:?}").contains("secret"));
    }

    #[test]
    fn settings_that_delay_a_revocation_are_found() {
        let settings = |more: (&str, &str)| {
            let mut settings: BTreeMap<String, String> = [
                ("authenticator", "PasswordAuthenticator"),
                ("authorizer", "CassandraAuthorizer"),
                ("permissions_validity", "2s"),
                ("roles_validity", "2000ms"),
                ("credentials_validity", "5s"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
            settings.insert(more.0.to_owned(), more.1.to_owned());
            settings
        };
        assert_eq!(slow(&settings(("other", ""))), None);
        for (name, value) in [
            ("authorizer", "AllowAllAuthorizer"),
            ("authenticator", "AllowAllAuthenticator"),
            ("roles_validity", "6s"),
            ("permissions_validity", "1h"),
            ("credentials_validity", "unknown"),
        ] {
            assert_eq!(slow(&settings((name, value))).unwrap().0, name);
        }
    }
}
