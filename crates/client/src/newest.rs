//! Finds a device's newest stored seal and verifies it. A device whose state is lost continues after
//! this seal (spec/coordinator.md, section 5).

use moteseal_api::{DeviceList, paths};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::Position;
use moteseal_seal::sample::{Choice, Rate};

use crate::completeness::Standing;
use crate::error::Error;
use crate::get::Client;
use crate::pinned::PinnedSeals;
use crate::rows::Rows;

/// The maximum length of a listing of devices, in bytes.
const MAX_LISTING: usize = 16 << 20;

impl Client<'_> {
    /// Returns the position after the device's newest seal that the cloud has, and the number of
    /// readings in the seals of its epoch, 0 if that is not known. The seals are verified against
    /// the roster. Returns `None` if the cloud has no seal of the device. A cloud can withhold the
    /// newest seals; it is rejected if it withholds one that is in `pinned`.
    ///
    /// # Errors
    /// [`Error`] if the cloud cannot be reached or its response is rejected.
    pub async fn newest_seal(
        self,
        device: DeviceId,
        mut pinned: PinnedSeals,
    ) -> Result<Option<(Position, u64)>, Error> {
        let listing = self.cloud().get(&paths::device(device)).await?.bytes(MAX_LISTING).await?;
        // The listing proves nothing. It only tells where the query can start.
        let id = device.to_string();
        let newest = serde_json::from_slice::<DeviceList>(&listing)
            .ok()
            .and_then(|list| list.devices.into_iter().find(|entry| entry.id == id)?.newest);
        let since = EpochNumber(newest.map_or(0, |newest| newest.epoch));
        let found = self.newest_since(device, since, &mut pinned).await?;
        let is_later = |(position, _): &(Position, u64)| {
            position.last.is_some_and(|(_, epoch)| epoch >= since)
        };
        if since.0 == 0 || found.as_ref().is_some_and(is_later) {
            return Ok(found);
        }
        // The cloud does not serve the seal that it lists as the newest: it is void or outdated.
        self.newest_since(device, EpochNumber(0), &mut pinned).await
    }

    /// Returns the position after the newest seal that is pinned, after those of the epochs from
    /// `since` on were pinned.
    async fn newest_since(
        self,
        device: DeviceId,
        since: EpochNumber,
        pinned: &mut PinnedSeals,
    ) -> Result<Option<(Position, u64)>, Error> {
        // In a group with a budget, a rate may be unavailable. A maximum of zero readings selects
        // the seals without events.
        let has_budget = self.roster().has_budget();
        let choice = if has_budget { Choice::AtMost(0) } else { Choice::Rate(Rate::ALL) };
        let request = self.get().devices([device]).since(since).choice(choice);
        let verified = request.pinned_seals(pinned).run(&mut |_: &Rows<'_>| Ok(())).await?;
        let report = verified.report;
        let Some(newest) = pinned.of(self.roster(), device) else { return Ok(None) };
        let report = report.devices.first();
        let epoch_closed = match report.map(|device| device.standing) {
            Some(Standing::TailUnknown { from }) => from > newest.epoch,
            // Whether the epoch is closed is not known. Readings of this epoch are then refused.
            _ => true,
        };
        let readings = report.filter(|device| device.epochs == 1).map_or(0, |device| device.events);
        let last = Some((newest.index, newest.epoch));
        Ok(Some((Position { prev: newest.digest, last, epoch_closed }, readings)))
    }
}
