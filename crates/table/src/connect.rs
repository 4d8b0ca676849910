//! Connecting to Cassandra, and the checks before the first request.
//!
//! An operator's mistake must be reported at the start and not by the first write: the keyspace, the
//! version of its tables, the permissions, the living replicas, that every node syncs its commit log before
//! it acknowledges, and that nothing is kept out of this log or removed after a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;

use crate::address::{Address, Authorities};
use crate::error::{OpenError, remedy_of_certificate};
use crate::login::password;
use crate::statements::Statements;
use crate::tables;

/// What a store needs to do with a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Read and write.
    #[default]
    ReadWrite,
    /// Read only. Every put fails.
    Read,
}

/// The time within which a node must accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The time within which a session must be open. The driver does not limit a TLS handshake, so a node that is
/// paused would delay it without end.
const OPEN: Duration = Duration::from_secs(45);
/// The time within which Cassandra must answer one request, with its second attempt. It is that of
/// `read_request_timeout`, so that an error of Cassandra arrives first.
const REQUEST: Duration = Duration::from_secs(5);
/// The time after which a request is also sent to a second node, because the first one has not answered. A node
/// that works answers much earlier, also under load.
const SECOND_ATTEMPT: Duration = Duration::from_millis(500);
/// The number of further attempts of one request. If all nodes are slow, they get at most twice the requests.
const MORE_ATTEMPTS: usize = 1;
/// How often a node is asked whether it is alive.
const KEEPALIVE: Duration = Duration::from_secs(2);
/// The time within which a node must answer that it is alive. Otherwise its connections are closed, and requests
/// go to the other nodes at once.
const SILENCE: Duration = Duration::from_secs(4);
/// What to do about a certificate that is not accepted.
const AUTHORITIES: &str = "name the authorities that signed the nodes' certificates with ?ca=FILE";
/// What to do about a node without TLS.
const NO_TLS: &str = "the node does not use TLS at this port: set client_encryption_options in its \
    cassandra.yaml, or leave out ?ca";
/// The maximum window of `commitlog_sync: group`, in milliseconds.
const WINDOW_MS: f64 = 5.0;

/// Connects without a keyspace.
pub(crate) async fn connect(address: &Address) -> Result<Session, OpenError> {
    address.keeps_password()?;
    let unanswered = |_| OpenError::Unreachable {
        hosts: address.hosts.join(","),
        what: format!("a node accepts connections and does not answer within {} s", OPEN.as_secs()),
    };
    tokio::time::timeout(OPEN, connect_to_any(address)).await.map_err(unanswered)?
}

async fn connect_to_any(address: &Address) -> Result<Session, OpenError> {
    let unreachable = match connect_to(address).await {
        Err(error @ OpenError::Unreachable { .. }) if address.hosts.len() > 1 => error,
        result => return result,
    };
    // The driver reports only the last node that it has tried. Another one may run and state a cause.
    for host in &address.hosts {
        let one = Address { hosts: vec![host.clone()], ..address.clone() };
        match connect_to(&one).await {
            Err(OpenError::Unreachable { .. }) => {}
            result => return result,
        }
    }
    Err(unreachable)
}

