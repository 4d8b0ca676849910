//! What a durable mote does with the acknowledgements and refusals of its gateway
//! (spec/coordinator.md, section 5).

use moteseal_core::link::FrameError;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::Signer;
use moteseal_seal::wire::{EventAnswer, HealthSession, Refusal};
use tracing::warn;

use super::entry::Input;
use super::{DurableError, DurableMote};
use crate::mote::{Received, Unstated};

impl<K: Signer> DurableMote<K> {
    /// Returns the number of acknowledgements that were ignored because they state an index or an
    /// epoch that the device cannot have reached, since the device was opened.
    #[must_use]
    pub const fn implausible(&self) -> u64 {
        self.implausible
    }

    /// Returns whether the gateway has begun another session of reports of health since the last call.
    pub const fn take_reports_again(&mut self) -> bool {
        core::mem::replace(&mut self.reports_again, false)
    }

    /// Sets the latest epoch that the gateway can have a seal of, by the device's clock.
    pub const fn set_latest_epoch(&mut self, latest: EpochNumber) {
        self.mote.set_latest_epoch(latest);
    }

    /// Receives a frame of the gateway. Returns whether it changed anything that is waiting.
    ///
    /// # Errors
    /// The inner [`FrameError`] if the frame is not valid or not from the gateway. Otherwise
    /// [`DurableError`].
    pub fn acknowledged(&mut self, frame: &[u8]) -> Result<Result<bool, FrameError>, DurableError> {
        if EventAnswer::is_claimed(frame) {
            return self.receive_event_answer(frame);
        }
        if Refusal::is_claimed(frame) {
            return self.receive_refusal(frame);
        }
        if HealthSession::is_claimed(frame) {
            // It is not written to the journal: after a restart the gateway begins another one.
            let is_new = self.mote.open_health_session(frame);
            self.reports_again |= is_new.unwrap_or_default();
            return Ok(is_new.map(|_| false));
        }
        // Most acknowledgements change nothing. They are not written to the journal.
        let (sent_before, waiting) = (self.mote.sent_before(), self.mote.waiting());
        let result = self.mote.acknowledged(frame);
        if self.mote.sent_before() != sent_before {
            self.append(&Input::SentBefore(None))?;
        }
        match result {
            Ok(Received::Progress(progress)) => {
                self.append(&Input::Progress(progress))?;
                // After a restart without this, the device would send a whole seal that is stored.
                self.needs_sync |= self.mote.waiting() < waiting;
                self.tidy()?;
            }
            Ok(Received::Ahead(rollback)) => {
                warn!(
                    stored = rollback.stored.map(|stored| stored.index.0),
                    stored_digest = rollback.stored.map(|stored| stored.digest.to_string()),
                    signed = rollback.signed.map(|(index, _)| index.0),
                    signed_digest = rollback.signed.map(|(_, digest)| digest.to_string()),
                    continues_at = rollback.next_index.0,
                    given_up_readings = rollback.readings,
                    "{rollback}; sealing continues after a gap"
                );
                self.rollbacks += 1;
                self.input(&Input::ContinueAfter(rollback.next_index, rollback.stored))?;
                self.record_urgent_again()?;
            }
            Ok(Received::Implausible) => {
                if self.implausible == 0 {
                    warn!(
                        "the gateway acknowledges an index or an epoch that this device cannot have \
                         reached; such acknowledgements are ignored: check the gateway and the \
                         device's clock"
                    );
                }
                self.implausible += 1;
            }
            _ => {}
        }
        if let Some(index) = self.mote.abandoned() {
            warn!(
                seal = index.0,
                "the gateway has lost acknowledged data of a seal; the seal is given up"
            );
            self.give_up(index)?;
        }
        Ok(result.map(|received| !matches!(received, Received::Nothing | Received::Implausible)))
    }

    /// Gives up a seal that the gateway refuses, if the seal would otherwise delay all later seals
    /// forever. If the seal is open, the next seal states the gap. If the seal was already signed,
    /// the device stops sending it, and it is missing from the chain.
    fn receive_refusal(&mut self, frame: &[u8]) -> Result<Result<bool, FrameError>, DurableError> {
        Ok(match self.mote.refused(frame) {
            Ok(Some((index, name))) => {
                warn!(seal = index.0, name, "the gateway refuses a seal; the seal is given up");
                self.give_up(index)?;
                self.refused += 1;
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Gives up a seal. The next seal that is opened states the answers of this seal.
    fn give_up(&mut self, index: SealIndex) -> Result<(), DurableError> {
        // Store the seal's answers in the record, because a replay of the journal may not have the
        // seal.
        let mut answers = Unstated::default();
        answers.add_all(&self.mote.answers_of(index));
        self.input(&Input::GiveUp(index, answers))
    }
}
