//! One query that runs, as a gateway gathers it: what each child has said of each epoch, and which epochs are over.
//!
//! An epoch is open until all children have spoken or its time is up; its children's records are kept for some epochs more, so that a
//! sum that fails can be walked down. Epochs end once. No time is read here: it is an argument, in milliseconds since 1970.

use std::collections::BTreeMap;

use moteseal_core::sum::participation::Participation;
use moteseal_core::sum::query::{Plan, QueryId};
use moteseal_core::sum::sies::Psr;
use moteseal_core::wire::sum::Psrs;
use moteseal_verify::aggregation::Hub;

use super::refused::Refused;

/// A gateway waits at most so many epochs for children after an epoch's end, all heights of the tree together: where the grace would be
/// longer, it is shortened, so that no more than these, the current and the next epoch are ever open.
pub const OPEN_EPOCHS: u64 = 6;
/// Of so many epochs that are over what the children had said is kept.
pub const KEPT_EPOCHS: usize = 8;
/// A gateway that has not looked at the clock for so many epochs passes over those of which it heard nothing.
const MISSED_EPOCHS: u64 = 2 * OPEN_EPOCHS;

/// A query that runs.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) id: QueryId,
    first: u64,
    until: u64,
    slots: usize,
    epoch_ms: u64,
    /// How long after an epoch's end children are waited for.
    wait_ms: u64,
    /// All epochs before it are over.
    next: u64,
    /// Epochs before it were over when the query was heard of: of those nothing is said if nothing is heard.
    quiet: u64,
    epochs: BTreeMap<u64, Epoch>,
}

#[derive(Debug, Default)]
struct Epoch {
    /// By the child's place.
    shares: BTreeMap<usize, Held>,
    is_over: bool,
}

/// What a child has said of an epoch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) participation: Box<[u8]>,
    pub(super) psrs: Box<[Psr]>,
}

/// The sum of what the children said.
pub(super) struct Sum {
    /// Who takes part, a bit each.
    pub(super) participants: Vec<u64>,
    /// By key group, then slot.
    pub(super) psrs: Vec<Psr>,
    /// Who has spoken.
    pub(super) spoken: Vec<usize>,
}

impl Gathering {
    /// A query of `epochs`, first heard of at `now_ms`. `grace_ms` is waited for each of the `height`s of a tree, this gateway's beneath
    /// the querier's.
    pub(super) fn new(
        id: QueryId,
        plan: &Plan<'_>,
        epochs: (u64, u64),
        grace_ms: u64,
        (height, of_tree): (u32, u32),
        now_ms: u64,
    ) -> Self {
        let epoch_ms = u64::from(plan.epoch_ms()).max(1);
        let level_ms = grace_ms.min(OPEN_EPOCHS * epoch_ms / u64::from(of_tree.max(1)));
        let wait_ms = level_ms.saturating_mul(height.into());
        let (slots, (first, until)) = (plan.slots().count(), epochs);
        let mut gathering = Self { id, first, until, slots, epoch_ms, wait_ms, next: 0, quiet: 0, epochs: BTreeMap::new() };
        gathering.next = first.max(gathering.earliest(now_ms));
        gathering.quiet = now_ms / epoch_ms;
        gathering
    }

    /// The query is asked of other epochs than before.
    pub(super) fn ask(&mut self, first: u64, until: u64) {
        (self.first, self.until) = (first, until);
        self.next = self.next.max(first);
        self.epochs.retain(|epoch, held| held.is_over || (first..until).contains(epoch));
    }

    /// When an epoch's time is up.
    fn deadline(&self, epoch: u64) -> u64 {
        epoch.saturating_add(1).saturating_mul(self.epoch_ms).saturating_add(self.wait_ms)
    }

