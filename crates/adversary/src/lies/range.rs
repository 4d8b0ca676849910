//! Lies about the range: the cloud withholds epochs, replays them, or attributes them to another
//! device or epoch.

use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_seal::sample::Choice;

use crate::forge::{Served, change_part, inner_places, reseal, serve_otherwise, served};
use crate::holdings::Held;
use crate::lie::Context;
use crate::response::{Answer, Item, Place, Select};

/// Returns the indices in `served` of the parts in the queried range, for each device.
fn by_device(served: &[Served], context: &Context<'_>) -> Vec<(DeviceId, Vec<usize>)> {
    let mut devices: Vec<(DeviceId, Vec<usize>)> = Vec::new();
    for (at, serve) in served.iter().enumerate() {
        let held = context.holdings.get(serve.device, serve.index);
        if !held.is_some_and(|held| context.question.covers(held.seal.statement().epoch)) {
            continue;
        }
        match devices.last_mut() {
            Some((device, list)) if *device == serve.device => list.push(at),
            _ => devices.push((serve.device, vec![at])),
        }
    }
    devices
}

/// Returns a device in the middle of the answer that has at least `parts` parts in the range, with
/// the indices of these parts.
fn middle_device(
    served: &[Served],
    context: &Context<'_>,
    parts: usize,
) -> Option<(DeviceId, Vec<usize>)> {
    let mut devices = by_device(served, context);
    devices.retain(|(_, list)| list.len() >= parts);
    let middle = devices.len() / 2;
    (!devices.is_empty()).then(|| devices.swap_remove(middle))
}

pub(crate) fn withheld_epoch(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let (_, parts) = middle_device(served, context, 3)?;
        served.remove(parts[parts.len() / 2]);
        Some(())
    })
}

pub(crate) fn withheld_first(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let (_, parts) = middle_device(served, context, 2)?;
        served.remove(parts[0]);
        Some(())
    })
}

pub(crate) fn withheld_tail(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let (device, parts) = middle_device(served, context, 2)?;
        let from = parts[parts.len() - parts.len() / 2];
        let mut at = 0;
        served.retain(|serve| {
            at += 1;
            serve.device != device || at <= from
        });
        Some(())
    })
}

/// Omits a part of the newest epoch, and serves the sample that the query would select from the
/// remaining parts.
pub(crate) fn shortened_epoch(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let held = |serve: &Served| context.holdings.get(serve.device, serve.index);
        for (device, parts) in by_device(served, context).into_iter().rev() {
            let epoch_of = |at: &usize| held(&served[*at]).map(|held| held.seal.statement().epoch);
            let newest = parts.last().and_then(epoch_of);
            let shown: Vec<usize> =
                parts.iter().copied().filter(|at| epoch_of(at) == newest).collect();
            let Some((last, shown)) = shown.split_last().filter(|(_, shown)| !shown.is_empty())
            else {
                continue;
            };
            let kept: Vec<&Held> = shown.iter().filter_map(|at| held(&served[*at])).collect();
            let selects = crate::honest::select(device, &kept, context.question.choice);
            for (at, select) in shown.iter().zip(selects) {
                served[*at].select = select;
            }
            let last = *last;
            // Also remove the seal after the range, because it would show that a part is missing.
            let mut at = 0;
            served.retain(|serve| {
                at += 1;
                serve.device != device || at <= last
            });
            return Some(());
        }
        None
    })
}

pub(crate) fn withheld_boundary(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let is_after = |serve: &Served| {
            let held = context.holdings.get(serve.device, serve.index);
            held.is_some_and(|held| {
                context.question.until.is_some_and(|until| held.seal.statement().epoch >= until)
            })
        };
        let at = served.iter().position(is_after)?;
        served.remove(at);
        Some(())
    })
}

pub(crate) fn withheld_device(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let (device, _) = middle_device(served, context, 1)?;
        served.retain(|serve| serve.device != device);
        Some(())
    })
}

/// Removes a part that is followed by another part of the same run, and calls `patch` to adapt that
/// following part.
fn remove_within_run(
    answer: &mut Answer,
    context: &Context<'_>,
    patch: impl Fn(&mut Answer, &Place, u64),
) -> bool {
    let places = inner_places(answer, context);
    let follower = |place: &&Place| {
        let next =
            places.iter().find(|next| next.item == place.item + 1 && next.device == place.device);
        answer.part(place.item).is_some_and(|part| part.signature.is_none()) && next.is_some()
    };
    let Some(place) = places.iter().find(follower).copied() else { return false };
    let removed = answer.part(place.item).map_or(0, |part| part.advance);
    answer.items.remove(place.item);
    patch(answer, &place, removed);
    true
}

pub(crate) fn denied_epoch(answer: &mut Answer, context: &Context<'_>) -> bool {
    remove_within_run(answer, context, |answer, place, removed| {
        if let Some(next) = answer.part_mut(place.item) {
            next.advance += removed;
        }
    })
}

pub(crate) fn invented_outage(answer: &mut Answer, context: &Context<'_>) -> bool {
    remove_within_run(answer, context, |answer, place, removed| {
        if let Some(next) = answer.part_mut(place.item) {
            next.advance += removed;
            next.skipped += 1;
            next.restart = true;
        }
    })
}

/// Returns the selection for a seal outside the queried range, by the same rule as for seals within
/// the range.
fn selection(held: &Held, context: &Context<'_>) -> Select {
    let statement = held.seal.statement();
    let mask = match context.question.choice {
        Choice::Rate(rate) => rate.levels(statement.counters.levels()).unwrap_or(u32::MAX),
        Choice::AtMost(_) | Choice::Sample { .. } | Choice::Readings(_) => u32::MAX,
    };
    Select::Levels(mask & statement.surviving())
}

