//! Receives a device's open seal, frame by frame (spec/coordinator.md, section 4). Decides which
//! events are kept, and stores the digests that represent the events that are not kept.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, Level, MAX_LEVELS, SealIndex, Sequence,
};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::GroupLayout;
use moteseal_seal::sample::{Followed, FrameOutcome, Offer};
use moteseal_seal::star;
use moteseal_seal::star::RunningBlock;
use moteseal_seal::wire::Forward;
use sha2::Digest as _;

use super::error::Refused;
use super::{GroupCoordinator, Member, Outcome, link_key};
use crate::queues::Slot;
use crate::trees::Trees;

/// A device's open seal.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) followed: Followed,
    pub(super) framing: Framing,
    /// How many events of each level the device has forwarded, as the device claims. The levels
    /// that are later computed from the seal's salt must agree.
    pub(super) claimed: [u32; MAX_LEVELS],
    pub(super) unkept: Unkept,
    /// The schemas with column groups that the device had sent when it opened the seal.
    pub(super) grouped: Vec<Grouped>,
}

/// A schema with column groups, which the device may have used for its open seal. The seal states
/// its schema only when it closes.
#[derive(Clone)]
pub(super) struct Grouped {
    pub(super) schema: Digest,
    layout: GroupLayout,
}

/// The digests that represent the events that are not kept.
#[derive(Clone)]
pub(super) enum Unkept {
    /// For a star: the running digest of each level that the coordinator dropped while the device
    /// still forwarded it.
    Running(BTreeMap<u8, Running>),
    /// For a tree: the roots of subtrees without a kept event, under a schema without column groups, and
    /// then under each schema in [`Open::grouped`]. Only the first is left once the device has sent
    /// digests instead of events.
    Roots(Vec<Trees>),
}

/// The running digest of a dropped level.
#[derive(Clone)]
pub(super) struct Running {
    /// The digest under a schema without column groups.
    plain: sha2::Sha256,
    /// The digest under each schema in [`Open::grouped`].
    grouped: Vec<RunningBlock>,
}

impl Running {
    fn new(place: (DeviceId, SealIndex, Level), grouped: &[Grouped]) -> Self {
        let of_schema = |grouped: &Grouped| RunningBlock::new(place, &grouped.layout);
        Self {
            plain: sha2::Sha256::new_with_prefix(star::header(place.0, place.1, place.2)),
            grouped: grouped.iter().map(of_schema).collect(),
        }
    }

    fn push(&mut self, framing: Framing, record: &[u8]) {
        framing.frame(record, |bytes| self.plain.update(bytes));
        self.grouped.iter_mut().for_each(|running| running.push(record));
    }

    /// Returns the digest under each schema. The first one is that under a schema without groups.
    pub(super) fn digests(&self) -> impl Iterator<Item = Digest> {
        let plain = Digest(self.plain.clone().finalize().into());
        std::iter::once(plain).chain(self.grouped.iter().map(RunningBlock::digest))
    }
}

impl Open {
    fn new(followed: Followed, forward: &Forward<'_>, grouped: Vec<Grouped>) -> Self {
        let unkept = match forward.digests {
            None => Unkept::Running(BTreeMap::new()),
            Some(_) => {
                let of_groups = grouped.iter().map(|grouped| Trees::new(Some(&grouped.layout)));
                Unkept::Roots(std::iter::once(Trees::new(None)).chain(of_groups).collect())
            }
        };
        Self { followed, framing: forward.framing, claimed: [0; MAX_LEVELS], unkept, grouped }
    }

    /// Returns whether the seal is a tree.
    pub(super) const fn is_tree(&self) -> bool {
        matches!(self.unkept, Unkept::Roots(_))
    }

    /// For a tree, returns an upper bound on the number of the roots that represent the events that are
    /// not kept, and on the number of trees of the seal.
    pub(super) fn roots(&self) -> Option<(usize, usize)> {
        match &self.unkept {
            Unkept::Running(_) => None,
            Unkept::Roots(trees) => {
                let most = |count: fn(&Trees) -> usize| trees.iter().map(count).max().unwrap_or(0);
                Some((most(Trees::roots), most(Trees::count)))
            }
        }
    }

    /// Returns whether a frame may belong to the same seal.
    fn goes_on_with(&self, forward: &Forward<'_>) -> bool {
        self.framing == forward.framing && self.is_tree() == forward.digests.is_some()
    }

    fn pass_over(&mut self, device: DeviceId, seq: Sequence, level: Level, record: &[u8]) {
        match &mut self.unkept {
            Unkept::Running(digests) if level.0 >= self.followed.confirmed.0 => {
                let place = (device, self.followed.index, level);
                let running =
                    digests.entry(level.0).or_insert_with(|| Running::new(place, &self.grouped));
                running.push(self.framing, record);
            }
            Unkept::Running(_) => {}
            Unkept::Roots(trees) => {
                trees.iter_mut().for_each(|trees| trees.drop_record(seq, record));
            }
        }
    }
}

