//! A device's seal, put together from what it says and what the hub has: verified as anyone would, and written as a bundle.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::level::{Counters, SipKey};
use moteseal_core::record::{EpochNumber, Level, MAX_LEVELS, Round, SealIndex, Sequence};
use moteseal_core::seal::follow::Limits;
use moteseal_core::seal::{Scheme, star};
use moteseal_core::wire::stream::{Open as OpenItem, Part, Selection};
use moteseal_verify::{Event, ReadError, SchemaEntry, StreamReader, write};
use sha2::Digest as _;

use super::follow::Behind;
use super::{Beside, Hub, Sealed};
use crate::pruned::Pruned;
use crate::queues::Slot;
use crate::refused::Refused;

impl Hub {
    /// Puts a seal together from what the device says and what the hub has, and verifies it as anyone would.
    pub(super) fn prove(
        &self,
        slot: u32,
        index: SealIndex,
        epoch: EpochNumber,
        open: &OpenItem,
        part: &Part<'_>,
        schema: &SchemaEntry,
    ) -> Result<Sealed, Refused> {
        let member = &self.devices[slot as usize];
        let levels = self.roster.levels();
        let counters = Counters::of(&part.salt, levels, part.n);
        let is_null = |level: Level| {
            counters.at(level) == 0 || level.0 < part.own_round.0 || part.lost.is_some_and(|lost| lost.at(level) > 0)
        };
        let state = self.known_epoch(epoch);
        let round = state.map_or(Round(0), |state| state.coordinator.round());
        let behind = member.open.as_ref().filter(|open| open.followed.index == index).map(|open| &open.behind);
        let kept = |level: Level| state.map_or_else(Vec::new, |state| state.queues.events(Slot(slot), level));
        let (mut events, mut mask) = (BTreeMap::new(), 0u32);
        for level in (round.0..levels).map(Level).filter(|level| !is_null(*level)) {
            let mut block = Vec::new();
            kept(level).iter().for_each(|(_, record)| schema.framing.frame(record, |bytes| block.extend_from_slice(bytes)));
            events.insert(level.0, block);
            mask |= 1 << level.0;
        }
        let (beside, digests, records) = match part.scheme {
            Scheme::Star => {
                let mut blocks = Box::new([Digest::NULL; MAX_LEVELS]);
                for level in (0..levels).map(Level).filter(|level| !is_null(*level)) {
                    blocks[usize::from(level.0)] = match (events.get(&level.0), behind) {
                        (Some(block), _) => star::block_digest(member.id, index, level, block),
                        (None, Some(Behind::Running(running))) => {
                            let digest = running.get(&level.0);
                            digest.map_or(Digest::NULL, |digest| Digest(digest.clone().finalize().into()))
                        }
                        (None, _) => Digest::NULL,
                    };
                }
                let digests = above(&counters, &blocks[..], mask, is_null);
                (Beside::Blocks(blocks), digests, events.values().rev().flatten().copied().collect())
            }
            Scheme::Tree => {
                let roots = match behind {
                    Some(Behind::Roots(roots)) => roots.clone(),
                    _ => Pruned::default(),
                };
                let (seqs, records) = in_order(part, schema, levels, mask, kept).ok_or(Refused::NotAsForwarded)?;
                let digests = roots.multiproof(u64::from(part.n), seqs).ok_or(Refused::NotAsForwarded)?;
                (Beside::Roots(roots), digests, records)
            }
        };
        let mut stream = Vec::new();
        write::schema(&mut stream, &schema.bytes);
        write::open(&mut stream, open);
        write::rebuilt_part(&mut stream, part, mask, &digests, &records);

        let known = member.sealed;
        let mut reader = StreamReader::new(&self.roster, Limits::default())
            .with_known(Box::new(move |_, at| known.filter(|newest| newest.index == at).map(|newest| newest.digest)));
        let mut found = None;
        let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
            if let Event::Proven(proven) = event {
                found = Some(proven.seal.clone());
            }
            Ok(())
        };
        reader.feed(&stream, &mut visit).map_err(|error| Refused::NotProven(error.name()))?;
        reader.finish(&mut visit).map_err(|error| Refused::NotProven(error.name()))?;
        let seal = found.ok_or(Refused::MalformedClose)?;
        let signature = part.signature.unwrap_or_default().to_vec();
        let (schema, framing) = (schema.digest, schema.framing);
        Ok(Sealed { slot: Slot(slot), seal, beside, signature, schema, framing, events, is_listed: true })
    }

    /// A seal with the levels that are kept.
    pub(super) fn bundle(&self, sealed: &Sealed) -> Vec<u8> {
        let statement = sealed.seal.statement();
        let mask = sealed.events.keys().fold(0u32, |mask, level| mask | 1 << level);
        let (evidence, records) = match &sealed.beside {
            Beside::Blocks(blocks) => {
                let records: Vec<u8> = sealed.events.values().rev().flatten().copied().collect();
                (write::star_evidence(&sealed.seal, &blocks[..], mask), records)
            }
            Beside::Roots(roots) => {
                let (mut seqs, mut records) = (Vec::new(), Vec::new());
                for (seq, record) in sealed.in_order(&sealed.events) {
                    seqs.push(seq);
                    sealed.framing.frame(record, |bytes| records.extend_from_slice(bytes));
                }
                // It was one when the seal was proven, and stays one.
                (roots.multiproof(statement.counters.total(), seqs).unwrap_or_default(), records)
            }
        };
        let mut out = Vec::new();
        if let Some(schema) = self.schemas.get(&sealed.schema) {
            write::schema(&mut out, &schema.bytes);
        }
        let roster_version = self.roster.version_of(&statement.roster).unwrap_or(self.roster.version());
        let open = OpenItem { device: statement.device, roster_version, prev: Some(statement.prev), last: statement.last };
        write::open(&mut out, &open);
        write::part(&mut out, &sealed.seal, Selection::Levels(mask), &evidence, &records, Some(&sealed.signature));
        out
    }
}

