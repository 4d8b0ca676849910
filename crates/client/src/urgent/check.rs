//! Compares an urgent event with the seal that covers its reading (spec/objects.md, section 7.1;
//! spec/confidential.md, section 3).

use std::collections::BTreeMap;

use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_seal::sample::{Choice, ReadingRun, Readings};
use moteseal_verify::Urgent;

use crate::error::{Error, OutputError};
use crate::get::Client;
use crate::rows::Rows;

/// What the seal of an urgent event states about its reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrgentCheck {
    /// The seal has the same record at the same place.
    Agrees,
    /// The seal has another record at this place, or fewer readings. The event and the seal are
    /// evidence against the device: it signed both, or somebody else has its key.
    Contradicts,
    /// The seal states other keys of its encrypted columns than the event. The event and the seal are
    /// evidence against the device: it signed both, or somebody else has its key.
    OtherKeys,
    /// The cloud has no such seal: it is not closed yet, it is withheld, or the device abandoned it.
    NotSealed,
    /// The cloud has the seal and does not have this reading, because it is not in the sample.
    NotKept,
}

/// What was found at the place of an event.
#[derive(Default)]
struct Found {
    /// For each seal of the epoch, its number of readings.
    seals: BTreeMap<SealIndex, u64>,
    /// What the seal of the event states about its keys.
    keys: Option<KeyCommitments>,
    record: Option<Vec<u8>>,
}

impl Client<'_> {
    /// Compares an urgent event with the seal that covers its reading. The seal is verified.
    ///
    /// # Errors
    /// [`Error`] if the cloud cannot be reached or its answer is rejected.
    pub async fn check_urgent(self, event: &Urgent) -> Result<UrgentCheck, Error> {
        let (first, count) = (u32::try_from(event.seq().0).unwrap_or(u32::MAX), 1);
        let run = ReadingRun { index: event.index(), first, count };
        let found = match Readings::new(&[run]) {
            Some(readings) => match self.find(event, Choice::Readings(readings)).await {
                // The seal is a star, or the reading is not there: look at all that is kept.
                Err(Error::Rejected(rejected))
                    if matches!(rejected.name(), "SchemeMismatch" | "ReadingUnavailable") =>
                {
                    None
                }
                Err(error) if is_for_another_choice(&error) => None,
                found => Some(found?),
            },
            None => None,
        };
        let found = match found {
            Some(found) if found.record.is_some() => found,
            _ => {
                let until = EpochNumber(event.epoch().0.saturating_add(1));
                let devices = [event.device()];
                let kept = async {
                    let rate = self.common_rate(&devices, event.epoch(), Some(until)).await?;
                    self.find(event, Choice::Rate(rate)).await
                };
                match kept.await {
                    // The epoch has not ended, or nothing that contains the reading is kept.
                    Err(error) if is_not_there(&error) => return Ok(UrgentCheck::NotSealed),
                    found => found?,
                }
            }
        };
        // The same ciphertext under another key is another reading.
        if found.seals.contains_key(&event.index()) && found.keys.as_ref() != event.keys() {
            return Ok(UrgentCheck::OtherKeys);
        }
        Ok(match (found.record, found.seals.get(&event.index())) {
            (Some(record), _) if record == event.record() => UrgentCheck::Agrees,
            (Some(_), _) => UrgentCheck::Contradicts,
            (None, None) => UrgentCheck::NotSealed,
            (None, Some(readings)) if *readings <= event.seq().0 => UrgentCheck::Contradicts,
            (None, Some(_)) => UrgentCheck::NotKept,
        })
    }

    /// Requests a part of the event's epoch, and looks for its reading.
    async fn find(self, event: &Urgent, choice: Choice) -> Result<Found, Error> {
        let mut found = Found::default();
        let mut look = |rows: &Rows<'_>| -> Result<(), OutputError> {
            let statement = rows.statement();
            found.seals.insert(statement.index, statement.counters.total());
            if statement.index == event.index() {
                found.keys = statement.keys;
                rows.for_each(|seq: Sequence, _, record| {
                    if seq == event.seq() {
                        found.record = Some(record.to_vec());
                    }
                });
            }
            Ok(())
        };
        let until = EpochNumber(event.epoch().0.saturating_add(1));
        let request = self.get().devices([event.device()]).since(event.epoch()).until(until);
        drop(request.choice(choice).run(&mut look).await?);
        Ok(found)
    }
}

/// Returns whether an answer was rejected because the cloud does not have all of the epoch yet.
fn is_not_there(error: &Error) -> bool {
    match error {
        Error::Rejected(rejected) => {
            matches!(rejected.name(), "ManifestMissing" | "TailUnknown" | "RateUnavailable")
        }
        error => is_for_another_choice(error),
    }
}

/// Returns whether the cloud refused the choice, so that another one may succeed.
fn is_for_another_choice(error: &Error) -> bool {
    matches!(error, Error::Net(moteseal_net::NetError::Refused { status: 400 | 413 | 422, .. }))
}
