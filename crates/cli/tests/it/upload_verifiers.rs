//! Runs every verifier of a coordinator's uploads: the audit of all epochs, the audit of a single
//! epoch, and a client that queries the kept readings of a device.

use std::collections::BTreeMap;

use moteseal_adversary::coordinator::{Bundle, Upload, stream};
use moteseal_adversary::{Answer, Item};
use moteseal_api::Query;
use moteseal_client::audit::{Audit, Report};
use moteseal_client::output::OutputError;
use moteseal_client::{Rows, Session};
use moteseal_core::DeviceId;
use moteseal_core::record::EpochNumber;
use moteseal_core::signature::SecretKey;
use moteseal_seal::sample::{Choice, Rate};
use moteseal_verify::{Roster, write};

/// Audits everything that was uploaded. Returns the name of the error if it is refused.
pub fn audited(roster: &Roster, uploads: &[Upload], key: &SecretKey) -> Result<Report, String> {
    let first = uploads.first().map_or(EpochNumber(0), |upload| upload.epoch);
    run(Audit::new(roster, first, None).unwrap(), &stream(uploads, roster, key).unwrap())
}

/// Audits a single epoch. The audit uses what a cloud returns for a query of one epoch: the
/// manifests from that epoch on, the seals of the epoch, and for some devices one more seal. A
/// device has one more seal unless one of its seals of the epoch states that it ends the epoch.
pub fn audited_alone(
    roster: &Roster,
    uploads: &[Upload],
    at: usize,
    key: &SecretKey,
) -> Result<Report, String> {
    let epoch = uploads[at].epoch;
    let mut alone: Vec<Upload> = uploads[at..].to_vec();
    let mut ended: BTreeMap<DeviceId, bool> = BTreeMap::new();
    for upload in &mut alone {
        upload.bundles.sort_by_key(|bundle| (bundle.device, bundle.index));
        upload.bundles.retain(|bundle| {
            let has_ended = ended.entry(bundle.device).or_default();
            let is_served = !*has_ended;
            *has_ended |= upload.epoch > epoch || closes_epoch(bundle);
            is_served
        });
    }
    let audit = Audit::new(roster, epoch, Some(EpochNumber(epoch.0 + 1))).unwrap();
    run(audit, &stream(&alone, roster, key).unwrap())
}

/// Returns whether a bundle's seal states that it is the last seal of its epoch.
fn closes_epoch(bundle: &Bundle) -> bool {
    let items = Answer::decode(&bundle.bytes).unwrap().items;
    items.iter().any(|item| matches!(item, Item::Part(part) if part.last_in_epoch))
}

fn run(mut audit: Audit<'_>, bytes: &[u8]) -> Result<Report, String> {
    let mut feed = audit.stream();
    bytes
        .chunks(1000)
        .try_for_each(|chunk| feed.feed(chunk))
        .map_err(|refusal| refusal.name().to_owned())?;
    feed.finish().map_err(|refusal| refusal.name().to_owned())?;
    Ok(audit.finish())
}

/// Queries all readings of a device's epoch that the final round keeps, from a cloud that returns
/// this bundle. Returns the number of rows, or the name of the error.
pub fn rows_of(roster: &Roster, upload: &Upload, bundle: &Bundle) -> Result<u64, String> {
    let choice = Choice::Rate(Rate::new(1, 1 << upload.round.0).unwrap());
    let (since, until) = (upload.epoch, Some(EpochNumber(upload.epoch.0 + 1)));
    let mut session = Session::new(
        roster,
        Query { devices: vec![bundle.device], since, until, choice, columns: Vec::new() },
        None,
    );
    let mut answer = bundle.bytes.clone();
    write::end(&mut answer);
    let mut count = 0;
    let mut sink = |rows: &Rows<'_>| -> Result<(), OutputError> {
        count += u64::from(rows.len());
        Ok(())
    };
    let stopped = |stop| match stop {
        moteseal_client::Stop::Rejected(refusal) => refusal.name().to_owned(),
        moteseal_client::Stop::Output(error) => panic!("{error}"),
    };
    session.feed(&answer, &mut sink).map_err(stopped)?;
    session.finish(&mut sink).map_err(stopped)?;
    Ok(count)
}