    /// The first epoch whose time is not up.
    const fn earliest(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.wait_ms) / self.epoch_ms
    }

    /// When the next epoch's time is up.
    pub(super) fn due(&self) -> Option<u64> {
        (self.next < self.until).then(|| self.deadline(self.next))
    }

    /// The epochs whose time is up, ascending, and how many were passed over.
    pub(super) fn over(&self, now_ms: u64) -> (Vec<u64>, u64) {
        let end = self.earliest(now_ms).min(self.until);
        let missed = end.saturating_sub(self.next).saturating_sub(MISSED_EPOCHS);
        let from = self.next + missed;
        let is_open = |epoch: &u64| self.epochs.get(epoch).is_none_or(|epoch| !epoch.is_over);
        let heard = self.epochs.range(self.next..from.max(self.next)).map(|(epoch, _)| *epoch);
        let said = (from..end).filter(|epoch| *epoch >= self.quiet || self.epochs.contains_key(epoch));
        (heard.chain(said).filter(is_open).collect(), missed)
    }

    /// The epochs that have ended by the clock, and of which something was heard, although not all.
    pub(super) fn begun(&self, now_ms: u64) -> Vec<u64> {
        let ended = self.epochs.range(..now_ms / self.epoch_ms);
        ended.filter(|(_, epoch)| !epoch.is_over).map(|(epoch, _)| *epoch).collect()
    }

    /// No epoch before this one, or whose time is up, is open any more.
    pub(super) fn pass(&mut self, now_ms: u64) {
        self.next = self.next.max(self.earliest(now_ms));
        while self.epochs.get(&self.next).is_some_and(|epoch| epoch.is_over) {
            self.next += 1;
        }
    }

    /// Takes what a child says of an epoch; says whether it is news, and whether that was the last child.
    pub(super) fn take(&mut self, epoch: u64, child: usize, share: Held, children: usize) -> Result<(bool, bool), Refused> {
        let held = self.epochs.get(&epoch);
        match held.and_then(|held| held.shares.get(&child)) {
            Some(before) if *before == share => return Ok((false, false)),
            Some(_) => return Err(Refused::Contradiction),
            None if epoch < self.next || held.is_some_and(|held| held.is_over) => return Err(Refused::EpochOver),
            None => {}
        }
        let held = self.epochs.entry(epoch).or_default();
        held.shares.insert(child, share);
        Ok((true, held.shares.len() == children))
    }

    /// Whether the epoch is one that a child may speak of.
    pub(super) fn check_epoch(&self, epoch: u64, now_ms: u64) -> Result<(), Refused> {
        let is_asked = (self.first..self.until).contains(&epoch);
        if is_asked && epoch <= (now_ms / self.epoch_ms).saturating_add(1) { Ok(()) } else { Err(Refused::WrongEpoch) }
    }

    /// The set of positions and the records of a share, if they are what the child may say.
    pub(super) fn check<'a>(
        &self,
        participation: &'a [u8],
        psrs: Psrs<'_>,
        (hub, child, key_group): (&Hub, usize, u32),
    ) -> Result<(Participation<'a>, Box<[Psr]>), Refused> {
        let participation = Participation::decode(participation, hub.group_sources())?;
        if !participation.runs().all(|run| hub.are_beneath(run, child)) {
            return Err(Refused::NotBeneath);
        }
        let expected = key_groups(participation, key_group).count() * self.slots;
        if psrs.iter().count() != expected {
            return Err(Refused::WrongPsrCount);
        }
        Ok((participation, psrs.iter().collect::<Result<_, _>>()?))
    }

    /// Ends an epoch: adds up what the children said.
    pub(super) fn end(&mut self, epoch: u64, hub: &Hub, key_group: u32) -> Sum {
        let held = self.epochs.entry(epoch).or_default();
        held.is_over = true;
        let words = hub.group_sources().div_ceil(64) as usize;
        let mut sum = Sum { participants: vec![0; words], psrs: Vec::new(), spoken: held.shares.keys().copied().collect() };
        let mut by_group: BTreeMap<u32, Vec<Psr>> = BTreeMap::new();
        for share in held.shares.values() {
            // It was decoded when it was taken.
            let Ok(participation) = Participation::decode(&share.participation, hub.group_sources()) else { continue };
            participation.runs().for_each(|run| set(&mut sum.participants, run));
            for (group, psrs) in key_groups(participation, key_group).zip(share.psrs.chunks(self.slots)) {
                let slots = by_group.entry(group).or_insert_with(|| vec![Psr::ZERO; self.slots]);
                slots.iter_mut().zip(psrs).for_each(|(slot, psr)| *slot = slot.merge(psr));
            }
        }
        sum.psrs = by_group.into_values().flatten().collect();
        let over = self.epochs.iter().filter(|(_, epoch)| epoch.is_over).map(|(epoch, _)| *epoch);
        // Those from `next` on stay: they are few, and what is known of them keeps them from being opened again.
        if let Some(oldest) = over.rev().nth(KEPT_EPOCHS - 1).map(|oldest| oldest.min(self.next)) {
            self.epochs = self.epochs.split_off(&oldest);
        }
        sum
    }

    /// What the children had said of an epoch that is over; nothing where that is not kept.
    pub(super) fn kept(&self, epoch: u64) -> Result<Vec<(usize, &Held)>, Refused> {
        let held = self.epochs.get(&epoch);
        if epoch >= self.next && held.is_none_or(|held| !held.is_over) {
            return Err(Refused::WrongEpoch);
        }
        Ok(held.into_iter().flat_map(|held| &held.shares).map(|(child, share)| (*child, share)).collect())
    }

    /// Bytes of children's records that are held.
    pub(super) fn bytes(&self) -> usize {
        let shares = self.epochs.values().flat_map(|epoch| epoch.shares.values());
        shares.map(|share| size_of::<Held>() + share.participation.len() + size_of_val(&*share.psrs)).sum()
    }
}

/// The key groups that have a participant, ascending.
pub(super) fn key_groups(participation: Participation<'_>, size: u32) -> impl Iterator<Item = u32> {
    let size = size.max(1);
    let mut next = 0;
    participation.runs().flat_map(move |run| {
        let groups = next.max(run.start / size)..(run.end - 1) / size + 1;
        next = groups.end.max(next);
        groups
    })
}

/// Sets the bits of a range.
fn set(words: &mut [u64], range: std::ops::Range<u32>) {
    let mut at = range.start;
    while at < range.end {
        let (word, bit) = ((at / 64) as usize, at % 64);
        let count = (64 - bit).min(range.end - at);
        if let Some(word) = words.get_mut(word) {
            *word |= (u64::MAX >> (64 - count)) << bit;
        }
        at += count;
    }
}