impl GroupCoordinator {
    pub(super) fn forward(
        &mut self,
        slot: u32,
        forward: &Forward<'_>,
        now: EpochNumber,
        (has_room, live): (bool, bool),
    ) -> Result<Outcome, Refused> {
        let follows = self.follow(slot, forward, now)?;
        // The digests of the events that are not kept depend on the column groups of the schema.
        let has_schema = !live || self.has_current_schema(slot, forward.framing);
        self.devices[slot as usize].wants_schema |= !has_schema;
        let Some((followed, first)) = follows else {
            return Ok(Outcome::Stale);
        };
        let known = self.devices[slot as usize].open.as_ref();
        let opens = known.is_none_or(|open| open.followed.index < followed.index);
        if opens && !has_schema {
            return Ok(Outcome::Stale);
        }
        if !has_room {
            return Err(Refused::OverQuota);
        }
        if self.known_epoch(forward.epoch).is_some_and(|state| !state.queues.has_room()) {
            return Err(Refused::EpochFull);
        }
        self.note_opener(slot, forward.epoch);
        if opens {
            self.abandon(slot);
        }
        let member = &mut self.devices[slot as usize];
        member.key.get_or_insert_with(|| Box::new(link_key(&self.secret, &self.roster, member.id)));
        let schemas = &self.schemas;
        let grouped = || {
            let entries = schemas.entries(&member.schemas);
            let grouped = entries.filter_map(|entry| {
                let (schema, layout) = (entry.digest, **entry.groups.as_ref()?);
                (entry.framing == forward.framing).then_some(Grouped { schema, layout })
            });
            grouped.collect()
        };
        let open =
            member.open.get_or_insert_with(|| Box::new(Open::new(followed, forward, grouped())));
        open.followed = followed;
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
                // After a device has raised its own round above the level of an event, it may still
                // send the event instead of a digest.
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
        let (round, kept_after) = {
            let coordinator = &self.epoch(forward.epoch).coordinator;
            (coordinator.round(), coordinator.kept())
        };
        self.counts.seen += seen;
        self.counts.discarded += (kept + seen).saturating_sub(kept_after);
        Ok(Outcome::Fresh((round > before).then_some(round)))
    }

    /// Returns the seal's state after a frame, and the sequence number of the first new event.
    /// Returns `None` if the frame contains nothing new. This function changes nothing: a frame
    /// without new contents is not written to the journal, so it must not affect the state.
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
        // The device has closed this epoch. Events of another seal would raise the round, but no
        // counters would account for them.
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
        let received = match followed.receive(forward) {
            FrameOutcome::Next(next) => {
                followed = next;
                followed.receive(forward)
            }
            received => received,
        };
        Ok(match received {
            FrameOutcome::New(first) => Some((followed, first)),
            FrameOutcome::Old | FrameOutcome::Gap | FrameOutcome::Next(_) => None,
        })
    }

    /// Counts the level that a device claims for an event.
    fn claim(&mut self, slot: u32, level: Level) {
        let open = self.devices[slot as usize].open.as_mut();
        if let Some(claimed) = open.and_then(|open| open.claimed.get_mut(usize::from(level.0))) {
            *claimed = claimed.saturating_add(1);
        }
    }

    /// Stores the roots that a device sends instead of a tree's events.
    fn skip(&mut self, slot: u32, forward: &Forward<'_>, first: Sequence) {
        if let Some(Unkept::Roots(trees)) =
            self.devices[slot as usize].open.as_mut().map(|open| &mut open.unkept)
        {
            for (subtree, root) in forward.subtrees() {
                trees.truncate(1);
                if let Some(tree) = trees.first_mut().and_then(Trees::only) {
                    tree.take(&subtree, root, first);
                }
            }
        }
    }

    /// Accounts for an event that is not kept. For a star, adds the event to the running digest of
    /// its level if the device still forwards that level. For a tree, adds its leaf to the stored
    /// roots.
    fn pass_over(&mut self, slot: u32, seq: Sequence, level: Level, record: &[u8]) {
        let member = &mut self.devices[slot as usize];
        if let Some(open) = &mut member.open {
            open.pass_over(member.id, seq, level, record);
        }
    }

    /// Drops levels of an epoch for all devices, and keeps the digests that their seals may still
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

    /// Drops a device's events below the round that the device has confirmed. Its seal will state
    /// these levels as null. For a tree, the digests of the leaves are kept.
    fn confirm(&mut self, slot: u32, epoch: EpochNumber) {
        let Some((state, devices)) = self.epoch_and_devices(epoch) else { return };
        let member = &mut devices[slot as usize];
        let Some(open) = &mut member.open else { return };
        let confirmed = open.followed.confirmed.0;
        match &mut open.unkept {
            Unkept::Running(digests) => digests.retain(|level, _| *level >= confirmed),
            Unkept::Roots(trees) => {
                for (seq, record) in
                    (0..confirmed).flat_map(|level| state.queues.events(Slot(slot), Level(level)))
                {
                    trees.iter_mut().for_each(|trees| trees.drop_record(seq, record));
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

    /// Abandons a device's open seal, because the device restarted and will never complete it.
    pub(super) fn abandon(&mut self, slot: u32) {
        if let Some(open) = self.devices[slot as usize].open.take() {
            let epoch = open.followed.epoch;
            (0..self.roster.levels(epoch))
                .for_each(|level| self.withdraw(slot, epoch, Level(level)));
            self.abandoned.insert(slot, (open.followed.index, open.followed.epoch));
            self.forget_late();
        }
    }
}
