//! Creates the keyspace and its tables, and migrates them.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::{DbError, RequestAttemptError, UseKeyspaceError};
use scylla::statement::unprepared::Statement;
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::address::Address;
use crate::connect::{Check, connect, version};
use crate::error::OpenError;
use crate::login;
use crate::tables::{MIGRATIONS, VERSION};

/// The time within which the nodes must make a change of the keyspace or its tables. With several nodes that
/// are busy, one takes longer than a request.
pub(crate) const CHANGE: Duration = Duration::from_secs(60);

/// What [`init`] found and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialized {
    /// Whether it created the keyspace.
    pub created: bool,
    /// The version of the tables before, or `None` if there were none.
    pub before: Option<i32>,
    /// The version of the tables now.
    pub version: i32,
}

/// Creates a keyspace with this number of replicas in the nodes' data centre, and its tables. If
/// they exist, migrates the tables to the current version and does not change the replicas.
/// Repeating it changes nothing. Run it from one process at a time.
///
/// # Errors
/// [`OpenError`]
pub fn init(address: &Address, replicas: u32) -> Result<Initialized, OpenError> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| OpenError::Failed {
        url: address.to_string(),
        what: format!("cannot start threads: {error}"),
    })?;
    let result = runtime.block_on(create(address, replicas.max(1)));
    runtime.shutdown_background();
    result
}

async fn create(address: &Address, replicas: u32) -> Result<Initialized, OpenError> {
    let address = &login::complete(address)?;
    let session = connect(address).await?;
    let check = Check { address, session: &session };
    check.nodes_sync().await?;
    let run = async |statement: &str| run(&check, &session, statement).await;
    let created = !check.exists().await?;
    if created {
        let state = session.get_cluster_state();
        let centre = state.get_nodes_info().iter().find_map(|node| node.datacenter.clone());
        let centre = centre.filter(|name| !name.contains('\''));
        let replication = centre.map_or_else(
            || format!("{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"),
            |centre| format!("{{'class': 'NetworkTopologyStrategy', '{centre}': {replicas}}}"),
        );
        let keyspace = &address.keyspace;
        run(&format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}"))
            .await?;
    }
    enter(&check, &session, created).await?;
    let before = version(&session, address).await?;
    if before.is_some_and(|before| before > VERSION) {
        let (keyspace, found) = (address.keyspace.clone(), before.unwrap_or_default());
        return Err(OpenError::Newer { keyspace, found, wanted: VERSION });
    }
    let done = usize::try_from(before.unwrap_or(0)).unwrap_or(0);
    for (number, statements) in (1..).zip(MIGRATIONS).skip(done) {
        let _: i32 = number;
        for statement in *statements {
            run(statement).await?;
        }
        // The version is recorded last: a migration that was interrupted is repeated.
        run(&format!("INSERT INTO schema_version (one, version) VALUES (0, {number})")).await?;
    }
    Ok(Initialized { created, before, version: VERSION })
}

/// Makes the keyspace that of the session. A node that has just joined hears of a new keyspace later than the others.
async fn enter(check: &Check<'_>, session: &Session, is_new: bool) -> Result<(), OpenError> {
    let until = Instant::now() + CHANGE;
    loop {
        let error = match session.use_keyspace(&check.address.keyspace, false).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let is_unknown = matches!(
            error,
            UseKeyspaceError::RequestError(RequestAttemptError::DbError(DbError::Invalid, _))
        );
        if !(is_new && is_unknown) || Instant::now() > until {
            return Err(check.failed(&error.to_string()));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn run(check: &Check<'_>, session: &Session, statement: &str) -> Result<(), OpenError> {
    let mut statement = Statement::new(statement);
    statement.set_request_timeout(Some(CHANGE));
    session
        .query_unpaged(statement, &[])
        .await
        .map(drop)
        .map_err(|error| check.rejected(&error, "create the keyspace and its tables"))
}
