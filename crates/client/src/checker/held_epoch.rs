//! Holds the parts of an epoch until all of them have arrived. The selections *at most* and
//! *sample* follow from the counters of all parts and, in a group with a budget, from the round of
//! the epoch's manifest.

use std::sync::Arc;

use moteseal_core::record::EpochNumber;
use moteseal_seal::sample::permutation::{Swap, scratch_for};
use moteseal_seal::sample::{Choice, ChoiceError, EpochError, Kept, WholeEpoch};
use moteseal_seal::stream::Select;
use moteseal_seal::{Authentic, Seal};
use moteseal_verify::{Proven, Sanitised, SchemaEntry};

use super::RowOutlet;
use crate::error::Stop;
use crate::rejection::Rejection;
use crate::rows::Determined;

/// The maximum size of the held events in bytes.
const MAX_BYTES: usize = 256 << 20;
/// The maximum number of held parts.
const MAX_PARTS: usize = 1 << 16;
/// The maximum number of events that are drawn from one epoch. Drawing needs 40 bytes per event.
const MAX_DRAWN: u64 = 1 << 24;

/// The sample, the schema and the sanitised cells of a part.
type HeldSample = (Kept<Vec<u8>>, Arc<SchemaEntry>, Vec<Sanitised>);

/// The parts of one epoch of one device, by ascending index.
#[derive(Debug, Default)]
pub(super) struct HeldEpoch {
    seals: Vec<Seal<Authentic>>,
    samples: Vec<HeldSample>,
    bytes: usize,
}

impl HeldEpoch {
    /// Returns whether parts of an epoch other than `epoch` are held.
    pub(super) fn holds_other_than(&self, epoch: EpochNumber) -> bool {
        self.seals.first().is_some_and(|seal| seal.statement().epoch != epoch)
    }

    /// Adds a part to the held parts.
    pub(super) fn hold(
        &mut self,
        proven: Proven<'_>,
        sanitised: Vec<Sanitised>,
    ) -> Result<(), Rejection> {
        let statement = proven.seal.statement();
        self.bytes += proven.part.events.len();
        self.bytes += sanitised.iter().map(|of| of.cells().len()).sum::<usize>();
        if self.bytes > MAX_BYTES || self.seals.len() >= MAX_PARTS {
            return Err(Rejection::EpochTooLarge {
                device: statement.device,
                epoch: statement.epoch,
            });
        }
        self.seals.push(proven.seal.clone());
        self.samples.push((proven.sample.keep(), proven.schema.clone(), sanitised));
        Ok(())
    }

    /// Checks the held parts together. If they are the whole epoch, passes their rows to the sink.
    /// `next` is the seal after them, if there is one.
    ///
    /// If nothing shows that the last part has arrived, the store may have withheld the last parts
    /// in order to change the sample. In that case, no rows are passed to the sink, and the history
    /// reports that the device's tail is unknown from this epoch on.
    ///
    /// Without a manifest, it is unknown which events should be served. The parts must then have no
    /// events, whether or not the last part has arrived, and no rows are passed to the sink.
    pub(super) fn release(
        &mut self,
        next: Option<&Seal<Authentic>>,
        choice: Option<Choice>,
        outlet: &mut RowOutlet<'_>,
    ) -> Result<(), Stop> {
        let Self { seals, samples, .. } = std::mem::take(self);
        let Some((device, epoch)) =
            seals.first().map(Seal::statement).map(|first| (first.device, first.epoch))
        else {
            return Ok(());
        };
        let refuse = |seal: &Seal<Authentic>| {
            let index = seal.statement().index;
            move |error| Rejection::Choice { error, device, index }
        };
        let whole = match WholeEpoch::new(&seals, next) {
            Ok(whole) => Some(whole),
            Err(EpochError::TailUnknown) => None,
            Err(error) => return Err(Rejection::Epoch { error, device, epoch }.into()),
        };
        let Some(round) = outlet.manifests.round(epoch) else {
            let has_events =
                |kept: &Kept<Vec<u8>>| !matches!(kept.sample().select(), Select::Levels(0));
            if let Some(place) = samples.iter().position(|(kept, ..)| has_events(kept)) {
                return Err(refuse(&seals[place])(ChoiceError::NotAsAsked).into());
            }
            if whole.is_some() {
                outlet.check.without_manifest(epoch);
            }
            return Ok(());
        };
        let Some(whole) = whole else { return Ok(()) };
        let (mut chosen, mut scratch) = (Vec::new(), Vec::new());
        let (forced, choice) = match choice {
            Some(choice @ Choice::AtMost(most)) => (whole.at_most_from(round, most), choice),
            Some(choice @ Choice::Sample { count, seed }) => {
                let drawn = whole.counts_from(round).existing().min(count.into());
                let too_large = Rejection::EpochTooLarge { device, epoch };
                let room =
                    usize::try_from(drawn).ok().filter(|_| drawn <= MAX_DRAWN).ok_or(too_large)?;
                chosen.resize(room, 0);
                scratch.resize(scratch_for(room), Swap::FREE);
                let drawn = whole
                    .draw(outlet.engine, round, (count, &seed), &mut chosen, &mut scratch)
                    .map_err(refuse(&seals[0]))?;
                (drawn, choice)
            }
            // This arm is not reached, because the parts of these choices and of a redacted proof are
            // checked one by one and are never held.
            Some(Choice::Readings(_) | Choice::Rate(_)) | None => {
                return Err(refuse(&seals[0])(ChoiceError::NotAsAsked).into());
            }
        };
        // Check all parts before the first row is passed to the sink.
        let parts = forced.parts().zip(&samples);
        let checked = parts.map(|(part, (kept, schema, sanitised))| {
            let sample = part.check(kept.sample()).map_err(refuse(part.seal()))?;
            Ok((part.seal(), sample, schema, sanitised))
        });
        let checked = checked.collect::<Result<Vec<_>, Rejection>>()?;
        for (seal, sample, schema, sanitised) in checked {
            outlet.emit(seal, Determined::Uniform(&sample, choice), schema, sanitised)?;
        }
        Ok(())
    }
}