/// What stands above the coarsest kept block of a star is one digest (section 4), if there is anything.
fn above(counters: &Counters, blocks: &[Digest], mask: u32, is_null: impl Fn(Level) -> bool) -> Vec<u8> {
    let lowest = if mask == 0 { counters.levels() } else { u8::try_from(mask.trailing_zeros()).unwrap_or(counters.levels()) };
    let levels = || (0..lowest).map(Level);
    if levels().all(is_null) {
        return Vec::new();
    }
    let link = |above: Digest, level: Level| star::link(&above, counters.at(level), &blocks[usize::from(level.0)]);
    levels().fold(star::chain_start(), link).0.to_vec()
}

/// The kept events of a tree in order, and their records as they lie in a part; `None` if the device gave one another level than its
/// salt does, or forwarded fewer.
fn in_order<'q>(
    part: &Part<'_>,
    schema: &SchemaEntry,
    levels: u8,
    mask: u32,
    kept: impl Fn(Level) -> Vec<(Sequence, &'q [u8])>,
) -> Option<(Vec<Sequence>, Vec<u8>)> {
    let mut queues: Vec<_> =
        (0..levels).map(|level| if mask >> level & 1 == 1 { kept(Level(level)) } else { Vec::new() }.into_iter()).collect();
    let (key, mut seqs, mut records) = (SipKey::new(&part.salt), Vec::new(), Vec::new());
    for seq in (0..u64::from(part.n)).map(Sequence) {
        let level = key.level(seq.0, levels).0;
        if mask >> level & 1 == 1 {
            let (_, record) = queues.get_mut(usize::from(level))?.next().filter(|(at, _)| *at == seq)?;
            seqs.push(seq);
            schema.framing.frame(record, |bytes| records.extend_from_slice(bytes));
        }
    }
    queues.iter_mut().all(|queue| queue.next().is_none()).then_some((seqs, records))
}
