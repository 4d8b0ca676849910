//! Checks a device's closing frame and decides whether the coordinator accepts the seal
//! (spec/coordinator.md, section 4).
//!
//! A seal must verify. It must also agree with the events that its device forwarded, and with the
//! rounds that the coordinator announced. An audit computes the required round from the seals
//! alone, so a device whose seal contradicts its frames could make an honest coordinator look
//! guilty. The coordinator therefore rejects such a seal and counts the device as absent.

use moteseal_core::digest::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, Level, SealIndex};
use moteseal_seal::follow::Limits;
use moteseal_seal::stream::{Item, Open as OpenItem, Part};
use moteseal_seal::{Seal, Statement};

use super::error::Refused;
use super::intake::Open;
use super::{GroupCoordinator, Newest, Outcome, Sealed};

/// A decoded closing frame.
struct Closing<'a> {
    index: SealIndex,
    epoch: EpochNumber,
    open: OpenItem,
    part: Part<'a>,
}

impl<'a> Closing<'a> {
    fn read(device: DeviceId, open: &'a [u8], part: &'a [u8]) -> Result<Self, Refused> {
        let (Ok(Item::Open(open)), Ok(Item::Part(part))) =
            (Item::decode_whole(open), Item::decode_whole(part))
        else {
            return Err(Refused::MalformedClose);
        };
        let index = open.last.map_or(Some(part.skipped), |(last, _)| {
            last.0.checked_add(1)?.checked_add(part.skipped)
        });
        let epoch =
            open.last.map_or(Some(part.advance), |(_, last)| last.0.checked_add(part.advance));
        let (Some(index), Some(epoch)) = (index.map(SealIndex), epoch.map(EpochNumber)) else {
            return Err(Refused::MalformedClose);
        };
        let is_plain =
            part.digests.is_empty() && part.events.is_empty() && part.signature.is_some();
        if open.device != device || !is_plain {
            return Err(Refused::MalformedClose);
        }
        Ok(Self { index, epoch, open, part })
    }
}

/// Returns the index of the seal that a closing frame concerns.
pub(super) fn index_of(device: DeviceId, open: &[u8], part: &[u8]) -> Option<SealIndex> {
    Closing::read(device, open, part).ok().map(|closing| closing.index)
}

impl GroupCoordinator {
    pub(super) fn close(
        &mut self,
        slot: u32,
        schema: Digest,
        open: &[u8],
        part: &[u8],
        now: EpochNumber,
        has_room: bool,
    ) -> Result<((SealIndex, EpochNumber), Outcome), Refused> {
        let member = &self.devices[slot as usize];
        let closing = Closing::read(member.id, open, part)?;
        let about = (closing.index, closing.epoch);
        if let Some(newest) = member.sealed.filter(|newest| closing.index <= newest.index) {
            if closing.index == newest.index && self.is_other(slot, &closing, &newest) {
                return Err(Refused::OtherSeal);
            }
            return Ok((about, Outcome::Stale));
        }
        self.check_epoch(slot, closing.epoch, now)?;
        if !self.has_all_of(slot, &closing)? {
            return Ok((about, Outcome::Stale));
        }
        self.check_chain(slot, &closing)?;
        if closing.part.n > Limits::default().max_events {
            return Err(Refused::NotProven("TooManyEvents"));
        }
        let Some(entry) = self.schemas.of(&self.devices[slot as usize].schemas, &schema).cloned()
        else {
            self.devices[slot as usize].wants_schema = true;
            return Ok((about, Outcome::Stale));
        };
        let open = self.open_as(slot, closing.index);
        let is_tree = closing.part.scheme == Scheme::Tree;
        if open.is_some_and(|open| open.framing != entry.framing || open.is_tree() != is_tree) {
            return Err(Refused::FramingChanged);
        }
        let mut sealed =
            self.prove(slot, closing.index, closing.epoch, &closing.open, &closing.part, &entry)?;
        self.check_claims(slot, sealed.seal.statement())?;
        if !has_room {
            return Err(Refused::OverQuota);
        }
        sealed.is_listed = self.accounts_for_all(slot, &closing);
        self.take(slot, closing.epoch, sealed);
        Ok((about, Outcome::Fresh(None)))
    }

    /// Returns the device's open seal, if it has this index.
    fn open_as(&self, slot: u32, index: SealIndex) -> Option<&Open> {
        self.devices[slot as usize].open.as_deref().filter(|open| open.followed.index == index)
    }

    /// Returns whether a closing frame is of another seal than the device's newest stored seal,
    /// which has the same index. After the end of the seal's epoch, the coordinator has only the
    /// epoch for the comparison.
    fn is_other(&self, slot: u32, closing: &Closing<'_>, newest: &Newest) -> bool {
        let mut sealed = self.epochs.get(&newest.epoch).into_iter().flat_map(|state| &state.sealed);
        let Some(sealed) = sealed.find(|sealed| sealed.seal.digest() == newest.digest) else {
            return (closing.epoch, closing.part.last_in_epoch) != (newest.epoch, newest.is_last);
        };
        debug_assert_eq!(sealed.slot.0, slot, "a digest belongs to one device");
        let signature = closing.part.signature.unwrap_or_default();
        // A device that repeats a seal repeats the signature. Otherwise check whether this is
        // another signature of the same seal.
        let same = || {
            Seal::new(sealed.seal.statement().clone(), *sealed.seal.root(), sealed.seal.algorithm())
        };
        sealed.signature != signature && same().verify(&self.roster, signature).is_err()
    }

