//! Answering queries: each epoch of a query at most once, even if the mote is killed, and each
//! answer stated in a seal (docs/design.md, sums).
//!
//! A permit is in the journal, and synced, before anything can be encrypted with it. If the mote is
//! killed between the permit and the answer, its seal states an answer that never arrived. That
//! costs one epoch of the query, but never a key.

use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::signature::Signer;
use moteseal_sum::guard::{EpochGuard, GuardError, Permit};
use moteseal_sum::query::QueryId;

use super::entry::Input;
use super::{DurableError, DurableMote};

/// No further answer is permitted while this many runs of answers are in no seal.
pub const MOST_UNSTATED: usize = 64;
/// At most this many seals are closed to make room for one answer: enough for all unstated runs,
/// eight per seal.
const MOST_PARTS: usize = MOST_UNSTATED / moteseal_seal::MAX_ANSWERED + 1;

named_errors! {
    /// Why an epoch of a query was not answered.
    AnswerRefused {
        /// [`DurableMote::begin_answers`] was not called for this journal.
        NotBegun => "the time from which the device may answer is not known",
        /// The epoch was answered, or may have been.
        Guard(error: GuardError) => forward,
        /// Too many answers are waiting for a seal that states them.
        AnswersFull => (
            "{MOST_UNSTATED} runs of answers wait for a seal that states them; let the gateway \
             receive the seals that wait"
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
        } => "the newer query schedule {newest} was accepted before",
        /// A different schedule with the same number was accepted before.
        TwoAgendas => "the querier signed two query schedules with the same number",
    }
}

impl<K: Signer> DurableMote<K> {
    /// Permits answers from `unix_ms` on, which must be a trusted time. A new journal does not know
    /// earlier answers, for example if the previous one was moved away: no epoch that starts before
    /// this time is answered. Only the first call for a journal has an effect.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn begin_answers(&mut self, unix_ms: u64) -> Result<(), DurableError> {
        if self.guard.is_some() {
            return Ok(());
        }
        self.input(&Input::Guard(Box::new(EpochGuard::starting_at(unix_ms))))
    }

    /// Permits one answer to an epoch of a query, whose epochs are `duration_ms` milliseconds long.
    /// When this returns, the journal durably states that the epoch was answered, and the open or
    /// the next seal will state it.
    ///
    /// # Errors
    /// The inner [`AnswerRefused`]: nothing may be sent for this epoch. Otherwise [`DurableError`],
    /// with the same consequence.
    pub fn answer(
        &mut self,
        query: QueryId,
        duration_ms: u64,
        epoch: u64,
    ) -> Result<Result<Permit, AnswerRefused>, DurableError> {
        let Some(guard) = &self.guard else { return Ok(Err(AnswerRefused::NotBegun)) };
        // The guard itself advances when the input is applied, as it does when the journal is
        // replayed.
        let permit = match EpochGuard::clone(guard).advance(query, duration_ms, epoch) {
            Ok(permit) => permit,
            Err(error) => return Ok(Err(AnswerRefused::Guard(error))),
        };
        if !self.makes_room(query, epoch)? {
            return Ok(Err(AnswerRefused::AnswersFull));
        }
        self.input(&Input::Answered { query, duration_ms, epoch })?;
        self.sync()?;
        Ok(Ok(permit))
    }

    /// Closes seals until one has room for this answer, unless a waiting seal would have to be
    /// given up. Returns whether a seal will state the answer.
    fn makes_room(&mut self, query: QueryId, epoch: u64) -> Result<bool, DurableError> {
        for _ in 0..MOST_PARTS {
            if self.mote.would_state(query, epoch) {
                return Ok(true);
            }
            match self.mote.epoch() {
                Some(open) if self.mote.waiting() < self.most_waiting() => {
                    self.input(&Input::Part(open))?;
                }
                _ => break,
            }
        }
        Ok(self.mote.would_state(query, epoch) || self.mote.unstated().runs().len() < MOST_UNSTATED)
    }

    /// The number and the digest of the newest accepted query schedule.
    #[must_use]
    pub const fn schedule(&self) -> Option<(u64, Digest)> {
        self.schedule
    }

    /// Accepts a query schedule whose signature the caller has checked. It is durable when this
    /// returns, so an older schedule is never accepted again. Returns whether it is new.
    ///
    /// # Errors
    /// The inner [`QueryScheduleRefused`]: the schedule must have no effect. Otherwise
    /// [`DurableError`], with the same consequence.
    pub fn accept_schedule(
        &mut self,
        number: u64,
        digest: Digest,
    ) -> Result<Result<bool, QueryScheduleRefused>, DurableError> {
        match self.schedule {
            Some((newest, _)) if number < newest => {
                return Ok(Err(QueryScheduleRefused::OlderAgenda { newest }));
            }
            Some((newest, known)) if number == newest && known != digest => {
                return Ok(Err(QueryScheduleRefused::TwoAgendas));
            }
            // Accepted before, but perhaps not synced.
            Some((newest, _)) if number == newest => return self.sync().map(|()| Ok(false)),
            _ => {}
        }
        self.input(&Input::QuerySchedule(number, digest))?;
        self.sync()?;
        Ok(Ok(true))
    }
}
