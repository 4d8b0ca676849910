//! The state of an active query at a gateway: each child's share for each epoch, and which epochs
//! have ended.
//!
//! An epoch is open until all children have sent their shares or its waiting time is over. The
//! records of the children are kept for a number of further epochs, so that the fault in a failed
//! sum can be localised. An epoch ends once, with one exception: if the clock was ahead and ended
//! the epoch too early, and was then set back, the epoch is opened again. This module does not read
//! the clock: callers pass the times as arguments, in milliseconds since 1970.

use std::collections::BTreeMap;

use moteseal_core::participation::Participation;
use moteseal_core::record::DeviceId;
use moteseal_sum::query::{Plan, QueryId};
use moteseal_sum::sies::Psr;
use moteseal_sum::wire::Psrs;
use moteseal_verify::aggregation;

use super::error::Refused;

/// The maximum time to wait for children after an epoch's end, as a number of epochs, for all
/// levels of the tree together. A longer grace period is shortened to this time. In addition to the
/// current and the next epoch, at most this many epochs are therefore open at any time.
pub const OPEN_EPOCHS: u64 = 6;
/// The minimum number of ended epochs whose shares are kept, regardless of their size.
pub const KEPT_EPOCHS: usize = 8;
/// How long the shares of epochs older than the newest [`KEPT_EPOCHS`] are kept, in milliseconds.
/// The querier needs this time because it asks one node after another.
const KEPT_MS: u64 = 60_000;
/// The maximum size of all kept shares in bytes, if the shares of more than [`KEPT_EPOCHS`] epochs
/// are kept.
const KEPT_BYTES: usize = 16 << 20;
/// More sources than any roster has.
pub(super) const MAX_SOURCES: u32 = 1 << 31;
/// The minimum time between two refusals of a source that are forwarded, in milliseconds.
const REFUSE_AGAIN_MS: u64 = 20_000;
/// If a gateway did not call `over` for more than this number of epochs, for example because the
/// machine was suspended, it skips the older epochs that have no share.
const MISSED_EPOCHS: u64 = 2 * OPEN_EPOCHS;

/// Returns the number of epochs of this length whose shares are kept, if the size of the shares
/// permits it.
#[must_use]
pub const fn kept_epochs(epoch_ms: u64) -> usize {
    let in_time = KEPT_MS.div_ceil(if epoch_ms == 0 { 1 } else { epoch_ms }) as usize;
    if in_time > KEPT_EPOCHS { in_time } else { KEPT_EPOCHS }
}

/// An active query.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) id: QueryId,
    first: u64,
    until: u64,
    slots: usize,
    epoch_ms: u64,
    /// How long after an epoch's end the gateway waits for children.
    wait_ms: u64,
    /// The first epoch that may still be open. All earlier epochs have ended.
    next: u64,
    /// When the query was first received. An epoch that had ended by then is not reported if it has
    /// no share. The shares of an epoch that had begun by then may be incomplete.
    first_ms: u64,
    epochs: BTreeMap<u64, Epoch>,
    /// When the last refusal of each source was forwarded, by position.
    refusals: BTreeMap<u32, u64>,
}

#[derive(Debug, Default)]
struct Epoch {
    /// The shares, by child.
    shares: BTreeMap<DeviceId, Held>,
    /// The size of the shares, in bytes.
    bytes: usize,
    is_over: bool,
}

/// A child's share for one epoch: the participating sources and their encrypted sums.
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

/// The sum of the children's shares.
pub(super) struct Sum {
    /// The participating sources, one bit for each source.
    pub(super) participants: Vec<u64>,
    /// The sums, ordered by key group, then by slot.
    pub(super) psrs: Vec<Psr>,
    /// The children whose shares were added.
    pub(super) answered: Vec<DeviceId>,
}

impl Gathering {
    /// Creates the state of a query for the epochs `epochs`, received at `now_ms`. After the end of
    /// an epoch, the gateway waits `grace_ms` for each of the `height` levels of the tree below it.
    /// `of_tree` is the number of levels below the querier.
    pub(super) fn new(
        id: QueryId,
        plan: &Plan<'_>,
        epochs: (u64, u64),
        grace_ms: u64,
        (height, of_tree): (u32, u32),
        now_ms: u64,
    ) -> Self {
        let epoch_ms = u64::from(plan.epoch_ms()).max(1);
        let (slots, (first, until)) = (plan.slots().count(), epochs);
        let mut gathering = Self {
            id,
            first,
            until,
            slots,
            epoch_ms,
            wait_ms: 0,
            next: 0,
            first_ms: now_ms,
            epochs: BTreeMap::new(),
            refusals: BTreeMap::new(),
        };
        gathering.set_wait(grace_ms, (height, of_tree));
        gathering.next = first.max(gathering.earliest(now_ms));
        gathering
    }

