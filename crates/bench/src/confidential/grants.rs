//! How long it takes to make and to open a large grant.

use std::hint::black_box;

use moteseal_core::confidential::{ColumnId, StreamSecret};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::signature::Algorithm;
use moteseal_grant::{GrantRequest, Identity, OpenGrant, Owner, Recipients, Unlock};
use moteseal_verify::Roster;
use moteseal_verify::issue::{FirstRoster, NextRoster};

use crate::group_of_one::{DEVICE, GROUP, key};
use crate::load::Failed;
use crate::measure::{Bar, Contender, Report, interleaved};

const DEVICES: u16 = 1_000;
const COLUMNS: [&str; 2] = ["temperature", "humidity"];
/// The epoch with which the keys begin.
const BASE: EpochNumber = EpochNumber(1_000);
/// The first of the epochs of the grant, and their number: 30 days of hours. The range is not aligned to a
/// power of two.
const SINCE: u64 = 9_763;
const EPOCHS: u64 = 30 * 24;
const RUNS: usize = 15;

/// Measures a grant of a month of [`DEVICES`] devices and two columns, for one reader.
pub(super) fn measure(report: &mut Report) -> Result<(), Failed> {
    let [operator, device, alice] = [1, 2, 3].map(|seed| key(Algorithm::Ed25519, seed));
    let (operator, device, alice) = (operator?, device?, alice?);
    let devices = &[(DEVICE, device.public())];
    let first =
        FirstRoster { group: GROUP, epoch_ms: 3_600_000, levels: 16, budget: None, devices };
    let mut next = NextRoster::after(&first.issue(&operator)?, &operator, &operator.public())?;
    next.set_owner("alice", &alice.public())?;
    let roster = Roster::open(&next.issue()?, &operator.public())?;

    let mut owner = Owner::new(GROUP, "alice", alice)?;
    let columns = COLUMNS.map(|name| (ColumnId::of(name.as_bytes()), name));
    let mut devices = Vec::new();
    for number in 0..DEVICES {
        let mut secret = [7; 32];
        secret[..2].copy_from_slice(&number.to_be_bytes());
        devices.push(DeviceId::of(GROUP, &format!("dev{number}")));
        owner.add(devices[usize::from(number)], StreamSecret::new(secret, BASE), &columns)?;
    }
    let reader = Identity::generate();
    let recipients = Recipients::Keys(vec![reader.recipient().clone()]);
    let unlock = Unlock::Identities(vec![reader]);
    let request = GrantRequest {
        devices: &devices,
        columns: None,
        epochs: EpochNumber(SINCE)..=EpochNumber(SINCE + EPOCHS - 1),
        recipients: &recipients,
        not_after_ms: None,
        purpose: "measurement",
    };
    let file = owner.grant(&request, &roster, false)?;
    let granted = OpenGrant::open(&file, &unlock, &roster, 0)?;
    let keys: usize = granted.contents().columns.iter().map(|column| column.nodes).sum();
    let times = interleaved(
        RUNS,
        &mut [
            Contender::new(1, || drop(black_box(owner.grant(&request, &roster, false)))),
            Contender::new(1, || drop(black_box(OpenGrant::open(&file, &unlock, &roster, 0)))),
        ],
    );
    let title = format!("a grant of a month, {DEVICES} devices, {} columns", COLUMNS.len());
    for (at, what, most) in [(0, "made", 50.0), (1, "opened", 10.0)] {
        let of = times.spread(at).scaled(1e-6);
        report.add_spread(format!("{title}: {what} in"), of, "ms", Bar::AtMost(most));
    }
    report.add(format!("{title}: keys of nodes"), keys as f64, "", None);
    report.add(format!("{title}: its file"), file.len() as f64 / 1e6, "MB", None);
    Ok(())
}
