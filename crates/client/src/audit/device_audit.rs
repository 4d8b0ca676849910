//! Keeps the most important fields of one device's seals, and compares the seals with those that a
//! manifest lists for the device (spec/coordinator.md, section 7).
//!
//! A [`DeviceAudit`] collects the seals in ascending order of their indices and is then queried
//! epoch by epoch. It looks up seals in maps, so that the time of an audit grows with the sum of
//! the number of seals and the number of epochs, and not with their product. It checks the listed
//! seals, but not the round.

use std::collections::{BTreeMap, HashMap};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::{Authentic, History, Incomplete, Seal};
use moteseal_verify::Roster;

use super::findings::{Doubt, Finding};

/// The seals of one device.
#[derive(Debug)]
pub(super) struct DeviceAudit {
    device: DeviceId,
    history: History,
    seals: Vec<Brief>,
    /// The position in `seals` of each seal, by the seal's digest and by the digest of its
    /// predecessor.
    by_digest: HashMap<Digest, usize>,
    by_prev: HashMap<Digest, usize>,
    by_epoch: BTreeMap<EpochNumber, Vec<usize>>,
}

/// The fields of a seal that are kept.
#[derive(Clone, Copy, Debug)]
struct Brief {
    index: SealIndex,
    epoch: EpochNumber,
    digest: Digest,
    prev: Digest,
    last: Option<(SealIndex, EpochNumber)>,
    last_in_epoch: bool,
    restart: bool,
    /// Whether a manifest of the seal's epoch lists it.
    is_listed: bool,
    /// The latest epoch among this seal and all seals before it.
    reached: EpochNumber,
    /// The first epoch such that no seal is missing between its start and this seal.
    whole_from: EpochNumber,
}

/// The result of comparing a device's seals with the seals that a manifest lists for the device.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) findings: Vec<Finding>,
    pub(super) doubts: Vec<Doubt>,
}

impl DeviceAudit {
    /// Creates an audit of a device's epochs `since .. until`, without seals.
    pub(super) fn new(device: DeviceId, since: EpochNumber, until: EpochNumber) -> Self {
        Self {
            device,
            history: History::new(device, since, until),
            seals: Vec::new(),
            by_digest: HashMap::new(),
            by_prev: HashMap::new(),
            by_epoch: BTreeMap::new(),
        }
    }

    pub(super) const fn device(&self) -> DeviceId {
        self.device
    }

    /// Adds the device's next seal. `is_listed` states whether a manifest of the seal's epoch lists
    /// it.
    ///
    /// # Errors
    /// [`Incomplete`] if the device's chain is broken before this seal. The seal is added in any
    /// case, and the following seals are compared with it.
    pub(super) fn take(
        &mut self,
        seal: &Seal<Authentic>,
        is_listed: bool,
        roster: &Roster,
    ) -> Result<(), Incomplete> {
        let followed = self.history.next_under(seal, roster);
        if followed.is_err() {
            self.history = History::after(seal);
        }
        let statement = seal.statement();
        let before = self.seals.last();
        let whole_from = match (statement.last, before) {
            (None, _) => EpochNumber(0),
            (Some((index, _)), Some(before))
                if before.index == index && before.digest == statement.prev =>
            {
                before.whole_from
            }
            (Some((_, epoch)), _) => EpochNumber(epoch.0.saturating_add(1)),
        };
        let brief = Brief {
            index: statement.index,
            epoch: statement.epoch,
            digest: seal.digest(),
            prev: statement.prev,
            last: statement.last,
            last_in_epoch: statement.last_in_epoch,
            restart: statement.restart,
            is_listed,
            reached: before.map_or(statement.epoch, |before| before.reached.max(statement.epoch)),
            whole_from,
        };
        let place = self.seals.len();
        self.by_digest.entry(brief.digest).or_insert(place);
        self.by_prev.entry(brief.prev).or_insert(place);
        self.by_epoch.entry(brief.epoch).or_default().push(place);
        self.seals.push(brief);
        followed.map(|_| ())
    }

    /// Returns the seal with this digest, and its position.
    fn find(&self, digest: &Digest) -> Option<(usize, &Brief)> {
        let place = *self.by_digest.get(digest)?;
        Some((place, self.seals.get(place)?))
    }

    /// Returns the seals of an epoch.
    fn of_epoch(&self, epoch: EpochNumber) -> impl Iterator<Item = &Brief> {
        self.by_epoch.get(&epoch).into_iter().flatten().filter_map(|place| self.seals.get(*place))
    }

    /// Returns the first seal after an epoch.
    fn after(&self, epoch: EpochNumber) -> Option<&Brief> {
        self.seals.get(self.seals.partition_point(|seal| seal.reached <= epoch))
    }

