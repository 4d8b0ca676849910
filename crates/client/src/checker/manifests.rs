//! The manifests that an answer begins with, in a group with a budget: at which round each epoch ended, and which seals must be
//! shown (spec/formats.md, sections 5 and 8.1). Whether the rounds are the ones that the counters ask for is for the audit.

use std::collections::{BTreeMap, BTreeSet};

use moteseal_api::Query;
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Round};
use moteseal_seal::sample::Manifest;
use moteseal_verify::Roster;

use crate::rejection::Rejection;

/// What the manifests of an answer say of the epochs and devices that were asked for.
#[derive(Debug)]
pub(super) struct Manifests {
    /// Whether the group has a budget; without one there are no manifests, and nothing is pruned.
    budgeted: bool,
    ended: BTreeMap<EpochNumber, (Round, Digest)>,
    /// Seals of the asked devices that are listed and were not shown yet.
    unseen: BTreeMap<DeviceId, BTreeSet<(EpochNumber, Digest)>>,
    /// Nothing but a manifest has come so far.
    first: bool,
}

impl Manifests {
    pub(super) fn new(roster: &Roster) -> Self {
        Self {
            budgeted: roster.budget().is_some(),
            ended: BTreeMap::new(),
            unseen: BTreeMap::new(),
            first: true,
        }
    }

    /// Takes the next manifest: of the range, behind the one before, and before everything else.
    pub(super) fn take(&mut self, manifest: &Manifest<'_>, query: &Query) -> Result<(), Rejection> {
        let epoch = manifest.epoch();
        let in_range = epoch >= query.since && query.until.is_none_or(|until| epoch < until);
        if let Some((last, (_, digest))) = self.ended.last_key_value()
            && *last == epoch
            && *digest != manifest.digest()
        {
            return Err(Rejection::TwoManifests { epoch });
        }
        let ascends = self.ended.last_key_value().is_none_or(|(last, _)| *last < epoch);
        if !self.budgeted || !self.first || !in_range || !ascends {
            return Err(Rejection::ManifestNotAsAsked { epoch });
        }
        self.ended.insert(epoch, (manifest.round(), manifest.digest()));
        for (device, seals) in
            manifest.devices().filter(|(device, _)| query.devices.contains(device))
        {
            self.unseen.entry(device).or_default().extend(seals.map(|seal| (epoch, seal)));
        }
        Ok(())
    }

    /// A part has come, behind which no manifest stands.
    pub(super) const fn begun(&mut self) {
        self.first = false;
    }

    /// Takes note of a seal of the range, and says whether it is late: its epoch's manifest does not list it.
    pub(super) fn shown(&mut self, device: DeviceId, epoch: EpochNumber, seal: Digest) -> bool {
        let listed =
            self.unseen.get_mut(&device).is_some_and(|unseen| unseen.remove(&(epoch, seal)));
        !listed && self.ended.contains_key(&epoch)
    }

    /// Refuses a device of which a listed seal was not shown.
    pub(super) fn all_shown(&self, device: DeviceId) -> Result<(), Rejection> {
        match self.unseen.get(&device).and_then(BTreeSet::first) {
            Some(&(epoch, seal)) => Err(Rejection::Unshown { device, epoch, seal }),
            None => Ok(()),
        }
    }

    /// The round below which nothing of an epoch survives: 0 in a group without a budget, `None` where there is no manifest.
    pub(super) fn round(&self, epoch: EpochNumber) -> Option<Round> {
        if self.budgeted { self.ended.get(&epoch).map(|(round, _)| *round) } else { Some(Round(0)) }
    }

    /// The epochs with their rounds, ascending.
    pub(super) fn rounds(&self) -> impl Iterator<Item = (EpochNumber, Round)> + '_ {
        self.ended.iter().map(|(epoch, (round, _))| (*epoch, *round))
    }
}
