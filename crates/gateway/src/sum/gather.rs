//! One query that runs, as a gateway gathers it: what each child has said of each epoch, and which
//! epochs are over.
//!
//! An epoch is open until all children have spoken or its time is up; its children's records are
//! kept for some epochs more, so that a sum that fails can be walked down. Epochs end once, but for
//! those that a clock ended early that was set back since. No time is read here: it is an argument,
//! in milliseconds since 1970.

use std::collections::BTreeMap;

use moteseal_sum::participation::Participation;
use moteseal_sum::query::{Plan, QueryId};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::Psrs;
use moteseal_verify::aggregation;

use super::error::Refused;

/// A gateway waits at most so many epochs for children after an epoch's end, all heights of the
/// tree together: where the grace would be longer, it is shortened, so that no more than these, the
/// current and the next epoch are ever open.
pub const OPEN_EPOCHS: u64 = 6;
/// Of so many epochs that are over what the children had said is kept at least, whatever it takes.
pub const KEPT_EPOCHS: usize = 8;
/// And of as many as take this time, for the querier needs some to ask one node after the other.
const KEPT_MS: u64 = 60_000;
/// Those beyond [`KEPT_EPOCHS`] are kept while all together takes no more bytes than this.
const KEPT_BYTES: usize = 16 << 20;
/// A gateway that has not looked at the clock for so many epochs passes over those of which it
/// heard nothing.
const MISSED_EPOCHS: u64 = 2 * OPEN_EPOCHS;

/// Of how many epochs of this length what the children had said is kept, where its bytes allow
/// that.
#[must_use]
pub const fn kept_epochs(epoch_ms: u64) -> usize {
    let in_time = KEPT_MS.div_ceil(if epoch_ms == 0 { 1 } else { epoch_ms }) as usize;
    if in_time > KEPT_EPOCHS { in_time } else { KEPT_EPOCHS }
}

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
    /// When the query was heard of. Of epochs that had ended by then nothing is said if nothing is
    /// heard; of those that had begun it is not known what the children said before.
    heard_ms: u64,
    epochs: BTreeMap<u64, Epoch>,
}

#[derive(Debug, Default)]
struct Epoch {
    /// By the child's place.
    shares: BTreeMap<usize, Held>,
    /// What the shares take.
    bytes: usize,
    is_over: bool,
}

/// What a child has said of an epoch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) participation: Box<[u8]>,
    pub(super) psrs: Box<[Psr]>,
}

