//! The state of a querier: a file with the number of the newest query schedule, that schedule, and
//! the queries that have not ended.
//!
//! A group has one query schedule, which contains all running queries. Several processes can run
//! queries with one state file: each of them changes the file under a lock, and then announces the
//! schedule with the queries of all of them. A query stays in the file until it ends or is stopped.
//! If its process is killed, another process can therefore continue it.
//!
//! The numbers always increase, even if the clock is set back: a number is durable before it is
//! used.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use moteseal_api::ErrorKind;
use moteseal_broadcast::SealError;
use moteseal_core::digest::Digest;
use moteseal_core::signature::KeyPair;
use moteseal_sum::key_file::Circle;
use moteseal_sum::query::{Plan, QueryId};
use moteseal_sum::schedule::{MAX_QUERIES, MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use serde::{Deserialize, Serialize};

/// The maximum number of queries in the file that do not run.
const MAX_LEFT: usize = 64;
/// How long a process waits for another one that changes the file.
const LOCKED_FOR: Duration = Duration::from_secs(5);
/// The interval at which a locked file is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// The maximum length of the file in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Why a querier cannot use its state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuerierStateError {
    /// Another process changes the file, and does not finish.
    #[error("another process has locked {} for several seconds; end that process", _0.display())]
    Busy(PathBuf),
    /// Another process runs this query.
    #[error("another process runs the query {0}; stop it first: moteseal sum stop {0}")]
    Running(QueryId),
    /// The file does not contain the state of a querier.
    #[error("{} does not contain the state of a querier; is it the right file?", _0.display())]
    NotAState(PathBuf),
    /// The file cannot be read or written.
    #[error("cannot use {}: {_1}", _0.display())]
    File(PathBuf, io::Error),
    /// The group already has the maximum number of running queries.
    #[error(
        "{MAX_QUERIES} queries run already, which is the maximum; list them with `moteseal sum \
         list`, and stop one with `moteseal sum stop`"
    )]
    TooManyQueries,
    /// The file has the maximum number of queries that have not ended.
    #[error(
        "{} has {MAX_LEFT} queries that were neither ended nor stopped; stop them with `moteseal \
         sum stop`",
        _0.display()
    )]
    TooManyLeft(PathBuf),
    /// The file has no such query.
    #[error("{} has no query {_1}; `moteseal sum list` shows all of them", _0.display())]
    UnknownQuery(PathBuf, String),
    /// The query schedule could not be signed.
    #[error(transparent)]
    Issue(#[from] SealError),
}

impl QuerierStateError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Busy(_) | Self::Running(_) => "QuerierBusy",
            Self::NotAState(_) => "NotAState",
            Self::File(..) => "StateUnusable",
            Self::TooManyQueries | Self::TooManyLeft(_) => "TooManyQueries",
            Self::UnknownQuery(..) => "UnknownQuery",
            Self::Issue(_) => "Failed",
        }
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::File(_, error) if error.kind() != io::ErrorKind::NotFound => ErrorKind::Internal,
            Self::Issue(_) => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(QuerierStateError);

/// A query that has been asked, and has neither ended nor been stopped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskedQuery {
    /// The random number in the query's id.
    #[serde(with = "hex")]
    pub nonce: [u8; 16],
    /// The encoded plan.
    #[serde(with = "hex")]
    pub plan: Vec<u8>,
    /// The first epoch.
    pub first: u64,
    /// The end of the lease: the first epoch that devices do not answer unless the lease is renewed.
    pub until: u64,
    /// The length of an epoch in milliseconds. The plan has it, too; the lease of a query ends also if
    /// another version of Moteseal has encoded the plan.
    pub epoch_ms: u32,
    /// The first epoch after the last one to ask; `None` for a query without an end.
    pub end: Option<u64>,
    /// The minimum number of participants, if it is not the default.
    pub floor: Option<u32>,
    /// The minimum number of readings for which results are not withheld.
    pub min_count: u32,
}

