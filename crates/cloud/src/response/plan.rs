//! Determines which events of each seal a response contains, for each kind of choice.

use std::collections::VecDeque;

use moteseal_core::record::{Level, Round, Scheme, Sequence};
use moteseal_lanes::Host;
use moteseal_seal::sample::Readings;
use moteseal_seal::sample::choice::{EpochCounts, Rate, rate_levels};
use moteseal_seal::sample::existing;
use moteseal_seal::sample::permutation::{self, Swap};
use moteseal_store::StoredSeal;

use super::item::Selected;
use super::stop::Stop;

/// A seal, and which of its events to send.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) seal: StoredSeal,
    pub(super) selection: Selected,
}

impl Planned {
    /// Returns an upper bound on the size of the records to send, in bytes.
    pub(super) fn most_records(&self) -> u64 {
        if self.selection == Selected::Levels(0) { 0 } else { self.seal.events_length() }
    }
}

/// Returns whether `next` can follow `part` in the same run, under the same open item and
/// signature.
pub(super) fn follows(part: &Planned, next: &Planned) -> bool {
    let (before, after) = (part.seal.seal(), next.seal.seal());
    let (old, new) = (before.statement(), after.statement());
    new.prev == before.digest()
        && new.device == old.device
        && new.roster == old.roster
        && new.schema == old.schema
}

/// Selects the levels of a rate from one seal. Returns the seal if the rate needs levels that the
/// device or the coordinator discarded.
pub(super) fn by_rate(seal: StoredSeal, rate: Rate) -> Result<Planned, Box<StoredSeal>> {
    match rate_levels(rate, seal.seal().statement()) {
        Ok(mask) if mask & !seal.kept() == 0 => {
            Ok(Planned { seal, selection: Selected::Levels(mask) })
        }
        _ => Err(Box::new(seal)),
    }
}

/// Selects the readings of one seal that the query names. Fails if the seal is not a tree, or if a
/// reading does not exist or was not kept.
pub(super) fn by_name(seal: StoredSeal, readings: &Readings) -> Result<Planned, Stop> {
    let statement = seal.seal().statement();
    let named: Vec<Sequence> = readings.of(statement.index).collect();
    let Some(last) = named.last() else {
        return Ok(Planned { seal, selection: Selected::Levels(0) });
    };
    if statement.scheme == Scheme::Star {
        let detail = "single readings need epochs sealed as trees; use rate or at_most instead";
        return Err(Stop::at("SchemeMismatch", &seal, detail));
    }
    let total = statement.counters.total();
    if last.0 >= total {
        let detail = format!("the seal has {total} readings, with the numbers from 0 on");
        return Err(Stop::at("ReadingUnavailable", &seal, &detail));
    }
    let levels = statement.counters.levels();
    let is_lost = |seq: &&Sequence| {
        let level = statement.salt.level(**seq, levels);
        (seal.kept() & statement.surviving()) >> level.0 & 1 == 0
    };
    if let Some(seq) = named.iter().find(is_lost) {
        let detail = format!("reading {} was not kept", seq.0);
        return Err(Stop::at("ReadingUnavailable", &seal, &detail));
    }
    Ok(Planned { seal, selection: Selected::Events(named) })
}

/// The seals of a query, as far as they determine which rates are available for all of them.
#[derive(Debug, Default)]
pub(super) struct KeptLevels {
    /// The seal that lacks the highest level, with the round from which on it has all its events.
    least: Option<(Round, StoredSeal)>,
}

impl KeptLevels {
    /// Adds a seal.
    pub(super) fn add(&mut self, seal: &StoredSeal) {
        let counters = &seal.seal().statement().counters;
        let is_lacking =
            |level: &u8| counters.at(Level(*level)) > 0 && seal.kept() >> level & 1 == 0;
        let Some(level) = (0..counters.levels()).rev().find(is_lacking) else { return };
        let round = Round(level + 1);
        if self.least.as_ref().is_none_or(|(least, _)| *least < round) {
            self.least = Some((round, seal.clone()));
        }
    }