pub(crate) fn before(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let (device, parts) = middle_device(served, context, 1)?;
        let first = served[parts[0]].index;
        let held =
            context.holdings.seals(device).rfind(|held| held.seal.statement().index < first)?;
        let serve =
            Served { device, index: held.seal.statement().index, select: selection(held, context) };
        served.insert(parts[0], serve);
        Some(())
    })
}

pub(crate) fn after(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let (device, parts) = middle_device(served, context, 1)?;
        let last = *parts.last()?;
        let held = context
            .holdings
            .seals(device)
            .find(|held| held.seal.statement().index > served[last].index)?;
        let serve =
            Served { device, index: held.seal.statement().index, select: selection(held, context) };
        // If the answer contains the seal after the range (without events), replace it with the
        // same seal with events.
        match served.get(last + 1) {
            Some(next) if next.device == device => served[last + 1] = serve,
            _ => served.insert(last + 1, serve),
        }
        Some(())
    })
}

pub(crate) fn replayed_epoch(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, place| {
        let select = |old: &Held| match &part.select {
            Select::Levels(mask) => Some(Select::Levels(mask & old.seal.statement().surviving())),
            Select::Events(sequence) => {
                let exist = sequence.last().is_some_and(|last| *last < old.records.len() as u64);
                exist.then(|| part.select.clone())
            }
        };
        let mut older = context.holdings.seals(place.device).filter(|old| {
            let (old, new) = (old.seal.statement(), held.seal.statement());
            old.index < new.index && old.schema == new.schema
        });
        let Some((old, select)) = older.find_map(|old| Some((old, select(old)?))) else {
            return false;
        };
        let replayed = old.part(select, false);
        let (skipped, advance) = (part.skipped, part.advance);
        *part = crate::response::Part {
            skipped,
            advance,
            signature: part.signature.clone(),
            ..replayed
        };
        true
    })
}

pub(crate) fn replayed_run(answer: &mut Answer, _: &Context<'_>) -> bool {
    let Some(open) = answer.items.iter().position(|item| matches!(item, Item::Open(_))) else {
        return false;
    };
    let length = answer.items[open..]
        .iter()
        .position(|item| matches!(item, Item::Part(part) if part.signature.is_some()));
    let Some(length) = length else { return false };
    let run = answer.items[open..=open + length].to_vec();
    answer.items.splice(open + length + 1..open + length + 1, run);
    true
}

pub(crate) fn other_device(answer: &mut Answer, context: &Context<'_>) -> bool {
    let devices: Vec<DeviceId> =
        by_device(&served(answer), context).into_iter().map(|(device, _)| device).collect();
    let Some(&device) = devices.get(devices.len() / 2) else { return false };
    let Some(&other) = devices.iter().find(|other| **other != device) else { return false };
    let foreign: Vec<Served> =
        served(answer).into_iter().filter(|serve| serve.device == other).collect();
    // Serve the complete chain of the other device under this device's id.
    let mut foreign_items: Vec<Item> = crate::forge::compose(context.holdings, &foreign).items;
    foreign_items.retain(|item| !matches!(item, Item::End));
    for item in &mut foreign_items {
        if let Item::Open(open) = item {
            open.device = device;
            if open.last.is_none() {
                open.prev = None;
            }
        }
    }
    let own = |item: &Item| matches!(item, Item::Open(open) if open.device == device);
    let Some(start) = answer.items.iter().position(own) else { return false };
    let ends = |item: &Item| {
        matches!(item, Item::End) || matches!(item, Item::Open(open) if open.device != device)
    };
    let Some(length) = answer.items[start..].iter().position(ends) else { return false };
    answer.items.splice(start..start + length, foreign_items);
    true
}

pub(crate) fn devices_swapped(answer: &mut Answer, context: &Context<'_>) -> bool {
    serve_otherwise(answer, context, |served| {
        let first = served.first()?.device;
        let split = served.iter().position(|serve| serve.device != first)?;
        served.rotate_left(split);
        Some(())
    })
}

pub(crate) fn equivocation(answer: &mut Answer, context: &Context<'_>) -> bool {
    let Some(accomplice) = context.accomplice else { return false };
    let places = answer.places();
    // Find a device's newest seal in the answer, because a client compares the device's next seal
    // with it.
    let newest = |place: &&Place| {
        let end = places.iter().rfind(|other| other.device == place.device).map(|other| other.item);
        end == Some(place.item) && context.question.covers(place.epoch)
    };
    let candidates = places.iter().filter(newest);
    for place in candidates {
        let Some(held) = context.holdings.get(place.device, place.index) else { continue };
        let mut records = held.records.clone();
        let Some(byte) = records.first_mut().and_then(|record| record.last_mut()) else { continue };
        *byte ^= 1;
        let sign = |message: &[u8]| accomplice(place.device, message);
        let Some(forged) = reseal(held, records, &sign) else { continue };
        let Some(select) = answer.part(place.item).map(|part| part.select.clone()) else {
            continue;
        };
        answer.items.splice(place.item + 1..place.item + 1, forged.run(select));
        return true;
    }
    false
}

/// Returns the seal with this index, if the cloud has it, and the next seal.
pub(crate) fn neighbour<'a>(
    context: &Context<'a>,
    device: DeviceId,
    index: SealIndex,
) -> Option<&'a Held> {
    let seals = || context.holdings.seals(device);
    seals()
        .find(|held| held.seal.statement().index > index)
        .or_else(|| seals().rfind(|held| held.seal.statement().index < index))
}
