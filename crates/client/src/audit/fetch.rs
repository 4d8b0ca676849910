//! Fetches the data of an audit from a cloud: the manifests of a range of epochs, and then every
//! seal of the range without its events.

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, JSON, Query, paths};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_net::{Client as Cloud, Response};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_verify::Roster;

use super::{Audit, Claims, Report};
use crate::cloud_roster::{CloudRoster, annotated};
use crate::error::Error;
use crate::explain::explain;
use crate::pinned::PinnedSeals;
use crate::rejection::Rejected;

/// The number of devices in one query, which is far below the limit of a cloud.
const DEVICES: usize = 1024;
/// The number of epochs after the range whose manifests are also fetched. A manifest of one of
/// these epochs shows that the coordinator has continued.
const AFTER: u64 = 8;

/// A request for an audit. Call [`run`](Self::run) to send it.
#[derive(Debug)]
#[must_use = "a request does nothing until it is run"]
pub struct AuditRequest<'a> {
    cloud: &'a Cloud,
    roster: &'a Roster,
    since: EpochNumber,
    until: Option<EpochNumber>,
    claims: Option<Claims>,
    pinned: Option<&'a mut PinnedSeals>,
}

impl<'a> AuditRequest<'a> {
    pub(crate) const fn new(cloud: &'a Cloud, roster: &'a Roster) -> Self {
        Self { cloud, roster, since: EpochNumber(0), until: None, claims: None, pinned: None }
    }

    /// Sets the first epoch of the audit. The default is epoch 0.
    pub const fn since(mut self, since: EpochNumber) -> Self {
        self.since = since;
        self
    }

    /// Sets the epoch before which the audit ends. By default, the audit includes all epochs up to
    /// the newest.
    pub const fn until(mut self, until: EpochNumber) -> Self {
        self.until = Some(until);
        self
    }

    /// Also compares these claims of silence in private sums with the devices' seals.
    pub fn claims(mut self, claims: Claims) -> Self {
        self.claims = Some(claims);
        self
    }

    /// Sets the pinned seals, whose roster an audit checks: the audit refuses an earlier version of
    /// the roster than the pinned one, and pins a later one. The caller saves them.
    pub fn pinned_seals(mut self, pinned: &'a mut PinnedSeals) -> Self {
        self.pinned = Some(pinned);
        self
    }

    /// Fetches and verifies the manifests and seals, and returns the result of the audit.
    ///
    /// # Errors
    /// [`Error`] if the roster has no budget, if a later version of it is pinned, if the cloud cannot
    /// be reached, or if a response is rejected.
    pub async fn run(self) -> Result<Report, Error> {
        let Self { cloud, roster, since, until, claims, pinned } = self;
        if let Some(pinned) = pinned {
            pinned.pin_roster(roster)?;
        }
        let mut audit = Audit::new(roster, since, until)?;
        audit.claims = claims;
        let devices: Vec<DeviceId> = roster.devices().map(|device| device.id).collect();
        let after = until.map(|until| EpochNumber(until.0.saturating_add(AFTER)));
        let cloud_roster = fetch(&mut audit, cloud, &devices, (since, until), after).await?;
        Ok(Report { cloud_roster, ..audit.finish() })
    }
}

/// Implements [`Client::common_rate`](crate::Client::common_rate).
pub(crate) async fn common_rate(
    cloud: &Cloud,
    roster: &Roster,
    devices: &[DeviceId],
    (since, until): (EpochNumber, Option<EpochNumber>),
) -> Result<Rate, Error> {
    let Ok(mut audit) = Audit::new(roster, since, until) else { return Ok(Rate::ALL) };
    fetch(&mut audit, cloud, devices, (since, until), until).await?;
    // If no level exists in all seals, return the lowest rate. The cloud then rejects the query and
    // names the seal that lacks the level.
    let levels = roster.periods_in(since, until).map(|period| period.levels).min().unwrap_or(1);
    let round = audit.common_round().0.min(levels.saturating_sub(1));
    Ok(Rate::new(1, 1 << round).unwrap_or(Rate::ALL))
}

/// Fetches data for an audit: first the manifests of the epochs from `since` up to, but not
/// including, `after`, and then the seals of these devices in the range. Returns the cloud's version
/// of the roster, if it is not ours.
async fn fetch(
    audit: &mut Audit<'_>,
    cloud: &Cloud,
    devices: &[DeviceId],
    (since, until): (EpochNumber, Option<EpochNumber>),
    after: Option<EpochNumber>,
) -> Result<Option<CloudRoster>, Error> {
    let manifests = cloud.get(&paths::manifests(since, after)).await?.expect(CBOR_SEQ)?;
    let mut cloud_roster = read(audit, cloud, manifests).await?;
    for devices in devices.chunks(DEVICES) {
        // No level that has events fits into a maximum of zero readings. The response therefore
        // contains the seals without events.
        let query = Query {
            devices: devices.to_vec(),
            since,
            until,
            choice: Choice::AtMost(0),
            columns: Vec::new(),
        };
        let response =
            cloud.post(paths::QUERY, JSON, Bytes::from(query.to_json())).await?.expect(CBOR_SEQ)?;
        cloud_roster = read(audit, cloud, response).await?.or(cloud_roster);
    }
    Ok(cloud_roster)
}

/// Passes a response to the audit. Returns the cloud's version of the roster, if it is not ours.
async fn read(
    audit: &mut Audit<'_>,
    cloud: &Cloud,
    mut response: Response,
) -> Result<Option<CloudRoster>, Error> {
    let roster = audit.roster;
    let cloud_roster = CloudRoster::of(&response, roster);
    let mut feed = audit.stream();
    while let Some(chunk) = response.chunk().await? {
        if let Err(rejection) = feed.feed(&chunk) {
            let suspects = if rejection.is_unproven_run() { feed.suspects() } else { &[] };
            let finding =
                if suspects.is_empty() { None } else { explain(cloud, roster, suspects).await };
            let rejected = Rejected { finding, ..rejection.into() };
            return Err(annotated(Error::Rejected(Box::new(rejected)), cloud_roster));
        }
    }
    feed.finish().map_err(|rejection| annotated(rejection.into(), cloud_roster))?;
    Ok(cloud_roster)
}
