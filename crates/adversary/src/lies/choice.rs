//! Lies about the selection: the served events are authentic, but they are not the ones that the
//! query selects.

use moteseal_core::record::SealIndex;
use moteseal_seal::sample::Choice;
use moteseal_seal::sample::permutation::{Swap, choose, scratch_for};

use crate::forge::{Served, serve_otherwise};
use crate::lie::Context;
use crate::response::{Answer, Select};

fn without_lowest(mask: u32) -> u32 {
    mask & mask.wrapping_sub(1)
}

pub(crate) fn other_rate(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        for serve in served.iter_mut() {
            if let Select::Levels(mask) = &mut serve.select {
                *mask = without_lowest(*mask);
            }
        }
        Some(())
    })
}

/// Changes the selection of one part: the part nearest to the middle of the answer for which
/// `select` returns a new selection.
fn change_one(served: &mut [Served], select: impl Fn(&Served) -> Option<Select>) -> Option<()> {
    let changed: Vec<(usize, Select)> =
        served.iter().enumerate().filter_map(|(at, serve)| Some((at, select(serve)?))).collect();
    let (at, select) =
        changed.into_iter().rev().min_by_key(|(at, _)| at.abs_diff(served.len() * 9 / 16))?;
    served[at].select = select;
    Some(())
}

pub(crate) fn fewer_levels(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        change_one(served, |serve| match serve.select {
            Select::Levels(mask) if mask != 0 => {
                Some(Select::Levels(mask & !(1 << (31 - mask.leading_zeros()))))
            }
            _ => None,
        })
    })
}

pub(crate) fn more_levels(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        change_one(served, |serve| {
            let surviving =
                context.holdings.get(serve.device, serve.index)?.seal.statement().surviving();
            match serve.select {
                Select::Levels(mask) if mask != 0 && surviving & !mask != 0 => {
                    Some(Select::Levels(mask | 1 << (31 - (surviving & !mask).leading_zeros())))
                }
                _ => None,
            }
        })
    })
}

pub(crate) fn other_event(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        change_one(served, |serve| {
            let Select::Events(sequence) = &serve.select else { return None };
            let n = context.holdings.get(serve.device, serve.index)?.records.len() as u64;
            let (at, _) = sequence
                .iter()
                .enumerate()
                .find(|(_, seq)| **seq + 1 < n && !sequence.contains(&(**seq + 1)))?;
            let mut other = sequence.clone();
            other[at] += 1;
            Some(Select::Events(other))
        })
    })
}

pub(crate) fn drawn_again(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Choice::Sample { count, seed } = context.question.choice else { return false };
    let seed = seed.map(|byte| !byte);
    serve_otherwise(answer, context, |served| {
        // Use only epochs with one part, because there the permutation covers only the events of
        // that part.
        let only_part = |serve: &Served| {
            let seal = context.holdings.get(serve.device, serve.index)?;
            let epoch = seal.seal.statement().epoch;
            let next = serve
                .index
                .0
                .checked_add(1)
                .and_then(|next| context.holdings.get(serve.device, SealIndex(next)));
            let shared = next.is_some_and(|next| next.seal.statement().epoch == epoch);
            let before = seal.seal.statement().last.is_some_and(|(_, before)| before == epoch);
            (!shared && !before).then_some(seal)
        };
        change_one(served, |serve| {
            if !matches!(serve.select, Select::Events(_)) {
                return None;
            }
            let held = only_part(serve)?;
            let total = held.records.len() as u64;
            let most = usize::try_from(total.min(u64::from(count))).ok()?;
            let (mut chosen, mut scratch) = (vec![0; most], vec![Swap::FREE; scratch_for(most)]);
            let chosen = choose(
                &seed,
                serve.device,
                held.seal.statement().epoch,
                total,
                &mut chosen,
                &mut scratch,
            )
            .ok()?;
            chosen.sort_unstable();
            let drawn = Select::Events(chosen.to_vec());
            (drawn != serve.select).then_some(drawn)
        })
    })
}
