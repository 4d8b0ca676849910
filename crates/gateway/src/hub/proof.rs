//! A device's seal, put together from what it says and what the hub has: verified as anyone would, and written as a bundle.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::level::Counters;
use moteseal_core::record::{EpochNumber, Level, MAX_LEVELS, Round, SealIndex};
use moteseal_core::seal::follow::Limits;
use moteseal_core::seal::star;
use moteseal_core::wire::stream::{Open as OpenItem, Part, Selection};
use moteseal_verify::{Event, ReadError, SchemaEntry, StreamReader, write};
use sha2::Digest as _;

use super::{Hub, Sealed};
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
        let running = member.open.as_ref().filter(|open| open.followed.index == index).map(|open| &open.running);
        let (mut blocks, mut events, mut mask) = ([Digest::NULL; MAX_LEVELS], BTreeMap::new(), 0u32);
        for level in (0..levels).map(Level).filter(|level| !is_null(*level)) {
            blocks[usize::from(level.0)] = if level.0 < round.0 {
                let digest = running.and_then(|running| running.get(&level.0));
                digest.map_or(Digest::NULL, |digest| Digest(digest.clone().finalize().into()))
            } else {
                let mut block = Vec::new();
                let kept = state.map_or_else(Vec::new, |state| state.queues.events(Slot(slot), level));
                kept.iter().for_each(|(_, record)| schema.framing.frame(record, |bytes| block.extend_from_slice(bytes)));
                let digest = star::block_digest(member.id, index, level, &block);
                events.insert(level.0, block);
                mask |= 1 << level.0;
                digest
            };
        }
        // What stands above the coarsest kept block is one digest (section 4).
        let lowest = if mask == 0 { levels } else { u8::try_from(mask.trailing_zeros()).unwrap_or(levels) };
        let above = (0..lowest).map(Level);
        let needs_above = above.clone().any(|level| !is_null(level));
        let chain =
            above.fold(star::chain_start(), |above, level| star::link(&above, counters.at(level), &blocks[usize::from(level.0)]));
        let digests: &[u8] = if needs_above { &chain.0 } else { &[] };
        let mut stream = Vec::new();
        write::schema(&mut stream, &schema.bytes);
        write::open(&mut stream, open);
        let records: Vec<u8> = events.values().rev().flatten().copied().collect();
        write::rebuilt_part(&mut stream, part, mask, digests, &records);

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
        Ok(Sealed { slot: Slot(slot), seal, blocks, signature, schema: schema.digest, events, is_listed: true })
    }

    /// A seal with the levels that are kept.
    pub(super) fn bundle(&self, sealed: &Sealed) -> Vec<u8> {
        let statement = sealed.seal.statement();
        let mask = sealed.events.keys().fold(0u32, |mask, level| mask | 1 << level);
        let evidence = write::star_evidence(&sealed.seal, &sealed.blocks, mask);
        let records: Vec<u8> = sealed.events.values().rev().flatten().copied().collect();
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
