//! Helpers for constructing lies: answers that combine honest parts in a different way, and altered
//! parts whose sizes are still correct.

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, Framing, Level, SealIndex, Sequence};
use moteseal_seal::level::{Counters, Salt};
use moteseal_seal::star::star_digests;
use moteseal_seal::tree::{self, Tree, geometry};
use moteseal_seal::{Seal, star};

use crate::holdings::{Held, Holdings, frame};
use crate::lie::Context;
use crate::response::{Answer, Item, Part, Place, Select};

/// The number of parts in a run, as an honest cloud serves them.
const RUN_PARTS: usize = 64;

/// A served seal with the selection of its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub device: DeviceId,
    pub index: SealIndex,
    pub select: Select,
}

/// Returns the seals and selections that an honest answer serves, in order.
pub(crate) fn served(answer: &Answer) -> Vec<Served> {
    let parts =
        answer.places().into_iter().filter_map(|place| Some((place, answer.part(place.item)?)));
    parts
        .map(|(place, part)| Served {
            device: place.device,
            index: place.index,
            select: part.select.clone(),
        })
        .collect()
}

/// Composes an answer that serves these seals and selections, with every necessary signature. It
/// contains no false data.
pub(crate) fn compose(holdings: &Holdings, served: &[Served]) -> Answer {
    let held: Vec<(&Held, &Select)> = served
        .iter()
        .filter_map(|serve| Some((holdings.get(serve.device, serve.index)?, &serve.select)))
        .collect();
    let mut items = Vec::new();
    let (mut schema, mut run): (Option<&[u8]>, usize) = (None, 0);
    for (at, (current, select)) in held.iter().enumerate() {
        if run == 0 {
            if schema != Some(current.schema.as_slice()) {
                schema = Some(&current.schema);
                items.push(Item::Schema(current.schema.clone()));
            }
            items.push(Item::Open(current.open));
        }
        run += 1;
        let follows = held.get(at + 1).is_some_and(|(next, _)| {
            let (old, new) = (current.seal.statement(), next.seal.statement());
            new.device == old.device
                && new.prev == current.seal.digest()
                && new.schema == old.schema
                && new.roster == old.roster
        });
        let signed = !follows || run == RUN_PARTS;
        items.push(Item::Part(Box::new(current.part((*select).clone(), signed))));
        if signed {
            run = 0;
        }
    }
    items.push(Item::End);
    Answer { items }
}

/// Applies `change` to the list of served seals, and replaces the answer with one that serves the
/// changed list. Returns false if nothing changed.
pub(crate) fn serve_otherwise(
    answer: &mut Answer,
    context: &Context<'_>,
    change: impl FnOnce(&mut Vec<Served>) -> Option<()>,
) -> bool {
    let mut list = served(answer);
    let honest = list.clone();
    if change(&mut list).is_none() || list == honest {
        return false;
    }
    let manifests = answer.items.iter().take_while(|item| matches!(item, Item::Manifest(_)));
    let mut items: Vec<Item> = manifests.cloned().collect();
    items.append(&mut compose(context.holdings, &list).items);
    *answer = Answer { items };
    true
}

/// Returns the parts of the queried range in the order in which lies try them: from the middle
/// outward, because a lie in the middle is hardest to detect.
pub(crate) fn inner_places(answer: &Answer, context: &Context<'_>) -> Vec<Place> {
    let places: Vec<Place> =
        answer.places().into_iter().filter(|place| context.question.covers(place.epoch)).collect();
    // Start a little after the middle. With several devices, the exact middle can be the first part
    // of a device.
    let middle = places.len() * 9 / 16;
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&at| (at.abs_diff(middle), at));
    order.into_iter().map(|at| places[at]).collect()
}

/// Applies `change` to the parts of the queried range, from the middle outward, until it returns
/// true for one of them.
pub(crate) fn change_part(
    answer: &mut Answer,
    context: &Context<'_>,
    mut change: impl FnMut(&mut Part, &Held, &Place) -> bool,
) -> bool {
    for place in inner_places(answer, context) {
        let Some(held) = context.holdings.get(place.device, place.index) else { continue };
        let Some(part) = answer.part(place.item) else { continue };
        let mut changed = part.clone();
        if change(&mut changed, held, &place) && changed != *part {
            answer.items[place.item] = Item::Part(Box::new(changed));
            return true;
        }
    }
    false
}