    /// Sets how long the gateway waits after the end of an epoch: `grace_ms` for each of the
    /// `height` levels of the tree below it.
    pub(super) fn set_wait(&mut self, grace_ms: u64, (height, of_tree): (u32, u32)) {
        let level_ms = grace_ms.min(OPEN_EPOCHS * self.epoch_ms / u64::from(of_tree.max(1)));
        self.wait_ms = level_ms.saturating_mul(height.into());
    }

    /// Returns the start of an epoch of the query, in milliseconds since 1970.
    pub(super) const fn start_ms(&self, epoch: u64) -> u64 {
        epoch.saturating_mul(self.epoch_ms)
    }

    /// Returns the number of slots of the query.
    pub(super) const fn slots(&self) -> usize {
        self.slots
    }

    /// Replaces the range of epochs that the query asks for.
    pub(super) fn ask(&mut self, first: u64, until: u64) {
        (self.first, self.until) = (first, until);
        self.next = self.next.max(first);
        self.epochs.retain(|epoch, held| held.is_over || (first..until).contains(epoch));
    }

    /// Returns when the waiting time of an epoch is over, in milliseconds since 1970.
    fn deadline(&self, epoch: u64) -> u64 {
        epoch.saturating_add(1).saturating_mul(self.epoch_ms).saturating_add(self.wait_ms)
    }