    /// Returns whether every event that the seal covers has been received.
    fn has_all_of(&self, slot: u32, closing: &Closing<'_>) -> Result<bool, Refused> {
        let n = u64::from(closing.part.n);
        match &self.devices[slot as usize].open {
            Some(open) if open.followed.index > closing.index => Ok(false),
            Some(open) if open.followed.index == closing.index => {
                if open.followed.epoch != closing.epoch || open.followed.next.0 > n {
                    return Err(Refused::NotAsForwarded);
                }
                Ok(open.followed.next.0 == n)
            }
            // For a seal that has no events, a device sends the closing frame without any earlier
            // frame.
            _ => Ok(n == 0),
        }
    }

    /// Returns the newest seal with a lower index for which the coordinator has received a frame,
    /// and that seal's epoch.
    fn seen_before(&self, slot: u32, index: SealIndex) -> Option<(SealIndex, EpochNumber)> {
        let member = &self.devices[slot as usize];
        let open = member.open.as_ref().map(|open| (open.followed.index, open.followed.epoch));
        let sealed = member.sealed.map(|sealed| (sealed.index, sealed.epoch));
        let seen = [open, sealed, self.abandoned.get(&slot).copied()];
        seen.into_iter().flatten().filter(|(seen, _)| *seen < index).max()
    }

    /// Checks that the seal and its `prev` link agree with the epoch of the newest seal that the
    /// coordinator saw before. The check matters because the `prev` link decides whether an audit
    /// considers a device silent after the device abandoned a seal.
    fn check_chain(&self, slot: u32, closing: &Closing<'_>) -> Result<(), Refused> {
        let Some((seen, epoch)) = self.seen_before(slot, closing.index) else { return Ok(()) };
        let contradicts = closing.open.last.is_some_and(|(last, of)| last >= seen && of < epoch);
        if closing.epoch < epoch || contradicts { Err(Refused::EpochGoesBack) } else { Ok(()) }
    }

    /// Checks two claims of the device. Its salt must give the levels that the device claimed for
    /// the events that it forwarded. The coordinator must have announced the round that the seal
    /// states.
    fn check_claims(&self, slot: u32, statement: &Statement) -> Result<(), Refused> {
        if let Some(open) = self.open_as(slot, statement.index) {
            let is_true =
                |(level, claimed): (u8, &u32)| *claimed <= statement.counters.at(Level(level));
            if !(0..).zip(&open.claimed).all(is_true) {
                return Err(Refused::NotAsForwarded);
            }
        }
        // The round of a late seal is not checked, because the manifest does not list the seal.
        let is_announced =
            self.is_over(statement.epoch) || statement.round <= self.round(statement.epoch);
        if is_announced { Ok(()) } else { Err(Refused::RoundNotAnnounced) }
    }

    /// Returns whether the seal accounts for everything that its device forwarded in the seal's
    /// epoch. If it does not, the seal is stored like a late seal: the manifest does not list it.
    /// There are two such cases:
    ///
    /// - The `prev` link claims that the device completed a seal that it had in fact abandoned.
    ///   Without the mark `restart`, nobody could tell how the events of the abandoned seal
    ///   affected the round.
    /// - The `prev` link names a seal that the coordinator never received, although the device had
    ///   sent frames before. Nobody has compared that seal with the forwarded events.
    fn accounts_for_all(&self, slot: u32, closing: &Closing<'_>) -> bool {
        let sealed = self.devices[slot as usize].sealed.map(|sealed| sealed.index);
        if self.seen_before(slot, closing.index).is_some()
            && closing.open.last.map(|(last, _)| last) != sealed
        {
            return false;
        }
        let open = self.devices[slot as usize]
            .open
            .as_ref()
            .map(|open| (open.followed.index, open.followed.epoch));
        let abandoned =
            open.filter(|(index, _)| *index < closing.index).or(self.abandoned.get(&slot).copied());
        abandoned.is_none_or(|(index, epoch)| {
            epoch != closing.epoch || closing.open.last.is_none_or(|(last, _)| last < index)
        })
    }

    /// Stores a verified seal.
    fn take(&mut self, slot: u32, epoch: EpochNumber, sealed: Sealed) {
        let newest = Newest::of(&sealed.seal);
        self.note_opener(slot, epoch);
        if self.devices[slot as usize]
            .open
            .as_ref()
            .is_some_and(|open| open.followed.index < newest.index)
        {
            self.abandon(slot);
        }
        // The events that the seal keeps still count towards the budget. The events of null levels
        // no longer do.
        let kept = sealed.events.keys().fold(0u32, |mask, level| mask | 1 << level);
        let state = self.epoch(epoch);
        for level in (0..state.queues.levels()).map(Level) {
            let events = state.queues.withdraw(super::Slot(slot), level);
            if kept >> level.0 & 1 == 0 {
                state.coordinator.withdraw(level, events);
            }
        }
        let is_over = self.is_over(epoch);
        let member = &mut self.devices[slot as usize];
        (member.open, member.key) = (None, None);
        member.sealed = Some(newest);
        self.abandoned.remove(&slot);
        if is_over {
            self.devices[slot as usize].over = Some(newest);
            let bundle = self.bundle(&sealed);
            self.late_bundles.push((epoch, bundle));
            self.forget_late();
        } else {
            self.epoch(epoch).sealed.push(sealed);
        }
    }
}
