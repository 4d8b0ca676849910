//! Why a request failed, and whether to repeat it.

use std::time::{Duration, Instant};

use moteseal_store::{PutError, ReadError, SealKey};
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use crate::connect::is_unknown;
use crate::outage::Outage;

/// Why an operation of the store failed.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Stored data is damaged.
    Damaged(Option<SealKey>, String),
    /// Cassandra does not answer, or too few replicas do. The operation may be repeated later.
    Unavailable(String),
    /// Cassandra rejected the request.
    Failed(String),
    /// The store is closing.
    Closed,
}

impl Fault {
    pub(crate) fn damaged(what: &str) -> Self {
        Self::Damaged(None, what.to_owned())
    }

    pub(crate) fn seal(key: SealKey, what: &str) -> Self {
        Self::Damaged(Some(key), what.to_owned())
    }

    pub(crate) fn on_put(self, store: &str) -> PutError {
        let store = store.to_owned();
        match self {
            Self::Damaged(_, what) | Self::Failed(what) => PutError::Failed { store, what },
            Self::Unavailable(what) => PutError::Unavailable { store, what },
            Self::Closed => PutError::Closed,
        }
    }
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Damaged(key, what) => Self::Damaged { key, what },
            Fault::Unavailable(what) => Self::Unavailable { what },
            Fault::Failed(what) => Self::Failed { what },
            Fault::Closed => Self::Closed,
        }
    }
}

impl From<ExecutionError> for Fault {
    fn from(error: ExecutionError) -> Self {
        let passes = match &error {
            ExecutionError::LastAttemptError(error) => passes(error),
            ExecutionError::BadQuery(_) | ExecutionError::UseKeyspaceError(_) => false,
            ExecutionError::PrepareError(PrepareError::AllAttemptsFailed {
                first_attempt, ..
            }) => passes(first_attempt),
            _ => true,
        };
        if passes { Self::Unavailable(error.to_string()) } else { Self::Failed(error.to_string()) }
    }
}

/// Returns whether a request that failed with this error may succeed later.
fn passes(error: &RequestAttemptError) -> bool {
    match error {
        RequestAttemptError::DbError(DbError::Unauthorized, message) => is_unknown(message),
        RequestAttemptError::DbError(error, _) => matches!(
            error,
            DbError::Unavailable { .. }
                | DbError::Overloaded
                | DbError::IsBootstrapping
                | DbError::ReadTimeout { .. }
                | DbError::WriteTimeout { .. }
                | DbError::ReadFailure { .. }
                | DbError::WriteFailure { .. }
                | DbError::ServerError
                | DbError::RateLimitReached { .. }
                | DbError::Unprepared { .. }
        ),
        RequestAttemptError::UnableToAllocStreamId
        | RequestAttemptError::BrokenConnectionError(_)
        | RequestAttemptError::BodyExtensionsParseError(_)
        | RequestAttemptError::CqlErrorParseError(_)
        | RequestAttemptError::CqlResultParseError(_)
        | RequestAttemptError::UnexpectedResponse(_) => true,
        _ => false,
    }
}

/// Executes a statement, and repeats it until `deadline` while Cassandra is unavailable.
pub(crate) async fn execute(
    (session, outage): (&Session, &Outage),
    statement: &PreparedStatement,
    values: impl SerializeRow,
    deadline: Instant,
) -> Result<scylla::response::query_result::QueryResult, Fault> {
    until(deadline, outage, || session.execute_unpaged(statement, &values)).await
}

/// Writes rows of one partition with one statement, all or none of them, as [`execute`] does.
pub(crate) async fn batch(
    (session, outage): (&Session, &Outage),
    statement: &PreparedStatement,
    rows: Vec<impl SerializeRow>,
    deadline: Instant,
) -> Result<(), Fault> {
    let statements = rows.iter().map(|_| statement.clone().into()).collect();
    // A batch of one partition needs no log of batches: it is one mutation.
    let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
    batch.set_is_idempotent(true);
    batch.set_consistency(Consistency::LocalQuorum);
    until(deadline, outage, || session.batch(&batch, &rows)).await.map(drop)
}

/// Sends a request, and repeats it until `deadline` while Cassandra is unavailable.
async fn until<T, F>(
    deadline: Instant,
    outage: &Outage,
    request: impl Fn() -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<T, ExecutionError>>,
{
    let mut pause = Duration::from_millis(20);
    loop {
        let fault = match request().await {
            Ok(result) => {
                outage.answered();
                return Ok(result);
            }
            Err(error) => Fault::from(error),
        };
        match &fault {
            Fault::Unavailable(what) => outage.failed(what),
            _ => outage.answered(),
        }
        if !matches!(fault, Fault::Unavailable(_)) || Instant::now() + pause >= deadline {
            return Err(fault);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Like [`execute`], and returns the rows.
pub(crate) async fn rows<R>(
    connection: (&Session, &Outage),
    statement: &PreparedStatement,
    values: impl SerializeRow,
    deadline: Instant,
) -> Result<Vec<R>, Fault>
where
    R: for<'r> DeserializeRow<'r, 'r>,
{
    let result = execute(connection, statement, values, deadline).await?;
    let result = result.into_rows_result().map_err(|error| Fault::Failed(error.to_string()))?;
    let damaged = |error: &dyn std::fmt::Display| {
        Fault::Damaged(None, format!("a row has other columns than expected ({error})"))
    };
    let rows = result.rows::<R>().map_err(|error| damaged(&error))?;
    rows.collect::<Result<_, _>>().map_err(|error| damaged(&error))
}