    /// Returns the error for a rate that `refused` does not have. It states the highest rate that
    /// all seals have, and the seal that determines it.
    pub(super) fn rate_unavailable(&self, refused: &StoredSeal) -> Stop {
        let (round, seal) =
            self.least.as_ref().map_or((Round(0), refused), |(round, seal)| (*round, seal));
        let statement = seal.seal().statement();
        let highest = highest_rate(round, statement.counters.levels()).map_or_else(
            || "no rate is available".to_owned(),
            |rate| format!("the highest available rate is {rate}"),
        );
        let detail = format!("epoch {} was kept from round {round} on: {highest}", statement.epoch);
        Stop::at("RateUnavailable", seal, &detail)
    }
}

/// Returns the highest rate that needs no level below `round`, in a group with `levels` levels.
fn highest_rate(round: Round, levels: u8) -> Option<Rate> {
    Rate::new(1, 1u64.checked_shl(round.0.into())?)
        .ok()
        .filter(|rate| round.0 < levels && rate.levels(levels).is_some())
}

/// Selects whole levels of an epoch that ended at `round`, so that all seals of the epoch together
/// contribute at most `most` events. If the round is unknown, selects no events. Fails if a late
/// seal lacks a selected level.
pub(super) fn at_most(
    parts: Vec<StoredSeal>,
    levels: u8,
    round: Option<Round>,
    most: u64,
) -> Result<VecDeque<Planned>, Stop> {
    let mut counts = EpochCounts::at_round(levels, round.unwrap_or(Round(0)));
    for seal in &parts {
        counts.add(seal.seal().statement());
    }
    let mask = if round.is_some() { counts.at_most(most) } else { 0 };
    let plan = |seal: StoredSeal| {
        all_kept(&seal, mask & seal.seal().statement().surviving())?;
        let selection = Selected::Levels(mask & seal.kept());
        Ok(Planned { seal, selection })
    };
    parts.into_iter().map(plan).collect()
}

/// Checks that the store has the selected levels of a seal. Only a late seal can lack a selected
/// level.
fn all_kept(seal: &StoredSeal, levels: u32) -> Result<(), Stop> {
    if levels & !seal.kept() == 0 {
        return Ok(());
    }
    let detail = format!(
        "the seal arrived after the manifest of epoch {} and has only the levels from round {} on; \
         request fewer events, or other epochs",
        seal.seal().statement().epoch,
        seal.kept_from()
    );
    Err(Stop::at("RateUnavailable", seal, &detail))
}

/// Selects the events that a seed determines among all seals of an epoch that ended at `round`. If
/// the round is unknown, selects no events. Fails if a late seal lacks a selected event.
pub(super) fn permuted(
    parts: Vec<StoredSeal>,
    levels: u8,
    round: Option<Round>,
    (count, seed): (u32, &[u8; 32]),
) -> Result<VecDeque<Planned>, Stop> {
    if let Some(star) = parts.iter().find(|seal| seal.seal().statement().scheme == Scheme::Star) {
        let detail =
            "a sample by count and seed needs epochs sealed as trees; use rate or at_most instead";
        return Err(Stop::at("SchemeMismatch", star, detail));
    }
    let (round, count) = round.map_or((Round(0), 0), |round| (round, count));
    let statements = || parts.iter().map(|seal| seal.seal().statement());
    let mut counts = EpochCounts::at_round(levels, round);
    statements().for_each(|part| counts.add(part));
    let most = usize::try_from(counts.existing().min(u64::from(count))).unwrap_or(usize::MAX);
    let mut chosen = vec![0; most];
    let mut scratch = vec![Swap::FREE; permutation::scratch_for(most)];
    // `draw` fails only if the scratch space is too short, and this scratch space has the required
    // length.
    let _ = existing::draw(
        &Host::detect(),
        statements(),
        counts.surviving(),
        seed,
        &mut chosen,
        &mut scratch,
    );
    let mut chosen = chosen.into_iter().peekable();
    let mut start = 0;
    let mut plan = |seal: StoredSeal| {
        let statement = seal.seal().statement();
        let end = start + statement.counters.total();
        let (mut sequence, mut drawn) = (Vec::new(), 0);
        while let Some(position) = chosen.next_if(|&position| position < end) {
            let seq = Sequence(position - start);
            drawn |= 1 << statement.salt.level(seq, statement.counters.levels()).0;
            sequence.push(seq);
        }
        all_kept(&seal, drawn)?;
        start = end;
        let selection =
            if sequence.is_empty() { Selected::Levels(0) } else { Selected::Events(sequence) };
        Ok(Planned { seal, selection })
    };
    parts.into_iter().map(&mut plan).collect()
}