    /// Returns the first epoch whose waiting time is not over.
    const fn earliest(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.wait_ms) / self.epoch_ms
    }

    /// Returns when the waiting time of the next epoch is over, in milliseconds since 1970.
    pub(super) fn due(&self) -> Option<u64> {
        (self.next < self.until).then(|| self.deadline(self.next))
    }

    /// Returns the epochs whose waiting time is over, in ascending order, and how many epochs were
    /// skipped.
    pub(super) fn over(&self, now_ms: u64) -> (Vec<u64>, u64) {
        let end = self.earliest(now_ms).min(self.until);
        let missed = end.saturating_sub(self.next).saturating_sub(MISSED_EPOCHS);
        let from = self.next + missed;
        let is_open = |epoch: &u64| self.epochs.get(epoch).is_none_or(|epoch| !epoch.is_over);
        let with_shares =
            self.epochs.range(self.next..from.max(self.next)).map(|(epoch, _)| *epoch);
        let first_reported = self.first_ms / self.epoch_ms;
        let due =
            (from..end).filter(|epoch| *epoch >= first_reported || self.epochs.contains_key(epoch));
        (with_shares.chain(due).filter(is_open).collect(), missed)
    }

    /// Returns the epochs that have ended by the clock and for which the shares of some children,
    /// but not of all children, were received.
    pub(super) fn unfinished(&self, now_ms: u64) -> Vec<u64> {
        let ended = self.epochs.range(..now_ms / self.epoch_ms);
        ended.filter(|(_, epoch)| !epoch.is_over).map(|(epoch, _)| *epoch).collect()
    }

    /// Moves `next` past the epochs whose waiting time is over. If the clock was ahead and was then
    /// set back, some epochs ended before they began. These epochs are opened again; the parent
    /// accepts only the first sum of an epoch.
    pub(super) fn advance_to(&mut self, now_ms: u64) {
        let current = now_ms / self.epoch_ms;
        // Children may send shares for the epoch after the current one. If all children have sent
        // their shares, that epoch has ended correctly.
        if self.next > current.saturating_add(2) {
            self.next = self.first;
            self.first_ms = self.first_ms.min(now_ms);
            self.epochs.split_off(&current.saturating_add(2));
        }
        self.next = self.next.max(self.earliest(now_ms));
        self.advance();
    }

    /// Moves `next` past the epochs that have ended.
    fn advance(&mut self) {
        while self.epochs.get(&self.next).is_some_and(|epoch| epoch.is_over) {
            self.next += 1;
        }
    }

    /// Stores a child's share for an epoch. Returns whether the share is new.
    pub(super) fn take(
        &mut self,
        epoch: u64,
        child: DeviceId,
        share: Held,
    ) -> Result<bool, Refused> {
        let held = self.epochs.get(&epoch);
        match held.and_then(|held| held.shares.get(&child)) {
            Some(before) if *before == share => return Ok(false),
            Some(_) => return Err(Refused::Contradiction),
            None if epoch < self.next || held.is_some_and(|held| held.is_over) => {
                return Err(Refused::EpochOver);
            }
            None => {}
        }
        let held = self.epochs.entry(epoch).or_default();
        held.bytes += share.bytes();
        held.shares.insert(child, share);
        Ok(true)
    }

    /// Returns whether a refusal of the source at a position may be forwarded now. The positions bound
    /// the memory, and the interval bounds the traffic.
    pub(super) fn may_relay_refusal(&mut self, position: u32, now_ms: u64) -> bool {
        let last = self.refusals.get(&position);
        let is_due = last.is_none_or(|last| now_ms.abs_diff(*last) >= REFUSE_AGAIN_MS);
        if is_due {
            self.refusals.insert(position, now_ms);
        }
        is_due
    }

    /// Returns whether a child has sent a share for an epoch.
    pub(super) fn has_share(&self, epoch: u64, child: DeviceId) -> bool {
        self.epochs.get(&epoch).is_some_and(|held| held.shares.contains_key(&child))
    }

    /// Checks that a child may send a share for this epoch now.
    pub(super) fn check_epoch(&self, epoch: u64, now_ms: u64) -> Result<(), Refused> {
        let is_asked = (self.first..self.until).contains(&epoch);
        if is_asked && epoch <= (now_ms / self.epoch_ms).saturating_add(1) {
            Ok(())
        } else {
            Err(Refused::WrongEpoch)
        }
    }

    /// Decodes a share's participants and records. Checks that the participants can be below the
    /// child, that no other child has named them in this epoch, and that the number of records is
    /// right. All positions must be below `sources`.
    pub(super) fn check<'a>(
        &self,
        (epoch, participation, psrs): (u64, &'a [u8], Psrs<'_>),
        (node, child): (&aggregation::Aggregator, usize),
        (sources, key_group): (u32, u32),
    ) -> Result<(Participation<'a>, Box<[Psr]>), Refused> {
        let participation = Participation::decode(participation, sources)?;
        if !participation.runs().all(|run| node.can_be_beneath(run, child)) {
            return Err(Refused::NotBeneath);
        }
        // Only a source that this version of the roster does not have can be below several children.
        let is_known = participation.runs().all(|run| run.end <= node.group_sources());
        if !is_known && self.is_named_by_another(epoch, node.children()[child].id, participation) {
            return Err(Refused::NotBeneath);
        }
        let expected = key_groups(participation, key_group).count() * self.slots;
        if psrs.iter().count() != expected {
            return Err(Refused::WrongPsrCount);
        }
        Ok((participation, psrs.iter().collect::<Result<_, _>>()?))
    }

    /// Drops the shares of open epochs that a later version of the group does not accept: those of
    /// children for which `is_expected` is false, at the start of the epoch in milliseconds, and
    /// those with participants that are not below the child.
    pub(super) fn drop_unexpected(
        &mut self,
        node: &aggregation::Aggregator,
        is_expected: impl Fn(&aggregation::Child, u64) -> bool,
    ) {
        for (epoch, held) in self.epochs.iter_mut().filter(|(_, held)| !held.is_over) {
            let start_ms = epoch.saturating_mul(self.epoch_ms);
            held.shares.retain(|id, share| {
                let Some(place) = node.child(*id) else { return false };
                is_expected(&node.children()[place], start_ms)
                    && Participation::decode(&share.participation, MAX_SOURCES)
                        .is_ok_and(|them| them.runs().all(|run| node.can_be_beneath(run, place)))
            });
            held.bytes = held.shares.values().map(Held::bytes).sum();
        }
    }

    /// Returns the epochs that are not over and have a share.
    pub(super) fn open_epochs(&self) -> Vec<u64> {
        self.epochs.iter().filter(|(_, held)| !held.is_over).map(|(epoch, _)| *epoch).collect()
    }

    /// Returns the number of children that have sent a share for an epoch.
    pub(super) fn shares(&self, epoch: u64) -> usize {
        self.epochs.get(&epoch).map_or(0, |held| held.shares.len())
    }

    /// Returns whether another child has named one of these participants in an epoch.
    fn is_named_by_another(
        &self,
        epoch: u64,
        child: DeviceId,
        participation: Participation<'_>,
    ) -> bool {
        let mut named = Vec::new();
        participation.runs().for_each(|run| set(&mut named, run));
        let is_named = |position: u32| {
            named.get((position / 64) as usize).is_some_and(|word| word >> (position % 64) & 1 != 0)
        };
        let shares = self.epochs.get(&epoch).into_iter().flat_map(|held| &held.shares);
        shares
            .filter(|(other, _)| **other != child)
            .filter_map(|(_, share)| Participation::decode(&share.participation, MAX_SOURCES).ok())
            .any(|other| other.runs().flatten().any(is_named))
    }

    /// Ends an epoch, and drops the shares that need not be kept any longer.
    pub(super) fn end(&mut self, epoch: u64) {
        self.epochs.entry(epoch).or_default().is_over = true;
        self.advance();
        self.forget();
    }

    /// Adds the shares of an epoch. All positions of an added share are below `end`.
    pub(super) fn sum(&self, epoch: u64, key_group: u32, end: u32) -> Sum {
        let shares = self.epochs.get(&epoch).into_iter().flat_map(|held| &held.shares);
        let mut sum = Sum { participants: Vec::new(), psrs: Vec::new(), answered: Vec::new() };
        let mut by_group: BTreeMap<u32, Vec<Psr>> = BTreeMap::new();
        for (child, share) in shares {
            // The participants decoded successfully when the share was received.
            let Ok(participation) = Participation::decode(&share.participation, end) else {
                continue;
            };
            sum.answered.push(*child);
            participation.runs().for_each(|run| set(&mut sum.participants, run));
            for (group, psrs) in
                key_groups(participation, key_group).zip(share.psrs.chunks(self.slots))
            {
                let slots = by_group.entry(group).or_insert_with(|| vec![Psr::ZERO; self.slots]);
                slots.iter_mut().zip(psrs).for_each(|(slot, psr)| *slot = slot.merge(psr));
            }
        }
        sum.psrs = by_group.into_values().flatten().collect();
        sum
    }

    /// Drops the shares that need not be kept any longer. The epochs from `next` on are always
    /// kept: there are only a few, and without their state they would be opened again.
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

    /// Returns the shares of an ended epoch. Returns no shares if they are no longer kept, or if
    /// the gateway may have received some of the epoch's shares before it was restarted.
    pub(super) fn kept(&self, epoch: u64) -> Result<Vec<(DeviceId, &Held)>, Refused> {
        let held = self.epochs.get(&epoch);
        if epoch >= self.next && held.is_none_or(|held| !held.is_over) {
            return Err(Refused::WrongEpoch);
        }
        let held = held.filter(|_| epoch >= self.first_ms.div_ceil(self.epoch_ms));
        Ok(held
            .into_iter()
            .flat_map(|held| &held.shares)
            .map(|(child, share)| (*child, share))
            .collect())
    }

    /// Returns the size of the children's records in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.epochs.values().map(|epoch| epoch.bytes).sum()
    }
}