impl AskedQuery {
    /// Returns whether devices still answer the query at this time, in Unix milliseconds.
    #[must_use]
    pub fn is_asked(&self, unix_ms: u64) -> bool {
        unix_ms / u64::from(self.epoch_ms.max(1)) < self.until
    }

    /// Returns the query in canonical form; `None` if another version of Moteseal has encoded the plan.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        Plan::decode(&self.plan).ok().map(|plan| plan.to_string())
    }

    fn posed(&self) -> Posed<'_> {
        Posed { nonce: self.nonce, first: self.first, until: self.until, plan: &self.plan }
    }
}

/// The content of the file after its first line, which is the number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// The digest of version 0 of the group's roster.
    #[serde(with = "hex")]
    roster: [u8; 32],
    /// The maximum number of sources that a process has asked.
    sources: u32,
    /// The newest query schedule, signed.
    #[serde(with = "hex")]
    schedule: Vec<u8>,
    queries: Vec<AskedQuery>,
}

/// The state file of a querier.
#[derive(Clone, Debug)]
pub struct QuerierState {
    path: PathBuf,
}

/// A query that this process runs. No other process can run it until the value is dropped.
#[derive(Debug)]
pub struct RunningQuery {
    place: usize,
    /// The locked file of the place, which contains the query's id.
    _lock: File,
}

impl RunningQuery {
    /// Returns the place of the query among the running ones, from 1 on. No other running query has it.
    #[must_use]
    pub const fn place(&self) -> usize {
        self.place
    }
}

impl QuerierState {
    /// Opens a state. A file that does not exist is the state of a querier that has asked nothing.
    ///
    /// # Errors
    /// [`QuerierStateError`] if the file does not contain the state of a querier, or cannot be read
    /// or written.
    pub fn open(path: &Path) -> Result<Self, QuerierStateError> {
        let state = Self { path: path.to_owned() };
        let lock = state.lock()?;
        let (number, content) = state.read()?.unwrap_or_default();
        // If the file cannot be written, the error is reported now and not while a query runs.
        state.write(number, &content)?;
        drop(lock);
        Ok(state)
    }

    /// Returns the queries that have neither ended nor been stopped, and whether a process runs each
    /// of them.
    ///
    /// # Errors
    /// [`QuerierStateError`] if the file cannot be read.
    pub fn queries(&self) -> Result<Vec<(QueryId, AskedQuery, bool)>, QuerierStateError> {
        let lock = self.lock()?;
        let (_, content) = self.read()?.unwrap_or_default();
        let running = self.places()?.1;
        drop(lock);
        let roster = Digest(content.roster);
        let listed = content.queries.into_iter().map(|query| {
            let id = query.posed().id(&roster);
            (id, query, running.contains(&id))
        });
        Ok(listed.collect())
    }

    /// Returns the query whose id, as hexadecimal digits, begins with `digits`.
    ///
    /// # Errors
    /// [`QuerierStateError::UnknownQuery`] if there is no such query, or if there are several, and
    /// the errors of [`queries`](Self::queries).
    pub fn find(&self, digits: &str) -> Result<(QueryId, AskedQuery), QuerierStateError> {
        let digits = digits.to_ascii_lowercase();
        let mut found =
            self.queries()?.into_iter().filter(|(id, ..)| id.to_string().starts_with(&digits));
        match (found.next(), found.next()) {
            (Some((id, query, _)), None) => Ok((id, query)),
            _ => Err(QuerierStateError::UnknownQuery(self.path.clone(), digits)),
        }
    }

