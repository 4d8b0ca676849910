//! Answers to queries. The mote answers each epoch of a query at most once, states each answer in a
//! seal, and keeps the newest policy and the budget that it has spent (spec/mote.md, section 3.3).

use moteseal_core::digest::Digest;
use moteseal_seal::Answered;
use moteseal_sum::guard::{EpochGuard, GuardError, Permit};
use moteseal_sum::policy::{Ledger, NotPermitted};
use moteseal_sum::query::QueryId;

use super::fields::Content;
use super::{ANSWERED, Durable, GUARD, LEDGER, MAX_UNSTATED, POLICY, QUERY_SCHEDULE, Runs};
use crate::flash::Flash;
use crate::journal::JournalError;

/// Why an epoch of a query is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerRefused {
    /// The epoch was answered, or may have been answered.
    Guard(GuardError),
    /// There are too many answers that no seal states yet.
    Full,
    /// The budget of the day is spent.
    Budget(NotPermitted),
}

impl AnswerRefused {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guard(error) => error.name(),
            Self::Full => "AnswersFull",
            Self::Budget(error) => error.name(),
        }
    }
}

/// Adds an answer, unless this needs a new run and the unreserved half of the runs is full. Returns
/// whether the answer was added.
pub(super) fn add_answer(runs: &mut Runs, query: QueryId, epoch: u64) -> bool {
    let touches = |run: &&mut Answered| {
        run.query == query.0 && run.first.checked_add(u64::from(run.count)) == Some(epoch)
    };
    if let Some(last) = runs.iter_mut().flatten().find(touches)
        && let Some(count) = last.count.checked_add(1)
    {
        last.count = count;
        return true;
    }
    let used = runs.iter().flatten().count();
    match runs.get_mut(used) {
        Some(place) if used < MAX_UNSTATED / 2 => {
            *place = Some(Answered { query: query.0, first: epoch, count: 1 });
            true
        }
        _ => false,
    }
}

/// Returns the start of an epoch in Unix milliseconds.
const fn start_of((duration_ms, epoch): (u64, u64)) -> u64 {
    epoch.saturating_mul(duration_ms)
}

impl<F: Flash> Durable<F> {
    /// Checks whether [`answer`](Self::answer) would permit an answer, and whether the budget of its querier
    /// suffices. `charge` is its epsilon and this budget, in thousandths, if it costs any. Returns what is
    /// spent with the answer (spec/policy.md, section 4).
    ///
    /// # Errors
    /// [`AnswerRefused`].
    pub fn check_answer(
        &self,
        query: QueryId,
        at: (u64, u64),
        is_running: &dyn Fn(QueryId) -> bool,
        charge: Option<(u32, u32)>,
    ) -> Result<Option<Ledger>, AnswerRefused> {
        self.permitted(query, at, is_running)?;
        let Some((epsilon, budget)) = charge else { return Ok(None) };
        let mut ledger = self.memory.ledger.unwrap_or_default();
        ledger.charge(start_of(at), epsilon, budget).map_err(AnswerRefused::Budget)?;
        Ok(Some(ledger))
    }

    /// Returns the permit of an answer, and the query that the guard forgets for it.
    fn permitted(
        &self,
        query: QueryId,
        at: (u64, u64),
        is_running: &dyn Fn(QueryId) -> bool,
    ) -> Result<(Permit, Option<QueryId>), AnswerRefused> {
        // A copy of the guard; the guard itself changes when the record is applied.
        let mut guard = self.memory.guard.clone();
        let guard = guard.get_or_insert_with(|| EpochGuard::starting_at(start_of(at)));
        let ended = guard.to_forget(query, is_running);
        ended.into_iter().for_each(|ended| guard.forget(ended));
        let permit = guard.advance(query, at.0, at.1).map_err(AnswerRefused::Guard)?;
        if add_answer(&mut { self.memory.unstated }, query, at.1) {
            Ok((permit, ended))
        } else {
            Err(AnswerRefused::Full)
        }
    }

    /// Records what is spent. The method returns only after it is durable. Call it before
    /// [`answer`](Self::answer).
    ///
    /// # Errors
    /// [`JournalError`]: the mote must send nothing for this epoch.
    pub fn spend(&mut self, ledger: Ledger) -> Result<(), JournalError> {
        self.record(LEDGER, Content::new().put(&ledger.encode())?)
    }

    /// Permits one answer to an epoch of a query. `at` is the length of the query's epochs in milliseconds,
    /// and the epoch. `is_running` returns whether the mote answers a query; none of these is forgotten.
    /// The method returns only after the permit is durable, so that the mote never encrypts twice for one
    /// epoch. If the journal has no guard yet, the guard permits only epochs from this one on.
    ///
    /// # Errors
    /// [`AnswerRefused`] in the inner result, [`JournalError`] in the outer one. In both cases the
    /// mote must not encrypt anything.
    pub fn answer(
        &mut self,
        query: QueryId,
        at: (u64, u64),
        is_running: &dyn Fn(QueryId) -> bool,
    ) -> Result<Result<Permit, AnswerRefused>, JournalError> {
        let (permit, ended) = match self.permitted(query, at, is_running) {
            Ok(permitted) => permitted,
            Err(refused) => return Ok(Err(refused)),
        };
        if self.memory.guard.is_none() {
            let new = EpochGuard::starting_at(start_of(at));
            self.record(GUARD, Content::new().put(&new.encode())?)?;
        }
        let mut content = Content::new();
        content.put(&query.0)?.put(&at.0.to_be_bytes())?.put(&at.1.to_be_bytes())?;
        if let Some(ended) = ended {
            content.put(&ended.0)?;
        }
        self.record(ANSWERED, &content)?;
        Ok(Ok(permit))
    }

    /// Records that a query schedule was accepted. The caller must have checked the schedule's
    /// signature. Older schedules are not accepted afterwards.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn accept_schedule(&mut self, number: u64, digest: Digest) -> Result<(), JournalError> {
        self.record(QUERY_SCHEDULE, Content::new().put(&number.to_be_bytes())?.put(&digest.0)?)
    }

    /// Records the payload of a policy, which replaces the one before it. The caller must have checked
    /// that the operator signed it, and that its version is above that of the one before it.
    ///
    /// # Errors
    /// [`JournalError`]; `Full` if the payload has more than
    /// [`MAX_POLICY_PAYLOAD`](moteseal_core::provision::MAX_POLICY_PAYLOAD) bytes.
    pub fn accept_policy(&mut self, payload: &[u8]) -> Result<(), JournalError> {
        if payload.len() > self.memory.policy.len() {
            return Err(JournalError::Full);
        }
        self.record(POLICY, Content::new().put(payload)?)
    }
}