async fn connect_to(address: &Address) -> Result<Session, OpenError> {
    // The driver makes a second attempt only of idempotent statements: those in `statements.rs`, and batches of them.
    // The two attempts of a write may have different timestamps, and the first may be applied long after the
    // second was acknowledged. Both write the same content, and no row is ever changed or deleted.
    let second = SimpleSpeculativeExecutionPolicy {
        max_retry_count: MORE_ATTEMPTS,
        retry_interval: SECOND_ATTEMPT,
    };
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::LocalQuorum)
        .request_timeout(Some(REQUEST))
        .build();
    let more = profile.to_builder().speculative_execution_policy(Some(Arc::new(second))).build();
    let mut profile = profile.into_handle();
    let mut builder = SessionBuilder::new()
        .known_nodes(&address.hosts)
        .connection_timeout(CONNECT)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(SILENCE)
        .default_execution_profile_handle(profile.clone())
        // The driver sends the requests of one connection together.
        .pool_size(PoolSize::PerHost(std::num::NonZeroUsize::MIN))
        .fetch_schema_metadata(true)
        .fetch_full_schema_metadata(false)
        .disallow_shard_aware_port(true)
        .tcp_nodelay(true);
    if let Some(user) = &address.user {
        let given = address.password.as_ref().map(|password| password.0.clone());
        builder = builder.user(user, given.map_or_else(|| password(user), Ok)?);
    }
    if let Some(authorities) = &address.authorities {
        let config = tls(authorities).map_err(|what| {
            let hosts = address.hosts.join(",");
            OpenError::Tls { hosts, what, remedy: AUTHORITIES }
        })?;
        builder = builder.tls_context(Some(config));
    }
    let session = builder.build().await;
    let session = session.map_err(|error| unconnected(address, &chain(&error)))?;
    // A single node has no second one, so its requests need no timer for it.
    if session.get_cluster_state().get_nodes_info().len() > 1 {
        profile.map_to_another_profile(more);
    }
    Ok(session)
}

/// Returns an error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text.replace('\n', " ")
}

fn unconnected(address: &Address, what: &str) -> OpenError {
    let hosts = address.hosts.join(",");
    let lower = what.to_lowercase();
    if is_unknown(what) {
        return OpenError::UserReplicas { hosts, what: what.to_owned() };
    }
    if lower.contains("authenticat") || lower.contains("credentials") {
        return OpenError::Rejected { hosts, user: address.user.clone() };
    }
    // The answer to the first bytes of a handshake was not one of TLS.
    if lower.contains("corrupt message") || lower.contains("handshake eof") {
        return OpenError::Tls { hosts, what: what.to_owned(), remedy: NO_TLS };
    }
    if lower.contains("certificate") || lower.contains("tls") {
        let remedy = remedy_of_certificate(&lower).unwrap_or(AUTHORITIES);
        return OpenError::Tls { hosts, what: what.replace("; ", ", "), remedy };
    }
    OpenError::Unreachable { hosts, what: what.to_owned() }
}

fn user_named(user: &String) -> String {
    format!("the user {user}")
}

fn tls(authorities: &Authorities) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Authorities::File(file) => {
            let unread = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
            let certificates =
                CertificateDer::pem_file_iter(file).map_err(|error| unread(&error))?;
            for certificate in certificates {
                roots
                    .add(certificate.map_err(|error| unread(&error))?)
                    .map_err(|error| unread(&error))?;
            }
        }
        Authorities::System => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err("there is no certificate of an authority".to_owned());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Connects to a keyspace, runs all checks and prepares the statements.
pub(crate) async fn open(
    address: &Address,
    access: Access,
) -> Result<(Session, Statements), OpenError> {
    let session = connect(address).await?;
    let check = Check { address, session: &session };
    if !check.exists().await? {
        let (keyspace, url) = (address.keyspace.clone(), address.to_string());
        return Err(OpenError::NoKeyspace { keyspace, url });
    }
    session
        .use_keyspace(&address.keyspace, false)
        .await
        .map_err(|error| check.failed(&chain(&error)))?;
    check.version().await?;
    check.nodes_sync().await?;
    check.tables_keep().await?;
    let statements =
        Statements::prepare(&session).await.map_err(|error| check.unprepared(&error))?;
    check.replicas_and_permissions(&statements, access).await?;
    Ok((session, statements))
}

/// Returns the version of the tables, or `None` if there are none.
pub(crate) async fn version(
    session: &Session,
    address: &Address,
) -> Result<Option<i32>, OpenError> {
    let check = Check { address, session };
    let select = "SELECT version FROM schema_version WHERE one = 0";
    match session.query_unpaged(select, &[]).await {
        Ok(result) => {
            let rows = result.into_rows_result().map_err(|e| check.failed(&e.to_string()))?;
            let rows = rows.rows::<(i32,)>().map_err(|e| check.failed(&e.to_string()))?;
            Ok(rows.filter_map(Result::ok).map(|(version,)| version).max())
        }
        Err(error) if is_invalid(&error) => Ok(None),
        Err(error) => Err(check.rejected(&error, "read its tables")),
    }
}