    /// Reserves a query for this process.
    ///
    /// # Errors
    /// [`QuerierStateError::Running`] if another process runs it,
    /// [`TooManyQueries`](QuerierStateError::TooManyQueries), and
    /// [`File`](QuerierStateError::File).
    pub fn reserve(&self, id: QueryId) -> Result<RunningQuery, QuerierStateError> {
        let _lock = self.lock()?;
        let (free, running) = self.places()?;
        if running.contains(&id) {
            return Err(QuerierStateError::Running(id));
        }
        let (place, mut lock) = free.ok_or(QuerierStateError::TooManyQueries)?;
        let written = lock.set_len(0).and_then(|()| lock.write_all(&id.0));
        written.map_err(|error| QuerierStateError::File(self.place(place), error))?;
        Ok(RunningQuery { place, _lock: lock })
    }

    /// Returns the file of a place for a running query.
    fn place(&self, place: usize) -> PathBuf {
        self.with_ending(&format!(".run{place}"))
    }

    /// Returns a place for another running query with its locked file, if there is one, and the queries
    /// that run. The caller has locked the state.
    #[expect(clippy::type_complexity, reason = "used twice, directly after the call")]
    fn places(&self) -> Result<(Option<(usize, File)>, Vec<QueryId>), QuerierStateError> {
        let (mut free, mut running) = (None, Vec::new());
        for place in 1..=MAX_QUERIES {
            let path = self.place(place);
            let mut file = open_lock(&path)?;
            if try_lock(&file, &path)? {
                free = free.or(Some((place, file)));
                continue;
            }
            let mut id = [0; 16];
            // A process that has just reserved the place holds the lock of the state.
            file.read_exact(&mut id).map_err(|error| QuerierStateError::File(path, error))?;
            running.push(QueryId(id));
        }
        Ok((free, running))
    }

    /// Adds a query, or replaces it, and returns the new query schedule, signed.
    ///
    /// # Errors
    /// [`QuerierStateError`]. The state has then not changed.
    pub fn ask(
        &self,
        of: &Circle,
        query: &AskedQuery,
        signer: &dyn KeyPair,
        unix_ms: u64,
    ) -> Result<Vec<u8>, QuerierStateError> {
        self.change(of, signer, unix_ms, |content| {
            match content.find(query) {
                Some(known) => *known = query.clone(),
                None => content.queries.push(query.clone()),
            }
            let asked = content.queries.iter().filter(|query| query.is_asked(unix_ms)).count();
            if asked > MAX_QUERIES {
                return Err(QuerierStateError::TooManyQueries);
            }
            if content.queries.len() - asked > MAX_LEFT {
                return Err(QuerierStateError::TooManyLeft(self.path.clone()));
            }
            Ok(())
        })
    }

    /// Replaces a query, and returns the new query schedule, signed; `None` if the query was stopped.
    ///
    /// # Errors
    /// [`QuerierStateError`]. The state has then not changed.
    pub fn renew(
        &self,
        of: &Circle,
        query: &AskedQuery,
        signer: &dyn KeyPair,
        unix_ms: u64,
    ) -> Result<Option<Vec<u8>>, QuerierStateError> {
        let mut is_asked = false;
        let schedule = self.change(of, signer, unix_ms, |content| {
            if let Some(known) = content.find(query) {
                (is_asked, *known) = (true, query.clone());
            }
            Ok(())
        })?;
        Ok(is_asked.then_some(schedule))
    }

    /// Removes a query, and returns the new query schedule, signed. The devices stop to answer the
    /// query when they receive it.
    ///
    /// # Errors
    /// [`QuerierStateError`]. The state has then not changed.
    pub fn withdraw(
        &self,
        of: &Circle,
        id: QueryId,
        signer: &dyn KeyPair,
        unix_ms: u64,
    ) -> Result<Vec<u8>, QuerierStateError> {
        self.change(of, signer, unix_ms, |content| {
            content.queries.retain(|query| query.posed().id(&of.roster) != id);
            Ok(())
        })
    }