impl Held {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.participation.len() + size_of_val(&*self.psrs)
    }
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
    /// A query of `epochs`, first heard of at `now_ms`. `grace_ms` is waited for each of the
    /// `height`s of a tree, this gateway's beneath the querier's.
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
        let mut gathering = Self {
            id,
            first,
            until,
            slots,
            epoch_ms,
            wait_ms,
            next: 0,
            heard_ms: now_ms,
            epochs: BTreeMap::new(),
        };
        gathering.next = first.max(gathering.earliest(now_ms));
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
        let quiet = self.heard_ms / self.epoch_ms;
        let said = (from..end).filter(|epoch| *epoch >= quiet || self.epochs.contains_key(epoch));
        (heard.chain(said).filter(is_open).collect(), missed)
    }

    /// The epochs that have ended by the clock, and of which something was heard, although not all.
    pub(super) fn begun(&self, now_ms: u64) -> Vec<u64> {
        let ended = self.epochs.range(..now_ms / self.epoch_ms);
        ended.filter(|(_, epoch)| !epoch.is_over).map(|(epoch, _)| *epoch).collect()
    }

    /// No epoch whose time is up is open any more. Where the clock was ahead and was set back,
    /// epochs that it had ended before they began are open again: whoever was sent their sums takes
    /// the first only.
    pub(super) fn pass(&mut self, now_ms: u64) {
        let current = now_ms / self.epoch_ms;
        // Children may speak of the epoch after the current one, and that may be over when all
        // have.
        if self.next > current.saturating_add(2) {
            self.next = self.first;
            self.heard_ms = self.heard_ms.min(now_ms);
            self.epochs.split_off(&current.saturating_add(2));
        }
        self.next = self.next.max(self.earliest(now_ms));
        self.advance();
    }

    /// What is over is passed over.
    fn advance(&mut self) {
        while self.epochs.get(&self.next).is_some_and(|epoch| epoch.is_over) {
            self.next += 1;
        }
    }

    /// Takes what a child says of an epoch; says whether it is news, and whether that was the last
    /// child.
    pub(super) fn take(
        &mut self,
        epoch: u64,
        child: usize,
        share: Held,
        children: usize,
    ) -> Result<(bool, bool), Refused> {
        let held = self.epochs.get(&epoch);
        match held.and_then(|held| held.shares.get(&child)) {
            Some(before) if *before == share => return Ok((false, false)),
            Some(_) => return Err(Refused::Contradiction),
            None if epoch < self.next || held.is_some_and(|held| held.is_over) => {
                return Err(Refused::EpochOver);
            }
            None => {}
        }
        let held = self.epochs.entry(epoch).or_default();
        held.bytes += share.bytes();
        held.shares.insert(child, share);
        Ok((true, held.shares.len() == children))
    }

    /// Whether the epoch is one that a child may speak of.
    pub(super) fn check_epoch(&self, epoch: u64, now_ms: u64) -> Result<(), Refused> {
        let is_asked = (self.first..self.until).contains(&epoch);
        if is_asked && epoch <= (now_ms / self.epoch_ms).saturating_add(1) {
            Ok(())
        } else {
            Err(Refused::WrongEpoch)
        }
    }

    /// The set of positions and the records of a share, if they are what the child may say.
    pub(super) fn check<'a>(
        &self,
        participation: &'a [u8],
        psrs: Psrs<'_>,
        (node, child, key_group): (&aggregation::Aggregator, usize, u32),
    ) -> Result<(Participation<'a>, Box<[Psr]>), Refused> {
        let participation = Participation::decode(participation, node.group_sources())?;
        if !participation.runs().all(|run| node.are_beneath(run, child)) {
            return Err(Refused::NotBeneath);
        }
        let expected = key_groups(participation, key_group).count() * self.slots;
        if psrs.iter().count() != expected {
            return Err(Refused::WrongPsrCount);
        }
        Ok((participation, psrs.iter().collect::<Result<_, _>>()?))
    }

    /// Ends an epoch: adds up what the children said.
    pub(super) fn end(
        &mut self,
        epoch: u64,
        node: &aggregation::Aggregator,
        key_group: u32,
    ) -> Sum {
        let held = self.epochs.entry(epoch).or_default();
        held.is_over = true;
        let words = node.group_sources().div_ceil(64) as usize;
        let mut sum = Sum {
            participants: vec![0; words],
            psrs: Vec::new(),
            spoken: held.shares.keys().copied().collect(),
        };
        let mut by_group: BTreeMap<u32, Vec<Psr>> = BTreeMap::new();
        for share in held.shares.values() {
            // It was decoded when it was taken.
            let Ok(participation) =
                Participation::decode(&share.participation, node.group_sources())
            else {
                continue;
            };
            participation.runs().for_each(|run| set(&mut sum.participants, run));
            for (group, psrs) in
                key_groups(participation, key_group).zip(share.psrs.chunks(self.slots))
            {
                let slots = by_group.entry(group).or_insert_with(|| vec![Psr::ZERO; self.slots]);
                slots.iter_mut().zip(psrs).for_each(|(slot, psr)| *slot = slot.merge(psr));
            }
        }
        sum.psrs = by_group.into_values().flatten().collect();
        self.advance();
        self.forget();
        sum
    }

    /// Forgets what is kept no longer. Epochs from `next` on stay: they are few, and what is known
    /// of them keeps them from being opened again.
    fn forget(&mut self) {
        let (mut bytes, mut oldest) = (0_usize, self.next);
        for (count, (epoch, held)) in (1..).zip(self.epochs.range(..self.next).rev()) {
            bytes = bytes.saturating_add(held.bytes);
            if count > kept_epochs(self.epoch_ms) || (count > KEPT_EPOCHS && bytes > KEPT_BYTES) {
                break;
            }
            oldest = *epoch;
        }
        self.epochs = self.epochs.split_off(&oldest);
    }

    /// What the children had said of an epoch that is over; nothing where that is not kept, or
    /// where some of it may have been said to this gateway before it was restarted.
    pub(super) fn kept(&self, epoch: u64) -> Result<Vec<(usize, &Held)>, Refused> {
        let held = self.epochs.get(&epoch);
        if epoch >= self.next && held.is_none_or(|held| !held.is_over) {
            return Err(Refused::WrongEpoch);
        }
        let held = held.filter(|_| epoch >= self.heard_ms.div_ceil(self.epoch_ms));
        Ok(held
            .into_iter()
            .flat_map(|held| &held.shares)
            .map(|(child, share)| (*child, share))
            .collect())
    }

    /// Bytes of children's records that are held.
    pub(super) fn bytes(&self) -> usize {
        self.epochs.values().map(|epoch| epoch.bytes).sum()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A gathering of one-second epochs of which so many are over, each with a share of so many
    /// records.
    fn over(epochs: u64, records: usize) -> Gathering {
        let (id, until) = (QueryId([0; 16]), u64::MAX);
        let mut gathering = Gathering {
            id,
            first: 0,
            until,
            slots: 1,
            epoch_ms: 1000,
            wait_ms: 0,
            next: 0,
            heard_ms: 0,
            epochs: BTreeMap::new(),
        };
        for epoch in 0..epochs {
            let held =
                Held { participation: Box::default(), psrs: vec![Psr::ZERO; records].into() };
            gathering.take(epoch, 0, held, 1).unwrap();
            gathering.epochs.get_mut(&epoch).unwrap().is_over = true;
            gathering.advance();
            gathering.forget();
        }
        gathering
    }

    #[test]
    fn what_children_said_is_kept_for_a_minute_but_of_large_shares_for_eight_epochs() {
        // A megabyte an epoch: sixteen of them are the bound.
        let records = (1 << 20) / size_of::<Psr>();
        for (records, kept) in
            [(0, 60), (records / 8, 60), (records, 15), (4 * records, KEPT_EPOCHS)]
        {
            let gathering = over(100, records);
            assert_eq!(
                gathering.epochs.keys().copied().collect::<Vec<_>>(),
                (100 - kept as u64..100).collect::<Vec<_>>()
            );
            assert!(
                gathering.bytes()
                    <= KEPT_BYTES
                        .max(KEPT_EPOCHS * (records * size_of::<Psr>() + size_of::<Held>()))
            );
        }
    }
}
