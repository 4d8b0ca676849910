//! An epoch held until all its parts are there: *at most* and *sample* follow from their counters together.

use std::sync::Arc;

use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::sample::choice::EpochCounts;
use moteseal_core::sample::permutation::{Swap, choose, scratch_for};
use moteseal_core::sample::{Choice, ChoiceError, Kept, UniformSample};
use moteseal_core::seal::{Authentic, Seal};
use moteseal_lanes::Host;
use moteseal_verify::{Proven, Roster, SchemaEntry};

use super::hand_out;
use crate::refusal::Refusal;
use crate::rows::Sink;
use crate::session::Stop;

/// At most this many bytes of events are held.
const MAX_BYTES: usize = 256 << 20;
/// At most this many parts are held.
const MAX_PARTS: usize = 1 << 16;
/// At most this many events are drawn from one epoch: their positions take 40 bytes each while they are drawn.
const MAX_DRAWN: u64 = 1 << 24;

/// The parts of one epoch.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    parts: Vec<Held>,
    bytes: usize,
}

#[derive(Debug)]
struct Held {
    seal: Seal<Authentic>,
    kept: Kept<Vec<u8>>,
    schema: Arc<SchemaEntry>,
}

impl Epoch {
    /// Whether parts of another epoch are held.
    pub(super) fn holds_other_than(&self, epoch: EpochNumber) -> bool {
        self.parts.first().is_some_and(|part| part.seal.statement().epoch != epoch)
    }

    /// Holds a part.
    pub(super) fn hold(&mut self, proven: Proven<'_>) -> Result<(), Refusal> {
        let statement = proven.seal.statement();
        self.bytes += proven.part.events.len();
        if self.bytes > MAX_BYTES || self.parts.len() >= MAX_PARTS {
            return Err(Refusal::EpochTooLarge { device: statement.device, epoch: statement.epoch });
        }
        self.parts.push(Held { seal: proven.seal.clone(), kept: proven.sample.keep(), schema: proven.schema.clone() });
        Ok(())
    }

    /// Judges the parts together and hands out their rows; says how many these were.
    pub(super) fn release(
        &mut self,
        device: DeviceId,
        choice: Choice,
        roster: &Roster,
        engine: &Host,
        sink: &mut dyn Sink,
    ) -> Result<u64, Stop> {
        let parts = std::mem::take(&mut self.parts);
        self.bytes = 0;
        let mut rows = 0;
        for (held, sample) in parts.iter().zip(judged(&parts, device, choice)?) {
            rows += hand_out(roster, engine, choice, held.seal.statement(), &sample, &held.schema, sink)?;
        }
        Ok(rows)
    }
}

fn judged(parts: &[Held], device: DeviceId, choice: Choice) -> Result<Vec<UniformSample<'_>>, Refusal> {
    let Some(first) = parts.first() else { return Ok(Vec::new()) };
    let first = first.seal.statement();
    let mut counts = EpochCounts::new(first.counters.levels());
    parts.iter().for_each(|part| counts.add(part.seal.statement()));
    let at = |index: SealIndex| move |error: ChoiceError| Refusal::Choice { error, device, index };
    match choice {
        Choice::AtMost(most) => {
            let mask = counts.at_most(most);
            parts
                .iter()
                .map(|part| {
                    let statement = part.seal.statement();
                    UniformSample::by_levels(part.kept.sample(), statement, mask).map_err(at(statement.index))
                })
                .collect()
        }
        Choice::Sample { count, seed } => {
            let total = counts.total();
            let drawn = u64::from(count).min(total);
            let too_large = Refusal::EpochTooLarge { device, epoch: first.epoch };
            if drawn > MAX_DRAWN {
                return Err(too_large);
            }
            let drawn = usize::try_from(drawn).map_err(|_| too_large.clone())?;
            let (mut chosen, mut scratch) = (vec![0; drawn], vec![Swap::FREE; scratch_for(drawn)]);
            let chosen = choose(&seed, device, first.epoch, total, &mut chosen, &mut scratch).map_err(|_| too_large)?;
            chosen.sort_unstable();
            let mut rest = &*chosen;
            let mut start = 0;
            let mut samples = Vec::with_capacity(parts.len());
            for part in parts {
                let statement = part.seal.statement();
                let end = start + statement.counters.total();
                let (mine, others) = rest.split_at(rest.partition_point(|&position| position < end));
                let mine = mine.iter().map(|position| Sequence(position - start));
                let sample = UniformSample::by_permutation(part.kept.sample(), statement, mine).map_err(at(statement.index))?;
                samples.push(sample);
                (rest, start) = (others, end);
            }
            Ok(samples)
        }
        // Rates are judged part by part and never held.
        Choice::Rate(rate) => parts
            .iter()
            .map(|part| {
                let statement = part.seal.statement();
                UniformSample::by_rate(part.kept.sample(), statement, rate).map_err(at(statement.index))
            })
            .collect(),
    }
}
