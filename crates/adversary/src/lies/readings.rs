//! Lies about readings: the cloud alters, moves, omits or invents readings.

use moteseal_core::record::Scheme;
use moteseal_core::signature::{SecretKey, Signer};

use crate::forge::{change_part, fits, layout, put_record, refit_digests, reseal, selected_count};
use crate::holdings::Held;
use crate::lie::Context;
use crate::response::{Answer, Part, Select};

fn levels(held: &Held) -> u8 {
    held.seal.statement().counters.levels()
}

pub(crate) fn altered(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let Some((.., at)) = layout(part, held).into_iter().rfind(|(.., at)| !at.is_empty()) else {
            return false;
        };
        part.events[at.end - 1] ^= 4;
        true
    })
}

/// Returns the places of two events of a part that have different records. They have the same
/// level, so that a star's blocks keep their sizes.
fn unlike(part: &Part, held: &Held) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let events = layout(part, held);
    let pairs = events.windows(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    let mut unlike = pairs.filter(|((_, level, first), (_, other, second))| {
        (level == other || held.seal.statement().scheme == Scheme::Tree)
            && first.len() == second.len()
            && part.events[first.clone()] != part.events[second.clone()]
    });
    unlike.next().map(|((.., first), (.., second))| (first, second))
}

pub(crate) fn duplicated(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let Some((first, second)) = unlike(part, held) else { return false };
        part.events.copy_within(first, second.start);
        true
    })
}

pub(crate) fn reordered(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let Some((first, second)) = unlike(part, held) else { return false };
        let record = part.events[first.clone()].to_vec();
        part.events.copy_within(second.clone(), first.start);
        part.events[second].copy_from_slice(&record);
        true
    })
}

/// Replaces events of a part with events of another seal: a whole block of a star, or a single
/// event of a tree.
fn moved(part: &mut Part, held: &Held, other: &Held) -> bool {
    if other.seal.statement().scheme != held.seal.statement().scheme
        || other.framing != held.framing
    {
        return false;
    }
    let events = layout(part, held);
    if part.scheme == Scheme::Tree {
        let mut foreign = events.iter().filter_map(|(seq, _, at)| {
            let record = usize::try_from(*seq).ok().and_then(|seq| other.records.get(seq))?;
            put_record(part, at, record).then_some(())
        });
        return foreign.next().is_some();
    }
    for level in (0..levels(held)).rev() {
        let own: Vec<_> =
            events.iter().filter(|(_, of, _)| *of == level).map(|(.., at)| at.clone()).collect();
        let (Some(start), Some(end)) =
            (own.first().map(|at| at.start), own.last().map(|at| at.end))
        else {
            continue;
        };
        let foreign = other.members(1 << level);
        let records =
            foreign.iter().filter_map(|&seq| other.records.get(usize::try_from(seq).ok()?));
        let block: Vec<u8> = records.flatten().copied().collect();
        // Use only records of fixed size, so that blocks of equal size have the same number of
        // events.
        if foreign.len() == own.len()
            && block.len() == end - start
            && part.events[start..end] != block
        {
            part.events[start..end].copy_from_slice(&block);
            return true;
        }
    }
    false
}

pub(crate) fn of_other_epoch(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, place| {
        let mut others = context
            .holdings
            .seals(place.device)
            .filter(|other| other.seal.digest() != held.seal.digest());
        others.any(|other| moved(part, held, other))
    })
}

pub(crate) fn of_other_device(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, place| {
        let others = context.holdings.devices().filter(|device| *device != place.device);
        let mut others = others.flat_map(|device| context.holdings.seals(device));
        others.any(|other| moved(part, held, other))
    })
}

pub(crate) fn sealed_anew(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let Some((seq, ..)) = layout(part, held).into_iter().find(|(.., at)| !at.is_empty()) else {
            return false;
        };
        let mut records = held.records.clone();
        let Some(byte) = usize::try_from(seq).ok().and_then(|seq| records[seq].last_mut()) else {
            return false;
        };
        *byte ^= 1;
        let Ok(own_key) = SecretKey::from_seed(held.seal.algorithm(), &[0x6d; 32]) else {
            return false;
        };
        let sign = |message: &[u8]| {
            let mut signature = vec![0; held.seal.algorithm().signature_length()];
            own_key.sign(message, &mut signature).ok().map(|_| signature)
        };
        let Some(forged) = reseal(held, records, &sign) else { return false };
        *part = forged.part(part.select.clone(), true);
        true
    })
}

pub(crate) fn dropped(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let events = layout(part, held);
        let Some((last, _, at)) =
            events.iter().max_by_key(|(seq, ..)| *seq).filter(|_| events.len() > 1)
        else {
            return false;
        };
        if let Select::Events(sequence) = &part.select {
            let rest = sequence.iter().copied().filter(|seq| seq != last).collect();
            *part = held.part(Select::Events(rest), part.signature.is_some());
            return true;
        }
        let start =
            at.start - if held.framing == moteseal_core::record::Framing::Prefixed { 2 } else { 0 };
        part.events.drain(start..at.end);
        part.n = u32::try_from(*last).unwrap_or(part.n);
        // If the removed event was the only one of its level, the level is now empty and cannot be
        // selected, so check the part.
        refit_digests(part, levels(held));
        fits(part, held.framing, levels(held))
    })
}

pub(crate) fn added(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        if matches!(part.select, Select::Events(_)) {
            return false;
        }
        let events = layout(part, held);
        let before = selected_count(part, levels(held));
        while selected_count(part, levels(held)) == before {
            part.n += 1;
            if part.n > 2 * held.seal.statement().counters.total().max(1 << 12) as u32 {
                return false;
            }
        }
        let seq = u64::from(part.n) - 1;
        let level = held.seal.statement().salt.level(moteseal_core::Sequence(seq), levels(held)).0;
        // In a star, insert after the last event of the level. In a tree, events are ordered by
        // sequence number, so insert after all events.
        let tree = part.scheme == Scheme::Tree;
        let Some((.., at)) = events.iter().rfind(|(_, of, _)| tree || *of == level) else {
            return false;
        };
        let mut record = Vec::new();
        crate::holdings::frame(&mut record, held.framing, &part.events[at.clone()]);
        part.events.splice(at.end..at.end, record);
        refit_digests(part, levels(held));
        fits(part, held.framing, levels(held))
    })
}

pub(crate) fn cut_off(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let Some((.., at)) = layout(part, held).into_iter().max_by_key(|(.., at)| at.end) else {
            return false;
        };
        let head = if held.framing == moteseal_core::record::Framing::Prefixed { 2 } else { 0 };
        part.events.truncate(at.start - head);
        true
    })
}

pub(crate) fn surplus(answer: &mut Answer, context: &Context<'_>) -> bool {
    change_part(answer, context, |part, held, _| {
        let Some(record) = held.records.first() else { return false };
        crate::holdings::frame(&mut part.events, held.framing, record);
        true
    })
}