pub(crate) fn attempt(error: &ExecutionError) -> Option<&RequestAttemptError> {
    match error {
        ExecutionError::LastAttemptError(error)
        | ExecutionError::PrepareError(PrepareError::AllAttemptsFailed {
            first_attempt: error,
            ..
        }) => Some(error),
        _ => None,
    }
}

/// Returns whether Cassandra does not know the table.
fn is_invalid(error: &ExecutionError) -> bool {
    matches!(attempt(error), Some(RequestAttemptError::DbError(DbError::Invalid, _)))
}

/// The beginning of Cassandra's message if it cannot read what a user may do, in lower case.
const UNKNOWN_USER: &str = "unable to perform auth";

/// Returns whether Cassandra could not read what a user may do, because too few replicas of its users are
/// alive.
pub(crate) fn is_unknown(message: &str) -> bool {
    message.to_lowercase().contains(UNKNOWN_USER)
}

pub(crate) struct Check<'c> {
    pub(crate) address: &'c Address,
    pub(crate) session: &'c Session,
}

impl Check<'_> {
    pub(crate) fn failed(&self, what: &str) -> OpenError {
        OpenError::Failed { url: self.address.to_string(), what: what.replace('\n', " ") }
    }

    fn unprepared(&self, error: &PrepareError) -> OpenError {
        match error {
            PrepareError::AllAttemptsFailed {
                first_attempt: RequestAttemptError::DbError(DbError::Invalid, what),
                ..
            } if what.contains("does not exist") => self.no_tables(),
            PrepareError::AllAttemptsFailed { first_attempt, .. } => {
                self.attempted(first_attempt, "read its tables")
            }
            error => self.failed(&chain(error)),
        }
    }

    pub(crate) fn rejected(&self, error: &ExecutionError, action: &'static str) -> OpenError {
        attempt(error)
            .map_or_else(|| self.failed(&chain(error)), |attempt| self.attempted(attempt, action))
    }

    fn attempted(&self, error: &RequestAttemptError, action: &'static str) -> OpenError {
        match error {
            RequestAttemptError::DbError(DbError::Unauthorized, what) if is_unknown(what) => {
                let hosts = self.address.hosts.join(",");
                OpenError::UserReplicas { hosts, what: what.replace('\n', " ") }
            }
            RequestAttemptError::DbError(DbError::Unauthorized, what) => OpenError::Forbidden {
                user: self
                    .address
                    .user
                    .as_ref()
                    .map_or("a client without a user".into(), user_named),
                action,
                what: what.replace('\n', " "),
            },
            RequestAttemptError::DbError(
                DbError::Unavailable { required, alive, .. }
                // The node does not know yet that the other replicas are lost.
                | DbError::ReadTimeout { required, received: alive, .. }
                | DbError::WriteTimeout { required, received: alive, .. },
                _,
            ) => OpenError::Replicas {
                keyspace: self.address.keyspace.clone(),
                required: *required,
                alive: *alive,
            },
            error => self.failed(&chain(error)),
        }
    }

    fn no_tables(&self) -> OpenError {
        let (keyspace, url) = (self.address.keyspace.clone(), self.address.to_string());
        OpenError::NoTables { keyspace, url }
    }

    /// Returns whether the keyspace exists. Fails if Cassandra does not log its writes, or if quorums of its
    /// data centres need not overlap.
    pub(crate) async fn exists(&self) -> Result<bool, OpenError> {
        let select = "SELECT durable_writes, replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let found: Vec<(bool, BTreeMap<String, String>)> =
            self.of_keyspace(select, "read the list of keyspaces").await?;
        let Some((is_logged, replication)) = found.first() else { return Ok(false) };
        let keyspace = self.address.keyspace.clone();
        if !is_logged {
            return Err(OpenError::NotLogged { keyspace });
        }
        let centres = centres(replication);
        if centres.len() > 1 {
            return Err(OpenError::DataCentres { keyspace, centres: centres.join(", ") });
        }
        Ok(true)
    }

    /// Checks that Cassandra does not remove the rows of a table after a time.
    async fn tables_keep(&self) -> Result<(), OpenError> {
        let select = "SELECT table_name, default_time_to_live FROM system_schema.tables WHERE keyspace_name = ?";
        let tables: Vec<(String, Option<i32>)> =
            self.of_keyspace(select, "read the list of tables").await?;
        let expires = tables.into_iter().find(|(_, seconds)| seconds.is_some_and(|of| of > 0));
        let keyspace = self.address.keyspace.clone();
        expires.map_or(Ok(()), |(table, _)| Err(OpenError::Expires { keyspace, table }))
    }

    /// Reads what the schema of Cassandra has of the keyspace.
    async fn of_keyspace<R>(&self, select: &str, action: &'static str) -> Result<Vec<R>, OpenError>
    where
        R: for<'r> DeserializeRow<'r, 'r>,
    {
        let mut statement = Statement::new(select);
        statement.set_consistency(Consistency::One);
        let result = self
            .session
            .query_unpaged(statement, (&self.address.keyspace,))
            .await
            .map_err(|error| self.rejected(&error, action))?;
        let rows = result.into_rows_result().map_err(|error| self.failed(&error.to_string()))?;
        let rows = rows.rows::<R>().map_err(|error| self.failed(&error.to_string()))?;
        rows.collect::<Result<_, _>>().map_err(|error| self.failed(&error.to_string()))
    }

    async fn version(&self) -> Result<(), OpenError> {
        let (keyspace, url) = (self.address.keyspace.clone(), self.address.to_string());
        let wanted = tables::VERSION;
        match version(self.session, self.address).await? {
            None => Err(self.no_tables()),
            Some(found) if found < wanted => Err(OpenError::Older { keyspace, url, found, wanted }),
            Some(found) if found > wanted => Err(OpenError::Newer { keyspace, found, wanted }),
            Some(_) => Ok(()),
        }
    }

    /// Checks that every node that can be reached syncs its commit log before it acknowledges.
    pub(crate) async fn nodes_sync(&self) -> Result<(), OpenError> {
        let names = "'commitlog_sync', 'commitlog_sync_group_window', 'commitlog_sync_period'";
        self.each_node(names, |node, settings| {
            commitlog(settings).map_err(|found| OpenError::Commitlog { node, found })
        })
        .await
    }

    /// Reads these settings of every node that can be reached, and checks them. `names` is a list in CQL.
    pub(crate) async fn each_node(
        &self,
        names: &str,
        check: impl Fn(String, &BTreeMap<String, String>) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let state = self.session.get_cluster_state();
        for node in state.get_nodes_info().iter().filter(|node| node.is_connected()) {
            let mut select = Statement::new(format!(
                "SELECT name, value FROM system_views.settings WHERE name IN ({names})"
            ));
            select.set_consistency(Consistency::One);
            let target = NodeIdentifier::Node(Arc::clone(node));
            select.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(
                target, None,
            )));
            let result = self
                .session
                .query_unpaged(select, &[])
                .await
                .map_err(|error| self.rejected(&error, "read the settings of the nodes"))?;
            let rows = result.into_rows_result().map_err(|e| self.failed(&e.to_string()))?;
            let rows = rows
                .rows::<(String, Option<String>)>()
                .map_err(|error| self.failed(&error.to_string()))?;
            let settings: BTreeMap<String, String> = rows
                .filter_map(Result::ok)
                .map(|(name, value)| (name, value.unwrap_or_default()))
                .collect();
            check(format!("{}:{}", node.address.ip(), node.address.port()), &settings)?;
        }
        Ok(())
    }

    /// Reads, and if needed writes, rows of many partitions, so that too few replicas of any range
    /// of keys and missing permissions are found now.
    async fn replicas_and_permissions(
        &self,
        statements: &Statements,
        access: Access,
    ) -> Result<(), OpenError> {
        let read = |shard: i16| async move {
            let started = Instant::now();
            loop {
                let values = (shard, &[][..], 1);
                let values: (i16, &[u8], i32) = values;
                match self.session.execute_unpaged(&statements.devices_after, values).await {
                    Ok(_) => return Ok(()),
                    // A node that has just started does not see the others at once.
                    Err(error) if started.elapsed() < Duration::from_secs(2) => {
                        let rejected = self.rejected(&error, "read its tables");
                        if !matches!(rejected, OpenError::Replicas { .. }) {
                            return Err(rejected);
                        }
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    Err(error) => return Err(self.rejected(&error, "read its tables")),
                }
            }
        };
        let reads: Vec<_> = (0..64).map(|n| read(n * 4)).collect();
        stream::iter(reads).buffer_unordered(16).try_collect::<()>().await?;
        if access == Access::ReadWrite {
            let values: (i16, &[u8]) = (tables::PROBE, &[]);
            self.session
                .execute_unpaged(&statements.list, values)
                .await
                .map_err(|error| self.rejected(&error, "write its tables"))?;
        }
        Ok(())
    }
}

