//! The answer that an honest cloud gives from its holdings. Lies modify this answer, and tests
//! compare them with it.

use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::Statement;
use moteseal_seal::sample::Choice;
use moteseal_seal::sample::choice::EpochCounts;
use moteseal_seal::sample::permutation::{Swap, choose, scratch_for};

use crate::forge::{Served, compose};
use crate::holdings::{Held, Holdings};
use crate::query::Question;
use crate::response::{Answer, Select};

impl Holdings {
    /// Returns the answer of an honest cloud for these devices, in this order. If the cloud lacks
    /// levels that the query selects, they are omitted, whereas a real honest cloud would reject
    /// the query.
    #[must_use]
    pub fn answer(&self, devices: &[DeviceId], question: &Question) -> Answer {
        let mut served = Vec::new();
        for &device in devices {
            let seals: Vec<&Held> = self.seals(device).collect();
            let statement = |held: &&Held| held.seal.statement().clone();
            let covered: Vec<&Held> = seals
                .iter()
                .copied()
                .filter(|held| question.covers(held.seal.statement().epoch))
                .collect();
            for epoch in
                covered.chunk_by(|a, b| a.seal.statement().epoch == b.seal.statement().epoch)
            {
                let selects = select(device, epoch, question.choice);
                let epoch = epoch.iter().map(|held| held.seal.statement().index);
                served.extend(epoch.zip(selects).map(|(index, select)| Served {
                    device,
                    index,
                    select,
                }));
            }
            let Some(until) = question.until else { continue };
            let closes = |last: Statement| last.last_in_epoch && last.epoch.0 + 1 == until.0;
            if covered.last().map(statement).is_some_and(closes) {
                continue;
            }
            let is_after = |held: &&&Held| held.seal.statement().epoch >= until;
            let boundary = seals.iter().find(is_after).map(|held| held.seal.statement().index);
            served.extend(boundary.map(|index| Served {
                device,
                index,
                select: Select::Levels(0),
            }));
        }
        compose(self, &served)
    }
}

/// Returns the selection that the choice determines for the parts of one epoch.
pub(crate) fn select(device: DeviceId, parts: &[&Held], choice: Choice) -> Vec<Select> {
    let statements = parts.iter().map(|held| held.seal.statement());
    match choice {
        Choice::Rate(rate) => statements
            .map(|statement| {
                Select::Levels(
                    rate.levels(statement.counters.levels()).unwrap_or(0) & statement.surviving(),
                )
            })
            .collect(),
        Choice::AtMost(most) => {
            let mut counts = EpochCounts::new(
                parts.first().map_or(1, |held| held.seal.statement().counters.levels()),
            );
            statements.clone().for_each(|statement| counts.add(statement));
            let mask = counts.at_most(most);
            statements.map(|statement| Select::Levels(mask & statement.surviving())).collect()
        }
        Choice::Readings(readings) => statements
            .map(|statement| {
                let named: Vec<u64> = readings.of(statement.index).map(|seq| seq.0).collect();
                if named.is_empty() { Select::Levels(0) } else { Select::Events(named) }
            })
            .collect(),
        Choice::Sample { count, seed } => {
            let epoch = parts.first().map_or(EpochNumber(0), |held| held.seal.statement().epoch);
            let total: u64 = statements.clone().map(|statement| statement.counters.total()).sum();
            let drawn = usize::try_from(total.min(u64::from(count))).unwrap_or(usize::MAX);
            let (mut chosen, mut scratch) = (vec![0; drawn], vec![Swap::FREE; scratch_for(drawn)]);
            // `scratch` has the required length, so `choose` cannot fail.
            let _ = choose(&seed, device, epoch, total, &mut chosen, &mut scratch);
            chosen.sort_unstable();
            let mut start = 0;
            statements
                .map(|statement| {
                    let end = start + statement.counters.total();
                    let mine: Vec<u64> = chosen
                        .iter()
                        .filter(|&&at| at >= start && at < end)
                        .map(|at| at - start)
                        .collect();
                    start = end;
                    if mine.is_empty() { Select::Levels(0) } else { Select::Events(mine) }
                })
                .collect()
        }
    }
}