    /// Returns the newest query schedule, signed; `None` if the query with this id was stopped.
    ///
    /// # Errors
    /// [`QuerierStateError`] if the file cannot be read.
    pub fn schedule_with(&self, id: QueryId) -> Result<Option<Vec<u8>>, QuerierStateError> {
        let gone = || {
            let error = io::Error::new(io::ErrorKind::NotFound, "the file was removed");
            QuerierStateError::File(self.path.clone(), error)
        };
        let (_, content) = self.read()?.ok_or_else(gone)?;
        let roster = Digest(content.roster);
        let is_asked = content.queries.iter().any(|query| query.posed().id(&roster) == id);
        Ok(is_asked.then_some(content.schedule))
    }

    /// Changes the queries and signs the new query schedule, under the lock.
    fn change(
        &self,
        of: &Circle,
        signer: &dyn KeyPair,
        unix_ms: u64,
        edit: impl FnOnce(&mut Content) -> Result<(), QuerierStateError>,
    ) -> Result<Vec<u8>, QuerierStateError> {
        let lock = self.lock()?;
        let (last, mut content) = self.read()?.unwrap_or_default();
        // The set-up was made again: the devices no longer answer the queries of the previous one.
        if content.roster != of.roster.0 {
            content = Content { roster: of.roster.0, ..Content::default() };
        }
        edit(&mut content)?;
        let asked: Vec<Posed<'_>> = content
            .queries
            .iter()
            .filter(|query| query.is_asked(unix_ms))
            .map(AskedQuery::posed)
            .collect();
        // Processes with different versions of the roster ask all sources that one of them knows.
        content.sources =
            if asked.len() > 1 { content.sources.max(of.sources) } else { of.sources };
        let number = unix_ms.max(last.saturating_add(1));
        let draft = QueryScheduleDraft {
            group: of.group,
            roster: of.roster,
            number,
            sources: content.sources,
            key_group: of.key_group,
            queries: &asked,
        };
        let (mut scratch, mut out) = (vec![0; MAX_QUERY_SCHEDULE], vec![0; MAX_QUERY_SCHEDULE]);
        content.schedule = draft.issue(signer, &mut scratch, &mut out)?.to_vec();
        self.write(number, &content)?;
        drop(lock);
        Ok(content.schedule)
    }

    /// Waits until no other process changes the file.
    fn lock(&self) -> Result<File, QuerierStateError> {
        let path = self.with_ending(".lock");
        let file = open_lock(&path)?;
        let end = Instant::now() + LOCKED_FOR;
        while !try_lock(&file, &path)? {
            if Instant::now() >= end {
                return Err(QuerierStateError::Busy(self.path.clone()));
            }
            std::thread::sleep(TRY_AGAIN);
        }
        Ok(file)
    }

    /// Returns the path of a file next to the state file.
    fn with_ending(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    }

    /// Reads the number and the content; `None` if there is no file.
    fn read(&self) -> Result<Option<(u64, Content)>, QuerierStateError> {
        let fail = |error| QuerierStateError::File(self.path.clone(), error);
        let not_a_state = || QuerierStateError::NotAState(self.path.clone());
        match std::fs::metadata(&self.path) {
            Ok(about) if about.is_file() && about.len() > MAX_FILE => return Err(not_a_state()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(_) | Err(_) => {}
        }
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(not_a_state()),
            Err(error) => return Err(fail(error)),
        };
        if text.is_empty() {
            return Ok(Some(Default::default()));
        }
        // Earlier versions wrote only the number.
        let (number, content) = text.split_once('\n').unwrap_or((&text, ""));
        let number = number.trim_ascii().parse().map_err(|_| not_a_state())?;
        let content = match content.trim_ascii() {
            "" => Content::default(),
            json => serde_json::from_str(json).map_err(|_| not_a_state())?,
        };
        Ok(Some((number, content)))
    }

    fn write(&self, number: u64, content: &Content) -> Result<(), QuerierStateError> {
        let fail = |error| QuerierStateError::File(self.path.clone(), error);
        let json = serde_json::to_string(content).map_err(|error| fail(error.into()))?;
        let text = format!("{number:020}\n{json}\n");
        moteseal_files::replace(&self.path, text.as_bytes(), moteseal_files::PRIVATE).map_err(fail)
    }
}

