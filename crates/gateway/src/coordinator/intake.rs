//! Receiving a device's open seal, frame by frame (spec/formats.md, section 8.2): what is kept of
//! it, and what represents the rest.

use std::collections::BTreeMap;

use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, Level, MAX_LEVELS, SealIndex, Sequence,
};
use moteseal_seal::sample::{Followed, Heard, Offer};
use moteseal_seal::wire::Forward;
use moteseal_seal::{star, tree};
use sha2::Digest as _;

use super::error::Refused;
use super::{GroupCoordinator, Member, Outcome, link_key};
use crate::pruned::Pruned;
use crate::queues::Slot;

/// The seal that a device has open.
pub(super) struct Open {
    pub(super) followed: Followed,
    pub(super) framing: Framing,
    /// Events that were forwarded, by the level that the device claims: the seal's salt must give
    /// them.
    pub(super) claimed: [u32; MAX_LEVELS],
    pub(super) behind: Behind,
}

/// What stands for the events that are not kept.
pub(super) enum Behind {
    /// Of a star, running digests of levels that were forgotten before the device confirmed their
    /// round.
    Running(BTreeMap<u8, sha2::Sha256>),
    /// Of a tree, roots.
    Roots(Pruned),
}

impl Open {
    fn new(followed: Followed, forward: &Forward<'_>) -> Self {
        let behind = match forward.digests {
            None => Behind::Running(BTreeMap::new()),
            Some(_) => Behind::Roots(Pruned::default()),
        };
        Self { followed, framing: forward.framing, claimed: [0; MAX_LEVELS], behind }
    }

    /// Of a tree, what stands for the events that are not kept.
    pub(super) const fn roots(&self) -> Option<&Pruned> {
        match &self.behind {
            Behind::Running(_) => None,
            Behind::Roots(roots) => Some(roots),
        }
    }

    /// Whether a frame can be of the same seal.
    fn goes_on_with(&self, forward: &Forward<'_>) -> bool {
        self.framing == forward.framing && self.roots().is_some() == forward.digests.is_some()
    }

    fn pass_over(&mut self, device: DeviceId, seq: Sequence, level: Level, record: &[u8]) {
        match &mut self.behind {
            Behind::Running(digests) if level.0 >= self.followed.confirmed.0 => {
                let digest = digests
                    .entry(level.0)
                    .or_insert_with(|| block_start(device, self.followed.index, level));
                self.framing.frame(record, |bytes| digest.update(bytes));
            }
            Behind::Running(_) => {}
            Behind::Roots(roots) => roots.drop_leaf(seq, tree::leaf(record)),
        }
    }
}

fn block_start(device: DeviceId, index: SealIndex, level: Level) -> sha2::Sha256 {
    sha2::Sha256::new_with_prefix(star::header(device, index, level))
}

impl GroupCoordinator {
    pub(super) fn forward(
        &mut self,
        slot: u32,
        forward: &Forward<'_>,
        now: EpochNumber,
        has_room: bool,
    ) -> Result<Outcome, Refused> {
        let Some((followed, first)) = self.follow(slot, forward, now)? else {
            return Ok(Outcome::Stale);
        };
        if !has_room {
            return Err(Refused::OverQuota);
        }
        if self.known_epoch(forward.epoch).is_some_and(|state| !state.queues.has_room()) {
            return Err(Refused::EpochFull);
        }
        self.note_opener(slot, forward.epoch);
        if self.devices[slot as usize]
            .open
            .as_ref()
            .is_some_and(|open| open.followed.index < followed.index)
        {
            self.abandon(slot);
        }
        let member = &mut self.devices[slot as usize];
        member.key.get_or_insert_with(|| Box::new(link_key(&self.secret, &self.roster, member.id)));
        member.open.get_or_insert_with(|| Box::new(Open::new(followed, forward))).followed =
            followed;
        let (before, kept) = {
            let coordinator = &self.epoch(forward.epoch).coordinator;
            (coordinator.round(), coordinator.kept())
        };
        self.confirm(slot, forward.epoch);
        self.skip(slot, forward, first);
        let mut seen = 0;
        for (seq, level, record) in forward.events().filter(|(seq, ..)| *seq >= first) {
            seen += 1;
            self.claim(slot, level);
            let state = self.epoch(forward.epoch);
            if level.0 < followed.confirmed.0 {
                // A device that went above an event may send it in the place of a digest.
                self.pass_over(slot, seq, level, record);
                continue;
            }
            match state.coordinator.offer(level) {
                Offer::Kept => state.keep(slot, level, seq, record),
                Offer::Declined => self.pass_over(slot, seq, level, record),
                Offer::Raised(levels) => {
                    self.forget(forward.epoch, levels.clone());
                    if level.0 < levels.end {
                        self.pass_over(slot, seq, level, record);
                    } else {
                        self.epoch(forward.epoch).keep(slot, level, seq, record);
                    }
                }
            }
        }
        let (round, still) = {
            let coordinator = &self.epoch(forward.epoch).coordinator;
            (coordinator.round(), coordinator.kept())
        };
        self.counts.seen += seen;
        self.counts.discarded += (kept + seen).saturating_sub(still);
        Ok(Outcome::Fresh((round > before).then_some(round)))
    }

