//! Asking a cloud: query, verify, and let it explain what failed.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, JSON, Query, paths};
use moteseal_net::{Client, NetError, Response};
use moteseal_verify::{Explained, Roster, Suspect};
use tokio::time::{Instant, timeout_at};

use crate::explain::{Disagreement, Finding, examine, explanation, leaves};
use crate::memory::Memory;
use crate::output::OutputError;
use crate::proof::ProofWriter;
use crate::refusal::Refused;
use crate::report::Report;
use crate::rows::Sink;
use crate::session::{PIECE, Session, Stop, all_threads};

/// The longest explanation of one seal: its largest signature, statement and digests take 5 KiB.
const MAX_EXPLANATION: usize = 16 << 10;
/// What has come of an answer is judged after so long, however little it is: a cloud that trickles cannot put a refusal off.
const PATIENCE: Duration = Duration::from_millis(200);
/// The longest bundle that is fetched to explain a tree.
const MAX_BUNDLE: usize = 80 << 20;

/// Why there are no verified rows.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The cloud could not be asked.
    Net(NetError),
    /// What it answered is refused.
    Refused(Box<Refused>),
    /// What was verified could not be written.
    Output(OutputError),
}

impl Failure {
    /// The name of what was wrong.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Net(error) => error.name().to_owned(),
            Self::Refused(refused) => refused.name(),
            Self::Output(_) => "OutputFailed".to_owned(),
        }
    }

    /// 1 internal, 2 usage, 3 refused, 4 incomplete, 6 unreachable.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Net(error) if error.is_no_cloud() => 6,
            // Another question, or another token, would do.
            Self::Net(NetError::Refused { status: 400 | 401 | 403 | 422, .. }) => 2,
            Self::Net(NetError::Refused { .. }) => 4,
            Self::Net(_) => 2,
            Self::Refused(refused) => refused.refusal.exit_code(),
            Self::Output(error) if error.is_misuse() => 2,
            Self::Output(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(error) => error.fmt(f),
            Self::Refused(refused) => refused.fmt(f),
            Self::Output(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<NetError> for Failure {
    fn from(error: NetError) -> Self {
        Self::Net(error)
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        Self::Output(error)
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Refused(refusal) => Self::Refused(Box::new(refusal.into())),
            Stop::Output(error) => Self::Output(error),
        }
    }
}

/// Asks the cloud of `client`, verifies the answer, and gives `sink` its rows. `proof` receives the answer as it came; whether it
/// is kept is up to the caller. What the answer proves of each device's newest seal goes into `memory`, which is not saved.
///
/// # Errors
/// [`Failure`]; whatever `sink` and `proof` took is then to be thrown away.
pub async fn get(
    client: &Client,
    roster: &Roster,
    query: &Query,
    memory: Option<&mut Memory>,
    mut proof: Option<&mut ProofWriter>,
    sink: &mut dyn Sink,
) -> Result<Report, Failure> {
    let body = Bytes::from(query.to_json());
    let mut answer = client.post(paths::QUERY, JSON, body).await?.expect(CBOR_SEQ)?;
    let mut session =
        Session::new(roster, query.clone(), memory.as_deref()).with_threads(all_threads());
    let (mut piece, mut has_ended) = (Vec::new(), Ok(false));
    while matches!(has_ended, Ok(false)) {
        piece.clear();
        // What came before an error counts: it may be refused for itself.
        has_ended = gather(&mut answer, &mut piece).await;
        if let Some(proof) = proof.as_deref_mut() {
            proof.write(&piece)?;
        }
        if let Err(stop) = session.feed(&piece, sink) {
            return Err(explained(client, roster, &session, stop).await);
        }
    }
    has_ended?;
    let (report, newest) = session.finish(sink)?;
    if let Some(memory) = memory {
        newest.into_iter().for_each(|(device, seal)| memory.remember(roster, device, seal));
    }
    Ok(report)
}

/// Collects a piece of the answer, or what has come of it when some of that has waited for [`PATIENCE`]; says whether the answer has
/// ended.
async fn gather(answer: &mut Response, piece: &mut Vec<u8>) -> Result<bool, NetError> {
    let mut due = None;
    while piece.len() < PIECE {
        let chunk = match due {
            None => answer.chunk().await,
            Some(due) => match timeout_at(due, answer.chunk()).await {
                Ok(chunk) => chunk,
                Err(_) => return Ok(false),
            },
        };
        match chunk? {
            Some(chunk) => piece.extend_from_slice(&chunk),
            None => return Ok(true),
        }
        due = due.or_else(|| Some(Instant::now() + PATIENCE));
    }
    Ok(false)
}

async fn explained(client: &Client, roster: &Roster, session: &Session<'_>, stop: Stop) -> Failure {
    let Stop::Refused(refusal) = stop else { return stop.into() };
    let finding = if refusal.is_unproven_run() {
        explain(client, roster, session.suspects()).await
    } else {
        None
    };
    Failure::Refused(Box::new(Refused { refusal, finding }))
}

/// Compares the parts of a run that is not proven with their explaining forms, oldest first, and gives the first disagreement.
pub(crate) async fn explain(
    client: &Client,
    roster: &Roster,
    suspects: &[Suspect],
) -> Option<Finding> {
    for suspect in suspects {
        let statement = suspect.seal.statement();
        let (device, index, epoch) = (statement.device, statement.index, statement.epoch);
        if let Some(what) = disagreement(client, roster, suspect).await {
            return Some(Finding { device, index, epoch, what });
        }
    }
    let statement = suspects.last()?.seal.statement();
    let (device, index, epoch) = (statement.device, statement.index, statement.epoch);
    Some(Finding { device, index, epoch, what: Disagreement::Signature })
}

/// Compares one part with its explaining form; `None` if it is what the device sealed.
async fn disagreement(client: &Client, roster: &Roster, suspect: &Suspect) -> Option<Disagreement> {
    let (device, index) = (suspect.seal.statement().device, suspect.seal.statement().index);
    let explained = match fetch(client, &paths::explain(device, index), MAX_EXPLANATION)
        .await
        .map(|answer| explanation(&answer))
    {
        Ok(Ok(explained)) => explained,
        Ok(Err(what)) => return Some(what),
        Err(error) => return Some(Disagreement::Withheld { cause: error.to_string() }),
    };
    let found = examine(suspect, roster, &explained).err()?;
    if found != (moteseal_verify::Finding::Path { seq: None }) {
        return Some(Disagreement::Differs(found));
    }
    // A tree's events or the digests beside them: the whole bundle shows which, where the store gives it.
    let bundle = fetch(client, &paths::bundle(device, index), MAX_BUNDLE).await.ok();
    let digests =
        bundle.and_then(|bundle| leaves(roster, &explained, &bundle, suspect.schema.framing));
    let precise = digests
        .and_then(|digests| examine(suspect, roster, &Explained { digests, ..explained }).err());
    Some(Disagreement::Differs(precise.unwrap_or(found)))
}

async fn fetch(client: &Client, path: &str, limit: usize) -> Result<Vec<u8>, NetError> {
    client.get(path).await?.expect(CBOR_SEQ)?.bytes(limit).await
}