impl Content {
    fn find(&mut self, query: &AskedQuery) -> Option<&mut AskedQuery> {
        let is_same =
            |known: &&mut AskedQuery| (known.nonce, &known.plan) == (query.nonce, &query.plan);
        self.queries.iter_mut().find(is_same)
    }
}

fn open_lock(path: &Path) -> Result<File, QuerierStateError> {
    let opened = moteseal_files::private().read(true).write(true).create(true).open(path);
    opened.map_err(|error| QuerierStateError::File(path.to_owned(), error))
}

/// Tries to lock a file. If the file system does not support locks, the result is as if no other
/// process existed.
fn try_lock(file: &File, path: &Path) -> Result<bool, QuerierStateError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(true),
        Err(TryLockError::Error(error)) => Err(QuerierStateError::File(path.to_owned(), error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::record::GroupId;
    use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
    use moteseal_core::signature::{Algorithm, SecretKey};
    use moteseal_sum::query::MAX_PLAN;
    use moteseal_sum::schedule::{self, QuerySchedule};

    use super::*;

    const CIRCLE: Circle =
        Circle { group: GroupId([1; 8]), roster: Digest([2; 32]), sources: 5, key_group: 5 };

    fn signer() -> SecretKey {
        SecretKey::from_seed(Algorithm::Ed25519, &[3; 32]).unwrap()
    }

    /// Returns a query whose epochs have one second, with the epochs that its lease includes.
    fn query(nonce: u8, first: u64, until: u64) -> (QueryId, AskedQuery) {
        let mut buffer = [0; MAX_SCHEMA];
        let fields = [Field::parse("temperature:Cel:i16/100").unwrap()];
        let schema = Schema::encode(&fields, &mut buffer).unwrap();
        let text = "SELECT AVG(temperature) FROM sensors EPOCH DURATION 1s";
        let plan = Plan::parse(text, &schema).unwrap().encode(&mut [0; MAX_PLAN]).unwrap().to_vec();
        let (nonce, end, floor) = ([nonce; 16], None, None);
        let query =
            AskedQuery { nonce, plan, first, until, epoch_ms: 1000, end, floor, min_count: 5 };
        (query.posed().id(&CIRCLE.roster), query)
    }

    /// Returns the number of a signed query schedule, and its queries with their leases.
    fn opened(announcement: &[u8]) -> (u64, Vec<(QueryId, u64)>) {
        let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
        let key = signer().public();
        let message = schedule::receive(announcement, CIRCLE.group, &key, &mut scratch).unwrap();
        let schedule = QuerySchedule::open(&message, CIRCLE.group, &CIRCLE.roster).unwrap();
        (schedule.number(), schedule.queries().map(|(id, posed)| (id, posed.until)).collect())
    }

    #[test]
    fn numbers_increase_when_the_clock_is_set_back_and_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("querier.state");
        let (id, query) = query(1, 0, 9000);
        let ask = |unix_ms| {
            let state = QuerierState::open(&path).unwrap();
            opened(&state.ask(&CIRCLE, &query, &signer(), unix_ms).unwrap())
        };
        assert_eq!(ask(1_000_000), (1_000_000, vec![(id, 9000)]));
        assert_eq!(ask(5).0, 1_000_001);
        let state = QuerierState::open(&path).unwrap();
        assert_eq!(
            opened(&state.withdraw(&CIRCLE, id, &signer(), 7).unwrap()),
            (1_000_002, vec![])
        );
        assert_eq!(ask(2_000_000).0, 2_000_000);
        // Earlier versions wrote only the number.
        std::fs::write(&path, "00000000000003000000\n").unwrap();
        assert_eq!(ask(8).0, 3_000_001);
    }

    #[test]
    fn a_schedule_has_the_queries_of_all_processes_until_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("querier.state");
        let (one, other) = (QuerierState::open(&path).unwrap(), QuerierState::open(&path).unwrap());
        let ((a, first), (b, second)) = (query(1, 10, 100), query(2, 20, 40));
        one.ask(&CIRCLE, &first, &signer(), 15_000).unwrap();
        let schedule = other.ask(&CIRCLE, &second, &signer(), 15_000).unwrap();
        assert_eq!(opened(&schedule), (15_001, vec![(a, 100), (b, 40)]));
        assert_eq!(one.schedule_with(a).unwrap(), Some(schedule));
        // The process of the second query was killed, so that its lease ends. It can be continued.
        let schedule = one.ask(&CIRCLE, &first, &signer(), 40_000).unwrap();
        assert_eq!(opened(&schedule).1, [(a, 100)]);
        let (_, second) = other.find(&b.to_string()[..8]).unwrap();
        let schedule =
            other.ask(&CIRCLE, &AskedQuery { until: 90, ..second }, &signer(), 41_000).unwrap();
        assert_eq!(opened(&schedule).1, [(a, 100), (b, 90)]);
        // A stopped query is in no schedule and is not listed.
        other.withdraw(&CIRCLE, a, &signer(), 42_000).unwrap();
        assert_eq!(one.renew(&CIRCLE, &first, &signer(), 42_000).unwrap(), None);
        assert_eq!(one.schedule_with(a).unwrap(), None);
        assert_eq!(one.queries().unwrap().into_iter().map(|(id, ..)| id).collect::<Vec<_>>(), [b]);
        assert_eq!(one.find(&a.to_string()).unwrap_err().name(), "UnknownQuery");
        // A new set-up ends the queries of the previous one.
        let again = Circle { roster: Digest([9; 32]), ..CIRCLE };
        one.ask(&again, &first, &signer(), 43_000).unwrap();
        assert_eq!(one.queries().unwrap().len(), 1);
    }

    #[test]
    fn a_query_runs_in_one_process_and_a_group_has_at_most_four() {
        let folder = tempfile::tempdir().unwrap();
        let state = QuerierState::open(&folder.path().join("querier.state")).unwrap();
        let mut running = Vec::new();
        for number in 1..=4 {
            let (id, query) = query(number, 1, 100);
            running.push(state.reserve(id).unwrap());
            assert_eq!(state.reserve(id).unwrap_err().name(), "QuerierBusy");
            state.ask(&CIRCLE, &query, &signer(), 1000).unwrap();
        }
        assert!(state.queries().unwrap().iter().all(|(.., is_running)| *is_running));
        let (fifth, query) = query(5, 1, 100);
        assert_eq!(state.reserve(fifth).unwrap_err().name(), "TooManyQueries");
        assert_eq!(
            state.ask(&CIRCLE, &query, &signer(), 1000).unwrap_err().name(),
            "TooManyQueries"
        );
        assert_eq!(state.queries().unwrap().len(), 4);
        running.remove(1);
        let is_running: Vec<bool> =
            state.queries().unwrap().into_iter().map(|(.., is_running)| is_running).collect();
        assert_eq!(is_running, [true, false, true, true]);
        running.push(state.reserve(fifth).unwrap());
    }

    #[test]
    fn rejects_a_file_with_other_content_and_does_not_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        for text in ["remember the milk", "-4", "\u{0}", "5\nremember", "5\n{}"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(QuerierState::open(&path).unwrap_err().name(), "NotAState", "{text:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(QuerierState::open(folder.path()).unwrap_err().name(), "StateUnusable");
        let state = QuerierState::open(&folder.path().join("state")).unwrap();
        std::fs::remove_file(folder.path().join("state")).unwrap();
        assert_eq!(state.schedule_with(QueryId([0; 16])).unwrap_err().name(), "StateUnusable");
    }
}
