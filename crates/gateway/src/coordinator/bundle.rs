//! Assembles a device's seal from its closing frame and the kept events, verifies it as a client
//! would, and writes it as a bundle.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Level, MAX_LEVELS, Round, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::Counters;
use moteseal_seal::level::LevelKey;
use moteseal_seal::star;
use moteseal_seal::stream::{Open as OpenItem, Part, Selection};
use moteseal_verify::{Event, ReadError, SchemaEntry, StreamReader, write};

use super::error::Refused;
use super::intake::Unkept;
use super::{Evidence, GroupCoordinator, Sealed, records};
use crate::queues::Slot;
use crate::trees::Trees;

impl GroupCoordinator {
    /// Assembles a seal from the device's closing frame and the kept events, and verifies it as a
    /// client would.
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
        let levels = self.roster.levels(epoch);
        let counters = Counters::of(&part.salt, levels, part.n);
        let is_null = |level: Level| {
            counters.at(level) == 0
                || level.0 < part.own_round.0
                || part.lost.is_some_and(|lost| lost.at(level) > 0)
        };
        let state = self.known_epoch(epoch);
        let round = state.map_or(Round(0), |state| state.coordinator.round());
        let layout = schema.groups.as_deref();
        let open_seal = member.open.as_ref().filter(|open| open.followed.index == index);
        let unkept = open_seal.map(|open| &open.unkept);
        // The place of the seal's schema among the running digests of a dropped level, or among trees.
        let digest_of_schema = match layout {
            None => Some(0),
            Some(_) => open_seal.and_then(|open| {
                let mut grouped = open.grouped.iter();
                grouped.position(|grouped| grouped.schema == schema.digest).map(|place| place + 1)
            }),
        };
        let kept = |level: Level| {
            state.map_or_else(Vec::new, |state| state.queues.events(Slot(slot), level))
        };
        let (mut events, mut mask) = (BTreeMap::new(), 0u32);
        for level in (round.0..levels).map(Level).filter(|level| !is_null(*level)) {
            let mut block = Vec::new();
            kept(level).iter().for_each(|(_, record)| {
                schema.framing.frame(record, |bytes| block.extend_from_slice(bytes));
            });
            events.insert(level.0, block);
            mask |= 1 << level.0;
        }
        let (evidence, digests, records) = match part.scheme {
            Scheme::Star => {
                let mut blocks = Box::new([Digest::NULL; MAX_LEVELS]);
                for level in (0..levels).map(Level).filter(|level| !is_null(*level)) {
                    blocks[usize::from(level.0)] = match (events.get(&level.0), unkept) {
                        (Some(block), _) => {
                            let (place, records) =
                                ((member.id, index, level), (layout, schema.framing));
                            star::whole_block_digest(place, records, block)
                        }
                        (None, Some(Unkept::Running(running))) => {
                            let running = running.get(&level.0);
                            // Events were dropped before the schema was known.
                            if running.is_some() && digest_of_schema.is_none() {
                                return Err(Refused::NotAsForwarded);
                            }
                            let digest = running.zip(digest_of_schema);
                            let digest = digest.and_then(|(digest, at)| digest.digests().nth(at));
                            digest.unwrap_or(Digest::NULL)
                        }
                        (None, _) => Digest::NULL,
                    };
                }
                let digests = above(&counters, &blocks[..], mask, is_null);
                (
                    Evidence::Blocks(blocks),
                    digests,
                    events.values().rev().flatten().copied().collect(),
                )
            }
            Scheme::Tree => {
                let mut trees = match unkept {
                    Some(Unkept::Roots(trees)) => {
                        let trees = digest_of_schema.and_then(|at| trees.get(at));
                        trees.ok_or(Refused::NotAsForwarded)?.clone()
                    }
                    _ => Trees::new(layout),
                };
                // The device may have raised its own round above the levels of events that it had
                // already forwarded, without sending a frame that confirms the round.
                for (seq, record) in (0..part.own_round.0).flat_map(|level| kept(Level(level))) {
                    trees.drop_record(seq, record);
                }
                let key = LevelKey::new(&part.salt);
                let mut seqs = BTreeMap::new();
                for level in events.keys().copied().map(Level) {
                    let of_level: Vec<Sequence> = kept(level).iter().map(|(seq, _)| *seq).collect();
                    let is_of_level = |seq: &Sequence| {
                        seq.0 < u64::from(part.n) && key.level(seq.0, levels) == level
                    };
                    if of_level.len() as u64 != u64::from(counters.at(level))
                        || !of_level.iter().all(is_of_level)
                    {
                        return Err(Refused::NotAsForwarded);
                    }
                    seqs.insert(level.0, of_level);
                }
                let (places, records) = in_order(schema.framing, &events, &seqs);
                let digests =
                    trees.digests(u64::from(part.n), &places).ok_or(Refused::NotAsForwarded)?;
                (Evidence::Roots { trees, seqs }, digests, records)
            }
        };
        let mut stream = Vec::new();
        write::schema(&mut stream, &schema.bytes);
        write::open(&mut stream, open);
        write::rebuilt_part(&mut stream, part, mask, &digests, &records);