/// Returns the names of the data centres that have replicas. `SimpleStrategy` has no names.
fn centres(replication: &BTreeMap<String, String>) -> Vec<&str> {
    let is_centre = |(name, replicas): &(&String, &String)| {
        !matches!(name.as_str(), "class" | "replication_factor") && replicas.as_str() != "0"
    };
    replication.iter().filter(is_centre).map(|(name, _)| name.as_str()).collect()
}

/// Returns what a node's settings of its commit log are if it acknowledges before data is on disk.
fn commitlog(settings: &BTreeMap<String, String>) -> Result<(), String> {
    let setting = |name: &str| settings.get(name).map_or("unknown", String::as_str);
    let window = setting("commitlog_sync_group_window");
    match setting("commitlog_sync") {
        "batch" => Ok(()),
        "group" if milliseconds(window).is_some_and(|window| window <= WINDOW_MS) => Ok(()),
        "group" => Err(format!("group, {window}")),
        "periodic" => Err(format!("periodic, {}", setting("commitlog_sync_period"))),
        other => Err(other.to_owned()),
    }
}

/// Reads a duration in a setting, such as `5ms` or `10s`.
pub(crate) fn milliseconds(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let factor = match &text[digits..] {
        "ns" => 1e-6,
        "us" | "\u{b5}s" => 1e-3,
        "ms" | "" => 1.0,
        "s" => 1e3,
        "m" => 6e4,
        _ => return None,
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_centres_have_names() {
        let of = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            centres(&options.collect()).join(" ")
        };
        let (simple, network) = ("SimpleStrategy", "NetworkTopologyStrategy");
        assert_eq!(of(&[("class", simple), ("replication_factor", "3")]), "");
        assert_eq!(of(&[("class", network), ("dc1", "3")]), "dc1");
        assert_eq!(of(&[("class", network), ("dc1", "3"), ("dc2", "0"), ("dc3", "2")]), "dc1 dc3");
    }

    #[test]
    fn a_commit_log_is_synced_before_an_acknowledgement_or_at_most_5_ms_after_it() {
        let of = |sync: &str, window: &str| {
            let settings = [
                ("commitlog_sync", sync),
                ("commitlog_sync_group_window", window),
                ("commitlog_sync_period", "10s"),
            ];
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
            commitlog(&settings.into()).err().unwrap_or_default()
        };
        assert_eq!(of("batch", "null"), "");
        assert_eq!((of("group", "5ms"), of("group", "5000us")), Default::default());
        assert_eq!(of("group", "6ms"), "group, 6ms");
        assert_eq!(of("group", "1s"), "group, 1s");
        assert_eq!(of("group", "null"), "group, null");
        assert_eq!(of("periodic", "null"), "periodic, 10s");
        assert_eq!(of("later", "null"), "later");
        assert_eq!(commitlog(&BTreeMap::new()), Err("unknown".to_owned()));
    }

    #[test]
    fn windows_are_read() {
        assert_eq!(milliseconds("5ms"), Some(5.0));
        assert_eq!(milliseconds("1000us"), Some(1.0));
        assert_eq!(milliseconds("10s"), Some(10_000.0));
        assert_eq!(milliseconds("null"), None);
        assert_eq!(milliseconds("2h"), None);
    }
}
