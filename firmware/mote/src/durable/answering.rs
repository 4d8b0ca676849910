//! Answers to queries. The mote answers each epoch of a query at most once, states each answer in a
//! seal, and keeps the newest policy and the budget that it has spent (spec/mote.md, section 3.3).

use moteseal_core::digest::Digest;
use moteseal_seal::Answered;
use moteseal_sum::guard::{EpochGuard, GuardError, Permit};
use moteseal_sum::policy::NotPermitted;
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

impl<F: Flash> Durable<F> {
    /// Charges an answer with noise to the budget (spec/policy.md, section 4). `start_ms` is the start
    /// of its epoch in Unix milliseconds. The method returns only after the charge is durable.
    ///
    /// # Errors
    /// `BudgetSpent` in the inner result, [`JournalError`] in the outer one. In both cases the mote
    /// must send nothing for this epoch.
    pub fn charge(
        &mut self,
        start_ms: u64,
        epsilon: u32,
        budget: u32,
    ) -> Result<Result<(), NotPermitted>, JournalError> {
        let mut ledger = self.memory.ledger.unwrap_or_default();
        if let Err(error) = ledger.charge(start_ms, epsilon, budget) {
            return Ok(Err(error));
        }
        self.record(LEDGER, Content::new().put(&ledger.encode())?).map(Ok)
    }

    /// Permits one answer to an epoch of a query. `running` returns whether the mote answers a query;
    /// none of these is forgotten. The method returns only after the permit is durable, so that the
    /// mote never encrypts twice for one epoch. If the journal has no guard yet, the guard permits only
    /// epochs from this one on.
    ///
    /// # Errors
    /// [`AnswerRefused`] in the inner result, [`JournalError`] in the outer one. In both cases the
    /// mote must not encrypt anything.
    pub fn answer(
        &mut self,
        query: QueryId,
        duration_ms: u64,
        epoch: u64,
        is_running: impl Fn(QueryId) -> bool,
    ) -> Result<Result<Permit, AnswerRefused>, JournalError> {
        let new = || EpochGuard::starting_at(epoch.saturating_mul(duration_ms));
        // Only check the epoch, with a copy of the guard.
        let mut guard = self.memory.guard.clone().unwrap_or_else(new);
        let ended = guard.to_forget(query, is_running);
        ended.into_iter().for_each(|ended| guard.forget(ended));
        let permit = match guard.advance(query, duration_ms, epoch) {
            Ok(permit) => permit,
            Err(error) => return Ok(Err(AnswerRefused::Guard(error))),
        };
        if !add_answer(&mut { self.memory.unstated }, query, epoch) {
            return Ok(Err(AnswerRefused::Full));
        }
        if self.memory.guard.is_none() {
            self.record(GUARD, Content::new().put(&new().encode())?)?;
        }
        let mut content = Content::new();
        content.put(&query.0)?.put(&duration_ms.to_be_bytes())?.put(&epoch.to_be_bytes())?;
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
