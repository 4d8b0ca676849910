//! The manifests at the start of a response, in a group with a budget. They state the final round
//! of each epoch, and the seals that the response must contain (`spec/answers.md`, section 6 and
//! `spec/answers.md`, section 3). This module does not check whether the rounds follow from the
//! counters; the audit does.

use std::collections::{BTreeMap, BTreeSet};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, Round};
use moteseal_seal::sample::Manifest;
use moteseal_verify::Roster;

use crate::proof_scope::Scope;
use crate::rejection::Rejection;

/// The manifests of a response, for the requested epochs and devices.
#[derive(Debug)]
pub(super) struct Manifests {
    /// The first epoch of each period of the group, in ascending order, and whether the group has a
    /// budget in the period. Without a budget there are no manifests, and all levels must be
    /// served.
    budgeted: Vec<(EpochNumber, bool)>,
    ended: BTreeMap<EpochNumber, (Round, Digest)>,
    /// The listed seals of the requested devices that have not arrived yet.
    unseen: BTreeMap<DeviceId, BTreeSet<(EpochNumber, Digest)>>,
    /// Whether only manifests have arrived so far.
    first: bool,
}

impl Manifests {
    pub(super) fn new(roster: &Roster) -> Self {
        Self {
            budgeted: roster
                .periods()
                .iter()
                .map(|period| (period.first_epoch, period.budget.is_some()))
                .collect(),
            ended: BTreeMap::new(),
            unseen: BTreeMap::new(),
            first: true,
        }
    }

    /// Checks the next manifest. It must be in the range, after the previous manifest, and before
    /// all parts. A redacted proof has no manifests.
    pub(super) fn take(&mut self, manifest: &Manifest<'_>, scope: &Scope) -> Result<(), Rejection> {
        let epoch = manifest.epoch();
        let (since, until) = scope.range();
        let until = until.unwrap_or(EpochNumber(u64::MAX));
        let in_range = (since..until).contains(&epoch) && !scope.is_redacted();
        if let Some((last, (_, digest))) = self.ended.last_key_value()
            && *last == epoch
            && *digest != manifest.digest()
        {
            return Err(Rejection::TwoManifests { epoch });
        }
        let ascends = self.ended.last_key_value().is_none_or(|(last, _)| *last < epoch);
        if !self.has_budget(epoch) || !self.first || !in_range || !ascends {
            return Err(Rejection::ManifestNotAsAsked { epoch });
        }
        self.ended.insert(epoch, (manifest.round(), manifest.digest()));
        for (device, seals) in
            manifest.devices().filter(|(device, _)| scope.devices().contains(device))
        {
            self.unseen.entry(device).or_default().extend(seals.map(|seal| (epoch, seal)));
        }
        Ok(())
    }

    /// Records that a part has arrived. No manifest may follow.
    pub(super) const fn begun(&mut self) {
        self.first = false;
    }

    /// Records a seal of the range. Returns whether it is late, which means that the manifest of
    /// its epoch does not list it.
    pub(super) fn shown(&mut self, device: DeviceId, epoch: EpochNumber, seal: Digest) -> bool {
        let listed =
            self.unseen.get_mut(&device).is_some_and(|unseen| unseen.remove(&(epoch, seal)));
        !listed && self.ended.contains_key(&epoch)
    }

    /// Rejects the response if a listed seal of this device has not arrived.
    pub(super) fn all_shown(&self, device: DeviceId) -> Result<(), Rejection> {
        match self.unseen.get(&device).and_then(BTreeSet::first) {
            Some(&(epoch, seal)) => Err(Rejection::Unshown { device, epoch, seal }),
            None => Ok(()),
        }
    }

    /// Returns the round of an epoch, below which no level is kept. Returns round 0
    /// if the group has no budget in the epoch, and `None` if the epoch lacks its manifest.
    pub(super) fn round(&self, epoch: EpochNumber) -> Option<Round> {
        if self.has_budget(epoch) {
            self.ended.get(&epoch).map(|(round, _)| *round)
        } else {
            Some(Round(0))
        }
    }

    /// Returns whether the group has a budget in an epoch.
    fn has_budget(&self, epoch: EpochNumber) -> bool {
        let period = self.budgeted.iter().rev().find(|(first, _)| *first <= epoch);
        period.or(self.budgeted.first()).is_some_and(|(_, budgeted)| *budgeted)
    }

    /// Returns the epochs that have a manifest, with their rounds, in ascending order.
    pub(super) fn rounds(&self) -> impl Iterator<Item = (EpochNumber, Round)> + '_ {
        self.ended.iter().map(|(epoch, (round, _))| (*epoch, *round))
    }
}