/// Returns the key groups that have at least one participant, in ascending order.
pub(super) fn key_groups(participation: Participation<'_>, size: u32) -> impl Iterator<Item = u32> {
    let size = size.max(1);
    let mut next = 0;
    participation.runs().flat_map(move |run| {
        let groups = next.max(run.start / size)..(run.end - 1) / size + 1;
        next = groups.end.max(next);
        groups
    })
}

/// Sets the bits of `range` in `words`, which it lengthens if necessary.
fn set(words: &mut Vec<u64>, range: std::ops::Range<u32>) {
    let length = range.end.div_ceil(64) as usize;
    words.resize(words.len().max(length), 0);
    let mut at = range.start;
    while at < range.end {
        let (word, bit) = ((at / 64) as usize, at % 64);
        let count = (64 - bit).min(range.end - at);
        words[word] |= (u64::MAX >> (64 - count)) << bit;
        at += count;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns a query with epochs of one second. The first `epochs` epochs have ended, each with
    /// one share of `records` records.
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
            first_ms: 0,
            epochs: BTreeMap::new(),
            refusals: BTreeMap::new(),
        };
        for epoch in 0..epochs {
            let held =
                Held { participation: Box::default(), psrs: vec![Psr::ZERO; records].into() };
            gathering.take(epoch, DeviceId([0; 8]), held).unwrap();
            gathering.epochs.get_mut(&epoch).unwrap().is_over = true;
            gathering.advance();
            gathering.forget();
        }
        gathering
    }

    #[test]
    fn shares_are_kept_for_a_minute_and_large_shares_for_at_least_eight_epochs() {
        // Each share has one megabyte, so 16 shares have the maximum size.
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
