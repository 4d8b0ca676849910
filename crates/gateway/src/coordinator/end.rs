//! Ends an epoch: computes the round that the signed counters require, the manifest and the bundles
//! (spec/coordinator.md, section 3).

use moteseal_core::digest::Digest;
use moteseal_core::identity::IssueError;
use moteseal_core::record::{DeviceId, EpochNumber, Round};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::Signer;
use moteseal_seal::sample::{ManifestDraft, Tally};

use super::{Ended, Epoch, GroupCoordinator, Member, Newest, ROUNDS, Sealed};

impl GroupCoordinator {
    /// Ends an epoch and signs its manifest with the coordinator's key. The manifest does not list
    /// seals of the epoch that arrive later. End epochs in ascending order: after an epoch has
    /// ended, seals of all earlier epochs count as late.
    ///
    /// # Errors
    /// [`IssueError`]. Nothing has changed except the round.
    pub fn end(
        &mut self,
        epoch: EpochNumber,
        coordinator: &dyn Signer,
    ) -> Result<Ended, IssueError> {
        self.settle(epoch);
        let state = &self.epochs[&epoch];
        let round = state.coordinator.round();
        let manifest = self.manifest(epoch, state, coordinator)?;
        let bundles = state.listed().map(|sealed| self.bundle(sealed)).collect();
        let unlisted: Vec<_> = state
            .sealed
            .iter()
            .filter(|sealed| !sealed.is_listed)
            .map(|sealed| (epoch, self.bundle(sealed)))
            .collect();
        let kept = state.listed().map(Sealed::kept).sum();
        let absent = self.absent(state);
        self.late_bundles.extend(unlisted);
        self.leave(epoch, round);
        Ok(Ended { epoch, round, kept, manifest, bundles, absent })
    }

    /// Raises the round to the one that the counters of the listed seals require.
    fn settle(&mut self, epoch: EpochNumber) {
        let mut tally = Tally::new(self.roster.levels(epoch), self.budget(epoch));
        let state = self.epoch(epoch);
        state.sealed.sort_by_key(|sealed| (sealed.slot, sealed.seal.statement().index));
        state.listed().for_each(|sealed| tally.add(&sealed.seal));
        let before = state.coordinator.kept();
        let dropped = state.coordinator.settle(tally.due());
        let discarded = before.saturating_sub(state.coordinator.kept());
        self.counts.discarded += discarded;
        self.forget(epoch, dropped);
    }

    /// Builds and signs the manifest.
    fn manifest(
        &self,
        epoch: EpochNumber,
        state: &Epoch,
        coordinator: &dyn Signer,
    ) -> Result<Vec<u8>, IssueError> {
        let mut listed: Vec<(DeviceId, Vec<Digest>)> = Vec::new();
        for sealed in state.listed() {
            let device = self.devices[sealed.slot.0 as usize].id;
            match listed.last_mut() {
                Some((last, seals)) if *last == device => seals.push(sealed.seal.digest()),
                _ => listed.push((device, vec![sealed.seal.digest()])),
            }
        }
        let devices: Vec<(DeviceId, &[Digest])> =
            listed.iter().map(|(device, seals)| (*device, &seals[..])).collect();
        let (group, roster, round) =
            (self.roster.group(), self.roster.digest(), state.coordinator.round());
        let draft = ManifestDraft { group, roster, epoch, round, devices: &devices };
        let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
        Ok(draft.issue(coordinator, &mut scratch, &mut out)?.to_vec())
    }

    /// Drops the state of an ended epoch. If a device has a seal of the epoch open, the epoch
    /// becomes a late epoch: the events of the open seal are kept, and the seal counts as late when
    /// it arrives.
    fn leave(&mut self, epoch: EpochNumber, round: Round) {
        let Some(mut state) = self.epochs.remove(&epoch) else { return };
        self.openers.remove(&epoch);
        for sealed in std::mem::take(&mut state.sealed) {
            // Late seals have their own budget. Only the events of open seals count towards it.
            for (level, events) in sealed.kept_levels() {
                state.coordinator.withdraw(level, events);
            }
            let member = &mut self.devices[sealed.slot.0 as usize];
            if member.over.is_none_or(|newest| newest.index < sealed.seal.statement().index) {
                member.over = Some(Newest::of(&sealed.seal));
            }
        }
        let is_open =
            |member: &Member| member.open.as_ref().is_some_and(|open| open.followed.epoch == epoch);
        if self.devices.iter().any(is_open) {
            self.late.insert(epoch, state);
        }
        self.over = self.over.max(Some(epoch));
        self.rounds.insert(epoch, round);
        if self.rounds.len() > ROUNDS {
            self.rounds.pop_first();
        }
    }
}