    /// Where a frame leads, and from which event on it is new; `None` if nothing is. Changes
    /// nothing: a frame that is not new is not in the journal and must leave no trace.
    fn follow(
        &self,
        slot: u32,
        forward: &Forward<'_>,
        now: EpochNumber,
    ) -> Result<Option<(Followed, Sequence)>, Refused> {
        let Member { sealed, open, .. } = &self.devices[slot as usize];
        if sealed.is_some_and(|sealed| forward.index <= sealed.index) {
            return Ok(None);
        }
        self.check_epoch(slot, forward.epoch, now)?;
        // A seal of that epoch could no longer come: its events would raise a round that no
        // counters account for.
        if sealed.is_some_and(|sealed| !sealed.goes_on_in(forward.epoch)) {
            return Err(Refused::EpochGoesBack);
        }
        let mut followed = match open {
            None if forward.from.0 > 0 || forward.until.0 == 0 => return Ok(None),
            None => Followed::start(forward),
            Some(open) if open.followed.index == forward.index && !open.goes_on_with(forward) => {
                return Err(Refused::FramingChanged);
            }
            Some(open)
                if forward.index > open.followed.index && forward.epoch < open.followed.epoch =>
            {
                return Err(Refused::EpochGoesBack);
            }
            Some(open) => open.followed,
        };
        let heard = match followed.hear(forward) {
            Heard::Next(next) => {
                followed = next;
                followed.hear(forward)
            }
            heard => heard,
        };
        Ok(match heard {
            Heard::News(first) => Some((followed, first)),
            Heard::Old | Heard::Gap | Heard::Next(_) => None,
        })
    }

    /// Notes the level that a device claims for an event.
    fn claim(&mut self, slot: u32, level: Level) {
        let open = self.devices[slot as usize].open.as_mut();
        if let Some(claimed) = open.and_then(|open| open.claimed.get_mut(usize::from(level.0))) {
            *claimed = claimed.saturating_add(1);
        }
    }

    /// Takes what stands for the events of a tree that its device does not forward.
    fn skip(&mut self, slot: u32, forward: &Forward<'_>, first: Sequence) {
        if let Some(Behind::Roots(roots)) =
            self.devices[slot as usize].open.as_mut().map(|open| &mut open.behind)
        {
            forward.subtrees().for_each(|(subtree, root)| roots.take(&subtree, root, first));
        }
    }

    /// Passes over an event that is not kept: of a star its level's digest goes on for as long as
    /// the device still forwards it.
    fn pass_over(&mut self, slot: u32, seq: Sequence, level: Level, record: &[u8]) {
        let member = &mut self.devices[slot as usize];
        if let Some(open) = &mut member.open {
            open.pass_over(member.id, seq, level, record);
        }
    }

    /// Forgets levels of an epoch for all devices, keeping the digests that their seals may still
    /// need.
    pub(super) fn forget(&mut self, epoch: EpochNumber, levels: std::ops::Range<u8>) {
        let Some((state, devices)) = self.epoch_and_devices(epoch) else { return };
        for level in levels.clone().map(Level) {
            for (member, slot) in devices.iter_mut().zip(0..) {
                let Some(open) = member.open.as_mut().filter(|open| open.followed.epoch == epoch)
                else {
                    continue;
                };
                if level.0 < open.followed.confirmed.0 {
                    continue;
                }
                for (seq, record) in state.queues.events(Slot(slot), level) {
                    open.pass_over(member.id, seq, level, record);
                }
            }
            state.queues.forget(level);
        }
        state.sealed.iter_mut().for_each(|sealed| sealed.forget(&levels));
    }

    /// Lets go of what a device holds below the round that it has confirmed: those blocks will be
    /// null, and a tree has those leaves alone.
    fn confirm(&mut self, slot: u32, epoch: EpochNumber) {
        let Some((state, devices)) = self.epoch_and_devices(epoch) else { return };
        let member = &mut devices[slot as usize];
        let Some(open) = &mut member.open else { return };
        let confirmed = open.followed.confirmed.0;
        match &mut open.behind {
            Behind::Running(digests) => digests.retain(|level, _| *level >= confirmed),
            Behind::Roots(roots) => {
                for (seq, record) in
                    (0..confirmed).flat_map(|level| state.queues.events(Slot(slot), Level(level)))
                {
                    roots.drop_leaf(seq, tree::leaf(record));
                }
            }
        }
        (0..confirmed).for_each(|level| self.withdraw(slot, epoch, Level(level)));
    }

    fn withdraw(&mut self, slot: u32, epoch: EpochNumber, level: Level) {
        if let Some(state) = self.known_epoch_mut(epoch) {
            let events = state.queues.withdraw(Slot(slot), level);
            state.coordinator.withdraw(level, events);
        }
    }

    /// The device restarted: its open seal will never be completed.
    pub(super) fn abandon(&mut self, slot: u32) {
        if let Some(open) = self.devices[slot as usize].open.take() {
            (0..self.roster.levels())
                .for_each(|level| self.withdraw(slot, open.followed.epoch, Level(level)));
            self.abandoned.insert(slot, (open.followed.index, open.followed.epoch));
            self.forget_late();
        }
    }
}
