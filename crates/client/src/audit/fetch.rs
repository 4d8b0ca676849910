//! Asking a cloud for what an audit needs: the manifests of a range of epochs, then every seal of it, with no events.

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, JSON, Query, paths};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_net::{Client, Response};
use moteseal_seal::sample::{Choice, Rate};
use moteseal_verify::Roster;

use super::{Audit, Claims, NoBudget, Report};
use crate::get::{Failure, explain};
use crate::refusal::{Refusal, Refused};

/// Devices of one query: far below what a cloud refuses.
const DEVICES: usize = 1024;
/// So many epochs behind the range are looked at for a manifest, which shows that the coordinator has gone on.
const BEHIND: u64 = 8;

/// Audits the epochs from `since` on and before `until` of a group; everything so far without an end. With `claims`, also who was said to be
/// silent in private sums.
///
/// # Errors
/// [`Failure`]: the cloud could not be asked, or what it answered is refused; [`NoBudget`], where there is nothing to audit.
pub async fn audit(
    client: &Client,
    roster: &Roster,
    since: EpochNumber,
    until: Option<EpochNumber>,
    claims: Option<Claims>,
) -> Result<Result<Report, Failure>, NoBudget> {
    let mut audit = Audit::new(roster, since, until)?;
    audit.claims = claims;
    let devices: Vec<DeviceId> = roster.devices().map(|device| device.id).collect();
    let behind = until.map(|until| EpochNumber(until.0.saturating_add(BEHIND)));
    let fetched = fetch(&mut audit, client, &devices, (since, until), behind).await;
    Ok(fetched.map(|()| audit.finish()))
}

/// The highest rate of the form `1/2^d` at which all that these devices sealed in a range can be had: 1 without a budget, else that
/// of the highest round that a manifest of the range has, or of the finest level that every seal of it still has where a device had
/// raised itself further, or lost readings. What a store keeps no more of a seal that came late, nothing signed says: it is refused
/// when it is asked for, by name.
///
/// # Errors
/// [`Failure`], as of [`audit`].
pub async fn common_rate(
    client: &Client,
    roster: &Roster,
    devices: &[DeviceId],
    (since, until): (EpochNumber, Option<EpochNumber>),
) -> Result<Rate, Failure> {
    let Ok(mut audit) = Audit::new(roster, since, until) else { return Ok(Rate::ALL) };
    fetch(&mut audit, client, devices, (since, until), until).await?;
    // Where no level is left of all, the lowest rate is asked for, and refused for the seal that lacks it.
    let round = audit.common_round().0.min(roster.levels().saturating_sub(1));
    Ok(Rate::new(1, 1 << round).unwrap_or(Rate::ALL))
}

/// Feeds an audit the manifests of the epochs from `since` on and before `behind`, then the seals of these devices in the range.
async fn fetch(
    audit: &mut Audit<'_>,
    client: &Client,
    devices: &[DeviceId],
    (since, until): (EpochNumber, Option<EpochNumber>),
    behind: Option<EpochNumber>,
) -> Result<(), Failure> {
    let manifests = client.get(&paths::manifests(since, behind)).await?.expect(CBOR_SEQ)?;
    read(audit, client, manifests).await?;
    for devices in devices.chunks(DEVICES) {
        // No level that has events fits none: the answer is the seals alone.
        let query = Query { devices: devices.to_vec(), since, until, choice: Choice::AtMost(0) };
        let answer = client
            .post(paths::QUERY, JSON, Bytes::from(query.to_json()))
            .await?
            .expect(CBOR_SEQ)?;
        read(audit, client, answer).await?;
    }
    Ok(())
}

async fn read(audit: &mut Audit<'_>, client: &Client, mut answer: Response) -> Result<(), Failure> {
    let roster = audit.roster;
    let mut feed = audit.stream();
    while let Some(chunk) = answer.chunk().await? {
        if let Err(refusal) = feed.feed(&chunk) {
            let suspects = if refusal.is_unproven_run() { feed.suspects() } else { &[] };
            let finding =
                if suspects.is_empty() { None } else { explain(client, roster, suspects).await };
            return Err(Failure::Refused(Box::new(Refused { refusal, finding })));
        }
    }
    feed.finish().map_err(refused)
}

fn refused(refusal: Refusal) -> Failure {
    Failure::Refused(Box::new(refusal.into()))
}
