//! Answers queries. Each epoch of a query is answered at most once, even if the mote is killed, and
//! each answer is stated in a seal (docs/design.md, sums).
//!
//! The record of a permit is written to the journal and synced before anything can be encrypted
//! with the permit. If the mote is killed between the permit and the answer, its seal states an
//! answer that never arrived. The query then lacks this source's value for the epoch, but no key is
//! used twice.

use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::signature::Signer;
use moteseal_sum::QuerierName;
use moteseal_sum::guard::{EpochGuard, GuardError, Permit};
use moteseal_sum::policy::{Ledger, NotPermitted};
use moteseal_sum::query::QueryId;

use super::entry::Input;
use super::{DurableError, DurableMote};

/// The maximum number of runs of answers that no seal states yet. At this number, no further answer
/// is permitted.
pub const MOST_UNSTATED: usize = 64;
/// The maximum number of seals that are closed to make room for one answer. This many seals can
/// state all unstated runs, at eight runs per seal.
const MOST_PARTS: usize = MOST_UNSTATED / moteseal_seal::MAX_ANSWERED + 1;

named_errors! {
    /// Why an epoch of a query was not answered.
    AnswerRefused {
        /// [`DurableMote::begin_answers`] was not called for this journal.
        NotBegun => "the time from which this device may answer is not known yet",
        /// The epoch was answered before, or may have been.
        Guard(error: GuardError) => forward,
        /// The budget of the policy does not suffice.
        Budget(error: NotPermitted) => forward,
        /// Too many answers are waiting for a seal that states them.
        AnswersFull => (
            "{MOST_UNSTATED} runs of answers wait for a seal that states them; connect the device \
             to its gateway, which must receive the waiting seals first"
        ),
    }
}

named_errors! {
    /// Why a query schedule was rejected.
    QueryScheduleRefused {
        /// A schedule with a higher number was accepted before.
        OlderAgenda {
            /// The number of the newest accepted schedule.
            newest: u64,
        } => "a newer query schedule, number {newest}, was accepted before",
        /// A different schedule with the same number was accepted before.
        TwoAgendas => "the querier signed two query schedules with the same number",
    }
}

impl<K: Signer> DurableMote<K> {
    /// Permits answers to a querier for epochs that start at `unix_ms` or later. `unix_ms` must be a
    /// trusted time. The limit is needed because a new journal does not know earlier answers, for
    /// example if the previous journal was moved away. Only the first call for a journal and a querier
    /// has an effect.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn begin_answers(
        &mut self,
        querier: &QuerierName,
        unix_ms: u64,
    ) -> Result<(), DurableError> {
        if self.guards.contains_key(&querier.id()) {
            return Ok(());
        }
        self.input(&Input::Guard(querier.id(), Box::new(EpochGuard::starting_at(unix_ms))))
    }

    /// Permits one answer to an epoch of a query, whose epochs are `duration_ms` milliseconds long.
    /// `running` are the queries of this querier that the mote answers; none of them is forgotten.
    /// `charge` is the epsilon of an answer with noise, which is charged to the budget, and this budget,
    /// both in thousandths (spec/policy.md, section 4). When this function returns, the journal durably
    /// records the charge and that the epoch was answered, and the open seal or the next one will state
    /// the answer. An answer that is refused costs nothing.
    ///
    /// # Errors
    /// The inner [`AnswerRefused`] if the answer is not permitted, or [`DurableError`]. In both
    /// cases nothing may be sent for this epoch.
    pub fn answer(
        &mut self,
        querier: &QuerierName,
        query: QueryId,
        (duration_ms, epoch): (u64, u64),
        running: &[QueryId],
        charge: Option<(u32, u32)>,
    ) -> Result<Result<Permit, AnswerRefused>, DurableError> {
        let querier = querier.id();
        let Some(guard) = self.guards.get(&querier) else {
            return Ok(Err(AnswerRefused::NotBegun));
        };
        // Only check the epoch, with a copy of the guard. The guard itself advances when the inputs
        // are applied, which also happens when the journal is replayed.
        let mut guard = EpochGuard::clone(guard);
        let ended = guard.to_forget(query, |known| running.contains(&known));
        ended.into_iter().for_each(|ended| guard.forget(ended));
        let permit = match guard.advance(query, duration_ms, epoch) {
            Ok(permit) => permit,
            Err(error) => return Ok(Err(AnswerRefused::Guard(error))),
        };
        let ledger =
            match charge.map(|charge| self.charged((duration_ms, epoch), charge)).transpose() {
                Ok(ledger) => ledger,
                Err(error) => return Ok(Err(AnswerRefused::Budget(error))),
            };
        if !self.makes_room(query, epoch)? {
            return Ok(Err(AnswerRefused::AnswersFull));
        }
        if let Some(ledger) = ledger {
            self.input(&Input::Ledger(ledger))?;
        }
        if let Some(ended) = ended {
            self.input(&Input::Forget(querier, ended))?;
        }
        self.input(&Input::Answered { querier, query, duration_ms, epoch })?;
        self.sync()?;
        Ok(Ok(permit))
    }

    /// Returns the ledger after an answer is charged to it.
    fn charged(
        &self,
        (duration_ms, epoch): (u64, u64),
        (epsilon, budget): (u32, u32),
    ) -> Result<Ledger, NotPermitted> {
        let mut ledger = self.ledger.unwrap_or_default();
        ledger.charge(epoch.saturating_mul(duration_ms), epsilon, budget)?;
        Ok(ledger)
    }

    /// Closes seals until a seal has room for this answer. Stops if a waiting seal would have to be
    /// given up. Returns whether a seal will state the answer.
    fn makes_room(&mut self, query: QueryId, epoch: u64) -> Result<bool, DurableError> {
        for _ in 0..MOST_PARTS {
            if self.mote.would_state(query, epoch) {
                return Ok(true);
            }
            match self.mote.epoch() {
                Some(open) if self.mote.waiting() < self.most_waiting() => {
                    let keys = self.mote.new_keys(open)?;
                    self.input_with(&Input::Part(open), keys)?;
                }
                _ => break,
            }
        }
        Ok(self.mote.would_state(query, epoch) || self.mote.unstated().runs().len() < MOST_UNSTATED)
    }

    /// Returns the number and the digest of the newest accepted query schedule of a querier.
    #[must_use]
    pub fn schedule(&self, querier: &QuerierName) -> Option<(u64, Digest)> {
        self.schedules.get(&querier.id()).copied()
    }

    /// Accepts a query schedule of a querier. The caller has checked its signature. When this function
    /// returns, the acceptance is durable, so that an older schedule is never accepted again. Returns
    /// whether the schedule is new.
    ///
    /// # Errors
    /// The inner [`QueryScheduleRefused`] if the schedule is rejected, or [`DurableError`]. In both
    /// cases the schedule must have no effect.
    pub fn accept_schedule(
        &mut self,
        querier: &QuerierName,
        number: u64,
        digest: Digest,
    ) -> Result<Result<bool, QueryScheduleRefused>, DurableError> {
        match self.schedule(querier) {
            Some((newest, _)) if number < newest => {
                return Ok(Err(QueryScheduleRefused::OlderAgenda { newest }));
            }
            Some((newest, known)) if number == newest && known != digest => {
                return Ok(Err(QueryScheduleRefused::TwoAgendas));
            }
            // The schedule was accepted before, but the journal may not be synced yet.
            Some((newest, _)) if number == newest => return self.sync().map(|()| Ok(false)),
            _ => {}
        }
        self.input(&Input::QuerySchedule(querier.id(), number, digest))?;
        self.sync()?;
        Ok(Ok(true))
    }
}
