//! One device's seals, in short, and what they say of what a manifest lists of it (spec/formats.md, section 8.3).
//!
//! A [`DeviceAudit`] is collected seal by seal, in order of index, and then asked about one epoch after the other: what it is asked it
//! finds by maps, so that an audit grows with its seals and epochs and not with their product. It judges what is listed, never the
//! round.

use std::collections::{BTreeMap, HashMap};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::{Authentic, History, Incomplete, Seal};

use super::findings::{Doubt, Finding};

/// The seals of one device.
#[derive(Debug)]
pub(super) struct DeviceAudit {
    device: DeviceId,
    history: History,
    seals: Vec<Brief>,
    /// Where in `seals` each one stands, and the one that names it as its predecessor.
    by_digest: HashMap<Digest, usize>,
    by_prev: HashMap<Digest, usize>,
    by_epoch: BTreeMap<EpochNumber, Vec<usize>>,
}

/// What is remembered of a seal.
#[derive(Clone, Copy, Debug)]
struct Brief {
    index: SealIndex,
    epoch: EpochNumber,
    digest: Digest,
    prev: Digest,
    last: Option<(SealIndex, EpochNumber)>,
    last_in_epoch: bool,
    restart: bool,
    /// A manifest of its epoch lists it.
    is_listed: bool,
    /// The latest epoch of this seal and all before it.
    reached: EpochNumber,
    /// From this epoch on up to this seal none is missing.
    whole_from: EpochNumber,
}

/// What a device's seals say of what a manifest lists of it.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) findings: Vec<Finding>,
    pub(super) doubts: Vec<Doubt>,
}

impl DeviceAudit {
    /// Nothing yet of a device in the epochs from `since` on and before `until`.
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

    /// Takes the device's next seal, of which a manifest of its epoch says whether it is listed, and says where its chain breaks before it.
    ///
    /// # Errors
    /// [`Incomplete`]; the seal is taken all the same, and what follows is measured by it.
    pub(super) fn take(
        &mut self,
        seal: &Seal<Authentic>,
        is_listed: bool,
    ) -> Result<(), Incomplete> {
        let followed = self.history.next(seal);
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

    /// The seal of this digest, and where it stands.
    fn find(&self, digest: &Digest) -> Option<(usize, &Brief)> {
        let place = *self.by_digest.get(digest)?;
        Some((place, self.seals.get(place)?))
    }

    /// The seals of an epoch.
    fn of_epoch(&self, epoch: EpochNumber) -> impl Iterator<Item = &Brief> {
        self.by_epoch.get(&epoch).into_iter().flatten().filter_map(|place| self.seals.get(*place))
    }

    /// The first seal behind an epoch.
    fn behind(&self, epoch: EpochNumber) -> Option<&Brief> {
        self.seals.get(self.seals.partition_point(|seal| seal.reached <= epoch))
    }

    /// Whether the coordinator has taken a seal: it is listed, or one that is names it as its predecessor. A coordinator lists no seal that
    /// contradicts what its device forwarded before, nor one behind a seal that it never had; of any other seal it cannot be held to know.
    fn was_taken(&self, seal: &Brief) -> bool {
        let behind = || self.by_prev.get(&seal.digest).and_then(|place| self.seals.get(*place));
        seal.is_listed || behind().is_some_and(|next| next.is_listed)
    }

    /// Whether every seal that the device signed for an epoch is here: its chain leads past the epoch, or closes it, without a gap.
    fn is_whole(&self, epoch: EpochNumber) -> bool {
        let closing = self.of_epoch(epoch).filter(|seal| seal.last_in_epoch);
        closing.chain(self.behind(epoch)).any(|seal| seal.whole_from <= epoch)
    }

    /// What the seals say of what a manifest lists of the device, `listed` in ascending order. `has_gone_on` says that the coordinator
    /// has signed a manifest of a later epoch since.
    pub(super) fn judge(&self, epoch: EpochNumber, listed: &[Digest], has_gone_on: bool) -> Said {
        let device = self.device;
        let is_listed = |digest: &Digest| listed.binary_search(digest).is_ok();
        let mut said = Said::default();
        // The newest listed seal of the epoch, and where it stands.
        let mut last: Option<(usize, &Brief)> = None;
        // Whether something of the epoch may be neither listed nor late: a listed seal that is not here, or one left out between.
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
                Some((_, seal)) => said.findings.push(Finding::Replayed {
                    device,
                    index: seal.index,
                    from: seal.epoch,
                }),
                None => {
                    has_gap = true;
                    self.judge_unseen(epoch, *digest, has_gone_on, &mut said);
                }
            }
        }
        let late = self.of_epoch(epoch).filter(|seal| !is_listed(&seal.digest));
        said.doubts.extend(late.map(|seal| Doubt::Late { device, index: seal.index }));
        let behind = self.behind(epoch).filter(|next| !next.restart && self.was_taken(next));
        let goes_on = match (last, behind) {
            (Some((_, last)), _) if last.last_in_epoch => true,
            (Some((_, last)), Some(next)) => next.prev == last.digest,
            // It says itself that it had nothing between an earlier epoch and a later one.
            (None, Some(next)) => next.last.is_none_or(|(_, before)| before < epoch),
            (_, None) => false,
        };
        if !goes_on || has_gap {
            said.doubts.push(Doubt::Absent { device, listed: last.is_some() });
        }
        // What a device abandons behind a seal that closes the epoch is of a later one: nothing more of it was taken.
        let open = last.filter(|(_, last)| !last.last_in_epoch);
        let next = open.and_then(|(place, last)| {
            self.seals[place..].iter().find(|seal| seal.index > last.index)
        });
        if restarted || next.is_some_and(|seal| seal.restart) {
            said.doubts.push(Doubt::Restarted { device });
        }
        said
    }

    /// What is said of a listed seal that is not here.
    fn judge_unseen(&self, epoch: EpochNumber, digest: Digest, has_gone_on: bool, said: &mut Said) {
        let device = self.device;
        let named = self.by_prev.get(&digest).and_then(|place| self.seals.get(*place)?.last);
        match named {
            // It exists, for its successor names it, but as one of another epoch.
            Some((index, from)) if from != epoch => {
                said.findings.push(Finding::Replayed { device, index, from });
            }
            // It exists. That it is nowhere is said of the device's chain already.
            Some((index, _)) => said.doubts.push(Doubt::Withheld { device, index }),
            None if self.is_whole(epoch) => {
                said.findings.push(Finding::InventedSeal { device, digest });
            }
            None if has_gone_on => said.findings.push(Finding::Unshown { device, digest }),
            None => said.doubts.push(Doubt::NotShownYet { device, digest }),
        }
    }
}