/// For each event of a part, in the part's order, returns its sequence number, its level and the
/// range of its record's bytes.
pub(crate) fn layout(part: &Part, held: &Held) -> Vec<(u64, u8, std::ops::Range<usize>)> {
    let statement = held.seal.statement();
    let levels = statement.counters.levels();
    let level = |seq: u64| statement.salt.level(Sequence(seq), levels).0;
    let mut sequence = match &part.select {
        Select::Levels(mask) => held.members(*mask),
        Select::Events(sequence) => sequence.clone(),
    };
    if statement.scheme == Scheme::Star {
        sequence.sort_by_key(|&seq| std::cmp::Reverse(level(seq)));
    }
    let mut places = Vec::new();
    let mut rest = part.events.as_slice();
    for seq in sequence {
        let Some((record, tail)) = held.framing.split_first(rest) else { break };
        let end = part.events.len() - tail.len();
        places.push((seq, level(seq), end - record.len()..end));
        rest = tail;
    }
    places
}

/// Returns the counters, the surviving levels, the number of digests and the number of events that
/// a part with these fields must have.
fn sizes(part: &Part, levels: u8) -> (Counters, u32, u64, u32) {
    let counters = Counters::of(&Salt(part.salt), levels, part.n);
    let lost = |level: usize| part.lost.get(level).is_some_and(|&lost| lost > 0);
    let survives = |level: &u8| {
        counters.at(Level(*level)) > 0 && *level >= part.own_round.0 && !lost(usize::from(*level))
    };
    let surviving = (0..levels).filter(survives).fold(0, |mask: u32, level| mask | 1 << level);
    let key = Salt(part.salt);
    let (digests, events) = match (&part.select, part.scheme) {
        (Select::Levels(mask), Scheme::Star) => {
            (u64::from(star_digests(surviving, *mask)), counters.masked(*mask))
        }
        (Select::Levels(mask), Scheme::Tree) => {
            let members = (0..u64::from(part.n))
                .map(Sequence)
                .filter(|&seq| mask >> key.level(seq, levels).0 & 1 == 1);
            (geometry::siblings(u64::from(part.n), members).count() as u64, counters.masked(*mask))
        }
        (Select::Events(sequence), _) => {
            let siblings =
                geometry::siblings(u64::from(part.n), sequence.iter().map(|&seq| Sequence(seq)));
            (siblings.count() as u64, u32::try_from(sequence.len()).unwrap_or(u32::MAX))
        }
    };
    (counters, surviving, digests, events)
}

/// Returns whether a part has the numbers of digests and events that its fields require, so that
/// only its proof can fail.
pub(crate) fn fits(part: &Part, framing: Framing, levels: u8) -> bool {
    let (_, surviving, digests, events) = sizes(part, levels);
    let selectable = match part.select {
        Select::Levels(mask) => mask & !surviving == 0,
        Select::Events(_) => true,
    };
    selectable
        && part.digests.len() as u64 == 32 * digests
        && framing.length_of(&part.events, events) == Some(part.events.len())
}

/// Returns the number of events of a part with these fields.
pub(crate) fn selected_count(part: &Part, levels: u8) -> u32 {
    sizes(part, levels).3
}

/// Truncates or extends the digests to the number that the part's fields require.
pub(crate) fn refit_digests(part: &mut Part, levels: u8) {
    let (.., digests, _) = sizes(part, levels);
    part.digests.resize(usize::try_from(32 * digests).unwrap_or(0), 0x5a);
}

/// Replaces the bytes of one record.
pub(crate) fn put_record(part: &mut Part, at: &std::ops::Range<usize>, record: &[u8]) -> bool {
    if at.len() != record.len() || part.events[at.clone()] == *record {
        return false;
    }
    part.events[at.clone()].copy_from_slice(record);
    true
}

/// Returns the same seal with other records, signed again by `sign`.
pub(crate) fn reseal(
    held: &Held,
    records: Vec<Vec<u8>>,
    sign: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
) -> Option<Held> {
    let statement = held.seal.statement().clone();
    let levels = statement.counters.levels();
    let (root, blocks) = match statement.scheme {
        Scheme::Star => {
            let block = |level: u8| {
                let mut bytes = Vec::new();
                for seq in held.members(1 << level) {
                    frame(&mut bytes, held.framing, &records[usize::try_from(seq).unwrap_or(0)]);
                }
                let empty = held.blocks.get(usize::from(level)) == Some(&Digest::NULL);
                if empty {
                    Digest::NULL
                } else {
                    star::block_digest(statement.device, statement.index, Level(level), &bytes)
                }
            };
            let blocks: Vec<Digest> = (0..levels).map(block).collect();
            (star::root(&statement.counters, &blocks), blocks)
        }
        Scheme::Tree => {
            let mut whole = Tree::<32>::new();
            for record in &records {
                let _ = whole.push_leaf(tree::leaf(record));
            }
            (whole.root(), Vec::new())
        }
    };
    let seal = Seal::new(statement, root, held.seal.algorithm());
    let signature = sign(seal.message(&mut [0; moteseal_seal::MAX_MESSAGE]))?;
    Some(Held { seal, signature, blocks, records, ..held.clone() })
}