        let known = member.sealed;
        let mut reader = StreamReader::new(&self.roster, Limits::default()).with_known(Box::new(
            move |_, at| known.filter(|newest| newest.index == at).map(|newest| newest.digest),
        ));
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
        Ok(Sealed {
            slot: Slot(slot),
            seal,
            evidence,
            signature,
            schema,
            framing,
            events,
            is_listed: true,
        })
    }

    /// Returns a bundle of the seal with the levels that are kept.
    pub(super) fn bundle(&self, sealed: &Sealed) -> Vec<u8> {
        let statement = sealed.seal.statement();
        let mask = sealed.events.keys().fold(0u32, |mask, level| mask | 1 << level);
        let (evidence, records) = match &sealed.evidence {
            Evidence::Blocks(blocks) => {
                let records: Vec<u8> = sealed.events.values().rev().flatten().copied().collect();
                (write::star_evidence(&sealed.seal, &blocks[..], mask), records)
            }
            Evidence::Roots { trees, seqs } => {
                let (places, records) = in_order(sealed.framing, &sealed.events, seqs);
                let digests = trees.digests(statement.counters.total(), &places);
                debug_assert!(
                    digests.is_some(),
                    "a multiproof existed when the seal was verified, and dropping leaves cannot remove it"
                );
                (digests.unwrap_or_default(), records)
            }
        };
        let mut out = Vec::new();
        if let Some(schema) = self.schemas.get(&sealed.schema) {
            write::schema(&mut out, &schema.bytes);
        }
        let roster_version =
            self.roster.version_of(&statement.roster).unwrap_or(self.roster.version());
        let open = OpenItem {
            device: statement.device,
            roster_version,
            prev: Some(statement.prev),
            last: statement.last,
        };
        write::open(&mut out, &open);
        write::part(
            &mut out,
            &sealed.seal,
            Selection::Levels(mask),
            &evidence,
            &records,
            Some(&sealed.signature),
        );
        out
    }
}

/// Returns the single digest that represents the levels below the lowest kept level of a star
/// (spec/answers.md, section 1). Returns nothing if all these levels are null.
fn above(
    counters: &Counters,
    blocks: &[Digest],
    mask: u32,
    is_null: impl Fn(Level) -> bool,
) -> Vec<u8> {
    let lowest = if mask == 0 {
        counters.levels()
    } else {
        u8::try_from(mask.trailing_zeros()).unwrap_or(counters.levels())
    };
    let levels = || (0..lowest).map(Level);
    if levels().all(is_null) {
        return Vec::new();
    }
    let link = |above: Digest, level: Level| {
        star::link(&above, counters.at(level), &blocks[usize::from(level.0)])
    };
    levels().fold(star::chain_start(), link).0.to_vec()
}

/// Returns the sequence numbers of a tree's kept events in ascending order, and the events' records
/// encoded as in a part.
fn in_order(
    framing: Framing,
    blocks: &BTreeMap<u8, Vec<u8>>,
    seqs: &BTreeMap<u8, Vec<Sequence>>,
) -> (Vec<Sequence>, Vec<u8>) {
    let of_level = |(level, seqs): (&u8, &'_ Vec<Sequence>)| {
        let block = blocks.get(level).map_or(&[][..], Vec::as_slice);
        seqs.iter().copied().zip(records(framing, block)).collect::<Vec<_>>()
    };
    let mut events: Vec<(Sequence, &[u8])> = seqs.iter().flat_map(of_level).collect();
    events.sort_unstable_by_key(|(seq, _)| *seq);
    let mut joined = Vec::new();
    events
        .iter()
        .for_each(|(_, record)| framing.frame(record, |bytes| joined.extend_from_slice(bytes)));
    (events.into_iter().map(|(seq, _)| seq).collect(), joined)
}