    /// Returns whether the coordinator accepted a seal: the seal is listed, or a listed seal names
    /// it as its predecessor.
    ///
    /// A coordinator lists a seal only if it received the seal's predecessor, and only if the seal
    /// does not contradict what the device forwarded before. A listed seal therefore shows that its
    /// predecessor arrived. Any other unlisted seal may never have reached the coordinator.
    fn was_taken(&self, seal: &Brief) -> bool {
        let successor = || self.by_prev.get(&seal.digest).and_then(|place| self.seals.get(*place));
        seal.is_listed || successor().is_some_and(|next| next.is_listed)
    }

    /// Returns whether every seal that the device signed for an epoch has arrived. This is the case
    /// if the device's chain has no gap up to a seal that closes the epoch or that is after the
    /// epoch.
    fn is_whole(&self, epoch: EpochNumber) -> bool {
        let closing = self.of_epoch(epoch).filter(|seal| seal.last_in_epoch);
        closing.chain(self.after(epoch)).any(|seal| seal.whole_from <= epoch)
    }

    /// Compares the device's seals with the digests that a manifest of `epoch` lists for the
    /// device, in ascending order. `has_gone_on` states whether the coordinator has signed a
    /// manifest of a later epoch.
    pub(super) fn compare(
        &self,
        epoch: EpochNumber,
        listed: &[Digest],
        has_gone_on: bool,
    ) -> Comparison {
        let device = self.device;
        let is_listed = |digest: &Digest| listed.binary_search(digest).is_ok();
        let mut result = Comparison::default();
        // The newest listed seal of the epoch, and its position.
        let mut last: Option<(usize, &Brief)> = None;
        // Whether the epoch may have a seal that is neither listed nor late, because a listed seal
        // has not arrived or because an unlisted seal precedes a listed one.
        let mut has_gap = false;
        let mut restarted = false;
        for digest in listed {
            match self.find(digest) {
                Some((place, seal)) if seal.epoch == epoch => {
                    has_gap |= seal.last.is_some_and(|(_, before)| before >= epoch)
                        && !is_listed(&seal.prev);
                    restarted |= seal.restart;
                    if last.is_none_or(|(before, _)| before < place) {
                        last = Some((place, seal));
                    }
                }
                Some((_, seal)) => result.findings.push(Finding::Replayed {
                    device,
                    index: seal.index,
                    from: seal.epoch,
                }),
                None => {
                    has_gap = true;
                    self.compare_unseen(epoch, *digest, has_gone_on, &mut result);
                }
            }
        }
        let late = self.of_epoch(epoch).filter(|seal| !is_listed(&seal.digest));
        result.doubts.extend(late.map(|seal| Doubt::Late { device, index: seal.index }));
        let after = self.after(epoch).filter(|next| !next.restart && self.was_taken(next));
        let goes_on = match (last, after) {
            (Some((_, last)), _) if last.last_in_epoch => true,
            (Some((_, last)), Some(next)) => next.prev == last.digest,
            // The statement of the next seal shows that the device sealed nothing between an epoch
            // before this one and an epoch after it.
            (None, Some(next)) => next.last.is_none_or(|(_, before)| before < epoch),
            (_, None) => false,
        };
        if !goes_on || has_gap {
            result.doubts.push(Doubt::Absent { device, listed: last.is_some() });
        }
        // If a seal closes the epoch, readings that the device lost in a later restart belong to a
        // later epoch. They do not count here.
        let open = last.filter(|(_, last)| !last.last_in_epoch);
        let next = open.and_then(|(place, last)| {
            self.seals[place..].iter().find(|seal| seal.index > last.index)
        });
        if restarted || next.is_some_and(|seal| seal.restart) {
            result.doubts.push(Doubt::Restarted { device });
        }
        result
    }

    /// Adds the finding or doubt about a listed seal that has not arrived.
    fn compare_unseen(
        &self,
        epoch: EpochNumber,
        digest: Digest,
        has_gone_on: bool,
        result: &mut Comparison,
    ) {
        let device = self.device;
        let named = self.by_prev.get(&digest).and_then(|place| self.seals.get(*place)?.last);
        match named {
            // The seal's successor names it, and shows that the seal is of another epoch.
            Some((index, from)) if from != epoch => {
                result.findings.push(Finding::Replayed { device, index, from });
            }
            // The seal's successor names it, and shows that the seal is of this epoch. The check of
            // the device's chain already reports that it is missing.
            Some((index, _)) => result.doubts.push(Doubt::Withheld { device, index }),
            None if self.is_whole(epoch) => {
                result.findings.push(Finding::InventedSeal { device, digest });
            }
            None if has_gone_on => result.findings.push(Finding::Unshown { device, digest }),
            None => result.doubts.push(Doubt::NotShownYet { device, digest }),
        }
    }
}
